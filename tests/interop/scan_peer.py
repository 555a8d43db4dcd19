#!/usr/bin/env python3
"""What `ckpt-inspect scan`, picklescan and fickling call dangerous, over files that attack and files that do not.

usage: scan_peer.py CKPT-INSPECT [FILE|FOLDER...]

Needs torch, numpy, picklescan and fickling. The attacks are written byte by byte and never loaded; what they would run
prints. Every attack must be dangerous to ckpt-inspect, but for those of which no name can be told, which must not be clean;
what either peer calls dangerous must be dangerous or unknown; what torch.load(weights_only=True) reads must be clean. With
FILEs, those are put into the table too (a folder's checkpoints: what stands beside X.expect.json, those below hostile/
being attacks where its `want` says so)."""
import contextlib
import gzip
import io
import json
import logging
import os
import pathlib
import pickle
import struct
import sys
import tarfile
import warnings
import zipfile
import zlib

import checks
from checks import check, section

try:
    import fickling.loader
    import numpy as np
    import picklescan.scanner
    import torch
    from fickling.analysis import Severity
except ImportError as e:
    checks.skip(f"{e.name} is not there")

RUN = b"echo attack"


# ---- pickles, opcode by opcode

def line(*words):
    return b"".join(w + b"\n" for w in words)


def short(text):
    return b"\x8c" + bytes([len(text)]) + text


def uni(text):
    return b"X" + struct.pack("<I", len(text)) + text


def call(module=b"os", name=b"system", argument=RUN, proto=2):
    """module.name(argument), by GLOBAL or STACK_GLOBAL."""
    named = short(module) + short(name) + b"\x93" if proto >= 4 else b"c" + line(module, name)
    return b"\x80" + bytes([proto]) + named + uni(argument) + b"\x85R."


