#!/usr/bin/env python3
"""The oracle: random changes to real checkpoints, what the real program then does with them, and what doctor said it would.

usage: oracle.py CKPT-INSPECT [--count N] [--seed S] [--case SEED:NUMBER] [--only TRAINER] [--jobs N] [-v]

Of each case the trainer, its checkpoint and one or two mutations (truth_oracle_state.py, truth_oracle_mutations.py) come from SEED:NUMBER alone. The
program (truth_oracle_programs.py) loads the changed checkpoint and takes steps in a process of its own, forked from one that
has imported everything; ckpt-inspect doctor is asked the same question. Compared are the outcome and, of each error that doctor
quotes, its class and its first line (addresses and paths masked). Every disagreement is a failure, and is printed with what
reproduces it; where the truth is not defined the case is skipped, with the reason.
Default: 200 cases of seed 15. The last line is "N passed, N failed, N skipped"."""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import time
import traceback

import checks
from checks import ask, scratch, skip

LIMIT = 60                                                    # seconds of a case
ANSWER = {"resumes": (0, True), "resumes-differently": (1, True), "weights-only": (0, None), "fails-at-load": (1, False), "fails-at-step": (1, False), "unknown": (2, None)}


def arguments():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:])
    p.add_argument("inspect", type=os.path.abspath)
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--seed", type=int, default=15)
    p.add_argument("--case")
    p.add_argument("--only", default="")
    p.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("-v", action="store_true")
    return p.parse_args()


# ---------------------------------------------------------------- a case: drawn, made, judged

def drawn(seed, number):
    """(its random numbers, trainer, which of its bases): nothing but the seed and the number go in."""
    from truth_oracle_programs import BASES
    r = random.Random(f"{seed}:{number}")
    trainer = r.choices(list(BASES), [b[0] for b in BASES.values()])[0]
    return r, trainer, r.randrange(len(BASES[trainer][5]))


def mutated(view, r):
    """What was changed: one mutation, or two, or (seldom) none."""
    import truth_oracle_state, truth_oracle_mutations  # each fills the table, always in this order
    from truth_oracle_view import TABLE
    done, wanted = [], r.choices([0, 1, 2], [1, 11, 8])[0]
    for _ in range(60):
        if len(done) == wanted:
            break
        _, name, change = r.choices(TABLE, [t[0] for t in TABLE])[0]
        if name in [d.split(":")[0] for d in done] or done and "finite" in name:
            continue
        said = change(view, r)
        if said is not None:
            done.append(f"{name}: {said}")
        if view.alone:
            break
    return done


def doctor_arguments(view, trainer):
    import torch
    from truth_oracle_programs import BASES
    told = ["--for", BASES[trainer][4], "--torch", ".".join(torch.__version__.split(".")[:2]), "--devices", "cpu", *view.doctor]
    return told + (["--amp"] if view.spec.get("amp") else [])


def one(options, seed, number, base):
    """Everything about a case, as JSON."""
    from truth_oracle_programs import BASES
    from truth_oracle_view import View
    r, trainer, which = drawn(seed, number)
    _, folder, _, observe, _, specs = BASES[trainer]
    path = os.path.abspath(f"case-{number}" + ("" if folder else ".ckpt" if trainer == "lightning" else ".pt"))
    (shutil.copytree if folder else shutil.copy)(base["path"], path)
    view = View(trainer, path, specs[which][1], folder)
    done = mutated(view, r)
    result = {"case": f"{seed}:{number}", "trainer": trainer, "base": specs[which][0], "mutations": done, "areas": sorted(view.areas), "undefined": view.undefined()}
    pathlib.Path(f"info-{number}.json").write_text(json.dumps({**result, "fused": view.fused()}))
    try:
        view.save()
    except Exception as e:
        result["undefined"] = f"it cannot be saved: {type(e).__name__}: {e}"
        return result
    told = doctor_arguments(view, trainer)
    kept = pathlib.Path(f"seen-{number}")
    (shutil.copytree if folder else shutil.copy)(path, kept)  # what the program leaves behind is not what doctor is asked about
    case = {"path": path, "spec": view.spec, "home": base["path"], "base": base["held"], "parts": base["parts"], "wanted": base["wanted"], "scale": base["scale"], "truth": view.truth, "map": view.map,
            "weights_only": view.weights_only, "constructed": {}}
    seen = observe(case)
    status, answer = ask(options.inspect, "doctor", "--json", *told, kept)
    if "no JSON document" in answer.get("error", {}).get("message", ""):
        raise RuntimeError(answer["error"]["message"])        # the command itself did not run
    result.update(told=told, outcome=seen["outcome"], why=[str(w)[:600] for w in seen["why"]], status=status, answer=answer.get("outcome", "unreadable"),
                  will=answer.get("will_resume"), said=answer.get("error", {}).get("message", ""),
                  findings=[(f["severity"], f["code"], f["message"]) for f in answer.get("findings", []) or []])
    if not os.environ.get("ORACLE_KEEP"):
        os.remove(f"info-{number}.json")
        shutil.rmtree(path, ignore_errors=True) if folder else os.path.exists(path) and os.remove(path)
        shutil.rmtree(kept, ignore_errors=True) if folder else os.remove(kept)
    return result


