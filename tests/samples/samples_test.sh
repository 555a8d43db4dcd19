#!/bin/sh
# samples_test.sh - the other samples: a new head on an old body, data parallel, C++.
. "${srcdir:-.}/tests/samples/common.sh"

replace_head=$builddir/samples/replace_head
data_parallel=$builddir/samples/data_parallel
resume=$builddir/samples/resume

"$train" --steps 6 --save "$work/one" "$text" >"$work/straight.txt" 2>"$work/err"
report $? "a checkpoint of the cpu"
expect "--help fits a screen" sh -c 'test $("$0" --help | wc -l) -le 30' "$train"
expect "data_parallel --help too" sh -c 'test $("$0" --help | wc -l) -le 30' "$data_parallel"

# ---- replace_head: all on one device, the new head too
places="cpu cuda:0 cuda:1"
[ $have_cuda = yes ] || places=cpu
for device in $places; do
    cuda "$replace_head" "$work/one" $device "$work/head.safetensors" >"$work/out" 2>"$work/err"
    report $? "a new head on $device"
    expect "is where the body is, with its moments" says "116 tensors, all on $device" "$work/out"
    expect "begins anew, and the body goes on" says "the head begins at step 0, the body goes on after step 6" "$work/out"
done
cuda "$replace_head" "$handover/ar-ckpt-cuda0.pth" ${places##* } >"$work/out" 2>"$work/err"
report $? "a new head on PyTorch's body"
expect "is where the body is" says "116 tensors, all on ${places##* }" "$work/out"
expect "begins anew, though PyTorch's optimizer counts the old one" \
    says "the head begins at step 0, the body goes on after step 40" "$work/out"
refuse "the checkpoint with the new head does not fit the old model" \
    "$train" --resume "$work/head.safetensors" --allow-unexpected "$text"

# ---- data parallel: as many ranks as one likes on as many devices as there are
parallel()
{
    devices=$1
    shift
    FAKECUDA_DEVICES=$devices
    export FAKECUDA_DEVICES
    cuda "$data_parallel" "$@" "$text"
    status=$?
    unset FAKECUDA_DEVICES
    return $status
}

parallel 2 --world 4 --steps 8 --save "$work/four" >"$work/straight4.txt" 2>"$work/err"
report $? "four ranks on two devices"
parallel 2 --world 4 --steps 4 --save "$work/half4" >"$work/legs4.txt" 2>"$work/err" &&
    parallel 4 --world 4 --steps 8 --resume "$work/half4" --save "$work/again4" >>"$work/legs4.txt" 2>>"$work/err"
report $? "the same, stopped halfway and resumed on four devices"
expect "has the same losses" cmp "$work/straight4.txt" "$work/legs4.txt"
expect "and ends in the same state" "$same_state" "$work/four" "$work/again4"

parallel 3 --world 3 --steps 8 --resume "$work/one" >"$work/out" 2>"$work/said"
report $? "a checkpoint of the cpu onto three devices"
on_cuda "each rank on its own" grep -q "rank 2 of 3: cuda:2" "$work/said"
parallel 3 --world 3 --steps 4 --save "$work/many" >"$work/out" 2>"$work/err"
report $? "a checkpoint of three ranks"
cuda "$train" --steps 6 --resume "$work/many" --map-location ${places##* } "$text" >"$work/out" 2>"$work/err"
report $? "onto one device"

parallel 2 --world 2 --steps 4 --save "$work/ddp" --ddp-names >"$work/out" 2>"$work/err"
report $? "a checkpoint whose names begin with module."
parallel 2 --world 2 --steps 4 --save "$work/plain" >"$work/out" 2>"$work/err"
report $? "and one whose names do not"
parallel 2 --world 2 --steps 8 --resume "$work/ddp" --save "$work/from-ddp" >"$work/a.txt" 2>"$work/err" &&
    parallel 2 --world 2 --steps 8 --resume "$work/plain" --save "$work/from-plain" >"$work/b.txt" 2>>"$work/err"
report $? "both resume"
expect "with the same losses" cmp "$work/a.txt" "$work/b.txt"
expect "to the same state" "$same_state" "$work/from-ddp" "$work/from-plain"

# ---- a checkpoint of several GPUs onto one
parallel 4 --world 1 --steps 4 --save "$work/whole" --spread "$work/spread" >"$work/out" 2>"$work/err"
report $? "a checkpoint over several devices"
expect "holds what the one of one device holds" "$same_state" "$work/whole" "$work/spread"
cuda "$train" --steps 8 --resume "$work/whole" --device cpu --save "$work/end-whole" "$text" \
    >"$work/a.txt" 2>"$work/err"
report $? "one device's goes on"
for device in $places; do
    cuda "$train" --steps 8 --resume "$work/spread" --map-location $device --save "$work/end-spread" \
        "$text" >"$work/b.txt" 2>"$work/err"
    report $? "several devices' goes on, all of it on $device"
    expect "with the same losses" cmp "$work/a.txt" "$work/b.txt"
    expect "to the same state" "$same_state" "$work/end-whole" "$work/end-spread"
done

# ---- C++
if [ -x "$resume" ]; then
    expect "C++: restore, save, restore" "$resume" "$work/one" "$work/copy.safetensors"
    refuse "C++: an error is an exception" "$resume" "$work/none" "$work/copy.safetensors"
fi
finish
