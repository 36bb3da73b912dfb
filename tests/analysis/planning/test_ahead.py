"""What was predicted before a measurement can be computed again, and what was measured is not predicted."""

import pytest

from bench import inputs
from bench.analysis.planning import ahead
from bench.observations import store


@pytest.fixture(scope="module")
def requests():
    return store.load()


def test_committed_predictions_follow_from_the_runs_of_then(requests):
    served = requests["experiment"] == "serving"
    of_then = ~served | ~(requests["concurrency"] == ahead.CONCURRENCY)
    table = ahead.predicted(requests[of_then]).set_index(ahead.KEYS)
    committed = inputs.table("predictions").set_index(ahead.KEYS)
    for key in committed.index:
        # More runs may have come since, from which the intervals would be taken anew; the middle stays.
        for name in ("predicted_ttft_s", "predicted_tpot_s"):
            assert table.loc[key, name] == pytest.approx(committed.loc[key, name], rel=1e-3)


def test_a_level_that_was_measured_is_not_predicted(requests):
    measured, unmeasured = (ahead.predicted(requests, level) for level in (8, 13))
    engines = [set(zip(table["backend"], table["gpu"])) for table in (measured, unmeasured)]
    assert ("vllm", "epyc-zen4-2c") not in engines[0] and ("vllm", "epyc-zen4-2c") in engines[1]
