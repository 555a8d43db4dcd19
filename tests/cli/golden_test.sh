#!/bin/sh
# golden_test.sh - the commands' answers, word for word: cases.txt against golden/.
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
builddir=$(cd "${builddir:-.}" && pwd) || exit 99
golden=$srcdir/tests/cli/golden
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-golden.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
LC_ALL=C NO_COLOR=1 TMPDIR=$work
export LC_ALL NO_COLOR TMPDIR
set -f                            # globs in the cases are the commands', not the shell's
cd "$srcdir/tests/data/cli" || exit 99

# same EXPECTED ACTUAL: equal; a missing EXPECTED stands for an empty file.
same()
{
    if [ -f "$1" ]; then
        diff -u "$1" "$2" | sed 's/^/# /'
        cmp -s "$1" "$2"
    else
        sed 's/^/# unexpected: /' "$2"
        [ ! -s "$2" ]
    fi
}

count=0
failures=0
while IFS='|' read -r name status line; do
    case $name in '#'* | '') continue ;; esac
    name=$(echo $name)
    status=$(echo $status)
    # shellcheck disable=SC2086 - the line is split into words
    set -- $line
    program=$1
    shift
    "$builddir/src/cli/ckpt-$program" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    if [ "$CLI_GOLDEN" = write ]; then
        cp "$work/out" "$golden/$name.out"
        cp "$work/err" "$golden/$name.err"
        find "$golden" -name "$name.*" -size 0 -exec rm {} +
    fi
    count=$((count + 1))
    ok=ok
    [ "$got" = "$status" ] || { echo "# $name: exit status $got, expected $status"; ok='not ok'; }
    same "$golden/$name.out" "$work/out" || ok='not ok'
    same "$golden/$name.err" "$work/err" || ok='not ok'
    [ "$ok" = ok ] || failures=$((failures + 1))
    echo "$ok $count - $name: ckpt-$program$(printf ' %s' "$@")"
done <"$srcdir/tests/cli/cases.txt"
echo "1..$count"
[ "$count" -gt 0 ] && [ "$failures" -eq 0 ]
