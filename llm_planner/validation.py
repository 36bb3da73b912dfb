"""How wrong the step-time model is on the published points: rows that no coefficient was fitted to, predicted
and counted.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from llm_measured.core.definitions import Fields
from llm_planner import engines, fit, nearby, published, widths

FOLDS = 10
SCORED = published.MEASURED
PREDICTED = [f"predicted_{name}" for name in SCORED]
PLAIN = "folds, plain"  # the ten folds without the correction by near points
COMMITTED_RULES = "all as committed"
CHOSEN = "chosen inside each fold, by engine and GPU"
NEAR_TOO = "all as committed, and corrected by the errors of points near a row"


def folds(rows: pd.DataFrame) -> np.ndarray:
    """The fold of every row: configurations are dealt out at random, all concurrencies of one together."""
    curve = published.curves(rows)
    dealt = np.random.default_rng(0).permutation(curve.max() + 1) % FOLDS
    return dealt[curve]


def estimates(rows: pd.DataFrame, loads: np.ndarray, fits: dict) -> pd.DataFrame:
    """Predictions of every row with its GPU left out, its engine left out, and its model left out where
    another
    model was measured with the same engine on the same GPU: one row per way and row that can be predicted.

    Columns: left_out, row, predicted_ttft_ms, predicted_tpot_ms. `fits`: `fit.groups` of all rows; a fit
    knows one engine and GPU only, so that leaving out either is dropping fits.
    """
    found = []

    def keep(left_out, at, coefficients):
        values = published.predict(loads[at], coefficients)
        found.append(pd.DataFrame(values, columns=PREDICTED).assign(left_out=left_out, row=at))

    for (engine, gpu), at in rows.reset_index(drop=True).groupby(published.GROUP).groups.items():
        keep("gpu", at, fit.estimate({k: v for k, v in fits.items() if k[1] != gpu}, engine, gpu))
        keep("engine", at, fit.estimate({k: v for k, v in fits.items() if k[0] != engine}, engine, gpu))
        models = rows["model"].to_numpy()[at]
        for model in np.unique(models) if len(np.unique(models)) > 1 else ():
            kept, out = at[models != model], at[models == model]
            keep("model", out, fit.fit(loads[kept], rows[published.MEASURED].to_numpy()[kept])[0])
    return pd.concat(found, ignore_index=True)


def without(rows: pd.DataFrame, out: np.ndarray) -> dict:
    """(engine, gpu) -> coefficients of a fit to the rows that are not `out`, for each that has rows there."""
    loads, found = published.loads(rows), {}
    for key, at in rows.reset_index(drop=True).groupby(published.GROUP).groups.items():
        if out[at].any():
            kept = at[~out[at]]
            found[key] = fit.fit(loads[kept], rows[published.MEASURED].to_numpy()[kept])[0]
    return found


def fold(
    rows: pd.DataFrame,
    out: np.ndarray,
    first: dict,
    name: str = COMMITTED_RULES,
    rules: engines.Rules = engines.RULES,
) -> pd.DataFrame:
    """The rows `out`, predicted from fits to the others with some rules.

    `first`: `without` of the same rows; a fit with other rules descends from there. Columns: rules (`name`),
    row, predicted_ttft_ms, predicted_tpot_ms, loss (`fit.loss` of the rows that were fitted).
    """
    loads, measured, found = published.loads(rows, rules), rows[published.MEASURED].to_numpy(), []
    for key, at in rows.reset_index(drop=True).groupby(published.GROUP).groups.items():
        left, kept = at[out[at]], at[~out[at]]
        if not len(left):
            continue
        coefficients = first[key]
        if _changed(loads[at], rules):
            coefficients = fit.fit(loads[kept], measured[kept], starts=[coefficients])[0]
        table = pd.DataFrame(published.predict(loads[left], coefficients), columns=PREDICTED)
        found.append(
            table.assign(rules=name, row=left, loss=fit.loss(loads[kept], measured[kept], coefficients))
        )
    return pd.concat(found, ignore_index=True)


def corrected(rows: pd.DataFrame, plain: pd.DataFrame) -> pd.DataFrame:
    """`plain` (row, predicted_ttft_ms, predicted_tpot_ms; each row from the fits of the other folds) with
    every prediction lengthened by what the table's rows of other folds that lie near it were off by."""
    seen, parts = rows.loc[plain["row"]], folds(rows)[plain["row"]]
    cases, made = published.cases(seen), plain[PREDICTED].to_numpy()
    off, longer = np.log(seen[SCORED].to_numpy() / made), np.zeros_like(made)
    for part in np.unique(parts):
        here, others = np.flatnonzero(parts == part), np.flatnonzero(parts != part)
        near = nearby.Errors([cases[k] for k in others], off[others])
        longer[here] = near.of([cases[k] for k in here])
    return plain.assign(**dict(zip(PREDICTED, (made * np.exp(longer)).T)))


