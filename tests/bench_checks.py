"""bench_checks.py TREE DIR - the checks of bench.sh, as TAP."""
import contextlib
import io
import json
import os
import sys
import xml.etree.ElementTree as ET

tree, work = sys.argv[1:]
sys.path.insert(0, os.path.join(tree, "bench"))

import chart      # noqa: E402
import growth     # noqa: E402
import marks      # noqa: E402
import measure    # noqa: E402
import report     # noqa: E402
import run        # noqa: E402
import stall      # noqa: E402

done = []


def check(good, what):
    done.append(bool(good))
    print(("ok" if good else "not ok"), len(done), "-", what)


def part(groups, notes=(), **more):
    return {"date": "2026-01-02 03:04 UTC", "machine": {"cpu": "a <CPU>", "cores": 2, "memory_gib": 8.0, "disk": "ext4 on virtio", "kernel": "6.1"},
            "versions": {"ckpt": "ckpt 0", "commit": None, "torch": "2", "tensorizer": None}, "mib": 64, "rounds": 3, "quick": False,
            "seconds": 1, "groups": groups, "notes": list(notes), **more}


def verdicts(**parts):
    return {v.row.key: v for v in marks.judge_all({"format": 1, "parts": parts})}


def speaks(call):
    """What it returns, without what it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        return call()


# ---- the table of marks
check(len({row.key for row in marks.ROWS}) == len(marks.ROWS) > 30, "every mark has a key of its own")
check(all(row.part in run.PARTS for row in marks.ROWS), "every mark is of a part that the driver has")
check({row.part for row in marks.ROWS} == set(run.PARTS), "every part of the driver has a mark")
check(all(v.state == "not measured" and v.why for v in verdicts().values()), "of nothing, each row is not measured, and says why")

warm = {"name": "warm, tensors of 1 KiB, 1 thread", "nbytes": 10 ** 9, "samples": {
    "ckpt_restore": [1.0, 2.0, 1.0], "ckpt_restore, no_verify": [1.0, 1.0, 1.0], "pread, 256 KiB": [9.0, 9.0, 9.0], "pread, 8 MiB": [0.5, 1.0, 0.9],
    "safetensors load_file + copy_": [2.0, 2.0, 1.5], "torch.load + copy_": [4.0, 4.0, 4.0]}}
slower = {"name": "warm, tensors of 1 KiB, 2 threads", "samples": {"ckpt_restore": [1.0, 1.0, 1.0], "safetensors load_file + copy_": [1.1, 1.1, 1.1]}}
of = verdicts(restore=part([warm]))
case = of["warm-safetensors"].worst
check((case.figure, case.low, case.high) == (1.5, 1.0, 2.0), "a speed is the median of the rounds' ratios, with their range")
check(of["warm-safetensors"].state == "reached" and of["warm-load"].state == "missed", "at least the mark is reached, less is missed")
check(of["warm-pread"].worst.against == "pread, 8 MiB" and of["warm-pread"].worst.figure == 0.5, "of several, the fastest counts")
check(of["warm-verify"].worst.figure == 1.0 and of["warm-verify"].state == "reached", "a cost is turned the other way, and at most the mark")
check(of["warm-mmap"].state == "not measured", "who was not measured is not measured")
of = verdicts(restore=part([warm, slower]))
check(of["warm-safetensors"].state == "missed" and of["warm-safetensors"].worst.group.endswith("2 threads"), "the worst case decides")

cold = {"name": "cold, tensors of 16 MiB", "samples": {"ckpt_restore": [1.0], "direct read, 1 of 16384 KiB": [1.0]}, "cached": 0.0}
lacking = part([cold], [{"who": "runai-model-streamer + copy_", "why": "runai-model-streamer is missing (no module)"}])
check(verdicts(cold=lacking)["cold-direct"].state == "reached", "a cold run whose files were out of the cache counts")
check("missing" in verdicts(cold=lacking)["cold-runai"].why, "a peer that is missing is named in its row")
of = verdicts(cold=part([{**cold, "cached": 0.25}]))["cold-direct"]
check(of.state == "not measured" and "25.0%" in of.why, "a cold run whose files stayed in the cache does not")
check(verdicts(cold=part([], failed="OSError: full"))["cold-direct"].why == "OSError: full", "a part that failed says so in its rows")

steps = {"name": "p95 of steps, compute, one core left", "samples": {marks.FLUSH: [1.0, 1.0], marks.QUIET: [1.0, 1.0]},
         "all": {marks.FLUSH: 1.3, marks.QUIET: 1.0}}
of = verdicts(steps=part([steps, {**steps, "name": "p95 of steps, memory"}]))
check(of["steps-compute"].worst.figure == 1.3 and of["steps-compute"].state == "missed", "a percentile is that of all steps")
check(of["steps-memory"].state == "measured", "a row without a mark is neither reached nor missed")

many = {"name": "1000000 tensors of 16 bytes", "samples": {"bind an arena": [0.4, 0.5, 0.6], "restore": [1.6]}, "peak_mib": {"restore": 700.0}}
lines = {"name": "growth with tensors: save", "samples": {"1000": [1.0], "10000": [9.0], "100000": [117.0]}}
of = verdicts(many=part([many, lines]))
check(of["bind"].worst.figure == 500 and of["bind"].state == "reached" and of["restore-million"].state == "missed", "a value is in milliseconds")
check(of["peak-million"].state == "reached", "a peak is held against its mark")
check(of["growth-tensors"].worst.figure == 13 and of["growth-tensors"].state == "missed", "a growth is that of the worst decade")
check(marks.growth_of({"2": [1.0], "6": [3.0]})[0] == 10, "a step that is no decade counts as its share of one")

# ---- runs by turns
order = []


def runner(name, seconds):
    def job():
        order.append(name)
        return next(seconds)
    return job


def broken():
    raise RuntimeError("not today\nreally")


samples, failed = measure.interleave({"a": runner("a", iter([9, 1, 2])), "x": broken, "b": runner("b", iter([9, 3, 4]))}, 2)
check(order == ["a", "b", "b", "a", "a", "b"], "the order turns from round to round")
check(samples == {"a": [1, 2], "b": [3, 4]}, "the first round is not counted")
check(failed == {"x": "RuntimeError: not today"}, "who fails is named, and the others go on")
check(growth.lines_of("x\n# 10, bind an arena, 2048, 0.5 0.25\n") == [(10, "bind an arena", 2048, [0.5, 0.25])], "the lines of many.c are read")
bench = measure.Bench(work, work, 1, 1)
speaks(lambda: stall.keep_steps(bench, "#round 7 quiet 1.0 2.0 busy 1.5 3.0\n# copy 1 stall 2 flush 3 quiet 4 5 busy 6 7 p95 8.0 9.0 steps 12\n"))
check(bench.groups == [{"name": "p95 of steps, compute, one core left", "samples": {marks.FLUSH: [0.003], marks.QUIET: [0.002]},
                        "all": {marks.FLUSH: 0.009, marks.QUIET: 0.008}, "steps": 12}], "the lines of stall.c are read")
path = os.path.join(work, "file")
with open(path, "wb") as f:
    f.write(bytes(1 << 20))
measure.warm(path)
check(measure.cached(path) == 1, "what was just read is in the page cache")
measure.CACHESTAT = 1 << 20     # no such call
check(measure.cached(path) == 1, "so it is by mincore, where there is no cachestat")

# ---- the result
result = {"format": 1, "parts": {"restore": part([warm, slower]), "cold": lacking, "many": part([many, lines]), "steps": part([steps])}}
path = os.path.join(work, "result.json")
report.store(result, path)
check(report.load(path) == result, "a result is read as it was written")
check(report.load(path + ".none") == {"format": 1, "parts": {}}, "where there is none, it is empty")
text = report.table(result)
ran = [row.what for row in marks.ROWS if row.part in result["parts"]]
check(all(what in text for what in ran) and "runai-model-streamer is missing" in text, "the table has every row of its parts, and why one is not measured")
check("not run: growth, list, migrate" in text and marks.ROWS[-1].what not in text, "it says which parts were not run")
check("rough" not in text and "rough" in report.table({"format": 1, "parts": {"cold": {**lacking, "quick": True}}}), "a quick run says that it is rough")
found = marks.judge_all(result)
svg = ET.fromstring(chart.draw(found, "a <caption> & more"))
boxes = [e for e in svg.iter() if e.tag.endswith("rect")]
drawn = [v for v in found if v.cases and v.row.mark is not None]
check(len(boxes) == len(drawn) and svg.get("width") == "830", "the chart has a bar for each row with a mark")
check(sorted(b.get("class") for b in boxes) == sorted(v.state for v in drawn), "a bar says whether its mark is reached")
axis, bar = chart.Axis(0.25, 32, True), float(boxes[0].get("width"))
check(drawn[0].row.key == "warm-safetensors" and abs(bar - chart.PLOT * 2.1375035 / 7) < 0.1, "a bar is as long as its figure")   # log2(1.1 / 0.25)
lined = ET.fromstring(chart.draw(found, "", report.growths(result)))
curve = [e.get("points") for e in lined.iter() if e.get("class") == "curve"]
check(len(curve) == 1 and len(curve[0].split()) == 3, "a growth is drawn as a curve with a point for each size")
check("1000: 1e+03 ms   10000: 9e+03 ms" in report.curves(result), "and written as one")
check(axis.at(1000) == chart.NAME + chart.PLOT and axis.at(0.01) == chart.NAME, "a figure beyond the axis stays on the picture")

# ---- what the tree shows
committed = report.load(os.path.join(tree, "bench/result.json"))
check(committed["parts"] and set(committed["parts"]) <= set(run.PARTS) and not report.is_quick(committed),
      "the committed result is of parts that there are, and is not quick")
text = json.dumps(committed)
check(not any(word in text for word in ("/home", "/work", "/root", "/tmp")), "it has no path of the machine")
pages = {name: open(os.path.join(tree, name)).read() for name in ("README", "bench/README", "bench/result.svg")}
check(report.readme_of(pages["README"], committed) == pages["README"], "README has its four lines (make bench-publish writes them)")
check(report.page_of(pages["bench/README"], committed) == pages["bench/README"], "bench/README has its table")
check(report.picture(committed) == pages["bench/result.svg"], "bench/result.svg is its chart")
check(report.readme_of(pages["README"], result) != pages["README"], "another result would be found out")
print(f"1..{len(done)}")
sys.exit(not all(done))
