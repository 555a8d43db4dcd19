"""The situations of doctor_truth.py for accelerate: Accelerator.save_state makes the folder, load_state loads it."""
import argparse
import os
import shutil

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState

import truth_program as program
from truth_situations import FUSED, PLAIN, for_groups, for_states
from truth_tools import Row, tagged

BEFORE, AFTER = program.BEFORE, program.AFTER


class Progress:
    """What register_for_checkpointing takes."""

    def __init__(self):
        self.step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


def trainer(spec, seed):
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    accelerator = Accelerator(cpu=True)
    if spec.get("amp") == "on":                               # what mixed_precision="fp16" makes on a GPU
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=3)
    net = program.network(torch, seed, spec.get("dtype", "float32"))
    opt = program.construct(torch, net.named_parameters(), spec)
    lr = program.schedule(torch, opt, spec)
    data = torch.utils.data.DataLoader(torch.arange(8), 2, shuffle=True)
    net, opt, *more = accelerator.prepare(net, opt, data, *([lr] if lr else []))
    progress = Progress()
    if spec.get("custom"):
        accelerator.register_for_checkpointing(progress)
    return accelerator, net, opt, more[1] if lr else None, progress


def steps(parts, first, count, chance):
    accelerator, net, opt, lr, progress = parts
    losses = []
    for step in range(first, first + count):
        opt.zero_grad()
        x, y = program.numbers(torch, step, 5, 6, 11), program.numbers(torch, step, 5, 3, 9)
        loss = torch.nn.functional.mse_loss(net(x.to(net.fc1.weight.dtype)).float(), y) + 0.01 * torch.rand(()) * chance
        accelerator.backward(loss)
        opt.step()
        if lr:
            lr.step()
        progress.step += 1
        losses.append(loss.item())
    return losses


def made(spec, folder, safe=True):
    parts = trainer(spec, 1)
    torch.manual_seed(5)
    steps(parts, 0, BEFORE, spec.get("chance", 0))
    parts[0].save_state(folder, safe_serialization=safe)
    scale = parts[0].scaler.get_scale() if spec.get("amp") == "on" else None
    return steps(parts, BEFORE, AFTER, spec.get("chance", 0)), scale


def observe(folder, spec, wanted, scale):
    seen = {"phase": "load"}
    try:
        parts = trainer(spec, 2)
        torch.manual_seed(6)
        opt = parts[2].optimizer
        seen["constructed"] = program.flags(opt)
        parts[0].load_state(folder)
        seen.update(phase="step", after=dict(program.flags(opt), **program.state_of(torch, opt, parts[1].named_parameters())))
        seen["scale"] = parts[0].scaler.get_scale() if spec.get("amp") == "on" else None
        seen["losses"] = steps(parts, BEFORE, AFTER, spec.get("chance", 0))
        if spec.get("custom") and parts[4].step != BEFORE + AFTER:
            seen["phase"] = "load"
            raise RuntimeError("the registered object was not restored")
    except Exception as e:
        seen["error"] = f"{type(e).__name__}: {e}"
    seen["outcome"], seen["why"] = program.verdict(seen, dict(spec, wanted=wanted, wanted_scale=scale))
    return seen


def missing(*names):
    def edit(folder):
        for name in names:
            os.remove(os.path.join(folder, name))
    return edit


def rewritten(name, change, tag=None):
    """A file of the folder, its content changed, its storages said to be on `tag`."""
    def edit(folder):
        file = os.path.join(folder, name)
        held = torch.load(file, weights_only=False)
        change(held)
        with tagged(tag):
            torch.save(held, file)
    return edit


def optimizer(change, tag=None):
    return rewritten("optimizer.bin", lambda held: change({"optimizer": held}), tag)


def more_ranks(folder):
    for rank in range(1, 4):
        shutil.copy(os.path.join(folder, "random_states_0.pkl"), os.path.join(folder, f"random_states_{rank}.pkl"))


def nothing(held):
    """The file as it was."""


