"""GGUF files in the precision that an option names: made of the GGUF file that a checkpoint came from, or of
the Hugging Face layout of a Llama or a Qwen2; and the file that it came from, as it was shipped.

What of the Hugging Face layout can be written: checkpoints of the types `llama` and `qwen2` with plain rotary
embeddings and a byte-pair tokenizer, either over bytes (Llama 3, SmolLM, Qwen2.5, the synthetic weights) or
over SentencePiece's pieces (Llama 2, TinyLlama).
"""

import functools
import math
import re
from collections.abc import Callable, Sequence
from importlib.metadata import version as _installed
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.backends.common import checkpoints, effective, gguf_tokens
from bench.backends.common.checkpoints import Checkpoint
from llm_measured.core import files
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    import gguf
    import torch

    from bench.backends.common.weights import Tensor

# Option -> the number that `general.file_type` has in such a file.
TYPES = {"F16": 1, "Q8_0": 7, "Q4_0": 2}
FLOATS = "F32", "F16", "BF16"  # called the same in safetensors and GGUF
AS_SHIPPED = "as-shipped"  # the option that is no precision of ours
# Types of models that are written as GGUF -> the heads whose rows are put in another order (`_values`): of a
# Qwen2 llama.cpp turns the rotary pairs where the Hugging Face layout keeps them.
REORDERED = {"llama": ("attn_q", "attn_k"), "qwen2": ()}


def prepare(checkpoint: Checkpoint, option: str) -> Path:
    """Path of `checkpoint` as GGUF in `option`, written first if it is not there; ValueError for one that
    cannot be written as GGUF here, or that has no file to be taken as it was shipped."""
    if option == AS_SHIPPED:
        if not checkpoint.gguf:
            raise ValueError(
                f"{checkpoint.name} came without a GGUF file, so there is none to be measured as it was "
                "shipped: name a file with -p model gguf:<file>, or choose another option."
            )
        return checkpoint.gguf

    def make(to: Path) -> None:
        if checkpoint.gguf:
            _requantise(checkpoint.gguf, option, to)
        else:
            _convert(checkpoint, option, to)

    return files.made(checkpoints.conversion(checkpoint, "gguf", _installed("gguf"), option, ".gguf"), make)


@functools.lru_cache(maxsize=1)
def _read(path: str | Path) -> tuple[Fields, list[tuple[str, int, int, int]]]:
    """(what a GGUF file tells of the model, (name, numbers, dimensions, bytes) of each tensor); reading all
    of its tokens takes seconds."""
    import gguf

    reader = gguf.GGUFReader(path)
    kind = reader.fields["general.architecture"].contents()
    base, end = (reader.fields.get(key) for key in (f"{kind}.rope.freq_base", "tokenizer.ggml.eos_token_id"))
    stated = reader.fields.get("general.file_type")
    told = {
        "rope_theta": base.contents() if base else 10000.0,  # what llama.cpp and OpenVINO take without one
        "vocab_size": len(reader.fields["tokenizer.ggml.tokens"].data),
        "end_token_ids": [end.contents()] if end else None,
        "file_type": _file_type(stated.contents()) if stated else "unknown",
    }
    return told, [(t.name, int(t.n_elements), len(t.shape), int(t.n_bytes)) for t in reader.tensors]


def _file_type(number: int) -> str:
    """What most of the matrices of a file are in, as llama.cpp calls the number: 15 -> Q4_K_M."""
    import gguf

    known = {int(each): each.name.removeprefix("MOSTLY_") for each in gguf.LlamaFileType}
    return known.get(number, f"type {number}")


def file_type(path: str | Path) -> str:
    """What the GGUF file at `path` says that it is: `Q4_K_M`, `F16`; `unknown` where it does not say."""
    return _read(path)[0]["file_type"]


def step_bytes(path: str | Path, per_value: float | None = None) -> int:
    """Bytes of the tensors that one decode step reads: all of them, but embedding rows only where they are
    the head as well.

    `per_value` is what one number of a matrix takes in an engine that holds matrices otherwise than the file
    does.
    """
    _, tensors = _read(path)
    own_head = any(name == "output.weight" for name, *_ in tensors)
    read = (
        numbers * per_value if per_value and dimensions > 1 else stored
        for name, numbers, dimensions, stored in tensors
        if not (own_head and name == "token_embd.weight")
    )
    return int(sum(read))


def read_back(engine: str, checkpoint: Checkpoint, path: Path) -> Fields:
    """What the file at `path` tells the `engine` that reads it, as an entry for its settings; ValueError
    where that is another model than `checkpoint`."""
    told, _ = _read(path)
    return effective.checked(engine, checkpoint, told)


def text_reader(checkpoint: Checkpoint) -> Callable[[str], list[int]]:
    """A function from text that llama.cpp shows to the ids of its tokens, for a text that begins and ends
    with a token."""
    if gguf_tokens.numbered(checkpoint):
        return lambda text: [int(number) for number in re.findall(r"<(\d+)>", text)]

    def encode(text: str) -> list[int]:
        return checkpoint.tokenizer.encode(text, add_special_tokens=False).ids

    if checkpoint.gguf or gguf_tokens.over_bytes(gguf_tokens.tokenizer(checkpoint)):
        return encode
    ahead = len(encode("\n"))  # SentencePiece puts a space before any text, but none after a line break
    return lambda text: encode("\n" + text)[ahead:]


