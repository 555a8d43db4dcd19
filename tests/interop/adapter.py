#!/usr/bin/env python3
"""adapter.py: ckpt-migrate --merge-adapter beside PEFT's merge_and_unload.

    adapter.py CKPT-INSPECT CKPT-MIGRATE [-v]

Real adapters of PEFT (matrices both ways round, convolutions, embeddings, biases, modules_to_save, patterns of
rank and alpha, rslora, DoRA) in float32, bfloat16 and float16 are merged into bases in several formats, and each tensor is compared
with that of PeftModel.from_pretrained(base, adapter).merge_and_unload(). The bytes have to be the same where each element of lora_B @
lora_A is one chain of fused multiply-adds: that is MKL's arithmetic for the ranks here (4 to 64) where no dimension is as small as a
few elements. Otherwise the sums have another order, and the bound is BOUND units of float32 in the last place of the largest term,
and one of the base's dtype. So it is for DoRA, whose norms torch sums in an order of its own, and for kernels of convolutions over
1 x 1, which oneDNN computes. Written for peft 0.21, torch 2.13, transformers 5.
"""
import json
import os
import shutil
import sys

import checks
from checks import check, run, section

try:
    import torch
    from torch import nn
    import peft
    import transformers
    from peft import LoraConfig, PeftModel, get_peft_model
    from safetensors.torch import load_file, save_file
except ImportError as e:
    checks.skip(e)

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
BOUND = 8                                       # units in the last place of float32


class Net(nn.Module):
    """A layer of each kind that PEFT has a LoRA for."""

    def __init__(self):
        super().__init__()
        self.emb, self.fc, self.square = nn.Embedding(50, 24), nn.Linear(24, 40), nn.Linear(40, 40)
        self.conv2, self.conv1x1, self.conv1 = nn.Conv2d(6, 10, 3), nn.Conv2d(16, 32, 1), nn.Conv1d(5, 9, 3)
        self.norm, self.head = nn.LayerNorm(40), nn.Linear(40, 20)

    def forward(self, x):
        return self.head(self.norm(self.square(self.fc(self.emb(x)))))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.fc = nn.MultiheadAttention(32, 2), nn.Linear(32, 16)

    def forward(self, x):
        return self.fc(self.attn(x, x, x)[0])


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=80, n_positions=16))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(hidden_size=64, intermediate_size=112, num_hidden_layers=2,
                                                                  num_attention_heads=4, num_key_value_heads=2, vocab_size=96))


