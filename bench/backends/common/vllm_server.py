"""How vLLM is started: the flags and the environment of its server, and the room that both of its ways
need."""

import json
import math

CONTEXT_TOKENS = 4096  # prompt and answer together; a model's full context would reserve a KV cache for it
# On CPUs: 128 requests of 576 tokens of a model of 135M parameters at once; on GPUs vLLM takes what is left.
KV_CACHE_BYTES = 5 * 2**29
# On a GPU vLLM 0.26 does not start without FlashInfer (its sampler for top-k and top-p) unless it is told not
# to use it, and FlashInfer compiles with nvcc at its first use. Greedy decoding needs neither.
ON_GPU = {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
SWITCHES = ["--no-enable-prefix-caching", "--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]


def flags(checkpoint, details, device, request, port):
    """(flags as name -> value, switches) of the server for an option's `details` and a `servers` request."""
    chosen = {
        "--model": checkpoint.path,
        "--served-model-name": checkpoint.name,
        "--host": "127.0.0.1",
        "--port": port,
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
    eager = ["--enforce-eager"] if device == "cpu" and not details.get("compiled") else []
    return chosen, [*SWITCHES, *eager]


def environment(device, request):
    """Variables of the server's process: quiet, and on a CPU as many threads on as many cores as were
    chosen."""
    chosen = {
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": str(_threads_each(request)),
    }
    return chosen | ({"VLLM_CPU_OMP_THREADS_BIND": _cores(request)} if device == "cpu" else ON_GPU)


def body(checkpoint, new_tokens):
    """Fields of every request: exactly `new_tokens`, and the ids of each event, so that drafts in one event
    are counted."""
    return {"min_tokens": new_tokens, "stop_token_ids": checkpoint.end_token_ids, "return_token_ids": True}


def drafting(details):
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


def context(checkpoint):
    """Tokens that one request in process may have, prompt and answer together: nobody has said how long they
    get, and vLLM keeps memory for one of full length."""
    return min(CONTEXT_TOKENS, _own_context(checkpoint))


def _own_context(checkpoint):
    """Tokens that the model has room for."""
    return checkpoint.config.get("max_position_embeddings", CONTEXT_TOKENS)


def kv_bytes(checkpoint, dtype):
    """Bytes of KV cache for two requests of full length, KV_CACHE_BYTES at least."""
    return max(KV_CACHE_BYTES, 2 * context(checkpoint) * checkpoint.kv_values_per_token * _value_bytes(dtype))


def _value_bytes(dtype):
    return 4 if dtype == "float32" else 2


def _threads_each(request):
    """Threads of each rank of each replica: more than its cores would wait for each other."""
    return max(1, request.threads // (request.tensor_parallel * request.data_parallel))


def _cores(request):
    """Cores of each rank of each replica, as vLLM reads them: 0-1, or 0|1."""
    each, ranks = _threads_each(request), request.tensor_parallel * request.data_parallel
    bounds = [(rank * each, rank * each + each - 1) for rank in range(ranks)]
    return "|".join(f"{first}-{last}" if first < last else f"{first}" for first, last in bounds)
