"""**OpenVINO GenAI** (Intel): models compiled for a CPU, read straight from GGUF files.

- Install: part of the default environment
  (`environments/default.txt`): `openvino-genai`; `gguf` for making its
  files.
- Documentation: <https://docs.openvino.ai/2026/openvino-workflow-generative.html>
- Licence: Apache-2.0.
- Options: the type of every matrix in the GGUF file: `F16`, `Q8_0` and `Q4_0` (8 or 4 bits and a scale per 32
  weights).
  Arithmetic is float32 (`INFERENCE_PRECISION_HINT`) and the KV cache float16 (`KV_CACHE_PRECISION`): left
  alone, the engine computes in bfloat16 where the processor has it, and its tokens then depart from the
  reference early. With `Q8_0` and `Q4_0` activations are rounded to 8 bits in every product all the same (the
  engine's default): prefill is faster than any float32 product could be.
- Tokens become visible after each `ContinuousBatchingPipeline.step()`, from the handle of each request.
  Without a callback it is `ContinuousBatchingPipeline.generate`.
- Traps: a repeated prompt is answered from the prefix cache unless `enable_prefix_caching` is false, and
  shows a false TTFT. With float32 arithmetic the weights of `F16` are unpacked to float32 when the model is
  compiled: a step reads four bytes per weight, not two.
"""

from importlib.metadata import version as _installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.backends import common
from bench.backends.common import contract, gguf_files
from bench.backends.common.checkpoints import Checkpoint
from bench.backends.common.contract import OnToken, Prompts
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    import openvino
    import openvino_genai

# Bytes of one weight as the compiled graph holds it: float32; or 8 or 4 bits with a float32 scale and a zero
# point of 8 bits per 32 weights.
OPTIONS: dict[str, Fields] = {
    "F16": {"bytes_per_weight": 4},
    "Q8_0": {"bytes_per_weight": 1 + 5 / 32, "arithmetic": "int8"},
    "Q4_0": {"bytes_per_weight": 0.5 + 5 / 32, "arithmetic": "int8"},
}
DEVICES = ("cpu",)
HINTS = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f16"}


def version() -> str:
    return _installed("openvino-genai")


def available() -> str | None:
    return common.absent("openvino_genai", "gguf")


def prepare(checkpoint: Checkpoint, option: str, device: str) -> Path:
    return gguf_files.prepare(checkpoint, option)


def load(checkpoint: Checkpoint, option: str, device: str, threads: int) -> "Engine":
    return Engine(checkpoint, prepare(checkpoint, option, device), OPTIONS[option], threads)


class Engine:
    kv_value_bytes = 2

    def __init__(self, checkpoint: Checkpoint, path: Path, details: Fields, threads: int) -> None:
        import openvino
        import openvino_genai

        self.tensor, self.genai = openvino.Tensor, openvino_genai
        self.path, self.hints = str(path), HINTS | {"INFERENCE_NUM_THREADS": threads}
        self.settings = dict(self.hints)
        self._start(prefix_caching=False)
        self.settings |= gguf_files.read_back("OpenVINO", checkpoint, path)
        self.weight_bytes = gguf_files.step_bytes(path, details["bytes_per_weight"])
        self.arithmetic = details.get("arithmetic", "float32")
        self.end = checkpoint.end_token_ids

    def _start(self, prefix_caching: bool) -> None:
        scheduler = self.genai.SchedulerConfig()
        scheduler.enable_prefix_caching = prefix_caching
        self.pipeline: Any = None  # two would hold the weights twice
        self.pipeline = self.genai.ContinuousBatchingPipeline(self.path, scheduler, "CPU", self.hints)
        self.settings["prefix_caching"] = prefix_caching

    def keep_prefix(self, ids: list[int]) -> None:
        self._start(prefix_caching=True)
        self.generate([ids], 1, None)

    def generate(self, prompts: Prompts, max_new_tokens: int, on_token: OnToken | None) -> list[list[int]]:
        config = self._config(max_new_tokens, max_new_tokens)
        if on_token:
            return self._stream(self._inputs(prompts), config, on_token)
        return self._generated(prompts, config)

    def answer(self, prompts: Prompts, max_new_tokens: int) -> list[list[int]]:
        answers = self._generated(prompts, self._config(max_new_tokens, 0))
        return [contract.until_end(ids, self.end) for ids in answers]

    def _config(self, most: int, least: int) -> "openvino_genai.GenerationConfig":
        """Greedy, `least` to `most` tokens long."""
        return self.genai.GenerationConfig(
            max_new_tokens=most,
            min_new_tokens=least,
            eos_token_id=self.end[0],
            stop_token_ids=set(self.end),
            do_sample=False,
            apply_chat_template=False,
        )

    def _inputs(self, prompts: Prompts) -> list["openvino.Tensor"]:
        import numpy

        return [self.tensor(numpy.array([ids])) for ids in prompts]

    def _generated(self, prompts: Prompts, config: "openvino_genai.GenerationConfig") -> list[list[int]]:
        answers = self.pipeline.generate(self._inputs(prompts), [config] * len(prompts))
        return [list(answer.m_generation_ids[0]) for answer in answers]

    def _stream(
        self,
        inputs: list["openvino.Tensor"],
        config: "openvino_genai.GenerationConfig",
        on_token: OnToken,
    ) -> list[list[int]]:
        """The engine's own steps, handing on what each of them brought."""
        handles = [self.pipeline.add_request(request, ids, config) for request, ids in enumerate(inputs)]
        answers: list[list[int]] = [[] for _ in inputs]
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
            for request, handle in enumerate(handles):
                if handle.can_read():
                    for token in handle.read()[0].generated_ids:
                        on_token(request, token)
                        answers[request].append(token)
        return answers

    def close(self) -> None:
        self.pipeline = None  # its destructor stops the threads
