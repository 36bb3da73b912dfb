"""What several checks count alike: the times of an answer against its tokens, one row per request or
level."""

import numpy as np
import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.frame import Audited


@frame.once
def tables(audited: Audited) -> list[pd.DataFrame]:
    """The requests with times, and the levels: `frame.rows` of each with whole_s, `independent` and
    gap_whole_s; none that is empty.

    `whole_s` is the time of an answer: e2e, else what a closed loop implies, else TTFT + gaps x mean gap,
    else
    what a rate implies; `independent` where it was not computed from the token count.
    """
    rows = frame.rows(audited)
    timed = rows[["e2e_s", "ttft_s", "tpot_s", "itl_s", "request_tokens_per_s"]].notna().any(axis=1)
    own = rows[(rows["scope"] == "request") & rows["output_tokens"].notna() & timed]
    levels = rows[rows["scope"] == "level"]
    if len(own):
        levels = levels[levels[["ttft_s", "tpot_s", "itl_s"]].notna().any(axis=1)]
        levels = levels.assign(
            e2e_s=levels["e2e_s"].fillna(levels["level"].map(own.groupby("level")["e2e_s"].mean()))
        )
    levels = _with_level(levels, audited) if len(levels) else levels
    counted = [part[part["output_tokens"] > 0] for part in (own, levels)]
    return [_whole(part) for part in counted if len(part)]


def _with_level(rows, audited):
    """Level rows with what closed loops and batches say of an answer's time."""
    columns = [
        "requests_per_s",
        "output_tokens_per_s",
        "total_tokens_per_s",
        "duration_s",
        "requests",
        "total_output_tokens",
        "total_prompt_tokens",
    ]
    level = audited.levels.set_index("level")
    paces, wholes = spread(level, "tpot"), spread(level, "e2e")
    # Where paces vary more than whole times, lengths vary with them: the long answers had the quick paces.
    blur = (paces * np.fmax(wholes, paces)).rename("blur")
    return rows.join(level[columns], on="level").join(blur, on="level")


# Relative deviations of TPOT times those of e2e, within which a mean of paces times a mean length is no mean
# time: the covariance of two figures is at most the product of their deviations, and lengths may vary more
# than times.
BLURRED = 2.0


def spread(level: pd.DataFrame, time: str) -> pd.Series:
    """Standard deviation of `time` over its mean in each level: as the file states it, or from a high
    percentile beside the median as of a normal distribution; NaN where the file has neither."""
    middle, found = level[f"{time}_p50_s"], level[f"{time}_sd_s"] / level[f"{time}_mean_s"]
    for q, deviations in (("_p99", 2.33), ("_p95", 1.64), ("_p90", 1.28)):
        found = found.fillna((level[f"{time}{q}_s"] / middle - 1).clip(lower=0) / deviations)
    return found


def _whole(rows):
    tokens = rows["output_tokens"]
    gap = rows["ttft_s"] + rows["itl_s"] * (tokens - 1)
    at_once = rows["batch_size"].where(rows["batch_size"] > 0).fillna(rows["concurrency"])
    per_second = rows["requests_per_s"] if "requests_per_s" in rows else np.nan
    rate = rows["output_tokens_per_s"] if "output_tokens_per_s" in rows else np.nan
    loop = (rows["concurrency"] / per_second).where(rows["concurrency"] > 0)
    implied = (tokens / rows["request_tokens_per_s"]).fillna(at_once * tokens / rate)
    whole = rows["e2e_s"].fillna(loop).fillna(gap).fillna(implied)
    return rows.assign(
        whole_s=whole, independent=rows["e2e_s"].notna() | loop.notna(), gap_whole_s=gap, implied_s=implied
    )


def slope(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Least-squares slope of y on x and its t value; (nan, 0) where x hardly varies or there are fewer than
    five points."""
    good = np.isfinite(x) & np.isfinite(y)
    x, y = x[good], y[good]
    if len(x) < 5 or np.std(x) < 1e-9:
        return np.nan, 0.0
    x = x - x.mean()
    b = (x * y).sum() / (x * x).sum()
    rest = y - y.mean() - b * x
    error = np.sqrt((rest**2).sum() / (len(x) - 2) / (x * x).sum())
    return b, b / error if error > 0 else np.sign(b) * np.inf
