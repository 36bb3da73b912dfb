"""Files of the reviews: what was falsely accused passes, what was missed is found and named first."""

import copy
import json

import numpy as np
import pandas as pd
import pytest

import llm_measured.audit
from bench.paths import ROOT
from llm_measured.audit import catalog, report
from llm_measured.audit.checks.finding import CONTRADICTION, IMPOSSIBLE
from llm_measured.audit.importers import content, own

SAMPLES = ROOT / "data" / "audits" / "samples"
VLLM = SAMPLES / "vllm-bench-serve.json"


def alarms(findings):
    return [f.check for f in findings if f.kind in (IMPOSSIBLE, CONTRADICTION)]


def first(findings):
    return alarms(findings)[0] if alarms(findings) else "none"


def saved(tmp_path, content, name="result.json"):
    file = tmp_path / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


def bench_test(model, kind, size, parameters, rate, gpu):
    """One test of llama-bench."""
    return {
        "build_commit": "b6000",
        "gpu_info": gpu,
        "model_filename": model,
        "model_type": kind,
        "model_size": int(size),
        "model_n_params": int(parameters),
        "n_prompt": 0,
        "n_gen": 128,
        "avg_ns": int(128e9 / rate),
        "avg_ts": rate,
        "samples_ns": [int(128e9 / rate)] * 3,
        "samples_ts": [rate] * 3,
    }


GPT_OSS = "gpt-oss-20b-mxfp4.gguf", "gpt-oss 20B MXFP4 MoE", 12.1e9, 20.9e9
QWEN = "Qwen3-30B-A3B-Q4_K_M.gguf", "qwen3moe 30B.A3B Q4_K - Medium", 18.6e9, 30.5e9
MIXTRAL = "mixtral-8x7b.Q4_K_M.gguf", "llama 8x7B Q4_K - Medium", 28.4e9, 46.7e9
LLAMA = "Meta-Llama-3-8B-Instruct-Q4_K_M.gguf", "llama 8B Q4_K - Medium", 4.92e9, 8.03e9
GPUS = "NVIDIA GeForce RTX 4090", "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("model", "rate", "gpu"),
    [(GPT_OSS, 240, GPUS[0]), (QWEN, 195, GPUS[0]), (QWEN, 226, GPUS[1]), (MIXTRAL, 120, GPUS[1])],
)
def test_a_mixture_of_experts_reads_its_active_parameters(tmp_path, model, rate, gpu):
    found = llm_measured.audit.audit([saved(tmp_path, [bench_test(*model, rate, gpu)])])
    assert alarms(found) == []
    tenfold = llm_measured.audit.audit([saved(tmp_path, [bench_test(*model, 12 * rate, gpu)])])
    assert first(tenfold) == "bandwidth_beyond_device"


def test_a_mixture_in_llama_benchs_csv_reads_its_active_parameters(tmp_path):
    for rate, expected in ((195, []), (2340, ["bandwidth_beyond_device"])):
        one = {k: v for k, v in bench_test(*QWEN, rate, GPUS[0]).items() if not k.startswith("samples")}
        file = saved(tmp_path, pd.DataFrame([one]).to_csv(index=False), "bench.csv")
        assert alarms(llm_measured.audit.audit([file]))[:1] == expected


def test_a_mixture_in_markdown_is_no_other_number_format(tmp_path):
    text = (
        "| model | size | params | backend | ngl | test | t/s |\n| --- | ---: | ---: | --- | --: | "
        "---: | ---: |\n"
        "| qwen3moe 30B.A3B Q4_K - Medium | 17.28 GiB | 30.53 B | CUDA | 99 | tg128 | 195.0 ± 1.2 |\n"
    )
    assert alarms(llm_measured.audit.audit([saved(tmp_path, text, "bench.md")], gpu="H100 SXM")) == []


def test_a_mixture_whose_active_parameters_nobody_knows_is_not_judged(tmp_path):
    unknown = "strange-moe-q4.gguf", "strangemoe 90B Q4_K - Medium", 50e9, 90e9
    assert alarms(llm_measured.audit.audit([saved(tmp_path, [bench_test(*unknown, 300, GPUS[0])])])) == []


def served(tpot_ms, **more):
    """A summary of `vllm bench serve`."""
    return {
        "model_id": "meta-llama/Llama-3.1-70B-Instruct",
        "dtype": "bfloat16",
        "request_rate": "inf",
        "max_concurrency": 1,
        "duration": 100.0,
        "completed": 40,
        "total_input_tokens": 4000,
        "total_output_tokens": 6000,
        "request_throughput": 0.4,
        "output_throughput": 60.0,
        "mean_ttft_ms": 40.0,
        "mean_tpot_ms": tpot_ms,
        "median_tpot_ms": tpot_ms * 0.999,
        "mean_itl_ms": tpot_ms * 1.001,
    } | more


