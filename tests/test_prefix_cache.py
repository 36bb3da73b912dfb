"""Simulated hits against what real servers answered, the bounds against made loads, the three hit rates."""

import math

import in_order
import numpy as np
import pool_requests
import pytest

from bench import prefix_cache
from bench.paths import DATA
from bench.prefix_cache import Blocks, Declared, LruBlocks, Request
from bench.workloads import traces

A, B, C = (tuple(range(start, start + 300)) for start in (0, 1000, 2000))
BLOCKS = Declared("blocks", block_tokens=16)
SLOTS = Declared("slots")


@pytest.fixture(scope="module")
def mooncake():
    return traces.read(DATA / "traces" / "mooncake_conversation.jsonl.xz")


@pytest.mark.parametrize(
    "capacity, tokens, by_tokens, by_blocks, mean",
    [
        (1000, 6650880, 0.045933, 0.046982, 0.162731),
        (30000, 48812544, 0.337118, 0.344811, 0.386656),
        (None, 54063104, 0.373380, 0.381900, 0.407789),
    ],
)
def test_lru_agrees_with_two_other_implementations_to_the_token(
    mooncake, capacity, tokens, by_tokens, by_blocks, mean
):
    prompts, cache = mooncake.requests["prompt_tokens"], LruBlocks(capacity)
    whole = mooncake.whole_blocks()
    hits = [512 * cache.request(ids, (n - 1) // 512) for ids, n in zip(whole, prompts)]
    found = prefix_cache.rates(prompts, hits)
    assert sum(hits) == tokens and len(hits) == 12031
    assert sum(hits) / 512 / sum(map(len, whole)) == pytest.approx(by_blocks, abs=5e-7)
    assert found["by_tokens"] == pytest.approx(by_tokens, abs=5e-7)
    assert found["mean_over_requests"] == pytest.approx(mean, abs=5e-7)
    assert found["requests_with_a_hit"] == pytest.approx(0.999917, abs=5e-7)


def stack_distances(prompts):
    """Mattson's way, for all sizes at once: of each block of each prompt how many others were used after it
    (infinite: never seen). The tree counts, by the moment of their last use, the blocks that were seen."""
    tree, last = [0] * (1 + sum(map(len, prompts))), {}

    def add(moment, count):
        while moment < len(tree):
            tree[moment] += count
            moment += moment & -moment

    def until(moment):
        count = 0
        while moment:
            count += tree[moment]
            moment -= moment & -moment
        return count

    now = 0
    for ids in prompts:
        yield [len(last) - until(last[block]) if block in last else math.inf for block in ids]
        for block in reversed(ids):
            if block in last:
                add(last[block], -1)
            last[block] = now = now + 1
            add(now, 1)


def test_lru_agrees_with_stack_distances_at_every_size(mooncake):
    whole = mooncake.whole_blocks()
    distances = list(stack_distances(whole))
    for capacity in (100, 3000, 10_000, 100_000, None):
        cache, most = LruBlocks(capacity), capacity or len(whole) * 200
        hits = [next((k for k, d in enumerate(own) if d >= most), len(own)) for own in distances]
        assert [cache.request(ids) for ids in whole] == hits


@pytest.mark.parametrize("tokens, hit", [(127, 0), (128, 0), (129, 128), (384, 256), (385, 384)])
def test_a_repeated_prompt_hits_whole_blocks_but_never_its_last_token(tokens, hit):
    """Measured on vLLM 0.32.0 with blocks of 128 tokens."""
    declared, ids = Declared("blocks", block_tokens=128, capacity_tokens=90 * 128), tuple(range(tokens))
    twice = [Request(ids, 1, 1, 1), Request(ids, 1, 2, 1)]
    assert prefix_cache.simulated(twice, declared) == [0, hit]
    assert declared.usable(tokens, tokens) == hit
    assert SLOTS.usable(tokens, tokens) == tokens - 1


@pytest.mark.parametrize("answer_tokens, hit", [(84, 256), (85, 384)])
def test_the_last_token_of_an_answer_is_not_computed(answer_tokens, hit):
    """Measured on vLLM 0.32.0: three blocks would be full with 84 tokens, if the last one counted."""
    declared, answer = Declared("blocks", 128, 90 * 128), tuple(range(5000, 5000 + answer_tokens))
    first = Request(A, answer_tokens, 1, 1, answer=answer)
    assert prefix_cache.simulated([first, Request(A + answer + (7,) * 50, 1, 1, 2)], declared)[1] == hit


# What vLLM 0.32.0's own KVCacheManager (vllm/v1/core/kv_cache_manager.py) hit of `pool_requests.requests`, with
# 14 blocks of 32 tokens, of which one is never used, one request at a time.
ALONE = """
    0 32 64 32 32 32 64 64 32 32 96 32 64 64 64 64 64 96 128 96 128 32 32 160 96 192 128 32 32 128 128 160 64 64
    160 96 192 224 32 192 32 224 32 224 32
"""


def test_the_least_recently_used_blocks_are_those_that_vllm_keeps():
    """Of 13 usable blocks one holds the end of a prompt, which is no whole block and is not kept."""
    declared = Declared("blocks", pool_requests.BLOCK, capacity_tokens=12 * pool_requests.BLOCK)
    hits = prefix_cache.simulated(sent(), declared)
    assert hits == [int(word) for word in ALONE.split()] and len(hits) == 45
    assert sum(hits) < sum(low for low, _ in in_order.expected(sent(), declared))


def sent():
    made = enumerate(pool_requests.requests())
    return [Request(ids, len(answer), k, 1, answer=answer) for k, (ids, answer, _) in made]


def test_blocks_of_equal_tokens_after_other_tokens_differ():
    keys = Blocks(2)
    assert keys.keys((1, 2, 3, 4, 5)) == keys.keys((1, 2, 3, 4))
    assert keys.keys((1, 2, 3, 4))[1] != keys.keys((9, 9, 3, 4))[1]


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
    assert prefix_cache.expected(early + late, BLOCKS, primed=[A[:64]]) == [(64, 64), (64, 64)]
    assert in_order.expected(early + late, BLOCKS) == [(0, 0), (64, 64)]


def test_a_session_s_own_later_turns_were_not_there_before_its_first():
    assert prefix_cache.expected(turns(A[:64], A[:80]), BLOCKS)[0] == (0, 0)


def test_a_round_robin_over_replicas_is_sure_of_nothing():
    scattered = Declared("blocks", block_tokens=16, replicas=2, router="round robin")
    own = turns(A[:64], A[:80])
    assert prefix_cache.expected(own, scattered)[1] == (0, 64)
    assert prefix_cache.expected(own, Declared("blocks", block_tokens=16, replicas=2))[1] == (64, 64)
    assert prefix_cache.expected(own, Declared("off")) == [(0, 0), (0, 0)]


@pytest.mark.parametrize("seed", range(20))
def test_no_simulated_cache_hits_more_than_expected_and_a_large_one_no_less(seed):
    """Random trees of prompts, in order."""
    random, made = np.random.default_rng(seed), []
    for number in range(40):
        parent = made[random.integers(len(made))].ids if made and random.random() < 0.7 else ()
        ids = parent[: random.integers(len(parent) + 1)] + tuple(
            random.integers(3, size=random.integers(1, 60))
        )
        made.append(
            Request(tuple(map(int, ids)), 5, number, 1, answer=tuple(random.integers(3, size=5).tolist()))
        )
    for kind, size in (("blocks", 16), ("slots", 1)):
        bounds = in_order.expected(made, Declared(kind, size))
        for capacity, roomy in ((10**5, True), (960, False)):
            hits = prefix_cache.simulated(made, Declared(kind, size, capacity))
            for hit, (low, high) in zip(hits, bounds):
                assert hit <= high and (hit >= low or not roomy)


def test_a_simulation_deals_requests_to_replicas():
    own = turns(A[:64], A[:80], A[:96])
    sized = dict(kind="blocks", block_tokens=16, capacity_tokens=3200, replicas=2)
    assert prefix_cache.simulated(own, Declared(**sized)) == [0, 64, 80]
    assert prefix_cache.simulated(own, Declared(**sized, router="round robin")) == [0, 0, 64]
    with pytest.raises(ValueError, match="capacity_tokens"):
        prefix_cache.simulated(own, BLOCKS)


def test_hits_do_not_depend_on_the_scale_of_time_one_after_the_other():
    """Only the order counts there: a trace at 1 and at 10 times its speed has equal hits."""
    load = [Request(A[: 20 * k], 5, k, 1, k * 1.0, k * 1.0) for k in range(1, 9)]
    fast = [Request(r.ids, 5, r.session, 1, r.earliest_s / 10, r.latest_s / 10) for r in load]
    sized = Declared("slots", capacity_tokens=1000)
    assert prefix_cache.simulated(load, sized) == prefix_cache.simulated(fast, sized)


@pytest.mark.parametrize(
    "wrong", [{"kind": "radix"}, {"router": "random"}, {"block_tokens": 0}, {"replicas": 0}]
)
def test_a_cache_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError):
        Declared(**({"kind": "blocks"} | wrong))
