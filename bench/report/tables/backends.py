"""Tables of the topic backends."""

import re

import pandas as pd

from bench import backends as backends_
from bench.analysis import systems as systems_analysis
from bench.machine import gpu
from bench.observations import store
from bench.report import columns as columns_report
from bench.report import tables


@tables.listed
def backends(requests=None):
    """Every engine of bench/backends/: what it is, what can be chosen, where it runs, and whether it has been measured."""
    measured = {p.parent.name for p in store.files()} if requests is None else set(requests["backend"])
    device = "cuda" if gpu.has_cuda() else "cpu"
    return pd.DataFrame([_backend(name, device, measured) for name in backends_.names()])


@tables.listed
def systems(requests):
    """Every system of the published tables: what has been measured of it, and the command that measures it again on the published device."""
    columns = {
        "platform": ("platform", None), "options": ("as published", None), "state": ("state", None), "command": ("measures it again", None),
        "gpu": ("published on", None), "tensor_parallel": ("devices", 1), "study": ("study", None), "note": ("note", None),
    }  # fmt: skip
    return columns_report.renamed(systems_analysis.systems(requests), columns)


def _backend(name, device, measured):
    try:
        module = backends_.get(name)
    except Exception as error:  # whatever a contributed adapter does wrong, the other engines stay listed
        return {"engine": name, "state": f"does not load: {type(error).__name__}: {error}"}
    device = device if device in module.DEVICES else module.DEVICES[0]
    absent = backends_.missing(name, device)
    state = (
        ("measured" + (", not installed here" if absent else ""))
        if name in measured
        else absent or "installed"
    )
    state = "; ".join([state, *(reason for reason in backends_.absent(name, device) if reason != absent)])
    return {
        "engine": name, "what it is": _sentence(module.__doc__), "state": state, "options": ", ".join(module.OPTIONS),
        "devices": ", ".join(module.DEVICES), "environment": backends_.environment(module, device) or "default",
    }  # fmt: skip


def _sentence(docstring):
    """First sentence of a docstring, without Markdown's marks."""
    return re.split(r"(?<=[.!?])\s", re.sub(r"[*`]|\s*<http\S+>", "", (docstring or "").strip()))[0].replace(
        "\n", " "
    )
