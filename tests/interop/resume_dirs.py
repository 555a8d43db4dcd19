#!/usr/bin/env python3
"""Directories that ckpt-migrate makes for training programs, resumed by the real programs: DeepSpeed's engine takes --to universal with
ZeRO 1, 2 and 3 in one rank and in two over gloo, the HF Trainer --to hf-trainer, and accelerate --to accelerate. Losses and parameters
behind it are those of the run that was never migrated.

usage: resume_dirs.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]
"""
import contextlib
import json
import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", DS_SKIP_CUDA_CHECK="1")

import checks
from checks import ask, check, section

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        import accelerate
        import deepspeed
        import transformers
        import logging
        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
except ImportError as e:
    checks.skip(f"{e.name} is not installed")

INSPECT, MIGRATE = checks.commands(__doc__, 2)
torch.set_num_threads(1)
BEFORE, AFTER = 3, 3                            # steps before the checkpoint and behind it


class Net(torch.nn.Module):
    """Sizes are odd, so that cuts fall inside of parameters and rows."""
    def __init__(self, width=9, frozen=False):
        super().__init__()
        self.embed = torch.nn.Embedding(width + 3, width)
        self.up, self.down = torch.nn.Linear(width, 2 * width + 1), torch.nn.Linear(2 * width + 1, width, bias=False)
        self.norm = torch.nn.LayerNorm(width)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.pos = torch.nn.Parameter(torch.arange(float(width)), requires_grad=not frozen)
        self.register_buffer("seen", torch.arange(3))

    def forward(self, x):
        return self.down(torch.tanh(self.up(self.norm(self.embed(x) + self.pos)))) * self.scale


def shrink(step):
    return 1.0 / (1 + step)


def made(alike, seed=7):
    """alike: both groups have the same settings, as stage 3 has them in any case."""
    torch.manual_seed(seed)
    net = Net(frozen=True)
    own = [p for p in net.parameters() if p.requires_grad]
    groups = [dict(params=[p for p in own if p.ndim > 1], weight_decay=0.1), dict(params=[p for p in own if p.ndim < 2], weight_decay=0.1 if alike else 0.02)]
    opt = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    return net, opt, torch.optim.lr_scheduler.LambdaLR(opt, shrink)


def loss_of(net, step):
    return net(torch.arange(5) + step % 3).float().square().mean()


# ---------------------------------------------------------------- universal

def source(folder, alike):
    """A plain program of torch: its checkpoint, and how it goes on."""
    net, opt, scheduler = made(alike)
    losses = []
    for step in range(BEFORE + AFTER):
        if step == BEFORE:
            best = torch.tensor(0.5)            # one tensor in two places, as Lightning's callbacks have it
            torch.save(dict(model=net.state_dict(), optimizer=opt.state_dict(), scheduler=scheduler.state_dict(), step=BEFORE, note=dict(order=[4, 1]),
                            callbacks=dict(best=best, kth=best)), folder + ".pt")
        loss = loss_of(net, step)
        opt.zero_grad()
        loss.backward()
        opt.step()
        scheduler.step()
        losses.append(loss.item())
    return losses[BEFORE:], {n: p.detach().clone() for n, p in net.named_parameters()}


def config(stage, universal, dtype=None):
    c = dict(train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=1, zero_allow_untested_optimizer=True, zero_force_ds_cpu_optimizer=False,
             steps_per_print=10 ** 9, zero_optimization=dict(stage=stage), checkpoint=dict(load_universal=universal))
    if dtype:
        c[dtype] = dict(enabled=True)
    return c


def go_on(engine, scheduler, steps):
    losses = []
    for step in steps:
        loss = loss_of(engine, step)
        engine.backward(loss)
        engine.step()
        if scheduler:
            scheduler.step()
        losses.append(loss.item())
    return losses


def weights(engine, stage):
    from deepspeed.utils import safe_get_full_fp32_param
    out = {}
    for name, p in engine.module.named_parameters():
        with deepspeed.zero.GatheredParameters([p], enabled=stage == 3):
            out[name] = p.detach().clone()
    return out


