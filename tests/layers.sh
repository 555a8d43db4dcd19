#!/bin/sh
# layers.sh - does every line of code know its room? The table below says which rooms a room may use; HACKING has the same
# table with a sentence each. Includes are read from the sources, calls from the objects of the build (nm). A room may use
# only rooms above it in the table, so there is no circle, in includes or in calls. At the end the check is turned on
# itself: violations are planted in a copy, and each must be found. The last thing printed is the rooms with their lines.
set -uf    # no globbing: the tables hold patterns
top=$(cd "${srcdir:-.}" && pwd) || exit 99
built=${builddir:-}    # where the objects are; without it (a run by hand) calls are not looked at, and this is said
LC_ALL=C
export LC_ALL

# room#files (where they are not all of src/ROOM; room_of knows them)#rooms that it may use, itself aside
rooms() {
    cat <<'TABLE'
base##
model##base
codec##base
io##base codec
device##base model
map##base model codec
layout##base model codec
scan##base model codec io
state##base model io device map
format##base model codec io
format/torch##base model codec io format
format/native##base model codec io format format/torch
format/dcp##base model codec io format format/torch format/native
format/keras##base model codec io format format/native
format/llmc##base model codec io format
format/megatron##base model codec io format format/native format/dcp
format/folder##base model codec io format format/native format/dcp
format/deepspeed##base model codec io format format/folder format/native
format/fsdp##base model codec io format format/folder
format/table#src/format/table* src/format/identify*#base model codec io format format/torch format/native format/dcp format/folder format/keras format/llmc format/deepspeed format/megatron format/fsdp
engine##base model codec io device format
anatomy##base model codec io map format format/torch format/native format/folder format/table
reader##base model codec io device format format/table engine anatomy
save##base model codec io device format format/native format/table state engine
restore##base model codec io device map format format/native format/table state engine anatomy reader
examine##base model codec io map format format/torch format/native format/folder format/table engine anatomy reader
doctor##base model codec io map format format/torch format/table engine anatomy reader examine
run##base model codec io device map format format/native state engine reader save restore examine
ranks##base model codec io layout format format/native format/folder format/table engine anatomy
migrate##base model codec io device map layout ranks format format/torch format/native format/dcp format/megatron format/folder format/llmc format/table engine anatomy reader examine doctor
cli/out##
cli/report##cli/out
cli/inspect##cli/out cli/report
cli/migrate##cli/out
cli/completion##cli/out
TABLE
}
most=6    # no room holds more than one part in so many of src/

