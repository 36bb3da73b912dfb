"""Names, units and tables as people write them: devices, formats, models, numbers, Markdown, JSON."""

import json

import pytest

from llm_measured.audit import catalog, importers
from llm_measured.audit.checks import answers
from llm_measured.audit.importers import numerals
from llm_measured.audit.quantities import meaning


@pytest.mark.parametrize(
    ("name", "gpu", "bandwidth"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80 GB", 2039),
        ("A100 80G", "A100 80 GB", 2039),  # SXM, or PCIe with 1935: the faster
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40 GB", 1555),
        ("8x NVIDIA H100 80GB HBM3", "H100 SXM", 3350),
        ("H100", "H100", 3938),  # which variant is not said: NVL is the fastest
        ("NVIDIA GeForce RTX 4090", "RTX 4090", 1008),
        ("Tesla V100-SXM2-16GB", "V100 SXM2 16 GB", 900),
        ("AMD Instinct MI300X", "Instinct MI300X", 5300),
        ("Apple M1 Pro", "Apple M1 Pro", 200),
        ("Apple M4", "Apple M4", 120),
        ("NVIDIA L4", "L4", 300),
        ("Jetson AGX Orin 64GB", "Jetson AGX Orin 64 GB", 204.8),
    ],
)
def test_a_device_is_known_by_the_names_that_people_use(name, gpu, bandwidth):
    found = catalog.device(name)
    assert (found["gpu"], found["bandwidth_bytes_per_s"]) == (gpu, bandwidth * 1e9)


@pytest.mark.parametrize("name", ["AMD EPYC 9654 96-Core", "Intel(R) Core(TM) i9-13900K", "", "x" * 100_000])
def test_no_device_is_made_up(name):
    assert catalog.device(name) is None


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("torch.float16", 16),
        ("TheBloke/Llama-2-7B-GPTQ", 4),
        ("Q4_K_M", 4.5),
        ("gptq float16", 4),
        ("FP8 bfloat16", 8),
        ("kv-cache fp8", None),
        ("bf16, kv_cache_dtype=fp8", 16),
        ("kv" * 50_000, None),
    ],
)
def test_the_format_of_the_weights_is_neither_the_caches_nor_the_activations(text, bits):
    assert catalog.bits(text) == bits


def test_a_mixture_of_experts_reads_what_a_token_passes():
    sizes = {
        name: catalog.model(name)["step_parameters"]
        for name in ("openai/gpt-oss-120b", "deepseek-ai/DeepSeek-R1")
    }
    assert all(size < 40e9 for size in sizes.values())
    assert catalog.model("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B")["step_parameters"] > 25e9


def numbers(*texts, comma=False, word="output_tokens_per_s"):
    import pandas as pd

    found, units, _, _ = numerals.numbers(pd.Series(texts), "," if comma else ".", word)
    return found.tolist(), units.tolist()


def test_numbers_with_units_spreads_and_thousands():
    found, _ = numbers("191.0 ± 0.2", "1,234.5", "1.5k tok/s", "~40", "1e3")
    assert found == [191.0, 1234.5, 1500, 40, 1000]
    assert numbers("12 ms", "8.1s", word="ttft_s") == ([12, 8.1], [1e-3, 1])
    assert numbers("12,5", "1200,25", comma=True)[0] == [12.5, 1200.25]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("TPS/user", "request_tokens_per_s"),
        ("Throughput (tokens/s/GPU)", "output_tokens_per_s_per_device"),
        ("Total Token Throughput (tok/s)", "total_tokens_per_s"),
        ("Input throughput (tok/s)", "prompt_tokens_per_s"),
        ("System TPS", "output_tokens_per_s"),
        ("Generation speed (t/s)", "output_tokens_per_s"),
        ("Request throughput (req/s)", "requests_per_s"),
        ("Achieved req/s", "requests_per_s"),
        ("p99 tok/s/user", "request_tokens_per_s_p99"),
        ("prompt eval (tokens/s)", "prompt_tokens_per_s"),
        ("tg128", "decode_rate"),
        ("pp512 t/s", "prompt_tokens_per_s"),
        ("TPOT (ms/token)", "tpot_s"),
        ("avg. TTFT (ms)", "ttft_mean_s"),
        ("99% TTFT [ms]", "ttft_p99_s"),
        ("Throughput tokens/s (total)", None),  # of all tokens, or of all requests
        ("Peak throughput (tok/s)", "peak_output_tokens_per_s"),
        ("Input and output tokens/s", None),
        ("Total tokens/s per GPU", None),
    ],
)
def test_a_rate_is_known_by_the_parts_of_its_name(name, word):
    found = meaning(name)
    assert (found and found[0]) == word


def test_a_table_that_names_the_unit_of_each_row(tmp_path):
    file = tmp_path / "mlperf.csv"
    file.write_text(
        "Organization,Accelerator,# of Accelerators,Model MLC,Scenario,Result,Units\n"
        'N,NVIDIA H100-SXM-80GB,8,llama2-70b-99,Offline,"34,988.5",Tokens/s\n'
        "N,NVIDIA H100-SXM-80GB,8,llama2-70b-99,Server,91.5,Queries/s\n"
    )
    levels = importers.read(file).levels
    assert (
        levels["output_tokens_per_s"].tolist()[0] == 34988.5 and levels["requests_per_s"].tolist()[1] == 91.5
    )
    assert levels["tensor_parallel"].tolist() == [8, 8] and levels["output_tokens_per_s"].isna().tolist()[1]
    file.write_text("Model,Result,Units\nllama2-70b,99.9,ROUGE1\n")
    with pytest.raises(ValueError, match="ROUGE1"):
        importers.read(file)


