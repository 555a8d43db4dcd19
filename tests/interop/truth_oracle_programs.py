"""The programs of oracle.py: each trains a few steps, saves a checkpoint as its kind does (a Base), and resumes a changed one
(observe). What a resume is held against: the file itself (did all of it come back as it is there?) and, where a change leaves
every value alone, the next losses of the run that was never broken."""
import copy
import math
import os

import torch

import truth_program as program

BEFORE, AFTER = program.BEFORE, program.AFTER


# ---------------------------------------------------------------- schedules: more kinds than truth_program.py has

def schedule(torch, opt, spec, last=-1):
    kind, lrs = spec.get("schedule"), torch.optim.lr_scheduler
    if kind == "lambda":
        return lrs.LambdaLR(opt, lambda step: 0.95 ** step, last_epoch=last)
    if kind == "onecycle":
        return lrs.OneCycleLR(opt, max_lr=0.02, total_steps=50, last_epoch=last)
    if kind == "cosine":
        return lrs.CosineAnnealingLR(opt, 50, last_epoch=last)
    return lrs.StepLR(opt, 3, 0.5, last_epoch=last) if kind else None


def construct(torch, named, spec, usual=program.construct):
    """As truth_program.py does; where the spec says so, with the same parameters in other groups: lists of positions."""
    opt = usual(torch, named, spec)
    if not spec.get("like"):
        return opt
    flat = [p for g in opt.param_groups for p in g["params"]]
    return type(opt)([{"params": [flat[n] for n in group]} for group in spec["like"]], **spec.get("hyper", {"lr": 0.01}))


program.schedule, program.construct = schedule, construct     # truth_lightning.py and truth_accelerate.py ask them too


# ---------------------------------------------------------------- what came back, beside what the file says

def same(a, b):
    """Equal as a resume sees it: values and dtypes of tensors; 4 and tensor(4.0) are one step."""
    if torch.is_tensor(a) and torch.is_tensor(b):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(torch.nan_to_num(a.double()) if a.is_floating_point() else a,
                                                                         torch.nan_to_num(b.double()) if b.is_floating_point() else b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    try:
        return bool(a == b) or (torch.is_tensor(a) or torch.is_tensor(b)) and float(a) == float(b)
    except (TypeError, ValueError, RuntimeError):
        return repr(a) == repr(b)


def optimizer_differs(file, live):
    """What of an optimizer's dict did not come back; `live` is the state_dict() after the load."""
    why = []
    if not isinstance(file, dict) or "param_groups" not in file:
        return ["the optimizer was not loaded"]
    for number, (saved, now) in enumerate(zip(file["param_groups"], live["param_groups"])):
        for key in saved:
            if key not in ("params", "param_names") and not same(saved[key], now.get(key)):
                why.append(f"{key} of group {number} is {now.get(key)!r}, in the file {saved[key]!r}")
        for old, new in zip(saved["params"], now["params"]):
            was, here = file["state"].get(old), live["state"].get(new)
            if not was:
                continue
            for key in was:
                if here is None or key not in here:
                    why.append(f"{key} of {old} is gone")
                elif key == "step":
                    if float(was[key]) != float(here[key]) and not math.isnan(float(was[key])):
                        why.append(f"step of {old} is {here[key]}")
                elif not same(was[key], here[key]):
                    why.append(f"{key} of {old} did not come back as it was" + (f": {was[key].dtype} is {here[key].dtype}" if torch.is_tensor(was[key]) and torch.is_tensor(here[key]) else ""))
    return why[:4]


SPEED = ("fused", "capturable", "foreach", "differentiable")    # fused and capturable are looked at by judge()


def gone(file, base, live):
    """What was there when the base was saved, is not in the file, and did not come back: state of parameters, and what a group said."""
    if not isinstance(file, dict) or "param_groups" not in file:
        return []
    had = [bool(base["state"].get(i)) for g in base["param_groups"] for i in g["params"]]
    has = [bool(file["state"].get(i)) for g in file["param_groups"] for i in g["params"]]
    lost = sum(a and not b for a, b in zip(had, has))
    why = [f"{lost} parameters have no state"] if lost else []
    if [len(g["params"]) for g in base["param_groups"]] != [len(g["params"]) for g in file["param_groups"]]:
        return why                                            # groups of another program
    for number, (was, saved, now) in enumerate(zip(base["param_groups"], file["param_groups"], live["param_groups"])):
        why += [f"{k} of group {number} is {now[k]!r}, it was {was[k]!r}" for k in was if k not in saved and k in now and k not in ("params", "param_names", *SPEED) and not same(was[k], now[k])]
    return why


def spoilt(net, opts):
    """After the steps: state that is not finite, or is not of its parameter's shape."""
    why = [f"{n} is not finite" for n, p in net.named_parameters() if not torch.isfinite(p).all()]
    for opt in opts:
        for p, state in opt.state.items():
            for k, t in state.items() if torch.is_tensor(p) else ():      # ids that no group has stay ids
                if torch.is_tensor(t) and t.dtype.is_floating_point and not torch.isfinite(t).all():
                    why.append(f"{k} is not finite")
                if k in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "sum") and torch.is_tensor(t) and t.dtype.is_floating_point and t.shape != p.shape:
                    why.append(f"{k} is {list(t.shape)}, its parameter {list(p.shape)}")
    return why[:3]


