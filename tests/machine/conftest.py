"""A driver for tests: NVML as tests/machine/fake/pynvml.py plays it, in this process's children too."""

import json
import os
import time
from pathlib import Path

import pytest

FAKE = Path(__file__).parent / "fake"


class Nvml:
    """Writes what the GPUs are to answer from now on."""

    def __init__(self, file):
        self.file, self.t0 = file, time.monotonic()

    def answers(self, *gpus):
        text = json.dumps([{"t0": self.t0, "power_w": 300} | gpu for gpu in gpus])
        temporary = self.file.with_suffix(".new")
        temporary.write_text(text)
        os.replace(temporary, self.file)


@pytest.fixture
def nvml(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(FAKE), prepend=os.pathsep)
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "nvml.json"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    found = Nvml(tmp_path / "nvml.json")
    found.answers({})
    return found
