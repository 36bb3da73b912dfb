"""What was predicted before a measurement can be computed again, and what was measured is not predicted."""

import pytest

from bench import inputs
from bench.observations import store
from llm_planner import ahead


@pytest.fixture(scope="module")
def requests():
    return store.load()


@pytest.mark.check
def test_committed_predictions_follow_from_the_runs_of_then(requests):
    for made, committed in inputs.table("predictions").groupby("date"):
        table = ahead.predicted(requests[requests["started"] < made]).set_index(ahead.KEYS)
        for _, row in committed.iterrows():
            for name in ("predicted_ttft_s", "predicted_tpot_s"):
                assert table.loc[tuple(row[ahead.KEYS]), name] == pytest.approx(row[name], rel=1e-3)


def test_a_level_that_was_measured_is_not_predicted(requests):
    measured, unmeasured = (ahead.predicted(requests, level) for level in (8, 13))
    engines = [set(zip(table["backend"], table["gpu"])) for table in (measured, unmeasured)]
    assert ("vllm", "epyc-zen4-2c") not in engines[0] and ("vllm", "epyc-zen4-2c") in engines[1]
