"""Serving: what servers did under load, level by level, and the largest load at which they keep a goal.

A level is one closed loop with so many requests at once (`concurrency`) or one open loop with so many
arrivals per second (`request_rate`). Its row has `loop` (closed, open) and `load` (the number of the one
or the other).
"""

import functools
from collections.abc import Callable

import numpy as np
import pandas as pd

from bench import inputs
from bench.observations import schema
from bench.topics import estimates, machines
from bench.topics import levels as levels_analysis
from llm_measured.core import naming

CURVE = schema.CONFIGURATION
LOOP = ["loop", "load"]
OVERLOADED = levels_analysis.OVERLOADED
# Share of a level's requests that must meet the objectives for the level to hold them; a failed request
# meets none. As many as the percentile that the default number of requests bounds.
HELD = 0.9
RATE = "output_tokens_per_s"
UNLOADED = 3  # times the TTFT without load that a request may wait, in the second goal of TTFT
NEAR = {"goodput_per_s": "goodput_near_per_s", "met": "near", "met_low": "near_low", "met_high": "near_high"}
GOAL = "largest_concurrency concurrency_fails concurrency_measured largest_rate rate_fails".split()
GOAL += ["rate_measured"]


def levels(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the levels of load on the default machine, one row per curve and level.

    Columns of `levels.levels` over all its runs of one version together, loop, load, per_device.
    output_tokens_per_s is the adjusted mean over runs of that level (`estimates.by_condition`) and
    output_tokens_per_s_interval half the width of its 95 % interval. per_device is the output tokens/s of
    each of the devices that share the model or hold its replicas; the cores of a CPU are one device. near,
    near_low, near_high and goodput_near_per_s are what met and goodput_per_s are, with the one objective of a
    TTFT of at most UNLOADED times the median of a closed loop of one; empty where there is none.
    """
    own = machines.versioned(machines.front(requests, "serving"))
    table = levels_analysis.loops(levels_analysis.levels(own, pooled=True)).drop(columns=RATE)
    rates = estimates.by_condition(_versioned_runs(requests), CURVE, RATE, LOOP)
    table = table.merge(rates, "left", [*CURVE, *LOOP]).sort_values([*CURVE, *LOOP], ignore_index=True)
    table = _with_near(table, own)
    devices = table["tensor_parallel"] * table["data_parallel"]
    devices = devices.where(~table["gpu"].map(naming.is_cpu).astype(bool), 1)
    return naming.named(table.assign(per_device=table["output_tokens_per_s"] / devices))


def _with_near(table: pd.DataFrame, own: pd.DataFrame) -> pd.DataFrame:
    """Return `table`, levels of the requests `own`, with the columns NEAR."""
    parts = []
    for _, curve in own.groupby(CURVE):
        alone = curve.loc[(curve["concurrency"] == 1) & (curve["error"] == ""), "ttft_s"].median()
        if alone > 0:
            parts.append(levels_analysis.levels(curve, {"ttft_s": UNLOADED * alone}, pooled=True))
    if not parts:
        return table.assign(**dict.fromkeys(NEAR.values(), np.nan))
    keys = [*CURVE, *schema.LEVEL]
    return table.merge(pd.concat(parts)[[*keys, *NEAR]].rename(columns=NEAR), "left", keys)


def of_runs(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the levels of all runs in `requests`, one row per run and level.

    Columns of `levels.levels`, experiment, loop, load.
    """
    return levels_analysis.loops(levels_analysis.levels(requests)).assign(experiment="serving")


def _versioned_runs(requests: pd.DataFrame) -> pd.DataFrame:
    """`of_runs`, options as `machines.versioned`: as they are called in `levels`."""
    return of_runs(machines.versioned(requests[requests["experiment"] == "serving"]))


def goals() -> list[tuple[str, Callable[[pd.DataFrame], pd.Series]]]:
    """Return the goals of latency: [(words, function)].

    They are the objectives of study.yaml, UNLOADED times the TTFT without load, and the published example.
    The function maps a table of levels to 1 where a level holds the goal, 0 where not, NaN where that is not
    known. It holds where the whole interval of the share of its requests lies above the share that the goal
    takes, or every request of three runs or more meets it; it does not where the interval lies below, where
    no request meets it, or where the level is overloaded.
    """
    objectives = " and ".join(
        f"{name.removesuffix('_s').upper()} at most {bound * 1e3:g} ms"
        for name, bound in inputs.study()["slo"].items()
    )
    return [
        (f"{objectives}, {HELD * 100:g} % of requests", functools.partial(_holds, name="met", share=HELD)),
        (
            f"TTFT at most {UNLOADED} times that without load, {HELD * 100:g} % of requests",
            functools.partial(_holds, name="near", share=HELD),
        ),
        (
            f"{levels_analysis.PER_USER} output tokens/s per user, median",
            functools.partial(_holds, name="quick", share=0.5),
        ),
    ]


def _holds(table: pd.DataFrame, name: str, share: float) -> pd.Series:
    several = table["runs"] >= levels_analysis.FEWEST_RUNS
    every, none = several & (table[name] == 1), several & (table[name] == 0)
    held = np.where(every | (table[f"{name}_low"] >= share), 1.0, np.nan)
    lost = none | (table[f"{name}_high"] < share) | (table["state"] == OVERLOADED)
    return pd.Series(np.where(lost, 0.0, held), table.index)


def goal(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the largest load up to which levels on the default machine hold a goal.

    One row per goal and curve; columns goal, the curve; largest_concurrency and largest_rate (0: not even the
    smallest; NaN: not measured, or not known), concurrency_fails and rate_fails (the smallest that does not
    hold: between the two the requests are too few to tell), concurrency_measured and rate_measured (the
    largest that were measured). A curve of which nothing is known is left out.
    """
    rows, table = [], levels(requests)
    for words, holds in goals():
        for key, curve in table.assign(holds=holds(table)).groupby(CURVE, sort=True):
            closed, opened = (_largest(curve[curve["loop"] == loop]) for loop in ("closed", "open"))
            rows.append((words, *key, *closed, *opened))
    known = [column for column in GOAL if not column.endswith("measured")]
    return pd.DataFrame(rows, columns=["goal", *CURVE, *GOAL]).dropna(subset=known, how="all")


def _largest(curve: pd.DataFrame) -> tuple:
    """(the largest load that holds before the first that does not, that one, the largest load measured) of
    one loop of a curve."""
    if curve.empty:
        return np.nan, np.nan, np.nan
    fails = curve.loc[curve["holds"] == 0, "load"].min()
    below = curve[~(curve["load"] >= fails)]
    good = below.loc[below["holds"] == 1, "load"].max()
    return (0 if below.empty else good), fails, curve["load"].max()
