"""What the importers of cards, boards and laptops that people own read from excerpts of their files."""

import json

import pytest

from llm_measured.published import build, names
from llm_measured.published.sources import _llama_bench

HEAD = "| model | size | params | backend | ngl | fa | test | t/s |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
LLAMA = "| llama 7B Q4_0 | 3.56 GiB | 6.74 B | Vulkan | 100 | 1 |"


def rows_of(tmp_path, source, **files):
    for name, text in files.items():
        (tmp_path / name.replace("_DOT_", ".")).write_text(
            text if isinstance(text, str) else json.dumps(text)
        )
    found = build.imported(source, tmp_path)
    return names.looked_up(build.typed(found.rows)), found.left_out


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("tg128", {"output_tokens": "128", "context_depth": 0, "throughput_raw": 5}),
        ("pp512 @ d4096", {"input_tokens": "512", "context_depth": "4096", "prompt_tokens_per_s": 5}),
    ],
)
def test_a_test_of_llama_bench_says_prompt_or_answer_and_depth(test, expected):
    columns = _llama_bench.rate(test, 5, 0.1)
    assert {name: columns.get(name) for name in expected} == expected and columns["spread_kind"] == "sd"


def test_a_test_that_mixes_prompt_and_answer_is_none_of_llama_benchs_rates():
    assert _llama_bench.rate("pp512+tg128", 5) is None


def test_two_cards_under_a_heading_hold_layers_one_after_the_other(tmp_path):
    text = f"Commit: 34ce48d97\n### GPU 0 ONLY ###\n{HEAD}{LLAMA} tg128 | 129.21 ± 0.24 |\n"
    text += f"\n### DUAL GPU ###\n{HEAD}{LLAMA} tg128 | 105.00 ± 0.25 |\n{LLAMA} pp512 | 2043.45 ± 19.39 |\n"
    rows, _ = rows_of(tmp_path, "rx7900xtx-1337hero", **{"benchmark-results__v_DOT_txt": text})
    assert rows["accelerators"].to_list() == [1, 2, 2] and rows["pp"].to_list()[1:] == [2, 2]
    assert rows["throughput_raw"].to_list()[:2] == [129.21, 105.0] and rows["spread"].to_list()[0] == 0.24
    assert rows["prompt_tokens_per_s"].to_list()[2] == 2043.45 and set(rows["model"]) == {"llama-2-7b"}
    assert set(rows["engine_version"]) == {"34ce48d97"} and set(rows["accelerator"]) == {"rx-7900-xtx"}


def test_both_layouts_of_the_arc_files_are_read_and_power_of_idle_cards_is_not(tmp_path):
    old = {"model_id": "qwen3-5-27b", "quantization": "Q4_K_M", "gpu_count": 2, "date": "2026-04-06"}
    old |= {"results": {"tg128": {"tokens_per_sec": 11.26, "std_dev": 0.0}}}
    new = {"model_id": "gemma-4-31b", "quantization": "Q4_K_M", "gpu_count": 1, "date": "2026-04-21"}
    new |= {"pp_size": 16384, "tg_size": 128, "power": {"avg_watts_w": 448.61}, "cache_type_k": "q8_0"}
    new |= {"results": {"pp_tokens_per_sec": 268.5, "tg_tokens_per_sec": 20.03, "tg_std_dev": 0.01}}
    rows, _ = rows_of(tmp_path, "arc-b70-pmzfx", data__llm__a_DOT_json=old, data__llm__b_DOT_json=new)
    assert rows["throughput_raw"].dropna().to_list() == [11.26, 20.03] and rows["power_w"].isna().all()
    assert rows["prompt_tokens_per_s"].dropna().to_list() == [268.5] and rows["pp"].to_list()[0] == 2
    assert rows["input_tokens"].dropna().to_list() == [16384] and set(rows["accelerator"]) == {"arc-pro-b70"}


def test_a_shared_run_has_its_format_from_the_name_and_a_drafting_model_is_speculative(tmp_path):
    result = {"model": "Qwen3-8B-Q4_K_M.gguf", "provider": "llamacpp", "numRuns": 3, "avgTps": 94.0}
    result |= {"minTps": 90.0, "maxTps": 98.0, "avgTotalMs": 3000.0, "avgOutputTokens": 282.0}
    drafted = result | {"model": "qwen3.6:27b-mtp-q4_K_M", "provider": "ollama"}
    machine = {"hardwareName": "NVIDIA GeForce RTX 5070", "vramGb": 12.0, "gpuCount": 1, "os": "linux"}
    whole = {"submittedAtUnix": 1785258762, "tool": {"version": "1.1.3"}, "hardware": machine}
    rows, _ = rows_of(
        tmp_path,
        "llmfit-community",
        **{"llmfit-core__data__community__a_DOT_json": whole | {"results": [result, drafted]}},
    )
    assert rows["speculative"].to_list() == [None, "MTP"] and rows["spread"].to_list() == [8.0, 8.0]
    assert rows["weights_format"].str.upper().to_list() == ["Q4_K_M", "Q4_K_M"]
    assert set(rows["accelerator"]) == {"rtx-5070"} and set(rows["engine"]) == {"llama.cpp", "ollama"}
    assert set(rows["published_on"]) == {"2026-07-28"}


