#!/usr/bin/env python3
"""The presets of --layout for megatron-core: GPT-2, Llama, Qwen2 and Qwen3 of transformers are trained, and become models of megatron-core. Its
real GPTModel (one process, gloo, on the CPU) has the same logits, and with the moments it takes the same next steps. Each moment is what the
steps give that are written down here once more with torch. The way back has the same tensors, byte for byte; so has the way by a torch_dist,
which megatron-core's own load takes. What megatron-core saves itself becomes a model of transformers again.

megatron-core's layers of its own (get_gpt_layer_local_spec) call norms input_layernorm and pre_mlp_layernorm where fused layers have them in
linear_qkv and linear_fc1: a file of torch.save gets those names by the preset megatron-local, a torch_dist is loaded as it is.

usage: layouts_megatron.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]
"""
import os
import sys
import types

import checks
from checks import check, section
import megatron_peer as peer
from megatron_peer import INSPECT, MIGRATE, dist, torch

import torch.nn.functional as F
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

os.environ["CKPT_LAYOUTS"] = os.path.join(os.path.abspath(os.environ.get("srcdir", ".")), "layouts")
VOCAB, PADDED, DIM, HEADS, GROUPS, FFN, LAYERS, LENGTH = 90, 96, 32, 4, 2, 48, 2, 12
SETTINGS = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
DECAY = 0.1


def llama_like(config, model, **more):
    torch.manual_seed(1)
    return model(config(vocab_size=VOCAB, hidden_size=DIM, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                        num_key_value_heads=GROUPS, max_position_embeddings=LENGTH, attn_implementation="eager", **more))


def gpt2():
    torch.manual_seed(2)
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=LENGTH, n_embd=DIM, n_layer=LAYERS, n_head=HEADS, resid_pdrop=0, embd_pdrop=0,
                                      attn_pdrop=0, bos_token_id=0, eos_token_id=0, attn_implementation="eager"))


def gelu_new(x):
    return F.gelu(x, approximate="tanh")


GROUPED = dict(num_query_groups=GROUPS, ffn_hidden_size=FFN, gated_linear_unit=True, activation_func=F.silu, add_bias_linear=False,
               normalization="RMSNorm", layernorm_epsilon=1e-6)
# preset, the model, is its embedding tied, the head's size, rows of the vocabulary there, megatron-core's configuration
CASES = {
    "gpt2": dict(preset="gpt2-megatron", make=gpt2, tied=True, rows=PADDED,
                 config=dict(num_query_groups=HEADS, ffn_hidden_size=4 * DIM, activation_func=gelu_new, add_bias_linear=True, normalization="LayerNorm",
                             layernorm_epsilon=1e-5)),
    "llama": dict(preset="llama-megatron", make=lambda: llama_like(LlamaConfig, LlamaForCausalLM, tie_word_embeddings=False), tied=False, rows=PADDED,
                  config=GROUPED),
    "qwen2": dict(preset="llama-megatron", make=lambda: llama_like(Qwen2Config, Qwen2ForCausalLM, tie_word_embeddings=True), tied=True, rows=VOCAB,
                  config=dict(GROUPED, add_qkv_bias=True)),
    "qwen3": dict(preset="llama-megatron", make=lambda: llama_like(Qwen3Config, Qwen3ForCausalLM, tie_word_embeddings=False, head_dim=16), tied=False,
                  rows=VOCAB, config=dict(GROUPED, qk_layernorm=True, kv_channels=16)),
}


# ---------------------------------------------------------------- transformers

def batches(seed, n):
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(0, VOCAB, (2, LENGTH), generator=g) for _ in range(n)]


def loss_of(logits, ids):
    return F.cross_entropy(logits[:, :-1, :VOCAB].reshape(-1, VOCAB), ids[:, 1:].reshape(-1))


def steps(model, opt, seed, n):
    losses = []
    for ids in batches(seed, n):
        loss = loss_of(model(ids).logits, ids)
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    return losses


def two_groups(model):
    """Weights decay, biases and norms do not: so does the Trainer, and so does megatron-core."""
    groups = [[(n, p) for n, p in model.named_parameters() if (p.dim() > 1) == decays] for decays in (True, False)]
    return torch.optim.AdamW([dict(params=g, weight_decay=w) for g, w in zip(groups, (DECAY, 0.0))], **SETTINGS)


