#!/bin/sh
# symbols.sh - the library exports exactly what the headers declare, and asks libc for nothing that a library has no
# business with. The symbol map lists the same names, so that a new function is a decision.
set -u
srcdir=${srcdir:-.} builddir=${builddir:-.} NM=${NM:-nm} CC=${CC:-cc}
library=$builddir/.libs/libckpt-${CKPT_VERSION:?set by make check}.so
test -f "$library" || { echo "symbols: $library is not there: the soname does not follow the release?"; exit 1; }

work=$(mktemp -d "${TMPDIR:-/tmp}/symbols.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
failed=0

for header in "$srcdir"/include/ckpt/*.h; do
    case ${header##*/} in ckpt.h) continue ;; train.h | inspect.h) all=ckpt.h ;; *) all='train.h inspect.h' ;; esac
    (cd "$srcdir/include/ckpt" && grep -q "<ckpt/${header##*/}>" $all) ||
        { echo "symbols: no header of $all includes <ckpt/${header##*/}>"; failed=1; }
    echo "#include <ckpt/${header##*/}>"
done >"$work/all.c"
$CC -E -P -DCKPT_EXPERIMENTAL -I"$srcdir/include" "$work/all.c" >"$work/all.i" || exit 99
# A name of ours before a parenthesis is a function; a callback type reads (*name)(.
grep -oE '(^|[^(*A-Za-z0-9_])\**ckpt_[a-z0-9_]+ *\( *[^* ]' "$work/all.i" | grep -oE 'ckpt_[a-z0-9_]+' | sort -u >"$work/declared"
$NM -D --defined-only "$library" | awk '{ print $NF }' | sed 's/@.*//' | grep -v '^CKPT_' | sort -u >"$work/exported"
sed -n 's/^ *\([a-z_0-9]*\);.*/\1/p' "$srcdir/src/libckpt.map" | sort -u >"$work/mapped"

# differ A B TEXT: what A has and B has not is a failure
differ() {
    comm -23 "$1" "$2" >"$work/only"
    test -s "$work/only" || return 0
    sed "s|\$|: $3|" "$work/only"
    return 1
}
compare() {
    ok=0
    differ "$work/declared" "$work/exported" "declared in include/ckpt, and the library does not export it" || ok=1
    differ "$work/exported" "$work/declared" "exported, and no header declares it" || ok=1
    differ "$work/declared" "$work/mapped" "not in src/libckpt.map: add it" || ok=1
    differ "$work/mapped" "$work/declared" "in src/libckpt.map, and no header declares it" || ok=1
    return $ok
}
test "$(wc -l <"$work/declared")" -gt 50 || { echo "symbols: too few declarations found: the pattern is broken"; exit 1; }
compare || failed=1

# What a library must not do shows in what it imports. (A sanitizer's runtime brings its own.)
if [ "${CKPT_SANITIZERS:-no}" != yes ]; then
    $NM -D -u "$library" | awk '{ print $NF }' | sed 's/@.*//' | sort -u >"$work/imported"
    for name in exit abort __assert_fail printf __printf_chk puts putchar perror getenv secure_getenv setlocale \
        system popen vfork execve atof gets sprintf __sprintf_chk; do
        grep -qx "$name" "$work/imported" && { echo "$name: imported by the library, which may not use it"; failed=1; }
    done
    # Signals are the program's. A run that is asked to takes some of them, in one file; a copy of the process is ended by one.
    for file in $(grep -lE '(^|[^A-Za-z0-9_])(sigaction|raise|kill)\(' $(find "$srcdir/src" -name "*.c")); do
        case $file in */src/run/signals.c | */src/io/trial.c | */src/cli/*) ;; *) echo "$file: signals are src/run/signals.c's alone"; failed=1 ;; esac
    done
    # A file that libhdf5 may crash on is tried in a copy of the process, in one file.
    for file in $(grep -lE '(^|[^A-Za-z0-9_])(fork|_exit|signal)\(' $(find "$srcdir/src" -name "*.c")); do
        case $file in */src/io/trial.c | */src/cli/*) ;; *) echo "$file: processes are src/io/trial.c's alone"; failed=1 ;; esac
    done
    grep -qx malloc "$work/imported" || { echo "symbols: no malloc among the imports: the check is broken"; failed=1; }
    grep -qE '^cu[A-Z]' "$work/imported" && { echo "symbols: a CUDA symbol is linked, not loaded at run time"; failed=1; }
fi

# The test can fail: one name more and one less are seen.
if [ $failed = 0 ]; then
    cp "$work/exported" "$work/kept"
    sed 1d "$work/kept" >"$work/exported"
    compare >"$work/out" && { echo "symbols: a missing export was not noticed"; failed=1; }
    { cat "$work/kept"; echo ckpt_zzz; } >"$work/exported"
    compare >"$work/out" && { echo "symbols: an undeclared export was not noticed"; failed=1; }
    echo "symbols: $(wc -l <"$work/declared") functions declared, exported and mapped"
fi
exit $failed
