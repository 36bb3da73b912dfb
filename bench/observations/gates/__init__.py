"""Gates: what may not be published, and the sentence that says why.

A gate is a function of `Runs`, of one that is about to be written or of all that lie there: it gives a
sentence for each that falls, by its place in the lists. A run does not fall by what it does not hold.
"""

from bench.observations import derived, schema
from bench.observations.gates import holding, of_machine, of_rows
from bench.observations.gates.limits import (
    BUSY_CORES,
    LATE_SHARE,
    STEAL_CORES,
    THROTTLED_SHARE,
    WARM_FACTOR,
    WARMUPS,
    Refused,
    late,
    settled,
)
from bench.observations.gates.of_machine import committed, is_adapter
from bench.observations.gates.of_rows import Runs

__all__ = [
    "BUSY_CORES",
    "GATES",
    "LATE_SHARE",
    "Refused",
    "Runs",
    "STEAL_CORES",
    "THROTTLED_SHARE",
    "WARMUPS",
]
__all__ += ["WARM_FACTOR", "check", "committed", "held", "is_adapter", "late", "refused", "settled"]

# What it is that a run must pass, as the method page has it -> the gate; in the order of judging.
GATES = {
    "a request succeeded": of_rows.succeeded,
    "rows and path agree": of_rows.agrees_with_path,
    "token counts agree": of_rows.counts,
    "times do not contradict each other": of_rows.ordered_times,
    "answers came token by token, not in one lump": of_rows.streamed,
    "the first counted request was no slower than the others": of_rows.quick_start,
    "the GPU's warm-up had settled": of_machine.warm,
    "no neighbours on the processor": of_machine.of_company(of_machine.alone),
    "no cores stolen by other virtual machines": of_machine.of_company(of_machine.not_stolen),
    "no threads held back by a quota": of_machine.of_company(of_machine.unthrottled),
    "the GPU's clock was steady": of_machine.steady_clock,
    "the instrument was its revision": of_machine.of_revision,
    "the load client was punctual": of_rows.punctual,
    "no prompt answered from a cache": of_rows.uncached,
    "MBU at most 1": of_rows.possible_bandwidth,
    "MFU at most 1": of_rows.possible_arithmetic,
}


def check(table, sidecar, identifier):
    """Every gate of a run; raises Refused with one sentence that says why it may not be published."""
    _complete(table, sidecar)
    rows = derived.derive(schema.numbers(table.assign(**derived.context(sidecar))))
    for _, sentence in refused(Runs(rows.assign(file=0), [sidecar], [identifier])).values():
        raise Refused(sentence)


def refused(runs):
    """{place of a run: (gate, sentence)} of those that fall, each by its first gate."""
    found = {}
    for name, gate in GATES.items():
        for file, sentence in gate(runs).items():
            found.setdefault(int(file), (name, sentence))
    return found


def _complete(table, sidecar):
    lacking = [c for c in schema.COLUMNS if c not in table] + [k for k in schema.SIDECAR if k not in sidecar]
    if lacking or table.empty:
        raise Refused(
            f"The run lacks {', '.join(lacking) or 'rows'}: every row has every column and the sidecar every "
            "field of bench/observations/schema.py."
        )


def held(runs):
    """Which gates concern each of `runs`, and which could be checked by what its files hold.

    One row per gate and run that it concerns; columns gate, file (the place of the run), checked.
    """
    return holding.held(runs, GATES)