def flags(opts):
    """Of each group that has parameters."""
    return [{k: g.get(k) for k in ("fused", "capturable", "foreach")} for o in opts for g in o.param_groups if g["params"]]


def judge(seen, case):
    """Sets outcome and why, by what was seen alone. case: truth ("unbroken" or "file"), wanted, scale, constructed."""
    if "error" in seen:
        seen["outcome"], seen["why"] = "fails-at-" + seen["phase"], [seen["error"]]
        return seen
    why = list(seen.get("differs", []))
    for after in seen.get("flags", []):
        for flag in "fused", "capturable":
            if bool(after[flag]) != bool(case["constructed"].get(flag)):
                why.append(f"{flag} is {after[flag]}, the program said {case['constructed'].get(flag)}")
    losses, wanted = seen.get("losses", []), case["wanted"]
    if not math.isfinite(seen.get("scale") or 0):
        why.append(f"the scale is {seen['scale']}: every step is skipped")
    if any(not math.isfinite(x) for x in losses):
        why.append(f"the next losses are {losses}")
    elif case["truth"] == "unbroken":
        if len(losses) != len(wanted) or not all(abs(a - b) <= case.get("tolerance", 1e-5) * max(1, abs(b)) for a, b in zip(losses, wanted)):
            why.append(f"the next losses are {losses}, without a break {wanted}")
        if "scale" in seen and seen["scale"] != case["scale"]:
            why.append(f"the scale is {seen['scale']}, without a break {case['scale']}")
    seen["outcome"], seen["why"] = ("resumes-differently" if why else "resumes"), why
    return seen


def guarded(seen, body):
    try:
        body()
    except Exception as e:                                    # whatever the program raises is the answer
        seen["error"] = f"{type(e).__name__}: {e}"
    return seen


# ---------------------------------------------------------------- plain loops: nanoGPT's layout, a GAN's, bitsandbytes

def discriminator(seed):
    torch.manual_seed(seed)
    nn = torch.nn
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))


def resized(net, head):
    """fc2 has `head` outputs: a replaced head, and the first three are what the loss sees."""
    if head:
        net.fc2 = torch.nn.Linear(8, head)
    return net


