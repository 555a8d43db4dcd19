#!/usr/bin/env python3
"""Keras itself beside the commands: what it saves is listed, extracted and migrated equal to what it loads.

usage: keras_peer.py CKPT-INSPECT CKPT-MIGRATE

Needs keras, h5py and torch (the backend). A model of every common layer is built and fitted with several optimizers, and saved
as .keras, .weights.h5, weights in shards and, where this Keras still writes it, the HDF5 of Keras 2. Then: each variable of
the model that Keras loads again has its bytes in the file by the name that list gives; each optimizer variable is called after the
parameter that Keras' own name says, or nothing is said; what ckpt-migrate makes of the file is read by torch and safetensors."""
import os

os.environ.update(KERAS_BACKEND="torch", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
import checks
from checks import ask, check, run, section

try:
    import h5py
    import keras
    import numpy as np
    import torch
    from safetensors.torch import load_file
except ImportError as e:
    checks.skip(f"{e}")
import zlib

SLOTS = {"momentum": "exp_avg", "velocity": "exp_avg_sq", "velocity_hat": "max_exp_avg_sq"}


def image(policy=None):
    i = keras.Input((8, 8, 3), name="image")
    x = keras.layers.Conv2D(4, 3, name="first")(i)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.SeparableConv2D(5, 3, activation="relu")(x)
    x = keras.layers.BatchNormalization(scale=False)(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(0.2, seed=3)(keras.layers.LayerNormalization()(x))
    x = keras.layers.Dense(4)(x)
    return keras.Model(i, keras.layers.Dense(3, name="head", dtype="float32")(x), name="image_net"), np.random.rand(6, 8, 8, 3)


def text():
    i = keras.Input((6,), dtype="int32", name="tokens")
    x = keras.layers.Embedding(11, 4)(i)
    x = keras.layers.Bidirectional(keras.layers.GRU(4, return_sequences=True))(x)
    x = keras.layers.LSTM(5)(x)
    return keras.Model(i, keras.layers.Dense(3)(x), name="tagger"), np.random.randint(0, 11, (6, 6))


def stack():
    m = keras.Sequential([keras.Input((5,)), keras.layers.Dense(5), keras.layers.Dense(5), keras.layers.Dense(3)])
    m.layers[1].trainable = False
    return m, np.random.rand(6, 5)


def attention():
    i = keras.Input((4, 6))
    x = keras.layers.MultiHeadAttention(2, 3)(i, i)
    return keras.Model(i, keras.layers.Dense(3)(keras.layers.Flatten()(x))), np.random.rand(6, 4, 6)


CASES = {
    "adam": (image, lambda: keras.optimizers.Adam(0.01)),
    "amsgrad": (text, lambda: keras.optimizers.Adam(0.01, amsgrad=True)),
    "schedule": (image, lambda: keras.optimizers.AdamW(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9))),
    "sgd": (stack, lambda: keras.optimizers.SGD(0.01, momentum=0.9)),
    "plain-sgd": (stack, lambda: keras.optimizers.SGD(0.01)),
    "rmsprop": (text, lambda: keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True)),
    "nadam": (image, lambda: keras.optimizers.Nadam(0.01)),
    "ema": (image, lambda: keras.optimizers.Adam(0.01, use_ema=True)),
    "accumulated": (stack, lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)),
    "adadelta": (stack, lambda: keras.optimizers.Adadelta(0.01)),
    "attention": (attention, lambda: keras.optimizers.Adam(0.01)),
    "bfloat16": (image, lambda: keras.optimizers.Adam(0.01)),
}


def bits(v):
    t = v.value.detach().cpu().contiguous() if hasattr(v, "value") else v.detach().cpu().contiguous()
    return t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def key(v):
    return str(v.dtype), tuple(v.shape), f"{zlib.crc32(bits(v)):08x}"


def make(name):
    build, optimizer = CASES[name]
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    keras.mixed_precision.set_dtype_policy("bfloat16" if name == "bfloat16" else "float32")
    m, x = build()
    m.compile(optimizer(), loss="mse")
    m.fit(x, np.random.rand(6, 3), batch_size=3, epochs=1, verbose=0)
    keras.mixed_precision.set_dtype_policy("float32")
    return m


def listed(inspect, path):
    status, doc = ask(inspect, "list", "--json", "--checksum", path)
    check(f"list {path}", status == 0, doc)
    return doc.get("tensors", [])


def check_content(what, tensors, m, seeds):
    """As many of each dtype, shape and content as Keras has; seed generators are in the file of some versions only."""
    want = sorted(key(v) for v in m.variables if seeds or "seed_generator" not in v.path)
    want = sorted(want + [key(v) for v in m.optimizer.variables]) if m.optimizer else want
    have = sorted((t["dtype"], tuple(t["shape"]), t["crc32"]) for t in tensors if seeds or t.get("role") != "rng")
    check(f"{what}: every variable by its content", want == have, f"{[w for w in want if w not in have][:3]} {[h for h in have if h not in want][:3]}")


