"""What holds on every machine: ratios of two configurations, on each machine that has both, and pooled.

Runs of different machines are never pooled, only ratios that were measured within one machine. The ratios of
a pair are then a random-effects meta-analysis whose studies are machines: what one machine shows is the mean
over machines, what is this machine's own (of variance τ²), and the error of its runs. τ² is the restricted
maximum likelihood's, the interval of the mean is Hartung and Knapp's, that of a further machine's ratio
follows from the confidence distribution of τ². `bench.analysis.across_machines_proof` counts how often both
hold. An engine's version is part of a configuration, and processors are not pooled with GPUs.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import optimize, special, stats

from bench import memo, naming
from bench.analysis import comparison, latency, machines, statistics
from bench.definitions import Fields
from bench.observations import derived

RATE = latency.RATE
KEYS = ["backend", "option", "backend_version"]
THAN = [f"than_{key}" for key in KEYS]  # the configuration that another one is compared with
# A verdict that begins with "faster on every machine" takes as many machines with as many runs of both.
FEWEST_MACHINES, FEWEST_RUNS = 3, derived.ENOUGH_RUNS
FASTER, SLOWER = comparison.FASTER, comparison.SLOWER
EVERYWHERE, SO_FAR, ON_AVERAGE = "on every machine", "so far on all", "on average"
DEPENDS, OPEN, ONE_RUN_EACH = "depends on the machine", "cannot be distinguished", "one run each"
RATIOS = ["log_ratio", "standard_error", "degrees_of_freedom", "runs", "than_runs"]
POOLED = [
    *KEYS, *THAN, "verdict", "ratio", "low", "high", "spread", "predicted_low", "predicted_high",
    "least", "most", "machines", "repeated", "borrowed",
]  # fmt: skip
Key = tuple[str, str, str]
UPPER = (1 + statistics.CONFIDENCE) / 2  # the quantile that is an interval's upper end
# Probabilities at which the confidence distribution of τ² is taken.
LEVELS = (np.arange(200) + 0.5) / 200


# --- one machine -------------------------------------------------------------------------------------------


def machine_ratios(runs: pd.DataFrame, pairs: Sequence[tuple[Key, Key]]) -> Iterator[tuple[str | float, ...]]:
    """Each of `pairs` of which one machine, whose `runs` these are, has both: a row of KEYS, THAN and RATIOS.

    The model of one machine is that of all comparisons (`comparison.fit`), so pairs that no chain of sittings
    connects are left out. The error is NaN, with zero degrees of freedom, where one of the two has one run.
    """
    model = comparison.fit(runs, KEYS, RATE)
    known = [pair for pair in pairs if model.places.keys() >= set(pair)]
    table = model.pairs([(model.places[first], model.places[second]) for first, second in known])
    unit = np.eye(len(model.places))
    _, errors, freedoms = model.contrasts(unit[table["first"]] - unit[table["second"]])
    for (first, second), (_, row), error, freedom in zip(known, table.iterrows(), errors, freedoms):
        if row["verdict"] != comparison.NOT_CONNECTED:
            counts = int(row["runs"]), int(row["baseline_runs"])
            known_error = (math.nan, 0.0) if min(counts) == 1 else (float(error), float(freedom))
            yield *first, *second, math.log(row["ratio"]), *known_error, *counts


def scatter(runs: pd.DataFrame) -> tuple[float, float]:
    """(standard deviation of log(RATE) from run to run, degrees of freedom) of a configuration that has one
    run on its machine, from the configurations that have several on theirs; (NaN, 0) without any.

    Configurations and machines differ in how much they scatter. The variance of another one is drawn from
    where theirs come from, a scaled inverse χ² whose scale and degrees of freedom are fitted to the moments
    of the logs of the sample variances (Smyth, *Linear Models and Empirical Bayes Methods*, Stat. Appl.
    Genet. Mol. Biol. 3(1), 2004, section 6.2).
    """
    cells = np.log(runs[RATE]).groupby([runs[key] for key in ("machine", *KEYS, "placement")])
    variance, freedom = cells.var(ddof=1), cells.count() - 1
    several = (freedom > 0) & (variance > 0)
    variance, half = variance[several].to_numpy(), freedom[several].to_numpy() / 2
    if not len(variance):
        return math.nan, 0.0
    around = np.log(variance) - special.digamma(half) + np.log(half)
    excess = around.var(ddof=1) - special.polygamma(1, half).mean() if len(around) > 1 else 0.0
    if excess <= special.polygamma(1, 1e6):  # all scatter alike
        return math.sqrt(np.average(variance, weights=half)), float(2 * half.sum())
    prior = optimize.brentq(lambda x: special.polygamma(1, x) - excess, 1e-3, 1e6)
    return math.sqrt(np.exp(around.mean() + special.digamma(prior) - np.log(prior))), 2 * prior


# --- all machines ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pooled:
    """The pooled logs of ratios: mean over machines with its interval, `spread` (τ, the standard deviation
    between machines), and between what a further machine's lies (NaN for fewer than three machines)."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    spread: np.ndarray
    predicted_low: np.ndarray
    predicted_high: np.ndarray