def test_successes_that_are_counted_are_no_requests_of_their_own(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("Concurrent users,Avg TTFT,Success,Errors\n4,0.2s,300,2\n8,0.3s,290,10\n")
    read = importers.read(file)
    assert read.levels["requests"].tolist() == [300, 290] and read.levels["failed"].tolist() == [2, 10]
    assert read.requests.empty


WIDE = "Engine,float32,float16,int8\nvLLM,90,90.5,114\nTensorRT-LLM,104.1,191.0,316.8\n"
MARKDOWN = """# Results

| Engine | Model | GPU | dtype | batch size | **tokens/s** |
|---|:-:|---|---|--:|--:|
| TensorRT-LLM | Llama-2-7b | A100 80G | fp16 | 1 | **191.0** |

| other | table |
"""
SEMICOLON = "model;gpu;dtype;batch;TPOT [ms]\nLlama-2-7B;A100-80GB;fp16;1;5,24\n"
NESTED = {
    "config": {"model": "Llama-2-7B", "gpu": "A100 80G"},
    "results": [{"dtype": "fp16", "batch_size": 1, "tokens_per_second": 191.0}],
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("wide.csv", WIDE),
        ("table.md", MARKDOWN),
        ("semicolon.csv", SEMICOLON),
        ("nested.json", json.dumps(NESTED)),
    ],
)
def test_a_table_of_any_kind_shows_what_is_beyond_the_device(tmp_path, name, text):
    from llm_measured.audit import report

    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    findings, _, unread = report.collect([file], model="Llama-2-7B", gpu="A100-80GB", tensor_parallel=1)
    assert not unread and findings[0].check == "bandwidth_beyond_device"


def test_json_lines_too_long_to_be_seen_at_first_are_records(tmp_path):
    file = tmp_path / "bench.jsonl"
    row = {"mean_ttft_ms": 20, "request_throughput": 1, "output_throughput": 100, "completed": 3}
    row |= {"input_lens": [1] * 3, "output_lens": [9] * 3, "ttfts": [0.02] * 3, "itls": [[0.01] * 8] * 3}
    row["generated_texts"] = ["a" * 40_000] * 3
    file.write_text((json.dumps(row) + "\n") * 2)
    read = importers.read(file)
    assert (
        len(read.levels) == 2
        and len(read.requests) == 6
        and read.requests["answer"].str.len().max() <= 40_000
    )


TRT = {
    "engine": {
        "model": "meta-llama/Llama-3.1-8B",
        "version": "1.0",
        "backend": "Pytorch",
        "dtype": "bfloat16",
        "quantization": "FP8",
    },
    "world_info": {"tp_size": 2, "world_size": 2},
    "request_info": {"num_requests": 500, "avg_input_length": 1000.0, "avg_output_length": 100.0},
    "performance": {
        "total_latency_ms": 5e4,
        "request_throughput_req_s": 10.0,
        "system_output_throughput_tok_s": 1000.0,
    },
    "streaming_metrics": {"avg_ttft_ms": 90.0, "avg_tpot_ms": 8.0, "ttft_percentiles": {"p99": 200.0}},
}


def test_trtllm_bench_says_its_device_and_an_answer_in_one_lump_is_no_cached_one(tmp_path):
    lump = TRT | {"machine": {"name": "NVIDIA GeForce RTX 4070 Ti", "memory.total": 11.6}}
    lump["performance"] = TRT["performance"] | {
        "request_latency_percentiles_ms": {"p50": 160.4, "minimum": 119.0, "maximum": 507.0}
    }
    times = {"p50": 3.47, "minimum": 0.00375, "maximum": 11.9}
    lump["streaming_metrics"] = TRT["streaming_metrics"] | {"tpot_percentiles": times}
    file = tmp_path / "report.json"
    file.write_text(json.dumps(lump))
    read = importers.read(file)
    assert read.levels["gpu"].tolist() == ["NVIDIA GeForce RTX 4070 Ti"]
    assert answers.not_streamed(read).sentence.startswith("Some answers came in one lump")
    assert answers.cached_answer_in_mean(read) is None
    lump["performance"]["request_latency_percentiles_ms"]["minimum"] = 0.2
    file.write_text(json.dumps(lump))
    cached = importers.read(file)
    assert answers.not_streamed(cached) is None
    assert "shortest TPOT" in answers.cached_answer_in_mean(cached).sentence


def test_trtllm_bench(tmp_path):
    file = tmp_path / "report.json"
    file.write_text(json.dumps(TRT))
    level = importers.read(file).levels.iloc[0]
    assert (level["tool"], level["tensor_parallel"], level["requests"]) == ("trtllm-bench", 2, 500)
    assert (level["ttft_mean_s"], level["ttft_p99_s"], level["tpot_mean_s"]) == (0.09, 0.2, 0.008)
    assert catalog.bits(level["weights"]) == 8
