"""marks.py - the marks that this library sets itself, in one place, and what a result says of each. Nothing here measures.

A row says in which groups of samples it looks ("warm, *": each is a case of its own), who is ours, and against whom: the fastest of
them counts. What is held against the mark is
    speed    the time of the others / ours, at least the mark
    cost     our time / that of the others, at most the mark
    value    our time in `unit`, at most the mark
    peak     our resident memory in MiB, at most the mark
    growth   the most that a decade costs against the one before it, at most the mark
The figure of a case is the median of the rounds' ratios, with their range; the row's is its worst case's. No mark: the row tells what it is.
"""
from __future__ import annotations

import dataclasses
import fnmatch
import statistics

from measure import fastest, ratios, spread


@dataclasses.dataclass(frozen=True)
class Row:
    key: str
    part: str
    what: str
    groups: str
    kind: str
    mark: float | None
    ours: str = "ckpt_*"
    against: tuple = ()
    unit: str = "ms"
    only: str = ""      # a row that holds for some machines or runs only: it is said beside it


COPIES = ("memcpy of each tensor", "one memcpy a thread", "streaming stores")
FLUSH, QUIET = "while a save is written", "nothing is written"
WARM, COLD, SAVE = "warm, *", "cold, *", "durable save, *"
TEN, MORE, MILLION = "10000 tensors, *", "140000 tensors, *", "1000000 tensors of 16 bytes"

ROWS = (
    Row("warm-safetensors", "restore", "restore, cached: beside safetensors + copy_", WARM, "speed", 1.2, "ckpt_restore",
        ("safetensors load_file + copy_",)),
    Row("warm-mmap", "restore", "restore, cached: beside torch.load(mmap) + copy_", WARM, "speed", 1.2, "ckpt_restore", ("torch.load(mmap) + copy_",)),
    Row("warm-load", "restore", "restore, cached: beside torch.load + copy_", WARM, "speed", 5, "ckpt_restore", ("torch.load + copy_",)),
    Row("warm-pread", "restore", "restore, cached: beside pread into the same memory", WARM, "speed", 0.8, "ckpt_restore", ("pread, *",)),
    Row("warm-verify", "restore", "restore, cached: verified against no_verify", WARM, "cost", 1.15, "ckpt_restore", ("ckpt_restore, no_verify",)),
    Row("cold-direct", "cold", "restore, not cached: beside the best O_DIRECT read", COLD, "speed", 0.9, "ckpt_restore", ("direct read, *",)),
    Row("cold-runai", "cold", "restore, not cached: beside runai-model-streamer", COLD, "speed", 1, "ckpt_restore", ("runai-model-streamer + copy_",)),
    Row("cold-safetensors", "cold", "restore, not cached: beside safetensors + copy_", COLD, "speed", 2, "ckpt_restore", ("safetensors load_file + copy_",)),
    Row("save-direct", "save", "durable save: beside the best O_DIRECT write", SAVE, "speed", 0.9, "ckpt_save", ("direct write, *",)),
    Row("save-torch", "save-peers", "durable save: beside torch.save + fsync", SAVE, "speed", 1, "ckpt_save", ("torch.save + fsync",)),
    Row("save-safetensors", "save-peers", "durable save: beside safetensors + fsync", SAVE, "speed", 1, "ckpt_save", ("safetensors save_file + fsync",)),
    Row("save-dcp", "save-peers", "durable save: beside torch DCP + fsync", SAVE, "speed", 1, "ckpt_save", ("torch DCP save + fsync",)),
    Row("save-tensorizer", "save-peers", "durable save: beside tensorizer + fsync", SAVE, "speed", 1, "ckpt_save", ("tensorizer + fsync",)),
    Row("stall", "stall", "stall of an asynchronous save: against the best memcpy", "stall, *", "cost", 1.1, "ckpt_run_save", COPIES),
    Row("steps-compute", "steps", "p95 of steps during a save: one core left to the writer", "p95 of steps, compute, one core left", "cost", 1.1,
        FLUSH, (QUIET,)),
    Row("steps-cores", "steps", "p95 of steps during a save: no core left", "p95 of steps, compute, no core left", "cost", None, FLUSH, (QUIET,)),
    Row("steps-memory", "steps", "p95 of steps during a save: 64 MiB of memory a step", "p95 of steps, memory", "cost", None, FLUSH, (QUIET,)),
    Row("migrate", "migrate", "migrate: beside cp + fsync", "migrate, *", "speed", 0.9, "ckpt-migrate *", ("cp + fsync *",)),
    Row("consolidate", "sharded", "consolidate ranks: beside cp + fsync", "consolidate, *", "speed", 0.9, "ckpt-migrate *", ("cp + fsync *",)),
    Row("reshard", "sharded", "re-shard ranks of DCP: beside cp + fsync", "re-shard, *", "speed", 0.9, "ckpt-migrate *", ("cp + fsync *",)),
    Row("reshard-zero", "zero", "re-shard ranks of ZeRO-3: beside cp + fsync", "re-shard, *", "speed", 0.9, "ckpt-migrate *", ("cp + fsync *",)),
    Row("migrate-peak", "migrate", "migrate: resident memory", "migrate, *", "peak", 256, "ckpt-migrate *", unit="MiB"),
    Row("sharded-peak", "sharded", "consolidate, re-shard: resident memory", "*, *ranks*", "peak", 256, "ckpt-migrate *", unit="MiB"),
    Row("list", "list", "list of 10,000 tensors", TEN, "value", 20, "list"),
    Row("show", "list", "show of 10,000 tensors", TEN, "value", 20, "show"),
    Row("json", "list", "list --json of 10,000 tensors: against list", TEN, "cost", 1.5, "list --json", ("list",)),
    Row("list-140000", "list", "list of 140,000 tensors", MORE, "value", 150, "list"),
    Row("show-140000", "list", "show of 140,000 tensors", MORE, "value", 150, "show"),
    Row("bind", "many", "a million tensors: bind", MILLION, "value", 500, "bind an arena"),
    Row("save-million", "many", "a million tensors: save", MILLION, "value", 1000, "save"),
    Row("restore-million", "many", "a million tensors: restore", MILLION, "value", 1500, "restore"),
    Row("peak-million", "many", "a million tensors: resident memory", MILLION, "peak", 763, "restore", unit="MiB"),
    Row("growth-bytes", "growth", "growth with bytes: a decade", "growth with bytes*", "growth", 12, "", unit="x"),
    Row("growth-tensors", "many", "growth with tensors: a decade", "growth with tensors*", "growth", 12, "", unit="x"),
    Row("growth-pieces", "growth", "growth with pieces: a decade", "growth with pieces*", "growth", 12, "", unit="x"),
    Row("growth-files", "growth", "growth with files: a decade", "growth with files*", "growth", 12, "", unit="x"),
)


