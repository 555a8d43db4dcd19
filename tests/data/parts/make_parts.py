"""Makes the files beside it: parts of a checkpoint of two ranks, as their programs leave them. torch 2.13.0, CPU, gloo.

    python make_parts.py OUT

model_world_size_2_rank_1.pt   a rank's own state_dict under FSDP2 (fully_shard), as verl saves it
whole_rank_0.pt                the same over a mesh of one rank: nothing is missing in it
__0_0.distcp, .metadata        torch.distributed.checkpoint of a model: two records in one file, and the list of them
flat.pt                        get_state_dict(flatten_optimizer_state_dict=True): a key for each value of the optimizer
flat_mixed.pt                  the same with the model's keys and the optimizer's in one dict, as torchtitan has them
"""
import os, shutil, sys
import torch, torch.nn as nn
import torch.distributed as dist, torch.multiprocessing as mp
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def rank_of(rank, world, out, name):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29591 + world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(1)
    model = nn.Linear(2, 3, bias=False)
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    if rank == world - 1:
        torch.save(model.state_dict(), os.path.join(out, name))
    dist.barrier()
    dist.destroy_process_group()


def main(out):
    mp.spawn(rank_of, (2, out, "model_world_size_2_rank_1.pt"), nprocs=2)
    mp.spawn(rank_of, (1, out, "whole_rank_0.pt"), nprocs=1)
    torch.manual_seed(1)
    model = nn.Linear(2, 3)
    optimizer = torch.optim.AdamW([{"params": [model.weight], "weight_decay": 0.1}, {"params": [model.bias], "weight_decay": 0.0}],
                                  lr=1e-3)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    weights, flat = get_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    torch.save({"model": weights, "optimizer": flat, "step": 1}, os.path.join(out, "flat.pt"))
    torch.save({**weights, **{"optimizer." + key: value for key, value in flat.items()}}, os.path.join(out, "flat_mixed.pt"))
    dcp.save(weights, checkpoint_id=os.path.join(out, "dcp"), no_dist=True)
    for name in ("__0_0.distcp", ".metadata"):
        shutil.move(os.path.join(out, "dcp", name), os.path.join(out, name))
    os.rmdir(os.path.join(out, "dcp"))


if __name__ == "__main__":
    main(sys.argv[1])
