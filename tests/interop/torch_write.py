#!/usr/bin/env python3
"""Holds the torch writer against torch: every kind of file that torch saves is rewritten, and loaded again.

    torch_write.py CKPT-INSPECT CKPT-MIGRATE [-v]

Each object of a zoo is saved by torch, migrated to torch (as it is, by way of the native format, over other devices and
back), and loaded by torch: values, dtypes, strides, shared storages, ties, cycles, order, attributes and classes must be
those of the original. A file that torch wrote with protocol 2 comes out the same but for its serialization id. The last
line is "N passed, M failed"; status 1 if anything failed, 77 (skipped) where torch is missing.
"""
import collections
import datetime
import decimal
import enum
import functools
import io
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import zipfile

import checks
from checks import ask, check, claimed, commands, finish, run, scratch, section, skip

try:
    import numpy as np
    import torch
    from torch import nn
except ImportError as e:
    skip(e)


class Colour(enum.Enum):
    RED = "red"


class Plain:
    def __init__(self):
        self.t, self.n, self.me = torch.arange(3.0), 7, self


class Sub(torch.Tensor):
    pass


class Given:
    """Gets its state from a function, not from BUILD."""
    def __reduce__(self):
        return Given, (), {"n": 7, "me": self}, None, None, give


def give(x, state):
    x.__dict__.update(state, given=True)


Point = collections.namedtuple("Point", "x y")

# ---------------------------------------------------------------- equal, and shared alike


class Different(Exception):
    pass


