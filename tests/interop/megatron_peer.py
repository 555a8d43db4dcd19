#!/usr/bin/env python3
"""Checkpoints that megatron-core writes now on 4 ranks over gloo: torch_dist with tensor, pipeline, data and expert parallelism,
interleaved pipelines and the encodings of its distributed optimizer (fully_sharded_model_space it writes no more), and Megatron-LM's older layout of a folder for each model-parallel
rank. Parameters, masters, moments, steps and scalars are those of the live processes, byte for byte; what ckpt-migrate --to torch makes
is what megatron-core's own load_plain_tensors gives in one process, and what its load into a model without parallelism gives.

megatron-core's uses of a CUDA device are turned to the CPU. The older layout is imitated in one respect: the names of the files, and the
torch.save around the states, are those of Megatron-LM's trainer, which is no package. Gradients are given, not computed.

usage: megatron_peer.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]
"""
import argparse
import contextlib
import logging
import os
import re
import shutil
import sys
import time
import warnings
import zlib

os.environ.update(OMP_NUM_THREADS="1", CUDA_DEVICE_MAX_CONNECTIONS="1")

import checks
from checks import ask, check, section

warnings.filterwarnings("ignore")
try:
    import numpy as np
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.overrides import TorchFunctionMode
    with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        import megatron.core.dist_checkpointing.strategies.fully_parallel
        import megatron.core.models.gpt.gpt_layer_specs
        import megatron.core.models.gpt.gpt_model
        import megatron.core.optimizer_param_scheduler
        import psutil                                           # megatron-core's writer wants it, and does not say so
except ImportError as e:
    checks.skip(f"megatron-core is not installed ({e})")

INSPECT, MIGRATE = checks.commands(__doc__, 2)
torch.set_num_threads(1)
WORLD, STEPS, LENGTH = 4, 3, 8
FULL, BUCKETS = "fully_reshardable", "dp_reshardable"

BASE = dict(layers=2, tp=1, pp=1, vp=None, ep=1, experts=None, vocab=32, d=12, heads=4, kv=2, ffn=14, bias=False)
CASES = {
    "dist-tp2-pp2": dict(tp=2, pp=2),
    "dist-tp2-dp2-full": dict(tp=2, dtype="bf16", distopt=FULL, parallel=True),
    "dist-pp2-dp2-buckets": dict(pp=2, dtype="bf16", distopt=BUCKETS),
    "dist-pp2-vp2-full": dict(pp=2, vp=2, layers=4, dtype="bf16", distopt=FULL),
    "dist-tp2-singleton": dict(tp=2, singleton=True),
    "dist-ep2-full": dict(ep=2, experts=4, dtype="bf16", distopt=FULL),
    "dist-tp2-ep2": dict(tp=2, ep=2, experts=4),
    "legacy-tp2-pp2": dict(legacy=True, tp=2, pp=2, dtype="bf16", bias=True),
    "legacy-tp2-dp2-distrib": dict(legacy=True, tp=2, dtype="bf16", distopt="legacy"),
    "legacy-pp2-vp2": dict(legacy=True, pp=2, vp=2, layers=4, dtype="bf16"),
    "legacy-tp2-pp2-vp2": dict(legacy=True, tp=2, pp=2, vp=2, layers=8),
    "legacy-ep2": dict(legacy=True, ep=2, experts=4, dtype="bf16"),
    "legacy-tp2-ep2": dict(legacy=True, tp=2, ep=2, experts=4),
    "legacy-pp2-ep2": dict(legacy=True, pp=2, ep=2, experts=2, bias=True),
}
only = os.environ.get("MEGATRON_CASES")
CASES = {name: dict(BASE, **case) for name, case in CASES.items() if not only or re.search(only, name)}


# ---------------------------------------------------------------- megatron-core on the CPU

