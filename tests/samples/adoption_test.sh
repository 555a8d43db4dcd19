#!/bin/sh
# adoption_test.sh - what the hook costs a trainer: the lines that turn samples/hook_without.c into hook_minimal.c, which
# README states. `adoption_test.sh --print` prints the number and the diff.
srcdir=${srcdir:-.}
limit=30
before=$srcdir/samples/hook_without.c
after=$srcdir/samples/hook_minimal.c
[ -f "$before" ] && [ -f "$after" ] || { echo "$before or $after is not there"; exit 99; }
added=$(diff "$before" "$after" | grep -c '^>')
[ "${1:-}" != --print ] || { echo "$added"; diff -u "$before" "$after"; exit 0; }
echo "$added lines are added or changed, of $(wc -l <"$before")"
# A diff of nothing, or of a file that does not use the hook, would pass as well.
for call in open resume step close; do
    grep -q "ckpt_run_$call(" "$after" || { echo "$after does not call ckpt_run_$call"; exit 1; }
    ! grep -q "ckpt_" "$before" || { echo "$before is no longer without the library"; exit 1; }
done
[ "$added" -gt 0 ] && [ "$added" -le $limit ] || { echo "more than $limit: make the hook easier, not the diff"; exit 1; }
said=$(sed -n 's/.*hook_minimal\.c[^0-9]*\([0-9][0-9]*\) lines.*/\1/p' "$srcdir/README" | head -n 1)
[ -z "$said" ] || [ "$said" = "$added" ] || { echo "README says $said lines, it is $added"; exit 1; }
# Where README shows the lines, they are these.
work=$(mktemp -d "${TMPDIR:-/tmp}/adoption.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
sed -n '/hook_minimal\.c is/,/^[A-Z][a-z]* samples/s/^    +//p' "$srcdir/README" >"$work/page"
diff "$before" "$after" | sed -n 's/^> \{0,1\}//p' >"$work/now"
[ ! -s "$work/page" ] || diff "$work/page" "$work/now" || { echo "README: < the page, > the samples"; exit 1; }
