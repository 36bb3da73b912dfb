"""The cards of the front page, and what pages keep on disk for each other."""

import os
import pickle
import re

import pandas as pd
import pytest
from builders import write_run

from bench import memo
from bench.observations import store
from bench.report import cards, kept, tables


@pytest.fixture
def repeated(tmp_path):
    """Three runs of two options that lie far apart."""
    for n in (1, 2, 3):
        write_run(tmp_path, backend="llamacpp", option="Q4_0", rate=90.0 + n, run=n)
        write_run(tmp_path, backend="llamacpp", option="F16", rate=30.0 + n, run=n)
    return store.load(folder=tmp_path)


def test_a_card_names_the_best_with_its_interval_and_where_the_evidence_is(repeated):
    card = cards.fastest(repeated)
    assert card["title"] == "Fastest for one user" and "**llamacpp Q4_0**" in card["text"]
    assert re.fullmatch(r"[\d.]+ ± [\d.]+ output tokens/s", card["figure"])
    _, value, low, high = card["points"][0]
    assert card["figure"].startswith(f"{value:.1f}") and low < value < high
    assert [point[0] for point in card["points"]] == ["llamacpp Q4_0", "llamacpp F16"]
    assert "; llamacpp F16 " in cards.described(card) and f'href="{card["link"]}"' in cards.markdown(card)


def test_a_card_of_single_runs_ranks_nothing(repeated):
    card = cards.fastest(repeated[repeated["run_id"].str.endswith("-1")])
    assert card["title"] == "One user at a time" and "not ranked" in card["text"]
    assert "±" not in card["figure"]


def test_nothing_measured_has_no_card(repeated):
    assert all(card(repeated.iloc[:0]) is None for card in cards.CARDS)


def test_changes_say_when_a_version_was_new(repeated):
    later = repeated.assign(
        started="2027-01-02T00:00:00", backend_version="999", run_id=repeated["run_id"] + "0"
    )
    table = tables.TABLES["measured_when"](pd.concat([repeated, later]))
    assert list(table["change"]) == ["new version", ""] and list(table["day"])[0] == "2027-01-02"
    assert table["runs"].tolist() == [6, 6]


def test_what_is_kept_is_computed_once_and_a_damaged_file_again(tmp_path):
    calls = []
    memo.keep_in(tmp_path)
    try:
        compute = lambda: calls.append(1) or 7
        assert memo.kept("key", compute) == memo.kept("key", compute) == 7 and len(calls) == 1
        assert memo.kept("another", compute) == 7 and len(calls) == 2
        for file in tmp_path.iterdir():
            file.write_bytes(pickle.dumps(8)[:3])
        assert memo.kept("key", compute) == 7 and len(calls) == 3
    finally:
        memo.keep_in(None)


def test_pages_of_other_observations_keep_theirs_and_the_oldest_go(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "CACHE", tmp_path)
    try:
        for hour, results in enumerate(("first", "second", "third", "fourth")):
            monkeypatch.setenv("BENCH_RESULTS", results)
            monkeypatch.setenv("BENCH_DOWNLOADS", f"of the site of {hour} o'clock")
            before = set(tmp_path.iterdir())
            kept.begin()
            assert memo.kept("key", lambda: results) == results
            (new,) = set(tmp_path.iterdir()) - before
            os.utime(new, (hour, hour))
        assert len(list(tmp_path.iterdir())) == kept.LEFT + 1
        monkeypatch.setenv("BENCH_DOWNLOADS", "of another site")
        kept.begin()
        assert memo.kept("key", lambda: "computed anew") == "fourth"
    finally:
        memo.keep_in(None)


def test_a_name_is_part_of_what_is_remembered(repeated):
    calls = []

    @memo.by_content
    def largest(table, metric, of=1):
        calls.append(metric)
        return table.nlargest(of, metric)

    for _ in range(2):
        assert len(largest(repeated, "e2e_s", of=2)) == 2 and len(largest(repeated, "e2e_s", of=3)) == 3
    assert len(calls) == 2
