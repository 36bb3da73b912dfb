"""Which engine should I use? Wishes answered from the runs of one machine and the limits in study.yaml."""

import pandas as pd

from bench import inputs
from bench.observations import schema
from bench.topics import batching as batching_analysis
from bench.topics import estimates, machines
from bench.topics import latency as latency_analysis
from bench.topics import quality as quality_analysis
from llm_measured.core.definitions import Fields

COLUMNS = [
    *("want", "column", "gpu", "model", "part", "backend", "option", "value", "interval", "batch_size"),
    *("gap_s", "verdict", "not_compared"),
]
BEST, NEXT, ONE_RUN = "best", "next", "one run each"
WITHHELD = "an option that was not compared has all its runs above"
RATE = "output_tokens_per_s"


def choices(requests: pd.DataFrame) -> pd.DataFrame:
    """Return who fulfils each wish best on the default machine, of one model: the highest mean over runs.

    Two rows per wish: part BEST, and NEXT, the best of the other engines where there is one. Columns: want,
    `column` that decides, gpu, model, backend, option; value and interval (half width of the 95 % t interval
    over runs), both in the column's unit; batch_size and gap_s (the longest gap of any request) where batches
    decide; verdict (`quality_analysis.verdict`); not_compared: the configurations with one run, with failed
    requests, or whose tokens could not be checked for want of memory. Where all have
    one run, part is ONE_RUN; where an option that was not compared has all its runs above the best one's
    mean, it is WITHHELD.
    """
    own = machines.each(requests)
    if not own:
        return pd.DataFrame(columns=COLUMNS)
    rows = own[0][1]
    limit = inputs.study()["slo"]["tpot_s"]
    timed = latency_analysis.runs(latency_analysis.described(rows, "latency"))
    lost = quality_analysis.costs(rows)
    alike = lost.loc[lost["same_answers"] == lost["answers"], ["backend", "option"]]
    everybody = f"the highest throughput with a token at least every {limit * 1e3:.0f} ms for everybody"
    wishes = [
        ("the fastest answer for one user", RATE, timed),
        ("the fastest that answers as the reference, token for token", RATE, timed.merge(alike)),
        ("the shortest wait for the first token", "ttft_s", timed),
        (everybody, RATE, batching_analysis.most_within(rows, limit)),
        ("the smallest memory", "peak_memory_bytes", timed),
    ]
    named = [row for wish in wishes for row in _named(*wish)]
    if not named:
        return pd.DataFrame(columns=COLUMNS)
    return quality_analysis.beside(pd.DataFrame(named), rows).reindex(columns=COLUMNS)


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return `choices` of the requests of one machine, with its host."""
    return choices(requests).assign(host=requests["host"].iloc[0] if len(requests) else "")


def _named(want: str, column: str, runs: pd.DataFrame) -> list[Fields]:
    """Return the rows of one wish; none where nothing has a figure."""
    runs = runs[runs[column] > 0]
    table = pd.DataFrame(
        [_mean(key, rows, column) for key, rows in runs.groupby(schema.CONFIGURATION, sort=True)]
    )
    if table.empty:
        return []
    better = latency_analysis.higher_is_better(column)
    table = table.sort_values("value", ascending=not better, kind="stable")
    judged = table[~table["unjudged"]]
    if judged.empty:
        return []
    compared = judged[(judged["runs"] > 1) & (judged["failed"] == 0)]
    out = table.drop(compared.index)
    left = ", ".join(f"{row.backend} {row.option}" for row in out.itertuples())
    found = {"want": want, "column": column, "not_compared": left}
    if compared.empty:
        return [judged.iloc[0].to_dict() | found | {"part": ONE_RUN}]
    best = compared.iloc[0]
    if estimates.all_runs_better(out, best["value"], better).any():
        return [best.to_dict() | found | {"part": WITHHELD}]
    others = compared[compared["backend"] != best["backend"]]
    rows = [(BEST, best), *((NEXT, row) for _, row in others.head(1).iterrows())]
    return [row.to_dict() | found | {"part": part} for part, row in rows]


def _mean(key: tuple, rows: pd.DataFrame, column: str) -> Fields:
    """Return the mean of `column` over the runs of one configuration, with its interval."""
    failed = rows["failed"].sum() if "failed" in rows else 0
    unjudged = "not_judged" in rows and bool((rows["not_judged"] != "").any())
    batch = {}
    if "batch_size" in rows:
        batch = {"batch_size": rows["batch_size"].iloc[0], "gap_s": rows["itl_max_s"].max()}
    value, _, high = estimates.mean_interval(rows[column])
    mean = {"value": value, "interval": high - value, "least": rows[column].min(), "most": rows[column].max()}
    return (
        dict(zip(schema.CONFIGURATION, key))
        | mean
        | batch
        | {"runs": len(rows), "failed": failed, "unjudged": unjudged}
    )