def test_speculative_streams_of_the_mi50_are_told_by_their_file_and_filling_a_context_is_left_out(tmp_path):
    point = {"concurrency": 1, "context_size": 512, "prompt_size": 512, "response_size": 128}
    point |= {
        "is_context_prefill_phase": False,
        "tg_throughput": {"mean": 39.9, "std": 0.9, "values": [1, 2]},
    }
    filling = point | {"is_context_prefill_phase": True}
    whole = {"model": "m", "timestamp": "2026-07-06 12:38:09Z", "prefix_caching_enabled": False}
    whole |= {"benchmarks": [point, filling]}
    rows, left = rows_of(
        tmp_path,
        "mi50-fank",
        **{"benchy-files__q_MTP_benchy_DOT_json": whole, "benchy-files__q_benchy_DOT_json": whole},
    )
    assert rows["speculative"].to_list() == ["MTP", None] and rows["context_depth"].to_list() == [512, 512]
    assert set(rows["prefix_cached"]) == {"no"} and len(left) == 2 and rows["caveat"].notna().all()


PRINTED = "total duration: 5m9s\nprompt eval count:    11 token(s)\nprompt eval rate:     18.43 tokens/s\n"
PRINTED += "eval count:           1526 token(s)\neval rate:            4.94 tokens/s\n"


def test_an_ollama_printout_has_its_machine_and_model_from_the_file(tmp_path):
    files = {
        "data__llama3.2_1b_2xXeon_DOT_md": PRINTED,
        "data__llama3.3_70b_2xP40_48gb_DOT_md": PRINTED,
        "data__Llama3.2_1b_4060Ti_16g_DOT_md": "## Metrics\n",
    }
    rows, left = rows_of(tmp_path, "ollama-dambergn", **files)
    assert rows["accelerator"].to_list() == ["xeon-e5-v4", "p40"] and rows["pp"].to_list()[1] == 2
    assert rows["model"].to_list() == ["llama-3.2-1b", "llama-3.3-70b"] and len(left) == 1
    assert set(rows["throughput_raw"]) == {4.94} and set(rows["prompt_tokens_per_s"]) == {18.43}
    assert set(rows["output_tokens"]) == {1526} and set(rows["input_tokens"]) == {11}


def test_the_power_mode_of_a_jetson_stands_in_its_folder(tmp_path):
    run = "campaigns__2026-08-05-runtime-power__runs__2026-08-05-agx-orin-64gb-jetpack-6.2.1-30w-stock__stdout_DOT_log"
    text = HEAD + "| llama 8B Q4_K - Medium | 4.58 GiB | 8.03 B | CUDA | 99 | 0 | tg128 | 8.09 ± 0.14 |\n"
    rows, _ = rows_of(tmp_path, "jetson-orin-jbecirovski", **{run: text + "\nbuild: a035a88 (1)\n"})
    assert rows["power_limit_w"].to_list() == [30] and rows["weights_format"].to_list() == ["Q4_K_M"]
    assert rows["model"].to_list() == ["llama-3.1-8b"] and "30w-stock" in rows["flags"].to_list()[0]
    assert rows["measured_on"].to_list() == ["2026-08-05"]


def test_a_setting_that_stands_twice_and_a_rate_against_its_time_carry_caveats(tmp_path):
    lines = "Topology,Precision,Input Size,1st latency (ms),2nd latency (ms),2nd token per sec\n"
    lines += "gemma-2-2b,INT4-MIXED,32,14.4,10,100\ngemma-2-2b,INT4-MIXED,1024,40,10,90\n"
    lines += "codellama-7b,INT4-MIXED,32,14.9,20,50\ncodellama-7b,INT4-MIXED,32,54.7,25,40\n"
    rows, _ = rows_of(tmp_path, "openvino-core-ultra", **{"llm_models_7-368H_DOT_csv": lines})
    assert rows["caveat"].notna().to_list() == [False, True, True, True]
    assert rows["caveat"].to_list()[1] == "rate and time of a token contradict each other"


