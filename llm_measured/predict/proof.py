"""How far answers are off for sources that the fit has not seen: families of sources are left out whole,
everything is estimated again from the rest, and every case of the family is predicted, also those that a
check holds impossible. Beside each stand two naive answers from the same rows: one division, and the nearest
published case."""

from dataclasses import replace

import numpy as np
import pandas as pd

from llm_measured.core import hardware
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
    return answer.Fitted(fits, known.assign(off=off))


def left_out(table: pd.DataFrame, prompts: pd.DataFrame, like: answer.Fitted) -> pd.DataFrame:
    """`cases.cases` with left_out (family), log_seconds and unseen of fits without it, with the widths of
    effects that `like`, the fits of all, found; own_curve: log_seconds where only cases that a question
    cannot tell from it are left out besides the family's fit; naive_nearest (tokens/s) of the same rows."""
    of, of_prompts = table["source"].map(family), prompts["source"].map(family)
    parts = []
    for name in sorted(of.unique()):
        part = table[of == name]
        without = fitted(table[of != name], prompts[of_prompts != name], like, part)
        nothing = np.zeros(len(part))
        mean, _ = answer.seconds(part, nothing, without)
        plain, _ = answer.seconds(part, nothing, replace(without, known=without.known.head(0)))
        own = part.assign(off=np.log(part["seconds"]) - plain)
        curve, same = mean.copy(), pd.concat([without.known.set_axis(-1 - without.known.index), own])
        for at, (index, one) in enumerate(own.iterrows()):
            if one["users"] > 1:
                near = same[same["machine"] == one["machine"]].drop(index)
                curve[at] = plain[at] + nearest.shift(own.loc[[index]], near)[0]
        parts.append(
            part.assign(
                left_out=name,
                log_seconds=mean,
                own_curve=curve,
                unseen=answer.unseen(part, without),
                naive_nearest=nearest_rate(part, without.known),
            )
        )
    return pd.concat(parts).sort_index()


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


FOLDER = fit.FOLDER
DATA = build.DATA.parent
PROOF = DATA / "proof" / "predict.csv"
REFUSED = DATA / "proof" / "predict_refused.csv"
TABLES = DATA / "proof" / "predict_tables.csv"
QUESTIONS = DATA / "proof" / "predict_questions.csv"
WORST = DATA / "proof" / "predict_worst.csv"
HELD = {"wide": 0.95, "likely": 0.67}
FEWEST_SOURCES = 4  # of a group that has widths of its own


