"""Compute borrowed.csv from committed reruns: `make compare-scatter`, run from a checkout.

A rerun is a further run of one setting. Of our own runs a setting is engine, version, option, model, device,
host and load. Of published rows it is every column that was set, of one source, with one stated version or
of one day, and it has to be there three times: where two rows differ, something may have been changed that
no column says. Crowd-sourced rows are left out, since two of them are two machines. Within a setting the
squares of the logarithms' distances from their mean are added, and divided by the reruns of each level.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from llm_measured.compare import borrowed, conditions, reading
from llm_measured.core import files
from llm_measured.published import build, schema, verdicts

OWN = "serving", "latency"
LOADS = "closed_loop", "open_loop"
FEWEST_ROWS = 3  # published rows of one setting
# A search over servers' settings, most of which rows do not state; and a board to which anybody sends runs.
NO_RERUNS = {"aiconfigurator", "willitrun"}
SETTING = "engine engine_version option model gpu host".split()
COLUMNS = (
    "kind metric part scatter beyond_requests freedom reruns settings levels own_reruns published_reruns "
    "sources"
).split()
ABOUT = (
    "row_id source_row source_file original_id duplicate_of published_on retrieved source_url source_commit "
    "licence as_printed caveat audit audit_notes power_w power_scope peak_memory_bytes quality "
    "quality_metric requests failed duration_s runs spread spread_kind statistic trademark measured_on"
).split()


def own(folder: Path) -> pd.DataFrame:
    """One row per figure of each level of our own serving and latency runs in `folder` (_llama-inference);
    columns kind, metric, statistic, part, setting, level, run, log, source, and `of`, the level itself."""
    rows = []
    for path in sorted(file for name in OWN for file in folder.glob(f"*/{name}-*.csv")):
        for level in reading.read(path):
            if (
                level.conditions["failed_share"]
                or level.conditions["late_share"]
                and level.conditions["late_share"] > 0.1
            ):
                continue
            kind = borrowed.kind(
                level.conditions["gpu"], level.conditions["tool"], level.conditions["device_times"] == 1
            )
            setting = " ".join(str(level.conditions[name]) for name in SETTING)
            lengths = [level.conditions[name] for name in conditions.LENGTHS]
            load = " ".join(str(level.conditions[name]) for name in conditions.LOAD)
            for (metric, statistic), value in level.values.items():
                if not reading.bounded(statistic, level.requests):
                    continue
                rows.append(
                    {
                        "kind": kind,
                        "metric": metric,
                        "statistic": statistic,
                        "part": borrowed.part(statistic),
                        "setting": setting,
                        # The load of a study's older revision has other lengths: another level.
                        "level": f"{setting} {load} {lengths} {level.requests} {metric} {statistic}",
                        "run": f"{path.parent.name}/{path.name}",
                        "log": np.log(value),
                        "of": level,
                        "source": f"own:{level.conditions['host'] or level.conditions['gpu']}",
                    }
                )
    return pd.DataFrame(rows)


def published() -> pd.DataFrame:
    """The same of the published table, whose rows have no requests (`of` is None)."""
    table = build.read_table("table")
    fixed = [name for name in table if name not in {*ABOUT, *schema.MEASURED}]
    usable = (table["audit"] == "ok") & table["duplicate_of"].isna() & table["workload"].isin(LOADS)
    left_out = {verdicts.CROWD, *NO_RERUNS}
    table = table[usable & ~table["source"].isin(left_out) & table["accelerator"].notna()]
    version = table["engine_version"].fillna(table["image"]).fillna(table["measured_on"])
    table = table[version.notna()].assign(version=version)
    keys = [*fixed, "version"]
    loads = ("concurrency", "batch", "request_rate", "max_num_seqs")
    level = table.groupby(keys, dropna=False, sort=False).ngroup().astype(str)
    setting = (
        table.groupby([key for key in keys if key not in loads], dropna=False, sort=False)
        .ngroup()
        .astype(str)
    )
    # One line of a file is one sweep; a file of one level each is a run of the client.
    run = table["source_file"] + table["source_row"].str.replace(r"#.*", "", regex=True)
    figures = {(reading.TOKENS, ""): table["throughput_raw"]}
    for time in reading.TIMES:
        for statistic in ("mean", *reading.SHARES):
            if f"{time}_{statistic}_ms" in table:
                figures[time, statistic] = table[f"{time}_{statistic}_ms"]
    parts = []
    for (metric, statistic), values in figures.items():
        part = pd.DataFrame(
            {
                "kind": [borrowed.kind(name, "", False) for name in table["accelerator"]],
                "metric": metric,
                "statistic": statistic,
                "part": borrowed.part(statistic),
                "setting": table["source"] + " " + setting,
                "level": f"{metric} {statistic} " + table["source"] + " " + level,
                "run": run,
                "log": np.log(values.where(values > 0)),
                "of": None,
                "source": table["source"],
            }
        ).dropna(subset=["log", "kind"])
        parts.append(part[part.groupby("level")["run"].transform("nunique") >= FEWEST_ROWS])
    return pd.concat(parts, ignore_index=True)


def table(figures: pd.DataFrame) -> pd.DataFrame:
    """borrowed.csv's rows of what `own` and `published` give; columns COLUMNS."""
    # The same figure twice in one run is one; to the last digit the same in two runs is a copy.
    figures = figures.drop_duplicates(["level", "run"]).drop_duplicates(["level", "log"])
    several = figures.groupby("level")["run"].transform("size") > 1
    figures = figures[several].copy()
    figures["requests_variance"] = [
        _variance(level, (metric, statistic))
        for level, metric, statistic in zip(figures["of"], figures["metric"], figures["statistic"])
    ]
    by_level = figures.groupby("level")
    figures["square"] = (figures["log"] - by_level["log"].transform("mean")) ** 2
    figures["runs_of_level"] = by_level["run"].transform("size")
    # A level of n runs has n - 1 reruns: each row carries its share of them.
    figures["freedom"] = 1 - 1 / figures["runs_of_level"]
    figures["expected"] = figures["requests_variance"] * figures["freedom"]
    rows = []
    for (kind, metric, part), group in figures.groupby(["kind", "metric", "part"]):
        runs = group.drop_duplicates(["setting", "run"]).groupby(["source", "setting"]).size() - 1
        mine = int(runs[runs.index.get_level_values("source").str.startswith("own")].sum())
        known = group[group["requests_variance"].notna()]
        beyond = np.nan
        if len(known) == len(group):
            beyond = max(known["square"].sum() - known["expected"].sum(), 0) / known["freedom"].sum()
        rows.append(
            {
                "kind": kind,
                "metric": metric,
                "part": part,
                "scatter": round(float(np.sqrt(group["square"].sum() / group["freedom"].sum())), 4),
                "beyond_requests": round(float(np.sqrt(beyond)), 4),
                "freedom": _freedom(group, int(runs.sum())),
                "reruns": int(runs.sum()),
                "settings": len(runs),
                "levels": group["level"].nunique(),
                "own_reruns": mine,
                "published_reruns": int(runs.sum()) - mine,
                "sources": " ".join(sorted(group["source"].unique())),
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS).sort_values(COLUMNS[:3], ignore_index=True)


def _freedom(group: pd.DataFrame, reruns: int) -> float:
    """Degrees of freedom of a pooled scatter: no more than its reruns, and no more than the scatters of its
    sources lie apart allows (the mean and the variance of their variances, as of a chi-squared). NaN of fewer
    than three."""
    sums = group.groupby("source")[["square", "freedom"]].sum()
    variances = sums["square"] / sums["freedom"]
    if len(variances) < borrowed.FEWEST_SOURCES:
        return np.nan
    apart = float(variances.var())
    return round(min(reruns, 2 * float(variances.mean()) ** 2 / apart if apart else reruns), 1)


def _variance(level: reading.Level | None, row: tuple[str, str]) -> float:
    sd = reading.log_sd(level, row) if level is not None else None
    return sd[0] ** 2 if sd else np.nan


def main(folder: str) -> None:
    """Write borrowed.csv from the runs in `folder` and the published table, and print it."""
    found = table(pd.concat([own(Path(folder)), published()], ignore_index=True))
    files.write_whole(Path(__file__).with_name("borrowed.csv"), files.csv_text(found))
    borrowed.table.cache_clear()
    print(found.drop(columns="sources").to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
