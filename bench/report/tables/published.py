"""Tables of the topic published."""

import pandas as pd

from bench import inputs
from bench.report import tables
from llm_measured.core import columns
from llm_measured.core.columns import Column


@tables.listed
def published() -> pd.DataFrame:
    """The published latency study as it was printed: one row per platform and options, fastest first.

    `bench.report.published_corrections` computes what it corrects.
    """
    table = inputs.table("published/husain_llama2_7b_latency")
    table = table.sort_values("tokens_per_s", ascending=False, ignore_index=True)
    return columns.shown(
        table,
        "platform options gpu tokens_per_s time_s output_tokens edition source",
        gpu="GPU",
        tokens_per_s=Column("tokens/s"),
        time_s=Column("time", "s"),
    )
