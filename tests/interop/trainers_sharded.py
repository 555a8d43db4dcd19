#!/usr/bin/env python3
"""Sharded checkpoints that trainers write, by two ranks over gloo, read by the commands as the user has them: the HF Trainer and
accelerate with DeepSpeed (ZeRO 2 and 3) and with FSDP 1 and 2, Lightning's DeepSpeed, FSDP and model-parallel strategies. All
tensors and scalars are those of the live processes. What ckpt-migrate --to torch makes goes on in one process as the ranks do.

usage: trainers_sharded.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]

The CPU stands for the accelerator: accelerate and Lightning turn FSDP and DeepSpeed on for GPUs only, so their checks of the device
are answered for them (accelerate_takes_the_cpu, lightning_takes_the_cpu); all else is theirs."""
import contextlib
import os
import sys
import time
import types

os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", DS_SKIP_CUDA_CHECK="1")

import checks
from checks import ask, check, section

try:
    with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp
        import accelerate
        import deepspeed
        import lightning
        import transformers
        import logging
        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
except ImportError as e:
    checks.skip(f"{e.name} is not installed")

torch.set_num_threads(1)
WORLD, BEFORE, AFTER, ROWS = 2, 3, 2, 2         # ranks; steps before the checkpoint and behind it; rows of a batch


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(width), torch.nn.Linear(width, 2 * width + 1), torch.nn.Linear(2 * width + 1, width, bias=False)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Net(torch.nn.Module):
    """Sizes are odd, so that cuts fall inside of parameters and rows."""
    def __init__(self, width=9):
        super().__init__()
        self.embed = torch.nn.Embedding(11, width)
        self.blocks = torch.nn.ModuleList([Block(width), Block(width)])
        self.head = torch.nn.Linear(width, 11)
        self.register_buffer("seen", torch.arange(3))

    def forward(self, input_ids, labels=None):
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x)
        out = self.head(x)
        return dict(loss=torch.nn.functional.cross_entropy(out.flatten(0, 1), labels.flatten()), logits=out)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return dict(input_ids=(torch.arange(4) * 3 + i * 5 + i // 7) % 11, labels=(torch.arange(4) * 2 + i * 3) % 11)


def batch(step, rank):
    """What a sampler in order gives a rank."""
    first = (step * WORLD + rank) * ROWS
    return torch.utils.data.default_collate([Rows()[first + i] for i in range(ROWS)])


def made():
    torch.manual_seed(7)
    net = Net()
    groups = [dict(params=[p for p in net.parameters() if p.ndim > 1], weight_decay=0.1), dict(params=[p for p in net.parameters() if p.ndim < 2], weight_decay=0.0)]
    opt = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    return net, opt, torch.optim.lr_scheduler.LambdaLR(opt, shrink)


def shrink(step):
    return 1.0 / (1 + step)


# ---------------------------------------------------------------- what the live processes hold

def bare(name):
    return name.replace("_fsdp_wrapped_module.", "").replace("_forward_module.", "").removeprefix("module.")


def whole(t):
    return (t.full_tensor() if hasattr(t, "full_tensor") else t).detach().clone()


def of_zero(engine, stage):
    """Parameters, masters and moments of a DeepSpeed engine."""
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    truth, opt = {}, engine.optimizer
    for name, p in engine.module.named_parameters():
        name, states = bare(name), {}
        with deepspeed.zero.GatheredParameters([p], enabled=stage == 3):
            truth[name] = p.detach().clone()
        if stage == 3:
            states = dict(fp32=safe_get_full_fp32_param(p), **{k: safe_get_full_optimizer_state(p, k) for k in ("exp_avg", "exp_avg_sq")})
        else:
            g, k = next((g, k) for g, group in enumerate(opt.round_robin_bit16_groups) for k, q in enumerate(group) if q is p)
            begin, own = opt.round_robin_bit16_offsets[g][k], opt.single_partition_of_fp32_groups[g]
            for key, t in [("fp32", own), *((k, opt.optimizer.state[own][k]) for k in ("exp_avg", "exp_avg_sq"))]:
                parts = [torch.empty_like(t) for _ in range(WORLD)]
                dist.all_gather(parts, t.detach().contiguous())
                states[key] = torch.cat(parts)[begin:begin + p.numel()].view(p.shape)
        truth.update({f"optimizer.{name}.{k}": t.detach().clone() for k, t in states.items()})
        truth[f"optimizer.{name}.step"] = torch.tensor(float(BEFORE))
    truth.update({bare(n): t.clone() for n, t in engine.module.named_buffers()})
    return truth


def of_fsdp(model, opt):
    """Of FSDP2 whole DTensors; of FSDP1, where a rank has a flat slice of each parameter, the slices of all ranks. (What FSDP1 itself
    gathers of moments on the CPU is wrong: it copies exp_avg_sq over exp_avg.)"""
    from torch.distributed.fsdp import FullyShardedDataParallel
    truth, ones = {bare(n): whole(t) for n, t in model.named_buffers()}, any(isinstance(m, FullyShardedDataParallel) for m in model.modules())
    with FullyShardedDataParallel.summon_full_params(model, writeback=False) if ones else contextlib.nullcontext():
        truth.update({bare(n): whole(p) for n, p in model.named_parameters()})
    for name, p in model.named_parameters():
        for k in ("exp_avg", "exp_avg_sq", "step"):
            t = opt.state.get(p, {}).get(k)
            if ones:
                parts = [None] * WORLD
                dist.all_gather_object(parts, t)
                parts = [x for x in parts if x is not None and x.numel()]
                t = parts[0] if k == "step" else torch.cat([x.flatten() for x in parts]).reshape(truth[bare(name)].shape)
            truth[f"optimizer.{bare(name)}.{k}"] = whole(t)
    return truth


def fsdp_takes_the_cpu():
    """FSDP1 frees what it gathered of a parameter before it copies it from the CPU to the CPU (offload_to_cpu): torch then dies of
    SIGSEGV. And it asks for a GPU where it is given no device."""
    from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, FullyShardedDataParallel
    for config in (FullStateDictConfig, FullOptimStateDictConfig):
        if not hasattr(config, "own"):
            config.own = config.__init__
            config.__init__ = lambda self, offload_to_cpu=False, rank0_only=False, own=config.own: own(self)
    if not hasattr(FullyShardedDataParallel, "own"):
        FullyShardedDataParallel.own = FullyShardedDataParallel.__init__
        FullyShardedDataParallel.__init__ = lambda self, module, *more, device_id=None, own=FullyShardedDataParallel.own, **named: own(
            self, module, *more, device_id=torch.device("cpu"), **named)


def mean(loss):
    total = loss.detach().float().clone()
    dist.all_reduce(total)
    return (total / dist.get_world_size()).item()


def zero_config(stage):
    return dict(train_micro_batch_size_per_gpu=ROWS, gradient_accumulation_steps=1, zero_allow_untested_optimizer=True, steps_per_print=10 ** 9,
                zero_force_ds_cpu_optimizer=False, gradient_clipping=0.0, zero_optimization=dict(stage=stage))


def write(case, folder, truth, after, rates):
    """rates: the learning rate of each step behind the checkpoint."""
    if case.get("resume"):
        return after
    if dist.get_rank() == 0:
        torch.save(dict(truth={n: t.contiguous() for n, t in truth.items()}, after=after, rates=rates), folder + ".truth")
    dist.barrier()
    return after


# ---------------------------------------------------------------- accelerate

@contextlib.contextmanager
def accelerate_takes_the_cpu():
    """accelerate turns FSDP on where the processes have a GPU each, and counts the processes of DeepSpeed by their GPUs: those with a
    CPU count as such meanwhile."""
    import accelerate.state as state
    from accelerate.utils import DistributedType
    own = state.PartialState._prepare_backend
    state.DistributedType = types.SimpleNamespace(**dict(DistributedType.__members__, MULTI_GPU=DistributedType.MULTI_CPU))
    state.PartialState._prepare_backend = lambda self, *more: ("gloo", DistributedType.MULTI_CPU)
    try:
        yield
    finally:
        state.DistributedType, state.PartialState._prepare_backend = DistributedType, own


def fresh(case):
    from accelerate.state import AcceleratorState, GradientState, PartialState
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state(*([True] if state is AcceleratorState else []))
    fsdp_takes_the_cpu()
    for name in [n for n in os.environ if n.startswith(("FSDP_", "ACCELERATE_"))]:
        del os.environ[name]
    if "stage" in case:
        os.environ.update(ACCELERATE_USE_DEEPSPEED="true")
    if "fsdp" in case:
        os.environ.update(ACCELERATE_USE_CPU="true", ACCELERATE_USE_FSDP="true", FSDP_VERSION=str(case["fsdp"]), FSDP_STATE_DICT_TYPE=case["type"], FSDP_AUTO_WRAP_POLICY="TRANSFORMER_BASED_WRAP",
                          FSDP_TRANSFORMER_CLS_TO_WRAP="Block", FSDP_USE_ORIG_PARAMS="true", FSDP_SYNC_MODULE_STATES="false", FSDP_CPU_RAM_EFFICIENT_LOADING="false", FSDP_RESHARD_AFTER_FORWARD="true" if case["fsdp"] == 2 else "FULL_SHARD")


def accelerator_of(case):
    fresh(case)
    if "stage" in case:
        from accelerate.utils import DeepSpeedPlugin
        with accelerate_takes_the_cpu():
            return accelerate.Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=zero_config(case["stage"])))
    from accelerate.utils import FullyShardedDataParallelPlugin
    with accelerate_takes_the_cpu():
        acc = accelerate.Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin())
    acc.state.device = torch.device("cpu")                          # FSDP1 refuses cpu:0
    return acc


