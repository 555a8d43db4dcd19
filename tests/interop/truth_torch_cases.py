"""Crafted torch files, of which torch and a reader could think differently, and the files whose mutants are made (it is no script
itself: same_as_torch.py)."""
import io
import struct
from collections import Counter, OrderedDict, defaultdict

import torch
from truth_torch_files import F4, MAGIC, Raw, Record, archive, built, call, items, legacy, make, name, old_storage, op, parameter, pickle, storage, tensor

T, U = tensor, tensor("1")
END = b"PK\5\6" + bytes(18)


def lists():
    """(label, the object) in pickles: what is a tensor, and which."""
    rebuild = lambda f, *a: call(name("torch._utils", f), *a)
    typed = lambda cls, state: call(name("torch._tensor", "_rebuild_from_type_v2"), name("torch._utils", "_rebuild_tensor_v2"), cls,
                                    (storage(), 0, (4,), (1,), False, None), state)
    with_state = lambda s, grad=True: rebuild("_rebuild_parameter_with_state", T(), grad, None, s)
    par = name("torch.nn.parameter", "Parameter")
    yield from {
        "plain": T(), "parameter": parameter(T()), "set_ of four": built(T(), (storage("1"), 0, (4,), (1,))), "set_ of a list": built(T(), [storage("1"), 0, (2,), (1,)]),
        "set_ of a storage": built(T(), (storage("1"),)), "set_ of a tensor": built(T(), (U,)), "set_ of nothing": built(T(), ()), "state of three": built(T(), (True, False, None)),
        "state of five": built(T(), (U, 0, None, True, False)), "state dict": built(T(), {"a": 1}), "state None": built(T(), None),
        "Parameter()": call(par), "Parameter of a tensor": call(par, T(), True), "Parameter by NEWOBJ": make(par, T(), True), "Parameter of an int": call(par, 5),
        "Parameter, three": built(call(par, T()), (False, False, None)), "Parameter, four": built(call(par, T(), False), (storage("1"), 0, (2,), (1,))),
        "Parameter, five": built(call(par, T(), False), (U, 0, None, True, False)),
        "data in a parameter's state": with_state({"data": U}), "real in it": with_state({"real": 1}, False), "grad in it": with_state({"grad": U}), "shape in it": with_state({"shape": 1}),
        "requires_grad in it": with_state({"requires_grad": False}), "a state of three": with_state((1, 2, 3)), "a state of an int": with_state(5), "a state of two": with_state(({"a": 1}, {"b": 2})),
        "data in the slots": with_state((None, {"data": U})), "an attribute": with_state({"note": "x"}),
        "data in a type's state": typed(name("torch", "Tensor"), {"data": U}), "a type's state": typed(name("torch", "Tensor"), {"note": U}), "a type that is a dtype": typed(name("torch", "float32"), {}),
        "Tensor by NEWOBJ": make(name("torch", "Tensor")), "Tensor of a list": call(name("torch", "Tensor"), [1.0, 2.0]), "Tensor of a tensor": call(name("torch", "Tensor"), T()),
        "Tensor with set_": built(make(name("torch", "Tensor")), (storage(), 0, (4,), (1,))), "FloatTensor with set_": built(call(name("torch", "FloatTensor")), (storage(), 0, (4,), (1,))),
        "item into a tensor": Raw(T() + op(0) + op(9) + b"s"), "append to a tensor": Raw(T() + op(9) + b"a"),
        "OrderedDict of a dict": call(name("collections", "OrderedDict"), {"w": T()}), "OrderedDict of pairs": call(name("collections", "OrderedDict"), [("w", T()), ("w", U)]),
        "Counter": call(name("collections", "Counter"), {"w": T()}), "a Counter's keys": Raw(call(name("collections", "Counter"), {1: T()}) + items([(True, U)])),
        "defaultdict": Raw(call(name("collections", "defaultdict"), name("builtins", "list")) + items([(1, T()), (1.0, U)])),
        "Size": T(size=call(name("torch", "Size"), [4])), "Size of a tuple": T(size=call(name("torch", "Size"), (4,))),
        "two classes of one storage": {"a": T(), "b": T(kind="IntStorage")}, "two sizes of one storage": {"a": T(), "b": T("0", 8, 0, (8,), (1,), kind="HalfStorage")},
        "v3": rebuild("_rebuild_tensor_v3", storage("0", 16, "UntypedStorage", module="torch.storage"), 0, (4,), (1,), False, None, name("torch", "float32")),
        "v3, neg": rebuild("_rebuild_tensor_v3", storage("0", 16, "UntypedStorage", module="torch.storage"), 0, (4,), (1,), False, None, name("torch", "float32"), {"neg": False}),
        "_rebuild_tensor": rebuild("_rebuild_tensor", storage(), 0, (4,), (1,)), "a function that is not there": rebuild("_rebuild_tensor_v9", storage(), 0, (4,), (1,)),
        "parameter, two arguments": rebuild("_rebuild_parameter", T(), True), "parameter of ints": rebuild("_rebuild_parameter", T(kind="IntStorage"), True, None),
        "parameter, grad 1": rebuild("_rebuild_parameter", T(), 1, None), "parameter, grad None": rebuild("_rebuild_parameter", T(), None, None),
        "five arguments": call(name("torch._utils", "_rebuild_tensor_v2"), storage(), 0, (4,), (1,), False), "two arguments": call(name("torch._utils", "_rebuild_tensor_v2"), storage(), 0),
        "Size of text": {"w": T(), "s": call(name("torch", "Size"), (1, "a"))}, "append to an OrderedDict": Raw(call(name("collections", "OrderedDict")) + op(9) + b"a"),
        "a layout of two": call(name("torch.serialization", "_get_layout"), "torch.strided", "x"), "a layout of nothing": call(name("torch.serialization", "_get_layout")),
        "encode of nothing": call(name("_codecs", "encode")), "a dtype called": call(name("torch", "float32"), 1), "a tensor called": call(T(), 5), "an OrderedDict called": call(call(name("collections", "OrderedDict"))),
        "an OrderedDict called, as hooks": T(hooks=call(call(name("collections", "OrderedDict")))),
        "eight arguments": T("0", 4, 0, (4,), (1,), False, None, None),
    }.items()
    for m in ({"neg": False}, {"neg": 1}, {"neg": None}, {"conj": True}, {"x": 1}, {}, OrderedDict(neg=1), OrderedDict(), [1], {"neg": "x"}, 5, 0, "", {1: True}):
        yield f"metadata {m!r}", T("0", 4, 0, (4,), (1,), False, m)
    yield "conj of complex", T("0", 2, 0, (2,), (1,), False, {"conj": False}, kind="ComplexFloatStorage")
    for g in (True, None, 0, 1, "x"):
        yield f"requires_grad {g!r}", T(grad=g)
    yield "requires_grad of ints", T(grad=True, kind="IntStorage")
    for h in (None, (), {}, 5, OrderedDict(a=1)):
        yield f"hooks {h!r}", T(hooks=h)
    for s, st, o in (([4], [1], 0), ((4,), (1,), 1), ((4,), (0,), 0), ((4,), (-1,), 3), ((-1,), (1,), 0), ((2, 2), (1,), 0), ((), (), 0), ((0,), (1,), 0), ((0,), (1,), 9), ((4.0,), (1,), 0),
                     ((True,), (1,), 0), ((4,), (1,), True), ((4,), (1,), 1.0), (4, 1, 0), ((2,), (1,), -1), ((0, 5), (1 << 40, 1), 3), ((4,), None, 0), ((2,), (3,), 0), ((2, 2), (2, 1), 0), ((2, 3), (1, 1), 0)):
        yield f"size {s} stride {st} offset {o}", T("0", 4, o, s, st)
    for l in ("cpu", "cuda:0", "cuda", "cuda:", "CPU", "foo", "cpu:0", "meta", "mps", "", None):
        yield f"location {l!r}", T(of=storage(location=l))
    yield "numel True", T(of=storage(count=True), size=(1,))
    yield "numel of less", T(of=storage(count=2), size=(2,))
    yield "key int", T(of=storage(key=0))
    yield "no such record", T("7")


