"""What a larger model changes: the same options with two models, on one machine."""

import itertools

import numpy as np
import pandas as pd

from bench.analysis import comparison, latency, machines, ranking

OPTION = ["backend", "option", "backend_version", "tensor_parallel", "data_parallel"]


def sizes(requests: pd.DataFrame) -> pd.DataFrame:
    """Options that the machine in front has measured with one request at a time and with several models.

    One row per option and larger model, beside the same option with the model of most options; larger models
    by the bytes that they read. Columns OPTION, gpu; of both models, the larger one's with `larger_` before
    them: model, weights, weight_bytes (per step), mbu, mbu_interval, runs; and `comparison.RATIO` of the two,
    smaller over larger: how many times as long an answer takes. Options with failed requests are left out,
    and those whose runs with the two models no chain of sittings connects.
    """
    rows = machines.here(requests, "latency")
    table = latency.summary(rows)
    table = table[table["failed"] == 0].dropna(subset=latency.RATE)
    if table["model"].nunique() < 2:
        return table.iloc[:0]
    front = latency.described(requests, "latency").iloc[0]
    usual = (table["model"] == front["model"]) & (table["weights"] == front["weights"])
    kept = [*OPTION, "gpu", "host", "model", "weights", "weight_bytes", "mbu", "mbu_interval", "runs"]
    both = table.loc[usual, kept].merge(
        table.loc[~usual, kept], on=[*OPTION, "gpu", "host"], suffixes=("", "_larger")
    )
    both = both.rename(columns={f"{name}_larger": f"larger_{name}" for name in kept})
    both = both[both["larger_weight_bytes"] > both["weight_bytes"]].sort_values(
        ["larger_weight_bytes", *OPTION], ignore_index=True
    )
    larger = both.assign(model=both["larger_model"], weights=both["larger_weights"])
    model = latency.compared(rows, latency.RATE)
    places = [[model.place(latency.configuration(row)) for _, row in t.iterrows()] for t in (both, larger)]
    both = both.join(model.pairs(list(zip(*places)))[comparison.RATIO].drop(columns="runs"))
    return both[both["verdict"] != comparison.NOT_CONNECTED].reset_index(drop=True)


def order(requests: pd.DataFrame, table: pd.DataFrame) -> dict[str, int]:
    """{"kept", "turned", "open": number of pairs of options} of rows of `sizes` with one larger model.

    A pair keeps its order, or turns it round, where it is significant with both models, all pairs of a model
    at once (Holm); else it is open. Options with one run of either model are left out.
    """
    several = table[(table["runs"] > 1) & (table["larger_runs"] > 1)]
    rows = machines.here(requests, "latency")
    signs = []
    for prefix in ("", "larger_"):
        names = several[[*OPTION, f"{prefix}model", f"{prefix}weights"]].set_axis(
            [*OPTION, "model", "weights"], axis=1
        )
        signs.append(_signs(rows.merge(names, on=list(names)), names))
    product = np.multiply(*signs)
    return {
        "kept": int((product > 0).sum()),
        "turned": int((product < 0).sum()),
        "open": int((product == 0).sum()),
    }


def _signs(rows: pd.DataFrame, names: pd.DataFrame) -> np.ndarray:
    """1 where the first of each pair of the options `names` is faster, -1 where it is slower, 0 where the two
    cannot be distinguished."""
    pairs = list(itertools.combinations(range(len(names)), 2))
    if not pairs:
        return np.empty(0)
    model = latency.compared(rows, latency.RATE)
    by_name = {tuple(row): place for place, row in enumerate(model.table[list(names)].to_numpy())}
    places = [by_name[tuple(row)] for row in names.to_numpy()]
    found = model.pairs([(places[i], places[j]) for i, j in pairs])
    apart = ranking.holm(found["p"]) < 1 - comparison.CONFIDENCE
    return np.where(apart, np.sign(np.log(found["ratio"].astype(float))), 0)