def bodies():
    """name -> a pickle that would run something."""
    out = {}
    names = ("os.system posix.system nt.system os.popen os.execl subprocess.Popen subprocess.run subprocess.check_output "
             "commands.getoutput builtins.eval __builtin__.eval builtins.exec __builtin__.execfile builtins.compile "
             "builtins.open builtins.__import__ builtins.getattr builtins.setattr builtins.breakpoint __builtin__.apply "
             "importlib.import_module importlib._bootstrap._load runpy.run_path runpy._run_code pty.spawn code.interact "
             "code.InteractiveInterpreter bdb.Bdb pdb.run timeit.timeit cProfile.run profile.run trace.Trace "
             "doctest.debug_script pydoc.pipepager pickle.loads _pickle.loads cPickle.loads dill.loads cloudpickle.loads "
             "marshal.loads types.CodeType types.FunctionType ctypes.CDLL ctypes.util.find_library "
             "socket.create_connection ssl.create_default_context http.client.HTTPConnection urllib.request.urlopen "
             "urllib2.urlopen httplib.HTTPConnection requests.get requests.api.get aiohttp.request smtplib.SMTP ftplib.FTP "
             "webbrowser.open asyncio.run multiprocessing.Process threading.Thread shutil.rmtree tempfile.mktemp sys.exit "
             "operator.attrgetter operator.methodcaller _operator.attrgetter functools.reduce pip.main pip._internal.main "
             "venv.create ensurepip._run_pip idlelib.pyshell.main lib2to3.main logging.config.dictConfig "
             "logging.FileHandler _io.open _io.FileIO io.open codecs.open zipfile.ZipFile sqlite3.connect gc.get_objects "
             "inspect.getmodule atexit.register signal.signal numpy.load numpy.testing._private.utils.runstring "
             "numpy.f2py.compile numpy.f2py.crackfortran.myeval torch.load torch.hub.load torch.jit.load "
             "torch.serialization.load torch.utils.collect_env.run torch._dynamo.guards.GuardBuilder "
             "torch._inductor.codecache.compile_file torch.utils.cpp_extension.load "
             "torch.fx.experimental.symbolic_shapes.ShapeEnv torch.jit.unsupported_tensor_ops.execWrapper "
             "torch.utils.bottleneck.__main__.run_cprofile torch.utils._config_module.ConfigModule joblib.load "
             "pandas.read_pickle sympy.sympify six.moves.builtins.eval test.support.script_helper.assert_python_ok "
             "uuid._get_command_stdout platform.popen distutils.file_util.write_file pkgutil.resolve_name OS.system "
             "pipes.Template pipes.quote.__globals__ _bootsubprocess.Popen _posixshmem.shm_open wave.open aifc.open uu.decode "
             "zipapp.create_archive cgitb.Hook pstats.Stats mimetypes.read_mime_types tokenize.open _pyio.open "
             "_pyio._open_code_with_warning StringIO.open cStringIO.FileIO argparse.FileType argparse._os.remove "
             "_functools.reduce __builtin__.reduce builtins.license _xxsubinterpreters.run_string "
             "_interpreters.exec _testcapi.run_in_subinterp "
             "_asyncio.Task _tkinter.create logging.handlers.SocketHandler logging.config.ConvertingDict six.exec_ "
             "past.builtins.execfile future.utils.exec_ warnings._getcategory copy._reconstruct time.clock_settime "
             "dataclasses._create_fn dataclasses._process_class typing.get_type_hints robotparser.RobotFileParser "
             "cookielib.MozillaCookieJar dbhash.open commands.getstatusoutput pytest.main _pytest.config.main nose.run "
             "sysconfig._init_posix statistics.Popen my.helpers.check_output my.helpers.urlopen pathlib.attrgetter "
             "collections.__loader__ torch.storage.__dict__ torch.nn.modules.linear.__builtins__ "
             "numpy.lib._utils_impl.safe_eval numpy.lib.utils.safe_eval numpy.rec.fromfile numpy.core.records.fromfile "
             "numpy.ctypeslib.load_library numpy.compat.py3k.open_latin1 numpy._pytesttester.PytestTester "
             "torch._ops.ops.load_library torch.ops.load_library torch.classes.load_library torch._classes._Classes "
             "torch.compiler.load_cache_artifacts torch._inductor.standalone_compile torch._dynamo.optimize "
             "torch._C._construct_storage_from_data_pointer torch._C.import_ir_module torch._C.PyTorchFileReader "
             "torch._C._distributed_c10d.TCPStore torch._C._aoti.AOTIModelPackageLoader torch.distributed.init_process_group "
             "torch.distributed.distributed_c10d._tensor_to_object torch.distributed.checkpoint.filesystem.FileSystemWriter "
             "torch.distributed.checkpoint.state_dict_loader.load torch.utils.dlpack.from_dlpack torch.mps.compile_shader "
             "torch.onnx.export torch.library.Library torch.autograd.profiler.load_nvprof torch.utils.tensorboard.SummaryWriter "
             "torch._strobelight.cli_function_profiler.StrobelightCLIFunctionProfiler torch.cuda._utils._cuda_load_module "
             "torch._weights_only_unpickler.load")
    for full in names.split():
        module, _, name = full.rpartition(".")
        out[full] = call(module.encode(), name.encode())
    os_system = b"c" + line(b"os", b"system")
    arg = uni(RUN)
    out |= {
        "stack-global": call(proto=4),
        "dotted": call(b"torch.serialization", b"os.system", proto=4),
        "dotted-globals": call(b"collections", b"OrderedDict.__init__.__globals__", proto=4),
        "dotted-subclasses": call(b"builtins", b"object.__subclasses__", proto=4),
        "dotted-path": call(b"pathlib", b"Path.write_text", proto=4),
        "module-as-name": call(b"torch.serialization", b"os", proto=2),
        "memo": b"\x80\x04" + short(b"os") + b"\x94" + short(b"system") + b"\x940" + b"0h\x00h\x01\x93" + arg + b"\x85R.",
        "memo-far": b"\x80\x02" + uni(b"os") + b"r\xff\xff\xff\xff" + uni(b"system") + b"r\xfe\xff\xff\xff00"
                    + b"j\xff\xff\xff\xffj\xfe\xff\xff\xff\x93" + arg + b"\x85R.",
        "names-by-dup": b"\x80\x04" + short(b"os") + b"20" + short(b"system") + b"\x93" + arg + b"\x85R.",
        "escaped-names": b"Vo\\u0073\nV\\u0073ystem\n\x93" + arg + b"\x85R.",
        "string-names": b"S'\\x6fs'\nS\"sys\\164em\"\n\x93(" + arg + b"tR.",
        "memo-zero-byte": b"\x80\x04" + short(b"os") + b"p5\n0" + short(b"system") + b"p6\n0" + short(b"collections") + b"p57\n0"
                          + short(b"OrderedDict") + b"p67\n0g5\x007\ng6\x007\n\x93" + arg + b"\x85R.",
        "two-backslashes": b"V\\u0080\\u0002X\\u0007\\u0000\\u0000\\u0000\\\\u00410cos\\u000asystem\\u000a)R.\n.",
        "long-names": b"\x80\x04\x8d" + struct.pack("<Q", 2) + b"osT" + struct.pack("<I", 6) + b"system\x93" + arg + b"\x85R.",
        "old-ascii-names": b"U\x02osU\x06system\x93" + arg + b"\x85R.",
        "junk-after-stop": call() + b"\xff" * 40,
        "decoy-behind": b"cos\nsystem\n(S'echo attack'\ntR0V \nVx\n\x93.",
        "persistent": b"\x80\x02(" + uni(b"storage") + os_system + arg + b"\x85Rtq\x00Q.",
        "dict-key": b"\x80\x02}" + os_system + arg + b"\x85RNs.",
        "list-of-list": b"\x80\x02](" + os_system + arg + b"\x85Re.",
        "frozenset": b"\x80\x04(" + os_system + arg + b"\x85R\x91.",
        "in-bytearray": pickle.dumps(bytearray(call()), 5),
        "in-zlib": pickle.dumps(zlib.compress(call()), 4),
        "in-gzip": pickle.dumps(gzip.compress(call()), 2),
        "in-zip": pickle.dumps(archive({"x": call()}), 4),
        "in-npy": pickle.dumps(npy(call()), 4),
        "generator-ctor": b"\x80\x04cnumpy.random._pickle\n__generator_ctor\n" + arg + os_system + b"\x86R.",
        "nested-tensor-func": b"\x80\x02ctorch._utils\n_rebuild_wrapper_subclass\n(" + os_system + arg + b"tR.",
        "protocol-0": b"cos\nsystem\n(S'echo attack'\ntR.",
        "inst": b"(S'echo attack'\nios\nsystem\n.",
        "obj": b"\x80\x02(" + os_system + arg + b"o.",
        "newobj": b"\x80\x02" + os_system + arg + b"\x85\x81.",
        "newobj-ex": b"\x80\x04" + os_system + arg + b"\x85}\x92.",
        "setstate": b"\x80\x02ccollections\nCounter\n)R}" + uni(b"x") + os_system + b"sb.",
        "in-a-tuple": b"\x80\x02" + os_system + b"\x85q\x000h\x00.",
        "map": b"\x80\x02cbuiltins\nlist\ncbuiltins\nmap\n" + os_system + b"]" + arg + b"a\x86R\x85R.",
        "rebuild-from-type": b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(" + os_system + os_system + arg + b"\x85}tR.",
        "partial": b"\x80\x02cfunctools\npartial\n" + os_system + arg + b"\x86R.",
        "getattr-chain": b"\x80\x02cbuiltins\ngetattr\nc__builtin__\n__import__\n" + uni(b"os") + b"\x85R" + uni(b"system")
                         + b"\x86R" + arg + b"\x85R.",
        "getattr-attribute": b"\x80\x02cbuiltins\ngetattr\nctorch.serialization\nload\n" + uni(b"__globals__") + b"\x86R.",
        "truncated": call()[:-1],
        "bad-opcode": call()[:-1] + b"\xff\xff.",
        "after-stop": b"\x80\x02K\x01." + call(),
        "third": b"\x80\x02K\x01." * 2 + call(),
        "in-bytes": pickle.dumps([1, call()], 4),
        "in-latin1": pickle.dumps([1, call()], 2),
        "in-ascii": pickle.dumps(["cos\nsystem\n(S'echo attack'\ntR."], 4),
        "in-protocol-0-string": pickle.dumps(call().decode("latin1"), 0),
        "in-bytes-in-bytes": pickle.dumps({"a": pickle.dumps({"b": pickle.dumps([call()], 4)}, 4)}, 4),
        "load-from-bytes": b"\x80\x03ctorch.storage\n_load_from_bytes\nB" + struct.pack("<I", len(call())) + call() + b"\x85R.",
        "tuple": b"\x80\x02" + os_system + b"(" + arg + b"tR.",
    }
    return out


