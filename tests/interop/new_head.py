#!/usr/bin/env python3
"""--replace: a program with a head of another shape goes on from a checkpoint, and the rest as if nothing had happened.

usage: new_head.py CKPT-INSPECT CKPT-MIGRATE [-v]

A model is trained and saved, its head is replaced by ckpt-migrate, and a model with a head of another size under the same
name loads the result (strict=False) with an optimizer over all its parameters. Beside it the same is done by hand in torch.
The next steps of both are the same bit by bit; before them, the body's moments are those that were saved. The last line is "N passed, M failed".
"""
import copy
import json
import pathlib

import checks
from checks import check, finish, run, section, skip

try:
    import torch
    from torch import nn
except ImportError as e:
    skip(e)


class Net(nn.Module):
    """The head stands in the middle, so that what follows it has to keep its numbers."""

    def __init__(self, classes, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 5))
        self.head = nn.Sequential(nn.Linear(5, classes), nn.Linear(classes, classes))
        self.norm = nn.LayerNorm(5)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


def one_group(model):
    return list(model.parameters())


def two_groups(model):
    p = list(model.parameters())
    return [{"params": [x for x in p if x.ndim > 1], "weight_decay": 0.1}, {"params": [x for x in p if x.ndim < 2], "weight_decay": 0.0}]


def named(model):
    return list(model.named_parameters())


KINDS = {
    "AdamW": lambda m: torch.optim.AdamW(one_group(m), lr=1e-2, foreach=False),
    "AdamW of two groups": lambda m: torch.optim.AdamW(two_groups(m), lr=1e-2),
    "AdamW of named parameters": lambda m: torch.optim.AdamW(named(m), lr=1e-2),
    "Adam with amsgrad": lambda m: torch.optim.Adam(one_group(m), lr=1e-2, amsgrad=True),
    "SGD with momentum": lambda m: torch.optim.SGD(two_groups(m), lr=1e-2, momentum=0.9),
    "RMSprop": lambda m: torch.optim.RMSprop(one_group(m), lr=1e-3),
    "Adagrad": lambda m: torch.optim.Adagrad(one_group(m), lr=1e-2),
    "fused AdamW": lambda m: torch.optim.AdamW(one_group(m), lr=1e-2, fused=True),
}


def train(model, optimizer, classes, first, steps):
    losses = []
    for step in range(first, first + steps):
        g = torch.Generator().manual_seed(step)
        x, y = torch.randn(16, 6, generator=g), torch.randint(0, classes, (16,), generator=g)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_hand(state, numbers):
    """What one writes today: the head's tensors go, and its states."""
    state = copy.deepcopy(state)
    state["model"] = {k: v for k, v in state["model"].items() if not k.startswith("head.")}
    for i in numbers:
        state["optimizer"]["state"].pop(i, None)
    return state


def resumed(state, make):
    model = Net(7, 2)
    optimizer = make(model)
    missing = model.load_state_dict(state["model"], strict=False)
    optimizer.load_state_dict(state["optimizer"])
    moments = {n: {k: v.clone() if torch.is_tensor(v) else v for k, v in optimizer.state[p].items()} for n, p in model.named_parameters()}
    losses = train(model, optimizer, 7, 50, 5)
    return missing, moments, losses, model.state_dict(), optimizer.state_dict()["state"]


def same(a, b):
    if torch.is_tensor(a):
        return torch.is_tensor(b) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b


