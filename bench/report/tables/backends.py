"""Tables of the topic backends."""

import re

import pandas as pd

from bench import backends as engines
from bench.machine import gpu
from bench.observations import store
from bench.report import tables
from bench.topics import systems as systems_analysis
from llm_measured.core import columns
from llm_measured.core.columns import Column


@tables.listed
def backends(requests: pd.DataFrame | None = None) -> pd.DataFrame:
    """Every engine of bench/backends/: one row per engine; what it is, whether it has been measured, its
    options, devices and environment."""
    measured = {p.parent.name for p in store.files()} if requests is None else set(requests["backend"])
    device = "cuda" if gpu.has_cuda() else "cpu"
    return pd.DataFrame([_backend(name, device, measured) for name in engines.names()])


@tables.listed
def systems(requests: pd.DataFrame) -> pd.DataFrame:
    """Every system of the published tables: one row per system; what has been measured of it, and the command
    that measures it again on the published device."""
    return columns.shown(
        systems_analysis.systems(requests),
        "platform options state command gpu tensor_parallel study note",
        options=Column("as published"),
        command=Column("measures it again"),
        gpu="published on",
        tensor_parallel="devices",
    )


def _backend(name, device, measured):
    """The row of one engine; of an adapter that does not load, its error."""
    try:
        engine = engines.get(name)
    except Exception as error:  # whatever a contributed adapter does wrong, the other engines stay listed
        return {"engine": name, "state": f"does not load: {type(error).__name__}: {error}"}
    device = device if device in engine.devices else engine.devices[0]
    return {
        "engine": name,
        "what it is": _sentence(engine.module.__doc__),
        "state": _state(engine, device, measured),
        "options": ", ".join(engine.module.OPTIONS),
        "devices": ", ".join(engine.devices),
        "environment": engine.environment(device) or "default",
    }


def _state(engine, device, measured):
    """Whether an engine has been measured or can be, and what stands in its way on this machine."""
    absent = engine.missing(device)
    if engine.name in measured:
        state = "measured" + (", not installed here" if absent else "")
    else:
        state = absent or "installed"
    return "; ".join([state, *(reason for reason in engine.absent(device) if reason != absent)])


def _sentence(docstring):
    """First sentence of a docstring, without Markdown's marks."""
    plain = re.sub(r"[*`]|\s*<http\S+>", "", (docstring or "").strip())
    return re.split(r"(?<=[.!?])\s", plain)[0].replace("\n", " ")
