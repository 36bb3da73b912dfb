"""Loads of sessions: hit rates, what a cache saved, and TTFT by turn.

A level is one load of one run: its sessions, how they arrive, and the cache that was declared. Rates come
three at a time (`bench.prefix_cache.rates`), and TTFT by turn: a mean over first turns, which nothing can
answer from a cache, and later ones says nothing of either.
"""

import json

import numpy as np
import pandas as pd

from bench import inputs, prefix_cache
from bench.observations import schema, store
from bench.observations.derived import meets
from bench.topics import estimates, machines

LEVEL = ["experiment", "workload", "arrivals", "history", "session_rate", "cache_capacity_tokens"]
CURVE = [*schema.CONFIGURATION, "backend_version"]
OFF = 0.0
EXPERIMENT = "conversations"
BOUNDS = ["expected_cached_tokens_low", "expected_cached_tokens_high"]
MEANS = "sessions cut requests failed".split() + [*prefix_cache.RATES, "expected_low", "expected_high"]
MEANS += "prompt_tokens request_rate ttft_p50_s ttft_p90_s sessions_met session_goodput_per_s".split()
LATER = ["times", "times_low", "times_high", "saved_s", "computed"]


def of_sessions(requests: pd.DataFrame) -> pd.DataFrame:
    """The rows of `requests` (`store.load`) that belong to sessions, with uncached_tokens (NaN where the
    server reports nothing)."""
    rows = requests[requests["session"].notna()]
    return rows.assign(uncached_tokens=rows["prompt_tokens"] - rows["cached_tokens"])


def levels(requests: pd.DataFrame, slo: dict[str, float] | None = None) -> pd.DataFrame:
    """One row per run and level.

    Columns run_id, CURVE, LEVEL, started; sessions, cut (sessions with a turn that failed or was never sent),
    requests, failed; the three hit rates over the requests that were answered, NaN where the server with the
    cache died or has no counters that confirm them; expected_low and
    expected_high, the bounds by tokens; prompt_tokens (mean); request_rate (achieved, 1/s);
    ttft_p50_s, ttft_p90_s; sessions_met, the share of sessions all of whose turns met every objective of
    `slo` (default: study.yaml's), and session_goodput_per_s, that share of the sessions per second.
    """
    slo = inputs.study()["slo"] if slo is None else slo
    keys = ["run_id", *CURVE, *LEVEL, "started"]
    grouped = of_sessions(requests).groupby(keys, dropna=False, sort=True)
    found = [dict(zip(keys, key)) | _level(rows, slo) for key, rows in grouped]
    each = pd.DataFrame(found, columns=[*keys, *_level(of_sessions(requests.iloc[:0]), slo)])
    each.loc[_unconfirmed(each, requests), list(prefix_cache.RATES)] = np.nan
    return each


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the loads of the default machine over all their runs, one row per configuration and level.

    Columns CURVE, LEVEL, means over runs of the columns of `levels`, runs; of later turns LATER (`saved`):
    TTFT without the cache / with it, the seconds saved, the share of prompt tokens that was computed.
    Without loads whose rate is a share of a capacity that every run measures anew.
    """
    rows = machines.on_default_machine(requests, EXPERIMENT)
    each, keys = levels(rows), [*CURVE, *LEVEL]
    means = {name: (name, "mean") for name in MEANS}
    found = (
        each.astype(dict.fromkeys(MEANS, float))
        .groupby(keys, dropna=False, sort=True)
        .agg(**means, runs=("run_id", "nunique"))
    )
    later = saved(rows).query("turns == 'later'")[[*keys, *LATER]]
    return found.reset_index().merge(later, "left", keys)


def turns_table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return `by_turn` of the default machine."""
    return by_turn(machines.on_default_machine(requests, EXPERIMENT))


def _level(rows, slo):
    good = rows[rows["error"] == ""]
    failed = rows["error"] != ""
    sent = rows["sent_s"].dropna()
    span = sent.max() - sent.min()
    bounds = good[BOUNDS].sum(min_count=1) / good["prompt_tokens"].sum()
    share = meets(rows, slo).groupby(rows["session"]).all().mean()
    return {
        "sessions": rows["session"].nunique(),
        "cut": rows.loc[failed, "session"].nunique(),
        "requests": len(rows),
        "failed": int(failed.sum()),
        **prefix_cache.rates(good["prompt_tokens"], good["cached_tokens"]),
        **dict(zip(("expected_low", "expected_high"), bounds)),
        "prompt_tokens": good["prompt_tokens"].mean(),
        "request_rate": (len(sent) - 1) / span if span > 0 else np.nan,
        "ttft_p50_s": good["ttft_s"].quantile(0.5),
        "ttft_p90_s": good["ttft_s"].quantile(0.9),
        "sessions_met": share,
        "session_goodput_per_s": share * rows["session_rate"].mean(),
    }


def _noted(requests, of_sidecar, columns):
    """What the sidecars of the runs of sessions keep of each level, `of_sidecar`: one row per run and level;
    columns run_id, LEVEL without experiment, `columns`. Empty for runs that are in memory."""
    folder, found = requests.attrs.get("folder"), []
    for run_id in of_sessions(requests)["run_id"].unique() if folder else ():
        sidecar = json.loads(store.path(run_id, ".json", folder).read_text(encoding="utf-8"))
        found += [{"run_id": run_id} | level for level in of_sidecar(sidecar)]
    return pd.DataFrame(found, columns=["run_id", *LEVEL[1:], *columns])


