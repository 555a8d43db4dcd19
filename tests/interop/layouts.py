#!/usr/bin/env python3
"""The presets of --layout: a model of transformers is trained, its checkpoint becomes one of the other program, and a model that computes as that
program does has the same logits and takes the same next steps, with the moments. Then the way back, which is exact.

torchtitan's rotary embedding turns neighbours, and transformers' the halves of a head: Pairs is the former, with torchtitan's names (what its own
models say is in layouts_torchtitan.py). nanoGPT is Linear, where transformers has Conv1D.

usage: layouts.py CKPT-INSPECT CKPT-MIGRATE   [-v]
"""
import os

import checks
from checks import check, section

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

INSPECT, MIGRATE = checks.commands(__doc__, 2)
os.environ["CKPT_LAYOUTS"] = os.path.join(os.path.abspath(os.environ.get("srcdir", ".")), "layouts")


def migrate(*args, status=0):
    return checks.ends(" ".join(args), status, MIGRATE, "--force", *args)


class Pairs(nn.Module):
    """Llama as torchtitan computes it: parameters under its names, and a rotary embedding of neighbours."""

    def __init__(self, c, like):
        super().__init__()
        self.c = c
        self.names = list(like)
        self.params = nn.ParameterList([nn.Parameter(like[n].clone()) for n in self.names])

    def load(self, weights):
        check("the names", set(weights) == set(self.names), set(weights) ^ set(self.names))
        for n, p in zip(self.names, self.params):
            check(f"the shape of {n}", p.shape == weights[n].shape, weights[n].shape)
            p.data.copy_(weights[n])

    def turned(self, x):
        d = x.shape[-1]
        freqs = 1.0 / (self.c.rope_parameters["rope_theta"] ** (torch.arange(0, d, 2).float() / d))
        angle = torch.outer(torch.arange(x.shape[1]).float(), freqs)
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(z * torch.polar(torch.ones_like(angle), angle)[None, :, None]).flatten(3)

    def norm(self, x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c.rms_norm_eps) * w

    def forward(self, ids):
        w, c = dict(zip(self.names, self.params)), self.c
        b, t, hd = *ids.shape, c.hidden_size // c.num_attention_heads
        x = F.embedding(ids, w["tok_embeddings.weight"])
        for i in range(c.num_hidden_layers):
            p = f"layers.{i}."
            h = self.norm(x, w[p + "attention_norm.weight"])
            q, k, v = ((h @ w[p + f"attention.qkv_linear.{n}.weight"].T).view(b, t, -1, hd) for n in ("wq", "wk", "wv"))
            rep = c.num_attention_heads // c.num_key_value_heads
            q, k, v = self.turned(q), self.turned(k).repeat_interleave(rep, 2), v.repeat_interleave(rep, 2)
            a = F.scaled_dot_product_attention(*(y.transpose(1, 2) for y in (q, k, v)), is_causal=True)
            x = x + a.transpose(1, 2).reshape(b, t, -1) @ w[p + "attention.wo.weight"].T
            h = self.norm(x, w[p + "ffn_norm.weight"])
            up = F.silu(h @ w[p + "feed_forward.w1.weight"].T) * (h @ w[p + "feed_forward.w3.weight"].T)
            x = x + up @ w[p + "feed_forward.w2.weight"].T
        return self.norm(x, w["norm.weight"]) @ w["lm_head.weight"].T


class Nano(nn.Module):
    """GPT-2 as nanoGPT computes it."""

    def __init__(self, c):
        super().__init__()
        e = c.n_embd
        self.c = c

        def block():
            return nn.ModuleDict(dict(
                ln_1=nn.LayerNorm(e), attn=nn.ModuleDict(dict(c_attn=nn.Linear(e, 3 * e), c_proj=nn.Linear(e, e))),
                ln_2=nn.LayerNorm(e), mlp=nn.ModuleDict(dict(c_fc=nn.Linear(e, 4 * e), c_proj=nn.Linear(4 * e, e)))))

        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(c.vocab_size, e), wpe=nn.Embedding(c.n_positions, e),
            h=nn.ModuleList([block() for _ in range(c.n_layer)]), ln_f=nn.LayerNorm(e)))
        self.lm_head = nn.Linear(e, c.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, ids):
        t, n = self.transformer, self.c.n_head
        x = t.wte(ids) + t.wpe(torch.arange(ids.shape[1]))
        for h in t.h:
            q, k, v = h.attn.c_attn(h.ln_1(x)).split(self.c.n_embd, 2)
            q, k, v = (y.view(*y.shape[:2], n, -1).transpose(1, 2) for y in (q, k, v))
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + h.attn.c_proj(a.transpose(1, 2).reshape(x.shape))
            x = x + h.mlp.c_proj(F.gelu(h.mlp.c_fc(h.ln_2(x)), approximate="tanh"))
        return self.lm_head(t.ln_f(x))


