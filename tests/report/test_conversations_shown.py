"""Figures, tables and sentences of loads of sessions: what they say of made runs, and of none."""

import pandas as pd
import pytest
from pictures import words
from session_rows import frame, load

from bench.analysis import conversations as analysis
from bench.report import figures
from bench.report.findings import conversations as findings
from bench.report.tables import conversations as tables

NAMES = ("conversation_hits", "conversation_turns", "conversation_uncached", "conversation_sizes")


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
        ("conversation_sizes", "size of the cache, tokens"),
    ],
)
def test_a_figure_says_what_it_shows(requests, name, said):
    assert said in words(figures.DRAWN[name](requests))


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_of_nothing_says_so(requests, name):
    assert "turn" not in words(figures.DRAWN[name](requests.iloc[:0]))


def test_engines_that_round_one_size_differently_are_no_curve(requests):
    """Each has one size: there is nothing to join, and an axis from 1,000 to 1,032 would show noise."""
    one = requests[requests["cache_capacity_tokens"] == 1000]
    other = one.assign(backend="vllm", cache_capacity_tokens=1032.0, run_id=one["run_id"] + "v")
    drawn = figures.DRAWN["conversation_sizes"](pd.concat([one, other], ignore_index=True))
    assert "size of the cache" not in words(drawn)


def test_hits_and_cuts_are_counted(requests):
    assert findings.hits(requests) == (
        "Of 108 requests to servers with a cache, 108 hit as many tokens as were expected before the run, 0 fewer "
        "(evicted, or held by another request) and 0 more."
    )
    assert findings.cut(requests) == "None of 48 sessions was cut: every turn was sent and answered."
    broken = requests.assign(error=requests["error"].where(requests.index != 5, "ConnectionError: gone"))
    assert findings.cut(broken).startswith("1 of 48 sessions were cut (1 by ConnectionError)")


def test_rates_have_their_names_and_intervals(requests):
    sentences = findings.rates(requests)
    assert len(sentences) == 2
    assert (
        "67 % (67 to 67) and 67 % (67 to 67) by tokens with a cache of 1,000 tokens and a cache of 4,000 "
        "tokens, and with the largest 53 % as a mean over requests and 67 % as the share of requests with a "
        "hit; at most 67 % by tokens if nothing were evicted (3\N{NO-BREAK SPACE}runs each)."
    ) in sentences[0]
    one = requests[requests["run_id"] == requests["run_id"].iloc[0]]
    assert "(1\N{NO-BREAK SPACE}run each, so without an interval)." in findings.rates(one)[0]


def test_what_a_cache_saved_has_an_interval_or_says_that_it_has_none(requests):
    sentences = findings.saved(requests)
    assert len(sentences) == 2 and all("comes 5 times (5 to 5) as fast" in one for one in sentences)
    one = requests[requests["run_id"] == requests["run_id"].iloc[0]]
    assert all(sentence.endswith("one run, so without an interval.") for sentence in findings.saved(one))
    slower = requests.assign(ttft_s=0.1 + requests["run_id"].str[-1].astype(int) * requests["ttft_s"] * 0)
    assert all("cannot be distinguished" in sentence for sentence in findings.saved(slower))


def test_counters_are_told_beside_rows(monkeypatch):
    def counted(*levels):
        columns = ["prompt_tokens", "cached_tokens", "rows_prompt_tokens", "rows_cached_tokens", "why"]
        table = pd.DataFrame(levels, columns=columns)
        monkeypatch.setattr(analysis, "counted", lambda requests: table)
        return findings.counted(None)

    equal, cut = (100, 60, 100, 60, None), (100, 60, 90, 60, None)
    assert counted() is None
    assert counted(equal, equal) == (
        "The servers' own counters of 2 levels of load, 200 prompt tokens with 120 of them cached, equal the sums of "
        "the rows to the token in 2."
    )
    assert "token in 1, and to the tokens of turns that were cut in the others." in counted(equal, cut)
    assert "; 1 level had no counters" in counted(equal, (None, None, None, None, "gone"))


def test_a_replay_is_told_with_what_it_missed(monkeypatch):
    made = {"trace": "made", "time_scale": 1.0, "requests": 60000, "seconds": 600.0}
    made |= {"late_p50_ms": 0.05, "late_p99_ms": 0.4}
    alike = {f"dispersion_{w}s_{what}": 2.0 for w in analysis.WINDOWS_S for what in ("schedule", "sent")}
    real = [made | alike | {"trace": "azure", "time_scale": scale} for scale in (0.5, 4.0)]
    for late, missed in ((0.4, False), (3.0, True)):
        table = pd.DataFrame([made | alike | {"late_p99_ms": late}, *real])
        monkeypatch.setattr(analysis, "proof", lambda name: table)
        first, second = findings.replayed()
        assert first.startswith("Of 60,000 requests of a made trace with bursts, in 10 minutes, half arrived")
        assert second.startswith(
            "Missed: made at scale 1" if missed else "1 real trace at time scales 0.5 and 4"
        )
    monkeypatch.setattr(analysis, "proof", lambda name: pd.DataFrame())
    assert findings.replayed() == [] and tables.replay_proof().empty and tables.conversation_peers().empty


def test_bursts_are_told_beside_poisson(requests):
    (sentence,) = findings.bursts(requests)
    assert "under the arrivals of conversations at 0.5 sessions/s the 90th percentile of TTFT" in sentence


def test_nothing_is_said_of_nothing(requests):
    none = requests.iloc[:0]
    assert findings.hits(none) is findings.cut(none) is None
    assert findings.rates(none) == findings.saved(none) == findings.bursts(none) == []


def test_the_table_has_a_row_per_load_and_cache(requests):
    table = tables.conversations(requests)
    assert len(table) == 4 and table["hit rate by tokens (%)"].round().tolist() == [0, 67, 67, 67]
    assert list(tables.conversations(requests.iloc[:0]).columns) == list(table.columns)
    assert table["runs"].tolist() == [3] * 4
    assert tables.conversations(requests.assign(experiment="bursts_conv")).empty
