#!/usr/bin/env python3
"""Holds ckpt-migrate's transforms against torch: what it writes loads, and training goes on as it would have without it.

usage: transform.py CKPT-INSPECT CKPT-MIGRATE [-v]

Each check saves a small model and its optimizer with torch, migrates the file, loads the result with load_state_dict (strict
where nothing was taken out), and compares tensors bit by bit and the next optimizer steps with those from the file as it
was. The last line is "N passed, M failed"; status 1 if anything failed, 77 (skipped) where torch or safetensors is missing.
"""
import argparse
import collections
import copy
import enum
import functools
import json
import pathlib
import sys
import tempfile
import uuid

import checks
from checks import check, finish, run, section, skip

try:
    import numpy as np
    import torch
    from safetensors.torch import load_file, save_file
    from torch import nn
except ImportError as e:
    skip(e)

Point = collections.namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = "red"


class Options(argparse.Namespace):
    pass


class Scaled(torch.Tensor):
    """A shell around other tensors, as quantization libraries make them; it computes nothing."""

    @staticmethod
    def __new__(cls, data, **attributes):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.float32)

    def __init__(self, data, **attributes):
        self.data_ = data
        self.__dict__.update(attributes)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.emb = nn.Embedding(11, 6)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 6))
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, x):
        return self.head(self.body(self.emb(x)))


def groups(model, order=lambda names: names):
    """Decay and no decay, as trainers do; the order of the parameters is the program's own."""
    named = dict(model.named_parameters())
    names = order(list(named))
    decay = [n for n in names if named[n].ndim > 1]
    plain = [n for n in names if named[n].ndim < 2]
    return [{"params": [(n, named[n]) for n in decay], "weight_decay": 0.1}, {"params": [(n, named[n]) for n in plain], "weight_decay": 0.0}]


def trainer(order=lambda names: names, steps=3, **kw):
    model = Net()
    optimizer = torch.optim.AdamW(groups(model, order), lr=1e-2, **kw)
    train(model, optimizer, steps)
    return model, optimizer


def train(model, optimizer, steps, seed=3):
    g = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randint(0, 11, (16,), generator=g)
        loss = nn.functional.cross_entropy(model(x), (x + 1) % 11)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {n: p.detach().clone() for n, p in model.state_dict().items()}


def same(a, b):
    return list(a) == list(b) and all(torch.equal(a[k], b[k]) for k in a)


def resumed(state, order=lambda names: names, **kw):
    """What four more steps make of a loaded state."""
    model = Net()
    optimizer = torch.optim.AdamW(groups(model, order), lr=1e-2, **kw)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return train(model, optimizer, 4, seed=9)


class Job:
    def __init__(self, migrate, folder):
        self.migrate, self.folder = migrate, pathlib.Path(folder)

    def path(self, name):
        return self.folder / name

    def save(self, name, what):
        torch.save(what, self.path(name))
        return self.path(name)

    def run(self, *args, status=0):
        p = run(self.migrate, "--force", "--no-sync", "-q", *args)
        check(f"status {status} of {' '.join(map(str, args))}", p.returncode == status, f"{p.returncode} {p.stderr}")
        return p

    def to(self, name, *args, status=0, **kw):
        """Migrates to a torch file and loads it."""
        self.run("--verify", *args, self.path(name), status=status)
        return torch.load(self.path(name), **kw)

    def findings(self, *args):
        p = run(self.migrate, "--force", "--no-sync", "--json", *args)
        return json.loads(p.stdout)


def state_of(model, optimizer, **more):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **more}


