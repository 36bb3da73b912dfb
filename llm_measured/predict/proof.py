"""How far answers are off for sources that the fit has not seen: families of sources are left out whole,
everything is estimated again from the rest, and every case of the family is predicted, also those that a
check holds impossible. Beside each stand two naive answers from the same rows: one division, and the nearest
published case."""

from dataclasses import replace

import numpy as np
import pandas as pd

from llm_measured.core import hardware
from llm_measured.predict import answer, cases, columns, effects, fit, nearest, step
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


def fitted(
    table: pd.DataFrame,
    prompts: pd.DataFrame,
    like: answer.Fitted | None = None,
    asked: pd.DataFrame | None = None,
) -> answer.Fitted:
    """What answers are made of, from the `table` of cases and that of `prompts`; `like`, of more of them,
    gives the widths of effects and where to start from."""
    fits = dict(like.fits) if like else {}
    if len(prompts):
        fits[effects.PROMPT] = fit.fit(prompts, fits.get(effects.PROMPT), effects.PROMPT)
    known = fit.reached(table[cases.taught(table)].reset_index(drop=True), fits[effects.PROMPT])
    off = pd.Series(np.nan, known.index)
    learnt, answered = effects.learnt_by(known), effects.answered_by(known)
    needed = effects.learnt_by(known if asked is None else asked)
    for model, here in learnt.items():
        if not needed[model].any():  # what nobody asks stays as `like` has it
            continue
        fits[model] = fit.fit(known[here].reset_index(drop=True), fits.get(model), model)
        part = known[answered[model]]
        if len(part):
            off[part.index] = np.log(part["seconds"]) - fits[model].seconds(part)[0]
    return answer.Fitted(fits, nearest.weighed(known.assign(off=off)))


def left_out(table: pd.DataFrame, prompts: pd.DataFrame, like: answer.Fitted) -> pd.DataFrame:
    """`cases.cases` with left_out (family), log_seconds and unseen of fits without it, with the widths of
    effects that `like`, the fits of all, found; own_curve: log_seconds where only cases that a question
    cannot tell from it are left out besides the family's fit; naive_nearest (tokens/s) of the same rows."""
    of, of_prompts = table["source"].map(family), prompts["source"].map(family)
    parts = []
    for name in sorted(of.unique()):
        part = table[of == name]
        without = fitted(table[of != name], prompts[of_prompts != name], like, part)
        away = part["away"].to_numpy()
        mean, _ = answer.seconds(part, away, without)
        parts.append(
            part.assign(
                left_out=name,
                log_seconds=mean,
                own_curve=own_curve(part, without, mean),
                unseen=answer.unseen(part, without),
                naive_nearest=nearest_rate(part, without.known),
            )
        )
    return pd.concat(parts).sort_index()


def own_curve(part: pd.DataFrame, without: answer.Fitted, mean: np.ndarray) -> np.ndarray:
    """Logarithms of seconds of a family's cases where, of cases, each alone is left out: what is learnt from
    the others of its own curve is added to the fits `without` the family; `mean`: for one user."""
    plain, _ = answer.seconds(part, np.zeros(len(part)), replace(without, known=without.known.head(0)))
    own = part.assign(off=np.log(part["seconds"]) - plain).set_axis(-1 - np.arange(len(part)))
    found = mean.copy()
    taught = cases.taught(own)
    several = pd.concat([without.known, own[taught]]).groupby(nearest.BY)
    for at, one in enumerate(own.index):
        key = tuple(own.loc[one, nearest.BY])
        if own.at[one, "users"] > 1 and key in several.groups:
            others = several.get_group(key).drop(one, errors="ignore")
            found[at] = plain[at] + nearest.shift(own.loc[[one]], nearest.weighed(others))[0]
    return found


def division(table: pd.DataFrame) -> np.ndarray:
    """Tokens/s of each user by one division: 0.65 of the bandwidth of all accelerators over the active
    weights' bytes; of several users over the weights that their tokens touch and the cache of all."""
    rate = (NAIVE_SHARE * table["bandwidth"] * table["accelerators"]).to_numpy(dtype=float)
    one = (table["active"] * table["bits"] / 8).to_numpy(dtype=float)
    several = sum(step.touched(table)) * (table["bits"] / 8).to_numpy(dtype=float)
    several += step.cache_bytes(table)
    return rate / np.where(table["users"] > 1, several, one)


