"""Tables of the topic latency."""

import functools

import numpy as np
import pandas as pd

from bench import inputs
from bench.observations import schema
from bench.report import captions, shared, tables
from bench.topics import latency as latency_analysis
from bench.topics import machines
from bench.topics import quality as quality_analysis
from llm_measured.core import columns
from llm_measured.core.columns import Column
from llm_measured.core.metrics import METRICS

ANSWER_CHARACTERS = 200


@functools.partial(tables.of_machines, prepare=shared.added)
def latency(requests: pd.DataFrame) -> pd.DataFrame:
    """The latency study: one row per engine, option and version on the default machine, the fastest first
    within each device and model (`bench.topics.estimates`).

    `compared` says which may be the best, or why an option was not compared. `note` says where an option has
    one run or one measuring session, and where its mean lies outside the range of its own runs.
    """
    rows = machines.on_default_machine(requests, "latency")
    every = latency_analysis.summary(machines.every(requests, "latency"))
    order = {key: place for place, (key, _) in enumerate(latency_analysis.settings(rows))}
    place = pd.Series([order.get(key) for key in zip(*(every[name] for name in schema.SETTING))], every.index)
    here = place.notna() & every["host"].isin(rows["host"])
    every = every[here].assign(place=place).sort_values("place", kind="stable", ignore_index=True)
    return columns.shown(
        quality_analysis.beside(every, requests).assign(
            compared=[captions.compared(row) for _, row in every.iterrows()]
        ),
        f"{columns.ENGINE} output_tokens_per_s output_tokens_per_s_interval product perplexity_ratio verdict "
        "ttft_s ttft_s_interval tpot_s itl_p90_s mbu peak_memory_bytes compared runs itl_max_s mbu_interval "
        "mbu_datasheet slowest_probe_bytes_per_s bandwidth_bytes_per_s fastest_probe_bytes_per_s "
        "acceptance_rate "
        f"{columns.known(every, ' '.join(latency_analysis.ENERGY))} load_s measuring_sessions note "
        f"requests failed backend_version {columns.WHERE}",
        output_tokens_per_s_interval=Column("± 95 % over runs", "tokens/s"),
        ttft_s_interval=Column("± TTFT", "ms", 1e3),
        product=Column("9 × 8 = ?"),
        perplexity_ratio=Column("perplexity, times the reference's"),
        verdict=Column("answers"),
        itl_max_s="longest gap",
        note=Column("note"),
        compared=Column("compared"),
        measuring_sessions=Column("measuring sessions"),
        mbu_interval=Column("± MBU"),
        mbu_datasheet=Column("MBU of the datasheet's bandwidth"),
        bandwidth_bytes_per_s=Column("bandwidth of the MBU", "GB/s", 1e-9),
        slowest_probe_bytes_per_s=Column("slowest probe", "GB/s", 1e-9),
        fastest_probe_bytes_per_s=Column("fastest probe", "GB/s", 1e-9),
        failed="failed requests",
    )


@tables.of_machines
def upgrades(requests: pd.DataFrame) -> pd.DataFrame:
    """What an upgrade of an engine changed: one row per option, version after its first, and metric; the new
    version over the old one, with its 95 % interval over runs."""
    table = latency_analysis.upgrades(requests)
    return columns.shown(
        table.assign(metric=table["metric"].map(lambda name: METRICS[name].title)),
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
    rows = machines.on_default_machine(requests, "latency")
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