def trained(case):
    model = case["make"]()
    with torch.no_grad():                                       # no bias is 0 and no norm is 1: a wrong order would not be seen
        for p in model.parameters():
            p.add_(torch.randn(p.shape) * 0.05)
    opt = two_groups(model)
    steps(model, opt, 3, 3)
    return model, opt


# ---------------------------------------------------------------- what becomes of a tensor, once more

def padded(t, rows):
    return F.pad(t, (0, 0, 0, rows - t.shape[0]))


def grouped(q, k, v, groups, size):
    """[queries of the group, its key, its value], one group after another."""
    q, k, v = (t.reshape(groups, -1, *t.shape[1:]) for t in (q, k, v))
    return torch.cat([q, k, v], 1).reshape(-1, *q.shape[2:])


def expected(case, own):
    """{name there: tensor} of {name of transformers: tensor}."""
    out, rows = {}, case["rows"]
    layer = "decoder.layers.{}.".format
    if case["preset"] == "gpt2-megatron":
        out["embedding.word_embeddings.weight"] = padded(own["transformer.wte.weight"], rows)
        out["embedding.position_embeddings.weight"] = own["transformer.wpe.weight"]
        for i in range(LAYERS):
            p, at = f"transformer.h.{i}.", layer(i)
            for kind in ("weight", "bias"):
                qkv = own[p + "attn.c_attn." + kind].t() if kind == "weight" else own[p + "attn.c_attn." + kind]
                out[at + "self_attention.linear_qkv." + kind] = grouped(*qkv.chunk(3), HEADS, DIM // HEADS)
                out[at + "self_attention.linear_qkv.layer_norm_" + kind] = own[p + "ln_1." + kind]
                out[at + "mlp.linear_fc1.layer_norm_" + kind] = own[p + "ln_2." + kind]
                for there, here in (("self_attention.linear_proj.", "attn.c_proj."), ("mlp.linear_fc1.", "mlp.c_fc."), ("mlp.linear_fc2.", "mlp.c_proj.")):
                    t = own[p + here + kind]
                    out[at + there + kind] = t.t() if kind == "weight" else t
        out["decoder.final_layernorm.weight"], out["decoder.final_layernorm.bias"] = own["transformer.ln_f.weight"], own["transformer.ln_f.bias"]
        return out
    out["embedding.word_embeddings.weight"] = padded(own["model.embed_tokens.weight"], rows)
    for i in range(LAYERS):
        p, at = f"model.layers.{i}.", layer(i)
        for kind in ("weight", "bias"):
            if p + "self_attn.q_proj." + kind in own:
                out[at + "self_attention.linear_qkv." + kind] = grouped(*(own[p + f"self_attn.{x}_proj.{kind}"] for x in "qkv"), GROUPS, DIM // HEADS)
        for x in "qk":
            if p + f"self_attn.{x}_norm.weight" in own:
                out[at + f"self_attention.{x}_layernorm.weight"] = own[p + f"self_attn.{x}_norm.weight"]
        out[at + "mlp.linear_fc1.weight"] = torch.cat([own[p + "mlp.gate_proj.weight"], own[p + "mlp.up_proj.weight"]])
        out[at + "mlp.linear_fc2.weight"] = own[p + "mlp.down_proj.weight"]
        out[at + "self_attention.linear_proj.weight"] = own[p + "self_attn.o_proj.weight"]
        out[at + "self_attention.linear_qkv.layer_norm_weight"] = own[p + "input_layernorm.weight"]
        out[at + "mlp.linear_fc1.layer_norm_weight"] = own[p + "post_attention_layernorm.weight"]
    out["decoder.final_layernorm.weight"] = own["model.norm.weight"]
    if not case["tied"]:
        out["output_layer.weight"] = padded(own["lm_head.weight"], rows)
    return out


def states_of(saved):
    """{kind: {name: tensor}} of an optimizer's state_dict whose groups name their parameters."""
    out = {}
    for group in saved["param_groups"]:
        for number, name in zip(group["params"], group["param_names"]):
            for kind, t in saved["state"][number].items():
                out.setdefault(kind, {})[name] = t
    return out


def same(what, got, want):
    check(f"{what}: the names", set(got) == set(want), sorted(set(got) ^ set(want)))
    for n in set(got) & set(want):
        check(f"{what}: {n}", got[n].dtype == want[n].dtype and torch.equal(got[n], want[n]), f"{got[n].shape} {want[n].shape}")


def same_files(what, a, b):
    a, b = (torch.load(p, weights_only=False) for p in (a, b))
    same(what, b["model"], a["model"])
    one, other = states_of(a["optimizer"]), states_of(b["optimizer"])
    check(f"{what}: kinds of states", set(one) == set(other) == {"exp_avg", "exp_avg_sq", "step"}, f"{set(one)} {set(other)}")
    for kind in one:
        same(f"{what}: {kind}", other.get(kind, {}), one[kind])


# ---------------------------------------------------------------- megatron-core

def alone():
    """Starts megatron-core in this process alone."""
    from megatron.core import parallel_state as ps
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    said = os.dup(1), os.dup(2)
    peer.start(0, 1, checks.free_port())                  # it silences megatron-core's processes, and this one has to speak
    os.dup2(said[0], 1), os.dup2(said[1], 2)
    ps.initialize_model_parallel(1, 1)
    model_parallel_cuda_manual_seed(7, force_reset_rng=True)


def config_of(case):
    from megatron.core.transformer import TransformerConfig
    return TransformerConfig(
        num_layers=LAYERS, hidden_size=DIM, num_attention_heads=HEADS, use_cpu_initialization=True, attention_dropout=0.0, hidden_dropout=0.0,
        masked_softmax_fusion=False, bias_activation_fusion=False, bias_dropout_fusion=False, gradient_accumulation_fusion=False,
        attention_softmax_in_fp32=True, params_dtype=torch.float32, **case["config"])


def wrapped(config, model):
    """(the model in its wrapper, its optimizer)"""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    chunk = DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=False, grad_reduce_in_fp32=True), model)
    opt = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=SETTINGS["lr"], weight_decay=DECAY, clip_grad=0.0, params_dtype=torch.float32,
                                                 adam_beta1=0.9, adam_beta2=0.95, adam_eps=1e-8), [chunk])
    return chunk, opt


