"""The comparison of load clients as it is shown: figures, tables and sentences follow the data."""

import json

import pytest
from pictures import words

from bench import html
from bench.observations import checks, schema, store
from bench.report import client_accuracy as client_accuracy_findings
from bench.report import figures, tables
from bench.report.figures import client_accuracy as client_accuracy_figures
from bench.report.tables import client_accuracy as client_accuracy_tables
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


def test_a_made_up_comparison_is_shown(tmp_path):
    path, table = compared(tmp_path, usual(last=row("guidellm", 1000, None, **LOST)))
    assert path.name.startswith("accuracy-test-cpu-")
    assert json.loads(path.with_suffix(".json").read_text())["machine"]["cpu"]
    requests = store.load(folder=tmp_path)
    assert requests.empty and not store.files(tmp_path), "what was measured of clients is no run"
    drawn = client_accuracy_figures.client_accuracy(requests)
    assert "vllm bench serve 1.0" in words(drawn)
    assert "guidellm gave no result at 1,000 streams" in words(drawn)
    assert "zero or less" in words(drawn), "guidellm's negative excess must not vanish"
    hollow = [
        line
        for line in drawn.axes[2].lines
        if line.get_markerfacecolor() == "white" and len(line.get_xdata())
    ]
    assert sorted(x for line in hollow for x in line.get_xdata()) == [1, 1]
    shown = html.text(client_accuracy_tables.client_accuracy(requests))
    assert "TimeoutError" in shown and "vllm-bench (Rust)" in shown and "-1.5" in shown
    text = " ".join(client_accuracy_findings.client_findings(requests))
    assert "**vllm bench serve** is off by 1.2 ms at 1, 200 ms at 1,000 streams" in text
    assert "120 to 20,000 times as far as ours, with 12 times the CPU" in text
    assert "**guidellm** is off by 0.4 ms at 1 stream in the mean" in text and "the goal was met" in text
    assert "client_accuracy" in figures.names() and "client_accuracy" in tables.names()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            usual(own=0.15),
            [
                "TTFT error above 0.1 of vllm_bench's at 1 stream",
                "TTFT error above 0.2 of the best peer's (guidellm) at 1 stream",
            ],
        ),
        (usual(cpu=100.0), ["CPU time per token above 0.2 of the best peer's (guidellm) at 1 stream"]),
        (
            usual(own=6.0),
            [
                "limits of 5 and 1 ms exceeded at 1,000 streams",
                "TTFT error above the Rust client's at 1 stream",
            ],
        ),
        (
            usual(excess=1.4),
            [
                "limits of 5 and 1 ms exceeded at 1,000 streams",
                "ITL p99 above the Rust client's at 1,000 streams",
            ],
        ),
        (usual() + [row("ours", 10, None, **LOST)], ["10 streams not sustained"]),
    ],
)
def test_a_missed_goal_is_said(tmp_path, rows, said):
    _, table = compared(tmp_path, rows)
    assert all(words in client_accuracy_findings.goal_met(table) for words in said)


def test_no_goal_without_a_peer_or_the_load(tmp_path):
    for name, rows in (("a", [row("ours", 1000, 0.1)]), ("b", [row("ours", 1, 0.1), row("aiperf", 1, 1.0)])):
        assert client_accuracy_findings.goal_met(compared(tmp_path / name, rows)[1]) is None


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
    assert ours["requests"] == 6 and "over 2 runs)" in client_accuracy_findings.own_error(shown)
    path, _ = compared(tmp_path, [each | {"version": "2.0"} for each in usual(own=0.03)])
    path.with_suffix(".json").write_text(json.dumps(sidecar))
    newest = accuracy_analysis.on_default_machine(store.load_accuracy(tmp_path))
    assert set(newest["runs"]) == {1} and 0.03 in newest["ttft_error_ms"].tolist()
    assert "over" not in client_accuracy_findings.own_error(newest)


def test_errors_to_either_side_do_not_make_up_for_each_other(tmp_path):
    for own in (0.02, -0.02):
        _, shown = compared(tmp_path, usual(own=own))
    ours = shown[shown["client"] == "ours"].iloc[0]
    assert ours["ttft_error_ms"] == pytest.approx(0, abs=1e-9) and ours["ttft_off_ms"] == pytest.approx(0.02)
    beside = accuracy_analysis.against(shown)
    assert beside["own_ms"].tolist() == pytest.approx([0.02] * len(beside)) and len(beside)


def test_a_load_that_failed_once_is_no_load_that_was_sustained(tmp_path):
    rows = usual()
    rows[1] |= LOST
    compared(tmp_path, rows)
    _, shown = compared(tmp_path, usual())
    lost = shown[(shown["client"] == "ours") & (shown["streams"] == 1000)].iloc[0]
    assert lost["error"].startswith("1 of 2 runs: TimeoutError")
    assert lost["ttft_error_ms"] == pytest.approx(0.01)
    assert 1000 not in accuracy_analysis.sustained(shown).query("client == 'ours'")["streams"].tolist()


def test_nothing_measured_shows_what_was_published(nothing):
    assert "Nothing measured here yet" in words(client_accuracy_figures.client_accuracy(nothing))
    assert len(client_accuracy_tables.client_accuracy(nothing)) == 10
    assert client_accuracy_findings.client_findings(nothing) == []


def test_a_comparison_without_any_result_is_refused(tmp_path):
    with pytest.raises(checks.Rejected, match="No load client came to an end"):
        compared(tmp_path, [row("ours", 1000, None, **LOST)])
