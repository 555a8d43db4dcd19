#!/usr/bin/env python3
"""What ckpt_bench measures, by the programs that people use today: torch.save and torch.load, safetensors.

    peers.py FILE MIB      the same tensors, the same lines; FILE is written and removed
"""
import os
import sys
import time

TENSOR_MIB, ROUNDS = 16, 3


def measure(what, size, work):
    best = min(work_time(work) for _ in range(ROUNDS))
    print("%-44s %6.2f GB/s  %8.3f s" % (what, size / best / 1e9, best), flush=True)


def work_time(work):
    start = time.monotonic()
    work()
    return time.monotonic() - start


def main():
    path, count = sys.argv[1], int(sys.argv[2]) // TENSOR_MIB
    try:
        import torch
        import safetensors.torch
    except ImportError as missing:
        print(f"peers: {missing}: not measured")
        return
    tensors = {f"layers.{i}.weight": torch.randn(TENSOR_MIB << 18) for i in range(count)}
    size = count * TENSOR_MIB << 20
    print(f"torch {torch.__version__}, safetensors {safetensors.__version__}, {torch.get_num_threads()} threads")

    def copied(loaded):
        for name, value in loaded.items():
            tensors[name].copy_(value)

    measure("torch.save", size, lambda: torch.save(tensors, path))
    measure("torch.load, copied into a model", size, lambda: copied(torch.load(path)))
    measure("torch.load(mmap=True), copied into a model", size, lambda: copied(torch.load(path, mmap=True)))
    measure("safetensors save_file", size, lambda: safetensors.torch.save_file(tensors, path))
    measure("safetensors load_file, copied into a model", size, lambda: copied(safetensors.torch.load_file(path)))
    os.unlink(path)


if __name__ == "__main__":
    main()
