"""**SGLang**: a serving engine with a prefix cache at its heart (RadixAttention); one of the two that Text
Generation Inference names as its successors.

- Install: `make study ENGINES=sglang` on a machine with an NVIDIA GPU makes an environment of its own,
  `.venvs/sglang`, from `environments/sglang.txt`. By hand: `pip install sglang`, then `python -m
  sglang.launch_server --model-path … --port …`.
- Documentation: <https://docs.sglang.io/advanced_features/server_arguments.html>
- Licence: Apache-2.0.
- Options: `bfloat16` and `float16` as they say; `fp8` quantises weights and activations to 8-bit floats while
  loading (`--quantization fp8`, made for compute capability 8.9 and above). `bfloat16-ngram` is speculative
  decoding without a second model (`--speculative-algorithm NGRAM`): what followed the last tokens, up to 18
  of them, in texts seen before is drafted as one chain of at most ten tokens and checked in one pass. By
  itself SGLang drafts a tree up to ten branches wide; `--speculative-ngram-max-bfs-breadth 1` makes it a
  chain, and `--speculative-num-draft-tokens 11` counts the last token itself as the root. It stays an
  experiment of its own: the text searched and the length matched are not those of other engines' n-grams.
- Tokens become visible as events of `/v1/completions`, with their ids (`return_token_ids`).
- Several devices: `tensor_parallel` shares the model among GPUs (`--tensor-parallel-size`), `data_parallel`
  keeps replicas of it behind one address (`--data-parallel-size`; the documentation recommends SGLang's
  gateway for that). Untried on several GPUs.
- Traps: `min_tokens` adds a number to every logit at every step, which is the price of suppressing the end of
  sequence. `/server_info` tells the number format, which is read back, and nothing else of the model. The
  prefix cache answers a repeated prompt without computing it (`--disable-radix-cache` here;
  `--enable-cache-report` says what it answered all the same). The n-gram drafts come from *all* earlier
  requests of the server, not only from the same text. The health check generates a token of its own: nothing
  else may ask for it while a run is measured.
"""

import functools
import sys
from importlib.metadata import version as _installed

from bench.backends import common
from bench.backends.common import effective, servers
from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core.definitions import Fields

OPTIONS: dict[str, Fields] = {
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16"},
    "fp8": {"dtype": "bfloat16", "quantization": "fp8"},
    "bfloat16-ngram": {"dtype": "bfloat16", "draft_tokens": 10, "batches": False},
}
DEVICES = ("cuda",)
PARALLEL = {"serve": ("tensor", "data")}
ENVIRONMENT = "sglang"


def version() -> str:
    return _installed("sglang")


def available() -> str | None:
    return common.absent("sglang", study="sglang")


def serve(
    checkpoint: Checkpoint, option: str, device: str, request: servers.ServerSpec
) -> servers.ServerCommand:
    details = OPTIONS[option]
    flags = {
        "--model-path": checkpoint.path,
        "--served-model-name": checkpoint.name,
        "--host": "127.0.0.1",
        "--port": request.port,
        "--dtype": details["dtype"],
        "--context-length": servers.context(checkpoint, request),
        **servers.at_once("--max-running-requests", request),
        "--tensor-parallel-size": request.tensor_parallel,
        "--disable-radix-cache": True,
        "--enable-cache-report": True,
        "--log-level": "warning",
    }
    if request.data_parallel > 1:
        flags["--data-parallel-size"] = request.data_parallel
    if "quantization" in details:
        flags["--quantization"] = details["quantization"]
    if "draft_tokens" in details:
        flags |= {
            "--speculative-algorithm": "NGRAM",
            "--speculative-num-draft-tokens": details["draft_tokens"] + 1,  # with the root of the drafts
            "--speculative-ngram-max-bfs-breadth": 1,
        }

    def reported(url: str) -> Fields:
        found = {"dtype": effective.fetched(f"{url}/server_info").get("dtype")}
        return effective.checked("SGLang", checkpoint, found, details["dtype"])

    command = [sys.executable, "-m", "sglang.launch_server"]
    return servers.ServerCommand(command, flags, body=functools.partial(_body, checkpoint), reported=reported)


def _body(checkpoint: Checkpoint, new_tokens: int) -> Fields:
    """Fields of every request: exactly `new_tokens`, no end before, and the ids of each event, so that drafts
    are counted."""
    return {
        "min_tokens": new_tokens,
        "ignore_eos": True,
        "stop_token_ids": checkpoint.end_token_ids,
        "return_token_ids": True,
    }
