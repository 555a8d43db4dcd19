#!/bin/sh
# shards_test.sh - samples/shards_hook.c: a data loader whose order array is freed and allocated anew for shards of different
# lengths. A run that is killed at random goes on with the losses, the shards and the samples of the trainer that
# knows no checkpoints.
. "${srcdir:-.}/tests/samples/common.sh"

without=$builddir/samples/shards_without
hook=$builddir/samples/shards_hook

"$without" 150 >"$work/whole" 2>"$work/err"
report $? "150 steps without the hook"
expect "in shards of different lengths" test "$(sed 's/.* of \([0-9]*\) .*/\1/' "$work/whole" | sort -u | wc -l)" -ge 4
"$hook" 150 "$work/straight" >"$work/losses" 2>"$work/err"
report $? "and with it"
expect "are the same steps" cmp "$work/whole" "$work/losses"

# Stopped in each shard of one epoch and resumed: the order that is restored has another length than the first shard's.
: >"$work/losses"
failed=0
for last in 7 15 22 31 40 52 66 67 80 95 111 150; do
    "$hook" $last "$work/parts" >>"$work/losses" 2>"$work/err" || failed=1
done
report $failed "in twelve parts"
expect "they are the same too" cmp "$work/whole" "$work/losses"
expect "with the same state" "$same_state" "$work/straight/step-00000150" "$work/parts/step-00000150"

# ---- kill -9 at random, twelve times in one run
: >"$work/killed"
deaths=0
seen=
while [ $deaths -lt 12 ]; do
    n=$(od -An -N2 -tu2 /dev/urandom)
    n=$((n % 90 + 4))             # at least one save after each start, or the run would not get on
    seen="$seen $n"
    : >"$work/losses"
    "$hook" 1000000 "$work/kill" >"$work/losses" 2>>"$work/said" &
    pid=$!
    lines_in "$work/losses" $n $pid || break
    kill -9 $pid
    wait $pid 2>/dev/null
    [ $? -eq 137 ] || break
    cat "$work/losses" >>"$work/killed"
    deaths=$((deaths + 1))
done
[ $deaths -eq 12 ]
report $? "killed twelve times, after at least$seen steps"
last=$(sed -n 's/^step \([0-9]*\) .*/\1/p' "$work/killed" | sort -n | tail -n 1)
"$without" $((last + 60)) >"$work/whole" 2>"$work/err" &&
    "$hook" $((last + 60)) "$work/kill" >"$work/losses" 2>"$work/err"
report $? "then 60 steps more than it ever came to"
expect "end as the undisturbed run does" tail_of "$work/losses" 60 "$work/whole"
# Each step that any of the killed runs made is one of the undisturbed run.
sort "$work/killed" | uniq >"$work/a"
sort "$work/whole" >"$work/b"
expect "so are the steps of the killed ones" test -z "$(comm -23 "$work/a" "$work/b" | sed '/)$/!d')"
cut -d ' ' -f 2 "$work/killed" | sort -nu >"$work/made"
expect "and none is missing before the last" test "$(wc -l <"$work/made")" -eq "$last"
finish