def replaced(migrate, folder, kind, make):
    model = Net(4, 1)
    optimizer = make(model)
    train(model, optimizer, 4, 0, 3)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    source, target = folder / "source.pt", folder / "target.pt"
    torch.save(state, source)
    p = run(migrate, "--force", "--no-sync", "--verify", "--json", "--replace", "head.*", source, target)
    if not check(f"{kind}: --replace head.*", p.returncode == 0, p.stdout + p.stderr):
        return
    said = [f for f in json.loads(p.stdout)["findings"] if f["code"] == "replaced" and f["tensor"]]
    check(f"{kind}: each is named", sorted(f["tensor"] for f in said) == sorted(f"model.{n}" for n in model.state_dict() if n.startswith("head.")), said)
    result = torch.load(target, weights_only=True)
    order = [p for g in optimizer.param_groups for p in g["params"]]
    names = {p: n for n, p in model.named_parameters()}
    numbers = [i for i, p in enumerate(order) if names[p].startswith("head.")]
    check(f"{kind}: the groups are as they were", result["optimizer"]["param_groups"] == state["optimizer"]["param_groups"], result["optimizer"]["param_groups"])
    check(f"{kind}: the states of the others", list(result["optimizer"]["state"]) == [i for i in state["optimizer"]["state"] if i not in numbers],
          list(result["optimizer"]["state"]))
    got, want = resumed(result, make), resumed(by_hand(state, numbers), make)
    check(f"{kind}: only the head is missing", all(k.startswith("head.") for k in got[0].missing_keys) and not got[0].unexpected_keys, got[0])
    for name, p in model.named_parameters():
        now = got[1][name]
        if name.startswith("head."):
            check(f"{kind}: {name} begins anew", not now or kind.startswith("Adagrad"), now)
        else:
            check(f"{kind}: {name} has what was saved", same(now, {k: v for k, v in optimizer.state[p].items()}) or kind.startswith("Adagrad"), now)
    check(f"{kind}: the next losses", got[2] == want[2], (got[2], want[2]))
    check(f"{kind}: the next weights", same(dict(got[3]), dict(want[3])))
    check(f"{kind}: the next moments", same(got[4], want[4]))
    native = folder / "native.safetensors"
    there = run(migrate, "--force", "--no-sync", "-q", "--replace", "head.*", source, native)
    back = run(migrate, "--force", "--no-sync", "-q", native, folder / "back.pt")
    check(f"{kind}: by a native file", there.returncode == 0 and back.returncode == 0, there.stderr + back.stderr)
    if back.returncode == 0:
        again = resumed(torch.load(folder / "back.pt", weights_only=True), make)
        check(f"{kind}: by a native file, the next steps", again[2] == want[2] and same(dict(again[3]), dict(want[3])) and same(again[4], want[4]))


def tied(inspect, migrate, folder):
    """One tensor under two names: the other name stays, and its state with it."""
    def make():
        net = nn.Module()
        torch.manual_seed(3)
        net.emb, net.mid, net.head = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=False)
        net.head.weight = net.emb.weight
        return net
    net = make()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    net.head(net.mid(net.emb(torch.arange(7)))).pow(2).sum().backward()
    optimizer.step()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, folder / "tied.pt")
    p = run(migrate, "--no-sync", "--replace", "head.*", folder / "tied.pt", folder / "untied.pt")
    check("tied: the other name is said to stay", p.returncode == 0 and "'model.emb.weight' is the same tensor, and stays" in p.stdout, p.stdout + p.stderr)
    result = torch.load(folder / "untied.pt", weights_only=True)
    check("tied: the other name stays, with its state", "head.weight" not in result["model"] and torch.equal(result["model"]["emb.weight"], net.emb.weight)
          and same(result["optimizer"], optimizer.state_dict()))
    said = json.loads(run(inspect, "doctor", "--json", folder / "target.pt").stdout)
    fixes = [f["fix"] for f in said["findings"] if f["code"] == "group-mismatch"]
    check("doctor knows how such a file is loaded", len(fixes) == 1 and "strict=False" in fixes[0], said["findings"])


def refused(migrate, folder):
    model = Net(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    x, y = torch.randn(16, 6), torch.randint(0, 4, (16,))

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "lbfgs.pt")
    p = run(migrate, "--no-sync", "--replace", "head.*", folder / "lbfgs.pt", folder / "x.pt")
    check("LBFGS is refused", p.returncode == 2 and "LBFGS" in p.stderr and not (folder / "x.pt").exists(), p.stderr)
    p = run(migrate, "--no-sync", "--replace", "haed.*", folder / "source.pt", folder / "x.pt")
    check("a typo is refused, with the name that was meant", p.returncode == 2 and "head.*' would match" in p.stderr, p.stderr)


def main():
    inspect, migrate = checks.commands(__doc__, 2)
    torch.set_num_threads(1)
    with checks.scratch() as work:
        folder = pathlib.Path(work)
        for kind, make in KINDS.items():
            with section(kind):
                replaced(migrate, folder, kind, make)
        with section("tied"):
            tied(inspect, migrate, folder)
        with section("refused"):
            refused(migrate, folder)
    finish()


main()