def test_an_assumed_number_of_devices_cannot_be_told_and_names_the_flag(tmp_path):
    file = saved(tmp_path, served(13.5))
    found = llm_measured.audit.audit([file], gpu="H100 SXM")
    assert alarms(found) == []
    told = next(f for f in found if f.check == "bandwidth_beyond_device")
    assert "--tensor-parallel 4" in told.sentence and told.numbers["least_devices"] == 4
    assert alarms(llm_measured.audit.audit([file], gpu="H100 SXM", tensor_parallel=8)) == []
    assert (
        first(llm_measured.audit.audit([file], gpu="H100 SXM", tensor_parallel=2))
        == "bandwidth_beyond_device"
    )


def test_a_device_in_the_file_is_not_doubled(tmp_path):
    model = "Llama-3.1-70B-Q4_K_M.gguf", "llama 70B Q4_K - Medium", 42.5e9, 70.6e9
    found = llm_measured.audit.audit([saved(tmp_path, [bench_test(*model, 150, GPUS[0])])])
    assert first(found) == "bandwidth_beyond_device" and "2 x" not in found[0].sentence


def test_everything_at_once_is_no_prefix_cache(tmp_path):
    content = served(20.0, max_concurrency=None, completed=16, num_prompts=16)
    for name in ("duration", "request_throughput", "output_throughput", "total_output_tokens"):
        content.pop(name)
    content |= {
        "request_throughput": 3.2,
        "output_throughput": 320.0,
        "duration": 5.0,
        "total_output_tokens": 1600,
    }
    content |= {"input_lens": [512] * 16, "output_lens": [100] * 16, "total_input_tokens": 8192}
    content["ttfts"] = [0.214 + 0.001 * k for k in range(8)] + [2.214 + 0.001 * k for k in range(8)]
    content["mean_ttft_ms"] = 1e3 * float(np.mean(content["ttfts"]))
    content["mean_itl_ms"] = content["mean_tpot_ms"] = content["median_tpot_ms"] = 20.0
    content["itls"] = [[0.02] * 99] * 16
    assert "prefix_cache" not in alarms(llm_measured.audit.audit([saved(tmp_path, content)]))
    alone = content | {"max_concurrency": 1}
    assert "prefix_cache" in alarms(llm_measured.audit.audit([saved(tmp_path, alone)]))


@pytest.mark.parametrize(("factor", "unit"), [(1.0, "seconds"), (1e3, "milliseconds")])
def test_a_latency_without_a_unit_is_read_by_the_tables_own_arithmetic(tmp_path, factor, unit):
    rows = [f"{c},{c / 2.6:.3f},{150 * c / 2.6:.1f},150,100,16.8,{2.6 * factor}" for c in (1, 4, 8)]
    header = "concurrency,requests_per_s,output_tokens_per_s,output_tokens,ttft_ms,tpot_ms,latency"
    file = saved(tmp_path, "\n".join([header, *rows]), "table.csv")
    read = llm_measured.audit.read([file])
    assert np.allclose(read.levels["e2e_s"], 2.6) and alarms(llm_measured.audit.audit([file])) == []
    assert any(f"latency has no unit in the name; read as {unit}" in note for _, note in read.notes)


@pytest.mark.parametrize("share", [0.005, 0.016, 0.076, 0.2, 0.5])
def test_a_prompt_in_the_count_is_found_first_however_short_the_ttft(tmp_path, share):
    output, prompt, gap = 250, 503, 0.0075
    ttft = share / (1 - share) * gap * (output - 1)
    whole, n, places = ttft + gap * (output - 1), 200, 8
    counted, duration = output + prompt, n * whole / places
    content = served(
        1e3 * gap * (output - 1) / (counted - 1),
        model_id="meta-llama/Llama-3.1-8B-Instruct",
        max_concurrency=places,
        completed=n,
        duration=duration,
        total_input_tokens=n * prompt,
        total_output_tokens=n * counted,
        request_throughput=n / duration,
        output_throughput=n * counted / duration,
        mean_ttft_ms=1e3 * ttft,
        mean_itl_ms=1e3 * gap,
    )
    file = saved(tmp_path, content)
    assert first(llm_measured.audit.audit([file])) == "prompt_counted_as_output"
    assert (
        first(llm_measured.audit.audit([file], gpu="H100 SXM", tensor_parallel=1))
        == "prompt_counted_as_output"
    )
    content |= {"total_output_tokens": n * output, "output_throughput": n * output / duration}
    content |= {"mean_tpot_ms": 1e3 * gap, "median_tpot_ms": 1e3 * gap * 0.999}
    assert alarms(llm_measured.audit.audit([saved(tmp_path, content)])) == []


def _throughput(d):
    d["output_throughput"] *= 1.4


def _rate(d):
    d["request_throughput"] *= 2.2


def _completed(d):
    d["completed"] = 16


