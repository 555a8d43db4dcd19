#!/bin/sh
# full_disk_test.sh - a run on a disk that fills up: the save that finds no space is an error that names the call's reason
# and the path, training goes on, the checkpoints of before stay whole, and once there is space the next save works.
#
# On a small tmpfs and a small ext4 image where this user may mount, and everywhere with a limit on the size of files.
srcdir=${srcdir:-.}
builddir=${builddir:-.}
trainer=$builddir/tests/fault/kill_trainer
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-full.XXXXXX") || exit 99
mounted=
clean()
{
    [ -z "$mounted" ] || umount "$work/disk"
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 99' HUP INT TERM

count=0
failures=0

# report STATUS DESCRIPTION: one TAP line; a failure is followed by what the trainer said.
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

skip()
{
    count=$((count + 1))
    echo "ok $count - $1 # SKIP $2"
}

reason()
{
    sed -n "s#$work/##g; 1p" "$work/why"
}

# said PATTERN: a line of the trainer's.
said()
{
    grep -E -e "$1" "$work/out" >/dev/null
}

# found RUN: the step that another process finds there, everything compared.
found()
{
    "$trainer" --check --report 3 "$1" 3>"$work/found" 2>"$work/err" || return
    sed -n 's/^found //p' "$work/found"
}

# leftovers RUN: how many temporaries lie there.
leftovers()
{
    find "$1" -name '.t*' | wc -l
}

# After two failures the trainer makes space, and goes on: what happened is told by its lines.
# outcome WHAT RUN REASON FIRST_FAILED: the lines of steps FIRST_FAILED and the next have that reason, those around are saved.
outcome()
{
    what=$1 run=$2 reason=$3 first=$4
    said "^step $((first - 1)): saved\$"
    report $? "$what: saves while there is space"
    said "^step $first: system $reason: $run/.*: " && said "^step $((first + 1)): system $reason: $run/.*: "
    report $? "$what: then $reason, with the path, and the training goes on"
    said "^step $((first + 2)): saved\$" && said "^step $((first + 3)): saved\$"
    report $? "$what: saves again once there is space"
    [ "$(leftovers "$run")" = 0 ]
    report $? "$what: nothing is left of the saves that failed"
}

# disk WHAT MODE: trains on $work/disk until it is full. A ballast file leaves room for about three checkpoints.
disk()
{
    what="$1, $2"
    mode=
    [ "$2" = asynchronous ] || mode=--sync
    run=$work/disk/run
    rm -rf "$run"
    room=$(df -Pk "$work/disk" | awk 'NR == 2 { print $4 }')
    dd if=/dev/zero of="$work/disk/ballast" bs=1024 count=$((room - 9000)) 2>"$work/err"
    "$trainer" --keep 0 --steps 3 $mode --say "$run" >"$work/out" 2>"$work/err"
    report $? "$what: three steps"
    "$trainer" --keep 0 --steps 5 $mode --say --ballast "$work/disk/ballast" "$run" >>"$work/out" 2>"$work/err"
    report $? "$what: five more"
    first=$(sed -n 's/^step \([0-9]*\): system.*/\1/p' "$work/out" | head -n 1)
    outcome "$what" "$run" ENOSPC "${first:-4}"
    [ "$(found "$run")" = 8 ] && [ "$(find "$run" -name 'step-*' | wc -l)" = 6 ]
    report $? "$what: all other checkpoints are there, the newest is whole"
}

# prune_first WHAT: on a disk for three checkpoints and a half three are to be kept. Where the old one goes after the new one
# there is never room for the fourth; where it goes before, there is.
prune_first()
{
    run=$work/disk/run
    for option in '' --prune-first; do
        what="$1, keep_last 3${option:+, prune_first}"
        rm -rf "$run" "$work/disk/ballast"
        "$trainer" --keep 3 --steps 1 --sync "$run" >"$work/out" 2>"$work/err"
        size=$(du -sk "$run" | awk '{ print $1 }')
        rm -rf "$run"             # a run that resumes keeps what it resumed from, beside those three
        room=$(df -Pk "$work/disk" | awk 'NR == 2 { print $4 }')
        dd if=/dev/zero of="$work/disk/ballast" bs=1024 count=$((room - size * 7 / 2)) 2>"$work/err"
        "$trainer" --keep 3 $option --steps 8 --sync --say "$run" >"$work/out" 2>"$work/err"
        report $? "$what: eight steps"
        if [ -z "$option" ]; then
            [ "$(grep -c ': system ENOSPC' "$work/out")" = 5 ] && [ "$(found "$run")" = 3 ]
            report $? "$what: no save after the third finds room"
        else
            ! grep ': system' "$work/out" >/dev/null && [ "$(found "$run")" = 8 ]
            report $? "$what: all saves find room"
        fi
        [ "$(find "$run" -name 'step-*' | wc -l)" = 3 ] && [ "$(leftovers "$run")" = 0 ]
        report $? "$what: three are there"
    done
}

# The state is 2.6 MiB: 12 MiB hold four checkpoints.
mkdir "$work/disk"
if mount -t tmpfs -o size=16m ckpt-full "$work/disk" 2>"$work/why"; then
    mounted=yes
    disk tmpfs synchronous
    disk tmpfs asynchronous
    prune_first tmpfs
    umount "$work/disk" && mounted=
else
    skip "a full tmpfs" "$(reason)"
fi

# A migration to a directory: what is finished stays, the error says where, and the same command goes on once there is space.
# Of a file system that has no inodes left it is known which file finds none.
if mount -t tmpfs -o size=16m,nr_inodes=5 ckpt-full "$work/disk" 2>"$work/why"; then
    mounted=yes
    again()
    {
        "$builddir/src/cli/ckpt-migrate" "$@" --lossy --weights-only --to hf --max-shard-size 64B \
            "$srcdir/tests/data/cli/fused-step-cpu.pt" "$work/disk/x" >"$work/out" 2>"$work/err"
    }
    ! again && grep 'No space left' "$work/err" >/dev/null && left=$(echo "$work"/disk/.tmp-x.*.journal) && [ -f "$left" ] &&
        grep "finished files stay in ${left%.journal}:" "$work/err" >/dev/null && [ "$(leftovers "$work/disk")" = 2 ]
    report $? "a full tmpfs: finished files of a directory stay, and the error says where"
    ! again --no-resume && grep 'No space left' "$work/err" >/dev/null && [ "$(leftovers "$work/disk")" = 0 ]
    report $? "a full tmpfs: nothing stays with --no-resume, nor what was left before"
    ! again && [ "$(leftovers "$work/disk")" = 2 ] && mount -o remount,nr_inodes=99 "$work/disk" && again &&
        grep '^journal-resumed' "$work/out" >/dev/null && [ "$(leftovers "$work/disk")" = 0 ] && [ -d "$work/disk/x" ]
    report $? "a full tmpfs: once there is space the same command goes on"
    umount "$work/disk" && mounted=
else
    skip "a full tmpfs, and a directory" "$(reason)"
fi

image=$work/image
if dd if=/dev/zero of="$image" bs=1024 count=32768 2>"$work/why" && mkfs.ext4 -q -m 0 "$image" 2>"$work/why" &&
    mount -o loop "$image" "$work/disk" 2>"$work/why"; then
    mounted=yes
    disk ext4 synchronous
    disk ext4 asynchronous
    prune_first ext4
    umount "$work/disk" && mounted=
else
    skip "a full ext4" "$(reason)"
fi

# A limit on the size of files, in blocks of 512 bytes: no file of a checkpoint fits.
for kind in synchronous asynchronous; do
    mode=
    [ $kind = asynchronous ] || mode=--sync
    run=$work/limited-$kind
    "$trainer" --keep 0 --steps 3 $mode --say "$run" >"$work/out" 2>"$work/err"
    report $? "limited files, $kind: three steps"
    (ulimit -S -f 1000 && exec "$trainer" --keep 0 --steps 5 $mode --say --lift-limit "$run") >>"$work/out" 2>"$work/err"
    report $? "limited files, $kind: five more under a limit"
    outcome "limited files, $kind" "$run" EFBIG 4
    [ "$(found "$run")" = 8 ]
    report $? "limited files, $kind: the newest is whole"
done

echo "1..$count"
[ $failures -eq 0 ]
