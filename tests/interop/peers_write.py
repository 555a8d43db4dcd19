#!/usr/bin/env python3
"""PyTorch's frameworks write, ckpt-inspect reads: every tensor and every value as the library that wrote it has them.

usage: peers_write.py CKPT-INSPECT [-v]

Torch, Lightning, accelerate, transformers' Trainer, peft and bitsandbytes train small models and save them as their users
do, once as the CPU leaves them and once with storages that claim to be on cuda:0. Each file is loaded by its own library;
compared are name, dtype, shape, strides, device, the CRC-32 of each tensor, which tensors share a storage, the values, and
the classes of what is opaque. The last line is "N passed, N failed"."""
import json
import pathlib

from checks import ask, check, claimed, commands, crc, finish, scratch, section, skip

try:
    import accelerate
    import bitsandbytes
    import lightning
    import peft
    import safetensors
    import torch
    import transformers
    import peers
    import torch_read
except ImportError as e:
    skip(e)

# Files of a checkpoint directory that are not tensors and no pickles: read where they say something, else left alone.
TEXT = (".json", ".md", ".txt")


def held(path):
    """{name: what the library finds}: torch_read.Expected of a pickle, {name: tensor} of a safetensors file."""
    if path.suffix == ".safetensors":
        with safetensors.safe_open(path, "pt") as f:
            return {name: f.get_tensor(name) for name in f.keys()}
    return torch_read.expected(path)


def tensors_of(held_file):
    """(name, fields to compare) of every tensor in a file."""
    if isinstance(held_file, dict):
        for name, t in held_file.items():
            yield name, {"dtype": str(t.dtype)[6:], "shape": list(t.shape), "crc32": crc(t)}
    else:
        for t in held_file.tensors:
            yield t["name"], {k: v for k, v in t.items() if k not in ("name", "storage")}


def directory(inspect, folder):
    """Differences between what ckpt-inspect says of a directory and what its files' own libraries find in them."""
    files = {str(f.relative_to(folder)): held(f) for f in sorted(folder.rglob("*")) if f.is_file() and f.suffix not in TEXT}
    status, doc = ask(inspect, "list", "--json", "--checksum", folder)
    if status != 0:
        yield f"list: status {status}: {doc.get('error')}"
        return
    said = {(t.get("file"), t["name"]): t for t in doc["tensors"]}
    wanted = {(file, name): fields for file, found in files.items() for name, fields in tensors_of(found)}
    for key, fields in wanted.items():
        if key not in said:
            yield f"tensor {key[1]!r} of {key[0]} is missing"
        else:
            yield from (f"tensor {key}: {k} {said[key].get(k)!r}, it has {v!r}" for k, v in fields.items() if said[key].get(k) != v)
    yield from (f"tensor {key} is in none of the files" for key in said.keys() - wanted.keys() if not said[key].get("inside"))
    status, doc = ask(inspect, "tree", "--json", folder)
    if status != 0:
        yield f"tree: status {status}: {doc.get('error')}"
        return
    for file, found in files.items():
        if isinstance(found, dict):
            continue
        for what, values in ("scalars", found.scalars), ("objects", found.objects):
            for name, value in values.items():
                got = doc[what].get(f"{file}.{name}" if name else file, "nothing")
                if got != value or isinstance(got, bool) != isinstance(value, bool):
                    yield f"{what} {name!r} of {file}: {got!r}, it has {value!r}"


def compare(what, inspect, path):
    wrong = list(directory(inspect, path) if path.is_dir() else torch_read.differences(inspect, path, torch_read.expected(path)))
    check(what, not wrong, "; ".join(wrong[:4]) + (f" (and {len(wrong) - 4} more)" if len(wrong) > 4 else ""))


def trainers(inspect):
    made = [peers.Torch("AdamW", lr=1e-2, amsgrad=True), peers.Torch("SGD", lr=0.1, momentum=0.9), peers.Torch("NAdam", lr=1e-2),
            peers.Torch("Adafactor", lr=1e-2), peers.EightBit("AdamW8bit"), peers.EightBit("Lion8bit"), peers.EightBit("SGD8bit", momentum=0.9),
            peers.EightBit("AdEMAMix8bit"),
            peers.Lightning(), peers.Lightning(plain=True),
            peers.Lightning(two=True), peers.Lightning(extra="scaler"),
            peers.Lightning(extra="ema"), peers.Accelerate(), peers.Accelerate(safe=False), peers.HfTrainer(), peers.HfTrainer(lora=True)]
    for peer in made:
        for tag in None, "cuda:0":
            what = f"{peer.name}, " + (f"tagged {tag}" if tag else "on the cpu")
            path = pathlib.Path(f"{len(list(pathlib.Path('.').iterdir()))}-checkpoint")
            with section(what), claimed(tag):
                peer.make(path)
                compare(what, inspect, path)
            extra = pathlib.Path("ckpts/last.ckpt")             # what Lightning's own callback wrote, states of callbacks in it
            if tag is None and extra.exists():
                with section(f"{what}, last.ckpt of ModelCheckpoint"):
                    compare(f"{what}, last.ckpt of ModelCheckpoint", inspect, extra)
                    extra.unlink()


