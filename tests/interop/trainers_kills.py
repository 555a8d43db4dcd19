#!/usr/bin/env python3
"""SIGKILL in the saves of trainers: accelerate with FSDP2 and with DeepSpeed, the HF Trainer with FSDP2, with DeepSpeed and with DDP,
two ranks over gloo, a checkpoint at every step. The commands name the newest checkpoint that is whole, call what the kill left half
written incomplete, and call nothing whole damaged.

usage: trainers_kills.py PATH/TO/ckpt-inspect   [-v]

What is whole is told without the commands: the ranks write its number into a file once all of them are back from the save. Of the last
one, which a kill may meet between the two, each file has to open in the program that reads it, and none may be missing that the one
before has.  TRAINERS_KILLS=N: so many kills of each program (1)."""
import json
import os
import pickle
import random
import shutil
import signal
import sys
import time

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", DS_SKIP_CUDA_CHECK="1")

import checks
import trainers_sharded as trainers
from checks import ask, check, section

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors import safe_open

KILLS = int(os.environ.get("TRAINERS_KILLS", 1))
WORLD, WIDTH, LIMIT = 2, 120, 120               # ranks; of the model; seconds until two checkpoints have to be there


# ---------------------------------------------------------------- what is killed

def saved(folder, number):
    """All ranks are back from the save."""
    dist.barrier()
    if dist.get_rank() == 0:
        with open(folder + ".saved", "a") as f:
            f.write(f"{number}\n")


def of_accelerate(case, folder):
    import accelerate
    from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin, ProjectConfiguration
    trainers.fresh(case)
    more = dict(project_config=ProjectConfiguration(project_dir=folder, automatic_checkpoint_naming=True))
    with trainers.accelerate_takes_the_cpu():
        if "stage" in case:
            acc = accelerate.Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=trainers.zero_config(case["stage"])), **more)
        else:
            acc = accelerate.Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(), **more)
    if "fsdp" in case:
        acc.state.device = torch.device("cpu")
    torch.manual_seed(7)
    net = trainers.Net(WIDTH)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    model, opt, schedule = acc.prepare(net, opt, torch.optim.lr_scheduler.LambdaLR(opt, trainers.shrink))
    for number in range(10000):
        acc.backward(model(**trainers.batch(number % 8, acc.process_index))["loss"])
        opt.step()
        schedule.step()
        opt.zero_grad()
        acc.save_state()
        saved(folder, number)


def of_trainer(case, folder):
    import contextlib
    from transformers import Trainer, TrainerCallback, TrainingArguments
    trainers.fresh(case)

    class Own(Trainer):
        def create_accelerator_and_postprocess(self):
            with trainers.accelerate_takes_the_cpu() if "ddp" not in case else contextlib.nullcontext():
                super().create_accelerator_and_postprocess()
            if "fsdp" in case:
                self.accelerator.state.device = torch.device("cpu")

    class Look(TrainerCallback):
        def on_save(self, args, state, control, **more):
            saved(folder, state.global_step)

    more = dict(deepspeed=trainers.zero_config(case["stage"])) if "stage" in case else {}
    if "fsdp" in case:
        more = dict(fsdp="full_shard auto_wrap", fsdp_config=dict(version=2, transformer_layer_cls_to_wrap=["Block"], state_dict_type=case["type"],
                                                                  sync_module_states=False, cpu_ram_efficient_loading=False))
    with trainers.accelerate_takes_the_cpu() if "stage" in case else contextlib.nullcontext():
        args = TrainingArguments(output_dir=folder, max_steps=10000, per_device_train_batch_size=trainers.ROWS, learning_rate=1e-3, save_steps=1, save_strategy="steps", report_to=[],
                                 use_cpu="stage" not in case, disable_tqdm=True, logging_steps=100000, remove_unused_columns=False, optim="adamw_torch",
                                 max_grad_norm=0.0, **more)
    torch.manual_seed(7)
    trainer = Own(model=trainers.Net(WIDTH), args=args, train_dataset=trainers.Rows(), callbacks=[Look()])
    trainer.model_accepts_loss_kwargs = False
    trainer.train()


CASES = {
    "accelerate-fsdp2": dict(run=of_accelerate, fsdp=2, type="SHARDED_STATE_DICT"),
    "trainer-fsdp2": dict(run=of_trainer, fsdp=2, type="SHARDED_STATE_DICT"),
    "accelerate-zero2": dict(run=of_accelerate, stage=2),
    "trainer-zero3": dict(run=of_trainer, stage=3),
    "trainer-ddp": dict(run=of_trainer, ddp=True),
}


