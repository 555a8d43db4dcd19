#!/usr/bin/env python3
"""ckpt-migrate --to llmc: a GPT-2 that torch trains, under llm.c's names, as the files of 1, 2, 3 and 4 ranks of train_gpt2cu.

A reader of these files alone (written after what gpt2_build_from_checkpoint and load_state read) puts the ranks' parts together. What it
has is what torch has, bit by bit, and the training goes on from it with the losses of the run that went on, to the bit. Weights of
bfloat16 with masters are written and read likewise. Where the variable LLMC is a folder with llm.c, its train_gpt2.c reads the model's file
on the CPU, and its loss is that of torch (6 digits: it sums in another order).

usage: to_llmc.py CKPT-INSPECT CKPT-MIGRATE   [-v]
"""
import copy
import os
import struct

import checks
from checks import check, section

try:
    import torch
    import torch.nn.functional as F
except ImportError as e:
    checks.skip(f"torch is not installed ({e})")

INSPECT, MIGRATE = checks.commands(__doc__, 2)
NAMES = "wte wpe ln1w ln1b qkvw qkvb attprojw attprojb ln2w ln2b fcw fcb fcprojw fcprojb lnfw lnfb".split()
T, V, PADDED, L, H, C, STEPS, AFTER = 16, 61, 64, 2, 2, 16, 3, 4
SHAPES = dict(zip(NAMES, [(PADDED, C), (T, C), (L, C), (L, C), (L, 3 * C, C), (L, 3 * C), (L, C, C), (L, C), (L, C), (L, C), (L, 4 * C, C),
                          (L, 4 * C), (L, C, 4 * C), (L, C), (C,), (C,)]))


# ---- the training

