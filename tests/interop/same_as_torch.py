#!/usr/bin/env python3
"""The same checkpoint as torch sees, or a refusal: torch.load against list, verify and doctor.

    same_as_torch.py CKPT-INSPECT [--count N] [--seed S] [--only crafted|mutants] [--keep DIR] [-v]

Crafted files and mutants of files that torch saved (zip and legacy: bytes and opcodes of pickles, records, fields of the
directory, end records, with right CRCs) are loaded by torch in a sandboxed process, with weights_only=True and False, and read by
`list --checksum`, `verify` and `doctor`. A failure is
  - a tensor that list shows with another dtype, shape or content than torch's, one that torch does not have, or one that it has
    and list lacks without a word;
  - "ok" of verify where torch.load(weights_only=False) raises;
  - a verdict of doctor that it resumes where torch.load raises in the mode that doctor assumes.
What is refused here and loads in torch is counted, with its reasons: files of real programs must not be among them.
By hand: --count 20000 --seed 7. The last line is "N passed, N failed".
"""
import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", FAKECUDA_DEVICES="0")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import torch
import truth_torch_cases
import truth_torch_files
import truth_torch_load

torch.set_num_threads(1)

# What torch says of the program that loads, not of the file: a class that is not installed there, an attribute of its own module.
NOT_THE_FILE = ("ModuleNotFoundError", "ImportError", "MemoryError")


def ask(inspect, *args):
    done = subprocess.run([inspect, *args], capture_output=True, timeout=60)
    try:
        return done.returncode, json.loads(done.stdout.decode(errors="replace"))
    except ValueError:
        return done.returncode, {}


def text_of(path):
    return "\0".join("storage" if str(k).startswith("('storage', ") else str(k) for k in path)


def compare(torch_says, listed):
    """What is wrong with the list of a file that torch loads, in a word and a sentence; None: nothing."""
    theirs = {k: [tuple(map(json.dumps, d)) for d in v] for k, v in torch_says["tensors"].items()}
    closed = torch_says["closed"]
    ours = collections.defaultdict(list)
    for t in listed["tensors"]:
        ours[text_of(t["path"])].append(t)
    unlisted = any(f["code"] in ("closed-tensors", "calls-dropped") for f in listed["findings"])

    def below(key):
        return any(key == c or c == "" or key.startswith(c + "\0") for c in closed)

    for key, tensors in ours.items():
        if key not in theirs:
            if not below(key):
                return "dead", f"torch has no tensor {key!r}"
            continue
        if len(tensors) != len(theirs[key]) and not below(key):
            return "names", f"{key!r} {len(tensors)} times, torch {len(theirs[key])} times"
        for t in tensors:
            shape = t["shape"]
            fits = any(json.loads(d) == t["dtype"] and (json.loads(s) is None or json.loads(s) == shape) and
                       (json.loads(c) is None or json.loads(c) == t.get("crc32")) for d, s, c in theirs[key])
            if not fits:
                return "values", f"{key!r} is {t['dtype']} {shape} {t.get('crc32')}, torch has {theirs[key]}"
    for key in theirs:
        if key not in ours and not below(key) and not unlisted:
            return "missing", f"torch has a tensor {key!r}"
    return None