# Share of the bandwidth by bits that whichllm takes, from its engine/performance.py (July 2026).
WHICHLLM = {2: 0.45, 3: 0.5, 4: 0.55, 5: 0.52, 6: 0.5, 8: 0.45, 16: 0.4, 32: 0.3}
WHICHLLM_VENDORS = {"NVIDIA": 1.0, "AMD": 0.78, "Apple": 0.82, "Intel": 0.65}


def whichllm(table: pd.DataFrame) -> np.ndarray:
    """Tokens/s of one user by the formula that whichllm publishes: bandwidth over the bytes read, of mixtures
    at least a share that grows with bandwidth, by shares for bits and vendors; of n cards 0.7 n."""
    rate = table["bandwidth"].to_numpy(dtype=float)
    least = np.minimum(0.05 * np.maximum(rate / 256e9, 1), 0.25)
    active = (table["active"] / table["parameters"]).to_numpy(dtype=float)
    read = step.weight_bytes(table) * np.where(table["mixture"] == "mixture", np.maximum(active, least), 1.0)
    nearest_bits = [min(WHICHLLM, key=lambda known: abs(known - bits)) for bits in table["bits"]]
    share = np.array([WHICHLLM[bits] for bits in nearest_bits])
    several = np.where(table["accelerators"] > 1, 0.7 * table["accelerators"], 1.0)
    return rate / read * share * table["vendor"].map(WHICHLLM_VENDORS).fillna(0.7).to_numpy() * several


def llmfit(table: pd.DataFrame) -> np.ndarray:
    """Tokens/s of one user by the formula that llmfit publishes (README, 2026): 0.55 of the bandwidth over
    the active weights' bytes."""
    return (0.55 * table["bandwidth"] / (table["active"] * table["bits"] / 8)).to_numpy(dtype=float)


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


DATA = build.DATA.parent
PROOF = DATA / "proof" / "predict.csv"
REFUSED = DATA / "proof" / "predict_refused.csv"
TABLES = DATA / "proof" / "predict_tables.csv"
QUESTIONS = DATA / "proof" / "predict_questions.csv"
WORST = DATA / "proof" / "predict_worst.csv"
CURVES = DATA / "proof" / "predict_curves.csv"
HELD = {"wide": 0.92, "likely": 0.67}
ALONE = answer.LOADS[1.0]
MORE = 0.01  # is held of one user's cases of known families, so that of one to come HELD is
FEWEST_SOURCES = 4  # of a group that has widths of its own


def errors(table: pd.DataFrame) -> pd.DataFrame:
    """`left_out` with predicted, low, high and bound (tokens/s), each family's interval from the errors of
    all others; division, llmfit, whichllm and nearest (tokens/s)."""
    table = table.assign(
        group=answer.group(table),
        bound=1 / step.least(table, table["away"].to_numpy()),
        naive_division=division(table),
        naive_llmfit=llmfit(table),
        naive_whichllm=whichllm(table),
    )
    for name in sorted(table["left_out"].unique()):
        own = (table["left_out"] == name).to_numpy()
        half = answer.half_widths(table[own], widths(table[~own]), table.loc[own, "unseen"])[:, 0]
        middle = table.loc[own, "log_seconds"]
        for end, logs in (("predicted", middle), ("low", middle + half), ("high", middle - half)):
            table.loc[own, end] = np.minimum(np.exp(-logs), table.loc[own, "bound"])
    return table


def widths(table: pd.DataFrame) -> pd.DataFrame:
    """`answer.widths` from the `left_out` cases: what holds HELD of a load's cases, each source counting as
    the root of its cases; and of its groups that FEWEST_SOURCES have, halfway to what holds it of these."""
    off = (np.log(table["seconds"]) - table["log_seconds"]).abs()
    off = off / np.where(table["unseen"], answer.UNSEEN, 1.0)
    groups, found = answer.group(table), {}
    load = groups.str.split(", ").str[1]
    # Of several users widths by engine were no better than one of the load on sources left out.
    for name, part in [*table.groupby(load), *table[load == ALONE].groupby(groups)]:
        own, sources = part["source"], part["source"].nunique()
        if ALONE in found and sources < FEWEST_SOURCES:
            continue
        weight = own.map(own.value_counts()).to_numpy() ** -0.5
        more = MORE if name.endswith(ALONE) else 0.0
        held = {end: _held(off[own.index].to_numpy(), weight, share + more) for end, share in HELD.items()}
        if ALONE in found:
            held = {end: (found[ALONE][end] * wide) ** 0.5 for end, wide in held.items()}
        found[name] = held | {"cases": len(part), "sources": sources}
    return pd.DataFrame(found).T.rename_axis("group")


