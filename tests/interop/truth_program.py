"""A training program as doctor_truth.py puts it to the test: it makes checkpoints, loads one, takes steps, and tells what
it saw. It is run by the torch of today, and as a script (JOBS.json) by an older one: nothing here needs more than torch.

On the CPU everything is real. Where a GPU is asked for there are two stand-ins, both of torch itself:
fake   FakeTensorMode (as torch 2.13 has it; that of 2.6 cannot): tensors without values that say cuda:0, move and mix as CUDA tensors do, and
       let torch.load, load_state_dict and step() run on them. What the kernels of CUDA refuse beyond that is known from
       their documentation alone: fused ones want step on the parameter's device.
real   the first GPU of this machine (tests/gpu): everything is real there too.
meta   parameters and whatever is mapped to a GPU are on meta: shows where load_state_dict puts things, no more."""
import json
import os
import sys
import traceback

BEFORE, AFTER = 4, 4
SHAPES = {"fc1.weight": (8, 6), "fc1.bias": (8,), "norm.weight": (8,), "norm.bias": (8,), "fc2.weight": (3, 8), "fc2.bias": (3,)}


LIMITS = "not linked with support for cuda", "not compiled with CUDA", "DataDependentOutput", "DynamicOutputShape", "nothing steps on meta"


class Refused(Exception):
    """By the documented rule of a kernel that cannot run here."""


def network(torch, seed, dtype, kind=None):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.norm, self.fc2 = nn.Linear(6, 8), (nn.BatchNorm1d if kind == "BatchNorm" else nn.LayerNorm)(8), nn.Linear(8, 3)
            if kind == "wide":
                self.fc1, self.norm, self.fc2 = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, 3)
            if kind == "alone":                              # a module of one parameter
                self.gain = nn.Linear(3, 3, bias=False)
            if kind == "tied":
                self.out = nn.Linear(6, 8)
                self.out.weight = self.fc1.weight

        def forward(self, x):
            if kind == "alone":
                return self.gain(self.fc2(torch.tanh(self.norm(self.fc1(x)))))
            return self.fc2(torch.tanh(self.norm(self.fc1(x)))) + (self.out.bias.sum() + self.out.weight.sum() if kind == "tied" else 0)

    torch.manual_seed(seed)
    return Net().to(getattr(torch, dtype))


def numbers(torch, step, rows, columns, modulus):
    n = torch.arange(rows * columns).view(rows, columns)
    return ((n * 7 + step * 3).remainder(modulus) - modulus // 2).float() / 4


def ordered(named, spec):
    """(name, parameter) pairs in the order in which the program hands them to its optimizer."""
    pairs = list(named)
    if spec.get("order") == "swapped":                       # two of one shape change places: fc1.bias and norm.bias
        pairs[1], pairs[3] = pairs[3], pairs[1]
    return pairs


def construct(torch, named, spec):
    """The optimizer that `spec` tells of; `named`: (name, parameter) pairs."""
    pairs = ordered(named, spec)
    hyper = dict(spec.get("hyper", {"lr": 0.01}))
    if spec.get("tensor_lr"):
        hyper["lr"] = torch.tensor(hyper["lr"])
    kind = getattr(torch.optim, spec.get("optimizer", "Adam"))
    use = (lambda some: list(some)) if spec.get("named") else (lambda some: [p for _, p in some])
    if spec.get("groups", 1) == 2:
        decay = [x for x in pairs if x[1].dim() > 1], [x for x in pairs if x[1].dim() < 2]
        return kind([{"params": use(decay[0]), "weight_decay": 0.05}, {"params": use(decay[1]), "weight_decay": 0.0}], **hyper)
    for name, p in pairs:                                    # in the groups, and without a gradient
        p.requires_grad_(p.requires_grad and not (spec.get("without_grad") and name.startswith(spec["without_grad"])))
    if spec.get("frozen"):
        pairs = [x for x in pairs if not x[0].startswith(spec["frozen"])]
    return kind(use(pairs), **hyper)


def schedule(torch, opt, spec, last=-1):
    kinds = torch.optim.lr_scheduler
    made = {"one cycle": lambda: kinds.OneCycleLR(opt, 0.1, total_steps=spec.get("length", BEFORE)), "cosine": lambda: kinds.CosineAnnealingLR(opt, BEFORE),
            "linear": lambda: kinds.LinearLR(opt, 1, 0, BEFORE), "polynomial": lambda: kinds.PolynomialLR(opt, BEFORE),
            "one cycle after a warmup": lambda: kinds.SequentialLR(opt, [kinds.LinearLR(opt, 0.1, 1, 2), kinds.OneCycleLR(opt, 0.1, total_steps=BEFORE - 2)], [2])}
    if spec.get("schedule") in made:
        return made[spec["schedule"]]()
    return kinds.StepLR(opt, 3, 0.5, last_epoch=last) if spec.get("schedule") else None


def grad_scaler(torch, spec, enabled):
    if spec.get("amp") is None:
        return None
    return torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3, enabled=enabled)


