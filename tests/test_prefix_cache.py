"""The bounds of hits against real servers' answers and cases by hand, the three hit rates."""

import math
from dataclasses import replace

import numpy as np
import pool_requests
import pytest

from bench import prefix_cache
from bench.prefix_cache import Declared, Request

A, B, C = (tuple(range(start, start + 300)) for start in (0, 1000, 2000))
BLOCKS = Declared("blocks", block_tokens=16)
SLOTS = Declared("slots")


@pytest.mark.parametrize("tokens, hit", [(127, 0), (128, 0), (129, 128), (384, 256), (385, 384)])
def test_a_repeated_prompt_hits_whole_blocks_but_never_its_last_token(tokens, hit):
    """Measured on vLLM 0.32.0 with blocks of 128 tokens."""
    declared, ids = Declared("blocks", block_tokens=128), tuple(range(tokens))
    twice = [Request(ids, 1, 1, 1), Request(ids, 1, 1, 2)]
    assert prefix_cache.expected(twice, declared) == [(0, 0), (hit, hit)]
    assert declared.usable(tokens, tokens) == hit
    assert SLOTS.usable(tokens, tokens) == tokens - 1


@pytest.mark.parametrize("answer_tokens, hit", [(84, 256), (85, 384)])
def test_the_last_token_of_an_answer_is_not_computed(answer_tokens, hit):
    """Measured on vLLM 0.32.0: three blocks would be full with 84 tokens, if the last one counted."""
    declared, answer = Declared("blocks", 128), tuple(range(5000, 5000 + answer_tokens))
    for known in (answer, None):
        first = Request(A, answer_tokens, 1, 1, answer=known)
        second = Request(A + answer + (7,) * 50, 1, 1, 2)
        assert prefix_cache.expected([first, second], declared)[1][1] == hit


# What vLLM 0.32.0's own KVCacheManager (vllm/v1/core/kv_cache_manager.py) hit of `pool_requests.requests`, with
# 14 blocks of 32 tokens, of which one is never used, one request at a time.
ALONE = """
    0 32 64 32 32 32 64 64 32 32 96 32 64 64 64 64 64 96 128 96 128 32 32 160 96 192 128 32 32 128 128 160 64 64
    160 96 192 224 32 192 32 224 32 224 32
"""


def test_vllm_never_hits_more_than_is_expected_and_less_only_where_it_evicted():
    """Some hits reach the bound, and some fall below it: the pool is too small for all of them."""
    made = enumerate(pool_requests.requests())
    sent = [Request(ids, len(answer), k, 1, k, k, answer) for k, (ids, answer, _) in made]
    hits = [int(word) for word in ALONE.split()]
    highest = [high for _, high in prefix_cache.expected(sent, Declared("blocks", pool_requests.BLOCK))]
    assert len(hits) == len(highest) == 45
    assert all(hit <= high for hit, high in zip(hits, highest)) and sum(hits) < sum(highest)
    assert sum(hit == high > 0 for hit, high in zip(hits, highest)) > 5


@pytest.mark.parametrize(
    "prompt, cached, rates", [((10, 90), (10, 0), (0.1, 0.5, 0.5)), ((100, 100), (0, 20), (0.1, 0.1, 0.5))]
)
def test_three_rates_are_three_numbers(prompt, cached, rates):
    assert tuple(prefix_cache.rates(prompt, cached).values()) == pytest.approx(rates)


def test_requests_whose_server_reports_nothing_are_in_no_rate():
    assert prefix_cache.rates((10, 90), (5, np.nan))["by_tokens"] == 0.5
    assert all(math.isnan(rate) for rate in prefix_cache.rates((10,), (np.nan,)).values())


def turns(*prompts, session=1, answer=10, start=0.0):
    return [
        Request(ids, answer, session, k, start, start if k == 1 else math.inf)
        for k, ids in enumerate(prompts, 1)
    ]


def test_a_turn_may_hit_the_prompt_before_it_and_perhaps_its_answer():
    own = turns(A[:100], A[:100] + B[:60])
    assert prefix_cache.expected(own, SLOTS) == [(0, 2), (100, 109)]
    assert prefix_cache.expected(own, BLOCKS) == [(0, 0), (96, 96)]
    known = [Request(own[0].ids, 10, 1, 1, answer=B[:10]), own[1]]
    assert prefix_cache.expected(known, SLOTS) == [(0, 2), (109, 109)]


def test_a_first_turn_may_hit_what_begins_before_it_and_not_what_begins_after():
    early, late = turns(A[:64] + B[:9]), turns(A[:64] + C[:9], session=2, start=5.0)
    assert prefix_cache.expected(early + late, BLOCKS) == [(0, 0), (0, 64)]


def test_a_session_s_own_later_turns_were_not_there_before_its_first():
    assert prefix_cache.expected(turns(A[:64], A[:80]), BLOCKS)[0] == (0, 0)


def test_a_round_robin_over_replicas_is_sure_of_nothing():
    scattered = Declared("blocks", block_tokens=16, replicas=2, router="round robin")
    own = turns(A[:64], A[:80])
    assert prefix_cache.expected(own, scattered)[1] == (0, 64)
    assert prefix_cache.expected(own, Declared("blocks", block_tokens=16, replicas=2))[1] == (64, 64)
    assert prefix_cache.expected(own, Declared("off")) == [(0, 0), (0, 0)]


def shared(one, other):
    """How many tokens two prompts have in common from the first on, counted one by one."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


@pytest.mark.parametrize("seed", range(20))
def test_a_request_hits_the_longest_beginning_that_anything_before_it_has(seed):
    """Random trees of prompts: in order, each of a session of its own; and as the turns of one session."""
    random, made = np.random.default_rng(seed), []
    for number in range(40):
        parent = made[random.integers(len(made))].ids if made and random.random() < 0.7 else ()
        ids = parent[: random.integers(len(parent) + 1)] + tuple(
            random.integers(3, size=random.integers(1, 60))
        )
        made.append(
            Request(
                tuple(map(int, ids)), 5, number, 1, number, number, tuple(random.integers(3, size=5).tolist())
            )
        )
    for declared in (BLOCKS, SLOTS):
        turns = [replace(request, session=1, turn=k) for k, request in enumerate(made, 1)]
        surely = prefix_cache.expected(turns, declared)
        for k, (low, high) in enumerate(prefix_cache.expected(made, declared)):
            ids = made[k].ids
            longest = max((shared(before.computed, ids) for before in made[:k]), default=0)
            chance = prefix_cache.CHANCE_TOKENS if declared is SLOTS else 0
            assert low == 0 and surely[k][0] == declared.usable(longest, len(ids))
            assert high == surely[k][1] == declared.usable(max(longest, chance), len(ids))


@pytest.mark.parametrize(
    "wrong", [{"kind": "radix"}, {"router": "random"}, {"block_tokens": 0}, {"replicas": 0}]
)
def test_a_cache_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError):
        Declared(**({"kind": "blocks"} | wrong))