class Comparison:
    """Walks two objects at once. What is one object on one side must be one on the other; so must storages."""

    def __init__(self, strides=True):
        self.strides, self.objects, self.storages, self.keep = strides, {}, {}, []

    def one(self, table, a, b, at):
        if table.setdefault(("a", a), b) != b or table.setdefault(("b", b), a) != a:
            raise Different(f"{at}: shared on one side only")

    def tensor(self, a, b, at):
        shapes = [None if t.is_nested else tuple(t.shape) for t in (a, b)]
        if type(a) is not type(b) or a.dtype != b.dtype or shapes[0] != shapes[1] or a.requires_grad != b.requires_grad:
            raise Different(f"{at}: {type(a).__name__} {a.dtype} {shapes[0]} is {type(b).__name__} {b.dtype} {shapes[1]}")
        if a.layout != b.layout or a.is_quantized != b.is_quantized or a.device != b.device:
            raise Different(f"{at}: {a.layout} on {a.device} is {b.layout} on {b.device}")
        if a.is_meta:
            return
        if a.layout == torch.strided and not a.is_nested:
            if self.strides and (a.stride() != b.stride() or a.storage_offset() != b.storage_offset()):
                raise Different(f"{at}: strides {a.stride()} are {b.stride()}")
            if a.untyped_storage().nbytes():
                self.one(self.storages, a.untyped_storage().data_ptr(), b.untyped_storage().data_ptr(), at)
            if self.strides and a.untyped_storage().nbytes() != b.untyped_storage().nbytes():
                raise Different(f"{at}: a storage of {a.untyped_storage().nbytes()} bytes has {b.untyped_storage().nbytes()}")
        if (a.is_conj(), a.is_neg()) != (b.is_conj(), b.is_neg()) and self.strides:
            raise Different(f"{at}: lazy bits differ")
        buffers = []
        for t in (a, b):
            f = io.BytesIO()
            plain = t.detach().resolve_conj().resolve_neg() if t.layout == torch.strided and not t.is_nested and not t.is_quantized else t.detach()
            if plain.layout == torch.strided and not plain.is_nested and not plain.is_quantized:
                f.write(plain.as_subclass(torch.Tensor).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
            elif plain.is_nested:
                f.write(repr([x.tolist() for x in plain.unbind()]).encode())
            elif plain.is_quantized:
                f.write(repr((plain.qscheme(), plain.int_repr().tolist(), plain.dequantize().tolist())).encode())
            else:
                f.write(repr((plain.layout, plain.to_dense().tolist(), plain.is_coalesced() if plain.layout == torch.sparse_coo else 0)).encode())
            buffers.append(f.getvalue())
        if buffers[0] != buffers[1]:
            raise Different(f"{at}: the values differ")

    def __call__(self, a, b, at=""):
        work = [(a, b, at)]
        while work:
            a, b, at = work.pop()
            if isinstance(a, torch.Tensor):
                seen = ("a", id(a)) in self.objects
                self.one(self.objects, id(a), id(b), at)
                if not seen:
                    self.keep += [a, b]
                    self.tensor(a, b, at)
                    if getattr(a, "__dict__", None) and type(a).__name__ != "DTensor":
                        work.append((a.__dict__, b.__dict__, at + ".__dict__"))
                continue
            if type(a) is not type(b):
                raise Different(f"{at}: {type(a).__name__} is {type(b).__name__}")
            if isinstance(a, (int, str, bytes, type(None), bool, type)) or a is Ellipsis:
                if a != b:
                    raise Different(f"{at}: {a!r:.60} is {b!r:.60}")
                continue
            if isinstance(a, (float, complex)):
                if struct.pack("<dd", complex(a).real, complex(a).imag) != struct.pack("<dd", complex(b).real, complex(b).imag):
                    raise Different(f"{at}: {a!r} is {b!r}")
                continue
            known = ("a", id(a)) in self.objects
            if not isinstance(a, (tuple, enum.Enum, torch.dtype, torch.Size, torch.device)):
                self.one(self.objects, id(a), id(b), at)
            elif known:
                continue
            if known:
                continue
            self.objects[("a", id(a))] = id(b)
            self.keep += [a, b]
            if isinstance(a, np.ndarray):
                if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes() or a.flags.f_contiguous != b.flags.f_contiguous:
                    raise Different(f"{at}: arrays differ")
            elif isinstance(a, dict):
                if len(a) != len(b) or [repr(k) for k in a] != [repr(k) for k in b]:
                    raise Different(f"{at}: keys {list(a)!r:.100} are {list(b)!r:.100}")
                work += [(x, y, f"{at}.{k}") for (k, x), y in zip(a.items(), b.values())]
            elif isinstance(a, (list, tuple, collections.deque)):
                if len(a) != len(b):
                    raise Different(f"{at}: {len(a)} items are {len(b)}")
                work += [(x, y, f"{at}.{i}") for i, (x, y) in enumerate(zip(a, b))]
            elif isinstance(a, (set, frozenset)):
                if sorted(map(repr, a)) != sorted(map(repr, b)):
                    raise Different(f"{at}: sets differ")
            elif isinstance(a, (torch.storage.TypedStorage, torch.UntypedStorage)):
                if bytes(a.untyped() if hasattr(a, "untyped") else a) != bytes(b.untyped() if hasattr(b, "untyped") else b):
                    raise Different(f"{at}: storages differ")
            elif isinstance(a, torch.Generator):
                work.append((a.get_state(), b.get_state(), at))
            elif not hasattr(a, "__dict__") or isinstance(a, (enum.Enum, pathlib.PurePath)):
                if repr(a) != repr(b):
                    raise Different(f"{at}: {a!r} is {b!r}")
            if getattr(a, "__dict__", None) and not isinstance(a, (enum.Enum, pathlib.PurePath)):
                work.append((a.__dict__, b.__dict__, at + ".__dict__"))


def equal(what, a, b, **how):
    try:
        Comparison(**how)(a, b)
        check(what, True)
    except Different as e:
        check(what, False, e)


# ---------------------------------------------------------------- the zoo


def dtypes():
    out = {}
    for name in ("float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128 complex32 "
                 "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu").split():
        dtype = getattr(torch, name, None)
        if dtype is not None:
            raw = torch.arange(0, 6 * torch.empty((), dtype=dtype).element_size(), dtype=torch.uint8)
            out[name] = (raw % 2 if dtype == torch.bool else raw).view(dtype).reshape(2, 3)
    return out


def views():
    base, big = torch.arange(24.0).reshape(4, 6), torch.arange(1000, dtype=torch.int64)
    return {"base": base, "t": base.t(), "step": base[::2, 1::3], "row": base[2], "expand": torch.ones(5, 1).expand(5, 4), "two": big[:2],
            "overlap": torch.arange(8.0).unfold(0, 3, 1), "scalar": torch.tensor(3.0), "empty": torch.zeros(0, 3), "grad": torch.ones(2, requires_grad=True),
            "last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)}


def shared():
    w = nn.Parameter(torch.randn(3, 4))
    alias = w.detach()
    both = [torch.arange(3), {"x": 1}]
    return {"w": w, "tied": w, "alias": alias, "part": alias[1:], "list": both, "again": both, "tuple": (both, both)}


def subclasses():
    p = nn.Parameter(torch.ones(2))
    p.note = {"why": "attributes"}
    t = torch.zeros(3)
    t.attribute = [1, 2]
    return {"p": nn.Parameter(torch.arange(4.0), requires_grad=False), "with": p, "attr": t, "buffer": nn.Buffer(torch.zeros(2)),
            "sub": torch.arange(3.0).as_subclass(Sub)}


def sparse():
    coo = torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], torch.tensor([3.0, 4.0, 5.0]), (2, 3))
    dense = torch.tensor([[0.0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 0, 0], [0, 4, 5, 0]])
    return {"coo": coo, "coalesced": coo.coalesce(), "csr": dense.to_sparse_csr(), "csc": dense.to_sparse_csc(), "bsr": dense.to_sparse_bsr((2, 2)),
            "bsc": dense.to_sparse_bsc((2, 2))}


