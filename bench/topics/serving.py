"""Serving: frames computed from what servers did under load, and from the published curves.

A level is one closed loop with so many requests at once (`concurrency`) or one open loop with so many
arrivals per second (`request_rate`). Its row has `loop` (closed, open) and `load` (the number of the one
or the other). The published curves come in the same columns, so the same functions judge them.
"""

import functools
import itertools
from collections.abc import Callable

import numpy as np
import pandas as pd

from bench import inputs
from bench.observations import schema
from bench.topics import adjusted, estimates, machines
from bench.topics import levels as levels_analysis
from bench.topics.drafting import drafts, undrafted
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

CURVE = schema.CONFIGURATION
LOOP = ["loop", "load"]
STEADY, OVERLOADED = levels_analysis.STEADY, levels_analysis.OVERLOADED
# Share of a level's requests that must meet the objectives for the level to hold them; a failed request
# meets none. As many as the percentile that the default number of requests bounds.
HELD = 0.9
# So many times the concurrency: what does it cost?
WIDER = 8
# The columns of a ratio: itself, its interval over runs, and what it says.
RATIO = {"ratio": "", "low": "_low", "high": "_high", "verdict": "_verdict"}
UNKNOWN = {"ratio": np.nan, "low": np.nan, "high": np.nan, "verdict": ""}
RATE, TPOT = "output_tokens_per_s", "tpot_p50_s"
COMPARED = "load output_tokens_per_s ttft_p90_s closed_ttft_p90_s ratio requests".split()
GOAL = "largest_concurrency concurrency_fails concurrency_measured largest_rate rate_fails".split()
GOAL += ["rate_measured"]


def levels(requests: pd.DataFrame) -> pd.DataFrame:
    """Levels of load on the default machine: one row per curve and level; columns of `levels.levels` over
    all its runs of one version together, loop, load, per_device.

    output_tokens_per_s is the adjusted mean over runs of that level (`adjusted.means`), with the ends of its
    95 % interval, output_tokens_per_s_low and _high. per_device is the output
    tokens/s of each of the devices that share the model or hold its replicas; the cores of a CPU are one
    device.
    """
    own = machines.versioned(machines.front(requests, "serving"))
    table = levels_analysis.loops(levels_analysis.levels(own, pooled=True)).drop(columns=RATE)
    rates = adjusted.means(_versioned_runs(requests), CURVE, RATE, LOOP)
    rates = rates[[*CURVE, *LOOP, *estimates.INTERVAL]]
    rates = rates.set_axis([*CURVE, *LOOP, RATE, f"{RATE}_low", f"{RATE}_high"], axis=1)
    table = table.merge(rates, "left", [*CURVE, *LOOP]).sort_values([*CURVE, *LOOP], ignore_index=True)
    devices = table["tensor_parallel"] * table["data_parallel"]
    devices = devices.where(~table["gpu"].map(naming.is_cpu).astype(bool), 1)
    return table.assign(per_device=table["output_tokens_per_s"] / devices)


def of_runs(requests: pd.DataFrame) -> pd.DataFrame:
    """Levels of all runs in `requests`: one row per run and level; columns of `levels.levels`, experiment,
    loop, load."""
    return levels_analysis.loops(levels_analysis.levels(requests)).assign(experiment="serving")


def _versioned_runs(requests: pd.DataFrame) -> pd.DataFrame:
    """`of_runs`, options as `machines.versioned`: as they are called in `levels`."""
    return of_runs(machines.versioned(requests[requests["experiment"] == "serving"]))


def steady(requests: pd.DataFrame) -> pd.DataFrame:
    """The rows of `levels` in steady state, which alone are compared."""
    table = levels(requests)
    return table[table["state"] == STEADY]


