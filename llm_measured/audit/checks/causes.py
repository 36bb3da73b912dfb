"""Causes of a misfit: one row of causes.csv each, a substitution of figures.

A cause is named for a row only if
(a) after it every identity holds that one of its figures stands in, and none is broken;
(b) it mends at least one identity more than it has free numbers, or it is the same substitution with other
    factors in three rows (Little's law, which is a limit only, counts in no other way);
(c) what is left of each is within the identity's tolerance and at most 5 %, and the misfit was 15 % or more;
(d) no other cause does as well: else the misfit is reported with both, and no figure is corrected.
Users × pace, one device as all and one user as all are not named where there is one.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from llm_measured.audit import frame, quantities
from llm_measured.audit.checks import identities
from llm_measured.audit.checks.finding import CONTRADICTION, Finding, count, number
from llm_measured.audit.checks.identities import IDENTITIES, UNITS, Facts
from llm_measured.audit.frame import Audited

LEFT, LEAST = 0.05, 0.15  # what may be left of a misfit, and how large it has to be
LEAST_OF_MEANS = 0.4  # the same where means of unlike lengths are multiplied: less comes of the lengths alone
MIXED = 0.2  # of a logarithm, by which two counts of the tokens of an event may differ
ROWS, APART = 3, 0.02  # rows in which one substitution has factors that lie so far apart
CLOSE = 0.01  # to what a sum comes that shows a corrected figure well
SHOWN = 3  # other rows whose corrected figure is told
FAINT = 0.02  # what may be left where a row is one request only by assumption


@dataclass(frozen=True)
class Cause:
    """One cause: `check` under which it is reported, its words as a candidate and as a sentence, the figures
    that it changes (the first is shown), the new ones by `Facts`, the free numbers that it takes from the
    file, `where` it can be, and the figure that is its `evidence`, told with its sum."""

    check: str
    candidate: str
    sentence: str
    figures: tuple[str, ...]
    become: Callable[[Facts], dict[str, np.ndarray]]
    where: Callable[[Facts], np.ndarray] | None = None
    free: int = 0
    evidence: str = ""


def _gap_of_a_token(f):
    """The TPOT, else what is left of an answer's time, else of what the rate of one request gives."""
    seconds = frame.first(f["e2e"], f["tokens"] / f["single_rate"])
    return frame.first(f["tpot"], (seconds - f["ttft"]) / (f["tokens"] - 1))


def _same_events(f):
    """Rows in which as many tokens as a gap is too long came in each event."""
    tokens = f["itl"] / f["gap_of_a_token"] * f["arrivals"] / f["tokens"]
    return np.isnan(f["arrivals"]) | (np.abs(np.log(tokens)) < MIXED)


def _is_a_count(f):
    counts = np.array([f["total"], f["tokens"], f["requests"] * f["tokens"], f["users"] * f["tokens"]])
    return (np.abs(counts / f["rate"] - 1) < 0.002).any(axis=0)


def _parts_thousands(values):
    thousand = values * 1000
    return (values < 1000) & (np.abs(thousand - np.round(thousand)) < 1e-6) & (values % 1 > 0)


identities.DERIVED |= {
    "gap_of_a_token": _gap_of_a_token,
    "same_events": _same_events,
    "is_a_count": _is_a_count,
    "prompts_each": lambda f: frame.first(f["total_prompt"] / f["total"], f["prompt"] / f["tokens"]),
}
identities.KNOWN |= {"parts_thousands": _parts_thousands, "LEFT": LEFT, "MIXED": MIXED}


def _declared(row: dict[str, str]) -> Cause:
    """The cause of a row of causes.csv, whose `become` has a formula for each figure."""
    sides = [part.partition(" = ") for part in row["become"].split("; ")]
    formulas = {name.strip(): identities.formula(text) for name, _, text in sides}
    return Cause(
        row["check"],
        row["candidate"],
        row["sentence"],
        tuple(row["figures"].split()),
        lambda f: {name: of(f) for name, of in formulas.items()},
        identities.formula(row["where"]) if row["where"] else None,
        int(row["free"]),
        row["evidence"],
    )


CAUSES = [_declared(row) for row in quantities.rows_of("causes.csv")]
# A cause of one stands before what follows from it.
CHECKS = list(dict.fromkeys(cause.check for cause in CAUSES))


ASSUMED = np.array([one.assumed for one in IDENTITIES])
LIMITS = np.array([one.of_load for one in IDENTITIES])
# A bound by half of the gaps is no evidence of a cause.
BOUNDS = np.array([one.most and one.check == "tokens_per_event" for one in IDENTITIES])
# A second count and a limit have to come out equal, or nothing was explained.
EQUAL = np.array([one.of_load or one.check == "counted_twice" for one in IDENTITIES])


