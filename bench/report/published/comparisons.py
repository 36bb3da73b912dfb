"""A against B in what others have published: both in the same source, model, bits and engine, for one user or
for as many users with the same lengths.

Two cards are compared only where somebody measured both. `is faster` needs three sources, which count alike,
and an interval that leaves 1 out; `was faster in so many` four settings of five, and says what the sources
have in the median; anything else cannot be told.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bench import words
from bench.report.published import lookup
from bench.words import plural, two
from llm_measured.published import answers, names

SETTING = ["source", "device", "model", "bits", "engine"]  # what both must share, but for what is compared
OF_MANY = [
    "accelerators",
    "format",
    "users",
    "input_tokens",
    "output_tokens",
]  # and where many users are served
FEWEST_SOURCES, FEWEST_SETTINGS = 3, 3
MOSTLY = 0.8  # of the settings: where so many agree, the sentence counts them
FEWEST_BUILDS = 100  # between two versions of llama.cpp: some two weeks
CANNOT = "cannot be told"
OLDER, NEWER = "older build", "newer build"


@dataclass(frozen=True)
class Comparison:
    """The first of `values` of the column `by` of `lookup.one_user` (`many`: of `lookup.many_users`) against
    each of the others, shown as `names`; `only` devices whose name begins so."""

    by: str
    values: tuple[str | float, ...]
    names: tuple[str, ...]
    only: str = ""
    many: bool = False


def _devices(*names: str, many: bool = False) -> Comparison:
    return Comparison("device", names, names, many=many)


COMPARISONS = (
    _devices("RTX 4090", "RTX 3090", "RTX 5090"),
    _devices("RTX 4090", "Apple M4 Max"),
    _devices("RTX 3060", "RTX 4060 Ti"),
    _devices("RTX 5070", "Apple M4 Pro"),
    _devices("A100", "H100"),
    _devices("H200", "H100", "B200", "MI300X", "MI355X", many=True),
    Comparison("engine", ("llama.cpp", "MLX"), ("llama.cpp on a Mac", "MLX"), "Apple M"),
    Comparison("engine", ("llama.cpp", "vLLM"), ("llama.cpp", "vLLM")),
    Comparison("engine", ("vLLM", "SGLang", "TensorRT-LLM"), ("vLLM", "SGLang", "TensorRT-LLM"), many=True),
    Comparison("version", (OLDER, NEWER), (f"llama.cpp, {OLDER}", NEWER)),
    Comparison("bits", (16, 8, 4), ("16 bits", "8 bits", "4 bits")),
    Comparison("model", ("qwen3-32b", "qwen3-30b-a3b"), ("Qwen3-32B (dense)", "Qwen3-30B-A3B")),
)


def pairs(each: Comparison) -> pd.DataFrame:
    """One row per setting in which the first value and another were measured; columns SETTING (`many`: with
    OF_MANY) without `by`, first, other (tokens/s, medians), against (the other's name), ratio (other ÷
    first)."""
    rows = lookup.many_users() if each.many else lookup.one_user()
    rows = rows[rows["device"].str.startswith(each.only)]
    rows = rows.assign(engine=rows["engine"].map(names.engine))
    shared = [*SETTING, *(OF_MANY if each.many else [])]
    if each.by == "version":
        rows, shared = _versions(rows), [*shared, "backend"]
    keys = [name for name in shared if name != each.by]
    cells = rows.groupby([*keys, each.by])["rate"].median().unstack(each.by)
    found = [
        pd.DataFrame({"first": cells[each.values[0]], "other": cells[value]}).dropna().assign(against=name)
        for value, name in zip(each.values[1:], each.names[1:])
        if {each.values[0], value} <= set(cells)
    ]
    columns = [*keys, "first", "other", "against"]
    table = pd.concat(found).reset_index() if found else pd.DataFrame(columns=columns)
    return table.assign(ratio=table["other"].astype(float) / table["first"].astype(float))


def _versions(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the oldest and of the newest build of llama.cpp in each setting, FEWEST_BUILDS or more apart;
    with the column version."""
    rows = rows[rows["build"].notna()].assign(backend=rows["backend"].fillna("not stated"))
    builds = rows.groupby([*SETTING, "backend"])["build"]
    oldest, newest = builds.transform("min"), builds.transform("max")
    named = pd.Series(
        np.select([rows["build"] == oldest, rows["build"] == newest], [OLDER, NEWER], ""), rows.index
    )
    return rows.assign(version=named)[(newest - oldest >= FEWEST_BUILDS) & (named != "")]


