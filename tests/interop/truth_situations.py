"""The situations of doctor_truth.py for loaders that are a plain torch.load: what the file is, what the program is.

make   what the saving program was (truth_program.py)         edit   what became of it before it was saved
tag    where its storages say they are                        cases  who loads it: column, map_location, program, ...
The rows carry the number they have in the table of what torch does (man page of ckpt-inspect, doctor)."""
import argparse
import collections
import datetime
import decimal
import enum
import fractions
import functools
import pathlib

import numpy as np
import torch

FUSED, PLAIN, CAPTURABLE = ({"lr": 0.01, "fused": True}, {"lr": 0.01}, {"lr": 0.01, "capturable": True})
FOREACH = {"lr": 0.01, "foreach": True}
TABLE = []


def case(column, where=None, program=None, doctor=(), codes=(), **job):
    """column: new, new-gpu, old, old-gpu; program: the kind that it constructs, when not that of the file."""
    if program:
        job["hyper"] = {"fused": FUSED, "plain": PLAIN, "capturable": CAPTURABLE, "foreach": FOREACH}[program]
        doctor = [*doctor, "--optimizer", program]
    return {"column": column, "map": where, "doctor": list(doctor), "codes": list(codes), "job": job}


def situation(name, cases, edit=None, tag=None, row=None, **make):
    TABLE.append({"name": name, "row": row, "make": make, "edit": edit, "tag": tag, "cases": cases})


def everywhere(*columns, **more):
    return [case(c, **more) for c in columns]


# ---------------------------------------------------------------- edits

def states(held):
    return held["optimizer"]["state"].values()


def groups(held):
    return held["optimizer"]["param_groups"]


def for_states(change):
    def edit(held):
        for s in states(held):
            change(s)
    return edit


def for_groups(**values):
    def edit(held):
        for g in groups(held):
            g.update(values)
            for k in [k for k, v in values.items() if v is KeyError]:
                del g[k]
    return edit


def without(*keys):
    def edit(held):
        for k in keys:
            del held[k]
    return edit


def prefixed(prefix):
    def edit(held):
        held["model"] = collections.OrderedDict((prefix + k, v) for k, v in held["model"].items())
    return edit


def adding(value):
    return lambda held: held.update(extra={"value": value})


def float32_moments(held):
    for s in states(held):
        for k in "exp_avg", "exp_avg_sq":
            s[k] = s[k].float()


def other_shape(held):
    s = held["optimizer"]["state"][0]
    s["exp_avg"] = s["exp_avg"].t().contiguous()


def swap_states(held):
    s = held["optimizer"]["state"]
    s[1], s[3] = s[3], s[1]


def state_elsewhere(held):
    held["optimizer"]["state"][77] = {k: v.clone() for k, v in held["optimizer"]["state"][1].items()}


# ---------------------------------------------------------------- the truth table, rows 1 to 18

