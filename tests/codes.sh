#!/bin/sh
# codes.sh - every code of a finding is listed in ckpt(3), and nothing is listed there that no source says. The table of
# ckpt-inspect-doctor(1) and ckpt-findings(7) have the same codes in the same order.
set -u
srcdir=${srcdir:-.}
work=$(mktemp -d "${TMPDIR:-/tmp}/codes.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM

# A code is the first lower-case string literal after a severity, or one in a function that makes findings of a kind.
for file in $(find "$srcdir/src" -name "*.c" | sort); do
    tr '\n' ' ' <"$file" | grep -oE 'CKPT_SEVERITY_(NOTE|WARNING|ERROR),[^"();]*(\?[^;]*)?"[a-z]+(-[a-z]+)*"( *: *"[a-z]+(-[a-z]+)*")?' |
        grep -oE '"[a-z]+(-[a-z]+)*"'
    tr '\n' ' ' <"$file" | grep -oE '(wrong|blame|mixed|add_note|finding)\([a-z], [^;]*"[a-z]+(-[a-z]+)*",' |
        grep -oE '"[a-z]+-[a-z-]+"'
done | tr -d '"' | sort -u >"$work/said"
sed -n '/^\.\\" BEGIN CODES/,/^\.\\" END CODES/s/^\.B \([a-z-]*\)$/\1/p' "$srcdir/man/ckpt.3" | sort >"$work/listed"
test "$(wc -l <"$work/said")" -gt 40 || { echo "codes: only $(wc -l <"$work/said") codes found: the pattern is broken"; exit 1; }

failed=0
if [ -n "$(uniq -d "$work/listed")" ]; then
    echo "listed twice in ckpt(3): $(uniq -d "$work/listed")"
    failed=1
fi
for code in $(comm -23 "$work/said" "$work/listed"); do
    echo "$code: a finding's code that ckpt(3) does not list: $(grep -rlF --include="*.c" "\"$code\"" "$srcdir/src" | tr '\n' ' ')"
    failed=1
done
for code in $(cat "$work/listed"); do
    grep -rqF --include="*.c" "\"$code\"" "$srcdir/src" || { echo "$code: listed in ckpt(3), and no source says it"; failed=1; }
done

# A line of the table: its code, a tab, and what fits beside it in 80 columns.
between() { sed -n '/^\.\\" BEGIN FINDINGS/,/^\.\\" END FINDINGS/p' "$srcdir/man/$1"; }
between ckpt-inspect-doctor.1 | sed -n 's/^\([a-z-]*\)	\(..*\)$/\1/p' >"$work/table"
between ckpt-findings.7 | sed -n '/^\.TP$/{n;s/^\.BR* \([a-z-]*\).*/\1/p;}' >"$work/told"
test "$(wc -l <"$work/table")" -gt 80 || { echo "codes: only $(wc -l <"$work/table") lines in the table of ckpt-inspect-doctor(1)"; failed=1; }
cmp -s "$work/table" "$work/told" || { echo "the table of ckpt-inspect-doctor(1) (<) and ckpt-findings(7) (>):"; diff "$work/table" "$work/told"; failed=1; }
between ckpt-inspect-doctor.1 | awk -F'\t' '/^\.TS/ { code = text = 0 } NF == 2 { if (length($1) > code) code = length($1); if (length($2) > text) text = length($2) }
    /^\.TE/ && code + text > 68 { print "ckpt-inspect-doctor(1): a table of " code " and " text " columns is wider than a page"; bad = 1 } END { exit bad }' || failed=1
test -z "$(sort "$work/table" | uniq -d)" || { echo "twice in the table: $(sort "$work/table" | uniq -d)"; failed=1; }
for code in $(cat "$work/table"); do
    grep -rqF --include="*.c" "\"$code\"" "$srcdir/src" || { echo "$code: in the table of ckpt-inspect-doctor(1), and no source says it"; failed=1; }
done
test $failed = 0 && echo "codes: $(wc -l <"$work/listed") listed"
exit $failed
