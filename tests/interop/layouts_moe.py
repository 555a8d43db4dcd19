#!/usr/bin/env python3
"""The presets of --layout for models with experts: Mixtral, Qwen3-MoE and Qwen2-MoE of transformers are trained, and become models of
megatron-core. Its real GPTModel (one process, gloo, on the CPU) has the same logits, and with the moments it takes the same next steps. What
torch.save writes has the experts of a layer in one tensor, as transformers 5 trains them; what save_pretrained writes has each by itself: both
ways lead to the same, and back to the same bytes. A torch_dist is made in one command, loaded by megatron-core's own load with its optimizer,
and leads back in two; megatron-core's own save does so too. Experts come also as TEGroupedMLP and as GroupedMLP have them.

What does not run on a CPU is replaced: the grouped matrix product behind TEGroupedMLP (Transformer Engine's GroupedLinear) and GroupedMLP
(grouped_gemm) by a loop over the experts. The layers are megatron-core's own; where a torch_dist with the keys of Transformer Engine's layers is
loaded, their map of keys is that of Transformer Engine's layers. megatron-core 0.16.1 names a function of Transformer Engine that it has not
imported (te_general_gemm): it gets None.

usage: layouts_moe.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]
"""
import copy
import os
import types

import checks
from checks import check, section
import layouts_megatron as dense
from layouts_megatron import (DIM, FFN, GROUPED, GROUPS, HEADS, LAYERS, LENGTH, PADDED, VOCAB, alone, config_of, grouped, load_dist, migrate,
                              next_losses, padded, same, same_files, same_live, set_groups, states_of, trained, wrapped)
import megatron_peer as peer
from megatron_peer import dist, torch

import megatron.core.transformer.moe.experts as experts
import megatron.core.transformer.moe.moe_utils as moe_utils
from transformers import MixtralConfig, MixtralForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

EXPERTS, SHARED = 4, 20
BASE = dict(GROUPED, num_moe_experts=EXPERTS, moe_ffn_hidden_size=FFN, moe_router_topk=2, moe_token_dispatcher_type="allgather",
            moe_router_load_balancing_type="none")


def moe_like(config, model, **more):
    torch.manual_seed(1)
    return model(config(vocab_size=VOCAB, hidden_size=DIM, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=GROUPS,
                        max_position_embeddings=LENGTH, num_experts_per_tok=2, tie_word_embeddings=False, rms_norm_eps=1e-6,
                        rope_parameters=dict(rope_type="default", rope_theta=10000.0), attn_implementation="eager", **more))


# the preset of what save_pretrained writes, the model, megatron-core's configuration
CASES = {
    "mixtral": dict(preset="mixtral-megatron", make=lambda: moe_like(MixtralConfig, MixtralForCausalLM, intermediate_size=FFN, num_local_experts=EXPERTS),
                    config=BASE),
    "qwen3": dict(preset="qwen3-moe-megatron", config=dict(BASE, qk_layernorm=True, kv_channels=16, moe_router_pre_softmax=True),
                  make=lambda: moe_like(Qwen3MoeConfig, Qwen3MoeForCausalLM, intermediate_size=64, moe_intermediate_size=FFN, num_experts=EXPERTS,
                                        head_dim=16)),
    "qwen2": dict(preset="qwen3-moe-megatron", config=dict(BASE, add_qkv_bias=True, moe_router_pre_softmax=True, moe_shared_expert_gate=True,
                                                           moe_shared_expert_intermediate_size=SHARED),
                  make=lambda: moe_like(Qwen2MoeConfig, Qwen2MoeForCausalLM, intermediate_size=64, moe_intermediate_size=FFN, num_experts=EXPERTS,
                                        shared_expert_intermediate_size=SHARED, qkv_bias=True)),
}
VARS = ["--var", f"heads={HEADS}", "--var", f"kv_heads={GROUPS}"]
NORM = r"(decoder.layers.[0-9]+.)mlp.linear_fc1.layer_norm_(.*)=${1}pre_mlp_layernorm.$2"    # as ckpt-layout(5) says it
FORTH, BACK = [*VARS, "--var", f"padded={PADDED}"], [*VARS, "--var", f"vocab={VOCAB}"]


