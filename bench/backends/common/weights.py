"""Weight files on disk: their tensors without loading them, and a digest that tells two checkpoints apart."""

import contextlib
import hashlib
import json
import math
from dataclasses import dataclass

from bench import files

CACHE = ".digests.json"  # beside the weights: what was hashed, with the size and time that it was hashed at


@dataclass(frozen=True)
class Tensor:
    """One tensor of a safetensors file: its name, how many numbers it has in how many dimensions, and its
    bytes."""

    name: str
    values: int
    dimensions: int
    stored_bytes: int


def tensors(path):
    """Every Tensor in the safetensors files of the folder `path`, read from their headers; those of the
    index, if any."""
    return [tensor for file in safetensors_files(path) for tensor in header(file)]


def safetensors_files(path):
    """Paths of the folder's safetensors files, sorted: those that the index names, where there is an
    index."""
    index = path / "model.safetensors.index.json"
    if index.exists():
        return sorted({path / name for name in json.loads(index.read_text())["weight_map"].values()})
    return sorted(path.glob("*.safetensors"))


def header(file):
    """The Tensors of one safetensors file."""
    with open(file, "rb") as source:
        entries = json.loads(source.read(int.from_bytes(source.read(8), "little")))
    entries.pop("__metadata__", None)
    return [
        Tensor(
            name,
            math.prod(entry["shape"]),
            len(entry["shape"]),
            entry["data_offsets"][1] - entry["data_offsets"][0],
        )
        for name, entry in entries.items()
    ]


def digest(path):
    """SHA-256 over config.json and the names and contents of the weight files (safetensors, GGUF) in `path`.

    A file is read once: its hash is kept beside it, for as long as its size and its time of change stay the
    same.
    """
    kept, sha = _kept(path), hashlib.sha256((path / "config.json").read_bytes())
    now = {file.name: _hashed(file, kept.get(file.name, {})) for file in _weight_files(path)}
    if now != kept:
        with contextlib.suppress(OSError):  # a folder that cannot be written to is read again the next time
            files.write_whole(path / CACHE, json.dumps(now, indent=1))
    for name, entry in now.items():
        sha.update(f"{name} {entry['sha256']}".encode())
    return sha.hexdigest()


def size_digest(path):
    """What `digest` was in sidecars written before November 2026: it hashed sizes instead of contents."""
    sha = hashlib.sha256((path / "config.json").read_bytes())
    for file in sorted(path.glob("*.safetensors")):
        sha.update(f"{file.name} {file.stat().st_size}".encode())
    return sha.hexdigest()


def _weight_files(path):
    return sorted([*path.glob("*.safetensors"), *path.glob("*.gguf")])


def _kept(path):
    """What was hashed before: file name -> path, size, time of change and hash; empty where that cannot be
    read."""
    with contextlib.suppress(OSError, ValueError):
        return json.loads((path / CACHE).read_text())
    return {}


def _hashed(file, kept):
    """`kept`, where it is of this very file, unchanged; else the file's entry, its contents read and
    hashed."""
    status = file.stat()
    state = {"path": str(file.resolve()), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    if kept.items() >= state.items() and "sha256" in kept:
        return kept
    with open(file, "rb") as source:
        return state | {"sha256": hashlib.file_digest(source, "sha256").hexdigest()}
