"""Levels of load: what came out of each while its load was held, and whether it saturated the server.

A level begins with a ramp, when the server is emptier than it will be (or, in a closed loop, gets all first
requests at once), and ends with a drain. Neither counts: `steady` says which requests do.
"""

import functools
import math

import numpy as np
import pandas as pd
from scipy import stats

from bench import inputs, memo, metrics
from bench.analysis import statistics
from bench.observations import schema

# Less than this more output tokens/s than at the best level before: more load yields hardly more.
SATURATED = 0.05
# Levels in a row that must have yielded hardly more.
CLIMBS = 3
# More than this share of an open loop's tokens still to be written when its last request comes: more comes
# than is answered.
BACKLOG = 0.25
# So many times as long must the second half of an open loop's requests wait as the first, beyond chance.
GROWN, CHANCE = 2.0, 0.01
STEADY, OVERLOADED, SHORT = "steady", "overloaded", "too short"
TIMES = "ttft_s", "tpot_s", "itl_max_s", "e2e_s", "late_s", "connect_s"
LEVEL = "concurrency request_rate".split()
# Tails, in percent, that are shown where a level's requests bound them. MLPerf's rule, not the plain bound
# of order statistics (29 requests for p90): requests of one run resemble their neighbours, and its 64 for p90
# and 662 for p99 leave room for that.
TAILS = 90, 99
# Output tokens/s for every user: the published example of a latency goal.
PER_USER = 100
# At the end of each open loop so much is allowed for requests that do not count, s, and it lasts so long at
# least, s.
EDGE_S, OPEN_S = 5.0, 20.0


@functools.cache
def _needed(percentile):
    """The fewest requests that bound a percentile, in percent: the same few are asked of every level, and
    each search takes a third of a second."""
    return statistics.requests_needed(percentile / 100, **statistics.MLPERF)


def bounds(requests, percentile):
    """Whether so many requests bound a percentile, in percent: `statistics.MLPERF`."""
    return requests >= _needed(percentile)


def requests_for(kind, load, percentile):
    """Requests of a level (kind `closed` or `open`) of which those that count bound `percentile`, in percent.

    In a closed loop as many as its places more at each end; in an open one what comes in EDGE_S.
    """
    counted = _needed(percentile)
    if kind == "closed":
        return counted + 2 * _edge(load)
    return max(counted + math.ceil(2 * EDGE_S * load), math.ceil(OPEN_S * load))


def _edge(places):
    """Requests of a closed loop's ramp, and of its drain; with one place there is neither."""
    return int(places) if places > 1 else 0


def _opened(rows):
    return rows["request_rate"].notna().any()


def window(rows):
    """(first, last) moment in s between which the load of one level of one run was held.

    From the end of the ramp until the last request was taken up: a closed loop's ramp ends when the first
    place is taken again, an open loop's when its first requests have been answered (after a median E2E, or a
    quarter of the level). Both are the same where there was nothing but ramp and drain.
    """
    sent = np.sort(rows["sent_s"])
    if not _opened(rows):
        edge = _edge(rows["concurrency"].iloc[0])
        return sent[min(edge, len(sent) - 1)], sent[-1]
    return sent[0] + _settling(rows), sent[-1]


def _settling(rows):
    """How long an open loop takes to fill the server, s."""
    answer = rows.loc[rows["error"] == "", "e2e_s"].median()
    return min(0.0 if np.isnan(answer) else answer, np.ptp(rows["sent_s"]) / 4)


def steady(rows):
    """Which requests of one level of one run were sent neither in its ramp nor in its drain, failed or not.

    Chosen by when they were sent: a choice by when they ended would take the short ones.
    """
    if _opened(rows):
        wait, sent = _settling(rows), rows["sent_s"]
        return (sent >= sent.min() + wait) & (sent <= sent.max() - wait)
    place, edge = rows["sent_s"].rank(method="first"), _edge(rows["concurrency"].iloc[0])
    return (place > edge) & (place <= len(rows) - edge)


def steady_tokens_per_s(rows):
    """Output tokens/s of one level of one run while its load was held: the tokens of each request spread
    evenly from its first to its last; NaN without answers.

    Where the load was never held, because all requests began at once, everything counts.
    """
    good = rows[rows["error"] == ""]
    if good.empty:
        return np.nan
    first, last = window(rows)
    began, ended = _written(good)
    if not last > first:
        first, last = rows["sent_s"].min(), ended.max()
    within = ended.clip(first, last) - began.clip(first, last)
    share = within / np.maximum(ended - began, 1e-9)
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
    last = rows["sent_s"].max()
    began, ended = _written(good)
    written = ((last - began) / np.maximum(ended - began, 1e-9)).clip(0, 1)
    return 1 - float((good["output_tokens"] * written).sum() / good["output_tokens"].sum())


