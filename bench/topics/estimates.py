"""Which configuration is faster, and by how much: one regression of log(metric) for all machines.

Some hours are slower than others. A *cell* is a configuration in a measuring session (runs of one host
without a gap of an hour): the mean of log(metric) and the number of runs. The regression of the cells has a
fixed effect of each configuration on each host and a random one of each session. Its three variances are
pooled over hosts and come from the usual sums of squares: scatter between the runs of a cell, what a session
does to one configuration and not to others (so a cell of few runs varies more), and what it does to all
(Henderson's method 3; Searle, Casella and McCulloch, *Variance Components*, 1992, chapter 5). Then it is
generalised least squares, `statsmodels.api.GLS`.

Of two configurations that were measured in one session, the session's part cancels, and Student's t has the
residual degrees of freedom. Of two that never met it does not: their interval contains the sessions' variance
twice, and t has the degrees of freedom of that variance. `bench.topics.proof` counts how often both hold.

Give `fit` the runs of *all* machines, and choose rows afterwards:

    model = estimates.fit(latency.runs(requests), latency.VERSIONED, "ttft_s")
    model.means()                                   # every configuration with its interval
    model.compare(first, second, False)             # ratio, low, high, p, verdict; False: less is better
    estimates.best(estimates.rank(runs, keys, metric, model=model))  # (row, "") or (None, why not)
    estimates.mean_interval([3.41, 3.33, 4.04])     # a gain inside a run: mean and t over runs, no model
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats
from scipy.sparse.csgraph import connected_components

from bench.observations.peaks import measuring_sessions
from llm_measured.core.confidence import holm

CONFIDENCE = 0.95
FASTER, SLOWER, EQUAL = "faster", "slower", "cannot be distinguished"
ONE_EACH, NEVER_MET, NO_RUNS = "no repeated run", "never in one measuring session", "no runs of one of them"
ONE_RUN, ONE_SESSION, OUTSIDE = "one run", "one measuring session", "outside the range of its runs"
FAILED, NOT_JUDGED, NO_VALUE = "failed requests", "not judged", "no value"
RATIO = ["ratio", "low", "high", "p", "degrees_of_freedom", "verdict", "runs", "baseline_runs"]
MEANS = ["mean", "low", "high", "runs", "measuring_sessions", "least", "most", "note"]
INTERVAL = ["mean", "low", "high"]
RANK = [*MEANS, "may_be_best", "reason"]
# Runs that scatter by less, in logarithms, are equal: figures are stored with about so many digits.
EXACT = 1e-9


@dataclass(frozen=True)
class Fit:
    """Estimates of the configurations of all machines.

    `keys` (columns that name a configuration and its host), `table` (a row per configuration: keys, runs,
    measuring_sessions, least and most of its runs in the metric's unit), `effects` and `covariance` (of the
    logs of their means; NaN where no run was repeated), `met` (whether two shared a measuring session),
    `hosts`, `variances` {run, cell, session} of log(metric) (session: NaN where no session was repeated),
    degrees of freedom of the residual and of the sessions.
    """

    keys: list[str]
    table: pd.DataFrame
    effects: np.ndarray
    covariance: np.ndarray
    met: np.ndarray
    alike: np.ndarray
    hosts: np.ndarray
    variances: dict[str, float]
    residual_freedom: int
    session_freedom: int

    @functools.cached_property
    def places(self) -> dict[tuple, int]:
        """The row in `table` of each configuration, a tuple of `keys`."""
        return {tuple(row): place for place, row in enumerate(self.table[self.keys].to_numpy(dtype=object))}

    def place(self, key: Sequence) -> int:
        """Return the row in `table` of the configuration `key`; KeyError where it has no run."""
        if tuple(key) not in self.places:
            known = ", ".join(" ".join(map(str, name)) for name in self.places)
            raise KeyError(f"No run of {tuple(key)}: take one of {known}.")
        return self.places[tuple(key)]

    def means(self) -> pd.DataFrame:
        """Return a row per configuration: keys and MEANS, geometric means in the metric's unit.

        The interval contains the sessions' variance where it is known. `note` says where it is not, and where
        the mean lies outside the range of the configuration's own runs.
        """
        half = _quantile(self.residual_freedom) * np.sqrt(np.diag(self.covariance))
        table, mean = self.table, np.exp(self.effects)
        outside = (mean < table["least"] * (1 - EXACT)) | (mean > table["most"] * (1 + EXACT))
        notes = {
            ONE_RUN: table["runs"] == 1,
            ONE_SESSION: (table["runs"] > 1) & (table["measuring_sessions"] == 1),
            OUTSIDE: outside,
        }
        note = [", ".join(text for text, holds in notes.items() if holds.iloc[i]) for i in range(len(table))]
        found = {"mean": mean, "low": np.exp(self.effects - half), "high": np.exp(self.effects + half)}
        return table.assign(**found, note=note)[[*self.keys, *MEANS]]

    def pairs(self, pairs: Sequence[tuple[int, int]], higher_is_better: bool = True) -> pd.DataFrame:
        """Return the mean of the first of each of `pairs` (rows of `table`, of one host) over the second's.

        A row per pair; columns first, second and RATIO. Interval and p are empty, and the verdict says why,
        where no run was repeated, where the two never met and no session was repeated, or on two hosts.
        """
        table = pd.DataFrame(list(pairs), columns=["first", "second"], dtype=int)
        i, j = table["first"].to_numpy(), table["second"].to_numpy()
        difference, covariance = self.effects[i] - self.effects[j], self.covariance
        error = np.sqrt(np.maximum(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j], 0))
        met, same = self.met[i, j], self.hosts[i] == self.hosts[j]
        freedom = np.where(met, self.residual_freedom, self.session_freedom)
        comparable = same & (met | (self.session_freedom > 0))
        difference = np.where(comparable, difference, math.nan)
        half = np.where(comparable, _quantile(freedom) * error, math.nan)
        low, high = np.exp(difference - half), np.exp(difference + half)
        above, below = (low > 1, high < 1) if higher_is_better else (high < 1, low > 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            p = 2 * stats.t.sf(np.abs(difference) / error, np.maximum(freedom, 1))
        verdict = np.select(
            [~comparable, np.isnan(error), above, below], [NEVER_MET, ONE_EACH, FASTER, SLOWER], default=EQUAL
        )
        runs = self.table["runs"].to_numpy()
        return table.assign(
            ratio=np.exp(difference), low=low, high=high, p=p,
            degrees_of_freedom=np.where(np.isnan(half), math.nan, freedom),
            verdict=verdict, runs=runs[i], baseline_runs=runs[j],
        )  # fmt: skip

    def compare(self, first: Sequence, second: Sequence, higher_is_better: bool = True) -> dict:
        """Return RATIO of two configurations named by their `keys`; KeyError where one has no run."""
        return (
            self.pairs([(self.place(first), self.place(second))], higher_is_better)[RATIO].iloc[0].to_dict()
        )


def _quantile(freedom: np.ndarray | int) -> np.ndarray:
    """Student's two-sided quantile of CONFIDENCE; NaN without degrees of freedom."""
    return np.where(
        np.asarray(freedom) > 0, stats.t.ppf((1 + CONFIDENCE) / 2, np.maximum(freedom, 1)), np.nan
    )


