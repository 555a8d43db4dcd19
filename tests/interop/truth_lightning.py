"""The situations of doctor_truth.py for Lightning: Trainer.save_checkpoint makes the file, Trainer.fit(ckpt_path=...) loads it."""
import argparse
import contextlib
import logging
import os
import pathlib
import warnings

import lightning
import torch
from lightning.pytorch import callbacks
from lightning.pytorch.plugins import MixedPrecision

import truth_program as program
from truth_tools import Row, claimed_devices, tagged
from truth_situations import FUSED, PLAIN, for_groups, for_states

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.CRITICAL)
BEFORE, AFTER = program.BEFORE, program.AFTER


class Lit(lightning.LightningModule):
    """The network of truth_program.py; records the losses, and what its optimizer has once everything is restored."""

    def __init__(self, spec, seed, args=None, save=None):
        super().__init__()
        if args is not None:
            self.save_hyperparameters({"args": args, "lr": 0.01})
        self.spec, self.net, self.losses, self.seen = spec, program.network(torch, seed, spec.get("dtype", "float32")), [], {"phase": "load"}
        self.scales, self.save = [], save
        self.automatic_optimization = spec.get("optimizers", 1) == 1

    def on_train_start(self):
        opt = self.trainer.optimizers[0]
        self.seen.update(phase="step", after=dict(program.flags(opt), **program.state_of(torch, opt, self.net.named_parameters())))
        self.seen["at"] = self.global_step

    def training_step(self, batch, index):
        step, scaler = self.global_step // self.spec.get("optimizers", 1), getattr(self.trainer.precision_plugin, "scaler", None)
        self.scales.append(scaler.get_scale() if scaler else None)
        x, y = program.numbers(torch, step, 5, 6, 11), program.numbers(torch, step, 5, 3, 9)
        loss = torch.nn.functional.mse_loss(self.net(x.to(self.net.fc1.weight.dtype)).float(), y)
        self.losses.append(loss.item())
        if not self.automatic_optimization:
            self.manual_backward(loss)
            for opt in self.optimizers():
                opt.step()
                opt.zero_grad()
        return loss

    def on_train_batch_end(self, outputs, batch, index):
        if self.save is not None and len(self.losses) == BEFORE:
            self.trainer.save_checkpoint("whole.ckpt", **self.save)

    def configure_optimizers(self):
        if self.spec.get("optimizers", 1) == 2:
            two = torch.optim.Adam(self.net.fc1.parameters(), lr=0.01), torch.optim.Adam([*self.net.norm.parameters(), *self.net.fc2.parameters()], lr=0.001)
            self.seen["constructed"] = program.flags(two[0])
            return two
        opt = program.construct(torch, self.net.named_parameters(), self.spec)
        self.seen["constructed"] = program.flags(opt)
        lr = program.schedule(torch, opt, self.spec)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": lr, "interval": "step"}} if lr else opt

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.arange(100), 1)


def fit(module, spec, steps, path=None, weights_only=None):
    more = {}
    if spec.get("amp") == "on":
        more["plugins"] = [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3))]
    elif spec.get("precision"):
        more["precision"] = spec["precision"]
    used = [callbacks.EMAWeightAveraging(decay=0.9)] if spec.get("ema") else []
    used += [callbacks.EarlyStopping("nothing", strict=False)] if spec.get("early") else []
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=steps * spec.get("optimizers", 1), logger=False, enable_progress_bar=False, enable_model_summary=False,
                                enable_checkpointing=False, callbacks=used, **more)
    with open(os.devnull, "w") as null, contextlib.redirect_stderr(null), contextlib.redirect_stdout(null):
        trainer.fit(module, ckpt_path=path, **({} if weights_only is None else {"weights_only": weights_only}))
    return trainer


