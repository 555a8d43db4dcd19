"""report.py - a result as JSON, as a table, as a chart, and as the text that the tree's pages have of it."""
import json
import os
import statistics
import textwrap

import chart
import marks

FORMAT = 1
BEGIN, END = "[result", "[end of the result]"
HEADING = "Measured\n--------\n"


def load(path):
    """The result in a file; an empty one where there is none."""
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return {"format": FORMAT, "parts": {}}
    with open(path) as f:
        result = json.load(f)
    if result.get("format") != FORMAT:
        raise SystemExit(f"{path}: format {result.get('format')}, and this program knows {FORMAT}")
    return result


def store(result, path):
    """A group a line: small, and lines that can be compared."""
    out = ['{"format": %d, "parts": {' % FORMAT]
    for i, (name, part) in enumerate(sorted(result["parts"].items())):
        rest = {key: value for key, value in part.items() if key != "groups"}
        out.append(f'{json.dumps(name)}: {json.dumps(rest)[:-1]}, "groups": [')
        out.append(",\n".join(json.dumps(group) for group in part["groups"]))
        out.append("]}" + ("," if i + 1 < len(result["parts"]) else ""))
    with open(path + ".new", "w") as f:
        f.write("\n".join(out) + "\n}}\n")
    os.replace(path + ".new", path)


def when(result):
    """The days, the machine and the versions: one line each, as many as differ."""
    parts = result["parts"].values()
    days = sorted({part["date"][:10] for part in parts})
    machines = sorted({"{cpu}, {cores} cores, {memory_gib} GiB, {disk}, Linux {kernel}".format(**part["machine"]) for part in parts})
    versions = sorted({"ckpt" + (f" at {part['versions']['commit']}" if part["versions"].get("commit") else "") + "; " +
                       ", ".join(f"{name} {of or 'is missing'}" for name, of in part["versions"].items() if name not in ("ckpt", "commit"))
                       for part in parts})
    sizes = sorted({f"{part['mib']} MiB, {part['rounds']} rounds" for part in parts})
    return [" to ".join(sorted({days[0], days[-1]})) if days else "never", *machines, *versions, *sizes]


def is_quick(result):
    return any(part["quick"] for part in result["parts"].values())


def counts(verdicts):
    number = {state: sum(1 for v in verdicts if v.state == state) for state in ("reached", "missed", "not measured")}
    return f"{number['reached']} marks reached, {number['missed']} missed, {number['not measured']} not measured"


def detail(case, row):
    spread = "" if case.low == case.high else f" ({marks.show(row, case.low).split(' ')[0]} to {marks.show(row, case.high).split(' ')[0]})"
    return f"{marks.show(row, case.figure)}{spread}"


def table(result):
    """The table of all marks, as plain text."""
    verdicts = marks.judge_all(result)
    lines = []
    if is_quick(result):
        lines += ["A quick run: little data and few rounds. These figures are rough: they show what broke, not what was won.", ""]
    lines += [*when(result), "", counts(verdicts), ""]
    left = [name for name in sorted({row.part for row in marks.ROWS}) if name not in result["parts"]]
    if left:
        lines += [f"not run: {', '.join(left)}", ""]
    lines.append(f"{'':62} {'worst case, median (range)':30} {'mark':16}".rstrip())
    for verdict in (v for v in verdicts if v.row.part not in left):
        row = verdict.row
        if verdict.cases:
            lines.append(f"{row.what:62} {detail(verdict.worst, row):30} {marks.show_mark(row):16} {verdict.state if row.mark is not None else ''}".rstrip())
        else:
            lines.append(f"{row.what:62} {'not measured':30} {marks.show_mark(row)}".rstrip())
            lines += textwrap.wrap(verdict.why, 110, initial_indent="        ", subsequent_indent="        ")
    return "\n".join(lines)


