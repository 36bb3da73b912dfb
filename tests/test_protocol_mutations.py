"""The counting, broken on purpose: each way of miscounting is put into a copy of the code, and the cases of `tests/test_protocol.py` must see it.

A mutation is a text of the source and what stands in its place; one whose text is no longer there fails, so none is ever skipped unseen.
"""

import importlib
import types
from pathlib import Path

import pytest
import test_protocol as protocol
from test_protocol import quoting, speaker  # noqa: F401 (fixtures)

from bench.instrument.load import client, decoding, schedule

pytestmark = [pytest.mark.check, pytest.mark.timing]

USERS = {
    "dialects": [decoding, schedule],
    "answers": [client, schedule],
    "http1": [decoding, client],
    "serving": [protocol],
}  # who calls a module's functions

# what is done wrong: (module, the source's text, what stands there instead, cases that must fail)
MUTATIONS = {
    "events are counted as tokens": (
        "answers", 'total = sum(counts) if counts and told["output_tokens"] is None else told["output_tokens"]', "total = len(spoken)",
        ["completions, two tokens per event", "text, two tokens per event", "chat, two tokens per event", "llamacpp, two tokens per event", "completions, never usage", "text, never usage", "chat, never usage"],
    ),
    "every event has one token's gap": ("answers", "return [1] * len(spoken) if total == len(spoken) else None", "return [1] * len(spoken)", ["completions, two tokens per event", "llamacpp, two tokens per event"]),
    "ids are believed against usage": ("answers", "if all(told) and total in (None, sum(told)):", "if all(told):", ["completions, an id short"]),
    "ids are no count": ("dialects", "text, list(ids), len(ids) or None,", "text, list(ids), None,", ["completions, never usage but ids", "completions, two tokens per event with ids"]),
    "a held-back token's id is a count": ("dialects", 'Piece(event.get("content", ""), list(ids))', 'Piece(event.get("content", ""), list(ids), len(ids))', ["llamacpp, never counts"]),
    "usage is forgotten": ("dialects", 'usage, choices = event.get("usage") or {},', "usage, choices = {},", ["completions", "text", "chat", "completions, usage with the last event"]),
    "usage is not asked for in completions": (
        "dialects", '"echo": False}\n    return body | {"stream": True, "stream_options": {"include_usage": True}} | more', '"echo": False}\n    return body | {"stream": True} | more',
        ["completions", "text", "completions, usage in every event"],
    ),
    "usage is not asked for in a chat": (
        "dialects", '"max_tokens": prompt.new_tokens, "temperature": 0}\n    return body | {"stream": True, "stream_options": {"include_usage": True}} | more',
        '"max_tokens": prompt.new_tokens, "temperature": 0}\n    return body | {"stream": True} | more', ["chat", "chat, usage in every event"],
    ),
    "the first usage is taken": ("answers", "for piece in reversed(pieces))", "for piece in pieces)", ["completions, usage in every event", "chat, usage in every event"]),
    "usage is read only where there is no choice": (
        "dialects", 'usage, choices = event.get("usage") or {}, event.get("choices") or [{}]', 'usage, choices = {} if event.get("choices") else event.get("usage") or {}, event.get("choices") or [{}]',
        ["completions, usage with the last event", "completions, usage in every event", "chat, usage in every event"],
    ),
    "prompt_tokens is taken for completion_tokens": ("dialects", 'usage.get("completion_tokens")', 'usage.get("prompt_tokens")', ["completions", "chat, no space after data:", "completions, prompt counted as output"]),
    "total_tokens is taken for completion_tokens": ("dialects", 'usage.get("completion_tokens")', 'usage.get("total_tokens")', ["completions", "text", "chat"]),
    "completion_tokens is taken for prompt_tokens": ("dialects", 'usage.get("prompt_tokens")', 'usage.get("completion_tokens")', ["completions", "text"]),
    "a count that is too high is let pass": (
        "answers", "if output_tokens != call.new_tokens:", "if output_tokens < call.new_tokens:",
        ["completions, prompt counted as output", "completions, BOS counted as output", "text, BOS counted as output", "chat, prompt counted as output", "tgi, a count too high", "llamacpp, BOS counted as output"],
    ),
    "BOS is let pass in a prompt of ids": (
        "answers", "prompt_tokens not in (None, call.prompt_tokens):", "prompt_tokens not in (None, call.prompt_tokens, call.prompt_tokens + 1):", ["completions, BOS counted", "llamacpp, BOS counted"],
    ),
    "BOS is not expected in a prompt of text": ("serving", 'if served.dialect in ("completions", "llamacpp") else None', "", ["text, BOS counted", "chat", "tgi"]),
    "a prompt's tokens are the client's own count": (
        "answers", '"prompt_tokens": call.prompt_tokens or told["prompt_tokens"]', '"prompt_tokens": call.prompt_tokens or 5', ["text, BOS counted", "chat", "tgi", "tgi 1, the prompt's tokens instead of their number"],
    ),
    "more events than tokens are let pass": ("answers", "if events > output_tokens:", "if False:", ["completions, echoed prompt", "text, echoed prompt", "llamacpp, echoed prompt"]),
    "an echoed prompt is the first token": ("answers", "if not call.prompt_tokens and dialects.echoed(call.payload, texts[0]):", "if False:", ["text, echoed prompt and two tokens per event", "chat, echoed prompt and two tokens per event"]),
    "text is sent as ids": ("dialects", 'more) | {"prompt": prompt.text}', "more)", ["text", "text, two tokens per event"]),
    "an event without text is a token": ("answers", "for at, piece in zip(arrivals, pieces) if piece.text or piece.ids]", "for at, piece in zip(arrivals, pieces)]", ["completions, an empty last event", "text, empty first and last events", "chat", "llamacpp"]),
    "a token without text is none": ("answers", "if piece.text or piece.ids]", "if piece.text]", ["tgi, a token without text"]),
    "a token without text has no id": ("dialects", 'ids = [token["id"]] if token else []', 'ids = [token["id"]] if token and token["text"] else []', ["tgi, a token without text"]),
    "the end is the last event's": ("answers", '"e2e_s": at[-1] - from_s', '"e2e_s": arrivals[-1] - from_s', ["completions, an empty last event", "completions", "chat", "llamacpp"]),
    "the beginning is the first event's": ("answers", '"ttft_s": at[0] - from_s', '"ttft_s": arrivals[0] - from_s', ["chat", "text, empty first and last events"]),
    "the last event is dropped": ("answers", "for piece, end in pieces if piece is not None]", "for piece, end in pieces if piece is not None][:-1]", ["completions", "text", "chat", "tgi", "llamacpp"]),
    "an event needs data": ("dialects", 'if data.strip() in (b"", b"[DONE]"):', 'if data.strip() == b"[DONE]":', ["completions, a last event without data", "tgi, an empty last event", "llamacpp, an empty last event"]),
    "data: needs a space": (
        "http1", 'if line.startswith(b"data:")]', 'if line.startswith(b"data: ")]', ["completions, no space after data:", "chat, no space after data:", "tgi, no space after data:", "llamacpp, no space after data:"],
    ),
    "one event is read": ("http1", "found.append((said, end.start()))", "found.append((said, end.start())) if len(found) % 2 == 0 else None", ["tgi, several events per packet", "tgi"]),
    "TGI's whole text is taken for a token's": ("dialects", 'Piece(token["text"] if token else "", ids,', 'Piece(event.get("generated_text") or (token["text"] if token else ""), ids,', ["tgi", "tgi, the whole text in the last event"]),
    "TGI's details are not asked for": ("dialects", '"details": True', '"details": False', ["tgi", "tgi, no space after data:"]),
    "TGI's ids are counted, its count is not read": ("dialects", 'prompt, details.get("generated_tokens"), None,', "prompt, None, None,", ["tgi, a count too high"]),
    "TGI 1 is forgotten": ("dialects", 'details.get("input_length") or len(details.get("prefill") or ()) or None', 'details.get("input_length")', ["tgi 1, the prompt's tokens instead of their number"]),
    "TGI 2 is forgotten": ("dialects", 'details.get("input_length") or len(details.get("prefill") or ()) or None', 'len(details.get("prefill") or ()) or None', ["tgi"]),
    "tokens_evaluated is taken for tokens_predicted": ("dialects", 'event.get("tokens_evaluated"), event.get("tokens_predicted"), cached', 'event.get("tokens_predicted"), event.get("tokens_evaluated"), cached', ["llamacpp", "llamacpp, BOS counted"]),
    "llama.cpp's prompt is taken for text": ("dialects", 'Piece(event.get("content", ""), [], None', 'Piece(event.get("prompt", ""), [], None', ["llamacpp"]),
    "llama.cpp's ids are not asked for": ("dialects", '"stream": True, "return_tokens": True', '"stream": True', ["llamacpp"]),
}  # fmt: skip


