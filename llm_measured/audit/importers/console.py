"""What benchmark tools print, as people paste it into issues and blogs: lines of a name and a value.

A name means what quantities.csv says. printed.csv has a row for each form of line that says more or something
else: its `pattern`, and the `lines` of names and values that stand for it. `tool`: which prints it. `part`:
begins (a heading of a result; without a tool the end of one), run (what holds for all results after it), text
(what holds for all of the text where it comes once).
Forms are those of vllm-project/vllm `vllm/benchmarks`, sgl-project/sglang `python/sglang/bench_serving.py`,
NVIDIA/TensorRT-LLM `tensorrt_llm/bench/dataclasses/reporting.py`, ollama/ollama `api/types.go`, llama.cpp and
mlx_lm. Samples in data/audits/samples are made up in the same form.
"""

import re
from dataclasses import dataclass, field
from functools import cache

import pandas as pd

from llm_measured.audit import frame, quantities
from llm_measured.audit.importers import declared, numerals, tables
from llm_measured.audit.importers.beside import is_device
from llm_measured.audit.importers.content import Content

TOOL = "console text"
FEWEST_NAMES = 2  # of measured quantities that make lines of no known tool a result
MOST_LINES, LINE_CHARS = 200_000, 4_000
# What loggers and quotes put before a line: a moment, a level, a process.
PREFIX = re.compile(
    r"^(?:[>\s|]+|\x1b\[[\d;]*m|\([^()]{1,60}pid=\d+[^()]{0,20}\)\s*"
    r"|\[(?!(?:Latency|TTFT|TPOT|ITL)\])[^\[\]]{1,60}\]\s*"
    r"|(?:INFO|WARNING|DEBUG)\s+[\d:., \-]{4,30}|(?:INFO|WARNING|DEBUG)\s*[-:]\s+"
    r"|\d{4}-\d\d-\d\d[T ][\d:.,+Z]+\s*-?\s*)+"
)
# Mean TTFT (ms):                          118.42
LINE = re.compile(
    r"^(?P<name>[A-Za-z\d][\w /.,%&()\[\]\-]{1,70}?)(?: \((?P<unit>[^()]{1,24})\))?\s*[:=]\s+(?P<value>\S.*)$"
)
VALUE = re.compile(
    r"^(?P<number>[-+]?[\d.,]+(?:[eE][-+]?\d+)?|(?:\d+h)?\d+m[\d.]+s)\s*(?P<unit>[A-Za-z/ ()]{0,24})$"
)
# Trial 1: prompt_tps=412.1, generation_tps=28.4
PAIR = re.compile(
    r"(?<![^\s,;:({])([A-Za-z][\w./]{1,40})=([-+]?\d[\d.]*(?:e[-+]?\d+)?(?:[a-zA-Z%/]{1,12})?)(?=[\s,;)}]|$)"
)
FEWEST_PAIRS = 2  # in a line of them
AGAIN = re.compile(r"(averages?|means?|totals?|overall|summary)\b", re.I)  # begins a line that repeats others
# Words alone begin a section; what stands under parameters was asked for and not measured.
HEADING = re.compile(r"[A-Za-z][A-Za-z _-]{2,60}")
PARAMETERS = re.compile(r"parameter|setting|argument|option|config", re.I)
TEXT_CHARS = 120
MARKS = str.maketrans("", "", "*`")  # that make a name bold
Cells = dict[str, tuple[str, str, str]]  # name -> word of quantities.csv, name with its unit, value


@dataclass
class Result:
    """The lines of one result, the `tool` that printed it, and what was stated of its run."""

    tool: str = ""
    lines: Cells = field(default_factory=dict)
    run: Cells = field(default_factory=dict)

    @property
    def measured(self) -> set[str]:
        return {word for word, *_ in self.lines.values() if quantities.is_measured(word)}


def read(content: Content, file: str, beside: bool) -> tuple[list[frame.Audited], dict[str, str | float]]:
    """(the printed results of a text as one `Audited`, or none, {column: value} that holds for all of the
    text); `beside` tables only lines of known tools are results."""
    results, stated = _results(content.whole_text)
    known = [result for result in results if result.tool]
    if not known and (beside or len(set().union(*(one.measured for one in results))) < FEWEST_NAMES):
        return [], stated
    columns: dict[str, str] = {}  # word -> the first name that has it
    rows = []
    for result in known or results:
        row: dict[str, str] = {}
        for word, name, value in [*result.lines.values(), *result.run.values()]:
            column = columns.setdefault(word, name)
            if column not in row:
                row[column] = value
            elif word == "weights":
                row[column] = f"{value} {row[column]}"
        for word, value in declared.constants(result.tool).items():
            row.setdefault(columns.setdefault(word, word), value)
        rows.append(row)
    table = pd.DataFrame(rows).fillna("")
    made = tables.audited(table, tables.meanings(table, {}), file, of_levels=bool(known))
    if known:
        tools = [result.tool for result in known]
        made.levels["tool"], made.placed = tools, []
        said = f"Printed results of {', '.join(dict.fromkeys(tools))} were read: {len(tools)} in all."
        made.notes = [note for note in made.notes if not note[1].startswith("Each row was")] + [(file, said)]
    return [made], stated


