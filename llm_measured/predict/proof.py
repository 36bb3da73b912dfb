"""How far answers are off for sources that the fit has not seen: families of sources are left out whole,
everything is estimated again from the rest, and every case of the family is predicted, also those that a
check holds impossible. Beside each stand two naive answers from the same rows: one division, and the nearest
published case."""

import datetime

import numpy as np
import pandas as pd

from llm_measured.predict import answer, cases, effects, fit, nearest, question, step
from llm_measured.published import build, derived

# Sources that share runs, authors or machines: whoever is left out takes the others along.
FAMILIES = {
    "aiconfigurator": "InferenceX",
    "inferencex": "InferenceX",
    "mlenergy-v2": "ML.ENERGY",
    "mlenergy-v3": "ML.ENERGY",
    "strix-halo-lhl": "Strix Halo",
    "strix-halo-kyuz0": "Strix Halo",
    "strix-halo-hogeheer": "Strix Halo",
    "willitrun": "llama.cpp's scoreboards",
}
NAIVE_SHARE = 0.65  # of the bandwidth, in one division: what is usually taken


def family(source: str) -> str:
    """The family that `source` is left out with."""
    return FAMILIES.get(source, source)


def fitted(table: pd.DataFrame, prompts: pd.DataFrame) -> dict[effects.Model, fit.Fit]:
    """Both models of a step, from the cases that a fit may learn from, and that of `prompts`."""
    alone = fit.fit(prompts, model=effects.PROMPT)
    table = fit.reached(table, alone)
    small = effects.is_small(table)
    parts = {effects.STEP: table[~small], effects.SMALL: table[small]}
    return {effects.PROMPT: alone} | {
        model: fit.fit(part[cases.taught(part)].reset_index(drop=True), model=model)
        for model, part in parts.items()
    }


def prompts_without(prompts: pd.DataFrame, like: fit.Fit) -> dict[str, fit.Fit]:
    """Family -> the fit of `prompts` without it; `like`: the fit of all."""
    of = prompts["source"].map(family)
    return {
        name: fit.fit(prompts[of != name].reset_index(drop=True), like, effects.PROMPT)
        for name in sorted(of.unique())
    }


def left_out(
    table: pd.DataFrame, like: dict[effects.Model, fit.Fit], prompts: dict[str, fit.Fit]
) -> pd.DataFrame:
    """`cases.cases` with log_seconds and spread of fits without their family, with the widths of effects that
    `like`, the fits of all with that of prompts, found; naive_nearest (tokens/s) of the same rows. `prompts`,
    which say how many operations a second has, are `prompts_without`."""
    of = table["source"].map(family)
    learnt, small = cases.taught(table), effects.is_small(table)
    parts = []
    for name in sorted(of.unique()):
        fits = like | {effects.PROMPT: prompts.get(name, like[effects.PROMPT])}
        others = fit.reached(table, fits[effects.PROMPT])[learnt & (of != name)]
        for model in (effects.STEP, effects.SMALL):
            kind = small == (model is effects.SMALL)
            if (kind & (of == name)).any():
                rows = others[kind[others.index]].reset_index(drop=True)
                fits[model] = fit.fit(rows, like[model], model)
        part = table[of == name]
        mean, spread, _ = answer.seconds(part, None, fits.__getitem__)
        near = nearest_rate(part, others)
        parts.append(part.assign(left_out=name, log_seconds=mean, spread=spread, naive_nearest=near))
    return pd.concat(parts).sort_index()


def division(table: pd.DataFrame) -> np.ndarray:
    """Tokens/s of each user by one division: 0.65 of the bandwidth of all accelerators over the active
    weights' bytes; of several users over the weights that their tokens touch and the cache of all."""
    rate = (NAIVE_SHARE * table["bandwidth"] * table["accelerators"]).to_numpy(dtype=float)
    one = (table["active"] * table["bits"] / 8).to_numpy(dtype=float)
    several = step.touched(table) * (table["bits"] / 8).to_numpy(dtype=float) + step.cache_bytes(table)
    return rate / np.where(table["users"] > 1, several, one)


def nearest_rate(asked: pd.DataFrame, measured: pd.DataFrame) -> np.ndarray:
    """Tokens/s of each user, for each row of `asked`: what the nearest row of `measured` has, scaled by what
    `division` says of the one and of the other. No row of `asked` may stand in `measured`."""
    found = np.empty(len(asked))
    texts = ("architecture", "machine", "model", "engine", "engine_family", "mixture")
    alone, measured = measured["users"] == 1, measured.astype(dict.fromkeys(texts, "category"))  # quicker
    for one in (True, False):  # one user is compared with one user, several with several
        known, wanted = measured[alone == one], ((asked["users"] == 1) == one).to_numpy()
        plain, rates, part = division(known), known["rate"].to_numpy(), asked[wanted]
        at = [int(np.argmin(nearest.distance(setup, known))) for _, setup in part.iterrows()]
        found[wanted] = rates[at] * division(part) / plain[at]
    return found