def empty_step(model, opt):
    """Gives an optimizer a state without a change of a parameter."""
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    kept = [(g["lr"], g["weight_decay"]) for g in opt.param_groups]
    for g in opt.param_groups:
        g["lr"] = g["weight_decay"] = 0.0
    opt.step()
    for g, (rate, decay) in zip(opt.param_groups, kept):
        g["lr"], g["weight_decay"] = rate, decay
    opt.zero_grad()


def of_accelerate(case, folder):
    acc = accelerator_of(case)
    net, opt, schedule = made()
    model, opt, schedule = acc.prepare(net, opt, schedule)

    rates = []

    def step(number):
        rates.append(opt.param_groups[0]["lr"])
        out = model(**batch(number, acc.process_index))
        acc.backward(out["loss"])
        opt.step()
        schedule.step()
        opt.zero_grad()
        return mean(out["loss"])

    truth = {}
    if case.get("resume"):
        if case.get("mended"):
            empty_step(model, opt.optimizer)
        acc.load_state(folder)
    else:
        for number in range(BEFORE):
            step(number)
        truth = of_zero(model, case["stage"]) if "stage" in case else of_fsdp(model, opt.optimizer)
        acc.save_state(folder)
    after = [step(n) for n in range(BEFORE, BEFORE + AFTER)]
    return write(case, folder, truth, after, rates[-AFTER:])


