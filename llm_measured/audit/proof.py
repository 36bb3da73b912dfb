"""Proof of the checks: simulated clean files pass, and each with a mistake put in fails with that finding
first.

python -m llm_measured.audit.proof    # in the checkout; writes data/audits/proof.csv: false alarms and
                                      # detections, by layout and strength
"""

import argparse
import itertools
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from llm_measured.audit import report, simulate
from llm_measured.audit.checks.finding import CONTRADICTION, IMPOSSIBLE, Finding
from llm_measured.audit.simulate import Benchmark

STRENGTHS = "weak", "middle", "strong"
SUMMARIES = "vllm", "csv of levels", "json of levels"


def _figures(one, **changes):
    return one.but(figures=one.figures | changes)


def prompt_counted_as_output(seed: int, strength: int) -> list[simulate.Benchmark]:
    """Every answer is counted with its prompt, which is 0.3, 1 or 4 times as long."""
    out = []
    for k, slots in enumerate((1, 4, 8)):
        one = simulate.clean(seed + 100 * k, concurrency=slots, prompt_share=(0.3, 1, 4)[strength], devices=2)
        rows = one.requests
        rows = rows.assign(output_tokens=rows["output_tokens"] + rows["prompt_tokens"])
        pace = (rows["e2e_s"] - rows["ttft_s"]) / (rows["output_tokens"] - 1)
        out.append(one.but(requests=rows.assign(tpot_s=pace)))
    return out


def rate_of_other_scope(seed: int, strength: int) -> list[simulate.Benchmark]:
    """The tokens/s of one of 2, 4 or 8 devices stand as the system's."""
    devices = (2, 4, 8)[strength]
    ones = [simulate.clean(seed + k, devices=devices, concurrency=8) for k in range(3)]
    return [
        _figures(one, output_tokens_per_s=simulate.figures(one)["output_tokens_per_s"] / devices)
        for one in ones
    ]


def mean_called_median(seed: int, strength: int) -> list[simulate.Benchmark]:
    """All medians are the means, which 1, 5 or 20 % of slow answers have lifted."""
    one, draw = simulate.clean(seed, concurrency=4), np.random.default_rng(seed)
    rows = one.requests.copy()
    slow = rows.sample(frac=(0.03, 0.1, 0.2)[strength], random_state=seed).index
    factor = draw.uniform(2, 5, len(slow))
    rows.loc[slow, "tpot_s"] *= factor
    rows["itl_s"] = rows["tpot_s"]
    rows["e2e_s"] = rows["ttft_s"] + rows["tpot_s"] * (rows["output_tokens"] - 1)
    places = np.zeros(4)
    for k in rows.index:
        place = int(np.argmin(places))
        rows.loc[k, "sent_s"] = places[place]
        places[place] += rows.at[k, "e2e_s"]
    one = one.but(requests=rows, facts=one.facts | {"duration_s": float(places.max())})
    found = simulate.figures(one)
    return [_figures(one, **{f"median_{t}_s": found[f"mean_{t}_s"] for t in ("ttft", "tpot", "itl", "e2e")})]


def batch_time_as_request_time(seed: int, strength: int) -> list[simulate.Benchmark]:
    """The time of a batch of 2, 8 or 32 stands for each of its requests."""
    size = (2, 4, 16)[strength]
    one = simulate.clean(seed, concurrency=size)
    group = np.arange(len(one.requests)) // size
    rows = one.requests.assign(e2e_s=one.requests.groupby(group)["e2e_s"].transform("max"))
    found = simulate.figures(one)
    changes = {f"{q}_e2e_s": found[f"{q}_e2e_s"] * size for q in ("mean", "median", "p99")}
    return [_figures(one.but(requests=rows), **changes)]


def same_time_for_other_lengths(seed: int, strength: int) -> list[simulate.Benchmark]:
    """Every answer took the same time, within 2 % or 0.5 % or to every digit."""
    one, draw = simulate.clean(seed, concurrency=1), np.random.default_rng(seed)
    noise = (0.02, 0.005, 0.0)[strength]
    rows = one.requests.drop(columns="tpot_s")
    return [
        one.but(
            requests=rows.assign(e2e_s=rows["e2e_s"].mean() * (1 + noise * draw.standard_normal(len(rows))))
        )
    ]


