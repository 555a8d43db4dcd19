#!/bin/sh
# run.sh [SEED]... - builds fuzz_open with clang and runs it from the tree's own small files, and those given (a directory
# gives all of its files up to 64 KiB): for FUZZ_SECONDS (60), or FUZZ_RUNS executions, by FUZZ_JOBS (1) processes. FUZZ_DIR
# keeps what was built and found; an input that breaks something is left there as crash-*, oom-* or timeout-*.
# Directories that are checkpoints of several files go in whole (pack.py): those of tests/data, of the SEEDs, and, where $builddir names
# a build whose tests are built, those that the tests of the sharded formats write.
# FUZZ_ALL_JOBS=1 with one file (FUZZ_DIR/fuzz_open FILE) does all that is done by turns. Not part of `make check`.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
work=${FUZZ_DIR:-$(mktemp -d)}
CLANG=${CLANG:-clang}
libs=$(pkg-config --cflags --libs zlib libcjson yaml-0.1 libpcre2-8)
mkdir -p "$work/corpus"
# By content, as names are the same in many directories.
find "$top"/tests/data "$@" -type f -size -64k 2>/dev/null | while read -r seed; do
    cp "$seed" "$work/corpus/$(cksum <"$seed" | tr ' ' -)"
done
mkdir -p "$work/tests"
for name in dcp deepspeed fsdp llmc megatron torch_dist; do
    program=${builddir:-$top/build}/tests/unit/format/test_$name
    [ ! -x "$program" ] || srcdir=$top CKPT_TEST_KEEP=$work/tests "$program" >/dev/null 2>&1 || echo "$program failed: fewer seeds"
done
python3 "$top/tests/fuzz/pack.py" "$work/corpus" "$top/tests/data" "$work/tests" "$@"
echo "building $work/fuzz_open"
sh "$top/src/doctor/snippets/all.sh" >"$work/snippet_templates.c"
# Without libhdf5, whose own faults are not ours: what stands in its place says that it is not built in.
sources=$(find "$top/src" -name '*.c' ! -path '*/cli/*' ! -path '*/keras/attribute.c' ! -path '*/keras/dataset.c' ! -path '*/keras/driver.c' \
    ! -path '*/keras/hdf5*.c')
# shellcheck disable=SC2086
$CLANG -std=c11 -D_GNU_SOURCE -DCKPT_EXPERIMENTAL -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION \
    -I"$top/include" -I"$top/src" "$top"/tests/fuzz/fuzz_open.c "$top"/tests/fuzz/mutate.c $sources "$work/snippet_templates.c" \
    $libs -lm -ldl -lpthread -Wl,--wrap=mmap,--wrap=munmap -o "$work/fuzz_open"
cd "$work"
# A hostile file may ask for memory by a number in it: fuzz_open ends at the bound of each file; these limits are for what is not
# its file's.
limits="-rss_limit_mb=1500 -malloc_limit_mb=256 -timeout=60 -max_len=131072 -print_final_stats=1"
if [ -n "${FUZZ_RUNS:-}" ]; then limits="$limits -runs=$FUZZ_RUNS"; else limits="$limits -max_total_time=${FUZZ_SECONDS:-60}"; fi
[ -z "${FUZZ_JOBS:-}" ] || limits="$limits -jobs=$FUZZ_JOBS -workers=$FUZZ_JOBS"
# shellcheck disable=SC2086
./fuzz_open $limits corpus
echo "the corpus is in $work/corpus"
