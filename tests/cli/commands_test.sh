#!/bin/sh
# commands_test.sh - what the commands do besides answering: files that appear whole, statuses, signals, full disks.
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
builddir=$(cd "${builddir:-.}" && pwd) || exit 99
inspect=$builddir/src/cli/ckpt-inspect
migrate=$builddir/src/cli/ckpt-migrate
data=$srcdir/tests/data/cli
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-cli.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
LC_ALL=C INSPECT=$inspect
export LC_ALL INSPECT
cd "$work" || exit 99

count=0
failures=0
# report STATUS DESCRIPTION
report()
{
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        failures=$((failures + 1))
        [ ! -s err ] || sed 's/^/# /' err
    fi
}
# expect STATUS DESCRIPTION COMMAND...: the command ends with that status; its output is in ./out and ./err.
expect()
{
    wanted=$1
    description=$2
    shift 2
    "$@" >out 2>err
    got=$?
    [ $got -eq "$wanted" ] || echo "# exit status $got, expected $wanted"
    [ $got -eq "$wanted" ]
    report $? "$description"
}
# crcs FILE: the CRC-32 of each tensor, sorted.
crcs()
{
    "$inspect" list --json --checksum "$1" | sed -n 's/.*"crc32": "\([0-9a-f]*\)".*/\1/p' | sort
}

# ---- migrate
expect 0 "a torch file becomes native and is read back" "$migrate" --verify "$data/fused-step-cpu.pt" a.safetensors
[ "$(crcs "$data/fused-step-cpu.pt")" = "$(crcs a.safetensors)" ] && [ "$(crcs a.safetensors | wc -l)" -eq 27 ]
report $? "every tensor has the bytes of its source"
expect 0 "it verifies" "$inspect" verify a.safetensors
grep -q 'integrity crc32' out
report $? "by checksums"
expect 1 "its tags are the source's: step on the cpu, fused" "$inspect" doctor a.safetensors
grep -q '^error *step-on-cpu' out
report $? "doctor says so"
expect 0 "--optimizer fused mends it" "$migrate" --optimizer fused a.safetensors b.safetensors
expect 0 "and doctor agrees" "$inspect" doctor b.safetensors
cp "$data/fused-step-cuda.pt" three.pt
expect 1 "tags of a GPU where there is none" "$inspect" doctor --devices cpu three.pt
fix=$(sed -n 's/.*fix (shell): ckpt-migrate \(--fix no-such-device .*\)/\1/p' out)
# shellcheck disable=SC2086 - the line is split into words
expect 0 "what doctor printed is done ($fix)" "$migrate" ${fix:-none}
expect 0 "and mends it" "$inspect" doctor --devices cpu three.fixed.pt
rm -f three.pt three.fixed.pt
"$inspect" list --role step b.safetensors >out
grep -q 'cuda:0' out && ! grep -q 'cpu' out
report $? "step is on cuda:0"
expect 0 "--optimizer plain puts it on the cpu again" "$migrate" --optimizer plain b.safetensors c.safetensors
"$inspect" list --role step c.safetensors >out
grep -q 'cpu' out && ! grep -q 'cuda' out
report $? "step is on the cpu"
expect 0 "and the flags say so" "$inspect" doctor c.safetensors
expect 0 "a torch file can be mended on the way" "$migrate" --optimizer fused "$data/fused-step-cpu.pt" d.safetensors
expect 0 "with the same result" "$inspect" doctor d.safetensors
expect 0 "all tags move" "$migrate" --map-location cuda:3 a.safetensors e.safetensors
"$inspect" list e.safetensors | sed 1d >out
[ "$(grep -c 'cuda:3' out)" -eq 27 ]
report $? "all to cuda:3, step with its fused parameters"
"$inspect" tree a.safetensors >out
grep -q '^epoch: 1' out && grep -q 'betas: list of 2' out && grep -q '_growth_tracker: 3' out
report $? "values are kept: epoch, betas, the scaler"
expect 2 "what exists is not replaced" "$migrate" "$data/plain.pt" a.safetensors
expect 0 "but with --force" "$migrate" --force "$data/plain.pt" a.safetensors
cp "$data/shared.pt" shared.pt
ln -s shared.pt link.safetensors
expect 2 "a link to the source is the source" "$migrate" --force shared.pt link.safetensors
cmp -s shared.pt "$data/shared.pt"
report $? "which is as it was"
expect 0 "shared storages stay shared" "$migrate" shared.pt s.safetensors
"$inspect" list --json s.safetensors >out
[ "$(grep -c '"storage": 0' out)" -eq 2 ]
report $? "both tensors view storage 0"
expect 2 "plain safetensors holds neither tags nor sharing" "$migrate" --to safetensors shared.pt p.safetensors
[ ! -e p.safetensors ]
report $? "nothing was written"
expect 0 "--lossy permits it" "$migrate" --to safetensors --lossy shared.pt p.safetensors
[ "$(crcs shared.pt)" = "$(crcs p.safetensors)" ]
report $? "the bytes are there"
expect 2 "a damaged source gives no target" "$migrate" --verify "$data/bad-crc.pt" bad.safetensors
[ ! -e bad.safetensors ]
report $? "nothing was written"
# One bit under a transposed view, in a storage that others look at too: no way out takes it for sound.
for options in '--to safetensors' '--to ckpt' '--to torch' '--to hf --lossy' '--to torch --plain' '--to ckpt --cast *=bfloat16'; do
    for more in '' --verify; do
        # shellcheck disable=SC2086
        expect 0 "views, $options $more" "$migrate" --lossy $options $more "$data/views.pt" views.out
        [ "$(crcs "$data/views.pt")" = "$(crcs views.out)" ] || [ "$options" = '--to ckpt --cast *=bfloat16' ]
        report $? "every view has the bytes of its source"
        rm -rf views.out
        # shellcheck disable=SC2086
        expect 2 "damaged views, $options $more" "$migrate" --lossy $options $more "$data/bad-views.pt" views.out
        grep -q 'CRC-32' err && [ ! -e views.out ] && [ -z "$(find . -name '*views.out*')" ]
        report $? "nothing was written"
    done
