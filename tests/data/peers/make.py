#!/usr/bin/env python3
"""Writes the checkpoints of this folder, each by the library that writes such files, and beside each X the file X.txt: what
that library finds in it. (README says which versions ran.)

usage: make.py [DIR]

X.txt has a line for each tensor and each value, as samples/inspect_any.c prints them, in any order. Python's own code is
all that makes it: none of ours is asked. Needs what tests/interop needs, and an old torch at /usr/bin/python3; $srcdir and
$builddir as there (the trainer on libtorch is built against the library)."""
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
INTEROP = HERE.parents[1] / "interop"
sys.path.insert(0, str(INTEROP))
import checks
import libtorch_peer
import peers
import safetensors
import torch
import transformers


# ---------------------------------------------------------------- what a library finds

def text(s):
    return "".join("?" if ord(c) < 32 or ord(c) == 127 else c for c in s.encode()[:60].decode(errors="ignore"))


def tensor(t, tag, file, path):
    return f"{str(t.dtype)[6:]:<10} {tag or '-':<7} {checks.crc(t)} ({', '.join(map(str, t.shape))}) {file}{path}"


def walk(x, path, file, tags, lines):
    """The walk of the contract: dicts, lists and tuples are gone through, other objects are closed."""
    if isinstance(x, torch.Tensor):
        lines.append(tensor(x, tags.get(x.untyped_storage()._cdata, "cpu"), f"{file}: " if file else "", path))
    elif isinstance(x, (dict, list, tuple)) and type(x).__module__ in ("builtins", "collections"):
        for k, v in x.items() if isinstance(x, dict) else enumerate(x[:100]):       # a generator's state is 625 numbers
            key = f"['{text(k)}']" if isinstance(k, str) else f"[{k!r}]"
            walk(v, path + key, file, tags, lines)
    elif x is None or type(x) in (bool, int, float, str):
        said = f"'{text(x)}'" if isinstance(x, str) else f"{x:.17g}" if isinstance(x, float) else repr(x)
        lines.append((f"['{file}']" if file else "") + f"{path} = {said}")


def pickled(path, file=""):
    tags, held, lines = {}, [], []

    def keep(storage, tag):
        tags[getattr(storage, "_untyped_storage", storage)._cdata] = tag
        held.append(storage)
        return storage

    walk(torch.load(path, map_location=keep, weights_only=False), "", file, tags, lines)
    return lines


def found(path):
    """Every tensor and value of a file or a directory."""
    if path.is_dir():
        lines = []
        for f in sorted(path.iterdir()):
            if f.suffix == ".safetensors":
                with safetensors.safe_open(f, "pt") as s:
                    lines += [tensor(s.get_tensor(n), None, f"{f.name}: ", n) for n in s.keys()]
                    if not any(path.glob("*.index.json")):      # of a shard it says nothing of the whole
                        walk({"__metadata__": s.metadata()}, "", f.name, {}, lines)
            elif f.suffix not in (".json", ".md"):
                lines += pickled(f, f.name)
        return lines
    return libtorch(path) if path.name.startswith("libtorch") else pickled(path)


class Object(dict):
    """Of a class of TorchScript: its attributes."""
    __setstate__ = dict.update


class Scripted(pickle.Unpickler):
    """data.pkl of torch::save: the tensors of its objects' attributes, by torch's own rebuild call."""

    def __init__(self, archive, root):
        super().__init__(archive.open(f"{root}/data.pkl"))
        self.archive, self.root = archive, root

    def find_class(self, module, name):
        if module.startswith("__torch__"):
            return Object
        known = {("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2, ("collections", "OrderedDict"): dict}
        return known.get((module, name)) or getattr(torch, name)

    def persistent_load(self, pid):
        raw = bytearray(self.archive.read(f"{self.root}/data/{pid[2]}"))
        return torch.storage.TypedStorage(wrap_storage=torch.frombuffer(raw, dtype=torch.uint8).untyped_storage(), dtype=pid[1].dtype, _internal=True)


def libtorch(path):
    lines = []

    def attributes(x, name):
        for k, v in x.items():
            if type(v) in (dict, Object):
                attributes(v, name + f"['{k}']")
            else:
                walk(v, name + f"['{k}']", "", {}, lines)

    with zipfile.ZipFile(path) as archive:
        attributes(Scripted(archive, archive.namelist()[0].split("/")[0]).load(), "")
    return lines


# ---------------------------------------------------------------- the checkpoints

def frameworks(out):
    plain = peers.Lightning(plain=True)
    with checks.claimed("cuda:0"):
        plain.make(out / "lightning.ckpt")
        peers.Lightning(best=False).make(out / "lightning-callbacks.ckpt")
        peers.Accelerate().make(out / "accelerate")
        peers.HfTrainer(lora=True).make(out / "hf-trainer")
    losses = plain.resume(out / "lightning.ckpt")[0]
    (out / "lightning.losses").write_text("".join(f"step {peers.BEFORE + n + 1} loss {loss:.9g} ({loss.hex()})\n" for n, loss in enumerate(losses)))
    for odd in "README.md", "training_args.bin":
        (out / "hf-trainer" / odd).unlink()


def sharded(out):
    torch.manual_seed(1)
    config = transformers.GPT2Config(n_layer=1, n_head=1, n_embd=4, vocab_size=16, n_positions=4)
    transformers.GPT2LMHeadModel(config).save_pretrained(out / "hf-sharded", max_shard_size="1KB")


def eight_bit(out):
    import bitsandbytes
    torch.manual_seed(1)
    big, small = torch.nn.Linear(64, 65), torch.nn.Linear(3, 2)
    opt = bitsandbytes.optim.AdamW8bit([*big.parameters(), *small.parameters()], lr=1e-2)
    for _ in range(2):
        (big(torch.randn(4, 64)).square().mean() + small(torch.randn(4, 3)).mean()).backward()
        opt.step()
    torch.save({"optimizer": opt.state_dict(), "global_step": 2}, out / "bitsandbytes.pt")


def cpp(out, scratch):
    program = scratch / "libtorch_resume"
    if not libtorch_peer.build(program):
        sys.exit("libtorch_resume does not build")
    subprocess.run([program, "--steps", "4", "--torch-save", out / "libtorch-module.pt", out / "libtorch-optimizer.pt"], check=True, stdout=subprocess.DEVNULL)


def old(out, scratch):
    said = subprocess.run(["/usr/bin/python3", INTEROP / "old_torch.py", "--old", "write", scratch], check=True, capture_output=True, text=True).stdout
    shutil.copy(scratch / "adamw-cuda.pt", out / "torch-1.13.pt")
    shutil.copy(scratch / "adamw-cuda.legacy.pt", out / "torch-1.13-legacy.pt")
    print("old torch, numpy:", said.strip())


def main():
    target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        os.chdir(scratch)
        out = scratch / "out"
        out.mkdir()
        frameworks(out)
        sharded(out)
        eight_bit(out)
        cpp(out, scratch)
        old(out, scratch)
        for path in sorted(out.iterdir()):
            if path.suffix != ".losses":
                lines = found(path)
                assert lines and len(set(lines)) == len(lines), (path, [line for line in lines if lines.count(line) > 1])
                path.with_name(path.name + ".txt").write_text("".join(line + "\n" for line in sorted(lines)))
        for f in sorted(out.rglob("*")):
            f.chmod(0o755 if f.is_dir() else 0o644)
            assert f.is_dir() or f.stat().st_size < 20480, f
        shutil.copytree(out, target, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
