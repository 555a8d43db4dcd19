#!/usr/bin/env python3
"""Files of ranks of a home-made trainer, put together by a layout: a model with linear layers that are cut over tensor parallel ranks by
hand trains in four processes (gloo), with data parallel ranks or in a pipeline of two stages, and each rank saves its own part of the model
and of Adam with torch.save. ckpt-migrate --layout makes one file of torch and a distributed checkpoint of them; a model of one process
loads each, and its next losses are those of the parallel run that goes on.

All is float64: what a sum over ranks adds up in another order than one process changes the losses by about 1e-15.

usage: rank_files.py CKPT-INSPECT CKPT-MIGRATE   [-v]
"""
import argparse
import json
import os

import checks
from checks import check, section

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

INSPECT, MIGRATE = checks.commands(__doc__, 2)
VOCAB, WIDTH, HIDDEN, LAYERS, TIME, BATCH = 33, 12, 20, 4, 6, 8


def migrate(*args, status=0):
    return checks.ends(" ".join(args), status, MIGRATE, "--force", *args)


def batches(seed, n):
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(0, VOCAB, (BATCH, TIME + 1), generator=g) for _ in range(n)]


# ---- one process

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.final = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.final(x))


def adam(params):
    return torch.optim.Adam(params, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01)


def loss_of(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).reshape(-1, VOCAB), ids[:, 1:].reshape(-1))


def go_on(model, opt, seed, n):
    losses = []
    for ids in batches(seed, n):
        opt.zero_grad()
        loss = loss_of(model, ids)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


# ---- tensor parallel by hand

class SumForward(torch.autograd.Function):
    """The parts of all ranks are added; each gets the gradient of the sum."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class SumBackward(torch.autograd.Function):
    """What all ranks take in; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad, None


class Place:
    """Where a rank stands: ranks are row-major over the axes."""

    def __init__(self, rank, axes):
        self.axes, self.at, self.groups = axes, {}, {}
        left, sizes = rank, list(axes.items())
        for name, size in reversed(sizes):
            self.at[name], left = left % size, left // size
        world, places = 1, []
        for _, size in sizes:
            world *= size
        for r in range(world):
            at, left = {}, r
            for name, size in reversed(sizes):
                at[name], left = left % size, left // size
            places.append(at)
        for name, size in sizes:                        # all ranks make all groups, in one order
            for r in range(world):
                if places[r][name] != 0:
                    continue
                members = [k for k in range(world) if all(places[k][a] == places[r][a] for a in axes if a != name)]
                group = dist.new_group(members)
                if rank in members:
                    self.groups[name] = (group, members)


