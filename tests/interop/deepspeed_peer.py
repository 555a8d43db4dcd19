#!/usr/bin/env python3
"""Checkpoints that DeepSpeed writes now, with ZeRO 1, 2 and 3, by 1 to 4 ranks over gloo, and what its ds_to_universal makes of them,
read by the commands: parameters, masters and moments are those of the live processes, byte for byte. What ckpt-migrate --to torch makes
is loaded by torch, and goes on as the live run does.

usage: deepspeed_peer.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]
"""
import contextlib
import os
import subprocess
import sys
import time

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", DS_SKIP_CUDA_CHECK="1")

import checks
from checks import ask, check, section

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        import deepspeed
        import logging
        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
except ImportError as e:
    checks.skip(f"deepspeed is not installed ({e})")

INSPECT, MIGRATE = checks.commands(__doc__, 2)
RESTORE = os.path.join(os.path.dirname(INSPECT), "../../tests/interop/restore_crc")
torch.set_num_threads(1)
STEPS = 3
KILLS = int(os.environ.get("DEEPSPEED_KILLS", 4))

CASES = {
    "zero1-fp32-2": dict(stage=1, world=2),
    "zero1-bf16-4": dict(stage=1, world=4, dtype="bf16"),
    "zero1-bf16-3-fp32-gradients": dict(stage=1, world=3, dtype="bf16", more=dict(data_types=dict(grad_accum_dtype="fp32"))),
    "zero2-fp32-1": dict(stage=2, world=1, frozen=True),
    "zero2-bf16-3-frozen": dict(stage=2, world=3, dtype="bf16", frozen=True, groups=1),
    "zero2-bf16-2-round-robin": dict(stage=2, world=2, dtype="bf16", zero=dict(round_robin_gradients=True)),
    "zero3-fp32-2": dict(stage=3, world=2, universal=True),
    "zero3-bf16-3-subgroups": dict(stage=3, world=3, dtype="bf16", frozen=True, zero=dict(sub_group_size=100)),
}


class Net(torch.nn.Module):
    def __init__(self, width, frozen):
        super().__init__()
        self.embed = torch.nn.Embedding(width + 3, width)
        self.up, self.down = torch.nn.Linear(width, 2 * width + 1), torch.nn.Linear(2 * width + 1, width, bias=False)
        self.norm = torch.nn.LayerNorm(width)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.pos = torch.nn.Parameter(torch.arange(float(width)), requires_grad=not frozen)
        self.register_buffer("seen", torch.arange(3))

    def forward(self, x):
        return self.down(torch.tanh(self.up(self.norm(self.embed(x) + self.pos)))) * self.scale


def made(case):
    torch.manual_seed(7)
    net = Net(9, case.get("frozen", False))
    own = [p for p in net.parameters() if p.requires_grad]
    groups = [dict(params=[p for p in own if p.ndim > 1], weight_decay=0.1), dict(params=[p for p in own if p.ndim < 2], weight_decay=0.0)]
    return net, torch.optim.AdamW(groups if case.get("groups", 2) == 2 else own, lr=1e-2, betas=(0.9, 0.95))


def loss_of(net, step, rank):
    return net(torch.arange(5) + (step + rank) % 3).float().square().mean()


def config(case):
    c = dict(train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=1, zero_allow_untested_optimizer=True,
             zero_force_ds_cpu_optimizer=False, steps_per_print=10 ** 9, zero_optimization=dict(stage=case["stage"], **case.get("zero", {})))
    if "dtype" in case:
        c[case["dtype"]] = dict(enabled=True)
    return dict(c, **case.get("more", {}))


