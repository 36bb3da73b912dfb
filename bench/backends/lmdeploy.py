"""**LMDeploy**: a serving toolkit with two engines, TurboMind (C++ and CUDA) and one on PyTorch, behind one
OpenAI-compatible server.

- Install: `make study ENGINES=lmdeploy` on a machine with an NVIDIA GPU makes an environment of its own,
  `.venvs/lmdeploy`, from `environments/lmdeploy.txt`. By hand: `pip install lmdeploy`, then `lmdeploy serve
  api_server … --server-port …`.
- Documentation: <https://lmdeploy.readthedocs.io/en/latest/llm/api_server.html>
- Licence: Apache-2.0.
- Options: `bfloat16` and `float16` run on TurboMind, `bfloat16-pytorch` on the PyTorch engine. `awq-int4`
  reads a checkpoint that is quantised already (`--model-format awq`), so it is measured only when chosen by
  name, with such a model.
- Tokens become visible as events of `/v1/completions`, with the prompt as text: it takes no token ids (a list
  is a list of prompts) and puts no template around the text; how many tokens the prompt has is then the
  server's own count, a beginning-of-sequence token included.
- Several devices: `tensor_parallel` shares the model among GPUs (`--tp`). Untried on several.
- Traps: TurboMind falls back to PyTorch for models that it does not know, and only its log says so. Prefix
  caching is off unless `--enable-prefix-caching` is given. It has speculative decoding with a second model
  only, no n-grams.
"""

import contextlib
from importlib.metadata import version as _installed
from importlib.util import find_spec

from bench import processes
from bench.backends.common import launch

OPTIONS = {
    "bfloat16": {"backend": "turbomind", "dtype": "bfloat16"},
    "float16": {"backend": "turbomind", "dtype": "float16"},
    "bfloat16-pytorch": {"backend": "pytorch", "dtype": "bfloat16"},
    "awq-int4": {"backend": "turbomind", "dtype": "float16", "format": "awq", "on_request": ("cuda",)},
}
DEVICES = ("cuda",)
PARALLEL = {"serve": ("tensor",)}
ENVIRONMENT = "lmdeploy"


def version():
    return _installed("lmdeploy")


def available():
    return (
        None
        if find_spec("lmdeploy")
        else "lmdeploy is not installed. Install and measure it with: make study ENGINES=lmdeploy"
    )


@contextlib.contextmanager
def serve(checkpoint, option, device, request):
    details, port = OPTIONS[option], processes.free_port()
    words = [launch.tool("lmdeploy"), "serve", "api_server", checkpoint.path]
    flags = {
        "--model-name": checkpoint.name,
        "--server-name": "127.0.0.1",
        "--server-port": port,
        "--backend": details["backend"],
        "--dtype": details["dtype"],
        "--tp": request.tensor_parallel,
        "--session-len": launch.context(checkpoint, request),
        **launch.at_once("--max-batch-size", request),
    }
    if "format" in details:
        flags["--model-format"] = details["format"]
    settings = {"prefix_caching": False}
    with launch.run(words, flags, port, request, "text", checkpoint.name, _body, settings=settings) as served:
        yield served


def _body(new_tokens):
    """Fields of every request: greedy, whatever the model's generation_config.json says, and never end
    early."""
    # There is no fewest number of tokens here.
    return {"ignore_eos": True, "top_k": 1, "repetition_penalty": 1.0}
