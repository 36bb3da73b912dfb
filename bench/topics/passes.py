"""What a pass over k new tokens costs after a cached prefix (experiment `passes`), and when a draft pays."""

import numpy as np
import pandas as pd

from bench import inputs
from bench.observations import schema
from bench.topics import estimates, machines

SHAPE = ["prefix_tokens", "pass_tokens"]
PREDICTED = ["backend", "option", "model", "pass_tokens"]  # what a row of the predictions is of
ACCEPTANCE = np.linspace(0, 1, 10001)


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return one row per configuration, prefix and number of new tokens, on every machine.

    Columns prefix_tokens (that the engine was asked to keep), runs, pass_s (median over the passes of a run,
    its mean over runs), ratio (to the pass over one token of the same run, mean over runs), both
    with their `_interval`, acceptance_needed, and what data/passes_predictions.csv predicted.
    """
    rows = machines.every(requests, "passes")
    rows = rows.assign(prefix_tokens=rows["expected_cached_tokens_high"])
    rows = rows.assign(pass_tokens=rows["prompt_tokens"] - rows["prefix_tokens"])
    keys = [*schema.CONFIGURATION, *SHAPE]
    timed = rows[rows["error"] == ""].groupby(["run_id", "experiment", "started", *keys], as_index=False)
    passes = timed.agg(pass_s=("ttft_s", "median"))
    alone = passes[passes["pass_tokens"] == 1].set_index("run_id")["pass_s"]
    passes = passes.assign(ratio=passes["pass_s"] / passes["run_id"].map(alone))
    found = estimates.half_widths(estimates.within_runs(passes, keys, "ratio"), "ratio")
    found = found.merge(estimates.by_condition(passes, schema.CONFIGURATION, "pass_s", SHAPE), "left", keys)
    found["acceptance_needed"] = acceptance_needed(found["pass_tokens"], found["ratio"])
    return found.merge(inputs.table("passes_predictions"), "left", PREDICTED)


def acceptance_needed(pass_tokens: pd.Series, ratio: pd.Series) -> list[float]:
    """Return the share of drafted tokens that has to be accepted for a pass over k tokens to pay, for drafts
    that cost nothing (n-grams): k - 1 drafted ones and the token before them.

    A pass gives 1 + a + ... + a^(k-1) tokens in the mean where each is accepted with probability a (Leviathan
    et al. 2023, arXiv 2211.17192, equation 1), and pays where they are more than `ratio`, its time over that
    of a pass over one. A draft model's own passes add to `ratio`. NaN for k = 1, and where no share is
    enough.
    """
    needed = []
    for k, cost in zip(pass_tokens, ratio):
        tokens = sum(ACCEPTANCE**power for power in range(int(k)))
        needed.append(np.interp(cost, tokens, ACCEPTANCE) if k > 1 and cost <= k else np.nan)
    return needed
