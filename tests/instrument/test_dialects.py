"""What requests of each dialect look like, and what the events of its answers mean."""

import json

import pytest
from answers import PROMPT

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


@pytest.mark.parametrize("dialect", protocols.EVERY)
def test_a_prompt_that_comes_back_is_known_where_it_was_sent_as_text(dialect):
    payload = protocols.request(dialect, "http://here", PROMPT, "m")
    assert protocols.echoed(payload, "one two three and more") == (
        dialect in ("text", "text-bos", "chat", "tgi")
    )
    assert not protocols.echoed(payload, "one two") and not protocols.echoed(b"", "one two three")


def test_bytes_that_are_no_utf8_spoil_a_text_not_a_count():
    assert protocols.read("completions", b'{"choices": [{"text": "\xc3"}]}').text == "\ufffd"
    assert protocols.read("completions", b"[DONE]").done and protocols.read("completions", b" ") is None


def test_what_a_server_reports_is_cut_to_what_a_row_may_hold():
    assert protocols.reason(b"x" * 300) == "x" * 200
    assert protocols.reason(json.dumps({"error": "x" * 300}).encode()) == "x" * 200
    assert protocols.reason(b'{"detail": "b", "message": "a"}') == "a"
    assert protocols.reason(b'{"error": {"code": 5}}') == "{'code': 5}"
    odd = b"[" + b"1" * 100
    with pytest.raises(protocols.Malformed) as broken:
        protocols.read("chat", odd)
    assert str(broken.value).endswith(f": {odd[:80]!r}") and broken.value.__suppress_context__
