"""measure.py - what all benchmarks share: runs by turns, medians and ratios, the page cache, processes, and who the peers are."""
import contextlib
import ctypes
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import time

TENSOR_MIB = 16
LIMIT = 512 << 20      # of memory, for the runs that are confined


class NotMeasured(Exception):
    """Why something was not measured, in words for the table."""


# ---- runs by turns

def interleave(who, rounds):
    """{name: [seconds]} of {name: a function that gives its seconds}, and {name: why} of those that failed.

    Each round runs all of them once. The order is reversed from round to round, so that what the machine does meanwhile,
    and what a run leaves to the next, hits all alike. The first round warms up and is not counted."""
    samples, failed = {name: [] for name in who}, {}
    for i in range(rounds + 1):
        names = [name for name in who if name not in failed]
        for name in reversed(names) if i % 2 else names:
            try:
                took = who[name]()
            except Exception as error:  # of a peer: it is named in the table, and the others go on
                failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                samples.pop(name)
                continue
            if i:
                samples[name].append(took)
    return samples, failed


def ratios(of, by):
    """Round by round, of / by."""
    return [a / b for a, b in zip(of, by)]


def spread(values):
    """(median, lowest, highest)"""
    return statistics.median(values), min(values), max(values)


def fastest(samples, names):
    """The name with the lowest median; None where none of them was measured."""
    found = [name for name in names if samples.get(name)]
    return min(found, key=lambda name: statistics.median(samples[name])) if found else None


def timed(work):
    def run():
        start = time.monotonic()
        work()
        return time.monotonic() - start
    return run


# ---- files and the page cache

def files_of(path):
    if os.path.isfile(path):
        return [path]
    return [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]


def size_of(path):
    return sum(os.path.getsize(name) for name in files_of(path))


def synced(path):
    for name in files_of(path):
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def gone(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


def warm(path):
    for name in files_of(path):
        with open(name, "rb", buffering=0) as f:
            while f.read(8 << 20):
                pass


def cold(path):
    synced(path)
    for name in files_of(path):
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


LIBC = ctypes.CDLL(None, use_errno=True)
CACHESTAT = 451


def cached_pages(fd, size):
    """Pages of the file in the page cache: by cachestat, or by mincore where the kernel has none."""
    found = (ctypes.c_uint64 * 5)()
    if LIBC.syscall(CACHESTAT, fd, (ctypes.c_uint64 * 2)(0, 0), found, 0) == 0:
        return found[0]
    LIBC.mmap.restype = ctypes.c_void_p
    at = LIBC.mmap(None, ctypes.c_size_t(size), 1, 1, fd, ctypes.c_long(0))
    if at in (None, ctypes.c_void_p(-1).value):
        raise NotMeasured("neither cachestat nor mmap says what is in the page cache")
    pages = ctypes.create_string_buffer((size + 4095) // 4096)
    if LIBC.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), pages) != 0:
        raise NotMeasured("mincore failed")
    LIBC.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    return sum(page & 1 for page in pages.raw)


def cached(path):
    """How much of the file, or of the folder's files, is in the page cache: 0 to 1."""
    pages = held = 0
    for name in files_of(path):
        size = os.path.getsize(name)
        if size:
            fd = os.open(name, os.O_RDONLY)
            held += cached_pages(fd, size)
            os.close(fd)
            pages += (size + 4095) // 4096
    return held / pages if pages else 0.0


# ---- ours

class Serve:
    """bench/ckpt_bench: one line in, the seconds of that job out. KIB: of a tensor; a tuple: (KIB, "cuda")."""

    def __init__(self, program, path, mib, kib=None):
        command = [program, path, str(mib), *map(str, kib if isinstance(kib, tuple) else (kib,) if kib else ())]
        self.path = path
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.build = self.process.stdout.readline().strip()

    def job(self, name):
        def run():
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            if not answer:
                raise NotMeasured(f"{name}: the program ended")
            return float(answer)
        return run

    def close(self):
        with contextlib.suppress(BrokenPipeError):    # it ended by itself, and has said why
            self.process.stdin.close()
        self.process.wait()
        gone(self.path)
        gone(self.path + ".raw")
        gone(self.path + ".run")


