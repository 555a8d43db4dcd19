#!/usr/bin/env python3
"""The presets of --layout for torchtitan 0.3: Llama, Qwen3 and Qwen3-MoE of transformers, tied and not, become models of torchtitan, and those of
torchtitan come back. torchtitan's real models (on the CPU) load them strictly, and so do its optimizers.

- The tensors are to the bit those that torchtitan's own converter (StateDictAdapter.from_hf) makes.
- The logits are those of transformers, and with the moments so are the losses of the next five steps. The bound is 1e-5: two programs add in
  another order (on the machines where this was written the logits of Qwen3 are equal, and those of Llama within 4e-7).
- What came back is the first file, to the bit.
- torchtitan computes its experts in bfloat16, transformers in float32: the bound of these logits is 4e-3 (1e-3 was seen, of 1.0). Experts that
  change places, or w1 and w3 that do, have to be seen above it. All else is tried with torchtitan's experts in float32, and 1e-5 holds there, too.
- torchtitan trains on and saves as it does (dcp.save, the model's tensors at the root, its optimizer flat): transformers has its logits.
- dcp.load takes what --to dcp writes, into the model and the optimizer: the weights under model, the optimizer by names under optimizer.
- dcp.load takes what --to torchtitan writes as torchtitan's trainer asks for it: its weights at the root, its own OptimizersContainer, its step. It
  is so with queries, keys and values apart, and with fuse_qkv, where the optimizer has one parameter for the three. What torchtitan saves of it
  then becomes a file of transformers, and is the same checkpoint again on the way back.
- --mesh cuts each tensor as torchtitan's own sharding says it for tensor parallel, with FSDP's rows of what that leaves.

What does not run on a CPU: flex attention, in whose place stands torchtitan's own ScaledDotProductAttention; and the kernels of Triton that copy
tokens between GPUs, which are imported and never called: their module is empty. Experts in float32: bfloat16() of a tensor is the tensor itself, and
torchtitan's _grouped_mm, the place that it has for other products, is a loop over the experts.

usage: layouts_torchtitan.py CKPT-INSPECT CKPT-MIGRATE   [-v]
"""
import contextlib
import copy
import os
import re
import shutil
import sys
import types

import checks
from checks import check, section

KERNELS = "torchtitan.distributed.minimal_async_ep.kernels"


class Kernels(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)


sys.modules[KERNELS] = Kernels(KERNELS)
try:
    import torch
    import torch.distributed.checkpoint as dcp
    import torch.nn.functional as F
    from torchtitan.components.optimizer import OptimizersContainer, ParamGroupConfig
    from torchtitan.models import llama3, qwen3
    from torchtitan.models.common import ComplexRoPE, CosSinRoPE, Embedding, Linear, RMSNorm
    from torchtitan.models.common.attention import ScaledDotProductAttention
    from torchtitan.models.common.moe import GroupedExperts
    from torchtitan.models.llama3.sharding import set_llama3_sharding_config
    from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter
    from torchtitan.models.qwen3.sharding import set_qwen3_sharding_config
    from torchtitan.models.qwen3.state_dict_adapter import Qwen3StateDictAdapter
    from safetensors.torch import load_file
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
    from transformers.utils.logging import disable_progress_bar
    import spmd_types as spmd
except ImportError as e:
    checks.skip(f"torchtitan, or what it imports, is not installed ({e})")

INSPECT, MIGRATE = checks.commands(__doc__, 2)
os.environ["CKPT_LAYOUTS"] = os.path.join(os.path.abspath(os.environ.get("srcdir", ".")), "layouts")
disable_progress_bar()
VOCAB, DIM, HEADS, KV, HEAD, FFN, LAYERS, LENGTH, EXPERTS, EXPERT = 96, 32, 4, 2, 12, 48, 2, 12, 12, 16
BOUND, HALF = 1e-5, 4e-3
SETTINGS = dict(lr=3e-3, betas=(0.9, 0.95))
DECAY = 0.1


def migrate(what, *args, status=0):
    return checks.ends(what, status, MIGRATE, "--force", *args)


# ---------------------------------------------------------------- transformers

def transformer(model, config, tied, **more):
    torch.manual_seed(1)
    net = model(config(vocab_size=VOCAB, hidden_size=DIM, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV,
                       max_position_embeddings=64, tie_word_embeddings=tied, rope_parameters=dict(rope_type="default", rope_theta=10000.0), **more))
    with torch.no_grad():                                       # no norm is 1: a wrong one would not be seen
        for p in net.parameters():
            p.add_(torch.randn(p.shape) * 0.05)
    return net