def train(torch, net, opt, scaler, lr, first, count):
    losses = []
    for step in range(first, first + count):
        opt.zero_grad()
        x, y = numbers(torch, step, 5, 6, 11), numbers(torch, step, 5, 3, 9)
        dtype = next(net.parameters()).dtype
        loss = torch.nn.functional.mse_loss(net(x.to(dtype)).float(), y)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        else:
            loss.backward()
            opt.step()
        if lr:
            lr.step()
        losses.append(loss.item())
    return losses


def make(torch, spec):
    """What a program has before it saves, and of the steps that it would take next the losses and the last scale."""
    torch.set_num_threads(1)
    net = network(torch, 1, spec.get("dtype", "float32"), spec.get("net"))
    opt = construct(torch, net.named_parameters(), spec)
    scaler, lr = grad_scaler(torch, spec, spec.get("amp") == "on"), schedule(torch, opt, spec)
    late = [p for n, p in net.named_parameters() if spec.get("late") and n.startswith(spec["late"])]     # frozen for two steps
    for p in late:
        p.requires_grad_(False)
    train(torch, net, opt, scaler, lr, 0, 2 if late else 0)
    for p in late:
        p.requires_grad_(True)
    train(torch, net, opt, scaler, lr, 2 if late else 0, spec.get("before", BEFORE) - (2 if late else 0))
    held = {"model": net.state_dict(), "optimizer": opt.state_dict(), "epoch": BEFORE}
    if lr:
        held["scheduler"] = lr.state_dict()
    if scaler:
        held["scaler"] = scaler.state_dict()
    if spec.get("rng"):
        held["rng"] = {"torch": torch.get_rng_state()}
    import copy
    held = copy.deepcopy(held)
    if spec.get("ends"):                                     # without a break it would not go on either
        return held, None, None
    return held, train(torch, net, opt, scaler, lr, BEFORE, AFTER), scaler.get_scale() if scaler else None


# ---------------------------------------------------------------- how trainers lay it out, and where they look for it

def copied(x):
    import copy
    return copy.deepcopy(x)


def pack_several(h):
    """A generator and a discriminator, an optimizer each."""
    return {"G": h["model"], "D": copied(h["model"]), "opt_G": h["optimizer"], "opt_D": copied(h["optimizer"]), "epoch": 4}


def pack_resized(h):
    """The generator was made wider, and its optimizer was not; the discriminator is as it was."""
    import torch
    critic = torch.nn.Linear(4, 5)
    opt = torch.optim.Adam(critic.parameters(), lr=0.01)
    critic(torch.ones(2, 4)).sum().backward()
    opt.step()
    return {"G": network(torch, 1, "float32", "wide").state_dict(), "D": critic.state_dict(), "opt_G": h["optimizer"], "opt_D": opt.state_dict(), "epoch": 4}


