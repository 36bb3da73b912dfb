"""What a study takes, said before it starts: hours, disk, memory; and the room that it gives back.

A large model is on disk several times: its file, its checkpoint in float32, and what each engine makes of
that for each option. Such a copy is deleted when no run of the study wants it any more; KEEP=1 keeps it.
Those of a small model stay, they are made in seconds and take little.
"""

import contextlib
import os
import shutil
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import psutil

from bench import backends
from bench.backends.common import checkpoints, downloads
from bench.paths import MODELS
from bench.workflow import durations
from bench.workflow.runs import Run
from llm_measured.core import files, naming
from llm_measured.core.definitions import Fields

LARGE_BYTES = 1e9  # of the float32 checkpoint: of a larger model copies are deleted
SCALES = 1.1  # bytes of quantised weights, with the scales of their blocks, to those of their bits alone
REFERENCE = 1.3  # memory that the token check takes, as a multiple of the float32 weights (`judge.ROOM`)
KEEP = "BENCH_KEEP"


def checkpoint_bytes(model: str) -> float:
    """Bytes of `model` in float32; 0 where only its download says how large it is."""
    return 4 * (checkpoints.numbers(model) or 0)


def option_bytes(model: str, option: str) -> float:
    """About how many bytes the weights of `model` take in an engine's `option`."""
    bits = naming.bits(option) or 8
    return checkpoint_bytes(model) * bits / 32 * (SCALES if bits < 16 else 1)


def copy(run: Run) -> Path | None:
    """Where the copy of its model lies that the engine of `run` makes; None where it takes the checkpoint
    itself, or where that cannot be said from here."""
    module = backends.get(run.backend).module
    if not hasattr(module, "prepare") or run.model.startswith("hub:"):
        return None
    try:
        with files.only_named():
            found = checkpoints.checkpoint(run.model)
            path = Path(module.prepare(found, run.option, run.device))
    except (PackageNotFoundError, ValueError, OSError):  # of an environment of its own, or not made yet
        return None
    return path if path.is_relative_to(MODELS) and not path.is_relative_to(found.path) else None


def copies(runs: Sequence[Run]) -> dict[Path, float]:
    """Path -> bytes of every copy that `runs` make."""
    each = {(run.backend, run.option, run.model): run for run in runs}
    found = ((copy(run), option_bytes(run.model, run.option)) for run in each.values())
    return {path: size for path, size in found if path}


def text(runs: Sequence[Run]) -> str:
    """One line on what `runs`, those of a study that are to be measured, will take; empty for none."""
    if not runs:
        return ""
    hours = sum(durations.expected_s(runs).values()) / 3600
    time = f"{hours:.1f} h" if hours >= 1 else f"{max(1, round(60 * hours))} min"
    return f"To measure: {len(runs)} run{'s' * (len(runs) > 1)}, about {time}; {room(runs)}"


def room(runs: Sequence[Run]) -> str:
    """The disk and the memory that `runs` will take, of which there is one or more."""
    missing = {run.model for run in runs if not checkpoints.made(run.model)}
    made = sum(checkpoint_bytes(model) for model in missing)
    made += sum(piece.size_bytes for model in missing for piece in downloads.slices(model))
    made += sum(size for path, size in copies(runs).items() if not path.exists())
    largest = max(
        option_bytes(run.model, run.option) + REFERENCE * checkpoint_bytes(run.model) for run in runs
    )
    here = psutil.virtual_memory().total
    what = f"disk: about {made / 1e9:.1f} GB more, free {_free() / 1e9:.0f} GB; "
    what += f"memory: up to {largest / 1e9:.1f} GB with the token check, here {here / 1e9:.0f} GB."
    if largest > here:
        what += (
            " An option that fits without the check is measured so (its tokens are not checked); one that "
            "does not fails."
        )
    if unknown := sorted({run.model for run in runs if checkpoints.numbers(run.model) is None}):
        what += f" Not counted, as only a download says their size: {', '.join(unknown)}."
    return what


def shortage(runs: Sequence[Run]) -> str:
    """Say that the disk cannot hold what `runs` need at the least, the checkpoints of their models and one
    copy; empty where it can."""
    missing = {run.model for run in runs if not checkpoints.made(run.model)}
    least = sum(checkpoint_bytes(model) for model in missing)
    least += max((size for path, size in copies(runs).items() if not path.exists()), default=0)
    if least <= _free():
        return ""
    return (
        f"Not started: {least / 1e9:.1f} GB more are needed on the disk of {MODELS.name}/ at the least, and "
        f"{_free() / 1e9:.1f} GB are free."
    )


def _free() -> int:
    folder = next(path for path in (MODELS, *MODELS.parents) if path.exists())
    return shutil.disk_usage(folder).free


def fetch(study: Fields, runs: Sequence[Run]) -> None:
    """Download the models of `study` that come as one file, and make their checkpoints, before the first of
    `runs`: what a run prints goes into its log. RuntimeError that names what is missing, disk included."""
    if short := shortage(runs):
        raise RuntimeError(short)
    for model in study["models"]:
        if downloads.slices(str(model)):
            checkpoints.checkpoint(str(model))


def drop(runs: Sequence[Run], waiting: Sequence[Run]) -> list[Path]:
    """Delete the copies of large models that `runs` have made and none of `waiting` wants; returns them."""
    if os.environ.get(KEEP):
        return []
    large = [run for run in runs if checkpoint_bytes(run.model) > LARGE_BYTES]
    wanted = copies(waiting)
    gone = [path for path in copies(large) if path not in wanted and path.exists()]
    for path in gone:
        with contextlib.suppress(OSError):  # one that cannot be deleted takes its room, no more
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return gone
