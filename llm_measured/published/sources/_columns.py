"""Sources whose files are CSV with named columns: columns.csv says what each of ours is in theirs.

A line of columns.csv: `column` of the schema; `from` names of the file's columns, several parted by |, their
texts joined by a blank; `pattern`, which the text has to fit whole; `value`, what the column is then (with
\\1 for a part of the text; without it the text itself, or its first part); `times`, a factor. Of several
lines for one column the first that fits counts. The column `left out` keeps a record out, its value the
reason."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pandas as pd

from llm_measured.core.definitions import Fields
from llm_measured.published.reading import LeftOut, Raw, Record, Row, scaled

TABLE = Path(__file__).parents[1] / "columns.csv"
LEFT_OUT = "left out"


@cache
def _lines(source: str) -> list[dict[str, str]]:
    table = pd.read_csv(TABLE, dtype=str, keep_default_na=False)
    return table[table["source"] == source].to_dict("records")


def rows(raw: Raw, files: Iterable[str]) -> Iterator[Row | LeftOut]:
    """Yield a row, or what was left out, for each record of `files` of a source."""
    for file in raw.files(*files):
        for at, record in raw.csv(file, "\t" if file.endswith(".tsv") else ","):
            found = columns(record, [line for line in _lines(raw.source) if line["file"] in ("", file)])
            reason = found.pop(LEFT_OUT, None)
            yield at.left_out(reason) if reason else at.row(**found)


def columns(record: Record, lines: list[dict[str, str]]) -> Fields:
    """Return our columns of one record, by the lines of columns.csv."""
    found: Fields = {}
    for line in lines:
        if line["column"] in found:
            continue
        value: str | None = line["value"]
        if line["from"]:
            text = " ".join(str(record[name] or "") for name in line["from"].split("|")).strip()
            fits = re.fullmatch(line["pattern"] or r".*", text, re.DOTALL)
            if fits is None:
                continue
            if value:
                value = fits.expand(value)
            else:
                value = fits[1] if fits.re.groups else text
        if value:
            found[line["column"]] = scaled(value, line["times"]) if line["times"] else value
    return found
