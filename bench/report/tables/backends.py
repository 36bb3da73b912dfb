"""Tables of the topic backends."""

import re

import pandas as pd

from bench import backends as engines
from bench.analysis import systems as systems_analysis
from bench.machine import gpu
from bench.observations import store
from bench.report import columns, tables
from bench.report.columns import Column


@tables.listed
def backends(requests=None):
    """Every engine of bench/backends/: one row per engine; what it is, whether it has been measured, its
    options, devices and environment."""
    measured = {p.parent.name for p in store.files()} if requests is None else set(requests["backend"])
    device = "cuda" if gpu.has_cuda() else "cpu"
    return pd.DataFrame([_backend(name, device, measured) for name in engines.names()])


@tables.listed
def systems(requests):
    """Every system of the published tables: one row per system; what has been measured of it, and the command
    that measures it again on the published device."""
    shown = columns.of(
        "platform options state command gpu tensor_parallel study note",
        options=Column("as published"),
        state=Column("state"),
        command=Column("measures it again"),
        gpu="published on",
        tensor_parallel="devices",
        study=Column("study"),
        note=Column("note"),
    )
    return columns.renamed(systems_analysis.systems(requests), shown)


def _backend(name, device, measured):
    """The row of one engine; of an adapter that does not load, its error."""
    try:
        module = engines.get(name)
    except Exception as error:  # whatever a contributed adapter does wrong, the other engines stay listed
        return {"engine": name, "state": f"does not load: {type(error).__name__}: {error}"}
    device = device if device in module.DEVICES else module.DEVICES[0]
    return {
        "engine": name,
        "what it is": _sentence(module.__doc__),
        "state": _state(name, device, measured),
        "options": ", ".join(module.OPTIONS),
        "devices": ", ".join(module.DEVICES),
        "environment": engines.environment(module, device) or "default",
    }


def _state(name, device, measured):
    """Whether an engine has been measured or can be, and what stands in its way on this machine."""
    absent = engines.missing(name, device)
    if name in measured:
        state = "measured" + (", not installed here" if absent else "")
    else:
        state = absent or "installed"
    return "; ".join([state, *(reason for reason in engines.absent(name, device) if reason != absent)])


def _sentence(docstring):
    """First sentence of a docstring, without Markdown's marks."""
    plain = re.sub(r"[*`]|\s*<http\S+>", "", (docstring or "").strip())
    return re.split(r"(?<=[.!?])\s", plain)[0].replace("\n", " ")
