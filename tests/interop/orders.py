#!/usr/bin/env python3
"""Whose moments are they? Optimizers over many architectures, in the orders in which trainers hand over parameters.

usage: orders.py CKPT-INSPECT CKPT-MIGRATE [--count N] [--seed S] [-v]

A seeded generator chooses an architecture (truth_models.py), which parameters the optimizer gets in which order and groups, and the
optimizer; it takes one to three steps on random gradients, torch saves model and optimizer, and ckpt-migrate gives the moments names (to
safetensors and to ckpt). The truth is which parameter object each number of the optimizer stands for; values are compared, so that
what is equal counts as right. Counted are: wrong names with status 0 and no warning (there must be none), those with a warning, and usual orders
(model.parameters(), decay splits in the model's order, over architectures without twin branches) that need no help (95 in 100). Without
--count a small part. The last lines are the counts and `N passed, N failed`; exit status 77 where torch is not installed. Written for torch
2.13, transformers 5.23, timm 1.0.31, diffusers 0.42, peft 0.21 and bitsandbytes 0.50; README says what was run.
"""
import itertools
import json
import os
import random
import struct
import sys

from checks import check, finish, run, scratch, skip

try:
    import torch

    import truth_models
except ImportError as why:
    skip(why)

nn = torch.nn


def arguments():
    words, given = sys.argv[1:], {"--count": None, "--seed": "1"}
    for option in given:
        if option in words:
            at = words.index(option)
            given[option] = words[at + 1]
            del words[at:at + 2]
    paths = [os.path.abspath(w) for w in words if w != "-v"]
    if len(paths) != 2:
        print(__doc__.strip().split("\n\n")[1], file=sys.stderr)
        sys.exit(2)
    return paths[1], given["--count"] and int(given["--count"]), int(given["--seed"])


# ---- the orders: (model, random) -> groups of (name, parameter)

def named(model):
    return [(n, p) for n, p in model.named_parameters() if p.requires_grad]


def dicts(groups, decays=None):
    return [{"params": [p for _, p in g], **({"weight_decay": d} if d is not None else {})}
            for g, d in zip(groups, decays or [None] * len(groups)) if g]


def split(model, decides, last=False):
    yes, no = [x for x in named(model) if decides(*x)], [x for x in named(model) if not decides(*x)]
    return dicts([no, yes], [0.0, 0.1]) if last else dicts([yes, no], [0.1, 0.0])


def by_hf(model):
    try:
        from transformers.trainer_pt_utils import get_parameter_names
        forbidden = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
        names = set(get_parameter_names(model, [nn.LayerNorm], forbidden))
    except ImportError:
        names = {n for n, p in named(model) if p.dim() > 1}
    return lambda n, p: n in names


def modules_at_top(model):
    """The modules of the first level that has more than one, and the parameters beside them and above."""
    top, above = model, []
    while True:
        above += [p for p in top.parameters(recurse=False) if p.requires_grad]
        children = list(top.children())
        if len(children) != 1:
            return children, above
        top = children[0]


def once(parameters):
    seen = {}
    return [seen.setdefault(id(p), p) for p in parameters if p.requires_grad and id(p) not in seen]


def chained(modules, above, draw):
    lists = [list(m.parameters()) for m in modules] + ([above] if draw.random() < 0.5 else [])
    return [{"params": once(itertools.chain([] if any(above is x for x in lists[-1:]) else above, *lists))}]


def chain_shuffled(model, draw):
    modules, above = modules_at_top(model)
    if not modules or isinstance_list(modules, model):
        return None
    draw.shuffle(modules)
    return chained(modules, above, draw)


def isinstance_list(modules, model):
    """Is the level that of a list or Sequential? Nobody hands over layers of one list in another order than its own."""
    return any(isinstance(m, (nn.ModuleList, nn.Sequential)) and list(m.children()) == modules for m in model.modules())


def chain_inside(model, draw):
    """The modules of one module in another order, where it is in no list."""
    listed = set()
    for m in model.modules():
        if isinstance(m, (nn.ModuleList, nn.Sequential)):
            listed |= {id(x) for child in m.children() for x in child.modules()} | {id(m)}
    places = [m for m in model.modules() if id(m) not in listed and sum(1 for _ in m.children()) > 1
              and any(True for c in m.children() for _ in c.children())]
    if not places:
        return None
    place = draw.choice(places)
    children = list(place.children())
    draw.shuffle(children)
    inside = once(itertools.chain(*(c.parameters() for c in children)))
    order, ids, put = [], {id(p) for p in inside}, False
    for _, p in named(model):
        if id(p) not in ids:
            order.append(p)
        elif not put:
            order += inside
            put = True
    return [{"params": order}]