def names(j):
    model, optimizer = trainer()
    plain = state_of(model, optimizer)
    want = resumed(copy.deepcopy(plain))
    source = j.save("plain.pt", plain)
    again = j.to("again.pt", source)
    check("as it is: the same tensors", same(again["model"], plain["model"]))
    check("as it is: _metadata", again["model"]._metadata == plain["model"]._metadata)
    check("as it is: tied weights are one storage", again["model"]["emb.weight"].data_ptr() == again["model"]["head.weight"].data_ptr())
    check("as it is: the next steps", same(resumed(again), want))

    wrapped = nn.DataParallel(model)
    for g, h in zip(optimizer.param_groups, groups(wrapped)):
        g["param_names"] = ["module." + n for n in g["param_names"]]
    source = j.save("ddp.pt", {"model": wrapped.state_dict(), "optimizer": optimizer.state_dict()})
    stripped = j.to("stripped.pt", "--strip-prefix", "module.", source)
    check("--strip-prefix: names", list(stripped["model"]) == list(plain["model"]))
    check("--strip-prefix: _metadata", dict(stripped["model"]._metadata) == dict(plain["model"]._metadata))
    check("--strip-prefix: param_names", stripped["optimizer"]["param_groups"] == plain["optimizer"]["param_groups"],
          stripped["optimizer"]["param_groups"])
    check("--strip-prefix: the next steps", same(resumed(stripped), want))

    inner = collections.OrderedDict((k.replace("body.", "body._orig_mod.") if "body" in k else k, v) for k, v in plain["model"].items())
    source = j.save("inner.pt", {"a": [{"b": inner}]})
    check("--strip-prefix inside names, at any depth",
          list(j.to("x.pt", "--strip-prefix", "_orig_mod.", source)["a"][0]["b"]) == list(plain["model"]))

    source = j.path("plain.pt")
    prefixed = j.to("prefixed.pt", "--add-prefix", "module.", source)
    nn.DataParallel(Net()).load_state_dict(prefixed["model"])
    check("--add-prefix: _metadata", dict(prefixed["model"]._metadata) == {k: v for k, v in wrapped.state_dict()._metadata.items() if k})
    back = j.to("back.pt", "--strip-prefix", "module.", j.path("prefixed.pt"))
    check("--add-prefix and back: the next steps", same(resumed(back), want))

    renamed = j.to("renamed.pt", "--rename", r"body\.(\d)\.(.*)=trunk.layer$1.$2", source)["model"]
    check("--rename", list(renamed) == [k.replace("body.", "trunk.layer") if k.startswith("body") else k for k in plain["model"]], list(renamed))
    check("--rename: _metadata of modules", "trunk.layer1" in renamed._metadata and renamed._metadata["trunk.layer1"] == {"version": 2},
          dict(renamed._metadata))
    p = j.run("--rename", r"body\.\d\.weight=w", source, j.path("x.pt"), status=2)
    check("--rename: a collision names both", "body.0.weight" in p.stderr and "body.1.weight" in p.stderr, p.stderr)


def selection(j):
    model, optimizer = trainer()
    state = state_of(model, optimizer, epoch=3)
    source = j.save("s.pt", state)
    w = j.to("w.pt", "--weights-only", source)
    check("--weights-only: a flat state_dict", same(w, state["model"]) and w._metadata == state["model"]._metadata)
    Net().load_state_dict(w)
    d = j.to("d.pt", "--drop", "model.body.2.*", source)
    check("--drop: the names", list(d["model"]) == [k for k in state["model"] if not k.startswith("body.2")])
    check("--drop of weights alone keeps the optimizer",
          d["optimizer"]["param_groups"] == state["optimizer"]["param_groups"] and len(d["optimizer"]["state"]) == len(state["optimizer"]["state"]))
    Net().load_state_dict(d["model"], strict=False)
    d = j.to("d.pt", "--drop", "model.body.2.*", "--drop", "optimizer.body.2.*", source)
    groups_of = d["optimizer"]["param_groups"]
    check("--drop of parameters with their state: ids are dense", [i for g in groups_of for i in g["params"]] == list(range(5)), groups_of)
    check("--drop: the state follows its names",
          [n for g in groups_of for n in g["param_names"]] == ["emb.weight", "body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias"]
          and list(d["optimizer"]["state"]) == list(range(5)), groups_of)
    before = {n: i for g in state["optimizer"]["param_groups"] for n, i in zip(g["param_names"], g["params"])}
    check("--drop: the moments are those of the names",
          all(torch.equal(d["optimizer"]["state"][i]["exp_avg"], state["optimizer"]["state"][before[n]]["exp_avg"])
              for g in groups_of for n, i in zip(g["param_names"], g["params"])))
    check("--drop of a value", "epoch" not in j.to("d.pt", "--drop", "epoch", source))
    t = j.to("t.pt", "--tensor", "model.emb.*", source)
    check("--tensor keeps what it names", list(t["model"]) == ["emb.weight"] and all(not v or set(v) <= {"step"} for v in t["optimizer"]["state"].values()))


