# ckpt.bash - what bash completes for ckpt-inspect and ckpt-migrate: commands, options, their values, and the names of the
# tensors of the checkpoint that stands on the line. Nothing that was typed is evaluated. Without bash-completion:
#     source ckpt.bash

# The words of the line as the shell will have them: bash breaks words at : and = too, which names and tags are full of.
# Sets words and cword.
__ckpt_words()
{
    local line=$COMP_LINE blank word i broke=
    words=() cword=0
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        word=${COMP_WORDS[i]}
        blank=${line%%[![:space:]]*}
        line=${line#"$blank"}
        if [[ $i -gt 0 && -z $blank && ($broke || $word == [:=]*) ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        broke=
        [[ $word == *[:=] ]] && broke=1
        line=${line#"$word"}
        [[ $i -eq $COMP_CWORD ]] && cword=$((${#words[@]} - 1))
    done
}

# A word without its quotes and backslashes, and with the home directory for ~/, into the variable named first.
__ckpt_plain()
{
    local -n plain=$1
    local text=$2 quote= c i
    plain=
    [[ $text == '~/'* ]] && text=$HOME${text#\~}
    for ((i = 0; i < ${#text}; i++)); do
        c=${text:i:1}
        if [[ $quote == "'" ]]; then
            [[ $c == "'" ]] && quote= || plain+=$c
        elif [[ $c == "\\" && ($quote != '"' || ${text:i + 1:1} == [\$\`\"\\]) ]]; then
            i=$((i + 1))
            plain+=${text:i:1}
        elif [[ $c == "$quote" ]]; then
            quote=
        elif [[ -z $quote && $c == [\'\"] ]]; then
            quote=$c
        else
            plain+=$c
        fi
    done
}

# Candidates, one a line on standard input, that begin with $2 (the word without its quotes): as the line needs them, quoted
# as the word $1 is. readline replaces what follows the last break of the word; `before` is "--option=", or nothing.
__ckpt_reply()
{
    local current=$1 begin=$2 candidate breaks= head= ahead=$before
    [[ $COMP_WORDBREAKS == *:* ]] && breaks+=:
    [[ $COMP_WORDBREAKS == *=* ]] && breaks+='=' && ahead=
    [[ $current != [\'\"]* && $breaks ]] && head=${begin%"${begin##*[$breaks]}"}
    [[ $head ]] && ahead=
    while IFS= read -r candidate; do
        [[ $candidate == "$begin"* ]] || continue
        candidate=${candidate#"$head"}
        case $current in
        \'*) candidate=${candidate//\'/\'\\\'\'} ;;
        \"*)
            candidate=${candidate//\\/\\\\}
            candidate=${candidate//\"/\\\"}
            candidate=${candidate//\$/\\\$}
            candidate=${candidate//\`/\\\`}
            ;;
        *) [[ -z $candidate ]] || printf -v candidate %q "$candidate" ;;
        esac
        COMPREPLY+=("$ahead$candidate")
        [[ ${#COMPREPLY[@]} -lt 5000 ]] || break
    done
}

__ckpt_files()
{
    local file
    compopt -o filenames 2>/dev/null
    while IFS= read -r file; do
        COMPREPLY+=("$file")
    done < <(compgen -f -- "$1")
}

# What `list` says of a checkpoint: the strings of one member, as far as they can be typed. $1 the member, then options.
# A name with a control character, or that is no text, has escapes in JSON beyond these two, and is left out.
__ckpt_strings()
{
    local member=$1 path inspect=${words[0]/%ckpt-migrate/ckpt-inspect} limit=
    shift
    __ckpt_plain inspect "$inspect"
    command -v -- "$inspect" >/dev/null 2>&1 || inspect=ckpt-inspect
    command -v timeout >/dev/null 2>&1 && limit='timeout 5'
    __ckpt_plain path "$checkpoint"
    [[ -f $path || -d $path ]] || return
    # shellcheck disable=SC2086
    $limit "$inspect" list --json --quiet "$@" ${format:+--from="$format"} -- "$path" 2>/dev/null </dev/null |
        if [[ $member == name ]]; then LC_ALL=C sed -n 's/^ *{"name": "\(\([^"\\]\|\\.\)*\)".*/\1/p'
        else LC_ALL=C sed -n 's/^ *{"name": .*"'"$member"'": "\(\([^"\\]\|\\.\)*\)".*/\1/p'; fi |
        LC_ALL=C sed 's/\\\\/\x01/g; /\\[^"]/d; s/\\"/"/g; s/\x01/\\/g' | LC_ALL=C sort -u
}

# Names that begin with $2; as globs, their own * ? \ and a leading = escaped, where $3 says so.
__ckpt_tensors()
{
    local begin name glob
    __ckpt_plain begin "$2"
    name=$begin
    [[ $3 == glob && $begin != =* ]] && name=${begin//\\/}
    [[ $3 == glob && $begin == =* ]] && name=${begin#=}
    glob=${name//\\/\\\\}
    glob=${glob//\*/\\*}
    glob=${glob//\?/\\?}
    [[ $glob == =* ]] && glob="\\$glob"
    __ckpt_strings name --tensor "$glob*" | {
        if [[ $3 == glob && $begin != =* ]]; then
            LC_ALL=C sed 's/[\\*?]/\\&/g; s/^=/\\=/'
        elif [[ $3 == glob ]]; then
            sed 's/^/=/'
        else
            cat
        fi
    }
}

__ckpt_formats='ckpt safetensors torch torch-legacy pickle hf hf-trainer accelerate peft folder'
__ckpt_roles='param buffer grad exp_avg exp_avg_sq max_exp_avg_sq momentum optim master ema step scaler rng other none'
__ckpt_dtypes='float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu
    int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128'
__ckpt_fixes='all step-on-cpu step-on-gpu-slow mixed-devices rng-moved capturable-on-cpu fused-on-cpu no-such-device rank-device
    fused-flag-overwritten amp-needs-fused-flag prefix weights-only-refused torch-device-object truncated crc-mismatch'

# The value of an option; false where it takes none, or is not known.
__ckpt_value()
{
    local option=$1 current=$2 begin list=
    __ckpt_plain begin "$current"
    case $option in
    --from) list=$__ckpt_formats ;;
    --to) list='ckpt safetensors torch hf same' ;;
    --role) list=$__ckpt_roles ;;
    --check) list='all part' ;;
    --optimizer) list='fused capturable foreach plain' ;;
    --for) list='ckpt torch torch-cpp lightning accelerate hf-trainer' ;;
    --torch) list='1.13 2.0 2.1 2.4 2.6 2.13' ;;
    --load-weights-only) list='yes no' ;;
    --snippet) list='torch c' ;;
    --assume-order) list=$__ckpt_orders ;;
    --devices) list='cpu cuda:1 cuda:2 cuda:4 cuda:8' ;;
    --fix) list=$__ckpt_fixes ;;
    --tensor | --drop | --replace) __ckpt_reply "$current" "$begin" < <(__ckpt_tensors "$option" "$current" glob) ;;
    --device) __ckpt_reply "$current" "$begin" < <(__ckpt_strings device) ;;
    --map-location)
        __ckpt_reply "$current" "$begin" < <(printf '%s\n' cpu cuda:0)
        [[ ${#COMPREPLY[@]} -gt 0 ]] || __ckpt_files "$current"
        ;;
    --cast)
        if [[ $begin == *=* ]]; then
            __ckpt_reply "$current" "$begin" < <(for list in $__ckpt_dtypes; do printf '%s\n' "${begin%%=*}=$list"; done)
        else
            compopt -o nospace 2>/dev/null
            __ckpt_reply "$current" "$begin" < <(printf '%s\n' '*='; __ckpt_tensors "$option" "$current" glob)
        fi
        ;;
    --report | --param-names | --output | -o | --layout) __ckpt_files "$current" ;;
    --device-memory | --world | --rank | --atol | --rtol | --keep-last | --keep-every | --strip-prefix | --add-prefix | \
        --rename | --max-shard-size | --memory | --threads) ;;
    *) return 1 ;;
    esac
    # shellcheck disable=SC2086
    [[ -z $list ]] || __ckpt_reply "$current" "$begin" < <(printf '%s\n' $list)
}

__ckpt_orders='model model-reversed groups-reversed decay-split-rank decay-split-name decay-split-token decay-split-bias decay-split-hf
    decay-split-vector decay-split-pattern decay-split-layernorm decay-split-rank-last decay-split-name-last decay-split-token-last decay-split-bias-last
    decay-split-hf-last decay-split-vector-last decay-split-pattern-last decay-split-layernorm-last'
__ckpt_inspect_options='--json --tensor --role --device --allow-unused --checksum --from --quiet --output --raw --force --check --for --torch --load-weights-only
    --optimizer --map-location --devices --param-names --assume-order --amp --keep-last --keep-every --metadata-only --one --snippet
    --device-memory --world --values --atol --rtol --report --help --version'
__ckpt_migrate_options='--json --to --from --one --map-location --optimizer --param-names --assume-order --rank --world --strip-prefix --add-prefix
    --rename --drop --replace --allow-unused --tensor --role --device --cast --weights-only --plain --map-device-objects --fix --salvage --max-shard-size
    --memory --threads --lossy --dry-run --verify --force --no-sync --quiet --help --version'
__ckpt_commands='show list tree verify doctor extract stats diff scan'

# Does this option want a value in the next word?
__ckpt_wants()
{
    local COMPREPLY=() checkpoint= format=
    [[ $1 == -o || $1 == --* && $1 != *=* ]] && __ckpt_value "$1" '' 2>/dev/null
}

# Looks at the words before the one to complete: command, checkpoint, format, given (how many words are no options), and
# value_of (the option whose value is to be completed).
__ckpt_look()
{
    local i word
    command= checkpoint= format= given=0 value_of= options=1
    for ((i = 1; i < cword; i++)); do
        word=${words[i]}
        if [[ $options && $word == -- ]]; then
            options=
        elif [[ $options && $word == --from=* ]]; then
            format=${word#--from=}
        elif [[ $options && $word == -?* ]]; then
            __ckpt_wants "$word" || continue
            [[ $((i + 1)) -eq cword ]] && value_of=$word
            i=$((i + 1))
            [[ $word == --from ]] && format=${words[i]}
        elif [[ $given -eq 0 && -z $command && $options && " ${__ckpt_commands} " == *" $word "* ]]; then
            command=$word
        else
            given=$((given + 1))
            [[ $checkpoint ]] || checkpoint=$word
        fi
    done
    # The checkpoint may stand behind what is completed.
    for ((i = cword + 1; i < ${#words[@]}; i++)); do
        [[ $checkpoint || ${words[i]} == -* ]] || checkpoint=${words[i]}
    done
    return 0
}

_ckpt()
{
    local words cword command checkpoint format given value_of options current begin option program before=
    COMPREPLY=()
    __ckpt_words
    __ckpt_look
    current=${words[cword]}
    program=${words[0]##*/}
    [[ $program == ckpt-migrate* ]] && option=$__ckpt_migrate_options || option=$__ckpt_inspect_options
    if [[ $value_of ]]; then
        __ckpt_value "$value_of" "$current"
    elif [[ $options && $current == --*=* ]]; then
        before=${current%%=*}=
        __ckpt_value "${current%%=*}" "${current#*=}"
    elif [[ $options && $current == -* ]]; then
        # shellcheck disable=SC2086
        __ckpt_reply "$current" "$current" < <(printf '%s\n' $option)
    elif [[ $command == extract && $given -ge 1 ]]; then
        __ckpt_plain begin "$current"
        __ckpt_reply "$current" "$begin" < <(__ckpt_tensors extract "$current")
    else
        __ckpt_files "$current"
        if [[ $program != ckpt-migrate* && $given -eq 0 && -z $command && $options ]]; then
            # shellcheck disable=SC2086
            __ckpt_reply "$current" "$current" < <(printf '%s\n' $__ckpt_commands)
        fi
    fi
}

complete -F _ckpt ckpt-inspect ckpt-migrate