class NoCuda(TorchFunctionMode):
    """Where megatron-core names the cuda device in a factory, the tensor is made on the CPU."""
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def without_cuda():
    NoCuda().__enter__()
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *a: None
    torch.cuda.Stream = torch.cuda.Event = lambda *a, **k: None
    torch.cuda.manual_seed = torch.manual_seed
    torch.cuda.get_rng_state = torch.cuda.random.get_rng_state = lambda *a, **k: torch.get_rng_state()
    torch.Tensor.cuda = lambda self, *a, **k: self
    name = torch.Tensor.type                                   # the optimizers compare type() with torch.cuda.FloatTensor and the like
    torch.Tensor.type = lambda self, *a, **k: name(self, *a, **k) if a or k else name(self).replace("cuda.", "").replace("torch.", "torch.cuda.")
    import megatron.core.tensor_parallel.random as r
    r._set_cuda_rng_state = lambda s, *a, **k: torch.set_rng_state(s)


def build(case):
    from megatron.core import parallel_state as ps
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.module import Float16Module
    ps.initialize_model_parallel(case["tp"], case["pp"], virtual_pipeline_model_parallel_size=case["vp"], expert_model_parallel_size=case["ep"],
                                 expert_tensor_parallel_size=case["tp"])
    torch.manual_seed(7)
    model_parallel_cuda_manual_seed(7, force_reset_rng=True)
    bf16 = case.get("dtype") == "bf16"
    dtype = torch.bfloat16 if bf16 else torch.float32
    moe = dict(num_moe_experts=case["experts"], expert_model_parallel_size=case["ep"], expert_tensor_parallel_size=case["tp"], moe_router_topk=2,
               moe_ffn_hidden_size=case["ffn"], moe_token_dispatcher_type=case.get("dispatcher", "alltoall"),
               moe_layer_freq=case.get("freq", 1)) if case["experts"] else {}
    config = TransformerConfig(
        num_layers=case["layers"], hidden_size=case["d"], num_attention_heads=case["heads"], num_query_groups=case["kv"], ffn_hidden_size=case["ffn"],
        gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=case["bias"], use_cpu_initialization=True,
        tensor_model_parallel_size=case["tp"], pipeline_model_parallel_size=case["pp"], virtual_pipeline_model_parallel_size=case["vp"],
        params_dtype=dtype, pipeline_dtype=dtype, bf16=bf16, attention_dropout=0.0, hidden_dropout=0.0, masked_softmax_fusion=False,
        bias_activation_fusion=False, bias_dropout_fusion=False, gradient_accumulation_fusion=False, attention_softmax_in_fp32=True, **moe)
    chunks = []
    for v in range(case["vp"] or 1):
        at = dict(vp_stage=v if case["vp"] else None)
        first, last = (f(ignore_virtual=not case["vp"], **at) for f in (ps.is_pipeline_first_stage, ps.is_pipeline_last_stage))
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False) if case.get("freq") else get_gpt_layer_local_spec(num_experts=case["experts"])
        model = GPTModel(config, spec, vocab_size=case["vocab"], max_sequence_length=LENGTH,
                         pre_process=first, post_process=last, share_embeddings_and_output_weights=False, **at)
        model = Float16Module(config, model) if bf16 else model
        chunks.append(DistributedDataParallel(config, DistributedDataParallelConfig(
            use_distributed_optimizer=bool(case.get("distopt")), overlap_grad_reduce=False, grad_reduce_in_fp32=True), model))
    opt = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=2e-3, min_lr=1e-4, weight_decay=0.1, clip_grad=0.0, bf16=bf16, params_dtype=dtype,
                                                 use_distributed_optimizer=bool(case.get("distopt")), adam_beta2=0.95), chunks)
    sched = OptimizerParamScheduler(opt, init_lr=0.0, max_lr=2e-3, min_lr=1e-4, lr_warmup_steps=2, lr_decay_steps=40, lr_decay_style="cosine", start_wd=0.1,
                                    end_wd=0.1, wd_incr_steps=40, wd_incr_style="constant")
    return chunks, opt, sched


def gpt_of(chunk):
    return chunk.module.module if hasattr(chunk.module, "module") else chunk.module


def parameters(case, chunks):
    """(name in the whole model, parameter, is it an expert's) of this rank's."""
    from megatron.core import parallel_state as ps
    for chunk in chunks:
        gpt = gpt_of(chunk)
        first = gpt.decoder.layers[0].layer_number - 1 if gpt.decoder.layers else 0
        own = (case["experts"] or 0) // case["ep"]
        for n, p in gpt.named_parameters():
            n = re.sub(r"\.layers\.(\d+)\.", lambda m: f".layers.{int(m[1]) + first}.", n)
            n = re.sub(r"\.local_experts\.(\d+)\.", lambda m: f".local_experts.{int(m[1]) + own * ps.get_expert_model_parallel_rank()}.", n)
            yield n, p, ".experts." in n