# The room of a file or a header, as the path below src has it.
room_of() {
    folder=${1%/*}
    if may_include "$folder" >/dev/null; then echo "$folder"; else echo "${folder%%/*}"; fi
}

# Functions that belong to one place: names#files that may call them#why
owned_calls() {
    cat <<'TABLE'
rename|renameat|renameat2|unlink|unlinkat|fsync|fdatasync#src/io/* src/cli/*#publishing a file is the io room's
printf|puts|putchar|exit|abort|getenv|setlocale#src/cli/*#the library prints nothing, ends nothing and reads no environment
_exit|fork#src/io/trial.c src/cli/*#the library ends no process but one that it made to try something
strtod|strtof|atof|atoi#src/base/number.c src/cli/*#numbers are read by base/number.c, which does not depend on the locale
TABLE
}

# A comparison whose first or second argument is a format's name: x->format, or a variable called so.
format_name='(([^,;]*(->|\.))?format[ ]*|ckpt_reader_format\([^()]*\)[ ]*)'
format_compared="(^|[^A-Za-z0-9_])(str(n|case|ncase)?cmp|memcmp|ckpt__str_is)[ ]*\\(([ ]*$format_name,|[^,;]*,[ ]*$format_name[,)])"

# The room of each file on stdin: "file room". A family of formats is a room, and so is the table of them.
room_of() {
    awk '{
        n = split($1, part, "/")
        room = part[2]
        if ($1 ~ /^src\/format\/(table|identify)\./) room = "format/table"
        else if ((room == "format" || room == "cli") && n > 3) room = room "/" part[3]
        print $1, room
    }'
}

# The table itself: a room may use only what stands above it.
table_findings() {
    rooms | awk -F'#' '{
        count = split($3, used, " ")
        for (i = 1; i <= count; i++)
            if (!(used[i] in above)) print "layers.sh: the table lets " $1 " use " used[i] ", which is not above it"
        above[$1] = 1
    }'
}

# Lines "USER ROOM-OF-USER OTHER-ROOM TEXT" on stdin: those that the table does not permit, with the TEXT.
refuse() {
    rooms >"$work/table"
    awk -v table="$work/table" 'BEGIN {
        while ((getline line < table) > 0) {
            split(line, field, "#")
            known[field[1]] = 1
            may[field[1]] = field[3]
            count = split(field[3], used, " ")
            for (i = 1; i <= count; i++) permitted[field[1], used[i]] = 1
        }
    }
    {
        user = $1; room = $2; other = $3
        if (room == other || (room, other) in permitted) next
        text = $0
        sub(/^[^ ]+ [^ ]+ [^ ]+ /, "", text)
        print user ": " room " may not use " other " (" text "); it may use: " (may[room] == "" ? "nothing but itself" : may[room])
    }'
}

include_findings() {
    find src -name '*.[ch]' | sort | room_of >"$work/files"
    rooms | cut -d'#' -f1 >"$work/names"
    while read -r file room; do
        grep -qx "$room" "$work/names" || echo "$file: $room is no room of the house: add it to tests/layers.sh and HACKING"
    done <<FILES
$(awk '!seen[$2]++' "$work/files")
FILES
    # "FILE ROOM HEADER" of every include in quotes, and then the room of the header.
    # shellcheck disable=SC2046
    awk -v list="$work/files" 'BEGIN { while ((getline line < list) > 0) { split(line, field, " "); room[field[1]] = field[2] } }
        /^[ \t]*#[ \t]*include[ \t]*"/ { header = $0; sub(/^[^"]*"/, "", header); sub(/".*/, "", header); print FILENAME, room[FILENAME], header }
        /^[ \t]*#[ \t]*include[ \t]*<(cJSON|cjson|yaml|pcre2|isa-l|cuda)/ && room[FILENAME] ~ /^cli/ {
            print FILENAME ": the commands use public headers only: " $0 >"/dev/stderr" }' \
        $(cut -d' ' -f1 "$work/files") >"$work/included" 2>"$work/beyond"
    cat "$work/beyond"
    sed 's/^[^ ]* [^ ]* /src\//' "$work/included" | room_of | sed 's/.* //' | paste -d' ' "$work/included" - |
    while read -r file room header other; do
        case $header in
        ../*|*/../*) echo "$file: #include \"$header\" leaves its room by .." ;;
        */*) test "$other" = "$room" || echo "$file $room $other \"$header\"" ;;
        *) echo "$file: #include \"$header\" names no room: write \"ROOM/$header\"" ;;
        esac
    done >"$work/includes"
    grep -v '^[^ :]* [^ ]* [^ ]* "' "$work/includes"
    grep '^[^ :]* [^ ]* [^ ]* "' "$work/includes" | refuse
}

