"""The step-time model: why an engine's decode step takes as long as it does.

    step time = overhead + max(bytes / bandwidth, FLOPs / peak)

Bytes and FLOPs of a step follow from the model's shape, the batch and the context; overhead, effective
bandwidth and effective peak are fitted per configuration to the sweep of batching.ipynb. The effective
ones cannot exceed what was measured beside the runs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from bench.analysis import once
from bench.observations import derived, schema
from llm_measured.core.definitions import Fields

COEFFICIENTS = ["overhead_s", "bandwidth_bytes_per_s", "peak_flops_per_s"]
POINT = "step_s step_bytes step_flops bandwidth_bytes_per_s peak_flops_per_s".split()
RESAMPLES = 200
TERMS = ["overhead", "memory", "arithmetic"]
# What limits a step is decided where this share of the resamples, fitted each, name the same term.
DECIDED = 0.95


def points(requests: pd.DataFrame) -> pd.DataFrame:
    """Batches of the sweeps that decoded, with known peaks: one row per run and shape of a batch; columns of
    `derived.batches`, medians over equal batches, which are no points of their own."""
    table = derived.medians(derived.batches(requests[requests["experiment"] == "batching"]))
    return table[(table["error"] == "") & (table["step_s"] > 0)].dropna(
        subset=["step_flops", "peak_flops_per_s", "bandwidth_bytes_per_s"]
    )


def fit(
    step_s: np.ndarray, step_bytes: np.ndarray, step_flops: np.ndarray, bandwidth: float, peak: float
) -> np.ndarray:
    """(overhead s, s per byte, s per FLOP) of the model, by least squares of relative errors; arrays of
    one length, peaks as numbers.

    Which steps memory limits and which arithmetic is not known beforehand: the points are ordered by
    intensity, every place to part them is tried, and the parting whose model fits best is kept. A term
    that limits no point stands at its peak: no step is faster than that, so what memory takes at least
    cannot pass for overhead.
    """
    intensity = step_flops / step_bytes
    tried = [
        _solve(step_s, step_bytes, step_flops, below, bandwidth, peak)
        for below in (intensity < limit for limit in [*np.unique(intensity), np.inf])
    ]
    errors = [np.sum((predict(t, step_bytes, step_flops) / step_s - 1) ** 2) for t in tried]
    # Partings that differ by rounding alone would be chosen by the processor's last digit: the first is
    # taken, in which arithmetic was reached by a point and not only bounded.
    return tried[int(np.argmin(np.round(errors, 12)))]


def _solve(
    step_s: np.ndarray,
    step_bytes: np.ndarray,
    step_flops: np.ndarray,
    below: np.ndarray,
    bandwidth: float,
    peak: float,
) -> np.ndarray:
    """Least squares for one parting: what the peaks already demand is taken off first, so that the rest
    cannot be negative."""
    from scipy.optimize import nnls  # half a second, which pages without a fit need not wait for

    floor = np.where(below, step_bytes / bandwidth, step_flops / peak)
    columns = np.column_stack(
        [np.ones_like(step_s), np.where(below, step_bytes, 0), np.where(below, 0, step_flops)]
    )
    size = columns.max(axis=0)
    used = size > 0
    matrix = (columns[:, used] / size[used]) / step_s[:, None]
    more = np.zeros(3)
    more[used] = nnls(matrix, np.maximum(step_s - floor, 0) / step_s)[0] / size[used]
    return more + [0, 1 / bandwidth, 1 / peak]


def predict(
    terms: Sequence[float] | np.ndarray, step_bytes: np.ndarray, step_flops: np.ndarray
) -> np.ndarray:
    """Step time in s of steps with so many bytes and FLOPs, for what `fit` returns."""
    overhead, per_byte, per_flop = terms
    return overhead + np.maximum(step_bytes * per_byte, step_flops * per_flop)


def _reached(
    terms: Sequence[float] | np.ndarray, step_bytes: np.ndarray, step_flops: np.ndarray
) -> np.ndarray:
    """`terms` with NaN for what limits none of the points: it was not measured, only bounded."""
    memory, arithmetic = step_bytes * terms[1], step_flops * terms[2]
    limits = np.array([True, (memory >= arithmetic).any(), (arithmetic > memory).any()])
    return np.where(limits, terms, np.nan)


def _arrays(table: pd.DataFrame) -> tuple:
    columns = (table[c].to_numpy(dtype=float) for c in POINT[:3])
    return *columns, table["bandwidth_bytes_per_s"].max(), table["peak_flops_per_s"].max()


def _named(terms: Sequence[Any] | np.ndarray) -> dict[str, float]:
    """s per byte and per FLOP as the rates that readers know."""
    return dict(zip(COEFFICIENTS, (terms[0], 1 / terms[1], 1 / terms[2])))


def terms_of(row: pd.Series) -> tuple[float, ...]:
    """(overhead s, s per byte, s per FLOP) of a row of `models`; what was not reached stands at its peak."""
    rates = zip(COEFFICIENTS[1:], ("roof_bytes_per_s", "roof_flops_per_s"))
    return row["overhead_s"], *(
        1 / (row[name] if np.isfinite(row[name]) else row[peak]) for name, peak in rates
    )


def left_out(table: pd.DataFrame) -> np.ndarray:
    """Relative errors of predicting each batch size from a fit without it: one number per point of
    `table`."""
    errors = []
    for size in table["batch_size"].unique():
        rest, held = table[table["batch_size"] != size], table[table["batch_size"] == size]
        terms = fit(*_arrays(rest))
        errors.extend(
            predict(terms, held["step_bytes"].to_numpy(), held["step_flops"].to_numpy())
            / held["step_s"].to_numpy()
            - 1
        )
    return np.array(errors)


def _resampled(points: pd.DataFrame, rng: np.random.Generator) -> tuple:
    """(terms, coefficients) fitted to one sample, drawn with replacement, of the rows of `points` (columns
    POINT)."""
    drawn = points[rng.integers(len(points), size=len(points))]
    steps, peaks = drawn[:, :3].T, drawn[:, 3:].max(axis=0)
    terms = fit(*steps, *peaks)
    return terms, list(_named(_reached(terms, *steps[1:])).values())


def _interval(draws: np.ndarray, coefficient: int) -> tuple[float, float]:
    """95 % percentile interval of one coefficient over resamples, empty where most of them do not
    determine it."""
    known = draws[:, coefficient][np.isfinite(draws[:, coefficient])]
    if len(known) <= len(draws) / 2:
        return np.nan, np.nan
    low, high = np.percentile(known, [2.5, 97.5])
    return low, high


def model(table: pd.DataFrame) -> Fields:
    """The fit of one configuration.

    COEFFICIENTS, each with _low and _high (95 %, bootstrap over points; NaN where not determined);
    points, roof_bytes_per_s, roof_flops_per_s; residual, left_out and left_out_worst (median and largest
    absolute relative error, of the fit and of a batch size left out); arithmetic_from, and for the first
    (smallest) and last batch size first_batch, first_step_s, first_limit, first_share, first_decided
    (whether DECIDED of the resamples name the same limit), last_batch …
    """
    step_s, step_bytes, step_flops, *peaks = _arrays(table)
    terms = fit(step_s, step_bytes, step_flops, *peaks)
    rng = np.random.default_rng(0)
    measured = table[POINT].to_numpy(dtype=float)
    drawn, coefficients = zip(*(_resampled(measured, rng) for _ in range(RESAMPLES)))
    draws = np.array(coefficients)
    fitted = _named(_reached(terms, step_bytes, step_flops)) | {
        "points": len(table),
        "roof_bytes_per_s": peaks[0],
        "roof_flops_per_s": peaks[1],
    }
    for k, name in enumerate(COEFFICIENTS):
        fitted[f"{name}_low"], fitted[f"{name}_high"] = _interval(draws, k)
    fitted["residual"] = float(np.median(np.abs(predict(terms, step_bytes, step_flops) / step_s - 1)))
    out = np.abs(left_out(table)) if table["batch_size"].nunique() > 2 else np.array([np.nan])
    fitted |= {"left_out": float(np.median(out)), "left_out_worst": float(np.max(out))}
    return fitted | _ends(table, terms, drawn)


def shares(terms: Sequence[float] | np.ndarray, step_bytes: np.ndarray, step_flops: np.ndarray) -> tuple:
    """(step s, name of the largest term, its share) of one step."""
    overhead, memory, arithmetic = terms[0], step_bytes * terms[1], step_flops * terms[2]
    parts = np.array([overhead, memory, 0.0] if memory >= arithmetic else [overhead, 0.0, arithmetic])
    largest = int(parts.argmax())
    return parts.sum(), TERMS[largest], parts[largest] / parts.sum()


def _ends(table: pd.DataFrame, terms: Sequence[float] | np.ndarray, drawn: Sequence) -> Fields:
    """What limits a step at the smallest and at the largest batch, whether the resamples `drawn` (terms)
    agree, and the first batch that arithmetic limits."""
    one = table.groupby("batch_size")[["step_bytes", "step_flops"]].median()
    every = {size: shares(terms, row["step_bytes"], row["step_flops"]) for size, row in one.iterrows()}
    arithmetic = (size for size, (_, name, _) in every.items() if name == "arithmetic")
    ends = {"arithmetic_from": next(arithmetic, np.nan)}
    for end, size in (("first", min(every)), ("last", max(every))):
        ends |= dict(zip((f"{end}_step_s", f"{end}_limit", f"{end}_share"), every[size]))
        ends[f"{end}_batch"] = size
        step = one.loc[size, "step_bytes"], one.loc[size, "step_flops"]
        same = [shares(other, *step)[1] == every[size][1] for other in drawn]
        ends[f"{end}_decided"] = bool(np.mean(same) >= DECIDED)
    return ends


def models(requests: pd.DataFrame) -> pd.DataFrame:
    """The fits of all sweeps in `requests`: one row per configuration with enough batches; columns of
    `model`.

    An empty frame where there is no sweep.
    """
    return _models(points(requests))


@once.for_the_same_rows
def _models(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for key, batches in table.groupby(schema.CONFIGURATION, sort=True):
        if len(batches) >= len(COEFFICIENTS) + 1:
            rows.append(dict(zip(schema.CONFIGURATION, key)) | model(batches))
    return pd.DataFrame(rows)
