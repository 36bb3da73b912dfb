"""GGUF files in the precision that an option names: made of the GGUF file that a checkpoint came from, or of the Hugging Face layout of a Llama.

What of the Hugging Face layout can be written: checkpoints of the type `llama` with plain rotary embeddings and a byte-pair tokenizer, either over
bytes (Llama 3, SmolLM, the synthetic weights) or over SentencePiece's pieces (Llama 2, TinyLlama).
"""

import json
import math
import re

from bench import files
from bench.backends.common import checkpoints

# Option -> the number that `general.file_type` has in such a file.
TYPES = {"F16": 1, "Q8_0": 7, "Q4_0": 2}
FLOATS = "F32", "F16", "BF16"  # called the same in safetensors and GGUF
# What the pattern of a tokenizer for splitting text contains -> llama.cpp's name for it; only texts are split by it, and prompts come as token ids.
SPLITS = {r"\\p{N}{1,3}": "llama-bpe", '"Digits"': "smollm", r"\\p{N}": "qwen2"}


def prepare(checkpoint, option):
    """Path of `checkpoint` as GGUF in `option`, written first if it is not there; ValueError for one that cannot be written as GGUF here."""

    def make(to):
        return (
            _requantise(checkpoint.gguf, option, to) if checkpoint.gguf else _convert(checkpoint, option, to)
        )

    return files.made(checkpoints.folder(checkpoint.name) / f"llamacpp-{option}.gguf", make)


def step_bytes(path, per_value=None):
    """Bytes of the tensors that one decode step reads: all of them, but embedding rows only where they are the head as well.

    `per_value` is what one number of a matrix takes in an engine that holds matrices otherwise than the file does.
    """
    import gguf

    tensors = gguf.GGUFReader(path).tensors
    own_head = any(t.name == "output.weight" for t in tensors)
    read = [t for t in tensors if not (own_head and t.name == "token_embd.weight")]
    return int(sum(t.n_elements * per_value if per_value and len(t.shape) > 1 else t.n_bytes for t in read))


def text_reader(checkpoint):
    """A function from text that llama.cpp shows to the ids of its tokens, for a text that begins and ends with a token."""
    if _numbered(checkpoint):
        return lambda text: [int(number) for number in re.findall(r"<(\d+)>", text)]

    def encode(text):
        return checkpoint.tokenizer.encode(text, add_special_tokens=False).ids

    if checkpoint.gguf or _over_bytes(_tokenizer(checkpoint)):
        return encode
    ahead = len(encode("\n"))  # SentencePiece puts a space before any text, but none after a line break
    return lambda text: encode("\n" + text)[ahead:]


def _requantise(source, option, to):
    """Write `source` again with every matrix in `option`; vectors (norms) become float32, all metadata stay."""
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


def _kind(shape, option):
    """GGUF's type for a tensor: float32 for a vector, `option` for a matrix; where its rows are no multiple of the block, float16, which is
    what llama.cpp's own tool does."""
    import gguf

    wanted = gguf.GGMLQuantizationType[option if len(shape) > 1 else "F32"]
    return gguf.GGMLQuantizationType.F16 if shape[-1] % gguf.GGML_QUANT_SIZES[wanted][0] else wanted


def _convert(checkpoint, option, to):
    """Write a Llama in the Hugging Face layout as GGUF with every matrix in `option`: one tensor at a time, a 7B model need not fit twice."""
    import gguf
    import numpy

    found = _tensors(checkpoint)
    kinds = {name: _kind(tensor.shape, option) for name, tensor in found.items()}
    writer = gguf.GGUFWriter(to, "llama")
    _add_shape(writer, checkpoint)
    _add_tokens(writer, checkpoint)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(TYPES[option])
    for name, tensor in found.items():
        block, size = gguf.GGML_QUANT_SIZES[kinds[name]]
        writer.add_tensor_info(
            name, tensor.shape, numpy.dtype("float32"), math.prod(tensor.shape) // block * size, kinds[name]
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, tensor in found.items():
        writer.write_tensor_data(gguf.quants.quantize(_values(name, tensor, checkpoint.config), kinds[name]))
    writer.close()


def _tensors(checkpoint):
    """GGUF's name -> tensor on disk, for all tensors of the safetensors files; ValueError for one that GGUF has no name for."""
    import gguf
    from gguf.utility import SafetensorsLocal

    _refuse_others(checkpoint)
    names, found = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, checkpoint.config["num_hidden_layers"]), {}
    for file in sorted(checkpoint.path.glob("*.safetensors")):
        for name, tensor in SafetensorsLocal(file).tensors.items():
            own_head = name != "lm_head.weight" or not checkpoint.config.get("tie_word_embeddings")
            if own_head and not name.endswith(
                "rotary_emb.inv_freq"
            ):  # llama.cpp takes a tied head from the embedding and computes frequencies
                known = names.get_name(name, (".weight", ".bias"))
                if known is None or tensor.dtype not in FLOATS:
                    raise _refusal(checkpoint, f"has the tensor {name} in {tensor.dtype}")
                found[known] = tensor
    return found


def _refuse_others(checkpoint):
    kind, rotary = checkpoint.config.get("model_type"), _rotary(checkpoint.config)
    if kind != "llama":
        raise _refusal(checkpoint, f"is of the type {kind}, not llama")
    if rotary["kind"] != "default":
        raise _refusal(checkpoint, f"stretches its rotary embeddings ({rotary['kind']})")


