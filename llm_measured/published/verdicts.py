"""A against B in what others have published, each source asked by itself.

Both must be in one source at equal variant, model, format, KV format, version, backend, power and load, as
far as that source states them; what it states of one side only is named beside the verdict. Sources are
counted, not settings: `is` needs six and a sign test, `was` one direction in each of the sources that there
are, anything else cannot be told."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from llm_measured.published import comparable
from llm_measured.published.lookup import CROWD

IS, WAS, CANNOT = "is", "was", "cannot be told"
FEWEST_SOURCES, LEVEL = 6, 0.05  # of `is`
FEWEST_SETTINGS = 3
MOSTLY = 0.8  # of a source's settings: what it says; `agreeing` has how many of all settings do
FEWEST_BUILDS = 100  # between two versions of llama.cpp: some two weeks
OLDER, NEWER = "older build", "newer build"

LIKE = [
    *("source", "device", "form", "memory_gb", "power_limit_w", "model", "bits", "format", "kv", "engine"),
    *("release", "half_year", "path", "speculative", "context"),
]
OF_MANY = [
    *("accelerators", "tp", "users", "asked", "workload", "request_rate", "counted"),
    *("input_tokens", "output_tokens"),
]
# Of these a source may say nothing; where it does so of one side only, the two are compared and it is told.
UNSTATED = ["form", "memory_gb", "power_limit_w", "kv", "release", "half_year", "path"]
# What else differs by nature where this is compared; the model stays the same checkpoint.
WITH = {
    "device": ["device", "memory_gb", "power_limit_w"],
    "engine": ["engine", "release", "path", "format", "half_year"],
    "bits": ["bits", "format"],
    "model": ["model"],
    "age": ["age", "release", "half_year"],
    "step": ["step", "bits", "format"],
    "depth": ["depth", "context"],
    "cache": ["cache", "kv"],
    "drafts": ["drafts", "speculative"],
    "backend": ["backend", "path"],
}
BY_BYTES = {"device", "bits", "model", "step"}  # where bandwidth and bytes of the weights give a ratio, too
COLUMNS = [
    *("of", "first", "other", "grade", "direction", "sources", "settings", "agreeing", "p", "one_side"),
    *("source", "says", "ratio"),
    *("least", "most", "source_settings", "faster_in", "by_bytes", "models", "devices", "variants", "users"),
]


@dataclass(frozen=True)
class Comparison:
    """The first of `values` of the column `by` against each other one; of rows of many users where `many`, of
    devices whose name begins with `only`."""

    by: str
    values: tuple[str | float, ...]
    only: str = ""
    many: bool = False


COMPARISONS = (
    Comparison("device", ("RTX 4090", "RTX 3090", "RTX 5090")),
    Comparison("device", ("RTX 4090", "Apple M4 Max")),
    Comparison("device", ("RTX 3060", "RTX 4060 Ti")),
    Comparison("device", ("RTX 5070", "Apple M4 Pro")),
    Comparison("device", ("A100", "H100")),
    Comparison("device", ("H200", "H100", "B200", "MI300X", "MI355X"), many=True),
    Comparison("engine", ("llama.cpp", "MLX"), only="Apple M"),
    Comparison("engine", ("llama.cpp", "vLLM")),
    Comparison("engine", ("vLLM", "SGLang", "TensorRT-LLM"), many=True),
    Comparison("backend", ("ROCm", "Vulkan")),
    Comparison("age", (OLDER, NEWER)),
    Comparison("bits", (16.0, 8.0, 4.0)),
    Comparison("model", ("qwen3-32b", "qwen3-30b-a3b")),
)


def pairs(rows: pd.DataFrame, each: Comparison) -> pd.DataFrame:
    """Return a row per setting of `rows` (of `comparable.measured`) in which the first value and another were
    measured: what both share, first, other (tokens/s, medians), against (the other), ratio, by_bytes (the
    ratio that reading the weights at the datasheets' bandwidth would give)."""
    rows = rows[rows["device"].str.startswith(each.only)]
    if each.by == "age":
        rows = _ages(rows)
    # Of a model that no table has, its own name says which it is.
    rows = rows.assign(model=rows["model"].where(rows["model"] != "", rows["checkpoint"]))
    shared = [*LIKE, *(OF_MANY if each.many else [])]
    keys = [name for name in shared if name not in WITH[each.by]]
    cells = rows.groupby([*keys, each.by], dropna=False).agg(
        rate=("rate", "median"), bound=("bound", "median"), variant=("variant", "first")
    )
    cells = cells.reset_index()
    cells["cell"] = cells.index
    first = cells[cells[each.by] == each.values[0]]
    others = cells[cells[each.by].isin(each.values[1:])]
    table = first.merge(
        others, on=[name for name in keys if name not in UNSTATED], suffixes=("_first", "_other")
    )
    table = _stated_alike(table, [name for name in keys if name in UNSTATED])
    closest = table.groupby(["cell_first", f"{each.by}_other"])["unlike"].transform("min")
    table = table[table["unlike"] == closest]
    bounds = table["bound_first"] / table["bound_other"]
    return table.assign(
        against=table[f"{each.by}_other"],
        ratio=table["rate_other"] / table["rate_first"],
        by_bytes=bounds if each.by in BY_BYTES else np.nan,
        variants=table["variant_first"] + " and " + table["variant_other"],
    )


def _stated_alike(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return the lines of `table` whose sides agree in each of `names` that both state, with one_side, the
    names that only one of them states, and `unlike`, how many."""
    alike, one_side = pd.Series(True, table.index), pd.Series("", table.index)
    unlike = pd.Series(0, table.index)
    for name in names:
        first, other = table[f"{name}_first"], table[f"{name}_other"]
        unsaid = [side.isna() | (side == "") for side in (first, other)]
        one = unsaid[0] != unsaid[1]
        alike &= (first == other) | one | (unsaid[0] & unsaid[1])
        one_side += one.map({True: f"{name} ", False: ""})
        unlike += one
    return table.assign(one_side=one_side.str.strip(), unlike=unlike)[alike]


def _ages(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the oldest and of the newest build of llama.cpp in each setting, FEWEST_BUILDS or
    more apart, with the column age."""
    rows = rows[rows["build"].notna()]
    keys = [name for name in LIKE if name not in WITH["age"]]
    builds = rows.groupby(keys, dropna=False)["build"]
    oldest, newest = builds.transform("min"), builds.transform("max")
    named = pd.Series(
        np.select([rows["build"] == oldest, rows["build"] == newest], [OLDER, NEWER], ""), rows.index
    )
    return rows.assign(age=named)[(newest - oldest >= FEWEST_BUILDS) & (named != "")]


def says(ratios: pd.Series) -> str:
    """Return what one source says by the ratios of its settings: faster, slower, or both."""
    for word, share in (("faster", (ratios > 1).mean()), ("slower", (ratios < 1).mean())):
        if share >= MOSTLY:
            return word
    return "both"


def grade(told: pd.Series, settings: int) -> tuple[str, str, float]:
    """Return (grade, direction, p of the sign test) of what each source says (`says`) in so many settings."""
    counts = told.value_counts()
    fast, slow = int(counts.get("faster", 0)), int(counts.get("slower", 0))
    direction = "faster" if fast > slow else "slower"
    p = float(stats.binomtest(max(fast, slow), fast + slow).pvalue) if fast + slow else float("nan")
    if len(told) >= FEWEST_SOURCES and p < LEVEL:
        return IS, direction, p
    one_direction = len(told) and max(fast, slow) == len(told)
    if one_direction and len(told) < FEWEST_SOURCES and settings >= FEWEST_SETTINGS:
        return WAS, direction, p
    return CANNOT, "", p


def of(rows: pd.DataFrame, each: Comparison) -> pd.DataFrame:
    """Return a row per other value and source (one without a source where none has both); COLUMNS."""
    table = pairs(rows, each)
    found = []
    for other in each.values[1:]:
        own = table[table["against"] == other]
        # Whoever wants to sends a run: no vote where another source has measured.
        if (own["source"] != CROWD).any():
            own = own[own["source"] != CROWD]
        by_source = own.groupby("source")
        told = by_source["ratio"].agg(says) if len(own) else pd.Series(dtype=object)
        graded, direction, p = grade(told, len(own))
        whole = {"of": each.by, "first": each.values[0], "other": other, "grade": graded}
        whole |= {"direction": direction, "sources": len(told), "settings": len(own), "p": p}
        faster = int((own["ratio"] > 1).sum())
        if direction:
            whole["agreeing"] = faster if direction == "faster" else int((own["ratio"] < 1).sum())
        whole["one_side"] = _one_side(own)
        for source, part in by_source:
            found.append(
                whole
                | {
                    "source": source,
                    "says": told[source],
                    "ratio": part["ratio"].median(),
                    "least": part["ratio"].min(),
                    "most": part["ratio"].max(),
                    "source_settings": len(part),
                    "faster_in": int((part["ratio"] > 1).sum()),
                    "by_bytes": part["by_bytes"].median(),
                    "models": _listed(part, "model"),
                    "devices": _listed(part, "device") if each.by != "device" else "",
                    "variants": _listed(part, "variants") if each.by == "device" else "",
                    "users": _span(part["users"]) if "users" in part else "",
                }
            )
        if own.empty:
            found.append(whole)
    return pd.DataFrame(found, columns=COLUMNS)


def _listed(part: pd.DataFrame, column: str) -> str:
    if column not in part:
        return ""
    return ", ".join(sorted(set(part[column])))


def _one_side(own: pd.DataFrame) -> str:
    """Return what is stated of one side only, with the number of settings: "kv 3, release 1"."""
    counts = own["one_side"].str.split().explode().value_counts()
    return ", ".join(f"{name} {counts[name]}" for name in sorted(counts.index))


def _span(values: pd.Series) -> str:
    values = values.dropna()
    return f"{values.min():.0f} to {values.max():.0f}" if len(values) else "nobody says how many"


def table() -> pd.DataFrame:
    """Return every verdict: a row per comparison and source."""
    one, many = comparable.one_user(), comparable.many_users()
    one = one[~one["outside"]]
    return pd.concat([of(many if each.many else one, each) for each in COMPARISONS], ignore_index=True)
