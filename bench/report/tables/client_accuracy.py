"""Tables of the topic client accuracy."""

import pandas as pd

from bench.instrument import peers
from bench.observations import store
from bench.report import tables
from bench.topics import client_accuracy as accuracy_analysis
from bench.topics import machines
from llm_measured.core import columns
from llm_measured.core.columns import Column

TEXT = "client", "gpu", "error", "source"


@tables.listed
def client_accuracy(requests: pd.DataFrame) -> pd.DataFrame:
    """How far load clients are off: one row per client and number of streams, what it reports less what the
    server did, here and in the published comparison."""
    own = store.load_accuracy(requests.attrs.get("folder"))
    every = machines.labelled(own, strict=False)
    if every:
        each = [accuracy_analysis.on_default_machine(rows).assign(gpu=label) for label, rows in every]
        own = pd.concat(each, ignore_index=True)
    own = own.assign(
        client=[" ".join((peers.title(row["client"]), row["version"])) for _, row in own.iterrows()],
        source="measured on " + own["gpu"],
    )
    parts = [part for part in (own, accuracy_analysis.published()) if len(part)]
    shown = columns.of(
        "client gpu streams ttft_error_ms ttft_error_ms_interval ttft_error_connected_ms itl_p99_excess_ms "
        "delay_p99_ms cpu_us_per_token runs failed error events_per_s requests itl_p99_ms delay_mean_ms "
        "peak_memory_bytes source",
        events_per_s=Column("events/s"),
        ttft_error_ms=Column("TTFT error, mean", "ms"),
        ttft_error_ms_interval=Column("± TTFT error", "ms"),
        ttft_error_connected_ms=Column("without the first of each stream", "ms"),
        itl_p99_ms=Column("ITL p99 reported", "ms"),
        itl_p99_excess_ms=Column("ITL p99 above the server's", "ms"),
        delay_mean_ms=Column("event late by, mean", "ms"),
        delay_p99_ms=Column("p99", "ms"),
        cpu_us_per_token=Column("CPU per token", "µs"),
    )
    every = pd.concat(parts, ignore_index=True).reindex(columns=list(shown))
    return columns.renamed(every.astype({name: float for name in shown if name not in TEXT}), shown)
