#!/bin/sh
# run_test.sh - train_charlm --run: checkpoints of a run that is resumed, on another device too, stopped by a signal, by a
# file, by its time limit, killed, or begun from a checkpoint of PyTorch's. The losses are always those of one run.
. "${srcdir:-.}/tests/samples/common.sh"

n=24
options="--growth-interval 7 --overflow-at 17 --save-every 4"
"$train" $options --steps $n --save "$work/straight" "$text" >"$work/straight.txt" 2>"$work/err"
report $? "$n steps without a run directory"

# legs DEVICE...: the run in as many parts as there are devices, each resumed on its own.
legs()
{
    rm -rf "$work/legs"
    : >"$work/legs.txt"
    at=0
    for device; do
        at=$((at + n / $#))
        cuda "$train" $options --steps $at --device "$device" --run "$work/legs" "$text" >>"$work/legs.txt" 2>>"$work/err" ||
            return 1
    done
    cmp "$work/straight.txt" "$work/legs.txt" && "$same_state" "$work/straight" "$work/legs/step-000000$n"
}
expect "in one part" legs cpu
expect "in two parts" legs cpu cpu
on_cuda "on a device" legs cuda:0
on_cuda "and resumed on another" legs cuda:0 cuda:1
on_cuda "and on several, one after the other" legs cpu cuda:1 cuda:0 cpu
expect "every checkpoint is there" test "$(ls -d "$work/legs"/step-* | wc -l)" -ge 6
"$train" $options --steps $((n + 4)) --keep-last 2 --run "$work/legs" "$text" >"$work/out" 2>"$work/said"
report $? "four steps more"
expect "of which two are kept" test "$(ls -d "$work/legs"/step-* | wc -l)" -eq 2
expect "as it says" says "pruned" "$work/said"

# ---- a run that others disturb
# begin DEVICE RUN ARGUMENT...: without an end; its losses go to $work/losses
begin()
{
    : >"$work/losses"
    device=$1 run=$2
    shift 2
    LD_LIBRARY_PATH="$standin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        "$train" --steps 1000000 --device "$device" --run "$run" "$@" "$text" >"$work/losses" 2>"$work/said" &
    pid=$!
}

# reached STEPS: waits until it has made them
reached()
{
    tries=0
    while [ "$(wc -l <"$work/losses")" -lt "$1" ]; do
        kill -0 $pid 2>/dev/null && [ $tries -lt 2400 ] || return 1
        sleep 0.05
        tries=$((tries + 1))
    done
}

# goes_on DEVICE RUN: five steps more than it came to, and all of them those of an undisturbed run
goes_on()
{
    end=$(($(tail -n 1 "$work/losses" | cut -d ' ' -f 2) + 5))
    cuda "$train" --steps $end --device "$1" --run "$2" "$text" >"$work/more" 2>>"$work/err" || return 1
    "$train" --steps $end "$text" >"$work/whole" 2>>"$work/err" || return 1
    lines=$(wc -l <"$work/more")
    [ "$lines" -ge 5 ] && tail -n "$lines" "$work/whole" | cmp - "$work/more" || return 1
    head -n "$(wc -l <"$work/losses")" "$work/whole" | cmp - "$work/losses"
}

others="cpu cuda:0"
[ $have_cuda = yes ] || others=cpu
for device in $others; do
    next=cpu
    [ $device = cpu ] && [ $have_cuda = yes ] && next=cuda:1

    begin $device "$work/term-$device"
    reached 3 && kill -TERM $pid && wait $pid
    report $? "$device: SIGTERM saves and stops with status 0"
    expect "and says why" says "(signal)" "$work/said"
    expect "no step was lost" says "stopped after step $(wc -l <"$work/losses"):" "$work/said"
    expect "it goes on with the same losses on $next" goes_on $next "$work/term-$device"

    begin $device "$work/kill-$device" --save-every 2
    reached 6 && kill -9 $pid
    wait $pid 2>/dev/null
    [ $? -eq 137 ]
    report $? "$device: killed"
    expect "it goes on with the same losses on $next" goes_on $next "$work/kill-$device"
done

begin cpu "$work/touch"
reached 2 && touch "$work/touch/SAVE"
tries=0
while [ -e "$work/touch/SAVE" ] && kill -0 $pid && [ $tries -lt 200 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
expect "a file SAVE is answered" test ! -e "$work/touch/SAVE"
expect "with a checkpoint" test "$(ls -d "$work/touch"/step-* | wc -l)" -eq 1
expect "while the training goes on" kill -0 $pid
touch "$work/touch/STOP"
wait $pid
report $? "a file STOP ends it with status 0"
expect "and says why" says "(stop file)" "$work/said"
expect "the file is gone" test ! -e "$work/touch/STOP"
expect "it goes on with the same losses" goes_on cpu "$work/touch"

begin cpu "$work/limit" --time-limit 4
wait $pid
report $? "a time limit ends it with status 0"
expect "and says why" says "(deadline)" "$work/said"
expect "it goes on with the same losses" goes_on cpu "$work/limit"

begin cpu "$work/two"
reached 1
"$train" --steps 1 --run "$work/two" "$text" >"$work/out" 2>"$work/second"
[ $? -eq 1 ]
report $? "a second writer is refused"
expect "by the number of the process that writes" says "pid $pid" "$work/second"
kill -9 $pid
wait $pid 2>/dev/null

# ---- begun from a checkpoint of PyTorch's
from_torch()
{
    rm -rf "$work/torch"
    cuda "$train" --steps 50 --overflow-at 47 --run "$work/torch" --resume "$handover/ar-ckpt-mixed.pth" --device "$1" \
        "$text" >"$work/losses.txt" 2>>"$work/err" &&
        cuda "$train" --steps 60 --overflow-at 47 --run "$work/torch" --resume "$handover/ar-ckpt-mixed.pth" --device "$2" \
            "$text" >>"$work/losses.txt" 2>>"$work/err" &&
        "$compare_losses" "$handover/losses.txt" "$work/losses.txt" 1e-6 1e-4
}
expect "PyTorch's checkpoint begins a run, which then has its own" from_torch cpu cpu
on_cuda "on simulated devices too" from_torch cuda:1 cuda:0
refuse "--keep-last without --run is refused" "$train" --keep-last 2 "$text"
finish
