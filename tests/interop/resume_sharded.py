#!/usr/bin/env python3
"""What ckpt-migrate --to hf-trainer-fsdp, hf-trainer-deepspeed, accelerate-fsdp and accelerate-deepspeed write, resumed by the real
programs in three ranks over gloo. The sources are the programs' own checkpoints of two ranks (FSDP2, ZeRO 1, ZeRO 3) and of one process.
The losses behind it are those of the program's own way into three ranks, to the bit: FSDP2's own directory, and for DeepSpeed what
its ds_to_universal makes. Of one process they are those of a plain program that goes on with the same state.

usage: resume_sharded.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]
"""
import argparse
import contextlib
import os
import time

import checks
from checks import ask, check, section
import trainers_sharded as ts                   # the programs; skips where one is not installed

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers

SAVED_BY, RANKS = 2, 3
own_config = ts.zero_config
# name: the program, and where its checkpoint lies below its folder
SOURCES = {"trainer-fsdp": dict(run="of_trainer", fsdp=2, type="SHARDED_STATE_DICT"), "accelerate-fsdp": dict(run="of_accelerate", fsdp=2, type="SHARDED_STATE_DICT"),
           "trainer-zero1": dict(run="of_trainer", stage=1), "accelerate-zero1": dict(run="of_accelerate", stage=1),
           "trainer-zero3": dict(run="of_trainer", stage=3), "accelerate-zero3": dict(run="of_accelerate", stage=3)}
TO = {"trainer-fsdp": "hf-trainer-fsdp", "accelerate-fsdp": "accelerate-fsdp", "trainer-zero1": "hf-trainer-deepspeed", "accelerate-zero1": "accelerate-deepspeed",
      "trainer-zero3": "hf-trainer-deepspeed", "accelerate-zero3": "accelerate-deepspeed"}
BELOW = {"trainer": f"checkpoint-{ts.BEFORE}", "accelerate": ""}


def below(name, folder):
    return os.path.join(folder, BELOW[name.split("-")[0]])


