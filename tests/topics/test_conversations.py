"""Loads of sessions: rates, pairs, cut sessions and verdicts of made rows whose truth is known."""

import json

import numpy as np
import pytest
from session_rows import frame, load

from bench.topics import conversations

SLO = {"ttft_s": 1.0, "tpot_s": 0.1}


def test_three_rates_of_a_level_and_its_bounds():
    (level,) = conversations.levels(frame(load()), SLO).to_dict("records")
    assert level["by_tokens"] == pytest.approx(400 / 600)
    assert level["mean_over_requests"] == pytest.approx((0 + 0.75 + 250 / 300) / 3)
    assert level["requests_with_a_hit"] == pytest.approx(2 / 3)
    assert level["expected_low"] == level["expected_high"] == level["by_tokens"]
    assert (level["sessions"], level["requests"], level["cut"], level["sessions_met"]) == (4, 12, 0, 1)
    assert level["session_goodput_per_s"] == 0.5


def test_a_session_meets_the_objectives_only_with_all_of_its_turns():
    rows = load()
    rows[1]["ttft_s"] = 2.0
    (level,) = conversations.levels(frame(rows), SLO).to_dict("records")
    assert level["sessions_met"] == 0.75 and level["session_goodput_per_s"] == 0.375


def test_a_server_that_reports_nothing_has_no_rate():
    rows = frame(load(cached_tokens=None))
    (level,) = conversations.levels(rows, SLO).to_dict("records")
    assert np.isnan(level["by_tokens"]) and len(conversations.by_turn(rows)) == 3


def test_a_cut_session_is_counted():
    rows = load()
    rows[4] |= {"error": "ConnectionError: gone", "ttft_s": None}
    rows[5] |= {"error": "failed before", "ttft_s": None, "sent_s": None}
    (level,) = conversations.levels(frame(rows), SLO).to_dict("records")
    assert (level["cut"], level["failed"], level["requests"]) == (1, 2, 12)


def test_a_turn_is_paired_with_itself_without_the_cache():
    rows = load() + load(cache=0.0)
    both = conversations.pairs(frame(rows))
    assert len(both) == 12 and (both["times"] == (both["ttft_off_s"] / both["ttft_s"])).all()
    assert both.set_index(["session", "turn"]).loc[(1, 3), "times"] == pytest.approx(6)
    without = [one for one in rows if not (one["session"] == 1 and one["cache_capacity_tokens"])]
    assert len(conversations.pairs(frame(without))) == 9


def test_what_a_cache_saved_is_over_runs_and_first_turns_stand_apart():
    rows = [one for run in (1, 2, 3) for cache in (1000.0, 0.0) for one in load(cache, run)]
    table = conversations.saved(frame(rows)).set_index("turns")
    assert table.loc["first", "times"] == pytest.approx(1) and table.loc["first", "computed"] == 1
    later = table.loc["later"]
    assert later["times"] == pytest.approx(5) and later["runs"] == 3 and later["pairs"] == 24
    assert later["times_low"] == pytest.approx(5) and later["computed"] == pytest.approx(100 / 500)
    one_run = conversations.saved(frame(load() + load(cache=0.0))).set_index("turns")
    assert np.isnan(one_run.loc["later", "times_low"])


def test_waits_by_turn_are_means_over_runs_of_medians():
    rows = load(run=1) + load(run=2, ttft_s=0.3)
    table = conversations.by_turn(frame(rows)).set_index("turn")
    assert table.loc[1, "ttft_p50_s"] == pytest.approx((0.1 + 0.3) / 2) and table.loc[1, "runs"] == 2
    assert table.loc[2, "ttft_p50_s_interval"] > 0
    assert table["by_tokens"].tolist() == pytest.approx([0, 0.75, 250 / 300])


def test_the_table_has_a_row_per_load_and_cache():
    rows = [one for run in (1, 2, 3) for cache in (0.0, 1000.0, 4000.0) for one in load(cache, run)]
    rows += [one for run in (1, 2, 3) for one in load(run=run, arrivals="trace", ttft_s=0.9)]
    requests = frame([one | {"backend": "llamacpp"} for one in rows])
    table = conversations.table(requests)
    assert (table["by_tokens"] * 100).round().tolist() == [0, 67, 67, 67] and set(table["runs"]) == {3}
    assert table["times"].iloc[1:3].tolist() == pytest.approx([5, 5]) and table["times"].isna().sum() == 2
    assert len(conversations.turns_table(requests)) == 4 * 3
    assert conversations.table(requests.assign(experiment="shares_of_capacity")).empty
    assert list(conversations.table(requests.iloc[:0]).columns) == list(table.columns)


@pytest.mark.parametrize(
    "cache, why, known", [(1000.0, None, True), (1000.0, "gone", False), (0.0, "gone", True)]
)
def test_a_hit_rate_that_no_counter_confirms_is_empty(tmp_path, cache, why, known):
    rows = frame(load(cache, session_rate=0.123456789))
    condition = {name: rows[name].iloc[0] for name in conversations.LEVEL[1:]} | {"session_rate": 0.12345679}
    counts = {"why": why} if why else dict.fromkeys(conversations.COUNTS, 600)
    file = tmp_path / f"{rows['run_id'].iloc[0]}.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"settings": {}, "counters": [{"level": "x"} | condition | counts]}))
    rows.attrs["folder"] = str(tmp_path)
    assert conversations.counted(rows)["why"].tolist() == [why or pytest.approx(np.nan, nan_ok=True)]
    (level,) = conversations.levels(rows, SLO).to_dict("records")
    assert np.isnan(level["by_tokens"]) != known and level["requests"] == 12


def test_without_sessions_there_is_nothing_and_no_error():
    empty = frame(load()).iloc[:0]
    names = "levels by_turn pairs saved table turns_table".split()
    assert all(getattr(conversations, name)(empty).empty for name in names)