FOLDER = fit.FOLDER
DATA = build.DATA.parent
PROOF = DATA / "proof" / "predict.csv"
REFUSED = DATA / "proof" / "predict_refused.csv"
LOG = DATA / "predict_log.csv"
VERSION = "predict 2"  # of the model, in each line of the log
HELD = 0.95
LEAST_HELD = 0.92  # of the cases of every regime, also of families that were left out


def errors(table: pd.DataFrame) -> pd.DataFrame:
    """`left_out` with predicted, low, high and bound (tokens/s), each family's interval stretched by the
    errors of all others; naive_division, naive_nearest (tokens/s) and regime."""
    bound = 1 / step.least(table)
    table = table.assign(regime=answer.regime(table), naive_division=division(table), bound=bound)
    for name in sorted(table["left_out"].unique()):
        own = table["left_out"] == name
        found = stretches(table[~own])
        part = table[own]
        wide = part["regime"].map(found["stretch"]).fillna(found["stretch"].max())
        middle = part["log_seconds"]
        half = answer.QUANTILE * wide * part["spread"]
        table.loc[own, "half"], table.loc[own, "middle"] = half, middle
        for end, logs in (("predicted", middle), ("low", middle + half), ("high", middle - half)):
            table.loc[own, end] = np.minimum(np.exp(-logs), bound[own.to_numpy()])
    return table


def stretches(table: pd.DataFrame) -> pd.DataFrame:
    """Per regime of `left_out` cases stretch: what holds 95 % of the cases and 95 % of the sources' cases,
    each source counting alike, whichever is wider. (Shifting by the median source was tried, and the errors
    of sources left out grew.)"""
    found = {}
    for name, part in table.groupby(answer.regime(table)):
        off = np.log(part["seconds"]) - part["log_seconds"]
        many = part["source"].nunique()
        far = (off.abs() / part["spread"] / answer.QUANTILE).to_numpy()
        alike = (1 / part.groupby("source")["source"].transform("size")).to_numpy()
        wide = max(_held(far, np.ones(len(far))), _held(far, alike))
        # Of few sources the widest may be missing: they are taken for as far off as a normal one.
        few = 1 + 2 / np.sqrt(many) if many < 4 else 1.0
        found[name] = {"stretch": max(0.6, wide) * few, "cases": len(part), "sources": many}
    return pd.DataFrame(found).T.rename_axis("regime")


