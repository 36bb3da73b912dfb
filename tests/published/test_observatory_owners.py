"""What the importers of cards, boards and laptops that people own read from excerpts of their files."""

import json

import pytest

from llm_measured.published import build, names
from llm_measured.published.sources import _llama_bench


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


BLOCK = "```\n============ Serving Benchmark Result ============\nSuccessful requests:     1000\n"
BLOCK += "Benchmark duration (s):  133.23\nTotal input tokens:  217393\nTotal generated tokens:  201469\n"
BLOCK += "Output token throughput (tok/s):  1512.21\nMedian TTFT (ms):  41177.19\nP95 TTFT (ms):  N/A\n"
BLOCK += "==================================================\n```\n"


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
    command = "llama-server -ngl 99 --n-cpu-moe 26 -c 8192"
    served = r | {"tokSOut": 32.0, "notes": None, "engineFlags": flags | {"commandSnippet": command}}
    # A prompt's 88 ms of 23 s cannot be told from none: the rate may be of the answer alone.
    short = {"promptTokens": 530, "outputTokens": 256, "tokSOut": 11.2, "tokSTotal": 34, "ttftMs": 88.2}
    text = "\n".join(json.dumps({"row": row}) for row in (r, named, served, served | short))
    rows, _ = rows_of(tmp_path, "localmaxxing", benchmark_cache_union_DOT_jsonl=text)
    assert rows["context_depth"].to_list()[:2] == [8192, 8192] and rows["context_depth"].isna().sum() == 2
    assert rows["speculative"].to_list() == [None, None, "MTP", "MTP"]
    assert rows["offload"].to_list() == [None, None, "n-cpu-moe 26", "n-cpu-moe 26"]
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
