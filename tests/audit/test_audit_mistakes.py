"""The mistakes in tables of few columns and in a file that a tool wrote: each is found first."""

import copy
import json

import numpy as np
import pytest
from thinning import a_third

import llm_measured.audit
from bench.paths import ROOT

SAMPLE = ROOT / "data" / "audits" / "samples" / "vllm-bench-serve.json"
TABLES = {
    "5 batch1 no e2e": (
        "batch_size,prompt_tokens,output_tokens,ttft_ms,tpot_ms,output_tokens_per_s\n"
        "1,512,64,120,11.875,84.21\n"
        "1,1024,64,200,13.125,76.19\n"
        "1,2048,64,400,16.25,61.54\n",
        "tpot_contains_ttft",
    ),
    "5 clean": (
        "batch_size,prompt_tokens,output_tokens,ttft_ms,tpot_ms,output_tokens_per_s\n"
        "1,512,64,120,10,85.3\n"
        "1,1024,64,200,10,77.1\n"
        "1,2048,64,400,10,62.1\n",
        "none",
    ),
    "6 no N": (
        "itl_ms,tpot_ms\n40,10\n",
        "tokens_per_event",
    ),
    "8 hit rate": (
        "model,prefix_cache_hit_rate,ttft_ms\nllama-3-8b,0.45,30\n",
        "prefix_cache",
    ),
    "3 figures": (
        "engine,mean_tokens_per_s,median_tokens_per_s\nvllm,124,65\n",
        "cached_answer_in_mean",
    ),
    "4 table": (
        "engine,weights,output_tokens_per_s,e2e_s\nhf,none,24.61,8.127\nhf,nf4,24.61,8.127\n",
        "same_run_twice",
    ),
    "9": (
        "requests,p99_ttft_ms,p50_ttft_ms\n20,30,20\n",
        "percentile_from_too_few",
    ),
    "9b": (
        "num_prompts,concurrency,TTFT P99 (ms),TPOT P99 (ms)\n50,8,300,20\n",
        "percentile_from_too_few",
    ),
    "7 queue col": (
        "concurrency,ttft_ms,tpot_ms,client_queue_ms\n8,500,20,400\n",
        "client_queue",
    ),
    "2": (
        "model,gpu,gpus,dtype,tokens/s\nmeta-llama/Llama-2-7b-hf,NVIDIA A100-SXM4-80GB,1,fp16,191\n",
        "bandwidth_beyond_device",
    ),
    "2 tpot": (
        "model,gpu,tp,precision,concurrency,tpot_ms\nLlama-3-70B,H100 SXM,2,bf16,16,15\n",
        "bandwidth_beyond_device",
    ),
    "2 thr ok": (
        "model,gpu,tp,precision,output_tokens_per_s\nLlama-3-8B,H100 SXM,1,bf16,12000\n",
        "none",
    ),
    "1 rate": (
        "batch_size,prompt_tokens,output_tokens,e2e_s,output_tokens_per_s\n"
        "1,500,100,2,300\n"
        "1,100,100,2,100\n"
        "1,300,100,2,200\n",
        "prompt_counted_as_output",
    ),
    "1 limit": (
        "prompt_tokens,max_new_tokens,output_tokens,e2e_s\n500,100,600,2\n300,100,400,2\n",
        "prompt_counted_as_output",
    ),
    "1 batch tok": (
        "model,batch_size,prompt_tokens,output_tokens,e2e_s,tokens_per_s\nllama,8,512,64,2,2304\n",
        "prompt_counted_as_output",
    ),
}


