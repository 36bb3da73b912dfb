"""**TensorRT-LLM**: NVIDIA's serving engine (PyTorch models with its own kernels and CUDA graphs), behind
`trtllm-serve`.

- Install: `make study ENGINES=tensorrt_llm` on a machine with an NVIDIA GPU makes an environment of its own,
  `.venvs/tensorrt-llm`, from `environments/tensorrt-llm.txt`. It needs the CUDA toolkit (`CUDA_HOME`) and
  Open MPI (`libopenmpi-dev`) on the machine. By hand: `pip install tensorrt_llm`, then `trtllm-serve … --port
  …`; or NVIDIA's container `nvcr.io/nvidia/tensorrt-llm/release`.
- Documentation: <https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve/trtllm-serve.html>
- Licence: Apache-2.0; the CUDA and TensorRT libraries below it are NVIDIA's own, under NVIDIA's terms.
- Options: `bfloat16` and `float16` as they say. `bfloat16-ngram` is speculative decoding without a second
  model: what followed the last two tokens when they stood in the text before, up to ten tokens, is drafted
  and checked in one pass.
- Tokens become visible as events of `/v1/completions`; several tokens may share one, and only usage says how
  many there are.
- Several devices: `tensor_parallel` shares the model among GPUs (`--tp_size`). Untried on several.
- Traps: what the command line cannot say stands in a file (`--extra_llm_api_options`), which overrides the
  command line. The cache of earlier prompts is on by default (`enable_block_reuse`, false here). Fields that
  the server does not know are refused, not ignored. While drafting the overlap of scheduling and computing is
  off (`disable_overlap_scheduler`), which costs time at every batch. The first start compiles for minutes.
"""

import contextlib
import functools
import json
from importlib.metadata import version as _installed
from importlib.util import find_spec

from bench import processes
from bench.backends.common import launch

OPTIONS = {
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16"},
    "bfloat16-ngram": {"dtype": "bfloat16", "ngram_tokens": 2, "draft_tokens": 10, "batches": False},
}
DEVICES = ("cuda",)
PARALLEL = {"serve": ("tensor",)}
ENVIRONMENT = "tensorrt-llm"


def version():
    return _installed("tensorrt_llm")


def available():
    return (
        None
        if find_spec("tensorrt_llm")
        else "tensorrt_llm is not installed. Install and measure it with: make study ENGINES=tensorrt_llm"
    )


@contextlib.contextmanager
def serve(checkpoint, option, device, request):
    details, port = OPTIONS[option], processes.free_port()
    settings = _engine(details)
    file = request.log.with_suffix(".yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(settings))  # JSON is YAML
    words = [launch.tool("trtllm-serve"), checkpoint.path]
    flags = {
        "--host": "127.0.0.1",
        "--port": port,
        "--backend": "pytorch",
        "--tp_size": request.tensor_parallel,
        **launch.at_once("--max_batch_size", request),
        "--max_seq_len": launch.context(checkpoint, request),
        "--log_level": "warning",
        "--extra_llm_api_options": file.resolve(),
    }
    body = functools.partial(_body, checkpoint)
    with launch.run(
        words, flags, port, request, "completions", checkpoint.name, body, settings=settings
    ) as served:
        yield served


def _engine(details):
    """What only the file of options can say."""
    settings = {"dtype": details["dtype"], "kv_cache_config": {"enable_block_reuse": False}}
    if "draft_tokens" not in details:
        return settings
    drafting = {
        "decoding_type": "NGram",
        "max_draft_len": details["draft_tokens"],
        "max_matching_ngram_size": details["ngram_tokens"],
    }
    return settings | {"speculative_config": drafting, "disable_overlap_scheduler": True}


def _body(checkpoint, new_tokens):
    """Fields of every request: exactly `new_tokens`, no end before."""
    return {"min_tokens": new_tokens, "ignore_eos": True, "stop_token_ids": checkpoint.end_token_ids}
