"""The rows of the explorer: every configuration of every machine and version apart, means over runs, commands."""

import shlex

import numpy as np
import pytest
from builders import make_sidecar, write_quality, write_repeats, write_run, write_serving, write_sweep
from scipy import stats

from bench.analysis import commands, explorer, latency, statistics
from bench.observations import store


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
    changed = {
        "backend": "fake",
        "option": "float32",
        "model": "smollm2-135m",
        "max_new_tokens": 20,
        "threads": 0,
        "run": 3,
        "gone": 1,
    }
    write_run(tmp_path, make_sidecar(parameters=changed))
    rows = store.load(folder=tmp_path)
    found = commands.commands(rows["run_id"].unique(), rows)[0]
    words = shlex.split(found)
    assert words[:3] == [".venv/bin/papermill", "notebooks/latency.ipynb", "out.ipynb"]
    assert words[3:] == "-p backend fake -p option float32 -p model smollm2-135m -p max_new_tokens 20".split()
    assert set(words[4::2][: len(words)]) and {"max_new_tokens", "threads"} <= set(
        commands.defaults("latency")
    )
    assert commands.notebook("served") == "latency" and commands.notebook("memory") == "batching"


def test_the_page_s_quantile_is_student_s():
    series = np.polynomial.Chebyshev(explorer.student(), domain=[0, 1])
    for freedom in (1, 1.37, 2, 5.5, 30, 1e6):
        assert series(1 / freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-10)
    assert statistics.CONFIDENCE == 0.95
