"""`llm-planner check FILE`: predictions for every row of a table like the published one, and their errors.

Coefficients come from data/planner_coefficients.csv only; measured columns are read after all rows have been
predicted, for the errors. `llm-planner validate` writes data/planner_validation.csv: the published rows
predicted in ten folds, and with each GPU, engine and model left out in turn. `llm-planner fit` writes the
coefficients, and the half widths of their errors from those rows.
"""

import os
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from bench import inputs
from llm_measured.core import names
from llm_measured.core.definitions import Fields
from llm_planner import accuracy, engines, fit, nearby, published, shapes, step_time, validation, widths

COMMITTED, COVARIANCE = "planner_coefficients", "planner_covariance"


# How people write the engines and precisions that were fitted.
ENGINES = {"trtllm": r"tensorrt|trt-?llm|\btrt\b", "sglang": r"sglang|\bsgl\b", "vllm": r"vllm"}
PRECISIONS = {
    "bf16": r"bf(loat)?16|fp16|float16|half|16-?bits?",
    "fp8": r"fp8(-.*)?|float8|e4m3|8-?bits?-float",
    "nvfp4": r"nvfp4|fp4|nv-?fp4",
}
SCHEDULER = "vllm"  # stands in for an engine whose scheduler nobody described here


class Fits:
    """The committed coefficients and the half widths of their errors.

    `models`: (engine, gpu) -> the models that were fitted; `formats`: likewise, with precisions, None where a
    row states none.
    """

    def __init__(self, table: pd.DataFrame | None = None) -> None:
        table = (inputs.table(COMMITTED) if table is None else table).fillna({"error_group": ""})
        wide = table.pivot(index=[*published.GROUP, "error_group"], columns="coefficient", values="value")
        self.coefficients = {
            key[:2]: (row[step_time.NAMES].to_numpy(dtype=float),)
            for key, row in wide.iterrows()
            if key[2] == "" and key[0] != "any"
        }
        self.widths = {key: row[widths.NAMES].to_numpy(dtype=float) for key, row in wide.iterrows()}
        self.models = {}
        for engine, gpu, error_group in self.widths:
            if error_group and engine != "any":
                self.models.setdefault((engine, gpu), set()).add(error_group.split()[0])

    @cached_property
    def near(self) -> nearby.Errors:
        """What the published points were off by where no fit had seen them."""
        table = accuracy.predicted(validation.PLAIN)
        off = np.log(table[validation.SCORED].to_numpy() / table[validation.PREDICTED].to_numpy())
        return nearby.Errors(published.cases(table), off)

    def unknown(self, engine: str, gpu: str, model: str) -> list[str]:
        """What was never fitted, as `widths.UNKNOWN` names it; [] where the model was, with that engine on
        that GPU.
        """
        if (engine, gpu) in self.coefficients:
            return [] if model in self.models[engine, gpu] else ["model"]
        same = [key for key in self.coefficients if engine == key[0]]
        beside = [key for key in self.coefficients if gpu == key[1]]
        found = ["gpu"] if same else ["engine"] if beside else ["gpu", "engine"]
        near = [self.models[key] for key in same or beside or self.coefficients]
        return found if any(model in models for models in near) else ["model", *found]

    def of(
        self, engine: str, gpu: str, model: str, error_group: str = ""
    ) -> tuple[np.ndarray, np.ndarray, str]:
        """(coefficients, half widths of TTFT and TPOT as logarithms, what was never fitted or "")."""
        best, _ = fit.lookup(self.coefficients, engine, gpu)
        lacking = self.unknown(engine, gpu, model)
        if lacking:
            half = widths.together([self.widths["any", "any", kind] for kind in lacking])
            return best, half, " and ".join(lacking)
        return best, self.widths.get((engine, gpu, error_group), self.widths[engine, gpu, ""]), ""


def predictions(rows: pd.DataFrame, fits: Fits | None = None) -> pd.DataFrame:
    """`rows` with the columns of `validation.predicted`, from the committed coefficients; measured columns
    are not read.

    `unknown`: what was never fitted ("model", "gpu", "model and gpu"), "" where all was; `estimated`: whether
    anything was not. `note`: as what a row was read, where names are written in another way. A row that
    cannot be predicted, such as one whose model does not fit its GPUs, has empty predictions and the reason
    there.
    """
    fits = fits or Fits()
    known = rows.drop(columns=[c for c in published.MEASURED if c in rows])
    made, cases = [], [named(case) for case in published.cases(known)]
    lengthened = fits.near.of([case for case, _ in cases]) if cases else ()
    for (case, note), longer in zip(cases, lengthened, strict=True):
        best, width, unknown = fits.of(case.engine, case.gpu, case.model, engines.error_group(case))
        if case.engine not in engines.ENGINES:
            note += (
                f"No row of {case.engine} was fitted: {SCHEDULER}'s scheduler and other engines' step times "
                "stand in for it. "
            )
            case = case._replace(engine=SCHEDULER)
        try:
            values = np.log(published.Load(case).predict(best)) + longer
            if case.collection not in engines.COLLECTIONS:  # whether its client draws lengths is not known
                drawn = np.log(published.Load(case._replace(collection=engines.DRAWN)).predict(best))
                width = np.hypot(width, np.abs(values - drawn) / 2)
                values = (values + drawn) / 2
        except ValueError as refusal:
            made.append([np.nan] * 6 + [unknown, True, f"{note}{refusal}"])
            continue
        made.append(
            [*np.exp([*values, *(values - width), *(values + width)]), unknown, bool(unknown), note.strip()]
        )
    names = [f"predicted_{name}{end}" for end in ("", "_low", "_high") for name in published.MEASURED]
    return rows.join(pd.DataFrame(made, columns=[*names, "unknown", "estimated", "note"], index=rows.index))