def errors(table: pd.DataFrame) -> pd.DataFrame:
    """`left_out` with predicted, low, high and bound (tokens/s), each family's interval from the errors of
    all others; division, llmfit, whichllm and nearest (tokens/s)."""
    nothing = np.zeros(len(table))
    table = table.assign(
        group=answer.group(table),
        bound=1 / step.least(table, nothing),
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
    """`answer.widths` from the `left_out` cases: what holds HELD of a group's cases, each source counting as
    the root of its cases, where FEWEST_SOURCES have it; and of each load."""
    off = (np.log(table["seconds"]) - table["log_seconds"]).abs()
    off = off / np.where(table["unseen"], answer.UNSEEN, 1.0)
    groups, found = answer.group(table), {}
    for name, part in [*table.groupby(groups), *table.groupby(groups.str.split(", ").str[1])]:
        many = part.groupby("source")["source"].transform("size")
        sources = part["source"].nunique()
        # Of several users widths by engine were no better than one of the load on sources left out.
        apart = name.endswith(", one user") and sources >= FEWEST_SOURCES
        if apart or name in answer.LOADS.values():
            held = {
                end: _held(off[part.index].to_numpy(), many.to_numpy() ** -0.5, HELD[end]) for end in HELD
            }
            found[name] = held | {"cases": len(part), "sources": sources}
    return pd.DataFrame(found).T.rename_axis("group")


def _held(far: np.ndarray, weight: np.ndarray, share: float) -> float:
    order = np.argsort(far)
    sums = np.cumsum(weight[order]) / weight.sum()
    return float(far[order][min(int(np.searchsorted(sums, share)), len(far) - 1)])


def refit() -> str:
    """Estimate everything from the committed rows and write it into the package; returns one sentence."""
    rows = build.table()
    variants(rows).to_csv(FOLDER / "variants.csv", lineterminator="\n")
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
    predict.csv, predict_refused.csv, predict_tables.csv, predict_worst.csv and predict_questions.csv. Returns
    the tables."""
    rows = build.table()
    table, prompts = cases.cases(rows), cases.prompts(rows)
    like = fitted(table, prompts)
    told = left_out(table, prompts, like)
    known = widths(told)
    known.loc["prompts", ["wide", "cases", "sources"]] = prompts_left_out(prompts, like)
    known.to_csv(FOLDER / "intervals.csv", float_format="%.4g", lineterminator="\n")
    made = errors(told)
    made[PROVED].to_csv(PROOF, index=False, float_format="%.5g", lineterminator="\n")
    away = refused(rows)
    away.to_csv(REFUSED, index=False, lineterminator="\n")
    shown = tables(made, away)
    shown.to_csv(TABLES, float_format="%.4g", lineterminator="\n")
    questions().to_csv(QUESTIONS, index=False, float_format="%.4g", lineterminator="\n")
    worst(made).to_csv(WORST, index=False, float_format="%.4g", lineterminator="\n")
    return shown.round(2).to_string()


PROVED = ["source", "left_out", "machine", "accelerators", "split", "model", "format", "engine", "users"]
PROVED += ["context", "prompt", "answer", "year", "era", "accelerator_class", "engine_family", "scheme"]
PROVED += [
    "mixture",
    "model_kind",
    "crowd",
    "group",
    "rows",
    "rate",
    "predicted",
    "low",
    "high",
    "bound",
    "unseen",
]
PROVED += ["own_curve", "naive_division", "naive_nearest", "naive_llmfit", "naive_whichllm"]


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
    many = away.loc[away["refused"] != "", "rows"].sum() * len(one) / away["rows"].sum()
    off = np.append((one["predicted"] / one["rate"] - 1).abs(), np.ones(round(many)))
    inside = one["rate"].between(one["low"] * 0.9999, one["high"] * 1.0001).sum() / len(off)
    whole = {
        "cases": len(off),
        "refused": round(many),
        "median": np.median(off),
        "p90": np.quantile(off, 0.9),
    }
    shown.loc[("all", "one user, with refused"), [*whole, "inside"]] = [*whole.values(), inside]
    return shown


def questions() -> pd.DataFrame:
    """QUESTIONS, as people wrote them in issue threads, with what is answered now beside what they
    measured."""
    table = pd.read_csv(QUESTIONS, dtype=str, keep_default_na=False)
    answered = answer.predictions(table)
    for name, end in (("predicted", ""), ("low", "_low"), ("high", "_high")):
        table[name] = answered[answer.PREDICTED + end]
    times = table["predicted"] / pd.to_numeric(table["measured"])
    return table.assign(times=times, refused=answered["refused"])


def worst(made: pd.DataFrame) -> pd.DataFrame:
    """The forty cases whose logarithm is farthest off, and a likely cause."""
    off = np.log(made["predicted"] / made["rate"])
    part = made.assign(times=np.exp(off)).loc[off.abs().sort_values(ascending=False).index[:40]]
    causes = [
        (part["rate"] > part["bound"], "faster than its bound: a fault of the row or of its names"),
        (part["era"] == "2023", "an engine of 2023"),
        ((part["users"] > 1) & (part["mixture"] == "mixture"), "a mixture under load"),
        (part["users"] > 1, "load: queue, prompts or a client that is not said"),
        (part["source"].isin(cases.CROWD), "sent in by strangers: shared or power-limited"),
        (part["unseen"], "engine, generation or format that no other source has"),
        (part["context"] > 16384, "depth"),
        (part["mixture"] == "mixture", "a mixture"),
    ]
    cause = np.select([here for here, _ in causes], [text for _, text in causes], "not known")
    columns = ["source", "machine", "accelerators", "model", "format", "engine", "era", "users", "context"]
    return part.assign(cause=cause)[[*columns, "rate", "predicted", "times", "cause"]]


def one_user() -> pd.DataFrame:
    """What `prove` wrote of one user."""
    table = pd.read_csv(PROOF)
    return table[table["users"] == 1]


def several_users() -> pd.DataFrame:
    """What `prove` wrote of several users at once."""
    table = pd.read_csv(PROOF)
    return table[table["users"] > 1]


RESAMPLED = 300  # families, for the intervals of the tables


def summary(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """One row per value of `by` of what `prove` wrote: cases, sources, families left out, median and 90th
    percentile of the relative error with the interval of the median over families resampled, share inside the
    interval, its median half-width as a factor, and the medians and 90th percentiles of the naive answers."""
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
        for name in [column for column in table if column.startswith("naive_")]:
            error = (part[name] / part["rate"] - 1).abs()
            rows[label][f"{name[6:]} median"], rows[label][f"{name[6:]} p90"] = error.quantile([0.5, 0.9])
    return pd.DataFrame(rows).T.rename_axis(by)
