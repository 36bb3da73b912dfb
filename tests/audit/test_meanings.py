"""What names, headings and numbers mean (meanings.csv), and files that are large, damaged or hostile."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import llm_measured.audit
from bench.paths import ROOT
from llm_measured.audit import catalog, importers
from llm_measured.audit.importers import content, numerals, own, stream
from llm_measured.audit.quantities import meaning

SAMPLES = ROOT / "data" / "audits" / "samples"


def device(text):
    found = catalog.device(text)
    return f"{found['gpu']} {found['bandwidth_bytes_per_s'] / 1e9:g}" if found else ""


def bits(text):
    found = catalog.bits(text)
    return f"{found:g}" if found else ""


def column(text):
    found = meaning(text)
    return f"{found[0]} {'?' if found[1] is None else f'{found[1]:g}'}" if found else ""


def number(texts):
    values = pd.Series(texts.split("|"))
    decimals, _ = numerals.of_table({"a": values}, comma_file=False)
    return " ".join(f"{one:.9g}" for one in numerals.numbers(values, decimals["a"], "requests_per_s")[0])


with Path(__file__).with_name("meanings.csv").open(encoding="utf-8", newline="") as lines:
    MEANINGS = list(csv.reader(lines))[1:]


@pytest.mark.parametrize(("of", "text", "means"), MEANINGS)
def test_a_text_means(of, text, means):
    if of == "billions":  # that a token passes; names round up
        assert 0.85 * float(means) < catalog.model(text)["step_parameters"] / 1e9 < 1.05 * float(means)
    else:
        assert {"device": device, "bits": bits, "column": column, "number": number}[of](text) == means


def test_a_mapping_and_facts_name_columns_that_there_are(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("maschine,tempo\nH100 SXM,100\n")
    level = importers.read(file, {"maschine": "gpu", "tempo": "output_tokens_per_s"}).levels.iloc[0]
    assert level["gpu"] == "H100 SXM" and level["output_tokens_per_s"] == 100
    with pytest.raises(ValueError, match="mapping names speed"):
        importers.read(file, {"speed": "output_tokens_per_s"})
    with pytest.raises(ValueError, match="colour is no column"):
        llm_measured.audit.audit([SAMPLES / "aiperf.csv"], colour="red")


def test_a_large_json_is_read_in_a_stream_like_a_small_one(monkeypatch):
    whole = importers.read(SAMPLES / "vllm-bench-serve.json")
    monkeypatch.setattr(content, "WHOLE_BYTES", 0)
    streamed = importers.read(SAMPLES / "vllm-bench-serve.json")
    numbers = ["ttft_s", "e2e_s", "itl_s", "gaps", "output_tokens", "sent_s"]
    assert np.allclose(whole.requests[numbers], streamed.requests[numbers])
    monkeypatch.setattr(stream, "ITEMS", 10)
    cut = importers.read(SAMPLES / "vllm-bench-serve.json")
    assert len(cut.requests) == 10 and "first 10 items" in cut.notes[0][1]


def test_json_lines_too_long_to_be_seen_at_first_are_records(tmp_path):
    file = tmp_path / "bench.jsonl"
    row = {"mean_ttft_ms": 20, "request_throughput": 1, "output_throughput": 100, "completed": 3}
    row |= {"input_lens": [1] * 3, "output_lens": [9] * 3, "ttfts": [0.02] * 3, "itls": [[0.01] * 8] * 3}
    file.write_text((json.dumps(row | {"generated_texts": ["a" * 40_000] * 3}) + "\n") * 2)
    read = importers.read(file)
    assert (len(read.levels), len(read.requests)) == (2, 6)


def test_a_text_that_two_models_of_this_study_read_is_no_copied_answer():
    """Both quality runs read the same texts; the answers of a run that wrote them are still compared."""
    folder = ROOT / "_llama-inference" / "ctranslate2"
    read = lambda file: own.load(content.Content(file, None), file.name).requests["answer"]  # noqa: E731
    two = [read(file) for file in folder.glob("sizes_quality-qwen*.csv")]
    assert len(two) == 2 and all((answers.fillna("") == "").all() for answers in two)
    (file,) = folder.glob("sizes-qwen2.5-coder-0.5b-int8-*-1.csv")
    assert (read(file).str.len() > 80).all()