def cells(runs: pd.DataFrame, keys: Sequence[str], metric: str) -> pd.DataFrame:
    """Return a row per configuration (`keys`) and measuring session: mean log(`metric`), runs.

    `runs`: one row per run with host, started, and ended where it is known; rows without a value are left
    out. Columns keys, host, measuring_session, mean, squares (about the mean), runs, least, most. ValueError
    where a figure is not above zero.
    """
    runs = runs[runs[metric].notna()]
    if (runs[metric] <= 0).any():
        raise ValueError(f"{metric} is not above zero in some runs: leave out runs without an answer.")
    names = list(dict.fromkeys([*keys, "host", "measuring_session"]))
    runs = runs.assign(measuring_session=measuring_sessions(runs))[[*names, metric]]
    # Sums by numbers of groups: pandas' own `agg` takes five times as long, and a page fits hundreds.
    cell = runs.groupby(names, dropna=False, sort=True).ngroup().to_numpy()
    first, count = np.unique(cell, return_index=True, return_counts=True)[1:]
    figure = runs[metric].to_numpy(dtype=float)
    log = np.log(figure)
    mean = np.bincount(cell, log) / count
    by_cell = figure[np.argsort(cell, kind="stable")]
    starts = np.cumsum(count) - count
    return (
        runs[names]
        .iloc[first]
        .reset_index(drop=True)
        .assign(
            mean=mean,
            squares=np.bincount(cell, (log - mean[cell]) ** 2),
            runs=count,
            least=np.minimum.reduceat(by_cell, starts) if len(starts) else by_cell,
            most=np.maximum.reduceat(by_cell, starts) if len(starts) else by_cell,
        )
    )