def per_module(model, draw):
    modules, above = modules_at_top(model)
    groups = [[p for p in m.parameters()] for m in modules] + [above]
    draw.shuffle(groups)
    seen, out = set(), []
    for g in groups:
        g = [p for p in once(g) if id(p) not in seen]
        seen |= {id(p) for p in g}
        if g:
            out.append({"params": g, "lr": draw.choice([1e-3, 1e-4])})
    return out


def per_leaf(model, draw):
    leaves = [m for m in model.modules() if any(p.requires_grad for p in m.parameters(recurse=False))]
    if len(leaves) > 60:
        return None
    draw.shuffle(leaves)
    seen, out = set(), []
    for m in leaves:
        g = [p for p in once(m.parameters(recurse=False)) if id(p) not in seen]
        seen |= {id(p) for p in g}
        if g:
            out.append({"params": g})
    return out


def chunks(model, draw):
    x, k = named(model), draw.randint(2, 4)
    cuts = sorted(draw.sample(range(1, len(x)), min(k - 1, len(x) - 1))) if len(x) > 1 else []
    groups = [x[a:b] for a, b in zip([0] + cuts, cuts + [len(x)])]
    return groups


def chunks_in_order(model, draw):
    return dicts(chunks(model, draw))


def chunks_shuffled(model, draw):
    groups = chunks(model, draw)
    draw.shuffle(groups)
    return dicts(groups, [draw.choice([0.0, 0.1]) for _ in groups] if draw.random() < 0.5 else None)


def layers_of(model):
    """A layer's number for each parameter: by the first number in its name; 0 before the layers, the greatest after."""
    out, seen, best = {}, False, 0
    for n, _ in named(model):
        digits = [part for part in n.split(".") if part.isdigit()]
        if digits:
            seen, best = True, max(best, int(digits[0]) + 1)
            out[n] = int(digits[0]) + 1
        else:
            out[n] = best + 1 if seen else 0
    return out


def llrd(model, draw, down, decays=False):
    number, groups = layers_of(model), {}
    for n, p in named(model):
        groups.setdefault((number[n], decays and p.dim() < 2), []).append((n, p))
    keys = sorted(groups, reverse=down)
    top = max(k[0] for k in keys)
    return [{"params": [p for _, p in groups[k]], "lr": 1e-3 * 0.8 ** (top - k[0]), **({"weight_decay": 0.0 if k[1] else 0.1} if decays else {})} for k in keys]


def head_first(model, draw):
    modules, above = modules_at_top(model)
    if len(modules) < 2 or isinstance_list(modules, model):
        return None
    first, rest = list(modules[-1].parameters()), [p for m in modules[:-1] for p in m.parameters()]
    if draw.random() < 0.5:
        return [{"params": once(first + above + rest)}]
    seen = {id(p) for p in once(first)}
    rest = [p for p in once(above + rest) if id(p) not in seen]
    return [{"params": once(first), "lr": 1e-2}] + ([{"params": rest}] if rest else [])


def backbone_and_head(model, draw):
    modules, _ = modules_at_top(model)
    head = {id(p) for p in modules[-1].parameters()} if modules else set()
    x = named(model)
    parts = [[y for y in x if id(y[1]) not in head], [y for y in x if id(y[1]) in head]]
    if draw.random() < 0.5:
        return dicts(parts)
    four = [[y for y in part if (y[1].dim() > 1) == wide] for part in parts for wide in (True, False)]
    return dicts(four, [0.1, 0.0, 0.1, 0.0])


def chain_split(model, draw):
    groups = chain_shuffled(model, draw)
    if not groups:
        return None
    p = groups[0]["params"]
    return [g for g in ({"params": [x for x in p if x.dim() > 1], "weight_decay": 0.1}, {"params": [x for x in p if x.dim() < 2], "weight_decay": 0.0}) if g["params"]]


