"""Models of several sizes, all asked three prompts of 128 new tokens (experiment `sizes`): their speed beside
their answers, whose order changes with the size, and how a token's time parts.

    time per token = layers * cost of a layer + bytes read / bandwidth reached

is fitted by least squares of relative errors, one point per model and option, for each engine and number of
bits. Each model is predicted from the smaller ones, itself left out.
"""

import itertools
import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from bench import inputs
from bench.observations import schema
from bench.topics import estimates, humaneval, latency, quality
from llm_measured.core import confidence, hardware, metrics, naming
from llm_measured.core.definitions import Fields

if TYPE_CHECKING:
    from statsmodels.regression.linear_model import RegressionResults

OPTION = ["backend", "option", "backend_version"]
MACHINE = ["gpu", "host"]
SAME_ANSWERS = [*OPTION, "model", "weights"]  # what solves as many problems, whatever the machine
COSTS = ["product", "answers", "same_answers", "perplexity_ratio", "worse", "verdict"]
SOLVED = ["solved", "pass_at_1", "pass_low", "pass_high", "scored_on"]
REVERSED, CHANGES, OTHER_FORMAT = "turns over", "changes", "not one format"
SHIPPED = "as-shipped"  # the file that people download: of another number format in each model
BITS = 4, 8, 16, 32
LAW = [*MACHINE, "backend", "backend_version", "bits"]
COEFFICIENTS = ["layer_s", "bandwidth_bytes_per_s"]


def parameters_b(model: str) -> float:
    """Return the parameters of a model, with or without `shape:`, in 10⁹; NaN where the models' table has
    none."""
    known = hardware.by_model()["parameters_b"]
    return float(known.get(model.removeprefix("shape:"), np.nan))


def size_words(model: str) -> str:
    """Return the size that a model's name states: `135M`, `1.5B`; the whole name where it states none."""
    stated = re.search(r"(\d+(?:\.\d+)?)([mb])\b", model.lower())
    return f"{stated[1]}{stated[2].upper()}" if stated else model


