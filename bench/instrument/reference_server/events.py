"""What the reference server writes: HTTP heads, chunks, and OpenAI's completions and chat events."""

import json
from dataclasses import dataclass

MODEL = "ground-truth"
HEAD = "HTTP/1.1 {} \r\nContent-Type: {}\r\n{}\r\n\r\n"
STREAMED = HEAD.format(200, "text/event-stream", "Transfer-Encoding: chunked").encode()
LAST = b"0\r\n\r\n"
NOW = "%20d"  # where a stamp goes; JSON allows blanks before a number, so every event has the same length


@dataclass(frozen=True)
class Schedule:
    """When tokens are sent: the first `ttft_s` after the request arrived, a further one every `itl_s`."""

    ttft_s: float
    itl_s: float

    def at_s(self, token):
        """Seconds after the request's arrival at which token number `token`, from 0, is due."""
        return self.ttft_s + token * self.itl_s


def chunk(data):
    """`data` as one chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def stamped(event):
    """One event as a chunk, with a place for the stamp; braces and percent signs of the JSON stay."""
    text = "data: " + json.dumps(event).replace("%", "%%").replace('"NOW"', NOW) + "\n\n"
    return f"{len(text % 0):x}\r\n{text}\r\n".encode()


def with_stamp(event, moment_ns):
    """The bytes of a `stamped` event with `moment_ns` in the place of the stamp, and nothing else changed."""
    return event.replace(NOW.encode(), NOW.encode() % moment_ns)


def plain(status, text, more=""):
    """A response that is no stream."""
    head = HEAD.format(status, "application/json", f"Content-Length: {len(text.encode())}{more}")
    return head.encode() + text.encode()


class Completion:
    """What a request is for, and the events that answer it."""

    def __init__(self, path, body):
        self.chat = path.endswith("/chat/completions")
        self.tokens = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
        prompt = body.get("prompt", body.get("messages", ""))
        self.prompt, ids = prompt, isinstance(prompt, list) and not self.chat
        self.prompt_tokens = len(prompt if ids else json.dumps(prompt).split())
        self.stream = body.get("stream", False)
        self.usage = (body.get("stream_options") or {}).get("include_usage")

    def token(self, text=" token", finish=None):
        """The event of one token, with a place for its stamp."""
        choice = {"index": 0, "finish_reason": finish}
        choice |= {"delta": {"content": text}} if self.chat else {"text": text, "logprobs": None}
        return stamped(self._event([choice], sent_ns="NOW"))

    def role(self):
        """The event with which a chat begins: it has no token."""
        delta = {"role": "assistant", "content": ""}
        event = self._event([{"index": 0, "delta": delta, "finish_reason": None}])
        return _unstamped(event) if self.chat else b""

    def counts(self, output_tokens=None):
        """The event with the token counts, `output_tokens` of them if not all."""
        return _unstamped(self._event([], usage=self._usage(output_tokens)))

    def whole(self):
        """The answer in one piece, for those that do not stream."""
        text = " token" * self.tokens
        choice = {"index": 0, "finish_reason": "length"}
        choice |= {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return plain(200, json.dumps(self._event([choice], usage=self._usage())))

    @property
    def done(self):
        """The marker and the last chunk."""
        return chunk(b"data: [DONE]\n\n") + LAST

    def _usage(self, output_tokens=None):
        n = self.tokens if output_tokens is None else output_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": n,
            "total_tokens": self.prompt_tokens + n,
        }

    def _event(self, choices, **more):
        known = {"id": "x", "object": "text_completion", "created": 0, "model": MODEL}
        return known | {"choices": choices, **more}


def _unstamped(event):
    return chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