def fit(runs: pd.DataFrame, keys: Sequence[str], metric: str) -> Fit:
    """Fit the regression of log(`metric`) to `runs` of all machines (`cells`); `keys` hold the host.

    ValueError where `keys` lack the host or a figure is not above zero.
    """
    if "host" not in keys:
        raise ValueError(f"Runs of several hosts are never pooled: add host to the keys {list(keys)}.")
    return fit_cells(cells(runs, keys, metric), keys)


def fit_cells(table: pd.DataFrame, keys: Sequence[str]) -> Fit:
    """Fit the regression to the rows of `cells`; a warning of statsmodels is an error.

    ValueError where the design is rank-deficient: least squares would answer without a word.
    """
    import statsmodels.regression.linear_model  # noqa: F401 - its import may warn

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return _fit_cells(table, keys)


def _fit_cells(table: pd.DataFrame, keys: Sequence[str]) -> Fit:
    # Not statsmodels.api, whose import takes four times as long.
    from statsmodels.regression.linear_model import GLS, OLS, WLS

    keys = list(keys)
    mean, runs = table["mean"].to_numpy(), table["runs"].to_numpy()
    configuration = table.groupby(keys, dropna=False, sort=False).ngroup().to_numpy()
    session = pd.factorize(table["measuring_session"])[0]
    x, s = (
        np.eye(configuration.max(initial=-1) + 1)[configuration],
        np.eye(session.max(initial=-1) + 1)[session],
    )
    by_configuration = table.assign(configuration=configuration).groupby("configuration")
    every = table[keys].iloc[np.unique(configuration, return_index=True)[1]].reset_index(drop=True)
    every = every.assign(
        runs=(x.T @ runs).astype(int),
        measuring_sessions=((x.T @ s) > 0).sum(axis=1),
        least=by_configuration["least"].min().to_numpy(),
        most=by_configuration["most"].max().to_numpy(),
    )
    met = (x.T @ s) @ (s.T @ x) > 0
    alike = np.unique(x.T @ (runs[:, None] * s), axis=0, return_inverse=True)[1].ravel()
    hosts = every["host"].to_numpy()
    # Sessions that no configuration connects have a level of their own: one of each chain is its reference.
    chain = connected_components((s.T @ x) @ (x.T @ s))[1] if len(table) else np.empty(0, dtype=int)
    free = pd.Series(chain).duplicated().to_numpy()
    full = np.hstack([x, s[:, free]])
    rank_of_design = np.linalg.matrix_rank(full) if full.size else full.shape[1]
    if rank_of_design < full.shape[1]:
        raise ValueError(
            f"The design has rank {rank_of_design} of {full.shape[1]}: these runs cannot tell some of its "
            "configurations and sessions from each other."
        )
    run_freedom, freedom, session_freedom = (
        int(runs.sum()) - len(runs),
        len(full) - full.shape[1],
        int(free.sum()),
    )
    unknown = np.full((len(every), len(every)), math.nan)
    if run_freedom + freedom == 0:
        effects = pd.Series(mean).groupby(configuration).mean().to_numpy()
        return Fit(keys, every, effects, unknown, met, alike, hosts, {}, 0, 0)
    run = max(table["squares"].sum() / run_freedom, EXACT**2) if run_freedom else 0.0
    cell = 0.0
    if freedom:
        plain = OLS(mean, full).fit()
        rest = 1 - np.sum(np.linalg.qr(full)[0] ** 2, axis=1)  # of a cell's variance in its residual
        cell = max((plain.ssr - run * np.sum(rest / runs)) / freedom, 0.0 if run else EXACT**2)
    variance = cell + run / runs
    between, shared = 0.0, math.nan
    if session_freedom:
        weights = 1 / variance
        explained = WLS(mean, x, weights).fit().ssr - WLS(mean, full, weights).fit().ssr
        trace = weights.sum() - np.sum((x.T @ weights**2) / (x.T @ weights))
        between = shared = max((explained - session_freedom) / trace, 0.0)
    model = GLS(mean, x, sigma=np.diag(variance) + between * s @ s.T).fit()
    return Fit(
        keys,
        every,
        np.asarray(model.params),
        np.asarray(model.normalized_cov_params),
        met,
        alike,
        hosts,
        {"run": run, "cell": cell, "session": shared},
        freedom or run_freedom,
        session_freedom,
    )


