"""All checks, in the order in which mistakes cause each other, and the one function that runs them."""

import math

import pandas as pd

from llm_measured.audit.checks import answers, causes, identities, impossible, missing, sameness, times
from llm_measured.audit.checks.finding import CONTRADICTION, KINDS, MISSING, REGISTRY, Check, Finding
from llm_measured.audit.frame import Audited

__all__ = ["answers", "impossible", "missing", "sameness", "times"]

OF_IDENTITIES = dict.fromkeys(one.check for one in identities.IDENTITIES)
# A cause stands before what follows from it.
ORDER = [
    *("no_result", "same_run_twice", "empty_answer_in_mean", "times_backwards", "not_streamed"),
    *("clamped_figure", "same_rate_twice"),
    *(name for name in causes.CHECKS if name not in OF_IDENTITIES),
    *("counted_twice", "cached_answer_in_mean", "client_late", "prefix_cache", "bandwidth_beyond_device"),
    *("compute_beyond_device", "littles_law", "rate_against_times", "plain_sums"),
    *("percentiles_out_of_order", "percentile_from_too_few"),
]
PHYSICS = "bandwidth_beyond_device", "compute_beyond_device", "prefix_cache", "cached_answer_in_mean"


def _declare() -> None:
    """Register the identities and causes beside the checks, so that a table has them all."""
    for name in OF_IDENTITIES:
        formulas = "; ".join(one.name for one in identities.IDENTITIES if one.check == name)
        text = "Figures of one row contradict each other."
        REGISTRY[name] = Check(name, CONTRADICTION, text, formulas, "the definitions", (), False, None)
    for name in causes.CHECKS:
        own = [one for one in causes.CAUSES if one.check == name]
        formula = "it mends every identity that its figure stands in; others: " + own[0].candidate
        explains = (*OF_IDENTITIES, *PHYSICS)
        text = f"{own[0].sentence}."
        REGISTRY[name] = Check(name, CONTRADICTION, text, formula, "identities", explains, False, None)


_declare()


def table() -> pd.DataFrame:
    """One row per check: check, kind, statement, formula, source, explains."""
    columns = ["name", "kind", "statement", "formula", "source", "explains"]
    return pd.DataFrame([[getattr(one, c) for c in columns] for one in REGISTRY.values()], columns=columns)


def run(audited: Audited) -> list[Finding]:
    """List of findings, causes first: impossible, impossible on one device, contradictory, missing;
    consequences of a finding stand at the end of all. A check that breaks off is a finding of its own."""
    parts = {file: _of(audited, file) for file in dict.fromkeys(audited.levels["file"])}
    findings = [found for own in parts.values() for found in run_alone(own)] + run_across(audited)
    # What explains the most stands first, of misfits without a cause the largest, and consequences last.
    names = [*ORDER, *(name for name in REGISTRY if name not in ORDER)]
    places = {name: names.index("counted_twice" if name in OF_IDENTITIES else name) for name in names}
    findings = sorted(findings, key=lambda f: (places[f.check], -_misfit(f)))
    explaining = {
        name: [f for f in findings if f.kind != MISSING and name in REGISTRY[f.check].explains]
        for name in {f.check for f in findings}
    }
    for one in findings:
        # What follows from another explains nothing, or two would hide each other.
        leading = [f for f in explaining[one.check] if f is not one and not f.consequence_of]
        causes = (f for f in leading if one.file in f.file)
        follows = next((f.check for f in causes if _follows(one, f, parts)), "")
        one.consequence_of = one.consequence_of or follows
    return sorted(findings, key=lambda f: (bool(f.consequence_of), KINDS.index(f.kind)))


def _misfit(finding):
    """How far an identity is from holding, as a logarithm; 0 of any other finding."""
    return abs(math.log(finding.numbers.get("quotient", 1.0)))


def _follows(one, cause, parts):
    """Whether a finding is gone where the levels are left out that `cause` is about; one about all levels
    explains whatever its check names."""
    if not cause.levels or not one.levels:
        function, part = REGISTRY[one.check].function, parts.get(one.file)
        if not cause.levels or function is None or REGISTRY[one.check].across or part is None:
            return True
        keep = ~part.levels["level"].isin(cause.levels)
        return not keep.any() or function(part.of_levels(keep)) is None
    return {*one.levels} <= {*cause.levels}


def run_alone(audited: Audited) -> list[Finding]:
    """Findings of the checks that look at one file at a time, in the audit of one, in no order. Levels in
    which nothing was answered are looked at by one check alone."""
    audited = audited.of_levels(audited.levels["level"].notna())
    empty = answers.failed_wholly(audited)
    findings = [found] if (found := answers.no_result(audited)) else []
    if empty.all():
        return findings
    rest = audited.of_levels(~empty)
    for one in REGISTRY.values():
        if one.function and not one.across and one.name != "no_result" and (found := _made(one, rest)):
            findings.append(found)
    return findings + _made(REGISTRY["plain_sums"], rest, causes.findings)


def run_across(audited: Audited) -> list[Finding]:
    """Findings of the checks that compare files with each other, in no order."""
    audited = audited.of_levels(~answers.failed_wholly(audited))
    if audited.levels.empty:
        return []
    return [found for one in REGISTRY.values() if one.across for found in _made(one, audited) or []]


def _made(one, audited, function=None):
    """What a check finds; where it breaks off, a finding that says so, because the others can be made."""
    try:
        return (function or one.function)(audited)
    except Exception as error:  # of any kind: a file may hold what nobody thought of
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        text = (
            f"The check {one.name} broke off ({reason}); the other checks were made. Please report the file."
        )
        found = Finding(text, file=audited.first_file, check=one.name, kind=MISSING)
        return [found] if one.across or function else found


def _of(audited, file):
    return audited.of_levels(audited.levels["file"] == file)
