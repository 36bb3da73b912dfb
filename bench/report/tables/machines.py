"""Tables of the machines that have measured."""

import pandas as pd

from bench.report import tables
from llm_measured.core import columns
from llm_measured.core.columns import Column


@tables.listed
def machines(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per machine that has measured anything: when, how much, and the best bandwidth that any run
    probed."""
    table = requests.groupby(["gpu", "host"], as_index=False).agg(
        runs=("run_id", "nunique"),
        requests=("run_id", "size"),
        first=("started", "min"),
        last=("started", "max"),
        best=("fastest_probe_bytes_per_s", "max"),
    )
    table = table.assign(first=table["first"].str[:10], last=table["last"].str[:10], best=table["best"] / 1e9)
    return columns.shown(
        table,
        "gpu host runs requests first last best",
        first=Column("first measured"),
        last=Column("last measured"),
        best=Column("best probed bandwidth", "GB/s"),
    )
