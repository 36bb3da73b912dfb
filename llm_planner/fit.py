"""Coefficients of the step-time model, fitted to measured serving points through the simulator.

Least squares of logarithmic errors of TTFT and TPOT, large ones counted linearly (pseudo-Huber), with a prior
on every coefficient (`step_time.COEFFICIENTS`): what few rows cannot determine stays at what is usual.
Gauss-Newton with finite differences.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from llm_planner import published, step_time

COLUMNS = "engine gpu error_group coefficient value low high unit rows".split()
SCALE = np.array([0.12, 0.05])  # relative errors of TTFT and TPOT that weigh the same
LINEAR_FROM = 1.0  # scales
DIFFERENCE = 0.06  # of a coefficient's logarithm: the simulator's answers are rough at smaller ones
LONGEST_STEP = 0.6
BUSY_FRONT_S = 120e-6  # a second start of the descent: a front that sends some 8,000 tokens/s
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
# (engine, gpu) -> (coefficients, covariance of their logarithms, rows that they were fitted to)
Fits = dict[tuple[str, str], tuple[np.ndarray, np.ndarray, int]]


def errors(loads: Sequence, measured: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Logarithms of predicted over measured (TTFT, TPOT), one row per load."""
    return np.log(published.predict(loads, coefficients)) - np.log(measured)


def _residuals(loads: Sequence, measured: np.ndarray, logs: np.ndarray) -> np.ndarray:
    scaled = (errors(loads, measured, np.exp(logs)) / SCALE).ravel()
    bent = np.sign(scaled) * LINEAR_FROM * np.sqrt(2 * (np.sqrt(1 + (scaled / LINEAR_FROM) ** 2) - 1))
    return np.concatenate([bent, (logs - PRIOR) / SPREAD])


def fit(
    loads: Sequence, measured: np.ndarray, starts: list[np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(coefficients, the covariance of their logarithms) for loads of one engine and device; `measured`: TTFT
    and TPOT in ms; `starts`: coefficients from which to descend, else the usual ones.
    """
    starts = _starts() if starts is None else [np.log(start) for start in starts]
    tried = [_descended(loads, measured, start) for start in starts]
    logs, now, slopes = min(tried, key=lambda end: end[1] @ end[1])
    covariance = np.linalg.inv(slopes.T @ slopes) * max(1.0, now @ now / max(1, len(now) - 2 * len(logs)))
    return np.exp(logs), covariance


def loss(loads: Sequence, measured: np.ndarray, coefficients: np.ndarray) -> float:
    """What `fit` makes small: the sum of bent squares of errors, and of the coefficients' distance from
    `PRIOR`.
    """
    residuals = _residuals(loads, measured, np.log(coefficients))
    return float(residuals @ residuals)


def _starts() -> list[np.ndarray]:
    """The prior, and the prior with a front that is busy: below saturation the front's time changes no row,
    so a descent that begins there would never move it.
    """
    busy = PRIOR.copy()
    busy[step_time.NAMES.index("token_s")] = np.log(BUSY_FRONT_S)
    return [PRIOR, busy]


def _descended(
    loads: Sequence, measured: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(logs of the coefficients, residuals, slopes) where Gauss-Newton from `start` ends."""
    logs, damping = start.copy(), 0.3
    now = _residuals(loads, measured, logs)
    for number in range(ROUNDS):
        if number in DIFFERENTIATED:
            columns = [
                _residuals(loads, measured, logs + DIFFERENCE * unit) - now for unit in np.eye(len(logs))
            ]
            slopes = np.stack(columns, axis=1) / DIFFERENCE
        before, (logs, after, damping) = logs, _step(loads, measured, logs, now, slopes, damping)
        gained, change, moved = 1 - (after @ after) / (now @ now), after - now, logs - before
        now = after
        if gained < ENOUGH:
            break
        slopes = slopes + np.outer(change - slopes @ moved, moved) / (moved @ moved)  # Broyden's update
    return logs, now, slopes


def _step(
    loads: Sequence,
    measured: np.ndarray,
    logs: np.ndarray,
    now: np.ndarray,
    slopes: np.ndarray,
    damping: float,
) -> tuple[np.ndarray, np.ndarray, float]:
    """(logs, residuals, damping) after the first damped step that gains; unchanged where none does."""
    square = slopes.T @ slopes
    for _ in range(5):
        step = -np.linalg.solve(square + damping * np.diag(np.diag(square)), slopes.T @ now)
        tried = np.minimum(logs + np.clip(step, -LONGEST_STEP, LONGEST_STEP), HIGHEST)
        after = _residuals(loads, measured, tried)
        if after @ after < now @ now:
            return tried, after, max(damping / 4, 1e-3)
        damping *= 4
    return logs, now, damping


def groups(rows: pd.DataFrame, loads: Sequence | np.ndarray) -> Fits:
    """Fits of every engine and device in `rows`."""
    found, loads = {}, np.array(loads, dtype=object)
    for key, at in rows.reset_index(drop=True).groupby(published.GROUP).groups.items():
        found[key] = *fit(loads[at], rows[published.MEASURED].to_numpy()[at]), len(at)
    return found


def estimate(fits: Mapping[tuple[str, str], tuple], engine: str, gpu: str) -> np.ndarray:
    """Coefficients for an engine and device of which nothing was fitted: geometric means over the nearest
    that were.

    Those of the same engine on other devices, else of other engines on the same device, else all.
    """
    near = [v[0] for k, v in fits.items() if k[0] == engine] or [v[0] for k, v in fits.items() if k[1] == gpu]
    return np.exp(np.mean(np.log(near or [v[0] for v in fits.values()]), axis=0))


def lookup(fits: Mapping[tuple[str, str], tuple], engine: str, gpu: str) -> tuple[np.ndarray, bool]:
    """(coefficients, whether they are an estimate)."""
    if (engine, gpu) in fits:
        return fits[engine, gpu][0], False
    return estimate(fits, engine, gpu), True


def tabulated(fits: Fits) -> pd.DataFrame:
    """One row per engine, device and coefficient: value, its 95 % interval, unit, rows it was fitted to."""
    rows = []
    for (engine, gpu), (best, covariance, number) in fits.items():
        factors = np.exp(1.96 * np.sqrt(np.diag(covariance)))
        for c, value, factor in zip(step_time.COEFFICIENTS, best, factors):
            rows.append((engine, gpu, "", c.name, value, value / factor, value * factor, c.unit, number))
    return pd.DataFrame(rows, columns=COLUMNS)


def covariances(fits: Fits) -> pd.DataFrame:
    """One row per engine, device and coefficient: the covariances of the logarithms of the coefficients."""
    rows = [
        (engine, gpu, name, *line)
        for (engine, gpu), (_, covariance, _) in fits.items()
        for name, line in zip(step_time.NAMES, covariance)
    ]
    return pd.DataFrame(rows, columns=["engine", "gpu", "coefficient", *step_time.NAMES])
