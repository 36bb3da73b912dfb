"""A server that speaks every dialect as it is documented, with the quirks of each case of
`protocol_cases.py`.

Documented at: OpenAI's API reference (completions and chat streams, `stream_options`), TGI's
`router/src/server.rs` (`generate_stream`, StreamDetails), llama.cpp's `tools/server/README.md`
(`/completion`). Its fixtures are there for modules that name it in `pytest_plugins`.
"""

import http.server
import json
import re
import threading
import time

import pytest
from protocol_cases import CASES, END_S, FIRST_S, GAP_S, IDS, MARGIN_S, PROMPT, SECRET, WORDS

from bench import backends
from bench.backends.common import servers
from bench.instrument.load import client, schedule

# Each server is a generator of (kind, object): `token` for an event with tokens, `more` for one without.
# What it says depends on the request body.


def groups(quirks, count):
    """The numbers of the tokens of each event."""
    size = 2 if "pairs" in quirks else 1
    return [range(k, min(k + size, count)) for k in range(0, count, size)]


def prompt_tokens(body, quirks):
    """Ids as they are, words otherwise, and a beginning-of-sequence token from a server that counts it."""
    prompt = body.get("prompt") or body.get("inputs")
    prompt = prompt or " ".join(message["content"] for message in body["messages"])
    return len(prompt if isinstance(prompt, list) else prompt.split()) + ("bos" in quirks)


def words(numbers):
    return "".join(WORDS[k % 4] for k in numbers)


def openai(body, quirks, chat=False):
    """OpenAI's streams: usage on request, `null` in every chunk but a last one without choices."""
    count, prompt = body["max_tokens"] + ("bos-out" in quirks), prompt_tokens(body, quirks)
    head = {"id": "x", "object": "chunk", "created": 0, "model": "the-model", "system_fingerprint": "x"}
    wants = (body.get("stream_options") or {}).get("include_usage") and "no-usage" not in quirks
    last = usage(prompt, count + ("counts-prompt" in quirks) * prompt)

    def chunk(text, finish=None, output=0, **more):
        content = {"delta": {"content": text} if text else {}} if chat else {"text": text}
        choice = {"index": 0, "logprobs": None, "finish_reason": finish, **content, **more}
        counts = {"usage": usage(prompt, output) if "every-usage" in quirks else None} if wants else {}
        return head | {"choices": [choice], **counts}

    if chat:
        delta = {"role": "assistant", "content": ""}
        yield "more", head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    if "empty-first" in quirks:
        yield "more", chunk("")
    if "echo" in quirks:
        yield "more", chunk(PROMPT.text)
    for numbers in groups(quirks, body["max_tokens"]):
        ids = [IDS[k % 4] for k in numbers if not ("lost-id" in quirks and k == 0)]
        at_end = numbers[-1] == body["max_tokens"] - 1
        finish = "length" if at_end and "empty-last" not in quirks and not chat else None
        event = chunk(
            words(numbers), finish, numbers[-1] + 1, **({"token_ids": ids} if "ids" in quirks else {})
        )
        yield "token", event | ({"usage": last} if wants and at_end and "last-usage" in quirks else {})
    if chat or "empty-last" in quirks:
        yield "more", chunk("", "length", count)
    if wants and not {"every-usage", "last-usage"} & quirks:
        yield "more", head | {"choices": [], "usage": last}
    yield "more", b"[DONE]"


def usage(prompt, output):
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def chat(body, quirks):
    yield from openai(body, quirks, chat=True)


def tgi(body, quirks):
    """TGI's `generate_stream`: one token per event, with its id.

    The last one has the text and, where the request has `details`, the counts.
    """
    parameters = body["parameters"]
    count, prompt = parameters["max_new_tokens"], prompt_tokens(body, quirks)
    yield "comment", b""  # it keeps a connection alive with comments
    for k in range(count):
        text = "" if "held" in quirks and k == count - 1 else WORDS[k % 4]
        token = {"id": IDS[k % 4], "text": text, "logprob": -1.0, "special": False}
        event = {"index": k + 1, "token": token, "generated_text": None, "details": None}
        if k == count - 1:
            event["generated_text"] = (PROMPT.text if "echo" in quirks else "") + words(range(count))
            old = "old" in quirks
            details = {"prefill": [{"id": 1, "text": "x"}] * prompt} if old else {"input_length": prompt}
            details |= {"generated_tokens": count + ("bos-out" in quirks)}
            details |= {"finish_reason": "length", "seed": None}
            event["details"] = details if parameters.get("details") else None
        yield "token", event


def llamacpp(body, quirks):
    """llama.cpp's `/completion`: counts and the prompt come at the end.

    A held-back token has its text in the next event, and its id never.
    """
    count, prompt = body["n_predict"], prompt_tokens(body, quirks)
    if "echo" in quirks:
        yield "more", {"index": 0, "content": PROMPT.text, "tokens": [], "stop": False}
    for numbers in groups(quirks, count):
        ids = [IDS[numbers[-1] % 4]] if body.get("return_tokens") else []
        event = {"index": 0, "content": words(numbers), "tokens": ids, "stop": False}
        yield "token", event | {"tokens_predicted": numbers[-1] + 1}
    counts = {"tokens_predicted": count + ("bos-out" in quirks), "tokens_evaluated": prompt}
    end = {"index": 0, "content": "", "tokens": [], "stop": True, "stop_type": "limit"}
    end |= {"prompt": PROMPT.text, "timings": {"cache_n": 1}}
    yield "more", end | ({} if "no-usage" in quirks else counts)


