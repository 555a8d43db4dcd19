"""Small trainers on PyTorch, Lightning, accelerate, transformers' Trainer and bitsandbytes (it is no script itself).

Each class trains for a few steps and writes a checkpoint as its users do (make), and goes on from one (resume): that
gives (losses, parameters) of the next steps, which are compared bit by bit. Each batch is a function of the step's number.
"""
import argparse
import logging
import pathlib
import random

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
BEFORE, AFTER = 4, 3                            # steps before the checkpoint, and compared behind it


def numbers(step, rows, columns, modulus):
    n = torch.arange(rows * columns).view(rows, columns)
    return ((n * 7 + step * 3).remainder(modulus) - modulus // 2).float() / 4


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc1, self.bn, self.fc2 = nn.Linear(6, width), nn.BatchNorm1d(width), nn.Linear(width, 3)

    def forward(self, x):
        return self.fc2(torch.tanh(self.bn(self.fc1(x))))

    def loss(self, step):
        return nn.functional.mse_loss(self(numbers(step, 5, 6, 11)), numbers(step, 5, 3, 9))


def groups(module, decay=0.1):
    """As trainers have them: matrices decay, vectors do not."""
    p = list(module.parameters())
    return [{"params": [x for x in p if x.ndim > 1], "weight_decay": decay}, {"params": [x for x in p if x.ndim < 2], "weight_decay": 0.0}]


def order(opt, module):
    """The names of the optimizer's parameters, in its order."""
    names = {p: name for name, p in module.named_parameters()}
    return [names[p] for group in opt.param_groups for p in group["params"]]


def parameters(module):
    return {name: t.detach().clone() for name, t in module.state_dict().items()}


def same(a, b):
    """Two answers of resume: the same losses and the same parameters, bit by bit."""
    return a[0] == b[0] and a[1].keys() == b[1].keys() and all(torch.equal(a[1][k], b[1][k]) for k in a[1])


# ---------------------------------------------------------------- torch alone

class Torch:
    """model, optimizer, scheduler, scaler, generators and arguments in one dict, as most scripts have it."""

    def __init__(self, kind="AdamW", **hyper):
        self.kind, self.hyper, self.name = kind, hyper, " ".join(["torch", kind, *(k for k, v in hyper.items() if v is True)])

    def trainer(self, seed):
        torch.manual_seed(seed)
        net = nn.Sequential(Net(8), nn.Linear(3, 3))
        opt = getattr(torch.optim, self.kind)(groups(net), **self.hyper)
        return net, opt, torch.optim.lr_scheduler.StepLR(opt, 2, 0.5), torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)

    def steps(self, trainer, first, count):
        net, opt, schedule, scaler = trainer
        losses = []
        for step in range(first, first + count):
            opt.zero_grad()
            loss = nn.functional.mse_loss(net(numbers(step, 5, 6, 11)), numbers(step, 5, 3, 9)) + 0.01 * torch.rand(())
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            schedule.step()
            losses.append(loss.item())
        return losses

    def make(self, file):
        trainer = self.trainer(1)
        self.steps(trainer, 0, BEFORE)
        net, opt, schedule, scaler = trainer
        torch.save({"model": net.state_dict(), "optimizer": opt.state_dict(), "scheduler": schedule.state_dict(), "scaler": scaler.state_dict(),
                    "step": BEFORE, "args": argparse.Namespace(lr=1e-3, out=pathlib.PurePosixPath("runs/a"), device="cpu"),
                    "rng": {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate()}}, file)

    def resume(self, file):
        trainer = self.trainer(2)
        held = torch.load(file, map_location="cpu", weights_only=False)
        for part, name in zip(trainer, ("model", "optimizer", "scheduler", "scaler")):
            part.load_state_dict(held[name])
        torch.set_rng_state(held["rng"]["torch"])
        assert held["args"] == argparse.Namespace(lr=1e-3, out=pathlib.PurePosixPath("runs/a"), device="cpu")
        return self.steps(trainer, held["step"], AFTER), parameters(trainer[0])


# ---------------------------------------------------------------- bitsandbytes

class EightBit(Torch):
    """A blockwise 8-bit optimizer beside 32-bit states of small parameters."""

    def __init__(self, kind, **hyper):
        self.kind, self.hyper, self.name = kind, hyper, f"bitsandbytes {kind}"

    def trainer(self, seed):
        import bitsandbytes
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(6, 700), nn.Tanh(), nn.Linear(700, 3))
        return net, getattr(bitsandbytes.optim, self.kind)(net.parameters(), lr=1e-2, **self.hyper), None, None

    def steps(self, trainer, first, count):
        net, opt = trainer[:2]
        losses = []
        for step in range(first, first + count):
            opt.zero_grad()
            loss = nn.functional.mse_loss(net(numbers(step, 5, 6, 11)), numbers(step, 5, 3, 9))
            loss.backward()
            opt.step()
            losses.append(loss.item())
        return losses

    def make(self, file):
        trainer = self.trainer(1)
        self.steps(trainer, 0, BEFORE)
        torch.save({"model": trainer[0].state_dict(), "optimizer": trainer[1].state_dict(), "step": BEFORE}, file)

    def resume(self, file):
        trainer = self.trainer(2)
        held = torch.load(file, map_location="cpu", weights_only=True)
        trainer[0].load_state_dict(held["model"])
        trainer[1].load_state_dict(held["optimizer"])
        return self.steps(trainer, held["step"], AFTER), parameters(trainer[0])


