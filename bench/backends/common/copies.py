"""A copy of a checkpoint for engines that are built on transformers 4.

transformers 5 writes the rotary base into `rope_parameters`, the number format as `dtype`, and a tokenizer
class that version 4 does not know. Version 4, and engines that read config.json themselves (TGI, MLC), look
for `rope_theta`, `rope_scaling` and `torch_dtype` at the top, find none, and compute with a base of 10,000
whatever the model was trained with: at the right speed, every token wrong.

The copy lies under models/, made whole or not at all, and its name is the hash of what is in it: weights as
hard links where the file system has them, small files with what both versions read. The checkpoint itself, a
folder of the user or the hub's cache, is never written to.
"""

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from bench.backends.common import checkpoints, weights
from llm_measured.core import files
from llm_measured.core.definitions import Fields

INDEX = "model.safetensors.index.json"
# Classes that transformers 4 does not have, by the name of the one that reads the same tokenizer.json there.
TOKENIZERS = {"TokenizersBackend": "PreTrainedTokenizerFast"}


def for_transformers_4(
    checkpoint: checkpoints.Checkpoint, dtype: str | None = None, endless: bool = False
) -> Path:
    """Folder of a copy of `checkpoint` in which transformers 4 and 5 read the same settings; made once.

    `dtype` (`bfloat16`) is written as the number format where an engine takes it from nowhere else; with
    `endless` generation_config.json names no token that ends a sequence, for engines that no request can keep
    from stopping. ValueError where config.json has what transformers 4 has no word for.
    """
    written = _written(checkpoint.path, dtype, endless)
    linked = sorted(
        path
        for path in checkpoint.path.iterdir()
        if path.is_file() and path.name not in written and _belongs(path)
    )
    folder = checkpoints.folder(checkpoint.name)
    content = weights.hashes(linked, folder / weights.CACHE)
    content |= {name: hashlib.sha256(text.encode()).hexdigest() for name, text in written.items()}
    lines = "".join(f"{name} {found}\n" for name, found in sorted(content.items()))
    key = hashlib.sha256(lines.encode()).hexdigest()[:16]

    def make(to: Path) -> None:
        to.mkdir()
        for path in linked:
            _link(path, to / path.name)
        for name, text in written.items():
            (to / name).write_text(text)

    return files.made(folder / f"transformers-4-{key}", make)


def config_4(config: dict[str, Any], dtype: str | None = None) -> dict[str, Any]:
    """config.json as both read it: with `rope_theta`, `rope_scaling` and `torch_dtype` at the top."""
    rope = config.get("rope_parameters") or {}
    if any(isinstance(value, dict) for value in rope.values()):
        raise ValueError(
            "config.json has rotary settings for several kinds of layers (rope_parameters), for which "
            "transformers 4 has no common word: measure this model with an engine that reads them."
        )
    top = {name: rope[name] for name in ("rope_theta", "partial_rotary_factor") if name in rope}
    kind = rope.get("rope_type", "default")
    if kind != "default":
        top["rope_scaling"] = {
            name: value for name, value in rope.items() if name not in ("rope_theta", "partial_rotary_factor")
        }
    stored = dtype or config.get("dtype") or config.get("torch_dtype")
    return config | top | ({"torch_dtype": stored, "dtype": stored} if stored else {})


def _written(path: Path, dtype: str | None, endless: bool) -> dict[str, str]:
    """{name: text} of the files that the copy has otherwise than the checkpoint."""
    found = {"config.json": config_4(_json(path / "config.json"), dtype)}
    if (path / "tokenizer_config.json").exists():
        tokenizer = _json(path / "tokenizer_config.json")
        kind = tokenizer.get("tokenizer_class", "")
        tokenizer["tokenizer_class"] = TOKENIZERS.get(kind, kind)
        # Version 5 writes a list, of which version 4 takes the names of a dict.
        if isinstance(tokenizer.get("extra_special_tokens"), list):
            tokenizer["additional_special_tokens"] = tokenizer.pop("extra_special_tokens")
        found["tokenizer_config.json"] = {k: v for k, v in tokenizer.items() if v is not None}
    if endless:
        generation = path / "generation_config.json"
        # A list of ids is what TGI takes over from this file; no token has the id -1.
        found[generation.name] = (_json(generation) if generation.exists() else {}) | {"eos_token_id": [-1]}
    single = path / "model.safetensors"
    if single.exists() and not (path / INDEX).exists():
        # MLC writes this file beside the weights where it is missing. Damaged ones are for loaders to refuse.
        with contextlib.suppress(ValueError):
            names = {tensor.name: single.name for tensor in weights.header(single)}
            found[INDEX] = {"metadata": {"total_size": single.stat().st_size}, "weight_map": names}
    return {name: json.dumps(content, indent=1, sort_keys=True) for name, content in found.items()}


def _belongs(path: Path) -> bool:
    """Whether a file is part of the model: no GGUF file, nothing hidden."""
    return path.suffix != ".gguf" and not path.name.startswith(".")


def _json(file: Path) -> Fields:
    return json.loads(file.read_text(encoding="utf-8"))


def _link(source: Path, to: Path) -> None:
    """The hub's cache has links, which mean nothing inside a container; across file systems there are no hard
    ones."""
    file = os.path.realpath(source)
    try:
        os.link(file, to)
    except OSError:
        shutil.copy2(file, to)
