"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path

from filelock import FileLock


def write_whole(file, content):
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


def made(path, make):
    """`path`, calling `make(temporary_path)` first if it does not exist; one maker at a time, renamed when
    complete."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(path.name + ".lock")):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as scratch:
                make(Path(scratch) / path.name)
                os.replace(Path(scratch) / path.name, path)
    return path