def table_rows():
    step_cpu, all_gpu = "cuda:0", "cuda:0+step"
    slow, kept, lost = ["step-on-gpu-slow"], ["fused-flag-overwritten"], ["fused-flag-overwritten"]
    situation("fused, saved on a CPU", [case("new"), case("new", "cpu"), case("old", program="plain"), case("new", program="plain", codes=kept)], row="1, 2", hyper=FUSED)
    situation("fused, step in the file on the cpu", [
        case("new-gpu"), case("new-gpu", "cpu"), case("new-gpu", "cuda:0"), case("new", "cpu"), case("new"), case("old", "cpu", "plain"), case("old"),
        case("new-gpu", program="plain", codes=kept), case("new-gpu", "cpu", "foreach", codes=kept), case("old-gpu", codes=["step-on-cpu"]),
        case("old-gpu", "cpu", codes=["step-on-cpu"]), case("old-gpu", "cuda:0"), case("old-gpu", "cpu", "plain", codes=["step-on-cpu"])],
        tag=step_cpu, row="1, 2", hyper=FUSED)
    situation("fused, step in the file on the GPU", [
        case("new-gpu"), case("new-gpu", "cpu"), case("new-gpu", "cuda:0"), case("new", "cpu"), case("old-gpu"),
        case("old-gpu", "cpu", codes=["step-on-cpu"]), case("new-gpu", program="plain", codes=kept)], tag=all_gpu, row="1, 2", hyper=FUSED)
    situation("plain, saved on a CPU", [
        case("new"), case("old"), case("new", program="fused", codes=lost), case("new", program="plain"), case("new", program="foreach")], row="3", hyper=PLAIN)
    situation("plain, amp", [
        case("new", doctor=["--amp"]), case("new", program="fused", doctor=["--amp"], codes=["amp-needs-fused-flag"])], row="4", hyper=PLAIN, amp="on")
    situation("fused, amp", [case("new", doctor=["--amp"])], row="4", hyper=FUSED, amp="on")
    situation("plain, step in the file on the cpu", [
        case("new-gpu"), case("new-gpu", "cpu"), case("new-gpu", "cuda:0", codes=slow), case("new-gpu", program="fused", codes=lost), case("new", "cpu"),
        case("old-gpu"), case("old-gpu", "cpu"), case("old-gpu", "cuda:0", codes=slow), case("old", "cpu"),
        case("new-gpu", program="capturable"), case("new-gpu", "cpu", "capturable")], tag=step_cpu, row="3, 6", hyper=PLAIN)
    situation("plain, step in the file on the GPU", [
        case("new-gpu", codes=slow), case("new-gpu", "cpu"), case("new-gpu", "cuda:0", codes=slow), case("old-gpu", codes=slow), case("old-gpu", "cpu"),
        case("new", "cpu"), case("old", "cpu")], tag=all_gpu, row="6", hyper=PLAIN)
    situation("foreach, step in the file on the cpu", [case("new-gpu"), case("new-gpu", "cpu"), case("new", "cpu"), case("old", "cpu")], tag=step_cpu, row="3", hyper=FOREACH)
    capturable = dict(edit=for_groups(capturable=True), row="7, 8")
    situation("capturable, step in the file on the GPU", [
        *(case("new-gpu", m, hyper=CAPTURABLE) for m in (None, "cpu", "cuda:0")), case("new", "cpu", codes=["capturable-on-cpu"], hyper=PLAIN),
        case("old-gpu", hyper=CAPTURABLE), case("old-gpu", "cpu", codes=["step-on-cpu"], hyper=CAPTURABLE)], tag=all_gpu, **capturable)
    situation("capturable, step in the file on the cpu", [
        *(case("new-gpu", m, hyper=CAPTURABLE) for m in (None, "cpu", "cuda:0")), case("old-gpu", hyper=CAPTURABLE, codes=["step-on-cpu"]),
        case("old-gpu", "cuda:0", hyper=CAPTURABLE)], tag=step_cpu, **capturable)
    situation("capturable, saved on a CPU", [case("new", codes=["capturable-on-cpu"]), case("old", codes=["capturable-on-cpu"])], **capturable)
    situation("step is an int, fused", [case("new"), case("new-gpu")], for_states(lambda s: s.update(step=int(s["step"]))), row="9", hyper=FUSED)
    situation("step is an int, plain", [case("new"), case("old")], for_states(lambda s: s.update(step=int(s["step"]))), row="9", hyper=PLAIN)
    situation("step is int64", [case("new"), case("new-gpu"), case("old")], for_states(lambda s: s.update(step=s["step"].long())), row="10", hyper=PLAIN)
    situation("a moment of another shape", everywhere("new", "new-gpu", "old", codes=["moment-shape"]), other_shape, row="11")
    situation("amsgrad without max_exp_avg_sq", everywhere("new", "old"), for_states(lambda s: s.pop("max_exp_avg_sq")), row="12", hyper={"lr": 0.01, "amsgrad": True})
    situation("amsgrad", everywhere("new", "old", "new-gpu"), row="12", hyper={"lr": 0.01, "amsgrad": True})
    situation("lr missing", everywhere("new", "old"), for_groups(lr=KeyError), row="12")
    situation("state is empty", everywhere("new", "old", codes=["moments-missing"]), lambda h: h["optimizer"]["state"].clear(), row="14")
    situation("two ids have no state", everywhere("new", "old", "new-gpu", codes=["moments-missing"]), lambda h: [h["optimizer"]["state"].pop(i) for i in (1, 4)], row="14")
    situation("a state id in no group", everywhere("new", "old", codes=["state-without-parameter"]), state_elsewhere, row="15")
    situation("bfloat16 with float32 moments", everywhere("new", "new-gpu", "old", codes=["moments-cast"], moments="float32"), float32_moments, row="16", dtype="bfloat16")
    situation("bfloat16 throughout", everywhere("new", "new-gpu", moments="bfloat16"), row="16", dtype="bfloat16")
    for kind in "NAdam", "ASGD", "RAdam", "Adamax", "Adadelta", "Adagrad", "Rprop":
        situation(kind, [case("new"), case("new-gpu"), case("old")], row="17", optimizer=kind)
        if kind != "Adagrad":
            situation(f"{kind}, on the GPU, step on the cpu", [case("new", "cpu"), case("new-gpu"), case("new-gpu", "cpu")], tag=step_cpu, row="17", optimizer=kind)
    situation("lr is a tensor, foreach", [case("new")], row="18", hyper=FOREACH, edit=lambda h: [g.update(lr=torch.tensor(0.01)) for g in groups(h)])
    situation("lr is a tensor, plain", [case("new"), case("new", program="foreach")], row="18", hyper=PLAIN, edit=lambda h: [g.update(lr=torch.tensor(0.01)) for g in groups(h)])