def build(case):
    """As peer.build does, of another configuration."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    config = config_of(case)
    spec = get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm, normalization=config.normalization)
    rotary = config.normalization == "RMSNorm"
    model = GPTModel(config, spec, vocab_size=case["rows"], max_sequence_length=LENGTH, share_embeddings_and_output_weights=case["tied"],
                     position_embedding_type="rope" if rotary else "learned_absolute")
    return wrapped(config, model)


def logits_of(chunk, ids):
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool), 1)
    return chunk(ids, torch.arange(LENGTH).repeat(len(ids), 1), mask)


def megatron_steps(chunk, opt, seed, n):
    losses = []
    for ids in batches(seed, n):
        chunk.zero_grad_buffer()
        opt.zero_grad()
        loss = loss_of(logits_of(chunk, ids), ids)
        loss.backward()
        chunk.finish_grad_sync()
        opt.step()
        losses.append(loss.item())
    return losses


def local_name(name):
    return name.replace("self_attention.linear_qkv.layer_norm_", "input_layernorm.").replace("mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.")


def near(what, there, model, bound=1e-5, seed=5):
    """Has megatron-core's model the logits of that of transformers?"""
    with torch.no_grad():
        ids = batches(seed, 1)[0]
        here = model(ids).logits
        worst = (logits_of(there, ids)[..., :VOCAB] - here).abs().max().item()
    check(f"{what}: the logits", worst < bound, worst)
    if "-v" in sys.argv:
        print(f"# {what}: logits differ by {worst:.1e} at most, of {here.abs().max():.2f}")


def set_groups(folder, **more):
    """As the warning of ckpt-migrate says."""
    common = torch.load(f"{folder}/common.pt", weights_only=False)
    for group in common["optimizer"]["param_groups"]:
        group.update(wd_mult=1.0 if group["weight_decay"] else 0.0, lr_mult=1.0, is_decoupled_lr=False, **more)
    torch.save(common, f"{folder}/common.pt")


