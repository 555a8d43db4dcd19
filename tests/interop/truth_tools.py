"""What the modules of doctor_truth.py share: the row of a comparison, claimed devices."""
import collections
import contextlib

# name of the situation; column: which loader; file; doctor: its arguments; codes: findings that must be there; seen: what
# truth_program.verdict() made of it, and what it is made of; note: why it could not be run
Row = collections.namedtuple("Row", "name column file doctor codes seen note")


@contextlib.contextmanager
def tagged(tag):
    """While saving, storages claim to be on `tag`, but for `step` (a storage of one number) and the CPU generator's state.
    "TAG+step" and "TAG+rng" claim those too; {bytes: TAG} claims by a storage's size."""
    import torch
    sizes = tag if isinstance(tag, dict) else {}
    name, _, more = ("" if sizes else tag or "").partition("+")
    real = torch.serialization.location_tag

    def location(storage):
        if storage.nbytes() in sizes:
            return "".join(list(sizes[storage.nbytes()]))
        here = {5056: "rng"}.get(storage.nbytes(), "step" if storage.nbytes() <= 8 else "")
        return "".join(list(name)) if name and here in ("", more) else real(storage)

    torch.serialization.location_tag = location
    try:
        yield
    finally:
        torch.serialization.location_tag = real


@contextlib.contextmanager
def claimed_devices(count):
    """torch.load asks how many CUDA devices there are: `count`. Good for what it refuses; nothing can be moved there."""
    import torch
    real = torch.cuda.is_available, torch.cuda.device_count
    if count:
        torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: count
    try:
        yield
    finally:
        torch.cuda.is_available, torch.cuda.device_count = real
