"""What the load client keeps between a read and a row: its backlog, answers, results, the cache's trial."""

import math

import pytest
from answers import ancillary, answered, chunked, event, text, usage

from bench.instrument.load import backlog, prefix_cache, records, results


def call(number, at_s=None):
    return records.Call(number, b"", at_s, 3, 1)


def test_scheduled_calls_begin_at_their_moment_and_not_before():
    line = backlog.Backlog([call(1, 2.0), call(2, 1.0)], 1)
    assert line and line.take(1e9, 0) is None, "nothing begins before there is a start"
    line.start = 100.0
    assert line.take(100.9, 0) is None and line.moments(0) == [101.0]
    first = line.take(101.0, 50)  # whatever the others do
    assert (first.call.number, first.due) == (2, 101.0) and line.moments(7) == [102.0] and line
    assert line.take(101.5, 0) is None
    second = line.take(105.0, 0)
    assert (second.call.number, second.due) == (1, 102.0)
    assert not line and line.moments(0) == [] and line.take(200.0, 0) is None


def test_calls_without_a_schedule_begin_when_a_place_is_free(monkeypatch):
    monkeypatch.setattr(backlog, "clock", lambda: 103.0)
    line = backlog.Backlog([call(1), call(2), call(3)], 2)
    line.start = 100.0
    assert line.take(99.9, 0) is None, "not before the start"
    assert line.moments(0) == [100.0] and line.moments(1) == [], "the start, or another one's end"
    taken = line.take(100.0, 0)
    assert (taken.call.number, taken.due) == (1, 103.0) and math.isnan(taken.begun)
    assert line.take(101.0, 2) is None and line.take(101.0, 1).call.number == 2
    assert line and line.take(101.0, 1).call.number == 3 and not line


def turns(*timing):
    """The turns of one session, numbered from 1, each after the answer before it: (at_s, gap_s) of each."""
    return [
        records.Call(k, b"", at_s, 3, 1, after=k - 1 if k > 1 else None, gap_s=gap_s)
        for k, (at_s, gap_s) in enumerate(timing, start=1)
    ]


def test_a_turn_waits_for_the_answer_before_it_and_counts_from_the_moment_it_was_due():
    session = turns((1.0, 0), (None, 0.5), (4.0, 0), (2.0, 0))
    assert [each.scheduled for each in [*session, call(9)]] == [True] * 4 + [False]
    line = backlog.Backlog(session, 1)
    line.start, found = 100.0, []
    answer = line.take(101.0, 0)
    assert not line and line.take(1e9, 0) is None, "the second turn waits"
    for ended in (102.0, 103.0, 105.0):
        line.schedule(line.next_turn(answer), ended)
        assert line.next_turn(answer) is None, "a turn follows once"
        (moment,) = line.moments(0)
        answer = line.take(moment, 7)
        found.append((answer.call.number, answer.due, answer.free))
    assert found == [(2, 102.5, 102.5), (3, 104.0, 104.0), (4, 102.0, 105.0)]


def test_turns_that_will_not_begin_are_all_named():
    session, others = turns((1.0, 0), *[(None, 0)] * 3), [call(8, 9.0), call(9)]
    line, begun = (backlog.Backlog([*session, *others], 1) for _ in range(2))
    assert line.clear() == [*session, *others] and line.clear() == [] and not line
    begun.start = 100.0
    begun.take(101.0, 0)
    assert begun.clear() == [*others, *session[1:]], "the first is under way"


def test_what_an_answer_holds_is_counted_with_what_python_keeps():
    answer = answered([b"abc", b"de"])
    assert answer.bytes_held == 5 + 2 * records.READ_COST_BYTES
    fresh = records.Answer(call(1), 5.0)
    moments = fresh.begun, fresh.connected, fresh.sent, fresh.ended
    assert all(map(math.isnan, moments)) and (fresh.reads, fresh.error, fresh.stream) == ([], "", None)
    assert "payload" not in repr(call(1)), "it may carry an access token"


def whole():
    """An answer of one token."""
    return answered([chunked(event(text("a")), event(usage(1)))], 1)


