"""How far *What to expect* is off for sources that it has not seen: families of sources are left out whole,
everything is estimated again from the rest, and every eligible case of the family is predicted.

Eligible is what `expect.eligible` says, from what was set and never from the rate, so cases that a check
holds impossible are predicted too. What a prediction is shifted and an interval stretched by for one family
comes from the errors of the others."""

import datetime

import numpy as np
import pandas as pd

from llm_observatory import build, expect

PROOF = build.DATA / "expect_proof.csv"
LOG = build.DATA / "expect_log.csv"
# Sources that share runs, authors or machines: whoever is left out takes the others along.
FAMILIES = {
    "aiconfigurator": "InferenceX",
    "inferencex": "InferenceX",
    "mlenergy-v2": "ML.ENERGY",
    "mlenergy-v3": "ML.ENERGY",
    "strix-halo-lhl": "Strix Halo",
    "strix-halo-kyuz0": "Strix Halo",
    "strix-halo-hogeheer": "Strix Halo",
}
# Copies of llama.cpp's scoreboards are one family, whatever the source is called.
COPIES = "llama.cpp's scoreboards"
SCOREBOARDS = r"scoreboard"


def family(source: str, measured_by: str = "") -> str:
    """The family that `source` is left out with."""
    return COPIES if SCOREBOARDS in str(measured_by) else FAMILIES.get(source, source)


def families(rows: pd.DataFrame) -> dict[str, str]:
    """Source -> family."""
    first = rows.drop_duplicates("source")
    return {source: family(source, by) for source, by in zip(first["source"], first["measured_by"])}


