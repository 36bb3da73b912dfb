"""What to expect of one user on an accelerator: the bound from its bandwidth, and the rate that comparable
hardware reached, with an interval.

Each token of one sequence reads all weights that it passes, so bandwidth ÷ bytes bounds the rate. What is
modelled is the share of that bound: its logarithm is a sum of effects (engine, generation of the accelerator,
accelerator, format, and how fast the bound itself is, as each token also takes a fixed time), all of them
random with a variance of their own, which is estimated from the published rows (maximum likelihood). A
source has an effect too; that of a new source is unknown and widens the interval. Rows of MLPerf never
enter."""

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pandas as pd
from scipy import linalg, optimize, stats

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
KNOTS = np.log([50.0, 200.0, 600.0])  # of the bound, in tokens/s
# What a setting is made of: rows alike in these are one case of a source.
CASE = ["source", "machine", "accelerators", "model", "format", "engine"]
# The random effects; of each pair of columns a level is one combination.
EFFECTS = {
    "source": ("source",),
    "source and engine": ("source", "engine_family"),
    "engine family": ("engine_family",),
    "engine": ("engine",),
    "architecture": ("architecture",),
    "accelerator": ("family",),  # its variants together: a source may not say which
    "engine family and architecture": ("engine_family", "architecture"),
    "format": ("format",),
    "engine family and format": ("engine_family", "format"),
    "architecture and kind of format": ("architecture", "scheme"),
    "engine family and mixture": ("engine_family", "mixture"),
}
# Slopes: how much more of its bound an engine or a generation loses where the bound is faster, and with each
# accelerator more.
SLOPES = {
    "bound by engine family": ("engine_family", "speed"),
    "bound by architecture": ("architecture", "speed"),
    "speed by engine family": ("engine_family", "fast"),
    "speed by architecture": ("architecture", "fast"),
    "accelerators by engine family": ("engine_family", "several"),
}
FIXED = ["one", "speed", *(f"knot_{k}" for k in range(len(KNOTS))), "mixture_of_experts", "several"]
UNSEEN = ("source", "source and engine")  # of a new source nothing is known


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
        "bandwidth_low": machine.low * 1e9,
        "bandwidth": machine.bandwidth_gb_per_s * 1e9,
        "bandwidth_most": machine.high * 1e9,
        "memory_gb": machine.memory_gb,
        "model": weights.name,
        "known_model": weights.known,
        "parameters_b": weights.parameters_b,
        "active_b": weights.active_b,
        "bits": form.bits,
        "format": form.name,
        "scheme": form.scheme,
        "engine": own,
        "engine_family": family,
        "accelerators": cards,
        "assumed": weights.estimated or form.assumed or machine.low < machine.high,
    }


