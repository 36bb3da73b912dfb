"""What no measurement can be: the masks that validity checks and audit share."""

import math

import numpy as np
import pandas as pd
import pytest

from llm_measured.core import metrics, plausibility


@pytest.mark.parametrize(
    ("ttft_s", "e2e_s", "wrong"),
    [
        (0.1, 0.5, False),
        (0.5, 0.5, False),  # an answer of one token
        (0.6, 0.5, True),
        (-0.1, 0.5, True),
        (math.nan, 0.5, False),
        (math.nan, -0.5, True),
        (0.5, math.nan, False),
    ],
)
def test_times_run_backwards_where_the_first_token_comes_after_the_last(ttft_s, e2e_s, wrong):
    assert plausibility.backwards(pd.Series([ttft_s]), pd.Series([e2e_s])).tolist() == [wrong]


def test_what_rounding_explains_is_allowed():
    ttft_s, e2e_s = pd.Series([0.5000009, 0.5000011]), pd.Series([0.5, 0.5])
    assert plausibility.backwards(ttft_s, e2e_s, 1e-6).tolist() == [False, True]


def test_percentiles_rise_and_unknown_ones_are_passed_over():
    rows = np.array([[1, 2, 3], [2, 1, 3], [2, math.nan, 1], [math.nan, 2, 2]])
    assert plausibility.out_of_order(rows).any(axis=1).tolist() == [False, True, True, False]
    assert np.argwhere(plausibility.out_of_order(rows)).tolist() == [[1, 1], [2, 2]]
    near = np.array([[1.0, 1.0 - 1e-7]])
    assert plausibility.out_of_order(near).any() and not plausibility.out_of_order(near, 1e-6).any()
    assert not plausibility.out_of_order(near, relative=1e-6).any()


def test_a_prompt_takes_its_operations_at_the_peak():
    sizes = 100e6, 30e6, 500_000
    flops = metrics.prefill_flops(*sizes, 1000)
    least_s = plausibility.least_prefill_s(*sizes, 1000, 1e12)
    assert least_s == pytest.approx(flops / 1e12) and least_s > 0.2


@pytest.mark.parametrize(
    ("value", "count"),
    [(19.3, 3), (1 / 19.3, 3), (0.05181, 4), (1200.0, 2), (0.0, 0), (math.nan, 0), (1 / 7.31243, 6)],
)
def test_a_time_made_of_a_printed_rate_has_as_many_digits_as_the_rate(value, count):
    assert plausibility.digits(value) == count
