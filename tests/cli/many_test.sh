#!/bin/sh
# many_test.sh - several PATHs, and folders of checkpoints: a line each, the worst status, results[] and a document per line.
. "${srcdir:-.}/tests/cli/cli_common.sh"

whole=$data/cli/plain.pt damaged=$data/cli/bad-crc.pt attack=$data/cli/attack.pkl
cp "$whole" whole.pt && cp "$whole" 'with space.pt' && cp "$damaged" damaged.pt && cp "$attack" attack.pkl && cp "$data/cli/weights.safetensors" .
head -c 5000 whole.pt >cut.pt

# ---- verify
ask 0 verify whole.pt 'with space.pt' && [ "$(grep -c ': ok, ' out)" -eq 2 ] && tail -n 1 out | grep -qx '2 checkpoints: 2 ok'
check "verify: all are whole"
ask 1 verify whole.pt damaged.pt cut.pt && grep -q '^whole.pt: ok, ' out && grep -q '^damaged.pt: DAMAGED' out && grep -q '^cut.pt: DAMAGED' out &&
    tail -n 1 out | grep -qx '3 checkpoints: 1 ok, 2 damaged or refused' && [ ! -s err ]
check "verify: one that is damaged makes it 1"
ask 2 verify damaged.pt gone.pt whole.pt && grep -q '^ckpt-inspect: gone.pt: cannot open it' err &&
    tail -n 1 out | grep -qx '3 checkpoints: 1 ok, 1 damaged or refused, 1 not read'
check "verify: one that cannot be read makes it 2, and the others are read"
awk '/: DAMAGED/ { verdict = NR } /^error/ { first = first ? first : NR } END { exit !(verdict && first == verdict + 1) }' out
check "the verdict is first, then what is wrong"
ask 1 verify -q whole.pt damaged.pt && [ "$(grep -c ': ' out)" -ge 2 ] && head -n 1 out | grep -q '^damaged.pt: DAMAGED' && ! grep -q whole.pt out
check "verify -q: of which is wrong alone"
ask 0 verify weights.safetensors && grep -qx '1 note (-v)' out && ! grep -q '^note' out
check "notes are counted"
ask 0 verify -v weights.safetensors && grep -q '^note     no-integrity-data: ' out && ! grep -q '(-v)' out
check "and said with -v"

# ---- JSON
ask 1 verify --json whole.pt damaged.pt && [ "$(grep -c '"ckpt": 1' out)" -eq 3 ] && [ "$(sed -n 's/^ "results": \[$/x/p' out)" = x ] &&
    grep -q '^  {"ckpt": 1, "path": "whole.pt", .*},$' out && grep -q '^  {"ckpt": 1, "path": "damaged.pt", .*}$' out && [ "$(tail -n 1 out)" = '}' ]
check "--json: one document, results[] of one each"
ask 2 verify --json gone.pt whole.pt && grep -q '"path": "gone.pt"' out && grep -q '"code": "system"' out && grep -q '"path": "whole.pt"' out && [ ! -s err ]
check "--json: what cannot be read is an element with its error"
ask 1 verify --ndjson whole.pt damaged.pt && [ "$(wc -l <out)" -eq 2 ] && [ "$(grep -c '^{"ckpt": 1, "path": ".*}$' out)" -eq 2 ]
check "--ndjson: a line each"
ask 0 verify --ndjson whole.pt && [ "$(wc -l <out)" -eq 1 ] && grep -q '"ok": true' out
check "--ndjson: of one too"
ask 2 doctor --ndjson gone.pt && [ "$(wc -l <out)" -eq 1 ] && grep -q '"error": {"code": "system"' out
check "--ndjson: an error is a line"
ask 2 verify --ndjson --threads none whole.pt && [ "$(wc -l <out)" -eq 1 ] && grep -q '"error": {"code": "usage"' out && [ ! -s err ]
check "--ndjson: so is an error of usage"
ask 0 list --ndjson whole.pt && [ "$(wc -l <out)" -eq 1 ] && mv out line && ask 0 list --json whole.pt && [ "$(tr -d ' \n' <out)" = "$(tr -d ' \n' <line)" ]
check "--ndjson: of list, whose document has the same members"
ask 0 verify --json whole.pt && ! grep -q '"path"' out && ! grep -q results out
check "of one PATH the document is what it was"

