#!/usr/bin/env python3
"""Makes the files of tests/data/keras: make_keras.py DIR. Versions: keras 3.15.1 on torch 2.13.0, h5py 3.16.0, numpy 2.4.6.

small.*: a model of a convolution, batch normalization and two dense layers after a step of Adam, as .keras, as
weights in two files, and as Keras 2 kept it. The rest is h5py's: coded.h5 has the ways in which a dataset may lie in a file, newer.h5 is of a newer HDF5, and
bad-*.h5 what a reader must refuse. expected.txt: name, dtype, shape and CRC-32 of every tensor, as h5py reads it."""
import os
import struct
import sys
import zlib
import zipfile

os.environ["KERAS_BACKEND"] = "torch"
import h5py
import keras
import ml_dtypes
import numpy as np

out = sys.argv[1]
os.makedirs(os.path.join(out, "shards"), exist_ok=True)
expected = open(os.path.join(out, "expected.txt"), "w")


def path(name):
    return os.path.join(out, name)


def expect(name, file):
    def visit(at, d):
        if isinstance(d, h5py.Dataset):
            a = np.asarray(d[()])
            dtype = d.attrs.get("dtype", str(a.dtype))
            a = a.astype(a.dtype.newbyteorder("<")) if a.dtype.kind != "V" else a
            shape = ",".join(map(str, a.shape)) or "-"
            expected.write(f"{name} {at} {str(dtype).lstrip('><')} {shape} {zlib.crc32(a.tobytes('C')):08x}\n")

    with h5py.File(file, "r") as f:
        f.visititems(visit)


def model():
    keras.utils.set_random_seed(3)
    i = keras.Input((4, 4, 2), name="image")
    x = keras.layers.Conv2D(2, 3, name="first")(i)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(5, activation="relu")(x)
    m = keras.Model(i, keras.layers.Dense(3, name="head")(x), name="small")
    m.compile(keras.optimizers.Adam(0.01), loss="mse")
    m.fit(np.random.rand(6, 4, 4, 2), np.random.rand(6, 3), batch_size=3, epochs=1, verbose=0)
    return m


def of_keras():
    m = model()
    m.save(path("small.keras"))
    m.save(path("small.h5"))
    m.save_weights(path("shards/small.weights.json"), max_shard_size=1e-6)
    with zipfile.ZipFile(path("small.keras")) as z:
        with zipfile.ZipFile(path("deflated.keras"), "w", zipfile.ZIP_DEFLATED) as d:
            for n in reversed(z.namelist()):
                d.writestr(n, z.read(n))
        with open(path("member.tmp"), "wb") as f:
            f.write(z.read("model.weights.h5"))
    expect("small.keras", path("member.tmp"))
    os.remove(path("member.tmp"))
    expect("small.h5", path("small.h5"))


def wrapped():
    """As a program names them whose layers are those of a wrapped module (DataParallel)."""
    with h5py.File(path("module.weights.h5"), "w") as f:
        for i, a in enumerate((np.arange(6, dtype="f4").reshape(2, 3), np.ones(3, "f4"))):
            f[f"module.layers/dense/vars/{i}"] = a
    expect("module.weights.h5", path("module.weights.h5"))


def coded():
    rng = np.random.default_rng(4)
    with h5py.File(path("coded.h5"), "w") as f:
        a = rng.integers(-9, 9, (7, 10)).astype("f4")
        f.create_dataset("contiguous", data=a)
        f.create_dataset("chunks", data=a, chunks=(3, 4))
        f.create_dataset("gzip", data=a, chunks=(3, 4), compression="gzip")
        f.create_dataset("shuffled", data=a, chunks=(3, 4), compression="gzip", shuffle=True)
        f.create_dataset("checked", data=a, chunks=(4, 10), fletcher32=True)
        f.create_dataset("big_endian", data=a.astype(">f8"))
        f.create_dataset("big_chunks", data=a.astype(">i2"), chunks=(7, 3), compression="gzip")
        hole = f.create_dataset("holes", (6, 6), "f4", chunks=(2, 2), fillvalue=1.5)
        hole[0:2, 0:2] = 7
        f.create_dataset("unwritten", (3,), "i8", fillvalue=-2)
        f.create_dataset("empty", (0, 3), "f4")
        f.create_dataset("yes", data=np.array([True, False, True]))
        for name in ("u1", "u4", "u8", "i1", "f2"):
            f.create_dataset(name, data=rng.integers(0, 100, 3).astype(name))
        d = f.create_dataset("bf16", data=rng.standard_normal(4).astype(ml_dtypes.bfloat16))
        d.attrs["dtype"] = "bfloat16"
        compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        compact.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(f.id, b"compact", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((2,)), compact).write(
            h5py.h5s.ALL, h5py.h5s.ALL, np.array([3, 4], "f4"))
        f.attrs["int"] = -5
        f.attrs["big"] = np.uint64(2**64 - 1)
        f.attrs["float"] = 0.1
        f.attrs["bool"] = True
        f.attrs["ints"] = [1, 2, 3]
        f.attrs["text"] = "h\u00e9"
        f.attrs["fixed"] = np.bytes_("abc")
        f.attrs["names"] = ["it's", "b"]
        f.attrs["fixed_names"] = np.array([b"kernel:0", b"bias:0"])
        f.attrs["none"] = h5py.Empty("f4")
        f.attrs["compound"] = np.zeros((), [("a", "i4")])
    expect("coded.h5", path("coded.h5"))


