#!/usr/bin/env python3
"""giant.py DIR [--measure CKPT_INSPECT CKPT_MIGRATE] [--kind dcp|zero3|hf] [--ranks N] [--layers N] [--headers all|first]: a checkpoint of the shape of Llama 3.1 405B as
AdamW trains it, of N ranks (1024), whose payload is holes.

All that is no payload is what the programs write. dcp: .metadata is torch's own classes, pickled by the function that torch uses,
with the chunks, the order and the offsets that FSDP2 over N ranks has, and each string as often as it has it (a rank's plan
comes to rank 0 by itself, so each rank's records have names of their own); each record is what torch.save makes of a tensor of
zeros, whose zeros are left out. --headers first: of each file its first record only, which is enough for what lists and plans.
zero3: what the engine of DeepSpeed puts into the files of its ranks in stage 3, saved by torch.save over tensors that have no
bytes. hf: safetensors in 191 shards with their index, bfloat16, the weights alone.

--measure: what show and the plans take of it (three runs each, the quickest and its peak memory), with 256 descriptors;
then it is removed. --layers (126): of a smaller model.
"""
import argparse
import collections
import gc
import io
import json
import math
import mmap
import os
import pickle
import shutil
import struct
import subprocess
import sys
import time
import uuid

HIDDEN, FFN, KEYS, VOCABULARY, SHARDS = 16384, 53248, 1024, 128256, 191
LAYER = (("self_attn.q_proj", (HIDDEN, HIDDEN)), ("self_attn.k_proj", (KEYS, HIDDEN)), ("self_attn.v_proj", (KEYS, HIDDEN)),
         ("self_attn.o_proj", (HIDDEN, HIDDEN)), ("mlp.gate_proj", (FFN, HIDDEN)), ("mlp.up_proj", (FFN, HIDDEN)),
         ("mlp.down_proj", (HIDDEN, FFN)), ("input_layernorm", (HIDDEN,)), ("post_attention_layernorm", (HIDDEN,)))
STEP = 12000


def parameters(layers):
    """[(name, shape)], in the order of the model."""
    found = [("model.embed_tokens.weight", (VOCABULARY, HIDDEN))]
    for i in range(layers):
        found += [(f"model.layers.{i}.{name}.weight", shape) for name, shape in LAYER]
    return found + [("model.norm.weight", (HIDDEN,)), ("lm_head.weight", (VOCABULARY, HIDDEN))]


def saved(thing):
    import torch
    out = io.BytesIO()
    torch.save(thing, out)
    return out.getvalue()


class Records:
    """What torch.save makes of zeros of a shape: the bytes before the payload, its size, and those behind it."""

    def __init__(self):
        self.known = {}

    def __call__(self, shape):
        import torch
        if shape not in self.known:
            size = 4 * math.prod(shape)
            text = saved(torch.zeros(shape))
            at = text.index(b"\0" * max(size, 1024)) if size >= 1024 else 0
            # Padding in front of the payload is not zeros (torch fills it with 'Z'), and what follows begins with a signature.
            self.known[shape] = (text[:at], size, text[at + size:]) if size >= 1024 else (text, 0, b"")
        return self.known[shape]

    def size(self, shape):
        head, payload, tail = self(shape)
        return len(head) + payload + len(tail)


def put(fd, at, parts):
    head, payload, tail = parts
    os.pwrite(fd, head, at)
    if tail:
        os.pwrite(fd, tail, at + len(head) + payload)