def pairs():
    """Keys that are one to Python, and others."""
    for a, b in ((1, True), (1, 1.0), (True, 1.0), (0, False), (0, -0.0), (0.0, -0.0), ((1, 2), (True, 2)), ((1, (2,)), (1.0, (2.0,))), (1 << 53, float(1 << 53)), ((1 << 53) + 1, float(1 << 53)),
                 (1 << 63, float(1 << 63)), (1 << 64, float(1 << 64)), ((1 << 64) + 1, float(1 << 64)), (-1, -1.0), ("1", 1), ("a", "a"), ("a", b"a"), (None, "None"), (float("nan"), float("nan")), ((), ()),
                 (call(name("torch", "Size"), (1, 2)), (1, 2)), (name("torch", "float32"), name("torch", "float32")), (call(name("torch", "device"), "cuda", 0), call(name("torch", "device"), "cuda:0")),
                 (0.5, 0.5), ([1], 2), (({},), 2)):
        if isinstance(a, bytes) and not isinstance(a, Raw) or isinstance(b, bytes) and not isinstance(b, Raw):
            continue
        shown = lambda k: k.decode("latin-1").replace("\n", " ") if isinstance(k, Raw) else repr(k)
        yield f"keys {shown(a)} and {shown(b)}", [(a, T()), (b, U)]
    yield "tensor, then None", [("w", T()), ("w", None)]
    yield "tensor, then int", [("w", T()), ("x", U), ("w", 5)]
    yield "int, then tensor", [("w", 5), ("w", T())]
    yield "dict, then dict", [("w", {"x": T(), "y": T()}), ("w", {"x": U})]
    yield "many, then again", [(f"k{i}", T()) for i in range(20)] + [("k3", U), ("k7", None)]


