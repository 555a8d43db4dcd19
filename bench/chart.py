"""chart.py - the marks as an SVG picture, for a page of about 830 pixels, light or dark. Our own few shapes, and no library.

Above, how many times as fast as the others (to the right is better), with the mark as a line in each row; below, how much of what is
allowed was used (to the left is better), with the mark at 1. A thin line is the range of the rounds. Last, the curves of growth.
"""
import math
import statistics
from xml.sax.saxutils import escape

import marks

WIDTH, NAME, VALUE, ROW, TOP = 830, 410, 110, 22, 58
PLOT = WIDTH - NAME - VALUE
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328 } .small { font-size: 11px; fill: #59636e } .head { font-size: 14px; font-weight: 600 }
  .reached { fill: #2da44e } .missed { fill: #d1612a } .grid { stroke: #d1d9e0 } .mark { stroke: #1f2328; stroke-width: 2 }
  .range { stroke: #59636e } .curve { fill: none; stroke: #0969da; stroke-width: 1.5 }
  .linear { fill: none; stroke: #59636e; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 } .grid { stroke: #3d444d } .mark { stroke: #e6edf3 } .range { stroke: #9198a1 }
    .reached { fill: #3fb950 } .missed { fill: #e0823d } .curve { stroke: #4493f8 } .linear { stroke: #9198a1 }
  }
"""


class Axis:
    """From a value to a place: logarithmic, or by proportion."""

    def __init__(self, low, high, log):
        self.low, self.high, self.log = low, high, log

    def at(self, value):
        value = min(max(value, self.low), self.high)
        part = math.log(value / self.low) / math.log(self.high / self.low) if self.log else (value - self.low) / (self.high - self.low)
        return NAME + part * PLOT


def line(x1, y1, x2, y2, kind):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def text(x, y, words, kind="", anchor="start"):
    given = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{given}>{escape(words)}</text>'


def draw_rows(verdicts, y, axis, ticks, title, scaled):
    """One panel; `scaled` says where a figure lies on the axis."""
    shapes = [text(0, y, title, "head")]
    y += 24
    bottom = y + ROW * len(verdicts)
    for tick in ticks:
        shapes += [line(axis.at(tick), y - 4, axis.at(tick), bottom, "grid"), text(axis.at(tick), y - 8, f"{tick:g}", "small", "middle")]
    for verdict in verdicts:
        row, worst, middle = verdict.row, verdict.worst, y + ROW / 2
        at, mark = axis.at(scaled(row, worst.figure)), axis.at(scaled(row, row.mark))
        shapes += [text(0, middle + 4, row.what),
                   f'<rect x="{NAME}" y="{y + 4:.1f}" width="{max(at - NAME, 1):.1f}" height="{ROW - 8}" rx="2" class="{verdict.state}"/>',
                   line(axis.at(scaled(row, worst.low)), middle, axis.at(scaled(row, worst.high)), middle, "range"),
                   line(mark, y + 1, mark, y + ROW - 1, "mark"),
                   text(NAME + PLOT + 8, middle + 4, f"{marks.show(row, worst.figure)} ({row.mark:g})")]
        y += ROW
    return shapes, bottom + 34


def draw_curves(groups, y):
    """Small pictures side by side: times over sizes, both as multiples of the least size's, in decades; the broken line is what is linear."""
    kinds = {}
    for group in groups:
        kinds.setdefault(group["name"].split(":")[0], []).append(group["samples"])
    if not kinds:
        return [], y
    shapes = [text(0, y, "Growth over three decades: time against size, as multiples of the smallest; the broken line is linear", "head")]
    side, gap = 180, (WIDTH - 4 * 180) / 3
    for i, (name, series) in enumerate(sorted(kinds.items())):
        left, bottom = (i % 4) * (side + gap), y + 34 + side

        def place(size, seconds):
            return f"{left + math.log10(size) / 3 * side:.1f},{bottom - max(math.log10(seconds), 0) / 3 * side:.1f}"
        shapes.append(text(left, y + 26, name, "small"))
        for tick in (0, 1, 2, 3):
            at = tick / 3 * side
            shapes += [line(left + at, bottom, left + at, bottom - side, "grid"), line(left, bottom - at, left + side, bottom - at, "grid"),
                       text(left + at, bottom + 14, f"{10 ** tick}", "small", "middle" if tick else "start")]
        shapes.append(f'<polyline points="{place(1, 1)} {place(1000, 1000)}" class="linear"/>')
        for samples in series:
            sizes = sorted((int(size) for size in samples if samples[size]))
            times = [statistics.median(samples[str(size)]) for size in sizes]
            points = " ".join(place(size / sizes[0], took / times[0]) for size, took in zip(sizes, times))
            shapes.append(f'<polyline points="{points}" class="curve"/>')
    return shapes, y + side + 80


def draw(verdicts, caption, groups=()):
    """The picture as text; `groups`: those of growth. Rows without a mark and those that were not measured are in the table only; their number is said."""
    shown = [v for v in verdicts if v.row.mark is not None and v.cases]
    fast, cheap = ([v for v in shown if (v.row.kind == "speed") == side] for side in (True, False))
    left = sum(1 for v in verdicts if not v.cases)
    shapes, y = [], TOP
    if fast:
        more, y = draw_rows(fast, y, Axis(0.25, 32, True), (0.25, 0.5, 1, 2, 4, 8, 16, 32),
                            "Times as fast as the others: to the right is better", lambda row, figure: figure)
        shapes += more
    if cheap:
        more, y = draw_rows(cheap, y, Axis(0, 2, False), (0, 0.5, 1, 1.5, 2),
                            "Used of what the mark allows: to the left is better", lambda row, figure: figure / row.mark)
        shapes += more
    more, y = draw_curves(groups, y)
    shapes += more
    foot = f"The vertical line is the mark, which is also in brackets. {left} rows were not measured." if left else \
        "The vertical line is the mark, which is also in brackets."
    shapes.append(text(0, y - 10, foot, "small"))
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y:.0f}" viewBox="0 0 {WIDTH} {y:.0f}" role="img">',
                      f"<title>{escape(caption)}</title>", f"<style>{STYLE}</style>", text(0, 20, caption, "small"), *shapes, "</svg>", ""])
