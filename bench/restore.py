#!/usr/bin/env python3
"""restore.py CKPT_BENCH DIR MIB ROUNDS: a restore from the page cache beside safetensors + copy_, by tensor size and threads.

safetensors' way into the memory of a model is load_file, which maps the file, and a copy_ of each tensor; torch copies with as many
threads as ours gets (torch.set_num_threads). Each round runs all of them once, in an order that turns. GB/s, medians (lowest to
highest); ours compares the CRC-32 of every tensor, and nobody else does. Last: the median of the rounds' ratios, ours / theirs.
"""
import os
import statistics
import sys
import time

from bench import Ours


def warm(path):
    with open(path, "rb", buffering=0) as f:
        while f.read(8 << 20):
            pass


def main():
    import torch
    import safetensors
    import safetensors.torch
    program, folder, mib, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    print(f"torch {torch.__version__}, safetensors {safetensors.__version__}; {mib} MiB in all, {rounds} rounds")
    path = os.path.join(folder, "bench.safetensors")
    for kib in (4, 64, 1024, 32 << 10, mib << 10):
        ours = Ours(program, path, mib, kib)
        ours.job("save")()
        warm(path)
        tensors = {name: torch.zeros_like(t) for name, t in safetensors.torch.load_file(path).items()}
        size = sum(t.nbytes for t in tensors.values())

        def theirs():
            start = time.monotonic()
            loaded = safetensors.torch.load_file(path)
            for name, t in loaded.items():
                tensors[name].copy_(t)
            return time.monotonic() - start
        for threads in (1, 2):
            torch.set_num_threads(threads)
            who = {"ckpt_restore": ours.job(f"restore by {threads}"), "safetensors": theirs}
            took = {name: [] for name in who}
            for i in range(rounds + 1):  # the first warms up
                for name in sorted(who, reverse=i % 2 == 1):
                    seconds = who[name]()
                    if i:
                        took[name].append(seconds)
            line = f"{len(tensors):7} x {kib:7} KiB, {threads} thread{'s' if threads > 1 else ' '}"
            for name, seconds in took.items():
                rates = sorted(size / t / 1e9 for t in seconds)
                line += f"  {name} {statistics.median(rates):5.2f} ({rates[0]:.2f} to {rates[-1]:.2f})"
            ratio = statistics.median(b / a for a, b in zip(took["ckpt_restore"], took["safetensors"]))
            print(f"{line}  {ratio:.2f} x", flush=True)
        ours.close()
        del tensors
        os.unlink(path)


if __name__ == "__main__":
    main()
