#!/bin/sh
# signals_test.sh - Ctrl-C, SIGTERM and SIGHUP at every stage: the commands die by the signal, so that a shell's loop over files
# ends, and leave no temporary; what is there under its name is whole. A signal that was ignored from the start stays so.
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
builddir=$(cd "${builddir:-.}" && pwd) || exit 99
inspect=$builddir/src/cli/ckpt-inspect
migrate=$builddir/src/cli/ckpt-migrate
signal_at=$builddir/tests/cli/signal_at
source=$srcdir/tests/data/cli/fused-step-cpu.pt
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-signals.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
LC_ALL=C ASAN_OPTIONS=detect_leaks=0      # the leak checker cannot be traced
export LC_ALL ASAN_OPTIONS
cd "$work" || exit 99
# A build's own command may be a script that finds the library: what it becomes is what counts.
[ "$(head -c 2 "$inspect")" = '#!' ] && becomes=-x || becomes=
"$signal_at" 1 INT true
[ $? -eq 98 ] && { echo "no process can be traced here"; exit 77; }
mkdir out

count=0
failures=0
kept=0
resumes=
# report STATUS DESCRIPTION
report()
{
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        failures=$((failures + 1))
        [ ! -s wrong ] || sed 's/^/# /' wrong
    fi
}
number_of()
{
    case $1 in INT) echo 130 ;; TERM) echo 143 ;; HUP) echo 129 ;; esac
}
# What is in out/ is the whole target, or nothing.
whole_or_nothing()
{
    if [ -d whole ] && [ -e out/x ]; then
        diff -r whole out/x >/dev/null && [ "$(ls -A out)" = x ]
    elif [ -e out/x ]; then
        cmp -s whole out/x && [ "$(ls -A out)" = x ]
    else
        [ -z "$(ls -A out)" ]
    fi
}
# The same of a directory of several files: what is finished stays beside it, and a message says so; then the same command goes
# on with it. resumable COMMAND...
resumable()
{
    if [ -z "$(ls -A out)" ] || [ -e out/x ]; then
        whole_or_nothing && ! grep '^ckpt-' stderr
        return
    fi
    left=$(find out -mindepth 1 -maxdepth 1 -name '.tmp-x.*[0-9a-f]' ! -name '*.journal')
    [ "$(find out -mindepth 1 -maxdepth 1 | wc -l)" -eq 2 ] && [ -d "$left" ] && [ -f "$left.journal" ] &&
        [ "$(grep -c "^ckpt-migrate: .*$left" stderr)" -eq 1 ] && kept=$((kept + 1)) &&
        "$@" >again 2>&1 && grep '^journal-resumed' again >/dev/null && whole_or_nothing
}
# sweep SIGNAL STEP DESCRIPTION COMMAND...: the signal comes at each STEP-th system call. The last call is the end itself.
sweep()
{
    name=$1 step=$2 description=$3
    shift 3
    : >wrong
    n=1
    tried=0
    while :; do
        rm -rf out/*
        # shellcheck disable=SC2086
        "$signal_at" $becomes $n "$name" "$@" >stdout 2>stderr
        got=$?
        [ $got -ne 97 ] || break
        if [ -n "$resumes" ]; then
            resumable "$@" >/dev/null || echo "at call $n: $(ls -A out | tr '\n' ' ')" >>wrong
        else
            whole_or_nothing || echo "at call $n: $(ls -A out | tr '\n' ' ')" >>wrong
            grep '^ckpt-' stderr | sed "s/^/at call $n: /" >>wrong      # who pressed Ctrl-C needs no message
        fi
        [ $got -eq "$(number_of "$name")" ] || echo "at call $n: exit status $got" >>wrong
        tried=$((tried + 1))
        n=$((n + step))
    done
    # A signal at the very last call finds a process that is gone.
    sed "/^at call $((n - step)): exit status 0$/d" wrong >kept
    mv kept wrong
    [ ! -s wrong ] && [ $tried -gt 5 ]
    report $? "SIG$name, $description: $tried times"
}
# ignored SIGNAL STEP DESCRIPTION STATUS COMMAND...: started with the signal ignored, as nohup does.
ignored()
{
    name=$1 step=$2 description=$3 wanted=$4
    shift 4
    : >wrong
    n=1
    while :; do
        rm -rf out/*
        # shellcheck disable=SC2086
        "$signal_at" -i $becomes $n "$name" "$@" >stdout 2>stderr
        got=$?
        [ $got -ne 97 ] || break
        [ $got -eq "$wanted" ] && { [ ! -e whole ] || [ -e out/x ]; } && whole_or_nothing || echo "at call $n: exit status $got" >>wrong
        n=$((n + step))
    done
    [ ! -s wrong ] && [ $n -gt $step ]
    report $? "SIG$name ignored at the start, $description"
}

# ---- migrate: one file, read back; a directory
for quiet in '' -q; do
    rm -rf whole out/*
    # shellcheck disable=SC2086
    "$migrate" -q --verify --to ckpt "$source" whole || exit 99
    for signal in INT TERM HUP; do
        case $signal$quiet in INT) step=13 ;; INT-q) step=17 ;; *) step=41 ;; esac
        # shellcheck disable=SC2086
        sweep $signal $step "migrate $quiet --verify" "$migrate" $quiet --threads 1 --verify --to ckpt "$source" out/x
    done
done
sweep INT 31 "migrate with its second thread" "$migrate" --threads 2 --verify --to ckpt "$source" out/x
ignored INT 37 "migrate" 0 "$migrate" --threads 1 --verify --to ckpt "$source" out/x
ignored HUP 67 "migrate" 0 "$migrate" --threads 1 --verify --to ckpt "$source" out/x
rm -rf whole out/*
"$migrate" -q --to hf --lossy --weights-only --max-shard-size 64B "$source" whole || exit 99
resumes=yes
sweep INT 29 "migrate to a directory" "$migrate" --threads 1 --verify --to hf --lossy --weights-only --max-shard-size 64B "$source" out/x
[ $kept -gt 3 ]
report $? "finished files stayed $kept times, and were gone on with"
resumes=
sweep INT 29 "migrate to a directory with --no-resume" "$migrate" --no-resume --threads 1 --verify --to hf --lossy --weights-only --max-shard-size 64B "$source" out/x
rm -rf whole out/*

# ---- inspect
"$inspect" extract "$source" model.0.weight -o whole || exit 99
for signal in INT TERM HUP; do
    [ $signal = INT ] && step=11 || step=53
    sweep $signal $step "extract" "$inspect" extract "$source" model.0.weight -o out/x
done
ignored INT 41 "extract" 0 "$inspect" extract "$source" model.0.weight -o out/x
rm -rf whole out/*
for signal in INT TERM HUP; do
    [ $signal = INT ] && step=11 || step=43
    sweep $signal $step "doctor --values" "$inspect" doctor --values "$source"
done
ignored INT 47 "doctor --values" 0 "$inspect" doctor --values "$source"
for command in verify list stats scan 'diff -q'; do
    other=
    [ "$command" != 'diff -q' ] || other=$source
    # shellcheck disable=SC2086
    sweep INT 43 "${command% *}" "$inspect" $command "$source" $other
done

# ---- what it is for: a loop over files ends
# A shell that was started with a signal ignored (in the background, say) cannot give it back to itself: env does.
if command -v bash >/dev/null 2>&1 && env --default-signal=INT setsid -w true 2>/dev/null; then
    : >wrong
    n=1
    while :; do
        rm -f ran
        # shellcheck disable=SC2016,SC2086
        env --default-signal=INT setsid -w bash -c 'for i in 1 2 3; do "$@"; got=$?; [ $got -eq 97 ] && exit 97; echo "$i $got" >>ran; done' loop \
            "$signal_at" -g $becomes $n INT "$inspect" doctor --values -q "$source" >stdout 2>stderr
        got=$?
        [ $got -ne 97 ] || break
        [ ! -e ran ] || sed "s/^/at call $n the loop went on: /" ran >>wrong
        n=$((n + 23))
    done
    sed "/^at call $((n - 23)) .* 0$/d" wrong >kept
    mv kept wrong
    [ ! -s wrong ] && [ $n -gt 100 ]
    report $? "Ctrl-C ends a loop of the shell over files"
else
    count=$((count + 1))
    echo "ok $count - a loop of bash # SKIP bash, setsid -w or env --default-signal is not there"
fi

echo "1..$count"
[ "$failures" -eq 0 ]