def quantized():
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    return {"tensor": torch.quantize_per_tensor(x, 0.1, 3, torch.qint8), "u8": torch.quantize_per_tensor(x, 0.1, 3, torch.quint8),
            "i32": torch.quantize_per_tensor(x, 0.1, 3, torch.qint32),
            "channel": torch.quantize_per_channel(x, torch.tensor([0.1, 0.2]), torch.tensor([1, 2]), 0, torch.qint8)}


def values():
    deep = []
    for _ in range(300):
        deep = [deep]
    return {"ints": [0, -1, 255, 256, 65535, 65536, 2**31, -2**31 - 1, 2**63, -2**63, 2**100, -2**1000, 10**700], "floats": [0.5, -0.0, float("inf"), float("nan")],
            "strs": ["", "a", "é漢😀", "\ud800 alone", "line\nend", "x" * 70000], "bytes": [b"", b"\x00\xff", bytes(range(256)), bytearray(b"ab"), bytearray()],
            "sets": [set(), {1, 2}, frozenset({"a"})], "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)], "keys": {1: 2, "1": 3, None: 4, True and (1, "a"): 5, 2.5: 6, b"k": 7},
            "od": collections.OrderedDict(b=1, a=2), "dd": collections.defaultdict(list, {"x": [1]}), "counter": collections.Counter("aab"), "deque": collections.deque([1, 2], 5),
            "complex": 1 + 2j, "range": range(1, 9, 2), "slice": slice(1, 2), "path": pathlib.PurePosixPath("/a/b"), "date": datetime.date(2026, 1, 2),
            "decimal": decimal.Decimal("1.5"), "enum": Colour.RED, "point": Point(1, [2]), "size": torch.Size([2, 3]), "device": torch.device("cuda", 1),
            "dtype": torch.bfloat16, "layout": torch.sparse_coo, "class": nn.Linear, "ellipsis": ..., "deep": deep, "1001": list(range(1001)),
            "dict1001": {i: i for i in range(1001)}, "od1001": collections.OrderedDict((i, i) for i in range(1001)), "numpy": np.float64(0.5), "plain": Plain()}


