"""Which device of this machine a run uses."""

from bench import naming
from bench.machine import gpu as gpu_machine
from bench.machine import identity


def device_of(device, gpu):
    """('cpu' or 'cuda', slug) for the parameters `device` and `gpu`; ValueError where this machine is not
    what they say."""
    wanted = "cpu" if device == "auto" and gpu == "cpu" else device
    naming.choose("device", wanted, ("auto", "cpu", "cuda"))
    found = gpu_machine.has_cuda()
    if wanted == "cuda" and not found:
        raise ValueError(
            "There is no CUDA device here (nvidia-smi does not answer). Use -p device cpu, or run this on a machine with an NVIDIA GPU."
        )
    chosen = ("cuda" if found else "cpu") if wanted == "auto" else wanted
    slug = identity.slug(chosen)
    if gpu not in ("auto", chosen, slug):
        raise ValueError(
            f"This machine's {chosen} device is {slug!r}, not {gpu!r}. Leave gpu at 'auto', or run this where {gpu!r} is."
        )
    return chosen, slug