# ---- doctor, scan, show
ask 0 doctor whole.pt whole.pt && head -n 1 out | grep -q '^whole.pt: resumes ' && tail -n 1 out | grep -qx '2 checkpoints: 2 fine'
check "doctor"
ask 1 doctor whole.pt "$data/cli/namespace.pt" && grep -q ': fails-at-load ' out && tail -n 1 out | grep -qx '2 checkpoints: 1 fine, 1 with a problem'
check "doctor: one that fails makes it 1"
ask 2 doctor --snippet torch whole.pt damaged.pt && [ ! -s out ] && grep -q -e 'whole.pt: --snippet is for one checkpoint, and there are several' err
check "a snippet is of one"
ask 1 scan whole.pt attack.pkl && grep -q '^whole.pt: clean ' out && grep -q '^attack.pkl: dangerous ' out && ! grep -q '^harmless' out &&
    tail -n 1 out | grep -qx '2 paths: 1 clean, 1 dangerous'
check "scan"
ask 0 show -v whole.pt weights.safetensors && grep -qx '==> whole.pt <==' out && grep -qx '==> weights.safetensors <==' out && [ "$(grep -c '^format ' out)" -eq 2 ]
check "show -v: all of each"
ask 0 show whole.pt weights.safetensors "$data/run/one" && [ "$(wc -l <out)" -eq 5 ] && head -n 1 out | grep -q '^format .* step .* parameters .* size .* verdict .* path$' &&
    grep -q '^torch  .*  29  .* KiB  resumes  *whole.pt$' out && grep -q '^safetensors .* 8  .* B  weights-only  *weights.safetensors$' out &&
    grep -q '^run  *ckpt  *100 .* 1 checkpoint  *.*run/one$' out && tail -n 1 out | grep -qx '3 checkpoints: 3 read'
check "show: a line each"
ask 0 show whole.pt "$data/peers/hf-trainer" && grep -q '^hf-trainer .*  4  *0.2  .*peers/hf-trainer$' out
check "show: an epoch may be a part of one"
ask 2 show whole.pt gone.pt && grep -q '^-  .* not read  *gone.pt$' out && grep -q '^ckpt-inspect: gone.pt: cannot open it' err && tail -n 1 out | grep -qx '2 checkpoints: 1 read, 1 not read'
check "show: also of one that cannot be read"
ask 0 show --json whole.pt weights.safetensors && [ "$(grep -c '"producer"' out)" -eq 2 ]
check "show --json"
ask 2 list whole.pt damaged.pt && grep -q "list takes one PATH; unexpected argument 'damaged.pt'" err
check "list is of one"

# ---- folders
mkdir run && cp whole.pt run/epoch-1.pt && cp damaged.pt run/epoch-2.pt
ask 1 verify run && grep -q '^run/epoch-1.pt: ok, ' out && grep -q '^run/epoch-2.pt: DAMAGED' out && tail -n 1 out | grep -qx '2 checkpoints: 1 ok, 1 damaged or refused'
check "verify of a folder reads those in it"
cp "$data/cli/namespace.pt" run/epoch-3.pt
ask 1 doctor run whole.pt && tail -n 1 out | grep -qx '4 checkpoints: 3 fine, 1 with a problem'
check "doctor of a folder and a file"
mkdir nothing && ask 2 verify nothing && [ ! -s out ] && [ "$(grep -c '^ckpt-inspect: ' err)" -eq 1 ] && ask 2 doctor --json nothing whole.pt && [ ! -s err ] &&
    [ "$(grep -c '"error"' out)" -eq 1 ] && grep -q '^  {"ckpt": 1, "path": "nothing", "error": {"code": "format",' out
check "a folder without any is said once"
ask 1 verify --json run && [ "$(grep -c '^  {"ckpt": 1, "path": "run/epoch-[123].pt", ' out)" -eq 3 ]
check "verify --json of a folder"
ask 0 verify "$data/run/one" && ! grep -q '(-v)$' out && tail -n 1 out | grep -q ' ok$'
check "a run directory is one"
ask 0 verify whole.pt "$data/run/one" && tail -n 1 out | grep -qx '2 checkpoints: 2 ok'
check "also beside others"
ask 0 verify --one whole.pt && ! grep -q checkpoints: out
check "--one is one"

