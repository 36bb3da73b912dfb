"""The whole data as files: every request of every run as one Parquet and one CSV, and what each column is.

    python -m bench.report.downloads        writes them into downloads/

The columns are those of a run's CSV (`bench.observations.schema`), then what its sidecar adds to every row,
then what is derived when read; nothing is rounded and nothing is left out.
"""

import os
import tempfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bench import metrics
from bench.files import csv_text, write_whole
from bench.observations import schema, store
from bench.paths import DOWNLOADS
from bench.report import html

NAME = "observations"
# What a sidecar adds, in words; schema.CONTEXT has the names.
CONTEXT = {
    "bandwidth_bytes_per_s": "bandwidth that MBU is against: what the probes beside the run found",
    "datasheet_bandwidth_bytes_per_s": "bandwidth of the device's datasheet",
    "weight_bytes": "weights that a decode step reads",
    "kv_value_bytes": "bytes of one number in the KV cache",
    "kv_values_per_token": "numbers that one token adds to the KV cache",
    "threads": "threads of the engine",
    "started": "when the run began",
    "arithmetic": "number format of the matrix multiplications",
    "peak_flops_per_s": "fastest matrix multiplication measured in that format or a wider one",
    "block_parameters": "parameters of all layers' matrices",
    "head_parameters": "parameters of the output matrix",
    "attention_values": "layers x query heads x head size",
    "limit_bytes": "memory that the run was limited to; empty without a limit",
    "loaded_bytes": "memory held once the engine was loaded",
    "probe_cpu_share": "share of a core's time that the bandwidth probe itself had",
    "probe_ways": "in how many ways the bandwidth probe read memory; 1 in older files (roof maybe too low)",
    "best_probe_bytes_per_s": "fastest bandwidth probe of the run",
    "gpu_idle_w": "power of the GPUs with the engine loaded and idle, W",
    "cpu_idle_w": "power of the CPU's packages with the engine loaded and idle, W",
}


def table(requests):
    """One row per request: the columns of `dictionary`, in its order, as they are stored or derived."""
    return requests[dictionary()["column"]].reset_index(drop=True)


def dictionary():
    """The data dictionary: one row per column; columns column, group, type, unit, since (layout), meaning."""
    rows = [
        (column.name, column.group, column.type, column.unit, column.since, column.meaning)
        for column in schema.DECLARED
    ]
    rows += [
        (name, "sidecar", "text" if name in schema.TEXT else "number", metrics.unit_of(name), "", words)
        for name, words in _context().items()
    ]
    for name in _derived():
        metric = metrics.METRICS[name]
        meaning = f"{metric.title}: {metric.formula}" if metric.formula else metric.title
        rows.append((name, "derived", "number", metric.unit, "", meaning))
    return pd.DataFrame(rows, columns="column group type unit since meaning".split())


def _context():
    """The words of every column of schema.CONTEXT, in its order; none for one that is not among CONTEXT."""
    return {name: CONTEXT.get(name, "") for name in schema.CONTEXT}


def _derived():
    """Names of the metrics that reading adds to every row."""
    stored = {*schema.COLUMNS, *schema.CONTEXT}
    return [name for name in store.load(paths=[]) if name not in stored]


def arrow(requests):
    """`table` as an Arrow table whose schema carries meaning and unit of each column."""
    rows, words = table(requests), dictionary().set_index("column")
    found = pa.Table.from_pandas(rows, preserve_index=False)
    fields = []
    for field in found.schema:
        kind = pa.string() if words.loc[field.name, "type"] == "text" else field.type
        known = {"meaning": words.loc[field.name, "meaning"], "unit": words.loc[field.name, "unit"]}
        fields.append(pa.field(field.name, pa.float64() if pa.types.is_null(kind) else kind, metadata=known))
    return found.cast(pa.schema(fields))


def write(requests, folder=None):
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


def _size_words(size):
    """A number of bytes as a reader sees it: `0.698 MB`, `5.37 kB`."""
    return f"{html.number(size / 1e6)} MB" if size >= 1e5 else f"{html.number(size / 1e3)} kB"


def block(requests):
    """The files of `write`, written for this page, as a list of links in HTML."""
    links = "\n".join(
        f'<li><a href="downloads/{name}" download>{name}</a> ({_size_words(size)})</li>'
        for name, size in write(requests).items()
    )
    runs = requests["run_id"].nunique()
    count = f"{html.number(len(requests))} requests of {html.number(runs)} runs, one row each."
    return f"<p>{count}</p>\n<ul>\n{links}\n</ul>"


if __name__ == "__main__":
    for _name, _size in write(store.load()).items():
        print(f"{DOWNLOADS / _name}: {_size / 1e6:.2f} MB")
