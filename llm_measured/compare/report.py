"""The comparison of two sides as one dict, which terminal, Markdown, JSON and page print.

The dict's form is schema.json; VERSION changes with it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from llm_measured.audit.checks.finding import CONTRADICTION, IMPOSSIBLE, UNCOUNTED, Finding
from llm_measured.compare import borrowed, conditions, ratios, reading
from llm_measured.compare.limits import Limit
from llm_measured.compare.ratios import EQUAL, FASTER, SLOWER, UNKNOWN
from llm_measured.compare.reading import TOKENS, Level
from llm_measured.core import confidence

SCHEMA, VERSION = "llm-measured compare", 1
NOT_COMPARABLE, MIXED = "not comparable", "faster and slower"
MARGIN = 0.05
TITLES = {TOKENS: "output tokens/s", "ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "e2e"}


def compare(
    a: Sequence[str | Path],
    b: Sequence[str | Path],
    margin: float = MARGIN,
    allow: Sequence[str] = (),
    limits: Sequence[Limit] = (),
) -> dict[str, Any]:
    """The comparison of the files `a` with the files `b`, as schema.json describes it; ratios are B ÷ A.

    `margin`: a ratio within 1 ÷ (1 + margin) and 1 + margin counts as equal. ValueError with one sentence
    where a file cannot be read or an option is none.
    """
    if not 0 < margin < 1:
        raise ValueError(f"--margin is a share between 0 and 1, as 0.05, not {margin:g}.")
    unknown = [name for name in allow if name not in (*conditions.MEANING, "lengths")]
    if unknown:
        raise ValueError(
            f"--allow {unknown[0]} is no condition; there are lengths, {', '.join(conditions.MEANING)}."
        )
    sides: list[list[Level]] = []
    notes: list[str] = []
    alarms: list[dict[str, Any]] = []
    for name, paths in (("A", a), ("B", b)):
        levels, said, found = reading.side(paths)
        sides.append(levels)
        alarms += _alarms(name, found)
        notes += [f"{name}: {sentence}" for sentence in said]
    pairs, alone_a, alone_b = conditions.match(*sides)
    differing, unstated = conditions.differences(pairs, margin, allow)
    if unstated:
        notes.append(f"Neither side states: {', '.join(unstated)}.")
    blocked = [one.sentence for one in differing if one.effect == conditions.BLOCKS]
    compared = [level_of(pair, blocked, margin) for pair in pairs]
    _same_file(sides, compared)
    adjust(compared, margin)
    report = {
        "schema": SCHEMA,
        "version": VERSION,
        "margin": margin,
        "alarms": alarms,
        "a": _side(sides[0]),
        "b": _side(sides[1]),
        "conditions": [asdict(one) for one in differing],
        "levels": compared,
        "unmatched": {"a": alone_a, "b": alone_b},
        "limits": _limits(limits, compared),
        "notes": notes,
    }
    report["verdict"], report["sentence"] = overall(report)
    return {name: report[name] for name in ("schema", "version", "verdict", "sentence", *report)}


SAID = {
    IMPOSSIBLE: "has a figure that cannot be",
    UNCOUNTED: "has a figure that cannot be on one device, and does not state how many there were",
    CONTRADICTION: "contradicts itself",
}


def _alarms(side: str, findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """What the audit finds in the files of a side, one check once, what is impossible first."""
    said: dict[tuple[str, str], list[Finding]] = {}
    for one in sorted(findings, key=lambda one: list(SAID).index(one.kind)):
        said.setdefault((one.check, one.kind), []).append(one)
    return [
        {
            "side": side,
            "check": check,
            "kind": kind,
            "files": list(dict.fromkeys(one.file for one in same)),
            "sentence": f"{side} {SAID[kind]}: {same[0].sentence}",
        }
        for (check, kind), same in said.items()
    ]


def _side(levels: Sequence[Level]) -> dict[str, Any]:
    return {"files": list(dict.fromkeys(level.file for level in levels)), "levels": len(levels)}


def _same_file(sides, levels):
    """A result compared with itself is no comparison."""
    if {tuple(sorted(one.values.items())) for one in sides[0]} == {
        tuple(sorted(one.values.items())) for one in sides[1]
    }:
        for level in levels:
            level["reasons"] = ["A and B are one run: every figure is equal to the last digit."]
            level["comparable"] = False


def level_of(pair: conditions.Pair, blocked: Sequence[str], margin: float) -> dict[str, Any]:
    """One level of the report before its verdicts: `adjust` sets them, and needs the rows' `estimate`."""
    reasons = [*blocked, *(one.sentence for one in pair.blocked)]
    rows = [row for key in reading.ROWS if (row := _row(pair, key, margin))]
    return {
        "name": pair.name,
        "comparable": not reasons,
        "reasons": reasons,
        "runs": {"a": len(pair.a), "b": len(pair.b)},
        "requests": {"a": _requests(pair.a), "b": _requests(pair.b)},
        "rows": rows,
    }


def _requests(levels):
    counts = [level.requests for level in levels]
    return None if None in counts else min(counts)


def _row(pair: conditions.Pair, key: tuple[str, str], margin: float) -> dict[str, Any] | None:
    """One metric and statistic of a pair; None where a side has none, or its requests do not bound it."""
    metric, statistic = key
    sides = [[level for level in side if key in level.values] for side in (pair.a, pair.b)]
    if not all(sides) or not all(
        reading.bounded(statistic, level.requests) for side in sides for level in side
    ):
        return None
    a, b = ([level.values[key] for level in side] for side in sides)
    ratio, source, reason, planned = _estimated(sides, key, a, b)
    size = planned if ratio is None else ratio.scatter
    row: dict[str, Any] = {
        "metric": metric,
        "statistic": statistic,
        "name": f"{TITLES[metric]} {statistic}".strip(),
        "unit": "1/s" if metric == TOKENS else "s",
        "a": _geometric(a),
        "b": _geometric(b),
        "scatter": source,
        "reason": reason,
        "runs_needed": None if size is None else ratios.runs_needed(size, margin),
    }
    row["ratio"] = row["b"] / row["a"]
    low, high = ratio.interval() if ratio else (None, None)
    return row | {"low": low, "high": high, "estimate": ratio}


