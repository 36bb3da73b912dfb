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
- Bodies of servers that reject a field are changed with `-p body '{"ignore_eos": null}'`, headers added with
  `-p headers '{"api-key": "$NAME"}'` (NAME is a variable of the environment).
- Traps: nothing here can switch off a prefix cache or make a server write exactly as many tokens as the study
  counts on (`ignore_eos` is sent, where the dialect has no such word a model that stops early gives rows with
  `error`). The access token is read from `BENCH_API_TOKEN` in the environment, and written nowhere.
"""

import json
import os
from http.client import HTTPException

from bench import endpoint
from bench.backends.common import servers
from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

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


def serve(
    checkpoint: Checkpoint, option: str, device: str, request: servers.ServerSpec
) -> servers.RunningServer:
    if not request.url:
        raise ValueError(
            "The backend http needs the address of a running server: -p url http://localhost:8000"
        )
    secret = token(os.environ.get(TOKEN, ""), TOKEN)
    url = endpoint.checked(request.url)
    if option in ("llamacpp", "tgi"):
        name, more = request.served_model or checkpoint.name, {}
    else:
        wanted, headers = request.served_model, request.headers
        model = served_model(url, secret, TOKEN, checkpoint.name, wanted, headers)
        name, more = model["id"], usage_of_each_event(model)
    settings = settings_of(option, name)
    return servers.RunningServer(
        url,
        option,
        name,
        settings,
        lambda new_tokens: body(option) | more,
        secret,
        changes=request.changes,
        headers=request.headers,
        path=request.path,
    )


def settings_of(option: str, name: str) -> Fields:
    """What the sidecar keeps of a server that runs already. The row's model is what the reader says; this is
    how the server calls what it answers with, of a path its last part."""
    return {"dialect": option, "url_given": True, "served_model": shown(name)}


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


def usage_of_each_event(model: Fields) -> Fields:
    """The field of a body that asks for usage with every event, of servers that are known to take it: it says
    how many tokens the first event has."""
    if model.get("owned_by") not in ("vllm", "sglang"):
        return {}
    return {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def served_model(
    url: str,
    token: str,
    where: str,
    model: str,
    wanted: str = "",
    headers: dict[str, str] | None = None,
) -> Fields:
    """The server's entry (`id`, maybe `owned_by`) of the model to ask for: of those that it offers the one
    that is called `wanted`, or like `model`.

    RuntimeError with the list where none is, for rows would name a model that was not measured; with the
    address that was asked where the server does not say which it has. `where` says whence the token is read.
    """
    sent = ({"Authorization": f"Bearer {token}"} if token else {}) | (headers or {})
    try:
        models = {
            entry["id"]: entry for entry in json.loads(endpoint.get(url, "/v1/models", sent, 30))["data"]
        }
        offered = list(models)
    except (OSError, ValueError, LookupError, TypeError, HTTPException) as failure:
        if wanted and not endpoint.refuses_token(failure):
            return {"id": wanted}
        raise NotThere(
            f"The server does not say which models it has (GET {endpoint.join(url, '/v1/models')}: "
            f"{endpoint.why(failure)}). Is it running there, and is there a token in {where} if it wants one?"
            f"{endpoint.past_proxy(url)} -p served_model names the model of a server without such a list."
        ) from None
    asked = wanted or model
    named = [name for name in offered if name == asked] or [name for name in offered if _alike(name, asked)]
    if len(named) == 1:
        return models[named[0]]
    missing = NotThere(
        f"The server offers {naming.listed(map(shown, offered)) or 'no model'}, and "
        f"{len(named) or 'none'} of them {'are' if len(named) > 1 else 'is'} {asked}. Say which is measured, "
        f"-p served_model NAME, and which model it is: -p model (rows say {model})."
    )
    missing.offered = offered
    raise missing


def only_model(url: str, headers: dict[str, str]) -> str:
    """Return the name of the one model that the server at `url` offers, empty where it has no such list;
    RuntimeError where it cannot be reached, or offers several."""
    try:
        served_model(url, token(os.environ.get(TOKEN, ""), TOKEN), TOKEN, "", "", headers)
    except NotThere as failure:
        if failure.offered is None:
            raise
        if len(failure.offered) == 1:
            return failure.offered[0]
        listed = naming.listed(map(shown, failure.offered))
        raise RuntimeError(
            f"The server offers {listed}. Say which is measured: -p served_model NAME."
        ) from None
    return ""


class NotThere(RuntimeError):
    """The model that is asked for is none of those `offered` (None: the server does not say)."""

    offered: list[str] | None = None


def _alike(name: str, asked: str) -> bool:
    """Whether a server's `name` is the model that is asked for, whatever its case and its publisher."""
    return naming.same_model(name, asked.rpartition(":")[2])


def shown(name: str) -> str:
    """The server's name of a model, of a path its last part."""
    return name.rstrip("/").rpartition("/")[2] if name.startswith("/") else name
