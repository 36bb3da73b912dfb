"""What to expect of one user on an accelerator: the bound from its bandwidth, and the rate that comparable
hardware reached, with an interval.

A token of one sequence reads all weights that it passes, and each layer takes some time however few bytes it
has: time = bytes ÷ (bandwidth × efficiency) + layers × time of a layer. The logarithms of efficiency and of a
layer's time are sums of effects (engine, class and generation of the accelerator, format, number of
accelerators), whose widths are estimated from the published rows (empirical Bayes). A source has effects too;
those of a new source are unknown and widen the interval. Rows of MLPerf never enter."""

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pandas as pd
from scipy import linalg, stats

from bench import hardware
from llm_observatory import build, checks, derived
from llm_observatory import expect_names as names

ASKED = ["accelerator", "model", "weights_format", "engine"]
OPTIONAL = {"accelerators": 1, "concurrency": 1}
# Runs that strangers sent in, over several lengths together, hold shared and partly offloaded machines: of
# these a case is the median of at least so many.
FEWEST_SENT_IN = 4
LONGEST_CONTEXT = 4096  # tokens in the cache, up to which reading it is small beside the weights
SHORTEST_ANSWER = 32  # tokens, below which a rate is mostly its start
COVERED = 0.95
# What a setting is made of: rows alike in these are one case of a source.
CASE = ["source", "machine", "accelerators", "model", "format", "engine"]


@dataclass(frozen=True)
class Effect:
    """One part of the model: every level of `columns` has its own effect, times the column `factor`; `width`
    is how far levels differ, as a standard deviation of a logarithm, before the rows have said it."""

    name: str
    columns: tuple[str, ...]
    width: float
    factor: str = "one"


# Of the bandwidth, how much is used while weights are read.
EFFICIENCY = (
    Effect("efficiency", (), 0.5),
    Effect("efficiency of several, split by layers", (), 1.0, "several_by_layers"),
    Effect("efficiency of several together", (), 0.5, "several_together"),
    Effect("efficiency by kind of engine", ("engine_kind",), 0.2),
    Effect("efficiency by engine family", ("engine_family",), 0.2),
    Effect("efficiency of several by engine family", ("engine_family",), 0.3, "several"),
    Effect("efficiency by class of accelerator", ("accelerator_class",), 0.1),
    Effect("efficiency by generation", ("architecture",), 0.12),
    Effect(
        "efficiency by accelerator", ("family",), 0.08
    ),  # its variants together: a source may not say which
    Effect("efficiency by kind of format", ("scheme",), 0.1),
    Effect("efficiency by format", ("format",), 0.1),
    Effect("efficiency by engine family and kind of format", ("engine_family", "scheme"), 0.15),
    Effect("efficiency by engine family and class", ("engine_family", "accelerator_class"), 0.1),
    Effect("efficiency of mixtures", ("mixture",), 0.2),
    Effect("efficiency by kind of model", ("model_kind",), 0.1),
)
# The time that a layer takes however few bytes it reads: launches, synchronisation, communication.
OVERHEAD = (
    Effect("time of a layer", (), 2.0),
    Effect("time of a layer on several", (), 0.5, "several"),
    Effect("time of a layer by kind of engine", ("engine_kind",), 1.5),
    Effect("time of a layer by engine family", ("engine_family",), 0.7),
    Effect("time of a layer on several by engine family", ("engine_family",), 0.3, "several"),
    Effect("time of a layer by class of accelerator", ("accelerator_class",), 0.5),
    Effect("time of a layer by engine family and class", ("engine_family", "accelerator_class"), 0.4),
    Effect("time of a layer of mixtures", ("mixture",), 0.5),
    Effect("time of a layer by kind of model", ("model_kind",), 0.4),
    Effect("time of a layer by engine family and kind of model", ("engine_family", "model_kind"), 0.3),
)
# How a source differs from others, which no question can say: for one to come, they only widen the interval.
SOURCE = (
    Effect("source", ("source",), 0.3),
    Effect("source and engine family", ("source", "engine_family"), 0.25),
    Effect("source and class of accelerator", ("source", "accelerator_class"), 0.15),
)
EFFECTS = {effect.name: effect for effect in (*EFFICIENCY, *OVERHEAD, *SOURCE)}
UNSEEN = tuple(effect.name for effect in SOURCE)
LAYER_S = 20e-6  # where the time of a layer starts from


