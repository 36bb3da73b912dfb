"""What servers did under load, as DataFrames computed from the observations; tables, figures and
sentences call these.

A level is one closed loop with so many requests at once (`concurrency`) or one open loop with so many
arrivals per second (`request_rate`). Its row has `loop` (closed, open) and `load` (the number of the one
or the other). The published curves come in the same columns, so the same functions judge them.
"""

import numpy as np
import pandas as pd

from bench import backends, inputs, naming
from bench.analysis import latency as latency_analysis
from bench.analysis import levels as levels_analysis
from bench.analysis import machines
from bench.machine import identity
from bench.observations import schema

CURVE = schema.CONFIGURATION
LOOP = ["loop", "load"]
HELD = 0.99  # share of a level's requests that must meet the objectives for the level to hold them; a failed request meets none
PER_USER = 100  # output tokens/s for every user: the published example of a latency goal
WIDER = 8  # so many times the concurrency: what does it cost?
COST = "ttft_s_inside ttft_s ttft_cost_s tpot_s_inside tpot_s tpot_cost_s tpot_factor minutes pairs".split()
GOAL = ["largest_concurrency", "concurrency_measured", "largest_rate", "rate_measured"]


def levels(requests):
    """`levels.levels` on the machine in focus, medians over runs: one row per curve and level, with the
    number of runs.

    Requests and failures are summed. `met` is the share of requests that met the objectives of
    study.yaml, `per_device` the output tokens/s of each of the devices that share the model or hold its
    replicas; the cores of a CPU are one device.
    """
    each = of_runs(machines.focus(requests[requests["experiment"] == "serving"], identity.host())).assign(
        runs=1
    )
    if each.empty:
        return each.assign(per_device=np.nan)
    keys = [*CURVE, *LOOP]
    how = {c: "median" for c in each.select_dtypes("number") if c not in keys} | {
        "requests": "sum",
        "failed": "sum",
        "runs": "sum",
    }
    table = each.groupby(keys, as_index=False, sort=True).agg(how)
    devices = table["tensor_parallel"] * table["data_parallel"]
    return table.assign(
        per_device=table["output_tokens_per_s"] / devices.where(~table["gpu"].map(naming.is_cpu), 1)
    )


def of_runs(requests):
    """`levels.levels` of all runs in `requests` with `loop`, `load` and `met`: one row per run and level."""
    each = levels_analysis.levels(requests)
    closed = each["concurrency"].notna()
    met = (each["goodput_per_s"] * each["wall_s"]).fillna(0) / each["requests"]
    return each.assign(
        loop=np.where(closed, "closed", "open"),
        load=each["concurrency"].where(closed, each["request_rate"]),
        met=met,
    )


def published():
    """The published curves (read off figures, ± 0.05 ms) in the columns of `levels` as far as they are
    known; one row per curve and level.

    A time that was printed once stands for the median. TTFT was printed per concurrency only, so no level
    of a rate has `met`.
    """
    keys = ["model", "gpu", "tensor_parallel", "engine"]
    table = inputs.table("published/mlc_h100_tpot").rename(columns={"load": "kind", "level": "load"})
    waits = (
        inputs.table("published/mlc_h100_ttft")
        .drop(columns="source")
        .rename(columns={"concurrency": "load"})
        .assign(kind="concurrency")
    )
    table = table.merge(waits, on=[*keys, "kind", "load"], how="left").rename(
        columns={"engine": "backend", "output_tokens_per_s_per_gpu": "per_device"}
    )
    table = table.assign(
        loop=np.where(table["kind"] == "concurrency", "closed", "open"), option="published", weights="", host="", data_parallel=1, requests=np.nan, failed=0,
        tpot_p50_s=table["tpot_ms"] / 1e3, ttft_p50_s=table["ttft_ms"] / 1e3, output_tokens_per_s=table["per_device"] * table["tensor_parallel"],
    )  # fmt: skip
    times = table[[f"{name[:-2]}_p50_s" for name in inputs.study()["slo"]]]
    within = (times <= list(inputs.study()["slo"].values())).all(axis=1).astype(float)
    return table.assign(met=within.where(times.notna().all(axis=1)))


def published_single():
    """Those of `published` on one GPU: one model, three engines."""
    table = published()
    return table[table["tensor_parallel"] == 1]