def train(case, chunks, opt, sched, another=""):
    """Steps with gradients that are functions of the parameter's name, the rank's part of it and the step, and of a word for another training."""
    from megatron.core import parallel_state as ps
    for step in range(STEPS):
        for name, p, expert in parameters(case, chunks):
            part = ps.get_tensor_model_parallel_rank() if getattr(p, "tensor_model_parallel", False) else 0
            g = torch.Generator().manual_seed(zlib.crc32(f"{name} {part} {step}{another}".encode()))
            p.main_grad.copy_(torch.rand(p.shape, generator=g) - 0.4)
        opt.step()
        sched.step(increment=4)


# ---------------------------------------------------------------- what the live processes have

def owner(opt, p):
    """Experts' parameters have an optimizer of their own, the last one."""
    all_of_them = getattr(opt, "chained_optimizers", [opt])
    return all_of_them[0] if getattr(p, "allreduce", True) else all_of_them[-1]


def own_states(case, opt, p):
    """(begin, end, flat states) of what this rank's optimizer has of its part of a parameter."""
    o = owner(opt, p)
    if case.get("distopt"):
        try:
            r, t = o._get_model_param_range_map(p)["param"], o._get_main_param_and_optimizer_states(p)
        except KeyError:                                        # this rank owns nothing of it
            return 0, 0, {}
        return r.start, r.end, {k: t[k].detach().clone() for k in ("param", "exp_avg", "exp_avg_sq")}
    main = getattr(p, "main_param", p)
    st = o.optimizer.state[main]
    states = {k: st[k].detach().reshape(-1).clone() for k in ("exp_avg", "exp_avg_sq")}
    if main is not p:
        states["param"] = main.detach().reshape(-1).clone()
    return 0, p.numel(), states


def live(case, chunks, opt):
    """{name: {"": parameter, fp32, exp_avg, exp_avg_sq}} of the whole model; collective."""
    from megatron.core import parallel_state as ps
    mine = []
    for name, p, expert in parameters(case, chunks):
        dim = p.partition_dim if getattr(p, "tensor_model_parallel", False) else None
        mine.append((name, ps.get_tensor_model_parallel_rank() if dim is not None else 0, dim, p.detach().clone(), own_states(case, opt, p)))
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    parts = {}
    for name, tp, dim, weight, own in (x for rank in every for x in rank):
        parts.setdefault(name, (dim, {}))[1].setdefault(tp, []).append((weight, own))
    out = {}
    for name, (dim, by_tp) in parts.items():
        kinds = {k for owned in by_tp.values() for _, (_, _, t) in owned for k in t}
        got = {}
        for kind in [""] + sorted(kinds):
            whole = []
            for tp in sorted(by_tp):
                owned = by_tp[tp]
                assert all(torch.equal(w, owned[0][0]) for w, _ in owned), name
                if kind == "":
                    whole.append(owned[0][0])
                    continue
                flat = torch.full((owned[0][0].numel(),), float("nan"))
                for _, (begin, end, t) in owned:
                    if t:
                        assert flat[begin:end].isnan().all() or torch.equal(flat[begin:end], t[kind].float()), name
                        flat[begin:end] = t[kind].float()
                assert not flat.isnan().any(), (name, kind)
                whole.append(flat.view(owned[0][0].shape))
            if dim is None:
                t = whole[0]
            elif "linear_fc1" in name:                           # every rank has [its part of the gate; its part of the other half]
                t = torch.cat([torch.cat(c) for c in zip(*(w.chunk(2) for w in whole))])
            else:
                t = torch.cat(whole, dim)
            got[{"param": "fp32"}.get(kind, kind)] = t
        out[name] = got
    return out


# ---------------------------------------------------------------- saving

