"""Every adapter keeps the contract; every installed one gives the tokens that the reference gives."""

import functools
import json
import sys

import pandas as pd
import pytest
from commands import run

from bench import backends, inputs, processes
from bench.backends.common import checkpoints, random_weights
from bench.experiments import judge
from bench.paths import ROOT
from bench.workflow import plan
from llm_measured.core import metrics, naming

pytestmark = pytest.mark.early

FILES = sorted((ROOT / "bench" / "backends").glob("[!_]*.py"))
# These must give the reference's tokens, all of them: the weights are those of the reference (float16 is exact enough for what were 4 bits)
# and the arithmetic is float32. bfloat16 rounds in every step and quantised options round the weights: they part from it after a while.
UNQUANTISED = {"float32", "float32-lookup", "float32-draft", "F16"}
TOKENS, FEW_TOKENS = 100, 24
TEXT = "Reading a question is one kind of work, and writing the answer is another."


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_no_gpu_s_default_is_in_32_bits(path):
    """What nobody serves on a GPU is not what a plain study measures there."""
    on_gpu = backends.get(path.stem).options("cuda")
    assert not on_gpu or naming.bits(on_gpu[0]) != 32


# One thread, because two that spin beside another test wait for each other for minutes.
GENERATE = """
import json, sys
from bench import backends, inputs
from bench.backends.common import drafts
from bench.experiments import target
from bench.instrument import in_process
name, option, count, few, text = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
target.set_threads(1)
drafts.DRAFTS["smollm2-135m"] = "smollm2-135m"  # it drafts for itself: all that it guesses is right
checkpoint = backends.get(name).prepare("smollm2-135m", option, "cpu")
engine = backends.get(name).load(checkpoint, option, "cpu", 1)
prompts = [checkpoint.encode(text) for text in inputs.prompts().loc[[5, 7]]]
with_callback = [in_process.generate(engine, [ids], count)[0] for ids in prompts]
without = in_process.generate(engine, prompts[1:], few, streaming=False)[0]
ids = checkpoint.encode(text)
about = {"weight_bytes": engine.weight_bytes, "arithmetic": backends.arithmetic(engine), "end": checkpoint.end_token_ids, "ids": ids, "prompt": prompts[1]}
about["log_probabilities"] = engine.log_probabilities(ids) if hasattr(engine, "log_probabilities") else None
if not backends.get(name).batches(option):
    try:
        engine.generate([[1], [2]], 4, None)
    except ValueError as refused:
        about["two_prompts"] = str(refused)
engine.close()
print("RESULT", json.dumps([with_callback, without, about]))
"""


@functools.cache
def generated(name, option, count):
    python = backends.get(name).prefix(option=option) / "bin" / "python"
    out = run(python, "-c", GENERATE, name, option, count, FEW_TOKENS, TEXT).stdout
    return json.loads(next(line for line in out.splitlines() if line.startswith("RESULT"))[7:])


INSTALLED = [
    (path.stem, option)
    for path in FILES
    if backends.get(path.stem).can("load")
    for option in backends.get(path.stem).options("cpu") if backends.get(path.stem).missing("cpu", option) is None
]  # fmt: skip
DRAFTS = "-lookup", "-ngram", "-draft", "-draft2"


def smallest():
    """One option of every installed engine: the one whose tokens must be the reference's, where it has such a one."""
    options = {}
    for name, option in sorted(
        INSTALLED, key=lambda each: each[1] in UNQUANTISED and not each[1].endswith(DRAFTS), reverse=True
    ):
        options.setdefault(name, option)
    return sorted(options.items())


@pytest.mark.parametrize(("name", "option"), smallest())
@pytest.mark.check
def test_every_engine_generates_what_was_asked(name, option):
    generates_what_was_asked(name, option, FEW_TOKENS, FEW_TOKENS)


