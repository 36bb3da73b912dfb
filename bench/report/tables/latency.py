"""Tables of the topic latency."""

import numpy as np
import pandas as pd

from bench import inputs
from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.report import columns, tables
from bench.report.columns import Column

ANSWER_CHARACTERS = 200


@tables.listed
def latency(requests):
    """The latency study: one row per engine and option on the machine in focus, the fastest first within
    each device and model."""
    shown = columns.of(
        f"{columns.ENGINE} output_tokens_per_s interval ttft_s tpot_s itl_p99_s mbu "
        f"acceptance_rate peak_memory_bytes load_s runs failed backend_version {columns.WHERE}",
        interval=Column("± 95 % interval", "tokens/s"),
        failed="failed requests",
    )
    blocks = [
        latency_analysis.summary(block)
        for _, block in latency_analysis.settings(machines.here(requests, "latency"))
    ]
    every = pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=list(shown))
    return columns.renamed(every, shown)


@tables.listed
def answers(requests):
    """The beginning of answers: one row per engine, option and prompt, from the first run that succeeded.

    Synthetic weights are left out, because what they answer is noise.
    """
    rows = machines.here(requests, "latency")
    rows = rows[(rows["error"] == "") & (rows["weights"] != "synthetic")].sort_values(
        ["model", "prompt", "backend", "option", "run_id"]
    )
    rows = rows.drop_duplicates(["model", "prompt", "backend", "option"], ignore_index=True)
    cut = rows["answer"].str.slice(0, ANSWER_CHARACTERS) + np.where(
        rows["answer"].str.len() > ANSWER_CHARACTERS, "…", ""
    )
    table = rows.assign(prompt=rows["prompt"].map(inputs.prompts("latency")).fillna(""), answer=cut)
    shown = columns.of(
        f"prompt {columns.ENGINE} answer model", prompt=Column("prompt"), answer=Column("answer")
    )
    return columns.renamed(table, shown)
