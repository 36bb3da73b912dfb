"""The one table of quantities that a benchmark may publish (quantities.csv), and what a column's name means
by it.

A row is a quantity: `word` (its column in the frame; `tables` says in which), `unit`, `scope` (request, user,
device or system), the `statistics` that it comes in, `kind` (asked, came, total, mean, peak, retokenized;
text; setting: one without a column of its own; noted: a text that a file states once; metadata: what changes
nothing of a result; row: a heading or a cell that says what a row or its number is), `setting` (whether two
results that differ in it are two levels), `row` (what its column makes of a row: a request, a level, either),
`longest` (s, up to which a time without a unit is taken as seconds where no arithmetic decides), `rank` (of a
figure that two results are compared in: the first that is there says most), `names` (patterns of a whole
name, separated by spaces), `parts` (words from which names of rates are put together), `title` in words and
`short` for tables.
"""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

STATISTICS = {
    "": "",
    **dict.fromkeys(("mean", "avg", "average"), "_mean"),
    **dict.fromkeys(("std", "stddev", "sd"), "_sd"),
    **dict.fromkeys(("median", "med"), "_p50"),
    **dict.fromkeys(("min", "minimum", "lowest"), "_min"),
    **dict.fromkeys(("max", "maximum", "highest"), "_max"),
}
PERCENTILE = re.compile(r"p?(50|90|95|99)\.0+|p(50|90|95|99)|(50|90|95|99)(?:th|p)")
ANY_PERCENTILE = re.compile(r"p(\d\d)(?:\.0+)?|(\d\d)(?:\.0+)?(?:th|p)|(10|25|50|75|90|95|99)(?:\.0+)?")
UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanoseconds"), 1e-9),
    **dict.fromkeys(("min", "minutes"), 60.0),
    **dict.fromkeys(("h", "hours"), 3600.0),
}
PER_TOKEN = {"ms_per_token": 1e-3, "ms_per_tok": 1e-3, "s_per_token": 1.0, "seconds_per_token": 1.0}
# Rates whose name is put together from parts: how much of what in a second, of which tokens, of whom.
PER_SECOND = re.compile(
    r"(?P<tokens>tokens?_per_s|toks?_per_s|t_per_s|tps)|(?P<requests>(?:requests?|reqs?|quer(?:y|"
    r"ies)|samples?|inferences?)_per_s|rps)"
)
SAYS_NOTHING = set(
    "throughput tput rate speed token tokens request requests achieved completed system per measured actual "
    "aggregate aggregated".split()
)
OF_ALL = {"all", "aggregate", "combined", "overall", "total"}  # whatever else a scope names
OF_EACH = {"each", "one", "single"}
CAMEL = re.compile(r"(?:[a-z]\w*_)?[a-z]+(?:[A-Z][a-z0-9]+)+")  # as in JSON: avgTtftMs
NAME_CHARS = 120  # of a column's name that are looked at
IN_SECONDS = ("sent_s", "late_mean_s")  # without a unit these are taken as seconds
CLOCKED = ("prefill_s", "decode_s")  # without a unit the bare word may be a rate, a count or a text as well


