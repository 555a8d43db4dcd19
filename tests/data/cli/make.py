#!/usr/bin/env python3
"""Writes the fixtures of this folder: make.py [FOLDER]. Made by torch 2.13.0, safetensors 0.8.0 (see README).

Device tags are claimed: while torch saves, its location_tag answers cuda:0 and so on, so the pickle is what that device
gives, although everything runs on the CPU.
"""
import argparse
import functools
import os
import sys
import zipfile

import torch
from safetensors.torch import save_file

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))


def save(obj, name, tag):
    """torch.save with the tags that tag(storage) gives."""
    old = torch.serialization.location_tag
    torch.serialization.location_tag = lambda s: "".join(tag(s)) if tag(s) else old(s)
    try:
        torch.save(obj, os.path.join(OUT, name))
    finally:
        torch.serialization.location_tag = old


def train(flags, optimizer=torch.optim.AdamW, **hyper):
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    opt = optimizer(model.parameters(), **(hyper or {"lr": 1e-3}))
    for _ in range(3):
        opt.zero_grad()
        model(torch.randn(8, 4)).square().sum().backward()
        opt.step()
    for group in opt.param_groups:
        group.update(flags)
    return model, opt


def training(flags, **more):
    model, opt = train(flags)
    scaler = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 3}
    steps = {s["step"].untyped_storage()._cdata for s in opt.state.values()}
    return {"model": model.state_dict(), "optimizer": opt.state_dict(), "scaler": scaler, "step": 3, "epoch": 1, **more}, steps


cuda, steps = training({"fused": True, "foreach": None})
save(cuda, "fused-step-cpu.pt", lambda s: None if s._cdata in steps else "cuda:0")
save(cuda, "fused-step-cuda.pt", lambda s: "cuda:0")
plain, steps = training({})
save(plain, "plain.pt", lambda s: None if s._cdata in steps else "cuda:0")
save(plain, "plain-step-cuda.pt", lambda s: "cuda:0")
capturable, _ = training({"capturable": True})
save(capturable, "capturable-cpu.pt", lambda s: None)
args, steps = training({"fused": True, "foreach": None}, args=argparse.Namespace(lr=1e-3, name="a\x1b[31mb\n"))
save(args, "namespace.pt", lambda s: "cuda:0")
three = {name: torch.full((2,), float(i)) for i, name in enumerate("abc")}
places = {t.untyped_storage()._cdata: f"cuda:{i}" for i, t in enumerate(three.values())}
save(three, "three-devices.pt", lambda s: places[s._cdata])

nan = float("nan")
save({"nan": nan, "inf": float("inf"), "minus": -float("inf"), "big": 2 ** 60, "tiny": 5e-324, "tenth": 0.1, "one": 1.0, "none": None,
      "yes": True, "text": "\x00\x1b\x7f\u2028 é \ud800 \\ \"", 0: "int", "0": "str", (1, "a"): 2.5, "bytes": b"\x00\xff", "list": [1, [2]],
      "device": torch.device("cuda", 1), "set": {1}, "empty": {}}, "values.pt", lambda s: None)
save({"x" + "y" * 90: torch.arange(3), "new\nline": torch.arange(2), "conj": torch.tensor([1 + 2j]).conj(),
      "coo": torch.eye(2).to_sparse(), "bf16": torch.ones(2, dtype=torch.bfloat16), "scalar": torch.tensor(1.5)}, "tensors.pt",
     lambda s: None)
masked = torch.masked.masked_tensor(torch.arange(4.0), torch.tensor([True, False, True, True]))
save({"m": masked, "again": masked, "w": torch.ones(2)}, "masked.pt", lambda s: None)
kept = torch.full((3,), 3.0).untyped_storage()
save({"call": functools.partial(print, torch.full((3,), 1.0)), "set": {torch.full((3,), 2.0)}, "bytes": kept, "w": torch.full((3,), 4.0)}, "closed.pt",
     lambda s: None)
shared = torch.arange(6.0)
save({"whole": shared, "part": shared[2:4]}, "shared.pt", lambda s: "cuda:1")
save_file({"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.zeros(2)}, os.path.join(OUT, "weights.safetensors"),
          metadata={"format": "pt"})
os.chmod(os.path.join(OUT, "weights.safetensors"), 0o644)

with zipfile.ZipFile(os.path.join(OUT, "plain.pt")) as z:      # one bit of one payload
    name = [n for n in z.namelist() if n.endswith("/data/0")][0]
    payload = z.read(name)
whole = open(os.path.join(OUT, "plain.pt"), "rb").read()
at = whole.index(payload)
with open(os.path.join(OUT, "bad-crc.pt"), "wb") as f:
    f.write(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
with open(os.path.join(OUT, "bad-half.pt"), "wb") as f:
    f.write(whole[: len(whole) // 2])

# What a scan is for, opcode by opcode: a call behind the first STOP, and names that nobody can judge. Never loaded.
with open(os.path.join(OUT, "attack.pkl"), "wb") as f:
    f.write(b"\x80\x02K\x01.\x80\x02cos\nsystem\nX\x11\x00\x00\x00echo \x1b[31mattack\n\x85q\x00R.")
with open(os.path.join(OUT, "own-class.pkl"), "wb") as f:
    f.write(b"\x80\x02c__main__\nTrainer\n)R\x82\x05\x86.")
