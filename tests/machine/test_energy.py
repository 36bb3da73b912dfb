"""Joules between two readings: of a fake NVML and of RAPL as a folder, with the reason where there are none."""

import math
from types import SimpleNamespace

import pytest

from bench.experiments import energy

GPU = SimpleNamespace(device="cuda", url="", devices=SimpleNamespace(count=1))
CPU = SimpleNamespace(device="cpu", url="", devices=SimpleNamespace(count=1))
RANGE_J = 65_000
ROW = {"error": "", "output_tokens": 4}


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(energy, "clock", found)
    return found


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A function that writes what the counter of the one CPU package says, in J."""
    folder = tmp_path / "intel-rapl:0"
    folder.mkdir()
    (folder / "name").write_text("package-0\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE_J * 10**6}\n")
    part = tmp_path / "intel-rapl:0:0"  # is in the package's joules
    part.mkdir()
    (part / "name").write_text("core\n")
    monkeypatch.setenv("BENCH_POWERCAP", str(tmp_path))
    return lambda joules: (folder / "energy_uj").write_text(f"{int(joules * 10**6)}\n")


def test_a_gpus_counter_before_and_after_gives_the_joules(nvml, clock):
    nvml.answers({"joules": 1000})
    before = energy.Meter(GPU).read()
    clock.now += 12
    nvml.answers({"joules": 4600})
    found = energy.between(before, energy.Meter(GPU).read())
    assert found.gpu_energy_j == pytest.approx(3600) and found.gpu_reason == ""
    assert found.about()["gpu_w"] == pytest.approx(300) and found.about()["seconds"] == 12


@pytest.mark.parametrize(
    ("first", "last", "seconds", "reason"),
    [
        ({"joules": 5000}, {"joules": 20}, 12, "the energy counter of GPU 0 stepped back"),
        ({"joules": 5000}, {"joules": 5000}, 12, "the energy counter of GPU 0 stands still"),
        ({"lacks": ["energy"]}, {"lacks": ["energy"]}, 12, "GPU 0 has no energy counter that can be read"),
        ({"joules": 10}, {"lacks": ["energy"]}, 12, "GPU 0 has no energy counter that can be read"),
        ({"joules": 10}, {"joules": 20}, 9.5, "the window of 9.5 s is shorter than 10 s"),
    ],
)
def test_a_gpu_whose_counter_says_nothing_has_a_reason(nvml, clock, first, last, seconds, reason):
    nvml.answers(first)
    before = energy.Meter(GPU).read()
    clock.now += seconds
    nvml.answers(last)
    found = energy.between(before, energy.Meter(GPU).read())
    assert math.isnan(found.gpu_energy_j) and found.gpu_reason == reason
    assert found.about()["gpu_w"] is None


@pytest.mark.parametrize(
    ("first", "last", "seconds", "joules", "reason"),
    [
        (1000, 1600, 12, 600, ""),
        (RANGE_J - 100, 500, 12, 600, ""),  # it wrapped
        (30_000, 500, 12, None, "the counter intel-rapl:0 stepped back from 30000 J to 500 J"),
        (1000, 1000, 12, None, "the CPU's RAPL counters stand still"),
        (1000, 1600, 9, None, "the window of 9.0 s is shorter than 10 s"),
        (1000, 1600, 200, None, "in a window of 200 s the counter intel-rapl:0 may have wrapped twice"),
    ],
)
def test_a_packages_counter_is_read_across_its_wrap(package, clock, first, last, seconds, joules, reason):
    package(first)
    before = energy.Meter(CPU).read()
    clock.now += seconds
    package(last)
    found = energy.between(before, energy.Meter(CPU).read())
    assert found.cpu_reason == reason
    if joules is None:
        assert math.isnan(found.cpu_energy_j)
    else:
        assert found.cpu_energy_j == pytest.approx(joules)


def test_a_counter_that_only_root_may_read_is_no_counter(package, clock, tmp_path):
    (tmp_path / "intel-rapl:0" / "energy_uj").mkdir()  # cannot be read, whoever reads
    meter = energy.Meter(CPU)
    assert meter.reasons(meter.read()) == (energy.NO_GPU, energy.NO_RAPL)


def test_work_is_repeated_until_the_window_is_full_and_tokens_share_the_joules(package, clock):
    joules = 0.0

    def work():
        nonlocal joules
        joules += 90
        clock.now += 3
        package(joules)
        return [dict(ROW)]

    package(joules)
    meter = energy.Meter(CPU)
    (row,) = meter.repeated("1 x 8+4", [dict(ROW, output_tokens=2)], work)
    (window,) = meter.windows
    assert window["repeats"] == 4 and window["output_tokens"] == 16 and window["seconds"] == 12
    assert row["cpu_energy_j"] == pytest.approx(360 * 2 / 16) and math.isnan(row["gpu_energy_j"])
    assert window["cpu_w"] == pytest.approx(30) and window["gpu_reason"] == "the run uses no GPU"


def test_a_level_of_load_is_its_own_window_and_a_short_one_has_a_reason(package, clock):
    meter = energy.Meter(CPU)
    for seconds, reason in ((20, ""), (4, "the window of 4.0 s is shorter than 10 s")):
        package(0)
        before = meter.read()
        clock.now += seconds
        package(100)
        rows = meter.during("closed 2", [dict(ROW), dict(ROW, error="lost")], before)
        assert meter.windows[-1]["cpu_reason"] == reason
        assert rows[0]["cpu_energy_j"] == pytest.approx(math.nan if reason else 100, nan_ok=True)
        assert "cpu_energy_j" not in rows[1]


def test_requests_that_fail_leave_no_figure(package, clock):
    package(0)
    meter = energy.Meter(CPU)
    (row,) = meter.repeated("1 x 8+4", [dict(ROW, error="MemoryError: no room")], lambda: 1 / 0)
    assert row == dict(ROW, error="MemoryError: no room")
    assert meter.windows[0]["cpu_reason"] == "MemoryError: no room"
    meter.during("closed 2", [dict(ROW, error="lost")], meter.read())
    assert meter.windows[1]["cpu_reason"] == "every request failed"


def test_nothing_is_counted_of_a_server_elsewhere(package, clock):
    package(0)
    meter = energy.Meter(SimpleNamespace(device="cuda", url="http://there", devices=GPU.devices))
    (row,) = meter.repeated("1 x 8+4", [dict(ROW)], lambda: 1 / 0)
    assert math.isnan(row["gpu_energy_j"]) and math.isnan(row["cpu_energy_j"])
    assert meter.about()["gpu_reason"] == meter.about()["cpu_reason"] == energy.ELSEWHERE
    meter.ready()
    assert meter.about()["idle"] is None
