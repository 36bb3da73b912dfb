"""The access token goes to the server that it is for, and into no row, error or log."""

import pytest
from dialect_server import DialectServer, ask, reached
from protocol_cases import SECRET
from token_quotes import CREDENTIALS, QUOTES, keeps_quiet, refusal

from bench.backends import http as running

pytest_plugins = ["dialect_server", "token_quotes"]


@pytest.mark.parametrize("answer", QUOTES)
def test_a_server_that_quotes_the_token_is_not_repeated(quoting, answer):
    keeps_quiet(quoting(QUOTES[answer]))


@pytest.mark.parametrize(
    "answer",
    [
        refusal(b'{"error": "%s"}' % CREDENTIALS),
        refusal(b"{}").replace(b"No\r\n", CREDENTIALS + b"\r\n"),
        CREDENTIALS + b"\r\n\r\n",
        refusal(CREDENTIALS, 200),
        refusal(b"{}", 302).replace(
            b"Content-Length", b"Location: http://127.0.0.1:9/%s\r\nContent-Length" % CREDENTIALS[7:]
        ),
        b"",
    ],
)
def test_looking_for_the_models_name_tells_no_token(quoting, answer):
    with pytest.raises(
        RuntimeError,
        match="does not say which models it has .GET http://[^ ]*/v1/models: .* BENCH_API_TOKEN if it wants one",
    ) as failed:
        running.served_model(quoting(answer), SECRET, "BENCH_API_TOKEN", "m")
    assert not any(SECRET[k : k + 8] in repr(failed.value) for k in range(len(SECRET) - 7))
    assert failed.value.__suppress_context__


def test_the_token_follows_no_redirection(quoting, token, server):
    """Whoever is named by a `Location` may be anybody: urllib would send the token along."""
    DialectServer.bodies.clear()
    leads = refusal(b"{}", 307).replace(
        b"Content-Length", b"Location: %s/v1/models\r\nContent-Length" % server.encode()
    )
    with pytest.raises(RuntimeError, match="HTTP 307"):
        running.served_model(quoting(leads), SECRET, "BENCH_API_TOKEN", "m")
    assert (
        "HTTP 307" in ask(quoting(leads), "completions", token=SECRET)["error"] and DialectServer.bodies == []
    )


@pytest.mark.parametrize("value", [f"{SECRET}\n", f" {SECRET} "])
def test_a_tokens_line_end_is_left_out(server, token, monkeypatch, value):
    monkeypatch.setenv("BENCH_API_TOKEN", value)
    with reached("http", "completions", server, "cpu") as served:
        assert served.token == SECRET and ask(served.url, "completions", token=served.token)["error"] == ""


@pytest.mark.parametrize("value", [f"{SECRET}\nX-Injected: 1", f"{SECRET[:9]} {SECRET[9:]}", f"{SECRET}é"])
def test_what_is_no_token_is_refused_and_not_quoted(monkeypatch, value):
    monkeypatch.setenv("BENCH_API_TOKEN", value)
    with (
        pytest.raises(ValueError, match="The access token in BENCH_API_TOKEN has a blank") as refused,
        reached("http", "chat", "http://localhost:1", "cpu"),
    ):
        pass
    assert "hf_" not in repr(refused.value)