def load_dist(plain, chunk, opt, folder):
    """A torch_dist by megatron-core's own load."""
    from megatron.core import dist_checkpointing
    megatron_steps(chunk, opt, 77, 1)                           # the optimizer has states to load into
    state = dist_checkpointing.load(peer.sharded(plain, [chunk], opt, None, True), folder)
    peer.gpt_of(chunk).load_state_dict(state["model"], strict=False)
    opt.load_state_dict(state["optimizer"])


def same_live(what, plain, chunk, opt, want):
    """want: {"" or a kind of moments: {name: tensor}}"""
    live = peer.live(plain, [chunk], opt)
    for kind, tensors in want.items():
        same(f"{what}: {kind or 'weights'}", {n: t[kind] for n, t in live.items()}, {local_name(n): t for n, t in tensors.items()})


def next_losses(name, model, opt, chunk, meg_opt):
    here, there = steps(model, opt, 9, 4), megatron_steps(chunk, meg_opt, 9, 4)
    worst = max(abs(a - b) for a, b in zip(here, there))
    check(f"{name}: the next losses", worst < 2e-5 and here[0] != here[-1], f"{here} {there}")
    if "-v" in sys.argv:
        print(f"# {name}: losses differ by {worst:.1e} at most: {there}")


# ---------------------------------------------------------------- one model

def migrate(what, *args, status=0):
    return checks.ends(what, status, MIGRATE, "--force", "--no-sync", *args)


def by_file(name, case, model, opt, layout):
    """--to torch, loaded by GPTModel; and back."""
    text = migrate(f"{name}, nothing said", "--layout", case["preset"], "--to", "torch", f"{name}.pt", f"{name}.meg.pt", status=2)
    heads = "kv_heads" if case["preset"] == "llama-megatron" else "heads"
    check(f"{name}: what is missing is said", f"--var {heads}=NUMBER" in text and "--var padded=NUMBER" in text, text)
    drop = ["--drop", "lm_head.weight"] if case["tied"] else []
    migrate(name, *layout, *drop, "--var", f"padded={case['rows']}", "--verify", "--to", "torch", f"{name}.pt", f"{name}.meg.pt")
    there = torch.load(f"{name}.meg.pt", weights_only=False)
    same(f"{name}: the weights", there["model"], expected(case, model.state_dict()))
    own, states = states_of(opt.state_dict()), states_of(there["optimizer"])
    for kind in ("exp_avg", "exp_avg_sq"):
        same(f"{name}: {kind}", states[kind], expected(case, own[kind]))
    check(f"{name}: the step", {float(t) for t in states["step"].values()} == {3.0}, states["step"])
    migrate(f"{name}, local", "--layout", "megatron-local", "--to", "torch", f"{name}.meg.pt", f"{name}.local.pt")
    chunk, _ = build(case)
    peer.gpt_of(chunk).load_state_dict(torch.load(f"{name}.local.pt", weights_only=False)["model"], strict=True)
    near(f"{name} by a file", chunk, model)
    migrate(f"{name}, back", *layout, "--var", f"vocab={VOCAB}", "--verify", "--to", "torch", f"{name}.meg.pt", f"{name}.back.pt")
    same_files(f"{name}, there and back", f"{name}.pt", f"{name}.back.pt")
    migrate(f"{name}, fused", "--layout", "megatron-local", "--to", "torch", f"{name}.local.pt", f"{name}.fused.pt")
    same_files(f"{name}, local and back", f"{name}.meg.pt", f"{name}.fused.pt")
    return drop


