"""What columns tables have, and how their files are read.

A column is declared by a run, as a metric, or in data/table_columns.csv."""

import io
from pathlib import Path

import pandas as pd

from bench import inputs, paths
from bench.observations import schema
from llm_measured.core.metrics import METRICS

ADDED = inputs.table("table_columns").fillna("").set_index("column", verify_integrity=True)
OF_RUNS = {column.name: column for column in (*schema.DECLARED, *schema.FROM_SIDECAR)}
# Texts may look like numbers, or be empty in all rows.
TEXT = dict.fromkeys(ADDED.index[ADDED["type"] == "text"], str)
TEXT |= {name: str for name, column in OF_RUNS.items() if column.type == "text"}
STATISTICS = {
    "_interval": "half width of the 95 % interval of",
    "_low": "lower end of the 95 % interval of",
    "_high": "upper end of the 95 % interval of",
    "_runs": "values of the single runs, separated by spaces, of",
    **{f"_{part}_s": f"{words} over requests of" for part, words in (
        ("p50", "median"), ("p90", "90th percentile"), ("p99", "99th percentile"), ("max", "largest"),
    )},
}  # fmt: skip


def column(name: str) -> tuple[str, str, str]:
    """Return (type, unit, meaning) of the column `name` of a table; KeyError for one that is declared
    nowhere."""
    if name in ADDED.index:
        return tuple(ADDED.loc[name])
    if name in OF_RUNS:
        run = OF_RUNS[name]
        return run.type, run.stored_unit, run.meaning
    if name in METRICS:
        metric = METRICS[name]
        formula = f": {metric.formula}" if metric.formula else ""
        return "number", metric.stored_unit, metric.meaning + formula
    for suffix, words in STATISTICS.items():
        if name.endswith(suffix):
            of = name.removesuffix(suffix) + ("_s" if suffix.endswith("_s") else "")
            kind, unit, _ = column(of)
            return "text" if suffix == "_runs" else kind, unit, f"{words} {of}"
    raise KeyError(f"No column {name!r} is declared: add it to data/table_columns.csv.")


def of_tables(folder: Path = paths.TABLES) -> dict[str, pd.DataFrame]:
    """Return {table: its columns} of every CSV in `folder`: column, type, unit, meaning."""
    found = {}
    for file in sorted(folder.glob("*.csv")):
        rows = [(name, *column(name)) for name in pd.read_csv(file, nrows=0)]
        found[file.stem] = pd.DataFrame(rows, columns=["column", "type", "unit", "meaning"])
    return found


def read(file: Path | io.StringIO) -> pd.DataFrame:
    """Return the table of `file`; texts without a value are empty, numbers without one NaN."""
    table = pd.read_csv(file, dtype=TEXT, keep_default_na=True)
    texts = table.select_dtypes(exclude=["number", "bool"])
    return table.assign(**{name: table[name].fillna("") for name in texts})
