#!/usr/bin/env python3
"""doctor against reality: what it predicts of a checkpoint, and what the real program then does with that checkpoint.

usage: doctor_truth.py CKPT-INSPECT [-v]

Each situation is built in the real program and saved; then a loader (torch of today, an old torch, Lightning, accelerate,
the HF Trainer, libtorch in C++, ckpt_restore in C) loads it and takes the next steps, and what it did is held against
ckpt-inspect doctor for the same file.
An outcome is one of doctor's own: resumes-differently is what goes on with other flags, state, dtype, losses or a copy
from the GPU in each step than an unbroken run. Beside it the flags after the load (`effective`) must be equal, and the
findings that the situation is about must be there. A situation that cannot be run here is "not run", never equal; a
difference counts as right only with a row in truth_explained.py that says why. The old torch is that of $CKPT_OLD_PYTHON,
else of /usr/bin/python3. CKPT_TRUTH_KEEP=FOLDER keeps the files and what was seen (seen.json);
CKPT_TRUTH_ONLY=TEXT takes the situations whose name holds it. CKPT_TRUTH_GPU=real takes the cases on a GPU alone and runs them on the first GPU of this
machine (tests/gpu/run.sh); one that needs two GPUs is not run there. The last line is "N passed, N failed, N skipped"."""
import collections
import concurrent.futures
import json
import logging
import os
import pathlib
import re
import shutil
import sys

import checks
from checks import ask, commands, run, scratch, skip
from truth_tools import Row, claimed_devices, tagged

OLD = os.environ.get("CKPT_OLD_PYTHON", "/usr/bin/python3")
KEEP = os.environ.get("CKPT_TRUTH_KEEP") and os.path.abspath(os.environ["CKPT_TRUTH_KEEP"])
ONLY = os.environ.get("CKPT_TRUTH_ONLY", "")
REAL = os.environ.get("CKPT_TRUTH_GPU") == "real"
LABELS = {"new": "torch", "new-gpu": "torch, GPU", "old": "old torch", "old-gpu": "old torch, GPU", "lightning": "Lightning",
          "accelerate": "accelerate", "hf-trainer": "HF Trainer", "bitsandbytes": "torch, bitsandbytes", "cpp": "libtorch in C++",
          "ckpt": "ckpt_restore", "ckpt-gpu": "ckpt_restore, GPU"}


def old_torch():
    """The version of the old torch, or why there is none."""
    there = run(OLD, "-c", "import torch; print(torch.__version__)") if os.path.exists(OLD) else None
    if there is None or there.returncode != 0:
        return None, f"{OLD} has no torch (Debian: python3-torch)"
    version = re.match(r"(\d+)\.(\d+)", there.stdout)
    if int(version[1]) >= 2 and int(version[2]) >= 6:
        return None, f"the torch of {OLD} is {there.stdout.strip()}, not an old one"
    return f"{version[1]}.{version[2]}", None


def options(case, version):
    """What doctor is told of the program."""
    told = {"--for": "torch", "--torch": version or "", "--devices": "cuda:1" if case["column"].endswith("gpu") else "cpu"}
    if isinstance(case["map"], str):
        told["--map-location"] = case["map"]
    more = case["doctor"]
    told.update({k: v for k, v in zip(more, [*more[1:], ""]) if k.startswith("--") and k != "--amp"})
    return [x for pair in told.items() for x in pair] + [o for o in more if o == "--amp"]


def stand_in():
    """Why FakeTensorMode of this torch is no stand-in for a GPU; None where it is: a plain optimizer resumes on it."""
    import torch
    import truth_program as program
    held, _, _ = program.make(torch, {})
    with tagged("cuda:0"):
        torch.save(held, "probe.pt")
    seen = program.observe(torch, {"file": "probe.pt", "map": None, "gpu": "fake"})
    return None if seen["outcome"] == "resumes" and seen["loaded"] == ["cuda:0"] else f"no stand-in for a GPU in this torch: {seen['why']}"