def table():
    """(name, how it was trained, edit of the folder, [(what the program is beyond that, doctor's options, codes)])."""
    same = [({}, [], [])]
    amp = {"amp": "on"}
    return [
        ("as it was saved", {}, None, same), ("as .bin", {"safe": False}, None, same), ("a schedule", {"schedule": True}, None, same),
        ("a registered object", {"custom": True}, None, same), ("random numbers", {"chance": 1}, None, same),
        ("optimizer on cuda:0", {}, optimizer(nothing, "cuda:0"), same), ("optimizer on cuda:7, step too", {}, optimizer(nothing, "cuda:7+step"), same),
        ("weights in .bin on cuda:0", {"safe": False}, rewritten("pytorch_model.bin", nothing, "cuda:0"), same),
        ("fused", {"hyper": FUSED}, None, same + [({"hyper": PLAIN}, ["--optimizer", "plain"], ["fused-flag-overwritten"])]),
        ("plain, for a fused program", {}, None, [({"hyper": FUSED}, ["--optimizer", "fused"], ["fused-flag-overwritten"])]),
        ("no weights", {}, missing("model.safetensors"), same), ("no optimizer.bin", {}, missing("optimizer.bin"), same),
        ("no scheduler.bin", {"schedule": True}, missing("scheduler.bin"), same),
        ("no random_states_0.pkl", {"chance": 1}, missing("random_states_0.pkl"), same),
        ("random states of four ranks", {}, more_ranks, [({}, [], ["rank-state-count"])]),
        ("no custom_checkpoint_0.pkl", {"custom": True}, missing("custom_checkpoint_0.pkl"), same),
        ("a scaler", amp, None, [({}, ["--amp"], [])]), ("no scaler.pt", amp, missing("scaler.pt"), [({}, ["--amp"], ["scaler-missing"])]),
        ("a scaler {}", amp, rewritten("scaler.pt", lambda held: held.clear()), [({}, ["--amp"], [])]),
        ("a class in optimizer.bin", {}, rewritten("optimizer.bin", lambda held: held.update(args=argparse.Namespace(a=1))), same),
        ("a class in random_states_0.pkl", {"chance": 1}, rewritten("random_states_0.pkl", lambda held: held.update(args=argparse.Namespace(a=1))), same),
        ("state is empty", {}, optimizer(lambda h: h["optimizer"]["state"].clear()), [({}, [], ["moments-missing"])]),
        ("two ids have no state", {}, optimizer(lambda h: [h["optimizer"]["state"].pop(i) for i in (1, 4)]), [({}, [], ["moments-missing"])]),
        ("a moment of another shape", {}, optimizer(for_states(lambda s: s.update(exp_avg=s["exp_avg"][:2].clone()))), [({}, [], ["moment-shape"])]),
        ("capturable, on a CPU", {}, optimizer(for_groups(capturable=True)), [({}, [], ["capturable-on-cpu"])]),
        ("lr is missing", {}, optimizer(for_groups(lr=KeyError)), same),
        ("bfloat16 with float32 moments", {"dtype": "bfloat16"}, optimizer(for_states(lambda s: [s.update({k: s[k].float()}) for k in ("exp_avg", "exp_avg_sq")])),
         [({"moments": "float32"}, [], ["moments-cast"])]),
    ]


def situations(only, _built):
    rows = []
    version = ".".join(torch.__version__.split(".")[:2])
    for number, (name, how, edit, programs) in enumerate(table()):
        if only not in "accelerate: " + name:
            continue
        folder = os.path.abspath(f"accelerate-{number:02d}")
        wanted, scale = made(how, folder, how.get("safe", True))
        if edit:
            edit(folder)
        for more, doctor, codes in programs:
            seen = observe(folder, {**how, **more}, wanted, scale)
            rows.append(Row("accelerate: " + name, "accelerate", os.path.basename(folder), ["--for", "accelerate", "--torch", version, "--devices", "cpu", *doctor], codes, seen, ""))
    return rows
