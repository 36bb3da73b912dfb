"""A comparison as text for a terminal, as Markdown and as JSON."""

import json
import re
import textwrap
from collections.abc import Iterator

from llm_measured.audit.report import plain
from llm_measured.compare.conditions import BLOCKS, COMPARED, NOTED
from llm_measured.compare.report import by_itself, in_doubt
from llm_measured.core.definitions import Fields

WIDTH = 100
HEAD = ["", "A", "B", "B/A", "95 % interval", "B is"]
EFFECTS = {BLOCKS: "not comparable", COMPARED: "is compared", NOTED: "noted"}
NOTHING = "Nothing that the files state."
RESOLVE = "Both sides have figures that cannot be right: find out which before either is measured again."


def text(report: Fields) -> str:
    """The comparison for a terminal: verdict, what differs, a table per level."""
    lines = [line for alarm in _alarms(report) for line in _wrapped(alarm)]
    lines += [""] if lines else []
    lines += _wrapped(report["sentence"])
    lines += [f"A  {plain(_files(report['a']))}", f"B  {plain(_files(report['b']))}", "", "WHAT DIFFERS"]
    lines += _columns([[plain(cell) for cell in one] for one in _conditions(report)], "<<<<") or [NOTHING]
    for level in _levels(report):
        lines += ["", plain(level["title"]).upper()]
        lines += [line for reason in level["reasons"] for line in _wrapped(reason)]
        lines += _columns([HEAD, *level["rows"]], "<>>>><") if level["rows"] else []
        lines += [line for about in level["about"] for line in _wrapped(about)]
    rest = list(_rest(report))
    lines += ["", *(line for one in rest for line in _wrapped(one))] if rest else []
    return "\n".join(lines) + "\n"


def markdown(report: Fields) -> str:
    """The comparison for a pull request; names are escaped: none is a link, a mention or a picture."""
    lines = [f"**{_escaped(alarm)}**\n" for alarm in _alarms(report)]
    lines += [f"### {_escaped(report['sentence'])}", ""]
    lines += [f"A: {_escaped(_files(report['a']))}  ", f"B: {_escaped(_files(report['b']))}", ""]
    conditions = list(_conditions(report))
    if conditions:
        lines += _table(["What differs", "A", "B", ""], conditions)
    else:
        lines += [f"What differs: {NOTHING}", ""]
    for level in _levels(report):
        lines += [f"**{_escaped(level['title'])}**", ""]
        lines += [f"{_escaped(reason)}\n" for reason in level["reasons"]]
        if level["rows"]:
            lines += _table(HEAD, level["rows"])
        lines += [f"{_escaped(about)}\n" for about in level["about"]]
    lines += [f"{_escaped(one)}\n" for one in _rest(report)]
    return "\n".join(lines).rstrip() + "\n"


def as_json(report: Fields) -> str:
    """The comparison as JSON text, in the form of schema.json."""
    levels = [
        level | {"rows": [{k: v for k, v in row.items() if k != "estimate"} for row in level["rows"]]}
        for level in report["levels"]
    ]
    return json.dumps(report | {"levels": levels}, indent=1, ensure_ascii=True) + "\n"


def _alarms(report: Fields) -> Iterator[str]:
    """What stands before the verdict, since no verdict on a figure that cannot be is worth much."""
    if in_doubt(report["alarms"]):
        yield RESOLVE
    for alarm in report["alarms"]:
        more = len(alarm["files"]) - 1
        yield alarm["sentence"] + (f" So do {more} more of its files." if more else "")


def _files(side: Fields) -> str:
    shown = ", ".join(side["files"][:4])
    more = len(side["files"]) - 4
    return f"{shown} and {more} more" if more > 0 else shown


def _conditions(report: Fields) -> Iterator[list[str]]:
    for one in report["conditions"]:
        yield [one["name"], one["a"], one["b"], EFFECTS[one["effect"]]]


