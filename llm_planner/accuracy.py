"""How wrong the planner was on the published points, from the committed predictions of rows that no fit saw.

data/planner_validation.csv: `llm-planner validate`.
data/planner_aiconfigurator.csv: `aiconfigurator_rows`, in its own environment.
"""

from functools import cache

import numpy as np
import pandas as pd

from bench import inputs
from llm_measured.core.definitions import Fields
from llm_planner import published, validation

VALIDATION, AICONFIGURATOR, RULES = "planner_validation", "planner_aiconfigurator", "planner_rules"
LEFT_OUT = ("folds", validation.PLAIN, "gpu", "engine", "model")
QUEUE = 0.25  # of the time of an answer: a wait as long as that is a queue, not a prefill


@cache
def predicted(left_out: str = "folds") -> pd.DataFrame:
    """The rows of the published table that can be predicted when `left_out` is, with the predictions of fits
    without it: columns of `validation.with_intervals`.
    """
    made = inputs.table(VALIDATION)
    made = made[made["left_out"] == left_out].set_index("row").drop(columns="left_out")
    return published.table().join(made, how="right").sort_index()


@cache
def aiconfigurator() -> pd.DataFrame:
    """The published table with AIConfigurator's estimates as predicted_ttft_ms and predicted_tpot_ms; empty
    where it refused the row (column `refusal`) or has not been run.
    """
    made = inputs.table(AICONFIGURATOR).set_index("row")
    names = {f"estimated_{name}": f"predicted_{name}" for name in published.MEASURED}
    return published.table().join(made.rename(columns=names))


@cache
def regressions() -> pd.DataFrame:
    """The published table with the plain regressions' predictions, in the same ten folds."""
    rows = published.table()
    return rows.join(validation.regressions(rows, validation.folds(rows)))


def errors(table: pd.DataFrame) -> Fields:
    """Median and 90th percentile of |predicted / measured - 1| of TPOT and TTFT, and the number of rows that
    were predicted: a dict of shares.
    """
    table = table.dropna(subset=[f"predicted_{name}" for name in published.MEASURED])
    row = {"rows": len(table)}
    for name in published.MEASURED:
        off = (table[f"predicted_{name}"] / table[name] - 1).abs()
        row |= {f"{name}_median": off.median(), f"{name}_p90": off.quantile(0.9)}
    return row


def overview() -> pd.DataFrame:
    """One row per way to predict the published rows: `errors`, and coverage and half width of intervals where
    there are some. On AIConfigurator's own rows the folds stand once more.
    """
    titles = {
        "folds": "this planner, ten folds over configurations",
        validation.PLAIN: "the same without the errors of points near a row",
        "gpu": "each GPU left out",
        "engine": "each engine left out",
        "model": "each model left out, engine and GPU known",
    }
    found = [{"predicted by": titles[part]} | _with_intervals(predicted(part)) for part in LEFT_OUT]
    found.append({"predicted by": "plain regressions, the same folds"} | errors(regressions()))
    theirs = aiconfigurator()
    known = theirs["predicted_tpot_ms"].notna() & theirs["predicted_ttft_ms"].notna()
    found.append({"predicted by": "AIConfigurator 0.12.0"} | errors(theirs))
    found.append(
        {"predicted by": "this planner, AIConfigurator's rows"} | _with_intervals(predicted()[known])
    )
    return pd.DataFrame(found)


def _with_intervals(table):
    row = validation.scores(table)
    return {name: value for name, value in row.items() if not name.endswith("bias")}


def by_left_out() -> pd.DataFrame:
    """`validation.scores` of every GPU, engine and model that was left out: one row per `kind` and `name`."""
    found = []
    for kind in ("gpu", "engine", "model"):
        part = validation.by(predicted(kind), [kind]).rename(columns={kind: "name"})
        found.append(part.assign(kind=kind))
    return pd.concat(found, ignore_index=True)


def rules() -> pd.DataFrame:
    """data/planner_rules.csv: errors of the ten folds with the rules as committed, with each of them undone,
    and with the ones that fitted the other folds best.
    """
    return inputs.table(RULES)


def by_group() -> pd.DataFrame:
    """`validation.scores` of the ten folds: one row per engine and gpu."""
    return validation.by(predicted(), published.GROUP)


