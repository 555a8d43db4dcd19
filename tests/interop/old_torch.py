#!/usr/bin/env python3
"""An old torch beside the new one: it writes zip files and files as before 1.6, we read them; we write, it reads and resumes.

usage: old_torch.py CKPT-INSPECT CKPT-MIGRATE [-v]

The old torch is that of $CKPT_OLD_PYTHON, else of /usr/bin/python3 (Debian's python3-torch, 1.13); where it is missing or
not older than 2.0 this is skipped. What is in its files the new torch says, which reads them too. The last line is
"N passed, N failed"."""
import argparse
import collections
import json
import os
import pathlib
import sys

OLD = os.environ.get("CKPT_OLD_PYTHON", "/usr/bin/python3")
BEFORE, AFTER = 4, 3


# ---------------------------------------------------------------- what the old interpreter runs: nothing of ours is imported

def trainer(torch, seed, kind):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    layers = [("embed", torch.nn.Embedding(12, 6)), ("norm", torch.nn.LayerNorm(6)), ("fc", torch.nn.Linear(6, 4))]
    net = torch.nn.Sequential(collections.OrderedDict(layers))
    return net, torch.optim.AdamW(net.parameters(), lr=0.01, amsgrad=True) if kind == "adamw" else torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def train(torch, net, opt, first, count):
    losses = []
    for step in range(first, first + count):
        opt.zero_grad()
        loss = net((torch.arange(5) * 3 + step) % 12).pow(2).mean()
        loss.backward()
        opt.step()
        losses.append(loss.item().hex())
    return losses


def old_write(folder):
    import numpy as np
    import torch
    location = torch.serialization.location_tag

    def save(obj, name, tag=None):
        def claim(storage):
            return "".join(list(tag)) if tag and storage.size() > 1 else location(storage)

        torch.serialization.location_tag = claim
        torch.save(obj, os.path.join(folder, name + ".pt"))
        torch.save(obj, os.path.join(folder, name + ".legacy.pt"), _use_new_zipfile_serialization=False)
        torch.serialization.location_tag = location

    for kind in "adamw", "sgd":
        net, opt = trainer(torch, 1, kind)
        train(torch, net, opt, 0, BEFORE)
        held = {"model": net.state_dict(), "optimizer": opt.state_dict(), "step": BEFORE, "args": argparse.Namespace(lr=1e-3, device="cuda")}
        save(held, kind)
        save(held, kind + "-cuda", "cuda:1")
    big = torch.arange(48.0)
    p = torch.nn.Parameter(torch.randn(2, 3))
    odd = {"views": [big[3:9], big.view(-1, 1)[::5], big], "q": torch.quantize_per_tensor(torch.randn(3, 4), 0.1, 2, torch.qint8),
           "sparse": torch.eye(4).to_sparse(),
           "bf16": torch.randn(5).bfloat16(), "half": torch.randn(5).half(), "c64": torch.randn(3, dtype=torch.complex64), "bool": torch.rand(4) > 0.5,
           "int": torch.arange(5, dtype=torch.int32), "scalar": torch.tensor(2.5, dtype=torch.float64), "empty": torch.empty(0, 3), "parameter": p, "again": p,
           "numpy": np.arange(4), "number": np.float64(1.5), "size": torch.Size([1, 2]), "dtype": torch.float16,
           "device": torch.device("cuda", 1), "big": 2**70, "nan": float("nan")}
    save(odd, "odd")
    save({"rng": torch.get_rng_state(), "numpy": np.random.get_state()}, "rng")
    save(torch.arange(6.0), "bare")
    save(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)), "module")      # the old format adds its source
    print(torch.__version__, np.__version__)


def old_resume(torch, file, kind):
    held = torch.load(file, map_location="cpu")
    net, opt = trainer(torch, 2, kind)
    net.load_state_dict(held["model"])
    opt.load_state_dict(held["optimizer"])
    assert held["args"] == argparse.Namespace(lr=1e-3, device="cuda") and type(held["model"]) is collections.OrderedDict
    return train(torch, net, opt, held["step"], AFTER)


def old_equal(torch, a, b):
    """Both files hold the same, as the old torch reads them."""
    def equal(x, y):
        if type(x) is not type(y):
            return False
        if isinstance(x, torch.Tensor):
            if x.layout != y.layout or x.dtype != y.dtype or x.shape != y.shape:
                return False
            if x.is_sparse:
                return torch.equal(x.to_dense(), y.to_dense())
            return torch.equal(x.dequantize(), y.dequantize()) if x.is_quantized else torch.equal(x, y) and x.stride() == y.stride()
        if isinstance(x, dict):
            return list(x) == list(y) and all(equal(x[k], y[k]) for k in x)
        if isinstance(x, (list, tuple)):
            return len(x) == len(y) and all(map(equal, x, y))
        if isinstance(x, torch.nn.Module):
            return str(x) == str(y) and equal(dict(x.state_dict()), dict(y.state_dict()))
        return repr(x) == repr(y)

    return equal(torch.load(a, map_location="cpu"), torch.load(b, map_location="cpu"))