def goals():
    """[(words, which levels hold the goal: 1, 0, NaN where it cannot be told)]: the objectives of
    study.yaml, and the published example."""
    objectives = " and ".join(
        f"{name.removesuffix('_s').upper()} at most {bound * 1e3:g} ms"
        for name, bound in inputs.study()["slo"].items()
    )
    return [
        (
            f"{objectives}, {HELD * 100:g} % of requests",
            lambda table: (table["met"] >= HELD).astype(float).where(table["met"].notna()),
        ),
        (f"{PER_USER} output tokens/s per user, median", _pleases_users),
    ]


def _pleases_users(table):
    few_failed = ~(table["failed"] > (1 - HELD) * table["requests"])
    return ((table["tpot_p50_s"] <= 1 / PER_USER) & few_failed).astype(float)


def goal(requests):
    """Per goal and curve: the largest concurrency and the largest request rate up to which every level
    measured holds it, and the largest measured.

    0: not even the smallest. NaN: not measured, or it cannot be told; a curve of which nothing can be
    told is left out. Our own curves first, then the published ones.
    """
    rows = []
    for table in (levels(requests), published()):
        for words, holds in goals():
            for key, curve in table.assign(holds=holds(table)).groupby(CURVE, sort=True):
                told = [_largest(curve[curve["loop"] == loop]) for loop in ("closed", "open")]
                rows.append(
                    dict(zip(CURVE, key))
                    | {"goal": words}
                    | dict(zip(GOAL, [number for pair in told for number in pair]))
                )
    return pd.DataFrame(rows, columns=["goal", *CURVE, *GOAL]).dropna(subset=GOAL, how="all")


def _largest(curve):
    """(the largest load before the first level that does not hold, the largest load measured) of one loop
    of a curve."""
    curve = curve.dropna(subset="holds").sort_values("load")
    if curve.empty:
        return np.nan, np.nan
    good = curve.loc[curve["holds"].cumprod() > 0, "load"]
    return good.max() if len(good) else 0, curve["load"].max()


def drafts(backend, option):
    """Whether `option` of an engine drafts tokens that are then checked, as its adapter says; an engine
    without an adapter here says nothing."""
    try:
        return "draft_tokens" in backends.get(backend).OPTIONS[option]
    except Exception:  # whatever a contributed adapter does wrong, the observations stay readable
        return False


def speculation(requests):
    """Level by level, an option that drafts beside the same option without: columns of `levels`, those
    without drafts with `_plain`."""
    table = levels(requests)
    drafting = np.array([drafts(*names) for names in zip(table["backend"], table["option"])], dtype=bool)
    drafted = table[drafting].assign(
        plain=table.loc[drafting, "option"].astype(str).str.replace(r"-[^-]*$", "", regex=True)
    )
    plain = table[~drafting].rename(columns={"option": "plain"})
    keys = [c for c in [*CURVE, *LOOP] if c != "option"] + ["plain"]
    both = drafted.merge(plain, on=keys, suffixes=("", "_plain"))
    return both.assign(
        faster=both["output_tokens_per_s"] / both["output_tokens_per_s_plain"],
        pace=both["tpot_p50_s_plain"] / both["tpot_p50_s"],
    )


def tensor_parallel(requests):
    """Level by level, a model shared by more devices beside the fewest measured: columns of `levels`,
    those of the fewest with `_fewest`.

    Our own curves first, then the published ones.
    """
    keys = [column for column in CURVE if column != "tensor_parallel"] + LOOP
    columns = [*keys, "tensor_parallel", "tpot_p50_s", "ttft_p50_s", "output_tokens_per_s", "per_device"]
    pairs = []
    for table in (levels(requests)[columns], published()[columns]):
        fewest = table[table["tensor_parallel"] == table.groupby(keys)["tensor_parallel"].transform("min")]
        both = table.merge(fewest, on=keys, suffixes=("", "_fewest"))
        pairs.append(both[both["tensor_parallel"] > both["tensor_parallel_fewest"]])
    both = pd.concat([p for p in pairs if len(p)] or pairs[:1], ignore_index=True)
    return both.assign(
        pace=both["tpot_p50_s_fewest"] / both["tpot_p50_s"],
        faster=both["output_tokens_per_s"] / both["output_tokens_per_s_fewest"],
    )