# ---- which tensors list and stats show
names() { sed 1d out | awk '{ print $NF }'; }
sizes() { grep -o '"nbytes": [0-9]*' out | cut -d ' ' -f 2; }
ask 0 list whole.pt && names >in-file && [ "$(wc -l <in-file)" -gt 20 ]
ask 0 list --sort name whole.pt && names >sorted && LC_ALL=C sort in-file | cmp -s - sorted
check "list --sort name"
ask 0 list --sort name -r whole.pt && names >sorted && LC_ALL=C sort -r in-file | cmp -s - sorted
check "list --sort name -r"
ask 0 list --json --sort size whole.pt && sizes >sorted && sort -s -rn sorted | cmp -s - sorted && [ "$(wc -l <sorted)" -eq "$(wc -l <in-file)" ]
check "list --sort size: the largest first"
ask 0 list --reverse whole.pt && names >sorted && tac in-file | cmp -s - sorted
check "list --reverse"
ask 0 list --json --pieces --sort offset whole.pt && grep -o '"file_offset": [0-9]*' out | cut -d ' ' -f 2 >sorted && sort -n sorted | cmp -s - sorted && [ "$(wc -l <sorted)" -gt 2 ]
check "list --sort offset"
ask 0 list --limit 3 whole.pt && names >sorted && head -n 3 in-file | cmp -s - sorted && grep -q 'whole.pt: [0-9]* more tensors are not shown (--limit)' err
check "list --limit"
ask 0 list --json --limit 3 whole.pt && [ "$(sizes | wc -l)" -eq 3 ] && grep -q "^ \"omitted\": $(($(wc -l <in-file) - 3))," out
check "list --limit --json"
ask 0 list --limit 1000 whole.pt && names | cmp -s - in-file && [ ! -s err ]
check "a limit that is not reached"
ask 2 list --limit 0 whole.pt && ask 2 list --sort age whole.pt && grep -q "choose size, name or offset" err
check "bad ones"
ask 0 stats --nonfinite whole.pt && grep -qx 'no tensor has NaN or infinities' out
check "stats --nonfinite: none"
cp weights.safetensors nan.safetensors && printf '\000\000\300\177' | dd of=nan.safetensors bs=1 seek=168 conv=notrunc 2>err
ask 1 diff --report nan.html weights.safetensors nan.safetensors && grep -q 'class="verdict is-error"' nan.html &&
    sed 's,<wbr/>,,g' nan.html | grep -q '1 tensor has values that are NaN on one side alone: <span class="name">a.bias</span> (1)\.'
check "diff --report: what has become NaN is an error, and named first"
ask 0 tree whole.pt && grep -q '_metadata: .* of [0-9]*, not shown (-v)$' out && ! grep -q 'version: 1' out && ask 0 tree -v whole.pt && grep -q 'version: 1' out &&
    ask 0 tree --json whole.pt && grep -q '_metadata.*version' out
check "tree: the versions of modules with -v"
ask 0 list --markdown nan.safetensors && sed -n 2p out | grep -qx '| --- | --- | .* | ---: | --- |' && grep -q '^| float32 | .* | `a.bias` |$' out &&
    ask 2 list --markdown --json nan.safetensors && ask 2 list --markdown --pieces nan.safetensors
check "list --markdown"
ask 0 stats --markdown nan.safetensors && [ "$(sed -n 1p out | tr -d -c '|')" = "$(sed -n 4p out | tr -d -c '|')" ] && grep -q '^| .* | *1 | *0 | `a.bias` |$' out &&
    ask 2 tree --markdown nan.safetensors
check "stats --markdown: as many cells in a line as in the head"
ask 1 diff weights.safetensors nan.safetensors && sed -n 's/^changed *\([^ ]*\).*/\1/p' out >order && ask 1 diff --markdown weights.safetensors nan.safetensors &&
    sed -n 's/^| changed | `\([^`]*\)`.*/\1/p' out | cmp -s - order && grep -q '^| changed | `a.bias` | `value` | 1 of [0-9]* | .* | 1 |$' out &&
    grep -q '^| no role | 1 | 0 | 0 | .* | 1 |$' out && sed -n 1p out | grep -qx '`weights.safetensors` and `nan.safetensors`: \*\*different\*\*'