def widened(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """`errors` with the intervals of each regime widened until LEAST_HELD of its cases lie inside, and by how
    much: coverage goes before width. These factors are chosen with all families in view."""
    far = (np.log(table["seconds"]) - table["middle"]).abs() / table["half"]
    more = far.groupby(table["regime"]).quantile(LEAST_HELD).clip(lower=1)
    half = table["half"] * table["regime"].map(more)
    for end, logs in (("low", table["middle"] + half), ("high", table["middle"] - half)):
        table[end] = np.minimum(np.exp(-logs), table["bound"])
    return table, more


def _held(far: np.ndarray, weight: np.ndarray) -> float:
    order = np.argsort(far)
    share = np.cumsum(weight[order]) / weight.sum()
    return float(far[order][min(int(np.searchsorted(share, HELD)), len(far) - 1)])


def refit() -> str:
    """Estimate everything from the committed rows and write it into the package; returns one sentence."""
    rows = build.table()
    table, prompts = cases.cases(rows), cases.prompts(rows)
    for found in fitted(table, prompts).values():
        fit.write(found)
    nearest.write(table)
    learnt = table[cases.taught(table)]
    return (
        f"{len(learnt):,} cases of {table['source'].nunique()} sources, "
        f"{int((learnt['users'] > 1).sum()):,} of them of several users, {len(prompts):,} of prompts."
    )


def prove() -> str:
    """Leave out each family of sources; write what intervals need into the package, data/proof/predict.csv
    and data/proof/predict_refused.csv. Returns the table by regime."""
    rows = build.table()
    table, prompts = cases.cases(rows), cases.prompts(rows)
    like = fitted(table, prompts)
    without = prompts_without(prompts, like[effects.PROMPT])
    told = left_out(table, like, without)
    made, more = widened(errors(told))
    known = stretches(told)
    known["stretch"] *= more
    known.loc["prompts", ["stretch", "cases", "sources"]] = prompts_left_out(prompts, without)
    known.to_csv(FOLDER / "regimes.csv", float_format="%.4g", lineterminator="\n")
    made[PROVED].to_csv(PROOF, index=False, float_format="%.5g", lineterminator="\n")
    refused(rows).to_csv(REFUSED, index=False, lineterminator="\n")
    load = np.where(made["users"] == 1, "one user", "several users")
    whole = pd.concat([summary(made.assign(load=load), "load"), summary(made, "regime")])
    return whole.round(2).to_string()


PROVED = [
    *(
        "source",
        "left_out",
        "machine",
        "accelerators",
        "split",
        "model",
        "format",
        "engine",
        "users",
        "context",
        "prompt",
        "answer",
        "year",
    ),
    *(
        "accelerator_class",
        "engine_family",
        "scheme",
        "mixture",
        "regime",
        "rows",
        "rate",
        "predicted",
        "low",
    ),
    *("high", "bound", "naive_division", "naive_nearest"),
]


def refused(rows: pd.DataFrame) -> pd.DataFrame:
    """Of the eligible rows of one user how many (rows) of each source are not answered, by reason (refused,
    what is quoted as …); an empty reason: those that are answered."""
    part = rows[cases.eligible(rows) & (derived.in_flight(rows) == 1)]
    table = cases.setups(part)
    away = step.outside(table, question.ROOM) > 0
    said = table["refused"].mask((table["refused"] == "") & away, "The weights do not fit.")
    kinds = said.str.replace(QUOTED, "…", regex=True)
    return (
        kinds.groupby([part["source"], kinds])
        .size()
        .rename("rows")
        .rename_axis(["source", "refused"])
        .reset_index()
    )


QUOTED = r"'[^']*'|\"[^\"]*\"|(?<=parameters of ).*(?= is not known)|(?<=Nearest: ).*(?=\. Or state)"


def prompts_left_out(table: pd.DataFrame, without: dict[str, fit.Fit]) -> list[float]:
    """What an interval of a prompt's time needs: stretch, cases and sources of families left out; `without`:
    `prompts_without` of the same `table`."""
    of = table["source"].map(family)
    parts = []
    for name, found in without.items():
        mean, spread, _ = found.seconds(table[of == name])
        parts.append(table[of == name].assign(log_seconds=mean, spread=spread))
    told = pd.concat(parts)
    off = np.log(told["seconds"]) - told["log_seconds"]
    far = (off.abs() / told["spread"] / answer.QUANTILE).to_numpy()
    alike = (1 / told.groupby("source")["source"].transform("size")).to_numpy()
    stretch = max(_held(far, np.ones(len(far))), _held(far, alike))
    return [stretch, len(told), told["source"].nunique()]


def one_user() -> pd.DataFrame:
    """What `prove` wrote of one user."""
    table = pd.read_csv(PROOF)
    return table[table["users"] == 1]


def several_users() -> pd.DataFrame:
    """What `prove` wrote of several users at once."""
    table = pd.read_csv(PROOF)
    return table[table["users"] > 1]


SAME = ["machine", "accelerators", "split", "model", "format", "engine_family", "depth"]


def disagreements(table: pd.DataFrame) -> pd.DataFrame:
    """Of what `prove` wrote, one row per setting and two families of sources that both measured it; columns
    of SAME, one, other (sources), rate_one, rate_other (medians, tokens/s) and ratio (the faster ÷ the
    slower)."""
    medians = table.assign(depth=cases.depth(table["context"])).groupby([*SAME, "left_out"])
    found = medians.agg(rate=("rate", "median"), source=("source", "first")).reset_index()
    pairs = found.merge(found, on=SAME, suffixes=("_one", "_other"))
    pairs = pairs[pairs["source_one"] < pairs["source_other"]]
    rates = pairs[["rate_one", "rate_other"]]
    pairs = pairs.assign(ratio=rates.max(axis=1) / rates.min(axis=1))
    return pairs.rename(columns={"source_one": "one", "source_other": "other"})[
        [*SAME, "one", "other", "rate_one", "rate_other", "ratio"]
    ].reset_index(drop=True)


def floor(table: pd.DataFrame) -> float:
    """The error that the best answer has in the median of `disagreements`: in the middle of two rates (on a
    logarithmic scale) it is off by the root of their ratio from both."""
    return float(np.sqrt(table["ratio"]).median() - 1)


def summary(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """One row per value of `by` of what `prove` wrote: cases, sources, median and 90th percentile of the
    relative error, share inside the interval, its median half-width as a factor, and the medians and 90th
    percentiles of both naive answers."""
    off = (table["predicted"] / table["rate"] - 1).abs()
    naive = {name: (table[f"naive_{name}"] / table["rate"] - 1).abs() for name in ("division", "nearest")}
    inside = table["rate"].between(table["low"] * 0.9999, table["high"] * 1.0001)
    width = np.sqrt(table["high"] / table["low"])
    group = table[by]
    out = {
        "cases": off.groupby(group).size(),
        "sources": table.groupby(by)["source"].nunique(),
        "median": off.groupby(group).median(),
        "p90": off.groupby(group).quantile(0.9),
        "inside": inside.groupby(group).mean(),
        "width": width.groupby(group).median(),
    }
    for name, error in naive.items():
        out[f"{name} median"], out[f"{name} p90"] = (
            error.groupby(group).median(),
            error.groupby(group).quantile(0.9),
        )
    return pd.DataFrame(out)


# What no source of ours had when it was predicted: accelerators and models that people ask for.
WAITING = [
    (card, model, form, engine)
    for card, asked in {
        "RTX 5090": [
            ("Llama-3.1-8B", "Q4_K_M", "llama.cpp"),
            ("Qwen3-32B", "Q4_K_M", "llama.cpp"),
            ("Llama-3.1-8B", "bf16", "vllm"),
        ],
        "RTX 3090": [("Qwen3-14B", "Q4_K_M", "llama.cpp"), ("Llama-3.1-8B", "fp16", "vllm")],
        "RX 9070 XT": [("Llama-3.1-8B", "Q4_K_M", "llama.cpp"), ("Qwen3-14B", "Q4_K_M", "llama.cpp")],
        "H100 SXM": [
            ("Llama-3.1-8B", "bf16", "vllm"),
            ("Qwen3-32B", "bf16", "vllm"),
            ("Llama-3.1-8B", "bf16", "transformers"),
        ],
        "H200 SXM": [
            ("Llama-3.1-8B", "bf16", "vllm"),
            ("Llama-3.1-70B", "fp8", "vllm"),
            ("Llama-2-7B", "bf16", "transformers"),
        ],
        "MI300X": [("Llama-3.1-8B", "bf16", "vllm"), ("Qwen3-32B", "bf16", "vllm")],
        "M4 Max 40c": [("Llama-3.1-8B", "4bit", "mlx"), ("Qwen3-30B-A3B", "4bit", "mlx")],
        "DGX Spark": [("Llama-3.1-8B", "Q4_K_M", "llama.cpp"), ("Qwen3-32B", "fp8", "vllm")],
    }.items()
    for model, form, engine in asked
]
LOGGED = ["accelerator", "model", "weights_format", "engine"]


def append(today: str | None = None) -> str:
    """Add to the log what WAITING has, no source measured and the log does not hold yet, with the day, the
    version of the model and of the data; what stands there stays. Returns one sentence."""
    questions = pd.DataFrame(WAITING, columns=LOGGED)
    logged = pd.read_csv(LOG) if LOG.exists() else pd.DataFrame(columns=LOGGED)
    known = {tuple(row) for row in logged[LOGGED].itertuples(index=False)}
    setups = question.read(questions)
    new = [
        tuple(asked) not in known and nearest.exact(setup).empty
        for asked, (_, setup) in zip(questions.itertuples(index=False), setups.iterrows())
    ]
    if not any(new):
        return f"0 predictions added, {len(logged)} in the log."
    made = questions[new].join(answer.predictions(questions[new])).drop(columns=["refused"])
    made.insert(0, "date", today or datetime.datetime.now(datetime.UTC).date().isoformat())
    made.insert(1, "model_version", VERSION)
    made.insert(2, "data_version", build.VERSION)
    whole = pd.concat([logged, made]) if len(logged) else made
    whole.to_csv(LOG, index=False, float_format="%.5g", lineterminator="\n")
    return f"{len(made)} predictions added, {len(whole)} in the log."


def awaited() -> pd.DataFrame:
    """The log, with today, today_low, today_high (what is answered now), measured (tokens/s, median of the
    cases that sources have by now) and sources; empty where nobody measured it. A measurement that was
    published elsewhere stands in the log's own columns published (tokens/s) and published_by."""
    log = pd.read_csv(LOG)
    found = [nearest.exact(setup) for _, setup in question.read(log).iterrows()]
    made = answer.predictions(log[LOGGED])
    for name, end in (("today", ""), ("today_low", "_low"), ("today_high", "_high")):
        log[name] = made[answer.PREDICTED + end].to_numpy()
    log["measured"] = [part["rate"].median() for part in found]
    log["sources"] = [", ".join(sorted(set(part["source"]))) for part in found]
    return log
