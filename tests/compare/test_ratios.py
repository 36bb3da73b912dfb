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


def test_a_single_run_adds_the_variances_of_its_requests_and_of_two_runs():
    ratio = ratios.of_single(100, 120, 0.03, 20, [(0.02, 30), (0.01, 30)])
    assert ratio.error == pytest.approx(math.sqrt(0.02**2 + 0.01**2 + 2 * 0.03**2))
    assert 20 < ratio.freedom < 40
    alone = ratios.of_single(100, 120, 0.03, 20)
    assert alone.freedom == pytest.approx(20) and alone.error < ratio.error


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


def test_less_time_is_faster():
    ratio = ratios.Ratio(-0.2, 0.02, 10, 0.02)
    assert ratios.verdict(ratio, ratio.p(), 0.05, more_is_better=False) == "faster"


def test_so_many_runs_make_the_interval_as_narrow_as_asked():
    runs = ratios.runs_needed(0.05, 0.1)
    half = lambda n: stats.t.ppf(0.975, 2 * n - 2) * 0.05 * math.sqrt(2 / n)  # noqa: E731
    assert half(runs) <= math.log(1.1) < half(runs - 1)
    assert ratios.runs_needed(5.0, 0.01) is None


def test_a_limit_is_passed_by_what_lies_beyond_it_alone():
    assert ratios.Ratio(math.log(1.3), 0.03, 10, 0.03).p_beyond(1.1, above=True) < 0.01
    assert ratios.Ratio(math.log(1.1), 0.03, 10, 0.03).p_beyond(1.1, above=True) == pytest.approx(0.5)
    assert ratios.Ratio(math.log(0.8), 0.03, 10, 0.03).p_beyond(0.95, above=False) < 0.01
