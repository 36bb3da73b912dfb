"""Alarms on published files that were read by hand and found wrong, or right under a wrong name: the same
forms with made-up figures (data/audits/ALARMS_READ.md says whose)."""

import json

import numpy as np
import pytest

from bench.paths import ROOT
from llm_measured.audit import importers, report
from llm_measured.audit.checks.finding import ALARMS, CONTRADICTION, IMPOSSIBLE, UNCOUNTED
from llm_measured.core import names


def saved(tmp_path, text, name="table.csv"):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def findings(file, **facts):
    return [f for f in report.collect([file], **facts)[0] if f.kind in ALARMS]


def alarms(file, **facts):
    return [(f.kind, f.check) for f in findings(file, **facts) if not f.consequence_of]


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("Coder llama.cpp Q4_K_M kv-q8", 4.5),
        ("Q4_K_M kv q8_0", 4.5),
        ("-ctk q8_0 -ctv q8_0 Q4_K_M", 4.5),
        ("int8-kv int4", 4.0),
        ("Q8_0-kv-q4_0", 8.5),
    ],
)
def test_the_format_of_the_cache_is_not_that_of_the_weights(text, bits):
    assert names.number_format(text).least_bits == bits


def test_a_format_of_the_cache_alone_is_none_of_the_weights(tmp_path):
    for text in ("kv-q8", "fp8_e5m2 kv", "-ctk q8_0"):
        with pytest.raises(names.UnknownName):
            names.number_format(text)
    file = saved(tmp_path, "test_name,quant,tokens_per_s\nllama.cpp Q4 kv-q8,Q4_K_M,60.1\n")
    assert alarms(file) == []


def test_a_rate_that_is_also_the_rate_of_decoding_leaves_the_prompt_out(tmp_path):
    head = "concurrency,prompt_tokens,output_tokens,ttft_ms,output_tok_s,decode_tok_s\n"
    file = saved(tmp_path, head + "1,8192,256,11170.3,15.12,15.12\n1,8192,256,11170.3,9.1,15.12\n")
    read = importers.read(file)
    assert alarms(file) == [] and any("as the rate of decoding" in note for _, note in read.notes)
    assert np.isnan(read.levels["output_tokens_per_s"][0]) and read.levels["output_tokens_per_s"][1] == 9.1


def vllm(**figures):
    """A result of vllm bench serve at an offered rate, with these figures."""
    some = {
        "backend": "vllm",
        "model_id": "m",
        "num_prompts": 200,
        "completed": 200,
        "request_rate": 4.0,
        "duration": 75.0,
        "total_input_tokens": 41000,
        "total_output_tokens": 36000,
        "request_throughput": 200 / 75,
        "output_throughput": 480.0,
        "total_token_throughput": 77000 / 75,
    }
    return json.dumps(some | figures)


def test_in_an_overload_paces_vary_more_than_times(tmp_path):
    times = {"mean_ttft_ms": 223742.0, "mean_e2el_ms": 864495.0, "std_e2el_ms": 144582.0}
    paces = {"mean_tpot_ms": 1716.5, "median_tpot_ms": 1369.6, "std_tpot_ms": 1272.2, "mean_itl_ms": 1308.1}
    load = {"request_rate": 0.5, "duration": 1137.6, "request_throughput": 200 / 1137.6}
    rates = {"total_output_tokens": 97964, "output_throughput": 97964 / 1137.6}
    rates["total_token_throughput"] = (97964 + 41000) / 1137.6
    file = saved(tmp_path, vllm(**times, **paces, **load, **rates), "result.json")
    assert alarms(file) == []


def test_a_unit_fits_all_rows_alike(tmp_path):
    """Lengths that are the most that was asked (0.9 of it came) make a TTFT in milliseconds fit a little better
    in most rows, and not at all where it is long."""
    head = "gpu,conc,osl,mean_ttft,mean_tpot,mean_e2el\n"
    rows = "".join(
        f"H200,{slots},1024,{ttft},{pace},{ttft + pace * 920:.4f}\n"
        for slots, ttft, pace in ((1, 0.17, 0.0096), (4, 0.21, 0.011), (8, 0.4, 0.013), (2048, 65.2, 0.0321))
    )
    file = saved(tmp_path, head + rows)
    assert importers.read(file).levels["ttft_mean_s"].tolist() == [0.17, 0.21, 0.4, 65.2]
    assert alarms(file) == []
    one = {"completed": 160, "total_output_tokens": 20480, "median_ttft": 15.2, "median_tpot": 0.204}
    file = saved(tmp_path, json.dumps(one | {"median_e2el": 41.5, "max_concurrency": 32}), "one.json")
    assert importers.read(file).levels["ttft_p50_s"].tolist() == [15.2] and alarms(file) == []


