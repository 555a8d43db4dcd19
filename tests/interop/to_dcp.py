#!/usr/bin/env python3
"""ckpt-migrate --to dcp, read by torch.distributed.checkpoint in trainings of another number of ranks (gloo, 2 to 4).

Sources: a file of torch.save, ours made of it, a distributed checkpoint that FSDP2 saved on 4 ranks, one of FSDP2 and tensor parallel,
ZeRO stage 3 of DeepSpeed on 2 ranks. Each is written for 1, 3 and 4 ranks, and loaded by FSDP2, FSDP2 with tensor parallel, HSDP, tensor
parallel alone, DDP: dcp.load, then set_state_dict. Ten steps on, the losses are those of the peer's own way, to the bit: its own load of
the same distributed checkpoint, or set_state_dict with the whole state (full_state_dict=True). And they are near those of the run that
went on. The weights alone, in safetensors (--to dcp-hf), are loaded by HuggingFaceStorageReader. What is written is what the source has (ckpt-inspect diff), and comes back as it was (--to torch).
FSDP1 refuses what is cut so that a parameter is empty on a rank, its own too, and loads what --to dcp-fsdp1 makes; so do FSDP2 and DDP.

usage: to_dcp.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]
"""
import os
import sys

import checks
from checks import ask, check, section

try:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    import torch.multiprocessing as mp
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.tensor import DTensor, init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
except ImportError as e:
    checks.skip(f"torch with FSDP2 is not installed ({e})")
try:
    os.environ.update(DS_ACCELERATOR="cpu", DS_SKIP_CUDA_CHECK="1")
    import deepspeed
except ImportError as e:
    deepspeed = None
    print(f"DeepSpeed is not run: {e}")

INSPECT, MIGRATE = checks.commands(__doc__, 2)
STEPS, AFTER, WIDTH = 3, 10, 9
CASES = {"fsdp2": (2, 3, 4), "hsdp": (4,), "fsdp2-tp": (4,), "tp": (2,), "ddp": (2,)}   # and their worlds


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(WIDTH + 3, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 2 * WIDTH + 2), torch.nn.Linear(2 * WIDTH + 2, WIDTH, bias=False)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.frozen = torch.nn.Parameter(torch.full((WIDTH,), 0.25), requires_grad=False)
        self.register_buffer("seen", torch.arange(3))

    def forward(self, x):
        return self.norm(self.down(torch.tanh(self.up(self.embed(x)))) + self.frozen) * self.scale


def made():
    torch.manual_seed(7)
    return Net()


def optimizer_of(net):
    """Two groups, as trainers have them, and a rate that falls."""
    own = [(n.split(".")[-1 if "norm" not in n else -2], p) for n, p in net.named_parameters() if p.requires_grad]     # FSDP1 has flat ones
    groups = [dict(params=[p for n, p in own if n == "weight"], weight_decay=0.1), dict(params=[p for n, p in own if n != "weight"], weight_decay=0.0)]
    opt = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 0.9 ** step)


def step_on(net, opt, schedule, step, call=None):
    """All ranks see the same data, so the loss does not depend on how many there are."""
    x = torch.arange(5).mul(3).add(step * 2).remainder(WIDTH + 3)
    loss = (net(x) - torch.sin(x.float())[:, None]).square().mean()
    if call:
        call.backward(loss)
        call.step()
    else:
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
    loss = loss.detach()
    return (loss.full_tensor() if isinstance(loss, DTensor) else loss).item()


def wrapped(case):
    world, net = dist.get_world_size(), made()
    if case == "ddp":
        return torch.nn.parallel.DistributedDataParallel(net)
    if case == "fsdp1":
        return FullyShardedDataParallel(net, use_orig_params=True, device_id=torch.device("cpu"))
    mesh = None
    if case in ("tp", "fsdp2-tp"):
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(net, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        if case == "tp":
            return net
        mesh = mesh["dp"]
    elif case == "hsdp":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    mesh = mesh or init_device_mesh("cpu", (world,))
    for module in (net.up, net.down, net):
        fully_shard(module, mesh=mesh)
    return net


# ---------------------------------------------------------------- the sources

def state_of(net, opt, schedule):
    model, optimizer = get_state_dict(net, opt)
    return {"model": model, "optimizer": optimizer, "scheduler": schedule.state_dict(), "step": STEPS}


def run_alone():
    """The file, and the losses of the run that goes on."""
    net = made()
    opt, schedule = optimizer_of(net)
    for step in range(STEPS):
        step_on(net, opt, schedule, step)
    torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "scheduler": schedule.state_dict(), "step": STEPS}, "alone.pt")
    return [step_on(net, opt, schedule, step) for step in range(STEPS, STEPS + AFTER)]


