"""Which configuration is faster, and by how much: one model of log(metric) over all runs of a machine.

A machine has good hours and bad ones, so runs of different sittings differ for reasons that are none of the
engines'. The model has a fixed effect of each configuration and of each sitting, and a random one of each
configuration in each sitting (what a sitting does to one engine and not to the others); where a machine's
processors have two placements (`placement`), also a fixed effect of the placement and a random one of each
configuration in it. What it says of two configurations is then what it would have been had both been measured
in every sitting and in each placement equally often.

The variances are the restricted maximum likelihood's, as statsmodels' MixedLM has it. Few sittings say little
of how much sittings matter, and often look as if they did not; so the variance of each random effect, over
that of the residual, is drawn towards what the machines with many sittings have shown (`known_prior`), as
penalised likelihoods do (Chung, Rabe-Hesketh, Dorie, Gelman and Liu, *A Nondegenerate Penalized Likelihood
Estimator for Variance Parameters in Multilevel Models*, Psychometrika 78, 2013). A machine of one sitting
borrows theirs altogether. Intervals are Student's t with Satterthwaite's degrees of freedom (Giesbrecht and
Burns, *Two-Stage Analysis Based on a Mixed Model*, Biometrics 41, 1985), which count what the likelihood and
the prior know. `bench.analysis.proof` counts how often the intervals hold in the design of the committed
runs, also where the prior is wrong.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import linalg, optimize, stats
from scipy.sparse.csgraph import connected_components

from bench import inputs

# {random effect: (mean, standard deviation) of the log of its variance over the residual's}.
Prior = dict[str, tuple[float, float]]

CONFIDENCE = 0.95
SITTING_GAP_S = 3600.0
FASTER, SLOWER, EQUAL = "faster", "slower", "cannot be distinguished"
ONE_EACH, NO_SCATTER, NOT_CONNECTED, NO_RUNS = (
    "one run each",
    "no repeated run",
    "never in connected sittings",
    "no runs of one of them",
)
ONE_RUN, ONE_SITTING = "one run", "one sitting"
RATIO = [
    "ratio",
    "low",
    "high",
    "p",
    "degrees_of_freedom",
    "verdict",
    "runs",
    "baseline_runs",
    "rounds_to_settle",
]
MEANS = ["mean", "low", "high", "runs", "sittings", "note"]
# Rounds come in sittings of so many, and nobody plans for more than so many in all.
ROUNDS_A_SITTING, MOST_ROUNDS = 3, 60
# How many differences between a configuration's sittings a machine's components of variance must rest on to
# count in the prior, and how far it is never narrower than (standard deviation of the log of a variance).
PRIOR_FREEDOM, PRIOR_WIDTH = 6, 1.0
# Where nothing is known: a tenth of the residual's variance, or anything else.
VAGUE = {"sitting": (math.log(0.1), 3.0), "placement": (math.log(0.1), 3.0)}
# Between which ratios of a random effect's variance to the residual's the likelihood is climbed, as
# logarithms.
LOG_RATIOS = math.log(1e-5), math.log(1e3)
# Runs that scatter by less, in logarithms, are equal: figures are stored with about so many digits.
EXACT = 1e-9


def sittings(runs: pd.DataFrame, gap_s: float = SITTING_GAP_S) -> pd.Series:
    """The number of the sitting of each run, from 0 in the order of time, with the index of `runs`.

    A sitting has the runs of one experiment on one host between which no hour passes without one of them;
    columns started, host and experiment (without them all runs are of one), and ended where it is known (else
    a run ends as it starts).
    """
    started = _moments(runs["started"])
    ended = _moments(runs["ended"]) if "ended" in runs else started
    ended = np.where(np.isnat(ended), started, ended)
    numbers, where = np.zeros(len(runs), dtype=int), numbered(_where(runs))[0]
    for place in range(where.max(initial=-1) + 1):
        own = np.flatnonzero(where == place)
        order = own[np.argsort(started[own], kind="stable")]
        idle = started[order][1:] - np.maximum.accumulate(ended[order])[:-1]
        numbers[order[1:]] = np.cumsum(idle > np.timedelta64(round(gap_s * 1e9), "ns"))
    return pd.Series(numbers, index=runs.index)


def _moments(times: pd.Series) -> np.ndarray:
    """Texts of points in time, or points in time, as datetime64 in UTC."""
    return pd.to_datetime(times, utc=True).dt.tz_localize(None).to_numpy(dtype="datetime64[ns]")


def _where(runs: pd.DataFrame) -> list[pd.Series]:
    """What runs of one sitting have in common besides the time: host and experiment, as far as `runs`
    says."""
    return [runs[name] for name in ("host", "experiment") if name in runs] or [
        pd.Series("", index=runs.index)
    ]


@dataclass(frozen=True)
class Fit:
    """What the model says of the configurations of one machine.

    `keys` (columns that name a configuration), `table` (one row per configuration: keys, runs, sittings,
    chain: configurations of one chain are connected by sittings; alike: those of one number have as many runs
    in each sitting and placement, so their means are known equally well), `effects` and `covariance` (of the
    log of each configuration's adjusted mean), `variances` {residual, sitting, placement: of log(metric)},
    and what Satterthwaite's degrees of freedom take: `gradients` (of `covariance` by each variance),
    `information`.
    """

    keys: list[str]
    table: pd.DataFrame
    effects: np.ndarray
    covariance: np.ndarray
    variances: dict[str, float]
    gradients: np.ndarray
    information: np.ndarray

    @property
    def has_scatter(self) -> bool:
        """Whether any two runs can be compared with each other, so that there are intervals at all."""
        return "residual" in self.variances

    @functools.cached_property
    def places(self) -> dict[tuple, int]:
        """Where each configuration (a tuple of `keys`) stands in `table`."""
        names = zip(*(self.table[key] for key in self.keys))
        return {name: place for place, name in enumerate(names)}

    def place(self, key: Sequence) -> int:
        """Where the configuration `key` stands in `table`; KeyError where it is not."""
        if tuple(key) not in self.places:
            known = ", ".join(" ".join(map(str, name)) for name in self.places)
            raise KeyError(f"No run of {tuple(key)}: take one of {known}.")
        return self.places[tuple(key)]

    def contrasts(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(estimates, standard errors, degrees of freedom) of weighted sums of the logs of adjusted means,
        one for each row of `weights`; errors are NaN where no run was repeated."""
        middle = weights @ self.effects
        if not self.has_scatter:
            return middle, np.full(len(weights), math.nan), np.zeros(len(weights))
        variance = np.einsum("mi,ij,mj->m", weights, self.covariance, weights)
        slopes = np.einsum("mi,kij,mj->mk", weights, self.gradients, weights)
        uncertain = np.einsum("mk,kl,ml->m", slopes, linalg.pinvh(self.information), slopes)
        with np.errstate(invalid="ignore"):  # a configuration against itself
            return middle, np.sqrt(variance), np.maximum(2 * variance**2 / uncertain, 1.0)

    def means(self, confidence: float = CONFIDENCE) -> pd.DataFrame:
        """One row per configuration; columns keys and MEANS: the adjusted mean (geometric, sittings and
        placements weighing equally) with its interval in the metric's unit, and what is to be said of it."""
        middle, error, freedom = self.contrasts(np.eye(len(self.effects)))
        half = stats.t.ppf((1 + confidence) / 2, np.maximum(freedom, 1)) * error
        once, together = self.table["runs"] == 1, self.table["sittings"] == 1
        figures = {"mean": np.exp(middle), "low": np.exp(middle - half), "high": np.exp(middle + half)}
        note = np.select([once, together], [ONE_RUN, ONE_SITTING], default="")
        return self.table[[*self.keys, "runs", "sittings"]].assign(**figures, note=note)[[*self.keys, *MEANS]]

    def pairs(
        self,
        pairs: Sequence[tuple[int, int]],
        higher_is_better: bool = True,
        confidence: float = CONFIDENCE,
        comparisons: int = 1,
    ) -> pd.DataFrame:
        """The adjusted mean at the first place of each of `pairs` (places in `table`) over that at the
        second.

        One row per pair; columns first, second and RATIO. Interval and p are empty, and the verdict says why,
        where no chain of sittings connects the two, or where no run was ever repeated. `rounds_to_settle`:
        how many more rounds, ROUNDS_A_SITTING in each further sitting, would part the two if their ratio is
        what it seems; infinite beyond MOST_ROUNDS. `comparisons`: at how many at once that is asked
        (`rounds_to_settle`).
        """
        table = pd.DataFrame(list(pairs), columns=["first", "second"], dtype=int)
        i, j = table["first"].to_numpy(), table["second"].to_numpy()
        weights = np.eye(len(self.effects))[i] - np.eye(len(self.effects))[j]
        middle, error, freedom = self.contrasts(weights)
        chain, runs = self.table["chain"].to_numpy(), self.table["runs"].to_numpy()
        connected = chain[i] == chain[j]
        middle, error = np.where(connected, middle, math.nan), np.where(connected, error, math.nan)
        half = stats.t.ppf((1 + confidence) / 2, np.maximum(freedom, 1)) * error
        low, high = np.exp(middle - half), np.exp(middle + half)
        above, below = (low > 1, high < 1) if higher_is_better else (high < 1, low > 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            p = 2 * stats.t.sf(np.abs(middle) / error, np.maximum(freedom, 1))
        verdict = np.select(
            [~connected, np.isnan(error) & (runs[i] == 1) & (runs[j] == 1), np.isnan(error), above, below],
            [NOT_CONNECTED, ONE_EACH, NO_SCATTER, FASTER, SLOWER],
            default=EQUAL,
        )
        rounds = [
            self.rounds_to_settle(m, e, comparisons) if v == EQUAL else math.nan
            for m, e, v in zip(middle, error, verdict)
        ]
        return table.assign(
            ratio=np.exp(middle), low=low, high=high, p=p,
            degrees_of_freedom=np.where(np.isnan(error), math.nan, freedom),
            verdict=verdict, runs=runs[i], baseline_runs=runs[j], rounds_to_settle=rounds,
        )  # fmt: skip

    def compare(self, first: Sequence, second: Sequence, higher_is_better: bool = True) -> dict:
        """One row of `pairs` as a dict of the columns RATIO, of two configurations named by their `keys`;
        KeyError where one of them has no run."""
        places = [(self.place(first), self.place(second))]
        return self.pairs(places, higher_is_better)[RATIO].iloc[0].to_dict()

    def rounds_to_settle(self, difference: float, error: float, comparisons: int = 1) -> float:
        """How many more rounds would part two configurations whose logs really differ by `difference` and are
        known to `error`, at the level that holds for so many comparisons at once (Bonferroni); infinite
        beyond MOST_ROUNDS."""
        critical = stats.norm.isf((1 - CONFIDENCE) / 2 / comparisons)
        needed = (critical / difference) ** 2 if difference else math.inf
        residual, sitting = self.variances["residual"], self.variances.get("sitting", 0.0)
        known, rounds = 1 / error**2, 0
        while rounds == 0 or (known < needed and rounds < MOST_ROUNDS):
            rounds += ROUNDS_A_SITTING
            known += 1 / (2 * sitting + 2 * residual / ROUNDS_A_SITTING)
        return rounds if known >= needed else math.inf


@functools.cache
def known_prior() -> Prior:
    """What the committed machines with enough sittings have shown of each random effect: mean and standard
    deviation, over machines and metrics, of the log of its variance over the residual's.

    From data/proof/variances.csv (`bench.analysis.design_proof`); VAGUE where no machine has enough.
    """
    table = inputs.table("proof/variances")
    found = dict(VAGUE)
    for name in VAGUE:
        logs = 2 * np.log((table[name] / table["residual"])[table["freedom"] >= PRIOR_FREEDOM].dropna())
        if len(logs):
            found[name] = (
                float(logs.mean()),
                max(PRIOR_WIDTH, float(logs.std(ddof=1)) if len(logs) > 1 else 0),
            )
    return found


def fit(
    runs: pd.DataFrame,
    keys: Sequence[str],
    metric: str,
    gap_s: float = SITTING_GAP_S,
    prior: Prior | None = None,
) -> Fit:
    """The model of log(`metric`) of `runs`, which are of one machine.

    One row per run, or per run and placement; columns `keys`, `metric` (above zero; rows without a value are
    left out), host, experiment, started, and optionally ended, run_id and placement (near, apart; empty: not
    known). Sittings are separated by `gap_s` seconds; `prior` is `known_prior()` where none is given.
    ValueError where a figure is not above zero.
    """
    keys = list(keys)
    runs = runs[runs[metric].notna()]
    if (runs[metric] <= 0).any():
        raise ValueError(f"{metric} is not above zero in some runs: leave out runs without an answer.")
    codes, names = numbered(runs[key] for key in keys)
    sitting, met = numbered([*_where(runs), sittings(runs, gap_s)])
    count, places = len(names), len(met)
    edges = np.zeros((count + places, count + places))
    edges[codes, count + sitting] = 1
    chain = connected_components(edges, directed=False)[1]
    ids = pd.factorize(runs["run_id"])[0] if "run_id" in runs else np.arange(len(runs))
    side = sides(runs)
    often = np.zeros((count, places, 3), dtype=int)
    np.add.at(often, (codes, sitting, np.sign(side).astype(int)), 1)
    table = pd.DataFrame(names, columns=keys).assign(
        runs=_distinct(codes, ids),
        sittings=_distinct(codes, sitting),
        chain=chain[:count],
        alike=np.unique(often.reshape(count, 3 * places), axis=0, return_inverse=True)[1].ravel(),
    )
    # One column per configuration; per sitting one, coded so that the sittings of a chain add up to zero: a
    # configuration's coefficient is then its mean over the chain's sittings.
    columns = [np.eye(count)[codes]]
    for number in np.unique(chain):
        own = np.flatnonzero(chain[count:] == number)
        coded = np.zeros((places, max(len(own) - 1, 0)))
        coded[own[:-1]] = np.eye(len(own) - 1)
        coded[own[-1:]] = -1
        columns.append(coded[sitting])
    two_placements = len(np.unique(side[side != 0])) == 2
    if two_placements:
        columns.append(side[:, None])
    design = np.hstack(columns)
    logs = np.log(runs[metric].to_numpy(dtype=float))
    groups = {"sitting": np.eye(places)[sitting]}
    if two_placements:
        groups["placement"] = side[:, None]
    return _estimate(keys, table, logs, design, codes, groups, prior or known_prior())


def numbered(columns: Iterable[Iterable]) -> tuple[np.ndarray, list[tuple]]:
    """(the place of each row in `names`, names: the different rows of the `columns`, sorted)."""
    rows = list(zip(*columns))
    names = sorted(set(rows))
    place = {name: number for number, name in enumerate(names)}
    return np.array([place[row] for row in rows], dtype=int), names


def _distinct(codes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """How many different `values` (numbers) there are beside each of the `codes` 0, 1, …"""
    return np.bincount(np.unique(np.column_stack([codes, values]), axis=0)[:, 0])


def sides(runs: pd.DataFrame) -> np.ndarray:
    """+½ where the processors were apart, −½ where near, 0 where that is not known."""
    if "placement" not in runs:
        return np.zeros(len(runs))
    return runs["placement"].map({"apart": 0.5, "near": -0.5}).fillna(0.0).to_numpy(dtype=float)


def _estimate(
    keys: list[str],
    table: pd.DataFrame,
    logs: np.ndarray,
    design: np.ndarray,
    codes: np.ndarray,
    groups: dict[str, np.ndarray],
    prior: Prior,
) -> Fit:
    """`Fit` of the logs of a metric with the fixed effects `design`, of which the first columns are the
    configurations; each of them has random effects of its own, whose designs are `groups`."""
    count, runs = len(table), len(logs)
    # A column that the others can express says nothing: the placement of a machine whose every configuration
    # has seen one only.
    rank = np.linalg.matrix_rank(design)
    if rank < design.shape[1]:
        design = design[:, :-1]
        groups = {name: group for name, group in groups.items() if name != "placement"}
        rank = np.linalg.matrix_rank(design)
    if runs <= rank:
        effects = np.linalg.lstsq(design, logs, rcond=None)[0][:count]
        none = np.full((count, count), math.nan)
        return Fit(keys, table, effects, none, {}, np.zeros((0, count, count)), np.zeros((0, 0)))
    blocks = _Blocks(logs, design, codes, list(groups.values()))
    centre, width = np.array([prior[name] for name in groups]).T
    if np.abs(logs - design @ np.linalg.lstsq(design, logs, rcond=None)[0]).max() < EXACT:
        residual, ratios = EXACT**2, np.exp(centre)
    else:
        residual, ratios = blocks.variances(centre, width)
    variances = np.r_[residual, residual * ratios]
    effects, covariance, gradients, information = blocks.estimate(variances)
    # In the logs of the residual's variance and of the others over it, in which the prior is stated.
    slopes: np.ndarray = np.diag(variances)
    slopes[:, 0] = variances
    information = slopes.T @ information @ slopes + np.diag([0.0, *(1 / width**2)])
    return Fit(
        keys,
        table,
        effects[:count],
        covariance[:count, :count],
        dict(zip(["residual", *groups], variances.tolist())),
        np.einsum("vk,vij->kij", slopes, gradients[:, :count, :count]),
        information,
    )


class _Blocks:
    """A linear mixed model whose configurations share no random effect: the covariance of the runs is one
    block for each configuration, all padded to one size with rows that say nothing."""

    def __init__(
        self, logs: np.ndarray, design: np.ndarray, codes: np.ndarray, groups: Sequence[np.ndarray]
    ) -> None:
        sizes = np.bincount(codes)
        place = np.empty(len(codes), dtype=int)
        place[np.argsort(codes, kind="stable")] = np.concatenate([np.arange(size) for size in sizes])

        def padded(rows: np.ndarray) -> np.ndarray:
            whole = np.zeros((len(sizes), sizes.max(), rows.shape[1]))
            whole[codes, place] = rows
            return whole

        self.freedom = design.shape[0] - design.shape[1]
        self.rows = padded(np.column_stack([design, logs]))
        self.real = np.eye(sizes.max()) * (np.arange(sizes.max()) < sizes[:, None])[:, None]
        self.shared = [each @ each.transpose(0, 2, 1) for each in map(padded, groups)]

    def likelihood(self, ratios: np.ndarray) -> tuple[float, float]:
        """(logarithm of the restricted likelihood without its constant, residual variance) where the other
        variances are `ratios` of the residual's, and fixed effects and residual variance the likeliest."""
        spread = np.eye(self.rows.shape[1]) + sum(r * shared for r, shared in zip(ratios, self.shared))
        root = np.linalg.cholesky(spread)
        white = np.linalg.solve(root, self.rows).reshape(-1, self.rows.shape[2])
        design, logs = white[:, :-1], white[:, -1]
        cross = design.T @ design
        rest = logs - design @ linalg.solve(cross, design.T @ logs, assume_a="pos")
        variance = float(rest @ rest) / self.freedom
        volume = 2 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum() + np.linalg.slogdet(cross)[1]
        return -0.5 * (self.freedom * math.log(variance) + volume), variance

    def variances(self, centre: np.ndarray, width: np.ndarray) -> tuple[float, np.ndarray]:
        """(residual variance, the other variances over it) of the restricted likelihood, penalised by a prior
        on the logs of the ratios with the means `centre` and the standard deviations `width`.

        That of statsmodels' MixedLM, to which a test compares it, without its loop over groups: a site climbs
        it some thousand times.
        """

        def loss(logarithms: np.ndarray) -> float:
            return 0.5 * np.sum(((logarithms - centre) / width) ** 2) - self.likelihood(np.exp(logarithms))[0]

        found = optimize.minimize(loss, centre, method="L-BFGS-B", bounds=[LOG_RATIOS] * len(centre))
        ratios = np.exp(found.x)
        return self.likelihood(ratios)[1], ratios

    def estimate(self, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(fixed effects, their covariance, its gradient by each of `variances`, Fisher's information of
        these) by generalised least squares; the information is the restricted likelihood's."""
        design, logs = self.rows[..., :-1], self.rows[..., -1:]
        parts = [self.real, *self.shared]
        spread = np.eye(design.shape[1]) * variances[0]
        spread = spread + sum(v * shared for v, shared in zip(variances[1:], self.shared))
        inverse = np.linalg.inv(spread)
        weighted = inverse @ design

        def summed(left: np.ndarray, right: np.ndarray) -> np.ndarray:
            return left.reshape(-1, left.shape[2]).T @ right.reshape(-1, right.shape[2])

        covariance = linalg.inv(summed(design, weighted))
        effects = (covariance @ summed(weighted, logs))[:, 0]
        pulled = [part @ weighted for part in parts]
        gradients = np.array([covariance @ summed(weighted, each) @ covariance for each in pulled])
        # tr(P A P B) with P = V⁻¹ − V⁻¹X (XᵀV⁻¹X)⁻¹ XᵀV⁻¹, block by block.
        scaled = [inverse @ part for part in parts]
        information = np.array(
            [
                [
                    np.sum(scaled[a] * scaled[b].transpose(0, 2, 1))
                    - 2 * np.sum(covariance * summed(pulled[a], inverse @ pulled[b]))
                    + np.sum(gradients[a] * summed(weighted, pulled[b]))
                    for b in range(len(parts))
                ]
                for a in range(len(parts))
            ]
        )
        return effects, covariance, gradients, information / 2
