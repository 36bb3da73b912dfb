"""How a validity check is declared, and the runs that it is asked of."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from bench.observations import peaks, schema
from bench.paths import ROOT
from llm_measured.core import device_peaks
from llm_measured.core.definitions import Fields, Value


class Rejected(ValueError):
    """A run that may not be published; the message says which check rejected it and why."""


@dataclass(frozen=True)
class Run:
    """One run as a declaration sees it: its sidecar, and which of its columns have a value in any row."""

    experiment: str
    sidecar: Fields
    gpu: str = ""
    columns: frozenset[str] = frozenset()
    published: bool = False  # among the repository's own observations
    timed_requests: int = 0  # good requests with a TTFT
    of_model: bool = False  # its engine computes a model (`Runs.of_models`)
    real_weights: bool = False
    reads_weights: bool = False
    has_answers: bool = False
    has_peaks: bool = False  # somebody has measured a peak of its device

    @property
    def is_timed(self) -> bool:
        """Whether its rows are times: scores are none."""
        return self.experiment not in schema.UNTIMED

    def field(self, path: str) -> Value:
        """Return the sidecar's value at `path`, such as `busy_cores.others`; None where there is none."""
        value: Value = self.sidecar
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return value


@dataclass(frozen=True)
class Runs:
    """Runs to be checked: `rows` of all (`derived.derive`; column `file`: the position of the run in the
    lists), and for each its entry of `sidecars` and its path without suffix, in `identifiers`."""

    rows: pd.DataFrame
    sidecars: list
    identifiers: list
    published: frozenset = frozenset()  # positions of those among the repository's own observations
    # Peaks of the devices that other runs have found (`peaks.of_device`), by gpu and host.
    known: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=peaks.COLUMNS))

    @functools.cached_property
    def good(self) -> pd.DataFrame:
        """The rows without `error`."""
        return self.rows[self.rows["error"] == ""]

    @functools.cached_property
    def of_models(self) -> pd.DataFrame:
        """The good rows of engines that compute a model: those of the study's own adapters.

        An adapter in a folder of its own (BENCH_BACKENDS) is one of the tests', which answers by a schedule.
        """
        own = {
            name
            for name in self.good["backend"].unique()
            if (ROOT / "bench" / "backends" / f"{name}.py").exists()
        }
        return self.good[self.good["backend"].isin(own)]

    @functools.cached_property
    def best(self) -> pd.DataFrame:
        """The best peaks known of each run's device, those of the runs themselves included: index file,
        columns gpu, host, memory and cache (bytes/s), flops_per_s, and bandwidth: cache where the run's
        weights fit into the last-level cache, else memory. NaN where nobody measured it."""
        machine = ["gpu", "host"]
        runs = self.rows.drop_duplicates("file").set_index("file")
        # One row per sidecar: its number is the run's `file`.
        own = pd.DataFrame([peaks.of_sidecar(sidecar) for sidecar in self.sidecars], columns=peaks.PEAKS)
        own = own.astype(float).loc[runs.index].join(runs[machine])
        of_machine = pd.concat([own, self.known]).groupby(machine)[peaks.PEAKS].max()
        best = own[machine].join(of_machine, on=machine)
        in_cache = [device_peaks.in_cache(self.sidecars[file]) for file in best.index]
        return best.assign(bandwidth=best["cache"].where(in_cache, best["memory"]))

    @functools.cached_property
    def each(self) -> dict[int, Run]:
        """Return {position: Run} of all."""
        by_file, good = self.rows.groupby("file"), self.good
        first = by_file[["experiment", "gpu", "weights", "weight_bytes"]].first()
        has_value = self.rows.notna().groupby(self.rows["file"]).any()
        timed = good["ttft_s"].notna().groupby(good["file"]).sum()
        of_models, answers = set(self.of_models["file"]), set(good.loc[good["output_ids"] != "", "file"])
        measured = self.best[["memory", "cache", "flops_per_s"]].notna().any(axis=1)
        found = {}
        for file, row in first.iterrows():
            held = has_value.loc[file]
            found[file] = Run(
                experiment=row["experiment"],
                sidecar=self.sidecars[file],
                gpu=row["gpu"],
                columns=frozenset(held.index[held]),
                published=file in self.published,
                timed_requests=int(timed.get(file, 0)),
                of_model=file in of_models,
                real_weights=row["weights"] == "real",
                reads_weights=bool(row["weight_bytes"] > 0),
                has_answers=file in answers,
                has_peaks=bool(measured[file]),
            )
        return found


def every(run: Run) -> bool:
    """Whether a check concerns `run`, or `run` has what it needs: always."""
    return True


def no_sentence(run: Run) -> str:
    """Return the sentence of a check that is only asked of all runs together: none."""
    return ""


@dataclass(frozen=True)
class Check:
    """One validity check: {position: sentence} of the runs that it rejects.

    It is counted for the runs that it `concerns`. A run that it needs something of, and that does not have
    it, was not checked and passes: `columns` without a value in any row, `fields` of the sidecar (a path such
    as `busy_cores.others`), or what `needs` asks for. A check that rejects for what is missing needs nothing.
    """

    name: str  # what a run must pass, as the method page has it
    rejects: Callable[[Runs], dict[int, str]]
    concerns: Callable[[Run], bool] = every
    columns: Sequence[str] = ()
    fields: Sequence[str] = ()
    needs: Callable[[Run], bool] = every
    sentence: Callable[[Run], str] = no_sentence  # of a check that is asked of one run at a time

    def __call__(self, runs: Runs) -> dict[int, str]:
        """Return {position of a run that it rejects: the sentence that says why}."""
        return self.rejects(runs)

    def can_check(self, run: Run) -> bool:
        """Whether `run` has all that the check needs."""
        stated = all(run.field(path) is not None for path in self.fields)
        return stated and set(self.columns) <= run.columns and self.needs(run)


def check(name: str, **needed: Any) -> Callable[[Callable[[Runs], dict[int, str]]], Check]:
    """Decorator: the Check of that name, of a function of all runs; `needed` as in Check."""
    return lambda rejects: Check(name, rejects, **needed)


def check_each(
    name: str, unless: Callable[[Run], bool] | None = None, **needed: Any
) -> Callable[[Callable[[Run], str]], Check]:
    """Decorator: the Check of that name, of a function that gives a sentence for one run, empty where it
    passes, and is not asked of one of which `unless` is true."""

    def declared(sentence: Callable[[Run], str]) -> Check:
        def rejects(runs: Runs) -> dict[int, str]:
            found = {}
            for file, run in runs.each.items():
                if not (unless and unless(run)) and (why := sentence(run)):
                    found[file] = why
            return found

        return Check(name, rejects, sentence=sentence, **needed)

    return declared
