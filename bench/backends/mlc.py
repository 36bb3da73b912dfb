"""**MLC LLM**: models compiled for the device at hand by TVM, from GPUs to phones; its engine has had a
server since 2024.

- Install: `make study ENGINES=mlc` on a machine with an NVIDIA GPU makes an environment of its own,
  `.venvs/mlc`, from `environments/mlc.txt`. By hand: `pip install --pre -U -f https://mlc.ai/wheels
  mlc-llm-nightly-cu130 mlc-ai-nightly-cu130` (`cu128` for CUDA 12.8), then `mlc_llm serve …`.
- Documentation: <https://llm.mlc.ai/docs/deploy/rest.html>, <https://llm.mlc.ai/docs/install/mlc_llm.html>
- Licence: Apache-2.0.
- Options: MLC's names. `q4f16_1` has 4-bit weights in groups of 32 and computes in float16; `q0f16` is
  float16 throughout; `q3f16_1` has 3-bit weights; `e4m3_e4m3_f16` has 8-bit floats as weights and activations
  (FP8, compute capability 8.9 and above). `mlc_llm convert_weight` and `mlc_llm gen_config` make its own
  format once, under models/.
- Tokens become visible as events of `/v1/completions`, which takes token ids. Several may share one, and only
  usage says how many there are.
- Several devices: `tensor_parallel` shares the model among GPUs (`tensor_parallel_shards`). Untried on
  several.
- Traps: with `/v1/chat/completions` and the template that `mlc_llm` picks for Llama-2, a system prompt stands
  before every prompt: the template is `LM` here, which adds nothing, and completions have none. `ignore_eos`
  is heeded only by a server started with `--enable-debug`. The prefix cache is on by default
  (`--prefix-cache-mode disable` here). The public index holds empty packages of the same names: without `-f`
  pip installs nothing of use. The first start compiles the model for the device, which takes a minute or
  more. Its speculative decoding needs a second model: no n-grams.
"""

import contextlib
import functools
import subprocess
import sys
from importlib.metadata import distributions
from importlib.util import find_spec

from bench import files, processes
from bench.backends.common import checkpoints, launch

OPTIONS = {"q4f16_1": {}, "q0f16": {}, "q3f16_1": {}, "e4m3_e4m3_f16": {"on_request": ("cuda",)}}
DEVICES = ("cuda",)
PARALLEL = {"serve": ("tensor",)}
ENVIRONMENT = "mlc"
TOOL = [sys.executable, "-m", "mlc_llm"]


@functools.cache
def version():
    """The wheels are called mlc-llm-nightly-cu130 and the like."""
    installed = (f"{found.name.replace('_', '-')} {found.version}" for found in distributions())
    return next((name for name in installed if name.startswith("mlc-llm")), "of no known version")


def available():
    return (
        None
        if find_spec("mlc_llm")
        else "mlc_llm is not installed. Install and measure it with: make study ENGINES=mlc"
    )


def prepare(checkpoint, option, device):
    """MLC's own format of `checkpoint`, quantised as `option` says; made once."""

    def make(to):
        for command in (
            ["convert_weight", checkpoint.path],
            ["gen_config", checkpoint.path, "--conv-template", "LM"],
        ):
            _do([*TOOL, *map(str, command), "--quantization", option, "--output", str(to)])

    return files.made(checkpoints.conversion(checkpoint, "mlc", version(), option), make)


def _do(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"mlc_llm {command[3]} failed:\n{(done.stdout + done.stderr)[-2000:]}")


@contextlib.contextmanager
def serve(checkpoint, option, device, request):
    path, port = prepare(checkpoint, option, device), processes.free_port()
    tokens = launch.context(checkpoint, request)
    limits = {"max_num_sequence": request.requests, "max_total_seq_length": request.requests * tokens}
    room = {
        **(limits if request.requests else {}),
        "context_window_size": tokens,
        "tensor_parallel_shards": request.tensor_parallel,
    }
    flags = {
        "--device": device,
        "--mode": "server",
        "--host": "127.0.0.1",
        "--port": port,
        "--prefix-cache-mode": "disable",
        "--speculative-mode": "disable",
        "--enable-debug": True,
        "--overrides": ";".join(f"{name}={value}" for name, value in room.items()),
    }
    words, name = (
        [*TOOL, "serve", path],
        str(path),
    )  # served under the path of its folder, as the command names it
    with launch.run(
        words, flags, port, request, "completions", name, lambda new_tokens: _body(), "/v1/models"
    ) as served:
        yield served


def _body():
    """Fields of every request: never end early."""
    return {"debug_config": {"ignore_eos": True}}
