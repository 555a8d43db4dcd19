"""growth.py - what a million tensors cost, and how the costs grow over three decades: with the bytes, the tensors, the pieces, the files.

A group of growth has a series of samples for each size. Linear means that a decade costs ten times the one before it; what a process
or a file costs once makes it less.
"""
import json
import os
import shutil
import struct
import subprocess

from measure import NotMeasured, Run, gone, warm


def lines_of(text):
    """[(size, step, peak in KiB, seconds)] of the lines that begin with '#' (bench/many.c, bench/plans.c)."""
    found = []
    for line in text.splitlines():
        if line.startswith("# "):
            size, step, peak, seconds = (word.strip() for word in line[2:].split(",", 3))
            found.append((int(size), step, int(peak), [float(word) for word in seconds.split()]))
    return found


def run_lines(command):
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise NotMeasured(ran.stderr.strip())
    return lines_of(ran.stdout)


def measure_many(b):
    most = 100000 if b.quick else 1000000
    rounds = 1 if b.quick else min(b.rounds, 2)
    found = run_lines([b.program("many"), b.folder, b.program("ckpt-inspect"), b.program("ckpt-migrate"), str(rounds), str(most)])
    last = max(size for size, *_ in found)
    if last < 1000000:
        b.note("a million tensors", "left out by --quick")
    samples = {step: seconds for size, step, _, seconds in found if size == last}
    peaks = {step: round(peak / 1024, 1) for size, step, peak, _ in found if size == last}
    b.keep(f"{last} tensors of 16 bytes", samples, extra={"peak_mib": peaks})
    for step in samples:
        b.keep(f"growth with tensors: {step}", {str(size): seconds for size, name, _, seconds in found if name == step})


def grow_bytes(b):
    jobs = {"save": {}, "restore": {}, "durable save": {}}
    for mib in (2, 20, 200, 2000):
        if mib <= b.mib:
            ours = b.serve("growth", mib, 1024)
            jobs["save"][str(mib)] = [ours.job("save")() for _ in range(b.rounds + 1)][1:]
            warm(ours.path)
            jobs["restore"][str(mib)] = [ours.job("restore")() for _ in range(b.rounds + 1)][1:]
            jobs["durable save"][str(mib)] = [ours.job("save+sync")() for _ in range(b.rounds + 1)][1:]
            ours.close()
    for name, samples in jobs.items():
        b.keep(f"growth with bytes (MiB): {name}", samples)


def make_shards(folder, count):
    """A model of `count` safetensors files with a tensor of 4 KiB each, and their index."""
    os.makedirs(folder)
    names = {}
    for i in range(count):
        head = json.dumps({f"layers.{i}.weight": {"dtype": "F32", "shape": [1024], "data_offsets": [0, 4096]}}).encode()
        head += b" " * (-len(head) % 8)
        name = f"model-{i + 1:05}-of-{count:05}.safetensors"
        with open(os.path.join(folder, name), "wb") as f:
            f.write(struct.pack("<Q", len(head)) + head + bytes(4096))
        names[f"layers.{i}.weight"] = name
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": 4096 * count}, "weight_map": names}, f)


def grow_files(b):
    folder, target = b.path("shards"), b.path("whole.safetensors")
    inspect, migrate = b.program("ckpt-inspect"), b.program("ckpt-migrate")
    commands = {"show": [inspect, "show", folder], "verify": [inspect, "verify", folder],
                "migrate": [migrate, "--force", "--no-sync", "-q", "--lossy", "--to", "safetensors", folder, target]}
    samples = {name: {} for name in commands}
    for count in (10, 100, 1000) if b.quick else (10, 100, 1000, 10000):
        make_shards(folder, count)
        for name, command in commands.items():
            try:
                samples[name][str(count)] = [Run(command)() for _ in range(b.rounds + 1)][1:]
            except NotMeasured as why:
                b.note(f"growth with files: {name} of {count}", why)
        shutil.rmtree(folder)
        gone(target)
    for name, found in samples.items():
        b.keep(f"growth with files: {name}", found)


def measure_growth(b):
    grow_bytes(b)
    grow_files(b)
    if b.quick:
        b.note("growth with pieces", "left out by --quick")
        return
    found = run_lines([b.program("plans"), "growth", str(min(b.rounds, 3))])
    b.keep("growth with pieces: a plan and its copies", {str(size): seconds for size, _, _, seconds in found})
