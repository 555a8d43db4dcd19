#!/bin/sh
# ranks_test.sh - three processes, one of which is killed at each all-reduce of the library in turn: whatever had been
# agreed by then, the three resume from one common step, and end with the bits of the run that nobody disturbed.
#
# In memory where there is room: several hundred runs, none of which asks anything of the disk but its order.
if [ -z "${TMPDIR:-}" ] && [ -d /dev/shm ] && [ -w /dev/shm ]; then
    TMPDIR=/dev/shm
    export TMPDIR
fi
. "${srcdir:-.}/tests/samples/common.sh"

ranks=$builddir/samples/ranks
# A rank that hangs would hang the test: a minute is a hundred times what a run takes.
run()
{
    timeout -k 5 60 "$ranks" "$@"
}

n=11
every=3
options="--steps $n --save-every $every --keep-last 2"
run $options "$work/whole" >"$work/whole.txt" 2>"$work/err"
report $? "$n steps of three ranks"
expect "each step once" test "$(wc -l <"$work/whole.txt")" -eq $n
expect "the last one is saved by all" test "$(ls -d "$work/whole"/rank-0000[012]/step-000000$n | wc -l)" -eq 3
expect "with different shards" sh -c '! cmp -s "$1/rank-00000/$2" "$1/rank-00001/$2"' sh "$work/whole" \
    step-000000$n/model.safetensors

# same_end RUN: all three hold what the undisturbed ones hold
same_end()
{
    for r in 0 1 2; do
        "$same_state" "$work/whole/rank-0000$r/step-000000$n" "$1/rank-0000$r/step-000000$n" || return 1
    done
}

run --steps 7 --save-every $every "$work/two" >"$work/two.txt" 2>"$work/err" &&
    run $options "$work/two" >>"$work/two.txt" 2>>"$work/err"
report $? "in two parts"
expect "the same losses" cmp "$work/whole.txt" "$work/two.txt"
expect "the same shards" same_end "$work/two"

# resumed RUN: all from one step; its number in $from
resumed()
{
    sed -n 's/^rank [0-9] begins after step //p' "$work/said" >"$work/from"
    [ "$(wc -l <"$work/from")" -eq 3 ] && [ "$(sort -u "$work/from" | wc -l)" -eq 1 ] || return 1
    from=$(head -n 1 "$work/from")
}

# killed HOW RANK CALL ARGUMENT...: one rank is killed there, and the rest end by themselves; then all resume.
# 0: as it should be; 3: the run was over before that call.
killed()
{
    how=$1 rank=$2 call=$3
    shift 3
    rm -rf "$work/dead"
    run $options "$@" $how $rank $call "$work/dead" >"$work/dead.txt" 2>"$work/first"
    status=$?
    [ $status -ne 0 ] || return 3
    [ $status -eq 1 ] && grep -q "^rank $rank was killed by signal 9" "$work/first" || { cat "$work/first"; return 1; }
    made=$(wc -l <"$work/dead.txt")
    head -n "$made" "$work/whole.txt" | cmp - "$work/dead.txt" || return 1
    if ! run $options "$@" "$work/dead" >"$work/more.txt" 2>"$work/said"; then
        # Only some have the very first checkpoint: half a step is not resumed, and a run is not begun anew unasked.
        cat "$work/said"
        refused=$((refused + 1))
        ! grep -q ' saved: ' "$work/first" && says "none of 1 checkpoints" "$work/said" && [ ! -s "$work/more.txt" ]
        return
    fi
    resumed || { cat "$work/said"; return 1; }
    echo "$from" >>"$work/steps"
    # A save that the training went on from two saves ago was on disk on all ranks.
    [ "$from" -le "$made" ] && [ $((made - from)) -le $((2 * every)) ] || { echo "from $from, made $made"; return 1; }
    tail -n $((n - from)) "$work/whole.txt" | cmp - "$work/more.txt" && same_end "$work/dead"
}

# each HOW ARGUMENT...: at every call, a different rank each time
each()
{
    call=1
    refused=0
    : >"$work/steps"
    while :; do
        killed $1 $(((call + ${#1}) % 3)) $call $2 >"$work/why" 2>&1
        status=$?
        [ $status -ne 3 ] || break
        [ $status -eq 0 ] || { echo "call $call, rank $(((call + ${#1}) % 3)):"; cat "$work/why"; return 1; }
        call=$((call + 1))
    done
    deaths=$((call - 1))
    [ $deaths -ge $n ] && [ $refused -le 3 ] && [ "$(sort -u "$work/steps" | wc -l)" -ge 3 ]
}
for mode in "" --wait; do
    expect "killed before each all-reduce${mode:+, with $mode}: $n steps to the same end" each --die $mode
    echo "# $deaths deaths, resumed from steps $(sort -nu "$work/steps" | tr '\n' ' '), refused $refused times"
    expect "and after each${mode:+, with $mode}" each --die-after $mode
    echo "# $deaths deaths, resumed from steps $(sort -nu "$work/steps" | tr '\n' ' '), refused $refused times"
done

# ---- killed again and again in one run, once it has a checkpoint
rm -rf "$work/dead"
run --steps 4 --save-every $every "$work/dead" >"$work/again.txt" 2>"$work/err"
report $? "four steps"
call=9
while run $options --die $((call % 3)) $call "$work/dead" >>"$work/again.txt" 2>"$work/said"; [ $? -eq 1 ] && [ $call -lt 40 ]; do
    call=$((call + 3))
done
run $options "$work/dead" >>"$work/again.txt" 2>"$work/err"
report $? "killed again and again"
expect "ends with the same shards" same_end "$work/dead"
sort -u "$work/again.txt" >"$work/a"
sort -u "$work/whole.txt" >"$work/b"
expect "and no step had another loss" cmp "$work/a" "$work/b"

# ---- a signal: all save the same step, and stop
: >"$work/losses"
"$ranks" --steps 100000000 --save-every 1000000 "$work/term" >"$work/losses" 2>"$work/said" &
pid=$!
tries=0
while [ "$(wc -l <"$work/losses")" -lt 3 ] && [ $tries -lt 600 ]; do
    sleep 0.02
    tries=$((tries + 1))
done
kill -TERM $pid && wait $pid
report $? "SIGTERM: status 0"
last=$(wc -l <"$work/losses")
expect "all stop after the step that was made last" \
    test "$(grep -c "^rank [012] stopped after step $last\$" "$work/said")" -eq 3
run --steps $((last + 5)) --save-every 0 "$work/term" >>"$work/losses" 2>"$work/said" &&
    run --steps $((last + 5)) "$work/straight" >"$work/whole.txt" 2>"$work/err"
report $? "five steps more"
expect "all from that step" resumed
expect "with the same losses" cmp "$work/whole.txt" "$work/losses"

# ---- a checkpoint that one rank has lost
rm -rf "$work/term/rank-00001/step-$(printf %08d $((last + 5)))"
run --steps $((last + 6)) --save-every 0 "$work/term" >"$work/out" 2>"$work/said"
report $? "one rank has lost its newest"
expect "all take the one before" resumed
expect "which is the one of the signal" test "$from" -eq "$last"
refuse "another number of ranks is refused" run --world 2 --steps $((last + 6)) "$work/term"
refuse "a rank that is not there is refused" run --world 9 "$work/none"
finish
