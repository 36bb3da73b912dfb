"""Overload without a stop-watch: long answers are none, a queue that grows is one."""

import heapq

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bench.topics import levels, serving

FIXED, VARIED = "fixed", "log-normal"
SIGMA = 0.5  # of the logarithm of VARIED answer times
FREE, SLOTS, SHARED = "no contention", "slots", "shared processor"
LOAD = 1.2  # arrivals over what a server with contention can do
PLACES = ((10.0, 1.0), (10.0, 16.0), (30.0, 2.0))


def loop(server: str, spread: str, answer_s: float, rate: float, requests: int, seed: int) -> pd.DataFrame:
    """One open loop of Poisson arrivals as the load client would have seen it: one row per request.

    A server of SLOTS answers so many requests at once, each in its own time, first come, first served; a
    SHARED one divides what it can do among all that have come. Alone an answer takes `answer_s` (median).
    """
    random = np.random.default_rng(seed)
    sent = np.cumsum(random.exponential(1 / rate, requests))
    alone = np.full(requests, answer_s)
    if spread == VARIED:
        alone *= np.exp(SIGMA * random.standard_normal(requests))
    if server == FREE:
        e2e = alone
    else:
        at_once = rate * alone.mean() / LOAD  # requests whose answers the server can write side by side
        e2e = (_slots if server == SLOTS else _shared)(sent, alone, max(float(at_once), 1.0))
    return pd.DataFrame({
        "request_rate": rate, "concurrency": np.nan, "sent_s": sent, "late_s": 0.0, "connect_s": 0.0,
        "ttft_s": e2e / 10, "e2e_s": e2e, "output_tokens": 100, "error": "",
    })  # fmt: skip


def _slots(sent: np.ndarray, alone: np.ndarray, at_once: float) -> np.ndarray:
    """E2E where `at_once` requests, rounded down, are answered side by side and the others wait."""
    free, e2e = [0.0] * int(at_once), np.empty(len(sent))
    for k, (came, takes) in enumerate(zip(sent, alone)):
        ended = max(came, free[0]) + takes
        heapq.heapreplace(free, ended)
        e2e[k] = ended - came
    return e2e


def _shared(sent: np.ndarray, alone: np.ndarray, at_once: float) -> np.ndarray:
    """E2E where all that have come are answered side by side, as quickly as alone up to `at_once` of them and
    slower in proportion beyond."""
    now = done = 0.0  # the clock, and the seconds of work that each request in the server has had so far
    within, e2e, k = [], np.empty(len(sent)), 0
    while within or k < len(sent):
        pace = min(1.0, at_once / len(within)) if within else 1.0
        ends = now + (within[0][0] - done) / pace if within else np.inf
        comes = sent[k] if k < len(sent) else np.inf
        done += (min(ends, comes) - now) * pace if within else 0.0
        now = min(ends, comes)
        if ends <= comes:
            _, request = heapq.heappop(within)
            e2e[request] = now - sent[request]
        else:
            heapq.heappush(within, (done + alone[k], k))
            k += 1
    return e2e


def share(server, spread, answer_s, rate, seeds, requests=None):
    """How often such an open loop is called overloaded."""
    requests = requests or levels.requests_for("open", rate, 90, answer_s)
    loops = (loop(server, spread, answer_s, rate, requests, seed) for seed in range(seeds))
    return np.mean([levels.overloaded(rows) for rows in loops])


@pytest.mark.parametrize("spread", [FIXED, VARIED])
@pytest.mark.parametrize("answer_s, rate", PLACES)
def test_a_server_without_contention_is_not_overloaded_however_long_it_answers(spread, answer_s, rate):
    assert share(FREE, spread, answer_s, rate, seeds=50) <= 0.02


@pytest.mark.parametrize("rate", [1.0, 4.0, 16.0])
def test_nor_is_it_where_nobody_knew_how_long_answers_take(rate):
    requests = levels.requests_for("open", rate, 90)
    assert share(FREE, VARIED, 20.0, rate, 50, requests) <= 0.02
    rows = loop(FREE, FIXED, 60.0, rate, requests, seed=1)
    assert levels.short(rows), "but the level is compared with nothing"


@pytest.mark.parametrize(
    "server, spread", [(SLOTS, FIXED), (SLOTS, VARIED), (SHARED, FIXED), (SHARED, VARIED)]
)
def test_a_server_at_1_2_times_its_capacity_is_overloaded(server, spread):
    assert share(server, spread, 10.0, 4.0, seeds=20) >= 0.95


def test_levels_of_the_promised_answers_end_within_15_minutes():
    lasts = [levels.lasts_s(rate, s) for rate in (1.0, 4.0, 16.0) for s in (10.0, 30.0, 60.0)]
    assert max(lasts) <= 900


RUNS = [(60, 64), (61, 64), (64, 64)]


def test_a_share_over_runs_is_students_t_over_the_shares_of_three_runs():
    share, low, high = levels.share_interval(RUNS)
    shares = np.array([60, 61, 64]) / 64
    half = stats.t.ppf(0.975, 2) * shares.std(ddof=1) / np.sqrt(3)
    assert share == pytest.approx(185 / 192) and low == pytest.approx(shares.mean() - half) and high == 1


@pytest.mark.parametrize("runs", [RUNS[:2], [*RUNS[:2], (0, 0)], [(64, 64)] * 3, [(0, 64)] * 3])
def test_too_few_runs_and_runs_that_do_not_differ_have_no_interval(runs):
    share, low, high = levels.share_interval(runs)
    assert share == sum(hits for hits, _ in runs) / sum(count for _, count in runs)
    assert np.isnan(low) and np.isnan(high)


def test_a_level_that_every_request_of_three_runs_met_holds_its_goal():
    table = pd.DataFrame({"met": [1, 1, 0, 0.9], "met_low": np.nan, "met_high": np.nan, "runs": [3, 2, 3, 3]})
    holds = serving._holds(table.assign(state=levels.STEADY), "met", 0.9)
    assert holds.fillna(-1).tolist() == [1, -1, 0, -1]