def save_dcp(case):
    net = wrapped(case)
    opt, schedule = optimizer_of(net)
    for step in range(STEPS):
        step_on(net, opt, schedule, step)
    dcp.save(state_of(net, opt, schedule), checkpoint_id=f"{case}-dcp")


def save_zero(world):
    net = made()
    opt, _ = optimizer_of(net)
    config = dict(train_micro_batch_size_per_gpu=1, zero_allow_untested_optimizer=True, zero_force_ds_cpu_optimizer=False,
                  steps_per_print=10 ** 9, gradient_clipping=0.0, zero_optimization=dict(stage=3))
    engine, *_ = deepspeed.initialize(model=net, optimizer=opt, config=config)
    for step in range(STEPS):
        step_on(engine, None, None, step, engine)
    engine.save_checkpoint("zero")
    losses = [step_on(engine, None, None, step, engine) for step in range(STEPS, STEPS + AFTER)]
    if dist.get_rank() == 0:
        torch.save(losses, "zero.losses")


def save_rounded(world):
    """ZeRO stage 2 in bfloat16: the weights are rounded from masters."""
    net = made()
    opt, _ = optimizer_of(net)
    config = dict(train_micro_batch_size_per_gpu=1, zero_allow_untested_optimizer=True, zero_force_ds_cpu_optimizer=False, bf16=dict(enabled=True),
                  steps_per_print=10 ** 9, zero_optimization=dict(stage=2))
    engine, *_ = deepspeed.initialize(model=net, optimizer=opt, config=config)
    for _ in range(STEPS):
        engine.backward(engine(torch.arange(5)).float().square().mean())
        engine.step()
    engine.save_checkpoint("rounded")


def masters():
    """They are the weights of the distributed checkpoint, and in none of its states."""
    done = checks.run(MIGRATE, "--to", "dcp", "--verify", "rounded", "rounded-dcp")
    check("masters: said, and read back", done.returncode == 0 and "weights-from-masters" in done.stdout, done.stdout + done.stderr)
    was = {t["name"]: t["crc32"] for t in ask(INSPECT, "list", "--json", "--checksum", "rounded")[1].get("tensors", [])}
    got = {t["name"]: t["crc32"] for t in ask(INSPECT, "list", "--json", "--checksum", "rounded-dcp")[1].get("tensors", [])}
    want = {n[len("optimizer."):-len(".fp32")]: c for n, c in was.items() if n.endswith(".fp32")}
    check("masters: each is a weight", len(want) == 7 and all(got.get(f"model.{n}") == c for n, c in want.items()), (want, got))
    check("masters: in no state", not [n for n in got if n.endswith((".fp32", ".master"))], list(got))


# ---------------------------------------------------------------- the loads

def constant(source):
    """DeepSpeed had no schedule: neither has the training that goes on."""
    return source == "zero"


def go_on(net, opt, schedule, source):
    still = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1.0) if constant(source) else schedule
    return [step_on(net, opt, still, step) for step in range(STEPS, STEPS + AFTER)]


