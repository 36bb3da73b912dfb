"""One test for each rule of servers that no other file has, each over a socket."""

import contextlib
import dataclasses
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
import types

import pandas as pd
import pytest
from answers import Words
from loads import here, make_calls, request_of, tiny
from server_kinds import CLOSE, MODEL, RESET, answer, delta, every, playing, text

from bench import processes
from bench.backends.common import servers
from bench.experiments import device, running, serving
from bench.instrument import reference_server
from bench.instrument.load import connection, schedule
from bench.instrument.reference_server.events import plain
from bench.machine import memory, neighbours
from bench.observations import checks, schema
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


def test_levels_take_ten_minutes_where_nobody_asked_for_more(tmp_path, capsys):
    with reference_server.running(tmp_path / "log", "--ttft-s", 0.01, "--itl-s", 0.03) as url:
        served = servers.RunningServer(url, "completions", reference_server.MODEL, {})
        for asked, cut in (({}, True), ({"concurrency": "1 4"}, False), ({"requests": 40}, False)):
            load = a_load(served, **({"request_rates": "auto"} | asked if cut else asked))
            load.warm_up(served, 0)
            said = capsys.readouterr().out
            minutes = int(re.search(r"The levels take about (\d+) minute", said)[1])
            assert load.few == cut == ("To stay below 10 a level has" in said)
            assert minutes <= 10 or not cut


@pytest.mark.parametrize("token_s, gain", [(0.003, 16), (0.03, 4), (0.2, 1.5), (9.0, 1.0)])
def test_a_slow_server_is_asked_less_the_lone_request_first(token_s, gain):
    load, counts = a_load(servers.RunningServer("http://here:1", "chat", "m", {}), request_rates="auto"), []
    load.setup.settings["prefix_cache_trial"] = {"fresh_ttft_s": [0.05, 0.05]}
    load._fit(token_s, gain)
    kept = [level for level in load.levels if level not in load.left_out]
    alone_s = load.levels[0].requests * (0.05 + 64 * token_s)
    assert kept[0] is load.levels[0] and (alone_s <= 600 or load.levels[0].requests == 3)
    assert len(kept) > 2 or token_s > 1, "three levels at least say where a server saturates"
    for kind in ("closed", "open"):
        left = [level in load.left_out for level in load.levels if level.kind == kind]
        assert left == sorted(left), "none is measured beyond one that was left out"
    assert [len(sizes) for sizes in load.sizes] == [level.requests for level in load.levels]
    load.setup.progress = lambda pairs, count: counts.append(count) or pairs
    slower = pd.DataFrame({"error": [""], "e2e_s": [60.0]})  # than was said: no level grows for it
    load.before = {"closed": [slower]}
    sent = [(level, len(prompts)) for level, prompts in load.each(list(zip(load.levels, load.sizes)))]
    assert [len(sent)] == counts
    opened_s = sum(count / level.value for level, count in sent if level.kind == "open")
    assert opened_s <= 600, "a rate of which a slow answer asks for more requests than fit is left out"


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


def noted(load, rows):
    """`rows` as the first level of `load` keeps them."""
    load.now = load.levels[0]
    return load.note([row | load.now.condition for row in rows])


def sent(load, served, count, tokens=4):
    """The rows of `count` requests at the first level of `load`."""
    prompts = schedule.prompts(Words(), [(12, tokens)] * count, ("c0", 1))
    return load.setup.drive(served, load.levels[0], prompts)


TOGETHER = {  # tokens of each event, and what is said of them
    "regular bursts": ((8,) * 5, "8 tokens arrive together", "a proxy may keep them back"),
    "bursts with a rest": ((6,) * 6 + (4,), "5.71 tokens arrive together", "a proxy may keep them back"),
    "drafts": ((1, 4, 2, 1, 6, 1, 2), "2.43 tokens arrive together", "An engine that drafts"),
    "one by one": ((1,) * 12, "", ""),
}


@pytest.mark.timing
@pytest.mark.parametrize("case", TOGETHER)
def test_a_proxy_is_named_where_bursts_are_regular(case, capsys):
    sizes, *said = TOGETHER[case]
    parts = [(0.02 + 0.06 * k, text(" word") * size) for k, size in enumerate(sizes)]
    with playing(answer(*parts, tokens=sum(sizes), prompt_tokens=12)) as (url, _):
        served = servers.RunningServer(url, "completions", "m", {})
        load = a_load(served, concurrency="1", requests=3)
        noted(load, sent(load, served, 3, sum(sizes)))
    printed = capsys.readouterr().out
    assert all(words in printed for words in said) and ("arrive together" in printed) == bool(said[0])