# ---------------------------------------------------------------- what else goes with it

def optimizers():
    for kind, hyper in ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "momentum": 0.9, "fused": True}), \
            ("AdamW", PLAIN), ("AdamW", FUSED), ("RMSprop", {"lr": 0.01, "momentum": 0.9}), ("Adafactor", {"lr": 0.01}):
        what = ", ".join([kind, *(k for k in hyper if k != "lr")])
        old = [] if "fused" in hyper or kind == "Adafactor" else [case("old", stateful="momentum" in hyper or kind != "SGD")]
        situation(what, [case("new", stateful="momentum" in hyper or kind != "SGD"), case("new-gpu", stateful="momentum" in hyper or kind != "SGD"), *old], optimizer=kind, hyper=hyper)
    situation("SGD, its momentum missing", everywhere("new", codes=["moments-missing"]), lambda h: h["optimizer"]["state"].clear(), optimizer="SGD", hyper={"lr": 0.1, "momentum": 0.9})
    situation("two groups", everywhere("new", "old", "new-gpu"), groups=2)
    situation("frozen parameters", everywhere("new", "old", "new-gpu"), frozen="norm")
    situation("before the first step", everywhere("new", codes=["moments-missing"], stateful=False), before=0)
    situation("at step 0, before the first step", everywhere("new", "old", codes=["moments-missing"], stateful=False), lambda h: h.update(step=0), before=0)
    situation("frozen among the optimizer's parameters", everywhere("new", "old", codes=["moments-missing"], stateful=False), without_grad="fc1")
    situation("one frozen in its module", everywhere("new", "old", codes=["moments-missing"], stateful=False), without_grad="fc1.bias")
    situation("frozen among the optimizer's, SGD", everywhere("new", "old", codes=["moments-missing"], stateful=False), without_grad="fc1", optimizer="SGD", hyper={"lr": 0.1, "momentum": 0.9})
    names = case("new", doctor=["--param-names", "names"])
    swapped = case("new", doctor=["--param-names", "names"], codes=["param-order-differs"])
    situation("named parameters", [case("new"), names], named=True)
    situation("named parameters in another order", [case("new"), dict(swapped, job={"order": "plain"})], named=True, order="swapped")
    situation("two groups, named", [case("new")], named=True, groups=2)
    situation("the same shape in another order, unnamed", [dict(names, job={"order": "plain"})], order="swapped")
    situation("fewer parameters than the program has", [case("new", doctor=["--param-names", "names"], codes=["group-mismatch"], frozen=None)], frozen="norm")
    situation("two moments exchanged", everywhere("new"), swap_states)


def with_ids(change):
    """Other keys for the optimizer's parameters: in the state, in the groups, or in both."""
    def edit(held):
        opt = held["optimizer"]
        held["optimizer"] = {"state": {change(i)[0]: s for i, s in opt["state"].items()},
                             "param_groups": [dict(g, params=[change(i)[1] for i in g["params"]]) for g in opt["param_groups"]]}
    return edit