# ---------------------------------------------------------------- what becomes of a tensor, once more

def expected(own):
    """{name there: tensor} of {name of transformers 5: tensor}."""
    out = {"embedding.word_embeddings.weight": padded(own["model.embed_tokens.weight"], PADDED), "decoder.final_layernorm.weight": own["model.norm.weight"],
           "output_layer.weight": padded(own["lm_head.weight"], PADDED)}
    for i in range(LAYERS):
        p, at = f"model.layers.{i}.", f"decoder.layers.{i}."
        for kind in ("weight", "bias"):
            if p + "self_attn.q_proj." + kind in own:
                out[at + "self_attention.linear_qkv." + kind] = grouped(*(own[p + f"self_attn.{x}_proj.{kind}"] for x in "qkv"), GROUPS, None)
        for x in "qk":
            if p + f"self_attn.{x}_norm.weight" in own:
                out[at + f"self_attention.{x}_layernorm.weight"] = own[p + f"self_attn.{x}_norm.weight"]
        out[at + "self_attention.linear_proj.weight"] = own[p + "self_attn.o_proj.weight"]
        out[at + "self_attention.linear_qkv.layer_norm_weight"] = own[p + "input_layernorm.weight"]
        out[at + "pre_mlp_layernorm.weight"] = own[p + "post_attention_layernorm.weight"]
        out[at + "mlp.router.weight"] = own[p + "mlp.gate.weight"]
        for e in range(EXPERTS):
            out[at + f"mlp.experts.local_experts.{e}.linear_fc1.weight"] = own[p + "mlp.experts.gate_up_proj"][e]
            out[at + f"mlp.experts.local_experts.{e}.linear_fc2.weight"] = own[p + "mlp.experts.down_proj"][e]
        if p + "mlp.shared_expert_gate.weight" in own:
            out[at + "mlp.shared_experts.gate_weight"] = own[p + "mlp.shared_expert_gate.weight"]
            out[at + "mlp.shared_experts.linear_fc1.weight"] = torch.cat([own[p + f"mlp.shared_expert.{x}_proj.weight"] for x in ("gate", "up")])
            out[at + "mlp.shared_experts.linear_fc2.weight"] = own[p + "mlp.shared_expert.down_proj.weight"]
    return out


# ---------------------------------------------------------------- megatron-core

class Grouped(torch.nn.Module):
    """What TEGroupedMLP asks of Transformer Engine's GroupedLinear: a weight of each expert, under these names."""

    def __init__(self, count, inputs, outputs, **_):
        super().__init__()
        self.count = count
        for e in range(count):
            self.register_parameter(f"weight{e}", torch.nn.Parameter(torch.empty(outputs, inputs)))

    def forward(self, x, sizes):
        return torch.cat([part @ getattr(self, f"weight{e}").t() for e, part in enumerate(x.split(sizes))]), None


class Gemm:
    """What GroupedMLP asks of grouped_gemm."""
    @staticmethod
    def gmm(x, weights, sizes, trans_b=False):
        return torch.cat([part @ weights[e] for e, part in enumerate(x.split(sizes.tolist()))])


def gpt(case, kind="sequential", keys="own"):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.mlp import MLPSubmodules
    from megatron.core.transformer.spec_utils import ModuleSpec
    config = config_of(case)
    spec = get_gpt_layer_local_spec(num_experts=EXPERTS, qk_layernorm=config.qk_layernorm, normalization=config.normalization)
    if keys == "fused":
        del spec.submodules.sharded_state_dict_keys_map["pre_mlp_layernorm."]
    if kind == "grouped":
        spec.submodules.mlp.submodules.experts = ModuleSpec(module=experts.TEGroupedMLP, submodules=MLPSubmodules(linear_fc1=Grouped, linear_fc2=Grouped))
    if kind == "gemm":
        experts.gg.grouped_gemm, experts.gg.ops = Gemm, Gemm
        spec.submodules.mlp.submodules.experts = ModuleSpec(module=experts.GroupedMLP)
    model = GPTModel(config, spec, vocab_size=PADDED, max_sequence_length=LENGTH, share_embeddings_and_output_weights=False, position_embedding_type="rope")
    for layer in model.decoder.layers if kind == "gemm" else ():
        layer.mlp.experts.config = copy.copy(config)
        layer.mlp.experts.config.bf16 = True                    # it asserts that; the parameters stay float32
    return config, model