LAYOUTS = {  # name: (the dict as it is saved, what the program takes out of it)
    "VAR": (lambda h: {"epoch": 1, "iter": 0, "trainer": {"config": {"resos": (16, 32), "prog_it": 0}, "var_wo_ddp": h["model"], "vae_local": {"quantize.weight": h["model"]["fc1.bias"].clone()},
                                                            "var_opt": {"scaler": h.get("scaler", {}), "optimizer": h["optimizer"]}}, "args": {"depth": 16, "fp16": 1}},
            lambda f: {"model": f["trainer"]["var_wo_ddp"], **f["trainer"]["var_opt"]}),
    "nanoGPT": (lambda h: {"model": h["model"], "optimizer": h["optimizer"], "model_args": {"n_layer": 1}, "iter_num": 4, "best_val_loss": 1.5, "config": {"device": "cuda"}},
                lambda f: f),
    "timm": (lambda h: {"epoch": 7, "arch": "net", "state_dict": h["model"], "optimizer": h["optimizer"], "version": 2, "args": {"lr": None}, "state_dict_ema": copied(h["model"]), "metric": 71.0,
                        **({"amp_scaler": h["scaler"]} if "scaler" in h else {})},
             lambda f: {"model": f["state_dict"], "optimizer": f["optimizer"], **({"scaler": f["amp_scaler"]} if "amp_scaler" in f else {})}),
    "fairseq": (lambda h: {"args": None, "cfg": {"optimization": {"lr": [0.01]}}, "model": h["model"], "optimizer_history": [{"optimizer_name": "FairseqAdam", "num_updates": 4}],
                           "extra_state": {"train_iterator": {"epoch": 2}}, "last_optimizer_state": h["optimizer"]},
                lambda f: {"model": f["model"], "optimizer": f["last_optimizer_state"]}),
    "detectron2": (lambda h: {"model": h["model"], "trainer": {"iteration": 3, "_trainer": {"iteration": 3, "optimizer": h["optimizer"], **({"grad_scaler": h["scaler"]} if "scaler" in h else {})}, "hooks": {"LRScheduler": {"last_epoch": 3}}}, "iteration": 3},
                   lambda f: {"model": f["model"], "optimizer": f["trainer"]["_trainer"]["optimizer"],
                              **({"scaler": f["trainer"]["_trainer"]["grad_scaler"]} if "grad_scaler" in f["trainer"]["_trainer"] else {})}),
    "net, optim": (lambda h: {"net": h["model"], "optim": h["optimizer"], "step": 4, **({"amp": h["scaler"]} if "scaler" in h else {})},
                   lambda f: {"model": f["net"], "optimizer": f["optim"], **({"scaler": f["amp"]} if "amp" in f else {})}),
    "a tuple": (lambda h: (h["model"], h["optimizer"], 4), lambda f: {"model": f[0], "optimizer": f[1]}),
    "two models, two optimizers": (pack_several, lambda f: {"model": f["G"], "optimizer": f["opt_G"]}),
    "two models, one resized": (pack_resized, lambda f: {"model": f["G"], "optimizer": f["opt_G"]}),
    "a list of optimizers": (lambda h: {"state_dict": h["model"], "optimizers": [h["optimizer"]]}, lambda f: {"model": f["state_dict"], "optimizer": f["optimizers"][0]}),
    "the optimizer alone": (lambda h: h["optimizer"], lambda f: {"optimizer": f}),
    "the weights alone": (lambda h: h["model"], lambda f: {"model": f}),
}


# ---------------------------------------------------------------- loading

def flags(opt):
    """As the groups have them; groups that disagree give None."""
    return {k: (lambda s: s.pop() if len(s) == 1 else None)({g.get(k) for g in opt.param_groups}) for k in ("fused", "capturable", "foreach")}


def state_of(torch, opt, named):
    """Where the optimizer's state is after the load, and what is missing of it."""
    names = {p: n for n, p in named}
    seen = {"step": set(), "moments": set(), "missing": [], "lr": [float(g["lr"]) if not torch.is_tensor(g.get("lr")) else "tensor" for g in opt.param_groups if "lr" in g]}
    for group in opt.param_groups:
        for p in group["params"]:
            state = opt.state.get(p, {})
            if not state:
                seen["missing"].append(names.get(p, "?"))
            for key, value in state.items():
                if key == "step":
                    seen["step"].add(f"{value.device} {str(value.dtype)[6:]}" if torch.is_tensor(value) else type(value).__name__)
                elif torch.is_tensor(value):
                    seen["moments"].add(f"{value.device} {str(value.dtype)[6:]}")
    return {k: sorted(v) if isinstance(v, set) else v for k, v in seen.items()}


def opened(torch, job):
    """torch.load as the program calls it."""
    how = {} if job.get("weights_only") is None else {"weights_only": job["weights_only"]}
    where = job.get("map")
    if job.get("gpu") == "meta":                              # the stand-in for every GPU, whoever names it
        where = {None: {"cuda:0": "meta"}}.get(where, "meta" if str(where).startswith("cuda") else where)
    held = torch.load(job["file"], map_location=where, **how)
    return LAYOUTS[job["layout"]][1](held) if job.get("layout") else held


