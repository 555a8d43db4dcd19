#!/usr/bin/env python3
"""Makes the distributed checkpoints of this folder anew: make_dcp.py, in it. torch 2.13.0 (CPU, gloo) and zstandard 0.25.0.

Every tensor counts 0, 1, 2, ... in C order, in its own dtype, where nothing else is said.
  cut/      two ranks: rows and columns over both, uneven; a rank with nothing; one that is not in C order; values of many kinds
  ranks/    the same with use_collectives=False: a list for each rank, and what both have in both
  zstd/     one rank, with the zstd extension
  bomb/     zstd/, where the record of `whole` is a frame that decodes to 64 MiB
  shards/   two ranks, by HuggingFaceStorageWriter
  large/    the list of cut/, where the record of `notes.name` is one of 1 GiB and a byte
  models/   the same in two files a rank, of what is cut alone
  buffer/   the same, where one tensor that is not cut has the second file, so that one rank writes it
  quantized/ a quantized tensor and one that is not; nothing of it counts
  trained/  three ranks, FSDP2 and two steps of AdamW: parameters and their states lie in pieces, and do not count
  unflattened/ two ranks, flatten_state_dict=False: m is one object with a DTensor of rank 0's part, and one that both ranks have whole
"""
import os
import pickle
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import zstandard
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh


def count(*shape, dtype=torch.float32):
    return torch.arange(int(torch.Size(shape).numel())).reshape(shape).to(dtype)


def state(cut):
    return {
        "model": {"rows.weight": cut(count(5, 3), 0), "columns.weight": cut(count(3, 5, dtype=torch.bfloat16), 1), "few": cut(count(1, 4), 0),
                  "whole": count(2, 2, dtype=torch.int64), "turned": count(4, 3).t().contiguous().t()},
        "optim": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.5, "params": [0]}]},
        "notes": {"name": "a run", "list": [1, 2.5, None], "rng": (1, torch.arange(3))},
    }


def one_rank(rank, world):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29617")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    made = state(lambda t, dim: distribute_tensor(t, mesh, [Shard(dim)]))
    dcp.save(made, checkpoint_id="cut")
    dcp.save(made, checkpoint_id="ranks", use_collectives=False)
    mapping = {name: 1 for name in made["model"]}
    dcp.save({name: t.float().contiguous() for name, t in made["model"].items()}, storage_writer=dcp.HuggingFaceStorageWriter("shards", mapping, save_distributed=True))
    tensors = {name: t.float().contiguous() for name, t in made["model"].items()}
    cut = {name: tensors[name] for name in ("rows.weight", "columns.weight", "few")}
    mapping = {"rows.weight": 1, "columns.weight": 2, "few": 1}
    dcp.save(cut, storage_writer=dcp.HuggingFaceStorageWriter("models", mapping, save_distributed=True))
    mapping = {name: 2 if name == "whole" else 1 for name in tensors}
    dcp.save(tensors, storage_writer=dcp.HuggingFaceStorageWriter("buffer", mapping, save_distributed=True))
    dcp.save({"m": {"cut": distribute_tensor(count(3), mesh, [Shard(0)]), "copies": distribute_tensor(count(2), mesh, [Replicate()])}},
             checkpoint_id="unflattened", planner=dcp.DefaultSavePlanner(flatten_state_dict=False))
    dist.barrier()
    dist.destroy_process_group()


def one_trainer(rank, world):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29618")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(4, 7), torch.nn.Linear(7, 2, bias=False))
    fully_shard(net, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(2):
        net(torch.randn(3, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    model, moments = get_state_dict(net, optimizer)
    dcp.save({"model": model, "optim": moments}, checkpoint_id="trained")
    dist.barrier()
    dist.destroy_process_group()


def main():
    for name in ("cut", "ranks", "zstd", "bomb", "shards", "large", "models", "buffer", "quantized", "trained", "unflattened"):
        shutil.rmtree(name, ignore_errors=True)
    mp.start_processes(one_rank, (2,), nprocs=2, start_method="fork")
    mp.start_processes(one_trainer, (3,), nprocs=3, start_method="fork")
    dcp.save(state(lambda t, dim: t), storage_writer=dcp.FileSystemWriter("zstd", _extensions=[ZStandard()]), no_dist=True)
    dcp.save({"codes": torch.quantize_per_tensor(torch.tensor([0.5, 1, 1.5]), 0.25, 3, torch.quint8), "plain": torch.zeros(2)},
             checkpoint_id="quantized", no_dist=True)
    shutil.copytree("zstd", "bomb")
    with open("bomb/.metadata", "rb") as f:
        metadata = pickle.load(f)
    for index, info in metadata.storage_data.items():
        if index.fqn == "model.whole":
            compressor = zstandard.ZstdCompressor(level=19).compressobj()      # the size is not in the frame
            frame = compressor.compress(b"\0" * (64 << 20)) + compressor.flush()
            with open("bomb/" + info.relative_path, "ab") as f:
                info.offset, info.length = f.seek(0, 2), len(frame)
                f.write(frame)
    with open("bomb/.metadata", "wb") as f:
        pickle.dump(metadata, f)
    with open("cut/.metadata", "rb") as f:
        metadata = pickle.load(f)
    for index, info in metadata.storage_data.items():
        if index.fqn == "notes.name":
            info.offset, info.length = 1 << 20, (1 << 30) + 1
    os.mkdir("large")
    with open("large/.metadata", "wb") as f:
        pickle.dump(metadata, f)


if __name__ == "__main__":
    main()