def script(j):
    """A module that torch.jit.save wrote: its weights load into the module in Python."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model(torch.randn(5, 3))
    torch.jit.save(torch.jit.script(model), j.path("script.pt"))
    w = j.to("script-weights.pt", "--weights-only", j.path("script.pt"), weights_only=True)
    check("TorchScript, --weights-only: the names", set(w) == set(model.state_dict()), list(w))
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    other.load_state_dict(w)
    check("TorchScript, --weights-only: the tensors", all(torch.equal(v, model.state_dict()[k]) for k, v in other.state_dict().items()))


def held(j):
    t = [torch.arange(4.0) + k for k in range(6)]
    state = {"by": collections.defaultdict(dict, a=t[0], b=t[1], c=1), "queue": collections.deque([t[2], "x", t[3], t[0]], maxlen=7),
             "args": Options(by=collections.defaultdict(list, z=t[4], k=t[0]), queue=collections.deque([t[5]])), "list": [t[1], t[2]],
             "plain": {"b": t[1]}}
    source = j.save("held.pt", state)
    d = j.to("held2.pt", "--verify", "--drop", "by.b", "--drop", "queue.0", "--drop", "args.by.z", "--drop", "args.queue.0", source, weights_only=False)
    check("--drop in a defaultdict", list(d["by"]) == ["a", "c"] and isinstance(d["by"], collections.defaultdict) and d["by"].default_factory is dict, d["by"])
    check("--drop in a deque", len(d["queue"]) == 3 and d["queue"].maxlen == 7 and d["queue"][0] == "x" and torch.equal(d["queue"][1], t[3]), d["queue"])
    check("--drop in those of an object", list(d["args"].by) == ["k"] and d["args"].by.default_factory is list and not d["args"].queue, vars(d["args"]))
    check("--drop: what is the same stays the same", d["queue"][2].data_ptr() == d["by"]["a"].data_ptr() == d["args"].by["k"].data_ptr())
    check("--drop: the tensor's other places stay", torch.equal(d["list"][0], t[1]) and torch.equal(d["list"][1], t[2]) and torch.equal(d["plain"]["b"], t[1]))
    j.run("--to", "ckpt", "--verify", "--drop", "*.b", "--drop", "queue.0", source, j.path("held.safetensors"))
    d = j.to("held3.pt", j.path("held.safetensors"), weights_only=False)
    check("--drop on the way to ckpt", list(d["by"]) == ["a", "c"] and len(d["queue"]) == 3 and d["queue"].maxlen == 7 and not d["plain"], d)


def ties(j):
    """One of a tensor's names goes; tensors inside opaque objects go along."""
    model, _ = trainer()
    state = {"ema": model.emb.weight.detach(), "model": model.state_dict()}
    source = j.save("t.pt", state)
    for drop in ("ema", "model.emb.weight", "model.head.weight"):
        args = ["--drop", drop, "--cast", "*=bfloat16", "--map-location", "cuda:1"]
        tags = set()
        for via in ("torch", "ckpt"):
            if via == "ckpt":
                j.run("--to", "ckpt", *args, source, j.path("t.safetensors"))
                t = j.to("u.pt", j.path("t.safetensors"), map_location=lambda s, tag: tags.add(tag) or s)
            else:
                t = j.to("u.pt", *args, source, map_location=lambda s, tag: tags.add(tag) or s)
            left = {k: v for k, v in {**t.get("model", {}), "ema": t.get("ema")}.items() if v is not None}
            want = [k for k in [*state["model"], "ema"] if k != drop.removeprefix("model.")]
            check(f"--drop {drop} of a tied tensor, by {via}", sorted(left) == sorted(want) and tags == {"cuda:1"} and
                  all(v.dtype == torch.bfloat16 or not v.is_floating_point() for v in left.values()), (sorted(left), tags))
    base = torch.arange(10.0)
    cut = functools.partial(print, base[1:9], torch.zeros(3))
    source = j.save("c.pt", {"m": base[:2], "call": cut})
    j.run("--to", "ckpt", "--map-location", "cuda:2", source, j.path("c.safetensors"))
    tags = set()
    t = j.to("d.pt", j.path("c.safetensors"), weights_only=False, map_location=lambda s, tag: tags.add(tag) or s)
    check("tensors inside a call: values", torch.equal(t["call"].args[0], base[1:9]) and torch.equal(t["call"].args[1], torch.zeros(3)))
    check("tensors inside a call: one storage with those outside",
          t["call"].args[0].untyped_storage().data_ptr() == t["m"].untyped_storage().data_ptr() and tags == {"cuda:2"}, tags)


