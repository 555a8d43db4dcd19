#!/bin/sh
# prose.sh - does the text that users read keep to plain English? tests/prose.pl has the patterns to avoid; it reads the comments of the
# public headers, the messages in src, the man pages, README and docs. At the end each pattern is planted: each must be found.
set -u
srcdir=${srcdir:-.}
command -v perl >/dev/null 2>&1 || { echo "perl is not there"; exit 77; }
cd "$srcdir" || exit 99
perl tests/prose.pl || exit 1

work=$(mktemp -d "${TMPDIR:-/tmp}/prose.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
planted() {
    cat <<'TEXT'
mend|Paste the mend.
is no|The key is no text.
what-subject|What the file lacks is listed.
rate|It takes 8 bytes a tensor.
wanted|A number is wanted.
be had|Memory that cannot be had is an error.
goes along|The scheduler goes along.
of which|It has 12 rows, of which each rank has 3.
one that is|The newest one that is whole counts.
passed over|The step is passed over.
one too many|The word b.pt is one too many.
no use|Remove the file where it is of no use.
looked at|The rest was not looked at.
says so|The report says so.
chain|It reads; it checks; it writes; it ends.
TEXT
}
count=0
while IFS='|' read -r name text; do
    printf '%s\n' "$text" >"$work/page.md"
    printf '/* %s */\n' "$text" >"$work/page.h"
    printf 'static const char *s = "%s";\n' "$text" >"$work/page.c"
    printf '.SH NAME\n.B A\nword.\n%s\n' "$text" >"$work/page.1"
    for page in page.md page.h page.c page.1; do
        perl tests/prose.pl "$work/$page" | grep -q ": $name (write: " || { echo "prose: not found in $page: $name: $text"; exit 1; }
    done
    count=$((count + 1))
done <<LINES
$(planted)
LINES
listed=$(grep -c '^    \[.*qr/' tests/prose.pl)
[ "$count" -eq "$listed" ] && [ "$count" -gt 10 ] || { echo "prose: $count patterns planted, $listed listed"; exit 1; }
# Sentences that are fine.
printf 'There is no tensor of that name. It is no longer read. What is it? The step is skipped.\n' >"$work/page.md"
perl tests/prose.pl "$work/page.md" >/dev/null || { echo "prose: a false alarm:"; perl tests/prose.pl "$work/page.md"; exit 1; }
echo "prose: $count patterns, each found where it was planted"
