"""The table of load clients follows the data."""

import json

import pytest

from bench.observations import checks, schema, store
from bench.topics import client_accuracy as accuracy_analysis


def row(client, streams, error_ms, excess_ms=0.01, cpu=5.0, **more):
    known = {
        "client": client,
        "version": "1.0",
        "streams": streams,
        "requests": 3 * streams,
        "failed": 0,
        "events_per_s": 96.0 * streams,
        "error": "",
    }
    measured = {
        "ttft_error_ms": error_ms,
        "ttft_error_connected_ms": error_ms,
        "itl_p99_ms": 10 + excess_ms,
        "itl_p99_excess_ms": excess_ms,
        "cpu_us_per_token": cpu,
    }
    return (
        dict.fromkeys(schema.ACCURACY)
        | known
        | measured
        | {"peak_memory_bytes": 1e8, "kernel_stamps": client == "ours"}
        | more
    )


LOST = {"error": "TimeoutError: the client had not ended", "failed": 3000} | dict.fromkeys(
    ["ttft_error_ms", "itl_p99_ms", "itl_p99_excess_ms", "cpu_us_per_token"]
)


def compared(folder, rows):
    path = store.write_accuracy(rows, "test-cpu", "abc123", {"cpu": "x"}, {"run": 0, "results": str(folder)})
    return path, accuracy_analysis.on_default_machine(store.load_accuracy(folder))


def usual(own=0.01, cpu=5.0, excess=0.01, last=None):
    rows = [row("ours", n, own, excess, cpu) for n in (1, 1000)] + [
        row("vllm_bench", n, 0.2 * n + 1, -0.5 if n == 1 else 30, 60.0) for n in (1, 1000)
    ]
    return rows + [row("guidellm", 1, 0.4, -1.5, 300.0), last or row("guidellm", 1000, 50.0, -1.5, 300.0)]


def test_a_made_up_comparison_is_a_table(tmp_path):
    path, _ = compared(tmp_path, usual(last=row("guidellm", 1000, None, **LOST)))
    assert path.name.startswith("accuracy-test-cpu-")
    assert json.loads(path.with_suffix(".json").read_text())["machine"]["cpu"]
    requests = store.load(folder=tmp_path)
    assert requests.empty and not store.files(tmp_path), "what was measured of clients is no run"
    table = accuracy_analysis.table(requests).set_index(["client", "streams"])
    assert "TimeoutError" in table.loc[("guidellm", 1000), "error"]
    assert table.loc[("guidellm", 1), "itl_p99_excess_ms"] == -1.5


def test_the_fullest_comparison_is_shown_and_then_the_latest(tmp_path):
    compared(tmp_path, usual())
    path, _ = compared(tmp_path, [row("ours", 1, 9.0)])
    sidecar = json.loads(path.with_suffix(".json").read_text()) | {"ended": "2099-01-01T00:00:00+00:00"}
    path.with_suffix(".json").write_text(json.dumps(sidecar))
    assert (
        path.stem.endswith("-2")
        and len(accuracy_analysis.on_default_machine(store.load_accuracy(tmp_path))) == 6
    )
    path, shown = compared(tmp_path, usual(own=0.02))
    assert path.stem.endswith("-3") and set(shown["runs"]) == {2}, "the same versions at the same loads"
    ours = shown[shown["client"] == "ours"].iloc[0]
    assert ours["ttft_error_ms"] == pytest.approx(0.015) and ours["ttft_error_ms_interval"] > 0.005
    assert ours["requests"] == 6
    path, _ = compared(tmp_path, [each | {"version": "2.0"} for each in usual(own=0.03)])
    path.with_suffix(".json").write_text(json.dumps(sidecar))
    newest = accuracy_analysis.on_default_machine(store.load_accuracy(tmp_path))
    assert set(newest["runs"]) == {1} and 0.03 in newest["ttft_error_ms"].tolist()


def test_errors_to_either_side_do_not_make_up_for_each_other(tmp_path):
    for own in (0.02, -0.02):
        _, shown = compared(tmp_path, usual(own=own))
    ours = shown[shown["client"] == "ours"].iloc[0]
    assert ours["ttft_error_ms"] == pytest.approx(0, abs=1e-9) and ours["ttft_off_ms"] == pytest.approx(0.02)


def test_a_load_that_failed_once_is_no_load_that_was_sustained(tmp_path):
    rows = usual()
    rows[1] |= LOST
    compared(tmp_path, rows)
    _, shown = compared(tmp_path, usual())
    lost = shown[(shown["client"] == "ours") & (shown["streams"] == 1000)].iloc[0]
    assert lost["error"].startswith("1 of 2 runs: TimeoutError")
    assert lost["ttft_error_ms"] == pytest.approx(0.01)


def test_a_comparison_without_any_result_is_refused(tmp_path):
    with pytest.raises(checks.Rejected, match="No load client came to an end"):
        compared(tmp_path, [row("ours", 1000, None, **LOST)])
