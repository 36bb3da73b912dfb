"""What no measurement can be: the masks and bounds that validity checks (of our own runs) and audit (of
anybody's files) share. Each has its own words, and its own rounding to allow for."""

import functools

import numpy as np
import pandas as pd

from llm_measured.core import metrics


def first(*values: np.ndarray) -> np.ndarray:
    """Element by element the first of `values` that is known; NaN where none is."""
    return functools.reduce(lambda one, other: np.where(np.isnan(one), other, one), values)


def where(condition: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`values` where `condition` holds, NaN elsewhere."""
    return np.where(condition, values, np.nan)


def backwards(ttft_s: pd.Series, e2e_s: pd.Series, rounding_s: float = 0.0) -> pd.Series:
    """Where times run backwards: negative ones, or a first token after the last. An unknown time does not."""
    return (ttft_s < 0) | (e2e_s < 0) | (ttft_s > e2e_s + rounding_s)


def out_of_order(percentiles: np.ndarray, rounding: float = 0.0, relative: float = 0.0) -> np.ndarray:
    """Where one of `percentiles` (rows x percentiles, the lowest first) is below a lower one of its row, by
    more than `rounding` and the share `relative`. An unknown one is passed over."""
    highest = np.fmax.accumulate(np.asarray(percentiles, dtype=float), axis=1)
    return percentiles < highest - np.abs(highest) * relative - rounding


def whole_s(ttft_s: pd.Series, tpot_s: pd.Series, output_tokens: pd.Series) -> pd.Series:
    """Seconds of an answer by its parts, TTFT + TPOT x (output tokens - 1): MLPerf's and vLLM's TPOT."""
    return ttft_s + tpot_s * (output_tokens - 1)


def digits(value: float) -> int:
    """How many significant digits a printed number has, leading and trailing zeros left out; 0 where it is
    unknown. Two measurements seldom agree in four or more. A time made of a printed rate has those of the
    rate."""
    if value != value:
        return 0
    turned = [value, 1 / value] if value else [value]
    return min(len(f"{each:.12g}".split("e")[0].replace(".", "").strip("-0")) for each in turned)


def least_prefill_s(
    block_parameters: pd.Series,
    head_parameters: pd.Series,
    attention_values: pd.Series,
    prompt_tokens: pd.Series,
    flops_per_s: pd.Series,
) -> pd.Series:
    """Seconds that computing a prompt takes at least: `metrics.prefill_flops` at the device's peak."""
    sizes = block_parameters, head_parameters, attention_values
    return metrics.prefill_flops(*sizes, prompt_tokens) / flops_per_s