def cycles():
    a, d, inner = [1], {}, []
    a.append(a)
    d["self"] = d
    t = (inner, 5, 6, 7)
    inner.append(t)
    return {"list": a, "dict": d, "tuple": t}


def arrays():
    return {"f": np.arange(6, dtype="<f4").reshape(2, 3), "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "i": np.array([1, 2], ">i2"), "s": np.array(["ab", "c"]),
            "bool": np.array(True), "scalar": np.int64(5), "rng": np.random.RandomState(0).get_state(), "empty": np.zeros((0, 2))}


def module():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    opt = torch.optim.AdamW(net.parameters(), lr=0.1)
    for _ in range(2):
        net(torch.randn(3, 4)).sum().backward()
        opt.step()
    return {"model": net.state_dict(), "opt": opt.state_dict(), "rng": torch.get_rng_state(), "epoch": 3, "device": "cpu"}


def whole():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    return {"net": net, "opt": torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)}


def odd():
    z = torch.randn(3, dtype=torch.complex64)
    g = torch.Generator()
    g.manual_seed(5)
    return {"conj": z.conj(), "neg": torch.randn(3, dtype=torch.complex64).conj().imag, "meta": torch.empty(3, 4, device="meta"), "storage": torch.arange(3.0).untyped_storage(), "generator": g,
            "nested": torch.nested.nested_tensor([torch.arange(2.0), torch.arange(3.0)]), "inside": Plain()}


ZOO = {"dtypes": dtypes, "views": views, "shared": shared, "subclasses": subclasses, "sparse": sparse, "quantized": quantized, "values": values, "cycles": cycles,
       "arrays": arrays, "module": module, "whole": whole, "odd": odd, "bare": lambda: torch.arange(5.0), "list": lambda: [1, torch.ones(2)], "int": lambda: 42,
       "metadata": lambda: nn.BatchNorm1d(2).state_dict(), "given": lambda: [Given(), Given()]}
# What the native format does otherwise: tensors lie contiguous in it, alone where their storage has more; lazy bits are resolved.
RESHAPED = {"views", "odd", "shared"}

# ---------------------------------------------------------------- the checks

usage = __doc__


def migrate(tool, *args):
    done = run(tool, *args)
    return check(f"ckpt-migrate {' '.join(map(str, args))}", done.returncode == 0, done.stderr)


def layout(path):
    """What of an archive is not a payload: every record's name, offset, size, CRC."""
    with zipfile.ZipFile(path) as z:
        return [(i.filename, i.header_offset, i.file_size, i.CRC, i.flag_bits, i.extra) for i in z.infolist()]


def but_id(path):
    """All bytes but the serialization id and its CRC, which stand in three places."""
    data = bytearray(pathlib.Path(path).read_bytes())
    with zipfile.ZipFile(path) as z:
        info = [i for i in z.infolist() if i.filename.endswith(".data/serialization_id")][0]
    old = struct.pack("<I", info.CRC)
    at = data.index(b"PK\x07\x08" + old) if info.flag_bits & 8 else -1
    data[at - 40:at + 8] = bytes(48)
    entry = data.rindex(info.filename.encode())
    data[entry - 30:entry - 26] = bytes(4)
    return bytes(data)


