#!/usr/bin/env python3
"""The pages of --report, taken apart by an XML parser.

usage: report_pages.py CKPT-INSPECT

Needs torch. Files with ordinary, hostile and very many names are written; for each the pages of show, doctor and diff must be
well-formed, load nothing, have a title, headings in order, unique ids, tables with captions and heads, pictures with words, no
character that is not seen, the names as a terminal shows them, and numbers that are the JSON's. Ends with counts."""
import json
import re
import unicodedata
import xml.etree.ElementTree as tree

import torch

from checks import ask, check, commands, finish, run, scratch, section

(inspect,) = commands(__doc__, 1)
HOSTILE = ["<script>alert(1)</script>", "a&amp;b\"c'd", "tab\tline\nfeed\x00\x01\x7f", "right \u202e to \u2066 left \u200f", "]]><!--",
           "</style></title><img src=x onerror=alert(1)>", "&#x202e;", "\ufffe\uffff\ufeff", "\ud800 alone", "x" * 3000 + "<b>", "שלום", "é" * 400,
           "\\x01 is not a control character"]


def shown(text):
    """The escapes of a terminal, written again from their description: controls, marks of direction, what is no character."""
    out = ""
    for c in text:
        n = ord(c)
        named = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}
        if c in named:
            out += named[c]
        elif n < 0x20 or 0x7f <= n < 0xa0:
            out += f"\\x{n:02x}"
        elif 0xd800 <= n < 0xe000 and n != 0xd800:
            out += c
        elif n in (0xd800, 0x61c, 0x200e, 0x200f, 0xfeff, 0xfffe, 0xffff) or 0x2028 <= n <= 0x202e or 0x2066 <= n <= 0x2069:
            out += f"\\u{n:04x}"
        else:
            out += c
    return out


def tables_of(root):
    return list(root.iter("table"))


