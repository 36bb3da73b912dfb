"""CUDA 12 out of pip's packages, for engines that are built for it beside a PyTorch that brings CUDA 13."""

import ctypes
from importlib.util import find_spec
from pathlib import Path

# In the order of their needs.
LIBRARIES = "cuda_runtime/lib/libcudart.so.12", "cublas/lib/libcublasLt.so.12", "cublas/lib/libcublas.so.12"


def load_libraries():
    """Load those that are installed (nvidia-cuda-runtime-cu12, nvidia-cublas-cu12): the engine's wheel brings
    none, and the loader does not look there."""
    found = find_spec("nvidia")
    roots = [Path(root) for root in found.submodule_search_locations] if found else []
    for file in (root / name for name in LIBRARIES for root in roots):
        if file.exists():
            ctypes.CDLL(str(file))
