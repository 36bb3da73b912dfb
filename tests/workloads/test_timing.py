"""Moments: ticks, caps, samples."""

import numpy as np
import pandas as pd

from bench.workloads import timing


def test_a_clock_ticks_where_most_gaps_are_none():
    assert timing.tick_s([0, 0, 0, 3, 3, 3, 6]) == 3
    assert timing.tick_s([0, 1, 1, 2, 3]) == 0
    assert timing.tick_s([]) == timing.tick_s([5]) == timing.tick_s([5, 5, 5]) == 0


def test_a_tick_is_spread_over_itself_in_order():
    at_s = np.repeat([0.0, 3.0, 6.0, 9.0], 50)
    moved = timing.spread(at_s, 1)
    assert (np.diff(moved) >= 0).all() and (moved // 3 * 3 == at_s).all()
    assert (timing.spread(at_s, 1) == moved).all() and (timing.spread(at_s, 2) != moved).any()
    assert (timing.spread([0.0, 1.0, 2.5], 1) == [0.0, 1.0, 2.5]).all()


def test_a_gap_within_a_session_is_capped_and_what_follows_moves():
    table = pd.DataFrame({"session": [1, 2, 1, 2, 1], "at_s": [0.0, 1.0, 100.0, 102.0, 105.0]})
    assert timing.capped(table, 10).tolist() == [0.0, 1.0, 10.0, 11.0, 15.0]
    assert timing.capped(table, None).tolist() == table["at_s"].tolist()


def test_a_sample_is_of_sessions():
    assert len(timing.sample(np.repeat(np.arange(100), 5), 0.1, 0)) == 10
    assert timing.sample([7, 7, 7], 0.001, 0) == {7}
