"""The situations of doctor_truth.py for libtorch in C++: truth_libtorch.cpp loads each file and takes the next steps.

Python's files go through torch::pickle_load, and torch::load of each must fail (doctor: not-an-archive); what torch::save
wrote goes through torch::load. Built as a user would, against the libtorch inside the pip package. On the CPU alone: no
stand-in for a GPU lets C++ step, and a file tagged cuda is loaded without a map only to be refused."""
import collections
import json
import os
import pathlib
import shutil
import subprocess
import zipfile

import torch

import truth_program as program
from truth_tools import Row, tagged

# What libtorch has; the rest of torch.optim is Python's alone. No schedule: the program keeps the lr of the groups.
KINDS = ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad")
PLACES = {None: ("model", "optimizer"), "VAR": ("trainer/var_wo_ddp", "trainer/var_opt/optimizer"), "nanoGPT": ("model", "optimizer"), "timm": ("state_dict", "optimizer"),
          "fairseq": ("model", "last_optimizer_state"), "detectron2": ("model", "trainer/_trainer/optimizer"), "net, optim": ("net", "optim"), "a tuple": ("0", "1"),
          "two models, two optimizers": ("G", "opt_G"), "two models, one resized": ("G", "opt_G"),
          "a list of optimizers": ("state_dict", "optimizers/0"), "the optimizer alone": ("-", ""), "the weights alone": ("", "-")}


def build():
    """(the program, None) or (None, why not)."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if not compiler:
        return None, "no C++ compiler"
    source, root = pathlib.Path(__file__).parent / "truth_libtorch.cpp", pathlib.Path(torch.__file__).parent
    command = [*compiler.split(), "-std=c++20", "-O0", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", "-isystem", root / "include", "-isystem",
               root / "include/torch/csrc/api/include", source, "-o", "truth_libtorch", f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", "-Wl,--allow-shlib-undefined",
               "-ltorch_cpu", "-lc10"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"truth_libtorch.cpp does not build: {done.stderr[-600:]}")
    return os.path.abspath("truth_libtorch"), None


def ask(tool, jobs):
    """What the program answers to each; where it ended, that it ended."""
    lines = "".join("\t".join(f"{k}={v}" for k, v in job.items()) + "\n" for job in jobs)
    done = subprocess.run([tool], input=lines, capture_output=True, text=True, timeout=600)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return answers + [{"phase": "load", "error": f"the program ended with status {done.returncode}: {done.stderr[-300:]}", "ended": True}] * (len(jobs) - len(answers))


def told(spec):
    """The program, as it is told: see truth_libtorch.cpp."""
    hyper = spec.get("hyper", {"lr": 0.01})
    job = {"kind": spec.get("optimizer", "Adam"), "lr": hyper["lr"], "momentum": hyper.get("momentum", 0), "nesterov": int(hyper.get("nesterov", False)),
           "amsgrad": int(hyper.get("amsgrad", False)), "groups": spec.get("groups", 1), "order": spec.get("order", ""), "norm": spec.get("net", ""),
           "dtype": spec.get("dtype", ""), "wrap": spec.get("wrap", ""), "frozen": spec.get("frozen") or ""}
    return {k: v for k, v in job.items() if v != ""}


def runs_there(spec):
    return spec.get("optimizer", "Adam") in KINDS and spec.get("net") not in ("tied", "wide", "alone") and not spec.get("late") and not spec.get("schedule") and not spec.get("later_schedule")


def judged(answer, wanted, spec):
    """By what was seen alone, as truth_program.verdict()."""
    if answer.get("ended"):
        return {"outcome": "ended", "why": [answer["error"]]}
    if "error" in answer:
        return {"outcome": "fails-at-" + answer["phase"], "why": [answer["error"]]}
    why = []
    if answer["missing"] and spec.get("stateful", True):
        why.append(f"no state for {', '.join(answer['missing'])}")
    if not all(a is not None and abs(a - b) <= (5e-4 if spec.get("dtype") else 1e-4) * max(1, abs(b)) for a, b in zip(answer["losses"], wanted, strict=True)):
        why.append(f"the next losses are {answer['losses']}, without a break {wanted}")
    return {"outcome": "resumes-differently" if why else "resumes", "why": why}


def variants(s):
    """(the program beside make, what doctor is told) for each way in which a plain torch.load of today meets the file."""
    found = []
    for case in s["cases"]:
        names = "--param-names" in case["doctor"]
        job = {k: v for k, v in case["job"].items() if k in ("order", "wrap", "frozen", "take_optimizer", "stateful")}
        told_doctor = case["doctor"][:2] if names and case["doctor"][0] == "--param-names" else []
        if case["column"] == "new" and (job, told_doctor) not in found:
            found.append((job, told_doctor))
    return found or [({}, [])]


def of_python(built):
    """Files that torch.save wrote: as they are, and (for C++ builds no OrderedDict) with a plain dict as the model's."""
    for s, file, held, wanted, _ in built:
        layout = s["make"].get("layout")
        plain = {k: dict(v) if type(v) is collections.OrderedDict else v for k, v in held.items()}
        with tagged(s["tag"]):
            torch.save(program.LAYOUTS[layout][0](plain) if layout else plain, "plain-" + file)
        for job, doctor in variants(s):
            spec = {**s["make"], **job}
            if not runs_there(spec):
                continue
            model, state = PLACES[layout]
            state = state if spec.get("take_optimizer", True) else "-"
            for where in (None, "cpu") if s["tag"] else (None,):
                arguments = ["--for", "torch-cpp", "--devices", "cpu", *doctor, *(["--map-location", where] if where else [])]
                job = {**told(spec), "model": model, "state": state, **({"map": where} if where else {})}
                yield s["name"], file, arguments, {**job, "pickle": os.path.abspath(file)}, wanted, spec
                yield f"{s['name']}, a plain dict", "plain-" + file, arguments, {**job, "pickle": os.path.abspath("plain-" + file)}, wanted, spec


