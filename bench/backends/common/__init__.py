"""What adapters share: checkpoints and formats, launching servers, CUDA's libraries."""

import os
from importlib.util import find_spec
from pathlib import Path
from shutil import which

TOOLKIT = Path("/usr/local/cuda")


def absent(*packages: str, study: str = "") -> str | None:
    """Which of an adapter's `packages` cannot be imported, and what installs them; None where all can.

    `study`: the engine's name, where it has an environment of its own.
    """
    lacking = [package for package in packages if not find_spec(package)]
    if not lacking:
        return None
    how = (
        f"Install and measure it with: make study ENGINES={study}"
        if study
        else "Install it with: make install"
    )
    return f"{' and '.join(lacking)} {'are' if len(lacking) > 1 else 'is'} not installed. {how}"


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
