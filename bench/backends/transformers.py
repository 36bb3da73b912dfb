"""Hugging Face **transformers**: the reference implementation of most open models, run by PyTorch without any server.

- Install: part of the default environment (`requirements.txt`): `transformers`, `torch`, `bitsandbytes`. The option `gptq-int4` has an
  environment of its own, made and measured by `make study ENGINES=transformers/gptq-int4`.
- Documentation: <https://huggingface.co/docs/transformers/main/en/llm_tutorial>, quantisation:
  <https://huggingface.co/docs/transformers/main/en/quantization/overview>
- Licence: Apache-2.0 (PyTorch: BSD-3-Clause; bitsandbytes: MIT; GPTQModel: Apache-2.0).
- Options: `float32` is the reference that every other engine's tokens are compared with; `bfloat16` and `float16` halve the bytes;
  `bfloat16-compiled` and `float16-compiled` decode with `torch.compile`, CUDA graphs and a cache of fixed size, made once and emptied before every
  request: another cache would be compiled for again (not tried on CUDA: no GPU was at hand).
  `float32-lookup` is speculative decoding without a second model: what followed the last two tokens when they stood in the text before is
  drafted (`prompt_lookup_num_tokens`) and checked in one pass, one prompt at a time.
  `nf4` and `bnb-int8` are bitsandbytes' 4-bit floats (blocks of 64, computed in bfloat16) and LLM.int8(), made of the weights rounded to bfloat16 at
  every load, the head left alone. `gptq-int4` is made once, by GPTQModel: 4 bits in groups of 64, calibrated on what
  the float32 model itself writes after 32 random tokens.
  `int8` is PyTorch's dynamic quantisation of every linear layer, on CPUs only: fast, and of visibly poorer text.
- Tokens become visible through the public streamer interface (`BaseStreamer.put`), whose first call carries the prompt; with
  `float32-lookup` one call carries all tokens of a pass.
- Traps: `max_length` includes the prompt, and `generate` returns the prompt with the answer: a script that counts what it returns
  counts the prompt as output, as one of the published study's did. `from_pretrained` may choose another dtype than you think.
"""

import logging
import os
import warnings
from importlib.metadata import version as _installed
from importlib.util import find_spec

from bench import files
from bench.backends.common import checkpoints

NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "bfloat16"}
OPTIONS = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16", "devices": ("cuda",)},
    "bfloat16-compiled": {"dtype": "bfloat16", "compiled": True, "devices": ("cuda",)},
    "float16-compiled": {"dtype": "float16", "compiled": True, "devices": ("cuda",)},
    "float32-lookup": {"dtype": "float32", "lookup_tokens": 10, "batches": False},
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


def version():
    return f"{_installed('transformers')}, torch {_installed('torch')}"


def available():
    return (
        None
        if find_spec("transformers") and find_spec("torch")
        else "transformers is not installed. Install it with: make .venv"
    )


def prepare(checkpoint, option, device):
    """The folder to load: for `gptq-int4` the weights that GPTQModel made of the checkpoint, else the checkpoint itself."""
    if "gptq" not in OPTIONS[option]:
        return checkpoint.path
    return files.made(
        checkpoints.folder(checkpoint.name) / f"transformers-{option}",
        lambda to: _quantise(checkpoint, OPTIONS[option], device, to),
    )


def load(checkpoint, option, device, threads):
    return Engine(checkpoint, option, device, threads)


