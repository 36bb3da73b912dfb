"""Hugging Face **transformers**: the reference implementation of most open models, run by PyTorch without any
server.

- Install: part of the default environment
  (`environments/default.txt`): `transformers`, `torch`, `bitsandbytes`. The
  option `gptq-int4` has an environment of its own, made by `make study ENGINES=transformers/gptq-int4` from
  `environments/gptq.txt`, with an NVIDIA GPU from `environments/gptq-cuda.txt`.
- Documentation: <https://huggingface.co/docs/transformers/main/en/llm_tutorial>, quantisation:
  <https://huggingface.co/docs/transformers/main/en/quantization/overview>
- Licence: Apache-2.0 (PyTorch: BSD-3-Clause; bitsandbytes: MIT; GPTQModel: Apache-2.0).
- Options: `float32` is the reference that every other engine's tokens are compared with; `bfloat16` and
  `float16` halve the bytes; `bfloat16-compiled` and `float16-compiled` decode with `torch.compile`, CUDA
  graphs and a cache of fixed size, made once and emptied before every request: another cache would be
  compiled for again (not tried on CUDA: no GPU was at hand). `float32-lookup` is speculative decoding without
  a second model: what followed the last two tokens when they stood in the text before is drafted
  (`prompt_lookup_num_tokens`) and checked in one pass, one prompt at a time; `float32-draft` has a smaller
  model draft a few (`assistant_model`, `bench/backends/common/drafts.py`), and its MBU counts the larger
  model's weights alone. `nf4` and `bnb-int8` are
  bitsandbytes' 4-bit floats (blocks of 64, computed in bfloat16) and LLM.int8(), made of the weights rounded
  to bfloat16 at every load, the head left alone. `gptq-int4` is made once, by GPTQModel: 4 bits in groups of
  64, calibrated on what the float32 model itself writes after 32 random tokens. `int8` is PyTorch's dynamic
  quantisation of every linear layer, on CPUs only: fast, and of visibly poorer text.
- Tokens become visible through the public streamer interface (`BaseStreamer.put`), whose first call carries
  the prompt; with `float32-lookup` one call carries all tokens of a pass.
- Traps: `max_length` includes the prompt, and `generate` returns the prompt with the answer: a script that
  counts what it returns counts the prompt as output, as one of the published study's did. `from_pretrained`
  may choose another dtype than you think.
"""

from collections.abc import Sequence
from importlib.metadata import version as _installed
from pathlib import Path
from typing import TYPE_CHECKING

from bench.backends import common
from bench.backends.common import checkpoints, contract, drafts, effective, torch_models
from bench.backends.common.checkpoints import Checkpoint
from bench.backends.common.contract import OnToken, Prompts
from llm_measured.core import files
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    import torch
    from transformers.generation.streamers import BaseStreamer

NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "bfloat16"}
OPTIONS: dict[str, Fields] = {  # the first of a device is its default
    "float16": {"dtype": "float16", "devices": ("cuda",)},
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "bfloat16-compiled": {"dtype": "bfloat16", "compiled": True, "devices": ("cuda",)},
    "float16-compiled": {"dtype": "float16", "compiled": True, "devices": ("cuda",)},
    "float32-lookup": {"dtype": "float32", "lookup": True, "draft_tokens": 10, "batches": False},
    "float32-draft": {
        "dtype": "float32",
        "draft_model": True,
        "draft_tokens": drafts.TOKENS,
        "batches": False,
        "on_request": ("cpu", "cuda"),
    },
    "bnb-int8": {
        "dtype": "bfloat16",
        "arithmetic": "int8",
        "bitsandbytes": {"load_in_8bit": True},
        "on_request": ("cpu",),
    },
    "nf4": {"dtype": "bfloat16", "bitsandbytes": NF4, "on_request": ("cpu",)},
    "gptq-int4": {"dtype": "bfloat16", "gptq": {"bits": 4, "group_size": 64}, "environment": "gptq"},
    "int8": {"dtype": "float32", "arithmetic": "int8", "dynamic_int8": True, "devices": ("cpu",)},
}
DEVICES = ("cuda", "cpu")


