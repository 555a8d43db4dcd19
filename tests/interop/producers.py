#!/usr/bin/env python3
"""Whom `show` names, for checkpoints that torch, Lightning, accelerate, transformers' Trainer, PEFT and bitsandbytes write in this run,
for files that are built as other programs build them (their own code for it is cited at each), and for what only looks so.

usage: producers.py CKPT-INSPECT [-v]

What show tells of them (step, epoch, score, precision, optimizer, scheduler) is compared with what the program itself holds;
and the folders that they leave are listed by step. Each failure is a FAIL line; the last line counts."""
import argparse
import copy
import os
import pathlib
import time

from checks import ask, check, commands, finish, scratch, section, skip

try:
    import accelerate
    import bitsandbytes
    import lightning
    import peft
    import torch
    import transformers
except ImportError as e:
    skip(f"{e.name} is not installed")
import peers
from torch import nn


def show(inspect, path):
    status, doc = ask(inspect, "show", "--json", path)
    return doc if status == 0 else {"error": doc.get("error"), "producer": "(error)"}


def named(inspect, what, path, producer, **fields):
    """show's fields are these."""
    doc = show(inspect, path)
    check(f"{what}: written by {producer}", doc.get("producer") == producer, f"{doc.get('producer')} {doc.get('error')}")
    for key, value in fields.items():
        check(f"{what}: {key}", doc.get(key) == value, f"{doc.get(key)!r}, expected {value!r}")
    return doc


# ---------------------------------------------------------------- the programs themselves

def of_lightning(inspect):
    version = {"producer_version": lightning.__version__}
    for peer, optimizer, precision in ((peers.Lightning(), "AdamW", None), (peers.Lightning(extra="scaler"), "AdamW", "MixedPrecision"),
                                       (peers.Lightning(extra="ema"), "AdamW", None), (peers.Lightning(two=True), "Adam", None)):
        with section(peer.name):
            path = pathlib.Path("lightning.ckpt")
            peer.make(path)
            held = torch.load(path, map_location="cpu", weights_only=False)
            doc = named(inspect, peer.name, path, "Lightning", step=held["global_step"], epoch=held["epoch"], precision=precision, **version)
            check(f"{peer.name}: optimizer", doc["optimizer"]["class"] == optimizer and doc["optimizer"]["count"] == len(held["optimizer_states"]), doc["optimizer"])
            if not peer.two:
                saved = held["optimizer_states"][0]["param_groups"]
                check(f"{peer.name}: groups", [(g["lr"], g["weight_decay"], g["params"]) for g in doc["optimizer"]["groups"]] ==
                      [(g["lr"], g["weight_decay"], len(g["params"])) for g in saved], doc["optimizer"]["groups"])
                check(f"{peer.name}: scheduler", doc["scheduler"]["class"] == "StepLR" and doc["scheduler"]["last_epoch"] == held["lr_schedulers"][0]["last_epoch"], doc["scheduler"])
                check(f"{peer.name}: all parameters have state", doc["without_state"]["count"] == 0 and doc["state_without_param"]["count"] == 0, doc["without_state"])
            best = next((c for k, c in held["callbacks"].items() if "ModelCheckpoint" in str(k)), None)
            if best and best.get("best_model_score") is not None:
                check(f"{peer.name}: score", doc["score"]["name"] == "loss" and doc["score"]["best"] == best["best_model_score"].item(), doc["score"])
            check(f"{peer.name}: averages", (doc["ema"] or {}).get("path") == ("state_dict" if peer.extra == "ema" else None), doc["ema"])
            check(f"{peer.name}: resume", f'trainer.fit(model, ckpt_path="{path}"' in doc["resume"], doc["resume"])
    with section("Lightning, weights only"):
        module = peers.Lightning(plain=True)
        module.fit(module.module(1), 2).save_checkpoint("weights.ckpt", weights_only=True)
        doc = named(inspect, "Lightning, weights only", "weights.ckpt", "Lightning", step=2, **version)
        check("Lightning, weights only: no optimizer", doc["optimizer"] is None, doc["optimizer"])
    with section("Fabric"):
        fabric = lightning.Fabric(accelerator="cpu", devices=1)
        net = peers.Net()
        net, opt = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
        fabric.save("fabric.ckpt", {"model": net, "optimizer": opt, "step": 3})
        named(inspect, "Fabric leaves a plain dict", "fabric.ckpt", "torch", step=3)