SETUP = dict.fromkeys(
    "machine family architecture model known_model format scheme engine engine_family".split()
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


def _columns(table: pd.DataFrame) -> pd.DataFrame:
    """What the fixed effects and slopes multiply."""
    speed = np.log(table["bound"].to_numpy(dtype=float))
    out = {"one": np.ones(len(table)), "speed": speed - KNOTS[0]}
    for k, knot in enumerate(KNOTS):
        out[f"knot_{k}"] = np.maximum(speed - knot, 0)
    out["mixture_of_experts"] = (table["mixture"] == "mixture").to_numpy(dtype=float)
    out["several"] = np.log(table["accelerators"].to_numpy(dtype=float))
    out["fast"] = np.maximum(speed - KNOTS[0], 0)
    return pd.DataFrame(out, index=table.index)


def _levels(table: pd.DataFrame, columns: tuple[str, ...]) -> list[str]:
    texts = [[f"{v:g}" if isinstance(v, float) else str(v) for v in table[c]] for c in columns]
    return ["|".join(parts) for parts in zip(*texts)]


@dataclass(frozen=True)
class Fit:
    """Effects by level, as a mixed model estimates them: `index` maps (effect, level) to the place in
    `effects` and in `covariance`, `variances` holds each effect's own variance (what a level that was never
    seen may have), `noise` that of cases of one source; `stretch` widens intervals to what sources that were
    left out needed."""

    index: dict[tuple[str, str], int]
    effects: np.ndarray
    covariance: np.ndarray
    variances: dict[str, float]
    noise: float
    stretch: float = 1.0

    @cached_property
    def quantile(self) -> float:
        return float(stats.norm.ppf(0.5 + COVERED / 2))

    def share(self, table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """(logarithm of the share of the bound, its standard deviation for a source never seen) of setups."""
        mean, var = np.zeros(len(table)), np.zeros(len(table))
        for place, terms in enumerate(self.terms(table)):
            at = np.array([i for i, _, _ in terms if i is not None])
            by = np.array([factor for i, _, factor in terms if i is not None])
            mean[place] = self.effects[at] @ by
            var[place] = by @ self.covariance[np.ix_(at, at)] @ by
            var[place] += sum(self.variances[name] * f**2 for i, name, f in terms if i is None)
        new = sum(self.variances[name] for name in UNSEEN)
        # Of variants that a name may mean one is right: as far from the middle as half their range.
        spread = np.log(table["bandwidth_most"] / table["bandwidth_low"]).to_numpy(dtype=float) / 2
        return mean, np.sqrt(var + new + self.noise + spread**2)

    def estimated(self, setup: object) -> bool:
        """Whether something of a setup was guessed, or its engine or generation was never seen."""
        seen = [
            ("engine family", setup.engine_family),
            ("architecture", setup.architecture),
            ("format", setup.format),
        ]
        return bool(setup.assumed) or any(level not in self.index for level in seen)

    def terms(self, table: pd.DataFrame) -> list[list[tuple[int | None, str, float]]]:
        """Of each setup the effects that make up its share: (place or None where the level was never seen,
        effect, factor)."""
        columns = _columns(table)
        whole = [[] for _ in range(len(table))]
        for name in FIXED:
            for terms, factor in zip(whole, columns[name]):
                terms.append((self.index["fixed", name], "fixed", factor))
        for name, keys in EFFECTS.items():
            if name in UNSEEN:
                continue
            for terms, level in zip(whole, _levels(table, keys)):
                terms.append((self.index.get((name, level)), name, 1.0))
        for name, (key, column) in SLOPES.items():
            for terms, level, factor in zip(whole, _levels(table, (key,)), columns[column]):
                if factor:
                    terms.append((self.index.get((name, level)), name, factor))
        return whole


def _design(table: pd.DataFrame) -> tuple[np.ndarray, list[tuple[str, str]]]:
    columns = _columns(table)
    parts, keys = [columns[FIXED].to_numpy()], [("fixed", name) for name in FIXED]
    wanted = [(name, of, "one") for name, of in EFFECTS.items()]
    wanted += [(name, (key,), column) for name, (key, column) in SLOPES.items()]
    for name, of, column in wanted:
        codes, levels = pd.factorize(np.array(_levels(table, of)))
        part = np.zeros((len(table), len(levels)))
        part[np.arange(len(table)), codes] = columns[column]
        used = (part != 0).any(axis=0)
        parts.append(part[:, used])
        keys += [(name, level) for level, there in zip(levels, used) if there]
    return np.hstack(parts), keys


FIXED_VARIANCE = 25.0  # of the logarithm: a fixed effect may be anything
STUDENT = 4.0  # degrees of freedom of the noise: single cases may be far off
ALIKE = 8.0  # cases that speak for every source having the same noise, against its own
ROUNDS = 4  # of weighting cases by what they are off
SEARCHED = (0, 2)  # rounds that begin with a search for the variances


def fit(
    table: pd.DataFrame, start: dict[str, float] | None = None, stretch: float = 1.0, again: bool = False
) -> Fit:
    """The mixed model of `cases`; `start` (variances of an earlier fit) spares the search for them, or with
    `again` is where a short one begins."""
    design, keys = _design(table)
    share = np.log(table["share"].to_numpy(dtype=float))
    own = [*EFFECTS, *SLOPES]
    which = np.array([own.index(name) if name != "fixed" else -1 for name, _ in keys])
    sources, _ = pd.factorize(table["source"])
    counts = np.bincount(sources)
    scale, weights = np.ones(len(counts)), np.ones(len(table))
    variances = {name: 0.02 for name in own} | {"noise": 0.03} if start is None else dict(start)
    for turn in range(ROUNDS):
        precision = weights / scale[sources]
        if turn in SEARCHED and (start is None or (again and turn == 0)):
            steps = 8 if again else 60
            variances = _likeliest(design, share, which, own, precision, variances, steps)
        prior = _prior(which, own, variances)
        precise, effects = _solved(design, share, precision / variances["noise"], prior)
        covariance = linalg.inv(precise)
        # What a case is off, and what its own effects may have taken of that.
        left = (share - design @ effects) ** 2 + np.einsum(
            "ij,jk,ik->i", design, covariance, design, optimize=True
        )
        left /= variances["noise"]
        weights = (STUDENT + 1) / (STUDENT + left / scale[sources])
        scale = (ALIKE + np.bincount(sources, weights * left)) / (ALIKE + counts)
    # Of a new source the noise is as large as that of sources is on average, its far cases included.
    each = scale * counts / np.bincount(sources, weights)
    noise = variances["noise"] * float(np.mean(each))
    return Fit(dict(zip(keys, range(len(keys)))), effects, covariance, variances, noise, stretch)


def _prior(which: np.ndarray, own: list[str], variances: dict[str, float]) -> np.ndarray:
    each = np.array([variances[name] for name in own] + [FIXED_VARIANCE])
    return each[which]


def _solved(design, share, precision, prior):
    """(matrix of the equations, effects): the effects that balance their priors against the cases."""
    precise = (design * precision[:, None]).T @ design + np.diag(1 / prior)
    return precise, linalg.solve(precise, design.T @ (precision * share), assume_a="pos")


def _likeliest(design, share, which, own, weights, before, steps):
    """The variances under which the cases are most likely (effects integrated out), by name."""
    gram = (design * weights[:, None]).T @ design
    aimed = design.T @ (weights * share)
    square = float(weights @ share**2)

    def loss(logs):
        """Minus the logarithm of the likelihood, and its slope by the logarithm of each variance."""
        each = dict(zip([*own, "noise"], np.exp(logs)))
        noise, prior = each["noise"], _prior(which, own, each)
        root = linalg.cholesky(gram / noise + np.diag(1 / prior), lower=True)
        effects = linalg.cho_solve((root, True), aimed / noise)
        covariance = linalg.cho_solve((root, True), np.eye(len(prior)))
        determinant = 2 * np.log(np.diag(root)).sum() + np.log(prior).sum() + len(share) * np.log(noise)
        value = 0.5 * ((square - effects @ aimed) / noise + determinant)
        told = (effects**2 + np.diag(covariance)) / prior
        slope = [0.5 * ((which == k).sum() - told[which == k].sum()) for k in range(len(own))]
        left = square - 2 * effects @ aimed + effects @ gram @ effects
        slope.append(0.5 * (len(share) - (left + (covariance * gram).sum()) / noise))
        return value, np.array(slope)

    first = np.log([before[name] for name in [*own, "noise"]])
    found = optimize.minimize(
        loss, first, jac=True, method="L-BFGS-B", bounds=[(-12, 3)] * len(first), options={"maxiter": steps}
    )
    return dict(zip([*own, "noise"], np.exp(found.x)))


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
    stretch = stored.pop("stretch")
    return fit(trained(observatory()), stored, stretch)


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