def timed(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the requests of `sizes`, called `latency`, without those of scores."""
    rows = latency.of_sizes(requests)
    return rows[rows["experiment"] == "latency"]


def summary(requests: pd.DataFrame) -> pd.DataFrame:
    """Return one row per machine, model, option and version, the largest model first, then the fastest.

    Columns of `latency.summary`; parameters_b; COSTS (`quality.costs`, `quality.verdict`); SOLVED: of
    HumanEval's problems, with Wilson's interval, NaN where not scored; scored_on: the device, where another
    machine has solved them.
    """
    table = latency.summary(timed(requests))
    said = quality.costs(latency.of_sizes(requests))
    said = said.assign(verdict=[quality.verdict(row) for _, row in said.iterrows()])
    said = said[[*schema.CONFIGURATION, *COSTS]]
    table = table.merge(said, "left", schema.CONFIGURATION).assign(
        parameters_b=table["model"].map(parameters_b).astype(float)
    )
    table = _with_solved(table, requests)
    order = [*MACHINE, "parameters_b", "unranked", latency.RATE]
    table = table.assign(unranked=table["reason"] != "")
    table = table.sort_values(order, ascending=[True, True, False, True, False], ignore_index=True)
    return table.drop(columns="unranked")


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return `summary` as a file has it."""
    return latency.rates_as_words(summary(requests))


def _with_solved(table: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """`table` with SOLVED: of the same machine, else of another one that asked the same version."""
    scores = humaneval.summary(requests)
    scores = scores[scores["score_run"] != ""].rename(columns={"low": "pass_low", "high": "pass_high"})
    scores = scores[[*SAME_ANSWERS, *MACHINE, *SOLVED[:-1]]]
    keys = table[[*SAME_ANSWERS, *MACHINE]].assign(row=table.index)
    both = keys.merge(scores, on=SAME_ANSWERS, suffixes=("", "_scored"))
    both = both.assign(elsewhere=both["host"] != both["host_scored"]).sort_values("elsewhere", kind="stable")
    both = both.drop_duplicates("row").set_index("row")
    both = both.assign(scored_on=both["gpu_scored"].where(both["elsewhere"], ""))
    table = table.join(both[SOLVED])
    return table.assign(scored_on=table["scored_on"].fillna(""))


def pairs(requests: pd.DataFrame) -> pd.DataFrame:
    """Compare every two options of a machine in output tokens/s, in each model in which both can be compared,
    and their ratio in the largest model with that in the smallest.

    One row per machine, pair and model with real weights, of pairs that two models or more have; columns gpu,
    host, first, second (engine, option and version), model, parameters_b, `estimates.RATIO` (first over
    second), and of the pair CHANGE: the ratio in the largest model over that in the smallest, its interval,
    p (Holm over the pairs of the machine) and change: REVERSED (changes, and another one is faster),
    CHANGES, or cannot be distinguished; OTHER_FORMAT of a file as shipped. The first of a pair is the faster
    one in the smallest model.
    """
    names = [*MACHINE, "first", "second", "model", "parameters_b", *estimates.RATIO, *CHANGE]
    table = summary(requests)
    table = table[(table["weights"] == "real") & (table["reason"] == "")]
    if table.empty:
        return pd.DataFrame(columns=names)
    fitted, parts = latency.compared(timed(requests), latency.RATE), []
    for machine, own in table.groupby(MACHINE, sort=True):
        found = _pairs_of(own, fitted)
        if len(found):
            parts.append(found.assign(**dict(zip(MACHINE, machine))))
    if not parts:
        return pd.DataFrame(columns=names)
    every = pd.concat(parts, ignore_index=True)
    order = every["change"].map({REVERSED: 0, CHANGES: 1}).fillna(2).to_numpy()
    return every.iloc[np.argsort(order, kind="stable")][names].reset_index(drop=True)


CHANGE = ["change_ratio", "change_ratio_low", "change_ratio_high", "change_p", "change"]


def _pairs_of(own: pd.DataFrame, fitted: estimates.Fit) -> pd.DataFrame:
    """`pairs` of one machine, of which `own` are the rows of `summary`."""
    own = own.sort_values(["parameters_b", latency.RATE], ascending=[True, False])
    own = own.assign(
        name=own[OPTION].agg(" ".join, axis=1),
        place=[fitted.places[tuple(row)] for row in own[latency.VERSIONED].to_numpy(dtype=object)],
    )
    places = own.set_index(["name", "model"])["place"].to_dict()
    parts, tested = [], []
    for first, second in itertools.combinations(own["name"].unique(), 2):
        models = [m for m in own["model"].unique() if (first, m) in places and (second, m) in places]
        if len(models) < 2:
            continue
        both = [(places[first, model], places[second, model]) for model in models]
        part = fitted.pairs(both)
        parts.append(part.assign(first=first, second=second, model=models))
        tested.append(dict(zip(CHANGE, _change(part, both[-1], both[0], fitted))))
        if f" {SHIPPED} " in f"{first} {second}":
            tested[-1] = dict.fromkeys(CHANGE[:-1], np.nan)
    if not parts:
        return pd.DataFrame()
    changed = pd.DataFrame(tested)
    changed["change_p"] = confidence.holm(changed["change_p"])
    crossed = [(part["ratio"].iloc[0] > 1) != (part["ratio"].iloc[-1] > 1) for part in parts]
    told = (changed["change_p"] < 1 - estimates.CONFIDENCE).to_numpy()
    changed["change"] = np.select(
        [told & np.array(crossed), told], [REVERSED, CHANGES], default=estimates.EQUAL
    )
    changed.loc[changed["change_p"].isna(), "change"] = OTHER_FORMAT
    table = pd.concat([part.assign(**row) for part, row in zip(parts, changed.to_dict("records"))])
    return table.assign(parameters_b=table["model"].map(parameters_b))


def _change(
    part: pd.DataFrame, large: tuple[int, int], small: tuple[int, int], fitted: estimates.Fit
) -> tuple[float, float, float, float]:
    """Return the ratio of a pair in the largest model over that in the smallest, its interval and p."""
    contrast = np.zeros(len(fitted.table))
    contrast[[large[0], small[1]]], contrast[[large[1], small[0]]] = 1, -1
    difference, error = contrast @ fitted.effects, np.sqrt(contrast @ fitted.covariance @ contrast)
    freedom = part["degrees_of_freedom"].min()
    half = error * stats.t.ppf((1 + estimates.CONFIDENCE) / 2, freedom)
    p = 2 * stats.t.sf(abs(difference) / error, freedom)
    return np.exp(difference), np.exp(difference - half), np.exp(difference + half), p


# --- how a token's time parts ----------------------------------------------------------------------------


def points(requests: pd.DataFrame) -> pd.DataFrame:
    """Return one row per machine, option, version and model whose time per token may be explained.

    Columns LAW (bits: of a weight), option, model, parameters_b, layers, step_bytes (weights and KV cache
    that a token reads, bytes), tpot_s (mean of the regression).
    """
    table = summary(requests)
    table = table[table["tpot_s"].notna() & ~table["reason"].isin([estimates.FAILED, estimates.NOT_JUDGED])]
    table = table[table["acceptance_rate"].isna()]  # a step that checks drafts gives several tokens
    table = table[table["option"] != SHIPPED]  # its format, and so its group, is another one in each model
    rows = timed(requests)
    kv = metrics.kv_cache_bytes(
        metrics.mean_context_tokens(rows["prompt_tokens"], rows["output_tokens"]),
        rows["kv_values_per_token"],
        rows["kv_value_bytes"],
    )
    read = rows.assign(step_bytes=rows["weight_bytes"] + kv).groupby(latency.VERSIONED, as_index=False)
    table = table.merge(read["step_bytes"].median(), "left", latency.VERSIONED)
    layers = inputs.table("models").set_index("model")["layers"]
    table = table.assign(
        layers=table["model"].str.removeprefix("shape:").map(layers).astype(float),
        bits=[bits(row) for _, row in table.iterrows()],
    )
    names = [*LAW, "option", "model", "parameters_b", "layers", "step_bytes", "tpot_s"]
    return table.dropna(subset=["layers", "parameters_b", "step_bytes"])[names].reset_index(drop=True)


def bits(row: pd.Series) -> int:
    """Return the bits of a weight: those that the option's name states, else of BITS the nearest to the bytes
    that a token reads."""
    stated = naming.bits(row["option"])
    if stated:
        return stated
    read = 8 * row["weight_bytes"] / (1e9 * row["parameters_b"])
    return min(BITS, key=lambda count: abs(np.log(max(read, 1e-9) / count)))


def _solved(own: pd.DataFrame) -> "RegressionResults":
    """Least squares of relative errors of the rows `own` of `points`: results of statsmodels' OLS."""
    import statsmodels.api as sm

    terms = own[["layers", "step_bytes"]].to_numpy(dtype=float) / own[["tpot_s"]].to_numpy(dtype=float)
    return sm.OLS(np.ones(len(own)), terms).fit()


def law(own: pd.DataFrame) -> Fields:
    """Return the fit of one group of `points`: COEFFICIENTS, each with _low and _high (95 %, Student's t over
    points; NaN without points to spare, or where the interval of the time per byte reaches 0), points, models
    and residual (the largest absolute relative error)."""
    found = _solved(own)
    layer_s, byte_s = found.params
    low, high = np.full(2, np.nan), np.full(2, np.nan)
    if found.df_resid > 0:
        low, high = found.conf_int(1 - estimates.CONFIDENCE).T
    return {
        "layer_s": layer_s, "layer_s_low": low[0], "layer_s_high": high[0],
        "bandwidth_bytes_per_s": _inverse(byte_s),
        "bandwidth_bytes_per_s_low": _inverse(high[1]),
        "bandwidth_bytes_per_s_high": _inverse(low[1]),
        "points": len(own), "models": own["model"].nunique(), "residual": float(np.abs(found.resid).max()),
    }  # fmt: skip


def _inverse(value: float) -> float:
    return 1 / value if value > 0 else np.nan


def laws(requests: pd.DataFrame) -> pd.DataFrame:
    """Return `law` of each engine, version and number of bits of a machine with three sizes or more: a row
    each; columns LAW and those of `law`."""
    every = points(requests)
    rows = [
        dict(zip(LAW, key)) | law(own)
        for key, own in every.groupby(LAW, sort=True)
        if own["model"].nunique() > 2
    ]
    names = [f"{name}{suffix}" for name in COEFFICIENTS for suffix in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=[*LAW, *names, "points", "models", "residual"])


PREDICTED = ["predicted_s", "predicted_low", "predicted_high", "error", "from_models"]
BYTES_ALONE = ["bytes_alone_s", "bytes_alone_error"]


def predictions(requests: pd.DataFrame) -> pd.DataFrame:
    """Predict each model of each group of `points` from the smaller ones, where there are two or more.

    One row per option of such a model: its row of `points`, predicted_s (time per token), its 95 %
    prediction interval (from 0 where it begins below; NaN without points to spare), error (predicted over
    measured - 1), from_models; beside it the naive answer: bytes_alone_s (the time of the same option of the
    next smaller model, times the bytes of the one over those of the other) and its error.
    """
    every = points(requests)
    parts = []
    for _, own in every.groupby(LAW, sort=True):
        for size in sorted(own["parameters_b"].unique(), reverse=True)[:-2]:
            parts.append(_predicted(own[own["parameters_b"] < size], own[own["parameters_b"] == size]))
    return (
        pd.concat(parts, ignore_index=True)
        if parts
        else every.head(0).reindex(columns=[*every, *PREDICTED, *BYTES_ALONE])
    )


def _predicted(smaller: pd.DataFrame, largest: pd.DataFrame) -> pd.DataFrame:
    found = _solved(smaller)
    terms = largest[["layers", "step_bytes"]].to_numpy(dtype=float)
    predicted = terms @ found.params
    low, high = np.full(len(largest), np.nan), np.full(len(largest), np.nan)
    if found.df_resid > 0:
        relative = found.get_prediction(terms / predicted[:, None])  # in units of the prediction itself
        low, high = relative.conf_int(obs=True, alpha=1 - estimates.CONFIDENCE).T * predicted
        low = np.maximum(low, 0)  # no token takes less than no time
    same = smaller.sort_values("parameters_b").drop_duplicates("option", keep="last").set_index("option")
    bytes_alone = largest["step_bytes"] * largest["option"].map(same["tpot_s"] / same["step_bytes"])
    return largest.assign(
        bytes_alone_s=bytes_alone,
        bytes_alone_error=bytes_alone / largest["tpot_s"] - 1,
        predicted_s=predicted,
        predicted_low=low,
        predicted_high=high,
        error=predicted / largest["tpot_s"].to_numpy() - 1,
        from_models=", ".join(map(size_words, smaller.sort_values("parameters_b")["model"].unique())),
    )
