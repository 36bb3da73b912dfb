import math

import numpy as np
import pytest

from llm_measured.core import confidence


def test_percentiles_are_bounded_by_as_many_requests_as_the_slowest_of_them_needs():
    assert [confidence.requests_needed(share) for share in (0.5, 0.9, 0.95, 0.99)] == [5, 29, 59, 299]


def test_holm_multiplies_the_smallest_by_the_size_of_the_family_and_leaves_unknown_out():
    assert confidence.holm([0.01, math.nan, 0.04]) == pytest.approx([0.02, math.nan, 0.04], nan_ok=True)


def test_holm_is_that_of_statsmodels():
    from statsmodels.stats.multitest import multipletests

    for seed in range(5):
        p = np.random.default_rng(seed).uniform(0, 0.3, 12).round(2)  # with ties
        assert confidence.holm(p) == pytest.approx(multipletests(p, method="holm")[1])
