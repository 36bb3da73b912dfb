"""**ONNX Runtime GenAI** (Microsoft): models as ONNX graphs with fused attention, run by ONNX Runtime with a
KV cache that lives in place.

- Install: part of the default environment
  (`environments/default.txt`): `onnxruntime-genai`; building a model also
  takes `onnx` and `onnx-ir`. With an NVIDIA GPU `make study ENGINES=onnxruntime` makes an environment of its
  own, `.venvs/onnxruntime-cuda`, from `environments/onnxruntime-cuda.txt`: `onnxruntime-genai-cuda` with
  `onnxruntime-gpu` and the libraries of CUDA and cuDNN 9 that it wants, which its documentation has one
  install by hand. Not tried on CUDA: no GPU was at hand.
- Documentation: <https://onnxruntime.ai/docs/genai/>
- Licence: MIT.
- Options: what the engine's model builder makes of a precision of that name. On a CPU `float32`, `int8` and
  `int4`: weights rounded in blocks of 32 with a float32 scale each, activations turned to int8 inside every
  product (`accuracy_level` 4, the builder's default there), the KV cache float32 in all three. On CUDA
  `float16`, `bfloat16`, and `int4-float16`: weights in blocks of 32 with a float16 scale each, products,
  activations and KV cache float16.
- Tokens become visible one by one: the caller's own loop calls `generate_next_token`. There is no faster loop
  inside the engine.
- Traps: `max_length` and `min_length` include the prompt. End-of-sequence is suppressed by `min_length`. The
  thread count of the model's `genai_config.json` wins over `OMP_NUM_THREADS`, which this engine does not
  read. Its threads spin while they wait. `python -m onnxruntime_genai.models.builder --help` fails on a lone
  per cent sign in 0.18; the documentation lists the options. Packages for CPUs and for CUDA install the same
  modules: one environment can hold one of them. Which processor a model runs on stands in its
  `genai_config.json`. CUDA graphs are off there, the builder's default. The builder holds every weight in
  float32 before it rounds: `shape:llama-2-7b` in int4, 4 GB on disk, took about 40 GB of memory to build
  (24 GB and a swap file) and 6 minutes.
"""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from importlib.metadata import version as _installed
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.backends import common
from bench.backends.common import checkpoints, contract, effective
from bench.backends.common.checkpoints import Checkpoint
from bench.backends.common.contract import OnToken, Prompts
from llm_measured.core import files
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    import onnxruntime_genai

OPTIONS: dict[str, Fields] = {
    "float32": {"precision": "fp32", "arithmetic": "float32", "devices": ("cpu",)},
    "int8": {"precision": "int8", "arithmetic": "int8", "devices": ("cpu",)},
    "int4": {"precision": "int4", "arithmetic": "int8", "devices": ("cpu",)},
    "float16": {"precision": "fp16", "arithmetic": "float16", "devices": ("cuda",)},
    "bfloat16": {"precision": "bf16", "arithmetic": "bfloat16", "devices": ("cuda",)},
    "int4-float16": {"precision": "int4", "arithmetic": "float16", "devices": ("cuda",)},
}
DEVICES = ("cuda", "cpu")
# The builder keeps a CPU model's cache in float32, whatever the weights are.
KV_VALUE_BYTES = {"cpu": 4, "cuda": 2}


def version() -> str:
    return f"{_genai()}, onnxruntime {_either('onnxruntime', 'onnxruntime-gpu')}"


def _genai() -> str:
    return _either("onnxruntime-genai", "onnxruntime-genai-cuda")


def _either(*names: str) -> str:
    """Version of the one of these packages that is installed."""
    return next(_installed(name) for name in names if list(distributions(name=name)))


def available() -> str | None:
    return common.absent("onnxruntime_genai", "onnx", "onnx_ir")


def prepare(checkpoint: Checkpoint, option: str, device: str) -> Path:
    target = checkpoints.conversion(checkpoint, "onnxruntime-genai", _genai(), option)
    return files.made(target, lambda to: _build(checkpoint.path, OPTIONS[option]["precision"], device, to))


def load(checkpoint: Checkpoint, option: str, device: str, threads: int) -> "Engine":
    return Engine(
        checkpoint, prepare(checkpoint, option, device), OPTIONS[option]["arithmetic"], device, threads
    )