def batches(seed, n):
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(0, VOCAB, (2, LENGTH), generator=g) for _ in range(n)]


def logits(model, ids):
    out = model(ids)
    return out if isinstance(out, torch.Tensor) else out.logits


def steps(model, opt, seed, n):
    losses = []
    for ids in batches(seed, n):
        loss = F.cross_entropy(logits(model, ids)[:, :-1].reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    return losses


def two_groups(model):
    """Weights decay, norms do not."""
    groups = [[(n, p) for n, p in model.named_parameters() if ("norm" in n) != decays] for decays in (True, False)]
    return torch.optim.AdamW([dict(params=g, weight_decay=w) for g, w in zip(groups, (DECAY, 0.0))], **SETTINGS)


# ---------------------------------------------------------------- torchtitan

def ends_of(tied, norm):
    return dict(vocab_size=VOCAB, dim=DIM, norm=norm, enable_weight_tying=tied, tok_embeddings=Embedding.Config(num_embeddings=VOCAB, embedding_dim=DIM),
                lm_head=Linear.Config(in_features=DIM, out_features=VOCAB))


def rope_of(kind, size):
    return kind.Config(dim=size, max_seq_len=64, theta=10000.0)


def build(config, layers):
    for one in layers:
        one.attention.inner_attention = ScaledDotProductAttention.Config()
    return config(layers)


def titan_llama(tied, fused):
    layers = llama3._build_llama3_layers(n_layers=LAYERS, dim=DIM, n_heads=HEADS, n_kv_heads=KV, hidden_dim=FFN, fuse_qkv=fused, attn_backend="flex",
                                         rope=rope_of(ComplexRoPE, DIM // HEADS))
    return build(lambda own: llama3.Llama3Model.Config(layers=own, **ends_of(tied, RMSNorm.Config(normalized_shape=DIM))), layers)


def titan_qwen3(tied, fused):
    layers = qwen3._build_qwen3_layers(n_layers=LAYERS, dim=DIM, n_heads=HEADS, n_kv_heads=KV, head_dim=HEAD, hidden_dim=FFN, fuse_qkv=fused,
                                       attn_backend="flex", rope=rope_of(CosSinRoPE, HEAD))
    return build(lambda own: qwen3.Qwen3Model.Config(layers=own, **ends_of(tied, qwen3._qwen3_norm(DIM))), layers)


def titan_moe(tied, fused, dense=(), balance=None):
    own = dict(n_layers=LAYERS, dim=DIM, n_heads=HEADS, n_kv_heads=KV, head_dim=HEAD, fuse_qkv=fused, attn_backend="flex", rope=rope_of(CosSinRoPE, HEAD))
    layers = qwen3._build_qwen3_moe_layers(moe_hidden_dim=EXPERT, num_experts=EXPERTS, top_k=2, moe_comm_backend="standard", **own)
    for one in layers:
        one.moe.load_balance_coeff = balance
    for i in dense:
        layers[i] = qwen3._build_qwen3_layers(hidden_dim=FFN, **own)[i]
    return build(lambda own: qwen3.Qwen3Model.Config(layers=own, **ends_of(tied, qwen3._qwen3_norm(DIM))), layers)


@contextlib.contextmanager
def in_float32():
    was = torch.Tensor.bfloat16, GroupedExperts._grouped_mm
    torch.Tensor.bfloat16 = lambda t: t
    GroupedExperts._grouped_mm = lambda _, A, B_t, offs: torch.cat([x @ B_t[e] for e, x in enumerate(A.tensor_split(offs.tolist()[:-1]))])
    try:
        yield
    finally:
        torch.Tensor.bfloat16, GroupedExperts._grouped_mm = was


# the preset, the model of transformers, torchtitan's configuration and what belongs to it
LLAMA = dict(preset="llama", vars=["--var", f"heads={HEADS}"], titan=titan_llama, adapter=Llama3StateDictAdapter,
             shard=lambda c: set_llama3_sharding_config(c, enable_sp=True),
             make=lambda tied: transformer(LlamaForCausalLM, LlamaConfig, tied, intermediate_size=FFN, rms_norm_eps=1e-5))
QWEN3 = dict(preset="qwen3", vars=[], titan=titan_qwen3, adapter=Qwen3StateDictAdapter,
             shard=lambda c: set_qwen3_sharding_config(c, enable_sp=True, enable_ep=False),
             make=lambda tied: transformer(Qwen3ForCausalLM, Qwen3Config, tied, intermediate_size=FFN, rms_norm_eps=1e-6, head_dim=HEAD))
def moe_case(dense):
    return dict(preset="qwen3-moe-stacked", saved="qwen3-moe", vars=[], titan=lambda tied, fused, balance=None: titan_moe(tied, fused, dense, balance),
                adapter=Qwen3StateDictAdapter, shard=QWEN3["shard"],
                make=lambda tied: transformer(Qwen3MoeForCausalLM, Qwen3MoeConfig, tied, intermediate_size=FFN, rms_norm_eps=1e-6, head_dim=HEAD,
                                              moe_intermediate_size=EXPERT, num_experts=EXPERTS, num_experts_per_tok=2, norm_topk_prob=True,
                                              mlp_only_layers=list(dense)))


CASES = {"llama": (LLAMA, False), "llama, tied": (LLAMA, True), "qwen3": (QWEN3, False), "qwen3, tied": (QWEN3, True),
         "qwen3-moe": (moe_case(()), False), "qwen3-moe, tied, a dense layer": (moe_case((1,)), True)}


def container(model):
    """torchtitan's own optimizer, with the groups of two_groups."""
    groups = [ParamGroupConfig(pattern=p, optimizer_name="AdamW", optimizer_kwargs=dict(SETTINGS, weight_decay=w)) for p, w in (("norm", 0.0), (".*", DECAY))]
    return OptimizersContainer(OptimizersContainer.Config(param_groups=groups, implementation="for-loop"), model_parts=[model])


def at_root(model, opt):
    """The state that torchtitan gives to dcp."""
    return {**model.state_dict(), "optimizer": opt.state_dict()}


# ---------------------------------------------------------------- the checks

def same(what, got, want):
    check(f"{what}: the names", got.keys() == want.keys() and want, sorted(got.keys() ^ want.keys())[:4])
    other = [n for n in want if n in got and (got[n].dtype != want[n].dtype or not torch.equal(got[n], want[n]))]
    check(f"{what}: {len(want)} tensors, to the bit", not other, other[:4])


def by_name(optimizer):
    """({parameter: state}, [({parameters}, settings)]) of an optimizer that numbers its parameters and has their names."""
    names = {i: n for g in optimizer["param_groups"] for i, n in zip(g["params"], g["param_names"], strict=True)}
    groups = [(set(g["param_names"]), {k: v for k, v in g.items() if k not in ("params", "param_names")}) for g in optimizer["param_groups"]]
    return {names[i]: s for i, s in optimizer["state"].items()}, groups


def same_file(what, got, want):
    same(what, got["model"], want["model"])
    (a, a_groups), (b, b_groups) = by_name(got["optimizer"]), by_name(want["optimizer"])
    check(f"{what}: whose states", a.keys() == b.keys() and b, sorted(a.keys() ^ b.keys())[:4])
    for n in b:
        same(f"{what}: {n}", a.get(n, {}), b[n])
    check(f"{what}: the groups", a_groups == b_groups, (a_groups, b_groups))


def flat(optimizer):
    """As torchtitan's load_state_dict takes it."""
    states, groups = by_name(optimizer)
    out = {f"state.{n}.{k}": v for n, s in states.items() for k, v in s.items()}
    return out | {f"param_groups.{n}.{k}": v for names, settings in groups for n in names for k, v in settings.items()}


def near(what, a, b, bound=BOUND):
    gap = max(abs(x - y) for x, y in zip(a, b, strict=True)) if isinstance(a, list) else (a - b).abs().max().item()
    if "-v" in sys.argv:
        print(f"# {what}: within {gap:.1e}")
    return check(what, gap < bound, gap)


def same_logits(what, there, here, bound=BOUND):
    ids = batches(5, 1)[0]
    with torch.no_grad():
        near(f"{what}: the logits", logits(there, ids), logits(here, ids), bound)


def as_it_runs(what, config, weights, model):
    """Experts in bfloat16, as torchtitan has them."""
    same_logits(f"{what}, experts in bfloat16", strict(what, config, weights), model, HALF)
    at = "layers.0.moe.routed_experts.inner_experts."
    turned = {n: t.roll(1, 0) if n.startswith(at) else t for n, t in weights.items()}
    other = {f"{at}w1_EFD": weights[f"{at}w3_EFD"], f"{at}w3_EFD": weights[f"{at}w1_EFD"]}
    ids = batches(5, 1)[0]
    for wrong in (turned, {**weights, **other}):
        with torch.no_grad():
            gap = (logits(strict(what, config, wrong), ids) - logits(model, ids)).abs().max().item()
        "-v" in sys.argv and print(f"# {what}: wrong ones are {gap:.1e} off, of {logits(model, ids).abs().max().item():.1f}")
        check(f"{what}, experts in bfloat16: wrong ones would be seen", gap > 3 * HALF, gap)


def strict(what, config, weights):
    model = config.build()
    said = model.load_state_dict(weights, strict=True)
    check(f"{what}: torchtitan's load_state_dict", not said.missing_keys and not said.unexpected_keys, said)
    return model


def go_on(what, there, there_opt, here, here_opt):
    """Five steps of both, from where they are."""
    here, here_opt = copies(here, here_opt)
    before = {n: t.clone() for n, t in there.state_dict().items()}
    a, b = steps(there, there_opt, 9, 5), steps(here, here_opt, 9, 5)
    near(f"{what}: the next losses", a, b)
    check(f"{what}: it trains", all(not torch.equal(before[n], t) for n, t in there.state_dict().items()), a)
    same_logits(f"{what}, trained on", there, here)


def copies(model, opt):
    other = copy.deepcopy(model)
    fresh = two_groups(other)
    fresh.load_state_dict(copy.deepcopy(opt.state_dict()))
    return other, fresh


def by_file(name, case, tied, model, opt, layout):
    migrate(f"{name}, --to torch", *layout, "--verify", "--to", "torch", "hf.pt", "titan.pt")
    made = torch.load("titan.pt")
    config = case["titan"](tied, False)
    same(f"{name}, as torchtitan's converter has it", made["model"], case["adapter"](config, None).from_hf(load_file("hf/model.safetensors")))
    there = strict(name, config, made["model"])
    same_logits(name, there, model)
    same_logits(f"{name}, fused", strict(f"{name}, fused", case["titan"](tied, True), made["model"]), model)
    there_opt = container(there)
    there_opt.load_state_dict(flat(made["optimizer"]))
    go_on(name, there, there_opt, model, opt)
    migrate(f"{name}, back", *layout, "--verify", "--to", "torch", "titan.pt", "back.pt")
    same_file(f"{name}, there and back", torch.load("back.pt"), torch.load("hf.pt"))
    return there, there_opt


def by_dcp(name, case, tied, model, opt, layout):
    migrate(f"{name}, --to dcp", *layout, "--verify", "--to", "dcp", "--mesh", "dp=2,tp=2", "hf.pt", "titan")
    there = case["titan"](tied, False).build()
    there_opt = container(there)
    state, flat_opt = there.state_dict(), there_opt.state_dict()
    for t in [*state.values(), *(v for v in flat_opt.values() if isinstance(v, torch.Tensor))]:
        t.detach().fill_(7.0)
    asked = {"model": state, "optimizer": {"state": {}}}
    for key, value in flat_opt.items():
        if key.startswith("state."):
            param, kind = re.fullmatch(r"state\.(.*)\.(\w+)", key).groups()
            asked["optimizer"]["state"].setdefault(param, {})[kind] = value
    dcp.load(asked, checkpoint_id="titan", no_dist=True)
    there.load_state_dict(state, strict=True)
    there_opt.load_state_dict(flat_opt)
    made = torch.load("titan.pt")
    same(f"{name}, dcp.load", there.state_dict(), made["model"])
    go_on(f"{name}, by dcp", there, there_opt, model, opt)
    migrate(f"{name}, dcp back", *layout, "--verify", "--to", "torch", "titan", "back.pt")
    same_file(f"{name}, by dcp and back", torch.load("back.pt"), torch.load("hf.pt"))
    cut(name, case, tied)


def resumed(name, case, tied, fused, model, opt, layout):
    """As the trainer resumes, and saves."""
    name, own = f"{name}, --to torchtitan{', fused' if fused else ''}", [*layout, *(["--var", "fused=1"] if fused else [])]
    migrate(name, *own, "--verify", "--to", "torchtitan", "--mesh", "dp=2,tp=2", "hf.pt", "step-3")
    there = case["titan"](tied, fused).build()
    there_opt = container(there)
    for one in there_opt.optimizers:
        for group in one.param_groups:
            group.update(lr=7.0, weight_decay=7.0)
    state, progress = there.state_dict(), {"step": 0}
    for t in state.values():
        t.detach().fill_(7.0)
    dcp.load({**state, "optimizer": there_opt, "train_state": progress}, checkpoint_id="step-3", no_dist=True)
    there.load_state_dict(state, strict=True)
    check(f"{name}: the step", progress == {"step": 3}, progress)
    found = [(g["lr"], g["weight_decay"]) for one in there_opt.optimizers for g in one.param_groups]
    check(f"{name}: the groups", found == [(SETTINGS["lr"], 0.0), (SETTINGS["lr"], DECAY)], found)
    names = {n for one in there_opt.optimizers for g in one.param_groups for n in g["param_names"]}
    check(f"{name}: whose optimizer it is", any(n.endswith("wqkv.weight") for n in names) == fused, sorted(names))
    go_on(name, there, there_opt, model, opt)
    shutil.rmtree("own", ignore_errors=True)
    dcp.save({**at_root(there, there_opt), "train_state": {"step": 8, "ntokens_seen": 99}}, checkpoint_id="own", no_dist=True)
    migrate(f"{name}, its save", *layout, "--verify", "--to", "torch", "own", "own.pt")
    check(f"{name}, its save: no setting is left under a name of torchtitan's", list(torch.load("own.pt")["optimizer"]) == ["state", "param_groups"])
    migrate(f"{name}, its save, for DeepSpeed", *layout, "--verify", "--to", "universal", "own", f"universal{fused:d}")
    migrate(f"{name}, its save and back", *own, "--verify", "--to", "torchtitan", "own.pt", "own-again")
    done = checks.run(INSPECT, "diff", "own", "own-again")
    other = [one for one in done.stdout.splitlines() if one.startswith(("changed ", "added ", "removed ", "only "))]
    if "saved" in case:         # w1 and w3 were one tensor, and follow one another now: torchtitan asks for its parameters by name
        check(f"{name}: the same again, but for the order of a group", done.returncode == 1 and len(other) == 1 and
              other[0].split()[:2] == ["changed", "optimizer.groups.1.params"], done.stdout)
    else:
        check(f"{name}: the same again", done.returncode == 0 and not other, done.stdout)


def boxes_of(shape, tp, mesh=(2, 2)):
    """What the ranks of dp x tp have of a tensor: tp's part of dimension tp, and of that dp's rows."""
    out = set()
    for d in range(mesh[0]):
        for t in range(mesh[1]):
            starts, sizes = [0] * len(shape), list(shape)
            for dim, rank, ranks in ((tp, t, mesh[1]), (0, d, mesh[0])):
                if dim is not None:
                    sizes[dim], rest = divmod(sizes[dim], ranks)
                    check("sizes that the mesh divides", rest == 0, shape)
                    starts[dim] += rank * sizes[dim]
            out.add((tuple(starts), tuple(sizes)))
    return out


def cut(name, case, tied):
    config = case["titan"](tied, False)
    case["shard"](config)
    model = config.build()
    found = dcp.FileSystemReader("titan").read_metadata().state_dict_metadata
    modules = dict(model.named_modules())
    wrong, cuts = [], set()
    for n in model.state_dict():
        module, own = n.rsplit(".", 1)
        axes = {getattr(k, "value", k): v for k, v in modules[module]._sharding_config.state_shardings[own].per_axis_spmd_types().items()}
        place = spmd.spmd_type_to_dtensor_placement(axes["tp"])
        tp = getattr(place, "dim", None)
        cuts.add(tp)
        want = boxes_of(model.state_dict()[n].shape, tp)
        for key in (f"model.{n}", *(f"optimizer.state.{n}.{m}" for m in ("exp_avg", "exp_avg_sq"))):
            if key.startswith("optimizer.") and n not in dict(model.named_parameters()):
                continue
            got = {(tuple(c.offsets), tuple(c.sizes)) for c in found[key].chunks}
            if got != want:
                wrong.append((key, sorted(got), sorted(want)))
    check(f"{name}: each tensor is cut as torchtitan's sharding says", not wrong and cuts >= {0, 1, None}, (wrong[:2], cuts))


def pretrained(what, model, folder):
    """The configuration is the first one's: torchtitan's checkpoints hold none."""
    shutil.copy("hf/config.json", folder)
    again, said = type(model).from_pretrained(folder, output_loading_info=True)
    check(f"{what}: from_pretrained has all, and no more", not any(said[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), said)
    return again


def saved_layout(case):
    return ["--layout", case.get("saved", case["preset"]), *case["vars"]]


def saved(name, case, tied, model):
    """What save_pretrained writes has no head where it is tied."""
    layout = saved_layout(case)
    migrate(f"{name}, saved", *layout, "--weights-only", "--verify", "--to", "torch", "hf", "saved.pt")
    same(f"{name}, of save_pretrained", torch.load("saved.pt"), torch.load("titan.pt")["model"])
    migrate(f"{name}, saved and back", *layout, "--verify", "--to", "hf", "saved.pt", "hf-again")
    back, first = load_file("hf-again/model.safetensors"), load_file("hf/model.safetensors")
    same(f"{name}, saved and back", {n: t for n, t in back.items() if not tied or n != "lm_head.weight"}, first)
    same(f"{name}, saved and back: from_pretrained", pretrained(f"{name}, saved and back", model, "hf-again").state_dict(), model.state_dict())


def theirs(name, case, model, there, there_opt, layout):
    """What torchtitan saved."""
    dcp.save(at_root(there, there_opt), checkpoint_id="own", no_dist=True)
    migrate(f"{name}, torchtitan's own save", *saved_layout(case), "--verify", "--lossy", "--to", "hf", "own", "hf-back")
    again = pretrained(f"{name}, back", model, "hf-back")
    same_logits(f"{name}, back", again, there)
    migrate(f"{name}, torchtitan's own save, there and back", *layout, "--to", "torch", "own", "own.pt")
    migrate(f"{name}, and there again", *layout, "--to", "torch", "own.pt", "own-again.pt")
    again = torch.load("own-again.pt")
    same(f"{name}, torchtitan's save, there and back", again["model"], there.state_dict())
    want = {k: v for k, v in there_opt.state_dict().items() if k.startswith("state.")}
    same(f"{name}, its optimizer, there and back", {k: v for k, v in flat(again["optimizer"]).items() if k.startswith("state.")}, want)


def balanced(name, case, tied, model):
    """Load balancing: its bias is not made, and not left out unless that is said."""
    there = case["titan"](tied, False, 1e-3).build()
    weights = torch.load("titan.pt")["model"]
    said = there.load_state_dict(weights, strict=False)
    biases = [n for n in there.state_dict() if n.endswith(".expert_bias_E")]
    check(f"{name}, load balancing: its bias alone is missing", said.missing_keys == biases and biases and not said.unexpected_keys, said)
    with torch.no_grad():
        for i, n in enumerate(biases):
            there.state_dict()[n].copy_(torch.linspace(-1, 1, EXPERTS).roll(i))
    dcp.save(there.state_dict(), checkpoint_id="balanced", no_dist=True)
    for layout in (saved_layout(case), ["--layout", case["preset"]]):
        text = migrate(f"{name}, load balancing", *layout, "--to", "torch", "balanced", "balanced.pt", status=2)
        check(f"{name}, load balancing: it is refused by name", biases[0] in text, text)
        migrate(f"{name}, load balancing, dropped", *layout, "--drop", "*.expert_bias_E", "--to", "torch", "--weights-only", "balanced", "balanced.pt")
        back = torch.load("balanced.pt")
        same(f"{name}, load balancing, dropped", {n: t for n, t in back.items() if not tied or n != "lm_head.weight"},
             load_file("hf/model.safetensors") if layout[1] == case["saved"] else {n: t for n, t in model.state_dict().items() if not tied or n != "lm_head.weight"})


def all_of(name, case, tied):
    model = case["make"](tied)
    opt = two_groups(model)
    steps(model, opt, 3, 3)
    torch.save({"model": model.state_dict(), "optimizer": opt.state_dict(), "step": 3}, "hf.pt")
    model.save_pretrained("hf")
    layout = ["--layout", case["preset"], *case["vars"]]
    with in_float32():
        there, there_opt = by_file(name, case, tied, model, opt, layout)
        by_dcp(name, case, tied, model, opt, layout)
        for fused in (False, True):
            resumed(name, case, tied, fused, model, opt, layout)
        saved(name, case, tied, model)
        theirs(name, case, model, there, there_opt, layout)
    if "saved" in case:
        as_it_runs(name, case["titan"](tied, False), torch.load("titan.pt")["model"], model)
        balanced(name, case, tied, model)


for one, (case, tied) in CASES.items():
    with checks.scratch(), section(one):
        all_of(one, case, tied)
checks.finish()
