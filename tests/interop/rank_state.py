#!/usr/bin/env python3
"""A job of one process resumes from what two processes saved, by --rank-state.

usage: rank_state.py CKPT-INSPECT CKPT-MIGRATE [-v]

Two processes of the HF Trainer train a GPT-2 with dropout over gloo, and save; before it saves, each seeds its generators with its rank.
One process then resumes from what ckpt-migrate has made of that, and from directories that Python has made by hand: its losses are those
of the random state of rank 0. accelerate loads what is derived of its own, and torch what is derived of a distributed checkpoint.
The last line is `N passed, N failed`; exit status 77 where a program is not installed. Written for torch 2.13, transformers 5,
accelerate 1.15. A minute of CPU time."""
import os, random, shutil, sys, tempfile

import checks
from checks import check, finish, run, section, skip

try:
    import accelerate
    import numpy as np
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    import torch.multiprocessing as mp
    import transformers
except ImportError as e:
    skip(e)

WORLD, SAVED, LAST = 2, 4, 7


def seed(rank):
    torch.manual_seed(100 + rank), random.seed(100 + rank), np.random.seed(100 + rank)


def spawn(main, args, nprocs):
    """Forked from a process that has imported everything."""
    mp.start_processes(main, args, nprocs=nprocs, start_method="fork")


