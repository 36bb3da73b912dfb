"""Tables of the explorer's page: what stands there without JavaScript, and the data dictionary."""

import pandas as pd

from bench.report import downloads, tables
from bench.topics import explorer
from llm_measured.core import columns
from llm_measured.core.columns import Column


@tables.listed
def explored(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per engine, option and version of the latency experiment on every machine, adjusted means, the
    machines apart and the fastest first."""
    shown = columns.of(
        f"{columns.ENGINE} output_tokens_per_s output_tokens_per_s_interval ttft_s ttft_s_interval runs "
        f"backend_version {columns.WHERE} host",
        output_tokens_per_s_interval=Column("± 95 %", "tokens/s"),
        ttft_s_interval=Column("± TTFT", "ms", 1e3),
    )
    if not (requests["experiment"] == "latency").any():
        return columns.renamed(pd.DataFrame(columns=list(shown)), shown)
    table = explorer.points(requests, "latency")
    order = ["gpu", "host", "output_tokens_per_s"]
    return columns.renamed(table.sort_values(order, ascending=[True, True, False]), shown)


@tables.listed
def data_dictionary() -> pd.DataFrame:
    """One row per column of the whole data (downloads/observations.csv): its group, type, unit, the layout of
    files that first had it, and what it means."""
    table = downloads.dictionary().astype({"since": str})
    table.attrs["whole"] = "All of them, to look one up."
    return table
