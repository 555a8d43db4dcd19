#!/bin/sh
# folder_test.sh - show of a folder of checkpoints: which are listed, in which order, what is said of each; and what the other
# commands say of such a folder.
. "${srcdir:-.}/tests/cli/cli_common.sh"

# names in the order of the lines
order()
{
    [ "$(sed -n '/^name /,/^resume/p' out | sed '1d;/^resume/d;/^bytes  /d;/^best  /d;/^ /d' | cut -d' ' -f1 | tr '\n' ' ')" = "$1 " ]
}

put()                             # put FROM TO AGE
{
    cp -R "$1" "$2" && chmod -R u+w "$2" && find "$2" -exec touch -d "$3 ago" {} +
}

mkdir run
put "$data/peers/lightning.ckpt" run/last.ckpt "3 hours"
put "$data/peers/lightning.ckpt" run/epoch=1-step=4.ckpt "5 days"
put "$data/peers/lightning.ckpt" run/epoch=9-step=40.ckpt "40 minutes"
truncate -s 5000 run/epoch=9-step=40.ckpt
echo "not a checkpoint" >run/notes.txt
echo "{}" >run/metrics.json
mkdir run/logs
echo "x" >run/logs/events.out
ask 0 run && order "epoch=1-step=4.ckpt last.ckpt epoch=9-step=40.ckpt"
check "files of a run: by step, then by time; what is no checkpoint is not listed"
grep -q '^epoch=1-step=4.ckpt  *4  *1 .*  5 d  -     readable$' out && grep -q '^last.ckpt  *4  *1 .*  3 h  last  verified$' out
check "step, epoch, age; the bytes of the one to resume from were read"
grep -qx 'bytes      not checked of 1 that is readable: ckpt-inspect verify run' out
check "and those of the other were not, which is said"
grep -q '^epoch=9-step=40.ckpt  *-  *- .* damaged: ..*' out
check "a truncated file is damaged, and why is said"
grep -q '^resume with trainer.fit(model, ckpt_path="run/last.ckpt"' out
check "the newest whole one is what to resume from"
json()                            # json PATTERN: of the line of out that begins as given
{
    grep -q "$1" out
}
ask 0 --json run && json '^ "kind": "directory",$' && json '^ "producer": "Lightning",$' && json '^ "step": 4,$' &&
    json '^  {"name": "epoch=1-step=4.ckpt", .*"producer": "Lightning", "step": 4, "epoch": 1, .*"complete": true, "best": null, "last": false, "checked": "structure", "why": null},$' &&
    json '^  {"name": "epoch=9-step=40.ckpt", .*"step": null, .*"complete": false, "best": null, "last": false, "checked": "structure", "why": "begins as a zip' &&
    [ "$(sed -n 's/^ "nbytes": \([0-9]*\),$/\1/p' out)" = "$(cat run/*.ckpt | wc -c)" ]
check "the same as JSON"
for command in list tree stats; do
    ask 0 $command run/last.ckpt && cp out alone && ask 0 $command run && cmp -s alone out &&
        grep -qx 'ckpt-inspect: run: a folder of checkpoints; its newest complete one is read: run/last.ckpt' err
    check "$command reads the newest that is complete, and says which"
    ask 0 $command --json run && tr -d ' \n' <out | grep -q '^{"ckpt":1,"taken":\[{"given":"run","path":"run/last.ckpt"}\],' && ask 0 $command --json run/last.ckpt && ! grep -q taken out
    check "$command --json has it as a member, where one was taken"
done
ask 0 list -q run && [ ! -s err ]
check "-q says nothing of it"
touch run/epoch=1-step=4.ckpt
ask 0 list run && grep -q 'is read: run/epoch=1-step=4.ckpt$' err
check "of one step the newer file is taken"
touch run/last.ckpt
ask 0 extract run state_dict.0.weight -o w.npy; [ -s w.npy ] || ask 0 extract run "$("$inspect" list -q run | sed 1d | awk 'NR == 1 { print $NF }')" -o w.npy && [ -s w.npy ] && grep -q 'is read: run/last.ckpt$' err
check "extract does so too"
ask 0 diff run run/last.ckpt && grep -q '^ckpt-inspect: run: .* is read: run/last.ckpt$' err && ask 0 diff run/last.ckpt run && grep -q 'is read: run/last.ckpt$' err
check "and diff, on either side"
ask 0 diff --json run run && [ "$(grep -c '"given": "run", "path": "run/last.ckpt"' out)" -eq 2 ]
check "or on both"
ask 2 show --role param run && grep -q 'for one of them' err
check "a selection is for one of them"