check "diff --markdown: the tensors of the text, in its order, and the roles"
awk -F'|' '/^[|]/ { gsub(/\\[|]/, ""); if (n && NF != n) bad = 1; n = NF; next } { n = 0 } END { exit bad }' out
check "as many cells in a line as in its head"
odd() # FILE VALUE...: tensors under names with marks of Markdown, of these values
{
    python3 - "$@" <<'END'
import json, struct, sys
names, values, head, data = ["z|pipe", "b`tick", "<i>*x*", "nan", "aa"], sys.argv[2:], {}, b""
for name, value in zip(names, values):
    head[name] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
    data += struct.pack("<f", float(value))
text = json.dumps(head).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data)
END
}
if python3 -c '' 2>/dev/null; then
    odd odd-a.safetensors 1 2 3 4 5 && odd odd-b.safetensors 2 3 4 nan 5 && ask 1 diff --markdown odd-a.safetensors odd-b.safetensors &&
        grep '^| changed' out | sed -n 1p | grep -q '`nan`' && grep -q '^| changed | `z\\|pipe` |' out && grep -q '^| changed | `` b`tick `` |' out && grep -q '| `<i>\*x\*` |' out
    check "new NaN first; marks in a name are none"
    ask 1 diff --markdown --limit 2 odd-a.safetensors odd-b.safetensors && [ "$(grep -c '^| changed' out)" -eq 2 ] && grep -qx '2 more tensors and 0 more values differ (--limit).' out
    check "diff --markdown --limit"
    ask 1 diff -q --markdown odd-a.safetensors odd-b.safetensors && ask 2 diff --markdown --json odd-a.safetensors odd-b.safetensors && grep -q -e '--markdown goes without --json' out
    check "not with --json"
fi
ask 0 stats --nonfinite nan.safetensors && [ "$(names)" = a.bias ] && ask 0 stats --json --nonfinite nan.safetensors &&
    [ "$(grep -c '"name": ' out)" -eq 1 ] && grep -q '"name": "a.bias", .*"nan": 1,' out
check "stats --nonfinite"
ask 2 extract whole.pt exp_avg -o a.npy && [ ! -e a.npy ]
check "extract: an end that several names have is none"
end=$(sed -n '1s/.*\.\([^.]*\.[^.]*\)$/\1/p' in-file)
ask 0 extract whole.pt "$end" -o a.npy && [ -s a.npy ] && grep -q "'$end' is taken to be $(sed -n 1p in-file)" err
check "extract: the end of one name is that tensor, and it is said"
"$inspect" extract whole.pt "$(sed -n 1p in-file)" -o - | cmp -s - a.npy
check "the very same"

# ---- what ckpt-migrate says of many tensors
to() { expected=$1; shift; "$migrate" "$@" >out 2>err </dev/null; [ $? -eq "$expected" ]; }
three=$data/cli/three-devices.pt
to 0 --map-location cuda:7 --cast '*=half' --add-prefix m. "$three" summed.pt && grep -qx 'moved  cuda:0 -> cuda:7   m.a' out &&
    grep -qx 'cast   3 tensors, float32 -> float16' out && grep -qx 'renamed 3 tensors' out && tail -n 1 out | grep -qx 'summed.pt: written'
check "those that fare alike are one line, one alone is named"
to 0 -v --map-location cuda:7 --cast '*=half' "$three" listed.pt && [ "$(grep -c '^moved ' out)" -eq 3 ] && [ "$(grep -c '^cast ' out)" -eq 3 ]
check "-v names each"
to 0 --cpu whole.pt cpu.pt && grep -q '^moved  [0-9]* tensors, cuda:0 -> cpu$' out && mkdir mapped && "$migrate" -q --map-location cpu whole.pt mapped/cpu.pt && cmp -s cpu.pt mapped/cpu.pt
check "--cpu is --map-location cpu"
to 0 -q --cast bf16 whole.pt half.pt && "$inspect" list half.pt | awk 'NR > 1 { print $1, $(NF - 3) }' >kinds && "$inspect" list --json half.pt >out &&
    [ "$(grep -c '"dtype": "bfloat16"' out)" -gt 5 ] && ! grep '"dtype": "bfloat16"' out | grep -v '"role": "param"\|"role": "buffer"' &&
    ! grep '"role": "param"' out | grep -v '"dtype": "bfloat16"' && grep '"role": "exp_avg"' out | grep -q '"dtype": "float32"' && grep -q '"dtype": "int64"' out
