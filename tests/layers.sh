#!/bin/sh
# layers.sh - does every line of code know its room? Which room may include which is written down here and in HACKING;
# file names are unique; every Makefile.inc and *.inc fragment is part of the build. At the end the check is turned on
# itself: violations are planted in a copy, and each must be found.
set -uf    # no globbing: the tables hold patterns
top=$(cd "${srcdir:-.}" && pwd) || exit 99

# room: the rooms whose headers it may include (its own always). A room may name another's header only as "room/x.h". A
# folder in a room that stands here ("cli/out") is a room of its own; another one belongs to its room.
may_include() {
    case $1 in
    base) echo "" ;;
    model) echo "base" ;;
    codec) echo "base" ;;
    io) echo "base" ;;
    device) echo "base model engine state" ;;                                # engine, state: to be cut
    map) echo "base model codec" ;;
    layout) echo "base model map" ;;
    format) echo "base model codec io" ;;
    scan) echo "base model codec io" ;;
    state) echo "base model map device io save" ;;                           # save: to be cut
    engine) echo "base model codec io device format state" ;;                # state: to be cut
    anatomy) echo "base model codec map format state migrate engine" ;;      # state, migrate, engine: to be cut
    reader) echo "base model codec io device format engine anatomy" ;;
    save) echo "base model codec io device format state engine" ;;
    restore) echo "base model codec io device map format state engine anatomy reader migrate" ;;      # migrate: to be cut
    examine) echo "base model codec io map format engine anatomy reader migrate" ;;      # migrate: to be cut
    doctor) echo "base model codec io map format engine anatomy reader examine migrate" ;;    # migrate: to be cut
    run) echo "base model codec io device map format state engine reader save restore examine" ;;
    migrate) echo "base model codec io device map format scan state engine anatomy reader examine doctor" ;;
    cli/out) echo "" ;;
    cli/completion) echo "cli/out" ;;
    cli/report) echo "cli/out" ;;
    cli/inspect) echo "cli/out cli/report" ;;
    cli/migrate) echo "cli/out" ;;
    *) return 1 ;;
    esac
}

# The room of a file or a header, as the path below src has it.
room_of() {
    folder=${1%/*}
    if may_include "$folder" >/dev/null; then echo "$folder"; else echo "${folder%%/*}"; fi
}

# Functions that belong to one place: names#files that may call them#why
owned_calls() {
    cat <<'TABLE'
rename|renameat|renameat2|unlink|unlinkat|fsync|fdatasync#src/io/* src/cli/*#publishing a file is the io room's
printf|puts|putchar|exit|_exit|abort|getenv|setlocale#src/cli/*#the library prints nothing, ends nothing and reads no environment
strtod|strtof|atof|atoi#src/base/number.c src/cli/*#numbers are read by base/number.c, which does not depend on the locale
TABLE
}

findings() {
    cd "$1" || exit 99
    for file in $(find src -name '*.[ch]' | sort); do
        room=$(room_of "${file#src/}")
        if ! allowed=$(may_include "$room"); then
            echo "$file: src/$room is no room of the house: add it to tests/layers.sh and HACKING"
            continue
        fi
        for header in $(sed -n 's/^[ \t]*#[ \t]*include[ \t]*"\([^"]*\)".*/\1/p' "$file"); do
            case $header in
            ../*|*/../*) echo "$file: #include \"$header\" leaves its room by .."; continue ;;
            */*) other=$(room_of "$header") ;;
            *) other=$room; test -f "src/$room/$header" || other="?" ;;
            esac
            if [ "$other" = "?" ]; then
                echo "$file: #include \"$header\" names no room: write \"$room/$header\""
            elif [ "$other" != "$room" ]; then
                case " $allowed " in
                *" $other "*) ;;
                *) echo "$file: $room may not include $other (\"$header\"); it may include: ${allowed:-nothing but itself}" ;;
                esac
            fi
        done
        case $room in cli*)
            sed -n 's/^[ \t]*#[ \t]*include[ \t]*<\(cJSON\|cjson\|yaml\|pcre2\|isa-l\|cuda\)[^>]*>.*/&/p' "$file" |
            while read -r line; do echo "$file: the commands use public headers only: $line"; done ;;
        esac
    done

    # Calls, with comments and strings taken out.
    for file in $(find src -name '*.c' | sort); do
        strip "$file" >"$work/stripped" || exit 99
        owned_calls | while IFS='#' read -r names files why; do
            for owner in $files; do
                # shellcheck disable=SC2254
                case $file in $owner) continue 2 ;; esac
            done
            grep -nE "(^|[^A-Za-z0-9_>.])($names)[ ]*\\(" "$work/stripped" | sed 's/:.*//' | while read -r line; do
                echo "$file:$line: $(sed -n "${line}p" "$file" | sed 's/^[ \t]*//'): $why"
            done
        done
        case $file in src/device/cuda*) ;; *)
            grep -nE '(^|[^A-Za-z0-9_])cu[A-Z][A-Za-z0-9_]*[ ]*\(' "$work/stripped" | sed 's/:.*//' | while read -r line; do
                echo "$file:$line: the CUDA driver is called by src/device/cuda* only"
            done ;;
        esac
    done

    # A name is unique in its room (in format and cli: in its folder), and in tests, samples and bench together.
    for place in $(find src -mindepth 1 -maxdepth 1 -type d ! -name format ! -name cli) "tests samples bench"; do
        # shellcheck disable=SC2086
        find $place -name '*.[ch]' -print 2>/dev/null | sed 's|.*/||' | sort | uniq -d | while read -r name; do
            echo "$name: this name is used twice: $(find $place -name "$name" | sort | tr '\n' ' ')"
        done
    done

    for fragment in $(find src tests samples man bench -name '*.inc' | sort); do
        grep -rqsxF "include $fragment" Makefile.am tests/unit/Makefile.inc || echo "$fragment: no Makefile includes it"
    done
    for source in $(find src tests/unit -name '*.[ch]' | sort); do
        grep -rqsF "$source" src tests --include='*.inc' || echo "$source: no Makefile.inc lists it"
    done
    for source in $(find tests/unit -name 'test_*.c' | sort); do
        grep -qsE "^[[:space:]]*(TESTS \+= *)?${source%.c}( |\$)" tests/unit/Makefile.inc ||
            echo "$source: not in TESTS of tests/unit/Makefile.inc: nothing runs it"
    done
}

