#!/usr/bin/env python3
"""sharded.py - checkpoints of ranks made whole or cut anew, beside cp of the same files and the peers' own converters.

The checkpoints are written by the programs themselves, over gloo: torch.distributed.checkpoint of DTensors cut over 8
ranks (weights and AdamW's moments, MIB in all), and DeepSpeed's engine in ZeRO stage 3 over 4 ranks after one step of
AdamW (masters and moments, MIB in all). Where a checkpoint could not be made, nothing of it is measured.

Every round runs each competitor once, one after the other, in a process of its own. The source is not in the page cache when
a run begins, and the result is on the disk when it ends: of the peers, the time of their function and of an fsync of what it
wrote counts, without the start of Python and the imports; of ours the whole process. Those marked * may use LIMIT of memory
only, as commands.py has it. The peers hold the model in memory and are not limited. cp copies the same bytes.
"""
import os
import socket
import subprocess
import sys

from measure import TENSOR_MIB, NotMeasured, Run, cold, confined, control_group, gone, leave_group, size_of, synced

DCP_RANKS, ZERO_RANKS = 8, 4


# ---- what is converted

def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def join(rank, world, at):
    import torch
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(at), RANK=str(rank), LOCAL_RANK=str(rank),
                      WORLD_SIZE=str(world), DS_ACCELERATOR="cpu", DS_SKIP_CUDA_CHECK="1")
    torch.set_num_threads(1)
    torch.manual_seed(rank)