def near(what, there, model):
    dense.near(what, there, model, bound=1e-6)


# ---------------------------------------------------------------- one model

def load_file(what, case, path, model, kind="sequential"):
    there = gpt(case, kind)[1]
    got = torch.load(path, weights_only=False)["model"]
    lacks = there.load_state_dict(got, strict=False)
    odd = [n for n in lacks.missing_keys + lacks.unexpected_keys if not n.endswith("_extra_state")]
    check(f"{what}: megatron-core has these names", not odd, odd)
    near(what, there, model)


def by_file(name, case, model, opt):
    """--to torch, loaded by GPTModel with each kind of experts; and back. Both forms of transformers give the same."""
    migrate(name, "--layout", "moe-megatron", *FORTH, "--verify", "--to", "torch", f"{name}.pt", f"{name}.meg.pt")
    there = torch.load(f"{name}.meg.pt", weights_only=False)
    same(f"{name}: the weights", there["model"], expected(model.state_dict()))
    own, states = states_of(opt.state_dict()), states_of(there["optimizer"])
    for kind in ("exp_avg", "exp_avg_sq"):
        same(f"{name}: {kind}", states[kind], expected(own[kind]))
    check(f"{name}: the step", {float(t) for t in states["step"].values()} == {3.0}, states["step"])
    migrate(f"{name}, back", "--layout", "moe-megatron", *BACK, "--verify", "--to", "torch", f"{name}.meg.pt", f"{name}.back.pt")
    same_files(f"{name}, there and back", f"{name}.pt", f"{name}.back.pt")
    migrate(f"{name}, saved", "--layout", case["preset"], *FORTH, "--to", "torch", f"{name}.dir", f"{name}.saved.pt")
    same(f"{name}: of save_pretrained", torch.load(f"{name}.saved.pt", weights_only=False)["model"], there["model"])
    migrate(f"{name}, saved and back", "--layout", case["preset"], *BACK, "--lossy", "--to", "hf", f"{name}.saved.pt", f"{name}.again")
    again = type(model).from_pretrained(f"{name}.dir")          # its configuration; the weights are ours
    os.replace(f"{name}.again/model.safetensors", f"{name}.dir/model.safetensors")
    again = type(model).from_pretrained(f"{name}.dir")
    same(f"{name}: from_pretrained of what came back", again.state_dict(), model.state_dict())
    migrate(f"{name}, local", "--layout", "megatron-moe-local", "--to", "torch", f"{name}.meg.pt", f"{name}.local.pt")
    load_file(f"{name} by a file", case, f"{name}.local.pt", model)
    migrate(f"{name}, fused", "--layout", "megatron-moe-local", "--to", "torch", f"{name}.local.pt", f"{name}.fused.pt")
    same_files(f"{name}, local and back", f"{name}.meg.pt", f"{name}.fused.pt")
    for kind, there, home in (("grouped", [], []), ("gemm", ["--var", f"experts={EXPERTS}"], ["--var", f"ffn={FFN}", "--var", f"rows={2 * FFN}"])):
        if kind == "grouped" or name == "mixtral":
            migrate(f"{name}, {kind}", "--layout", f"megatron-moe-{kind}", *there, "--to", "torch", f"{name}.local.pt", f"{name}.{kind}.pt")
            load_file(f"{name}, {kind}", case, f"{name}.{kind}.pt", model, kind)
            migrate(f"{name}, {kind}, back", "--layout", f"megatron-moe-{kind}", *there, *home, "--to", "torch", f"{name}.{kind}.pt", f"{name}.seq.pt")
            same_files(f"{name}, {kind} and back", f"{name}.local.pt", f"{name}.seq.pt")