def _held(far: np.ndarray, weight: np.ndarray, share: float) -> float:
    order = np.argsort(far)
    sums = np.cumsum(weight[order]) / weight.sum()
    return float(far[order][min(int(np.searchsorted(sums, share)), len(far) - 1)])


def refit() -> str:
    """Estimate everything from the committed rows and write it into the package; returns one sentence."""
    rows = build.table()
    variants(rows).to_csv(fit.FOLDER / "variants.csv", lineterminator="\n")
    table, prompts = cases.cases(rows), cases.prompts(rows)
    made = fitted(table, prompts)
    for found in made.fits.values():
        fit.write(found)
    nearest.write(made.known)
    learnt = table[cases.taught(table)]
    return (
        f"{len(learnt):,} cases of {table['source'].nunique()} sources, "
        f"{int((learnt['users'] > 1).sum()):,} of them of several users, {len(prompts):,} of prompts."
    )


def variants(rows: pd.DataFrame) -> pd.DataFrame:
    """Who has measured each accelerator whose name may mean several: sources and rows, by accelerator."""
    kinds = hardware.accelerators()
    several = kinds[kinds["family"].duplicated(keep=False)]["accelerator"]
    part = rows[rows["accelerator"].isin(several)].groupby("accelerator")["source"]
    return pd.DataFrame({"sources": part.nunique(), "rows": part.size()})


def prove() -> str:
    """Leave out each family of sources; write what intervals need into the package, and the proof:
    predict.csv and the predict_….csv beside it. Returns the tables."""
    rows = build.table()
    table, prompts = cases.cases(rows), cases.prompts(rows)
    like = fitted(table, prompts)
    told = left_out(table, prompts, like)
    known = widths(told)
    known.loc["prompts", ["wide", "cases", "sources"]] = prompts_left_out(prompts, like)
    known.to_csv(fit.FOLDER / "intervals.csv", float_format="%.4g", lineterminator="\n")
    made = errors(told)
    made[PROVED].to_csv(PROOF, index=False, float_format="%.5g", lineterminator="\n")
    away = refused(rows)
    away.to_csv(REFUSED, index=False, lineterminator="\n")
    shown = tables(made, away)
    shown.to_csv(TABLES, float_format="%.4g", lineterminator="\n")
    questions().to_csv(QUESTIONS, index=False, float_format="%.4g", lineterminator="\n")
    worst(made).to_csv(WORST, index=False, float_format="%.4g", lineterminator="\n")
    curves(made).to_csv(CURVES, float_format="%.4g", lineterminator="\n")
    return shown.round(2).to_string()


PROVED = ["source", "left_out", "machine", "accelerators", "split", "model", "format", "engine", "users"]
PROVED += ["context", "prompt", "answer", "year", "era", "accelerator_class", "engine_family", "scheme"]
PROVED += ["mixture", "model_kind", "crowd", "away", "group", "rows", "rate", "predicted", "low", "high"]
PROVED += ["bound", "unseen"]
PROVED += ["own_curve", "naive_division", "naive_nearest", "naive_llmfit", "naive_whichllm"]


# Sentences of which the row is the cause: it does not say what everybody who asks says.
LACKING = r"names no (?:accelerator|model)|states no number format"


def refused(rows: pd.DataFrame) -> pd.DataFrame:
    """Of the eligible rows of one user how many (rows) of each source are not answered, by reason (refused,
    what is quoted as …); an empty reason: those that are answered. lacking: whether the row is the cause."""
    part = rows[cases.eligible(rows) & (derived.in_flight(rows) == 1)]
    table = cases.setups(part)
    runs = (step.outside(table) == 0) | step.offloads(table)
    said = table["refused"].mask((table["refused"] == "") & ~runs, "The weights do not fit.")
    kinds = said.str.replace(QUOTED, "…", regex=True).rename("refused")
    counted = kinds.groupby([part["source"], kinds]).size().rename("rows").reset_index()
    return counted.assign(lacking=counted["refused"].str.contains(LACKING))


