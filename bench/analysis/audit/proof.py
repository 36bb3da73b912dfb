"""Proof of the checks: simulated clean files pass, and each with a mistake put in fails with that finding
first.

python -m bench.analysis.audit.proof        # prints the table of false-alarm and detection rates
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from bench.analysis import audit
from bench.analysis.audit import simulate
from bench.analysis.audit.checks.finding import CONTRADICTION, IMPOSSIBLE, REGISTRY
from bench.analysis.audit.checks.pace import VISIBLE_ALONE
from bench.paths import ROOT

ALARMS = IMPOSSIBLE, CONTRADICTION


def _timed(benchmark, rows):
    """The benchmark with other requests; what is published of them is computed from these."""
    end = float((rows["sent_s"] + rows["e2e_s"]).max() - rows["sent_s"].min())
    return [simulate.Benchmark(benchmark.facts | {"duration_s": end}, rows, benchmark.option)]


def prompt_counted_as_output(benchmark, draw):
    """Every answer is counted with its prompt."""
    rows = benchmark.requests
    return [
        simulate.Benchmark(
            benchmark.facts, rows.assign(output_tokens=rows["output_tokens"] + rows["prompt_tokens"])
        )
    ]


def bandwidth_beyond_device(benchmark, draw):
    """Weights of 32 bits by their label that were read as 8 bits: more bytes than the device's memory
    gives."""
    rows = benchmark.requests
    rows = rows.assign(**_faster(benchmark, rows))
    rows = rows.assign(sent_s=simulate.begin(rows, benchmark.facts, draw))
    return _timed(simulate.Benchmark(benchmark.facts | {"weights": "float32"}, rows), rows)


def _faster(benchmark, rows):
    """The times of `rows` at a pace at which 32-bit weights would need one and a half times the bandwidth."""
    shape, device = (
        simulate.catalog.model(benchmark.facts["model"]),
        simulate.catalog.device(benchmark.facts["gpu"]),
    )
    step = (
        shape["step_parameters"]
        * 4
        / device["bandwidth_bytes_per_s"]
        / benchmark.facts["tensor_parallel"]
        / 1.5
    )
    pace = rows["itl_s"] * step / rows["itl_s"].median()
    return {"itl_s": pace, "tpot_s": pace, "e2e_s": rows["ttft_s"] + pace * (rows["output_tokens"] - 1)}


def cached_answer_in_mean(benchmark, draw):
    """One answer in twenty came from a cache within a millisecond per hundred tokens."""
    rows = benchmark.requests.copy()
    hit = rows.sample(max(1, len(rows) // 20), random_state=int(draw.integers(1 << 30))).index
    rows.loc[hit, "ttft_s"] = 0.001
    rows.loc[hit, "itl_s"] = rows.loc[hit, "tpot_s"] = 1e-5
    rows.loc[hit, "e2e_s"] = rows.loc[hit, "ttft_s"] + 1e-5 * (rows.loc[hit, "output_tokens"] - 1)
    return [simulate.Benchmark(benchmark.facts, rows)]


def same_run_twice(benchmark, draw):
    """The run of 4-bit weights stands as the unquantised baseline, too."""
    return [
        simulate.Benchmark(benchmark.facts | {"weights": "nf4 4bit"}, benchmark.requests, "nf4 4bit"),
        simulate.Benchmark(benchmark.facts | {"weights": "float16"}, benchmark.requests, "unquantised"),
    ]


def tpot_contains_ttft(benchmark, draw):
    """TPOT is the whole answer's time over its tokens."""
    rows = benchmark.requests.assign(output_tokens=benchmark.requests["output_tokens"].clip(upper=24))
    rows["gaps"] = rows["output_tokens"] - 1
    rows["e2e_s"] = rows["ttft_s"] + rows["itl_s"] * rows["gaps"]
    share = (rows["ttft_s"].mean() - rows["itl_s"].mean()) / rows["e2e_s"].mean()
    if share < 1.25 * VISIBLE_ALONE or (benchmark.facts["concurrency"] or 9) > 4:
        # so short a TTFT changes no figure by more than runs differ, and many short answers are more
        # prefill than a device does
        return None
    rows["sent_s"] = simulate.begin(rows, benchmark.facts, draw)
    return _timed(benchmark, rows.assign(tpot_s=rows["e2e_s"] / rows["output_tokens"]))


def tokens_per_event(benchmark, draw):
    """Events of several tokens, and the gap between two events published as that of tokens."""
    rows, k = benchmark.requests, int(draw.integers(2, 6))
    gaps = np.ceil((rows["output_tokens"] - 1) / k).clip(lower=1)
    return [
        simulate.Benchmark(
            benchmark.facts, rows.assign(gaps=gaps, itl_s=(rows["e2e_s"] - rows["ttft_s"]) / gaps)
        )
    ]


