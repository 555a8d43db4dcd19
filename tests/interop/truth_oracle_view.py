"""The mutations of oracle.py. Each takes a View of a copied checkpoint and a random.Random, changes something, and says what it
changed; or returns None where there is nothing of its kind.

What a mutation makes true of the program: `view.spec` is the program that loads (by default the one that saved), `view.doctor`
what doctor is told of it, `view.truth` how a resume is judged: "unbroken", the next losses are those of the unbroken run too; "file",
the values are other ones by intent, and a resume is right where all that the file says came back."""
import collections
import json
import os
import pathlib

import torch

from truth_tools import tagged


class Files(dict):
    """The files of a folder, read when they are asked for; what is deleted here is deleted there."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.there = folder, set(os.listdir(folder))

    def __contains__(self, name):
        return name in self.there

    def __missing__(self, name):
        path = os.path.join(self.folder, name)
        if name.endswith(".safetensors"):
            from safetensors.torch import load_file
            self[name] = collections.OrderedDict(load_file(path))
        elif name.endswith(".json"):
            self[name] = json.loads(pathlib.Path(path).read_text())
        else:
            self[name] = torch.load(path, weights_only=False)
        return self[name]

    def __delitem__(self, name):
        self.there.discard(name)
        self.pop(name, None)
        os.remove(os.path.join(self.folder, name))

    def save(self):
        for name, held in self.items():
            path = os.path.join(self.folder, name)
            if name not in self.there:
                continue
            if name.endswith(".safetensors"):
                from safetensors.torch import save_file
                save_file({k: v.contiguous() for k, v in held.items()}, path, {"format": "pt"})
            elif name.endswith(".json"):
                pathlib.Path(path).write_text(json.dumps(held))
            else:
                torch.save(held, path)


FUSED = "the fused kernel of the CPU looks at no shape: it reads past the end of the moment, and what it does then is chance"


class View:
    """Where a trainer keeps what: slots of (container, key)."""

    def __init__(self, trainer, path, spec, folder):
        self.trainer, self.path, self.spec, self.folder = trainer, path, dict(spec), folder
        self.truth, self.doctor, self.tag, self.map, self.weights_only, self.areas = "unbroken", [], None, None, None, set()
        self.key_gone = False                                 # a weight that the optimizer has
        self.resized = False                                  # a moment has more elements than it had, or fewer
        self.tiny = False                                     # a scale that float16 would feel
        self.alone = False                                    # no other change beside this one: values that are nan hide others
        self.late = []                                        # what is done to the files once all is saved
        root = self.root = Files(path) if folder else torch.load(path, weights_only=False)
        has = lambda *names: [(root, n) for n in names if n in root]
        if trainer == "lightning":
            self.models, self.scalers = has("state_dict"), has("MixedPrecision")
            self.optimizers, self.schedulers, self.rngs = [(root["optimizer_states"], 0)], [(root["lr_schedulers"], 0)] if root["lr_schedulers"] else [], []
        elif folder:
            self.models, self.optimizers = has("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors"), has("optimizer.bin", "optimizer.pt")
            self.schedulers, self.scalers = has("scheduler.bin", "scheduler.pt"), has("scaler.pt")
            self.rngs = [(root[n], k) for n, k in (("random_states_0.pkl", "torch_manual_seed"), ("rng_state.pth", "cpu")) if n in root]
        else:
            self.models, self.optimizers = has("model", "G", "D"), has("optimizer", "opt_G", "opt_D")
            self.schedulers, self.scalers, self.rngs = has("scheduler"), has("scaler"), [(root["rng"], "torch")] if "rng" in root else []

    def optimizer(self, r):
        """One that is still whole, or None."""
        left = [c[k] for c, k in self.optimizers if (k in c if isinstance(c, dict) else k < len(c)) and isinstance(c[k], dict) and c[k].get("param_groups") and "state" in c[k]]
        return r.choice(left) if left else None

    def undefined(self):
        """Why nothing says what is true of it; None where it is defined."""
        if self.key_gone and not any(isinstance(o, dict) and o.get("param_groups") and all("params" in g for g in o["param_groups"]) for o in self.left(self.optimizers)):
            return "what says that a weight is missing is the optimizer's state, and that is gone too"
        if self.tiny:
            return "so small a scale loses gradients in float16, and these programs compute in float32"
        return FUSED if self.resized and self.fused() else None

    @staticmethod
    def left(slots):
        return [c[k] for c, k in slots if (k in c if isinstance(c, dict) else k < len(c))]

    def fused(self):
        return any(g.get("fused") for o in self.left(self.optimizers) for g in o.get("param_groups", []))

    def of(self, slots, r):
        left = [(c, k) for c, k in slots if (k in c if isinstance(c, dict) else k < len(c))]
        return r.choice(left) if left else (None, None)

    def save(self):
        if self.folder:
            self.root.save()
        else:
            with tagged(self.tag):
                torch.save(self.root, self.path)
        for change in self.late:
            change()


TABLE = []                                                    # (weight, name, function)


def mutation(weight=1, name=None):
    def take(f):
        TABLE.append((weight, name or f.__name__.replace("_", " "), f))
        return f
    return take


def some(r, things):
    things = list(things)
    return r.sample(things, r.randint(1, len(things))) if things else []