done
for name in turned rows column again one; do
    expect 0 "extract of a view: $name" "$inspect" extract "$data/views.pt" $name --raw -o view.raw
    rm -f view.raw
    expect 2 "extract of it from a damaged storage" "$inspect" extract "$data/bad-views.pt" $name --raw -o view.raw
    grep -q 'CRC-32' err && [ ! -e view.raw ]
    report $? "nothing was written"
done
expect 2 "no checksum of what is damaged" "$inspect" list --checksum "$data/bad-views.pt"
[ ! -s out ]
report $? "nothing is listed"
expect 2 "no checksum of a view beside it" "$inspect" list --checksum --tensor one "$data/bad-views.pt"
expect 2 "no stats of what is damaged" "$inspect" stats "$data/bad-views.pt"
expect 2 "no difference to what is damaged" "$inspect" diff "$data/views.pt" "$data/bad-views.pt"
expect 2 "nor from it" "$inspect" diff "$data/bad-views.pt" "$data/views.pt"
expect 1 "damaged values are no resume" "$inspect" doctor --values "$data/bad-views.pt"
expect 1 "verify tells it" "$inspect" verify "$data/bad-views.pt"
expect 1 "salvage keeps none of them" "$migrate" --salvage --lossy --to safetensors "$data/bad-views.pt" views.out
[ "$("$inspect" list --json views.out | grep -c '"name"')" -eq 0 ]
report $? "as no byte of that storage is known to be right"
rm -f views.out
expect 2 "a directory that is not there" "$migrate" shared.pt no/such/x.safetensors
[ -z "$(find . -name '*.tmp*' -o -name '.*.safetensors*')" ]
report $? "no temporary is left"
expect 2 "a target inside a source directory is refused" sh -c "mkdir dir && '$migrate' dir dir/x.safetensors"

# ---- no option takes an empty value: a script whose variable is not set is told so
# refuses_empty COMMAND PROGRAM: each option of the table that takes a value, in both spellings.
refuses_empty()
{
    taken=
    options=$("$builddir/src/cli/completion/generate" options "$2" | sed -n 's/^\([a-z-]*\) [^-].*/\1/p')
    for option in $options; do
        "$1" "--$option" '' shared.pt empty.pt >out 2>err
        [ $? -eq 2 ] && grep -q "option '--$option' has an empty value" err || taken="$taken --$option ''"
        "$1" shared.pt empty.pt "--$option=" >out 2>err
        [ $? -eq 2 ] && grep -q "option '--$option=' has an empty value" err || taken="$taken --$option="
    done
    [ -z "$taken" ] || echo "# taken:$taken"
    [ -n "$options" ] && [ -z "$taken" ] && [ ! -e empty.pt ]
}
refuses_empty "$migrate" migrate
report $? "ckpt-migrate: no option takes an empty value"
refuses_empty "$inspect" inspect
report $? "ckpt-inspect: no option takes an empty value"
expect 2 "-o neither" "$inspect" extract "$data/weights.safetensors" a.weight -o ''
grep -q "option '-o' has an empty value" err
report $? "and it is named"