def saves_on(rank, name, folder, port):
    out = os.open(f"{folder}.rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_WORLD_SIZE=str(WORLD))
    import deepspeed
    deepspeed.init_distributed("gloo", rank=rank, world_size=WORLD)
    CASES[name]["run"](CASES[name], folder)


# ---------------------------------------------------------------- what is left

def files_of(path):
    return sorted(os.path.relpath(os.path.join(at, n), path) for at, _, names in os.walk(path) for n in names)


def opens(path):
    """In the program that reads it."""
    try:
        if path.endswith(".json"):
            json.load(open(path))
        elif path.endswith(".safetensors"):
            with safe_open(path, "pt") as f:
                [f.get_tensor(n) for n in f.keys()]
        elif path.endswith((".pt", ".pth", ".bin", ".pkl")):
            torch.load(path, weights_only=False)
        elif path.endswith(".metadata"):
            pickle.load(open(path, "rb"))
        elif path.endswith(".distcp"):
            return os.path.getsize(path) > 0        # .metadata is written once all of them are
        else:
            return bool(open(path, "rb").read()) or os.path.basename(path) == "README.md"
    except Exception:
        return False
    return True


def is_whole(path, before):
    """Beside one that is known to be."""
    own = lambda p: {n.replace(os.path.basename(p)[11:], "N") if n.startswith("global_step") else n for n in files_of(p)}
    return own(path) == own(before) and all(opens(os.path.join(path, n)) for n in files_of(path))


def killed(what, name, number, folder, port):
    rng = random.Random(number)
    context = mp.start_processes(saves_on, (name, folder, port), nprocs=WORLD, start_method="fork", join=False)
    marks = lambda: open(folder + ".saved").read().split("\n")[:-1] if os.path.exists(folder + ".saved") else []
    top = folder + "/checkpoints" if name.startswith("accelerate") else folder
    numbers = lambda: [int(n[11:]) for n in os.listdir(top) if n.startswith("checkpoint")] if os.path.exists(top) else []
    until = time.monotonic() + LIMIT
    # Two are whole, and the next one has begun.
    while (len(marks()) < 2 or max(numbers()) <= int(marks()[-1])) and time.monotonic() < until and all(p.is_alive() for p in context.processes):
        time.sleep(0.002)
    time.sleep(rng.random() * 0.15)
    for p in context.processes:
        p.is_alive() and os.kill(p.pid, signal.SIGKILL)
    for p in context.processes:
        p.join()
    done = [int(n) for n in marks()]
    if not check(f"{what}: its program runs", len(done) >= 2, open(f"{folder}.rank-0.log").read()[-600:]):
        return False
    steps = {int(n[11:]): n for n in os.listdir(top) if n.startswith("checkpoint")}
    known = f"{top}/{steps[max(done)]}"
    whole = {n for n in steps if n in done or is_whole(f"{top}/{steps[n]}", known)}
    newest = steps[max(whole)]
    status, doc = ask(INSPECT, "show", "--json", top)
    check(f"{what}: show resumes from {newest}", status == 0 and f'/{newest}"' in (doc.get("resume") or "") + '"', (sorted(steps), sorted(whole), doc.get("resume")))
    said = {c["name"].split("/")[0]: c["complete"] for c in doc.get("checkpoints", [])}
    check(f"{what}: show says which are whole", said == {steps[n]: n in whole for n in steps}, (said, sorted(whole), doc))
    for n in sorted(steps)[-3:]:
        path = f"{top}/{steps[n]}"
        status, doc = ask(INSPECT, "verify", "--json", path)
        intact = n in whole or all(opens(os.path.join(path, f)) for f in files_of(path))
        check(f"{what}: verify says whether {steps[n]} is whole, or its files are", status == 0 if n in whole else intact or status != 0, (status, doc, files_of(path)))
        status, doc = ask(INSPECT, "doctor", "--json", path)
        check(f"{what}: doctor says whether {steps[n]} resumes", (status == 0 and doc.get("outcome") == "resumes") == (n in whole), (status, doc, files_of(path)))
    return len(whole) < len(steps)


def main():
    half = 0
    with checks.scratch() as work:
        for number in range(KILLS):
            for k, name in enumerate(CASES):
                what = f"{name}, kill {number}"
                with section(what):
                    folder = os.path.join(work, f"{name}-{number}")
                    os.makedirs(folder)
                    half += killed(what, name, number * len(CASES) + k, folder, checks.free_port())
                    if not os.environ.get("KEEP"):
                        shutil.rmtree(folder, ignore_errors=True)
        print(f"{half} of {KILLS * len(CASES)} kills left a checkpoint that was not finished")
        if os.environ.get("KEEP"):
            shutil.copytree(work, os.environ["KEEP"], dirs_exist_ok=True)
    checks.finish()


if __name__ == "__main__":
    INSPECT, = checks.commands(__doc__, 1)
    main()
