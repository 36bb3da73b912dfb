"""A live notebook: one run at a time, none that goes on after a failed cell, errors that end with their
sentence."""

import contextlib
import os
import sys
import traceback
from pathlib import Path
from types import TracebackType

from IPython import get_ipython

from bench.experiments import parameters
from bench.paths import ROOT
from llm_measured.core.definitions import Fields, Result


class _Kernel:
    """The run that this kernel holds, and whether the running cell has used it."""

    run, used, watched = None, False, False


def begin(namespace: Fields, name: str) -> Fields:
    """The parameters of notebooks/<name>.ipynb as `parameters.parameters` reads them from its `globals()`.

    What an earlier run of this kernel holds is let go first; errors end with their sentence from now on.
    """
    if _Kernel.run is not None:
        _Kernel.run.close("was left for another run")
    _Kernel.run = None
    shell = get_ipython()
    if shell is not None and not _Kernel.watched:
        _Kernel.watched = True
        shell.set_custom_exc((Exception,), _show)
        shell.events.register("pre_run_cell", _before)
        shell.events.register("post_run_cell", _after)
    return parameters.parameters(namespace, name)


def attend(run: Result) -> Result:
    """`run`, which is closed when a cell that uses it fails."""
    _Kernel.run, _Kernel.used = run, True
    return run


def used(run: object) -> None:
    """The running cell uses `run`."""
    _Kernel.used = _Kernel.used or run is _Kernel.run


def tell(sentence: str) -> None:
    """Print `sentence` in the notebook, and where the kernel was started: what a kernel prints is lost to the
    terminal, and with a kernel that is killed altogether."""
    print(sentence)
    if get_ipython() is None:
        return
    terminal = getattr(sys.stderr, "_original_stdstream_copy", 2)  # ipykernel puts a pipe in the place of 2
    with contextlib.suppress(OSError, TypeError):
        os.write(terminal, f"{sentence}\n".encode())


def _before(*_):
    _Kernel.used = False


def _after(result):
    if result is None or result.success or _Kernel.run is None or not _Kernel.used:
        return
    failure = result.error_in_exec or result.error_before_exec
    _Kernel.run.close(f"has ended with a cell that failed ({type(failure).__name__})")


def _show(shell, kind, error, trace, tb_offset=None):
    """Show an error of this repository as its sentence, every other one with its traceback."""
    if not deliberate(trace):
        shell.showtraceback((kind, error, trace), running_compiled_code=True, tb_offset=tb_offset)
        return None
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace  # for %tb
    shell._showtraceback(kind, error, [f"{kind.__name__}: {error}"])
    return None


def deliberate(trace: TracebackType) -> bool:
    """Whether a `raise` of this repository raised the error: its sentence is enough then."""
    last = traceback.extract_tb(trace)[-1]
    file = Path(last.filename)
    ours = any(file.is_relative_to(ROOT / package) for package in ("bench", "llm_measured"))
    return ours and "site-packages" not in last.filename and (last.line or "").startswith("raise ")