def eligible(rows: pd.DataFrame) -> pd.Series:
    """Which rows say how fast one user's tokens come, decided from what was set and never from the rate: one
    request at a time, its whole answer, prompts short beside the cache's limit, no speculation, not MLPerf,
    no processor as backend, and no objection of the importer."""
    one = derived.in_flight(rows) == 1
    rate = derived.derived(rows)["output_tokens_per_s_per_request"].notna()
    context = rows["context_depth"].fillna(0) + rows["input_tokens"].fillna(0)
    backend = (rows["backend"].fillna("") + " " + rows["engine"].fillna("")).str.lower()
    return (
        one
        & rate
        & rows["comparable_within"].isna()
        & ~(rows["speculative"].notna() & (rows["speculative"] != "none"))
        & (context <= LONGEST_CONTEXT)
        & ~(rows["output_tokens"] < SHORTEST_ANSWER)
        & ~(rows["prefill_chunk"] < 64)
        & ~backend.str.contains(r"\bcpu\b|xnnpack")
        & ~rows["flags"].fillna("").str.contains(r"n_gpu_layers=0\b")
        & rows["caveat"].isna()
        & rows["duplicate_of"].isna()
    )


def asked(rows: pd.DataFrame) -> pd.DataFrame:
    """The observatory's `rows` as questions, same index: what a reader would write to ask for them."""
    unknown = rows["accelerator"].isna() | (rows["accelerator"] == "variant unknown")
    return pd.DataFrame(
        {
            "accelerator": rows["accelerator"].where(~unknown, rows["accelerator_raw"]),
            "accelerator_memory_gb": rows["accelerator_memory_gb"],
            "model": rows["model"].fillna(rows["checkpoint_raw"]),
            "weights_format": rows["weights_format"].fillna(""),
            "engine": rows["engine"].fillna("any") + " " + rows["backend"].fillna(""),
            "accelerators": rows["accelerators"].fillna(1),
            "concurrency": derived.in_flight(rows).fillna(1),
        }
    )


def _count(value: object, name: str) -> float | str:
    try:
        number = float(str(value).strip() or "nan")
    except ValueError:
        return f"{name} is {str(value)[:40]!r}, which is no whole number of at least 1."
    if number != number:
        return float(OPTIONAL[name])
    if not number.is_integer() or not 1 <= number <= 100_000:
        return f"{name} is {str(value)[:40]!r}, which is no whole number of at least 1."
    return number


@cache
def _setup(accelerator, memory_gb, model, weights_format, engine, accelerators, concurrency):
    cards, users = _count(accelerators, "accelerators"), _count(concurrency, "concurrency")
    for refused in (cards, users):
        if isinstance(refused, str):
            return {"refused": refused}
    if users > 1:
        return {
            "refused": "For more than one user at a time ask the planner: what is known here is one request "
            "at a time."
        }
    if cards == 1:
        cards = float(names.count(accelerator))
    machine = names.machine(accelerator, memory_gb) if accelerator else "The row names no accelerator."
    weights = names.weights(model) if model else "The row names no model."
    own, family = names.engine(engine)
    for refused in (machine, weights):
        if isinstance(refused, str):
            return {"refused": refused}
    form = names.weights_format(weights_format, model, own)
    if isinstance(form, str):
        return {"refused": form}
    return {
        "refused": "",
        "machine": machine.name,
        "family": machine.family,
        "architecture": machine.architecture,
        "accelerator_class": machine.kind,
        "bandwidth_low": machine.low * 1e9,
        "bandwidth": machine.bandwidth_gb_per_s * 1e9,
        "bandwidth_most": machine.high * 1e9,
        "memory_gb": machine.memory_gb,
        "model": weights.name,
        "model_kind": names.model_kind(weights.name),
        "known_model": weights.known,
        "parameters_b": weights.parameters_b,
        "active_b": weights.active_b,
        "bits": form.bits,
        "format": form.name,
        "scheme": form.scheme,
        "engine": own,
        "engine_family": family,
        "engine_kind": names.engine_kind(family),
        "accelerators": cards,
        "assumed": weights.estimated or form.assumed or machine.low < machine.high,
    }


