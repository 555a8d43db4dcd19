#!/usr/bin/env python3
"""Makes one distributed checkpoint of this folder anew, by the torch that runs it: make_versions.py, in it. torch 2.0.1 and 2.15.0.

torch-X.Y has what make_dcp.py puts into cut/, whole, by one rank, and with 2.15 a tensor that torch has marked as conjugated. The list of
2.0 has its paths and its pickles as they were first; that of 2.15 has the strides of each tensor."""
import inspect
import os
import shutil

import torch
import torch.distributed.checkpoint as dcp


def count(*shape, dtype=torch.float32):
    return torch.arange(int(torch.Size(shape).numel())).reshape(shape).to(dtype)


def main():
    folder = "torch-" + ".".join(torch.__version__.split(".")[:2])
    state = {
        "model": {"rows.weight": count(5, 3), "columns.weight": count(3, 5, dtype=torch.bfloat16), "few": count(1, 4),
                  "whole": count(2, 2, dtype=torch.int64), "turned": count(4, 3).t().contiguous().t()},
        "optim": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.5, "params": [0]}]},
        "notes": {"name": "a run", "list": [1, 2.5, None], "rng": (1, torch.arange(3))},
    }
    if folder == "torch-2.15":
        state["model"]["conjugated"] = torch.complex(count(2), count(2)).conj()
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    save = dcp.save if hasattr(dcp, "save") else dcp.save_state_dict
    save(state, storage_writer=dcp.FileSystemWriter(folder), **({"no_dist": True} if "no_dist" in inspect.signature(save).parameters else {}))


if __name__ == "__main__":
    main()
