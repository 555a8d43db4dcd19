#!/usr/bin/env python3
"""What ckpt-migrate writes, PyTorch's frameworks resume: the optimizer's next steps are those of the file before, bit by bit.

usage: peers_read.py CKPT-INSPECT CKPT-MIGRATE [-v]   (and samples/lightning_resume below $builddir)

Torch, Lightning, accelerate, transformers' Trainer and bitsandbytes train small models and save them. The checkpoints go
to other devices, there and back, and through our own format and back; each time the framework itself loads the result
and trains on. Then the weights alone: as safetensors, as shards for from_pretrained, as an adapter for peft. The last line is
"N passed, N failed"."""
import os
import pathlib
import shutil

from checks import ask, check, claimed, commands, finish, run, scratch, section, skip

try:
    import accelerate
    import bitsandbytes
    import lightning
    import peft
    import safetensors
    import torch
    import transformers
    from safetensors.torch import load_file
    import peers
except ImportError as e:
    skip(e)

# What happens to each file on the way: (suffix, options) one after the other.
CHAINS = {
    "written again": [("pt", "--to torch")],
    "to cuda:3": [("pt", "--to torch --map-location cuda:3")],
    "to cuda:3 and back to the cpu": [("pt", "--to torch --map-location cuda:3"), ("pt", "--to torch --map-location cpu")],
    "through ckpt": [("safetensors", "--to ckpt"), ("pt", "--to torch")],
    "through ckpt, to cuda:1 on the way": [("safetensors", "--to ckpt --map-location cuda:1"), ("pt", "--to torch")],
}
SAFETENSORS = {"pt": "--to safetensors --lossy", "safetensors": "--to ckpt"}     # the same for a file of weights


class Failed(Exception):
    pass


def migrate(tool, source, target, options):
    done = run(tool, "--quiet", "--verify", *options.split(), source, target)
    if done.returncode != 0:
        raise Failed(f"ckpt-migrate {options} {source} {target}: status {done.returncode}: {done.stderr}")
    return target


def chained(tool, source, target, steps):
    """One file through all the steps; a file of weights in safetensors stays one."""
    weights = source.suffix == ".safetensors"
    for i, (suffix, options) in enumerate(steps):
        if source.name.startswith("optimizer.") and "--to ckpt" in options:      # alone, without the model: whose are they?
            options += " --param-names order.txt"
        to = target if i == len(steps) - 1 else target.with_name(f"{target.name}.{i}.{'safetensors' if weights else suffix}")
        if weights:
            tags = [o for o in options.split() if o.startswith("cuda") or o == "cpu"]
            options = SAFETENSORS[suffix] + (f" --map-location {tags[0]}" if tags else "")
        source = migrate(tool, source, to, options)
    return source


def moved(tool, path, chain):
    """The checkpoint, file or directory, at another place after the chain; text files go along as they are."""
    to = path.with_name(f"{path.name}-{list(CHAINS).index(chain)}")
    if path.is_file():
        return chained(tool, path, to, CHAINS[chain])
    to.mkdir()
    between = to.with_name(to.name + "-between")
    between.mkdir()
    for f in path.iterdir():
        if f.suffix in (".json", ".md", ".txt"):
            shutil.copy(f, to)
        else:
            shutil.move(chained(tool, f, between / f.name, CHAINS[chain]), to / f.name)
    return to


def tags(inspect, path):
    """The devices that tensors of more than a number claim to be on, those of the generators apart."""
    status, doc = ask(inspect, "list", "--json", path)
    return {t["device"] for t in doc.get("tensors", []) if t["role"] not in ("rng", "step") and t["shape"]} if status == 0 else doc


def trainers(inspect, tool):
    made = [peers.Torch("AdamW", lr=1e-2, amsgrad=True), peers.Torch("SGD", lr=0.1, momentum=0.9),
            peers.EightBit("AdamW8bit"), peers.EightBit("Lion8bit"), peers.EightBit("AdEMAMix8bit"),
            peers.Lightning(), peers.Lightning(two=True), peers.Lightning(extra="scaler"), peers.Lightning(extra="ema"),
            peers.Accelerate(), peers.Accelerate(safe=False), peers.HfTrainer(), peers.HfTrainer(lora=True)]
    for n, peer in enumerate(made):
        path = pathlib.Path(f"{n}-{type(peer).__name__}")
        straight = None
        with section(f"{peer.name}: made and resumed as it is"), claimed("cuda:0"):
            peer.make(path)
        with section(f"{peer.name}: resumed as it is"):
            straight = peer.resume(path)
            if path.is_dir():
                pathlib.Path("order.txt").write_text("\n".join(peer.order()) + "\n")
        for chain in CHAINS if straight else ():
            with section(f"{peer.name}, {chain}"):
                to = moved(tool, path, chain)
                check(f"{peer.name}, {chain}: the next steps are the same", peers.same(straight, peer.resume(to)))
                if path.is_file() and chain in ("to cuda:3", "through ckpt, to cuda:1 on the way"):
                    want = {chain.split(" to ")[-1].split()[0] if "," in chain else "cuda:3"}
                    check(f"{peer.name}, {chain}: is there", tags(inspect, to) == want, tags(inspect, to))


