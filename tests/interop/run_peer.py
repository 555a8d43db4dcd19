#!/usr/bin/env python3
"""What the Python safetensors library and zlib make of a run's checkpoints.

usage: run_peer.py CKPT-INSPECT

Needs torch and safetensors, and the sample hook_minimal below $builddir. The sample trains and leaves a run directory; the
peer loads both files of each step, every tensor must have the CRC-32 that ckpt-inspect says, every file the size and
CRC-32 of the manifest, and torch's own AdamW must go on from the newest. Exit status 0: all agree."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zlib

import torch
from safetensors.torch import load_file


def crc(tensor):
    return f"{zlib.crc32(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()):08x}"


def check(condition, what):
    if not condition:
        sys.exit(f"run_peer: {what}")


def look_at(inspect, step):
    listed = subprocess.run([inspect, "list", "--json", "--checksum", step], check=True, capture_output=True, text=True)
    said = {t["name"]: t["crc32"] for t in json.loads(listed.stdout)["tensors"]}
    model, training = load_file(step / "model.safetensors"), load_file(step / "training.safetensors")
    found = {name: crc(t) for name, t in (model | training).items() if not name.startswith("ckpt.")}
    check(said == found, f"{step}: ckpt-inspect says {said}, the files hold {found}")
    check(set(model) == {"weight"}, f"{step}: model.safetensors holds {sorted(model)}")
    manifest = json.loads((step / "checkpoint.json").read_text())
    check(manifest["step"] == int(step.name.removeprefix("step-")), f"{step}: the manifest is of step {manifest['step']}")
    for file in manifest["files"]:
        data = (step / file["name"]).read_bytes()
        check(len(data) == file["size"] and f"{zlib.crc32(data):08x}" == file["crc32"], f"{step}/{file['name']}: manifest")
    return model, training


def go_on(model, training, step):
    weight = torch.nn.Parameter(model["weight"])
    optimizer = torch.optim.AdamW([weight], lr=0.01)
    optimizer.load_state_dict({"param_groups": optimizer.state_dict()["param_groups"], "state": {0: {
        "step": torch.tensor(float(step)), "exp_avg": training["optimizer.weight.exp_avg"],
        "exp_avg_sq": training["optimizer.weight.exp_avg_sq"]}}})
    before = weight.detach().clone()
    weight.square().sum().backward()
    optimizer.step()
    moved = (weight.detach() - before).abs().max().item()
    check(0 < moved < 0.1, f"torch's AdamW moved a weight by {moved}")


def main():
    inspect = os.path.abspath(sys.argv[1])
    trainer = pathlib.Path(os.environ.get("builddir", ".")) / "samples" / "hook_minimal"
    if not trainer.exists():
        print(f"{trainer} is not built")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        run = pathlib.Path(scratch) / "run"
        subprocess.run([trainer, "35", run], check=True, capture_output=True)
        steps = sorted(run.glob("step-*"))
        check([s.name for s in steps] == ["step-00000020", "step-00000030", "step-00000035"], f"{steps}")
        for step in steps:
            model, training = look_at(inspect, step)
        go_on(model, training, 35)
        check((run / "latest").read_text().strip() == steps[-1].name, "latest is not the newest")
    print(f"{len(steps)} checkpoints agree")


if __name__ == "__main__":
    main()