def page(what, *arguments):
    """(the document, its text, what the command answered), after what every page must hold to."""
    done = run(inspect, *arguments[:1], "--report", "page.html", *arguments[1:])
    check(f"{what}: an answer", done.returncode in (0, 1), done.stderr)
    data = open("page.html", "rb").read()
    root = tree.fromstring(data.decode("utf-8"))
    text = "".join(root.itertext())
    check(f"{what}: below a mebibyte", len(data) < 1 << 20, len(data))
    check(f"{what}: a doctype, a language, a title", data.startswith(b"<!DOCTYPE html>\n") and root.get("lang") and root.findtext("head/title"))
    loads = [e.tag for e in root.iter() if e.tag in ("script", "link", "img", "iframe", "object", "embed", "base", "form", "image", "use")]
    check(f"{what}: nothing is loaded or run", not loads and "url(" not in text and "@import" not in text, loads)
    handlers = [k for e in root.iter() for k in e.attrib if k.startswith("on") or k in ("src", "style", "srcset") or (k == "href" and e.tag != "a")]
    check(f"{what}: no handler, no address", not handlers, handlers)
    levels = [int(e.tag[1]) for e in root.iter() if re.fullmatch("h[1-6]", e.tag)]
    check(f"{what}: headings in order, one h1 first", levels[:1] == [1] and levels.count(1) == 1 and all(b - a <= 1 for a, b in zip(levels, levels[1:])), levels)
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    wanted = [e.get("aria-labelledby") for e in root.iter() if e.get("aria-labelledby")]
    check(f"{what}: ids are unique, and those that are named are there", len(ids) == len(set(ids)) and set(wanted) <= set(ids), ids)
    links = [e.get("href") for e in root.iter("a")]
    check(f"{what}: links lead to what is on the page", links and all(h.startswith("#") and h[1:] in ids for h in links), links)
    labels = [(c.get("data-label") or "", "".join(h.itertext())) for t in tables_of(root) for r in t.find("tbody") for c, h in
              list(zip(r, t.find("thead/tr")))[1:]]
    check(f"{what}: each cell has the head of its column", all(a == b for a, b in labels), labels[:5])
    tables = list(root.iter("table"))
    heads = all(t.findtext("caption") and all(th.get("scope") for th in t.iter("th")) and t.find("thead/tr/th") is not None for t in tables)
    check(f"{what}: tables have captions and heads", heads)
    check(f"{what}: every row has as many cells as its head", all(len(r) == len(t.find("thead/tr")) for t in tables for r in t.find("tbody")))
    check(f"{what}: pictures have words, or are left to them",
          all(s.get("aria-hidden") == "true" or (s.get("role") == "img" and s.get("aria-label")) for s in root.iter("svg")))
    unseen = sorted({hex(ord(c)) for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")})
    check(f"{what}: no character that is not seen", not unseen, unseen)
    check(f"{what}: classes that the style sheet knows", {c for e in root.iter() for c in (e.get("class") or "").split()} <=
          set(re.findall(r"\.([a-z][a-z0-9-]*)", root.findtext("head/style"))) | {"fix"},
          {c for e in root.iter() for c in (e.get("class") or "").split()} - set(re.findall(r"\.([a-z][a-z0-9-]*)", root.findtext("head/style"))))
    return root, text, done


def table(root, caption):
    """Rows of the table of that caption, as lists of text."""
    for t in root.iter("table"):
        if t.findtext("caption") == caption:
            return [["".join(c.itertext()) for c in row] for row in t.find("tbody")]
    return []


def number(text):
    return int(text.replace(",", ""))


with scratch():
    with section("what an ordinary trainer saves"):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.BatchNorm1d(30), torch.nn.Linear(30, 4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        model(torch.randn(8, 20)).sum().backward()
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "step": 17}
        torch.save(state, "last.pt")
        for command in ("show", "doctor"):
            root, text, done = page(f"{command} last.pt", command, "--values", "last.pt")
            _, listed = ask(inspect, "list", "--json", "last.pt")
            _, shows = ask(inspect, "show", "--json", "last.pt")
            rows = table(root, "By role")
            check(f"{command}: bytes by role are the JSON's", {r[0]: number(r[1]) for r in rows} == {r["role"]: r["count"] for r in shows["roles"]}, rows)
            moved = table(root, "Bytes per device, before and after") or table(root, "Bytes per device")
            check(f"{command}: every byte is on some device", sum(number(r[-1]) for r in moved) == shows["tensors"]["nbytes"], moved)
            check(f"{command}: and every tensor", sum(number(r[-2]) for r in moved) == len(listed["tensors"]), moved)
            layers = table(root, "Size by layer (weights and optimizer state)")
            check(f"{command}: every tensor is in a layer, its state with it", sum(number(r[1]) for r in layers) == len(listed["tensors"]) and
                  [r[1] for r in layers if r[0] == "0"] == ["8"], layers)
            largest = table(root, "The largest tensors")
            check(f"{command}: the largest first", [r[0] for r in largest][0] in ("model.0.weight", "optimizer.state.0.exp_avg"), largest[:1])
            weight = state["model"]["0.weight"]
            check(f"{command}: numbers of the values", f"smallest {float(weight.min()):.6g}, largest {float(weight.max()):.6g}" in text)
            bars = [s for s in root.iter("svg") if s.get("class") == "hist"]
            first = [int(r.findtext("title")) for r in bars[0].iter("rect")]
            check(f"{command}: a histogram counts every value", sum(first) == weight.numel(), first)
        check("doctor: the verdict in words", "It resumes" in text or "It does not load" in text or "It loads, and fails" in text)

    with section("names that were made to break a page"):
        torch.save({"<state>&": {n: torch.ones(3) for n in HOSTILE}, "<b>": "</pre><script>alert(2)</script>"}, "<i>&'\"hostile.pt")
        for command in ("show", "doctor"):
            root, text, done = page(f"{command} hostile", command, "--values", "<i>&'\"hostile.pt")
            for n in HOSTILE:
                if len(n) < 100:
                    check(f"{command}: {shown(n)!a} is there", shown(n) in text)
            check(f"{command}: a long name is cut in its middle", "x" * 50 in text and "x" * 200 not in text and " bytes) ... " in text)
            check(f"{command}: the path as it was given", "<i>&'\"hostile.pt" in text)
        torch.save({"<state>&": {n: torch.zeros(3) for n in HOSTILE[1:]}, "<b>": "</pre>"}, "other.pt")
        root, text, done = page("diff hostile", "diff", "<i>&'\"hostile.pt", "other.pt")
        rows = table(root, "How many values differ, and by how much at most")
        check("diff: a row for each that differs", len(rows) == len(HOSTILE), len(rows))
        check("diff: values, in text", "</pre><script>alert(2)</script>" in text)

    with section("devices that a file claims"):
        many = {f"w{i}": torch.empty(64, device="meta") for i in range(40)}
        torch.save(many, "meta.pt")
        root, text, done = page("show meta", "show", "--values", "meta.pt")
        check("what has no values says so", "no values to look at" in text)

    with section("very many tensors"):
        torch.save({f"layer{i}.<w>": torch.empty(0) for i in range(20000)}, "many.pt")
        root, text, done = page("show many", "show", "many.pt")
        check("layers are cut, with a word", "and 19960 more" in text)
        torch.save({f"layers.{i}.{n}": torch.zeros(7 if i == 5 else 4) for i in range(12) for n in ("w", "b")}, "stack.pt")
        root, text, done = page("show stack", "show", "stack.pt")
        rows = [r[:2] for r in table(root, "Size by layer (weights and optimizer state)")]
        check("layers that are alike are one row, the odd one its own", rows == [["layers.* 11 alike, 32 B each", "22"], ["layers.5", "2"]], rows)
        torch.save({}, "none.pt")
        root, text, done = page("show none", "show", "none.pt")
        check("of nothing", "There are no tensors." in text)
        root, text, done = page("diff many", "diff", "many.pt", "none.pt")
        check("differences are cut, with a word", "and 19800 more" in text)
finish()