def of_directories(inspect):
    with section("accelerate"):
        peers.Accelerate().make("acc")
        doc = named(inspect, "accelerate", "acc", "accelerate", step=peers.BEFORE)
        check("accelerate: optimizer and scheduler", doc["optimizer"]["class"] == "AdamW" and doc["scheduler"]["class"].startswith("LambdaLR"), doc)
        check("accelerate: resume", doc["resume"] == 'accelerator.load_state("acc")', doc["resume"])
    for lora in False, True:
        peer = peers.HfTrainer(lora)
        with section(peer.name):
            folder = f"hf-{lora}"
            peer.make(folder)
            doc = named(inspect, peer.name, folder, "HF Trainer", step=peers.BEFORE, epoch=0.2)
            check(f"{peer.name}: version", (doc["version_of"], doc["producer_version"]) ==
                  (("PEFT", peft.__version__) if lora else ("transformers", transformers.__version__)), doc["producer_version"])
            check(f"{peer.name}: marks", doc["marks"] == ("PEFT LORA adapter" if lora else None), doc["marks"])
            check(f"{peer.name}: resume", doc["resume"] == f'trainer.train(resume_from_checkpoint="{folder}")', doc["resume"])
    with section("HF Trainer, experts"):          # one tensor in the program and its optimizer, one by one in the file
        peer = peers.HfTrainer(experts=True)
        peer.make("experts")
        named(inspect, peer.name, "experts", "HF Trainer", step=peers.BEFORE)
        status, doc = ask(inspect, "doctor", "--json", "experts")
        check(f"{peer.name}: doctor says that it resumes", status == 0 and doc["outcome"] == "resumes", doc.get("findings"))
        losses = peer.resume("experts")[0]
        check(f"{peer.name}: it does", len(losses) > 0 and all(loss == loss for loss in losses), losses)
    with section("HF Trainer, evaluation"):
        trainer = evaluating()
        trainer.train()
        doc = show(inspect, "evaluated/checkpoint-4")
        state = transformers.TrainerState.load_from_json("evaluated/checkpoint-4/trainer_state.json")
        last = [e["eval_loss"] for e in state.log_history if "eval_loss" in e][-1]
        check("HF Trainer: score", doc["score"] == {"name": doc["score"]["name"], "best": state.best_metric, "current": last}, f"{doc['score']} {state.best_metric} {last}")
    with section("saved models"):
        model = peers.HfTrainer.model(1)
        model.save_pretrained("gpt2")
        named(inspect, "save_pretrained", "gpt2", "Hugging Face", producer_version=transformers.__version__, version_of="transformers")
        peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)).save_pretrained("adapter")
        named(inspect, "an adapter", "adapter", "PEFT", producer_version=peft.__version__, marks="PEFT LORA adapter")
    with section("what the Trainer and accelerate save of a model alone"):
        trainer.save_model("alone")
        named(inspect, "Trainer.save_model", "alone", "Hugging Face", producer_version=transformers.__version__)
        healthy(inspect, "Trainer.save_model", "alone", but=["no-optimizer"])
        accelerate.Accelerator(cpu=True).save_model(peers.Net(), "weights")
        doc = named(inspect, "accelerate's save_model", "weights", None)
        check("accelerate's save_model: resume", doc["resume"] == 'accelerate.load_checkpoint_in_model(model, "weights")', doc["resume"])
        accelerate.load_checkpoint_in_model(peers.Net(), "weights")
        healthy(inspect, "accelerate's save_model", "weights", but=["no-optimizer"])
    with section("bitsandbytes"):
        for kind, mark in ("nf4", "bitsandbytes 4-bit weights (nf4)"), ("fp4", "bitsandbytes 4-bit weights (fp4)"), ("int8", "bitsandbytes int8 weights"):
            torch.save(peers.quantized(kind), f"{kind}.pt")
            named(inspect, f"bitsandbytes {kind}", f"{kind}.pt", "torch", marks=mark)
        peers.EightBit("AdamW8bit").make("8bit.pt")
        named(inspect, "bitsandbytes AdamW8bit", "8bit.pt", "torch", marks="bitsandbytes 8-bit optimizer", step=peers.BEFORE)


