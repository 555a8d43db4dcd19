#!/usr/bin/env python3
"""The numbers of `stats` are those of numpy and torch, and `diff` finds what was changed and nothing else, across formats.

usage: stats_diff.py CKPT-INSPECT CKPT-MIGRATE [-v]

Random tensors of every dtype, with NaN, infinities, zeros, subnormals and views among them, go to a torch file; what the
command says of each is held against numpy in float64: smallest and largest exactly, counts exactly, mean and deviation to
1e-12, the histogram bin by bin. Then checkpoints are changed in one place at a time. The last line is "N passed, N failed"."""
import math
import os

from checks import ask, check, commands, finish, run, scratch, section, skip

try:
    import numpy as np
    import torch
    from safetensors.torch import save_file
except ImportError as e:
    skip(e)

FLOATS = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
          "float8_e8m0fnu"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
COMPLEX = ["complex32", "complex64", "complex128"]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def of_bits(dtype, shape, generator):
    """Every pattern of bits may occur: NaN with payloads, infinities, subnormals."""
    size = torch.empty((), dtype=dtype).element_size()
    n = math.prod(shape)
    raw = torch.randint(0, 256, (n * size,), dtype=torch.uint8, generator=generator)
    if dtype == torch.bool:
        raw &= 1
    return raw.view(dtype).reshape(shape)


def tensors(generator):
    """name -> tensor"""
    out = {}
    for name in FLOATS + INTS + COMPLEX + ["bool"]:
        dtype = getattr(torch, name)
        out[f"{name}.bits"] = of_bits(dtype, (37, 53), generator)
        out[f"{name}.one"] = of_bits(dtype, (), generator)
        out[f"{name}.none"] = torch.empty((0, 3), dtype=dtype)
        out[f"{name}.turned"] = of_bits(dtype, (31, 17), generator).t()
        if name in ("float32", "float64", "float16", "bfloat16"):
            x = torch.randn(70001, generator=generator, dtype=torch.float64)
            out[f"{name}.normal"] = x.to(dtype)
            out[f"{name}.far"] = (x * 1e-3 + 1000).to(dtype)         # the deviation is lost where squares are summed
            out[f"{name}.spread"] = (x * 10 ** (x * 3)).to(dtype)
            x[::1000], x[1::1000], x[2::1000], x[3::1000] = float("nan"), float("inf"), -float("inf"), 0
            out[f"{name}.odd"] = x.to(dtype)
            out[f"{name}.nothing"] = torch.full((9,), float("nan"), dtype=dtype)
            out[f"{name}.zero"] = torch.tensor([0.0, -0.0, 0.0], dtype=dtype)
        if name in ("complex64", "complex128"):
            out[f"{name}.conj"] = torch.randn(5, 7, generator=generator, dtype=dtype).conj()
    out["float64.large"] = torch.tensor([1e308, -1.5e308, 1e307, 1.7e308], dtype=torch.float64)
    out["float64.small"] = torch.tensor([1e-300, 5e-324, 3e-301], dtype=torch.float64)
    out["int64.far"] = torch.randint(2**62, 2**62 + 1000, (4099,), generator=generator)
    out["int64.edges"] = torch.tensor([-2**63, 2**63 - 1, 0, 5])
    out["float32.large"] = torch.randn(9 << 20, generator=generator)          # read twice: it is not kept for the histogram
    out["float32.expanded"] = torch.randn(3, 1, generator=generator).expand(3, 1000)
    return out


def values_of(t):
    """As float64 (of complex values the magnitude), and as exact integers where they are."""
    t = t.resolve_conj()
    if t.dtype.is_complex:
        x = t.to(torch.complex128).numpy().ravel()
        nan = np.isnan(x.real) | np.isnan(x.imag)
        with np.errstate(over="ignore"):
            m = np.hypot(x.real, x.imag)
        m[np.isinf(m) & np.isfinite(x.real) & np.isfinite(x.imag)] = np.finfo(np.float64).max
        m[nan] = np.nan
        return m, None
    if t.dtype.is_floating_point:
        return t.to(torch.float64).numpy().ravel(), None
    exact = [int(v) for v in t.numpy().ravel().tolist()]
    return np.array([float(v) for v in exact]), exact


def number(v):
    return float(v) if isinstance(v, str) else v