check "--cast DTYPE converts parameters and buffers of floating point, and nothing else"
to 0 -q --cast bf16 weights.safetensors half.safetensors && "$inspect" list --json half.safetensors >out && [ "$(grep -c bfloat16 out)" -eq 2 ]
check "and tensors whose role is not known"

# ---- options as they are typed
ask 0 doctor --map_location=cpu --load_weights_only no whole.pt && cp out as && ask 0 doctor --map-location=cpu --load-weights-only no whole.pt && cmp -s as out
check "underscores are dashes in an option"
cp whole.pt under_score.pt && ask 0 list --tensor '*exp_avg*' under_score.pt && [ "$(names | grep -c exp_avg)" -gt 5 ] && ask 0 list -- under_score.pt
check "and stay in values and paths"
ask 2 list --tensr x whole.pt && grep -q "unknown option '--tensr'; did you mean '--tensor'?" err && to 2 --wieghts-only whole.pt x.pt &&
    grep -q "did you mean '--weights-only'?" err && ask 2 list --qwerty whole.pt && grep -q "unknown or ambiguous option '--qwerty'" err
check "an option that is close is named"
escape=$(printf '\033')
ask 0 verify --color always whole.pt && grep -q "$escape" out && ask 0 verify --color never whole.pt && ! grep -q "$escape" out && ask 2 verify --color red whole.pt
check "--color"

# ---- show --by
ask 0 show --by dtype whole.pt && sed -n '/^tensors  *parameters/,$p' out >table && [ "$(awk 'NR > 1 { n += $1 } END { print n }' table)" = "$("$inspect" list whole.pt | sed 1d | wc -l)" ] && awk 'NR > 1 { n += $2 } END { exit n != 29 }' table
check "show --by dtype: all tensors, and the parameters among them"
for by in role device layer; do
    ask 0 show --by $by whole.pt && sed -n '/^tensors  *parameters/,$p' out >table && awk 'NR > 1 && $2 != "-" { n += $2 } END { exit n != 29 }' table
    check "show --by $by: as many parameters"
done
ask 0 show --by role --json whole.pt && tr -d ' \n' <out | grep -q '"by":\[{"name":"param","tensors":6,"parameters":29,"nbytes":116},'
check "also as JSON"
if python3 -c '' 2>/dev/null; then
layers() # layers FILE ODD: of 8 layers one may have another shape
{
    python3 - "$@" <<'PYTHON'
import json, struct, sys
header, at = {}, 0
for name, shape in [("embed.weight", [4, 2])] + [("model.layers.%d.%s" % (i, k), [2, 3] if i != int(sys.argv[2]) else [2, 5]) for i in sorted(range(12), key=str) for k in ("a.weight", "b.weight")] + [("head.weight", [2, 4])]:
    size = 4 * shape[0] * shape[1]
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
    at += size
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + bytes(at))
PYTHON
}
layers even.safetensors -1 && ask 0 show --by layer even.safetensors && [ "$(sed -n '/^tensors  *parameters/,$p' out | sed 1d | awk '{ print $1, $2, $NF }' | tr '\n' ';')" = '1 8 embed;24 144 model.layers.*;1 8 head;' ] &&
    grep -q '^ *24  *144 .* 12  model.layers.\*$' out
check "show --by layer: layers that are alike are one line"
layers odd.safetensors 5 && ask 0 show --by layer odd.safetensors && grep -q '^ *22  *132 .* 11  model.layers.\* (0-4, 6-11)$' out && grep -q '^ *2  *20 .* -  model.layers.5$' out
check "and the odd one is another"
ask 0 show --by layer --json odd.safetensors && tr -d ' \n' <out | grep -q '{"name":"model.layers.5","tensors":2,"parameters":20,"nbytes":80,"layers":\["model.layers.5"\]}'
check "also as JSON"
fi
ask 2 show --by colour whole.pt && grep -q 'choose layer, dtype, role or device' err && ask 2 stats --by layer whole.pt && grep -q 'stats: --by is for --run, which was not given' err
check "no other kinds"
ask 2 show --by role "$data/run/one" && grep -q -e '--by are for one of them' err
check "--by is of one checkpoint"

