#!/bin/sh
# overlay_test.sh - a run whose checkpoints lie in a lower layer of overlayfs, as in the image of a container: such a directory cannot
# be renamed. It is pruned, and saved over, all the same. Where this user may not mount, it is skipped.
srcdir=${srcdir:-.}
builddir=${builddir:-.}
trainer=$builddir/tests/fault/kill_trainer
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-overlay.XXXXXX") || exit 99
clean()
{
    umount "$work/disk/merged" 2>/dev/null
    umount "$work/disk" 2>/dev/null
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 99' HUP INT TERM

count=0
failures=0
report()
{
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        failures=$((failures + 1))
        head -n 20 "$work/out" "$work/err" 2>/dev/null | cut -c 1-600 | sed 's/^/# /'
    fi
}

found()
{
    "$trainer" --check --report 3 "$1" 3>"$work/found" 2>"$work/err" || return
    sed -n 's/^found //p' "$work/found"
}

mkdir "$work/disk"
if ! mount -t tmpfs -o size=64m ckpt-overlay "$work/disk" 2>"$work/why"; then
    echo "ok 1 # SKIP $(sed -n 1p "$work/why")"
    echo 1..1
    exit 0
fi
mkdir "$work/disk/lower" "$work/disk/upper" "$work/disk/work" "$work/disk/merged"
"$trainer" --keep 0 --steps 4 --sync "$work/disk/lower/run" >"$work/out" 2>"$work/err"
report $? "four checkpoints in the lower layer"
if ! mount -t overlay ckpt-overlay -o redirect_dir=off,lowerdir="$work/disk/lower",upperdir="$work/disk/upper",workdir="$work/disk/work" \
    "$work/disk/merged" 2>"$work/why"; then
    echo "ok 2 # SKIP $(sed -n 1p "$work/why")"
    echo 1..2
    exit 0
fi
run=$work/disk/merged/run
"$trainer" --keep 2 --steps 0 --again --sync --say "$run" >"$work/out" 2>"$work/err" && [ "$(found "$run")" = 4 ]
report $? "a save over a step of the lower layer"
"$trainer" --keep 2 --steps 3 --sync --say "$run" >"$work/out" 2>"$work/err" && [ "$(found "$run")" = 7 ]
report $? "three saves more"
[ "$(find "$run" -name 'step-*' | wc -l)" = 3 ] && [ -d "$run/step-00000004" ]
report $? "those of the lower layer are pruned, but for the one that was resumed"
[ "$(find "$run" -name '.t*' -o -name '.pruned' | wc -l)" = 0 ]
report $? "nothing is left of them"
[ "$(find "$work/disk/lower/run" -name 'checkpoint.json' | wc -l)" = 4 ]
report $? "the lower layer is what it was"
echo "1..$count"
[ $failures -eq 0 ]
