"""Environments of engines: what a lock lists is what PyTorch's stock wheel loads; a GPU gets its own file."""

import re

import pytest

from bench import backends
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
        assert not lacking and {"setuptools", "sympy", "networkx", "fsspec"} <= {
            name.lower() for name in found
        }
        lines = [line for line in file.read_text().splitlines() if line.startswith("nvidia-")]
        assert all('platform_system == "Linux"' in line for line in lines), (
            "other systems have no such packages"
        )


def test_at_least_one_lock_has_pytorch():
    assert sum("torch" in listed(file) for file in LOCKS) >= 3


def test_all_locks_pin_the_same_libraries():
    known = {f"nvidia-{name}" for name in STOCK}
    pins = [{name: v for name, v in listed(file).items() if name in known} for file in LOCKS]
    assert len({tuple(sorted(found.items())) for found in pins if found}) == 1


def test_gptq_has_an_environment_for_gpus():
    engine = backends.get("transformers")
    assert backends.environment(engine, "cuda", "gptq-int4") == "gptq-cuda"
    assert backends.environment(engine, "cpu", "gptq-int4") == "gptq"
    assert backends.environment(engine, "cuda", "bfloat16") is None
    cpu, cuda = (listed(ROOT / "environments" / f"{name}.txt") for name in ("gptq", "gptq-cuda"))
    same = {"torch", "transformers", "papermill"}
    assert {name: cpu[name] for name in same} == {name: cuda[name] for name in same}
