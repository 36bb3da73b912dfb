"""**Hugging Face Inference Endpoint**: a model that Hugging Face runs for you on a GPU of your choice, behind
its HTTPS address.

- Install: part of the default environment (`huggingface_hub`). An endpoint is made, paused and paid for on
  <https://endpoints.huggingface.co>; this adapter only asks one that runs: `.venv/bin/papermill
  notebooks/serving.ipynb out.ipynb -p backend hf_endpoint -p url organisation/name -p gpu a10g`.
- Documentation: <https://huggingface.co/docs/huggingface_hub/guides/inference_endpoints>
- Licence: that of the model, and the terms of the service; what is measured is a rented machine.
- Options: the dialect. `completions` sends token ids to `/v1/completions` (vLLM's and SGLang's containers);
  `chat` sends text to `/v1/chat/completions`, where the server's own template stands around it; `tgi` is
  `/generate_stream` of Text Generation Inference's container, which the published row had.
- Tokens become visible as events of the stream, after the way through the network and a gateway: compare its
  TTFT with nobody's on a machine of their own. `url` is the endpoint's address, or `name` or
  `organisation/name`, which `huggingface_hub` looks up.
- Traps: an endpoint that is paused or scaled to zero is not woken, because that costs money. What GPU it is
  says `-p gpu`. The access token is that of `hf auth login` or `HF_TOKEN`; it is sent over TLS or to this
  machine, and written nowhere. Prefix caches and early ends are the container's.
"""

from importlib.metadata import version as _installed
from urllib.parse import urlsplit

from bench.backends import common, http
from bench.backends.common import servers
from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core.definitions import Fields

OPTIONS: dict[str, Fields] = {"completions": {}, "chat": {}, "tgi": {}}
DEVICES = ("cpu", "cuda")
PARALLEL = {"serve": ("tensor", "data")}  # what the server does is what its user says of it
ON_REQUEST = (
    "hf_endpoint asks an endpoint that runs: .venv/bin/papermill notebooks/serving.ipynb out.ipynb "
    "-p backend hf_endpoint -p url organisation/name -p gpu a10g"
)


def version() -> str:
    return f"as running, huggingface_hub {_installed('huggingface_hub')}"


def available() -> str | None:
    return common.absent("huggingface_hub")


def serve(
    checkpoint: Checkpoint, option: str, device: str, request: servers.ServerSpec
) -> servers.RunningServer:
    from huggingface_hub import get_token

    token = http.token(get_token() or "", "HF_TOKEN")
    if not request.url or not token:
        what = (
            "the access token: run hf auth login, or set HF_TOKEN"
            if request.url
            else "an endpoint: -p url organisation/name, or its address"
        )
        raise ValueError(f"The backend hf_endpoint needs {what}.")
    url = request.url.rstrip("/") if "://" in request.url else _address(request.url, token)
    there = urlsplit(url)
    if there.scheme != "https" and there.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError(
            f"The access token is sent over https only, not to {there.scheme}://{there.hostname}."
        )
    name = (
        checkpoint.name
        if option == "tgi"
        else http.served_model(
            url, token, "hf auth login or HF_TOKEN", checkpoint.name, request.served_model
        )["id"]
    )
    settings = http.settings_of(option, name)
    return servers.RunningServer(url, option, name, settings, lambda new_tokens: http.body(option), token)


def _address(name: str, token: str) -> str:
    """Address of the endpoint `name` or `organisation/name`; RuntimeError where there is none, or it does not
    run."""
    from huggingface_hub import get_inference_endpoint

    namespace, _, short = name.rpartition("/")
    try:
        endpoint = get_inference_endpoint(short, namespace=namespace or None, token=token)
    except Exception as failure:  # its words may quote the request, so only its kind is shown
        raise RuntimeError(
            f"huggingface_hub knows no endpoint {name!r} ({type(failure).__name__}). Is it the token's own, "
            "and is the name right?"
        ) from None
    if endpoint.status != "running" or not endpoint.url:
        now = getattr(endpoint.status, "value", endpoint.status)
        raise RuntimeError(
            f"The endpoint {name!r} is {now}, not running. Resume it on https://endpoints.huggingface.co: "
            "that costs money."
        )
    return endpoint.url.rstrip("/")
