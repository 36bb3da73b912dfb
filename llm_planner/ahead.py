"""Predictions of serving levels that no run has had, written down before they are measured.

    from bench.observations import store
    from llm_planner import ahead
    ahead.append(store.load())

appends to data/predictions.csv a closed level for every configuration that has batching runs, serving runs on
some machine (whose lengths are taken) and no run of that level. Coefficients come from batching runs alone;
the interval spans measured over predicted on the closed levels of the same engine and option.
"""

from datetime import datetime, timezone

import numpy as np
import pandas as pd

from bench import inputs
from bench.observations import derived
from llm_planner import own

TABLE = "predictions"
CONCURRENCY, REQUESTS = 12, 36
KEYS = "backend option model gpu concurrency".split()


def predicted(requests: pd.DataFrame, concurrency: int = CONCURRENCY) -> pd.DataFrame:
    """One row per configuration that can be predicted and has no such level: columns of data/predictions.csv,
    times in s.
    """
    batches = derived.batches(requests[requests["experiment"] == "batching"])
    served = requests[(requests["experiment"] == "serving") & (requests["error"] == "")]
    levels, found = own.levels(requests), []
    for key, part in batches.groupby(KEYS[:4]):
        same = served[(served[KEYS[:2]] == list(key[:2])).all(axis=1)]
        here = same[(same[KEYS[2:4]] == list(key[2:])).all(axis=1)]
        closed = same.dropna(subset=["concurrency"])
        if closed.empty or (here["concurrency"] == concurrency).any():
            continue
        run = closed[closed["run_id"] == closed["run_id"].iloc[0]]
        level = run[run["concurrency"] == run["concurrency"].max()].head(REQUESTS)
        level = level.assign(concurrency=float(concurrency), request=np.arange(len(level)))
        met = own.simulated(level, own.fitted(part), concurrency)
        row = dict(zip(KEYS, [*key, concurrency])) | {"requests": len(level)}
        row |= {"prompt_tokens": met.prompt.mean(), "new_tokens": met.output.mean()}
        row["date"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
        known = levels[(levels[KEYS[:2]] == list(key[:2])).all(axis=1)].dropna(subset=["concurrency"])
        found.append(row | _times(met, known))
    return pd.DataFrame(found, columns=inputs.table(TABLE).columns)


def _times(met, known):
    """Medians of a simulation and their intervals from the levels that are `known`."""
    row = {}
    for name in ("ttft_s", "tpot_s"):
        middle, off = np.median(getattr(met, name)), known[name] / known[f"predicted_{name}"]
        row |= {f"predicted_{name}": middle}
        row |= {f"predicted_{name}_low": middle * min(1, off.min())}
        row |= {f"predicted_{name}_high": middle * max(1, off.max())}
    return row


def append(requests: pd.DataFrame, concurrency: int = CONCURRENCY) -> None:
    """Append what is new to data/predictions.csv, and print it."""
    table = inputs.table(TABLE)
    new = predicted(requests, concurrency)
    if len(new):
        listed = table[KEYS].apply(tuple, axis=1)
        new = new[~new[KEYS].apply(tuple, axis=1).isin(listed)]
        path = inputs.DATA / f"{TABLE}.csv"
        pd.concat([table, new]).to_csv(path, index=False, float_format="%.5g", lineterminator="\n")
    print(new.T.to_string() if len(new) else "Nothing new can be predicted.")
