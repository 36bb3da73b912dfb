import math

import numpy as np
import pytest
from scipy import stats

from llm_measured.compare import ratios


def test_repeats_give_the_interval_that_a_reader_gets_with_scipy():
    a, b = [100.0, 104.0, 99.0], [121.0, 118.0, 125.0, 120.0]
    low, high = ratios.of_repeats(a, b).interval()
    expected = stats.ttest_ind(np.log(b), np.log(a)).confidence_interval(0.95)
    assert [low, high] == pytest.approx([math.exp(expected.low), math.exp(expected.high)])
    assert ratios.of_repeats(a, b).p() == pytest.approx(stats.ttest_ind(np.log(b), np.log(a)).pvalue)


def test_repeats_that_do_not_differ_and_single_runs_have_no_ratio():
    assert ratios.of_repeats([2.0, 2.0], [2.0, 2.0]) is None
    assert ratios.of_repeats([2.0], [3.0]) is None


@pytest.mark.parametrize(
    "log, error, verdict",
    [
        (0.02, 0.001, "equal"),  # differs for certain, by less than anybody cares for
        (0.2, 0.02, "faster"),
        (-0.2, 0.02, "slower"),
        (0.04, 0.03, "cannot be told"),
    ],
)
def test_equal_comes_before_faster_and_what_is_neither_cannot_be_told(log, error, verdict):
    ratio = ratios.Ratio(log, error, 10, error)
    assert ratios.verdict(ratio, ratio.p(), 0.05, more_is_better=True) == verdict


def test_so_many_runs_make_the_interval_as_narrow_as_asked():
    runs = ratios.runs_needed(0.05, 0.1)
    half = lambda n: stats.t.ppf(0.975, 2 * n - 2) * 0.05 * math.sqrt(2 / n)  # noqa: E731
    assert half(runs) <= math.log(1.1) < half(runs - 1)
    assert ratios.runs_needed(5.0, 0.01) is None