def optimizers(tool):
    """Every optimizer of torch's, whatever its state is called."""
    others = [("Adam", {"fused": True}), ("Adam", {"capturable": False, "maximize": True}), ("AdamW", {"foreach": True}),
              ("NAdam", {"decoupled_weight_decay": True}), ("RAdam", {}), ("Adamax", {}), ("Adadelta", {}),
              ("Adagrad", {"initial_accumulator_value": 0.1}), ("Adafactor", {}), ("RMSprop", {"momentum": 0.9, "centered": True}),
              ("Rprop", {}), ("ASGD", {}), ("SGD", {"momentum": 0.9, "nesterov": True})]
    for n, (kind, hyper) in enumerate(others):
        peer = peers.Torch(kind, lr=1e-2, **hyper)
        path = pathlib.Path(f"kind-{n}")
        with section(peer.name), claimed("cuda:0"):
            peer.make(path)
            straight = peer.resume(path)
            for chain in "to cuda:3 and back to the cpu", "through ckpt, to cuda:1 on the way":
                check(f"{peer.name}, {chain}: the next steps are the same", peers.same(straight, peer.resume(moved(tool, path, chain))))


def alike(a, b):
    """Two trees of dicts, lists and tensors are the same."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(alike, a, b))
    return a == b


def into_one(tool):
    """A directory becomes one torch file: torch alone goes on from it."""
    for peer in peers.Accelerate(), peers.HfTrainer(), peers.HfTrainer(lora=True):
        what = f"{peer.name} into one torch file"
        folder = pathlib.Path(f"one-{peer.name.replace(' ', '-')}")
        with section(what), claimed("cuda:0"):
            peer.make(folder)
            file = migrate(tool, folder, folder.with_suffix(".pt"), "--to torch --map-location cuda:5")
            held = torch.load(file, map_location="cpu", weights_only=False)
            optimizer = next(folder.glob("optimizer.*"))
            check(f"{what}: the optimizer's state", alike(held["optimizer"], torch.load(optimizer, map_location="cpu")), held["optimizer"].keys())
            weights = load_file(next(folder.glob("*model.safetensors")))
            check(f"{what}: the weights", equal(dict(held["model"]), weights), held["model"].keys() ^ weights.keys())
            if isinstance(peer, peers.Accelerate):
                check(f"{what}: the next steps are the same", peers.same(peer.resume(folder), peer.resume_file(file)))


def as_it_was(inspect, tool):
    """A directory becomes one that its own program resumes from: in one call, on other devices."""
    made = [peers.Accelerate(), peers.Accelerate(safe=False), peers.HfTrainer(), peers.HfTrainer(lora=True)]
    for n, peer in enumerate(made):
        what, folder = f"{peer.name} as a directory", pathlib.Path(f"same-{n}")
        with section(what):
            with claimed("cuda:0"):
                peer.make(folder)
            (folder / "logs" / "deep").mkdir(parents=True)
            (folder / "logs" / "deep" / "run.txt").write_text("a note")
            straight = peer.resume(folder)
            away = migrate(tool, folder, pathlib.Path(f"same-{n}-away"), "--map-location cuda:3")
            names = [sorted(str(f.relative_to(d)) for f in d.rglob("*")) for d in (folder, away)]
            check(f"{what}: every file is there", names[0] == names[1], names)
            check(f"{what}: is there", tags(inspect, away) - {None} == {"cuda:3"}, tags(inspect, away))
            pathlib.Path("order.txt").write_text("".join(name.replace(".default.", ".") + "\n" for name in peer.order()))
            fused = migrate(tool, folder, pathlib.Path(f"same-{n}-fused"), "--map-location cuda:3 --optimizer fused --param-names order.txt")
            own = [t["device"] for t in ask(inspect, "list", "--json", fused)[1]["tensors"] if t["role"] == "step"]
            check(f"{what}: step beside its parameter", own and set(own) == {"cuda:3"}, own)
            plain = migrate(tool, fused, pathlib.Path(f"same-{n}-plain"), "--map-location cuda:0 --optimizer plain --param-names order.txt")
            own = [t["device"] for t in ask(inspect, "list", "--json", plain)[1]["tensors"] if t["role"] == "step"]
            check(f"{what}: and on the cpu again", own and set(own) == {"cpu"}, own)
            back = migrate(tool, away, pathlib.Path(f"same-{n}-back"), "--to same --map-location cpu")
            for to in migrate(tool, folder, pathlib.Path(f"same-{n}-copy"), "--to same"), away, back:
                check(f"{what}: the next steps of {to} are the same", peers.same(straight, peer.resume(to)))


def in_c(tool):
    """samples/lightning_resume.c goes on from Lightning's checkpoint as Lightning does; in float32 of another order, so within 1e-5."""
    program = pathlib.Path(os.environ.get("builddir", "."), "samples", "lightning_resume")
    if not check("samples/lightning_resume is built", program.exists(), program):
        return
    peer = peers.Lightning(plain=True)
    file = pathlib.Path("plain.ckpt")
    with section("Lightning's run in C"):
        with claimed("cuda:0"):
            peer.make(file)
        losses, own = peer.resume(file)
        for what, source in ("as it is", file), ("moved to cuda:3", migrate(tool, file, "moved.ckpt", "--to torch --map-location cuda:3")):
            done = run(program, source, peers.AFTER, "resumed.safetensors")
            found = [float(line.split()[3]) for line in done.stdout.splitlines()]
            close = len(found) == len(losses) and all(abs(a - b) <= 1e-5 * b for a, b in zip(found, losses))
            check(f"Lightning's run goes on in C, {what}: the losses", done.returncode == 0 and close, f"{done.stderr} {found} {losses}")
            ours = load_file("resumed.safetensors")
            check(f"Lightning's run goes on in C, {what}: the weights", all(torch.allclose(ours[k], v, rtol=1e-5, atol=1e-6) for k, v in own.items()), list(ours))