def shapes_of_state():
    names = ["fc1.weight", "fc1.bias", "norm.weight", "norm.bias", "fc2.weight", "fc2.bias"]
    situation("ids are names", everywhere("new", "old", "new-gpu"), with_ids(lambda i: (names[i], names[i])))
    situation("ids are not dense", everywhere("new", "old", "new-gpu"), with_ids(lambda i: (100 + 3 * i, 100 + 3 * i)))
    situation("the state's ids are text, the groups' numbers", everywhere("new", "old", codes=["moments-missing"]), with_ids(lambda i: (str(i), i)))
    situation("state without step", everywhere("new", "old"), for_states(lambda s: s.pop("step")))
    situation("state without exp_avg_sq", everywhere("new", "old"), for_states(lambda s: s.pop("exp_avg_sq")))
    for key in "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable", "differentiable", "fused":
        situation(f"groups without {key}", everywhere("new"), for_groups(**{key: KeyError}))
    situation("groups with a key of their own", everywhere("new", "old"), for_groups(layer_decay=0.5, name="all"))
    situation("momentum_buffer is None", everywhere("new", "old", stateful=False), for_states(lambda s: s.update(momentum_buffer=None)), optimizer="SGD", hyper={"lr": 0.1, "momentum": 0.9})
    situation("SGD as it was", everywhere("new", "old", "new-gpu"), optimizer="SGD", hyper={"lr": 0.1, "momentum": 0.9, "nesterov": True}, net="BatchNorm")
    situation("BatchNorm", everywhere("new", "old"), net="BatchNorm")
    situation("tied weights", everywhere("new", "old"), net="tied")
    situation("tied weights, two groups", everywhere("new", "old"), net="tied", groups=2)
    situation("float32 with bfloat16 moments", everywhere("new", moments="bfloat16"), for_states(lambda s: [s.update({k: s[k].bfloat16()}) for k in ("exp_avg", "exp_avg_sq")]))
    situation("float16 with float32 moments", everywhere("new-gpu", moments="float32", codes=["moments-cast"], dtype="float16"),
              lambda h: [h["model"].update({k: v.half() for k, v in h["model"].items()})])
    two = {96: "cuda:1", 12: "cuda:1"}                      # fc2.weight and fc2.bias, with their moments, on a second GPU
    at = {"fc2.weight": "cuda:1", "fc2.bias": "cuda:1"}
    everything = {192: "cuda:0", 32: "cuda:0", **two}
    told = dict(doctor=["--devices", "cuda:2"], at=at)
    for hyper in PLAIN, FUSED:
        situation(f"over two GPUs{', fused' * (hyper is FUSED)}", [case("new-gpu", **told), case("new-gpu", "cpu", **told), case("new", "cpu")], tag=everything, hyper=hyper)
    situation("moments on another GPU than the parameters", [case("new-gpu", doctor=["--devices", "cuda:2"], codes=["mixed-devices"]), case("new", "cpu")],
              lambda h: h["model"].update({k: with_room(v) for k, v in h["model"].items()}),
              tag={192: "cuda:1", 32: "cuda:1", 96: "cuda:1", 12: "cuda:1", 196: "cuda:0", 36: "cuda:0", 100: "cuda:0", 16: "cuda:0"})


def with_room(t):
    """The same tensor in a storage of one number more, so that tagged() can tell it from its moments."""
    return torch.empty(t.numel() + 1)[:t.numel()].view(t.shape).copy_(t)


def maps():
    situation("cuda:0", [case("new", codes=["no-such-device"]), case("new", "cpu"), case("new", "cuda:0", codes=["no-such-device"]), case("old", codes=["no-such-device"]),
                         case("old", "cpu"), case("new", {"cuda:0": "cpu"}, doctor=["--map-location", "cuda:0=cpu"]),
                         case("new", {"cuda": "cpu"}, codes=["no-such-device"], doctor=["--map-location", "cuda=cpu"])], tag="cuda:0")
    situation("cuda:7", [case("new", codes=["no-such-device"], claimed=1, doctor=["--devices", "cuda:1"]),
                         case("new", {"cuda:0": "cpu"}, codes=["no-such-device"], doctor=["--map-location", "cuda:0=cpu"]), case("new", "cpu"),
                         case("new-gpu", "cuda:0", codes=["step-on-gpu-slow"])], tag="cuda:7")
    for tag in "cuda", "mps", "xpu:0", "npu:0", "hpu", "mtia", "cpu:0", "CPU", "meta", "privateuseone:0", "tpu":
        situation(f"a tag {tag}", [case("new", codes=[] if tag == "meta" else ["no-such-device"]), case("new", "cpu")], tag=tag)
    situation("mapped to meta", [case("new", "meta")])
    situation("an RNG state", [case("new"), case("new-gpu"), case("new", "cpu"), case("new-gpu", "cuda:0", codes=["rng-moved"])], rng=True, hyper=FUSED)
    situation("an RNG state, plain", [case("new"), case("old"), case("old", "cpu")], rng=True)
    situation("an RNG state tagged cuda:0", [case("new-gpu", codes=["rng-moved"]), case("new-gpu", "cpu")], tag="cuda:0+rng", rng=True, hyper=FUSED)
    for prefix in "module.", "_orig_mod.", "_orig_mod.module.", "_fsdp_wrapped_module.", "_forward_module.":
        situation(f"prefix {prefix}", [case("new", codes=["prefix"], wrap=prefix), case("new", codes=["prefix"])], prefixed(prefix))