def zips():
    """(label, Zip): what the archive holds beside, and its fields."""
    good = {"w": T(), "x": U}
    for v in (b"0", b"1", b"2", b"3", b"10", b"11", b" 3", b"3x", b"x", b"-1", b"", b"+3", b"3\n\n", None):
        yield f"version {v!r}", archive(good, version=v)
    for v in (b"big", b"Little", b"little\n", b"", None):
        yield f"byteorder {v!r}", archive(good, byteorder=v)
    for v in (b"64", b"x", b"", b" 64\n", b"6_4", b"6__4", b"-3", b"_6"):
        yield f".storage_alignment {v!r}", archive(good, more=[Record("archive/.storage_alignment", v)])
    for n, d in ((".format_version", b"x"), (".data/version", b"99"), (".data/version", b""), ("constants.pkl", b"\x80\x02)."), ("CONSTANTS.PKL", b"\x80\x02)."), ("x/", b""),
                 ("VERSION", b"99"), ("BYTEORDER", b"big"), ("Data/0", F4["1"]), ("DATA.pkl", pickle({"w": U})), ("data/a", F4["0"]), ("README", b"hello"), ("code/x.py", b"")):
        yield f"record {n}", archive(good, more=[Record("archive/" + n, d)])
    for n in ("README.txt", "other/x", "other/", "Archive/x", "archive2/x", b"archive/\xff", b"archive/\xc3\xa9"):
        yield f"record {n!r}", archive(good, more=[Record(n, b"" if n == "other/" else b"x")])
    yield "BYTEORDER alone", archive(good, byteorder=None, more=[Record("archive/BYTEORDER", b"big")])
    yield "Version alone", archive(good, version=None, more=[Record("archive/Version", b"3")])
    yield "Data.PKL alone", archive(None, more=[Record("archive/Data.PKL", pickle(good))])
    yield "DATA/0 alone", archive({"w": T()}, storages={}, more=[Record("archive/DATA/0", F4["0"])])
    yield "one record for two keys", archive({"w": T("a"), "x": T("A")}, storages={"a": F4["0"]})
    for field, value in (("outer", 0x10), ("disk", 1), ("disk", 2), ("disk", 0xFFFF), ("flags", 0x20), ("flags", 0x40), ("flags", 1), ("method", 9), ("inner", 1), ("made", 0x31E), ("needed", 99), ("crc", 0), ("crc", 1)):
        for k in (0, 2):
            z = archive(good)
            z.records[k].said[field] = value
            yield f"{field} {value} of record {k}", z
    for field, value in (("disk", 1), ("directory_disk", 1), ("here", 1), ("count", 1), ("comment_size", 5)):
        yield f"end: {field} {value}", archive(good, end={field: value})
    a, b = archive(good).laid(), archive({"w": U}).laid()
    other = lambda at: b[-22:-6] + struct.pack("<I", 0)[:0] + b[-6:]
    yield "an end record behind", archive(good, behind=END)
    yield "one byte behind", archive(good, behind=b"\0")
    yield "a page behind", archive(good, behind=bytes(4096))
    yield "a signature behind", archive(good, behind=b"PK\5\6")
    yield "an end record in the comment", archive(good, comment=END)
    yield "an end record in the comment, and more", archive(good, comment=END + b"x")
    yield "an archive behind", archive(good, behind=b)
    yield "an archive before", archive(good, before=b)
    both = archive(good)
    both.behind = both.laid()[-22:] + b"\0"
    yield "its end record again, and a byte", both
    for size in (4, -4):
        yield f"a record of {size} bytes more", archive(good, storages={"0": F4["0"] + bytes(size) if size > 0 else F4["0"][:size], "1": F4["1"]})
    deflated = archive(good)
    for r in deflated.records:
        r.method = 8
    yield "deflated", deflated
    yield "no padding", archive(good, pad=False)


