"""The mutations of oracle.py of all but the optimizer: the model, scheduler, scaler, random states, tags, classes, files."""
import argparse
import collections
import pathlib

import torch

from truth_oracle_view import mutation


# ---------------------------------------------------------------- the model

@mutation(2)
def model_key_missing(v, r):
    """A parameter that the optimizer has."""
    c, k = v.of(v.models, r)
    names = [n for n in (c[k] if c is not None else []) if not any(b in n for b in ("running_", "num_batches"))]
    if len(names) < 2:
        return None
    gone = r.choice(names)
    del c[k][gone]
    v.key_gone = True
    return gone


@mutation(2)
def head_replaced(v, r):
    """fc2 has more outputs, in the file's model and in the program; the moments are the old ones."""
    if v.trainer != "torch" or v.spec.get("net") or v.spec.get("head"):
        return None
    c, k = v.of(v.models, r)
    if c is None or "fc2.weight" not in c[k]:
        return None
    c[k]["fc2.weight"], c[k]["fc2.bias"] = torch.zeros(5, 8), torch.zeros(5)
    v.spec["head"], v.truth = 5, "file"
    return "fc2 of 5"


@mutation(2)
def model_prefixed(v, r):
    """The program has the wrapper too."""
    c, k = v.of(v.models, r)
    if v.trainer != "torch" or c is None or v.spec.get("wrap"):
        return None
    v.spec["wrap"] = r.choice(["module.", "_orig_mod.", "_orig_mod.module."])
    c[k] = collections.OrderedDict((v.spec["wrap"] + n, t) for n, t in c[k].items())
    return v.spec["wrap"]


@mutation()
def model_missing(v, r):
    c, k = v.of(v.models, r)
    if c is None:
        return None
    del c[k]
    return str(k)


@mutation()
def model_of_another_dtype(v, r):
    """The program has it too; the moments are the old ones."""
    if v.trainer != "torch" or v.spec.get("amp") or v.spec.get("net") or v.spec.get("dtype"):
        return None
    c, k = v.of(v.models, r)
    if c is None:
        return None
    v.spec["dtype"] = r.choice(["bfloat16", "float64"])
    for n in c[k]:
        c[k][n] = c[k][n].to(getattr(torch, v.spec["dtype"]))
    v.truth = "file"
    return v.spec["dtype"]


# ---------------------------------------------------------------- scheduler, scaler, random states

@mutation()
def scheduler_missing(v, r):
    """Not of a plain loop: there the schedule may be computed from the step, and nothing is missing."""
    c, k = v.of(v.schedulers, r)
    if c is None or v.trainer in ("torch", "gan", "bitsandbytes"):
        return None
    if isinstance(c, list):
        c.clear()
    else:
        del c[k]
    return str(k)


@mutation(2)
def scheduler_key_missing(v, r):
    c, k = v.of(v.schedulers, r)
    if c is None or not c[k]:
        return None
    key = r.choice(sorted(c[k]))
    del c[k][key]
    return key


@mutation(2)
def scheduler_changed(v, r):
    c, k = v.of(v.schedulers, r)
    if c is None or "last_epoch" not in c[k]:
        return None
    s, how = c[k], r.choice(["at its end", "past its end", "two base_lrs more", "a key more"])
    v.truth = "file"
    if how.endswith("its end"):
        total = s.get("total_steps") or s.get("T_max") or 50
        s["last_epoch"] = total - 1 + 5 * how.startswith("past")
        s["_step_count"] = s["last_epoch"] + 1
        v.areas.add("schedule at its end")
        if s.get("total_steps") == s["last_epoch"] + 1:       # one step is left, and the program ends with its schedule
            v.spec["after"] = 1
        if v.folder and "trainer_state.json" in v.root:       # which says another step
            v.truth = "unbroken"
    elif how == "two base_lrs more" and "base_lrs" in s:
        s["base_lrs"] = [*s["base_lrs"], 0.1, 0.1]
        v.areas.add("schedule's base_lrs")
    else:
        s["mine"] = 1
    return how


@mutation()
def scaler_missing(v, r):
    c, k = v.of(v.scalers, r)
    if c is None:
        return None
    del c[k]
    return str(k)


@mutation(2)
def scaler_changed(v, r):
    c, k = v.of(v.scalers, r)
    if c is None or not c[k]:
        return None
    s, how = c[k], r.choice(["empty", "a key less", "scale 0", "scale inf", "scale nan", "a key more", "scale 2^-40", "scale as a tensor", "growth_tracker 2"])
    v.truth = "file"
    if how == "empty":
        s.clear()
        v.truth = "unbroken"
    elif how == "a key less":
        del s[(key := r.choice(sorted(s)))]
        how = f"no {key}"
    elif how == "a key more":
        s["mine"] = 1
    elif how == "growth_tracker 2":
        s["_growth_tracker"] = 2
    elif how == "scale as a tensor":
        s["scale"] = torch.tensor(s.get("scale", 1.0))
    else:
        s["scale"] = {"0": 0.0, "inf": float("inf"), "nan": float("nan"), "2^-40": 2.0 ** -40}[how.split()[1]]
        v.areas.add("scaler's scale")
        v.tiny = v.tiny or how.endswith("2^-40")
    return how


