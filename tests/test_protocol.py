"""Every dialect over a socket, spoken by a small server as it is documented, with the quirks that servers have: each case says what must be counted.

`tests/test_protocol_mutations.py` breaks the counting on purpose and sees these cases fail. Documented at: OpenAI's API reference (completions and
chat streams, `stream_options`), TGI's `router/src/server.rs` (`generate_stream`, StreamDetails), llama.cpp's `tools/server/README.md` (`/completion`),
and huggingface_hub's own client, which reads the same server here.
"""

import http.server
import json
import re
import socket
import threading
import time

import pytest

from bench.backends import hf_endpoint
from bench.backends import http as running
from bench.backends.common import servers
from bench.instrument.load import client as client_load
from bench.instrument.load import protocols, schedule

SECRET = "hf_AnotherTokenThatNobodyMaySee9876543210"
PROMPT = protocols.Prompt(
    (11, 12, 13, 14, 15), "one two three four five", 4
)  # as many tokens as words, and no count that another one could be taken for
WORDS = " alpha", " beta", " gamma", " delta"
IDS = 21, 22, 23, 24
FIRST_S, GAP_S, END_S = (
    0.004,
    0.003,
    0.006,
)  # until the first token, between two events, from the last token to what follows
MARGIN_S = 2e-4  # between the clock in which the kernel stamps and the one that the server reads

# (dialect, quirks of the server, what the row must say, or the words of its error)
GOOD = {"output_tokens": 4, "chunks": 4, "prompt_tokens": 5, "gaps": True, "text": "".join(WORDS)}
PAIRS = GOOD | {"chunks": 2, "gaps": False}
TEXTS = GOOD | {
    "prompt_tokens": 6
}  # of what the server makes of the text: a beginning-of-sequence token is one of its tokens
CASES = {
    "completions": ("completions", "", GOOD),
    "completions, no space after data:": ("completions", "no-space", GOOD),
    "completions, two tokens per event": ("completions", "pairs", PAIRS),
    "completions, two tokens per event with ids": ("completions", "pairs ids", PAIRS | {"gaps": True, "output_ids": list(IDS)}),
    "completions, an id short": ("completions", "pairs ids lost-id", PAIRS),
    "completions, an empty last event": ("completions", "empty-last", GOOD),
    "completions, a last event without data": ("completions", "bare-last", GOOD),
    "completions, usage with the last event": ("completions", "last-usage", GOOD),
    "completions, usage in every event": ("completions", "every-usage", GOOD),
    "completions, never usage": ("completions", "no-usage", "did not report usage"),
    "completions, never usage but ids": ("completions", "no-usage ids pairs", PAIRS | {"gaps": True}),
    "completions, echoed prompt": ("completions", "echo", "5 events with text, 4 output tokens"),
    "completions, prompt counted as output": ("completions", "counts-prompt", "9 output tokens where 4 were asked for"),
    "completions, BOS counted": ("completions", "bos", "6 prompt tokens where 5 were sent"),
    "completions, BOS counted as output": ("completions", "bos-out", "5 output tokens where 4 were asked for"),
    "text": ("text", "", GOOD),
    "text, BOS counted": ("text", "bos", TEXTS),
    "text, BOS counted as output": ("text", "bos-out", "5 output tokens where 4 were asked for"),
    "text, empty first and last events": ("text", "empty-first empty-last", GOOD),
    "text, two tokens per event": ("text", "pairs", PAIRS),
    "text, echoed prompt": ("text", "echo", "5 events with text, 4 output tokens"),
    "text, echoed prompt and two tokens per event": ("text", "echo pairs", "sent the prompt back"),
    "text, never usage": ("text", "no-usage", "did not report usage"),
    "chat": ("chat", "bos", TEXTS),
    "chat, no space after data:": ("chat", "bos no-space", TEXTS),
    "chat, two tokens per event": ("chat", "bos pairs", TEXTS | {"chunks": 2, "gaps": False}),
    "chat, usage in every event": ("chat", "bos every-usage", TEXTS),
    "chat, never usage": ("chat", "no-usage", "did not report usage"),
    "chat, echoed prompt and two tokens per event": ("chat", "echo pairs", "sent the prompt back"),
    "chat, prompt counted as output": ("chat", "counts-prompt", "9 output tokens where 4 were asked for"),
    "tgi": ("tgi", "bos", TEXTS | {"output_ids": list(IDS)}),
    "tgi, no space after data:": ("tgi", "bos no-space", TEXTS),
    "tgi, a token without text": ("tgi", "bos held", TEXTS | {"text": " alpha beta gamma"}),
    "tgi, several events per packet": ("tgi", "bos packets", TEXTS),
    "tgi, an empty last event": ("tgi", "bos bare-last", TEXTS),
    "tgi, the whole text in the last event": ("tgi", "bos echo", TEXTS),
    "tgi 1, the prompt's tokens instead of their number": ("tgi", "bos old", TEXTS),
    "tgi, a count too high": ("tgi", "bos-out", "5 output tokens where 4 were asked for"),
    "llamacpp": ("llamacpp", "", GOOD | {"output_ids": list(IDS), "cached_tokens": 1}),
    "llamacpp, no space after data:": ("llamacpp", "no-space", GOOD),
    "llamacpp, two tokens per event": ("llamacpp", "pairs", PAIRS),
    "llamacpp, an empty last event": ("llamacpp", "bare-last", GOOD),
    "llamacpp, never counts": ("llamacpp", "no-usage", "did not report usage"),
    "llamacpp, BOS counted": ("llamacpp", "bos", "6 prompt tokens where 5 were sent"),
    "llamacpp, BOS counted as output": ("llamacpp", "bos-out", "5 output tokens where 4 were asked for"),
    "llamacpp, echoed prompt": ("llamacpp", "echo", "5 events with text, 4 output tokens"),
}  # fmt: skip


