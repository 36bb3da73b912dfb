"""Hugging Face **transformers**: the reference implementation of most open models, run by PyTorch without any server.

- Install: part of the default environment (`requirements.txt`): `transformers`, `torch`.
- Documentation: <https://huggingface.co/docs/transformers/main/en/llm_tutorial>
- Licence: Apache-2.0 (PyTorch: BSD-3-Clause).
- Options: `float32` is the reference that every other engine's tokens are compared with; `bfloat16` and `float16` halve the bytes;
  `int8` is PyTorch's dynamic quantisation of every linear layer, on CPUs only: fast, and of visibly poorer text.
- Tokens become visible through the public streamer interface (`BaseStreamer.put`), whose first call carries the prompt.
- Traps: `max_length` includes the prompt, and `generate` returns the prompt with the answer: a script that counts what it returns
  counts the prompt as output, as one of the published study's did. `from_pretrained` may choose another dtype than you think.
"""

import warnings
from importlib.metadata import version as _installed
from importlib.util import find_spec

from bench import models

OPTIONS = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16", "devices": ("cuda",)},
    "int8": {"dtype": "float32", "dynamic_int8": True, "devices": ("cpu",)},
}
DEVICES = ("cuda", "cpu")


def version():
    return f"{_installed('transformers')}, torch {_installed('torch')}"


def available():
    return None if find_spec("transformers") and find_spec("torch") else "transformers is not installed. Install it with: make .venv"


def load(checkpoint, option, device, threads):
    return Engine(checkpoint, OPTIONS[option], device, threads)


class Engine:
    def __init__(self, checkpoint, about, device, threads):
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        dtype = getattr(torch, about["dtype"])
        self.torch, self.device = torch, device
        self.model = AutoModelForCausalLM.from_pretrained(checkpoint.path, dtype=dtype).to(device).eval()
        self.weight_bytes = models.linear_bytes(checkpoint, 1 if about.get("dynamic_int8") else dtype.itemsize, dtype.itemsize)
        self.kv_value_bytes = dtype.itemsize
        if about.get("dynamic_int8"):
            self.model = _dynamic_int8(self.model)
        self.settings = {"torch_threads": torch.get_num_threads(), "attention": self.model.config._attn_implementation}
        self.end = checkpoint.end_token_ids

    def generate(self, prompts, max_new_tokens, on_token):
        ids = self.torch.tensor(prompts, device=self.device)
        out = self.model.generate(
            ids, attention_mask=self.torch.ones_like(ids), do_sample=False, use_cache=True, eos_token_id=self.end, pad_token_id=self.end[0],
            min_new_tokens=max_new_tokens, max_new_tokens=max_new_tokens, streamer=_streamer(on_token) if on_token else None,
        )  # fmt: skip
        return out[:, ids.shape[1] :].tolist()

    def close(self):
        del self.model


def _streamer(on_token):
    """transformers' streamer calls `put` with the prompt first, then with the new token of each request as a CPU tensor."""
    from transformers.generation.streamers import BaseStreamer

    class Streamer(BaseStreamer):
        prompt_seen = False

        def put(self, value):
            if not self.prompt_seen:
                self.prompt_seen = True
                return
            for request, token in enumerate(value.tolist()):
                on_token(request, token)

        def end(self):
            pass

    return Streamer()


def _dynamic_int8(model):
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