def evaluating():
    args = transformers.TrainingArguments("evaluated", use_cpu=True, max_steps=4, save_steps=2, eval_strategy="steps", eval_steps=2, report_to=[], disable_tqdm=True,
                                          metric_for_best_model="eval_loss", per_device_train_batch_size=2, logging_nan_inf_filter=False)
    ids = [{"input_ids": (torch.arange(6) * 7 + i * 5) % 64, "labels": (torch.arange(6) * 7 + i * 5) % 64} for i in range(8)]
    trainer = transformers.Trainer(peers.HfTrainer.model(1), args, train_dataset=ids, eval_dataset=ids[:2])
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


# ---------------------------------------------------------------- torch itself: every optimizer, every scheduler

def optimizers(net):
    """(its name, how it is made), for each class of torch.optim that takes these parameters."""
    made = {"SGD": dict(lr=.1), "SparseAdam": None, "Optimizer": None, "Muon": None}
    for name in sorted(n for n in dir(torch.optim) if isinstance(getattr(torch.optim, n), type)):
        options = made.get(name, {})
        if issubclass(getattr(torch.optim, name), torch.optim.Optimizer) and options is not None:
            yield name, getattr(torch.optim, name)(net.parameters(), **options)
    yield "SGD", torch.optim.SGD(net.parameters(), lr=.1, momentum=.9, nesterov=True)
    yield "Muon", torch.optim.Muon([p for p in net.parameters() if p.ndim == 2])
    yield "AdamW", torch.optim.AdamW(net.named_parameters(), fused=True)


def schedulers(o):
    s = torch.optim.lr_scheduler
    yield "StepLR", s.StepLR(o, 2)
    yield "MultiStepLR", s.MultiStepLR(o, [2, 5])
    yield "ExponentialLR", s.ExponentialLR(o, .9)
    yield "ConstantLR", s.ConstantLR(o)
    yield "LinearLR", s.LinearLR(o)
    yield "PolynomialLR", s.PolynomialLR(o)
    yield "CosineAnnealingLR", s.CosineAnnealingLR(o, 10)
    yield "CosineAnnealingWarmRestarts", s.CosineAnnealingWarmRestarts(o, 2)
    yield "CyclicLR", s.CyclicLR(o, .01, .1, cycle_momentum=False)
    yield "OneCycleLR", s.OneCycleLR(o, .1, total_steps=20)
    yield "ReduceLROnPlateau", s.ReduceLROnPlateau(o)
    yield "LambdaLR or MultiplicativeLR", s.LambdaLR(o, lambda e: .9 ** e)
    yield "LambdaLR or MultiplicativeLR", s.MultiplicativeLR(o, lambda e: .9)
    yield "SWALR", torch.optim.swa_utils.SWALR(o, swa_lr=.05)
    yield "SequentialLR", s.SequentialLR(o, [s.LinearLR(o, .1), s.CosineAnnealingLR(o, 10)], [2])
    yield "ChainedScheduler", s.ChainedScheduler([s.LinearLR(o, .1), s.ExponentialLR(o, .9)])


