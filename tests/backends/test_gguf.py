"""Llamas and a Qwen2 written as GGUF from the Hugging Face layout: the same numbers, the same tokens, or a refusal that says what to do."""

import json
import os
import shutil

import numpy as np
import pytest
from commands import run

from bench.backends.common import checkpoints, gguf_files, gguf_tokens
from bench.paths import MODELS

pytestmark = pytest.mark.check  # `make test` converts the default model for llama.cpp
SMOL = MODELS / "smollm2-135m" / "checkpoint"
ROW = {
    "architecture": "llama", "layers": 2, "hidden_size": 128, "attention_heads": 4, "kv_heads": 2, "head_dim": 32, "intermediate_size": 160,
    "vocab_size": 600, "tied_embeddings": False, "rope_theta": 5000, "context_tokens": 512,
}  # fmt: skip
TOKENS = 24
PROMPTS = [
    [7, 300, 12, 599, 45, 3, 260, 18, 77, 401],
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
    [500],
]

WRITE = """
import json, sys
from pathlib import Path
import torch
from bench.backends.common import random_weights
from safetensors.torch import load_file, save_file
for to, row, width, answers in json.loads(sys.argv[1]):
    to = Path(to)
    random_weights._write_random(to, row)
    # Wide weights: with those of a fresh model attention is flat, and no answer would tell where rotary embeddings went wrong.
    wide = {name: tensor * (width if tensor.dim() > 1 else 1) for name, tensor in load_file(to / "model.safetensors").items()}
    if answers == "circle":  # each token is answered by the next one, five in a circle
        before = torch.tensor([i - i % 5 + (i + 4) % 5 for i in range(row["vocab_size"])])
        wide["lm_head.weight"] = wide["model.embed_tokens.weight"][before].contiguous()
    save_file(wide, to / "model.safetensors", metadata={"format": "pt"})
"""
# What is changed of ROW, the factor on the weights, and what the model answers.
TINY = {
    "tiny": ({}, 8, "noise"), "circle": ({}, 1, "circle"), "tied": ({"tied_embeddings": True}, 8, "noise"),
    "odd": ({"intermediate_size": 100}, 8, "noise"),
}  # fmt: skip
# The reference computes with the float16 that the GGUF file holds, in float32.
GENERATE = """
import json, sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM
prompts, count = json.loads(sys.argv[2]), int(sys.argv[3])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
for parameter in model.parameters():
    parameter.data = parameter.data.half().float() if parameter.dim() > 1 else parameter.data
out = []
for ids in prompts:
    given = torch.tensor([ids])
    done = model.generate(given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=count, min_new_tokens=count, eos_token_id=2, pad_token_id=2)
    out.append(done[0, len(ids):].tolist())
print("RESULT", json.dumps(out))
"""
STREAM = """
import json, sys
from pathlib import Path
from bench import backends
from bench.backends.common import checkpoints, gguf_files
checkpoints.MODELS = Path(sys.argv[1]).parent / "models"
prompts, count, option = json.loads(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
checkpoint = checkpoints.Checkpoint("shape:tiny", Path(sys.argv[1]), "synthetic")
engine = backends.get(sys.argv[5]).load(checkpoint, option, "cpu", 1)
seen, returned, own = [], [], []
for ids in prompts:
    came = []
    returned += engine.generate([ids], count, lambda request, token: came.append(token))
    seen.append(came)
    own += engine.generate([ids], count, None)
print("RESULT", json.dumps([seen, returned, own, getattr(engine, "speculation", None), engine.weight_bytes]))
engine.close()
"""