@dataclasses.dataclass
class Case:
    group: str
    figure: float
    low: float
    high: float
    against: str = ""


@dataclasses.dataclass
class Verdict:
    row: Row
    state: str          # "reached", "missed", "measured" (there is no mark), "not measured"
    why: str = ""
    cases: list = dataclasses.field(default_factory=list)

    @property
    def worst(self):
        return (min if self.row.kind == "speed" else max)(self.cases, key=lambda case: case.figure)


def growth_of(samples):
    """(the most that a decade costs against the one before it, that decade)"""
    sizes = sorted((size for size in samples if samples[size]), key=int)
    found = [(statistics.median(samples[b]) / statistics.median(samples[a]) * 10 * int(a) / int(b), f"{a} to {b}")
             for a, b in zip(sizes, sizes[1:])]
    return max(found) if found else None


def case_of(row, group):
    """What the row says of one group; None: who is ours, or everybody else, was not measured in it."""
    samples = group["samples"]
    if row.kind == "growth":
        found = growth_of(samples)
        return Case(group["name"], found[0], found[0], found[0], found[1]) if found else None
    ours = next((name for name in samples if samples[name] and name == row.ours), None)
    if ours is None:
        return None
    if row.kind == "peak":
        peak = group.get("peak_mib", {}).get(ours)
        return Case(group["name"], peak, peak, peak) if peak else None
    if row.kind == "value":
        middle, low, high = (value * 1e3 for value in spread(samples[ours]))
        return Case(group["name"], middle, low, high)
    other = fastest(samples, [name for name in samples if name != ours and any(fnmatch.fnmatchcase(name, p) for p in row.against)])
    if other is None:
        return None
    found = spread(ratios(samples[other], samples[ours]) if row.kind == "speed" else ratios(samples[ours], samples[other]))
    middle = group["all"][ours] / group["all"][other] if "all" in group else found[0]
    return Case(group["name"], middle, found[1], found[2], other)


def judge(row, parts):
    part = parts.get(row.part)
    if part is None:
        return Verdict(row, "not measured", "the part was not run")
    if part.get("failed"):
        return Verdict(row, "not measured", part["failed"])
    groups = [g for g in part["groups"] if fnmatch.fnmatchcase(g["name"], row.groups)]
    unclean = [g for g in groups if g.get("cached", 0) > 0.001]
    if unclean:
        return Verdict(row, "not measured", f"{unclean[0]['cached']:.1%} of a file stayed in the page cache")
    cases = [case for case in (case_of(row, g) for g in groups) if case]
    if not cases:
        why = [n["why"] for n in part["notes"] if any(name in n["who"] for name in (row.ours, *row.against) if name)]
        return Verdict(row, "not measured", why[0] if why else "; ".join(sorted({n["why"] for n in part["notes"]})) or "nobody to compare with")
    verdict = Verdict(row, "measured", cases=cases)
    if row.mark is not None:
        worst = verdict.worst.figure
        verdict.state = "reached" if (worst >= row.mark if row.kind == "speed" else worst <= row.mark) else "missed"
    return verdict


def judge_all(result):
    return [judge(row, result["parts"]) for row in ROWS]


def show(row, figure):
    """A figure or a mark as text."""
    if row.kind in ("value", "peak"):
        return f"{figure:.0f} {row.unit}" if figure >= 100 else f"{figure:.1f} {row.unit}" if figure % 1 else f"{figure:.0f} {row.unit}"
    return f"{figure:.2f} x" if row.kind != "growth" else f"{figure:.1f} x"


def show_mark(row):
    if row.mark is None:
        return "none"
    return ("at least " if row.kind == "speed" else "at most ") + (f"{row.mark:g} {row.unit}" if row.kind in ("value", "peak") else f"{row.mark:g} x")