# ---------------------------------------------------------------- the HF Trainer

def of_trainer(case, folder):
    from transformers import Trainer, TrainerCallback, TrainingArguments
    fresh(case)
    losses, rates, kept = [], [], {}

    class Own(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, **more):
            loss = model(**inputs)["loss"]
            losses.append(loss.detach())
            return loss

        def _get_train_sampler(self, *more):
            return torch.utils.data.SequentialSampler(Rows())

        def create_accelerator_and_postprocess(self):
            with accelerate_takes_the_cpu():
                super().create_accelerator_and_postprocess()
            if "fsdp" in case:
                self.accelerator.state.device = torch.device("cpu")

    class Look(TrainerCallback):
        def on_step_begin(self, args, state, control, optimizer=None, **more):
            rates.append(optimizer.param_groups[0]["lr"])

        def on_step_end(self, args, state, control, model=None, optimizer=None, **more):
            if state.global_step == BEFORE:
                wrapped = trainer.model_wrapped
                kept.update(of_zero(trainer.deepspeed or wrapped, case["stage"]) if "stage" in case else of_fsdp(wrapped, getattr(optimizer, "optimizer", optimizer)))

    more = dict(deepspeed=zero_config(case["stage"])) if "stage" in case else {}
    if "fsdp" in case:
        more = dict(fsdp="full_shard auto_wrap", fsdp_config=dict(version=case["fsdp"], transformer_layer_cls_to_wrap=["Block"], use_orig_params=True,
                                                                  state_dict_type=case["type"], sync_module_states=False, cpu_ram_efficient_loading=False))
    with accelerate_takes_the_cpu() if "stage" in case else contextlib.nullcontext():
        args = TrainingArguments(output_dir=folder, max_steps=BEFORE + AFTER, per_device_train_batch_size=ROWS, learning_rate=1e-2, adam_beta2=0.95, weight_decay=0.1,
                               lr_scheduler_type="inverse_sqrt", max_grad_norm=0.0, save_steps=BEFORE, save_strategy="steps", report_to=[], use_cpu="fsdp" in case, disable_tqdm=True,
                               logging_steps=100, dataloader_num_workers=0, remove_unused_columns=False, optim="adamw_torch", **more)
    torch.manual_seed(7)
    trainer = Own(model=Net(), args=args, train_dataset=Rows(), callbacks=[Look()])
    trainer.model_accepts_loss_kwargs = False
    trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-{BEFORE}" if case.get("resume") else None)
    return write(case, folder, kept, [mean(x) for x in losses[-AFTER:]], rates[-AFTER:])