SETUP = dict.fromkeys(
    "machine family architecture accelerator_class model model_kind known_model format scheme engine "
    "engine_family engine_kind".split()
) | dict.fromkeys(
    "bandwidth_low bandwidth bandwidth_most memory_gb parameters_b active_b bits accelerators".split(), np.nan
)
SETUP |= {"refused": "", "assumed": False}


def setups(questions: pd.DataFrame) -> pd.DataFrame:
    """One row per question, same index: what its names mean.

    Columns refused (one sentence, or empty), machine, architecture, bandwidth (bytes/s of one accelerator;
    `_low` and `_most` of the variants that the name may mean), model, parameters and active (counts), bits,
    format (kind and bits), scheme (its kind), read_bytes (weights that a token reads), weights_bytes, engine,
    engine_family, accelerators, assumed (something was guessed), bound (tokens/s of one user at the bandwidth
    of all accelerators) and bound_most (of the fastest variant).
    """
    filled = questions.astype(object).where(questions.notna(), "")
    memory = (
        pd.to_numeric(questions.get("accelerator_memory_gb"), errors="coerce")
        if "accelerator_memory_gb" in questions
        else None
    )
    found = []
    for place, row in enumerate(filled.to_dict("records")):
        gb = None if memory is None or np.isnan(memory.iloc[place]) else float(memory.iloc[place])
        texts = [" ".join(str(row[name]).split()) for name in ASKED]
        counts = [str(row.get(name, "")) for name in OPTIONAL]
        found.append(SETUP | _setup(texts[0], gb, *texts[1:], *counts))
    table = pd.DataFrame(found, index=questions.index, columns=list(SETUP))
    sheet = derived.datasheet(_as_rows(table))
    for name in ("parameters", "active", "read_bytes"):
        table[name] = sheet[name].where(table["refused"] == "")
    table["weights_bytes"] = table["parameters"] * table["bits"] / 8
    known = table["known_model"].map(hardware.models().set_index("model")["layers"])
    table["layers"] = known.fillna(_layers(table["parameters"], table["active"]))
    table["mixture"] = np.where(table["active"] < 0.95 * table["parameters"], "mixture", "dense")
    table["bound"] = table["accelerators"] * table["bandwidth"] / table["read_bytes"]
    table["bound_most"] = table["accelerators"] * table["bandwidth_most"] / table["read_bytes"]
    open_ = table["refused"] == ""
    sizeless = open_ & table["read_bytes"].isna()
    table.loc[sizeless, "refused"] = (
        "The number of parameters of " + table["model"].astype(str) + " is not known."
    )
    capacity = table["memory_gb"] * 1e9 * table["accelerators"]
    large = open_ & (table["weights_bytes"] > capacity)
    size = (table["weights_bytes"] / 1e9).map("{:.3g}".format)
    held = (capacity / 1e9).map("{:.4g}".format)
    table.loc[large, "refused"] = (
        "The weights have "
        + size
        + " GB and the accelerators "
        + held
        + ": what is offloaded is not predicted."
    )
    return table


def _layers(parameters: pd.Series, active: pd.Series) -> pd.Series:
    """About how many layers a model of that size has: 32 with 7 · 10⁹ parameters, 80 with 70 · 10⁹."""
    size = np.sqrt(parameters.astype(float) * active.astype(float)) / 7e9
    return (32 * size**0.38).clip(12, 130)


