#!/bin/bash
# extract_test.sh - extract of several tensors: what a NAME may be, the .npz, --upcast, --head, and what is refused. The zip and
# the arrays are read by Python's own zipfile and by what the format of .npy says; tests/interop/extract_peer.py has numpy.
. "$(dirname "$0")/cli_common.sh"

python3 -c '' 2>/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
cp "$data/cli/plain.pt" "$data/cli/tensors.pt" "$data/cli/weights.safetensors" "$data/cli/three-devices.pt" .
cat >read.py <<'END'
"""What is in an .npz: a line an entry, of its name, dtype, shape and values. Every CRC is compared (zipfile does), no entry is
compressed, and its bytes are all that its header says."""
import ast, struct, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z:
    assert z.testzip() is None
    for i in z.infolist():
        b = z.read(i)
        assert i.compress_type == 0 and b[:8] == b"\x93NUMPY\x01\x00" and i.filename.endswith(".npy"), i
        n = 10 + struct.unpack("<H", b[8:10])[0]
        head = ast.literal_eval(b[10:n].decode("latin-1"))
        code = {"f": {2: "e", 4: "f", 8: "d"}, "i": {1: "b", 2: "h", 4: "i", 8: "q"}, "u": {1: "B", 2: "H", 4: "I", 8: "Q"}, "b": {1: "?"}}
        size = int(head["descr"][2:])
        count = 1
        for d in head["shape"]:
            count *= d
        assert n % 64 == 0 and not head["fortran_order"] and len(b) == n + count * size
        values = [v for v, in struct.iter_unpack("<" + code[head["descr"][1]][size], b[n:])]
        print(i.filename, head["descr"], head["shape"], *values[:6])