mkdir trainer
put "$data/peers/accelerate" trainer/checkpoint-1000 "1 hour"
put "$data/peers/accelerate" trainer/checkpoint-500 "2 hours"
put "$data/peers/accelerate" trainer/checkpoint-1500 "1 minute"
for file in trainer/checkpoint-1500/*.bin trainer/checkpoint-1500/*.safetensors; do
    [ -f "$file" ] && truncate -s 100 "$file"
done
mkdir trainer/runs trainer/checkpoint-2000
ask 0 trainer && order "checkpoint-500 checkpoint-1000 checkpoint-1500 checkpoint-2000"
check "folders of steps: by the number in the name where they keep none"
grep -q '^checkpoint-1500 .*damaged: ' out && grep -q '^checkpoint-2000 .*damaged: not a checkpoint' out
check "one cut short and one without files are damaged"
grep -q 'accelerator.load_state("trainer/checkpoint-1000")' out
check "accelerate counts its checkpoints"

cp "$data"/peers/accelerate/model.safetensors trainer/ 2>/dev/null || cp "$data/cli/weights.safetensors" trainer/model.safetensors
chmod u+w trainer/model.safetensors
ask 0 trainer && grep -q '^format     hf, a directory' out && grep -q '^also here  4 checkpoints$' out &&
    order "checkpoint-500 checkpoint-1000 checkpoint-1500 checkpoint-2000"
check "beside a model that was saved last they are told too"
ask 0 --json trainer && grep -q '^  {"name": "checkpoint-500", ' out && grep -q '^ "format": "hf",$' out
check "also as JSON"
rm trainer/model.safetensors

mkdir -p project/checkpoints
put "$data/peers/accelerate" project/checkpoints/checkpoint_0 "2 hours"
put "$data/peers/accelerate" project/checkpoints/checkpoint_1 "1 hour"
ask 0 project && order "checkpoints/checkpoint_0 checkpoints/checkpoint_1"
check "a project's folder for its checkpoints is looked into"
ask 0 list project && grep -q 'is read: project/checkpoints/checkpoint_1$' err
check "and others read the newest of them"
ask 0 verify project && grep -q '^2 checkpoints: 2 ok$' out && grep -q '^project/checkpoints/checkpoint_0: ok,' out
check "and verify reads them"

# What a kill leaves: files that are whole, and fewer of them.
mkdir -p killed
for n in 0 1 2 3; do put "$data/peers/accelerate" killed/checkpoint_$n "$((9 - n)) hours"; done
rm killed/checkpoint_3/random_states_0.pkl killed/checkpoint_3/scheduler.bin
ask 0 killed && grep -q '^checkpoint_3 .* unfinished: it has no random_states_\*.pkl, scheduler.bin, as checkpoint_2 has: its save' out &&
    grep -q '^checkpoint_2 .* readable$' out && grep -q 'accelerator.load_state("killed/checkpoint_2")' out
check "the last one that has not what the one before has was not finished"
ask 0 --json killed && grep '"name": "checkpoint_3"' out | grep -q '"complete": false, "best": null, "last": false, "checked": "structure", "why": "it has no random_states'
check "also as JSON"
put "$data/peers/accelerate" killed/checkpoint_4 "1 hour"
rm killed/checkpoint_2/custom_checkpoint_0.pkl
ask 0 killed && grep -q '^checkpoint_2 .* unfinished: it has no custom_checkpoint_\*.pkl, as checkpoint_1 has' out &&
    grep -q '^checkpoint_3 .* unfinished' out && grep -q 'load_state("killed/checkpoint_4")' out
check "nor was one between two that have it"
rm -r killed/checkpoint_3
put "$data/peers/accelerate" killed/checkpoint_3 "2 hours"
rm killed/checkpoint_[34]/custom_checkpoint_0.pkl
ask 0 killed && ! grep -q '^checkpoint_2 .* unfinished' out
check "one whose neighbours behind it have it no more is one of a program that writes none"
rm killed/checkpoint_0/random_states_0.pkl
ask 0 killed && grep -q '^checkpoint_0 .* readable$' out
check "of the first it cannot be told"
for n in 0 1 2 3 4; do
    rm -rf killed/checkpoint_$n
    put "$data/peers/accelerate" killed/checkpoint_$n "$((9 - n)) hours"
    mkdir killed/checkpoint_$n/pytorch_model_fsdp_0
    cp "$data/parts/.metadata" "$data/parts/__0_0.distcp" killed/checkpoint_$n/pytorch_model_fsdp_0
    cp "$data/parts/__0_0.distcp" killed/checkpoint_$n/pytorch_model_fsdp_0/__1_0.distcp
    cp killed/checkpoint_$n/random_states_0.pkl killed/checkpoint_$n/random_states_1.pkl
done
rm killed/checkpoint_3/random_states_1.pkl killed/checkpoint_4/random_states_1.pkl killed/checkpoint_4/pytorch_model_fsdp_0/__1_0.distcp
ask 0 killed && grep -q '^checkpoint_4 .* readable$' out && grep -q '^checkpoint_3 .* readable$' out
check "fewer ranks are fewer ranks"
rm -r killed/checkpoint_4
ask 0 killed && grep -q '^checkpoint_3 .* unfinished: it has 1 of random_states_\*.pkl, and not 2, as checkpoint_2 has' out
check "as many ranks and fewer random states are a save that was not finished"

mkdir ddp
for n in 1 2 3; do
    put "$data/peers/hf-trainer" ddp/checkpoint-$n "$((9 - n)) hours"
    for rank in 0 1; do cp "$data/peers/hf-trainer/rng_state.pth" ddp/checkpoint-$n/rng_state_$rank.pth; done
    rm ddp/checkpoint-$n/rng_state.pth
done
ask 0 ddp && [ "$(grep -c '^checkpoint-. .* readable$' out)" = 3 ]
check "a Trainer's saves by two ranks are complete"
rm ddp/checkpoint-3/rng_state_1.pth
ask 0 ddp && grep -q '^checkpoint-3 .* unfinished: it has 1 of rng_state\*.pth, and not 2, as checkpoint-2 has' out &&
    grep -q 'resume_from_checkpoint="ddp/checkpoint-2"' out
check "one of several ranks alone has not finished"
mv ddp/checkpoint-3/rng_state_0.pth ddp/checkpoint-3/rng_state.pth
ask 0 ddp && grep -q '^checkpoint-3 .* readable$' out
check "a rank that is alone now has"
rm ddp/checkpoint-3/adapter_model.safetensors
ask 0 ddp && grep -q '^checkpoint-3 .* unfinished: it has no weights (model\*, pytorch_model\*, adapter_model\*), as checkpoint-2 has' out
check "without weights it is not complete"
cp "$data/cli/weights.safetensors" ddp/checkpoint-3/model.safetensors
ask 0 ddp && ! grep -q '^checkpoint-3 .* it has no weights' out
check "weights may have another name"

mkdir -p begun/checkpoint-2/global_step2
put "$data/peers/hf-trainer" begun/checkpoint-1 "1 hour"
cp begun/checkpoint-1/scheduler.pt begun/checkpoint-2/training_args.bin
ask 0 begun && grep -q '^checkpoint-2  *2 .* \(damaged\|unfinished\): ' out && grep -q '"begun/checkpoint-1"' out
check "one that was killed before its first tensor is listed"
rmdir begun/checkpoint-2/global_step2
ask 0 begun && grep -q '^checkpoint-2  *2 .* \(damaged\|unfinished\): ' out && grep -q '"begun/checkpoint-1"' out
check "one whose files hold no tensor yet stands there too"

mkdir runs
put "$data/run/damaged" runs/first "1 hour"
put "$data/run/one" runs/second "2 hours"
ask 0 runs && grep -q '^first  *400 .*readable$' out && grep -q '^second  *[0-9][0-9]* .*readable$' out
check "run directories stand as their newest complete checkpoint"
ask 2 list runs && grep -q '^ckpt-inspect: runs: a folder of checkpoints, and .*; give one of them: runs/second, runs/first' err
check "of two runs none is the newest"

# ---- what is damaged, and opens
mkdir flipped
for n in 1 2 3; do cp "$data/peers/lightning.ckpt" flipped/e$n.ckpt; touch -d "$((9 - n)) hours ago" flipped/e$n.ckpt; done
chmod u+w flipped/*
flip() { printf '\377\377\377\377' | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; }
at=$("$inspect" list --json --pieces --sort offset flipped/e3.ckpt | grep -o '"file_offset": [0-9]*' | head -n 1 | cut -d ' ' -f 2)
flip flipped/e3.ckpt "$at"
ask 0 flipped && grep -q '^e3.ckpt .* damaged: .*CRC' out && grep -q '^e2.ckpt .* last  verified$' out && grep -q '^e1.ckpt .* -     readable$' out &&
    grep -q 'ckpt_path="flipped/e2.ckpt"' out
check "a wrong byte of the one to resume from is found, and the one before it is taken"
ask 0 --json flipped && grep '"name": "e3.ckpt"' out | grep -q '"complete": false, "best": null, "last": false, "checked": "bytes", "why": ".*CRC' &&
    grep '"name": "e2.ckpt"' out | grep -q '"complete": true, .*"last": true, "checked": "bytes"' && grep '"name": "e1.ckpt"' out | grep -q '"checked": "structure"' &&
    grep -qx ' "last": "flipped/e2.ckpt",' out
check "also as JSON"
ask 0 list flipped && grep -q 'is read: flipped/e2.ckpt$' err
check "and list takes the same"
flip flipped/e1.ckpt "$at" && touch -d "8 hours ago" flipped/e1.ckpt
ask 0 flipped && grep -q '^e1.ckpt .* readable$' out && grep -q '^bytes  .*verify flipped' out
check "a wrong byte of another is not seen, and readable does not say that it would be"
flip flipped/e2.ckpt "$at"
ask 0 flipped && [ "$(grep -c ' damaged: ' out)" -eq 3 ] && ! grep -q '^resume with' out && ask 2 list flipped && grep -q 'and none is complete; give' err
check "where all are damaged there is none to resume from"
for n in 1 2 3; do cp "$data/peers/lightning.ckpt" flipped/e$n.ckpt; done
chmod u+w flipped/*
directory=$(grep -abo 'PK.*' flipped/e3.ckpt | grep -a "PK$(printf '\001\002')" | head -n 1 | cut -d : -f 1)
flip flipped/e3.ckpt "$((directory + 20))"
ask 0 flipped && grep -q '^e3.ckpt .* damaged: ' out
check "a size in the archive's directory that is wrong is damage"
cp "$data/peers/lightning.ckpt" flipped/e3.ckpt && chmod u+w flipped/e3.ckpt
record=$(grep -abo '/data/0' flipped/e3.ckpt | head -n 1 | cut -d : -f 1)
flip flipped/e3.ckpt "$record"
ask 0 flipped && grep -q '^e3.ckpt .* damaged: ' out
check "so is a local header that is not what the directory says"
head -c 190 "$data/cli/weights.safetensors" >flipped/w.safetensors
ask 0 flipped && grep -q '^w.safetensors .* damaged: ' out
check "and a tensor that ends behind the file"

# ---- which is the best, by what the trainer says
if python3 -c '' 2>/dev/null; then
says() # says FILE MONITOR MODE SCORE BEST [MONITOR MODE SCORE BEST]: a Lightning file whose ModelCheckpoint callbacks say so. MONITOR -: none
{
    python3 - "$data/peers/lightning.ckpt" "$@" <<'PYTHON'
import struct, sys, zipfile
source, target, claims = sys.argv[1], sys.argv[2], sys.argv[3:]
text = lambda s: b"X" + struct.pack("<I", len(s.encode())) + s.encode()
def state(monitor, mode, score, best):
    key = "ModelCheckpoint{'monitor': %s, 'mode': '%s', 'every_n_epochs': 1}" % (repr(monitor) if monitor != "-" else "None", mode)
    items = [("monitor", text(monitor) if monitor != "-" else b"N"), ("best_model_score", b"G" + struct.pack(">d", float(score))),
             ("best_model_path", text(best)), ("current_score", b"G" + struct.pack(">d", float(score)))]
    return text(key) + b"}(" + b"".join(text(k) + v for k, v in items) + b"u"
old = zipfile.ZipFile(source)
with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
    for info in old.infolist():
        data = old.read(info)
        if info.filename.endswith("data.pkl"):
            at = data.index(b"}", data.index(text("callbacks")) + 14) + 1
            data = data[:at] + {b"q": data[at:at + 2], b"r": data[at:at + 5]}.get(data[at:at + 1], b"") + b"(" + b"".join(state(*claims[i:i + 4]) for i in range(0, len(claims), 4)) + b"u" + data[at + {b"q": 2, b"r": 5}.get(data[at:at + 1], 0):]
            at = data.index(b"K\4", data.index(text("global_step")))
            data = data[:at + 1] + bytes([int(target[-6])]) + data[at + 2:]
        new.writestr(zipfile.ZipInfo(info.filename, (1980, 1, 1, 0, 0, 0)), data)
PYTHON
}
mkdir best
say() { says best/$1.ckpt "$2" "$3" "$4" "$5" $6 $7 $8 $9; touch -d "$((9 - ${1#e})) hours ago" best/$1.ckpt; }
say e1 val_loss min 0.5 /tmp/run/e1.ckpt && say e2 val_loss min 0.3 /tmp/run/e2.ckpt && say e3 val_loss min 0.3 /tmp/run/e2.ckpt
ask 0 best && grep -q '^e2.ckpt .* best  readable$' out && grep -q '^e3.ckpt .* last  verified$' out && grep -q '^e1.ckpt .* -     readable$' out &&
    grep -qx 'best       e2.ckpt, by val_loss (min)' out
check "best and last are marked"
ask 0 --json best && grep -qx ' "best": "best/e2.ckpt",' out && grep -qx ' "last": "best/e3.ckpt",' out && grep -qx ' "monitor": "val_loss",' out && grep -qx ' "mode": "min",' out &&
    grep '"name": "e2.ckpt"' out | grep -q '"best": true, "last": false' && grep '"name": "e3.ckpt"' out | grep -q '"best": false, "last": true'
check "also as JSON"
say e3 val_loss min 0.2 /tmp/run/e3.ckpt && ask 0 best && grep -q '^e3.ckpt .* best, last  verified$' out
check "one may be both"
say e1 val_loss min 0.1 /tmp/run/e1.ckpt && ask 0 best && ! grep -q '  best' out && grep -qx 'best       not known: e1.ckpt and e3.ckpt contradict each other' out
check "an older best that is better than the newest is of another run"
ask 0 --json best && grep -qx ' "best": null,' out && grep -qx ' "best_why": "e1.ckpt and e3.ckpt contradict each other",' out && grep '"name": "e3.ckpt"' out | grep -q '"best": null, "last": true'
check "which the JSON has as null"
say e1 val_acc max 0.1 /tmp/run/e1.ckpt && ask 0 best && grep -q '^best  *not known: e1.ckpt and e3.ckpt contradict' out
check "so is another score"
say e1 val_loss max 0.5 /tmp/run/e1.ckpt && ask 0 best && grep -q '^best  *not known: e1.ckpt and e3.ckpt contradict' out
check "and another direction"
say e1 val_loss min 0.5 /tmp/run/e1.ckpt && say e3 val_loss min 0.1 /tmp/run/gone.ckpt && ask 0 best && grep -qx 'best       gone.ckpt, which is not here, by val_loss (min)' out && ! grep -q '^e.* best' out
check "the best may be elsewhere"
say e3 val_loss min 0.1 /tmp/run/e1.ckpt val_acc max 0.9 /tmp/run/e2.ckpt && ask 0 best && grep -qx 'best       not known: e3.ckpt keeps several, by callbacks that do not agree' out
check "callbacks that do not agree"
for n in 1 2 3; do say e$n - min 0 /tmp/run/e1.ckpt; done
ask 0 best && ! grep -q '^best ' out && ! grep -q '^e.* best' out
check "a callback that monitors nothing has no best"
for n in 1 2 3; do say e$n val_loss "?" 0.5 /tmp/run/e1.ckpt; done
ask 0 best && grep -qx 'best       e1.ckpt, by val_loss' out && ask 0 --json best && grep -qx ' "mode": null,' out
check "a direction that is not known is not said, and the trainer's choice is"
fi
mkdir tuned
for n in 1 2 3; do
    put "$data/peers/hf-trainer" tuned/checkpoint-$n "$((9 - n)) hours"
    sed -i 's|"best_model_checkpoint": null|"best_model_checkpoint": "out/checkpoint-2"|; s|"best_metric": null|"best_metric": 0.5|' tuned/checkpoint-$n/trainer_state.json
done
ask 0 tuned && grep -q '^checkpoint-2 .*  best  readable$' out && grep -q '^checkpoint-3 .*  last  readable$' out && grep -qx 'best       checkpoint-2' out
check "the HF Trainer's best"
sed -i 's|out/checkpoint-2|out/checkpoint-1|' tuned/checkpoint-2/trainer_state.json
ask 0 tuned && grep -q '^best  *not known: checkpoint-2 and checkpoint-3 contradict each other$' out
check "two of one step that contradict each other"

# ---- the newest step of a run
cp -R "$data/run/damaged" "$data/run/one" . && cp -R "$data/run/ranks" world && chmod -R u+w damaged world one
for command in list tree; do
    ask 0 $command damaged/step-00000400 && cp out asked && ask 0 $command damaged/ && cmp -s asked out &&
        grep -qx 'ckpt-inspect: damaged: a run directory; its newest complete checkpoint is read: damaged/step-00000400' err
    check "$command of a run directory reads its newest complete step"
done
ask 2 stats damaged && grep -q '^ckpt-inspect: damaged/step-00000400: weight: the CRC-32' err
check "and where its bytes turn out damaged, it is named"
ask 0 list --json damaged && grep -q '{"given": "damaged", "path": "damaged/step-00000400"}' out
check "also as JSON"
rm -r damaged/step-00000400
ask 0 list damaged && grep -qv step-00000400 err && grep -q 'is read: damaged/step-00000[123]00$' err
check "without it, the one before it"
ask 0 list --one world/rank-00000/step-00000100 world/rank-00001/step-00000100 && cp out both && ask 0 list world && cmp -s both out &&
    grep -q 'world/rank-00000/step-00000100, and those of its other ranks$' err
check "of several ranks all are read"
ask 0 list --json world && [ "$(grep -c '{"given": "world", "path": "world/rank-0000[01]/step-00000100"}' out)" -eq 2 ]
check "and the JSON names each"
ask 0 diff world world && ask 1 diff one world
check "diff of runs"
rm -r world/rank-00001/step-00000100
ask 2 list world && [ ! -s out ] && grep -q 'world: a run directory in which no checkpoint is complete' err
check "where a rank is missing none is taken"
ask 0 extract one weight -o weight.npy; [ -s weight.npy ] && grep -q 'is read: one/step-00000100$' err
check "extract of a run directory"

mkdir two
put "$data/cli/plain.pt" two/plain.pt "1 hour"
put "$data/cli/weights.safetensors" two/model.safetensors "1 hour"
put "$data/peers/lightning.ckpt" two/lightning.ckpt "1 hour"
ask 0 two && order "model.safetensors plain.pt lightning.ckpt"
check "unrelated files are a checkpoint each"
! grep -q '^resume with' out
check "of which none is the one to go on from"
for command in list tree stats; do
    ask 2 $command two && [ ! -s out ] && grep -q 'ckpt-inspect: two: a folder of checkpoints, and .* not known.*; give one of them: two/.*, two/.*' err
    check "$command takes none of them, and names them"
done
ask 2 list --json two && grep -q '"code": "folder"' out && ! grep -q taken out && [ ! -s err ]
check "also as JSON"
ask 2 diff two/plain.pt two && grep -q '^ckpt-inspect: two: a folder' err
check "nor does diff"

mkdir hf hf/checkpoint-4 hf/checkpoint-5
put "$data/peers/hf-trainer" hf/checkpoint-3 "2 hours"
put "$data/peers/hf-trainer" hf/tmp-checkpoint-6 "1 hour"
put "$data/peers/hf-trainer" hf/checkpoint-2 "3 hours"
head -c 20 "$data/peers/hf-trainer/trainer_state.json" >hf/checkpoint-2/trainer_state.json
cp "$data/peers/hf-trainer/adapter_model.safetensors" "$data/peers/hf-trainer/adapter_config.json" hf/checkpoint-4
cp "$data/cli/weights.safetensors" hf/checkpoint-5/model.safetensors
ask 0 hf && grep -q '^checkpoint-4  *4 .*unfinished: it has no trainer_state.json' out &&
    grep -q '^checkpoint-5  *5 .*unfinished: it has no trainer_state.json' out
check "a Trainer's save that has no trainer_state.json was not finished, and its step is its name's"
grep -q '^checkpoint-2  *2 .*damaged: trainer_state.json' out && grep -q '^tmp-checkpoint-6 .*unfinished: ' out
check "nor is one whole whose trainer_state.json is cut short, or that was not renamed yet"
grep -qF 'trainer.train(resume_from_checkpoint="hf/checkpoint-3")' out
check "the last that is whole is the one to go on from"
ask 0 --json hf && grep '"name": "checkpoint-4"' out | grep -q '"complete": false'
check "also as JSON"
rm -r hf/checkpoint-2 hf/checkpoint-3 hf/tmp-checkpoint-6
ask 0 hf && grep -q '^checkpoint-5 .* readable$' out
check "models that no Trainer lies beside are what they are"

mkdir titan titan/step-3 titan/step-5
cp "$data/parts/.metadata" "$data/parts/__0_0.distcp" titan/step-3
cp "$data/parts/.metadata" "$data/parts/__0_0.distcp" titan/step-5
ask 0 titan && grep -q '^step-3 .* readable$' out && grep -q '^step-5 .* readable$' out && ! grep -q damaged out
check "another program's step-N is a checkpoint like any other"
ask 0 --json titan && grep '"name": "step-3"' out | grep -q '"format": "dcp"'
check "and has a name"
ask 0 verify titan && grep -q '^2 checkpoints: 2 ok$' out
check "of which verify says nothing else"

cp -r "$data/dcp/ranks" ranks && chmod -R u+w ranks && rm ranks/__1.metadata
ask 1 list ranks && grep -q 'model' out && grep -q '^error  *rank-missing: __1.metadata: the list of rank 1' err
check "of a distributed checkpoint that lacks a rank's list the rest is listed"
ask 1 list --json ranks && grep -q '"code": "rank-missing"' out
check "also as JSON"
ask 1 doctor ranks && grep -q 'rank-missing: __1.metadata' out && grep -q 'fails-at-load' out
check "and it does not resume"
cp -r "$data/dcp/ranks" zeros && chmod -R u+w zeros && head -c "$(wc -c <zeros/__1_0.distcp)" /dev/zero >zeros/__1_0.distcp
ask 0 show zeros && grep -q '^ *5 pieces, 120 B in __1_0.distcp' out
check "show looks into no record: what each file holds is what the list says"
ask 1 verify zeros && grep -q '__1_0.distcp' out
check "and verify finds that the bytes are others"
cp "$data/dcp/shards/shard-00001-model-00001-of-00001.safetensors" lone.safetensors
for command in list scan verify show; do
    ask 0 $command lone.safetensors && cat out err | grep -q 'part-of-checkpoint: this is a shard'
    check "$command says of what a lone shard is a part"
done
ask 2 doctor lone.safetensors && grep -q 'part-of-checkpoint' out
check "doctor gives no verdict of it"

mkdir linked
ln -s ../run/last.ckpt linked/model.pt
ln -s ../two/model.safetensors linked/optimizer.pt
ask 2 linked && grep -q 'a link that leaves' err
check "a checkpoint that is refused is not taken for a folder of some"

mkdir here there
cp "$data"/peers/accelerate/* here && mv here/optimizer.bin there
ask 0 show --one here there && grep -qF 'options.also = (const char *const[]){"there"}; options.also_count = 1;' out &&
    grep -q 'ckpt_restore(state, "here", &options' out && ! grep -q 'accelerator.load_state' out
check "what lies in two directories resumes from both"

cp -r "$data/peers/hf-sharded" short && chmod -R u+w short && : >short/model-00001-of-00002.safetensors
ask 2 short && grep -q 'short/model-00001-of-00002.safetensors: .*the file is empty' err
check "nor are the shards of a model of which one is empty"

# torch::load takes a file
mkdir archives && cp "$data/peers/libtorch-module.pt" archives/module.pt && cp "$data/peers/libtorch-optimizer.pt" archives/optimizer.pt
ask 0 archives && grep -q 'torch::load(module, "archives/module.pt")' out && grep -q 'torch::load(optimizer, "archives/optimizer.pt")' out &&
    ! grep -q 'not-its-format' out
check "a directory of archives of libtorch is loaded file by file"
ask 0 doctor archives && grep -q 'archives: resumes' out
check "and so says doctor"

# distributed checkpoints keep no step: it is in the directory's name; one without moments is no place to go on from
mkdir -p run_of_titan/checkpoint
for step in 9 10; do
    put "$data/dcp/trained" run_of_titan/checkpoint/step-$step "1 hour"
done
put "$data/dcp/cut" run_of_titan/checkpoint/step-12 "1 hour"
ask 0 run_of_titan && order "checkpoint/step-9 checkpoint/step-10 checkpoint/step-12" && grep -q '^resume with .*"run_of_titan/checkpoint/step-10")' out
check "torchtitan's folder checkpoint: the newest that holds an optimizer is what to resume from"
mkdir step && printf '\200\002}.' >step/data.pt && put "$data/dcp/trained" step/actor "1 hour" && put "$data/dcp/trained" step/critic "1 hour"
ask 2 list step && grep -q 'give one of them: step/actor, step/critic$' err && mkdir verl && cp -r step verl/global_step_100 &&
    ask 2 list verl && grep -q 'several models; give one of them: verl/global_step_100/actor, verl/global_step_100/critic$' err
check "of the models of one step none is the newest"
ask 0 step && order "actor critic"
check "a file without tensors beside folders of models is not taken for the checkpoint"

# ---- --watch
# within COMMAND...: is it true before long?
within()
{
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
        "$@" && return 0
        sleep 1
    done
    return 1
}
mkdir watched && put "$data/peers/lightning.ckpt" watched/a.ckpt "2 hours" && put "$data/peers/lightning.ckpt" watched/b.ckpt "1 hour"
"$inspect" show --watch watched >seen 2>said &
watcher=$!
within grep -q '^format     a folder of 2 checkpoints, ' seen
check "--watch: the answer at once"
echo "a line" >watched/train.log && put "$data/peers/lightning.ckpt" watched/c.ckpt "1 hour"
within grep -q '^format     a folder of 3 checkpoints, ' seen && grep -q '^20[0-9][0-9]-[0-9-]* [0-9:]* UTC$' seen && [ "$(grep -c '^format' seen)" -eq 2 ]
check "and again when there is another checkpoint, with the time"
kill "$watcher"
wait "$watcher"
[ $? -eq 143 ] && [ ! -s said ]
check "until a signal, by which it dies"
"$inspect" show --watch --ndjson watched >seen 2>said &
watcher=$!
within grep -q '^{"ckpt": 1, "path": "watched", ' seen && rm -r watched
wait "$watcher"
[ $? -eq 2 ] && sed -n 2p seen | grep -q '"error": .*watched: it is no longer there"' 
check "or until the folder is gone"
ask 2 show --watch --json run && ask 2 show --watch run run && ask 2 show --watch nothing
check "not with --json, several PATHs, or nothing to show"

mkdir empty
ask 2 empty && grep -q 'not a checkpoint' err
check "an empty directory is none"
ask 2 --json empty && grep -q '"error"' out
check "also as JSON"
finish 113
