"""How vLLM is started: the flags and the environment of its server, and the room that both of its ways
need."""

import json
import math
import re
import urllib.request
from typing import Any

from bench import prefix_cache
from bench.backends.common import effective
from bench.backends.common.checkpoints import Checkpoint
from bench.backends.common.servers import ServerSpec

CACHE_SAYS, SAID = re.compile(r"vllm:cache_config_info\{([^}]*)\}"), re.compile(r'(\w+)="([^"]*)"')
# Prompt and answer together: the longest prompt of study.yaml has 4,096. A KV cache would be reserved for a
# model's full context.
CONTEXT_TOKENS = 8192
# On CPUs: 128 requests of 576 tokens of a model of 135M parameters at once; on GPUs vLLM takes what is left.
KV_CACHE_BYTES = 5 * 2**29
# On a GPU vLLM 0.26 does not start without FlashInfer (its sampler for top-k and top-p) unless it is set not
# to use it, and FlashInfer compiles with nvcc at its first use. Greedy decoding needs neither.
ON_GPU = {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
SWITCHES = ["--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]
BLOCK_TOKENS = {
    "cpu": 32,
    "cuda": 16,
}  # of its prefix cache: the fewest it takes on a CPU, its default on a GPU


def flags(
    checkpoint: Checkpoint, details: dict[str, Any], device: str, request: ServerSpec
) -> tuple[dict[str, Any], list[str]]:
    """(flags as name -> value, switches) of the server for an option's `details` and a `servers` request."""
    chosen = {
        "--model": checkpoint.path,
        "--served-model-name": checkpoint.name,
        "--host": "127.0.0.1",
        "--port": request.port,
        "--dtype": details["dtype"],
        "--load-format": "safetensors",
        "--max-model-len": str(min(_own_context(checkpoint), 256 * math.ceil(request.tokens / 256))),
        **({"--max-num-seqs": str(request.requests)} if request.requests else {}),
        "--tensor-parallel-size": str(request.tensor_parallel),
    }
    if request.data_parallel > 1:
        chosen["--data-parallel-size"] = str(request.data_parallel)
    if device == "cpu":
        values = 2 * request.requests * request.tokens * checkpoint.kv_values_per_token
        room = values * _value_bytes(details["dtype"])
        chosen["--kv-cache-memory-bytes"] = str(max(KV_CACHE_BYTES // 2, room))
    if "draft_tokens" in details:
        chosen["--speculative-config"] = json.dumps(drafting(details)["speculative_config"])
    if request.cache_tokens:
        size = BLOCK_TOKENS[device]
        chosen |= {"--block-size": str(size), "--num-gpu-blocks-override": str(blocks(request, size))}
    caching = "--enable-prefix-caching" if request.cache_tokens else "--no-enable-prefix-caching"
    eager = ["--enforce-eager"] if device == "cpu" and not details.get("compiled") else []
    return chosen, [caching, *SWITCHES, *eager]


def blocks(request: ServerSpec, size: int) -> int:
    """Blocks of `size` tokens of the requested prefix cache, with the first one, which vLLM never
    uses.

    ValueError where a request does not fit into it.
    """
    context = 256 * math.ceil(request.tokens / 256)
    tokens = request.cache_tokens or 0
    if tokens < context:
        raise ValueError(
            f"vLLM needs a cache of {context} tokens or more for one request of {request.tokens}, not of "
            f"{tokens}."
        )
    return tokens // size + 1


def cache(device: str, request: ServerSpec, url: str) -> prefix_cache.Declared:
    """The prefix cache that the server at `url` has, as `prefix_cache.Declared`.

    RuntimeError where it says another size than it was started with.
    """
    if not request.cache_tokens:
        return prefix_cache.Declared("off")
    size = BLOCK_TOKENS[device]
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        reported = CACHE_SAYS.search(answer.read().decode(errors="replace"))
    found = dict(SAID.findall(reported[1])) if reported else {}
    if (found.get("block_size"), found.get("num_gpu_blocks")) != (str(size), str(blocks(request, size))):
        raise RuntimeError(
            f"vLLM was started with {blocks(request, size)} blocks of {size} tokens and says that it has "
            f"{found.get('num_gpu_blocks')} of {found.get('block_size')}: not the declared size."
        )
    capacity = blocks(request, size) * size
    return prefix_cache.Declared("blocks", block_tokens=size, capacity_tokens=capacity)


def environment(device: str, request: ServerSpec) -> dict[str, str]:
    """Variables of the server's process: quiet, and on a CPU as many threads on as many cores as were
    chosen."""
    chosen = {
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_SERVER_DEV_MODE": "1",  # `/server_info`, which tells what it computes with
        "OMP_NUM_THREADS": str(_threads_each(request)),
    }
    return chosen | ({"VLLM_CPU_OMP_THREADS_BIND": _cores(request)} if device == "cpu" else ON_GPU)


def body(checkpoint: Checkpoint, new_tokens: int) -> dict[str, Any]:
    """Fields of every request: exactly `new_tokens`, and the ids of each event, so that drafts in one event
    are counted."""
    return {"min_tokens": new_tokens, "stop_token_ids": checkpoint.end_token_ids, "return_token_ids": True}


def reported(checkpoint: Checkpoint, dtype: str, url: str) -> dict[str, Any]:
    """What the server at `url` says of the model, checked against the checkpoint: its number format. Of the
    model's own configuration it says nothing there."""
    config = effective.fetched(f"{url}/server_info?config_format=json").get("vllm_config")
    model = config.get("model_config", {}) if isinstance(config, dict) else {}
    return effective.checked("vLLM", checkpoint, {"dtype": model.get("dtype")}, dtype)


def drafting(details: dict[str, Any]) -> dict[str, Any]:
    """Arguments for an option that drafts; its counts are taken from vLLM's statistics, which are off
    otherwise."""
    if "draft_tokens" not in details:
        return {}
    chosen = {
        "method": "ngram",
        "prompt_lookup_min": 1,
        "prompt_lookup_max": details["ngram_tokens"],
        "num_speculative_tokens": details["draft_tokens"],
    }
    return {"speculative_config": chosen, "disable_log_stats": False}


def context(checkpoint: Checkpoint) -> int:
    """Tokens that one request in process may have, prompt and answer together: no cell states how long they
    get, and vLLM keeps memory for one of full length."""
    return min(CONTEXT_TOKENS, _own_context(checkpoint))


def _own_context(checkpoint: Checkpoint) -> int:
    """Tokens that the model has room for."""
    return checkpoint.config.get("max_position_embeddings", CONTEXT_TOKENS)


def kv_bytes(checkpoint: Checkpoint, dtype: str) -> int:
    """Bytes of KV cache for two requests of full length, KV_CACHE_BYTES at least."""
    return max(KV_CACHE_BYTES, 2 * context(checkpoint) * checkpoint.kv_values_per_token * _value_bytes(dtype))


def _value_bytes(dtype: str) -> int:
    return 4 if dtype == "float32" else 2


def _threads_each(request: ServerSpec) -> int:
    """Threads of each rank of each replica: more than its cores would wait for each other."""
    return max(1, request.threads // (request.tensor_parallel * request.data_parallel))


def _cores(request: ServerSpec) -> str:
    """Cores of each rank of each replica, as vLLM reads them: 0-1, or 0|1."""
    each, ranks = _threads_each(request), request.tensor_parallel * request.data_parallel
    bounds = [(rank * each, rank * each + each - 1) for rank in range(ranks)]
    return "|".join(f"{first}-{last}" if first < last else f"{first}" for first, last in bounds)