@mutation(2)
def rng_changed(v, r):
    c, k = v.of(v.rngs, r)
    if c is None or not torch.is_tensor(c[k]):
        return None
    how = r.choice(["shorter", "longer", "int64", "float32", "of two dimensions", "a list"])
    t = c[k]
    c[k] = {"shorter": t[:-100].clone(), "longer": torch.cat([t, t]), "int64": t.long(), "float32": t.float(), "of two dimensions": t[None].clone(),
            "a list": t.tolist()}[how]
    v.truth = "file"
    return how


# ---------------------------------------------------------------- devices, classes, modes

@mutation(3)
def tagged_elsewhere(v, r):
    if v.folder or v.tag:
        return None
    v.tag = r.choice(["cuda:0", "cuda:0+step", "cuda:3", "mps", "xpu:0", "tpu", "meta"])
    if v.trainer in ("torch", "gan", "bitsandbytes") and r.random() < 0.6:
        v.map = "cpu"
        v.doctor += ["--map-location", "cpu"]
    return v.tag + (", map_location='cpu'" if v.map else "")


VALUES = {"Namespace": lambda: argparse.Namespace(lr=1), "Path": lambda: pathlib.PurePosixPath("a"), "a set": lambda: {1, 2}, "a partial": lambda: __import__("functools").partial(int, 2),
          "complex": lambda: 1j, "bytes": lambda: b"ab", "a dtype": lambda: torch.float32, "OrderedDict": lambda: collections.OrderedDict(a=1), "defaultdict": lambda: collections.defaultdict(list, a=[1]),
          "numpy": lambda: __import__("numpy").arange(3), "numpy scalar": lambda: __import__("numpy").float64(1.5), "timedelta": lambda: __import__("datetime").timedelta(1), "a device": lambda: torch.device("cpu")}


@mutation(3)
def holds_a_class(v, r):
    what = r.choice(sorted(VALUES))
    if v.folder:
        c, k = v.of(v.optimizers + v.schedulers + v.rngs, r)
        if c is None or not isinstance(c[k], dict):
            return None
        c[k]["mine"] = VALUES[what]()
    else:
        v.root["mine"] = VALUES[what]()
    if v.trainer in ("torch", "gan", "lightning") and v.weights_only is None and r.random() < 0.4:
        v.weights_only = r.random() < 0.5
        v.doctor += ["--load-weights-only", "yes" if v.weights_only else "no"]
    return what + (f", weights_only={v.weights_only}" if v.weights_only is not None else "")


@mutation()
def key_more(v, r):
    if v.folder:
        return None
    v.root["best"] = {"acc": 0.5, "at": [1, 2]}
    return "best"


# ---------------------------------------------------------------- Lightning's own, folders' own

@mutation(2)
def lightning_key_missing(v, r):
    if v.trainer != "lightning":
        return None
    keys = [k for k in v.root if k not in ("optimizer_states", "state_dict", "lr_schedulers", "MixedPrecision")]
    if not keys:
        return None
    key = r.choice(keys)
    del v.root[key]
    return key


@mutation()
def lightning_version(v, r):
    if v.trainer != "lightning" or "pytorch-lightning_version" not in v.root:
        return None
    v.root["pytorch-lightning_version"] = r.choice(["2.0.0", "2.1.4", "3.1.0", "9.9.9"])   # before 2.0 the loops have other keys
    return v.root["pytorch-lightning_version"]


@mutation(5)
def file_missing(v, r):
    if not v.folder:
        return None
    name = r.choice(sorted(v.root.there - {"model.safetensors", "adapter_model.safetensors", "pytorch_model.bin"} if r.random() < 0.8 else v.root.there))
    del v.root[name]
    v.areas.add("folders")
    return name


@mutation(3)
def file_damaged(v, r):
    if not v.folder:
        return None
    name, how = r.choice(sorted(v.root.there)), r.choice(["empty", "half", "zeros"])

    def damage():
        path = pathlib.Path(v.path, name)
        if path.exists():
            data = path.read_bytes()
            path.write_bytes({"empty": b"", "half": data[:len(data) // 2], "zeros": bytes(len(data))}[how])
    v.late.append(damage)
    v.areas.add("folders")
    return f"{name} {how}"


@mutation()
def state_json_changed(v, r):
    if not v.folder or "trainer_state.json" not in v.root:
        return None
    state = v.root["trainer_state.json"]
    key = r.choice(["global_step", "epoch", "max_steps", "num_train_epochs", "log_history", "train_batch_size", "save_steps"])
    if key not in state:
        return None
    del state[key]
    v.areas.add("folders")
    return f"trainer_state.json without {key}"