QUOTED = r"'[^']*'|\"[^\"]*\"|(?<=parameters of ).*(?= is not known)|(?<=Nearest: ).*(?=\. Or state)"


def prompts_left_out(table: pd.DataFrame, like: answer.Fitted) -> list[float]:
    """What an interval of a prompt's time needs: width, cases and sources of families left out."""
    of = table["source"].map(family)
    off = pd.Series(np.nan, table.index)
    for name in sorted(of.unique()):
        part = table[of != name].reset_index(drop=True)
        found = fit.fit(part, like.fits[effects.PROMPT], effects.PROMPT)
        own = table[of == name]
        off[own.index] = np.log(own["seconds"]) - found.seconds(own)[0]
    many = table.groupby("source")["source"].transform("size").to_numpy()
    return [_held(off.abs().to_numpy(), many**-0.5, HELD["wide"]), len(table), table["source"].nunique()]


def bands(table: pd.DataFrame) -> dict[str, pd.Series]:
    """The groups that the proof is shown by, each a label per case."""
    users = pd.cut(table["users"], [0, 1, 8, 32, 256], labels=["1", "2 to 8", "9 to 32", "33 to 256"])
    depth = pd.cut(
        table["context"], [-1, 4096, 16384, 32768, np.inf], labels=["to 4k", "to 16k", "to 32k", "more"]
    )
    return {
        "all": table["users"].gt(1).map({True: "several users", False: "one user"}),
        "one user, year": np.floor(table["year"])
        .clip(lower=2023)
        .where(table["users"] == 1)
        .map("{:.0f}".format),
        "hardware": table["accelerator_class"],
        "kind of model": table["model_kind"] + ", " + table["mixture"],
        "users": users.astype(str),
        "tokens in the cache": depth.astype(str),
        "weights": table["away"].gt(0).map({True: "partly on the host", False: "on the accelerator"}),
        "dense, data centre, several users": table["accelerator_class"].where(
            (table["users"] > 1)
            & (table["mixture"] == "dense")
            & table["accelerator_class"].str.contains("server")
        ),
        "era of the engine": table["era"],
        "family of sources, several users": table["left_out"].where(table["users"] > 1),
    }


def tables(made: pd.DataFrame, away: pd.DataFrame) -> pd.DataFrame:
    """`summary` of the proof by each of `bands`; `away`: `refused` rows, each of which counts as off by all
    of it and outside in *one user, with refused*."""
    parts = {}
    for by, labels in bands(made).items():
        part = made[labels.notna() & (labels != "nan")]
        parts[by] = summary(part.assign(label=labels), "label")
    shown = pd.concat(parts, names=["by", "group"])
    one = made[made["users"] == 1]
    away = away[~away["lacking"]]
    many = away.loc[away["refused"] != "", "rows"].sum() / away.loc[away["refused"] == "", "rows"].sum()
    many *= len(one)
    off = np.append((one["predicted"] / one["rate"] - 1).abs(), np.ones(round(many)))
    inside = one["rate"].between(one["low"] * 0.9999, one["high"] * 1.0001).sum() / len(off)
    whole = {"cases": len(off), "refused": round(many)}
    whole |= {"median": np.median(off), "p90": np.quantile(off, 0.9)}
    shown.loc[("all", "one user, with refused"), [*whole, "inside"]] = [*whole.values(), inside]
    return shown


def questions() -> pd.DataFrame:
    """QUESTIONS, as people wrote them in issue threads, with what is answered now beside what they
    measured."""
    table = pd.read_csv(QUESTIONS, dtype=str, keep_default_na=False)
    answered = columns.predictions(table)
    for name, end in (("predicted", ""), ("low", "_low"), ("high", "_high")):
        table[name] = answered[answer.PREDICTED + end]
    times = table["predicted"] / pd.to_numeric(table["measured"])
    return table.assign(times=times, refused=answered["refused"])


