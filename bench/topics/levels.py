"""Levels of load: what came out of each while its load was held, and whether it saturated the server.

A level begins with a ramp, when the server is emptier than it will be (or, in a closed loop, gets all first
requests at once), and ends with a drain. Neither counts: `steady` says which requests do.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from bench import inputs
from bench.observations import schema
from bench.observations.derived import meets
from bench.observations.schema import LEVEL
from bench.topics import estimates, statistics
from llm_measured.core import metrics
from llm_measured.core.definitions import Fields

# Less than this more output tokens/s than at the best level before: more load yields hardly more.
SATURATED = 0.05
# Levels in a row that must have yielded hardly more.
CLIMBS = 3
# Seconds by which answers of an open loop take longer for each second that passes, beyond chance, from which
# more comes than is answered: a server that is offered 1.2 times what it can do falls behind by 0.2.
BEHIND, CHANCE = 0.03, 0.001
STEADY, OVERLOADED, SHORT, ENDED = "steady", "overloaded", "too short", "ended early"
TIMES = "ttft_s", "tpot_s", "itl_max_s", "e2e_s", "late_s", "connect_s"
FEWEST_RUNS = 3  # with fewer it is not known how much the shares of runs differ
# What a level is computed from: its requests are chosen a dozen times, and a selection copies every column.
READ = [
    *("run_id", "started", *schema.CONFIGURATION, *LEVEL, "sent_s", "error", "level_ended", *TIMES),
    *("prompt_tokens", "output_tokens", "accepted_tokens", "drafted_tokens"),
]
# Tails, in percent, that are shown where a level's requests bound them. MLPerf's rule, not the plain bound
# of order statistics (29 requests for p90): requests of one run resemble their neighbours, and its 64 for p90
# and 662 for p99 leave room for that.
TAILS = 90, 99
# Output tokens/s for every user: the published example of a latency goal.
PER_USER = 100
# At the end of each open loop so much is allowed for requests that do not count, s, and it lasts so long at
# least, s.
EDGE_S, OPEN_S = 5.0, 20.0
# Answer times that an open loop lasts: one to fill the server, one for the drain, and two to see it between.
ANSWERS = 4
# Of fewer answer times nobody can tell. Arrivals come as they like, so a loop may last less than it should.
FEWEST_ANSWERS = 3
LONG_S = 900.0  # an open loop that takes longer is announced before it begins
# Between ramp and drain: requests without which an overload of a fifth does not show (a sixth of them is 3.3
# times √(2 SEEN)), requests with which it does however long answers take, and answer times that are enough
# elsewhere.
SEEN, MANY, BETWEEN = 780, 2000, 8


def _needed(percentile: float) -> int:
    """The fewest requests that bound a percentile, in percent: `statistics.MLPERF`."""
    return statistics.requests_needed(percentile / 100, **statistics.MLPERF)


def bounds(requests: int, percentile: float) -> bool:
    """Whether so many requests bound a percentile, in percent."""
    return requests >= _needed(percentile)


def requests_for(kind: str, load: float, percentile: int, answer_s: float = 0.0) -> int:
    """Requests of a level (kind `closed` or `open`) of which those that count bound `percentile`, in percent.

    In a closed loop as many as its places more at each end; in an open one what comes in EDGE_S, or in the
    time of an answer, `answer_s` (0: not known), and as many as `lasts_s` takes.
    """
    counted = _needed(percentile)
    if kind == "closed":
        return counted + 2 * _edge(load)
    edges = 2 * max(EDGE_S, answer_s)
    return max(counted + math.ceil(edges * load), math.ceil(lasts_s(load, answer_s) * load))


def lasts_s(rate: float, answer_s: float) -> float:
    """How long an open loop of `rate` requests/s lasts at least, s, so that `overloaded` can tell a server at
    1.2 times its capacity from one that answers each request in about `answer_s`.

    ANSWERS times that; longer where answers take longer than EDGE_S: between ramp and drain BETWEEN of them,
    but no more than MANY requests, and at least SEEN. After n requests the queue is longer by n / 6, with a
    standard deviation of √(2 n): both arrivals and answers come as they like, and a fifth more has to show.
    """
    between_s = max(SEEN / rate, min(BETWEEN * answer_s, MANY / rate)) if answer_s > EDGE_S else 0.0
    return max(OPEN_S, ANSWERS * answer_s, 2 * answer_s + between_s)


def _edge(places: float) -> int:
    """Requests of a closed loop's ramp, and of its drain; with one place there is neither."""
    return int(places) if places > 1 else 0


def _opened(rows: pd.DataFrame) -> bool:
    return rows["request_rate"].notna().any()


def window(rows: pd.DataFrame) -> tuple[float, float]:
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


def _settling(rows: pd.DataFrame) -> float:
    """How long an open loop takes to fill the server, s."""
    return min(median_answer_s(rows), np.ptp(rows["sent_s"]) / 4)


def median_answer_s(rows: pd.DataFrame) -> float:
    """Median E2E of the answers of one level of one run, s; 0 without answers."""
    answer = rows.loc[rows["error"] == "", "e2e_s"].median()
    return 0.0 if np.isnan(answer) else float(answer)


