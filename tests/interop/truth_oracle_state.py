"""The mutations of oracle.py of what an optimizer holds: its state, its groups."""
import torch

from truth_oracle_view import mutation, some


# ---------------------------------------------------------------- the optimizer's state

@mutation(2)
def state_of_some_missing(v, r):
    o = v.optimizer(r)
    if not o or len(o["state"]) < 4 or v.trainer == "peft":   # whose modules are of one parameter each
        return None
    ids = sorted(o["state"], key=str)                         # one, or all but one: whole modules look as if they were frozen, and may be
    one = ids[2:] if v.trainer == "hf-trainer" else ids       # the embeddings of GPT-2 are modules of one parameter each
    gone = r.choice([r.sample(one, 1), r.sample(ids, len(ids) - 1)])
    for i in gone:
        del o["state"][i]
    return f"ids {gone}"


@mutation()
def state_empty(v, r):
    o = v.optimizer(r)
    if not o:
        return None
    o["state"].clear()
    return "all"


@mutation(3)
def state_key_missing(v, r):
    o = v.optimizer(r)
    if not o or not o["state"]:
        return None
    states = [s for s in o["state"].values() if s]
    key = r.choice(sorted({k for s in states for k in s}, key=str))
    for s in states if r.random() < 0.6 else [r.choice(states)]:
        s.pop(key, None)
    return str(key)


@mutation()
def state_key_more(v, r):
    o = v.optimizer(r)
    if not o or not o["state"]:
        return None
    key, value = r.choice(["mine", "exp_avg_old", "momentum"]), r.choice([torch.zeros(2), 3, None])                     # torch makes "<generator object ...>" of a text
    for s in o["state"].values():
        s[key] = value
    return key


def tensors_of_state(v, r):
    o = v.optimizer(r)
    return [(i, k) for i, s in o["state"].items() for k, t in s.items() if torch.is_tensor(t) and t.dim() > 0 and t.dtype.is_floating_point] if o else [], o


@mutation(3)
def moment_shape(v, r):
    if v.trainer == "bitsandbytes":
        return None
    found, o = tensors_of_state(v, r)
    if not found:
        return None
    i, key = r.choice(found)
    t = o["state"][i][key]
    how = r.choice(["transposed", "shorter", "longer", "flat", "one more dimension", "scalar", "empty", "row"])
    new = {"transposed": t.t() if t.dim() == 2 else t[None], "shorter": t[:-1], "longer": torch.cat([t, t]), "flat": t.flatten(), "one more dimension": t[..., None],
           "scalar": t.flatten()[0], "empty": t[:0], "row": t[:1]}[how].contiguous().clone()
    if new.shape == t.shape:
        return None
    o["state"][i][key] = new
    v.resized = v.resized or new.numel() != t.numel()
    return f"{key} of {i} {how}: {list(t.shape)} is {list(new.shape)}"


@mutation(2)
def moment_dtype(v, r):
    if v.trainer == "bitsandbytes":
        return None
    found, o = tensors_of_state(v, r)
    dtype = r.choice([torch.bfloat16, torch.float16, torch.float64])
    chosen = found if r.random() < 0.5 else some(r, found)
    for i, key in chosen:
        o["state"][i][key] = o["state"][i][key].to(dtype)
    return f"{len(chosen)} of {len(found)} {dtype}" if chosen else None


STEPS = {"int": int, "int64": lambda s: torch.tensor(int(s)), "float64": lambda s: torch.tensor(float(s), dtype=torch.float64), "float": float,
         "int32": lambda s: torch.tensor(int(s), dtype=torch.int32), "of one dimension": lambda s: torch.tensor([float(s)]), "None": lambda s: None, "bfloat16": lambda s: torch.tensor(float(s), dtype=torch.bfloat16)}


@mutation(3)
def step_of_another_kind(v, r):
    o = v.optimizer(r)
    states = [s for s in o["state"].values() if s and "step" in s] if o else []
    if not states or any(torch.is_tensor(s["step"]) and s["step"].numel() != 1 or s["step"] is None for s in states):
        return None
    how = r.choice(sorted(STEPS))
    for s in states if r.random() < 0.7 else [r.choice(states)]:
        s["step"] = STEPS[how](s["step"])
    return how


