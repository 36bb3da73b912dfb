"""**MLC LLM**: models compiled for the device at hand by TVM, from GPUs to phones; its engine has had a
server since 2024.

- Install: `make study ENGINES=mlc` on a machine with an NVIDIA GPU makes an environment of its own,
  `.venvs/mlc`, from `environments/mlc.txt`. By hand: `pip install --pre -U -f https://mlc.ai/wheels
  mlc-llm-nightly-cu130 mlc-ai-nightly-cu130` (`cu128` for CUDA 12.8), then `mlc_llm serve …`.
- Documentation: <https://llm.mlc.ai/docs/deploy/rest.html>, <https://llm.mlc.ai/docs/install/mlc_llm.html>
- Licence: Apache-2.0.
- Options: MLC's names. `q4f16_1` has 4-bit weights in groups of 32 and computes in float16; `q0f16` is
  float16 throughout; `q3f16_1` has 3-bit weights. `mlc_llm convert_weight` and `mlc_llm gen_config` make its
  own format once, under models/. `e4m3_e4m3_f16` (8-bit floats as weights and activations) is no option here:
  converting leaves the scales of the activations uninitialised until `mlc_llm calibrate` has run over texts,
  and without them its answers are noise.
- Tokens become visible as events of `/v1/completions`, which takes token ids. Several may share one, and only
  usage says how many there are.
- Several devices: `tensor_parallel` shares the model among GPUs (`tensor_parallel_shards`). Untried on
  several.
- Traps: it looks for the rotary base at the top of config.json, where transformers 5 no longer writes it, and
  takes 10,000 where it finds none; and it writes an index beside weights that have none. So it converts a
  copy of the checkpoint that has both, and what its `mlc-chat-config.json` says is read back. The first start
  compiles with TVM, for which it may want the CUDA toolkit (`nvcc`). With `/v1/chat/completions` and the
  template that `mlc_llm` picks for Llama-2, a system prompt stands before every prompt: the template is `LM`
  here, which adds nothing, and completions have none. `ignore_eos` is heeded only by a server started with
  `--enable-debug`. The prefix cache is on by default (`--prefix-cache-mode disable` here). The public index
  holds empty packages of the same names: without `-f` pip installs nothing of use. That compiling takes a
  minute or more. Its speculative decoding needs a second model: no n-grams.
"""

import functools
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path

from bench.backends import common
from bench.backends.common import checkpoints, copies, effective, servers
from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core import files
from llm_measured.core.definitions import Fields

OPTIONS: dict[str, Fields] = {"q4f16_1": {}, "q0f16": {}, "q3f16_1": {}}
DEVICES = ("cuda",)
PARALLEL = {"serve": ("tensor",)}
ENVIRONMENT = "mlc"
TOOL = [sys.executable, "-m", "mlc_llm"]


@functools.cache
def version() -> str:
    """The wheels are called mlc-llm-nightly-cu130 and the like."""
    installed = (f"{found.name.replace('_', '-')} {found.version}" for found in distributions())
    return next((name for name in installed if name.startswith("mlc-llm")), "of no known version")


def available() -> str | None:
    return common.absent("mlc_llm", study="mlc")


def prepare(checkpoint: Checkpoint, option: str, device: str) -> Path:
    """Make MLC's own format of `checkpoint`, quantised as `option` says; once."""

    def make(to: Path) -> None:
        source = copies.for_transformers_4(checkpoint)
        for command in (["convert_weight", source], ["gen_config", source, "--conv-template", "LM"]):
            _do([*TOOL, *map(str, command), "--quantization", option, "--output", str(to)])

    return files.made(checkpoints.conversion(checkpoint, "mlc", version(), option), make)


def _do(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"mlc_llm {command[3]} failed:\n{(done.stdout + done.stderr)[-2000:]}")


SERVER = servers.Declaration(
    "MLC",
    OPTIONS,
    [*TOOL, "serve", "{path}"],
    {
        "--device": "{device}",
        "--mode": "server",
        "--host": "127.0.0.1",
        "--port": "{port}",
        "--prefix-cache-mode": "disable",
        "--speculative-mode": "disable",
        "--enable-debug": True,
        "--overrides": {
            "max_num_sequence": "{requests}",
            "max_total_seq_length": "{total_tokens}",
            "context_window_size": "{context}",
            "tensor_parallel_shards": "{tensor_parallel}",
        },
    },
    body={"debug_config": {"ignore_eos": True}},
    model="{path}",  # served under the path of its folder, as the command names it
    health="/v1/models",
    prepare=prepare,
)


def serve(
    checkpoint: Checkpoint, option: str, device: str, request: servers.ServerSpec
) -> servers.ServerCommand:
    command = SERVER.serve(checkpoint, option, device, request)
    return replace(command, settings=_reported(checkpoint, Path(command.model)))


def _reported(checkpoint: Checkpoint, path: Path) -> Fields:
    """Read back what MLC's own format says of the model that it was made of."""
    file = path / "mlc-chat-config.json"
    config = json.loads(file.read_text()) if file.exists() else {}
    model, ends = config.get("model_config", {}), config.get("eos_token_id")
    reported = {
        "rope_theta": model.get("position_embedding_base"),
        "vocab_size": model.get("vocab_size"),
        "end_token_ids": ends if isinstance(ends, list | None) else [ends],
    }
    return effective.checked("MLC", checkpoint, reported)