def sensitive(tool):
    """That "the next steps are the same" says something: without the moments, or one step later, they are not."""
    peer = peers.Torch("AdamW", lr=1e-2)
    file = pathlib.Path("sensitive")
    with section("a changed state is noticed"):
        peer.make(file)
        straight = peer.resume(file)
        held = torch.load(file, weights_only=False)
        held["optimizer"]["state"][2]["exp_avg"][0] *= 1.001
        torch.save(held, "moment")
        check("a changed moment is noticed", not peers.same(straight, peer.resume("moment")))
        held = torch.load(file, weights_only=False)
        held["optimizer"]["state"][0]["step"] += 1
        torch.save(held, "step")
        check("a changed step is noticed", not peers.same(straight, peer.resume("step")))


def equal(a, b):
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


def weights(tool):
    """The model's tensors alone, as safetensors and back."""
    for peer, key in (peers.Torch("AdamW", lr=1e-2), "model"), (peers.Lightning(), "state_dict"), (peers.EightBit("AdamW8bit"), "model"):
        with section(f"{peer.name}: weights"):
            file = pathlib.Path(f"weights-{type(peer).__name__}.pt")
            peer.make(file)
            own = dict(torch.load(file, weights_only=False)[key])
            target = migrate(tool, file, file.with_suffix(".safetensors"), "--to safetensors --weights-only --lossy")
            check(f"{peer.name}: safetensors.load_file gives the weights", equal(load_file(target), own), sorted(load_file(target).keys() ^ own.keys()))
            back = migrate(tool, target, file.with_name("back.pt"), "--to torch --force")
            check(f"{peer.name}: and back, torch.load(weights_only=True) does", equal(dict(torch.load(back, weights_only=True)), own))
            whole = migrate(tool, file, file.with_suffix(".all.safetensors"), "--to safetensors --lossy")
            check(f"{peer.name}: all of it as safetensors, the weights under their names", all(torch.equal(load_file(whole)[k], v) for k, v in own.items()))


def quantized(tool):
    """bitsandbytes' packed weights go to other devices and formats as they are: never cast."""
    for kind in "nf4", "fp4", "int8":
        with section(f"bitsandbytes {kind}"):
            own, file = peers.quantized(kind), pathlib.Path(f"{kind}.pt")
            torch.save(own, file)
            to = migrate(tool, file, f"{kind}-cuda.pt", "--to torch --map-location cuda:2")
            check(f"bitsandbytes {kind}: as torch, on another device", equal(dict(torch.load(to, map_location="cpu", weights_only=True)), dict(own)))
            tensors = {k: v for k, v in own.items() if isinstance(v, torch.Tensor)}
            to = migrate(tool, file, f"{kind}.safetensors", "--to safetensors --lossy")
            found = load_file(to)
            check(f"bitsandbytes {kind}: as safetensors", equal(found, tensors), sorted(found.keys() ^ tensors.keys()))


