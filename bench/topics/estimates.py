"""Which configuration is faster, and by how much: one regression of log(metric) for all machines.

Some hours are slower than others. A *cell* is a configuration in a measuring session (runs of one host
without a gap of an hour): the mean of log(metric) over its runs. The regression of the cells has a fixed
effect of each configuration on each host and a random one of each session. The scatter between runs is each
host's own, shrunk to the pooled one (`scatter`). Then it is generalised least squares, `statsmodels` GLS;
pages/_regression.qmd has the same numbers from ten lines of statsmodels.

Of two configurations that were measured in one session, the session's part cancels, and Student's t has the
degrees of freedom of the host's scatter. Of two that never met it does not: their interval contains the
sessions' variance twice, and t has the degrees of freedom of that variance. `bench.topics.proof` counts how
often both hold.

Give `fit` the runs of *all* machines, and choose rows afterwards:

    model = estimates.fit(latency.runs(requests), latency.VERSIONED, "ttft_s")
    model.means()                                   # every configuration with its interval
    model.compare(first, second, False)             # ratio, low, high, p, verdict; False: less is better
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
ONE_EACH, NEVER_MET = "no repeated run", "never in one measuring session"
ONE_RUN, ONE_SESSION, OUTSIDE = "one run", "one measuring session", "outside the range of its runs"
FAILED, NOT_JUDGED, NO_VALUE = "failed requests", "not judged", "no value"
RATIO = ["ratio", "low", "high", "p", "degrees_of_freedom", "verdict", "runs", "baseline_runs"]
MEANS = ["mean", "low", "high", "runs", "measuring_sessions", "least", "most", "note"]
RANK = [*MEANS, "may_be_best", "reason"]
# Runs that scatter by less, in logarithms, are equal: figures are stored with about so many digits.
EXACT = 1e-9


@dataclass(frozen=True)
class Fit:
    """Estimates of the configurations of all machines.

    `keys` (columns that name a configuration and its host), `table` (a row per configuration: keys, runs,
    measuring_sessions, least and most of its runs in the metric's unit), `effects` and `covariance` (of the
    logs of their means; NaN where no run was repeated), `met` (whether two shared a measuring session),
    `hosts` (a row per host: variance between runs and freedom, both shrunk: `scatter`), `session` (variance
    of the sessions; NaN where none was repeated) and its degrees of freedom.
    """

    keys: list[str]
    table: pd.DataFrame
    effects: np.ndarray
    covariance: np.ndarray
    met: np.ndarray
    hosts: pd.DataFrame
    session: float
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
        table, mean = self.table, np.exp(self.effects)
        freedom = self.hosts["freedom"].reindex(table["host"]).to_numpy()
        half = _quantile(freedom) * np.sqrt(np.diag(self.covariance))
        notes = {
            ONE_RUN: table["runs"] == 1,
            ONE_SESSION: (table["runs"] > 1) & (table["measuring_sessions"] == 1),
            OUTSIDE: (mean < table["least"] * (1 - EXACT)) | (mean > table["most"] * (1 + EXACT)),
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
        host, covariance = self.table["host"].to_numpy(), self.covariance
        error = np.sqrt(np.maximum(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j], 0))
        own = self.hosts["freedom"].reindex(host[i]).to_numpy()
        freedom = np.where(self.met[i, j], own, self.session_freedom)
        comparable = (host[i] == host[j]) & (self.met[i, j] | (self.session_freedom > 0))
        difference = np.where(comparable, self.effects[i] - self.effects[j], math.nan)
        half = np.where(comparable, _quantile(freedom) * error, math.nan)
        low, high = np.exp(difference - half), np.exp(difference + half)
        above, below = (low > 1, high < 1) if higher_is_better else (high < 1, low > 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            p = 2 * stats.t.sf(np.abs(difference) / error, np.maximum(freedom, 1))
        verdict = np.select(
            [~comparable, np.isnan(half), above, below], [NEVER_MET, ONE_EACH, FASTER, SLOWER], default=EQUAL
        )
        runs = self.table["runs"].to_numpy()
        return table.assign(
            ratio=np.exp(difference), low=low, high=high, p=p,
            degrees_of_freedom=np.where(np.isnan(half), math.nan, freedom),
            verdict=verdict, runs=runs[i], baseline_runs=runs[j],
        )  # fmt: skip

    def compare(self, first: Sequence, second: Sequence, higher_is_better: bool = True) -> dict:
        """Return RATIO of two configurations named by their `keys`; KeyError where one has no run."""
        pair = self.place(first), self.place(second)
        return self.pairs([pair], higher_is_better)[RATIO].iloc[0].to_dict()


def _quantile(freedom: np.ndarray) -> np.ndarray:
    """Student's two-sided quantile of CONFIDENCE; NaN without degrees of freedom."""
    return np.where(freedom > 0, stats.t.ppf((1 + CONFIDENCE) / 2, np.maximum(freedom, 1)), math.nan)


