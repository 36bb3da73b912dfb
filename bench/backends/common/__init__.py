"""What adapters share: checkpoints and formats, launching servers, CUDA's libraries."""

from importlib.util import find_spec


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
