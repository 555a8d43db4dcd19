#!/bin/sh
# readme.sh - are the pages true? Each session of README and docs/tour.md is run again, in a terminal of 80 columns, and must print
# what the page shows; the C of README and docs/trainers.md must compile; README stays short.
#   readme.sh --print   prints the sessions as they come out now
#   readme.sh --write   puts what the commands print now into the pages, and the lines of the adoption diff
# A session is a block of lines with four blanks before them, whose first line is a command: "    $ ...". The commands of a page
# run in one shell, in a folder that looks like a clone that was built: build/src/cli, tests/data.
set -u
srcdir=${srcdir:-.} builddir=${builddir:-.} CC=${CC:-cc}
mode=${1:-}
top=$(cd "$srcdir" && pwd) build=$(cd "$builddir" && pwd)
command -v script >/dev/null 2>&1 || { echo "script (util-linux) is not there: the sessions cannot be run"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/readme.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
NO_COLOR=1
export NO_COLOR
failed=0

wrong() {
    echo "$*"
    failed=1
}

# renewed OLD NEW PAGE: the page is the new one, or says something else
renewed() {
    if [ "$mode" = --write ]; then
        cmp -s "$1" "$2" || { cp "$2" "$top/$3" && echo "$3: written"; }
    else
        diff "$1" "$2" || wrong "$3: < the page, > what it should be (readme.sh --write)"
    fi
}

# session PAGE LEAST: runs its commands, of which there are LEAST or more
session() {
    here=$work/$(basename "$1")
    mkdir -p "$here/build/src" "$here/tests/data"
    ln -s "$build/src/cli" "$here/build/src/cli"
    for data in cli/plain.pt torch-handover/ar-ckpt-mixed.pth peers/lightning.ckpt peers/accelerate run/damaged; do
        mkdir -p "$here/tests/data/$(dirname $data)"
        cp -r "$top/tests/data/$data" "$here/tests/data/$data" || exit 99
    done
    chmod -R u+w "$here"
    # The marker before the output of command N is the byte 1, and N.
    sed -n 's/^    \$ //p' "$top/$1" | awk '{ printf "printf \"\\001%d\\n\"\n%s\n", NR, $0 }' >"$here.commands"
    (cd "$here" && script -qec "stty cols 80; sh '$here.commands'" /dev/null </dev/null) | tr -d '\r' >"$here.output"
    ran=$(grep -c "^$(printf '\001')" "$here.output")
    test "$ran" -ge "$2" || wrong "$1: only $ran commands were found, or run"
    ! grep 'not found$' "$here.output" || wrong "$1: a command is not there"
    awk 'FNR == NR { if (substr($0, 1, 1) == "\001") n = substr($0, 2) + 0; else out[n] = out[n] "    " $0 "\n"; next }
         /^    \$ /  { print; printf "%s", out[++command]; inside = 1; next }
         inside && /^    / { next }
         { inside = 0; print }' "$here.output" "$top/$1" >"$here.now"
    if [ "$mode" = --print ]; then
        awk '/^    \$ / { inside = 1 } !/^    / { inside = 0 } inside' "$here.now"
    else
        renewed "$top/$1" "$here.now" "$1"
    fi
}

# compiles NAME ARGUMENTS LEAST: the body of a function, in $work/body, with LEAST calls of ours or more. Where a call is
# misspelt it must not compile.
compiles() {
    {
        echo '#include <stdlib.h>'
        echo '#include <ckpt/train.h>'
        echo "int hook($2);"
        echo "int hook($2)"
        echo '{'
        grep -v '^#include' "$work/body"
        echo '    return 0;'
        echo '}'
    } >"$work/hook.c"
    test "$(grep -c 'ckpt_' "$work/hook.c")" -ge "$3" || wrong "$1: the hook was not found"
    strict="-std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I$top/include"
    # shellcheck disable=SC2086
    $CC $strict "$work/hook.c" || wrong "$1: the hook does not compile"
    sed 's/ckpt_run_close/ckpt_run_shut/' "$work/hook.c" >"$work/planted.c"
    # shellcheck disable=SC2086
    ! $CC $strict "$work/planted.c" 2>/dev/null || wrong "$1: a planted mistake compiles"
}

session README 5
session docs/tour.md 30
[ "$mode" != --print ] || exit $failed

# What it takes to adopt: the lines that turn one sample into the other.
page=docs/trainers.md
diff -U0 "$top/samples/hook_without.c" "$top/samples/hook_minimal.c" | grep '^[+-]' | grep -v '^+++\|^---' | sed 's/^/    /' >"$work/difference"
awk 'FNR == NR { lines = lines $0 "\n"; next }
     /^## / { within = /^## What it takes to adopt/ }
     within && /^    / { if (!done) printf "%s", lines; done = 1; next }
     { print }' "$work/difference" "$top/$page" >"$work/adopted"
grep -q '^    +' "$top/$page" || wrong "$page: the lines of the hook were not found"
renewed "$top/$page" "$work/adopted" "$page"

# The hooks, in functions that have what they speak of.
common='void *d_weights, void *d_exp_avg, void *d_exp_avg_sq, size_t n, uint64_t nbytes, const ckpt_arena_entry *tensors, int64_t last,
        int (*fail)(const char *, const char *), void (*train)(int64_t), void (*warn)(const char *, const char *)'
sed -n '/^A resume hook$/,/^What it needs$/p' "$top/README" | sed -n 's/^    //p' >"$work/body"
compiles README "$common, uint64_t rng" 12
sed -n '/^## The hook$/,/^## What it takes to adopt$/p' "$top/$page" | sed -n 's/^    //p' >"$work/body"
compiles "$page" "$common, void *d_steps, const ckpt_arena_entry *steps, const char *const *decayed, size_t decayed_count,
    double lr, double beta1, double beta2, double weight_decay, uint64_t rng, void *d_philox, size_t philox_size,
    double best, int64_t bad_epochs, int64_t epoch, int *order, size_t order_count, uint64_t at, void *stream,
    int64_t rank, int64_t local_rank, int64_t world, ckpt_all_reduce_fn all_reduce, void *all_reduce_ctx, ckpt_notice_fn tell" 20

# The front page is one that is read: on a terminal of 80 columns, in a few screens.
lines=$(wc -l <"$top/README")
test "$lines" -le 150 || wrong "README: $lines lines, 150 are enough"
awk '!/^    / && length > 80 { print "README:" FNR ": " length " columns, 80 are enough"; found = 1 } END { exit found }' "$top/README" || failed=1
exit $failed