def newer():
    """Its layout message has the version 5 of HDF5 2.0, which an older libhdf5 does not know."""
    with h5py.File(path("newer.h5"), "w", libver="latest") as f:
        f.create_dataset("a", data=np.arange(12, dtype="f4").reshape(3, 4), chunks=(2, 2), compression="gzip")


def bad():
    with h5py.File(path("bad-soft-link.h5"), "w") as f:
        f["a"] = np.zeros(2, "f4")
        f["b"] = h5py.SoftLink("/a")
    with h5py.File(path("bad-external-link.h5"), "w") as f:
        f["a"] = h5py.ExternalLink("coded.h5", "/contiguous")
    with h5py.File(path("bad-cycle.h5"), "w") as f:
        g = f.create_group("a")
        g["b"] = f["/"]
    with h5py.File(path("bad-two-names.h5"), "w") as f:
        f["a"] = np.zeros(2, "f4")
        f["b"] = f["a"]
    with h5py.File(path("bad-external-storage.h5"), "w") as f:
        f.create_dataset("a", (4,), "f4", external=[("/etc/passwd", 0, 16)])
    with h5py.File(path("bad-virtual.h5"), "w") as f:
        v = h5py.VirtualLayout((7, 10), "f4")
        v[:] = h5py.VirtualSource(path("coded.h5"), "contiguous", (7, 10))
        f.create_virtual_dataset("a", v)
    with h5py.File(path("bad-texts.h5"), "w") as f:
        f.create_dataset("a", data=["x", "y"], dtype=h5py.string_dtype())
    with h5py.File(path("bad-lists.h5"), "w") as f:
        f.create_dataset("a", (2,), dtype=h5py.vlen_dtype("i4"))
    with h5py.File(path("bad-compound.h5"), "w") as f:
        f["a"] = np.zeros(2, [("r", "f4"), ("i", "f4")])
    with h5py.File(path("bad-reference.h5"), "w") as f:
        f.create_dataset("a", (2,), dtype=h5py.ref_dtype)
    with h5py.File(path("bad-opaque.h5"), "w") as f:
        f["a"] = np.zeros(2, "V2")
    with h5py.File(path("bad-bomb.h5"), "w") as f:  # a few KiB that would be 1 GiB
        d = f.create_dataset("a", (1 << 28,), "f4", chunks=(1 << 28,), compression="gzip", shuffle=True)
    with h5py.File(path("bad-length.h5"), "w") as f:
        f.attrs["name"] = "dense_layer_x"
    b = bytearray(open(path("bad-length.h5"), "rb").read())  # its reference to the text says 1.5 GiB
    at = next(k for k in range(len(b) - 16) if b[k:k + 4] == struct.pack("<I", 13)
              and b[(a := struct.unpack_from("<Q", b, k + 4)[0]):a + 4] == b"GCOL")
    b[at:at + 4] = struct.pack("<I", 0x60000000)
    open(path("bad-length.h5"), "wb").write(b)
    with h5py.File(path("bad-filter.h5"), "w") as f:
        f.create_dataset("a", data=np.zeros(8, "f4"), chunks=(8,), compression="lzf")


of_keras()
wrapped()
coded()
newer()
bad()
