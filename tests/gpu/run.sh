#!/bin/sh
# run.sh - devices, save and restore on the GPUs of this machine: tests/gpu/run.sh [directory of the CUDA toolkit]
# Compiles what it needs by itself (a C compiler and the libraries that README lists; cuda.h is the toolkit's, or ours where
# there is none); the driver is the machine's own. CC and CFLAGS are obeyed.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
cuda=${1:-${CUDA_HOME:-/usr/local/cuda}}
include=$cuda/include
[ -f "$include/cuda.h" ] || include=$top/src/device/driver
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$top"
sh src/doctor/snippets/all.sh >"$work/snippet_templates.c"
libs=$(pkg-config --cflags --libs zlib libcjson yaml-0.1 libpcre2-8)
# No file of Keras is read here: what includes libhdf5's headers is left out, as in a build without it.
sources=$(find src -name '*.c' ! -path 'src/cli/*' -exec grep -L '#include.*hdf5' {} +)
flags="-std=c11 -D_GNU_SOURCE -DCKPT_EXPERIMENTAL -DHAVE_CUDA_H=1 ${CFLAGS:--O2 -g} -pthread -Iinclude -Isrc -Itests/unit -isystem $include"
export flags libs work
# The library once, a file a process; then both programs.
printf '%s\n' $sources "$work/snippet_templates.c" | xargs -P "$(getconf _NPROCESSORS_ONLN)" -I{} sh -c '
    ${CC:-cc} $flags $libs -c "$1" -o "$work/$(echo "$1" | tr / _).o"' sh {}
for program in gpu_checks gpu_restore; do
    # shellcheck disable=SC2086
    ${CC:-cc} $flags -o "$work/$program" "tests/gpu/$program.c" "$work"/*.o $libs -ldl -lm
done
status=0
"$work/gpu_checks" || status=1
"$work/gpu_restore" || status=1
exit $status
