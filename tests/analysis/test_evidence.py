"""Every claim carries its evidence: sentences, groups and decisions change with what the intervals support."""

import functools
import itertools
import math
import re

import pytest
from builders import (
    MATRICES,
    PEAKS,
    make_rows,
    make_sidecar,
    write_quality,
    write_repeats,
    write_run,
    write_sweep,
)
from pictures import texts

from bench.analysis import comparison, equal_runs, machines, ranking, recommend
from bench.analysis import latency as latency_analysis
from bench.analysis import quality as quality_analysis
from bench.observations import store
from bench.report import findings
from bench.report.figures import latency as latency_figures
from bench.report.findings import batching as batching_findings
from bench.report.findings import latency as latency_findings
from bench.report.findings import quality as quality_findings
from bench.report.tables import batching as batching_tables
from bench.report.tables import decision as decision_tables
from bench.report.tables import evidence as evidence_tables
from bench.report.tables import latency as latency_tables
from bench.report.tables import overhead as overhead_tables
from bench.report.tables import step_time as step_time_tables

pytestmark = pytest.mark.early

QUANTISED = {"backend": "llamacpp", "option": "Q4_0"}
OTHER = {"backend": "onnxruntime", "option": "int4"}
REFERENCE = {"backend": "transformers", "option": "float32"}


def load(folder):
    return store.load(folder=folder)


def write_failed(folder, rate, run, **columns):
    """A run of which the last request failed."""
    *rows, last = make_rows(4, rate=rate, run=run, **columns)
    last |= {
        "error": "RuntimeError: gone",
        "output_tokens": 0,
        "output_ids": "",
        "ttft_s": None,
        "e2e_s": None,
    }
    store.write([*rows, last], make_sidecar(), last["run_id"], folder)


def test_what_overlaps_is_not_called_fastest(tmp_path):
    write_repeats(tmp_path, [200.0, 260.0, 170.0], **QUANTISED)
    write_repeats(tmp_path, [150.0, 230.0, 190.0], **OTHER)
    write_repeats(tmp_path, [30.0, 30.5, 31.0], **REFERENCE)
    sentence = latency_findings.fastest(load(tmp_path))
    assert "the fastest of 3 options with smollm2-135m is **" in sentence
    assert "** (" in sentence
    assert " or **" in sentence
    assert "**llamacpp Q4_0** (" in sentence and "**onnxruntime int4** (" in sentence and " ± " in sentence
    assert "more rounds of them would" in sentence and "transformers" not in sentence
    places = latency_tables.latency(load(tmp_path)).set_index("engine")["group"]
    assert places["llamacpp"] == "1–2" and places["transformers"] == "3"
    assert re.fullmatch(r"1–2 \((over )?\+\d+ rounds\)", places["onnxruntime"])


def test_what_is_distinguished_is_called_fastest(tmp_path):
    write_repeats(tmp_path, [200.0, 201.0, 202.0], **QUANTISED)
    write_repeats(tmp_path, [150.0, 151.0, 152.0], **OTHER)
    table = latency_analysis.summary(load(tmp_path)).set_index("backend")
    rates = table.loc["llamacpp", "rates"]
    assert table.loc["llamacpp", "output_tokens_per_s"] == pytest.approx(
        math.prod(rates) ** (1 / 3), rel=1e-3
    )
    assert 0.5 < table.loc["llamacpp", "output_tokens_per_s_interval"] < 10
    sentence = latency_findings.fastest(load(tmp_path))
    assert "the fastest of 2 options with smollm2-135m is **llamacpp Q4_0** (" in sentence
    assert "or **onnxruntime" not in sentence
    assert "place 1" in texts(latency_figures.latency(load(tmp_path)))


def test_one_run_each_ranks_nothing(tmp_path):
    for backend, rate in (("llamacpp", 200.0), ("onnxruntime", 100.0)):
        write_run(tmp_path, backend=backend, rate=rate)
    requests = load(tmp_path)
    assert "none is called the fastest: 2 with one run." in latency_findings.fastest(requests)
    assert "none is called the shortest" in latency_findings.first_token(requests)
    assert latency_findings.bandwidth(requests) is None
    assert set(latency_tables.latency(requests)["group"]) == {ranking.ONE_RUN}
    table = decision_tables.decision(requests)
    assert set(table["use"]) == {"no ranking: one run each"} and (table["the next engine"] == "").all()


