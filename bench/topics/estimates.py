"""Which configuration is faster, and by how much: one regression of log(metric) for all machines.

Some hours are slower than others. The regression has a fixed effect of each configuration on each host and a
random one of each measuring session (runs of one host without a gap of an hour). The scatter between runs is
the host's times the option's, each shrunk to the common one (`scatter`). Then it is generalised least
squares, `statsmodels` GLS; pages/_regression.qmd has the same numbers from lines of statsmodels and scipy.

Of two configurations that were measured in one session, the session's part cancels, and Student's t has the
degrees of freedom of the scatter that is known less well: what the two share counts once. Of two that never
met it does not: their interval has the sessions' variance twice, and t the degrees of freedom of that one.
`bench.topics.proof` counts how often options differ from themselves.

Give `fit` the runs of *all* machines, and choose rows afterwards.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import optimize, stats

from bench.observations.peaks import measuring_sessions
from llm_measured.core.confidence import holm

CONFIDENCE = 0.95
FASTER, SLOWER, EQUAL = "faster", "slower", "cannot be distinguished"
ONE_EACH, NEVER_MET = "no repeated run", "never in one measuring session"
ONE_RUN, ONE_SESSION, OUTSIDE = "one run", "one measuring session", "outside the range of its runs"
FAILED, NOT_JUDGED, NO_VALUE = "failed requests", "not judged", "no value"
RATIO = ["ratio", "low", "high", "p", "degrees_of_freedom", "verdict", "runs", "baseline_runs"]
MEANS = ["mean", "low", "high", "runs", "measuring_sessions", "least", "most", "note"]
RANK = [*MEANS, "may_be_best", "reason"]
OPTION = ["backend", "option"]
# Runs that scatter by less, in logarithms, are equal: figures are stored with about so many digits.
EXACT = 1e-9


@dataclass(frozen=True)
class Fit:
    """Estimates of the configurations of all machines.

    `keys` (columns that name a configuration and its host), `table` (a row per configuration: keys, runs,
    measuring_sessions, least and most of its runs in the metric's unit, variance between its runs and the
    degrees of freedom of that), `effects` and `covariance` (of the logs of their means; NaN where no run was
    repeated), `met` (whether two shared a measuring session), `session` (variance of the sessions; NaN where
    none was repeated) and its degrees of freedom.
    """

    keys: list[str]
    table: pd.DataFrame
    effects: np.ndarray
    covariance: np.ndarray
    met: np.ndarray
    session: float
    session_freedom: int

    @functools.cached_property
    def places(self) -> dict[tuple, int]:
        """The row in `table` of each configuration, a tuple of `keys`."""
        return {tuple(row): place for place, row in enumerate(self.table[self.keys].to_numpy(dtype=object))}

    def means(self) -> pd.DataFrame:
        """Return a row per configuration: keys and MEANS, geometric means in the metric's unit.

        The interval contains the sessions' variance where it is known. `note` says where it is not, and where
        the mean lies outside the range of the configuration's own runs.
        """
        table, mean = self.table, np.exp(self.effects)
        half = _quantile(table["freedom"]) * np.sqrt(np.diag(self.covariance))
        notes = {
            ONE_RUN: table["runs"] == 1,
            ONE_SESSION: (table["runs"] > 1) & (table["measuring_sessions"] == 1),
            OUTSIDE: (mean < table["least"] * (1 - EXACT)) | (mean > table["most"] * (1 + EXACT)),
        }
        note = [", ".join(text for text, holds in notes.items() if holds.iloc[i]) for i in range(len(table))]
        found = {"mean": mean, "low": np.exp(self.effects - half), "high": np.exp(self.effects + half)}
        return table.assign(**found, note=note)[[*self.keys, *MEANS]]

    def pairs(self, pairs: Sequence[tuple[int, int]]) -> pd.DataFrame:
        """Return the mean of the first of each of `pairs` (rows of `table`, of one host) over the second's.

        A row per pair, columns RATIO. Interval and p are empty, and the verdict says why, where no run was
        repeated, where the two never met and no session was repeated, or on two hosts.
        """
        i, j = np.array(list(pairs), dtype=int).reshape(-1, 2).T
        host, runs = self.table["host"].to_numpy(), self.table["runs"].to_numpy()
        covariance, own = self.covariance, self.table["freedom"].to_numpy()
        error = np.sqrt(np.maximum(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j], 0))
        freedom = np.where(self.met[i, j], np.minimum(own[i], own[j]), self.session_freedom)
        comparable = (host[i] == host[j]) & (self.met[i, j] | (self.session_freedom > 0))
        difference = np.where(comparable, self.effects[i] - self.effects[j], math.nan)
        half = np.where(comparable, _quantile(freedom) * error, math.nan)
        low, high = np.exp(difference - half), np.exp(difference + half)
        with np.errstate(divide="ignore", invalid="ignore"):
            p = 2 * stats.t.sf(np.abs(difference) / error, freedom)
        verdict = np.select(
            [~comparable, np.isnan(half), low > 1, high < 1],
            [NEVER_MET, ONE_EACH, FASTER, SLOWER],
            default=EQUAL,
        )
        known = np.where(np.isnan(half), math.nan, freedom)
        columns = np.exp(difference), low, high, p, known, verdict, runs[i], runs[j]
        return pd.DataFrame(dict(zip(RATIO, columns)))

    def compare(self, first: Sequence, second: Sequence) -> dict:
        """Return RATIO of two configurations named by their `keys`; KeyError where one has no run."""
        return self.pairs([(self.places[tuple(first)], self.places[tuple(second)])]).iloc[0].to_dict()


def _quantile(freedom: np.ndarray | pd.Series) -> np.ndarray:
    """Student's two-sided quantile of CONFIDENCE; NaN without degrees of freedom."""
    return stats.t.ppf((1 + CONFIDENCE) / 2, freedom)


