#!/usr/bin/env python3
"""Distributed checkpoints that torch writes now, by 1 to 4 ranks over gloo, read by the commands: names, dtypes, shapes, bytes and
values are those that torch has, and one flipped byte is found. ckpt_restore gives the same bytes to a program in C
(build/tests/interop/restore_crc, beside the commands), and torch and safetensors load the same from what ckpt-migrate makes.

usage: dcp.py PATH/TO/ckpt-inspect PATH/TO/CKPT-MIGRATE   [-v]
"""
import json
import os
import random
import shutil
import subprocess
import zlib

import checks
from checks import ask, check, section

try:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    import torch.multiprocessing as mp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, get_state_dict
    from torch.distributed.fsdp import fully_shard
    from safetensors.torch import load_file
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
except ImportError as e:
    checks.skip(f"torch with FSDP2, or safetensors, is not installed ({e})")

INSPECT, MIGRATE = checks.commands(__doc__, 2)
RESTORE = os.path.join(os.path.dirname(INSPECT), "../../tests/interop/restore_crc")
torch.set_num_threads(1)


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def crc(tensor):
    t = tensor.detach().contiguous()
    data = t.view(torch.uint8).numpy().tobytes() if t.ndim and t.numel() else (t.reshape(1).view(torch.uint8).numpy().tobytes() if t.numel() else b"")
    return f"{zlib.crc32(data):08x}"


def flat(state, path=()):
    """(dotted name, value) of everything in nested dicts and lists."""
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else None
    if items is None or len(state) == 0:
        yield ".".join(map(str, path)), state
        return
    for key, value in items:
        yield from flat(value, path + (key,))


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = torch.nn.Embedding(width + 3, width)
        self.up, self.down = torch.nn.Linear(width, 2 * width + 1), torch.nn.Linear(2 * width + 1, width, bias=False)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.arange(3))

    def forward(self, x):
        return self.down(torch.tanh(self.up(self.embed(x)))) * self.scale


def trained(width, shard):
    torch.manual_seed(7)
    net = Net(width)
    if shard:
        fully_shard(net)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for step in range(2):
        net(torch.arange(5) + step).square().sum().backward()
        opt.step()
        opt.zero_grad()
    model, optimizer = get_state_dict(net, opt)
    return {"model": model, "optim": optimizer, "progress": {"step": 2, "losses": [0.5, 0.25], "name": "run\n1"}}


def tensors_in_pieces(world):
    """Every way of cutting a DTensor, uneven and empty shards, other dtypes, a tensor that is not in C order."""
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(3)
    out = {}
    for name, shape, placement in (("rows", (7, 5), Shard(0)), ("columns", (5, 7), Shard(1)), ("deep", (3, 4, 5), Shard(2)),
                                   ("few", (1, 6), Shard(0)), ("all", (4, 4), Replicate()), ("none", (0, 4), Shard(0))):
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            out[f"{name}.{str(dtype)[6:]}"] = distribute_tensor((torch.randn(shape) * 100).to(dtype), mesh, [placement])
    if world == 4:
        grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        out["grid"] = distribute_tensor(torch.randn(9, 7), grid, [Shard(0), Shard(1)])
        out["both"] = distribute_tensor(torch.randn(11, 3), grid, [Shard(0), Shard(0)])
    out["turned"] = torch.randn(6, 4).t()
    out["channels"] = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    out["bools"] = torch.tensor([True, False, True])
    out["scalar"] = torch.tensor(2.5)
    out["large"] = torch.randn(300, 200).t()
    out["list"] = [{"a": torch.ones(2)}, {"a": torch.zeros(3), "b": "text"}]
    return {"w": out}


def zstd_writer(path):
    from torch.distributed.checkpoint._extension import ZStandard
    return dcp.FileSystemWriter(path, _extensions=[ZStandard()])