class Plain:
    """One model and one optimizer, or several, each in its entry of the file."""

    def __init__(self, spec, seed):
        torch.set_num_threads(1)
        self.spec = spec
        if spec.get("gan"):
            self.nets = {"G": program.network(torch, seed, "float32"), "D": discriminator(seed)}
            self.opts = {"opt_G": torch.optim.Adam(self.nets["G"].parameters(), **spec["hyper"]),
                         "opt_D": torch.optim.Adam(self.nets["D"].parameters(), **{**spec["hyper"], "betas": (0.5, 0.9)})}
        elif spec.get("bnb"):
            import bitsandbytes
            torch.manual_seed(seed)
            net = torch.nn.Sequential(torch.nn.Linear(6, 700), torch.nn.Tanh(), torch.nn.Linear(700, 3)).to(getattr(torch, spec.get("dtype", "float32")))
            self.nets, self.opts = {"model": net}, {"optimizer": getattr(bitsandbytes.optim, spec["bnb"])(net.parameters(), lr=0.01)}
        else:
            net = resized(program.network(torch, seed, spec.get("dtype", "float32"), spec.get("net")), spec.get("head"))
            self.nets, self.opts = {"model": net}, {"optimizer": program.construct(torch, net.named_parameters(), spec)}
        first = next(iter(self.opts.values()))
        self.lr, self.scaler = schedule(torch, first, spec), program.grad_scaler(torch, spec, True)

    def steps(self, first, count):
        if not self.spec.get("gan"):
            (net,), (opt,) = self.nets.values(), self.opts.values()
            cut = torch.nn.Sequential(net, Cut()) if self.spec.get("head") else net
            return program.train(torch, cut, opt, self.scaler, self.lr, first, count)
        losses, (g, d), (opt_g, opt_d) = [], self.nets.values(), self.opts.values()
        one = torch.nn.functional.softplus
        for step in range(first, first + count):
            x, real = program.numbers(torch, step, 5, 6, 11), program.numbers(torch, step, 5, 3, 9)
            opt_d.zero_grad()
            loss = one(-d(real)).mean() + one(d(g(x).detach())).mean()
            loss.backward()
            opt_d.step()
            opt_g.zero_grad()
            fooled = one(-d(g(x))).mean()
            fooled.backward()
            opt_g.step()
            losses += [loss.item(), fooled.item()]
        return losses

    def held(self):
        held = {**{k: n.state_dict() for k, n in self.nets.items()}, **{k: o.state_dict() for k, o in self.opts.items()}}
        if self.lr:
            held["scheduler"] = self.lr.state_dict()
            held["scheduler"].pop("lr_lambdas", None) if self.spec["schedule"] != "lambda" else None
        if self.scaler:
            held["scaler"] = self.scaler.state_dict()
        if self.spec.get("rng"):
            held["rng"] = {"torch": torch.get_rng_state()}
        held["epoch" if self.spec.get("gan") else "iter_num"] = BEFORE
        return copy.deepcopy({**held, "config": {"lr": 0.01, "device": "cuda"}})

    def load(self, held):
        for name, net in self.nets.items():
            if name in held:
                inside = net
                if self.spec.get("wrap"):                     # as DistributedDataParallel or torch.compile wrap a module
                    for part in reversed(self.spec["wrap"].rstrip(".").split(".")):
                        outer = torch.nn.Module()
                        outer.add_module(part, inside)
                        inside = outer
                inside.load_state_dict(held[name])
        for name, opt in self.opts.items():
            if name in held:
                opt.load_state_dict(held[name])
        if self.lr and "scheduler" in held:
            self.lr.load_state_dict(held["scheduler"])
        if self.scaler and "scaler" in held:
            self.scaler.load_state_dict(held["scaler"])
        if self.spec.get("rng") and "rng" in held:
            torch.set_rng_state(held["rng"]["torch"])

    def differs(self, held, base):
        """What is not as the file says, and what the base had and neither has."""
        why = []
        for name, opt in self.opts.items():
            why += optimizer_differs(held[name], opt.state_dict()) + gone(held[name], base[name], opt.state_dict()) if name in held else [f"there is no {name}"]
        for name, net in self.nets.items():
            if name not in held:
                why.append(f"there is no {name}")
        for name, part in ("scheduler", self.lr), ("scaler", self.scaler):
            if part and name not in held:
                why.append(f"there is no {name}")
            elif part:
                now = part.state_dict()
                why += [f"{name}: {k} is {now.get(k)!r}, in the file {v!r}" for k, v in held[name].items() if k in now and not same(v, now[k])]
                why += [f"{name}: no {k}" for k in ("last_epoch", "scale") if k in base[name] and k not in held[name]]
        if self.spec.get("rng") and ("rng" not in held or not same(held["rng"]["torch"].flatten(), torch.get_rng_state())):
            why.append("the random state is another")
        return why


