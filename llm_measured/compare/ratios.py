"""The ratio of two figures: its interval, its test, its verdict.

All of it is Student's t on logarithms. With repeats the scatter between runs is their own, pooled over both
sides; a reader has it again in four lines of pandas:

    logs = np.log(table.pivot(columns="side", values="figure"))
    s = sqrt((logs.var() * (logs.count() - 1)).sum() / (logs.count().sum() - 2))
    half = t.ppf(0.975, logs.count().sum() - 2) * s * sqrt((1 / logs.count()).sum())
    exp(logs.mean().diff().iloc[-1] + np.array([-half, 0, half]))
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

LEVEL = 0.05
LEAST = 0.01  # scatter between two runs, however close the repeats within one lie together
MOST_RUNS = 200
FASTER, SLOWER, EQUAL, UNKNOWN = "faster", "slower", "equal", "cannot be told"


@dataclass(frozen=True)
class Ratio:
    """Logarithm of B ÷ A, its standard error, its degrees of freedom, the scatter between two runs (standard
    deviation of a run's logarithm)."""

    log: float
    error: float
    freedom: float
    scatter: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The two ends of the ratio's interval."""
        half = float(stdtrit(self.freedom, (1 + confidence) / 2)) * self.error
        return math.exp(self.log - half), math.exp(self.log + half)

    def p(self) -> float:
        """Two-sided probability of a ratio so far from 1, were both sides equal."""
        return 2 * float(stdtr(self.freedom, -abs(self.log) / self.error))

    def p_beyond(self, limit: float, above: bool) -> float:
        """One-sided probability of a ratio so far `above` (or below) the limit, were the true one at it."""
        beyond = self.log - math.log(limit)
        return float(stdtr(self.freedom, (-beyond if above else beyond) / self.error))

    def equal(self, margin: float) -> bool:
        """Whether the 90 % interval lies between 1 ÷ (1 + margin) and 1 + margin (two one-sided tests at 5 %;
        Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15, 1987)."""
        low, high = self.interval(0.9)
        return 1 / (1 + margin) <= low and high <= 1 + margin


def of_repeats(a: Sequence[float], b: Sequence[float]) -> Ratio | None:
    """The ratio of the geometric means of runs; None with one run a side, or where no two runs differ."""
    sides = [np.log(np.asarray(side, dtype=float)) for side in (a, b)]
    freedom = len(a) + len(b) - 2
    if freedom < 1:
        return None
    scatter = math.sqrt(sum(((side - side.mean()) ** 2).sum() for side in sides) / freedom)
    error = scatter * math.sqrt(1 / len(a) + 1 / len(b))
    return Ratio(float(sides[1].mean() - sides[0].mean()), error, freedom, scatter) if scatter else None


def of_single(
    a: float,
    b: float,
    scatter: float,
    freedom: float,
    within: Sequence[tuple[float, int]] = (),
) -> Ratio:
    """The ratio of one run each: variances of the resampled requests (`within`: standard deviation and
    degrees of freedom of each side) and of two runs (`scatter`, borrowed) added, Satterthwaite's degrees of
    freedom."""
    parts = [(sd**2, df) for sd, df in within] + [(2 * scatter**2, freedom)]
    total = sum(variance for variance, _ in parts)
    df = total**2 / sum(variance**2 / max(df, 1) for variance, df in parts)
    return Ratio(math.log(b / a), math.sqrt(total), df, math.sqrt(total / 2))


def of_printed(a: float, b: float, one: tuple[float, int], other: tuple[float, int]) -> Ratio:
    """The ratio of one run each that prints the scatter of its repeats (standard deviation of the logarithm,
    degrees of freedom): as if a run scattered as its repeats do, and by LEAST at least, since they share a
    process."""
    parts = [(max(sd, LEAST), freedom) for sd, freedom in (one, other)]
    total = sum(sd**2 for sd, _ in parts)
    freedom = total**2 / sum(sd**4 / df for sd, df in parts)
    return Ratio(math.log(b / a), math.sqrt(total), freedom, math.sqrt(total / 2))


def verdict(ratio: Ratio, adjusted: float, margin: float, more_is_better: bool) -> str:
    """Equal before faster or slower before cannot be told; of B against A."""
    if ratio.equal(margin):
        return EQUAL
    if adjusted <= LEVEL:
        return FASTER if (ratio.log > 0) == more_is_better else SLOWER
    return UNKNOWN


def runs_needed(scatter: float, size: float) -> int | None:
    """Fewest runs a side whose 95 % interval is no wider than a difference of `size` (0.05: 5 %) to each
    side; None where MOST_RUNS are too few."""
    for runs in range(2, MOST_RUNS + 1):
        half = float(stdtrit(2 * runs - 2, 1 - LEVEL / 2)) * scatter * math.sqrt(2 / runs)
        if half <= math.log1p(size):
            return runs
    return None
