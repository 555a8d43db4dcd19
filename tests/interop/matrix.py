#!/usr/bin/env python3
"""Each layout to each other one: the same weights, moments, steps and groups, and the same next losses, or a refusal that has a name.

One training (AdamW, two groups, a scheduler) stands in every layout that is read with an optimizer: as the program has written it where the script can
let it (torch, DCP, DeepSpeed's stages 2 and 3 on two ranks), else as ckpt-migrate has (tests/interop/to_dcp.py, resume_dirs.py,
resume_sharded.py, to_torch_dist.py and to_llmc.py let the programs load these). Every one is migrated to every layout that is written. What came of it goes
to a file of torch, from which a plain program of torch goes on: all tensors and the next losses are compared to the bit with
those of the training that was never saved.
megatron-core and llm.c know a model by its names: their rows and columns are of a model that has them.

usage: matrix.py CKPT-INSPECT CKPT-MIGRATE   [-v]

MATRIX_WRITES=yes writes the table into docs/layouts.md; else the page has to say what came of it.
"""
import copy
import os
import pathlib
import re
import sys

import checks
from checks import check

try:
    import torch
    import torch.distributed.checkpoint as dcp
    import torch.multiprocessing as mp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
except ImportError as e:
    checks.skip(f"torch is not installed ({e})")

INSPECT, MIGRATE = checks.commands(__doc__, 2)
PAGE = pathlib.Path(os.environ.get("srcdir", ".")).resolve() / "docs/layouts.md"
WRITES = os.environ.get("MATRIX_WRITES")
STEPS, AFTER = 5, 3
L, H, C, T, V = 2, 2, 16, 16, 64
LLMC = {"wte": (V, C), "wpe": (T, C), "ln1w": (L, C), "ln1b": (L, C), "qkvw": (L, 3 * C, C), "qkvb": (L, 3 * C), "attprojw": (L, C, C), "attprojb": (L, C),
        "ln2w": (L, C), "ln2b": (L, C), "fcw": (L, 4 * C, C), "fcb": (L, 4 * C), "fcprojw": (L, C, 4 * C), "fcprojb": (L, C), "lnfw": (C,), "lnfb": (C,)}
LAYER = {"self_attention.linear_proj.weight": (C, C), "self_attention.linear_proj.bias": (C,), "self_attention.linear_qkv.layer_norm_weight": (C,),
         "self_attention.linear_qkv.layer_norm_bias": (C,), "self_attention.linear_qkv.weight": (3 * C, C), "self_attention.linear_qkv.bias": (3 * C,),
         "mlp.linear_fc1.layer_norm_weight": (C,), "mlp.linear_fc1.layer_norm_bias": (C,), "mlp.linear_fc1.weight": (4 * C, C), "mlp.linear_fc1.bias": (4 * C,),
         "mlp.linear_fc2.weight": (C, 4 * C), "mlp.linear_fc2.bias": (C,)}
MEGATRON = {"embedding.word_embeddings.weight": (V, C), "embedding.position_embeddings.weight": (T, C),
            **{f"decoder.layers.{i}.{n}": s for i in range(L) for n, s in LAYER.items()},
            "decoder.final_layernorm.weight": (C,), "decoder.final_layernorm.bias": (C,)}
MODELS = {"llmc": LLMC, "megatron": MEGATRON}
# The row, and who wrote it.
ROWS = {"torch": "torch.save", "native": "ckpt-migrate", "dcp": "torch", "dcp-hf": "ckpt-migrate", "accelerate-fsdp": "ckpt-migrate", "hf-trainer": "ckpt-migrate", "accelerate": "ckpt-migrate",
        "zero-2": "DeepSpeed", "zero-3": "DeepSpeed", "universal": "ckpt-migrate", "torch-dist": "ckpt-migrate", "llmc": "ckpt-migrate"}
