"""How numbers are put into words."""

import pandas as pd
import pytest

from bench import words


@pytest.mark.parametrize(
    ("ratios", "said"),
    [([3.0, 40.0, 12.0], "3 to 40 times"), ([2.04, 1.96], "2 times"), ([1.0, 1.0], "1 times")],
)
def test_a_range_of_ratios_has_two_digits(ratios, said):
    assert words.ratio_range(pd.Series(ratios)) == said


def test_a_ratio_that_two_digits_would_make_even_has_three():
    assert words.ratio_range(pd.Series([0.8, 0.996])) == "0.8 to 0.996 times"
