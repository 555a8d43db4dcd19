#!/bin/sh
# fixes.sh - is each fix of doctor one line that can be pasted? Those of all rows (src/doctor/rows_*.c, as the preprocessor
# leaves them, with stand-ins for what a checkpoint fills in), and those of the checkpoints in tests/data and of one with a name
# that no shell likes: what is called Python compiles, what is called shell passes sh -n, and none has two ways in one line. At the
# end mistakes are planted: each must be found.
set -u
srcdir=${srcdir:-.} builddir=${builddir:-.}
top=$(cd "$srcdir" && pwd) && build=$(cd "$builddir" && pwd) || exit 99
work=$(mktemp -d "${TMPDIR:-/tmp}/fixes.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
CC=${CC:-cc} LC_ALL=C
export LC_ALL
if ! python3 -c 'import ast, json' 2>/dev/null; then
    echo '1..0 # SKIP no python3'
    exit 77
fi
cat >"$work/check.py" <<'PYTHON'
"""check.py rows FILE... | findings FILE: fixes that are not one pasteable line are printed; status 1 where there is one, or
where there are too few to mean anything."""
import ast, json, re, subprocess, sys

KINDS = {1: "shell", 2: "python", 3: "c", 4: "config", 5: "advice"}
STAND_INS = {"n": "3", "s": "s", "a": "betas", "b": "2", "c": "4", "path": "'a b.pt'", "py": "'a b.pt'", "file": "'a b.pt'", "drop": "=x",
             "dst": "'a b.fixed.pt'", "torch": "'a b.pt.pt'", "repair": "ckpt-migrate --fix x --to same 'a b.pt' y", "version": "2.13",
             "loader": "torch"}


def of_rows(paths):
    for path in paths:
        text = open(path).read()
        for literals in re.findall(r'\.fix = ((?:"(?:[^"\\]|\\.)*"\s*)+)', text):
            whole = "".join(ast.literal_eval(x) for x in re.findall(r'"(?:[^"\\]|\\.)*"', literals))
            if not whole:
                continue
            if whole[0] not in "\1\2\3\4\5":
                yield "none", whole
            for kind, line in re.findall(r"([\1-\5])([^\1-\5]*)", whole):
                yield KINDS[ord(kind)], re.sub(r"\{(\w+)\}", lambda m: STAND_INS.get(m[1], m[0]), line)


def of_findings(path):
    for line in open(path):
        for finding in json.loads(line).get("findings", []):
            fixes = finding["fixes"]
            if "; or: ".join(f["text"] for f in fixes) != (finding["fix"] or ""):
                yield "none", finding["fix"]
            yield from ((f["kind"], f["text"]) for f in fixes)


def wrong(kind, line):
    if "\n" in line or not line.strip() or line != line.strip():
        return "not one line"
    if re.search(r"; or\b", line):
        return "two ways in one line"
    if kind == "python":
        try:
            compile(line, "fix", "exec")
        except (SyntaxError, ValueError) as e:
            return str(e)
    elif kind == "shell":
        if not re.match(r"[a-z][\w-]* ", line):
            return "no command"
        done = subprocess.run(["sh", "-n"], input=line.encode("utf-8", "surrogateescape"), capture_output=True)
        return done.stderr.decode("utf-8", "replace") if done.returncode else None
    elif kind == "c":
        code = re.sub(r'"(?:[^"\\]|\\.)*"', "", re.sub(r"/\*.*?\*/|//.*", "", line)).strip()
        if not code.endswith(";") or code.count("(") != code.count(")"):
            return "no statement"
    elif kind not in ("config", "advice"):
        return "no kind"
    return None


all_of = list(of_rows(sys.argv[2:]) if sys.argv[1] == "rows" else of_findings(sys.argv[2]))
bad = [(kind, line, why) for kind, line in all_of for why in [wrong(kind, line)] if why]
for kind, line, why in bad:
    print(f"# {kind}: {line}: {why}")
print(f"# {len(all_of)} fixes")
sys.exit(bool(bad) or len(all_of) < 20)
PYTHON
number=0 failed=0
result() {    # STATUS WHAT
    number=$((number + 1))
    if [ "$1" = 0 ]; then
        echo "ok $number - $2"
    else
        cat "$work/log"
        echo "not ok $number - $2"
        failed=1
    fi
}
rows() {    # OUT...: what is left of the rows' sources
    for name in place load state job; do
        $CC -std=c11 -DCKPT_EXPERIMENTAL -E -P -I"$1/src" -I"$top/src" -I"$top/include" "$1/src/doctor/rows_$name.c" >"$work/$name.i" || return 1
    done
}
check() { python3 "$work/check.py" "$@" >"$work/log" 2>&1; }

rows "$top" && check rows "$work"/*.i
result $? "each fix of a row is one line of its kind"

# What doctor says of all that is here, for several programs.
inspect=$build/src/cli/ckpt-inspect
cp "$top/tests/data/cli/fused-step-cpu.pt" "$work/it's a \$(touch x) file.pt"
find "$top/tests/data" -type f \( -name '*.pt' -o -name '*.pth' -o -name '*.ckpt' -o -name '*.safetensors' \) -print0 >"$work/list"
find "$work" -name '*file.pt' -print0 >>"$work/list"
for asked in "--for torch --torch 2.0 --devices cuda:1" "--for torch --optimizer fused --amp" "--for torch-cpp" \
    "--for ckpt --devices cuda:1" "--for lightning" "--for accelerate --devices cpu" "--for hf-trainer"; do
    # shellcheck disable=SC2086 - words
    xargs -0 "$inspect" doctor --ndjson $asked <"$work/list" 2>/dev/null
done >"$work/found"
check findings "$work/found"
result $? "each fix of a checkpoint in tests/data is one line of its kind, and fix is all of them"

# Mistakes.
mkdir -p "$work/planted/src/doctor"
plant() {    # WHAT SED
    for name in place load state job; do
        sed "$2" "$top/src/doctor/rows_$name.c" >"$work/planted/src/doctor/rows_$name.c"
    done
    rows "$work/planted" && ! check rows "$work"/*.i
    result $? "found: $1"
}
plant "Python that does not compile" "s/PYTHON \"torch.cuda.manual_seed_all(seed)/PYTHON \"then torch.cuda.manual_seed_all(seed)/"
plant "a command with an open quote" "s/SHELL \"pip install 'torch>=2.6'/SHELL \"pip install 'torch>=2.6/"
plant "two ways in one line" 's/ADVICE "try it once on a copy"/ADVICE "try it once on a copy; or not at all"/'
plant "a sentence that is called a command" 's/ADVICE "try it once on a copy"/SHELL "Try it once on a copy"/'
plant "a fix without a kind" 's/ADVICE "try it once on a copy"/"try it once on a copy"/'
echo "1..$number"
[ $failed = 0 ]
