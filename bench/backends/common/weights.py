"""Weight files on disk: their tensors without loading them, and a digest that tells two checkpoints apart."""

import contextlib
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path

from llm_measured.core import files
from llm_measured.core.definitions import Fields

CACHE = ".hashes.json"  # under models/: what was hashed, with the size and time that it was hashed at


@dataclass(frozen=True)
class Tensor:
    """One tensor of a safetensors file: its name, its shape, and its bytes."""

    name: str
    shape: tuple[int, ...]
    stored_bytes: int

    @property
    def values(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def dimensions(self) -> int:
        """1 for a vector, 2 for a matrix."""
        return len(self.shape)


def tensors(path: Path) -> list[Tensor]:
    """Every Tensor in the safetensors files of the folder `path`, read from their headers; those of the
    index, if any."""
    return [tensor for file in safetensors_files(path) for tensor in header(file)]


def safetensors_files(path: Path) -> list[Path]:
    """Paths of the folder's safetensors files, sorted: those that the index names, where there is an
    index."""
    index = path / "model.safetensors.index.json"
    if index.exists():
        return sorted({path / name for name in json.loads(index.read_text())["weight_map"].values()})
    return sorted(path.glob("*.safetensors"))


def header(file: Path) -> list[Tensor]:
    """The Tensors of one safetensors file; ValueError where it is none."""
    with open(file, "rb") as source:
        size = int.from_bytes(source.read(8), "little")
        if size > file.stat().st_size - 8:
            raise ValueError(f"{file} is no safetensors file, or the end of it is missing: make it again.")
        entries = json.loads(source.read(size))
    entries.pop("__metadata__", None)
    return [
        Tensor(name, tuple(entry["shape"]), entry["data_offsets"][1] - entry["data_offsets"][0])
        for name, entry in entries.items()
    ]


def digest(path: Path, cache: Path) -> str:
    """SHA-256 over config.json and the names and contents of the weight files (safetensors, GGUF) in
    `path`."""
    sha = hashlib.sha256((path / "config.json").read_bytes())
    files = sorted([*path.glob("*.safetensors"), *path.glob("*.gguf")])
    for name, found in hashes(files, cache).items():
        sha.update(f"{name} {found}".encode())
    return sha.hexdigest()


def hashes(paths: list[Path], cache: Path) -> dict[str, str]:
    """SHA-256 of the contents of each of `paths`, by its name.

    A file is read once: its hash is kept in the file `cache`, for as long as its size and its time of change
    stay the same.
    """
    kept = _kept(cache)
    now = kept | {path.name: _hashed(path, kept.get(path.name, {})) for path in paths}
    if now != kept:
        with contextlib.suppress(OSError):  # a folder that cannot be written to is read again the next time
            files.write_whole(cache, json.dumps(now, indent=1))
    return {path.name: now[path.name]["sha256"] for path in paths}


def size_digest(path: Path) -> str:
    """What `digest` was in sidecars written before November 2026: it hashed sizes instead of contents."""
    sha = hashlib.sha256((path / "config.json").read_bytes())
    for file in sorted(path.glob("*.safetensors")):
        sha.update(f"{file.name} {file.stat().st_size}".encode())
    return sha.hexdigest()


def _kept(cache: Path) -> Fields:
    """What was hashed before: file name -> path, size, time of change and hash; empty where that cannot be
    read."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads(cache.read_text())
    return {}


def _hashed(file: Path, kept: Fields) -> Fields:
    """`kept`, where it is of this very file, unchanged; else the file's entry, its contents read and
    hashed."""
    status = file.stat()
    state = {"path": str(file.resolve()), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    if kept.items() >= state.items() and "sha256" in kept:
        return kept
    with open(file, "rb") as source:
        return state | {"sha256": hashlib.file_digest(source, "sha256").hexdigest()}