USUAL = {
    "model.parameters()": lambda m, d: [{"params": list(m.parameters())}],
    "those that train": lambda m, d: dicts([named(m)]),
    "split by rank": lambda m, d: split(m, lambda n, p: p.dim() > 1),
    "split by bias": lambda m, d: split(m, lambda n, p: not n.endswith("bias")),
    "split of the Trainer": lambda m, d: split(m, by_hf(m)),
    "split of timm": lambda m, d: split(m, lambda n, p: p.dim() > 1 and not n.endswith(".bias") and not any(
        w in n for w in ("pos_embed", "cls_token", "dist_token", "relative_position_bias_table"))),
    "split by rank, last": lambda m, d: split(m, lambda n, p: p.dim() > 1, last=True),
}
OTHER = {
    "chain, shuffled": chain_shuffled,
    "chain inside": chain_inside,
    "chain, split": chain_split,
    "reversed": lambda m, d: [{"params": [p for _, p in named(m)][::-1]}],
    "groups in order": chunks_in_order,
    "groups shuffled": chunks_shuffled,
    "dict per module": per_module,
    "dict per leaf": per_leaf,
    "llrd up": lambda m, d: llrd(m, d, False),
    "llrd down": lambda m, d: llrd(m, d, True),
    "llrd down, split": lambda m, d: llrd(m, d, True, True),
    "llrd up, split": lambda m, d: llrd(m, d, False, True),
    "head first": head_first,
    "backbone and head": backbone_and_head,
    "one weight decay": lambda m, d: dicts([[x for x in named(m) if x[1].dim() > 1], [x for x in named(m) if x[1].dim() < 2]], [0.0, 0.0]),
}


# ---- the optimizers

def only_wide(groups):
    out = [{**g, "params": [p for p in g["params"] if p.dim() == 2]} for g in groups]
    return [g for g in out if g["params"]]


def hf_adafactor(groups):
    # transformers took its Adafactor out in 5.x; this state is what it kept, and what fairseq and timm keep
    class Adafactor(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 1e-3, "weight_decay": 0.0, "clip_threshold": 1.0})

        @torch.no_grad()
        def step(self):
            for g in self.param_groups:
                for p in g["params"]:
                    if p.grad is None:
                        continue
                    s, sq = self.state[p], p.grad ** 2
                    s["step"] = s.get("step", 0) + 1
                    if p.dim() > 1:
                        s["exp_avg_sq_row"], s["exp_avg_sq_col"] = sq.mean(-1), sq.mean(-2)
                    else:
                        s["exp_avg_sq"] = sq
                    s["RMS"] = float(p.norm())
    return Adafactor(groups)


def adam8bit(groups):
    import bitsandbytes
    return bitsandbytes.optim.AdamW8bit(groups, min_8bit_size=64)


OPTIMIZERS = {
    "SGD": lambda g: torch.optim.SGD(g, lr=1e-3, momentum=0.9),
    "Adam": lambda g: torch.optim.Adam(g, lr=1e-3),
    "AdamW": lambda g: torch.optim.AdamW(g, lr=1e-3),
    "AdamW amsgrad": lambda g: torch.optim.AdamW(g, lr=1e-3, amsgrad=True),
    "Adafactor": lambda g: torch.optim.Adafactor(g, lr=1e-3),
    "Adafactor of rows": hf_adafactor,
    "AdamW8bit": adam8bit,
    "Muon": lambda g: torch.optim.Muon(only_wide(g), lr=1e-3),
    "RMSprop": lambda g: torch.optim.RMSprop(g, lr=1e-3),
    "NAdam": lambda g: torch.optim.NAdam(g, lr=1e-3),
}


def train(optimizer, draw, without):
    params = [p for g in optimizer.param_groups for p in g["params"]]
    idle = set(draw.sample(range(len(params)), without))
    for _ in range(draw.randint(1, 3)):
        for i, p in enumerate(params):
            p.grad = torch.randn_like(p) if p.requires_grad and i not in idle else None
        optimizer.step()


# ---- one case

def tensors_of(path):
    """{name: bytes} of a safetensors file, which a ckpt file is too."""
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    return {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in header.items() if k != "__metadata__"}


def leaves(state, prefix=""):
    for k, v in state.items():
        if torch.is_tensor(v):
            yield prefix + str(k), v
        elif isinstance(v, dict):
            yield from leaves(v, "" if str(k).startswith("__") else f"{prefix}{k}.")


def raw(t):
    t = t.detach().contiguous()
    return t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def judge(model, optimizer, path):
    """("right" | "wrong" | "numbered", example)."""
    names = {}
    for n, p in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(n)
    written = tensors_of(path)
    params = [p for g in optimizer.param_groups for p in g["params"]]
    state = optimizer.state_dict()["state"]
    verdict, example = "right", ""
    for number, p in enumerate(params):
        for key, value in leaves(state.get(number, {})):
            if key in ("step", "qmap1", "qmap2") or value.numel() < 2:      # qmap is one table, stored once
                continue
            found = [f"optimizer.{n}.{key}" for n in names[id(p)] if f"optimizer.{n}.{key}" in written]
            if not found:
                return "numbered", f"{names[id(p)][0]}.{key}"
            if written[found[0]] != raw(value):
                verdict, example = "wrong", found[0]
    return verdict, example