def _requantise(source: Path, option: str, to: Path) -> None:
    """Write `source` again with every matrix in `option`; vectors (norms) become float32, all metadata
    stay."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(to, reader.get_field("general.architecture").contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        array = field.types[0] == gguf.GGUFValueType.ARRAY
        writer.add_key_value(name, field.contents(), field.types[0], field.types[-1] if array else None)
    writer.add_file_type(TYPES[option])
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = _kind(values.shape, option)
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _kind(shape: Sequence[int], option: str) -> "gguf.GGMLQuantizationType":
    """GGUF's type for a tensor: float32 for a vector, `option` for a matrix; where its rows are no multiple
    of the block, float16, which is what llama.cpp's own tool does."""
    import gguf

    kind = gguf.GGMLQuantizationType[option if len(shape) > 1 else "F32"]
    return gguf.GGMLQuantizationType.F16 if shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] else kind


def _convert(checkpoint: Checkpoint, option: str, to: Path) -> None:
    """Write a Llama or a Qwen2 in the Hugging Face layout as GGUF with every matrix in `option`.

    One tensor at a time: a 7B model need not fit twice.
    """
    import gguf

    found = _tensors(checkpoint)
    kinds = {name: _kind(tensor.shape, option) for name, tensor in found.items()}
    writer = gguf.GGUFWriter(to, checkpoint.config["model_type"])
    _add_shape(writer, checkpoint)
    gguf_tokens.add_tokens(writer, checkpoint)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(TYPES[option])
    for name, tensor in found.items():
        block, size = gguf.GGML_QUANT_SIZES[kinds[name]]
        stored = math.prod(tensor.shape) // block * size
        writer.add_tensor_info(name, tensor.shape, np.dtype("float32"), stored, kinds[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, tensor in found.items():
        writer.write_tensor_data(gguf.quants.quantize(_values(name, tensor, checkpoint), kinds[name]))
    writer.close()


def _tensors(checkpoint: Checkpoint) -> "dict[str, Tensor]":
    """GGUF's name -> tensor on disk, for all tensors of the safetensors files; ValueError for one that GGUF
    has no name for."""
    import gguf
    from gguf.utility import SafetensorsLocal

    kind, rotary = checkpoint.config.get("model_type"), _rotary(checkpoint.config)
    if kind not in REORDERED:
        raise gguf_tokens.refusal(checkpoint, f"is of the type {kind}, not {' or '.join(REORDERED)}")
    if rotary["kind"] != "default":
        raise gguf_tokens.refusal(checkpoint, f"stretches its rotary embeddings ({rotary['kind']})")
    architecture = gguf.MODEL_ARCH[kind.upper()]
    names, found = gguf.get_tensor_name_map(architecture, checkpoint.config["num_hidden_layers"]), {}
    for file in sorted(checkpoint.path.glob("*.safetensors")):
        for name, tensor in SafetensorsLocal(file).tensors.items():
            own_head = name != "lm_head.weight" or not checkpoint.config.get("tie_word_embeddings")
            # llama.cpp takes a tied head from the embedding and computes frequencies.
            if own_head and not name.endswith("rotary_emb.inv_freq"):
                known = names.get_name(name, (".weight", ".bias"))
                if known is None or tensor.dtype not in FLOATS:
                    raise gguf_tokens.refusal(checkpoint, f"has the tensor {name} in {tensor.dtype}")
                found[known] = tensor
    return found


def _rotary(config: Fields) -> Fields:
    """Kind and base of the rotary embeddings, where Transformers 5 keeps them, or 4."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    base = rope.get("rope_theta") or config.get("rope_theta") or 10000
    return {"kind": rope.get("rope_type") or rope.get("type") or "default", "base": float(base)}


def _values(name: str, tensor: "torch.Tensor", checkpoint: Checkpoint) -> np.ndarray:
    """The numbers of a tensor on disk in float32, in the order that llama.cpp wants.

    Rotary embeddings turn pairs of rows of a query or key head: the Hugging Face layout keeps the two in
    different halves of the head, llama.cpp beside each other in a Llama.
    """
    import gguf

    values = gguf.quants.dequantize(tensor.mmap_bytes(), gguf.GGMLQuantizationType[tensor.dtype])
    values = values.reshape(tensor.shape)
    heads = dict(zip(REORDERED[checkpoint.config["model_type"]], checkpoint.heads)).get(name.split(".")[-2])
    if not heads:
        return values
    return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _add_shape(writer: "gguf.GGUFWriter", checkpoint: Checkpoint) -> None:
    """Write the shape of config.json into the GGUF file."""
    config, (heads, kv_heads, size) = checkpoint.config, checkpoint.heads
    writer.add_name(checkpoint.name)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(_rotary(config)["base"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