@pytest.mark.timing
def test_a_client_that_read_late_says_so(capsys, monkeypatch):
    receive = connection.Stream.receive
    monkeypatch.setattr(connection.Stream, "receive", lambda stream: time.sleep(0.03) or receive(stream))
    with playing(answer(*every(40, 0.004), tokens=40)) as (url, _):
        load = a_load(servers.RunningServer(url, "completions", "m", {}), concurrency="1", requests=2)
        noted(load, here(url, make_calls(url, 2, tokens=40))[0])
    assert "The load client itself read them late" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "named", "same"),
    [("llama-3.1-8b", "Llama 3.1 8B", True), ("gpt-4o-mini", "gpt-4o-mini-2024-07-18", True),
     ("org/Qwen2.5", "/models/qwen2.5", True), ("m", "m2", False), ("gpt-4o", "gpt-4o-mini-2024-07-18", False),
     ("llama-8b", "llama-70b", False)],
)  # fmt: skip
def test_the_name_in_the_answers_is_held_against_the_one_that_was_asked(asked, named, same):
    served = servers.RunningServer("http://here:1", "completions", asked, {})
    load = a_load(served)
    refused = (
        contextlib.nullcontext() if same else pytest.raises(checks.Rejected, match=f"-p answers_as {named}")
    )
    with refused:
        load._identify(served, [{"answered_by": named}])


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.85, 1.0])
def test_a_server_that_cuts_prompts_is_told_in_the_trial(kept):
    """The warm-up's 64 tokens come back whole, the trial's 512 not."""

    def served_part(request):
        prompt = json.loads(request.partition(b"\r\n\r\n")[2])["messages"][0]["content"].split()
        back = len(prompt) if len(prompt) < 100 else int(kept * len(prompt))
        return answer(*every(2, 0.001, make=lambda word: delta(content=word)), tokens=2, prompt_tokens=back)

    with playing(served_part) as (url, _):
        served = servers.RunningServer(url, "chat", MODEL, {})
        load = a_load(served, concurrency="1")
        if kept == 1.0:
            assert load._trial(served)["prompt_tokens"] == 512
            return
        with pytest.raises(
            checks.Rejected, match=f"The server cut the prompt: of 512 .* {int(kept * 512)} came"
        ):
            load._trial(served)


@pytest.mark.parametrize(("concurrency", "widest"), [("1", 1), ("3", 3), ("1 64", serving.WARM_PLACES)])
def test_the_warm_up_is_no_wider_than_the_widest_level(concurrency, widest):
    served = servers.RunningServer("http://here:1", "completions", "m", {})
    load, places = a_load(served, concurrency=concurrency), []
    load._try_cache = load._fit = lambda *_: None

    def drive(served, level, prompts, counts=True):
        places.append(level.value)
        return [{"error": "", "prompt_tokens": 64, "sent_s": 0.0, "e2e_s": 1.0}]

    load.setup.drive = drive
    load.warm_up(served, 0)
    assert places == [widest, 1], "all places, then the lone request that says the pace"


REJECTED = {  # what the server says, and the change of the body that is spelled out
    "Unrecognized request argument supplied: ignore_eos": '{"ignore_eos": null}',
    "body.stream_options.include_usage: extra fields not permitted": '{"stream_options": {"include_usage": null}}',
    "'max_tokens' is not supported with this model": '{"max_tokens": null, "max_completion_tokens": "$new_tokens"}',
    "prompt is too long": None,
}


@pytest.mark.parametrize("words", REJECTED)
@pytest.mark.parametrize("status", [400, 422])
def test_a_rejected_field_is_spelled_out(words, status):
    served = servers.RunningServer("", "completions", "m", {}, lambda _: {"ignore_eos": True})
    with playing([(0.0, plain(status, json.dumps({"error": {"message": words}})))]) as (url, _):
        served = dataclasses.replace(served, url=url)
        load = a_load(served, concurrency="1")
        (row,) = sent(load, served, 1)
    assert row["error"].startswith(f"HTTP {status}: {words}")
    change = REJECTED[words]
    assert row["error"].endswith(f" Without it: -p body '{change}'." if change else words)


def test_the_clients_own_wish_is_taken_back_where_it_is_rejected(capsys):
    def strict(request):
        if serving.OWN_WISH.encode() in request:
            return [(0.0, plain(400, json.dumps({"error": f"unknown: stream_options.{serving.OWN_WISH}"})))]
        return answer(*every(16, 0.001), tokens=16, prompt_tokens=64)

    with playing(strict) as (url, _):
        wish = {"stream_options": {"include_usage": True, serving.OWN_WISH: True}}
        served = servers.RunningServer(url, "completions", "m", {}, lambda _: wish, changes={})
        load = a_load(served, concurrency="1")
        assert load._round(served, [(64, 16)], 0)["e2e_s"] > 0
    assert "asked without it" in capsys.readouterr().out


def test_a_server_that_has_gone_ends_the_levels_of_every_kind(capsys):
    load = a_load(servers.RunningServer("http://here:1", "completions", "m", {}), request_rates="1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    rows = noted(load, here(url, make_calls(url, 3))[0])
    assert {row["level_ended"] for row in rows} == {"The server is gone."}, "it has no rate"
    assert load.done == {"closed", "open"} and "The server is gone since" in capsys.readouterr().out


def test_an_answer_that_names_another_model_than_the_trial_did_has_failed():
    with playing(answers_as("m"), answers_as("m"), answers_as("fallback"), answers_as("m")) as (url, _):
        load = a_load(servers.RunningServer(url, "completions", "m", {}), concurrency="1", requests=4)
        load.answers_as = "m"
        rows = noted(load, sent(load, servers.RunningServer(url, "completions", "m", {}), 4))
    assert [row["error"] for row in rows] == ["", "", "The answer names fallback, those before named m.", ""]
    assert [row["output_tokens"] for row in rows] == [4, 4, 0, 4]


@pytest.mark.parametrize("end", [plain(500, "{}"), RESET, CLOSE])
def test_a_level_that_ended_early_has_no_rate(capsys, end):
    with playing(*[answers_as("m")] * 12, [(0.0, end)]) as (url, _):
        served = servers.RunningServer(url, "completions", "m", {})
        load = a_load(served, concurrency="1", requests=60)
        rows = noted(load, sent(load, served, 60))
    assert {row["level_ended"] for row in rows} != {""} and len(rows) < 60
    assert "ended after" in capsys.readouterr().out
    table = schema.frame(rows).assign(experiment="serving", run_id="r-1", started="", tpot_s=0.002)
    for early, state in ((table, "ended early"), (table.assign(level_ended=""), "steady")):
        (shown,) = levels.levels(early).to_dict("records")
        assert shown["state"] == state and shown["failed"] == 5
        assert math.isnan(shown["output_tokens_per_s"]) == (state == "ended early")
