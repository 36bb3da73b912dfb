"""A live notebook: its parameters, one run at a time, none that goes on after a failed cell, errors that end
with their sentence."""

import contextlib
import difflib
import json
import math
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from IPython import get_ipython

from bench import inputs
from bench.paths import RESULTS, ROOT
from llm_measured.core import naming
from llm_measured.core.definitions import Fields, Result, Value

SECRET = re.compile("auth|key|token|secret|cookie|passw", re.IGNORECASE)
INJECTED = "# Parameters"  # how papermill begins the cell that it puts in


class _Kernel:
    """The run that this kernel holds, and whether the running cell has used it."""

    run, used, watched = None, False, False


def begin(namespace: Fields, name: str) -> Fields:
    """The parameters of notebooks/<name>.ipynb as `parameters` reads them from its `globals()`.

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
    return parameters(namespace, name)


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


def parameters(namespace: Fields, notebook: str | None = None) -> Fields:
    """The parameters of the running notebook, name -> value.

    Their names and types are those of the parameters cell of notebooks/<notebook>.ipynb, their values those
    of the kernel: set by papermill, or by hand, in a cell that may have run several times. Other cells may
    have run before it. NameError for a parameter that does not exist, of which papermill only warns, or that
    is not set; TypeError for a value of another type.
    """
    defaults = _defaults(namespace["In"][:-1], notebook)
    for name in defaults:
        if name not in namespace:
            raise NameError(f"Parameter {name} is not set: run the cell with the parameters first.")
        namespace[name] = _checked(name, namespace[name], defaults[name])
    return {name: namespace[name] for name in defaults}


def _defaults(executed: list[str], notebook: str | None) -> Fields:
    """Name -> default of every parameter; NameError if the last cells that set them set one that does not
    exist."""
    cells = [inputs.declared(source) for source in executed]
    known = inputs.defaults(notebook) or max(cells, key=len, default={})
    if not known:
        raise NameError("No parameter is set: run the cell with the parameters first.")
    by_hand = [k for k, found in enumerate(cells) if len(found.keys() & known.keys()) > len(known) / 2]
    last = by_hand[-1] if by_hand else 0
    latest = cells[last] if by_hand else {}
    more = {name: value for name, value in latest.items() if name not in known}
    for name in more:  # one of somebody's own, unless it looks like a mistake
        if not known.keys() <= latest.keys() or difflib.get_close_matches(name, known, n=1):
            _exists(name, known)
    injected = [source for source in executed[last:] if source.lstrip().startswith(INJECTED)]
    for name in inputs.declared(injected[-1]) if injected else ():
        _exists(name, known | more)
    return known | more


def _exists(name: str, known: Fields) -> None:
    try:
        naming.choose("parameter", name, known)
    except ValueError as error:
        raise NameError(str(error)) from None


def _checked(name: str, value: Value, default: Value) -> Value:
    """`value` of parameter `name` if it has the type of `default`; TypeError otherwise."""
    if isinstance(default, str) and type(value) in (int, float):
        return str(value)  # papermill makes a number of what looks like one
    if isinstance(default, str) and isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    kinds = (int, float) if isinstance(default, float) else type(default)
    if not isinstance(value, kinds) or isinstance(value, bool) != isinstance(default, bool):
        kind = type(default).__name__
        raise TypeError(f"Parameter {name} must be a {kind} such as {default!r}, not {value!r}.")
    return value


def folder(text: str, usual: Path = RESULTS) -> Path:
    """Absolute path of a folder that a parameter names, `usual` where it names none.

    A relative one is relative to the repository, wherever the notebook runs: Jupyter runs it in notebooks/.
    """
    return ROOT / text if text else usual


def at_least(least: float, **values: float) -> None:
    """ValueError naming the parameter if one of `values` is less than `least`."""
    for name, value in values.items():
        if not isinstance(value, (int, float)) or value < least:
            raise ValueError(f"{name} must be {least} or more, not {value!r}.")


def numbers(name: str, text: str) -> list[int]:
    """Positive whole numbers in `text`, separated by spaces; ValueError naming the parameter otherwise."""
    words = _words(text)
    if not words or not all(word.isdigit() and int(word) for word in words):
        raise ValueError(
            f"Parameter {name} must be whole numbers above 0 separated by spaces, such as '1 2 4', "
            f"not {text!r}."
        )
    return [int(word) for word in words]


def rates(name: str, text: str) -> list[float]:
    """Positive numbers in `text`, separated by spaces, or none; ValueError naming the parameter otherwise."""
    try:
        found = [float(word) for word in _words(text)]
    except ValueError:
        found = [0.0]
    if not all(0 < rate < math.inf for rate in found):
        raise ValueError(
            f"Parameter {name} must be numbers above 0 separated by spaces, such as '0.5 1 2', not {text!r}."
        )
    return found


def _words(text: str) -> list[str]:
    return "".join(" " if letter in "[](),;" else letter for letter in text).split()


def or_auto(text: str, read: Callable[[str, str], list], name: str, usual: str) -> list:
    """What `read` makes of a parameter, of `usual` where it is `auto`, nothing where it is `none`."""
    return [] if text == "none" else read(name, usual if text == "auto" else text)


def changes(text: str) -> Fields:
    """The changes to a request's body that the parameter `body` names; ValueError for no JSON object."""
    return _object("body", text, '{"min_tokens": null, "max_completion_tokens": "$new_tokens"}')


def headers(text: str) -> dict[str, str]:
    """The headers that the parameter `headers` names, a value that begins with $ read from the environment.

    ValueError, which quotes no value, where a name that sounds secret has a value of its own: parameters are
    kept with a run.
    """
    made = {}
    for name, value in _object("headers", text, '{"api-key": "$NAME"}').items():
        variable = str(value).removeprefix("$")
        if str(value).startswith("$"):
            if variable not in os.environ:
                raise ValueError(f"Header {name}: there is no variable {variable} in the environment.")
            value = os.environ[variable]
        elif SECRET.search(name):
            raise ValueError(
                f"The value of header {name} would be kept with the run: put it into a variable of the "
                f'environment, and say -p headers \'{{"{name}": "$VARIABLE"}}\'.'
            )
        value = str(value).strip()
        if not (value.isprintable() and value.isascii() and name.isprintable() and ":" not in name):
            raise ValueError(f"Header {name} has a line's end or a letter that no header has.")
        made[name] = value
    return made


def _object(name: str, text: str, example: str) -> Fields:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(f"Parameter {name} must be a JSON object such as {example}.")
    return value