# ---- extract
expect 0 "a tensor is extracted" "$inspect" extract "$data/weights.safetensors" a.weight --raw -o raw
[ "$(od -An -tf4 raw | tr -s ' \n' ' ')" = " 0 1 2 3 4 5 " ]
report $? "its elements"
expect 0 "and as .npy" "$inspect" extract "$data/weights.safetensors" a.weight -o w.npy
[ "$(wc -c <w.npy)" -eq 152 ] && tail -c 24 w.npy | cmp -s - raw && head -c 128 w.npy | grep -q "'shape': (2, 3)"
report $? "header and elements"
expect 2 "what is there already is not replaced" "$inspect" extract "$data/weights.safetensors" a.bias --raw -o raw
grep -q -e '--force' err && [ "$(wc -c <raw)" -eq 24 ]
report $? "and --force is named"
ln -s raw link.raw
expect 2 "nor through a link" "$inspect" extract "$data/weights.safetensors" a.bias --raw -o link.raw
[ "$(wc -c <raw)" -eq 24 ]
report $? "it is as it was"
expect 0 "--force replaces it" "$inspect" extract --force "$data/weights.safetensors" a.bias --raw -o link.raw
[ "$(wc -c <raw)" -eq 8 ] && [ -L link.raw ]
report $? "and the link stays"
expect 2 "--check takes all or part" "$inspect" extract --check none "$data/weights.safetensors" a.bias --raw -o new.raw
expect 0 "--check all" "$inspect" extract --check all "$data/weights.safetensors" a.bias --raw -o new.raw
"$inspect" extract "$data/tensors.pt" scalar --raw -o - >out 2>err
[ "$(od -An -tf4 out | tr -d ' ')" = 1.5 ]
report $? "to standard output"

cp "$data/plain.pt" own.pt
ln -s own.pt own.npy
expect 2 "the checkpoint is not replaced by its tensor" "$inspect" extract own.pt model.0.weight -o ./own.pt
expect 2 "nor through a link" "$inspect" extract own.pt model.0.weight -o own.npy
cmp -s own.pt "$data/plain.pt"
report $? "it is as it was"
expect 0 "to a device that is no output" "$inspect" extract --json own.pt model.0.weight -o /dev/null

"$migrate" -q --verify shared.pt closed.safetensors >&- 2>&-
"$inspect" verify closed.safetensors >out 2>err
report $? "closed standard streams do not get into the target"

# ---- statuses that no answer has
if [ -w /dev/full ]; then
    "$inspect" list "$data/plain.pt" >/dev/full 2>err
    [ $? -eq 2 ] && grep -q '^ckpt-inspect: standard output: cannot write: No space left on device (free space or send it elsewhere; what has arrived there is not whole)$' err
    report $? "a full disk behind standard output is status 2, and it is said what to do"
    "$inspect" list "$data/plain.pt" 2>err >&-
    [ $? -eq 2 ] && grep -q 'cannot write' err
    report $? "no standard output at all, too"
    "$inspect" --json "$data/plain.pt" >/dev/full 2>err
    [ $? -eq 2 ]
    report $? "with --json too"
    expect 2 "extract to a full disk" "$inspect" extract "$data/plain.pt" model.0.weight -o /dev/full
    grep -q '/dev/full: cannot write: No space left on device (free space or choose another place; what is there now is not whole)$' err
    report $? "names it, and says what to do"
fi
{ "$inspect" tree --json "$data/plain.pt" 2>err; echo "$?" >status; } | true
[ ! -s err ]
report $? "a closed pipe ends it without a word"

# ---- JSON, whatever is asked
if python3 -c '' 2>/dev/null; then
    wrong=0
    for file in "$data"/*.pt "$data"/*.safetensors "$data/README" no-such-file "$srcdir"/tests/data/run/*; do
        for command in show list 'list --checksum' tree verify doctor 'doctor --metadata-only' 'show --keep-last 1' scan stats; do
            # shellcheck disable=SC2086
            "$inspect" $command --json "$file" >out 2>err
            status=$?
            if ! python3 -c '
import json, sys
d = json.load(open("out", encoding="utf-8"))
assert list(d)[0] == "ckpt" and d["ckpt"] == 1
assert ("error" in d) == (int(sys.argv[1]) == 2), sys.argv
assert "error" not in d or (d["error"]["code"] and d["error"]["message"])
' $status 2>err; then
                echo "# $command --json ${file##*/}: status $status"
                wrong=1
            fi
        done
    done
    report $wrong "one JSON document for every file and command"
fi

