#!/bin/sh
# as_tap.sh SCRIPT - runs a test script. One that prints a TAP plan ("1..N") speaks for itself; of any other its exit
# status is the one result: 0 passed, 77 skipped (its last line says why), else failed.
name=${1##*/}
out=$(mktemp "${TMPDIR:-/tmp}/as_tap.XXXXXX") || exit 99
trap 'rm -f "$out"' EXIT
trap 'exit 99' HUP INT TERM
sh "$@" >"$out"
status=$?
if grep -q '^1\.\.[0-9]' "$out"; then
    cat "$out"
    exit $status
fi
sed 's/^/# /' "$out"
echo 1..1
case $status in
0) echo "ok 1 - $name" ;;
77) echo "ok 1 - $name # SKIP $(tail -n 1 "$out")" ;;
*) echo "not ok 1 - $name ended with status $status" ;;
esac
