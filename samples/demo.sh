#!/bin/sh
# demo.sh - what the library is for, shown on a small run: train, kill, look at what is left, resume on another device
# with the same losses, and go on from a checkpoint that PyTorch wrote. Exit status 1 where anything is not as it should be.
#
#   sh samples/demo.sh [BUILDDIR]
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$top/build}" && pwd)
trainer=$build/samples/train_charlm
inspect=$build/src/cli/ckpt-inspect
handover=$top/tests/data/torch-handover

work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-demo.XXXXXX")
pid=
trap 'test -z "$pid" || kill -9 "$pid" 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work"
cp "$top/samples/data/sonnets.txt" "$handover/ar-ckpt-mixed.pth" .
text=sonnets.txt torch=ar-ckpt-mixed.pth

exec 3>&1    # what is shown, also where a command's output goes to a file
title() { printf '\n==== %s\n' "$*"; }
shown() { printf '$ %s\n' "$*" >&3; }
die() { printf 'demo: %s\n' "$*" >&2; exit 1; }
# run COMMAND...: shows it under its own name, then runs it
run() {
    words=
    for word in "$@"; do words="$words ${word##*/}"; done
    shown "${words# }"
    "$@"
}
# needs TARGET...: what `make` alone does not build
needs() { make -s -C "$build" "$@" >"$work/make.log" 2>&1 || { cat "$work/make.log"; exit 1; }; }
# some LOG: its first, second and last lines
some() { sed -n '1,2p' "$1"; echo "..."; tail -n 1 "$1"; }

# ---- which devices: real ones, else the tests' stand-in for the driver, else the CPU
needs samples/train_charlm
first=cpu second=cpu
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
built=$("$inspect" --version)
case $built in
*"cuda: yes"*)
    if [ "$gpus" -gt 0 ] && "$trainer" --device cuda:0 --steps 1 "$text" >gpu.log 2>&1; then
        first=cuda:0
        [ "$gpus" -gt 1 ] && second=cuda:1
        kind="$gpus GPU(s) of this machine"
    else
        needs tests/fakecuda/libcuda.la
        LD_LIBRARY_PATH=$build/tests/fakecuda/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        export LD_LIBRARY_PATH
        first=cuda:0 second=cuda:1
        why="there is no GPU here"
        [ "$gpus" -gt 0 ] && why="this build does not run on the GPU here ($(tail -n 1 gpu.log))"
        kind="simulated devices: $why, and the tests' stand-in for the CUDA driver takes its place"
    fi
    ;;
*)
    kind="the CPU alone: this build has no CUDA (configure says why)"
    ;;
esac
printf '%s\n' "$built"
printf 'devices: %s\n' "$kind"
printf 'the run trains on %s and is resumed on %s\n' "$first" "$second"

# ---- 1. a run that is killed
title "1. Train on $first, saving every 20 steps, and kill -9 in mid-run"
shown "train_charlm --run run --save-every 20 --keep-last 3 --device $first --steps 100000 sonnets.txt"
stdbuf -oL "$trainer" --run run --save-every 20 --keep-last 3 --device "$first" --steps 100000 "$text" \
    >killed.log 2>killed.err &
pid=$!
tries=0
until grep -q '^step 90 ' killed.log; do
    kill -0 "$pid" 2>/dev/null || { cat killed.err; die "the trainer ended by itself"; }
    tries=$((tries + 1))
    [ $tries -lt 6000 ] || die "the trainer did not reach step 90 within a minute or two"
    sleep 0.02
done
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
pid=
cat killed.err
some killed.log
echo "(killed)"

title "2. What the killed run left"
run "$inspect" show run
run "$inspect" doctor run || die "the killed run cannot be resumed"
run "$inspect" verify run || die "a checkpoint that the killed run left is damaged"
newest=$(ls -d run/step-* | sort | tail -n 1)
saved=$("$inspect" show --json "$newest" | sed -n 's/.*"step": *\([0-9][0-9]*\).*/\1/p' | head -n 1)
[ -n "$saved" ] || die "ckpt-inspect does not say at which step $newest was saved"
last=$((saved + 20))

