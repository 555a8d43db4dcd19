# common.sh - what the samples' tests share: where things are, and TAP. Sourced, not run.
#
# The programs are in $builddir, the sources in $srcdir; both default to the current directory. Every test runs on the
# CPU and on the stand-in for the CUDA driver, whose devices are simulated.
builddir=${builddir:-.}
srcdir=${srcdir:-.}
train=$builddir/samples/train_charlm
same_state=$builddir/tests/samples/same_state
compare_losses=$builddir/tests/samples/compare_losses
text=$srcdir/samples/data/sonnets.txt
handover=$srcdir/tests/data/torch-handover
standin=$builddir/tests/fakecuda/.libs

work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-samples.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM

count=0
failures=0

# report STATUS DESCRIPTION: one TAP line; a failure is followed by what the programs said.
report()
{
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        failures=$((failures + 1))
        [ ! -f "$work/err" ] || head -n 20 "$work/err" | cut -c 1-600 | sed 's/^/# /'
    fi
    rm -f "$work/err"
}

# expect DESCRIPTION COMMAND...: the command succeeds.
expect()
{
    description=$1
    shift
    "$@" >>"$work/err" 2>&1
    report $? "$description"
}

# refuse DESCRIPTION COMMAND...: the command answers no (status 1), and does not crash.
refuse()
{
    description=$1
    shift
    "$@" >>"$work/err" 2>&1
    status=$?
    [ $status -eq 1 ]
    report $? "$description"
}

# says TEXT FILE: the file has that text.
says()
{
    grep -F -e "$1" "$2" >/dev/null || { echo "expected: $1"; cat "$2"; return 1; } >>"$work/err"
}

# cuda COMMAND...: on the stand-in, with two simulated devices unless FAKECUDA_DEVICES says otherwise.
cuda()
{
    env LD_LIBRARY_PATH="$standin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
}

# A library built without CUDA has no devices, and no stand-in either.
if cuda "$train" --device cuda:1 --steps 0 "$text" >/dev/null 2>&1; then
    have_cuda=yes
else
    have_cuda=no
fi

# on_cuda DESCRIPTION COMMAND...: as expect, where there are simulated devices.
on_cuda()
{
    if [ $have_cuda = yes ]; then
        expect "$@"
    else
        skip "$1"
    fi
}

# tail_of FILE LINES WHOLE: the file is the end of the whole one, of that many lines at least.
tail_of()
{
    lines=$(wc -l <"$1")
    [ "$lines" -ge "$2" ] && tail -n "$lines" "$3" | cmp - "$1"
}

# lines_in FILE N PID: waits until the file has them; no when the process ends first.
lines_in()
{
    tries=0
    while [ "$(wc -l <"$1")" -lt "$2" ]; do
        kill -0 "$3" 2>/dev/null && [ $tries -lt 3000 ] || return 1
        sleep 0.01
        tries=$((tries + 1))
    done
}

skip()
{
    count=$((count + 1))
    echo "ok $count - $1 # SKIP this build has no CUDA"
}

finish()
{
    echo "1..$count"
    [ $failures -eq 0 ]
    exit
}