def rank(
    runs: pd.DataFrame,
    keys: Sequence[str],
    metric: str,
    higher_is_better: bool = True,
    model: Fit | None = None,
) -> pd.DataFrame:
    """Order the configurations of `runs` (one row per run, of one machine) by their mean of `metric`.

    A row per configuration, best first, those that are not compared last; columns `keys` and RANK.
    may_be_best: not worse than the first by Holm over all that are compared with it; reason: why it is not
    compared (failed requests: column `failed`; a run whose tokens memory did not allow to check: column
    `not_judged`; no value; no repeated run; never met the others). `model`: `fit` of the runs of all
    machines, else that of `runs`.
    """
    keys = list(keys)
    model = model or fit(runs, keys, metric)
    faults = (
        runs.assign(failed=runs.get("failed", 0), not_judged=runs.get("not_judged", ""))
        .groupby(keys, as_index=False, dropna=False)
        .agg(failed=("failed", "sum"), not_judged=("not_judged", "max"))
    )
    table = faults.merge(model.means().assign(place=range(len(model.table))), "left", keys)
    table["runs"] = table["runs"].fillna(0).astype(int)
    conditions = [table["failed"] > 0, table["not_judged"] != "", table["runs"] == 0, table["low"].isna()]
    table["reason"] = np.select(conditions, [FAILED, NOT_JUDGED, NO_VALUE, ONE_EACH], default="")
    table = table.assign(excluded=table["reason"] != "").sort_values(
        ["excluded", "mean", *keys], ascending=[True, not higher_is_better, *(True for _ in keys)]
    )
    table = table.reset_index(drop=True).assign(may_be_best=False)
    ranked = table.index[~table["excluded"]]
    if len(ranked):
        first = int(table["place"].iloc[0])
        p = model.pairs([(first, int(place)) for place in table.loc[ranked[1:], "place"]])["p"].to_numpy()
        table.loc[ranked[1:][np.isnan(p)], "reason"] = NEVER_MET
        table.loc[ranked, "may_be_best"] = np.r_[True, holm(p) >= 1 - CONFIDENCE]
    order = (table["reason"] != "").sort_values(kind="stable").index
    return table.loc[order, [*keys, *RANK]].reset_index(drop=True)


def best(ranked: pd.DataFrame) -> tuple[pd.Series | None, str]:
    """Return (the best row of `rank`, ""), or (None, a clause why no row may be called best).

    A row is best if all others that were compared are worse by Holm, and no configuration that was not
    compared has all its runs above the mean of this one.
    """
    leaders = ranked[ranked["may_be_best"]]
    if len(leaders) != 1:
        return None, "nothing was compared" if leaders.empty else f"{len(leaders)} cannot be distinguished"
    leader = leaders.iloc[0]
    out = ranked[(ranked["reason"] != "") & all_runs_better(ranked, leader["mean"])]
    if out.empty:
        return leader, ""
    named = ", ".join(f"{row['backend']} {row['option']} ({row['reason']})" for _, row in out.iterrows())
    return None, f"not compared, and all runs better: {named}"


def all_runs_better(table: pd.DataFrame, mean: float, higher_is_better: bool = True) -> pd.Series:
    """Return which rows (columns least and most, of their runs) have all runs better than `mean`."""
    return table["least"] > mean if higher_is_better else table["most"] < mean


def mean_interval(values: Sequence[float] | np.ndarray | pd.Series) -> tuple[float, float, float]:
    """Return (mean, low, high) of one figure per run, by Student's t, without a model.

    The interval is NaN for one run, all three are for none. Runs without a value are left out.
    """
    known = np.asarray(values, dtype=float)
    known = known[~np.isnan(known)]
    if len(known) < 2:
        return (float(known[0]) if len(known) else math.nan), math.nan, math.nan
    from statsmodels.stats.weightstats import DescrStatsW

    sample = DescrStatsW(known)
    if sample.std == 0:
        return float(known[0]), float(known[0]), float(known[0])
    low, high = sample.tconfint_mean(1 - CONFIDENCE)
    return float(sample.mean), float(low), float(high)


def within_runs(runs: pd.DataFrame, keys: Sequence[str], metric: str) -> pd.DataFrame:
    """Return `mean_interval` of a ratio inside each of `runs`: INTERVAL and runs per `keys`."""
    rows = [
        (*key, *mean_interval(own[metric]), own[metric].count())
        for key, own in runs.groupby(list(keys), dropna=False, sort=True)
    ]
    return pd.DataFrame(rows, columns=[*keys, *INTERVAL, "runs"])
