#!/usr/bin/env python3
"""ckpt-migrate --to torch-dist of models with experts, loaded by megatron-core's dist_checkpointing at another tensor, pipeline and expert
parallelism (gloo).

Four ranks train small GPTs with experts and save them: torch_dist of tensor 2 x expert 2, in fp32 and with the distributed optimizer (bf16,
fully_reshardable), the same with one expert parallel rank, and Megatron-LM's older layout of folders; one model has a layer without experts. All
are migrated, one with each layer by itself (--layers-apart). Four ranks, or two, load each at tensor x pipeline x expert 1 x 2 x 2, 1 x 1 x 2,
1 x 2 x 1 or 2 x 1 x 1: parameters, moments and masters are those of
the processes that saved, byte for byte, and the losses of the next steps are those that the peer's own re-shard of its own save gives, to the bit.

Between one expert parallel rank and several megatron-core cannot load its own optimizer (RuntimeError: Expected 2 entries in state dict; KeyError):
there --expert-parallel says which form is written, and the losses are compared with those of the other form at its own parallelism.

megatron-core's uses of a CUDA device are turned to the CPU (tests/interop/megatron_peer.py); te_general_gemm, which 0.16.1 names and has not
imported without Transformer Engine, is None.

usage: to_torch_dist_moe.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]
"""
import sys

import checks
from checks import ask, check, section
import megatron_peer as peer
from megatron_peer import BASE, FULL, INSPECT, mp, torch
from to_torch_dist import codes, load_main, migrate, same_live, save_main

import megatron.core.transformer.moe.moe_utils as moe_utils

MOE = dict(BASE, tp=2, ep=2, experts=4, dispatcher="allgather")
CASES = {
    "dist": dict(MOE, legacy=True),
    "full": dict(MOE, dtype="bf16", distopt=FULL),
    "one": dict(MOE, ep=1, dtype="bf16", distopt=FULL),
    "mixed": dict(MOE, legacy=True, freq=[0, 1]),
}
# source, who wrote it, options, tensor x pipeline x expert, what the model says otherwise; without options megatron-core loads its own
OWN = [("dist", (1, 2, 2)), ("full", (1, 1, 2)), ("one", (2, 1, 1)), ("mixed", (1, 1, 2))]
NOT_ITS_OWN = [("full", (1, 2, 1), "KeyError"), ("one", (1, 1, 2), "Expected 2 entries in state dict")]
OURS = [
    ("dist", "legacy", ["--rank-state", "drop"], (1, 2, 2), {}),
    ("dist", "legacy", ["--rank-state", "drop", "--layers-apart"], (1, 2, 2), dict(freq=[1, 1])),
    ("full", "own", ["--expert-parallel", "4"], (1, 1, 2), {}),
    ("full", "own", ["--expert-parallel", "1"], (1, 2, 1), {}),
    ("one", "own", ["--expert-parallel", "2"], (1, 1, 2), {}),
    ("mixed", "legacy", ["--rank-state", "drop"], (1, 1, 2), {}),
]


def build(case, make=peer.build):
    """A layer of experts refuses to train with tensor parallelism and without sequence parallelism, which torch's norms have not."""
    made = make(case)
    for chunk in made[0]:
        for module in chunk.modules():
            if type(module).__name__ == "MoELayer":
                module.training = False
    return made


def at(name, sizes, **more):
    return dict(CASES[name], **dict(zip(("tp", "pp", "ep"), sizes)), **more)


def same_tensors_as_its_own(own, ours):
    """Of the folders what megatron-core saves itself, but for the steps of two optimizers, the settings of groups that it saves in another order, and
    what was left out."""
    _, doc = ask(INSPECT, "diff", "--json", own, ours)
    other = [x["name"] for kind in ("tensors", "scalars") for x in doc.get(kind, [])]
    odd = [n for n in other if not n.startswith(("rng_state", "args."))]
    check("mixed: what megatron-core saves itself is the same", doc.get("counts", {}).get("tensors", {}).get("same", 0) > 50 and not odd, odd)


def main():
    moe_utils.te_general_gemm, peer.build = None, build
    mp.start_processes(save_main, (4, checks.free_port(), CASES), nprocs=4, start_method="fork")
    jobs = [(f"{name} {sizes}", at(name, sizes), f"{name}.own/iter_{peer.STEPS:07d}") for name, sizes in OWN]
    for i, (name, kind, options, sizes, more) in enumerate(OURS):
        what = f"{name} {kind} {' '.join(options)} {sizes}"
        doc = migrate(what, f"{name}.{kind}", f"{i}.out", "--to", "torch-dist", "--world", "3", "--verify", *options)
        said = codes(doc)
        check(f"{what}: the form is said where it is not asked for", ("torch-dist-experts" in said) == ("--expert-parallel" not in options), said)
        jobs.append((what, at(name, sizes, **more), f"{i}.out"))
    same_tensors_as_its_own("mixed.own", f"{len(OURS) - 1}.out")
    for name, sizes, _ in NOT_ITS_OWN:
        jobs.append((f"{name} {sizes} no", at(name, sizes), f"{name}.own/iter_{peer.STEPS:07d}"))
    got = {}
    for world in (4, 2):
        own = [job for job in jobs if job[1]["pp"] * job[1]["ep"] * job[1]["tp"] == world]
        mp.start_processes(load_main, (world, checks.free_port(), own), nprocs=world, start_method="fork")
        got.update(torch.load("loaded", weights_only=False))
    for name, sizes, why in NOT_ITS_OWN:
        error = got[f"{name} {sizes} no"].get("error", "it loads")
        _, doc = ask(INSPECT, "doctor", "--json", "--mesh", f"dp=2,ep={sizes[2]}", f"{name}.own")
        said = [f["message"] for f in doc.get("findings", []) if f["code"] == "mesh"]
        check(f"{name} at {sizes}: megatron-core does not load its own, and doctor says so", why in error and said and doc.get("outcome") == "fails-at-load", f"{error}; {doc}")
    for name, kind, options, sizes, _ in OURS:
        what = f"{name} {kind} {' '.join(options)} {sizes}"
        ours, own = got[what], next(got[f"{n} {s}"] for n, s in OWN if n == name)
        if not check(f"{what}: megatron-core loads it", "error" not in ours, ours) or not check(f"{what}: and its own", "error" not in own, own):
            continue
        same_live(what, ours["live"], torch.load(f"{name}.truth", weights_only=False))
        worst = max(abs(a - b) for a, b in zip(ours["losses"], own["losses"]))
        if (name, sizes) in OWN:
            check(f"{what}: the losses are those of the peer's own re-shard", ours["losses"] == own["losses"], f"{ours['losses']} {own['losses']}")
            check(f"{what}: the groups", ours["groups"] == own["groups"], f"{ours['groups']} {own['groups']}")
        else:                                                   # in bf16, and at another parallelism
            check(f"{what}: the losses are near those of the peer's own at its parallelism", worst < 1e-3, f"{ours['losses']} {own['losses']}")
        check(f"{what}: the iteration", ours["iteration"] == peer.STEPS, ours["iteration"])
        if "-v" in sys.argv:
            print(f"# {what}: losses differ by {worst:.1e} at most: {ours['losses'][:2]}")


if __name__ == "__main__":
    with checks.scratch():
        with section("all"):
            main()
    checks.finish()
