#!/usr/bin/env python3
"""ckpt-migrate --to dcp --mesh: files cut as the ranks of a mesh cut them, loaded by FSDP2 x tensor parallel and by HSDP (gloo, 4 ranks).

The peer is a small Llama with torchtitan's names and its plan for tensor parallel (colwise, rowwise, sequence parallel norms), with sizes
that 4 ranks, and some that 2 ranks, do not divide. It trains with dp=2, tp=2 and saves. From that one file of torch is made, and of the
file a target for each mesh, by --cut or by the layout's own ranks. Of each target:

- its boxes are those that the peer itself saves with that mesh: the same offsets and sizes of each tensor, in the same files
- a rank of that mesh reads what it alone has from its own file
- dcp.load and set_state_dict give each rank the weights, moments and steps of the peer's own re-shard, to the bit, and so are the
  losses of the next 4 steps; with the mesh it was written for, and with another one

usage: to_mesh.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]
"""
import datetime
import os
import sys

import checks
from checks import ask, check, section

try:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    import torch.multiprocessing as mp
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module
except ImportError as e:
    checks.skip(f"torch with FSDP2 is not installed ({e})")

INSPECT, MIGRATE = checks.commands(__doc__, 2)
os.environ["CKPT_LAYOUTS"] = os.path.join(os.path.abspath(os.environ.get("srcdir", ".")), "layouts")
STEPS, AFTER, WORLD = 3, 4, 4
VOCAB, DIM, HEADS, HIDDEN, LAYERS, LENGTH = 7, 16, 4, 11, 2, 8
MESHES = {"dp=2,tp=2": (2, 2), "dp=1,tp=4": (1, 4), "dp=4,tp=1": (4, 1), "dp_replicate=2,dp=2": "hsdp"}
CUTS = ("*.wq.weight=tp:0", "*.wk.weight=tp:0,dp:0", "*.wv.weight=tp:0", "*.w1.weight=tp:0", "*.w3.weight=tp:0", "*.wo.weight=tp:1", "*.w2.weight=tp:1",
        "tok_embeddings.weight=tp:0", "lm_head.weight=tp:0")      # of what that leaves, and of all others, dp cuts the rows


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv_linear = torch.nn.ModuleDict({n: torch.nn.Linear(DIM, DIM, bias=False) for n in ("wq", "wk", "wv")})
        self.wo = torch.nn.Linear(DIM, DIM, bias=False)

    def forward(self, x):
        q, k, v = (self.qkv_linear[n](x) for n in ("wq", "wk", "wv"))
        q, k, v = (t.view(t.shape[0], t.shape[1], -1, DIM // HEADS).transpose(1, 2) for t in (q, k, v))
        out = torch.softmax(q @ k.transpose(2, 3), -1) @ v
        return self.wo(out.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))


class FeedForward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.w3 = torch.nn.Linear(DIM, HIDDEN, bias=False), torch.nn.Linear(HIDDEN, DIM, bias=False), torch.nn.Linear(DIM, HIDDEN, bias=False)

    def forward(self, x):
        return self.w2(torch.nn.functional.silu(self.w1(x)) * self.w3(x))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.attention = torch.nn.RMSNorm(DIM), Attention()
        self.ffn_norm, self.feed_forward = torch.nn.RMSNorm(DIM), FeedForward()

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(torch.nn.Module):
    def __init__(self, scaled):
        super().__init__()
        self.tok_embeddings = torch.nn.Embedding(VOCAB, DIM)
        self.layers = torch.nn.ModuleDict({str(i): Block() for i in range(LAYERS)})
        self.norm, self.lm_head = torch.nn.RMSNorm(DIM), torch.nn.Linear(DIM, VOCAB, bias=False)
        if scaled:
            self.scale = torch.nn.Parameter(torch.tensor([0.75, 0.5]))     # two ranks of four have nothing of it

    def forward(self, x):
        x = self.tok_embeddings(x)
        for block in self.layers.values():
            x = block(x)
        x = self.lm_head(self.norm(x))
        if hasattr(self, "scale"):
            x = x * (self.scale.to_local() if isinstance(self.scale, DTensor) else self.scale).sum()
        return x


def parallel(net, tp):
    """torchtitan's parallelize_llama."""
    parallelize_module(net, tp, {"tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": SequenceParallel(),
                                 "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate(), use_local_output=True)})
    if hasattr(net, "scale"):
        net.scale = torch.nn.Parameter(distribute_tensor(net.scale, tp, [Replicate()]))
    for block in net.layers.values():
        parallelize_module(block, tp, {
            "attention_norm": SequenceParallel(), "ffn_norm": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "attention.qkv_linear.wq": ColwiseParallel(), "attention.qkv_linear.wk": ColwiseParallel(), "attention.qkv_linear.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "feed_forward.w1": ColwiseParallel(use_local_output=False), "feed_forward.w3": ColwiseParallel(use_local_output=False), "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1))})


def wrapped(mesh, scaled):
    torch.manual_seed(7)
    net = Llama(scaled)
    if MESHES[mesh] == "hsdp":
        dp = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp"))
    else:
        both = init_device_mesh("cpu", MESHES[mesh], mesh_dim_names=("dp", "tp"))
        dp = both["dp"]
        if MESHES[mesh][1] > 1:
            parallel(net, both["tp"])
    for block in net.layers.values():
        fully_shard(block, mesh=dp)
    fully_shard(net, mesh=dp)
    return net, torch.optim.AdamW(net.named_parameters(), lr=1e-2, betas=(0.9, 0.95))


class Parts(torch.nn.Module):
    """Sizes that a mesh of 4 cuts unevenly, or leaves ranks without. FSDP2 cannot train those, and saves and loads them."""

    def __init__(self):
        super().__init__()
        self.col9, self.col7, self.col2 = (torch.nn.Linear(8, n) for n in (9, 7, 2))
        self.row9, self.row3 = torch.nn.Linear(9, 8), torch.nn.Linear(3, 5)
        self.plain, self.one = torch.nn.Linear(3, 5), torch.nn.Linear(4, 1)


PARTS = ("col*=tp:0", "row*.weight=tp:1")


def parts_of(mesh):
    torch.manual_seed(11)
    net = Parts()
    if mesh is None:
        return net
    if MESHES[mesh] == "hsdp":
        return fully_shard(net, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp")))
    both = init_device_mesh("cpu", MESHES[mesh], mesh_dim_names=("dp", "tp"))
    if MESHES[mesh][1] > 1:
        parallelize_module(net, both["tp"], {"col*": ColwiseParallel(), "row*": RowwiseParallel()})
    return fully_shard(net, mesh=both["dp"])


def step_on(net, opt, step):
    x = torch.arange(2 * LENGTH).mul(5).add(step * 2).remainder(VOCAB).view(2, LENGTH)
    loss = torch.nn.functional.cross_entropy(net(x).flatten(0, 1), x.roll(1, 1).flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def state_of(net, opt):
    model, optimizer = get_state_dict(net, opt)
    return {"model": model, "optimizer": optimizer}


# ---------------------------------------------------------------- what the ranks do

def save(mesh):
    for out, scaled in (("peer", True), ("peer-plain", False)):
        net, opt = wrapped(mesh, scaled)
        for step in range(STEPS):
            step_on(net, opt, step)
        dcp.save(state_of(net, opt), checkpoint_id=out)


class Counting(FileSystemReader):
    """Which file each box is read from."""

    def read_data(self, plan, planner):
        self.read_from = [(i.storage_index.fqn, tuple(i.storage_index.offset), self.storage_data[i.storage_index].relative_path)
                          for i in plan.items if i.storage_index.offset is not None]
        return super().read_data(plan, planner)


def local(state, out, name=""):
    for key, value in state.items():
        if isinstance(value, dict):
            local(value, out, f"{name}{key}.")
        elif isinstance(value, torch.Tensor):
            out[name + str(key)] = (value.to_local() if isinstance(value, DTensor) else value).detach().clone()
    return out


def load(mesh, folder, save_as):
    """(the rank's own tensors, losses, what was read from where)"""
    net, opt = wrapped(mesh, "plain" not in folder)
    state = state_of(net, opt)
    reader = Counting(folder)
    dcp.load(state, storage_reader=reader)
    set_state_dict(net, opt, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    now = state_of(net, opt)
    if save_as:
        dcp.save(now, checkpoint_id=save_as)
    own = local(now, {})
    return own, [step_on(net, opt, step) for step in range(STEPS, STEPS + AFTER)], reader.read_from


def load_parts(mesh, folder, save_as):
    """(the rank's own tensors as they were made, and as they are read)"""
    made = {"model": parts_of(mesh).state_dict()}
    dcp.save(made, checkpoint_id=save_as)
    want = local(made, {})
    for t in made["model"].values():
        (t.to_local() if isinstance(t, DTensor) else t).detach().zero_()
    dcp.load(made, checkpoint_id=folder)
    got = local(made, {})
    for t in made["model"].values():
        (t.to_local() if isinstance(t, DTensor) else t).detach().zero_()
    dcp.load(made["model"], storage_reader=HuggingFaceStorageReader(f"{folder}-hf"))
    return want, got, local(made, {})


def load_all(jobs):
    told = {}
    for name, mesh, folder, save_as in jobs:
        try:
            told[name] = (load_parts if name.startswith("parts") else load)(mesh, folder, save_as)
        except BaseException as e:              # CheckpointException is no Exception
            told[name] = f"{type(e).__name__}: {e}"
    torch.save(told, f"told.{dist.get_rank()}")


def one_rank(rank, port, what, *args):
    with open(os.devnull, "w") as quiet:
        "-v" in sys.argv or (os.dup2(quiet.fileno(), 1), os.dup2(quiet.fileno(), 2))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, timeout=datetime.timedelta(seconds=40))     # one that fails leaves the others waiting
    what(*args)
    dist.barrier()
    dist.destroy_process_group()


def ranks(what, *args):
    mp.start_processes(one_rank, (checks.free_port(), what, *args), nprocs=WORLD, start_method="fork")


# ---------------------------------------------------------------- the checks

def boxes(folder):
    """{(tensor, offsets, sizes): file}, and {value: file}; an empty box has no bytes, and we write none."""
    md = FileSystemReader(folder).read_metadata()
    where = {(k.fqn, tuple(k.offset) if k.offset is not None else None): v.relative_path for k, v in md.storage_data.items()}
    out = {}
    for name, item in md.state_dict_metadata.items():
        for c in getattr(item, "chunks", ()):
            if 0 not in c.sizes:
                out[name, tuple(c.offsets), tuple(c.sizes)] = where[name, tuple(c.offsets)]
        if not hasattr(item, "chunks"):
            out[name] = where[name, None]
    return out


def target(mesh, source, out, *more, to="dcp"):
    done = checks.run(MIGRATE, "--to", to, "--mesh", mesh, "--verify", *more, source, out)
    if not check(f"{out}: written and read back", done.returncode == 0, done.stderr):
        return False
    status, doc = ask(INSPECT, "verify", "--json", out)
    check(f"{out}: verified", status == 0 and doc["ok"], doc)
    return True


def compare_boxes(mesh, ours, peers):
    ours, peers = boxes(ours), boxes(peers)
    check(f"{mesh}: the same boxes as the peer's own save", ours.keys() == peers.keys(), sorted(map(str, ours.keys() ^ peers.keys()))[:6])
    other = {k: (v, ours.get(k)) for k, v in peers.items() if ours.get(k) != v}
    check(f"{mesh}: each in the same file", not other, f"{len(other)} of {len(peers)}: {list(other.items())[:4]}")


def own_files(mesh, told):
    """What one rank alone asks for lies in its file."""
    asked = {}
    for rank, held in enumerate(told):
        for name, offset, file in held[2]:
            asked.setdefault((name, offset), set()).add((rank, file))
    alone = {k: next(iter(v)) for k, v in asked.items() if len(v) == 1}
    check(f"{mesh}: each rank reads what it alone has from its own file", bool(alone) == ("replicate" not in mesh) and all(file == f"__{rank}_0.distcp" for rank, file in alone.values()),
          [(k, v) for k, v in alone.items() if v[1] != f"__{v[0]}_0.distcp"][:4])
    check(f"{mesh}: and what several have from the file of one of them", all(file in {f"__{r}_0.distcp" for r, _ in v} for v in asked.values() for _, file in v))


def same(what, told, peers):
    for rank, (ours, peer) in enumerate(zip(told, peers)):
        if not check(f"{what}, rank {rank}: loaded", not isinstance(ours, str) and not isinstance(peer, str), f"{ours if isinstance(ours, str) else ''} {peer if isinstance(peer, str) else ''}"):
            return
        other = [n for n in peer[0] if n not in ours[0] or not torch.equal(ours[0][n], peer[0][n])]
        check(f"{what}, rank {rank}: weights, moments and steps to the bit", len(peer[0]) > 80 and ours[0].keys() == peer[0].keys() and not other, other[:4])
        check(f"{what}, rank {rank}: {AFTER} losses to the bit", ours[1] == peer[1], f"{ours[1]}, and {peer[1]}")


def a_rank_without():
    """Ranks 1 and 3 have nothing, and HuggingFaceStorageReader reads what is there."""
    torch.save({"w": torch.arange(6.0).view(2, 3)}, "two.pt")
    if target("tp=2,dp=2", "two.pt", "two", "--cut", "w=tp:0", to="dcp-hf"):
        state = {"w": torch.zeros(2, 3)}
        dcp.load(state, storage_reader=HuggingFaceStorageReader("two"), no_dist=True)
        check("a rank that has nothing: the others' rows are read", torch.equal(state["w"], torch.arange(6.0).view(2, 3)), (state, sorted(os.listdir("two"))))


def all_of_it():
    ranks(save, "dp=2,tp=2")
    for out, args in (("whole.pt", ("--to", "torch", "peer")), ("whole.ckpt", ("--to", "ckpt", "peer")),
                      ("hf.pt", ("--to", "torch", "--layout", "llama", "--layout-side", "torchtitan", "--var", f"heads={HEADS}", "peer-plain"))):
        done = checks.run(MIGRATE, *args, out)
        check(f"{out}: made of what the peer saved", done.returncode == 0, done.stderr)
    torch.save({"model": parts_of(None).state_dict()}, "parts.pt")
    jobs = []
    for i, mesh in enumerate(MESHES):
        cuts = [a for c in CUTS for a in ("--cut", c)] if "tp=" in mesh else []
        if target(mesh, ("whole.pt", "peer", "whole.ckpt", "peer")[i], f"ours-{i}", *cuts):
            jobs.append((f"ours {mesh}", mesh, f"ours-{i}", None))
            other = list(MESHES)[(i + 2) % 4]
            jobs.append((f"ours {mesh} as {other}", other, f"ours-{i}", None))
        jobs.append((f"peer {mesh}", mesh, "peer", f"peer-{i}"))
        cuts = [a for c in PARTS for a in ("--cut", c)] if "tp=" in mesh else []
        if target(mesh, "parts.pt", f"parts-{i}", *cuts) and target(mesh, "parts.pt", f"parts-{i}-hf", *cuts, to="dcp-hf"):
            jobs.append((f"parts {mesh}", mesh, f"parts-{i}", f"peers-parts-{i}"))
    for i, mesh in enumerate(list(MESHES)[:2]):
        if target(mesh, "hf.pt", f"ours-plain-{i}", "--layout", "llama", "--var", f"heads={HEADS}"):
            jobs.append((f"ours by the layout {mesh}", mesh, f"ours-plain-{i}", None))
        jobs.append((f"peer plain {mesh}", mesh, "peer-plain", f"peer-plain-{i}"))
    ranks(load_all, jobs)
    told = [torch.load(f"told.{r}") for r in range(WORLD)]
    of = {name: [t[name] for t in told] for name, *_ in jobs}
    for i, mesh in enumerate(MESHES):
        with section(mesh):
            same(mesh, of[f"ours {mesh}"], of[f"peer {mesh}"])
            compare_boxes(mesh, f"ours-{i}", f"peer-{i}")
            compare_boxes(f"parts, {mesh}", f"parts-{i}", f"peers-parts-{i}")
            for rank, (want, *both) in enumerate(of[f"parts {mesh}"]):
                for what, got in zip(("dcp", "dcp-hf"), both):
                    check(f"parts, {mesh}, rank {rank}, {what}: to the bit", want.keys() == got.keys() and len(got) == 14 and all(torch.equal(t, got[n]) for n, t in want.items()))
            own_files(mesh, of[f"ours {mesh}"])
            other = list(MESHES)[(i + 2) % 4]
            same(f"written for {mesh}, loaded with {other}", of[f"ours {mesh} as {other}"], of[f"peer {other}"])


    with section("a rank that has nothing"):
        a_rank_without()
    for i, mesh in enumerate(list(MESHES)[:2]):
        with section(f"the layout's ranks, {mesh}"):
            same(f"from transformers' names, {mesh}", of[f"ours by the layout {mesh}"], of[f"peer plain {mesh}"])
            compare_boxes(f"from transformers' names, {mesh}", f"ours-plain-{i}", f"peer-plain-{i}")


if __name__ == "__main__":
    with checks.scratch():
        all_of_it()
    checks.finish()