def published() -> pd.DataFrame:
    """The published curves (read off figures, ± 0.05 ms): one row per curve and level; columns of
    `levels` as far as they are known.

    A time that was printed once stands for the median. So `quick` is known, and of the objectives only that
    a level misses them: no median says that nearly all requests meet them.
    """
    keys = ["model", "gpu", "tensor_parallel", "engine", "kind", "load"]
    table = inputs.table("published/mlc_h100_tpot").rename(columns={"load": "kind", "level": "load"})
    waits = inputs.table("published/mlc_h100_ttft").drop(columns="source")
    waits = waits.rename(columns={"concurrency": "load"}).assign(kind="concurrency")
    table = table.merge(waits, on=keys, how="left")
    table = table.rename(columns={"engine": "backend", "output_tokens_per_s_per_gpu": "per_device"})
    table = table.assign(
        loop=np.where(table["kind"] == "concurrency", "closed", "open"),
        option="published",
        weights="",
        host="",
        data_parallel=1,
        state=STEADY,
        requests=np.nan,
        runs=np.nan,
        failed=0,
        tpot_p50_s=table["tpot_ms"] / 1e3,
        ttft_p50_s=table["ttft_ms"] / 1e3,
        output_tokens_per_s=table["per_device"] * table["tensor_parallel"],
    )
    slo = inputs.study()["slo"]
    missed = (table[[f"{name[:-2]}_p50_s" for name in slo]] > list(slo.values())).any(axis=1)
    quick = (table["tpot_p50_s"] <= 1 / levels_analysis.PER_USER).astype(float)
    bounds = {"met_low": np.nan, "met_high": (~missed).astype(float).where(missed)}
    return table.assign(met=np.nan, **bounds, quick=quick, quick_low=quick, quick_high=quick)


def published_single() -> pd.DataFrame:
    """The rows of `published` on one GPU: one model, three engines."""
    table = published()
    return table[table["tensor_parallel"] == 1]


