"""Files that are written whole or not at all."""

import contextlib
import glob
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd


def write_whole(file: Path, content: str | bytes) -> None:
    """Write text or bytes atomically: temporary file in the same folder, fsync, rename. A full disk leaves
    nothing behind."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content if isinstance(content, bytes) else content.encode())
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


def can_write(folder: Path) -> None:
    """OSError that names `folder`, the cause and the fix where no file can be written there; it is made where
    it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        raise OSError(
            f"Results cannot be written to {folder} ({error.strerror or error}), so nothing was measured. "
            "Free it, or name another folder: -p results scratch."
        ) from None


class _Lines(io.StringIO):
    """Takes whole lines that end with CR LF, one per call, and keeps them with LF."""

    def write(self, line: str) -> int:
        return super().write(line.removesuffix("\r\n") + "\n")


def csv_text(table: pd.DataFrame) -> str:
    """`table` as CSV without its index, lines ended by LF.

    Python's writer quotes a line break only if it is one of its own: with LF alone it leaves a text open that
    ends with CR, and who reads the file finds the row in two.
    """
    lines = _Lines(newline="")
    table.to_csv(lines, index=False, lineterminator="\r\n")
    return lines.getvalue()


class _Mode:
    only_named = False


@contextlib.contextmanager
def only_named() -> Iterator[None]:
    """Context in which `made` returns its path and makes nothing: to learn where something would lie."""
    _Mode.only_named = True
    try:
        yield
    finally:
        _Mode.only_named = False


def made(path: str | Path, make: Callable[[Path], object]) -> Path:
    """`path`, calling `make(temporary_path)` first if it does not exist; one maker at a time, renamed when
    complete."""
    from filelock import FileLock  # the package does without, the study has it

    path = Path(path)
    if _Mode.only_named:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(path.name + ".lock")):
        if not path.exists():
            begun = f".making-{path.name}-"
            # What a maker that was killed has left: tempfile adds eight letters.
            for left in path.parent.glob(glob.escape(begun) + "?" * 8):
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=begun) as scratch:
                make(Path(scratch) / path.name)
                os.replace(Path(scratch) / path.name, path)
    return path
