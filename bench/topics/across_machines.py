"""Every two configurations on each machine that has both: one regression, ratios inside each host.

Runs of different machines are never pooled, and neither are their ratios: hosts of one processor type agree,
types do not. A row per pair and machine says on how many of them, and on which, one is slower.
"""

import pandas as pd

from bench.observations import derived
from bench.topics import estimates, latency, machines
from llm_measured.core import naming

RATE = latency.RATE
KEYS = ["backend", "option", "backend_version"]
THAN = [f"than_{key}" for key in KEYS]  # the configuration that another one is compared with
MODEL = ["model", "weights"]


def compared(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the latency runs that are compared, one row per run (`latency.runs`).

    Their tokens were not left unchecked (`derived.judged`), no request failed, and RATE is above zero.
    Options as `naming.named`.
    """
    rows = naming.named(derived.judged(requests[requests["experiment"] == "latency"]))
    runs = latency.runs(rows[rows["shared_by"] == ""])
    return runs[(runs["failed"] == 0) & (runs[RATE] > 0)]


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return how many times as fast one configuration is as another.

    A row per model, pair and machine, pairs that most machines have first; columns MODEL, KEYS, THAN,
    machine, gpu, host, `estimates.RATIO`, machines (that have both). Ratio and interval are empty where the
    two cannot be compared, and the verdict says why.
    """
    columns = [*MODEL, *KEYS, *THAN, "machine", "gpu", "host", *estimates.RATIO, "machines"]
    runs = compared(requests)
    if runs.empty:
        return pd.DataFrame(columns=columns)
    labels = {
        tuple(rows[machines.MACHINE].iloc[0]): label for label, rows in machines.labelled(requests, False)
    }
    fitted, same = estimates.fit(runs, latency.VERSIONED, RATE), [*MODEL, *machines.MACHINE]
    first = fitted.table[[*same, *KEYS]].reset_index(names="place").sort_values(KEYS, ignore_index=True)
    first = first.assign(rank=first.index)
    second = first.rename(columns={name: f"than_{name}" for name in [*KEYS, "place", "rank"]})
    pairs = first.merge(second, on=same).query("rank < than_rank").reset_index(drop=True)
    pairs = pairs.join(fitted.pairs(pairs[["place", "than_place"]].to_numpy()))
    pairs["machine"] = [labels[key] for key in pairs[machines.MACHINE].itertuples(index=False, name=None)]
    pairs["machines"] = pairs.groupby([*MODEL, *KEYS, *THAN])["host"].transform("size")
    order = ["machines", *MODEL, *KEYS, *THAN, "machine"]
    ascending = [False, *(True for _ in order[1:])]
    return pairs.sort_values(order, ascending=ascending, ignore_index=True)[columns]