def dcp(folder, ranks, layers, headers):
    import torch
    from torch.distributed.checkpoint import filesystem, metadata as m
    gc.disable()                          # of some ten million objects none is garbage
    record = Records()
    model = parameters(layers)
    tensors, paths, steps = [], {}, {}     # (key, shape), in the order of the state dict

    def add(key, path, shape):
        paths[key] = path
        if shape is not None:
            tensors.append((key, shape))

    for name, shape in model:
        add("model." + name, ("model", name), shape)
    for name, shape in model:
        steps["optimizer.state." + name + ".step"] = len(steps) % ranks
        add("optimizer.state." + name + ".step", ("optimizer", "state", name, "step"), ())
        for moment in ("exp_avg", "exp_avg_sq"):
            add(f"optimizer.state.{name}.{moment}", ("optimizer", "state", name, moment), shape)
    objects = {}
    group = {"lr": 8e-5, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "amsgrad": False, "maximize": False,
             "foreach": None, "capturable": False, "differentiable": False, "fused": True,
             "decoupled_weight_decay": True, "params": [name for name, _ in model]}
    for key, value in group.items():
        objects["optimizer.param_groups.0." + key] = value
        paths["optimizer.param_groups.0." + key] = ("optimizer", "param_groups", 0, key)
    objects["step"], paths["step"] = STEP, ("step",)

    def chunks_of(shape):
        """(rank, offset, size): one of the empty ones is in the list, as equal ones become one."""
        if not shape:
            return []
        each = -(-shape[0] // ranks)
        found = []
        for rank in range(ranks):
            lo = min(rank * each, shape[0])
            found.append((rank, lo, min(each, shape[0] - lo)))
            if lo == shape[0]:
                break
        return found

    listed, at = {}, [0] * ranks
    for key in objects:
        listed[key] = m.BytesStorageMetadata()
    cut = {}
    for key, shape in tensors:
        properties = m.TensorProperties(dtype=torch.float32)
        chunks = []
        if not shape:
            chunks.append(m.ChunkStorageMetadata(offsets=torch.Size(()), sizes=torch.Size(())))
        elif shape not in cut:
            cut[shape] = chunks_of(shape)
        for _, lo, size in cut.get(shape, []):
            chunks.append(m.ChunkStorageMetadata(offsets=torch.Size((lo, *[0] * (len(shape) - 1))),
                                                 sizes=torch.Size((size, *shape[1:]))))
        listed[key] = m.TensorStorageMetadata(properties, torch.Size(shape), chunks)
    storage = {}
    files = [open(os.path.join(folder, f"__{rank}_0.distcp"), "wb") for rank in range(ranks)]
    for rank in range(ranks):
        own, fd, first = f"__{rank}_0.distcp", files[rank].fileno(), True
        if rank == 0:
            for key, value in objects.items():
                text = saved(value)
                os.pwrite(fd, text, at[0])
                storage[m.MetadataIndex(key)] = filesystem._StorageInfo(own, at[0], len(text))
                at[0] += len(text)
        for key, shape in tensors:
            name = "".join(list(key))      # a string of its own
            if not shape:
                if steps[key] != rank:
                    continue
                index, size, text = m.MetadataIndex(name, torch.Size(()), 0), (), saved(torch.tensor(float(STEP)))
                length = len(text)
                os.pwrite(fd, text, at[rank])
            else:
                if rank >= len(cut[shape]):
                    continue
                _, lo, rows = cut[shape][rank]
                size = (rows, *shape[1:])
                index = m.MetadataIndex(name, torch.Size((lo, *[0] * (len(shape) - 1))), rank)
                length = record.size(size)
                if headers == "all" or first:
                    put(fd, at[rank], record(size))
                    first = False
            storage[index] = filesystem._StorageInfo(own, at[rank], length)
            at[rank] += length
        os.ftruncate(fd, at[rank])
        files[rank].close()
    whole = m.Metadata(listed, planner_data=paths, storage_data=storage, version="1.0.0",
                       storage_meta=m.StorageMeta(checkpoint_id=os.path.basename(folder), save_id=str(uuid.UUID(int=405))))
    with open(os.path.join(folder, ".metadata"), "wb") as f:
        pickle.dump(whole, f)
    return sum(at)


def zero3(folder, ranks, layers):
    """Tensors are of the right size and have no bytes: the records are left as holes by torch itself (skip_data)."""
    import torch
    from torch.serialization import skip_data
    model = parameters(layers)
    tag = os.path.join(folder, f"global_step{STEP}")
    os.mkdir(tag)
    shapes = collections.OrderedDict((name, torch.Size(shape)) for name, shape in model)
    own = sum(-(-math.prod(shape) // ranks) for _, shape in model)
    total = 0
    def addresses():
        """A tensor that is never written to or read: it has addresses, and no memory."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000   # MAP_NORESERVE: Python 3.11 has no name for it
        return torch.frombuffer(mmap.mmap(-1, 4 * own, flags=flags), dtype=torch.float32)

    flat, moments = addresses(), [addresses(), addresses()]
    settings = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
    group = {"lr": 8e-5, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "bias_correction": True, "step": STEP,
             "params": [0]}
    module = collections.OrderedDict((name, torch.empty(0, dtype=torch.bfloat16)) for name, _ in model)
    for rank in range(ranks):
        states = {"module": module, "buffer_names": [], "optimizer": None, "param_shapes": [shapes],
                  "frozen_param_shapes": None, "shared_params": {}, "frozen_param_fragments": None,
                  "lr_scheduler": None, "data_sampler": None, "random_ltd": None, "sparse_tensor_module_names": set(),
                  "skipped_steps": 0, "global_steps": STEP, "global_samples": STEP * ranks, "dp_world_size": ranks,
                  "mp_world_size": 1, "ds_config": settings, "ds_version": "0.19.8"}
        partition = {"optimizer_state_dict": {
            "zero_stage": 3, "loss_scaler": None, "dynamic_loss_scale": False, "overflow": False, "partition_count": ranks,
            "optimizer_state_dict": {"state": {0: {"step": STEP, "exp_avg": moments[0], "exp_avg_sq": moments[1]}},
                                     "param_groups": [group]},
            "fp32_flat_groups": [flat]}, "ds_config": settings, "ds_version": "0.19.8"}
        for name, thing in ((f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt", states),
                            (f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", partition)):
            path = os.path.join(tag, name)
            with skip_data():
                torch.save(thing, path)
            total += os.path.getsize(path)
    with open(os.path.join(folder, "latest"), "w") as f:
        f.write(os.path.basename(tag))
    return total


def hf(folder, layers):
    model = parameters(layers)
    weights, total = {}, 0
    each = -(-len(model) // SHARDS)
    parts = [model[i:i + each] for i in range(0, len(model), each)]
    for i, part in enumerate(parts):
        name = f"model-{i + 1:05}-of-{len(parts):05}.safetensors"
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for key, shape in part:
            size = 2 * math.prod(shape)
            header[key] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
            weights[key] = name
            at += size
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(folder, name), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            f.truncate(8 + len(text) + at)
        total += at
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": weights}, f, indent=2, sort_keys=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
                   "num_hidden_layers": layers}, f)
    return total


def make(folder, kind, ranks, layers=126, headers="first"):
    """The bytes of its files, holes included."""
    os.makedirs(folder)
    if kind == "dcp":
        return dcp(folder, ranks, layers, headers)
    return zero3(folder, ranks, layers) if kind == "zero3" else hf(folder, layers)


def taken(command):
    """(seconds, MiB) of the quickest of three runs, which may have 256 files open."""
    runs = []
    for _ in range(3):
        start = time.monotonic()
        child = subprocess.Popen(["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *command], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE)
        said = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = status
        if status:
            return f"failed: {said.decode(errors='replace').strip()}"
        runs.append((time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024))
    took, cpu, peak = min(runs)
    return f"{took:7.2f} s, {cpu:.2f} of processors, {peak:.0f} MiB"


def measured(folder, inspect, migrate):
    plan = [migrate, "--dry-run", "--lossy", folder, folder + ".out"]
    for what, command in (("show", [inspect, "show", folder]), ("plan --to torch", [*plan, "--to", "torch"]),
                          ("plan --to hf", [*plan, "--to", "hf"])):
        print(f"  {what:16} {taken(command)}", flush=True)


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("dir")
    a.add_argument("--kind", choices=("dcp", "zero3", "hf"), default="dcp")
    a.add_argument("--ranks", type=int, default=1024)
    a.add_argument("--layers", type=int, default=126)
    a.add_argument("--headers", choices=("all", "first"), default="first")
    a.add_argument("--measure", nargs=2, metavar=("CKPT_INSPECT", "CKPT_MIGRATE"))
    o = a.parse_args()
    if not o.measure:
        print(f"{make(o.dir, o.kind, o.ranks, o.layers, o.headers) / 1e12:.3f} TB in {o.dir}")
        return
    # In a process of its own: what made it would count as the peak of those that this one starts.
    made = [sys.executable, os.path.abspath(__file__), o.dir, "--kind", o.kind, "--ranks", str(o.ranks), "--layers",
            str(o.layers), "--headers", o.headers]
    try:
        if subprocess.run(made, check=False).returncode == 0:
            measured(o.dir, *o.measure)
    finally:
        shutil.rmtree(o.dir, ignore_errors=True)


if __name__ == "__main__":
    main()