def _geometric(values):
    product = 1.0
    for value in values:
        product *= value ** (1 / len(values))
    return product


def _estimated(sides, key, a, b):
    """(ratio or None, source of the scatter between runs, why there is no ratio, scatter to plan with)."""
    if len(a) + len(b) > 2:
        ratio = ratios.of_repeats(a, b)
        reason = "" if ratio else "The repeats do not differ in the digits that the files print."
        return ratio, "repeats", reason, None
    one, other = sides[0][0], sides[1][0]
    kinds = [
        borrowed.kind(
            level.conditions["gpu"] or level.conditions["device"],
            level.conditions["tool"],
            level.conditions["device_times"] == 1,
        )
        for level in (one, other)
    ]
    found = [borrowed.scatter(kind, *key) for kind in kinds]
    if None in found:
        kind = kinds[found.index(None)]
        return None, "none", _no_scatter(kind, *key), borrowed.widest(*key)
    scatter = max(found, key=lambda each: each.scatter)
    within = [sd for level in (one, other) if (sd := reading.log_sd(level, key))]
    between = scatter.scatter
    if len(within) == 2 and scatter.beyond is not None:
        between = scatter.beyond
    return ratios.of_single(a[0], b[0], between, scatter.reruns, within), scatter.named(), "", None


def _no_scatter(kind: str | None, metric: str, statistic: str) -> str:
    if kind is None:
        return (
            "One run each, on a machine that no file names or no table knows: nothing says how far two "
            "runs of it lie apart."
        )
    known = borrowed.table().get((kind, metric, borrowed.part(statistic)))
    return (
        f"One run each, and of {kind}, {known.reruns if known else 0} reruns with that figure are known; "
        f"{borrowed.FEWEST} are needed to say how far two runs lie apart."
    )


def adjust(levels: Sequence[dict[str, Any]], margin: float) -> None:
    """Set verdicts and adjusted probabilities of the rows: one family is all rows of all levels, since a
    sweep of eight levels that are families of their own errs somewhere in one case of five."""
    for level in levels:
        for row in level["rows"]:
            row["p_holm"], row["verdict"] = None, UNKNOWN if level["comparable"] else NOT_COMPARABLE
    tested = [row for level in levels if level["comparable"] for row in level["rows"] if row["estimate"]]
    for row, p in zip(tested, confidence.holm([row["estimate"].p() for row in tested]).tolist()):
        row["p_holm"] = p
        row["verdict"] = ratios.verdict(row["estimate"], p, margin, row["metric"] == TOKENS)
        if row["verdict"] == UNKNOWN:
            row["reason"] = "The interval is too wide."


def _limits(limits, levels):
    """Every limit at every comparable level; Holm over all of them."""
    tested = [
        (limit, level, row)
        for limit in limits
        for level in levels
        for row in level["rows"]
        if level["comparable"] and (row["metric"], row["statistic"]) == limit.row and row["estimate"]
    ]
    unadjusted = [row["estimate"].p_beyond(limit.ratio, limit.above) for limit, _, row in tested]
    found = [
        {
            "limit": limit.text,
            "level": level["name"],
            "ratio": row["ratio"],
            "p_holm": p,
            "passed": p <= ratios.LEVEL,
        }
        for (limit, level, row), p in zip(tested, confidence.holm(unadjusted).tolist())
    ]
    untested = [limit for limit in limits if limit not in [one for one, _, _ in tested]]
    return found + [
        {"limit": limit.text, "level": "", "ratio": None, "p_holm": None, "passed": False}
        for limit in untested
    ]


def overall(report: dict[str, Any]) -> tuple[str, str]:
    """(verdict, one sentence) of all comparable levels."""
    usable = [level for level in report["levels"] if level["comparable"]]
    if not usable:
        reasons = [reason for level in report["levels"] for reason in level["reasons"]]
        if not report["levels"]:
            a, b = (", ".join(report["unmatched"][side][:4]) or "none" for side in "ab")
            reasons = [f"No level was measured on both sides: A has {a}; B has {b}."]
        reason = reasons[0].removeprefix("Not comparable: ")
        return NOT_COMPARABLE, f"Not comparable. {reason[0].upper()}{reason[1:]}"
    count = Counter(row["verdict"] for level in usable for row in level["rows"])
    total = sum(count.values())
    where = f"at {len(usable)} of {len(report['levels'])} levels" if len(report["levels"]) > 1 else ""
    tally = ", ".join(f"{count[word]} {word}" for word in (FASTER, SLOWER, EQUAL, UNKNOWN) if count[word])
    if count[FASTER] and count[SLOWER]:
        verdict, said = MIXED, "B is faster in some figures and slower in others"
    elif count[FASTER] or count[SLOWER]:
        verdict = FASTER if count[FASTER] else SLOWER
        said = f"B is {verdict} than A"
    elif count[EQUAL] and all(
        row["verdict"] == EQUAL for level in usable for row in level["rows"] if row["low"] is not None
    ):
        verdict, said = EQUAL, f"A and B are equal within {report['margin']:.0%}"
        said += " in every figure that can be tested" if count[UNKNOWN] else ""
    else:
        verdict, said = UNKNOWN, "Whether B is faster than A cannot be told"
    return verdict, f"{said}: of {total} figures {tally}{', ' + where if where else ''}."