def one(tool, name, make):
    obj = make()
    torch.save(obj, f"{name}.pt")
    original = torch.load(f"{name}.pt", weights_only=False)
    if migrate(tool, "--to", "torch", f"{name}.pt", f"again/{name}.pt"):
        equal(f"{name}: torch -> torch", original, torch.load(f"again/{name}.pt", weights_only=False))
        check(f"{name}: torch -> torch, byte for byte", but_id(f"{name}.pt") == but_id(f"again/{name}.pt"),
              f"{layout(name + '.pt')[:3]} {layout('again/' + name + '.pt')[:3]}")
        if not isinstance(obj, int):
            equal(f"{name}: mapped", original, torch.load(f"again/{name}.pt", weights_only=False, mmap=True))
    if migrate(tool, "--to", "ckpt", f"{name}.pt", f"{name}.ckpt") and migrate(tool, "--to", "torch", f"{name}.ckpt", f"back/{name}.pt"):
        equal(f"{name}: torch -> ckpt -> torch", original, torch.load(f"back/{name}.pt", weights_only=False), strides=name not in RESHAPED)


def strict(tool, name):
    """weights_only=True reads what it read before."""
    for folder in ("again", "back"):
        try:
            torch.load(f"{folder}/{name}.pt", weights_only=True)
            check(f"{name}: weights_only=True ({folder})", True)
        except Exception as e:                  # an answer of torch's
            check(f"{name}: weights_only=True ({folder})", False, e)


def offsets(name):
    """torch computes where the storages lie from what it reads of the pickle alone."""
    import torch.utils.serialization as config
    old = config.config.load.calculate_storage_offsets
    config.config.load.calculate_storage_offsets = True
    try:
        equal(f"{name}: computed offsets", torch.load(f"{name}.pt", weights_only=False), torch.load(f"again/{name}.pt", weights_only=False, mmap=True))
    finally:
        config.config.load.calculate_storage_offsets = old


def tags(path):
    found = collections.Counter()
    torch.load(path, weights_only=False, map_location=lambda storage, tag: found.update([tag]) or storage)
    return dict(found)


def devices(inspect, tool):
    with claimed("cuda:0"):
        obj = module()
        obj["text"] = "cuda:0"
        torch.save(obj, "cuda0.pt")
    if migrate(tool, "--to", "torch", "--map-location", "cuda:3", "cuda0.pt", "cuda3.pt"):
        check("devices: cuda:0 -> cuda:3", "cuda:0" not in tags("cuda3.pt") and tags("cuda3.pt")["cuda:3"] > 10, tags("cuda3.pt"))
        loaded = torch.load("cuda3.pt", weights_only=False, map_location="cpu")
        check("devices: a user's own string stays", loaded["text"] == "cuda:0", loaded["text"])
        equal("devices: the values", torch.load("cuda0.pt", weights_only=False, map_location="cpu"), loaded)
    torch.save(module(), "cpu.pt")
    for a, b, to in (("cpu", "d1", "cuda:0"), ("d1", "d2", "cuda:3"), ("d2", "d3", "cpu")):
        migrate(tool, "--to", "torch", "--map-location", to, f"{a}.pt", f"{b}.pt")
    loaded = torch.load("d2.pt", weights_only=False, map_location="cpu")
    check("devices: a user's 'cpu' stays", loaded["device"] == "cpu", loaded["device"])
    equal("devices: cpu -> cuda:0 -> cuda:3 -> cpu", torch.load("cpu.pt", weights_only=False), torch.load("d3.pt", weights_only=False))
    one_, two = ask(inspect, "list", "--json", "--checksum", "cpu.pt")[1], ask(inspect, "list", "--json", "--checksum", "d3.pt")[1]
    check("devices: the list is the first one", one_.get("tensors") and one_["tensors"] == two.get("tensors"))


def built(tool):
    """A native file that never was a torch file (its tensors alone are taken) and plain safetensors."""
    from safetensors.torch import save_file
    save_file({"a.weight": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}, "plain.safetensors")
    if migrate(tool, "--to", "torch", "plain.safetensors", "plain.pt"):
        loaded = torch.load("plain.pt", weights_only=True)
        check("safetensors -> torch", list(loaded) == ["a.weight", "b"] and torch.equal(loaded["a.weight"], torch.arange(6.0).reshape(2, 3)) and loaded["b"].dtype == torch.bfloat16,
              loaded)