def version() -> str:
    return f"{_installed('transformers')}, torch {_installed('torch')}"


def available() -> str | None:
    return common.absent("transformers", "torch")


def prepare(checkpoint: Checkpoint, option: str, device: str) -> Path:
    """The folder to load: for `gptq-int4` the weights that GPTQModel made of the checkpoint, else the
    checkpoint itself."""
    if "gptq" not in OPTIONS[option]:
        return checkpoint.path
    path = checkpoints.conversion(checkpoint, "gptqmodel", _installed("gptqmodel"), option)
    return files.made(path, lambda to: torch_models.quantise(checkpoint, OPTIONS[option]["gptq"], device, to))


def load(checkpoint: Checkpoint, option: str, device: str, threads: int) -> "Engine":
    return Engine(checkpoint, option, device, threads)


class Engine:
    def __init__(self, checkpoint: Checkpoint, option: str, device: str, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        details = OPTIONS[option]
        self.torch, self.device, self.end = torch, device, checkpoint.end_token_ids
        self.model = torch_models.load(prepare(checkpoint, option, device), details, device)
        self.kv_value_bytes = getattr(torch, details["dtype"]).itemsize
        self.weight_bytes: float = torch_models.step_bytes(self.model)
        self.arithmetic = details.get("arithmetic", details["dtype"])
        self.settings = {
            "torch_threads": torch.get_num_threads(),
            "attention": self.model.config._attn_implementation,
        }
        reported = effective.of_config(self.model.config.to_dict()) | {"dtype": self.model.dtype}
        stored = None if "gptq" in details else details["dtype"]
        self.settings |= effective.checked("transformers", checkpoint, reported, stored)
        if details.get("dynamic_int8"):  # its packed matrices do not show their bytes
            self.model = torch_models.dynamic_int8(self.model)
            self.weight_bytes = checkpoints.linear_bytes(checkpoint, 1)
        self.more, self.passes = {}, None
        if details.get("lookup"):
            self.more["prompt_lookup_num_tokens"] = details["draft_tokens"]
        if details.get("draft_model"):
            draft = drafts.model_of(checkpoint)
            self.more["assistant_model"] = _drafting(draft, details, device)
            self.settings |= drafts.settings(draft)
        if "draft_tokens" in details:
            self.passes = _Passes(self.model)
        self.fixed = _FixedCache(self.model) if details.get("compiled") else None

    def generate(self, prompts: Prompts, max_new_tokens: int, on_token: OnToken | None) -> list[list[int]]:
        if self.passes:
            if len(prompts) > 1:
                raise ValueError(
                    "transformers checks drafted tokens for one prompt at a time; use float32 for batches."
                )
            self.passes.reset()
        if self.fixed:
            self.more = self.fixed.emptied(len(prompts), max(map(len, prompts)) + max_new_tokens)
        ids = self.torch.tensor(prompts, device=self.device)
        out = self.model.generate(
            ids,
            attention_mask=self.torch.ones_like(ids),
            do_sample=False,
            use_cache=True,
            eos_token_id=self.end,
            pad_token_id=self.end[0],
            min_new_tokens=max_new_tokens,
            max_new_tokens=max_new_tokens,
            streamer=_streamer(on_token) if on_token else None,
            **self.more,
        )
        if self.passes:
            self.speculation = self.passes.speculation(ids.shape[1], out.shape[1])
        return out[:, ids.shape[1] :].tolist()

    def answer(self, prompts: Prompts, max_new_tokens: int) -> list[list[int]]:
        longest = max(map(len, prompts))
        if self.fixed:
            self.more = self.fixed.emptied(len(prompts), longest + max_new_tokens)
        pads = [[0] * (longest - len(ids)) for ids in prompts]  # before the prompt, and masked
        ids = self.torch.tensor([[*pad, *own] for pad, own in zip(pads, prompts)], device=self.device)
        mask = self.torch.tensor([[*pad, *[1] * len(own)] for pad, own in zip(pads, prompts)])
        out = self.model.generate(
            ids,
            attention_mask=mask.to(self.device),
            do_sample=False,
            use_cache=True,
            eos_token_id=self.end,
            pad_token_id=self.end[0],
            max_new_tokens=max_new_tokens,
            **self.more,
        )
        return [contract.until_end(answer, self.end) for answer in out[:, longest:].tolist()]

    def reserve(self, requests: int, tokens: int) -> None:
        if self.fixed:
            self.fixed.make(requests, tokens)

    def log_probabilities(self, ids: Sequence[int]) -> list[float]:
        inputs = self.torch.tensor([ids], device=self.device)
        with self.torch.inference_mode():
            each = self.model(input_ids=inputs, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        return each.gather(1, inputs[0, 1:, None])[:, 0].tolist()

    def close(self) -> None:
        del self.model


def _drafting(draft: Checkpoint, details: Fields, device: str) -> "torch.nn.Module":
    """The `draft` model, which always drafts as many tokens; by itself transformers would draft up to twenty,
    and stop where it is unsure."""
    model = torch_models.load(draft.path, details, device)
    chosen = model.generation_config
    chosen.num_assistant_tokens, chosen.num_assistant_tokens_schedule = details["draft_tokens"], "constant"
    chosen.assistant_confidence_threshold = 0.0
    return model


class _Passes:
    """Counts the forward passes of a model and the tokens that entered them: what drafting and checking
    amounted to."""

    def __init__(self, model: "torch.nn.Module") -> None:
        model.register_forward_pre_hook(self, with_kwargs=True)
        self.reset()

    def reset(self) -> None:
        self.count = self.entered = 0

    def __call__(self, model: "torch.nn.Module", args: tuple, kwargs: Fields) -> None:
        self.count += 1
        self.entered += kwargs["input_ids"].shape[1]

    def speculation(self, prompt_tokens: int, all_tokens: int) -> dict[str, int]:
        """Beside drafts the prompt enters the first pass and the last token every later one.

        A pass gives one token and what it accepts.
        """
        return {
            "drafted_tokens": self.entered - prompt_tokens - (self.count - 1),
            "accepted_tokens": all_tokens - prompt_tokens - self.count,
        }


class _FixedCache:
    """The cache of a compiled decode step, which is compiled for its size and, as a CUDA graph, for its
    addresses."""

    def __init__(self, model: "torch.nn.Module") -> None:
        self.model, self.room = model, (0, 0)

    def make(self, requests: int, tokens: int) -> None:
        """A cache of exactly this size. What was compiled for another one is dropped: after a few sizes
        PyTorch would give up and not compile."""
        import torch
        from transformers import StaticCache

        if self.room != (requests, tokens):
            torch.compiler.reset()
            self.cache = StaticCache(config=self.model.config, max_cache_len=tokens)
            self.room = requests, tokens

    def emptied(self, requests: int, tokens: int) -> Fields:
        """The arguments with which `generate` decodes in the emptied cache, made larger first where it lacks
        room."""
        from transformers import CompileConfig

        if requests != self.room[0] or tokens > self.room[1]:
            self.make(requests, tokens)
        self.cache.reset()
        return {"past_key_values": self.cache, "compile_config": CompileConfig(dynamic=False)}


def _streamer(on_token: OnToken) -> "BaseStreamer":
    """transformers' streamer calls `put` with the prompt first, then with the new token of each request as a
    CPU tensor; checking drafts, with all new tokens of the one request as a row."""
    from transformers.generation.streamers import BaseStreamer

    class Streamer(BaseStreamer):
        prompt_seen = False

        def put(self, value: "torch.Tensor") -> None:
            if not self.prompt_seen:
                self.prompt_seen = True
                return
            if value.dim() == 2:
                for token in value[0].tolist():
                    on_token(0, token)
                return
            for request, token in enumerate(value.tolist()):
                on_token(request, token)

        def end(self) -> None:
            pass

    return Streamer()