@dataclass(frozen=True)
class Quantity:
    """A row of quantities.csv."""

    word: str
    short: str
    tables: tuple[str, ...]
    unit: str
    scope: str
    statistics: tuple[str, ...]
    kind: str
    setting: bool
    row: str
    longest: float
    rank: int
    names: tuple[str, ...]
    parts: frozenset[str]
    title: str

    @property
    def timed(self) -> bool:
        """Whether its numbers are times, which a column may print in any unit."""
        return self.unit == "s"

    @property
    def told(self) -> bool:
        """Whether it is a text."""
        return self.kind in ("text", "noted")

    @property
    def column(self) -> str:
        """Its column in a table of requests."""
        return f"{self.word}_s" if self.timed and self.statistics else self.word

    def columns(self) -> dict[str, str]:
        """{column of a table of load levels: what it is in words}."""
        if not self.statistics:
            return {self.word: self.title}
        ends = ["", *(f"_{statistic}" for statistic in self.statistics)]
        after = "_s" if self.timed else ""
        return {
            f"{self.word}{end}{after}": f"{self.title}, {end[1:] or 'statistic not stated'}" for end in ends
        }


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a table of this package."""
    text = (resources.files("llm_measured.audit") / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def table() -> dict[str, Quantity]:
    """{word: Quantity} of quantities.csv, in its order."""
    found = {}
    for row in rows_of("quantities.csv"):
        typed: dict[str, Any] = {name: tuple(row[name].split()) for name in ("tables", "statistics", "names")}
        typed |= {"setting": row["setting"] == "yes", "rank": int(row["rank"] or 0)}
        typed |= {"longest": float(row["longest"] or 0), "parts": frozenset(row["parts"].split())}
        found[row["word"]] = Quantity(**row | typed)
    return found


def columns(of: str, text: bool) -> dict[str, str]:
    """{column: title} of the table `of` (levels, requests) of the frame: its texts, or its numbers."""
    found: dict[str, str] = {}
    for one in table().values():
        if of not in one.tables or one.told != text:
            continue
        if of == "requests" and one.statistics:
            found[one.column] = one.title
        else:
            found |= one.columns()
    return found


def compared() -> list[Quantity]:
    """The quantities that two results are compared in, the one that says most first."""
    return sorted((one for one in table().values() if one.rank), key=lambda one: one.rank)


@cache
def is_measured(word: str) -> bool:
    """Whether a column of the frame is a time or a rate that a benchmark measures."""
    rates = [one.word for one in table().values() if one.unit == "1/s" and one.names and not one.setting]
    return word.startswith(("ttft", "tpot", "itl", "e2e", *rates))


def is_time(word: str) -> bool:
    """Whether a column of the frame holds times, s."""
    return word.endswith("_s") and "per_s" not in word


def kind(word: str) -> str:
    """The kind of a quantity, empty of a statistic of one."""
    return table()[word].kind if word in table() else ""


def longest() -> dict[str, float]:
    """{beginning of the names of a time's columns: `longest` s} of the times that may come without a unit."""
    return {one.word.removesuffix("_s"): one.longest for one in table().values() if one.longest}


def rows_are(columns: Iterable[str]) -> set[str]:
    """What columns, none of them a statistic, make of the rows of their table: requests, levels, either."""
    return {one.row for one in table().values() if one.column in set(columns)} - {""}


def says(word: str, text: str) -> bool:
    """Whether a heading or a cell is one of the names of `word`, a row of the kind row."""
    plain = snaked(text)
    return any(re.fullmatch(name, plain) for name in table()[word].names)


def _meant() -> list[Quantity]:
    """The quantities that a name may mean."""
    return [one for one in table().values() if one.kind != "row"]


def _is_plain(one: Quantity, name: str) -> bool:
    return not one.timed and not one.statistics and bool(re.fullmatch(r"\w+", name))


@cache
def _plain_names() -> dict[str, str]:
    """Name -> word of every name that is no pattern; the first row that has a name keeps it."""
    return {name: one.word for one in reversed(_meant()) for name in one.names if _is_plain(one, name)}


@cache
def _patterns() -> list[tuple[str, re.Pattern]]:
    patterns = {one.word: [name for name in one.names if not _is_plain(one, name)] for one in _meant()}
    return [
        (word, re.compile("|".join(f"(?:{name})" for name in some)))
        for word, some in patterns.items()
        if some
    ]


def names() -> list[str]:
    """Every name that is no pattern, to find the nearest one of a name that is not known."""
    return list(_plain_names())


def snaked(name: str) -> str:
    """A heading as the table writes names: small letters, `_per_` for a stroke, underscores."""
    plain = str(name)[:NAME_CHARS]
    if CAMEL.fullmatch(plain):
        plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain)
    plain = re.sub(r"\b(50|90|95|99) ?%|\bp\((\d\d)\)", r"p\1\2", plain.lower()).replace("/", "_per_")
    plain = re.sub(r"[^a-z0-9.]+", "_", plain).strip("_.").replace("._", "_")
    plain = re.sub(r"_per_(second|sec|s)(?![a-z0-9])", "_per_s", plain).replace("tok_per_s", "tokens_per_s")
    plain = re.sub(r"_(ms|s)_per_tok(en)?$", r"_\1", plain) if plain.startswith(("tpot", "itl")) else plain
    return re.sub(r"^tokens?_per_s$", "tokens_per_s", plain)


@cache
def meaning(name: str) -> tuple[str, float | None] | None:
    """(word of the table with its statistic, factor to its unit) of a column's name, None where it means
    nothing here; factor None: a time without a unit in its name."""
    plain = snaked(name)
    by_name = _plain_names()
    if plain in by_name:
        return by_name[plain], 1
    if plain in PER_TOKEN:
        return "tpot_s", PER_TOKEN[plain]
    for word, pattern in _patterns():
        if not table()[word].timed and pattern.fullmatch(plain):
            return word, 1
    bare, statistic = _statistic(plain)
    rate = bare.endswith("_per_s") or "_per_s_per_" in bare
    bare, unit = (bare, 1.0) if rate else _unit(bare)
    if not statistic:
        bare, statistic = _statistic(bare)
    for word, pattern in _patterns():
        if pattern.fullmatch(bare):
            return _with_statistic(table()[word], statistic, unit, bare)
    if bare in by_name:
        # A mean or percentile of rates is one over requests.
        if statistic not in ("", "_sd") and by_name[bare] == "output_tokens_per_s":
            return f"request_tokens_per_s{statistic}", 1
        if statistic == "_mean":
            return by_name[bare], 1
    return _rate(plain)


