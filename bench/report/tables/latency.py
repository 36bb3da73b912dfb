"""Tables of the topic latency."""

import numpy as np
import pandas as pd

from bench import inputs
from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.metrics import METRICS
from bench.report import captions, columns, tables
from bench.report.columns import Column

ANSWER_CHARACTERS = 200


@tables.of_machines
def latency(requests):
    """The latency study: one row per engine, option and version on the machine in front, the fastest first
    within each device and model, means over runs.

    `group` is the places that an option may have, all at once with 95 % confidence, or why it is not ranked.
    """
    shown = columns.of(
        f"{columns.ENGINE} group output_tokens_per_s output_tokens_per_s_interval ttft_s ttft_s_interval "
        "tpot_s "
        "itl_p90_s itl_max_s mbu mbu_interval acceptance_rate peak_memory_bytes load_s runs requests failed "
        f"backend_version {columns.WHERE}",
        group=Column("group"),
        output_tokens_per_s_interval=Column("± 95 % over runs", "tokens/s"),
        ttft_s_interval=Column("± TTFT", "ms", 1e3),
        itl_max_s="longest gap",
        mbu_interval=Column("± MBU"),
        failed="failed requests",
    )
    blocks = [
        latency_analysis.summary(block)
        for _, block in latency_analysis.settings(machines.here(requests, "latency"))
    ]
    every = pd.concat(blocks, ignore_index=True) if blocks else pd.DataFrame(columns=list(shown))
    return columns.renamed(every.assign(group=[captions.group(row) for _, row in every.iterrows()]), shown)


@tables.of_machines
def upgrades(requests):
    """What an upgrade of an engine changed: one row per option, version after its first, and metric; the new
    version over the old one, with its 95 % interval over runs."""
    shown = columns.of(
        f"{columns.ENGINE} before after metric ratio low high verdict runs baseline_runs {columns.WHERE}",
        before=Column("from version"),
        after=Column("to version"),
        metric=Column("metric"),
        ratio=Column("times"),
        low=Column("95 % interval from"),
        high=Column("to"),
        verdict=Column("verdict"),
        runs="runs after",
        baseline_runs=Column("runs before"),
    )
    table = latency_analysis.upgrades(requests)
    return columns.renamed(table.assign(metric=table["metric"].map(lambda name: METRICS[name].symbol)), shown)


@tables.of_machines
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
