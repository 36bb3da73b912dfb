"""How long runs take, from the sidecars of those that were measured."""

import json
from collections.abc import Sequence
from datetime import datetime
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
    """Run -> seconds that it took or, as long as it is not measured, will take.

    Estimated from this checkout's own runs of the same configuration; else from those of other machines, by
    how much this one was faster or slower so far; else from the mean of the others of its model, or by its
    size. A `generous` estimate takes GENEROUS of what no own run is known for.
    """
    own, others = {run: own_s(run) for run in runs}, {run: elsewhere_s(run) for run in runs}
    ratios = [own[run] / others[run] for run in runs if own[run] and others[run]]
    ratio = median(ratios) if ratios else 1.0
    usual = {run: _usual_s(run, others) for run in runs}
    part = GENEROUS if generous else 1.0
    return {run: START_S + (own[run] or ratio * part * (others[run] or usual[run])) for run in runs}


def _usual_s(run: Run, others: dict[Run, float | None]) -> float:
    """Seconds of a run that nobody has measured: the mean of the `others` of its experiment and model, or by
    the model's size."""
    same = run.experiment, run.model
    known = [s for other, s in others.items() if s and (other.experiment, other.model) == same]
    if known:
        return mean(known)
    times = ANSWERS if run.experiment == "humaneval" else 1
    return times * UNKNOWN_S * max(1.0, (checkpoints.numbers(run.model) or 0) / UNKNOWN_NUMBERS)


def own_s(run: Run) -> float | None:
    """Seconds of the run itself, else the mean of the same configuration in this checkout; None if there is
    none."""
    written = run.written
    return _mean_s(
        [written.with_suffix(".json")] if written else _sidecars(run, f"{run.gpu}-{identity.host()}")
    )


def elsewhere_s(run: Run) -> float | None:
    """Mean seconds of the same configuration on all machines that measured it; None if none did."""
    return _mean_s(_sidecars(run, "*"))


def _sidecars(run, machine):
    pattern = f"{run.experiment}-{naming.safe(run.model)}-{run.option}-{machine}-*.json"
    return [file for file in (RESULTS / run.backend).glob(pattern) if file.with_suffix(".csv").exists()]


def _mean_s(files):
    return mean(_seconds(json.loads(file.read_text())) for file in files) if files else None


def _seconds(sidecar):
    """Seconds of a run; of one that was continued, which has the time of its last attempt alone, in
    proportion to the problems that this one answered."""
    span = datetime.fromisoformat(sidecar["ended"]) - datetime.fromisoformat(sidecar["started"])
    settings = sidecar.get("settings") or {}
    before, problems = settings.get("continued_at") or 0, settings.get("problems") or 0
    return span.total_seconds() * (problems / (problems - before) if 0 < before < problems else 1)
