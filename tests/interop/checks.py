"""What the scripts of this folder share (it is no script itself): counting, asking the commands, claimed devices."""
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import warnings
import zlib

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false")
if os.environ.get("CKPT_TRUTH_GPU") != "real":   # a torch that was built for CUDA finds no device behind the stand-in either
    os.environ.update(CUDA_VISIBLE_DEVICES="", FAKECUDA_DEVICES="0")
warnings.simplefilter("ignore")

passed = failed = 0


def check(what, condition, said=""):
    """Counts; a failure is one FAIL line with what the programs said."""
    global passed, failed
    passed, failed = passed + bool(condition), failed + (not condition)
    if not condition or "-v" in sys.argv:
        print(f"{'PASS' if condition else 'FAIL'} {what}" + (f": {' '.join(str(said).split())[:1500]}" if not condition and said else ""), flush=True)
    return bool(condition)


@contextlib.contextmanager
def section(what):
    """An exception inside is one failure, and the next section is run all the same."""
    try:
        yield
    except Exception as e:                      # whatever a peer raises is an answer, not the end
        check(what, False, f"{type(e).__name__}: {e}")


def finish(not_run=0):
    """not_run: of how much a line "not run ..." has said that it is not there to be tried."""
    print(f"{passed} passed, {failed} failed" + (f", {not_run} skipped" if not_run else ""))
    sys.exit(1 if failed else 0)


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def run(*command, timeout=300):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=timeout)


def free_port():
    """A port for the ranks of one job. Another script may run beside, and what the system gives to connections begins at 32768."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("", port))
                return port
            except OSError:                     # somebody has it
                pass


def ends(what, status, *command):
    """Runs a command that is to end with that status. All that it said."""
    done = run(*command)
    check(f"{what}: it ends with {status}", done.returncode == status, done.stdout + done.stderr)
    return done.stdout + done.stderr


def ask(*command):
    """(exit status, the JSON document)."""
    done = run(*command)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, {"error": {"message": f"no JSON document: {done.stderr[-300:]}"}}


def commands(usage, count):
    """The commands' paths, absolute: scripts change the directory."""
    paths = [a for a in sys.argv[1:] if a != "-v"]
    if len(paths) != count:
        print(usage.strip().split("\n\n")[1], file=sys.stderr)
        sys.exit(2)
    return [os.path.abspath(p) for p in paths]


@contextlib.contextmanager
def scratch():
    """A folder to work in, for the length of the block."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


@contextlib.contextmanager
def claimed(tag):
    """While saving, storages claim to be on `tag`, and the pickle is what that device would give. Those of `step` and of
    the CPU's generator (5056 bytes) stay where torch keeps them."""
    import torch
    old = torch.serialization.location_tag

    def location(storage):
        return "".join(list(tag)) if tag and 8 < storage.nbytes() != 5056 else old(storage)

    torch.serialization.location_tag = location
    try:
        yield
    finally:
        torch.serialization.location_tag = old


def differs(a, b, path=""):
    """Where b is not what a is: types, keys and their order, values, and of tensors the bytes."""
    import torch
    if type(a) is not type(b):
        return [f"{path}: {a!r}, not {b!r}"]
    if isinstance(a, dict):
        out = [] if list(a) == list(b) else [f"{path}: {list(b)}, not {list(a)}"]
        return out + [x for k in a if k in b for x in differs(a[k], b[k], f"{path}.{k}")]
    if isinstance(a, (list, tuple)):
        out = [] if len(a) == len(b) else [f"{path}: {len(b)}, not {len(a)}"]
        return out + [x for i, (p, q) in enumerate(zip(a, b)) for x in differs(p, q, f"{path}.{i}")]
    if torch.is_tensor(a):
        return [] if (a.dtype, a.shape, a.device) == (b.dtype, b.shape, b.device) and torch.equal(a, b) else [f"{path}: another tensor"]
    return [] if a == b else [f"{path}: {b!r}, not {a!r}"]


def crc(tensor):
    import torch
    if tensor.numel() == 0:
        return "00000000"
    return f"{zlib.crc32(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()):08x}"
