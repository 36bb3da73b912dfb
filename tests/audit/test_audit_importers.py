"""Every importer on a file that its tool wrote, or on the documented form."""

import json

import numpy as np
import pytest

from bench.paths import ROOT
from llm_measured.audit import frame, importers
from llm_measured.audit.importers import bounds, content
from llm_measured.audit.quantities import meaning

SAMPLES = ROOT / "data" / "audits" / "samples"


@pytest.mark.parametrize(
    ("name", "tool", "requests"),
    [
        ("vllm-bench-serve.json", "vllm bench", 24),
        ("guidellm.json", "GuideLLM", 24),
        ("aiperf.json", "AIPerf / GenAI-Perf", 0),
        ("aiperf.csv", "AIPerf / GenAI-Perf", 0),
        ("aiperf-records.jsonl", "AIPerf / GenAI-Perf", 24),
    ],
)
def test_a_file_of_each_load_client_says_what_the_reference_server_did(name, tool, requests):
    read = importers.read(SAMPLES / name)
    rows = frame.rows(read)
    assert (read.levels["tool"] == tool).all() and len(read.requests) == requests
    assert read.levels["requests"].iloc[0] == 24
    assert np.allclose(rows["ttft_s"].median(), 0.05, rtol=0.25) and np.allclose(
        rows["tpot_s"].dropna().median(), 0.01, rtol=0.1
    ) | (np.allclose(rows["itl_s"].median(), 0.01, rtol=0.1))
    assert rows["output_tokens"].median() == 16


@pytest.mark.parametrize(
    "name", ["llama-bench.json", "llama-bench.jsonl", "llama-bench.csv", "llama-bench.md"]
)
def test_llama_bench_has_a_level_per_test_in_each_of_its_formats(name):
    read = importers.read(SAMPLES / name)
    assert list(read.levels["name"]) == ["pp", "tg"]
    assert read.levels["prompt_tokens_per_s"].notna().tolist() == [True, False]
    generated = read.levels.iloc[1]
    assert generated["output_tokens"] == 32 and np.isclose(
        generated["tpot_mean_s"], 1 / generated["output_tokens_per_s"]
    )
    assert 90e6 < generated["model_bytes"] < 100e6 and np.isclose(
        generated["model_parameters"], 134.5e6, rtol=1e-3
    )


def test_genai_perf_csv_with_thousands_and_no_units_in_counts(tmp_path):
    file = tmp_path / "profile_export_genai_perf.csv"
    file.write_text(
        "Metric,avg,min,max,p99,p95,p90,p75,p50,p25\nTime To First Token "
        '(ms),"1,146.31",249.48,"3,485.23",3457.97,1,1,1,640.07,286.52\n'
        'Request Latency (ms),"6,406.20",1,1,1,1,1,1,"5,690.23",1\nInter Token Latency '
        "(ms),30.35,27.59,35.60,35.23,33.88,32.53,31.05,30.13,29.04\n"
        "Output Sequence Length (tokens),174.45,1,1,1,1,1,1,174.00,1\n\nMetric,Value\nOutput Token "
        "Throughput (per sec),261.25\n"
        "Request Throughput (per sec),1.50\nRequest Count (count),40.00\n"
    )
    level = importers.read(file).levels.iloc[0]
    assert level["ttft_mean_s"] == 1.14631 and level["e2e_p50_s"] == 5.69023 and level["requests"] == 40
    assert np.isclose(level["tpot_mean_s"], 0.03035) and level["output_tokens_per_s"] == 261.25


def test_inference_perf_and_its_schedule_delay(tmp_path):
    file = tmp_path / "stage_3_lifecycle_metrics.json"
    spread = {"mean": 11.4, "median": 12.6, "p99": 12.8}
    file.write_text(
        json.dumps(
            {
                "load_summary": {
                    "count": 7786,
                    "schedule_delay": {"mean": 65.8, "p99": 137.6},
                    "requested_rate": 129.8,
                    "achieved_rate": 39.3,
                },
                "successes": {
                    "count": 7786,
                    "latency": {"request_latency": spread, "time_to_first_token": None},
                    "throughput": {"requests_per_sec": 37.6, "output_tokens_per_sec": 4825.5},
                    "output_len": {"mean": 128.2},
                },
                "failures": {"count": 0},
            }
        )
    )
    level = importers.read(file).levels.iloc[0]
    assert (level["late_mean_s"], level["e2e_mean_s"], level["request_rate"], level["output_tokens"]) == (
        65.8,
        11.4,
        129.8,
        128.2,
    )