def by_torch_dist(name, case, model, opt):
    """--to torch-dist in one command, loaded by megatron-core with its optimizer, which goes on; and back in two steps."""
    text = migrate(f"{name} to torch-dist", "--layout", "moe-megatron", *FORTH, "--expert-parallel", "1", "--verify", "--to", "torch-dist", f"{name}.pt", f"{name}.td")
    check(f"{name}: what megatron-core asks of the groups is said", "wd_mult" in text and "is_expert_parallel" not in text, text)
    set_groups(f"{name}.td")
    plain, own = dict(peer.BASE, experts=EXPERTS), states_of(opt.state_dict())
    chunk, meg_opt = wrapped(*gpt(case, keys="fused"))
    load_dist(plain, chunk, meg_opt, f"{name}.td")
    same_live(f"{name} in megatron-core", plain, chunk, meg_opt,
              {"": expected(model.state_dict()), **{kind: expected(own[kind]) for kind in ("exp_avg", "exp_avg_sq")}})
    migrate(f"{name} to layers", "--layout", "megatron-moe-layers", "--to", "torch", f"{name}.td", f"{name}.layers.pt")
    migrate(f"{name} from layers", "--layout", "moe-megatron", *BACK, "--to", "torch", f"{name}.layers.pt", f"{name}.again.pt")
    same_files(f"{name} by torch_dist", f"{name}.pt", f"{name}.again.pt")
    near(f"{name} by torch_dist", chunk, model)
    migrate(f"{name}, local, to torch-dist", "--expert-parallel", "1", "--to", "torch-dist", f"{name}.local.pt", f"{name}.local.td")
    migrate(f"{name}, local, to layers", "--layout", "megatron-moe-layers", "--rename", NORM, "--to", "torch", f"{name}.local.td", f"{name}.local.layers.pt")
    same_files(f"{name}, by a torch_dist of local layers", f"{name}.layers.pt", f"{name}.local.layers.pt")
    next_losses(name, model, opt, chunk, meg_opt)
    if name == "qwen2":                                         # a save takes a second; this one has all that there is
        from_its_own(name, case, chunk, meg_opt, plain)


def from_its_own(name, case, chunk, meg_opt, plain):
    """What megatron-core saves itself, as a model of transformers with the moments; and as a torch_dist again, by its layers."""
    folder = f"{name}.own/iter_{peer.STEPS:07d}"
    os.makedirs(folder)
    peer.save_dist(plain, folder, 0, [chunk], meg_opt, types.SimpleNamespace(state_dict=dict))
    migrate(f"{name}, its own, to layers", "--layout", "megatron-moe-layers", "--to", "torch", folder, f"{name}.own.pt")
    migrate(f"{name}, its own, from layers", "--layout", "moe-megatron", *BACK, "--verify", "--to", "torch", f"{name}.own.pt", f"{name}.own.hf.pt")
    migrate(f"{name}, its own, once more", "--to", "torch-dist", "--verify", f"{name}.own.pt", f"{name}.own.td")
    saved = torch.load(f"{name}.own.hf.pt", weights_only=False)
    model = case["make"]()
    model.load_state_dict(saved["model"], strict=True)
    near(f"{name} of megatron-core", chunk, model)
    states = states_of(saved["optimizer"])
    same_live(f"{name} of megatron-core", plain, chunk, meg_opt, {kind: expected(states[kind]) for kind in ("exp_avg", "exp_avg_sq")})
    _, doc = checks.ask(peer.INSPECT, "diff", "--json", folder, f"{name}.own.td")
    other = [t["name"] for t in doc["tensors"]] + [v["name"] for v in doc["scalars"] if v["name"] not in ("args.world_size", "step")]
    check(f"{name} of megatron-core: stacked once more it has the same tensors and values", doc["counts"]["tensors"]["same"] > 40 and not other, other)


def main():
    moe_utils.te_general_gemm = None
    made = {name: trained(case) for name, case in CASES.items()}
    alone()
    for name, case in CASES.items():
        with section(name):
            model, opt = made[name]
            torch.save(dict(model=model.state_dict(), optimizer=opt.state_dict(), step=3), f"{name}.pt")
            model.save_pretrained(f"{name}.dir")
            by_file(name, case, model, opt)
            by_torch_dist(name, case, model, opt)
    dist.destroy_process_group()


if __name__ == "__main__":
    with checks.scratch():
        main()
    checks.finish()
