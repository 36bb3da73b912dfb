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

FEWEST = 10  # reruns of a kind, else it has no scatter
OWN_HOST = re.compile(r"-(\d+)c$")
# Of a metric without a scatter of its own, another that scatters for the same reasons.
INSTEAD = {"tpot": "itl", "itl": "tpot"}


@dataclass(frozen=True)
class Scatter:
    """What is borrowed: standard deviations of the logarithm between runs (`beyond`: without that of
    requests, None where it is not known), and the sources' counts."""

    kind: str
    scatter: float
    beyond: float | None
    reruns: int
    own: int
    published: int
    sources: str

    def named(self) -> str:
        """A sentence part for readers: of how many reruns of what it is."""
        return (
            f"borrowed from {self.reruns} reruns on {self.kind} "
            f"({self.own} of our own, {self.published} published)"
        )


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
def table() -> dict[tuple[str, str, str], Scatter]:
    """(kind, metric, part) -> `Scatter`, as committed."""
    text = (resources.files("llm_measured.compare") / "borrowed.csv").read_text(encoding="utf-8")
    return {
        (row["kind"], row["metric"], row["part"]): Scatter(
            row["kind"],
            float(row["scatter"]),
            float(row["beyond_requests"]) if row["beyond_requests"] else None,
            int(row["reruns"]),
            int(row["own_reruns"]),
            int(row["published_reruns"]),
            row["sources"],
        )
        for row in csv.DictReader(text.splitlines())
    }


def scatter(of: str | None, metric: str, statistic: str) -> Scatter | None:
    """What a result of one run borrows; None where the kind has fewer than FEWEST reruns of that metric."""
    for name in (metric, INSTEAD.get(metric, metric)):
        found = table().get((of or "", name, part(statistic)))
        if found and found.reruns >= FEWEST:
            return found
    return None


def widest(metric: str, statistic: str) -> float | None:
    """The largest scatter of any kind that has one: what to plan with where a kind has none."""
    found = [
        one.scatter
        for (_, name, which), one in table().items()
        if name == metric and which == part(statistic) and one.reruns >= FEWEST
    ]
    return max(found, default=None)
