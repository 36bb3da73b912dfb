"""Runs that shared their machine: drawn on its own pages, marked, and in nothing that is compared."""

import pandas as pd
import pytest
from builders import make_rows, make_sidecar, two_engines, write_run
from pictures import shown, words

from bench import html
from bench.machine import identity
from bench.observations import store
from bench.topics import latency, machines

HERE = {"host": "abc123", "gpu": "test-cpu"}  # whose runs `two_engines` has most of
BESIDE = "others used 7% of the CPU"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Runs of two machines; this one also measured two configurations beside others, one of them a second time
    alone."""
    monkeypatch.setattr(identity, "host", lambda: "abc123")
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    two_engines(tmp_path)
    for option, run in (("float32", 4), ("int4", 1)):
        rows = make_rows(option=option, run=run, rate=250.0, **HERE)
        busy = make_sidecar(busy_cores={"others": 0.14, "steal": 0.0})
        store.write(rows, busy, rows[0]["run_id"], tmp_path, marked=True)
    return tmp_path


def test_a_clean_run_is_drawn_in_their_place_and_they_enter_no_mean(folder):
    clean, both = store.load(), store.load(shared=True)
    before, after = (latency.summary(rows[rows["gpu"] == "test-cpu"]) for rows in (clean, both))
    marked = after[after["shared_by"] != ""]
    assert marked["option"].tolist() == ["int4"] and marked["reason"].tolist() == [BESIDE]
    assert marked["output_tokens_per_s"].iloc[0] > before["output_tokens_per_s"].max()
    assert marked["output_tokens_per_s_interval"].isna().all() and not marked["may_be_best"].any()
    alone = after[after["shared_by"] == ""]
    pd.testing.assert_frame_equal(alone[before.columns], before, check_dtype=False)


def test_numbers_are_numbers_where_every_run_was_shared(folder):
    both = store.load(shared=True)
    table = latency.summary(both[both["shared_by"] != ""])
    assert set(table["option"]) == {"float32", "int4"}
    assert table[["output_tokens_per_s", "output_tokens_per_s_interval", "ttft_s"]].dtypes.eq(float).all()


def test_they_are_drawn_as_shared_and_the_table_says_with_whom(folder, tmp_path):
    clean, both = store.load(), store.load(shared=True)
    assert "shared" not in words(shown("fig-latency", clean, tmp_path / "a" / "b"))
    drawn = shown("fig-latency", both, tmp_path / "a" / "b")
    assert "fake int4 · shared" in " ".join(words(drawn).split())
    table = shown("tbl-latency", both, tmp_path / "a" / "b")
    assert table.loc[table["option"] == "int4", "compared"].tolist() == [BESIDE]


def test_a_machine_that_has_only_them_can_stand_in_front(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "host", lambda: "123abc")
    with machines.make_default("123abc"), pytest.raises(ValueError, match="names no machine"):
        machines.each(store.load())
    rows = make_rows(option="int8", host="123abc", gpu="third-cpu")
    busy = make_sidecar(busy_cores={"others": 0.14, "steal": 0.0})
    store.write(rows, busy, rows[0]["run_id"], folder, marked=True)
    with machines.make_default("123abc"):
        assert "third-cpu" in words(shown("fig-latency", store.load(shared=True), tmp_path / "a" / "b"))


def test_a_run_beside_others_in_a_folder_of_ones_own_is_marked_as_well(tmp_path):
    busy = make_sidecar(busy_cores={"others": 0.14, "steal": 0.0})
    write_run(tmp_path, busy, scratch=True)
    with pytest.warns(UserWarning, match="shared their machine"):
        requests = store.load(folder=tmp_path)
    assert BESIDE in html.text(shown("tbl-latency", requests, tmp_path / "a" / "b"))
