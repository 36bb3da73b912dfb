"""Copies of checkpoints for engines on transformers 4: what they read there, and that nothing else is touched."""

import json
import os

import pytest

from bench.backends import mlc, tensorrt_llm, tgi
from bench.backends.common import checkpoints, copies, weights

ROPE = {"rope_theta": 100000.0, "rope_type": "default"}


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A checkpoint as transformers 5 writes it, in a folder of the user."""
    monkeypatch.setattr(checkpoints, "MODELS", tmp_path / "models")
    folder = tmp_path / "my-model"
    folder.mkdir()
    config = {"eos_token_id": 2, "vocab_size": 4, "rope_parameters": ROPE, "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text('{"eos_token_id": [2], "bos_token_id": 1}')
    (folder / "tokenizer.json").write_text("{}")
    tokenizer = {"tokenizer_class": "TokenizersBackend", "extra_special_tokens": ["<a>"], "bos_token": "<s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (folder / "whole.gguf").write_bytes(b"gguf")
    save(folder, b"\1" * 8)
    return checkpoints.checkpoint(f"path:{folder}")


def save(folder, data, name="model.safetensors"):
    text = json.dumps({"a": {"dtype": "I8", "shape": [2, 4], "data_offsets": [0, 8]}}).encode()
    (folder / name).write_bytes(len(text).to_bytes(8, "little") + text + data)


def read(folder, name):
    return json.loads((folder / name).read_text())


def state(folder):
    """Every file of a folder with its contents and its times."""
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.iterdir()}


@pytest.mark.parametrize("of", ["tgi", "mlc", "tensorrt_llm"])
def test_engines_on_transformers_4_find_the_rotary_base_and_a_tokenizer_that_they_know(
    model, monkeypatch, of
):
    """They read `rope_theta` at the top, 10,000 where it is missing, and know no TokenizersBackend."""
    if of == "mlc":
        seen = []
        monkeypatch.setattr(
            mlc, "_do", lambda command: seen.append(command) or _folder_of(command).mkdir(exist_ok=True)
        )
        mlc.prepare(model, "q0f16", "cuda")
        (path,) = {copies.Path(command[4]) for command in seen}
    else:
        path = {"tgi": tgi, "tensorrt_llm": tensorrt_llm}[of].prepare(model, "bfloat16", "cuda")
    config = read(path, "config.json")
    assert config["rope_theta"] == 100000.0 and config["rope_parameters"] == ROPE
    assert config["torch_dtype"] == ("bfloat16" if of == "tensorrt_llm" else "float32")
    tokenizer = read(path, "tokenizer_config.json")
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast" and tokenizer["bos_token"] == "<s>"
    assert tokenizer["additional_special_tokens"] == ["<a>"] and "extra_special_tokens" not in tokenizer
    assert not list(path.glob("*.gguf")) and path.is_relative_to(checkpoints.MODELS)
    ends = read(path, "generation_config.json")["eos_token_id"]
    assert ends == ([-1] if of == "tgi" else [2]), "no request keeps TGI from stopping"


def _folder_of(command):
    return copies.Path(command[command.index("--output") + 1])


def test_the_user_s_folder_stays_as_it_is_and_weights_are_not_copied(model):
    before = state(model.path)
    path = copies.for_transformers_4(model, dtype="bfloat16", endless=True)
    assert state(model.path) == before, "nothing is written beside the weights, no index and no hashes either"
    assert os.path.samefile(path / "model.safetensors", model.path / "model.safetensors")
    assert read(path, copies.INDEX)["weight_map"] == {"a": "model.safetensors"}, "else MLC writes it"
    assert read(path, "generation_config.json") == {"eos_token_id": [-1], "bos_token_id": 1}
    assert [tensor.name for tensor in weights.tensors(path)] == ["a"]


def test_links_of_the_hub_s_cache_become_files(model, tmp_path):
    (tmp_path / "blob").write_text("{}")
    (model.path / "special_tokens_map.json").symlink_to(tmp_path / "blob")
    made = copies.for_transformers_4(model) / "special_tokens_map.json"
    assert not made.is_symlink() and made.read_text() == "{}"


def test_a_copy_is_made_once_for_each_content(model, monkeypatch):
    first = copies.for_transformers_4(model)
    monkeypatch.setattr(copies, "_link", lambda *a: pytest.fail("made again"))
    assert copies.for_transformers_4(model) == first
    monkeypatch.undo()
    monkeypatch.setattr(checkpoints, "MODELS", first.parent.parent)
    assert copies.for_transformers_4(model, dtype="bfloat16") != first
    (model.path / "tokenizer.json").write_text('{"other": 1}')
    second = copies.for_transformers_4(model)
    assert second != first and read(second, "tokenizer.json") == {"other": 1}
    os.unlink(model.path / "model.safetensors")
    save(model.path, b"\2" * 8)
    assert copies.for_transformers_4(model) not in (first, second)


def test_a_maker_that_fails_leaves_no_copy(model, monkeypatch):
    monkeypatch.setattr(copies, "_link", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        copies.for_transformers_4(model)
    assert not list(checkpoints.folder(model.name).glob("transformers-4-*[!k]"))


def test_scaled_rotary_bases_are_said_in_the_older_words():
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
    config = copies.config_4({"rope_parameters": rope, "dtype": "bfloat16"})
    assert config["rope_theta"] == 500000.0 and config["torch_dtype"] == "bfloat16"
    assert config["rope_scaling"] == {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
    old = {"rope_theta": 10000.0, "rope_scaling": None, "torch_dtype": "float16"}
    assert copies.config_4(old) == old | {"dtype": "float16"}, "what transformers 4 wrote stays"
    with pytest.raises(ValueError, match="several kinds of layers"):
        copies.config_4({"rope_parameters": {"full_attention": rope, "sliding_attention": rope}})


def test_the_study_s_model_keeps_its_rotary_base():
    config = checkpoints.checkpoint("smollm2-135m").config
    assert copies.config_4(config)["rope_theta"] == config["rope_parameters"]["rope_theta"] == 100000.0
