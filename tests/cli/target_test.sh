#!/bin/bash
# target_test.sh - ckpt-migrate: what --no-optimizer leaves out, a DST that is a directory to write into, and "-".
. "$(dirname "$0")/cli_common.sh"

to() { expected=$1; shift; "$migrate" "$@" >out 2>err </dev/null; [ $? -eq "$expected" ]; }
names() { "$inspect" list "$@" 2>err | sed '1d; s/.* //'; }
crcs() { "$inspect" list --checksum "$@" 2>err | sed 1d | sort; }
cp "$data/cli/plain.pt" "$data/cli/weights.safetensors" "$data/cli/three-devices.pt" .
cp "$data/peers/lightning.ckpt" "$data/torch-handover/ar-ckpt-mixed.pth" .

# ---- --no-optimizer
# rest FILE: CRCs and names of what is no optimizer's.
rest() { "$inspect" list --json --checksum "$1" 2>err | grep -o '{"name": "[^"]*".*"role": "[^"]*".*' | grep -v '"role": "\(exp_avg\|exp_avg_sq\|max_exp_avg_sq\|momentum\|optim\|master\|step\)"' |
    sed 's/.*"name": "\([^"]*\)".*"crc32": "\([0-9a-f]*\)".*/\1 \2/'; }
for file in plain.pt lightning.ckpt ar-ckpt-mixed.pth; do
    to 0 --no-optimizer --verify "$file" "no-$file" && rest "$file" >before && rest "no-$file" >after && cmp -s before after && [ -s after ] &&
        [ "$(names "no-$file" | wc -l)" -lt "$(names "$file" | wc -l)" ] && [ "$(names "no-$file" | wc -l)" -eq "$(wc -l <after)" ]
    check "$file: all but the optimizer's tensors, and their bytes"
    "$inspect" tree --json "$file" 2>err | grep -v '"optimizer\|optimizer_states\|var_opt' >before
    "$inspect" tree --json "no-$file" 2>err | grep -v '"optimizer\|optimizer_states\|var_opt' >after
    [ "$(grep -c '"kind"' before)" -eq "$(grep -c '"kind"' after)" ] && ! "$inspect" tree "no-$file" 2>err | grep -q param_groups
    check "$file: no group, and every other value"
done
to 0 --no-optimizer --force plain.pt no-plain.pt && grep -q '^left-out optimizer: 1 optimizer and its groups stay behind, with tensors 6 exp_avg, 6 exp_avg_sq, 6 step: 256 bytes$' out &&
    grep -q '^dropped 18 tensors' out
check "it says how many of each role"
to 0 --no-optimizer --dry-run plain.pt none.pt && grep -q '^left-out .* 6 exp_avg, 6 exp_avg_sq, 6 step' out && [ ! -e none.pt ] && to 0 --json --no-optimizer --dry-run plain.pt none.pt &&
    grep -q '"code": "left-out"' out
check "a dry run, too"
"$inspect" tree no-lightning.ckpt 2>err | grep -q '^optimizer_states: \(list of 0\|\[\]\|empty list\)' && to 0 --force --no-optimizer lightning.ckpt no-lightning.ckpt && grep -q 'Lightning then begins with a new one' out
check "Lightning's list is there, and empty"
to 0 --no-optimizer plain.pt own.safetensors && ! "$inspect" tree own.safetensors 2>err | grep -q '^optimizer' && "$inspect" tree own.safetensors 2>err | grep -q '^step: 3' &&
    to 0 plain.pt whole.safetensors && to 0 --no-optimizer whole.safetensors again.safetensors && ! "$inspect" tree again.safetensors 2>err | grep -q '^optimizer' &&
    [ "$(names own.safetensors | sort)" = "$(names again.safetensors | sort)" ]
check "to a file of ours, and of one"
to 0 --no-optimizer whole.safetensors back.pt && ! "$inspect" tree back.pt 2>err | grep -q param_groups && [ "$(names back.pt | grep -c exp_avg)" -eq 0 ]
check "and from there to torch"
to 2 --no-optimizer weights.safetensors w.pt && grep -q -e '--no-optimizer finds no optimizer' err && [ ! -e w.pt ] && to 0 --allow-unused --no-optimizer weights.safetensors w.pt
check "where there is none: as a rule that matches nothing"
to 2 --no-optimizer --optimizer fused plain.pt w2.pt && grep -q 'two answers to one question' err
check "--optimizer says what it is to be"

