#!/bin/sh
# completion_test.sh - what bash (and zsh, where it is there) complete: each option of the programs, its values, and names of
# tensors, quoted as the line needs them. bash's functions are called as readline calls them; zsh is typed at.
[ "$CKPT_COMPLETION" = bash ] || {
    command -v bash >/dev/null 2>&1 || { echo "bash is not there"; exit 77; }
    CKPT_COMPLETION=bash exec bash "$0" "$@"
}
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
builddir=$(cd "${builddir:-.}" && pwd) || exit 99
completion=$builddir/src/cli/completion
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-completion.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
PATH=$builddir/src/cli:$PATH
LC_ALL=C
export PATH LC_ALL
cd "$work" || exit 99
cp "$srcdir/tests/data/cli/plain.pt" "$srcdir/tests/data/cli/three-devices.pt" .
cp plain.pt 'my file.pt'
cp plain.pt "it's.pt"
mkdir list.d
# Names with all that a shell and a glob look at.
name() { printf '"%s":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}' "$1" "$2" $(($2 + 4)); }
header='{'$(name 'two words.w' 0),$(name 'two*stars?' 4),$(name 'cost$HOME`touch pwned`' 8),$(name 'in:side:w' 12),$(
    name "it's.w" 16),$(name 'back\\slash.w' 20),$(name 'say \"so\"' 24),$(name '=first' 28),$(name 'ctl\u0001.w' 32)'}'
length=$(printf '%s' "$header" | wc -c)
{
    # shellcheck disable=SC2059
    printf "\\$(printf '%03o' $((length % 256)))\\$(printf '%03o' $((length / 256)))\\0\\0\\0\\0\\0\\0"
    printf '%s' "$header"
    head -c 36 /dev/zero
} >odd.safetensors