class Cut(torch.nn.Module):
    def forward(self, x):
        return x[:, :3]


def plain_made(spec, path):
    p = Plain(spec, 1)
    p.steps(0, BEFORE)
    held = p.held()
    torch.save(held, path)
    wanted = p.steps(BEFORE, AFTER)
    return held, wanted, p.scaler.get_scale() if p.scaler else None


def plain_observe(case):
    seen = {"phase": "load"}

    def body():
        p = Plain(case["spec"], 2)
        case["constructed"] = program.flags(next(iter(p.opts.values())))
        how = {} if case.get("weights_only") is None else {"weights_only": case["weights_only"]}
        held = torch.load(case["path"], map_location=case.get("map"), **how)
        kept = copy.deepcopy(held)
        p.load(held)
        seen["phase"] = "step"
        seen["flags"] = flags(p.opts.values())
        seen["differs"] = p.differs(kept, case["base"])
        seen["losses"] = p.steps(BEFORE, case["spec"].get("after", AFTER))
        seen["differs"] += [w for n in p.nets.values() for w in spoilt(n, p.opts.values())]
        if p.scaler:
            seen["scale"] = p.scaler.get_scale()
    return judge(guarded(seen, body), case)


# ---------------------------------------------------------------- Lightning

def lightning_made(spec, path):
    import truth_lightning as l
    held, wanted, scale = l.made(spec, None, {})
    torch.save(held, path)
    return held, wanted, scale


def lightning_observe(case):
    import truth_lightning as l

    class Lit(l.Lit):
        def on_train_start(self):
            super().on_train_start()
            t = self.trainer
            self.seen["flags"] = flags(t.optimizers)
            self.live = copy.deepcopy(([o.state_dict() for o in t.optimizers], [c.scheduler.state_dict() for c in t.lr_scheduler_configs],
                                       t.precision_plugin.scaler.state_dict() if getattr(t.precision_plugin, "scaler", None) else None))

    module = Lit(case["spec"], 2)
    seen = module.seen

    def body():
        l.fit(module, case["spec"], BEFORE + AFTER, case["path"], case.get("weights_only"))
        seen["losses"] = module.losses
        module.live += (spoilt(module, module.trainer.optimizers),)
        if case["scale"] is not None:
            seen["scale"] = module.scales[0]
    guarded(seen, body)
    case["constructed"] = seen.get("constructed", {})
    if "error" not in seen:
        held, base, why = torch.load(case["path"], weights_only=False, map_location="cpu"), case["base"], []
        opts, lrs, scaler, bad = module.live
        for saved, now in zip(held["optimizer_states"], opts):
            why += optimizer_differs(saved, now)
        for saved, was, now in zip(held["optimizer_states"], base["optimizer_states"], opts):
            why += gone(saved, was, now)
        if len(held["optimizer_states"]) < len(opts):
            why.append("an optimizer's state is missing")
        for saved, now in zip(held["lr_schedulers"], lrs):
            why += [f"scheduler: {k}" for k, v in saved.items() if k in now and not same(v, now[k])]
        if len(held["lr_schedulers"]) < len(lrs):
            why.append("a scheduler's state is missing")
        if scaler is not None:
            why += [f"scaler: {k}" for k, v in held.get("MixedPrecision", {"scale": None}).items() if k in scaler and not same(v, scaler[k])]
        if case["truth"] == "unbroken" and seen["at"] != BEFORE:
            why.append(f"it goes on at step {seen['at']}")
        seen["differs"] = why + bad
    return judge(seen, case)


# ---------------------------------------------------------------- accelerate