def steps(model, opt, n, seed):
    """So many steps, and their losses."""
    g, losses = torch.Generator().manual_seed(seed), []
    for _ in range(n):
        ids = torch.randint(0, 96, (2, 12), generator=g)
        out = model(ids)
        logits = out if isinstance(out, torch.Tensor) else out.logits
        loss = F.cross_entropy(logits[:, :-1].reshape(-1, 96), ids[:, 1:].reshape(-1))
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    return losses


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def trained(model, config, seed, path):
    """(the model, its optimizer) behind three steps, which are in that file, too."""
    torch.manual_seed(seed)
    m = model(config)
    opt = adamw(m)
    steps(m, opt, 3, seed + 1)
    torch.save({"model": m.state_dict(), "optimizer": opt.state_dict(), "step": 3}, path)
    return m, opt


def same_state(a, b, what):
    check(f"{what}: the names", a["model"].keys() == b["model"].keys(), a["model"].keys() ^ b["model"].keys())
    for k in a["model"]:
        check(f"{what}: {k}", torch.equal(a["model"][k], b["model"][k]))
    one, other = a["optimizer"]["state"], b["optimizer"]["state"]
    names = {i: n for g in b["optimizer"]["param_groups"] for i, n in zip(g["params"], g["param_names"], strict=True)}
    masters = [s.pop("master") for i, s in other.items() if "master" in s and torch.equal(s["master"], b["model"][names[i]])]    # as DeepSpeed has them
    held = [{i: sorted(s) for i, s in x.items()} for x in (one, other)]
    check(f"{what}: the states", one and held[0] == held[1] and len(masters) in (0, len(one)), held)
    for i, s in one.items():
        for k, v in s.items():
            check(f"{what}: state {i} {k}", torch.equal(v, other[i][k]))
    groups = [[{k: g.get(k) for k in own} for own, g in zip(a["optimizer"]["param_groups"], x["optimizer"]["param_groups"], strict=True)] for x in (a, b)]
    check(f"{what}: the groups", groups[0] == groups[1], groups)


def ordered(optimizer, names):
    """The optimizer's state in another order of its parameters: as `names` has them."""
    group = optimizer["param_groups"][0]
    of = dict(zip(group["param_names"], group["params"]))
    state = {i: {k: v.clone() for k, v in optimizer["state"][of[n]].items()} for i, n in enumerate(names)}
    return {"state": state, "param_groups": [{**group, "params": list(range(len(names)))}]}


def next_steps(there, here, here_opt, there_opt, what):
    ids = torch.randint(0, 96, (2, 12), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        diff = (there(ids) - here(ids).logits).abs().max().item()
    check(f"{what}: the logits", diff < 1e-5, diff)
    a, b = steps(here, here_opt, 4, 9), steps(there, there_opt, 4, 9)
    check(f"{what}: the losses", max(abs(x - y) for x, y in zip(a, b)) < 2e-5, f"{a} and {b}")
    check(f"{what}: something was learned", a[-1] != a[0], a)


def llama(d):
    c = LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, tie_word_embeddings=False)
    hf, titan, back = d + "/hf.pt", d + "/titan.pt", d + "/back.pt"
    m, opt = trained(LlamaForCausalLM, c, 1, hf)
    text = migrate("--layout", "llama", "--to", "torch", hf, titan, status=2)
    check("what is missing is said", "--var heads=NUMBER" in text, text)
    layout = ["--layout", "llama", "--var", "heads=4"]
    migrate(*layout, "--verify", "--to", "torch", hf, titan)
    t = torch.load(titan)
    there = Pairs(c, t["model"])
    there.load(t["model"])
    there_opt = adamw(there)
    there_opt.load_state_dict(ordered(t["optimizer"], there.names))
    migrate(*layout, "--to", "torch", titan, back)
    same_state(torch.load(hf), torch.load(back), "llama, there and back")
    for to in ("ckpt", "dcp", "universal"):
        migrate(*layout, "--verify", "--to", to, hf, f"{d}/{to}")
        migrate(*layout, "--to", "torch", f"{d}/{to}", back)
        same_state(torch.load(hf), torch.load(back), f"llama by {to}")
    next_steps(there, m, opt, there_opt, "llama")


def gpt2(d):
    c = GPT2Config(vocab_size=96, n_positions=16, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0, embd_pdrop=0,
                   attn_pdrop=0, bos_token_id=0, eos_token_id=0)
    hf, nano, back = d + "/g.pt", d + "/n.pt", d + "/b.pt"
    m, opt = trained(GPT2LMHeadModel, c, 2, hf)
    migrate("--layout", "gpt2", "--verify", "--to", "torch", hf, nano)
    t = torch.load(nano)
    there = Nano(c)
    there.load_state_dict(t["model"])
    there_opt = adamw(there)
    there_opt.load_state_dict(ordered(t["optimizer"], [n for n, _ in there.named_parameters()]))
    migrate("--layout", "gpt2", "--to", "torch", nano, back)
    same_state(torch.load(hf), torch.load(back), "gpt2, there and back")
    next_steps(there, m, opt, there_opt, "gpt2")


with checks.scratch() as folder:
    for one in (llama, gpt2):
        with section(one.__name__):
            one(folder)
checks.finish()
