#!/usr/bin/env python3
"""Live trainings over gloo, by 2 to 4 ranks: FSDP1 (whole, sharded and local state dicts; hybrid), FSDP2, HSDP, tensor parallel, both
together, and DDP. Each is saved by DCP, at once and in the background, and as a pickled file of each rank, as verl and others save. What
the commands list is what the live processes have, byte for byte: parameters, moments, steps and values. What ckpt-migrate --to torch
makes goes on in one process as the run does, and as what torch's own converter makes.

usage: fsdp_live.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]
"""
import copy
import json
import os
import random
import shutil
import signal
import sys
import time
import zlib

import checks
from checks import ask, check, section

try:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    import torch.multiprocessing as mp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, StateDictType, fully_shard
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from torch.distributed.tensor import DTensor, init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
except ImportError as e:
    checks.skip(f"torch with FSDP2 is not installed ({e})")

try:
    import transformers
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
except Exception as e:                          # it needs ray, tensordict and more
    FSDPCheckpointManager = None
    print(f"verl's own saver is not run: {type(e).__name__}: {e}")

INSPECT, MIGRATE = checks.commands(__doc__, 2)
RESTORE = os.path.join(os.path.dirname(INSPECT), "../../tests/interop/restore_crc")
STEPS, AFTER, WIDTH = 3, 3, 9
KILLS = int(os.environ.get("FSDP_KILLS", 3))

CASES = {                                       # name: (world, data parallel ranks)
    "fsdp1": (4, 4), "fsdp1-orig": (2, 2), "fsdp1-hybrid": (4, 4), "fsdp2": (4, 4), "fsdp2-uneven": (3, 3), "hsdp": (4, 4), "tp": (2, 1),
    "fsdp2-tp": (4, 2), "ddp": (2, 2),
}


# ---------------------------------------------------------------- the training

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = torch.nn.Embedding(width + 3, width)
        self.up, self.down = torch.nn.Linear(width, 2 * width + 2), torch.nn.Linear(2 * width + 2, width, bias=False)
        self.norm = torch.nn.LayerNorm(width)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.arange(3))

    def forward(self, x):
        return self.norm(self.down(torch.tanh(self.up(self.embed(x))))) * self.scale


def made():
    torch.manual_seed(7)
    return Net(WIDTH)


def optimizer_of(net):
    own = list(net.parameters())
    return torch.optim.AdamW([dict(params=own, weight_decay=0.1)], lr=1e-2, betas=(0.9, 0.95))


def loss_of(net, step, part):
    x = torch.arange(5).mul(3).add(step * 2 + part).remainder(WIDTH + 3)
    return (net(x) - torch.sin(x.float())[:, None]).square().mean()


def wrapped(case):
    """The model as that case trains it, and which part of the data this rank sees."""
    rank, world, net = dist.get_rank(), dist.get_world_size(), made()
    if case.startswith("fsdp1"):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")) if case == "fsdp1-hybrid" else None
        kind = ShardingStrategy.HYBRID_SHARD if mesh else ShardingStrategy.FULL_SHARD
        return FullyShardedDataParallel(net, device_id=torch.device("cpu"), use_orig_params=case != "fsdp1", sharding_strategy=kind, device_mesh=mesh,
                                        auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear})), rank
    if case == "ddp":
        return torch.nn.parallel.DistributedDataParallel(net), rank
    if case in ("tp", "fsdp2-tp"):
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(net, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        if case == "tp":
            return net, 0
        mesh, part = mesh["dp"], rank // 2
    else:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")) if case == "hsdp" else init_device_mesh("cpu", (world,))
        part = rank
    for module in (net.up, net.down, net):
        fully_shard(module, mesh=mesh)
    return net, part


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def flat(state, path=()):
    """(dotted name, value) of everything in nested dicts and lists."""
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, (list, tuple)) else None
    if items is None or len(state) == 0:
        yield ".".join(map(str, path)), state
        return
    for key, value in items:
        yield from flat(value, path + (key,))