def loss_of(p, step):
    g = torch.Generator().manual_seed(step)
    ids = torch.randint(0, V, (2, T + 1), generator=g)
    x = p["wte"][ids[:, :-1]] + p["wpe"]
    mask = torch.ones(T, T).tril() == 0
    for i in range(L):
        a = F.layer_norm(x, (C,), p["ln1w"][i], p["ln1b"][i]) @ p["qkvw"][i].T + p["qkvb"][i]
        q, k, v = (t.reshape(2, T, H, C // H).transpose(1, 2) for t in a.split(C, 2))
        a = ((q @ k.transpose(2, 3) / (C // H) ** 0.5).masked_fill(mask, float("-inf")).softmax(-1) @ v).transpose(1, 2).reshape(2, T, C)
        x = x + a @ p["attprojw"][i].T + p["attprojb"][i]
        a = F.layer_norm(x, (C,), p["ln2w"][i], p["ln2b"][i]) @ p["fcw"][i].T + p["fcb"][i]
        x = x + F.gelu(a, approximate="tanh") @ p["fcprojw"][i].T + p["fcprojb"][i]
    logits = (F.layer_norm(x, (C,), p["lnfw"], p["lnfb"]) @ p["wte"].T)[..., :V]
    return F.cross_entropy(logits.reshape(-1, V), ids[:, 1:].reshape(-1)), ids


def train(p, opt, begin, count):
    losses = []
    for step in range(begin, begin + count):
        opt.zero_grad()
        loss, _ = loss_of(p, step)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def optimizer_of(p):
    return torch.optim.AdamW([dict(params=list(p.values()))], lr=1e-2, betas=(0.9, 0.95))


def start():
    torch.manual_seed(3)
    p = {n: (torch.ones(s) if n in ("ln1w", "ln2w", "lnfw") else torch.randn(s) * 0.1).requires_grad_() for n, s in SHAPES.items()}
    with torch.no_grad():
        p["wte"][V:] = 0
    return p


# ---- llm.c's files

def take(f, n, dtype):
    data = f.read(n * dtype.itemsize)
    assert len(data) == n * dtype.itemsize, "the file is short"
    return torch.frombuffer(bytearray(data), dtype=dtype)


def read_model(path):
    with open(path, "rb") as f:
        head = struct.unpack("<256i", f.read(1024))
        assert head[0] == 20240326 and head[1] in (3, 5), head[:2]
        assert head[2:8] == (T, V, L, H, C, PADDED), head[2:8]
        dtype = torch.float32 if head[1] == 3 else torch.bfloat16
        model = {n: take(f, torch.Size(s).numel(), dtype).reshape(s) for n, s in SHAPES.items()}
        assert not f.read(1), "the file is longer"
    return model


def read_states(folder, world, split, masters):
    """{kind: {name: tensor}}, and the header's numbers of each rank."""
    kinds = {k: {n: torch.full((L if len(s) > 1 and n not in ("wte", "wpe") else 1, torch.Size(s).numel() // (L if len(s) > 1 and n not in ("wte", "wpe") else 1)), float("nan"))
                 for n, s in SHAPES.items()} for k in ("m", "v", "master")[:2 + masters]}
    heads = []
    for rank in range(world):
        with open(f"{folder}/state_{STEPS:08d}_{rank:05d}.bin", "rb") as f:
            head = f.read(1024)
            ints = struct.unpack("<256i", head)
            assert ints[:6] == (20240527, 1, world, rank, masters, 0), ints[:6]
            heads.append((ints[10],) + struct.unpack("<2Q", head[80:96]) + struct.unpack("<2Q", head[120:136]))
            for kind in kinds.values():
                for whole in kind.values():
                    layers, n = whole.shape
                    own = n // world if split else n
                    for layer in range(layers):
                        begin = rank * own if split else 0
                        whole[layer, begin:begin + own] = take(f, own, torch.float32)
            assert not f.read(1), "the file is longer"
    return {k: {n: t.reshape(SHAPES[n]) for n, t in kind.items()} for k, kind in kinds.items()}, heads


def same(a, b):
    return a.dtype == b.dtype and torch.equal(a, b)


def resumed(model, states):
    """A training of torch from what was read."""
    p = {n: t.clone().requires_grad_() for n, t in model.items()}
    opt = optimizer_of(p)
    state = {i: dict(step=torch.tensor(float(STEPS)), exp_avg=states["m"][n].clone(), exp_avg_sq=states["v"][n].clone()) for i, n in enumerate(NAMES)}
    opt.load_state_dict(dict(state=state, param_groups=opt.state_dict()["param_groups"]))
    return train(p, opt, STEPS, AFTER)


# ---- llm.c itself

MAIN = r"""
#define TESTING
#include "train_gpt2.c"
int main(int argc, char **argv)
{
    GPT2 model;
    int ids[2 * (%(T)d + 1)], in[2 * %(T)d], out[2 * %(T)d];
    FILE *f = fopen(argv[2], "rb");
    if (argc != 3 || !f || fread(ids, sizeof ids, 1, f) != 1)
        return 1;
    for (int b = 0; b < 2; b++)
        for (int t = 0; t < %(T)d; t++) {
            in[b * %(T)d + t] = ids[b * (%(T)d + 1) + t];
            out[b * %(T)d + t] = ids[b * (%(T)d + 1) + t + 1];
        }
    gpt2_build_from_checkpoint(&model, argv[1]);
    gpt2_forward(&model, in, out, 2, %(T)d);
    printf("LOSS %%.7f\n", model.mean_loss);
    return 0;
}
"""


def ask_llmc(model, p):
    folder = os.environ.get("LLMC")
    if not folder:
        print("llm.c is not run: LLMC is not set")
        return
    loss, ids = loss_of(p, 77)
    with open("ids", "wb") as f:
        f.write(struct.pack(f"<{ids.numel()}i", *ids.reshape(-1).tolist()))
    with open("main.c", "w") as f:
        f.write(MAIN % dict(T=T))
    built = checks.run("cc", "-O1", "-w", f"-I{folder}", "main.c", "-lm", "-o", "llmc")
    said = checks.run("./llmc", model, "ids") if built.returncode == 0 else built
    own = [line.split()[1] for line in said.stdout.splitlines() if line.startswith("LOSS")]
    check(f"train_gpt2.c reads {model}: the same loss", own and abs(float(own[0]) - loss.item()) < 1e-5, f"{own} {loss.item()} {said.stderr}")


# ---- all of it

def main():
    p = start()
    opt = optimizer_of(p)
    train(p, opt, 0, STEPS)
    weights = {n: t.detach().clone() for n, t in p.items()}
    moments = {k: {n: opt.state[t][key].clone() for n, t in p.items()} for k, key in (("m", "exp_avg"), ("v", "exp_avg_sq"))}
    saved = copy.deepcopy(opt.state_dict())
    saved["param_groups"][0]["param_names"] = NAMES
    values = dict(step=STEPS, vocab_size=V, num_heads=H)
    torch.save(dict(model=weights, optimizer=saved, **values), "torch.pt")
    went_on = train(p, opt, STEPS, AFTER)

    done = checks.run(MIGRATE, "--to", "llmc", "--lossy", "torch.pt", "refused")
    check("what the checkpoint lacks is asked for", done.returncode == 2 and "--rank-state drop" in done.stderr, done.stderr)
    done = checks.run(MIGRATE, "--to", "llmc", "--rank-state", "drop", "torch.pt", "refused")
    check("the settings of the optimizer are lost", done.returncode == 2 and "lr, betas" in done.stderr + done.stdout, done.stderr + done.stdout)
    for world in (1, 2, 3, 4):
        with section(f"{world} ranks"):
            out = f"of-{world}"
            done = checks.run(MIGRATE, "--to", "llmc", "--world", world, "--rank-state", "drop", "--lossy", "--verify", "torch.pt", out)
            if not check(f"{world} ranks: written", done.returncode == 0, done.stderr):
                continue
            model = read_model(f"{out}/model_{STEPS:08d}.bin")
            states, heads = read_states(out, world, world in (2, 4), 0)
            check(f"{world} ranks: the weights", all(same(model[n], weights[n]) for n in NAMES))
            check(f"{world} ranks: the moments", all(same(states[k][n], moments[k][n]) for k in "mv" for n in NAMES))
            check(f"{world} ranks: the headers", heads == [(STEPS, 13371337 + r, 13371337 + r, 0, 0) for r in range(world)], heads)
            check(f"{world} ranks: the losses go on", resumed(model, states) == went_on, went_on)
            check(f"{world} ranks: the files", sorted(os.listdir(out)) == sorted([f"DONE_{STEPS:08d}", f"model_{STEPS:08d}.bin"] + [f"state_{STEPS:08d}_{r:05d}.bin" for r in range(world)]))
            back = checks.run(INSPECT, "diff", f"of-{world}", "of-1")
            check(f"{world} ranks: read back, the same tensors", "optimizer." not in back.stdout and "wte" not in back.stdout, back.stdout)
    with section("bfloat16"):
        for i, n in enumerate(NAMES):
            saved["state"][i]["master"] = weights[n]
        torch.save(dict(model={n: t.bfloat16() for n, t in weights.items()}, optimizer=saved, **values), "bf16.pt")
        done = checks.run(MIGRATE, "--to", "llmc", "--world", 4, "--rank-state", "drop", "--lossy", "--verify", "bf16.pt", "bf16")
        check("bfloat16: written", done.returncode == 0, done.stderr)
        model = read_model(f"bf16/model_{STEPS:08d}.bin")
        states, _ = read_states("bf16", 4, True, 1)
        check("bfloat16: the weights", all(same(model[n], weights[n].bfloat16()) for n in NAMES))
        check("bfloat16: the masters", all(same(states["master"][n], weights[n]) for n in NAMES))
        check("bfloat16: the moments", all(same(states[k][n], moments[k][n]) for k in "mv" for n in NAMES))
        half = checks.run(MIGRATE, "--to", "llmc", "--rank-state", "drop", "--lossy", "--cast", "*=float16", "bf16.pt", "half")
        check("float16 is refused", half.returncode == 2 and "--cast" in half.stderr, half.stderr)
    with section("llm.c"):
        done = checks.run(MIGRATE, "--to", "llmc", "--weights-only", "torch.pt", "model.bin")
        check("the weights alone", done.returncode == 0 and open("model.bin", "rb").read() == open(f"of-1/model_{STEPS:08d}.bin", "rb").read(), done.stderr)
        ask_llmc("model.bin", weights)
    checks.finish()


with checks.scratch():
    main()
