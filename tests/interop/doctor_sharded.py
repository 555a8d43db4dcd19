#!/usr/bin/env python3
"""doctor against reality, for sharded checkpoints in another job: what it predicts, and what the real program does with the checkpoint
there. DeepSpeed (ZeRO 1 to 3, universal) and torch (FSDP2, tensor parallel, DCP, files of ranks), 1 to 4 ranks over gloo.

usage: doctor_sharded.py CKPT-INSPECT [-v]

A program resumes where it takes the next steps with the losses of the run that saved; it resumes differently where they are others; it
fails at the load where a rank raises, or where the load says that it loaded nothing. Each message of a program that doctor quotes
must be in what a rank raised. The last line counts."""
import contextlib
import datetime
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import warnings

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", DS_SKIP_CUDA_CHECK="1")

from checks import ask, check, commands, finish, free_port, scratch, section, skip

warnings.simplefilter("ignore")
try:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
except ImportError as e:
    skip(f"torch with FSDP2 is not installed ({e})")
try:
    with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        import deepspeed
except ImportError:
    deepspeed = None

torch.set_num_threads(1)
STEPS = 3


class Net(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        self.embed, self.norm = torch.nn.Embedding(12, 9), torch.nn.LayerNorm(9)
        self.up, self.down, self.drop = torch.nn.Linear(9, 8), torch.nn.Linear(8, 9), torch.nn.Dropout(case.get("drop", 0.0))
        self.pos = torch.nn.Parameter(torch.arange(9.0), requires_grad=False) if case.get("frozen") else None
        if case.get("buffer"):
            self.register_buffer("shift", torch.zeros(9))

    def forward(self, x):
        x = self.embed(x) + (0 if self.pos is None else self.pos) + (self.shift if hasattr(self, "shift") else 0)
        return self.down(self.drop(torch.tanh(self.up(self.norm(x)))))


def made(case):
    torch.manual_seed(7)
    net = Net(case)
    if case.get("buffer") and case["do"] == "save":
        net.shift += torch.arange(9.0)
    own = [p for p in net.parameters() if p.requires_grad]
    groups = [dict(params=[p for p in own if p.ndim > 1], weight_decay=0.3), dict(params=[p for p in own if p.ndim < 2], weight_decay=0.0)]
    mesh = case.get("mesh")
    if "stage" not in case:
        groups = own
    if mesh and "stage" not in case:
        mesh = init_device_mesh("cpu", tuple(mesh.values()), mesh_dim_names=tuple(mesh))
        if "tp" in case["mesh"]:
            parallelize_module(net, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        if "dp" in case["mesh"]:
            fully_shard(net, mesh=mesh["dp"])
        own = groups = list(net.parameters())
    return net, torch.optim.AdamW(own if case.get("groups") == 1 else groups, lr=1e-2)


def loss_of(net, step):
    loss = net(torch.arange(6) + step % 3).float().square().mean()
    return loss.full_tensor() if hasattr(loss, "full_tensor") else loss


def zero(case):
    """A case of DeepSpeed: saved, or loaded, and the next losses."""
    settings = dict(train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=1, zero_allow_untested_optimizer=True,
                    zero_force_ds_cpu_optimizer=False, steps_per_print=10 ** 9, zero_optimization=dict(stage=case["stage"]))
    if case.get("universal"):
        settings["checkpoint"] = dict(load_universal=True)
    net, opt = made(case)
    engine, *_ = deepspeed.initialize(model=net, optimizer=opt, config=settings)
    if case["do"] == "load" and engine.load_checkpoint(case["path"])[0] is None:
        raise RuntimeError("load_checkpoint returns (None, None)")
    losses = []
    for step in range(0 if case["do"] == "save" else STEPS, 2 * STEPS):
        if step == STEPS and case["do"] == "save":
            engine.save_checkpoint(case["path"])
        loss = loss_of(engine, step)
        losses.append(loss.item())
        engine.backward(loss)
        engine.step()
    return losses[-STEPS:]


def sharded(case, rank, world):
    """The same of torch: DCP, or a file of each rank."""
    net, opt = made(case)
    path, name = case["path"], f"world_size_{world}_rank_{rank}.pt"
    torch.manual_seed(100 + (rank if case["do"] == "save" else 50))
    losses = []
    for step in range(0 if case["do"] == "save" else STEPS, 2 * STEPS):
        if step == STEPS:
            model, optimizer = get_state_dict(net, opt)
            held = {"model": model, "optimizer": optimizer, **({"rng": torch.get_rng_state()} if case.get("drop") else {})}
            if case["do"] == "save":
                dcp.save(held, checkpoint_id=f"{path}-dcp")
                os.makedirs(f"{path}-ranks", exist_ok=True)
                torch.save(model, f"{path}-ranks/model_{name}")
                torch.save(optimizer, f"{path}-ranks/optim_{name}")
            elif path.endswith("-dcp"):
                dcp.load(held, checkpoint_id=path)
            else:
                held = {key: torch.load(f"{path}/{kind}_world_size_{case['of']}_rank_{rank}.pt", weights_only=False)
                        for key, kind in (("model", "model"), ("optimizer", "optim"))}
            if case["do"] == "load":
                set_state_dict(net, opt, model_state_dict=held["model"], optim_state_dict=held["optimizer"])
                torch.set_rng_state(held.get("rng", torch.get_rng_state()))
        loss = loss_of(net, step)
        losses.append(loss.item())
        opt.zero_grad()
        loss.backward()
        opt.step()
    return losses[-STEPS:]


def rank_main(rank, world, port, cases, out):
    with open(os.devnull, "w") as quiet:
        os.dup2(quiet.fileno(), 1)
        os.dup2(quiet.fileno(), 2)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    wait = datetime.timedelta(seconds=30)
    if deepspeed:
        deepspeed.init_distributed("gloo", rank=rank, world_size=world, timeout=wait)
    else:
        dist.init_process_group("gloo", rank=rank, world_size=world, timeout=wait)
    seen = {}
    for case in cases:
        try:
            seen[case["name"]] = zero(case) if "stage" in case else sharded(case, rank, world)
        except BaseException as e:                  # what it raises is the answer; dcp's CheckpointException is no Exception
            seen[case["name"]] = f"{type(e).__name__}: {e}"
        with open(f"{out}.{rank}", "w") as f:
            json.dump(seen, f)
        dist.barrier()




def run(world, cases):
    """Of each case what every rank saw: losses, or what it raised."""
    context, out, port = multiprocessing.get_context("fork"), os.path.abspath("seen"), free_port()
    ranks = [context.Process(target=rank_main, args=(r, world, port, cases, out)) for r in range(world)]
    for p in ranks:
        p.start()
    for p in ranks:
        p.join(150)
        if p.is_alive():
            p.kill()
    seen = [json.load(open(f"{out}.{r}")) if os.path.exists(f"{out}.{r}") else {} for r in range(world)]
    for r in range(world):
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{out}.{r}")
    return {c["name"]: [s.get(c["name"], "it did not end") for s in seen] for c in cases}


def outcome(seen, before):
    """before: the losses of each rank of the run that saved."""
    if any(isinstance(s, str) for s in seen):
        return "fails-at-load"
    same = all(min(max(abs(a - b) for a, b in zip(s, own)) for own in before) <= 1e-6 for s in seen) and (
        len(seen) != len(before) or all(max(abs(a - b) for a, b in zip(s, own)) <= 1e-6 for s, own in zip(seen, before)))
    return "resumes" if same else "resumes-differently"


def quoted(finding):
    """The program's own words in a message, up to a "..."."""
    return [part.strip() for text in re.findall(r'\(("[^)]*")\)', finding["message"]) for part in re.findall(r'"([^"]*)"', text)
            for part in part.split("...")[:1] if len(part.strip()) > 12]


def compare(inspect, case, world, seen, before):
    what = f"{case['name']}, {world} ranks"
    mesh = ",".join(f"{k}={v}" for k, v in case.get("mesh", {}).items())
    asked = ["--mesh", mesh] if mesh else ["--world", world]
    status, doc = ask(inspect, "doctor", "--json", "--for", case["for"], *asked, case["path"])
    want = case.get("outcome") or outcome(seen, before)
    check(f"{what}: {want}", doc.get("outcome") == want, f"doctor: {doc.get('outcome')} {doc.get('findings')}; seen: {seen}")
    raised = " ".join(s for s in seen if isinstance(s, str))
    for f in doc.get("findings", []):
        if f["severity"] == "error" and "load_checkpoint returns" not in raised:
            said = quoted(f)
            check(f"{what}: {f['code']} quotes it", not said or any(q in raised for q in said), f"{said}, not {raised}")
    if case.get("code"):
        check(f"{what}: {case['code']}", any(f["code"] == case["code"] for f in doc.get("findings", [])), doc.get("findings"))


def deepspeeds(inspect):
    saves = [dict(do="save", name=f"zero{s}", stage=s, path=f"zero{s}") for s in (1, 2, 3)]
    saves += [dict(do="save", name="zero3-frozen", stage=3, path="zero3-frozen", frozen=True),
              dict(do="save", name="zero1-buffer", stage=1, path="zero1-buffer", buffer=True, groups=1)]
    for c in saves:
        c["path"] = os.path.abspath(c["path"])
    before = run(2, saves)
    code = "import runpy, sys; sys.argv[0] = 'x'; runpy.run_module('deepspeed.checkpoint.ds_to_universal', run_name='__main__')"
    for name in ("zero1", "zero3", "zero1-buffer"):
        done = subprocess.run([sys.executable, "-c", code, "--input_folder", f"{name}/global_step{STEPS}", "--output_folder",
                               f"{name}-universal/global_step{STEPS}_universal", "--num_extract_workers", "1", "--num_merge_workers", "1",
                               "--inject_missing_state"], capture_output=True, text=True)
        check(f"ds_to_universal of {name}", done.returncode == 0, done.stderr[-300:])
    shutil.copytree("zero1", "no-latest")
    os.remove("no-latest/latest")
    shutil.copytree("zero2", "wrong-latest")
    with open("wrong-latest/latest", "w") as f:
        f.write("global_step9")

    def load(name, stage, of=None, **more):
        return dict(do="load", name=f"{name} at stage {stage}", stage=stage, path=os.path.abspath(name), of=of or name, **{"for": "deepspeed", **more})
    universal = {"universal": True, "for": "universal"}
    here = [load("zero1", 1), load("zero2", 2), load("zero1", 2), load("zero2", 1), load("zero3", 3), load("zero3-frozen", 3, frozen=True),
            load("zero1-universal", 1, "zero1", **universal), load("zero3-universal", 3, "zero3", code="universal-incomplete", **universal),
            load("zero1-buffer-universal", 1, "zero1-buffer", buffer=True, groups=1, code="universal-incomplete", **universal),
            dict(load("zero1-universal", 1, "zero1"), name="universal without the flag"), dict(load("zero1", 1, **universal), name="the flag without universal"),
            load("no-latest", 1, "zero1", code="latest-missing"), load("wrong-latest", 2, "zero2", code="latest-missing")]
    there = [load("zero1", 1), load("zero2", 2), load("zero3", 3), load("zero3-frozen", 3, frozen=True), load("zero1-universal", 1, "zero1", **universal),
             load("zero3-universal", 3, "zero3", **universal)]
    for world, cases in ((2, here), (1, there), (3, there)):
        seen = run(world, cases)
        for c in cases:
            compare(inspect, c, world, seen[c["name"]], before[c["of"]])
    crossed = [load("zero1", 3), load("zero3", 2)]                  # doctor is not told the stage: it says so
    seen = run(2, crossed)
    for c in crossed:
        status, doc = ask(inspect, "doctor", "--json", "--for", "deepspeed", c["path"])
        check(f"{c['name']}: it fails, and the note says so", outcome(seen[c["name"]], before[c["of"]]) == "fails-at-load" and
              any(f["code"] == "resume-needs" and "stage 3 its own alone" in f["message"] for f in doc.get("findings", [])), f"{seen} {doc}")


def torches(inspect):
    saves = {2: [dict(do="save", name=n, mesh=m, path=os.path.abspath(n), **more) for n, m, more in
                 (("dp2", dict(dp=2), {}), ("tp2", dict(tp=2), {}), ("drop", dict(dp=2), dict(drop=0.2)))],
             4: [dict(do="save", name="dp2tp2", mesh=dict(dp=2, tp=2), path=os.path.abspath("dp2tp2"))]}
    before = {**run(2, saves[2]), **run(4, saves[4])}

    def load(of, kind, mesh, **more):
        return dict(do="load", name=f"{of}-{kind} as {mesh}", path=os.path.abspath(f"{of}-{kind}"), mesh=mesh, base=of, of=4 if "tp2" in of[1:] else 2,
                    **{"for": "dcp" if kind == "dcp" else "fsdp", **more})
    jobs = {1: [load("dp2", "dcp", dict(dp=1)), load("tp2", "dcp", {}), load("dp2", "ranks", dict(dp=1))],
            2: [load("dp2", "dcp", dict(dp=2)), load("dp2", "dcp", dict(tp=2)), load("dp2tp2", "dcp", dict(dp=2)), load("dp2", "ranks", dict(dp=2)),
                load("dp2", "ranks", dict(tp=2), code="mesh"), load("tp2", "ranks", dict(dp=2), code="mesh"), load("tp2", "ranks", dict(tp=2)),
                # doctor cannot see whether the ranks' states differed: it warns
                load("drop", "dcp", dict(dp=2), drop=0.2, outcome="resumes", code="once-per-rank")],
            3: [load("dp2", "dcp", dict(dp=3)), load("dp2", "ranks", dict(dp=3))],
            4: [load("dp2", "dcp", dict(dp=2, tp=2)), load("dp2tp2", "ranks", dict(dp=2, tp=2)), load("dp2tp2", "ranks", dict(dp=4), code="mesh"),
                load("dp2", "ranks", dict(dp=4))]}
    for world, cases in jobs.items():
        seen = run(world, cases)
        for c in cases:
            compare(inspect, c, world, seen[c["name"]], before[c["base"]])
            if c.get("drop"):
                check("one random state for all ranks: the losses are others", outcome(seen[c["name"]], before["drop"]) == "resumes-differently", seen)


def main():
    inspect, = commands(__doc__, 1)
    with scratch():
        with section("torch"):
            torches(inspect)
        if deepspeed:
            with section("DeepSpeed"):
                deepspeeds(inspect)
        else:
            print("not run DeepSpeed: it is not installed")
    finish()


if __name__ == "__main__":
    main()
