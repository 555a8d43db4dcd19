#!/usr/bin/env python3
"""ckpt-migrate --to llmc: a GPT-2 that torch trains, under llm.c's names, as the files of 1, 2, 3 and 4 ranks of train_gpt2cu.

A reader of these files alone (written after what gpt2_build_from_checkpoint and load_state read) puts the ranks' parts together. What it
has is what torch has, bit by bit, and the training goes on from it with the losses of the run that went on, to the bit. Weights of
bfloat16 with masters are written and read likewise. Where the variable LLMC is a folder with llm.c, its train_gpt2.c reads the model's file
on the CPU, and its loss and logits are those of torch (1e-5: it sums in another order).

By the layout gpt2-llmc a GPT-2 of transformers goes there and back: what the files hold is what torch makes of its tensors, the logits are
those of transformers, and a training that comes back goes on with the losses of the one that went on, to the bit.

usage: to_llmc.py CKPT-INSPECT CKPT-MIGRATE   [-v]
"""
import contextlib
import copy
import os
import shutil
import struct

import checks
from checks import check, section

try:
    import torch
    import torch.nn.functional as F
except ImportError as e:
    checks.skip(f"torch is not installed ({e})")

INSPECT, MIGRATE = checks.commands(__doc__, 2)
os.environ["CKPT_LAYOUTS"] = os.path.join(os.path.abspath(os.environ.get("srcdir", ".")), "layouts")
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
    if (argc != 4 || !f || fread(ids, sizeof ids, 1, f) != 1)
        return 1;
    for (int b = 0; b < 2; b++)
        for (int t = 0; t < %(T)d; t++) {
            in[b * %(T)d + t] = ids[b * (%(T)d + 1) + t];
            out[b * %(T)d + t] = ids[b * (%(T)d + 1) + t + 1];
        }
    gpt2_build_from_checkpoint(&model, argv[1]);
    gpt2_forward(&model, in, out, 2, %(T)d);
    printf("LOSS %%.7f\n", model.mean_loss);
    f = fopen(argv[3], "wb");
    return !f || fwrite(model.acts.logits, 4, 2 * %(T)d * (size_t)model.config.padded_vocab_size, f) == 0 || fclose(f) != 0;
}
"""


def ask_llmc(model, ids, loss, logits=None):
    """Its loss of the batch, and its logits, are those."""
    folder = os.environ.get("LLMC")
    if not folder:
        print(f"llm.c is not asked for {model}: LLMC is not set")
        return
    with open("ids", "wb") as f:
        f.write(struct.pack(f"<{ids.numel()}i", *ids.reshape(-1).tolist()))
    with open("main.c", "w") as f:
        f.write(MAIN % dict(T=ids.shape[1] - 1))
    built = checks.run("cc", "-O2", "-w", f"-I{folder}", "main.c", "-lm", "-o", "llmc")
    said = checks.run("./llmc", model, "ids", "logits") if built.returncode == 0 else built
    own = [line.split()[1] for line in said.stdout.splitlines() if line.startswith("LOSS")]
    check(f"train_gpt2.c reads {model}: the same loss", own and abs(float(own[0]) - loss) < 1e-5, f"{own} {loss} {said.stderr}")
    if own and logits is not None:
        with open("logits", "rb") as f:
            got = torch.frombuffer(bytearray(f.read()), dtype=torch.float32).reshape(2, ids.shape[1] - 1, -1)[..., :logits.shape[-1]]
        check(f"train_gpt2.c reads {model}: the same logits", (got - logits).abs().max() < 1e-5, (got - logits).abs().max())


# ---- a GPT-2 of transformers

TURNED = dict(qkvw="attn.c_attn", attprojw="attn.c_proj", fcw="mlp.c_fc", fcprojw="mlp.c_proj")
OTHERS = dict(ln1w="ln_1.weight", ln1b="ln_1.bias", qkvb="attn.c_attn.bias", attprojb="attn.c_proj.bias", ln2w="ln_2.weight", ln2b="ln_2.bias", fcb="mlp.c_fc.bias", fcprojb="mlp.c_proj.bias")


def as_llmc(hf):
    """{name of llm.c: tensor} of {name of transformers: tensor}."""
    out = {n: torch.stack([hf[f"transformer.h.{i}.{part}.weight"].T for i in range(L)]) for n, part in TURNED.items()}
    out |= {n: torch.stack([hf[f"transformer.h.{i}.{part}"] for i in range(L)]) for n, part in OTHERS.items()}
    out["wte"] = torch.cat([hf["transformer.wte.weight"], torch.zeros(PADDED - V, C)])
    return out | dict(wpe=hf["transformer.wpe.weight"], lnfw=hf["transformer.ln_f.weight"], lnfb=hf["transformer.ln_f.bias"])


def batch_of(step):
    return torch.randint(0, V, (2, T + 1), generator=torch.Generator().manual_seed(step))


def steps_of(model, opt, begin, count):
    losses = []
    for step in range(begin, begin + count):
        ids = batch_of(step)
        opt.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).logits.reshape(-1, V), ids[:, 1:].reshape(-1))
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def gpt2(transformers, seed):
    torch.manual_seed(seed)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=V, n_positions=T, n_embd=C, n_layer=L, n_head=H, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    named = dict(model.named_parameters())
    groups = [dict(params=[p for p in named.values() if (p.dim() > 1) == decays], param_names=[n for n, p in named.items() if (p.dim() > 1) == decays], weight_decay=0.1 * decays)
              for decays in (True, False)]
    return model, torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))


def of_transformers():
    """How much of it is not run."""
    try:
        with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            import transformers
    except ImportError as e:
        print(f"not run a GPT-2 of transformers: it is not installed ({e})")
        return 1
    model, opt = gpt2(transformers, 5)
    steps_of(model, opt, 0, STEPS)
    names = {p: n for n, p in model.named_parameters()}
    weights = {n: t.clone() for n, t in model.state_dict().items()}
    moments = {k: {names[p]: s[k].clone() for p, s in opt.state.items()} for k in ("exp_avg", "exp_avg_sq")}
    with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        model.save_pretrained("gpt2")
    torch.save(dict(model=model.state_dict(), optimizer=opt.state_dict(), step=STEPS, num_heads=H), "gpt2.pt")     # the head is there, in the bytes of wte
    ids = batch_of(77)
    with torch.no_grad():
        logits = model(ids[:, :-1]).logits
    loss = F.cross_entropy(logits.reshape(-1, V), ids[:, 1:].reshape(-1)).item()
    went_on = steps_of(model, opt, STEPS, AFTER)

    there = ("--layout", "gpt2-llmc", "--var", f"padded={PADDED}", "--to", "llmc")
    back = ("--layout", "gpt2-llmc", "--var", f"vocab={V}")
    done = checks.run(MIGRATE, *there, "--weights-only", "--verify", "gpt2", "gpt2.bin")
    if check("a directory of transformers: its weights alone", done.returncode == 0, done.stderr):
        model_ = read_model("gpt2.bin")
        want = as_llmc(weights)
        check("a directory of transformers: what torch makes of its tensors", all(same(model_[n], want[n]) for n in NAMES), [n for n in NAMES if not same(model_[n], want[n])])
        check("a directory of transformers: the loss", abs(loss_of(model_, 77)[0].item() - loss) < 1e-5, loss)
        ask_llmc("gpt2.bin", ids, loss, logits)
    done = checks.run(MIGRATE, *back, "--to", "hf", "--lossy", "--verify", "gpt2.bin", "gpt2-back")
    if check("and back", done.returncode == 0, done.stderr):
        shutil.copy("gpt2/config.json", "gpt2-back")
        with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            again = transformers.GPT2LMHeadModel.from_pretrained("gpt2-back").eval()
        with torch.no_grad():
            check("and back: the logits are those of before", torch.equal(again(ids[:, :-1]).logits, logits))
        check("and back: the weights", all(same(t, weights[n]) for n, t in again.state_dict().items()) and again.state_dict().keys() == weights.keys())

    done = checks.run(MIGRATE, *there, "--rank-state", "drop", "--world", 2, "--lossy", "--verify", "gpt2.pt", "gpt2-llmc")
    if not check("a training of transformers", done.returncode == 0, done.stderr):
        return 0
    status, doc = checks.ask(MIGRATE, "--json", "--dry-run", *there, "--weights-only", "gpt2.pt", "unused.bin")
    check("a training of transformers: that its head is tied is said", status == 0 and "layout-tied" in {f["code"] for f in doc["findings"]}, doc)
    states, _ = read_states("gpt2-llmc", 2, True, 0)
    for kind, key in (("m", "exp_avg"), ("v", "exp_avg_sq")):
        want = as_llmc(moments[key])
        check(f"a training of transformers: {key}", all(same(states[kind][n], want[n]) for n in NAMES), [n for n in NAMES if not same(states[kind][n], want[n])])
    check("a training of transformers: the model", open(f"gpt2-llmc/model_{STEPS:08d}.bin", "rb").read() == open("gpt2.bin", "rb").read())
    done = checks.run(MIGRATE, *back, "--to", "torch", "--lossy", "--verify", "gpt2-llmc", "gpt2-back.pt")
    if check("a training that comes back", done.returncode == 0, done.stderr):
        got = torch.load("gpt2-back.pt", weights_only=True)
        other, opt = gpt2(transformers, 6)
        other.load_state_dict(got["model"])
        ours = dict(zip(got["optimizer"]["param_groups"][0]["param_names"], got["optimizer"]["param_groups"][0]["params"]))
        own = opt.state_dict()
        own["state"] = {i: got["optimizer"]["state"][ours[n]] for g in own["param_groups"] for i, n in zip(g["params"], g["param_names"])}
        opt.load_state_dict(own)
        check("a training that comes back: it goes on with the same losses", steps_of(other, opt, STEPS, AFTER) == went_on, went_on)
        check("a training that comes back: the head is tied", got["model"]["lm_head.weight"].data_ptr() == got["model"]["transformer.wte.weight"].data_ptr())
    apart = dict(weights, **{"lm_head.weight": weights["transformer.wte.weight"] + 1})
    torch.save(dict(model=apart, num_heads=H), "apart.pt")
    torch.save(dict(model=dict(weights, **{"lm_head.weight": weights["transformer.wte.weight"].clone()}), num_heads=H), "copied.pt")
    done = checks.run(MIGRATE, *there, "--weights-only", "apart.pt", "no.bin")
    check("a head of its own is refused", done.returncode == 2 and "lm_head.weight" in done.stderr and not os.path.exists("no.bin"), done.stderr)
    done = checks.run(MIGRATE, *there, "--weights-only", "copied.pt", "copied.bin")
    check("a head that has the same elements elsewhere is the same", done.returncode == 0 and open("copied.bin", "rb").read() == open("gpt2.bin", "rb").read(), done.stderr)
    return 0


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
            status, doc = checks.ask(INSPECT, "diff", "--json", f"of-{world}", "of-1")
            other = [t["name"] for t in doc.get("tensors", [])]
            check(f"{world} ranks: read back, the same tensors", status in (0, 1) and doc["counts"]["tensors"]["same"] == 3 * len(NAMES) and not other, doc)
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
        loss, ids = loss_of(weights, 77)
        ask_llmc("model.bin", ids, loss.item())
    not_run = 0
    with section("transformers"):
        not_run = of_transformers()
    checks.finish(not_run)


with checks.scratch():
    main()
