"""Simulated benchmarks whose truth is known, written as the files of common tools.

Imports nothing of the audit: devices and models stand here by their datasheets and model cards, and a small
scheduler serves requests step by step, so that queues, waves and stalls come about as they do in an
engine. A clean
file is possible by construction: no step reads faster than 30 to 90 % of the memory, no prefill computes
faster than 20 to 70 % of the peak.
"""

import csv
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

# Name: memory in bytes, bandwidth in bytes/s, dense 16-bit operations/s of one device (vendors' datasheets).
DEVICES = {
    "NVIDIA H100 80GB HBM3": (80e9, 3.35e12, 989e12),
    "NVIDIA A100-SXM4-80GB": (80e9, 2.039e12, 312e12),
    "NVIDIA H200": (141e9, 4.8e12, 989e12),
    "NVIDIA L40S": (48e9, 0.864e12, 362e12),
}
# Name: billions of parameters in all and active, layers, KV values per token (model cards and config.json).
DENSE = {
    "meta-llama/Llama-3.1-8B-Instruct": (8.03, 8.03, 2 * 32 * 8 * 128),
    "mistralai/Mistral-7B-v0.1": (7.24, 7.24, 2 * 32 * 8 * 128),
    "Qwen/Qwen2.5-14B": (14.8, 14.8, 2 * 48 * 8 * 128),
    "meta-llama/Llama-3.1-70B-Instruct": (70.6, 70.6, 2 * 80 * 8 * 128),
}
MIXTURES = {
    "mistralai/Mixtral-8x7B-Instruct-v0.1": (46.7, 12.9, 2 * 32 * 8 * 128),
    "Qwen/Qwen3-30B-A3B": (30.5, 3.3, 2 * 48 * 4 * 128),
    "openai/gpt-oss-20b": (20.9, 3.6, 2 * 24 * 8 * 64),
    "openai/gpt-oss-120b": (116.8, 5.1, 2 * 36 * 8 * 64),
}
LLAMA_CPP = {
    "meta-llama/Llama-3.1-8B-Instruct": "llama 8B Q4_K - Medium",
    "mistralai/Mistral-7B-v0.1": "llama 7B Q4_K - Medium",
    "Qwen/Qwen2.5-14B": "qwen2 14B Q4_K - Medium",
    "meta-llama/Llama-3.1-70B-Instruct": "llama 70B Q4_K - Medium",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "llama 8x7B Q4_K - Medium",
    "Qwen/Qwen3-30B-A3B": "qwen3moe 30B.A3B Q4_K - Medium",
    "openai/gpt-oss-20b": "gpt-oss 20B MXFP4 MoE",
    "openai/gpt-oss-120b": "gpt-oss 120B MXFP4 MoE",
}
LOADS = "closed", "open", "all at once"


@dataclass
class Benchmark:
    """One simulated benchmark: facts, one row per request, and what of its published figures was changed."""

    facts: dict
    requests: pd.DataFrame
    figures: dict = field(default_factory=dict)

    def but(self, **changes: Any) -> "Benchmark":
        """The same with other parts."""
        return replace(self, **changes)


