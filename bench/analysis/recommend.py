"""Which engine should I use? Wishes answered from the observations of one machine and the limits in
study.yaml."""

import pandas as pd

from bench import inputs
from bench.analysis import batching as batching_analysis
from bench.analysis import latency as latency_analysis
from bench.analysis import machines, ranking
from bench.analysis import quality as quality_analysis
from bench.definitions import Fields
from bench.observations import schema

COLUMNS = ["want", "column", "gpu", "model", "backend", "option", "value", "interval", "part", "reason"]
BEST, NEXT, UNRANKED = "best", "next", "not ranked"
RATE = "output_tokens_per_s"


def choices(requests: pd.DataFrame) -> pd.DataFrame:
    """What fulfils each wish that the data of the machine in front can answer, of one model.

    One row per wish and configuration that is named; columns want, `column` that decides, gpu, model,
    backend, option, value and interval (half width over runs), both in the column's unit; part: BEST (several
    rows where they cannot be distinguished), NEXT (the first of the other engines), or UNRANKED (the first of
    those that are not ranked, where none is), and reason (why not).
    """
    own = machines.each(requests)
    if not own:
        return pd.DataFrame(columns=COLUMNS)
    rows = own[0][1]
    limit = inputs.study()["slo"]["tpot_s"]
    everybody = f"the highest throughput with a token at least every {limit * 1e3:.0f} ms for everybody"
    timed = latency_analysis.described(rows, "latency")
    wishes = [
        ("the fastest answer for one user", RATE, latency_analysis.ranked(timed, RATE)),
        ("the shortest wait for the first token", "ttft_s", latency_analysis.ranked(timed, "ttft_s")),
        (everybody, RATE, _within(rows, limit)),
        ("the smallest memory", "peak_memory_bytes", latency_analysis.ranked(timed, "peak_memory_bytes")),
        (
            "speed without any loss: every answer the reference's, token for token",
            RATE,
            _lossless(timed, rows),
        ),
    ]
    named = [_named(*wish) for wish in wishes]
    return pd.DataFrame([row for rows in named for row in rows], columns=COLUMNS)


def _within(requests: pd.DataFrame, limit: float) -> pd.DataFrame:
    """The sweeps in which the slowest gap of the slowest request is within `limit` seconds, ranked."""
    within = batching_analysis.most_within(requests, limit)
    return ranking.rank(within, schema.CONFIGURATION, RATE)


def _lossless(timed: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """The options of `timed` whose answers are all the reference's, ranked among themselves."""
    table = quality_analysis.summary(requests)
    same = table.loc[table["same_answers"] == table["answers"], latency_analysis.VERSIONED]
    # Scores have the options' own names, `timed` those with versions: runs are what both know.
    kept = machines.front(requests, "latency").merge(same, on=latency_analysis.VERSIONED)["run_id"]
    among = timed.loc[timed["run_id"].isin(kept), latency_analysis.VERSIONED].drop_duplicates()
    return latency_analysis.ranked(timed, RATE, tuple(among.itertuples(index=False, name=None)))


def _named(want: str, column: str, table: pd.DataFrame) -> list:
    """The rows of one wish; none where nothing has a figure."""
    table = table.dropna(subset="mean")
    best = ranking.leaders(table)
    if best.empty:
        return [_row(want, column, row, UNRANKED) for _, row in table.head(1).iterrows()]
    others = table[(table["reason"] == "") & ~table["may_be_best"] & ~table["backend"].isin(best["backend"])]
    parts = (BEST, best), (NEXT, others.head(1))
    return [_row(want, column, row, part) for part, rows in parts for _, row in rows.iterrows()]


def _row(want: str, column: str, row: pd.Series, part: str) -> Fields:
    half = (row["high"] - row["low"]) / 2
    kept = {name: row[name] for name in ("gpu", "model", "backend", "option", "reason")}
    return kept | {"want": want, "column": column, "value": row["mean"], "interval": half, "part": part}
