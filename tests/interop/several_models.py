#!/usr/bin/env python3
"""accelerate's folders of several models and optimizers, and of PEFT.

usage: several_models.py CKPT-INSPECT CKPT-MIGRATE [-v]

accelerate numbers its models and its optimizers in the order in which prepare() got each, so that the first optimizer need not
be the first model's. It loads both by position: after a migration (--to same; to one torch file, also by way of the native
format) the next steps are those that the program would have taken. Names for the states of an optimizer are told where one
optimizer alone fits a model that is stated, and are compared with torch's. The last line is `N passed, N failed`; exit status
77 where accelerate or peft is not installed. Written for accelerate 1.15, peft 0.21 and torch 2.13.
"""
import os
import sys

from checks import ask, check, commands, crc, finish, run, scratch, section, skip

try:
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState
    from peft import LoraConfig, get_peft_model
except ImportError as why:
    skip(why)

nn = torch.nn
INSPECT, MIGRATE = commands(__doc__, 2)


def gen():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def dis():
    return nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 1))


def adam(*modules, lr=1e-3):
    return torch.optim.AdamW([p for m in modules for p in m.parameters() if p.requires_grad], lr=lr)


def with_adapter():
    base = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(3)))
    return get_peft_model(base, LoraConfig(r=4, target_modules=r"\d\.[02]", init_lora_weights=False))


# ---- what a program prepares: (models, optimizers)

def pair():
    g, d = gen(), dis()
    return [g, d], [adam(g), adam(d, lr=2e-3)]


def crossed():
    g, d = gen(), dis()
    return [g, d], [adam(d, lr=2e-3), adam(g)]


def twins():
    a, b = gen(), gen()
    return [a, b], [adam(a), adam(b, lr=2e-3)]


def halves():
    g = gen()
    return [g], [adam(g[0]), adam(g[2], lr=2e-3)]


def together():
    g, d = gen(), dis()
    return [g, d], [adam(g, d)]


def adapter():
    m = with_adapter()
    return [m], [adam(m)]


# With each model the optimizer that alone fits it.
SITUATIONS = {"a pair": (pair, {0: 0, 1: 1}), "crossed": (crossed, {0: 1, 1: 0}), "twins": (twins, {}), "two halves": (halves, {}),
              "one for both": (together, {}), "an adapter": (adapter, {})}


def program(make, seed):
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    torch.manual_seed(seed)
    models, optimizers = make()
    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(*models, *optimizers)
    prepared = list(prepared) if isinstance(prepared, tuple) else [prepared]
    return accelerator, prepared[:len(models)], prepared[len(models):]


def steps(program, first, count):
    accelerator, models, optimizers = program
    for step in range(first, first + count):
        for m in models:
            x = torch.sin(torch.arange(5 * 8).reshape(5, 8) * (step + 1.0))
            width = next(p for n, p in m.named_parameters() if n.endswith("weight")).shape[1]
            accelerator.backward(m(x[:, :width]).pow(2).mean())
        for o in optimizers:
            o.step()
            o.zero_grad()


def weights(program):
    return [p.detach().clone() for m in program[1] for p in m.parameters()]


def equal(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


def migrate(*words):
    done = run(MIGRATE, "--quiet", *words)
    return check("ckpt-migrate " + " ".join(words), done.returncode == 0, done.stderr)


def load_file(program, path):
    whole = torch.load(path, weights_only=False)           # numpy is in the states of the generators
    for key, things in (("model", program[1]), ("optimizer", program[2])):
        for i, thing in enumerate(things):
            state = whole[key if i == 0 else f"{key}_{i}"]
            thing.load_state_dict(state)


def goes_on(name, make, wanted, load):
    again = program(make, 99)
    load(again)
    steps(again, 3, 2)
    check(f"{name}: the next steps are the same", equal(weights(again), wanted))


# The tensors of optimizer `o` under the names that its model gives its parameters.
def named_states(model, optimizer):
    names = {p: n for n, p in model.named_parameters()}
    inner = optimizer.optimizer
    return {f"optimizer.{names[p]}.{k}": crc(v) for p, s in inner.state.items() for k, v in s.items()}


def names_agree(name, folder, rule, wanted):
    with open("rule.yaml", "w") as f:
        f.write(rule)
    if os.path.exists("named.ckpt"):
        os.remove("named.ckpt")
    if migrate("--to", "ckpt", "--map-location", "rule.yaml", folder, "named.ckpt"):
        found = {t["name"]: t["crc32"] for t in ask(INSPECT, "list", "--json", "--checksum", "named.ckpt")[1]["tensors"]}
        odd = [n for n, c in wanted.items() if found.get(n) != c]
        check(f"{name}: {rule}: the states have their parameters' names", not odd, odd)


def situation(name, make, pairs):
    saved = program(make, 7)
    steps(saved, 0, 3)
    folder = name.replace(" ", "-")
    saved[0].save_state(folder)
    states = {(m, o): named_states(saved[1][m], saved[2][o]) for m, o in pairs.items()}
    first = named_states(saved[1][0], saved[2][0]) if name == "an adapter" else None
    steps(saved, 3, 2)
    wanted = weights(saved)
    goes_on(f"{name}, not migrated", make, wanted, lambda p: p[0].load_state(folder))
    if migrate("--to", "same", "--map-location", "cpu", folder, folder + ".same"):
        goes_on(f"{name}, --to same", make, wanted, lambda p: p[0].load_state(folder + ".same"))
    if migrate("--to", "torch", folder, folder + ".pt"):
        goes_on(f"{name}, --to torch", make, wanted, lambda p: load_file(p, folder + ".pt"))
    if migrate("--to", "ckpt", folder, folder + ".ckpt") and migrate("--to", "torch", folder + ".ckpt", folder + ".back"):
        back = folder + ".back"
        goes_on(f"{name}, there and back", make, wanted, lambda p: load_back(p, back))
    for (m, o), state in states.items():
        number = lambda n: f"_{n}" if n else ""
        names_agree(name, folder, f"{{map: 1, source: {{model: 'model{number(m)}.safetensors'}}}}", state)
        names_agree(name, folder, f"{{map: 1, source: {{optimizer: 'optimizer{number(o)}.bin'}}}}", state)
    if first:
        names_agree(name, folder, "{map: 1}", first)


# A folder that was made native comes back as a dict of its files.
def load_back(program, path):
    whole = torch.load(path, weights_only=False)           # numpy is in the states of the generators
    for key, tail, things in (("model", ".safetensors", program[1]), ("optimizer", ".bin", program[2])):
        for i, thing in enumerate(things):
            name = f"{key}_{i}" if i else key
            thing.load_state_dict(whole[name] if name in whole else whole[name + tail])


with scratch():
    for name, (make, pairs) in SITUATIONS.items():
        with section(name):
            situation(name, make, pairs)
finish()