def cells(runs: pd.DataFrame, keys: Sequence[str], metric: str) -> pd.DataFrame:
    """Return a row per configuration (`keys`) and measuring session: mean log(`metric`), runs.

    `runs`: one row per run with host, started, and ended where it is known; rows without a value are left
    out. Columns keys, measuring_session, mean, squares (about the mean), runs, least, most. ValueError where
    `keys` lack the host or a figure is not above zero.
    """
    if "host" not in keys:
        raise ValueError(f"Runs of several hosts are never pooled: add host to the keys {list(keys)}.")
    runs = runs[runs[metric].notna()]
    if (runs[metric] <= 0).any():
        raise ValueError(f"{metric} is not above zero in some runs: leave out runs without an answer.")
    runs = runs.assign(measuring_session=measuring_sessions(runs), log=np.log(runs[metric].astype(float)))
    table = runs.groupby([*keys, "measuring_session"], dropna=False, sort=True).agg(
        mean=("log", "mean"), variance=("log", "var"), runs=("log", "size"),
        least=(metric, "min"), most=(metric, "max"),
    )  # fmt: skip
    squares = table.pop("variance").fillna(0) * (table["runs"] - 1)
    return table.assign(squares=squares).reset_index()


def fit(runs: pd.DataFrame, keys: Sequence[str], metric: str) -> Fit:
    """Fit the regression of log(`metric`) to `runs` of all machines; ValueError as `cells` has it."""
    return fit_cells(cells(runs, keys, metric), keys)


def fit_cells(table: pd.DataFrame, keys: Sequence[str]) -> Fit:
    """Fit the regression to the rows of `cells`; a warning of statsmodels is an error."""
    # Not statsmodels.api, whose import takes four times as long.
    from statsmodels.regression.linear_model import GLS

    keys, mean, runs = list(keys), table["mean"].to_numpy(), table["runs"].to_numpy()
    configuration = table.groupby(keys, dropna=False, sort=False).ngroup()
    x = pd.get_dummies(configuration, dtype=float).to_numpy()
    s = pd.get_dummies(table["measuring_session"], dtype=float).to_numpy()
    by_configuration = table.groupby(configuration)
    every = table.loc[~configuration.duplicated(), keys].reset_index(drop=True).assign(
        runs=by_configuration["runs"].sum(), measuring_sessions=by_configuration.size(),
        least=by_configuration["least"].min(), most=by_configuration["most"].max(),
    )  # fmt: skip
    met = (x.T @ s) @ (s.T @ x) > 0
    # A session's effect is free as far as configurations connect it with another one of its chain.
    chains = connected_components((s.T @ x) @ (x.T @ s))[0] if len(table) else 0
    session_freedom = s.shape[1] - chains
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hosts = scatter(table, x, s)
        if not (hosts["freedom"] > 0).any():
            effects = by_configuration["mean"].mean().to_numpy()
            unknown = np.full((len(every), len(every)), math.nan)
            return Fit(keys, every, effects, unknown, met, hosts, math.nan, 0)
        variance = hosts["variance"].reindex(table["host"]).to_numpy() / runs
        session = math.nan
        if session_freedom:
            # Henderson's method 3: sums of squares that sessions explain, and their expectation (Searle,
            # Casella and McCulloch, Variance Components, 1992, chapter 5).
            weights = 1 / variance
            both = np.column_stack([mean, s])
            apart = both - x @ ((x.T * weights) @ both / (x.T @ weights)[:, None])
            left = weights @ apart**2  # by configurations alone: of the means, then of each session
            explained = left[0] - _left(mean, np.hstack([x, s]), weights)
            session = max((explained - session_freedom) / left[1:].sum(), 0.0)
        between = np.nan_to_num(session)
        model = GLS(mean, x, sigma=np.diag(variance) + between * s @ s.T).fit()
    covariance = np.asarray(model.normalized_cov_params)
    return Fit(keys, every, np.asarray(model.params), covariance, met, hosts, session, session_freedom)


