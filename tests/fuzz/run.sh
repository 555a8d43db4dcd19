#!/bin/sh
# run.sh [SEEDS]... - builds fuzz_open with clang and runs it for FUZZ_SECONDS (60) from the tree's own small files.
# What it finds is left in the corpus directory, which is printed. Not part of `make check`.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
work=${FUZZ_DIR:-$(mktemp -d)}
CLANG=${CLANG:-clang}
libs=$(pkg-config --cflags --libs zlib libcjson yaml-0.1 libpcre2-8)
mkdir -p "$work/corpus"
for seed in "$top"/tests/data/cli/*.pt "$top"/tests/data/cli/*.safetensors "$@"; do
    cp "$seed" "$work/corpus/"
done
echo "building $work/fuzz_open"
# shellcheck disable=SC2086
$CLANG -std=c11 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
    -I"$top/include" -I"$top/src" "$top"/tests/fuzz/fuzz_open.c $(find "$top/src" -name '*.c' ! -path '*/cli/*') \
    $libs -lm -ldl -lpthread -o "$work/fuzz_open"
cd "$work"
# A hostile file may ask for memory by a number in it: 1 GiB in all is the mark.
./fuzz_open -max_total_time="${FUZZ_SECONDS:-60}" -rss_limit_mb=1500 -malloc_limit_mb=1024 -timeout=20 -max_len=65536 \
    -print_final_stats=1 corpus
echo "the corpus is in $work/corpus"