def _levels(report: Fields) -> Iterator[Fields]:
    """Each level with title, reasons, the rows' cells, and sentences about its scatter."""
    for level in report["levels"]:
        runs = f"{level['runs']['a']} against {level['runs']['b']} runs"
        counts = [n for n in level["requests"].values() if n]
        requests = f", {min(counts)} requests or more each" if counts else ""
        about = list(_about(level, report["margin"])) if level["comparable"] else []
        rows = [_cells(row) for row in level["rows"]]
        yield {"title": f"{level['name']}: {runs}{requests}", "about": about, "rows": rows} | {
            "reasons": list(dict.fromkeys(level["reasons"]))
        }


def _cells(row: Fields) -> list[str]:
    interval = "" if row["low"] is None else f"{row['low']:.3f} to {row['high']:.3f}"
    # Times in ms, from ten seconds on in s. The interval is of the row alone, the verdict of all together.
    factor, unit = 1, ""
    if row["unit"] == "s":
        factor, unit = (1, " s") if max(row["a"], row["b"]) >= 10 else (1000, " ms")
    values = [factor * row[side] for side in "ab"]
    shown = [f"{value:,.0f}{unit}" if value >= 1e4 else f"{value:.4g}{unit}" for value in values]
    said = row["verdict"]
    if by_itself(row):
        said = f"{'faster' if (row['ratio'] > 1) == (row['unit'] != 's') else 'slower'} by itself"
    return [row["name"], *shown, f"{row['ratio']:.3f}", interval, said]


def _about(level: Fields, margin: float) -> Iterator[str]:
    sources = dict.fromkeys(row["scatter"] for row in level["rows"])
    for source in sources:
        names = [row["name"] for row in level["rows"] if row["scatter"] == source]
        named = ", ".join(names) if len(sources) > 1 else "all rows"
        if source == "repeats":
            yield f"Scatter between runs: the repeats' own ({named})."
        elif source != "none":
            yield f"Scatter between runs: {source} ({named})."
    yield from level["notes"]
    for reason in dict.fromkeys(row["reason"] for row in level["rows"] if row["reason"]):
        rows = [row for row in level["rows"] if row["reason"] == reason]
        runs = [row["runs_needed"] for row in rows if row["runs_needed"]]
        names = ", ".join(row["name"] for row in rows)
        enough = (
            f" An interval of ±{margin:.0%} takes {_range(runs)} runs a side at this scatter." if runs else ""
        )
        begin = "By itself only" if by_itself(rows[0]) else "Cannot be told"
        yield f"{begin}: {names}. {reason}{enough}"


def _range(numbers):
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _rest(report: Fields) -> Iterator[str]:
    for limit in report["limits"]:
        if limit["ratio"] is None:
            yield f"Limit {limit['limit']}: NOT TESTED; no comparable level has that figure on both sides."
        else:
            said = "passed, significantly" if limit["passed"] else "not shown to be passed"
            numbers = f"B/A {limit['ratio']:.3f}, p {limit['p_holm']:.2g}"
            yield f"Limit {limit['limit']} at {limit['level']}: {said} ({numbers})."
    for side in "ab":
        if report["unmatched"][side]:
            yield f"Only {side.upper()} has: {', '.join(report['unmatched'][side][:12])}."
    yield from report["notes"]
    if any(level["comparable"] for level in report["levels"]):
        yield (
            f"Equal: the 90 % interval lies within {report['margin']:.0%}. Faster, slower: at 95 %, "
            "allowing for the number of tests (Holm: the first rows of all levels together, the other rows "
            "together). Intervals are of each row alone."
        )


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(plain(sentence), WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _columns(rows, alignment):
    """Rows of cells as aligned lines."""
    rows = [[cell[:60] for cell in row] for row in rows]
    if not rows:
        return []
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, alignment, widths)).rstrip()
        for row in rows
    ]


def _table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
    return [*lines, ""]


def _escaped(words: object) -> str:
    """Text that Markdown shows as it stands: no markup, no HTML, no mention, no link."""
    safe = re.sub(r"([\\`*_{}\[\]#!|~>])", r"\\\1", plain(words).replace("&", "&amp;").replace("<", "&lt;"))
    safe = re.sub(r"@(?=\w)", "@\u200b", safe)
    return re.sub(r"(?i)\b(https?|www)(?=[:.])", lambda found: found[0] + "\u200b", safe)