def test_gaps_of_drafted_tokens_stay_empty_and_a_projected_series_is_no_measurement(tmp_path):
    point = {"concurrency": 2, "agg_tok_s": 38.4, "ttft_ms": {"p50": 580}, "itl_ms": {"p50": 139.2}}
    point |= {"samples": 18, "gpu": {"power_draw_w": 42.94}}
    series = {
        "id": "a",
        "model": "Qwen3.6-35B-A3B",
        "params_b": 35,
        "quant": "NVFP4 + DFlash",
        "backend": "vLLM",
    }
    series |= {"status": "measured", "weights_gb": 20, "config": {"speculative": "DFlash, 6 tokens"}}
    series |= {"points": [point]}
    plain = series | {"quant": "NVFP4", "config": {"speculative": "NONE (llama.cpp)"}, "model": "Ornith-35B"}
    run = {"id": "r", "timestamp": "2026-07-22T11:52:12Z", "sweep": {"measure_s": 120}}
    run |= {"hardware": {"name": "DGX Spark", "soc": "GB10"}}
    run |= {"workload": {"prompt_tokens": 1024, "output_tokens": 256}}
    whole = {"run": run, "series": [series, plain, series | {"status": "projected"}]}
    rows, left = rows_of(
        tmp_path, "dgx-spark-jvr0x", **{"results__a_DOT_json": whole, "results__sample-a_DOT_json": whole}
    )
    assert rows["speculative"].to_list() == ["DFlash", "none"] and len(left) == 1
    assert rows["itl_p50_ms"].isna().to_list() == [True, False] and set(rows["accelerator"]) == {"dgx-spark"}
    assert rows["active_b"].isna().to_list() == [False, True]
    assert rows["parameters_b"].isna().to_list() == [False, True]


def test_several_results_of_one_file_are_several_rows(tmp_path):
    result = {"model_id": "google/gemma-2-9b-it", "backend": "vllm", "gpu_name": "NVIDIA-GeForce-RTX-4090"}
    result |= {"gpu_count": "2", "request_rate": 16.0, "completed": 200, "output_throughput": 1352.9}
    result |= {"duration": 31.6, "total_input_tokens": 41000, "total_output_tokens": 42752}
    text = "\n".join(json.dumps(result | {"request_rate": rate}) for rate in (1.0, 16.0))
    rows, _ = rows_of(tmp_path, "iog-vllm", **{"results__vllm_a_DOT_json": text})
    assert rows["request_rate"].to_list() == [1, 16] and set(rows["workload"]) == {"open_loop"}
    assert set(rows["accelerators"]) == {2} and set(rows["accelerator"]) == {"rtx-4090"}


def test_a_cards_second_line_leaves_its_name_out(tmp_path):
    page = (
        "L213: ### LLaMA 3\nL217: | GPU | Model | tg 512 | tg 1024 | pp 512 |\nL218: |---|---|---|---|---|\n"
    )
    page += "L229: | 3090 24GB * 2 | 8B Q4_K_M | 111.67 | 108.07 | 3336.37 |\n"
    page += "L230: |  | 70B F16 | **47.72** | OOM | 4122.66 |\n"
    rows, left = rows_of(tmp_path, "xiongjiedai", README_tables_DOT_md=page)
    assert set(rows["accelerator"]) == {"rtx-3090"} and set(rows["accelerators"]) == {2}
    assert rows["throughput_raw"].dropna().to_list() == [111.67, 108.07, 47.72] and len(left) == 1
    assert rows["model"].to_list()[-1] == "llama-3-70b"


def test_the_older_page_repeats_the_newer_and_clusters_and_split_models_are_left_out(tmp_path):
    head = "L145: ### Llama 3.2:3b\nL147: | System | CPU/GPU | Eval Rate | Power (Peak) |\nL148: |---|---|---|---|\n"
    line = "| [Pi 5 - 8GB (AMD RX 7600<sup>1</sup>)](https://github.com/a/b/issues/1) | GPU | 48.47 Tokens/s | 156W |\n"
    newer = f"{head}L182: {line}L183: | Ryzen (Nvidia 4090) | GPU/CPU | 3.10 Tokens/s | N/A |\n"
    newer += "L184: | Framework Mainboard Cluster (512GB) | GPU | 0.71 Tokens/s | N/A |\n"
    rows, left = rows_of(
        tmp_path,
        "geerlingguy",
        **{"ai-benchmarks_tables_DOT_md": newer, "ollama-benchmark_tables_DOT_md": f"{head}L73: {line}"},
    )
    assert rows["accelerator"].to_list() == ["rx-7600"] and rows["power_w"].isna().all() and len(left) == 3


def test_tables_of_vllm_mlx_without_a_machine_are_left_out(tmp_path):
    page = "## Results (M4 Max, 128GB)\n\n| Model | Gen Speed | TTFT* | Memory |\n|---|---|---|---|\n"
    page += "| Qwen3-0.6B-8bit | 402.3 tok/s | 58.6 ms | 0.68 GB |\n\n## Streaming Performance\n\n"
    page += "| Model | TTFT | Generation Speed |\n|---|---|---|\n| Qwen3-0.6B-8bit | ~3.0ms | 328.5 tok/s |\n"
    rows, left = rows_of(tmp_path, "vllm-mlx", docs__benchmarks__llm_DOT_md=page)
    assert rows["throughput_raw"].to_list() == [402.3] and rows["peak_memory_bytes"].to_list() == [0.68e9]
    assert rows["model"].to_list() == ["qwen3-0.6b"] and len(left) == 1


