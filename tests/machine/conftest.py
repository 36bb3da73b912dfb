"""A driver for tests: NVML as tests/machine/fake/pynvml.py plays it, in this process's children too, and `nvidia-smi` as a shell script does."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

# Answers `--query-gpu=a,b` from files called a and b, a line each time while there are several, and `--query-compute-apps` from a file called apps; of GPU n from the
# folder gpun, where there is one.
NVIDIA_SMI = """#!/bin/sh
cd {folder}
for word; do
  case $word in
    --query-gpu=*) fields=${{word#*=}} ;;
    --query-compute-apps=*) apps=1 ;;
    --id=*) [ ! -d gpu${{word#*=}} ] || cd gpu${{word#*=}} ;;
  esac
done
[ -z "$apps" ] || exec cat apps
line=
for field in $(echo $fields | tr , ' '); do
  [ -e $field ] || echo '[N/A]' > $field
  line="$line${{line:+, }}$(head -n 1 $field)"
  [ $(wc -l < $field) -eq 1 ] || sed -i 1d $field
done
echo "$line"
"""
IDLE = {
    "name": "NVIDIA H200", "driver_version": "580.65.06", "memory.total": "143771", "power.limit": "700.00", "clocks.sm": "1980", "clocks.mem": "3201",
    "temperature.gpu": "34", "power.draw": "120.50", "memory.used": "512", "apps": "",
}  # fmt: skip

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
    monkeypatch.syspath_prepend(FAKE)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "nvml.json"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    found = Nvml(tmp_path / "nvml.json")
    found.answers({})
    return found


class Driver:
    """A folder of answers, and `nvidia-smi` on the PATH."""

    def __init__(self, folder):
        self.folder = folder
        self.says(IDLE)
        program = folder / "nvidia-smi"
        program.write_text(NVIDIA_SMI.format(folder=folder))
        program.chmod(0o755)

    def says(self, answers, gpu=None):
        """Let every GPU answer this from now on, or the one of this number alone (all of it)."""
        folder = self.folder if gpu is None else self.folder / f"gpu{gpu}"
        folder.mkdir(exist_ok=True)
        for name, said in (answers if gpu is None else IDLE | answers).items():
            (folder / name).write_text(said + "\n" if said else "")


@pytest.fixture
def driver(tmp_path, monkeypatch):
    folder = tmp_path / "driver"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Driver(folder)