# --- what the servers say --------------------------------------------------------------------------------------------------------------
# Each speaker is a generator of (kind, object): `token` for an event with tokens, `more` for one without. What it says depends on what was asked.


def groups(quirks, count):
    """The numbers of the tokens of each event."""
    return (
        [range(k, min(k + 2, count)) for k in range(0, count, 2)]
        if "pairs" in quirks
        else [range(k, k + 1) for k in range(count)]
    )


def prompt_tokens(asked, quirks):
    """Ids as they are, words otherwise, and a beginning-of-sequence token from a server that counts it."""
    prompt = (
        asked.get("prompt")
        or asked.get("inputs")
        or " ".join(message["content"] for message in asked["messages"])
    )
    return len(prompt if isinstance(prompt, list) else prompt.split()) + ("bos" in quirks)


def said(numbers):
    return "".join(WORDS[k % 4] for k in numbers)


def openai(asked, quirks, chat=False):
    """OpenAI's streams: usage on request only, then `null` in every chunk and the counts in a last one without choices."""
    count, prompt = asked["max_tokens"] + ("bos-out" in quirks), prompt_tokens(asked, quirks)
    head = {"id": "x", "object": "chunk", "created": 0, "model": "the-model", "system_fingerprint": "x"}
    usage = lambda output: {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }  # noqa: E731
    wants = (asked.get("stream_options") or {}).get("include_usage") and "no-usage" not in quirks
    last = count + ("counts-prompt" in quirks) * prompt

    def chunk(text, finish=None, output=0, **more):
        content = {"delta": {"content": text} if text else {}} if chat else {"text": text}
        told = {"usage": usage(output) if "every-usage" in quirks else None} if wants else {}
        return head | {
            "choices": [{"index": 0, "logprobs": None, "finish_reason": finish, **content, **more}],
            **told,
        }

    if chat:
        yield (
            "more",
            head
            | {
                "choices": [
                    {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
                ]
            },
        )
    if "empty-first" in quirks:
        yield "more", chunk("")
    if "echo" in quirks:
        yield "more", chunk(PROMPT.text)
    for numbers in groups(quirks, asked["max_tokens"]):
        ids = [IDS[k % 4] for k in numbers if not ("lost-id" in quirks and k == 0)]
        at_end = numbers[-1] == asked["max_tokens"] - 1
        event = chunk(
            said(numbers),
            "length" if at_end and "empty-last" not in quirks and not chat else None,
            numbers[-1] + 1,
            **({"token_ids": ids} if "ids" in quirks else {}),
        )
        yield "token", event | ({"usage": usage(last)} if wants and at_end and "last-usage" in quirks else {})
    if chat or "empty-last" in quirks:
        yield "more", chunk("", "length", count)
    if wants and not {"every-usage", "last-usage"} & quirks:
        yield "more", head | {"choices": [], "usage": usage(last)}
    yield "more", b"[DONE]"


def chat(asked, quirks):
    yield from openai(asked, quirks, chat=True)


def tgi(asked, quirks):
    """TGI's `generate_stream`: one token per event, with its id; the text and, where `details` were asked for, the counts with the last one."""
    parameters = asked["parameters"]
    count, prompt = parameters["max_new_tokens"], prompt_tokens(asked, quirks)
    yield "comment", b""  # it keeps a connection alive with comments
    for k in range(count):
        token = {
            "id": IDS[k % 4],
            "text": "" if "held" in quirks and k == count - 1 else WORDS[k % 4],
            "logprob": -1.0,
            "special": False,
        }
        event = {"index": k + 1, "token": token, "generated_text": None, "details": None}
        if k == count - 1:
            event["generated_text"] = (PROMPT.text if "echo" in quirks else "") + said(range(count))
            details = {
                "finish_reason": "length",
                "generated_tokens": count + ("bos-out" in quirks),
                "seed": None,
            }
            details |= (
                {"prefill": [{"id": 1, "text": "x"}] * prompt}
                if "old" in quirks
                else {"input_length": prompt}
            )
            event["details"] = details if parameters.get("details") else None
        yield "token", event


def llamacpp(asked, quirks):
    """llama.cpp's `/completion`: a held-back token gives its text with the next one, and its id never; the counts and the prompt come at the end."""
    count, prompt = asked["n_predict"], prompt_tokens(asked, quirks)
    if "echo" in quirks:
        yield "more", {"index": 0, "content": PROMPT.text, "tokens": [], "stop": False}
    for numbers in groups(quirks, count):
        yield (
            "token",
            {
                "index": 0,
                "content": said(numbers),
                "tokens": [IDS[numbers[-1] % 4]] if asked.get("return_tokens") else [],
                "stop": False,
                "tokens_predicted": numbers[-1] + 1,
            },
        )
    end = {
        "index": 0,
        "content": "",
        "tokens": [],
        "stop": True,
        "stop_type": "limit",
        "prompt": PROMPT.text,
        "timings": {"cache_n": 1},
    }
    yield (
        "more",
        end
        | (
            {}
            if "no-usage" in quirks
            else {"tokens_predicted": count + ("bos-out" in quirks), "tokens_evaluated": prompt}
        ),
    )


SPEAKERS = {
    "v1/completions": openai,
    "v1/chat/completions": chat,
    "generate_stream": tgi,
    "completion": llamacpp,
    "": tgi,
}  # "": huggingface_hub's client


class Speaker(http.server.BaseHTTPRequestHandler):
    """Answers below /<number of the case>/ with the quirks of that case; notes when it wrote what, and refuses whoever has not the token."""

    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    token, asked, wrote, quirks = "", [], [], None

    def log_message(self, *words):
        pass

    def refused(self):
        """Whether the request had not the token; then it was answered, and what it had instead is quoted."""
        given = self.headers.get("Authorization", "nothing")
        if self.token and given != f"Bearer {self.token}":
            self.plain(401, {"error": f"Wrong credentials: {given}"})
        return bool(self.token) and given != f"Bearer {self.token}"

    def plain(self, status, about):
        body = json.dumps(about).encode()
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
        type(self).asked.append(body)
        self.stream(SPEAKERS[path](body, set(quirks.split())), quirks)

    def stream(self, events, quirks):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        wrote, late, spoken = [], b"", False
        for kind, about in [*events, *([("more", b"")] if "bare-last" in quirks else [])]:
            data = about if isinstance(about, bytes) else json.dumps(about, separators=(",", ":")).encode()
            data = (
                (b":" if kind == "comment" else b"data:" if "no-space" in quirks else b"data: ")
                + data
                + b"\n\n"
            )
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
def speaker():
    """The address of a server that speaks every dialect."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Speaker) as speaking:
        speaking.daemon_threads = True
        threading.Thread(target=speaking.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{speaking.server_port}"
        speaking.shutdown()


@pytest.fixture
def token(monkeypatch):
    """The server wants this token."""
    monkeypatch.setattr(Speaker, "token", SECRET)
    for name in ("HF_TOKEN", "BENCH_API_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    return SECRET


# --- what must be counted --------------------------------------------------------------------------------------------------------------


def ask(url, dialect, more=None, token="", prompt=PROMPT):
    """The row of one request, through all that stands between a study and a server."""
    served = servers.Served(url, dialect, "the-model", {}, lambda new_tokens: more or {}, token)
    client = client_load.Client(
        url, schedule.calls(served, schedule.Level("closed", 1, 1), [prompt]), dialect, 1, 5.0
    )
    (row,) = client.run(client_load.clock() + 0.001)
    return row


def check(url, case):
    """AssertionError unless the server of `case` is counted as the case says; its times are those at which the server wrote tokens."""
    dialect, _, expected = CASES[case]
    Speaker.wrote.clear()
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
    (wrote,) = Speaker.wrote
    tokens = [k for k, (_, kind) in enumerate(wrote) if kind == "token"]
    for k, at in ((tokens[0], row["ttft_s"]), (tokens[-1], row["e2e_s"])):  # after every write comes a pause
        assert wrote[k][0] - MARGIN_S < row["sent_s"] + at < wrote[k + 1][0] - MARGIN_S, (
            "a moment at which no token was written"
        )


@pytest.mark.timing
@pytest.mark.parametrize("case", CASES)
def test_what_a_server_says_is_counted_right(speaker, case):
    check(speaker, case)


def test_every_dialect_has_every_quirk_that_it_can_have():
    quirks = {
        dialect: {quirk for d, words, _ in CASES.values() if d == dialect for quirk in words.split()}
        for dialect in protocols.DIALECTS
    }
    for dialect, found in quirks.items():
        ends = {"empty-last", "bare-last", "bos"}  # a chat always ends with an empty event
        assert (
            {"echo"} <= found
            and found & {"bos", "bos-out"}
            and found & ends
            and found & {"no-space", "pairs"}
        ), dialect
    assert all({"no-usage", "pairs"} <= found for dialect, found in quirks.items() if dialect != "tgi"), (
        "TGI has an id for every token"
    )


def test_a_server_is_asked_for_what_it_says_on_request_only(speaker):
    """Without `stream_options`, `details` and `return_tokens` the same servers say nothing of counts or ids: the counts above were asked for."""
    assert "did not report usage" in ask(speaker, "completions", {"stream_options": None})["error"]
    assert "did not report usage" in ask(speaker, "chat", {"stream_options": None})["error"]
    assert "how many tokens the prompt has" in ask(speaker, "tgi", {"details": False})["error"]
    assert ask(speaker, "llamacpp", {"return_tokens": False})["output_ids"] == []


# --- huggingface_hub's client, with a token --------------------------------------------------------------------------------------------


def test_huggingface_hubs_client_reads_the_same_counts(speaker, token):
    from huggingface_hub import InferenceClient

    client = InferenceClient(model=speaker, token=token, timeout=10)
    theirs = list(client.text_generation(PROMPT.text, stream=True, details=True, max_new_tokens=4))
    ours = ask(speaker, "tgi", token=token)
    assert [each.token.id for each in theirs] == ours["output_ids"] and "".join(
        each.token.text for each in theirs
    ) == ours["text"]
    assert (
        (theirs[-1].details.generated_tokens, theirs[-1].details.input_length)
        == (ours["output_tokens"], ours["prompt_tokens"])
        == (4, 5)
    )
    asked = {
        "messages": [{"role": "user", "content": PROMPT.text}],
        "max_tokens": 4,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    chunks = list(client.chat_completion(**asked))
    ours = ask(speaker, "chat", token=token)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ours["text"]
    (usage,) = [chunk.usage for chunk in chunks if chunk.usage]
    assert (
        (usage.completion_tokens, usage.prompt_tokens)
        == (ours["output_tokens"], ours["prompt_tokens"])
        == (4, 5)
    )


@pytest.mark.parametrize("option", hf_endpoint.OPTIONS)
def test_an_endpoint_is_asked_with_the_token_in_each_of_its_dialects(speaker, token, option):
    with hf_endpoint.serve(Named, option, "cuda", servers.Wanted(1, 64, 1, url=speaker)) as served:
        row = ask(served.url, served.dialect, served.body(4), served.token)
    assert row["error"] == "" and row["output_tokens"] == 4 and token not in repr(row) + repr(served)
    assert "Wrong credentials: nothing" in ask(speaker, option)["error"], "without the token it refuses"


class Named:
    name = "a-model"


@pytest.mark.parametrize("option", running.OPTIONS)
def test_a_running_server_is_asked_in_each_dialect(speaker, token, option):
    with running.serve(Named, option, "cpu", servers.Wanted(1, 64, 1, url=speaker)) as served:
        row = ask(served.url, served.dialect, served.body(4), served.token)
    assert (
        row["error"] == ""
        and row["output_tokens"] == 4
        and served.model == ("a-model" if option in ("llamacpp", "tgi") else "the-model")
    )


def test_huggingface_hub_finds_an_endpoint_with_the_token(token, speaker, monkeypatch):
    """The real `get_inference_endpoint`, against a small copy of the API that it asks."""

    class Api(Speaker):
        state = "running"

        def do_GET(self):
            if self.refused():
                return
            assert self.path == "/endpoint/me/llama"
            url = {"url": f"{speaker}/"} if self.state == "running" else {}
            about = {
                "name": "llama",
                "type": "protected",
                "model": {
                    "repository": "a/b",
                    "framework": "pytorch",
                    "revision": "main",
                    "task": "text-generation",
                },
                "healthRoute": "/health",
            }
            times = {"createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z"}
            self.plain(200, about | {"status": times | {"state": self.state} | url})

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as api:
        threading.Thread(target=api.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setattr(
            "huggingface_hub.constants.INFERENCE_ENDPOINTS_ENDPOINT", f"http://127.0.0.1:{api.server_port}"
        )
        wanted = servers.Wanted(1, 64, 1, url="me/llama")
        with hf_endpoint.serve(Named, "tgi", "cuda", wanted) as served:
            assert served.url == speaker and ask(served.url, "tgi", token=served.token)["output_tokens"] == 4
        Api.state = "scaledToZero"
        with (
            pytest.raises(RuntimeError, match="is scaledToZero, not running"),
            hf_endpoint.serve(Named, "tgi", "cuda", wanted),
        ):
            pass
        Api.token = "another"
        with (
            pytest.raises(RuntimeError, match="knows no endpoint") as refused,
            hf_endpoint.serve(Named, "tgi", "cuda", wanted),
        ):
            pass
        assert token not in repr(refused.value) and refused.value.__suppress_context__
        api.shutdown()


# --- the token is told to nobody -------------------------------------------------------------------------------------------------------

CREDENTIALS = f"Bearer {SECRET}".encode()
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
JSON = b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


def pieces(*parts):
    return STREAM + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def refusal(body, status=401):
    return JSON % (status, len(body), body)


QUOTES = {
    "a refusal": refusal(b'{"error": "Wrong credentials: %s"}' % CREDENTIALS),
    "a refusal of plain text": refusal(CREDENTIALS, 500),
    "a refusal where the words are cut": refusal(
        b'{"error": {"message": "%s%s"}}' % (b"x" * 180, CREDENTIALS)
    ),
    "a refusal in two chunks": pieces(
        b'{"error": "%s' % (b"x" * 180 + CREDENTIALS[:20]), CREDENTIALS[20:] + b'"}'
    ).replace(b"200 OK", b"401 No"),
    "an error within the stream": pieces(b'data: {"error": {"message": "%s"}}\n\n' % CREDENTIALS),
    "an error within the stream in two chunks": pieces(
        b'data: {"error": "%s' % (b"x" * 180 + CREDENTIALS[:20]), CREDENTIALS[20:] + b'"}\n\n'
    ),
    "an event that cannot be read": pieces(b"data: %s\n\n" % CREDENTIALS),
    "bytes that are no HTTP": CREDENTIALS + b"\r\n\r\n",
    "bytes that are no HTTP, cut": b"x" * 40 + CREDENTIALS + b"\r\n\r\n",
    "a chunk without a length": STREAM + CREDENTIALS[7:] + b"\r\nabc\r\n",
    "an answer": pieces(
        b'data: {"choices": [{"text": "%s", "token_ids": [1, 2, 3, 4]}], "usage": {"completion_tokens": 4}}\n\n'
        % CREDENTIALS
    ),
    "an answer in two events": pieces(
        *(
            b'data: {"choices": [{"text": "%s", "token_ids": [1, 2]}]}\n\n' % part
            for part in (CREDENTIALS[:20], CREDENTIALS[20:])
        )
    ),
    "a reason to end": pieces(
        b'data: {"choices": [{"text": "a", "token_ids": [1, 2, 3, 4], "finish_reason": "%s"}]}\n\n'
        % CREDENTIALS
    ),
}


@pytest.fixture
def quoting():
    """A function: bytes -> address of a server that answers every request with them."""
    open_ones = []

    def serve(answer):
        listening = socket.create_server(("127.0.0.1", 0))
        open_ones.append(listening)

        def run():
            while True:
                try:
                    connection = listening.accept()[0]
                except OSError:
                    return
                with connection:
                    if connection.recv(1 << 16):
                        connection.sendall(answer)

        threading.Thread(target=run, daemon=True).start()
        return "http://127.0.0.1:%d" % listening.getsockname()[1]

    yield serve
    for listening in open_ones:
        listening.close()


def keeps_quiet(url):
    """AssertionError if the row of a request to a server that quotes the token has any part of it."""
    row = ask(url, "completions", token=SECRET)
    told = " ".join(
        str(value) for name, value in row.items() if name != "pieces"
    )  # those are counted and dropped
    assert row["error"] or row["text"]
    assert not any(SECRET[k : k + 8] in told for k in range(len(SECRET) - 7))


@pytest.mark.parametrize("answer", QUOTES)
def test_a_server_that_quotes_the_token_is_not_repeated(quoting, answer):
    keeps_quiet(quoting(QUOTES[answer]))


@pytest.mark.parametrize(
    "answer",
    [
        refusal(b'{"error": "%s"}' % CREDENTIALS), refusal(b"{}").replace(b"No\r\n", CREDENTIALS + b"\r\n"), CREDENTIALS + b"\r\n\r\n", refusal(CREDENTIALS, 200),
        refusal(b"{}", 302).replace(b"Content-Length", b"Location: http://127.0.0.1:9/%s\r\nContent-Length" % CREDENTIALS[7:]), b"",
    ],
)  # fmt: skip
def test_looking_for_the_models_name_tells_no_token(quoting, answer):
    with pytest.raises(
        RuntimeError,
        match="does not say which models it has .GET /v1/models: .* BENCH_API_TOKEN if it wants one",
    ) as failed:
        running.first_model(quoting(answer), SECRET, "BENCH_API_TOKEN")
    assert (
        not any(SECRET[k : k + 8] in repr(failed.value) for k in range(len(SECRET) - 7))
        and failed.value.__suppress_context__
    )


def test_the_token_follows_no_redirection(quoting, token, speaker):
    """Whoever is named by a `Location` may be anybody: urllib would send the token along."""
    Speaker.asked.clear()
    leads = refusal(b"{}", 307).replace(
        b"Content-Length", b"Location: %s/v1/models\r\nContent-Length" % speaker.encode()
    )
    with pytest.raises(RuntimeError, match="HTTP 307"):
        running.first_model(quoting(leads), SECRET, "BENCH_API_TOKEN")
    assert "HTTP 307" in ask(quoting(leads), "completions", token=SECRET)["error"] and Speaker.asked == []


@pytest.mark.parametrize("given", [f"{SECRET}\n", f" {SECRET} "])
def test_a_tokens_line_end_is_left_out(speaker, token, monkeypatch, given):
    monkeypatch.setenv("BENCH_API_TOKEN", given)
    with running.serve(Named, "completions", "cpu", servers.Wanted(1, 64, 1, url=speaker)) as served:
        assert served.token == SECRET and ask(served.url, "completions", token=served.token)["error"] == ""


@pytest.mark.parametrize("given", [f"{SECRET}\nX-Injected: 1", f"{SECRET[:9]} {SECRET[9:]}", f"{SECRET}é"])
def test_what_is_no_token_is_refused_and_not_quoted(monkeypatch, given):
    monkeypatch.setenv("BENCH_API_TOKEN", given)
    with (
        pytest.raises(ValueError, match="The access token in BENCH_API_TOKEN has a blank") as refused,
        running.serve(Named, "chat", "cpu", servers.Wanted(1, 64, 1, url="http://localhost:1")),
    ):
        pass
    assert "hf_" not in repr(refused.value)