def accelerate_made(spec, path):
    import truth_accelerate as a
    wanted, scale = a.made(spec, path, spec.get("safe", True))
    return None, wanted, scale


def accelerate_observe(case):
    import truth_accelerate as a
    seen, spec = {"phase": "load"}, case["spec"]

    def body():
        parts = a.trainer(spec, 2)
        torch.manual_seed(6)
        opt = parts[2].optimizer
        case["constructed"] = program.flags(opt)
        before = torch.get_rng_state()
        parts[0].load_state(case["path"])
        seen["phase"] = "step"
        seen["flags"] = flags([opt])
        file = torch.load(os.path.join(case["path"], "optimizer.bin"), weights_only=False, map_location="cpu")
        why = optimizer_differs(file, opt.state_dict()) + gone(file, case["parts"]["optimizer"], opt.state_dict())
        if same(before, torch.get_rng_state()):
            why.append("the random state was not restored")
        if parts[3]:
            now, saved = parts[3].state_dict(), torch.load(os.path.join(case["path"], "scheduler.bin"), weights_only=False)
            why += [f"scheduler: {k}" for k, v in saved.items() if k in now and not same(v, now[k])]
        if spec.get("amp") == "on":
            scaler = os.path.join(case["path"], "scaler.pt")
            now, saved = parts[0].scaler.state_dict(), torch.load(scaler, weights_only=False) if os.path.exists(scaler) else {"scale": None}
            why += [f"scaler: {k}" for k, v in saved.items() if k in now and not same(v, now[k])]
        seen["differs"] = why
        if spec.get("amp") == "on":
            seen["scale"] = parts[0].scaler.get_scale()
        seen["losses"] = a.steps(parts, BEFORE, AFTER, 0)
        seen["differs"] += spoilt(parts[1], [opt])
    return judge(guarded(seen, body), case)


# ---------------------------------------------------------------- the Trainer of transformers, with and without PEFT

def hf_made(spec, path):
    import truth_hf_trainer as h
    return None, h.made(spec, path), None


def hf_observe(case):
    from safetensors.torch import load_file
    import truth_hf_trainer as h
    seen, spec, live = {"phase": "load"}, case["spec"], {}

    class Watch(h.Watch):
        def on_train_begin(self, args, state, control, model=None, optimizer=None, lr_scheduler=None, **more):
            super().on_train_begin(args, state, control, model=model, optimizer=optimizer, **more)
            opt = getattr(optimizer, "optimizer", optimizer)
            live.update(copy.deepcopy({"optimizer": opt.state_dict(), "scheduler": lr_scheduler.state_dict(), "model": {k: v for k, v in model.state_dict().items()}}))
            seen["flags"] = flags([opt])

    def body():
        h.Watch, kept = Watch, h.Watch
        try:
            with h.silence():
                t = h.trainer(spec, 1 if spec.get("lora") else 2, BEFORE + AFTER, seen)
                t.train(resume_from_checkpoint=case["path"])
            live["bad"] = spoilt(t.model, [getattr(t.optimizer, "optimizer", t.optimizer)])
        finally:
            h.Watch = kept
    guarded(seen, body)
    case["constructed"] = {"fused": spec.get("optim") == "fused" or None}
    if "error" not in seen:
        def of(name):
            file = os.path.join(case["path"], name)
            return torch.load(file, weights_only=False, map_location="cpu") if os.path.exists(file) else None
        read = all(os.path.exists(os.path.join(case["path"], n)) for n in ("optimizer.pt", "scheduler.pt"))      # or neither is
        why, file, lr = [], of("optimizer.pt") if read else None, of("scheduler.pt") if read else None
        why += optimizer_differs(file, live["optimizer"]) + gone(file, case["parts"]["optimizer"], live["optimizer"]) if file else ["no optimizer.pt"]
        why += [f"scheduler: {k}" for k, v in lr.items() if k in live["scheduler"] and not same(v, live["scheduler"][k])] if lr else ["no scheduler.pt"]
        if not os.path.exists(os.path.join(case["path"], "rng_state.pth")):
            why.append("no rng_state.pth")
        weights = next(n for n in ("model.safetensors", "adapter_model.safetensors") if os.path.exists(os.path.join(case["path"], n)))
        names = lambda folder: set(load_file(os.path.join(folder, weights)))
        left_out = sorted(names(case["home"]) - names(case["path"]))
        why += [f"{left_out} are not in the file"] if left_out else []
        why += live["bad"]
        if case["truth"] == "unbroken" and (seen["at"] != BEFORE or len(seen.get("losses", [])) != AFTER):
            why.append(f"it goes on at step {seen['at']}, and {len(seen.get('losses', []))} steps are left")
        seen["differs"] = why
    return judge(seen, case)


