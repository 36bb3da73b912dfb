"""The cards of the front page, and what pages keep on disk for each other."""

import re

import pandas as pd
import pytest
from builders import write_run

from bench.observations import store
from bench.report import finding_cards, tables


@pytest.fixture
def repeated(tmp_path):
    """Three runs of two options that lie far apart."""
    for n in (1, 2, 3):
        write_run(tmp_path, backend="llamacpp", option="Q4_0", rate=90.0 + n, run=n)
        write_run(tmp_path, backend="llamacpp", option="F16", rate=30.0 + n, run=n)
    return store.load(folder=tmp_path)


def test_a_card_names_the_best_with_its_interval_and_where_the_evidence_is(repeated):
    card = finding_cards.fastest(repeated)
    assert card["title"] == "Fastest for one user" and "**llamacpp Q4_0**" in card["text"]
    assert re.fullmatch(r"[\d.]+ ± [\d.]+ output tokens/s", card["figure"])
    _, value, low, high = card["points"][0]
    assert card["figure"].startswith(f"{value:.1f}") and low < value < high
    assert [point[0] for point in card["points"]] == ["llamacpp Q4_0", "llamacpp F16"]
    assert "; llamacpp F16 " in finding_cards.described(
        card
    ) and f'href="{card["link"]}"' in finding_cards.markdown(card)


def test_a_card_of_single_runs_ranks_nothing(repeated):
    card = finding_cards.fastest(repeated[repeated["run_id"].str.endswith("-1")])
    assert card["title"] == "One user at a time" and "not ranked" in card["text"]
    assert "±" not in card["figure"]


def test_nothing_measured_has_no_card(repeated):
    assert all(card(repeated.iloc[:0]) is None for card in finding_cards.CARDS)


def test_changes_say_when_a_version_was_new(repeated):
    later = repeated.assign(
        started="2027-01-02T00:00:00", backend_version="999", run_id=repeated["run_id"] + "0"
    )
    table = tables.TABLES["measured_when"](pd.concat([repeated, later]))
    assert list(table["change"]) == ["new version", ""] and list(table["day"])[0] == "2027-01-02"
    assert table["runs"].tolist() == [6, 6]
