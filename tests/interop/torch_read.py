#!/usr/bin/env python3
"""Holds ckpt-inspect against torch itself: checkpoints are made here with the torch that is installed, listed by the
command, and compared with what torch loads from the same file.

    torch_read.py PATH/TO/ckpt-inspect [-v]

Compared for each checkpoint: every tensor's name, dtype, shape, strides, offset, device tag, CRC-32 of its bytes and which
tensors share a storage; every scalar, and the class of every opaque object. The last line is "N passed, M failed"; status 1
if anything failed, 77 (skipped) where torch or numpy is missing.
"""
import argparse, collections, io, json, math, os, pathlib, pickle, random, subprocess, sys, tarfile, tempfile, types, warnings, zipfile, zlib

try:
    import numpy as np
    import torch
    from torch import nn
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

warnings.simplefilter("ignore")
EXACT = 2 ** 53
LEAF = (int, float, bool, str, type(None))
Point = collections.namedtuple("Point", "x y")


class Hyper:
    def __init__(self, **kw):
        self.__dict__.update(kw)


class Tagged(torch.Tensor):
    pass


class Outer:
    class Inner:
        pass


class Keywords:
    def __new__(cls, a, b=None):
        return super().__new__(cls)

    def __getnewargs_ex__(self):
        return (1,), {"b": 2}


# ---------------------------------------------------------------- what torch finds in a file

def tensor_bytes(t):
    """The elements in C order from storage, offset, shape and strides, whatever the dtype."""
    if t.numel() == 0:
        return b""
    whole = torch.tensor([], dtype=torch.uint8).set_(t.untyped_storage()).numpy()
    n = t.element_size()
    return np.ndarray(tuple(t.shape), np.dtype(f"V{n}"), whole, t.storage_offset() * n, tuple(s * n for s in t.stride())).tobytes()


class Expected:
    """The walk of the contract: keys joined by dots, list positions and int keys in decimal, other keys as repr."""

    def __init__(self, tags):
        self.tags, self.tensors, self.scalars, self.objects, self.storages = tags, [], {}, {}, {}

    def tensor(self, name, t):
        e = {"name": name, "dtype": str(t.dtype)[6:], "shape": list(t.shape)}
        if t.layout is not torch.strided:
            e["layout"] = str(t.layout)[6:]
        elif t.device.type == "meta":
            e.update(strides=list(t.stride()), device="meta", storage=None)
        else:
            s = t.untyped_storage()._cdata
            e.update(strides=list(t.stride()), offset=t.storage_offset(), crc32=f"{zlib.crc32(tensor_bytes(t)):08x}",
                     device=self.tags.get(s, "cpu"), storage=self.storages.setdefault(s, len(self.storages)))
        self.tensors.append(e)

    def scalar(self, name, x):
        if type(x) is int and abs(x) > EXACT:
            x = str(x)
        elif type(x) is float and not math.isfinite(x):
            x = repr(x)
        self.scalars[name] = x

    def walk(self, name, x, root=False):
        if isinstance(x, torch.Tensor):
            return self.tensor(name, x)
        if type(x) in LEAF:
            return self.scalar(name, x)
        if isinstance(x, (np.ndarray, bytes, bytearray)):
            return
        if type(x) in (dict, collections.OrderedDict, list, tuple):
            for k, v in x.items() if isinstance(x, dict) else enumerate(x):
                k = k if isinstance(k, str) else repr(k)
                self.walk(k if root else f"{name}.{k}", v)
            return
        self.objects[name] = str(x) if isinstance(x, torch.dtype) else f"{type(x).__module__}.{type(x).__qualname__}"
        if isinstance(x, (types.FunctionType, types.BuiltinFunctionType, type)):
            self.objects[name] = f"{x.__module__}.{x.__qualname__}"


def expected(file):
    tags = {}

    def keep(storage, tag):
        tags[getattr(storage, "_untyped_storage", storage)._cdata] = tag
        held.append(storage)
        return storage

    held = []
    obj = torch.load(file, map_location=keep, weights_only=False)
    e = Expected(tags)
    e.walk("", obj, root=True)
    return e


# ---------------------------------------------------------------- what the command finds

def ask(inspect, *args):
    done = subprocess.run([inspect, *args], capture_output=True, timeout=120)
    try:
        return done.returncode, json.loads(done.stdout.decode())
    except ValueError:
        return done.returncode, {"error": {"message": f"no JSON document: {done.stderr.decode()[-200:]}"}}