DIALECTS = {
    "v1/completions": openai,
    "v1/chat/completions": chat,
    "generate_stream": tgi,
    "completion": llamacpp,
    "": tgi,
}  # "": huggingface_hub's client


class Named:
    """A checkpoint of which only the name counts."""

    name = "a-model"


def reached(engine, option, url, device="cuda"):
    """The server at `url` as the adapter `engine` reaches it, for as long as the block lasts."""
    served_model = "" if option in ("llamacpp", "tgi") else "the-model"
    wanted = servers.ServerSpec(1, 64, 1, url=url, served_model=served_model)
    return backends.get(engine).serve(Named, option, device, wanted)


class DialectServer(http.server.BaseHTTPRequestHandler):
    """Answers below /<number of the case>/ with the quirks of that case.

    Records when it wrote what, and refuses whoever has not the token.
    """

    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    token, bodies, wrote, quirks = "", [], [], None

    def log_message(self, *words):
        pass

    def refused(self):
        """Whether the request had not the token; then it was answered, and what it had instead is quoted."""
        credentials = self.headers.get("Authorization", "nothing")
        if self.token and credentials != f"Bearer {self.token}":
            self.plain(401, {"error": f"Wrong credentials: {credentials}"})
        return bool(self.token) and credentials != f"Bearer {self.token}"

    def plain(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if not self.refused():
            self.plain(200, {"data": [{"id": "the-model"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number, path = re.fullmatch(r"/(\d*)/?(.*)", self.path).groups()
        dialect, quirks, _ = list(CASES.values())[int(number)] if number else ("", "", "")
        if self.refused():
            return
        if dialect == "text" and not isinstance(body["prompt"], str):
            return self.plain(400, {"error": "a list is a list of prompts"})
        type(self).bodies.append(body)
        self.stream(DIALECTS[path](body, set(quirks.split())), quirks)

    def stream(self, events, quirks):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        wrote, late, spoken = [], b"", False
        for kind, content in [*events, *([("more", b"")] if "bare-last" in quirks else [])]:
            text = (
                content if isinstance(content, bytes) else json.dumps(content, separators=(",", ":")).encode()
            )
            field = b":" if kind == "comment" else b"data:" if "no-space" in quirks else b"data: "
            data = field + text + b"\n\n"
            if kind == "token" and "packets" in quirks and not late:
                late = data  # with the next one
                continue
            time.sleep((GAP_S if spoken else FIRST_S) if kind == "token" else END_S if spoken else 0)
            spoken = spoken or kind == "token"
            wrote.append((time.monotonic(), kind))
            self.wfile.write(b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (late, data) if part))
            late = b""
        time.sleep(END_S)
        wrote.append((time.monotonic(), "end"))
        type(self).wrote.append(wrote)
        self.wfile.write(b"0\r\n\r\n")


@pytest.fixture(scope="module")
def server():
    """The address of a server that speaks every dialect."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), DialectServer) as speaking:
        speaking.daemon_threads = True
        threading.Thread(target=speaking.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{speaking.server_port}"
        speaking.shutdown()


@pytest.fixture
def token(monkeypatch):
    """The server wants this token."""
    monkeypatch.setattr(DialectServer, "token", SECRET)
    for name in ("HF_TOKEN", "BENCH_API_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    return SECRET


def ask(url, dialect, more=None, token="", prompt=PROMPT):
    """The row of one request, through all that stands between a study and a server."""
    served = servers.RunningServer(url, dialect, "the-model", {}, lambda new_tokens: more or {}, token)
    loop = client.Client(
        url, schedule.calls(served, schedule.Level("closed", 1, 1), [prompt]), dialect, 1, 5.0
    )
    (row,) = loop.run(time.monotonic() + 0.001)
    return row


def check(url, case, tries=3):
    """AssertionError unless the server of `case` is counted as the case says.

    Its times must be those at which the server wrote tokens, once at least in `tries`: where tests run beside
    each other, two clocks cannot always be read at the same moment.
    """
    dialect, _, expected = CASES[case]
    DialectServer.wrote.clear()
    row = ask(f"{url}/{list(CASES).index(case)}", dialect)
    if isinstance(expected, str):
        assert expected in row["error"] and "ttft_s" not in row, row
        return
    assert row["error"] == "", row["error"]
    assert {name: row.get(name) for name in expected if name != "gaps"} == {
        name: value for name, value in expected.items() if name != "gaps"
    }
    assert ("itl_p50_s" in row) == expected["gaps"] and ("pieces" in row) != expected["gaps"], (
        "events are no tokens"
    )
    (wrote,) = DialectServer.wrote
    tokens = [k for k, (_, kind) in enumerate(wrote) if kind == "token"]
    stamped = (tokens[0], row["ttft_s"]), (tokens[-1], row["e2e_s"])
    right = [  # after every write comes a pause
        wrote[k][0] - MARGIN_S < row["sent_s"] + at < wrote[k + 1][0] - MARGIN_S for k, at in stamped
    ]
    if not all(right) and tries > 1:
        return check(url, case, tries - 1)
    assert all(right), "a moment at which no token was written"