COUNTS = ["prompt_tokens", "cached_tokens", "rows_prompt_tokens", "rows_cached_tokens", "cut_tokens"]


def counted(requests: pd.DataFrame) -> pd.DataFrame:
    """What servers counted of each level beside the sums of its rows (`_noted`; what names it is NaN in the
    first runs): COUNTS, and why they say nothing, where they do."""
    return _noted(requests, lambda sidecar: sidecar.get("counters", ()), [*COUNTS, "why"])


def _unconfirmed(each, requests):
    """Which of the levels `each` have a cache, and a server without counters that could confirm its hits."""
    keys, silent = ["run_id", *LEVEL[1:]], counted(requests).dropna(subset="why")
    numbers = {"session_rate": float, "cache_capacity_tokens": float}
    each, silent = (table[keys].astype(numbers).round({"session_rate": 6}) for table in (each, silent))
    silent = silent[silent["cache_capacity_tokens"] != OFF].drop_duplicates()
    return each.merge(silent, "left", keys, indicator=True)["_merge"].eq("both").to_numpy()


def turns(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per run, level and turn: columns run_id, CURVE, LEVEL, started, turn, requests (answered),
    ttft_p50_s and by_tokens, the hit rate of that turn."""
    keys = ["run_id", *CURVE, *LEVEL, "started", "turn"]
    rows = of_sessions(requests)
    found = []
    for key, own in rows[rows["error"] == ""].groupby(keys, dropna=False, sort=True):
        rate = prefix_cache.rates(own["prompt_tokens"], own["cached_tokens"])["by_tokens"]
        medians = {"ttft_p50_s": own["ttft_s"].median(), "by_tokens": rate}
        found.append(dict(zip(keys, key)) | {"requests": len(own)} | medians)
    return pd.DataFrame(found, columns=[*keys, "requests", "ttft_p50_s", "by_tokens"])


def by_turn(requests: pd.DataFrame) -> pd.DataFrame:
    """`turns` over runs: one row per configuration, level and turn; columns CURVE, LEVEL, turn, runs,
    requests, ttft_p50_s (mean over runs of medians), by_tokens, ttft_p50_s_interval (half the width of the
    95 % interval, NaN for one run)."""
    each, keys = turns(requests), [*CURVE, *LEVEL, "turn"]
    found = estimates.half_widths(estimates.within_runs(each, keys, "ttft_p50_s"), "ttft_p50_s")
    sums = each.groupby(keys, dropna=False, sort=True).agg({"requests": "sum", "by_tokens": "mean"})
    found = found.assign(**sums.reset_index(drop=True))
    return found[[*keys, "runs", "requests", "ttft_p50_s", "by_tokens", "ttft_p50_s_interval"]]


def pairs(requests: pd.DataFrame) -> pd.DataFrame:
    """The same turn of the same session of one run with the cache off and on: one row per such pair, both
    answered. Columns run_id, CURVE, LEVEL (of the one with the cache), started, session, turn, prompt_tokens,
    cached_tokens, uncached_tokens, ttft_s, ttft_off_s and times (ttft_off_s / ttft_s)."""
    rows = of_sessions(requests)
    rows = rows[rows["error"] == ""]
    off = rows[rows["cache_capacity_tokens"] == OFF]
    same = ["run_id", *[key for key in LEVEL if key != "cache_capacity_tokens"], "session", "turn"]
    both = rows[rows["cache_capacity_tokens"] != OFF].merge(
        off[[*same, "ttft_s"]].rename(columns={"ttft_s": "ttft_off_s"}), "inner", same
    )
    columns = [*CURVE, "cache_capacity_tokens", "started", "prompt_tokens", "cached_tokens"]
    kept = [*same, *columns, "uncached_tokens", "ttft_s", "ttft_off_s"]
    return both[kept].assign(times=both["ttft_off_s"] / both["ttft_s"])


def saved(requests: pd.DataFrame) -> pd.DataFrame:
    """What a cache saved, over `pairs`: one row per configuration, level and kind of turn (`first`, `later`).

    Columns CURVE, LEVEL, turns, pairs, runs; times, the geometric mean over runs of each run's median
    ttft_off_s / ttft_s, with times_low and times_high (interval over runs, NaN for one run); saved_s, the
    mean over runs of the median difference; computed, the share of prompt tokens that was computed.
    """
    both = pairs(requests)
    both = both.assign(turns=np.where(both["turn"] == 1, "first", "later"))
    keys, found = [*CURVE, *LEVEL, "turns"], []
    for key, own in both.groupby(keys, dropna=False, sort=True):
        runs = own.sort_values("started").groupby("run_id", sort=False)
        logs = np.log(runs["times"].median())
        middle, low, high = np.exp(estimates.mean_interval(logs))
        difference = (own["ttft_off_s"] - own["ttft_s"]).groupby(own["run_id"]).median().mean()
        row = {"pairs": len(own), "runs": len(logs), "times": middle, "times_low": low, "times_high": high}
        share = own["uncached_tokens"].sum(min_count=1) / own["prompt_tokens"].sum()
        found.append(dict(zip(keys, key)) | row | {"saved_s": difference, "computed": share})
    names = ["pairs", "runs", "times", "times_low", "times_high", "saved_s", "computed"]
    return pd.DataFrame(found, columns=[*keys, *names])