# Calls, and data that is named: a symbol that one object has and another one wants. Objects whose source is gone are not
# looked at. The library's objects lie in .libs where it is shared, else beside it.
call_findings() {
    objects=$1
    find "$objects/src" -path '*/.libs/libckpt_core_la-*.o' | sort >"$work/objects"
    test -s "$work/objects" || find "$objects/src" -name 'libckpt_core_la-*.o' | sort >"$work/objects"
    while read -r object; do
        file=${object#"$objects"/}
        case $file in */.libs/*) file=${file%/.libs/*}/${file##*/.libs/libckpt_core_la-} ;;
        *) file=${file%/*}/${file##*/libckpt_core_la-} ;; esac
        test -f "${file%.o}.c" && echo "$object ${file%.o}.c"
    done <"$work/objects" >"$work/pairs"
    test "$(wc -l <"$work/pairs")" -gt 0 || { echo "layers.sh: no objects below $objects"; return; }
    cut -d' ' -f2 "$work/pairs" | room_of | paste -d' ' "$work/pairs" - | cut -d' ' -f1,2,4 >"$work/rooms-of"
    # shellcheck disable=SC2046
    ${NM:-nm} -A $(cut -d' ' -f1 "$work/pairs") 2>/dev/null | awk -v list="$work/rooms-of" 'BEGIN {
        while ((getline line < list) > 0) { split(line, field, " "); file[field[1]] = field[2]; room[field[1]] = field[3] }
    }
    {
        at = index($0, ":"); object = substr($0, 1, at - 1); n = split(substr($0, at + 1), field, " ")
        type = field[n - 1]; symbol = field[n]
        if (type == "U") wants[object " " symbol] = 1
        else if (type ~ /^[TDBRVWC]$/) has[symbol] = object
    }
    END {
        for (want in wants) {
            split(want, field, " ")
            if (!(field[2] in has)) continue
            if (room[field[1]] != room[has[field[2]]])
                print file[field[1]], room[field[1]], room[has[field[2]]], field[2] " of " file[has[field[2]]]
        }
    }' | sort | refuse
}

findings() {
    cd "$1" || exit 99
    table_findings
    include_findings
    test -z "$2" || call_findings "$2"

    # What belongs to one place, with comments and strings taken out: "FILE:LINE:CODE".
    # shellcheck disable=SC2046
    strip $(find src -name '*.c' | sort) >"$work/stripped" || exit 99
    owned_calls | while IFS='#' read -r names files why; do
        grep -E "^[^:]*:[0-9]*:(.*[^A-Za-z0-9_>.])?($names)[ ]*\\(" "$work/stripped" | while IFS=: read -r file line code; do
            for owner in $files; do
                # shellcheck disable=SC2254
                case $file in $owner) continue 2 ;; esac
            done
            echo "$file:$line: $(sed -n "${line}p" "$file" | sed 's/^[ \t]*//'): $why"
        done
    done
    grep -v '^src/device/cuda' "$work/stripped" | grep -E '^[^:]*:[0-9]*:(.*[^A-Za-z0-9_])?cu[A-Z][A-Za-z0-9_]*[ ]*\(' |
    while IFS=: read -r file line code; do
        echo "$file:$line: the CUDA driver is called by src/device/cuda* only"
    done
    # What follows from a format is a fact of its row: ckpt__format_of(index)->canonical, ... The producer names the program
    # that wrote it, and asks which format it is.
    grep -vE '^src/(format/|cli/|anatomy/producer\.c:)' "$work/stripped" |
    grep -E "$format_compared|[!=]=[ ]*&ckpt__format_|CKPT__FAMILY_" | while IFS=: read -r file line code; do
        echo "$file:$line: $(sed -n "${line}p" "$file" | sed 's/^[ \t]*//'): a format's name is compared by src/format only:" \
             "ask a fact of its row (format/format.h)"
    done

    # A name is unique in its room (in format and cli: in its folder), and in tests, samples and bench together.
    for place in $(find src -mindepth 1 -maxdepth 1 -type d ! -name format ! -name cli) "tests samples bench"; do
        # shellcheck disable=SC2086
        find $place -name '*.[ch]' ! -path 'tests/data/*' -print 2>/dev/null | sed 's|.*/||' | sort | uniq -d | while read -r name; do
            echo "$name: this name is used twice: $(find $place -name "$name" | sort | tr '\n' ' ')"
        done
    done

    for fragment in $(find src tests samples man bench -name '*.inc' | sort); do
        grep -rqsxF "include $fragment" Makefile.am tests/unit/Makefile.inc || echo "$fragment: no Makefile includes it"
    done
    for source in $(find src tests/unit -name '*.[ch]' ! -name 'test_*.c' | sort); do
        grep -rqsF "$source" src tests --include='*.inc' || echo "$source: no Makefile.inc lists it"
    done
    for source in $(find tests/unit -name 'test_*.c' | sort); do
        grep -qsE "^[[:space:]]*${source%.c}( |\$)" "$(dirname "$source")/Makefile.inc" ||
            echo "$source: not in UNIT_TESTS of its Makefile.inc: nothing runs it"
    done
}