def old_jobs(jobs):
    """Each job's answer on a line, as JSON: of resume the losses, of equal yes or no, of what raised its message."""
    import torch
    for job, *arguments in json.loads(pathlib.Path(jobs).read_text()):
        try:
            print(json.dumps({"resume": old_resume, "equal": old_equal}[job](torch, *arguments)))
        except Exception as e:
            print(json.dumps(f"{type(e).__name__}: {e}"))


# ---------------------------------------------------------------- what the new one runs

def old(*arguments):
    from checks import run
    done = run(OLD, "-W", "ignore", os.path.abspath(__file__), "--old", *arguments)
    if done.returncode != 0:
        raise SystemExit(f"the old torch failed: {done.stderr}")
    return done.stdout


class Questions:
    """What the old torch is to be asked, all of it in one process, and what to make of the answers."""

    def __init__(self):
        self.jobs, self.checks = [], []

    def ask(self, *job):
        job = [str(j) for j in job]
        if job not in self.jobs:
            self.jobs.append(job)
        return self.jobs.index(job)

    def equal(self, what, a, b):
        n = self.ask("equal", a, b)
        self.checks.append(lambda answers: (what, answers[n] is True, answers[n]))

    def resume(self, what, file, kind, than=None):
        """The steps after a resume of `file`; the same as after one of `than`."""
        n, m = self.ask("resume", file, kind), self.ask("resume", than or file, kind)
        self.checks.append(lambda answers: (what, isinstance(answers[n], list) and len(answers[n]) == AFTER and answers[n] == answers[m], f"{answers[n]}, {answers[m]}"))

    def answer(self):
        from checks import check
        pathlib.Path("jobs.json").write_text(json.dumps(self.jobs))
        answers = [json.loads(line) for line in old("jobs", "jobs.json").splitlines()]
        for each in self.checks:
            check(*each(answers))


def reading(inspect, folder):
    """Every file, as the new torch says what is in it."""
    import torch_read
    from checks import check, section
    for file in sorted(folder.glob("*.pt")):
        form = "torch-legacy" if ".legacy" in file.name else "torch"
        with section(f"list {file.name}"):
            wrong = list(torch_read.differences(inspect, file, torch_read.expected(file), form))
            check(f"list {file.name}", not wrong, "; ".join(wrong[:5]))


def migrated(migrate, what, source, target, *options):
    from checks import check, run
    done = run(migrate, "--quiet", "--verify", *options, source, target)
    return check(what, done.returncode == 0, done.stderr)


def writing(migrate, folder, questions):
    """Every file to the format of today and to other devices: the old torch finds the same, and resumes."""
    for file in sorted(folder.glob("*.pt")):
        kind = file.name.split(".")[0].split("-")[0]
        trained = kind in ("adamw", "sgd")
        if trained:
            questions.resume(f"{file.name}: the old torch resumes", file, kind)
        new, moved = file.with_suffix(".new"), file.with_suffix(".moved")
        if migrated(migrate, f"{file.name}: written again", file, new, "--to", "torch"):
            questions.equal(f"{file.name}: the old torch finds the same", file, new)
            if trained:
                questions.resume(f"{file.name}: and resumes to the same steps", new, kind, than=file)
        if migrated(migrate, f"{file.name}: to another device", file, moved, "--to", "torch", "--map-location", "cuda:2") and trained:
            questions.resume(f"{file.name}: and from there to the same steps", moved, kind, than=file)


def new_for_old(migrate, folder, questions):
    """Files of the new torch that went through our hands."""
    import torch
    for kind in "adamw", "sgd":
        net, opt = trainer(torch, 1, kind)
        train(torch, net, opt, 0, BEFORE)
        file, through, again = (folder / f"new-{kind}.{s}" for s in ("pth", "safetensors", "again"))
        torch.save({"model": net.state_dict(), "optimizer": opt.state_dict(), "step": BEFORE, "args": argparse.Namespace(lr=1e-3, device="cuda")}, file)
        questions.resume(f"new {kind}: the old torch resumes", file, kind)
        if migrated(migrate, f"new {kind}: to ckpt", file, through, "--to", "ckpt") and migrated(migrate, f"new {kind}: and back", through, again, "--to", "torch"):
            questions.resume(f"new {kind}: and from ours to the same steps", again, kind, than=file)


def main():
    from checks import commands, finish, run, scratch, skip
    inspect, migrate = commands(__doc__, 2)
    there = run(OLD, "-c", "import torch, numpy; print(torch.__version__, numpy.__version__)") if os.path.exists(OLD) else None
    if there is None or there.returncode != 0:
        skip(f"{OLD} has no torch (Debian: python3-torch)")
    if int(there.stdout.split(".")[0]) >= 2:
        skip(f"the torch of {OLD} is {there.stdout.split()[0]}, not an old one")
    try:
        import torch
    except ImportError as e:
        skip(e)
    print(f"torch {torch.__version__}, and torch {there.stdout.strip().replace(' ', ', numpy ')} at {OLD}")
    with scratch() as folder:
        old("write", folder)
        folder = pathlib.Path(folder)
        reading(inspect, folder)
        questions = Questions()
        writing(migrate, folder, questions)
        new_for_old(migrate, folder, questions)
        questions.answer()
    finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--old"]:
        {"write": old_write, "jobs": old_jobs}[sys.argv[2]](*sys.argv[3:])
    else:
        main()
