"""Simulated benchmarks whose truth is known: clean ones with noise, stragglers and failures, written as the
files that people publish.

Every time follows from a model's bytes and operations at a share of the device's roofs, so that a clean
file is possible by construction.
"""

import json
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from bench import metrics
from bench.analysis.audit import catalog

MODELS = (
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Meta-Llama-3-8B",
    "meta-llama/Llama-2-70b-hf",
    "mistralai/Mistral-7B-v0.1",
    "Qwen/Qwen3-32B",
)
GPUS = "A6000", "A100-80GB", "H100 SXM", "NVIDIA H200", "L40S"
FORMATS = {"bfloat16": 16, "float16": 16, "fp8": 8, "awq 4bit": 4}
STRAGGLERS = 0.02  # of the requests: an answer that took some times as long
FAILURES = 0.02
LAYOUTS = "requests", "levels", "vllm"


@dataclass
class Benchmark:
    """One simulated benchmark: its conditions, its requests, and what a mistake changes of how it is
    published."""

    facts: dict
    requests: pd.DataFrame
    option: str = ""
    changes: dict = field(default_factory=dict)


def clean(seed):
    """A clean benchmark: closed loop, open loop or one at a time; lengths fixed or spread; all drawn from
    `seed`."""
    draw = np.random.default_rng(seed)
    facts, step, prefill = _machine(draw)
    n = int(draw.integers(300, 500))
    load = draw.choice(["one", "closed", "open"])
    facts["concurrency"] = {"one": 1, "closed": int(2 ** draw.integers(1, 7)), "open": None}[load]
    prompt, output = _lengths(draw, n), _lengths(draw, n)
    at_once = facts["concurrency"] or int(draw.integers(2, 33))
    slower = 1 + 0.02 * at_once  # a larger batch takes longer per step
    pace = step * slower * draw.lognormal(0, 0.04, n)
    wait = draw.exponential(0.3 * step * at_once, n) if at_once > 1 else np.zeros(n)
    ttft = 0.004 + prefill(prompt) * draw.lognormal(0, 0.1, n) + wait
    pace = np.where(draw.random(n) < STRAGGLERS, pace * draw.uniform(2, 8, n), pace)
    rows = pd.DataFrame(
        {"prompt_tokens": prompt, "output_tokens": output, "max_new_tokens": output, "ttft_s": ttft}
    )
    rows["e2e_s"] = ttft + pace * (output - 1)
    rows["gaps"], rows["itl_s"] = output - 1, pace
    rows["tpot_s"] = metrics.tpot_s(rows["ttft_s"], rows["e2e_s"], output)
    rows["error"] = np.where(draw.random(n) < FAILURES, "timed out", "")
    facts["request_rate"] = 0.7 * at_once / rows["e2e_s"].mean() if load == "open" else None
    rows["sent_s"] = begin(rows, facts, draw)
    facts["duration_s"] = float((rows["sent_s"] + rows["e2e_s"]).max() - rows["sent_s"].min())
    return Benchmark(facts, rows)


def _machine(draw):
    """Conditions, seconds of a step at one request, and a function of prompt tokens that gives seconds of a
    prefill."""
    model, gpu, weights = draw.choice(MODELS), draw.choice(GPUS), draw.choice(list(FORMATS))
    shape, device = catalog.model(str(model)), catalog.device(str(gpu))
    size = shape["step_parameters"] * FORMATS[str(weights)] / 8
    devices = int(2 ** np.ceil(np.log2(max(1, 1.15 * size / device["memory_bytes"]))))
    step = (
        size / devices / device["bandwidth_bytes_per_s"] / draw.uniform(0.3, 0.9)
        + shape["kv_values_per_token"] * 2000 / device["bandwidth_bytes_per_s"] / devices
    )
    share = draw.uniform(0.2, 0.7)
    peak = devices * device["flops_per_s"] * share * (2 if FORMATS[str(weights)] == 8 else 1)
    sizes = [shape[name] for name in ("block_parameters", "head_parameters", "attention_values")]
    facts = {
        "model": str(model),
        "gpu": str(gpu),
        "tensor_parallel": devices,
        "weights": str(weights),
        "temperature": 0,
    }
    return facts, step, lambda prompt: metrics.prefill_flops(*sizes, prompt) / peak


