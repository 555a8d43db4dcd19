#!/usr/bin/env python3
"""Trains the model of ../charlm.c in PyTorch and hands it over: a checkpoint, and the losses that must follow.

    make_checkpoint.py [--text ../data/sonnets.txt] OUTDIR

writes into OUTDIR

    ar-ckpt-cuda0.pth   the run after 40 steps, every storage tagged cuda:0
    ar-ckpt-mixed.pth   the same run; weights and moments tagged cuda:0, `step` on the cpu: the mix that a
                        fused optimizer refuses
    losses.txt          the next 20 steps as PyTorch ran them, in the words of ../train_charlm.c

The run is one as VAR and others train: AMP's GradScaler and AdamW(fused=True), in float32 on the CPU, one thread. One
of the 20 steps has an infinite gradient, which the scaler must skip. The file has the layout of VAR's trainer:
{epoch, iter, trainer {config, var_wo_ddp, vae_local, var_opt {scaler, optimizer}}, args}.

About the tags: no GPU is needed. A storage's device is a string in the pickle, which torch asks its taggers for while
it saves; torch.serialization.register_package adds one, and the rest of the file is as torch writes it. The numbers
were computed on the CPU, so the tag is simulated, and the file is what the same run on cuda:0 would have left.

Made with PyTorch 2.13; the files in tests/data/torch-handover are this script's.
"""
import argparse
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 96, 32, 32, 4, 2, 8
BEFORE, AFTER = 40, 20          # steps before the checkpoint, steps recorded after it
OVERFLOW_AT = 47                # this step (counted from 1) gets an infinite gradient
SEED = 1609


# ---- the model: the names are what ../charlm.c calls them

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.ln2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential()
        self.mlp.add_module("fc", nn.Linear(WIDTH, 4 * WIDTH))
        self.mlp.add_module("gelu", nn.GELU())
        self.mlp.add_module("proj", nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, mask):
        y = self.ln1(x)
        x = x + self.attn(y, y, y, attn_mask=mask, need_weights=False, is_causal=True)[0]
        return x + self.mlp(self.ln2(x))


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, WIDTH)
        self.pos = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        x = self.tok(tokens) + self.pos(torch.arange(CONTEXT))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.ln_f(x))


# ---- the data: the trainer's counter-based generator (splitmix64), a function of seed and counter alone

def random64(seed, counter):
    mask = (1 << 64) - 1
    z = (seed + counter * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def batch(text, step):
    """Inputs and targets of step number `step`, counted from 0."""
    starts = [random64(SEED, step * BATCH + b + 1) % (len(text) - CONTEXT) for b in range(BATCH)]
    rows = torch.stack([text[s:s + CONTEXT + 1] for s in starts])
    return rows[:, :-1], rows[:, 1:]


def symbols(data):
    return torch.tensor([0 if c == 10 else c - 31 if 32 <= c <= 126 else 1 for c in data])


# ---- the training

def train(model, optimizer, scaler, text, first, last):
    """Steps first..last-1; gives a line for each as the C trainer prints it."""
    lines = []
    for step in range(first, last):
        inputs, targets = batch(text, step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs).view(-1, VOCAB), targets.reshape(-1))
        scaler.scale(loss).backward()
        if step + 1 == OVERFLOW_AT:
            model.tok.weight.grad[0, 0] = float("inf")
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped = " skipped" if step + 1 == OVERFLOW_AT else ""
        lines.append("step %d loss %.6f (%s) scale %.9g%s" % (step + 1, loss.item(), loss.item().hex(), scale, skipped))
    return lines


def save(path, checkpoint, device_of):
    """torch.save, with each storage tagged as device_of(storage) says."""
    registry = list(torch.serialization._package_registry)
    torch.serialization.register_package(0, device_of, lambda storage, location: None)   # asked before torch's own
    try:
        torch.save(checkpoint, path)
    finally:
        torch.serialization._package_registry[:] = registry


def verify(path, checkpoint, expected):
    """Loads the file as a trainer would, and checks every tag and every bit."""
    tags = []
    loaded = torch.load(path, weights_only=False, map_location=lambda storage, tag: (tags.append(tag), storage)[1])

    def same(a, b, where):
        if isinstance(a, torch.Tensor):
            assert torch.equal(a, b) and a.dtype == b.dtype, where
        elif isinstance(a, dict):
            assert list(a) == list(b), where
            for key in a:
                same(a[key], b[key], f"{where}.{key}")
        elif isinstance(a, (list, tuple)):
            assert type(a) is type(b) and len(a) == len(b), where
            for i, (x, y) in enumerate(zip(a, b)):
                same(x, y, f"{where}.{i}")
        else:
            assert a == b, where

    same(checkpoint, loaded, "")
    found = {tag: tags.count(tag) for tag in sorted(set(tags))}
    assert found == expected, (path, found, expected)
    print(f"{path}: {os.path.getsize(path)} bytes, storages: {found}")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser()
    parser.add_argument("outdir")
    parser.add_argument("--text", default=os.path.join(here, "..", "data", "sonnets.txt"))
    options = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    os.makedirs(options.outdir, exist_ok=True)
    with open(options.text, "rb") as file:
        text = symbols(file.read())

    model = CharLM()
    decay = [p for p in model.parameters() if p.ndim >= 2]
    no_decay = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}],
                                  lr=3e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=25)
    vae = nn.Conv2d(3, 4, 3)

    lines = train(model, optimizer, scaler, text, 0, BEFORE)
    print(lines[0], lines[-1], sep="\n")
    config = {"patch_nums": (1, 2, 4), "label_smooth": 0.0, "prog_it": 0, "last_prog_si": -1, "first_prog": True}
    checkpoint = {
        "epoch": 0,
        "iter": BEFORE,
        "trainer": {
            "config": config,
            "var_wo_ddp": model.state_dict(),
            "vae_local": vae.state_dict(),
            "var_opt": {"scaler": scaler.state_dict(), "optimizer": optimizer.state_dict()},
        },
        "args": argparse.Namespace(model="charlm", width=WIDTH, heads=HEADS, layers=LAYERS, seed=SEED, tlr=3e-3,
                                   twd=0.05, fp16=1, device="cuda", ep=250, opt="adamw"),
    }
    steps = {s["step"].untyped_storage().data_ptr() for s in optimizer.state.values()}
    n = len(steps)
    assert n == len(decay) + len(no_decay)

    path = os.path.join(options.outdir, "ar-ckpt-cuda0.pth")
    save(path, checkpoint, lambda storage: "cuda:0")
    verify(path, checkpoint, {"cuda:0": 4 * n + 2})
    path = os.path.join(options.outdir, "ar-ckpt-mixed.pth")
    save(path, checkpoint, lambda storage: None if storage.data_ptr() in steps else "cuda:0")
    verify(path, checkpoint, {"cpu": n, "cuda:0": 3 * n + 2})

    lines = train(model, optimizer, scaler, text, BEFORE, BEFORE + AFTER)
    path = os.path.join(options.outdir, "losses.txt")
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")
    print(f"{path}: {len(lines)} steps")
    print(lines[0], lines[-1], sep="\n")
    print(f"made with torch {torch.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