# ---------------------------------------------------------------- Lightning

def of_lightning(case, folder):
    from lightning.pytorch.accelerators import CUDAAccelerator
    from lightning.pytorch.plugins.environments import TorchElasticEnvironment
    from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy

    class TheCpu(CUDAAccelerator):
        """DeepSpeed and FSDP are refused to any other accelerator."""
        setup_device = lambda self, device: None
        setup = lambda self, trainer: None
        teardown = lambda self: None
        get_device_stats = lambda self, device: {}
        parse_devices = staticmethod(lambda devices: list(range(devices)))
        get_parallel_devices = staticmethod(lambda devices: [torch.device(*(("cpu", d) if case["as"] == "deepspeed" else ("cpu",))) for d in devices])
        auto_device_count = staticmethod(lambda: WORLD)
        is_available = staticmethod(lambda: True)

    losses, rates, kept = [], [], {}

    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(7)
            self.net = Net()

        def configure_model(self):
            if case["as"] == "model-parallel" and not hasattr(self.net.head.weight, "full_tensor"):
                from torch.distributed.fsdp import fully_shard
                for block in self.net.blocks:
                    fully_shard(block, mesh=self.device_mesh["data_parallel"])
                fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

        def training_step(self, batch_, index):
            loss = self.net(**batch(self.global_step, dist.get_rank()))["loss"]
            losses.append(loss.detach())
            rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
            return loss

        def configure_optimizers(self):
            own = list(self.parameters())
            opt = torch.optim.AdamW(own if case["as"] == "fsdp" else [dict(params=[p for p in own if p.ndim > 1], weight_decay=0.1), dict(params=[p for p in own if p.ndim < 2], weight_decay=0.0)],
                                    lr=1e-2, betas=(0.9, 0.95))
            return dict(optimizer=opt, lr_scheduler=dict(scheduler=torch.optim.lr_scheduler.LambdaLR(opt, shrink), interval="step"))

        def train_dataloader(self):
            return torch.utils.data.DataLoader(Rows(), ROWS)

    class Look(lightning.Callback):
        def on_train_batch_end(self, trainer, module, *more):
            if trainer.global_step == BEFORE and not case.get("resume"):
                kept.update(of_zero(trainer.strategy.model, case["stage"]) if "stage" in case else of_fsdp(trainer.strategy.model, trainer.optimizers[0]))
                trainer.save_checkpoint(folder + "/last.ckpt")

    if case["as"] == "deepspeed":
        config = {k: v for k, v in zero_config(case["stage"]).items() if k not in ("gradient_accumulation_steps", "gradient_clipping")}
        strategy = DeepSpeedStrategy(config=config, process_group_backend="gloo")
    elif case["as"] == "fsdp":
        strategy = FSDPStrategy(auto_wrap_policy={Block}, state_dict_type=case["type"], use_orig_params=True, process_group_backend="gloo")
    else:
        strategy = ModelParallelStrategy(data_parallel_size=WORLD, tensor_parallel_size=1, save_distributed_checkpoint=case["type"] == "sharded", process_group_backend="gloo")
    if case["as"] == "fsdp":
        fsdp_takes_the_cpu()
    os.environ.update(TORCHELASTIC_RUN_ID="1", GROUP_RANK="0")
    trainer = lightning.Trainer(accelerator=TheCpu(), devices=WORLD, strategy=strategy, plugins=[TorchElasticEnvironment()], max_steps=BEFORE + AFTER, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False, callbacks=[Look()])
    trainer.fit(Lit(), ckpt_path=folder + "/last.ckpt" if case.get("resume") else None)
    return write(case, folder, kept, [mean(x) for x in losses[-AFTER:]], rates[-AFTER:])


