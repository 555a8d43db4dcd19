#!/usr/bin/env python3
"""What programs do with a checkpoint that `ckpt-migrate --no-optimizer` wrote.

usage: no_optimizer.py CKPT-INSPECT CKPT-MIGRATE [-v]

Lightning and a torch program go on from it with a new optimizer: their first loss is that of a resume from the whole file, for weights
and counters are the same, and then they differ. Without the list (--drop) Lightning refuses. The last line is "N passed, N failed"."""
import torch

from checks import check, commands, finish, run, scratch, section, skip

try:
    import lightning  # noqa: F401
    from peers import Lightning
except ImportError as e:
    skip(e)

INSPECT, MIGRATE = commands(__doc__, 2)

with scratch():
    for peer in (Lightning(), Lightning(two=True), Lightning(extra="scaler"), Lightning(extra="ema")):
        with section(peer.name):
            peer.make("whole.ckpt")
            done = run(MIGRATE, "--force", "--no-optimizer", "whole.ckpt", "none.ckpt")
            check(f"{peer.name}: it is written, and says what Lightning does", done.returncode == 0 and "Lightning then begins with a new one" in done.stdout,
                  done.stdout + done.stderr)
            whole, none = (torch.load(f, weights_only=False) for f in ("whole.ckpt", "none.ckpt"))
            check(f"{peer.name}: the list is empty, all other keys are there", none["optimizer_states"] == [] and none.keys() == whole.keys())
            check(f"{peer.name}: every weight", all(torch.equal(none["state_dict"][k], v) for k, v in whole["state_dict"].items()))
            losses, _ = peer.resume("whole.ckpt")
            again, _ = peer.resume("none.ckpt")
            check(f"{peer.name}: it resumes at the same step and weights", len(again) == len(losses) > 1 and again[0] == losses[0], (again, losses))
            check(f"{peer.name}: with another optimizer", again[1:] != losses[1:], (again, losses))
            done = run(MIGRATE, "--force", "--drop", "optimizer_states", "whole.ckpt", "dropped.ckpt")
            try:
                peer.resume("dropped.ckpt")
                check(f"{peer.name}: without the list it is refused", False)
            except KeyError as e:
                check(f"{peer.name}: without the list it is refused", "contains only the model" in str(e), e)
    with section("torch"):
        net = torch.nn.Linear(5, 3)
        opt = torch.optim.AdamW(net.parameters(), fused=False)
        net(torch.ones(2, 5)).sum().backward()
        opt.step()
        torch.save({"model": net.state_dict(), "opt": opt.state_dict(), "epoch": 3, "sched": {"last_epoch": 3, "base_lrs": [0.1]}}, "whole.pt")
        done = run(MIGRATE, "--no-optimizer", "whole.pt", "none.pt")
        none = torch.load("none.pt")
        check("torch: the other keys", done.returncode == 0 and sorted(none) == ["epoch", "model", "sched"] and none["sched"]["base_lrs"] == [0.1], none.keys())
        check("torch: the weights", torch.equal(none["model"]["weight"], net.weight))
finish()
