"""Measuring sessions: runs of one host without a gap of an hour."""

import pandas as pd
import pytest

from bench.observations.peaks import measuring_sessions

RUNS = pd.DataFrame(
    {
        "host": ["b", "a", "a", "a", "b"],
        "started": [f"2026-01-01T{time}:00+00:00" for time in ("00:00", "02:30", "00:00", "01:05", "09:00")],
        "ended": ["", "2026-01-01T02:35:00+00:00", "2026-01-01T00:10:00+00:00", "", ""],
    },
    index=[7, 5, 3, 1, 0],
)


def test_a_gap_of_more_than_an_hour_since_the_last_end_begins_a_session():
    assert measuring_sessions(RUNS).to_dict() == {3: 0, 1: 0, 5: 1, 7: 2, 0: 3}


def test_without_an_end_a_run_ends_as_it_starts():
    assert measuring_sessions(RUNS.drop(columns="ended")).to_dict() == {3: 0, 1: 1, 5: 2, 7: 3, 0: 4}


def test_a_long_run_holds_its_session_together():
    long = RUNS.assign(ended=["", "", "2026-01-01T02:00:00+00:00", "", ""])
    assert measuring_sessions(long)[[3, 1, 5]].tolist() == [0, 0, 0]


def test_an_empty_table_has_no_session_and_a_run_without_a_start_is_refused():
    assert measuring_sessions(RUNS.head(0)).empty
    with pytest.raises(ValueError, match="has no start"):
        measuring_sessions(RUNS.assign(started=""))
