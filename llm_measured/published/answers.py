"""What the joined table answers: one frame per question, computed from the rows that the checks let stand.

Rows are compared inside a source first. Where sources are put together, each counts alike, and the interval
is Student's t over sources, not over rows. MLPerf stands in frames of its own, as its rules ask."""

import functools
import itertools
import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from llm_measured.core import hardware, naming
from llm_measured.published import build, committed, derived, names, reports, schema

SEED = 29
DRAWS = 1000  # of a bootstrap
# At batch 1: the weights of one step take at least so long at the datasheet's bandwidth, so that what an
# engine does around a step weighs little; and no context that would be read beside the weights.
LEAST_STEP_MS, MOST_CONTEXT = 2.0, 4096
CROWDS = {"localscore", "willitrun"}  # whoever wants to sends a run
APART_DAYS = 14  # two dates of one setting count as two states of the software
MANY = 3  # of what a group needs to be shown with an interval
# Sources that have a measurement or a page in common: their agreement proves nothing.
ORIGIN = {
    "aiconfigurator": "InferenceMAX",
    "inferencex": "InferenceMAX",
    "mlenergy-v2": "ML.ENERGY",
    "mlenergy-v3": "ML.ENERGY",
    "augmxnt": "strix-halo",  # by lhl, as strix-halo-lhl
}
SINGLE_KEYS = [
    *("source", "accelerator_raw", "accelerators", "power_limit_w", "engine_family", "backend", "flags"),
    *("checkpoint_raw", "input_tokens", "output_tokens", "context_depth", "tp", "workload"),
]


ROWS = {"rows", "usable"}  # the table again, with what is derived from it: quicker computed than read
ANSWERS: dict[str, tuple[dict[tuple, pd.DataFrame], Callable[[], pd.DataFrame]]] = {}
_CHOSEN: dict[str, str] = {}  # column of `rows` -> the one value that the frames are of


class NoRows(ValueError):
    """No row answers the question, of those that were chosen."""


def choose(source: str = "", model: str = "", accelerator: str = "") -> None:
    """From now on every frame is of this source, model and accelerator alone (ids of the tables; empty: of
    any). ValueError listing what there is for another name."""
    _CHOSEN.clear()
    every, wanted = rows(), {"source": source, "model": model, "accelerator": accelerator}
    for column, value in wanted.items():
        if value:
            naming.choose(column, value, sorted(every[column].dropna().unique()))
    _CHOSEN.update({column: value for column, value in wanted.items() if value})


def _kept(compute: Callable[[], pd.DataFrame]) -> Callable[[], pd.DataFrame]:
    """Decorator: a frame that is read as `write` committed it, or computed where rows were chosen; once by
    process."""
    known: dict[tuple, pd.DataFrame] = {}

    @functools.wraps(compute)
    def once() -> pd.DataFrame:
        key = tuple(sorted(_CHOSEN.items()))
        if key not in known:
            kept = None if key or compute.__name__ in ROWS else committed.read(f"answers/{compute.__name__}")
            known[key] = compute() if kept is None else kept
        return known[key].copy()

    ANSWERS[compute.__name__] = known, compute
    return once


def write() -> None:
    """Compute every answer anew and write it as the package carries it."""
    for name, (known, _) in ANSWERS.items():
        known.clear()
        committed.path(f"answers/{name}").unlink(missing_ok=True)
    for name, (known, compute) in ANSWERS.items():
        known[()] = compute()
        if name not in ROWS:
            committed.write(f"answers/{name}", known[()].reset_index(drop=True))


def _table(found: Sequence[dict]) -> pd.DataFrame:
    """`found` as a frame; NoRows where nothing was found."""
    if not found:
        raise NoRows("No row of the observatory answers this, of those that were chosen.")
    return pd.DataFrame(found)


@_kept
def rows() -> pd.DataFrame:
    """Every row of the observatory, checked, with what is derived from it; columns of the schema, of
    `derived.derived` and of `derived.datasheet`, in_flight, engine_family, origin (sources of one origin)."""
    table = build.table()
    known = derived.datasheet(table).drop(columns="exact")
    whole = pd.concat([table, derived.derived(table), known], axis=1)
    whole["in_flight"] = derived.in_flight(table)
    engines = {name: names.engine(name) for name in set(table["engine"])}
    whole["engine_family"] = table["engine"].map(engines)
    whole["origin"] = table["source"].replace(ORIGIN)
    whole["origin"] = whole["origin"].where(~table["source"].str.startswith("strix-halo"), "strix-halo")
    for column, value in _CHOSEN.items():
        whole = whole[whole[column] == value]
    return whole.reset_index(drop=True)


@_kept
def usable() -> pd.DataFrame:
    """`rows` without MLPerf, duplicates, and what a check excluded or flagged."""
    every = rows()
    stands = (every["audit"] == "ok") & every["duplicate_of"].isna() & every["comparable_within"].isna()
    return every[stands].reset_index(drop=True)


@_kept
def pitfalls() -> pd.DataFrame:
    """What is easily misread, as `reports.pitfalls` counts it over all sources."""
    return reports.pitfalls(build.rows())


