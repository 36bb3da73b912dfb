"""Serving: frames computed from what servers did under load, and from the published curves.

A level is one closed loop with so many requests at once (`concurrency`) or one open loop with so many
arrivals per second (`request_rate`). Its row has `loop` (closed, open) and `load` (the number of the one
or the other). The published curves come in the same columns, so the same functions judge them.
"""

import numpy as np
import pandas as pd

from bench import inputs, naming
from bench.analysis import latency as latency_analysis
from bench.analysis import levels as levels_analysis
from bench.analysis import machines
from bench.analysis.drafting import drafts, undrafted
from bench.machine import identity
from bench.observations import schema

CURVE = schema.CONFIGURATION
LOOP = ["loop", "load"]
# Share of a level's requests that must meet the objectives for the level to hold them; a failed request
# meets none.
HELD = 0.99
# Output tokens/s for every user: the published example of a latency goal.
PER_USER = 100
# So many times the concurrency: what does it cost?
WIDER = 8
COST = "ttft_s_inside ttft_s ttft_cost_s tpot_s_inside tpot_s tpot_cost_s tpot_factor minutes pairs".split()
FARTHEST = "load output_tokens_per_s ttft_p99_s closed_ttft_p99_s ratio".split()
GOAL = ["largest_concurrency", "concurrency_measured", "largest_rate", "rate_measured"]


def levels(requests):
    """Levels of load on the machine in focus: one row per curve and level; columns of `of_runs`, medians over
    runs, with requests and failures summed, runs (their number) and per_device.

    per_device is the output tokens/s of each of the devices that share the model or hold its replicas; the
    cores of a CPU are one device.
    """
    each = of_runs(machines.focus(requests[requests["experiment"] == "serving"], identity.host()))
    each = each.assign(runs=1)
    if each.empty:
        return each.assign(per_device=np.nan)
    keys = [*CURVE, *LOOP]
    how = {column: "median" for column in each.select_dtypes("number") if column not in keys}
    how |= dict.fromkeys(("requests", "failed", "runs"), "sum")
    table = each.groupby(keys, as_index=False, sort=True).agg(how)
    devices = table["tensor_parallel"] * table["data_parallel"]
    devices = devices.where(~table["gpu"].map(naming.is_cpu), 1)
    return table.assign(per_device=table["output_tokens_per_s"] / devices)


def of_runs(requests):
    """Levels of all runs in `requests`: one row per run and level; columns of `levels.levels`, loop,
    load, met (share of requests that met the objectives of study.yaml)."""
    each = levels_analysis.levels(requests)
    closed = each["concurrency"].notna()
    met = (each["goodput_per_s"] * each["wall_s"]).fillna(0) / each["requests"]
    return each.assign(
        loop=np.where(closed, "closed", "open"),
        load=each["concurrency"].where(closed, each["request_rate"]),
        met=met,
    )