@dataclass(frozen=True)
class Misfits:
    """The rows of a file in which an identity does not hold: their figures, the quotients and tolerances of
    all identities and which are wrong (one row per identity), and the file of each."""

    f: Facts
    values: np.ndarray
    tolerance: np.ndarray
    wrong: np.ndarray
    files: list[str]

    @functools.cached_property
    def named(self) -> Facts:
        """The figures, with what formulas derive of them."""
        return identities.Named(self.f)

    def distance(self, k: int, row: int) -> float:
        """How far an identity is from holding, as a logarithm."""
        return abs(float(np.log(self.values[k, row])))

    def largest(self, row: int) -> int:
        """The identity that misfits most in a row."""
        return max(map(int, np.flatnonzero(self.wrong[:, row])), key=lambda k: self.distance(k, row))


def misfits(audited: Audited) -> Misfits:
    """The rows of `audited` that have a misfit."""
    wrong = identities.misfits(audited)
    rows = np.flatnonzero(wrong.any(axis=0))
    f = {name: values[rows] for name, values in identities.facts(audited).items()}
    files = audited.levels.set_index("level")["file"].reindex(f["row"]).tolist()
    tolerance = identities.tolerances(audited)[:, rows]
    return Misfits(f, identities.quotients(f), tolerance, wrong[:, rows], files)


@dataclass(frozen=True)
class Mend:
    """What a cause does in each row of `Misfits`: whether it may be named there, whether it would mend it but
    for (b) or for the size of the misfit, the factor of its first figure, the figures that it makes, what is
    left of the misfits, and how many more are mended than numbers were taken for it."""

    cause: Cause
    rows: np.ndarray
    possible: np.ndarray
    fits: np.ndarray
    factor: np.ndarray
    changed: Facts
    left: np.ndarray
    margin: np.ndarray


@np.errstate(all="ignore")
def _mend(of: Misfits, cause: Cause) -> Mend | None:
    """Try a cause on every row; None where it changes nothing."""
    f, wrong, changed = of.named, of.wrong, dict(of.f)
    usable = np.ones(wrong.shape[1], bool) if cause.where is None else cause.where(f).astype(bool)
    touched = np.zeros_like(usable)
    factor = np.full(len(usable), np.nan)
    for name, values in cause.become(f).items():
        hit = usable & np.isfinite(values) & (values > 0) & np.isfinite(f[name])
        changed[name] = np.where(hit, values, f[name])
        factor = frame.first(factor, np.where(hit & (f[name] > 0), values / f[name], np.nan))
        touched |= hit
    if not touched.any():
        return None
    after = identities.quotients(changed)
    unknown = np.isnan(after)
    moved = ~np.isclose(after, of.values, rtol=1e-9, equal_nan=True) & ~np.isnan(of.values) & ~unknown
    holds = ~identities.off(after, np.minimum(of.tolerance, LEFT)) | unknown
    loosely = ~identities.off(after, of.tolerance) | unknown
    near = np.abs(np.log(after)) <= LEFT
    # (a) all that one of its figures stands in, and none is broken
    stands = np.array([bool({*one.terms} & {*cause.figures}) for one in IDENTITIES])
    whole = (holds | ~wrong | ~stands[:, None]).all(axis=0)
    whole &= touched & (loosely | wrong | ~moved)[~ASSUMED].all(axis=0)
    # (c) what is left, and how large the misfit was
    bounded = np.array([one.bounded for one in IDENTITIES])[:, None] & (f["equal"] != 1)
    large = wrong & moved & identities.off(of.values, np.where(bounded, LEAST_OF_MEANS, LEAST))
    good = wrong & moved & holds & ~BOUNDS[:, None] & (near | ~EQUAL[:, None])
    sure = good & large
    mended = sure[~ASSUMED & ~LIMITS].sum(axis=0)
    # (b) What is a limit or assumed has to come out equal, and in three rows with other factors.
    equal = (large & near)[LIMITS].any(axis=0) | (large & (np.abs(np.log(after)) <= FAINT))[ASSUMED].any(
        axis=0
    )
    enough = mended >= cause.free + 1
    weak = whole & ~enough & (mended + equal >= max(cause.free, 1))
    factors = np.sort(factor[weak & np.isfinite(factor)])
    several = len(factors) >= ROWS and 1 + np.sum(np.diff(np.log(factors)) > APART) >= ROWS
    rows = whole & (enough | (weak & several))
    # What would mend the row, were it not for a number that is taken from the very misfit.
    possible = whole & (mended >= 1)
    fits = whole & good[~ASSUMED & ~LIMITS].any(axis=0)
    left = np.where(sure, np.abs(np.log(after)), 0).max(axis=0, initial=0)
    margin = mended + equal - cause.free
    return Mend(cause, _mostly(of, rows), possible, fits, factor, changed, left, margin)