@dataclass(frozen=True)
class Effect:
    """A mean over sources of a logarithm, as a factor with its 95 % interval: `low` and `high` are NaN where
    one source alone says it. `between` is the factor by which one source differs from the mean (one standard
    deviation)."""

    factor: float
    low: float
    high: float
    between: float
    rows: int
    sources: int


def pooled(logs: pd.Series, sources: pd.Series) -> Effect:
    """The mean over `sources` of each one's mean of `logs` (natural logarithms, one by setting): sources
    count alike. The interval is Student's t with sources − 1 degrees of freedom."""
    usable = logs.notna() & np.isfinite(logs)
    logs, sources = logs[usable].astype(float), sources[usable]
    means = logs.groupby(sources).mean()
    count, middle = len(means), float(means.mean())
    spread = float(means.std(ddof=1)) if count > 1 else math.nan
    half = stats.t.ppf(0.975, count - 1) * spread / math.sqrt(count) if count > 1 else math.nan
    low, high = math.exp(middle - half), math.exp(middle + half)
    return Effect(math.exp(middle), low, high, math.exp(spread), len(logs), count)


def resampled(
    values: np.ndarray, statistic: Callable[[np.ndarray], float] = np.median
) -> tuple[float, float]:
    """95 % interval of `statistic` over `values` drawn anew (percentile bootstrap, seeded); NaN for fewer
    than three."""
    values = np.asarray(values, dtype=float)
    if len(values) < MANY:
        return math.nan, math.nan
    drawn = np.random.default_rng(SEED).choice(values, (DRAWS, len(values)))
    low, high = np.quantile([statistic(one) for one in drawn], [0.025, 0.975])
    return float(low), float(high)


# ---- 1. How much of the bandwidth decoding one sequence reaches


def _alone(every: pd.DataFrame) -> pd.Series:
    """Rows of one sequence at a time without speculation."""
    plain = every["speculative"].isna() | (every["speculative"] == "none")
    short = ~(every["context_depth"] > MOST_CONTEXT) & ~(every["input_tokens"] > MOST_CONTEXT)
    return (every["in_flight"] == 1) & plain & short & every["throughput_raw"].notna()


@_kept
def decode_cells() -> pd.DataFrame:
    """Decoding of one sequence: one row per source, accelerator, model, format and engine; columns these,
    vendor, hardware (kind of it), year (of the accelerator), group, kind (who measured), mbu (median of
    `rows` rows), bound_ms (weights ÷ bandwidth of the datasheet), published (year of the measurement)."""
    every = usable()
    part = every[_alone(every) & every["mbu"].notna() & (every["accelerator"] != "cpu")]
    cards = hardware.by_accelerator()
    together = part["accelerators_decode"].fillna(part["accelerators"])
    part = part.assign(
        bound_ms=1e3 * part["read_bytes"] / part["bandwidth_bytes_per_s"] / together,
        published=part["measured_on"].fillna(part["published_on"]).str[:4].astype(float),
    )
    keys = ["source", "kind", "accelerator", "accelerators", "model", "weights_format", "engine_family"]
    cells = part.groupby(keys, dropna=False).agg(
        mbu=("mbu", "median"),
        bound_ms=("bound_ms", "median"),
        published=("published", "median"),
        rows=("mbu", "size"),
    )
    cells = cells.reset_index()
    cells["vendor"] = cells["accelerator"].map(cards["vendor"])
    cells["hardware"] = cells["accelerator"].map(cards["kind"])
    cells["year"] = cells["accelerator"].map(cards["year"])
    cells["name"] = cells["accelerator"].map(cards["name"])
    year = cells["year"].map(lambda y: f"{y:.0f}" if y == y else "year unknown")
    cells["group"] = cells["vendor"] + " " + cells["hardware"] + ", " + year
    return cells


