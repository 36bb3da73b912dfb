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
- Traps: TurboMind falls back to PyTorch for models that it does not know, and where its CUDA libraries do not
  load; only its log says so, which is read: such a run is refused. With `ignore_eos` TurboMind *lets* the end
  of sequence *through*, the PyTorch engine *suppresses* it: after the first one their answers part. Neither
  tells at an address what it computes with, so nothing is read back. Prefix
  caching is off unless `--enable-prefix-caching` is set. It has speculative decoding with a second model
  only, no n-grams.
"""

from dataclasses import replace
from importlib.metadata import version as _installed
from pathlib import Path

from bench.backends import common
from bench.backends.common import servers
from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core.definitions import Fields

OPTIONS: dict[str, Fields] = {
    "bfloat16": {"backend": "turbomind", "dtype": "bfloat16"},
    "float16": {"backend": "turbomind", "dtype": "float16"},
    "bfloat16-pytorch": {"backend": "pytorch", "dtype": "bfloat16"},
    "awq-int4": {"backend": "turbomind", "dtype": "float16", "format": "awq", "on_request": ("cuda",)},
}
DEVICES = ("cuda",)
PARALLEL = {"serve": ("tensor",)}
ENVIRONMENT = "lmdeploy"
FALLBACK = "fallback to pytorch engine"  # lmdeploy/archs.py
SERVER = servers.Declaration(
    "LMDeploy",
    OPTIONS,
    [servers.tool("lmdeploy"), "serve", "api_server", "{path}"],
    {
        "--model-name": "{model}",
        "--server-name": "127.0.0.1",
        "--server-port": "{port}",
        "--backend": "{backend}",
        "--dtype": "{dtype}",
        "--tp": "{tensor_parallel}",
        "--log-level": "WARNING",  # where a fall-back from TurboMind to PyTorch is logged
        "--session-len": "{context}",
        "--max-batch-size": "{requests}",
        "--model-format": "{format}",
    },
    # Greedy, whatever the model's generation_config.json says. There is no fewest number of tokens here.
    body={"ignore_eos": True, "top_k": 1, "repetition_penalty": 1.0},
    dialect="text",
    settings={"prefix_caching": False},  # the server's own default
)


def version() -> str:
    return _installed("lmdeploy")


def available() -> str | None:
    return common.absent("lmdeploy", study="lmdeploy")


def serve(
    checkpoint: Checkpoint, option: str, device: str, request: servers.ServerSpec
) -> servers.ServerCommand:
    command = SERVER.serve(checkpoint, option, device, request)
    return replace(command, reported=lambda url: _check_engine(request.log, option))


def _check_engine(log: Path, option: str) -> Fields:
    """Return nothing; RuntimeError with the words of the server's log where it says that it runs on the other
    of its two engines."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    if fell_back := [line.strip() for line in lines if FALLBACK in line.lower()]:
        raise RuntimeError(
            f"LMDeploy runs on its PyTorch engine, which {option} does not stand for: {fell_back[0][-200:]} "
            "Measure bfloat16-pytorch, or install the CUDA libraries that TurboMind opens."
        )
    return {}
