# cli_common.sh - what tests of the commands share: where things are, and TAP. Sourced, not run.
#
# The commands are in $builddir, the sources in $srcdir; both default to the current directory. A test begins in $work, a directory
# of its own, which is removed when it ends.
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
builddir=$(cd "${builddir:-.}" && pwd) || exit 99
inspect=$builddir/src/cli/ckpt-inspect
migrate=$builddir/src/cli/ckpt-migrate
data=$srcdir/tests/data
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-cli.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
LC_ALL=C NO_COLOR=1
export LC_ALL NO_COLOR
cd "$work" || exit 99
count=0
failures=0

# check NAME: the status of the last command, which is said to be 0 for yes. A failure is followed by what out and err begin with.
check()
{
    status=$?
    count=$((count + 1))
    if [ $status -eq 0 ]; then
        echo "ok $count - $1"
    else
        failures=$((failures + 1))
        echo "not ok $count - $1"
        sed 's/^/# /' out err 2>/dev/null | head -n 40
    fi
}

# ask STATUS ARGUMENT...: runs ckpt-inspect, into out and err. Is that its status?
ask()
{
    expected=$1
    shift
    "$inspect" "$@" >out 2>err </dev/null
    [ $? -eq "$expected" ]
}

# finish LEAST: ends the test, which fails where it has made fewer checks than that.
finish()
{
    echo "1..$count"
    [ "$count" -ge "$1" ] && [ "$failures" -eq 0 ]
    exit
}
