#!/bin/sh
# man_examples.sh - are the EXAMPLES of the man pages true? The commands of each page are run in its order, in a terminal of 72
# columns (a page is indented), in a folder with a few files of tests/data, and must print what the page shows.
# `man_examples.sh --write` writes the pages anew with what the commands print now.
set -u
srcdir=${srcdir:-.} builddir=${builddir:-.}
top=$(cd "$srcdir" && pwd) build=$(cd "$builddir" && pwd)
command -v script >/dev/null 2>&1 || { echo "script (util-linux) is not there: the sessions cannot be run"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/examples.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
PATH=$build/src/cli:$PATH NO_COLOR=1 SOURCE_DATE_EPOCH=86400
export PATH NO_COLOR SOURCE_DATE_EPOCH

# What the examples begin with: a trainer's last checkpoint, one that was cut off, an older one, a framework's.
files() {
    cp "$top/tests/data/torch-handover/ar-ckpt-mixed.pth" last.pth
    cp "$top/tests/data/cli/fused-step-cpu.pt" before.pt
    cp "$top/tests/data/cli/fused-step-cuda.pt" after.pt
    head -c 6000 "$top/tests/data/cli/fused-step-cpu.pt" >cut.pt
    cp "$top/tests/data/peers/lightning.ckpt" lightning.ckpt
    cp -r "$top/tests/data/run/damaged" run
    chmod -R u+w .
}

# A line as the page's source has it, and back: what can be copied out of the page as it was typed.
to_roff() { sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/'/\\\\(aq/g" -e 's/`/\\(ga/g' -e 's/\^/\\(ha/g' -e 's/~/\\(ti/g' -e 's/^\./\\\&./'; }
from_roff() { sed -e 's/^\\&//' -e 's/\\(ti/~/g' -e 's/\\(ha/^/g' -e 's/\\(ga/`/g' -e "s/\\\\(aq/'/g" -e 's/\\-/-/g' -e 's/\\e/\\/g'; }

# The page with its sessions as they come out now.
rewrite() {
    mkdir "$work/$1" && cd "$work/$1" && files || exit 99
    examples='' session=''
    while IFS= read -r line; do
        case $line in
        '.SH EXAMPLES') examples=yes ;;
        .SH*) examples='' ;;
        .nf) [ -z "$examples" ] || session=yes ;;
        .fi) session='' ;;
        esac
        if [ -z "$session" ] || [ "$line" = .nf ]; then
            printf '%s\n' "$line"
            continue
        fi
        case $line in '$ '*) ;; *) continue ;; esac
        printf '%s\n' "${line#'$ '}" | from_roff | to_roff | sed 's/^/$ /'
        command=$(printf '%s\n' "${line#'$ '}" | from_roff)
        script -qec "stty cols 72; $command" /dev/null </dev/null | tr -d '\r' | to_roff
    done <"$top/man/$1"
    cd "$top" || exit 99
}

status=0
for page in ckpt-inspect.1 ckpt-inspect-show.1 ckpt-inspect-list.1 ckpt-inspect-tree.1 ckpt-inspect-verify.1 ckpt-inspect-doctor.1 \
    ckpt-inspect-extract.1 ckpt-inspect-stats.1 ckpt-inspect-diff.1 ckpt-inspect-scan.1 ckpt-migrate.1; do
    rm -rf "$work/$page"
    rewrite "$page" >"$work/now" || exit 99
    if [ "${1:-}" = --write ]; then
        cp "$work/now" "$top/man/$page"
        continue
    fi
    commands=$(awk '/^\.SH/ { inside = $2 == "EXAMPLES" } inside && /^\$ ckpt/ { n++ } END { print n + 0 }' "$work/now")
    case $page in ckpt-migrate.1) least=6 ;; *) least=1 ;; esac
    [ "$commands" -ge $least ] || { echo "$page: only $commands commands were found in its EXAMPLES"; status=1; }
    diff "$top/man/$page" "$work/now" || { echo "$page: < the page, > what the commands print"; status=1; }
    if command -v mandoc >/dev/null 2>&1; then
        mandoc -Tlint -W warning "$top/man/$page" || { echo "$page: mandoc warns"; status=1; }
    fi
done
exit $status