def step_on(net, opt, step, part):
    loss = loss_of(net, step, part)
    opt.zero_grad()
    loss.backward()
    opt.step()
    total = whole(loss.detach()).clone()
    dist.all_reduce(total)
    return (total / dist.get_world_size()).item()


# ---------------------------------------------------------------- saves

def rank_files(folder, model, optimizer, opt):
    """As verl's FSDPCheckpointManager names them."""
    rank, world = dist.get_rank(), dist.get_world_size()
    os.makedirs(folder, exist_ok=True)
    torch.save(model, f"{folder}/model_world_size_{world}_rank_{rank}.pt")
    torch.save(optimizer, f"{folder}/optim_world_size_{world}_rank_{rank}.pt")
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1.0)
    torch.save({"lr_scheduler": schedule.state_dict(), "rng": {"cpu": torch.get_rng_state(), "random": random.Random(rank).getstate()}},
               f"{folder}/extra_state_world_size_{world}_rank_{rank}.pt")
    dist.barrier()


def verl_own(net, opt):
    """What verl's own saver writes, as its trainer calls it."""
    net.config, net.can_generate = transformers.PretrainedConfig(), lambda: False
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1.0)
    FSDPCheckpointManager(model=net, optimizer=opt, lr_scheduler=schedule).save_checkpoint(f"verl/global_step_{STEPS}/actor", global_step=STEPS)
    del net.config, net.can_generate
    if dist.get_rank() == 0:
        with open("verl/latest_checkpointed_iteration.txt", "w") as f:
            f.write(str(STEPS))


def save_all(case, net, opt):
    """{folder: what its names are} of all that this case saves."""
    model, optim = get_state_dict(net, opt)
    state = {"model": model, "optim": optim, "progress": {"step": STEPS, "losses": [0.5, 0.25], "name": "run 1"}}
    saved = {f"{case}-dcp": "names"}
    dcp.save(state, checkpoint_id=f"{case}-dcp")
    if case in ("fsdp1", "fsdp1-orig"):         # torch: of ShardedTensors there is no async_save
        pass
    else:
        dcp.async_save(state, checkpoint_id=f"{case}-async").result()
        saved[f"{case}-async"] = "names"
    bare = net.module if case == "ddp" else net
    if not case.startswith("fsdp1"):
        rank_files(f"{case}-ranks", bare.state_dict(), opt.state_dict(), opt)
        saved[f"{case}-ranks"] = "numbers"
        if case == "fsdp2" and FSDPCheckpointManager:
            verl_own(net, opt)
            saved[f"verl/global_step_{STEPS}/actor"] = "numbers"
        if case == "hsdp":                      # the replica that rank 3 has of its part drifts
            state = copy.deepcopy(bare.state_dict())
            if dist.get_rank() == 3:
                state["up.weight"].to_local().add_(1)
            rank_files("hsdp-drift", state, opt.state_dict(), opt)
        return saved
    with FullyShardedDataParallel.state_dict_type(net, StateDictType.SHARDED_STATE_DICT):
        rank_files(f"{case}-ranks", net.state_dict(), FullyShardedDataParallel.optim_state_dict(net, opt), opt)
        if case == "fsdp1-orig":                # verl's own: the optimizer's state as it is
            rank_files(f"{case}-verl", net.state_dict(), opt.state_dict(), opt)
            saved[f"{case}-verl"] = "flat optimizer"
    saved[f"{case}-ranks"] = "names"
    if case == "fsdp1":                         # a mesh has no local state dict; and with use_orig_params, on the CPU, torch 2.13's whole
        #                                         state dict has one tensor for both moments
        with FullyShardedDataParallel.state_dict_type(net, StateDictType.FULL_STATE_DICT):
            model, optim = net.state_dict(), FullyShardedDataParallel.optim_state_dict(net, opt)
        if dist.get_rank() == 0:
            torch.save({"model": model, "optimizer": optim, "step": STEPS}, f"{case}-full.pt")
            saved[f"{case}-full.pt"] = "names"
        with FullyShardedDataParallel.state_dict_type(net, StateDictType.LOCAL_STATE_DICT):
            model = net.state_dict()
            rank_files(f"{case}-local", model, {}, opt)
            dcp.save({"model": model}, checkpoint_id=f"{case}-local-dcp")
        saved |= {f"{case}-local": "flat", f"{case}-local-dcp": "flat"}
    return saved


