"""Coefficients of the step-time model, fitted to measured serving points through the simulator.

Least squares of logarithmic errors of TTFT and TPOT, large ones counted linearly (pseudo-Huber), with a prior
on every coefficient (`step_time.COEFFICIENTS`): what few rows cannot determine stays at what is usual.
Gauss-Newton with finite differences.
"""

import numpy as np
import pandas as pd

from bench.analysis.planning import engines, published, step_time

WIDTHS = ["ttft_half_width", "tpot_half_width"]
SCALE = np.array([0.12, 0.05])  # relative errors of TTFT and TPOT that weigh the same
LINEAR_FROM = 1.0  # scales
DIFFERENCE = 0.06  # of a coefficient's logarithm: the simulator's answers are rough at smaller ones
LONGEST_STEP = 0.6
ROUNDS = 7
DIFFERENTIATED = (
    0,
    1,
    3,
)  # rounds that differentiate anew; the others update the slopes by what the last step taught
ENOUGH = 0.004  # relative gain of a round below which the fit ends
PRIOR = np.log([c.prior for c in step_time.COEFFICIENTS])
HIGHEST = np.where(
    [c.unit == "1" for c in step_time.COEFFICIENTS], 0.0, np.inf
)  # no share of a datasheet's rate passes 1
SPREAD = np.array([c.spread for c in step_time.COEFFICIENTS])


def errors(loads, measured, coefficients):
    """Logarithms of predicted over measured (TTFT, TPOT), one row per load."""
    return np.log(published.predict(loads, coefficients)) - np.log(measured)


def _residuals(loads, measured, logs, prior):
    scaled = (errors(loads, measured, np.exp(logs)) / SCALE).ravel()
    bent = np.sign(scaled) * LINEAR_FROM * np.sqrt(2 * (np.sqrt(1 + (scaled / LINEAR_FROM) ** 2) - 1))
    return np.concatenate([bent, (logs - prior) / SPREAD])


def fit(loads, measured, prior=PRIOR):
    """(coefficients, their standard errors as factors) for loads of one engine and device; `measured`: TTFT
    and TPOT in ms.
    """
    logs, damping = prior.copy(), 0.3
    now = _residuals(loads, measured, logs, prior)
    for number in range(ROUNDS):
        if number in DIFFERENTIATED:
            slopes = _slopes(loads, measured, logs, prior, now)
        before, (logs, after, damping) = logs, _step(loads, measured, logs, prior, now, slopes, damping)
        gained, change, moved = 1 - (after @ after) / (now @ now), after - now, logs - before
        now = after
        if gained < ENOUGH:
            break
        slopes = slopes + np.outer(change - slopes @ moved, moved) / (moved @ moved)  # Broyden's update
    covariance = np.linalg.inv(slopes.T @ slopes) * max(1.0, now @ now / max(1, len(now) - 2 * len(logs)))
    return np.exp(logs), np.exp(np.sqrt(np.diag(covariance)))


def _slopes(loads, measured, logs, prior, now):
    columns = [
        _residuals(loads, measured, logs + DIFFERENCE * unit, prior) - now for unit in np.eye(len(logs))
    ]
    return np.stack(columns, axis=1) / DIFFERENCE


def _step(loads, measured, logs, prior, now, slopes, damping):
    """(logs, residuals, damping) after the first damped step that gains; unchanged where none does."""
    square = slopes.T @ slopes
    for _ in range(5):
        step = -np.linalg.solve(square + damping * np.diag(np.diag(square)), slopes.T @ now)
        tried = np.minimum(logs + np.clip(step, -LONGEST_STEP, LONGEST_STEP), HIGHEST)
        after = _residuals(loads, measured, tried, prior)
        if after @ after < now @ now:
            return tried, after, max(damping / 4, 1e-3)
        damping *= 4
    return logs, now, damping


def groups(rows, loads):
    """Fits of every engine and device in `rows`: {(engine, gpu): (coefficients, factors, errors of the fitted
    rows, their strata)}.
    """
    found, loads = {}, np.array(loads, dtype=object)
    for key, at in rows.reset_index(drop=True).groupby(published.GROUP).groups.items():
        measured = rows[published.MEASURED].to_numpy()[at]
        best, factors = fit(loads[at], measured)
        strata = np.array([engines.stratum(load.case) for load in loads[at]])
        found[key] = best, factors, errors(loads[at], measured, best), strata
    return found


def estimate(fits, engine, gpu):
    """Coefficients for an engine and device of which nothing was fitted: geometric means over the nearest
    that were.

    Those of the same engine on other devices, else of other engines on the same device, else all.
    """
    near = [v[0] for k, v in fits.items() if k[0] == engine] or [v[0] for k, v in fits.items() if k[1] == gpu]
    return np.exp(np.mean(np.log(near or [v[0] for v in fits.values()]), axis=0))


def lookup(fits, engine, gpu):
    """(coefficients, whether they are an estimate)."""
    if (engine, gpu) in fits:
        return fits[engine, gpu][0], False
    return estimate(fits, engine, gpu), True


def half_widths(fits, key, stratum="", level=0.95):
    """Half widths of 95 % prediction intervals of (TTFT, TPOT) as logarithms: weighted quantiles of the fits'
    absolute errors.

    Errors of the case's own engine, device and stratum count fully, others of the engine and device `KIN`,
    those of the stratum elsewhere and of everything as `POOLED` rows together.
    """
    own = np.concatenate([np.full(len(v[2]), k == key) for k, v in fits.items()])
    like = np.concatenate([v[3] == stratum for v in fits.values()])
    every = np.abs(np.concatenate([v[2] for v in fits.values()]))
    weights = np.where(own & like, 1.0, np.where(own, KIN, 0.0)) + POOLED / len(every)
    if stratum and like.any():
        weights = weights + np.where(like, POOLED / like.sum(), 0.0)
    widths = []
    for k in range(2):
        order = np.argsort(every[:, k])
        share = np.cumsum(weights[order]) / weights.sum()
        widths.append(every[order, k][min(np.searchsorted(share, level), len(order) - 1)])
    return np.array(widths) * INFLATION


KIN = 0.1
POOLED = 2.0
# Errors of TTFT and TPOT of rows that were not fitted are larger than those of rows that were. Of TTFT by
# as much as leaves 95 % of the rows of ten folds inside.
INFLATION = np.array([1.08, 1.1])


def tabulated(fits):
    """One row per engine, device and coefficient: value, its 95 % interval, unit, rows it was fitted to; and
    the errors' half widths.
    """
    rows = []
    for (engine, gpu), (best, factors, fitted, strata) in fits.items():
        for c, value, factor in zip(step_time.COEFFICIENTS, best, factors):
            rows.append(
                (
                    engine,
                    gpu,
                    "",
                    c.name,
                    value,
                    value / factor**1.96,
                    value * factor**1.96,
                    c.unit,
                    len(fitted),
                )
            )
        for stratum in ["", *np.unique(strata)]:
            number = len(fitted) if not stratum else int((strata == stratum).sum())
            for name, width in zip(WIDTHS, half_widths(fits, (engine, gpu), stratum)):
                rows.append((engine, gpu, stratum, name, width, np.nan, np.nan, "log", number))
    return pd.DataFrame(rows, columns="engine gpu stratum coefficient value low high unit rows".split())
