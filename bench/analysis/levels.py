"""Levels of load: what came out of each, and whether it saturated the server."""

import numpy as np
import pandas as pd

from bench import inputs, memo, metrics
from bench.observations import schema

# Less than this more output tokens/s than at the best level before: more load yields hardly more.
SATURATED = 0.05
# Levels in a row that must have yielded hardly more.
CLIMBS = 3
# More than this share of an open loop's tokens still to be written when its last request comes: more comes
# than is answered.
BACKLOG = 0.25
TIMES = "ttft_s", "tpot_s", "itl_p99_s", "e2e_s", "late_s", "connect_s"
LEVEL = "concurrency request_rate".split()


def window(rows):
    """(first, last) moment in s between which a level's load was held: its first request, and the last
    one that was taken up."""
    return rows["sent_s"].min(), rows["sent_s"].max()


def steady_tokens_per_s(rows):
    """Output tokens/s of one level while its load was held: tokens of each request spread evenly from its
    first to its last; NaN without answers.

    The end, when no more requests come and the server empties, does not count; where all requests began
    at once, everything does.
    """
    good = rows[rows["error"] == ""]
    if good.empty:
        return np.nan
    first, last = window(rows)
    began, ended = _written(good)
    if last - first < 0.5 * (ended.max() - first):
        last = ended.max()
    share = (np.minimum(ended, last) - began) / np.maximum(ended - began, 1e-9)
    return float((good["output_tokens"] * share.clip(0, 1)).sum() / (last - first))


def _written(rows):
    """Moments of the first and the last token of each request, s."""
    sent = rows["sent_s"] - _wait(rows)
    return sent + rows["ttft_s"], sent + rows["e2e_s"]


def _wait(rows):
    """By how much a scheduled request's times count from before it was sent, s."""
    opened = rows["request_rate"].notna()
    return (rows["late_s"].fillna(0) + rows["connect_s"].fillna(0)).where(opened, 0)


def backlog(rows):
    """Share of a level's output tokens that were not yet written when its last request was taken up; NaN
    without answers."""
    good = rows[rows["error"] == ""]
    if good.empty:
        return np.nan
    first, last = window(rows)
    began, ended = _written(good)
    written = ((last - began) / np.maximum(ended - began, 1e-9)).clip(0, 1)
    return 1 - float((good["output_tokens"] * written).sum() / good["output_tokens"].sum())


def saturated(levels):
    """Whether the last of `levels` (rows of one kind of loop, from little load to much) saturated the server.

    In an open loop: more came than was answered, so a backlog has grown. In a closed loop: three levels in a
    row yielded hardly more output tokens/s than the best before them; fewer may be a step between two kernels
    of the engine, after which it climbs on.
    """
    if levels[-1]["request_rate"].notna().any():
        return backlog(levels[-1]) > BACKLOG
    rates = [steady_tokens_per_s(rows) for rows in levels]
    hardly_more = (rates[k] < (1 + SATURATED) * max(rates[:k]) for k in range(-CLIMBS, 0))
    return len(rates) > CLIMBS and all(hardly_more)


def meets(rows, slo):
    """Which requests met every objective of `slo` (ttft_s, tpot_s: upper bounds); a failed one met none."""
    good = rows["error"] == ""
    for name, bound in slo.items():
        good &= rows[name] <= bound
    return good


def levels(requests, slo=None):
    """One row per run and level of load in `requests` (`store.load`).

    Columns run_id, the configuration, concurrency or request_rate; requests, failed, wall_s (from the first
    request to the last answer), requests_per_s, output_tokens_per_s (`steady_tokens_per_s`), goodput_per_s
    (requests that meet every objective of `slo`, by default study.yaml's), mean prompt_tokens and new_tokens,
    started, the 50th, 90th and 99th percentile of TIMES, acceptance_rate.
    """
    slo = inputs.study()["slo"] if slo is None else slo
    return _levels(requests[requests["experiment"] == "serving"], tuple(slo.items()))


@memo.by_content
def _levels(rows, slo):
    slo = dict(slo)
    keys = ["run_id", *schema.CONFIGURATION, *LEVEL]
    found = [
        dict(zip(keys, key)) | _level(level, slo)
        for key, level in rows.groupby(keys, sort=False, dropna=False)
    ]
    return pd.DataFrame(found, columns=[*keys, *_level(rows.iloc[:0], slo)])


def _level(rows, slo):
    good = rows[rows["error"] == ""]
    wall = (good["sent_s"] + good["e2e_s"]).max() - rows["sent_s"].min() if len(good) else np.nan
    level = {
        "requests": len(rows),
        "failed": int((rows["error"] != "").sum()),
        "wall_s": wall,
        "requests_per_s": len(good) / wall,
        "output_tokens_per_s": steady_tokens_per_s(rows),
        "goodput_per_s": meets(rows, slo).sum() / wall,
        "prompt_tokens": good["prompt_tokens"].mean(),
        "new_tokens": good["output_tokens"].mean(),
        "started": rows["started"].max() if len(rows) else "",
    }
    for column in TIMES:
        values = good[column].dropna()
        level |= {f"{column[:-2]}_p{q}_s": metrics.percentile(values, q) for q in (50, 90, 99)}
    acceptance = metrics.acceptance_rate(good["accepted_tokens"].sum(), good["drafted_tokens"].sum())
    return level | {"acceptance_rate": float(acceptance)}
