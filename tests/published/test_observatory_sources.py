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


COMMITTED = [name for name in sources.listed() if (build.DATA / "raw" / name).is_dir()]


@pytest.mark.parametrize("source", COMMITTED)
def test_committed_raw_files_give_the_committed_rows(source):
    """Every column of every row: a reader of these files needs no excerpts of them."""
    found = build.imported(source, build.DATA / "raw" / source)
    pd.testing.assert_frame_equal(build.merged(found), build.committed(source))
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


def committed(source, **values):
    """The committed rows of `source` that have `values`."""
    rows = build.table()
    rows = rows[rows["source"] == source]
    return rows[np.logical_and.reduce([rows[name] == value for name, value in values.items()])]


ARGONNE = "argonne-llm-inference-bench"


@pytest.mark.parametrize(
    ("source", "chosen", "column", "expected"),
    [
        (ARGONNE, {"accelerator_raw": "Nvidia A100 GPU"}, "accelerator", {"a100-sxm-40gb"}),
        (ARGONNE, {"accelerator_raw": "Nvidia GH200 GPU"}, "accelerator", {"gh200-96gb"}),
        (ARGONNE, {"accelerator_raw": "AMD MI250 GPU", "engine": "vLLM"}, "accelerator", {"mi250"}),
        (ARGONNE, {"accelerator_raw": "AMD MI300X GPU", "engine": "vLLM"}, "version_name", {"0.6.1"}),
        (ARGONNE, {"flags": "parallelism=Pipeline Parallelism", "accelerators": 4}, "pp", {4}),
        (ARGONNE, {"flags": "parallelism=Hybrid TP = 2 and PP = 2"}, "tp", {2}),
        (ARGONNE, {"flags": "parallelism=EP"}, "tp", set()),
        ("tensorrt-llm", {"throughput_raw": 670, "batch": 1280}, "throughput_scope", {"per_accelerator"}),
        ("tensorrt-llm", {"throughput_raw": 1237, "batch": 64}, "throughput_scope", {"all"}),
        ("aiconfigurator", {"accelerator_raw": "gb200", "concurrency": 288}, "accelerators", {4}),
        ("gpt-fast", {"model": "llama-3.1-8b"}, "measured_on", set()),
    ],
)
def test_what_a_source_states_beside_its_numbers_stands_in_its_rows(source, chosen, column, expected):
    rows = committed(source, **chosen)
    assert len(rows) and set(rows[column].dropna()) == expected


def test_latencies_that_hold_a_start_have_a_caveat():
    rows = committed(ARGONNE, accelerator_raw="Intel PVC GPU", engine="vLLM")
    held = rows["caveat"].fillna("").str.contains("17 s")
    assert held.sum() == 77 and (held == (rows["accelerators"] == 1)).all()