@pytest.mark.check
@pytest.mark.parametrize(("name", "option"), INSTALLED)
def test_every_option_generates_what_was_asked(name, option):
    exact = option in UNQUANTISED or option.endswith(DRAFTS)
    generates_what_was_asked(name, option, TOKENS if exact else judge.TOKENS, TOKENS)


def generates_what_was_asked(name, option, count, reference_count):
    """AssertionError unless `count` tokens come as the contract says and are those of the reference, or, where
    the option rounds, pass the judge."""
    answers, without, about = generated(name, option, count)
    expected, _, reference = generated("transformers", "float32", reference_count)
    assert without["error"] == "" and without["output_ids"] == answers[1]["output_ids"][:FEW_TOKENS], (
        "the callback saw other tokens than the engine returned"
    )
    for seen, wanted in zip(answers, expected):
        assert seen["error"] == ""
        assert not set(seen["output_ids"]) & set(about["end"]), "an end-of-sequence token was let through"
        assert 0 < seen["ttft_s"] < seen["e2e_s"] and len(seen["output_ids"]) == count
        alike = count if option in UNQUANTISED else 2  # of rounded weights, two tokens at least
        assert seen["output_ids"][:alike] == wanted["output_ids"][:alike], "other tokens than the reference's"
        drafts_are_consistent(name, option, seen)
    if option not in UNQUANTISED:
        passes_the_judge(option, about, answers[1]["output_ids"][: judge.TOKENS])
    assert 0.5e8 < about["weight_bytes"] < 6e8
    assert about["arithmetic"] in {"float32", "bfloat16", "int8"}
    if about["log_probabilities"] is not None:
        log_probabilities_are_plausible(option, about, reference["log_probabilities"])


def passes_the_judge(option, about, answer):
    rounded_as = judge.number_format(option, about["arithmetic"])
    model = checkpoints.checkpoint("smollm2-135m")
    entry = judge.of_answer(model, about["prompt"], answer, rounded_as)
    assert entry["verdict"] in ("same tokens", "near ties", "likely"), entry["why"]


def drafts_are_consistent(name, option, row):
    speculates = option.endswith(DRAFTS)
    assert (
        speculates
        == ("accepted_tokens" in row)
        == (not backends.get(name).module.OPTIONS[option].get("batches", True))
    )
    if speculates:
        assert 0 <= row["accepted_tokens"] <= row["drafted_tokens"]
        assert metrics.decode_steps(row["output_tokens"], row["accepted_tokens"]) > 0


def log_probabilities_are_plausible(option, about, expected):
    found = about["log_probabilities"]
    assert len(found) == len(about["ids"]) - 1 == len(expected) and max(found) < 0
    # Quantised weights know the text less well, but they have not forgotten their language.
    assert (
        found == pytest.approx(expected, abs=2e-3)
        if option in UNQUANTISED
        else sum(found) > 2.5 * sum(expected)
    )


@pytest.mark.check
def test_drafts_of_one_prompt_were_accepted_where_a_text_repeats_itself():
    """Prompt 5 is answered by the same sentences again and again: an engine that accepts nothing there does not speculate."""
    for name, option in INSTALLED:
        if option.endswith(DRAFTS):
            answers, _, about = generated(name, option, TOKENS)  # as in the test of every option
            row = answers[0]
            assert "one prompt at a time" in about["two_prompts"]
            assert row["accepted_tokens"] > TOKENS / 4, (
                f"{name} {option} accepted {row['accepted_tokens']} of {row['drafted_tokens']}"
            )


@pytest.mark.check
@pytest.mark.parametrize(("name", "option"), [each for each in INSTALLED if each[1].endswith("-draft")])
def test_a_model_that_drafts_for_itself_is_nearly_always_right(name, option):
    """What was drafted and accepted is counted: four drafts and one token of its own a pass."""
    for row in generated(name, option, TOKENS)[0]:
        assert row["accepted_tokens"] == pytest.approx(4 / 5 * TOKENS, abs=8)
        assert row["accepted_tokens"] > 0.8 * row["drafted_tokens"]


