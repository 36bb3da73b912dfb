"""The comparison of two sides as one dict, which terminal, Markdown and JSON print.

The dict's form is schema.json; VERSION changes with it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from llm_measured.audit import quantities
from llm_measured.audit.checks.finding import CONTRADICTION, IMPOSSIBLE, UNCOUNTED, Finding
from llm_measured.compare import borrowed, conditions, ratios, reading
from llm_measured.compare.limits import Limit
from llm_measured.compare.ratios import EQUAL, FASTER, SLOWER, UNKNOWN
from llm_measured.compare.reading import Level
from llm_measured.core import confidence
from llm_measured.core.plausibility import digits

SCHEMA, VERSION = "llm-measured compare", 1
NOT_COMPARABLE, MIXED = "not comparable", "faster and slower"
MARGIN = 0.05
QUANTITIES = {one.word: one for one in quantities.compared()}
BEYOND = "; the difference is beyond the widest scatter known"
FIRST = 0.8  # of 5 %, for the primary figures
CACHE_RATIO, CACHE_TOKENS = 4, 500  # a TTFT so many times as short, of a prompt of so many tokens
ALIKE = 1.25  # by which other figures may differ beside it


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
    differing, unstated = conditions.differences(pairs, sides, margin, allow)
    if unstated:
        notes.append(f"Neither side states: {', '.join(unstated)}.")
    blocked = [one.sentence for one in differing if one.effect == conditions.BLOCKS]
    compared = [level_of(pair, blocked, margin) for pair in pairs]
    _same_file(sides, compared)
    adjust(compared, margin)
    if in_doubt(alarms):
        for row in (row for level in compared for row in level["rows"]):
            row["runs_needed"] = None
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


def in_doubt(alarms: Sequence[dict[str, Any]]) -> bool:
    """Whether each side has a figure that cannot be or contradicts another: more runs tell nothing then."""
    return {one["side"] for one in alarms if one["kind"] != UNCOUNTED} == {"A", "B"}


def _side(levels: Sequence[Level]) -> dict[str, Any]:
    return {"files": list(dict.fromkeys(level.file for level in levels)), "levels": len(levels)}


def _same_file(sides, levels):
    """A result compared with itself is no comparison: every figure is equal, and one has many digits."""
    figures = [sorted(tuple(sorted(one.values.items())) for one in side) for side in sides]
    exact = any(digits(value) >= reading.FINE for one in figures[0] for _, value in one)
    if figures[0] == figures[1] and exact:
        number = len({key for one in figures[0] for key, _ in one})
        for level in levels:
            reason = f"A and B are one run: all {number} figures of every level are equal to the last digit."
            level["reasons"] = [reason]
            level["comparable"] = False


def level_of(pair: conditions.Pair, blocked: Sequence[str], margin: float) -> dict[str, Any]:
    """One level of the report before its verdicts: `adjust` sets them, and needs the rows' `estimate`."""
    reasons = [*blocked, *(one.sentence for one in pair.blocked)]
    rows = [row for key in reading.ROWS if (row := _row(pair, key, margin))]
    if not rows:
        of_sides = [{key[0] for one in side for key in one.values} for side in (pair.a, pair.b)]
        has = [sorted(QUANTITIES[word].short for word in words) for words in of_sides]
        reasons.append(f"No figure is on both sides: A has {', '.join(has[0])}; B has {', '.join(has[1])}.")
    first = _primary(pair, rows)
    for row in rows:
        row["primary"] = row is first
    return {
        "name": pair.name,
        "comparable": not reasons,
        "reasons": reasons,
        "runs": {"a": len(pair.a), "b": len(pair.b)},
        "requests": {"a": _requests(pair.a), "b": _requests(pair.b)},
        "rows": rows,
        "notes": [*_per_device(pair, first), *_cache(pair, rows)],
    }


def _primary(pair, rows):
    """The row that is tested first: the one that says most, of arrivals at a rate of their own the time."""
    if any(level.conditions["request_rate"] for level in pair.a):
        times = [row for name in ("e2e", "tpot", "ttft") for row in rows if row["metric"] == name]
        if times:
            return times[0]
    return rows[0] if rows else None


def _per_device(pair, row):
    """The ratio of one device's rate, where the sides had different numbers of them."""
    counts = [conditions.devices(side) for side in (pair.a, pair.b)]
    if row is None or row["unit"] != "1/s" or None in counts or counts[0] == counts[1]:
        return
    each = [row[side] / count for side, count in zip("ab", counts)]
    yield (
        f"{row['name']} per device: {each[0]:.4g} of {counts[0]:g} against {each[1]:.4g} of {counts[1]:g}, "
        f"{each[1] / each[0]:.3f} times."
    )