def torch_situations(old_version, why_no_old):
    """Every situation's file made, every case run: the rows, those of the old torch in one process at the end; and what was
    made, for loaders that are not torch's: (situation, file, what it holds, the next losses, the scale)."""
    import torch
    import truth_program as program
    from truth_situations import TABLE
    version = ".".join(torch.__version__.split(".")[:2])
    pathlib.Path("names").write_text("\n".join(program.SHAPES) + "\n")
    rows, jobs, built, no_gpu = [], [], [], None if REAL else stand_in()
    for number, s in enumerate(TABLE):
        if ONLY not in s["name"]:
            continue
        held, wanted, scale = program.make(torch, s["make"])
        file = f"{number:03d}-{re.sub('[^A-Za-z0-9]+', '-', s['name']).strip('-')}.pt"
        if s["edit"]:
            s["edit"](held)
        layout = s["make"].get("layout")
        with tagged(s["tag"]):
            torch.save(program.LAYOUTS[layout][0](held) if layout else held, file)
        built.append((s, file, held, wanted, scale))
        for case in s["cases"]:
            if REAL and case["column"] != "new-gpu":
                continue
            gpu = {"new-gpu": "real" if REAL else "fake", "old-gpu": "meta"}.get(case["column"])
            job = {**s["make"], **case["job"], "file": os.path.abspath(file), "map": case["map"], "wanted": wanted, "wanted_scale": scale, "gpu": gpu}
            if case["column"].startswith("old"):
                job["tolerance"] = 1e-4                       # the unbroken run is that of another torch
            row = Row(s["name"], case["column"], file, options(case, old_version if case["column"].startswith("old") else version), case["codes"], {}, "")
            if case["column"] == "new-gpu" and no_gpu:
                row = row._replace(note=no_gpu)
            elif REAL and (case["job"].get("at") or isinstance(s["tag"], dict) or "cuda:2" in case["doctor"]):
                row = row._replace(note="it needs two GPUs")
            elif not case["column"].startswith("old"):
                with claimed_devices(case["job"].get("claimed")):
                    row.seen.update(program.observe(torch, job))
            elif old_version:
                jobs.append((row, job))
            else:
                row = row._replace(note=why_no_old)
            rows.append(row)
    for (row, _), seen in zip(jobs, in_old([job for _, job in jobs])):
        row.seen.update(seen)
    return rows + ([] if REAL else of_the_old(version, old_version, why_no_old)), built


def in_old(jobs):
    """What the old torch answers to each, in one process."""
    import truth_program as program
    if not jobs:
        return []
    pathlib.Path("jobs.json").write_text(json.dumps(jobs))
    done = run(OLD, "-W", "ignore", program.__file__, "jobs.json")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    lost = {"outcome": f"status {done.returncode}", "why": [f"the old torch ended: {done.stderr[-300:]}"]}
    return answers + [lost] * (len(jobs) - len(answers))


def of_the_old(version, old_version, why_no_old):
    """Files that the old torch wrote, for both."""
    import torch
    import truth_program as program
    specs = [({"optimizer": "Adam"}, "Adam"), ({"optimizer": "AdamW", "groups": 2, "schedule": True}, "AdamW, a schedule"),
             ({"optimizer": "SGD", "hyper": {"lr": 0.1, "momentum": 0.9}, "rng": True}, "SGD with momentum, an RNG state"),
             ({"optimizer": "AdamW", "hyper": {"lr": 0.01, "amsgrad": True}}, "AdamW, amsgrad")]
    specs = [(spec, f"of an old torch: {name}") for spec, name in specs if ONLY in f"of an old torch: {name}"]
    if not old_version:
        return [Row(name, c, "", [], [], {}, why_no_old) for _, name in specs for c in ("new", "old")]
    files = [f"of-old-{n}.pt" for n in range(len(specs))]
    wanted = in_old([{**spec, "write": True, "file": os.path.abspath(file)} for (spec, _), file in zip(specs, files)])
    jobs = [{**spec, "file": os.path.abspath(file), "wanted": w, "tolerance": 1e-4} for (spec, _), file, w in zip(specs, files, wanted)]
    told = {c: ["--for", "torch", "--torch", v or "", "--devices", "cpu"] for c, v in (("new", version), ("old", old_version))}
    rows = [Row(name, "new", file, told["new"], [], program.observe(torch, job), "") for (_, name), file, job in zip(specs, files, jobs)]
    return rows + [Row(name, "old", file, told["old"], [], seen, "") for (_, name), file, seen in zip(specs, files, in_old(jobs))]


# of an outcome: doctor's exit status, and its will_resume
ANSWER = {"resumes": (0, True), "resumes-differently": (1, True), "fails-at-load": (1, False), "fails-at-step": (1, False), "unknown": (2, None), "weights-only": (0, None)}


