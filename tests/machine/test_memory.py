"""The most memory that an engine held on its GPUs, sampled at the driver."""

import math
import os
import subprocess
import sys
import time

import psutil
import pytest

from bench.machine import memory, sampler


@pytest.fixture(autouse=True)
def fresh(nvml):
    sampler.end()  # one that another file's test has started reads the real driver
    yield
    sampler.end()


def test_a_peak_between_two_questions_is_seen(nvml):
    mine = str(os.getpid())
    nvml.answers({"apps": {mine: 1000}})
    memory.forget_peak("cuda")
    nvml.answers({"apps": {mine: 5000}})
    time.sleep(3)  # the sampler is a process of its own, which has to start first
    nvml.answers({"apps": {mine: 2000}})
    time.sleep(0.3)
    assert memory.peak_memory_bytes("cuda") == 5000
    memory.forget_peak("cuda")
    assert memory.peak_memory_bytes("cuda") == 2000


def test_children_count_and_probes_and_strangers_do_not(nvml):
    words = [sys.executable, "-c", "input()"]
    child, probe = (
        subprocess.Popen([*words, more], stdin=subprocess.PIPE)
        for more in ("engine", "bench.machine.bandwidth")
    )
    try:
        held = {str(os.getpid()): 1000, str(child.pid): 200, str(probe.pid): 4096, "1": 77}
        nvml.answers({"apps": held, "memory_bytes": 9999})
        assert memory.peak_memory_bytes("cuda") == 1200
    finally:
        for process in (child, probe):
            process.communicate(b"\n")


def test_in_a_container_all_that_is_in_use_counts(nvml):
    nvml.answers({"memory_bytes": 2048})
    assert memory.peak_memory_bytes("cuda") == 2048
    nvml.answers({"memory_bytes": 4096, "apps": {str(os.getpid()): None}})
    assert memory.peak_memory_bytes("cuda") == 4096


def test_all_gpus_that_are_used_add_up(nvml):
    mine = str(os.getpid())
    nvml.answers({"apps": {mine: 1000}}, {"apps": {mine: 500}}, {"apps": {mine: 7}})
    assert memory.peak_memory_bytes("cuda", gpus=2) == 1500


def test_unreadable_is_empty_and_never_zero(nvml, monkeypatch):
    nvml.answers({"lacks": ["memory", "apps"]})
    assert math.isnan(memory.peak_memory_bytes("cuda"))


def test_the_sampler_ends_with_its_parent():
    code = "from bench.machine import sampler; print(sampler.Sampler().process.pid, flush=True)"
    number = int(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )
    for _ in range(100):
        # A zombie has ended: whoever adopts orphans (`neighbours.adopt_orphans`) has not looked after it yet.
        if not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.1)
    pytest.fail("the sampler outlived the process that had started it")


def test_a_sampler_that_died_says_so():
    found = sampler.Sampler()
    found.process.kill()
    found.process.wait()
    with pytest.raises(RuntimeError, match="sampler of GPU memory ended"):
        found.peak_bytes()