def run_case(case):
    net, part = wrapped(case)
    opt = optimizer_of(net)
    losses = [step_on(net, opt, step, part) for step in range(STEPS)]
    full = StateDictOptions(full_state_dict=True)
    model, optim = get_state_dict(net, opt, options=full)
    if not case.startswith("fsdp1") and case != "ddp":              # by the tensors themselves
        named = {name: p for name, p in net.named_parameters()}
        told = {name: whole(p.detach()) for name, p in named.items()} | dict(net.named_buffers())
        moments = {name: {k: whole(v) for k, v in opt.state[p].items()} for name, p in named.items()}
        if dist.get_rank() == 0:
            assert told.keys() == model.keys() and all(torch.equal(told[k], model[k]) for k in told)
        model, optim = told, dict(optim, state=moments)
    told = copy.deepcopy(dict(model={k: v.detach().clone() for k, v in model.items()}, optim=optim))       # they are the run's own, and go on
    saved = save_all(case, net, opt)
    losses += [step_on(net, opt, step, part) for step in range(STEPS, STEPS + AFTER)]
    if dist.get_rank() == 0:
        torch.save(dict(told, losses=losses, saved=saved), f"{case}.truth")
    dist.barrier()


def one_rank(rank, world, cases, port):
    with open(os.devnull, "w") as quiet:
        "-v" in sys.argv or os.dup2(quiet.fileno(), 2)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for case in cases:
        try:
            run_case(case)
        except Exception as e:
            with open(f"{case}.failed", "a") as f:
                print(f"rank {rank}: {type(e).__name__}: {e}", file=f)
            raise
    dist.destroy_process_group()


# ---------------------------------------------------------------- what the commands say

def wanted(folder, names, truth):
    """{name that the commands give it: tensor}. FSDP1's flat parameters are those of a unit, one behind the other."""
    model, state = {f"model.{k}": t for k, t in truth["model"].items()}, truth["optim"]["state"]
    if names == "flat":
        units = {"model._flat_param": ("scale", "embed.weight", "norm.weight", "norm.bias"), "model.up._flat_param": ("up.weight", "up.bias"),
                 "model.down._flat_param": ("down.weight",)}
        return {unit: torch.cat([truth["model"][p].reshape(-1) for p in own]) for unit, own in units.items()} | {"model.seen": truth["model"]["seen"]}
    if names == "flat optimizer":
        return model
    parameters = [name for name, _ in made().named_parameters()]
    root = "optim" if folder.endswith(("-dcp", "-async")) else "optimizer"
    number = (lambda p: parameters.index(p)) if names == "numbers" else (lambda p: p)
    return model | {f"{root}.state.{number(p)}.{k}": t for p, own in state.items() for k, t in own.items()}


def same(what, folder, names, truth):
    want = wanted(folder, names, truth)
    status, doc = ask(INSPECT, "list", "--json", "--checksum", folder)
    got = {t["name"]: t for t in doc.get("tensors", [])}
    of_ranks = {n for n in got if ".rng." in n or names == "flat optimizer" and n.startswith("rank_")}
    check(f"{what}: listed, and nothing else", status == 0 and got.keys() - of_ranks == want.keys(), sorted(got.keys() - of_ranks ^ want.keys()) or doc)
    for name, t in want.items():
        own, said = got.get(name, {}), [str(t.dtype)[6:], list(t.shape), checks.crc(t.reshape(-1))]
        check(f"{what}: {name}", [own.get("dtype"), own.get("shape"), own.get("crc32")] == said, f"{own}, not {said}")
    for command in ("verify", "show", "doctor"):
        status, doc = ask(INSPECT, command, "--json", folder)
        check(f"{what}: {command}", status in ((0, 1) if command == "doctor" else (0,)) and
              not [f for f in doc.get("findings", []) if f["code"] == "replicas-differ"], doc)
    return got


