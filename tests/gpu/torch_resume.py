#!/usr/bin/env python3
"""A training of torch on the first GPU goes on from what ckpt-migrate makes of its checkpoint: the next losses, to the bit.

usage: CKPT_TRUTH_GPU=real torch_resume.py CKPT-INSPECT CKPT-MIGRATE

The program trains with dropout (the GPU's generator), float16 autocast with a GradScaler, AdamW (fused, capturable, foreach or plain) and a scheduler, and saves. The
unbroken run is what every other one is held against. Each file is loaded as the program would: torch.load onto the device that the file says, or that map_location says.
What fails in torch must be what doctor says of the file, and what --fix makes of it must go on.
The last line is "N passed, N failed"."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import checks                                                   # noqa: E402
from checks import ask, check, commands, run, scratch, section  # noqa: E402

BEFORE, AFTER = 12, 6


class Program:
    def __init__(self, torch, seed, hyper, amp):
        nn = torch.nn
        torch.manual_seed(seed)
        self.torch, self.amp = torch, amp
        self.net = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 8)).to("cuda:0")
        decay = [p for p in self.net.parameters() if p.dim() > 1]
        self.opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": [p for p in self.net.parameters() if p.dim() < 2], "weight_decay": 0.0}], lr=1e-2, **hyper)
        self.lr = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, 40)
        self.scaler = torch.amp.GradScaler("cuda", enabled=amp, init_scale=2.0 ** 10, growth_interval=5)

    def train(self, first, count):
        torch, losses = self.torch, []
        for step in range(first, first + count):
            g = torch.Generator().manual_seed(step)
            x, y = torch.randn(16, 32, generator=g).to("cuda:0"), torch.randn(16, 8, generator=g).to("cuda:0")
            with torch.autocast("cuda", torch.float16, enabled=self.amp):
                loss = ((self.net(x).float() - y) ** 2).mean()
            self.opt.zero_grad(set_to_none=True)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.opt)
            self.scaler.update()
            self.lr.step()
            losses.append(loss.item())
        torch.cuda.synchronize()
        return losses

    def held(self):
        torch = self.torch
        return {"model": self.net.state_dict(), "optimizer": self.opt.state_dict(), "scheduler": self.lr.state_dict(), "scaler": self.scaler.state_dict(),
                "rng": {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state(0)}, "step": BEFORE}

    def take(self, held):
        self.net.load_state_dict(held["model"])
        self.opt.load_state_dict(held["optimizer"])
        self.lr.load_state_dict(held["scheduler"])
        self.scaler.load_state_dict(held["scaler"])
        self.torch.set_rng_state(held["rng"]["cpu"].cpu())
        self.torch.cuda.set_rng_state(held["rng"]["cuda"].cpu(), 0)


def resumed(torch, file, hyper, amp, where=None):
    """The next losses, or what torch raises; and where the steps are."""
    program = Program(torch, 99, hyper, amp)
    try:
        program.take(torch.load(file, map_location=where, weights_only=True))
        at = sorted({str(s["step"].device) for s in program.opt.state.values()})
        return program.train(BEFORE, AFTER), at
    except Exception as e:                                       # whatever torch raises is the answer
        return f"{type(e).__name__}: {e}", None


def main():
    inspect, migrate = commands(__doc__, 2)
    import torch
    version = ".".join(torch.__version__.split(".")[:2])
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name(0)}")
    kinds = [("fused", {"fused": True}, True), ("fused, no AMP", {"fused": True}, False), ("capturable", {"capturable": True}, True), ("foreach", {"foreach": True}, True),
             ("plain", {"foreach": False}, True)]
    told = ("--for", "torch", "--torch", version, "--devices", "cuda:1")
    with scratch():
        for name, hyper, amp in kinds:
            for file in os.listdir("."):
                os.unlink(file)
            with section(name):
                one = Program(torch, 7, hyper, amp)
                one.train(0, BEFORE)
                torch.save(one.held(), "a.pt")
                wanted = one.train(BEFORE, AFTER)

                def goes_on(what, file, where=None):
                    got, at = resumed(torch, file, hyper, amp, where)
                    check(f"{name}: {what}", got == wanted, f"{got}, not {wanted}; steps on {at}")

                goes_on("torch's own file", "a.pt")
                goes_on("torch's own file by way of the CPU", "a.pt", "cpu")
                status, said = ask(inspect, "doctor", "--json", *told, "a.pt")
                check(f"{name}: doctor says that it resumes", status == 0 and said["outcome"] == "resumes", said)
                flows = [("b.pt", ["--to", "torch"]), ("c.pt", ["--to", "same", "--map-location", "cpu"])]
                if hyper.get("fused"):           # said of another one it sets the flag, and the fused kernel rounds otherwise
                    flows.append(("d.pt", ["--to", "same", "--map-location", "cpu", "--optimizer", "fused"]))
                for file, how in flows:
                    done = run(migrate, "-q", "--verify", *how, "a.pt", file)
                    check(f"{name}: ckpt-migrate {' '.join(how)}", done.returncode == 0, done.stderr)
                    goes_on(f"a file of ckpt-migrate {' '.join(how)}", file, None if file == "b.pt" else "cuda:0")
                done = run(migrate, "-q", "--verify", "a.pt", "e.ckpt")
                check(f"{name}: to the native format", done.returncode == 0, done.stderr)
                done = run(migrate, "-q", "--verify", "--to", "torch", "e.ckpt", "f.pt")
                check(f"{name}: and back", done.returncode == 0, done.stderr)
                goes_on("a file that was native in between", "f.pt")
                same = run(inspect, "diff", "-q", "a.pt", "f.pt")
                check(f"{name}: diff finds no difference", same.returncode == 0, same.stdout)

                # Steps on the CPU while all else is on the GPU, with a flag that wants them there: the error that this project is about.
                broken = torch.load("a.pt", map_location="cuda:0", weights_only=True)
                for s in broken["optimizer"]["state"].values():
                    s["step"] = s["step"].cpu()
                broken["rng"] = {k: v.cpu() for k, v in broken["rng"].items()}
                torch.save(broken, "broken.pt")
                got, at = resumed(torch, "broken.pt", hyper, amp)
                status, said = ask(inspect, "doctor", "--json", *told, "broken.pt")
                seen = "resumes" if got == wanted else "fails-at-step" if isinstance(got, str) else "resumes-differently"
                check(f"{name}: steps on the CPU, doctor says {said['outcome']}", seen == said["outcome"], f"{got}, {at}; {[f['code'] for f in said['findings']]}")
                print(f"# {name}, steps saved on the CPU: {str(got)[:150] if isinstance(got, str) else 'goes on'}; after the load on {at}; doctor: {said['outcome']}")

                # A program that moves them itself after the load, as old ones do: torch refuses the step, and the mended file goes on with the program as it is.
                program = Program(torch, 99, hyper, amp)
                program.take(torch.load("a.pt", map_location="cuda:0", weights_only=True))
                for s in program.opt.state.values():
                    s["step"] = s["step"].cpu()
                try:
                    program.train(BEFORE, 1)
                    refused = None
                except (RuntimeError, AssertionError) as e:
                    refused = " ".join(str(e).split())[:200]
                check(f"{name}: steps moved to the CPU after the load", bool(refused) == bool(hyper.get("fused") or hyper.get("capturable")), refused)
                print(f"# {name}, steps moved to the CPU after the load: {refused or 'goes on'}")

                # What a program saved whose steps were on the CPU by choice: a fused one must have them on the GPU, and --optimizer says so.
                done = run(migrate, "-q", "--verify", "--to", "same", "--optimizer", "fused" if hyper.get("fused") else "capturable" if hyper.get("capturable") else "plain",
                           "--map-location", "cuda:0", "broken.pt", "mended.pt")
                check(f"{name}: the policy puts the steps right", done.returncode == 0, done.stderr)
                tags = {str(s["step"].device) for s in torch.load("mended.pt", weights_only=True)["optimizer"]["state"].values()}
                check(f"{name}: steps are where the optimizer wants them", tags == ({"cuda:0"} if hyper.get("fused") or hyper.get("capturable") else {"cpu"}), tags)
                goes_on("the mended file", "mended.pt")
    checks.finish()


if __name__ == "__main__":
    main()
