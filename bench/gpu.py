#!/usr/bin/env python3
"""gpu.py CKPT_BENCH DIR MIB ROUNDS: from a file in the page cache into tensors on the first GPU, and back, beside torch and safetensors.

load    ours: ckpt_restore into the tensors of the model that trains, every CRC-32 compared, and without that; safetensors: load_file to the GPU and a copy_
        of each tensor; torch: torch.load of a file of torch.save, mapped and not, to the GPU, and the same copy_
save    the file is not synced: ckpt_save, which makes the CRCs; safetensors' save_file; torch.save
stall   how long an asynchronous save (ckpt_run_save) holds the training up, beside a copy of all tensors into memory that is page-locked
link    what the GPU's link takes: copies of 64 MiB from page-locked memory, by torch

Each round runs all of them once, in an order that turns. GB/s, medians (lowest to highest); last: the median of the rounds' ratios to ours.
"""
import os
import statistics
import sys
import time

from measure import Serve, gone


def main():
    import torch
    import safetensors
    import safetensors.torch
    program, folder, mib, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    print(f"torch {torch.__version__}, safetensors {safetensors.__version__}, {torch.cuda.get_device_name(0)}; {mib} MiB in all, {rounds} rounds, {os.cpu_count()} CPUs")
    path, pickled, theirs = (os.path.join(folder, f"bench-gpu.{end}") for end in ("safetensors", "pt", "their.safetensors"))
    for kib in (32 << 10, 1024, 64):
        if (mib << 10) // kib > 1 << 15:
            continue
        ours = Serve(program, path, mib, (kib, "cuda"))
        ours.job("save")()
        live = {name: torch.empty_like(t) for name, t in safetensors.torch.load_file(path, device="cuda:0").items()}
        size = sum(t.nbytes for t in live.values())
        torch.save(live, pickled)
        pinned = torch.empty(64 << 20, dtype=torch.uint8).pin_memory()
        ring = torch.empty(64 << 20, dtype=torch.uint8, device="cuda:0")

        def into(load):
            def run():
                start = time.monotonic()
                for name, t in load().items():
                    live[name].copy_(t)
                torch.cuda.synchronize()
                return time.monotonic() - start
            return run

        def timed(work):
            def run():
                torch.cuda.synchronize()
                start = time.monotonic()
                work()
                torch.cuda.synchronize()
                return time.monotonic() - start
            return run

        def link():
            for _ in range(max(1, size >> 26)):
                ring.copy_(pinned, non_blocking=True)
        groups = {"load": {"ckpt_restore": ours.job("restore"), "unchecked": ours.job("restore unchecked"),
                           **{f"by {n}": ours.job(f"restore by {n}") for n in (1, 2, 4, 8, 12)},
                           "safetensors": into(lambda: safetensors.torch.load_file(path, device="cuda:0")),
                           "torch mmap": into(lambda: torch.load(pickled, map_location="cuda:0", mmap=True)),
                           "torch": into(lambda: torch.load(pickled, map_location="cuda:0")), "link": timed(link)},
                  "stall": {"ckpt_run_save": ours.job("stall"), "plain copy": ours.job("copy out")},
                  "save": {"ckpt_save": ours.job("save"), "safetensors": timed(lambda: safetensors.torch.save_file(live, theirs)),
                           "torch": timed(lambda: torch.save(live, pickled))}}
        for what, who in groups.items():
            took = {name: [] for name in who}
            for i in range(rounds + 1):  # the first warms up
                for name in sorted(who, reverse=i % 2 == 1):
                    seconds = who[name]()
                    if i == 0:
                        print(f"# {name}: {seconds:.3f} s at first", file=sys.stderr, flush=True)
                    else:
                        took[name].append(seconds)
            first = next(iter(who))
            print(f"{what} {len(live)} x {kib} KiB")
            for name, seconds in took.items():
                rates = sorted(size / t / 1e9 for t in seconds)
                ratio = statistics.median(b / a for a, b in zip(took[first], seconds))
                print(f"  {name:14}{statistics.median(rates):7.2f} ({rates[0]:.2f} to {rates[-1]:.2f})  {ratio:.2f} x ours" if name != first else
                      f"  {name:14}{statistics.median(rates):7.2f} ({rates[0]:.2f} to {rates[-1]:.2f})", flush=True)
        ours.close()
        del live
        for file in pickled, theirs:
            gone(file)


if __name__ == "__main__":
    main()
