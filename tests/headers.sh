#!/bin/sh
# headers.sh - every header stands alone: the public ones in C11 and in C++17, without a warning, and the rooms' own in
# C11. The young ones are refused without CKPT_EXPERIMENTAL, and the others need it nowhere.
set -u
srcdir=${srcdir:-.} CC=${CC:-cc} CXX=${CXX:-c++}
strict='-Wall -Wextra -Wpedantic -Werror -fsyntax-only'
work=$(mktemp -d "${TMPDIR:-/tmp}/headers.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
failed=0 count=0

young=0
for header in "$srcdir"/include/ckpt/*.h; do
    name=ckpt/${header##*/} experimental=
    printf '#include <%s>\n' "$name" >"$work/one.c"
    case ${header##*/} in
    diff.h | doctor.h | naming.h | scan.h | stats.h | summary.h)
        young=$((young + 1)) experimental='#define CKPT_EXPERIMENTAL'
        $CC -std=c11 -I"$srcdir/include" -fsyntax-only "$work/one.c" 2>"$work/said" &&
            { echo "headers: <$name> is young, and is taken without CKPT_EXPERIMENTAL"; failed=1; }
        grep -q 'define CKPT_EXPERIMENTAL' "$work/said" || { echo "headers: <$name> does not say what to define"; failed=1; } ;;
    esac
    printf '%s\n#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$experimental" "$name" "$name" >"$work/one.c"
    $CC -std=c11 $strict -I"$srcdir/include" "$work/one.c" || { echo "headers: <$name> in C11"; failed=1; }
    if [ "${CKPT_HAVE_CXX:-yes}" = yes ]; then
        cp "$work/one.c" "$work/one.cc"
        $CXX -std=c++17 $strict -I"$srcdir/include" "$work/one.cc" || { echo "headers: <$name> in C++17"; failed=1; }
    fi
    count=$((count + 1))
done
for header in $(find "$srcdir/src" -name "*.h" ! -path "*/driver/*" | sort); do
    name=${header#"$srcdir"/src/}
    case $name in format/keras/hdf5*) test "${CKPT_HDF5:-no}" = yes || continue ;; esac
    printf '#include "%s"\nint main(void) { return 0; }\n' "$name" >"$work/one.c"
    $CC -std=c11 -D_GNU_SOURCE -DCKPT_EXPERIMENTAL ${CUDA_CPPFLAGS:-} ${HDF5_CFLAGS:-} $strict -I"$srcdir/include" -I"$srcdir/src" "$work/one.c" ||
        { echo "headers: \"$name\" does not stand alone"; failed=1; }
    count=$((count + 1))
done
test $young = 6 || { echo "headers: $young young headers found"; exit 1; }

# What the umbrellas give, with the fence and without; each initializer in both languages, as a user of -Wextra sees it.
sed -n 's/^#define \(CKPT_[A-Z_]*_INIT\) CKPT_SIZED(\(.*\))$/\2 \1/p' "$srcdir"/include/ckpt/*.h >"$work/sized"
test "$(wc -l <"$work/sized")" -gt 15 || { echo "headers: only $(wc -l <"$work/sized") structs with an initializer found"; exit 1; }
{
    printf '#define CKPT_EXPERIMENTAL\n#include <ckpt/ckpt.h>\n'
    while read -r type init; do
        printf 'unsigned size_of_%s(void);\nunsigned size_of_%s(void)\n{\n    %s one = %s;\n    return one.struct_size == sizeof one;\n}\n' "$type" "$type" "$type" "$init"
    done <"$work/sized"
} >"$work/one.c"
cp "$work/one.c" "$work/one.cc"
$CC -std=c11 $strict -Wshadow -Wconversion -I"$srcdir/include" "$work/one.c" || { echo "headers: initializers in C11"; failed=1; }
if [ "${CKPT_HAVE_CXX:-yes}" = yes ]; then
    $CXX -std=c++17 $strict -Wshadow -Wconversion -I"$srcdir/include" "$work/one.cc" || { echo "headers: initializers in C++17"; failed=1; }
    printf 'extern "C" {\n#include <ckpt/ckpt.h>\n}\nckpt_run_options o = CKPT_RUN_OPTIONS_INIT;\n' >"$work/one.cc"
    $CXX -std=c++17 $strict -I"$srcdir/include" "$work/one.cc" || { echo "headers: within extern \"C\""; failed=1; }
fi
printf '#include <ckpt/ckpt.h>\nvoid *f = (void *)ckpt_doctor;\n' >"$work/one.c"
$CC -std=c11 -fsyntax-only -I"$srcdir/include" "$work/one.c" 2>"$work/said" &&
    { echo "headers: <ckpt/ckpt.h> has ckpt_doctor without CKPT_EXPERIMENTAL"; failed=1; }
printf '#include <ckpt/train.h>\nvoid *f = (void *)ckpt_run_open, *g = (void *)ckpt_guard;\n' >"$work/one.c"
$CC -std=c11 -fsyntax-only -I"$srcdir/include" "$work/one.c" || { echo "headers: <ckpt/train.h> lacks a trainer's functions"; failed=1; }
test $count -gt 20 || { echo "headers: only $count headers found"; exit 1; }
echo '#include <ckpt/ckpt.h>
int f() { undeclared; }' >"$work/one.c"
$CC -std=c11 $strict -I"$srcdir/include" "$work/one.c" 2>/dev/null && { echo "headers: a broken file passed"; failed=1; }
test $failed = 0 && echo "headers: $count stand alone"
exit $failed
