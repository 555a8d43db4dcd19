#!/bin/sh
# kill9_test.sh - a run that is killed at any moment goes on from its last checkpoint with the same bits.
#
# kill -9 while the trainer trains and saves after every step; then a resume, on another device, to the end. The losses
# are those of the run that was never killed, and so is the state.
. "${srcdir:-.}/tests/samples/common.sh"

n=80
"$train" --steps $n --save "$work/straight" "$text" >"$work/straight.txt" 2>"$work/err"
report $? "$n steps in one go"

# killed DEVICE LINES: starts a run and kills it once it has printed that many steps.
killed()
{
    rm -f "$work/run" "$work/killed.txt"
    : >"$work/killed.txt"
    LD_LIBRARY_PATH="$standin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
        "$train" --steps 1000000 --device "$1" --save "$work/run" --save-every 1 "$text" \
        >"$work/killed.txt" 2>>"$work/err" &
    pid=$!
    tries=0
    while [ "$(wc -l <"$work/killed.txt")" -lt "$2" ] && kill -0 $pid 2>/dev/null && [ $tries -lt 600 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    kill -9 $pid 2>>"$work/err" || { wait $pid; return 1; }
    wait $pid 2>/dev/null
    [ $? -eq 137 ] && [ -f "$work/run" ]
}

round=0
devices="cpu cuda:0 cpu cuda:1"
[ $have_cuda = yes ] || devices="cpu cpu"
for device in $devices; do
    other=cuda:1
    [ $device = cpu ] && [ $have_cuda = yes ] || other=cpu
    round=$((round + 1))
    killed $device $((3 * round))
    report $? "killed on $device while it saves after every step"
    cuda "$train" --steps $n --resume "$work/run" --map-location $other --save "$work/resumed" "$text" \
        >"$work/resumed.txt" 2>"$work/err"
    report $? "resumed on $other"
    lines=$(wc -l <"$work/resumed.txt")
    tail -n "$lines" "$work/straight.txt" >"$work/tail.txt"
    expect "with $((n - lines)) steps in the checkpoint" test "$lines" -gt 0 -a "$lines" -lt $n
    expect "to the same losses" cmp "$work/tail.txt" "$work/resumed.txt"
    expect "and the same state" "$same_state" "$work/straight" "$work/resumed"
done
finish
