#!/usr/bin/env python3
"""Parts of checkpoints, flattened optimizers, adapters and hooks: what doctor says of each, held against what the programs do.

usage: parts.py CKPT-INSPECT [-v]

A rank's file of FSDP2 (two processes over gloo), a flattened optimizer state (torch.distributed.checkpoint.state_dict) and the
resume that is printed for it, PEFT adapters whose settings were changed and the resume that is printed for them, a save_state
with a hook of the program's own. Each failure is a FAIL line; the last line counts."""
import json
import os
import pathlib
import shutil

from checks import ask, check, commands, finish, free_port, scratch, section, skip

try:
    import accelerate
    import peft
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as e:
    skip(f"{e.name} is not installed")
import subprocess
import sys
from torch import nn

RANK = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
def of(rank):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = torch.nn.Linear(4, 5)
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    torch.save(model.state_dict(), f"model_world_size_2_rank_{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(of, nprocs=2)
"""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.v = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.v(self.q(x))


def doctor(inspect, path, *more):
    status, doc = ask(inspect, "doctor", "--json", *more, path)
    return status, doc.get("outcome"), {f["code"]: f["severity"] for f in doc.get("findings", [])}


def snippet(inspect, path):
    done = subprocess.run([inspect, "doctor", "-q", "--snippet", "torch", str(path)], capture_output=True, text=True)
    space = {}
    exec(compile(done.stdout, "snippet", "exec"), space)
    return space["resume"]


def of_ranks(inspect):
    with section("a rank of FSDP2"):
        pathlib.Path("ranks.py").write_text(RANK)
        subprocess.run([sys.executable, "ranks.py"], check=True, capture_output=True, env={**os.environ, "MASTER_PORT": str(free_port())})
        name = "model_world_size_2_rank_1.pt"
        try:
            nn.Linear(4, 5).load_state_dict(torch.load(name))
            loads = True
        except Exception:
            loads = False
        check("a rank's file: one process cannot load it", not loads)
        status, outcome, codes = doctor(inspect, name)
        check("a rank's file: no verdict", status == 2 and outcome == "unknown" and codes == {"part-of-checkpoint": "warning"}, codes)
        check("a rank's file: no command that resumes", ask(inspect, "show", "--json", name)[1]["resume"] is None)
        whole = ask(inspect, "list", "--json", ".")[1].get("tensors", [])
        check("a directory of them is read whole", {t["name"]: t["shape"] for t in whole} == {"model.weight": [5, 4], "model.bias": [5]}, whole)


def of_flat(inspect):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    with section("a flattened optimizer"):
        torch.manual_seed(0)
        model = Net()
        parts = [{"params": [model.q.weight, model.v.weight], "weight_decay": 0.1}, {"params": [model.q.bias, model.v.bias]}]
        optimizer = torch.optim.AdamW(parts, lr=1e-3, weight_decay=0.0)
        model(torch.ones(2, 8)).square().mean().backward()
        optimizer.step()
        weights, flat = get_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
        torch.save({"model": weights, "optimizer": flat}, "flat.pt")
        torch.save({**weights, **{"optim." + k: v for k, v in flat.items()}}, "mixed.pt")
        torch.save({**weights, **flat}, "bare.pt")
        try:
            optimizer.load_state_dict(torch.load("flat.pt")["optimizer"])
            raised = None
        except KeyError as e:
            raised = repr(e)
        check("load_state_dict raises KeyError", raised == "KeyError('param_groups')", raised)
        for name in ("flat.pt", "mixed.pt", "bare.pt"):
            status, outcome, codes = doctor(inspect, name, "--for", "torch")
            check(f"{name}: fails at load", outcome == "fails-at-load" and codes.get("flat-optimizer") == "error", codes)
            other = Net()
            _, resumed, _ = snippet(inspect, name)(other)
            of = {p: n for n, p in other.named_parameters()}
            own = dict(model.named_parameters())
            same = all(torch.equal(resumed.state[p]["exp_avg"], optimizer.state[own[n]]["exp_avg"]) and torch.equal(p, own[n]) for p, n in of.items())
            check(f"{name}: the printed resume gives each its own", same and len(resumed.state) == 4)


def of_adapters(inspect):
    for dora in (False, True):
        with section(f"an adapter, dora {dora}"):
            base = peft.get_peft_model(Net(), peft.LoraConfig(r=4, target_modules=["q", "v"], use_dora=dora, rank_pattern={"v": 2}))
            base.save_pretrained("ad")
            saved = load_file("ad/adapter_model.safetensors")
            changes = ({}, {"r": 8}, {"rank_pattern": {}}, {"lora_alpha": 99}, {"rank_pattern": {"q": 3, "v": 2}}, {"r": 2, "rank_pattern": {"q": 4}},
                       {"target_modules": ["q"]}, {"use_dora": not dora}, {"target_modules": ".*(q|v)"}, {"rank_pattern": {".*v": 2}})
            for change in changes:
                shutil.copytree("ad", "changed", dirs_exist_ok=True)
                config = pathlib.Path("changed/adapter_config.json")
                config.write_text(json.dumps(json.loads(config.read_text()) | change))
                try:
                    loaded = peft.get_peft_model_state_dict(peft.PeftModel.from_pretrained(Net(), "changed"))
                    want = None if loaded.keys() == saved.keys() else "warning"
                except RuntimeError:
                    want = "error"
                got = doctor(inspect, "changed")[2].get("adapter-mismatch")
                check(f"dora {dora}, {change}: {want}", got == want, got)
            for path, model in (("ad", Net()), ("ad", peft.get_peft_model(Net(), peft.LoraConfig.from_pretrained("ad")))):
                loaded = peft.get_peft_model_state_dict(snippet(inspect, path)(model))
                check("the printed resume", loaded.keys() == saved.keys() and all(torch.equal(loaded[k], v) for k, v in saved.items()))


def of_hooks(inspect):
    def make(hooks):
        accelerator = accelerate.Accelerator(cpu=True)
        model, optimizer = accelerator.prepare(Net(), torch.optim.AdamW(Net().parameters(), lr=1e-3))

        def save(models, weights, out):
            os.makedirs(f"{out}/unet", exist_ok=True)
            save_file(accelerator.unwrap_model(models[0]).state_dict(), f"{out}/unet/diffusion_pytorch_model.safetensors", metadata={"format": "pt"})
            pathlib.Path(f"{out}/unet/config.json").write_text('{"_class_name": "UNet2DModel"}')
            weights.clear()

        def load(models, source):
            models.pop().load_state_dict(load_file(f"{source}/unet/diffusion_pytorch_model.safetensors"))
        if hooks:
            accelerator.register_save_state_pre_hook(save)
            accelerator.register_load_state_pre_hook(load)
        return accelerator, model
    with section("a hook of save_state"):
        accelerator, model = make(True)
        accelerator.save_state("checkpoint-3")
        other, fresh = make(True)
        other.load_state("checkpoint-3")
        check("load_state with the hook", all(torch.equal(a, b) for a, b in zip(model.parameters(), fresh.parameters())))
        try:
            make(False)[0].load_state("checkpoint-3")
            failed = False
        except FileNotFoundError:
            failed = True
        check("load_state without it: FileNotFoundError", failed)
        _, _, codes = doctor(inspect, "checkpoint-3")
        check("the weights are there", codes.get("weights-by-hook") == "note" and "weights-missing" not in codes, codes)


if __name__ == "__main__":
    inspect, = commands(__doc__, 1)
    with scratch():
        of_ranks(inspect)
        of_flat(inspect)
        of_adapters(inspect)
        of_hooks(inspect)
    finish()