def ten_folds(rows: pd.DataFrame, part: int) -> pd.DataFrame:
    """`fold` of one of the ten, with the rules of `engines.RULES` and with each of `engines.WITHOUT`."""
    out = folds(rows) == part
    first = without(rows, out)
    ways = {COMMITTED_RULES: engines.RULES, **engines.WITHOUT}
    return pd.concat([fold(rows, out, first, *way) for way in ways.items()], ignore_index=True)


def _changed(loads, rules):
    """Whether other rules change any of the loads."""
    usual = engines.RULES
    if (rules.arrival_s, rules.front) != (usual.arrival_s, usual.front):
        return True
    return any(
        engines.precision(load.case) != engines.precision(load.case, rules)
        or load.setting[4:] != engines.setting(load.case)[4:]
        or engines.computed_share(load.case) != engines.computed_share(load.case, rules)
        for load in loads
    )


def chosen(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Of `fold`'s predictions of every row those of the rules that fitted the other folds of its engine and
    GPU best: the choice never saw the row.
    """
    table = table.join(rows[published.GROUP], on="row")
    parts = folds(rows)
    keys = [table["row"].map(dict(enumerate(parts))), *(table[name] for name in published.GROUP)]
    return table[table["loss"] == table.groupby(keys)["loss"].transform("min")].drop_duplicates("row")


def errors(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The errors of predictions (columns row, predicted_ttft_ms, predicted_tpot_ms) as `widths` wants
    them.
    """
    measured = rows.loc[table["row"]].reset_index(drop=True)
    groups = [engines.error_group(case) for case in published.cases(measured)]
    found = measured[["engine", "gpu", "model"]].assign(row=table["row"].to_numpy(), error_group=groups)
    for name in SCORED:
        ratio = table[f"predicted_{name}"].to_numpy() / measured[name].to_numpy()
        found[name.removesuffix("_ms")] = np.log(ratio)
    return found


def units(table: pd.DataFrame, left_out: str) -> pd.Series:
    """What was left out together, one name per row of `errors`."""
    names = ["engine", "gpu", "model"] if left_out == "model" else ["engine", "gpu"]
    return table[names].agg(" ".join, axis=1)


def with_intervals(rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Predictions with their 95 % intervals, each from rows without its own fold, GPU, engine or model.

    `table`: left_out, row, predicted_ttft_ms, predicted_tpot_ms; left_out is "folds", PLAIN, "gpu", "engine"
    or "model". Where PLAIN is there, "folds" are its predictions `corrected`, and a fold's intervals come
    from others that were corrected without it. More columns: _low and _high of both.
    """
    found, dealt = [], folds(rows)
    plain = table[table["left_out"] == PLAIN]
    for left_out, part in table.groupby("left_out", sort=False):
        part = part.reset_index(drop=True)
        off = errors(rows, part)
        off = off.assign(unit=units(off, left_out))
        in_folds = left_out.startswith("folds")
        label = dealt[off["row"]] if in_folds else off[left_out].to_numpy()
        half = np.zeros((len(part), 2))
        for one in np.unique(label):
            seen, here = off[label != one], np.flatnonzero(label == one)
            if left_out == "folds" and len(plain):
                seen = errors(rows, corrected(rows, plain[dealt[plain["row"]] != one]))
            if not in_folds:
                half[here] = widths.unknown(seen)
                continue
            for key, at in off.loc[here].groupby(["engine", "gpu", "error_group"]).groups.items():
                half[at] = widths.known(seen, *key)
        for k, name in enumerate(SCORED):
            part[f"predicted_{name}_low"] = part[f"predicted_{name}"] / np.exp(half[:, k])
            part[f"predicted_{name}_high"] = part[f"predicted_{name}"] * np.exp(half[:, k])
        found.append(part)
    return pd.concat(found, ignore_index=True)


def scores(table: pd.DataFrame) -> Fields:
    """One row of errors of `table`: per quantity the median and 90th percentile of |predicted / measured -
    1|,
    the median of the signed ones, the share of measured values inside the 95 % interval, the share of curves
    (all concurrencies of a configuration) that lie inside as a whole, and the interval's median half width;
    all as shares.
    """
    curve = published.curves(table) if set(published.CONFIGURATION) <= set(table) else np.arange(len(table))
    row = {"rows": len(table), "curves": len(np.unique(curve))}
    for name in SCORED:
        ratio = table[f"predicted_{name}"] / table[name]
        low, high = table[f"predicted_{name}_low"], table[f"predicted_{name}_high"]
        half = (high - low) / 2 / table[f"predicted_{name}"]
        row |= {
            f"{name}_median": (ratio - 1).abs().median(),
            f"{name}_p90": (ratio - 1).abs().quantile(0.9),
            f"{name}_bias": (ratio - 1).median(),
            f"{name}_coverage": table[name].between(low, high).mean(),
            f"{name}_curves": table[name].between(low, high).groupby(curve).all().mean(),
            f"{name}_half_width": half.median(),
        }
    return row


def by(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """`scores` of every group of `columns`: one row per group."""
    return pd.DataFrame([dict(zip(columns, key)) | scores(part) for key, part in table.groupby(columns)])


def regressions(rows: pd.DataFrame, parts: np.ndarray) -> pd.DataFrame:
    """The plain regressions to beat, with the same folds: TPOT from six physical terms, TTFT log-linear; per
    engine and device.

    One row per row of `rows`: predicted_ttft_ms, predicted_tpot_ms.
    """
    found = pd.DataFrame(np.nan, rows.index, [f"predicted_{name}" for name in SCORED])
    terms = _terms(rows)
    for part in np.unique(parts):
        for _, group in rows.groupby(published.GROUP):
            out = group.index[parts[rows.index.get_indexer(group.index)] == part]
            kept = group.index.difference(out)
            if len(out) and len(kept) >= 3:
                found.loc[out] = _regressed(rows, terms, kept, out)
    return found


def _terms(rows):
    """Physical terms of TPOT: 1, weights, GEMM, KV, interleaved prefill, reductions; each with the model's
    size over its GPUs.
    """
    settings = [load.setting for load in (published.Load(c, waves=1) for c in published.cases(rows))]
    per_gpu = np.array([s.shape.block / s.tensor_parallel for s in settings])
    places, prompt, output = (
        rows[c].to_numpy(dtype=float) for c in ("concurrency", "input_tokens", "output_tokens")
    )
    kv = np.array([s.shape.kv_values / s.tensor_parallel for s in settings]) * places * (prompt + output / 2)
    several = rows["tensor_parallel"].to_numpy() > 1
    return np.column_stack(
        [
            np.ones(len(rows)),
            per_gpu,
            per_gpu * places,
            kv,
            per_gpu * places * prompt / output,
            several * places,
        ]
    )


def _regressed(rows, terms, kept, out):
    at, new = rows.index.get_indexer(kept), rows.index.get_indexer(out)
    tpot = rows.loc[kept, "tpot_ms"].to_numpy()
    size = terms[at].max(axis=0) + 1e-12
    weights = np.linalg.lstsq(terms[at] / size / tpot[:, None], np.ones(len(at)), rcond=None)[0]
    logs = np.column_stack(
        [
            np.ones(len(rows)),
            *(
                np.log(terms[:, 1]),
                np.log(rows["concurrency"]),
                np.log(rows["input_tokens"]),
                np.log(rows["output_tokens"]),
                np.log(rows["tensor_parallel"]),
            ),
        ]
    )
    line = np.linalg.lstsq(logs[at], np.log(rows.loc[kept, "ttft_ms"].to_numpy()), rcond=None)[0]
    return np.column_stack([np.exp(logs[new] @ line), np.maximum(terms[new] / size @ weights, 0.1)])
