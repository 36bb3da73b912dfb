"""The rows of the explorer: every configuration of every machine and version apart, means over runs, commands."""

import itertools
import shlex

import numpy as np
import pytest
from builders import (
    MATRICES,
    PEAKS,
    make_sidecar,
    write_quality,
    write_repeats,
    write_run,
    write_serving,
    write_sweep,
)

from bench.observations import schema, store
from bench.topics import batching, commands, estimates, explorer, latency, quality


@pytest.fixture
def requests(tmp_path):
    write_repeats(tmp_path, [40.0, 44.0, 48.0], option="Q4_0")
    write_repeats(tmp_path, [90.0], option="Q4_0", first=4, backend_version="2.0")
    write_repeats(tmp_path, [20.0, 21.0], host="def456", gpu="other-cpu")
    write_sweep(tmp_path)
    write_serving(tmp_path, {1: (0.05, 0.1), 8: (0.1, 0.2)}, {2: (0.05, 0.1)})
    write_quality(tmp_path, [[5, 5], [5, 6]], [0.5, 0.6], [2.0, 3.0], option="Q4_0")
    return store.load(folder=tmp_path)


def test_versions_and_machines_are_rows_of_their_own(requests):
    table = explorer.points(requests, "latency")
    assert table[["option", "backend_version", "host", "runs"]].values.tolist() == [
        ["Q4_0", "1.0", "abc123", 3],
        ["Q4_0", "2.0", "abc123", 1],
        ["float32", "1.0", "def456", 2],
    ]
    assert table["bits"].tolist() == [4, 4, 32]
    assert table["run_ids"][0] == "fake/latency-smollm2-135m-Q4_0-test-cpu-abc123-1 2 3"


def test_means_and_intervals_are_those_of_the_latency_table(requests):
    ours = explorer.points(requests, "latency").sort_values("output_tokens_per_s")
    rate = latency.summary(requests[requests["experiment"] == "latency"]).sort_values("output_tokens_per_s")
    for name in latency.INTERVALS:
        np.testing.assert_allclose(ours[name], rate[name])
        np.testing.assert_allclose(ours[f"{name}_interval"], rate[f"{name}_interval"], atol=1e-15)


def test_three_prompts_of_128_tokens_are_never_pooled_with_nine_of_200(tmp_path):
    """The same configuration in both forms: an experiment each, its scores with the rate of its own runs."""
    for n, rate in ((1, 40.0), (2, 44.0)):
        write_run(tmp_path, rate=rate, run=n, n=9, tokens=200)
        write_run(tmp_path, rate=2 * rate, run=n, n=3, tokens=128, experiment="sizes")
    write_quality(tmp_path, [[5, 5]], [0.5], [2.0, 3.0])
    write_quality(tmp_path, [[5, 6]], [0.6], [4.0, 5.0], experiment="sizes_quality")
    requests = store.load(folder=tmp_path)
    nine, three = requests[requests["experiment"] == "latency"], latency.of_sizes(requests)
    assert set(three["experiment"]) == {"latency", "quality"}
    for own, asked in ((nine, 9), (three[three["experiment"] == "latency"], 3)):
        (row,) = latency.summary(own).to_dict("records")
        assert row["runs"] == 2 and row["requests"] == 2 * asked
    rates = {
        name: explorer.points(requests, name)["output_tokens_per_s"].tolist()
        for name in explorer.experiments(requests)
    }
    assert set(rates) == {"latency", "sizes", "quality", "sizes_quality"}
    assert rates["quality"] == rates["latency"] != rates["sizes"] == rates["sizes_quality"]
    assert (
        len(quality.costs(requests)) == 1
        and quality.costs(three)["perplexity"][0] > quality.costs(requests)["perplexity"][0]
    )


def test_every_experiment_has_its_conditions_and_metrics(requests):
    frames = {
        name: explorer.frame(explorer.points(requests, name)) for name in explorer.experiments(requests)
    }
    assert list(frames)[0] == "latency" and set(frames) == {"latency", "batching", "serving", "quality"}
    assert frames["serving"][["loop", "concurrency", "request_rate"]].fillna(0).values.tolist() == [
        ["closed", 1, 0],
        ["closed", 8, 0],
        ["open", 0, 2],
    ]
    assert {"goodput_per_s", "ttft_p50_s", "state"} <= set(frames["serving"])
    assert frames["batching"]["batch_size"].max() == 64 and "mfu_decode" in frames["batching"]
    assert frames["quality"]["perplexity"][0] == pytest.approx(np.exp((2.0 * 20 + 3.0 * 12) / 32))
    assert frames["quality"]["output_tokens_per_s"][0] == frames["latency"]["output_tokens_per_s"][0]
    assert not any(
        frame.isna().all().drop([c for c in frame if c.endswith("_interval")]).any()
        for frame in frames.values()
    )


def test_a_metric_that_some_runs_lack_counts_its_own_runs(tmp_path):
    write_repeats(tmp_path, [40.0, 44.0])
    write_run(tmp_path, run=3, ttft_s=None)
    table = explorer.points(store.load(folder=tmp_path), "latency")
    assert explorer.uneven(table)["ttft_s"] == {0: 2} and "load_s" not in explorer.uneven(table)
    assert table["ttft_s"][0] == pytest.approx(0.05)


