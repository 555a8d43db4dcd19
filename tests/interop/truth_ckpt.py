"""The situations of doctor_truth.py for ckpt_restore: truth_restore.c, a trainer in C, binds what the program has and restores
each file, on the CPU and on the devices of the stand-in for CUDA's driver.

Seen are: whether the restore succeeds, where each tensor lies then, and its bytes, by the next losses of an optimizer that
gets them. What a kernel of CUDA would make of the places is judged by its documented rule: moments with their parameter; a
fused or capturable step too, and capturable on a GPU alone; any other step is read on the host."""
import json
import os
import pathlib
import re
import subprocess

import torch
from safetensors.torch import load_file

import truth_program as program
from truth_tools import Row

BUILD = pathlib.Path(os.environ.get("builddir", pathlib.Path(__file__).parents[2] / "build")).resolve()
TOOL, DRIVER = BUILD / "tests/interop/truth_restore", BUILD / "tests/fakecuda/.libs"
ALSO = ("order-hypothesis", "unused-rule")                   # what the restore reports and goes on, doctor must say too
ROLES = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "max_exp_avg_sq": "max_exp_avg_sq", "momentum_buffer": "momentum", "step": "step"}
NUMBERS = ("mu_product", "eta", "mu")                        # which torch keeps on the host, and any device's kernels take
DTYPE = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16", torch.int64: "int64"}


def tags_of(file, layout):
    """(of the model's tensors by name, of the states by parameter and key): where the file says that they were."""
    tags = {}
    held = torch.load(file, map_location=lambda storage, tag: tags.setdefault(storage.data_ptr(), tag) and storage, weights_only=False)
    held = program.LAYOUTS[layout][1](held) if layout else held
    tag = lambda t: tags.get(t.untyped_storage().data_ptr(), "-") if torch.is_tensor(t) else "-"
    opt = held.get("optimizer", {"state": {}, "param_groups": []})
    ids = [i for g in opt["param_groups"] for i in g["params"]]
    return {n: tag(t) for n, t in held.get("model", {}).items()}, [{k: tag(t) for k, t in opt["state"].get(i, {}).items()} for i in ids]


def where_tagged(lines, groups, tags, devices):
    """The same lines with the program's own buffers, each where the file says that the tensor was (as the trainer that saved
    it had them), where there is such a device."""
    model, states = tags
    by_param = dict(zip([n for g in groups for n in g], states))
    exists = {"cpu", *(f"cuda:{i}" for i in range(devices))}
    for line in lines:
        if line[0] != "tensor":
            yield line
            continue
        _, _, name, param, key = line[:5]
        tag = model.get(name, "-") if param == "-" else by_param.get(param, {}).get(key, "-")
        yield ["tensor", tag if tag in exists else "-", *line[2:]]


def bindings(spec, scaler):
    """What the program has, as lines for truth_restore; and its parameters' names, group by group."""
    own, _, _ = program.make(torch, {**spec, "before": 4})
    names = [n for n, _ in program.network(torch, 1, "float32", spec.get("net")).named_parameters()]
    order = [n for n, _ in program.ordered([(n, None) for n in names], spec)]
    order = [n for n in order if not spec.get("frozen") or not n.startswith(spec["frozen"])]
    if spec.get("groups", 1) == 2:
        order = [n for n in order if own["model"][n].dim() > 1] + [n for n in order if own["model"][n].dim() < 2]
    lines = [["tensor", "-", n, "-", "-", "param" if n in names else "buffer", DTYPE[t.dtype], *t.shape] for n, t in own["model"].items()
             if n in names or not any(t.data_ptr() == own["model"][k].data_ptr() for k in names)]
    groups, at = [], 0
    for number, g in enumerate(own["optimizer"]["param_groups"]):
        here = order[at:at + len(g["params"])]
        at += len(here)
        groups.append(here)
        lines.append(["group", number, *here])
        hypers = [k for k in g if k not in ("params", "initial_lr") and type(g[k]) in (int, float, tuple)]
        lines += [["hyper", k] for key in hypers for k in ([key] if type(g[key]) is not tuple else [f"{key}.{i}" for i, v in enumerate(g[key]) if v is not None])]
        for name, i in zip(here, g["params"]):
            for key, t in own["optimizer"]["state"].get(i, {}).items():
                dtype = spec.get("moments", DTYPE[t.dtype]) if key in ("exp_avg", "exp_avg_sq") else DTYPE[t.dtype]
                lines.append(["tensor", "-", "-", name, key, ROLES.get(key, "optim"), dtype, *t.shape])
    if scaler:
        lines.append(["scaler", "scaler"])
    if spec.get("rng"):
        lines.append(["tensor", "-", "rng.torch", "-", "-", "rng", "uint8", 5056])
    return lines, groups


