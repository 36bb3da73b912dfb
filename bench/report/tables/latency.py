"""Tables of the topic latency."""

import numpy as np
import pandas as pd

from bench import columns, inputs
from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.columns import Column
from bench.metrics import METRICS
from bench.report import captions, tables

ANSWER_CHARACTERS = 200


@tables.of_machines
def latency(requests: pd.DataFrame) -> pd.DataFrame:
    """The latency study: one row per engine, option and version on the machine in front, the fastest first
    within each device and model, adjusted means (`bench.analysis.comparison`).

    `group` is the ranks that an option may have, all at once with 95 % confidence, and how many more rounds
    would settle whether it is the first where that is open; or why it is not ranked. `known from` says where
    an option has one run, whose interval is made of the others' scatter, or one sitting.
    """
    rows = machines.here(requests, "latency")
    blocks = [block for _, block in latency_analysis.settings(rows)] or [rows]
    every = pd.concat(map(latency_analysis.summary, blocks), ignore_index=True)
    return columns.shown(
        every.assign(group=[captions.group(row) for _, row in every.iterrows()]),
        f"{columns.ENGINE} output_tokens_per_s output_tokens_per_s_interval ttft_s ttft_s_interval tpot_s "
        "itl_p90_s mbu peak_memory_bytes group runs itl_max_s mbu_interval acceptance_rate "
        f"{columns.known(every, ' '.join(latency_analysis.ENERGY))} load_s sittings note "
        f"requests failed backend_version {columns.WHERE}",
        output_tokens_per_s_interval=Column("± 95 % over runs", "tokens/s"),
        ttft_s_interval=Column("± TTFT", "ms", 1e3),
        itl_max_s="longest gap",
        note=Column("known from"),
        mbu_interval=Column("± MBU"),
        failed="failed requests",
    )


@tables.of_machines
def upgrades(requests: pd.DataFrame) -> pd.DataFrame:
    """What an upgrade of an engine changed: one row per option, version after its first, and metric; the new
    version over the old one, with its 95 % interval over runs."""
    table = latency_analysis.upgrades(requests)
    return columns.shown(
        table.assign(metric=table["metric"].map(lambda name: METRICS[name].symbol)),
        f"{columns.ENGINE} before after metric ratio low high verdict runs baseline_runs {columns.WHERE}",
        before=Column("from version"),
        after=Column("to version"),
        ratio=Column("times"),
        low=Column("95 % interval from"),
        high=Column("to"),
        runs="runs after",
        baseline_runs=Column("runs before"),
    )


@tables.of_machines
def answers(requests: pd.DataFrame) -> pd.DataFrame:
    """The beginning of answers: one row per engine, option and prompt, from the first run that succeeded.

    Synthetic weights are left out, because what they answer is noise.
    """
    rows = machines.here(requests, "latency")
    rows = rows[(rows["error"] == "") & (rows["weights"] != "synthetic")].sort_values(
        ["model", "prompt", "backend", "option", "run_id"]
    )
    rows = rows.drop_duplicates(["model", "prompt", "backend", "option"], ignore_index=True)
    more = np.where(rows["answer"].str.len() > ANSWER_CHARACTERS, "…", "")
    cut = rows["answer"].str.slice(0, ANSWER_CHARACTERS) + more
    table = rows.assign(prompt=rows["prompt"].map(inputs.prompts("latency")).fillna(""), answer=cut)
    made = columns.shown(table, f"prompt {columns.ENGINE} answer model")
    made.attrs["whole"] = "All of them, for they are evidence."
    return made
