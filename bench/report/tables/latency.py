"""Tables of the topic latency."""

import numpy as np
import pandas as pd

from bench import inputs
from bench.analysis import latency as latency_analysis
from bench.analysis import machines as machines_analysis
from bench.report import columns, tables

ANSWER_CHARACTERS = 200


@tables.listed
def latency(requests):
    """One row per engine and option on the machine in focus, the fastest first within each device and model."""
    blocks = [
        latency_analysis.summary(block)
        for _, block in latency_analysis.settings(machines_analysis.here(requests, "latency"))
    ]
    every = pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=list(_latency_columns()))
    return columns.renamed(every, _latency_columns())


def _latency_columns():
    return {
        "backend": ("engine", None), "option": ("option", None),
        "output_tokens_per_s": ("output tokens/s", 1), "interval": ("± 95 % interval (tokens/s)", 1),
        "ttft_s": ("TTFT (ms)", 1e3), "tpot_s": ("TPOT (ms)", 1e3), "itl_p99_s": ("ITL p99 (ms)", 1e3), "mbu": ("MBU", 1),
        "acceptance_rate": ("drafts accepted (%)", 100), "peak_memory_bytes": ("peak memory (MB)", 1e-6), "load_s": ("load (s)", 1), "runs": ("runs", 1), "failed": ("failed requests", 1),
        "backend_version": ("version", None), "gpu": ("device", None), "model": ("model", None), "weights": ("weights", None),
    }  # fmt: skip


@tables.listed
def machines(requests):
    """One row per machine that has measured anything: when, how much, and the best bandwidth that any run probed."""
    table = requests.groupby(["gpu", "host"], as_index=False).agg(
        runs=("run_id", "nunique"), requests=("run_id", "size"), first=("started", "min"), last=("started", "max"),
        best=("bandwidth_bytes_per_s", "max"),
    )  # fmt: skip
    table = table.assign(best=table["best"] / 1e9, first=table["first"].str[:10], last=table["last"].str[:10])
    return table.rename(
        columns={
            "gpu": "device",
            "first": "first measured",
            "last": "last measured",
            "best": "best probed bandwidth (GB/s)",
        }
    )


@tables.listed
def answers(requests):
    """The beginning of the first answer of every engine and option to every prompt; synthetic weights say nothing, so they are left out."""
    rows = machines_analysis.here(requests, "latency")
    rows = rows[(rows["error"] == "") & (rows["weights"] != "synthetic")].sort_values(
        ["model", "prompt", "backend", "option", "run_id"]
    )
    rows = rows.drop_duplicates(["model", "prompt", "backend", "option"])
    cut = rows["answer"].str.slice(0, ANSWER_CHARACTERS) + np.where(
        rows["answer"].str.len() > ANSWER_CHARACTERS, "…", ""
    )
    table = rows.assign(prompt=rows["prompt"].map(inputs.prompts("latency")).fillna(""), answer=cut)
    return (
        table[["prompt", "backend", "option", "answer", "model"]]
        .rename(columns={"backend": "engine"})
        .reset_index(drop=True)
    )