# ---- run directories
mkdir runs
cp -r "$srcdir/tests/data/run/one" "$srcdir/tests/data/run/damaged" "$srcdir/tests/data/run/ranks" runs
chmod -R u+w runs
cp -r runs/ranks runs/three
rm -r runs/three/rank-00001
expect 2 "a rank that is on another disk: not known" "$inspect" doctor runs/three
grep -q 'rank 1 missing' out
report $? "and which it is"
expect 0 "what is here of it is whole" "$inspect" verify runs/three
rm -r runs/three/rank-00000/step-00000200/model.safetensors
expect 1 "or is not" "$inspect" verify runs/three
printf X | dd of=runs/ranks/rank-00001/step-00000100/model.safetensors bs=1 seek=4100 conv=notrunc 2>err
expect 1 "one byte on one rank" "$inspect" verify runs/ranks
grep -q '^runs/ranks/rank-00001/step-00000100:$' out && grep -q '^error *crc-mismatch' out
report $? "and on which"
expect 1 "and doctor reads all ranks" "$inspect" doctor runs/ranks
grep -q 'none of 2 checkpoints is sound' out && grep -q 'runs/ranks/rank-00001/step-00000100: model.safetensors' out
report $? "and says which"
rm runs/damaged/step-00000[123]00/checkpoint.json
expect 1 "nothing is left to resume from" "$inspect" doctor runs/damaged
grep -q 'none of 5 checkpoints is sound' out && [ "$(grep -c 'skipped' out)" -eq 5 ]
report $? "all five were looked at"
mkdir runs/new
expect 2 "an empty directory is no run" "$inspect" show runs/new
echo 'pid 1 on host a' >runs/new/.lock
expect 0 "a run that has only begun" "$inspect" show runs/new
grep -q 'nothing was saved yet' out
report $? "says so"
expect 1 "it has nothing to resume" "$inspect" doctor runs/new
expect 0 "and nothing that is damaged" "$inspect" verify runs/new
cp -r runs/one "runs/$(printf 'a\033[31m\n')"
"$inspect" show "runs/$(printf 'a\033[31m\n')" >out 2>&1
[ $? -eq 0 ] && ! grep -q "$(printf '\033')" out && ! grep -q 'resume with' out
report $? "a path with control characters is not printed as it is, nor as C"
if python3 - 2>err <<'END'
import fcntl, json, os, struct, subprocess, sys, zlib
inspect = os.environ.get("INSPECT")
# checkpoint.json of a later version: the hook does not go past it
text = b'{"ckpt.crc32":"00000000",\n "manifest":2,\n "step":200,\n "world":1,\n "rank":0,\n "files":[]}\n'
text = text.replace(b"00000000", b"%08x" % zlib.crc32(text), 1)
os.mkdir("runs/one/step-00000200")
with open("runs/one/step-00000200/checkpoint.json", "wb") as f:
    f.write(text)
with open("runs/one/.lock", "w+") as f:
    f.write("pid 17 on host a\n")
    f.flush()
    fcntl.fcntl(f, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))      # F_OFD_SETLK
    d = json.loads(subprocess.run([inspect, "show", "--json", "runs/one"], stdout=subprocess.PIPE).stdout)
    assert d["writer"] == "pid 17 on host a", d["writer"]
    assert [c["complete"] for c in d["checkpoints"]] == [False, True]
d = json.loads(subprocess.run([inspect, "show", "--json", "runs/one"], stdout=subprocess.PIPE).stdout)
assert d["writer"] is None
done = subprocess.run([inspect, "doctor", "--json", "runs/one"], stdout=subprocess.PIPE)
d = json.loads(done.stdout)
assert done.returncode == 1 and d["resume"] is None and d["will_resume"] is False
assert [c["outcome"] for c in d["candidates"]] == ["fails-at-load", None], d["candidates"]
END
then
    report 0 "who holds the lock; a checkpoint of a later version is not passed over"
elif python3 -c '' 2>/dev/null; then
    report 1 "who holds the lock; a checkpoint of a later version is not passed over"
fi

# ---- what plain safetensors cannot name is left out, and not looked for when it is read back
if python3 - 2>/dev/null <<'END'
import io, pickle, struct, zipfile
# {"c": tensor, "a.b": tensor, "a": {"b": tensor, "n": 1}} in torch's zip, by hand: both are called a.b
def tensor(key):
    return (b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00" + key +
            b"X\x03\x00\x00\x00cpuK\x01tQK\x00K\x01\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR")