def bytes_twice(inspect, tool):
    """uint8 and a dtype whose storage is untyped share bytes: torch.save takes the two for one."""
    raw = torch.arange(16, dtype=torch.uint8)
    torch.save({"f8": raw.view(torch.float8_e5m2)[4:], "raw": raw, "e4": raw.view(torch.float8_e4m3fn)}, "twice.pt")
    original = torch.load("twice.pt")
    check("bytes twice: one storage", len({t["storage"] for t in ask(inspect, "list", "--json", "twice.pt")[1].get("tensors", [])}) == 1)
    if migrate(tool, "--to", "torch", "twice.pt", "again/twice.pt"):
        equal("bytes twice: torch -> torch", original, torch.load("again/twice.pt"))
    if migrate(tool, "--to", "ckpt", "twice.pt", "twice.ckpt") and migrate(tool, "--to", "torch", "twice.ckpt", "back/twice.pt"):
        equal("bytes twice: torch -> ckpt -> torch", original, torch.load("back/twice.pt"))


def closed(tool):
    """Tensors that no name reaches, in a pickle that torch.save did not write: an argument of a call, a key."""
    for name, obj in (("call", [functools.partial(give, state=torch.arange(3.0)), "end"]), ("key", {torch.arange(4): 1, "n": {torch.ones(2): 2}})):
        pathlib.Path(f"{name}.pkl").write_bytes(pickle.dumps(obj))
        if migrate(tool, "--to", "ckpt", f"{name}.pkl", f"{name}.ckpt") and migrate(tool, "--to", "torch", f"{name}.ckpt", f"{name}.pt"):
            equal(f"closed: {name}", obj, torch.load(f"{name}.pt", weights_only=False))


def made_arrays(tool):
    """Arrays of a native file that keeps no structure: numpy ends the whole process over a date's dtype without a unit."""
    of_numpy = {"text": np.array(["ab", "ç"]), "when": np.array(["2026-01-02"], "M8[7D]"), "lasts": np.array([3], "m8"), "raw": np.zeros(2, "V5")}
    torch.save({"model": trainer()[0].state_dict(), "critic": trainer()[0].state_dict(), **of_numpy}, "arrays2.pt")
    pathlib.Path("source.yaml").write_text("map: 1\nsource: {model: model}\n")
    if not (migrate(tool, "--to", "ckpt", "--map-location", "source.yaml", "arrays2.pt", "arrays2.ckpt")
            and migrate(tool, "--to", "ckpt", "--strip-prefix", "none.", "arrays2.ckpt", "arrays3.ckpt") and migrate(tool, "--to", "torch", "arrays3.ckpt", "arrays3.pt")):
        return
    script = "import sys, torch\nprint([[str(a.dtype), a.tobytes().hex()] for k, a in torch.load(sys.argv[1], weights_only=False).items() if k in sys.argv[2:]])"
    loaded = subprocess.run([sys.executable, "-c", script, "arrays3.pt", *of_numpy], capture_output=True, text=True)
    check("arrays without structure", loaded.stdout.strip() == str([[str(a.dtype), a.tobytes().hex()] for a in of_numpy.values()]), loaded.stdout + loaded.stderr)


def trainer():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    p = list(net.parameters())
    return net, torch.optim.AdamW([{"params": [x for x in p if x.ndim > 1], "weight_decay": 0.1}, {"params": [x for x in p if x.ndim < 2], "weight_decay": 0.0}], lr=0.1)


def steps(net, opt, n):
    for i in range(n):
        opt.zero_grad()
        net(torch.arange(12.0).reshape(3, 4) * (i + 1)).pow(2).sum().backward()
        opt.step()