def differences(inspect, file, e, format="torch"):
    status, doc = ask(inspect, "list", "--json", "--checksum", file)
    if status != 0:
        yield f"list: status {status}: {doc.get('error')}"
        return
    if doc.get("format") != format:
        yield f"format {doc.get('format')!r}"
    left = collections.defaultdict(list)
    for t in doc["tensors"]:
        left[t["name"]].append(t)
    numbers, back = {}, {}
    for want in e.tensors:
        candidates = left[want["name"]]
        if not candidates:
            yield f"tensor {want['name']!r} is missing"
            continue
        got = next((c for c in candidates if c.get("crc32") == want.get("crc32")), candidates[0])
        candidates.remove(got)
        for field, value in want.items():
            if field != "storage" and got.get(field) != value:
                yield f"tensor {want['name']!r}: {field} {got.get(field)!r}, torch has {value!r}"
        if want.get("storage") is not None:
            a, b = want["storage"], got.get("storage")
            if numbers.setdefault(a, b) != b or back.setdefault(b, a) != a:
                yield f"tensor {want['name']!r}: shares another storage than in torch"
    whole = {t["name"] for t in e.tensors if "layout" in t}
    for name, rest in left.items():
        if rest and not any(t.get("inside") for t in rest) and name.rpartition(".")[0] not in whole:
            yield f"tensor {name!r} is not in torch's dict"
    status, doc = ask(inspect, "tree", "--json", file)
    if status != 0:
        yield f"tree: status {status}: {doc.get('error')}"
        return
    for what, want, got in ("scalar", e.scalars, doc["scalars"]), ("object", e.objects, doc["objects"]):
        for name in want.keys() - got.keys():
            yield f"{what} {name!r} is missing"
        for name in got.keys() - want.keys():
            yield f"{what} {name!r} is not in torch's: {got[name]!r}"
        for name in want.keys() & got.keys():
            if want[name] != got[name] or isinstance(want[name], bool) != isinstance(got[name], bool):
                yield f"{what} {name!r}: {got[name]!r}, torch has {want[name]!r}"


# ---------------------------------------------------------------- the checkpoints

def saved(file, obj, tag=None, **kw):
    """torch.save; with `tag` every storage claims that device, since location_tag is what writes it."""
    old = torch.serialization.location_tag
    if tag:
        torch.serialization.location_tag = lambda storage: "".join(list(tag))
    try:
        torch.save(obj, file, **kw)
    finally:
        torch.serialization.location_tag = old


def dtypes():
    made = {}
    for name in sorted(dir(torch)):
        d = getattr(torch, name)
        if not isinstance(d, torch.dtype) or str(d)[6:] in made:
            continue
        try:                                      # some, such as int1 to int7, torch itself cannot make or save
            t = torch.randint(0, 256, (24 * d.itemsize,), dtype=torch.uint8)
            t = (t % 2 if d is torch.bool else t).view(d).reshape(4, 6)
            torch.save(t, os.devnull)
            made[str(d)[6:]] = t
        except (RuntimeError, KeyError, TypeError, AttributeError):
            continue
    return made


def views():
    base = torch.arange(60.0)
    x = base.reshape(3, 4, 5)
    return {"base": base, "t": x[0].t(), "step": base[::7], "expand": base[:3].expand(4, 3), "permute": x.permute(2, 0, 1),
            "overlap": base.as_strided((5, 4), (2, 1)), "tail": base[50:], "empty": base[5:5], "scalar": base[3], "high": x[None, :, None]}


def shared():
    w = nn.Parameter(torch.randn(4, 6))
    return {"embed.weight": w, "head.weight": w, "alias": w.detach(), "row": w.detach()[2], "list": [w, w], "other": torch.randn(3)}


def net():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


def trained(make, steps=3):
    torch.manual_seed(0)
    m = net()
    o = make(m.parameters())
    s = torch.optim.lr_scheduler.StepLR(o, 2)
    for _ in range(steps):
        o.zero_grad()
        m(torch.randn(5, 6)).square().mean().backward()
        o.step()
        s.step()
    return {"model": m.state_dict(), "optimizer": o.state_dict(), "scheduler": s.state_dict(), "epoch": 2, "args": types.SimpleNamespace(lr=1e-3)}


def trainer():
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    whole = trained(lambda p: torch.optim.AdamW(p, lr=1e-3, amsgrad=True))
    whole.update(args=argparse.Namespace(lr=1e-3, out=pathlib.PurePosixPath("runs/a"), device=torch.device("cuda", 1)),
                 scaler=scaler.state_dict(), history=[(1, 0.5), (2, float("nan"))], best=float("-inf"))
    return whole


def rng():
    return {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state(), "cuda": [torch.zeros(16, dtype=torch.uint8)]}


