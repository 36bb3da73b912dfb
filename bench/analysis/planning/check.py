"""`make plan-check DATA=file.csv OUT=predicted.csv`: predictions for every row of a table like the published
one, and their errors.

Coefficients come from data/planner_coefficients.csv only; measured columns are read after all rows have been
predicted, for the errors. `python -m bench.analysis.planning.check fit` writes that file from the published
table; `validate` writes data/planner_validation.csv: its rows predicted in ten folds, and with each GPU,
engine and model left out in turn.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from bench import inputs
from bench.analysis.planning import accuracy, engines, fit, published, step_time, validation

COMMITTED = "planner_coefficients"


class Fits:
    """The committed coefficients and the half widths of their errors; they answer as `fit.lookup` and
    `fit.half_widths` do of a fit.
    """

    def __init__(self, table=None):
        table = (inputs.table(COMMITTED) if table is None else table).fillna({"stratum": ""})
        wide = table.pivot(index=[*published.GROUP, "stratum"], columns="coefficient", values="value")
        plain = {
            key[:2]: row[step_time.NAMES].to_numpy(dtype=float)
            for key, row in wide.iterrows()
            if key[2] == "" and key[0] != "any"
        }
        self.coefficients = {key: (values,) for key, values in plain.items()}
        self.widths = {key: row[fit.WIDTHS].to_numpy(dtype=float) for key, row in wide.iterrows()}

    def of(self, engine, gpu, stratum=""):
        """(coefficients, half widths of TTFT and TPOT as logarithms, whether they are an estimate from other
        engines and devices).
        """
        best, estimated = fit.lookup(self.coefficients, engine, gpu)
        if estimated:
            return best, self.widths["any", "any", ""], True
        return best, self.widths.get((engine, gpu, stratum), self.widths[engine, gpu, ""]), False


def predictions(rows, fits=None):
    """`rows` with the columns of `validation.predicted`, from the committed coefficients; measured columns
    are not read.

    A row whose model does not fit its GPUs has empty predictions and the reason in the column `note`.
    """
    fits = fits or Fits()
    known = rows.drop(columns=[c for c in published.MEASURED if c in rows])
    made = []
    for case in published.cases(known):
        best, width, estimated = fits.of(case.engine, case.gpu, engines.stratum(case))
        try:
            values = np.log(published.Load(case).predict(best))
        except ValueError as refusal:
            made.append([np.nan] * 6 + [True, str(refusal)])
            continue
        made.append([*np.exp([*values, *(values - width), *(values + width)]), estimated, ""])
    names = [f"predicted_{name}{end}" for end in ("", "_low", "_high") for name in published.MEASURED]
    return rows.join(pd.DataFrame(made, columns=[*names, "estimated", "note"], index=rows.index))


def report(table):
    """The errors of `table` as sentences; none where it has no measured columns."""
    if not set(published.MEASURED) <= set(table):
        return (
            f"{len(table)} rows predicted, {int(table['estimated'].sum())} of them estimated; none "
            f"was measured."
        )
    lines = []
    for title, part in (
        ("all", table),
        ("fitted", table[~table["estimated"]]),
        ("estimated", table[table["estimated"]]),
    ):
        if len(part):
            lines.append(sentence(title, validation.scores(part)))
    for key, part in table.groupby(published.GROUP):
        lines.append(sentence(" ".join(key), validation.scores(part)))
    return "\n".join(lines)


def sentence(title, row):
    """One line of `validation.scores`."""
    parts = []
    for name in ("tpot_ms", "ttft_ms"):
        parts.append(
            f"{name[:4].upper()} {row[f'{name}_median']:6.1%} median, {row[f'{name}_p90']:6.1%} "
            f"90th percentile, "
            f"{row[f'{name}_coverage']:4.0%} inside ±{row[f'{name}_half_width']:4.0%}"
        )
    return f"{title:18s} {row['rows']:4d} rows: " + "; ".join(parts)


def commit_fit(rows=None):
    """Fit every engine and device of the published table, and write data/planner_coefficients.csv."""
    rows = published.table() if rows is None else rows
    loads = np.array([published.Load(c) for c in published.cases(rows)], dtype=object)
    fits = fit.groups(rows, loads)
    table = fit.tabulated(fits)
    out = estimates(rows, loads, fits)
    widths = np.quantile(np.abs(np.log(out[:, 0]) - np.log(out[:, 1])), 0.95, axis=0)
    rest = [
        ("any", "any", "", name, width, np.nan, np.nan, "log", len(rows))
        for name, width in zip(fit.WIDTHS, widths)
    ]
    table = pd.concat([table, pd.DataFrame(rest, columns=table.columns)])
    table.to_csv(inputs.DATA / f"{COMMITTED}.csv", index=False, float_format="%.6g", lineterminator="\n")
    return fits


def estimates(rows, loads, fits):
    """Array (rows, 2, 2) of (predicted, measured) TTFT and TPOT, each engine and device predicted from the
    others alone.
    """
    out = np.zeros((len(rows), 2, 2))
    for key, at in rows.reset_index(drop=True).groupby(published.GROUP).groups.items():
        others = {k: v for k, v in fits.items() if k != key}
        out[at, 0] = published.predict(loads[at], fit.estimate(others, *key))
        out[at, 1] = rows[published.MEASURED].to_numpy()[at]
    return out


def validate():
    """Predict every row of the published table from fits without it, in ten folds and with each GPU, engine
    and model left out in turn; print the errors, and write data/planner_validation.csv: one row per way of
    leaving out and row of the table.
    """
    rows = published.table()

    def progress(part, table):
        print(sentence(str(part), validation.scores(table)), flush=True)

    made = []
    for left_out in accuracy.LEFT_OUT:
        parts = validation.folds(rows) if left_out == "folds" else rows[left_out].to_numpy()
        workers = int(os.environ.get("BENCH_WORKERS", os.cpu_count()))
        table = validation.left_out(rows, parts, workers=workers, progress=progress)
        print(f"{left_out}\n{report(table)}", flush=True)
        made.append(table.drop(columns=rows.columns).rename_axis("row").reset_index())
        made[-1].insert(0, "left_out", left_out)
    path = inputs.DATA / f"{accuracy.VALIDATION}.csv"
    pd.concat(made).to_csv(path, index=False, float_format="%.5g", lineterminator="\n")


def main(arguments):
    """`fit`, `validate`, or `DATA [OUT]`."""
    if arguments[:1] == ["fit"]:
        return commit_fit() and None
    if arguments[:1] == ["validate"]:
        return validate()
    if not arguments or not Path(arguments[0]).is_file():
        return (
            f"There is no table {arguments[0] if arguments else ''!r}: make plan-check DATA=file.csv "
            f"OUT=predicted.csv."
        )
    try:
        table = predictions(pd.read_csv(arguments[0]))
    except ValueError as failure:
        return str(failure)
    if arguments[1:]:
        table.to_csv(arguments[1], index=False, lineterminator="\n")
    print(report(table))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
