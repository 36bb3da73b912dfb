"""What the planner, its figures and its tables share: one question, its answers and simulated loads, each
computed once.
"""

from functools import cache

import pandas as pd

from bench import memo
from llm_measured.core.definitions import Fields
from llm_planner import planner, studies, tradeoffs

PRICED = "h100_sxm", "h200_sxm", "b200_sxm"
LENGTHS = (1000, 1000)
# The parameters of notebooks/plan.ipynb as the page asks.
QUESTION: Fields = {
    "model": "llama-3.1-8b",
    "weights": "bf16 fp8",
    "engine": "vllm",
    "gpus": "h100_sxm h200_sxm",
    "prompt_tokens": 1000,
    "answer_tokens": 1000,
    "rate": 20.0,
    "hit_rate": 0.0,
    "ttft_s": 1.0,
    "tpot_s": 0.03,
    "most_gpus": 64,
    "usd_per_gpu_hour": "",
    "api_usd_per_million_input": "",
    "api_usd_per_million_output": "",
}


@cache
def answers() -> tuple[pd.DataFrame, list[str]]:
    """(`planner.answers` to QUESTION as a table, the sentences of configurations without an answer)."""
    return memo.kept((f"{__name__}.answers",), lambda: planner.answers(QUESTION))


@cache
def mlc() -> pd.DataFrame:
    """`studies.mlc` with the committed coefficients."""
    return memo.kept((f"{__name__}.mlc",), studies.mlc)


@cache
def loops(gpu: str, weights: str) -> pd.DataFrame:
    """`tradeoffs.closed_loops` of QUESTION's model, engine and lengths."""

    def computed() -> pd.DataFrame:
        return tradeoffs.closed_loops(QUESTION["model"], gpu, QUESTION["engine"], weights, LENGTHS)

    return memo.kept((f"{__name__}.loops", gpu, weights), computed)


def frontier(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `loops` that no other beats in both TPOT and dollars, by TPOT."""
    best, kept = float("inf"), []
    for row in table.sort_values(["tpot_s", "usd_per_million_output"]).to_dict("records"):
        if row["usd_per_million_output"] < best:
            best = row["usd_per_million_output"]
            kept.append(row)
    return pd.DataFrame(kept)


@cache
def speculated() -> pd.DataFrame:
    """`tradeoffs.speculation` of QUESTION's model in 16 bits on one H100, with drafts that cost nothing and
    with a draft model of a tenth of a step; column draft_share.
    """
    parts = []
    for share in (0.0, 0.1):
        table = tradeoffs.speculation(
            QUESTION["model"], "h100_sxm", QUESTION["engine"], "bf16", draft_share=share
        )
        parts.append(table.assign(draft_share=share))
    return pd.concat(parts, ignore_index=True)