def steady(rows: pd.DataFrame) -> pd.Series:
    """Which requests of one level of one run were sent neither in its ramp nor in its drain, failed or not.

    Chosen by when they were sent: a choice by when they ended would take the short ones.
    """
    if _opened(rows):
        wait, sent = _settling(rows), rows["sent_s"]
        return (sent >= sent.min() + wait) & (sent <= sent.max() - wait)
    place, edge = rows["sent_s"].rank(method="first"), _edge(rows["concurrency"].iloc[0])
    return (place > edge) & (place <= len(rows) - edge)


def steady_tokens_per_s(rows: pd.DataFrame) -> float:
    """Output tokens/s of one level of one run while its load was held: the tokens of each request spread
    evenly from its first to its last, at its end where it was not streamed; NaN without answers.

    Where the load was never held, because all requests began at once, everything counts.
    """
    good = rows[rows["error"] == ""]
    if good.empty:
        return np.nan
    first, last = window(rows)
    began, ended = _written(good)
    if not last > first:
        first, last = rows["sent_s"].min(), ended.max()
    share = _share_written(began, ended, last) - _share_written(began, ended, first)
    return float((good["output_tokens"] * share).sum() / (last - first))


def _written(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Moments of the first and the last token of each request, s; both its end where it was not streamed."""
    sent, ttft, e2e, late, connect = (
        rows[name].to_numpy(dtype=float) for name in ("sent_s", "ttft_s", "e2e_s", "late_s", "connect_s")
    )
    if _opened(rows):  # a scheduled request's times count from before it was sent
        sent = sent - np.where(rows["request_rate"].notna(), np.nan_to_num(late) + np.nan_to_num(connect), 0)
    return sent + np.where(np.isnan(ttft), e2e, ttft), sent + e2e


def _share_written(began: np.ndarray, ended: np.ndarray, moment: float) -> np.ndarray:
    """Share of each answer's tokens, spread evenly from `began` to `ended`, that were there at `moment`."""
    lasted = ended > began
    spread = np.clip((moment - began) / np.where(lasted, ended - began, 1), 0, 1)
    return np.where(lasted, spread, ended <= moment)


def backlog(rows: pd.DataFrame) -> float:
    """Share of a level's output tokens that were not yet written when its last request was taken up; NaN
    without answers."""
    good = rows[rows["error"] == ""]
    if good.empty:
        return np.nan
    last = rows["sent_s"].max()
    began, ended = _written(good)
    written = _share_written(began, ended, last)
    return 1 - float((good["output_tokens"] * written).sum() / good["output_tokens"].sum())


def overloaded(rows: pd.DataFrame) -> bool:
    """Whether more came than was answered in one level of one run: an open loop whose later answers took
    longer, the longer it lasted.

    Where more comes than is answered the queue grows, and each answer takes longer than those before, by
    BEHIND s per second at least; where as much is answered, long answers take no longer at the end than at
    the beginning. The two halves of the requests between ramp and drain are compared: medians of E2E, and the
    one-sided test of Mann and Whitney (1947) at CHANCE.
    """
    if not _opened(rows):
        return False
    held = rows[steady(rows) & (rows["error"] == "")].dropna(subset="e2e_s").sort_values("sent_s")
    early, late = held[: len(held) // 2], held[len(held) // 2 :]
    if early.empty:
        return False
    longer = late["e2e_s"].median() - early["e2e_s"].median()
    if not longer > BEHIND * (late["sent_s"].median() - early["sent_s"].median()):
        return False
    return bool(stats.mannwhitneyu(late["e2e_s"], early["e2e_s"], alternative="greater").pvalue < CHANCE)


def short(rows: pd.DataFrame) -> bool:
    """Whether one level of one run ended too soon to tell: an open loop of less than FEWEST_ANSWERS median
    answer times, or nothing but ramp and drain."""
    if not (rows.loc[steady(rows), "error"] == "").any():
        return True
    return bool(_opened(rows) and np.ptp(rows["sent_s"]) < FEWEST_ANSWERS * median_answer_s(rows))


def saturated(levels: list[pd.DataFrame]) -> bool:
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


def loops(table: pd.DataFrame) -> pd.DataFrame:
    """`table` of levels with loop (closed, open) and load, the number of the one or the other."""
    closed = table["concurrency"].notna()
    load = table["concurrency"].where(closed, table["request_rate"])
    return table.assign(loop=np.where(closed, "closed", "open"), load=load)


def levels(requests: pd.DataFrame, slo: dict[str, float] | None = None, pooled: bool = False) -> pd.DataFrame:
    """One row per level of load of each run in `requests` (`store.load`), or of all runs of a configuration
    where they are `pooled`.

    Columns run_id (unless pooled), the configuration, concurrency or request_rate; state (ENDED where one run
    was ended early, OVERLOADED where one run was,
    SHORT where one run was too short to tell, else STEADY), backlog (share of the tokens, open
    loops; the largest of the runs), runs, requests, failed, counted (requests that `steady` leaves); wall_s,
    requests_per_s, output_tokens_per_s and goodput_per_s (requests that meet every objective of `slo`, by
    default study.yaml's), means over runs. Over the requests that count, of all runs together: met (share
    that met the objectives) and quick (that got PER_USER tokens/s), with met_low,
    met_high, quick_low, quick_high (`share_interval`); mean prompt_tokens and
    new_tokens; of each of TIMES the median, the percentiles TAILS where the requests bound them, and the
    maximum; acceptance_rate. started is the last run's.
    """
    slo = inputs.study()["slo"] if slo is None else slo
    columns = list(dict.fromkeys([*READ, *slo]))
    rows = requests.loc[requests["experiment"] == "serving", columns]
    keys = [*([] if pooled else ["run_id"]), *schema.CONFIGURATION, *LEVEL]
    found = []
    for key, level in rows.groupby(keys, sort=False, dropna=False):
        found.append(dict(zip(keys, key)) | _level(level, slo))
    return pd.DataFrame(found, columns=[*keys, *_level(rows.iloc[:0], slo)])


def share_interval(runs: Sequence[tuple[int, int]]) -> tuple[float, float, float]:
    """Return (share, low, high) of the (hits, requests) of each of `runs`.

    The share is that of all requests; its interval is Student's t over the shares of FEWEST_RUNS runs or
    more, cut at 0 and 1. It is NaN for fewer runs, and where every request of all runs hit or none did: runs
    that do not differ tell nothing of how much they might.
    """
    runs = [run for run in runs if run[1] > 0]
    hits, total = sum(hit for hit, _ in runs), sum(count for _, count in runs)
    if not total:
        return math.nan, math.nan, math.nan
    if len(runs) < FEWEST_RUNS or hits in (0, total):
        return hits / total, math.nan, math.nan
    _, low, high = estimates.mean_interval([hit / count for hit, count in runs])
    return hits / total, max(low, 0.0), min(high, 1.0)


def _level(rows: pd.DataFrame, slo: dict[str, float]) -> Fields:
    """Return the columns of `levels` for one level."""
    runs = [run for _, run in sorted(rows.groupby("run_id"), key=lambda run: run[1]["started"].max())]
    held = [run[steady(run)] for run in runs]
    counted = pd.concat(held) if runs else rows
    each = pd.DataFrame([_of_run(run, slo) for run in runs], columns=list(_RATES))
    state = OVERLOADED if any(map(overloaded, runs)) else SHORT if any(map(short, runs)) else STEADY
    state = ENDED if (rows["level_ended"] != "").any() else state
    level = {
        "state": state,
        "backlog": max((backlog(run) for run in runs if _opened(run)), default=np.nan),
        "runs": len(runs),
        "requests": len(rows),
        "failed": int((rows["error"] != "").sum()),
        "counted": len(counted),
        **each.mean(),
    }
    good = counted[counted["error"] == ""]
    for name, goal in (("met", slo), ("quick", {"tpot_s": 1 / PER_USER})):
        interval = share_interval([(int(meets(run, goal).sum()), len(run)) for run in held])
        level |= dict(zip((name, f"{name}_low", f"{name}_high"), interval))
    level |= {"prompt_tokens": good["prompt_tokens"].mean(), "new_tokens": good["output_tokens"].mean()}
    level |= {"started": rows["started"].max() if len(rows) else ""}
    for column in TIMES:
        level |= _times(column.removesuffix("_s"), good[column].dropna())
    acceptance = metrics.acceptance_rate(good["accepted_tokens"].sum(), good["drafted_tokens"].sum())
    return level | {"acceptance_rate": float(acceptance)}


_RATES = "wall_s", "requests_per_s", "output_tokens_per_s", "goodput_per_s"


def _of_run(rows: pd.DataFrame, slo: dict[str, float]) -> dict[str, float]:
    """The rates of one level of one run: _RATES.

    As many requests are answered per second as are taken up, while the load is held. A level that ended early
    has none.
    """
    if (rows["level_ended"] != "").any():
        return dict.fromkeys(_RATES, np.nan)
    good, (first, last), held = rows[rows["error"] == ""], window(rows), rows[steady(rows)]
    wall = (good["sent_s"] + good["e2e_s"]).max() - rows["sent_s"].min() if len(good) else np.nan
    if last > first:
        pace = (rows["sent_s"] > first).sum() / (last - first)
    else:
        held, pace = rows, len(rows) / wall
    answered, met = (held["error"] == "").mean(), meets(held, slo).mean()
    return dict(zip(_RATES, (wall, pace * answered, steady_tokens_per_s(rows), pace * met)))


def _times(name: str, values: pd.Series) -> dict[str, float]:
    """Median, bounded percentiles and maximum of one time."""
    found = {f"{name}_p50_s": values.median()}
    for tail in TAILS:
        enough = bounds(len(values), tail)
        found[f"{name}_p{tail}_s"] = float(np.quantile(values, tail / 100)) if enough else np.nan
    return found | {f"{name}_max_s": values.max()}