def of_other_writers():
    """What torch.save writes when it is asked for another form of it."""
    held, wanted, _ = program.make(torch, {})
    held["model"] = dict(held["model"])
    for what, how in [(f"pickle protocol {n}", {"pickle_protocol": n}) for n in (1, 2, 3, 4, 5)] + [("the form before torch 1.6", {"_use_new_zipfile_serialization": False})]:
        file = "as-" + what.replace(" ", "-") + ".pt"
        torch.save(held, file, **how)
        yield f"a plain dict, {what}", file, ["--for", "torch-cpp", "--devices", "cpu"], {**told({}), "model": "model", "state": "optimizer", "pickle": os.path.abspath(file)}, wanted, {}


def retagged(source, target, tag):
    """A copy whose storages say that they were on `tag`: a string of the pickle, which a GPU would have made so."""
    cpu = b"X\x03\x00\x00\x00cpu"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for item in old.infolist():
            data = old.read(item)
            if item.filename.endswith("/data.pkl"):
                assert cpu in data
                data = data.replace(cpu, b"X" + len(tag).to_bytes(4, "little") + tag.encode())
            new.writestr(item.filename, data)


def of_libtorch(tool):
    """Files that torch::save wrote."""
    for optimizer, hyper in ("Adam", {"lr": 0.01}), ("AdamW", {"lr": 0.01, "amsgrad": True}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("RMSprop", {"lr": 0.01, "momentum": 0.9}), \
            ("Adagrad", {"lr": 0.01}):
        spec = {"optimizer": optimizer, "hyper": hyper, "groups": 2, "net": "BatchNorm"}
        (made,) = ask(tool, [{**told(spec), "make": f"cpp-{optimizer}"}])
        if "error" in made:
            raise RuntimeError(f"torch::save in C++: {made['error']}")
        wanted, here = made["losses"], os.path.abspath(f"cpp-{optimizer}")
        name = f"of libtorch: {optimizer}"
        own, cpp = told(spec), ["--for", "torch-cpp", "--devices", "cpu"]
        yield f"{name}, both in one archive", f"{here}-both.pt", cpp, {**own, "both": f"{here}-both.pt"}, wanted, spec
        yield f"{name}, the module alone", f"{here}-module.pt", cpp, {**own, "module": f"{here}-module.pt"}, wanted, spec
        yield f"{name}, the optimizer, beside its module", f"{here}-optimizer.pt", cpp, {**own, "module": f"{here}-module.pt", "optimizer": f"{here}-optimizer.pt"}, wanted, spec
        if optimizer != "Adam":
            continue
        for tag in "cuda:0", "cuda:7", "tpu":
            retagged(f"{here}-both.pt", f"{here}-{tag}.pt", tag)
            yield f"{name}, tagged {tag}", f"{here}-{tag}.pt", cpp, {**own, "both": f"{here}-{tag}.pt"}, wanted, spec
            yield f"{name}, tagged {tag}", f"{here}-{tag}.pt", [*cpp, "--map-location", "cpu"], {**own, "both": f"{here}-{tag}.pt", "map": "cpu"}, wanted, spec


def situations(only, built):
    tool, why = build()
    if not tool:
        return [Row("all of it", "cpp", "", [], [], {}, why)]
    jobs = [j for j in [*of_python(built), *of_other_writers(), *of_libtorch(tool)] if only in j[0]]
    rows = []
    for (name, file, arguments, job, wanted, spec), answer in zip(jobs, ask(tool, [j[3] for j in jobs])):
        seen = judged(answer, wanted, spec)
        seen["absent"], codes = [], []
        if "torch_load" in answer:                            # an empty one: torch::load took it
            (codes if answer["torch_load"] else seen["absent"]).append("not-an-archive")
        rows.append(Row(name, "cpp", file, arguments, codes, dict(answer, **seen), ""))
    return rows