COLUMNS = ["torch", "native", "dcp", "dcp-hf", "accelerate-fsdp", "hf-trainer", "accelerate", "universal", "torch-dist", "llmc", "ckpt-run"]
OPTIONS = {"torch": ["--to", "torch"], "native": ["--to", "ckpt"], "dcp": ["--to", "dcp", "--world", "3"], "dcp-hf": ["--to", "dcp-hf", "--world", "3", "--weights-only"],
           "accelerate-fsdp": ["--to", "accelerate-fsdp", "--world", "2"], "hf-trainer": ["--to", "hf-trainer"], "accelerate": ["--to", "accelerate"],
           "universal": ["--to", "universal"], "torch-dist": ["--to", "torch-dist", "--world", "2"], "llmc": ["--to", "llmc", "--world", "2", "--rank-state", "drop"],
           "ckpt-run": ["--to", "ckpt-run", "--world", "2"]}
ENDS = {"torch": ".pt", "native": ".ckpt"}


# ---- a training

class Part(torch.nn.Module):
    """A module whose loss is that of its own parameters and of its parts': each part has them only while it computes, with stage 3."""

    def forward(self, given):
        own = [(p * given[self.below + n]).sum().sin() + (p ** 2).mean() for n, p in self._parameters.items()]
        return sum(own) + sum(part(given) for part in self._modules.values())


def modules(shapes):
    """A module with these parameters under these names."""
    root = Part()
    root.below = ""
    for name, shape in shapes.items():
        *path, last = name.split(".")
        at = root
        for part in path:
            if part not in at._modules:
                at.add_module(part, Part())
                at._modules[part].below = f"{at.below}{part}."
            at = at._modules[part]
        at.register_parameter(last, torch.nn.Parameter(torch.empty(shape)))
    root.shapes = shapes
    return root


def made(shapes, seed):
    net = modules(shapes)
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape) * 0.1)
    more = dict(wd_mult=1.0, lr_mult=1.0, is_expert_parallel=False, is_decoupled_lr=False)    # what megatron-core tells groups by
    params = list(net.named_parameters())
    opt = torch.optim.AdamW([{"params": [(n, p) for n, p in params if p.dim() > 1], "weight_decay": 0.1, **more}, {"params": [(n, p) for n, p in params if p.dim() < 2], "weight_decay": 0.02, **more, "wd_mult": 0.2}],
                            lr=1e-2, betas=(0.9, 0.95))
    return net, opt, torch.optim.lr_scheduler.StepLR(opt, 4, 0.5)


def loss_of(net, step, shapes):
    g = torch.Generator().manual_seed(step)
    return net({n: torch.randn(shape, generator=g) for n, shape in shapes.items()})


def train(net, opt, lr, begin, count):
    losses = []
    for step in range(begin, begin + count):
        loss = loss_of(net, step, net.shapes)
        opt.zero_grad()
        loss.backward()
        opt.step()
        lr.step()
        losses.append(loss.item())
    return losses


def state_by_name(opt, names):
    return {names[p]: {k: v.clone() for k, v in s.items()} for p, s in opt.state.items()}


def next_losses(shapes, truth):
    """Of a plain program of torch that has these tensors."""
    net, opt, lr = made(shapes, 1)
    net.load_state_dict(truth["model"])
    order = [n for g in opt.state_dict()["param_groups"] for n in g["param_names"]]
    held = opt.state_dict()
    held["state"] = {i: truth["state"][n] for i, n in enumerate(order)} if truth["state"] else {}
    for g, saved in zip(held["param_groups"], truth["groups"]):
        g.update(saved)
    opt.load_state_dict(copy.deepcopy(held))
    if truth["scheduler"]:
        lr.load_state_dict(truth["scheduler"])
    return train(net, opt, lr, STEPS, AFTER)


def settings(groups):
    return [{k: v for k, v in g.items() if k in ("lr", "betas", "eps", "weight_decay")} for g in groups]


# ---- sources

def torch_source(shapes, path, heads):
    net, opt, lr = made(shapes, 7)
    train(net, opt, lr, 0, STEPS)
    truth = dict(model={n: p.detach().clone() for n, p in net.named_parameters()}, state=state_by_name(opt, {p: n for n, p in net.named_parameters()}),
                 groups=copy.deepcopy(settings(opt.param_groups)), scheduler=copy.deepcopy(lr.state_dict()))
    more = dict(vocab_size=V, num_heads=H) if heads else {}
    torch.save(dict(model=net.state_dict(), optimizer=opt.state_dict(), scheduler=lr.state_dict(), step=STEPS, **more), path + ".pt")
    dcp.save(dict(model=get_model_state_dict(net), optimizer=get_optimizer_state_dict(net, opt), scheduler=lr.state_dict(), step=STEPS, **more), checkpoint_id=path + ".dcp", no_dist=True)
    return truth


