"""What the reference server writes: HTTP heads, chunks, and OpenAI's completions and chat events."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from llm_measured.core.definitions import Fields

MODEL = "ground-truth"
TEXT, ANSWER = " token", 1  # every token of every answer: its text and its id
HEAD = "HTTP/1.1 {} \r\nContent-Type: {}\r\n{}\r\n\r\n"
STREAMED = HEAD.format(200, "text/event-stream", "Transfer-Encoding: chunked").encode()
LAST = b"0\r\n\r\n"
NOW = "%20d"  # where a stamp goes; JSON allows blanks before a number, so every event has the same length

Token = int | str  # an id, or a word where the prompt came as text
# Seconds after the request arrived, and what is then sent; None: the connection is reset.
Part = tuple[float, bytes | None]


@dataclass(frozen=True)
class Schedule:
    """When tokens are sent: the first `ttft_s` and `prefill_s` per prompt token computed after the
    request arrived, a further one every `itl_s`."""

    ttft_s: float
    itl_s: float
    prefill_s: float = 0.0

    def computing(self, tokens: int) -> "Schedule":
        """The schedule of a request of which `tokens` prompt tokens are computed."""
        return replace(self, ttft_s=self.ttft_s + tokens * self.prefill_s, prefill_s=0.0)

    def at_s(self, token: float) -> float:
        """Seconds after the request's arrival at which token number `token`, from 0, is due."""
        return self.ttft_s + token * self.itl_s


def chunk(data: bytes) -> bytes:
    """`data` as one chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def stamped(event: Fields) -> bytes:
    """One event as a chunk, with a place for the stamp; braces and percent signs of the JSON stay."""
    text = "data: " + json.dumps(event).replace("%", "%%").replace('"NOW"', NOW) + "\n\n"
    return f"{len(text % 0):x}\r\n{text}\r\n".encode()


def plain(status: int, text: str, more: str = "") -> bytes:
    """A response that is no stream."""
    head = HEAD.format(status, "application/json", f"Content-Length: {len(text.encode())}{more}")
    return head.encode() + text.encode()


class Completion:
    """What a request is for, and the events that answer it."""

    def __init__(self, path: str, body: Fields) -> None:
        self.chat = path.endswith("/chat/completions")
        self.tokens = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
        self.prompt: Any = body.get("prompt", body.get("messages", ""))  # ids, a text, or a chat's messages
        ids = isinstance(self.prompt, list) and not self.chat
        self.stream = body.get("stream", False)
        self.usage = (body.get("stream_options") or {}).get("include_usage")
        self.shows_ids, self.ids, self.text = body.get("return_token_ids", False), ids, TEXT
        self.prompt_tokens = len(self.tokens_in)
        self.reported: int | None = None  # prompt tokens that it says were cached; None: it does not say

    @property
    def tokens_in(self) -> list[Token]:
        """The prompt as the server's tokens: its ids, or the words of its text; of a chat each message's role
        and words, then `assistant`, with which the template lets the answer begin."""
        if self.ids:
            return self.prompt
        messages = self.prompt if self.chat else [{"content": self.prompt}]
        words: list[Token] = []
        for message in messages:
            words += f"{message.get('role', '')} {message.get('content') or ''}".split()
        if self.chat:
            words.append("assistant")
        return words

    @property
    def answer(self) -> list[Token]:
        """The server's tokens of the whole answer."""
        token: Token = ANSWER if self.ids else TEXT.strip()
        return [token] * self.tokens

    def token(self, text: str | None = None, finish: str | None = None) -> bytes:
        """The event of one token, with a place for its stamp."""
        text = self.text if text is None else text
        choice: Fields = {"index": 0, "finish_reason": finish}
        choice |= {"delta": {"content": text}} if self.chat else {"text": text, "logprobs": None}
        choice |= {"token_ids": [ANSWER]} if self.shows_ids else {}
        return stamped(self._event([choice], sent_ns="NOW"))

    def role(self) -> bytes:
        """The event with which a chat begins: it has no token."""
        delta = {"role": "assistant", "content": ""}
        event = self._event([{"index": 0, "delta": delta, "finish_reason": None}])
        return _unstamped(event) if self.chat else b""

    def counts(self, output_tokens: int | None = None) -> bytes:
        """The event with the token counts, `output_tokens` of them if not all."""
        return _unstamped(self._event([], usage=self._usage(output_tokens)))

    def whole(self) -> bytes:
        """The answer in one piece, for those that do not stream."""
        text = self.text * self.tokens
        choice = {"index": 0, "finish_reason": "length"}
        choice |= {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return plain(200, json.dumps(self._event([choice], usage=self._usage())))

    @property
    def done(self) -> bytes:
        """The marker and the last chunk."""
        return chunk(b"data: [DONE]\n\n") + LAST

    def _usage(self, output_tokens: int | None = None) -> Fields:
        n = self.tokens if output_tokens is None else output_tokens
        counts = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": n,
            "total_tokens": self.prompt_tokens + n,
        }
        known = self.reported is not None
        return counts | ({"prompt_tokens_details": {"cached_tokens": self.reported}} if known else {})

    def _event(self, choices: list, **more: Any) -> Fields:
        chat = "chat.completion.chunk" if self.stream else "chat.completion"
        kind = chat if self.chat else "text_completion"
        known = {"id": "x", "object": kind, "created": 0, "model": MODEL}
        return known | {"choices": choices, **more}


def usual(completion: Completion, schedule: Schedule) -> Iterator[Part]:
    """The answer without a fault."""
    last_s = schedule.at_s(completion.tokens - 1)
    if not completion.stream:
        yield last_s, completion.whole()
        return
    yield 0, STREAMED + completion.role()
    event, last = completion.token(), completion.token(finish="length")
    for k in range(completion.tokens):
        yield schedule.at_s(k), (event if k < completion.tokens - 1 else last)
    yield last_s, (completion.counts() if completion.usage else b"") + completion.done


def _unstamped(event: Fields) -> bytes:
    return chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