data = (b"\x80\x02}(X\x01\x00\x00\x00c" + tensor(b"2") + b"X\x03\x00\x00\x00a.b" + tensor(b"0") + b"X\x01\x00\x00\x00a}(X\x01\x00\x00\x00b" + tensor(b"1") +
        b"X\x01\x00\x00\x00nK\x01uu.")
with zipfile.ZipFile("twice.pt", "w") as z:
    z.writestr("twice/data.pkl", data)
    z.writestr("twice/byteorder", "little")
    z.writestr("twice/data/0", struct.pack("<f", 1))
    z.writestr("twice/data/1", struct.pack("<f", 2))
    z.writestr("twice/data/2", struct.pack("<f", 3))
    z.writestr("twice/version", "3\n")
END
then
    expect 0 "a name that occurs twice, kept" "$migrate" --verify twice.pt twice.safetensors
    [ "$(crcs twice.pt)" = "$(crcs twice.safetensors)" ] && [ "$(crcs twice.pt | wc -l)" -eq 3 ]
    report $? "all tensors"
    expect 0 "and lost" "$migrate" --verify --lossy --to safetensors twice.pt once.safetensors
    [ "$(crcs once.safetensors | wc -l)" -eq 2 ]
    report $? "one of them"
    expect 0 "extract takes the first" "$inspect" extract --force twice.pt a.b --raw -o raw
    [ "$(od -An -tf4 raw | tr -d ' ')" = 1 ] && grep -q 'have this name' err
    report $? "and says so"
fi

# ---- a signal in the midst of writing
python3 - 2>/dev/null <<'END'
import json, os, struct
size = 256 << 20
head = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
with open("big.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head)
    f.truncate(8 + len(head) + size)
END
if [ -s big.safetensors ]; then
    mkdir target
    "$migrate" big.safetensors target/x.safetensors >out 2>err &
    pid=$!
    tries=0
    while [ -z "$(ls -A target)" ] && [ $tries -lt 1000 ]; do
        tries=$((tries + 1))
        sleep 0.005
    done
    kill -TERM $pid
    wait $pid 2>/dev/null
    status=$?
    if [ -e target/x.safetensors ]; then
        [ $status -eq 0 ] || [ $status -eq 143 ]
        report $? "the signal came too late: the target is whole # SKIP"
    else
        [ $status -eq 143 ] && [ -z "$(ls -A target)" ]
        report $? "it dies by the signal, and no temporary is left"
    fi
    rm -rf target
    mkdir target
    "$inspect" extract big.safetensors a -o target/a.npy >out 2>err &
    pid=$!
    tries=0
    while [ -z "$(ls -A target)" ] && [ $tries -lt 1000 ]; do
        tries=$((tries + 1))
        sleep 0.005
    done
    kill -TERM $pid 2>/dev/null
    wait $pid 2>/dev/null
    status=$?
    if [ -e target/a.npy ]; then
        [ "$(wc -c <target/a.npy)" -eq $((268435456 + 128)) ]
        report $? "extract: the signal came too late: the file is whole # SKIP"
    else
        [ $status -gt 128 ] && [ -z "$(ls -A target)" ]
        report $? "extract dies by the signal, and no temporary is left"
    fi
fi

# ---- names of two columns a character
mkdir wide && cp "$data/plain.pt" wide/模型.pt && cp "$data/plain.pt" wide/model.pt
expect 0 "show of a folder with such a name" "$inspect" show wide
gap=$(sed -n 's/^ *model\.pt\( *\)[^ ].*/\1/p' out)
[ -n "$gap" ] && grep -q "模型\.pt $gap[^ ]" out
report $? "its columns stand below each other"

# ---- a finding for each class of dozens
cat >classes.py <<'END'
import sys
names = [f"class{i}" for i in range(12)]
body = b"\x80\x02}(" + b"".join(b"U%c%sc%s\n%s\n" % (len(n), n.encode(), b"somewhere", n.encode()) for n in names) + b"u."
open("classes.pkl", "wb").write(body)
END
if python3 classes.py 2>/dev/null; then
    expect 1 "a pickle of twelve classes" "$inspect" doctor --for torch --load-weights-only yes classes.pkl
    [ "$(grep -c 'refuses somewhere\.' out)" = 5 ] && grep -q '^         and 7 more (-v)$' out && [ "$(grep -c '^error *weights-only-refused' out)" = 1 ]
    report $? "five are named, with one fix"
    expect 1 "the same with -v" "$inspect" doctor -v --for torch --load-weights-only yes classes.pkl
    [ "$(grep -c 'refuses somewhere\.' out)" = 12 ] && ! grep -q 'more (-v)' out
    report $? "all are"
fi

echo "1..$count"
[ "$failures" -eq 0 ]
