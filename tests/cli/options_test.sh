#!/bin/sh
# options_test.sh - what stands outside of the table of options agrees with it: --help, and the synopses and option lists of
# the man pages. (completion_test.sh has the shells, strict_test.sh the commands.)
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
builddir=$(cd "${builddir:-.}" && pwd) || exit 99
generate=$builddir/src/cli/completion/generate
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-options.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
cd "$work" || exit 99
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
        sed 's/^/# /' err
    fi
}

# same_synopsis PROGRAM PAGE
same_synopsis()
{
    "$generate" synopsis "$1" >synopsis
    sed -n '/^\.\\" BEGIN OPTIONS/,/^\.\\" END OPTIONS/{//d;p}' "$2" | diff - synopsis >err && [ "$(wc -l <synopsis)" -gt 20 ]
}

# same_forms COMMAND PAGE: the forms of one command, as the table has them
same_forms()
{
    "$generate" synopsis inspect | sed -n "/^\.SY ckpt.-inspect. $1\$/,/^\.YS/p" >synopsis
    sed -n '/^\.\\" BEGIN OPTIONS/,/^\.\\" END OPTIONS/{//d;p}' "$2" | diff - synopsis >err && [ -s synopsis ]
}

# fits COMMAND...: what it prints is on one screen, and in said
fits()
{
    "$@" >said
    awk 'length($0) > 80 { print "too wide: " $0 } END { if (NR > 24) print NR " lines" }' said >err
    [ -s said ] && [ ! -s err ]
}

commands_of()
{
    [ "$1" = migrate ] || echo show list tree verify doctor extract stats diff scan
}

for program in inspect migrate; do
    page=$srcdir/man/ckpt-$program.1
    "$generate" options $program >options
    fits "$builddir/src/cli/ckpt-$program" --help
    report $? "ckpt-$program --help fits a screen of 24 lines and 80 columns"
    cp said all
    for command in $(commands_of $program); do # each has a help of its own
        fits "$builddir/src/cli/ckpt-$program" $command --help && sed -n 1p said | grep -q "^Usage: ckpt-$program $command " &&
            sed -n 3p said | grep -q "^Example: ckpt-$program " && tail -n 1 said | grep -q '^Exit status: 0 .*2 no answer\.$' &&
            "$builddir/src/cli/ckpt-$program" help $command | cmp -s - said
        report $? "ckpt-$program $command --help fits, and has an example; so has help $command"
        cat said >>all
        [ $program = migrate ] && continue
        same_forms $command "$srcdir/man/ckpt-inspect-$command.1"
        report $? "ckpt-inspect-$command.1: the synopsis is the table's"
    done
    : >err
    while read -r name value _; do
        [ "$value" = - ] && head="--$name" || head="--$name $value"
        grep -qE -- "(^|[ ,:])$(printf %s "$head" | sed 's/[][|.]/\\&/g')(,|\$|  | -| )" all || echo "$head: not in --help" >>err
        roff=$(printf %s "--$name" | sed 's/-/\\\\-/g')
        cat "${page%.1}"*.1 | sed -n '/^\.SH OPTIONS/,$p' | grep -q -- "^\.B[RI]* .*$roff" || echo "--$name: not in ${page##*/} or the page of a command" >>err
    done <options
    [ "$(wc -l <options)" -gt 20 ] && [ ! -s err ]
    report $? "ckpt-$program: $(wc -l <options) options, each in --help and in a man page"
    same_synopsis $program "$page"
    report $? "${page##*/}: the synopsis is the table's (put there what src/cli/completion/generate synopsis $program prints)"
    grep -v 'RB \[ .*json' "$page" >without
    ! same_synopsis $program without
    report $? "a synopsis that lacks one is found"
done

echo "1..$count"
[ "$failures" -eq 0 ]