def _left(mean: np.ndarray, design: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted sum of squares that `design` leaves, of whatever rank it is."""
    root = np.sqrt(weights)
    effects = np.linalg.lstsq(root[:, None] * design, root * mean)[0]
    return float(weights @ (mean - design @ effects) ** 2)


def scatter(table: pd.DataFrame, x: np.ndarray, s: np.ndarray) -> pd.DataFrame:
    """Return the variance between runs of each host of `cells`, shrunk to the pooled one, and its freedom.

    A host's own variance is that of its runs about the effects of its configurations `x` and sessions `s`.
    How much hosts differ is the variance of its logarithm in a random-effects meta-analysis; the pooled one
    counts as so many degrees of freedom as would scatter alike (Smyth, Statistical Applications in Genetics
    and Molecular Biology 3, 2004; the first term of its trigamma function). Rows host; columns freedom (at
    most that of all hosts together), own and variance.
    """
    from statsmodels.stats.meta_analysis import combine_effects

    rows = {}
    for host, own in table.groupby("host", sort=True):
        runs, own_x, own_s = own["runs"].to_numpy(), x[own.index], s[own.index]
        own_x, own_s = own_x[:, own_x.any(axis=0)], own_s[:, own_s.any(axis=0)]
        chains = connected_components((own_s.T @ own_x) @ (own_x.T @ own_s))[0]
        freedom = int(runs.sum()) - (own_x.shape[1] + own_s.shape[1] - chains)
        left = _left(own["mean"].to_numpy(), np.hstack([own_x, own_s]), runs) + own["squares"].sum()
        rows[host] = freedom, max(left / freedom, EXACT**2) if freedom else math.nan
    hosts = pd.DataFrame.from_dict(rows, orient="index", columns=["freedom", "own"], dtype=float)
    known, differ = hosts[hosts["freedom"] > 0], 0.0
    if known.empty:
        return hosts.assign(variance=math.nan)
    if len(known) > 1:
        logs, errors = np.log(known["own"].to_numpy()), 2 / known["freedom"].to_numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of hosts that are exactly alike, which do not differ
            differ = combine_effects(logs, errors, method_re="iterated").tau2
        differ = max(float(np.nan_to_num(differ)), 0.0)
    pooled = (known["freedom"] * known["own"]).sum() / known["freedom"].sum()
    prior = 2 / differ if differ > 0 else math.inf
    weight = 1 / (1 + hosts["freedom"] * differ / 2)
    return hosts.assign(
        variance=weight * pooled + (1 - weight) * hosts["own"].fillna(0),
        freedom=np.minimum(hosts["freedom"] + prior, hosts["freedom"].sum()),
    )


def rank(
    runs: pd.DataFrame, keys: Sequence[str], metric: str, higher_is_better: bool, model: Fit
) -> pd.DataFrame:
    """Order the configurations of `runs` (one row per run, of one machine) by their mean of `metric`.

    A row per configuration, best first, those that are not compared last; columns `keys` and RANK.
    may_be_best: not worse than the first by Holm over all that are compared with it; reason: why it is not
    compared (failed requests: column `failed`; a run whose tokens memory did not allow to check: column
    `not_judged`; no value; no repeated run; never met the others). `model`: `fit` of all machines' runs.
    """
    keys = list(keys)
    table = runs.groupby(keys, as_index=False, dropna=False).agg(
        failed=("failed", "sum"), not_judged=("not_judged", "max")
    )
    table = table.merge(model.means().assign(place=range(len(model.table))), "left", keys)
    table["runs"] = table["runs"].fillna(0).astype(int)
    conditions = [table["failed"] > 0, table["not_judged"] != "", table["runs"] == 0, table["low"].isna()]
    table["reason"] = np.select(conditions, [FAILED, NOT_JUDGED, NO_VALUE, ONE_EACH], default="")
    table = table.assign(excluded=table["reason"] != "", may_be_best=False)
    ascending = [True, not higher_is_better, *(True for _ in keys)]
    table = table.sort_values(["excluded", "mean", *keys], ascending=ascending, ignore_index=True)
    ranked = table.index[~table["excluded"]]
    if len(ranked):
        first = int(table["place"].iloc[0])
        p = model.pairs([(first, int(place)) for place in table.loc[ranked[1:], "place"]])["p"].to_numpy()
        table.loc[ranked[1:][np.isnan(p)], "reason"] = NEVER_MET
        table.loc[ranked, "may_be_best"] = np.r_[True, holm(p) >= 1 - CONFIDENCE]
    order = (table["reason"] != "").sort_values(kind="stable").index
    return table.loc[order, [*keys, *RANK]].reset_index(drop=True)


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
    """Return `mean_interval` of a ratio inside each of `runs`: mean, low, high and runs per `keys`."""
    rows = [
        (*key, *mean_interval(own[metric]), own[metric].count())
        for key, own in runs.groupby(list(keys), dropna=False, sort=True)
    ]
    return pd.DataFrame(rows, columns=[*keys, "mean", "low", "high", "runs"])
