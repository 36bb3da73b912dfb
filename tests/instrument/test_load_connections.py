"""Connections of the load client: kept, lost, replaced, and with TLS."""

import ssl
import subprocess
import time

import numpy as np
import pytest
from loads import EVENT, TOKENS, USAGE, accounted, here, make_calls, request_of, stream, tiny, whole

from bench.instrument.load import client, parallel, protocols
from bench.instrument.reference_server import events

pytest_plugins = ["loads"]
pytestmark = [pytest.mark.usefixtures("watchdog"), pytest.mark.timing]


def test_a_silent_open_connection_is_not_tried_again(fresh):
    rows, _ = here(
        fresh.url, make_calls(fresh.url) + make_calls(fresh.url, 1, "silent", first=2), timeout_s=0.5
    )
    assert whole(rows[0]) and "TimeoutError" in rows[1]["error"]
    assert rows[1]["connect_s"] != rows[1]["connect_s"]


def test_a_connection_that_the_server_closes_while_idle_is_let_go():
    def serve(peer, number):
        request_of(peer)
        peer.sendall(stream())

    with tiny(serve) as (url, came):
        rows, loop = here(url, make_calls(url, 3, at_s=[0, 0.1, 0.2]))
    assert all(map(whole, rows)) and len(came) == 3 and not any(np.isnan(row["connect_s"]) for row in rows)
    assert loop.connections.idle == [] and not loop.connections.selector.get_map()


def test_a_long_prompt_is_sent_whole():
    got = []

    def serve(peer, number):
        time.sleep(0.1)  # until then the kernel takes a part of it
        got.append(request_of(peer))
        peer.sendall(stream())

    with tiny(serve) as (url, _):
        calls = make_calls(url)
        calls[0].payload = protocols.request(
            "completions", url, protocols.Prompt(tuple(range(10**6)), "", TOKENS), "m"
        )
        rows, _ = here(url, calls)
    assert whole(rows[0]) and got == [calls[0].payload]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate of 127.0.0.1 with its key, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    key, made = folder / "key.pem", folder / "made.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    command += " -addext subjectAltName=IP:127.0.0.1"
    try:
        subprocess.run([*command.split(), "-keyout", key, "-out", made], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    made.write_text(made.read_text() + key.read_text())
    return made


def slowly(peer, number):
    """Answers over TLS until the client goes.

    The first half comes event by event, the second in one record that no single read holds.
    """
    while request_of(peer):
        peer.sendall(events.STREAMED)
        for _ in range(10):
            peer.sendall(events.chunk(EVENT))
            time.sleep(0.005)
        padding = b": " + b"x" * 14000 + b"\n\n"
        rest = [EVENT] * 10 + [padding, USAGE % TOKENS, b"data: [DONE]\n\n"]
        peer.sendall(b"".join(map(events.chunk, rest)) + events.LAST)


@pytest.fixture
def secure(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with tiny(slowly, context) as served:
        yield served


def test_tls_reads_all_of_it(secure, certificate, monkeypatch):
    url, came = secure
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    calls = make_calls(url, 6)
    rows, report = parallel.run(url, calls, "completions", concurrency=2, timeout_s=5)
    assert all(whole(row) and row["chunks"] == TOKENS for row in accounted(rows, calls)), rows[0]["error"]
    assert not report["kernel_stamps"] and report["read_lag_p50_s"] is None and len(came) == 2
    assert all(row["itl_p50_s"] < row["itl_max_s"] and row["itl_max_s"] > 0.004 for row in rows)


def test_tls_with_a_stranger_is_refused_and_named(secure):
    url, _ = secure
    calls = make_calls(url, 2)
    rows, _ = parallel.run(url, calls, "completions", timeout_s=5)
    for row in accounted(rows, calls):
        assert "CERTIFICATE_VERIFY_FAILED" in row["error"] and "SSL_CERT_FILE names" in row["error"]


def test_tls_that_fails_before_hands_are_shaken_fails_one_request(truth):
    class Context:
        def wrap_socket(self, sock, **options):
            sock.detach()
            raise ConnectionResetError(104, "Connection reset by peer")

    loop = client.Client(truth.url, make_calls(truth.url, 2), "completions", 1, 2.0)
    loop.connections.tls = Context()
    assert ["reset by peer" in row["error"] for row in loop.run(time.monotonic())] == [True, True]


@pytest.mark.parametrize(
    ("path", "stream", "kind"),
    [
        ("/v1/completions", True, "text_completion"),
        ("/v1/chat/completions", True, "chat.completion.chunk"),
        ("/v1/chat/completions", False, "chat.completion"),
    ],
)
def test_what_the_reference_server_sends_says_what_it_is(path, stream, kind):
    """AIPerf takes no content from an object of another name."""
    completion = events.Completion(path, {"stream": stream, "messages": []})
    sent = completion.token() if stream else completion.whole()
    assert f'"object": "{kind}"'.encode() in sent
