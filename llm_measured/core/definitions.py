"""Columns and metrics: title, unit, factor, direction, formula, each declared once.

`METRICS` is filled by `llm_measured/core/metrics.py`, where each metric is declared once.
"""

import csv
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

# What a cell or a field holds that was read from a file: a schema says of which type it is, Python cannot.
Value: TypeAlias = Any
Fields: TypeAlias = dict[str, Value]  # a row, a sidecar, a parsed file
Function = TypeVar("Function", bound=Callable)  # what a decorator gives back as it was
Result = TypeVar("Result")

METRICS: dict[str, "Column"] = {}
# A name's suffix is its unit; the longer ones are looked for first.
UNITS = {
    "_tokens_per_s": "tokens/s",
    "_bytes_per_s": "bytes/s",
    "_flops_per_s": "FLOP/s",
    "_per_s": "1/s",
    "_tokens": "tokens",
    "_bytes": "bytes",
    "_s": "s",
    "_j": "J",
}


def unit_of(name: str) -> str:
    """Unit that the suffix of a column or metric states; empty where it states none."""
    return next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")


@dataclass(frozen=True)
class Column:
    """One column of a table, or one metric. Readers see `title` and the stored values times `factor` in
    `unit`."""

    title: str = ""  # short, for tables and axes
    unit: str = ""
    factor: float = 1
    name: str = ""
    meaning: str = ""  # in words
    formula: str = ""
    source: str = ""
    better: Literal["higher", "lower"] | None = None  # None: neither
    function: Callable | None = None  # None: a column that is measured, or a statistic of one
    type: str = "number"  # or text; what else a schema knows, it says itself
    choices: tuple[str, ...] = ()  # of the type choice
    group: str = ""  # of a run's columns
    since: int = 0  # the layout of a run's files that first had it; 0: none has it
    stored: bool = True  # False: computed when the table is built

    @property
    def stored_unit(self) -> str:
        """Unit of the stored values, by the name's suffix; empty where it states none."""
        return unit_of(self.name)

    @property
    def head(self) -> str:
        """The title with its unit, as a table's head has it: `TTFT (ms)`."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    @property
    def axis(self) -> str:
        """The title with its unit, as a figure's axis has it: `TTFT, ms`."""
        return f"{self.title}, {self.unit}" if self.unit else self.title


def declared(module: str, file: str) -> list[Column]:
    """Return the columns that a CSV `file` beside the Python file `module` declares, a line each, in order.

    Its own columns are fields of Column: `choices` stand between |, `stored` is yes or no.
    """
    found = []
    with open(Path(module).with_name(file), newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            found.append(Column(**{name: _FIELDS.get(name, str)(text) for name, text in row.items()}))
    return found


_FIELDS: dict[str, Callable[[str], Value]] = {
    "since": int,
    "stored": {"yes": True, "no": False}.__getitem__,
    "choices": lambda text: tuple(filter(None, text.split("|"))),
}


def declare(name: str, meaning: str, formula: str = "", **known: Any) -> Column:
    """Add a metric that has no function of its own to METRICS and return it; ValueError for a second
    declaration."""
    if name in METRICS:
        raise ValueError(f"The metric {name} is declared twice in llm_measured/core/metrics.py.")
    METRICS[name] = Column(name=name, meaning=meaning, formula=formula, **known)
    return METRICS[name]


def metric(meaning: str, formula: str = "", **known: Any) -> Callable[[Function], Function]:
    """Decorator: the function computes the metric of its name, declared as in `declare`; its docstring begins
    with the meaning and the formula."""

    def declared(function: Function) -> Function:
        found = declare(function.__name__, meaning, formula, function=function, **known)
        first = ": ".join(filter(None, (meaning, formula))) + (f" ({found.source})" if found.source else "")
        function.__doc__ = f"{first}.\n\n{inspect.getdoc(function) or ''}".strip()
        return function

    return declared


# Columns that are measured, and statistics of them: no formula of their own.
for _q in ("p50", "p90", "p99", "max"):
    declare(
        f"itl_{_q}_s",
        f"{_q} of the gaps between tokens",
        title=f"ITL {_q}",
        unit="ms",
        factor=1e3,
        better="lower",
    )
for _name, _symbol in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E")):
    for _q in ("p50", "p90", "p99"):
        declare(
            f"{_name}_{_q}_s",
            f"{_q} of {_symbol} over requests",
            title=f"{_symbol} {_q}",
            unit="ms",
            factor=1e3,
            better="lower",
        )
declare(
    "e2e_s",
    "Time of a whole answer",
    "request sent -> last token",
    title="latency",
    unit="s",
    better="lower",
)
declare(
    "step_s",
    "Time of a decode step",
    "median gap between tokens",
    title="decode step",
    unit="ms",
    factor=1e3,
    better="lower",
)
declare("load_s", "Time to load the engine", title="load", unit="s", better="lower")
declare(
    "peak_memory_bytes",
    "Largest memory held",
    title="peak memory",
    unit="MB",
    factor=1e-6,
    better="lower",
)
declare(
    "weight_bytes",
    "Weights read per decode step",
    title="weights read",
    unit="MB",
    factor=1e-6,
    better="lower",
)
declare("mbu_datasheet", "MBU against the datasheet's bandwidth", title="MBU, datasheet", better="higher")
declare("mfu_prefill", "MFU of reading the prompts", title="MFU, prefill", better="higher")
declare("mfu_decode", "MFU of a decode step", title="MFU, decode", better="higher")
declare("requests_per_s", "Requests answered per second", title="requests/s", better="higher")
declare(
    "goodput_per_s",
    "Requests per second that meet every objective",
    title="goodput",
    unit="requests/s",
    better="higher",
)
declare(
    "late_p99_s",
    "p99 of how late the load client was",
    title="client late, p99",
    unit="ms",
    factor=1e3,
    better="lower",
)
declare("gpu_energy_j", "Energy of the GPUs for a request", title="GPU energy", unit="J", better="lower")
declare(
    "cpu_energy_j",
    "Energy of the CPU's packages for a request",
    title="CPU energy",
    unit="J",
    better="lower",
)
declare(
    "gpu_idle_w",
    "Power of the GPUs with the engine loaded and idle",
    title="GPU idle",
    unit="W",
    better="lower",
)
declare(
    "cpu_idle_w",
    "Power of the CPU with the engine loaded and idle",
    title="CPU idle",
    unit="W",
    better="lower",
)
