"""Servers as children, what is asked of them, and what a level of load has given: numbers whose right answer
is known."""

import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from answers import Words
from builders import make_rows, make_sidecar
from commands import alive, gone

from bench import processes
from bench.backends.common import servers
from bench.instrument import reference_server
from bench.instrument.load import parallel, prefix_cache, schedule
from bench.observations import checks, store
from bench.paths import ROOT
from bench.topics import levels

pytestmark = pytest.mark.usefixtures("watchdog")

# --- servers
# ---------------------------------------------------------------------------------------------------------------------------

# A server that leaves a helper behind which does not listen to SIGTERM, as engines with worker processes do.
ENGINE = """
import os, subprocess, sys, http.server
helper = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
open(sys.argv[2], "w").write(f"{os.getpid()} {helper.pid}")
print("ready on", sys.argv[1], os.environ.get("SAID"), flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), type("H", (http.server.BaseHTTPRequestHandler,), {
    "do_GET": lambda self: (self.send_response(200 if self.path == "/health" else 404), self.end_headers()), "log_message": lambda *_: None,
})).serve_forever()
"""


@pytest.fixture
def engine(tmp_path):
    """(command, port, file with the pids of the server and its helper); what is left at the end is killed."""
    (tmp_path / "engine.py").write_text(ENGINE)
    port, pids = processes.free_port(), tmp_path / "pids"
    yield [sys.executable, tmp_path / "engine.py", port, pids], port, pids
    for pid in pids.read_text().split() if pids.exists() else []:
        if alive(pid):
            os.kill(int(pid), signal.SIGKILL)


def test_a_server_is_waited_for_logged_and_stopped_with_all_its_processes(engine, tmp_path):
    command, port, file = engine
    with processes.started(
        command, port, tmp_path / "deep" / "log.txt", 20, environment={"SAID": "hello"}
    ) as url:
        pids = file.read_text().split()
        assert url == f"http://127.0.0.1:{port}" and processes.answers(f"{url}/health")
        assert all(map(alive, pids))
        assert not processes.answers(f"{url}/other"), "only success is an answer"
    assert gone(pids, 1) and not processes.answers(f"{url}/health")
    assert (tmp_path / "deep" / "log.txt").read_text() == f"ready on {port} hello\n"


def test_a_server_is_stopped_when_the_block_fails(engine, tmp_path):
    command, port, file = engine
    with pytest.raises(KeyError), processes.started(command, port, tmp_path / "log", 20):
        raise KeyError("the study failed")
    assert gone(file.read_text().split(), 1)


FAILING = """
import sys
print('loading'); print('no such model: x', file=sys.stderr); print(); sys.exit(3)
"""


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([sys.executable, "-c", FAILING], "exit code 3 .* Its last words: .*no such model: x"),
        (["no-such-engine"], "No such file or directory"),
        (["true"], "Its last words: none"),
        (["sh", "-c", "kill -9 $$"], f"exit code {128 + 9}"),
    ],
)
def test_a_server_that_ends_at_once_says_why(tmp_path, command, words):
    with (
        pytest.raises(RuntimeError, match=words),
        processes.started(command, processes.free_port(), tmp_path / "log", 20),
    ):
        pass