def near(got, want, scale):
    return got is not None and abs(number(got) - want) <= 1e-12 * scale


def check_one(name, t, got):
    x, exact = values_of(t)
    with np.errstate(all="ignore"):
        finite = x[np.isfinite(x)]
        counts = {"nan": int(np.isnan(x).sum()), "inf_pos": int((x == np.inf).sum()), "inf_neg": int((x == -np.inf).sum()),
                  "zero": int((x == 0).sum()), "count": x.size}
        counts["inf"] = counts["inf_pos"] + counts["inf_neg"]
    check(f"{name} counts", all(got[k] == v for k, v in counts.items()), (got, counts))
    if finite.size == 0:
        check(f"{name} has no numbers", all(got[k] is None for k in ("min", "max", "mean", "std", "absmax", "histogram")), got)
        return
    if exact is not None:
        low, high = min(exact), max(exact)
        check(f"{name} min, max", int(got["min"]) == low and int(got["max"]) == high and
              int(got["absmax"]) == max(abs(low), abs(high)), (got, low, high))
        check(f"{name} beyond 2^53 is a string", all(isinstance(got[k], str) == (abs(v) > 2**53) for k, v in (("min", low), ("max", high))), got)
        mean = sum(exact) / len(exact)
        square = sum((v * len(exact) - sum(exact)) ** 2 for v in exact)
        std = math.sqrt(square // len(exact) ** 2 / len(exact)) if square > 10**30 else math.sqrt(square / len(exact) ** 3)
        scale = max(abs(low), abs(high), 1)
    else:
        bits = lambda v: np.float64(v).view(np.uint64)
        same = (lambda a, b: abs(a - b) <= 1e-15 * abs(b)) if t.dtype.is_complex else (lambda a, b: bits(a + 0.0) == bits(b + 0.0))
        low, high = float(finite.min()), float(finite.max())
        check(f"{name} min, max", same(number(got["min"]), low) and same(number(got["max"]), high) and
              same(number(got["absmax"]), max(abs(low), abs(high))), (got, low, high))
        wide = finite.astype(np.longdouble)
        mean = float(wide.mean())
        std = float(np.sqrt(((wide - wide.mean()) ** 2).mean()))
        scale = float(np.abs(wide).mean())
    check(f"{name} mean", near(got["mean"], mean, scale), (got["mean"], mean))
    check(f"{name} std", near(got["std"], std, std), (got["std"], std))
    if not float(high) > float(low):
        check(f"{name} has one value, and no histogram", got["histogram"] is None, got["histogram"])
        return
    if not math.isfinite(float(high) - float(low)) or abs(high) < 1e-300 or name == "int64.far":      # numpy has no bins for these
        check(f"{name} histogram has all", sum(got["histogram"]["counts"]) == finite.size, got["histogram"])
    else:
        want, _ = np.histogram(finite, bins=32, range=(float(got["min"]), float(got["max"])))
        check(f"{name} histogram", got["histogram"]["counts"] == want.tolist(), (got["histogram"], want.tolist()))
    m = np.abs(finite[finite != 0])
    e = np.maximum(np.frexp(m)[1] - 1, -1023)
    first, found = got["magnitudes"]["log2_first"], got["magnitudes"]["counts"]
    want = [int((e == first + i).sum()) for i in range(len(found))]
    want[0] += int((e < first).sum()) if want else 0
    check(f"{name} magnitudes", found == want and sum(found) == m.size, (got["magnitudes"], want))


def check_stats(inspect):
    generator = torch.Generator().manual_seed(20)
    all_of = tensors(generator)
    torch.save(all_of, "all.pt")
    status, said = ask(inspect, "stats", "--json", "all.pt")
    check("stats answers", status == 0, said.get("error"))
    by_name = {t["name"]: t for t in said["tensors"]}
    check("stats has every tensor, in order", list(by_name) == list(all_of), list(by_name))
    for name, t in all_of.items():
        with section(name):
            check_one(name, t, by_name[name])
    some = ask(inspect, "stats", "--json", "--tensor", "int64.*", "all.pt")[1]["tensors"]
    check("stats of a choice", [t["name"] for t in some] == [n for n in all_of if n.startswith("int64.")], some)
    text = run(inspect, "stats", "all.pt").stdout.splitlines()
    check("a line a tensor, and a head", len(text) == len(all_of) + 1, len(text))


def check_others(inspect):
    """What is not a plain tensor; and the same numbers from other formats."""
    codes = torch.randint(0, 256, (6, 5), dtype=torch.uint8)
    things = {"f4": codes.view(torch.float4_e2m1fn_x2), "meta": torch.empty(3, device="meta"),
              "sparse": torch.eye(4).to_sparse(), "neg": torch.randn(4, dtype=torch.complex64).conj().imag}
    quantized = torch.quantize_per_tensor(torch.linspace(-1, 1, 11), 0.01, 3, torch.qint8)
    torch.save({**things, "quantized": quantized}, "others.pt")
    status, said = ask(inspect, "stats", "--json", "others.pt")
    by_name = {t["name"]: t for t in said["tensors"]}
    nibbles = np.stack([codes.numpy() & 15, codes.numpy() >> 4], -1).ravel()
    want = E2M1[nibbles]
    check("float4 is two values a byte", by_name["f4"]["count"] == 60 and by_name["f4"]["min"] == want.min() and
          by_name["f4"]["max"] == want.max() and near(by_name["f4"]["mean"], want.mean(), 1), by_name["f4"])
    check("meta has no values", by_name["meta"]["min"] is None and by_name["meta"]["nan"] is None and by_name["meta"]["why"], by_name["meta"])
    check("sparse: its parts have them", by_name["sparse"]["mean"] is None and by_name["sparse.values"]["mean"] == 1 and
          by_name["sparse.indices"]["max"] == 3, by_name)
    check("a negated view gives its values", near(by_name["neg"]["min"], float(things["neg"].min()), 1), by_name["neg"])
    ints = quantized.int_repr().numpy()
    check("quantized: the integers, and it says so", by_name["quantized"]["of"] == "codes" and by_name["quantized"]["min"] == ints.min() and
          by_name["quantized"]["max"] == ints.max(), by_name["quantized"])
    w = torch.randn(100, 100)
    save_file({"w": w}, "w.safetensors")
    torch.save({"w": w}, "w.pt", _use_new_zipfile_serialization=False)
    a, b = (ask(inspect, "stats", "--json", f)[1]["tensors"][0] for f in ("w.safetensors", "w.pt"))
    check("the same numbers from another format", all(a[k] == b[k] for k in a if k not in ("role", "file")), (a, b))


# ---- diff

def checkpoint(seed=0, steps=2, names=("a", "b", "c")):
    torch.manual_seed(seed)
    model = torch.nn.ModuleDict({n: torch.nn.Linear(7, 5) for n in names})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for _ in range(steps):
        sum(m(torch.randn(3, 7)).square().sum() for m in model.values()).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "step": steps,
            "note": "first", "rates": [0.1, 0.2], "rng": torch.get_rng_state()}