class Engine:
    def __init__(self, checkpoint, option, device, threads):
        import torch

        torch.set_num_threads(threads)
        about = OPTIONS[option]
        self.torch, self.device, self.end = torch, device, checkpoint.end_token_ids
        self.model = _model(prepare(checkpoint, option, device), about, device)
        self.kv_value_bytes = getattr(torch, about["dtype"]).itemsize
        self.weight_bytes = _step_bytes(self.model)
        self.arithmetic = about.get("arithmetic", about["dtype"])
        self.settings = {
            "torch_threads": torch.get_num_threads(),
            "attention": self.model.config._attn_implementation,
        }
        if about.get("dynamic_int8"):  # its packed matrices do not show their bytes
            self.model, self.weight_bytes = _dynamic_int8(self.model), checkpoints.linear_bytes(checkpoint, 1)
        self.more = {"prompt_lookup_num_tokens": about["lookup_tokens"]} if "lookup_tokens" in about else {}
        self.passes = _Passes(self.model) if "lookup_tokens" in about else None
        self.fixed = _FixedCache(self.model) if about.get("compiled") else None

    def generate(self, prompts, max_new_tokens, on_token):
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
            ids, attention_mask=self.torch.ones_like(ids), do_sample=False, use_cache=True, eos_token_id=self.end, pad_token_id=self.end[0],
            min_new_tokens=max_new_tokens, max_new_tokens=max_new_tokens, streamer=_streamer(on_token) if on_token else None, **self.more,
        )  # fmt: skip
        if self.passes:
            self.speculation = self.passes.speculation(ids.shape[1], out.shape[1])
        return out[:, ids.shape[1] :].tolist()

    def reserve(self, requests, tokens):
        if self.fixed:
            self.fixed.make(requests, tokens)

    def log_probabilities(self, ids):
        given = self.torch.tensor([ids], device=self.device)
        with self.torch.inference_mode():
            each = self.model(input_ids=given, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        return each.gather(1, given[0, 1:, None])[:, 0].tolist()

    def close(self):
        del self.model


class _Passes:
    """Counts the forward passes of a model and the tokens that they were given: what drafting and checking amounted to."""

    def __init__(self, model):
        model.register_forward_pre_hook(self, with_kwargs=True)
        self.reset()

    def reset(self):
        self.count = self.given = 0

    def __call__(self, model, args, kwargs):
        self.count += 1
        self.given += kwargs["input_ids"].shape[1]

    def speculation(self, prompt_tokens, all_tokens):
        """Beside drafts the first pass is given the prompt and every later one the last token; a pass gives one token and what it accepts."""
        return {
            "drafted_tokens": self.given - prompt_tokens - (self.count - 1),
            "accepted_tokens": all_tokens - prompt_tokens - self.count,
        }


class _FixedCache:
    """The cache of a compiled decode step, which is compiled for its size and, as a CUDA graph, for its addresses."""

    def __init__(self, model):
        self.model, self.room = model, (0, 0)

    def make(self, requests, tokens):
        """A cache of exactly this size. What was compiled for another one is dropped: after a few sizes PyTorch would give up and not compile."""
        import torch
        from transformers import StaticCache

        if self.room != (requests, tokens):
            torch.compiler.reset()
            self.cache, self.room = (
                StaticCache(config=self.model.config, max_cache_len=tokens),
                (requests, tokens),
            )

    def emptied(self, requests, tokens):
        """What `generate` is told to decode with the cache, empty; larger first where it has not room for so many requests of so many tokens."""
        from transformers import CompileConfig

        if requests != self.room[0] or tokens > self.room[1]:
            self.make(requests, tokens)
        self.cache.reset()
        return {"past_key_values": self.cache, "compile_config": CompileConfig(dynamic=False)}


def _streamer(on_token):
    """transformers' streamer calls `put` with the prompt first, then with the new token of each request as a CPU tensor; checking drafts,
    with all new tokens of the one request as a row."""
    from transformers.generation.streamers import BaseStreamer

    class Streamer(BaseStreamer):
        prompt_seen = False

        def put(self, value):
            if not self.prompt_seen:
                self.prompt_seen = True
                return
            if value.dim() == 2:
                for token in value[0].tolist():
                    on_token(0, token)
                return
            for request, token in enumerate(value.tolist()):
                on_token(request, token)

        def end(self):
            pass

    return Streamer()


def _model(path, about, device):
    """The model in `path` as the option says, on `device`, ready for inference."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    if "gptq" in about:
        return _load_gptq(path, about, device)
    if "bitsandbytes" not in about:
        return AutoModelForCausalLM.from_pretrained(path, dtype=about["dtype"]).to(device).eval()
    logging.getLogger("bitsandbytes").setLevel(
        logging.ERROR
    )  # it warns of every product that its inputs are cast
    chosen = BitsAndBytesConfig(**about["bitsandbytes"])
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=about["dtype"], quantization_config=chosen, device_map={"": device}
    ).eval()
    with torch.no_grad():
        model(
            torch.zeros((1, 1), dtype=torch.long, device=device)
        )  # the first call arranges the weights for the processor
    return model


def _step_bytes(model):
    """Bytes of the tensors that one decode step reads: every weight once, with what quantisation keeps beside it. The rows of an embedding
    are only looked up; a tied head is a layer of its own and counts."""
    tensors = {tensor.data_ptr(): tensor.nbytes for module in model.modules() for tensor in _weights(module)}
    return sum(tensors.values())


def _weights(module):
    """Tensors that `module` itself holds as weights, and the scales of their blocks or rows: bitsandbytes keeps those beside the parameter,
    GPTQModel in buffers, on a CPU scales and zeros in one."""
    import torch

    if isinstance(module, torch.nn.Embedding):
        return []
    beside = getattr(getattr(module, "weight", None), "quant_state", None) or getattr(module, "state", None)
    scales = [getattr(beside, name, None) for name in ("absmax", "SCB")]
    packed = (
        ("qweight", "scales_and_zeros")
        if hasattr(module, "scales_and_zeros")
        else ("qweight", "qzeros", "scales")
    )
    found = [*module.parameters(recurse=False), *scales, *(getattr(module, name, None) for name in packed)]
    return [tensor for tensor in found if isinstance(tensor, torch.Tensor)]


def _dynamic_int8(model):
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


def _load_gptq(path, about, device):
    """The model that `_quantise` wrote, with the kernel that GPTQModel prefers on `device`."""
    import torch

    _calm_gptqmodel()
    from gptqmodel import GPTQModel

    model = GPTQModel.load(str(path), device=device, dtype=getattr(torch, about["dtype"])).model.eval()
    with torch.no_grad():
        model(
            torch.zeros((1, 1), dtype=torch.long, device=device)
        )  # the first call arranges the weights for the processor
    return model


def _quantise(checkpoint, about, device, to):
    """Write the weights of `checkpoint` as GPTQ into the folder `to`."""
    _calm_gptqmodel()
    from gptqmodel import GPTQModel, QuantizeConfig

    calibration = _own_words(checkpoint, device)
    model = GPTQModel.load(str(checkpoint.path), QuantizeConfig(**about["gptq"]))
    model.quantize(calibration, batch_size=1)
    model.save(str(to))


def _own_words(checkpoint, device, rows=32, tokens=256):
    """What the unquantised model itself writes after one random token: `rows` times `tokens` ids, always the same ones.

    Calibrating on a text of this repository would flatter the perplexity that is measured on it.
    """
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(checkpoint.path).to(device).eval()
    first = torch.randint(checkpoint.config["vocab_size"], (rows, 1)).to(device)
    ids = model.generate(
        first, attention_mask=torch.ones_like(first), do_sample=True, min_new_tokens=tokens - 1, max_new_tokens=tokens - 1,
        pad_token_id=checkpoint.end_token_ids[0],
    )  # fmt: skip
    return [{"input_ids": row, "attention_mask": [1] * tokens} for row in ids.tolist()]


def _calm_gptqmodel():
    """GPTQModel reads this at its import: with more workers than cores it crashes on two cores."""
    os.environ.setdefault("GPTQMODEL_CPU_WORKERS", str(os.cpu_count()))
