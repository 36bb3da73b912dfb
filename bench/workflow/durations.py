"""How long runs take, from the sidecars of those that were measured."""

import json
from collections.abc import Sequence
from datetime import datetime
from statistics import mean, median

from bench import naming
from bench.machine import identity
from bench.paths import RESULTS
from bench.workflow.runs import Run

# What a run takes beside the seconds in its sidecar: the start of two interpreters, the kernel's, and their
# end.
START_S = 8.0
GENEROUS = 1 / 3  # of the time that a run is expected to take, where this machine's speed is not known yet
UNKNOWN_S = 60.0  # where no run has ever been measured


def expected_s(runs: Sequence[Run], generous: bool = False) -> dict[Run, float]:
    """Run -> seconds that it took or, as long as it is not measured, will take.

    Estimated from this checkout's own runs of the same configuration; else from those of other machines, by
    how much this one was
    faster or slower so far; else from the mean of the others. A `generous` estimate takes GENEROUS of what no
    own run is known for.
    """
    own, others = {run: own_s(run) for run in runs}, {run: elsewhere_s(run) for run in runs}
    ratios = [own[run] / others[run] for run in runs if own[run] and others[run]]
    ratio, known = median(ratios) if ratios else 1.0, [s for s in others.values() if s]
    usual = mean(known) if known else UNKNOWN_S
    part = GENEROUS if generous else 1.0
    return {run: START_S + (own[run] or ratio * part * (others[run] or usual)) for run in runs}


def own_s(run: Run) -> float | None:
    """Seconds of the run itself, else the mean of the same configuration in this checkout; None if there is
    none."""
    return _mean_s(
        [run.csv.with_suffix(".json")] if run.measured else _sidecars(run, f"{run.gpu}-{identity.host()}")
    )


def elsewhere_s(run: Run) -> float | None:
    """Mean seconds of the same configuration on all machines that measured it; None if none did."""
    return _mean_s(_sidecars(run, "*"))


def _sidecars(run, machine):
    pattern = f"{run.experiment}-{naming.safe(run.model)}-{run.option}-{machine}-*.json"
    return [file for file in (RESULTS / run.backend).glob(pattern) if file.with_suffix(".csv").exists()]


def _mean_s(files):
    sidecars = [json.loads(file.read_text()) for file in files]
    spans = [datetime.fromisoformat(s["ended"]) - datetime.fromisoformat(s["started"]) for s in sidecars]
    return mean(span.total_seconds() for span in spans) if spans else None
