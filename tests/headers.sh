#!/bin/sh
# headers.sh - every header stands alone: the public ones in C11 and in C++17, without a warning, and the rooms' own in
# C11.
set -u
srcdir=${srcdir:-.} CC=${CC:-cc} CXX=${CXX:-c++}
strict='-Wall -Wextra -Wpedantic -Werror -fsyntax-only'
work=$(mktemp -d "${TMPDIR:-/tmp}/headers.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
failed=0 count=0

for header in "$srcdir"/include/ckpt/*.h; do
    name=ckpt/${header##*/}
    printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$name" "$name" >"$work/one.c"
    $CC -std=c11 $strict -I"$srcdir/include" "$work/one.c" || { echo "headers: <$name> in C11"; failed=1; }
    if [ "${CKPT_HAVE_CXX:-yes}" = yes ]; then
        cp "$work/one.c" "$work/one.cc"
        $CXX -std=c++17 $strict -I"$srcdir/include" "$work/one.cc" || { echo "headers: <$name> in C++17"; failed=1; }
    fi
    count=$((count + 1))
done
for header in $(find "$srcdir/src" -name "*.h" ! -path "*/driver/*" | sort); do
    name=${header#"$srcdir"/src/}
    printf '#include "%s"\nint main(void) { return 0; }\n' "$name" >"$work/one.c"
    $CC -std=c11 -D_GNU_SOURCE ${CUDA_CPPFLAGS:-} $strict -I"$srcdir/include" -I"$srcdir/src" "$work/one.c" ||
        { echo "headers: \"$name\" does not stand alone"; failed=1; }
    count=$((count + 1))
done
test $count -gt 20 || { echo "headers: only $count headers found"; exit 1; }
echo '#include <ckpt/ckpt.h>
int f() { undeclared; }' >"$work/one.c"
$CC -std=c11 $strict -I"$srcdir/include" "$work/one.c" 2>/dev/null && { echo "headers: a broken file passed"; failed=1; }
test $failed = 0 && echo "headers: $count stand alone"
exit $failed
