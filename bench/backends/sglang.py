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

import sys
from importlib.metadata import version as _installed

from bench.backends import common
from bench.backends.common import servers
from llm_measured.core.definitions import Fields

OPTIONS: dict[str, Fields] = {
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16"},
    "fp8": {"dtype": "bfloat16", "flags": {"--quantization": "fp8"}},
    "bfloat16-ngram": {
        "dtype": "bfloat16",
        "draft_tokens": 10,
        "batches": False,
        "flags": {
            "--speculative-algorithm": "NGRAM",
            "--speculative-num-draft-tokens": 10 + 1,  # with the root of the drafts
            "--speculative-ngram-max-bfs-breadth": 1,
        },
    },
}
DEVICES = ("cuda",)
PARALLEL = {"serve": ("tensor", "data")}
ENVIRONMENT = "sglang"
SERVER = servers.Declaration(
    "SGLang",
    OPTIONS,
    [sys.executable, "-m", "sglang.launch_server"],
    {
        "--model-path": "{path}",
        "--served-model-name": "{model}",
        "--host": "127.0.0.1",
        "--port": "{port}",
        "--dtype": "{dtype}",
        "--context-length": "{context}",
        "--max-running-requests": "{requests}",
        "--tensor-parallel-size": "{tensor_parallel}",
        "--data-parallel-size": "{replicas}",
        "--disable-radix-cache": True,
        "--enable-cache-report": True,
        "--log-level": "warning",
    },
    body={  # exactly `new_tokens`, no end before, and the ids of each event, so that drafts are counted
        "min_tokens": "{new_tokens}",
        "ignore_eos": True,
        "stop_token_ids": "{end_token_ids}",
        "return_token_ids": True,
    },
    tells_dtype=("/server_info", "dtype"),
)
serve = SERVER.serve


def version() -> str:
    return _installed("sglang")


def available() -> str | None:
    return common.absent("sglang", study="sglang")