def arguments_of(case, rank):
    return argparse.Namespace(
        num_layers=case["layers"], hidden_size=case["d"], num_attention_heads=case["heads"], num_query_groups=case["kv"], ffn_hidden_size=case["ffn"],
        swiglu=True, padded_vocab_size=case["vocab"], tensor_model_parallel_size=case["tp"], pipeline_model_parallel_size=case["pp"],
        virtual_pipeline_model_parallel_size=case["vp"], expert_model_parallel_size=case["ep"], expert_tensor_parallel_size=case["tp"],
        num_experts=case["experts"], moe_ffn_hidden_size=case["ffn"] if case["experts"] else None, world_size=WORLD, rank=rank,
        params_dtype=torch.bfloat16 if case.get("dtype") == "bf16" else torch.float32, iteration=STEPS, consumed_train_samples=STEPS * 4,
        use_distributed_optimizer=bool(case.get("distopt")), ckpt_format="torch" if case.get("legacy") else "torch_dist", seed=7)


def metadata_of(case):
    from megatron.core import parallel_state as ps
    meta = dict(distrib_optim_sharding_type=case["distopt"]) if case.get("distopt") else {}
    return dict(meta, singleton_local_shards=case.get("singleton", False), chained_optim_avoid_prefix=True,
                dp_cp_group=ps.get_data_parallel_group(with_context_parallel=True))


def sharded(case, chunks, opt, sched, loading=False):
    """The state dict of a save to torch_dist, as generate_state_dict of Megatron-LM's trainer makes it."""
    meta = metadata_of(case)
    state, models = {}, {}
    for v, chunk in enumerate(chunks):
        models[f"model{v}" if case["vp"] else "model"] = gpt_of(chunk).sharded_state_dict(metadata=meta)
    state.update(models)
    state["optimizer"] = opt.sharded_state_dict(dict(models), is_loading=loading, metadata=meta)
    if not loading:
        state["opt_param_scheduler"] = sched.state_dict()
    return state


def save_dist(case, folder, rank, chunks, opt, sched):
    from megatron.core import dist_checkpointing, parallel_state as ps
    from megatron.core.dist_checkpointing.mapping import ShardedObject
    state = sharded(case, chunks, opt, sched)
    state.update(args=arguments_of(case, rank), checkpoint_version=3.0, iteration=STEPS)
    rng = [dict(torch_rng_state=torch.get_rng_state())]
    state["rng_state"] = ShardedObject("rng_state", rng, (case["pp"], case["tp"]), (ps.get_pipeline_model_parallel_rank(), ps.get_tensor_model_parallel_rank()),
                                       replica_id=ps.get_data_parallel_rank(with_context_parallel=True))
    strategy = dist_checkpointing.serialization.get_default_save_sharded_strategy()
    if case.get("parallel"):
        from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelSaveStrategyWrapper
        strategy = FullyParallelSaveStrategyWrapper(strategy, ps.get_data_parallel_group(with_context_parallel=True), True)
    dist_checkpointing.save(state, folder, strategy, validate_access_integrity=True, content_metadata={k: v for k, v in metadata_of(case).items() if k != "dp_cp_group"},
                            preprocess_common_before_consistancy_check=lambda s: {k: v for k, v in s.items() if k != "args"})


def rank_folder(case, tp, pp, ep):
    return f"mp_rank_{tp:02d}" + (f"_{pp:03d}" if case["pp"] > 1 else "") + (f"_{ep:03d}" if case["ep"] > 1 else "")


def save_legacy(case, folder, rank, chunks, opt, sched):
    """get_checkpoint_name and save_checkpoint of Megatron-LM's trainer, with --ckpt-format torch."""
    from megatron.core import parallel_state as ps
    own = os.path.join(folder, rank_folder(case, ps.get_tensor_model_parallel_rank(), ps.get_pipeline_model_parallel_rank(), ps.get_expert_model_parallel_rank()))
    os.makedirs(own, exist_ok=True)
    if case.get("distopt"):
        opt.save_parameter_state(os.path.join(own, "distrib_optim.pt"))
    if ps.get_expert_data_parallel_rank() != 0:
        return
    state = dict(args=arguments_of(case, rank), checkpoint_version=3.0, iteration=STEPS)
    for v, chunk in enumerate(chunks):
        state[f"model{v}" if case["vp"] else "model"] = chunk.module.state_dict_for_save_checkpoint()
    state.update(optimizer=opt.state_dict(), opt_param_scheduler=sched.state_dict(), rng_state=[dict(torch_rng_state=torch.get_rng_state())])
    torch.save(state, os.path.join(own, "model_optim_rng.pt"))


