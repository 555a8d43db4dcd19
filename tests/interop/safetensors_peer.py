#!/usr/bin/env python3
"""What the Python safetensors library and the commands think of each other's files.

usage: safetensors_peer.py CKPT-INSPECT CKPT-MIGRATE

Needs torch and safetensors. The peer writes a file; ckpt-inspect lists it; ckpt-migrate makes a native file and a plain
one of it; the peer loads both, and every tensor must be bit for bit what it was. Exit status 0: all agree."""
import json
import pathlib
import subprocess
import sys
import tempfile
import zlib

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def make():
    torch.manual_seed(1)
    dtypes = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16,
              torch.int32, torch.int64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64]
    tensors = {f"t.{i}.{str(d)[6:]}": (torch.randn(3, i + 1) * 9).to(d) for i, d in enumerate(dtypes)}
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(0, 7)
    tensors["odd \"name\" \\ \u6a21\u578b"] = torch.arange(5)
    return tensors


def run(*args):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, args))}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def compare(tensors, path):
    found = load_file(path)
    if set(found) != set(tensors):
        sys.exit(f"{path}: names differ: {sorted(set(found) ^ set(tensors))}")
    for name, tensor in tensors.items():
        other = found[name]
        if other.dtype != tensor.dtype or other.shape != tensor.shape or bits(other) != bits(tensor):
            sys.exit(f"{path}: '{name}' differs")
    with safe_open(path, "pt") as f:
        if f.metadata().get("format") != "pt":
            sys.exit(f"{path}: metadata has no format")


def main():
    inspect, migrate = sys.argv[1:3]
    tensors = make()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        save_file(tensors, scratch / "peer.safetensors", {"format": "pt"})
        listed = json.loads(run(inspect, "list", "--json", "--checksum", scratch / "peer.safetensors"))["tensors"]
        for entry in listed:
            tensor = tensors[entry["name"]]
            want = [str(tensor.dtype)[6:], list(tensor.shape), f"{zlib.crc32(bits(tensor)):08x}"]
            if [entry["dtype"], entry["shape"], entry["crc32"]] != want:
                sys.exit(f"ckpt-inspect: {entry} should be {want}")
        if len(listed) != len(tensors):
            sys.exit(f"ckpt-inspect lists {len(listed)} of {len(tensors)} tensors")
        run(migrate, "--to", "ckpt", scratch / "peer.safetensors", scratch / "native.safetensors")
        compare(tensors, scratch / "native.safetensors")
        run(migrate, "--to", "safetensors", "--lossy", scratch / "native.safetensors", scratch / "plain.safetensors")
        compare(tensors, scratch / "plain.safetensors")
    print(f"{len(tensors)} tensors agree")


if __name__ == "__main__":
    main()