END
entries() { python3 -B read.py "$1" >got 2>err; }
save() # NAME=VALUES...: a safetensors file of float32 vectors, under any names
{
    python3 - "$@" <<'END'
import json, os, struct, sys
file, head, data = sys.argv[1], {}, b""
for word in sys.argv[2:]:
    name, values = word.rsplit(":=", 1)
    b = b"".join(struct.pack("<f", float(v)) for v in values.split(","))
    head[name] = {"dtype": "F32", "shape": [len(b) // 4], "data_offsets": [len(data), len(data) + len(b)]}
    data += b
text = json.dumps(head).encode()
open(file, "wb").write(struct.pack("<Q", len(text)) + text + data)
END
}

# ---- names
ask 0 extract plain.pt 'model.*' -o a.npz --npz && entries a.npz && ask 0 list --tensor 'model.*' plain.pt &&
    sed '1d; s/.* //; s/$/.npy/' out >names && sed 's/ .*//' got | cmp -s - names && [ "$(wc -l <got)" -gt 5 ]
check "a glob: every tensor that list --tensor has, in its order"
ask 0 extract plain.pt model.1.bias 'model.0.*' model.0.bias -o b.npz --npz && entries b.npz &&
    [ "$(sed 's/ .*//' got | tr '\n' ' ')" = "model.1.bias.npy model.0.weight.npy model.0.bias.npy " ]
check "several: in the order of the NAMEs, each once"
save odd.safetensors 'a*:=1' 'ab:=2' '=x:=3' 'x:=4' 'b\c:=5'
ask 0 extract odd.safetensors 'a*' --head 1 && [ "$(grep -c '^a' out)" -eq 1 ] && grep -qx '  1.0' out
check "a NAME that is one is that one, whatever characters it has"
ask 0 extract odd.safetensors 'a?' --head 1 && [ "$(sed -n 1p out)" = "a*  float32 [1]" ] && grep -q '^ab ' out
check "else it is a glob"
ask 0 extract odd.safetensors =x --head 1 && grep -qx '  4.0' out && ask 2 extract odd.safetensors '=a?' --head 1
check "=NAME is literal"
ask 0 extract plain.pt 0.weight --head 2 && sed -n 1p out | grep -q '^model.0.weight  float32 \[' &&
    grep -q "'0.weight' is taken to be model.0.weight, which a state calls so" err
check "a name as a state calls it, and it is said"
state=$("$inspect" diff "$data/cli/fused-step-cpu.pt" "$data/cli/fused-step-cuda.pt" --json | sed -n 's/.*"name": "\(optimizer[^"]*\)".*/\1/p' | sed -n 1p)
ask 0 extract plain.pt optimizer.0.weight.exp_avg --head 1 && sed -n 1p out | grep -q '^optimizer.state.0.exp_avg ' && [ -n "$state" ]
check "also of the optimizer's state: by the parameter's name"
ask 2 extract plain.pt bias --head 1 && grep -q "no tensor is called 'bias'" err && ask 2 extract plain.pt 'no*' -o n.npz --npz && [ ! -e n.npz ]
check "what is no name, and a glob that matches nothing"
ask 2 extract plain.pt model.0.weight nothing -o n.npz --npz && [ ! -e n.npz ] && grep -q "'nothing'" err
check "one of several that is none: nothing is written"

# ---- .npz
save weird.safetensors /etc/x:=1 ../up:=2 a/../b:=3 a/b:=4 './c:=5' 'back\slash:=6' 'größe:=7' ':=8' 'x//y:=9' "tab$(printf '\t')here:=10" ..:=11 a/.:=12 ...:=13
ask 0 extract -q weird.safetensors '*' -o w.npz --npz && entries w.npz && cut -d ' ' -f 1,4 got >names &&
    printf '%s\n' '%2Fetc/x.npy 1.0' '%2E./up.npy 2.0' 'a/%2E./b.npy 3.0' 'a/b.npy 4.0' '%2E/c.npy 5.0' 'back%5Cslash.npy 6.0' 'größe.npy 7.0' \
        'tensor.npy 8.0' 'x/%2Fy.npy 9.0' 'tab%09here.npy 10.0' '%2E..npy 11.0' 'a/%2E.npy 12.0' '....npy 13.0' | diff - names >err
check "no entry leads out of a folder"
save twice.safetensors '%2Fetc/x:=1' /etc/x:=2 'a/../b:=3' 'a/%2E./b:=4'
ask 0 extract --json twice.safetensors '*' -o t.npz --npz && entries t.npz &&
    [ "$(sed 's/ .*//' got | sort | uniq -d)" = "" ] && [ "$(wc -l <got)" -eq 4 ] && grep -q '"entry": "%2Fetc/x~2"' out
check "no two have one name"
ask 0 extract twice.safetensors '*' -o t.npz --npz --force && grep -q "'/etc/x' is called '%2Fetc/x~2' in the .npz" err
check "and what has another name is said"
"$inspect" extract plain.pt 'model.*' -o - --npz 2>err | cmp -s - a.npz && cp a.npz again.npz && ask 0 extract plain.pt 'model.*' -o again.npz --npz --force && cmp -s a.npz again.npz
check "to a pipe, and again: the very same bytes"
ask 0 extract plain.pt model.0.bias -o one.npz --npz && entries one.npz && [ "$(wc -l <got)" -eq 1 ]
check "of one tensor, too"
python3 - <<'END'
import json, struct
head = {f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(66000)}
text = json.dumps(head).encode()
open("many.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + bytes(i % 251 for i in range(66000)))
END
ask 0 extract many.safetensors '*' -o many.npz --npz && python3 -B - 2>err <<'END'
import zipfile
z = zipfile.ZipFile("many.npz")
assert len(z.namelist()) == 66000
assert all(z.read(f"t{i}.npy")[-1] == i % 251 for i in (0, 1, 65534, 65535, 65999))
END
check "more entries than a zip file without zip64 can have"
python3 - <<'END'
b = bytearray(open("a.npz", "rb").read())
b[200] ^= 1
open("flipped.npz", "wb").write(b)
END
! entries flipped.npz
check "(a changed byte is found)"

# ---- --upcast
ask 2 extract tensors.pt bf16 -o u.npy && grep -q 'numpy has no bfloat16; --upcast writes float32, which holds it exactly, --raw the bytes' err && [ ! -e u.npy ]
check "bfloat16 is no .npy"
"$migrate" -q --cast 'bf16=float32' --tensor bf16 tensors.pt wide.pt && ask 0 extract tensors.pt bf16 --upcast -o u.npy &&
    "$inspect" extract wide.pt bf16 -o - 2>err | cmp -s - u.npy
check "--upcast: what --cast makes of it"
ask 0 extract --json tensors.pt bf16 --upcast -o u.npy --force && grep -q '"dtype": "bfloat16",' out && grep -q '"output_dtype": "float32",' out
check "both dtypes are in the document"
ask 0 extract plain.pt model.0.weight --upcast -o p.npy && "$inspect" extract plain.pt model.0.weight -o - 2>err | cmp -s - p.npy
check "what numpy has stays"

# ---- --head
ask 0 extract weights.safetensors a.weight --head 4 && printf 'a.weight  float32 [2, 3]\n  0.0 1.0 2.0 3.0 ...\n' | cmp -s - out
check "--head prints the first elements"
ask 0 extract weights.safetensors a.weight --head 6 && [ "$(sed -n 2p out)" = "  0.0 1.0 2.0 3.0 4.0 5.0" ] && ask 0 extract weights.safetensors a.weight --head 100 &&
    [ "$(sed -n 2p out)" = "  0.0 1.0 2.0 3.0 4.0 5.0" ]
check "and no dots where that is all"
save some.safetensors v:=0.1,nan,inf,-inf,-0.0,1e-45,16777216,0.30000001192092896,3.4028234663852886e38
ask 0 extract some.safetensors v --head 20 && [ "$(sed -n 2,9p out | tr -s ' \n' ' ')" = " 0.1 nan inf -inf -0.0 1e-45 16777216.0 0.3 3.4028235e+38 " ]
check "the fewest digits that give the float32 again"
ask 0 extract --json some.safetensors v --head 5 && python3 -B - 2>err <<'END'
import json
d = json.load(open("out"))
assert d["ckpt"] == 1 and d["findings"] == []
t, = d["tensors"]
assert (t["name"], t["dtype"], t["shape"], t["count"]) == ("v", "float32", [9], 9)
assert t["values"] == [0.1, "nan", "inf", "-inf", 0] and str(t["values"][4]) == "-0.0", t
END
check "--head --json"
ask 0 extract --json tensors.pt '*' --head 3 && cp err skipped && python3 -B - 2>err <<'END'
import json
tensors = json.load(open("out"))["tensors"]
assert len(tensors) > 6 and len({t["dtype"] for t in tensors}) > 3 and not any(t["name"] == "coo" for t in tensors)
for t in tensors:
    assert len(t["values"]) == min(3, t["count"]), t
END
[ $? -eq 0 ] && grep -q "'\*': [0-9]* tensors* skipped: .* no elements of .* own (not dense, or on meta)" skipped && ask 2 extract tensors.pt coo --head 1
check "of every dtype; of what is not dense its parts, and that is said"

# ---- refused
refuses() { said=$1; shift; ask 2 extract "$@" && grep -qF -- "$said" err && [ ! -e new ]; }
refuses "tensors are asked for: --npz writes them into one file" plain.pt 'model.*' -o new && refuses "tensors are asked for: --raw writes one" plain.pt 'model.*' --raw -o new
check "several tensors without --npz"
refuses "it goes without --npz and --upcast" plain.pt 'model.*' --raw --npz -o new && refuses "--raw writes" tensors.pt bf16 --raw --upcast -o new &&
    refuses "--head prints elements and writes no file" plain.pt model.0.weight --head 1 -o new && refuses "missing -o FILE" plain.pt model.0.weight &&
    refuses "write 1 or more" plain.pt model.0.weight --head 0
check "options that are no pair"
cp plain.pt own.pt && ask 2 extract own.pt 'model.*' --npz -o own.pt && grep -q 'the checkpoint itself' err && ask 2 extract own.pt 'model.*' --npz -o own.pt --force && cmp -s own.pt plain.pt
check "the checkpoint itself, with --force too"
cp a.npz kept.npz && ask 2 extract plain.pt model.0.bias --npz -o kept.npz && grep -q -e --force err && cmp -s a.npz kept.npz &&
    ask 0 extract plain.pt model.0.bias --npz -o kept.npz --force && ! cmp -s a.npz kept.npz
check "what is there stays without --force"
ask 2 extract --json plain.pt 'model.*' --npz -o - && grep -q 'cannot both go to standard output' out
check "--json and the .npz to standard output"
cp "$data/cli/bad-crc.pt" . && ask 2 extract bad-crc.pt '*' --npz -o new && grep -q CRC err && [ -z "$(ls -d new* 2>/dev/null)" ]
check "a damaged tensor: no file, and no temporary is left"
if [ -w /dev/full ]; then
    ask 2 extract plain.pt 'model.*' --npz -o /dev/full &&
        grep -q '/dev/full: cannot write: No space left on device (free space or choose another place; what is there now is not whole)$' err
    check "a full disk: the message says what to do"
    "$inspect" extract plain.pt 'model.*' --npz -o - >/dev/full 2>err
    [ $? -eq 2 ] && grep -q '^ckpt-inspect: standard output: cannot write: No space left on device (free space or send it elsewhere; ' err
    check "a full disk behind standard output, too"
fi
save big.safetensors "v:=$(python3 -c 'print(",".join(["1"] * 4000))')"
(ulimit -f 4 && "$inspect" extract big.safetensors v --npz -o limited.npz >out 2>err)
[ $? -eq 2 ] && grep -q '^ckpt-inspect: limited.npz: cannot write: File too large (the limit on file sizes, ulimit -f, is too small)$' err && [ -z "$(ls -d limited* 2>/dev/null)" ]
check "a limit on the size of files: no file, no signal, and its name is said"
(ulimit -f 4 && "$inspect" extract big.safetensors v -o - >piped.npy 2>err)
[ $? -eq 2 ] && grep -q '^ckpt-inspect: standard output: cannot write: File too large (the limit on file sizes, ' err
check "of standard output, too"
mkdir closed && chmod a-w closed
if ! [ -w closed ]; then
    ask 2 extract plain.pt 'model.*' --npz -o closed/a.npz &&
        grep -q 'closed/a.npz: cannot create: Permission denied (the directory must be writable: ' err
    check "a directory that is not writable"
fi
full=$(mktemp -d) && mount -t tmpfs -o size=64k tmpfs "$full" 2>/dev/null && mounted=yes
if [ -n "$mounted" ]; then
    save bigger.safetensors "v:=$(python3 -c 'print(",".join(["1"] * 40000))')"
    echo before >"$full/a.npz"
    ask 2 extract bigger.safetensors v --npz --force -o "$full/a.npz"
    [ $? -eq 0 ] && grep -q "^ckpt-inspect: $full/a.npz: cannot write: No space left on device (free space or choose another disk; what was there before is untouched)\$" err &&
        [ "$(ls "$full")" = a.npz ] && [ "$(cat "$full/a.npz")" = before ]
    check "a file system that is full: what was there is there"
    TMPDIR=$full "$migrate" --to safetensors bigger.safetensors - >piped 2>err
    [ $? -eq 2 ] && [ ! -s piped ] && grep -q "^ckpt-migrate: $full/ckpt-migrate\..*: the temporary of standard output is here: let TMPDIR name a folder with more space\$" err
    check "the temporary of ckpt-migrate's standard output: TMPDIR is the way out"
    umount "$full"
else
    echo "# no mount here: not tried on a full tmpfs"
fi
rmdir "$full"
if command -v script >/dev/null 2>&1; then
    script -qec "'$inspect' extract plain.pt 'model.*' --npz -o -; echo status \$?" /dev/null >out 2>err </dev/null
    grep -q 'binary data is not written to a terminal' out && grep -q 'status 2' out
    check "no binary data to a terminal"
fi

# ---- the histogram of stats -v
ask 0 stats plain.pt && cp out plainly && ask 0 stats -v plain.pt && cmp -s out plainly && grep -q -e '-v draws histograms on a terminal of a UTF-8 locale; --json has them' err
check "stats -v: a pipe has the columns it had, and a warning says so"
if command -v script >/dev/null 2>&1; then
    save ramp.safetensors "v:=$(python3 -c 'print(",".join(str(i) for k in range(16) for i in [k] * (k * 8)))'),0"
    on_terminal() { LC_ALL=$1 script -qec "'$inspect' stats $2 ramp.safetensors" /dev/null 2>/dev/null </dev/null | tr -d '\r' >out; }
    on_terminal C.UTF-8 -v && grep -q ' ▁▁▁▁▂▂▃▃▄▄▅▅▆▆▇█  v$' out && sed -n 1p out | grep -q ' histogram         *name$'
    check "on a terminal: a column for each sixteenth of the range"
    on_terminal C -v && ! LC_ALL=C grep -q "$(printf '\342\226')" out && grep -q 'UTF-8 locale' out && on_terminal C.UTF-8 '' && ! grep -q ▁ out
    check "none in another locale, and none without -v"
fi
finish 36