def copied_rows(seed: int, strength: int) -> list[simulate.Benchmark]:
    """One, three or all of six rows are those of another device."""
    ones = [simulate.clean(seed + k, concurrency=2**k, devices=1) for k in range(6)]
    others = [simulate.clean(seed + 50 + k, concurrency=2**k, devices=1) for k in range(6)]
    place = {"gpu": "NVIDIA H200" if ones[0].facts["gpu"] != "NVIDIA H200" else "NVIDIA L40S"}
    for k in range((1, 3, 6)[strength]):
        others[k] = _figures(others[k].but(facts=others[k].facts | place), **simulate.figures(ones[k]))
    return [*ones, *others]


def failed_counted_as_throughput(seed: int, strength: int) -> list[simulate.Benchmark]:
    """Rates count 2, 10 or 30 % of requests that failed."""
    one = simulate.clean(seed, concurrency=4)
    found, failed = simulate.figures(one), max(1, int(len(one.requests) * (0.02, 0.1, 0.3)[strength]))
    one = one.but(facts=one.facts | {"failed": failed})
    factor = 1 + failed / found["requests"]
    return [
        _figures(one, **{name: found[name] * factor for name in ("requests_per_s", "output_tokens_per_s")})
    ]


def empty_answer_in_mean(seed: int, strength: int) -> list[simulate.Benchmark]:
    """2, 10 or 30 % of the answers have no tokens, and count."""
    one = simulate.clean(seed, concurrency=4)
    rows = one.requests.copy()
    empty = rows.sample(max(1, int(len(rows) * (0.02, 0.1, 0.3)[strength])), random_state=seed).index
    rows.loc[empty, ["output_tokens", "events"]] = 0
    rows.loc[empty, ["ttft_s", "itl_s", "tpot_s"]] = 0.0
    rows.loc[empty, "e2e_s"] = 0.02
    return [one.but(requests=rows)]


def unit_changed(seed: int, strength: int) -> list[simulate.Benchmark]:
    """In the last 10, 30 or 45 % of the rows all times are in another unit."""
    one = simulate.clean(seed, concurrency=4)
    rows = one.requests.copy()
    last = rows.index[-int(len(rows) * (0.1, 0.3, 0.45)[strength]) :]
    rows.loc[last, ["ttft_s", "tpot_s", "e2e_s", "itl_s"]] /= 1000
    return [one.but(requests=rows)]


def times_of_other_answers(seed: int, strength: int) -> list[simulate.Benchmark]:
    """The end-to-end times of 20, 50 or 100 % of the rows stand beside other answers."""
    one, draw = simulate.clean(seed, concurrency=4), np.random.default_rng(seed)
    rows = one.requests.copy()
    moved = rows.sample(frac=(0.2, 0.5, 1.0)[strength], random_state=seed).index
    rows.loc[moved, "e2e_s"] = draw.permutation(rows.loc[moved, "e2e_s"])
    return [one.but(requests=rows)]


def bandwidth_beyond_device(seed: int, strength: int) -> list[simulate.Benchmark]:
    """The device is a variant whose memory is 1.15, 1.6 or 3 times too slow for the rate."""
    one = simulate.clean(seed, concurrency=1)
    gpu = "NVIDIA L40S"
    factor = (1.15, 1.6, 3.0)[strength] * simulate.DEVICES[gpu][1] / simulate.DEVICES[one.facts["gpu"]][1]
    rows = one.requests
    pace = one.facts["least_step_s"] / factor * rows["tpot_s"] / rows["tpot_s"].median()
    rows = rows.assign(tpot_s=pace, itl_s=pace, e2e_s=rows["ttft_s"] + pace * (rows["output_tokens"] - 1))
    rows["sent_s"] = rows["e2e_s"].cumsum().shift(fill_value=0)
    facts = one.facts | {"gpu": gpu, "duration_s": float(rows["e2e_s"].sum()), "step_s": float(pace.median())}
    return [one.but(requests=rows, facts=facts)]


