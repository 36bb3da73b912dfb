"""What importers read from excerpts of their files, and that committed raw files give the committed rows."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from llm_measured.published import build, checks, names, schema, sources
from llm_measured.published.reading import Raw, SourceError


def rows_of(tmp_path, source, **files):
    for name, text in files.items():
        path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    found = build.imported(source, tmp_path)
    return names.looked_up(build.typed(found.rows)), found


CONCURRENCY = (
    "folder,gpu_in_file,gpus,model,concurrency_asked,in_flight_by_little,requests_per_second,successful,failed,"
    "seconds,output_tokens_per_s_all,output_tokens_per_request,median_ttft_ms,p99_ttft_ms,median_e2e_ms\n"
)


def test_a_csv_with_named_columns_is_read_by_lines_of_a_table_and_needs_no_module(tmp_path):
    lines = (
        CONCURRENCY
        + "MI300X,Unknown GPU,1,openai/gpt-oss-20b,1,1.0,0.141,29,0,205.8,139.2,988,77.1,85.5,7304\n"
    )
    lines += "MI300X,Unknown GPU,1,openai/gpt-oss-20b,64,32.3,1.87,391,0,208.7,1805.8,964,115.5,155.0,17777\n"
    rows, found = rows_of(tmp_path, "gpu-conc-sariekr", rows_DOT_csv=lines)
    row = rows.iloc[0]
    assert (row["accelerator"], row["workload"], row["throughput_raw"]) == ("mi300x", "single", 139.2)
    # Where as many were asked for as never were in flight, the client's rate was measured.
    assert found.left_out["reason"].str.contains("never in flight").to_list() == [True]
    assert not found.left_out["refused"].any()


def test_a_cell_of_the_energy_ladder_that_is_broken_gives_no_score_and_one_token_no_joules(tmp_path):
    names_ = "Modelo,Tarea,Tamaño Batch,Precisión,TTFT Medio (s),TPOT (s/token),Throughput Decode (tok/s),"
    names_ += "Energía (J/token gen),Cuantizacion,Familia,Maquina,Numero de Problemas\n"
    lines = names_ + "x/Mistral-7B.Q2_K.gguf,humaneval,1,15.2,0.5,0.02,50,3.1,q2_K,Mistral,Spark,164\n"
    lines += "x/Mistral-7B.Q2_K.gguf,mmlu,1,56.6,0.1,0.02,50,88,q2_K,Mistral,Spark,1140\n"
    lines += "x/Mistral-7B.fp16.gguf,ifeval,1,50,0.1,0.14,7,9,f16,Mistral,Workstation,150\n"
    rows, _ = rows_of(tmp_path, "llm-energy-benchmark", total_limpio_DOT_csv=lines)
    assert rows["quality"].isna().to_list() == [True, False, False]
    assert rows["energy_j_per_output_token"].isna().to_list() == [True, True, False]
    assert rows["throughput_raw"].isna().to_list() == [False, True, False]
    # A card that nobody names, and layers that did not fit it.
    assert (
        rows["accelerator_raw"].isna().to_list() == [False, False, True]
        and "some layers" in rows.at[2, "offload"]
    )


ARGONNE = "Hardware,Num of Hardware,Framework,Model,Input Output Length,Batch Size,Latency,Throughput"


def test_llama_cpps_batch_is_a_chunk_of_one_prompt_and_others_count_the_prompt(tmp_path):
    lines = f"{ARGONNE}\nNvidia A100 GPU,1,llama.cpp,m/Llama-2-7b-hf,128,64,4,64\n"
    lines += "Nvidia A100 GPU,1,vLLM,m/Llama-2-7b-hf,128,16,2,2048\n"
    rows, _ = rows_of(tmp_path, "argonne-llm-inference-bench", All_results_DOT_csv=lines)
    assert rows["concurrency"].to_list() == [1, 16] and rows["prefill_chunk"].to_list()[0] == 64
    assert json.loads(rows["as_printed"][0])["batch"] == 64
    assert set(rows["throughput_counts"]) == {"input+output"}


def test_milliwatts_and_an_unquoted_comma_are_read_as_what_they_are(tmp_path):
    power = f"{ARGONNE},avg_power\nNvidia A100 GPU,1,vLLM,m/Llama-2-7b-hf,128,1,2,128,222122.5\n"
    formats = f"{ARGONNE.replace('Latency,Throughput', 'kv_cache_dtype,latency,throughput')}\n"
    formats += "Nvidia H100 GPU,1,vLLM,m/Llama-2-7b-hf,128,1,Weight = fp8, KV Cache = fp16,1.5,170.7\n"
    rows, found = rows_of(
        tmp_path, "argonne-llm-inference-bench", Fig_16__a_DOT_csv=power, Fig_3__b_DOT_csv=formats
    )
    by = rows.set_index("weights_format")
    assert by.at["fp8", "kv_format"] == "fp16" and by.at["fp8", "latency_raw_s"] == 1.5
    assert rows["power_w"].dropna().to_list() == [222.1225] and sum(found.ragged.values()) == 1


INFERENCEX = {
    "hardware": "h100",
    "framework": "sglang",
    "model": "dsr1",
    "precision": "fp8",
    "disagg": False,
    "decode_tp": 8,
    "decode_ep": 8,
    "num_prefill_gpu": 64,
    "num_decode_gpu": 64,
    "isl": 1024,
    "osl": 1024,
    "conc": 16,
    "date": "2026-01-01",
    "metrics": {"median_itl": 0.2, "median_tpot": 0.0107, "median_ttft": 0.1, "output_tput_per_gpu": 37.5},
}


def test_inferencex_has_the_gpus_that_decode_maxima_as_lengths_and_no_gaps_of_events(tmp_path):
    apart = INFERENCEX | {"disagg": True, "num_prefill_gpu": 8, "num_decode_gpu": 16}
    rows, found = rows_of(
        tmp_path, "inferencex", a_benchmarks_DOT_json=[INFERENCEX, apart], b_benchmarks_DOT_json=[INFERENCEX]
    )
    assert rows["accelerators"].to_list() == [8, 24] and rows["accelerators_decode"].to_list()[1] == 16
    assert set(rows["lengths"]) == {"max_of_uniform_0.8"} and rows["itl_p50_ms"].isna().all()
    assert rows["tpot_p50_ms"].to_list() == [10.7, 10.7] and set(rows["accelerator"]) == {"h100-sxm"}
    assert json.loads(rows["as_printed"][0])["accelerators"] == 64
    assert found.left_out["reason"].to_list() == ["an earlier file has the same row"]


def test_what_a_rate_of_tensorrt_llm_is_of_stands_in_the_tables_heading(tmp_path):
    def page(unit):
        head = f"| Model | Batch Size | TP (1) | Input Length | Output Length | Throughput ({unit}) |"
        return f"L1: ## H100 GPUs (FP8)\nL3: {head}\nL4: |-|-|-|-|-|-|\nL5: | LLaMA 70B | 64 | 4 | 128 | 128 | 3,317 |\n"

    (tmp_path / "2023-10_perf-overview_tables.md").write_text(page("out tok/s"))
    (tmp_path / "2023-12-08_perf-overview_tables.md").write_text(page("out tok/s/GPU"))
    rows, _ = rows_of(tmp_path, "tensorrt-llm")
    assert dict(zip(rows["published_on"], rows["throughput_scope"])) == {
        "2023-10": "all",
        "2023-12-08": "per_accelerator",
    }


def test_parts_are_inside_all_parts_whose_concurrency_is_of_all_clients(tmp_path):
    result = {
        "model_id": "openai/gpt-oss-120b",
        "max_concurrency": 4,
        "completed": 8,
        "output_throughput": 400.0,
    }
    result |= {
        "total_output_tokens": 80,
        "total_input_tokens": 80,
        "median_itl_ms": 0.004,
        "median_tpot_ms": 7.0,
    }
    folder = "x__bm_results__rayoss-x2__"
    files = {f"{folder}{part}__conc4_DOT_json": result for part in ("part1", "part2", "all-parts")}
    rows, found = rows_of(tmp_path, "anyscale-ray-serve", **files)
    assert rows["concurrency"].to_list() == [8] and rows["itl_p50_ms"].isna().all()
    assert found.left_out["reason"].to_list() == ["inside all-parts"] * 2


def test_mlperf_rows_carry_what_its_rules_ask_for_and_may_be_compared_only_within_their_group(tmp_path):
    one = {
        "ID": "5.1-0001",
        "Submitter": "AMD",
        "Availability": "available",
        "Category": "closed",
        "Suite": "datacenter",
        "UsedModel": "llama2-70b-99",
        "Model": "llama2-70b-99",
        "Scenario": "Offline",
        "Nodes": 1,
        "Accelerator": "AMD Instinct MI300X 192GB HBM3",
        "a#": "8.0",
        "Software": "vLLM 0.9",
        "version": "v5.1",
        "weight_data_types": "fp8",
        "Performance_Result": 27803.9,
        "Performance_Units": "Tokens/s",
    }
    mixed = one | {"Accelerator": "AMD Instinct MI300X (x8), AMD Instinct MI325X (x16)"}
    rows, found = rows_of(
        tmp_path,
        "mlperf",
        **{
            "v5_summary_results_DOT_json": [
                one,
                one | {"Scenario": "Server", "version": "v4.1"},
                mixed,
                one | {"Performance_Units": "Queries/s"},
                one | {"UsedModel": "resnet", "Model": "resnet"},
            ]
        },
    )
    assert (
        rows["comparable_within"].nunique() == 2 and rows["comparable_within"].str.startswith("MLPerf").all()
    )
    assert rows[["submitter", "division", "category", "original_id", "trademark"]].notna().all().all()
    assert rows["accelerators"].to_list()[0] == 8 and pd.isna(rows["accelerators"][2])
    assert (
        rows["accelerator"][2] == names.schema.UNKNOWN_VARIANT and rows["weights_format"].to_list()[1] is None
    )
    assert sorted(found.left_out["reason"]) == ["no text generation", "not in tokens/s (Queries/s)"]


@pytest.mark.parametrize(
    "source",
    [
        "autoawq",
        "club-3090",
        "epyc9655-pestopoppa",
        "exllamav2",
        "gpt-fast",
        "gpustack",
        "jetson-orin-ait0u5hi",
        "lmdeploy",
        "mlc-llm-perf-bench",
        "premai",
        "qualcomm-ai-hub",
        "tensorrt-llm",
    ],
)
def test_committed_raw_files_give_the_committed_rows(source):
    found = build.imported(source, build.DATA / "raw" / source)
    assert sorted(build.merged(found)["row_id"]) == sorted(build.committed(source)["row_id"])
    assert found.left_out["refused"].sum() == 0


# What happens to files between one version of a tool and the next, or on their way.
SPOILT = {
    "cut": lambda text: text[: len(text) // 2],
    "other names": lambda text: re.sub(r"[a-z]{4,}", lambda word: word[0][::-1], text),
    "capitals": str.upper,
    "no numbers": lambda text: re.sub(r"\d+", "NaN", text),
    "negative": lambda text: re.sub(r"(?<=[\s:,|])(?=\d)", "-", text),
    "other units": lambda text: re.sub(r"\d+\.\d+", lambda n: f"{float(n[0]) * 1e6:g}", text),
    "lines lost": lambda text: "\n".join(text.splitlines()[::2]),
    "other signs": lambda text: text.replace(",", ";").replace("|", "/"),
    "nothing": lambda text: "",
}


@pytest.mark.check
@pytest.mark.parametrize("spoil", SPOILT)
@pytest.mark.parametrize("source", [name for name, _ in sources.modules() if build.folder_of(name)])
def test_spoilt_files_end_in_a_sentence_and_never_in_a_traceback(source, spoil, monkeypatch):
    whole = Raw.text
    monkeypatch.setattr(Raw, "text", lambda self, file: SPOILT[spoil](whole(self, file)))
    try:
        found = build.imported(source, build.folder_of(source))
    except SourceError as error:
        assert "\n" not in str(error)
        return
    assert all("\n" not in reason for reason in found.left_out["reason"])
    rows = names.looked_up(build.typed(found.rows))
    numbers = rows[schema.NUMBERS].to_numpy()
    assert not (numbers < 0).any() and not np.isinf(numbers).any()
    if len(rows):
        checks.judged(rows)


def _lhl(seconds, answers_per_s):
    """One llama-bench record of two answers of 128 tokens in a log of `seconds`."""
    bench = {"n_prompt": 0, "n_gen": 128, "avg_ts": answers_per_s, "samples_ts": [1, 1]}
    return json.dumps({"bench_raw": bench, "avg_power_w": 100.0, "duration_s": seconds, "build": "x"})


def test_power_is_kept_where_the_measured_tokens_fill_its_time(tmp_path):
    lines = f"{_lhl(2.8, 100)}\n{_lhl(3.0, 100)}\n"  # 2 × 128 ÷ 100 = 2.56 s: 0.914 and 0.853 of the time
    rows, _ = rows_of(tmp_path, "strix-halo-lhl", a_DOT_jsonl=lines)
    assert rows["power_w"].to_list()[0] == 100 and np.isnan(rows["power_w"].to_list()[1])
    assert json.loads(rows["as_printed"][1]) == {"power_w": 100}


def test_committed_power_is_of_the_time_of_its_rate():
    rows = build.committed("strix-halo-lhl")
    kept = rows[rows["power_w"].notna()]
    share = kept["runs"] * kept["output_tokens"] / kept["throughput_raw"] / kept["duration_s"]
    assert len(kept) > 1000 and share.min() >= 0.9
    joules = (kept["power_w"] / kept["throughput_raw"]).median()
    printed = rows["as_printed"].dropna().map(lambda text: json.loads(text)["power_w"])
    over = printed / rows.loc[printed.index, "throughput_raw"]
    assert joules > 2 * over.median()  # the other rows' quotient is mostly loading


def test_a_prompt_that_was_read_before_is_marked_by_its_cold_run(tmp_path):
    head = "test_id,test_name,backend,quant,kv_cache,prompt_type,run_num,ttft_ms,decode_tps,prefill_tps,"
    head += "completion_tokens,prompt_tokens,total_time_s,cold_ttft_ms"
    lines = [f"A,Qwen3.5 4bit,mlx-lm,4bit,default,short,{n},{ttft},60,53000,512,751,9,390.2" for n, ttft in
             ((1, 14.1), (2, 380.0))]  # fmt: skip
    rows, _ = rows_of(
        tmp_path, "apple-alexhiesch", results__b_20260401_1_DOT_csv="\n".join([head, *lines]) + "\n"
    )
    assert rows["prefix_cached"].to_list() == ["yes", None]
    committed = build.committed("apple-alexhiesch")
    assert (committed["prefix_cached"] == "yes").sum() == 758
    fast = committed["prompt_tokens_per_s"] > 10_000
    assert fast.sum() == 378 and (committed.loc[fast, "prefix_cached"] == "yes").sum() == 373


def test_a_drafting_model_in_a_tests_name_is_speculative(tmp_path):
    head = "test_id,test_name,backend,quant,kv_cache,prompt_type,ttft_ms,decode_tps,completion_tokens"
    names_of = ("26B-A4B llama.cpp UD-Q4_K_M spec-e2b,x,UD-Q4_K_M,spec-e2b", "27B mtp-2,x,Q4,default")
    lines = [f"A,{name},short,121.5,206.4,512" for name in (*names_of, "27B 4bit,x,4bit,default")]
    text = "\n".join([head, *lines]) + "\n"
    rows, _ = rows_of(tmp_path, "apple-alexhiesch", results__b_20260401_1_DOT_csv=text)
    assert rows["speculative"].to_list() == ["spec-e2b", "mtp-2", None]


def test_a_curve_with_short_names_is_read_and_two_in_one_are_left_out(tmp_path):
    record = {"output_tps_kind": "single_stream_wall", "concurrency": 1, "output_tok_s": 145.4, "tp": 2}
    record |= {"engine": "vllm", "model": "m", "ttft_p50_ms": 171.2, "tpot_p50_ms": 5.92}
    alone = {"conc": 1, "out_tps": 145.4, "ttft_ms": 171.2, "tpot_ms": 5.92}
    four = {"conc": 4, "out_tps": 365.5, "ttft_ms": 540.5, "tpot_ms": 8.79}
    lines = [record | {"curve": [alone, four]}, record | {"curve": [alone, four, four | {"out_tps": 300.0}]}]
    text = "\n".join(map(json.dumps, lines)) + "\n"
    rows, found = rows_of(tmp_path, "4x3090", benchmarks_DOT_jsonl=text)
    assert rows["throughput_raw"].to_list() == [145.4, 365.5, 145.4]
    assert rows["tpot_p50_ms"].to_list()[1] == 8.79 and rows["concurrency"].to_list()[1] == 4
    assert len(found.left_out) == 2


def test_layers_on_several_cards_are_a_pipeline():
    rows = build.committed("4x3090")
    moved = rows["as_printed"].dropna().map(json.loads)
    assert (rows.loc[moved.index, "engine"] == "llama.cpp").all() and len(moved) > 100
    assert (rows.loc[moved.index, "tp"] == 1).all()
    assert (rows.loc[moved.index, "pp"] == moved.map(lambda told: told["tp"])).all()


def test_a_depth_in_the_name_of_a_test_is_the_context_before_it():
    rows = build.committed("dgx-spark-djangodevreng")
    deep = rows["context_depth"] > 0
    assert deep.sum() > 200 and rows.loc[deep, "source_file"].str.endswith("04-multi-turn.md").any()
