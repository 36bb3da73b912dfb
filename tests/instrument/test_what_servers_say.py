"""Addresses, models, bodies and messages of servers that are not the study's own."""

import gzip
import json

import pytest
from answers import Words
from loads import here, make_calls, request_of, tiny
from server_kinds import answer, delta, every, playing

from bench import endpoint
from bench.backends import http as running
from bench.backends.common import servers
from bench.experiments import notebook
from bench.experiments import running as runs
from bench.instrument.load import protocols, schedule
from bench.instrument.reference_server import events
from bench.instrument.reference_server.events import HEAD

pytestmark = pytest.mark.usefixtures("watchdog")


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1/chat/completions", "/v1/models"])
@pytest.mark.parametrize("query", ["", "?api-version=2"])
def test_an_address_means_the_same_however_far_it_goes(end, query):
    url = f"http://h:8000/below{end}{query}"
    assert endpoint.join(url, "/v1/models") == f"http://h:8000/below/v1/models{query}"
    line = protocols.request("chat", url, protocols.Prompt((1,), "a", 2), "m").split(b"\r\n")[0]
    assert line == f"POST /below/v1/chat/completions{query} HTTP/1.1".encode()


def test_a_password_in_an_address_is_refused_and_not_quoted():
    with pytest.raises(ValueError, match="holds a user or a password") as refused:
        endpoint.checked("http://me:pw12@h")
    assert "pw12" not in str(refused.value)


@pytest.fixture
def offering(monkeypatch):
    """A function: the entry of the model that is asked for, of a server that offers such models."""

    def choose(offered, model="smollm2-135m", wanted=""):
        page = json.dumps({"data": [{"id": name} for name in offered]}).encode()
        monkeypatch.setattr(endpoint, "get", lambda *_: page)
        return running.served_model("http://h", "", "X", model, wanted)["id"]

    return choose


def test_the_model_that_was_asked_for_is_measured(offering):
    several = ["tiny-draft-0.1b", "smollm2-135m", "llama-3.1-8b"]
    assert offering(several) == "smollm2-135m" and offering(several, wanted="llama-3.1-8b") == several[2]
    assert offering(["a", "org/SmolLM2-135M"]) == "org/SmolLM2-135M"
    assert offering(["whatever"], wanted="whatever") == "whatever"
    unlike = (["whatever"], ""), (["a", "b"], ""), (several, "gpt"), (["a"], "b"), (["x/m", "y/m"], "m")
    for models, wanted in unlike:
        with pytest.raises(RuntimeError, match="-p served_model NAME") as refused:
            offering(models, wanted=wanted)
        assert all(name in str(refused.value) for name in models)