def diff(inspect, a, b, *options):
    status, said = ask(inspect, "diff", "--json", *options, a, b)
    return status, said, {t["name"]: t for t in said.get("tensors", [])}, {s["name"]: s for s in said.get("scalars", [])}


def check_one_change(inspect):
    """One place is changed: that is said, and nothing else."""
    saved = checkpoint()
    torch.save(saved, "a.pt")
    status, said, tensors_of, scalars = diff(inspect, "a.pt", "a.pt")
    check("a file is the same as itself", status == 0 and said["same"] and not tensors_of and not scalars, said)

    def changed(what, change, name, whats, status_word="changed", in_scalars=False, options=()):
        new = checkpoint()
        change(new)
        torch.save(new, "b.pt")
        status, said, tensors_of, scalars = diff(inspect, "a.pt", "b.pt", *options)
        rows, others = (scalars, tensors_of) if in_scalars else (tensors_of, scalars)
        check(what, status == 1 and not said["same"] and list(rows) == [name] and not others and rows[name]["status"] == status_word and
              rows[name]["what"] == whats, said)
        return rows.get(name, {})

    def bump(new):
        new["model"]["b.weight"][2, 3] += 0.25
    row = changed("a value", bump, "model.b.weight", ["value"])
    a, b = saved["model"]["b.weight"][2, 3].double(), None
    new = checkpoint()
    bump(new)
    b = new["model"]["b.weight"][2, 3].double()
    check("how far apart", row["max_abs"] == float(abs(a - b)) and row["max_rel"] == float(abs(a - b) / abs(b)) and
          row["differing"] == 1 and row["elements"] == 35 and row["nan_mismatch"] == 0, row)

    def last_bit(new):
        new["model"]["a.bias"].view(torch.int32)[0] ^= 1
    changed("one bit", last_bit, "model.a.bias", ["value"])

    def nan(new):
        new["optimizer"]["state"][3]["exp_avg"][1] = float("nan")
    row = changed("a NaN", nan, "optimizer.state.3.exp_avg", ["value"])
    check("NaN in one only", row.get("nan_mismatch") == 1, row)
    changed("a dtype", lambda new: new["model"].update({"c.weight": new["model"]["c.weight"].double()}), "model.c.weight", ["dtype"])
    row = changed("a smaller dtype", lambda new: new["model"].update({"c.weight": new["model"]["c.weight"].bfloat16()}), "model.c.weight",
                  ["dtype", "value"])
    x = saved["model"]["c.weight"].double()
    y = saved["model"]["c.weight"].bfloat16().double()
    check("a smaller dtype: how far", row["max_abs"] == float((x - y).abs().max()) and row["differing"] == int((x != y).sum()), row)
    changed("a shape", lambda new: new["model"].update({"a.bias": torch.zeros(6)}), "model.a.bias", ["shape"])
    changed("a tensor that went", lambda new: new["model"].pop("a.bias"), "model.a.bias", [], "removed")
    changed("a tensor that came", lambda new: new["model"].update({"d": torch.zeros(2)}), "model.d", [], "added")
    changed("a number", lambda new: new.update(step=3), "step", ["value"], in_scalars=True)
    changed("a setting of a group", lambda new: new["optimizer"]["param_groups"][0].update(lr=0.5), "optimizer.param_groups.0.lr", ["value"],
            in_scalars=True)
    changed("a flag of a group", lambda new: new["optimizer"]["param_groups"][0].update(amsgrad=True), "optimizer.param_groups.0.amsgrad",
            ["value"], in_scalars=True)
    changed("a setting that went", lambda new: new["optimizer"]["param_groups"][0].pop("eps"), "optimizer.param_groups.0.eps", [], "removed",
            in_scalars=True)
    changed("a scheduler", lambda new: new["scheduler"].update(last_epoch=7), "scheduler.last_epoch", ["value"], in_scalars=True)
    changed("a number that became a string", lambda new: new.update(step="2"), "step", ["kind"], in_scalars=True)
    changed("a value that went", lambda new: new.pop("note"), "note", [], "removed", in_scalars=True)
    changed("a value that came", lambda new: new["rates"].append(0.3), "rates.2", [], "added", in_scalars=True)
    changed("a step that is not a tensor", lambda new: new["optimizer"]["state"][0].update(step=2), "optimizer.state.0.step", ["kind"], in_scalars=True)
    changed("only what is chosen", lambda new: (bump(new), new.update(step=3)), "model.b.weight", ["value"], options=("--tensor", "*.weight"))