def test_two_r9700_are_told_by_their_configuration_and_failed_runs_are_left_out(tmp_path):
    run = {
        "model_clean": "gemma-3-27b-it-BF16",
        "quant": "BF16",
        "env": "vulkan_radv",
        "test": "tg32 @ d16384",
    }
    run |= {"context_tokens": 16384, "tps_mean": 11.0, "tps_std": 0.0, "error": False, "gpu_config": "dual"}
    failed = run | {"error": True, "error_type": "load"}
    whole = {"meta": {"generated_at": "2025-12-27T17:44:15Z"}, "runs": [run, failed]}
    rows, left = rows_of(tmp_path, "r9700-kyuz0", docs__results_DOT_json=whole)
    assert rows["accelerators"].to_list() == [2] and rows["context_depth"].to_list() == [16384]
    assert rows["spread"].isna().all() and len(left) == 1 and rows["output_tokens"].to_list() == [32]


def test_depth_and_power_limit_of_a_run_stand_in_its_two_files(tmp_path):
    lines = "label,quant,type,depth,pp_tok_s,tg_tok_s,vram_peak_mib,ram_used_peak_mib,status\n"
    lines += "27B_IQ4_XS,IQ4_XS,dense,4096,1665.05,35.9,15134,898,OK\n27B_IQ4_XS,IQ4_XS,dense,8192,,,,,FAIL\n"
    rows, left = rows_of(
        tmp_path,
        "rtx4070tis-ryanilano",
        **{
            "results__2026-07-02_1-x__throughput_DOT_csv": lines,
            "results__2026-07-02_1-x__versions_DOT_txt": "power (limit,max):      250.00 W, 285.00 W\n"
            "source git commit:      4fc4ec5\n",
        },
    )
    assert rows["context_depth"].to_list() == [4096] and rows["power_limit_w"].to_list() == [250]
    assert rows["engine_version"].to_list() == ["4fc4ec5"] and len(left) == 1


@pytest.mark.parametrize("name", ["AI21-Jamba2-3B-Q4_K_M.gguf", "Step-3.7-Flash-UD-IQ4_NL.gguf"])
def test_a_model_that_no_table_has_is_not_its_larger_relative(name):
    assert names.model(name) is None


CLUB = "# All\n\n## Qwen3.6-27B\n\n### Dual-card (2× RTX 3090, TP=2)\n\n"
CLUB += "| Compose | Rig | KV | Max ctx | Narr / Code TPS | PP tok/s | Peak VRAM | Date | Notes |\n"
CLUB += "| --- | --- | --- | ---: | ---: | ---: | ---: | --- | --- |\n"


def test_a_rig_is_read_where_its_pair_of_rates_is_plain(tmp_path):
    rest = "| 2680 | 22 GB | 2026-07-16 | x |\n"
    lines = f"| `dual.yml` | @user (2× 3090 PCIe, 230 W cap) | fp8 | 9K | **67.8 / 90.5** wall (decode **68.5 / 92.1**) {rest}"
    lines += f"| `dual/nvfp4/mtp.yml` | 2× **5090** | fp8/e4m3 @ scale=1.0 | 9K | 168.0 / 215.7 {rest}"
    lines += f"| `single.yml` (TP=1, no-MTP) | 1× 3090, 370/420 W | bf16 | 9K | 50 / 51 {rest}"
    for rates in (
        "~32 / ~33",
        "TBD",
        "113.4 / ~150",
        "fast 72 / 90 · max 69 / 90",
        "67 / 107 on · 72 / 109 off",
    ):
        lines += f"| `dual.yml` | 2× 3090 | fp8 | 9K | {rates} {rest}"
    lines += f"| `dual.yml` | 1× RTX 5090 + 1× RTX 3090 Ti | fp8 | 9K | 60 / 61 {rest}"
    rows, left = rows_of(tmp_path, "club-3090", BENCHMARKS_DOT_md=CLUB + lines)
    assert rows["throughput_raw"].to_list() == [68.5, 92.1, 168.0, 215.7, 50, 51] and len(left) == 6
    assert rows["speculative"].to_list() == ["not stated"] * 2 + ["MTP"] * 2 + ["none"] * 2
    assert rows["accelerators"].to_list() == [2] * 4 + [1] * 2 and set(rows["model"]) == {"qwen3.6-27b"}
    assert rows["accelerator"].to_list()[::2] == ["rtx-3090", "rtx-5090", "rtx-3090"]
    assert rows["weights_format"].to_list()[::2] == ["INT4", "nvfp4", None]
    assert rows["power_limit_w"].dropna().to_list() == [230, 230] and rows["prompt_tokens_per_s"].isna().all()
    assert rows["kv_format"].to_list()[2] == "fp8/e4m3" and set(rows["measured_on"]) == {"2026-07-16"}


