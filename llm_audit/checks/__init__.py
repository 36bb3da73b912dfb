"""All checks, in the order in which mistakes cause each other, and the one function that runs them."""

import pandas as pd

from llm_audit.checks import (
    contradictions,
    counting,
    impossible,
    lengths,
    loading,
    missing,
    pace,
    sameness,
    sums,
)
from llm_audit.checks.finding import KINDS, REGISTRY, Finding
from llm_audit.frame import Audited

# A cause stands before what follows from it; whatever is not named here comes after, in the order in which
# the modules name it.
ORDER = [
    "unit_changed",
    "same_run_twice",
    "copied_rows",
    "empty_answer_in_mean",
    "times_backwards",
    "prompt_counted_as_output",
    "failed_counted_as_throughput",
    "batch_time_as_request_time",
    "rate_of_other_scope",
    "mean_called_median",
    "same_time_for_other_lengths",
    "times_of_other_answers",
    "cached_answer_in_mean",
    "other_number_format",
    "tpot_contains_ttft",
    "tokens_per_event",
    "client_queue",
    "prefix_cache",
    "bandwidth_beyond_device",
    "compute_beyond_device",
    "ttft_beyond_device",
    "littles_law",
    "rate_against_times",
    "plain_sums",
    "percentile_from_too_few",
]


def table() -> pd.DataFrame:
    """One row per check: check, kind, statement, formula, source, explains."""
    columns = ["name", "kind", "statement", "formula", "source", "explains"]
    return pd.DataFrame([[getattr(one, c) for c in columns] for one in REGISTRY.values()], columns=columns)


def run(audited: Audited) -> list[Finding]:
    """List of findings, causes first: impossible before contradictory before missing, consequences of a
    finding right at their class's end."""
    each = [_of(audited, file) for file in dict.fromkeys(audited.levels["file"])]
    findings = [found for own in each for found in run_alone(own)] + run_across(audited)
    # What explains the most stands first, and consequences behind their causes.
    names = [*ORDER, *(name for name in REGISTRY if name not in ORDER)]
    findings = sorted(findings, key=lambda f: names.index(f.check))
    explaining = {
        name: [f for f in findings if name in REGISTRY[f.check].explains]
        for name in {f.check for f in findings}
    }
    for one in findings:
        causes = (f.check for f in explaining[one.check] if f is not one and one.file in f.file)
        one.consequence_of = next(causes, "")
    return sorted(findings, key=lambda f: (bool(f.consequence_of), KINDS.index(f.kind)))


def run_alone(audited: Audited) -> list[Finding]:
    """Findings of the checks that look at one file at a time, in the audit of one, in no order."""
    audited = Audited(audited.levels, audited.requests, known={})
    return [found for one in REGISTRY.values() if not one.across and (found := one.function(audited))]


def run_across(audited: Audited) -> list[Finding]:
    """Findings of the checks that compare files with each other, in no order."""
    audited = Audited(audited.levels, audited.requests, known={})
    return [found for one in REGISTRY.values() if one.across for found in one.function(audited)]


def _of(audited, file):
    levels = audited.levels[audited.levels["file"] == file]
    return Audited(levels, audited.requests[audited.requests["level"].isin(levels["level"])])
