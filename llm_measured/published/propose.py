"""A clean result file as rows to be proposed for the published table.

llm-measured published propose FILE [--set column=value …] > rows.csv

Rows go to stdout as CSV with the stored columns of the schema; what is missing is named on stderr. What --set
states overrules the file. A file with an alarm of the audit, or rows that a check of the table excludes, are
refused.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd

from llm_measured.audit import report
from llm_measured.audit.checks.finding import ALARMS
from llm_measured.published import build, checks, names, schema, tool_files
from llm_measured.published.reading import Place, Raw, Row, SourceError
from llm_measured.published.sources import Source

SOURCE = "proposed"
# Columns of the schema that say what the audit has to know, and its name for them.
FACTS = {
    "accelerator_raw": "gpu",
    "accelerators": "tensor_parallel",
    "checkpoint_raw": "model",
    "weights_format": "weights",
    "engine": "engine",
    "engine_version": "engine_version",
    "concurrency": "concurrency",
    "input_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
}
# What a reader has to know before a row can be compared with another, or be published at all.
NEEDED = (
    "source_url licence measured_by kind measured_on accelerator_raw accelerators engine engine_version "
    "checkpoint_raw weights_format workload input_tokens output_tokens lengths"
).split()
PLACED = {"accelerator_raw": "accelerator", "checkpoint_raw": "model"}  # raw name -> id of the table


def rows(file: Path, stated: dict[str, str]) -> pd.DataFrame:
    """One row per load level of `file` with the stored columns of the schema, names placed; SourceError in
    one sentence where it is unreadable, has an alarm, or is excluded by a check of the table."""
    known = {name: schema.BY_NAME.get(name) for name in stated}
    wrong = [name for name, column in known.items() if column is None or not column.stored]
    if wrong:
        raise SourceError(f"The schema has no column {wrong[0]!r} to be set; {', '.join(schema.STORED)}.")
    _without_alarm(file, stated)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(file, folder)
        raw = Raw(SOURCE, Path(folder))
        made = list(tool_files.rows(raw))
        with_any: dict[str, Any] = {"throughput_raw": 1} | stated  # a row without a figure is none
        given = Place(raw, file.name, "/", {}).row(**with_any)
    left = [one.reason for one in [*made, given] if not isinstance(one, Row)]
    kept = [one for one in made if isinstance(one, Row)]
    if not isinstance(given, Row) or not kept:
        raise SourceError(f"{file.name}: {left[-1] if left else 'it holds no measurement'}.")
    for reason in left:
        print(f"{file.name}: a level was left out, {reason}.", file=sys.stderr)
    overruling = {name: given.columns[name] for name in stated if name in given.columns}
    about = Source("", "", "", "", "", "", ("*",), retrieved=date.today().isoformat())
    framed = build.framed([replace(one, columns=one.columns | overruling) for one in kept], SOURCE, about)
    framed = names.looked_up(framed.astype(object).where(framed.notna() & (framed != ""), None))
    found = checks.found(build.typed(framed))
    heavy = found[found["verdict"] == checks.EXCLUDED]
    if len(heavy):
        worst = heavy.iloc[0]
        raise SourceError(f"{file.name} is refused by {worst['check']}: {worst['note']}.")
    for note in dict.fromkeys(found["check"] + ": " + found["note"]):
        print(f"{file.name}: {note}.", file=sys.stderr)
    return framed[schema.STORED]


def _without_alarm(file, stated):
    """SourceError where the audit of the file, with what is stated, has an alarm or cannot read it."""
    facts: dict[str, object] = {theirs: stated[own] for own, theirs in FACTS.items() if own in stated}
    for name in set(facts) & set(report.COUNTS):
        try:
            facts[name] = float(str(facts[name]))
        except ValueError:
            raise SourceError(f"{name} is {facts[name]!r}, and no number.") from None
    findings, _, unread = report.collect([file], **facts)
    if unread:
        raise SourceError(unread[0][1])
    alarms = [f for f in findings if f.kind in ALARMS]
    if alarms:
        raise SourceError(
            f"{file.name} is refused, as it has a figure that cannot be: {alarms[0].sentence} "
            "llm-measured audit says all of it."
        )


def missing(table: pd.DataFrame) -> list[str]:
    """A sentence for each needed column that some row lacks, and for each name that no table knows."""
    said = []
    for name in NEEDED:
        lacking = int(table[name].isna().sum())
        if lacking:
            values = f" ({', '.join(schema.BY_NAME[name].choices)})" if schema.BY_NAME[name].choices else ""
            of = "" if lacking == len(table) else f" in {lacking} of {len(table)} rows"
            said.append(f"Missing{of}: {name}, {schema.BY_NAME[name].meaning}{values}. --set {name}=…")
    for raw, own in PLACED.items():
        for name in dict.fromkeys(table.loc[table[raw].notna() & table[own].isna(), raw]):
            said.append(f"No table knows the {own} {name!r}: the row is kept and enters no MBU.")
    return said


def main(words: Sequence[str] | None = None) -> int:
    """Print the rows of the files that `words` name; exit status 1 where one is refused."""
    parser = argparse.ArgumentParser(
        prog="llm-measured published propose",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--set", action="append", default=[], metavar="COLUMN=VALUE")
    given = parser.parse_args(words)
    unset = [pair for pair in given.set if "=" not in pair]
    if unset:
        parser.error(f"--set needs column=value, not {unset[0]}")
    stated = dict(pair.split("=", 1) for pair in given.set)
    try:
        table = pd.concat([rows(file, stated) for file in given.files], ignore_index=True)
    except SourceError as error:
        print(report.plain(error), file=sys.stderr)
        return 1
    table.to_csv(sys.stdout, index=False, lineterminator="\n")
    for sentence in missing(table):
        print(report.plain(sentence), file=sys.stderr)
    return 0