def _failed_counted(d):
    d |= {"completed": 20, "failed": 4, "num_prompts": 24}
    for name in (
        "input_lens",
        "output_lens",
        "ttfts",
        "itls",
        "latencies",
        "start_times",
        "queue_times",
        "errors",
    ):
        d[name] = d[name][:20]
    d["total_input_tokens"], d["total_output_tokens"] = sum(d["input_lens"]), sum(d["output_lens"])


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (_throughput, "plain_sums"),
        (_rate, "plain_sums"),
        (_completed, "plain_sums"),
        (_failed_counted, "failed_counted_as_throughput"),
    ],
)
def test_sums_that_do_not_add_up_are_found(tmp_path, change, check):
    content = copy.deepcopy(json.loads(VLLM.read_text(encoding="utf-8")))
    change(content)
    file = saved(tmp_path, content)
    found = llm_measured.audit.audit([file])
    assert check in alarms(found) and report.main([str(file)]) == 1


def test_samples_against_their_average(tmp_path):
    content = bench_test(*LLAMA, 150, GPUS[0])
    assert alarms(llm_measured.audit.audit([saved(tmp_path, [content])])) == []
    content["avg_ts"] = 200
    assert first(llm_measured.audit.audit([saved(tmp_path, [content])])) == "plain_sums"


def test_a_clean_file_is_told_what_was_found_plausible(tmp_path, capsys):
    file = saved(tmp_path, [bench_test(*LLAMA, 150, GPUS[0])])
    assert report.main([str(file)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "PLAUSIBLE" in shown and "GB every 6.67 ms = " in shown and "by datasheet" in shown
    assert "warmed up" not in shown


def test_what_misses_the_device_or_the_model_names_the_flag(tmp_path, capsys):
    file = saved(tmp_path, "batch_size,output_tokens_per_s\n1,60\n", "table.csv")
    assert report.main([str(file)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--gpu h100_sxm" in shown and "GPU=h100_sxm" in shown and "--model" not in shown
    assert report.main([str(file), "--all"]) == 0
    assert "--model llama-3-8b" in " ".join(capsys.readouterr().out.split())
    assert report.main([str(file), "--gpu", "RTX 4095", "--model", "llama-3-8b"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert 'No table knows the device "RTX 4095"' in shown and "Nearest: RTX 40" in shown


def test_a_folder_is_audited_as_one(tmp_path, capsys):
    header = "model,gpu,concurrency,ttft_ms,tpot_ms,output_tokens_per_s\n"
    rows = [
        f"Llama-3-8B,H100 SXM,{c},{20.123 + c:.3f},{7.4567 + c / 9:.4f},{130.77 * c:.2f}\n" for c in (1, 2, 4)
    ]
    saved(tmp_path, header + "".join(rows), "h100.csv")
    other = rows[1].replace("H100 SXM", "A100-80GB")
    saved(tmp_path, header + "Llama-3-8B,A100-80GB,1,41.777,13.9876,71.21\n" + other, "a100.csv")
    saved(tmp_path, "# Notes\n\nNothing to read.\n", "README.md")
    assert report.main([str(tmp_path)]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "2 files audited" in shown
        and "One run stands under two names" in shown
        and "1 file not read" in shown
    )


def test_a_first_token_after_the_answer_is_named_alone(tmp_path):
    text = (
        "Metric,avg,min,max,p99,p90,p50\nTime To First Token (ms),5000,4000,6000,6000,5900,5000\n"
        "Request Latency (ms),2000,1900,2100,2100,2090,2000\nInter Token Latency (ms),10,9,11,11,11,10\n"
        "Output Sequence Length (tokens),150,150,150,150,150,150\n"
        "Input Sequence Length (tokens),400,400,400,400,400,400\n"
    )
    found = llm_measured.audit.audit([saved(tmp_path, text, "genai.csv")])
    assert first(found) == "times_backwards"
    assert [f.check for f in found if f.kind != "cannot be told" and not f.consequence_of] == [
        "times_backwards"
    ]


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen3moe 30B.A3B Q4_K", 3.3),
        ("llama 8x7B Q4_0", 12.9),
        ("gpt-oss 20B MXFP4 MoE", 3.6),
        ("Jan-1b", 1),
    ],
)
def test_active_parameters_are_known_by_the_names_that_llama_cpp_gives(name, billions):
    assert 0.85 * billions < catalog.model(name)["step_parameters"] / 1e9 < 1.05 * billions


def test_a_text_that_two_models_of_this_study_read_is_no_copied_answer():
    """Both quality runs read the same texts; the answers of a run that wrote them are still compared."""
    folder = ROOT / "_llama-inference" / "ctranslate2"
    audited = [
        own.load(content.Content(file, None), file.name) for file in folder.glob("sizes_quality-qwen*.csv")
    ]
    assert len(audited) == 2 and all((one.requests["answer"].fillna("") == "").all() for one in audited)
    (file,) = folder.glob("sizes-qwen2.5-coder-0.5b-int8-*-1.csv")
    assert (own.load(content.Content(file, None), file.name).requests["answer"].str.len() > 80).all()