# ---- the width of the terminal
if python3 -c '' 2>/dev/null; then
widest() # widest COLUMNS PATH: the widest line of show on a terminal, without findings and the call to paste
{
    python3 - "$inspect" "$@" <<'PYTHON'
import fcntl, os, pty, struct, sys, termios
child, end = pty.fork()
if child == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[2]), 0, 0))
    os.execv(sys.argv[1], [sys.argv[1], "show", "--color", "never", sys.argv[3]])
text = b""
while True:
    try:
        more = os.read(end, 65536)
    except OSError:
        break
    if not more:
        break
    text += more
os.waitpid(child, 0)
lines = text.decode().replace("\r", "").split("\n")
kept = []
for line in lines:
    if line.startswith(("resume with", "warning", "note", "error")):
        break
    kept.append(line)
print(max(map(len, kept)), len(kept))
PYTHON
}
lines() { echo "$1" | cut -d ' ' -f 2; }
at_40=$(widest 40 "$data/peers/lightning.ckpt") at_60=$(widest 60 "$data/peers/lightning.ckpt") at_200=$(widest 200 "$data/peers/lightning.ckpt")
[ "${at_40% *}" -le 40 ] && [ "${at_40% *}" -gt 30 ] && [ "${at_60% *}" -le 60 ] && [ "${at_200% *}" -gt 80 ] &&
    [ "$(lines "$at_40")" -gt "$(lines "$at_60")" ] && [ "$(lines "$at_60")" -gt "$(lines "$at_200")" ]
check "show follows the width of the terminal ($at_40, $at_60, $at_200)"
fi

# ---- names that are wider than their characters
mkdir wide && cp whole.pt wide/模型.pt && cp whole.pt wide/ascii.pt && printf 'e\314\201.pt' >name && cp whole.pt "wide/$(cat name)"
column() { sed -n "s/^\($1\.pt  *\)3  *1  .*/\1/p" out | tr -d '\n' | python3 -c 'import sys, unicodedata as u; print(sum(0 if u.combining(c) else 2 if u.east_asian_width(c) in "WF" else 1 for c in sys.stdin.buffer.read().decode()))'; }
if python3 -c '' 2>/dev/null && ask 0 wide; then
    [ "$(column ascii)" -gt 8 ] && [ "$(column ascii)" = "$(column 模型)" ] && [ "$(column ascii)" = "$(column "$(printf 'e\314\201')")" ]
    check "columns stand below each other behind Chinese names and combined characters"
fi

# ---- stats --run
mkdir steps && cp "$data/peers/lightning.ckpt" steps/a.ckpt && cp whole.pt steps/b.pt && head -c 900 whole.pt >steps/c.pt
ask 0 stats --run steps && [ "$(wc -l <out)" -eq 3 ] && head -n 1 out | grep -q '^ *step .* norm  nonfinite .* path$' && grep -q '^ckpt-inspect: steps/c.pt: skipped: ' err
check "stats --run: a line for each that is complete"
if python3 -c '' 2>/dev/null; then
norm() { "$inspect" stats --json --role param "$1" | python3 -c 'import json, sys; print("%.6g" % sum(t["count"] * (t["std"] ** 2 + t["mean"] ** 2) for t in json.load(sys.stdin)["tensors"]) ** .5)'; }
ask 0 stats --run steps && grep steps/a.ckpt out | grep -q "  $(norm steps/a.ckpt)  " && grep steps/b.pt out | grep -q "  $(norm steps/b.pt)  "
check "the norm of the weights"
fi
ask 0 stats --run --json steps && grep -q '"path": "steps/a.ckpt", "step": 4, .*"lr": 0.01, .*"nonfinite": 0, .*"norm": ' out
check "also as JSON"
ask 0 stats --run --by layer steps/ && grep -q '^norms of the layers, in the order of these 2$' out && ask 0 stats --run --by layer --json steps && grep -q '"layers": \[{"name": ".*", "norm": ' out
check "with layers"
mkdir nans && cp nan.safetensors nans/x.safetensors && ask 0 stats --run nans && awk 'NR == 2 { exit $3 != 1 && $2 != 1 }' out && grep -q '  1  .* nans/x.safetensors' out
check "NaN are counted, and are not in the norm"
ask 0 stats --run "$data/run/one" && [ "$(wc -l <out)" -eq 2 ] && grep -q '^ *100 .*step-00000100$' out
check "stats --run of a run directory"
ask 2 stats --run whole.pt && grep -q 'whole.pt: neither a run directory nor a folder' err && ask 2 stats --run "$data/run/ranks" && grep -q 'not there for a run of several ranks' err && ask 2 stats --run --by role steps
check "of what it is not"