def order(j):
    backwards = lambda n: n[::-1]
    model, optimizer = trainer()
    state = state_of(model, optimizer)
    want = resumed(copy.deepcopy(state))
    source = j.save("o.pt", state)
    listed = j.path("names.txt")
    listed.write_text("".join(f"{n}\n" for g in groups(Net(), backwards) for n, _ in g["params"]))
    turned = j.to("turned.pt", "--param-names", listed, source)
    got = resumed(turned, backwards)
    check("--param-names: the next steps in another order of parameters", same(got, want))
    check("--param-names: param_names", [n for g in turned["optimizer"]["param_groups"] for n in g["param_names"]] == listed.read_text().split())
    try:
        wrong = same(resumed(copy.deepcopy(state), backwards), want)
    except RuntimeError:                        # moments of other shapes
        wrong = False
    check("--param-names: without it that order is wrong", not wrong)
    weights = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(2))]
    lbfgs = torch.optim.LBFGS(weights)
    lbfgs.step(lambda: (lbfgs.zero_grad(), sum((w - 2).square().sum() for w in weights))[1].backward() or torch.tensor(1.0))
    flat = j.save("lbfgs.pt", {"model": {"a": weights[0], "b": weights[1]}, "optimizer": lbfgs.state_dict()})
    listed.write_text("b\na\n")
    p = j.run("--param-names", listed, flat, j.path("x.pt"), status=2)
    check("--param-names: LBFGS has one state for all", "LBFGS" in p.stderr, p.stderr)
    listed.write_text("a\nb\n")
    j.run("--param-names", listed, flat, j.path("x.pt"))
    listed.write_text("emb.weight\n")
    j.run("--param-names", listed, source, j.path("x.pt"), status=2)


def flags(j):
    model, optimizer = trainer()
    source = j.save("f.pt", state_of(model, optimizer))
    f = j.to("fused.pt", "--optimizer", "fused", "--map-location", "cuda:0", source, map_location="cpu")
    check("--optimizer fused: the groups say so", all(g["fused"] and not g["foreach"] for g in f["optimizer"]["param_groups"]))
    tags = {}
    torch.load(j.path("fused.pt"), map_location=lambda s, t: tags.setdefault(t, s) and s)
    check("--map-location: every storage", set(tags) == {"cuda:0"}, tags)
    back = j.to("plain2.pt", "--optimizer", "plain", "--map-location", "cpu", j.path("fused.pt"))
    check("and back: the next steps", same(resumed(back), resumed(torch.load(source))))


def casts(j):
    model, optimizer = trainer()
    state = state_of(model, optimizer)
    source = j.save("c.pt", state)
    c = j.to("c16.pt", "--cast", "*=bfloat16", source)
    check("--cast: weights", all(torch.equal(c["model"][k], v.to(torch.bfloat16) if v.is_floating_point() else v) for k, v in state["model"].items()))
    check("--cast: ties stay", c["model"]["emb.weight"].data_ptr() == c["model"]["head.weight"].data_ptr())
    check("--cast '*' leaves the optimizer alone", all(t.dtype == torch.float32 for s in c["optimizer"]["state"].values() for t in s.values()))
    c = j.to("c16.pt", "--cast", "*.exp_avg=bfloat16", source)
    check("--cast of moments by name", all(s["exp_avg"].dtype == torch.bfloat16 and s["exp_avg_sq"].dtype == torch.float32 for s in c["optimizer"]["state"].values()))
    odd = {"w": torch.tensor([1e30, -1e30, float("nan"), 1.0, 65519.9, 65520.0])}
    said = j.findings("--cast", "w=float16", j.save("odd.pt", odd), j.path("odd16.pt"))
    check("--cast: what is out of range is counted", any(f["code"] == "cast-range" and "3 of 6" in f["message"] for f in said["findings"]), said)
    check("--cast: NaN is counted", any(f["code"] == "cast-nan" and "1 of 6" in f["message"] for f in said["findings"]), said)
    check("--cast: rounding", torch.equal(torch.load(j.path("odd16.pt"))["w"].nan_to_num(7.0), odd["w"].to(torch.float16).nan_to_num(7.0)))


    tied = torch.arange(3.0)
    source = j.save("tied.pt", {"model": {"a": tied, "b": tied, "c": torch.arange(2.0)}})
    for name in "a", "b":
        c = j.to("tied16.pt", "--cast", f"model.{name}=float16", source)["model"]
        check(f"--cast of a tensor that is there twice, by {name}", c["a"].dtype == c["b"].dtype == torch.float16 and c["c"].dtype == torch.float32 and
              c["a"].data_ptr() == c["b"].data_ptr(), c)
    j.run("--to", "ckpt", source, j.path("tied.safetensors"))
    for drop, left in ("*b", ["a", "c"]), ("*a", ["b", "c"]):
        d = j.to("untied.pt", "--drop", drop, j.path("tied.safetensors"))
        check(f"--drop {drop} of a tensor that is there twice, from ckpt", list(d["model"]) == left, list(d["model"]))
    j.run("--rename", "(.)(.*)=$2$1", j.save("utf.pt", {"über": torch.ones(2), "w": torch.zeros(2)}), j.path("utf2.pt"))
    check("--rename cuts no character", list(torch.load(j.path("utf2.pt"))) == ["berü", "w"], list(torch.load(j.path("utf2.pt"))))