def test_a_printout_of_the_orin_has_requests_together_or_the_seconds_of_a_long_prompt(tmp_path):
    together = (
        "== engine_sweep ==\nN= 3 | wall=  9.1s | gen_tokens=  600 | AGG=  66.0 tok/s | per-stream~ 22.0\n"
    )
    older = "=== no-FA ===\nN=1 | wall=24.9s | gen_tokens=200 | AGG tok/s=8.0 | per-stream tok/s min/max=8.3/8.3\n"
    long = "=== 2026-08-19T21:12:47-05:00 PERF ANGLES ===\nWARM_N=29 P50_S=0.403\n"
    long += "CTX_TARGET=2048 PROMPT_TOKENS=1818 GEN_TOKENS=37 WALL_S=3.88 GEN_TPS=9.53\n"
    files = {"agentworld-35b-Q4": together, "llamacpp-Q4-noFA": older, "perf__qwen3.8-27b-mtp": long}
    rows, _ = rows_of(
        tmp_path,
        "jetson-orin-ait0u5hi",
        **{f"results__raw__{name}_DOT_txt": text for name, text in files.items()},
    )
    assert rows["concurrency"].to_list() == [3, 1, 1] and rows["output_tokens"].to_list() == [200, 200, 37]
    assert rows["throughput_raw"].dropna().to_list() == [66.0, 8.0]
    assert rows["latency_raw_s"].dropna().to_list() == [3.88] and rows["speculative"].to_list()[2] == "MTP"
    assert set(rows["accelerator"]) == {"jetson-agx-orin-64gb"} and rows["input_tokens"].to_list()[2] == 1818
    assert rows["model"].to_list() == ["qwen-agentworld-35b-a3b", "qwen3.8-27b", "qwen3.8-27b"]


def test_answers_of_one_suite_are_one_row_without_echoes_and_without_those_of_a_copied_file(tmp_path):
    def answer(n, rate, tokens=500, file="a"):
        r = {"file": file, "model": "Qwen3-32B-Q4_K_M.gguf", "config": "baseline", "suite": "general"}
        r |= {"timestamp": "2026-01-06T22:25:53", "q": f"q{n}", "tokens_per_second": rate}
        return r | {"prompt_tokens": 80, "completion_tokens": tokens, "total_time_ms": 1000.0 + n}

    answers = [answer(n, 1.0 + n / 10) for n in range(5)] + [answer(5, 340.0, tokens=1)]
    answers += [answer(n, 1.0 + n / 10, file="copy") for n in range(5)] + [answer(9, 2.0, file="short")]
    table = "| model | size | params | backend | threads | test | t/s |\n|---|---|---|---|---|---|---|\n"
    table += "| llama 70B Q4_K - Medium | 39.59 GiB | 70.55 B | CPU | 96 | tg128 | 0.98 ± 0.09 |\n\nbuild: 6b43356a1\n"
    rows, left = rows_of(
        tmp_path,
        "epyc9655-pestopoppa",
        **{
            "baseline_speed_slim_DOT_jsonl": "\n".join(json.dumps(a) for a in answers),
            "benchmarks__evidence__20260111_123428__paged_raw_DOT_txt": table,
        },
    )
    assert rows["throughput_raw"].to_list() == [1.2, 0.98] and rows["requests"].to_list()[0] == 5
    assert rows["flags"].to_list()[1] == "threads=96; paged=yes" and len(left) == 7
    assert set(rows["accelerator"]) == {"epyc-turin"} and rows["speculative"].to_list()[0] == "none"
    assert rows["weights_format"].to_list() == ["Q4_K_M", "Q4_K_M"] and rows["spread"].to_list()[1] == 0.09


BLOCK = "```\n============ Serving Benchmark Result ============\nSuccessful requests:     1000\n"
BLOCK += "Benchmark duration (s):  133.23\nTotal input tokens:  217393\nTotal generated tokens:  201469\n"
BLOCK += "Output token throughput (tok/s):  1512.21\nMedian TTFT (ms):  41177.19\nP95 TTFT (ms):  N/A\n"
BLOCK += "==================================================\n```\n"
PAGE = "### Model\n\nQwen/Qwen3-32B\n\n### Hardware\n\n8 × NVIDIA H100 SXM GPUs on a single node.\n\n"
PAGE += "### Engine Version\n\n- vLLM: v0.11.0\n- SGLang: v0.5.3\n\n"


