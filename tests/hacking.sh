#!/bin/sh
# hacking.sh - what HACKING names is there: functions, types and macros of ours, files, options of make and configure, and the
# rooms of tests/layers.sh. It is turned on itself with names that are not there.
set -u
cd "${srcdir:-.}" || exit 99
work=$(mktemp -d "${TMPDIR:-/tmp}/hacking.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
cat $(find src include -name '*.[ch]') >"$work/sources" || exit 99

missing() {    # of the page $1
    grep -oE '\b(ckpt_[a-z0-9_]+|CKPT_[A-Z0-9_]+)\b' "$1" | sort -u | while read -r name; do
        case $name in ckpt_noun_verb | ckpt__noun_verb) continue ;; esac
        grep -qwF "$name" "$work/sources" || echo "$name: no source has it"
    done
    # file names with a folder: below src, or from the top; with a '*' at least one
    grep -oE '[A-Za-z0-9_.]+(/[A-Za-z0-9_.*]+)+\.(c|h|sh|py|md|in|inc|txt)\b' "$1" | sort -u | while read -r path; do
        case $path in build/* | */NAME.c) continue ;; esac
        found=no
        # shellcheck disable=SC2086
        for file in $path src/$path tests/$path include/$path; do test -e "$file" && found=yes; done
        test $found = yes || echo "$path: there is no such file"
    done
    # bare names of files (config.h is said not to be there)
    grep -oE '(^|[ (,])[a-z0-9_]+\.(c|h|sh|py)\b' "$1" | sed 's/^[ (,]//' | grep -vx config.h | sort -u | while read -r name; do
        test -n "$(find src tests include samples bench -name "$name" | head -n 1)" || echo "$name: there is no such file"
    done
}

failed=0
missing HACKING >"$work/missing"
if [ -s "$work/missing" ]; then cat "$work/missing"; failed=1; fi
sed -n "/^rooms() {/,/^TABLE/s/^\([a-z/]*\)#.*/\1/p" tests/layers.sh >"$work/rooms"
test "$(wc -l <"$work/rooms")" -gt 15 || { echo "hacking: only $(wc -l <"$work/rooms") rooms read from layers.sh"; failed=1; }
while read -r room; do
    grep -qE "^    $room +[a-z]" HACKING || { echo "$room: HACKING's table of rooms lacks it"; failed=1; }
done <"$work/rooms"
printf 'ckpt__restore_everything in src/attic/x.c and planted_nowhere.c; NAME.c\n' >"$work/planted"
test "$(missing "$work/planted" | wc -l)" = 3 || { echo "hacking: planted names were not found:"; missing "$work/planted"; failed=1; }
test $failed = 0 && echo "hacking: all that the page names is there"
exit $failed
