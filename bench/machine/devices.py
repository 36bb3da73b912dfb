"""Which device of this machine a run uses."""

from bench.machine import gpu as driver
from bench.machine import identity
from llm_measured.core import naming


def device_of(device: str, gpu: str | None) -> tuple[str, str]:
    """('cpu' or 'cuda', slug) for the parameters `device` and `gpu`; ValueError where this machine has no
    such device."""
    kind = "cpu" if device == "auto" and gpu == "cpu" else device
    naming.choose("device", kind, ("auto", "cpu", "cuda"))
    found = driver.has_cuda()
    if kind == "cuda" and not found:
        raise ValueError(
            "There is no CUDA device here (nvidia-smi does not answer). Choose the device cpu, or run "
            "this on a machine with an NVIDIA GPU."
        )
    chosen = ("cuda" if found else "cpu") if kind == "auto" else kind
    slug = identity.slug(chosen)
    if gpu not in ("auto", chosen, slug):
        raise ValueError(
            f"This machine's {chosen} device is {slug!r}, not {gpu!r}. Leave gpu at 'auto', or run this "
            f"where {gpu!r} is."
        )
    return chosen, slug