def ask(jobs, devices):
    """What truth_restore answers to each; where it ended, that it ended."""
    lines = ["\t".join(str(word) for word in line) for job in jobs for line in job]
    paths = os.pathsep.join([str(DRIVER), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    done = subprocess.run([str(TOOL)], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=600,
                          env={**os.environ, "FAKECUDA_DEVICES": str(devices), "FAKECUDA_MEMORY": "16M", "LD_LIBRARY_PATH": paths})
    numbers = lambda line: re.sub(r"(?<=[ :,\[])-?nan\b", "NaN", re.sub(r"(?<=[ :,\[])(-?)inf\b", r"\1Infinity", line))      # as C writes them
    answers = [json.loads(numbers(line)) for line in done.stdout.splitlines()]
    if done.returncode and len(answers) == len(jobs):
        raise RuntimeError(f"truth_restore ended with status {done.returncode}: {done.stderr[-300:]}")
    return answers + [{"ended": f"truth_restore ended with status {done.returncode}: {done.stderr[-300:]}"}] * (len(jobs) - len(answers))


def next_losses(spec, groups, answer, file):
    """Those of torch, with what was restored: the parameters, the state by its names, the hyper-parameters."""
    held = load_file(file)
    net = program.network(torch, 2, spec.get("dtype", "float32"), spec.get("net"))
    opt = program.construct(torch, net.named_parameters(), spec)
    net.load_state_dict({n: held.get(n, net.state_dict()[n]) for n in net.state_dict()} | ({"out.weight": held["fc1.weight"]} if spec.get("net") == "tied" else {}))
    by_name = dict(net.named_parameters())
    for here, group, values in zip(groups, opt.param_groups, answer["groups"], strict=True):
        for key, value in values.items():
            if "." not in key:
                group[key] = value
        if "betas.0" in values:
            group["betas"] = (values["betas.0"], values["betas.1"])
        for name in here:
            state = {k[len(f"optimizer.{name}."):]: t for k, t in held.items() if k.startswith(f"optimizer.{name}.")}
            if state:                                         # torch.optim, which takes the steps here, mixes no dtypes
                opt.state[by_name[name]] = {k: t if k == "step" else t.to(by_name[name].dtype) for k, t in state.items()}
    scaler = program.grad_scaler(torch, spec, spec.get("amp") == "on")
    if scaler:
        scaler.load_state_dict({**scaler.state_dict(), "scale": answer["scale"]} if scaler.is_enabled() else {})
    return program.train(torch, net, opt, scaler, None, program.BEFORE, program.AFTER)


def flags_of(held, kind):
    """fused, capturable: as the program says, else as the file's groups do."""
    if kind:
        return kind == "fused", kind == "capturable"
    groups = held.get("optimizer", {}).get("param_groups", [])
    return any(g.get("fused") for g in groups), any(g.get("capturable") for g in groups)


def by_the_rules(places, groups, fused, capturable):
    """(fails, why): what kernels make of where things are."""
    slow = None
    homes = {places[n] for group in groups for n in group}
    if "cpu" in homes and len(homes) > 1:
        return True, f"the parameters are on {sorted(homes)}, and forward mixes them"
    for name in (n for group in groups for n in group):
        mine = {k[len(f"optimizer.{name}."):]: d for k, d in places.items() if k.startswith(f"optimizer.{name}.")}
        home, step = places[name], mine.pop("step", None)
        if any(d != home for k, d in mine.items() if d != "cpu" or k not in NUMBERS):
            return True, f"state of {name} is on {mine}, the parameter on {home}"
        if (fused or capturable) and step not in (None, home):
            return True, f"step of {name} is on {step}, the parameter on {home}"
        if capturable and step and home == "cpu":
            return True, f"capturable, and {name} is on the cpu"
        if not fused and not capturable and step and step != "cpu":
            slow = f"step of {name} is on {step}, and is read on the host"
    return False, slow


def judged(job, answer):
    if "ended" in answer:
        return {"outcome": "ended", "why": [answer["ended"]]}
    spec, held, groups = job["spec"], job["held"], job["groups"]
    if answer["status"] < 0:
        return {"outcome": "fails-at-load", "why": [answer["message"]]}
    fails, why = by_the_rules(answer["tensors"], groups, *flags_of(held, job["kind"]))
    if fails:
        return {"outcome": "fails-at-step", "why": [why]}
    why = [why] if why else []
    if not spec.get("schedule"):                              # a scheduler is the program's own
        try:
            losses = next_losses(spec, groups, answer, job["out"])
        except (ArithmeticError, RuntimeError) as e:          # Python raises where C goes on with NaN
            return {"outcome": "resumes-differently", "why": [*why, f"the next step: {e}"]}
        close = 5e-3 if {"dtype", "moments"} & spec.keys() else 1e-5    # the file's moments are not quite those of the run
        if not all(abs(a - b) <= close * max(1, abs(b)) for a, b in zip(losses, job["wanted"], strict=True)):
            why.append(f"the next losses are {losses}, without a break {job['wanted']}")
    return {"outcome": "resumes-differently" if why else "resumes", "why": why}


def variants(s):
    """(the program beside make, what doctor is told) for each way in which a plain torch.load of today meets the file."""
    found = []
    for case in s["cases"]:
        told, more = [], case["doctor"]
        told += more[more.index("--param-names"):][:2] if "--param-names" in more else []
        told += ["--amp"] if "--amp" in more else []
        job = {k: v for k, v in case["job"].items() if k in ("order", "frozen", "moments", "amp", "dtype")}
        if case["column"] in ("new", "new-gpu") and (job, told) not in found:
            found.append((job, told))
    if s["make"].get("frozen"):                               # which the file cannot tell, and a program can
        found.append(({}, ["--param-names", "names-frozen"]))
    return found


def jobs_of(built):
    for number, (s, file, held, wanted, _) in enumerate(built):
        tagged, grid = s["tag"] is not None, s["name"].startswith("grid")
        places = [(None, 0), ("cpu", 0)] + [(None, 2), ("cuda:0", 1), ("cpu", 1), ("cuda:1", 2), ("cuda:*=cuda:1", 2)] * tagged + [("cuda:0", 1)] * (not tagged)
        if s["name"].startswith("holds "):
            places = places[:1]
        for job, told in variants(s):
            spec = {**s["make"], **job}
            lines, groups = bindings(spec, "--amp" in told)
            names = ["names", *pathlib.Path(told[told.index("--param-names") + 1]).read_text().split()] if "--param-names" in told else None
            tags = tags_of(file, s["make"].get("layout"))
            for where, devices in places:
                for kind in (None, "plain", "foreach", "fused", "capturable") if grid and devices == 1 else (None,):
                    out = os.path.abspath(f"restored-{number}-{len(told)}-{where or 'tag'}-{devices}-{kind}.safetensors".replace("*", "all").replace(":", ""))
                    asked = [*(lines if where else where_tagged(lines, groups, tags, devices)), *([names] if names else []), *([["map", where]] if where else []), *([["kind", kind]] if kind else []), ["go", os.path.abspath(file), out]]
                    doctor = ["--for", "ckpt", "--devices", f"cuda:{devices}" if devices else "cpu", *told, *(["--map-location", where] if where else []), *(["--optimizer", kind] if kind else [])]
                    yield {"name": s["name"], "file": file, "doctor": doctor, "devices": devices, "lines": asked, "spec": spec, "held": held, "groups": groups, "kind": kind, "out": out, "wanted": wanted}


def situations(only, built):
    if not TOOL.exists() or not list(DRIVER.glob("libcuda.so*")):
        return [Row("all of it", "ckpt", "", [], [], {}, f"{TOOL} or the stand-in for CUDA's driver is not built (make check)")]
    pathlib.Path("names-frozen").write_text("\n".join(n for n in program.SHAPES if not n.startswith("norm")) + "\n")
    jobs, rows = [j for j in jobs_of(built) if only in j["name"]], []
    for devices in sorted({j["devices"] for j in jobs}):
        some = [j for j in jobs if j["devices"] == devices]
        for job, answer in zip(some, ask([j["lines"] for j in some], devices)):
            said = {code for code, _ in answer.get("findings", []) if answer["status"] >= 0 and code in ALSO}
            rows.append(Row(job["name"], "ckpt-gpu" if devices else "ckpt", job["file"], job["doctor"], sorted(said), judged(job, answer), ""))
    return rows