# ---------------------------------------------------------------- the comparison

def masked(text):
    text = re.sub(r"0x[0-9a-fA-F]+", "0x", re.sub(r"(/[\w.@+-]+)+", "/", text))
    return " ".join(text.split())


def quoted(findings):
    """What doctor says the error is: (classes, texts), of its findings of severity error."""
    classes, texts = set(), set()
    for severity, _, message in findings:
        if severity != "error":
            continue
        classes |= set(re.findall(r"\b[A-Z]\w*(?:Error|Exception)\b", message))
        texts |= {t for t in re.findall(r'(?:fails?(?: at \S+)? with|Error|:) \(?"([^"]{8,})"', message)}
        texts |= {f"{c}: {t}" for c, t in re.findall(r"\b(KeyError): ('[^']*')", message)}
    return classes, texts


def error_differs(result):
    """What is wrong of the errors that doctor quotes; None where nothing is."""
    if not result["outcome"].startswith("fails") or result["answer"] != result["outcome"]:
        return None
    real = result["why"][0]
    classes, texts = quoted(result["findings"])
    kind, line = real.split(":")[0], masked(real)
    if any(s == "error" and not any(quoted([(s, c, m)])) for s, c, m in result["findings"]):
        return None                                           # that one may be the error, and says no words of it
    if any(re.search(".*".join(re.escape(masked(p)) for p in t.split("...")), line) for t in texts) or not classes and not texts:
        return None
    if kind not in classes or any(t.startswith(kind + ":") for t in texts):
        return f"the error is {real[:300]!r}, quoted are {sorted(classes | texts)}"
    return None


def compare(result):
    """(kind of disagreement, or None; what to print)."""
    truth, answer = result["outcome"], result["answer"]
    loud = " ".join(code for severity, code, _ in result["findings"] if severity != "note")
    said = f"seen {truth} ({'; '.join(result['why'])[:400]}), predicted {answer} ({loud or result['said'][:200]})"
    if answer == "unreadable":
        return (None if truth == "fails-at-load" else "false failure"), said
    if (result["status"], result["will"]) != ANSWER[answer] and answer != "weights-only":
        return "status", f"{answer} with status {result['status']} and will_resume {result['will']}"
    if answer == "unknown":
        return "unknown", said
    if answer == "weights-only" and "weights-only" in result["areas"] and truth.startswith("resumes"):
        return None, said
    if answer == truth:
        wrong = error_differs(result)
        return ("error text" if wrong else None), wrong or said
    if answer in ("resumes", "weights-only"):
        return "false resumes", said
    if answer.startswith("fails") and truth.startswith("resumes"):
        return "false failure", said
    return "false alarm" if truth == "resumes" else "another outcome", said


# ---------------------------------------------------------------- bases, processes

def prepared(plan):
    """{(trainer, number): base} for all that the plan needs; why not, for those that cannot be made."""
    import torch
    from truth_oracle_programs import BASES
    bases, missing = {}, {}
    for trainer, which in sorted({p[1:] for p in plan}):
        _, folder, made, _, _, specs = BASES[trainer]
        path = os.path.abspath(f"base-{trainer}-{which}")
        try:
            held, wanted, scale = made(specs[which][1], path)
        except ImportError as e:
            missing[trainer, which] = f"{trainer}: {e}"
            continue
        file = next((os.path.join(path, n) for n in ("optimizer.bin", "optimizer.pt") if folder and os.path.exists(os.path.join(path, n))), None)
        bases[trainer, which] = {"path": path, "held": held, "wanted": wanted, "scale": scale, "parts": {"optimizer": torch.load(file, weights_only=False)} if file else {}}
    return bases, missing


def child(options, seed, number, base):
    """A case in a process of its own; its answer is result-NUMBER.json."""
    signal.alarm(LIMIT)
    os.setsid()
    try:
        with open(os.devnull, "w") as null:
            if not options.case:
                os.dup2(null.fileno(), 1)
                os.dup2(null.fileno(), 2)
        result = one(options, seed, number, base)
    except BaseException:
        result = {"case": f"{seed}:{number}", "broken": traceback.format_exc()[-1500:]}
    pathlib.Path(f"result-{number}.json").write_text(json.dumps(result, default=str))
    os._exit(0)