def scalars(what, folder, names, truth):
    """The steps, groups and counters."""
    status, doc = ask(INSPECT, "tree", "--json", folder)
    said, group = doc.get("scalars", {}), truth["optim"]["param_groups"][0]
    root = "optim" if folder.endswith(("-dcp", "-async")) else "optimizer"
    want = {} if folder.endswith("-local-dcp") else {"progress.step": STEPS, "progress.name": "run 1"} if root == "optim" else {"step": STEPS} if folder.endswith(".pt") else \
        {"extra_state.lr_scheduler.last_epoch": 0}
    if not names == "flat":
        want |= {f"{root}.param_groups.0.{k}": group[k] for k in ("lr", "weight_decay", "eps", "amsgrad", "decoupled_weight_decay")}
    if root == "optimizer" and not folder.endswith(".pt"):
        want |= {f"rank_{r}.extra_state.rng.random.0": 3 for r in range(truth["world"])}
    check(f"{what}: values", status == 0 and all(said.get(k) == v for k, v in want.items()), [(k, said.get(k), v) for k, v in want.items() if said.get(k) != v])


def flat_optimizer(what, folder, got, world):
    """verl's optimizer.state_dict() of FSDP1: what each rank has, as that rank's file has it."""
    for rank in range(world):
        held = torch.load(f"{folder}/optim_world_size_{world}_rank_{rank}.pt", weights_only=False)["state"]
        want = {f"rank_{rank}.optimizer.state.{i}.{k}": checks.crc(t.reshape(-1)) for i, own in held.items() for k, t in own.items()}
        check(f"{what}: rank {rank}'s optimizer", want.items() <= {n: t["crc32"] for n, t in got.items()}.items(), want)


def restored(what, folder, got):
    """ckpt_restore, in a program in C: every tensor that a state binds, and all of the model."""
    done = checks.run(RESTORE, folder)
    lines = {line.split("\t")[0]: line.split("\t")[2] for line in done.stdout.splitlines()}
    check(f"{what}: ckpt_restore", done.returncode == 0 and all(got[n]["crc32"] == c for n, c in lines.items()) and
          {n for n in got if n.startswith(("model.", "optim"))} <= lines.keys(), done.stderr or sorted(got.keys() - lines.keys()))


def loaded(file, safe=True):
    """A training in one process, from a file of torch."""
    held = torch.load(file, weights_only=safe)
    net = made()
    opt = optimizer_of(net)
    net.load_state_dict(held["model"])
    saved, order = held.get("optimizer", held.get("optim")), [n for n, _ in net.named_parameters()]
    by = {(order.index(k) if isinstance(k, str) else k): v for k, v in saved["state"].items()}
    groups = [dict(g, params=[order.index(p) if isinstance(p, str) else p for p in g["params"]]) for g in saved["param_groups"]]
    for group in groups:
        group["params"].sort()
    opt.load_state_dict({"state": by, "param_groups": groups})
    return net, opt


def alone(net, opt, first, count, parts):
    """The losses of all parts' mean."""
    losses = []
    for step in range(first, first + count):
        loss = sum(loss_of(net, step, part) for part in range(parts)) / parts
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def near(a, b, bound=5e-5):
    """Ranks add in another order, and Adam's first steps make more of it: 5e-5 of the loss."""
    return len(a) == len(b) and all(abs(x - y) <= bound * abs(y) for x, y in zip(a, b))