def pool(log_ratios: np.ndarray, standard_errors: np.ndarray) -> Pooled:
    """What the logs of ratios of several machines (last axis) have in common, with their standard errors.

    The interval of the mean is Hartung and Knapp's (*A refined method for the meta-analysis of controlled
    clinical trials with binary outcome*, Statist. Med. 20, 2001), never narrower than that without their
    factor but with Student's quantile (their modification: Knapp and Hartung, *Improved tests for a random
    effects meta-regression with a single covariate*, Statist. Med. 22, 2003): without it three machines that
    happen to agree make an interval of nearly no width.
    """
    y, v = np.broadcast_arrays(np.asarray(log_ratios, float), np.square(standard_errors))
    count = y.shape[-1]
    between = reml(y, v)
    mean, variance, factor = weighted(y, v, between)
    half = stats.t.ppf(UPPER, count - 1) * np.sqrt(variance * np.maximum(factor, 1))
    predicted = prediction(y, v) if count > 2 else np.full((2, *mean.shape), math.nan)
    return Pooled(mean, mean - half, mean + half, np.sqrt(between), *predicted)


def reml(y: np.ndarray, v: np.ndarray) -> np.ndarray:
    """τ² of the restricted maximum likelihood over the last axis: effects `y` with known variances `v`.

    Fisher's scoring, kept at zero or above (Viechtbauer, *Bias and Efficiency of Meta-Analytic Variance
    Estimators in the Random-Effects Model*, J. Educ. Behav. Stat. 30(3), 2005, equations 16 and 17).
    """
    between = np.maximum(y.var(axis=-1, ddof=1) - v.mean(axis=-1), 0)
    for _ in range(1000):
        weights = 1 / (v + between[..., None])
        one, two, three = ((weights**power).sum(axis=-1) for power in (1, 2, 3))
        rest = y - ((weights * y).sum(axis=-1) / one)[..., None]
        score = (weights**2 * rest**2).sum(axis=-1) - (one - two / one)
        information = two - 2 * three / one + (two / one) ** 2
        after = np.maximum(between + score / information, 0)
        moved = np.abs(after - between)
        between = after
        if np.all(moved <= 1e-10 * (v.mean(axis=-1) + between)):
            break
    return between