def cut(n, parts, i):
    """Elements of part i as torch.chunk cuts n."""
    size = -(-n // parts)
    return slice(min(i * size, n), min((i + 1) * size, n))


class TPBlock(nn.Module):
    """The hidden layer is cut: up by rows, down by columns."""

    def __init__(self, whole, place):
        super().__init__()
        tp, (group, _) = place.at["tp"], place.groups["tp"]
        own = cut(HIDDEN, place.axes["tp"], tp)
        self.group, self.first = group, tp == 0
        self.norm = nn.LayerNorm(WIDTH)
        self.norm.load_state_dict(whole.norm.state_dict())
        self.up = nn.Linear(WIDTH, own.stop - own.start)
        self.down = nn.Linear(own.stop - own.start, WIDTH)
        with torch.no_grad():
            self.up.weight.copy_(whole.up.weight[own])
            self.up.bias.copy_(whole.up.bias[own])
            self.down.weight.copy_(whole.down.weight[:, own])
            self.down.bias.copy_(whole.down.bias)

    def forward(self, x):
        h = SumBackward.apply(self.norm(x), self.group)
        return x + SumForward.apply(F.gelu(self.up(h)) @ self.down.weight.T, self.group) + self.down.bias


class Vocabulary(nn.Module):
    """An embedding whose rows are cut."""

    def __init__(self, whole, place):
        super().__init__()
        self.own, self.group = cut(VOCAB, place.axes["tp"], place.at["tp"]), place.groups["tp"][0]
        self.weight = nn.Parameter(whole.weight.detach()[self.own].clone())

    def forward(self, ids):
        inside = (ids >= self.own.start) & (ids < self.own.stop)
        rows = F.embedding((ids - self.own.start).clamp(0, self.own.stop - self.own.start - 1), self.weight)
        return SumForward.apply(rows * inside[..., None], self.group)


class Logits(nn.Module):
    def __init__(self, whole, place):
        super().__init__()
        self.own, (self.group, self.members) = cut(VOCAB, place.axes["tp"], place.at["tp"]), place.groups["tp"]
        self.weight = nn.Parameter(whole.weight.detach()[self.own].clone())

    def forward(self, x):
        x = SumBackward.apply(x, self.group)
        out = torch.zeros(*x.shape[:-1], VOCAB, dtype=x.dtype)
        mine = torch.cat([out[..., :self.own.start], x @ self.weight.T, out[..., self.own.stop:]], -1)
        return SumForward.apply(mine, self.group)


class Parallel(nn.Module):
    """The layers of one stage; a stage counts its own from 0."""

    def __init__(self, whole, place):
        super().__init__()
        pp, stage = place.axes.get("pp", 1), place.at.get("pp", 0)
        own = whole.layers[stage * LAYERS // pp:(stage + 1) * LAYERS // pp]
        self.first, self.last = stage == 0, stage == pp - 1
        if self.first:
            self.embed = Vocabulary(whole.embed, place)
        self.layers = nn.ModuleList(TPBlock(b, place) for b in own)
        if self.last:
            self.final = nn.LayerNorm(WIDTH)
            self.final.load_state_dict(whole.final.state_dict())
            self.head = Logits(whole.head, place)

    def forward(self, x):
        x = self.embed(x) if self.first else x
        for layer in self.layers:
            x = layer(x)
        return self.head(self.final(x)) if self.last else x


def train_step(model, opt, place, ids):
    """One step of all ranks; the loss of all."""
    opt.zero_grad()
    dp = place.axes.get("dp", 1)
    ids = ids[place.at.get("dp", 0)::dp]
    peer = place.groups["pp"][1] if "pp" in place.groups else None
    if peer is None or model.first:
        x = model(ids[:, :-1])
    else:
        got = torch.zeros(len(ids), TIME, WIDTH)
        dist.recv(got, peer[0])
        got.requires_grad_()
        x = model(got)
    loss = torch.zeros(())
    if model.last:
        loss = F.cross_entropy(x.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
        loss.backward()
        if peer is not None:
            dist.send(got.grad, peer[0])
    else:
        dist.send(x.detach(), peer[1])
        grad = torch.zeros_like(x)
        dist.recv(grad, peer[1])
        x.backward(grad)
    if dp > 1:
        for p in model.parameters():
            dist.all_reduce(p.grad, group=place.groups["dp"][0])
            p.grad /= dp
    opt.step()
    loss = loss.detach().clone()
    if dp > 1:
        dist.all_reduce(loss, group=place.groups["dp"][0])
        loss /= dp
    return loss.item()


class Flat:
    """Adam over one flat buffer of all parameters of a rank, of which each data parallel rank has a part and its moments (ZeRO 1). Parameters
    begin at multiples of 8 elements, and the part of a rank is a multiple of 4."""

    def __init__(self, model, place):
        self.params = list(model.parameters())
        self.place, self.dp = place, place.axes["dp"]
        self.at, n = [], 0
        for p in self.params:
            self.at.append(n)
            n += -(-p.numel() // 8) * 8
        self.size = -(-n // (4 * self.dp)) * 4 * self.dp
        self.own = slice(self.size // self.dp * place.at["dp"], self.size // self.dp * (place.at["dp"] + 1))
        self.part = nn.Parameter(self.flat(self.params)[self.own].clone())
        self.opt = adam([self.part])

    def flat(self, tensors):
        out = torch.full((self.size,), 42.0)            # what pads is poison
        for t, at in zip(tensors, self.at):
            out[at:at + t.numel()] = t.detach().reshape(-1)
        return out

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def step(self):
        self.part.grad = self.flat([p.grad for p in self.params])[self.own].clone()
        self.opt.step()
        parts = [torch.zeros(self.size // self.dp) for _ in range(self.dp)]
        dist.all_gather(parts, self.part.detach(), group=self.place.groups["dp"][0])
        whole = torch.cat(parts)
        with torch.no_grad():
            for p, at in zip(self.params, self.at):
                p.copy_(whole[at:at + p.numel()].view_as(p))

    def state_dict(self):
        return {**self.opt.state_dict(), "shards": self.dp}


def run_rank(rank, folder, axes, name, world, flat):
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    place = Place(rank, axes)
    torch.manual_seed(7)
    model = Parallel(Whole(), place)
    opt = Flat(model, place) if flat else adam(model.parameters())
    losses = [train_step(model, opt, place, ids) for ids in batches(1, 4)]
    torch.manual_seed(rank)
    torch.save({"model": model.state_dict(), "optim": opt.state_dict(), "step": 4, "rng": torch.get_rng_state(),
                "hyper": {"width": WIDTH}}, os.path.join(folder, name.format(**place.at)))
    losses += [train_step(model, opt, place, ids) for ids in batches(2, 4)]
    if model.last and place.at["tp"] == 0 and place.at.get("dp", 0) == 0:
        with open(os.path.join(folder, "losses.json"), "w") as f:
            json.dump(losses, f)
    dist.destroy_process_group()


def train(folder, axes, name, flat=False):
    world = 1
    for size in axes.values():
        world *= size
    os.makedirs(folder)
    mp.start_processes(run_rank, args=(folder, axes, name, world, flat), nprocs=world, start_method="fork")
    with open(os.path.join(folder, "losses.json")) as f:
        losses = json.load(f)
    torch.manual_seed(7)                                # the same from the start, in one process
    model = Whole()
    alone = go_on(model, adam(model.parameters()), 1, 4)
    check(f"{name}: the parallel run computes what one process does", len(alone) == 4 and near(losses[:4], alone), f"{losses} {alone}")
    return losses[4:]


def near(a, b):
    return len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) < 1e-12


def same(model, opt, want, what):
    got = go_on(model, opt, 2, 4)
    check(f"{what}: the losses of the run that goes on", near(got, want), f"{got}, and {want}")


def resumes(folder, layout, want, out, *options):
    """From one file of torch, and from a distributed checkpoint."""
    migrate("--layout", layout, *options, "--verify", "--to", "torch", folder, out + ".pt")
    saved = torch.load(out + ".pt", weights_only=False)
    model = Whole()
    opt = adam(model.parameters())
    model.load_state_dict(saved["model"])
    opt.load_state_dict(saved["optim"] if "optim" in saved else saved["optimizer"])
    check(f"{out}: the step", saved["step"] == 4, saved["step"])
    same(model, opt, want, f"{out}, one file")

    migrate("--layout", layout, *options, "--verify", "--to", "dcp", folder, out)
    model = Whole()
    opt = adam(model.parameters())
    no_dist = StateDictOptions(full_state_dict=False)
    go_on(model, opt, 9, 1)                             # the optimizer has its states, which loading fills
    m, o = get_state_dict(model, opt, options=no_dist)
    state = {"model": m, "optimizer": o}
    dcp.load(state, checkpoint_id=out, no_dist=True, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    set_state_dict(model, opt, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=no_dist)
    same(model, opt, want, f"{out}, a distributed checkpoint")


SHARD = """
    shard:
    - {name: [embed.weight, head.weight, layers.<i>.up.weight, layers.<i>.up.bias], cuts: [{axis: tp, dim: 0}]}
    - {name: layers.<i>.down.weight, cuts: [{axis: tp, dim: 1}]}
    - {name: "<others:rest>", cuts: []}
"""


def own_optimizer(top):
    """Moments in dicts that are no optimizer of torch's, in a pipeline: tensors have the names of their files, and keys get the layers' numbers."""
    folder, out = os.path.join(top, "own"), os.path.join(top, "own.pt")
    os.makedirs(folder)
    g = torch.Generator().manual_seed(5)
    whole = {d: {f"layers.{i}.{n}": torch.randn(4, 4, generator=g) for i in range(4) for n in ("a", "b")} for d in ("params", "m", "v")}
    for pp in range(2):
        for tp in range(2):
            own = {d: {f"layers.{i}.{n}": whole[d][f"layers.{i + 2 * pp}.{n}"][slice(2 * tp, 2 * tp + 2) if n == "a" else slice(None)].clone()
                       for i in range(2) for n in ("a", "b")} for d in whole}
            torch.save({**own, "t": 5, "seed": 2 * pp + tp}, os.path.join(folder, f"{pp}-{tp}.pt"))
    layout = write(os.path.join(top, "own.yaml"), """layout: 1
sides: [mine]
ranks:
  mine:
    mesh: {pp: 2, tp: 2}
    files: <pp>-<tp>.pt
    stages: {axis: pp, local: true, layers: "layers.<i>.<r:rest>"}
    own: [seed]
    shard:
    - {name: "<dict:word>.layers.<i>.a", cuts: [{axis: tp, dim: 0}]}
    - {name: "<dict:word>.layers.<i>.b", cuts: []}
""")
    migrate("--layout", layout, "--to", "torch", folder, out)
    got = torch.load(out, weights_only=True)
    check("an optimizer of its own: values", got["t"] == 5 and [got[f"rank_{r}"]["seed"] for r in range(4)] == [0, 1, 2, 3], got.keys())
    check("an optimizer of its own: its moments", all(list(got[d]) == list(whole[d]) and all(torch.equal(got[d][n], t) for n, t in whole[d].items()) for d in whole))


def megatron(top):
    """A folder as Megatron-LM wrote it before torch_dist, of two tensor parallel ranks and two stages: what a layout makes of it is what the reader
    of that format makes of it."""
    g = torch.Generator().manual_seed(3)
    folder = os.path.join(top, "megatron")
    os.makedirs(folder)
    write(os.path.join(folder, "latest_checkpointed_iteration.txt"), "5")
    for tp in range(2):
        for pp in range(2):
            shapes = {"decoder.layers.0.self_attention.linear_qkv.weight": (12, 12), "decoder.layers.0.self_attention.linear_qkv.bias": (12,),
                      "decoder.layers.0.self_attention.linear_proj.weight": (12, 6), "decoder.layers.0.mlp.linear_fc1.weight": (14, 12),
                      "decoder.layers.0.mlp.linear_fc1.bias": (14,), "decoder.layers.0.mlp.linear_fc2.weight": (12, 7)}
            whole = {"decoder.layers.0.self_attention.linear_proj.bias": (12,), "decoder.layers.0.mlp.linear_fc2.bias": (12,)}
            shapes.update({"output_layer.weight": (15, 12)} if pp else {"embedding.word_embeddings.weight": (15, 12)})
            whole.update({"decoder.final_layernorm.weight": (12,)} if pp else {"embedding.position_embeddings.weight": (8, 12)})
            model = {n: torch.randn(s, generator=g) for n, s in shapes.items()}
            same = torch.Generator().manual_seed(100 + pp)
            model.update({n: torch.randn(s, generator=same) for n, s in whole.items()})
            name = f"{folder}/iter_0000005/mp_rank_{tp:02}_{pp:03}/model_optim_rng.pt"
            os.makedirs(os.path.dirname(name))
            args = argparse.Namespace(tensor_model_parallel_size=2, pipeline_model_parallel_size=2, num_layers=2, hidden_size=12, iteration=5,
                                      swiglu=True, ffn_hidden_size=14, use_distributed_optimizer=False, no_save_optim=True)
            torch.save({"args": args, "checkpoint_version": 3.0, "iteration": 5, "model": model}, name)
    layout = write(os.path.join(top, "megatron.yaml"), """layout: 1
sides: [megatron]
vars: {ffn: given}
ranks:
  megatron:
    mesh: {pp: files, tp: files}
    files: mp_rank_<tp:02>_<pp:03>/model_optim_rng.pt
    stages: {axis: pp, local: true, layers: "decoder.layers.<i>.<r:rest>"}
    shard:
    - name: [embedding.word_embeddings.weight, output_layer.weight, decoder.layers.<i>.self_attention.linear_qkv.<w:word>]
      cuts: [{axis: tp, dim: 0, as: even}]
    - name: decoder.layers.<i>.mlp.linear_fc1.<w:word>
      cuts: [{axis: tp, dim: 0, as: even, segments: {sizes: [ffn, ffn]}}]
    - name: [decoder.layers.<i>.self_attention.linear_proj.weight, decoder.layers.<i>.mlp.linear_fc2.weight]
      cuts: [{axis: tp, dim: 1, as: even}]
    - {name: "<others:rest>", cuts: []}
""")
    a, b = os.path.join(top, "a.safetensors"), os.path.join(top, "b.safetensors")
    migrate("--to", "safetensors", "--weights-only", folder, a)
    migrate("--layout", layout, "--var", "ffn=14", "--to", "safetensors", "--weights-only", os.path.join(folder, "iter_0000005"), b)
    a, b = load_file(a), load_file(b)
    check("the names of Megatron's tensors", list(sorted(a)) == list(sorted(b)) and len(a) == 20, f"{sorted(a)} {sorted(b)}")
    check("Megatron's tensors, by a layout and by the reader of that format", all(torch.equal(a[n], b[n]) for n in a))


def write(path, text):
    with open(path, "w") as f:
        f.write(text)
    return path


def trained_and_resumed(top, name, axes, files, ranks, flat=False):
    """(the folder of the files, the layout's text)"""
    folder, out = os.path.join(top, f"{name}-4"), os.path.join(top, name)
    want = train(folder, axes, files, flat)
    text = f"layout: 1\nsides: [mine]\nranks:\n  mine:{ranks}{SHARD}"
    resumes(folder, write(out + ".yaml", text), want, out)
    return folder, text


def refused(top, folder, text):
    return migrate("--layout", write(os.path.join(top, "wrong.yaml"), text), "--to", "torch", folder, os.path.join(top, "no.pt"), status=2)


def data_parallel(top):
    trained_and_resumed(top, "data", {"dp": 2, "tp": 2}, "rank_{dp}_{tp}.pt", """
    mesh: {dp: files, tp: files}
    files: rank_<dp>_<tp>.pt""")


def pipeline(top):
    folder, text = trained_and_resumed(top, "pipeline", {"pp": 2, "tp": 2}, "s{pp}_mp_{tp:02}.pt", """
    mesh: {pp: 2, tp: 2}
    files: s<pp>_mp_<tp:02>.pt
    stages: {axis: pp, local: true, layers: "layers.<i>.<r:rest>"}""")
    said = refused(top, folder, text.replace(', local: true, layers: "layers.<i>.<r:rest>"', ""))
    check("layers that are numbered from 0 in each stage", "'local: true'" in said and "layers.0.norm.weight" in said and "shared" in said, said)


def flat_buffers(top):
    folder, text = trained_and_resumed(top, "flat", {"dp": 2, "tp": 2}, "{dp}_{tp}.pt", """
    mesh: {dp: 2, tp: 2}
    files: <dp>_<tp>.pt
    flat:
    - axis: dp
      in: optim
      buffers: {exp_avg: optim.state.0.exp_avg, exp_avg_sq: optim.state.0.exp_avg_sq}
      step: optim.state.0.step
      group: optim.param_groups.0
      order: model
      align: 8
      multiple: 4""", flat=True)
    said = refused(top, folder, text.replace("align: 8", "align: 1"))
    check("another alignment", "the order or the padding is another one" in said, said)


torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
with checks.scratch() as top:
    for one in (data_parallel, pipeline, flat_buffers, megatron, own_optimizer):
        with section(one.__name__):
            one(top)
checks.finish()