# ---- a directory to write into
mkdir dir && to 0 --to safetensors --lossy plain.pt dir/ && [ -s dir/plain.safetensors ] && tail -n 1 out | grep -qx 'dir/plain.safetensors: written'
check "--to safetensors into a directory"
to 0 ar-ckpt-mixed.pth dir && [ "$(crcs dir/ar-ckpt-mixed.pth)" = "$(crcs ar-ckpt-mixed.pth)" ] && [ "$("$inspect" --json dir/ar-ckpt-mixed.pth 2>err | grep -c '"format": "torch"')" -eq 1 ]
check "without --to: the same format, under the same name"
to 0 --to torch weights.safetensors dir/ && [ -s dir/weights.pt ] && to 0 weights.safetensors dir && [ -s dir/weights.safetensors ] &&
    [ "$("$inspect" --json dir/weights.safetensors 2>err | grep -c "\"format\": \"$("$inspect" --json weights.safetensors | sed -n 's/.*"format": "\([^"]*\)".*/\1/p')\"")" -eq 1 ]
check "the suffix is that of the format"
cp plain.pt step.100 && to 0 --to ckpt step.100 dir && [ -s dir/step.100.safetensors ]
check "what is no suffix stays"
crcs dir/weights.pt >before && to 2 --to torch three-devices.pt dir/none/ && grep -q 'dir/none/: there is no such directory' err && [ ! -e dir/none ]
check "a directory that is not there"
cp three-devices.pt dir/plain.pt && to 2 plain.pt dir && grep -q -e --force err && cmp -s three-devices.pt dir/plain.pt && to 0 --force plain.pt dir && ! cmp -s three-devices.pt dir/plain.pt
check "another file is replaced with --force alone"
to 2 --force plain.pt . && cmp -s plain.pt "$data/cli/plain.pt" && to 2 --force plain.pt ./ && cmp -s plain.pt "$data/cli/plain.pt"
check "SRC never"
to 0 --dry-run --to safetensors --lossy three-devices.pt dir && [ ! -e dir/three-devices.safetensors ] && to 0 --json --dry-run --to ckpt three-devices.pt dir && grep -q '"destination": "dir/three-devices.safetensors"' out
check "a dry run says where it would go"
to 2 --to hf --weights-only plain.pt dir && to 0 --to hf --weights-only plain.pt other/ && [ -d other ] && [ -s other/model.safetensors ]
check "a target that is a directory is DST itself"

# ---- standard output, standard input
mkdir scratch
"$migrate" --to torch plain.pt - 2>err >piped.pt && grep -q 'standard output: written' err && "$migrate" -q plain.pt direct.pt && [ "$(crcs piped.pt)" = "$(crcs direct.pt)" ]
check "to standard output"
TMPDIR=$PWD/scratch "$migrate" -q --to ckpt plain.pt - 2>err | cat >piped.safetensors && [ "$(crcs piped.safetensors)" = "$(crcs whole.safetensors)" ] && [ ! -s err ] && [ -z "$(ls -A scratch)" ]
check "through a pipe; no temporary is left"
TMPDIR=$PWD/scratch "$migrate" --to safetensors plain.pt - 2>err >nothing
[ $? -eq 2 ] && [ ! -s nothing ] && grep -q lossy err && [ -z "$(ls -A scratch)" ]
check "one that fails: a pipe gets nothing"
cp "$data/cli/bad-crc.pt" . && TMPDIR=$PWD/scratch "$migrate" --to ckpt bad-crc.pt - 2>err >nothing
[ $? -eq 2 ] && [ ! -s nothing ] && [ -z "$(ls -A scratch)" ]
check "one that is damaged, too"
if [ -w /dev/full ]; then
    TMPDIR=$PWD/scratch "$migrate" --to ckpt plain.pt - 2>err >/dev/full
    [ $? -eq 2 ] && [ -z "$(ls -A scratch)" ] &&
        grep -q '^ckpt-migrate: standard output: cannot write: No space left on device (free space or send it elsewhere; what has arrived there is not whole)$' err
    check "a full disk behind it: the message says what to do"
fi
TMPDIR=$PWD/none "$migrate" --to ckpt plain.pt - >nothing 2>err
[ $? -eq 2 ] && [ ! -s nothing ] && grep -q "$PWD/none/ckpt-migrate.*: cannot create the folder of the temporary: No such file or directory (TMPDIR names another place)\$" err
check "no folder for the temporary"
to 2 plain.pt - && grep -q 'give --to' err && to 2 --json --to torch plain.pt - && grep -q 'cannot both go to standard output' out && to 2 --to hf --weights-only plain.pt - && grep -q 'writes a directory' err
check "no format, --json, a directory"
if command -v script >/dev/null 2>&1; then
    script -qec "'$migrate' --to torch plain.pt -; echo status \$?" /dev/null >out 2>err </dev/null
    grep -q 'binary data is not written to a terminal' out && grep -q 'status 2' out
    check "no binary data to a terminal"
fi
to 2 - x.pt && grep -q -e '-: SRC needs a seekable file' err && mkfifo pipe && to 2 pipe x.pt && grep -q 'pipe: it is a pipe, and SRC needs a seekable file' err && [ ! -e x.pt ]
check "SRC is no pipe"
finish 28
