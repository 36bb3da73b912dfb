"""The simulator against what can be worked out by hand, and against the laws that hold of every queue."""

import time

import numpy as np
import pytest

from llm_planner import rows, state
from llm_planner.engines import Policy

# fixed, further with a prefill, per sequence, weights, per GEMM token, per KV token, per link token,
# attention, per row of a decode step on links, per token that the front sends
COST = np.array([0.004, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
BUSY = np.array([0.004, 0.005, 2e-5, 0.008, 5e-5, 2e-8, 1e-6, 1e-9, 1e-6, 1e-6])


def policy(**changed):
    plain = dict(
        step_tokens=8192,
        chunked=1,
        mixed=1,
        slots=256,
        kv_tokens=400_000,
        reserve=0,
        lag_steps=0,
        wait_steps=0,
    )
    return np.array(Policy(**(plain | dict(wait_tokens=0, computed=1) | changed)), dtype=float)


def simulate(requests, prompt=1000, output=100, cost=COST, **more):
    settings = {k: more.pop(k) for k in list(more) if k in Policy._fields}
    return rows.Simulation(
        np.full(requests, prompt), np.full(requests, output), cost, policy(**settings), **more
    )


def test_one_request_takes_one_step_per_token():
    alone = simulate(1, concurrency=1, request_s=0.01)
    assert alone.ttft_s[0] == pytest.approx(0.01 + 0.004)
    assert alone.tpot_s[0] == pytest.approx(0.004)
    assert alone.e2e_s[0] == pytest.approx(0.01 + 100 * 0.004)


def test_decode_time_grows_with_context_as_the_series_says():
    cost = COST.copy()
    cost[state.KV_TOKEN] = 1e-6
    alone = simulate(1, concurrency=1, cost=cost)
    by_hand = sum(0.004 + 1e-6 * (1000 + k) for k in range(1, 100))
    assert alone.e2e_s[0] - alone.ttft_s[0] == pytest.approx(by_hand)


def test_a_front_that_is_slower_than_the_steps_bounds_what_is_answered():
    """Closed loop: throughput is what the front sends, and the rest of an answer's time is a wait for it."""
    cost = COST.copy()
    cost[state.SENT_TOKEN] = 1e-3  # ten requests at once would send 2,500 tokens/s, the front sends 1,000
    output = np.random.default_rng(0).integers(20, 80, 400)
    met, free = (
        rows.Simulation(np.full(400, 100), output, one, policy(), concurrency=10) for one in (cost, COST)
    )
    kept = slice(50, 350)
    assert met.e2e_s[kept].mean() == pytest.approx(10 * output[kept].mean() / 1000, rel=0.05)
    assert met.ttft_s[kept].mean() > 5 * free.ttft_s[kept].mean()


def test_a_front_that_keeps_up_delays_nothing():
    cost = COST.copy()
    cost[state.SENT_TOKEN] = 1e-4
    met, free = simulate(60, output=50, cost=cost, concurrency=10), simulate(60, output=50, concurrency=10)
    assert met.e2e_s == pytest.approx(free.e2e_s) and met.ttft_s == pytest.approx(free.ttft_s)


def test_a_long_prompt_is_read_in_chunks():
    chunked = simulate(1, prompt=10_000, step_tokens=2048, concurrency=1)
    assert chunked.ttft_s[0] == pytest.approx(5 * 0.004)
    assert simulate(1, prompt=10_000, step_tokens=2048, chunked=0, concurrency=1).ttft_s[0] == pytest.approx(
        0.004
    )


def test_slots_make_the_others_wait():
    served = simulate(4, slots=2, concurrency=4)
    assert np.sort(served.ttft_s) == pytest.approx([0.004, 0.004, 0.404, 0.404])


def test_a_full_kv_cache_queues():
    room = simulate(40, concurrency=20, kv_tokens=400_000, reserve=1)
    full = simulate(40, concurrency=20, kv_tokens=5 * 1200, reserve=1)
    assert np.median(full.ttft_s) > 50 * np.median(room.ttft_s)
    assert full.e2e_s.max() > room.e2e_s.max()


@pytest.mark.parametrize("reserve", [0, 0.5, 1])
@pytest.mark.parametrize("mixed", [0, 1])
def test_every_request_ends_whatever_the_memory(reserve, mixed):
    served = simulate(
        200,
        prompt=700,
        output=300,
        concurrency=30,
        kv_tokens=9000,
        reserve=reserve,
        mixed=mixed,
        lag_steps=1,
        cost=BUSY,
    )
    assert np.isfinite(served.e2e_s).all() and (served.e2e_s > served.ttft_s).all()


def test_first_come_first_served():
    served = simulate(300, cost=BUSY, at_s=rows.poisson(20, 300), slots=8)
    assert (np.diff(served.sent_s + served.ttft_s) >= -1e-12).all()


def test_littles_law_in_a_closed_loop():
    served = simulate(2000, cost=BUSY, concurrency=16)
    last = (served.sent_s + served.e2e_s).max()
    assert served.e2e_s.sum() / last == pytest.approx(16, rel=0.02)


def test_a_batch_may_gather_before_it_is_read():
    arrivals = dict(at_s=rows.poisson(2, 200), cost=BUSY)
    at_once, gathered = simulate(200, **arrivals), simulate(200, **arrivals, wait_steps=20, wait_tokens=7000)
    assert np.median(gathered.ttft_s) > np.median(at_once.ttft_s) + 15 * 0.012


def test_prefill_stops_decoders_unless_steps_are_mixed():
    prompts = dict(prompt=8000, step_tokens=1000, cost=BUSY, at_s=rows.poisson(1, 50))
    apart, mixed = simulate(50, mixed=0, **prompts), simulate(50, **prompts)
    assert apart.gaps[:, 3].max() > 8 * 0.05 > 2 * mixed.gaps[:, 3].max()
    assert (apart.gaps[:, 0] <= apart.gaps[:, 1]).all() and (apart.gaps[:, 2] <= apart.gaps[:, 3]).all()


def test_least_loaded_beats_taking_turns():
    lengths = np.where(np.arange(2000) % 4 == 0, 1500, 50)
    waits = {}
    for router in ("round robin", "least loaded"):
        served = rows.Simulation(
            np.full(2000, 500),
            lengths,
            BUSY,
            policy(slots=4),
            at_s=rows.poisson(3, 2000),
            replicas=4,
            router=router,
        )
        waits[router] = served.ttft_s.mean()
    assert waits["least loaded"] < waits["round robin"]


def test_replicas_that_take_turns_are_servers_of_their_own():
    at_s = np.arange(400) / 40
    both = simulate(400, cost=BUSY, at_s=at_s, replicas=2)
    one = simulate(200, cost=BUSY, at_s=at_s[::2])
    assert both.ttft_s[::2] == pytest.approx(one.ttft_s)


def test_ten_thousand_requests_in_two_seconds():
    simulate(10, cost=BUSY, concurrency=2)  # compiled
    began = time.process_time()
    simulate(10_000, cost=BUSY, at_s=rows.poisson(5, 10_000))
    assert time.process_time() - began < 2


@pytest.mark.parametrize("load", [{}, {"concurrency": 2, "at_s": [0.0]}])
def test_a_load_is_one_of_both(load):
    with pytest.raises(ValueError, match="give one of both"):
        simulate(3, **load)


def test_a_rate_of_zero_is_refused():
    with pytest.raises(ValueError, match="positive rate"):
        rows.poisson(0, 10)