def values():
    return {"ints": [0, -1, 2**31, 2**53 + 1, 2**63 - 1, -2**63, 2**64, -10**40, 2**3000], "floats": [0.1, -0.0, 1e300, 5e-324, float("inf")],
            "strings": ["", "naïve", "模型 🔥", "a\0b", "quote\"s\\", "x" * 70000], "none": None, "bools": [True, False], "bytes": [b"", b"\x00\xff" * 200],
            "bytearray": bytearray(b"\x80abc"), "tuple": (1, (2, (3,)), ()), "sets": [{1}, frozenset({2})], "complex": 1j, "slice": slice(1, None, 2),
            "range": range(3), "size": torch.Size([2, 3]), "dtype": torch.bfloat16, "device": torch.device("cuda:3"), "ordered": collections.OrderedDict(z=1, a=2),
            "default": collections.defaultdict(list, a=[1]), "counter": collections.Counter("abca"), "deque": collections.deque([1, 2], 5),
            "point": Point(1, 2), "hyper": Hyper(lr=0.1, betas=(0.9, 0.99)), "path": pathlib.PurePosixPath("a/b"), "function": nn.functional.relu, "builtin": len,
            "type": nn.Linear, 7: "int key", True: "bool key", 2.5: "float key", (1, "a"): "tuple key", None: "none key"}


def arrays():
    a = np.arange(12.0).reshape(3, 4)
    return {"f8": a, "f4": a.astype("f4"), "fortran": np.asfortranarray(a), "strings": np.array(["ab", "ç"]), "objects": [np.float32(1.5), np.int64(-3)], "w": torch.ones(2)}


def sparse():
    d = torch.eye(4) * torch.arange(4.0)
    return {"coo": d.to_sparse(), "csr": d.to_sparse_csr(), "csc": d.to_sparse_csc(), "bsr": d.to_sparse_bsr((2, 2)), "dense": d}


def wrapped():
    t = torch.randn(3).as_subclass(Tagged)
    t.note = "attribute"
    p = nn.Parameter(torch.randn(2))
    p.partition_dim = 0
    return {"subclass": t, "parameter": nn.Parameter(torch.randn(2, 2)), "with_state": p, "buffer": nn.Buffer(torch.zeros(2)),
            "meta": torch.empty(3, 4, device="meta").t(), "grad": torch.randn(2, requires_grad=True)}


def calls():
    """What protocols below 4 find by getattr and functools.partial, and keys that are neither str nor int."""
    t = [torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)]
    return {"inner": Outer.Inner(), "keywords": Keywords(1), "w": torch.ones(2), np.int64(7): 1, np.int64(8): 2, np.float32(0.1): 3, torch.Size([2, 3]): 4,
            torch.Size([2]): 5, 1 - 2j: 6, range(3): 10, range(1, 9, 2): 11, ...: 12, NotImplemented: 13, torch.device("cuda:1"): 7, np.str_("text"): 8, "jagged": types.SimpleNamespace(t=t)}


def nested():
    x, y = torch.ones(2), {"w": torch.zeros(3)}
    for _ in range(200):
        x, y = [x], {"k": (y, 1)}
    cycle = [1, torch.ones(1)]
    cycle.append({"again": cycle[1]})
    return {"lists": x, "dicts": y, "cycle": cycle}


def rezip(file):
    """Packed again by an ordinary zip tool: deflated, another archive name, a folder entry, a comment."""
    with zipfile.ZipFile(file) as old:
        names = [(n, old.read(n)) for n in old.namelist()]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("again/", b"")
        for n, data in names:
            z.writestr("again/" + n.split("/", 1)[1], data)
        z.comment = b"packed again"


MAKE = {"dtypes": dtypes, "views": views, "shared": shared, "trainer": trainer, "rng": rng, "values": values, "arrays": arrays, "sparse": sparse,
        "wrapped": wrapped, "nested": nested, "calls": calls, "bare-tensor": lambda: torch.arange(6), "bare-list": lambda: [torch.ones(1), 2, ("x",)],
        "empty": dict, "many": lambda: {f"layer.{i}.w": torch.full((i % 7 + 1,), float(i)) for i in range(400)},
        "sgd": lambda: trained(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True)),
        "adagrad": lambda: trained(lambda p: torch.optim.Adagrad(p)), "rmsprop": lambda: trained(lambda p: torch.optim.RMSprop(p, centered=True)),
        "whole-module": lambda: {"x": torch.ones(2), "state": collections.OrderedDict(net().state_dict())}}


