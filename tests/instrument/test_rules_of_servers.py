"""One test for each rule of servers that no other file has, each over a socket."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
import types

import pytest
from answers import Words
from loads import here, make_calls, request_of, tiny
from server_kinds import answer, every, playing, text

from bench import processes
from bench.backends.common import servers
from bench.experiments import device, running, serving
from bench.instrument import reference_server
from bench.instrument.load import schedule
from bench.instrument.reference_server.events import plain
from bench.machine import memory, neighbours
from bench.observations import schema
from bench.topics import levels

pytestmark = pytest.mark.usefixtures("watchdog")
SETTINGS = b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18)  # with which HTTP/2 begins


def a_load(served, **parameters):
    """A Load of closed loops whose requests go to the server `served`."""
    setup = types.SimpleNamespace(checkpoint=Words(), device="cpu", run_id="http/serving-x-1")
    setup.checkpoint.config, setup.client, setup.settings = {}, [], {}
    setup.parameters = {"url": served.url, "arrivals": "auto", "scale": 1.0, "requests": 0, "percentile": 99}
    setup.parameters |= {"lengths": "fixed-512-64", "concurrency": "auto", "request_rates": "none"}
    setup.parameters |= {"fresh_connections": False} | parameters
    setup.source = lambda: ("c0ffee", 1)
    setup.note = setup.settings.update
    setup.taken = types.SimpleNamespace(gpu_state=dict)

    def drive(served, level, prompts, counts=True):
        rows, fared = running.drive(served, Words(), level, prompts, 1, 5.0, most_failed=0.1)
        setup.client.append(fared)
        return rows

    setup.drive = drive
    return serving.Load(setup)


def test_levels_beyond_ten_minutes_are_left_out_where_nobody_asked_for_them(tmp_path, capsys):
    with reference_server.running(tmp_path / "log", "--ttft-s", 0.01, "--itl-s", 0.03) as url:
        served = servers.RunningServer(url, "completions", reference_server.MODEL, {})
        for asked, left_out in (({}, True), ({"concurrency": "1 4"}, False), ({"requests": 40}, False)):
            load = a_load(served, **asked)
            load.warm_up(served, 0)
            said = capsys.readouterr().out
            assert "The levels take about" in said and bool(load.left_out) == left_out
            assert ("Left out, to stay below 10" in said) == left_out
            if left_out:
                assert load.levels[0] not in load.left_out, "the first level is always measured"


BURN = """
import socket, sys
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
listening.setblocking(False)
print("ready", flush=True)
while True:
    sum(range(10000))
"""


def test_the_process_that_owns_the_port_is_no_neighbour():
    """What a server on this machine computes is what is measured, whoever started it."""
    port = processes.free_port()
    shell = "import os, sys; os.fork() or os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = [sys.executable, "-c", shell, "-c", BURN, str(port)]  # its parent ends: it is no child of ours
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "ready\n"
        owner = memory.listener(port)
        try:
            here = device.Device.__new__(device.Device)
            here.target = types.SimpleNamespace(url=f"http://127.0.0.1:{port}/v1")
            assert owner and here._sees_neighbours() and memory.measured == {owner} <= memory.family()
            watch = neighbours.Watch()
            time.sleep(0.3)
            assert owner not in {one.pid for one in watch.look().processes}
        finally:
            memory.measured = set()
            with contextlib.suppress(TypeError, ProcessLookupError):
                os.kill(owner, signal.SIGKILL)


def test_a_server_of_http_2_alone_is_named():
    def serve(peer, _):
        request_of(peer)
        peer.sendall(SETTINGS)

    with tiny(serve) as (url, _):
        (row,), _ = here(url, make_calls(url))
    assert "speaks HTTP/2 only" in row["error"] and "HTTP/1.1 port" in row["error"]


@pytest.mark.parametrize("path", ["/openai/deployments/gpt/chat/completions", "/api/paas/v4/chat"])
def test_requests_go_to_the_path_that_is_named(path):
    with playing(answer(*every(4, 0.001), tokens=4)) as (url, requests):
        served = servers.RunningServer(f"{url}/base?version=2", "completions", "m", {}, path=path)
        level, prompts = schedule.Level("closed", 1, 2), schedule.prompts(Words(), [(12, 4)] * 2, ("c0", 1))
        running.drive(served, Words(), level, prompts, 1, 5.0)
    assert [request.split(b" ")[1].decode() for request in requests] == [f"/base{path}?version=2"] * 2


def answers_as(model, prompt_tokens=12):
    return answer(
        *every(4, 0.002, make=lambda word: text(word, model=model)), tokens=4, prompt_tokens=prompt_tokens
    )


def test_an_answer_that_names_another_model_than_the_trial_did_has_failed():
    with playing(answers_as("m"), answers_as("m"), answers_as("fallback"), answers_as("m")) as (url, _):
        load = a_load(servers.RunningServer(url, "completions", "m", {}), concurrency="1", requests=4)
        load.answers_as = "m"
        level = load.now = load.levels[0]
        prompts = schedule.prompts(Words(), [(12, 4)] * 4, ("c0", 1))
        served = servers.RunningServer(url, "completions", "m", {})
        rows = load.note([row | level.condition for row in load.setup.drive(served, level, prompts)])
    assert [row["error"] for row in rows] == ["", "", "The answer names fallback, those before named m.", ""]
    assert [row["output_tokens"] for row in rows] == [4, 4, 0, 4]


def test_a_level_that_ended_early_has_no_rate(capsys):
    refused = [(0.0, plain(500, "{}"))]
    with playing(*[answers_as("m")] * 12, refused) as (url, _):
        served = servers.RunningServer(url, "completions", "m", {})
        load = a_load(served, concurrency="1", requests=60)
        level = load.now = load.levels[0]
        prompts = schedule.prompts(Words(), [(12, 4)] * 60, ("c0", 1))
        rows = load.note([row | level.condition for row in load.setup.drive(served, level, prompts)])
    assert {row["level_ended"] for row in rows} != {""} and len(rows) < 60
    assert "ended after" in capsys.readouterr().out
    table = schema.frame(rows).assign(experiment="serving", run_id="r-1", started="", tpot_s=0.002)
    for early, state in ((table, "ended early"), (table.assign(level_ended=""), "steady")):
        (shown,) = levels.levels(early).to_dict("records")
        assert shown["state"] == state and shown["failed"] == 5
        assert math.isnan(shown["output_tokens_per_s"]) == (state == "ended early")