FLAT = "\n".join(f"{{}}1,{n},128,{300 + n / 4000:.2f},17.2" for n in (128, 512, 1024, 2048, 4096, 8192))
GROWS = "\n".join(f"{{}}1,{n},128,{30 + n / 10:.2f},17.2" for n in (128, 512, 1024, 2048, 4096, 8192))
LENGTHS = "concurrency,input_tokens,output_tokens,ttft_ms,tpot_ms\n"
NAMED = "Llama-3.1-70B,H100 SXM,4,bf16,"
TABLES |= {
    "1 closed loop": (
        "concurrency,input_tokens,output_tokens,ttft_ms,tpot_ms,output_tokens_per_s\n"
        "16,1024,128,210,9,10240\n"
        "32,1024,128,260,11,18500\n"
        "8,1024,128,150,8,6300\n",
        "prompt_counted_as_output",
    ),
    "1 closed loop clean": (
        "concurrency,input_tokens,output_tokens,ttft_ms,tpot_ms,output_tokens_per_s\n"
        "16,1024,128,210,9,1480\n"
        "32,1024,128,260,11,2440\n",
        "none",
    ),
    "2 spread": (
        "Engine,Model,Device,Precision,Tokens/sec\nvLLM,Llama-2-7B,1x A100 80G,fp16,191.0 ± 0.2\n",
        "bandwidth_beyond_device",
    ),
    "2 activations in 16 bits": (
        "model,gpu,dtype,quantization,batch_size,tokens_per_s\n"
        "TheBloke/Llama-2-13B-chat-GPTQ,RTX 4090,float16,gptq,1,98\n"
        "TheBloke/Llama-2-13B-chat-GPTQ,RTX 4090,float16,,1,97\n",
        "none",
    ),
    "2 mixture of experts": (
        "model,gpu,dtype,batch_size,tokens_per_s\nopenai/gpt-oss-120b,NVIDIA B200,mxfp4,1,420\n",
        "none",
    ),
    "2 throughput of many": (
        "model,gpu,dtype,throughput (tokens/s)\nLlama-3-8B,H100 SXM,bf16,900\n",
        "none",
    ),
    "2 format of the cache": (
        "model,gpu,dtype,option,batch_size,tokens_per_s\nLlama-3-8B,H100 SXM,bf16,kv-cache fp8,1,140\n",
        "none",
    ),
    "3 rates alone": (
        "prompt,tokens_per_s\n" + "".join(f"p{k},{64 + k / 3:.1f}\n" for k in range(8)) + "p8,598.2\n",
        "cached_answer_in_mean",
    ),
    "4 one figure": (
        "model,weights,tokens_per_s\nLlama-2-7B,float16,104.1273\nLlama-2-7B,int4,104.1273\n",
        "same_run_twice",
    ),
    "5 long answers": (
        "request,output_tokens,ttft_ms,tpot_ms,e2e_ms\n"
        + "".join(f"{n},{n},50,{(50 + 12 * (n - 1)) / n:.5f},{50 + 12 * (n - 1)}\n" for n in range(900, 940)),
        "tpot_contains_ttft",
    ),
    "5 long answers clean": (
        "request,output_tokens,ttft_ms,tpot_ms,e2e_ms\n"
        + "".join(f"{n},{n},50,12.00,{50 + 12 * (n - 1)}\n" for n in range(900, 940)),
        "none",
    ),
    "7 wait longer than the loop": (
        "max_concurrency,num_prompts,request_throughput,mean_ttft_ms,mean_tpot_ms,output_len\n"
        "16,500,8.0,5200,7,200\n",
        "client_queue",
    ),
    "8 flat": (LENGTHS + FLAT.replace("{}", ""), "prefix_cache"),
    "8 flat, by the peak": ("model,gpu,tp,dtype," + LENGTHS + FLAT.replace("{}", NAMED), "prefix_cache"),
    "8 grows": ("model,gpu,tp,dtype," + LENGTHS + GROWS.replace("{}", NAMED), "none"),
    "8 rate of prompts": (
        "model,gpu,tp,dtype,concurrency,input_tokens,output_tokens,requests_per_s,ttft_ms,tpot_ms\n"
        "Llama-3.1-8B,H100 SXM,1,bf16,32,8000,100,20,150,14\n",
        "prefix_cache",
    ),
    "8 median": (
        "model,gpu,tp,dtype,input_tokens,output_tokens,ttft_mean_ms,ttft_p50_ms\n"
        "Llama-3.1-8B,H100 SXM,1,bf16,8000,100,200,30\n",
        "prefix_cache",
    ),
    "8 two groups": (
        "concurrency,input_tokens,ttft_min_ms,ttft_p50_ms,ttft_p90_ms,ttft_p99_ms\n1,4000,20,22,150,160\n",
        "prefix_cache",
    ),
}


