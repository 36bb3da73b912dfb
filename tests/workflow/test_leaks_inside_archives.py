"""The leak check reads inside archives, and refuses one that unpacks to too much."""

import gzip
import io
import lzma
import tarfile
import zipfile

import pytest

from bench.workflow import leaks

SECRET = "measured in /home/jane/models on tuesday"


def packed(kind: str) -> bytes:
    stream = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("notes.txt", SECRET)
        return stream.getvalue()
    if kind == "csv.gz":
        return gzip.compress(SECRET.encode())
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("inside/notes.txt.gz")
        content = gzip.compress(SECRET.encode())
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return lzma.compress(stream.getvalue())


@pytest.mark.parametrize("kind", ["zip", "csv.gz", "tar.xz"])
def test_a_path_inside_an_archive_is_found_with_its_place(tmp_path, kind):
    file = tmp_path / f"a.{kind}"
    file.write_bytes(packed(kind))
    assert any("line 1 holds a machine's path, /home/jane/models" in s for s in leaks.found(file))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(leaks, "LARGEST", 10)
    (tmp_path / "a.csv.gz").write_bytes(packed("csv.gz"))
    with pytest.raises(ValueError, match="unpacks to more than 10 bytes"):
        leaks.found(tmp_path / "a.csv.gz")
