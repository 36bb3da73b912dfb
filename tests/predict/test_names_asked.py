"""Raw names as people write them: each is placed right, or refused with a sentence that says what is missing."""

from pathlib import Path

import pandas as pd
import pytest

from llm_measured.core import names
from llm_measured.predict import machines, question, step


def rows(name):
    """A row of a CSV beside this file for each raw name, with what it means; empty is None."""
    table = pd.read_csv(
        Path(__file__).with_name(f"{name}.csv"),
        keep_default_na=False,
        na_values={column: [""] for column in ("known", "size", "active")},
    )
    return table.astype(object).where(table.notna(), None).values.tolist()


# Bandwidths (GB/s) are those of the slowest and of the fastest variant that a name may mean.
ACCELERATORS, MODELS, FORMATS, ENGINES = map(rows, ("accelerators", "models", "formats", "engines"))
BESIDE = {"model": "llama-3.2-1b", "weights_format": "int4", "engine": "any"}


@pytest.mark.parametrize("raw, name, kind, low, high, count", ACCELERATORS)
def test_an_accelerator_is_placed(raw, name, kind, low, high, count):
    found = machines.machine(raw)
    assert (found.name, found.kind, found.low / 1e9, found.high / 1e9, found.count) == (
        name,
        kind,
        low,
        high,
        count,
    )
    # Of several variants the middle of the bandwidths, as a factor.
    setup = question.read(pd.DataFrame([BESIDE | {"accelerator": raw}])).iloc[0]
    assert setup["bandwidth"] / 1e9 == pytest.approx((low * high) ** 0.5)


@pytest.mark.parametrize(
    "raw, missing",
    [
        ("GTX 1650 Mobile", "differs by machine"),
        ("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "a part of an accelerator"),
        ("Framework Desktop", "No accelerator is called"),
        ("Groq LPU", "No accelerator is called"),
        ("GPU", "No accelerator is called"),
    ],
)
def test_an_accelerator_that_cannot_be_placed_is_refused_with_what_is_missing(raw, missing):
    said = machines.machine(raw)
    assert isinstance(said, str) and missing in said and said.endswith(".")


@pytest.mark.parametrize("raw, known, size, active", MODELS)
def test_a_model_is_placed(raw, known, size, active):
    found = names.model(raw)
    assert found.candidates[:1] == ((known,) if known else ())
    if not known:
        assert (found.parameters_b, found.active_b) == (size, active)
    # What Hermes fine-tuned is as large as the model that its name says.
    assert found.estimated == (known is None or "Hermes" in raw)


@pytest.mark.parametrize("raw", ["llama", "my-model", "Mystery-8x3B", "v0.3"])
def test_a_model_without_a_size_is_refused(raw):
    with pytest.raises(names.UnknownName, match="no size"):
        names.model(raw)


@pytest.mark.parametrize("raw, bits, scheme", FORMATS)
def test_a_format_is_placed(raw, bits, scheme):
    found = names.number_format(raw, "Llama-3.1-8B", "any")
    assert (found.least_bits, found.scheme, found.assumed) == (bits, scheme, False)


@pytest.mark.parametrize("raw", ["bitsandbytes", "GGUF", "compressed-tensors", "HQQ", "modelopt", "purple"])
def test_a_format_that_names_no_bits_is_refused(raw):
    with pytest.raises(names.UnknownName, match="number format"):
        names.number_format(raw, "Llama-3.1-8B", "vllm")


@pytest.mark.parametrize(
    "raw, model, engine, bits",
    [
        ("auto", "Qwen2.5-7B-Instruct-AWQ", "vllm", 4),
        ("auto", "Llama-3.1-8B", "vllm", 16),
        ("none", "openai/gpt-oss-20b", "vllm", 4.25),
        ("", "DeepSeek-R1", "sglang", 8),
        ("", "DeepSeek-R1-Distill-Qwen-7B", "vllm", 16),
        ("", "gemma-3-12b-it-Q4_K_M.gguf", "llama.cpp", 4.5),
        # Files of gpt-oss "in F16" or Q8_0 hold the experts as they are published.
        ("F16", "gpt-oss-20b", "llama.cpp vulkan", 4.25),
        ("Q8_0", "gpt-oss-20b", "llama.cpp", 4.25),
        ("bf16", "gpt-oss-20b", "vllm", 16),
    ],
)
def test_a_format_that_nobody_chose_is_the_checkpoint_s(raw, model, engine, bits):
    assert names.number_format(raw, model, engine).least_bits == bits


def test_a_format_that_the_engine_alone_says_is_assumed_or_refused():
    assert names.number_format("", "Llama-2-7b-hf", "vllm").assumed
    with pytest.raises(names.UnknownName):
        names.number_format("", "Llama-2-7b", "llama.cpp")


@pytest.mark.parametrize("raw, engine, family", ENGINES)
def test_an_engine_is_placed(raw, engine, family):
    found = question.read(pd.DataFrame([{"bandwidth_gb_per_s": "900"} | BESIDE | {"engine": raw}])).iloc[0]
    assert (found["engine"], found["engine_family"]) == (engine, family)


def test_every_row_of_raw_names_has_a_bound_or_a_sentence():
    rows = [
        (card, model, form, engine)
        for (card, *_), (model, *_) in zip(ACCELERATORS * 2, MODELS * 3)
        for (form, *_), (engine, *_) in zip(FORMATS[::6], ENGINES[::5])
    ]
    table = question.read(pd.DataFrame(rows, columns=question.ASKED))
    refused = table["refused"] != ""
    assert table.loc[refused, "refused"].str.endswith(".").all()
    assert table.loc[refused, "refused"].str.contains("No published row has").all()
    assert (step.least(table[~refused]) > 0).all() and (~refused).sum() > 100


def test_models_have_kinds_of_layers_and_engines_kinds():
    models = ("qwen3.6-27b", "qwen3-next-80b-a3b", "qwen3-8b", "gemma-3-4b")
    layers = ["linear attention", "linear attention", "plain", "sliding windows, large vocabulary"]
    assert [machines.model_kind(model) for model in models] == layers
    engines = [machines.engine_kind(family) for family in ("transformers", "vllm", "any")]
    assert engines == ["framework", "dedicated", "any"]


def test_a_whole_title_as_one_argument_is_read_and_memory_that_nobody_stated_is_said():
    asked = pd.DataFrame(
        [
            {"accelerator": "2x3090 70B exl2 4.0bpw"},
            {"accelerator": "M3", "model": "gpt-oss-20b", "weights_format": "MXFP4"},
            {"accelerator": "M3 16GB", "model": "gpt-oss-20b", "weights_format": "MXFP4"},
            {"accelerator": "MI50 16GB", "model": "qwen3-14b", "weights_format": "Q4_K_M"},
        ]
    ).fillna("")
    found = question.read(asked)
    assert (found["refused"] == "").all()
    assert found[["machine", "accelerators", "parameters", "bits", "engine"]].iloc[0].to_list() == [
        "rtx-3090", 2, 70e9, 4, "exllama"
    ]  # fmt: skip
    told = found["guessed"].map("; ".join)
    assert "if it has 24 GB" in told[1] and "unsure" in told[1] and "if it has" not in told[2]
    assert found.loc[3, "memory_bytes"] == 16 * 2**30