def worst(number: int = 12) -> pd.DataFrame:
    """The rows of the ten folds whose TTFT or TPOT is furthest off: the table's columns, `quantity`, measured
    and predicted in ms, `times` (the larger over the smaller), `why` (`_why`).
    """
    table, found = predicted(), []
    for name in published.MEASURED:
        part = table.assign(quantity=name[:4].upper(), measured_ms=table[name])
        part = part.assign(predicted_ms=table[f"predicted_{name}"])
        times = np.exp(np.abs(np.log(part["predicted_ms"] / part["measured_ms"])))
        part = part.assign(times=times).nlargest(number, "times")
        found.append(part.assign(why=[_why(row, name) for row in part.to_dict("records")]))
    return pd.concat(found)


def _why(row, name):
    """What the row itself shows about its error, in words."""
    answer_ms = row["tpot_ms"] * row["output_tokens"]
    fitted = published.table().groupby(published.GROUP).size()
    if fitted[row["engine"], row["gpu"]] < 10:
        return "hardly anything was fitted on this engine and device"
    if name == "ttft_ms" and row["ttft_ms"] > QUEUE * answer_ms and row["ttft_ms"] > row["predicted_ttft_ms"]:
        return "a queue was measured where slots and memory as documented leave none"
    if name == "ttft_ms" and row["ttft_ms"] < row["predicted_ttft_ms"]:
        return "prompts were read faster than computing them takes, or came less bunched"
    if row["tensor_parallel"] > 1 and row["model"] == "llama-3.1-8b":
        return "a small model over several GPUs: steps of a few ms, in which the host's share decides"
    return ""


def causes() -> pd.DataFrame:
    """Of the rows whose TTFT is off by more than 40 %: how many per engine, device, model and collection, and
    in which direction; one row per group, largest first.
    """
    table = predicted()
    ratio = table["predicted_ttft_ms"] / table["ttft_ms"]
    off = table.assign(ratio=ratio, off=(ratio - 1).abs() > 0.4)
    groups = off.groupby(["engine", "gpu", "model", "collection"], as_index=False).agg(
        rows=("off", "size"), off=("off", "sum"), ratio=("ratio", "median")
    )
    return groups[groups["off"] > 0].sort_values("off", ascending=False, ignore_index=True)


def sent(concurrency: int) -> pd.DataFrame:
    """Output tokens/s of the points with at least `concurrency` requests at once: one row per engine, gpu and
    model with points on three numbers of GPUs whose measured TTFT is 1.3 times the predicted one (median).

    Columns: engine, gpu, model, rows, times (measured over predicted TTFT, median), gpus and rates (lists:
    the numbers of GPUs, and the most tokens/s on each).
    """
    table = predicted()
    table = table[table["concurrency"] >= concurrency]
    answer_s = (table["ttft_ms"] + table["tpot_ms"] * table["output_tokens"]) / 1e3
    rate = table["concurrency"] * table["output_tokens"] / answer_s
    table = table.assign(rate=rate, times=table["ttft_ms"] / table["predicted_ttft_ms"])
    found = []
    for key, part in table.groupby(["engine", "gpu", "model"]):
        highest = part.groupby("tensor_parallel")["rate"].max()
        if len(part) < 5 or len(highest) < 3 or part["times"].median() < 1.3:
            continue
        row = dict(zip(["engine", "gpu", "model"], key)) | {"rows": len(part)}
        row |= {"gpus": highest.index.to_list(), "rates": highest.to_list()}
        found.append(row | {"times": part["times"].median()})
    return pd.DataFrame(found)


def predictions(requests: pd.DataFrame) -> pd.DataFrame:
    """data/predictions.csv with measured_tpot_s and measured_ttft_s: medians of the closed level that was
    predicted, NaN where no run has had it.
    """
    table = inputs.table("predictions")
    served = requests[(requests["experiment"] == "serving") & (requests["error"] == "")]
    for name in ("tpot_s", "ttft_s"):
        table[f"measured_{name}"] = [_measured(served, row, name) for row in table.to_dict("records")]
    return table


def _measured(served: pd.DataFrame, row: Fields, name: str) -> float:
    keys = ["backend", "option", "model", "gpu", "concurrency"]
    same = (served[keys] == [row[key] for key in keys]).all(axis=1) if len(served) else []
    return served.loc[same, name].median() if np.any(same) else np.nan