def by_dcp(case, folder, source, planner=None):
    net = wrapped(case)
    opt, schedule = optimizer_of(net)
    state = state_of(net, opt, schedule)
    if constant(source):
        for group in state["optimizer"]["param_groups"]:
            group.pop("initial_lr", None)
        del state["scheduler"], state["step"]
    dcp.load(state, checkpoint_id=folder, planner=planner)
    set_state_dict(net, opt, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    if not constant(source):
        schedule.load_state_dict(state["scheduler"])
    return go_on(net, opt, schedule, source)


def by_dcp_in_part(case, folder, source):
    """Refused as it is; with what the warning advises the program keeps its own settings, and goes on as if they had been there."""
    try:
        by_dcp(case, folder, source)
        return "it was loaded"
    except BaseException as e:                  # CheckpointException is no Exception
        if "Missing key" not in str(e):
            raise
    return by_dcp(case, folder, source, planner=DefaultLoadPlanner(allow_partial_load=True))


def by_whole_state(case, file, source):
    """torch's own way from one file to any number of ranks: the state by names, taken from a model that is not divided."""
    held = torch.load(file, weights_only=True)
    plain = made()
    plain_opt, _ = optimizer_of(plain)
    plain.load_state_dict(held["model"] if "model" in held else held["net"])
    optimizer = held["optimizer"] if "optimizer" in held else held["opt"]
    plain_opt.load_state_dict({"state": optimizer["state"], "param_groups": [{k: v for k, v in g.items() if k != "param_names"} for g in optimizer["param_groups"]]})
    model, optim = get_state_dict(plain, plain_opt)
    net = wrapped(case)
    opt, schedule = optimizer_of(net)
    get_state_dict(net, opt)
    set_state_dict(net, opt, model_state_dict=model, optim_state_dict=optim, options=StateDictOptions(full_state_dict=True))
    if not constant(source):
        schedule.load_state_dict(held["scheduler"])
    return go_on(net, opt, schedule, source)


def by_safetensors(case, folder, source):
    """The model alone: which of its tensors are not as the file of torch has them."""
    net, held = wrapped(case), torch.load("alone.pt", weights_only=True)["net"]
    model, _ = get_state_dict(net, ())
    for t in model.values():
        (t.to_local() if isinstance(t, DTensor) else t).detach().zero_()
    dcp.load(model, storage_reader=HuggingFaceStorageReader(folder))
    return [n for n, t in model.items() if not torch.equal(t.full_tensor() if isinstance(t, DTensor) else t, held[n])] + sorted(held.keys() ^ model.keys())


def load_all(jobs, out):
    told = {}
    for name, how, case, path, source in jobs:
        try:
            told[name] = {"dcp": by_dcp, "whole": by_whole_state, "safetensors": by_safetensors, "less": by_dcp_in_part}[how](case, path, source)
        except BaseException as e:
            told[name] = f"{type(e).__name__}: {e}"
    if dist.get_rank() == 0:
        torch.save(told, out)


def one_rank(rank, world, port, what, *args):
    with open(os.devnull, "w") as quiet:
        "-v" in sys.argv or (os.dup2(quiet.fileno(), 1), os.dup2(quiet.fileno(), 2))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    if what in (save_zero, save_rounded):
        deepspeed.init_distributed("gloo", rank=rank, world_size=world)
    else:
        dist.init_process_group("gloo", rank=rank, world_size=world)
    what(*args)
    dist.barrier()
    dist.destroy_process_group()


def ranks(world, what, *args):
    mp.start_processes(one_rank, (world, checks.free_port(), what, *args), nprocs=world, start_method="fork")


# ---------------------------------------------------------------- the checks

def written(source, path, world):
    """What --to dcp makes of it holds what it holds."""
    out = f"{source}-{world}"
    done = checks.run(MIGRATE, "--to", "dcp", "--world", world, "--verify", path, out)
    what = f"{source} for {world}"
    if not check(f"{what}: written and read back", done.returncode == 0, done.stderr):
        return None
    files = {f for f in os.listdir(out) if f.endswith(".distcp")}
    check(f"{what}: a file a rank", files == {f"__{r}_0.distcp" for r in range(world)}, files)
    status, doc = ask(INSPECT, "verify", "--json", out)
    check(f"{what}: verified", status == 0 and doc["ok"], doc)
    status, doc = ask(INSPECT, "diff", "--json", path, out)
    other = [t for t in doc.get("tensors", []) if t["status"] not in ("same", "second-name") and not t["name"].endswith(".fp32")]   # they are the weights
    check(f"{what}: the same tensors", status in (0, 1) and not other, other[:3])
    changed = [v for v in doc.get("scalars", []) if ".params." not in v["name"] and "param_names" not in v["name"]]
    check(f"{what}: the same values", not changed, changed[:3])
    dcp_to_torch_save(out, f"{out}.peer.pt")
    done = checks.run(MIGRATE, "--to", "torch", out, f"{out}.pt")
    peer, ours = torch.load(f"{out}.peer.pt", weights_only=True), torch.load(f"{out}.pt", weights_only=True) if done.returncode == 0 else {}
    check(f"{what}: torch's converter and ours agree", ours and {k: checks.crc(t.reshape(-1)) for k, t in peer["model"].items()} ==
          {k: checks.crc(t.reshape(-1)) for k, t in ours["model"].items()}, done.stderr)
    return out


def near(a, b, bound=5e-5):
    return isinstance(a, list) and len(a) == len(b) and all(abs(x - y) <= bound * max(abs(y), 1e-3) for x, y in zip(a, b))


def rates_as_tensors():
    """lr as a tensor: a setting of a group, for whoever resumes."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    def trained(lr, steps):
        torch.manual_seed(3)
        net = torch.nn.Linear(5, 3)
        opt = torch.optim.AdamW([dict(params=[("weight", net.weight)], lr=torch.tensor(lr)), dict(params=[("bias", net.bias)], lr=torch.tensor(2 * lr))])
        for _ in range(steps):
            net(torch.ones(2, 5)).square().sum().backward()
            opt.step()
            opt.zero_grad()
        return net, opt
    net, opt = trained(0.125, 2)
    torch.save(dict(model=net.state_dict(), optimizer=opt.state_dict(), scheduler=dict(last_epoch=2, base_lrs=[0.125, 0.25])), "rates.pt")
    fresh, its = trained(0.5, 1)
    model, state = get_state_dict(fresh, its)
    done = checks.run(MIGRATE, "--verify", "--to", "dcp", "rates.pt", "rates")
    check("lr as a tensor: to dcp", done.returncode == 0, done.stderr)
    dcp.load(dict(model=model, optimizer=state), checkpoint_id="rates", no_dist=True)
    set_state_dict(fresh, its, model_state_dict=model, optim_state_dict=state)
    check("lr as a tensor: dcp.load has it", [g["lr"].item() for g in its.param_groups] == [0.125, 0.25], its.param_groups)
    for to, name in (("hf-trainer", "optimizer.pt"), ("accelerate", "optimizer.bin")):
        done = checks.run(MIGRATE, "--verify", "--to", to, "rates.pt", f"rates-{to}")
        check(f"lr as a tensor: --to {to}", done.returncode == 0, done.stderr)
        groups = torch.load(f"rates-{to}/{name}", weights_only=True)["param_groups"]
        check(f"lr as a tensor: {name} has it", [g["lr"].item() for g in groups] == [0.125, 0.25], groups)
    done = checks.run(MIGRATE, "--to", "torchtitan", "rates.pt", "rates-titan")
    check("lr as a tensor: torchtitan has a number of it", done.returncode == 2 and "'lr' of a group of the optimizer is a tensor" in done.stderr, done.stderr)


def all_of_it():
    alone = run_alone()
    with section("lr as a tensor"):
        rates_as_tensors()
    ranks(4, save_dcp, "fsdp2")
    ranks(4, save_dcp, "fsdp2-tp")
    sources = {"alone": "alone.pt", "fsdp2": "fsdp2-dcp", "fsdp2-tp": "fsdp2-tp-dcp"}
    truth = dict.fromkeys(sources, alone)
    checks.run(MIGRATE, "--to", "ckpt", "alone.pt", "ours.ckpt")
    sources["ours"], truth["ours"] = "ours.ckpt", alone
    if deepspeed:
        with section("ZeRO stage 3"):
            ranks(2, save_zero, 2)
            sources["zero"], truth["zero"] = "zero", torch.load("zero.losses")
            done = checks.run(MIGRATE, "--to", "torch", "zero", "zero.pt")
            check("zero: as one file", done.returncode == 0, done.stderr)
        with section("masters"):
            ranks(2, save_rounded, 2)
            masters()
    folders = {(s, w): written(s, path, w) for s, path in sources.items() for w in (1, 3, 4)}
    whole = {"alone": "alone.pt", "ours": "alone.pt", "zero": "zero.pt"}
    jobs = {}
    for case, worlds in CASES.items():
        for world in worlds:
            for source in sources:
                cut = {2: 3, 3: 4, 4: 1}[world]
                if folders[source, cut]:
                    jobs.setdefault(world, []).append((f"{source} -> {case} of {world}", "dcp", case, folders[source, cut], source))
                peer = ("whole", whole[source]) if source in whole else ("dcp", sources[source])
                jobs[world].append((f"{source} -> {case} of {world}, the peer's way", peer[0], case, peer[1], source))
    held = torch.load("alone.pt", weights_only=True)
    for group in held["opt"]["param_groups"]:
        for key in ("foreach", "fused", "decoupled_weight_decay"):
            del group[key]
    torch.save(held, "less.pt")
    done = checks.run(MIGRATE, "--to", "dcp", "less.pt", "less-1")
    check("groups that lack settings: said", done.returncode == 0 and "groups-lack" in done.stderr and "foreach, fused, decoupled_weight_decay" in done.stderr, done.stderr)
    jobs.setdefault(2, []).append(("groups that lack settings -> fsdp2 of 2", "less", "fsdp2", "less-1", "less"))
    for file in ("alone", "less"):
        done = checks.run(MIGRATE, "--to", "dcp-fsdp1", "--world", 2, "--verify", f"{file}.pt", f"{file}-fsdp1")
        check(f"{file}: --to dcp-fsdp1, whose groups may lack flags", done.returncode == 0 and not done.stderr, done.stderr)
    dcp_to_torch_save("alone-fsdp1", "alone-fsdp1.peer.pt")
    peer, plain = torch.load("alone-fsdp1.peer.pt", weights_only=True), torch.load("alone-1.peer.pt", weights_only=True)
    for group in plain["optimizer"]["param_groups"]:        # a program that asks for its groups as one record takes all that they have
        check("dcp: its groups have the names under both keys", group.pop("param_names") == group["params"], group["params"])
    other = checks.differs(plain, peer)
    check("dcp-fsdp1: torch's converter makes the same of it", plain["model"] and plain["optimizer"]["state"] and not other, other[:4])
    status, doc = ask(INSPECT, "diff", "--json", "alone-1", "alone-fsdp1")
    check("dcp-fsdp1: nothing is there twice", status == 0, doc)
    for name, case, world, source in (("alone", "fsdp1", 3, "fsdp1"), ("alone", "fsdp2", 3, "fsdp2 of 3"), ("alone", "ddp", 2, "ddp of 2"), ("less", "fsdp2", 2, "fsdp2 of 2")):
        jobs[world].append((f"dcp-fsdp1 of {name} -> {case} of {world}", "dcp", case, f"{name}-fsdp1", source))
    jobs[3].append(("alone -> fsdp1 of 3", "dcp", "fsdp1", "alone-1", "refused"))
    for world in (1, 3):
        done = checks.run(MIGRATE, "--to", "dcp-hf", "--world", world, "--lossy", "--verify", "alone.pt", f"weights-{world}")
        check(f"weights for {world}: written and read back", done.returncode == 0, done.stderr)
        for case, ranks_of_it in (("fsdp2", 2), ("fsdp2-tp", 4)):
            jobs[ranks_of_it].append((f"weights for {world} -> {case} of {ranks_of_it}", "safetensors", case, f"weights-{world}", "weights"))
    for world, own in jobs.items():
        with section(f"{world} ranks"):
            ranks(world, load_all, own, f"{world}.told")
            told = torch.load(f"{world}.told")
            for name, *_, source in own:
                if source == "refused":
                    check(f"{name}: FSDP1 refuses an empty shard without the records of torch 2.3", isinstance(told[name], str) and "Missing key" in told[name], told[name])
                    continue
                if name.startswith("dcp-fsdp1"):
                    check(f"{name}: it goes on as it does from --to dcp", near(told[name], alone) if source == "fsdp1" else told[name] == told[f"alone -> {source}"], told[name])
                    continue
                if source == "less":
                    check(f"{name}: as if they had been there", told[name] == told["alone -> fsdp2 of 2"], told[name])
                    continue
                if source == "weights":
                    check(f"{name}: HuggingFaceStorageReader loads all of them", told[name] == [], told[name])
                    continue
                if name.endswith("way"):
                    continue
                peer = told[name + ", the peer's way"]
                check(f"{name}: {AFTER} losses as the peer's own way gives them", isinstance(told[name], list) and told[name] == peer, f"{told[name]}, and {peer}")
                check(f"{name}: near those of the run itself", near(told[name], truth[source]), f"{told[name]}, and {truth[source]}")


if __name__ == "__main__":
    with checks.scratch():
        all_of_it()
    checks.finish()
