"""Sources whose files are records with named columns: columns.csv says what each of ours is in theirs.

A record is a line of a CSV, of JSONL or of a Markdown table, or an object of a JSON file. A line of
columns.csv: `file` (a pattern; empty: of all files); `column` of the schema; `from` names of theirs, several
parted by |, their texts joined by a blank; `pattern`, which the text has to fit whole; `value`, what the
column is then (with \\1 for a part of the text; without it the text itself, or its first part); `times`, a
factor. Of several lines for one column the first that fits counts. A name with points goes down into nested
objects; `@file`, `@text` (the whole file's), `@headings` (of a Markdown table, parted by " › "), `@whole.…`
(of a JSON file, around its records), `@name` and `@cell` stand for what is not in the record.

Columns that are none of the schema's:
- `records`: where in a JSON file its records are; `lines` where each line is one;
- `fill`: a column that a line of a table leaves out where it is that of the line above;
- `cells`: columns that are measured points of their own, as a pattern (or as names for several points);
- `skip`: records that are no measurements at all; `left out`: one that is not kept, its value the reason;
- `as`: whose columns come first: `single` (one request, output tokens), `llama-bench` (a line of its table),
  `llama-bench test` (its test, rate and spread in `from`), `vllm bench` (a result);
- `printed.…`: what the file's own label says instead; `flags.…`: one of several settings of a text, as
  `name=value; name=value` (so of `backend`, of `engine_version`)."""

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pandas as pd

from llm_measured.core.definitions import Fields, Value
from llm_measured.published import schema
from llm_measured.published.reading import LeftOut, Place, Raw, Record, Row, joined, leading, scaled
from llm_measured.published.sources import _llama_bench, _vllm_bench
from llm_measured.published.sources._tables import single

TABLE = Path(__file__).parents[1] / "columns.csv"
LEFT_OUT = "left out"
Line = dict[str, str]


@cache
def _lines(source: str) -> list[Line]:
    table = pd.read_csv(TABLE, dtype=str, keep_default_na=False)
    return table[table["source"] == source].to_dict("records")


def rows(raw: Raw, files: Iterable[str]) -> Iterator[Row | LeftOut]:
    """Yield a row, or what was left out, for each record of `files` of a source."""
    for file in raw.files(*files):
        lines = [line for line in _lines(raw.source) if fnmatch.fnmatch(file, line["file"] or "*")]
        told = {line["column"]: line["pattern"] or line["value"] for line in lines}
        above: Fields = {}
        for at, record, beside in _records(raw, file, told.get("records")):
            if "fill" in told and told["fill"] in record:
                above |= {told["fill"]: record[told["fill"]]} if record[told["fill"]] else {}
                record |= above
            names = told["cells"].split(" / ") if " / " in told.get("cells", "") else []
            names += [name for name in record if name and re.fullmatch(told.get("cells", "(?!)"), str(name))]
            for name in names:
                yield from _rows(
                    at.cell(name), record, beside | {"@name": name, "@cell": record.get(name)}, lines
                )
            if "cells" not in told:
                yield from _rows(at, record, beside, lines)


def _records(raw: Raw, file: str, where: str | None) -> Iterator[tuple[Place, Record, Fields]]:
    """Yield (place, record, what stands beside it) of each record of `file`."""
    beside: Fields = {"@file": file, "@text": ""}
    if file.endswith((".csv", ".tsv")):
        yield from ((at, r, beside) for at, r in raw.csv(file, "\t" if file.endswith(".tsv") else ","))
    elif file.endswith(".jsonl") or where == "lines":
        yield from ((at, r, beside) for at, r in raw.jsonl(file))
    elif file.endswith(".json"):
        whole = raw.json(file)
        if where:
            beside |= {"@whole": whole}
            yield from ((at, r, beside) for at, r in raw.json_items(file, *where.split("/")))
        elif isinstance(whole, Record):
            yield Place(raw, file, "/", whole), whole, beside
    else:
        beside["@text"] = raw.text(file)
        for at, r, headings in raw.tables(file):
            yield at, r, beside | {"@headings": " › ".join(headings)}


def _rows(at: Place, record: Record, beside: Fields, lines: list[Line]) -> Iterator[Row | LeftOut]:
    found = columns(record, lines, beside)
    if found.pop("skip", None):
        return
    reason = found.pop(LEFT_OUT, None)
    if reason:
        yield at.left_out(reason)
        return
    parts: dict[str, Fields] = {"printed": found.pop("gaps", {})}
    for name in [name for name in found if "." in name]:
        group, _, part = name.partition(".")
        parts.setdefault(group, {})[part] = found.pop(name)
    printed = parts.pop("printed")
    for group, settings in parts.items():
        found[group] = "; ".join(filter(None, [joined(**settings), found.get(group)]))
    yield at.row(printed, **found)


def columns(record: Record, lines: list[Line], beside: Fields | None = None) -> Fields:
    """Return our columns of one record, by the lines of columns.csv."""
    beside = beside or {}
    found: Fields = {}
    first: Fields = {}
    for line in lines:
        if line["column"] in found or line["column"] in ("records", "cells", "fill"):
            continue
        value: Value = line["value"]
        if line["column"] == "as":
            first |= AS[line["value"]](
                [_field(record, beside, name) for name in line["from"].split("|")], record
            )
            continue
        if line["from"]:
            values = [_field(record, beside, name) for name in line["from"].split("|")]
            text = " ".join(str("" if each is None else each) for each in values).strip()
            fits = re.fullmatch(line["pattern"] or r".*", text, re.DOTALL)
            if fits is None:
                continue
            if value:
                value = fits.expand(value)
            elif fits.re.groups:
                value = fits[1]
            elif len(values) == 1:
                # Of a Markdown table's cell the number; `12.3 ± 0.4 t/s` says more than that.
                in_table = "@headings" in beside and line["column"] in schema.NUMBERS
                value = leading(values[0]) if in_table else values[0]
            else:
                value = text
        if value not in (None, ""):
            found[line["column"]] = scaled(value, line["times"]) if line["times"] else value
    return first | found


def _field(record: Record, beside: Fields, name: str) -> Value:
    """Return what `name` is in a record, or in what stands beside it; None where there is nothing."""
    if name in record or name in beside:
        return record[name] if name in record else beside[name]
    value: Value = beside if name.startswith("@") else record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _of_vllm_bench(_: list[Value], record: Record) -> Fields:
    found, gaps = _vllm_bench.itl_of_tokens(_vllm_bench.result(record))
    return found | {"gaps": gaps}


def _of_llama_bench(found: Fields | None) -> Fields:
    return {LEFT_OUT: "a test that is none of llama-bench's"} if found is None else found


AS: dict[str, Callable[[list[Value], Record], Fields]] = {
    "single": lambda values, record: single(None),
    "llama-bench": lambda values, record: _of_llama_bench(_llama_bench.line(record)),
    "llama-bench test": lambda values, record: _of_llama_bench(
        _llama_bench.rate(str(values[0]), leading(values[1]), *values[2:])
    ),
    "vllm bench": _of_vllm_bench,
}
