#!/usr/bin/env python3
"""What torch.load(weights_only=True) refuses, by versions: doctor's weights-only-refused beside the real torch.

usage: refused.py CKPT-INSPECT [-v]

The torch of this interpreter saves one small file for each kind of value and of tensor. Each torch there is loads them with
weights_only=True: this one, that of $CKPT_OLD_PYTHON (else /usr/bin/python3), and those of $CKPT_TORCH_PYTHONS (interpreters,
separated by colons). Whether it takes a file must be what doctor --torch VERSION --load-weights-only yes says of it; whether
it has what the file needs, with weights_only=False, what it says with no. The
versions that ran are printed; the last line is "N passed, N failed"."""
import argparse
import collections
import datetime
import json
import os
import pathlib
import sys
import uuid

from checks import ask, check, commands, finish, run, scratch, skip

OLD = os.environ.get("CKPT_OLD_PYTHON", "/usr/bin/python3")
MORE = [p for p in os.environ.get("CKPT_TORCH_PYTHONS", "").split(":") if p]

# What an interpreter is asked: {file: null, or what torch said}. What an old torch cannot build at all, and says so alike
# with weights_only=False, is no refusal of weights_only: "cannot".
ASK = """
import json, sys, torch
answers, unbuilt = {}, {}
LACKS = ("Can't get attribute", "positional arguments but", "too many values to unpack", "rebuilding sparse tensor for layout")

def said(name, weights_only):
    try:
        torch.load(name, map_location="cpu", weights_only=weights_only)
        return None
    except Exception as e:
        return f"{type(e).__name__}: {e}".split("WeightsUnpickler error: ")[-1]

for name in sys.argv[1:]:
    answers[name] = said(name, True)
    otherwise = answers[name] and said(name, False)
    unbuilt[name] = bool(otherwise and any(w in otherwise for w in LACKS))
    if otherwise and answers[name].endswith(otherwise.split(": ", 1)[1]):
        answers[name] = "cannot"
print(json.dumps([torch.__version__, answers, unbuilt]))
"""


def values(torch, np):
    """Values that a checkpoint holds beside its tensors."""
    made = {"float": 1.5, "text": "a", "int": 7, "long": 2**40, "bigint": 2**70, "list": [1, (2,), {}, None, True],
            "ordered": collections.OrderedDict(a=1), "counter": collections.Counter("aab"), "default": collections.defaultdict(list, a=[1]),
            "deque": collections.deque([1]), "set": {1, 2}, "frozen": frozenset([1]), "complex": 1 + 2j, "bytes": b"some", "no-bytes": b"",
            "bytearray": bytearray(b"some"), "size": torch.Size([2, 3]), "device": torch.device("cpu"), "layout": torch.sparse_coo,
            "numpy": np.arange(3), "number": np.float64(2), "namespace": argparse.Namespace(a=1), "path": pathlib.PurePosixPath("a"),
            "date": datetime.date(2024, 1, 2), "uuid": uuid.UUID(int=1), "qscheme": torch.per_tensor_affine, "range": range(3), "slice": slice(3),
            "function": torch.nn.functional.relu, "class": torch.nn.Linear, "key": {(1, "a"): 2, 2.5: 3, b"by": 4}}
    for name in ("float32 float64 float16 bfloat16 uint8 int8 int16 int32 int64 bool complex32 complex64 complex128 qint8 quint8 qint32 quint4x2 "
                 "float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz float8_e8m0fnu float4_e2m1fn_x2 bits8 bits16 uint16 uint32 uint64 "
                 "uint4 int4").split():
        if hasattr(torch, name):
            made["dtype-" + name] = getattr(torch, name)
    return made


