#!/usr/bin/env python3
"""Checkpoints of two ranks that have random states, loaders and counters of their own, for tests/unit/migrate/test_rank_state.c.

    pip install torch==2.13.0 accelerate==1.15.0 megatron-core==0.16.1 safetensors numpy
    python make.py tests/data/ranks

The ranks are processes over gloo, of the programs themselves, but for what is imitated (README). Rank r seeds its generators with r."""
import argparse, os, pickle, random, shutil, sys

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp

WORLD = 2


def join(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)


def net():
    torch.manual_seed(1)
    return torch.nn.Linear(4, 3)


def seed(rank):
    torch.manual_seed(rank), random.seed(rank), np.random.seed(rank)


def of_gpus(rank):
    """torch.cuda.get_rng_state_all() of a machine with two GPUs: 16 bytes each."""
    return [torch.full((16,), 10 * rank + gpu, dtype=torch.uint8) for gpu in range(2)]


def accelerate_main(rank, out, port):
    import accelerate
    join(rank, port)
    a = accelerate.Accelerator(cpu=True)
    model = net()
    opt = torch.optim.AdamW(model.parameters())
    model, opt = a.prepare(model, opt)
    model(torch.ones(2, 4)).sum().backward()
    opt.step()
    seed(rank)
    a.save_state(f"{out}/accelerate")
    name = f"{out}/accelerate/random_states_{rank}.pkl"
    states = torch.load(name, weights_only=False)
    states["torch_cuda_manual_seed"] = of_gpus(rank)  # imitated: as accelerate/checkpointing.py adds it where there are GPUs
    torch.save(states, name)
    if rank == 0:  # imitated: what it writes of a StatefulDataLoader, in the main process alone
        torch.save({"_num_yielded": 3, "_sampler_iter_yielded": 3}, f"{out}/accelerate/dl_state_dict.bin")
    dist.barrier()
    dist.destroy_process_group()


def dcp_main(rank, out, port):
    join(rank, port)
    model = net()
    seed(rank)
    state = {"model": model.state_dict(), "step": 7, "rng": {f"rank_{rank}": torch.get_rng_state()},
             f"python_rng_rank_{rank}": random.getstate()[1][:4],
             "alike_rng": {f"rank_{rank}": torch.arange(5, dtype=torch.uint8)},
             "dataloader": {f"dp_rank_{rank}": pickle.dumps({"_sample_idx": 5 + rank}, 2), "world_size": WORLD},  # as torchtitan has it
             "sampler": {f"rank_{rank}": {"epoch": 1, "seed": 3}},
             f"rank_{rank}": {"rng_state": torch.get_rng_state(), "seen": 40 + rank}}
    dcp.save(state, checkpoint_id=f"{out}/dcp")
    dist.destroy_process_group()


def verl_main(rank, out, port):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    join(rank, port)
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,), mesh_dim_names=("fsdp",)))
    seed(rank)
    folder = f"{out}/verl"
    os.makedirs(folder, exist_ok=True)
    tail = f"world_size_{WORLD}_rank_{rank}.pt"
    torch.save(model.state_dict(), f"{folder}/model_{tail}")
    torch.save({"lr_scheduler": {"last_epoch": 3}, "mine": rank,
                "rng": {"cpu": torch.get_rng_state(), "numpy": np.random.get_state(), "random": random.getstate()}}, f"{folder}/extra_state_{tail}")
    dist.barrier()
    dist.destroy_process_group()


def states(rank):
    """get_rng_state of Megatron-LM (checkpointing.py)."""
    seed(rank)
    gpus = of_gpus(rank)
    return {"random_rng_state": random.getstate()[1][:4], "np_rng_state": np.random.get_state(), "torch_rng_state": torch.get_rng_state(),
            "cuda_rng_state": gpus[0], "rng_tracker_states": {"model-parallel-rng": gpus[1]}}


