#!/bin/sh
# frozen_headers.sh - does a program that was built against the headers of 0.2.0 (tests/data/v02) still run? First today's headers
# are held against those: what was there is there, and structs and enums have grown at their ends alone. Then a program of
# 0.2.0 (tests/abi/old_program.c), whose structs end where memory ends, runs with today's library, and with one of the same
# sources whose public structs are all larger than today's. At the end the checks are turned on themselves.
set -u
srcdir=${srcdir:-.} builddir=${builddir:-.} CC=${CC:-cc} PKG_CONFIG=${PKG_CONFIG:-pkg-config}
top=$(cd "$srcdir" && pwd) && build=$(cd "$builddir" && pwd) || exit 99
frozen=$top/tests/data/v02/include
work=$(mktemp -d "${TMPDIR:-/tmp}/frozen.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
echo 1..6
number=0 failed=0
result() {    # STATUS WHAT
    number=$((number + 1))
    case $1 in 0) echo "ok $number - $2" ;; *) echo "not ok $number - $2"; failed=1 ;; esac
}
skip() {
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2"
}

# ---- the headers as text: one declaration a line, without comments

declarations() {    # INCLUDE-DIRECTORY
    printf '#define CKPT_EXPERIMENTAL\n#include <ckpt/ckpt.h>\n' >"$work/all.c"
    $CC -std=c11 -E -P -I"$1" "$work/all.c" | grep -v '^#' | tr -s ' \t\n' ' ' | awk '
        { text = text $0 }
        END {
            for (i = 1; i <= length(text); i++) {
                c = substr(text, i, 1)
                if (c == "{") depth++
                if (c == "}") depth--
                if (c == ";" && !depth) {
                    sub(/^ */, "", line)
                    if (line ~ /(ckpt|CKPT)_/) print line
                    line = ""
                } else line = line c
            }
        }'
}