def _refusal(checkpoint, why):
    return ValueError(
        f"{checkpoint.name} {why}: it has no GGUF file, and one cannot be written of it here. Choose a model that comes as GGUF, such as smollm2-135m."
    )


def _rotary(config):
    """Kind and base of the rotary embeddings, where Transformers 5 keeps them, or 4."""
    told = config.get("rope_parameters") or config.get("rope_scaling") or {}
    base = told.get("rope_theta") or config.get("rope_theta") or 10000
    return {"kind": told.get("rope_type") or told.get("type") or "default", "base": float(base)}


def _heads(config):
    """Query heads, KV heads, head size."""
    heads = config["num_attention_heads"]
    return (
        heads,
        config.get("num_key_value_heads") or heads,
        config.get("head_dim") or config["hidden_size"] // heads,
    )


def _values(name, tensor, config):
    """The numbers of a tensor on disk in float32, in the order that llama.cpp wants.

    Rotary embeddings turn pairs of rows of a query or key head: the Hugging Face layout keeps the two in different halves of the head, llama.cpp
    beside each other.
    """
    import gguf

    values = gguf.quants.dequantize(tensor.mmap_bytes(), gguf.GGMLQuantizationType[tensor.dtype]).reshape(
        tensor.shape
    )
    heads = {"attn_q": _heads(config)[0], "attn_k": _heads(config)[1]}.get(name.split(".")[-2])
    return (
        values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        if heads
        else values
    )


def _add_shape(writer, checkpoint):
    """Tell the GGUF file what config.json tells."""
    config, (heads, kv_heads, size) = checkpoint.config, _heads(checkpoint.config)
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


def _tokenizer(checkpoint):
    """tokenizer.json as a dict; ValueError where it is of no kind that GGUF knows."""
    told = json.loads((checkpoint.path / "tokenizer.json").read_text())
    if told["model"]["type"] != "BPE" or not (_over_bytes(told) or told["model"].get("byte_fallback")):
        raise _refusal(
            checkpoint,
            "has a tokenizer of another kind than byte-pair encoding over bytes or SentencePiece's",
        )
    return told


def _over_bytes(told):
    return '"ByteLevel"' in json.dumps(told["pre_tokenizer"])


def _numbered(checkpoint):
    """Whether the tokens stand for nothing but their numbers: those of synthetic weights, of which no text is made."""
    return not checkpoint.gguf and not _tokenizer(checkpoint)["model"]["merges"]


def _add_tokens(writer, checkpoint):
    """Tell the GGUF file what tokenizer.json tells."""
    told, size = _tokenizer(checkpoint), checkpoint.config["vocab_size"]
    if _numbered(checkpoint):
        # Bytes that are no UTF-8 would be held back, and shown as something else: every token is shown as its number. Those that llama.cpp
        # hides are never generated; OpenVINO does not read a file without any.
        tokens, kind, more = [f"<{i}>" for i in range(size)], "gpt2", ["< >"]
        types = [_type("CONTROL" if i in checkpoint.end_token_ids else "NORMAL") for i in range(size)]
    else:
        tokens, types = _words(told, size)
        kind, more = (
            ("gpt2", [_pair(merge) for merge in told["model"]["merges"]])
            if _over_bytes(told)
            else ("llama", None)
        )
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if kind == "gpt2":
        writer.add_tokenizer_pre(_split(told))
        writer.add_token_merges(more)
    else:
        writer.add_token_scores(
            [-float(i) for i in range(size)]
        )  # SentencePiece numbers its pieces from the likeliest on
    _add_special(writer, checkpoint)


def _type(name):
    import gguf

    return int(gguf.TokenType[name])


def _words(told, size):
    """Texts and types of `size` tokens; numbers that no token has become unused ones."""
    model = told["model"]
    tokens = {i: (word, "NORMAL") for word, i in model["vocab"].items()}
    if not _over_bytes(told):
        tokens |= {
            i: (word, "BYTE") for word, i in model["vocab"].items() if re.fullmatch("<0x[0-9A-F]{2}>", word)
        }
    tokens |= {
        about["id"]: (about["content"], "CONTROL" if about["special"] else "USER_DEFINED")
        for about in told["added_tokens"]
    }
    if not _over_bytes(told) and model.get("unk_token") in model["vocab"]:
        tokens[model["vocab"][model["unk_token"]]] = model["unk_token"], "UNKNOWN"
    all_of_them = [tokens.get(i, (f"[PAD{i}]", "UNUSED")) for i in range(size)]
    return [word for word, _ in all_of_them], [_type(kind) for _, kind in all_of_them]


def _pair(merge):
    """One merge as GGUF spells it; tokenizer.json has pairs, or in older files the same spelling."""
    return merge if isinstance(merge, str) else " ".join(merge)


def _split(told):
    splits = json.dumps(told["pre_tokenizer"])
    return next((name for pattern, name in SPLITS.items() if pattern in splits), "gpt-2")


def _add_special(writer, checkpoint):
    """Which tokens begin and end a sequence. llama.cpp has guesses of its own where it is told none, and bans what it takes for an end."""
    begins, ends = checkpoint.config.get("bos_token_id"), checkpoint.config.get("eos_token_id")
    ends = ends[0] if isinstance(ends, list) else ends
    if begins is not None:
        writer.add_bos_token_id(begins)
    if ends is not None:
        writer.add_eos_token_id(ends)
    writer.add_add_bos_token(checkpoint.encode("")[:1] == [begins])
