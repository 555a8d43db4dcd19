"""The situations of doctor_truth.py for the Trainer of transformers: a checkpoint-N folder, train(resume_from_checkpoint=...)."""
import argparse
import contextlib
import json
import os
import shutil

import torch
import transformers

import truth_program as program
from truth_accelerate import missing, nothing, rewritten
from truth_situations import for_groups, for_states
from truth_tools import Row

transformers.utils.logging.set_verbosity(transformers.utils.logging.CRITICAL)
transformers.utils.logging.disable_progress_bar()
BEFORE, AFTER = program.BEFORE, program.AFTER


class Watch(transformers.TrainerCallback):
    """What the optimizer has once all is restored, and the losses."""

    def __init__(self, seen):
        self.seen = seen

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **more):
        opt = getattr(optimizer, "optimizer", optimizer)
        self.seen.update(at=state.global_step, after=dict(program.flags(opt), **program.state_of(torch, opt, model.named_parameters())))

    def on_step_begin(self, args, state, control, **more):     # the generator is restored between the two
        self.seen["phase"] = "step"

    def on_log(self, args, state, control, logs=None, **more):
        if logs and "loss" in logs:
            self.seen.setdefault("losses", []).append(float(logs["loss"]))


def model(spec, seed):
    torch.manual_seed(seed)
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=64, n_positions=8))
    if spec.get("lora"):
        import peft
        net = peft.get_peft_model(net, peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True))
    return net.to(getattr(torch, spec.get("dtype", "float32")))


def trainer(spec, seed, steps, seen):
    kind = {"fused": "adamw_torch_fused", "8bit": "adamw_bnb_8bit"}.get(spec.get("optim"), "adamw_torch")
    args = transformers.TrainingArguments("run", use_cpu=True, max_steps=steps, save_steps=BEFORE, logging_steps=1, logging_nan_inf_filter=False, learning_rate=0.01,
                                          per_device_train_batch_size=2, report_to=[], disable_tqdm=True, seed=3, lr_scheduler_type="linear", warmup_steps=2, optim=kind)
    ids = [{"input_ids": (torch.arange(6) * 7 + i * 5) % 64, "labels": (torch.arange(6) * 7 + i * 5) % 64} for i in range(40)]
    t = transformers.Trainer(model(spec, seed), args, train_dataset=ids, callbacks=[Watch(seen)])
    t.remove_callback(transformers.PrinterCallback)
    return t


@contextlib.contextmanager
def silence():
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
        yield


def made(spec, folder):
    seen = {}
    shutil.rmtree("run", ignore_errors=True)
    with silence():
        trainer(spec, 1, BEFORE + AFTER, seen).train()
    os.rename(os.path.join("run", f"checkpoint-{BEFORE}"), folder)
    return seen["losses"][BEFORE:]


def observe(folder, spec, wanted):
    seen = {"phase": "load"}
    try:
        with silence():
            t = trainer(spec, 1 if spec.get("lora") else 2, BEFORE + AFTER, seen)      # a base model is the same one again
            seen["constructed"] = program.flags(trainer(spec, 2, BEFORE + AFTER, {}).create_optimizer())
            t.train(resume_from_checkpoint=folder)
    except Exception as e:
        seen["error"] = f"{type(e).__name__}: {e}"
    seen["outcome"], seen["why"] = program.verdict(seen, dict(spec, wanted=wanted))
    if seen["outcome"].startswith("resumes") and (seen["at"] != BEFORE or len(seen["losses"]) != AFTER):
        seen["outcome"], why = "resumes-differently", seen["why"]
        why.append(f"it goes on at step {seen['at']}, and {len(seen['losses'])} steps are left")
    return seen


def optimizer(change, tag=None):
    return rewritten("optimizer.pt", lambda held: change({"optimizer": held}), tag)


def more_ranks(folder):
    for rank in range(4):
        shutil.copy(os.path.join(folder, "rng_state.pth"), os.path.join(folder, f"rng_state_{rank}.pth"))
    os.remove(os.path.join(folder, "rng_state.pth"))


def sharded(folder):
    """The weights in two files with an index, as large models have them."""
    from safetensors.torch import load_file, save_file
    whole = load_file(os.path.join(folder, "model.safetensors"))
    names, index = sorted(whole), {}
    for n, part in enumerate((names[:5], names[5:]), 1):
        file = f"model-{n:05d}-of-00002.safetensors"
        save_file({k: whole[k] for k in part}, os.path.join(folder, file), {"format": "pt"})
        index.update({k: file for k in part})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": sum(t.nbytes for t in whole.values())}, "weight_map": index}, f)
    os.remove(os.path.join(folder, "model.safetensors"))


