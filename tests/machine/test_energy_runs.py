"""Joules in the rows of whole runs: the fake engine on one or two GPUs that a fake NVML plays, RAPL as a folder."""

import json
import math

import pytest
from commands import run_cells

from bench import backends
from bench.experiments import energy, serving
from bench.instrument import in_process
from bench.machine import identity, sampler
from bench.observations import checks, store
from bench.observations.checks import conditions

LATENCY = {"max_new_tokens": 8, "warmup_tokens": 8}
BATCHING = {"batch_sizes": "1 2", "input_tokens": 16, "max_new_tokens": 4}
BATCHING |= {"prompt_lengths": "16", "short_tokens": 4}
SERVING = {"concurrency": "2 4", "request_rates": "none", "requests": 80}
SERVING |= {"lengths": "fixed-512-64", "scale": 0.125}


RANGE_UJ = 65_532_610_987  # of an AMD package


@pytest.fixture
def run(idle_machine, driver, nvml, tmp_path, monkeypatch):
    """A function that executes a notebook's cells on the fake GPU (or CPU): (rows, sidecar). Windows last a second."""
    fake = backends.get("fake").module
    monkeypatch.setattr(fake, "DEVICES", ("cuda", "cpu"))
    monkeypatch.setattr(energy, "WINDOW_S", 1.0)
    # Nothing here is about times, and this machine may be busy.
    monkeypatch.setattr(conditions, "SETTLED", 1.0)
    monkeypatch.setitem(
        checks.CHECKS, "the first counted request was no slower than the others", lambda _: {}
    )
    monkeypatch.setattr(identity, "host", lambda: "abc123")
    monkeypatch.setattr(in_process.gc, "collect", lambda: 0)  # this process is large
    sampler.end()

    def execute(notebook="latency", **parameters):
        chosen = {"backend": "fake", "device": "cuda", "results": str(tmp_path / "out")} | parameters
        run_cells(notebook, chosen)
        (file,) = (tmp_path / "out").glob("fake/*.csv")
        return store.load([file]), json.loads(file.with_suffix(".json").read_text())

    yield execute
    sampler.end()


def test_a_latency_run_has_the_joules_of_its_requests(run, nvml):
    rows, sidecar = run(**LATENCY)
    (window,), about = sidecar["energy"]["windows"], sidecar["energy"]
    assert window["gpu_w"] == pytest.approx(300, rel=0.05) and window["repeats"] >= 3
    joules = window["gpu_w"] * window["seconds"] / window["output_tokens"] * 8
    assert rows["gpu_energy_j"].tolist() == pytest.approx([joules] * 9)
    assert rows["energy_per_token_j"].tolist() == pytest.approx([joules / 8] * 9)
    assert about["idle"]["gpu_w"] == pytest.approx(300, rel=0.05) and rows["gpu_idle_w"].notna().all()
    assert "NVML's energy counter" in about["method"]
    assert about["gpu_reason"] == "" and rows["cpu_energy_j"].isna().all() and "RAPL" in about["cpu_reason"]


def test_without_nvml_the_row_says_so(run, monkeypatch):
    monkeypatch.delenv("FAKE_NVML")
    rows, sidecar = run(**LATENCY)
    assert rows["gpu_energy_j"].isna().all() and rows["peak_memory_bytes"].isna().all()
    assert sidecar["energy"]["gpu_reason"] == "NVML cannot be read"


@pytest.mark.check
def test_both_gpus_of_a_shared_model_count(run, driver, nvml):
    nvml.answers({"memory_bytes": 1000}, {"power_w": 100, "memory_bytes": 500})
    driver.says({"count": "2", "clocks.sm": "1200", "power.draw": "100.0", "temperature.gpu": "71"}, gpu=1)
    driver.says({"count": "2"})
    rows, sidecar = run(**LATENCY, tensor_parallel=2)
    assert sidecar["energy"]["gpus"] == 2 and rows["tensor_parallel"].eq(2).all()
    assert sidecar["energy"]["windows"][0]["gpu_w"] == pytest.approx(400, rel=0.05)
    assert rows["peak_memory_bytes"].eq(1500).all()
    machine = sidecar["machine"]
    for state in (machine["gpu_before"], machine["gpu_after"], sidecar["warmup"][-1]):
        assert state["clocks.sm"] == 1200 and state["temperature.gpu"] == 71
        assert state["power.draw"] == pytest.approx(220.5)


@pytest.mark.check
def test_a_servers_requests_are_sent_again_without_a_pause(run, nvml):
    rows, sidecar = run(**LATENCY, server=True)
    (window,) = sidecar["energy"]["windows"]
    assert rows["experiment"].eq("served").all() and window["gpu_w"] == pytest.approx(300, rel=0.05)
    assert window["seconds"] >= 1
    assert rows["gpu_energy_j"].notna().all()


