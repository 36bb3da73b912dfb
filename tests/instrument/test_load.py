"""The load client against a server whose times are known, in closed and open loops over real sockets."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from commands import gone
from loads import TOKENS, TTFT_S, accounted, here, make_calls, overlap, paired, whole

from bench.instrument.load import client, connection, parallel, records, schedule
from bench.paths import ROOT

pytest_plugins = ["loads"]
pytestmark = [pytest.mark.usefixtures("watchdog"), pytest.mark.timing]


def test_a_closed_loop_answers_all_and_agrees_with_the_server(fresh):
    calls = make_calls(fresh.url, 15)
    rows, report = parallel.run(fresh.url, calls, "completions", concurrency=3, timeout_s=10)
    log = fresh.log()
    assert all(whole(row) for row in accounted(rows, calls)) and len(log) == 15
    assert all(
        row["chunks"] == TOKENS and row["prompt_tokens"] == 3 and row["finish_reason"] == "length"
        for row in rows
    )
    assert overlap(log) == 3, "as many at once as there are places, never more"
    assert sum(not np.isnan(row["connect_s"]) for row in rows) == 3, "connections are used again"
    pairs = paired(rows, log)
    assert np.median(np.concatenate([row["delays_s"] for row in rows])) < 0.001
    assert all((row["delays_s"] > -1e-5).all() and len(row["delays_s"]) == TOKENS for row in rows), (
        "nothing is there before it is sent"
    )
    assert abs(np.median([row["ttft_s"] - (sent[0] - arrived) for row, (arrived, sent) in pairs])) < 0.001
    assert abs(np.median([row["e2e_s"] - (sent[-1] - arrived) for row, (arrived, sent) in pairs])) < 0.001
    assert abs(np.median([row["itl_p50_s"] - np.median(np.diff(sent)) for row, (_, sent) in pairs])) < 0.001
    assert abs(np.median([row["sent_s"] - arrived for row, (arrived, _) in pairs])) < 0.001, "one clock"
    assert report["kernel_stamps"] and report["processes"] == 1 and report["peak_memory_bytes"] > 1e6
    assert report["read_lag_p50_s"] >= 0


def test_a_busy_client_still_knows_when_a_token_was_there(fresh, monkeypatch):
    receive = connection.Stream.receive

    def busy(stream):
        time.sleep(0.0015)  # less than a gap: what one read takes has one stamp
        return receive(stream)

    monkeypatch.setattr(connection.Stream, "receive", busy)
    rows, loop = here(fresh.url, make_calls(fresh.url, 3))
    report = client.report(loop)
    assert all(map(whole, rows)) and np.median(report["read_lag_s"]) > 0.0015
    assert 0 < report["cpu_s"] < 1 and 0 < report["reading_cpu_s"] < 1, "not what came before"
    assert report["kernel_stamps"] and report["peak_memory_bytes"] > 1e6 and "first_in_line" in report
    assert np.median(np.concatenate([row["delays_s"] for row in rows])) < 0.001


def test_chat_is_streamed_too(fresh):
    calls = make_calls(fresh.url, 3, dialect="chat", prompt_tokens=None)
    rows, _ = here(fresh.url, calls, 2, dialect="chat")
    assert overlap(fresh.log()) == 2
    assert all(whole(row) and row["chunks"] == TOKENS for row in rows)
    assert np.nanmedian([row["ttft_s"] for row in rows]) > 0.9 * TTFT_S, (
        "the role, which comes at once, is no token"
    )


def test_several_processes_share_the_calls_and_one_clock(fresh):
    calls = make_calls(fresh.url, 9)
    rows, report = parallel.run(fresh.url, calls, "completions", concurrency=5, timeout_s=10, processes=2)
    log = fresh.log()
    assert report["processes"] == 2 and all(whole(row) for row in accounted(rows, calls)) and len(log) == 9
    assert overlap(log) <= 5 and sum(not np.isnan(row["connect_s"]) for row in rows) == 5
    assert np.median(np.abs([row["sent_s"] - arrived for row, (arrived, _) in paired(rows, log)])) < 0.001
    begun = sorted(row["sent_s"] for row in rows)[:5]
    assert begun[-1] - begun[0] < TTFT_S, "they begin together"


def test_more_processes_than_calls_and_no_calls_at_all(truth):
    rows, report = parallel.run(
        truth.url, make_calls(truth.url, 1), "completions", concurrency=4, processes=3
    )
    assert whole(rows[0]) and report["processes"] == 1
    assert parallel.run(truth.url, [], "completions")[0] == []


def test_a_lost_process_of_the_client_is_named(truth):
    with pytest.raises(RuntimeError, match="process of the load client was lost: OSError"):
        parallel.run(truth.url, make_calls(truth.url), "completions", cores={4096})


@pytest.mark.parametrize(
    "at_s", [schedule.poisson(60, 30, seed=1), schedule.constant(60, 30)], ids=["poisson", "constant"]
)
def test_an_open_loop_keeps_its_schedule(fresh, at_s):
    calls = make_calls(fresh.url, 30, at_s=at_s)[::-1]  # the order of the calls is not that of the schedule
    calls = [records.Call(k + 1, call.payload, call.at_s, 3, TOKENS) for k, call in enumerate(calls)]
    rows, report = parallel.run(fresh.url, calls, "completions", timeout_s=10)
    assert all(whole(row) for row in accounted(rows, calls))
    arrived = sorted(arrived for arrived, _ in fresh.log())
    assert np.median(np.abs(np.diff(arrived) - np.diff(at_s))) < 0.002
    assert 0 <= report["late_p50_s"] < 0.001 and min(row["late_s"] for row in rows) >= 0
    due = np.array([row["sent_s"] - row["late_s"] - np.nan_to_num(row["connect_s"]) for row in rows]) - [
        call.at_s for call in calls
    ]
    assert np.ptp(due) < 0.002, "every request counts from the moment it was due"


def test_a_late_client_blames_nobody_and_hides_nothing(fresh):
    class Sleeper(client.Client):
        slept = False

        def _begin(self):
            if not self.slept:
                self.slept = True
                time.sleep(0.3)
            super()._begin()

    at_s = [0.0, 0.1, 0.2]
    rows, loop = here(fresh.url, make_calls(fresh.url, 3, at_s=at_s), kind=Sleeper)
    for row, at in zip(rows, at_s):
        assert 0.3 - 0.02 - at < row["late_s"] < row["sent_s"] - loop.backlog.start - at < 1.0
        assert row["ttft_s"] == pytest.approx(row["arrivals_s"][0] - loop.backlog.start - at)
        assert row["ttft_s"] > row["late_s"] + 0.9 * TTFT_S
        assert row["e2e_s"] == pytest.approx(row["arrivals_s"][-1] - loop.backlog.start - at)


def test_an_open_loop_is_not_held_back_by_a_server_that_is_silent(fresh):
    at_s = schedule.constant(50, 20)
    calls = make_calls(fresh.url, 10, "silent", at_s[:10]) + make_calls(
        fresh.url, 10, at_s=at_s[10:], first=11
    )
    rows, report = parallel.run(fresh.url, calls, "completions", concurrency=1, timeout_s=0.8)
    accounted(rows, calls)
    assert all("TimeoutError" in row["error"] for row in rows[:10]) and all(map(whole, rows[10:]))
    assert max(row["late_s"] for row in rows) < 0.05
    assert max(row["ttft_s"] for row in rows[10:]) < 0.4


class Own:
    """In place of a `sessions.Own`: it keeps what its request would be made of."""

    ids = None

    def follow(self, call, answer, row, encode):
        self.followed = call.number, answer.call.number, row["output_tokens"], encode(row["text"])


def session(url, *faults, gap_s=0.0):
    """The calls of one session, a turn for each of `faults` (empty: none)."""
    calls = [make_calls(url, 1, fault, first=k)[0] for k, fault in enumerate(faults, start=1)]
    for call in calls:
        call.session, call.turn, call.after, call.gap_s = 1, call.number, call.number - 1 or None, gap_s
    return calls


def test_a_turn_is_sent_after_the_answer_before_it_and_made_of_it(fresh):
    calls = session(fresh.url, "", "", "", gap_s=0.05)
    calls[2].own = Own()
    rows, _ = here(fresh.url, calls, encode=str.split)
    assert all(map(whole, accounted(rows, calls))) and [row["turn"] for row in rows] == [1, 2, 3]
    ended = [row["sent_s"] + row["e2e_s"] for row in rows]
    assert all(after["sent_s"] >= end + 0.049 for after, end in zip(rows[1:], ended))
    assert calls[2].own.followed == (3, 2, TOKENS, rows[1]["text"].split())


@pytest.mark.parametrize(
    "fault, own, why",
    [("silent", None, "turn 2 of its session failed (TimeoutError: no complete answer within 0.4 s; 0 pieces"),
     ("http-500", Own(), "turn 2 of its session failed (HTTP 500: refused with 500")],
)  # fmt: skip
def test_a_session_is_cut_where_a_turn_fails(fresh, fault, own, why):
    calls = [*session(fresh.url, "", fault, "", ""), *make_calls(fresh.url, 1, first=5)]
    calls[2].own, calls[3].at_s = own, 0.5
    rows = accounted(here(fresh.url, calls, timeout_s=0.4, encode=str.split)[0], calls)
    assert whole(rows[0]) and whole(rows[4]) and rows[1]["error"] and not hasattr(own, "followed")
    assert [row["error"][: len(why) + 10] for row in rows[2:4]] == [f"Not sent: {why}"] * 2
    assert np.isnan(rows[2]["waited_s"]) and rows[3]["waited_s"] == 0, "one was due, the other had no moment"


def test_a_level_ends_with_what_is_under_way_and_until_then_the_client_sleeps(fresh):
    calls = [*session(fresh.url, "silent", ""), *make_calls(fresh.url, 2, at_s=[0.0, 9.0], first=3)]
    began = time.monotonic()
    rows, loop = here(fresh.url, calls, until_s=0.6)
    took = time.monotonic() - began
    assert 0.6 < took < 9 and loop.cpu_s < took / 2, "it waits for no later request, and does not spin"
    assert whole(accounted(rows, calls)[2])
    ended = "the level had ended."
    again, _ = parallel.run(fresh.url, calls[:1], "completions", until_s=0.1)
    assert again[0]["error"] == f"Cancelled: {ended}"
    assert [rows[k]["error"] for k in (0, 1, 3)] == [f"Cancelled: {ended}"] + [f"Not sent: {ended}"] * 2


def test_the_client_ends_with_its_caller(fresh):
    payload = make_calls(fresh.url, 1, "silent")[0].payload
    code = (
        "from bench.instrument.load import parallel, records\n"
        f"calls = [records.Call(1, {payload!r}, None, 3, 20)]\n"
        f"parallel.run({fresh.url!r}, calls, 'completions', timeout_s=60)"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    children = []
    while not children:
        time.sleep(0.1)
        children = subprocess.run(
            ["pgrep", "-P", str(caller.pid)], capture_output=True, text=True
        ).stdout.split()
    time.sleep(0.7)
    os.kill(caller.pid, signal.SIGKILL)
    caller.wait()
    assert gone(children, 5), "the client goes on without its caller"