def take(torch, job, held, opt, lr, scaler):
    """Everything that the program has a place for, but the model."""
    if opt and "optimizer" in held and job.get("take_optimizer", True):
        opt.load_state_dict(held["optimizer"])
    if lr and "scheduler" in held:
        lr.load_state_dict(held["scheduler"])
    if scaler and "scaler" in held:
        scaler.load_state_dict(held["scaler"])
    rng = held.get("rng")
    if rng is not None:
        state = rng["torch"]
        if state.device.type != "cpu" and job.get("gpu") != "real":      # any device but the CPU stands for any other here
            state = torch.empty(state.shape, dtype=state.dtype, device="meta")
        torch.set_rng_state(state.clone() if job.get("gpu") in (None, "real") or state.device.type == "meta" else torch.get_rng_state())


def on_cpu(torch, job, seen):
    net = network(torch, 2, job.get("dtype", "float32"), job.get("net"))
    opt = construct(torch, net.named_parameters(), job)
    seen["constructed"] = flags(opt)
    scaler, lr = grad_scaler(torch, job, job.get("amp") == "on"), schedule(torch, opt, job)
    held = opened(torch, job)
    wrapped = torch.nn.Module()                               # as DistributedDataParallel or torch.compile wrap a module
    if job.get("wrap"):
        inside = wrapped
        for part in job["wrap"].rstrip(".").split(".")[:-1]:
            inside.add_module(part, torch.nn.Module())
            inside = getattr(inside, part)
        inside.add_module(job["wrap"].rstrip(".").split(".")[-1], net)
    if "model" in held:
        (wrapped if job.get("wrap") else net).load_state_dict(held["model"])
    take(torch, job, held, opt, lr, scaler)
    if job.get("later_schedule"):
        lr = schedule(torch, opt, {"schedule": True}, last=BEFORE)
    seen["phase"] = "step"
    seen["after"] = dict(flags(opt), **state_of(torch, opt, net.named_parameters()))
    seen["losses"] = train(torch, net, opt, scaler, lr, BEFORE, AFTER)
    seen["scale"] = scaler.get_scale() if scaler else None


def kernel_rule(opt):
    """What a fused or capturable step of CUDA wants: step with the parameter, and the fused kernels in float32. (Fake and
    meta tensors do not ask.)"""
    for group in opt.param_groups:
        for p in group["params"] if group.get("fused") or group.get("capturable") else []:
            step = opt.state.get(p, {}).get("step")
            if step is None:
                continue
            if getattr(step, "device", None) != p.device:
                raise Refused(f"step is on {getattr(step, 'device', 'the host')}, its parameter on {p.device}")
            if group.get("fused") and not str(step.dtype).endswith("float32"):
                raise Refused(f"step is {step.dtype}, and a fused kernel wants float32")


def copies(torch, job, opt, pairs, steps):
    """Steps without values; the tensors on the GPU that the last one looked into from the host."""
    real, items = torch.Tensor.item, []

    def item(tensor):
        items.append(str(tensor.device))
        return real(tensor) if job.get("gpu") == "real" else 4.0

    for _, p in pairs:
        p.grad = torch.zeros_like(p)
    torch.Tensor.item = item
    try:
        for _ in range(steps):
            del items[:]
            opt.step()
    finally:
        torch.Tensor.item = real
    return [d for d in items if d.startswith("cuda")]