def test_a_serving_command_says_how_many_of_a_pages_gpus_ran(tmp_path):
    text = PAGE + f"## Results\n\n### 1. Engine\n\n```bash\nvllm serve Qwen/Qwen3-32B\n```\n\n{BLOCK}\n"
    text += f"### 2. TP\n\n```bash\nvllm serve Qwen/Qwen3-32B-FP8 -tp 4 --max-num-seqs 64\n```\n\n{BLOCK}\n"
    text += f"### 3. Other\n\n```bash\nvllm serve openai/gpt-oss-120b\n```\n\n{BLOCK}\n### 4. None\n\n{BLOCK}"
    rows, left = rows_of(tmp_path, "gpustack", **{"docs__performance-lab__qwen3-32b__h100_DOT_md": text})
    assert rows["accelerators"].to_list() == [1, 4] and rows["tp"].to_list()[1] == 4 and len(left) == 2
    assert set(rows["accelerator"]) == {"h100-sxm"} and set(rows["engine_version"]) == {"0.11.0"}
    assert rows["weights_format"].to_list() == [None, "FP8"] and rows["max_num_seqs"].to_list()[1] == 64
    assert set(rows["output_tokens"]) == {201.469} and rows["ttft_p95_ms"].isna().all()


def test_a_comment_above_a_printout_is_a_step_of_the_command_and_bursts_have_no_time_per_token(tmp_path):
    head, rest = BLOCK.split("```\n", 1)
    slow = rest.replace(
        "Median TTFT", "Mean Latency(s):  24.1\nMean TTFT (ms):  1604\nMean TPOT (ms):  15.1\nMedian TTFT"
    )
    text = PAGE + "## Results\n\n### 1. Batches\n\n```bash\nvllm serve Qwen/Qwen3-32B\n```\n\n```\n"
    text += f"# --max-num-batched-tokens 4096\n{slow}\n```\n# triton\n{rest}"
    rows, _ = rows_of(tmp_path, "gpustack", **{"docs__performance-lab__qwen3-32b__h100_DOT_md": text})
    assert rows["flags"].to_list() == ["max-num-batched-tokens=4096", "attention-backend=triton"]
    assert rows["tpot_mean_ms"].isna().all() and rows["e2e_mean_ms"].to_list()[0] == 24100


def test_parameters_of_a_page_run_on_all_its_gpus_and_a_profile_sets_the_rate(tmp_path):
    text = "```bash\nvllm serve Qwen/Qwen3-32B-FP8 \\\n```\n\n" + PAGE
    text += "##### ShareGPT 8RPS\n\n```yaml\ndataset_name: ShareGPT\nrequest_rate: 8\n```\n\n## Results\n\n"
    text += "### Quantization\n\n- Profile: `ShareGPT 8RPS`\n- Backend Parameters:\n  ```bash\n"
    text += f"  --tensor-parallel-size=8\n  --kv-cache-dtype=fp8\n  ```\n\n{BLOCK}"
    rows, _ = rows_of(tmp_path, "gpustack", **{"docs__performance-lab__qwen3-32b__h100_DOT_md": text})
    assert rows["request_rate"].to_list() == [8] and rows["workload"].to_list() == ["open_loop"]
    assert rows["accelerators"].to_list() == [8] and rows["engine"].to_list() == ["vLLM"]
    assert rows["checkpoint_raw"].to_list() == ["Qwen/Qwen3-32B-FP8"] and rows["kv_format"].to_list() == [
        "fp8"
    ]


def test_framework_desktops_that_share_a_model_are_counted_and_a_prompts_size_is_no_answers(tmp_path):
    head = (
        "timestamp,model_name,model_size_gb,params_b,backend,threads,test_type,prompt_size,tokens_per_second,"
    )
    head += "std_dev,quantization,hardware_make,hardware_cpu,hardware_mem_gb,rpc_nodes\n"
    line = '2025-11-30T22:23:41,Llama-3.3-70B-Instruct-Q8_0,69.82,70.55,"ROCm,RPC",12,{},128,2.85,0.1,Q8_0,'
    desktop = line.format("tg512") + "Framework,AMD Ryzen AI Max+ 395,128,2\n"
    air = line.format("pp128") + "Apple,M4,128,0\n"
    rows, _ = rows_of(
        tmp_path,
        "machine-tests-alexziskind",
        ml__llama_bencher__a__llama_bench_tg_DOT_csv=head + desktop,
        ml__llama_bencher__b__llama_bench_pp_DOT_csv=head + air,
    )
    assert rows["accelerators"].to_list() == [3, 1] and rows["pp"].to_list()[0] == 3
    assert rows["output_tokens"].isna().all() and "prompt_size=128" in rows["flags"].to_list()[0]
    assert rows["input_tokens"].to_list()[1] == 128 and rows["prompt_tokens_per_s"].to_list()[1] == 2.85
    assert (
        rows["accelerator"].to_list()[0] == "ryzen-ai-max-395" and rows["accelerator_family"][1] == "Apple M4"
    )
    assert rows["accelerator_memory_gb"].dropna().to_list() == [128]


