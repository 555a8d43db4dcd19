#!/bin/sh
# adoption_test.sh - what the hook costs a trainer: the lines that turn hook_without.c into hook_minimal.c, and
# shards_without.c into shards_hook.c (samples/), which docs/trainers.md states. `adoption_test.sh --print` prints the numbers and
# the diffs.
srcdir=${srcdir:-.}
print=${1:-}
work=$(mktemp -d "${TMPDIR:-/tmp}/adoption.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
failed=0

wrong()
{
    echo "$1"
    failed=1
}

# cost BEFORE AFTER LIMIT
cost()
{
    before=$srcdir/samples/$1
    after=$srcdir/samples/$2
    [ -f "$before" ] && [ -f "$after" ] || { echo "$before or $after is not there"; exit 99; }
    added=$(diff "$before" "$after" | grep -c '^>')
    [ "$print" != --print ] || { echo "$2: $added"; diff -u "$before" "$after"; return; }
    echo "$2: $added lines are added or changed, of $(wc -l <"$before")"
    # A diff of nothing, or of a file that does not use the hook, would pass as well.
    for call in open resume step close; do
        grep -q "ckpt_run_$call(" "$after" || wrong "$after does not call ckpt_run_$call"
        ! grep -q "ckpt_" "$before" || wrong "$before is no longer without the library"
    done
    [ "$added" -gt 0 ] && [ "$added" -le "$3" ] || wrong "more than $3: make the hook easier, not the diff"
    said=$(tr '\n' ' ' <"$srcdir/docs/trainers.md" | sed -n "s/.*samples\/$2 is samples\/$1 and \([0-9][0-9]*\) lines.*/\1/p")
    [ "$said" = "$added" ] || wrong "docs/trainers.md says '$said' lines of $2, it is $added"
}

cost hook_without.c hook_minimal.c 30
# Where the page shows the lines, they are these.
sed -n '/hook_minimal\.c is/,/^## /s/^    +//p' "$srcdir/docs/trainers.md" >"$work/page"
diff "$srcdir/samples/hook_without.c" "$srcdir/samples/hook_minimal.c" | sed -n 's/^> \{0,1\}//p' >"$work/now"
[ ! -s "$work/page" ] || diff "$work/page" "$work/now" || wrong "docs/trainers.md: < the page, > the samples"
cost shards_without.c shards_hook.c 45
exit $failed
