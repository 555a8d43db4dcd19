#!/bin/sh
# peers_test.sh - checkpoints of the libraries that people train with (tests/data/peers): every tensor and value is there as
# that library has it, and a trainer in C goes on from Lightning's.
. "${srcdir:-.}/tests/samples/common.sh"
peers=$srcdir/tests/data/peers
inspect_any=$builddir/samples/inspect_any
lightning_resume=$builddir/samples/lightning_resume
LC_ALL=C
export LC_ALL

# The lines of tensors and of plain values; not those of containers and opaque objects, nor of the JSON files beside, nor
# the long states of generators.
plain_lines()
{
    grep -e '\] = ' -e '^[a-z0-9_]*  *[-a-z0-9:]*  *[0-9a-f]\{8\} (' | grep -v -e '\[[0-9]\{3,\}\]' -e "^\['[^']*\.json'\]"
}

# holds NAME: what inspect_any finds in it is what its own library did.
holds()
{
    "$inspect_any" "$peers/$1" >"$work/all" 2>>"$work/err" || return 1
    plain_lines <"$work/all" | sort >"$work/found"
    sort "$peers/$1.txt" >"$work/wanted"
    diff "$work/wanted" "$work/found" >>"$work/err"
}

found=0
for list in "$peers"/*.txt; do
    name=${list##*/}
    expect "${name%.txt}: all that its library finds in it" holds "${name%.txt}"
    found=$((found + 1))
done
expect "there are nine of them and more" [ $found -ge 9 ]

# One tensor by name.
"$inspect_any" "$peers/lightning.ckpt" optimizer_states.0.state.3.exp_avg >"$work/out" 2>"$work/err"
report $? "a tensor by its name"
expect "is read" says "optimizer_states.0.state.3.exp_avg, read:" "$work/out"
expect "and mapped, with the same numbers" sh -c \
    'test "$(grep "read:" "$0" | cut -d: -f2)" = "$(grep "mapped:" "$0" | cut -d: -f2)"' "$work/out"
"$inspect_any" "$peers/lightning.ckpt" optimizer_states.0.param_groups.1 >"$work/out" 2>"$work/err"
report $? "a value by its path"
expect "is printed with what is in it" sh -c 'sed -n "/^below/,\$p" "$0" | grep -qxF "['"'weight_decay'"'] = 0"' "$work/out"
refuse "a name that is not there" "$inspect_any" "$peers/lightning.ckpt" optimizer_states.0.state.4.exp_avg
refuse "a file that is no checkpoint" "$inspect_any" "$peers/README"

# Lightning's run goes on in C.
"$lightning_resume" "$peers/lightning.ckpt" 3 "$work/resumed.safetensors" >"$work/losses" 2>"$work/said"
report $? "a trainer in C resumes from Lightning's checkpoint"
expect "with the losses that Lightning had" "$compare_losses" "$peers/lightning.losses" "$work/losses" 1e-6 1e-5
expect "and with its hyper-parameters" says "resumed after step 4, lr 0.01, weight_decay 0.1 and 0" "$work/said"
expect "without a warning" sh -c '! grep warning "$0"' "$work/said"
refuse "another network is refused" "$lightning_resume" "$peers/lightning-callbacks.ckpt"
expect "what it saves is a checkpoint" "$inspect_any" "$work/resumed.safetensors" optimizer.net.0.weight.exp_avg
finish
