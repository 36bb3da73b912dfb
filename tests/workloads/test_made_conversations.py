"""Conversations: shapes by distribution, prompts that grow and share what they should and nothing else."""

import numpy as np
import pytest

from bench.prefix_cache import Declared
from bench.workloads import Workload, conversations

WORDS = range(100, 700)
BLOCKS = Declared("blocks", block_tokens=16)


def made(**how):
    usual = dict(sessions=60, session_rate=2.0, most_tokens=4000, groups=3)
    return conversations.make(WORDS, ("host", 1, 1), **usual | how)


def test_prompts_grow_by_the_given_answer_and_what_is_added():
    for session in made().sessions:
        for before, turn in zip(session.turns, session.turns[1:]):
            assert turn.prompt[: len(before.prompt)] == before.prompt
            assert turn.prompt[len(before.prompt) + before.new_tokens :] == turn.added
            assert turn.at_s is None and turn.gap_s >= 0
        assert session.turns[0].added == session.turns[0].prompt


def test_a_system_prompt_is_shared_in_a_group_and_nothing_else_is():
    load = made(system_tokens="constant 64")
    heads = {session.group: session.turns[0].prompt[:64] for session in load.sessions}
    assert len(set(heads.values())) == 3
    assert all(session.turns[0].prompt[:64] == heads[session.group] for session in load.sessions)
    assert len({session.turns[0].prompt[64:74] for session in load.sessions}) == 60
    unshared = made(groups=0).bounds(BLOCKS)
    assert all(own[0] == (0, 0) for own in unshared)


def test_sessions_arrive_at_the_rate_and_turns_by_the_clock_where_they_are_due_there():
    load = made(sessions=2000, turns="constant 1")
    first = [session.turns[0].at_s for session in load.sessions]
    assert load.session_rate == 2.0 and 1999 / (first[-1] - first[0]) == pytest.approx(2.0, rel=0.1)
    counts = np.histogram(first, np.arange(0, first[-1], 10))[0]
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.4), "by chance, as a Poisson process"
    by_clock = made(due="timestamp", think_s="constant 3")
    for session in by_clock.sessions:
        assert np.allclose(np.diff([turn.at_s for turn in session.turns]), 3)


def test_a_session_ends_before_the_context_does_and_says_so():
    load = made(most_tokens=300, turns="constant 8", groups=0)
    assert load.most_tokens <= 300 and load.about["turns_beyond_context"] == 480 - load.requests > 0
    with pytest.raises(ValueError, match="leave nothing of the context of 20 tokens"):
        made(most_tokens=20)


def test_the_same_seed_makes_the_same_load_and_another_run_other_prompts():
    assert made() == made()
    assert made(seed=1).sessions[0].turns[0].at_s != made().sessions[0].turns[0].at_s
    other = conversations.make(WORDS, ("host", 2, 1), 60, 2.0, 4000, groups=3)
    assert all(
        a.turns[0].prompt[:8] != b.turns[0].prompt[:8] for a, b in zip(made().sessions, other.sessions)
    )


@pytest.mark.parametrize(
    "text, low, high, mean",
    [
        ("constant 3", 3, 3, 3),
        ("uniform 2 8", 2, 8, 5),
        ("exponential 60", 0, 1e9, 60),
        ("lognormal 50 0", 50, 50, 50),
    ],
)
def test_a_distribution_is_drawn(text, low, high, mean):
    drawn = conversations.draw("turns", text, 20000, np.random.default_rng(1))
    assert low <= drawn.min() + 1e-9 and drawn.max() <= high + 1e-9
    assert drawn.mean() == pytest.approx(mean, rel=0.03)


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("normal 3 1", "Unknown distribution of turns"),
        ("constant", "turns must be `constant value`"),
        ("uniform 1 x", "turns must be `uniform lowest highest`"),
        ("exponential -1", "0 or more"),
        ("exponential nan", "0 or more"),
        ("uniform 8 2", "swap them"),
    ],
)
def test_a_distribution_that_cannot_be_is_one_sentence(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        conversations.draw("turns", text, 3, np.random.default_rng(1))


@pytest.mark.parametrize("wrong", [{"sessions": 0}, {"session_rate": 0.0}, {"groups": -1}])
def test_a_load_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match="needs sessions, a session_rate above 0"):
        made(**wrong)


@pytest.mark.parametrize("wrong", [{"due": "later"}, {"history": "none"}])
def test_a_workload_says_when_turns_are_due_and_whose_answers_it_has(wrong):
    with pytest.raises(ValueError):
        Workload((), **wrong)