def scalers():
    amp = {"doctor": ["--amp"]}
    situation("scaler, saved enabled", [case("new", **amp), case("new")], amp="on")
    situation("scaler, saved enabled, for a disabled one", [case("new", amp="off")], amp="on")
    situation("scaler {}, for an enabled one", [case("new", **amp, **{"amp": "on"})], amp="off")
    situation("scaler {}, for a disabled one", [case("new", amp="off")], amp="off")
    situation("scaler missing, for an enabled one", [case("new", codes=["scaler-missing"], **amp)], without("scaler"), amp="on")
    situation("a scheduler", everywhere("new", "old"), schedule=True)
    situation("initial_lr missing", [case("new"), case("new", codes=["initial-lr-missing"], later_schedule=True, schedule=False)], for_groups(initial_lr=KeyError), schedule=True)
    situation("the scheduler without the optimizer", [case("new", codes=["scheduler-without-optimizer"], take_optimizer=False)], without("optimizer"), schedule=True)
    situation("no optimizer", [case("new", take_optimizer=False)], without("optimizer"))


def ids(*numbers):
    return lambda held: groups(held)[0].update(params=list(numbers))


def one_step(number, step):
    return lambda held: held["optimizer"]["state"][number].update(step=torch.tensor(step))


def scale(number):
    return lambda held: held["scaler"].update(scale=number)


def values_of_state():
    """Schedules at their end, numbers that nothing goes on with, steps that disagree, ids that stand twice."""
    ended, one = everywhere("new", codes=["schedule-over"]), {"schedule": "one cycle"}
    situation("OneCycleLR at its end", ended, ends=True, **one)
    situation("OneCycleLR before its end", everywhere("new"), length=20, **one)
    situation("OneCycleLR at its end, for a longer run", [case("new", codes=["schedule-over"], length=20)], ends=True, **one)
    situation("OneCycleLR at its end, after a warmup", ended, ends=True, schedule="one cycle after a warmup")
    for kind in "cosine", "linear", "polynomial":
        situation(f"a {kind} schedule at its end", ended, schedule=kind)
    odd = everywhere("new", codes=["step-value"])
    for number in float("nan"), float("inf"), -1.0, -3.0:
        situation(f"step is {number}", odd, for_states(lambda s, number=number: s.update(step=torch.tensor(number))))
        situation(f"step is {number}, fused", odd, for_states(lambda s, number=number: s.update(step=torch.tensor(number))), hyper=FUSED)
    situation("step is nan, RMSprop", everywhere("new"), for_states(lambda s: s.update(step=torch.tensor(float("nan")))), optimizer="RMSprop")
    situation("step is -3.0, NAdam", odd, for_states(lambda s: s.update(step=torch.tensor(-3.0))), optimizer="NAdam")
    differ = everywhere("new", codes=["steps-differ"])
    situation("one step of another checkpoint", differ, one_step(1, 2.0))
    situation("a module that was frozen for a time", differ, late="fc1")
    situation("a parameter that was frozen for a time", differ, late="fc1.bias")
    situation("lr is 0", everywhere("new", codes=["lr-value"]), hyper={"lr": 0.0})
    for number in float("nan"), float("inf"), -0.1:
        situation(f"lr is {number}", everywhere("new", codes=["lr-value"]), for_groups(lr=number))
    for number in 0.0, float("inf"), float("nan"), 2.0 ** -40:
        situation(f"scale is {number}", [case("new", doctor=["--amp"], codes=["scaler-value"])], scale(number), amp="on")
    situation("an id twice, its last place another shape", everywhere("new", codes=["id-twice", "moment-shape"]), ids(0, 0, 2, 3, 4, 5))
    situation("an id twice, places of one shape", everywhere("new", codes=["id-twice", "moments-missing"]), ids(0, 1, 1, 3, 4, 5))
    situation("a module of one parameter, frozen", everywhere("new", codes=["moments-missing"], stateful=False), without_grad="gain", net="alone")
    situation("a module of one parameter", everywhere("new"), net="alone")
    situation("two models, one resized", [case("new", codes=["moment-shape"], net="wide")], layout="two models, one resized")
    situation("a head on the cpu", [case("new-gpu", codes=["model-on-two-devices"]), case("new", "cpu")], tag={192: "cuda:0", 32: "cuda:0"})