# ---------------------------------------------------------------- the bases

ADAM, FUSED, AMSGRAD, SGD = {"lr": 0.01}, {"lr": 0.01, "fused": True}, {"lr": 0.01, "amsgrad": True}, {"lr": 0.05, "momentum": 0.9, "nesterov": True}
BASES = {  # trainer: (weight, is a folder, made, observe, doctor's --for, [(name, spec)])
    "torch": (8, False, plain_made, plain_observe, "torch", [
        ("AdamW, two groups, LambdaLR, scaler, RNG", {"optimizer": "AdamW", "groups": 2, "hyper": ADAM, "schedule": "lambda", "amp": "on", "rng": True}),
        ("AdamW, two groups, OneCycleLR", {"optimizer": "AdamW", "groups": 2, "hyper": ADAM, "schedule": "onecycle"}),
        ("AdamW, fused, cosine, RNG", {"optimizer": "AdamW", "hyper": FUSED, "schedule": "cosine", "rng": True}),
        ("Adam, amsgrad", {"optimizer": "Adam", "hyper": AMSGRAD}), ("Adam, named, two groups", {"optimizer": "Adam", "groups": 2, "named": True, "hyper": ADAM}),
        ("SGD, BatchNorm, StepLR", {"optimizer": "SGD", "hyper": SGD, "net": "BatchNorm", "schedule": "step"}),
        ("RMSprop", {"optimizer": "RMSprop", "hyper": {"lr": 0.01, "momentum": 0.5}}), ("Adagrad", {"optimizer": "Adagrad", "hyper": {"lr": 0.01}}),
        ("AdamW, scaler", {"optimizer": "AdamW", "hyper": ADAM, "amp": "on"})]),
    "gan": (3, False, plain_made, plain_observe, "torch", [("two models, two optimizers", {"gan": True, "hyper": ADAM}), ("the same, RNG", {"gan": True, "hyper": {"lr": 0.01, "foreach": True}, "rng": True})]),
    "lightning": (4, False, lightning_made, lightning_observe, "lightning", [
        ("AdamW, StepLR", {"optimizer": "AdamW", "hyper": ADAM, "schedule": "step"}), ("Adam, two groups, scaler", {"groups": 2, "hyper": ADAM, "amp": "on"}),
        ("fused, cosine", {"optimizer": "AdamW", "hyper": FUSED, "schedule": "cosine"})]),
    "accelerate": (4, True, accelerate_made, accelerate_observe, "accelerate", [
        ("AdamW, cosine", {"optimizer": "AdamW", "hyper": ADAM, "schedule": "cosine"}), ("Adam, scaler", {"hyper": ADAM, "amp": "on", "groups": 2}),
        ("SGD, .bin", {"optimizer": "SGD", "hyper": SGD, "safe": False})]),
    "hf-trainer": (3, True, hf_made, hf_observe, "hf-trainer", [("AdamW", {}), ("AdamW, fused", {"optim": "fused"})]),
    "peft": (2, True, hf_made, hf_observe, "hf-trainer", [("LoRA", {"lora": True})]),
    "bitsandbytes": (2, False, plain_made, plain_observe, "torch", [("AdamW8bit", {"bnb": "AdamW8bit"}), ("Lion8bit", {"bnb": "Lion8bit"})]),
}
