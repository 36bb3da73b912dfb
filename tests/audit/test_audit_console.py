"""Text that tools print and people paste, and the other formats that are read by their names."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from bench.paths import ROOT
from llm_measured.audit import importers, report
from llm_measured.audit.checks.finding import ALARMS
from llm_measured.audit.importers import console, text_tables

SAMPLES = ROOT / "data" / "audits" / "samples"
E2E_S = 5.431908  # of the first answer in ollama-verbose.txt
READ = yaml.safe_load(Path(__file__).with_name("samples.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "tool", "figures"), [tuple(one.values()) for one in READ], ids=lambda one: str(one)[:30]
)
def test_what_tools_print_is_read_and_is_right(name, tool, figures):
    level = importers.read(SAMPLES / name).levels.iloc[0]
    assert level["tool"] == tool
    assert {column: round(level[column], 8) for column in figures} == figures
    assert [f for f in report.collect([SAMPLES / name])[0] if f.kind in ALARMS] == []


def test_yaml_is_data_and_no_more(tmp_path):
    file = tmp_path / "report.yaml"
    file.write_text("!!python/object/apply:os.system [exit 1]")
    with pytest.raises(ValueError, match="begins as YAML but does not parse"):
        importers.read(file)
    file.write_text("apiVersion: v1\nkind: Service\n")
    with pytest.raises(ValueError, match="of no known format"):
        importers.read(file)
    file.write_text("only words")
    with pytest.raises(ValueError, match="of no known format"):
        importers.read(file)


def test_each_answer_of_a_session_is_a_level_of_its_model():
    levels = importers.read(SAMPLES / "ollama-verbose.txt").levels
    assert levels["e2e_s"].tolist() == [E2E_S, 62.5] and set(levels["model"]) == {"llama3.1:8b"}


def test_several_results_in_one_log_are_several_levels(tmp_path):
    one = (SAMPLES / "vllm-bench-serve.txt").read_text()
    file = tmp_path / "log.txt"
    file.write_text(
        one + "\n" + one.replace("16", "32", 1).replace("Maximum request concurrency:             16", "")
    )
    assert len(importers.read(file).levels) == 2


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        (
            "Throughput: 12.30 requests/s, 5678.90 total tokens/s, 2345.60 output tokens/s",
            {"requests_per_s": 12.3, "output_tokens_per_s": 2345.6},
        ),
        ("Avg latency: 1.25 seconds", {"e2e_mean_s": 1.25}),
        (
            "llama_perf_context_print: prompt eval time =     444.18 ms /   800 tokens (    0.56 ms per token,  1801.07 "
            "tokens per second)",
            {"prefill_s": 0.44418, "prompt_tokens": 800, "prompt_tokens_per_s": 1801.07},
        ),
        ("[BENCHMARK] total_latency(ms) 1234.00", {}),
        ("[BENCHMARK] token_throughput(token/sec): 2345.0", {"output_tokens_per_s": 2345.0}),
    ],
)
def test_other_lines_that_tools_print(line, figures):
    found = next((level for _, level in console.blocks(line)), {})
    assert {column: found.get(column) for column in figures} == figures


def test_a_genai_perf_file_with_a_first_token_after_the_last_ends_in_a_finding(tmp_path):
    text = (
        "Metric,avg,min,max,p99,p90,p50\nTime To First Token (ms),5000,4000,6000,6000,5900,5000\n"
        "Request Latency (ms),2000,1900,2100,2100,2090,2000\nInter Token Latency (ms),-10,-11,-9,-9,-9,-10\n"
        "Output Sequence Length (tokens),150,150,150,150,150,150\n"
    )
    file = tmp_path / "genai.csv"
    file.write_text(text)
    findings, *_ = report.collect([file])
    assert findings[0].check == "times_backwards" and not any("broke off" in f.sentence for f in findings)


def test_tables_are_found_in_every_form_and_nothing_else_is():
    markdown = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    grid = "+---+---+\n| a | b |\n+===+===+\n| 1 | 2 |\n+---+---+\n"
    bare = "a | b\n--- | ---\n1 | 2\n"
    for text in (markdown, grid, bare):
        assert text_tables.tables(text) == [[["a", "b"], ["1", "2"]]]
    assert text_tables.tables("use a | b to pipe\nand c | d\n") == []


def test_a_hostile_text_is_bounded(tmp_path):
    file = tmp_path / "long.md"
    file.write_text("| a | b |\n|---|---|\n" + "|" * 5_000 + "\n" + "x: " * 5_000 + "\n" + "[" * 5_000)
    with pytest.raises(ValueError, match="no known format"):
        importers.read(file)


def test_ollamas_api_counts_nanoseconds(tmp_path):
    file = tmp_path / "answer.json"
    file.write_text(
        '{"model": "llama3.1:8b", "total_duration": 5431908000, "load_duration": 21405100, "prompt_eval_count": 17, '
        '"prompt_eval_duration": 62500000, "eval_count": 214, "eval_duration": 5350000000}'
    )
    level = importers.read(file).levels.iloc[0]
    assert np.allclose(level[["e2e_s", "prefill_s", "decode_s"]].astype(float), [5.431908, 0.0625, 5.35])
