#!/usr/bin/env python3
"""The resume in C that doctor prints: it compiles without a warning, and fills a program's tensors with what torch finds.

usage: snippet_in_c.py CKPT-INSPECT [-v]

For each checkpoint, ckpt-inspect doctor --snippet c is printed into a file, snippet_in_c.c (which binds what a program has)
is compiled around it against include/ and linked with the library in $builddir, and run: on the CPU, and where the
checkpoint names a GPU on the stand-in for CUDA's driver. What it got is saved and held against torch's own reading of the
same file, tensor by tensor, with the lr of each group and the scaler. Checkpoints are torch's with fused
AdamW and a scaler, weights alone, names that C, YAML and the shell would rather not see, two groups, ours, and of
tests/data/peers those of Lightning, accelerate, the HF Trainer and libtorch. The last line is "N passed, N failed"."""
import copy
import os
import pathlib
import shutil

from checks import check, claimed, commands, finish, run, scratch, section, skip

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as e:
    skip(e)

TOP = pathlib.Path(os.environ.get("srcdir", pathlib.Path(__file__).parents[2])).resolve()
BUILD = pathlib.Path(os.environ.get("builddir", TOP / "build")).resolve()
PEERS = TOP / "tests/data/peers"
STRICT = "-std=c11 -O1 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Werror".split()
DTYPE = {torch.float32: "float32", torch.int64: "int64", torch.bfloat16: "bfloat16", torch.uint8: "uint8"}
ROLES = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "momentum_buffer": "momentum", "step": "step"}


class Program:
    """A program's own tensors: {name: (binding, what torch finds)}, its groups and its scaler."""

    def __init__(self, model, optimizer=None, order=None, scaler=None):
        self.lines, self.wanted, self.numbers = [], {}, []
        order = order or [n for n in model if model[n].is_floating_point() and "running_" not in n]
        for name, tensor in model.items():
            self.bind(name, "-", "-", "param" if name in order else "buffer", tensor)
        for number, name in enumerate(order if optimizer else []):
            for key, value in optimizer["state"].get(number, {}).items():
                value = value if torch.is_tensor(value) else torch.tensor(float(value))
                self.bind(f"optimizer.{name}.{key}", name, key, ROLES[key], value)
        if scaler:
            self.lines.append("scaler\tscaler")
            self.numbers.append(("scale", scaler["scale"]))
        else:
            self.numbers.append(("scale", 65536.0))
        for i, group in enumerate(optimizer["param_groups"] if optimizer else []):
            if not group["params"]:
                continue
            self.lines.append("\t".join(["group", str(i), *(order[n] for n in group["params"])]))
            self.numbers.append(("lr", group["lr"]))

    def bind(self, name, param, key, role, tensor):
        self.lines.append("\t".join([name, param, key, role, DTYPE[tensor.dtype], *map(str, tensor.shape)]))
        self.wanted[name] = tensor.detach().contiguous()


def compiler():
    found = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if not found:
        skip("no C compiler")
    return found.split()


def resumed(what, inspect, path, program, *more, out="out.ckpt"):
    """Prints, compiles, runs, compares; True where all went well."""
    shown = run(inspect, "doctor", "--quiet", "--snippet", "c", *more, path)
    if not check(f"{what}: a snippet is printed", shown.returncode in (0, 1) and "static int resume(" in shown.stdout, shown.stderr):
        return False
    pathlib.Path("snippet.c").write_text(shown.stdout)
    built = run(*compiler(), *STRICT, f"-I{TOP / 'include'}", '-DSNIPPET="snippet.c"', "-I.", TOP / "tests/interop/snippet_in_c.c", "-o", "program",
                f"-L{BUILD / '.libs'}", "-lckpt", f"-Wl,-rpath,{BUILD / '.libs'}")
    if not check(f"{what}: it compiles and links", built.returncode == 0, built.stderr + shown.stdout):
        return False
    pathlib.Path("bindings").write_text("\n".join(program.lines) + "\n")
    before = {k: os.environ.get(k) for k in ("FAKECUDA_DEVICES", "LD_LIBRARY_PATH")}
    os.environ.update(FAKECUDA_DEVICES="2", LD_LIBRARY_PATH=f"{BUILD / 'tests/fakecuda/.libs'}:{before['LD_LIBRARY_PATH'] or ''}")
    done = run("sh", "-c", f"./program {out} <bindings")
    os.environ.update({k: v for k, v in before.items() if v is not None})
    if not check(f"{what}: it resumes", done.returncode == 0, done.stderr + shown.stdout):
        return False
    got = load_file(out)
    differ = [n for n, t in program.wanted.items() if n not in got or (got[n].dtype, got[n].shape) != (t.dtype, t.shape) or not torch.equal(got[n], t)]
    check(f"{what}: {len(program.wanted)} tensors as torch finds them", not differ, differ)
    numbers = [(line.split()[0], float(line.split()[1])) for line in done.stdout.splitlines()]
    return check(f"{what}: lr and scale", numbers == program.numbers, f"{numbers} {program.numbers}")


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def trained(make, model=None):
    model = model or network()
    optimizer = make(model)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
    return model.state_dict(), copy.deepcopy(optimizer.state_dict())


