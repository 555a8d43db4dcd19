#!/usr/bin/env python3
"""All six optimizers of libtorch in C++, in groups of several settings: what ckpt-migrate makes of their archives goes on in Python.

usage: libtorch_optimizers.py CKPT-INSPECT CKPT-MIGRATE [-v]

Builds libtorch_optimizers.cpp against the libtorch inside the pip package. Each optimizer takes three steps there and is saved,
alone in its file, with torch::save; torch.optim's of the same name, with other settings, loads what ckpt-migrate --to torch made
of it, and takes the next three steps: in float64 they are those of C++ within 1e-12. The settings of every group arrive, and by
way of the native format too. The last line is "N passed, N failed"."""
import os
import pathlib
import shutil

from checks import ask, check, commands, finish, run, scratch, section, skip

try:
    import torch
except ImportError as e:
    skip(e)

SOURCE = pathlib.Path(__file__).resolve().with_suffix(".cpp")
ADAM = [{}, {"lr": 0.02, "betas": (0.8, 0.9)}, {"lr": 0.03, "amsgrad": True}]
# kind -> (the class, the groups as C++ has them: they must come from the file)
KINDS = {
    "SGD": ("SGD", [{"lr": 0.01, "momentum": 0.9}, {"lr": 0.02, "momentum": 0.8, "nesterov": True}, {"lr": 0.005}]),
    "Adam": ("Adam", [{"lr": 0.01}, *ADAM[1:]]),
    "AdamW": ("AdamW", [{"lr": 0.01}, {"lr": 0.02, "weight_decay": 0.2}, ADAM[2]]),
    "Adagrad": ("Adagrad", [{"lr": 0.1}, {"lr": 0.2, "lr_decay": 0.1}, {"lr": 0.3, "initial_accumulator_value": 0.5}]),
    "RMSprop": ("RMSprop", [{"lr": 0.01}, {"lr": 0.02, "momentum": 0.9}, {"lr": 0.03, "centered": True}]),
    "LBFGS": ("LBFGS", [{"lr": 0.5, "max_iter": 3, "history_size": 4}]),
    "LBFGS-wolfe": ("LBFGS", [{"lr": 0.5, "max_iter": 3, "history_size": 2, "line_search_fn": "strong_wolfe"}]),
}


def build(out):
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not compiler:
        skip("no C++ compiler")
    root = pathlib.Path(torch.__file__).parent
    done = run(*compiler.split(), "-std=c++17", "-O0", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
               "-isystem", root / "include", "-isystem", root / "include/torch/csrc/api/include", SOURCE, "-o", out, f"-L{root / 'lib'}",
               f"-Wl,-rpath,{root / 'lib'}", "-Wl,--allow-shlib-undefined", "-ltorch_cpu", "-lc10", timeout=600)
    return check("libtorch_optimizers.cpp builds", done.returncode == 0, done.stderr)


def loss_of(parameters):
    return sum((p - 0.1 * (i + 1)).pow(2).sum() * (i + 1) + p.pow(4).sum() / 8 for i, p in enumerate(parameters))


def step(optimizer, parameters, count):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(parameters)
        loss.backward()
        return loss
    for _ in range(count):
        optimizer.step(closure)


def parsed(lines):
    shapes = (3, 4), (4, 1), (2, 6), (5, 2)
    return [torch.tensor([float.fromhex(w) for w in line.split()], dtype=torch.float64).view(s) for line, s in zip(lines, shapes)]


def construct(name, groups, parameters):
    kind = getattr(torch.optim, name)
    if len(groups) == 1:
        return kind(parameters, lr=0.77)
    split = parameters[:2], parameters[2:3], parameters[3:]
    return kind([{"params": s} for s in split], lr=0.77)