class Campaign:
    def __init__(self, inspect, keep, verbose):
        self.inspect, self.keep, self.verbose = inspect, keep, verbose
        self.counts, self.refused, self.shown, self.failed, self.number = collections.Counter(), collections.Counter(), {}, 0, 0
        self.folder = tempfile.TemporaryDirectory(prefix="same_as_torch.")
        self.empty = pathlib.Path(self.folder.name, "empty")
        self.empty.mkdir()

    def fail(self, kind, label, said, data):
        self.counts[kind] += 1
        self.failed += 1
        if self.counts[kind] <= 12 or self.verbose:
            print(f"FAIL {kind}: {label}: {' '.join(str(said).split())[:400]}", flush=True)
        if self.keep:
            pathlib.Path(self.keep).mkdir(parents=True, exist_ok=True)
            pathlib.Path(self.keep, f"{kind}-{self.number}.pt").write_bytes(data)

    def file(self, label, data, wanted=True):
        self.number += 1
        path = str(pathlib.Path(self.folder.name, "file.pt"))
        pathlib.Path(path).write_bytes(data)
        before = self.failed
        plain, safe = (truth_torch_load.load(path, mode, str(self.empty)) for mode in (False, True))
        rc, listed = ask(self.inspect, "list", "--checksum", "--json", path)
        if rc < 0 or rc > 2:
            self.fail("crash", label, f"list ends with status {rc}", data)
            return
        self.against_list(label, data, (plain, safe), rc, listed, wanted)
        if rc == 0 and listed.get("format") == "pickle":
            self.counts["no file of torch.save any more"] += 1
        elif rc == 0:
            self.against_verify(label, data, plain, path)
            self.against_doctor(label, data, (plain, safe), path)
        if self.failed == before:
            self.counts["passed"] += 1

    def against_list(self, label, data, answers, rc, listed, wanted):
        loads = [a for a in answers if "tensors" in a]
        self.counts["torch loads"] += bool(loads)
        if rc != 0:
            if loads:
                why = listed.get("error", {}).get("message", "?")
                self.counts["refused here, loaded there"] += 1
                key = "".join(c for c in why if not c.isdigit())[:110]
                self.refused[key] += 1
                self.shown.setdefault(key, label)
                if wanted and self.verbose:
                    print(f"refused {label}: {why[:200]}")
            return
        for a in loads:
            wrong = compare(a, listed)
            if wrong:
                self.fail(wrong[0], label, wrong[1], data)
                return

    def against_verify(self, label, data, plain, path):
        rc, said = ask(self.inspect, "verify", "--json", path)
        if rc == 0 and "error" in plain and not plain["kind"] in NOT_THE_FILE:
            if self.no_class(plain):
                self.counts["needs a class that is not there"] += 1
            else:
                self.fail("verify ok", label, plain["error"], data)
        if rc == 1 and "tensors" in plain:
            codes = {f["code"] for f in said.get("findings", []) if f["severity"] == "error"}
            self.counts["verify: " + ", ".join(sorted(codes)) + ", and torch loads"] += 1
            if "torch-refuses" in codes:
                self.fail("false torch-refuses", label, [f["message"] for f in said["findings"]], data)

    def no_class(self, answer):
        """Attributes of modules that torch does not bring: a name that pickle cannot find is the program's."""
        return answer["kind"] == "AttributeError" and "Can't get attribute" in answer["error"]

    def against_doctor(self, label, data, answers, path):
        for answer, word in zip(answers, ("no", "yes")):
            rc, said = ask(self.inspect, "doctor", "--json", "--load-weights-only", word, path)
            if rc == 0 and said.get("will_resume") and "error" in answer and answer["kind"] not in NOT_THE_FILE and not self.no_class(answer):
                self.fail("false resumes", f"{label} (weights_only {word})", answer["error"], data)
            if rc == 1 and "tensors" in answer and said.get("outcome") == "fails-at-load":
                codes = sorted({f["code"] for f in said["findings"] if f["severity"] == "error"})
                self.counts[f"doctor {word}: {', '.join(codes)}, and torch loads"] += 1

    def report(self):
        for what, n in sorted(self.counts.items()):
            print(f"  {n:6} {what}")
        for why, n in self.refused.most_common(25):
            print(f"  {n:6} refused: {why}  [{self.shown[why]}]")
        print(f"{self.counts['passed']} passed, {self.failed} failed")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("inspect")
    p.add_argument("--count", type=int, default=150)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only")
    p.add_argument("--keep")
    p.add_argument("-v", action="store_true")
    a = p.parse_args()
    c = Campaign(str(pathlib.Path(a.inspect).resolve()), a.keep, a.v)
    if a.only != "mutants":
        for label, data in truth_torch_cases.crafted():
            c.file(label, data)
    source, made = truth_torch_files.mutants(truth_torch_cases.bases(), random.Random(a.seed)), 0
    while a.only != "crafted" and made < a.count:
        label, data = next(source)
        c.file(f"mutant {made} of seed {a.seed}, {label}", data)
        made += 1
    print(f"{c.number} files, {made} mutants of seed {a.seed}")
    c.report()
    sys.exit(1 if c.failed else 0)


if __name__ == "__main__":
    main()