def cases(folder):
    """(name, path) of every checkpoint, written one after the other."""
    for name, make in MAKE.items():
        torch.manual_seed(len(name))
        random.seed(1)
        file = folder / f"{name}.pt"
        saved(file, make())
        yield name, file
    for protocol in (1, 2, 3, 4, 5):
        for name in ("values", "shared", "trainer", "rng", "wrapped", "arrays", "calls"):
            file = folder / f"{name}.p{protocol}.pt"
            saved(file, MAKE[name](), pickle_protocol=protocol)
            yield f"{name}, protocol {protocol}", file
    for tag in ("cuda:0", "cuda:7", "cuda", "mps", "xpu:1"):
        file = folder / f"trainer.{tag.replace(':', '')}.pt"
        saved(file, trainer(), tag)
        yield f"trainer, tagged {tag}", file
    for name in ("trainer", "views", "dtypes"):
        file = folder / f"{name}.rezipped.pt"
        saved(file, MAKE[name]())
        rezip(file)
        yield f"{name}, packed again", file
    file = folder / "padded.pt"
    saved(file, trainer())
    file.write_bytes(file.read_bytes() + bytes(100))
    yield "padded", file


def in_legacy(t):
    """The old format has this dtype: it wrote no storages without one."""
    data = io.BytesIO()
    try:
        torch.save(t, data, _use_new_zipfile_serialization=False)
        data.seek(0)
        return torch.load(data).dtype == t.dtype
    except (RuntimeError, KeyError, TypeError, AttributeError):
        return False


def legacy_cases(folder):
    """The same objects in the format before 1.6, and as plain pickles with tensors in them: (name, path, format)."""
    for name, make in MAKE.items():
        torch.manual_seed(len(name))
        random.seed(1)
        file, obj = folder / f"{name}.legacy.pt", make()
        if name == "dtypes":
            obj = {k: t for k, t in obj.items() if in_legacy(t)}
        saved(file, obj, "cuda:2" if len(name) % 2 else None, _use_new_zipfile_serialization=False)
        yield f"{name}, before 1.6", file, "torch-legacy"
    for protocol in (2, 4, 5):
        for name in ("trainer", "shared", "views", "rng", "values"):
            file = folder / f"{name}.{protocol}.pkl"
            file.write_bytes(pickle.dumps(MAKE[name](), protocol))
            yield f"{name}, pickle.dump, protocol {protocol}", file, "pickle"


def unpickled(file):
    """As expected(), of a plain pickle: each tensor brings a whole file before 1.6 along, which torch itself reads."""
    with open(file, "rb") as f:
        obj = pickle.load(f)
    e = Expected({})
    e.walk("", obj, root=True)
    return e


def script(folder, inspect):
    """TorchScript: the tensors and their names, the code is no one's business."""
    file = folder / "script.pt"
    module = torch.jit.script(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    torch.jit.save(module, file)
    status, doc = ask(inspect, "list", "--json", "--checksum", file)
    said = {t["name"]: (t["dtype"], t["shape"], t["crc32"]) for t in doc.get("tensors", [])}
    own = {k: (str(t.dtype)[6:], list(t.shape), f"{zlib.crc32(tensor_bytes(t)):08x}") for k, t in module.state_dict().items()}
    yield "TorchScript", [] if status == 0 and said == own else [f"status {status}: {said or doc.get('error')}, torch has {own}"]


def refusals(folder, inspect):
    """Files that are something else must be named, with status 2."""
    tar, exported, cut = (folder / n for n in ("old.tar", "program.pt2", "cut.pt"))
    with tarfile.open(tar, "w") as t:                # the first releases wrote these three members
        for name in "storages", "tensors", "pickle":
            (folder / name).write_bytes(pickle.dumps(0, 2))
            t.add(folder / name, name)
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)), exported)
    torch.save({"w": torch.ones(200)}, cut)
    cut.write_bytes(cut.read_bytes()[:700])
    for file, word in (tar, "tar"), (exported, "torch.export"), (cut, "truncated"):
        status, doc = ask(inspect, "list", "--json", file)
        said = doc.get("error", {}).get("message", "")
        yield file.name, [] if status == 2 and word in said else [f"status {status}, {said!r}; expected status 2 and {word!r}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("inspect")
    parser.add_argument("-v", action="store_true", help="name what passed, and every difference")
    args = parser.parse_args()
    inspect = os.path.abspath(args.inspect)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        results = ((name, list(differences(inspect, file, expected(file)))) for name, file in cases(folder))
        older = ((name, list(differences(inspect, file, unpickled(file) if form == "pickle" else expected(file), form)))
                 for name, file, form in legacy_cases(folder))
        for found in (results, older, script(folder, inspect), refusals(folder, inspect)):
            for name, out in found:
                failed += bool(out)
                passed += not out
                if out:
                    print(f"differs  {name}: " + "\n         ".join(out if args.v else out[:3]))
                elif args.v:
                    print(f"as torch  {name}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
