"""How long runs take, from the sidecars of those that were measured."""

import collections
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import mean, median

from bench.backends.common import checkpoints
from bench.machine import identity
from bench.paths import RESULTS
from bench.workflow.runs import Run
from llm_measured.core import naming

# What a run takes beside the seconds in its sidecar: the start of two interpreters, the kernel's, and their
# end.
START_S = 8.0
GENEROUS = 1 / 3  # of the time that a run is expected to take, where this machine's speed is not known yet
# Where no run of a configuration has ever been measured, of a model of so many numbers at most; of a larger
# one in proportion.
UNKNOWN_S, UNKNOWN_NUMBERS = 60.0, 0.45e9
ANSWERS = 10  # times as long takes `humaneval`, of which no run of its model is known


def expected_s(runs: Sequence[Run], generous: bool = False) -> dict[Run, float]:
    """Return run -> seconds that it took or, as long as it is not measured, will take, START_S included.

    Estimated from this machine's own runs of the same configuration; else from the mean over all machines
    (this one included), times the median of this machine's ratio to such means; else from the mean of the
    other runs of its model, or by its size. A `generous` estimate takes GENEROUS of what no own run is known
    for.
    """
    own, everywhere, ratios = {}, {}, []
    of_model: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for run in runs:
        here, anywhere = own_s(run), measured_s(run, "*")
        own[run], everywhere[run] = here, anywhere
        if anywhere:
            of_model[run.experiment, run.model].append(anywhere)
        if here and anywhere:
            ratios.append(here / anywhere)
    factor = (median(ratios) if ratios else 1.0) * (GENEROUS if generous else 1.0)
    expected = {}
    for run in runs:
        seconds = own[run]
        if not seconds:
            known = of_model[run.experiment, run.model]
            seconds = factor * (everywhere[run] or (mean(known) if known else by_size_s(run)))
        expected[run] = START_S + seconds
    return expected


def by_size_s(run: Run) -> float:
    """Return the seconds of a run of whose model nobody has measured one."""
    times = ANSWERS if run.experiment == "humaneval" else 1
    return times * UNKNOWN_S * max(1.0, (checkpoints.numbers(run.model) or 0) / UNKNOWN_NUMBERS)


def own_s(run: Run) -> float | None:
    """Return the seconds of the run itself, else the mean of the same configuration in this checkout; None if
    there is none."""
    if run.written:
        return seconds_of(run.written.with_suffix(".json"))
    return measured_s(run, f"{run.gpu}-{identity.host()}")


def measured_s(run: Run, machine: str) -> float | None:
    """Return the mean seconds of the same configuration on a `machine` (its slug and host; `*`: all); None if
    it has not been measured there."""
    pattern = f"{run.experiment}-{naming.safe(run.model)}-{run.option}-{machine}-*.json"
    files = [file for file in (RESULTS / run.backend).glob(pattern) if file.with_suffix(".csv").exists()]
    return mean(map(seconds_of, files)) if files else None


def seconds_of(file: Path) -> float:
    """Return the seconds of the run whose sidecar is `file`; of one that was continued, which has the time of
    its last attempt alone, in proportion to the problems that this one answered."""
    sidecar = json.loads(file.read_text())
    span = datetime.fromisoformat(sidecar["ended"]) - datetime.fromisoformat(sidecar["started"])
    settings = sidecar.get("settings") or {}
    before, problems = settings.get("continued_at") or 0, settings.get("problems") or 0
    if 0 < before < problems:
        return span.total_seconds() * problems / (problems - before)
    return span.total_seconds()