def test_what_a_clock_clamps_is_not_also_impossible(tmp_path):
    head = "gpu_name,model_name,quantization,avg_tps\n"
    rows = "".join(
        f"NVIDIA GeForce RTX 3080,{model},{bits},{rate}\n"
        for model, bits, rate in (
            ("Gemma-2-9B-It", "Q5_K_M", "1000.00"),
            ("SmolLM2-360M", "F16", "1000.00"),
            ("TinyLlama-1.1B", "Q6_K", "1000.00"),
            ("Llama-3-8B", "Q4_K_M", "112.31"),
        )
    )
    found = findings(saved(tmp_path, head + rows))
    assert [(f.check, f.consequence_of) for f in found] == [
        ("clamped_figure", ""),
        ("bandwidth_beyond_device", "clamped_figure"),
    ]


def test_the_rate_of_one_of_many_devices_is_not_that_of_all(tmp_path):
    head = "gpu,concurrency,output_tokens,ttft_ms,tpot_ms,e2e_s,output_tokens_per_s_per_gpu"
    rows = "B200,1,1024,157,7.18,6.65{}\nB200,1,1024,157,7.21,6.71{}\n"
    of_one = saved(tmp_path, f"{head}\n" + rows.format(",19.2", ",19.1"))
    assert alarms(of_one) == [] and importers.read(of_one).levels["output_tokens_per_s"].isna().all()
    counted = saved(tmp_path, f"{head},tp\n" + rows.format(",19.2,8", ",19.1,8"))
    assert importers.read(counted).levels["output_tokens_per_s"].tolist() == [153.6, 152.8]
    assert alarms(counted) == []
    both = saved(tmp_path, f"{head},output_tokens_per_s\n" + rows.format(",19.2,150.1", ",19.1,150.3"))
    assert importers.read(both).levels["output_tokens_per_s"].tolist() == [150.1, 150.3]


PAGE = """# Quantisation

| Quantization Method | Throughput (tok/s) | Mean TTFT (ms) | Mean TPOT (ms) |
|---|---|---|---|
| BF16 | 13305.38 | 5172.78 | 126.55 |
| FP8 | 16452.52 (+23.7%) | 4116.87 (-20.4%) | 85.57 (-32.4%) |

| Configuration | Throughput (tok/s) | Mean TTFT (ms) | Mean TPOT (ms) |
|---|---|---|---|
| {label} | 13305.38 | 5172.78 | 126.55 |
| BF16, tuned | 13513.19 (+1.6%) | 5688.39 | 103.21 |
"""


def test_a_row_that_a_second_table_repeats_as_its_baseline_is_one_run(tmp_path):
    file = saved(tmp_path, PAGE.format(label="BF16 (Baseline)"), "page.md")
    assert alarms(file) == []
    rates = importers.read(file).levels["output_tokens_per_s"].tolist()
    assert rates == [13305.38, 16452.52, 13305.38, 13513.19]
    assert alarms(saved(tmp_path, PAGE.format(label="AWQ"), "page.md")) == [(CONTRADICTION, "same_run_twice")]


def test_a_model_that_no_table_knows_may_be_a_mixture(tmp_path):
    head = "model,gpu,tp,quant,concurrency,tpot_ms\n"
    file = saved(tmp_path, head + "made-up-1.0-35b,RX 7900 XT,1,Q4_K_M,1,9.06\n")
    (found,) = findings(file)
    assert (found.kind, found.check) == (UNCOUNTED, "bandwidth_beyond_device")
    assert "of a mixture of experts as many as its active parameters need" in found.sentence
    assert alarms(file, model="made-up-1.0-35B-A3B") == []
    dense = saved(tmp_path, head + "llama-3.1-70b,RX 7900 XT,1,Q4_K_M,1,9.06\n")
    assert alarms(dense)[0] == (IMPOSSIBLE, "bandwidth_beyond_device")


CONSOLE = """# 09 reasoning

**Model:** nvidia/Made-Up-8B-BF16
**Hardware:** DGX Spark NVIDIA GB10 128GB

============ Serving Benchmark Result ============
Successful requests:                     {n}
Request rate configured (RPS):           0.30
Benchmark duration (s):                  {duration}
Total input tokens:                      55805
Total generated tokens:                  {tokens}
Request throughput (req/s):              {rate:.4f}
---------------Time to First Token----------------
Mean TTFT (ms):                          646.82
Median TTFT (ms):                        662.49
P50 TTFT (ms):                           662.49
P99 TTFT (ms):                           885.21
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          85.20
Median TPOT (ms):                        84.42
P50 TPOT (ms):                           84.41
----------------End-to-end Latency----------------
Mean E2EL (ms):                          {e2e}
Median E2EL (ms):                        {e2e}
P50 E2EL (ms):                           {e2e}
==================================================
"""


def printed(n, duration, e2e):
    return CONSOLE.format(n=n, duration=duration, rate=n / duration, tokens=n * 1000, e2e=e2e)


def test_a_median_that_is_printed_as_p50_again_begins_no_further_result(tmp_path):
    (level,) = importers.read(saved(tmp_path, printed(200, 760, 85760), "x.md")).levels.to_dict("records")
    found = [level[name] for name in ("requests", "ttft_p99_s", "tpot_p50_s")]
    assert np.allclose(found, [200, 0.88521, 0.08442], rtol=1e-9)
    assert (level["e2e_mean_s"], level["output_tokens"]) == (85.76, 1000)
    assert (level["model"], level["gpu"]) == ("nvidia/Made-Up-8B-BF16", "DGX Spark NVIDIA GB10 128GB")
    two = importers.read(saved(tmp_path, 2 * printed(200, 760, 85760), "x.md")).levels
    assert len(two) == 2