def client_queue(benchmark, draw):
    """All requests fall due at once, wait in the client for one of its places, and their times count from
    then."""
    rows, facts = benchmark.requests, benchmark.facts
    if not facts["concurrency"]:
        return None
    wait = rows["sent_s"]
    return [
        simulate.Benchmark(
            facts, rows.assign(sent_s=0.0, ttft_s=rows["ttft_s"] + wait, e2e_s=rows["e2e_s"] + wait)
        )
    ]


def prefix_cache(benchmark, draw):
    """Half of the prompts are answered by nine tenths from a prefix cache, as the server reports."""
    rows = benchmark.requests.copy()
    hit = rows.sample(frac=0.5, random_state=int(draw.integers(1 << 30))).index
    saved = 0.9 * (rows.loc[hit, "ttft_s"] - 0.004).clip(lower=0)
    rows.loc[hit, "ttft_s"] -= saved
    rows.loc[hit, "e2e_s"] -= saved
    rows["cached_tokens"] = 0.0
    rows.loc[hit, "cached_tokens"] = (0.9 * rows.loc[hit, "prompt_tokens"]).round()
    one = simulate.Benchmark(benchmark.facts, rows)
    one.changes = {"cached_tokens": rows["cached_tokens"].sum()}
    return [one]


def percentile_from_too_few(benchmark, draw):
    """A p99 of thirty requests."""
    return _timed(benchmark, benchmark.requests.iloc[:30])


MISTAKES = [
    prompt_counted_as_output,
    bandwidth_beyond_device,
    cached_answer_in_mean,
    same_run_twice,
    tpot_contains_ttft,
    tokens_per_event,
    client_queue,
    prefix_cache,
    percentile_from_too_few,
]
# What a layout cannot hold: two runs in one vLLM file, percentiles in a table of requests, cached tokens
# and single rates in a vLLM file.
NOT_IN = {
    ("vllm", "same_run_twice"),
    ("vllm", "prefix_cache"),
    ("vllm", "cached_answer_in_mean"),
    ("requests", "percentile_from_too_few"),
}


def _untold(layout, mistake, benchmarks):
    """A vLLM file of an open loop has neither e2e nor concurrency: nothing but the count itself says how
    many tokens came."""
    return layout == "vllm" and mistake is prompt_counted_as_output and not benchmarks[0].facts["concurrency"]


def audited(benchmarks, layout):
    """Findings of simulated benchmarks, written to a file in `layout` and read again."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"simulated.{'json' if layout == 'vllm' else 'csv'}"
        return audit.audit([simulate.write(benchmarks, layout, file)])


def false_alarms(seeds):
    """One row per clean file: seed, layout, alarms (names of impossible and contradictory findings)."""
    rows = []
    for seed in seeds:
        benchmark = simulate.clean(seed)
        for layout in simulate.LAYOUTS:
            found = [f.check for f in audited([benchmark], layout) if f.kind in ALARMS]
            rows.append({"seed": seed, "layout": layout, "alarms": found})
    return pd.DataFrame(rows)


def detections(seeds):
    """One row per file with a mistake: seed, layout, mistake, first (name of the first finding), others
    (those that are no consequence)."""
    rows = []
    for seed in seeds:
        for mistake in MISTAKES:
            benchmarks = mistake(simulate.clean(seed), np.random.default_rng(seed))
            for layout in simulate.LAYOUTS if benchmarks else ():
                if (layout, mistake.__name__) in NOT_IN or _untold(layout, mistake, benchmarks):
                    continue
                found = audited(benchmarks, layout)
                others = [f.check for f in found[1:] if f.kind in ALARMS and not f.consequence_of]
                rows.append(
                    {
                        "seed": seed,
                        "layout": layout,
                        "mistake": mistake.__name__,
                        "first": found[0].check,
                        "others": others,
                    }
                )
    return pd.DataFrame(rows)


def table(clean_seeds=range(334), mistake_seeds=range(1000, 1040)):
    """One row per check: check, kind, clean_files, false_alarm_percent, and of files with its mistake put
    in: files, found_first_percent,
    found_percent_requests / levels / vllm (first finding, by layout)."""
    alarms, hits = false_alarms(clean_seeds), detections(mistake_seeds)
    rows = []
    for name, check in REGISTRY.items():
        raised = alarms["alarms"].map(lambda names, name=name: name in names).mean() * 100
        raised = raised if check.kind in ALARMS else np.nan  # what a file does not say is no alarm
        own = hits[hits["mistake"] == name]
        right = own["first"] == name
        row = {
            "check": name,
            "kind": check.kind,
            "clean_files": len(alarms),
            "false_alarm_percent": raised,
            "files": len(own),
        }
        row |= {"found_first_percent": right.mean() * 100 if len(own) else np.nan}
        row |= {
            f"found_percent_{layout}": right[own["layout"] == layout].mean() * 100
            for layout in simulate.LAYOUTS
        }
        rows.append(row)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    out = ROOT / "data" / "audits" / "proof.csv"
    table().round(2).to_csv(out, index=False, lineterminator="\n")
    print(out.read_text(encoding="utf-8"))