def _cache(pair, rows):
    """What a TTFT says that is many times as short while all else is equal."""
    prompts = [level.conditions["prompt_tokens"] for level in (*pair.a, *pair.b)]
    if not all(prompts) or min(prompts) < CACHE_TOKENS:
        return
    paces = [row["ratio"] for row in rows if row["metric"] in ("tpot", "itl")]
    for row in rows:
        short = max(row["ratio"], 1 / row["ratio"]) >= CACHE_RATIO
        if row["metric"] == "ttft" and short and all(1 / ALIKE < ratio < ALIKE for ratio in paces):
            side = "B" if row["ratio"] < 1 else "A"
            yield (
                f"The {row['name']} of {min(prompts):,.0f} prompt tokens differs {CACHE_RATIO} times and "
                f"more, and the pace does not: {side} may have read its prompts from a prefix cache."
            )
            return


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
        "name": f"{QUANTITIES[metric].short} {statistic}".strip(),
        "unit": QUANTITIES[metric].unit,
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
    if len(a) + len(b) > 2 and (ratio := ratios.of_repeats(a, b)):
        return ratio, "repeats", "", None
    one, other = sides[0][0], sides[1][0]
    means = _geometric(a), _geometric(b)
    widest = borrowed.widest(*key)
    beyond = ratios.of_single(*means, widest, borrowed.FLOOR_FREEDOM).p() <= ratios.LEVEL
    more = f"{BEYOND}, {widest:.0%}" if beyond else ""
    printed = [level.printed.get(key) for level in (one, other)]
    if all(printed):
        return ratios.of_printed(*means, *printed), borrowed.PRINTED + more, "", None
    kinds = [
        borrowed.kind(
            level.conditions["gpu"],
            level.conditions["tool"],
            level.conditions["device_times"] == 1,
        )
        for level in (one, other)
    ]
    within = [sd for level in (one, other) if (sd := reading.log_sd(level, key))]
    scatter = max((borrowed.scatter(kind, *key) for kind in kinds), key=lambda each: each.scatter)
    between = scatter.scatter
    if len(within) == 2 and scatter.beyond is not None:
        between = scatter.beyond
    return ratios.of_single(*means, between, scatter.freedom, within), scatter.source + more, "", None


def adjust(levels: Sequence[dict[str, Any]], margin: float) -> None:
    """Set verdicts and adjusted probabilities of the rows.

    The primary figure of each level is tested by Holm over the levels, at FIRST of 5 %; all other rows are a
    family of their own at the rest, and at all of it in levels whose primary figure is told (the fallback
    procedure; Wiens, Pharmaceutical Statistics 2, 2003). So equals are called different in 5 % at most.
    """
    for level in levels:
        for row in level["rows"]:
            row["p_holm"], row["verdict"] = None, UNKNOWN if level["comparable"] else NOT_COMPARABLE
    usable = [level for level in levels if level["comparable"]]
    tested = [(k, row) for k, level in enumerate(usable) for row in level["rows"] if row["estimate"]]
    first = [(k, row) for k, row in tested if row["primary"]]
    others = [(k, row) for k, row in tested if not row["primary"]]
    told = set()
    for family in (first, others):
        adjusted = confidence.holm([row["estimate"].p() for _, row in family]).tolist() if family else []
        for (k, row), p in zip(family, adjusted):
            share = FIRST if row["primary"] else 1 - FIRST
            row["p_holm"] = min(p if k in told else p / share, 1.0)
            if row["primary"] and row["p_holm"] <= ratios.LEVEL:
                told.add(k)
            more_is_better = QUANTITIES[row["metric"]].unit != "s"
            row["verdict"] = ratios.verdict(row["estimate"], row["p_holm"], margin, more_is_better)
            if row["verdict"] == UNKNOWN:
                row["reason"] = _why_unknown(row, len(family))


def by_itself(row: dict[str, Any]) -> bool:
    """Whether a row's own interval leaves out 1, though it is not told among all that are tested."""
    return row["verdict"] == UNKNOWN and row["low"] is not None and not row["low"] <= 1 <= row["high"]


def _why_unknown(row, number):
    if by_itself(row):
        return f"Its own interval leaves out 1; among the {number} figures tested together it is not told."
    return "The interval holds 1."


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
        said = [reason.removeprefix("Not comparable: ") for reason in dict.fromkeys(reasons)]
        return NOT_COMPARABLE, " ".join(["Not comparable.", *(one[0].upper() + one[1:] for one in said)])
    count = Counter(row["verdict"] for level in usable for row in level["rows"])
    total = sum(count.values())
    where = f", at {len(usable)} of {len(report['levels'])} levels" if usable != report["levels"] else ""
    alone = sum(by_itself(row) for level in usable for row in level["rows"])
    words = {word: count[word] for word in (FASTER, SLOWER, EQUAL)}
    words |= {"differ by themselves only": alone, UNKNOWN: count[UNKNOWN] - alone}
    tally = ", ".join(f"{number} {word}" for word, number in words.items() if number)
    if count[FASTER] and count[SLOWER]:
        verdict, said = MIXED, "B is faster in some figures and slower in others"
    elif count[FASTER] or count[SLOWER]:
        verdict = FASTER if count[FASTER] else SLOWER
        said = f"B is {verdict} than A{_beyond(usable)}"
    elif count[EQUAL] and all(
        row["verdict"] == EQUAL for level in usable for row in level["rows"] if row["low"] is not None
    ):
        verdict, said = EQUAL, f"A and B are equal within {report['margin']:.0%}"
        said += " in every figure that can be tested" if count[UNKNOWN] else ""
    else:
        verdict, said = UNKNOWN, "Whether B is faster than A cannot be told"
    return verdict, f"{said}: of {total} figures {tally}{where}."


def _beyond(levels):
    """At how many levels the first figure differs by more than any scatter that is known."""
    beyond = [row for level in levels for row in level["rows"] if row["primary"] and BEYOND in row["scatter"]]
    if not beyond:
        return ""
    where = "" if len(beyond) == len(levels) else f"at {len(beyond)} of {len(levels)} levels "
    return f", {where}whatever the scatter"
