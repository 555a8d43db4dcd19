"""Torch files laid by hand, and what changes them at random (it is no script itself: same_as_torch.py).

Zip is an archive of which every field of every header can be said; Pickle writes opcodes. mutants() changes the bytes or the
opcodes of the pickle, keys, records, fields of the directory and the end records, with CRCs that are right again.
"""
import copy
import pickletools
import struct
import zlib
from collections import OrderedDict

MAGIC = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")


# ---------------------------------------------------------------- pickles

class Raw(bytes):
    """Opcodes as they are."""


def name(module, attribute):
    return Raw(b"c" + module.encode() + b"\n" + attribute.encode() + b"\n")


def op(value):
    """The opcodes that make a value; what is Raw stays."""
    if isinstance(value, Raw):
        return value
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        if 0 <= value < 256:
            return b"K" + bytes([value])
        if -1 << 31 <= value < 1 << 31:
            return b"J" + struct.pack("<i", value)
        data = value.to_bytes((value.bit_length() // 8) + 1, "little", signed=True)
        return b"\x8a" + bytes([len(data)]) + data
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return b"X" + struct.pack("<I", len(data)) + data
    if isinstance(value, tuple):
        return b")" if not value else b"(" + b"".join(map(op, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(op, value)) + b"e"
    if isinstance(value, OrderedDict):
        return call(name("collections", "OrderedDict")) + items(value.items())
    if isinstance(value, dict):
        return b"}" + items(value.items())
    raise TypeError(type(value))


def items(pairs):
    """SETITEMS of (key, value) pairs; a key may come twice."""
    return Raw(b"(" + b"".join(op(k) + op(v) for k, v in pairs) + b"u")


def call(function, *arguments):
    return Raw(function + op(tuple(arguments)) + b"R")


def make(function, *arguments):
    return Raw(function + op(tuple(arguments)) + b"\x81")


def built(thing, state):
    return Raw(op(thing) + op(state) + b"b")


def storage(key="0", count=4, kind="FloatStorage", location="cpu", module="torch"):
    return Raw(op(("storage", name(module, kind), key, location, count)) + b"Q")


def old_storage(key="0", count=4, kind="FloatStorage", location="cpu", view=None):
    return Raw(op(("storage", name("torch", kind), key, location, count, view)) + b"Q")


def tensor(key="0", count=4, offset=0, size=(4,), stride=(1,), grad=False, *more, kind="FloatStorage", hooks=OrderedDict(), of=None):
    return call(name("torch._utils", "_rebuild_tensor_v2"), of or storage(key, count, kind), offset, size, stride, grad, hooks, *more)


def parameter(data, grad=True):
    return call(name("torch._utils", "_rebuild_parameter"), data, grad, OrderedDict())


def pickle(value):
    return b"\x80\x02" + op(value) + b"."


# ---------------------------------------------------------------- archives

class Record:
    """A record's bytes, and what its headers say; None: the truth."""

    def __init__(self, name, data=b"", method=0, **said):
        self.name, self.data, self.method = name.encode() if isinstance(name, str) else name, data, method
        self.said = said

    def coded(self):
        if self.method != 8:
            return self.data
        z = zlib.compressobj(6, zlib.DEFLATED, -15)
        return z.compress(self.data) + z.flush()


FIELDS = [("made", 2), ("needed", 2), ("flags", 2), ("method", 2), ("time", 2), ("date", 2), ("crc", 4), ("csize", 4), ("usize", 4),
          ("name_size", 2), ("extra_size", 2), ("comment_size", 2), ("disk", 2), ("inner", 2), ("outer", 4), ("offset", 4)]
END = [("disk", 2), ("directory_disk", 2), ("here", 2), ("count", 2), ("size", 4), ("offset", 4), ("comment_size", 2)]


def fields(table, values):
    return b"".join((values[k] & ((1 << 8 * n) - 1)).to_bytes(n, "little") for k, n in table)


class Zip:
    """What torch.save lays: names below `root`, each record's bytes at a multiple of 64, or without padding."""

    def __init__(self, records, root="archive", pad=True, end=None, comment=b"", behind=b"", before=b""):
        self.records, self.root, self.pad = records, root, pad
        self.end, self.comment, self.behind, self.before = end or {}, comment, behind, before

    def laid(self):
        out, directory = bytearray(self.before), bytearray()
        for r in self.records:
            coded, at = r.coded(), len(out)
            name = r.name
            extra = b""
            if self.pad:
                gap = -(at + 30 + len(name) + 4) % 64
                extra = b"FB" + struct.pack("<H", gap) + b"Z" * gap
            flags = 0x800
            local = {"needed": 0, "flags": flags, "method": r.method, "time": 0, "date": 0, "crc": zlib.crc32(r.data), "csize": len(coded),
                     "usize": len(r.data), "name_size": len(name), "extra_size": len(extra)}
            local.update({k[6:]: v for k, v in r.said.items() if k.startswith("local_") and k != "local_name"})
            out += b"PK\3\4" + fields([f for f in FIELDS if f[0] in local], local) + r.said.get("local_name", name) + extra + coded
            values = {"made": 0, "needed": 0, "flags": flags, "method": r.method, "time": 0, "date": 0, "crc": zlib.crc32(r.data),
                      "csize": len(coded), "usize": len(r.data), "name_size": len(name), "extra_size": 0, "comment_size": 0, "disk": 0,
                      "inner": 0, "outer": 0, "offset": at}
            values.update({k: v for k, v in r.said.items() if not k.startswith("local_")})
            directory += b"PK\1\2" + fields(FIELDS, values) + name
        end = {"disk": 0, "directory_disk": 0, "here": len(self.records), "count": len(self.records), "size": len(directory),
               "offset": len(out), "comment_size": len(self.comment)}
        end.update(self.end)
        return bytes(out + directory + b"PK\5\6" + fields(END, end) + self.comment + self.behind)


F4 = {"0": struct.pack("<4f", 1, 2, 3, 4), "1": struct.pack("<4f", 5, 6, 7, 8)}


def archive(value, storages=None, version=b"3\n", byteorder=b"little", more=(), root="archive", **how):
    """A file of torch.save; value None: its pickle is among `more`."""
    records = [] if value is None else [Record(f"{root}/data.pkl", value if isinstance(value, bytes) and value[:1] == b"\x80" else pickle(value))]
    if byteorder is not None:
        records.append(Record(f"{root}/byteorder", byteorder))
    records += [Record(f"{root}/data/{k}", v) for k, v in (F4 if storages is None else storages).items()]
    if version is not None:
        records.append(Record(f"{root}/version", version))
    records += [Record(n if n.startswith("/") is False and "/" in n and n.split("/")[0] != "" else f"{root}{n}", d) if isinstance(n, str) else n
                for n, d in (x if isinstance(x, tuple) else (x, None) for x in more)]
    return Zip([r if isinstance(r, Record) else r for r in records], root, **how)


def legacy(value, storages=None, keys=None, info=None):
    """A file of torch before 1.6."""
    body = value if isinstance(value, bytes) and value[:1] == b"\x80" else pickle(value)
    storages = F4 if storages is None else storages
    keys = sorted(storages) if keys is None else keys
    out = MAGIC + b"\x80\x02M\xe9\x03." + pickle(info if info is not None else {"protocol_version": 1001, "little_endian": True}) + body
    return out + pickle(list(keys)) + b"".join(struct.pack("<q", len(storages[k]) // 4) + storages[k] for k in keys)


# ---------------------------------------------------------------- reading a real file to change it

def records_of(data):
    """A Zip of the records of a file that torch.save wrote."""
    import io
    import zipfile
    z = zipfile.ZipFile(io.BytesIO(data))
    return Zip([Record(i.filename, z.read(i), 8 if i.compress_type == 8 else 0) for i in z.infolist()],
               z.infolist()[0].filename.split("/")[0])


def pickles_of(data):
    """Where the five pickles of a legacy file begin and end."""
    out, at = [], 0
    for _ in range(5):
        end = [p for _, _, p in pickletools.genops(data[at:])][-1] + 1
        out.append((at, at + end))
        at += end
    return out


def opcodes(data):
    """[(name, argument, its bytes), ...]"""
    try:
        found = list(pickletools.genops(data))
    except Exception:
        return []
    ends = [p for _, _, p in found[1:]] + [len(data)]
    return [(o.name, a, data[p:e]) for (o, a, p), e in zip(found, ends)]


# ---------------------------------------------------------------- mutants

SNIPPETS = [b"0", b"2", b"N", b"N0", b"}", b"]", b")", b"\x88", b"\x89", b"K\1", b"K\0", b"J\xff\xff\xff\xff", b"}b", b")b", b"N}\x86b", b"(u", b"(e",
            b"h\0", b"h\1", b"q\xc8", b"(0", b"(1", b"\x8f", b"\x94", b"\x85", b"\x86", b"X\3\0\0\0neg", b"X\4\0\0\0dataK\1", b"U\1a", b"I01\n", b"I1\n", b"L1L\n",
            b"F1.0\n", b"V1\n", b"G\x3f\xf0\0\0\0\0\0\0", b"G\x80\0\0\0\0\0\0\0", b"NNs", b"K\1Ns", b"R", b"\x81", b"a", b"s", b"Na", b"t", b"."]


def change_pickle(data, random):
    ops = opcodes(data)
    if not ops or random.random() < 0.15:
        return change_bytes(data, random, random.randint(1, 3))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        i = random.randrange(1, max(2, len(ops) - 1))
        what = random.random()
        if what < 0.12:
            del ops[i]
        elif what < 0.22:
            ops.insert(i, ops[random.randrange(1, len(ops))])
        elif what < 0.32:
            j = random.randrange(1, len(ops))
            ops[i], ops[j] = ops[j], ops[i]
        elif what < 0.47:
            ops.insert(i, ("?", None, random.choice(SNIPPETS)))
        elif what < 0.57:
            ops[i] = ("?", None, random.choice(SNIPPETS))
        elif what < 0.75:                                   # one key, number or name becomes another one of the file
            texts = [k for k, o in enumerate(ops) if o[0] in ("BINUNICODE", "GLOBAL", "BININT1", "BININT", "LONG1", "BININT2", "BINFLOAT")]
            if len(texts) > 1:
                a = random.choice(texts)
                same = [k for k in texts if ops[k][0] == ops[a][0]] if random.random() < 0.7 else texts
                ops[a] = ops[random.choice(same)]
        elif what < 0.85:
            numbers = [k for k, o in enumerate(ops) if o[0] in ("BININT1", "BININT", "LONG1", "NEWTRUE", "NEWFALSE", "NONE", "BINFLOAT")]
            if numbers:
                ops[random.choice(numbers)] = ("?", None, random.choice((b"K\0", b"K\1", b"K\2", b"\x88", b"\x89", b"N", b"J\xff\xff\xff\xff",
                                                                         b"G\0\0\0\0\0\0\0\0", b"G\x3f\xf0\0\0\0\0\0\0", b"\x8a\x09\0\0\0\0\0\0\0\0\1")))
        elif what < 0.93:                                   # a stretch again: items, a whole tensor, a key and its value
            j = min(len(ops) - 1, i + random.choice((1, 2, 3, 5, 20, 28)))
            at = random.randrange(1, len(ops))
            ops[at:at] = [o for o in ops[i:j] if o[0] != "STOP"]
        else:                                               # a state for whatever was just called
            calls = [k for k, o in enumerate(ops) if o[0] in ("REDUCE", "NEWOBJ")]
            if calls:
                k = random.choice(calls)
                ops.insert(k + 1, ("?", None, random.choice((b"}b", b")b", b"Nb", b"(\x88NNtb", b"}X\4\0\0\0dataK\1sb", b"}X\1\0\0\0aK\1sb", b"}}\x86b"))))
    return b"".join(o[2] for o in ops)


def change_bytes(data, random, n):
    data = bytearray(data)
    for _ in range(n):
        if not data:
            break
        i = random.randrange(len(data))
        what = random.random()
        if what < 0.5:
            data[i] ^= 1 << random.randrange(8)
        elif what < 0.75:
            data[i] = random.randrange(256)
        elif what < 0.88:
            del data[i]
        else:
            data.insert(i, random.choice(data))
    return bytes(data)


def other_case(name, random):
    letters = [i for i in range(len(name)) if name[i:i + 1].isalpha()]
    out = bytearray(name)
    for i in random.sample(letters, min(len(letters), random.choice((1, 1, len(letters))))):
        out[i] ^= 0x20
    return bytes(out)


SMALL = [b"", b"0", b"1", b"2", b"3", b"3\n", b"10", b"11", b"99", b" 3", b"3x", b"x", b"-1", b"little", b"big", b"Little", b"little\n", b"64", b"6_4", b" 64\n", b"0x40"]


def change_zip(z, random):
    z = copy.deepcopy(z)
    r = random.choice(z.records)
    what = random.random()
    if what < 0.12:
        r.said[random.choice(FIELDS)[0]] = random.choice((0, 1, 2, 8, 16, 0x20, 0x40, 0x2000, 0x800, 0xFFFF, 0xFFFFFFFF, random.randrange(1 << 32)))
    elif what < 0.18:
        r.said["local_" + random.choice([f[0] for f in FIELDS[1:11]])] = random.choice((0, 1, 8, 0x20, 0xFFFF, 0xFFFFFFFF, random.randrange(1 << 16)))
    elif what < 0.28:
        z.end[random.choice(END)[0]] = random.choice((0, 1, 2, 0xFFFF, 0xFFFFFFFF, random.randrange(1 << 16)))
    elif what < 0.38:
        r.name = other_case(r.name, random)
    elif what < 0.50:                                       # another record, perhaps of a name that is there but for its case
        again = copy.deepcopy(r)
        again.name = random.choice((other_case(r.name, random), r.name, r.name + b"x", b"README", b"other/" + r.name, b"", z.root.encode() + b"/constants.pkl",
                                    z.root.encode() + b"/code/x.py", z.root.encode() + b"/.data/version", z.root.encode() + b"/x/", z.root.encode() + b"/\xff"))
        again.data = random.choice((again.data, change_bytes(again.data, random, 1), b"", *SMALL))
        z.records.insert(random.randrange(len(z.records) + 1), again)
    elif what < 0.58:
        z.records.remove(r)
    elif what < 0.66:
        random.shuffle(z.records)
    elif what < 0.76:
        small = [x for x in z.records if len(x.data) < 50 and b"/data/" not in x.name] or [r]
        random.choice(small).data = random.choice(SMALL)
    elif what < 0.80:
        r.method = 8 - r.method if r.method in (0, 8) else 0
    elif what < 0.86:
        z.comment = random.choice((b"x", b"PK\5\6" + bytes(18), b"PK\5\6" + bytes(17), z.laid()[-22:], b"hello PK\5\6"))
    elif what < 0.92:
        z.behind = random.choice((b"\0", bytes(40), b"PK\5\6" + bytes(18), z.laid(), b"PK\5\6", bytes(70000)))
    else:
        r.data = change_bytes(r.data, random, 1)
    return z


def mutants(bases, random):
    """(name, bytes) for ever; bases are (name, bytes) of files that torch saved."""
    while True:
        label, data = random.choice(bases)
        if data[:4] == b"PK\3\4":
            z = records_of(data)
            z.pad = random.random() < 0.8
            what = random.random()
            if what < 0.62:
                for r in z.records:
                    if r.name == z.root.encode() + b"/data.pkl":
                        r.data = change_pickle(r.data, random)
                yield label + ": pickle", z.laid()
            elif what < 0.92:
                for _ in range(random.choice((1, 1, 2))):
                    if z.records:
                        z = change_zip(z, random)
                yield label + ": archive", z.laid()
            else:
                yield label + ": bytes", change_bytes(data, random, random.randint(1, 2))
        else:
            spans = pickles_of(data)
            what = random.random()
            if what < 0.75:
                a, b = spans[random.choices(range(5), (1, 1, 1, 12, 3))[0]]
                yield label + ": pickle", data[:a] + change_pickle(data[a:b], random) + data[b:]
            elif what < 0.9:
                yield label + ": bytes", change_bytes(data, random, random.randint(1, 2))
            else:
                end = spans[-1][1]
                yield label + ": storages", data[:end] + change_bytes(data[end:], random, 1) if random.random() < 0.6 else data[:random.randrange(len(data))]
