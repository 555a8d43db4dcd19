#!/bin/sh
# strict_test.sh - nothing overwritten, nothing ignored: files that are there, options of other commands, selections that match
# nothing, errors that name their file, reports that cannot be written.
. "${srcdir:-.}/tests/cli/cli_common.sh"
MIGRATE=$migrate
export MIGRATE

# report STATUS DESCRIPTION
report()
{
    [ "$1" -eq 0 ]
    check "$2"
}
# expect STATUS DESCRIPTION COMMAND...: the command ends with that status; its output is in ./out and ./err.
expect()
{
    wanted=$1
    description=$2
    shift 2
    "$@" >out 2>err
    got=$?
    [ $got -eq "$wanted" ] || echo "# exit status $got, expected $wanted"
    [ $got -eq "$wanted" ]
    report $? "$description"
}

# ---- an option of another command: every pair. The commands that take one are written here; "-": all do
cat >takers <<'END'
json -
tensor show list stats diff
role show list stats diff
device show list stats diff
allow-unused show list stats diff
checksum list
pieces list
from show list tree verify doctor extract stats diff
quiet -
color -
ndjson -
verbose show tree verify doctor stats
output extract
raw extract
npz extract
upcast extract
head extract
force extract
sort list
reverse list
exclude diff
limit list diff
nonfinite stats
watch show
markdown list stats diff
by show stats
run stats
check list extract stats diff
for doctor
torch doctor
load-weights-only doctor
optimizer doctor
map-location doctor
devices doctor
param-names doctor list
assume-order doctor
amp doctor
keep-last show
keep-every show
metadata-only doctor
one show list tree verify doctor extract stats
snippet doctor
device-memory doctor
world doctor
mesh doctor
values doctor show
atol diff
rtol diff
report show stats diff doctor
threads verify
help -
version -
END
"$builddir/src/cli/completion/generate" options inspect >table
sed 's/ .*//' table | sort >options
sed 's/ .*//' takers | sort | diff - options >err
report $? "this test knows every option"
commands='show list tree verify doctor extract stats diff scan'
cp "$data/cli/plain.pt" c.pt
wrong=
pairs=0
while read -r option takes; do
    value=
    grep -q "^$option [^-]" table && value==1
    for command in $commands; do
        pairs=$((pairs + 1))
        case " $takes " in *" $command "* | ' - ') taken=yes ;; *) taken= ;; esac
        # shellcheck disable=SC2086
        "$inspect" $command "--$option$value" c.pt c.pt c.pt c.pt >out 2>err
        status=$?
        if [ "$taken" ]; then
            ! grep -q 'has no option' err || wrong="$wrong $command:--$option(taken)"
            continue
        fi
        [ $status -eq 2 ] && [ ! -s out ] && grep -q "^ckpt-inspect: $command has no option --$option (.* ha\(s\|ve\) it)$" err || wrong="$wrong $command:--$option"
        case $takes in *' '*' '*' '*' '*' '*) continue ;; esac
        for other in $takes; do
            grep -q "[( ]$other[, ]" err || wrong="$wrong $command:--$option(not-naming-$other)"
        done
    done
done <takers
echo "$wrong" >err
[ -z "$wrong" ] && [ $pairs -gt 250 ]
report $? "$pairs pairs of a command and an option: status 2 where it is another's, and who has it is said"
expect 2 "by its short name too" "$inspect" show -o x.npy c.pt
[ ! -e x.npy ] && grep -q 'show has no option --output (extract has it)' err
report $? "and no file"
expect 2 "-q does not hide it" "$inspect" list -q --report x.html c.pt
expect 2 "with --json" "$inspect" list --json --report x.html c.pt
grep -q '"code": "usage"' out && grep -q 'has no option --report' out
report $? "as a document"
expect 2 "list --check without --checksum" "$inspect" list --check all c.pt
expect 0 "with it" "$inspect" list --check all --checksum c.pt
expect 2 "list --param-names without --json" "$inspect" list --param-names c.pt c.pt
expect 2 "show --values without --report" "$inspect" show --values c.pt
expect 2 "--keep-last of a file" "$inspect" show -q --keep-last 1 c.pt
grep -q '^ckpt-inspect: c.pt: --keep-last is for a run directory' err
report $? "says what it is for"
expect 2 "--metadata-only of a file" "$inspect" doctor --metadata-only c.pt
expect 0 "--keep-last of a run" "$inspect" show --keep-last 1 "$data/run/one"
expect 1 "--metadata-only of a run" "$inspect" doctor --metadata-only "$data/run/damaged"