def test_vllm_latency_and_throughput(tmp_path):
    latency, throughput = tmp_path / "latency.json", tmp_path / "throughput.json"
    latency.write_text(
        json.dumps(
            {"avg_latency": 1.2, "latencies": [1.1, 1.3], "percentiles": {"50": 1.2, "99": 1.3, "10": 1.1}}
        )
    )
    throughput.write_text(
        json.dumps(
            {
                "elapsed_time": 10,
                "num_requests": 100,
                "total_num_tokens": 5000,
                "requests_per_second": 10,
                "tokens_per_second": 500,
            }
        )
    )
    assert importers.read(latency).levels.iloc[0][["e2e_mean_s", "e2e_p99_s", "requests"]].tolist() == [
        1.2,
        1.3,
        2,
    ]
    assert importers.read(throughput).levels.iloc[0]["total_tokens_per_s"] == 500


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("TTFT p99 (ms)", ("ttft_p99_s", 1e-3)),
        ("Median TPOT (ms)", ("tpot_p50_s", 1e-3)),
        ("request_latency_s", ("e2e_s", 1)),
        ("Tokens/sec", ("output_tokens_per_s", 1)),
        ("isl", ("prompt_tokens", 1)),
        ("Precision", ("weights", 1)),
        ("tpot", ("tpot_s", None)),
        ("mean_request_tokens_per_s", ("request_tokens_per_s_mean", 1)),
        ("colour", None),
    ],
)
def test_what_a_column_means(name, word):
    assert meaning(name) == word


def test_a_mapping_serves_for_names_that_mean_nothing(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("maschine,tempo\nH100 SXM,100\n")
    with pytest.raises(ValueError, match="no known format"):
        importers.read(file)
    level = importers.read(file, {"maschine": "gpu", "tempo": "output_tokens_per_s"}).levels.iloc[0]
    assert level["gpu"] == "H100 SXM" and level["output_tokens_per_s"] == 100
    with pytest.raises(ValueError, match="mapping names speed"):
        importers.read(file, {"speed": "output_tokens_per_s"})


def test_rows_of_the_same_conditions_are_requests_and_others_are_levels(tmp_path):
    levels, requests = tmp_path / "levels.csv", tmp_path / "requests.csv"
    levels.write_text(
        "gpu,concurrency,ttft_ms,tpot_ms\n" + "".join(f"H100,{2**k},20,{8 + k}\n" for k in range(6))
    )
    requests.write_text(
        "gpu,concurrency,ttft_ms,tpot_ms\n" + "".join(f"H100,4,{20 + k},8\n" for k in range(6))
    )
    assert (len(importers.read(levels).levels), len(importers.read(levels).requests)) == (6, 0)
    assert (len(importers.read(requests).levels), len(importers.read(requests).requests)) == (1, 6)


def test_a_large_json_is_read_in_a_stream_like_a_small_one(monkeypatch):
    whole = importers.read(SAMPLES / "vllm-bench-serve.json")
    monkeypatch.setattr(content, "WHOLE_BYTES", 0)
    streamed = importers.read(SAMPLES / "vllm-bench-serve.json")
    numbers = ["ttft_s", "e2e_s", "itl_s", "gaps", "output_tokens", "sent_s"]
    assert np.allclose(whole.requests[numbers], streamed.requests[numbers])
    monkeypatch.setattr(bounds, "ITEMS", 10)
    cut = importers.read(SAMPLES / "vllm-bench-serve.json")
    assert len(cut.requests) == 10 and "first 10 items" in cut.notes[0][1]