# what hides the token is left out: (module, text, instead, answers of a server that would then be repeated)
LEAKS = {
    "nothing is hidden": ("answers", "    if not token:\n        return said", "    return said", [*protocol.QUOTES]),
    "only what came in one chunk is": ("answers", "body = _without_token(body, answer.call.payload)", "body = body", ["an error within the stream in two chunks", "a refusal in two chunks"]),
    "only what came in one event is": ("answers", "_without_token(value, answer.call.payload) if isinstance(value, str) else value for", "value for", ["an answer in two events"]),
    "only what was HTTP is": ("answers", '"error": _failure(answer),', '"error": answer.error,', ["bytes that are no HTTP, cut"]),
}  # fmt: skip


def broken(name, old, new):
    """The module bench.<name> with `new` in the place of `old`, under the same name; AssertionError where `old` does not stand there exactly once."""
    module = importlib.import_module(f"bench.{name}")
    source = Path(module.__file__).read_text()
    assert source.count(old) == 1, f"bench/{name}.py has this {source.count(old)} times: {old}"
    copy = types.ModuleType(module.__name__)
    exec(compile(source.replace(old, new), f"{module.__file__} (broken)", "exec"), copy.__dict__)
    return module, copy


def put(monkeypatch, name, old, new):
    """Let those who call bench.<name> call a broken copy of it."""
    module, copy = broken(name, old, new)
    for user in USERS[name]:
        assert getattr(user, name) is module
        monkeypatch.setattr(user, name, copy)


@pytest.mark.parametrize("wrong", MUTATIONS)
def test_miscounting_is_seen(speaker, monkeypatch, wrong):  # noqa: F811
    *change, cases = MUTATIONS[wrong]
    put(monkeypatch, *change)
    for case in cases:
        with pytest.raises(AssertionError):
            protocol.check(speaker, case)


@pytest.mark.parametrize("wrong", LEAKS)
def test_a_leak_is_seen(quoting, monkeypatch, wrong):  # noqa: F811
    *change, quoted = LEAKS[wrong]
    put(monkeypatch, *change)
    for answer in quoted:
        with pytest.raises(AssertionError):
            protocol.keeps_quiet(quoting(protocol.QUOTES[answer]))


def test_every_case_fails_where_the_counting_is_broken():
    """No case that nothing can fail, and none that does not exist."""
    assert {case for *_, cases in MUTATIONS.values() for case in cases} == set(protocol.CASES)
