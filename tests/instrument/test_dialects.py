"""What requests of each dialect look like, and what the events of its answers mean."""

import json

import pytest
from answers import FOUR, PROMPT, event, measured, usage

from bench.instrument.load import protocols


def sent(dialect, url="http://user@here:81/v/", more=None, token=""):
    """(first line, header fields, body) of a request."""
    head, _, body = protocols.request(dialect, url, PROMPT, "m", more, token).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines), json.loads(body)


OPENAI = {"model": "m", "max_tokens": 4, "temperature": 0}
OPENAI |= {"stream": True, "stream_options": {"include_usage": True}}
LLAMACPP = {"n_predict": 4, "temperature": 0, "stream": True, "return_tokens": True}
TGI = {"max_new_tokens": 4, "do_sample": False, "details": True, "decoder_input_details": False}
SENT = [
    ("completions", "/v1/completions", OPENAI | {"prompt": [11, 12, 13], "echo": False}),
    ("text", "/v1/completions", OPENAI | {"prompt": "one two three", "echo": False}),
    ("chat", "/v1/chat/completions", OPENAI | {"messages": [{"role": "user", "content": "one two three"}]}),
    ("llamacpp", "/completion", LLAMACPP | {"prompt": [11, 12, 13]}),
    ("tgi", "/generate_stream", {"inputs": "one two three", "parameters": TGI}),
]


@pytest.mark.parametrize("dialect, path, expected", SENT)
def test_what_is_sent(dialect, path, expected):
    first, fields, body = sent(dialect)
    assert first == f"POST /v{path} HTTP/1.1" and body == expected
    assert fields["Host"] == "here:81" and int(fields["Content-Length"]) == len(json.dumps(expected))
    assert "Authorization" not in fields


def test_more_goes_into_the_body_and_the_token_into_the_header():
    assert sent("completions", more={"ignore_eos": True})[2]["ignore_eos"] is True
    assert sent("tgi", more={"seed": 1})[2]["parameters"]["seed"] == 1
    assert sent("chat", token="secret")[1]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("dialect", protocols.EVERY)
def test_a_prompt_that_comes_back_is_known_where_it_was_sent_as_text(dialect):
    payload = protocols.request(dialect, "http://here", PROMPT, "m")
    assert protocols.echoed(payload, "one two three and more") == (
        dialect in ("text", "text-bos", "chat", "tgi")
    )
    assert not protocols.echoed(payload, "one two") and not protocols.echoed(b"", "one two three")


def test_a_prompt_from_the_cache_is_told():
    assert measured(*FOUR, event(usage(4, prompt_tokens_details={"cached_tokens": 2})))["cached_tokens"] == 2
    assert measured(*FOUR, event(usage(4, prompt_tokens_details=None)))["cached_tokens"] is None


def delta(**content):
    return event({"choices": [{"index": 0, "delta": content, "finish_reason": None}]})


def test_a_chat_begins_with_a_role_which_is_no_token():
    row = measured(
        delta(role="assistant", content=""),
        *(delta(content=each) for each in "abcd"),
        event(usage(4, 30)),
        dialect="chat",
        prompt_tokens=None,
    )
    assert row["error"] == "" and row["chunks"] == 4 and row["ttft_s"] == pytest.approx(0.299, abs=1e-6)


def test_reasoning_is_tokens():
    row = measured(
        delta(reasoning_content="a", content=None),
        delta(reasoning="b"),
        delta(content="c"),
        delta(content="d"),
        event(usage(4)),
        dialect="chat",
    )
    assert row["error"] == "" and row["text"] == "abcd" and row["chunks"] == 4


def test_bytes_that_are_no_utf8_spoil_a_text_not_a_count():
    assert protocols.read("completions", b'{"choices": [{"text": "\xc3"}]}').text == "\ufffd"
    assert protocols.read("completions", b"[DONE]").done and protocols.read("completions", b" ") is None


def test_a_request_by_hand():
    request = protocols.request("chat", "http://here/X/", PROMPT, "m")
    assert request.startswith(b"POST /X/v1/chat/completions HTTP/1.1\r\nHost: here\r\n")
    assert b"Authorization" not in request + protocols.post("http://here", "/x", {})
    turn = protocols.request("chat", "http://here", PROMPT, "m", fields={"X-Turn": "2"})
    assert b"\r\nX-Turn: 2\r\n" in turn.partition(b"\r\n\r\n")[0] + b"\r\n", "routers go by it"
    with pytest.raises(ValueError, match="^Unknown dialect 'chatt'"):
        protocols.request("chatt", "http://here", PROMPT, "m")


def piece(dialect, **event_):
    return protocols.read(dialect, json.dumps(event_).encode())


def test_pieces_by_hand():
    both = {"reasoning": "a", "content": "b"}
    assert piece("chat", choices=[{"delta": both}]).text == "ab"
    assert piece("llamacpp", tokens=[5]) == protocols.Piece("", [5])
    last = piece("llamacpp", content="z", stop=True, tokens_evaluated=3, tokens_predicted=4)
    assert last == protocols.Piece("z", prompt_tokens=3, output_tokens=4, finish="stop")
    assert piece("llamacpp", stop=True, stop_type="limit").finish == "limit"
    counts = piece("tgi", token=None, details={"generated_tokens": 4})
    assert counts == protocols.Piece("", output_tokens=4)
    assert piece("tgi", token=None, details={"finish_reason": "length"}).finish == "length"


def test_what_a_server_reports_is_cut_to_what_a_row_may_hold():
    assert protocols.reason(b"x" * 300) == "x" * 200
    assert protocols.reason(json.dumps({"error": "x" * 300}).encode()) == "x" * 200
    assert protocols.reason(b'{"detail": "b", "message": "a"}') == "a"
    assert protocols.reason(b'{"error": {"code": 5}}') == "{'code': 5}"
    odd = b"[" + b"1" * 100
    with pytest.raises(protocols.Malformed) as broken:
        protocols.read("chat", odd)
    assert str(broken.value).endswith(f": {odd[:80]!r}") and broken.value.__suppress_context__
