"""Joules: a counter that is read, one that jumps, one that is missing, one that disagrees with the sampled power."""

import math
import time

import pytest

from bench.machine import energy, sampler
from llm_measured.core import metrics


def samples(seconds=12.0, step=0.1, watts=300.0, factor=1.0, gpus=1, cpu_w=50.0, **changes):
    """A window of samples: `changes` replaces the counter or the power by a function of time."""
    counter = changes.get("counter", lambda t: 1e6 + factor * watts * t)
    power = changes.get("power", lambda t: watts)
    zone = changes.get("zone", lambda t: [100.0 + cpu_w * t, 262143.0])
    times = [step * k for k in range(int(seconds / step) + 1)]
    return [
        {
            "t": t,
            "gpus": [{"energy_j": counter(t), "power_w": power(t), "memory_bytes": 1}] * gpus,
            "cpu": {"intel-rapl:0": zone(t)} if zone else None,
        }
        for t in times
    ]


def test_a_counter_and_the_power_beside_it_give_joules():
    found = energy.of(samples(), 12.0)
    assert found.gpu_energy_j == pytest.approx(3600) and found.cpu_energy_j == pytest.approx(600)
    assert found.per(6) == {"gpu_energy_j": pytest.approx(600), "cpu_energy_j": pytest.approx(100)}
    assert found.about()["gpu_w"] == pytest.approx(300) and found.gpu_reason == found.cpu_reason == ""


def test_every_gpu_that_is_used_counts():
    assert energy.of(samples(gpus=2), 12.0).gpu_energy_j == pytest.approx(7200)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"counter": lambda t: 300 * t + (9000 if t > 5 else 0)}, "jumped by 9030 J"),
        ({"counter": lambda t: 300 * t - (1500 if t > 5 else 0)}, "went backwards"),
        ({"counter": lambda t: None}, "has no energy counter"),
        ({"counter": lambda t: 5.0}, "says 0.0 J"),
        ({"factor": 1.06}, "more than 5% apart"),
        ({"factor": 0.94}, "more than 5% apart"),
        ({"power": lambda t: None}, "cannot be sampled"),
        ({"gpus": 0}, "NVML cannot be read"),
        ({"seconds": 8.0}, "counters were read for 8.0 s of 12.0 s"),
    ],
)
def test_what_cannot_be_believed_is_empty_with_a_reason(changes, reason):
    found = energy.of(samples(**changes), 12.0)
    assert math.isnan(found.gpu_energy_j) and reason in found.gpu_reason
    assert found.about()["gpu_w"] is None
    if "seconds" not in changes:  # the CPU's counter is another one
        assert found.cpu_energy_j == pytest.approx(600)


def test_four_percent_apart_is_the_counters_figure():
    assert energy.of(samples(factor=1.04), 12.0).gpu_energy_j == pytest.approx(3744)


def test_a_short_window_has_no_figure():
    found = energy.of(samples(seconds=9.0), 9.0)
    assert math.isnan(found.gpu_energy_j) and math.isnan(found.cpu_energy_j)
    assert "shorter than 10 s" in found.gpu_reason == found.cpu_reason


def test_the_cpus_counter_begins_anew():
    wrapped = energy.of(samples(zone=lambda t: [(600 + 50 * t) % 700, 700.0]), 12.0)
    assert wrapped.cpu_energy_j == pytest.approx(600)


@pytest.mark.parametrize("zone", [None, lambda t: [5.0, 10.0]])
def test_a_cpu_that_does_not_tell_is_empty(zone):
    found = energy.of(samples(zone=zone), 12.0)
    assert math.isnan(found.cpu_energy_j) and found.cpu_reason and found.gpu_energy_j == pytest.approx(3600)


def test_packages_are_read_and_their_parts_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_POWERCAP", str(tmp_path))
    for zone, name, joules in (("0", "package-0", 7), ("0:0", "core", 3), ("1", "psys", 9)):
        folder = tmp_path / f"intel-rapl:{zone}"
        folder.mkdir()
        (folder / "name").write_text(name + "\n")
        (folder / "energy_uj").write_text(f"{joules}000000\n")
        (folder / "max_energy_range_uj").write_text("262143000000\n")
    assert sampler.rapl() == {"intel-rapl:0": [7.0, 262143.0]}
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()  # as unreadable as a file of root's
    assert sampler.rapl() is None
    monkeypatch.setenv("BENCH_POWERCAP", str(tmp_path / "none"))
    assert sampler.rapl() is None


@pytest.mark.parametrize(
    "lacks",
    [
        [],
        pytest.param(["instant"], marks=pytest.mark.check),
        pytest.param(["fields"], marks=pytest.mark.check),
    ],
)
def test_a_short_request_is_repeated_until_the_window_is_full(nvml, monkeypatch, lacks):
    monkeypatch.setattr(energy, "WINDOW_S", 2.0)
    nvml.answers({"lacks": lacks}, {"power_w": 100, "uuid": "GPU-b"})
    with sampler.Sampler(["0", "GPU-b"]) as source:
        source.peak_bytes()  # it answers, so it has started
        found, count = energy.repeated(lambda: time.sleep(0.1), source, 2.0)
    assert 10 < count <= 20 and found.gpu_reason == ""
    assert found.gpu_energy_j == pytest.approx(400 * found.seconds, rel=0.02)


@pytest.mark.check
@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"lacks": ["energy"]}, "has no energy counter"),
        ({"factor": 0.5}, "more than 5% apart"),
        ({"jump": [0.0, 1e5]}, "jumped by"),
        ({"lacks": ["fields"], "average_w": 200}, "more than 5% apart"),
    ],
)
def test_the_drivers_faults_come_through_the_sampler(nvml, monkeypatch, about, reason):
    monkeypatch.setattr(energy, "WINDOW_S", 1.5)
    if "jump" in about:
        about = {"jump": [time.monotonic() - nvml.t0 + 1.5, 1e5]}
    nvml.answers(about)
    with sampler.Sampler(["0"]) as source:
        source.peak_bytes()
        found = energy.idle(source, time.sleep, 2.5)
    assert math.isnan(found.gpu_energy_j) and reason in found.gpu_reason


def test_without_nvml_there_is_a_reason(nvml, monkeypatch):
    monkeypatch.setattr(energy, "WINDOW_S", 1.0)
    monkeypatch.delenv("FAKE_NVML")
    with sampler.Sampler(["0"]) as source:
        source.peak_bytes()
        found = energy.idle(source, time.sleep, 1.0)
    assert math.isnan(found.gpu_energy_j) and found.gpu_reason == "NVML cannot be read"


def test_energy_per_token_is_empty_where_energy_is():
    assert metrics.energy_per_token_j(600.0, 200) == 3
    assert math.isnan(metrics.energy_per_token_j(math.nan, 200))
    assert math.isnan(metrics.energy_per_token_j(600.0, 0))
    assert metrics.METRICS["energy_per_token_j"].unit == "J"
