"""machine.py - where and by what a part was measured: no name of a host, no path."""
import os
import platform
import subprocess
import time

from measure import PEERS, version


def first_line(path, key):
    try:
        with open(path) as f:
            return next((line.split(":", 1)[1].strip() for line in f if line.startswith(key)), None)
    except OSError:
        return None


def disk_of(folder):
    """The file system of the folder, and the disk below it: as much as the system says."""
    best = ("", "unknown", "")
    try:
        with open("/proc/self/mounts") as f:
            for line in f:
                device, at, kind = line.split()[:3]
                if (os.path.realpath(folder) + "/").startswith(at.rstrip("/") + "/") and len(at) >= len(best[0]):
                    best = (at, kind, device)
    except OSError:
        pass
    device = os.path.basename(os.path.realpath(best[2])).rstrip("0123456789")
    model = []
    for name in ("device/vendor", "device/model"):
        try:
            with open(f"/sys/block/{device}/{name}") as f:
                model.append(f.read().strip())
        except OSError:
            pass
    if device.startswith("vd"):
        model = ["virtio"]
    return f"{best[1]} on {' '.join(model) or device or 'no disk'}"


def commit_of(tree):
    """The last commit that changed the library, with "+" where files differ from it; None out of a repository."""
    def git(*words):
        return subprocess.run(["git", "-C", tree, *words, "--", "src", "include"], capture_output=True, text=True)
    try:
        found = git("log", "-1", "--abbrev=10", "--format=%h")
        if found.returncode or not found.stdout.strip():
            return None
        return found.stdout.strip() + ("+" if git("status", "--porcelain", "--untracked-files=no").stdout.strip() else "")
    except OSError:
        return None


def describe(bench):
    memory = first_line("/proc/meminfo", "MemTotal")
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": {
            "cpu": first_line("/proc/cpuinfo", "model name") or platform.processor(),
            "cores": os.cpu_count(),
            "memory_gib": round(int(memory.split()[0]) / (1 << 20), 1) if memory else None,
            "disk": disk_of(bench.folder),
            "kernel": platform.release().split("-")[0],
        },
        "versions": {
            "ckpt": bench.built,
            "commit": commit_of(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")),
            "python": platform.python_version(),
            **{name: version(name) for name in PEERS},
        },
        "mib": bench.mib, "rounds": bench.rounds, "quick": bench.quick,
    }