def clean(
    seed: int,
    mixture: bool = False,
    devices: int = 1,
    load: str = "closed",
    requests: int = 48,
    concurrency: int | None = None,
    spread: bool = True,
    prompt_share: float = 1.0,
) -> Benchmark:
    """A clean benchmark: `devices` share the model; prompts are `prompt_share` times as long as answers."""
    draw = np.random.default_rng(seed)
    models = MIXTURES if mixture else DENSE
    gpu = str(draw.choice(list(DEVICES)))
    memory, bandwidth, flops = DEVICES[gpu]
    fitting = [name for name, (total, *_) in models.items() if total * 1.1e9 < 0.9 * memory * devices]
    model = str(draw.choice(fitting or [min(models, key=lambda name: models[name][0])]))
    total, active, kv = models[model]
    wide = 2 if total * 2.2e9 < 0.9 * memory * devices else 1  # bytes of a weight: bfloat16 or fp8
    if total * wide * 1.05e9 > memory * devices:
        return clean(seed + 7919, mixture, devices, load, requests, concurrency, spread, prompt_share)
    read = devices * bandwidth * draw.uniform(0.3, 0.9)
    peak = devices * flops * draw.uniform(0.2, 0.7)
    slots = concurrency or int(2 ** draw.integers(1, 5))
    answer = int(draw.integers(40, 160))
    output = _lengths(draw, requests, answer, spread)
    prompt = _lengths(draw, requests, max(16, int(answer * prompt_share * draw.uniform(0.8, 1.2))), spread)
    share = active / total

    def step(batch: int, tokens: float) -> float:
        weights = total * wide * 1e9 * (1 - (1 - share) ** batch)
        return (weights + kv * 2 * tokens) / read * draw.lognormal(0, 0.02) + 3e-4

    def prefill(tokens: float) -> float:
        return 2 * active * 1e9 * tokens / peak * draw.lognormal(0.1, 0.05) + 2e-3

    alone = prefill(prompt.mean()) + output.mean() * step(1, 500)
    rate = 0.5 * slots / alone / 2 if load == "open" else None
    due = np.cumsum(draw.exponential(1 / rate, requests)) if rate else np.zeros(requests)
    rows = _serve(prompt, output, due, slots, load, step, prefill)
    facts = {
        "model": model,
        "gpu": gpu,
        "devices": devices,
        "weights": "bfloat16" if wide == 2 else "fp8",
        "concurrency": slots if load == "closed" else None,
        "request_rate": rate,
        "load": load,
        "failed": 0,
        "duration_s": float((rows["sent_s"] + rows["e2e_s"]).max()),
        "total": total * 1e9,
        "bytes": total * 1e9 * 0.6,
        "step_s": float(total * 0.6e9 * share / read + 3e-4),
        "least_step_s": total * wide * 1e9 * share / bandwidth / devices,
    }
    return Benchmark(facts, rows)


def _lengths(draw, n, middle, spread):
    if not spread:
        return np.full(n, middle)
    return np.maximum((middle * draw.uniform(0.5, 1.5, n)).astype(int), 8)


def _serve(prompt, output, due, slots, load, step, prefill):
    """Requests through one engine: waiting ones are prefilled as places become free, all others then take
    a step."""
    n, now, waiting, running = len(prompt), 0.0, 0, {}
    sent, first, last = due.copy(), np.zeros(n), np.zeros(n)
    while waiting < n or running:
        if not running and waiting < n and due[waiting] > now:
            now = due[waiting]
        if waiting < n and due[waiting] <= now and len(running) < slots:
            k = waiting
            if load == "closed":
                sent[k] = now
            now += prefill(prompt[k])
            first[k] = now
            running[k] = output[k] - 1
            waiting += 1
            continue
        now += step(len(running), sum(prompt[k] for k in running))
        for k in list(running):
            running[k] -= 1
            if running[k] <= 0:
                last[k] = now
                del running[k]
    rows = pd.DataFrame({"prompt_tokens": prompt, "output_tokens": output, "sent_s": sent})
    rows["ttft_s"], rows["e2e_s"] = first - sent, last - sent
    rows["events"] = output
    rows["itl_s"] = (rows["e2e_s"] - rows["ttft_s"]) / (output - 1)
    rows["tpot_s"] = rows["itl_s"]
    return rows


def figures(benchmark: Benchmark) -> dict[str, float]:
    """What a tool publishes of all requests; what `benchmark.figures` names is replaced."""
    rows, facts = benchmark.requests, benchmark.facts
    n, duration = len(rows), facts["duration_s"]
    total, prompts = float(rows["output_tokens"].sum()), float(rows["prompt_tokens"].sum())
    out = {
        "requests": n,
        "failed": facts["failed"],
        "duration_s": duration,
        "requests_per_s": n / duration,
        "output_tokens_per_s": total / duration,
        "total_tokens_per_s": (total + prompts) / duration,
        "total_output_tokens": total,
        "total_prompt_tokens": prompts,
        "output_tokens": total / n,
        "prompt_tokens": prompts / n,
    }
    for time in ("ttft", "tpot", "itl", "e2e"):
        values = rows[f"{time}_s"]
        out |= {f"mean_{time}_s": values.mean(), f"median_{time}_s": values.median()}
        out |= {f"p{q}_{time}_s": values.quantile(q / 100) for q in (90, 95, 99)}
        out |= {f"min_{time}_s": values.min(), f"max_{time}_s": values.max()}
    return out | benchmark.figures