# C without comments, string and character literals; line numbers stay.
strip() {
    awk '{
        line = $0; out = ""
        while (length(line) > 0) {
            if (inside) {
                at = index(line, "*/")
                if (at == 0) { line = ""; break }
                line = substr(line, at + 2); inside = 0; continue
            }
            if (match(line, /\/\*|\/\/|"|\047/) == 0) { out = out line; break }
            out = out substr(line, 1, RSTART - 1)
            mark = substr(line, RSTART, RLENGTH); line = substr(line, RSTART + RLENGTH)
            if (mark == "/*") { inside = 1; continue }
            if (mark == "//") break
            while (length(line) > 0) {
                c = substr(line, 1, 1); line = substr(line, 2)
                if (c == "\\") { line = substr(line, 2); continue }
                if (c == mark) break
            }
            out = out mark mark
        }
        print out
    }' "$1"
}

work=$(mktemp -d "${TMPDIR:-/tmp}/layers.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM

findings "$top" >"$work/found"
if [ -s "$work/found" ]; then
    cat "$work/found"
    echo "layers: $(wc -l <"$work/found") violations"
    exit 1
fi

# ---- does it find anything at all? One violation of each kind, each in a fresh copy.
planted=0
fresh_copy() {    # one room is enough
    rm -rf "$work/copy"
    for room in tests/unit samples man bench; do mkdir -p "$work/copy/$room" || exit 99; done
    (cd "$top" && tar cf - Makefile.am src/base) | (cd "$work/copy" && tar xf -) || exit 99
    chmod -R u+w "$work/copy"
}
plant() {
    fresh_copy
    mkdir -p "$work/copy/$(dirname "$1")"
    printf '%s\n' "$2" >>"$work/copy/$1" || exit 99
    findings "$work/copy" >"$work/found"
    if ! grep -q "$3" "$work/found"; then
        echo "layers: planted in $1: $2"
        echo "layers: not found (expected: $3)"
        exit 1
    fi
    planted=$((planted + 1))
}
some=src/base/error.c
plant $some '#include "model/index.h"' 'base may not include model'
plant src/format/format.h '#include "device/device.h"' 'format may not include device'
plant src/cli/out/planted.h '#include "engine/engine.h"' 'cli/out may not include engine'
plant src/cli/report/planted.h '#include "cli/inspect/run.h"' 'cli/report may not include cli/inspect'
plant src/cli/migrate/planted.h '#include <cjson/cJSON.h>' 'public headers only'
plant $some '#include "../io/sink.h"' 'leaves its room'
plant $some '#include "nowhere.h"' 'names no room'
plant $some 'void f(void) { /* fine */ exit(1); }' 'the library prints nothing'
plant $some 'int f(void) { return rename("a", "b"); }' "the io room's"
plant $some 'void f(void) { cuInit(0); }' 'CUDA driver is called by'
plant $some 'double f(char *s) { return strtod(s, 0); }' 'depend on the locale'
plant src/base/deep/error.c '/* twice */' 'used twice'
plant src/attic/thing.c '/* lost */' 'no room of the house'
plant src/base/orphan.c '/* lost */' 'no Makefile.inc lists it'
plant tests/unit/test_idle.c '/* lost */' 'nothing runs it'
plant src/base/lost.inc '# lost' 'no Makefile includes it'
# What must not be taken for a violation.
fresh_copy
printf '%s\n' '/* exit(1); rename(a, b) */' 'const char *s = "exit(1) \" printf(";' 'void g(void) { my_exit(1); ops->rename(0); }' >>"$work/copy/$some"
findings "$work/copy" >"$work/found"
if [ -s "$work/found" ]; then
    echo "layers: a false alarm:"; cat "$work/found"
    exit 1
fi
echo "layers: clean; $planted planted violations found"