def quantized(kind):
    """A state_dict of bitsandbytes' layers: packed weights, and what it takes to unpack them."""
    import bitsandbytes
    torch.manual_seed(1)
    if kind == "int8":
        layer = bitsandbytes.nn.Linear8bitLt(64, 64, has_fp16_weights=False)
    else:
        layer = bitsandbytes.nn.Linear4bit(64, 64, compute_dtype=torch.float32, quant_type=kind)
    model = nn.Sequential(layer.to("cpu"), nn.Linear(64, 2))
    model(torch.randn(3, 64))
    return model.state_dict()


# ---------------------------------------------------------------- Lightning

class Lightning:
    """Trainer.save_checkpoint and Trainer.fit(ckpt_path=...), with callbacks, hyper-parameters and a schedule.

    plain: without the schedule, the network that samples/lightning_resume.c knows. best: with ModelCheckpoint, whose
    state holds the folder's whole path. two: a second optimizer, stepped by hand. extra: "scaler" (AMP in float16), "ema"
    (weights averaged by a callback)."""

    def __init__(self, plain=False, best=True, two=False, extra=None):
        import lightning
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        self.lightning, self.plain, self.best, self.two, self.extra = lightning, plain, best and not plain, two, extra
        self.name = ", ".join(["Lightning"] + ["plain"] * plain + ["two optimizers"] * two + [extra] * (extra is not None))

    def module(self, seed):
        lightning, plain, two = self.lightning, self.plain, self.two

        class Lit(lightning.LightningModule):
            def __init__(self, lr=0.01, extra=None):
                super().__init__()
                self.save_hyperparameters()
                self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)) if plain else Net()
                self.losses = []
                self.automatic_optimization = not two

            def training_step(self, batch, index):
                x, y = Lightning.batch(self.global_step)
                loss = nn.functional.mse_loss(self.net(x), y)
                self.losses.append(loss.item())
                self.log("loss", loss.float())
                if two:
                    self.manual_backward(loss)
                    for opt in self.optimizers():
                        opt.step()
                        opt.zero_grad()
                return loss

            def configure_optimizers(self):
                if two:
                    return torch.optim.Adam(self.net.fc1.parameters(), lr=1e-2, betas=(0.5, 0.9)), \
                        torch.optim.RMSprop(self.net.fc2.parameters(), lr=1e-3, momentum=0.9)
                opt = torch.optim.AdamW(groups(self.net), lr=self.hparams.lr, betas=(0.9, 0.98))
                schedule = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
                return opt if plain else {"optimizer": opt, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

            def train_dataloader(self):
                return torch.utils.data.DataLoader(torch.arange(100), 1)

        torch.manual_seed(seed)
        return Lit(extra=argparse.Namespace(path=pathlib.PurePosixPath("data"), device=torch.device("cuda", 0), sizes=[1, (2, 3)]))

    @staticmethod
    def batch(step):
        x = [[(step * 7 + row * 3 + i * 5) % 11 - 5 for i in range(6)] for row in range(4)]
        y = [[(step * 5 + row * 7 + k * 3) % 9 - 4 for k in range(3)] for row in range(4)]
        return torch.tensor(x, dtype=torch.float32) / 5, torch.tensor(y, dtype=torch.float32) / 4

    def fit(self, module, steps, path=None):
        from lightning.pytorch import callbacks
        used = [callbacks.ModelCheckpoint("ckpts", monitor="loss", save_last=True)] if self.best else []
        used += [] if self.plain else [callbacks.EarlyStopping("loss", patience=9)]
        used += [callbacks.EMAWeightAveraging(decay=0.9)] if self.extra == "ema" else []
        more = {}
        if self.extra == "scaler":
            from lightning.pytorch.plugins import MixedPrecision
            more["plugins"] = [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=512.0, growth_interval=3))]
        trainer = self.lightning.Trainer(accelerator="cpu", devices=1, max_steps=steps, logger=False, enable_progress_bar=False,
                                         enable_model_summary=False, enable_checkpointing=self.best, callbacks=used, **more)
        trainer.fit(module, ckpt_path=path, **({"weights_only": False} if path else {}))
        return trainer

    def make(self, file):
        self.fit(self.module(1), BEFORE).save_checkpoint(file)

    def resume(self, file):
        module = self.module(2)
        self.fit(module, BEFORE + AFTER, str(file))
        return module.losses, parameters(module)