def compare(row, status, answer, explained):
    """(equal, what is wrong, why an other outcome is right): the outcome, the flags after the load, the findings that must be
    there and those that must not. Only the outcome can be explained."""
    seen, wrong = row.seen, []
    outcome = answer.get("outcome", "none: " + answer.get("error", {}).get("message", "")[:100])
    found = [f["code"] for f in answer.get("findings", [])]
    if (status, answer.get("will_resume")) != ANSWER.get(outcome):
        wrong.append(f"{outcome}, with exit status {status} and will_resume {answer.get('will_resume')}")
    after = seen.get("after")
    if after and outcome != "fails-at-load":
        for flag in "fused", "capturable", "foreach":
            value = answer["effective"][flag] if "effective" in answer else "not answered"
            if bool(value) != bool(after.get(flag)):
                wrong.append(f"{flag} after the load is {after.get(flag)}, predicted {value}")
    wrong += [f"{code}, which is not so" for code in seen.get("absent", []) if code in found]
    codes = [*row.codes] + (["weights-only-refused"] if "Weights only load failed" in seen.get("error", "") else [])
    # That torch matches by position, and that nothing checks it, is a warning where another order would fit too: whichever it was.
    quiet = {c.split()[0] for c in codes} | {"order-ambiguous", "order-hypothesis"}
    loud = [f["code"] for f in answer.get("findings", []) if f["severity"] != "note" and f["code"] not in quiet]
    if outcome == "resumes" == seen["outcome"] and loud:
        wrong.append(f"it resumes as it was, and doctor warns: {' '.join(loud)}")
    for code in codes:                                        # "code about" wants a finding that names what it is about
        code, _, about = code.partition(" ")
        if not any(f["code"] == code and about in f"{f['tensor']} {f['message']}" for f in answer.get("findings", [])):
            wrong.append(f"no finding {code} {about} ({' '.join(found)})")
    why = None
    if outcome != seen["outcome"]:
        why = explained(row, outcome)
        said = f"seen {seen['outcome']} ({'; '.join(seen['why'])[:300]}), predicted {outcome} ({' '.join(found)})"
        if why and not wrong:
            return True, said, why
        wrong.insert(0, said)
    return not wrong, "; ".join(wrong), None


def keep(rows):
    """The files of all situations, and what was seen (seen.json), for whoever mends a difference."""
    folder = pathlib.Path(KEEP)
    folder.mkdir(parents=True, exist_ok=True)
    for file in {r.file for r in rows if r.file and os.path.exists(r.file)} | {"names"}:
        if os.path.isdir(file):
            shutil.copytree(file, folder / file, dirs_exist_ok=True)
        else:
            shutil.copy(file, folder / file)
    (folder / "seen.json").write_text(json.dumps([r._asdict() for r in rows], indent=1, default=str))


def main():
    (inspect,) = commands(__doc__, 1)
    try:
        import torch
    except ImportError as e:
        skip(e)
    logging.getLogger("torch").setLevel(logging.CRITICAL)       # what fails here is wanted
    from truth_explained import NOT_RUN, ROWS, explained
    old_version, why_no_old = old_torch()
    print(f"torch {torch.__version__}; old torch: {old_version or why_no_old}")
    table, used = collections.defaultdict(collections.Counter), set()
    with scratch():
        rows, built = torch_situations(old_version, why_no_old)
        others = "truth_cpp", "truth_ckpt", "truth_bitsandbytes", "truth_lightning", "truth_accelerate", "truth_hf_trainer"
        for module in () if REAL else others:
            try:
                rows += __import__(module).situations(ONLY, built)
            except ImportError as e:
                rows.append(Row("all of it", module[6:].replace("_", "-"), "", [], [], {}, str(e)))
        if KEEP:
            keep(rows)
        told = [r for r in rows if not r.note and r.seen.get("outcome") != "not run"]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            answers = dict(zip(map(id, told), pool.map(lambda r: ask(inspect, "doctor", "--json", *r.doctor, r.file), told)))
        for row in rows:
            what = f"{row.name}, {LABELS[row.column]}, {' '.join(o for o in row.doctor if not o.startswith('--torch'))}"
            if row.note or row.seen.get("outcome") == "not run":
                table[row.column]["not run"] += 1
                print(f"not run {what}: {row.note or row.seen['why'][0]}")
                continue
            equal, wrong, why = compare(row, *answers[id(row)], explained)
            used.add(why)
            table[row.column]["explained" if why else "equal" if equal else "different"] += 1
            checks.passed, checks.failed = checks.passed + equal, checks.failed + (not equal)
            if not equal or why or "-v" in sys.argv:
                print(f"{'ok' if equal else 'not ok'} {what}: " + (f"explained: {why}; " if why else "") + (wrong or row.seen["outcome"]), flush=True)
    for row in ROWS:
        if not ONLY and not REAL and not any(r.note for r in rows) and row[-1] not in used:
            checks.failed += 1
            print(f"not ok an explanation that nothing needs: {row[0]}: {row[-1]}")
    if not checks.passed and not ONLY:
        checks.failed += 1
        print("not ok: nothing was compared")
    for column, name, why in () if REAL else NOT_RUN:
        table[column]["not run"] += 1
        print(f"not run {name}: {why}")
    print(f"{'loader':20}{'equal':>10}{'explained':>10}{'different':>10}{'not run':>10}")
    for column, counts in table.items():
        print(f"{LABELS[column]:20}" + "".join(f"{counts[k]:>10}" for k in ("equal", "explained", "different", "not run")))
    print(f"{checks.passed} passed, {checks.failed} failed, {sum(c['not run'] for c in table.values())} skipped")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