@mutation()
def step_of_another_value(v, r):
    o = v.optimizer(r)
    states = [s for s in o["state"].values() if s and torch.is_tensor(s.get("step"))] if o else []
    if not states:
        return None
    value, alike = r.choice([0.0, 3.0, 1000.0, -1.0, float("nan")]), r.random() < 0.5
    v.truth = "file" if alike else v.truth                    # one that goes on from another step is not as it was
    v.areas.add("steps")
    for s in states if alike else [r.choice(states)]:
        s["step"] = torch.full_like(s["step"].float(), value)
    return f"{value} for {'all' if alike else 'one'}"


@mutation()
def moment_not_finite(v, r):
    found, o = tensors_of_state(v, r)
    if not found:
        return None
    i, key = r.choice(found)
    t = o["state"][i][key].clone()
    t.view(-1)[0] = r.choice([float("nan"), float("inf")])
    o["state"][i][key] = t
    v.truth, v.alone = "file", True
    v.doctor += ["--values"]
    return f"{key} of {i}"


@mutation()
def weight_not_finite(v, r):
    c, k = v.of(v.models, r)
    if c is None:
        return None
    held = c[k]
    names = [n for n, t in held.items() if t.dtype.is_floating_point]
    if not names:
        return None
    name = r.choice(names)
    t = held[name].clone()
    t.view(-1)[0] = float("nan")
    held[name] = t
    v.truth, v.alone = "file", True
    v.doctor += ["--values"]
    return name


# ---------------------------------------------------------------- the groups

@mutation(4)
def hyper_missing(v, r):
    o = v.optimizer(r)
    if not o:
        return None
    keys = sorted({k for g in o["param_groups"] for k in g} - {"params"})
    key = r.choice(keys) if keys else None
    for g in o["param_groups"] if r.random() < 0.6 else [r.choice(o["param_groups"])]:
        g.pop(key, None)
    return key


@mutation()
def params_missing(v, r):
    o = v.optimizer(r)
    if not o:
        return None
    r.choice(o["param_groups"]).pop("params", None)
    return "of a group"


@mutation(3)
def flag_set(v, r):
    o = v.optimizer(r)
    if not o:
        return None
    kind = v.spec.get("optimizer", "Adam")
    if v.trainer == "bitsandbytes":                           # which has none of them
        return None
    flags = ["fused", "capturable", "foreach", "maximize", "differentiable"] + (["amsgrad"] if kind in ("Adam", "AdamW") else ["nesterov"] if kind == "SGD" else [])
    key, value = r.choice(flags), r.choice([True, True, False, None])
    if v.trainer in ("hf-trainer", "peft", "bitsandbytes") and key in ("nesterov",):
        return None
    for g in o["param_groups"] if r.random() < 0.7 else [r.choice(o["param_groups"])]:
        g[key] = value
    v.truth = "file" if key in ("maximize", "amsgrad", "nesterov") else v.truth
    if key in ("fused", "capturable", "foreach") and "--optimizer" not in v.doctor:
        hyper = v.spec.get("hyper", {})
        v.doctor += ["--optimizer", "fused" if hyper.get("fused") or v.spec.get("optim") == "fused" else "foreach" if hyper.get("foreach") else "plain"]
    return f"{key}={value}"


@mutation(3)
def program_flags(v, r):
    """The program constructs other flags than the saved groups have."""
    if v.trainer not in ("torch", "lightning", "accelerate") or v.spec.get("optimizer", "Adam") not in ("Adam", "AdamW", "SGD") or "--optimizer" in v.doctor:
        return None
    want = r.choice(["fused", "plain", "foreach"])
    hyper = {k: x for k, x in v.spec.get("hyper", {"lr": 0.01}).items() if k not in ("fused", "foreach")}
    v.spec["hyper"] = {**hyper, **{"fused": {"fused": True}, "plain": {}, "foreach": {"foreach": True}}[want]}
    v.doctor += ["--optimizer", want]
    return want


@mutation(3)
def groups_lost(v, r):
    """Ids that have state are no longer in the groups, or one is there that never was: torch writes neither. The program has the
    groups that it had."""
    o = v.optimizer(r)
    if not o or any("params" not in g for g in o["param_groups"]):
        return None
    groups = o["param_groups"]
    how, g = r.choice(["an id less", "an id twice", "an id more", "an id exchanged", "a group less", "emptied"]), r.choice(groups)
    if how == "an id less" and g["params"]:
        g["params"].remove(r.choice(g["params"]))
    elif how == "an id twice" and g["params"]:
        g["params"].append(r.choice(g["params"]))
        v.areas.add("ids twice")
    elif how == "an id more":
        g["params"].append(97)
    elif how == "an id exchanged" and len(g["params"]) > 1:
        g["params"][0] = g["params"][-1]
        v.areas.add("ids twice")
    elif how == "a group less" and len(groups) > 1:
        groups.remove(g)
    elif how == "emptied" and g["params"]:
        g["params"].clear()
    else:
        return None
    unnamed(groups)
    return how