def test_survivors_of_failed_requests_are_not_ranked(tmp_path):
    for run in (1, 2, 3):
        write_failed(tmp_path, 350.0 + run, run, backend="vllm")
    write_repeats(tmp_path, [200.0, 201.0, 202.0], **QUANTISED)
    write_repeats(tmp_path, [150.0, 151.0, 152.0], **OTHER)
    sentence = latency_findings.fastest(load(tmp_path))
    assert "is **llamacpp Q4_0** (" in sentence and "not ranked: 1 with failed requests." in sentence
    table = latency_tables.latency(load(tmp_path))
    assert table["engine"].iloc[-1] == "vllm" and table["group"].iloc[-1] == ranking.FAILED
    assert "vllm" not in set(recommend.choices(load(tmp_path))["backend"])


@pytest.mark.parametrize(
    ("after", "verdict"), [(250.0, "faster"), (200.5, comparison.EQUAL), (150.0, "slower")]
)
def test_versions_are_compared_and_never_pooled(tmp_path, after, verdict):
    write_repeats(tmp_path, [200.0, 201.0, 202.0], **QUANTISED)
    newer = {"backend_version": "2.0", "first": 4, "later": "02-01"}
    write_repeats(tmp_path, [after, after + 1, after + 2], **newer, **QUANTISED)
    # What was measured with both of them says what the month changed.
    write_repeats(tmp_path, [100.0, 101.0, 102.0], **OTHER)
    write_repeats(tmp_path, [100.0, 101.0, 102.0], first=4, later="02-01", **OTHER)
    requests = load(tmp_path)
    assert sorted(latency_analysis.summary(requests)["runs"]) == [3, 3, 6]
    table = latency_tables.upgrades(requests)
    assert table["verdict"].iloc[0] == verdict and table["metric"].iloc[0] == "output tokens/s"
    assert table[["from version", "to version"]].iloc[0].tolist() == ["1.0", "2.0"]
    assert {"llamacpp Q4_0 (1.0)", "llamacpp Q4_0 (2.0)"} <= texts(latency_figures.latency(requests))
    assert set(machines.here(requests, "latency")["option"]) == {"Q4_0 (1.0)", "Q4_0 (2.0)", "int4"}


def test_bits_are_judged_by_intervals(tmp_path):
    write_repeats(tmp_path, [100.0, 101.0, 102.0], backend="openvino", option="F16")
    write_repeats(tmp_path, [200.0, 201.0, 202.0], backend="openvino", option="int8")
    write_repeats(tmp_path, [100.0, 104.0, 99.0], backend="openvino", option="int4")
    write_repeats(tmp_path, [50.0, 51.0, 52.0], backend="openvino", option="nf4")
    rows = latency_findings.speed_ups(load(tmp_path))
    assert {row["option"]: row["verdict"] for row in rows} == {
        "int8": "faster",
        "int4": comparison.EQUAL,
        "nf4": "slower",
    }
    sentence = latency_findings.fewer_bits(load(tmp_path))
    assert "of 3, 1 faster, 1 slower and 1 cannot be distinguished" in sentence
    # All read the same bytes here, so they promise nothing.
    assert "promise 1 times; 1 of 3 keep that within their interval, 1 stay below it" in sentence


@pytest.mark.parametrize(
    ("probes", "says"), [((40e9, 22e9, 70e9), "or **fake bfloat16** ("), ((40e9,) * 3, ") comes closest")]
)
def test_a_wandering_probe_leaves_the_memory_open(tmp_path, probes, says):
    for n, (probe, rate) in enumerate(itertools.product(probes, (100.0, 70.0))):
        sidecar = make_sidecar(
            bandwidth_probes_bytes_per_s=[probe], started=f"2026-01-01T00:{n:02d}:00+00:00"
        )
        option = {100.0: "F16", 70.0: "bfloat16"}[rate]
        write_run(tmp_path, sidecar, option=option, rate=rate + n / 10, run=n + 1)
    sentence = latency_findings.bandwidth(load(tmp_path))
    assert says in sentence and "**fake F16** (" in sentence and " ± " in sentence
    assert "one way only" not in sentence, "the device is not named as a CPU"
    assert ("22 to 70 GB/s" in sentence) == says.startswith("or")


