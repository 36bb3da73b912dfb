"""**CTranslate2**: a C++ inference engine for Transformer models with its own kernels and weight formats.

- Install: part of the default environment
  (`environments/default.txt`): `ctranslate2`. With an NVIDIA GPU `make study
  ENGINES=ctranslate2` makes an environment of its own, `.venvs/ctranslate2-cuda`, from
  `environments/ctranslate2-cuda.txt`. Not tried on CUDA: no GPU was at hand.
- Documentation: <https://opennmt.net/CTranslate2/>
- Licence: MIT.
- Options: `float32` and `int8` (8-bit weights, float32 activations: `int8_float32`) on a CPU; `float16`,
  `bfloat16`, `int8_float16` (8-bit weights, float16 activations) and `float32` on CUDA. On a CPU,
  `bfloat16`, `float16` and `int16` are accepted but computed in another type, so they are not offered there.
- Tokens become visible through the `callback` of `Generator.generate_batch`, one call per token and sequence,
  batched or not.
- Traps: `max_length` counts new tokens only if the prompt is left out of the result, as here and in the
  published study's script. The wheel is built for CUDA 12
  (<https://github.com/OpenNMT/CTranslate2/issues/1933>), PyTorch's brings CUDA 13: cuBLAS 12 stands beside it
  there; without it, cuBLAS 13 is lent its name, and the sidecar says so (`cublas`). It has no code for
  GPUs newer than compute capability 8.6: the driver compiles its kernels at the first start.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import version as _installed
from pathlib import Path
from typing import TYPE_CHECKING

from bench.backends import common
from bench.backends.common import checkpoints, contract, cuda, effective
from bench.backends.common.checkpoints import Checkpoint
from bench.backends.common.contract import OnToken, Prompts
from llm_measured.core import files
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    import ctranslate2


def _option(
    quantization: str, arithmetic: str, weight_bytes: float, value_bytes: int, *devices: str
) -> Fields:
    """What the adapter knows of an option: CTranslate2's name of it, and bytes per weight and per number of
    the KV cache."""
    known = {"quantization": quantization, "arithmetic": arithmetic}
    sizes = {"weight_bytes": weight_bytes, "value_bytes": value_bytes}
    return known | sizes | ({"devices": devices} if devices else {})


OPTIONS: dict[str, Fields] = {  # the first of a device is its default
    "float16": _option("float16", "float16", 2, 2, "cuda"),
    "float32": _option("float32", "float32", 4, 4),
    "int8": _option("int8_float32", "int8", 1, 4, "cpu"),
    "bfloat16": _option("bfloat16", "bfloat16", 2, 2, "cuda"),
    "int8_float16": _option("int8_float16", "int8", 1, 2, "cuda"),
}
DEVICES = ("cuda", "cpu")


def version() -> str:
    return _installed("ctranslate2")


def available() -> str | None:
    return common.absent("ctranslate2")


def prepare(checkpoint: Checkpoint, option: str, device: str) -> Path:
    """The converted model, made by CTranslate2's own converter."""

    def convert(to: Path) -> None:
        from ctranslate2.converters import TransformersConverter

        kind = OPTIONS[option]["quantization"]
        TransformersConverter(str(checkpoint.path)).convert(str(to), quantization=kind)

    return files.made(checkpoints.conversion(checkpoint, "ctranslate2", version(), option), convert)


def load(checkpoint: Checkpoint, option: str, device: str, threads: int) -> "Engine":
    return Engine(checkpoint, option, device, threads)


class Engine:
    def __init__(self, checkpoint: Checkpoint, option: str, device: str, threads: int) -> None:
        import ctranslate2

        # Whoever opens cuBLAS looks in the folder of the wheel's own libraries.
        libraries = Path(ctranslate2.__file__).parent.with_name("ctranslate2.libs")
        cublas = {"cublas": cuda.cublas_12(libraries)} if device == "cuda" else {}
        details = OPTIONS[option]
        folder = prepare(checkpoint, option, device)
        self.generator = ctranslate2.Generator(
            str(folder),
            device=device,
            compute_type=details["quantization"],
            intra_threads=threads,
            inter_threads=1,
        )
        self.tokenizer, self.end = checkpoint.tokenizer, checkpoint.end_token_ids
        self.weight_bytes = checkpoints.linear_bytes(checkpoint, details["weight_bytes"])
        self.kv_value_bytes, self.arithmetic = details["value_bytes"], details["arithmetic"]
        computes = self.generator.compute_type
        self.settings = {"intra_threads": threads, "inter_threads": 1, "compute_type": computes, **cublas}
        reported = {"dtype": computes}
        self.settings |= effective.checked("CTranslate2", checkpoint, reported, details["quantization"])

    def generate(self, prompts: Prompts, max_new_tokens: int, on_token: OnToken | None) -> list[list[int]]:
        results = self.generator.generate_batch(
            [[self.tokenizer.id_to_token(i) for i in ids] for ids in prompts],
            sampling_topk=1,
            end_token=self.end,
            min_length=max_new_tokens,
            max_length=max_new_tokens,
            include_prompt_in_result=False,
            callback=on_token and _callback(on_token),
        )
        return [result.sequences_ids[0] for result in results]

    def answer(self, prompts: Prompts, max_new_tokens: int) -> list[list[int]]:
        results = self.generator.generate_batch(
            [[self.tokenizer.id_to_token(i) for i in ids] for ids in prompts],
            sampling_topk=1,
            end_token=self.end,
            max_length=max_new_tokens,
            include_prompt_in_result=False,
        )
        return [contract.until_end(result.sequences_ids[0], self.end) for result in results]

    def log_probabilities(self, ids: Sequence[int]) -> list[float]:
        words = [self.tokenizer.id_to_token(i) for i in ids]
        return self.generator.score_batch([words], max_input_length=0)[0].log_probs

    def close(self) -> None:
        self.generator.unload_model()


def _callback(on_token: OnToken) -> "Callable[[ctranslate2.GenerationStepResult], bool]":
    def callback(step: "ctranslate2.GenerationStepResult") -> bool:
        on_token(step.batch_id, step.token_id)
        return False  # True would stop

    return callback
