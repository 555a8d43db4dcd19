#!/usr/bin/env python3
"""--layout on the way to each directory that a program resumes from: universal, hf-trainer, accelerate, these two with FSDP2 and with DeepSpeed,
dcp, and a run of this library, with the presets llama (to torchtitan) and gpt2 (to nanoGPT). What torch, safetensors and dcp.load read of them is
what torch makes of the source's tensors: weights, moments, steps, and which parameter is in which group with which settings.

usage: layouts_targets.py CKPT-INSPECT CKPT-MIGRATE   [-v]
"""
import contextlib
import glob
import json
import os
import struct

import checks
from checks import check, section

try:
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
    with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
except ImportError as e:
    checks.skip(f"{e.name} is not installed")

INSPECT, MIGRATE = checks.commands(__doc__, 2)
os.environ["CKPT_LAYOUTS"] = os.path.join(os.path.abspath(os.environ.get("srcdir", ".")), "layouts")
STEPS, HEADS, KV = 3, 4, 2


def trained(model):
    """Two groups, as the Trainer has them, and a scheduler. Every tensor of the state is random: what goes wrong shows."""
    named = dict(model.named_parameters())
    groups = [dict(params=[p for p in named.values() if (p.dim() > 1) == decays], param_names=[n for n, p in named.items() if (p.dim() > 1) == decays], weight_decay=0.1 * decays)
              for decays in (True, False)]
    opt = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1.0 / (1 + step))
    for step in range(STEPS):
        opt.zero_grad()
        for p in named.values():
            p.grad = torch.randn_like(p)
        opt.step()
        scheduler.step()
    return opt, scheduler, {p: n for n, p in named.items()}


# ---- what torch makes of a tensor: name and elements

def rotary(x):
    """Halves of each head become neighbours."""
    heads = x.shape[0] // 8
    return x.reshape(heads, 2, 4, *x.shape[1:]).transpose(1, 2).reshape(x.shape)


TITAN = {"self_attn.q_proj": ("attention.qkv_linear.wq", rotary), "self_attn.k_proj": ("attention.qkv_linear.wk", rotary), "self_attn.v_proj": ("attention.qkv_linear.wv", None), "self_attn.o_proj": ("attention.wo", None),
         "mlp.gate_proj": ("feed_forward.w1", None), "mlp.up_proj": ("feed_forward.w3", None), "mlp.down_proj": ("feed_forward.w2", None),
         "input_layernorm": ("attention_norm", None), "post_attention_layernorm": ("ffn_norm", None)}
TOP = {"model.embed_tokens.weight": "tok_embeddings.weight", "model.norm.weight": "norm.weight", "lm_head.weight": "lm_head.weight"}


def to_titan(name, x):
    if name in TOP:
        return TOP[name], x
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    there, turn = TITAN[part]
    return f"layers.{layer}.{there}.weight", turn(x) if turn else x


def to_nano(name, x):
    return name, x.T.contiguous() if x.dim() == 2 and any(name.endswith(f"{part}.weight") for part in ("c_attn", "c_proj", "c_fc")) else x


# ---- what the files hold: weights {name: tensor}, states {name: {key: tensor}}, groups [(names, lr, weight_decay)]

def load(path):
    return torch.load(path, weights_only=False)


def load_dcp(folder):
    out = {}
    _load_state_dict(out, storage_reader=dcp.FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return out


def by_position(weights, opt, order):
    """The optimizer of a program whose parameters are in that order, group by group."""
    names = {i: n for g, own in zip(opt["param_groups"], order) for i, n in zip(g["params"], own)}
    return weights, {names[i]: s for i, s in opt["state"].items()}, [([names[i] for i in g["params"]], g["lr"], g["weight_decay"]) for g in opt["param_groups"]]


def by_name(weights, opt):
    return weights, opt["state"], [(g["params"], g["lr"], g["weight_decay"]) for g in opt["param_groups"]]


def read_universal(folder, tag):
    base = f"{folder}/{tag}"
    weights, states = {}, {}
    for path in sorted(glob.glob(f"{base}/zero/*/fp32.pt")):
        name = path.split("/")[-2]
        one = {k: load(f"{base}/zero/{name}/{k}.pt") for k in ("fp32", "exp_avg", "exp_avg_sq")}
        weights[name] = one.pop("fp32")["param"]
        states[name] = {k: v["param"] for k, v in one.items()} | dict(step=load(f"{base}/zero/{name}/step.pt"))
    held = load(f"{base}/mp_rank_00_model_states.pt")
    module = held["module"]
    check(f"{folder}: the module has the same weights", weights and all(torch.equal(module[n], t.reshape(module[n].shape)) for n, t in weights.items()), list(module))
    groups = load(f"{base}/zero/optimizer_state.pt")["param_groups"]
    return {n: weights.get(n, t) for n, t in module.items()}, states, [(list(own), g["lr"], g["weight_decay"]) for own, g in zip(held["param_shapes"], groups, strict=True)]


def header_of(f):
    return json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))


