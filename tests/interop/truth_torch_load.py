"""What torch.load makes of a file, asked in a process that may not do anything (it is no script itself: same_as_torch.py).

Each file is loaded in a child of its own, forked from a process that has imported torch: no memory beyond a limit, no file
written, ten seconds. The answer is JSON: the tensors by their key path, or the error that torch raised.
"""
import json
import os
import resource
import select
import signal
import sys
import time
import zlib

import torch

MEMORY, SECONDS = 3 << 30, 20
DENSE = torch.strided
RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


def text_of(key):
    """As the commands write a key: numbers and bools as Python prints them, a class by its name."""
    if isinstance(key, type):
        return f"{key.__module__}.{key.__qualname__}"
    if isinstance(key, (torch.UntypedStorage, torch.TypedStorage)):
        return "storage"
    return key if isinstance(key, str) else key.decode("latin-1") if isinstance(key, bytes) else repr(key)


def bytes_of(t):
    """The elements in C order; conj and neg are resolved."""
    t = t.detach().resolve_conj().resolve_neg()
    if t.numel() > 1 << 24:
        raise MemoryError("many elements")
    if t.element_size() not in RAW:
        return None
    t = t.contiguous()
    return bytes(t.untyped_storage()[t.storage_offset() * t.element_size(): (t.storage_offset() + t.numel()) * t.element_size()])


def describe(t):
    """dtype, shape and CRC-32 of the content; a CRC of None is not compared."""
    plain = t.layout is DENSE and not t.is_quantized and t.device.type == "cpu" and not getattr(t, "is_nested", False) and \
        type(t) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    data = bytes_of(t) if plain and "bits" not in str(t.dtype) else None
    shape = None if getattr(t, "is_nested", False) else list(t.shape)
    return [str(t.dtype).removeprefix("torch."), shape, None if data is None else f"{zlib.crc32(data):08x}"]


def flatten(root):
    """(path -> [description, ...], the paths below which it cannot be told what there is)."""
    tensors, closed, keys = {}, [], []
    stack, on_way, seen = [((), root, ())], set(), 0
    while stack:
        path, v, above = stack.pop()
        seen += 1
        if seen > 20000:
            raise MemoryError("many values")
        if isinstance(v, torch.Tensor):
            tensors.setdefault("\0".join(path), []).append(describe(v))
            if v.layout is not DENSE or v.is_quantized or type(v) not in (torch.Tensor, torch.nn.Parameter) or v.__dict__:
                closed.append("\0".join(path))
        elif id(v) in above:
            closed.append("\0".join(path))
        elif isinstance(v, dict):
            stack += [((*path, text_of(k)), x, (*above, id(v))) for k, x in v.items()]
            if getattr(v, "__dict__", None):
                closed.append("\0".join(path))
            if any(isinstance(k, torch.Tensor) for k in v):
                closed.append("\0".join(path))
        elif isinstance(v, (list, tuple)):
            stack += [((*path, str(i)), x, (*above, id(v))) for i, x in enumerate(v)]
            if type(v) not in (list, tuple):
                closed.append("\0".join(path))
        elif not isinstance(v, (str, bytes, int, float, bool, type(None), complex)):
            closed.append("\0".join(path))
    return tensors, closed


def load_here(path, weights_only):
    try:
        try:
            loaded = torch.load(path, map_location=cpu_for_others, weights_only=weights_only)
        except ValueError as e:                 # an archive of TorchScript, which takes no function there
            if "map_location should be" not in str(e):
                raise
            loaded = torch.load(path, map_location="cpu", weights_only=weights_only)
    except BaseException as e:
        return {"error": f"{type(e).__name__}: " + (str(e).strip() or "?"), "kind": type(e).__name__}
    try:
        tensors, closed = flatten(loaded)
    except BaseException as e:
        return {"odd": f"{type(e).__name__}: {e}"}
    return {"tensors": tensors, "closed": closed}


def cpu_for_others(storage, location):
    """This machine has no device but the CPU: a tag of a device that torch knows is no fault of the file."""
    kind = str(location).split(":")[0]
    return storage if kind in ("cuda", "mps", "xpu", "hpu", "mtia", "npu") and str(location) in (kind, f"{kind}:{str(location)[len(kind) + 1:]}") \
        and (str(location)[len(kind) + 1:].isdecimal() or str(location) == kind) else None


def load(path, weights_only, folder):
    """The answer of a child that does nothing else."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(readable)
            signal.alarm(SECONDS)
            os.chdir(folder)
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
            used = int(open("/proc/self/statm").read().split()[0]) * 4096
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
            import warnings
            warnings.simplefilter("ignore")
            data = json.dumps(load_here(path, weights_only)).encode(errors="replace")
            while data:
                data = data[os.write(writable, data):]
        finally:
            os._exit(0)
    os.close(writable)
    parts, end = [], time.monotonic() + SECONDS + 5
    while time.monotonic() < end and select.select([readable], [], [], 1)[0] is not None:
        if not select.select([readable], [], [], 0)[0]:
            continue
        part = os.read(readable, 1 << 16)
        if not part:
            break
        parts.append(part)
    os.close(readable)
    _, status = os.waitpid(pid, 0)
    try:
        return json.loads(b"".join(parts).decode())
    except ValueError:
        return {"odd": f"the child ended with status {status}"}


if __name__ == "__main__":
    print(json.dumps(load_here(sys.argv[1], "-w" in sys.argv), indent=1)[:3000])