WHOLE = {
    "DEVICES": 'DEVICES = ("cpu",)',
    "OPTIONS": 'OPTIONS = {"float32": {}}',
    "version": "version = str",
    "available": "available = lambda: None",
    "load": "load = lambda checkpoint, option, device, threads: None",
}


@pytest.mark.parametrize("lacking", [*WHOLE, "import"])
def test_a_broken_adapter_is_named_and_stops_no_other(tmp_path, monkeypatch, lacking):
    name = f"broken_{lacking.lower()}"
    lines = ["import no_such_engine"] if lacking == "import" else []
    (tmp_path / f"{name}.py").write_text(
        "\n".join([*lines, *(line for part, line in WHOLE.items() if part != lacking)])
    )
    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path)])
    with pytest.raises(
        ValueError, match=f"The adapter {name} .*{lacking if lines == [] else 'no_such_engine'}"
    ):
        backends.get(name)
    usable = [each.name for each in backends.usable()]
    assert name in backends.names() and name not in usable and "llamacpp" in usable
    assert name in backends.broken()[name] and not {"llamacpp", "fake"} & backends.broken().keys()
    assert any(name in sentence for sentence in plan.left_out("cpu"))
    with pytest.raises(ValueError, match=name):
        plan.load({"engines": name}) and plan.engines(plan.load({"engines": name}), "cpu")


def test_an_option_may_need_an_environment_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(backends, "ROOT", tmp_path)
    engine = backends.get("transformers")
    assert engine.environment() is None and engine.environment("cpu", "gptq-int4") == "gptq"
    assert engine.missing() is None
    assert "make study ENGINES=transformers/gptq-int4" in engine.missing("cpu", "gptq-int4")
    assert "gptq-int4" not in engine.ready("cpu") and any("gptq" in why for why in engine.absent("cpu"))
    (tmp_path / ".venvs" / "gptq").mkdir(parents=True)
    (tmp_path / ".venvs" / "gptq" / "ready").touch()
    assert "gptq-int4" in engine.ready("cpu") and not any("gptq" in why for why in engine.absent("cpu"))


@pytest.mark.check
def test_the_default_environment_makes_the_checkpoints(tmp_path, monkeypatch):
    """An engine's own environment may lack what that takes: with it alone, `make study ENGINES=vllm` in a fresh clone would fail."""
    default = tmp_path / ".venv" / "bin" / "python"
    default.parent.mkdir(parents=True)
    default.write_text(f'#!/bin/sh\ntouch {tmp_path}/asked\nexec {sys.executable} "$@"\n')
    default.chmod(0o755)
    monkeypatch.setattr(processes, "ROOT", tmp_path)
    sizes = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "layers": 1,
        "attention_heads": 1,
        "kv_heads": 1,
        "head_dim": 8,
        "vocab_size": 300,
    }
    row = pd.Series(
        {
            "architecture": "llama",
            "context_tokens": 64,
            "rope_theta": 10000,
            "tied_embeddings": True,
            **sizes,
        },
        name="tiny",
    )
    random_weights.random(row, tmp_path / "checkpoint")
    assert (tmp_path / "asked").exists() and (tmp_path / "checkpoint" / "model.safetensors").exists()


def test_sizes_of_a_shape_are_whole_numbers():
    """As floats no configuration takes them, and `shape:` makes nothing."""
    for row in inputs.table("models").to_dict("records"):
        assert all(type(row[name]) is int for name in [*metrics.SHAPE, "context_tokens"]), row["model"]


def test_every_installed_engine_was_found():
    assert {"transformers", "ctranslate2", "llamacpp", "openvino", "onnxruntime"} <= {
        name for name, _ in INSTALLED
    }


def test_an_engine_named_like_a_function_of_the_package_is_refused_before_it_replaces_it():
    with pytest.raises(ValueError, match="call the engine's file otherwise"):
        backends.get("usable")
    assert callable(backends.usable)
