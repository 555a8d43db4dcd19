#!/bin/sh
# bombs_test.sh - files that ask for far more memory than they have bytes (tests/fault/bombs makes them): no command takes more
# for one than SECURITY.md says, and each ends with a status of its own.
builddir=$(cd "${builddir:-.}" && pwd) || exit 99
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-bombs.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
LC_ALL=C NO_COLOR=1
export LC_ALL NO_COLOR
inspect=$builddir/src/cli/ckpt-inspect
migrate=$builddir/src/cli/ckpt-migrate
bombs=$builddir/tests/fault/bombs
if [ -x "$builddir/src/cli/.libs/ckpt-inspect" ]; then     # a thousand runs: without libtool's script before each
    inspect=$builddir/src/cli/.libs/ckpt-inspect
    migrate=$builddir/src/cli/.libs/ckpt-migrate
    LD_LIBRARY_PATH=$builddir/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi
cd "$work" || exit 99
count=0
failures=0

mkdir made && "$bombs" make made || exit 99

# run SIZE ARGUMENT...: what fails is noted. Under a sanitizer memory is not measured.
run()
{
    bound=$1
    shift
    "$bombs" run "$bound" "$@" >/dev/null 2>err </dev/null
    status=$?
    [ $status -lt 99 ] && return
    bad="$bad
# $*: $status: $(tail -n 1 err)"
}

every_command()
{
    for command in show list tree stats verify doctor scan; do
        run "$size" "$inspect" "$command" "$bomb"
    done
    for command in show list tree doctor; do
        run "$size" "$inspect" "$command" --json "$bomb"
    done
    run "$size" "$inspect" show --report page.html "$bomb"
    run $((2 * size)) "$inspect" diff "$bomb" "$bomb"
    for format in torch safetensors ckpt; do
        run "$size" "$migrate" --to "$format" --lossy --force "$bomb" "out.$format"
    done
    run "$size" "$migrate" --to torch --plain --lossy --force "$bomb" out.torch
}

for bomb in made/*; do
    size=$(find "$bomb" -type f -exec cat {} + | wc -c)
    bad=
    if [ "${CKPT_SANITIZERS:-no}" = no ]; then
        every_command
    else        # some ways through all of the code: each run takes many times as long, and nothing is measured
        run 0 "$inspect" doctor "$bomb"
        run 0 "$inspect" tree --json "$bomb"
        run 0 "$migrate" --to ckpt --lossy --force "$bomb" out.ckpt
    fi
    count=$((count + 1))
    if [ -z "$bad" ]; then
        echo "ok $count - ${bomb#made/}"
    else
        failures=$((failures + 1))
        echo "not ok $count - ${bomb#made/}$bad"
    fi
done

# The commands did answer: of one that is sound yes, of one that is not why.
count=$((count + 1))
if "$inspect" list made/stored-nones >/dev/null 2>err && "$inspect" tree --json made/shared-texts >out 2>err &&
    ! "$inspect" list made/deflated-lists >out 2>err && grep -q "MiB of memory, which is the limit for a file of its size" err &&
    ! "$inspect" list made/shared-without-end >out 2>err && grep -q "shared parts counted" err; then
    echo "ok $count - the answers"
else
    failures=$((failures + 1))
    echo "not ok $count - the answers"
    sed 's/^/# /' err
fi
echo "1..$count"
exit $((failures > 0))
