"""Tables of the topic quality."""

import pandas as pd

from bench.report import tables
from bench.topics import quality as quality_analysis
from llm_measured.core import columns
from llm_measured.core.columns import Column


@tables.of_machines
def quality(requests: pd.DataFrame) -> pd.DataFrame:
    """What an option costs in quality: one row per engine and option that was scored on the default machine,
    the fastest first; real weights only."""
    return columns.shown(
        quality_analysis.on_default_machine(requests),
        f"{columns.ENGINE} output_tokens_per_s product perplexity perplexity_ratio "
        "verdict agreement same_answers "
        "answers weight_bytes "
        "departs_first departs_median gpu model",
        weight_bytes="weights read per token",
        agreement=Column("tokens as the reference's", "%", 100),
        same_answers=Column("answers the same"),
        departs_first=Column("same tokens before the earliest other one"),
        departs_median=Column("median over answers"),
        product=Column("9 × 8 = ?"),
        verdict=Column("verdict"),
        perplexity="perplexity of the text",
        perplexity_ratio=Column("times the reference's"),
    )
