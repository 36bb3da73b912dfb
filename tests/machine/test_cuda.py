"""What a GPU asks of the instrument, tried against a driver that a shell script plays: the CUDA itself has to be tried on a GPU."""

import json
import os
import subprocess
import sys

import pytest
from idle import Alone, Probe

from bench import backends, processes
from bench.backends.common import checkpoints, cuda, random_weights
from bench.experiments import session
from bench.machine import bandwidth, gpu, identity, neighbours

pytestmark = pytest.mark.early

PARAMETERS = {
    "backend": "fake",
    "option": "",
    "model": "smollm2-135m",
    "device": "cuda",
    "gpu": "auto",
    "threads": 0,
    "max_new_tokens": 8,
    "warmup_tokens": 8,
    "url": "",
    "run": 0,
}


@pytest.fixture
def setup(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(backends.get("fake").module, "DEVICES", ("cuda", "cpu"))
    monkeypatch.setattr(bandwidth, "Bandwidth", Probe)
    monkeypatch.setattr(neighbours, "Neighbours", Alone)
    return lambda **changes: session.Setup("latency", PARAMETERS | {"results": str(tmp_path)} | changes)


def test_the_driver_s_words_become_numbers(driver):
    assert gpu.has_cuda() and identity.slug("cuda") == "h200"
    driver.says({"power.draw": "[N/A]"})
    about = identity.describe("cuda")
    assert about["gpu"]["driver_version"] == "580.65.06" and about["gpu"]["power.limit"] == "700.00"
    assert about["gpu_before"] == {
        "clocks.sm": 1980,
        "clocks.mem": 3201,
        "temperature.gpu": 34,
        "power.draw": None,
        "memory.used": 512,
    }


def test_the_probe_is_no_contention(driver):
    with subprocess.Popen(
        [sys.executable, "-c", "input()", "bench.machine.bandwidth"], stdin=subprocess.PIPE
    ) as probe:
        driver.says({"apps": f"{os.getpid()}, 1000\n{probe.pid}, 4096\n1, 77"})
        assert neighbours.gpu_contention() == [1]
        probe.communicate(b"\n")


def test_whoever_shares_the_gpu_is_told_at_once(driver, setup):
    driver.says({"apps": "1, 77"})
    with pytest.raises(RuntimeError, match=r"Other processes compute on this GPU \(1\)"):
        setup()


def test_a_run_keeps_the_gpu_s_state_and_its_warm_up(driver, setup, monkeypatch):
    driver.says({"clocks.sm": "345\n1200\n1500\n1900\n1950\n1980\n1755"})  # before; four warm-ups; … after
    run = setup()
    run.load()
    with monkeypatch.context() as patched:  # a busy machine would not settle
        patched.setattr(run, "generate", lambda prompts, max_new_tokens: [{"e2e_s": 0.05, "error": ""}])
        run.warm_up([[1, 2, 3]], 8)
    assert [about["clocks.sm"] for about in run.warmup] == [1200, 1500, 1900, 1950]
    run.bandwidth.probe()
    (measured,) = run.generate([[1, 2, 3]], 8)
    driver.says({"clocks.sm": "1755", "temperature.gpu": "61"})
    path = run.write([run.row(1, 1, [1, 2, 3], measured | {"peak_memory_bytes": 1}, max_new_tokens=8)])
    machine = json.loads(path.with_suffix(".json").read_text())["machine"]
    assert machine["gpu_before"]["clocks.sm"] == 345 and machine["gpu_after"]["clocks.sm"] == 1755
    assert machine["gpu_after"]["temperature.gpu"] == 61
    assert path.name.startswith("latency-smollm2-135m-float32-h200-")


def test_a_cpu_is_warmed_up_once(driver, setup):
    run = setup(device="cpu")
    run.load()
    run.warm_up([[1, 2, 3]], 8)
    assert len(run.warmup) == 1 and "clocks.sm" not in run.warmup[0]
    run.close()


def test_out_of_memory_is_a_row(setup, monkeypatch):
    import torch

    run = setup()
    run.load()

    def full(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    monkeypatch.setattr(run.engine, "generate", full)
    run.warm_up([[1]], 8)
    assert run.warmup == [{"e2e_s": None} | gpu.gpu_state()]
    (row,) = run.generate([[1]], 8)
    assert row["error"].startswith("OutOfMemoryError: CUDA out of memory") and row["output_tokens"] == 0
    run.close()


def test_both_ways_of_the_probe_read_the_whole_buffer():
    assert 1e7 < bandwidth._cuda_rate("cpu", size=2**24, times=2) < 1e13


def test_the_libraries_of_cuda_12_are_found_beside_those_of_13(tmp_path, monkeypatch):
    for name in (*cuda.LIBRARIES, "cu13/lib/libcublas.so.13"):
        file = tmp_path / "nvidia" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    loaded = []
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cuda.ctypes, "CDLL", loaded.append)
    cuda.load_libraries()
    assert loaded == [str(tmp_path / "nvidia" / name) for name in cuda.LIBRARIES]


SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "layers": 2, "attention_heads": 4, "kv_heads": 2, "head_dim": 8,
    "vocab_size": 400, "context_tokens": 256, "rope_theta": 10000.0, "tied_embeddings": False,
}  # fmt: skip


@pytest.fixture
def tiny(tmp_path):
    """A checkpoint of two layers."""
    processes.in_child(random_weights._write_random, tmp_path / "tiny", SIZES)
    return checkpoints.Checkpoint("shape:tiny", tmp_path / "tiny", "synthetic")


@pytest.mark.check
def test_a_compiled_step_is_compiled_once(tiny, monkeypatch):
    """On a CPU, with a compiler that only counts: requests of other lengths use what the first one had compiled, and no cache leaks into the next."""
    from torch._dynamo.testing import CompileCounter
    from transformers import CompileConfig

    counted = CompileCounter()
    monkeypatch.setattr(CompileConfig, "_compile_all_devices", True)
    monkeypatch.setattr(CompileConfig, "to_dict", lambda self: {"backend": counted, "dynamic": self.dynamic})
    adapter = backends.get("transformers").module
    plain, compiled = (adapter.load(tiny, option, "cpu", 1) for option in ("bfloat16", "bfloat16-compiled"))
    compiled.reserve(1, 40)
    prompts = [[5, 6, 7], [9, 8, 7, 6, 5, 4, 3], [5, 6, 7]]
    answers, compilations = [], []
    for prompt in prompts:
        answers += compiled.generate([prompt], 20, None)
        compilations.append(counted.frame_count)
    assert answers == [plain.generate([prompt], 20, None)[0] for prompt in prompts]
    assert compilations[0] > 0 and len(set(compilations)) == 1
    both = compiled.generate([prompts[0], prompts[2]], 20, None)
    assert both[0] == both[1] and compiled.fixed.room == (2, 23)