class Level(enum.IntEnum):
    LOW = 1


class Hyper:
    def __init__(self):
        self.lr = 0.1


class Listy(list):
    pass


class Text(str):
    pass


class Dicty(dict):
    pass


Point = collections.namedtuple("Point", "x y")


def with_attribute():
    d = collections.OrderedDict(a=1)
    d.note = "x"
    return d


VALUES = {
    "argparse.Namespace": argparse.Namespace(lr=1), "a Path": pathlib.PurePosixPath("a"), "an enum": Level.LOW, "a class of one's own": Hyper(),
    "a list of one's own": Listy([1]), "a str of one's own": Text("a"), "a dict of one's own": Dicty(a=1), "a namedtuple": Point(1, 2),
    "a numpy array": np.arange(3), "a numpy scalar": np.float64(1.5), "numpy bool": np.bool_(True), "a numpy dtype": np.dtype("float32"),
    "a datetime": datetime.datetime(2024, 5, 6), "a Decimal": decimal.Decimal("1.5"), "a Fraction": fractions.Fraction(1, 3),
    "a partial": functools.partial(int, 2), "a function": len, "a class": Hyper, "a builtin class": dict, "a range": range(3), "a slice": slice(1, 2),
    "a frozenset": frozenset({1}), "a deque": collections.deque([1]), "a defaultdict": collections.defaultdict(list, a=[1]), "Ellipsis": ..., "a module": torch.nn.Linear(2, 2),
    "a functional": torch.nn.functional.relu, "a generator": torch.Generator(), "a Counter": collections.Counter("ab"), "a set": {1, 2}, "a bytearray": bytearray(b"ab"),
    "bytes": b"ab\x80", "no bytes": b"", "a complex": 1j, "a Size": torch.Size([1]), "a device": torch.device("cuda", 1), "a dtype": torch.bfloat16, "a layout": torch.strided,
    "a quantizer scheme": torch.per_tensor_affine, "a Parameter": torch.nn.Parameter(torch.ones(2)), "a Buffer": torch.nn.Buffer(torch.ones(2)),
    "a sparse tensor": torch.eye(3).to_sparse(), "a sparse csr tensor": torch.eye(3).to_sparse_csr(), "a quantized tensor": torch.quantize_per_tensor(torch.ones(3), 0.1, 2, torch.qint8),
    "a float8 tensor": torch.ones(3).to(torch.float8_e4m3fn), "a uint16 tensor": torch.ones(3, dtype=torch.uint16), "a meta tensor": torch.empty(3, device="meta"),
    "a complex tensor": torch.ones(3, dtype=torch.complex64), "a big int": 2**70, "an int of 41 bits": -2**40, "an int of 62 bits": 2**61, "None as a key": {None: 1}, "an empty OrderedDict": collections.OrderedDict(), "nested lists": [[(1, [2]), {}], None, True], "an OrderedDict": collections.OrderedDict(a=1),
    "an OrderedDict with an attribute": with_attribute(), "keys": {1: 2, (1, "a"): 3, None: 4, 2.5: 5}, "a Path as a key": {pathlib.PurePosixPath("a"): 1},
    "an error": ValueError("x"), "a storage": torch.ones(3).untyped_storage(), "a typed storage": torch.ones(3).storage(), "a bool tensor": torch.ones(3, dtype=torch.bool),
    "an object array": np.array([None, 1], dtype=object), "a date": datetime.timedelta(1), "a str": "x", "infinity": float("inf")}