def states(engine, p, stage):
    """The whole master and moments of one parameter, from the live processes."""
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    opt = engine.optimizer
    if stage == 3 or type(opt).__name__ == "BF16_Optimizer":
        return dict(fp32=safe_get_full_fp32_param(p), exp_avg=safe_get_full_optimizer_state(p, "exp_avg"),
                    exp_avg_sq=safe_get_full_optimizer_state(p, "exp_avg_sq"))
    g, k = next((g, k) for g, group in enumerate(opt.round_robin_bit16_groups) for k, q in enumerate(group) if q is p)
    begin, own, out = opt.round_robin_bit16_offsets[g][k], opt.single_partition_of_fp32_groups[g], {}
    for name, t in [("fp32", own), ("exp_avg", opt.optimizer.state[own]["exp_avg"]), ("exp_avg_sq", opt.optimizer.state[own]["exp_avg_sq"])]:
        parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, t.detach().contiguous())
        out[name] = torch.cat(parts)[begin:begin + p.numel()].view(p.shape).clone()
    return out


def rank_main(rank, world, case, folder):
    with open(os.devnull, "w") as quiet:
        os.dup2(quiet.fileno(), 1)
        os.dup2(quiet.fileno(), 2)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(case["port"]), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    deepspeed.init_distributed("gloo", rank=rank, world_size=world)
    net, opt = made(case)
    engine, *_ = deepspeed.initialize(model=net, optimizer=opt, config=config(case))
    for step in range(STEPS):
        engine.backward(loss_of(engine, step, rank))
        engine.step()
    truth = {}
    for name, p in net.named_parameters():
        with deepspeed.zero.GatheredParameters([p], enabled=case["stage"] == 3):
            truth[name] = p.detach().clone()
        if p.requires_grad:
            truth.update({f"optimizer.{name}.{k}": t for k, t in states(engine, p, case["stage"]).items()})
    truth["seen"] = net.seen
    engine.save_checkpoint(folder, client_state=dict(note="corpus", order=[[4, 1]]))
    after = []
    for step in range(STEPS, STEPS + 2):
        loss = loss_of(engine, step, rank)
        engine.backward(loss)
        engine.step()
        total = loss.detach().float().clone()
        dist.all_reduce(total)
        after.append((total / world).item())
    if rank == 0:
        torch.save(dict(truth=truth, after=after), folder + ".truth")
    dist.barrier()


def compare(what, path, truth, case, weights):
    status, doc = ask(INSPECT, "list", "--json", "--checksum", path)
    listed = {t["name"]: t for t in doc.get("tensors", [])}
    check(f"{what}: it is listed", status == 0, doc.get("error"))
    for name, t in truth.items():
        is_param = not name.startswith("optimizer.") and f"optimizer.{name}.fp32" in truth
        if is_param and not weights:
            t = truth[f"optimizer.{name}.fp32"]                     # stage 3 has no other weights
        got = listed.get(name, {})
        said = [str(t.dtype)[6:], list(t.shape), checks.crc(t)]
        check(f"{what}: {name}", [got.get("dtype"), got.get("shape"), got.get("crc32")] == said, f"{got}, not {said}")
    for command in ("verify", "show", "doctor"):
        status, doc = ask(INSPECT, command, "--json", path)
        left = "universal" in what and "seen" in truth              # a buffer, which load_universal does not load
        if command == "doctor" and left:
            said = [f["code"] for f in doc.get("findings", [])]
            check(f"{what}: doctor", status == 1 and doc.get("outcome") == "resumes-differently" and "universal-incomplete" in said, doc)
        else:
            check(f"{what}: {command}", status == 0, doc)
    done = checks.run(RESTORE, path)
    restored = {line.split("\t")[0]: line.split("\t")[2] for line in done.stdout.splitlines()}
    check(f"{what}: ckpt_restore gives a program in C the same", done.returncode == 0 and
          restored == {name: t["crc32"] for name, t in listed.items()}, done.stderr)


