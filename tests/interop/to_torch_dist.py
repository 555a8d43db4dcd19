#!/usr/bin/env python3
"""ckpt-migrate --to torch-dist, loaded by megatron-core's dist_checkpointing at another tensor and pipeline parallelism (gloo).

Four ranks train a small GPT and save it: torch_dist of tensor 2 x pipeline 2 (fp32), of tensor 2 x data 2 with the distributed optimizer
(bf16, fully_reshardable), and Megatron-LM's older layout of mp_rank_XX_YYY folders: tensor 2 x pipeline 2 in fp32, tensor 2 x data 2 in bf16
with masters; of each run also what megatron-core itself saves as torch_dist. All are migrated, a file of torch.save with Megatron's names too. Two ranks load each with
tensor x pipeline 1 x 1, 1 x 2 and 2 x 1: parameters, moments and masters are those of the processes that saved, byte for byte, and the
losses of the next steps are those that the peer's own re-shard of its own save gives, to the bit. A -> B -> A has the same tensors.

megatron-core's uses of a CUDA device are turned to the CPU, and its load of fully_reshardable keeps the steps of torch's Adam, which
0.16.1 cannot do, with its own saves either (tests/interop/megatron_peer.py).

usage: to_torch_dist.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]
"""
import os

import checks
from checks import ask, check, section
import megatron_peer as peer
from megatron_peer import BASE, FULL, INSPECT, MIGRATE, dist, mp, torch

os.environ["CKPT_LAYOUTS"] = os.path.join(os.path.abspath(os.environ.get("srcdir", ".")), "layouts")
AFTER, LENGTH = 4, peer.LENGTH - 1
CASES = {
    "dist": dict(BASE, tp=2, pp=2),
    "full": dict(BASE, tp=2, dtype="bf16", distopt=FULL, bias=True),
    "legacy": dict(BASE, tp=2, pp=2, legacy=True, bias=True, layers=4),
    "halves": dict(BASE, tp=2, legacy=True, dtype="bf16", bias=True),      # what "full" is, with the other optimizer
}
TARGETS = {"dist": [(1, 1), (1, 2), (2, 1)], "full": [(1, 1), (1, 2)], "legacy": [(1, 1), (1, 2), (2, 1)], "halves": [(1, 1), (1, 2)]}


# ---------------------------------------------------------------- the ranks that save

def save_main(rank, world, port, cases):
    from megatron.core import parallel_state as ps
    peer.start(rank, world, port)
    for name, case in cases.items():
        run = peer.build(case)
        peer.train(case, *run)
        truth = peer.live(case, *run[:2])
        for kind in ("own", "legacy") if case.get("legacy") else ("own",):
            folder = f"{name}.{kind}/iter_{peer.STEPS:07d}"
            os.makedirs(folder, exist_ok=True)
            dist.barrier()
            (peer.save_legacy if kind == "legacy" else peer.save_dist)(case, folder, rank, *run)
        dist.barrier()
        if rank == 0:
            torch.save(truth, f"{name}.truth")
            for kind in ("own", "legacy") if case.get("legacy") else ("own",):
                with open(f"{name}.{kind}/latest_checkpointed_iteration.txt", "w") as f:
                    f.write(str(peer.STEPS))
        ps.destroy_model_parallel()
    dist.barrier()
    dist.destroy_process_group()


# ---------------------------------------------------------------- the ranks that load

def losses(case, chunks, opt, sched):
    """Real steps; all data-parallel ranks see the same, so their number does not count."""
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.pipeline_parallel import get_forward_backward_func
    config = peer.gpt_of(chunks[0]).config
    config.finalize_model_grads_func = finalize_model_grads
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool), 1)
    places = torch.arange(LENGTH).repeat(2, 1)
    out = []

    def forward(batches, model):
        ids = next(batches)
        got = model(ids[:, :-1], places, mask, labels=ids[:, 1:])
        return got, lambda o: (o.float().mean(), {"loss": o.float().mean().detach()})

    for step in range(AFTER):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        opt.zero_grad()
        g = torch.Generator().manual_seed(step)
        batches = [torch.randint(0, case["vocab"], (2, LENGTH + 1), generator=g) for _ in range(2)]
        said = get_forward_backward_func()(forward_step_func=forward, data_iterator=iter(batches), model=chunks, num_microbatches=2,
                                           seq_length=LENGTH, micro_batch_size=2, forward_only=False)
        opt.step()
        sched.step(increment=4)
        out += [float(x["loss"]) for x in said]
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, out)
    return next(x for x in every if x)


