#!/bin/sh
# report_test.sh - --report: the page word for word (golden/report-*.html, without its style sheet), with names that were made
# to break it, of a file with 100,000 tensors, and where it may be written.
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
builddir=$(cd "${builddir:-.}" && pwd) || exit 99
inspect=$builddir/src/cli/ckpt-inspect
golden=$srcdir/tests/cli/golden
work=$(mktemp -d "${TMPDIR:-/tmp}/ckpt-report.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
LC_ALL=C NO_COLOR=1 SOURCE_DATE_EPOCH=86400
export LC_ALL NO_COLOR SOURCE_DATE_EPOCH
cd "$work" || exit 99
cp "$srcdir/tests/data/cli/fused-step-cpu.pt" "$srcdir/tests/data/cli/plain.pt" "$srcdir/tests/data/cli/three-devices.pt" \
    "$srcdir/tests/data/cli/plain-step-cuda.pt" .
chmod u+w ./*.pt

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
        [ ! -s err ] || sed 's/^/# /' err
    fi
}
# expect STATUS DESCRIPTION OPTION...
expect()
{
    wanted=$1
    description=$2
    shift 2
    "$inspect" "$@" >out 2>err
    got=$?
    [ $got -eq "$wanted" ] || echo "# exit status $got, expected $wanted"
    [ $got -eq "$wanted" ]
    report $? "$description"
}
# page NAME: report.html is golden/report-NAME.html. The style sheet and the version change for reasons of their own.
page()
{
    sed -e '/^<style>$/,/^<\/style>$/d' -e 's/ckpt 0[0-9.]*"/ckpt VERSION"/' -e 's/ckpt-inspect [0-9][^ ]* (.*), by this command/ckpt-inspect VERSION (BUILD), by this command/' \
        report.html >now.html
    [ "$CLI_GOLDEN" != write ] || cp now.html "$golden/report-$1.html"
    diff -u "$golden/report-$1.html" now.html | sed 's/^/# /'
    cmp -s "$golden/report-$1.html" now.html
    report $? "$2"
}

expect 0 "show says what it says without a report" show --report report.html fused-step-cpu.pt
"$inspect" show fused-step-cpu.pt | cmp -s - out
report $? "word for word"
grep -q '^ckpt-inspect: report.html: report written ([0-9.]* KiB)$' err
report $? "and on standard error where the page is"
page show "the page of show"
expect 1 "doctor keeps its status" doctor --torch 2.0 --load-weights-only no --report report.html fused-step-cpu.pt
grep -q 'report replaced' err
report $? "a page replaces a page"
page doctor "the page of doctor"
grep -q 'id="verdict" class="error"' report.html && grep -q 'It loads, and fails at the first step' report.html &&
    grep -q '<code>fails-at-step</code>' report.html
report $? "the verdict in words, beside its colour"
sed -n '/<section class="verdict/,/<\/section>/p' report.html >verdict
grep -q 'comes back on the cpu' verdict && grep -q '<pre><code>ckpt-migrate --fix step-on-cpu ' verdict && grep -q '<a href="#step-on-cpu">' verdict &&
    [ "$(grep -c '<h3 id="step-on-cpu">' report.html)" = 1 ]
report $? "with its cause, one fix, and a link to the others"
[ "$(grep -c '<p class="fix">Python</p>' report.html)" -ge 2 ] && ! grep -q '<pre><code>.*; or' report.html
report $? "a block for each way"
grep -q '<details><summary>[0-9]* notes\{0,1\}</summary>' report.html
report $? "notes are folded up"
expect 1 "doctor --json is one document, with the same status" doctor --json --torch 2.0 --load-weights-only no --report report.html fused-step-cpu.pt
[ "$(head -c 1 out)" = '{' ] && [ "$(grep -c '^{' out)" = 1 ]
report $? "on standard output"
expect 0 "--quiet" show -q --report report.html plain.pt
[ ! -s err ]
report $? "says nothing of the page"
expect 0 "a selection" show --role exp_avg --report report.html fused-step-cpu.pt
grep -q '<dt>tensors selected</dt>' report.html && ! grep -q '>exp_avg_sq<' report.html
report $? "is what the page is of"
expect 0 "values are left out" show --report report.html plain.pt
grep -q 'Left out, because' report.html && ! grep -q 'class="hist"' report.html
report $? "and the page says so"
expect 0 "but with --values" show --values --report report.html plain.pt
grep -q 'class="hist"' report.html && ! grep -q 'Left out, because' report.html
report $? "there are histograms"
expect 1 "diff" diff --report report.html fused-step-cpu.pt plain-step-cuda.pt
grep -q 'The two differ' report.html && grep -q 'Tensors that differ' report.html && grep -q 'Other values that differ' report.html
report $? "has a page too"
page diff "word for word"
expect 0 "of what is the same" diff --report report.html plain.pt plain.pt
grep -q 'The two hold the same' report.html && ! grep -q 'Tensors that differ' report.html
report $? "it says so"

# ---- names that were made to break a page
name() { printf '"%s":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}' "$1" "$2" $(($2 + 4)); }
header='{'$(name '<script>alert(1)</script>' 0),$(name 'a&amp;\"b'"'c" 4),$(name '</style></title><img src=x onerror=alert(1)>' 8),$(
    name ']]><!--' 12),$(name 'line\nfeed\u0001\u0000\u202eback\u200f\ufffe' 16),$(name '&#x202e;' 20)'}'
length=$(printf '%s' "$header" | wc -c)
{
    # shellcheck disable=SC2059
    printf "\\$(printf '%03o' $((length % 256)))\\$(printf '%03o' $((length / 256)))\\0\\0\\0\\0\\0\\0"
    printf '%s' "$header"
    printf '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
} >'<b> & '"'"'x'"'"' $(touch pwned).safetensors'
expect 0 "a hostile file" show --report report.html '<b> & '"'"'x'"'"' $(touch pwned).safetensors'
! grep -qE '<(script|img|b)[ >]|alert\(1\)>' report.html
report $? "brings no element of its own"
sed 's,<wbr/>,,g' report.html >whole.html
grep -q '&lt;script&gt;alert(1)&lt;/script&gt;' whole.html && grep -q 'a&amp;amp;&quot;b&#39;c' report.html && grep -q '&amp;#x202e;' report.html
report $? "its names are escaped"
if python3 -c '' 2>/dev/null; then
cat >names.py <<'END'
"""Long names of a diff's page: broken behind their separators alone, and whole in its text."""
import html.parser, json, struct, subprocess, sys, xml.dom.minidom
names = ["model.layers.%d.self_attention.query/key_value.weight" % i for i in range(3)] + ["a..b", "v1.25", "a&b.c", ".hidden"]
for file, value in ("long-a.safetensors", 1), ("long-b.safetensors", 2):
    head, data = {}, b""
    for name in names:
        head[name] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
        data += struct.pack("<f", value)
    text = json.dumps(head).encode()
    open(file, "wb").write(struct.pack("<Q", len(text)) + text + data)
subprocess.run([sys.argv[1], "diff", "-q", "--report", "long.html", "long-a.safetensors", "long-b.safetensors"], stdout=subprocess.DEVNULL)
page = open("long.html").read()
xml.dom.minidom.parseString(page.replace("<!DOCTYPE html>", "").encode())
class Text(html.parser.HTMLParser):
    text = ""
    def handle_data(self, data):
        self.text += data
    def handle_starttag(self, tag, attributes):
        assert all("<" not in (v or "") for k, v in attributes), attributes
reader = Text()
reader.feed(page)
assert all(name in reader.text for name in names + ["long-a.safetensors"]), reader.text
for shown in ("model.<wbr/>layers.<wbr/>0.<wbr/>self_<wbr/>attention.<wbr/>query/<wbr/>key_<wbr/>value.<wbr/>weight</span>",
              ">a..<wbr/>b<", ">v1.25<", ">a&amp;b.<wbr/>c<", ">.hidden<"):
    assert shown in page, shown
head, main = page.split("<body>")
assert "<wbr" not in head and "<wbr" not in main[main.index("<footer>"):]
END
python3 names.py "$inspect" 2>err
report $? "a long name is broken behind its separators alone, and is whole in the page's text"
rm -f long.html long-a.safetensors long-b.safetensors names.py
fi
grep -qF 'line\nfeed\x01\x00\u202eback\u200f\ufffe' report.html
report $? "what cannot be seen is seen"
[ "$(tr -d '\n[:print:]\200-\377' <report.html | wc -c)" = 0 ] && ! grep -q "$(printf '\342\200\256')" report.html
report $? "and no control character is left"
grep -qF "<pre><code>ckpt-inspect show --report report.html &#39;&lt;b&gt; &amp; &#39;\\&#39;&#39;x&#39;\\&#39;&#39; \$(touch pwned).safetensors&#39;</code></pre>" report.html
report $? "the command line can be pasted"
! grep -qE '<[^>]*(src=|href="[^#])|url\(|@import|<script|<link' report.html
report $? "nothing is loaded from elsewhere, and links stay on the page"

# ---- 100,000 tensors
awk 'BEGIN {
    n = 100000
    printf "{"
    for (i = 0; i < n; i++)
        printf "%s\"model.layer%d.<weight>.of.a.layer.with.a.long.name\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[%d,%d]}", i ? "," : "", i, 2 * i, 2 * i + 2
    printf "}"
}' >header
length=$(wc -c <header)
{
    # shellcheck disable=SC2059
    printf "\\$(printf '%03o' $((length % 256)))\\$(printf '%03o' $((length / 256 % 256)))\\$(printf '%03o' $((length / 65536)))\\0\\0\\0\\0\\0"
    cat header
    head -c 200000 /dev/zero
} >many.safetensors
for command in show doctor; do
    "$inspect" $command -q --report report.html many.safetensors >out 2>err
    [ "$(wc -c <report.html)" -lt 300000 ] && grep -q '>and 99995 more<' report.html && grep -q '<td data-label="of this shape" class="n">100,000</td>' report.html
    report $? "$command: the page of 100,000 tensors is small, and says what it left out"
done
"$inspect" diff -q --report report.html many.safetensors plain.pt >out 2>err
[ "$(wc -c <report.html)" -lt 1000000 ] && grep -q 'and [0-9]* more; <code>--json</code> has all' report.html
report $? "diff: so is that of 100,000 differences"

# ---- where it may be written
cp plain.pt kept.pt
expect 2 "not over what is looked at" show --report plain.pt plain.pt
expect 2 "by whatever name" show --report ./plain.pt plain.pt
ln -s plain.pt link.html
expect 2 "or link" show --report link.html plain.pt
cmp -s plain.pt kept.pt
report $? "which is as it was"
expect 2 "not over any other file that is no page" show --report three-devices.pt plain.pt
cmp -s three-devices.pt "$srcdir/tests/data/cli/three-devices.pt"
report $? "which is as it was too"
expect 2 "not to standard output" show --report - plain.pt
expect 2 "by its other name either" show --report /dev/stdout plain.pt
[ ! -s out ]
report $? "and nothing was printed"
expect 2 "not into a directory that is not there" show --json --report no/report.html plain.pt
grep -q '"code": "system"' out && [ "$(grep -c '^{' out)" = 1 ]
report $? "one document says so"
if [ -w /dev/full ]; then
    expect 2 "not to a full disk" show --report /dev/full plain.pt
fi
cp -r "$srcdir/tests/data/run/damaged" run && chmod -R u+w run
expect 2 "not over a part of a run" show --report run/step-00000300/model.safetensors run
: >run/.lock
expect 2 "not over a run's lock, though it is empty" show --report run/.lock run
expect 2 "not over a file of a folder of checkpoints" show --report "./kept.pt" .
cmp -s plain.pt kept.pt && cmp -s run/step-00000300/model.safetensors "$srcdir/tests/data/run/damaged/step-00000300/model.safetensors"
report $? "all of which are as they were"
echo '<!doctype html>' >real.html
ln -s real.html symbolic.html
expect 0 "through a symbolic link" show -q --report symbolic.html plain.pt
[ -L symbolic.html ] && grep -q 'What this checkpoint is' real.html
report $? "which stays, and its target is the page"
ln -s nowhere.html nothing.html
expect 2 "not through a link to nothing" show --report nothing.html plain.pt
[ -L nothing.html ] && [ ! -e nowhere.html ]
report $? "which stays as well"
if command -v strace >/dev/null 2>&1 && strace -o /dev/null true 2>/dev/null; then
    echo '<!doctype html>old' >real.html
    strace -o /dev/null -e trace=write -e inject=write:signal=SIGTERM:when=1 "$inspect" show -q --report real.html plain.pt >out 2>err
    [ $? -ne 0 ] && [ "$(cat real.html)" = '<!doctype html>old' ]
    report $? "a signal in the middle leaves the page that was there"
fi

# ---- a run directory, and a folder of checkpoints
rm -f run.html report.html run/.lock
expect 1 "doctor of a run directory" doctor --report report.html run
grep -q 'It resumes from step 300, not from the newest' report.html && grep -q 'skipped: training.safetensors has 4000 bytes' report.html &&
    grep -q 'After: where it comes back' report.html && grep -q 'ckpt_run_resume(\*run, map_location, done' report.html
report $? "its checkpoints, the verdict, the device map, the snippet"
page doctor-run "word for word"
expect 0 "show of a run directory" show --keep-last 2 --report report.html run
"$inspect" show --keep-last 2 run | cmp -s - out
report $? "says what it says without a report"
[ "$(grep -c '>keep</td>' report.html) $(grep -c '>remove</td>' report.html)" = '3 2' ] && grep -q 'The checkpoint to go on from' report.html
report $? "with what retention would remove"
cp -r "$srcdir/tests/data/run/ranks" ranks && chmod -R u+w ranks
expect 1 "of a run of several ranks" doctor --json --report report.html ranks
grep -q ' class="n">1/2</td>' report.html && grep -q 'of one rank&#39;s part: ranks/rank-00000/step-' report.html
report $? "how many are there, and whose part the map is"
mkdir folder folder/sub && cp fused-step-cpu.pt folder/epoch-1.pt && cp fused-step-cpu.pt folder/epoch-2.pt
head -c 6000 fused-step-cpu.pt >folder/epoch-3.pt
touch -d '1970-01-02 00:00:00 UTC' folder/*
expect 0 "show of a folder" show --report report.html folder
page show-folder "word for word"
expect 2 "doctor is of one of them" doctor --report none.html folder
[ ! -s out ] && [ ! -e none.html ] && grep -q -e '--report is for one checkpoint, and there are several' err
report $? "and says so"
rm -f report.html

# ---- --snippet of a run
expect 1 "--snippet c of a run that falls back" doctor --snippet c run
grep -q 'ckpt_run_open(path, state, options, run, &err)' out && grep -q '"run", map_location\[\] = "cpu"' out && ! grep -q 'resume with' out
report $? "is the hook's resume, alone on standard output"
grep -q 'resumes from step 300, not from the newest' err
report $? "and from where is beside it"
cp out snippet.c
printf 'int main(void)\n{\n    ckpt_run *run;\n    int64_t done;\n    ckpt_run_options options = CKPT_RUN_OPTIONS_INIT;\n    return resume(ckpt_state_new(), &options, &run, &done);\n}\n' >>snippet.c
${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$srcdir/include" snippet.c 2>err
report $? "which compiles"
expect 2 "--snippet torch of a run" doctor --snippet torch run
grep -q 'write --snippet c' err && [ ! -s out ]
report $? "says what there is"
rm -rf run/step-00000100 run/step-00000200 run/step-00000300
expect 1 "--snippet of a run that has nothing sound" doctor --snippet c --json run
grep -q '"snippet": null' out
report $? "is null"
expect 1 "and as text" doctor --snippet c run
[ ! -s out ] && grep -q 'there is no snippet' err
report $? "is said on standard error"
expect 2 "options are looked at though no checkpoint is" doctor --devices many run

# ---- the curves of stats --run
if python3 -c '' 2>/dev/null; then
cat >run9.py <<'END'
"""SOURCE FOLDER: nine checkpoints of a run, whose lr goes down and whose weights grow; the scores too."""
import os, struct, sys, zipfile
source, folder = sys.argv[1:3]
os.makedirs(folder, exist_ok=True)
for i in range(1, 10):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile("%s/step-%d.ckpt" % (folder, i), "w") as new:
        for name in old.namelist():
            b = old.read(name)
            if name.endswith("/data.pkl"):
                at = b.index(b"K", b.index(b"global_step"))
                b = b[:at] + b"K%c" % i + b[at + 2:]
                for was in (0.0025,):
                    b = b.replace(b"G" + struct.pack(">d", was), b"G" + struct.pack(">d", was / i))
            elif name.endswith("/data/0"):
                b = struct.pack("<%df" % (len(b) // 4), *(v * i for v, in struct.iter_unpack("<f", b)))
            elif len(b) == 4 and abs(struct.unpack("<f", b)[0] - 0.784539) < 1e-5:
                b = struct.pack("<f", 0.8 / i + 0.02 * (i % 3))
            new.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), b)
END
python3 run9.py "$srcdir/tests/data/peers/lightning-callbacks.ckpt" steps
expect 0 "stats --run --report" stats --run --report curves.html steps
[ "$(sed 1d out | wc -l)" = 9 ] && [ "$(grep -c '<polyline' curves.html)" = 3 ]
report $? "a curve of the score, of the learning rate and of the norm, beside what is printed"
curve() { grep -o "aria-label=\"$1 over 9 checkpoints: $2 first, $3 last\"><polyline points=\"0.0,$4 [0-9., ]* 1000.0,$5\"" curves.html | tr ' ' '\n' | grep -c '^[^ ]*[0-9],[0-9]'; }
[ "$(curve score 0.82 0.0888889 5.0 95.0)" = 9 ] && [ "$(curve 'learning rate' 0.0025 0.000277778 5.0 95.0)" = 9 ] &&
    [ "$(curve 'norm of the weights' 3.37491 13.7566 95.0 5.0)" = 9 ]
report $? "each of nine points, between its ends"
python3 -c 'import sys, xml.dom.minidom as m; m.parseString(open("curves.html").read().replace("<!DOCTYPE html>", "").encode())' 2>err && ! grep -q 'class="verdict' curves.html && ! grep -q 'id="layers"' curves.html
report $? "well-formed; nothing is wrong, and no layer was asked for"
expect 0 "with --by layer and --json" stats --run --by layer --json --report curves.html steps
[ "$(sed -n '/id="layers"/,/id="checkpoints"/p' curves.html | grep -c '<polyline')" = 3 ] && grep -q 'state_dict.net.fc1 over 9 checkpoints' curves.html
report $? "curves of the layers' norms"
mkdir few && cp steps/step-1.ckpt 'few/<b>.ckpt' && cp steps/step-2.ckpt few
expect 0 "of two checkpoints" stats --run --report few.html few
! grep -q '<polyline' few.html && sed 's,<wbr/>,,g' few.html | grep -q 'few/&lt;b&gt;' && ! grep -q '<b>' few.html
report $? "no curve; names are escaped"
python3 - steps/step-3.ckpt nans.ckpt <<'END'
import struct, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as old, zipfile.ZipFile(sys.argv[2], "w") as new:
    for name in old.namelist():
        b = old.read(name)
        new.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), struct.pack("<f", float("nan")) + b[4:] if name.endswith("/data/0") else b)
END
mv nans.ckpt steps/step-3.ckpt
expect 0 "of one with a NaN" stats --run --report curves.html steps
grep -q 'class="verdict is-error"' curves.html && sed 's,<wbr/>,,g' curves.html | grep -q '1 of 9 checkpoints has NaN or infinities. The first is <span class="name">steps/step-3.ckpt</span>'
report $? "the page begins with it"
expect 2 "without --run" stats --report none.html plain.pt
grep -q 'stats: --report is for --run, which was not given' err && [ ! -e none.html ]
report $? "says what it is for"
expect 2 "not over a checkpoint of the run" stats --run --report steps/step-1.ckpt steps
rm -rf steps few
fi
[ "$(find . -name '*.tmp-*' | wc -l)" = 0 ]
report $? "no temporary is left"

echo "1..$count"
[ "$failures" -eq 0 ]
