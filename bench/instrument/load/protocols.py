"""What servers speak: the bytes of a request, and what the events of an answer mean.

A dialect is a name in EVERY (those that a reader may choose are in DIALECTS): the path of its requests, their
body, and how one decoded event is read.
Nothing here takes the time: `client` stamps bytes as they arrive and has them read here when the run is over.

    completions   OpenAI's /v1/completions with token ids as the prompt (vLLM, llama.cpp, SGLang)
    text          the same with the prompt as text, for servers that take no token ids there (LMDeploy)
    text-bos      the same of a server that splits the answer again to count it, and counts a
                  beginning-of-sequence token with it (text-generation-webui)
    chat          OpenAI's /v1/chat/completions: the server's own template stands around the prompt
    llamacpp      llama.cpp's own /completion
    tgi           Text Generation Inference's /generate_stream
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from bench import endpoint
from llm_measured.core import naming
from llm_measured.core.definitions import Fields, Value

NEW_TOKENS = "$new_tokens"
NEEDED = ("model", "messages", "prompt", "inputs", "stream")  # no request goes without these
UNREADABLE = ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError
BOM = b"\xef\xbb\xbf"  # a mark of UTF-8 that some servers send first


class Malformed(ValueError):
    """Bytes that are not what the dialect says; the message says what was wrong."""


@dataclass
class Piece:
    """What one event brought: text, token ids where the server sends them, counts and why it stopped.

    `text` is all that was generated, `thought` the part of it that is reasoning and no answer.
    """

    text: str = ""
    ids: list = field(default_factory=list)
    tokens: int | None = None  # None: the server does not say how many tokens the text is
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish: str = ""
    thought: str = ""
    thought_tokens: int | None = None  # of the whole answer, as the server counts them
    sent_ns: int | None = None  # when the server sent it, where it says so: `reference_server` does
    model: str = ""  # who answers, by the server's word
    unread: str = ""  # fields that may hold text and are not known here
    opens: bool = False  # it says who speaks, and holds no token
    news: str = ""  # an event that is no part of an answer: its words
    done: bool = False  # the marker of the end


@dataclass(frozen=True)
class Prompt:
    """A prompt as token ids, the same as text, and how many tokens the answer shall have.

    `messages`: the turns of a chat up to this one, (role, text) each; empty: one of the user's.
    """

    ids: tuple
    text: str
    new_tokens: int
    messages: tuple = ()


def _completions(prompt: Prompt, model: str, more: Fields) -> Fields:
    return _openai(prompt, model, {"prompt": list(prompt.ids), "echo": False}, more)


def _text(prompt: Prompt, model: str, more: Fields) -> Fields:
    return _openai(prompt, model, {"prompt": prompt.text, "echo": False}, more)


def _chat(prompt: Prompt, model: str, more: Fields) -> Fields:
    turns = prompt.messages or (("user", prompt.text),)
    return _openai(prompt, model, {"messages": [{"role": r, "content": text} for r, text in turns]}, more)


def _openai(prompt: Prompt, model: str, content: Fields, more: Fields) -> Fields:
    body = {"model": model, **content, "max_tokens": prompt.new_tokens, "temperature": 0, "stream": True}
    return body | {"stream_options": {"include_usage": True}} | more


def _llamacpp(prompt: Prompt, model: str, more: Fields) -> Fields:
    return {
        "prompt": list(prompt.ids),
        "n_predict": prompt.new_tokens,
        "temperature": 0,
        "stream": True,
        "return_tokens": True,
    } | more


def _tgi(prompt: Prompt, model: str, more: Fields) -> Fields:
    parameters = {
        "max_new_tokens": prompt.new_tokens,
        "do_sample": False,
        "details": True,
        "decoder_input_details": False,
    }
    return {"inputs": prompt.text, "parameters": parameters | more}


# Fields of a delta in which thoughts come: of one that comes under several names the longest counts.
THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks")
ANSWERS = ("content", "text", "refusal", "tool_calls", "function_call")
INNER = ("text", "content", "thinking", "refusal", "summary", "function", "name", "arguments", "input")
# Fields that say something of the answer and hold none of it.
ABOUT = {"role", "index", "finish_reason", "stop_reason", "logprobs", "token_ids", "delta", "annotations"}
ABOUT |= {"prompt_token_ids", "prompt_logprobs", "matched_stop", "content_filter_results", "routed_experts"}
ABOUT |= {"hidden_states", "native_finish_reason", "provider_specific_fields", "sent_ns", "obfuscation"}
CACHED = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens", "num_cached_tokens")
DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")


def _read_openai(event: Fields) -> Piece:
    """An event of either OpenAI dialect.

    Usage may come with the last choice, in an event of its own without choices, or with every event.
    """
    usage, choice = event.get("usage") or {}, (event.get("choices") or [{}])[0]
    content = choice.get("delta") or choice
    thought = max((_text_of(content.get(name)) for name in THOUGHTS), key=len)
    text = thought + "".join(_text_of(content.get(name)) for name in ANSWERS)
    ids = choice.get("token_ids") or []
    details, cached = usage.get("completion_tokens_details") or {}, dict(usage)
    for name in DETAILS:
        cached |= usage.get(name) or {}
    return Piece(
        text=text,
        ids=list(ids),
        tokens=len(ids) or None,
        prompt_tokens=_number(usage, "prompt_tokens", "input_tokens"),
        output_tokens=_number(usage, "completion_tokens", "output_tokens"),
        cached_tokens=_number(cached, *CACHED),
        finish=choice.get("finish_reason") or "",
        thought=thought,
        thought_tokens=_number(details, "reasoning_tokens"),
        unread=", ".join(sorted(name for name in content if name not in _READ and content[name])),
        opens=bool(content.get("role")) and not text,
    )


_READ = {*THOUGHTS, *ANSWERS, *ABOUT}


def _text_of(value: Value) -> str:
    """All text in a field of a delta: a string, a list of parts, or an object with text in it."""
    if isinstance(value, list):
        return "".join(map(_text_of, value))
    if isinstance(value, dict):
        return "".join(_text_of(value.get(name)) for name in INNER)
    return value if isinstance(value, str) else ""


def _number(counts: Fields, *names: str) -> int | None:
    """The first of `names` that is there, as a whole number: some servers write 20.0 or "20"."""
    found = next((counts[name] for name in names if counts.get(name) is not None), None)
    if found is None or type(found) is int:
        return found
    if float(found) != int(float(found)):
        raise TypeError("its counts are no whole numbers")
    return int(float(found))


def _read_openai_bos(event: Fields) -> Piece:
    """An event of a server whose usage has a beginning-of-sequence token with every answer."""
    piece = _read_openai(event)
    if piece.output_tokens is not None:
        piece.output_tokens -= 1
    return piece


def _read_llamacpp(event: Fields) -> Piece:
    text, ids = event.get("content", ""), event.get("tokens") or []
    if not event.get("stop"):
        return Piece(text, list(ids))  # a held-back token's id never comes, so ids are no count
    return Piece(
        text=text,
        prompt_tokens=_number(event, "tokens_evaluated"),
        output_tokens=_number(event, "tokens_predicted"),
        cached_tokens=_number(event.get("timings", {}), "cache_n"),
        finish=event.get("stop_type") or "stop",
    )


def _read_tgi(event: Fields) -> Piece:
    token, details = event.get("token"), event.get("details") or {}
    ids = [token["id"]] if token else []
    # Streams of TGI 2 and 3 have the prompt's length, older ones its tokens.
    length = _number(details, "input_length") or len(details.get("prefill") or ()) or None
    return Piece(
        text=token["text"] if token else "",
        ids=ids,
        tokens=len(ids) or None,
        prompt_tokens=length,
        output_tokens=_number(details, "generated_tokens"),
        finish=details.get("finish_reason") or "",
    )


DIALECTS = {
    "completions": ("/v1/completions", _completions, _read_openai),
    "text": ("/v1/completions", _text, _read_openai),
    "chat": ("/v1/chat/completions", _chat, _read_openai),
    "llamacpp": ("/completion", _llamacpp, _read_llamacpp),
    "tgi": ("/generate_stream", _tgi, _read_tgi),
}
# What one engine makes of a dialect: its adapter names it, no reader does.
EVERY = DIALECTS | {"text-bos": ("/v1/completions", _text, _read_openai_bos)}


BY_IDS = ("completions", "llamacpp")  # dialects in which a prompt goes as token ids
# Dialects whose events have `choices`; the fields in which an answer's tokens come in any dialect.
OPENAI, ANSWER_FIELDS = {"completions", "text", "text-bos", "chat"}, {"choices", "content", "token"}


def request(
    dialect: str,
    url: str,
    prompt: Prompt,
    model: str,
    more: Fields | None = None,
    token: str = "",
    fields: Mapping[str, str] | None = None,
    changes: Fields | None = None,
    own_path: str = "",
) -> bytes:
    """The bytes of one HTTP request for `prompt` (Prompt) to the server at `url`.

    `more` goes into the body, `token` and further `fields` into the header; `changes` are made to the body
    last (`changed`), and `own_path` below the address takes the place of the dialect's.
    ValueError for a dialect that does not exist.
    """
    path, body, _ = EVERY[naming.choose("dialect", dialect, EVERY)]
    whole = changed(body(prompt, model, more or {}), changes or {}, prompt.new_tokens)
    parts, payload = urlsplit(endpoint.join(url, own_path or path)), json.dumps(whole).encode()
    head = [
        f"POST {urlunsplit(('', '', parts.path, parts.query, ''))} HTTP/1.1",
        f"Host: {parts.netloc.rpartition('@')[2]}",
        "User-Agent: llm-inference-measured",
        "Accept: text/event-stream",
        "Accept-Encoding: identity",
        "Content-Type: application/json",
        f"Content-Length: {len(payload)}",
        "Connection: keep-alive",
    ]
    head += [f"Authorization: Bearer {token}"] if token else []
    head += [f"{name}: {value}" for name, value in (fields or {}).items()]
    return "\r\n".join([*head, "", ""]).encode() + payload


def changed(body: Fields, changes: Fields, new_tokens: int) -> Fields:
    """`body` with `changes`, objects within it likewise: None takes a field out, NEW_TOKENS stands for the
    number of tokens that the answer is to have."""
    made = dict(body)
    for name, value in changes.items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, dict):
            inner = made.get(name)
            made[name] = changed(inner if isinstance(inner, dict) else {}, value, new_tokens)
        else:
            made[name] = new_tokens if value == NEW_TOKENS else value
    return made


def way_on(payload: bytes, status: int, words: str) -> str:
    """How a request whose refusal (`status` 400 or 422) names a field of its body is sent without that field,
    in a sentence after a blank; empty where it names none."""
    if status not in (400, 422):
        return ""
    body = json.loads(payload.partition(b"\r\n\r\n")[2] or b"{}")
    inner = [(name, each) for name, value in body.items() if isinstance(value, dict) for each in value]
    for *outer, name in [*inner, *((name,) for name in body if name not in NEEDED)]:
        if re.search(rf"\b{name}\b", words):
            change: Fields = {name: None}
            if name == "max_tokens":
                change["max_completion_tokens"] = NEW_TOKENS
            return f" Without it: -p body '{json.dumps({outer[0]: change} if outer else change)}'."
    return ""


def uncertain(dialect: str, changes: Fields) -> str:
    """What the request bodies no longer fix once `changes` are made, in words separated by commas: length,
    greedy; empty where both are fixed as far as the dialect can."""
    if not changes:
        return ""
    inner = changes.get("parameters") or {} if dialect == "tgi" else changes
    ends, temperature = inner.get("ignore_eos", True), inner.get("temperature", 0)
    length = not ends and not inner.get("min_tokens")
    greedy = inner.get("do_sample") if dialect == "tgi" else temperature != 0
    return ", ".join([*(["length"] if length else []), *(["greedy"] if greedy else [])])


def echoed(payload: bytes, text: str) -> bool:
    """Whether `text` begins with the prompt that the request `payload` carries as text.

    Dialects chat, text and tgi; token ids are never echoed as such.
    """
    data = payload.partition(b"\r\n\r\n")[2]
    body = json.loads(data) if data else {}
    prompt = body.get("prompt") or body.get("inputs") or (body.get("messages") or [{}])[-1].get("content")
    return isinstance(prompt, str) and bool(prompt) and text.startswith(prompt)


def read(dialect: str, data: bytes) -> Piece | None:
    """The Piece of one event's data (bytes after `data:`), None for an empty one.

    Malformed for what cannot be read, and for an error that the server reports within the stream.
    """
    data = data.strip().removeprefix(BOM)
    if not data:
        return None
    if data == b"[DONE]":
        return Piece(done=True)
    if data[:1].isalpha() and data not in (b"true", b"false", b"null"):
        return Piece(news=data[:200].decode(errors="replace"))
    try:
        # A character split by the server arrives as bytes that are no UTF-8: the token counts.
        event = json.loads(data.decode("utf-8", errors="replace"))
        if not isinstance(event, dict):
            raise TypeError(f"{type(event).__name__} instead of an object")
        if event.get("error") or event.get("object") == "error":
            raise Malformed(f"the server reported within the stream: {_message(event.get('error') or event)}")
        if "message" in event and not ANSWER_FIELDS & event.keys():
            return Piece(news=_message(event))
        if ("choices" in event) != (dialect in OPENAI) and ANSWER_FIELDS & event.keys():
            raise Malformed(
                f"events of another dialect than {dialect!r}: their fields are {', '.join(event)}"
            )
        piece = EVERY[dialect][2](event)
        piece.sent_ns = event.get("sent_ns")
        piece.model = _text_of(event.get("model"))
        if type(piece.text) is not str or type(piece.finish) is not str:
            raise TypeError("its text is no text")
        if any(type(number) is not int for number in (*piece.ids, piece.sent_ns or 0)):
            raise TypeError("its counts are no whole numbers")
        return piece
    except Malformed:
        raise
    except UNREADABLE as error:
        raise Malformed(
            f"an event could not be read ({type(error).__name__}: {error}): {data[:80]!r}"
        ) from None


def _message(error: Value) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)[:200]


def reason(body: bytes) -> str:
    """What the body of a refusal says, in at most 200 characters."""
    try:
        refusal = json.loads(body)
        return _message(refusal.get("error") or refusal.get("message") or refusal.get("detail") or refusal)
    except (ValueError, AttributeError):
        return body.decode(errors="replace").strip()[:200]