CASES = {
    "accelerate-zero2": dict(run=of_accelerate, stage=2),
    "accelerate-zero3": dict(run=of_accelerate, stage=3),
    "accelerate-fsdp1-sharded": dict(run=of_accelerate, fsdp=1, type="SHARDED_STATE_DICT", mends=[dict(mended=True), dict(fsdp=2)]),
    "accelerate-fsdp2-sharded": dict(run=of_accelerate, fsdp=2, type="SHARDED_STATE_DICT"),
    "accelerate-fsdp2-full": dict(run=of_accelerate, fsdp=2, type="FULL_STATE_DICT"),
    "trainer-zero2": dict(run=of_trainer, stage=2),
    "trainer-zero3": dict(run=of_trainer, stage=3),
    "trainer-fsdp1-sharded": dict(run=of_trainer, fsdp=1, type="SHARDED_STATE_DICT"),
    "trainer-fsdp2-sharded": dict(run=of_trainer, fsdp=2, type="SHARDED_STATE_DICT"),
    "lightning-zero2": {"run": of_lightning, "as": "deepspeed", "stage": 2},
    "lightning-zero3": {"run": of_lightning, "as": "deepspeed", "stage": 3},
    "lightning-fsdp-sharded": {"run": of_lightning, "as": "fsdp", "type": "sharded"},
    "lightning-model-parallel-sharded": {"run": of_lightning, "as": "model-parallel", "type": "sharded"},
    "lightning-model-parallel-full": {"run": of_lightning, "as": "model-parallel", "type": "full"},
}


WHOSE = {"accelerate-zero": "accelerate with DeepSpeed", "accelerate-fsdp": "accelerate", "trainer-zero": "the HF Trainer with DeepSpeed", "trainer-fsdp": "HF Trainer",
         "lightning-zero": "Lightning with DeepSpeed", "lightning": "Lightning"}
RESUMES = {"accelerate": "accelerator.load_state(", "trainer": "trainer.train(resume_from_checkpoint=", "lightning": "trainer.fit(model, ckpt_path="}


