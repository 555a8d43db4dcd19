#!/usr/bin/env python3
"""bench.py CKPT_BENCH DIR MIB ROUNDS: save and load, this library beside its peers, in one run.

Every round runs each competitor once, one after the other, so that what the machine does meanwhile hits all alike; the
table has the median of the rounds, their range, and the ratio to ours. The peers are torch.save / torch.load and
safetensors' save_file / load_file where the Python that runs this has them, and plain write() / read() of as many bytes.

"durable": on disk when the call returns (the peers get the fsync that they do not do themselves). "warm": the file is in
the page cache. A load ends in the memory of the model that trains: every byte is where it is used.
"""
import os
import statistics
import subprocess
import sys
import time

TENSOR_MIB = 16


class Ours:
    """One line in, the seconds of that job out."""

    def __init__(self, program, path, mib, kib=None):
        command = [program, path, str(mib), *map(str, kib if isinstance(kib, tuple) else (kib,) if kib else ())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.build = self.process.stdout.readline().strip()

    def job(self, name):
        def run():
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
            return float(self.process.stdout.readline())
        return run

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def warmed(path, run):
    """Reads the file into the page cache first: a durable save may have gone past it."""
    def job():
        with open(path, "rb", buffering=0) as f:
            while f.read(8 << 20):
                pass
        return run()
    return job


def timed(work):
    def run():
        start = time.monotonic()
        work()
        return time.monotonic() - start
    return run


def synced(save, path):
    def work():
        save()
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    return work


def peers(folder, count):
    """{what is done: {who: a function that gives its seconds}}"""
    try:
        import torch
        import safetensors.torch
    except ImportError as missing:
        print(f"peers: {missing}: not measured")
        return {}, []
    torch.manual_seed(1)
    tensors = {f"layers.{i}.weight": torch.randn(TENSOR_MIB << 18) for i in range(count)}
    pt, st = os.path.join(folder, "bench.pt"), os.path.join(folder, "bench.peer.safetensors")

    def copied(loaded):
        for name, value in loaded.items():
            tensors[name].copy_(value)

    def save_pt():
        torch.save(tensors, pt)

    def save_st():
        safetensors.torch.save_file(tensors, st)

    print(f"torch {torch.__version__}, safetensors {safetensors.__version__}, {torch.get_num_threads()} threads")
    return {
        "save, durable": {"torch.save + fsync": timed(synced(save_pt, pt)), "safetensors save_file + fsync": timed(synced(save_st, st))},
        "save, page cache": {"torch.save": timed(save_pt), "safetensors save_file": timed(save_st)},
        "load, warm": {"torch.load": warmed(pt, timed(lambda: copied(torch.load(pt)))),
                       "torch.load(mmap=True)": warmed(pt, timed(lambda: copied(torch.load(pt, mmap=True)))),
                       "safetensors load_file": warmed(st, timed(lambda: copied(safetensors.torch.load_file(st))))},
    }, [pt, st]


def main():
    program, folder, mib, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    count = mib // TENSOR_MIB
    size = count * TENSOR_MIB << 20
    path, raw = os.path.join(folder, "bench.safetensors"), os.path.join(folder, "bench.raw")
    ours, plain = Ours(program, path, mib), Ours(program, raw, mib)
    print("ckpt:", ours.build)
    table = {
        "save, durable": {"ckpt_save": ours.job("save+sync")},
        "save, page cache": {"ckpt_save, no_sync": ours.job("save")},
        "load, warm": {"ckpt_restore, CRCs checked": warmed(path, ours.job("restore")),
                       "ckpt_restore, no_verify": warmed(path, ours.job("restore unchecked"))},
    }
    others, files = peers(folder, count)
    for what, who in others.items():
        table[what].update(who)
    table["save, durable"]["write() + fdatasync"] = plain.job("write+sync")
    table["save, page cache"]["write()"] = plain.job("write")
    table["load, warm"]["read()"] = warmed(raw, plain.job("read"))
    seconds = {what: {who: [] for who in row} for what, row in table.items()}
    for i in range(rounds + 1):           # the first one warms up and is not counted
        for what, row in table.items():
            for who, run in row.items():
                took = run()
                if i:
                    seconds[what][who].append(took)
    print(f"{count} tensors of float32, {mib} MiB, {rounds} rounds; GB/s: median (lowest to highest), and against the first")
    for what, row in seconds.items():
        print(what)
        first = None
        for who, took in row.items():
            rates = sorted(size / t / 1e9 for t in took)
            median = statistics.median(rates)
            first = first or median
            print(f"  {who:32} {median:6.2f}  ({rates[0]:.2f} to {rates[-1]:.2f})  {median / first:5.2f} x")
    ours.close()
    plain.close()
    for name in (path, raw, *files):
        if os.path.exists(name):
            os.unlink(name)


if __name__ == "__main__":
    main()