def weighted(y: np.ndarray, v: np.ndarray, between: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean weighted by 1 / (v + τ²), its variance, Hartung and Knapp's factor on it) over the last axis."""
    weights = 1 / (v + np.asarray(between)[..., None])
    total = weights.sum(axis=-1)
    mean = (weights * y).sum(axis=-1) / total
    factor = (weights * (y - mean[..., None]) ** 2).sum(axis=-1) / (y.shape[-1] - 1)
    return mean, 1 / total, factor


def prediction(y: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Between what the effect of a further machine lies: (low, high) over the last axis.

    Few machines say little of τ², so no single one is put in: the generalised Q of the true τ² is χ² with one
    degree of freedom less than machines, which gives a distribution of τ²; for each of its quantiles mean and
    further effect are normal, and the interval holds their mixture's middle (Iyer, Wang and Mathew, *Models
    and Confidence Intervals for True Values in Interlaboratory Trials*, JASA 99(468), 2004; as a prediction
    interval Nagashima, Noma and Furukawa, *Prediction intervals for random-effects meta-analysis*, Stat.
    Methods Med. Res. 28(6), 2019).
    """
    quantiles = stats.chi2.ppf(LEVELS, y.shape[-1] - 1)
    each, variances = y[..., None, :], v[..., None, :]

    def generalised_q(between: np.ndarray) -> np.ndarray:
        _, _, factor = weighted(each, variances, between)
        return factor * (y.shape[-1] - 1)

    # Q falls with τ², and is below (sum of squares around the mean) / τ².
    high = y.var(axis=-1)[..., None] * y.shape[-1] / quantiles
    between = _bisect(lambda middle: generalised_q(middle) > quantiles, np.zeros_like(high), high)
    mean, variance, _ = weighted(each, variances, between)
    deviation = np.sqrt(variance + between)
    ends = (mean - 10 * deviation).min(axis=-1), (mean + 10 * deviation).max(axis=-1)

    def below(at: np.ndarray, probability: float) -> np.ndarray:
        return special.ndtr((at[..., None] - mean) / deviation).mean(axis=-1) < probability

    low, high = (_bisect(lambda at: below(at, p), *ends) for p in (1 - UPPER, UPPER))
    return low, high


def _bisect(rises: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Where `rises`(x), true below some point between `low` and `high`, turns false; elementwise."""
    for _ in range(60):
        middle = (low + high) / 2
        up = rises(middle)
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return (low + high) / 2


def verdict(lows: np.ndarray, highs: np.ndarray, repeated: int, low: float, high: float) -> str:
    """What the intervals of a log-ratio on each machine (`lows`, `highs`) and its pooled one say.

    Every machine's own interval on one side of zero: EVERYWHERE with FEWEST_MACHINES machines that have
    FEWEST_RUNS runs of both (`repeated`), else SO_FAR. DEPENDS where two machines contradict each other: one
    on either side, or two intervals that do not overlap. Else ON_AVERAGE where the pooled interval is on one
    side, and OPEN where it is not.
    """
    if np.isnan([*lows, *highs]).any():
        return ONE_RUN_EACH
    above, below = lows > 0, highs < 0
    if above.all() or below.all():
        word = FASTER if above.all() else SLOWER
        return f"{word} {EVERYWHERE}" if repeated >= FEWEST_MACHINES else f"{word} {SO_FAR} {len(lows)}"
    if (above.any() and below.any()) or lows.max() > highs.min():
        return DEPENDS
    return f"{FASTER if low > 0 else SLOWER} {ON_AVERAGE}" if low > 0 or high < 0 else OPEN


# --- requests in, tables out -------------------------------------------------------------------------------


def compared(requests: pd.DataFrame) -> pd.DataFrame:
    """The latency runs that are compared: of the model, weights and kind of device that most machines have.

    One row per run, or per run and placement (`latency.runs`), without failed requests and with a RATE
    above zero; options as `naming.named`, with the version where several are compared; column machine: its
    label (`machines.labelled`).
    """
    labels = [(label, rows[machines.MACHINE].iloc[0]) for label, rows in machines.labelled(requests, False)]
    names = {tuple(machine): label for label, machine in labels}
    rows = naming.named(requests[requests["experiment"] == "latency"])
    lost = rows.loc[rows["error"] != "", "run_id"]
    runs = latency.runs(rows, strata=True)
    runs = runs[~runs["run_id"].isin(lost) & (runs[RATE] > 0)]
    runs = runs.assign(machine=[names[key] for key in zip(runs["gpu"], runs["host"])])
    kinds = runs.groupby(["model", "weights", runs["gpu"].map(naming.is_cpu)], sort=True)
    if not kinds.ngroups:
        return runs
    _, runs = max(kinds, key=lambda kind: (kind[1]["machine"].nunique(), len(kind[1])))
    versions = runs.groupby(["backend", "option"])["backend_version"].transform("nunique")
    version = (" (" + runs["backend_version"] + ")").where(versions > 1, "")
    return runs.assign(option=runs["option"] + version)


def ratios(runs: pd.DataFrame, pairs: Sequence[tuple[Key, Key]]) -> pd.DataFrame:
    """Each of `pairs` on each machine of `runs` (`compared`) that has both: one row per pair and machine.

    Columns: the first configuration (KEYS), the second (THAN), RATIOS (of the logs), machine, borrowed
    (whether the error is that of the `scatter` of others, because one of the two has one run), ratio, low and
    high (how many times as fast the first is, with the machine's own 95 % interval).
    """
    rows = [
        (*row, machine)
        for machine, own in runs.groupby("machine", sort=True)
        for row in machine_ratios(own, pairs)
    ]
    table = pd.DataFrame(rows, columns=[*KEYS, *THAN, *RATIOS, "machine"])
    deviation, freedom = scatter(runs)
    unknown = table["standard_error"].isna()
    error = deviation * np.sqrt(1 / table["runs"] + 1 / table["than_runs"])
    table = table.assign(
        borrowed=unknown & ~math.isnan(deviation),
        standard_error=table["standard_error"].where(~unknown, error),
        degrees_of_freedom=table["degrees_of_freedom"].where(~unknown, freedom).astype(float),
    )
    quantile = stats.t.ppf(UPPER, table["degrees_of_freedom"].clip(lower=0.1))
    half = quantile * table["standard_error"]
    return table.assign(
        ratio=np.exp(table["log_ratio"]),
        low=np.exp(table["log_ratio"] - half),
        high=np.exp(table["log_ratio"] + half),
    )


def pooled(each: pd.DataFrame) -> pd.DataFrame:
    """The rows of `ratios` pooled over machines: one row per pair that several machines have.

    Columns POOLED: the pair; verdict; ratio, low and high (over machines), spread (τ, of the logs),
    predicted_low and predicted_high (a further machine; empty for two), least and most (of the machines'
    ratios), machines, repeated (machines with FEWEST_RUNS runs of both), borrowed (machines without an error
    of their own).
    """
    found = []
    groups = [rows for _, rows in each.groupby([*KEYS, *THAN], sort=False) if len(rows) > 1]
    for _, same in itertools.groupby(sorted(groups, key=len), key=len):  # pooled together: many pairs
        rows = list(same)
        over = pool(*(np.array([own[name] for own in rows]) for name in ("log_ratio", "standard_error")))
        found += [_pooled(own, over, k) for k, own in enumerate(rows)]
    return pd.DataFrame(found, columns=POOLED)


def _pooled(own: pd.DataFrame, over: Pooled, k: int) -> Fields:
    """One row of `pooled`: a pair's rows of `ratios`, which stands at place `k` of what was pooled."""
    repeated = int((own[["runs", "than_runs"]].min(axis=1) >= FEWEST_RUNS).sum())
    low, high = float(over.low[k]), float(over.high[k])
    bounds = np.log(own["low"].to_numpy()), np.log(own["high"].to_numpy())
    return own[[*KEYS, *THAN]].iloc[0].to_dict() | {
        "verdict": verdict(*bounds, repeated, low, high),
        "ratio": math.exp(over.mean[k]),
        "low": math.exp(low),
        "high": math.exp(high),
        "spread": over.spread[k],
        # A further machine is not known better than the mean: where machines happen to agree it might be.
        "predicted_low": math.exp(min(over.predicted_low[k], low)),
        "predicted_high": math.exp(max(over.predicted_high[k], high)),
        "least": own["ratio"].min(),
        "most": own["ratio"].max(),
        "machines": len(own),
        "repeated": repeated,
        "borrowed": int(own["borrowed"].sum()),
    }


@memo.by_content
def every_pair(requests: pd.DataFrame) -> pd.DataFrame:
    """Every pair of configurations that several machines have: one row per pair, the faster one first.

    Columns of `pooled`; pairs that most machines have first, then by ratio, the largest first.
    """
    runs = compared(requests)
    table = pooled(ratios(runs, list(itertools.combinations(_configurations(runs), 2))))
    slower = table[table["ratio"] < 1]
    turned = pooled(ratios(runs, [(tuple(row[THAN]), tuple(row[KEYS])) for _, row in slower.iterrows()]))
    parts = [part for part in (table[table["ratio"] >= 1], turned) if len(part)] or [table]
    return pd.concat(parts).sort_values(["machines", "ratio"], ascending=False, ignore_index=True)


@memo.by_content
def against_leader(requests: pd.DataFrame) -> pd.DataFrame:
    """Every configuration against the one in front over all machines (`leader`), where several have both: one
    row per configuration, the best first; columns of `pooled`."""
    table = pooled(each_against_leader(requests))
    return table.sort_values("ratio", ascending=False, ignore_index=True)


@memo.by_content
def each_against_leader(requests: pd.DataFrame) -> pd.DataFrame:
    """What `against_leader` pools: one row per configuration and machine; columns of `ratios`."""
    runs = compared(requests)
    front = leader(runs)
    return ratios(runs, [(key, front) for key in _configurations(runs) if front and key != front])


def leader(runs: pd.DataFrame) -> Key | None:
    """The configuration in front of `runs` (`compared`): of those that most machines have, the one with the
    best geometric mean over them; None without runs."""
    if runs.empty:
        return None
    own = np.log(runs[RATE]).groupby([runs["machine"], *(runs[key] for key in KEYS)]).mean()
    over = own.groupby(level=KEYS).agg(["count", "mean"])
    return over.sort_values(["count", "mean"]).index[-1]


def machines_with_rounds(requests: pd.DataFrame) -> list[str]:
    """Labels of the machines that have FEWEST_RUNS rounds or more: so many runs of their median
    configuration."""
    runs = compared(requests)
    sizes = runs.groupby(["machine", *KEYS]).size().groupby(level="machine").median()
    return list(sizes.index[sizes >= FEWEST_RUNS])


def _configurations(runs: pd.DataFrame) -> list[Key]:
    return list(runs[KEYS].drop_duplicates().sort_values(KEYS).itertuples(index=False, name=None))