# ---- 3. resumed elsewhere, beside a run that nobody disturbed
title "3. Resume after step $saved on $second, beside an uninterrupted run on $first"
shown "train_charlm --device $first --steps $last sonnets.txt"
"$trainer" --device "$first" --steps "$last" "$text" >whole.log 2>/dev/null || die "the uninterrupted run failed"
run "$trainer" --run run --save-every 20 --keep-last 3 --map-location "$second" --steps "$last" "$text" >resumed.log ||
    die "the resume failed"
sed "1,${saved}d" whole.log >whole.tail
awk '{ print $2, $4, $5 }' whole.tail >whole.columns
awk '{ print $4, $5 }' resumed.log >resumed.columns
printf '%6s  %-36s %s\n' step "uninterrupted on $first" "resumed on $second"
paste -d ' ' whole.columns resumed.columns | awk '{ printf "%6s  %-10s%-26s %-10s%s%s\n", $1, $2, $3, $4, $5, ($3 == $5 ? "" : "   DIFFERS") }'
[ "$(wc -l <resumed.log)" = 20 ] || die "the resumed run made $(wc -l <resumed.log) steps, not 20"
cmp -s whole.tail resumed.log || die "the losses after the resume are not those of the uninterrupted run"
echo "20 losses, the same bit for bit"

# ---- 4. PyTorch's
title "4. A checkpoint that PyTorch wrote: AMP, AdamW(fused=True); weights on cuda:0, step counters on the cpu"
run "$inspect" "$torch"
# asked SEVERITY STATUS ARGUMENTS...: doctor's answer, in which step-on-cpu must have that severity. How the parts of
# the file were found is the same each time, and shown once.
seen=cat
asked() {
    severity=$1 expected=$2 status=0
    shift 2
    run "$inspect" doctor "$@" "$torch" >answer.log || status=$?
    $seen answer.log
    seen="sed -e /source-found:/d -e /order-hypothesis:/,/fix:/d"
    [ $status = "$expected" ] || die "doctor $* ended with $status, expected $expected"
    "$inspect" doctor --json "$@" "$torch" 2>/dev/null | tr -d '\n' | sed 's/[{}]/\n/g' |
        grep '"step-on-cpu"' | grep -q "\"$severity\"" || die "doctor $*: step-on-cpu is no $severity"
    echo
}
echo "Will it resume in this trainer? In PyTorch 2.0, and in a new one?"
asked error 1 --for ckpt
asked error 1 --for torch --torch 2.0 --load-weights-only no
asked note 0 --for torch --torch 2.13 --load-weights-only no
echo "And with a rule that says where everything goes?"
run "$inspect" doctor --for ckpt --optimizer fused --map-location cuda:0 "$torch" >answer.log || die "doctor still refuses it"
$seen answer.log

title "5. Go on from it, with a rule for every tensor"
run "$trainer" --resume "$torch" --map-location "$first" --allow-unexpected --overflow-at 47 --steps 60 "$text" \
    >ours.log || die "the resume from PyTorch's checkpoint failed"
[ "$(wc -l <ours.log)" = "$(wc -l <"$handover/losses.txt")" ] || die "another number of steps than PyTorch made"
printf '%6s  %-12s %-12s %-12s %s\n' step "PyTorch" "ours" "difference" "loss scale"
if ! awk '
    function abs(x) { return x < 0 ? -x : x }
    { getline other <"ours.log"; n = split(other, o, " ")
      difference = abs($4 - o[4]); if (difference > most) most = difference
      scales = ($7 == o[7] && $8 == o[8])
      printf "%6s  %-12s %-12s %-12.6f %s%s%s\n", $2, $4, o[4], difference, o[7], (o[8] ? " (" o[8] ")" : ""), \
          (scales && $2 == o[2] ? "" : "   DIFFERS")
      if (!scales || $2 != o[2] || difference > 0.0001) bad = 1 }
    END { printf "largest difference: %.6f (float32 sums in another order)\n", most; exit bad }' "$handover/losses.txt"; then
    die "these are not the losses that PyTorch had"
fi

title "Done: saved, killed, inspected, resumed on $second bit for bit, and continued from PyTorch"
printf 'Now a file of your own: %s FILE\n' "$inspect"