def goes_on(what, name, groups, lines, file, key=None):
    parameters = [p.requires_grad_() for p in parsed(lines[:4])]
    optimizer = construct(name, groups, parameters)
    saved = torch.load(file, weights_only=True)
    optimizer.load_state_dict(saved[key] if key else saved)
    for i, wanted in enumerate(groups):
        has = optimizer.param_groups[i]
        odd = {k: has.get(k) for k, v in wanted.items() if (tuple(has[k]) if isinstance(v, tuple) else has.get(k)) != v}
        check(f"{what}: the settings of group {i}", not odd, f"{odd} for {wanted}")
    step(optimizer, parameters, 3)
    off = max((p.detach() - q).abs().max().item() for p, q in zip(parameters, parsed(lines[4:8])))
    check(f"{what}: the next steps", off < 1e-12, off)


def named(inspect, kind, file):
    """With the model beside it each state has its parameter's name; LBFGS keeps one for all, at the first."""
    status, said = ask(inspect, "list", "--json", file)
    states = [t["canonical"] for t in said.get("tensors", []) if t["name"].startswith("optimizer")]
    lost = [n for n in states if not n or not n.startswith("optimizer.p")]
    owners = {n.split(".")[1] for n in states if n and n not in lost}
    check(f"{kind}: canonical names", status == 0 and owners == ({"p0"} if kind.startswith("LBFGS") else KEPT.get(kind, ALL)), (owners, lost, states))


def listed(inspect, kind, file, groups):
    status, said = ask(inspect, "list", "--json", file)
    keys = {t["state_key"] for t in said.get("tensors", []) if t.get("state_key")}
    check(f"{kind}: its tensors are listed by their keys", status == 0 and (keys or kind == "LBFGS"), said)
    status, said = ask(inspect, "verify", "--json", file)
    check(f"{kind}: verify", status == 0, said)


ALL = {"p0", "p1", "p2", "p3"}
KEPT = {"SGD": {"p0", "p1", "p2"}}         # the last group has no momentum
INSPECT, MIGRATE = commands(__doc__, 2)
with scratch():
    program = os.path.abspath("program")
    if build(program):
        for kind, (name, groups) in KINDS.items():
            with section(kind):
                done = run(program, kind, "save", f"{kind}.opt")
                if not check(f"{kind}: C++ saves it", done.returncode == 0, done.stderr[:300]):
                    continue
                lines = done.stdout.splitlines()
                listed(INSPECT, kind, f"{kind}.opt", groups)
                done = run(MIGRATE, "--quiet", "--to", "torch", f"{kind}.opt", f"{kind}.pt")
                if check(f"{kind}: --to torch", done.returncode == 0, done.stderr):
                    goes_on(kind, name, groups, lines, f"{kind}.pt")
                done = run(MIGRATE, "--quiet", "--to", "ckpt", f"{kind}.opt", f"{kind}.ckpt")
                there = check(f"{kind}: --to ckpt", done.returncode == 0, done.stderr)
                done = run(MIGRATE, "--quiet", "--to", "torch", f"{kind}.ckpt", f"{kind}.back.pt") if there else done
                if there and check(f"{kind}: and from there to torch", done.returncode == 0, done.stderr):
                    goes_on(f"{kind} by way of ckpt", name, groups, lines, f"{kind}.back.pt")
                named(INSPECT, kind, f"{kind}.opt.whole")
                for to in ("torch", "ckpt"):
                    done = run(MIGRATE, "--quiet", "--to", to, f"{kind}.opt.whole", f"{kind}.whole.{to}")
                    if check(f"{kind}: the whole --to {to}", done.returncode == 0, done.stderr) and to == "torch":
                        goes_on(f"{kind}, the whole", name, groups, lines, f"{kind}.whole.torch", "optimizer")
                done = run(MIGRATE, "--quiet", "--to", "torch", f"{kind}.whole.ckpt", f"{kind}.whole.back")
                if check(f"{kind}: the whole from ckpt to torch", done.returncode == 0, done.stderr):
                    goes_on(f"{kind}, the whole by way of ckpt", name, groups, lines, f"{kind}.whole.back", "optimizer")
finish()