# name: model, options of LoraConfig, tensors whose bytes may differ within the bound
CASES = {
    "plain": (Net, dict(r=8, lora_alpha=16, target_modules=["fc", "square", "head"]), ""),
    "kinds": (Net, dict(r=4, lora_alpha=7, target_modules=["emb", "fc", "conv2", "conv1x1", "conv1"]), "conv2 conv1"),
    "bias-all": (Net, dict(r=4, target_modules=["fc", "square"], bias="all"), ""),
    "bias-lora": (Net, dict(r=4, target_modules=["fc", "square"], bias="lora_only"), ""),
    "lora-bias": (Net, dict(r=4, target_modules=["fc", "head"], lora_bias=True), ""),
    "saved": (Net, dict(r=16, target_modules=["fc"], modules_to_save=["head", "norm"]), ""),
    "rslora": (Net, dict(r=12, lora_alpha=5, target_modules=["fc", "square"], use_rslora=True), ""),
    "patterns": (Net, dict(r=4, target_modules=["fc", "square", "head"], rank_pattern={"fc": 6, "^squ.re": 10}, alpha_pattern={"head": 3.5}), ""),
    "dora": (Net, dict(r=4, target_modules=["emb", "fc", "square", "conv2", "conv1"], use_dora=True), "emb fc square conv2 conv1"),
    "gpt2": (gpt2, dict(r=8, target_modules=["c_attn", "c_proj", "c_fc"]), ""),
    "gpt2-dora": (gpt2, dict(r=8, target_modules=["c_attn", "c_proj"], use_dora=True), "c_attn c_proj"),
    "gpt2-tied": (gpt2, dict(r=4, target_modules=["wte", "c_attn"]), ""),
    "llama": (llama, dict(r=64, lora_alpha=32, target_modules="all-linear"), ""),
    "llama-head": (llama, dict(r=8, target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head"]), ""),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def make_base(make, dtype):
    torch.manual_seed(5)
    return make().to(dtype)


def is_hf(model):
    return hasattr(model, "save_pretrained")


def make(name, dtype, where):
    """The base, the adapter and what PEFT makes of them: (state_dict of the base, of the merged model)."""
    build, options, _ = CASES[name]
    base = make_base(build, dtype)
    before = {k: v.clone() for k, v in base.state_dict().items()}
    os.makedirs(where)
    if is_hf(base):
        base.save_pretrained(f"{where}/base", max_shard_size="60KB")
    trained = get_peft_model(base, LoraConfig(**options))
    for n, p in trained.named_parameters():
        if p.requires_grad:
            p.data += (torch.randn_like(p, dtype=torch.float32) * 0.05).to(p.dtype)
    trained.save_pretrained(f"{where}/adapter")
    fresh = make_base(build, dtype)
    fresh.load_state_dict(before)
    merged = PeftModel.from_pretrained(fresh, f"{where}/adapter").merge_and_unload().state_dict()
    return before, merged


def distance(ours, theirs):
    """In units of the bound: (those of float32 of the largest element, those of the dtype)."""
    top = float(theirs.abs().max()) or 1.0
    step = torch.finfo(torch.float32).eps * top
    own = torch.finfo(theirs.dtype).eps
    over = (ours.double() - theirs.double()).abs() - theirs.double().abs() * own * (theirs.dtype != torch.float32)
    return float(over.max()) / step


def compare(what, ours, theirs, loose=""):
    check(f"{what}: the same names", ours.keys() == theirs.keys(), sorted(ours.keys() ^ theirs.keys()))
    for k in ours.keys() & theirs.keys():
        a, b = ours[k], theirs[k]
        if a.dtype != b.dtype or a.shape != b.shape:
            check(f"{what}: {k}", False, f"{a.dtype} {tuple(a.shape)}, PEFT has {b.dtype} {tuple(b.shape)}")
        elif any(f"{w}." in k for w in loose.split()):
            check(f"{what}: {k} within the bound", distance(a, b) <= BOUND, distance(a, b))
        else:
            check(f"{what}: {k} bit by bit", torch.equal(a, b), f"{int((a != b).sum())} of {a.numel()} differ, {distance(a, b)} units")


def merge(migrate, source, target, adapter, *more):
    done = run(migrate, source, target, "--merge-adapter", adapter, "--verify", *more)
    check(f"{target}: status 0", done.returncode == 0, done.stderr)
    return done


def named(state, merged):
    """What the safetensors file of a tied model has: each storage under one name."""
    return {k: merged[k] for k in state}


def one(migrate, name, kind):
    where = f"{name}-{kind}"
    before, merged = make(name, DTYPES[kind], where)
    loose = CASES[name][2]
    if os.path.isdir(f"{where}/base"):
        done = merge(migrate, f"{where}/base", f"{where}/out", f"{where}/adapter", "--to", "hf")
        files = [f"{where}/out/{f}" for f in os.listdir(f"{where}/out") if f.endswith(".safetensors")]
        ours = {k: v for f in files for k, v in load_file(f).items()}
        compare(where, ours, named(ours, merged), loose)
        shutil.copy(f"{where}/base/config.json", f"{where}/out")
    else:
        save_file(before, f"{where}/base.safetensors")
        merge(migrate, f"{where}/base.safetensors", f"{where}/out.safetensors", f"{where}/adapter", "--to", "safetensors")
        compare(where, load_file(f"{where}/out.safetensors"), merged, loose)


def sources(inspect, migrate):
    """The same adapter, the base in other formats; and the target with a cast, under other names, in a torch file."""
    before, merged = make("saved", torch.float32, "sources")
    save_file({k: v.half() for k, v in load_file("sources/adapter/adapter_model.safetensors").items()}, "half.safetensors")
    torch.save(before, "base.pt")
    torch.save({"model": before, "epoch": 3}, "trainer.pt")
    for source in ("base.pt", "trainer.pt"):
        merge(migrate, source, f"out-{source}", "sources/adapter", "--to", "torch")
        got = torch.load(f"out-{source}", weights_only=True)
        compare(source, got.get("model", got), merged)
    import torch.distributed.checkpoint as dcp
    dcp.save({"model": before}, checkpoint_id="dcp", no_dist=True)
    merge(migrate, "dcp", "dcp.safetensors", "sources/adapter", "--to", "safetensors")
    compare("dcp", {k.removeprefix("model."): v for k, v in load_file("dcp.safetensors").items()}, merged)
    save_file({f"model.{k}": v for k, v in before.items()}, "prefix.safetensors")
    merge(migrate, "prefix.safetensors", "out-prefix.safetensors", "sources/adapter", "--to", "safetensors", "--strip-prefix", "model.")
    compare("another prefix", load_file("out-prefix.safetensors"), merged)
    merge(migrate, "base.pt", "cast.safetensors", "sources/adapter", "--to", "safetensors", "--cast", "fc.*=bfloat16", "--memory", "40MiB", "--threads", "4")
    compare("cast", load_file("cast.safetensors"), {k: v.bfloat16() if k.startswith("fc.") else v for k, v in merged.items()})
    shutil.copytree("sources/adapter", "bin")
    torch.save(load_file("sources/adapter/adapter_model.safetensors"), "bin/adapter_model.bin")
    os.remove("bin/adapter_model.safetensors")
    merge(migrate, "base.pt", "bin.safetensors", "bin", "--to", "safetensors")
    compare("adapter_model.bin", load_file("bin.safetensors"), merged)
    shutil.copytree("sources/adapter", "adapter-half")
    shutil.copy("half.safetensors", "adapter-half/adapter_model.safetensors")
    fresh = make_base(Net, torch.float32)
    fresh.load_state_dict(before)
    theirs = PeftModel.from_pretrained(fresh, "adapter-half").merge_and_unload().state_dict()
    merge(migrate, "base.pt", "half-out.safetensors", "adapter-half", "--to", "safetensors")
    compare("an adapter of float16", load_file("half-out.safetensors"), theirs)


def refused(migrate):
    """What is not merged is said, and nothing is written."""
    before, _ = make("plain", torch.float32, "refused")
    save_file(before, "base.safetensors")

    def refuse(what, *words, change=None, base="base.safetensors", adapter="refused/adapter"):
        folder = adapter
        if change:
            shutil.rmtree("changed", ignore_errors=True)
            shutil.copytree(adapter, "changed")
            doc = json.load(open("changed/adapter_config.json")) | change
            json.dump(doc, open("changed/adapter_config.json", "w"))
            folder = "changed"
        done = run(migrate, base, "never.safetensors", "--merge-adapter", folder)
        check(f"refused: {what}", done.returncode == 2 and not os.path.exists("never.safetensors") and all(w in done.stderr for w in words), done.stderr)

    for option in ({"use_qalora": True}, {"alora_invocation_tokens": [1]}, {"layer_replication": [[0, 2]]}, {"target_parameters": ["w"]},
                   {"an_option_of_tomorrow": {"x": 1}}, {"trainable_token_indices": [2]}):
        refuse(str(option), next(iter(option)), "PEFT", change=option)
    CASES["attention"] = (Attention, dict(r=4, target_modules=["attn", "fc"]), "")
    save_file(make("attention", torch.float32, "attention")[0], "attention.safetensors")
    refuse("nn.MultiheadAttention", "MultiheadAttention", base="attention.safetensors", adapter="attention/adapter")
    refuse("PiSSA", "pissa", change={"init_lora_weights": "pissa"})
    refuse("another method", "IA3", change={"peft_type": "IA3"})
    refuse("another rank", "rank 8", change={"r": 4})
    refuse("DoRA without magnitudes", "lora_magnitude_vector", change={"use_dora": True})
    os.mkdir("folder")
    save_file(before, "folder/model.safetensors")
    save_file({k: v for k, v in before.items() if k != "fc.weight"}, "lacks.safetensors")
    refuse("a weight that is not there", "base_model.model.fc.lora_", "fc.weight", base="lacks.safetensors")
    save_file(before | {"fc.weight": torch.zeros(40, 25)}, "shape.safetensors")
    refuse("another shape", "base_model.model.fc.lora_", "[40, 25]", base="shape.safetensors")
    save_file(before | {"fc.weight": torch.zeros(40, 24, dtype=torch.int8)}, "int8.safetensors")
    refuse("a quantized base", "fc.weight", "int8", base="int8.safetensors")
    refuse("no adapter", "adapter_config.json", adapter="folder")
    model = Net()
    model.load_state_dict(before)
    optimizer = torch.optim.AdamW(model.named_parameters())
    model(torch.zeros(2, dtype=torch.long)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "training.pt")
    refuse("an optimizer's state", "--weights-only", base="training.pt")
    merge(migrate, "training.pt", "weights.safetensors", "refused/adapter", "--weights-only", "--to", "safetensors")


def main():
    inspect, migrate = checks.commands(__doc__, 2)
    print(f"peft {peft.__version__}, torch {torch.__version__}, transformers {transformers.__version__}")
    with checks.scratch():
        for name in CASES:
            for kind in DTYPES:
                with section(f"{name}-{kind}"):
                    one(migrate, name, kind)
        with section("sources"):
            sources(inspect, migrate)
        with section("refused"):
            refused(migrate)
    checks.finish()


main()
