"""Scatter between runs of kinds of machines, for results of one run: from committed reruns of others and of
our own.

`borrowed.csv` is written by `make compare-scatter` (`llm_measured.compare.scatter`). A row is a kind of
machine, a metric and a part (centre: mean, median and rates; tail: p90, p99); `scatter` is the standard
deviation of the logarithm between two runs, requests' own scatter included; `beyond_requests` without it,
where the reruns have their requests; `reruns` counts runs beyond the first of a setting.
"""

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from llm_measured.core import hardware, names

FEWEST, FEWEST_SOURCES = 10, 3  # reruns of a kind, and hosts or publishers that made them
FLOOR, FLOOR_FREEDOM = 0.06, 200.0  # scatter that is assumed of a machine that nobody reran
PRINTED = "printed beside the figures (repeats of one process)"
OWN_HOST = re.compile(r"-(\d+)c$")
# Of a metric without a scatter of its own, another that scatters for the same reasons.
INSTEAD = {"tpot": "itl", "itl": "tpot"}


@dataclass(frozen=True)
class Scatter:
    """What is borrowed: the standard deviation of the logarithm between runs (`beyond`: without that of
    requests, None where it is not known), the degrees of freedom that its own uncertainty leaves, and a
    sentence part for readers."""

    scatter: float
    beyond: float | None
    freedom: float
    source: str


@cache
def kind(gpu: str | None, tool: str | None, in_process: bool) -> str | None:
    """The kind of machine that a level ran on: as accelerators.csv has it, or processor cores of a host of
    this study; None where no table knows it."""
    if not gpu:
        return None
    cores = OWN_HOST.search(gpu) if tool == "this study" else None
    if cores:
        name = f"{cores[1]}-core virtual machines"
    else:
        try:
            candidates = names.accelerator(gpu).candidates
        except names.UnknownName:
            return None
        table = hardware.by_accelerator()["kind"]
        kinds = set(table.loc[list(candidates)])
        if len(kinds) != 1:
            return None
        name = {"GPU": "GPU cards", "CPU": "processors", "integrated": "integrated GPUs"}.get(
            found := str(kinds.pop()), found
        )
    return f"{name}, engines without a server" if in_process else f"{name}, servers"


def part(statistic: str) -> str:
    """Centre or tail."""
    return "tail" if statistic in ("p90", "p95", "p99") else "centre"


@cache
def table() -> dict[tuple[str, str, str], dict[str, str]]:
    """(kind, metric, part) -> the row of borrowed.csv, as committed."""
    text = (resources.files("llm_measured.compare") / "borrowed.csv").read_text(encoding="utf-8")
    return {(row["kind"], row["metric"], row["part"]): row for row in csv.DictReader(text.splitlines())}


def scatter(machines: str | None, metric: str, statistic: str) -> Scatter:
    """Return the scatter between runs that a result of one run is assumed to have.

    `machines`: the kind of machine and engine that it ran on, as `kind` names it ("GPU cards, servers"); None
    where no table knows it. The scatter is that of the kind where FEWEST_SOURCES sources have rerun the
    metric on such machines, else a floor, which the source names as assumed."""
    for name in (metric, INSTEAD.get(metric, metric)):
        row = table().get((machines or "", name, part(statistic)))
        if row and len(row["sources"].split()) >= FEWEST_SOURCES and int(row["reruns"]) >= FEWEST:
            count = len(row["sources"].split())
            beyond = float(row["beyond_requests"]) if row["beyond_requests"] else None
            source = f"borrowed from {row['reruns']} reruns on {machines} (of {count} sources)"
            return Scatter(float(row["scatter"]), beyond, float(row["freedom"]), source)
    wide = part(statistic) == "tail" or metric in ("ttft", "prefill_s", "prompt_tokens_per_s")
    floor = 2 * FLOOR if wide else FLOOR
    return Scatter(
        floor,
        None,
        FLOOR_FREEDOM,
        f"assumed, {100 * floor:.0f} % (fewer than three sources have rerun such a machine)",
    )


def widest(metric: str, statistic: str) -> float:
    """The largest scatter of any kind and figure that the table knows, of the same part of the
    distribution."""
    found = [float(row["scatter"]) for (_, _, which), row in table().items() if which == part(statistic)]
    return max([*found, 2 * FLOOR])