# Which layouts show a mistake: no summary has a row of its own for a request.
MISTAKES = {
    prompt_counted_as_output: (*SUMMARIES, "csv of requests"),
    rate_of_other_scope: (*SUMMARIES, "inference-perf"),
    mean_called_median: ("vllm", "vllm detailed", "csv of levels"),
    batch_time_as_request_time: ("csv of levels", "csv of requests"),
    same_time_for_other_lengths: ("csv of requests",),
    copied_rows: ("csv of levels", "json of levels"),
    failed_counted_as_throughput: ("vllm", "csv of levels", "aiperf"),
    empty_answer_in_mean: ("vllm detailed", "csv of requests"),
    unit_changed: ("csv of requests",),
    times_of_other_answers: ("vllm detailed", "csv of requests"),
    bandwidth_beyond_device: ("vllm", "csv of levels", "csv of requests", "trtllm-bench"),
}
# A copied row whose labels alone differ is one run under two names.
ALSO = {"copied_rows": {"copied_rows", "same_run_twice"}}
ROWS = {copied_rows, prompt_counted_as_output, rate_of_other_scope}  # several levels in one table


def audited(benchmarks: list[Benchmark], layout: str, stated: bool = True, unit: str = "ms") -> list[Finding]:
    """Findings of simulated benchmarks, written to a file in `layout` and read again; the device is named
    where
    the layout has no place for it."""
    with tempfile.TemporaryDirectory() as folder:
        file = simulate.write(benchmarks, layout, Path(folder), stated, unit)
        facts = {"gpu": benchmarks[0].facts["gpu"]}
        if stated and not layout.startswith("llama-bench json"):
            facts["tensor_parallel"] = benchmarks[0].facts["devices"]
        findings, _, unread = report.collect([file], **facts)
    if unread:
        raise AssertionError(f"{layout}: {unread[0][1]}")
    return findings


def false_alarms(seeds: Iterable[int], layouts: Iterable[str] = simulate.LAYOUTS) -> pd.DataFrame:
    """One row per clean file: layout, mixture, devices, stated, load, unit, impossible and contradictory
    (names of
    the checks that raised)."""
    grid = itertools.product(seeds, layouts, (False, True), (1, 2, 8), (True, False), simulate.LOADS)
    rows = []
    for seed, layout, mixture, devices, stated, load in grid:
        one = simulate.clean(seed * 97 + devices, mixture, devices, load)
        for unit in ("s", "ms", "none") if layout in simulate.TABLES else ("ms",):
            found = audited([one], layout, stated, unit)
            row = {"layout": layout, "mixture": mixture, "devices": devices, "stated": stated, "load": load}
            for name, kind in (("impossible", IMPOSSIBLE), ("contradictory", CONTRADICTION)):
                row[name] = [f"{f.check}: {f.sentence}" for f in found if f.kind == kind]
            rows.append(row | {"seed": seed, "unit": unit})
    return pd.DataFrame(rows)


def detections(seeds: Iterable[int]) -> pd.DataFrame:
    """One row per file with a mistake: mistake, layout, strength, seed, first (name of the first finding)."""
    rows = []
    for seed, (mistake, layouts), strength in itertools.product(seeds, MISTAKES.items(), range(3)):
        benchmarks = mistake(seed, strength)
        for layout in layouts:
            several = layout in simulate.TABLES and mistake in ROWS and layout != "csv of requests"
            found = audited(benchmarks if several else benchmarks[-1:], layout)
            name = found[0].check if found else ""
            row = {"mistake": mistake.__name__, "layout": layout, "strength": STRENGTHS[strength]}
            rows.append(row | {"seed": seed, "first": name})
    return pd.DataFrame(rows)


def table(clean: pd.DataFrame, hits: pd.DataFrame) -> pd.DataFrame:
    """One row per layout of clean files (`false_alarms`), and per mistake and layout (`detections`): mistake
    (empty: clean), layout, files, impossible_percent, contradictory_percent, found_first_percent_weak,
    _middle and _strong."""
    rows = [
        {
            "mistake": "",
            "layout": layout,
            "files": len(part),
            "impossible_percent": 100 * part["impossible"].map(bool).mean(),
            "contradictory_percent": 100 * part["contradictory"].map(bool).mean(),
        }
        for layout, part in clean.groupby("layout", sort=False)
    ]
    for (mistake, layout), part in hits.groupby(["mistake", "layout"], sort=False):
        right = part["first"].isin(ALSO.get(mistake, {mistake}))
        row = {"mistake": mistake, "layout": layout, "files": len(part)}
        rates = {f"found_first_percent_{s}": 100 * right[part["strength"] == s].mean() for s in STRENGTHS}
        rows.append(row | rates)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    out = Path("data/audits/proof.csv")
    table(false_alarms([0]), detections([1000, 1001])).round(2).to_csv(out, index=False, lineterminator="\n")
    print(out.read_text(encoding="utf-8"))