def engine_rank(rank, world, port, cases, out):
    """Each case: (what, directory, stage, alike, dtype, whether the engine has the scheduler)."""
    log = os.open(f"{out}-{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    deepspeed.init_distributed("gloo", rank=rank, world_size=world)
    told = {}
    for what, folder, stage, alike, dtype, owns in cases:
        try:
            net, opt, scheduler = made(alike, seed=8)       # other weights: what is not loaded shows
            with torch.no_grad():
                net.pos.copy_(torch.arange(9.0))
            engine, _, _, _ = deepspeed.initialize(model=net, optimizer=opt, lr_scheduler=scheduler if owns else None, config=config(stage, True, dtype))
            path, client = engine.load_checkpoint(folder)
            if stage == 3:                                  # one tensor for all groups, which each of them counts up: torch.optim has one each
                for state in engine.optimizer.optimizer.state.values():
                    state["step"] = state["step"].clone()
            if not owns:
                scheduler.load_state_dict(client["scheduler"])
            told[what] = dict(path=path, client={k: v for k, v in client.items() if k in ("note", "step")}, step=engine.global_steps,
                              groups=[(g["lr"], g["weight_decay"]) for g in engine.optimizer.param_groups],
                              losses=go_on(engine, None if owns else scheduler, range(BEFORE, BEFORE + AFTER)), weights=weights(engine, stage))
        except Exception as e:
            import traceback
            told[what] = dict(error=f"{type(e).__name__}: {e} {traceback.format_exc()[-600:]}")
    if rank == 0:
        torch.save(told, out)
    dist.barrier()


def zero_source(rank, world, port, cases, out):
    """Checkpoints of DeepSpeed's own: (directory, stage, dtype)."""
    log = os.open(f"{out}-{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    deepspeed.init_distributed("gloo", rank=rank, world_size=world)
    told = {}
    for folder, stage, dtype in cases:
        net, opt, scheduler = made(True)
        engine, *_ = deepspeed.initialize(model=net, optimizer=opt, lr_scheduler=scheduler, config=config(stage, False, dtype))
        go_on(engine, None, range(BEFORE))
        engine.save_checkpoint(folder, client_state=dict(note="corpus"))
        told[folder] = go_on(engine, None, range(BEFORE, BEFORE + AFTER))
    if rank == 0:
        torch.save(told, out)
    dist.barrier()


def migrated(what, source_, folder, *more):
    done = checks.run(MIGRATE, "--to", "universal", "--verify", *more, source_, folder)
    check(f"{what}: --to universal", done.returncode == 0, done.stderr)
    status, doc = ask(INSPECT, "verify", "--json", folder)
    check(f"{what}: it is whole, and universal", status == 0 and doc.get("format") == "universal", doc)
    return done


def universal(work):
    losses, last = {}, {}
    for alike in (False, True):
        base = os.path.join(work, f"plain-{alike}")
        losses[alike], last[alike] = source(base, alike)
        done = migrated(base, base + ".pt", base)
        check(f"{base}: what is not loaded is said", "pos, seen" in done.stderr and ("stage 3 copies" in done.stderr) != alike, done.stderr)
        status, doc = ask(INSPECT, "diff", "--json", base + ".pt", base)
        check(f"{base}: the step", open(f"{base}/latest_universal").read() == f"global_step{BEFORE}_universal")
        checks.run(MIGRATE, "--to", "ckpt", base + ".pt", base + ".ckpt")
        migrated(f"{base}, by way of ckpt", base + ".ckpt", base + "-ckpt")
    zeros = [(os.path.join(work, f"zero{stage}-{dtype}"), stage, dtype) for stage, dtype in ((1, None), (2, "bf16"), (3, None))]
    mp.spawn(zero_source, (2, checks.free_port(), zeros, f"{work}/zeros"), nprocs=2)
    told = torch.load(f"{work}/zeros")
    for folder, *_ in zeros:
        migrated(folder, folder, folder + "-universal")
    cases = [(f"plain, stage {stage}, {'alike' if alike else 'apart'}", os.path.join(work, f"plain-{alike}"), stage, alike, None, False)
             for stage in (1, 2, 3) for alike in (False, True) if stage < 3 or alike]
    cases += [(f"by way of ckpt, stage {stage}", os.path.join(work, f"plain-{stage == 3}-ckpt"), stage, stage == 3, None, True) for stage in (1, 3)]
    own = [(f"{os.path.basename(folder)} in stage {to}", folder + "-universal", to, True, dtype, True) for folder, stage, dtype in zeros for to in ((1, 3) if stage != 2 else (2,))]
    for world in (1, 2):
        out = f"{work}/world-{world}"
        mp.spawn(engine_rank, (world, checks.free_port(), cases + own, out), nprocs=world)
        got = torch.load(out)
        for what, folder, stage, alike, dtype, owns in cases + own:
            one = got[what]
            name = f"world {world}, {what}"
            if not check(f"{name}: it resumes", "error" not in one and one["path"], one):
                continue
            want = losses[alike] if "plain" in folder else told[folder.removesuffix("-universal")]
            check(f"{name}: the losses of the steps behind it", all(abs(a - b) <= 1e-6 * abs(b) for a, b in zip(one["losses"], want)), f"{one['losses']}, not {want}")
            check(f"{name}: the step", one["step"] == BEFORE, one["step"])
            check(f"{name}: the client's state", one["client"].get("note") == (dict(order=[4, 1]) if "plain" in folder else "corpus"), one["client"])
            if "plain" in folder:
                check(f"{name}: the parameters", all((one["weights"][n] - p).abs().max() <= 1e-6 for n, p in last[alike].items()), one["groups"])


# ---------------------------------------------------------------- the HF Trainer

class Tokens(torch.nn.Module):
    """Dropout: what the random states were shows in the parameters."""
    def __init__(self, width=9):
        super().__init__()
        self.embed, self.norm = torch.nn.Embedding(11, width), torch.nn.LayerNorm(width)
        self.drop, self.head = torch.nn.Dropout(0.1), torch.nn.Linear(width, 11)
        self.register_buffer("seen", torch.arange(3))

    def forward(self, input_ids, labels=None):
        out = self.head(self.drop(self.norm(self.embed(input_ids))))
        return dict(loss=torch.nn.functional.cross_entropy(out.flatten(0, 1), labels.flatten()), logits=out)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return dict(input_ids=(torch.arange(4) * 3 + i * 5 + i // 7) % 11, labels=(torch.arange(4) * 2 + i * 3) % 11)


def trained(folder, resume=None, own=None, **settings):
    """The parameters after all steps; folder/checkpoint-3 lies there then. own: makes the optimizer and the scheduler of a model."""
    torch.manual_seed(7 if not resume else 8)
    args = transformers.TrainingArguments(folder, **dict(dict(max_steps=BEFORE + AFTER, per_device_train_batch_size=2, learning_rate=1e-2, weight_decay=0.1, save_steps=BEFORE,
                                                              logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, seed=7), **settings))
    with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        model = Tokens()
        trainer = transformers.Trainer(model, args, train_dataset=Rows(), **(dict(optimizers=own(model)) if own else {}))
        trainer.train(resume_from_checkpoint=resume)
    return {n: p.detach().clone() for n, p in trainer.model.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def to(format, what, source_, folder, *more, lost=()):
    """--lossy is wanted where something is lost, and that is what is said."""
    if lost:
        done = checks.run(MIGRATE, "--to", format, *more, source_, folder)
        check(f"{what}: what is lost is an error", done.returncode != 0 and not os.path.exists(folder) and all(w in done.stderr for w in lost), done.stderr)
    done = checks.run(MIGRATE, "--to", format, "--verify", *(["--lossy"] if lost else []), *more, source_, folder)
    check(f"{what}: --to {format}", done.returncode == 0, done.stderr)
    check(f"{what}: as many losses as that", done.stderr.count(" lost: ") == len(lost), done.stderr)
    status, doc = ask(INSPECT, "verify", "--json", folder)
    check(f"{what}: it is whole, and {format}", status == 0 and doc.get("format") == format, doc)
    return done


NAMES = [n for keep in (True, False) for n in ("embed.weight", "norm.weight", "norm.bias", "head.weight", "head.bias") if (n.endswith("weight") and "norm" not in n) == keep]


def as_the_trainers(work, saved, want):
    """By way of other formats the optimizer's file has what the Trainer has written: no key more, none less, in its order."""
    trained(f"{work}/even", weight_decay=0.0, max_steps=BEFORE)
    trained(f"{work}/factored", optim="adafactor", max_steps=BEFORE)
    with open(f"{work}/names", "w") as f:
        f.write("\n".join(NAMES) + "\n")
    for kind, source_, ways in (("with decay", saved, ("ckpt", "torch", "dcp", "universal", "hf-trainer-fsdp")), ("without decay", f"{work}/even/checkpoint-{BEFORE}", ("ckpt", "dcp")),
                                ("Adafactor", f"{work}/factored/checkpoint-{BEFORE}", ("ckpt", "dcp"))):
        own = torch.load(f"{source_}/optimizer.pt", weights_only=False)
        check(f"the Trainer's optimizer, {kind}: two groups, and no names", len(own["param_groups"]) == 2 and not any("param_names" in g for g in own["param_groups"]), own["param_groups"])
        for way in ways:
            what, between = f"the Trainer's, {kind}, by way of {way}", f"{work}/{kind.replace(' ', '-')}-{way}" + {"ckpt": ".safetensors", "torch": ".pt"}.get(way, "")
            for of, folder, *args in ((source_, between, "--to", way, "--param-names", f"{work}/names"), (between, between + "-back", "--to", "hf-trainer")):
                done = checks.run(MIGRATE, *args, "--lossy", of, folder)
                if not check(f"{what}: {' '.join(args[:2])}", done.returncode == 0, done.stderr):
                    break
            else:
                got = checks.differs(own, torch.load(f"{between}-back/optimizer.pt", weights_only=False))
                check(f"{what}: its optimizer.pt", not got, got[:5])
    check("the Trainer's, by way of universal: bit-equal after more steps", same(trained(f"{work}/r0", f"{work}/with-decay-universal-back"), want))


def hf_trainer(work):
    live = f"{work}/live"
    want = trained(live)
    saved = f"{live}/checkpoint-{BEFORE}"
    check("the Trainer: its own checkpoint goes on as it does", same(trained(f"{work}/own", saved), want))
    os.mkdir(f"{work}/again")
    to("hf-trainer", "its own checkpoint", saved, f"{work}/again/checkpoint-{BEFORE}")
    check("its own checkpoint: the state of the Trainer is that file", open(f"{saved}/trainer_state.json").read() == open(f"{work}/again/checkpoint-{BEFORE}/trainer_state.json").read())
    check("its own checkpoint: bit-equal after more steps", same(trained(f"{work}/r1", f"{work}/again/checkpoint-{BEFORE}"), want))
    # What a plain program of torch would have saved of that run.
    from safetensors.torch import load_file
    load = lambda name: torch.load(f"{saved}/{name}", weights_only=False)
    plain = dict(net=load_file(f"{saved}/model.safetensors"), opt=load("optimizer.pt"), lr_scheduler=load("scheduler.pt"), rng=load("rng_state.pth"), global_step=BEFORE)
    torch.save(plain, f"{work}/plain.pt")
    done = to("hf-trainer", "a file of torch", f"{work}/plain.pt", f"{work}/from-torch")
    check("a file of torch: trainer_state.json was made, and that is said", "logging_steps" in done.stderr, done.stderr)
    check("a file of torch: bit-equal after more steps", same(trained(f"{work}/r2", f"{work}/from-torch"), want))
    # A ckpt file has names: those of the Trainer's order are stated.
    with open(f"{work}/names", "w") as f:
        f.write("\n".join(NAMES) + "\n")
    done = checks.run(MIGRATE, "--to", "ckpt", "--param-names", f"{work}/names", f"{work}/plain.pt", f"{work}/n.safetensors")
    check("a ckpt file is made", done.returncode == 0, done.stderr)
    to("hf-trainer", "a ckpt file", f"{work}/n.safetensors", f"{work}/from-ckpt")
    check("a ckpt file: bit-equal after more steps", same(trained(f"{work}/r3", f"{work}/from-ckpt"), want))
    as_the_trainers(work, saved, want)
    # One group: the Trainer refuses it, and goes on with an optimizer that is given.
    def one_group(model):
        opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
        return opt, torch.optim.lr_scheduler.LambdaLR(opt, shrink)
    one = trained(f"{work}/one", own=one_group)
    files = {name: torch.load(f"{work}/one/checkpoint-{BEFORE}/{name}", weights_only=False) for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth")}
    torch.save(dict(net=load_file(f"{work}/one/checkpoint-{BEFORE}/model.safetensors"), opt=files["optimizer.pt"], lr_scheduler=files["scheduler.pt"],
                    rng=files["rng_state.pth"], global_step=BEFORE), f"{work}/one.pt")
    done = to("hf-trainer", "one group", f"{work}/one.pt", f"{work}/of-one")
    check("one group: that is said", "trainer-groups" in done.stderr and "1 group," in done.stderr, done.stderr)
    try:
        trained(f"{work}/r5", f"{work}/of-one")
        check("one group: the Trainer refuses it", False)
    except ValueError as e:
        check("one group: the Trainer refuses it", "different number of parameter groups" in str(e), e)
    check("one group: bit-equal with an optimizer that is given", same(trained(f"{work}/r6", f"{work}/of-one", own=one_group), one))
    # Where nothing says the step, the optimizer has counted it.
    torch.save({k: v for k, v in plain.items() if k != "global_step"}, f"{work}/no-step.pt")
    done = to("hf-trainer", "no step", f"{work}/no-step.pt", f"{work}/counted")
    check("no step: what the optimizer counted, and that is said", "step-from-optimizer" in done.stderr and
          json.load(open(f"{work}/counted/trainer_state.json"))["global_step"] == BEFORE, done.stderr)
    check("no step: bit-equal after more steps", same(trained(f"{work}/r4", f"{work}/counted"), want))
    # Without a scheduler the Trainer would begin with a new optimizer, without a word.
    del plain["lr_scheduler"]
    torch.save(plain, f"{work}/no-scheduler.pt")
    to("hf-trainer", "no scheduler", f"{work}/no-scheduler.pt", f"{work}/without", lost=["optimizer.pt and scheduler.pt together"])
    to("accelerate", "the Trainer's, for accelerate", saved, f"{work}/accelerate", lost=["training_args.bin", "trainer_state.json"])


# ---------------------------------------------------------------- accelerate

def goes_on(folder, alike, steps=AFTER):
    net, opt, scheduler = made(alike, seed=8)
    accelerator = accelerate.Accelerator(cpu=True)
    net, opt, scheduler = accelerator.prepare(net, opt, scheduler)
    accelerator.load_state(folder)
    losses = []
    for step in range(BEFORE, BEFORE + steps):
        loss = loss_of(net, step)
        opt.zero_grad()
        accelerator.backward(loss)
        opt.step()
        scheduler.step()
        losses.append(loss.item())
    return losses, {n: p.detach().clone() for n, p in net.named_parameters()}


def of_accelerate(work):
    base = f"{work}/plain-acc"
    losses, last = source(base, False)
    to("accelerate", "a file of torch, for accelerate", base + ".pt", base, lost=["'note'", "'callbacks'"])
    got, now = goes_on(base, False)
    check("a file of torch, for accelerate: losses and parameters are the run's", got == losses and same(now, last), f"{got}, not {losses}")
    zero = f"{work}/zero1-None"                                  # fp32, of two ranks, whose groups are alike
    if os.path.isdir(zero):
        told = torch.load(f"{work}/zeros")[zero]
        done = checks.run(MIGRATE, "--to", "accelerate", "--verify", zero, zero + "-accelerate")
        check("ZeRO 1 of two ranks, for accelerate: DeepSpeed's own values are lost", done.returncode != 0 and "lost: 'ds_config'" in done.stderr, done.stderr)
        done = checks.run(MIGRATE, "--to", "accelerate", "--verify", "--lossy", zero, zero + "-accelerate")
        check("ZeRO 1 of two ranks, for accelerate", done.returncode == 0, done.stderr)
        got, now = goes_on(zero + "-accelerate", True)
        check("ZeRO 1 of two ranks, for accelerate: the losses are the run's", all(abs(a - b) <= 1e-6 * abs(b) for a, b in zip(got, told)), f"{got}, not {told}")


def main():
    with checks.scratch() as work:
        with section("universal"):
            universal(work)
        with section("the HF Trainer"):
            hf_trainer(work)
        with section("accelerate"):
            of_accelerate(work)
    checks.finish()


if __name__ == "__main__":
    main()