def widened(requests):
    """Per curve: its smallest concurrency that was also measured WIDER times as large; how much slower
    tokens came, how much more came out."""
    rows = []
    table = levels(requests)
    for key, curve in table[table["loop"] == "closed"].groupby(CURVE, sort=True):
        at = curve.set_index("load")
        narrow = next((load for load in sorted(at.index) if WIDER * load in at.index), None)
        if narrow is not None:
            first, second = at.loc[narrow], at.loc[WIDER * narrow]
            told = {"narrow": narrow, "slower": second["tpot_p50_s"] / first["tpot_p50_s"]}
            rows.append(
                dict(zip(CURVE, key))
                | told
                | {"more": second["output_tokens_per_s"] / first["output_tokens_per_s"]}
            )
    return pd.DataFrame(rows, columns=[*CURVE, "narrow", "slower", "more"]).dropna(subset="slower")


def disagreement(requests):
    """Per curve with both loops, the level of the open loop whose p99 TTFT differs most from the closed
    loop's at the same output tokens/s.

    The closed loop's is read between its levels, up to its highest throughput; levels outside its range
    are not compared.
    """
    rows = []
    for key, curve in levels(requests).groupby(CURVE, sort=True):
        closed = (
            curve[curve["loop"] == "closed"]
            .dropna(subset=["output_tokens_per_s", "ttft_p99_s"])
            .sort_values("load")
        )
        closed = closed[closed["output_tokens_per_s"] >= closed["output_tokens_per_s"].cummax()]
        opened = curve[curve["loop"] == "open"].dropna(subset=["output_tokens_per_s", "ttft_p99_s"])
        opened = opened[
            opened["output_tokens_per_s"].between(
                closed["output_tokens_per_s"].min(), closed["output_tokens_per_s"].max()
            )
        ]
        if len(closed) > 1 and len(opened):
            there = np.interp(
                opened["output_tokens_per_s"], closed["output_tokens_per_s"], closed["ttft_p99_s"]
            )
            worst = int(np.abs(np.log(opened["ttft_p99_s"] / there)).to_numpy().argmax())
            row = opened.iloc[worst]
            told = {c: row[c] for c in ("load", "output_tokens_per_s", "ttft_p99_s")} | {
                "closed_ttft_p99_s": there[worst]
            }
            rows.append(dict(zip(CURVE, key)) | told | {"ratio": row["ttft_p99_s"] / there[worst]})
    return pd.DataFrame(
        rows, columns=[*CURVE, "load", "output_tokens_per_s", "ttft_p99_s", "closed_ttft_p99_s", "ratio"]
    )


def server_cost(requests):
    """One row per engine and option on the machine in focus that was measured in process and through its
    own server, one request at a time.

    Each run through the server (experiment `served`) stands beside the run in process that began nearest
    in time, because the memory of small machines has more than one speed; medians over these pairs.
    `ttft_cost_s`, `tpot_cost_s`: server less in process; `tpot_factor`: server / in process; `minutes`:
    how far apart they began.
    """
    both = latency_analysis.runs(
        requests[requests["experiment"].isin(["latency", "served"]) & (requests["error"] == "")]
    )
    both = machines.focus(both, identity.host()).assign(
        at=lambda table: pd.to_datetime(table["started"], utc=True)
    )
    served, inside = (both[both["experiment"] == name].sort_values("at") for name in ("served", "latency"))
    if served.empty or inside.empty:
        return pd.DataFrame(columns=[*schema.CONFIGURATION, *COST])
    pairs = pd.merge_asof(
        served, inside, on="at", by=schema.CONFIGURATION, direction="nearest", suffixes=("", "_inside")
    ).dropna(subset="tpot_s_inside")
    apart = (
        pd.to_datetime(pairs["started"]) - pd.to_datetime(pairs["started_inside"])
    ).abs().dt.total_seconds() / 60
    pairs = pairs.assign(
        ttft_cost_s=pairs["ttft_s"] - pairs["ttft_s_inside"], tpot_cost_s=pairs["tpot_s"] - pairs["tpot_s_inside"],
        tpot_factor=pairs["tpot_s"] / pairs["tpot_s_inside"], minutes=apart, pairs=1,
    )  # fmt: skip
    how = {name: "median" for name in COST} | {"pairs": "sum"}
    return naming.named(
        pairs.groupby(schema.CONFIGURATION, as_index=False)
        .agg(how)
        .sort_values("tpot_factor", ignore_index=True)
    )
