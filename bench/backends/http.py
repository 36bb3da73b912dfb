"""**http**: any server that is already running, wherever it is, in one of the dialects that the load client
speaks.

This is the generic adapter for whatever speaks the OpenAI protocol and has no file of its own here: hosted
APIs, Triton, Modal, a SageMaker endpoint behind a gateway.

- Install: nothing. `.venv/bin/papermill notebooks/serving.ipynb out.ipynb -p backend http
  -p url http://localhost:8000 -p gpu h100`. Where the server is not on this machine, `gpu` says what
  it runs on: nobody can see that from here.
- Documentation: <https://platform.openai.com/docs/api-reference/completions>,
  <https://huggingface.co/docs/text-generation-inference>,
  <https://github.com/ggml-org/llama.cpp/tree/master/tools/server>
- Licence: that of the server.
- Options: the dialect. `completions` sends token ids to `/v1/completions`, `text` sends text there, for
  servers that take no ids; `chat` sends text to `/v1/chat/completions`, where the server's own template
  stands around it; `llamacpp` is llama.cpp's `/completion`, `tgi` is Text Generation Inference's
  `/generate_stream`.
- Tokens become visible as events of the stream. How many there are is what the server's usage says; an event
  may hold several.
- Traps: nothing here can switch off a prefix cache or make a server write exactly as many tokens as the study
  counts on (`ignore_eos` is sent, where the dialect has no such word a model that stops early gives rows with
  `error`). The access token is read from `BENCH_API_TOKEN` in the environment, and written nowhere.
"""

import json
import os
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from bench.backends.common import servers
from bench.backends.common.checkpoints import Checkpoint
from bench.definitions import Fields

OPTIONS: dict[str, Fields] = {"completions": {}, "text": {}, "chat": {}, "llamacpp": {}, "tgi": {}}
DEVICES = ("cpu", "cuda")
PARALLEL = {"serve": ("tensor", "data")}  # what the server does is what its user says of it
ON_REQUEST = (
    "http measures a server that is running already: .venv/bin/papermill notebooks/serving.ipynb out.ipynb "
    "-p backend http -p url http://localhost:8000"
)
TOKEN = "BENCH_API_TOKEN"


def version() -> str:
    return "as running"


def available() -> str | None:
    return None


def serve(checkpoint: Checkpoint, option: str, device: str, request: servers.Wanted) -> servers.Served:
    if not request.url:
        raise ValueError(
            "The backend http needs the address of a running server: -p url http://localhost:8000"
        )
    secret = token(os.environ.get(TOKEN, ""), TOKEN)
    name = checkpoint.name if option in ("llamacpp", "tgi") else first_model(request.url, secret, TOKEN)
    url = request.url.rstrip("/")
    settings = settings_of(option, name)
    return servers.Served(url, option, name, settings, lambda new_tokens: body(option), secret)


def settings_of(option: str, name: str) -> Fields:
    """What the sidecar keeps of a server that runs already. The row's model is what the reader says; this is
    how the server calls what it answers with, of a path its last part."""
    shown = name.rstrip("/").rpartition("/")[2] if name.startswith("/") else name
    return {"dialect": option, "url_given": True, "served_model": shown}


def token(text: str, where: str) -> str:
    """The access token in `text`, without the line's end of a file.

    ValueError, which does not quote it, where it cannot stand in a header.
    """
    found = text.strip()
    if not all("!" <= letter <= "~" for letter in found):
        raise ValueError(
            f"The access token in {where} has a blank, a line's end or another character in it that no token "
            "has."
        )
    return found


def body(option: str) -> Fields:
    """Fields of every request in a dialect: never end early, where it has a word for that."""
    return {} if option == "tgi" else {"ignore_eos": True}


def first_model(url: str, token: str, where: str) -> str:
    """The first model that the server offers; RuntimeError if it offers none or does not answer. `where` says
    whence the token is read."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        query = urllib.request.Request(url.rstrip("/") + "/v1/models", headers=headers)
        with urllib.request.build_opener(_Stay).open(query, timeout=30) as answer:
            return json.load(answer)["data"][0]["id"]
    except (OSError, ValueError, LookupError, TypeError, HTTPException) as failure:
        raise RuntimeError(
            f"The server does not say which models it has (GET /v1/models: {_why(failure)}). "
            f"Is it running there, and is there a token in {where} if it wants one?"
        ) from None


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the access token would go along, wherever that leads."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def _why(failure: Exception) -> str:
    """A failure in words that quote neither the request nor the answer: either may hold the access token."""
    if isinstance(failure, urllib.error.HTTPError):
        return f"HTTP {failure.code}"
    reason = f": {failure.reason}" if isinstance(failure, urllib.error.URLError) else ""
    return f"{type(failure).__name__}{reason}"