def goes_on(what, folder, truth, unsharded):
    parts, out = truth["parts"], "out.pt"
    done = checks.run(MIGRATE, "--to", "torch", "--verify", "--force", folder, out)
    if not check(f"{what}: --to torch", done.returncode == 0, done.stderr):
        return
    ours = alone(*loaded(out, not folder.startswith("verl")), STEPS, AFTER, parts)
    if folder.endswith(".pt"):                  # torch has one step for a unit's parameters there, which AdamW counts once for each
        peer = alone(*loaded(folder), STEPS, AFTER, parts)
        check(f"{what}: goes on as the file itself, bit by bit", ours == peer, f"{ours}, not {peer}")
        return
    check(f"{what}: goes on as the run", near(ours, truth["losses"][STEPS:]), f"{ours}, not {truth['losses'][STEPS:]}")
    check(f"{what}: goes on as the unsharded run", near(ours, unsharded[STEPS:]), f"{ours}, not {unsharded[STEPS:]}")
    if folder.endswith("-dcp"):
        dcp_to_torch_save(folder, "peer.pt")
        peer = alone(*loaded("peer.pt"), STEPS, AFTER, parts)
        check(f"{what}: goes on as what dcp_to_torch_save makes, bit by bit", ours == peer, f"{ours}, not {peer}")


def compare(case):
    world, parts = CASES[case]
    truth = dict(torch.load(f"{case}.truth", weights_only=False), world=world, parts=parts)
    net = made()
    unsharded = alone(net, optimizer_of(net), 0, STEPS + AFTER, parts)
    check(f"{case}: trained as the unsharded run", near(truth["losses"], unsharded), f"{truth['losses']}, not {unsharded}")
    for folder, names in truth["saved"].items():
        with section(folder):
            got = same(folder, folder, names, truth)
            scalars(folder, folder, names, truth)
            if names == "flat optimizer":
                flat_optimizer(folder, folder, got, world)
            elif names != "flat":
                restored(folder, folder, got)
                goes_on(folder, folder, truth, unsharded)


def without_a_file(folder, name):
    """A rank's file that is not there is missed by name, and its tensors are not made of the others."""
    os.rename(f"{folder}/{name}", "aside")
    status, doc = ask(INSPECT, "verify", "--json", folder)
    check(f"{folder} without {name}", status == 1 and name in json.dumps(doc), doc)
    done = checks.run(MIGRATE, "--to", "torch", "--force", folder, "without.pt")
    check(f"{folder} without {name}: nothing is made of it", done.returncode != 0 and name in done.stderr and not os.path.exists("without.pt"), done.stderr)
    os.rename("aside", f"{folder}/{name}")


def drifted():
    """Archives whose own CRCs are right, of ranks that have not the same bytes of one piece."""
    status, doc = ask(INSPECT, "verify", "--json", "hsdp-drift")
    said = [f for f in doc.get("findings", []) if f["code"] == "replicas-differ"]
    check("hsdp-drift: the tensor and both files are named", len(said) == 1 and said[0]["tensor"] == "model.up.weight" and
          all(f"model_world_size_4_rank_{r}.pt" in said[0]["message"] for r in (1, 3)), doc)


def steps_of_verl():
    """A run as verl lays it out: a folder of each step, in which each model has its own. None is called damaged."""
    for step in (9, 10):
        shutil.copytree("fsdp2-ranks", f"verl-run/global_step_{step}/actor")
    shutil.copytree("fsdp2-ranks", "verl-run/global_step_11/actor")
    os.remove("verl-run/global_step_11/actor/optim_world_size_4_rank_2.pt")
    status, doc = ask(INSPECT, "show", "--json", "verl-run")
    check("a run of verl: each step's model", status == 0 and [(r["name"], r["complete"]) for r in doc.get("checkpoints", [])] ==
          [("global_step_9/actor", True), ("global_step_10/actor", True), ("global_step_11/actor", False)], doc)


# ---------------------------------------------------------------- SIGKILL