def overloaded(rows):
    """Whether more came than was answered in one level of one run: an open loop with a large backlog at its
    end, or, where it ended too soon for that, with a wait that grew from its first half to its second
    (one-sided test of Mann and Whitney, 1947)."""
    if not _opened(rows):
        return False
    if backlog(rows) > BACKLOG:
        return True
    waits = rows[steady(rows) & (rows["error"] == "")].sort_values("sent_s")["ttft_s"].dropna()
    early, late = waits[: len(waits) // 2], waits[len(waits) // 2 :]
    if early.empty or not late.median() > GROWN * early.median():
        return False
    return bool(stats.mannwhitneyu(late, early, alternative="greater").pvalue < CHANCE)


def saturated(levels):
    """Whether the last of `levels` (rows of one kind of loop, from little load to much) saturated the server.

    An open loop is so where it is overloaded. In a closed loop: three levels in a
    row yielded hardly more output tokens/s than the best before them; fewer may be a step between two kernels
    of the engine, after which it climbs on.
    """
    if _opened(levels[-1]):
        return overloaded(levels[-1])
    rates = [steady_tokens_per_s(rows) for rows in levels]
    hardly_more = (rates[k] < (1 + SATURATED) * max(rates[:k]) for k in range(-CLIMBS, 0))
    return len(rates) > CLIMBS and all(hardly_more)


def meets(rows, slo):
    """Which requests met every objective of `slo` (ttft_s, tpot_s: upper bounds); a failed one met none."""
    good = rows["error"] == ""
    for name, bound in slo.items():
        good &= rows[name] <= bound
    return good


def levels(requests, slo=None, pooled=False):
    """One row per level of load of each run in `requests` (`store.load`), or of all runs of a configuration
    where they are `pooled`.

    Columns run_id (unless pooled), the configuration, concurrency or request_rate; state (OVERLOADED where
    one run was, SHORT where no answer counts, else STEADY), backlog (share of the tokens, open loops; the
    largest of the runs), runs, requests, failed, counted (requests that `steady` leaves); wall_s,
    requests_per_s, output_tokens_per_s and goodput_per_s (requests that meet every objective of `slo`, by
    default study.yaml's), means over runs, and output_tokens_per_s_low and _high. Over the requests that
    count, of all runs together: met, met_low, met_high (share that met the objectives), quick, quick_low,
    quick_high (that got PER_USER tokens/s); mean prompt_tokens and new_tokens; of each of TIMES the median,
    the percentiles TAILS where the requests bound them, and the maximum; acceptance_rate. started is the last
    run's.
    """
    slo = inputs.study()["slo"] if slo is None else slo
    return _levels(requests[requests["experiment"] == "serving"], tuple(slo.items()), pooled)


@memo.by_content
def _levels(rows, slo, pooled):
    slo = dict(slo)
    keys = [*([] if pooled else ["run_id"]), *schema.CONFIGURATION, *LEVEL]
    found = [
        dict(zip(keys, key)) | _level(level, slo)
        for key, level in rows.groupby(keys, sort=False, dropna=False)
    ]
    return pd.DataFrame(found, columns=[*keys, *_level(rows.iloc[:0], slo)])


def _level(rows, slo):
    """The columns of `levels` for one level."""
    runs = [run for _, run in sorted(rows.groupby("run_id"), key=lambda run: run[1]["started"].max())]
    counted = pd.concat([run[steady(run)] for run in runs]) if runs else rows
    each = pd.DataFrame([_of_run(run, slo) for run in runs], columns=list(_RATES))
    _, low, high = statistics.mean_interval(each["output_tokens_per_s"])
    answered = (counted["error"] == "").any()
    state = OVERLOADED if any(map(overloaded, runs)) else STEADY if answered else SHORT
    level = {
        "state": state,
        "backlog": max((backlog(run) for run in runs if _opened(run)), default=np.nan),
        "runs": len(runs),
        "requests": len(rows),
        "failed": int((rows["error"] != "").sum()),
        "counted": len(counted),
        **each.mean(),
        "output_tokens_per_s_low": low,
        "output_tokens_per_s_high": high,
    }
    good = counted[counted["error"] == ""]
    level |= _shares("met", meets(counted, slo)) | _shares("quick", meets(counted, {"tpot_s": 1 / PER_USER}))
    level |= {"prompt_tokens": good["prompt_tokens"].mean(), "new_tokens": good["output_tokens"].mean()}
    level |= {"started": rows["started"].max() if len(rows) else ""}
    for column in TIMES:
        level |= _times(column.removesuffix("_s"), good[column].dropna())
    acceptance = metrics.acceptance_rate(good["accepted_tokens"].sum(), good["drafted_tokens"].sum())
    return level | {"acceptance_rate": float(acceptance)}


_RATES = "wall_s", "requests_per_s", "output_tokens_per_s", "goodput_per_s"


def _of_run(rows, slo):
    """The rates of one level of one run: a dict of _RATES.

    As many requests are answered per second as are taken up, while the load is held.
    """
    good, (first, last), held = rows[rows["error"] == ""], window(rows), rows[steady(rows)]
    wall = (good["sent_s"] + good["e2e_s"]).max() - rows["sent_s"].min() if len(good) else np.nan
    if last > first:
        pace = (rows["sent_s"] > first).sum() / (last - first)
    else:
        held, pace = rows, len(rows) / wall
    answered, met = (held["error"] == "").mean(), meets(held, slo).mean()
    return dict(zip(_RATES, (wall, pace * answered, steady_tokens_per_s(rows), pace * met)))


def _shares(name, good):
    """The share of requests that are `good`, and its Clopper-Pearson interval."""
    found = statistics.share_interval(int(good.sum()), len(good))
    return dict(zip((name, f"{name}_low", f"{name}_high"), found))


def _times(name, values):
    """Median, bounded percentiles and maximum of one time."""
    found = {f"{name}_p50_s": values.median()}
    for tail in TAILS:
        enough = bounds(len(values), tail)
        found[f"{name}_p{tail}_s"] = float(np.quantile(values, tail / 100)) if enough else np.nan
    return found | {f"{name}_max_s": values.max()}