# ---- scan of a directory
mkdir -p down/deep/deeper && cp whole.pt down && cp attack.pkl down/deep/deeper && echo text >down/readme.txt
ask 1 scan down && grep -qx 'dangerous  deep/deeper/attack.pkl' out && grep -qx 'clean      whole.pt' out && grep -qx 'others     1 file that names nothing to import' out &&
    tail -n 2 out | head -n 1 | grep -q '^down: dangerous (3 files'
check "scan of a directory: a line for each file that names something, the worst first"
[ "$(grep -n '^dangerous  deep/deeper/attack.pkl$' out | cut -d : -f 1)" -lt "$(grep -n '^clean      whole.pt$' out | cut -d : -f 1)" ]
check "in that order"
ask 1 scan --json down && tr -d ' \n' <out | grep -q '"by_file":\[{"file":"deep/deeper/attack.pkl","verdict":"dangerous"},{"file":"whole.pt","verdict":"clean"}\]'
check "also as JSON"
ask 0 scan --json whole.pt && ! grep -q by_file out
check "of a file there is none"

# ---- how many parameters
ask 0 show whole.pt && grep -qx 'parameters 29 in 6 tensors, float32' out && ask 0 show --json whole.pt && tr -d ' \n' <out | grep -qF '"parameters":{"count":29,"tensors":6,"tied":0,"roles_known":true,"dtypes":[{"dtype":"float32","count":29}]}'
check "show: parameters are the elements of the weights"
ask 0 show weights.safetensors && grep -qx 'parameters 8 in 2 tensors, float32 (all tensors: the file keeps no roles)' out
check "of all tensors where none has a role"
ask 0 show "$data/v01/ranks/rank-00000/step-00000020/model.safetensors" && grep -qx 'parameters 26 in 3 tensors, float32; 1 more name is tied to them' out
check "tied ones count once"
to 0 -q --cast '*.weight=half' whole.pt mixed.pt && ask 0 show mixed.pt && grep -qx 'parameters 29 in 6 tensors: float16 21, float32 8' out
check "by dtype"
ask 0 show --role buffer whole.pt && ! grep -q '^parameters' out && ask 0 show --json --role buffer whole.pt && grep -q '^ "parameters": null,$' out
check "none are selected"

# ---- diff of much
cp weights.safetensors other.safetensors && printf '\000\000\300\177' | dd of=other.safetensors bs=1 seek=184 conv=notrunc 2>err && printf 'X' | dd of=other.safetensors bs=1 seek=168 conv=notrunc 2>err
ask 1 diff weights.safetensors other.safetensors && [ "$(grep '^changed' out | awk '{ print $2 }' | tr '\n' ' ')" = 'a.weight a.bias ' ] && grep -q '^changed  a.weight .*NaN in one only: 1$' out
check "diff: what has become NaN comes first"
ask 1 diff whole.pt mixed.pt && [ "$(grep -c '^changed ' out)" -eq 3 ] && ! grep -q '^by role' out
check "few differences have no summary"
ask 1 diff whole.pt cpu.pt && grep -qx 'by role' out && grep -q '^  param *6 changed$' out && grep -q '^  exp_avg *6 changed$' out && tail -n 1 out | grep -qx different
check "many are counted by role"
ask 1 diff --limit 2 whole.pt cpu.pt && [ "$(grep -c '^changed ' out)" -eq 2 ] && grep -qx '19 more tensors and 0 more values differ (--limit)' out && grep -q '^tensors: 6 same, 21 changed' out
check "diff --limit"
ask 0 diff --exclude '*.weight' whole.pt mixed.pt && grep -q '^values: [1-9][0-9]* same$' out && ask 1 diff --exclude '=model.0.weight' whole.pt mixed.pt && [ "$(grep -c '^changed ' out)" -eq 2 ]
check "diff --exclude: those tensors are not compared, values are"
ask 1 diff --json --exclude '=model.0.weight' whole.pt mixed.pt && [ "$(grep -c '"status": "changed"' out)" -eq 2 ] && ! grep -q '"name": "model.0.weight"' out
check "also as JSON"

finish 93
