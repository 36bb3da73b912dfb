"""How many requests bound a percentile."""

from bench.topics import statistics


def test_how_many_requests_bound_a_percentile():
    assert [statistics.requests_needed(p) for p in (0.5, 0.9, 0.95, 0.99)] == [5, 29, 59, 299]
    assert [statistics.requests_needed(p, **statistics.MLPERF) for p in (0.9, 0.99)] == [64, 662]


def test_how_many_requests_at_another_confidence():
    assert statistics.requests_needed(0.9, 0.99) == 44 and statistics.requests_needed(0.5, 0.75) == 2
    assert statistics.requests_needed(0.5, 0.5) == 1 and statistics.requests_needed(0.5, 0.75, 1) == 5