def table():
    """(name, how it was trained, edit of the folder, [(doctor's options, codes)])."""
    same = [([], [])]
    cast = for_states(lambda s: [s.update({k: s[k].float()}) for k in ("exp_avg", "exp_avg_sq")])
    return [
        ("as it was saved", {}, None, same), ("fused", {"optim": "fused"}, None, same), ("an adapter (LoRA)", {"lora": True}, None, same),
        ("weights in two files", {}, sharded, same), ("optimizer on cuda:0", {}, optimizer(nothing, "cuda:0"), same),
        ("fused, optimizer on cuda:7, step too", {"optim": "fused"}, optimizer(nothing, "cuda:7+step"), same),
        ("no optimizer.pt", {}, missing("optimizer.pt"), [([], ["optimizer-file-missing"])]), ("no scheduler.pt", {}, missing("scheduler.pt"), [([], ["optimizer-file-missing"])]),
        ("neither optimizer.pt nor scheduler.pt", {}, missing("optimizer.pt", "scheduler.pt"), [([], ["optimizer-file-missing"])]),
        ("no rng_state.pth", {}, missing("rng_state.pth"), same), ("RNG states of four ranks", {}, more_ranks, [([], ["rank-state-count"])]),
        ("no trainer_state.json", {}, missing("trainer_state.json"), same), ("no training_args.bin", {}, missing("training_args.bin"), same),
        ("no config.json", {}, missing("config.json"), same), ("no weights", {}, missing("model.safetensors"), same),
        ("a class in optimizer.pt", {}, rewritten("optimizer.pt", lambda held: held.update(args=argparse.Namespace(a=1))), same),
        ("a class in scheduler.pt", {}, rewritten("scheduler.pt", lambda held: held.update(args=argparse.Namespace(a=1))), same),
        ("a class in rng_state.pth", {}, rewritten("rng_state.pth", lambda held: held.update(args=argparse.Namespace(a=1))), same),
        ("state is empty", {}, optimizer(lambda h: h["optimizer"]["state"].clear()), [([], ["moments-missing"])]),
        ("two ids have no state", {}, optimizer(lambda h: [h["optimizer"]["state"].pop(i) for i in (1, 4)]), [([], ["moments-missing"])]),
        ("a moment of another shape", {}, optimizer(for_states(lambda s: s.update(exp_avg=s["exp_avg"].flatten()[1:].clone()))), [([], ["moment-shape"])]),
        ("capturable, on a CPU", {}, optimizer(for_groups(capturable=True)), [([], ["capturable-on-cpu"])]),
        ("lr is missing", {}, optimizer(for_groups(lr=KeyError)), same),
        ("optimizer.pt of another step", {}, optimizer(for_states(lambda s: s.update(step=torch.tensor(2.0)))), [([], ["step-of-another optimizer.pt"])]),
        ("scheduler.pt of another step", {}, rewritten("scheduler.pt", lambda held: held.update(last_epoch=2, _step_count=3)), [([], ["step-of-another scheduler.pt"])]),
        ("a group less", {}, optimizer(lambda h: h["optimizer"]["param_groups"].pop()), same),
        ("bfloat16 with float32 moments", {"dtype": "bfloat16", "moments": "float32"}, optimizer(cast), [([], ["moments-cast"])]),
        ("bitsandbytes, 8 bits", {"optim": "8bit"}, None, same),
    ]


def situations(only, _built):
    rows = []
    version = ".".join(torch.__version__.split(".")[:2])
    for number, (name, how, edit, programs) in enumerate(table()):
        if only not in "HF Trainer: " + name:
            continue
        folder = os.path.abspath(f"hf-trainer-{number:02d}")
        try:
            wanted = made(how, folder)
        except Exception as e:
            rows.append(Row("HF Trainer: " + name, "hf-trainer", "", [], [], {}, f"it cannot train here: {type(e).__name__}: {e}"))
            continue
        if edit:
            edit(folder)
        for doctor, codes in programs:
            seen = observe(folder, how, wanted)
            rows.append(Row("HF Trainer: " + name, "hf-trainer", os.path.basename(folder), ["--for", "hf-trainer", "--torch", version, "--devices", "cpu", *doctor], codes, seen, ""))
    return rows
