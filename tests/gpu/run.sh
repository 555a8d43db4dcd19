#!/bin/sh
# run.sh - the device checks on the GPUs of this machine: tests/gpu/run.sh [directory of the CUDA toolkit]
# Compiles what it needs by itself (a C compiler and cuda.h); the driver is the machine's own. CC and CFLAGS are obeyed.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
cuda=${1:-${CUDA_HOME:-/usr/local/cuda}}
if [ ! -f "$cuda/include/cuda.h" ]; then
    echo "run.sh: no cuda.h in $cuda/include: give the toolkit's directory as the first argument" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$top"
# shellcheck disable=SC2086
${CC:-cc} -std=c11 -D_GNU_SOURCE -DHAVE_CUDA_H=1 ${CFLAGS:--O2 -g} -pthread -Iinclude -Isrc -isystem "$cuda/include" \
    -o "$work/gpu_checks" tests/gpu/gpu_checks.c src/device/*.c src/base/*.c -ldl -lm
"$work/gpu_checks"