def safetensors_of(path):
    with open(path, "rb") as f:
        head, data = header_of(f), f.read()
    kinds = {"F32": torch.float32, "I64": torch.int64, "U8": torch.uint8}
    return {n: torch.frombuffer(bytearray(data[slice(*t["data_offsets"])]), dtype=kinds[t["dtype"]]).reshape(t["shape"]) if t["data_offsets"][1] > t["data_offsets"][0] else torch.empty(t["shape"])
            for n, t in head.items() if n != "__metadata__"}


def read_run(folder, order):
    """Each rank has all of it."""
    seen = []
    for rank in range(2):
        step = f"{folder}/rank-{rank:05d}/step-{STEPS:08d}"
        weights, rest = safetensors_of(f"{step}/model.safetensors"), safetensors_of(f"{step}/training.safetensors")
        states = {n: {k: rest[f"optimizer.{n}.{k}"] for k in ("step", "exp_avg", "exp_avg_sq")} for own in order for n in own}
        with open(f"{step}/training.safetensors", "rb") as f:
            groups = json.loads(header_of(f)["__metadata__"]["ckpt"])["root"]["optimizer"]["groups"]
        seen.append((weights, states, [(g["params"], g["lr"], g["weight_decay"]) for _, g in sorted(groups.items())]))
    other = checks.differs(*seen)
    check(f"{folder}: both ranks have the same", not other, other[:4])
    return seen[0]


def reads(to, folder, order):
    hf = to.startswith("hf")
    if to == "dcp":
        return by_name(*(load_dcp(folder)[k] for k in ("model", "optimizer")))
    if to == "ckpt-run":
        return read_run(folder, order)
    if to == "universal" or to.endswith("-deepspeed"):
        return read_universal(folder, "pytorch_model" if to.startswith("accelerate") else f"global_step{STEPS}_universal")
    if to.endswith("-fsdp"):
        return by_name(load_dcp(f"{folder}/pytorch_model_fsdp_0")["model"], load_dcp(f"{folder}/optimizer_0")["optimizer"])
    return by_position(safetensors_of(f"{folder}/model.safetensors"), load(f"{folder}/optimizer.{'pt' if hf else 'bin'}"), order)


TARGETS = ("dcp", "universal", "hf-trainer", "accelerate", "hf-trainer-fsdp", "accelerate-fsdp", "hf-trainer-deepspeed", "accelerate-deepspeed", "ckpt-run")


def go_there(what, model, turn, layout, tied=()):
    opt, scheduler, names = trained(model)
    source = f"{what}.pt"
    torch.save(dict(model=model.state_dict(), optimizer=opt.state_dict(), scheduler=scheduler.state_dict(), step=STEPS), source)
    weights = dict(turn(n, t) for n, t in model.state_dict().items())
    states = {}
    for p, s in opt.state.items():
        states[turn(names[p], p)[0]] = {k: v if k == "step" else turn(names[p], v)[1] for k, v in s.items()}
    groups = [([turn(names[p], p)[0] for p in g["params"]], g["lr"], g["weight_decay"]) for g in opt.param_groups]
    for to in TARGETS:
        with section(f"{what} {to}"):
            folder = f"{what}-{to}"
            done = checks.run(MIGRATE, *layout, "--to", to, "--lossy", "--verify", *(("--world", 2) if to in ("dcp", "ckpt-run") or "-" in to and to != "hf-trainer" else ()), source, folder)
            if not check(f"{what}, --to {to}", done.returncode == 0, done.stderr[-400:]):
                continue
            own, moments, sets = reads(to, folder, [g[0] for g in groups])
            lacks = set(weights) - set(own) - set(tied)
            check(f"{what}, --to {to}: the names of the weights", not lacks and not set(own) - set(weights), sorted(lacks | (set(own) - set(weights)))[:4])
            wrong = [n for n in own if n in weights and not (own[n].dtype == weights[n].dtype and torch.equal(own[n].reshape(weights[n].shape), weights[n]))]
            check(f"{what}, --to {to}: the weights", not wrong, wrong[:4])
            wrong = [(n, k) for n, s in states.items() for k, t in s.items() if n not in moments or not torch.equal(moments[n][k].reshape(t.shape).to(t.dtype), t)]
            check(f"{what}, --to {to}: moments and steps", not wrong and set(moments) == set(states), wrong[:4])
            check(f"{what}, --to {to}: the groups", sets == groups, f"{sets} {groups}"[:600])
            schedulers = glob.glob(f"{folder}/scheduler.*")
            check(f"{what}, --to {to}: a file of the scheduler where the program has one", len(schedulers) == to.startswith(("hf-", "accelerate")), schedulers)
            for name in schedulers:
                is_ = load(name)
                check(f"{what}, --to {to}: the scheduler", is_["last_epoch"] == STEPS and len(is_["base_lrs"]) == 2, is_)


with checks.scratch():
    torch.manual_seed(1)
    go_there("llama", LlamaForCausalLM(LlamaConfig(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=KV,
                                                   tie_word_embeddings=False)), to_titan, ("--layout", "llama", "--var", f"heads={HEADS}"))
    go_there("gpt2", GPT2LMHeadModel(GPT2Config(vocab_size=96, n_positions=16, n_embd=32, n_layer=2, n_head=HEADS, bos_token_id=0, eos_token_id=0)), to_nano, ("--layout", "gpt2"),
             tied=("lm_head.weight",))
    checks.finish()