# ---- a selection that matches nothing
for command in show list stats; do
    expect 2 "$command: a glob that is no name" "$inspect" $command --tensor weight c.pt
    grep -q "^ckpt-inspect: c.pt: no tensor matches --tensor 'weight'; '\*weight\*' matches 3; --allow-unused" err && [ ! -s out ]
    report $? "says which would be"
    expect 2 "$command: one of two" "$inspect" $command --tensor '*.weight' --tensor 'typo*' c.pt
    grep -q "'typo\*'" err
    report $? "names it"
    expect 2 "$command: a role that is not there" "$inspect" $command --role ema c.pt
    grep -q 'the roles here: param, buffer, step' err
    report $? "says which are"
    expect 2 "$command: a tag that is not there" "$inspect" $command --device xpu:0 c.pt
    grep -q 'the tags here: cuda:0, cpu' err
    report $? "says which are"
    expect 2 "$command: each is there, never together" "$inspect" $command --role param --tensor '*.step' c.pt
    grep -q 'together' err
    report $? "says so"
    expect 0 "$command: --allow-unused" "$inspect" $command --allow-unused --tensor weight c.pt
    grep -q "no tensor matches --tensor 'weight'" err
    report $? "warns"
    expect 0 "$command: -q --allow-unused" "$inspect" $command -q --allow-unused --tensor weight c.pt
    [ ! -s err ]
    report $? "does not"
done
expect 2 "= takes a star for a star" "$inspect" list --tensor '=*.weight' c.pt
grep -q "'\*.weight' matches 3" err
report $? "and the glob is named"
expect 2 "diff: in neither" "$inspect" diff --tensor weight c.pt "$data/cli/fused-step-cpu.pt"
grep -q "'\*weight\*' matches" err
report $? "says which would be"
expect 1 "diff: in one of them is enough" "$inspect" diff --tensor a.weight c.pt "$data/cli/weights.safetensors"
expect 0 "diff --allow-unused" "$inspect" diff --allow-unused --tensor weight c.pt c.pt
expect 2 "extract: the end of several names" "$inspect" extract c.pt weight -o x.npy
grep -q "^ckpt-inspect: c.pt: no tensor is called 'weight'; '\*weight\*' matches " err && [ ! -e x.npy ]
report $? "and no file"
expect 0 "extract: the end of one name" "$inspect" extract c.pt 0.weight -o x.npy
grep -q "^ckpt-inspect: c.pt: '0.weight' is taken to be model.0.weight, which a state calls so$" err && rm x.npy
report $? "the whole name is said"

# ---- what is there stays
fill() { printf 'not to be lost' >"$1"; }
is_filled() { [ "$(cat "$1")" = 'not to be lost' ]; }
extract() { "$inspect" extract "$@"; }
fill there
ln -s there link
ln there hard
ln -s nowhere dangling
mkdir folder
for name in there link hard; do
    expect 2 "extract -o: $name" extract c.pt model.0.weight -o $name
    is_filled there && grep -q "^ckpt-inspect: $name: it is there already.*--force" err
    report $? "it stays, and --force is named"
done
[ -L link ]
report $? "the link is one"
for force in '' --force; do
    # shellcheck disable=SC2086
    expect 2 "extract -o: a directory $force" extract $force c.pt model.0.weight -o folder
    [ -d folder ] && [ -z "$(ls -A folder)" ]
    report $? "it stays"
    # shellcheck disable=SC2086
    expect 2 "extract -o: a link to nothing $force" extract $force c.pt model.0.weight -o dangling
    [ -L dangling ] && [ ! -e nowhere ]
    report $? "nothing was made"
    ln -sf c.pt self.link
    ln -f c.pt self.hard
    for name in c.pt ./c.pt "$work/c.pt" self.link self.hard; do
        # shellcheck disable=SC2086
        expect 2 "extract -o: the checkpoint itself, $force $name" extract $force c.pt model.0.weight -o "$name"
        cmp -s c.pt "$data/cli/plain.pt"
        report $? "it is as it was"
    done