def test_a_command_repeats_what_was_changed_and_the_notebook_takes_it(tmp_path):
    changed = {"backend": "fake", "option": "float32", "model": "smollm2-135m"}
    changed |= {"max_new_tokens": 20, "threads": 0, "run": 3, "gone": 1}
    write_run(tmp_path, make_sidecar(parameters=changed))
    rows = store.load(folder=tmp_path)
    found = commands.commands(rows["run_id"].unique(), rows)[0]
    words = shlex.split(found)
    assert words[:3] == [".venv/bin/papermill", "notebooks/latency.ipynb", "out.ipynb"]
    assert words[3:] == "-p backend fake -p option float32 -p model smollm2-135m -p max_new_tokens 20".split()
    assert set(words[4::2][: len(words)])
    assert {"max_new_tokens", "threads"} <= set(commands.defaults("latency"))
    assert commands.notebook("served") == "latency"


def test_the_mean_of_a_condition_leaves_out_which_sessions_it_was_measured_in(tmp_path):
    """Everything is 1.5 times as slow in the second session; one engine has two of its three runs there."""
    for backend, sessions in (("llamacpp", [1, 1, 2]), ("vllm", [1, 2, 2])):
        for n, session in enumerate(sessions, start=1):
            sidecar = make_sidecar(**MATRICES, **PEAKS, started=f"2026-01-0{session}T00:{n:02d}:00+00:00")
            slower = {1: 1.0, 2: 1.5}[session] * (1 + n / 1e4)
            coefficients = {"overhead": 0.01 * slower, "bandwidth": 30e9 / slower, "peak": 2e11 / slower}
            write_sweep(tmp_path, backend=backend, run=n, sidecar=sidecar, wait=1e-3 * slower, **coefficients)
    table = explorer.points(store.load(folder=tmp_path), "batching").set_index(["backend", "batch_size"])
    alike = table[table["prompt_tokens"] == 512]
    for size in (2, 64):
        first, second = alike.loc[("llamacpp", size)], alike.loc[("vllm", size)]
        assert first["tpot_s"] == pytest.approx(second["tpot_s"], rel=1e-3)
    sweeps = batching.sweeps(store.load(folder=tmp_path)).set_index(["backend", *schema.SHAPE])
    shown = table.reset_index().set_index(["backend", *schema.SHAPE])
    for name in batching.INTERVALS:
        for column in (name, f"{name}_interval"):
            np.testing.assert_allclose(shown[column].loc[sweeps.index], sweeps[column], rtol=1e-6)


def test_what_the_page_compares_by_is_the_model_s_comparison_of_every_pair(tmp_path):
    """Options that share sessions unequally, one of one run, one alone in another session."""
    draw = np.random.default_rng(3)
    days = {
        "Q4_0": [1, 1, 1, 2],
        "Q8_0": [1, 1, 2, 2],
        "F16": [1, 2, 2],
        "int8": [1, 2, 2],
        "int4": [2],
        "nf4": [3, 3],
    }
    for (option, own), rate in zip(days.items(), (90.0, 92.0, 40.0, 41.0, 60.0, 60.0)):
        for n, day in enumerate(own, start=1):
            sidecar = make_sidecar(started=f"2026-01-0{day}T00:{n:02d}:00+00:00")
            write_run(tmp_path, sidecar, option=option, run=n, rate=rate * float(draw.lognormal(0, 0.03)))
    requests = store.load(folder=tmp_path)
    table = explorer.points(requests, "latency")
    (entry,) = [each for each in explorer.comparisons(requests, "latency") if "tpot_s" in each["halves"]]
    assert entry["rows"] == tuple(range(6)) and len(set(entry["classes"])) == 5, "F16 and int8 are alike"
    model, seen = latency.compared(requests, "tpot_s"), set()
    for i, j in itertools.permutations(range(6), 2):
        row, column = sorted((entry["classes"][i], entry["classes"][j]), reverse=True)
        half = entry["halves"]["tpot_s"][row * (row + 1) // 2 + column]
        first, second = table.iloc[i], table.iloc[j]
        expected = model.compare(*(latency.configuration(each) for each in (first, second)), False)
        seen.add(expected["verdict"])
        if half is None:
            assert expected["verdict"] == estimates.NEVER_MET
            continue
        ratio = first["tpot_s"] / second["tpot_s"]
        found = ratio, ratio * np.exp(-half), ratio * np.exp(half)
        assert found == pytest.approx([expected[name] for name in ("ratio", "low", "high")], rel=2e-4)
        assert (found[1] > 1) == (expected["verdict"] == estimates.SLOWER)
        assert (found[2] < 1) == (expected["verdict"] == estimates.FASTER)
    # Sessions were repeated, so options that never met are compared as well.
    assert seen == {estimates.FASTER, estimates.SLOWER, estimates.EQUAL}


def test_a_figure_of_zero_is_shown_and_in_no_model(tmp_path):
    write_repeats(tmp_path, [40.0, 44.0], option="Q4_0")
    for n in (1, 2):
        started = f"2026-01-01T01:{n:02d}:00+00:00"
        write_run(
            tmp_path, make_sidecar(weight_bytes=0, kv_value_bytes=0, started=started), option="Q8_0", run=n
        )
    requests = store.load(folder=tmp_path)
    table = explorer.points(requests, "latency").set_index("option")
    assert table.loc["Q8_0", "weight_bytes"] == 0 and np.isnan(table.loc["Q8_0", "weight_bytes_interval"])
    entries = [
        each["rows"] for each in explorer.comparisons(requests, "latency") if "weight_bytes" in each["halves"]
    ]
    assert entries == [(0,)]


def test_each_metric_says_which_way_is_better():
    ways = {name: explorer.direction(name) for name in explorer.NAMES}
    assert ways["output_tokens_per_s"] == ways["mbu"] == ways["goodput_per_s"] == 1
    assert ways["ttft_s"] == ways["perplexity"] == ways["energy_per_token_j"] == ways["tpot_p90_s"] == -1
    assert [name for name, way in ways.items() if way == 0] == ["arithmetic_intensity"]
