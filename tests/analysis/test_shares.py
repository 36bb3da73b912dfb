"""The share of requests within objectives, bounded over runs: beta-binomial, the correlation pooled."""

import numpy as np
import pytest

from bench.analysis import serving_proof, shares, statistics

ALL = ((64, 64),) * 3


def test_without_correlation_the_bounds_are_those_of_clopper_and_pearson():
    found = shares.interval(((60, 64), (61, 64), (64, 64)), 0.0)
    assert found == pytest.approx(statistics.share_interval(185, 192), abs=1e-4)


def test_the_more_alike_the_requests_of_a_run_the_less_is_known():
    lows = [shares.interval(ALL, correlation)[1] for correlation in (0.0, 0.05, 0.2, 0.5)]
    assert lows == sorted(lows, reverse=True) and lows[0] > 0.98 and lows[-1] < 0.9
    assert [shares.interval(ALL, correlation)[2] for correlation in (0.0, 0.5)] == [1.0, 1.0]


def test_fewer_than_three_runs_say_nothing_of_how_much_runs_differ():
    for runs in (((64, 64),), ((64, 64), (60, 64)), ((64, 64), (60, 64), (0, 0))):
        share, low, high = shares.interval(runs, 0.0)
        assert share > 0.9 and np.isnan(low) and np.isnan(high)
    assert np.isnan(shares.interval((), 0.1)).all() and np.isnan(shares.interval(((0, 0),) * 3, 0.1)).all()


def test_the_correlation_is_pooled_and_errs_upwards():
    apart = [[(64, 64), (32, 64), (0, 64)]] * 4
    alike = [[(32, 64), (31, 64), (33, 64)]] * 4
    assert shares.correlation(apart) > 0.5 and shares.correlation(alike) <= 0.01
    assert shares.correlation(apart[:1]) > shares.correlation(apart), "one level says less than four"
    one = [[(60, 64), (58, 64), (50, 64)]]
    assert shares.correlation(one) > shares.correlation(one + alike)


def test_levels_that_all_requests_hold_say_nothing_of_the_correlation():
    assert shares.correlation([[(64, 64)] * 3] * 5) == shares.UNKNOWN == shares.correlation([])
    assert shares.correlation([[(60, 64)], [(0, 64)] * 3]) == shares.UNKNOWN


@pytest.mark.check
def test_the_bounds_hold_in_93_percent_of_simulated_studies():
    design = tuple((3, 64, share) for share in (0.99, 0.98, 0.95, 0.95, 0.9, 0.9, 0.8, 0.7))
    table = serving_proof.covered(studies=40, design=design).set_index("correlation")
    assert list(table.index) == [0.0, 0.05, 0.2] and (table["covered"] >= 0.93).all()
    assert table.loc[0.2, "binomial"] < 0.8, "as if requests were independent: what this is for"