def test_llama_bench_says_how_much_of_a_mixture_is_active_and_in_which_format_it_is(tmp_path):
    head = HEAD.replace("| fa |", "| n_ubatch | fa |").replace("| --- |\n", "| --- | --- |\n")
    text = (
        head
        + "| qwen35moe 35B.A3B MXFP4 MoE | 20.65 GiB | 35.51 B | CUDA | 99 | 4096 | 1 | tg128 | 218.1 ± 0.5 |\n"
    )
    rows, _ = rows_of(
        tmp_path, "rx7900xtx-1337hero", **{"benchmark-results__a_DOT_txt": text + "\nbuild: 86a9c\n"}
    )
    assert rows["active_b"].to_list() == [3] and rows["parameters_b"].to_list() == [35.51]
    assert rows["weights_format"].to_list() == ["MXFP4"]
    assert rows["throughput_raw"].to_list() == [218.1]


def test_a_tier_is_no_length_of_a_prompt_and_test_models_are_left_out(tmp_path):
    head = "timestamp,gpu_name,gpu_vram_mb,model_name,quantization,model_size_gb,prompt_tier,avg_ttft_ms,avg_tps,"
    head += "std_tps,avg_power_w,num_runs\n"
    line = "2026-02-05T21:19:36,NVIDIA GeForce RTX 3080,10240,{},Q4_K_M,4.58,tiny,9.36,111.2,0.99,300.1,40\n"
    cluster = "model,topology,nodes,quant,context_tokens,prompt_tps,generation_tps,ttft_seconds,feasibility\n"
    cluster += "Llama-3.1-405B-Instruct,TP4,4,Q4,1024,60.5,5.2,16.9,practical\n"
    cluster += "Llama-3.1-405B-Instruct,PP4,4,Q4,1024,,,,gpu_timeout\n"
    rows, left = rows_of(
        tmp_path,
        "guruswami",
        **{
            "results__nvidia__a-summary_DOT_csv": head
            + line.format("Llama-3.1-8B")
            + line.format("Llama-3.1-8B").replace("tiny", "xlarge")
            + line.format("test-model"),
            "results__llama-405b__benchmark-results_DOT_csv": cluster,
        },
    )
    assert rows["accelerator"].to_list()[0] == "rtx-3080-10gb" and rows["accelerators"].to_list() == [1, 1, 4]
    assert rows["input_tokens"].isna().to_list() == [True, True, False] and rows["tp"].to_list()[2] == 4
    assert rows["throughput_raw"].to_list()[1:] == [111.2, 5.2] and rows["ttft_mean_ms"][2] == 16900
    assert rows["prefix_cached"].to_list() == [None, "yes", None]  # a step is too short for a long prompt
    assert len(left) == 2 and "prompt=tiny" in rows["flags"].to_list()[0]


def test_a_batch_of_llama_cpp_is_no_number_of_sequences_and_a_rate_of_a_whole_request_is_told(tmp_path):
    flags = {"mtpEnabled": False, "specDecoding": False, "commandSnippet": "", "tensorParallel": None}
    r = {"promptTokens": 0, "outputTokens": 128, "contextLength": 512, "batchSize": 2048, "tokSOut": 30.5}
    r |= {
        "createdAt": "2026-07-17T15:36:19Z",
        "engine": {"engineName": "llama.cpp", "quantization": "Q4_K_M"},
    }
    r |= {"model": {"hfId": "someone/Ornith-27B", "baseModel": {"hfId": "Qwen/Qwen3.6-27B"}}}
    r |= {"hardware": {"gpuName": "RTX 3060", "gpuCount": 2, "vramGb": 12}, "engineFlags": flags}
    whole = r | {"promptTokens": 1280, "batchSize": 1, "tokSOut": 10.0, "tokSTotal": 110.0}
    whole |= {"engineFlags": flags | {"mtpEnabled": True, "commandSnippet": "--spec-type mtp"}}
    unclear = r | {"batchSize": 4}
    text = "\n".join(json.dumps({"row": row}) for row in (r, r, whole, unclear))
    rows, left = rows_of(tmp_path, "localmaxxing", benchmark_cache_union_DOT_jsonl=text)
    assert rows["prefill_chunk"].to_list()[0] == 2048 and set(rows["concurrency"]) == {1}
    assert rows["caveat"].notna().to_list() == [False, True] and len(left) == 2
    assert rows["speculative"].to_list() == [None, "MTP"] and set(rows["model"]) == {"qwen3.6-27b"}
    assert set(rows["accelerator"]) == {"rtx-3060-12gb"} and set(rows["accelerators"]) == {2}
    assert rows["input_tokens"].isna().to_list() == [True, False]


