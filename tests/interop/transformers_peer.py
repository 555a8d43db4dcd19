#!/usr/bin/env python3
"""transformers_peer.py CKPT-INSPECT CKPT-MIGRATE STEP-OF: the Hugging Face tools load what this library writes.

A GPT-2 that transformers saved goes through a state into a step directory; transformers then loads the directory's
model.safetensors as its own, and so does it with a file that ckpt-migrate wrote. The last line is `N passed, N failed`;
exit status 77 where transformers is not installed. Written for transformers 5 and torch 2.13.
"""
import json, os, shutil, subprocess, sys, tempfile

try:
    import torch
    import transformers
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

transformers.logging.set_verbosity_error()
failures = passes = 0


def check(what, ok, said=""):
    global failures, passes
    passes, failures = passes + bool(ok), failures + (not ok)
    print(f"{'ok' if ok else 'NOT OK'}  {what}" + (f": {said}" if said and not ok else ""))


def same(model, other):
    a, b = model.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


def load(folder):
    model, info = transformers.GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True, torch_dtype="auto")
    return model, [k for k, v in info.items() if v]


def main(inspect, migrate, step_of):
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(3)
            config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=64, n_positions=16)
            model = transformers.GPT2LMHeadModel(config).to(dtype)
            source, step, moved = (os.path.join(folder, f"{n}-{dtype}") for n in ("source", "step", "moved"))
            model.save_pretrained(source)
            weights = os.path.join(source, "model.safetensors")

            done = subprocess.run([step_of, weights, step], capture_output=True, text=True)
            check(f"{dtype}: a step directory is written", done.returncode == 0, done.stderr)
            shutil.copy(os.path.join(source, "config.json"), step)
            loaded, odd = load(step)
            check(f"{dtype}: transformers loads it, nothing missing or left over", not odd, str(odd))
            check(f"{dtype}: with the same weights", same(model, loaded))

            os.mkdir(moved)
            shutil.copy(os.path.join(source, "config.json"), moved)
            done = subprocess.run([migrate, "--to", "ckpt", "--verify", weights, os.path.join(moved, "model.safetensors")],
                                  capture_output=True, text=True)
            check(f"{dtype}: ckpt-migrate writes the weights", done.returncode == 0, done.stderr)
            loaded, odd = load(moved)
            check(f"{dtype}: transformers loads them", not odd and same(model, loaded), str(odd))

            said = subprocess.run([inspect, "show", "--json", step], capture_output=True, text=True)
            doc = json.loads(said.stdout)
            check(f"{dtype}: ckpt-inspect knows the directory", said.returncode == 0 and doc["format"] == "ckpt" and doc["step"] == 7,
                  said.stdout[:300])
    print(f"{passes} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print(__doc__.split("\n")[0], file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