def resumed(tool):
    """A native file becomes one that torch resumes from: with a torch file's structure, which edits of names change too, and
    without (a map said which of two models is meant: nothing says it when names are edited later)."""
    net, opt = trainer()
    steps(net, opt, 2)
    trained = {"model": net.state_dict(), "optimizer": opt.state_dict(), "rng": torch.get_rng_state(), "step": 2}
    torch.save(trained, "trained.pt")
    torch.save({**trained, "critic": trainer()[0].state_dict()}, "two.pt")
    pathlib.Path("source.yaml").write_text("map: 1\nsource: {model: model}\n")
    edit = "--strip-prefix", "none."
    if not (migrate(tool, "--to", "ckpt", "trained.pt", "trained.ckpt") and migrate(tool, "--to", "ckpt", *edit, "trained.ckpt", "stripped.ckpt")
            and migrate(tool, "--to", "torch", "stripped.ckpt", "kept.pt")
            and migrate(tool, "--to", "ckpt", "--map-location", "source.yaml", "two.pt", "two.ckpt")
            and migrate(tool, "--to", "ckpt", *edit, "two.ckpt", "one-of-two.ckpt") and migrate(tool, "--to", "torch", "one-of-two.ckpt", "made.pt")):
        return
    check("kept: the structure was kept", b"ckpt.torch" in pathlib.Path("stripped.ckpt").read_bytes())
    check("made: the structure was not kept", b"ckpt.torch" not in pathlib.Path("one-of-two.ckpt").read_bytes())
    ends = []
    for path in ("trained.pt", "kept.pt", "made.pt"):
        saved = torch.load(path, weights_only=True)
        net, opt = trainer()
        net.load_state_dict(saved["model"])
        opt.load_state_dict(saved["optimizer"])
        steps(net, opt, 3)
        ends.append([t.clone() for t in net.state_dict().values()])
        check(f"{path}: step and rng", saved["step"] == 2 and torch.equal(saved["rng"], torch.load("trained.pt")["rng"]))
    check("made: the next steps are the same", all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(*ends)))


def many():
    """Thousands of records, in several batches, and more memo entries than a byte counts."""
    return {f"t{i}": torch.full((1,), i) for i in range(3000)}


def old_torch():
    if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode:
        print("no torch of Debian's here: not read by it")
        return
    script = ("import sys, torch\na, b = torch.load(sys.argv[1]), torch.load(sys.argv[2])\n"
              "def same(a, b):\n"
              "    if isinstance(a, torch.Tensor): return torch.equal(a, b) and a.stride() == b.stride()\n"
              "    if isinstance(a, dict): return list(a) == list(b) and all(same(a[k], b[k]) for k in a)\n"
              "    if isinstance(a, list): return len(a) == len(b) and all(map(same, a, b))\n"
              "    return a == b\n"
              "sys.exit(0 if same(a, b) else 1)\n")
    for name in ("module", "views", "metadata", "list"):
        done = subprocess.run(["/usr/bin/python3", "-c", script, f"{name}.pt", f"again/{name}.pt"], capture_output=True, text=True)
        check(f"{name}: an old torch reads it alike", done.returncode == 0, done.stderr)


def main():
    inspect, tool = commands(usage, 2)
    print(f"torch {torch.__version__}, numpy {np.__version__}")
    with scratch():
        os.mkdir("again")
        os.mkdir("back")
        for name, make in {**ZOO, "many": many}.items():
            with section(name):
                one(tool, name, make)
        for name in ("dtypes", "views", "shared", "module", "metadata", "bare", "list", "many", "sparse", "quantized"):
            with section(name):
                strict(tool, name)
        for name in ("module", "views", "many", "dtypes"):
            with section(name):
                offsets(name)
        with section("devices"):
            devices(inspect, tool)
        with section("bytes twice"):
            bytes_twice(inspect, tool)
        with section("closed"):
            closed(tool)
        with section("built"):
            built(tool)
        with section("arrays without structure"):
            made_arrays(tool)
        with section("resumed"):
            resumed(tool)
        with section("an old torch"):
            old_torch()
    finish()


if __name__ == "__main__":
    main()
