#!/usr/bin/env python3
"""DTensors in the files of ranks: what is put together, held against the tensors that torch cut.

usage: fsdp.py CKPT-INSPECT [-v]

Random meshes of one to three dimensions, shapes (empty and 0-d too) and placements: Replicate, Shard, _StridedShard. Each rank's
own tensor is cut by torch's own placements, or in the order in which FSDP2 and tensor parallel cut, and saved in a DTensor of that
rank (torch's fake process group). Each failure is a FAIL line; the last line counts."""
import math
import pathlib
import random
import shutil

from checks import ask, check, commands, crc, finish, scratch, section, skip

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
    from torch.distributed.tensor.placement_types import _StridedShard
    from torch.testing._internal.distributed.fake_pg import FakeStore
except ImportError as e:
    skip(f"torch with DTensors is not installed ({e})")

ROUNDS, TENSORS = 60, 25


def placements(sizes, ndim, rng):
    """By the strides, or in the order of the work: the mesh's last dimension cuts first."""
    if ndim and len(sizes) > 1 and rng.random() < 0.3:
        dim, split, out = rng.randrange(ndim), 1, []
        for size in reversed(sizes):
            if rng.random() < 0.2:
                out.insert(0, Replicate())
                continue
            out.insert(0, _StridedShard(dim, split_factor=split) if split > 1 else Shard(dim))
            split *= size
        return out, True
    kinds = [rng.random() if ndim else 0 for _ in sizes]
    return [Replicate() if k < 0.25 else Shard(rng.randrange(ndim)) if k < 0.7 else
            _StridedShard(rng.randrange(ndim), split_factor=rng.choice([1, 2, 2, 3, 4])) for k in kinds], False


def part(whole, cuts, work, sizes, coordinate):
    order = list(range(len(sizes)))
    for d in reversed(order) if work else order:
        if not isinstance(cuts[d], Replicate):
            cut = Shard(cuts[d].dim) if work else cuts[d]
            whole = cut._split_tensor(whole, sizes[d], with_padding=False)[0][coordinate[d]]
    return whole.t().contiguous().clone().t() if whole.ndim == 2 and len(sizes) > 1 else whole.clone()


def one(inspect, rng):
    sizes = [rng.choice([1, 2, 2, 3, 4]) for _ in range(rng.choice([1, 2, 2, 3]))]
    world, ranks, tensors = math.prod(sizes), list(range(math.prod(sizes))), {}
    rng.shuffle(ranks)
    for k in range(TENSORS):
        shape = [rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16]) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))]
        whole = torch.arange(k * 10000, k * 10000 + math.prod(shape), dtype=torch.float32).reshape(shape)
        tensors[f"t{k}"] = (whole, *placements(sizes, len(shape), rng))
    folder = pathlib.Path("ranks")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for rank in range(world):
        dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
        mesh = DeviceMesh("cpu", torch.tensor(ranks).reshape(sizes))
        torch.save({name: DTensor(part(whole, cuts, work, sizes, mesh.get_coordinate()),
                                  DTensorSpec(mesh, tuple(cuts), tensor_meta=TensorMeta(whole.shape, whole.stride(), whole.dtype)),
                                  requires_grad=False) for name, (whole, cuts, work) in tensors.items()},
                   folder / f"model_world_size_{world}_rank_{rank}.pt")
        dist.destroy_process_group()
    _, listed = ask(inspect, "list", "--json", "--checksum", folder)
    got = {t["name"]: t for t in listed.get("tensors", [])}
    for name, (whole, cuts, work) in tensors.items():
        t = got.get(f"model.{name}", {})
        check(f"{sizes} {list(whole.shape)} {cuts}{' in the order of the work' if work else ''}",
              t.get("shape") == list(whole.shape) and t.get("crc32") == crc(whole), t or listed)
    check(f"verify {sizes}", ask(inspect, "verify", "--json", folder)[0] == 0)


if __name__ == "__main__":
    inspect, = commands(__doc__, 1)
    with scratch():
        for number in range(ROUNDS):
            with section(f"round {number}"):
                one(inspect, random.Random(number))
    finish()
