#!/bin/sh
# handover_test.sh - a run that PyTorch began, continued in C: the losses are those that PyTorch recorded.
#
# The files are those of samples/torch/make_checkpoint.py: one tagged cuda:0 throughout, one with `step` on the cpu. The
# first loss must agree within 1e-6, and the twentieth within 1e-4, through a skipped step and a change of the loss
# scale. That this means something is shown too: without the moments or with a wrong step count it does not hold.
. "${srcdir:-.}/tests/samples/common.sh"

first=1e-6
last=1e-4

# follow FILE ARGUMENT...: resumes it for 20 steps and compares.
follow()
{
    file=$1
    shift
    cuda "$train" --steps 60 --overflow-at 47 --resume "$handover/$file" "$@" "$text" \
        >"$work/losses.txt" 2>>"$work/err" || return 2
    "$compare_losses" "$handover/losses.txt" "$work/losses.txt" $first $last
}

cat >"$work/var.yaml" <<'END'
map: 1
source:
  model: trainer.var_wo_ddp
  optimizer: trainer.var_opt.optimizer
  scaler: trainer.var_opt.scaler
  step: iter
optimizer: fused
default: cuda:1
END

for file in ar-ckpt-cuda0.pth ar-ckpt-mixed.pth; do
    expect "$file onto the cpu" follow $file --map-location cpu
    on_cuda "$file onto the simulated device that it names" follow $file --map-location cuda:0
    on_cuda "$file onto another simulated device" follow $file --map-location cuda:1
    on_cuda "$file by its tags" follow $file --map-location cuda:0=cuda:1,cpu=cpu
    on_cuda "$file by a map file that says where things are" follow $file --map-location "$work/var.yaml"
    expect "$file with a plain optimizer" follow $file --optimizer plain
    on_cuda "$file with a plain optimizer on a simulated device" \
        follow $file --optimizer plain --map-location cuda:1
    refuse "$file without its moments does not agree" follow $file --forget moments
    refuse "$file with a wrong step count does not agree" follow $file --forget steps
done

# PyTorch to C to C: native in between, on other devices.
in_two()
{
    cuda "$train" --steps 50 --overflow-at 47 --resume "$handover/ar-ckpt-mixed.pth" --map-location "$1" \
        --save "$work/native" "$text" >"$work/losses.txt" 2>>"$work/err" &&
        cuda "$train" --steps 60 --resume "$work/native" --map-location "$2" "$text" \
            >>"$work/losses.txt" 2>>"$work/err" &&
        "$compare_losses" "$handover/losses.txt" "$work/losses.txt" $first $last
}
# Converted first: what the command writes restores as strictly as the source does.
converted()
{
    "$builddir/src/cli/ckpt-migrate" --quiet --force --verify "$handover/ar-ckpt-mixed.pth" "$work/converted.safetensors" 2>>"$work/err" &&
        cuda "$train" --steps 60 --overflow-at 47 --resume "$work/converted.safetensors" --map-location "$1" "$text" \
            >"$work/losses.txt" 2>>"$work/err" &&
        "$compare_losses" "$handover/losses.txt" "$work/losses.txt" $first $last
}
expect "through ckpt-migrate onto the cpu" converted cpu
on_cuda "through ckpt-migrate onto a simulated device" converted cuda:1
expect "ten steps, a checkpoint of our own, ten more: as PyTorch's twenty" in_two cpu cpu
on_cuda "and on simulated devices" in_two cuda:1 cuda:0

# The mix that a fused optimizer refuses: by the policy, and, where a program insists, by the optimizer itself.
cat >"$work/mix.yaml" <<'END'
map: 1
rules:
- {role: step, to: cpu}
default: cuda:0
END
refuse "a map that leaves step on the cpu is refused" cuda "$train" \
    --resume "$handover/ar-ckpt-mixed.pth" --map-location "$work/mix.yaml" "$text"
insist()
{
    cuda env FAKECUDA_LEAKS=0 "$train" --unguarded --resume "$handover/ar-ckpt-mixed.pth" \
        --map-location "$work/mix.yaml" "$text" >"$work/out" 2>"$work/said"
    [ $? -eq 1 ] && [ ! -s "$work/out" ]
}
on_cuda "unguarded, the fused optimizer refuses it before it trains anything" insist
on_cuda "in the sentence that users know" says \
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!" "$work/said"
on_cuda "and names the tensor" says "tok.weight: step" "$work/said"
finish