# shellcheck source=/dev/null
. "$completion/ckpt.bash"
# What an interactive bash has, whatever the environment of the test says.
COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
count=0
failures=0
# ask LINE WORD...: the last WORD is completed; what comes is in $answer, one a line.
ask()
{
    COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMP_KEY=9
    shift
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _ckpt "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" ''
    answer=$(printf '%s\n' "${COMPREPLY[@]}" | sort)
}
report()
{
    count=$((count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        printf '%s\n' "$answer" | sed 's/^/# got: /'
        failures=$((failures + 1))
    fi
}
# gives DESCRIPTION EXPECTED (a line each) LINE WORD...
gives()
{
    local description=$1 expected=$2
    shift 2
    ask "$@"
    [[ $answer == "$expected" ]]
    report $? "$description: $1"
}
# has DESCRIPTION ONE LINE WORD...
has()
{
    local description=$1 expected=$2
    shift 2
    ask "$@"
    grep -qxF -- "$expected" <<<"$answer"
    report $? "$description: $1"
}

# ---- every option of the programs, and no other
for program in inspect migrate; do
    "$completion/generate" options $program >options
    ask "ckpt-$program -" "ckpt-$program" -
    names=$(sed 's/ .*//; s/^/--/' options | sort)
    diff <(printf '%s\n' "$names") <(printf '%s\n' "$answer") | sed 's/^/# /'
    [ "$names" = "$answer" ]
    report $? "ckpt-$program: every option"
    words=__ckpt_${program}_options
    bad=
    while read -r name value _; do
        [[ $value == - ]] && wanted=1 || wanted=0
        __ckpt_wants "--$name"
        [[ $? -eq $wanted ]] || bad+=" --$name"
    done <options
    answer=$bad
    [[ -z $bad && ${!words} == *--json* ]]
    report $? "ckpt-$program: which of them take a value"
done
answer=
for command in $__ckpt_commands; do
    ckpt-inspect "$command" 2>&1 | grep -q "^ckpt-inspect: $command: missing operand" && answer+=" $command"
done
[ "$answer" = " show list tree verify doctor extract stats diff scan" ] && [ "$answer" = " $__ckpt_commands" ]
report $? "every command"
answer=$(sed -n '/^\.BI \\-\\-role/,/^\.TP/s/^\.B[R]* \([a-z_]*\).*/\1/p' "$srcdir/man/ckpt-inspect.1" | sort)
roles=$answer
ask 'ckpt-inspect --role ' ckpt-inspect --role ''
[[ $roles == *exp_avg_sq* && $answer == "$roles" ]]
report $? "every role"
# What --fix takes, as its own message says.
answer=$(ckpt-migrate --dry-run --fix nothing plain.pt x.pt 2>&1 | sed -n 's/.*--fix takes \(.*\), and all$/\1, all/p' | sed 's/, /\n/g' | sort)
fixes=$answer
ask 'ckpt-migrate --fix ' ckpt-migrate --fix ''
[[ $fixes == *step-on-cpu* && $answer == "$fixes" ]]
report $? "every code of --fix"

# ---- commands, options, values
has "a command" extract 'ckpt-inspect ex' ckpt-inspect ex
gives "the only command that begins so" show 'ckpt-inspect sh' ckpt-inspect sh
gives "a file or a command" $'list\nlist.d' 'ckpt-inspect li' ckpt-inspect li
gives "no second command" list.d 'ckpt-inspect show li' ckpt-inspect show li
gives "an option" --report 'ckpt-inspect --repo' ckpt-inspect --repo
gives "a role" $'exp_avg\nexp_avg_sq' 'ckpt-inspect --role exp' ckpt-inspect --role exp
gives "a role behind =" $'exp_avg\nexp_avg_sq' 'ckpt-inspect --role=exp' ckpt-inspect --role = exp
gives "a loader" $'torch\ntorch-cpp\ntorch-dist' 'ckpt-inspect doctor --for to' ckpt-inspect doctor --for to
gives "a format to read" $'torch\ntorch-dist\ntorch-legacy' 'ckpt-inspect --from to' ckpt-inspect --from to
gives "a format to write" $'torch\ntorch-dist\ntorchtitan' 'ckpt-migrate --to to' ckpt-migrate --to to
gives "a kind of optimizer" fused 'ckpt-migrate --optimizer fu' ckpt-migrate --optimizer fu
gives "a code that a rewrite mends" $'step-on-cpu\nstep-on-gpu-slow' 'ckpt-migrate --fix step' ckpt-migrate --fix step
gives "a dtype of a cast" bfloat16 'ckpt-migrate --cast *=bf' ckpt-migrate --cast '*' = bf
gives "the tags of the file" $'0\n1\n2' 'ckpt-inspect list three-devices.pt --device cuda:' ckpt-inspect list three-devices.pt --device cuda :
gives "one of them" 1 'ckpt-inspect list three-devices.pt --device cuda:1' ckpt-inspect list three-devices.pt --device cuda : 1
gives "files, nothing else, behind --" plain.pt 'ckpt-inspect -- pl' ckpt-inspect -- pl

# ---- tensors
gives "a name" $'model.1.bias\nmodel.1.num_batches_tracked\nmodel.1.running_mean\nmodel.1.running_var\nmodel.1.weight' \
    'ckpt-inspect extract plain.pt model.1.' ckpt-inspect extract plain.pt model.1.
gives "of a file with a blank in its name" model.1.weight 'ckpt-inspect extract my\ file.pt model.1.w' ckpt-inspect extract 'my\ file.pt' model.1.w
gives "in quotes" model.1.weight 'ckpt-inspect extract "my file.pt" model.1.w' ckpt-inspect extract '"my file.pt"' model.1.w
gives "with a quote in its name" model.1.weight "ckpt-inspect extract it\\'s.pt model.1.w" ckpt-inspect extract "it\\'s.pt" model.1.w
gives "behind options" model.1.weight 'ckpt-inspect extract --raw -o x plain.pt model.1.w' ckpt-inspect extract --raw -o x plain.pt model.1.w
COMP_CWORD=3
COMP_WORDS=(ckpt-inspect list --tensor model.1.w plain.pt) COMP_LINE='ckpt-inspect list --tensor model.1.w plain.pt'
COMPREPLY=()
_ckpt
answer=${COMPREPLY[*]}
[ "$answer" = model.1.weight ]
report $? "with the cursor before the file"
odd='ckpt-inspect extract odd.safetensors'
gives "a blank" 'two\ words.w' "$odd two\\ " ckpt-inspect extract odd.safetensors 'two\ '
gives "a blank, in quotes" 'two words.w' "$odd 'two " ckpt-inspect extract odd.safetensors "'two "
gives "glob characters" 'two\*stars\?' "$odd two\\*" ckpt-inspect extract odd.safetensors 'two\*'
gives "a dollar and backquotes" 'cost\$HOME\`touch\ pwned\`' "$odd cos" ckpt-inspect extract odd.safetensors cos
gives "a dollar in double quotes" 'cost\$HOME\`touch pwned\`' "$odd \"cos" ckpt-inspect extract odd.safetensors '"cos'
gives "a quote" "it\\'s.w" "$odd it" ckpt-inspect extract odd.safetensors it
gives "a quote in quotes" "it'\\''s.w" "$odd 'it" ckpt-inspect extract odd.safetensors "'it"
gives "a backslash" 'back\\slash.w' "$odd back" ckpt-inspect extract odd.safetensors back
gives "double quotes" 'say\ \"so\"' "$odd say" ckpt-inspect extract odd.safetensors say
gives "colons, which break words" 'side:w' "$odd in:s" ckpt-inspect extract odd.safetensors in : s
gives "no name that cannot be typed" '' "$odd ctl" ckpt-inspect extract odd.safetensors ctl
gives "as a glob, its own stars escaped" 'two\\\*stars\\\?' 'ckpt-inspect list odd.safetensors --tensor two\\\*' ckpt-inspect list odd.safetensors --tensor 'two\\\*'
gives "and = in front" '\\=first' 'ckpt-inspect list odd.safetensors --tensor \\' ckpt-inspect list odd.safetensors --tensor '\\'
gives "of migrate" model.1.weight 'ckpt-migrate plain.pt --drop model.1.w' ckpt-migrate plain.pt --drop model.1.w
gives "of what is no checkpoint: nothing" '' 'ckpt-inspect extract /dev/null mod' ckpt-inspect extract /dev/null mod
head -c 3000 plain.pt >cut.pt
ask 'ckpt-inspect extract cut.pt mod' ckpt-inspect extract cut.pt mod 2>noise
[ -z "$answer" ] && [ ! -s noise ]
report $? "of a file that was cut off: nothing, and no noise"
gives "of what is not there: nothing" '' 'ckpt-inspect extract $(touch\ pwned) mod' ckpt-inspect extract '$(touch\ pwned)' mod
[ ! -e pwned ]
report $? "nothing that was typed, and no name, was run"

# What is completed is what the command takes: the words go through a shell.
bad=
while IFS= read -r word; do
    eval "ckpt-inspect extract --force odd.safetensors $word --raw -o out" 2>/dev/null && [ "$(wc -c <out)" = 4 ] || bad+=" $word"
done < <(ask "$odd " ckpt-inspect extract odd.safetensors ''; printf '%s\n' "$answer")
answer=$bad
[ -z "$bad" ]
report $? "each name, as it was completed, is found"
bad=
while IFS= read -r word; do
    [ "$(eval "ckpt-inspect list --tensor $word odd.safetensors" 2>/dev/null | wc -l)" = 2 ] || bad+=" $word"
done < <(ask "ckpt-inspect list odd.safetensors --tensor " ckpt-inspect list odd.safetensors --tensor ''; printf '%s\n' "$answer")
answer=$bad
[ -z "$bad" ]
report $? "and as a glob names one tensor"

# ---- zsh, typed at: the line that comes of a tab
zsh_line()
{
    zsh -f -c '
        zmodload zsh/zpty || exit 77
        zpty z zsh -f -i
        zpty -w z "PS1=; unset zle_bracketed_paste; fpath=(\$COMPLETION \$fpath); autoload -Uz compinit; compinit -u -D; print -r -- READ\"\"Y"
        while zpty -r z piece; do [[ $piece == *READY* ]] && break; done
        zpty -w -n z $1$'"'\\t'"'
        sleep $2
        zpty -w -n z $'"'\\C-a'"'"print -rl -- BEG\"\"IN "$'"'\\C-e'"'" END\"\"ED"$'"'\\n'"'
        out=
        while zpty -r z piece; do
            out+=$piece
            [[ $piece == *ENDED* ]] && break
        done
        print -r -- "$out"' zsh "$1" "$2" | tr -d '\r' | tee zsh.seen | sed -n '/^BEGIN$/,/^ENDED$/p' | sed '1d;$d' | tr '\n' ' '
}
if ! command -v zsh >/dev/null 2>&1; then
    count=$((count + 1))
    echo "ok $count - zsh # SKIP it is not there"
else
    COMPLETION=$completion
    export COMPLETION
    typed()
    {
        for pause in 1 4; do
            answer=$(zsh_line "$1" $pause)
            [ "$answer" = "$2 " ] && break
        done
        [ "$answer" = "$2 " ]
        report $? "zsh: $1"
        # Nothing but the line is shown: an error of a function would stand over it.
        grep -E '_ckpt[a-z_]*:[0-9]|limit exceeded|not found|parse error|bad ' zsh.seen >noise
        answer=$(cat noise)
        [ -s zsh.seen ] && [ ! -s noise ]
        report $? "zsh: without an error over the line"
    }
    typed 'ckpt-inspect --repo' 'ckpt-inspect --report'
    typed 'ckpt-inspect doc' 'ckpt-inspect doctor'
    typed 'ckpt-inspect --role exp_avg_s' 'ckpt-inspect --role exp_avg_sq'
    typed 'ckpt-migrate --to sam' 'ckpt-migrate --to same'
    typed 'ckpt-migrate --fix weights' 'ckpt-migrate --fix weights-only-refused'
    typed 'ckpt-inspect extract cut.pt mod' 'ckpt-inspect extract cut.pt mod'
    typed 'ckpt-inspect extract plain.pt model.1.w' 'ckpt-inspect extract plain.pt model.1.weight'
    typed 'ckpt-inspect extract odd.safetensors tw\ ' 'ckpt-inspect extract odd.safetensors tw '
    typed 'ckpt-inspect extract odd.safetensors cos' 'ckpt-inspect extract odd.safetensors cost$HOME`touch pwned`'
    typed 'ckpt-inspect list odd.safetensors --tensor cos' 'ckpt-inspect list odd.safetensors --tensor cost$HOME`touch pwned`'
    [ ! -e pwned ]
    report $? "zsh ran none of it"
fi

echo "1..$count"
[ "$failures" -eq 0 ]