def check_tolerances(inspect):
    a = {"f": torch.tensor([1.0, 2.0, float("nan"), float("inf"), 0.0]), "i": torch.tensor([1, 2, 3]), "lr": 0.1,
         "c": torch.tensor([1 + 1j, 2 + 2j])}
    b = {"f": torch.tensor([1.001, 2.0, float("nan"), float("inf"), -0.0]), "i": torch.tensor([1, 2, 3]), "lr": 0.1001,
         "c": torch.tensor([1 + 1.001j, 2 + 2j])}
    torch.save(a, "a.pt")
    torch.save(b, "b.pt")
    status, said, rows, scalars = diff(inspect, "a.pt", "b.pt")
    check("bit by bit", status == 1 and set(rows) == {"f", "c"} and set(scalars) == {"lr"} and rows["f"]["differing"] == 2, said)
    for atol, rtol in ((0.01, 0), (0, 0.01), (0.0011, 0), (0.0009, 0), (0, 0.00099), (0, 0.0012), (1e-6, 1e-6)):
        status, said, rows, scalars = diff(inspect, "a.pt", "b.pt", "--atol", str(atol), "--rtol", str(rtol))
        for name in ("f", "c"):
            same = np.isclose(a[name].numpy().astype(np.complex128), b[name].numpy().astype(np.complex128), rtol=rtol, atol=atol, equal_nan=True)
            check(f"{name} within {atol} and {rtol}", (name in rows) == (not same.all()) and
                  (same.all() or rows[name]["differing"] == int((~same).sum())), (said, same.tolist()))
        check(f"lr within {atol} and {rtol}", ("lr" in scalars) == (not abs(0.1 - 0.1001) <= atol + rtol * 0.1001), said)
    b["i"][1] = 4
    torch.save(b, "b.pt")
    check("integers stay exact", "i" in diff(inspect, "a.pt", "b.pt", "--atol", "100")[2])
    torch.save({"f": a["f"].to(torch.bfloat16), "g": torch.randn(3)}, "a.pt")
    torch.save({"f": a["f"].to(torch.bfloat16).double(), "g": torch.randn(3)}, "b.pt")
    rows = diff(inspect, "a.pt", "b.pt", "--rtol", "1e-9")[2]
    check("other float dtypes are compared as numbers", rows["f"]["what"] == ["dtype"] and rows["f"]["max_abs"] == 0, rows)
    for wrong in ("-1", "x", "nan", "inf", ""):
        check(f"--atol '{wrong}' is refused", run(inspect, "diff", "--atol", wrong, "a.pt", "b.pt").returncode == 2)
    torch.save({"big": torch.tensor([2**62, 2**62 + 1])}, "a.pt")
    torch.save({"big": torch.tensor([2.0**62, 2.0**62], dtype=torch.float64)}, "b.pt")
    row = diff(inspect, "a.pt", "b.pt")[2]["big"]
    check("integers beyond 2^53 against doubles", row["differing"] == 1 and row["max_abs"] == 1, row)


