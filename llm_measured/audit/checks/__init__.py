"""All checks, in the order in which mistakes cause each other, and the one function that runs them."""

import pandas as pd

from llm_measured.audit.checks import (
    contradictions,
    counting,
    impossible,
    lengths,
    loading,
    missing,
    nothing_measured,
    pace,
    sameness,
    sums,
)
from llm_measured.audit.checks.finding import KINDS, MISSING, REGISTRY, Finding
from llm_measured.audit.frame import Audited

# A cause stands before what follows from it; whatever is not named here comes after, in the order in which
# the modules name it.
ORDER = [
    "no_result",
    "same_run_twice",
    "copied_rows",
    "empty_answer_in_mean",
    "times_backwards",
    "not_streamed",
    "clamped_figure",
    "counted_twice",
    "prompt_counted_as_output",
    "failed_counted_as_throughput",
    "batch_time_as_request_time",
    "rate_of_other_scope",
    "mean_called_median",
    "cached_answer_in_mean",
    "other_number_format",
    "tpot_contains_ttft",
    "tokens_per_event",
    "client_queue",
    "prefix_cache",
    "bandwidth_beyond_device",
    "compute_beyond_device",
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
    """List of findings, causes first: impossible, impossible on one device, contradictory, missing;
    consequences of a finding stand at the end of all. A check that breaks off is a finding of its own."""
    parts = {file: _of(audited, file) for file in dict.fromkeys(audited.levels["file"])}
    findings = [found for own in parts.values() for found in run_alone(own)] + run_across(audited)
    # What explains the most stands first, and consequences behind their causes.
    names = [*ORDER, *(name for name in REGISTRY if name not in ORDER)]
    findings = sorted(findings, key=lambda f: names.index(f.check))
    explaining = {
        name: [f for f in findings if f.kind != MISSING and name in REGISTRY[f.check].explains]
        for name in {f.check for f in findings}
    }
    for one in findings:
        causes = (f for f in explaining[one.check] if f is not one and one.file in f.file)
        one.consequence_of = next((f.check for f in causes if _follows(one, f, parts)), "")
    return sorted(findings, key=lambda f: (bool(f.consequence_of), KINDS.index(f.kind)))


def _follows(one, cause, parts):
    """Whether a finding is gone where the levels are left out that `cause` is about; one about all levels
    explains whatever its check names."""
    function, part = REGISTRY[one.check].function, parts.get(one.file)
    if not cause.levels or REGISTRY[one.check].across or part is None:
        return True
    keep = ~part.levels["level"].isin(cause.levels)
    return not keep.any() or function(part.of_levels(keep)) is None


def run_alone(audited: Audited) -> list[Finding]:
    """Findings of the checks that look at one file at a time, in the audit of one, in no order. Levels in
    which every request failed are looked at by one check alone."""
    audited = audited.of_levels(audited.levels["level"].notna())
    empty = nothing_measured.failed_wholly(audited)
    findings = [found] if (found := nothing_measured.no_result(audited)) else []
    if empty.all():
        return findings
    rest = audited.of_levels(~empty)
    for one in REGISTRY.values():
        if not one.across and one.name != "no_result" and (found := _made(one, rest)):
            findings.append(found)
    return findings


def run_across(audited: Audited) -> list[Finding]:
    """Findings of the checks that compare files with each other, in no order."""
    audited = audited.of_levels(~nothing_measured.failed_wholly(audited))
    if audited.levels.empty:
        return []
    return [found for one in REGISTRY.values() if one.across for found in _made(one, audited) or []]


def _made(one, audited):
    """What a check finds; where it breaks off, a finding that says so, because the others can be made."""
    try:
        return one.function(audited)
    except Exception as error:  # of any kind: a file may hold what nobody thought of
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        found = Finding(
            one.name,
            MISSING,
            audited.first_file,
            f"The check {one.name} broke off ({reason}); the other checks were made. Please report the file.",
        )
        return [found] if one.across else found


def _of(audited, file):
    return audited.of_levels(audited.levels["file"] == file)