def _as_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Setups as rows of the observatory's schema, as far as datasheets are looked up by them."""
    bits = table["bits"].map(lambda b: None if b != b else f"{b:g} bpw" if b < 10 else f"fp{b:.0f}")
    empty = pd.Series(None, index=table.index, dtype=object)
    return pd.DataFrame(
        {
            "accelerator": empty,
            "accelerator_family": empty,
            "model": table["known_model"].astype(object),
            "weights_format": bits.astype(object).where(bits.notna(), None),
            "parameters_b": table["parameters_b"].astype(float),
            "active_b": table["active_b"].astype(float),
            "weights_bytes": np.nan,
        }
    )


def cases(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per case: of the rows of one source that a question cannot tell from each other the median.
    Columns of `setups`, source, rows (their number), rate (tokens/s of one user) and share (of the bound)."""
    part = rows[eligible(rows)]
    table = setups(asked(part))
    table["source"] = part["source"]
    table["row_id"] = part["row_id"]
    table["mixed"] = (part["lengths"] == "mixed").to_numpy()
    table["rate"] = derived.derived(part)["output_tokens_per_s_per_request"]
    table = table[table["refused"] == ""]
    grouped = table.groupby(CASE, sort=True, dropna=False)
    one = grouped.first()
    one["rate"] = grouped["rate"].median()
    one["rows"] = grouped.size()
    one = one[~one["mixed"] | (one["rows"] >= FEWEST_SENT_IN)].reset_index().drop(columns=["mixed"])
    one["share"] = one["rate"] / one["bound"]
    return one


def _factors(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """What effects are multiplied by."""
    several = np.log(table["accelerators"].to_numpy(dtype=float))
    by_layers = table["engine_family"].isin(names.BY_LAYERS).to_numpy(dtype=float)
    return {
        "one": np.ones(len(table)),
        "several": several,
        "several_by_layers": several * by_layers,
        "several_together": several * (1 - by_layers),
    }


def _levels(table: pd.DataFrame, columns: tuple[str, ...]) -> list[str]:
    if not columns:
        return [""] * len(table)
    return ["|".join(parts) for parts in zip(*(table[c].astype(str) for c in columns))]


def _bare(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of a token's two times: of reading the weights at the full bandwidth, and of the layers."""
    reading = -np.log(table["bound"].to_numpy(dtype=float))
    return reading, np.log(table["layers"].to_numpy(dtype=float) * LAYER_S)


@dataclass(frozen=True)
class Fit:
    """The model of a token's time, reading ÷ efficiency + layers × time of a layer. `index` maps (effect,
    level) to its place in `effects` and in `covariance`; `variances` holds what a level that was never seen
    may have, `noise` that of cases of one source. From sources that were left out come `shift`, by which the
    logarithm of the rate was off in the median source, and `stretch`, which widens intervals to what they
    needed."""

    index: dict[tuple[str, str], int]
    effects: np.ndarray
    covariance: np.ndarray
    variances: dict[str, float]
    noise: float
    stretch: float = 1.0
    shift: float = 0.0

    @cached_property
    def quantile(self) -> float:
        return float(stats.norm.ppf(0.5 + COVERED / 2))

    def share(self, table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """(logarithm of the share of the bound, its standard deviation for a source never seen) of setups."""
        seen, unseen = self.sums(table, EFFICIENCY), self.sums(table, OVERHEAD)
        reading, layers = _bare(table)
        reading, layers = reading - seen[0], layers + unseen[0]
        time = np.logaddexp(reading, layers)
        part = np.exp(reading - time)  # of the time, in which weights are read
        slopes = part[:, None] * seen[1] - (1 - part)[:, None] * unseen[1]
        var = np.einsum("ij,ij->i", slopes @ self.covariance, slopes)
        var += part**2 * seen[2] + (1 - part) ** 2 * unseen[2]
        new = sum(self.variances[name] for name in UNSEEN)
        # Of variants that a name may mean one is right: as far from the middle as half their range.
        spread = np.log(table["bandwidth_most"] / table["bandwidth_low"]).to_numpy(dtype=float) / 2
        mean = -time - np.log(table["bound"].to_numpy(dtype=float)) + self.shift
        return mean, np.sqrt(var + new + self.noise + spread**2)

    def sums(self, table: pd.DataFrame, of: tuple[Effect, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(sum of the effects `of`, their factors at the places of `effects`, variance of what was never
        seen) of setups."""
        factors = _factors(table)
        slopes = np.zeros((len(table), len(self.effects)))
        never = np.zeros(len(table))
        for effect in of:
            factor = factors[effect.factor]
            places = [self.index.get((effect.name, level), -1) for level in _levels(table, effect.columns)]
            at = np.array(places)
            here = at >= 0
            slopes[np.flatnonzero(here), at[here]] += factor[here]
            never += np.where(here, 0, self.variances[effect.name] * factor**2)
        return slopes @ self.effects, slopes, never

    def estimated(self, setup: object) -> bool:
        """Whether something of a setup was guessed, or its engine or generation was never seen."""
        seen = [
            ("efficiency by engine family", setup.engine_family),
            ("efficiency by generation", setup.architecture),
            ("efficiency by format", setup.format),
        ]
        return bool(setup.assumed) or any(level not in self.index for level in seen)


def _design(table: pd.DataFrame) -> tuple[np.ndarray, list[tuple[str, str]]]:
    factors, parts, keys = _factors(table), [], []
    for effect in EFFECTS.values():
        codes, levels = pd.factorize(np.array(_levels(table, effect.columns)))
        part = np.zeros((len(table), len(levels)))
        part[np.arange(len(table)), codes] = factors[effect.factor]
        used = (part != 0).any(axis=0)
        parts.append(part[:, used])
        keys += [(effect.name, level) for level, there in zip(levels, used) if there]
    return np.hstack(parts), keys


STUDENT = 4.0  # degrees of freedom of the noise: single cases may be far off
ALIKE = 8.0  # cases that speak for every source having the same noise, against its own
NOISE = 0.02  # variance of the noise, before the rows have said it
BELIEVED = 4.0  # levels that speak for an effect's width before the rows, against its own
STEPS = (6, 3, 3)  # towards the likeliest effects, before and after each estimate of the widths


def fit(
    table: pd.DataFrame, variances: dict[str, float] | None = None, stretch: float = 1.0, shift: float = 0.0
) -> Fit:
    """The model of `cases`; `variances` (of an earlier fit, noise included) spares the search for them."""
    design, keys = _design(table)
    which = np.array([list(EFFECTS).index(name) for name, _ in keys])
    given = np.array([variances[name] if variances else e.width**2 for name, e in EFFECTS.items()])
    noise = variances["noise"] if variances else NOISE
    single = np.array([not e.columns for e in EFFECTS.values()])
    effects = np.zeros(len(which))
    turns = [sum(STEPS)] if variances else list(STEPS)
    for turn, steps in enumerate(turns, start=1):
        effects, covariance, left, weights = _likeliest(
            table, design, which, given[which], noise, effects, steps
        )
        if turn == len(turns):
            break
        square = effects**2 + np.diag(covariance)
        levels = np.bincount(which, minlength=len(given))
        sums = np.bincount(which, square, minlength=len(given))
        widths = np.array([e.width for e in EFFECTS.values()]) ** 2
        given = np.where(single, given, (sums + BELIEVED * widths) / (levels + BELIEVED))
        noise = float(np.average(left, weights=weights))
    # Of a new source the noise is as large as that of sources is on average, its far cases included.
    by_source = pd.Series(left).groupby(table["source"].to_numpy()).mean()
    return Fit(
        dict(zip(keys, range(len(keys)))),
        effects,
        covariance,
        dict(zip(EFFECTS, given.tolist())) | {"noise": noise},
        float(by_source.clip(upper=9 * noise).mean()),
        stretch,
        shift,
    )


def _likeliest(table, design, which, prior, noise, effects, steps):
    """(effects, their covariance, squares of what cases are off, weights): Gauss and Newton's `steps` from
    `effects` to the likeliest, each of which weighs cases by what they are off at it."""
    names_ = list(EFFECTS)
    sort = np.array([0 if names_[k] in _OF_READING else 1 if names_[k] in _OF_LAYERS else 2 for k in which])
    time = -np.log(table["rate"].to_numpy(dtype=float))
    reading, layers = _bare(table)
    sources, _ = pd.factorize(table["source"])
    counts = np.bincount(sources)
    scale = np.ones(len(counts))

    def off(effects):
        """(what the logarithm of each time is off, its slopes by the effects)."""
        read = reading - design[:, sort == 0] @ effects[sort == 0]
        layer = layers + design[:, sort == 1] @ effects[sort == 1]
        whole = np.logaddexp(read, layer)
        part = np.exp(read - whole)
        slopes = design * np.column_stack([-part, 1 - part, np.ones(len(part))])[:, sort]
        return time - whole - design[:, sort == 2] @ effects[sort == 2], slopes

    for _ in range(steps):
        residual, slopes = off(effects)
        weights = (STUDENT + 1) / (STUDENT + residual**2 / noise / scale[sources])
        scale = (ALIKE + np.bincount(sources, weights * residual**2 / noise)) / (ALIKE + counts)
        precision = weights / scale[sources] / noise
        precise = (slopes * precision[:, None]).T @ slopes + np.diag(1 / prior)
        step = linalg.solve(precise, slopes.T @ (precision * residual) - effects / prior, assume_a="pos")
        effects = effects + step * min(1.0, 2 / np.abs(step).max())
    return effects, linalg.inv(precise), off(effects)[0] ** 2, weights


_OF_READING = {effect.name for effect in EFFICIENCY}
_OF_LAYERS = {effect.name for effect in OVERHEAD}


def trained(rows: pd.DataFrame) -> pd.DataFrame:
    """The cases that a fit may learn from: `cases` of rows that no check excludes, and that are not faster
    than the bound."""
    table = cases(rows[rows["audit"] != checks.EXCLUDED])
    return table[table["rate"] <= table["bound_most"]].reset_index(drop=True)


VARIANCES = build.DATA / "expect_variances.csv"


@cache
def observatory() -> pd.DataFrame:
    """All rows, checked, from the committed ones."""
    return build.table()


@cache
def committed() -> Fit:
    """The fit of all committed rows, with the committed variances and stretch."""
    stored = pd.read_csv(VARIANCES).set_index("effect")["variance"].to_dict()
    stretch, shift = stored.pop("stretch"), stored.pop("shift")
    return fit(trained(observatory()), stored, stretch, shift)


PREDICTED = "predicted_output_tokens_per_s"


def predictions(questions: pd.DataFrame, found: Fit | None = None) -> pd.DataFrame:
    """One row per question, same index; columns predicted_output_tokens_per_s, `…_low`, `…_high` (of one
    user, 95 % of sources), bound_output_tokens_per_s, estimated (something of the question was guessed:
    variant, size or format; or its engine, generation of accelerators or format was never seen) and refused
    (one sentence; then the others are empty). Columns that are not asked for are not looked at."""
    taken = [name for name in [*ASKED, *OPTIONAL, "accelerator_memory_gb"] if name in questions]
    return of_setups(setups(questions[taken]), found or committed())


def of_setups(table: pd.DataFrame, found: Fit) -> pd.DataFrame:
    """`predictions` of setups."""
    out = pd.DataFrame(index=table.index)
    for end in ("", "_low", "_high"):
        out[PREDICTED + end] = np.nan
    open_ = table["refused"] == ""
    part = table[open_]
    if len(part):
        mean, spread = found.share(part)
        half = found.quantile * found.stretch * spread
        for end, logs in (("", mean), ("_low", mean - half), ("_high", mean + half)):
            # Nobody reads weights faster than the fastest variant can.
            out.loc[open_, PREDICTED + end] = np.minimum(np.exp(logs) * part["bound"], part["bound_most"])
    out["bound_output_tokens_per_s"] = table["bound_most"].where(open_)
    out["estimated"] = [
        found.estimated(row) if here else None for row, here in zip(table.itertuples(), open_)
    ]
    out["refused"] = table["refused"]
    return out
