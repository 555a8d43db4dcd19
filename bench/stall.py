"""stall.py - what an asynchronous save costs the training.

stall   How long ckpt_run_save holds the trainer up, at several sizes of tensors and by as many threads as the copies beside it get: a
        memcpy of each tensor, one memcpy of each thread's part, and stores past the caches. The fastest of the three is the
        limit. All of it is on the disk before the next run begins. torch's DCP async_save stands beside its own copy_.
steps   bench/stall.c: training steps while the writer writes, and as many when nothing is written, in one run. "compute" leaves
        a core to the writer, "cores" none, "memory" streams 64 MiB of the state through memory. The 95th percentiles.
"""
import os
import shutil
import subprocess
import time
import warnings

from measure import TENSOR_MIB, NotMeasured, gone

COPIES = {"copy each": "memcpy of each tensor", "copy whole": "one memcpy a thread", "copy stream": "streaming stores"}
KINDS = ("compute, one core left", "compute, no core left", "memory")


def measure_stall(b):
    mib = min(b.mib, 128 if b.quick else 1024)
    sizes = (1, 16384) if b.quick else (1, 64, 16384, mib << 10)
    for kib in sizes:
        size = min(mib, 512) if kib == 1 else mib      # a million names do not fit into the header of one file
        ours = b.serve("stall", size, kib)
        for threads in sorted({1, b.threads}):
            who = {"ckpt_run_save": ours.job(f"stall by {threads}")}
            who.update({name: ours.job(f"{job} by {threads}") for job, name in COPIES.items()})
            b.measure(f"stall, {size} MiB in tensors of {kib} KiB, {threads} thread{'s' if threads > 1 else ''}", who)
        ours.close()
    peer_stall(b, mib)


def peer_stall(b, mib):
    name = "torch DCP async_save"
    if not b.ask(name, "torch"):
        return
    import torch
    import torch.distributed
    import torch.distributed.checkpoint
    warnings.simplefilter("ignore")
    folder = b.path("stall-dcp")
    os.makedirs(folder)
    try:
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/init", rank=0, world_size=1)
        state = {f"layers.{i}.weight": torch.randn(TENSOR_MIB << 18) for i in range(mib // TENSOR_MIB)}
        held = {one: tensor.clone() for one, tensor in state.items()}

        def copy():
            start = time.monotonic()
            for one, tensor in state.items():
                held[one].copy_(tensor)
            return time.monotonic() - start

        def call():
            start = time.monotonic()
            future = torch.distributed.checkpoint.async_save(state, checkpoint_id=os.path.join(folder, "checkpoint"))
            took = time.monotonic() - start
            (future if hasattr(future, "result") else future.upload_completion).result()
            return took
        b.measure(f"for comparison: torch, {mib} MiB in tensors of 16384 KiB", {name: call, "its copy_": copy})
        torch.distributed.destroy_process_group()
    except (RuntimeError, AttributeError) as error:
        b.note(name, error)
    shutil.rmtree(folder)


def measure_steps(b):
    mib = min(b.mib, 512)
    steps = 50 if b.quick else 1000
    ran = subprocess.run([b.program("stall"), b.folder, str(mib), "2", str(steps)], capture_output=True, text=True)
    for name in ("compute", "cores", "memory", "idle"):
        gone(os.path.join(b.folder, f"stall-{name}"))
    if ran.returncode:
        raise NotMeasured(ran.stderr.strip())
    keep_steps(b, ran.stdout)


def keep_steps(b, text):
    """The lines of bench/stall.c as groups; the 95th percentile of a kind is that of all its steps, not the median of the rounds'."""
    kind, rounds = 0, {"quiet": [], "busy": []}
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["#round"]:
            rounds["quiet"].append(float(words[4]) / 1e3)
            rounds["busy"].append(float(words[7]) / 1e3)
        elif words[:1] == ["#"]:
            quiet, busy, count = float(words[14]) / 1e3, float(words[15]) / 1e3, int(words[17])
            b.keep(f"p95 of steps, {KINDS[kind]}", {"while a save is written": rounds["busy"], "nothing is written": rounds["quiet"]},
                   extra={"all": {"while a save is written": busy, "nothing is written": quiet}, "steps": count})
            kind, rounds = kind + 1, {"quiet": [], "busy": []}