def ranks_main(rank, port, work, names):
    """All cases in one group of processes: each trains and saves, and then resumes by its own loader. What fails is told in a file."""
    import logging
    import traceback
    out = os.open(f"{work}/rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_WORLD_SIZE=str(WORLD))
    deepspeed.init_distributed("gloo", rank=rank, world_size=WORLD)
    for name in names:
        case, folder = CASES[name], os.path.join(work, name)
        begun = time.time()
        try:
            case["run"](case, folder)
            resumed = case["run"](dict(case, resume=True), folder)
            mended = [case["run"](dict(case, resume=True, **more), folder) for more in case.get("mends", ())]
            if rank == 0:
                torch.save((resumed, mended), folder + ".resumed")
        except Exception:
            with open(f"{folder}.failed", "a") as f:
                f.write(traceback.format_exc())
        print("TIME", name, time.time() - begun, flush=True)
    dist.barrier()


def checkpoint_of(name, folder):
    return folder + (f"/checkpoint-{BEFORE}" if name.startswith("trainer") else "/last.ckpt" if name.startswith("lightning") else "")


def compare(name, path, truth, case):
    status, doc = ask(INSPECT, "list", "--json", "--checksum", path)
    check(f"{name}: list", status == 0, doc.get("error"))
    listed = {}
    for t in doc.get("tensors", []):
        if t["role"] in ("param", "buffer"):
            key = next((n for n in truth if t["name"] == n or t["name"].endswith("." + n)), t["name"])
        else:
            key = "rng" if t["role"] == "rng" else f"optimizer.{t['param']}.{'fp32' if t['state_key'] == 'master' else t['state_key']}"
        check(f"{name}: {key} is there once", key == "rng" or key not in listed)
        listed[key] = t
    listed.pop("rng", None)
    check(f"{name}: as many tensors as the processes hold", listed.keys() == truth.keys(), sorted(listed.keys() ^ truth.keys()))
    for key, t in truth.items():
        got, said = listed.get(key, {}), [str(t.dtype)[6:], list(t.shape), checks.crc(t)]
        check(f"{name}: {key}", [got.get("dtype"), got.get("shape"), got.get("crc32")] == said, f"{got}, not {said}")


def told(name, path, case, rates):
    status, doc = ask(INSPECT, "show", "--json", path)
    whose = next(w for start, w in WHOSE.items() if name.startswith(start))
    check(f"{name}: show says whose it is", status == 0 and doc.get("producer") == whose, doc)
    if not name.startswith("accelerate-fsdp"):                      # which keeps no step
        check(f"{name}: show says the step", doc.get("step") == BEFORE, doc)
    if "full" not in name:
        check(f"{name}: show says how many ranks", f"{WORLD} data parallel ranks" in (doc.get("layout") or "") or f"by {WORLD} ranks" in (doc.get("layout") or ""), doc)
    check(f"{name}: show says what resumes it", (doc.get("resume") or "").startswith(RESUMES[name.split("-")[0]]), doc.get("resume"))
    check(f"{name}: its parts are no other checkpoints", not doc.get("checkpoints"), doc.get("checkpoints"))
    check(f"{name}: the learning rates", {g["lr"] for g in doc["optimizer"]["groups"]} == {rates[0]}, f"{doc.get('optimizer')} {rates}")
    status, doc = ask(INSPECT, "verify", "--json", path)
    check(f"{name}: verify", status == 0, doc)
    status, doc = ask(INSPECT, "doctor", "--json", path)
    return status == 0 and doc.get("outcome") == "resumes", doc


def close(a, b, bound):
    return len(a) == len(b) and all(abs(x - y) <= bound * abs(y) for x, y in zip(a, b))


def dicts(value):
    """All dicts in a value."""
    if isinstance(value, dict):
        yield value
    for v in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        yield from dicts(v)


def steps_alone(net, own, states, rates):
    """One process goes on with the parameters of the groups, the mean of the ranks' losses, and the learning rates that they had. Its losses."""
    sizes = [len(g["params"]) for g in states["param_groups"]]
    opt = torch.optim.AdamW([dict(params=own[:sizes[0]]), *([dict(params=own[sizes[0]:])] if len(sizes) > 1 else [])])
    opt.load_state_dict(states)
    losses = []
    for k, rate in enumerate(rates):
        loss = sum(net(**batch(BEFORE + k, r))["loss"] for r in range(WORLD)) / WORLD
        opt.zero_grad()
        loss.backward()
        for g in opt.param_groups:
            g["lr"] = rate
        opt.step()
        losses.append(loss.item())
    return losses


def goes_on(name, path, out, after, rates):
    """One process does as the ranks do."""
    done = checks.run(MIGRATE, "--to", "torch", "--verify", path, out)
    if not check(f"{name}: --to torch", done.returncode == 0, done.stderr):
        return
    saved = torch.load(out, weights_only=False)
    weights = next(d for d in dicts(saved) if any(isinstance(k, str) and k.endswith("head.weight") and torch.is_tensor(v) for k, v in d.items()))
    states = next(d for d in dicts(saved) if "param_groups" in d)
    net = Net()
    net.load_state_dict({k.removeprefix("net."): v for k, v in weights.items()})
    own = [p for n, p in net.named_parameters()]
    if len(states["param_groups"]) == 2:
        own = [p for p in own if p.ndim > 1] + [p for p in own if p.ndim < 2]
    losses = steps_alone(net, own, states, rates)
    check(f"{name}: one process goes on as the ranks do", close(losses, after, 1e-5), f"{losses}, not {after}")


def examined(name, folder, case):
    if os.path.exists(folder + ".failed"):
        check(f"{name}: its program runs", False, open(folder + ".failed").read()[-600:])
        return
    path, held = checkpoint_of(name, folder), torch.load(folder + ".truth")
    resumed, mended = torch.load(folder + ".resumed")
    compare(name, path, held["truth"], case)
    verdict, doc = told(name, path, case, held["rates"])
    check(f"{name}: doctor is right for the program's own resume", verdict == close(resumed, held["after"], 1e-6), f"{doc} {resumed} {held['after']}")
    for number, losses in enumerate(mended):
        check(f"{name}: what doctor proposes goes on ({number})", not verdict and close(losses, held["after"], 1e-6), f"{losses} {held['after']}")
    goes_on(name, path, folder + ".pt", held["after"], held["rates"])


def main():
    with checks.scratch() as work:
        mp.spawn(ranks_main, (checks.free_port(), work, list(CASES)), nprocs=WORLD)
        for name, case in CASES.items():
            with section(name):
                examined(name, os.path.join(work, name), case)
    checks.finish()


if __name__ == "__main__" and sys.argv[1] == "probe":
    os.makedirs(sys.argv[2], exist_ok=True)
    mp.spawn(ranks_main, (checks.free_port(), sys.argv[2], sys.argv[3:] or list(CASES)), nprocs=WORLD)
elif __name__ == "__main__" and sys.argv[1] == "look":
    INSPECT, MIGRATE, W = sys.argv[2:5]
    for name in sys.argv[5:] or CASES:
        with section(name):
            examined(name, os.path.join(W, name), CASES[name])
elif __name__ == "__main__":
    INSPECT, MIGRATE = checks.commands(__doc__, 2)
    main()