def _vllm(one, stated):
    found, facts = figures(one), one.facts
    out = {
        "backend": "vllm",
        "model_id": facts["model"],
        "num_prompts": found["requests"] + found["failed"],
        "request_rate": facts["request_rate"] or "inf",
        "max_concurrency": facts["concurrency"],
        "duration": found["duration_s"],
        "completed": found["requests"],
        "failed": found["failed"],
        "total_input_tokens": found["total_prompt_tokens"],
        "total_output_tokens": found["total_output_tokens"],
        "request_throughput": found["requests_per_s"],
        "output_throughput": found["output_tokens_per_s"],
        "total_token_throughput": found["total_tokens_per_s"],
        "gpu": facts["gpu"],
        "dtype": facts["weights"],
    }
    for time in ("ttft", "tpot", "itl"):
        out |= {f"{q}_{time}_ms": 1e3 * found[f"{q}_{time}_s"] for q in ("mean", "median", "p99")}
    return out | ({"tensor_parallel_size": facts["devices"]} if stated else {})


def _vllm_detailed(one, stated):
    rows = one.requests
    gaps = [
        [gap] * max(int(events) - 1, 0) for gap, events in zip(rows["itl_s"], rows["events"], strict=True)
    ]
    return _vllm(one, stated) | {
        "input_lens": rows["prompt_tokens"].tolist(),
        "output_lens": rows["output_tokens"].tolist(),
        "ttfts": rows["ttft_s"].tolist(),
        "latencies": rows["e2e_s"].tolist(),
        "start_times": rows["sent_s"].tolist(),
        "itls": gaps,
        "errors": [""] * len(rows),
    }


def _sglang(one, stated):
    found = _vllm(one, stated)
    for time in ("mean", "median", "p99"):
        found[f"{time}_e2e_latency_ms"] = 1e3 * figures(one)[f"{time}_e2e_s"]
    found["tokenizer_id"] = found.pop("model_id")
    found["total_throughput"] = found.pop("total_token_throughput")
    return found | {"backend": "sglang"}


def _guidellm(one, stated):
    found, facts = figures(one), one.facts

    def spread(time, factor):
        percentiles = {f"p{q}": factor * found[f"p{q}_{time}_s"] for q in (90, 95, 99)}
        ends = {q: factor * found[f"{q}_{time}_s"] for q in ("mean", "median", "min", "max")}
        return {"successful": ends | {"percentiles": percentiles}}

    def mean(value):
        return {"successful": {"mean": value}}

    kind = {"closed": "concurrent", "open": "poisson", "all at once": "throughput"}[facts["load"]]
    strategy = {"type_": kind, "streams": facts["concurrency"], "rate": facts["request_rate"]}
    return {
        "config": {"spec": {"backend": {"model": facts["model"]}}},
        "benchmarks": [
            {
                "config": {"strategy": strategy},
                "duration": found["duration_s"],
                "metrics": {
                    "request_totals": {"successful": found["requests"], "errored": found["failed"]},
                    "time_to_first_token_ms": spread("ttft", 1e3),
                    "inter_token_latency_ms": spread("tpot", 1e3),
                    "request_latency": spread("e2e", 1),
                    "requests_per_second": mean(found["requests_per_s"]),
                    "output_tokens_per_second": mean(found["output_tokens_per_s"]),
                    "tokens_per_second": mean(found["total_tokens_per_s"]),
                    "prompt_token_count": mean(found["prompt_tokens"]),
                    "output_token_count": mean(found["output_tokens"]),
                },
            }
        ],
    }


GENAI = {
    "Time To First Token": "ttft",
    "Request Latency": "e2e",
    "Inter Token Latency": "tpot",
}


def _genai(one, file):
    found = figures(one)
    with open(file, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["Metric", "avg", "min", "max", "p99", "p95", "p90", "p50"])
        for name, time in GENAI.items():
            names = ["mean", "min", "max", "p99", "p95", "p90", "median"]
            writer.writerow([f"{name} (ms)", *(f"{1e3 * found[f'{q}_{time}_s']:,.2f}" for q in names)])
        for name, value in (("Output", "output_tokens"), ("Input", "prompt_tokens")):
            writer.writerow([f"{name} Sequence Length (tokens)", f"{found[value]:,.2f}"])
        writer.writerow([])
        writer.writerow(["Metric", "Value"])
        writer.writerow(["Output Token Throughput (per sec)", f"{found['output_tokens_per_s']:,.2f}"])
        writer.writerow(["Request Throughput (per sec)", f"{found['requests_per_s']:,.3f}"])
        writer.writerow(["Request Count (count)", f"{found['requests']:,.2f}"])