def _with_statistic(
    one: Quantity, statistic: str, unit: float | None, bare: str
) -> tuple[str, float | None] | None:
    """The word of a quantity in a statistic; None for a statistic that the table does not have of it."""
    if bare == "total" and unit is None:  # of anything
        return None
    if one.statistics:
        if statistic[1:] and statistic[1:] not in one.statistics:
            return None
        return f"{one.word}{statistic}{'_s' if one.timed else ''}", unit if one.timed else 1
    if statistic == "_sd":
        return None
    if not one.timed:
        return one.word, 1
    if one.word in IN_SECONDS and unit is None:
        unit = 1.0
    if one.word in CLOCKED and unit is None and not bare.endswith(("_time", "_duration")):
        return None
    if one.word == "late_mean_s":
        ends = {"_p99": "late_p99_s", "_mean": "late_mean_s"}
        return ends.get(statistic, "late_s"), unit
    return one.word, unit


def _rate(plain: str) -> tuple[str, float | None] | None:
    """The meaning of a rate whose name is put together from parts, None where a part means nothing here or
    two parts say different things."""
    bare, statistic = _statistic(plain)
    unit = PER_SECOND.search(bare)
    if not unit or statistic == "_sd" or (bare[: unit.start()] + bare[unit.end() :]).count("per_s"):
        return None
    words = [w for w in (bare[: unit.start()] + "_" + bare[unit.end() :]).split("_") if w]
    composed = {one.word: one.parts for one in table().values() if one.parts}
    whom = {
        word
        for word in ("request_tokens_per_s", "output_tokens_per_s_per_device")
        if composed[word] & {*words}
    }
    which = {word for word, parts in composed.items() if parts & {*words}} - whom
    if {"prompt", "eval"} <= set(words):  # llama.cpp's word for reading the prompt
        which -= {"output_tokens_per_s"}
    known = SAYS_NOTHING.union(*composed.values())
    # "tokens/s (total)" may be all tokens, or the output of all requests.
    unclear = "total" in words[1:] or len(which) > 1 or len(whom) > 1
    if set(words) - known or unclear:
        return None
    if unit["requests"]:
        return None if which or "output_tokens_per_s_per_device" in whom else ("requests_per_s", 1)
    if whom:
        (word,) = whom
        if which - {"output_tokens_per_s", "decode_rate"}:
            return None
        return (f"{word}{statistic}" if table()[word].statistics else word), 1
    if statistic not in ("", "_mean"):
        return None
    return next(iter(which), "output_tokens_per_s"), 1


def spread(word: str, stated: dict[str, Any], factor: float = 1.0) -> dict[str, float]:
    """{column: figure} of the statistics that a tool states of a quantity (`{"avg": 20, "p99": 31}`, or those
    among its `percentiles`), in units of `factor`; empty where it states none."""
    found = {}
    after = "_s" if word in table() and table()[word].timed else ""
    for name, value in (stated | (stated.get("percentiles") or {})).items():
        if isinstance(value, (int, float)) and (called := statistic(name)):
            found[f"{word}_{called}{after}"] = value * factor
    return found


@cache
def scope(text: str) -> str | None:
    """Return of whom a rate is that is called so: user (`per stream`), device (`GPU`) or system (`aggregate`,
    `all users`), as the parts of rates' names say; None for any other text."""
    words = {word.removesuffix("s") for word in snaked(text).split("_")}
    composed = [one for one in table().values() if one.parts]
    if words - SAYS_NOTHING.union(OF_ALL, OF_EACH, *(one.parts for one in composed)):
        return None
    apart = {one.scope for one in composed if one.parts & words} - {"", "system"}
    if not apart or (words & OF_ALL and "per" not in words):
        return "system"
    return apart.pop() if len(apart) == 1 else None


@cache
def of_scope() -> dict[str, str]:
    """{scope: word of the output tokens/s of one user or device}."""
    return {one.scope: one.word for one in table().values() if one.parts and one.scope in ("user", "device")}


def statistic(text: str) -> str:
    """The statistic that a whole text is (`mean`, `p50` of `median`, `p75` of `75th`); empty of others."""
    plain = snaked(text)
    percentile = ANY_PERCENTILE.fullmatch(plain)
    if percentile:
        return "p" + next(group for group in percentile.groups() if group)
    return STATISTICS.get(plain, "")[1:]


def _statistic(plain: str) -> tuple[str, str]:
    """The name without its statistic, and the statistic as the frame writes it."""
    words = plain.split("_")
    if len(words) < 2:
        return plain, ""
    for at, rest in ((0, words[1:]), (-1, words[:-1])):
        percentile = PERCENTILE.fullmatch(words[at])
        if percentile:
            said_twice = ("percentile", "percentiles", "quantile", "quantiles")
            kept = [word for word in rest if word not in said_twice]
            return "_".join(kept), "_p" + next(group for group in percentile.groups() if group)
        if words[at] in STATISTICS:
            return "_".join(rest), STATISTICS[words[at]]
    return plain, ""


def _unit(plain: str) -> tuple[str, float | None]:
    head, _, tail = plain.rpartition("_")
    return (head, UNITS[tail]) if head and tail in UNITS else (plain, None)