# ---- processes

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


def leave_group(group):
    if group:
        time.sleep(0.1)
        os.rmdir(os.path.dirname(group))


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
            raise NotMeasured(f"{os.path.basename(self.command[0])}: status {status}: {said.decode(errors='replace').strip()}")
        if self.after:
            self.after()
        took = time.monotonic() - start
        self.peak = max(self.peak, used.ru_maxrss / 1024)
        return took


def python(code, *arguments):
    return [sys.executable, "-c", "import sys, torch, safetensors.torch\n" + code, *map(str, arguments)]


# ---- peers

PEERS = {"torch": "torch", "safetensors": "safetensors.torch", "runai-model-streamer": "runai_model_streamer",
         "tensorizer": "tensorizer", "deepspeed": "deepspeed"}


def version(package):
    from importlib import metadata
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def has_peer(package):
    """Is it there? It is not imported: a process that has torch is large, and its children would count that as theirs."""
    return importlib.util.find_spec(PEERS[package].split(".")[0]) is not None


# ---- what the driver gives to a part, and what a part gives back

class Bench:
    """Where and how a part measures. `groups` collects what it measured, `notes` what it could not and why."""

    def __init__(self, build, folder, mib, rounds, quick=False, converters=False):
        self.build, self.folder = os.path.abspath(build), os.path.abspath(folder)
        self.mib, self.rounds, self.quick, self.converters = mib, rounds, quick, converters
        self.threads = min(os.cpu_count() or 1, 16)
        self.groups, self.notes, self.built = [], [], None

    def program(self, name):
        found = os.path.join(self.build, "bench", name)
        libtool = os.path.join(self.build, "src/cli/.libs", name)
        return libtool if os.path.exists(libtool) else found

    def path(self, name):
        return os.path.join(self.folder, f"bench-{os.getpid()}-{name}")

    def serve(self, name, mib=None, kib=None):
        served = Serve(self.program("ckpt_bench"), self.path(name), mib or self.mib, kib)
        self.built = served.build
        return served

    def note(self, who, why):
        """Somebody was not measured. Said at once, and once in the table."""
        note = {"who": who, "why": str(why)}
        if note not in self.notes:
            self.notes.append(note)
            print(f"  {who}: not measured: {why}", flush=True)

    def ask(self, who, package):
        """True where the peer is there; otherwise a note says that `who` is not measured."""
        if has_peer(package):
            return True
        self.note(who, f"{package} is missing")
        return False

    def measure(self, name, who, rounds=None, nbytes=None, extra=None):
        """Runs by turns; prints and keeps a group of samples, in seconds."""
        samples, failed = interleave(who, rounds or self.rounds)
        for one, why in failed.items():
            self.note(f"{one} ({name})", why)
        peaks = {one: round(run.peak, 1) for one, run in who.items() if getattr(run, "peak", 0) and one in samples}
        return self.keep(name, samples, nbytes, {**({"peak_mib": peaks} if peaks else {}), **(extra or {})})

    def keep(self, name, samples, nbytes=None, extra=None):
        group = {"name": name, "samples": {one: [round(v, 6) for v in took] for one, took in samples.items()}}
        if nbytes:
            group["nbytes"] = nbytes
        group.update(extra or {})
        self.groups.append(group)
        print_group(group)
        return group


def print_group(group):
    """Medians and ranges: GB/s where the bytes are known, else milliseconds; and against the first."""
    print(f"  {group['name']}")
    first = None
    for who, took in group["samples"].items():
        if not took:
            continue
        shown = [group["nbytes"] / t / 1e9 for t in took] if group.get("nbytes") else [t * 1e3 for t in took]
        first = first or took
        middle, low, high = spread(shown)
        against = statistics.median(ratios(took, first[:len(took)])) if len(took) <= len(first) else float("nan")
        peak = group.get("peak_mib", {}).get(who)
        print(f"    {who:40} {middle:9.2f} {'GB/s' if group.get('nbytes') else 'ms  '}  ({low:.2f} to {high:.2f})"
              f"  {against:6.2f} x the time of the first{f'  {peak:.0f} MiB' if peak else ''}", flush=True)