def made(spec, args, save):
    """The dict of Trainer.save_checkpoint, the next losses of an unbroken run, its scale before them."""
    whole = Lit(spec, 1, args, save)
    fit(whole, spec, BEFORE + AFTER)
    return torch.load("whole.ckpt", weights_only=False), whole.losses[BEFORE:], whole.scales[BEFORE]


def observe(file, spec, wanted, scale, weights_only, args, claimed):
    module = Lit(spec, 2, args)
    seen = module.seen
    try:
        with claimed_devices(claimed):
            fit(module, spec, BEFORE + AFTER, file, weights_only)
        seen.update(losses=module.losses, scale=module.scales[0] if module.scales else None)
    except Exception as e:
        seen["error"] = f"{type(e).__name__}: {e}"
    job = dict(spec, wanted=wanted, wanted_scale=scale)
    seen["outcome"], seen["why"] = program.verdict(seen, job)
    if seen["outcome"].startswith("resumes") and (seen["at"] != BEFORE * spec.get("optimizers", 1) or len(seen["losses"]) != AFTER):
        seen["outcome"], why = "resumes-differently", seen["why"]
        why.append(f"it goes on at step {seen['at']}, and {len(seen['losses'])} steps are left")
    return seen


def on_optimizers(edit):
    """An edit of truth_situations.py, for each optimizer of a Lightning file."""
    def each(held):
        for opt in held["optimizer_states"]:
            edit({"optimizer": opt})
    return each


def no(*keys):
    def edit(held):
        for k in keys:
            del held[k]
    return edit


def renamed(old, new):
    return lambda held: held.update({new: held.pop(old)})


def prefixed(prefix):
    return lambda held: held.update(state_dict={k.replace("net.", "net." + prefix, 1): v for k, v in held["state_dict"].items()})


CLASS = argparse.Namespace(path=pathlib.PurePosixPath("data"))