def step_of(net, optimizer):
    def closure():
        optimizer.zero_grad()
        loss = net.loss(1)
        loss.backward()
        return loss
    optimizer.step(closure)


def of_torch(inspect):
    for name, optimizer in optimizers(net := peers.Net()):
        with section(f"torch.optim.{name}"):
            step_of(net, optimizer)
            torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, "o.pt")
            doc = named(inspect, name, "o.pt", "torch", epoch=3)
            check(f"{name}: its class", doc["optimizer"]["class"] == name, doc["optimizer"])
            held = optimizer.state_dict()["state"]
            alone = name in ("LBFGS", "SGD") and len(held) < len(list(net.parameters()))   # one state for all, or none at all
            missing = None if alone else len(list(net.parameters())) - len(held)
            check(f"{name}: parameters without state", (doc["without_state"] or {}).get("count") == missing, doc["without_state"])
            healthy(inspect, name, "o.pt")
    for name, scheduler in schedulers(optimizer := torch.optim.SGD(net.parameters(), lr=.1, momentum=.9)):
        with section(f"torch's {name}"):
            step_of(net, optimizer)
            scheduler.step(*[1.0] * (name == "ReduceLROnPlateau"))
            torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "sched": scheduler.state_dict()}, "s.pt")
            doc = show(inspect, "s.pt")
            check(f"{name}: its class", doc["scheduler"]["class"] == name and doc["scheduler"]["path"] == "sched", doc["scheduler"])
            check(f"{name}: resume", doc["resume"].endswith('scheduler.load_state_dict(ckpt["sched"])'), doc["resume"])
    with section("what is averaged"):
        averaged = torch.optim.swa_utils.AveragedModel(net)
        torch.save({"model": net.state_dict(), "swa_model": averaged.state_dict()}, "swa.pt")
        doc = show(inspect, "swa.pt")
        check("AveragedModel: its path", (doc["ema"] or {}).get("path") == "swa_model" and doc["ema"]["count"] == len(averaged.state_dict()), doc["ema"])
    with section("a copy in half precision"):             # which is not what is trained: no moment is cast to it
        optimizer = torch.optim.AdamW(net.parameters())
        step_of(net, optimizer)
        for part, cast in ("ema", False), ("model", True):
            torch.save({"epoch": 1, part: copy.deepcopy(net).half(), "optimizer": optimizer.state_dict()}, "half.pt")
            codes = [f["code"] for f in ask(inspect, "doctor", "--json", "half.pt")[1]["findings"]]
            check(f"half precision of {part}: moments-cast", ("moments-cast" in codes) == cast, codes)
    with section("a nested tensor"):
        torch.save({"x": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)}, "njt.pt")
        status, doc = ask(inspect, "scan", "--json", "njt.pt")
        torch.load("njt.pt", weights_only=True)           # what torch itself allows is not dangerous
        check("a nested tensor is clean", status == 0 and doc["verdict"] == "clean", [g["name"] for g in doc["globals"] if g["class"] != "harmless"])


def healthy(inspect, what, path, but=()):
    """doctor finds no error in it, nor what else is not in `but`."""
    status, doc = ask(inspect, "doctor", "--json", path)
    wrong = [f for f in doc.get("findings", []) if f["severity"] != "note" and f["code"] not in but]
    check(f"{what}: healthy", status < 2 and not wrong, wrong or doc.get("error"))


# ---------------------------------------------------------------- as other programs build them