def torch_dist_main(rank, out, port):
    from megatron.core import dist_checkpointing as save
    from megatron.core.dist_checkpointing.mapping import ShardedObject
    from megatron.core.dist_checkpointing import ShardedTensor
    join(rank, port)
    torch.cuda.current_device, torch.cuda.synchronize = lambda: "cpu", lambda *a: None  # which megatron-core takes for granted
    torch.Tensor.cuda = lambda self, *a, **k: self
    weight = torch.arange(12.).reshape(4, 3)
    sharded = {"w": ShardedTensor.from_rank_offsets("output_layer.weight", weight[2 * rank:2 * rank + 2].clone(), (0, rank, WORLD)),
               "rng_state": ShardedObject("rng_state", [states(rank), states(10 + rank)], (1, WORLD), (0, rank)),
               "machine": ShardedObject("rerun_state_machine_state", {"data_iterator_checkpoints": [{"at": rank}]}, (WORLD,), (rank,)),
               "args": argparse.Namespace(tensor_model_parallel_size=WORLD, pipeline_model_parallel_size=1, world_size=WORLD, rank=0,
                                          consumed_train_samples=20), "iteration": 5, "checkpoint_version": 3.0}
    os.makedirs(f"{out}/torch-dist", exist_ok=True)
    dist.barrier()
    save.save(sharded, f"{out}/torch-dist")
    dist.destroy_process_group()


def hf_trainer(out):
    """Imitated after transformers/trainer.py, _save_rng_state, where there are GPUs."""
    from safetensors.torch import save_file
    folder = f"{out}/hf-trainer"
    os.makedirs(folder, exist_ok=True)
    model = net()
    save_file(model.state_dict(), f"{folder}/model.safetensors")
    with open(f"{folder}/trainer_state.json", "w") as f:
        f.write('{"epoch": 0.5, "global_step": 4, "log_history": []}')
    for rank in range(WORLD):
        seed(rank)
        torch.save({"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state(), "cuda": of_gpus(rank)},
                   f"{folder}/rng_state_{rank}.pth")


def megatron(out):
    """Imitated after Megatron-LM's older layout: two tensor parallel ranks, in each two data parallel ones."""
    for rank in range(WORLD):
        folder = f"{out}/megatron/mp_rank_{rank:02d}"
        os.makedirs(folder, exist_ok=True)
        args = argparse.Namespace(tensor_model_parallel_size=WORLD, pipeline_model_parallel_size=1, world_size=2 * WORLD, rank=0,
                                  consumed_train_samples=20)
        torch.save({"args": args, "checkpoint_version": 3.0, "iteration": 5, "model": {"decoder.final_layernorm.weight": torch.ones(4)},
                    "rng_state": [states(rank), states(10 + rank)]}, f"{folder}/model_optim_rng.pt")


def lists(out):
    """A program of its own, which has gathered what the ranks had."""
    cpu = []
    for rank in range(WORLD):
        seed(rank)
        cpu.append(torch.get_rng_state())
    model = dict(net().state_dict(), **{f"random_proj.rank_{k}.weight": torch.full((2, 2), float(k)) for k in range(2)})
    torch.save({"model": model, "random_transforms": [{"p": 0.1}, {"p": 0.2}], "samplers": [{"kind": "a"}, {"kind": "b"}], "rng_states": cpu, "cuda_rng_states": of_gpus(0), "small_rng_states": [t[:16].clone() for t in cpu],
                "sampler_states": [{"epoch": 1, "at": rank} for rank in range(WORLD)]}, f"{out}/lists.pt")


if __name__ == "__main__":
    out = os.path.abspath(sys.argv[1])
    for name in ("accelerate", "dcp", "verl", "torch-dist", "hf-trainer", "megatron"):
        shutil.rmtree(f"{out}/{name}", ignore_errors=True)
    for port, main in enumerate((accelerate_main, dcp_main, verl_main, torch_dist_main), 29811):
        mp.spawn(main, (out, port), nprocs=WORLD)
    hf_trainer(out)
    megatron(out)
    lists(out)