def goes_on(what, path, out, after, case):
    """A process alone, with the mean of all ranks' losses: the same losses as theirs, but for the order of sums."""
    done = checks.run(MIGRATE, "--to", "torch", "--verify", path, out)
    if not check(f"{what}: --to torch", done.returncode == 0, done.stderr):
        return
    saved = torch.load(out, weights_only=True)
    net, opt = made(case)
    net.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in saved["model"].items()})
    opt.load_state_dict(saved["optimizer"])
    names = {p: n for n, p in net.named_parameters()}
    order = [n for g in saved["optimizer"]["param_groups"] for n in g["param_names"]]
    check(f"{what}: the parameters have the optimizer's order", [names[p] for g in opt.param_groups for p in g["params"]] == order, order)
    with torch.no_grad():
        for i, (p, n) in enumerate((p, names[p]) for g in opt.param_groups for p in g["params"]):
            p.copy_(saved["optimizer"]["state"][i]["master"])
    losses = []
    for step in range(STEPS, STEPS + 2):
        loss = sum(loss_of(net, step, r) for r in range(case["world"])) / case["world"]
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    bound = 2e-2 if "dtype" in case else 1e-5                       # bf16 computes its losses in bf16
    check(f"{what}: it goes on as the run does", all(abs(a - b) <= bound * abs(b) for a, b in zip(losses, after)), f"{losses}, not {after}")


def to_universal(folder, out):
    code = "import runpy, sys; sys.argv[0] = 'x'; runpy.run_module('deepspeed.checkpoint.ds_to_universal', run_name='__main__')"
    return subprocess.run([sys.executable, "-c", code, "--input_folder", f"{folder}/global_step{STEPS}", "--output_folder", f"{out}/global_step{STEPS}_universal",
                           "--num_extract_workers", "1", "--num_merge_workers", "1", "--inject_missing_state"], capture_output=True, text=True)


def faults(what, folder):
    """Each rank's file of the optimizer is missed by name."""
    tag = f"{folder}/global_step{STEPS}"
    for name in sorted(n for n in os.listdir(tag) if n.endswith("_optim_states.pt")):
        os.rename(f"{tag}/{name}", f"{folder}.aside")
        status, doc = ask(INSPECT, "verify", "--json", folder)
        check(f"{what}: without {name}", status == 1 and any(name in (f.get("file") or "") or "_optim_states.pt is missing" in f["message"] for f in doc.get("findings", [])), doc)
        os.rename(f"{folder}.aside", f"{tag}/{name}")


def saves_on(rank, world, case, folder):
    """Saves again and again, until it is killed."""
    with open(os.devnull, "w") as quiet:
        os.dup2(quiet.fileno(), 1)
        os.dup2(quiet.fileno(), 2)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(case["port"]), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    deepspeed.init_distributed("gloo", rank=rank, world_size=world)
    net, opt = made(case)
    engine, *_ = deepspeed.initialize(model=net, optimizer=opt, config=config(case))
    for step in range(10000):
        engine.backward(loss_of(engine, step, rank))
        engine.step()
        engine.save_checkpoint(folder)


def is_whole(tag, case):
    """All files of all ranks are there, and torch reads each: told without the commands."""
    ranks = range(case["world"])
    models = [f"zero_pp_rank_{r}_mp_rank_00_model_states.pt" for r in ranks] if case["stage"] == 3 else ["mp_rank_00_model_states.pt"]
    try:
        for name in models + [f"zero_pp_rank_{r}_mp_rank_00_optim_states.pt" for r in ranks]:
            torch.load(os.path.join(tag, name), weights_only=False)
    except Exception:
        return False
    return True