class Engine:
    answers_together = False  # it takes a batch of prompts of one length only

    def __init__(
        self, checkpoint: Checkpoint, path: Path, arithmetic: str, device: str, threads: int
    ) -> None:
        if device == "cuda":
            # CUDA and cuDNN lie beside PyTorch where there is no toolkit: ONNX Runtime does not look there.
            import onnxruntime

            onnxruntime.preload_dlls()
        import onnxruntime_genai

        self.genai, self.arithmetic = onnxruntime_genai, arithmetic
        self.end = checkpoint.end_token_ids
        self.kv_value_bytes = KV_VALUE_BYTES[device]
        self.settings = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
        config = onnxruntime_genai.Config(str(path))
        options = dict(self.settings)
        model = {"eos_token_id": checkpoint.end_token_ids, "decoder": {"session_options": options}}
        config.overlay(json.dumps({"model": model}))
        self.model = onnxruntime_genai.Model(config)
        built = json.loads((path / "genai_config.json").read_text())["model"]
        reported = effective.of_config(built)  # its rotary base is in the graph only, as cosines
        self.settings |= effective.checked("ONNX Runtime", checkpoint, reported)
        self.weight_bytes = _step_bytes(path / "model.onnx")
        self.kept: tuple[list[int], "onnxruntime_genai.Generator"] | None = None  # a prefix, what holds it

    def generate(self, prompts: Prompts, max_new_tokens: int, on_token: OnToken | None) -> list[list[int]]:
        size = len(prompts[0])
        if any(len(p) != size for p in prompts):
            raise ValueError(
                "onnxruntime takes a batch of prompts of one length only; pad them or send them one by one."
            )
        if self.kept:
            prefix, generator = self.kept
            prompts = [prompts[0][len(prefix) :]]
        else:
            generator = self._generator(len(prompts), size + max_new_tokens)
        generator.append_tokens(np.array(prompts, dtype=np.int32))
        for _ in range(max_new_tokens):
            generator.generate_next_token()
            if on_token is not None:
                for request, token in enumerate(generator.get_next_tokens().tolist()):
                    on_token(request, token)
        answers = [generator.get_sequence(i)[size:].tolist() for i in range(len(prompts))]
        if self.kept:
            generator.rewind_to(len(prefix))  # after the last token: its time is nobody's
        return answers

    def keep_prefix(self, ids: list[int]) -> None:
        generator = self._generator(1, len(ids) + contract.AFTER_PREFIX)
        generator.append_tokens(np.array([ids], dtype=np.int32))
        self.kept = ids, generator

    def answer(self, prompts: Prompts, max_new_tokens: int) -> list[list[int]]:
        return [self._answer(ids, max_new_tokens) for ids in prompts]

    def _answer(self, ids: Sequence[int], max_new_tokens: int) -> list[int]:
        generator = self._generator(1, len(ids) + max_new_tokens, least=0)
        generator.append_tokens(np.array([ids], dtype=np.int32))
        while not generator.is_done():
            generator.generate_next_token()
        return contract.until_end(generator.get_sequence(0)[len(ids) :].tolist(), self.end)

    def log_probabilities(self, ids: Sequence[int]) -> list[float]:
        generator = self._generator(1, len(ids) + 1)
        generator.append_tokens(np.array([ids], dtype=np.int32))
        logits = generator.get_output("logits")[0, :-1].astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        return (logits[np.arange(len(ids) - 1), ids[1:]] - np.log(np.exp(logits).sum(axis=-1))).tolist()

    def _generator(
        self, batch_size: int, length: int, least: int | None = None
    ) -> "onnxruntime_genai.Generator":
        """A greedy generator for exactly `length` tokens, the prompt included, or for `least` to `length`:
        `min_length` suppresses the end-of-sequence ids."""
        params = self.genai.GeneratorParams(self.model)
        least = length if least is None else least
        params.set_search_options(do_sample=False, batch_size=batch_size, min_length=least, max_length=length)
        return self.genai.Generator(self.model, params)

    def close(self) -> None:
        self.kept = None
        del self.model


def _build(source: Path, precision: str, device: str, to: Path) -> None:
    """Run the engine's model builder, which writes the graph, its weights and genai_config.json into the
    folder `to`."""
    flags = {"-i": source, "-o": to, "-p": precision, "-e": device, "-c": to.parent / "cache"}
    words = [str(word) for flag in flags.items() for word in flag]
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"onnxruntime's model builder could not convert {source.name}:\n{done.stderr[-4000:]}"
        )


def _step_bytes(graph: Path) -> int:
    """Bytes of the tensors that a decode step reads as a whole: those that some node other than a look-up
    takes as input."""
    import onnx

    model = onnx.load(graph, load_external_data=False).graph
    looked_up = {"Gather", "GatherBlockQuantized"}
    read = {name for node in model.node if node.op_type not in looked_up for name in node.input}
    tensors = [each for each in model.initializer if each.name in read - {"cos_cache", "sin_cache"}]
    kinds = [onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type) for tensor in tensors]
    return sum(math.prod(tensor.dims) * kind.itemsize for tensor, kind in zip(tensors, kinds))
