"""Gates that keep a run out for what happened around it, each on a run that passes without the fault."""

import math

import pytest
from builders import make_rows, make_sidecar

from bench import environment
from bench.machine import identity
from bench.observations import gates, schema


def refusal(rows, **sidecar):
    """The sentence with which the gates refuse a made-up run; empty where it passes."""
    try:
        gates.check(schema.frame(rows), make_sidecar(**sidecar), rows[0]["run_id"])
        return ""
    except gates.Refused as refused:
        return str(refused)


def served(gap_s):
    """A run over HTTP whose events follow each other by `gap_s`."""
    rows = make_rows(n=3, tokens=10)
    return [row | {"chunks": 10, "e2e_s": row["ttft_s"] + 9 * gap_s} for row in rows]


def test_a_plausible_run_passes():
    assert refusal(make_rows()) == "" and refusal(served(0.01)) == ""


def test_answers_that_came_in_one_lump_are_refused():
    assert "proxy_buffering off" in refusal(served(1e-6))


def test_one_request_in_one_lump_is_let_pass():
    rows = served(0.01)
    rows[0] |= {"e2e_s": rows[0]["ttft_s"] + 1e-6}
    assert refusal(rows, weight_bytes=None) == ""


def test_stolen_cores_are_refused():
    assert "hypervisor gave 0.90" in refusal(make_rows(), busy_cores={"others": 0.0, "steal": 0.9})
    assert refusal(make_rows(), busy_cores={"others": 0.0, "steal": 0.05}) == ""


def test_a_quota_that_held_threads_back_is_refused():
    busy = {"others": 0.0, "steal": 0.0}
    assert "quota held this run's threads back for 30%" in refusal(
        make_rows(), busy_cores=busy | {"throttled": 0.3}
    )
    assert refusal(make_rows(), busy_cores=busy | {"throttled": 0.001}) == ""


@pytest.mark.parametrize(("after", "refused"), [(1700, False), (1300, True), (None, False)])
def test_a_clock_that_drifts_is_refused(after, refused):
    warmup = [{"e2e_s": 1.0, "clocks.sm": 1720.0}, {"e2e_s": 1.0, "clocks.sm": 1725.0}]
    sentence = refusal(make_rows(), warmup=warmup, machine={"gpu_after": {"clocks.sm": after}})
    assert ("lock-gpu-clocks" in sentence) == refused


def test_an_instrument_that_differs_from_its_revision_is_refused_and_an_adapter_is_not():
    gates.committed(make_sidecar(git={"uncommitted": ["bench/backends/mine.py"]}))
    gates.committed(make_sidecar(git={"revision": "of a time when nobody looked"}))
    for file in ("bench/metrics.py", "bench/backends/__init__.py", "bench/backends/common/launch.py"):
        with pytest.raises(gates.Refused, match="-p results scratch"):
            gates.committed(make_sidecar(git={"uncommitted": ["bench/backends/mine.py", file]}))


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", math.inf), ("100000 100000", 1), ("150000 100000", 1.5)]
)
def test_a_containers_quota_bounds_the_threads(monkeypatch, text, cores):
    monkeypatch.setattr(environment, "_cgroup", lambda file: [text])
    assert environment.cpu_quota_cores() == cores
    assert identity.cores() == 1 if cores < 2 else identity.cores() >= 1
