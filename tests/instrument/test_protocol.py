"""Every dialect over a socket, with the quirks that servers have: each case says what must be counted.

huggingface_hub's own client reads the same server here.
"""

import http.server
import threading

import pytest
from dialect_server import DialectServer, ask, check, reached
from protocol_cases import CASES, PROMPT

from bench.backends import hf_endpoint
from bench.backends import http as running

pytest_plugins = ["dialect_server"]


@pytest.mark.parametrize("case", CASES)
def test_what_a_server_says_is_counted_right(server, case):
    check(server, case)


def test_a_server_is_asked_for_what_it_says_on_request_only(server):
    """Without options the same servers have no counts or ids: the counts above come on request."""
    assert "did not report usage" in ask(server, "completions", {"stream_options": None})["error"]
    assert "did not report usage" in ask(server, "chat", {"stream_options": None})["error"]
    assert "how many tokens the prompt has" in ask(server, "tgi", {"details": False})["error"]
    assert ask(server, "llamacpp", {"return_tokens": False})["output_ids"] == []


def test_huggingface_hubs_client_reads_the_same_counts(server, token):
    from huggingface_hub import InferenceClient

    client = InferenceClient(model=server, token=token, timeout=10)
    theirs = list(client.text_generation(PROMPT.text, stream=True, details=True, max_new_tokens=4))
    ours = ask(server, "tgi", token=token)
    assert [each.token.id for each in theirs] == ours["output_ids"]
    assert "".join(each.token.text for each in theirs) == ours["text"]
    assert (
        (theirs[-1].details.generated_tokens, theirs[-1].details.input_length)
        == (ours["output_tokens"], ours["prompt_tokens"])
        == (4, 5)
    )
    question = {
        "messages": [{"role": "user", "content": PROMPT.text}],
        "max_tokens": 4,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    chunks = list(client.chat_completion(**question))
    ours = ask(server, "chat", token=token)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ours["text"]
    (usage,) = [chunk.usage for chunk in chunks if chunk.usage]
    assert (
        (usage.completion_tokens, usage.prompt_tokens)
        == (ours["output_tokens"], ours["prompt_tokens"])
        == (4, 5)
    )


@pytest.mark.parametrize("option", hf_endpoint.OPTIONS)
def test_an_endpoint_is_asked_with_the_token_in_each_of_its_dialects(server, token, option):
    with reached("hf_endpoint", option, server) as served:
        row = ask(served.url, served.dialect, served.body(4), served.token)
    assert row["error"] == "" and row["output_tokens"] == 4 and token not in repr(row) + repr(served)
    assert "Wrong credentials: nothing" in ask(server, option)["error"], "without the token it refuses"
    assert served.body(4) == ({} if option == "tgi" else {"ignore_eos": True})
    assert served.model == ("a-model" if option == "tgi" else "the-model")


def test_an_endpoint_that_does_not_take_the_token_says_whence_it_is(server, token, monkeypatch):
    monkeypatch.setattr(DialectServer, "token", "another")
    with (
        pytest.raises(RuntimeError, match="hf auth login or HF_TOKEN") as refused,
        reached("hf_endpoint", "chat", server),
    ):
        pass
    assert token not in repr(refused.value)


@pytest.mark.parametrize("option", running.OPTIONS)
def test_a_running_server_is_asked_in_each_dialect(server, token, option):
    with reached("http", option, server, "cpu") as served:
        row = ask(served.url, served.dialect, served.body(4), served.token)
    assert row["error"] == "" and row["output_tokens"] == 4
    assert served.model == ("a-model" if option in ("llamacpp", "tgi") else "the-model")


class Api(DialectServer):
    """A small copy of the API that `get_inference_endpoint` reads; `url` is the endpoint's own address."""

    state, url = "running", ""

    def do_GET(self):
        if self.refused():
            return
        assert self.path == "/endpoint/me/llama"
        url = {"url": f"{self.url}/"} if self.state == "running" else {}
        model = {"repository": "a/b", "framework": "pytorch", "revision": "main", "task": "text-generation"}
        endpoint = {"name": "llama", "type": "protected", "model": model, "healthRoute": "/health"}
        times = {"createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z"}
        self.plain(200, endpoint | {"status": times | {"state": self.state} | url})


def test_huggingface_hub_finds_an_endpoint_with_the_token(token, server, monkeypatch):
    """The real `get_inference_endpoint`, against a small copy of the API that it reads."""

    monkeypatch.setattr(Api, "url", server)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as api:
        threading.Thread(target=api.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setattr(
            "huggingface_hub.constants.INFERENCE_ENDPOINTS_ENDPOINT", f"http://127.0.0.1:{api.server_port}"
        )
        with reached("hf_endpoint", "tgi", "me/llama") as served:
            assert served.url == server and ask(served.url, "tgi", token=served.token)["output_tokens"] == 4
        monkeypatch.setattr(Api, "state", "scaledToZero")
        with (
            pytest.raises(RuntimeError, match="is scaledToZero, not running"),
            reached("hf_endpoint", "tgi", "me/llama"),
        ):
            pass
        monkeypatch.setattr(Api, "token", "another")
        with (
            pytest.raises(RuntimeError, match="knows no endpoint") as refused,
            reached("hf_endpoint", "tgi", "me/llama"),
        ):
            pass
        assert token not in repr(refused.value) and refused.value.__suppress_context__
        api.shutdown()
