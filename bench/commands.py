#!/usr/bin/env python3
"""commands.py CKPT_INSPECT CKPT_MIGRATE DIR MIB ROUNDS migrate|list: the commands beside what does the same otherwise.

Every round runs each competitor once, one after the other, in a process of its own, so that what the machine does
meanwhile hits all alike; the table has the median of the rounds, their range, and the ratio to ours.

migrate: a torch file of MIB in tensors of 16 MiB is verified, rewritten, and written as safetensors. The source is not in
the page cache when a run begins, and the result is on disk when it ends. Those marked * may use LIMIT of memory only, page
cache included where a control group can be made (as root), their own memory (RLIMIT_AS) otherwise: cp and the commands run
so. torch.load + save_file needs all of the file in memory and is not limited.

list: the tensors of a torch file of 10,000 in MIB, in the page cache, from the start of a process to its end.
"""
import os
import statistics
import subprocess
import sys
import time

TENSOR_MIB = 16
TENSORS = 10000
LIMIT = 512 << 20


def control_group():
    """A group that may have LIMIT of memory: the file that takes its processes; None where there can be none."""
    for top, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = os.path.join(top, f"ckpt-bench-{os.getpid()}")
        try:
            os.mkdir(group)
        except OSError:
            continue
        try:
            with open(os.path.join(group, limit), "w") as f:
                f.write(str(LIMIT))
            return os.path.join(group, "cgroup.procs")
        except OSError:
            os.rmdir(group)
    return None


def confined(command, group):
    """The command with LIMIT of memory. This process stays small, and the shell is replaced: neither counts as its peak."""
    limit = f'echo $$ > "{group}"' if group else f"ulimit -v {LIMIT >> 10}"
    return ["sh", "-c", f'{limit}; exec "$@"', "sh", *command]


class Run:
    """A command, as a function that gives its seconds; `peak` is the most memory that one of its runs had, in MiB."""

    def __init__(self, command, before=None, after=None):
        self.command, self.before, self.after = command, before, after
        self.peak = 0

    def __call__(self):
        if self.before:
            self.before()
        start = time.monotonic()
        child = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        said = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = status
        if status:
            sys.exit(f"{' '.join(self.command)}: status {status}: {said.decode(errors='replace')}")
        if self.after:
            self.after()
        took = time.monotonic() - start
        self.peak = max(self.peak, used.ru_maxrss / 1024)
        return took


def python(code, *arguments):
    return [sys.executable, "-c", "import sys, torch, safetensors.torch\n" + code, *map(str, arguments)]


def versions():
    """What the peers are; None where they are not there."""
    asked = subprocess.run(python("print(f'torch {torch.__version__}, safetensors {safetensors.__version__}, "
                                  "{torch.get_num_threads()} threads')"), capture_output=True, text=True)
    if asked.returncode:
        print(f"peers: {asked.stderr.strip().splitlines()[-1]}: not measured")
        return None
    return asked.stdout.strip()