def start(rank, world, port):
    with open(os.devnull, "w") as quiet:
        os.dup2(quiet.fileno(), 1)
        if "-v" not in sys.argv:
            os.dup2(quiet.fileno(), 2)
    logging.disable(logging.WARNING)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    without_cuda()


def rank_main(rank, world, port, cases):
    from megatron.core import parallel_state as ps
    start(rank, world, port)
    for name, case in cases.items():
        folder = f"{name}/iter_{STEPS:07d}"
        os.makedirs(folder, exist_ok=True)
        why = None
        try:
            chunks, opt, sched = build(case)
            train(case, chunks, opt, sched)
            truth = live(case, chunks, opt)
            (save_legacy if case.get("legacy") else save_dist)(case, folder, rank, chunks, opt, sched)
        except Exception as e:                                  # the other ranks wait in a collective: none can go on
            import traceback
            open(f"{name}.error", "w").write(traceback.format_exc())
            raise
        dist.barrier()
        if rank == 0:
            open(f"{name}/latest_checkpointed_iteration.txt", "w").write(str(STEPS))
            torch.save(dict(truth=truth, lr=opt.param_groups[0]["lr"], why=why), f"{name}.truth")
        ps.destroy_model_parallel()
    dist.barrier()
    dist.destroy_process_group()


def alone(rank, world, port, cases):
    """Megatron's own consolidations, in one process: load_plain_tensors, and load into a model without parallelism."""
    from megatron.core import dist_checkpointing, parallel_state as ps
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
    start(rank, world, port)
    takes = DistributedOptimizer._set_main_param_and_optimizer_states    # it wants each state of torch's Adam, and its save has no step
    DistributedOptimizer._set_main_param_and_optimizer_states = lambda self, p, tensors: takes(
        self, p, dict(tensors, step=self._get_main_param_and_optimizer_states(p)["step"]))
    for name, case in cases.items():
        folder, got = f"{name}/iter_{STEPS:07d}", {}
        try:
            got["plain"] = dist_checkpointing.load_plain_tensors(folder)
        except Exception as e:
            got["plain_error"] = f"{type(e).__name__}: {e}"
        if not case.get("experts") and case.get("distopt") != BUCKETS:
            one = dict(case, tp=1, pp=1, vp=None, ep=1)
            try:
                chunks, opt, sched = build(one)
                train(dict(one), chunks, opt, sched)            # the optimizer has states to load into
                state = dist_checkpointing.load(sharded(one, chunks, opt, sched, True), folder)
                gpt_of(chunks[0]).load_state_dict(state["model"], strict=False)
                opt.load_state_dict(state["optimizer"])
                got["whole"] = live(one, chunks, opt)
            except Exception as e:
                got["whole_error"] = f"{type(e).__name__}: {e}"
            ps.destroy_model_parallel()
        torch.save(got, f"{name}.alone")
    dist.destroy_process_group()


# ---------------------------------------------------------------- the names of the container

def key_of(case, name):
    """(key in torch_dist, place in its stack or None): layers, and experts, are stacked; norms have the names that fused layers have."""
    m, e = re.search(r"\.layers\.(\d+)\.", name), re.search(r"\.local_experts\.(\d+)\.", name)
    if not case.get("singleton"):
        name = re.sub(r"\.layers\.\d+\.", ".layers.", name)
    name = name.replace("input_layernorm.", "self_attention.linear_qkv.layer_norm_")
    name = name.replace("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_")
    name = re.sub(r"\.local_experts\.\d+\.", ".experts.", name)
    return name, None if case.get("singleton") else tuple(int(x[1]) for x in (m, e) if x) or None