def named(case: engines.Case) -> tuple[engines.Case, str]:
    """(a case under the names that the tables have, which names were read as others: sentences).

    What no rule knows stays as it is."""
    engine, plain = str(case.engine).strip().lower(), str(case.weights).strip().lower()
    found = {
        "engine": next((name for name, pattern in ENGINES.items() if re.search(pattern, engine)), engine),
        "weights": next((name for name, p in PRECISIONS.items() if re.fullmatch(p, plain)), plain),
        "gpu": case.gpu,
        "model": case.model,
    }
    devices = shapes.devices()
    if case.gpu not in devices:
        variants = [name.replace("-", "_") for name in _candidates(names.accelerator, str(case.gpu))]
        variants = [name.replace("a100_sxm", "a100") for name in variants]
        found["gpu"] = next((name for name in variants if name in devices), case.gpu)
    if not str(case.model).endswith(".json") and case.model not in shapes.names():
        found["model"] = next(iter(_candidates(names.model, str(case.model))), case.model)
    read = [f"{getattr(case, k)} was read as {v}" for k, v in found.items() if v != getattr(case, k)]
    return case._replace(**found), f"{'; '.join(read)}. " if read else ""


def _candidates(read: Callable, text: str) -> tuple[str, ...]:
    """The ids that `text` may mean; none where no table knows it."""
    try:
        return read(text).candidates
    except names.UnknownName:
        return ()


def report(table: pd.DataFrame) -> str:
    """The errors of `table` as sentences; none where it has no measured columns."""
    if not set(published.MEASURED) <= set(table):
        return (
            f"{len(table)} rows predicted, {int(table['estimated'].sum())} of them estimated; none "
            f"was measured."
        )
    refused = table["predicted_tpot_ms"].isna()
    lines = [
        f"Not predicted ({count} of {len(table)} rows): {reason}"
        for reason, count in table.loc[refused, "note"].value_counts().items()
    ]
    table = table[~refused]
    if table.empty:
        return "\n".join(lines)
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
            f"{name[:4].upper()} {row[f'{name}_median']:6.1%} median, {row[f'{name}_p90']:6.1%} 90th "
            f"percentile, {row[f'{name}_coverage']:6.1%} inside ±{row[f'{name}_half_width']:4.0%}, "
            f"{row[f'{name}_curves']:4.0%} of curves wholly"
        )
    return f"{title:18s} {row['rows']:4d} rows, {row['curves']:3d} curves: " + "; ".join(parts)


def commit_fit() -> dict:
    """Fit every engine and device of the published table, and write data/planner_coefficients.csv and the
    covariances of the coefficients; half widths are those of the rows left out in
    data/planner_validation.csv.
    """
    rows = published.table()
    fits = fit.groups(rows, published.loads(rows))
    table = pd.concat([fit.tabulated(fits), half_widths(rows)])
    for name, made in ((COMMITTED, table), (COVARIANCE, fit.covariances(fits))):
        made.to_csv(inputs.DATA / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")
    return fits


def half_widths(rows: pd.DataFrame) -> pd.DataFrame:
    """Half widths of 95 % intervals: one row per engine, device, error group and quantity, and per kind of
    thing that may be unknown; columns of data/planner_coefficients.csv.
    """
    made, found = inputs.table(accuracy.VALIDATION), []
    parts = {name: validation.errors(rows, part) for name, part in made.groupby("left_out")}
    # A question that is like no published point has no point near it, and the errors of the folds without.
    folds, plain = parts["folds"], parts[validation.PLAIN]

    def keep(engine, gpu, error_group, half, number):
        for name, value in zip(widths.NAMES, half):
            found.append((engine, gpu, error_group, name, value, np.nan, np.nan, "log", number))

    for (engine, gpu), part in folds.groupby(published.GROUP):
        for error_group in ["", *part["error_group"].unique()]:
            number = len(part) if not error_group else int((part["error_group"] == error_group).sum())
            keep(
                engine,
                gpu,
                error_group,
                widths.known(folds if error_group else plain, engine, gpu, error_group),
                number,
            )
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
    usual = folds[folds["rules"] == validation.COMMITTED_RULES].sort_values("row")
    plain = usual.assign(left_out=validation.PLAIN)[others.columns]
    corrected = validation.corrected(rows, plain).assign(left_out="folds")
    table = validation.with_intervals(rows, pd.concat([corrected, plain, others], ignore_index=True))
    path = inputs.DATA / f"{accuracy.VALIDATION}.csv"
    ordered = ["left_out", "row", *(name for name in table if name.startswith("predicted_"))]
    table[ordered].to_csv(path, index=False, float_format="%.5g", lineterminator="\n")
    for left_out, part in table.groupby("left_out", sort=False):
        joined = rows.join(part.set_index("row"), how="right")
        print(sentence(left_out, validation.scores(joined)), flush=True)
    ways = {name: part for name, part in folds.groupby("rules", sort=False)}
    ways[validation.CHOSEN] = validation.chosen(folds, rows)
    ways[validation.NEAR_TOO] = corrected
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
