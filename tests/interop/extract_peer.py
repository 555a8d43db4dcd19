#!/usr/bin/env python3
"""What `extract` writes is what numpy reads, bit for bit, and what --head prints are numpy's numbers.

usage: extract_peer.py CKPT-INSPECT [-v]

Random bits of every dtype that numpy or --upcast has, views and empty tensors among them, go to a torch file; numpy.load opens the
.npz and the .npy of it, and each array is compared with torch's tensor. The last line is "N passed, N failed"."""
import io
import math
import subprocess

from checks import ask, check, commands, finish, run, scratch, section, skip

try:
    import numpy as np
    import torch
except ImportError as e:
    skip(e)

FLOATS = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
NUMPY = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128"]
WIDER = [f for f in FLOATS if f not in NUMPY]
INSPECT, = commands(__doc__, 1)


def of_bits(dtype, shape, generator):
    """Every pattern of bits may occur: NaN with payloads, infinities, subnormals."""
    size = torch.empty((), dtype=dtype).element_size()
    raw = torch.randint(0, 256, (math.prod(shape) * size,), dtype=torch.uint8, generator=generator)
    if dtype == torch.bool:
        raw &= 1
    return raw.view(dtype).reshape(shape)


def same(a, t):
    """An array and a tensor: dtype, shape and bits; of what was widened the numbers, NaN where NaN is."""
    wide = t.float() if str(t.dtype)[6:] in WIDER else t
    b = wide.resolve_conj().contiguous().numpy()
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if wide is t:
        return a.tobytes() == b.tobytes()
    number = ~np.isnan(b)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a[number]), np.signbit(b[number]))


def is_shortest(value, x, dtype):
    """Does the printed number give the element again, and does no shorter one?"""
    def back(v):
        return torch.tensor(v, dtype=torch.float64).to(dtype).double().item()
    if dtype == torch.float8_e8m0fnu and not math.isnan(x):
        return value == x                       # powers of two, and printed as they are
    if isinstance(value, str):
        return value == {True: "nan"}.get(math.isnan(x), "inf" if x > 0 else "-inf")
    digits = len(repr(value).split("e")[0].replace(".", "").strip("-0"))
    return back(value) == x and math.copysign(1, value) == math.copysign(1, x) and (digits < 2 or back(float(f"{x:.{digits - 2}e}")) != x)


with scratch():
    generator = torch.Generator().manual_seed(2026)
    tensors = {}
    for name in NUMPY + WIDER:
        dtype = getattr(torch, name)
        tensors[f"{name}.bits"] = of_bits(dtype, (37, 53), generator)
        tensors[f"{name}.one"] = of_bits(dtype, (), generator)
        tensors[f"{name}.none"] = torch.empty((0, 3), dtype=dtype)
        tensors[f"{name}.turned"] = of_bits(dtype, (31, 17), generator).t()
        if name in WIDER and tensors[f"{name}.bits"].element_size() == 1:
            tensors[f"{name}.all"] = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(dtype)
    tensors["complex64.conj"] = torch.randn(5, 7, generator=generator, dtype=torch.complex64).conj()
    tensors["layers/0/größe"] = torch.arange(3.0)
    torch.save(tensors, "all.pt")
    with section("every dtype, as .npz"):
        done = run(INSPECT, "extract", "all.pt", "*", "--npz", "--upcast", "-o", "all.npz")
        check("it is written", done.returncode == 0 and not done.stderr, done.stderr)
        with np.load("all.npz") as z:
            check("it has every tensor", sorted(z.files) == sorted(tensors), z.files)
            for name, t in tensors.items():
                check(f"{name} in the .npz", same(z[name], t))
    with section("to a pipe"):
        piped = subprocess.run([INSPECT, "extract", "all.pt", "*", "--npz", "--upcast", "-o", "-"], capture_output=True).stdout
        check("the same bytes", piped == open("all.npz", "rb").read())
        check("numpy reads them", len(np.load(io.BytesIO(piped)).files) == len(tensors))
    with section("as .npy"):
        for name, t in tensors.items():
            done = run(INSPECT, "extract", "--force", "all.pt", f"={name}", "--upcast", "-o", "one.npy")
            check(f"{name} as .npy", done.returncode == 0 and same(np.load("one.npy"), t), done.stderr)
    with section("without --upcast"):
        for name in WIDER:
            check(f"{name} is refused", run(INSPECT, "extract", "all.pt", f"{name}.bits", "-o", "not.npy").returncode == 2)
    with section("--head"):
        status, doc = ask(INSPECT, "extract", "--json", "all.pt", "*", "--head", "40")
        check("--head of all", status == 0 and len(doc["tensors"]) == len(tensors), doc)
        for got in doc["tensors"]:
            name, t = got["name"], tensors[got["name"]]
            flat = t.resolve_conj().reshape(-1)[:40]
            check(f"{name}: how many", len(got["values"]) == len(flat) and got["count"] == t.numel(), got)
            if t.dtype.is_floating_point:
                check(f"{name}: its values", all(is_shortest(v, x, t.dtype) for v, x in zip(got["values"], flat.double().tolist())),
                      list(zip(got["values"], flat.double().tolist())))
            elif not t.dtype.is_complex:
                check(f"{name}: its values", [int(v) for v in got["values"]] == [int(v) for v in flat.tolist()], got["values"])
            else:
                part = torch.float32 if t.dtype == torch.complex64 else torch.float64
                check(f"{name}: its values", all(is_shortest(p, x, part) for v, c in zip(got["values"], flat.tolist()) for p, x in zip(v, (c.real, c.imag))),
                      list(zip(got["values"], flat.tolist())))
finish()
