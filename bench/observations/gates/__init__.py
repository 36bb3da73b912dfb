"""Gates: what may not be published, and the sentence that says why.

A gate is a function of `Runs`, of one that is about to be written or of all that lie there: it gives a
sentence for each that falls, by its place in the lists. A run does not fall by what it does not hold.
"""

from collections.abc import Callable

import pandas as pd

from bench import paths
from bench.observations import derived, peaks, schema
from bench.observations.gates import conditions, coverage, measurements
from bench.observations.gates.conditions import committed, is_adapter
from bench.observations.gates.limits import (
    BUSY_CORES,
    BUSY_SHARE,
    WARMUPS,
    Refused,
    disagreement,
    late,
    late_sessions,
    settled,
)
from bench.observations.gates.measurements import Runs
from llm_measured.core.definitions import Fields

Gate = Callable[[Runs], dict[int, str]]  # the place of a run that falls -> the sentence that says why

__all__ = [
    "BUSY_CORES",
    "BUSY_SHARE",
    "GATES",
    "Refused",
    "Runs",
    "WARMUPS",
    "check",
    "committed",
    "disagreement",
    "held",
]
__all__ += ["is_adapter", "late", "late_sessions", "refused", "settled"]

# What it is that a run must pass, as the method page has it -> the gate; in the order of judging.
GATES: dict[str, Gate] = {
    "a request succeeded": measurements.succeeded,
    "rows and path agree": measurements.agrees_with_path,
    "token counts agree": measurements.counts,
    "times do not contradict each other": measurements.ordered_times,
    "answers came token by token, not in one lump": measurements.streamed,
    "the first counted request was no slower than the others": measurements.quick_start,
    "the GPU's warm-up had settled": conditions.warm,
    "no neighbours on the processor": conditions.of_contention(conditions.alone),
    "no cores stolen by other virtual machines": conditions.of_contention(conditions.not_stolen),
    "no threads held back by a quota": conditions.of_contention(conditions.unthrottled),
    "the GPU's clock was steady": conditions.steady_clock,
    "the instrument was its revision": conditions.of_revision,
    "the engine's tokens are the model's": conditions.right_tokens,
    "the place in the study's order is stated": conditions.in_order,
    "the load client was punctual": measurements.punctual,
    "no prompt answered from a cache that is off": measurements.uncached,
    "no more cached tokens than expected": measurements.uncontaminated,
    "the server's counters are the sum of the rows": conditions.counted_alike,
    "MBU at most 1": measurements.possible_bandwidth,
    "MFU at most 1": measurements.possible_arithmetic,
    "gaps between tokens fit into the answer's time": measurements.ordered_gaps,
    "the first token came no sooner than its prompt can be computed": measurements.possible_prefill,
    "answers are answers": measurements.answered,
    "weight bytes agree with checkpoint and option": measurements.weights_counted,
    "the memory was probed beside it": conditions.probed,
    "others on the machine were counted": conditions.counted,
    "an evaluation has all its answers": measurements.whole_evaluation,
}


def check(
    table: pd.DataFrame, sidecar: Fields, identifier: str, scratch: bool = False, marked: bool = False
) -> None:
    """Every gate of a run; raises Refused with one sentence that says why it may not be published.

    Neighbours, stolen time and clocks do not refuse a run that may be `marked`, or a `scratch` run, which
    goes to a folder of one's own: its sidecar then says so (`conditions.sharing`).
    """
    lacking = [c for c in schema.COLUMNS if c not in table] + [k for k in schema.SIDECAR if k not in sidecar]
    if lacking or table.empty:
        raise Refused(
            f"The run lacks {', '.join(lacking) or 'rows'}: every row has every column and the sidecar every "
            "field of bench/observations/schema.py."
        )
    rows = derived.derive(schema.numbers(table.assign(**derived.context(sidecar))))
    experiment, gpu, host = (table[name].iloc[0] for name in ("experiment", "gpu", "host"))
    if scratch or marked:
        sidecar.update(conditions.sharing(sidecar, experiment))
    run = Runs(rows.assign(file=0), [sidecar], [identifier], known=peaks.of_device(gpu, host, paths.RESULTS))
    for _, sentence in refused(run).values():
        raise Refused(sentence)
    if not scratch and (sentence := conditions.uncounted(sidecar, experiment)):
        raise Refused(sentence)


def refused(runs: Runs) -> dict[int, tuple[str, str]]:
    """{place of a run: (gate, sentence)} of those that fall, each by its first gate."""
    found: dict[int, tuple[str, str]] = {}
    for name, gate in GATES.items():
        for file, sentence in gate(runs).items():
            found.setdefault(int(file), (name, sentence))
    return found


def held(runs: Runs) -> pd.DataFrame:
    """Which gates concern each of `runs`, and which could be checked by what its files hold.

    One row per gate and run that it concerns; columns gate, file (the place of the run), checked.
    """
    return coverage.held(runs, GATES)