STRANGE = {"POP": b"N0", "DUP": b"N20", "MEMOIZE": b"\x94", "INT": b"I5\n0", "LONG": b"L5L\n0", "FLOAT": b"F5.0\n0", "UNICODE": b"Va\n0", "EMPTY_SET": b"\x8f0", "STRING": b"S'a'\n0",
           "FROZENSET": b"(\x910", "SHORT_BINUNICODE": b"\x8c\1a0", "STACK_GLOBAL": b"\x8c\x05torch\x8c\x07float32\x930", "POP_MARK": b"(N1", "PUT": b"p9\n", "GET": b"q\x05g5\n0", "BINBYTES": b"C\1a0",
           "FRAME": b"\x95\1\0\0\0\0\0\0\0", "LONG4": b"\x8b\1\0\0\0\1" + b"0"}


IDS = {"of four": ("storage", name("torch", "FloatStorage"), "0", "cpu"), "of five": ("storage", name("torch", "FloatStorage"), "0", "cpu", 4),
       "of six": ("storage", name("torch", "FloatStorage"), "0", "cpu", 4, None), "of seven": ("storage", name("torch", "FloatStorage"), "0", "cpu", 4, None, 1),
       "a list": ["storage", name("torch", "FloatStorage"), "0", "cpu", 4], "text": "storage", "of another kind": ("tensor", 1, 2, 3, 4), "an int": 5}