def test_the_proxy_of_the_environment_is_named_and_not_used(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    page = events.plain(200, '{"data": [{"id": "smollm2-135m"}]}')

    def serve(peer, _):
        while b"\r\n\r\n" not in peer.recv(1 << 16):
            pass
        peer.sendall(page)

    with tiny(serve) as (url, _):
        assert running.served_model(url, "", "X", "smollm2-135m")["id"] == "smollm2-135m"
    assert "http_proxy is not used" in endpoint.past_proxy("http://elsewhere")


def test_a_redirection_is_named_where_the_models_are_asked_for():
    page = b"HTTP/1.1 308 X\r\nLocation: https://elsewhere:81/v1/models\r\nContent-Length: 0\r\n\r\n"

    def serve(peer, _):
        peer.recv(1 << 16)
        peer.sendall(page)

    with (
        tiny(serve) as (url, _),
        pytest.raises(RuntimeError, match="HTTP 308.*location https://elsewhere:81"),
    ):
        running.served_model(url, "", "X", "smollm2-135m")


def test_bodies_are_changed_last():
    body = {"a": 1, "b": {"c": 2, "d": 3}, "max_tokens": 7}
    changes = {
        "a": None,
        "b": {"c": None, "e": 4},
        "max_tokens": None,
        "max_completion_tokens": "$new_tokens",
    }
    assert protocols.changed(body, changes, 7) == {"b": {"d": 3, "e": 4}, "max_completion_tokens": 7}
    assert protocols.uncertain("chat", {}) == protocols.uncertain("chat", {"n": 1}) == ""
    assert protocols.uncertain("chat", {"ignore_eos": None}) == "length"
    assert protocols.uncertain("chat", {"ignore_eos": None, "min_tokens": 5, "temperature": 1}) == "greedy"
    assert protocols.uncertain("chat", {"ignore_eos": False, "temperature": None}) == "length, greedy"


def test_headers_take_secrets_from_the_environment(monkeypatch):
    monkeypatch.setenv("MY_KEY", "s3cret")
    assert notebook.headers('{"api-key": "$MY_KEY", "X-Team": "a"}') == {"api-key": "s3cret", "X-Team": "a"}
    for text, words in (
        ('{"api-key": "s3cret"}', "would be kept with the run"),
        ('{"x": "$NO"}', "no variable NO"),
        ("[]", "must be a JSON object"),
        ("{", "must be a JSON object"),
        ('{"x": "a\\nb"}', "line's end"),
    ):
        with pytest.raises(ValueError, match=words) as refused:
            notebook.headers(text)
        assert "s3cret" not in str(refused.value)


OPENAIS = {"model", "messages", "max_completion_tokens", "stream", "stream_options", "temperature"}


def strict(request):
    """A server that knows the fields of OpenAI's API and no other, wants a key, and ends answers early."""
    head, _, body = request.partition(b"\r\n\r\n")
    unknown = sorted(json.loads(body).keys() - OPENAIS) + ["a key"] * (b"api-key: s3cret" not in head)
    if unknown:
        return [(0.0, events.plain(400, json.dumps({"error": {"message": f"Unrecognized: {unknown[0]}"}})))]
    words = every(9, 0.001, make=lambda word: delta(content=word))
    return answer(*words, (0.05, delta(finish="stop")), tokens=9, prompt_tokens=5)


def test_a_strict_server_is_measured_with_a_changed_body():
    """What the body then does not fix is in the row: the answer may be shorter than asked for."""
    prompts, level = [protocols.Prompt((1,), "a b", 16)] * 3, schedule.Level("closed", 1, 3)

    def rows(changes, headers):
        with playing(strict) as (url, _):
            served = servers.RunningServer(
                url, "chat", "m", {}, lambda n: running.body("chat"), changes=changes, headers=headers
            )
            return runs.drive(served, Words(), level, prompts, 1, 10.0)[0]

    assert all(row["error"].startswith("HTTP 400: Unrecognized: ignore_eos") for row in rows({}, {}))
    changes = {"ignore_eos": None, "max_tokens": None, "max_completion_tokens": "$new_tokens"}
    for row in rows(changes, {"api-key": "s3cret"}):
        assert (row["error"], row["output_tokens"], row["uncertain"]) == ("", 9, "length")


def sse(*data):
    lines = b"".join(events.chunk(b"data: " + json.dumps(each).encode() + b"\n\n") for each in data)
    return events.STREAMED + lines + events.LAST


def page(kind, body, more="", status=200):
    return HEAD.format(status, kind, f"Content-Length: {len(body)}{more}").encode() + body


WORD = {"choices": [{"index": 0, "text": " a"}]}
SAID = {
    "an error as JSON": (
        page("application/json", b'{"error": {"message": "CUDA out of memory"}}'),
        "HTTP 200 (application/json) instead of a stream of events: CUDA out of memory",
    ),
    "a login page": (
        page("text/html", b"<html>Please log in</html>"),
        "HTTP 200 (text/html) instead of a stream of events: <html>Please log in</html>",
    ),
    "lines of JSON": (
        page("application/x-ndjson", b'{"response": "a"}\n{"response": "b"}\n'),
        "HTTP 200 (application/x-ndjson) instead of a stream of events",
    ),
    "a compressed refusal": (
        page("text/plain", gzip.compress(b"no room"), "\r\nContent-Encoding: gzip", 429),
        "HTTP 429 (text/plain, compressed by gzip): no room",
    ),
    "a redirection": (
        page("text/html", b"moved", "\r\nLocation: https://h/v1", 307),
        "HTTP 307 (text/html, location https://h/v1): moved",
    ),
    "an error event without the word": (sse({"object": "error", "message": "engine dead"}), "engine dead"),
    "an answer that ended with an error": (
        sse(WORD, {"choices": [{"index": 0, "text": "", "finish_reason": "error"}]}),
        "finish_reason 'error' after 1 events",
    ),
    "another dialect": (sse({"content": "a", "stop": False}), "another dialect than 'completions'"),
}


@pytest.mark.parametrize("case", SAID)
def test_an_error_has_the_servers_own_words(case):
    said, words = SAID[case]

    def serve(peer, _):
        request_of(peer)
        peer.sendall(said)

    with tiny(serve) as (url, _):
        (row,), _ = here(url, make_calls(url))
    assert words in row["error"]
