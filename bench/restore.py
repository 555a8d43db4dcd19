"""restore.py - a restore into the memory of a model, beside its peers and beside plain reads into the same memory.

warm   The file is in the page cache. Ours compares the CRC-32 of every tensor, and nobody else does. safetensors' way is load_file
       and a copy_ of each tensor, torch's is torch.load and the same; torch copies with as many threads as ours gets. Of small
       tensors torch's files are not read: it takes seconds for some ten thousands of them.
cold   POSIX_FADV_DONTNEED before each run, and a look (cachestat, mincore) that nothing is left. The limit is the fastest of the reads past the
       page cache that are measured beside it: several sizes of blocks, by as many threads as there shall be reads under way.
"""
import os
import sys

from measure import cached, cold, gone, timed, warm

SAFETENSORS, STREAMER = "safetensors load_file + copy_", "runai-model-streamer + copy_"
MAPPED, LOADED = "torch.load(mmap) + copy_", "torch.load + copy_"
DIRECT_READS = ((1, 16384), (4, 4096), (8, 2048), (16, 1024), (32, 1024))   # threads, KiB


def prepared(prepare, run):
    def job():
        prepare()
        return run()
    return job


def make_peers(b, ours, pickled):
    """{who: (the file that it reads, a function that gives its seconds)}; the tensors are those of our file. `pickled`: torch's too."""
    if not (b.ask("torch, safetensors, runai-model-streamer", "torch") and
            b.ask("torch, safetensors, runai-model-streamer", "safetensors")):
        return {}
    import safetensors.torch
    import torch
    live = {name: torch.zeros_like(t) for name, t in safetensors.torch.load_file(ours.path).items()}
    pt = ours.path + ".pt"

    def into(load):
        def work():
            for name, tensor in load().items():
                live[name].copy_(tensor)
        return timed(work)

    def stream():
        from runai_model_streamer import SafetensorsStreamer
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(ours.path)
            for name, tensor in streamer.get_tensors():
                live[name].copy_(tensor)
    who = {SAFETENSORS: (ours.path, into(lambda: safetensors.torch.load_file(ours.path)))}
    if pickled:
        torch.save(live, pt)
        who[MAPPED] = (pt, into(lambda: torch.load(pt, mmap=True)))
        who[LOADED] = (pt, into(lambda: torch.load(pt)))
    if b.ask(STREAMER, "runai-model-streamer"):
        who[STREAMER] = (ours.path, timed(stream))
    return who


def set_threads(threads):
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def measure_warm(b):
    for kib in (16384,) if b.quick else (64, 1024, 16384):
        ours = b.serve("restore", kib=kib)
        ours.job("save")()
        warm(ours.path)
        peers = make_peers(b, ours, kib > 64)
        for threads in sorted({1, b.threads} if kib == 16384 else {b.threads}):
            set_threads(threads)
            who = {"ckpt_restore": ours.job(f"restore by {threads}"),
                   "ckpt_restore, no_verify": ours.job(f"restore unchecked by {threads}"),
                   "pread, 256 KiB": ours.job(f"read by {threads} of 256"),
                   "pread, 8 MiB": ours.job(f"read by {threads} of 8192")}
            for name, (path, run) in peers.items():
                if name != STREAMER and (kib == 16384 or name != LOADED):
                    who[name] = prepared(lambda path=path: cached(path) > 0.999 or warm(path), run)
            b.measure(f"warm, tensors of {kib} KiB, {threads} thread{'s' if threads > 1 else ''}", who,
                      nbytes=os.path.getsize(ours.path))
        gone(ours.path + ".pt")
        ours.close()


def measure_cold(b):
    ours = b.serve("restore")
    ours.job("save")()
    held = []

    def chilled(path, run):
        def job():
            cold(path)
            held.append(cached(path))
            return run()
        return job
    who = {"ckpt_restore": chilled(ours.path, ours.job("restore")),
           "ckpt_restore, through the page cache": chilled(ours.path, ours.job("restore through the cache"))}
    for threads, kib in DIRECT_READS[1:3] if b.quick else DIRECT_READS:
        who[f"direct read, {threads} of {kib} KiB"] = chilled(ours.path, ours.job(f"read direct by {threads} of {kib}"))
    who["read through the cache, 16 of 2048 KiB"] = chilled(ours.path, ours.job("read by 16 of 2048"))
    peers = make_peers(b, ours, False)
    set_threads(b.threads)
    for name, (path, run) in peers.items():
        who[name] = chilled(path, run)
    b.measure("cold, tensors of 16 MiB", who, nbytes=os.path.getsize(ours.path))
    b.groups[-1]["cached"] = round(max(held, default=0.0), 6)
    ours.close()
