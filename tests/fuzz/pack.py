#!/usr/bin/env python3
"""pack.py OUT DIR...: each directory below the DIRs that is a checkpoint of several files, in one file of OUT that fuzz_open lays
out again. Those of more than MOST bytes are passed over: a fuzzer gets nowhere with them.
"""
import hashlib
import os
import struct
import sys

MOST = 96 << 10
SIGNS = ((".metadata",), ("latest",), ("latest_universal",), ("latest_checkpointed_iteration.txt",), ("model.safetensors.index.json",))
PARTS = (".distcp", "_states.pt", "model_optim_rng.pt", "_rank_0.pt", "_rank0.bin")


def is_one(names):
    return any(set(sign) <= set(names) for sign in SIGNS) or any(n.endswith(PARTS) or n.startswith("DONE_") for n in names)


def packed(top):
    out = b"CKPTDIR\n"
    for folder, _, names in os.walk(top):
        for name in sorted(names):
            path = os.path.join(folder, name)
            own = os.path.relpath(path, top).encode()
            if len(out) > MOST or not os.path.isfile(path) or os.path.getsize(path) > MOST:
                return None
            with open(path, "rb") as f:
                data = f.read()
            out += struct.pack("<HI", len(own), len(data)) + own + data
    return out if len(out) <= MOST else None


def main():
    out, made = sys.argv[1], 0
    for top in sys.argv[2:]:
        for folder, _, names in os.walk(top):
            data = packed(folder) if is_one(names) else None
            if data:
                made += 1
                with open(os.path.join(out, "dir-" + hashlib.sha256(data).hexdigest()[:16]), "wb") as f:
                    f.write(data)
    print(f"{made} directories")


if __name__ == "__main__":
    main()