def _mostly(of, rows):
    """`rows` without those of requests, where most requests with a misfit are not among them."""
    requests = of.f["request"] == 1
    return rows & ~requests if requests.any() and rows[requests].mean() < 0.5 else rows


Named = dict[str, list[tuple[int, Mend]]]  # cause -> (row, what it does)


def settled(of: Misfits) -> tuple[Named, dict[int, list[str]]]:
    """({cause: rows that it is named for}, {row that misfits without one: causes that may be})."""
    mends = [mend for cause in CAUSES if (mend := _mend(of, cause))]
    able: dict[int, dict[str, Mend]] = {}
    for row in range(of.wrong.shape[1]):
        can = sorted((mend for mend in mends if mend.rows[row]), key=lambda one: one.left[row])
        most = max((mend.margin[row] for mend in can), default=0)
        able[row] = {}
        for mend in can:
            if mend.margin[row] == most:
                able[row].setdefault(mend.cause.candidate, mend)
    # A row in which two causes do as well may be settled by the others, in which only one of them does.
    sole = {name for candidates in able.values() if len(candidates) == 1 for name in candidates}
    named: Named = {}
    open_rows: dict[int, list[str]] = {}
    for row, candidates in able.items():
        left = [name for name in candidates if len(candidates) == 1 or name in sole]
        # A small misfit has the cause that larger ones of the file have.
        same = [mend for mend in mends if mend.fits[row] and mend.cause.candidate in sole]
        if len(left) == 1:
            named.setdefault(left[0], []).append((row, candidates[left[0]]))
        elif not candidates and len(same) == 1:
            named.setdefault(same[0].cause.candidate, []).append((row, same[0]))
        elif of.wrong[~ASSUMED, row].any():
            others = [_as_candidate(mend, row) for mend in mends if mend.possible[row]]
            open_rows[row] = [_as_candidate(mend, row) for mend in candidates.values()] or others
    return named, open_rows


def findings(audited: Audited) -> list[Finding]:
    """One finding for each cause that may be named, and one for each check whose identities misfit without a
    cause: the largest misfit leads."""
    if not identities.misfits(audited).any():
        return []
    of = misfits(audited)
    named, open_rows = settled(of)
    explained = [row for hits in named.values() for row, _ in hits]
    return [_named(of, hits) for hits in named.values()] + _unnamed(of, open_rows, explained)


def _as_candidate(mend, row):
    """A cause in words, with the number that it takes from the misfit."""
    times = ""
    if mend.cause.check == "tokens_per_event":
        times = f", {number(1 / mend.factor[row])} tokens each"
    return mend.cause.candidate + times


def shown(f: Facts, name: str, row: int) -> str:
    """A figure with its unit."""
    value = float(f[name][row])
    unit = UNITS.get(name, "")
    if value != value:
        return "what the other figures give"
    if unit == "ms":
        return f"{number(value * 1e3, 4)} ms"
    exact = f"{value:,.10g}"
    text = exact if len(exact.replace(",", "")) <= 6 else number(value, 4)
    return f"{text} {unit}".strip()


def _sum(f, k, row):
    """Both sides of an identity in words, with the figures of the row."""
    one = IDENTITIES[k]
    names = {name: shown(f, name, row) for name in (*identities.COLUMNS, *identities.TIMES, "median_itl")}
    left, right = float(one.left(f)[row]), float(one.right(f)[row])
    answer = float(identities.answer(f)[row])
    seconds = answer if answer == answer else float(f["duration"][row])
    pace = number(float(f["tokens"][row]) / seconds, 4) if seconds > 0 else ""
    words = {"left": number(left, 4), "right": number(right, 4), "answer": f"{number(answer, 4)} s"}
    words |= {"seconds": f"{number(seconds, 4)} s", "pace": pace}
    return ", and ".join(side.format(**names | words) for side in one.words)


