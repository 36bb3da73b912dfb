"""The whole data as files: every request of every run as one Parquet and one CSV, and what each column is.

    python -m bench.report.downloads        writes them into downloads/

The columns are those of a run's CSV (`bench.observations.schema`), then what its sidecar adds to every row,
then what is derived when read; nothing is rounded; left out are runs that a check refuses.
"""

import os
import tempfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench.observations import schema, store
from bench.paths import DOWNLOADS
from llm_measured.core import metrics, naming
from llm_measured.core.files import csv_text, write_whole

NAME = "observations"


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per request: the columns of `dictionary`, in its order, as they are stored or derived,
    but the host begins with a letter (`naming.lettered_host`)."""
    rows = requests[dictionary()["column"]].reset_index(drop=True)
    return rows.assign(host=rows["host"].map(naming.lettered_host))


def dictionary() -> pd.DataFrame:
    """The data dictionary: one row per column; columns column, group, type, unit, since (layout), meaning."""
    rows = [
        (column.name, column.group, column.type, column.stored_unit, column.since or "", column.meaning)
        for column in (*schema.DECLARED, *schema.FROM_SIDECAR)
    ]
    stored = {column for column, *_ in rows}
    for name in (each for each in store.load(paths=[]) if each not in stored):
        metric = metrics.METRICS[name]
        meaning = f"{metric.meaning}: {metric.formula}" if metric.formula else metric.meaning
        rows.append((name, "derived", "number", metric.stored_unit, "", meaning))
    return pd.DataFrame(rows, columns="column group type unit since meaning".split())


def arrow(requests: pd.DataFrame) -> pa.Table:
    """`table` as an Arrow table whose schema carries meaning and unit of each column."""
    rows, words = table(requests), dictionary().set_index("column")
    found = pa.Table.from_pandas(rows, preserve_index=False)
    fields = []
    for field in found.schema:
        kind = pa.string() if words.loc[field.name, "type"] == "text" else field.type
        known = {"meaning": words.loc[field.name, "meaning"], "unit": words.loc[field.name, "unit"]}
        fields.append(pa.field(field.name, pa.float64() if pa.types.is_null(kind) else kind, metadata=known))
    return found.cast(pa.schema(fields))


def write(requests: pd.DataFrame, folder: str | Path | None = None) -> dict[str, int]:
    """Write observations.parquet, observations.csv and data-dictionary.csv into `folder` (default:
    paths.DOWNLOADS); returns {name of the file: its bytes}."""
    folder = Path(folder or DOWNLOADS)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {f"{NAME}.csv": table(requests), "data-dictionary.csv": dictionary()}
    for name, rows in texts.items():
        write_whole(folder / name, csv_text(rows))
    with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as scratch:
        whole = Path(scratch) / f"{NAME}.parquet"
        pq.write_table(arrow(requests), whole, compression="zstd")
        os.replace(whole, folder / whole.name)
    return {name: (folder / name).stat().st_size for name in (f"{NAME}.parquet", *texts)}


if __name__ == "__main__":
    for _name, _size in write(store.load()).items():
        print(f"{DOWNLOADS / _name}: {_size / 1e6:.2f} MB")