def saves_on(rank, world, background, port):
    """Saves a step after the other, as torchtitan names them, until it is killed."""
    with open(os.devnull, "w") as quiet:
        "-v" in sys.argv or os.dup2(quiet.fileno(), 2)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    own = dist.new_group(backend="gloo")        # as torchtitan does it: the save and the training talk at the same time
    torch.manual_seed(7)
    net = Net(190)
    fully_shard(net)
    opt, last = torch.optim.AdamW(net.parameters(), lr=1e-3), None
    for step in range(1, 10000):
        opt.zero_grad()
        net(torch.arange(5)).square().mean().backward()
        opt.step()
        model, optim = get_state_dict(net, opt)
        state = {"model": model, "optimizer": optim, "train_state": {"step": step}}
        if last:
            last.result()
        if background:
            last = dcp.async_save(state, checkpoint_id=f"run/step-{step}", process_group=own)
        else:
            dcp.save(state, checkpoint_id=f"run/step-{step}")


def killed(number, background, port):
    """What is left: the newest step with a list is whole and is the one that is named; what is later is incomplete."""
    what = f"kill {number}, {'in the background' if background else 'at once'}"
    shutil.rmtree("run", ignore_errors=True)
    rng = random.Random(number)
    started = mp.start_processes(saves_on, (2, background, port), nprocs=2, start_method="fork", join=False)
    until = time.monotonic() + 120
    while not os.path.exists("run/step-2/.metadata") and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(rng.random() * 0.25)
    for p in started.processes:
        os.kill(p.pid, signal.SIGKILL)
    for p in started.processes:
        p.join()
    steps = sorted((int(n[5:]) for n in os.listdir("run") if n.startswith("step-")), reverse=True)
    whole = [n for n in steps if os.path.exists(f"run/step-{n}/.metadata")]
    half = [n for n in steps if n not in whole]
    status, doc = ask(INSPECT, "show", "--json", "run")
    check(f"{what}: show resumes from step-{whole[0]}", status == 0 and f'"run/step-{whole[0]}"' in doc.get("resume", ""), (steps, whole, doc))
    check(f"{what}: show says which are whole", {r["name"]: r["complete"] for r in doc.get("checkpoints", [])} == {f"step-{n}": n in whole for n in steps}, (steps, whole, doc))
    for n in half:
        status, doc = ask(INSPECT, "verify", "--json", f"run/step-{n}")
        check(f"{what}: step-{n} is not whole", status != 0, doc)
        status, doc = ask(INSPECT, "doctor", "--json", f"run/step-{n}")
        check(f"{what}: doctor does not resume from step-{n}", status != 0, doc)
    for n in whole[:3]:
        status, doc = ask(INSPECT, "verify", "--json", f"run/step-{n}")
        check(f"{what}: step-{n} is whole", status == 0, doc)
    status, doc = ask(INSPECT, "doctor", "--json", f"run/step-{whole[0]}")
    check(f"{what}: doctor resumes from step-{whole[0]}", status == 0 and doc.get("outcome") in ("resumes", None), doc)
    return bool(half)


def kills():
    half = 0
    for number in range(KILLS):
        with section(f"kill {number}"):
            half += killed(number, number % 2 == 1, checks.free_port())
    print(f"{half} of {KILLS} kills left a step that was not finished")


def main():
    with checks.scratch():
        for world in sorted({w for w, _ in CASES.values()}):
            with section(f"{world} ranks"):
                mp.start_processes(one_rank, (world, [c for c in CASES if CASES[c][0] == world], checks.free_port()), nprocs=world, start_method="fork")
        for case in CASES:
            with section(case):
                compare(case)
        with section("drift"):
            drifted()
        with section("a run of verl"):
            steps_of_verl()
        kills()
        with section("a file less"):
            without_a_file("hsdp-ranks", "model_world_size_4_rank_3.pt")
            without_a_file("fsdp2-tp-dcp", "__1_0.distcp")
        if os.environ.get("KEEP"):
            shutil.copytree(".", os.environ["KEEP"], dirs_exist_ok=True)
    checks.finish()


if __name__ == "__main__":
    main()