def result(*command):
    out = run("python", "-c", *command).stdout
    return json.loads(next(line for line in out.splitlines() if line.startswith("RESULT"))[7:])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Tiny Llamas with random weights in the Hugging Face layout, name in TINY -> checkpoint; made by one process."""
    home = tmp_path_factory.mktemp("written")
    jobs = [
        (str(home / name / "checkpoint"), ROW | changes, *more) for name, (changes, *more) in TINY.items()
    ]
    run("python", "-c", WRITE, json.dumps(jobs))
    return {
        name: checkpoints.Checkpoint("shape:tiny", home / name / "checkpoint", "synthetic") for name in TINY
    }


@pytest.fixture(scope="module")
def tiny(written):
    return written["tiny"]


@pytest.fixture(scope="module")
def expected(tiny):
    answers = result(GENERATE, tiny.path, json.dumps(PROMPTS), TOKENS)
    assert (
        len({tuple(answer) for answer in answers}) == len(PROMPTS)
        and min(len(set(answer)) for answer in answers) > 4
    ), "answers that tell nothing"
    return answers


@pytest.fixture
def converted(tmp_path, monkeypatch):
    """Writes a checkpoint as GGUF in a folder of its own and reads it again."""
    import gguf

    monkeypatch.setattr(checkpoints, "MODELS", tmp_path / "models")
    return lambda checkpoint, option="F16": gguf.GGUFReader(gguf_files.prepare(checkpoint, option))


def linked(source, to, *without):
    """The folder `to` with links to the files of `source`, but those of these names."""
    return shutil.copytree(source, to, copy_function=os.symlink, ignore=shutil.ignore_patterns(*without))


def tensors(reader):
    """Name -> (type, values in float32) of a GGUF file."""
    import gguf

    return {
        t.name: (t.tensor_type.name, gguf.quants.dequantize(t.data, t.tensor_type)) for t in reader.tensors
    }


def metadata(reader):
    return {name: field.contents() for name, field in reader.fields.items()}


# The same tokens


def test_llamacpp_gives_the_reference_s_tokens_for_random_weights(tiny, expected):
    seen, returned, own, _, _ = result(STREAM, tiny.path, json.dumps(PROMPTS), TOKENS, "F16", "llamacpp")
    assert returned == seen and own == seen, "streaming showed other tokens than the server returned"
    assert seen == expected


QWEN2 = """
import sys
from pathlib import Path
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from bench.backends.common import random_weights
torch.manual_seed(3)
sizes = dict(hidden_size=128, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
more = dict(max_position_embeddings=512, rope_theta=5000.0, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=600, **sizes, **more))
for name, parameter in model.named_parameters():
    # Biases begin at nothing, and a writer that left them out would not be noticed.
    parameter.data = torch.randn_like(parameter) if name.endswith("bias") else parameter.data * (8 if parameter.dim() > 1 else 1)
model.save_pretrained(sys.argv[1])
random_weights._numbered_tokenizer(600).save(str(Path(sys.argv[1]) / "tokenizer.json"))
"""


def test_a_qwen2_has_its_own_names_biases_and_no_turned_heads(tmp_path, converted):
    folder = tmp_path / "qwen2" / "checkpoint"
    run("python", "-c", QWEN2, folder)
    expected = result(GENERATE, folder, json.dumps(PROMPTS), TOKENS)
    assert len({tuple(answer) for answer in expected}) == len(PROMPTS), "answers that tell nothing"
    assert result(STREAM, folder, json.dumps(PROMPTS), TOKENS, "F16", "llamacpp")[0] == expected
    written = converted(checkpoints.Checkpoint("shape:tiny", folder, "synthetic"))
    assert metadata(written)["general.architecture"] == "qwen2" and "qwen2.rope.freq_base" in metadata(
        written
    )
    biases = {name for name in tensors(written) if name.endswith(".bias")}
    assert biases == {f"blk.{layer}.attn_{each}.bias" for layer in (0, 1) for each in "qkv"}


def test_the_file_that_a_model_came_as_is_taken_as_it_is(tiny, tmp_path, converted, monkeypatch):
    """A file of one's own, `gguf:`: named relative to the repository, another checkpoint where it is another."""
    monkeypatch.setattr(checkpoints, "MODELS", tmp_path / "models")
    made = []
    monkeypatch.setattr(
        checkpoints.processes, "in_child", lambda function, to, name, python: made.append(name)
    )
    file = tmp_path / "my.gguf"
    shutil.copy(gguf_files.prepare(tiny, "Q8_0"), file)
    mine = checkpoints.checkpoint(f"gguf:{file}")
    assert gguf_files.prepare(mine, "as-shipped").samefile(file) and made == ["my.gguf"]
    assert gguf_files.file_type(file) == "Q8_0"
    assert checkpoints.checkpoint(f"gguf:{file}").path == mine.path and len(made) == 1
    shutil.copy(gguf_files.prepare(tiny, "Q4_0"), tmp_path / "another.gguf")
    os.replace(tmp_path / "another.gguf", file)
    assert checkpoints.checkpoint(f"gguf:{file}").path != mine.path and len(made) == 2
    with pytest.raises(ValueError, match="came without a GGUF file"):
        gguf_files.prepare(tiny, "as-shipped")
    (tmp_path / "text.gguf").write_text("no weights")
    with pytest.raises(ValueError, match="is no GGUF file"):
        checkpoints.checkpoint(f"gguf:{tmp_path / 'text.gguf'}")
    with pytest.raises(ValueError, match="there is no such file"):
        checkpoints.checkpoint("gguf:models/missing.gguf")


