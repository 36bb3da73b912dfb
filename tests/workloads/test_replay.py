"""A trace as a workload: blocks and lengths mapped, moments moved, what does not fit said."""

import json

import numpy as np
import pytest

from bench.workloads import replay, traces
from bench.workloads.words import Words

WORDS = range(100, 700)


@pytest.fixture
def trace(tmp_path):
    """Two sessions of blocks of 512 tokens, ten requests of one turn, all in two ticks of 3 s; a remainder of
    511 tokens and a prompt of whole blocks are among them."""
    rows = [(0, 1023, [0, 1]), (0, 1536, [0, 2, 3]), (0, 1024 + 511, [0, 4, 5])]
    rows += [(0, 600, [0, 10 + k]) for k in range(5)] + [(3000, 700, [0, 20 + k]) for k in range(5)]
    rows += [(3000, 2600, [0, 2, 3, 6, 7, 8]), (60_000, 3000, [0, 2, 3, 6, 7, 9])]
    path = tmp_path / "trace.jsonl"
    names = "timestamp", "input_length", "output_length", "hash_ids"
    path.write_text("\n".join(json.dumps(dict(zip(names, (at, n, 320, ids)))) for at, n, ids in rows))
    return traces.read(path)


def made(trace, **how):
    return replay.workload(trace, WORDS, ("host", 1, 1), **{"most_tokens": 10**5, "block_tokens": 16} | how)


def prompts(load):
    return [turn.prompt for session in load.sessions for turn in session.turns]


def test_requests_share_the_blocks_that_their_ids_share_and_no_more(trace):
    """A block of 512 tokens becomes one of 16. All begin with block 0, and none of two sessions share another."""
    load = made(trace)
    first = [session.turns[0].prompt for session in load.sessions]
    assert len(first) == 13 and len({prompt[:16] for prompt in first}) == 1
    assert len({prompt[16:18] for prompt in first}) == 13


def test_a_remainder_stays_less_than_a_block_and_more_than_nothing(trace):
    lengths = sorted(map(len, prompts(made(trace))))
    assert 16 + 15 in lengths and 3 * 16 in lengths and 2 * 16 + 15 in lengths
    assert all(turn.new_tokens == 10 for session in made(trace).sessions for turn in session.turns)


def test_equal_ids_are_equal_tokens_and_others_belong_to_other_runs(trace):
    one, again = made(trace), made(trace)
    other = replay.workload(trace, WORDS, ("host", 1, 2), 10**5, block_tokens=16)
    assert prompts(one) == prompts(again)
    assert all(a[:16] != b[:16] for a, b in zip(prompts(one), prompts(other)))
    sampled = {p for p in prompts(made(trace, sample=0.5))}
    assert sampled < set(prompts(one))


def test_caps_come_before_the_scale(trace):
    load = made(trace, gap_cap_s=10, time_scale=4)
    (long,) = [session for session in load.sessions if len(session.turns) == 3]
    gaps = np.diff([turn.at_s for turn in long.turns])
    assert gaps[1] == pytest.approx(40)
    assert made(trace, due="gap", gap_cap_s=10, time_scale=4).sessions[long.number - 1].turns[
        2
    ].gap_s == pytest.approx(40)


def test_a_tick_is_spread_and_said_so(trace):
    load = made(trace)
    first = [session.turns[0].at_s for session in load.sessions]
    assert load.about["tick_spread_s"] == 3 and len(set(first)) == len(first)
    assert sum(moment < 3 for moment in first) == 8 and first == sorted(first)


def test_turns_follow_their_session_and_add_what_is_new(trace):
    (long,) = [session for session in made(trace).sessions if len(session.turns) == 3]
    one, two, three = long.turns
    assert two.prompt[:48] == one.prompt and two.added == two.prompt[58:]
    assert three.prompt[:80] == two.prompt[:80]
    assert made(trace).about["turns_that_do_not_extend"] == 1  # its last block was a remainder


@pytest.mark.parametrize(
    "how, sentence",
    [
        ({"most_tokens": 60}, "of 15 requests need more than the context of 60 tokens, the longest"),
        ({"most_tokens": 20, "drop_long": True}, "Every session of the trace needs more"),
        ({"sample": 2}, "sample must be above 0"),
        ({"time_scale": 0}, "must be above 0"),
        ({"gap_cap_s": -1}, "gap_cap_s"),
        ({"block_tokens": 1}, "must be 2 or more"),
        ({"first_s": 500}, "No session of the trace begins"),
    ],
)
def test_what_cannot_be_is_one_sentence(trace, how, sentence):
    with pytest.raises(ValueError, match=sentence):
        made(trace, **how)


def test_whole_sessions_beyond_the_context_are_left_out_and_counted(trace):
    load = made(trace, most_tokens=60, drop_long=True)
    assert load.about["sessions_beyond_context"] == 1 and load.most_tokens <= 60
    assert load.requests == 12


def test_a_csv_of_lengths_is_scaled_and_shares_nothing(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("at_s,prompt_tokens,new_tokens\n0,100,20\n1,200,40\n2,300,60\n")
    load = replay.workload(traces.read(path), WORDS, ("host",), 10**4, length_scale=0.5)
    assert [(len(s.turns[0].prompt), s.turns[0].new_tokens) for s in load.sessions] == [
        (50, 10),
        (100, 20),
        (150, 30),
    ]
    assert len({ids[:8] for ids in prompts(load)}) == 3


def test_words_are_the_same_for_a_name_and_a_beginning_of_more():
    words = Words(WORDS, ("host", 1))
    assert words(5, "block", 7) == words(9, "block", 7)[:5] != words(5, "block", 8)
    assert words(5, "block", 7) != Words(WORDS, ("host", 2))(5, "block", 7)
    assert set(words(5000, "all")) <= set(WORDS) and len(set(words(5000, "all"))) > 590
