#!/bin/sh
# readme.sh - is README true? The session is run again, in a terminal of 80 columns, and must print what the page shows;
# the hook in C must compile. `readme.sh --print` prints the session as it comes out now.
set -u
srcdir=${srcdir:-.} builddir=${builddir:-.} CC=${CC:-cc}
top=$(cd "$srcdir" && pwd) build=$(cd "$builddir" && pwd)
command -v script >/dev/null 2>&1 || { echo "script (util-linux) is not there: the session cannot be run"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/readme.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
mkdir "$work/run"
cp "$top/tests/data/torch-handover/ar-ckpt-mixed.pth" "$work/run/"
cp "$top/tests/data/peers/lightning.ckpt" "$work/run/"
cp -r "$top/tests/data/run/damaged" "$top/tests/data/peers/accelerate" "$work/run/"
chmod -R u+w "$work/run"
PATH=$build/src/cli:$PATH NO_COLOR=1
export PATH NO_COLOR

sed -n '/^A first session$/,/^A resume hook$/p' "$top/README" | sed -n 's/^    //p' >"$work/page"
cd "$work/run" || exit 99
grep '^\$ ' "$work/page" | while read -r dollar command; do
    printf '%s %s\n' "$dollar" "$command"
    script -qec "stty cols 80; $command" /dev/null </dev/null | tr -d '\r'
done >"$work/now"
if [ "${1:-}" = --print ]; then
    sed 's/^/    /' "$work/now"
    exit
fi
commands=$(grep -c '^\$ ' "$work/now")
test "$commands" -ge 5 || { echo "README: only $commands commands were found in the session"; exit 1; }
diff "$work/page" "$work/now" || { echo "README: < the page, > what the commands print"; exit 1; }

# What it takes to adopt: the lines that turn one sample into the other.
sed -n '/^What it takes to adopt/,/^Other samples/p' "$top/README" | sed -n 's/^    //p' >"$work/adopted"
diff -U0 "$top/samples/hook_without.c" "$top/samples/hook_minimal.c" | grep '^[+-]' | grep -v '^+++\|^---' >"$work/difference"
diff "$work/adopted" "$work/difference" || { echo "README: < the page's lines of the hook, > those of samples/hook_minimal.c"; exit 1; }

# The hook, in a function that has what it speaks of.
{
    echo '#include <ckpt/train.h>'
    arguments='(void *d_weights, void *d_exp_avg, void *d_steps, void *stream, size_t n, uint64_t nbytes,
               const ckpt_arena_entry *weights, const ckpt_arena_entry *steps, int64_t last, ckpt_scaler scaler,
               int (*fail)(const char *, const char *), void (*train)(int64_t), void (*warn)(const char *, const char *))'
    echo "int hook$arguments;"
    echo "int hook$arguments"
    echo '{'
    sed -n '/^A resume hook$/,/^Build with/p' "$top/README" | sed -n 's/^    //p' | grep -v '^#include'
    echo '    return 0;'
    echo '}'
} >"$work/hook.c"
test "$(grep -c 'ckpt_' "$work/hook.c")" -ge 12 || { echo "README: the hook was not found"; exit 1; }
$CC -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$top/include" "$work/hook.c" || { echo "README: the hook does not compile"; exit 1; }