def codes(t):
    return (torch.view_as_real(t) if t.is_complex() else t).reshape(-1).view(torch.uint8)


def every_cast(j):
    """All 65536 codes of two bytes and all 256 of one, and what lies between: bit by bit what torch makes of them. Left out: bfloat16
    of NaN, whose code depends on torch's path, NaN of FNUZ and E8M0, and subnormals to E8M0, which torch does not round to nearest."""
    half, brain = (torch.arange(65536, dtype=torch.int32).to(torch.int16).view(d) for d in (torch.float16, torch.bfloat16))
    small = {d: torch.arange(256, dtype=torch.uint8).view(d) for d in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)}
    finite = half[half.isfinite()].float()
    between = torch.cat([(finite[1:] + finite[:-1]) / 2, brain.float(), torch.tensor([3.4e38, 1e-45])])
    bits = between.view(torch.int32)
    sources = {"float16": half, "bfloat16": brain, "float32": torch.cat([bits, bits + 1, bits - 1]).view(torch.float32),
               **{str(d)[6:]: t for d, t in small.items()}}
    source = j.save("all.pt", sources)
    fnuz = {torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}
    for to in (torch.float64, torch.float32, torch.float16, torch.bfloat16, *small):
        c = j.to("all2.pt", "--cast", f"*={str(to)[6:]}", source)
        for name, t in sources.items():
            want, got = t.to(to), c[name]
            skipped = t.float().isnan() & torch.tensor(to == torch.bfloat16 or t.dtype in fnuz) if t.dtype != to else torch.zeros(len(t), dtype=torch.bool)
            same_codes = (codes(want).reshape(len(t), -1) == codes(got).reshape(len(t), -1)).all(1)
            check(f"--cast {name} to {to}", bool((same_codes | skipped).all()) and bool(got[skipped].float().isnan().all()), t[~same_codes & ~skipped][:4].tolist())


def float4(j):
    packed = torch.arange(24, dtype=torch.uint8).reshape(6, 4).view(torch.float4_e2m1fn_x2)
    state = {"a": packed, "part": packed[1:4], "turned": packed.t(), "none": torch.zeros(2, 0, dtype=torch.uint8).view(packed.dtype), "w": torch.ones(3)}

    def is_same(a, b):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
    source = j.save("f4.pt", state)
    j.run("--to", "safetensors", "--lossy", "--verify", source, j.path("f4.safetensors"))
    plain = load_file(j.path("f4.safetensors"))
    check("float4 to safetensors: as its own library reads them", all(is_same(plain[k], v) for k, v in state.items()), plain)
    save_file({"a": packed, "w": torch.ones(3)}, j.path("own.safetensors"))
    for name in "f4.safetensors", "own.safetensors":
        back = j.to("f4b.pt", j.path(name))
        check(f"float4 of {name} to torch", "a" in back and all(is_same(v, state[k]) for k, v in back.items()), back)
    j.run("--to", "ckpt", source, j.path("f4c.safetensors"))
    back = j.to("f4c.pt", j.path("f4c.safetensors"))
    check("float4 by way of ckpt", all(is_same(back[k], v) for k, v in state.items()), back)
    cast = j.to("f4d.pt", "--cast", "*=float16", source)
    check("float4 is converted by no wide glob", is_same(cast["a"], packed) and cast["w"].dtype == torch.float16)