# "NAME grows|never" of each struct that has fields: what its comment says, or that it has a struct_size. A struct in which
# neither stands is an error.
growth() {    # INCLUDE-DIRECTORY
    awk '
        FNR == 1 { comment = "" }
        /^\/\*/ { comment = "" }
        /^(\/\*| \*)/ { comment = comment $0; next }
        /^typedef struct ckpt_[a-z_]+ \{/ || /^struct ckpt_[a-z_]+ \{/ { inside = 1; says = comment; sized = 0; fields = 0; own = $2 }
        inside && /^    uint32_t struct_size;/ { if (!fields) sized = 1 }
        inside && /;/ { fields++ }
        /^}/ && inside {
            name = $2; sub(/;/, "", name); if (name == "") name = own
            gsub(/\n \*/, " ", says)
            gsub(/ +\* +/, " ", says)
            print name, sized || says ~ /may[ *]+grow/ ? "grows" : says ~ /never[ *]+grow/ ? "never" : "unsaid"
            inside = 0
        }
        !/^(\/\*| \*)/ && !inside { comment = "" }' "$1"/ckpt/*.h | sort
}

# What of the old ones is not in the new ones as it was. The young headers are held too, until they change on purpose.
compare() {    # OLD-INCLUDE NEW-INCLUDE
    declarations "$1" >"$work/old" && declarations "$2" >"$work/new" && growth "$2" >"$work/growth" || return 2
    grep ' unsaid$' "$work/growth" | sed 's/ unsaid$/: its comment does not say whether it may grow/' >"$work/found"
    awk -v growth="$work/growth" '
        function body(line) { sub(/^[^{]*\{ */, "", line); sub(/[ ,]*\}[^}]*$/, "", line); return line }
        function key(line,   k) { k = line; sub(/ *\{.*/, "", k); return k (line ~ /^enum \{/ ? body(line) : "") }
        BEGIN { while ((getline line < growth) > 0) { split(line, w, " "); grows[w[1]] = w[2] } }
        FNR == NR { all[$0] = 1; if (/\{/) { bodies[key($0)] = body($0) } next }
        $0 in all { next }
        /^enum \{/ {
            for (k in bodies) if (index(k, "enum") == 1 && index(bodies[k], body($0)) == 1) next
            print $0 ": changed"; next
        }
        /\{/ {
            name = key($0); short = name; sub(/^(typedef )?(struct|enum) /, "", short)
            if (!(name in bodies)) { print name ": gone"; next }
            if (index(bodies[name], body($0)) != 1 || substr(bodies[name], length(body($0)) + 1, 1) !~ /^[,; ]?$/)
                print name ": changed elsewhere than at its end"
            else if (name ~ /struct/ && grows[short] == "never") print name ": never grows, and has"
            next
        }
        { print $0 ": gone, or changed" }' "$work/new" "$work/old" >>"$work/found"
    cat "$1"/ckpt/*.h | sed -n 's/^ *# *define \(CKPT_[A-Z0-9_]*\).*/\1/p' | grep -v '_H$' | sort -u | while read -r macro; do
        cat "$2"/ckpt/*.h | grep -q "define $macro\([^A-Z0-9_]\|\$\)" || echo "$macro: no longer defined"
    done >>"$work/found"
    padding "$1" "$2" >>"$work/found"
    test ! -s "$work/found"
}

# The first new field of a struct begins at or behind the old size: in the old padding is whatever the program left there. And
# 0 stands for that old size.
padding() {    # OLD-INCLUDE NEW-INCLUDE
    sed -n 's/^ *X(\(ckpt_[a-z_]*\), \([0-9]*\)).*/\1 \2/p' "$top/src/base/first_sizes.h" | sort >"$work/sizes"
    { printf '#define CKPT_EXPERIMENTAL\n#include <ckpt/ckpt.h>\n'
      while read -r type size; do echo "_Static_assert(sizeof($type) == $size, \"$type\");"; done <"$work/sizes"; } >"$work/one.c"
    $CC -std=c11 -fsyntax-only -I"$1" "$work/one.c" 2>&1 | sed -n 's/.*failed.*"\(ckpt_[a-z_]*\)".*/\1: its size in src\/base\/first_sizes.h is not that of 0.2.0/p'
    { printf '#define CKPT_EXPERIMENTAL\n#include <stddef.h>\n#include <ckpt/ckpt.h>\n'
      awk '
        function body(line) { sub(/^[^{]*\{ */, "", line); sub(/ *\}[^}]*$/, "", line); return line }
        !/^typedef struct.*\{/ { next }
        { name = $3 }
        FNR == NR { old[name] = body($0); next }
        name in old && length(body($0)) > length(old[name]) {
            field = substr(body($0), length(old[name]) + 1); sub(/;.*/, "", field)
            if (field ~ /\(\*/) { sub(/.*\(\*/, "", field); sub(/\).*/, "", field) }
            sub(/[,[].*/, "", field); sub(/.*[ *]/, "", field)
            print name, field
        }' "$work/old" "$work/new" | while read -r type field; do
        size=$(sed -n "s/^$type //p" "$work/sizes")
        test -z "$size" || echo "_Static_assert(offsetof($type, $field) >= $size, \"$type.$field\");"
      done; } >"$work/one.c"
    $CC -std=c11 -fsyntax-only -I"$2" "$work/one.c" 2>&1 | sed -n 's/.*failed.*"\(ckpt_[a-z_.]*\)".*/\1: lies in what was padding/p'
    cut -d' ' -f1 "$work/sizes" >"$work/names"
    sed -n 's/^#define CKPT_[A-Z_]*_INIT CKPT_SIZED(\(.*\))$/\1/p' "$2"/ckpt/*.h | sort | comm -23 - "$work/names" |
        sed 's/$/: not in src\/base\/first_sizes.h/'
}

compare "$frozen" "$top/include"
status=$?
sed 's/^/# /' "$work/found"
test "$(grep -c '{' "$work/old")" -gt 50 && test "$(grep -c ' grows$' "$work/growth")" -gt 30 && test "$(grep -c ' never$' "$work/growth")" -gt 10 ||
    { echo "# too few structs were found: the patterns are broken"; status=1; }
result $status "the headers of 0.2.0 are in today's ($(wc -l <"$work/old") declarations)"

# Planted: each must be told.
missed=0
plant() {    # HEADER SED WHAT
    rm -rf "$work/planted" && mkdir "$work/planted" && cp -R "$top/include/ckpt" "$work/planted/ckpt" && chmod -R u+w "$work/planted" || exit 99
    sed "$2" "$top/include/ckpt/$1" >"$work/planted/ckpt/$1"
    cmp -s "$top/include/ckpt/$1" "$work/planted/ckpt/$1" && { echo "# nothing was planted in $1: $2"; missed=1; }
    compare "$top/include" "$work/planted"
    grep -q "$3" "$work/found" || { echo "# planted in $1 and not told: $2 (expected: $3)"; missed=1; }
}
plant restore.h 's/^    ckpt_ranks ranks;/    int new_field;\n&/' 'ckpt_restore_options: changed elsewhere'
plant reader.h '/^    const char \*format;/d' 'ckpt_reader_options: changed elsewhere'
plant reader.h 's/^} ckpt_reader_options;/    bool new_field;\n&/' 'ckpt_reader_options.new_field: lies in what was padding'
plant map.h 's/^    int64_t rank, local_rank, world;/& int64_t node;/' 'ckpt_ranks: never grows, and has'
plant tensor.h 's/^    CKPT_ROLE_PARAM,/    CKPT_ROLE_NEW, &/' 'ckpt_role: changed elsewhere'
plant guard.h 's/ckpt_status ckpt_guard(ckpt_state \*state,/& int new_argument,/' 'ckpt_guard.*: gone, or changed'
plant error.h '/define CKPT_VERSION_NUMBER/d' 'CKPT_VERSION_NUMBER: no longer defined'
plant device.h 's/ The struct never grows\. \*\/$/ *\//' 'does not say whether it may grow'
result $missed "changes that break an old program are told"

# ---- the program

flags="-std=c11 -D_GNU_SOURCE"
data=$top/tests/data/cli/tensors.pt
run() {    # LIBRARY-DIRECTORY MODE
    rm -rf "$work/folder" && mkdir "$work/folder" || exit 99
    LD_LIBRARY_PATH=$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$work/old_program" "$work/folder" "$data" "$2" >"$work/said" 2>&1
}
both() {    # LIBRARY-DIRECTORY
    for mode in init zero; do
        run "$1" $mode || { echo "# $mode: ended with $?"; sed 's/^/# /' "$work/said"; return 1; }
        grep -q '^every struct was taken' "$work/said" || return 1
    done
}
# shellcheck disable=SC2086
$CC $flags -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$top/include" "$top/tests/abi/old_program.c"
result $? "its source builds with today's headers"
if [ "${CKPT_SANITIZERS:-no}" = yes ]; then
    for what in "it runs with today's library" "it runs with a library of larger structs" "a library that mistakes a size is told"; do
        skip "$what" "not with sanitizers: their memory is not its pages"
    done
    exit $failed
fi
version=${CKPT_VERSION:?set by make check}
# shellcheck disable=SC2086
$CC $flags -I"$frozen" -o "$work/old_program" "$top/tests/abi/old_program.c" "$build/.libs/libckpt-$version.so" || exit 99
both "$build/.libs"
result $? "it runs with today's library"

# Each public struct that may grow has grown. Positions and sizes of what was there stay.
mkdir -p "$work/grown/ckpt" "$work/obj" "$work/lib" || exit 99
growth "$top/include" | sed -n 's/ grows$//p' >"$work/growing"
sed 's/.*/s|^} &;|    uint64_t grown_number;\\n    void *grown_pointer;\\n} &;|/' "$work/growing" >"$work/grow.sed"
for header in "$top"/include/ckpt/*.h; do
    sed -f "$work/grow.sed" "$header" >"$work/grown/ckpt/${header##*/}" || exit 99
done
test "$(cat "$work"/grown/ckpt/*.h | grep -c grown_number)" -gt 30 || { echo "# nothing has grown"; failed=1; }
libs=$($PKG_CONFIG --cflags --libs zlib libcjson yaml-0.1 libpcre2-8) || exit 99
made=0
# An object has the name of its whole path, since rooms may have files of one name.
cat >"$work/compile" <<'EOF'
for file; do
    object=$(echo "${file#"$TOP"/}" | tr / _)
    $COMPILE -c -o "$OBJECTS/${object%.c}.o" "$file" || exit 1
done
EOF
sh "$top/src/doctor/snippets/all.sh" >"$work/snippet_templates.c" || exit 99
compile="$CC $flags -DCKPT_EXPERIMENTAL -O0 -w -fPIC -pthread -fvisibility=hidden -I$work/grown -I$top/src"
# What calls libhdf5 has a stand-in, src/format/keras/no_hdf5.c.
(find "$top/src" -name '*.c' ! -path '*/cli/*' -exec grep -L '"format/keras/hdf5' {} +; echo "$work/snippet_templates.c") |
    TOP=$top OBJECTS=$work/obj COMPILE="$compile $($PKG_CONFIG --cflags zlib libcjson yaml-0.1 libpcre2-8)" \
    xargs -P 2 -n 16 sh "$work/compile" >"$work/log" 2>&1 || made=1
link() {
    # shellcheck disable=SC2086
    $CC -shared -pthread -Wl,-soname,"libckpt-$version.so" -Wl,--version-script="$top/src/libckpt.map" -o "$work/lib/libckpt-$version.so" \
        "$work"/obj/*.o $libs -lm -ldl >>"$work/log" 2>&1
}
[ $made = 0 ] && link || { made=1; tail -n 20 "$work/log" | sed 's/^/# /'; }
[ $made = 0 ] && both "$work/lib"
result $? "it runs with a library of larger structs"

# Planted: a library that takes its own size for 0, and one that writes its whole answer.
missed=$made
wrong() {    # FUNCTION SED MODE
    sed "/ckpt__$1(/,/^}/$2" "$top/src/base/sized.c" >"$work/sized.c"
    cmp -s "$top/src/base/sized.c" "$work/sized.c" && { echo "# nothing was planted in ckpt__$1"; missed=1; }
    $compile -c -o "$work/obj/src_base_sized.o" "$work/sized.c" && link || exit 99
    run "$work/lib" "$3" && { echo "# planted in ckpt__$1 and not told: $2"; missed=1; }
    return 0
}
if [ $made = 0 ]; then
    wrong take_options 's/first_size, name/own_size, name/' zero
    wrong take_options 's/memcpy(own, given, .*);/memcpy(own, given, own_size);/' init
    wrong give_answer 's/both = .*/both = own_size;/' init
fi
result $missed "a library that mistakes a size is told"
exit $failed