def check_formats(inspect, migrate):
    """The same checkpoint in other formats and layouts is the same; a change in it is found all the same."""
    saved = checkpoint(names=("a", "b", "c"))
    torch.save(saved, "a.pt")
    torch.save({"step": 2, **{k: v for k, v in saved.items() if k != "step"}}, "order.pt")
    torch.save(saved, "legacy.pt", _use_new_zipfile_serialization=False)
    # Three modules of one shape, which no list holds: their order is to be said.
    run(migrate, "-q", "--assume-order", "model", "--to", "ckpt", "a.pt", "a.ckpt")
    run(migrate, "-q", "--to", "torch", "a.ckpt", "back.pt")
    for other in ("order.pt", "legacy.pt", "a.ckpt", "back.pt"):
        for pair in (("a.pt", other), (other, "a.pt")):
            status, said, rows, scalars = diff(inspect, *pair)
            check(f"diff {' '.join(pair)}: the same", status == 0 and said["same"] and not rows and not scalars, said)
    check("matched by what a state calls them", diff(inspect, "a.pt", "a.ckpt")[1]["counts"]["tensors"]["by_canonical"] == 6 * 4,
          diff(inspect, "a.pt", "a.ckpt")[1].get("counts"))
    # Other paths, other ids: the same by what a state calls them.
    other = {"net": {"weights": saved["model"]}, "opt": saved["optimizer"], **{k: v for k, v in saved.items() if k not in ("model", "optimizer")}}
    torch.save(other, "paths.pt")
    for pair in (("a.pt", "paths.pt"), ("paths.pt", "a.pt")):
        status, said, *_ = diff(inspect, *pair)
        check(f"diff {' '.join(pair)}: the same", status == 0 and said["same"] and said["counts"]["tensors"]["by_canonical"] == 24 and
              said["counts"]["scalars"]["by_canonical"] > 5, said)
    saved["optimizer"]["state"][4]["exp_avg_sq"][0, 0] += 1
    saved["optimizer"]["param_groups"][0]["weight_decay"] = 0.5
    torch.save(saved, "new.pt")
    status, said, rows, scalars = diff(inspect, "a.ckpt", "new.pt")
    check("an optimizer's moment, found through its parameter's name", status == 1 and list(rows) == ["optimizer.c.weight.exp_avg_sq"] and
          rows["optimizer.c.weight.exp_avg_sq"]["b"]["name"] == "optimizer.state.4.exp_avg_sq" and
          rows["optimizer.c.weight.exp_avg_sq"]["match"] == "canonical" and list(scalars) == ["optimizer.groups.0.weight_decay"], said)
    # The same values below other ids: another order of the parameters.
    model = saved["model"]
    save_file(dict(model), "model.safetensors")
    torch.save(model, "bare.pt")
    for pair in (("bare.pt", "model.safetensors"), ("model.safetensors", "bare.pt")):
        status, said, *_ = diff(inspect, *pair)
        check(f"diff {' '.join(pair)}: the same", status == 0 and said["same"] and said["findings"][0]["code"] == "no-device-tags", said)
    torch.save({"module." + k: v for k, v in model.items()}, "wrapped.pt")
    status, said, *_ = diff(inspect, "wrapped.pt", "model.safetensors")
    check("module. in front", status == 0 and said["counts"]["tensors"]["by_prefix"] == 6, said)
    status, said, *_ = diff(inspect, "model.safetensors", "wrapped.pt")
    check("module. in front of the other", status == 0 and said["counts"]["tensors"]["by_prefix"] == 6, said)