def stacked(case, truth):
    """{key: tensor} as torch_dist has them."""
    places = {}
    for name, states in truth.items():
        key, at = key_of(case, name)
        for kind, t in states.items():
            if case.get("distopt") == BUCKETS and kind:
                continue
            own = key if kind == "" else f"optimizer.state.{'param' if kind == 'fp32' else kind}.{key}"
            if case.get("singleton") and "linear_fc1.weight" in own:
                places[own + "_w"], places[own + "_v"] = {None: t.chunk(2)[0]}, {None: t.chunk(2)[1]}
            else:
                places.setdefault(own, {})[at] = t
    out = {}
    for key, parts in places.items():
        if None in parts:
            out[key] = parts[None]
            continue
        sizes = [max(at[i] for at in parts) + 1 for i in range(len(next(iter(parts))))]
        one = next(iter(parts.values()))
        out[key] = torch.stack([parts[at] for at in sorted(parts)]).reshape(*sizes, *one.shape)
    return out


def flat(truth):
    return {name if kind == "" else f"optimizer.{name}.{kind}": t for name, states in truth.items() for kind, t in states.items()}


# ---------------------------------------------------------------- what is checked

def compare(what, path, truth, case):
    """Each tensor of the truth is listed with its dtype, shape and CRC, and no other of these roles is."""
    status, doc = ask(INSPECT, "list", "--json", "--checksum", path)
    listed = {t["name"]: t for t in doc.get("tensors", [])}
    check(f"{what}: it is listed", status == 0, doc.get("error") or doc)
    for name, t in truth.items():
        got = listed.get(name, {})
        said = [str(t.dtype)[6:], list(t.shape), checks.crc(t)]
        check(f"{what}: {name}", [got.get("dtype"), got.get("shape"), got.get("crc32")] == said, f"{got}, not {said}")
    more = sorted(n for n, t in listed.items() if n not in truth and t["role"] in ("param", "exp_avg", "exp_avg_sq", "master")
                  and "gbuf_idx" not in n and "distrib_optim" not in n)
    check(f"{what}: no other parameter or moment is listed", not more, more)
    status, doc = ask(INSPECT, "show", "--json", path)
    check(f"{what}: show says its step", status == 0 and doc.get("step") == STEPS, doc)
    status, doc = ask(INSPECT, "verify", "--json", path)
    check(f"{what}: it is whole", status == 0 and not [f for f in doc["findings"] if f["severity"] == "error"], doc)
    codes = {f["code"] for f in doc.get("findings", [])}
    unknown = case.get("distopt") == "legacy" or case.get("distopt") == BUCKETS
    check(f"{what}: what the files do not say is said, and nothing else", ("layout-unknown" in codes) == unknown, codes)
    return listed


def scalars(what, path, told):
    done = checks.run(INSPECT, "tree", "--json", path)
    for text in (f'"iteration"', f'"consumed_train_samples"', f'"max_lr"'):
        check(f"{what}: tree has {text}", done.returncode == 0 and text in done.stdout, done.stderr or done.stdout[:300])


