"""Figures, tables and sentences of loads of sessions: what they say of made runs, and of none."""

import pytest
from pictures import words
from session_rows import frame, load

from bench.report import figures
from bench.report.tables import conversations as tables

NAMES = ("conversation_hits", "conversation_turns", "conversation_uncached")


@pytest.fixture
def requests():
    """Three runs of llama.cpp with the cache off and on in two sizes, and of a trace's arrivals."""
    rows = [one for run in (1, 2, 3) for cache in (0.0, 1000.0, 4000.0) for one in load(cache, run)]
    rows += [one for run in (1, 2, 3) for one in load(run=run, arrivals="trace", ttft_s=0.9)]
    return frame([one | {"backend": "llamacpp"} for one in rows])


@pytest.mark.parametrize(
    "name, said",
    [
        ("conversation_hits", "108 requests, 108 within, 0 below and 0 above"),
        ("conversation_turns", "turn of the conversation"),
        ("conversation_uncached", "prompt tokens that were computed"),
    ],
)
def test_a_figure_says_what_it_shows(requests, name, said):
    assert said in words(figures.DRAWN[name](requests))


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_of_nothing_says_so(requests, name):
    assert "turn" not in words(figures.DRAWN[name](requests.iloc[:0]))


def test_the_table_has_a_row_per_load_and_cache(requests):
    table = tables.conversations(requests)
    assert len(table) == 4 and table["hit rate by tokens (%)"].round().tolist() == [0, 67, 67, 67]
    assert list(tables.conversations(requests.iloc[:0]).columns) == list(table.columns)
    assert table["runs"].tolist() == [3] * 4
    assert tables.conversations(requests.assign(experiment="shares_of_capacity")).empty