def on_gpu(torch, job, seen, device, stepping):
    dtype = getattr(torch, job.get("dtype", "float32"))
    pairs = [(n, torch.nn.Parameter(torch.empty(s, dtype=dtype, device=(job.get("at") or {}).get(n, device)))) for n, s in SHAPES.items()]
    held = opened(torch, job)
    seen["loaded"] = sorted({str(t.device) for t in held.get("model", {}).values()})
    hyper = {k: v for k, v in job.get("hyper", {"lr": 0.01}).items() if stepping or k not in ("fused", "capturable")}
    opt = construct(torch, pairs, dict(job, hyper=hyper))
    seen["constructed"] = dict(flags(opt), **{k: v for k, v in job.get("hyper", {}).items() if k in ("fused", "capturable")})
    take(torch, job, held, opt, None, None)
    seen["phase"] = "step"
    seen["after"] = dict(flags(opt), **state_of(torch, opt, pairs))
    if job["gpu"] != "real":
        kernel_rule(opt)
    odd = any(not step.endswith(" float32") for step in seen["after"]["step"])
    if not stepping and odd and not (seen["after"]["fused"] or seen["after"]["capturable"]) and not torch.__version__.startswith("1."):
        raise RuntimeError("nothing steps on meta, and foreach, the default there, asks for the dtype of step")
    if not stepping:
        seen["items"] = [d for d in {s.split()[0] for s in seen["after"]["step"]} if d == device and not (seen["after"]["fused"] or seen["after"]["capturable"])]
        return
    fresh = [(n, torch.nn.Parameter(torch.empty_like(p))) for n, p in pairs]
    usual = copies(torch, job, construct(torch, fresh, dict(job, hyper=hyper)), fresh, 2)      # what it copies without a resume
    seen["items"] = copies(torch, job, opt, pairs, 1)[len(usual):]


def verdict(seen, job):
    """resumes, resumes-differently (why), fails-at-load, fails-at-step: by what was seen alone."""
    if "error" in seen and job.get("gpu") in ("fake", "meta") and any(limit in seen["error"] for limit in LIMITS):
        return "not run", ["the stand-in for a GPU cannot: " + seen["error"]]
    if "error" in seen:
        return "fails-at-" + seen["phase"], [seen["error"]]
    why, after = [], seen["after"]
    for flag in "fused", "capturable":
        if bool(after[flag]) != bool(seen["constructed"][flag]):
            why.append(f"{flag} is {after[flag]}, the program said {seen['constructed'][flag]}")
    if after["missing"] and job.get("stateful", True):
        why.append(f"no state for {', '.join(after['missing'])}")
    if seen.get("items"):
        why.append("item() of a tensor on the GPU in each step")
    if job.get("moments") and any(not m.endswith(" " + job["moments"]) for m in after["moments"]):
        why.append(f"moments were {job['moments']} and are {after['moments']}")
    if "losses" in seen and job.get("wanted") is not None and not all(abs(a - b) <= job.get("tolerance", 1e-5) * max(1, abs(b)) for a, b in zip(seen["losses"], job["wanted"])):
        why.append(f"the next losses are {seen['losses']}, without a break {job['wanted']}")
    if seen.get("scale") != job.get("wanted_scale") and job.get("amp") == "on":
        why.append(f"the scale is {seen['scale']}, without a break {job['wanted_scale']}")
    return ("resumes-differently" if why else "resumes"), why


def observe(torch, job):
    """What becomes of job["file"]: {"outcome", "why", "after", ...}."""
    seen = {"phase": "load", "torch": torch.__version__}
    torch.set_num_threads(1)
    try:
        if job.get("gpu") == "fake":
            from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
            known = sys.modules[torch.optim.Optimizer.__module__]._foreach_supported_types
            known.append(FakeTensor)                         # that they are of another class is all that tells them from CUDA's
            try:
                with FakeTensorMode(allow_non_fake_inputs=True):
                    on_gpu(torch, job, seen, "cuda:0", True)
            finally:
                known.remove(FakeTensor)
        elif job.get("gpu"):
            on_gpu(torch, job, seen, {"meta": "meta", "real": "cuda:0"}[job["gpu"]], job["gpu"] == "real")
            if job["gpu"] == "real":
                torch.cuda.synchronize()                     # what a kernel refuses late
        else:
            on_cpu(torch, job, seen)
    except Exception as e:                                    # whatever torch raises is the answer
        seen["error"] = f"{type(e).__name__}: {e}"
        if os.environ.get("TRUTH_TRACE"):
            traceback.print_exc()
    seen["outcome"], seen["why"] = verdict(seen, job)
    return seen


def write(torch, job):
    """A file of this torch: the losses of the steps that would come next."""
    held, wanted, _ = make(torch, job)
    torch.save(held, job["file"])
    return wanted


if __name__ == "__main__":
    import torch as this_torch
    with open(sys.argv[1]) as f:
        for one in json.load(f):
            print(json.dumps(write(this_torch, one) if one.get("write") else observe(this_torch, one)))
