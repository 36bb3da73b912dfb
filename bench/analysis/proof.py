"""How often the intervals of this study hold, counted on simulated studies: `python -m bench.analysis.proof`.

The truth is known where the runs are made up. Of series of runs in one sitting, whose neighbours are
correlated (AR(1)), the interval of the mean is checked, also where `REPEATS=auto` ended; of whole studies of
the committed design the comparisons (`bench.analysis.design_proof`). Writes `data/proof/variances.csv`,
`comparisons.csv` and `coverage.csv`, and beside it which modules they hold for; exits with 1 where a promise
is broken.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from bench import memo
from bench.analysis import comparison, design_proof, repeats, statistics
from bench.definitions import Fields
from bench.observations import store
from bench.paths import ROOT

FILE = ROOT / "data" / "proof" / "coverage.csv"
MODULES = [
    f"bench/analysis/{name}.py"
    for name in ("statistics", "repeats", "comparison", "ranking", "design_proof", "proof")
]
RUNS = 3, 5, 10
CORRELATIONS = 0.0, 0.3, 0.6
SPREADS = 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.08, 0.12  # standard deviation of runs over their mean
SPREAD = 0.05
COLUMNS = (
    "quantity method runs scatter spread correlation studies "  # what was simulated
    "share share_low share_high width runs_used"  # what came of it
).split()
MEAN = "mean"
OURS, STUDENT = "low cosines", "Student's t"
PROMISE = 0.93, 0.97
NORMAL, SKEWED, SPEEDS = "normal", "skewed", "two speeds"


def simulate(
    random: np.random.Generator,
    shape: tuple[int, int],
    correlation: float,
    scatter: str = NORMAL,
    spread: float = SPREAD,
) -> np.ndarray:
    """Runs along the last axis, of mean 1 and standard deviation `spread`; normal ones are an AR(1) process.

    SKEWED runs are log-normal (shape 0.6) over such a process. Those of two SPEEDS have two equally likely
    speeds, two spreads apart; a run keeps the speed of the one before with the probability `correlation`,
    else it draws again; a fifth of `spread` lies upon that as normal scatter.
    """
    draws = random.standard_normal(shape)
    if scatter == SPEEDS:
        keeps = random.random(shape) < correlation
        state = random.integers(0, 2, shape)
        for n in range(1, shape[-1]):
            state[..., n] = np.where(keeps[..., n], state[..., n - 1], state[..., n])
        return 1 + (state - 0.5) * 2 * spread + draws * spread / 5
    for n in range(1, shape[-1]):
        draws[..., n] = correlation * draws[..., n - 1] + np.sqrt(1 - correlation**2) * draws[..., n]
    if scatter == SKEWED:
        skewed = np.exp(0.6 * draws)
        mean, deviation = np.exp(0.18), np.sqrt((np.exp(0.36) - 1) * np.exp(0.36))
        return 1 + spread * (skewed - mean) / deviation
    return 1 + spread * draws


def student(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of Student's interval of the mean over the last axis."""
    runs = values.shape[-1]
    half = stats.t.ppf(0.975, runs - 1) * values.std(axis=-1, ddof=1) / np.sqrt(runs)
    return values.mean(axis=-1) - half, values.mean(axis=-1) + half


def _row(
    quantity: str,
    method: str,
    runs: int | str,
    correlation: float,
    right: np.ndarray,
    width: np.ndarray,
    scatter: str = NORMAL,
    spread: float = SPREAD,
    runs_used: np.ndarray | None = None,
) -> Fields:
    """One row of the results from `right` (a Boolean per study) and `width` (half width over the mean)."""
    share, low, high = statistics.share_interval(right.sum(), len(right))
    used = np.asarray(runs if runs_used is None else runs_used)
    values = quantity, method, str(runs), scatter, spread, correlation, len(right), share, low, high
    return dict(zip(COLUMNS, (*values, float(np.mean(width)), float(used.mean()))))