def producers(inspect):
    """show names the program that wrote it, and where it stopped."""
    for peer, producer in (peers.Lightning(), "Lightning"), (peers.Accelerate(), "accelerate"), (peers.HfTrainer(), "HF Trainer"):
        path = pathlib.Path(f"by-{type(peer).__name__}")
        with section(f"show: {producer}"):
            peer.make(path)
            status, doc = ask(inspect, "show", "--json", path)
            check(f"show: written by {producer}", status == 0 and doc.get("producer") == producer, f"status {status}, {doc.get('producer')} {doc.get('error')}")
            check(f"show: the step of {producer}", doc.get("step") == peers.BEFORE, doc.get("step"))


def sharded(inspect):
    """save_pretrained in several shards, and the same as .bin, is one checkpoint by its index."""
    model = peers.HfTrainer.model(1, layers=3)
    tied = {"lm_head.weight"}
    for suffix in "safetensors", "bin":
        folder = pathlib.Path(f"sharded-{suffix}")
        with section(f"sharded {suffix}"):
            model.save_pretrained(folder, max_shard_size="12KB")
            if suffix == "bin":                  # transformers itself writes safetensors only
                import huggingface_hub
                for f in folder.glob("model*"):
                    f.unlink()
                huggingface_hub.save_torch_state_dict(model.state_dict(), folder, safe_serialization=False, max_shard_size="12KB")
            index = json.loads(next(folder.glob("*.index.json")).read_text())["weight_map"]
            check(f"sharded {suffix}: in several files", len(set(index.values())) > 2, set(index.values()))
            compare(f"sharded {suffix}", inspect, folder)
            status, doc = ask(inspect, "list", "--json", "--checksum", folder)
            check(f"sharded {suffix}: format hf", doc.get("format") == "hf", doc.get("format") or doc.get("error"))
            said = {t["name"]: (t.get("file"), t["crc32"]) for t in doc.get("tensors", [])}
            own = {name: (index.get(name), crc(t)) for name, t in model.state_dict().items() if name in index or name not in tied}
            check(f"sharded {suffix}: the model's tensors, where the index says", status == 0 and said == own,
                  f"{sorted(set(said.items()) ^ set(own.items()))[:4]}")


def adapters(inspect):
    """peft's save_pretrained alone, without a trainer around it."""
    with section("peft"):
        model = peers.HfTrainer.model(1, lora=True)
        model.save_pretrained("adapter")
        compare("peft: save_pretrained", inspect, pathlib.Path("adapter"))
        status, doc = ask(inspect, "list", "--json", "--checksum", "adapter")
        own = {name: crc(t) for name, t in peft.get_peft_model_state_dict(model).items()}
        said = {t["name"]: t["crc32"] for t in doc.get("tensors", [])}
        check("peft: the adapter's tensors", status == 0 and said == own, f"{said} {own}")


def quantized(inspect):
    """bitsandbytes' layers: packed weights with their state beside them."""
    for kind in "nf4", "fp4", "int8":
        with section(f"bitsandbytes {kind}"):
            file, held = pathlib.Path(f"{kind}.pt"), peers.quantized(kind)
            torch.save(held, file)
            check(f"bitsandbytes {kind}: the state is beside the weight", len(held) > 4, list(held))
            compare(f"bitsandbytes {kind}", inspect, file)


def main():
    inspect, = commands(__doc__, 1)
    print(f"torch {torch.__version__}, safetensors {safetensors.__version__}, lightning {lightning.__version__}, accelerate {accelerate.__version__}, "
          f"transformers {transformers.__version__}, peft {peft.__version__}, bitsandbytes {bitsandbytes.__version__}")
    with scratch():
        for part in trainers, producers, sharded, adapters, quantized:
            part(inspect)
    finish()


if __name__ == "__main__":
    main()
