"""The situations of doctor_truth.py for bitsandbytes: optimizer state in 8 bits, its tables, and what a load must not cast."""
import os

import bitsandbytes
import torch
from torch import nn

import truth_program as program
from truth_tools import Row, tagged

BEFORE, AFTER = program.BEFORE, program.AFTER


def trainer(spec, seed):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 700), nn.Tanh(), nn.Linear(700, 3)).to(getattr(torch, spec.get("dtype", "float32")))
    return net, getattr(bitsandbytes.optim, spec["kind"])(net.parameters(), lr=0.01)


def steps(net, opt, first, count):
    losses = []
    for step in range(first, first + count):
        opt.zero_grad()
        x, y = program.numbers(torch, step, 5, 6, 11), program.numbers(torch, step, 5, 3, 9)
        loss = nn.functional.mse_loss(net(x.to(net[0].weight.dtype)).float(), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def observe(file, spec, wanted, where):
    seen = {"phase": "load", "constructed": {"fused": None, "capturable": None}}
    try:
        net, opt = trainer(spec, 2)
        held = torch.load(file, map_location=where)
        net.load_state_dict(held["model"])
        opt.load_state_dict(held["optimizer"])
        seen.update(phase="step", after=dict(program.flags(opt), **program.state_of(torch, opt, net.named_parameters())))
        seen["cast"] = cast(held["optimizer"]["state"], opt.state_dict()["state"])
        seen["losses"] = steps(net, opt, BEFORE, AFTER)
    except Exception as e:
        seen["error"] = f"{type(e).__name__}: {e}"
    seen["outcome"], seen["why"] = program.verdict(seen, dict(spec, wanted=wanted))
    if seen.get("cast"):
        seen["outcome"], why = "resumes-differently", seen["why"]
        why += seen["cast"]
    return seen


def cast(before, after, path=""):
    """Tensors of another dtype than in the file; bitsandbytes nests some."""
    if torch.is_tensor(before):
        return [] if before.dtype == after.dtype else [f"{path} was {before.dtype} and is {after.dtype}"]
    return [c for k in before for c in cast(before[k], after[k], f"{path}.{k}")] if isinstance(before, dict) else []


TABLE = [  # (name, how it was trained, tag, map_location)
    ("8 bits", {"kind": "AdamW8bit"}, None, None), ("8 bits, bfloat16 weights", {"kind": "AdamW8bit", "dtype": "bfloat16"}, None, None),
    ("8 bits, float16 weights", {"kind": "Adam8bit", "dtype": "float16"}, None, None), ("8 bits, tagged cuda:0", {"kind": "AdamW8bit"}, "cuda:0", "cpu"),
    ("Lion, 8 bits", {"kind": "Lion8bit"}, None, None), ("32 bits", {"kind": "AdamW"}, None, None),
    ("32 bits, bfloat16 weights", {"kind": "AdamW", "dtype": "bfloat16"}, None, None)]


def situations(only, _built):
    rows = []
    version = ".".join(torch.__version__.split(".")[:2])
    for number, (name, spec, tag, where) in enumerate(TABLE):
        if only not in "bitsandbytes: " + name:
            continue
        file = f"bitsandbytes-{number:02d}.pt"
        told = ["--for", "torch", "--torch", version, "--devices", "cpu", *(["--map-location", where] if where else [])]
        try:
            net, opt = trainer(spec, 1)
            steps(net, opt, 0, BEFORE)
            with tagged(tag):
                torch.save({"model": net.state_dict(), "optimizer": opt.state_dict(), "epoch": 1}, file)
            wanted = steps(net, opt, BEFORE, AFTER)
        except Exception as e:
            rows.append(Row("bitsandbytes: " + name, "bitsandbytes", file, told, [], {}, f"it cannot train here: {type(e).__name__}: {e}"))
            continue
        rows.append(Row("bitsandbytes: " + name, "bitsandbytes", file, told, [], observe(os.path.abspath(file), spec, wanted, where), ""))
    return rows