def dcp_rank(rank, world, at, folder, mib):
    join(rank, world, at)
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    dist.init_process_group("gloo", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    columns = 1024
    rows = (TENSOR_MIB << 18) // columns // world
    count = max(1, mib // (3 * TENSOR_MIB))

    def part():
        return DTensor.from_local(torch.randn(rows, columns), mesh, [Shard(0)])

    names = [f"layers.{i}.weight" for i in range(count)]
    moments = {n: {"step": torch.tensor(1.0), "exp_avg": part(), "exp_avg_sq": part()} for n in names}
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01, "params": names}
    dcp.save({"model": {n: part() for n in names}, "optimizer": {"state": moments, "param_groups": [group]}},
             checkpoint_id=folder)
    dist.barrier()
    dist.destroy_process_group()


def zero_rank(rank, world, at, folder, mib):
    join(rank, world, at)
    import deepspeed
    import torch
    import torch.distributed as dist
    deepspeed.init_distributed("gloo", rank=rank, world_size=world)
    columns = 1024
    count = max(1, mib // (3 * TENSOR_MIB))

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(columns, (TENSOR_MIB << 18) // columns, bias=False)
                                              for _ in range(count))

        def forward(self, x):
            return sum(layer(x).mean() for layer in self.layers)

    config = dict(train_micro_batch_size_per_gpu=1, zero_allow_untested_optimizer=True, zero_force_ds_cpu_optimizer=False,
                  steps_per_print=10 ** 9, bf16=dict(enabled=True), zero_optimization=dict(stage=3))
    with deepspeed.zero.Init(config_dict_or_path=config):
        net = Net()
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(net.parameters(), lr=1e-3), config=config)
    engine.backward(engine(torch.ones(1, columns, dtype=torch.bfloat16)))
    engine.step()
    engine.save_checkpoint(folder)
    dist.barrier()
    dist.destroy_process_group()


def make(b, what, world, folder, mib):
    at = port()
    command = [sys.executable, os.path.abspath(__file__), what, str(world), str(at), folder, str(mib)]
    ranks = [subprocess.Popen([*command, str(rank)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
             for rank in range(world)]
    said = [p.communicate()[1] for p in ranks]
    for p, text in zip(ranks, said):
        if p.returncode:
            b.note(f"a checkpoint of {world} ranks ({what})", text.strip().splitlines()[-1] if text.strip() else p.returncode)
            return False
    return True


# ---- runs

SYNC = """
def on_disk(path):
    for d, _, names in os.walk(path) if os.path.isdir(path) else [(os.path.dirname(path), 0, [os.path.basename(path)])]:
        for name in names:
            fd = os.open(os.path.join(d, name), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
"""
IMPORTS = {"dcp": "from torch.distributed.checkpoint.format_utils import dcp_to_torch_save",
           "fp32": "from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict",
           "universal": "from deepspeed.checkpoint.ds_to_universal import main as ds_to_universal\nimport argparse"}
CALLS = {"dcp": "dcp_to_torch_save(a, b)",
         "fp32": "convert_zero_checkpoint_to_fp32_state_dict(a, b, safe_serialization=True)",
         "universal": "ds_to_universal(argparse.Namespace(input_folder=os.path.join(a, open(os.path.join(a, 'latest')).read()"
                      ".strip()), output_folder=b, num_extract_workers=4, num_merge_workers=2, keep_temp_folder=False, "
                      "strict=True, inject_missing_state=False))"}


class Peer(Run):
    """A function of a peer, in a process of its own that says how long it took; its children's memory counts as theirs."""

    def __init__(self, which, source, target, before):
        code = f"""import os, resource, sys, time
os.environ.update(DS_ACCELERATOR='cpu', DS_SKIP_CUDA_CHECK='1')
said = os.dup(1)
os.dup2(2, 1)
a, b = sys.argv[1:]
{IMPORTS[which]}
{SYNC}
start = time.monotonic()
{CALLS[which]}
on_disk(b)
took = time.monotonic() - start
most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
os.write(said, f'{{took}} {{most}}'.encode())
"""
        super().__init__([sys.executable, "-c", code, source, target], before)

    def __call__(self):
        self.before()
        done = subprocess.run(self.command, capture_output=True, text=True)
        if done.returncode:
            raise NotMeasured(done.stderr.strip().splitlines()[-1])
        took, most = done.stdout.split()
        self.peak = max(self.peak, int(most) / 1024)
        return float(took)


def measure_sharded(b):
    in_folder(b, with_dcp, "torch")


def measure_zero(b):
    in_folder(b, with_zero, "deepspeed")


def in_folder(b, measure, package):
    """Of a quick run nothing."""
    if b.quick:
        b.note("consolidate, re-shard", "left out by --quick")
        return
    if not b.ask("consolidate, re-shard", package):
        return
    top = b.path("sharded")
    os.mkdir(top)
    group = control_group()
    try:
        measure(b, *tools(b, top, group))
    finally:
        gone(top)
        leave_group(group)


def tools(b, top, group):
    """The folder of the source, that of the target, and what makes runs of ours and of cp, and measures them."""
    source_folder, out = (os.path.join(top, name) for name in ("source", "out"))
    program = b.program("ckpt-migrate")

    def start(source, target):
        def prepare():
            gone(target)
            cold(source)
        return prepare

    def ours(source, target, *options):
        return Run(confined([program, source, target, *options], group), start(source, target))

    def copied(source):
        return Run(confined(["cp", "-r", "--reflink=never", "--sparse=never", source, out], group), start(source, out),
                   lambda: synced(out))

    def measure(what, source, who):
        b.measure(what, who, nbytes=size_of(source), extra={"limited_by": "a control group" if group else "RLIMIT_AS"})
        for end in ("", ".pt", ".peer.pt", ".hf", ".fp32", ".universal"):
            gone(out + end)
    return source_folder, out, start, ours, copied, measure


def with_dcp(b, dcp, out, start, ours, copied, measure):
    if make(b, "dcp", DCP_RANKS, dcp, b.mib):
        who = {"ckpt-migrate *": ours(dcp, out + ".pt", "--to", "torch"), "cp + fsync *": copied(dcp)}
        if b.converters:
            who["dcp_to_torch_save + fsync"] = Peer("dcp", dcp, out + ".peer.pt", start(dcp, out + ".peer.pt"))
        measure(f"consolidate, DCP of {DCP_RANKS} ranks to a torch file", dcp, who)
        measure(f"re-shard, DCP of {DCP_RANKS} ranks to DCP of 3", dcp, {
            "ckpt-migrate *": ours(dcp, out, "--to", "dcp", "--world", "3"), "cp + fsync *": copied(dcp)})


def with_zero(b, zero, out, start, ours, copied, measure):
    if make(b, "zero", ZERO_RANKS, zero, b.mib):
        measure(f"re-shard, ZeRO-3 of {ZERO_RANKS} ranks to DCP of 3", zero, {
            "ckpt-migrate *": ours(zero, out, "--to", "dcp", "--world", "3"), "cp + fsync *": copied(zero)})
        if b.converters:
            measure(f"convert, ZeRO-3 of {ZERO_RANKS} ranks, the weights in float32", zero, {
                "ckpt-migrate --to hf *": ours(zero, out + ".hf", "--to", "hf", "--weights-only", "--lossy"),
                "zero_to_fp32 + fsync": Peer("fp32", zero, out + ".fp32", start(zero, out + ".fp32"))})
            measure(f"convert, ZeRO-3 of {ZERO_RANKS} ranks, masters and moments", zero, {
                "ckpt-migrate --to torch *": ours(zero, out + ".pt", "--to", "torch", "--drop", "layers.*"),
                "ds_to_universal + fsync": Peer("universal", zero, out + ".universal", start(zero, out + ".universal"))})


if __name__ == "__main__":   # one rank of those that make a checkpoint
    which, world_size, at_port, into, size, number = sys.argv[1:]
    {"dcp": dcp_rank, "zero": zero_rank}[which](int(number), int(world_size), int(at_port), into, int(size))
