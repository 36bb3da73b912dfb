"""Every machine that has measured, which of them is the default, and which versions of an engine one has run.

A machine is a device of a checkout: columns gpu and host. The default one has the most runs, of several it
measured last, so that the same observations look the same wherever they are drawn. BENCH_FRONT
makes another one the default: its device, its host, or `here` for what this checkout has measured.
"""

import contextlib
import os
from collections.abc import Iterator

import pandas as pd

from bench.machine import identity
from bench.observations import schema, store
from llm_measured.core import naming

MACHINE = ["gpu", "host"]
FRONT = "BENCH_FRONT"


def each(table: pd.DataFrame, strict: bool = True) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """[((gpu, host), its rows)] of every machine in `table`: those of BENCH_FRONT first, then by number of
    runs, then the one that measured last; the first is the default.

    `table` has one row per request, or the columns run and measured instead of run_id and started. ValueError
    where BENCH_FRONT names none of several machines; not `strict`, it is then as if it were not set.
    """
    run, when = ("run_id", "started") if "run_id" in table else ("run", "measured")

    groups, chosen = list(table.groupby(MACHINE, sort=True)), []
    if len(groups) > 1:
        chosen = _chosen([machine for machine, _ in groups], strict)

    def order(group: tuple) -> tuple:
        machine, rows = group
        return machine in chosen, rows[run].nunique(), rows[when].max()

    for _, rows in groups:
        rows.attrs = table.attrs
    return sorted(groups, key=order, reverse=True)


def _chosen(every: list, strict: bool) -> list:
    """Those of `every` machine that BENCH_FRONT names."""
    wish = os.environ.get(FRONT, "").strip()
    name = identity.host() if wish == "here" else wish
    chosen = [
        (gpu, host)
        for gpu, host in every
        for spelling in (host, naming.lettered_host(host))
        if name and name in (gpu, spelling, f"{gpu}-{spelling}")
    ]
    shown_beside_others = wish == "here" and store.files(store.shared_folder())
    if wish and not chosen and strict and not shown_beside_others:
        known = ", ".join(f"{gpu} (host {host})" for gpu, host in every)
        raise ValueError(
            f"{FRONT}={wish} names no machine that has measured: {known}. Give a device or a host of these."
        )
    return chosen


@contextlib.contextmanager
def make_default(name: str | None) -> Iterator[None]:
    """Context in which `name` is that of BENCH_FRONT; nothing changes with an empty one."""
    before = os.environ.get(FRONT)
    if name:
        os.environ[FRONT] = name
    try:
        yield
    finally:
        if name:
            os.environ.pop(FRONT)
            os.environ.update({FRONT: before} if before is not None else {})


def labelled(table: pd.DataFrame, strict: bool = True) -> list[tuple[str, pd.DataFrame]]:
    """[(label, its rows)] as `each`; a label is the device, with the host where two have the same device."""
    every = each(table, strict)
    devices = [gpu for (gpu, _), _ in every]
    return [(gpu if devices.count(gpu) == 1 else f"{gpu} ({host})", rows) for (gpu, host), rows in every]


def default_machine(table: pd.DataFrame, strict: bool = True) -> pd.DataFrame:
    """The rows of the default machine; `table` as in `each`."""
    every = each(table, strict)
    return every[0][1] if len(every) > 1 else table


def versioned(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with the version in the option's name where a configuration has runs of several versions
    (`Q4_0 (0.3.16)`).

    What is distinguished by engine and option is then distinguished by version as well: none are pooled.
    """
    count = table.groupby(schema.CONFIGURATION, dropna=False)["backend_version"].transform("nunique")
    several = count > 1
    if not several.any():
        return table
    version = " (" + table["backend_version"] + ")"
    return table.assign(option=table["option"] + version.where(several, ""))


def every(requests: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """The requests of `experiment` of all machines, options as in `on_default_machine`: for a regression."""
    return versioned(naming.named(requests[requests["experiment"] == experiment]))


def front(requests: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """The requests of `experiment` on the default machine, with the options' own names: none where it has
    not measured that, whoever else has."""
    own = default_machine(requests)
    return own[own["experiment"] == experiment]


def on_default_machine(requests: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """`front`, options as `naming.named` and `versioned`."""
    return versioned(naming.named(front(requests, experiment)))