def first(file):
    """Name of the first finding that is not about a missing fact; `none` where there is none."""
    found = [
        f.check
        for f in llm_measured.audit.audit([file])
        if not f.check.endswith("_missing") and f.check != "one_run"
    ]
    return found[0] if found else "none"


@pytest.mark.parametrize("name", a_third(TABLES))
def test_a_mistake_is_found_from_whatever_columns_a_table_has(tmp_path, name):
    file, (text, check) = tmp_path / "table.csv", TABLES[name]
    file.write_text(text)
    assert first(file) == check


def rows(kind):
    """A table of requests: the prompt in the count, a prefix cache in a third of them, or neither."""
    draw = np.random.default_rng(0)
    if kind == "prompt_counted_as_output":
        prompts = draw.integers(10, 120, 12)
        lines = [f"{p},200,{(200 - p) * 0.04 * (1 + 0.01 * draw.standard_normal()):.3f}" for p in prompts]
        return "\n".join(["prompt_tokens,output_tokens,e2e_s", *lines])
    fast = 30 if kind == "prefix_cache" else 200
    ttft = [(200 if k % 3 else fast) * (1 + 0.03 * draw.standard_normal()) for k in range(30)]
    return "\n".join(
        ["concurrency,prompt_tokens,output_tokens,ttft_ms,tpot_ms", *(f"1,1000,100,{t:.1f},10" for t in ttft)]
    )


@pytest.mark.parametrize("kind", ["prompt_counted_as_output", "prefix_cache", "none"])
def test_a_mistake_is_found_from_the_requests_themselves(tmp_path, kind):
    file = tmp_path / "requests.csv"
    file.write_text(rows(kind))
    assert first(file) == kind


def _prompt(d):
    d["output_lens"] = [a + b for a, b in zip(d["output_lens"], d["input_lens"], strict=True)]
    d["total_output_tokens"] = sum(d["output_lens"])
    d["output_throughput"] = d["total_output_tokens"] / d["duration"]


def _prompt_in_rate(d):
    d["output_throughput"] = d["total_token_throughput"]


def _ttft_in_tpot(d):
    d["mean_tpot_ms"] = (d["mean_ttft_ms"] + 15 * d["mean_tpot_ms"]) / 16


def _long_events(d):
    d["itls"] = [[sum(gaps[k : k + 3]) for k in range(0, 15, 3)] for gaps in d["itls"]]


def _queue(d):
    begin = min(d["start_times"])
    for name in ("ttfts", "latencies"):
        d[name] = [t + start - begin for t, start in zip(d[name], d["start_times"], strict=True)]
    d["start_times"] = [begin] * len(d["ttfts"])


def _queue_in_summary(d):
    d["mean_ttft_ms"] += 400
    for name in ("ttfts", "latencies", "start_times"):
        del d[name]


def _cached(d):
    d["latencies"][5], d["ttfts"][5], d["itls"][5] = 0.0004, 0.0003, [1e-6] * 15


@pytest.mark.parametrize(
    ("tamper", "check"),
    [
        (_prompt, "prompt_counted_as_output"),
        (_prompt_in_rate, "prompt_counted_as_output"),
        (_ttft_in_tpot, "tpot_contains_ttft"),
        (_long_events, "tokens_per_event"),
        (_queue, "client_queue"),
        (_queue_in_summary, "client_queue"),
        (_cached, "cached_answer_in_mean"),
        (lambda d: None, "percentile_from_too_few"),
    ],
)
def test_a_mistake_is_found_in_a_file_that_vllm_wrote(tmp_path, tamper, check):
    content = copy.deepcopy(json.loads(SAMPLE.read_text(encoding="utf-8")))
    tamper(content)
    file = tmp_path / "result.json"
    file.write_text(json.dumps(content))
    assert first(file) == check