# ---------------------------------------------------------------- directories

class Progress:
    """What accelerate's register_for_checkpointing takes: anything with state_dict."""

    def __init__(self):
        self.step, self.history = 0, []

    def state_dict(self):
        return {"step": self.step, "history": self.history, "queue": torch.arange(5.0)}

    def load_state_dict(self, state):
        self.step, self.history = state["step"], state["history"]


class Accelerate:
    """Accelerator.save_state and load_state: a directory. plain: neither chance nor a schedule, so that others can go on."""

    def __init__(self, safe=True, plain=False):
        self.safe, self.plain, self.name = safe, plain, f"accelerate, {'safetensors' if safe else 'bin'}"

    def trainer(self, seed):
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState, GradientState
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
        accelerator = Accelerator(cpu=True)
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)       # what mixed_precision="fp16" makes on a GPU
        torch.manual_seed(seed)
        net = Net()
        opt = torch.optim.AdamW(groups(net), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 1.0 if self.plain else 0.9 ** s)
        data = torch.utils.data.DataLoader(torch.arange(8), 2, shuffle=True)
        net, opt, schedule, data = accelerator.prepare(net, opt, schedule, data)
        progress = Progress()
        accelerator.register_for_checkpointing(progress)
        return accelerator, net, opt, schedule, progress

    def steps(self, trainer, count):
        accelerator, net, opt, schedule, progress = trainer
        losses = []
        for _ in range(count):
            opt.zero_grad()
            loss = net.loss(progress.step)
            if not self.plain:
                loss = loss + 0.01 * torch.rand(())                     # the generator is part of the checkpoint
            accelerator.backward(loss)
            opt.step()
            schedule.step()
            progress.step += 1
            progress.history.append(loss.item())
            losses.append(loss.item())
        return losses

    def make(self, folder):
        trainer = self.trainer(1)
        self.steps(trainer, BEFORE)
        trainer[0].save_state(str(folder), safe_serialization=self.safe)

    def resume(self, folder):
        trainer = self.trainer(2)
        trainer[0].load_state(str(folder))
        return self.steps(trainer, AFTER), parameters(trainer[1])

    def resume_file(self, file):
        """The same from one torch file that holds it all, without accelerate's loader."""
        trainer = self.trainer(2)
        held = torch.load(file, map_location="cpu", weights_only=False)
        for part, name in zip(trainer[1:], ("model", "optimizer", "scheduler", "custom_0")):
            part.load_state_dict(held[name])
        torch.set_rng_state(held["rng"]["torch_manual_seed"])
        return self.steps(trainer, AFTER), parameters(trainer[1])

    def order(self):
        _, net, opt, _, _ = self.trainer(2)
        return order(opt.optimizer, net)


class HfTrainer:
    """transformers' Trainer: a checkpoint-N directory and resume_from_checkpoint."""

    def __init__(self, lora=False, experts=False):
        self.lora, self.experts = lora, experts
        self.name = "HF Trainer" + (", LoRA" if lora else "") + (", experts" if experts else "")

    @staticmethod
    def model(seed, lora=False, layers=1, experts=False):
        import transformers
        torch.manual_seed(seed)
        if experts:
            return transformers.MixtralForCausalLM(transformers.MixtralConfig(
                hidden_size=16, intermediate_size=24, num_hidden_layers=layers, num_attention_heads=2, num_key_value_heads=2,
                vocab_size=64, num_local_experts=3))
        config = transformers.GPT2Config(n_layer=layers, n_head=2, n_embd=16, vocab_size=64, n_positions=8)
        model = transformers.GPT2LMHeadModel(config)
        if lora:
            import peft
            model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True))
        return model

    def trainer(self, seed, steps):
        import transformers
        transformers.utils.logging.disable_progress_bar()
        args = transformers.TrainingArguments("run", use_cpu=True, max_steps=steps, save_steps=BEFORE, logging_steps=1, logging_nan_inf_filter=False,
                                              per_device_train_batch_size=2, report_to=[], disable_tqdm=True, seed=3, lr_scheduler_type="constant")
        ids = [{"input_ids": (torch.arange(6) * 7 + i * 5) % 64, "labels": (torch.arange(6) * 7 + i * 5) % 64} for i in range(40)]
        trainer = transformers.Trainer(self.model(seed, self.lora, experts=self.experts), args, train_dataset=ids)
        trainer.remove_callback(transformers.PrinterCallback)
        return trainer

    def make(self, folder):
        self.trainer(1, BEFORE).train()
        pathlib.Path("run", f"checkpoint-{BEFORE}").rename(folder)

    def resume(self, folder):
        trainer = self.trainer(2, BEFORE + AFTER)
        trainer.train(resume_from_checkpoint=str(folder))
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return losses, parameters(trainer.model)

    def order(self):
        trainer = self.trainer(2, BEFORE)
        return order(trainer.create_optimizer(), trainer.model)