def cases(result):
    """What each row's cases are, for the page."""
    lines = []
    for verdict in marks.judge_all(result):
        if verdict.cases and verdict.row.kind != "growth" and (len(verdict.cases) > 1 or verdict.worst.against):
            lines.append(verdict.row.what)
            for case in verdict.cases:
                lines.append(f"    {case.group:66} {detail(case, verdict.row):26} {case.against}".rstrip())
    return "\n".join(lines)


def growths(result):
    return [group for _, part in sorted(result["parts"].items()) for group in part["groups"] if group["name"].startswith("growth")]


def curves(result):
    """The curves of growth: the median of each size."""
    lines = []
    for group in growths(result):
        points = [f"{size}: {statistics.median(took) * 1e3:.3g} ms" for size, took in group["samples"].items() if took]
        lines.append(f"    {group['name']:50} {'   '.join(points)}")
    return "\n".join(lines)


def four_lines(result):
    """What the project's README keeps of a result: four items, broken for a terminal of 80 columns."""
    verdicts = {v.row.key: v for v in marks.judge_all(result)}

    def say(key):
        verdict = verdicts[key]
        return marks.show(verdict.row, verdict.worst.figure) if verdict.cases else "(not measured)"
    cores = sorted({part["machine"]["cores"] for part in result["parts"].values()}) or [0]
    lines = [f"Restore from the page cache, every CRC-32 checked: {say('warm-safetensors')} as fast as safetensors + copy_, "
             f"{say('warm-load')} torch.load.",
             f"Durable save: {say('save-torch')} torch.save + fsync, {say('save-safetensors')} safetensors + fsync, {say('save-dcp')} torch DCP, "
             f"{say('save-direct')} the best O_DIRECT write.",
             f"An asynchronous save stalls the trainer for {say('stall')} the best memcpy of its state; a migration runs at "
             f"{say('migrate')} cp + fsync.",
             f"Worst cases, {cores[0]} cores, {when(result)[0]}; {counts(list(verdicts.values()))}: bench/README (`make -C build bench`)."]
    return [part for line in lines for part in textwrap.wrap(line, 80, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)]


def between(page, begin, end, middle, what):
    """The page with what stands between two texts replaced."""
    if page.count(begin) != 1 or end not in page[page.index(begin):]:
        raise SystemExit(f"{what}: {begin!r} and {end!r} behind it were not found")
    start = page.index(begin) + len(begin)
    return page[:start] + middle + page[page.index(end, start):]


def result_text(result):
    """The generated part of bench/README, behind the line that begins it."""
    return ": this part is written by `make bench-publish`]\n\n" + table(result) + \
        "\n\nThe chart: result.svg, beside this page. All samples: result.json.\n\nThe cases of each row, and who was the fastest of the others:\n\n" + \
        cases(result) + "\n\nThe curves of growth, medians:\n\n" + curves(result) + "\n\n"


def page_of(text, result):
    return between(text, BEGIN, END, result_text(result), "bench/README")


def readme_of(text, result):
    start = text.index(HEADING) + len(HEADING)
    stop = text.index("\n\n", start)
    return text[:start] + "\n".join(four_lines(result)) + text[stop:]


def picture(result):
    place = when(result)
    return chart.draw(marks.judge_all(result), f"{place[0]}: {place[1] if len(place) > 1 else ''}" +
                      (" (a quick run: rough figures)" if is_quick(result) else ""), growths(result))


def rewrite(path, change):
    with open(path) as f:
        text = f.read()
    with open(path, "w") as f:
        f.write(change(text))


def publish(result, tree):
    if not result["parts"] or is_quick(result):
        raise SystemExit("a quick run, or none, is no result for the tree")
    store(result, os.path.join(tree, "bench/result.json"))
    with open(os.path.join(tree, "bench/result.svg"), "w") as f:
        f.write(picture(result))
    rewrite(os.path.join(tree, "bench/README"), lambda text: page_of(text, result))
    rewrite(os.path.join(tree, "README"), lambda text: readme_of(text, result))


def finish(result, path):
    print("\n" + table(result))
    with open(os.path.splitext(path)[0] + ".svg", "w") as f:
        f.write(picture(result))
