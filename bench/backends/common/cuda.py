"""What engines want of CUDA beside PyTorch: version 12 out of pip's packages where PyTorch brings 13, and
the toolkit to compile with."""

import contextlib
import ctypes
import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from shutil import which

# In the order of their needs.
LIBRARIES = "cuda_runtime/lib/libcudart.so.12", "cublas/lib/libcublasLt.so.12", "cublas/lib/libcublas.so.12"
NEWER = "cu13/lib/libcublasLt.so.13", "cu13/lib/libcublas.so.13"  # what PyTorch's wheels for CUDA 13 bring
CUBLAS = "libcublas.so.12"
TOOLKIT = Path("/usr/local/cuda")  # its usual folder


def load_libraries() -> None:
    """Load those that are installed (nvidia-cuda-runtime-cu12, nvidia-cublas-cu12): the engine's wheel brings
    none, and the loader does not look there."""
    for file in _installed(LIBRARIES):
        ctypes.CDLL(str(file))


def cublas_12(folder: Path) -> str | None:
    """Which cuBLAS a library in `folder` will find that opens libcublas.so.12 by name: `12`, or `13 under the
    name of 12`, None without either.

    Version 13 has the same functions, and its wheel is what a PyTorch for CUDA 13 brings. A link in `folder`,
    where such a library looks first (RPATH $ORIGIN), gives it the name; libcublasLt, which would be looked
    for beside the link, is loaded already.
    """
    load_libraries()
    with contextlib.suppress(OSError):
        ctypes.CDLL(CUBLAS)
        return "12"
    found = _installed(NEWER)
    if len(found) < len(NEWER):
        return None
    for file in found:
        ctypes.CDLL(str(file))
    with contextlib.suppress(FileExistsError):
        (Path(folder) / CUBLAS).symlink_to(found[-1])
    return "13 under the name of 12"


def _installed(names: Iterable[str]) -> list[Path]:
    """Paths of those `names` below the packages called nvidia that are there, in their order."""
    spec = find_spec("nvidia")
    roots = [Path(root) for root in spec.submodule_search_locations or []] if spec else []
    return [root / name for name in names for root in roots if (root / name).exists()]


def without_toolkit() -> str | None:
    """What to do where the CUDA toolkit, with which an engine compiles at its first start, is not found; None
    where it is: by CUDA_HOME, as `nvcc` on the PATH, or in its usual folder, as PyTorch looks for it."""
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    if any((home / "bin" / "nvcc").is_file() for home in [*homes, TOOLKIT]) or which("nvcc"):
        return None
    return (
        "it compiles at its first start, and there is no CUDA toolkit here (no nvcc): install it, and set "
        "CUDA_HOME to its folder"
    )
