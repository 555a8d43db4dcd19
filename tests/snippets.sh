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
# py_compile takes a function that nothing defines: here each name is looked up in the builtins and in the snippet itself.
names_known() {
    python3 - "$1"/*.py >"$work/log" 2>&1 <<'PYTHON'
import builtins, dis, sys, types
def codes(code):
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from codes(inner)
unknown = 0
for path in sys.argv[1:]:
    top = compile(open(path).read(), path, "exec")
    have = {i.argval for i in dis.get_instructions(top) if i.opname == "STORE_NAME"} | set(dir(builtins)) | {"__name__"}
    for code in codes(top):
        for i in dis.get_instructions(code):
            if (i.opname == "LOAD_GLOBAL" or (code is top and i.opname == "LOAD_NAME")) and i.argval not in have:
                print(f"{path}: nothing defines {i.argval}")
                unknown += 1
sys.exit(unknown > 0)
PYTHON
}
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
    names_known "$work/all"
    result $? "every name in them is defined"
    sed 's/^def resume(.*/def resume(model, {MODEL}):/' "$work/all/plain.py" >"$work/bad/plain.py"
    ! python_takes "$work/bad"
    result $? "python3 refuses a hole that is left open"
    sed 's/^def place_steps(/def set_steps(/' "$work/all/plain.py" >"$work/bad/plain.py"
    ! names_known "$work/bad"
    result $? "a function that is not defined is found"
else
    for name in "python3 -m py_compile takes those in Python" "every name in them is defined" \
        "python3 refuses a hole that is left open" "a function that is not defined is found"; do
        skip "$name" "python3 is not there"
    done
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
result $? "the C compiler refuses a hole that is left open"

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