def _results(text: str) -> tuple[list[Result], dict[str, str | float]]:
    """(the results that a text prints, in its order, what holds for all of it)."""
    results, run = [Result()], Cells()
    whole: dict[str, set[str]] = {}
    headed = asked = False  # between a result's heading and its end; under parameters
    for line in text.splitlines()[:MOST_LINES]:
        plain = PREFIX.sub("", line[:LINE_CHARS]).strip()
        bare = line[:LINE_CHARS].translate(MARKS).strip("-> \t")
        result, lines, form = results[-1], Cells(), None
        for row, pattern in _forms():
            for match in pattern.finditer(bare if row["part"] == "text" else plain):
                stated = _cells(match.expand(row["lines"]), text=True)
                if row["part"] == "text":
                    for word, _, value in stated.values():
                        whole.setdefault(word, set()).add(value)
                elif row["part"] == "run":
                    run |= stated
                elif row["tool"] or headed or row["part"] != "begins":
                    form, lines = row, lines | stated
        if form is None and (headed or not result.tool):
            if HEADING.fullmatch(plain):
                asked = bool(PARAMETERS.search(plain))
            pairs = PAIR.findall(plain)
            if len(pairs) >= FEWEST_PAIRS:
                if AGAIN.match(plain) and len(results) > 1:
                    continue
                stated = _cells("; ".join(f"{name}: {value.rstrip('.')}" for name, value in pairs))
                measures = any(quantities.is_measured(word) for word, *_ in stated.values())
                run, lines = (run, stated) if measures else (run | stated, lines)
            else:
                lines = _cells(plain)
            if asked and not headed:
                lines = {name: cell for name, cell in lines.items() if cell[0] in _settings()}
        tool, begins = (form["tool"], form["part"] == "begins") if form else ("", False)
        again = [n for n in lines if n in result.lines and (form or lines[n] != result.lines[n])]
        if begins or not headed and (again or tool not in ("", result.tool)):
            if result.measured or not begins:
                result = Result()
                results.append(result)
            headed, asked = begins and bool(tool), asked and not begins
        elif again:
            continue  # a breakdown repeats a mean
        if not result.measured:
            result.run = dict(run)
        result.tool = tool or result.tool
        result.lines |= lines
    return [result for result in results if result.measured], _stated(whole)


@cache
def _forms() -> list[tuple[dict[str, str], re.Pattern]]:
    return [(row, re.compile(row["pattern"], re.I)) for row in quantities.rows_of("printed.csv")]


@cache
def _settings() -> set[str]:
    return {word for word, one in quantities.table().items() if one.setting}


def _cells(lines: str, text: bool = False) -> Cells:
    """What `lines` of a name and a value, joined by a semicolon, mean; `text`: a value may be no number."""
    found: Cells = {}
    for line in lines.split("; "):
        match = LINE.match(line)
        number = match and VALUE.match(match["value"].strip())
        if not match or not (number or text):
            continue
        beside = number["unit"].lower() if number else ""
        unit = beside or match["unit"] or ("s" if number and "m" in number["number"] else "")
        name = f"{match['name']} ({unit})" if unit else match["name"]
        meant = quantities.meaning(name)
        if not meant and beside and not match["unit"]:  # `Output tokens per second: 48.2 tokens/s`
            name = match["name"]
            meant = quantities.meaning(name)
        word, value = (meant or ("metadata",))[0], match["value"].strip()
        if word in frame.TEXTS:
            value = value[:TEXT_CHARS] if text and value.lower() not in numerals.NOTHING else ""
        elif number:
            of_time = unit.lower() in quantities.UNITS and "m" not in number["number"]
            value = f"{number['number']} {unit}" if of_time else number["number"]
        else:
            value = ""
        if value and word != "metadata":
            found[re.split("[:=]", line)[0].strip().lower()] = word, name, value
    return found


def _stated(whole: dict[str, set[str]]) -> dict[str, str | float]:
    """What a text states once; a device only where a table knows it."""
    one: dict[str, str | float] = {
        word: next(iter(found)) for word, found in whole.items() if len(found) == 1
    }
    if "runs" in one:
        one["runs"] = float(one["runs"])
    if not is_device(one.get("gpu", "")):
        one.pop("gpu", None)
    return one
