"""Servers that quote the access token, as some do when they refuse a request."""

import socket
import threading

import pytest
from dialect_server import ask
from protocol_cases import SECRET

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
        b'data: {"choices": [{"text": "%s", "token_ids": [1, 2, 3, 4]}], '
        b'"usage": {"completion_tokens": 4}}\n\n' % CREDENTIALS
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
    # Pieces are counted and dropped.
    shown = " ".join(str(value) for name, value in row.items() if name != "pieces")
    assert row["error"] or row["text"]
    assert not any(SECRET[k : k + 8] in shown for k in range(len(SECRET) - 7))
