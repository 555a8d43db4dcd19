#!/usr/bin/env python3
"""A trainer on libtorch, in C++: it saves with our library, and resumes from that, from torch::save and from Python's files.

usage: libtorch_peer.py CKPT-INSPECT CKPT-MIGRATE [-v]

Builds samples/libtorch_resume.cpp against the libtorch inside the pip package and the library in $builddir. Wherever the run
was interrupted, its losses are those of the run that was not, bit for bit; Python's AdamW, whose arithmetic is in another
order, agrees within 1e-5. torch.jit.load says what torch::save wrote. The last line is "N passed, N failed"."""
import os
import pathlib
import shutil

from checks import ask, check, claimed, commands, crc, finish, run, scratch, section, skip

try:
    import safetensors
    import torch
    from safetensors.torch import load_file
    from torch import nn
    import peers
except ImportError as e:
    skip(e)

TOP = pathlib.Path(os.environ.get("srcdir", pathlib.Path(__file__).parents[2])).resolve()
BUILD = pathlib.Path(os.environ.get("builddir", TOP / "build")).resolve()
HALF, WHOLE = 4, 10


def build(out):
    """As a user would, but for -O1, which is quicker. Only the libraries that are used: the pip package may be one for CUDA."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not compiler:
        skip("no C++ compiler")
    root = pathlib.Path(torch.__file__).parent
    done = run(*compiler.split(), "-std=c++17", "-O1", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f"-I{TOP / 'include'}",
               "-isystem", root / "include", "-isystem", root / "include/torch/csrc/api/include", TOP / "samples/libtorch_resume.cpp", "-o", out,
               f"-L{BUILD / '.libs'}", "-lckpt", f"-Wl,-rpath,{BUILD / '.libs'}", f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}",
               "-Wl,--allow-shlib-undefined", "-ltorch_cpu", "-lc10", timeout=600)
    return check("samples/libtorch_resume.cpp builds", done.returncode == 0, done.stderr)


def losses(text):
    """{step: (loss, its bits)} of what the trainer printed."""
    return {int(words[1]): (float(words[3]), words[4]) for words in (line.split() for line in text.splitlines()) if words[:1] == ["step"]}


def follow(what, program, straight, *arguments, first=HALF, close=None):
    """Runs from step `first` to the end; the losses are those of `straight`, by their bits or (close) nearly."""
    done = run(program, "--steps", WHOLE - first, *arguments)
    found = losses(done.stdout)
    wanted = {step: value for step, value in straight.items() if step > first}
    if close:
        good = found.keys() == wanted.keys() and all(abs(found[s][0] - wanted[s][0]) <= close * abs(wanted[s][0]) for s in wanted)
    else:
        good = found == wanted
    return check(what, done.returncode == 0 and good, f"{done.stderr} {found} {wanted}")


class Python:
    """The same network and optimizer in Python."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.net = peers.Net()
        self.opt = torch.optim.AdamW(peers.groups(self.net), lr=1e-2)

    def train(self, first, last):
        found = {}
        for step in range(first, last):
            self.opt.zero_grad()
            loss = self.net.loss(step)
            loss.backward()
            self.opt.step()
            found[step + 1] = (loss.item(), loss.item().hex())
        return found


def own_files(program, straight):
    """What it saves with us, and what it saved before: the same run, bit for bit."""
    done = run(program, "--steps", HALF, "--save", "own.safetensors", "--torch-save", "module.pt", "optimizer.pt")
    check("it saves", done.returncode == 0, done.stderr)
    follow("resumed from its own checkpoint", program, straight, "--resume", "own.safetensors")
    follow("resumed from what torch::save wrote", program, straight, "--resume", "module.pt", "optimizer.pt")
    done = run(program, "--steps", 1, "--resume", "module.pt", "module.pt")
    check("a module is no optimizer: refused", done.returncode == 1 and "libtorch_resume: " in done.stderr, done.stderr)


def archives(inspect, migrate):
    """torch::save's module, as torch.jit.load has it."""
    script = torch.jit.load("module.pt")
    own = {**dict(script.named_parameters()), **dict(script.named_buffers())}
    status, doc = ask(inspect, "list", "--json", "--checksum", "module.pt")
    said = {t["name"]: (t["dtype"], t["shape"], t["crc32"]) for t in doc.get("tensors", [])}
    check("list of torch::save's module", status == 0 and said == {k: (str(t.dtype)[6:], list(t.shape), crc(t)) for k, t in own.items()},
          doc.get("error") or said)
    status, doc = ask(inspect, "list", "--json", "optimizer.pt")
    moments = [t["name"].split(".")[-1] for t in doc.get("tensors", []) if t["dtype"] == "float32"]
    count = len(list(script.named_parameters()))
    check("list of torch::save's optimizer: two moments for each parameter", status == 0 and sorted(moments) == ["exp_avg"] * count + ["exp_avg_sq"] * count,
          doc.get("error") or moments)
    done = run(migrate, "--quiet", "--to", "safetensors", "--lossy", "module.pt", "module.safetensors")
    check("torch::save's module as safetensors", done.returncode == 0, done.stderr)
    found = load_file("module.safetensors")
    check("with the same tensors", found.keys() == own.keys() and all(torch.equal(found[k], own[k]) for k in own), sorted(found))
    python = Python(1)
    python.net.load_state_dict(found)
    check("which Python's module takes", all(torch.equal(t, own[k]) for k, t in python.net.state_dict().items()))
    done = run(migrate, "--quiet", "--to", "torch", "--weights-only", "--map-location", "cuda:1", "module.pt", "module-in-python.pt")
    check("torch::save's module as a state_dict", done.returncode == 0, done.stderr)
    python = Python(2)
    python.net.load_state_dict(torch.load("module-in-python.pt", map_location="cpu", weights_only=True))
    check("which Python's module takes too", all(torch.equal(t, own[k]) for k, t in python.net.state_dict().items()))