def pretrained(tool):
    """Shards that from_pretrained loads, out of one file, of shards, and of a torch file."""
    model = peers.HfTrainer.model(1, layers=3)
    own = model.state_dict()
    model.save_pretrained("whole")
    model.save_pretrained("shards", max_shard_size="12KB")
    pathlib.Path("torch").mkdir()
    torch.save(own, "torch/pytorch_model.bin")
    sources = {"one file": "whole/model.safetensors", "shards": "shards", "a torch file": "torch/pytorch_model.bin"}
    for what, source in sources.items():
        for size in "12KB", "5GB":
            with section(f"hf out of {what}, {size}"):
                to = pathlib.Path(f"hf-{size}-{what.replace(' ', '-')}")
                migrate(tool, source, to, f"--to hf --max-shard-size {size}")
                if source != "shards":
                    shutil.copy("whole/config.json", to)
                files = list(to.glob("*.safetensors"))
                check(f"hf out of {what}, {size}: as many files as it takes", (len(files) > 3) == (size == "12KB"), files)
                loaded, info = transformers.GPT2LMHeadModel.from_pretrained(to, output_loading_info=True)
                odd = {k: v for k, v in info.items() if v}
                check(f"hf out of {what}, {size}: from_pretrained has all of it", not odd and equal(loaded.state_dict(), own), odd)
    with section("shards as shards"):
        migrate(tool, "shards", "renamed", "--rename transformer[.](.*)=$1 --allow-unused --drop lm_head.weight")     # tied: it may not be stored
        bare = transformers.GPT2Model.from_pretrained("renamed").state_dict()
        check("shards as shards, under other names", all(torch.equal(v, own["transformer." + k]) for k, v in bare.items()))
        kept = {f.name for f in pathlib.Path("shards").iterdir()} == {f.name for f in pathlib.Path("renamed").iterdir()}
        check("shards as shards: every file is there", kept)
        half = migrate(tool, "shards", pathlib.Path("half"), "--cast *=bfloat16")
        loaded = transformers.GPT2LMHeadModel.from_pretrained(half, dtype=torch.bfloat16).state_dict()
        check("shards as shards, in bfloat16", all(torch.equal(v, own[k].bfloat16()) for k, v in loaded.items()))
    with section("shards into one file"):
        migrate(tool, "shards", "merged.safetensors", "--to safetensors --lossy")
        found = load_file("merged.safetensors")
        check("shards into one file", all(torch.equal(found[k], own[k]) for k in found) and own.keys() - found.keys() <= {"lm_head.weight"},
              sorted(own.keys() ^ found.keys()))


def adapters(tool):
    """peft loads an adapter that went through our hands."""
    with section("peft"):
        model = peers.HfTrainer.model(1, lora=True)
        for name, p in model.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(p)
        model.save_pretrained("adapter")
        own = peft.get_peft_model_state_dict(model)
        for way, options in ("safetensors", ["--to safetensors --lossy"]), ("ckpt and back", ["--to ckpt", "--to safetensors --lossy"]):
            to = pathlib.Path(f"adapter-{len(options)}")
            to.mkdir()
            shutil.copy("adapter/adapter_config.json", to)
            source = "adapter/adapter_model.safetensors"
            for i, option in enumerate(options):
                target = to / ("adapter_model.safetensors" if i == len(options) - 1 else "between.safetensors")
                source = migrate(tool, source, target, option)
            loaded = peft.PeftModel.from_pretrained(peers.HfTrainer.model(2), to)
            check(f"peft: from_pretrained, {way}", equal(peft.get_peft_model_state_dict(loaded), own))
        half = migrate(tool, "adapter", pathlib.Path("adapter-half"), "--to same --cast *=float16")
        loaded = peft.PeftModel.from_pretrained(peers.HfTrainer.model(2), half)
        check("peft: from_pretrained of a directory", equal(peft.get_peft_model_state_dict(loaded), {k: v.half().float() for k, v in own.items()}))


def main():
    inspect, tool = commands(__doc__, 2)
    print(f"torch {torch.__version__}, safetensors {safetensors.__version__}, lightning {lightning.__version__}, accelerate {accelerate.__version__}, "
          f"transformers {transformers.__version__}, peft {peft.__version__}, bitsandbytes {bitsandbytes.__version__}")
    transformers.utils.logging.disable_progress_bar()
    with scratch():
        trainers(inspect, tool)
        as_it_was(inspect, tool)
        for part in optimizers, into_one, in_c, sensitive, weights, quantized, pretrained, adapters:
            part(tool)
    finish()


if __name__ == "__main__":
    main()