def test_accepted_drafts_of_random_weights_are_found_by_their_numbers(written):
    checkpoint = written["circle"]
    seen, returned, own, speculation, _ = result(
        STREAM, checkpoint.path, json.dumps(PROMPTS[:1]), 64, "Q8_0-ngram", "llamacpp"
    )
    assert seen == returned == own == [[400 + (2 + k) % 5 for k in range(64)]]
    assert speculation["accepted_tokens"] > 32


@pytest.mark.parametrize("engine", ["llamacpp", "openvino"])
def test_a_kept_prefix_changes_no_token(tiny, expected, engine):
    kept = STREAM.replace("seen, returned", "engine.keep_prefix(prompts[0][:-2])\nseen, returned", 1)
    seen, *_, counted, _ = result(kept, tiny.path, json.dumps(PROMPTS[:1]), 4, "F16", engine)
    assert seen == [expected[0][:4]]
    assert engine != "llamacpp" or counted["cached_tokens"] >= len(PROMPTS[0]) - 2


def test_openvino_reads_them_too(tiny, expected):
    seen, _, own, _, _ = result(STREAM, tiny.path, json.dumps(PROMPTS), TOKENS, "F16", "openvino")
    assert seen == own == expected


def test_sentencepiece_tokens_stream_as_well(tiny, tmp_path, converted):
    """A tokenizer like Llama 2's: pieces with a mark for spaces, bytes where there is no piece."""
    checkpoint = checkpoints.Checkpoint(
        "shape:tiny", shutil.copytree(tiny.path, tmp_path / "checkpoint"), "synthetic"
    )
    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *(chr(97 + i) for i in range(26)),
        "▁a",
        "ab",
        "▁ab",
    ]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    told = {
        "version": "1.0", "truncation": None, "padding": None, "pre_tokenizer": None, "decoder": None,
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "added_tokens": [{"id": i, "content": pieces[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i in range(3)],
        "post_processor": None,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": ["▁ a", "a b", "▁a b"], "byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>", "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "ignore_merges": False},
    }  # fmt: skip
    (tmp_path / "checkpoint" / "tokenizer.json").write_text(json.dumps(told))
    ids_of = gguf_files.text_reader(checkpoint)
    assert ids_of(" ab") == [vocabulary["▁ab"]] and ids_of("b") == [vocabulary["b"]]
    assert ids_of("é") == [vocabulary["<0xC3>"], vocabulary["<0xA9>"]]
    said = metadata(converted(checkpoint))
    tokens, types = said["tokenizer.ggml.tokens"], said["tokenizer.ggml.token_type"]
    assert (tokens[:3], types[:3], types[3], types[-1]) == (pieces[:3], [2, 3, 3], 6, 5)
    assert tokens[-1] == "[PAD599]"
    # Byte tokens of random weights are no text; the plain answers of the server are ids.
    prompt = [vocabulary[piece] for piece in ("<s>", "▁ab", "c", "<0xC3>", "<0xA9>")]
    code = STREAM.replace(
        "returned += engine.generate([ids], count, lambda request, token: came.append(token))", ""
    )
    assert result(code, checkpoint.path, json.dumps([prompt]), TOKENS, "F16", "llamacpp")[2] == result(
        GENERATE, checkpoint.path, json.dumps([prompt]), TOKENS
    )


# The same numbers


@pytest.mark.skipif(not (SMOL / "model.safetensors").exists(), reason="smollm2-135m was not made: make study")
def test_the_converter_gives_back_the_file_that_the_checkpoint_came_from(converted, tmp_path):
    import gguf

    plain = linked(SMOL, tmp_path / "checkpoint", "*.gguf")
    ours = converted(checkpoints.Checkpoint("smollm2-135m", plain, "real"))
    theirs = gguf.GGUFReader(checkpoints.Checkpoint("smollm2-135m", SMOL, "real").gguf)
    mine, given = tensors(ours), tensors(theirs)
    assert {name: values.shape for name, (_, values) in mine.items()} == {
        name: values.shape for name, (_, values) in given.items()
    }
    for name, (kind, values) in mine.items():
        assert kind == ("F16" if values.ndim > 1 else "F32")
        np.testing.assert_allclose(values, given[name][1], rtol=2**-10, atol=2**-24, err_msg=name)
    mine, given = metadata(ours), metadata(theirs)
    shape = [name for name in given if name.startswith("llama.")]
    assert shape
    assert {name: mine[name] for name in shape} == pytest.approx({name: given[name] for name in shape})
    said = ["model", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id"]
    assert {name: mine[f"tokenizer.ggml.{name}"] for name in said} == {
        name: given[f"tokenizer.ggml.{name}"] for name in said
    }


def test_every_option_has_its_own_type_and_a_tied_head_is_not_written_twice(converted, written):
    tied = written["tied"]
    float16, int8, int4 = (tensors(converted(tied, option)) for option in ("F16", "Q8_0", "Q4_0"))
    assert "output.weight" not in float16 and set(float16) == set(int8) == set(int4)
    assert {kind for kind, values in int8.values() if values.ndim > 1} == {"Q8_0"}
    assert {kind for kind, _ in int4.values()} == {"Q4_0", "F32"}
    for name, (_, values) in float16.items():
        np.testing.assert_allclose(int8[name][1], values, atol=np.abs(values).max() / 127, err_msg=name)
    assert gguf_files.step_bytes(gguf_files.prepare(tied, "F16")) == sum(
        values.size * (2 if values.ndim > 1 else 4) for _, values in float16.values()
    )


def test_rows_that_are_no_multiple_of_the_block_stay_float16(converted, written):
    odd = tensors(converted(written["odd"], "Q4_0"))
    assert odd["blk.0.ffn_down.weight"][0] == "F16" and odd["blk.0.ffn_up.weight"][0] == "Q4_0"


def test_a_file_tells_what_the_configuration_tells(converted, tiny):
    said = metadata(converted(tiny, "Q8_0"))
    expected = {
        "llama.block_count": 2, "llama.embedding_length": 128, "llama.feed_forward_length": 160, "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2, "llama.rope.dimension_count": 32, "llama.rope.freq_base": 5000.0, "llama.context_length": 512,
        "llama.vocab_size": 600, "general.architecture": "llama", "general.file_type": 7, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.eos_token_id": 2,
    }  # fmt: skip
    assert {name: said[name] for name in expected} == expected
    assert said["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(tiny.config["rms_norm_eps"])
    assert said["tokenizer.ggml.tokens"][:3] == ["<0>", "<1>", "<2>"]
    assert len(said["tokenizer.ggml.tokens"]) == 600


# Refusals


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model_type": "mpt"}, "is of the type mpt, not llama or qwen2"),
        (
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e5, "factor": 8.0}},
            "stretches its rotary embeddings",
        ),
        (
            {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}},
            "stretches its rotary embeddings",
        ),
        ({"num_hidden_layers": 1}, "has the tensor model.layers.1"),
    ],
)
def test_what_cannot_be_written_is_refused(tiny, tmp_path, converted, change, why):
    folder = linked(tiny.path, tmp_path / "checkpoint", "config.json")
    (folder / "config.json").write_text(json.dumps(tiny.config | change))
    with pytest.raises(ValueError, match=f"shape:tiny {why}.*choose a model that comes as GGUF"):
        converted(checkpoints.Checkpoint("shape:tiny", folder, "synthetic"))
    assert not list((tmp_path / "models").glob("*/*.gguf")), "half a file was left"


def test_a_tokenizer_of_another_kind_is_refused(tiny, tmp_path, converted):
    folder = linked(tiny.path, tmp_path / "checkpoint", "tokenizer.json")
    (folder / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "Unigram", "vocab": []}, "pre_tokenizer": None, "added_tokens": []})
    )
    with pytest.raises(
        ValueError, match="has a tokenizer of another kind.*choose a model that comes as GGUF"
    ):
        converted(checkpoints.Checkpoint("shape:tiny", folder, "synthetic"))


@pytest.mark.parametrize(
    ("split", "name"),
    [
        ({"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}| ?\p{L}+"}}, "llama-bpe"),
        ({"type": "Split", "pattern": {"Regex": r"\p{N}| ?\p{L}+"}}, "qwen2"),
        ({"type": "Digits", "individual_digits": True}, "smollm"),
        ({"type": "ByteLevel", "use_regex": True}, "gpt-2"),
    ],
)
def test_llamacpp_knows_how_text_is_split(split, name):
    splits = {"type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel"}]}
    assert gguf_tokens.split_name({"pre_tokenizer": splits}) == name