def tags(j):
    model, optimizer = trainer()
    state = state_of(model, optimizer, device="cpu")
    source = j.save("t.pt", state)

    def tags_of(path):
        seen = set()
        torch.load(path, map_location=lambda storage, tag: seen.add(tag) or storage, weights_only=False)
        return seen

    def moved(rules, source, to="t2.pt"):
        j.run("--verify", "--force", "--map-location", rules, source, j.path(to))
        return j.path(to)
    on_cuda = moved("cuda:1", source, "t1.pt")
    for rules, want in (("cuda:*=xpu:{index}", "xpu:1"), ("cuda:1=mps", "mps"), ("cuda:*=npu:{index-1}", "npu:0"), ("cuda:1=hpu", "hpu"),
                        ("cuda:1=mtia:3", "mtia:3"), ("cuda:*=privateuseone:0", "privateuseone:0"), ("cuda:*==musa:{index+1}", "musa:2")):
        path = moved(rules, on_cuda)
        seen = tags_of(path)
        check(f"--map-location {rules}: torch reads the tags", want in seen and not any(t.startswith("cuda") for t in seen), seen)
        back = torch.load(path, map_location={want: "cpu"}, weights_only=True)
        check(f"--map-location {rules}: torch.load with a dict", same(back["model"], state["model"]) and back["device"] == "cpu")
        check(f"--map-location {rules}: and back", tags_of(moved(f"{want}=cuda:0,npu:*=cpu", path, "t3.pt")) == {"cpu", "cuda:0"} - ({"cpu"} if "cpu" not in seen else set()))
        kept = j.path("kept.safetensors")
        j.run("--force", "--to", "ckpt", path, kept)
        j.run("--force", "--to", "torch", kept, j.path("t4.pt"))
        check(f"--map-location {rules}: a ckpt file keeps them", tags_of(j.path("t4.pt")) == seen, tags_of(j.path("t4.pt")))
    for wrong in ("cpu:0", "CPU", "cuda", "mps:0", "xpu", "XPU:0", "npu:00", "meta", "cdua:0"):
        j.run("--map-location", wrong, source, j.path("never.pt"), status=2)
        check(f"--map-location {wrong} is refused", not j.path("never.pt").exists())


def sparse(j):
    """Tensors that are not dense, straight and by way of a ckpt file, which keeps the torch structure."""
    eye = torch.eye(4).to_sparse()
    ragged = [torch.ones(2, 3), torch.arange(12.0).reshape(4, 3)]
    state = {"module.s": eye, "module.c": torch.eye(3).to_sparse_csr(), "module.n": torch.nested.nested_tensor(ragged),
             "module.j": torch.nested.nested_tensor(ragged, layout=torch.jagged), "module.m": torch.empty(3, device="meta"),
             "module.d": torch.arange(3.0)}
    source = j.save("s.pt", {"model": state, "again": {"module.s": eye}})
    edits = ("--strip-prefix", "module.", "--map-location", "cpu=xpu:1")

    def tags_of(path):
        seen = collections.Counter()
        d = torch.load(path, map_location=lambda storage, tag: seen.update([tag]) or storage, weights_only=False)
        return seen, d

    j.run("--verify", *edits, source, j.path("direct.pt"))
    want, d = tags_of(j.path("direct.pt"))
    check("not dense: tags; sizes, strides and offsets of a nested tensor stay on the host", want["cpu"] == 3 and set(want) == {"cpu", "xpu:1"}, want)
    j.run("--to", "ckpt", source, j.path("s.safetensors"))
    j.run("--verify", *edits, j.path("s.safetensors"), j.path("by-ckpt.pt"))
    j.run("--verify", "--to", "ckpt", *edits, j.path("s.safetensors"), j.path("s2.safetensors"))
    j.run("--verify", j.path("s2.safetensors"), j.path("by-two.pt"))
    for name in ("direct", "by-ckpt", "by-two"):
        seen, d = tags_of(j.path(f"{name}.pt"))
        m = d["model"]
        check(f"not dense, {name}: the tags", seen == want, seen)
        check(f"not dense, {name}: the names", sorted(m) == ["c", "d", "j", "m", "n", "s"] and list(d["again"]) == ["s"], (list(m), list(d["again"])))
        check(f"not dense, {name}: the values", torch.equal(m["s"].to_dense(), torch.eye(4)) and torch.equal(m["c"].to_dense(), torch.eye(3)) and
              all(torch.equal(a, b) for a, b in zip(m["n"].unbind(), ragged)) and all(torch.equal(a, b) for a, b in zip(m["j"].unbind(), ragged)) and
              m["m"].device.type == "meta" and torch.equal(m["d"], state["module.d"]))
        check(f"not dense, {name}: a tie", m["s"] is d["again"]["s"])
    said = j.findings("--cast", "*=float16", j.path("s.safetensors"), j.path("x.pt"))
    check("not dense, by way of ckpt: what does not reach them is said", any(f["code"] == "not-edited" for f in said["findings"]), said)