def be_rank(rank, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


# ---------------------------------------------------------------- the HF Trainer

class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        words = torch.randint(0, 32, (8,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": words, "labels": words}


class Seeded(transformers.TrainerCallback):
    """Ranks that have drawn differently by the time of the save."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == SAVED and args.world_size > 1:
            seed(args.process_index)


def losses(out, resume, steps):
    torch.manual_seed(1)
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, n_positions=16, vocab_size=32, resid_pdrop=0.4))
    args = transformers.TrainingArguments(output_dir=out, per_device_train_batch_size=2, max_steps=steps, save_steps=SAVED, logging_steps=1,
                                          report_to=[], use_cpu=True, disable_tqdm=True, seed=5, learning_rate=1e-2,
                                          ddp_backend="gloo" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None)
    trainer = transformers.Trainer(model=net, args=args, train_dataset=Words(), callbacks=[Seeded()])
    trainer.train(resume_from_checkpoint=resume)
    return [h["loss"] for h in trainer.state.log_history if "loss" in h][SAVED:]


def quiet():
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def train_rank(rank, out, port):
    be_rank(rank, port)
    quiet()
    losses(out, None, SAVED)


def resume_main(_, out, checkpoint, answer):
    quiet()
    torch.save(losses(out, checkpoint, LAST), answer)


def resumed(name):
    """The losses of one process that goes on from there, in a process of its own."""
    spawn(resume_main, (f"res-{name}", name, f"{name}.losses"), nprocs=1)
    return torch.load(f"{name}.losses")


def by_hand(source, name, rank):
    """What a job of one process would have saved, with the random state of that rank."""
    shutil.copytree(source, name, ignore=shutil.ignore_patterns("rng_state_*"))
    shutil.copy(f"{source}/rng_state_{rank}.pth", f"{name}/rng_state.pth")


def trainer(migrate):
    spawn(train_rank, ("hf", checks.free_port()), nprocs=WORLD)
    source = f"hf/checkpoint-{SAVED}"
    check("both ranks saved a random state", os.path.exists(f"{source}/rng_state_1.pth") and not os.path.exists(f"{source}/rng_state.pth"))
    for how in ("keep", "drop", "derive"):
        done = run(migrate, "--verify", "--rank-state", how, "--to", "same", source, how)
        check(f"--rank-state {how} --to same", done.returncode == 0, done.stderr)
        check(f"--rank-state {how} says so", "rank-state" in done.stdout and "2 ranks" in done.stdout, done.stdout)
    check("derive has rng_state.pth alone", sorted(f for f in os.listdir("derive") if "rng" in f) == ["rng_state.pth"], os.listdir("derive"))
    check("drop has none", not [f for f in os.listdir("drop") if "rng" in f], os.listdir("drop"))
    by_hand(source, "first", 0)
    by_hand(source, "second", 1)
    seen = {name: resumed(name) for name in ("derive", "first", "second", "drop", "keep")}
    check("there are losses of every step", all(len(s) == LAST - SAVED for s in seen.values()), seen)
    check("derived, the losses are those of rank 0's random state", seen["derive"] == seen["first"], seen)
    check("rank 1's gives others: dropout goes by it", seen["second"] != seen["first"], seen)
    check("without a random state they are others, too", seen["drop"] != seen["first"], seen)
    check("kept, a process that is alone finds none of its own", seen["keep"] == seen["drop"], seen)


# ---------------------------------------------------------------- accelerate

def accelerate_rank(rank, port):
    be_rank(rank, port)
    a = accelerate.Accelerator(cpu=True)
    net = torch.nn.Linear(4, 2)
    net, opt = a.prepare(net, torch.optim.AdamW(net.parameters()))
    net(torch.ones(2, 4)).sum().backward()
    opt.step()
    seed(rank)
    a.save_state("acc")
    dist.barrier()
    dist.destroy_process_group()


def load_main(_, path, answer):
    a = accelerate.Accelerator(cpu=True)
    net = torch.nn.Linear(4, 2)
    net, opt = a.prepare(net, torch.optim.AdamW(net.parameters()))
    a.load_state(path)
    torch.save([torch.rand(3), random.random(), float(np.random.rand())], answer)


def accelerates(migrate):
    spawn(accelerate_rank, (checks.free_port(),), nprocs=WORLD)
    done = run(migrate, "--verify", "--rank-state", "derive", "--to", "same", "acc", "acc-one")
    check("accelerate: derived", done.returncode == 0, done.stderr)
    check("accelerate: one file of random states", sorted(f for f in os.listdir("acc-one") if "random" in f) == ["random_states_0.pkl"])
    spawn(load_main, ("acc-one", "acc-drawn"), nprocs=1)
    drawn = torch.load("acc-drawn")
    for rank in range(WORLD):
        seed(rank)
        same = torch.equal(drawn[0], torch.rand(3)) and drawn[1] == random.random() and drawn[2] == float(np.random.rand())
        check(f"accelerate: one process draws {'' if rank == 0 else 'not '}what rank {rank} would have", same == (rank == 0))


# ---------------------------------------------------------------- a distributed checkpoint

def dcp_rank(rank, port):
    be_rank(rank, port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    seed(rank)
    dcp.save({"w": torch.ones(3), "rng": {f"rank_{rank}": torch.get_rng_state()}, "python_rng": {f"rank_{rank}": random.getstate()},
              "dataloader": {f"dp_rank_{rank}": {"at": rank}, "world_size": WORLD}}, checkpoint_id="dcp")
    dist.destroy_process_group()


def distributed(migrate):
    spawn(dcp_rank, (checks.free_port(),), nprocs=WORLD)
    done = run(migrate, "--verify", "--rank-state", "derive", "dcp", "dcp.pt")
    check("dcp: derived", done.returncode == 0, done.stderr)
    check("dcp: the place in the data is said to be left out", "dataloader.dp_rank_*: the places in the data" in done.stderr, done.stderr)
    state = torch.load("dcp.pt", weights_only=False)
    seed(0)
    check("dcp: the random states are rank 0's", list(state["rng"]) == ["rank_0"] and torch.equal(state["rng"]["rank_0"], torch.get_rng_state())
          and tuple(state["python_rng"]["rank_0"]) == random.getstate() and list(state["python_rng"]) == ["rank_0"], list(state))
    check("dcp: no place in the data", "dataloader" not in state, list(state))


def main():
    _, migrate = checks.commands(__doc__, 2)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for part in (trainer, accelerates, distributed):
            with section(part.__name__):
                part(migrate)
        os.chdir("/")
    finish()


if __name__ == "__main__":
    main()
