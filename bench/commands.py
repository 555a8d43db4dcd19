"""commands.py - the commands beside what does the same otherwise. Every run is a process of its own.

migrate   A torch file in tensors of 16 MiB is rewritten, and written as safetensors. The source is not in the page cache when a run
          begins, and the result is on the disk when it ends. Those marked * may use 512 MiB of memory only, page cache included where
          a control group can be made (as root), their own memory (RLIMIT_AS) otherwise. cp copies the same file under the same
          limit. torch.load + save_file needs all of the file in memory and is not limited.
list      list, list --json and show of many tensors, in the page cache, from the start of a process to its end.
"""
import subprocess

from measure import TENSOR_MIB, NotMeasured, Run, cold, confined, control_group, gone, leave_group, python, size_of, synced, warm


def measure_migrate(b):
    if not (b.ask("migrations of a torch file", "torch") and b.ask("migrations of a torch file", "safetensors")):
        return
    source, torch_file, st_file = b.path("source.pt"), b.path("target.pt"), b.path("target.safetensors")
    subprocess.run(python("path, n, mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]); "
                          "torch.save({f'layers.{i}.weight': torch.randn(mib << 18) for i in range(n)}, path)",
                          source, b.mib // TENSOR_MIB, TENSOR_MIB), check=True)
    group = control_group()
    program = b.program("ckpt-migrate")

    def start(target):
        def prepare():
            gone(target)
            cold(source)
        return prepare

    def ours(target, *options):
        return Run(confined([program, source, target, *options], group), start(target))

    def copied():
        return Run(confined(["cp", "--reflink=never", "--sparse=never", source, torch_file], group), start(torch_file),
                   lambda: synced(torch_file))

    def peer(code):
        return Run(python("a, b = sys.argv[1:]; " + code, source, st_file), start(st_file), lambda: synced(st_file))
    table = {"migrate, torch to torch": {"ckpt-migrate *": ours(torch_file, "--to", "torch"), "cp + fsync *": copied()},
             "migrate, torch to safetensors": {"ckpt-migrate *": ours(st_file, "--to", "safetensors", "--lossy"),
                                               "cp + fsync *": copied()}}
    if not b.quick:
        table["migrate, torch to safetensors"]["torch.load(mmap) + save_file + fsync"] = peer(
            "safetensors.torch.save_file(torch.load(a, mmap=True), b)")
    print(f"  * limited to 512 MiB by {'a control group' if group else 'RLIMIT_AS'}")
    try:
        for name, who in table.items():
            b.measure(name, who, nbytes=size_of(source), extra={"limited_by": "a control group" if group else "RLIMIT_AS"})
            gone(torch_file)
            gone(st_file)
    finally:
        gone(source)
        leave_group(group)


def listed_file(b, count, kib):
    """A file of so many tensors, in the page cache: torch's where there is torch, else ours."""
    try:
        source = b.path("listed.pt")
        made = subprocess.run(python("path, n, each = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]); "
                                     "torch.save({'model': {f'model.layers.{i // 10}.block.{i % 10}.weight': torch.zeros(each) "
                                     "for i in range(n)}}, path)", source, count, kib << 8), capture_output=True, text=True)
        if made.returncode:
            raise NotMeasured(made.stderr.strip().splitlines()[-1])
        return source, "torch file"
    except NotMeasured as why:
        b.note("list and show of a torch file", f"{why}; a file of ours is listed instead")
    source = b.path("listed.safetensors")
    ours = b.serve("listed.safetensors", max(1, count * kib >> 10), kib)
    ours.job("save")()
    ours.path += ".kept"
    ours.close()
    return source, "safetensors file"


def measure_list(b):
    inspect = b.program("ckpt-inspect")
    for count, mib in ((10000, 256 if b.quick else max(b.mib, 256)), (140000, 140)):
        if b.quick and count > 10000:
            b.note("140,000 tensors", "left out by --quick")
            continue
        source, what = listed_file(b, count, (mib << 10) // count)
        warm(source)
        who = {command: Run([inspect, *command.split(), source]) for command in ("list", "list --json", "show")}
        b.measure(f"{count} tensors, a {what} of {mib} MiB", who, rounds=max(b.rounds, 5) if b.quick else max(2 * b.rounds, 9))
        gone(source)