def _covers(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether each interval holds 1."""
    return (low <= 1) & (high >= 1)


def fixed(random: np.random.Generator, studies: int, runs: int, correlation: float) -> list[Fields]:
    """Rows for studies of a fixed number of runs: the interval of the mean, and Student's."""
    rows = []
    for scatter in (NORMAL, SKEWED, SPEEDS):
        values = simulate(random, (studies, runs), correlation, scatter)
        for method, (low, high) in ((OURS, statistics.mean_interval(values)[1:]), (STUDENT, student(values))):
            rows.append(_row(MEAN, method, runs, correlation, _covers(low, high), (high - low) / 2, scatter))
    return rows


def automatic(
    random: np.random.Generator,
    studies: int,
    correlation: float,
    spread: float,
    budget: int = repeats.BUDGET,
) -> Fields:
    """One row: how often the interval holds that is left where `REPEATS=auto` ends."""
    values = simulate(random, (studies, budget), correlation, spread=spread)
    low, high = np.full((2, studies), np.nan)
    used = np.zeros(studies, dtype=int)
    for runs in range(repeats.FEWEST, budget + 1):
        ends = (used == 0) & (repeats.enough(values[:, :runs]) | (runs == budget))
        _, low[ends], high[ends] = statistics.mean_interval(values[ends, :runs])
        used[ends] = runs
    width = (high - low) / (high + low)
    return _row(MEAN, OURS, "auto", correlation, _covers(low, high), width, spread=spread, runs_used=used)


def coverage(studies: int = 10_000, seed: int = 1) -> pd.DataFrame:
    """All results; one row per quantity, method, number of runs, scatter, spread and correlation.

    Columns COLUMNS: share of `studies` whose interval holds the truth, its Clopper-Pearson interval,
    width (mean half width over the mean), runs_used (mean).
    """
    random = np.random.default_rng(seed)
    rows = []
    for correlation in CORRELATIONS:
        for runs in RUNS:
            rows += fixed(random, studies, runs, correlation)
        rows += [automatic(random, studies, correlation, spread) for spread in SPREADS]
    return pd.DataFrame(rows, columns=COLUMNS)


def broken(results: pd.DataFrame) -> pd.DataFrame:
    """The rows of `coverage` outside PROMISE: intervals of the mean of normal runs, correlations up to
    0.3."""
    promised = (results["quantity"] == MEAN) & (results["method"] == OURS) & (results["scatter"] == NORMAL)
    promised &= results["correlation"] <= statistics.CORRELATIONS[-1]
    return results[promised & ~results["share"].between(*PROMISE)]


def table(results: pd.DataFrame) -> pd.DataFrame:
    """`coverage` for a page.

    One row per quantity, method, number of runs, scatter and spread; columns 0.0, 0.3 and 0.6 (the share at
    that correlation), width and runs_used without correlation, studies.
    """
    keys = "quantity method runs scatter spread".split()
    shares = results.set_index([*keys, "correlation"])["share"].unstack(sort=False)
    plain = results[results["correlation"] == 0].set_index(keys)[["width", "runs_used", "studies"]]
    return shares.join(plain).reset_index()


def digests() -> dict[str, str]:
    """{path: `memo.computes`} of the modules that the results hold for."""
    return {path: memo.computes(ROOT / path) for path in MODULES}


def load(file: Path = FILE) -> pd.DataFrame:
    """The committed results, as `coverage` gives them."""
    return pd.read_csv(file, dtype={"runs": str})


def _write(table: pd.DataFrame, name: str) -> None:
    table.round(5).to_csv(FILE.with_name(f"{name}.csv"), index=False, lineterminator="\n")


def main() -> int:
    """Simulate, print the table, write it; the exit status is 1 where a promise is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.analysis.proof", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument(
        "--studies", type=int, default=10_000, help="simulated studies per row (default: 10000)"
    )
    parser.add_argument(
        "--designs", type=int, default=400, help="simulated studies of each committed design (default: 400)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers (default: 1)")
    chosen = parser.parse_args()
    requests = store.load(experiment="latency")
    # First the components of variance: what is simulated is drawn with them, and the prior is made from them.
    _write(design_proof.variances(requests), "variances")
    comparison.known_prior.cache_clear()
    comparisons = design_proof.coverage(requests, chosen.designs, chosen.seed)
    _write(comparisons, "comparisons")
    results = coverage(chosen.studies, chosen.seed)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    results.round(4).to_csv(FILE, index=False, lineterminator="\n")
    record = {"modules": digests(), "studies": chosen.studies, "designs": chosen.designs, "seed": chosen.seed}
    FILE.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    print(table(results).round(3).to_string(index=False))
    wrong = pd.concat([broken(results), design_proof.broken(comparisons)])
    print(
        f"{len(wrong)} intervals outside 93 to 97 %."
        if len(wrong)
        else "All promised intervals hold in 93 to 97 %."
    )
    return int(len(wrong) > 0)


if __name__ == "__main__":
    sys.exit(main())