def check_owners(what, tensors, m):
    """optimizer/vars/N is Keras' N-th; its name there has the parameter's path in it."""
    by_name = {t["name"]: t for t in tensors}
    paths = {v.path.replace("/", "_"): v for v in m.trainable_variables}
    wrong, known, slots = [], 0, 0
    for n, v in enumerate(m.optimizer.variables):
        t = by_name[f"optimizer/vars/{n}"]
        name = v.path.split("/", 1)[-1]
        of = next((p for p in sorted(paths, key=len, reverse=True) if name.startswith(p + "_")), None)
        slots += of is not None
        if t.get("state_key") is not None and of and not name == f"{of}_{t['state_key']}":
            wrong.append(f"{n}: {name} is called {t['state_key']}")
        if t.get("state_key") is not None and of is None and t["state_key"] not in name and "u_product" != t["state_key"]:
            wrong.append(f"{n}: {name} is called {t['state_key']}")
        if "adam" in m.optimizer.name and t.get("state_key") in SLOTS and t["role"] != SLOTS[t["state_key"]]:
            wrong.append(f"{n}: {t['state_key']} has the role {t['role']}")
        if t.get("param"):
            known += 1
            if of is None or by_name[t["param"]]["crc32"] != key(paths[of])[2] or tuple(by_name[t["param"]]["shape"]) != tuple(v.shape):
                wrong.append(f"{n}: {name} is said to be of {t['param']}")
    check(f"{what}: whose state each is ({known} of {slots} told)", not wrong, wrong[:4])
    return known, slots


def check_bytes(inspect, what, path, tensors):
    for t in tensors[:: max(1, len(tensors) // 3)]:
        run(inspect, "extract", path, t["name"], "--raw", "--force", "-o", "raw")
        check(f"{what}: extract {t['name']}", f"{zlib.crc32(open('raw', 'rb').read()):08x}" == t["crc32"])


def check_migrated(migrate, what, path, tensors):
    crcs = {t["name"]: t["crc32"] for t in tensors}
    for to, out in (("torch", "out.pt"), ("safetensors", "out.safetensors"), ("ckpt", "ours.safetensors")):
        done = run(migrate, "--to", to, "--lossy", "--force", path, out)
        if not check(f"{what}: migrated to {to}", done.returncode == 0, done.stderr):
            continue
        found = torch.load(out) if to == "torch" else load_file(out)
        wrong = [n for n, c in crcs.items() if n not in found or f"{zlib.crc32(bits(found[n])):08x}" != c]
        check(f"{what}: {to} reads the same", not wrong, wrong[:4])


def check_restored(inspect, what, path, tensors):
    """By a program in C, beside the commands: every tensor into its buffer."""
    done = run(os.path.join(os.path.dirname(inspect), "../../tests/interop/restore_crc"), path)
    got = {line.split("\t")[0]: line.split("\t")[2] for line in done.stdout.splitlines()}
    want = {t["name"]: t["crc32"] for t in tensors}
    check(f"{what}: {len(want)} restored equal", done.returncode == 0 and got == want, f"{done.stderr} {sorted(want.keys() ^ got.keys())[:5]} of {len(got)}, {len(want)}")


def one(inspect, migrate, name):
    m = make(name)
    m.save(f"{name}.keras")
    m.save_weights(f"{name}.weights.h5")
    loaded = keras.saving.load_model(f"{name}.keras")
    seeds = any("seed_generator" in t["name"] for t in listed(inspect, f"{name}.keras"))
    for path in (f"{name}.keras", f"{name}.weights.h5"):
        tensors = listed(inspect, path)
        check_content(path, tensors, loaded, seeds)
        known, slots = check_owners(path, tensors, loaded)
        if path.endswith(".keras") and name not in ("attention",):
            check(f"{path}: all are told", known == slots, f"{known} of {slots}")
        check_restored(inspect, path, path, tensors)
        check(f"{path}: verify", run(inspect, "verify", path).returncode == 0)
    if name in ("adam", "bfloat16", "amsgrad"):
        tensors = listed(inspect, f"{name}.keras")
        check_bytes(inspect, name, f"{name}.keras", tensors)
        check_migrated(migrate, name, f"{name}.keras", tensors)
        try:
            keras.saving.save_model(m, f"{name}-unpacked", zipped=False)
        except Exception as e:
            print(f"not run: a model that is saved unpacked: {e}")
        else:
            unpacked = {t["name"]: t["crc32"] for t in listed(inspect, f"{name}-unpacked")}
            check(f"{name}-unpacked: as in the archive", unpacked == {t["name"]: t["crc32"] for t in tensors}, len(unpacked))
    if name in ("adam", "amsgrad"):
        os.mkdir(f"{name}-shards")
        m.save_weights(f"{name}-shards/model.weights.json", max_shard_size=2e-6)
        check(f"{name}: there are several shards", len(os.listdir(f"{name}-shards")) > 2)
        check_content(f"{name}-shards", listed(inspect, f"{name}-shards"), loaded, seeds)


def old(inspect):
    """Keras 2's format, as long as Keras writes it."""
    m = make("adam")
    try:
        m.save("old.h5")
    except Exception as e:
        print(f"not run: the HDF5 of Keras 2: {e}")
        return
    tensors = listed(inspect, "old.h5")
    check_content("old.h5", tensors, m, False)
    owners = {t["name"].rpartition("/")[2]: t.get("param", "") for t in tensors if t["name"].startswith("optimizer_weights/")}
    wrong = [n for v in m.trainable_variables for s in ("momentum", "velocity") for n in [f"{v.path.replace('/', '_')}_{s}"]
             if not (owners.get(n) or "").endswith("/" + v.path)]
    check("old.h5: whose state each is", not wrong, wrong[:4])


def damaged(inspect):
    data = bytearray(open("adam.keras", "rb").read())
    with h5py.File("adam.weights.h5") as f:
        at = data.find(f["layers/conv2d/vars/0"][()].tobytes())
    data[at] ^= 1
    open("flipped.keras", "wb").write(data)
    status, doc = ask(inspect, "verify", "--json", "flipped.keras")
    check("a flipped bit of a weight is found", at > 0 and status == 1, doc)


def main():
    inspect, migrate = checks.commands(__doc__, 2)
    with checks.scratch():
        for name in CASES:
            with section(name):
                one(inspect, migrate, name)
        with section("old"):
            old(inspect)
        with section("damaged"):
            damaged(inspect)
    checks.finish()


main()
