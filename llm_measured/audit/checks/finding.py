"""What a check is, and what it finds."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pandas as pd

IMPOSSIBLE, CONTRADICTION, MISSING = "impossible", "contradicts itself", "cannot be told"
# Beyond one device, of a file that does not say how many there were.
UNCOUNTED = "impossible on one"
KINDS = IMPOSSIBLE, UNCOUNTED, CONTRADICTION, MISSING
ALARMS = IMPOSSIBLE, UNCOUNTED, CONTRADICTION


@dataclass
class Finding:
    """One finding: a sentence, the smallest change that would explain it, the numbers behind both. `undone`:
    what a published number becomes without the mistake. `levels`: numbers of the load levels that it is
    about, where it is not about all of the file. `file`, `check` and `kind` (one of KINDS) are the first file
    and those of the check that made it, where it does not say. `consequence_of`: the check whose mistake
    explains it.
    """

    sentence: str
    change: str = ""
    numbers: dict = field(default_factory=dict)
    undone: dict = field(default_factory=dict)
    levels: list = field(default_factory=list)
    file: str = ""
    check: str = ""
    kind: str = ""
    consequence_of: str = ""


@dataclass(frozen=True)
class Check:
    """One check: a function of an `Audited` that gives a `Finding` or None, with its statement, formula and
    source.

    `explains` names the checks whose findings follow from this one's mistake. `across`: it sees all files
    at once, and gives a list.
    """

    name: str
    kind: str
    statement: str
    formula: str
    source: str
    explains: tuple
    across: bool
    function: object


REGISTRY = {}


def check(
    kind: str, formula: str, source: str, explains: Sequence[str] = (), across: bool = False
) -> Callable:
    """Decorator that registers a function as a check; the first line of its docstring is the statement."""

    def register(function: Callable) -> Callable:
        name, statement = function.__name__, " ".join((function.__doc__ or "").split("\n\n")[0].split())

        @functools.wraps(function)
        def checked(audited):
            found = function(audited)
            for one in found if across else filter(None, [found]):
                one.file = one.file or audited.first_file
                one.check, one.kind = one.check or name, one.kind or kind
            return found

        REGISTRY[name] = Check(name, kind, statement, formula, source, tuple(explains), across, checked)
        return checked

    return register


def number(value: float, digits: int = 3) -> str:
    """A number as a sentence shows it: `digits` significant digits, thousands separated, no exponent."""
    value = float(value)
    if value == 0 or value != value:
        return "0" if value == 0 else "unknown"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def count(n: int, noun: str) -> str:
    """`3 requests`, `1 request`."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def levels(hit: pd.Series) -> str:
    """` (3 levels)` where a boolean Series is true of more than one, else nothing."""
    return f" ({int(hit.sum())} levels)" if hit.sum() > 1 else ""
