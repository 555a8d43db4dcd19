#!/usr/bin/env python3
"""Makes plain.pt and odd.pt, which test_torch_write rewrites: make.py FOLDER. The files here were made by torch 2.13.0+cpu
with Python 3.11."""
import collections
import sys

import torch
from torch import nn

folder = sys.argv[1]
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
opt = torch.optim.AdamW(net.parameters())
net(torch.arange(6.0).reshape(2, 3)).sum().backward()
opt.step()
torch.save({"model": net.state_dict(), "optimizer": opt.state_dict(), "empty": torch.zeros(0), "epoch": 3, "device": "cpu"}, f"{folder}/plain.pt")

base, tied, cycle, inner = torch.arange(24.0).reshape(4, 6), nn.Parameter(torch.ones(2)), [1], []
cycle.append(cycle)
inner.append((inner, 5, 6, 7))
tied.note = {"why": "an attribute"}
torch.save({"views": [base, base.t(), base[1:, ::2], torch.ones(3, 1).expand(3, 2)], "tied": tied, "again": tied, "cycle": cycle, "tuple": inner[0],
            "sparse": torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)), "csr": torch.eye(3).to_sparse_csr(),
            "quantized": torch.quantize_per_channel(torch.ones(2, 2), torch.tensor([0.1, 0.2]), torch.tensor([1, 2]), 0, torch.qint8),
            "float8": torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn), "meta": torch.empty(2, device="meta"), "conj": torch.ones(2, dtype=torch.complex64).conj(),
            "keys": {0: "a", "0": "b", None: 1, (1, "x"): 2.5, True and 7: b"\x00\xff"}, "sets": [{1}, frozenset("a"), set()], "bytes": [b"", bytearray(b"xy")],
            "ints": [2**31, -2**31 - 1, 2**63, -2**200, 2**3000], "floats": [-0.0, float("inf")], "strs": ["", "é", "\ud800"], "size": torch.Size([1, 2]),
            "device": torch.device("cuda", 1), "dtype": torch.bfloat16, "counter": collections.Counter("aab"), "1000": {i: None for i in range(1000)},
            "ordered": collections.OrderedDict((i, None) for i in range(1001)), "memo": [f"s{i}" for i in range(300)]}, f"{folder}/odd.pt")