# Under names of this module: an old torch cannot import it, and there a program has its own classes.
OURS = ("an enum", "a class of one's own", "a list of one's own", "a str of one's own", "a dict of one's own", "a namedtuple", "a class")


def grid():
    """Rows 1 to 10 of the table, crossed: saved flags, step's kind and place, map_location, what the program constructs."""
    saved = {"nothing": {}, "foreach": {"foreach": True}, "fused": {"fused": True}, "capturable": {"capturable": True}}
    steps = {"float32": None, "int": int, "int64": torch.Tensor.long, "float64": torch.Tensor.double}
    for flag, hyper in saved.items():
        for kind, change in steps.items():
            edits = [for_groups(capturable=True)] if flag == "capturable" else []
            edits += [for_states(lambda s, change=change: s.update(step=change(s["step"])))] if change else []
            trained = {"lr": 0.01, **({} if flag == "capturable" else hyper)}
            for tag in None, "cuda:0", "cuda:0+step":
                if tag == "cuda:0+step" and kind == "int":
                    continue
                situation(f"grid: saved {flag}, step {kind}, tagged {tag}", grid_cases(flag, hyper, tag), lambda held, edits=edits: [e(held) for e in edits], tag, hyper=trained)


def grid_cases(flag, hyper, tag):
    own = {"hyper": {"lr": 0.01, **hyper}}
    programs = (None, "plain", "foreach", "fused", "capturable")
    with_flags = lambda column, where, p: case(column, where, p, **({} if p else own))
    cases = [with_flags("new-gpu", m, p) for m in (None, "cpu", "cuda:0") for p in programs] if tag else []
    cases += [with_flags("old-gpu", m, p) for m in (None, "cpu", "cuda:0") for p in (None, "plain")] if tag else []
    cases += [with_flags("new", "cpu" if tag else None, p) for p in programs]
    return cases + [case("old", "cpu" if tag else None, p) for p in ("plain", "foreach")]


def several(held):
    held["args"] = argparse.Namespace(lr=1)
    held["extra"] = {"where": [pathlib.PurePosixPath("a")], "when": datetime.date(2024, 5, 6)}


def layouts():
    from truth_program import LAYOUTS
    for name in LAYOUTS:
        if name == "two models, one resized":
            continue
        situation(f"as {name}", [case("new"), case("old")], layout=name)
        if name.startswith("the "):
            continue
        situation(f"as {name}, fused on cuda:0", [case("new-gpu"), case("new", "cpu"), case("new-gpu", program="plain", codes=["fused-flag-overwritten"]),
                                                  case("old-gpu", "cpu", codes=["step-on-cpu"])], layout=name, tag="cuda:0", hyper=FUSED)
        if name in ("VAR", "timm", "detectron2", "net, optim"):
            situation(f"as {name}, a scaler", [case("new", doctor=["--amp"])], layout=name, amp="on")
            situation(f"as {name}, a scaler {{}}", [case("new", doctor=["--amp"], amp="on")], layout=name, amp="off")
            situation(f"as {name}, no scaler", [case("new", doctor=["--amp"], codes=["scaler-missing"])], without("scaler"), layout=name, amp="on") if name != "VAR" else None
        situation(f"as {name}, state is empty", [case("new", codes=["moments-missing"])], lambda h: h["optimizer"]["state"].clear(), layout=name)


def classes():
    for what, value in VALUES.items():
        situation(f"holds {what}", [case("new", weights=True), case("new", weights_only=False, doctor=["--load-weights-only", "no"])], adding(value))
    refused = [f"weights-only-refused {what}" for what in ("argparse.Namespace", "args", "pathlib.", "extra.where.0", "datetime.date", "extra.when")]
    situation("holds several classes", [case("new", codes=refused)], several)
    situation("holds a Namespace, for an old torch", [case("old"), case("new", weights_only=True, doctor=["--load-weights-only", "yes"], codes=["weights-only-refused"])],
              lambda h: h.update(args=argparse.Namespace(lr=1, device="cuda")))


for build in table_rows, optimizers, shapes_of_state, maps, scalers, values_of_state, classes, layouts, grid:
    build()