def one_rank(rank, world, kind, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    state = trained(9, True) if kind in ("fsdp2", "nocoll", "async", "zstd") else trained(8, False) if kind == "plain" else tensors_in_pieces(world)
    if kind == "nocoll":
        dcp.save(state, checkpoint_id=kind, use_collectives=False)
    elif kind == "async":
        dcp.async_save(state, checkpoint_id=kind).result()
    elif kind == "zstd":
        dcp.save(state, storage_writer=zstd_writer(kind))
    elif kind == "files":
        dcp.save(state, storage_writer=dcp.FileSystemWriter(kind, single_file_per_rank=False))
    else:
        dcp.save(state, checkpoint_id=f"{kind}{world}")
    truth = {name: whole(value) for name, value in flat(state)}
    if rank == 0:
        torch.save(truth, f"{kind}{world}.truth" if kind in ("fsdp2", "tp", "plain") else f"{kind}.truth")
    dist.barrier()
    dist.destroy_process_group()


def write(kind, world, port):
    mp.start_processes(one_rank, (world, kind, port), nprocs=world, start_method="fork")


def compare(where):
    truth = torch.load(f"{where}.truth", weights_only=False)
    status, doc = ask(INSPECT, "list", "--json", "--checksum", where)
    if not check(f"{where}: list", status == 0, doc):
        return
    got = {t["name"]: t for t in doc["tensors"]}
    want = {name: t for name, t in truth.items() if isinstance(t, torch.Tensor)}
    check(f"{where}: as many tensors", got.keys() == want.keys(), f"only here {sorted(got.keys() - want.keys())[:5]}, only there {sorted(want.keys() - got.keys())[:5]}")
    for name in want.keys() & got.keys():
        t, g = want[name], got[name]
        check(f"{where}: {name}", (g["dtype"], g["shape"], g["crc32"]) == (str(t.dtype)[6:], list(t.shape), crc(t)), f"{g} for {t.dtype} {list(t.shape)} {crc(t)}")
    status, doc = ask(INSPECT, "tree", "--json", where)
    for name, value in truth.items():
        if isinstance(value, (int, float, str, bool)):
            check(f"{where}: value {name}", doc.get("scalars", {}).get(name) == value, f"{doc.get('scalars', {}).get(name)!r} for {value!r}")
    for command in (("verify", "--json"), ("stats", "--json"), ("show", "--json"), ("doctor", "--json", "--values")):
        status, doc = ask(INSPECT, command[0], *command[1:], where)
        check(f"{where}: {command[0]}", status in ((0, 1) if command[0] == "doctor" else (0,)), doc)
    status, doc = ask(INSPECT, "diff", "--json", where, where)
    check(f"{where}: differs from itself in nothing", status == 0, doc)
    name = max(want, key=lambda n: want[n].numel())
    done = checks.run(INSPECT, "extract", where, name, "--raw", "-o", "raw")
    check(f"{where}: extract {name}", done.returncode == 0 and f"{zlib.crc32(open('raw', 'rb').read()):08x}" == crc(want[name]), done.stderr)
    os.path.exists("raw") and os.remove("raw")


def tensors_of(where):
    return {name: t for name, t in torch.load(f"{where}.truth", weights_only=False).items() if isinstance(t, torch.Tensor)}


def as_bound(name):
    """What a state calls a tensor of a training; of others each is below w."""
    return name[6:] if name.startswith("model.") else name.replace("optim.state.", "optimizer.", 1) if name.startswith("optim.") else name[2:]


def restored(where):
    """Every tensor into a buffer of a program in C, by the name that a state has for it."""
    want = {name: (as_bound(name), crc(t)) for name, t in tensors_of(where).items()}
    done = checks.run(RESTORE, where, *(["w"] if next(iter(want)).startswith("w.") else []))
    if not check(f"{where}: restored", done.returncode == 0, done.stderr):
        return
    got = {name: (bound, found) for name, bound, found in (line.split("\t") for line in done.stdout.splitlines())}
    check(f"{where}: all {len(want)} restored equal", got == want, [(n, got.get(n), want.get(n)) for n in sorted(got.keys() | want.keys()) if got.get(n) != want.get(n)][:4])


def migrated(where):
    """As one file of torch and of safetensors, loaded by them."""
    for to, out in (("torch", "out.pt"), ("safetensors", "out.safetensors")):
        done = checks.run(MIGRATE, "--to", to, "--lossy", "--force", where, out)
        if not check(f"{where}: migrated to {to}", done.returncode == 0, done.stderr):
            continue
        got = {n: t for n, t in flat(torch.load(out, weights_only=True)) if isinstance(t, torch.Tensor)} if to == "torch" else load_file(out)
        want = {as_bound(n) if to == "safetensors" and not n.startswith("w.") else n: t for n, t in tensors_of(where).items()}
        wrong = [n for n, t in want.items() if n not in got or (got[n].dtype, got[n].shape, crc(got[n])) != (t.dtype, t.shape, crc(t))]
        check(f"{where}: {to} loads all {len(want)} equal", not wrong and got.keys() == want.keys(), f"{wrong[:5]} {sorted(got.keys() ^ want.keys())[:5]}")


def as_torch_converts(where):
    """What torch's own converter makes of it, tensor by tensor."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    dcp_to_torch_save(where, "one.pt")
    peer = {name: t for name, t in flat(torch.load("one.pt", weights_only=False)) if isinstance(t, torch.Tensor)}
    got = {t["name"]: t["crc32"] for t in ask(INSPECT, "list", "--json", "--checksum", where)[1]["tensors"]}
    check(f"{where}: as dcp_to_torch_save", got == {name: crc(t) for name, t in peer.items()})


def flips(where, count):
    """One bit of a record's file: verify names it, or what was read is the same all the same (padding, names that nothing reads)."""
    before = {t["name"]: t["crc32"] for t in ask(INSPECT, "list", "--json", "--checksum", where)[1]["tensors"]}
    rng, found, silent = random.Random(5), 0, []
    files = [f for f in sorted(os.listdir(where)) if f.endswith(".distcp")]
    shutil.copytree(where, "flipped")
    for _ in range(count):
        path = os.path.join("flipped", rng.choice(files))
        data = bytearray(open(path, "rb").read())
        at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        data[at] ^= bit
        open(path, "wb").write(data)
        status, doc = ask(INSPECT, "verify", "--json", "flipped")
        if status == 1 or status == 2:
            found += 1
        else:
            listed, doc = ask(INSPECT, "list", "--json", "--checksum", "flipped")
            if listed != 0 or {t["name"]: t["crc32"] for t in doc["tensors"]} != before:
                silent.append((path, at))
        data[at] ^= bit
        open(path, "wb").write(data)
    check(f"{where}: {found} of {count} flipped bits are found, the others change no byte", not silent and found > count // 4, silent)
    # The bytes of one tensor: always, by name.
    status, doc = ask(INSPECT, "list", "--json", "--pieces", where)
    tensor = max(doc["tensors"], key=lambda t: t.get("nbytes", 0))
    piece = tensor["pieces"][0]
    path = os.path.join("flipped", piece["file"])
    data = bytearray(open(path, "rb").read())
    data[piece["file_offset"] + 1] ^= 4
    open(path, "wb").write(data)
    status, doc = ask(INSPECT, "verify", "--json", "flipped")
    check(f"{where}: a changed element is damage, by name", status == 1 and tensor["name"] in json.dumps(doc), doc)
    shutil.rmtree("flipped")


def broken(where):
    for what, code in (("rm broken/__0_0.distcp", "shard-missing"), ("truncate -s 100 broken/__0_0.distcp", "truncated"), ("rm broken/.metadata", None),
                       ("truncate -s -20 broken/.metadata", None)):
        shutil.copytree(where, "broken")
        subprocess.run(what, shell=True, check=True)
        status, doc = ask(INSPECT, "list", "--json", "broken")
        if code:
            said = [f for f in doc.get("findings", []) if f["code"] == code]
            check(f"{what}: the rest is listed, and the file named", status == 1 and doc.get("tensors") and said and "__0_0.distcp" in json.dumps(said), doc)
        else:
            check(f"{what}: refused, by name", status == 2 and "did not finish" in json.dumps(doc.get("error", "")) or "truncate" in what and status == 2, doc)
        shutil.rmtree("broken")


def root_keys():
    """The keys at the root of a state are keys, whatever stands in them: no names of files."""
    state = {"layers.0.weight": torch.arange(6.0).reshape(2, 3), "layers.0.bias": torch.zeros(2), "a/b": torch.ones(3), "m.float32": torch.ones(4),
             "x" * 250: torch.ones(2)}
    for name, saved in (("keys", state), ("lone", {"model": {"layers.0.weight": torch.ones(2)}})):
        dcp.save(saved, checkpoint_id=name, no_dist=True)
        done = checks.run(MIGRATE, "--to", "torch", name, f"{name}.pt")
        got = torch.load(f"{name}.pt") if done.returncode == 0 else {}
        same = got.keys() == saved.keys()
        got, saved = got.get("model", got), saved.get("model", saved)
        check(f"root keys, {name}: as they were", same and {k: crc(t) for k, t in got.items()} == {k: crc(t) for k, t in saved.items()}, list(got))


def at_the_root():
    """torchtitan: the model's tensors at the root, and its optimizer flat below its name."""
    torch.manual_seed(7)
    net = Net(8)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    net(torch.arange(5)).square().sum().backward()
    opt.step()
    optimizer = get_optimizer_state_dict(net, opt, options=StateDictOptions(flatten_optimizer_state_dict=True))
    dcp.save({"train_state": {"step": 1, "ntokens_seen": 5}, "optimizer": optimizer, **net.state_dict()}, checkpoint_id="titan", no_dist=True)
    doc = ask(INSPECT, "show", "--json", "titan")[1]
    check("at the root: whose, and its step", (doc["producer"]["name"] if isinstance(doc["producer"], dict) else doc["producer"], doc["step"]) == ("torchtitan", 1), doc)
    status, doc = ask(INSPECT, "list", "--json", "titan")
    roles = {t["name"]: t["role"] for t in doc["tensors"]}
    params = dict(net.named_parameters())
    check("at the root: parameters and buffers", all(roles[n] == ("param" if n in params else "buffer") for n in net.state_dict()), roles)
    done = checks.run(MIGRATE, "--to", "hf", "--lossy", "titan", "titan-hf")
    got = load_file("titan-hf/model.safetensors") if done.returncode == 0 else {}
    check("at the root: its weights alone", {n: crc(t) for n, t in got.items()} == {n: crc(t) for n, t in net.state_dict().items()}, done.stderr)


def beside(where):
    """meta.pt, which Lightning saves beside the list: its values are there, and damage in it is found."""
    shutil.copytree(where, "lightning")
    torch.save({"epoch": 1, "global_step": 8, "pytorch-lightning_version": "2.6.6", "lr_schedulers": [{"last_epoch": 1}],
                "callbacks": {"EMA": {"mean": torch.arange(4.0)}}}, "lightning/meta.pt")
    status, doc = ask(INSPECT, "tree", "--json", "lightning")
    check("meta.pt: its values", status == 0 and doc.get("scalars", {}).get("meta.pt.global_step") == 8, doc)
    before, after = ({t["name"]: t["crc32"] for t in ask(INSPECT, "list", "--json", "--checksum", p)[1]["tensors"]} for p in (where, "lightning"))
    check("meta.pt: its tensor, and the others as before", after == before | {"meta.pt.callbacks.EMA.mean": crc(torch.arange(4.0))}, after)
    check("meta.pt: verified", ask(INSPECT, "verify", "--json", "lightning")[0] == 0)
    data = bytearray(open("lightning/meta.pt", "rb").read())
    data[data.find(b"global_step")] ^= 1
    open("lightning/meta.pt", "wb").write(data)
    status, doc = ask(INSPECT, "verify", "--json", "lightning")
    check("meta.pt: a flipped bit is found", status == 1 and "meta.pt" in json.dumps(doc), doc)


def main():
    with checks.scratch():
        for kind, world in (("plain", 1), ("fsdp2", 2), ("fsdp2", 3), ("fsdp2", 4), ("tp", 1), ("tp", 3), ("tp", 4), ("nocoll", 2), ("async", 2), ("files", 2), ("zstd", 2)):
            where = f"{kind}{world}" if kind in ("plain", "fsdp2", "tp") else kind
            if kind == "zstd":
                try:
                    import zstandard  # noqa: F401
                except ImportError:
                    print("zstandard is not installed: no compressed checkpoint")
                    continue
            with section(where):
                write(kind, world, checks.free_port())
                compare(where)
                restored(where)
        for where in ("fsdp22", "tp4"):
            with section(where):
                as_torch_converts(where)
        with section("flips"):
            flips("fsdp22", 60)
        with section("broken"):
            broken("fsdp22")
        with section("root keys"):
            root_keys()
            at_the_root()
        with section("beside"):
            beside("fsdp22")
        for where in ("plain1", "fsdp24", "tp4", "nocoll", "zstd"):
            if os.path.isdir(where):
                with section(f"{where} migrated"):
                    migrated(where)
    checks.finish()


if __name__ == "__main__":
    main()
