"""Clients that hold conversations against the server that knows: what a faithful one shows, and what a mistaken
one would."""

import hashlib
import json

import pytest

from bench import prefix_cache
from bench.experiments import conversation_peers
from bench.instrument import peers

pytestmark = pytest.mark.usefixtures("watchdog")


@pytest.mark.timing
def test_our_own_client_sends_what_is_planned_and_reports_what_was_hit():
    row = conversation_peers.judged("ours", conversation_peers.made(4, rate=20))
    assert row["sent"] == row["planned"] == row["as_planned"] == row["within"] > 4
    assert row["hit_rate_reported"] == row["hit_rate_true"] > 0.2
    assert 0 <= row["think_error_p50_ms"] < 20 and 0 <= row["start_error_p99_ms"] < 50


@pytest.fixture
def held():
    """Conversations, what a faithful client reports of them, and what the server says of it."""
    workload = conversation_peers.made(3)
    told, truth, moment = [], [], 0.0
    requests = conversation_peers.prompts(workload)
    bounds = prefix_cache.expected(requests, prefix_cache.Declared("blocks", conversation_peers.BLOCK_TOKENS))
    for request, (cached, _) in zip(requests, bounds):
        turn = workload.sessions[request.session - 1].turns[request.turn - 1]
        moment = turn.at_s if request.turn == 1 else moment + turn.gap_s
        digest = hashlib.sha256(json.dumps(list(request.ids)).encode()).hexdigest()
        row = {
            "digest": digest,
            "arrived_s": moment,
            "sent_ns": [int(1e9 * (moment + 0.05)), int(1e9 * (moment + 0.1))],
        }
        truth.append(row | {"prompt_tokens": len(request.ids), "cached": cached})
        told.append(peers.Told(request.session, request.turn, 0.051, cached))
        moment += 0.1
    return workload, told, truth


def test_a_faithful_client_has_its_errors_and_no_other(held):
    row = conversation_peers.compared(*held)
    assert row["sent"] == row["planned"] == row["as_planned"] == row["within"]
    assert row["hit_rate_true"] == row["hit_rate_reported"] and row["ttft_error_p50_ms"] == pytest.approx(1)
    assert row["think_error_p99_ms"] == pytest.approx(0, abs=1e-3) == row["start_error_p99_ms"]


def test_a_wrong_history_a_guessed_hit_and_a_late_turn_are_seen(held):
    workload, told, truth = held
    wrong = [row | {"digest": "other"} if k == 1 else row for k, row in enumerate(truth)]
    assert conversation_peers.compared(workload, told, wrong)["as_planned"] == len(truth) - 1
    guessed = [peers.Told(one.session, one.turn, one.ttft_s, 0) for one in told]
    row = conversation_peers.compared(workload, guessed, truth)
    assert row["hit_rate_reported"] == 0 < row["hit_rate_true"]
    silent = [peers.Told(one.session, one.turn, one.ttft_s, None) for one in told]
    assert conversation_peers.compared(workload, silent, truth)["hit_rate_reported"] != 0
    evicted = [row | {"cached": 0} for row in truth]
    assert conversation_peers.compared(workload, told, evicted)["within"] < len(truth)