def check_ties(inspect):
    w = torch.randn(5, 3)
    torch.save({"emb.weight": w, "head.weight": w, "x": torch.randn(2)}, "tied.pt")
    x = torch.load("tied.pt")["x"]
    save_file({"emb.weight": w, "x": x}, "untied.safetensors")
    status, said, rows, _ = diff(inspect, "tied.pt", "untied.safetensors")
    note = [f for f in said["findings"] if f["code"] == "tied-name"]
    check("a second name is a note", status == 0 and said["same"] and not rows and [f["tensor"] for f in note] == ["head.weight"], said)
    status, said, rows, _ = diff(inspect, "untied.safetensors", "tied.pt")
    check("and so the other way round", status == 0 and said["counts"]["tensors"]["tied"] == 1, said)
    torch.save({"emb.weight": w, "head.weight": w.clone(), "x": x}, "copies.pt")
    status, said, rows, _ = diff(inspect, "copies.pt", "untied.safetensors")
    check("a copy is no second name", status == 1 and rows["head.weight"]["status"] == "removed", said)


def check_orders(inspect):
    """The model is the same, the optimizer got its parameters in another order."""
    def saved(turned):
        torch.manual_seed(3)
        model = torch.nn.ModuleDict({n: torch.nn.Linear(4, 4, bias=False) for n in "ab"})
        model["b"].weight.data = model["b"].weight.data[:3].clone()
        parameters = list(model.named_parameters())
        optimizer = torch.optim.AdamW(parameters[::-1] if turned else parameters, lr=1e-3)
        for n, p in parameters:
            p.grad = torch.ones_like(p) * len(n) * p.shape[0]
        optimizer.step()
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(saved(False), "a.pt")
    torch.save(saved(True), "b.pt")
    status, said, rows, scalars = diff(inspect, "a.pt", "b.pt")
    check("the order of the parameters", status == 1 and not rows and "optimizer.groups.0.params" in scalars, said)
    row = scalars.get("optimizer.groups.0.params", {"a": {}, "b": {}})
    check("by name", row["a"].get("value") == ["a.weight", "b.weight"] and row["b"].get("value") == ["b.weight", "a.weight"], row)


def check_damage(inspect):
    torch.save({"x": torch.ones(64), "y": torch.zeros(64)}, "a.pt")
    data = bytearray(open("a.pt", "rb").read())
    at = data.find(torch.ones(64).numpy().tobytes())
    data[at + 8] ^= 1
    open("b.pt", "wb").write(data)
    for pair in (("a.pt", "b.pt"), ("b.pt", "a.pt")):
        status, said, *_ = diff(inspect, *pair)
        check(f"a damaged tensor is an error that names it ({pair[0]})", status == 2 and said["error"]["code"] == "damaged" and
              said["error"]["message"].startswith("b.pt: x: "), said)
    check("stats of it too", ask(inspect, "stats", "--json", "b.pt")[0] == 2)


def main():
    inspect, migrate = commands(__doc__, 2)
    with scratch():
        for part in (check_stats, check_others, check_one_change, check_tolerances, check_ties, check_orders, check_damage):
            with section(part.__name__):
                part(inspect)
        with section("check_formats"):
            check_formats(inspect, migrate)
    finish()


if __name__ == "__main__":
    main()
