#!/usr/bin/env python3
"""run.py - all benchmarks, or some parts of them, against the marks of marks.py.

    run.py --build BUILD --dir DIR --mib MIB --rounds N --json FILE [--part NAME[,NAME]] [--quick] [--converters]
    run.py --json FILE --publish TREE      FILE becomes the result that TREE shows (make bench-publish)
    run.py --json FILE --table             its table again

Each part is a process of its own. Its groups of samples replace those of the same part in FILE, so that a machine that is quiet for
minutes only can run one part after the other. Then the table of all marks is printed, and FILE's chart is drawn beside it (.svg).
"""
import argparse
import os
import signal
import subprocess
import sys
import time

import commands
import growth
import machine
import report
import restore
import save
import sharded
import stall
from measure import Bench, NotMeasured

PARTS = {"restore": restore.measure_warm, "cold": restore.measure_cold, "save": save.measure_save,
         "save-peers": save.measure_save_peers, "stall": stall.measure_stall,
         "steps": stall.measure_steps, "migrate": commands.measure_migrate, "sharded": sharded.measure_sharded, "zero": sharded.measure_zero,
         "list": commands.measure_list, "many": growth.measure_many, "growth": growth.measure_growth}
QUICK_MIB, QUICK_ROUNDS = 256, 2


def measure_part(options, name):
    bench = Bench(options.build, options.dir, options.mib, options.rounds, options.quick, options.converters)
    print(f"{name}: {options.mib} MiB, {options.rounds} rounds", flush=True)
    start, failed = time.monotonic(), None
    try:
        PARTS[name](bench)
    except (NotMeasured, ImportError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        failed = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"  failed: {failed}", flush=True)
    if bench.built is None:
        bench.serve("version", 1, 1024).close()
    part = {**machine.describe(bench), "seconds": round(time.monotonic() - start), "groups": bench.groups, "notes": bench.notes}
    if failed:
        part["failed"] = failed
    result = report.load(options.json)
    result["parts"][name] = part
    report.store(result, options.json)
    return failed is None


def main():
    parser = argparse.ArgumentParser(description="Measures this library beside its peers.")
    parser.add_argument("--build", default=".")
    parser.add_argument("--dir", default=".")
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", default="result.json")
    parser.add_argument("--part", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--converters", action="store_true")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--publish", metavar="TREE")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.publish:
        report.publish(report.load(options.json), options.publish)
        return 0
    if options.table:
        print(report.table(report.load(options.json)))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))     # files that a part has made are removed
    names = [name for name in options.part.split(",") if name] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]}: {', '.join(PARTS)}")
    if options.quick:
        options.mib, options.rounds = min(options.mib, QUICK_MIB), min(options.rounds, QUICK_ROUNDS)
    if len(names) == 1:
        good = measure_part(options, names[0])
    else:
        again = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--part"]
        good = all([subprocess.run([*again, name, "--inner"]).returncode == 0 for name in names])
    if not options.inner:
        report.finish(report.load(options.json), options.json)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
