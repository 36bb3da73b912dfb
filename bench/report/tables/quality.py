"""Tables of the topic quality."""

import pandas as pd

from bench import columns
from bench.analysis import quality as quality_analysis
from bench.columns import Column
from bench.report import tables


@tables.of_machines
def quality(requests: pd.DataFrame) -> pd.DataFrame:
    """What an option costs in quality: one row per engine and option that was scored on the machine in front,
    the fastest first; real weights only."""
    return columns.shown(
        quality_analysis.here(requests),
        f"{columns.ENGINE} output_tokens_per_s weight_bytes agreement same_answers answers "
        "perplexity perplexity_ratio excess_nll_nats excess_prompt_interval departs_first departs_median "
        "reference_nll_nats gpu model",
        weight_bytes="weights read per token",
        agreement=Column("tokens as the reference's", "%", 100),
        same_answers=Column("answers the same"),
        departs_first=Column("same tokens before the earliest other one"),
        departs_median=Column("median over answers"),
        reference_nll_nats=Column("NLL of the answers", "nats/token"),
        excess_nll_nats=Column("above the reference's"),
        excess_prompt_interval=Column("± 95 % over prompts"),
        perplexity="perplexity of the text",
        perplexity_ratio=Column("times the reference's"),
    )