def _aiperf(one, stated):
    found = figures(one)
    out = {}
    for name, time in GENAI.items():
        key = name.lower().replace(" ", "_")
        out[key] = {
            "unit": "ms",
            "avg": 1e3 * found[f"mean_{time}_s"],
            "p50": 1e3 * found[f"median_{time}_s"],
        }
        out[key] |= {q: 1e3 * found[f"{q}_{time}_s"] for q in ("min", "max", "p90", "p95", "p99")}
    plain = {
        "request_count": "requests",
        "error_request_count": "failed",
        "output_sequence_length": "output_tokens",
        "input_sequence_length": "prompt_tokens",
        "request_throughput": "requests_per_s",
        "output_token_throughput": "output_tokens_per_s",
        "total_token_throughput": "total_tokens_per_s",
        "benchmark_duration": "duration_s",
        "total_osl": "total_output_tokens",
        "total_isl": "total_prompt_tokens",
    }
    out |= {name: {"unit": "", "avg": found[value]} for name, value in plain.items()}
    load = {"concurrency": one.facts["concurrency"], "request_rate": one.facts["request_rate"]}
    phases = [{k: v for k, v in load.items() if v is not None}]
    return out | {"input_config": {"phases": phases, "model_names": [one.facts["model"]]}}


def _inference_perf(one, stated):
    found, facts = figures(one), one.facts

    def spread(time):
        return {q: found[f"{q}_{time}_s"] for q in ("mean", "median", "p90", "p95", "p99", "min", "max")}

    names = ("time_to_first_token", "ttft"), ("time_per_output_token", "tpot"), ("request_latency", "e2e")
    latency = {name: spread(time) for name, time in names}
    return {
        "load_summary": {"requested_rate": facts["request_rate"], "concurrency": facts["concurrency"]},
        "benchmark_time_seconds": found["duration_s"],
        "successes": {
            "count": found["requests"],
            "latency": latency,
            "throughput": {
                "requests_per_sec": found["requests_per_s"],
                "output_tokens_per_sec": found["output_tokens_per_s"],
                "total_tokens_per_sec": found["total_tokens_per_s"],
            },
            "prompt_len": {"mean": found["prompt_tokens"]},
            "output_len": {"mean": found["output_tokens"]},
        },
        "failures": {"count": found["failed"]},
    }


def _trtllm(one, stated):
    found, facts = figures(one), one.facts
    return {
        "engine": {
            "model": facts["model"],
            "version": "1.0",
            "backend": "pytorch",
            "dtype": facts["weights"],
        },
        "world_info": {"tp_size": facts["devices"], "world_size": facts["devices"]} if stated else {},
        "request_info": {
            "num_requests": found["requests"],
            "avg_input_length": found["prompt_tokens"],
            "avg_output_length": found["output_tokens"],
        },
        "performance": {
            "total_latency_ms": 1e3 * found["duration_s"],
            "request_throughput_req_s": found["requests_per_s"],
            "system_output_throughput_tok_s": found["output_tokens_per_s"],
            "system_total_throughput_tok_s": found["total_tokens_per_s"],
            "avg_request_latency_ms": 1e3 * found["mean_e2e_s"],
        },
        "streaming_metrics": {
            "avg_ttft_ms": 1e3 * found["mean_ttft_s"],
            "avg_tpot_ms": 1e3 * found["mean_tpot_s"],
        },
    }


def _llama_bench(one, stated):
    """One test of generation, one request at a time, on all devices: they stand in the file by name."""
    facts, draw = one.facts, np.random.default_rng(len(one.requests))
    rates = [1 / facts["step_s"] * x for x in draw.lognormal(0, 0.01, 5)]
    rate = one.figures.get("output_tokens_per_s", float(np.mean(rates)))
    bits = 0.6 if "MXFP4" not in LLAMA_CPP[facts["model"]] else 0.53
    return [
        {
            "build_commit": "b6000",
            "build_number": 6000,
            "gpu_info": ", ".join([facts["gpu"]] * facts["devices"]),
            "backends": "CUDA",
            "model_filename": facts["model"].split("/")[1] + ".gguf",
            "model_type": LLAMA_CPP[facts["model"]],
            "model_size": int(facts["total"] * bits),
            "model_n_params": int(facts["total"]),
            "n_prompt": 0,
            "n_gen": 128,
            "n_depth": 0,
            "avg_ns": int(128e9 / rate),
            "avg_ts": rate,
            "samples_ns": [int(128e9 / x) for x in rates],
            "samples_ts": rates,
        }
    ]


