"""How many requests bound a percentile."""

from functools import lru_cache

from scipy import stats

CONFIDENCE = 0.95
# What MLPerf takes for a percentile: 99 % confidence, and one request beyond the value that is shown
# (mlcommons/inference, loadgen/early_stopping.cc).
MLPERF = {"confidence": 0.99, "beyond": 1}


@lru_cache(maxsize=None)
def requests_needed(share: float, confidence: float = CONFIDENCE, beyond: int = 0) -> int:
    """Return the fewest requests of which the slowest (the slowest but `beyond`) is at least the percentile
    `share`.

    The smallest n with P(Binomial(n, 1 − share) ≤ beyond) ≤ 1 − confidence, the order-statistic bound (David
    and Nagaraja, *Order Statistics*, 2003, section 7.1): 29 for p90 and 299 for p99 at 95 %; 64 and 662 with
    MLPERF.
    """
    n = beyond + 1
    while stats.binom.cdf(beyond, n, 1 - share) > 1 - confidence:
        n += 1
    return n