def test_a_page_of_two_models_states_none(tmp_path):
    text = printed(200, 760, 85760) + "\n**Model:** another-70b\nGPU: 64 GB of memory\n"
    level = importers.read(saved(tmp_path, text.replace("**Hardware:**", "Rack:"), "x.md")).levels.iloc[0]
    assert (level["model"], level["gpu"]) == ("", "")


def overloads(file):
    return [f.sentence for f in report.collect([file])[0] if f.check == "overload"]


def test_the_last_answer_and_chance_are_no_overload(tmp_path):
    """200 requests at 0.3 a second are sent within 667 s, and the last answer takes 86 s."""
    assert overloads(saved(tmp_path, printed(200, 760, 85760), "x.md")) == []
    assert overloads(saved(tmp_path, printed(100, 400, 1000), "x.md")) == [], "within three deviations"
    assert len(overloads(saved(tmp_path, printed(200, 1400, 85760), "x.md"))) == 1
    assert len(overloads(saved(tmp_path, printed(200, 1000, 400000), "x.md"))) == 1, (
        "answers as long as the run"
    )


def test_energy_that_is_stated_was_recorded(tmp_path):
    text = (
        "Model,Energy/req (J),Avg TPOT (s),Token tput (tok/s),Avg Output Tokens\nm,18.5,0.188,1021.8,65.5\n"
    )
    file = saved(tmp_path, text)
    assert importers.read(file).levels["energy_j"].tolist() == [18.5]
    assert "power_missing" not in {f.check for f in report.collect([file])[0]}


def test_a_length_follows_from_totals_and_a_build_is_a_version(tmp_path):
    text = "completed,total_input_tokens,total_output_tokens,median_ttft_ms,build_version\n160,655360,20480,4515,b88\n"
    level = importers.read(saved(tmp_path, text)).levels.iloc[0]
    assert (level["prompt_tokens"], level["output_tokens"], level["engine_version"]) == (4096, 128, "b88")


def test_repeats_that_share_short_figures_are_not_one_measurement(tmp_path):
    head = "quant,prompt_type,run_num,ttft_ms,decode_tps,prefill_tps,completion_tokens,prompt_tokens,total_time_s\n"
    rows = "nvfp4,code,1,875.4,34.7,857.9,202,751,6.66\nnvfp4,code,3,875.4,{},857.9,202,751,6.66\n"
    twice = saved(tmp_path, head + rows.format(34.7))
    assert "same_run_twice" in {f.check for f in report.collect([twice])[0]}
    repeats = saved(tmp_path, head + rows.format(34.8))
    assert "same_run_twice" not in {f.check for f in report.collect([repeats])[0]}


def test_a_command_of_three_runs_and_a_column_of_hardware_are_read(tmp_path):
    page = (
        "```\nuvx llama-benchy --model m --runs {} --pp 1024\n```\n\n| model | test | t/s |\n|---|---|---|\n"
        "| qwen3-8b | tg128 | 42.06 ± 0.40 |\n"
    )
    assert importers.read(saved(tmp_path, page.format(3), "x.md")).levels["runs"].tolist() == [3]
    assert "one_run" not in {f.check for f in report.collect([tmp_path / "x.md"])[0]}
    assert "one_run" in {f.check for f in report.collect([saved(tmp_path, page.format(1), "y.md")])[0]}
    table = saved(
        tmp_path, "model_name,hardware_gpu,tokens_per_second\ngemma-3-4b-it-Q4_K_M,Radeon 8060S,45.8\n"
    )
    assert importers.read(table).levels["gpu"].tolist() == ["Radeon 8060S"]
    nested = {"metadata": {"model": "m-8b"}, "results": [{"concurrency": 1, "ttft_p50": 0.05, "tpot_ms": 9}]}
    assert importers.read(saved(tmp_path, json.dumps(nested), "n.json")).levels["model"].tolist() == ["m-8b"]


@pytest.mark.parametrize(
    "file", sorted((ROOT / "data" / "audits" / "samples").iterdir()), ids=lambda f: f.name
)
def test_no_committed_sample_of_a_tool_is_accused(file):
    """llama-bench on a busy machine: three samples of 4, 9 and 31 s, whose mean rate is twice that of their
    mean time."""
    assert alarms(file) == []


def test_a_mean_of_rates_is_not_below_the_rate_of_the_mean_time(tmp_path):
    lines = (ROOT / "data/audits/samples/llama-bench.jsonl").read_text().splitlines()
    row = json.loads(lines[1])
    wrong = row | {"avg_ts": 1.03, "samples_ts": [1.03, 1.02, 1.04]}
    file = saved(tmp_path, f"{lines[0]}\n{json.dumps(wrong)}\n", "x.jsonl")
    assert alarms(file) == [(CONTRADICTION, "plain_sums")]