def test_llama_bench_drafts_nothing_and_states_a_depth_and_notes_of_two_cards_are_told(tmp_path):
    flags = {"mtpEnabled": False, "specDecoding": False, "tensorParallel": None}
    flags |= {"commandSnippet": "llama-bench -m Qwen3.6-27B.gguf -p 512 -n 128 -d 8192 -o json"}
    r = {"promptTokens": 512, "outputTokens": 128, "contextLength": 8192, "batchSize": 1, "tokSOut": 30.5}
    r |= {"engine": {"engineName": "llama.cpp", "quantization": "Q4_K_M"}, "engineFlags": flags}
    r |= {"model": {"hfId": "unsloth/Qwen3.6-27B-MTP-GGUF"}, "notes": "Dual GPU via layer split."}
    r |= {"hardware": {"gpuName": "RTX 3090", "gpuCount": 1, "vramGb": 24}}
    named = r | {"tokSOut": 31.0, "notes": "Dual Xeon | device: ROCm0,ROCm1"}
    served = r | {"tokSOut": 32.0, "notes": None, "engineFlags": flags | {"commandSnippet": "llama-server"}}
    # A prompt's 88 ms of 23 s cannot be told from none: the rate may be of the answer alone.
    short = {"promptTokens": 530, "outputTokens": 256, "tokSOut": 11.2, "tokSTotal": 34, "ttftMs": 88.2}
    text = "\n".join(json.dumps({"row": row}) for row in (r, named, served, served | short))
    rows, _ = rows_of(tmp_path, "localmaxxing", benchmark_cache_union_DOT_jsonl=text)
    assert rows["context_depth"].to_list()[:2] == [8192, 8192] and rows["context_depth"].isna().sum() == 2
    assert rows["speculative"].to_list() == [None, None, "MTP", "MTP"]
    assert rows["caveat"].to_list() == ["the notes name two cards, the entry one"] * 2 + [None, None]


def test_a_serving_benchmark_at_a_rate_has_its_card_from_the_folder_and_failed_runs_are_left_out(tmp_path):
    printed = BLOCK.replace("Successful requests:", "Failed requests:     0\nSuccessful requests:")
    bulk = {"elapsed_time": 518.4, "num_requests": 1000, "tokens_per_second": 1430.0}
    folder = "benchmarks__benchmark_results_nvidia-4090__RedHatAI_Qwen3-14B-FP8-dynamic_tp1"
    newer = "benchmarks__vllm_benchmark_results_04-05-2026__aiter__Qwen_Qwen3.5-9B_tp2_throughput_DOT_json"
    files = {f"{folder}_qps4.0_latency_DOT_json": {"success": True, "raw_output": printed}}
    files |= {f"{folder}_throughput_DOT_json": {"error": "Failed"}, newer: bulk}
    rows, left = rows_of(tmp_path, "vllm-cards-kyuz0", **files)
    assert rows["accelerator"].to_list() == ["rtx-4090", "ai-pro-r9700"] and len(left) == 1
    assert rows["request_rate"].to_list()[0] == 4 and rows["workload"].to_list() == ["open_loop", "offline"]
    assert rows["throughput_counts"].to_list() == ["output", "input+output"] and rows["failed"][0] == 0
    assert rows["accelerators"].to_list() == [1, 2] and rows["flags"].to_list() == [None, "aiter"]
    assert rows["weights_format"].to_list() == ["FP8", None] and rows["throughput_raw"][0] == 1512.21


def test_drafted_tokens_of_four_rtx_pro_6000_are_told_by_the_file(tmp_path):
    r = {
        "concurrency": 2,
        "context_tokens": 16384,
        "aggregate_tps": 268.7,
        "num_completed": 4,
        "num_errors": 0,
    }
    whole = {"metadata": {"model": "Qwen3_5-397B-A17B-AWQ", "timestamp": "2026-03-14T11:59:59"}}
    whole |= {"results": [r, r | {"num_errors": 1}]}
    whole |= {"prefill": {"8192": {"ttft_seconds": 0.515, "tok_per_sec": 16866.0}}}
    name = "benchmarks__inference-throughput__vllm_awq_{}_DOT_json"
    rows, left = rows_of(tmp_path, "rtx6kpro", **{name.format("mtp"): whole, name.format("nomtp"): whole})
    assert rows["speculative"].to_list() == ["MTP", "MTP", "none", "none"] and len(left) == 2
    assert rows["context_depth"].dropna().to_list() == [16384, 16384] and set(rows["tp"]) == {4}
    assert set(rows["accelerator"]) == {"rtx-pro-6000-server"} and set(rows["model"]) == {"qwen3.5-397b-a17b"}
    assert rows["prompt_tokens_per_s"].dropna().to_list() == [16866.0, 16866.0]