def fit(runs: pd.DataFrame, keys: Sequence[str], metric: str) -> Fit:
    """Fit the regression of log(`metric`) to `runs` of all machines; a warning of statsmodels is an error.

    `runs`: a row per run with host, OPTION, started, and ended where it is known, or measuring_session; rows
    without a value are left out. ValueError where `keys` lack the host or a figure is not above zero.
    """
    # Not statsmodels.api, whose import takes four times as long.
    from statsmodels.regression.linear_model import GLS

    if "host" not in keys:
        raise ValueError(f"Runs of several hosts are never pooled: add host to the keys {list(keys)}.")
    runs, keys = runs[runs[metric].notna()].reset_index(drop=True), list(keys)
    if (runs[metric] <= 0).any():
        raise ValueError(f"{metric} is not above zero in some runs: leave out runs without an answer.")
    if "measuring_session" not in runs:
        runs = runs.assign(measuring_session=measuring_sessions(runs))
    log, grouped = np.log(runs[metric].to_numpy(dtype=float)), runs.groupby(keys, dropna=False)
    x = pd.get_dummies(grouped.ngroup(), dtype=float).to_numpy()
    s = pd.get_dummies(runs["measuring_session"], dtype=float).to_numpy()
    both, met = np.hstack([x, s]), (x.T @ s) @ (s.T @ x) > 0
    runs = runs.join(scatter(runs, log, both))
    table = runs.groupby(keys, dropna=False).agg(
        runs=("host", "size"), measuring_sessions=("measuring_session", "nunique"), least=(metric, "min"),
        most=(metric, "max"), variance=("variance", "first"), freedom=("freedom", "first"),
    ).reset_index()  # fmt: skip
    if table["variance"].isna().all():
        effects, unknown = x.T @ log / x.sum(axis=0), np.full((len(table), len(table)), math.nan)
        return Fit(keys, table, effects, unknown, met, math.nan, 0)
    variance, session = runs["variance"].to_numpy(), math.nan
    session_freedom = int(np.linalg.matrix_rank(both)) - x.shape[1]
    if session_freedom:
        # Henderson's method 3: sums of squares that sessions explain, and their expectation (Searle, Casella
        # and McCulloch, Variance Components, 1992, chapter 5).
        alone = (_residuals(np.column_stack([log, s]), x, 1 / variance)[0] ** 2).sum(axis=0)
        explained = alone[0] - (_residuals(log, both, 1 / variance)[0] ** 2).sum()
        session = max((explained - session_freedom) / alone[1:].sum(), 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GLS(log, x, sigma=np.diag(variance) + np.nan_to_num(session) * s @ s.T).fit()
    covariance = np.asarray(model.normalized_cov_params)
    return Fit(keys, table, np.asarray(model.params), covariance, met, session, session_freedom)


def _residuals(values: np.ndarray, design: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what least squares of `weights` leave, times their root, and the leverage of each row."""
    root = np.sqrt(weights)
    hat = (root[:, None] * design) @ np.linalg.pinv(root[:, None] * design, rcond=1e-10)
    return (root * values.T).T - hat @ (root * values.T).T, np.diag(hat)


def scatter(runs: pd.DataFrame, log: np.ndarray, design: np.ndarray) -> pd.DataFrame:
    """Return the variance of each of `runs` and its degrees of freedom.

    It is that of the host times that of the option (on all hosts, in units of theirs), each `shrunk`; the
    freedom is the option's. Squares are those about the effects of `design`, in which a run counts as one
    less its leverage (Horn, Horn and Duncan, Journal of the American Statistical Association 70, 1975).
    """
    left, leverage = _residuals(log, design, np.ones(len(log)))
    rows = runs[["host", *OPTION]].assign(squares=left**2, freedom=1 - leverage)
    hosts = shrunk(rows.groupby("host")[["squares", "freedom"]].sum())
    host = hosts["variance"].reindex(runs["host"]).to_numpy()
    rows["squares"] /= host
    rows = rows[OPTION].join(shrunk(rows.groupby(OPTION)[["squares", "freedom"]].sum()), on=OPTION)
    return rows.assign(variance=rows["variance"] * host)[["variance", "freedom"]]


def shrunk(groups: pd.DataFrame) -> pd.DataFrame:
    """Return the variance of each group (columns squares, freedom) shrunk to the common one, and its freedom.

    Variances over the common one are distributed as F(freedom, prior); both by maximum likelihood. The common
    one then counts as `prior` runs (Smyth, Statistical Applications in Genetics and Molecular Biology 3,
    2004), and no group has more freedom than all together.
    """
    squares, freedom = groups["squares"].to_numpy(), groups["freedom"].to_numpy()
    known, total = freedom > EXACT, max(freedom.sum(), 1.0)
    if not known.any():
        return groups.assign(variance=math.nan, freedom=0.0)[["variance", "freedom"]]
    own, of = np.maximum(squares[known] / freedom[known], EXACT**2), freedom[known]

    def unlikely(logs: np.ndarray) -> float:
        prior, common = np.exp(logs)
        return -stats.f.logpdf(own, of, prior, scale=common).sum()

    start, bounds = [math.log(min(4, total)), np.log(own).mean()], [(0, math.log(total)), (None, None)]
    prior, common = np.exp(optimize.minimize(unlikely, start, method="Nelder-Mead", bounds=bounds).x)
    variance = (squares + prior * common) / (freedom + prior)
    return groups.assign(variance=variance, freedom=np.minimum(freedom + prior, total))[
        ["variance", "freedom"]
    ]


def rank(
    runs: pd.DataFrame, keys: Sequence[str], metric: str, higher_is_better: bool, model: Fit
) -> pd.DataFrame:
    """Order the configurations of `runs` (one row per run, of one machine) by their mean of `metric`.

    A row per configuration, best first, those that are not compared last; columns `keys` and RANK.
    may_be_best: not worse than the first by Holm over all that are compared with it; reason: why it is not
    compared (failed requests: column `failed`; a run whose tokens memory did not allow to check: column
    `not_judged`; no value; no repeated run; never met the others). `model`: `fit` of all machines' runs.
    """
    table = runs.groupby(list(keys), as_index=False, dropna=False).agg(
        failed=("failed", "sum"), not_judged=("not_judged", "max")
    )
    table = table.merge(model.means().assign(place=range(len(model.table))), "left", list(keys))
    table["runs"] = table["runs"].fillna(0).astype(int)
    conditions = [table["failed"] > 0, table["not_judged"] != "", table["runs"] == 0, table["low"].isna()]
    table["reason"] = np.select(conditions, [FAILED, NOT_JUDGED, NO_VALUE, ONE_EACH], default="")
    table = table.assign(excluded=table["reason"] != "", may_be_best=False)
    ascending = [True, not higher_is_better, *(True for _ in keys)]
    table = table.sort_values(["excluded", "mean", *keys], ascending=ascending, ignore_index=True)
    places = table.loc[~table["excluded"], "place"].astype(int)
    p = model.pairs([(places.iloc[0], place) for place in places[1:]])["p"]
    table.loc[places.index[1:][p.isna()], "reason"] = NEVER_MET
    table.loc[places.index, "may_be_best"] = [True, *(holm(p) >= 1 - CONFIDENCE)][: len(places)]
    return table.sort_values("reason", key=lambda reasons: reasons != "", kind="stable", ignore_index=True)[
        [*keys, *RANK]
    ]


def by_condition(
    runs: pd.DataFrame, keys: Sequence[str], metric: str, conditions: Sequence[str]
) -> pd.DataFrame:
    """Return `Fit.means` where an experiment has `conditions` (levels of load, shapes of a batch), of each a
    regression of its own.

    Columns conditions, keys, `metric` and `<metric>_interval`, half the width of the 95 % interval. A figure
    that is not above zero has no logarithm and is left out.
    """
    names = [*conditions, *keys]
    known = runs[runs[metric] > 0].groupby(list(conditions), dropna=False)
    parts = [fit(own, names, metric).means() for _, own in known]
    table = pd.concat(parts) if parts else pd.DataFrame(columns=[*names, *MEANS])
    return half_widths(table[[*names, "mean", "low", "high"]], metric)


def mean_interval(values: Sequence[float] | np.ndarray | pd.Series) -> tuple[float, float, float]:
    """Return (mean, low, high) of one figure per run, by Student's t, without a model.

    The interval is NaN for one run, all three are for none. Runs without a value are left out.
    """
    known = pd.Series(values, dtype=float).dropna()
    mean, half = known.mean(), _quantile(np.array(len(known) - 1)) * known.sem()
    return float(mean), float(mean - half), float(mean + half)


def within_runs(runs: pd.DataFrame, keys: Sequence[str], metric: str) -> pd.DataFrame:
    """Return `mean_interval` of a ratio inside each of `runs`: mean, low, high and runs per `keys`."""
    rows = [
        (*key, *mean_interval(own[metric]), own[metric].count())
        for key, own in runs.groupby(list(keys), dropna=False, sort=True)
    ]
    return pd.DataFrame(rows, columns=[*keys, "mean", "low", "high", "runs"])


def half_widths(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return `table` with its mean as `metric`, and `<metric>_interval`, half the width of its 95 % interval,
    instead of low and high."""
    half = (table["high"] - table["low"]).astype(float) / 2
    named = table.astype({"mean": float}).rename(columns={"mean": metric}).drop(columns=["low", "high"])
    return named.assign(**{f"{metric}_interval": half})