def _row(one, stated, unit):
    """A row of a table of levels, times in `unit` (s, ms, or none: milliseconds without a word)."""
    found, facts = figures(one), one.facts
    factor, suffix = {"s": (1, "_s"), "ms": (1e3, "_ms"), "none": (1e3, "")}[unit]
    row = {"model": facts["model"], "gpu": facts["gpu"], "dtype": facts["weights"]}
    row |= {"tensor_parallel": facts["devices"]} if stated else {}
    row |= {"concurrency": facts["concurrency"], "request_rate": facts["request_rate"]}
    keep = ["requests", "failed", "duration_s", "requests_per_s", "output_tokens_per_s", "output_tokens"]
    row |= {name: found[name] for name in [*keep, "prompt_tokens"]}
    for time in ("ttft", "tpot", "itl", "e2e"):
        name = "latency" if time == "e2e" else time
        row |= {f"{q}_{name}{suffix}": factor * found[f"{q}_{time}_s"] for q in ("mean", "median", "p99")}
    return {k: v for k, v in row.items() if v is not None}


def _requests(one, stated, unit):
    facts = one.facts
    factor, suffix = {"s": (1, "_s"), "ms": (1e3, "_ms"), "none": (1e3, "")}[unit]
    table = one.requests[["prompt_tokens", "output_tokens", "events", "sent_s"]].copy()
    for time in ("ttft", "tpot", "e2e"):
        if f"{time}_s" in one.requests:
            table[("latency" if time == "e2e" else time) + suffix] = factor * one.requests[f"{time}_s"]
    table = table.assign(model=facts["model"], gpu=facts["gpu"], dtype=facts["weights"])
    if facts["concurrency"]:
        table = table.assign(concurrency=facts["concurrency"])
    if facts["request_rate"]:
        table = table.assign(request_rate=facts["request_rate"])
    return table.assign(tensor_parallel=facts["devices"]) if stated else table


JSONS = {
    "vllm": _vllm,
    "vllm detailed": _vllm_detailed,
    "guidellm": _guidellm,
    "aiperf": _aiperf,
    "inference-perf": _inference_perf,
    "trtllm-bench": _trtllm,
    "llama-bench": _llama_bench,
}
TABLES = "csv of levels", "csv of requests", "json of levels"
LAYOUTS = (*JSONS, "sglang", "genai-perf", "llama-bench markdown", *TABLES)


def write(
    benchmarks: list[Benchmark], layout: str, folder: Path, stated: bool = True, unit: str = "ms"
) -> Path:
    """Write benchmarks as one file of `layout` (of LAYOUTS) in `folder`: several only where a layout holds
    several; `stated`: with the number of devices; `unit`: of a table's times."""
    one, name = benchmarks[0], layout.replace(" ", "-")
    if layout in JSONS:
        file = folder / f"{name}.json"
        file.write_text(json.dumps(JSONS[layout](one, stated), default=float), encoding="utf-8")
    elif layout == "sglang":
        file = folder / f"{name}.jsonl"
        lines = [json.dumps(_sglang(each, stated), default=float) for each in benchmarks]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif layout == "genai-perf":
        file = folder / f"{name}.csv"
        _genai(one, file)
    elif layout == "llama-bench markdown":
        file, found = folder / f"{name}.md", _llama_bench(one, stated)[0]
        file.write_text(
            "| model | size | params | backend | ngl | test | t/s |\n| --- | ---: | ---: | --- | "
            f"--: | ---: | ---: |\n| {found['model_type']} | {found['model_size'] / 2**30:.2f} GiB | "
            f"{found['model_n_params'] / 1e9:.2f} B | CUDA | 99 | tg128 | {found['avg_ts']:.2f} ± 0.40 |\n",
            encoding="utf-8",
        )
    elif layout == "csv of requests":
        file = folder / f"{name}.csv"
        pd.concat([_requests(each, stated, unit) for each in benchmarks]).to_csv(file, index=False)
    else:
        rows = [_row(each, stated, unit) for each in benchmarks]
        file = folder / f"{name}.{'csv' if layout.startswith('csv') else 'json'}"
        if layout.startswith("csv"):
            pd.DataFrame(rows).to_csv(file, index=False)
        else:
            file.write_text(json.dumps({"results": rows}, default=float), encoding="utf-8")
    return file