def hidden():
    """Of these no name can be told: they must not be clean."""
    return {
        "extension": b"\x80\x02\x82\x05" + uni(RUN) + b"\x85R.",
        "computed-name": b"\x80\x04cbuiltins\nstr\n" + short(b"x") + b"\x85R" + short(b"y") + b"\x93.",
        "odd-codec": b"\x80\x02ctorch.storage\n_load_from_bytes\nc_codecs\nencode\n" + uni(b"bf") + uni(b"utf-16")
                     + b"\x86R\x85R.",
        "build-on-class": b"\x80\x02ccollections\nOrderedDict\nN}" + uni(b"update") + b"ccollections\nCounter\ns\x86b.",
        # CPython, where it reads from a file that cannot be peeked into, forgets what is left of a frame: 7, and not 57
        "frame-torn-number": b"\x80\x04" + short(b"collections") + b"p57\n0" + short(b"os") + b"p7\n0" + short(b"system")
                             + b"\x940\x95" + struct.pack("<Q", 2) + b"g57\nh\x02\x93" + uni(RUN) + b"\x85R.",
        "frame-torn-frame": b"\x80\x04" + short(b"os") + b"\x94" + short(b"system") + b"\x94\x95" + struct.pack("<Q", 11)
                            + b"\x95" + struct.pack("<Q", 8) + b"N.h\x00h\x01\x93)R.",
        "codec-that-leaves-out": b"\x80\x02ctorch.storage\n_load_from_bytes\nc_codecs\nencode\n" + uni("\u0100cos".encode())
                                 + uni(b"ascii") + uni(b"ignore") + b"\x87R\x85R.",
        "decoy-hides-unknown": b"cmy.net\nrun\n)R0V \nVx\n\x93.",
        "own-class": b"\x80\x02c__main__\nTrainer\n)R.",
    }