def make_case(draw, architectures):
    name, make, twins = draw.choice(architectures)
    usual = draw.random() < 0.4
    order = draw.choice(list(USUAL if usual else OTHER))
    optimizer = draw.choice(list(OPTIMIZERS))
    torch.manual_seed(draw.randint(0, 10 ** 9))
    model = make()
    groups = (USUAL if usual else OTHER)[order](model, draw)
    if not groups or any(not g["params"] for g in groups) or len({id(p) for g in groups for p in g["params"]}) != sum(len(g["params"]) for g in groups):
        return None
    if optimizer == "Muon" and not only_wide(groups):
        return None
    if optimizer == "AdamW8bit":
        groups = [{**g, "params": [p for p in g["params"] if p.requires_grad]} for g in groups]
    made = OPTIMIZERS[optimizer](groups)
    total = sum(len(g["params"]) for g in made.param_groups)
    train(made, draw, draw.choice([0, 0, 0, 0, 0, 1, 2]) if total > 8 else 0)
    return f"{name}; {order}; {optimizer}", usual and not twins, model, made


def one(migrate, draw, architectures, counts):
    case = make_case(draw, architectures)
    if case is None:
        return False
    what, usual, model, optimizer = case
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}, "case.pt")
    suffix = draw.choice(["safetensors", "ckpt"])
    done = run(migrate, "--force", "--no-sync", "--lossy", "--to", suffix, "case.pt", f"case.{suffix}")
    said = done.stdout + done.stderr
    verdict, example = "refused", ""
    if done.returncode == 0:
        verdict, example = judge(model, optimizer, f"case.{suffix}")
        if verdict == "wrong" and "warning  order-hypothesis" in said:      # it was said which parameters could be exchanged
            verdict = "warned"
    elif "order-ambiguous" not in said:
        verdict = "failed"
    counts[verdict] = counts.get(verdict, 0) + 1
    if usual:
        counts["usual"] = counts.get("usual", 0) + 1
        counts["usual right"] = counts.get("usual right", 0) + (verdict == "right")
        if verdict != "right":
            counts.setdefault("usual that need help", []).append(f"{what}: {verdict} {' '.join(said.split())[:300] if '-v' in sys.argv else ''}")
    if verdict in ("wrong", "failed"):
        check(what, False, f"{verdict} {example} {said}")
    elif "-v" in sys.argv:
        print(f"{verdict:9} {what}", flush=True)
    counts["orders"].setdefault(what.split("; ")[1], {}).setdefault(verdict, 0)
    counts["orders"][what.split("; ")[1]][verdict] += 1
    return True


def main():
    migrate, count, seed = arguments()
    torch.set_num_threads(1)
    draw = random.Random(seed)
    architectures = truth_models.known(slow=count is not None)
    working, without = [], list(truth_models.MISSING)
    for a in architectures:
        try:
            a[1]()
            working.append(a)
        except Exception as why:        # a library of another version
            without.append(f"{a[0]} ({type(why).__name__})")
    for text in without:
        print(f"not run {text}")
    try:
        OPTIMIZERS["AdamW8bit"]([nn.Parameter(torch.randn(128))])
    except Exception as why:
        print(f"not run AdamW8bit ({why})")
        del OPTIMIZERS["AdamW8bit"]
    counts, done = {"orders": {}}, 0
    with scratch():
        while done < (count or 150):
            done += one(migrate, draw, working, counts)
    for order, found in sorted(counts.pop("orders").items()):
        print(f"{order:24} {', '.join(f'{k} {v}' for k, v in sorted(found.items()))}")
    for text in counts.pop("usual that need help", []):
        print(f"needs help: {text}")
    usual, right = counts.get("usual", 0), counts.get("usual right", 0)
    print(f"seed {seed}: {done} cases over {len(working)} architectures: {counts}")
    check("wrong names with status 0 and no warning", counts.get("wrong", 0) == 0, counts)
    check("other failures", counts.get("failed", 0) == 0, counts)
    check("at least 50 architectures, or libraries are missing", len(working) >= 50 or truth_models.MISSING, len(working))
    check(f"usual orders that need no help: {right} of {usual}", usual > 0 and right >= 0.95 * usual, counts)
    finish()


if __name__ == "__main__":
    main()
