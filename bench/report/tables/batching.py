"""Tables of the topic batching."""

import numpy as np
import pandas as pd

from bench import html
from bench.report import tables
from bench.topics import batching as batching_analysis
from bench.topics import estimates
from llm_measured.core import columns
from llm_measured.core.columns import Column


@tables.of_machines
def batching(requests: pd.DataFrame) -> pd.DataFrame:
    """The sweeps: one row per engine, option and batch on the default machine, the fastest first; what the
    batch yielded and how much of the hardware it used."""
    table = batching_analysis.sweeps(requests)
    return columns.shown(
        table.sort_values("output_tokens_per_s", ascending=False, kind="stable"),
        f"{columns.ENGINE} batch_size prompt_tokens max_new_tokens output_tokens_per_s "
        "output_tokens_per_s_interval ttft_s tpot_s e2e_s mbu runs requests_per_s itl_max_s mfu_prefill "
        f"mfu_decode peak_memory_bytes {columns.WHERE}",
        output_tokens_per_s_interval=Column("± 95 % over runs", "tokens/s"),
        itl_max_s="longest gap",
    )


@tables.of_machines
def prompt_cost(requests: pd.DataFrame) -> pd.DataFrame:
    """Whether 512 more input tokens cost less than 8 more output tokens: one row per engine and option, at
    batch size 1."""
    costs = batching_analysis.prompt_cost(requests)
    costs = costs.assign(holds=_holds(costs))
    return columns.shown(
        costs.sort_values("ratio"),
        f"{columns.ENGINE} input_s output_s ratio low high holds from_tokens runs gpu model",
        low=Column("95 % interval from"),
        high=Column("to"),
        input_s=Column(f"{batching_analysis.MORE_INPUT} more input tokens", "ms", 1e3),
        output_s=Column(f"{batching_analysis.MORE_OUTPUT} more output tokens", "ms", 1e3),
        holds=Column("cost less?"),
        from_tokens=Column("from a prompt of", "tokens"),
    )


@tables.listed
def kv_cache() -> pd.DataFrame:
    """The published table of KV-cache sizes beside the formula's values: one row per model, length and
    batch."""
    table = batching_analysis.kv_cache()
    return columns.shown(
        table.assign(agree=np.where(table["agree"], "yes", "no")),
        "model sequence_tokens batch_size kv_fp16_gib fp16_gib kv_int8_gib int8_gib agree source",
        sequence_tokens=Column("tokens per sequence"),
        kv_fp16_gib=Column("printed, 16 bits", "GiB"),
        fp16_gib=Column("computed"),
        kv_int8_gib=Column("printed, 8 bits", "GiB"),
        int8_gib=Column("computed, 8 bits"),
        agree=Column("equal as printed?"),
    )


@tables.listed
def largest_batches() -> pd.DataFrame:
    """The largest batch that fits: one row per model, precision and GPU, one column per context length;
    weights and a 16-bit KV cache in 90 % of the memory."""
    rows = "model precision gpu weight_bytes"
    wide = batching_analysis.largest_batches().pivot_table(
        index=rows.split(), columns="context_tokens", values="largest_batch", sort=False
    )
    wide = wide.reset_index()
    wide["weight_bytes"] /= 1e9
    shown = columns.of(rows, gpu="GPU", weight_bytes=Column("weights", "GB"))
    contexts = [name for name in wide.columns if not isinstance(name, str)]
    shown |= {n: Column(f"largest batch at {html.number(n)} tokens") for n in contexts}
    return columns.renamed(wide, shown)


def _holds(costs: pd.DataFrame) -> list[str]:
    """Return for each row of `batching_analysis.prompt_cost` whether it costs less: yes, no, or why that is
    open."""
    verdicts = []
    for _, row in costs.iterrows():
        if pd.isna(row["low"]):
            verdicts.append(estimates.ONE_RUN if row["runs"] == 1 else estimates.EQUAL)
        else:
            verdicts.append("yes" if row["high"] < 1 else "no" if row["low"] > 1 else estimates.EQUAL)
    return verdicts
