"""How often the intervals over machines hold, counted on simulated machines:
`python -m bench.analysis.across_machines_proof`.

The true ratio on each machine is drawn, and what its runs show of it; `across_machines.pool` says what it
makes of three to five of them. Beside it stand what is not used: DerSimonian and Laird's interval, Hartung
and Knapp's without a bound, and the usual prediction interval. Writes data/proof/across_machines.csv; exits
with 1 where a published interval holds less often than promised.
"""

import itertools
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from bench import files
from bench.analysis import across_machines, statistics
from bench.analysis.across_machines import UPPER
from bench.paths import ROOT

FILE = ROOT / "data" / "proof" / "across_machines.csv"
# How often a published interval holds at least, whatever the spread between machines and the errors.
PROMISED = 0.93

COUNTS, SPREADS = (3, 4, 5), (0.0, 0.1, 0.3)
ERROR = 0.06  # standard error of a machine's log-ratio; UNEQUAL: half as much to twice as much
EQUAL_ERRORS, UNEQUAL_ERRORS = "equal", "half to twice as large"
KNOWN, ESTIMATED = "known", "from three runs of each"
# What is published, and what is not.
HARTUNG_KNAPP, PREDICTION = "REML, Hartung and Knapp", "prediction from the distribution of τ²"
PLAIN, LAIRD = "REML, Hartung and Knapp without the bound", "DerSimonian and Laird"
HIGGINS = "prediction after Higgins, Thompson and Spiegelhalter"
COVERAGE = "method machines spread errors errors_are studies share share_low share_high width".split()


def coverage(
    studies: int = 4000, seed: int = 1, counts: Sequence[int] = COUNTS, spreads: Sequence[float] = SPREADS
) -> pd.DataFrame:
    """How often the intervals hold, counted on simulated machines whose true ratios differ by `spread`.

    One row per method, number of machines, spread (τ), errors (equal or not) and errors_are (known, or
    estimated from three runs of either configuration, four degrees of freedom); columns COVERAGE: share of
    `studies` whose interval holds the mean, or the ratio on one more machine; its Clopper-Pearson interval;
    width (median half width of the log-ratio).
    """
    random, rows = np.random.default_rng(seed), []
    for count, spread, errors, known in itertools.product(
        counts, spreads, (EQUAL_ERRORS, UNEQUAL_ERRORS), (KNOWN, ESTIMATED)
    ):
        error = ERROR * (np.ones(count) if errors == EQUAL_ERRORS else np.geomspace(0.5, 2, count))
        y = np.hypot(spread, error) * random.standard_normal((studies, count))
        v = np.broadcast_to(error**2, y.shape)
        if known == ESTIMATED:
            v = v * random.chisquare(4, y.shape) / 4
        further = spread * random.standard_normal(studies)
        for method, (low, high) in _intervals(y, v).items():
            truth = further if method in (PREDICTION, HIGGINS) else 0.0
            held = int(((low <= truth) & (truth <= high)).sum())
            found = studies, *statistics.share_interval(held, studies), float(np.median(high - low) / 2)
            rows.append((method, count, spread, errors, known, *found))
    return pd.DataFrame(rows, columns=COVERAGE)


def _intervals(y: np.ndarray, v: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{method: (low, high)} of simulated studies: what is published, and what is not."""
    count = y.shape[-1]
    ours = across_machines.pool(y, np.sqrt(v))
    mean, variance, factor = across_machines.weighted(y, v, between := across_machines.reml(y, v))
    plain = stats.t.ppf(UPPER, count - 1) * np.sqrt(variance * factor)
    further = stats.t.ppf(UPPER, count - 2) * np.sqrt(variance + between)
    laird, of_laird, _ = across_machines.weighted(y, v, dersimonian_laird(y, v))
    normal = stats.norm.ppf(UPPER) * np.sqrt(of_laird)
    return {
        HARTUNG_KNAPP: (ours.low, ours.high),
        PREDICTION: (ours.predicted_low, ours.predicted_high),
        PLAIN: (mean - plain, mean + plain),
        LAIRD: (laird - normal, laird + normal),
        HIGGINS: (mean - further, mean + further),
    }


def dersimonian_laird(y: np.ndarray, v: np.ndarray) -> np.ndarray:
    """τ² of DerSimonian and Laird (*Meta-analysis in clinical trials*, Control. Clin. Trials 7, 1986) over
    the last axis: shown in `coverage`, used nowhere."""
    weights = 1 / v
    total, squares = weights.sum(axis=-1), (weights**2).sum(axis=-1)
    _, _, factor = across_machines.weighted(y, v, np.zeros(y.shape[:-1]))
    return np.maximum((factor - 1) * (y.shape[-1] - 1) / (total - squares / total), 0)


def broken(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of `coverage` in which an interval that is published holds less often than promised."""
    published = results["method"].isin([HARTUNG_KNAPP, PREDICTION])
    return results[published & (results["share_high"] < PROMISED)]


def proof_table(results: pd.DataFrame) -> pd.DataFrame:
    """`coverage` for a page: one row per method and number of machines; columns lowest and highest (share
    over all spreads and errors), and the least favourable case: spread, errors, errors_are, studies."""
    keys = ["method", "machines"]
    worst = results.loc[results.groupby(keys, sort=False)["share"].idxmin()].set_index(keys)
    highest = results.groupby(keys, sort=False)["share"].max()
    return worst.rename(columns={"share": "lowest"}).assign(highest=highest).reset_index()


def load() -> pd.DataFrame:
    """The committed results, as `coverage` gives them."""
    return pd.read_csv(FILE)


def main() -> int:
    """Simulate, write, print; the exit status is 1 where a published interval holds less often than
    promised."""
    results = coverage()
    files.write_whole(FILE, files.csv_text(results.round(4)))
    print(proof_table(results).round(3).to_string(index=False))
    wrong = broken(results)
    print(f"{len(wrong)} published intervals hold in less than {PROMISED:.0%}.")
    return int(len(wrong) > 0)


if __name__ == "__main__":
    sys.exit(main())