def whole_file(what, path, truth, alone_, case):
    """--to torch: the keys of the container; and what Megatron itself makes of it in one process."""
    out = path + ".pt"
    done = checks.run(MIGRATE, "--to", "torch", "--verify", path, out)
    if not check(f"{what}: --to torch", done.returncode == 0, done.stderr):
        return
    saved = torch.load(out, weights_only=False)
    flat_out = {}

    def walk(value, at):
        if isinstance(value, torch.Tensor):
            flat_out[".".join(at)] = value
        elif isinstance(value, dict):
            for k, v in value.items():
                walk(v, at + [str(k)])
    for k, v in saved.items():
        if k not in ("model", "optimizer"):
            walk(v, [str(k)])
    if isinstance(saved.get("model"), dict):
        for n, t in saved["model"].items():
            flat_out[n] = t
    if "optimizer" in saved:                        # flat buffers without names are none
        names = [n for g in saved["optimizer"]["param_groups"] for n in g.get("param_names", [])]
        for i, n in enumerate(names):
            for kind in ("master", "exp_avg", "exp_avg_sq"):
                if kind in saved["optimizer"]["state"].get(i, {}):
                    flat_out[("state", n, kind)] = saved["optimizer"]["state"][i][kind]
    for name, t in truth.items():
        m = re.match(r"optimizer\.state\.(exp_avg|exp_avg_sq|param)\.(.*)", name) or re.match(r"optimizer\.()(.*)\.(exp_avg|exp_avg_sq|fp32)$", name)
        if m:
            kind = m[1] or m[3]
            key = ("state", m[2], "master" if kind in ("param", "fp32") else kind)
        else:
            key = name
        got = flat_out.get(key)
        check(f"{what}: the file has {name}", got is not None and got.dtype == t.dtype and torch.equal(got, t), f"{key}: {None if got is None else (got.shape, got.dtype)}")
    steps = {float(s["step"]) for s in saved["optimizer"]["state"].values() if "step" in s} if "optimizer" in saved and "state" in saved["optimizer"] else set()
    if case.get("distopt") not in (BUCKETS, "legacy"):
        check(f"{what}: the file has the step", steps == {float(STEPS)}, steps)
    if alone_ is None:
        return
    plain = alone_.get("plain")
    if check(f"{what}: load_plain_tensors", plain is not None, alone_.get("plain_error")):
        for name, t in truth.items():
            got = plain.get(name)
            check(f"{what}: load_plain_tensors has {name}, too", isinstance(got, torch.Tensor) and torch.equal(got, t), type(got))
    if "whole" in alone_ or "whole_error" in alone_:
        if check(f"{what}: Megatron loads it without parallelism", "whole" in alone_, alone_.get("whole_error")):
            loaded = stacked(case, alone_["whole"])
            differ = [n for n, t in truth.items() if n not in loaded or not torch.equal(loaded[n], t)]
            check(f"{what}: it loads what the live processes had", not differ and len(loaded) == len(truth), differ)


def faults(what, path):
    """Each rank's file, missing or cut off, is named."""
    step = f"{path}/iter_{STEPS:07d}"
    names = [os.path.relpath(os.path.join(d, f), step) for d, _, files in os.walk(step) for f in files]
    for name in sorted(n for n in names if n.endswith((".pt", ".distcp", ".metadata"))):
        file, aside = f"{step}/{name}", f"{path}.aside"
        shutil.move(file, aside)
        status, doc = ask(INSPECT, "verify", "--json", path)
        said = [f"{f.get('file') or ''} {f['message']}" for f in doc.get("findings", []) if f["severity"] == "error"] + [str(doc.get("error", ""))]
        check(f"{what}: without {name}", status != 0 and any(name in s for s in said), doc)
        content = open(aside, "rb").read()
        open(file, "wb").write(content[:len(content) * 2 // 3])
        status, doc = ask(INSPECT, "verify", "--json", path)
        said = [f"{f.get('file') or ''} {f['message']}" for f in doc.get("findings", []) if f["severity"] == "error"] + [str(doc.get("error", ""))]
        check(f"{what}: with {name} cut off", status != 0 and any(name in s for s in said), doc)
        shutil.move(aside, file)


def main():
    with checks.scratch() as work:
        t = time.time()
        with section("megatron-core saves"):
            mp.start_processes(rank_main, (WORLD, checks.free_port(), CASES), nprocs=WORLD, start_method="fork")
        for name in (n for n in os.listdir(work) if n.endswith(".error")):
            print(open(name).read())
        spent = [time.time() - t]
        dist_cases = {n: c for n, c in CASES.items() if not c.get("legacy") and os.path.exists(n + ".truth")}
        with section("megatron-core loads"):
            mp.start_processes(alone, (1, checks.free_port(), dist_cases), nprocs=1, start_method="fork")
        spent.append(time.time() - t - spent[0])
        for what, case in CASES.items():
            with section(what):
                told = torch.load(what + ".truth", weights_only=False)
                truth = flat(told["truth"]) if case.get("legacy") else stacked(case, told["truth"])
                if case.get("distopt") == "legacy":
                    truth = {n: t for n, t in truth.items() if not n.startswith("optimizer.")}
                compare(what, what, truth, case)
                scalars(what, what, told)
                whole_file(what, what, truth, None if case.get("legacy") else torch.load(what + ".alone", weights_only=False), case)
                faults(what, what)
        if "-v" in sys.argv:
            print(f"saved in {spent[0]:.1f} s, loaded in {spent[1]:.1f} s, all in {time.time() - t:.1f} s")
    checks.finish()


if __name__ == "__main__":
    main()