def left_out(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per eligible case that is not refused, predicted by a fit that had left out its family; columns
    of `expect.cases`, left_out (the family), log_share and spread (of its logarithm, before the stretch)."""
    of = families(rows)
    every, taught = expect.cases(rows), expect.trained(rows)
    every["left_out"], taught["left_out"] = every["source"].map(of), taught["source"].map(of)
    parts = []
    for name, part in every.groupby("left_out", sort=True):
        mean, spread = expect.fit(taught[taught["left_out"] != name]).share(part)
        parts.append(part.assign(log_share=mean, spread=spread))
    return pd.concat(parts, ignore_index=True)


def shift(table: pd.DataFrame) -> float:
    """By how much the logarithm of a rate is off in the median source."""
    off = np.log(table["share"]) - table["log_share"]
    return float(off.groupby(table["source"]).median().median())


def stretch(table: pd.DataFrame) -> float:
    """How many times wider than the model's own an interval has to be to hold 95 % of the cases, each source
    counting as much as any other; at least 1."""
    off = (np.log(table["share"]) - table["log_share"] - shift(table)).abs() / table["spread"]
    weight = 1 / table.groupby("source")["source"].transform("size")
    order = np.argsort(off.to_numpy())
    share = np.cumsum(weight.to_numpy()[order]) / weight.sum()
    quantile = expect.stats.norm.ppf(0.5 + expect.COVERED / 2)
    return max(1.0, float(off.to_numpy()[order][np.searchsorted(share, expect.COVERED)]) / quantile)


def proof(rows: pd.DataFrame) -> tuple[pd.DataFrame, float, float]:
    """(one row per eligible case with predicted, low, high (tokens/s) and error; and per source and reason
    one for the rows that are refused), and the shift and the stretch of all."""
    table = left_out(rows)
    quantile = expect.stats.norm.ppf(0.5 + expect.COVERED / 2)
    for name, part in table.groupby("left_out"):
        others = table[table["left_out"] != name]
        middle = part["log_share"] + shift(others)
        half = quantile * stretch(others) * part["spread"]
        for end, logs in (("predicted", middle), ("low", middle - half), ("high", middle + half)):
            table.loc[part.index, end] = np.minimum(np.exp(logs) * part["bound"], part["bound_most"])
    table["error"] = (table["predicted"] / table["rate"] - 1).abs()
    columns = ["source", "left_out", "machine", "accelerators", "model", "format", "engine", "rows", "rate"]
    told = pd.concat([table[[*columns, "predicted", "low", "high", "error"]], refused(rows)])
    return told, shift(table), stretch(table)


def refused(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per source and reason for which eligible rows are refused; columns source, rows, refused."""
    part = rows[expect.eligible(rows)]
    said = expect.setups(expect.asked(part))["refused"]
    counted = said[said != ""].groupby([part["source"], said]).size()
    return counted.rename("rows").reset_index()


def prove() -> str:
    """Write data/observatory/expect_proof.csv and expect_variances.csv; returns the table by source."""
    rows = build.table()
    table, moved, wider = proof(rows)
    whole = expect.fit(expect.trained(rows))
    known = whole.variances | {"stretch": wider, "shift": moved}
    found = pd.Series(known, name="variance").rename_axis("effect")
    found.to_csv(expect.VARIANCES, float_format="%.4g", lineterminator="\n")
    table.to_csv(PROOF, index=False, float_format="%.5g", lineterminator="\n")
    return by_source().round(3).to_string(index=False) + "\n" + sentence()


def by_source(table: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per source; columns source, left_out, cases, error (median), p90, within (median error once the
    source's own factor is taken out), coverage, coverage_low and
    coverage_high (95 %, Wilson), refused (share of its eligible rows)."""
    from scipy import stats

    table = pd.read_csv(PROOF) if table is None else table
    found = []
    for source, part in table.groupby("source"):
        cases = part[part["refused"].isna()]
        lost = part.loc[part["refused"].notna(), "rows"].sum()
        inside = cases["rate"].between(cases["low"], cases["high"])
        interval = (
            stats.binomtest(int(inside.sum()), len(inside)).proportion_ci(method="wilson")
            if len(inside)
            else (np.nan, np.nan)
        )
        found.append(
            {
                "source": source,
                "left_out": cases["left_out"].iloc[0] if len(cases) else None,
                "cases": len(cases),
                "error": cases["error"].median(),
                "p90": cases["error"].quantile(0.9),
                "within": _within(cases),
                "coverage": inside.mean() if len(inside) else np.nan,
                "coverage_low": interval[0],
                "coverage_high": interval[1],
                "refused": lost / (lost + cases["rows"].sum()),
            }
        )
    return pd.DataFrame(found)


SAME = ["family", "accelerators", "model", "format", "engine_family"]


def disagreements(cases: pd.DataFrame, of: dict[str, str]) -> pd.DataFrame:
    """One row per setting and two families of sources (`of`: source -> family) that both measured it; columns
    of SAME, one, other (sources), rate_one, rate_other (medians) and ratio (the faster ÷ the slower)."""
    table = cases.assign(left_out=cases["source"].map(of))
    medians = table.groupby([*SAME, "left_out"]).agg(rate=("rate", "median"), source=("source", "first"))
    found = []
    for setting, part in medians.groupby(SAME):
        several = part.reset_index().sort_values("source")
        for k, one in enumerate(several.itertuples()):
            for other in list(several.itertuples())[k + 1 :]:
                ratio = max(one.rate, other.rate) / min(one.rate, other.rate)
                found.append((*setting, one.source, other.source, one.rate, other.rate, ratio))
    return pd.DataFrame(found, columns=[*SAME, "one", "other", "rate_one", "rate_other", "ratio"])


def floor(table: pd.DataFrame) -> float:
    """The error that the best answer has in the median of `disagreements`: in the middle of two rates (on a
    logarithmic scale) it is off by the root of their ratio from both."""
    return float(np.sqrt(table["ratio"]).median() - 1)


def _within(cases: pd.DataFrame) -> float:
    """The median error that is left where each prediction is divided by the source's median one of predicted
    over measured: what no question could tell, even with the source's own habit known."""
    off = np.log(cases["predicted"] / cases["rate"])
    return float(np.expm1((off - off.median()).abs().median()))


def sentence(table: pd.DataFrame | None = None) -> str:
    """The proof in sentences."""
    table = by_source(table)
    told = table[table["cases"] > 0]
    return (
        f"Of {len(told)} sources, each left out with its family, the median of their median errors is "
        f"{100 * told['error'].median():.0f} %; {(told['error'] <= 0.15).sum()} are within 15 %. "
        f"With each source's own factor known, which a question cannot tell, it would be "
        f"{100 * told['within'].median():.0f} %. "
        f"Intervals hold {100 * told['coverage'].mean():.0f} % of the cases of a source on average. Of the "
        f"eligible rows {100 * table['refused'].mean():.0f} % are refused (mean of {len(table)} sources)."
    )


# What nobody had published when it was predicted: accelerators and models that people ask for.
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


def append(today: str | None = None) -> str:
    """Add to data/observatory/expect_log.csv what WAITING has, no source measured and the log does not hold
    yet, with the day and the version of the data; what stands there stays. Returns one sentence."""
    questions = pd.DataFrame(WAITING, columns=expect.ASKED)
    logged = pd.read_csv(LOG) if LOG.exists() else pd.DataFrame(columns=expect.ASKED)
    known = {tuple(row) for row in logged[expect.ASKED].itertuples(index=False)}
    measured = {tuple(row) for row in expect.cases(expect.observatory())[LIKE].itertuples(index=False)}
    setups = expect.setups(questions)
    new = [
        tuple(asked) not in known and tuple(setup) not in measured
        for asked, setup in zip(questions.itertuples(index=False), setups[LIKE].itertuples(index=False))
    ]
    if not any(new):
        return f"0 predictions added, {len(logged)} in the log."
    made = questions[new].join(expect.predictions(questions[new])).drop(columns=["refused"])
    made.insert(0, "date", today or datetime.datetime.now(datetime.UTC).date().isoformat())
    made.insert(1, "data_version", build.VERSION)
    whole = pd.concat([logged, made]) if len(logged) else made
    whole.to_csv(LOG, index=False, float_format="%.5g", lineterminator="\n")
    return f"{len(made)} predictions added, {len(whole)} in the log."


LIKE = ["machine", "accelerators", "model", "format", "engine"]


def awaited() -> pd.DataFrame:
    """The log, with measured (tokens/s, median of the cases that sources have by now) and sources; empty
    where nobody measured it."""
    log = pd.read_csv(LOG)
    found = expect.cases(expect.observatory())
    keys = found[LIKE].apply(tuple, axis=1)
    setups = expect.setups(log)[LIKE].apply(tuple, axis=1)
    log["measured"] = [found.loc[keys == key, "rate"].median() for key in setups]
    log["sources"] = [", ".join(sorted(set(found.loc[keys == key, "source"]))) for key in setups]
    return log