done
cp -r "$data/peers/hf-sharded" hf
chmod -R u+w hf
name=$("$inspect" list --json hf | sed -n 's/^ *{"name": "\([^"]*\)".*/\1/p' | head -n 1)
for file in hf/*; do
    for path in hf hf/*.index.json; do
        case $path,$file in hf,* | *,*.safetensors | "$file,$file") ;; *) continue ;; esac
        cp "$file" before
        expect 2 "extract --force -o $file from $path" extract --force $path "${name##*index.json.}" -o "$file"
        cmp -s before "$file"
        report $? "it is as it was"
    done
done
expect 0 "--force replaces another file" extract --force c.pt model.0.weight --raw -o link
[ -L link ] && ! is_filled there && is_filled hard
report $? "by a new one, through the link"
mkfifo pipe
cat pipe >piped &
expect 0 "a pipe is written to" extract c.pt model.0.weight --raw -o pipe
wait
cmp -s piped there && [ -p pipe ]
report $? "what comes out is the tensor"
(umask 027 && extract c.pt model.0.weight -o mode.npy)
[ "$(stat -c %a mode.npy)" = 640 ]
report $? "a new file has the mode that umask leaves"
if command -v strace >/dev/null 2>&1 && strace -f -o trace -e trace=openat,renameat2,rename,fchmod "$inspect" extract c.pt model.0.weight -o traced.npy 2>/dev/null; then
    grep -q 'traced.npy.tmp-[A-Za-z0-9]*", O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0600' trace &&
        grep -q 'renameat2(.*traced.npy.tmp-.*"traced.npy", RENAME_NOREPLACE' trace && ! grep -q 'openat(.*"traced.npy"' trace
    report $? "a temporary of mode 0600 is written, and renamed only where nothing is"
else
    count=$((count + 1))
    echo "ok $count - the temporary # SKIP nothing traces here"
fi
[ -z "$(find . -name '*.tmp*')" ]
report $? "no temporary is left"

# ---- every error begins with the path that was given
: >wrong
errors=0
# errors_of COMMAND FILE: in text and in JSON.
errors_of()
{
    # shellcheck disable=SC2086
    "$inspect" $1 "$2" >out 2>err
    if [ $? -eq 2 ]; then
        errors=$((errors + 1))
        head -n 1 err | grep -q "^ckpt-inspect: " && ! head -n 1 err | grep -qF "ckpt-inspect: $2" && sed "s|^|$1 $2: |" err >>wrong
        # shellcheck disable=SC2086
        "$inspect" $1 --json "$2" >out 2>/dev/null
        sed -n '/"error"/,/}/s/^ *"message": "//p' out | head -n 1 | grep -qF "$2" || echo "$1 --json $2: $(grep '"message"' out | head -n 1)" >>wrong
    fi
}
mkdir bad
for file in cli/plain.pt cli/weights.safetensors cli/values.pt peers/torch-1.13-legacy.pt peers/lightning.ckpt; do
    size=$(wc -c <"$data/$file")
    for part in 9 50 90; do
        head -c $((size * part / 100)) "$data/$file" >"bad/$part-${file##*/}"
    done
    # One bit, in places that are far apart.
    for part in 2 23 53 97; do
        cp "$data/$file" "bad/bit$part-${file##*/}"
        chmod u+w "bad/bit$part-${file##*/}"
        printf '\377' | dd of="bad/bit$part-${file##*/}" bs=1 seek=$((size * part / 100)) conv=notrunc 2>/dev/null
    done
done
find "$data/cli" "$data/run" "$data/peers" "$work/bad" -type f ! -name '*.py' ! -name README >files
find "$data/run" "$data/peers" -type d >>files
while IFS= read -r file; do
    for command in show tree stats; do
        errors_of $command "$file"
    done
