"""Models in PyTorch: loaded as an option says, quantised, and the bytes that one decode step reads."""

import logging
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    import torch

OWN_ROWS, OWN_TOKENS = 32, 256  # that GPTQ is calibrated on


def load(path: Path, details: Fields, device: str) -> "torch.nn.Module":
    """The model in `path` as the option says, on `device`, ready for inference."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    if "gptq" in details:
        return _load_gptq(path, details, device)
    if "bitsandbytes" not in details:
        return AutoModelForCausalLM.from_pretrained(path, dtype=details["dtype"]).to(device).eval()
    # it warns of every product that its inputs are cast
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    chosen = BitsAndBytesConfig(**details["bitsandbytes"])
    # With its number, as transformers itself writes a GPU into such a map.
    place = {"": "cuda:0" if device == "cuda" else device}
    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=details["dtype"], quantization_config=chosen, device_map=place
    ).eval()
    return _arranged(model, device)


def _arranged(model: "torch.nn.Module", device: str) -> "torch.nn.Module":
    """`model` after a first call, which arranges the weights for the processor."""
    import torch

    with torch.no_grad():
        model(torch.zeros((1, 1), dtype=torch.long, device=device))
    return model


def step_bytes(model: "torch.nn.Module") -> int:
    """Bytes of the tensors that one decode step reads: every weight once, with what quantisation keeps beside
    it. The rows of an embedding are only looked up; a tied head is a layer of its own and counts."""
    tensors = {tensor.data_ptr(): tensor.nbytes for module in model.modules() for tensor in _weights(module)}
    return sum(tensors.values())


def _weights(module: "torch.nn.Module") -> "list[torch.Tensor]":
    """Tensors that `module` itself holds as weights, and the scales of their blocks or rows: bitsandbytes
    keeps those beside the parameter, GPTQModel in buffers, on a CPU scales and zeros in one."""
    import torch

    if isinstance(module, torch.nn.Embedding):
        return []
    beside = getattr(getattr(module, "weight", None), "quant_state", None) or getattr(module, "state", None)
    scales = [getattr(beside, name, None) for name in ("absmax", "SCB")]
    beside_packed = ["scales_and_zeros"] if hasattr(module, "scales_and_zeros") else ["qzeros", "scales"]
    packed = [getattr(module, name, None) for name in ("qweight", *beside_packed)]
    found = [*module.parameters(recurse=False), *scales, *packed]
    return [tensor for tensor in found if isinstance(tensor, torch.Tensor)]


def dynamic_int8(model: "torch.nn.Module") -> "torch.nn.Module":
    """`model` with every linear layer in PyTorch's dynamic 8-bit quantisation; its matrices no longer show
    their bytes."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


def _load_gptq(path: Path, details: Fields, device: str) -> "torch.nn.Module":
    """The model that `quantise` wrote, with the kernel that GPTQModel prefers on `device`."""
    import torch

    _calm_gptqmodel()
    from gptqmodel import GPTQModel

    model = GPTQModel.load(str(path), device=device, dtype=getattr(torch, details["dtype"])).model.eval()
    return _arranged(model, device)


def quantise(checkpoint: Checkpoint, settings: Fields, device: str, to: Path) -> None:
    """Write the weights of `checkpoint` as GPTQ into the folder `to`."""
    _calm_gptqmodel()
    from gptqmodel import GPTQModel, QuantizeConfig

    calibration = _own_words(checkpoint, device)
    model = GPTQModel.load(str(checkpoint.path), QuantizeConfig(**settings))
    model.quantize(calibration, batch_size=1)
    model.save(str(to))


def _own_words(checkpoint: Checkpoint, device: str) -> list[dict[str, list[int]]]:
    """What the unquantised model itself writes after one random token: OWN_ROWS times OWN_TOKENS ids, always
    the same ones.

    Calibrating on a text of this repository would flatter the perplexity that is measured on it.
    """
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(checkpoint.path).to(device).eval()
    first = torch.randint(checkpoint.config["vocab_size"], (OWN_ROWS, 1)).to(device)
    ids = model.generate(
        first,
        attention_mask=torch.ones_like(first),
        do_sample=True,
        min_new_tokens=OWN_TOKENS - 1,
        max_new_tokens=OWN_TOKENS - 1,
        pad_token_id=checkpoint.end_token_ids[0],
    )
    return [{"input_ids": row, "attention_mask": [1] * OWN_TOKENS} for row in ids.tolist()]


def _calm_gptqmodel() -> None:
    """GPTQModel reads this at its import: with more workers than cores it crashes on two cores."""
    os.environ.setdefault("GPTQMODEL_CPU_WORKERS", str(os.cpu_count()))
