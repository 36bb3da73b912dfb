"""Validity checks: what may not be published, and the sentence that says why.

Each is one declaration (`declaration.Check`): whom it concerns, what it needs of a run's columns and sidecar,
and a function of `Runs`, of one that is about to be written or of all that lie there.
"""

import pandas as pd

from bench import paths
from bench.observations import derived, peaks, schema
from bench.observations.checks import conditions, measurements
from bench.observations.checks.conditions import (
    BUSY_CORES,
    BUSY_SHARE,
    WARMUPS,
    committed,
    disagreement,
    is_adapter,
    settled,
)
from bench.observations.checks.declaration import Rejected, Runs
from bench.observations.checks.measurements import late, late_sessions
from llm_measured.core.definitions import Fields

__all__ = ["BUSY_CORES", "BUSY_SHARE", "CHECKS", "Rejected", "Runs", "WARMUPS", "check", "committed"]
__all__ += ["disagreement", "held", "is_adapter", "late", "late_sessions", "rejected", "settled"]

# In the order of checking: a run that several reject counts with the first.
CHECKS = {
    each.name: each
    for each in (
        measurements.succeeded,
        measurements.agrees_with_path,
        measurements.counts,
        measurements.ordered_times,
        measurements.streamed,
        measurements.quick_start,
        conditions.warm,
        conditions.alone,
        conditions.not_stolen,
        conditions.unthrottled,
        conditions.steady_clock,
        conditions.of_revision,
        conditions.right_tokens,
        conditions.in_order,
        measurements.punctual,
        measurements.uncached,
        measurements.uncontaminated,
        conditions.counted_alike,
        measurements.possible_bandwidth,
        measurements.possible_arithmetic,
        measurements.ordered_gaps,
        measurements.possible_prefill,
        measurements.answered,
        measurements.weights_counted,
        conditions.probed,
        conditions.counted,
        measurements.whole_evaluation,
    )
}


def check(
    table: pd.DataFrame, sidecar: Fields, identifier: str, scratch: bool = False, marked: bool = False
) -> None:
    """Raise Rejected with one sentence that says why a run may not be published, if a check rejects it.

    Neighbours, stolen time and clocks do not reject a run that may be `marked`, or a `scratch` run, which
    goes to a folder of one's own: its sidecar then says so (`conditions.sharing`).
    """
    lacking = [c for c in schema.COLUMNS if c not in table] + [k for k in schema.SIDECAR if k not in sidecar]
    if lacking or table.empty:
        raise Rejected(
            f"The run lacks {', '.join(lacking) or 'rows'}: every row has every column and the sidecar every "
            "field of bench/observations/schema.py."
        )
    rows = derived.derive(schema.numbers(table.assign(**derived.context(sidecar))))
    experiment, gpu, host = (table[name].iloc[0] for name in ("experiment", "gpu", "host"))
    if scratch or marked:
        sidecar.update(conditions.sharing(sidecar, experiment))
    run = Runs(rows.assign(file=0), [sidecar], [identifier], known=peaks.of_device(gpu, host, paths.RESULTS))
    for _, sentence in rejected(run).values():
        raise Rejected(sentence)
    if not scratch and (sentence := conditions.uncounted(run.each[0])):
        raise Rejected(sentence)


def rejected(runs: Runs) -> dict[int, tuple[str, str]]:
    """Return {position of a run: (check, sentence)} of those that are rejected, each by its first check."""
    found: dict[int, tuple[str, str]] = {}
    for name, rejects in CHECKS.items():
        for file, sentence in rejects(runs).items():
            found.setdefault(int(file), (name, sentence))
    return found


def held(runs: Runs) -> pd.DataFrame:
    """Return which checks concern each of `runs`, and which of them had the fields that they need.

    One row per check and run that it concerns; columns check, file (the position of the run), checked.
    """
    rows = []
    for name, declared in CHECKS.items():
        for file, run in runs.each.items():
            if declared.concerns(run):
                rows.append((name, file, declared.can_check(run)))
    return pd.DataFrame(rows, columns=["check", "file", "checked"])