def optimizer_alone(migrate, straight):
    """torch::save's optimizer, without the module that would name its parameters: they are known by their positions."""
    done = run(migrate, "--quiet", "--verify", "--to", "torch", "optimizer.pt", "optimizer-in-python.pt")
    if not check("torch::save's optimizer alone becomes one of Python's", done.returncode == 0, done.stderr):
        return
    held = torch.load("optimizer-in-python.pt", weights_only=True)
    python = Python(1)
    sizes = [len(g["params"]) for g in python.opt.state_dict()["param_groups"]]
    check("with ids in the order of the groups", [len(g["params"]) for g in held["param_groups"]] == sizes and
          [i for g in held["param_groups"] for i in g["params"]] == list(held["state"]) == list(range(sum(sizes))), held["param_groups"])
    check("and steps as torch.optim counts them", all(torch.equal(s["step"], torch.tensor(float(HALF))) for s in held["state"].values()))
    python.net.load_state_dict(torch.load("module-in-python.pt", map_location="cpu", weights_only=True))
    python.opt.load_state_dict(held)
    found = python.train(HALF, WHOLE)
    check("Python goes on with it, within 1e-5", all(abs(found[s][0] - straight[s][0]) <= 1e-5 * straight[s][0] for s in found), f"{found} {straight}")


def to_python(program, migrate, straight):
    """Our file as a torch file: Python's optimizer goes on, and the C++ trainer resumes from it."""
    done = run(migrate, "--quiet", "--verify", "--to", "torch", "own.safetensors", "own.pt")
    if not check("its checkpoint becomes a torch file", done.returncode == 0, done.stderr):
        return
    held = torch.load("own.pt", weights_only=True)
    python = Python(1)
    python.net.load_state_dict(held["model"])
    python.opt.load_state_dict(held["optimizer"])
    check("with its step", held.get("step") == HALF, list(held))
    found = python.train(HALF, WHOLE)
    check("Python goes on, within 1e-5", all(abs(found[s][0] - straight[s][0]) <= 1e-5 * straight[s][0] for s in found), f"{found} {straight}")
    follow("and the trainer does, bit for bit", program, straight, "--resume", "own.pt")


def from_python(program, migrate):
    """A run that Python began, tagged as a GPU's."""
    python = Python(7)
    python.train(0, HALF)
    with claimed("cuda:0"):
        torch.save({"model": python.net.state_dict(), "optimizer": python.opt.state_dict(), "step": HALF}, "python.pt")
    straight = python.train(HALF, WHOLE)
    follow("Python's run goes on in C++, within 1e-5", program, straight, "--resume", "python.pt", "--map", "cpu", close=1e-5)
    done = run(program, "--steps", WHOLE - HALF, "--resume", "python.pt")
    check("two resumes are the same, bit for bit", done.returncode == 0 and losses(done.stdout) == losses(run(
        program, "--steps", WHOLE - HALF, "--resume", "python.pt").stdout), done.stderr)
    done = run(migrate, "--quiet", "python.pt", "python.safetensors")
    follow("and through ckpt-migrate", program, straight, "--resume", "python.safetensors", close=1e-5)
    torch.save({"model": python.net.state_dict(), "step": HALF}, "no-optimizer.pt")
    done = run(program, "--resume", "no-optimizer.pt")
    check("a file without the moments is refused, and says which", done.returncode == 1 and "exp_avg" in done.stderr, done.stderr)


def from_directory(program):
    """A run that accelerate began goes on in C++, out of its directory."""
    peer = peers.Accelerate(plain=True)
    with claimed("cuda:0"):
        peer.make("state")
    found, _ = peer.resume("state")
    straight = {peers.BEFORE + 1 + i: (loss, "") for i, loss in enumerate(found)}
    pathlib.Path("map.yaml").write_text("map: 1\nsource: {model: model.safetensors, optimizer: optimizer.bin, "
                                        "step: custom_checkpoint_0.pkl.step}\ndefault: cpu\n")
    for what, rules in ("", "cpu"), (", by a map that names the places", "map.yaml"):
        done = run(program, "--steps", len(found), "--resume", "state", "--map", rules)
        ours = losses(done.stdout)
        check(f"accelerate's run goes on in C++, within 1e-5{what}", done.returncode == 0 and ours.keys() == straight.keys() and
              all(abs(ours[s][0] - straight[s][0]) <= 1e-5 * straight[s][0] for s in straight), f"{done.stderr} {ours} {straight}")
    pathlib.Path("wrong.yaml").write_text("map: 1\nsource: {model: model.safetensors, optimizer: scheduler.bin}\ndefault: cpu\n")
    done = run(program, "--resume", "state", "--map", "wrong.yaml")
    check("a map that names the wrong place is refused", done.returncode == 1 and "scheduler.bin" in done.stderr, done.stderr)


def main():
    inspect, migrate = commands(__doc__, 2)
    print(f"libtorch {torch.__version__}, safetensors {safetensors.__version__}")
    with scratch() as folder:
        program = pathlib.Path(folder, "libtorch_resume")
        if build(program):
            done = run(program, "--steps", WHOLE)
            straight = losses(done.stdout)
            check("it trains", done.returncode == 0 and len(straight) == WHOLE and straight[WHOLE][0] < straight[1][0], done.stderr)
            for part, arguments in (own_files, (program, straight)), (archives, (inspect, migrate)), (optimizer_alone, (migrate, straight)), \
                    (to_python, (program, migrate, straight)), (from_python, (program, migrate)), (from_directory, (program,)):
                with section(part.__name__):
                    part(*arguments)
    finish()


if __name__ == "__main__":
    main()