def plain(j):
    args = Options(lr=1e-3, where=pathlib.PurePosixPath("/data/x"), colour=Colour.RED, point=Point(1, 2), kind=torch.float16)
    state = {"args": args, "rng": np.random.RandomState(3).get_state(), "mean": np.float64(1.5), "grid": np.arange(6, dtype=np.float32).reshape(2, 3),
             "seen": collections.deque([1, 2]), "by": collections.defaultdict(list, a=[1]), "net": Net().state_dict(), "empty": b"",
             "device": torch.device("cuda", 1), "masked": torch.masked.masked_tensor(torch.arange(3.0), torch.tensor([True, False, True]))}
    source = j.save("objects.pt", state)
    try:
        torch.load(source, weights_only=True)
        check("--plain: torch refuses the file as it is", False)
    except Exception as e:
        check("--plain: torch refuses the file as it is", "weights_only" in str(e) or "Weights only" in str(e), e)
    p = j.to("objects-plain.pt", "--plain", source, weights_only=True)
    a = p["args"]
    check("--plain: attributes", a["lr"] == 1e-3 and a["where"] == "/data/x" and a["colour"] == "red" and a["kind"] is torch.float16, a)
    check("--plain: sequences", a["point"] == [1, 2] and p["seen"] == [1, 2] and p["by"] == {"a": [1]}, p)
    check("--plain: numpy", p["mean"] == 1.5 and torch.equal(p["grid"], torch.arange(6.0).reshape(2, 3)) and
          p["rng"][1].tolist() == state["rng"][1].tolist(), p["grid"])
    check("--plain: weights", same(p["net"], state["net"]))
    check("--plain: a tensor that holds others", torch.equal(p["masked"]["_masked_data"], torch.arange(3.0)) and
          p["masked"]["_masked_mask"].tolist() == [True, False, True], p["masked"])
    listed = {f["tensor"] for f in j.findings("--plain", source, j.path("x.pt"))["findings"] if f["code"] == "plain"}
    check("--plain: each is listed", {"args", "args.where", "args.colour", "mean", "grid", "seen"} <= listed, listed)
    ones, parameter = torch.ones(3), nn.Parameter(torch.ones(2))
    parameter.colour = Colour.RED
    named = {Colour.RED: 1, "red": 2, (Colour.RED, 0): 3, pathlib.PurePosixPath("a/b"): 4, uuid.UUID(int=1): 5, uuid.UUID(int=2): 6, torch.ones(1): 7, torch.ones(1): 8}
    source2 = j.save("shells.pt", {"q": Scaled(ones, scale=torch.tensor(0.5), bits=4, colour=Colour.RED, where=pathlib.PurePosixPath("a")),
                                   "one": Scaled(ones, bits=4), "p": parameter, "keys": named})
    p = j.to("shells-plain.pt", "--plain", source2, weights_only=True)
    check("--plain: a shell of several: tensors and attributes", torch.equal(p["q"].pop("data_"), ones) and p["q"].pop("scale") == 0.5 and
          p["q"] == {"bits": 4, "colour": "red", "where": "a"}, p["q"])
    check("--plain: a shell of one is that tensor", torch.equal(p["one"], ones), p["one"])
    check("--plain: a parameter's attributes", type(p["p"]) is nn.Parameter and p["p"].colour == "red", p["p"])
    check("--plain: no key becomes another", sorted(p["keys"].values()) == list(range(1, 9)) and p["keys"]["red"] == 2 and p["keys"]["a/b"] == 4, p["keys"])
    said = [f["message"] for f in j.findings("--plain", source2, j.path("x.pt"))["findings"] if f["tensor"] == "one"]
    check("--plain: an attribute that goes is named", any("without its attributes bits" in m for m in said), said)
    kept = j.to("moved.pt", "--map-location", "cpu", source, weights_only=False)
    check("torch.device objects stay", kept["device"] == torch.device("cuda", 1))
    moved = j.to("moved.pt", "--map-location", "cuda:*=cuda:0", "--map-device-objects", source, weights_only=False)
    check("--map-device-objects", moved["device"] == torch.device("cuda", 0), moved["device"])
    check("the user's own objects are there", moved["args"].colour is Colour.RED and moved["args"].point == Point(1, 2))