def unnamed(groups):
    if any("param_names" in g and len(g["param_names"]) != len(g["params"]) for g in groups):
        for g in groups:
            g.pop("param_names", None)


@mutation(2)
def groups_of_another_program(v, r):
    """A group split, two merged, one more without parameters, groups and ids in another order: the program constructs just so."""
    o = v.optimizer(r)
    if not o or v.trainer not in ("torch", "lightning", "accelerate") or v.spec.get("like") or any("params" not in g for g in o["param_groups"]):
        return None
    groups = o["param_groups"]
    how, g, rank = r.choice(["merged", "split", "a group more", "swapped", "reversed"]), r.choice(groups), {i: n for n, i in enumerate(i for g in groups for i in g["params"])}
    if how == "merged" and len(groups) > 1:
        groups[0]["params"] += groups.pop()["params"]
    elif how == "split" and len(g["params"]) > 1:
        groups.append(dict(g, params=[g["params"].pop()]))
    elif how == "a group more":
        groups.append(dict(g, params=[]))
    elif how == "swapped" and len(groups) > 1:
        groups.reverse()
    elif how == "reversed" and len(g["params"]) > 1:
        g["params"].reverse()
    else:
        return None
    for x in groups:
        x.pop("param_names", None)
    if how in ("swapped", "reversed"):
        v.areas.add("orders")
    v.spec["like"] = [[rank[i] for i in g["params"] if i in rank] for g in groups]
    v.truth = "file"
    return how


@mutation(2)
def ids_changed(v, r):
    o = v.optimizer(r)
    if not o or any("params" not in g for g in o["param_groups"]):
        return None
    how = r.choice(["all by 100", "as text", "the state's by 100", "the state's as text", "names"])
    change = {"all by 100": lambda i: (i + 100, i + 100), "as text": lambda i: (str(i), str(i)), "the state's by 100": lambda i: (i + 100, i),
              "the state's as text": lambda i: (str(i), i), "names": lambda i: (f"layer{i}.weight", f"layer{i}.weight")}[how]
    if not all(isinstance(i, int) for i in [*o["state"], *(i for g in o["param_groups"] for i in g["params"])]):
        return None
    state = {change(i)[0]: s for i, s in o["state"].items()}
    o["state"].clear()
    o["state"].update(state)
    for g in o["param_groups"]:
        g["params"] = [change(i)[1] for i in g["params"]]
    return how


HYPERS = {"lr": [0.0, float("nan"), "0.01", None, torch.tensor(0.01), 1], "betas": [[0.9, 0.99], (0.9,), None, (0.9, 0.99, 0.9)], "weight_decay": [None, 0, "0"], "eps": [None, 0.0, 1e-6],
          "momentum": [0, None, 0.5], "alpha": [None, 0.9]}


@mutation(2)
def hyper_of_another_value(v, r):
    o = v.optimizer(r)
    if not o or v.trainer == "bitsandbytes":
        return None
    keys = [k for k in HYPERS if any(k in g for g in o["param_groups"])]
    if not keys:
        return None
    key = r.choice(keys)
    value = r.choice(HYPERS[key])
    for g in o["param_groups"] if r.random() < 0.6 else [r.choice(o["param_groups"])]:
        g[key] = value
    v.truth = "file"
    if key == "lr":
        v.areas.add("lr")
    return f"{key}={value!r}"


@mutation()
def group_key_more(v, r):
    o = v.optimizer(r)
    if not o:
        return None
    for g in o["param_groups"]:
        g["layer_decay"] = 0.5
    return "layer_decay"


@mutation()
def optimizer_key_missing(v, r):
    o = v.optimizer(r)
    if not o:
        return None
    key = r.choice(["state", "param_groups"])
    del o[key]
    return key


@mutation()
def optimizer_missing(v, r):
    c, k = v.of(v.optimizers, r)
    if c is None or v.trainer == "gan":                       # of two optimizers one: nothing says that there were two
        return None
    if isinstance(c, list):
        c.clear()
    else:
        del c[k]
    v.areas.add("weights-only")
    return str(k)