def synced(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def cold(path):
    synced(path)
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def warm(path):
    with open(path, "rb", buffering=0) as f:
        while f.read(8 << 20):
            pass


def gone(path):
    if os.path.exists(path):
        os.unlink(path)


def measure(table, rounds):
    seconds = {what: {who: [] for who in row} for what, row in table.items()}
    for i in range(rounds + 1):           # the first one warms up and is not counted
        for what, row in table.items():
            for who, run in row.items():
                took = run()
                if i:
                    seconds[what][who].append(took)
    return seconds


def migrate(inspect, program, folder, mib, rounds, peers):
    count = mib // TENSOR_MIB
    size = count * TENSOR_MIB << 20
    source, torch_file, st_file = (os.path.join(folder, name) for name in ("bench.pt", "bench.2.pt", "bench.safetensors"))
    subprocess.run(python("path, n, mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]); "
                          "torch.save({f'layers.{i}.weight': torch.randn(mib << 18) for i in range(n)}, path)",
                          source, count, TENSOR_MIB), check=True)
    group = control_group()

    def start(target):
        def prepare():
            cold(source)
            if target:
                gone(target)
        return prepare

    def ours(*arguments, target=None):
        return Run(confined(arguments, group), start(target))

    def peer(code):
        return Run(python("a, b = sys.argv[1:]; " + code, source, st_file), start(st_file), lambda: synced(st_file))

    def copied(target):
        return Run(confined(["cp", "--reflink=never", source, target], group), start(target), lambda: synced(target))

    table = {
        "verify": {"ckpt-inspect verify *": ours(inspect, "verify", source),
                   "cat > /dev/null *": ours("cat", source)},
        "torch to torch": {"ckpt-migrate --to torch *": ours(program, source, torch_file, "--to", "torch", target=torch_file),
                           "cp + fsync *": copied(torch_file)},
        "torch to safetensors": {
            "ckpt-migrate --to safetensors *": ours(program, source, st_file, "--to", "safetensors", "--lossy",
                                                    target=st_file),
            "cp + fsync *": copied(torch_file),
            "torch.load + save_file + fsync": peer("safetensors.torch.save_file(torch.load(a), b)"),
            "torch.load(mmap=True) + save_file": peer("safetensors.torch.save_file(torch.load(a, mmap=True), b)")},
        "torch to safetensors, float32 to bfloat16": {
            "ckpt-migrate --cast *": ours(program, source, st_file, "--to", "safetensors", "--lossy", "--cast", "*=bfloat16",
                                          target=st_file),
            "torch.load(mmap=True) + .bfloat16()": peer(
                "safetensors.torch.save_file({k: t.bfloat16() for k, t in torch.load(a, mmap=True).items()}, b)")},
    }
    print(f"{peers}; * limited to {LIMIT >> 20} MiB by {'a control group' if group else 'RLIMIT_AS'}")
    seconds = measure(table, rounds)
    print(f"{count} tensors of float32, {mib} MiB, {rounds} rounds; GB/s of the source: median (lowest to highest), "
          "against the first, peak memory")
    for what, row in seconds.items():
        print(what)
        first = None
        for who, took in row.items():
            rates = sorted(size / t / 1e9 for t in took)
            median = statistics.median(rates)
            first = first or median
            print(f"  {who:36} {median:6.2f}  ({rates[0]:.2f} to {rates[-1]:.2f})  {median / first:5.2f} x"
                  f"  {table[what][who].peak:6.0f} MiB")
    for name in (source, torch_file, st_file):
        gone(name)
    if group:
        os.rmdir(os.path.dirname(group))


def listing(inspect, folder, mib, rounds, peers):
    source = os.path.join(folder, "bench.pt")
    subprocess.run(python("path, n, each = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]); "
                          "torch.save({'model': {f'model.layers.{i // 10}.block.{i % 10}.weight': torch.zeros(each) "
                          "for i in range(n)}}, path)", source, TENSORS, (mib << 18) // TENSORS), check=True)
    table = {"list": {"ckpt-inspect list": Run([inspect, "list", source]),
                      "ckpt-inspect list --json": Run([inspect, "list", "--json", source]),
                      "torch.load(mmap=True), its process": Run([sys.executable, "-c",
                                                                 "import sys, torch; torch.load(sys.argv[1], mmap=True)",
                                                                 source]),
                      "import torch alone": Run([sys.executable, "-c", "import torch"])}}
    warm(source)
    print(peers)
    seconds = measure(table, rounds)["list"]
    print(f"{TENSORS} tensors, {mib} MiB, {rounds} rounds; ms: median (lowest to highest), against the first")
    first = None
    for who, took in seconds.items():
        times = sorted(t * 1e3 for t in took)
        median = statistics.median(times)
        first = first or median
        print(f"  {who:36} {median:8.1f}  ({times[0]:.1f} to {times[-1]:.1f})  {median / first:6.2f} x")
    gone(source)


def main():
    inspect, program, folder, mib, rounds, what = sys.argv[1:]
    peers = versions()
    if peers and what == "list":
        listing(inspect, folder, int(mib), int(rounds), peers)
    elif peers:
        migrate(inspect, program, folder, int(mib), int(rounds), peers)


if __name__ == "__main__":
    main()