def formats(j):
    model, optimizer = trainer()
    state = state_of(model, optimizer, epoch=2)
    want = resumed(copy.deepcopy(state))
    source = j.save("f.pt", state)
    j.run("--to", "hf", "--max-shard-size", "500", "--lossy", source, j.path("shards"))
    index = json.loads(j.path("shards/model.safetensors.index.json").read_text())
    shards = sorted(set(index["weight_map"].values()))
    whole = {}
    for s in shards:
        whole.update(load_file(j.path("shards") / s))
    check("--to hf: several shards", len(shards) > 1 and shards[0] == f"model-00001-of-{len(shards):05d}.safetensors", shards)
    check("--to hf: the tensors", set(whole) == set(state["model"]) - {"head.weight"} and all(torch.equal(v, state["model"][k]) for k, v in whole.items()),
          set(whole) ^ set(state["model"]))
    check("--to hf: total_size", index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in whole.values()))
    check("--to hf: the map says where each is", all(k in load_file(j.path("shards") / s) for k, s in index["weight_map"].items()))
    check("--to hf: no temporary is left", not [p for p in j.folder.iterdir() if p.name.startswith(".tmp")])
    joined = j.to("joined.pt", j.path("shards"))
    check("shards to torch: one state_dict", set(joined) == set(whole) and all(torch.equal(joined[k], whole[k]) for k in whole))
    j.run("--to", "hf", "--lossy", source, j.path("single"))
    check("--to hf: a single file has no index", [p.name for p in j.path("single").iterdir()] == ["model.safetensors"])
    save_file({k: v.clone() for k, v in state["model"].items()}, j.path("w.safetensors"))
    w = j.to("w.pt", j.path("w.safetensors"))
    Net().load_state_dict(w)
    check("safetensors to torch", all(torch.equal(w[k], v) for k, v in state["model"].items()))
    j.run("--to", "ckpt", "--verify", source, j.path("f.safetensors"))
    back = j.to("f2.pt", j.path("f.safetensors"))
    check("torch to ckpt to torch: the next steps", same(resumed(back), want))
    check("torch to ckpt to torch: the values", back["epoch"] == 2 and back["optimizer"]["param_groups"] == state["optimizer"]["param_groups"])


def salvage(j):
    model, optimizer = trainer()
    state = state_of(model, optimizer)
    source = j.save("whole.pt", state)
    data = source.read_bytes()
    j.path("cut.pt").write_bytes(data[: len(data) * 2 // 3])
    j.run(j.path("cut.pt"), j.path("x.pt"), status=2)
    part = j.to("part.pt", "--salvage", j.path("cut.pt"), status=1)
    check("--salvage: what is there is what was", all(torch.equal(v, state["model"][k]) for k, v in part["model"].items()) and len(part["model"]) > 0)
    Net().load_state_dict(part["model"], strict=False)
    lost = [f["tensor"] for f in j.findings("--salvage", j.path("cut.pt"), j.path("x.pt"))["findings"] if f["code"] == "not-recovered"]
    check("--salvage: the rest is listed", len(lost) + len(part["model"]) + sum(isinstance(t, torch.Tensor) for s in part["optimizer"]["state"].values() for t in s.values())
          == len(state["model"]) + sum(len(s) for s in state["optimizer"]["state"].values()), lost)
    source = j.save("key.pt", {"w": torch.ones(2), "by": {torch.full((3,), 7.0): torch.full((2,), 5.0), "b": torch.zeros(2)}})
    data = source.read_bytes()
    j.path("bad-key.pt").write_bytes(data.replace(torch.full((3,), 7.0).numpy().tobytes(), torch.full((3,), 8.0).numpy().tobytes()))
    part = j.to("part2.pt", "--salvage", j.path("bad-key.pt"), status=1)
    check("--salvage: a key that was damaged", torch.equal(part["w"], torch.ones(2)) and list(part["by"]) == ["(not recovered: key 1)", "b"] and
          torch.equal(part["by"]["(not recovered: key 1)"], torch.full((2,), 5.0)), part)
    both = j.path("both.pt")
    both.write_bytes(data + data)
    said = j.run(both, j.path("x.pt"), status=2).stderr
    check("two archives in one file are refused, and named", f"two archives in one file, the second from byte {len(data)} on" in said, said)
    check("torch reads the first of two alike", torch.equal(torch.load(both, weights_only=False)["w"], torch.ones(2)))
    other = j.save("other.pt", {"w": torch.zeros(9), "more": torch.ones(99)})
    both.write_bytes(data + other.read_bytes())
    try:
        torch.load(both, weights_only=False)
        check("and none of two that are not", False)
    except RuntimeError:
        check("and none of two that are not", True)


def main():
    _, migrate = checks.commands(__doc__, 2)
    migrate = pathlib.Path(migrate)
    print(f"torch {torch.__version__}")
    for part in (names, selection, script, held, ties, order, flags, casts, every_cast, float4, tags, sparse, plain, formats, salvage):
        with tempfile.TemporaryDirectory() as folder, section(part.__name__):
            part(Job(migrate, folder))
    finish()


main()