def test_a_server_that_never_answers_is_given_up_and_stopped(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    command = ["sh", "-c", f"echo $$ > {tmp_path}/pid; echo still loading; exec sleep 60"]
    began = time.monotonic()
    with (
        pytest.raises(TimeoutError, match="did not answer within 1 s. Its last words: still loading"),
        processes.started(command, port, tmp_path / "log", 1),
    ):
        pass
    assert time.monotonic() - began < 4 and gone([(tmp_path / "pid").read_text().strip()], 1)


@pytest.mark.parametrize(
    "how, whom",
    [
        (signal.SIGKILL, os.kill),
        (signal.SIGTERM, os.kill),
        (signal.SIGKILL, os.killpg),
        (signal.SIGTERM, os.killpg),
        (signal.SIGINT, os.killpg),
    ],
)
def test_no_server_is_left_when_its_caller_is_killed(engine, tmp_path, how, whom):
    command, port, file = engine
    code = f"import time\nfrom bench import processes\nwith processes.started({[*map(str, command)]}, {port}, {str(tmp_path / 'log')!r}, 20):\n    print('up', flush=True)\n    time.sleep(60)"
    caller = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert caller.stdout.readline() == b"up\n"
    whom(caller.pid, how)  # killpg: as a terminal, a scheduler or `timeout` do it
    caller.wait(20)
    caller.stdout.close()
    assert gone(file.read_text().split())


# --- what came out
# ---------------------------------------------------------------------------------------------------------------------


def table(*requests, **more):
    """Rows of one level from (sent_s, ttft_s, e2e_s, output_tokens), or from a text for a failed one sent at
    0."""
    rows = []
    usual = {"concurrency": 2.0, "request_rate": np.nan, "late_s": 0.0, "connect_s": 0.0, "error": ""}
    measured = ["sent_s", "ttft_s", "e2e_s", "output_tokens"]
    for k, each in enumerate(requests, start=1):
        told = {"sent_s": 0.0, "error": each} if isinstance(each, str) else dict(zip(measured, each))
        rows.append({"request": k} | usual | told | more)
    return pd.DataFrame(rows, columns=["request", *usual, *measured])


def test_steady_output_counts_while_the_load_was_held():
    # Two places: each request writes 100 tokens from 1 s to 3 s after it was sent. The last was taken up at 9
    # s; what comes later does not count.
    rows = table(*((sent, 1.0, 3.0, 100) for sent in (0, 0, 3, 3, 6, 6, 9, 9)))
    assert levels.steady_tokens_per_s(rows) == pytest.approx(6 * 100 / 9)
    # 100 tokens spread over 1 s to 3 s; at 2 s half of them had come, and of the second request none.
    assert levels.steady_tokens_per_s(
        table((0, 1.0, 3.0, 100), (2, 1.0, 2.0, 50), concurrency=1.0)
    ) == pytest.approx(50 / 2)


def test_failed_requests_give_no_tokens_but_hold_the_load():
    rows = table((0, 1.0, 3.0, 100), "ConnectionError: gone", (8, 1.0, 3.0, 100), concurrency=1.0)
    assert levels.steady_tokens_per_s(rows) == pytest.approx(100 / 8)
    assert np.isnan(levels.steady_tokens_per_s(table("x", "y")))


def test_a_scheduled_requests_times_count_from_before_it_was_sent():
    # Due at 0 and 8; sent 0.5 s late after 0.5 s of connecting: the times already hold that second. Of the 8
    # s between them the first quarter is ramp, so half of the first answer counts, and 6 s.
    rows = table((1, 2.0, 4.0, 100), (9, 2.0, 4.0, 100), request_rate=0.125, late_s=0.5, connect_s=0.5)
    assert levels.steady_tokens_per_s(rows) == pytest.approx(50 / 6)
    rows = table((1, 2.0, 10.0, 100), (9, 1.0, 2.0, 10), request_rate=0.125, late_s=0.5, connect_s=0.5)
    assert levels.steady_tokens_per_s(rows) == pytest.approx(75 / 6)


def test_ramp_and_drain_do_not_count():
    """Two places: the first two requests begin at once, the last two end beside free places."""
    rows = table(*((sent, 1.0, 3.0, 100) for sent in (0, 0, 3, 3, 6, 6, 9, 9)))
    assert levels.window(rows) == (3, 9)
    assert list(levels.steady(rows)) == [False] * 2 + [True] * 4 + [False] * 2
    assert levels.steady(rows.assign(concurrency=1.0)).all(), "one place has neither ramp nor drain"
    assert not levels.steady(rows.assign(concurrency=4.0)).any(), "four places: nothing else"
    # One a second for 40 s, each 3 s long: what begins in the first or the last 3 s does not count.
    rows = table(*((k, 1.0, 3.0, 100) for k in range(41)), request_rate=1.0)
    assert levels.window(rows) == (3, 40)
    assert list(rows.loc[levels.steady(rows), "sent_s"]) == list(range(3, 38))


def test_answers_that_take_longer_and_longer_say_overloaded():
    """Forty requests, one a second: their waits grow to 4 s, those of the others scatter as widely."""
    growing = [0.1 * k for k in range(1, 41)]
    rows = table(*((k, wait, wait + 1, 100) for k, wait in enumerate(growing)), request_rate=1.0)
    assert levels.overloaded(rows) and levels.saturated([rows])
    hardly = table(*((k, 1.0, 1.0 + wait / 10, 100) for k, wait in enumerate(growing)), request_rate=1.0)
    assert not levels.overloaded(hardly), "a hundredth of a second each second is no queue"
    scattered = [growing[(k * 17) % 40] for k in range(40)]
    rows = table(*((k, wait, wait + 1, 100) for k, wait in enumerate(scattered)), request_rate=1.0)
    assert not levels.overloaded(rows)
    rows = table(*((k, wait, wait + 1, 100) for k, wait in enumerate(growing)))
    assert not levels.overloaded(rows), "a closed loop slows its own requests down"


@pytest.mark.parametrize("kind, load, percentile", [("closed", 1, 90), ("closed", 8, 90), ("closed", 4, 99)])
def test_a_level_has_as_many_requests_as_its_percentile_takes(kind, load, percentile):
    count = levels.requests_for(kind, load, percentile)
    for requests, bound in ((count, True), (count - 1, False)):
        rows = table(*((k // load, 0.1, 0.9, 10) for k in range(requests)), concurrency=float(load))
        assert levels.bounds(int(levels.steady(rows).sum()), percentile) == bound


def test_an_open_loop_has_room_for_ramp_and_drain():
    assert [levels.requests_for("open", rate, 90) for rate in (1, 2, 4, 8)] == [74, 84, 104, 160]
    rows = table(*((k / 2, 0.1, 5.0, 10) for k in range(84)), request_rate=2.0)
    assert levels.bounds(int(levels.steady(rows).sum()), 90)


def test_three_levels_that_give_no_more_say_that_the_server_is_saturated():
    """Fewer may be a step that an engine takes between two kernels, after which it climbs on."""
    level = lambda tokens: table((0, 1.0, 3.0, tokens), (9, 1.0, 3.0, tokens))  # noqa: E731
    for climb, full in (
        ((100,), False),
        ((100, 90, 90), False),
        ((100, 104, 104, 104), True),
        ((100, 90, 90, 106), False),
        ((50, 200, 190, 209, 190), True),
        ((50, 200, 190, 211, 190), False),
    ):
        assert levels.saturated([level(tokens) for tokens in climb]) == full, climb


def test_long_answers_are_a_backlog_and_no_overload():
    """Four requests, one a second, the last at 3 s: answered at once, or all of them long after."""
    for e2e, left in ((0.5, 0.25 * 1.0), (10.0, None)):
        rows = table(*[(k, 0.1, e2e, 100) for k in range(4)], request_rate=1.0)
        share = levels.backlog(rows)
        # What is written by 3 s of an answer that runs from k + 0.1 s to k + e2e s.
        by_hand = 1 - sum(min(1, max(0, (3 - k - 0.1) / (e2e - 0.1))) for k in range(4)) / 4
        assert share == pytest.approx(by_hand) and (left is None or share == pytest.approx(left))
        assert not levels.overloaded(rows) and levels.short(rows) == (e2e == 10.0)


def test_an_open_loop_lasts_as_long_as_its_answers_take():
    for rate, answer_s in ((1, 10.0), (16, 60.0), (0.1, 30.0)):
        count = levels.requests_for("open", rate, 90, answer_s)
        rows = table(*((k / rate, 1.0, answer_s, 100) for k in range(count)), request_rate=float(rate))
        assert not levels.short(rows) and levels.bounds(int(levels.steady(rows).sum()), 90)
        assert count <= max(levels.lasts_s(rate, answer_s), 900) * rate
    assert levels.requests_for("open", 4, 90, 30.0) > levels.requests_for("open", 4, 90, 10.0)
    assert levels.requests_for("closed", 4, 90, 30.0) == levels.requests_for("closed", 4, 90)


def serving_rows(n=4, **changes):
    """Made-up rows of one closed level: a request a second, TTFT 0.05 s, 10 tokens at 100 tokens/s."""
    about = {"experiment": "serving", "concurrency": 2, "chunks": 10, "cached_tokens": 0}
    about |= {"late_s": 0.0, "connect_s": 0.001, "first_byte_s": 0.04, "finish_reason": "length"}
    return make_rows(n, **about | changes)


def written(rows, folder, **about):
    """`rows` through all validity checks and back."""
    sidecar = make_sidecar(weight_bytes=None, kv_value_bytes=None, **about)
    return store.load([store.write(rows, sidecar, rows[0]["run_id"], folder)])


def test_goodput_counts_what_met_every_objective(tmp_path):
    rows = serving_rows(5, concurrency=1)
    rows[1] |= {"ttft_s": 0.5, "e2e_s": 0.59}
    rows[2] |= {"e2e_s": 0.05 + 9 * 0.2}
    rows[3] |= {"error": "TimeoutError: no", "ttft_s": None, "e2e_s": None, "output_tokens": 0}
    requests, slo = written(rows, tmp_path), {"ttft_s": 0.4, "tpot_s": 0.1}
    assert levels.meets(requests, slo).tolist() == [True, False, False, False, True]
    assert levels.meets(requests, {}).tolist() == [True, True, True, False, True]
    of_one_token = requests.assign(output_tokens=1, tpot_s=np.nan)
    assert levels.meets(of_one_token, slo).tolist() == [True, False, True, False, True]
    level = levels.levels(requests, slo).iloc[0]
    assert (level["requests"], level["failed"], level["counted"]) == (5, 1, 5)
    assert level["wall_s"] == pytest.approx(8 + 0.14) and level["state"] == levels.STEADY
    # One is taken up every 2 s; of five four are answered, and two of these in time.
    assert level["requests_per_s"] == pytest.approx(0.5 * 4 / 5)
    assert level["goodput_per_s"] == pytest.approx(0.5 * 2 / 5)
    assert level["met"] == pytest.approx(0.4) and np.isnan(level["met_low"]) and np.isnan(level["met_high"])
    assert level["ttft_p50_s"] == pytest.approx(0.05) and level["ttft_max_s"] == pytest.approx(0.5)
    assert np.isnan(level["ttft_p90_s"]) and np.isnan(level["request_rate"]) and level["concurrency"] == 1


def test_levels_pool_the_requests_of_their_runs_and_keep_the_rates_apart(tmp_path):
    runs = [written(serving_rows(40, concurrency=1, run=k), tmp_path) for k in (1, 2)]
    (level,) = levels.levels(pd.concat(runs, ignore_index=True), pooled=True).to_dict("records")
    assert (level["runs"], level["requests"], level["counted"]) == (2, 80, 80)
    assert level["ttft_p90_s"] == pytest.approx(0.05), "forty of one run alone do not bound it"
    assert level["output_tokens_per_s"] == pytest.approx(10 / 2)


@pytest.mark.parametrize("late_s, good", [(0.0009, True), (0.0011, False)])
def test_a_late_client_is_refused(tmp_path, late_s, good):
    rows = serving_rows(3, concurrency=None, request_rate=10.0, late_s=late_s)
    if good:
        assert len(written(rows, tmp_path)) == 3
        return
    with pytest.raises(
        checks.Rejected, match=r"The load client was late: at 10 requests/s .* 1.1 ms behind schedule .* 1 ms"
    ):
        written(rows, tmp_path)
    written(serving_rows(3, late_s=late_s), tmp_path)  # a closed loop has no schedule to be behind of


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Address of the reference server: 60 ms to the first token of 200, and of each token computed a share of
    that, 5 ms to every further one. It has a cache."""
    options = ["--ttft-s", 0.005, "--prefill-s-per-token", 0.0003, "--itl-s", 0.005, "--cache-blocks", 1000]
    with reference_server.running(tmp_path_factory.mktemp("reference") / "log", *options) as url:
        yield url


def tried(url, run):
    """The result of a trial for a prefix cache with prompts that no other trial has."""
    made = schedule.prompts(Words(), [(400, 2)] * prefix_cache.PROMPTS, ("c0ffee", run))
    level, prompts = schedule.Level("closed", 1, 5), prefix_cache.trial(made)
    served = servers.RunningServer(url, "completions", "m", {})
    rows, _ = parallel.run(url, schedule.calls(served, level, prompts), "completions", 1, timeout_s=5)
    return prefix_cache.result(rows)


@pytest.mark.timing
def test_a_server_with_a_prefix_cache_that_it_does_not_report_is_found(reference):
    trial = tried(f"{reference}/fault/cache-silent", 1)
    assert trial["cached"] and not trial["reported"] and trial["prompt_tokens"] == 400
    assert max(trial["repeated_ttft_s"]) < 0.06 < min(trial["fresh_ttft_s"])
    sentence = prefix_cache.why_not(trial)
    assert "a new prompt of 400 tokens" in sentence and "--no-enable-prefix-caching" in sentence
    trial = tried(reference, 2)
    assert trial["reported"] and trial["cached_tokens"] == 2 * 384 and prefix_cache.why_not(trial) == ""


@pytest.mark.timing
def test_a_server_without_a_prefix_cache_is_none_that_hides_one(tmp_path):
    with reference_server.running(tmp_path / "log", "--ttft-s", 0.06) as url:
        trial = tried(url, 3)
    assert trial["cached"] is False and prefix_cache.why_not(trial) == ""