def _lengths(draw, n):
    """Token counts: all the same, spread evenly around a mean, or as people write (log-normal)."""
    middle = int(draw.integers(64, 1024))
    kind = draw.choice(["fixed", "even", "written"])
    if kind == "fixed":
        return np.full(n, middle)
    spread = draw.uniform(0.5, 1.5, n) if kind == "even" else draw.lognormal(-0.3, 0.7, n)
    return np.maximum((middle * spread).astype(int), 16)


def begin(rows, facts, draw):
    """When each request was sent: at Poisson moments in an open loop, else as soon as a place of the closed
    loop is free."""
    if facts["request_rate"]:
        return np.cumsum(draw.exponential(1 / facts["request_rate"], len(rows)))
    free, begun = np.zeros(facts["concurrency"]), []
    for took in rows["e2e_s"]:
        place = int(np.argmin(free))
        begun.append(free[place])
        free[place] += took + draw.exponential(0.0005)
    return begun


def level(benchmark):
    """What a benchmark publishes of all its requests: means, percentiles, rates, as `vllm bench serve` and
    others compute them."""
    rows = benchmark.requests[benchmark.requests["error"] == ""]
    n, duration = len(rows), benchmark.facts["duration_s"]
    out = {k: v for k, v in benchmark.facts.items() if v is not None and k != "duration_s"}
    out |= {"option": benchmark.option, "requests": n, "duration_s": duration, "requests_per_s": n / duration}
    out |= {"prompt_tokens": rows["prompt_tokens"].mean(), "output_tokens": rows["output_tokens"].mean()}
    out["output_tokens_per_s"] = rows["output_tokens"].sum() / duration
    for time in ("ttft", "tpot", "e2e"):
        values = rows[f"{time}_s"] * 1e3
        out |= {
            f"mean_{time}_ms": values.mean(),
            f"median_{time}_ms": values.median(),
            f"p99_{time}_ms": values.quantile(0.99),
        }
    out["mean_itl_ms"] = 1e3 * (rows["itl_s"] * rows["gaps"]).sum() / rows["gaps"].sum()
    rate = rows["output_tokens"] / rows["e2e_s"]
    out |= {
        "mean_request_tokens_per_s": rate.mean(),
        "median_request_tokens_per_s": rate.median(),
        "max_request_tokens_per_s": rate.max(),
    }
    return out | benchmark.changes


def write(benchmarks, layout, file):
    """Write one or several benchmarks in one of LAYOUTS: CSV of requests, CSV of levels, or the JSON of
    `vllm bench serve` (the first only)."""
    if layout == "requests":
        tables = [
            one.requests.assign(option=one.option, **{k: v for k, v in one.facts.items() if v is not None})
            for one in benchmarks
        ]
        pd.concat(tables).drop(columns="duration_s").to_csv(file, index=False)
    elif layout == "levels":
        pd.DataFrame([level(one) for one in benchmarks]).to_csv(file, index=False)
    else:
        file.write_text(json.dumps(_vllm(benchmarks[0])), encoding="utf-8")
    return file


def _vllm(benchmark):
    """The summary in the words of `vllm bench serve`; its file has no e2e and no rate of single requests."""
    found = level(benchmark)
    total = found["requests"] * found["output_tokens"]
    kept = {k: v for k, v in found.items() if "_ttft_ms" in k or "_tpot_ms" in k or "_itl_ms" in k}
    return kept | {
        "model_id": found["model"],
        "gpu": found["gpu"],
        "tensor_parallel_size": found["tensor_parallel"],
        "dtype": found["weights"],
        "completed": found["requests"],
        "duration": found["duration_s"],
        "request_throughput": found["requests_per_s"],
        "output_throughput": found["output_tokens_per_s"],
        "total_input_tokens": found["requests"] * found["prompt_tokens"],
        "total_output_tokens": total,
        "max_concurrency": found.get("concurrency"),
        "request_rate": found.get("request_rate", "inf"),
    }