@pytest.mark.check
def test_every_batch_has_its_own_joules(run, nvml):
    rows, sidecar = run("batching", **BATCHING)
    windows = {window["what"]: window for window in sidecar["energy"]["windows"]}
    assert list(windows) == ["1 x 16+4", "1 x 16+4", "2 x 16+4"][-len(windows) :] or len(windows) == 2
    two = rows[rows["batch_size"] == 2]
    each = windows["2 x 16+4"]
    assert each["gpu_w"] == pytest.approx(300, rel=0.05) and len(two) == 2 * 3
    joules = each["gpu_w"] * each["seconds"] / each["output_tokens"] * 4
    assert two["gpu_energy_j"].tolist() == pytest.approx([joules] * 2 * 3)
    alone = rows[rows["batch_size"] == 1]["gpu_energy_j"].iloc[0]
    assert alone == pytest.approx(2 * joules, rel=0.3)  # the same time and power for half the tokens
    assert sidecar["energy"]["idle"]["gpu_w"] == pytest.approx(300, rel=0.05)


@pytest.mark.check
def test_a_level_of_load_is_a_window(run, nvml):
    rows, sidecar = run("serving", **SERVING)
    windows = {window["what"]: window for window in sidecar["energy"]["windows"]}
    assert len(windows) == 2
    assert all(window["gpu_w"] == pytest.approx(300, rel=0.05) for window in windows.values())
    for (level, own), window in zip(rows.groupby("concurrency"), windows.values()):
        joules = window["gpu_w"] * window["seconds"]
        assert own["gpu_energy_j"].sum() == pytest.approx(joules) and str(int(level)) in window["what"]
        wall = (own["sent_s"] + own["e2e_s"]).max() - own["sent_s"].min()
        assert window["seconds"] > wall
    assert sidecar["energy"]["idle"] is not None and sidecar["machine"]["gpu_after"]["clocks.sm"] == 1980


@pytest.mark.check
def test_a_server_is_warmed_up_until_the_clocks_settle(run, driver, monkeypatch):
    monkeypatch.setattr(conditions, "SETTLED", 0.5)
    driver.says({"clocks.sm": "345\n500\n1200\n1900\n1980"})  # before the run; then a round each
    _, sidecar = run("serving", **SERVING | {"concurrency": "2"})
    (server,) = sidecar["settings"]["servers"]
    assert [turn["clocks.sm"] for turn in server["warmup"]] == [500, 1200, 1900]
    assert server["warmup"] == sidecar["warmup"]
    assert len(sidecar["energy"]["windows"]) == 1  # no warm-up counts


@pytest.mark.check
def test_a_server_whose_clocks_never_settle_is_refused(run, driver, monkeypatch):
    monkeypatch.setattr(conditions, "SETTLED", 0.03)
    for module in (checks, conditions):
        monkeypatch.setattr(module, "WARMUPS", 3)
    monkeypatch.setattr(serving, "WARM_PLACES", 2)
    driver.says({"clocks.sm": "345\n500\n1200\n1900\n1000\n1000"})
    with pytest.raises(checks.Rejected, match="The server's warm-up had not settled"):
        run("serving", **SERVING)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Two CPU packages in a folder, which a thread lets count 40 W and 20 W from just below their range on."""
    import threading
    import time

    folders = []
    for k in range(2):
        folder = tmp_path / "powercap" / f"intel-rapl:{k}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"package-{k}\n")
        (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        folders.append(folder)
    start, ended = time.monotonic(), threading.Event()

    def write():
        for k, folder in enumerate(folders):
            counted = RANGE_UJ - 10 + int((40e6, 20e6)[k] * (time.monotonic() - start))
            new = folder / "energy.new"
            new.write_text(f"{counted % RANGE_UJ}\n")
            new.replace(folder / "energy_uj")

    def count():
        while not ended.wait(0.02):
            write()

    write()
    monkeypatch.setenv("BENCH_POWERCAP", str(tmp_path / "powercap"))
    thread = threading.Thread(target=count)
    thread.start()
    yield folders
    ended.set()
    thread.join()


@pytest.mark.check
def test_the_cpus_joules_on_a_cpu(run, packages):
    rows, sidecar = run(**LATENCY, device="cpu")
    (window,) = sidecar["energy"]["windows"]
    assert window["cpu_w"] == pytest.approx(60, rel=0.4) and window["gpu_reason"] == "the run uses no GPU"
    assert rows["cpu_energy_per_token_j"].notna().all() and rows["gpu_energy_j"].isna().all()
    assert not sampler._shared  # on a CPU nothing runs beside the engine


def test_a_cpu_without_counters_starts_nothing(run, monkeypatch, tmp_path):
    monkeypatch.setenv("BENCH_POWERCAP", str(tmp_path / "none"))
    monkeypatch.setattr(energy, "WINDOW_S", 1e9)  # a window that is waited for would not end
    rows, sidecar = run(**LATENCY, device="cpu")
    assert rows["cpu_energy_j"].isna().all() and "RAPL" in sidecar["energy"]["cpu_reason"]
    assert math.isnan(rows["cpu_idle_w"].astype(float).iloc[0])


@pytest.mark.check
def test_both_the_gpu_and_the_cpu_can_be_read(run, packages):
    rows, _ = run(**LATENCY)
    assert (rows["gpu_energy_j"] / rows["cpu_energy_j"]).iloc[0] == pytest.approx(5, rel=0.15)
