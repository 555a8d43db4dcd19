#!/usr/bin/env python3
"""Writes views.pt and bad-views.pt of this folder: make_views.py [FOLDER]. Made by torch 2.13.0."""
import os
import sys

import torch

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))

base = torch.arange(1.0, 65.0)
torch.save({"turned": base[:16].view(4, 4).t(), "rows": base[16:32].view(2, 8), "column": base.view(8, 8)[:, 3],
            "again": base[8:12].expand(3, 4), "one": base[63]}, os.path.join(OUT, "views.pt"))
with open(os.path.join(OUT, "views.pt"), "rb") as f:
    sound = f.read()
at = sound.index(base.numpy().tobytes())
with open(os.path.join(OUT, "bad-views.pt"), "wb") as f:       # the sixth number: of "turned" alone
    f.write(sound[:at + 22] + bytes([sound[at + 22] ^ 16]) + sound[at + 23:])