# Files and lines of each room; a room that holds too much is a finding (printed first).
sizes() {
    cd "$1" || exit 99
    find src -name '*.[ch]' | sort | room_of | while read -r file room; do echo "$room $(wc -l <"$file")"; done |
    awk -v most="$2" '{ files[$1]++; lines[$1] += $2; all += $2; count++ }
    END {
        for (room in files) {
            if (lines[room] * most > all) print "! " room " holds " lines[room] " of " all " lines: more than one part in " most
            printf "%-14s %4d files %6d lines %5.1f %%\n", room, files[room], lines[room], 100 * lines[room] / all
        }
        printf "%-14s %4d files %6d lines\n", "src", count, all
    }' | sort
}

# The C of files without comments, string and character literals, as "FILE:LINE:CODE".
strip() {
    awk 'FNR == 1 { inside = 0 }
    {
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
        print FILENAME ":" FNR ":" out
    }' "$@"
}

work=$(mktemp -d "${TMPDIR:-/tmp}/layers.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM

findings "$top" "$built" >"$work/found"
sizes "$top" $most >"$work/sizes"
sed -n 's/^! //p' "$work/sizes" >>"$work/found"
if [ -s "$work/found" ]; then
    cat "$work/found"
    echo "layers: $(wc -l <"$work/found") violations"
    exit 1
fi

# ---- does it find anything at all? One violation of each kind, each in a fresh copy.
planted=0
fresh_copy() {    # one room is enough
    rm -rf "$work/copy" "$work/objects-of"
    for room in tests/unit/base samples man bench; do mkdir -p "$work/copy/$room" || exit 99; done
    mkdir -p "$work/objects-of/src/base/.libs" "$work/objects-of/src/format/torch/.libs"
    (cd "$top" && tar cf - Makefile.am src/base) | (cd "$work/copy" && tar xf -) || exit 99
    chmod -R u+w "$work/copy"
}
expect() {
    findings "$work/copy" "$2" >"$work/found"
    if ! grep -q "$1" "$work/found"; then
        echo "layers: planted: $3"
        echo "layers: not found (expected: $1)"
        cat "$work/found"
        exit 1
    fi
    planted=$((planted + 1))
}
plant() {
    fresh_copy
    mkdir -p "$work/copy/$(dirname "$1")"
    printf '%s\n' "$2" >>"$work/copy/$1" || exit 99
    expect "$3" '' "$1: $2"
}
some=src/base/error.c
plant $some '#include "model/index.h"' 'base may not use model'
plant src/format/format.h '#include "device/device.h"' 'format may not use device'
plant src/format/torch/torch.c '#include "format/native/native.h"' 'format/torch may not use format/native'
plant src/format/native/native.c '#include "format/table.h"' 'format/native may not use format/table'
plant src/cli/out/planted.h '#include "engine/push.h"' 'cli/out may not use engine'
plant src/cli/report/planted.h '#include "cli/inspect/inspect.h"' 'cli/report may not use cli/inspect'
plant src/cli/out/planted.h '#include <cjson/cJSON.h>' 'public headers only'
plant $some '#include "../io/sink.h"' 'leaves its room'
plant $some '#include "nowhere.h"' 'names no room'
plant $some 'void f(void) { /* fine */ exit(1); }' 'the library prints nothing'
plant $some 'int f(void) { return rename("a", "b"); }' "the io room's"
plant $some 'void f(void) { cuInit(0); }' 'CUDA driver is called by'
plant $some 'double f(char *s) { return strtod(s, 0); }' 'depend on the locale'
plant $some 'int f(const t *x) { return strcmp(x->format, "ckpt") == 0; }' "a format's name"
plant $some 'int f(const char *format) { return !strncmp("torch", format, 5); }' "a format's name"
plant $some 'int f(const ckpt_reader *r) { return strncmp(ckpt_reader_format(r), "torch", 5); }' "a format's name"
plant $some 'int f(const t *x) { return x->row == &ckpt__format_torch; }' "a format's name"
plant $some 'int f(const t *x) { return x->row != &ckpt__format_torch; }' "a format's name"
plant $some 'int f(const t *x) { return x->row->family == CKPT__FAMILY_TORCH; }' "a format's name"
plant src/base/deep/error.c '/* twice */' 'used twice'
plant src/attic/thing.c '/* lost */' 'no room of the house'
plant src/base/orphan.c '/* lost */' 'no Makefile.inc lists it'
plant tests/unit/base/test_idle.c '/* lost */' 'nothing runs it'
plant src/base/lost.inc '# lost' 'no Makefile includes it'

# A call upwards, which no include shows: the function is declared where it is called.
plant_object() {    # file, C text
    mkdir -p "$work/copy/$(dirname "$1")"
    printf '%s\n' "$2" >"$work/copy/$1" || exit 99
    ${CC:-cc} -c "$work/copy/$1" -o "$work/objects-of/$(dirname "$1")/.libs/libckpt_core_la-$(basename "$1" .c).o" || exit 99
}
fresh_copy
plant_object src/format/torch/torch.c 'int ckpt__upper(void) { return 1; }'
plant_object src/base/error.c 'int ckpt__upper(void); int ckpt__lower(void) { return ckpt__upper(); }'
expect 'base may not use format/torch (ckpt__upper of src/format/torch/torch.c)' "$work/objects-of" 'a call from base to format/torch'
fresh_copy
plant_object src/format/torch/torch.c 'int ckpt__lower(void); int ckpt__upper(void) { return ckpt__lower(); }'
plant_object src/base/error.c 'int ckpt__lower(void) { return 1; }'
findings "$work/copy" "$work/objects-of" >"$work/found"
if grep -q 'may not use' "$work/found"; then
    echo "layers: a false alarm about a call downwards:"; cat "$work/found"
    exit 1
fi

# A table with a circle, and a room that holds too much.
fresh_copy
(
    rooms() { printf 'one##two\ntwo##one\n'; }
    table_findings
) | grep -q 'lets one use two' || { echo "layers: a circle in the table was not found"; exit 1; }
sizes "$work/copy" $most | grep -q '^! base holds' || { echo "layers: a room that holds too much was not found"; exit 1; }
planted=$((planted + 2))

# What must not be taken for a violation.
fresh_copy
printf '%s\n' '/* exit(1); rename(a, b) */' 'const char *s = "exit(1) \" printf(";' 'void g(void) { my_exit(1); ops->rename(0); }' \
    'int h(void) { return ckpt__str_is(format->text, "pt") || strcmp(f->code, "x"); } /* strcmp(x->format, y) */' >>"$work/copy/$some"
findings "$work/copy" '' >"$work/found"
if [ -s "$work/found" ]; then
    echo "layers: a false alarm:"; cat "$work/found"
    exit 1
fi
cat "$work/sizes"
test -n "$built" || echo "layers: builddir is not set: calls were not looked at (make check does)"
echo "layers: clean; $planted planted violations found"