# ---- files

def zipped(path, records, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as z:
        for name, data in records.items():
            z.writestr(name, data)


def archive(records, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    zipped(out, records, method)
    return out.getvalue()


def npy(body):
    head = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + body


def tar_of(members, signed):
    """As before "ustar"; signed: the check sum of signed bytes, which readers take too."""
    out = b""
    for name, data in members.items():
        head = bytearray(512)
        head[:len(name)] = name.encode("latin1")
        head[124:135] = b"%011o" % len(data)
        head[148:156] = b" " * 8
        total = sum(b - 256 if signed and b > 127 else b for b in head)
        head[148:155] = b"%06o\0" % total
        out += bytes(head) + data + bytes(-len(data) % 512)
    tarfile.open(fileobj=io.BytesIO(out), mode="r:").getmembers()
    return out + bytes(1024)


def containers(folder, body):
    """The same pickle at places where some program would unpickle it, or a scanner would not look."""
    torch.save({"w": torch.ones(3)}, folder / "good.pt")
    good = (folder / "good.pt").read_bytes()
    torch.save({"w": torch.ones(3)}, folder / "good.legacy", _use_new_zipfile_serialization=False)
    legacy = (folder / "good.legacy").read_bytes()
    (folder / "good.pt").unlink()
    (folder / "good.legacy").unlink()
    records = {i.filename: zipfile.ZipFile(io.BytesIO(good)).read(i) for i in zipfile.ZipFile(io.BytesIO(good)).infolist()}
    main = next(n for n in records if n.endswith("/data.pkl"))
    evil = dict(records, **{main: body})
    whole = archive(evil)
    shown = bytearray(whole)
    for at in range(len(shown) - 4):          # flags that say "encrypted", which torch does not look at
        if shown[at:at + 4] in (b"PK\3\4", b"PK\1\2"):
            shown[at + (6 if shown[at + 2] == 3 else 8)] |= 1
    twice = io.BytesIO(good)
    with zipfile.ZipFile(twice, "a") as z:
        z.writestr(main, body)
    return {
        "flagged.pt": bytes(shown),
        "twice.pt": twice.getvalue(),
        "prefixed-by-junk.pt": b"#!/bin/sh\n" + whole,
        "npz-twice.npz": archive({"a.npy": npy(b"\x80\x02N.")})[:-22] + archive({"a.npy": npy(body)}),
        "members.pkl.gz": gzip.compress(body[:3]) + b"\0" * 5 + gzip.compress(body[3:]),
        "members.z": zlib.compress(body[:3]) + zlib.compress(body[3:]),
        "behind-five.pt": legacy + body,
        "old-tar-signed.tar": tar_of({"t\xe9nsors": b"\x80\x02}.", "pickle": body}, True),
        "old-tar-unnamed.tar": tar_of({"": b"\x80\x02}.", "pickle": body}, False),
        "plain.pkl": body,
        "torch.pt": whole,
        "deflated.pt": archive(evil, zipfile.ZIP_DEFLATED),
        "no-directory.pt": whole[:whole.rindex(b"PK\x01\x02") - 300],
        "prefixed.pt": b"\x80\x02K\x01." + whole,
        "half-listed.pt": archive({"a/b.pkl": body}).split(b"PK\x01\x02")[0] + good,
        "other-record.pt": archive(dict(records, **{"archive/data/9": body})),
        "extra-record.pt": archive(dict(records, **{"archive/extra/readme": body})),
        "nested.zip": archive({"in.zip": archive({"deeper.zip": archive({"x": body})})}),
        "nested-deflated.zip": archive({"in.zip": archive({"deeper": body}, zipfile.ZIP_DEFLATED)}, zipfile.ZIP_DEFLATED),
        "legacy.pt": legacy.replace(pickle.dumps(["0"], 2), b"") + b"\0" * 50 + body,
        "object.npy": npy(body),
        "object.npz": archive({"a.npy": npy(body)}),
        "object-deflated.npz": archive({"a.npy": npy(body)}, zipfile.ZIP_DEFLATED),
        "file.pkl.gz": gzip.compress(body),
        "file.z": zlib.compress(body),
        "old.tar": tar_of({"sys_info": b"\x80\x02}.", "pickle": body}, False),
        "in-tensor-bytes.pkl": pickle.dumps({"x": np.array([body], dtype=object)}, 4),
        "joblib.pkl": b"\x80\x03cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81}b\xff\x00" + np.arange(5.0).tobytes() + body[2:],
    }


def harmless():
    """What torch.load(weights_only=True) reads."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(5, 4)).sum().backward()
    optimizer.step()
    return {
        "model.pt": (model.state_dict(), {}),
        "training.pt": ({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, {}),
        "legacy.pt": (model.state_dict(), {"_use_new_zipfile_serialization": False}),
        "protocol-3.pt": ({"a": torch.ones(2), "b": "\x80\x02bytes", "c": [1, 2]}, {"pickle_protocol": 3}),
        "dtypes.pt": ([torch.zeros(2, dtype=d) for d in (torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.bool)], {}),
        "sparse.pt": (torch.eye(3).to_sparse(), {}),
        "quantized.pt": (torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8), {}),
        "parameter.pt": (torch.nn.Parameter(torch.ones(2)), {}),
        "meta.pt": (torch.empty(3, device="meta"), {}),
        "texts.pt": ({"code": "os.system('x')", "more": "import os\nos.system\n(R.", "pickle": "cposix"}, {}),
        "pickle-like.pt": (torch.tensor(list(b"\x80\x02K\x01." * 3), dtype=torch.uint8), {}),
        "many.pt": ({f"layer.{i}.weight": torch.ones(1) for i in range(400)}, {}),
    }


# ---- verdicts

def ours(inspect, path):
    status, doc = checks.ask(inspect, "scan", "--json", path)
    verdict = doc.get("verdict")
    check(f"{path}: status {status} goes with {verdict}", {"clean": 0, "dangerous": 1, "unknown": 2}.get(verdict) == status, doc)
    return verdict, doc


def quiet(function, *args):
    """What a peer raises is an answer: none."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return function(*args)
        except BaseException as e:              # noqa: BLE001
            if isinstance(e, KeyboardInterrupt):
                raise
            return None


def files_of(path):
    path = pathlib.Path(path)
    return [p for p in sorted(path.rglob("*")) if p.is_file()] if path.is_dir() else [path]


def by_picklescan(path):
    found = [quiet(picklescan.scanner.scan_file_path, str(p)) for p in files_of(path)]
    return any(r is not None and r.infected_files for r in found)


def by_fickling(path):
    out = False
    for p in files_of(path):
        one = quiet(fickling.loader.scan_file, str(p), True)
        members = quiet(fickling.loader.scan_zip_archive, str(p), True) or {}
        out |= any(r is not None and r.severity >= Severity.LIKELY_UNSAFE for r in [one, *members.values()])
    return out


class Table:
    """Dangerous files found, harmless files called dangerous."""

    def __init__(self):
        self.rows = {n: [0, 0] for n in ("ckpt-inspect scan", "picklescan", "fickling")}
        self.unknown = [0, 0]
        self.total = [0, 0]

    def add(self, bad, verdict, scan, fickle):
        column = 0 if bad else 1
        self.total[column] += 1
        for name, said in zip(self.rows, (verdict == "dangerous", scan, fickle)):
            self.rows[name][column] += bool(said)
        self.unknown[column] += verdict == "unknown"

    def show(self, title):
        print(f"\n{title}\n{'':20}{'attacks found':>16}{'harmless called so':>20}")
        for name, (found, wrong) in self.rows.items():
            print(f"{name:20}{f'{found} of {self.total[0]}':>16}{f'{wrong} of {self.total[1]}':>20}")
        print(f"{'(unknown to ours)':20}{self.unknown[0]:>16}{self.unknown[1]:>20}\n")


def attacks(inspect, folder, table):
    files = {f"{name}.pkl": body for name, body in bodies().items()}
    for proto, name in ((2, "2"), (4, "4")):
        files |= {f"p{name}-{n}": data for n, data in containers(folder, call(proto=proto)).items()}
    for name, data in files.items():
        path = folder / name
        path.write_bytes(data)
        verdict, doc = ours(inspect, path)
        scan, fickle = by_picklescan(path), by_fickling(path)
        check(f"{name} is dangerous", verdict == "dangerous", [verdict, scan, fickle, doc.get("globals"), doc.get("findings")])
        table.add(True, verdict, scan, fickle)
    for name, data in hidden().items():
        path = folder / f"{name}.pkl"
        path.write_bytes(data)
        verdict, doc = ours(inspect, path)
        check(f"{name} is not clean", verdict in ("dangerous", "unknown"), doc)
        table.add(True, verdict, by_picklescan(path), by_fickling(path))


def good_ones(inspect, folder, table):
    for name, (value, how) in harmless().items():
        path = folder / name
        torch.save(value, path, **how)
        torch.load(path, weights_only=True)
        verdict, doc = ours(inspect, path)
        check(f"{name}, which weights_only reads, is clean", verdict == "clean", [doc.get("globals"), doc.get("findings")])
        table.add(False, verdict, by_picklescan(path), by_fickling(path))
    np.save(folder / "numbers.npy", np.arange(7.0))
    np.savez_compressed(folder / "numbers.npz", a=np.arange(7), b=np.zeros((2, 3), "f4"))
    (folder / "words.txt").write_text("cos\nsin\ntan\nimport os\n")
    (folder / "config.json").write_text(json.dumps({"a": 1}))
    for name in ("numbers.npy", "numbers.npz", "words.txt", "config.json"):
        verdict, doc = ours(inspect, folder / name)
        check(f"{name} is clean", verdict == "clean", [doc.get("globals"), doc.get("findings")])
        table.add(False, verdict, by_picklescan(folder / name), by_fickling(folder / name))


def given(inspect, arguments):
    """Files on the command line: a table, and the rule that nothing of the peers' is clean to us unless it is harmless."""
    table, lines = Table(), []
    expected = [p for a in arguments for p in sorted(pathlib.Path(a).rglob("*.expect.json"))]
    for note in expected:
        path = str(note)[: -len(".expect.json")]
        said = json.loads(note.read_text())
        bad = said.get("want") == "scanned-dangerous" or "scanned-dangerous" in (said.get("also_fine") or [])
        verdict, doc = ours(inspect, path)
        scan, fickle = by_picklescan(path), by_fickling(path)
        table.add(bad, verdict, scan, fickle)
        if bad and verdict == "clean" or not bad and (verdict == "dangerous" or scan or fickle):
            lines.append(f"{'attack' if bad else 'harmless'} {path}: {verdict}, picklescan {scan}, fickling {fickle}")
    table.show(f"{len(expected)} checkpoints of {' '.join(arguments)}")
    print("\n".join(lines))


def main():
    logging.disable(logging.CRITICAL)
    inspect, *rest = [a for a in sys.argv[1:] if a != "-v"]
    inspect = os.path.abspath(inspect)
    if rest:
        given(inspect, rest)
    else:
        table = Table()
        with checks.scratch() as folder:
            with section("attacks"):
                attacks(inspect, pathlib.Path(folder), table)
            with section("harmless"):
                good_ones(inspect, pathlib.Path(folder), table)
        table.show("files made here")
    checks.finish()


main()