@pytest.fixture
def clocks(monkeypatch):
    """Monotonic moments that are handed out one after the other; the wall clock is 1000 s ahead."""
    moments = []
    monkeypatch.setattr(results, "clock", lambda: moments.pop(0))
    monkeypatch.setattr(results.time, "time", lambda: 1010.0)
    return moments


def test_the_closest_of_five_looks_at_the_clocks_counts(clocks):
    kept = results.Results("completions")
    clocks += [10.0, 10.5, 11.0, 11.25, 12.0, 12.125, 13.0, 13.5, 14.0, 15.0]
    kept.compare_clocks()
    assert kept.clocks == [(12.0625, 1010.0 - 12.0625)]


def test_answers_are_digested_where_they_hold_too_much(clocks, monkeypatch):
    kept = results.Results("completions")
    kept.clocks = [(5.0, 1000.0)]
    kept.add(whole())
    held = kept.held
    assert held == whole().bytes_held and kept.rows == []
    monkeypatch.setattr(results, "HELD_BYTES", held - 1)
    clocks += [6.0]
    assert kept.look() == 6.0 and kept.rows == [] and kept.clocks == [(5.0, 1000.0)], (
        "a second has not passed"
    )
    clocks += [6.5, *[7.0] * 10]
    monkeypatch.setattr(results, "HELD_BYTES", held)
    assert kept.look() == 8.0 and kept.rows == [], "as much as may be held"
    monkeypatch.setattr(results, "HELD_BYTES", held - 1)
    clocks += [9.0, *[9.5] * 10]
    assert kept.look() == 10.5 and len(kept.rows) == 1 and kept.done == [] and kept.held == 0


def test_an_answer_that_a_turn_waits_for_is_read_at_once_and_the_others_later(clocks, monkeypatch):
    kept = results.Results("completions")
    first, second = whole(), whole()
    kept.add(first)
    kept.add(second)
    clocks += [10.0] * 20 + [20.0] * 21
    kept.compare_clocks()
    cpu = iter([1.0, 1.5, 4.0, 4.25])
    monkeypatch.setattr(results.time, "process_time", lambda: next(cpu))
    row = kept.now(second)
    assert row["output_tokens"] == 1 and kept.rows == [row] and len(kept.done) == 1
    kept.look()
    assert len(kept.done) == 1, "so little is held until the run is over"
    kept.now(kept.done[0])
    assert len(kept.rows) == 2 and kept.done == [] and kept.reading_cpu_s == 0.75


def test_rows_and_lags_are_kept_and_bytes_let_go(monkeypatch):
    kept = results.Results("completions")
    kept.clocks = [(0.0, 1000.0)]
    answers = [whole(), whole()]
    answers[1].reads = [(10.1, [], answers[1].reads[0][2])]
    for answer in answers:
        kept.add(answer)
    cpu = iter([1.0, 1.5, 4.0, 4.25])
    monkeypatch.setattr(results.time, "process_time", lambda: next(cpu))
    kept.digest()
    assert [row["output_tokens"] for row in kept.rows] == [1, 1] and kept.reading_cpu_s == 0.5
    assert [answer.reads for answer in answers] == [[], []] and kept.held == 0
    assert kept.read_lag_s() == pytest.approx([0.001], abs=1e-6), "a read without a stamp has no lag"
    kept.digest()
    assert len(kept.rows) == 2 and kept.reading_cpu_s == 0.75
    assert results.Results("completions").read_lag_s().size == 0


def test_the_dialect_is_that_of_the_run():
    kept = results.Results("chat")
    kept.clocks = [(0.0, 1000.0)]
    kept.add(answered([chunked(event({"choices": [{"delta": {"content": "a"}}]}), event(usage(1)))], 1))
    kept.digest()
    assert kept.rows[0]["text"] == "a" and ancillary(1.0)


# --- the trial for a prefix cache -------------------------------------------------------------------------