def tensors(torch):
    made = {}
    for name in ("float32 float64 float16 bfloat16 uint8 int8 int16 int32 int64 bool complex32 complex64 float8_e5m2 float8_e4m3fn "
                 "float8_e5m2fnuz float8_e4m3fnuz float8_e8m0fnu float4_e2m1fn_x2 uint16 uint32 uint64").split():
        if hasattr(torch, name):
            dtype = getattr(torch, name)
            made["of-" + name] = torch.zeros(8, dtype=torch.uint8).view(dtype)
    with_attribute, parameter = torch.zeros(2), torch.nn.Parameter(torch.zeros(2))
    with_attribute.note = 1
    parameter.note = 1
    made.update({"parameter": torch.nn.Parameter(torch.zeros(2)), "parameter-attribute": parameter, "attribute": with_attribute,
                 "buffer": torch.nn.Buffer(torch.zeros(2)) if hasattr(torch.nn, "Buffer") else None, "meta": torch.zeros(2, device="meta"),
                 "coo": torch.eye(2).to_sparse(), "csr": torch.eye(2).to_sparse_csr(), "conj": torch.zeros(2, dtype=torch.complex64).conj(),
                 "csc": torch.eye(2).to_sparse_csc(), "bsr": torch.eye(4).to_sparse_bsr((2, 2)), "neg": torch.zeros(2, dtype=torch.complex64).conj().imag,
                 "in-parameter": torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64).conj()),
                 "quantized": torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.qint8),
                 "per-channel": torch.quantize_per_channel(torch.zeros(2, 2), torch.ones(2), torch.zeros(2, dtype=torch.int64), 0, torch.qint8),
                 "nested": torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), "typed": torch.FloatStorage(2),
                 "untyped": torch.zeros(2).untyped_storage(), "state": torch.nn.BatchNorm1d(2).state_dict(), "module": torch.nn.Linear(2, 2),
                 "scheduler": torch.optim.lr_scheduler.StepLR(torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=1), 2).state_dict()})
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))], lr=1)
    made["optimizer"] = optimizer.state_dict()
    return made


def save(torch, np):
    files = []
    for name, value in {**values(torch, np), **tensors(torch)}.items():
        torch.save({"x": value, "w": torch.zeros(1)}, name + ".pt")
        files.append(name + ".pt")
    held = {"x": [1, "a", True, torch.zeros(2)]}
    for protocol in 1, 2, 3, 4, 5:
        torch.save(held, f"protocol-{protocol}.pt", pickle_protocol=protocol)
        torch.save(held, f"protocol-{protocol}-legacy.pt", pickle_protocol=protocol, _use_new_zipfile_serialization=False)
        torch.save({"x": b"some", "w": torch.zeros(1)}, f"protocol-{protocol}-bytes.pt", pickle_protocol=protocol)
        files += [f"protocol-{protocol}.pt", f"protocol-{protocol}-legacy.pt", f"protocol-{protocol}-bytes.pt"]
    return files


def versions(files):
    """[(version, {file: what torch said})] of every interpreter with a torch that knows weights_only."""
    found = []
    for python in [sys.executable, OLD, *MORE]:
        done = run(python, "-W", "ignore", "-c", ASK, *files) if os.path.exists(python) else None
        if done is None or done.returncode != 0:
            print(f"{python}: no torch{': ' + done.stderr[-300:] if done and python in MORE else ''}")
            continue
        version, answers, unbuilt = json.loads(done.stdout)
        print(f"{python}: torch {version}")
        found.append((".".join(version.split(".")[:2]), answers, unbuilt))
    return found


def main():
    inspect, = commands(__doc__, 1)
    try:
        import numpy as np
        import torch
    except ImportError as e:
        skip(e)
    with scratch():
        files = save(torch, np)
        for version, answers, unbuilt in versions(files):
            for file, lacks in unbuilt.items():
                status, found = ask(inspect, "doctor", "--json", "--for", "torch", "--torch", version, "--load-weights-only", "no", "--devices", "cpu", file)
                old = [f["message"] for f in found.get("findings", []) if f["code"] == "torch-too-old"]
                check(f"torch {version}: {file}: what it does not have", bool(old) == lacks, f"{'it lacks something' if lacks else 'it has all'}; doctor: {old}")
            for file, said in answers.items():
                if said == "cannot":
                    print(f"torch {version}: {file}: not of today's torch, weights_only or not")
                    continue
                status, found = ask(inspect, "doctor", "--json", "--for", "torch", "--torch", version, "--load-weights-only", "yes", "--devices", "cpu", file)
                refused = [f["message"] for f in found.get("findings", []) if f["code"] == "weights-only-refused"]
                check(f"torch {version}: {file}", "error" not in found and bool(refused) == bool(said),
                      f"torch: {said or 'loads it'}; doctor: {refused or found.get('error') or 'not refused'}")
    finish()


if __name__ == "__main__":
    main()