def _named(of, hits):
    """The finding of a cause: the row that misfits most, its sum, and what its figures become."""
    row, mend = max(hits, key=lambda hit: of.distance(of.largest(hit[0]), hit[0]))
    cause, f = mend.cause, of.f
    of_evidence = (n for n, one in enumerate(IDENTITIES) if of.wrong[n, row] and cause.evidence in one.terms)
    k = next(of_evidence, of.largest(row))
    changes = (name for name in cause.figures if abs(mend.changed[name][row] - f[name][row]) > 0)
    figure = next(changes, None)
    change, undone, sentence = "", {}, cause.sentence
    if figure:
        old, new = shown(f, figure, row), shown(mend.changed, figure, row)
        change = f"{old} become {new}: then {_sum(mend.changed, _then(of, mend, figure, row), row)}."
        others = [(shown(f, figure, n), shown(one.changed, figure, n)) for n, one in hits if n != row]
        likewise = [f"{was} become {becomes}" for was, becomes in dict(others).items()]
        change += f" Likewise {', '.join(likewise[:SHOWN])}." if likewise else ""
        undone = {"published": float(f[figure][row]), "becomes": float(mend.changed[figure][row])}
    if figure and cause.check == "tokens_per_event":
        factor = f[figure][row] / mend.changed[figure][row]
        tokens = f"several tokens, {number(factor, 3)}"
        if factor < 1:
            tokens = f"{'half' if abs(factor - 0.5) < 0.03 else number(factor, 2)} a token"
        sentence = f"A gap is that of {tokens}, not of one"
    many = f" ({count(len(hits), 'row')})" if len(hits) > 1 else ""
    if cause.evidence == "prompt" and f["prompt"][row] > 0:
        many = f", with a prompt of {shown(f, 'prompt', row)} tokens each{many}"
    return Finding(
        f"{sentence}: {_sum(f, k, row)}{many}.",
        change,
        numbers={"quotient": float(of.values[k, row]), "rows": len(hits)},
        undone=undone,
        levels=sorted({float(f["row"][one]) for one, _ in hits}),
        file=of.files[row],
        check=cause.check,
        kind=CONTRADICTION,
    )


def _then(of, mend, figure, row):
    """The identity whose sum shows a corrected figure best: one that it mends, of as many terms as may be."""
    after = identities.quotients(mend.changed)[:, row]
    known = [k for k, one in enumerate(IDENTITIES) if figure in one.terms and after[k] == after[k]]
    near = {k: abs(np.log(after[k])) < CLOSE for k in known}
    return max(known, key=lambda k: (not ASSUMED[k], near[k], of.wrong[k, row], len(IDENTITIES[k].terms)))


def _unnamed(of, candidates, explained):
    """One finding per check of what no cause explains alone; the largest misfit leads, with the candidates
    where there are some."""
    wrong = of.wrong & ~ASSUMED[:, None]
    wrong[:, explained] = False
    leads = []
    for check in dict.fromkeys(one.check for one in IDENTITIES):
        hit = wrong & np.array([one.check == check for one in IDENTITIES])[:, None]
        if hit.any():
            pairs = zip(*map(np.ndarray.tolist, np.nonzero(hit)))
            leads.append((*max(pairs, key=lambda pair: of.distance(*pair)), hit))
    found: list[Finding] = []
    for k, row, hit in sorted(leads, key=lambda lead: -of.distance(*lead[:2])):
        one, rows = IDENTITIES[k], int(hit.any(axis=0).sum())
        others = [IDENTITIES[n].name for n in np.flatnonzero(hit.any(axis=1)) if n != k]
        more = f" Nor does this hold: {'; '.join(others)}." if others else ""
        several, change = list(dict.fromkeys(candidates.get(row, []))), one.hint
        if several:
            hint = f" {change}" if change != identities.Identity.hint else ""
            change = (
                f"May be {' or '.join(several)}; the file does not tell, and nothing was corrected.{hint}"
            )
        sentence = (
            f"{one.name[0].upper()}{one.name[1:]} does not hold: {_sum(of.f, k, row)}, "
            f"{number(np.exp(of.distance(k, row)))} times as much"
            + (f" ({count(rows, 'row')})" if rows > 1 else "")
            + f".{more}"
        )
        levels = sorted({float(level) for level in of.f["row"][hit.any(axis=0)]})
        numbers = {"quotient": float(of.values[k, row]), "rows": rows}
        own = Finding(
            sentence,
            change,
            numbers=numbers,
            levels=levels,
            file=of.files[row],
            check=one.check,
            kind=CONTRADICTION,
        )
        # A smaller misfit that shares a figure with a larger one in the same rows may follow from it.
        for larger in found:
            if {*levels} <= {*larger.levels} and {*one.terms} & {
                *IDENTITIES[larger.numbers["identity"]].terms
            }:
                own.consequence_of = own.consequence_of or larger.check
        own.numbers["identity"] = k
        found.append(own)
    return found