def parts():
    torch.manual_seed(1)
    model = peers.Net()
    opt = torch.optim.AdamW(peers.groups(model), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
    for step in range(3):
        opt.zero_grad()
        model.loss(step).backward()
        opt.step()
        schedule.step()
    return model, opt, schedule


def fake(module, name):
    """An object of a class of a program that is not installed."""
    import sys
    import types
    for i in range(1, module.count(".") + 2):
        sys.modules.setdefault(".".join(module.split(".")[:i]), types.ModuleType(module))
    made = type(name, (nn.Module,), {"__module__": module})
    setattr(sys.modules[module], name, made)
    return made()


def built(model, opt, schedule):
    """(producer, the dict, step, epoch, best score)."""
    weights, states = model.state_dict(), opt.state_dict()
    scaler = torch.amp.GradScaler("cpu").state_dict()
    # FoundationVision/VAR: trainer.py (state_dict), train.py (main_training)
    yield "VAR", {"epoch": 3, "iter": 0, "trainer": {"config": {"patch_nums": [1, 2]}, "var_wo_ddp": weights, "vae_local": weights,
                                                     "var_opt": {"scaler": scaler, "optimizer": states}}, "args": argparse.Namespace(a=1)}, 0, 3, None
    # karpathy/nanoGPT: train.py
    yield "nanoGPT", {"model": weights, "optimizer": states, "model_args": {"n_layer": 2, "n_head": 2, "n_embd": 4}, "iter_num": 250,
                      "best_val_loss": torch.tensor(1.5), "config": {"batch_size": 12}}, 250, None, 1.5
    # facebookresearch/fairseq: fairseq/trainer.py (state_dict)
    yield "fairseq", {"args": None, "cfg": {"_name": None}, "model": weights, "criterion": None,
                      "optimizer_history": [{"criterion_name": "C", "optimizer_name": "FairseqAdam", "lr_scheduler_state": {"best": 2.5}, "num_updates": 900}],
                      "task_state": {}, "extra_state": {"metrics": {}, "train_iterator": {"epoch": 4, "iterations_in_epoch": 3}, "best": 2.25},
                      "last_optimizer_state": states}, 900, 4, 2.25
    # huggingface/pytorch-image-models: timm/utils/checkpoint_saver.py
    yield "timm", {"epoch": 9, "arch": "resnet18", "optimizer": states, "version": 2, "args": argparse.Namespace(model="resnet18"), "amp_scaler": scaler,
                   "state_dict": weights, "state_dict_ema": weights, "metric": 70.5, "saver": {"checkpoint_files": [], "best_epoch": 7, "best_metric": 71.5}}, None, 9, 71.5
    # pytorch/vision: references/classification/train.py
    yield "torchvision", {"model": weights, "optimizer": states, "lr_scheduler": schedule.state_dict(), "epoch": 5,
                          "args": argparse.Namespace(data_path="/data", print_freq=10, workers=16, model="resnet18"), "model_ema": weights, "scaler": scaler}, None, 5, None
    # pytorch/examples: imagenet/main.py
    yield "ImageNet example", {"epoch": 90, "arch": "resnet50", "state_dict": weights, "best_acc1": torch.tensor(76.5), "optimizer": states,
                               "scheduler": schedule.state_dict()}, None, 90, 76.5
    # facebookresearch/detectron2: engine/defaults.py, train_loop.py; fvcore: param_scheduler
    yield "detectron2", {"model": weights, "trainer": {"iteration": 999, "hooks": {}, "_trainer": {"iteration": 999, "optimizer": states}}, "iteration": 999}, 999, None, None
    yield "detectron2", {"model": weights, "optimizer": states, "scheduler": {"base_lrs": [0.02], "last_epoch": 1000}, "iteration": 999}, 999, None, None
    yield "detectron2", {"model": weights, "__author__": "Caffe2", "matching_heuristics": True}, None, None, None
    # open-mmlab/mmengine: mmengine/runner/runner.py (save_checkpoint); mmcv 1: runner/checkpoint.py
    yield "mmengine", {"meta": {"epoch": 3, "iter": 300, "cfg": "", "mmengine_version": "0.10.7"}, "state_dict": weights, "optimizer": states, "param_schedulers": [],
                       "message_hub": {"log_scalars": {}, "runtime_info": {"best_score": 0.75}, "resumed_keys": {}}}, 300, 3, 0.75
    yield "mmcv", {"meta": {"mmcv_version": "1.7.1", "time": "", "epoch": 3, "iter": 300}, "state_dict": weights, "optimizer": states}, 300, 3, None
    # ultralytics: engine/trainer.py (save_model); YOLOv5: train.py
    yield "Ultralytics", {"epoch": 7, "best_fitness": 0.25, "model": None, "ema": fake("ultralytics.nn.tasks", "DetectionModel"), "updates": 70, "optimizer": states,
                          "train_args": {"task": "detect"}, "train_metrics": {"fitness": 0.2}, "date": "2026-01-01", "version": "8.4.0"}, None, 7, 0.25
    yield "YOLOv5", {"epoch": 7, "best_fitness": 0.25, "model": fake("models.yolo", "DetectionModel"), "ema": None, "updates": 70, "optimizer": states, "opt": {}, "git": {}, "date": ""}, None, 7, 0.25
    # NVIDIA/Megatron-LM: megatron/training/checkpointing.py
    yield "Megatron", {"args": argparse.Namespace(tensor_model_parallel_size=1, bf16=True), "checkpoint_version": 3.0, "iteration": 40, "model": weights, "optimizer": states,
                       "opt_param_scheduler": {"max_lr": 0.1, "num_steps": 40}, "rng_state": []}, 40, None, None
    # microsoft/DeepSpeed: deepspeed/runtime/engine.py (_save_checkpoint, _save_zero_checkpoint)
    yield "DeepSpeed", {"module": weights, "optimizer": None, "global_steps": 12, "global_samples": 96, "skipped_steps": 0, "ds_config": {}, "ds_version": "0.19.8"}, 12, None, None
    yield "DeepSpeed", {"optimizer_state_dict": {"zero_stage": 2}, "ds_config": {}, "ds_version": "0.19.8"}, None, None, None
    # mosaicml/composer: core/state.py (state_dict), utils/checkpoint.py
    yield "Composer", {"state": {"model": weights, "optimizers": {"AdamW": states}, "schedulers": {}, "rank_zero_seed": 17, "run_name": "a",
                                 "timestamp": {"Timestamp": {"iteration": 0, "epoch": 1, "batch": 44}}, "metadata": {"precision": "fp32", "composer_env_info": {"composer_version": "0.32.1"}}},
                       "rng": [{"python": (), "torch": torch.get_rng_state()}]}, 44, 1, None
    # espnet: espnet2/train/trainer.py
    yield "ESPnet", {"model": weights, "reporter": {"stats": {}, "epoch": 6}, "optimizers": [states], "schedulers": [None], "scaler": None}, None, 6, None
    # openai/whisper: whisper/__init__.py (load_model)
    yield "Whisper", {"dims": {"n_mels": 80, "n_audio_ctx": 1500}, "model_state_dict": weights}, None, None, None
    # pytorch/ignite: ignite/engine/engine.py (state_dict), ignite/handlers/checkpoint.py
    yield "Ignite", {"model": weights, "optimizer": states, "trainer": {"epoch_length": 4, "max_epochs": 2, "iteration": 8}}, 8, None, None
    # nobody in particular
    yield "torch", {"model": weights, "optimizer": states, "scheduler": schedule.state_dict(), "iteration": 5}, 5, None, None
    yield "torch", {"epoch": 90, "arch": "resnet50", "state_dict": weights, "optimizer": states}, None, 90, None
    yield "torch", {"model": weights, "optimizer": states, "iter_num": 5, "best_val_loss": 1.0}, 5, None, None
    yield "torch", {"model": weights, "optimizer": states, "lr_scheduler": schedule.state_dict(), "epoch": 5, "args": argparse.Namespace(coco_path="/data")}, None, 5, None
    yield "torch", weights, None, None, None


def as_others(inspect):
    for i, (producer, held, step, epoch, best) in enumerate(built(*parts())):
        with section(f"built {i}, {producer}"):
            torch.save(held, "built.pt")
            doc = named(inspect, f"built {i}", "built.pt", producer, step=step, epoch=epoch)
            check(f"built {i}, {producer}: score", (doc.get("score") or {}).get("best") == best, doc.get("score"))
            if producer == "torch" and "optimizer" in held and "scheduler" in held:
                check("torch: what show says resumes it does", resumes(doc["resume"]), doc["resume"])
            check(f"built {i}: bare", doc.get("bare") == (held is not None and "model" not in held and producer == "torch" and "state_dict" not in held), doc.get("bare"))


def resumes(lines):
    """The lines are run as they stand, and the optimizer has its state."""
    torch.manual_seed(5)
    model = peers.Net()
    optimizer = torch.optim.AdamW(peers.groups(model), lr=1e-3)
    scope = {"torch": torch, "model": model, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)}
    exec(lines, scope)
    return optimizer.state_dict()["state"][0]["step"] == 3 and scope["scheduler"].last_epoch == 3