def trial(fresh, repeated, cached=(None,) * 5, **more):
    """The rows of a trial whose two measured prompts took `fresh` s, and sent again `repeated` s."""
    times = 9.0, fresh[0], repeated[0], fresh[1], repeated[1]
    return [
        {"error": "", "ttft_s": ttft, "e2e_s": ttft + 1, "prompt_tokens": 300, "cached_tokens": hit} | more
        for ttft, hit in zip(times, cached)
    ]


ZERO, HITS, SLOTS = (0,) * 5, (0, 0, 280, 0, 280), (0, 24, 296, 0, 296)
TRIALS = {  # (new prompts, s), (again, s), cached tokens reported, whether a cache answers, whether refused
    "a cache that says nothing": ((1.6, 1.7), (0.02, 0.03), (None,) * 5, True, True),
    "a cache that reports nothing but 0": ((1.6, 1.7), (0.02, 0.03), ZERO, True, True),
    "a cache that reports its hits": ((1.6, 1.7), (0.02, 0.03), HITS, True, False),
    "several slots behind a template": ((1.6, 1.7), (0.02, 0.03), SLOTS, True, False),
    "a machine that flips": ((2.0, 2.4), (0.1, 2.0), (None,) * 5, False, False),
    "no cache": ((2.0, 2.4), (2.1, 1.9), ZERO, False, False),
    "short prompts on a fast engine": ((0.02, 0.021), (0.004, 0.004), ZERO, None, False),
    "somewhat faster again": ((2.0, 2.4), (1.2, 1.1), (None,) * 5, None, False),
}


@pytest.mark.parametrize("case", TRIALS)
def test_times_tell_a_cache_whatever_the_server_reports(case):
    fresh, repeated, reported, cached, refused = TRIALS[case]
    found = prefix_cache.result(trial(fresh, repeated, reported))
    assert found["cached"] is cached and bool(prefix_cache.why_not(found)) == refused
    assert bool(prefix_cache.unknown(found)) == (cached is None)
    assert found["template_tokens"] == (24 if reported == SLOTS else 0)
    assert bool(prefix_cache.why_not(found, off=True)) == (refused or reported in (HITS, SLOTS))


def test_a_sentence_names_both_times_and_the_switches_and_a_failed_trial_its_error():
    sentence = prefix_cache.why_not(prefix_cache.result(trial((0.999, 0.999), (0.02, 0.02))))
    assert (
        "a new prompt of 300 tokens takes 999.0 ms" in sentence and "the same one again 20.0 ms" in sentence
    )
    assert prefix_cache.SWITCHES in sentence and prefix_cache.REPORTS in sentence
    with pytest.raises(RuntimeError, match="HTTP 500: no$"):
        prefix_cache.result(trial((1, 1), (1, 1), error="HTTP 500: no"))


@pytest.mark.parametrize(
    ("sent", "back", "cached", "was_cut"),
    [(2048, 256, 0, True), (2048, 1840, None, True), (2048, 1850, 0, False), (2048, 48, 2000, False),
     (250, 100, 0, False), (256, 200, 0, True)],
)  # fmt: skip
def test_a_prompt_that_came_back_shorter_was_cut(sent, back, cached, was_cut):
    rows = trial((1, 1), (1, 1), (cached,) * 5, prompt_tokens=back)
    assert bool(prefix_cache.cut(rows, sent)) == was_cut
    rows[1]["prompt_tokens"] = rows[3]["prompt_tokens"] = sent
    assert not prefix_cache.cut(rows, sent), "once is none"


@pytest.mark.parametrize(
    "cached, block, where",
    [(None, 1, ""), (78, 1, ""), (77, 1, "answer"), (59, 1, "answer"), (58, 1, "prompt"), (48, 16, ""),
     (47, 16, "answer"), (44, 16, "answer"), (43, 16, "prompt")],
)  # fmt: skip
def test_where_the_prefix_of_a_second_turn_broke(cached, block, where):
    """60 tokens of the prompt and 19 of the answer were computed; the last block may be missing."""
    trial = [{"prompt_tokens": 60, "output_tokens": 20}, {"cached_tokens": cached}]
    said = prefix_cache.broken_history(trial, *([] if block == 1 else [block]))
    assert (f"after {cached} of 79 tokens, in the first turn's {where}:" in said) if where else said == ""