def pooled(own: pd.DataFrame) -> answers.Effect:
    """The ratio of rows of `pairs` of one other; sources count alike."""
    return answers.pooled(np.log(own["ratio"]), own["source"])


def verdicts(each: Comparison) -> list[str]:
    """A sentence for each of the others against the first."""
    table = pairs(each)
    return [_verdict(name, each.names[0], table[table["against"] == name]) for name in each.names[1:]]


def told() -> list[str]:
    """The verdicts of all COMPARISONS but those that cannot be told."""
    every = (verdict for each in COMPARISONS for verdict in verdicts(each))
    return [verdict for verdict in every if CANNOT not in verdict]


def _verdict(name: str, first: str, own: pd.DataFrame) -> str:
    unknown = f"**{name} against {first}: {CANNOT}.**"
    if own.empty:
        return f"{unknown} Nobody here measured both in one setting."
    if len(own) == 1:
        return f"{unknown} {two(own['ratio'].iloc[0])} times in the one setting that somebody measured."
    sources, won = own["source"].nunique(), int((own["ratio"] > 1).sum())
    agree, word = max((won, "faster"), (len(own) - won, "slower"))
    often = f"{agree if agree < len(own) else 'all'} of {plural(len(own), 'setting')}"
    if sources >= FEWEST_SOURCES:
        effect = pooled(own)
        if not effect.low <= 1 <= effect.high:
            interval = (
                f"{two(effect.factor)} times ({two(effect.low)} to {two(effect.high)}, {sources} sources)"
            )
            verb = "are" if name.endswith("bits") else "is"
            return f"**{name} {verb} {word} than {first}:** {interval}, {word} in {often}."
    if len(own) >= FEWEST_SETTINGS and agree >= MOSTLY * len(own):
        of = plural(sources, "source")
        return f"**{name} was {word} than {first} in {often} of {of}:** {_by_source(own, word)}{_users(own)}."
    ends = own.sort_values("ratio").iloc[[0, -1]]
    low, high = (f"{two(r)} ({m}, {s})" for r, m, s in zip(ends["ratio"], ends["model"], ends["source"]))
    return (
        f"{unknown} {two(own['ratio'].median())} times in the median of {plural(len(own), 'setting')} of "
        f"{plural(sources, 'source')}, from {low} to {high}.{_by_bandwidth(name, first)}"
    )


def _by_source(own: pd.DataFrame, word: str) -> str:
    """How many times as fast, in the median; of several sources each one's, and how many say otherwise."""
    medians = own.groupby("source")["ratio"].median()
    if len(medians) == 1:
        return f"{two(medians.iloc[0])} times in the median, {words.ratio_range(own['ratio'])}"
    against = int(((medians > 1) != (word == "faster")).sum())
    otherwise = (
        f"; {against} of {len(medians)} {'says' if against == 1 else 'say'} otherwise" if against else ""
    )
    return f"medians of the sources {words.ratio_range(medians)}{otherwise}"


def _users(own: pd.DataFrame) -> str:
    """How many users were served at once, of settings of many."""
    if "users" not in own:
        return ""
    low, high = own["users"].min(), own["users"].max()
    return f", at {low:,.0f} users" if low == high else f", at {low:,.0f} to {high:,.0f} users"


def _by_bandwidth(name: str, first: str) -> str:
    """What the datasheets' bandwidths of two devices would let one expect; empty for anything else."""
    rates = lookup.families()["bandwidth_gb_per_s"].reindex([name, first])
    if rates.isna().any():
        return ""
    alone = two(rates.iloc[0] / rates.iloc[1])
    return f" By bandwidth alone, of the fastest card of each name, it would be {alone} times."


def settings(each: Comparison) -> pd.DataFrame:
    """The settings behind a comparison, as the page shows them: of each other the slowest ratio first."""
    table = pairs(each).sort_values(["against", "ratio"])
    first, other = f"{each.names[0]} (tokens/s)", "other (tokens/s)"
    table = table.rename(columns={"first": first, "other": other, "against": "other", "ratio": "times"})
    shown = ["model", "device", "bits", "engine", *OF_MANY, "backend", "source"]
    keys = [name for name in shown if name in table]
    several = ["other"] if len(each.names) > 2 else []
    return table[[*several, "times", first, other, *keys]]