def test_an_mbu_against_a_roof_of_one_way_is_an_upper_bound(tmp_path):
    ways = {"reduction": 40e9, "dot_product": 50e9, "matrix_vector": 45e9}
    for n, found in enumerate(([], [], [ways]), start=1):
        sidecar = make_sidecar(probe_ways_bytes_per_s=found, started=f"2026-01-01T00:{n:02d}:00+00:00")
        write_run(tmp_path, sidecar, option="F16", rate=100.0 + n, run=n, gpu="epyc-zen5-2c")
    sentence = latency_findings.bandwidth(load(tmp_path))
    assert sentence.endswith("GB/s, 2 of 3 read in one way only, so MBU is at most this.")


def write_pairs(folder, costs, **columns):
    rows = make_rows(2 * len(costs), experiment="overhead", **columns)
    for k, row in enumerate(rows):
        row |= {"prompt": k // 2 + 1}
        row |= {"e2e_s": row["e2e_s"] * (1 + costs[k // 2])} if k % 2 else {"ttft_s": None}
    store.write(rows, make_sidecar(), rows[0]["run_id"], folder)


def test_a_cost_that_may_be_nothing_is_told_as_that(tmp_path):
    write_pairs(tmp_path, [0.03, -0.02, 0.01, -0.015], option="float32")
    write_pairs(tmp_path, [0.03, 0.031, 0.029, 0.03], option="int8")
    table = overhead_tables.overhead(load(tmp_path)).set_index("option")
    assert table["than the own loop"].to_dict() == {"int8": "dearer", "float32": comparison.EQUAL}
    assert table.loc["int8", "cost, mean (%)"] == pytest.approx(3) and (table["pairs"] == 4).all()


def test_each_sentence_names_its_machine_and_mixes_none(tmp_path):
    for gpu, host in (("cpu-a-2c", "aaaaaa"), ("cpu-b-2c", "bbbbbb")):
        here = {"gpu": gpu, "host": host}
        write_repeats(tmp_path, [30.0, 30.5, 31.0], **REFERENCE, **here)
        write_repeats(tmp_path, [200.0, 201.0, 202.0], **QUANTISED, **here)
    write_repeats(tmp_path, [90.0, 91.0], **OTHER, gpu="cpu-a-2c", host="aaaaaa")
    for option in ("int8", "int4"):
        write_sweep(tmp_path, option=option, gpu="cpu-b-2c", host="bbbbbb")
    write_pairs(tmp_path, [0.03, 0.031, 0.029, 0.03], gpu="cpu-b-2c", host="bbbbbb")
    sentences = [s for s in findings.headlines(load(tmp_path)) if not s.startswith("Over ")]
    named = [set(re.findall(r"`(cpu-[ab]-2c)`", sentence)) for sentence in sentences]
    assert len(named) > 3 and all(names == {"cpu-b-2c"} for names in named)
    assert set(decision_tables.decision(load(tmp_path))["device"]) == {"cpu-a-2c", "cpu-b-2c"}
    # Of two checkouts on the same kind of machine each has its name.
    write_repeats(tmp_path, [30.0, 30.5], **REFERENCE, gpu="cpu-b-2c", host="cccccc")
    write_repeats(tmp_path, [60.0, 60.5], **QUANTISED, gpu="cpu-b-2c", host="cccccc")
    assert any("`cpu-b-2c` (bbbbbb)" in s for s in findings.headlines(load(tmp_path)))


def test_a_machine_that_lacks_latency_borrows_none(tmp_path):
    write_sweep(tmp_path, gpu="cpu-b-2c", host="bbbbbb")
    (sentence,) = findings.headlines(load(tmp_path))
    assert sentence.startswith("On `cpu-b-2c`, the best batch yields")


def write_sweeps(folder, runs=3, **columns):
    for n in range(1, runs + 1):
        sidecar = make_sidecar(**MATRICES, **PEAKS, started=f"2026-01-01T00:{n:02d}:00+00:00")
        write_sweep(folder, sidecar=sidecar, run=n, wait=1e-3 * (1 + n / 100), **columns)


def test_batching_is_ranked_from_repeats_alone(tmp_path):
    for name, runs in (("once", 1), ("often", 3)):
        write_sweeps(tmp_path / name, runs, backend="llamacpp", overhead=0.0)
        write_sweeps(tmp_path / name, runs, backend="vllm", overhead=0.05)
    once, often = (batching_findings.share_of_gain(load(tmp_path / name)) for name in ("once", "often"))
    assert "one run each, so no ranking" in once and "most" not in once
    assert "batching gains most with **vllm float32** (" in often and " ± " in often
    rule = batching_findings.input_against_output
    assert "one run each, so without intervals" in rule(load(tmp_path / "once"))
    assert "does not hold for 2 of 2" in rule(load(tmp_path / "often"))
    shown = batching_tables.prompt_cost(load(tmp_path / "often"))
    assert shown["cost less?"].tolist() == ["no", "no"] and shown["runs"].tolist() == [3, 3]
    write_sweeps(tmp_path / "often", 3, backend="onnxruntime", overhead=0.05)
    assert "cannot be distinguished" in batching_findings.share_of_gain(load(tmp_path / "often"))


def test_what_limits_a_step_is_counted_where_the_fit_decides(tmp_path):
    write_sweep(tmp_path, overhead=0.004)
    decided = batching_findings.limited(load(tmp_path))
    assert "1 engines and options: overhead 1; at their largest batch: arithmetic 1" in decided
    # Two batch sizes that were slow by chance: resamples with and without them disagree.
    requests = load(tmp_path)
    slow = requests["batch_size"].isin([1, 4]) & (requests["prompt_tokens"] > 1000)
    spoilt = requests.assign(itl_p50_s=requests["itl_p50_s"] * (1 + 4 * slow))
    assert "options: open 1" in batching_findings.limited(spoilt)
    assert "the fit does not decide" in batching_findings.limits(spoilt)[0]
    assert step_time_tables.step_time(spoilt)["batch 1 limited by"].tolist() == ["open"]
    assert step_time_tables.step_time(requests)["batch 1 limited by"].tolist() == ["overhead"]


EVERYBODY = "everybody"


def everybody(folder):
    table = recommend.choices(load(folder))
    return table[table["want"].str.contains(EVERYBODY)]


def test_everybody_is_judged_by_the_slowest_gap(tmp_path):
    write_sweeps(tmp_path, backend="llamacpp", overhead=0.0)
    largest = everybody(tmp_path)["value"].iloc[0]
    # The same steps in the median, one gap of one request that is longer.
    write_sweeps(tmp_path / "gap", backend="llamacpp", overhead=0.0, slowest=5.0)
    assert everybody(tmp_path / "gap")["value"].iloc[0] < largest
    write_sweeps(tmp_path / "long", backend="llamacpp", overhead=0.0, slowest=50.0)
    assert everybody(tmp_path / "long").empty
    # In one run of several it counts as well.
    write_sweeps(tmp_path / "once", backend="llamacpp", overhead=0.0)
    sidecar = make_sidecar(**MATRICES, **PEAKS, started="2026-01-01T00:09:00+00:00")
    write_sweep(tmp_path / "once", sidecar=sidecar, run=4, backend="llamacpp", overhead=0.0, slowest=50.0)
    assert everybody(tmp_path / "once").empty


def test_winners_that_cannot_be_distinguished_are_named_together(tmp_path):
    write_repeats(tmp_path, [200.0, 260.0, 170.0], **QUANTISED)
    write_repeats(tmp_path, [150.0, 230.0, 190.0], **OTHER)
    write_repeats(tmp_path, [30.0, 30.5, 31.0], **REFERENCE)
    table = decision_tables.decision(load(tmp_path)).set_index("if you want")
    row = table.loc["the fastest answer for one user"]
    assert row["use"] in ("llamacpp Q4_0 or onnxruntime int4", "onnxruntime int4 or llamacpp Q4_0")
    assert row["it gives"].count("±") == 2 and row["the next engine"].startswith("transformers float32 (")
    write_repeats(tmp_path / "one", [200.0, 201.0, 202.0], **QUANTISED)
    write_repeats(tmp_path / "one", [150.0, 151.0, 152.0], **OTHER)
    row = decision_tables.decision(load(tmp_path / "one")).set_index("if you want").iloc[0]
    assert row["use"] == "llamacpp Q4_0" and row["the next engine"].startswith("onnxruntime int4 (")


def test_most_of_the_tokens_takes_prompts_that_agree(tmp_path):
    own = [[k + n for n in range(20)] for k in range(5)]
    write_quality(tmp_path, own, [0.5] * 5, **REFERENCE)

    def differing(counts):
        return [ids[: 20 - n] + [99] * n for ids, n in zip(own, counts)]

    write_quality(tmp_path, differing([1, 2, 1, 2, 1]), [0.5] * 5, **QUANTISED)
    write_quality(tmp_path, differing([15, 14, 16, 15, 15]), [0.5] * 5, **OTHER)
    apart = quality_findings.quality_findings(load(tmp_path))[1]
    assert "**llamacpp Q4_0** (93 %) keeps most" in apart
    assert "**onnxruntime int4** (25 %) keeps fewest" in apart
    write_quality(tmp_path, differing([1, 1, 2, 2, 1]), [0.5] * 5, backend="openvino", option="int8")
    assert "keep most (they cannot be distinguished)" in quality_findings.quality_findings(load(tmp_path))[1]
    table = quality_analysis.summary(load(tmp_path))
    most, fewest = quality_analysis.most_faithful(load(tmp_path), table[table["backend"] != "transformers"])
    assert set(table.loc[most, "backend"]) == {"llamacpp", "openvino"}
    assert set(table.loc[fewest, "backend"]) == {"onnxruntime"}


def test_a_percentile_takes_gaps_that_bound_it(tmp_path):
    write_run(tmp_path, option="int8", tokens=30)
    write_run(tmp_path, option="int4", tokens=29)
    shown = latency_tables.latency(load(tmp_path)).set_index("option")["ITL p90 (ms)"]
    assert shown["int8"] == pytest.approx(10.0) and math.isnan(shown["int4"])


def test_the_proof_is_shown_as_it_was_computed(tmp_path):
    shown = evidence_tables.coverage()
    rows = shown[(shown["interval of the"] == "mean") & (shown["method"] == "low cosines")]
    rows = rows[rows["scatter"] == "normal"]
    assert rows["share at correlation 0 (%)"].between(93, 97).all()
    assert rows["at 0.3 (%)"].between(93, 97).all()


def test_equal_runs_under_two_names_are_seldom_distinguished_and_a_drift_is(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence_tables, "_dealt", functools.partial(equal_runs.dealt, deals=20))
    write_repeats(tmp_path, [200.0, 203.0, 198.0, 201.0, 199.0, 202.0], **QUANTISED)
    write_repeats(tmp_path, [100.0, 101.0, 99.0, 100.0, 102.0, 98.0], **OTHER)
    dealt = evidence_tables.equal_runs(load(tmp_path)).set_index("dealt")
    assert dealt.loc[equal_runs.AT_RANDOM, "comparisons"] == 2 * 20
    assert dealt.loc[equal_runs.AT_RANDOM, "share (%)"] < 10
    assert dealt.loc[equal_runs.BY_SITTING, "comparisons"] == 0
    # A month later one of the two is a tenth slower, and the other is not.
    for n, (quick, slow) in enumerate(((200.0, 90.0), (203.0, 91.0), (198.0, 89.0), (201.0, 90.5)), start=7):
        write_repeats(tmp_path, [quick], first=n, later="02-01", **QUANTISED)
        write_repeats(tmp_path, [slow], first=n, later="02-01", **OTHER)
    dealt = evidence_tables.equal_runs(load(tmp_path)).set_index("dealt")
    assert dealt.loc[equal_runs.BY_SITTING, ["configurations", "comparisons"]].tolist() == [2, 2]


def test_a_roof_of_one_core_is_left_out_and_the_scatter_of_both_is_counted(tmp_path):
    for run, roof in enumerate((66e9, 37e9, 65e9), start=1):
        probes = {"bandwidth_probes_bytes_per_s": [roof, roof * 0.9]}
        write_run(tmp_path, run=run, gpu="test-2c", sidecar=make_sidecar(**probes) | {"probe_cpu_shares": []})
    found = latency_analysis.probe_scatter(store.load(folder=tmp_path)).sort_values("run_id")
    assert found["mbu"].isna().tolist() == [False, True, False]
    assert found["mbu_unjudged"].notna().all()
    assert found["mbu_unjudged"].iloc[1] > 1.7 * found["mbu"].iloc[0]