def ranks_main(rank, world, port, jobs, out):
    """jobs: (name, program, folder, whether it resumes). What each returns, or the error, is in `out`."""
    import traceback
    log = os.open(f"{out}-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    ts.WORLD = world
    ts.deepspeed.init_distributed("gloo", rank=rank, world_size=world)
    told = {}
    for name, program, folder, resumes in jobs:
        case = dict(SOURCES[program], resume=resumes)
        ts.zero_config = lambda stage: dict(own_config(stage), checkpoint=dict(load_universal=resumes))
        begun = time.time()
        try:
            told[name] = getattr(ts, case["run"])(case, folder)
        except Exception as e:
            told[name] = f"{type(e).__name__}: {e} {traceback.format_exc()[-900:]}"
        print("TIME", name, time.time() - begun, flush=True)
    if rank == 0:
        torch.save(told, out)
    dist.barrier()


# ---------------------------------------------------------------- one process

def one_trainer(folder):
    """The Trainer in one process: its checkpoint, and the learning rates of the steps behind it."""
    rates = []

    class Look(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, optimizer=None, **more):
            rates.append(optimizer.param_groups[0]["lr"])

    args = transformers.TrainingArguments(folder, max_steps=ts.BEFORE + ts.AFTER, per_device_train_batch_size=ts.ROWS, learning_rate=1e-2, adam_beta2=0.95, weight_decay=0.1,
                                          lr_scheduler_type="inverse_sqrt", max_grad_norm=0.0, save_steps=ts.BEFORE, report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=100)
    torch.manual_seed(7)
    with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        transformers.Trainer(ts.Net(), args, train_dataset=ts.Rows(), callbacks=[Look()]).train()
    return rates[-ts.AFTER:]


def one_torch(path):
    """A plain program of torch, with accelerate's groups and scheduler."""
    net, opt, schedule = ts.made()
    for step in range(ts.BEFORE):
        net(**ts.batch(step, 0))["loss"].backward()
        opt.step()
        schedule.step()
        opt.zero_grad()
    torch.save(dict(model=net.state_dict(), optimizer=opt.state_dict(), scheduler=schedule.state_dict(), step=ts.BEFORE), path)
    return [1e-2 * ts.shrink(s) for s in range(ts.BEFORE, ts.BEFORE + ts.AFTER)]


def goes_on(weights, states, rates, order):
    """A plain program with the mean of the losses of so many ranks as there will be."""
    net = ts.Net()
    net.load_state_dict(weights)
    named = dict(net.named_parameters())
    return ts.steps_alone(net, [named[n] for n in order], states, rates)


# ---------------------------------------------------------------- the directories

def universal(program, source, folder):
    """The program's own way to another number of ranks."""
    from deepspeed.checkpoint import ds_to_universal
    os.makedirs(folder)
    trainer = program.startswith("trainer")
    tag = f"global_step{ts.BEFORE}" if trainer else "pytorch_model"
    with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        ds_to_universal.main(argparse.Namespace(input_folder=f"{source}/{tag}", output_folder=f"{folder}/{tag}{'_universal' if trainer else ''}", num_extract_workers=1, num_merge_workers=1,
                                                keep_temp_folder=False, strict=True, inject_missing_state=True))
    if trainer:
        with open(f"{folder}/latest_universal", "w") as f:
            f.write(f"{tag}_universal")
    for name in os.listdir(source):
        if os.path.isfile(f"{source}/{name}") and not name.startswith("latest"):
            with open(f"{source}/{name}", "rb") as f, open(f"{folder}/{name}", "wb") as g:
                g.write(f.read())


def migrated(name, to, source, folder, *more, lossy=False):
    os.makedirs(os.path.dirname(folder.rstrip("/")), exist_ok=True)
    done = checks.run(MIGRATE, "--to", to, "--world", str(RANKS), "--verify", *(["--lossy"] if lossy else []), *more, source, folder)
    check(f"{name}: --to {to}", done.returncode == 0, done.stderr)
    check(f"{name}: nothing is lost", lossy or " lost: " not in done.stderr, done.stderr)
    status, doc = ask(INSPECT, "verify", "--json", folder)
    check(f"{name}: it is whole", status == 0, doc)
    return done


def make_all(work):
    """What is resumed: (name, program, folder), and what each has to give: another one's name and 0 for the same to the bit, or losses
    and a bound."""
    jobs, want = [], {}

    def job(name, program, folder, of, bound):
        jobs.append((name, program, folder, True))
        want[name] = of, bound

    for program in SOURCES:
        source, own = below(program, f"{work}/{program}"), f"{program}: its own"
        if "zero" in program:
            universal(program, source, below(program, f"{work}/{program}-universal"))
            jobs.append((own, program, f"{work}/{program}-universal", True))
        else:
            jobs.append((own, program, f"{work}/{program}", True))
        migrated(f"{program}, of two ranks", TO[program], source, below(program, f"{work}/{program}-same"), lossy=False)
        job(f"{program}, of two ranks", program, f"{work}/{program}-same", own, 0)
    # By a file of one process, and from one way of cutting to the other.
    for program in ("trainer-fsdp", "accelerate-zero1"):
        checks.run(MIGRATE, "--to", "torch", below(program, f"{work}/{program}"), f"{work}/{program}.pt")
        migrated(f"{program}, by a file of torch", TO[program], f"{work}/{program}.pt", below(program, f"{work}/{program}-back"), lossy=True)
        job(f"{program}, by a file of torch", program, f"{work}/{program}-back", f"{program}: its own", 0)
    for program, to in (("trainer-zero1", "trainer-fsdp"), ("trainer-zero3", "trainer-fsdp"), ("accelerate-fsdp", "accelerate-zero1")):
        name = f"{program} as {to}"
        migrated(name, TO[to], below(program, f"{work}/{program}"), below(to, f"{work}/{name}"), lossy=True)
        job(name, to, f"{work}/{name}", f"{'trainer-zero1' if program == 'trainer-zero1' else to}: its own", 1e-6 if program != "trainer-zero3" else 1e-5)
    return jobs, want


def one_process(work, jobs, want):
    from safetensors.torch import load_file
    ts.WORLD = RANKS
    rates = one_trainer(f"{work}/one")
    saved, names = f"{work}/one/checkpoint-{ts.BEFORE}", [n for n, p in ts.Net().named_parameters()]
    order = [n for n in names if n.endswith("weight") and "norm" not in n] + [n for n in names if not n.endswith("weight") or "norm" in n]
    with open(f"{work}/names", "w") as f:
        f.write("\n".join(order) + "\n")
    losses = goes_on(load_file(f"{saved}/model.safetensors"), torch.load(f"{saved}/optimizer.pt"), rates, order)
    for program in ("trainer-fsdp", "trainer-zero1"):
        name = f"{program}, of one process"
        done = migrated(name, TO[program], saved, f"{work}/{name}/checkpoint-{ts.BEFORE}", "--param-names", f"{work}/names")
        check(f"{name}: that the other ranks have no random states is said", "rank-state: the random states of 1 rank" in done.stderr, done.stderr)
        state = torch.load(f"{work}/{name}/checkpoint-{ts.BEFORE}/rng_state_0.pth", weights_only=False)
        check(f"{name}: the first rank's are those of the process", torch.equal(state["cpu"], torch.load(f"{saved}/rng_state.pth", weights_only=False)["cpu"]))
        jobs.append((name, program, f"{work}/{name}", True))
        want[name] = losses, 1e-5
    rates = one_torch(f"{work}/one.pt")
    plain = torch.load(f"{work}/one.pt")
    order = [n for n, p in ts.Net().named_parameters() if p.ndim > 1] + [n for n, p in ts.Net().named_parameters() if p.ndim < 2]
    with open(f"{work}/names", "w") as f:
        f.write("\n".join(order) + "\n")
    losses = goes_on(plain["model"], plain["optimizer"], rates, order)
    for program in ("accelerate-fsdp", "accelerate-zero1"):
        name = f"{program}, of one process"
        migrated(name, TO[program], f"{work}/one.pt", f"{work}/{name}", "--param-names", f"{work}/names")
        jobs.append((name, program, f"{work}/{name}", True))
        want[name] = losses, 1e-5


def spawned(world, jobs, out):
    mp.spawn(ranks_main, (world, checks.free_port(), jobs, out), nprocs=world)
    return torch.load(out)


def main():
    with checks.scratch() as work:
        with section("the programs save"):
            told = spawned(SAVED_BY, [(p, p, f"{work}/{p}", False) for p in SOURCES], f"{work}/saved")
            for program in SOURCES:
                check(f"{program}: it runs", isinstance(told[program], list), told[program])
        with section("the directories are made"):
            jobs, want = make_all(work)
            one_process(work, jobs, want)
        with section("the programs resume"):
            got = spawned(RANKS, jobs, f"{work}/resumed")
            for name, program, *_ in jobs:
                if not check(f"{name}: it resumes", isinstance(got[name], list), got[name]) or name not in want:
                    continue
                of, bound = want[name]
                losses = got[of] if isinstance(of, str) else of
                check(f"{name}: the losses behind it", got[name] == losses if bound == 0 else ts.close(got[name], losses, bound), f"{got[name]}, not {losses}")
    checks.finish()


if __name__ == "__main__":
    INSPECT, MIGRATE = checks.commands(__doc__, 2)
    main()
