#!/bin/sh
# hook_test.sh - samples/hook_minimal.c: with the hook in its fewest lines a run that is killed, stopped or damaged has
# the losses of the trainer that knows no checkpoints.
. "${srcdir:-.}/tests/samples/common.sh"

without=$builddir/samples/hook_without
minimal=$builddir/samples/hook_minimal

"$without" 100 >"$work/whole" 2>"$work/err"
report $? "100 steps without the hook"
"$minimal" 100 "$work/straight" >"$work/losses" 2>"$work/err"
report $? "and with it"
expect "are the same steps" cmp "$work/whole" "$work/losses"
expect "the last step is saved" test -f "$work/straight/step-00000100/checkpoint.json"
expect "and three checkpoints are kept" test "$(ls -d "$work/straight"/step-* | wc -l)" -eq 3

"$minimal" 33 "$work/two" >"$work/losses" 2>"$work/err" && "$minimal" 100 "$work/two" >>"$work/losses" 2>>"$work/err"
report $? "in two parts"
expect "they are the same too" cmp "$work/whole" "$work/losses"
expect "with the same state" "$same_state" "$work/straight/step-00000100" "$work/two/step-00000100"

# ---- kill -9, ten times in one run
: >"$work/killed"
deaths=0
while [ $deaths -lt 10 ]; do
    : >"$work/losses"
    "$minimal" 1000000 "$work/kill" >"$work/losses" 2>>"$work/said" &
    pid=$!
    lines_in "$work/losses" $((deaths * 7 + 1)) $pid || break
    kill -9 $pid
    wait $pid 2>/dev/null
    [ $? -eq 137 ] || break
    cat "$work/losses" >>"$work/killed"
    deaths=$((deaths + 1))
done
[ $deaths -eq 10 ]
report $? "killed ten times"
last=$(sed -n 's/^step \([0-9]*\) .*/\1/p' "$work/killed" | sort -n | tail -n 1)
"$without" $((last + 20)) >"$work/whole" 2>"$work/err" &&
    "$minimal" $((last + 20)) "$work/kill" >"$work/losses" 2>"$work/err"
report $? "then 20 steps more than it ever came to"
expect "end as the undisturbed run does" tail_of "$work/losses" 20 "$work/whole"
# Each step that any of the killed runs made is one of the undisturbed run.
cut -d ' ' -f 2 "$work/killed" | sort -nu >"$work/made"
sort "$work/killed" | uniq >"$work/a"
sort "$work/whole" >"$work/b"
expect "so are the steps of the killed ones" test -z "$(comm -23 "$work/a" "$work/b" | sed '/)$/!d')"
expect "and none is missing before the last" test "$(wc -l <"$work/made")" -eq "$last"

# ---- a signal
for signal in TERM USR1; do
    rm -rf "$work/stop"
    : >"$work/losses"
    "$minimal" 1000000 "$work/stop" >"$work/losses" 2>"$work/said" &
    pid=$!
    lines_in "$work/losses" 5 $pid && kill -$signal $pid && wait $pid
    report $? "SIG$signal: saved, and status 0"
    expect "because of the signal" says "(signal)" "$work/said"
    last=$(wc -l <"$work/losses")
    expect "after the step that was made last" test -d "$work/stop/step-$(printf %08d "$last")"
    "$without" $((last + 10)) >"$work/whole" 2>"$work/err" &&
        "$minimal" $((last + 10)) "$work/stop" >>"$work/losses" 2>"$work/err"
    report $? "and ten steps more"
    expect "with the losses of the undisturbed run" cmp "$work/whole" "$work/losses"
done

# ---- damage
cp -R "$work/straight" "$work/damaged"
printf X | dd of="$work/damaged/step-00000100/model.safetensors" bs=1 seek=300 conv=notrunc 2>/dev/null
"$without" 100 >"$work/whole" 2>"$work/err" && "$minimal" 100 "$work/damaged" >"$work/losses" 2>"$work/said"
report $? "the newest is damaged: the one before is taken"
expect "which is said" says "fallback: step-00000100" "$work/said"
expect "with the same losses" tail_of "$work/losses" 10 "$work/whole"
rm -rf "$work/damaged"
cp -R "$work/straight" "$work/damaged"
for step in "$work/damaged"/step-*; do
    printf X | dd of="$step/training.safetensors" bs=1 seek=300 conv=notrunc 2>/dev/null
done
refuse "all are damaged: it does not begin anew" "$minimal" 100 "$work/damaged"
finish