def by_torch_dist(name, case, model, opt, layout, drop):
    """--to torch-dist, loaded by megatron-core with its optimizer, which goes on; and back in two steps."""
    text = migrate(f"{name} to torch-dist", *layout, *drop, "--var", f"padded={case['rows']}", "--verify", "--to", "torch-dist", f"{name}.pt", f"{name}.td")
    check(f"{name}: what megatron-core asks of the groups is said", "wd_mult" in text, text)
    folder = next(d for d, _, files in os.walk(f"{name}.td") if "common.pt" in files)
    set_groups(folder, is_expert_parallel=False)
    plain, own = dict(peer.BASE), states_of(opt.state_dict())
    chunk, meg_opt = build(case)
    load_dist(plain, chunk, meg_opt, folder)
    same_live(f"{name} in megatron-core", plain, chunk, meg_opt,
              {"": expected(case, model.state_dict()), **{kind: expected(case, own[kind]) for kind in ("exp_avg", "exp_avg_sq")}})
    migrate(f"{name} to layers", "--layout", "megatron-layers", "--to", "torch", f"{name}.td", f"{name}.layers.pt")
    migrate(f"{name} from layers", *layout, "--var", f"vocab={VOCAB}", "--to", "torch", f"{name}.layers.pt", f"{name}.again.pt")
    same_files(f"{name} by torch_dist", f"{name}.pt", f"{name}.again.pt")
    near(f"{name} by torch_dist", chunk, model)
    next_losses(name, model, opt, chunk, meg_opt)
    if name in ("gpt2", "llama"):                               # tied and not; a save takes a second
        from_its_own(name, case, chunk, meg_opt, layout)


def from_its_own(name, case, chunk, meg_opt, layout):
    """What megatron-core saves itself, as a model of transformers with the moments."""
    folder, plain = f"{name}.own/iter_{peer.STEPS:07d}", dict(peer.BASE)
    os.makedirs(folder)
    peer.save_dist(plain, folder, 0, [chunk], meg_opt, types.SimpleNamespace(state_dict=dict))
    migrate(f"{name}, its own, to layers", "--layout", "megatron-layers", "--to", "ckpt", folder, f"{name}.own.st")
    migrate(f"{name}, its own, from layers", *layout, "--var", f"vocab={VOCAB}", "--verify", "--to", "torch", f"{name}.own.st", f"{name}.own.hf.pt")
    saved = torch.load(f"{name}.own.hf.pt", weights_only=False)
    settings = [(g["lr"], g["weight_decay"], g["wd_mult"]) for g in saved.get("saved_param_groups", [])]
    check(f"{name} of megatron-core: what its groups say", sorted(settings) == [(SETTINGS["lr"], 0.0, 0.0), (SETTINGS["lr"], DECAY, 1.0)], settings)
    check(f"{name} of megatron-core: what they share", saved["optimizer"]["param_groups"][0].get("lr") == SETTINGS["lr"], saved["optimizer"]["param_groups"])
    migrate(f"{name}, its own, to layers of torch", "--layout", "megatron-layers", "--to", "torch", folder, f"{name}.own.pt")
    migrate(f"{name}, its own, once more", "--to", "torch-dist", "--verify", f"{name}.own.pt", f"{name}.own.td")
    done = checks.run(INSPECT, "verify", f"{name}.own.td")
    check(f"{name} of megatron-core: stacked once more it is whole", done.returncode == 0, done.stdout + done.stderr)
    _, doc = checks.ask(INSPECT, "diff", "--json", folder, f"{name}.own.td")
    count, other = doc["counts"]["tensors"], [t["name"] for t in doc["tensors"]]
    check(f"{name} of megatron-core: and it has the same tensors", count["same"] >= 27 and not set(other) - {"optimizer.state.common_step"}, other)
    model = case["make"]()
    model.load_state_dict(saved["model"], strict=True)
    near(f"{name} of megatron-core", chunk, model, seed=6)
    states = states_of(saved["optimizer"])
    same_live(f"{name} of megatron-core", plain, chunk, meg_opt, {kind: expected(case, states[kind]) for kind in ("exp_avg", "exp_avg_sq")})


def main():
    made = {name: trained(case) for name, case in CASES.items()}
    alone()
    for name, case in CASES.items():
        with section(name):
            model, opt = made[name]
            torch.save(dict(model=model.state_dict(), optimizer=opt.state_dict(), step=3), f"{name}.pt")
            layout = ["--layout", case["preset"], "--var", f"heads={HEADS}"]
            if case["preset"] == "llama-megatron":
                layout += ["--var", f"kv_heads={GROUPS}"]
            drop = by_file(name, case, model, opt, layout)
            by_torch_dist(name, case, model, opt, layout, drop)
    dist.destroy_process_group()


if __name__ == "__main__":
    with checks.scratch():
        main()
    checks.finish()