def of_weight(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells whose weights take at least LEAST_STEP_MS at the datasheet's bandwidth."""
    return cells[cells["bound_ms"] >= LEAST_STEP_MS]


@_kept
def mbu_by_accelerator() -> pd.DataFrame:
    """One row per accelerator; columns name, vendor, hardware, group, year, mbu (median over sources of the
    source's median), least and most (over sources), cells, rows, sources, engine (of the best cell), best."""
    cells = of_weight(decode_cells())
    found = []
    for accelerator, part in cells.groupby("accelerator"):
        by = part.groupby("source")["mbu"].median()
        best = part.loc[part["mbu"].idxmax()]
        found.append(
            part.iloc[0][["name", "vendor", "hardware", "group", "year"]].to_dict()
            | {
                "accelerator": accelerator,
                "mbu": by.median(),
                "least": by.min(),
                "most": by.max(),
                "best": best["mbu"],
                "engine": best["engine_family"],
                "cells": len(part),
                "rows": int(part["rows"].sum()),
                "sources": len(by),
            }
        )
    return _table(found).sort_values(["vendor", "year", "name"]).reset_index(drop=True)


def mbu_over_sources(cells: pd.DataFrame) -> tuple[float, float, float]:
    """(median over accelerators of each one's median over sources of `cells`' MBU, and its 95 % interval with
    sources drawn anew: percentile bootstrap, seeded)."""
    table = cells.groupby(["source", "accelerator"])["mbu"].median().unstack()
    drawn = np.random.default_rng(SEED).integers(len(table), size=(DRAWS, len(table)))
    middles = [table.iloc[places].median().median() for places in drawn]
    low, high = np.quantile(middles, [0.025, 0.975])
    return float(table.median().median()), float(low), float(high)


@_kept
def mbu_by_group() -> pd.DataFrame:
    """One row per vendor, kind and year of accelerators, those with at least three; columns group, mbu
    (median over accelerators), low, high (bootstrap over accelerators), accelerators, sources, rows."""
    every = mbu_by_accelerator()
    sources = of_weight(decode_cells()).groupby("group")["source"].nunique()
    found = []
    for group, part in every.groupby("group"):
        if len(part) >= MANY:
            low, high = resampled(part["mbu"].to_numpy())
            found.append(
                {
                    "group": group,
                    "mbu": part["mbu"].median(),
                    "low": low,
                    "high": high,
                    "accelerators": len(part),
                    "sources": int(sources[group]),
                    "rows": int(part["rows"].sum()),
                }
            )
    return _table(found).sort_values("group").reset_index(drop=True)


@_kept
def mbu_effects() -> pd.DataFrame:
    """What MBU at batch 1 depends on: log(MBU) of every cell with random effects of source and accelerator.

    Engines are taken out as fixed effects, and compared in `engine_contrasts`. One row per effect; columns
    effect, factor, low, high (Student's t with sources − 1 degrees of freedom; empty for the random ones,
    whose factor is one standard deviation), cells, sources. A warning of the fit is an error.
    """
    cells = decode_cells().dropna(subset=["mbu", "bound_ms", "published"])
    many = cells["engine_family"].value_counts()
    reference = many.index[0]
    engines = [
        name for name in many.index[1:] if cells.loc[cells["engine_family"] == name, "source"].nunique() > 1
    ]
    columns = {
        "weights that take twice as long to read": np.log2(cells["bound_ms"]),
        "measured a year later": cells["published"] - cells["published"].median(),
        **{f"{name} instead of {reference}": cells["engine_family"] == name for name in engines},
    }
    design = np.column_stack([np.ones(len(cells)), *(np.asarray(v, dtype=float) for v in columns.values())])
    groups = {
        name: np.eye(cells[name].nunique())[pd.factorize(cells[name])[0]]
        for name in ("source", "accelerator")
    }
    from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

    spec = VCSpec(
        list(groups), [[[f"{n}{i}" for i in range(g.shape[1])]] for n, g in groups.items()],
        [[g] for g in groups.values()],
    )  # fmt: skip
    model = MixedLM(np.log(cells["mbu"].to_numpy()), design, np.zeros(len(cells)), exog_vc=spec)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = model.fit(reml=True, method=["lbfgs", "powell"])
    sources = cells["source"].nunique()
    width = stats.t.ppf(0.975, sources - 1)
    found = []
    for place, name in enumerate(list(columns)[: len(columns) - len(engines)], start=1):
        middle, error = float(fitted.fe_params[place]), float(fitted.bse_fe[place])
        found.append((name, *(math.exp(middle + k * width * error) for k in (0, -1, 1))))
    for name, variance in zip(groups, fitted.vcomp):
        found.append((f"one {name} against another", math.exp(math.sqrt(variance)), math.nan, math.nan))
    found.append(("one cell against another", math.exp(math.sqrt(fitted.scale)), math.nan, math.nan))
    table = pd.DataFrame(found, columns=["effect", "factor", "low", "high"])
    return table.assign(cells=len(cells), sources=sources)


REFERENCE_ENGINE = "llama.cpp"


@_kept
def engine_contrasts() -> pd.DataFrame:
    """Engines against REFERENCE_ENGINE where one source measured both with the same accelerator, count and
    model; one row per such pair; columns engine, source, accelerator, model, ratio (of the two MBU)."""
    keys = ["source", "accelerator", "accelerators", "model"]
    cells = decode_cells().dropna(subset=["mbu", "model"])
    wide = cells.pivot_table(index=keys, columns="engine_family", values="mbu", aggfunc="median")
    if REFERENCE_ENGINE not in wide:
        raise NoRows(f"No row of {REFERENCE_ENGINE}, of those that were chosen.")
    ratio = wide.drop(columns=REFERENCE_ENGINE).div(wide[REFERENCE_ENGINE], axis=0)
    return ratio.stack().dropna().rename_axis([*keys, "engine"]).rename("ratio").reset_index()


# ---- 2. How far two sources disagree


@_kept
def disagreement() -> pd.DataFrame:
    """Pairs of sources at one setting; one row per setting and pair; columns level, accelerator, model,
    format, setting, first, second (sources), kinds, one_origin, first_value, second_value, first_rows,
    second_rows, ratio (of the larger), log_ratio (first ÷ second).

    `same model` is one sequence on the same accelerator, model and bits, as output tokens/s; `same load` a
    server with the same engine, lengths, concurrency and count of accelerators as well, as 1 ÷ TPOT; `same
    accelerator` one sequence as MBU, whatever model and engine, of cells `of_weight`.
    """
    every = usable()
    certain = every["accelerator"].notna() & ~every["accelerator"].isin(["cpu", schema.UNKNOWN_VARIANT])
    every = every[certain]
    plain = every["speculative"].isna() | (every["speculative"] == "none")
    base = ["accelerator", "model", "weight_bits"]
    alone = every[_alone(every) & (every["accelerators"].fillna(1) == 1)]
    load = every[(every["in_flight"] > 1) & plain & every["output_tokens_per_s_per_request"].notna()]
    cells = of_weight(decode_cells()).assign(origin=lambda c: c["source"].replace(ORIGIN))
    cells["origin"] = cells["origin"].where(~cells["source"].str.startswith("strix-halo"), "strix-halo")
    parts = [
        _pairs(alone, "same model", base, "output_tokens_per_s"),
        _pairs(
            load,
            "same load",
            [*base, "engine_family", "accelerators", "concurrency", "input_tokens", "output_tokens"],
            "output_tokens_per_s_per_request",
        ),
        _pairs(cells[cells["accelerators"].fillna(1) == 1], "same accelerator", ["accelerator"], "mbu"),
    ]
    if not any(len(part) for part in parts):
        raise NoRows("No setting that two sources measured, of those that were chosen.")
    return pd.concat(parts, ignore_index=True)


def _pairs(part: pd.DataFrame, level: str, keys: list[str], value: str) -> pd.DataFrame:
    cells = part.dropna(subset=[*keys, value]).groupby([*keys, "source", "origin", "kind"])[value]
    cells = cells.agg(["median", "size"]).reset_index()
    found = []
    for setting, group in cells.groupby(keys):
        for (_, a), (_, b) in itertools.combinations(group.iterrows(), 2):
            found.append(
                {
                    "level": level,
                    "setting": _named(keys, setting),
                    "accelerator": a["accelerator"],
                    "first": a["source"],
                    "second": b["source"],
                    "kinds": " and ".join(sorted({a["kind"], b["kind"]})),
                    "one_origin": a["origin"] == b["origin"],
                    "first_value": a["median"],
                    "second_value": b["median"],
                    "first_rows": int(a["size"]),
                    "second_rows": int(b["size"]),
                    "log_ratio": math.log(a["median"] / b["median"]),
                    "ratio": math.exp(abs(math.log(a["median"] / b["median"]))),
                }
            )
    return pd.DataFrame(found)


UNITS = {
    "weight_bits": "bits",
    "accelerators": "accelerators",
    "concurrency": "in flight",
    "input_tokens": "in",
    "output_tokens": "out",
}


def _named(keys: list[str], setting: Hashable) -> str:
    """A setting in words, its numbers with what they are."""
    values = setting if isinstance(setting, tuple) else (setting,)
    return " · ".join(f"{v:g} {UNITS[k]}" if k in UNITS else str(v) for k, v in zip(keys, values))


@_kept
def disagreement_summary() -> pd.DataFrame:
    """One row per level of `disagreement`, pairs of one origin apart; columns level, one_origin, pairs,
    settings, sources, median (factor), low, high (bootstrap over settings), worst, between (factor of one
    source against the mean of sources, by REML with a random effect of each setting)."""
    found = []
    for (level, one), part in disagreement().groupby(["level", "one_origin"]):
        by_setting = part.groupby("setting")["ratio"].median()
        low, high = resampled(by_setting.to_numpy())
        found.append(
            {
                "level": level,
                "one_origin": one,
                "pairs": len(part),
                "settings": len(by_setting),
                "sources": len({*part["first"], *part["second"]}),
                "median": by_setting.median(),
                "low": low,
                "high": high,
                "worst": part["ratio"].max(),
                "worst_setting": part.loc[part["ratio"].idxmax(), "setting"],
            }
        )
    return _table(found)


# ---- 3. What software alone gained


@_kept
def software() -> pd.DataFrame:
    """The same setting of one source at several dates; one row per setting; columns source, kind,
    accelerator (its raw name where the variant is unknown), engine_family, model, days (first to last), gain
    (rate at the last date ÷ at the first), rows, changed (another version, stated at both ends, APART_DAYS
    later), again (the same version, stated: a rerun), speculative.

    Sources to which many people send runs are left out: two rows of them are two machines.
    """
    every = usable()
    every = every[~every["source"].isin(CROWDS)]
    rate = every["output_tokens_per_s"].fillna(every["output_tokens_per_s_per_request"])
    # TensorRT-LLM's editions have a date of publication each, and no other date.
    editions = every["published_on"].where(every["source"] == "tensorrt-llm")
    when = pd.to_datetime(every["measured_on"].fillna(editions), format="ISO8601", errors="coerce")
    keys = [
        *("source", "kind", "accelerator", "accelerator_raw", "accelerators", "engine_family", "backend"),
        *("model", "checkpoint_raw", "weights_format", "kv_format", "workload", "concurrency", "batch"),
        *("max_num_seqs", "input_tokens", "output_tokens", "context_depth", "tp", "ep", "dp", "speculative"),
        "power_limit_w",
        "flags",
    ]
    version = every["engine_version"].fillna(editions)
    part = every[keys].assign(rate=rate, when=when, version=version).dropna(subset=["rate", "when"])
    part = part[part["workload"] != "open_loop"]
    # What a build is called is the software, not a setting.
    part["flags"] = part["flags"].str.replace(r"(?:^|; )(?:build|commit)=[^;]*", "", regex=True)
    several = part.groupby(keys, dropna=False, sort=False)["when"].transform("nunique") > 1
    found = []
    for key, group in part[several].groupby(keys, dropna=False, sort=False):
        days = group.groupby("when")["rate"].median()
        named = dict(zip(keys, key))
        span = (days.index[-1] - days.index[0]).days
        first, last = (set(group.loc[group["when"] == day, "version"]) for day in days.index[[0, -1]])
        stated = None not in first | last and not any(v != v for v in first | last)
        other = stated and first.isdisjoint(last)
        found.append(
            {n: named[n] for n in ("source", "kind", "engine_family", "model", "speculative")}
            | {
                "accelerator": named["accelerator_raw"]
                if named["accelerator"] in (None, schema.UNKNOWN_VARIANT)
                else named["accelerator"],
                "days": span,
                "gain": days.iloc[-1] / days.iloc[0],
                "rows": len(group),
                "changed": other and span >= APART_DAYS,
                "again": stated and first == last,
            }
        )
    return _table(found)


@_kept
def software_summary() -> pd.DataFrame:
    """One row per source, engine and accelerator whose settings lie APART_DAYS apart; columns these, kind,
    settings, rows, days (median), gain (geometric mean over settings), low, high (bootstrap over settings),
    in_100_days (the gain that the same pace gives)."""
    every = software()
    found = []
    for (source, kind, engine, card), part in every[every["changed"]].groupby(
        ["source", "kind", "engine_family", "accelerator"], dropna=False
    ):
        logs = np.log(part["gain"].to_numpy())
        low, high = resampled(logs, np.mean)
        found.append(
            {
                "source": source,
                "kind": kind,
                "engine": engine,
                "accelerator": card,
                "settings": len(part),
                "rows": int(part["rows"].sum()),
                "days": part["days"].median(),
                "gain": math.exp(logs.mean()),
                "low": math.exp(low) if low == low else math.nan,
                "high": math.exp(high) if high == high else math.nan,
                "in_100_days": math.exp(float(np.mean(logs / part["days"].to_numpy() * 100))),
            }
        )
    return _table(found).sort_values(["source", "engine", "accelerator"]).reset_index(drop=True)


# ---- 5. Speed of one user against throughput of an accelerator


def exchange_loads() -> pd.DataFrame:
    """The lengths at which one model was served on most accelerators; columns input_tokens, output_tokens,
    rows."""
    part = _served()
    loads = part.groupby(["input_tokens", "output_tokens"]).agg(
        rows=("speed", "size"), cards=("accelerator", "nunique")
    )
    return loads.sort_values(["cards", "rows"], ascending=False).reset_index()


@_kept
def _served() -> pd.DataFrame:
    """Serving points of the model that most accelerators have, of one source; columns accelerator,
    weights_format, speculative, input_tokens, output_tokens, speed (1 ÷ median TPOT), throughput (output
    tokens/s per accelerator), engine_family, measured_on, setting."""
    every = usable()
    part = every[
        (every["workload"] == "closed_loop")
        & every["tpot_p50_ms"].notna()
        & every["output_tokens_per_s_per_accelerator"].notna()
        & ~every["accelerator"].isin([None, schema.UNKNOWN_VARIANT])
    ]
    counts = part.groupby(["source", "model"])["accelerator"].nunique()
    if counts.empty:
        raise NoRows("No serving points of a model on a known accelerator, of those that were chosen.")
    source, model = counts.idxmax()
    part = part[(part["source"] == source) & (part["model"] == model)]
    return part.assign(
        speed=1000 / part["tpot_p50_ms"],
        throughput=part["output_tokens_per_s_per_accelerator"],
        speculative=part["speculative"].fillna("not stated"),
        setting=part["engine_family"]
        + " "
        + part["weights_format"].fillna("")
        + " tp"
        + part["tp"].map(lambda v: f"{v:g}")
        + " "
        + part["measured_on"].fillna(""),
    )[
        [
            *("source", "model", "accelerator", "weights_format", "speculative", "input_tokens"),
            *("output_tokens", "speed", "throughput", "engine_family", "measured_on", "setting"),
        ]
    ]


POINT = ["speed", "throughput"]


def _edge(points: np.ndarray) -> np.ndarray:
    """Places of the rows (speed, throughput) that no other exceeds in both, by rising speed."""
    order = np.lexsort((-points[:, 1], -points[:, 0]))
    best = np.maximum.accumulate(np.append(-np.inf, points[order, 1]))[:-1]
    return order[points[order, 1] > best][::-1]


def front(points: pd.DataFrame) -> pd.DataFrame:
    """The points of `points` (speed, throughput) that no other exceeds in both, by rising speed."""
    return points.iloc[_edge(points[POINT].to_numpy())]


def exchange_points() -> pd.DataFrame:
    """`_served` at the load that most accelerators have, without speculation."""
    load = exchange_loads().iloc[0]
    part = _served()
    return part[
        (part["input_tokens"] == load["input_tokens"])
        & (part["output_tokens"] == load["output_tokens"])
        & (part["speculative"] == "none")
    ]


def _along(speeds: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Throughput of the front of `points` (rows of speed and throughput) at each of `speeds`, by
    interpolation of logarithms; NaN outside it."""
    if not len(points):
        return np.full(len(speeds), math.nan)
    logs = np.log(points[_edge(points)])
    return np.exp(np.interp(np.log(speeds), logs[:, 0], logs[:, 1], math.nan, math.nan))


SLOW, FAST = 25.0, 50.0  # output tokens/s of one user between which the exchange rate is taken


@_kept
def exchange() -> pd.DataFrame:
    """One row per accelerator and format; columns accelerator, weights_format, points, front (points on it),
    slow and fast (throughput per accelerator at SLOW and FAST tokens/s of a user), kept (fast ÷ slow), low,
    high (bootstrap over configurations and dates)."""
    found, ends = [], np.array([SLOW, FAST])
    for (card, fmt), part in exchange_points().groupby(["accelerator", "weights_format"]):
        settings = part["setting"].unique()
        draws = np.random.default_rng(SEED)
        kept = []
        # What its own setting exceeds is on no front that the setting is drawn into.
        groups = {name: front(own)[POINT].to_numpy() for name, own in part.groupby("setting")}
        for _ in range(200):
            drawn = np.concatenate([groups[s] for s in draws.choice(settings, len(settings))])
            at_slow, at_fast = _along(ends, drawn)
            kept.append(at_fast / at_slow)
        kept = np.array(kept)
        kept = kept[np.isfinite(kept)]
        slow, fast = _along(ends, part[POINT].to_numpy())
        enough = len(settings) >= MANY and len(kept) >= 100
        low, high = np.quantile(kept, [0.025, 0.975]) if enough else (math.nan, math.nan)
        found.append(
            {
                "accelerator": card,
                "weights_format": fmt,
                "points": len(part),
                "configurations": len(settings),
                "front": len(front(part)),
                "slow": slow,
                "fast": fast,
                "kept": fast / slow,
                "low": low,
                "high": high,
            }
        )
    return _table(found)


@_kept
def crossings() -> pd.DataFrame:
    """Fronts of two accelerators and formats on their common range of speeds; columns first, second, share
    (of that range, on a logarithmic axis, on which the first is ahead), crosses (whether each is ahead by
    more than a twentieth somewhere)."""
    fronts = {
        f"{card} {fmt}": part
        for (card, fmt), part in exchange_points().groupby(["accelerator", "weights_format"])
        if len(front(part)) >= MANY
    }
    found = []
    for first, second in itertools.combinations(fronts, 2):
        edges = [front(fronts[name])["speed"] for name in (first, second)]
        low, high = max(e.iloc[0] for e in edges), min(e.iloc[-1] for e in edges)
        if low >= high:
            continue
        speeds = np.geomspace(low, high, 50)
        along = [_along(speeds, fronts[name][POINT].to_numpy()) for name in (first, second)]
        ratio = along[0] / along[1]
        ratio = ratio[np.isfinite(ratio)]
        found.append(
            {
                "first": first,
                "second": second,
                "share": float((ratio > 1).mean()),
                "crosses": bool((ratio > 1.05).any() and (ratio < 1 / 1.05).any()),
            }
        )
    return _table(found)


# ---- 7. Fewer bits: bytes promised, speed gained


@_kept
def quantization() -> pd.DataFrame:
    """Fewer bits against 16 in one setting of one source, one sequence; one row per setting and format;
    columns source, kind, accelerator, hardware, engine_family, model, bits, promised (bytes of 16 bits ÷ of
    the format), gained (rate ÷ rate in 16 bits), share (log gained ÷ log promised), rows."""
    every = usable()
    part = every[_alone(every) & every["read_bytes"].notna() & every["weight_bits"].notna()]
    part = part[part["model"].notna()]
    keys = [k for k in SINGLE_KEYS if k not in ("checkpoint_raw", "flags")]
    keys += ["kind", "model", "accelerator"]
    cells = part.groupby([*keys, "weight_bits"], dropna=False).agg(
        rate=("output_tokens_per_s", "median"), bytes=("read_bytes", "median"), rows=("source", "size")
    )
    cells = cells.reset_index()
    wide = cells[cells["weight_bits"] == 16]
    both = cells[cells["weight_bits"] < 15].merge(wide, on=keys, suffixes=("", "_wide"))
    both["promised"] = both["bytes_wide"] / both["bytes"]
    both["gained"] = both["rate"] / both["rate_wide"]
    both["share"] = np.log(both["gained"]) / np.log(both["promised"])
    both["rows"] += both["rows_wide"]
    kinds = hardware.by_accelerator()["kind"]
    both["hardware"] = both["accelerator"].map(kinds)
    both["bits"] = both["weight_bits"]
    columns = ["source", "kind", "accelerator", "hardware", "engine_family", "model", "bits"]
    return both[[*columns, "promised", "gained", "share", "rows"]]


@_kept
def quantization_summary() -> pd.DataFrame:
    """One row per source and engine; columns source, kind, engine, settings, promised (median), gained
    (median), low, high (bootstrap over settings), share (median)."""
    found = []
    for (source, kind, engine), part in quantization().groupby(["source", "kind", "engine_family"]):
        low, high = resampled(part["gained"].to_numpy())
        found.append(
            {
                "source": source,
                "kind": kind,
                "engine": engine,
                "models": part["model"].nunique(),
                "settings": len(part),
                "promised": part["promised"].median(),
                "gained": part["gained"].median(),
                "low": low,
                "high": high,
                "share": part["share"].median(),
            }
        )
    return _table(found)


# ---- 8. Joules per output token

SCOPES = {
    "accelerators": "all accelerators",
    "accelerator": "all accelerators",
    "package": "package of a chip",
    "wall": "wall",
}


@_kept
def energy() -> pd.DataFrame:
    """Every row with energy per output token; columns source, kind, accelerator_name, scope, model,
    active_b, in_flight, joules, weights_format, stated (whether it is stated, not power ÷ rate)."""
    every = usable()
    part = every[every["j_per_output_token"].notna() & (every["accelerator"] != "cpu")]
    name = hardware.by_accelerator()["name"]
    return pd.DataFrame(
        {
            "source": part["source"],
            "kind": part["kind"],
            "accelerator": part["accelerator"]
            .map(name)
            .fillna(part["accelerator_family"] + " (variant unknown)"),
            "scope": part["power_scope"].map(SCOPES).fillna("not stated"),
            "model": part["model"],
            "active_b": part["active"] / 1e9,
            "in_flight": part["in_flight"],
            "joules": part["j_per_output_token"],
            "weights_format": part["weights_format"],
            "stated": part["energy_j_per_output_token"].notna() | part["energy_j_per_request"].notna(),
        }
    ).reset_index(drop=True)


@_kept
def energy_summary() -> pd.DataFrame:
    """One row per source, accelerator, what the power is of, and class of batch; columns these, kind, models,
    rows, joules (median), p10, p90, per_billion (median J per token and 10⁹ active parameters)."""
    every = energy()
    every["batch"] = pd.cut(
        every["in_flight"], [0, 1.5, 16, 128, np.inf], labels=["1", "2 to 16", "17 to 128", "over 128"]
    )
    found = []
    for key, part in every.groupby(["source", "kind", "accelerator", "scope", "batch"], observed=True):
        if len(part) >= MANY:
            found.append(
                dict(zip(("source", "kind", "accelerator", "scope", "batch"), key))
                | {
                    "models": part["model"].nunique(),
                    "rows": len(part),
                    "joules": part["joules"].median(),
                    "p10": part["joules"].quantile(0.1),
                    "p90": part["joules"].quantile(0.9),
                    "per_billion": (part["joules"] / part["active_b"]).median(),
                }
            )
    return _table(found)


@_kept
def energy_effects() -> pd.DataFrame:
    """What the energy of an output token depends on: log J on log2 of requests in flight and of active
    parameters, by least squares inside each source and accelerator that varies both, then the mean slope.

    One row per effect; columns effect, factor, low, high (Student's t over sources, of each the mean slope),
    rows, sources, groups.
    """
    every = energy().dropna(subset=["joules", "in_flight", "active_b"])
    every = every[(every["joules"] > 0) & (every["active_b"] > 0)]
    slopes, used = [], []
    for _, part in every.groupby(["source", "accelerator"]):
        logs = np.log2(part[["in_flight", "active_b"]].to_numpy(dtype=float))
        if len(part) < 10 or (np.ptp(logs, axis=0) < 1).any():
            continue
        design = np.column_stack([np.ones(len(part)), logs])
        found, _, rank, _ = np.linalg.lstsq(design, np.log(part["joules"].to_numpy(dtype=float)), rcond=None)
        if rank == design.shape[1]:
            slopes.append(found[1:])
            used.append(part)
    if len(slopes) < MANY:
        raise NoRows("Too few sources vary both load and model, of those that were chosen.")
    found = []
    of = pd.Series([part["source"].iloc[0] for part in used])
    for place, name in enumerate(("twice the requests in flight", "twice the active parameters")):
        effect = pooled(pd.Series([slope[place] for slope in slopes]), of)
        found.append((name, effect.factor, effect.low, effect.high))
    rows_used = pd.concat(used)
    table = pd.DataFrame(found, columns=["effect", "factor", "low", "high"])
    return table.assign(rows=len(rows_used), sources=rows_used["source"].nunique(), groups=len(slopes))


# ---- 9. Prompts against answers


@_kept
def prompt_against_decode() -> pd.DataFrame:
    """Prefill speed ÷ decode speed of one sequence; one row per source, accelerator and model; columns
    source, kind, accelerator, name, vendor, hardware, year, model, ratio (median), rows."""
    every = usable()
    part = every[
        (every["in_flight"] == 1)
        & every["accelerator"].notna()
        & (every["accelerator"] != schema.UNKNOWN_VARIANT)
        & (every["prefix_cached"] != "yes")
        & ~(every["input_tokens"] < 64)
        & ~(every["context_depth"] > MOST_CONTEXT)
    ]
    keys = [
        "source",
        "kind",
        "accelerator",
        "accelerators",
        "checkpoint_raw",
        "model",
        "weights_format",
        "engine_family",
    ]
    keys += ["backend"]
    cells = part.groupby(keys, dropna=False).agg(
        prompt=("prompt_tokens_per_s", "median"),
        decode=("output_tokens_per_s", "median"),
        rows=("source", "size"),
    )
    cells = cells.dropna(subset=["prompt", "decode"]).reset_index()
    cells["ratio"] = cells["prompt"] / cells["decode"]
    cards = hardware.by_accelerator()
    by = cells.groupby(["source", "kind", "accelerator"]).agg(
        ratio=("ratio", "median"), rows=("rows", "sum"), models=("checkpoint_raw", "nunique")
    )
    by = by.reset_index()
    for column in ("name", "vendor", "kind", "year"):
        by["hardware" if column == "kind" else column] = by["accelerator"].map(cards[column])
    by["group"] = by["vendor"] + " " + by["hardware"]
    return by.dropna(subset=["group"])


@_kept
def prompt_summary() -> pd.DataFrame:
    """One row per vendor and kind of hardware; columns group, ratio (geometric mean over accelerators, REML
    with sources), low, high, accelerators, sources, rows, least, most."""
    found = []
    for group, part in prompt_against_decode().groupby("group"):
        by = part.groupby("accelerator")["ratio"].median()
        low, high = resampled(by.to_numpy())
        found.append(
            {
                "group": group,
                "ratio": by.median(),
                "low": low,
                "high": high,
                "least": by.min(),
                "most": by.max(),
                "accelerators": len(by),
                "sources": part["source"].nunique(),
                "rows": int(part["rows"].sum()),
            }
        )
    return _table(found).sort_values("ratio").reset_index(drop=True)


# ---- MLPerf, on its own


@_kept
def mlperf() -> pd.DataFrame:
    """MLPerf results of text models, each once; columns round, benchmark, scenario, division, suite,
    comparable_within, submitter, system, accelerators, category, result, tokens_per_s, power_w, trademark."""
    every = rows()
    part = every[every["comparable_within"].notna() & every["duplicate_of"].isna()]
    part = part[part["audit"] != "excluded"]
    within = part["comparable_within"].str.split(" / ", expand=True)
    return pd.DataFrame(
        {
            "round": within[1],
            "benchmark": within[2],
            "scenario": within[3],
            "comparable_within": part["comparable_within"],
            "submitter": part["submitter"],
            "division": part["division"],
            "category": part["category"],
            "result": part["original_id"],
            "system": part["accelerator_raw"],
            "accelerators": part["accelerators"],
            "tokens_per_s": part["throughput_raw"],
            "power_w": part["power_w"],
            "trademark": part["trademark"],
            "maker": part["accelerator"].map(hardware.by_accelerator()["vendor"]),
        }
    ).reset_index(drop=True)


@_kept
def mlperf_groups() -> pd.DataFrame:
    """Groups of results that may be compared (round, benchmark, scenario, division, suite) with the same
    accelerators and count, at least four submitters; columns these, submitters, ratio (fastest ÷ slowest),
    fastest, slowest (submitter and result id), maker_ratio (the maker's own result ÷ the others' median,
    empty where it submitted none)."""
    part = mlperf().dropna(subset=["accelerators"])
    keys = ["comparable_within", "round", "benchmark", "scenario", "division", "system", "accelerators"]
    found = []
    for key, group in part.groupby(keys):
        best = group.loc[group.groupby("submitter")["tokens_per_s"].idxmax()]
        if len(best) < 4:
            continue
        best = best.sort_values("tokens_per_s")
        own = best[best["submitter"] == best["maker"]]
        others = best[best["submitter"] != best["maker"]]["tokens_per_s"]
        fast, slow = best.iloc[-1], best.iloc[0]
        found.append(
            dict(zip(keys, key))
            | {
                "submitters": len(best),
                "ratio": fast["tokens_per_s"] / slow["tokens_per_s"],
                "fastest": f"{fast['submitter']}, {fast['result']}",
                "slowest": f"{slow['submitter']}, {slow['result']}",
                "maker_ratio": float(own["tokens_per_s"].iloc[0] / others.median()) if len(own) else math.nan,
            }
        )
    return _table(found)