def zero_states(engine, p, stage):
    """The master and the moments of a parameter, put together from the live processes."""
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    opt = engine.optimizer
    if stage == 3:
        return [safe_get_full_fp32_param(p).clone()] + [safe_get_full_optimizer_state(p, k).clone() for k in ("exp_avg", "exp_avg_sq")]
    g, k = next((g, k) for g, group in enumerate(opt.round_robin_bit16_groups) for k, q in enumerate(group) if q is p)
    begin, own, out = opt.round_robin_bit16_offsets[g][k], opt.single_partition_of_fp32_groups[g], []
    for t in own, opt.optimizer.state[own]["exp_avg"], opt.optimizer.state[own]["exp_avg_sq"]:
        parts = [torch.empty_like(t) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(parts, t.detach().contiguous())
        out.append(torch.cat(parts)[begin:begin + p.numel()].view(p.shape).clone())
    return out


def zero_rank(rank, world, port, shapes, path, heads):
    log = os.open(f"{path}-{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    import deepspeed
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", rank=rank, world_size=world)
    truths = {}
    for stage in 2, 3:
        net, opt, lr = made(shapes, 7)
        for g in opt.param_groups:                          # it makes groups of its own, and counts on no names
            g.pop("param_names", None)
            g["weight_decay"] = 0.1                         # stage 3 gives all groups the settings of the first
        engine, *_ = deepspeed.initialize(model=net, optimizer=opt, lr_scheduler=lr, config=dict(
            train_micro_batch_size_per_gpu=1, train_batch_size=world, zero_optimization=dict(stage=stage, stage3_param_persistence_threshold=0), zero_allow_untested_optimizer=True))
        for step in range(STEPS):
            engine.backward(loss_of(engine, step, shapes))
            engine.step()
        more = dict(vocab_size=V, num_heads=H) if heads else {}
        engine.save_checkpoint(f"{path}.zero-{stage}", client_state=dict(step=STEPS, **more))
        names = list(net.named_parameters())
        held = {n: zero_states(engine, p, stage) for n, p in names}
        truths[f"zero-{stage}"] = dict(model={n: t[0] for n, t in held.items()},
                                       state={n: dict(step=torch.tensor(float(STEPS)), exp_avg=t[1], exp_avg_sq=t[2]) for n, t in held.items()},
                                       groups=copy.deepcopy(settings(engine.optimizer.param_groups)), scheduler=copy.deepcopy(lr.state_dict()))
    if rank == 0:
        torch.save(truths, f"{path}.truths")
    torch.distributed.barrier()


def sources():
    """{model: {row: (path, truth)}}, and why a row is not there."""
    found, lacks = {}, {}
    for model, shapes in MODELS.items():
        truth = torch_source(shapes, model, model == "llmc")
        rows = found[model] = {"torch": (f"{model}.pt", truth), "dcp": (f"{model}.dcp", truth)}
        for row, writer in ROWS.items():
            if writer == "ckpt-migrate" and not (row == "llmc" and model != "llmc") and not (row == "torch-dist" and model != "megatron"):
                path = f"{model}.row.{row}{ENDS.get(row, '')}"
                done = checks.run(MIGRATE, "-q", "--no-sync", "--lossy", *OPTIONS[row], f"{model}.pt", path)
                if check(f"{model}: the source {row}", done.returncode == 0, done.stderr):
                    rows[row] = (path, dict(truth, state={}, scheduler=None) if row == "dcp-hf" else truth)
        try:
            import deepspeed  # noqa: F401
            mp.spawn(zero_rank, (2, checks.free_port(), shapes, model, model == "llmc"), nprocs=2)
            for row, truth in torch.load(f"{model}.truths", weights_only=False).items():
                rows[row] = (f"{model}.{row}", truth)
        except ImportError as e:
            lacks["zero-2"] = lacks["zero-3"] = str(e)
    return found, lacks


# ---- cells

def order_of(shapes):
    """The parameters in the order of the program's optimizer, which goes by position where a layout has no names."""
    return [n for n, s in shapes.items() if len(s) > 1] + [n for n, s in shapes.items() if len(s) < 2]


def found_in(held, wanted):
    """The dict that is so, in a file or in the folders of accelerate."""
    return next((v for v in [held, *held.values(), *(x for v in held.values() if isinstance(v, dict) for x in v.values())] if isinstance(v, dict) and wanted(v)), None)


def unstacked(tensors, shapes):
    """torch_dist has the layers of a model as one tensor."""
    out = dict(tensors)
    for name in [n for n in tensors if n.startswith("decoder.layers.") and n not in shapes]:
        whole = out.pop(name)
        for i in range(L):
            one = {k: t[i] if t.dim() > 0 else t.clone() for k, t in whole.items()} if isinstance(whole, dict) else whole[i]
            out[name.replace("decoder.layers.", f"decoder.layers.{i}.")] = one
    return out


def read_torch(path, shapes, source=None):
    held = torch.load(path, weights_only=True)
    model = found_in(held, lambda v: v and all(map(torch.is_tensor, v.values()))) or {}
    opt = found_in(held, lambda v: "param_groups" in v)
    state, members, order = {}, [], order_of(shapes)
    if source and not set(shapes) <= set(model):                 # stacked: a group is made of them in the order of the list, and said so (group-made)
        _, listed = checks.ask(INSPECT, "list", "--json", "--role", "param", source)
        order = [t["name"] for t in listed["tensors"]]
    for g in opt["param_groups"] if opt else []:
        members.append([])
        for k, number in enumerate(g["params"]):
            name = g["param_names"][k] if "param_names" in g else number if isinstance(number, str) else order[number]   # DCP's numbers are names
            state[name] = opt["state"].get(number)
            members[-1].append(name)
    return dict(model=unstacked({k.split("/")[-1]: v for k, v in model.items() if "_extra_state" not in k}, shapes), state=unstacked(state, shapes), members=members,
                groups=settings(opt["param_groups"]) if opt else [], scheduler=held.get("scheduler"))


def differs(have, truth, weights_only, shapes):
    """What is not the same, to the bit; None: all is. Where a layout has all groups, each has its own parameters, in their order."""
    def other(a, b):
        return not torch.is_tensor(a) or a.dtype != b.dtype or a.shape != b.shape or not torch.equal(a, b)
    if set(have["model"]) != set(truth["model"]):
        return f"names of the model: {sorted(set(have['model']) ^ set(truth['model']))[:3]}"
    for name, t in truth["model"].items():
        if other(have["model"][name], t):
            return f"{name}"
    if weights_only:
        return None
    for name, state in truth["state"].items():
        for key, t in state.items():
            got = (have["state"].get(name) or {}).get(key)
            if got is None or other(got, t):
                return f"{key} of {name}: {got if got is None or got.numel() > 1 else got}"
    if len(have["members"]) == len(truth["groups"]) and have["members"] != [[n for n, s in shapes.items() if (len(s) > 1) == matrices] for matrices in (True, False)]:
        return f"parameters of the groups: {have['members']}"
    return None


def refusal(stderr):
    """The sentence, without the paths."""
    text = stderr.strip().split("\n")[-1]
    text = re.sub(r"^ckpt-migrate: ", "", text)
    return re.sub(r"(megatron|llmc|cell)\.[^ :]*: ", "", text)


def cell(row, column, source, truth, shapes):
    """(mark, what there is to say)"""
    out = f"cell.{row}.{column}{ENDS.get(column, '')}"
    pathlib.Path("names").write_text("\n".join(order_of(shapes)) + "\n")
    named = ["--param-names", "names"] if row in ("hf-trainer", "accelerate") else []       # their optimizers have no names
    done = checks.run(MIGRATE, "-q", "--no-sync", *named, *OPTIONS[column], source, out)
    lost = ""
    if done.returncode != 0 and "--lossy" in done.stderr:
        done = checks.run(MIGRATE, "--no-sync", "--lossy", *named, *OPTIONS[column], source, out)
        lost = "; ".join(re.findall(r"^.*lost: (.*)$", done.stdout + done.stderr, re.M)[:3])
    if done.returncode != 0:
        return "refused", refusal(done.stderr)
    back = out if column == "torch" else out + ".back.pt"
    if column != "torch":
        one = f"{out}/rank-00001/step-{STEPS:08d}" if column == "ckpt-run" else out     # each rank has everything
        done = checks.run(MIGRATE, "-q", "--no-sync", "--lossy", "--to", "torch", one, back)
        if done.returncode != 0:
            return "broken", "back to torch: " + done.stderr.strip()
    have = read_torch(back, shapes, source)
    weights = column == "dcp-hf" or row == "dcp-hf"
    wrong = differs(have, truth, weights, shapes)
    if wrong:
        return "broken", wrong
    if weights:
        return "weights", lost
    # llm.c says settings and the scheduler on its command line; what a layout has no place for is the program's to say.
    said = dict(have, groups=have["groups"] if have["groups"] and "lr" in have["groups"][0] and len(have["groups"]) == len(truth["groups"]) else truth["groups"],
                scheduler=have["scheduler"] or truth["scheduler"])
    mark = "all" if said["groups"] is have["groups"] and have["scheduler"] else "tensors"
    wanted, got = next_losses(shapes, truth), next_losses(shapes, said)
    return (mark, lost) if wanted == got else ("broken", f"losses {got}, not {wanted}")


MARKS = {"all": "=", "tensors": "t", "weights": "w", "refused": "-", "broken": "!"}


def page_table(cells):
    """The table of the page, and the refusals below it."""
    width = max(map(len, ROWS)) + 1
    lines = ["| from, to".ljust(width + 2) + "| " + " | ".join(COLUMNS) + " |", "|" + "---|" * (len(COLUMNS) + 1)]
    notes = {}
    for row in ROWS:
        marks = []
        for column in COLUMNS:
            mark, said = cells[row, column]
            note = ""
            if mark == "refused":
                note = " " + str(notes.setdefault(said, len(notes) + 1))
            marks.append(MARKS[mark] + note)
        lines.append(f"| {row} | " + " | ".join(marks) + " |")
    counts = {m: sum(c[0] == m for c in cells.values()) for m in MARKS}
    lines += ["", f"{counts['all'] + counts['tensors'] + counts['weights']} of {len(cells)} cells are exact to the bit: {counts['all']} `=`, {counts['tensors']} `t`, {counts['weights']} `w`. "
              f"{counts['refused']} are refused:", ""]
    lines += [f"{number}. {said}" for said, number in notes.items()]
    return "\n".join(lines) + "\n"


def main():
    with checks.scratch():
        found, lacks = sources()
        cells, not_run = {}, 0
        for row in ROWS:
            for column in COLUMNS:
                model = "megatron" if "torch-dist" in (row, column) and row != "llmc" else "llmc"
                if row not in found[model]:
                    print(f"not run {row} to {column}: {lacks.get(row, 'the source was not written')}")
                    not_run += 1
                    continue
                source, truth = found[model][row]
                cells[row, column] = cell(row, column, source, truth, MODELS[model])
                check(f"{row} to {column}", cells[row, column][0] != "broken", cells[row, column][1])
                if "-v" in sys.argv:
                    print(row, column, *cells[row, column], flush=True)
    exact = sum(c[0] in ("all", "tensors", "weights") for c in cells.values())
    print(f"{exact} of {len(cells)} cells are exact, {sum(c[0] == 'refused' for c in cells.values())} are refused")
    if len(cells) == len(ROWS) * len(COLUMNS):
        text = page_table(cells)
        begin, end = "<!-- the table of tests/interop/matrix.py -->\n", "<!-- its end -->\n"
        page = PAGE.read_text()
        before, rest = page.split(begin)
        after = rest.split(end)[1]
        if WRITES:
            PAGE.write_text(before + begin + text + end + after)
        else:
            check("docs/layouts.md has this table", page == before + begin + text + end + after, text)
    checks.finish(not_run)


if __name__ == "__main__":
    main()
