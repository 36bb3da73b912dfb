"""The mistakes in tables of few columns and in a file that a tool wrote: each is found first."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from thinning import a_third

import llm_measured.audit
from bench.paths import ROOT

SAMPLE = ROOT / "data" / "audits" / "samples" / "vllm-bench-serve.json"
TABLES = {
    one["name"]: (one["text"], one["check"])
    for one in yaml.safe_load((Path(__file__).with_name("mistakes.yaml")).read_text(encoding="utf-8"))
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