done <files
for file in "$data"/cli/* "$work"/bad/*; do
    for command in verify 'list --checksum' 'doctor --values' scan; do
        errors_of "$command" "$file"
    done
done
cp wrong err
[ ! -s wrong ] && [ $errors -gt 100 ]
report $? "ckpt-inspect: $errors errors"
: >wrong
errors=0
for file in "$work"/bad/* "$data"/cli/*; do
    rm -f x.pt
    "$migrate" "$file" x.pt >out 2>err && continue
    errors=$((errors + 1))
    grep -q "^ckpt-migrate: $file" err || sed "s|^|$file: |" err >>wrong
    "$migrate" --json "$file" x.pt >out 2>/dev/null
    sed -n '/"error"/,/}/s/^ *"message": "//p' out | head -n 1 | grep -qF "$file" || echo "--json $file: $(grep '"message"' out | head -n 1)" >>wrong
done
cp wrong err
[ ! -s wrong ] && [ $errors -gt 30 ]
report $? "ckpt-migrate: $errors errors"
deep=$(printf 'a%.0s' $(seq 120))/$(printf 'b%.0s' $(seq 120))/$(printf 'c%.0s' $(seq 120))
mkdir -p "$deep"
cp "$data/cli/bad-crc.pt" "$deep/one.pt"
head -c 3000 c.pt >"$deep/two.pt"
for file in "$deep/one.pt" "$deep/two.pt" "$deep/none.pt"; do
    expect 2 "a long path, ${file##*/}" "$inspect" stats "$file"
    grep -qF "ckpt-inspect: $file: " err
    report $? "is not cut"
done
cp "$data/cli/bad-crc.pt" "$(printf 'a\033[31m.pt')"
expect 2 "a path with control characters" "$inspect" stats "$(printf 'a\033[31m.pt')"
grep -qF 'ckpt-inspect: a\x1b[31m.pt: model.0.weight: ' err
report $? "is escaped"
expect 2 "of a diff the one that is damaged" "$inspect" diff c.pt "$data/cli/bad-crc.pt"
grep -qF "ckpt-inspect: $data/cli/bad-crc.pt: model.0.weight: the CRC-32" err
report $? "is named"

# ---- the target is whole, and the report of it is not
if [ -w /dev/full ]; then
    "$migrate" c.pt full.safetensors >/dev/full 2>err
    [ $? -eq 2 ] && grep -q '^ckpt-migrate: full.safetensors is complete; only this report could not be written: standard output' err
    report $? "ckpt-migrate says that DST is complete"
    expect 0 "as it is" "$inspect" verify full.safetensors
    "$migrate" --json --verify c.pt full.pt >/dev/full 2>err
    [ $? -eq 2 ] && grep -q 'full.pt is complete' err
    report $? "with --json too"
    "$migrate" --dry-run c.pt dry.pt >/dev/full 2>err
    [ $? -eq 2 ] && ! grep -q 'complete' err
    report $? "a dry run made nothing"
    "$inspect" extract --json c.pt model.0.weight -o full.npy >/dev/full 2>err
    [ $? -eq 2 ] && grep -q 'full.npy is complete' err && [ -s full.npy ]
    report $? "extract --json too"
fi

# ---- progress: what is read back is not written a second time
cat >progress.py <<'END'
import json, os, pty, re, select, signal, struct, sys, time
size = 192 << 20
head = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
with open("big.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head)
    f.truncate(8 + len(head) + size)
pid, terminal = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execv(os.environ["MIGRATE"], ["ckpt-migrate", "--no-sync", "--threads", "1", "--verify", "big.safetensors", "again.pt"])
seen = b""
rounds = 0
deadline = time.monotonic() + 60
while time.monotonic() < deadline:       # in slow motion: it stands still most of the time
    rounds += 1
    if select.select([terminal], [], [], 0)[0]:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    try:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.12)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.001 if rounds < 150 else 0.03)   # a build with sanitizers has more to do
    except ProcessLookupError:
        break
os.waitpid(pid, 0)
lines = re.findall(r"(written|read back) ([0-9.]+) (\w+) of ([0-9.]+ \w+)", seen.decode())
print(lines[:3], lines[-3:], file=sys.stderr)
verbs = [line[0] for line in lines]
assert "written" in verbs and "read back" in verbs, verbs
assert verbs == sorted(verbs, reverse=True), verbs          # first the one, then the other
assert all(line[3].startswith("192.") for line in lines), lines
END
if python3 -c 'import pty' 2>/dev/null; then
    python3 progress.py 2>err
    report $? "--verify: written of the size of the file, then read back of it"
else
    count=$((count + 1))
    echo "ok $count - progress # SKIP no python3"
fi

echo "1..$count"
[ "$failures" -eq 0 ]
