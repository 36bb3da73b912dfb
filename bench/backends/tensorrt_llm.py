"""**TensorRT-LLM**: NVIDIA's serving engine (PyTorch models with its own kernels and CUDA graphs), behind
`trtllm-serve`.

- Install: `make study ENGINES=tensorrt_llm` on a machine with an NVIDIA GPU makes an environment of its own,
  `.venvs/tensorrt-llm`, from `environments/tensorrt-llm.txt`. It needs the CUDA toolkit (`CUDA_HOME`), Open
  MPI (`libopenmpi-dev`) and `libnuma1` on the machine. By hand: `pip install tensorrt_llm`, then
  `trtllm-serve … --port …`; or NVIDIA's container `nvcr.io/nvidia/tensorrt-llm/release`.
- Documentation: <https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve/trtllm-serve.html>
- Licence: Apache-2.0; the CUDA and TensorRT libraries below it are NVIDIA's own, under NVIDIA's terms.
- Options: `bfloat16` and `float16` as they say. `bfloat16-ngram` is speculative decoding without a second
  model: what followed the last two tokens when they stood in the text before, up to ten tokens, is drafted
  and checked in one pass.
- Tokens become visible as events of `/v1/completions`; several tokens may share one, and only usage says how
  many there are.
- Several devices: `tensor_parallel` shares the model among GPUs (`--tp_size`). Untried on several.
- Traps: the end of sequence is *let through* (`ignore_eos`), not suppressed: of `stop_token_ids` its sampler
  makes stop words, which end an answer whatever `ignore_eos` and `min_tokens` say. Its PyTorch models take
  the number format from config.json and not from `dtype`, and its transformers (4.57) reads neither the
  tokenizer nor the rotary base of a checkpoint that transformers 5 wrote: the server gets a copy that has all
  three where it looks. It tells none of them at an address, so nothing is read back. What the command line
  cannot say stands in a file (`--extra_llm_api_options`), which overrides the command line. The cache of
  earlier prompts is on by default (`enable_block_reuse`, false here). Fields that the server does not know
  are refused, not ignored. While drafting the overlap of scheduling and computing is off
  (`disable_overlap_scheduler`), which costs time at every batch. The first start compiles for minutes.
"""

import ctypes
from importlib.metadata import version as _installed
from pathlib import Path

from bench.backends import common
from bench.backends.common import copies, cuda, servers
from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core.definitions import Fields

OPTIONS: dict[str, Fields] = {
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16"},
    "bfloat16-ngram": {
        "dtype": "bfloat16",
        "draft_tokens": 10,
        "batches": False,
        "file": {
            "speculative_config": {
                "decoding_type": "NGram",
                "max_draft_len": 10,
                "max_matching_ngram_size": 2,
            },
            "disable_overlap_scheduler": True,
        },
    },
}
DEVICES = ("cuda",)
PARALLEL = {"serve": ("tensor",)}
ENVIRONMENT = "tensorrt-llm"
# What its wheel opens and no package of pip brings: the Debian package that does, and the library's names.
LIBRARIES = {"libopenmpi-dev": ("libmpi.so.40", "libmpi.so.12", "libmpi.so"), "libnuma1": ("libnuma.so.1",)}


def version() -> str:
    return _installed("tensorrt_llm")


def available() -> str | None:
    if absent := common.absent("tensorrt_llm", study="tensorrt_llm"):
        return absent
    if lacking := [package for package, names in LIBRARIES.items() if not any(map(_opens, names))]:
        return (
            "tensorrt_llm is installed, but this machine lacks libraries that it opens: apt install "
            f"{' '.join(lacking)}"
        )
    if compiler := cuda.without_toolkit():
        return f"tensorrt_llm is installed, but {compiler}"
    return None


def _opens(library: str) -> bool:
    try:
        return bool(ctypes.CDLL(library))
    except OSError:
        return False


def prepare(checkpoint: Checkpoint, option: str, device: str) -> Path:
    """Make a copy of `checkpoint` as its transformers reads it, with the option's number format in
    config.json."""
    return copies.for_transformers_4(checkpoint, dtype=OPTIONS[option]["dtype"])


SERVER = servers.Declaration(
    "TensorRT-LLM",
    OPTIONS,
    [servers.tool("trtllm-serve"), "{path}"],
    {
        "--host": "127.0.0.1",
        "--port": "{port}",
        "--backend": "pytorch",
        "--tp_size": "{tensor_parallel}",
        "--max_batch_size": "{requests}",
        "--max_seq_len": "{context}",
        "--log_level": "warning",
        "--extra_llm_api_options": "{file}",
    },
    body={"ignore_eos": True},  # `min_tokens` and `stop_token_ids` would end an answer: see the traps
    file={"dtype": "{dtype}", "kv_cache_config": {"enable_block_reuse": False}},
    prepare=prepare,
)
serve = SERVER.serve