def found(what, folder, case):
    """What the commands say of a directory of tags. Rank 0 writes `latest` once its own files are written, and waits for no other rank
    before: a tag that `latest` names can lack files of the others. True: some tag is not whole."""
    latest = open(f"{folder}/latest").read().strip()
    tags = sorted((n for n in os.listdir(folder) if n.startswith("global_step")), key=lambda n: int(n[11:]))
    whole = [t for t in tags if is_whole(f"{folder}/{t}", case)]
    named = latest in tags                          # it is empty where rank 0 was killed while it wrote the name
    taken = latest if named else whole[-1] if whole else tags[-1]
    status, doc = ask(INSPECT, "show", "--json", folder)
    if taken in whole:
        check(f"{what}: {taken} is read", status == 0 and doc.get("step") == int(taken[11:]), doc)
        codes = [f["code"] for f in doc.get("findings", [])]
        check(f"{what}: what is later is incomplete", ("incomplete-step" in codes) == (not named or tags[-1] != latest), f"{tags} {doc}")
    else:
        said = doc.get("error", {}).get("message", "")
        check(f"{what}: {taken}, which is not whole, is not read", status == 2 and taken in said, doc)
        check(f"{what}: the newest that is whole is named", not whole or f"{whole[-1]} is whole: give its folder" in said, doc)
    status, doc = ask(INSPECT, "verify", "--json", folder)
    check(f"{what}: verify says whether {taken} is whole", (status == 0) == (taken in whole), doc)
    for tag in tags[-3:]:
        status, doc = ask(INSPECT, "verify", "--json", f"{folder}/{tag}")
        check(f"{what}: verify says whether {tag} is whole", (status == 0) == (tag in whole), doc)
    return len(whole) < len(tags)


def lagging(what, folder, case):
    """Of rank 1, which is behind when `latest` is written: nothing, some or no bytes of its file; and a name that was not written."""
    latest = open(f"{folder}/latest").read().strip()
    path = f"{folder}/{latest}/zero_pp_rank_1_mp_rank_00_optim_states.pt"
    data = open(path, "rb").read()
    os.unlink(path)
    check(f"{what}: without the file of rank 1 it is not whole", found(f"{what}, no file", folder, case))
    for size in 0, 1, len(data) // 2, len(data) - 1:
        with open(path, "wb") as f:
            f.write(data[:size])
        check(f"{what}: {size} bytes of the file of rank 1 are not whole", found(f"{what}, {size} bytes", folder, case))
    open(f"{folder}/latest", "w").close()
    found(f"{what}, no name either", folder, case)
    with open(path, "wb") as f:
        f.write(data)
    found(f"{what}, no name", folder, case)


def killed(what, folder, case, wait):
    """SIGKILL in the middle of a save. True: it left a tag that is not whole."""
    started = mp.spawn(saves_on, (case["world"], case, folder), nprocs=case["world"], join=False)
    while not os.path.exists(f"{folder}/latest"):
        time.sleep(0.01)
    time.sleep(wait)
    for p in started.processes:
        p.kill()
    for p in started.processes:
        p.join()
    return found(what, folder, case)


def main():
    dead = 0
    with checks.scratch() as work:
        for number in range(KILLS):
            what, case = f"kill {number}", dict(stage=1 + number % 3, world=2, port=checks.free_port())
            with section(what):
                dead += killed(what, os.path.join(work, f"kill-{number}"), case, 0.11 + 0.037 * number)
        with section("a rank that is behind"):
            folder, case = os.path.join(work, "behind"), dict(stage=2, world=2, port=checks.free_port())
            killed("before a rank is behind", folder, case, 0.5)
            name = max((n for n in os.listdir(folder) if is_whole(f"{folder}/{n}", case)), key=lambda n: int(n[11:]))
            with open(f"{folder}/latest", "w") as f:
                f.write(name)
            lagging("a rank that is behind", folder, case)
        print(f"{dead} of {KILLS} kills left a step that was not finished")
        for number, (what, case) in enumerate(CASES.items()):
            with section(what):
                folder, case["port"] = os.path.join(work, what), checks.free_port()
                mp.spawn(rank_main, (case["world"], case, folder), nprocs=case["world"])
                told = torch.load(folder + ".truth")
                compare(what, folder, told["truth"], case, case["stage"] < 3)
                goes_on(what, folder, folder + ".pt", told["after"], case)
                faults(what, folder)
                if case.get("universal"):
                    out = folder + "-universal"
                    done = to_universal(folder, out)
                    if check(f"{what}: ds_to_universal", done.returncode == 0, done.stderr[-300:]):
                        compare(f"{what}, universal", out, told["truth"], case, case["stage"] < 3)
    checks.finish()


if __name__ == "__main__":
    main()
