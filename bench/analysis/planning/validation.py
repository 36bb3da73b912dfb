"""How wrong the step-time model is on the published points: rows that no coefficient was fitted to, predicted
and counted.
"""

from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd

from bench.analysis.planning import engines, fit, published

FOLDS = 10
SCORED = "ttft_ms tpot_ms".split()


def folds(rows, number=FOLDS, seed=0):
    """The fold of every row: configurations are dealt out at random, all concurrencies of one together."""
    curve = published.curves(rows)
    dealt = np.random.default_rng(seed).permutation(curve.max() + 1) % number
    return dealt[curve]


def left_out(rows, parts, workers=1, progress=None):
    """`rows` with predictions from fits that left out the row's part of `parts` (an array of labels), as
    `predicted` names the columns.

    `workers` processes fit the parts; `progress` is called with each part's label and rows as they come.
    """
    tables = []
    labels = np.unique(parts)
    with ProcessPoolExecutor(workers) as pool:
        for label, table in zip(labels, pool.map(_without, [(rows, parts == label) for label in labels])):
            tables.append(table)
            if progress:
                progress(label, table)
    return pd.concat(tables).loc[rows.index]


def _without(work):
    """The rows of `out`, predicted from a fit to all others."""
    rows, out = work
    loads = np.array([published.Load(c) for c in published.cases(rows)], dtype=object)
    return predicted(rows[out], loads[out], fit.groups(rows[~out], loads[~out]))


def predicted(rows, loads, fits, wide=None):
    """`rows` with predicted_ttft_ms, predicted_tpot_ms, their _low and _high, and estimated: whether nothing
    like it was fitted.

    Measured columns are not read. `wide`: half widths (logarithms) of estimates, else those of the fits,
    doubled.
    """
    made = []
    for load, key in zip(loads, rows[published.GROUP].itertuples(index=False)):
        coefficients, estimated = fit.lookup(fits, *key)
        width = fit.half_widths(fits, tuple(key), engines.stratum(load.case))
        if estimated:
            width = 2 * width if wide is None else wide
        values = np.log(load.predict(coefficients))
        made.append([*np.exp([*values, *(values - width), *(values + width)]), estimated])
    names = [f"predicted_{name}{end}" for end in ("", "_low", "_high") for name in SCORED]
    return rows.join(pd.DataFrame(made, columns=[*names, "estimated"], index=rows.index))


def scores(table):
    """One row of errors of `table` (`predicted`): per quantity the median and 90th percentile of |predicted /
    measured - 1|, the median of the signed ones, the share of measured values inside the 95 % interval,
    and the interval's median half width; all as shares.
    """
    row = {"rows": len(table)}
    for name in SCORED:
        ratio = table[f"predicted_{name}"] / table[name]
        low, high = table[f"predicted_{name}_low"], table[f"predicted_{name}_high"]
        half = (high - low) / 2 / table[f"predicted_{name}"]
        row |= {
            f"{name}_median": (ratio - 1).abs().median(),
            f"{name}_p90": (ratio - 1).abs().quantile(0.9),
            f"{name}_bias": (ratio - 1).median(),
            f"{name}_coverage": table[name].between(low, high).mean(),
            f"{name}_half_width": half.median(),
        }
    return row


def by(table, columns):
    """`scores` of every group of `columns`: one row per group."""
    return pd.DataFrame([dict(zip(columns, key)) | scores(part) for key, part in table.groupby(columns)])


def regressions(rows, parts):
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


def unstated_precision(rows):
    """For rows that state no precision: the error of a fit with each reading, per engine, device and model.

    One row per engine, gpu, model and weights: the fit's sum of squares over all rows of that engine and
    device.
    """
    found = []
    for key, group in rows.groupby(published.GROUP):
        for model in group.loc[group["weights"] == "unstated", "model"].unique():
            which = (group["weights"] == "unstated") & (group["model"] == model)
            for weights in ("bf16", "fp8"):
                tried = group.assign(weights=group["weights"].where(~which, weights))
                loads = [published.Load(c) for c in published.cases(tried)]
                best, _ = fit.fit(loads, group[published.MEASURED].to_numpy())
                error = fit.errors(loads, group[published.MEASURED].to_numpy(), best)[which.to_numpy()]
                row = dict(zip(published.GROUP, key)) | {
                    "model": model,
                    "weights": weights,
                    "rows": int(which.sum()),
                }
                found.append(
                    row
                    | {
                        "tpot_median": np.median(np.abs(error[:, 1])),
                        "ttft_median": np.median(np.abs(error[:, 0])),
                    }
                )
    return pd.DataFrame(found)
