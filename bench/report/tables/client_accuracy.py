"""Tables of the topic client accuracy."""

import pandas as pd

from bench.analysis import client_accuracy as accuracy_analysis
from bench.instrument import peers
from bench.observations import store
from bench.report import columns as columns_report
from bench.report import tables


@tables.listed
def client_accuracy(requests):
    """One row per load client and number of streams: what it reports less what the server did, here and in the published comparison."""
    own = accuracy_analysis.here(store.load_accuracy(requests.attrs.get("folder")))
    own = own.assign(
        client=[" ".join((peers.title(row["client"]), row["version"])) for _, row in own.iterrows()],
        source="measured on " + own["gpu"],
    )
    columns = {
        "client": ("client", None), "streams": ("streams", 1), "events_per_s": ("events/s", 1), "requests": ("requests", 1), "failed": ("failed", 1),
        "ttft_error_ms": ("TTFT error, mean (ms)", 1), "ttft_error_connected_ms": ("without the first of each stream (ms)", 1),
        "itl_p99_ms": ("ITL p99 reported (ms)", 1), "itl_p99_excess_ms": ("ITL p99 above the server's (ms)", 1),
        "delay_mean_ms": ("event late by, mean (ms)", 1), "delay_p99_ms": ("p99 (ms)", 1), "cpu_us_per_token": ("CPU per token (µs)", 1),
        "peak_memory_bytes": ("peak memory (MB)", 1e-6), "error": ("error", None), "source": ("source", None),
    }  # fmt: skip
    every = pd.concat(
        [part for part in (own, accuracy_analysis.published()) if len(part)], ignore_index=True
    ).reindex(columns=list(columns))
    numeric = [name for name, (_, factor) in columns.items() if factor]
    return columns_report.renamed(every.astype(dict.fromkeys(numeric, float)), columns)
