"""What is known of a metric besides its function: title, formula, source, symbol, unit, display.

`METRICS` is filled by `llm_measured/core/metrics.py`, where each metric is declared once.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

# What a cell or a field holds that was read from a file: a schema says of which type it is, Python cannot.
Value: TypeAlias = Any
Fields: TypeAlias = dict[str, Value]  # a row, a sidecar, a parsed file
Function = TypeVar("Function", bound=Callable)  # what a decorator gives back as it was
Result = TypeVar("Result")

METRICS: dict[str, "Metric"] = {}
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
class Metric:
    """What is known of one metric. Stored values are in `unit`; readers see `symbol` and values times
    `factor` in `display_unit`."""

    name: str
    title: str  # in words
    formula: str = ""
    source: str = ""
    symbol: str = ""  # short, for tables and axes
    display_unit: str = ""
    factor: float = 1
    better: Literal["higher", "lower"] | None = None  # None: neither
    function: Callable | None = None  # None: a column that is measured, or a statistic of one

    @property
    def unit(self) -> str:
        """Unit of the stored values, by the name's suffix."""
        return unit_of(self.name)

    @property
    def label(self) -> str:
        """Symbol with the display unit: `TTFT (ms)`."""
        return f"{self.symbol} ({self.display_unit})" if self.display_unit else self.symbol


def declare(name: str, title: str, formula: str = "", **known: Any) -> Metric:
    """Add a metric that has no function of its own to METRICS and return it; ValueError for a second
    declaration."""
    if name in METRICS:
        raise ValueError(f"The metric {name} is declared twice in llm_measured/core/metrics.py.")
    METRICS[name] = Metric(name, title, formula, **known)
    return METRICS[name]


def metric(title: str, formula: str = "", **known: Any) -> Callable[[Function], Function]:
    """Decorator: the function computes the metric of its name, declared as in `declare`; its docstring begins
    with the title and the formula."""

    def declared(function: Function) -> Function:
        found = declare(function.__name__, title, formula, function=function, **known)
        first = ": ".join(filter(None, (title, formula))) + (f" ({found.source})" if found.source else "")
        function.__doc__ = f"{first}.\n\n{inspect.getdoc(function) or ''}".strip()
        return function

    return declared


# Columns that are measured, and statistics of them: no formula of their own.
for _q in ("p50", "p90", "p99", "max"):
    declare(
        f"itl_{_q}_s",
        f"{_q} of the gaps between tokens",
        symbol=f"ITL {_q}",
        display_unit="ms",
        factor=1e3,
        better="lower",
    )
for _name, _symbol in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E")):
    for _q in ("p50", "p90", "p99"):
        declare(
            f"{_name}_{_q}_s",
            f"{_q} of {_symbol} over requests",
            symbol=f"{_symbol} {_q}",
            display_unit="ms",
            factor=1e3,
            better="lower",
        )
declare(
    "e2e_s",
    "Time of a whole answer",
    "request sent -> last token",
    symbol="latency",
    display_unit="s",
    better="lower",
)
declare(
    "step_s",
    "Time of a decode step",
    "median gap between tokens",
    symbol="decode step",
    display_unit="ms",
    factor=1e3,
    better="lower",
)
declare("load_s", "Time to load the engine", symbol="load", display_unit="s", better="lower")
declare(
    "peak_memory_bytes",
    "Largest memory held",
    symbol="peak memory",
    display_unit="MB",
    factor=1e-6,
    better="lower",
)
declare(
    "weight_bytes",
    "Weights read per decode step",
    symbol="weights read",
    display_unit="MB",
    factor=1e-6,
    better="lower",
)
declare("mbu_datasheet", "MBU against the datasheet's bandwidth", symbol="MBU, datasheet", better="higher")
declare("mfu_prefill", "MFU of reading the prompts", symbol="MFU, prefill", better="higher")
declare("mfu_decode", "MFU of a decode step", symbol="MFU, decode", better="higher")
declare("requests_per_s", "Requests answered per second", symbol="requests/s", better="higher")
declare(
    "goodput_per_s",
    "Requests per second that meet every objective",
    symbol="goodput",
    display_unit="requests/s",
    better="higher",
)
declare(
    "late_p99_s",
    "p99 of how late the load client was",
    symbol="client late, p99",
    display_unit="ms",
    factor=1e3,
    better="lower",
)
declare(
    "gpu_energy_j", "Energy of the GPUs for a request", symbol="GPU energy", display_unit="J", better="lower"
)
declare(
    "cpu_energy_j",
    "Energy of the CPU's packages for a request",
    symbol="CPU energy",
    display_unit="J",
    better="lower",
)
declare(
    "gpu_idle_w",
    "Power of the GPUs with the engine loaded and idle",
    symbol="GPU idle",
    display_unit="W",
    better="lower",
)
declare(
    "cpu_idle_w",
    "Power of the CPU with the engine loaded and idle",
    symbol="CPU idle",
    display_unit="W",
    better="lower",
)
