"""Evidence that prompts were never computed, from TTFTs against prompt lengths and against the device."""

import numpy as np
import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.checks import accounts
from llm_measured.audit.checks.finding import number
from llm_measured.audit.checks.impossible import RATES, ROUNDING, operations, peaks
from llm_measured.audit.frame import Audited
from llm_measured.core import metrics

LONG, TIMES = 2_000, 8  # prompt tokens from which a prefill shows, and how far lengths must lie apart
LONG_UNKNOWN, TIMES_UNKNOWN, FLAT = 4_000, 16, 1.1  # the same where the model or the device is not known
SHORTER = 0.5  # a median prompt is at least so long, by the mean
LOWER, TIGHT = 2.5, 1.3  # two groups: p90 / p50, and p99 / p90
SIZES = "block_parameters", "head_parameters", "attention_values"


def median_too_fast(audited: Audited) -> tuple | None:
    """A level whose median TTFT is below what half of its mean prompt takes at the peak."""
    if not audited.levels_have("ttft_p50_s"):
        return None
    level, peak = audited.levels.set_index("level"), peaks(audited)
    least = SHORTER * level["prompt_tokens"].combine(
        pd.Series(peak["shape"], level.index), lambda n, s: _flops(s, n)
    )
    least = least / peak["flops_per_s"]
    hit = (level["ttft_p50_s"] * ROUNDING < least) & peak["counted"]
    if not hit.any():
        return None
    k = (least / level["ttft_p50_s"]).where(hit).idxmax()
    return (
        f"Prefix-cache hits: the median TTFT is {number(level.at[k, 'ttft_p50_s'] * 1e3)} ms, where half of "
        f"a prompt of {number(level.at[k, 'prompt_tokens'], 6)} tokens takes {number(least[k] * 1e3)} ms at "
        f"the device's peak.",
        {"ttft_ms": float(level.at[k, "ttft_p50_s"] * 1e3), "least_ms": float(least[k] * 1e3)},
        {},
    )


def _flops(shape, tokens):
    if not shape or not shape["exact"]:
        return np.nan
    return float(metrics.prefill_flops(*(shape[name] for name in SIZES), tokens))


def more_prompts_than_peak(audited: Audited) -> tuple | None:
    """A level whose prompts alone need more operations than the device does."""
    if not audited.levels_have(*RATES):
        return None
    prompts, _, share, _ = operations(audited)
    hit = (share > ROUNDING) & peaks(audited)["counted"]
    if not hit.any():
        return None
    k = share.where(hit).idxmax()
    return (
        f"Prefix-cache hits: {number(prompts[k])} prompt tokens/s need {share[k]:.0%} of the device's peak, "
        f"so at least {1 - 1 / share[k]:.0%} of them were not computed, or more devices were at work.",
        {"share_of_peak": float(share[k])},
        {},
    )


def two_groups_of_figures(audited: Audited) -> tuple | None:
    """A level of one request at a time whose TTFTs, by their percentiles, lie in two groups far apart."""
    if not audited.levels_have("ttft_p90_s"):
        return None
    level = audited.levels
    alone = level["concurrency"].fillna(level["batch_size"]) == 1
    step, above = level["ttft_p90_s"] / level["ttft_p50_s"], level["ttft_p99_s"] / level["ttft_p90_s"]
    below = (level["ttft_p50_s"] / level["ttft_min_s"]).fillna(1)
    hit = alone & (step >= LOWER) & (above <= TIGHT) & (below <= TIGHT)
    if not hit.any():
        return None
    row = level.loc[step.where(hit).idxmax()]
    low, high = row["ttft_p50_s"] * 1e3, row["ttft_p90_s"] * 1e3
    return (
        f"Prefix-cache hits: one request ran at a time, half of them had their first token within "
        f"{number(low)} ms, and a tenth only after {number(high)} ms, close to the p99.",
        {"low_ms": float(low), "high_ms": float(high)},
        {"ttft_ms": float(high)},
    )


def flat(audited: Audited) -> tuple | None:
    """TTFTs, one request at a time, that grow less with the prompt than the device's peak allows."""
    level, peak = audited.levels.set_index("level"), peaks(audited)
    rows = frame.rows(audited)
    at_once = rows["concurrency"].fillna(rows["batch_size"])
    rows = rows[(at_once == 1) & (rows["ttft_s"] > 0) & (rows["prompt_tokens"] > 0)]
    if not rows["prompt_tokens"].max() >= LONG:
        return None
    same = level[["model", "gpu", "engine", "option", "weights", "tensor_parallel"]]
    for _, part in rows.join(same.drop(columns="tensor_parallel"), on="level").groupby(
        ["scope", "model", "gpu", "engine", "option", "weights", "tensor_parallel"], dropna=False
    ):
        found = _flat(part, peak.loc[part["level"].iloc[0]])
        if found:
            return found
    return None


def _flat(rows, peak):
    """The evidence in rows of one configuration, None where there is none."""
    points = rows.groupby("prompt_tokens")["ttft_s"].median()
    if len(points) < 3 or points.index[-1] < max(LONG, TIMES * points.index[0]):
        return None
    (short, first), (long, last) = (points.index[0], points.iloc[0]), (points.index[-1], points.iloc[-1])
    flops = peak["flops_per_s"] if peak["counted"] else np.nan
    least = (_flops(peak["shape"], long) - _flops(peak["shape"], short)) / flops
    if np.isfinite(least):
        b, t = accounts.slope(rows["prompt_tokens"].to_numpy(float), rows["ttft_s"].to_numpy(float))
        error = abs(b / t) if t and np.isfinite(t) else 0.0
        hit = np.isfinite(b) and (b + 3 * error) * (long - short) < 0.9 * least
    else:
        hit = last < FLAT * first and long >= max(LONG_UNKNOWN, TIMES_UNKNOWN * short)
    if not hit:
        return None
    takes = (
        f", where the longer takes {number(least * 1e3)} ms more at the device's peak" if least > 0 else ""
    )
    return (
        f"Prefix-cache hits: the TTFT hardly grows with the prompt, {number(first * 1e3)} ms for "
        f"{number(short, 6)} tokens and {number(last * 1e3)} ms for {number(long, 6)}{takes}, as if most of "
        f"the prompt had not been computed.",
        {"short_ms": float(first * 1e3), "long_ms": float(last * 1e3)},
        {},
    )
