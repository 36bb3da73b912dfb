"""Overload without a stop-watch: long answers are none, a queue that grows is one."""

import numpy as np
import pytest

from bench.analysis import levels, serving_proof
from bench.analysis.serving_proof import FIXED, FREE, SHARED, SLOTS, VARIED

PLACES = ((10.0, 1.0), (10.0, 16.0), (30.0, 2.0))


def share(server, spread, answer_s, rate, seeds, requests=None):
    """How often such an open loop is called overloaded."""
    requests = requests or levels.requests_for("open", rate, 90, answer_s)
    loops = (serving_proof.loop(server, spread, answer_s, rate, requests, seed) for seed in range(seeds))
    return np.mean([levels.overloaded(rows) for rows in loops])


@pytest.mark.parametrize("spread", [FIXED, VARIED])
@pytest.mark.parametrize("answer_s, rate", PLACES)
def test_a_server_without_contention_is_not_overloaded_however_long_it_answers(spread, answer_s, rate):
    assert share(FREE, spread, answer_s, rate, seeds=50) <= 0.02


@pytest.mark.parametrize("rate", [1.0, 4.0, 16.0])
def test_nor_is_it_where_nobody_knew_how_long_answers_take(rate):
    requests = levels.requests_for("open", rate, 90)
    assert share(FREE, VARIED, 20.0, rate, 50, requests) <= 0.02
    rows = serving_proof.loop(FREE, FIXED, 60.0, rate, requests, seed=1)
    assert levels.short(rows), "but the level is compared with nothing"


@pytest.mark.parametrize(
    "server, spread", [(SLOTS, FIXED), (SLOTS, VARIED), (SHARED, FIXED), (SHARED, VARIED)]
)
def test_a_server_at_1_2_times_its_capacity_is_overloaded(server, spread):
    assert share(server, spread, 10.0, 4.0, seeds=20) >= 0.95


def test_levels_of_the_promised_answers_end_within_15_minutes():
    lasts = [levels.lasts_s(rate, s) for rate in serving_proof.RATES for s in serving_proof.ANSWERS_S]
    assert max(lasts) <= 900


def test_the_committed_proofs_of_overload_shares_and_placements_keep_their_promise():
    table, bounds, splits = (serving_proof.load(name) for name in ("overload", "shares", "placement"))
    assert set(bounds["correlation"]) == set(serving_proof.CORRELATIONS) and (bounds["studies"] >= 1000).all()
    assert set(splits["shape"]) == {*serving_proof.SHAPES, serving_proof.TWO}
    assert (splits["machines"] >= 200).all()
    assert splits.loc[splits["shape"] == serving_proof.TWO, "split"].iloc[-1] > 0.9
    assert (table["seeds"] >= 500).all() and len(table) == 6 * 3 * 3 and (table["lasts_s"] <= 900).all()
    assert serving_proof.broken(table, bounds, splits) == []
    worse = table.assign(overloaded=1 - table["overloaded"])
    assert len(serving_proof.broken(worse, bounds, splits)) == len(table), "a proof can fail"
