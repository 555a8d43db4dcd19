#!/usr/bin/env python3
"""stall.py STALL DIR MIB ROUNDS: what an asynchronous save costs the training, this library beside PyTorch's.

Each round runs both, one after the other. Ours is bench/stall: the time that ckpt_run_step holds the trainer up, beside
one memcpy of the state, and the training steps while the writer writes, beside steps when nothing is written. Theirs, where
the Python that runs this has torch, is torch.distributed.checkpoint.async_save in one process (gloo): the time of the call
beside a copy_ of the state into memory that is warm. Medians over the rounds, with their range.
"""
import os
import shutil
import statistics
import subprocess
import sys
import time
import warnings

TENSOR_MIB = 16
KINDS = ("compute", "compute on all cores", "memory")


def ours(program, folder, mib):
    """{kind of step: {figure: milliseconds}} of one run, and the nanoseconds of a step in which nothing is due."""
    out = subprocess.run([program, folder, str(mib), "2"], check=True, capture_output=True, text=True).stdout
    found = []
    for line in out.splitlines():
        if line.startswith("# "):
            words = line.split()
            found.append({"copy": float(words[2]), "stall": float(words[4]), "flush": float(words[6]),
                          "quiet": float(words[8]), "quiet p99": float(words[9]), "busy": float(words[11]),
                          "busy p99": float(words[12])})
    idle = [line for line in out.splitlines() if line.startswith("a step in which nothing is due")][0]
    return dict(zip(KINDS, found)), float(idle.split()[-2])


class Peer:
    def __init__(self, folder, mib):
        import torch
        import torch.distributed
        import torch.distributed.checkpoint
        self.torch = torch
        warnings.simplefilter("ignore")
        self.folder = os.path.join(folder, "stall-dcp")
        os.makedirs(self.folder, exist_ok=True)
        torch.distributed.init_process_group("gloo", init_method=f"file://{os.path.abspath(self.folder)}/init.{os.getpid()}",
                                             rank=0, world_size=1)
        self.state = {f"layers.{i}.weight": torch.randn(TENSOR_MIB << 18) for i in range(mib // TENSOR_MIB)}
        self.warm = {name: tensor.clone() for name, tensor in self.state.items()}
        self.round()

    def round(self):
        start = time.monotonic()
        for name, tensor in self.state.items():
            self.warm[name].copy_(tensor)
        copy = time.monotonic() - start
        start = time.monotonic()
        future = self.torch.distributed.checkpoint.async_save(self.state, checkpoint_id=os.path.join(self.folder, "checkpoint"))
        stall = time.monotonic() - start
        (future if hasattr(future, "result") else future.upload_completion).result()
        return {"copy": copy * 1e3, "stall": stall * 1e3, "flush": (time.monotonic() - start) * 1e3}

    def close(self):
        self.torch.distributed.destroy_process_group()
        shutil.rmtree(self.folder)


def line(name, values, unit="ms"):
    values = sorted(values)
    print(f"  {name:52} {statistics.median(values):9.2f} {unit}  ({values[0]:.2f} to {values[-1]:.2f})")


def main():
    program, folder, mib, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    try:
        peer = Peer(folder, mib)
    except ImportError as missing:
        print(f"peers: {missing}: not measured")
        peer = None
    own, theirs, idle = [], [], []
    for _ in range(rounds):
        figures, nanoseconds = ours(program, folder, mib)
        own.append(figures)
        idle.append(nanoseconds)
        if peer:
            theirs.append(peer.round())
    print(f"{mib} MiB of float32, {rounds} rounds; median (lowest to highest)")
    both = [f for r in own for f in r.values()]
    line("one memcpy of the state", [f["copy"] for f in both])
    line("ckpt_run_step holds the training up", [f["stall"] for f in both])
    line("  against that memcpy", [f["stall"] / f["copy"] for f in both], "x ")
    line("  on disk after", [f["flush"] for f in both])
    for kind in KINDS:
        rows = [r[kind] for r in own]
        line(f"a step ({kind}), nothing written", [f["quiet"] for f in rows])
        line("  while the writer writes, against that", [f["busy"] / f["quiet"] for f in rows], "x ")
        line("  p99 against p99", [f["busy p99"] / f["quiet p99"] for f in rows], "x ")
    line("a step in which nothing is due", idle, "ns")
    if peer:
        line("one copy_ of the state", [f["copy"] for f in theirs])
        line("torch DCP async_save holds the training up", [f["stall"] for f in theirs])
        line("  against that copy_", [f["stall"] / f["copy"] for f in theirs], "x ")
        line("  done after (files fsynced)", [f["flush"] for f in theirs])
        peer.close()
    for name in ("stall-compute", "stall-cores", "stall-memory", "stall-idle"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


if __name__ == "__main__":
    main()
