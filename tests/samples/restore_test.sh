#!/bin/sh
# restore_test.sh - a run that is saved and resumed is the run that was never stopped.
#
# 2N steps in one go, against N steps, a checkpoint, a new process, and N more: every loss is compared as text (the
# bits are in it), and at the end every weight, moment, step count, the grad scaler and the random generator, bit for
# bit. On the CPU, on simulated devices, and from one to the other along the way.
. "${srcdir:-.}/tests/samples/common.sh"

n=24
options="--growth-interval 7 --overflow-at 17"

# leg FROM TO DEVICE KIND: continues $work/leg until step TO and appends its losses; FROM 0 begins.
leg()
{
    if [ "$1" -eq 0 ]; then
        set -- "$2" "$3" "$4"
    else
        set -- "$2" "$3" "$4" --resume "$work/leg" --map-location "$3"
    fi
    to=$1 device=$2 kind=$3
    shift 3
    cuda "$train" $options --steps "$to" --device "$device" --optimizer "$kind" --save "$work/leg" "$@" "$text" \
        >>"$work/legs.txt" 2>>"$work/err"
}

# journey KIND DEVICE...: the run in as many legs as there are devices, then the comparison with the straight one.
journey()
{
    kind=$1
    shift
    : >"$work/legs.txt"
    step=$((n / $#))
    at=0
    for place; do
        leg $at $((at + step)) "$place" "$kind" || return 1
        at=$((at + step))
    done
    cmp "$work/straight-$kind.txt" "$work/legs.txt" || return 1
    "$same_state" "$work/straight-$kind" "$work/leg"
}

for kind in fused plain; do
    "$train" $options --steps $n --optimizer $kind --save "$work/straight-$kind" "$text" \
        >"$work/straight-$kind.txt" 2>"$work/err"
    report $? "$n steps in one go, $kind"
done
expect "a step was skipped" grep -q '^step 17 .* skipped$' "$work/straight-fused.txt"
expect "fused and plain take the same steps" cmp "$work/straight-fused.txt" "$work/straight-plain.txt"

for kind in fused plain; do
    expect "$kind: cpu, cpu" journey $kind cpu cpu
    on_cuda "$kind: cuda:0, cuda:0" journey $kind cuda:0 cuda:0
    on_cuda "$kind: cpu, cuda:0, cuda:1, cpu" journey $kind cpu cuda:0 cuda:1 cpu
    FAKECUDA_REVERSE=1
    export FAKECUDA_REVERSE
    on_cuda "$kind: cuda:1, cpu, cuda:0, with unordered streams reversed" journey $kind cuda:1 cpu cuda:0
    unset FAKECUDA_REVERSE
done

# What a resume loses shows in the losses: the comparison above can fail.
half=$((n / 2))
"$train" $options --steps $half --save "$work/half" "$text" >/dev/null 2>"$work/err"
report $? "half of it"
tail -n $half "$work/straight-fused.txt" >"$work/tail.txt"
for what in moments steps rng; do
    "$train" $options --steps $n --resume "$work/half" --forget $what "$text" >"$work/lost.txt" 2>"$work/err"
    report $? "goes on without its $what"
    refuse "and then differs" cmp "$work/tail.txt" "$work/lost.txt"
done

cp "$work/half" "$work/before"
"$train" $options --steps $n --resume "$work/half" "$text" >/dev/null 2>"$work/err"
expect "a resume does not write to its checkpoint" cmp "$work/before" "$work/half"

refuse "a device that is not there is refused" cuda "$train" --device cuda:9 "$text"
refuse "a map to a device that is not there is refused" \
    cuda "$train" --resume "$work/half" --map-location cuda:9 "$text"
finish
