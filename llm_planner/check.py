"""`llm-planner check FILE`: predictions for every row of a table like the published one, and their errors.

Coefficients come from data/planner_coefficients.csv only; measured columns are read after all rows have been
predicted, for the errors. `llm-planner validate` writes data/planner_validation.csv: the published rows
predicted in ten folds, and with each GPU, engine and model left out in turn. `llm-planner fit` writes the
coefficients, and the half widths of their errors from those rows.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd

from bench import inputs
from bench.definitions import Fields
from llm_planner import accuracy, engines, fit, published, step_time, validation, widths

COMMITTED, COVARIANCE = "planner_coefficients", "planner_covariance"


class Fits:
    """The committed coefficients and the half widths of their errors.

    `models`: (engine, gpu) -> the models that were fitted; `formats`: likewise, with precisions, None where a
    row states none.
    """

    def __init__(self, table: pd.DataFrame | None = None) -> None:
        table = (inputs.table(COMMITTED) if table is None else table).fillna({"stratum": ""})
        wide = table.pivot(index=[*published.GROUP, "stratum"], columns="coefficient", values="value")
        self.coefficients = {
            key[:2]: (row[step_time.NAMES].to_numpy(dtype=float),)
            for key, row in wide.iterrows()
            if key[2] == "" and key[0] != "any"
        }
        self.widths = {key: row[widths.NAMES].to_numpy(dtype=float) for key, row in wide.iterrows()}
        self.models = {}
        for engine, gpu, stratum in self.widths:
            if stratum and engine != "any":
                self.models.setdefault((engine, gpu), set()).add(stratum.split()[0])

    def unknown(self, engine: str, gpu: str, model: str) -> list[str]:
        """What was never fitted, as `widths.UNKNOWN` names it; [] where the model was, with that engine on
        that GPU.
        """
        if (engine, gpu) in self.coefficients:
            return [] if model in self.models[engine, gpu] else ["model"]
        found = ["gpu"] if any(engine == key[0] for key in self.coefficients) else ["engine"]
        near = [self.models[key] for key in self.coefficients if engine == key[0]]
        return found if any(model in models for models in near) else ["model", *found]

    def of(self, engine: str, gpu: str, model: str, stratum: str = "") -> tuple[np.ndarray, np.ndarray, str]:
        """(coefficients, half widths of TTFT and TPOT as logarithms, what was never fitted or "")."""
        best, _ = fit.lookup(self.coefficients, engine, gpu)
        lacking = self.unknown(engine, gpu, model)
        if lacking:
            half = widths.together([self.widths["any", "any", kind] for kind in lacking])
            return best, half, " and ".join(lacking)
        return best, self.widths.get((engine, gpu, stratum), self.widths[engine, gpu, ""]), ""


def predictions(rows: pd.DataFrame, fits: Fits | None = None) -> pd.DataFrame:
    """`rows` with the columns of `validation.predicted`, from the committed coefficients; measured columns
    are not read.

    `unknown`: what was never fitted ("model", "gpu", "model and gpu"), "" where all was; `estimated`: whether
    anything was not. A row whose model does not fit its GPUs has empty predictions and the reason in the
    column `note`.
    """
    fits = fits or Fits()
    known = rows.drop(columns=[c for c in published.MEASURED if c in rows])
    made = []
    for case in published.cases(known):
        best, width, unknown = fits.of(case.engine, case.gpu, case.model, engines.stratum(case))
        try:
            values = np.log(published.Load(case).predict(best))
        except ValueError as refusal:
            made.append([np.nan] * 6 + [unknown, True, str(refusal)])
            continue
        made.append([*np.exp([*values, *(values - width), *(values + width)]), unknown, bool(unknown), ""])
    names = [f"predicted_{name}{end}" for end in ("", "_low", "_high") for name in published.MEASURED]
    return rows.join(pd.DataFrame(made, columns=[*names, "unknown", "estimated", "note"], index=rows.index))


def report(table: pd.DataFrame) -> str:
    """The errors of `table` as sentences; none where it has no measured columns."""
    if not set(published.MEASURED) <= set(table):
        return (
            f"{len(table)} rows predicted, {int(table['estimated'].sum())} of them estimated; none "
            f"was measured."
        )
    lines = []
    lines.append(sentence("all", validation.scores(table)))
    for unknown, part in table.groupby("unknown"):
        lines.append(sentence(f"unknown {unknown}" if unknown else "fitted", validation.scores(part)))
    for key, part in table.groupby(published.GROUP):
        lines.append(sentence(" ".join(key), validation.scores(part)))
    return "\n".join(lines)


def sentence(title: str, row: Fields) -> str:
    """One line of `validation.scores`."""
    parts = []
    for name in ("tpot_ms", "ttft_ms"):
        parts.append(
            f"{name[:4].upper()} {row[f'{name}_median']:6.1%} median, {row[f'{name}_p90']:6.1%} "
            f"90th percentile, "
            f"{row[f'{name}_coverage']:6.1%} inside ±{row[f'{name}_half_width']:4.0%}, "
            f"{row[f'{name}_curves']:4.0%} of "
            f"curves wholly"
        )
    return f"{title:18s} {row['rows']:4d} rows, {row['curves']:3d} curves: " + "; ".join(parts)


def commit_fit(rows: pd.DataFrame | None = None) -> dict:
    """Fit every engine and device of the published table, and write data/planner_coefficients.csv and the
    covariances of the coefficients; half widths are those of the rows left out in
    data/planner_validation.csv.
    """
    rows = published.table() if rows is None else rows
    fits = fit.groups(rows, published.loads(rows))
    table = pd.concat([fit.tabulated(fits), half_widths(rows)])
    for name, made in ((COMMITTED, table), (COVARIANCE, fit.covariances(fits))):
        made.to_csv(inputs.DATA / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")
    return fits


def half_widths(rows: pd.DataFrame) -> pd.DataFrame:
    """Half widths of 95 % intervals: one row per engine, device, stratum and quantity, and per kind of thing
    that may be unknown; columns of data/planner_coefficients.csv.
    """
    made, found = inputs.table(accuracy.VALIDATION), []
    parts = {name: validation.errors(rows, part) for name, part in made.groupby("left_out")}
    folds = parts["folds"]

    def keep(engine, gpu, stratum, half, number):
        for name, value in zip(widths.NAMES, half):
            found.append((engine, gpu, stratum, name, value, np.nan, np.nan, "log", number))

    for (engine, gpu), part in folds.groupby(published.GROUP):
        for stratum in ["", *part["stratum"].unique()]:
            number = len(part) if not stratum else int((part["stratum"] == stratum).sum())
            keep(engine, gpu, stratum, widths.known(folds, engine, gpu, stratum), number)
    for kind in widths.UNKNOWN:
        off = parts[kind].assign(unit=validation.units(parts[kind], kind))
        keep("any", "any", kind, widths.unknown(off), len(off))
    return pd.DataFrame(found, columns=fit.COLUMNS)


def validate() -> None:
    """Predict every row of the published table from fits without it: in ten folds, with the committed rules
    and with each of them undone, and with each GPU, engine and model left out in turn.

    Prints the errors; writes data/planner_validation.csv (one row per way of leaving out and row) and
    data/planner_rules.csv (one row per rules: errors of the ten folds).
    """
    rows = published.table()
    workers = int(os.environ.get("BENCH_WORKERS", os.cpu_count() or 1))
    with ProcessPoolExecutor(workers) as pool:
        folds = list(pool.map(validation.ten_folds, [rows] * validation.FOLDS, range(validation.FOLDS)))
    loads = published.loads(rows)
    commit_validation(rows, pd.concat(folds), validation.estimates(rows, loads, fit.groups(rows, loads)))


def commit_validation(rows: pd.DataFrame, folds: pd.DataFrame, others: pd.DataFrame) -> None:
    """Write what `validate` promises from `validation.fold`'s and `validation.estimates`' predictions."""
    usual = folds[folds["rules"] == validation.COMMITTED_RULES]
    plain = usual.sort_values("row").assign(left_out="folds")[others.columns]
    table = validation.with_intervals(rows, pd.concat([plain, others], ignore_index=True))
    path = inputs.DATA / f"{accuracy.VALIDATION}.csv"
    ordered = ["left_out", "row", *(name for name in table if name.startswith("predicted_"))]
    table[ordered].to_csv(path, index=False, float_format="%.5g", lineterminator="\n")
    for left_out, part in table.groupby("left_out", sort=False):
        joined = rows.join(part.set_index("row"), how="right")
        print(sentence(left_out, validation.scores(joined)), flush=True)
    ways = {name: part for name, part in folds.groupby("rules", sort=False)}
    ways["chosen inside each fold, by engine and GPU"] = validation.chosen(folds, rows)
    found = []
    for name, part in ways.items():
        part = validation.with_intervals(rows, part.assign(left_out="folds")[others.columns])
        joined = rows.join(part.set_index("row"), how="right")
        found.append({"rules": name} | validation.scores(joined))
    path = inputs.DATA / f"{accuracy.RULES}.csv"
    pd.DataFrame(found).to_csv(path, index=False, float_format="%.5g", lineterminator="\n")


def run(file: str, out: str | None = None) -> str | None:
    """Print how far the predictions for the rows of a CSV are off, and write them to `out` where it is
    named; returns a sentence where the file cannot be predicted."""
    if not Path(file).is_file():
        return f"There is no table {file!r}: llm-planner check file.csv out.csv."
    try:
        table = predictions(pd.read_csv(file))
    except ValueError as failure:
        return str(failure)
    if out:
        table.to_csv(out, index=False, lineterminator="\n")
    print(report(table))
    return None