def table():
    """(name, how it was trained, edit, tag, [(what the program is beyond that, doctor's options, codes)], save_checkpoint's arguments)."""
    amp = {"amp": "on"}
    same = [({}, [], [])]
    rows = [
        ("as it was saved", {}, None, None, same + [({"weights_only": False}, ["--load-weights-only", "no"], [])], {}),
        ("on cuda:0", {}, None, "cuda:0", same, {}), ("on cuda:7, step too", {}, None, "cuda:7+step", same, {}),
        ("a schedule", {"schedule": True}, None, None, same, {}),
        ("two groups, fused", {"groups": 2, "hyper": FUSED}, None, None, same + [({"hyper": PLAIN}, ["--optimizer", "plain"], ["fused-flag-overwritten"])], {}),
        ("fused, tagged cuda:0", {"hyper": FUSED}, None, "cuda:0", same, {}),
        ("plain, for a fused program", {}, None, None, [({"hyper": FUSED}, ["--optimizer", "fused"], ["fused-flag-overwritten"])], {}),
        ("plain with a scaler, for a fused program", {"amp": "on"}, None, None, [({"hyper": FUSED}, ["--optimizer", "fused", "--amp"], ["amp-needs-fused-flag"])], {}),
        ("hyper-parameters with a class", {"args": True}, None, None, same + [({"weights_only": True}, ["--load-weights-only", "yes"], []),
                                                                              ({"weights_only": False}, ["--load-weights-only", "no"], [])], {}),
        ("save_weights_only", {}, None, None, same, {"weights_only": True}),
        ("a scaler", amp, None, None, [({}, ["--amp"], [])], {}),
        ("a scaler under native_amp_scaling_state", amp, renamed("MixedPrecision", "native_amp_scaling_state"), None, [({}, ["--amp"], [])], {}),
        ("a scaler under MixedPrecisionPlugin", amp, renamed("MixedPrecision", "MixedPrecisionPlugin"), None, [({}, ["--amp"], ["scaler-key-ignored"])], {}),
        ("a scaler under NativeMixedPrecisionPlugin", amp, renamed("MixedPrecision", "NativeMixedPrecisionPlugin"), None, [({}, ["--amp"], ["scaler-key-ignored"])], {}),
        ("no scaler, for a program with one", amp, no("MixedPrecision"), None, [({}, ["--amp"], ["scaler-missing"])], {}),
        ("a scaler {}", amp, lambda h: h.update(MixedPrecision={}), None, [({}, ["--amp"], [])], {}),
        ("optimizer_states is missing", {}, no("optimizer_states"), None, same, {}),
        ("optimizer_states is empty", {}, lambda h: h["optimizer_states"].clear(), None, same, {}),
        ("lr_schedulers is missing", {"schedule": True}, no("lr_schedulers"), None, same, {}),
        ("lr_schedulers is empty", {"schedule": True}, lambda h: h["lr_schedulers"].clear(), None, same, {}),
        ("two optimizers", {"optimizers": 2}, None, None, same, {}),
        ("two optimizers, one of them saved", {"optimizers": 2}, lambda h: h["optimizer_states"].pop(), None, same, {}),
        ("loops is missing", {}, no("loops"), None, same, {}),
        ("callbacks is missing", {}, no("callbacks"), None, same, {}),
        ("callbacks of others", {"early": True}, None, None, [({"early": False}, [], [])], {}),
        ("pytorch-lightning_version is missing", {}, no("pytorch-lightning_version"), None, same, {}),
        ("averaged weights", {"ema": True}, None, None, same, {}),
        ("averaged weights, for a program without", {"ema": True}, None, None, [({"ema": False}, [], [])], {}),
        ("state is empty", {}, on_optimizers(lambda h: h["optimizer"]["state"].clear()), None, [({}, [], ["moments-missing"])], {}),
        ("two ids have no state", {}, on_optimizers(lambda h: [h["optimizer"]["state"].pop(i) for i in (1, 4)]), None, [({}, [], ["moments-missing"])], {}),
        ("a moment of another shape", {}, on_optimizers(for_states(lambda s: s.update(exp_avg=s["exp_avg"][:2].clone()))), None, [({}, [], ["moment-shape"])], {}),
        ("capturable, on a CPU", {}, on_optimizers(for_groups(capturable=True)), None, [({}, [], ["capturable-on-cpu"])], {}),
        ("lr is missing", {}, on_optimizers(for_groups(lr=KeyError)), None, same, {}),
        ("step is an int", {}, on_optimizers(for_states(lambda s: s.update(step=int(s["step"])))), None, same, {}),
        ("bfloat16 with float32 moments", {"dtype": "bfloat16"}, on_optimizers(for_states(lambda s: [s.update({k: s[k].float()}) for k in ("exp_avg", "exp_avg_sq")])), None,
         [({"moments": "float32"}, [], ["moments-cast"])], {}),
        ("prefix _orig_mod.", {}, prefixed("_orig_mod."), None, [({}, [], ["prefix"])], {}),
        ("bf16-mixed", {"precision": "bf16-mixed"}, None, None, same, {}),
    ]
    return rows


def situations(only, _built):
    rows = []
    version = ".".join(torch.__version__.split(".")[:2])
    for number, (name, how, edit, tag, programs, save) in enumerate(table()):
        if only not in "Lightning: " + name:
            continue
        args = CLASS if how.get("args") else None
        held, wanted, scale = made(how, args, save)
        if edit:
            edit(held)
        file = f"lightning-{number:02d}.ckpt"
        with tagged(tag):
            torch.save(held, file)
        for more, doctor, codes in programs:
            spec = {**how, **{k: v for k, v in more.items() if k not in ("weights_only", "claimed")}}
            seen = observe(file, spec, wanted, scale, more.get("weights_only"), args, more.get("claimed"))
            told = ["--for", "lightning", "--torch", version, *([] if "--devices" in doctor else ["--devices", "cpu"]), *doctor]
            rows.append(Row("Lightning: " + name, "lightning", file, told, codes, seen, ""))
    return rows