def load(case, folder):
    """(live tensors, losses) of a run that goes on from there; the optimizer has states to load into, and none of what it has is what is loaded."""
    from megatron.core import dist_checkpointing, parallel_state as ps
    chunks, opt, sched = peer.build(case)
    try:
        peer.train(case, chunks, opt, sched, "another")
        state = dist_checkpointing.load(peer.sharded(case, chunks, opt, sched, True), folder)
        peer.gpt_of(chunks[0]).load_state_dict(state["model"], strict=False)
        opt.load_state_dict(state["optimizer"])
        sched.load_state_dict(state["opt_param_scheduler"])
        return dict(live=peer.live(case, chunks, opt), losses=losses(case, chunks, opt, sched), iteration=state["iteration"],
                    groups=[{k: v for k, v in g.items() if k != "params"} for g in opt.param_groups])
    except Exception as e:
        import traceback
        return dict(error=f"{type(e).__name__}: {e}", where=traceback.format_exc()[-1500:])
    finally:
        ps.destroy_model_parallel()


def load_main(rank, world, port, jobs):
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
    peer.start(rank, world, port)
    takes = DistributedOptimizer._set_main_param_and_optimizer_states
    DistributedOptimizer._set_main_param_and_optimizer_states = lambda self, p, tensors: takes(
        self, p, dict(tensors, step=self._get_main_param_and_optimizer_states(p)["step"]))
    got = {}
    for name, case, folder in jobs:
        got[name] = load(case, folder)
    if rank == 0:
        torch.save(got, "loaded")
    dist.barrier()
    dist.destroy_process_group()


# ---------------------------------------------------------------- what is checked

def migrate(what, source, target, *options):
    status, doc = ask(MIGRATE, "--json", "-q", "--no-sync", *options, source, target)
    return check(f"{what}: it is written", status == 0, doc.get("error") or doc) and doc


def codes(doc):
    return {f["code"] for f in (doc or {}).get("findings", [])}


def same_tensors(what, a, b):
    """diff finds the values of two directories the same; of the tensors, and of what is not a tensor."""
    done = checks.run(INSPECT, "diff", a, b)
    check(f"{what}: diff finds them the same", done.returncode == 0, done.stdout[-600:] + done.stderr)


def same_live(what, got, truth):
    check(f"{what}: the names", truth and got.keys() == truth.keys(), sorted(got.keys() ^ truth.keys()))
    for name, kinds in truth.items():
        for kind, t in kinds.items():
            now = got.get(name, {}).get(kind)
            check(f"{what}: {name} {kind or 'weight'}", now is not None and now.dtype == t.dtype and torch.equal(now, t),
                  "missing" if now is None else f"{now.dtype} {(now.float() - t.float()).abs().max()}")


