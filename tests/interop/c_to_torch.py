#!/usr/bin/env python3
"""A trainer in C without parameter groups: what ckpt-migrate --to torch makes of its moments, and whether torch goes on as it would.

usage: c_to_torch.py CKPT-INSPECT CKPT-MIGRATE [-v]

build/tests/interop/adam_in_c (beside the commands) trains with Adam by hand and saves; ckpt-migrate writes a torch file, torch.optim
loads it, and its next steps are those of the C program to the last digits of float32. The last line is "N passed, M failed".
"""
import json
import pathlib

import checks
from checks import check, finish, run, section, skip

try:
    import numpy as np
    import torch
except ImportError as e:
    skip(e)

STEP, AFTER = 5, 4
LIKE = {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}


def parameters(model, names):
    return [torch.nn.Parameter(model[n].clone()) for n in names]


def steps(params, optimizer, names, first):
    """The gradient of adam_in_c.c: it counts its elements over all parameters, the weight's first."""
    at = {"layer.weight": 0, "layer.bias": 12}
    for step in range(first + 1, first + 1 + AFTER):
        for name, p in zip(names, params):
            i = torch.arange(at[name], at[name] + p.numel()).remainder(5).float().view_as(p)
            p.grad = p.detach() * (0.5 + 0.25 * i) + torch.tensor(0.125 * step)
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for _, p in sorted(zip(names, params), key=lambda x: at[x[0]])])


def made(job, kind):
    file = job.folder / f"{kind}.safetensors"
    p = run(job.trainer, file, kind)
    if p.returncode:
        raise RuntimeError(p.stderr)
    return file, torch.from_numpy(np.fromfile(f"{file}.after", dtype=np.float32))


def findings(job, *args):
    p = run(job.migrate, "--force", "--no-sync", "--verify", "--json", *args)
    return p.returncode, json.loads(p.stdout)


def fill(optimizer):
    for g in optimizer.param_groups:
        for k, v in optimizer.defaults.items():
            g.setdefault(k, v)


def close(a, b):
    return torch.allclose(a, b, rtol=3e-6, atol=1e-7)


def goes_on(job, kind, settings):
    file, want = made(job, kind)
    target = job.folder / f"{kind}.pt"
    status, said = findings(job, "--to", "torch", file, target)
    if not check(f"{kind}: written", status == 0, said):
        return
    warned = [f for f in said["findings"] if f["code"] == "group-made"]
    check(f"{kind}: the group is said to be made", len(warned) == 1 and warned[0]["severity"] == "warning", said["findings"])
    state = torch.load(target, weights_only=True)
    group, = state["optimizer"]["param_groups"]
    names = group["param_names"]
    check(f"{kind}: one group in the file's order", group["params"] == [0, 1] and names == ["layer.weight", "layer.bias"], group)
    check(f"{kind}: settings", all(group.get(k) == v for k, v in settings.items()) and ("lr" in group) == bool(settings), group)
    check(f"{kind}: nothing of it lies about", not [k for k in state if k.startswith("optimizer.")], list(state))
    for s in state["optimizer"]["state"].values():
        check(f"{kind}: a state of torch's", sorted(s) == ["exp_avg", "exp_avg_sq", "step"] and s["step"].dtype == torch.float32 and s["step"].ndim == 0
              and s["step"].item() == STEP, s)
    for flags in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        params = parameters(state["model"], names)
        optimizer = torch.optim.Adam(params, **LIKE, **flags)
        optimizer.load_state_dict(torch.load(target, weights_only=True)["optimizer"])      # it keeps the tensors that it is given
        fill(optimizer)
        got = steps(params, optimizer, names, STEP)
        check(f"{kind} {flags}: the next steps", close(got, want), (got - want).abs().max())
    doctor = json.loads(run(job.inspect, "doctor", "--json", target).stdout)
    codes = {f["code"] for f in doctor["findings"]}
    check(f"{kind}: doctor names the settings that are missing", ("missing-hyper" in codes) == (not settings), codes)
    check(f"{kind}: doctor has no other failure", not [f for f in doctor["findings"] if f["severity"] == "error" and f["code"] != "missing-hyper"], doctor["findings"])


def bound_group(job):
    """The group's own order, and a step of each."""
    file, want = made(job, "group")
    target = job.folder / "group.pt"
    status, said = findings(job, "--to", "torch", file, target)
    check("group: written", status == 0, said)
    codes = [f["code"] for f in said["findings"]]
    check("group: none is made, the steps are", "group-made" not in codes and "step-made" in codes, codes)
    state = torch.load(target, weights_only=True)
    names = ["layer.bias", "layer.weight"]
    params = parameters(state["model"], names)
    optimizer = torch.optim.Adam(params, lr=1.0)
    optimizer.load_state_dict(state["optimizer"])
    fill(optimizer)               # the trainer binds no weight_decay
    check("group: a step of each", all(torch.is_tensor(s["step"]) and s["step"].item() == STEP for s in state["optimizer"]["state"].values()))
    got = steps(params, optimizer, names, STEP)
    check("group: the next steps", close(got, want), (got - want).abs().max())


def refused(job):
    for kind, word in (("no-step", "how many steps"), ("orphan", "layer.bias"), ("mixed", "not alike"), ("part", "in no group"), ("far", "not float32")):
        file, _ = made(job, kind)
        target = job.folder / f"{kind}.pt"
        status, said = findings(job, "--to", "torch", file, target)
        lost = [f["message"] for f in said["findings"] if f["code"] == "lost"]
        check(f"{kind}: refused", status == 2 and not target.exists() and len(lost) == 1 and word in lost[0], (status, lost))
        check(f"{kind}: what to bind is said", any("ckpt_state_" in f["fix"] for f in said["findings"] if f["code"] == "lost"), said["findings"])
        status, said = findings(job, "--to", "torch", "--lossy", file, target)
        check(f"{kind}: --lossy writes it", status == 0, said)


class Job:
    pass


def main():
    job = Job()
    job.inspect, job.migrate = checks.commands(__doc__, 2)
    job.trainer = pathlib.Path(job.inspect).parents[2] / "tests/interop/adam_in_c"
    if not job.trainer.exists():
        skip(f"{job.trainer} is not built (make check TESTS=)")
    with checks.scratch() as work:
        job.folder = pathlib.Path(work)
        for kind, settings in (("plain", {}), ("each", {}), ("settings", {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8})):
            with section(kind):
                goes_on(job, kind, settings)
        with section("group"):
            bound_group(job)
        with section("refused"):
            refused(job)
    finish()


main()