def crafted():
    for label, value in lists():
        yield label, archive({"w": value, "z": T("1")}).laid()
    for label, p in pairs():
        yield label, archive(b"\x80\x02}" + items(p) + b".").laid()
        yield label + ", OrderedDict", archive(b"\x80\x02" + call(name("collections", "OrderedDict")) + items(p[:1]) + items(p[1:]) + b".").laid()
    for label, z in zips():
        yield label, z.laid()
    for label, ops in STRANGE.items():
        yield f"opcode {label}", archive(b"\x80\x02" + op({"w": T()}) + ops + b".").laid()
    for label, value in IDS.items():        # and nothing refers to it
        yield f"an id: {label}", archive(b"\x80\x02" + op({"w": T()}) + op(value) + b"Q0.").laid()
        yield f"legacy an id: {label}", legacy(b"\x80\x02" + op({"w": tensor(of=old_storage("0"))}) + op(value) + b"Q0.", keys=["0"])
    late = b"\x80\x02]q\1K\2a}q\2X\1\0\0\0w" + T(size=Raw(b"h\1")) + b"s"
    yield "a list changed later", archive(late + b"X\1\0\0\0vh\1K\1as.").laid()
    yield "a state changed later", archive(b"\x80\x02" + call(name("collections", "OrderedDict")) + b"}q\1bq\2h\1X\1\0\0\0aK\1s0.").laid()
    old = lambda key="0", **k: tensor(of=old_storage(key, **k))
    for label, value in {"plain": old(), "set_": built(old(), (old_storage("1"), 0, (4,), (1,))), "data": call(name("torch._utils", "_rebuild_parameter_with_state"), old(), True, None, {"data": old("1")}),
                         "location": old(location="foo"), "view": tensor(of=old_storage(view=("v", 1, 2)), size=(2,)), "five": call(name("torch._utils", "_rebuild_tensor_v2"), old_storage(), 0, (4,), (1,), False)}.items():
        yield "legacy " + label, legacy({"w": value, "z": old("1")})
    yield "legacy keys", legacy(b"\x80\x02}" + items([(1, old()), (True, old("1"))]) + b".", keys=["0", "1"])
    yield "legacy, an opcode", legacy(b"\x80\x02" + op({"w": old(), "z": old("1")}) + b"N0.")
    yield "legacy, info of tuples", legacy({"w": old(), "z": old("1")}, info=(1, 2))
    yield "legacy, bytes behind", legacy({"w": old(), "z": old("1")}) + b"tail"


def bases():
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.randn(5, 3)).sum().backward()
    opt.step()
    x = torch.arange(12.0)
    p = torch.nn.Parameter(torch.ones(3))
    p.note = "attribute"
    objects = {
        "state": {"model": model.state_dict(), "optimizer": opt.state_dict(), "epoch": 3},
        "views": {"a": x, "t": x.view(3, 4).t(), "part": x[2:5], "e": x[:1].expand(4), "tied": [x, x]},
        "kinds": {"i": torch.arange(4), "b": torch.tensor([True, False]), "h": torch.ones(2, dtype=torch.bfloat16), "c": torch.ones(2, dtype=torch.complex64).conj(), "u": torch.ones(2, dtype=torch.uint16),
                  "f8": torch.ones(3).to(torch.float8_e4m3fn), "n": torch._neg_view(torch.ones(2))},
        "parameters": {"p": p, "q": torch.nn.Parameter(torch.ones(2), False), 1: x, 2.5: x[1:], (1, 2): torch.zeros(()), None: torch.zeros(0)},
        "containers": OrderedDict([("l", [torch.ones(1), (torch.zeros(2), {"k": torch.ones(3)})]), ("s", torch.Size([1, 2])), ("set", {1, 2}), ("c", Counter("aab")), ("d", torch.float16), ("big", 1 << 70)]),
        "sparse": {"s": torch.eye(3).to_sparse(), "r": torch.eye(3).to_sparse_csr(), "m": torch.empty(2, device="meta")},
        "values": {"lr": 1e-3, "name": "x", "flag": True, "none": None, "w": torch.ones(2), "b": b"abc", "args": {"neg": False, "data": 1}},
    }
    out = []
    for label, obj in objects.items():
        for old in (False, True):
            f = io.BytesIO()
            torch.save(obj, f, _use_new_zipfile_serialization=not old)
            out.append((f"{label}{' (legacy)' if old else ''}", f.getvalue()))
    return out
