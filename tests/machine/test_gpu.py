"""Which GPU is meant, on machines with several: a shell script plays nvidia-smi, which numbers them by PCI bus."""

import json
import os
import subprocess
import sys

import pytest

from bench.machine import gemm, gpu, neighbours

SMI = """#!/bin/sh
for word; do
  case $word in
    --query-gpu=*) fields=${word#*=} ;; --query-compute-apps=*) fields=apps ;; --id=*) id=${word#*=} ;;
  esac
done
case $id in
  0) n=0; state="1980, 3201, 40, 300.5, 1000"; apps="11, 100" ;;
  1|GPU-b) n=1; state="1200, 3201, 71, 250.0, 500"; apps="12, 100
11, 50" ;;
  2) n=2; state="1980, 3201, 35, [N/A], 10"; apps= ;;
  *) echo "No devices were found"; exit 6 ;;
esac
case $fields in apps) echo "$apps" ;; name) echo "NVIDIA H100 $n" ;; count) echo 3 ;; *) echo "$state" ;; esac
"""


@pytest.fixture
def three(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("visible", "found"), [(None, [0, 1, 2]), ("2,0", [2, 0]), ("1,7,0", [1]), ("GPU-b,2", [1, 2]), ("", [])]
)
def test_the_gpus_that_cuda_may_use_are_counted(three, monkeypatch, visible, found):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu.gpus() == [f"NVIDIA H100 {n}" for n in found]


def test_without_a_driver_there_are_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.gpus() == []


def test_clocks_of_every_gpu_that_is_used(three):
    assert gpu.gpu_state()["clocks.sm"] == 1980
    both = {
        "clocks.sm": 1200,
        "clocks.mem": 3201,
        "temperature.gpu": 71,
        "power.draw": 550.5,
        "memory.used": 1500,
    }
    assert gpu.gpu_state(2) == both
    assert gpu.gpu_state(3)["power.draw"] is None and gpu.gpu_state(4) == {}


def test_neighbours_on_every_gpu_that_is_used(three, monkeypatch):
    assert neighbours.gpu_contention() == [11] and neighbours.gpu_contention(2) == [11, 12]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-b")
    assert neighbours.gpu_contention() == [] and neighbours.gpu_contention(2) == [11, 12]
    assert gpu.used(2) == ["2", "GPU-b"]


def test_cuda_counts_as_nvidia_smi_does(three, monkeypatch):
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    assert gpu.has_cuda() and os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    for visible in (None, "1"):
        if visible:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with pytest.raises(ValueError, match="Set it to PCI_BUS_ID"):
            gpu.gpu_state()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b")  # a UUID names the same GPU in any order
    assert gpu.gpu_state()["clocks.sm"] == 1200


def test_a_format_that_a_cpu_only_emulates_has_no_peak(monkeypatch, capsys):
    rates = {"float32": 80e9, "bfloat16": 160e9, "int8": 1.8e9}
    monkeypatch.setattr(gemm, "gemm_flops_per_s", lambda dtype, *_: rates[dtype])
    gemm.main("cpu", 2)
    found = capsys.readouterr()
    assert json.loads(found.out) == {"float32": 80e9, "bfloat16": 160e9}
    assert "int8: this processor" in found.err


@pytest.mark.parametrize("dtype", [*gemm.SINCE])
def test_random_matrices_are_multiplied(dtype):
    import torch

    a = gemm._matrix(torch, dtype, "cpu", 64)
    assert a.float().std() > 0.5 and len(a.float().unique()) > 20
    if dtype != "float16":  # which CPUs emulate
        assert 1e6 < gemm.gemm_flops_per_s(dtype, "cpu", 1, size=64, seconds=0.01) < 1e13


BUSY = "import time; end = time.process_time() + 1.0\nwhile time.process_time() < end: pass"


def test_what_grandchildren_used_is_no_neighbours(monkeypatch):
    """A child lives on while its own child has ended: that one's second stands in the child's `children_*`."""
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}]); print('done', flush=True); input()"
    before = neighbours._own_cpu_s()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert neighbours._own_cpu_s() - before > 0.95
        child.communicate(b"\n")


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux gives orphans to a process that asks for them"
)
def test_what_orphans_use_is_no_neighbour_s():
    code = """
import subprocess, sys
from bench.machine import neighbours
neighbours.adopt_orphans()
orphan = "import time\\nwhile True: time.sleep(0.01)"
quiet = "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"
leave = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {orphan!r}], {quiet}).pid, flush=True)"
number = subprocess.run([sys.executable, "-c", leave], stdout=subprocess.PIPE, text=True).stdout.strip()
import psutil
orphan = psutil.Process(int(number))
print(orphan.ppid() == psutil.Process().pid)
orphan.kill()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True"], done.stderr


def test_a_program_that_may_not_be_run_is_no_gpu(tmp_path, monkeypatch):
    """On a PATH with a folder of somebody else's, or a file without the right to run it, Python says
    PermissionError and not that nothing was found."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o600)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.nvidia("name", gpu=0) == {} and not gpu.has_cuda()
