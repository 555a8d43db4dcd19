#!/bin/sh
# snippets.sh - do the resumes that doctor prints compile? tests/unit/doctor/test_snippets writes one for each line of the templates
# (src/doctor/snippets); python3 and the C compiler read them all. At the end mistakes are planted: each must be found.
set -u
top=$(cd "${srcdir:-.}" && pwd) || exit 99
build=$(cd "${builddir:-.}" && pwd) || exit 99
work=$(mktemp -d "${TMPDIR:-/tmp}/snippets.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
strict="-Wall -Wextra -Wpedantic -Wno-unused-function -Werror -fsyntax-only -I$top/include"
AWK=${AWK:-awk} CC=${CC:-cc} CXX=${CXX:-c++}
have_python=no
python3 -c 'import py_compile' 2>/dev/null && have_python=yes
count=0 failed=0

result() {    # status, name
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
    else
        sed 's/^/# /' "$work/log"
        echo "not ok $count - $2"
        failed=1
    fi
}
skip() {
    count=$((count + 1))
    echo "ok $count - $1 # SKIP $2"
}

# What compiles a directory of snippets. No output of a compiler is kept.
python_takes() { PYTHONPYCACHEPREFIX="$work/cache" python3 -m py_compile "$1"/*.py >"$work/log" 2>&1; }
c_takes() { $CC -std=c11 $strict "$1"/*.c >"$work/log" 2>&1; }
cxx_takes() {
    for source in "$1"/*.c; do
        $CXX -std=c++17 -x c++ $strict "$source" || return 1
    done >"$work/log" 2>&1
}

mkdir "$work/all" "$work/bad" || exit 99
CK_RUN_CASE=snippets CKPT_SNIPPETS="$work/all" "$build/tests/unit/doctor/test_snippets" >"$work/log" 2>&1 &&
    [ "$(ls "$work/all" | grep -c '\.py$')" -ge 20 ] && [ "$(ls "$work/all" | grep -c '\.c$')" -ge 8 ]
result $? "a snippet for each line of the templates"

if [ $have_python = yes ]; then
    python_takes "$work/all"
    result $? "python3 -m py_compile takes those in Python"
    sed 's/^def resume(.*/def resume(model, {MODEL}):/' "$work/all/plain.py" >"$work/bad/plain.py"
    ! python_takes "$work/bad"
    result $? "and not one with a hole left open"
else
    skip "python3 -m py_compile takes those in Python" "python3 is not there"
    skip "and not one with a hole left open" "python3 is not there"
fi
c_takes "$work/all"
result $? "the C compiler takes those in C11"
if [ "${CKPT_HAVE_CXX:-yes}" = yes ]; then
    cxx_takes "$work/all"
    result $? "the C++ compiler takes them in C++17"
else
    skip "the C++ compiler takes them in C++17" "no C++17 compiler"
fi
sed 's/path\[\] = "[^"]*"/path[] = {PATH}/' "$work/all/weights.c" >"$work/bad/weights.c"
! c_takes "$work/bad"
result $? "and not one with a hole left open, in C"

# ---- templates that the build refuses: file, line, text in it, what is said
embed() { (cd "$1" && $AWK -f snippets/embed.awk template.h snippets/torch.py.in snippets/restore.c.in) 2>"$work/log" >"$work/out.c"; }
fresh_copy() {
    rm -rf "$work/copy" && mkdir "$work/copy" && cp -r "$top/src/doctor/snippets" "$top/src/doctor/template.h" "$work/copy" &&
        chmod -R u+w "$work/copy" || exit 99
}
fresh_copy
embed "$work/copy"
result $? "the templates as they are"
while IFS='|' read -r file text said; do
    fresh_copy
    printf '%s\n' "$text" >>"$work/copy/snippets/$file"
    ! embed "$work/copy" && grep -q "^snippets/$file:[0-9]*: $said" "$work/log"
    result $? "refused in $file: $text"
done <<'TABLE'
torch.py.in|{NO_SUCH}|unknown hole
torch.py.in|{C_PATH}|unknown hole
restore.c.in|{MODEL}|unknown hole
place_steps.py.in|{Path}|unknown hole
torch.py.in|% if no_such|unknown condition
torch.py.in|% each binding|unknown list
torch.py.in|% if flat|an if or each without its end
torch.py.in|% end|unknown or unmatched
restore.c.in|% else|unknown or unmatched
restore.c.in|% iff source|unknown or unmatched
restore.c.in|% include no_such.c.in|cannot read snippets/no_such.c.in
TABLE
echo "1..$count"
exit $failed