# ---------------------------------------------------------------- folders

def folders(inspect):
    with section("a folder of the Trainer's steps"):
        doc = show(inspect, "evaluated")
        found = [(c["name"], c["step"], c["complete"]) for c in doc.get("checkpoints", [])]
        check("the Trainer's steps", found == [("checkpoint-2", 2, True), ("checkpoint-4", 4, True)], found)
        check("its resume", doc.get("resume") == 'trainer.train(resume_from_checkpoint="evaluated/checkpoint-4")', doc.get("resume"))
        optimizer = pathlib.Path("evaluated/checkpoint-4/optimizer.pt")
        os.truncate(optimizer, optimizer.stat().st_size // 2)
        doc = show(inspect, "evaluated")
        check("a truncated one is damaged", [c["complete"] for c in doc["checkpoints"]] == [True, False], doc)
        check("and the one before it is to resume from", "checkpoint-2" in doc["resume"], doc["resume"])
    with section("a folder of Lightning's"):
        import shutil
        shutil.rmtree("ckpts", ignore_errors=True)
        peer = peers.Lightning()
        peer.make("made.ckpt")
        peer.make("ckpts/by-hand.ckpt")
        then = time.time() - 7200
        os.utime("ckpts/by-hand.ckpt", (then, then))
        doc = show(inspect, "ckpts")
        listed = sorted(c["name"] for c in doc.get("checkpoints", []))
        check("Lightning's files", listed == sorted(os.listdir("ckpts")) and len(listed) > 2, listed)
        check("each with its step", all(c["step"] == peers.BEFORE and c["producer"] == "Lightning" for c in doc["checkpoints"]), doc["checkpoints"])
        alone = pathlib.Path("alone-in-it")
        alone.mkdir()
        shutil.copy("made.ckpt", alone)
        doc = named(inspect, "a folder of one file", alone, "Lightning", step=peers.BEFORE)
        check("a folder of one file: resume", doc["resume"].startswith('trainer.fit(model, ckpt_path="alone-in-it/made.ckpt"'), doc["resume"])
        healthy(inspect, "a folder of one file", alone, but=["weights-only-refused"])      # its hyperparameters
        doc = show(inspect, "ckpts")
        check("the older one first", doc["checkpoints"][0]["name"] == "by-hand.ckpt", [c["name"] for c in doc["checkpoints"]])


def main():
    inspect, = commands(__doc__, 1)
    print(f"torch {torch.__version__}, lightning {lightning.__version__}, accelerate {accelerate.__version__}, transformers {transformers.__version__}, "
          f"peft {peft.__version__}, bitsandbytes {bitsandbytes.__version__}")
    with scratch():
        for part in of_lightning, of_directories, of_torch, as_others, folders:
            part(inspect)
    finish()


if __name__ == "__main__":
    main()