def worst(made: pd.DataFrame) -> pd.DataFrame:
    """The forty cases whose logarithm is farthest off, and a likely cause; of what is faster than its bound
    the fault is the row's, or of how its names were read, and no prediction would be near."""
    made = made[made["rate"] <= made["bound"]]
    off = np.log(made["predicted"] / made["rate"])
    part = made.assign(times=np.exp(off)).loc[off.abs().sort_values(ascending=False).index[:40]]
    causes = [
        (part["away"] > 0, "experts or layers on a host of which nothing is said"),
        (part["era"] == "2023", "an engine of 2023"),
        ((part["users"] > 1) & (part["mixture"] == "mixture"), "a mixture under load"),
        (part["users"] > 1, "load: queue, prompts or a client that is not said"),
        (part["crowd"], "sent in by strangers: shared or power-limited"),
        (part["unseen"], "engine, generation or format that no other source has"),
        (part["context"] > 16384, "depth"),
        (part["mixture"] == "mixture", "a mixture"),
    ]
    cause = np.select([here for here, _ in causes], [text for _, text in causes], "not known")
    setup = ["source", "machine", "accelerators", "model", "format", "engine", "era", "users", "context"]
    return part.assign(cause=cause)[[*setup, "rate", "predicted", "times", "cause"]]


def curves(made: pd.DataFrame) -> pd.DataFrame:
    """Return the ten families, accelerators and engines whose dense curves of data centres are farthest off,
    as `summary`, of eight cases or more; bias: predicted over measured in the middle; on_it, alike: other
    families that have measured several users on that accelerator, and with that engine."""
    made = made[made["users"] > 1]
    keys = ["left_out", "machine", "engine_family"]
    dense = made[bands(made)["dense, data centre, several users"].notna()]
    dense = dense.assign(curve=dense[keys].agg(", ".join, axis=1), bias=dense["predicted"] / dense["rate"])
    of = dense.groupby("curve")
    shown = summary(dense, "curve").join(of["bias"].median()).join(of[keys].first())
    for name, same in (("on_it", keys[1:2]), ("alike", keys[1:])):
        families = made.groupby(same)["left_out"].nunique().rename(name) - 1
        shown = shown.join(families, on=same)
    causes = [
        "no other family has measured several users on it",
        "no other family has measured this engine on it",
    ]
    cause = np.select(
        [shown["on_it"] == 0, shown["alike"] == 0], causes, "others have, of other models or versions"
    )
    shown = shown.assign(cause=cause).sort_values("median", ascending=False)
    kept = ["cases", "median", "p90", "own_curve median", "own_curve p90", "bias", "on_it", "alike", "cause"]
    return shown.loc[shown["cases"] >= 8, kept].head(10)


def proved() -> pd.DataFrame:
    """Return what `prove` wrote of each case."""
    return pd.read_csv(PROOF)


RESAMPLED = 300  # families, for the intervals of the tables


def summary(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """One row per value of `by` of what `prove` wrote: cases, sources, families left out, median and 90th
    percentile of the relative error with the interval of the median over families resampled, share inside the
    interval, its median half-width as a factor, and the medians and 90th percentiles where only the case
    itself is left out of its curve (own_curve) and of the naive answers."""
    off = (table["predicted"] / table["rate"] - 1).abs()
    inside = table["rate"].between(table["low"] * 0.9999, table["high"] * 1.0001)
    width = np.sqrt(table["high"] / table["low"])
    rng, rows = np.random.default_rng(1), {}
    for label, part in table.groupby(by):
        own = off[part.index]
        families = [own[where].to_numpy() for where in part.groupby("left_out").groups.values()]
        drawn = rng.integers(0, len(families), (RESAMPLED, len(families)))
        medians = [np.median(np.concatenate([families[at] for at in each])) for each in drawn]
        rows[label] = {
            "cases": len(part), "sources": part["source"].nunique(), "families": len(families),
            "median": own.median(),
            "median_low": np.quantile(medians, 0.025), "median_high": np.quantile(medians, 0.975),
            "p90": own.quantile(0.9), "inside": inside[part.index].mean(),
            "width": width[part.index].median(),
        }  # fmt: skip
        for name in ["own_curve", *(column for column in table if column.startswith("naive_"))]:
            rate = np.exp(-part[name]) if name == "own_curve" else part[name]
            shown, error = name.removeprefix("naive_"), (rate / part["rate"] - 1).abs()
            rows[label][f"{shown} median"], rows[label][f"{shown} p90"] = error.quantile([0.5, 0.9])
    return pd.DataFrame(rows).T.rename_axis(by)
