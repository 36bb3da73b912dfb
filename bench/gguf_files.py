"""GGUF files in the precision that an option names, made of the GGUF file that a checkpoint came from."""

from bench import models

# Option -> the number that `general.file_type` has in such a file.
TYPES = {"F16": 1, "Q8_0": 7, "Q4_0": 2}


def prepare(checkpoint, option):
    """Path of `checkpoint` as GGUF in `option`, written first if it is not there; ValueError for a checkpoint without a GGUF file."""
    if checkpoint.gguf is None:
        raise ValueError(f"{checkpoint.name} has no GGUF file to start from; choose a model that comes as GGUF, such as smollm2-135m.")
    return models.made(models.folder(checkpoint.name) / f"llamacpp-{option}.gguf", lambda to: _requantise(checkpoint.gguf, option, to))


def step_bytes(path, per_value=None):
    """Bytes of the tensors that one decode step reads: all of them, but embedding rows only where they are the head as well.

    `per_value` is what one number of a matrix takes in an engine that holds matrices otherwise than the file does.
    """
    import gguf

    tensors = gguf.GGUFReader(path).tensors
    own_head = any(t.name == "output.weight" for t in tensors)
    read = [t for t in tensors if not (own_head and t.name == "token_embd.weight")]
    return int(sum(t.n_elements * per_value if per_value and len(t.shape) > 1 else t.n_bytes for t in read))


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
        _add(writer, tensor, gguf.GGMLQuantizationType[option if len(tensor.shape) > 1 else "F32"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer, tensor, wanted):
    """Add `tensor` as type `wanted`; where its rows are no multiple of the block, as float16, which is what llama.cpp's own tool does."""
    import gguf

    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    if values.shape[-1] % gguf.GGML_QUANT_SIZES[wanted][0]:
        wanted = gguf.GGMLQuantizationType.F16
    writer.add_tensor(tensor.name, gguf.quants.quantize(values, wanted), raw_dtype=wanted)
