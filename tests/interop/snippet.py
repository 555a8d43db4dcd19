#!/usr/bin/env python3
"""The resume that doctor prints: it compiles, and run with the model that made the file it goes on as if nothing had been.

usage: snippet.py CKPT-INSPECT

For each optimizer of torch, with and without groups, prefixes, schedulers, scalers and random states: train, save with
torch.save, print the snippet with ckpt-inspect doctor --snippet torch, run it in this process with a new model, take the next
steps, and compare the weights with those of a run without a break, bit for bit. The last line is "N passed, N failed"."""
import copy
import os
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("not run: torch is not there")
    sys.exit(77)

passed = failed = 0


def ok(good, name, why=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    print(f"{'ok' if good else 'not ok'} {name}{'' if good else ': ' + str(why)}")


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def step(model, optimizer, scheduler=None, random=False):
    x = torch.randn(4, 6) if random else torch.arange(24.0).reshape(4, 6) / 24
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if scheduler:
        scheduler.step()


def groups(model, split):
    if not split:
        return [{"params": list(model.parameters())}]
    return [{"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}]


def saved(model, optimizer, scheduler, prefix):
    weights = {prefix + k: v for k, v in model.state_dict().items()}
    out = {"net": {"weights": weights}, "opt": optimizer.state_dict(), "rng": torch.get_rng_state()}
    if scheduler:
        out["sched"] = scheduler.state_dict()
    return copy.deepcopy(out)


def snippet(inspect, path, *more):
    done = subprocess.run([inspect, "doctor", "--quiet", "--snippet", "torch", *more, path], capture_output=True, text=True)
    return done.stdout if done.returncode in (0, 1) else f"raise RuntimeError({done.stderr!r})"


def one(inspect, folder, name, make, split=False, prefix="", scheduled=False):
    model = network()
    optimizer = make(groups(model, split))
    schedule = (lambda o: torch.optim.lr_scheduler.StepLR(o, 2)) if scheduled else None
    scheduler = schedule(optimizer) if schedule else None
    for _ in range(3):
        step(model, optimizer, scheduler, True)
    path = os.path.join(folder, "it's " + name.replace(" ", "_") + ".pt")
    torch.save(saved(model, optimizer, scheduler, prefix), path)
    for _ in range(3):
        step(model, optimizer, scheduler, True)
    text = snippet(inspect, path)
    try:
        space = {}
        exec(compile(text, path + ".py", "exec"), space)
        other = network()
        with torch.no_grad():
            for p in other.parameters():
                p.zero_()
        _, again, schedule_again = space["resume"](other, make_scheduler=schedule, device="cpu")
        for _ in range(3):
            step(other, again, schedule_again, True)
        same = all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))
        ok(same, name, "the weights differ from a run without a break")
    except Exception as error:
        ok(False, name, f"{type(error).__name__}: {error}\n{text}")


def broken_group(inspect, folder):
    """The check in the snippet is one: another number of groups is refused."""
    model = network()
    optimizer = torch.optim.AdamW(groups(model, True))
    step(model, optimizer)
    path = os.path.join(folder, "groups.pt")
    torch.save(saved(model, optimizer, None, ""), path)
    space = {}
    exec(compile(snippet(inspect, path), path + ".py", "exec"), space)
    try:
        space["resume"](network(), make_optimizer=lambda m: torch.optim.AdamW(m.parameters()), device="cpu")
        ok(False, "another number of groups", "it was taken")
    except AssertionError:
        ok(True, "another number of groups")


def flat(inspect, folder, name, prefix=""):
    """Weights alone in a safetensors file: torch.load does not read it, the snippet does."""
    try:
        import safetensors.torch
    except ImportError:
        print(f"not run: {name}: safetensors is not there")
        return
    model, other = network(), network()
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    path = os.path.join(folder, "flat.safetensors")
    safetensors.torch.save_file({prefix + key: value.contiguous() for key, value in model.state_dict().items()}, path)
    try:
        space = {}
        exec(compile(snippet(inspect, path, "--for", "torch"), path, "exec"), space)
        space["resume"](other, device="cpu")
        ok(all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters())), name, "the weights differ")
    except Exception as error:
        ok(False, name, f"{type(error).__name__}: {error}")


def main(inspect):
    o = torch.optim
    with tempfile.TemporaryDirectory() as folder:
        flat(inspect, folder, "safetensors")
        flat(inspect, folder, "safetensors, with a prefix", "module.")
        for name, make in {
            "AdamW": lambda g: o.AdamW(g, lr=0.01), "AdamW fused": lambda g: o.AdamW(g, lr=0.01, fused=True),
            "Adam amsgrad": lambda g: o.Adam(g, lr=0.01, amsgrad=True), "SGD": lambda g: o.SGD(g, lr=0.01, momentum=0.9, nesterov=True),
            "NAdam": lambda g: o.NAdam(g, lr=0.01), "RAdam": lambda g: o.RAdam(g, lr=0.01), "Adamax": lambda g: o.Adamax(g, lr=0.01),
            "Adagrad": lambda g: o.Adagrad(g, lr=0.01), "RMSprop": lambda g: o.RMSprop(g, lr=0.01, momentum=0.9),
            "Adadelta": lambda g: o.Adadelta(g), "ASGD": lambda g: o.ASGD(g, lr=0.01), "Rprop": lambda g: o.Rprop(g, lr=0.01),
        }.items():
            one(inspect, folder, name, make)
        adamw = lambda g: o.AdamW(g, lr=0.01)
        one(inspect, folder, "two groups", adamw, split=True)
        one(inspect, folder, "a prefix", adamw, prefix="module.")
        one(inspect, folder, "two prefixes", adamw, prefix="_orig_mod.module.")
        one(inspect, folder, "a scheduler", adamw, split=True, scheduled=True)
        broken_group(inspect, folder)
        for path in sys.argv[2:]:
            for more in ((), ("--for", "torch"), ("--for", "lightning"), ("--for", "accelerate"), ("--for", "hf-trainer")):
                text = snippet(inspect, path, *more)
                try:
                    compile(text, path, "exec")
                    ok(not text.startswith("raise"), f"{path} {' '.join(more)} compiles", text[:200])
                except SyntaxError as error:
                    ok(False, f"{path} {' '.join(more)} compiles", error)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
