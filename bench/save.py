"""save.py - a save that is on the disk when the call returns, beside its peers and beside plain writes of a new file.

The peers get the fsync that they do not do themselves. Each run writes a new file: what an older run left is removed before the
clock starts. The limit is the fastest of the writes past the page cache that are measured beside it.
"""
import os
import warnings

from measure import TENSOR_MIB, gone, synced, timed

DIRECT_WRITES = ((1, 8192), (2, 8192), (4, 4096))   # threads, KiB


def make_peers(b, folder):
    """{who: (the path it writes, what it does)}"""
    if not b.ask("torch.save, DCP, safetensors, tensorizer", "torch"):
        return {}
    import torch
    torch.manual_seed(1)
    tensors = {f"layers.{i}.weight": torch.randn(TENSOR_MIB << 18) for i in range(b.mib // TENSOR_MIB)}
    who = {"torch.save + fsync": (folder + ".pt", lambda: torch.save(tensors, folder + ".pt"))}
    if b.ask("safetensors save_file + fsync", "safetensors"):
        import safetensors.torch
        who["safetensors save_file + fsync"] = (folder + ".st", lambda: safetensors.torch.save_file(tensors, folder + ".st"))
    try:
        import torch.distributed.checkpoint as dcp
        warnings.simplefilter("ignore")
        who["torch DCP save + fsync"] = (folder + ".dcp", lambda: dcp.save(tensors, checkpoint_id=folder + ".dcp", no_dist=True))
    except ImportError as missing:
        b.note("torch DCP save + fsync", missing)
    if b.ask("tensorizer + fsync", "tensorizer"):
        import tensorizer

        def tensorize():
            serializer = tensorizer.TensorSerializer(folder + ".tz")
            serializer.write_state_dict(tensors)
            serializer.close()
        who["tensorizer + fsync"] = (folder + ".tz", tensorize)
    return who


def fresh(path, run):
    def job():
        gone(path)
        return run()
    return job


def measure_save(b):
    ours = b.serve("save")
    who = {"ckpt_save": fresh(ours.path, ours.job("save+sync"))}
    for threads, kib in DIRECT_WRITES[:2] if b.quick else DIRECT_WRITES:
        who[f"direct write, {threads} of {kib} KiB"] = ours.job(f"write direct by {threads} of {kib}")
    who["write + fdatasync, 8 MiB"] = ours.job("write by 1 of 8192")
    b.measure("durable save, beside plain writes", who, nbytes=b.mib // TENSOR_MIB * TENSOR_MIB << 20)
    ours.close()


def measure_save_peers(b):
    ours = b.serve("save")
    peers = make_peers(b, b.path("save"))
    who = {"ckpt_save": fresh(ours.path, ours.job("save+sync"))}

    def durable(path, save):
        def work():
            save()
            synced(path)
        return fresh(path, timed(work))
    for name, (path, save) in peers.items():
        who[name] = durable(path, save)
    b.measure("durable save, beside peers", who, nbytes=b.mib // TENSOR_MIB * TENSOR_MIB << 20)
    for path, _ in peers.values():
        gone(path)
    ours.close()