def main():
    mp.start_processes(save_main, (4, checks.free_port(), CASES), nprocs=4, start_method="fork")
    jobs = []
    for name, case in CASES.items():
        source = f"{name}.legacy" if case.get("legacy") else f"{name}.own"
        doc = migrate(name, source, f"{name}.out", "--to", "torch-dist", "--world", "3", "--verify")
        check(f"{name}: as many files as ranks", sorted(f for f in os.listdir(f"{name}.out") if f.endswith(".distcp")) == [f"__{r}_0.distcp" for r in range(3)])
        check(f"{name}: the note about torch's Adam is there where masters are made", ("torch-dist-adam" in codes(doc)) == (name in ("full", "halves")), codes(doc))
        if not case.get("legacy"):
            same_tensors(name, source, f"{name}.out")
        migrate(f"{name} once more", f"{name}.out", f"{name}.again", "--to", "torch-dist", "--world", "1")
        same_tensors(f"{name} once more", f"{name}.out", f"{name}.again")
        migrate(f"{name} to torch", f"{name}.out", f"{name}.pt", "--to", "torch", "--lossy")
        own = dict(case, distopt=FULL) if case.get("dtype") == "bf16" else case
        for tp, pp in TARGETS[name]:
            jobs.append((f"{name} out {tp}x{pp}", dict(own, tp=tp, pp=pp), f"{name}.out"))
            if name != "halves":
                jobs.append((f"{name} own {tp}x{pp}", dict(case, tp=tp, pp=pp), f"{name}.own/iter_{peer.STEPS:07d}"))
        if name in ("dist", "full"):        # with the layers apart, as other layouts take them, and back
            migrate(f"{name} layer by layer", source, f"{name}.layers.safetensors", "--layout", "megatron-layers", "--to", "ckpt")
            migrate(f"{name} stacked again", f"{name}.layers.safetensors", f"{name}.layers.out", "--to", "torch-dist", "--verify")
            jobs.append((f"{name} layers 1x2", dict(own, tp=1, pp=2), f"{name}.layers.out"))
            migrate(f"{name} with its layers stacked", source, f"{name}.stacked.safetensors", "--to", "ckpt")
            done = checks.run(MIGRATE, "--to", "torch-dist", f"{name}.stacked.safetensors", f"{name}.no")
            check(f"{name}: what parts stacked layers is said", done.returncode == 2 and "--layout megatron-layers" in done.stderr, done.stderr)
            migrate(f"{name} parted on the way", f"{name}.stacked.safetensors", f"{name}.parted.out", "--layout", "megatron-layers", "--to", "torch-dist")
            same_tensors(f"{name}: either way", f"{name}.layers.out", f"{name}.parted.out")
    if migrate("legacy as a file of torch", "legacy.legacy", "legacy.model.pt", "--to", "torch", "--drop", "rng_state*"):
        migrate("a file of torch with Megatron's names", "legacy.model.pt", "file.out", "--to", "torch-dist", "--verify")
        jobs.append(("file out 1x2", dict(CASES["legacy"], tp=1, pp=2), "file.out"))
    mp.start_processes(load_main, (2, checks.free_port(), jobs), nprocs=2, start_method="fork")
    got = torch.load("loaded", weights_only=False)
    full, halves = (torch.load(f"{name}.truth", weights_only=False) for name in ("full", "halves"))
    same_live("both optimizers of 16 bits have come to the same state", halves, full)
    for name, case in CASES.items():
        truth = torch.load(f"{name}.truth", weights_only=False)
        for tp, pp in TARGETS[name]:
            peers = "full" if name == "halves" else name         # of the same state: the distributed optimizer's own save
            what, ours, own = f"{name} at {tp} x {pp}", got[f"{name} out {tp}x{pp}"], got[f"{peers} own {tp}x{pp}"]
            if not check(f"{what}: megatron-core loads it", "error" not in ours, ours) or not check(f"{what}: and its own", "error" not in own, own):
                continue
            same_live(what, ours["live"], truth)
            check(f"{what}: the losses are those of the peer's own re-shard", ours["losses"] == own["losses"], f"{ours['losses']} {own['losses']}")
            check(f"{what}: the iteration", ours["iteration"] == peer.STEPS, ours["iteration"])
            check(f"{what}: the groups", ours["groups"] == own["groups"], f"{ours['groups']} {own['groups']}")
    for name in ("dist", "full"):
        ours, own = got[f"{name} layers 1x2"], got[f"{name} own 1x2"]
        if check(f"{name} by way of its layers: megatron-core loads it", "error" not in ours, ours):
            same_live(f"{name} by way of its layers", ours["live"], torch.load(f"{name}.truth", weights_only=False))
            check(f"{name} by way of its layers: losses, iteration and groups", all(ours[k] == own[k] for k in ("losses", "iteration", "groups")), f"{ours} {own}")
    ours = got.get("file out 1x2", {})
    if check("a file of torch: megatron-core loads it", "error" not in ours, ours):
        same_live("a file of torch", ours["live"], torch.load("legacy.truth", weights_only=False))
        check("a file of torch: the losses", ours["losses"] == got["legacy own 1x2"]["losses"], ours["losses"])


if __name__ == "__main__":
    with checks.scratch():
        with section("all"):
            main()
    checks.finish()