def split(model, **more):
    return torch.optim.AdamW([{"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1, "lr": 0.02},
                              {"params": [p for p in model.parameters() if p.ndim < 2]}], lr=0.01, **more)


def of_torch(inspect):
    scaler = {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 3}
    weights, state = trained(lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, fused=True))
    held = {"epoch": 2, "net": {"weights": weights}, "opt": state, "amp": {"scaler": scaler}, "rng": torch.get_rng_state()}
    program = Program(weights, state, scaler=scaler)
    for tag in None, "cuda:0":
        path = f"full-{(tag or 'cpu').replace(':', '')}.pt"
        with claimed(tag):
            torch.save(held, path)
        if resumed(f"torch, fused, a scaler, {tag or 'cpu'}", inspect, path, program, "--for", "ckpt"):
            # what the program saved is a checkpoint of ours, and its snippet another
            resumed(f"ours, {tag or 'cpu'}", inspect, "out.ckpt", program, out="again.ckpt")
    torch.save(weights, "weights.pt")
    resumed("weights alone", inspect, "weights.pt", Program(weights))
    save_file(weights, "weights.safetensors")
    resumed("weights alone, safetensors", inspect, "weights.safetensors", Program(weights))
    weights, state = trained(split)
    order = [n for n, p in network().named_parameters() if p.ndim >= 2] + [n for n, p in network().named_parameters() if p.ndim < 2]
    torch.save({"model": weights, "optimizer": state}, "groups.pt")
    pathlib.Path("names").write_text("\n".join(order) + "\n")
    resumed("two groups", inspect, "groups.pt", Program(weights, state, order), "--param-names", "names")


def awkward(inspect):
    """Names that would end a comment, a string, a line of YAML or a printf; and a path that would."""
    names = ["a */ b", 'say "hi"', "it's", "back\\slash", "%s%n", "??/", "{x}: [y]", "модель.вес", "#", "- dash", "a.b.c"]
    model = torch.nn.Module()
    weights = {name: torch.randn(2, i + 1) for i, name in enumerate(names)}
    parameters = [torch.nn.Parameter(t.clone()) for t in weights.values()]
    optimizer = torch.optim.SGD(parameters, lr=0.5, momentum=0.9)
    sum(p.square().sum() for p in parameters).backward()
    optimizer.step()
    del model
    state = copy.deepcopy(optimizer.state_dict())
    folder = pathlib.Path("it's a \"folder\" ??")
    folder.mkdir()
    path = folder / "- %d \\ *.pt"                        # "??/", and "*" beside "/"
    for key in "model: {a}", "it's", 'my "net"', "сеть #1", "- m", "back\\slash \n line":
        torch.save({key: weights, "the optimizer": state}, path)
        resumed(f"a model under {key!r}", inspect, path, Program(weights, state, names), "--for", "ckpt")


def of_peers(inspect):
    held = torch.load(PEERS / "lightning.ckpt", map_location="cpu", weights_only=False)
    weights, state = held["state_dict"], held["optimizer_states"][0]
    # configure_optimizers of tests/data/peers/make.py: weights, then biases
    order = sorted((n for n in weights), key=lambda n: weights[n].ndim < 2)
    resumed("Lightning", inspect, PEERS / "lightning.ckpt", Program(weights, state, order), "--for", "ckpt")
    weights = load_file(PEERS / "accelerate/model.safetensors")
    state = torch.load(PEERS / "accelerate/optimizer.bin", map_location="cpu", weights_only=True)
    scaler = torch.load(PEERS / "accelerate/scaler.pt", map_location="cpu", weights_only=True)
    order = ["fc1.weight", "fc2.weight", "fc1.bias", "bn.weight", "bn.bias", "fc2.bias"]      # decay, and no decay
    pathlib.Path("names").write_text("\n".join(order) + "\n")
    resumed("accelerate", inspect, PEERS / "accelerate", Program(weights, state, order, scaler), "--for", "ckpt", "--param-names", "names")
    weights = load_file(PEERS / "hf-trainer/adapter_model.safetensors")
    state = torch.load(PEERS / "hf-trainer/optimizer.pt", map_location="cpu", weights_only=True)
    order = sorted(weights)
    resumed("HF Trainer", inspect, PEERS / "hf-trainer", Program(weights, state, order), "--for", "ckpt")
    module = torch.jit.load(str(PEERS / "libtorch-module.pt"), map_location="cpu")
    resumed("libtorch", inspect, PEERS / "libtorch-module.pt", Program(dict(module.state_dict()), order=[n for n, _ in module.named_parameters()]), "--for", "ckpt")


def main():
    inspect, = commands(__doc__, 1)
    print(f"torch {torch.__version__}, {' '.join(compiler())}")
    with scratch():
        for part in lambda: of_torch(inspect), lambda: awkward(inspect), lambda: of_peers(inspect):
            with section("snippet_in_c"):
                part()
    finish()


if __name__ == "__main__":
    main()