def ended(seed, number, status):
    """Of a process that ended by itself: a fused kernel that read past the end of a moment may have taken it along."""
    from truth_oracle_view import FUSED
    info = pathlib.Path(f"info-{number}.json")
    known = json.loads(info.read_text()) if info.exists() else {}
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS) and known.get("fused"):
        return {**known, "undefined": f"{FUSED} (it ended with signal {os.WTERMSIG(status)})"}
    return {"case": f"{seed}:{number}", "broken": f"the process ended with status {status} (limit: {LIMIT} s): {known.get('trainer')}, {known.get('base')} {known.get('mutations')}"}


def all_run(options, cases, bases):
    """Yields the results, in the order of the cases."""
    running, left, results, shown = {}, collections.deque(cases), {}, 0
    while left or running:
        while left and len(running) < options.jobs:
            seed, number, key = left.popleft()
            pid = os.fork()
            if pid == 0:
                child(options, seed, number, bases[key])
            running[pid] = (seed, number)
        pid, status = os.wait()
        seed, number = running.pop(pid)
        file = pathlib.Path(f"result-{number}.json")
        results[number] = json.loads(file.read_text()) if file.exists() else ended(seed, number, status)
        while shown < len(cases) and cases[shown][1] in results:
            yield results.pop(cases[shown][1])
            shown += 1


def main():
    options = arguments()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        import torch
    except ImportError as e:
        skip(e)
    import logging
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    import truth_oracle_programs as programs
    began = time.monotonic()
    if options.case:
        seed, number = map(int, options.case.split(":"))
        numbers = [number]
    else:
        seed, numbers = options.seed, range(options.count)
    plan = [(n, *drawn(seed, n)[1:]) for n in numbers]
    plan = [p for p in plan if options.only in p[1]]
    kinds, trainers, failed, skipped = collections.Counter(), collections.defaultdict(collections.Counter), 0, 0
    with scratch():
        bases, missing = prepared(plan)
        for why in sorted(set(missing.values())):
            print(f"not run {why}")
        skipped += sum(p[1:] in missing for p in plan)
        print(f"seed {seed}, {len(plan)} cases of {len(bases)} checkpoints, {time.monotonic() - began:.0f} s", flush=True)
        for result in all_run(options, [(seed, n, (t, w)) for n, t, w in plan if (t, w) in bases], bases):
            if "broken" in result:
                kinds["broken"] += 1
                print(f"not ok {result['case']}: the oracle broke: {result['broken']}", flush=True)
                continue
            what = f"{result['case']} {result['trainer']}, {result['base']} [{' | '.join(result['mutations']) or 'as it was'}]"
            counts = trainers[result["trainer"]]
            if result["undefined"]:
                skipped += 1
                counts["undefined"] += 1
                print(f"skipped {what}: {result['undefined']}", flush=True)
                continue
            kind, said = compare(result)
            kinds[kind] += 1
            counts[kind or "equal"] += 1
            counts["all"] += 1
            if kind or options.v or options.case:
                print(f"{'unknown' if kind == 'unknown' else 'not ok ' + kind if kind else 'ok'} {what}: {said}", flush=True)
            if options.case:
                print(json.dumps(result, indent=1))
        if os.environ.get("ORACLE_KEEP"):
            shutil.copytree(".", os.environ["ORACLE_KEEP"], dirs_exist_ok=True)
    compared = sum(kinds.values())
    names = ("false resumes", "false failure", "false alarm", "another outcome", "unknown", "error text", "status", "broken")
    print(f"\n{'trainer':14}{'cases':>8}{'equal':>8}" + "".join(f"{n:>17}" for n in names[:6]) + f"{'undefined':>11}")
    for trainer in programs.BASES:
        c = trainers[trainer]
        print(f"{trainer:14}{c['all']:>8}{c['equal']:>8}" + "".join(f"{c[n]:>17}" for n in names[:6]) + f"{c['undefined']:>11}")
    print(", ".join(f"{kinds[n]} {n}" for n in names) + f"; unknown: {100 * kinds['unknown'] / max(1, compared):.1f} %; {time.monotonic() - began:.0f} s")
    failed = compared - kinds[None] - kinds["unknown"]
    if kinds["unknown"] > compared / 10:
        failed += 1
        print("not ok: more than a tenth is unknown")
    if not compared and not options.case:
        failed += 1
        print("not ok: nothing was compared")
    print(f"{kinds[None] + kinds['unknown']} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