def goals() -> list[tuple[str, Callable[[pd.DataFrame], pd.Series]]]:
    """The goals of latency: [(words, function)], the objectives of study.yaml and the published example.

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
    """The largest load up to which levels hold a goal: one row per goal and curve, ours first, then the
    published ones.

    Columns goal, the curve; largest_concurrency and largest_rate (0: not even the smallest; NaN: not
    measured, or not known), concurrency_fails and rate_fails (the smallest that does not hold: between the
    two the requests are too few to tell), concurrency_measured and rate_measured (the largest that were
    measured). A curve of which nothing is known is left out.
    """
    rows = []
    for table in (levels(requests), published()):
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


def speculation(requests: pd.DataFrame) -> pd.DataFrame:
    """Options that draft beside the same option without: one row per level in steady state of both; columns
    of `levels`, those without drafts with `_plain`; plain (the other option), and with RATIO faster (ratio of
    output tokens/s, closed loops) and pace (of the inverse of TPOT)."""
    table = steady(requests)
    drafting = np.array(list(map(drafts, table["backend"], table["option"])), dtype=bool)
    drafted, others = table[drafting], table[~drafting].rename(columns={"option": "plain"})
    drafted = drafted.assign(plain=drafted["option"].astype(str).map(undrafted))
    keys = [column for column in [*CURVE, *LOOP] if column != "option"] + ["plain"]
    both = drafted.merge(others, on=keys, suffixes=("", "_plain"))
    return _ratios(both, {"option": "plain"}, "plain", _versioned_runs(requests))


def _ratios(
    both: pd.DataFrame, other: dict[str, str], beside: str, runs: pd.DataFrame | None = None
) -> pd.DataFrame:
    """`both` with RATIO of faster and pace: output tokens/s and the inverse of TPOT as multiples of those of
    another curve at the same level, whose medians have the suffix `beside`.

    The ratios are those of adjusted means over `runs` (`of_runs`), and `other` maps columns of the curve to
    those of `both` that the other curve has there; without runs (published figures) they are those of the
    figures, without intervals. An open loop yields the offered rate, so there is no `faster`.
    """
    if runs is None:
        figures = {
            "faster": both[RATE] / both[f"{RATE}_{beside}"],
            "pace": both[f"{TPOT}_{beside}"] / both[TPOT],
        }
        found = {name: [UNKNOWN | {"ratio": each} for each in ratios] for name, ratios in figures.items()}
    else:
        found, rates, tpots = {"faster": [], "pace": []}, _models(runs, RATE), _models(runs, TPOT)
        for _, row in both.iterrows():
            here, there = tuple(row[CURVE]), tuple(row[other.get(column, column)] for column in CURVE)
            level, closed = tuple(row[LOOP]), row["loop"] == "closed"
            found["faster"].append(_compared(rates, level, here, there) if closed else UNKNOWN)
            found["pace"].append(_compared(tpots, level, there, here))
    for name, ratios in found.items():
        table = pd.DataFrame(ratios, columns=list(RATIO), index=both.index)
        both = both.assign(**{f"{name}{suffix}": table[column] for column, suffix in RATIO.items()})
    return both


def _models(runs: pd.DataFrame, metric: str) -> dict:
    """{(loop, load): the regression of `metric` of the curves of `runs` at that level}."""
    every = adjusted.fits(runs, CURVE, metric, LOOP)
    return {tuple(where[name] for name in LOOP): model for where, model in every}


def _compared(models: dict, level: tuple, curve: tuple, baseline: tuple) -> Fields:
    """RATIO of two curves at the same level; UNKNOWN where one of them has no figure above zero there."""
    model = models.get(level)
    if model is None or not model.places.keys() >= {curve, baseline}:
        return UNKNOWN | {"verdict": estimates.NO_RUNS}
    found = model.compare(curve, baseline)
    return {name: found[name] for name in RATIO}


def tensor_parallel(requests: pd.DataFrame) -> pd.DataFrame:
    """A model shared by more devices beside the fewest measured: one row per level in steady state of both,
    ours first, then the published ones; columns of `levels`, those of the fewest with `_fewest`; faster and
    pace as in `speculation`."""
    keys = [column for column in CURVE if column != "tensor_parallel"] + LOOP
    columns = [*keys, "tensor_parallel", "tpot_p50_s", "ttft_p50_s", "output_tokens_per_s", "per_device"]
    pairs = []
    for table, runs in ((steady(requests), _versioned_runs(requests)), (published(), None)):
        table = table[columns]
        fewest = table[table["tensor_parallel"] == table.groupby(keys)["tensor_parallel"].transform("min")]
        both = table.merge(fewest, on=keys, suffixes=("", "_fewest"))
        both = both[both["tensor_parallel"] > both["tensor_parallel_fewest"]]
        pairs.append(_ratios(both, {"tensor_parallel": "tensor_parallel_fewest"}, "fewest", runs))
    return pd.concat([p for p in pairs if len(p)] or pairs[:1], ignore_index=True)


def widened(requests: pd.DataFrame) -> pd.DataFrame:
    """What WIDER times the concurrency costs: one row per curve with two such levels in steady state, at the
    smallest; columns the curve, narrow (the concurrency), slower (ratio of TPOT) and more (ratio of output
    tokens/s) of the two levels of a run, means over runs, and their intervals (_low, _high)."""
    table, each = steady(requests), _versioned_runs(requests)
    each, rows = each[each["loop"] == "closed"].set_index([*CURVE, "load", "run_id"]).sort_index(), []
    for key, curve in table[table["loop"] == "closed"].groupby(CURVE, sort=True):
        loads = set(curve["load"])
        narrow = next((load for load in sorted(loads) if WIDER * load in loads), None)
        if narrow is not None:
            few, many = (each.loc[(*key, load)] for load in (narrow, WIDER * narrow))
            both = few.join(many[[RATE, TPOT]], how="inner", rsuffix="_wide")
            ratios = {"more": both[f"{RATE}_wide"] / both[RATE], "slower": both[f"{TPOT}_wide"] / both[TPOT]}
            rows.append(
                both[["experiment", "started"]].assign(**dict(zip(CURVE, key)), narrow=narrow, **ratios)
            )
    wider = [*CURVE, "narrow"]
    names = {name: [name, f"{name}_low", f"{name}_high"] for name in ("slower", "more")}
    if not rows:
        return pd.DataFrame(columns=[*wider, *itertools.chain(*names.values())])
    ratios = pd.concat(rows).reset_index()
    slower, more = (
        estimates.within_runs(ratios, wider, name)[[*wider, *estimates.INTERVAL]].set_axis(
            [*wider, *own], axis=1
        )
        for name, own in names.items()
    )
    return slower.merge(more, "left", wider)