def published():
    """The published curves (read off figures, ± 0.05 ms): one row per curve and level; columns of
    `levels` as far as they are known.

    A time that was printed once stands for the median. TTFT was printed per concurrency only, so no level
    of a rate has `met`.
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
        requests=np.nan,
        failed=0,
        tpot_p50_s=table["tpot_ms"] / 1e3,
        ttft_p50_s=table["ttft_ms"] / 1e3,
        output_tokens_per_s=table["per_device"] * table["tensor_parallel"],
    )
    slo = inputs.study()["slo"]
    times = table[[f"{name[:-2]}_p50_s" for name in slo]]
    within = (times <= list(slo.values())).all(axis=1).astype(float)
    return table.assign(met=within.where(times.notna().all(axis=1)))


def published_single():
    """The rows of `published` on one GPU: one model, three engines."""
    table = published()
    return table[table["tensor_parallel"] == 1]


def goals():
    """The goals of latency: [(words, function)], the objectives of study.yaml and the published example.

    The function maps a table of levels to 1 where a level holds the goal, 0 where not, NaN where that
    cannot be known.
    """
    objectives = " and ".join(
        f"{name.removesuffix('_s').upper()} at most {bound * 1e3:g} ms"
        for name, bound in inputs.study()["slo"].items()
    )
    return [
        (f"{objectives}, {HELD * 100:g} % of requests", _meets_objectives),
        (f"{PER_USER} output tokens/s per user, median", _pleases_users),
    ]


def _meets_objectives(table):
    return (table["met"] >= HELD).astype(float).where(table["met"].notna())


def _pleases_users(table):
    few_failed = ~(table["failed"] > (1 - HELD) * table["requests"])
    return ((table["tpot_p50_s"] <= 1 / PER_USER) & few_failed).astype(float)


def goal(requests):
    """The largest load up to which every level holds a goal: one row per goal and curve, ours first, then
    the published ones.

    Columns goal, the curve; largest_concurrency and largest_rate (0: not even the smallest; NaN: not
    measured, or not known), concurrency_measured and rate_measured (the largest that were measured). A
    curve of which nothing is known is left out.
    """
    rows = []
    for table in (levels(requests), published()):
        for words, holds in goals():
            for key, curve in table.assign(holds=holds(table)).groupby(CURVE, sort=True):
                closed, opened = (_largest(curve[curve["loop"] == loop]) for loop in ("closed", "open"))
                rows.append((words, *key, *closed, *opened))
    return pd.DataFrame(rows, columns=["goal", *CURVE, *GOAL]).dropna(subset=GOAL, how="all")


def _largest(curve):
    """(the largest load before the first level that does not hold, the largest load measured) of one loop
    of a curve."""
    curve = curve.dropna(subset="holds").sort_values("load")
    if curve.empty:
        return np.nan, np.nan
    good = curve.loc[curve["holds"].cumprod() > 0, "load"]
    return good.max() if len(good) else 0, curve["load"].max()


def speculation(requests):
    """Options that draft beside the same option without: one row per level; columns of `levels`, those
    without drafts with `_plain`; plain (the other option), faster (ratio of output tokens/s), pace (of
    TPOT)."""
    table = levels(requests)
    drafting = [drafts(*names) for names in zip(table["backend"], table["option"])]
    drafting = np.array(drafting, dtype=bool)
    drafted, others = table[drafting], table[~drafting].rename(columns={"option": "plain"})
    drafted = drafted.assign(plain=drafted["option"].astype(str).map(undrafted))
    keys = [column for column in [*CURVE, *LOOP] if column != "option"] + ["plain"]
    return _ratios(drafted.merge(others, on=keys, suffixes=("", "_plain")), "plain")


def _ratios(both, beside):
    """`both` with faster and pace: output tokens/s and the inverse of TPOT as multiples of those of the
    columns with the suffix `beside`."""
    return both.assign(
        faster=both["output_tokens_per_s"] / both[f"output_tokens_per_s_{beside}"],
        pace=both[f"tpot_p50_s_{beside}"] / both["tpot_p50_s"],
    )


def tensor_parallel(requests):
    """A model shared by more devices beside the fewest measured: one row per level, ours first, then the
    published ones; columns of `levels`, those of the fewest with `_fewest`; faster and pace as in
    `speculation`."""
    keys = [column for column in CURVE if column != "tensor_parallel"] + LOOP
    columns = [*keys, "tensor_parallel", "tpot_p50_s", "ttft_p50_s", "output_tokens_per_s", "per_device"]
    pairs = []
    for table in (levels(requests)[columns], published()[columns]):
        fewest = table[table["tensor_parallel"] == table.groupby(keys)["tensor_parallel"].transform("min")]
        both = table.merge(fewest, on=keys, suffixes=("", "_fewest"))
        pairs.append(both[both["tensor_parallel"] > both["tensor_parallel_fewest"]])
    both = pd.concat([p for p in pairs if len(p)] or pairs[:1], ignore_index=True)
    return _ratios(both, "fewest")


def widened(requests):
    """What WIDER times the concurrency costs: one row per curve with two such levels, at the smallest;
    columns the curve, narrow (the concurrency), slower (ratio of TPOT), more (ratio of output tokens/s)."""
    rows, table = [], levels(requests)
    for key, curve in table[table["loop"] == "closed"].groupby(CURVE, sort=True):
        at = curve.set_index("load")
        narrow = next((load for load in sorted(at.index) if WIDER * load in at.index), None)
        if narrow is not None:
            first, second = at.loc[narrow], at.loc[WIDER * narrow]
            slower = second["tpot_p50_s"] / first["tpot_p50_s"]
            rows.append((*key, narrow, slower, second["output_tokens_per_s"] / first["output_tokens_per_s"]))
    return pd.DataFrame(rows, columns=[*CURVE, "narrow", "slower", "more"]).dropna(subset="slower")


def disagreement(requests):
    """The two loops at the same throughput: one row per curve with both, the level of the open loop whose p99
    TTFT differs most from the closed loop's.

    Columns the curve, load, output_tokens_per_s, ttft_p99_s, closed_ttft_p99_s, ratio. The closed loop's is
    interpolated between its levels, up to its highest throughput; levels outside its range are not compared.
    """
    rows = []
    for key, curve in levels(requests).groupby(CURVE, sort=True):
        curve = curve.dropna(subset=["output_tokens_per_s", "ttft_p99_s"])
        closed, opened = (curve[curve["loop"] == loop] for loop in ("closed", "open"))
        closed = closed.sort_values("load")
        closed = closed[closed["output_tokens_per_s"] >= closed["output_tokens_per_s"].cummax()]
        low, high = closed["output_tokens_per_s"].min(), closed["output_tokens_per_s"].max()
        opened = opened[opened["output_tokens_per_s"].between(low, high)]
        if len(closed) > 1 and len(opened):
            rows.append((*key, *_farthest(opened, closed)))
    return pd.DataFrame(rows, columns=[*CURVE, *FARTHEST])


def _farthest(opened, closed):
    """FARTHEST of the level of `opened` whose p99 TTFT differs most from that of `closed`."""
    there = np.interp(opened["output_tokens_per_s"], closed["output_tokens_per_s"], closed["ttft_p99_s"])
    worst = int(np.abs(np.log(opened["ttft_p99_s"] / there)).to_numpy().argmax())
    row = opened.iloc[worst]
    return *(row[column] for column in FARTHEST[:3]), there[worst], row["ttft_p99_s"] / there[worst]


def server_cost(requests):
    """What an engine's own server costs, one request at a time: one row per engine and option on the
    machine in focus that was measured in process and through its server.

    Columns of medians over pairs of runs: ttft_s, tpot_s, the same in process with `_inside`, ttft_cost_s
    and tpot_cost_s (server less in process), tpot_factor (server / in process), minutes (between the
    starts), pairs. Each run through the server (experiment `served`) stands beside the run in process
    that began nearest in time, because the memory of small machines has more than one speed.
    """
    good = requests[requests["experiment"].isin(["latency", "served"]) & (requests["error"] == "")]
    both = machines.focus(latency_analysis.runs(good), identity.host())
    both = both.assign(at=pd.to_datetime(both["started"], utc=True))
    served, inside = (both[both["experiment"] == name].sort_values("at") for name in ("served", "latency"))
    if served.empty or inside.empty:
        return pd.DataFrame(columns=[*schema.CONFIGURATION, *COST])
    inside = inside.assign(at_inside=inside["at"])
    pairs = pd.merge_asof(
        served, inside, on="at", by=schema.CONFIGURATION, direction="nearest", suffixes=("", "_inside")
    ).dropna(subset="tpot_s_inside")
    pairs = pairs.assign(
        ttft_cost_s=pairs["ttft_s"] - pairs["ttft_s_inside"],
        tpot_cost_s=pairs["tpot_s"] - pairs["tpot_s_inside"],
        tpot_factor=pairs["tpot_s"] / pairs["tpot_s_inside"],
        minutes=(pairs["at"] - pairs["at_inside"]).abs().dt.total_seconds() / 60,
        pairs=1,
    )
    how = dict.fromkeys(COST, "median") | {"pairs": "sum"}
    table = pairs.groupby(schema.CONFIGURATION, as_index=False).agg(how)
    return naming.named(table.sort_values("tpot_factor", ignore_index=True))
