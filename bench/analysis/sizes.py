"""What a larger model changes: the same options with two models, on one machine."""

import numpy as np
import pandas as pd

from bench.analysis import latency, machines, ranking, statistics

OPTION = "backend option backend_version tensor_parallel data_parallel".split()


def sizes(requests):
    """Options that the machine in front has measured with one request at a time and with several models.

    One row per option and larger model, beside the same option with the model of most options; larger models
    by the bytes that they read. Columns OPTION, gpu; of both models, the larger one's with `larger_` before
    them: model, weights, weight_bytes (per step), mbu, mbu_interval, rates (tuple: output_tokens_per_s of
    every run); and those of `statistics.ratio` of the two, smaller over larger: how many times as long an
    answer takes. Options with failed requests are left out.
    """
    rows = machines.here(requests, "latency")
    table = latency.summary(rows)
    table = table[table["failed"] == 0].dropna(subset=latency.RATE)
    if table["model"].nunique() < 2:
        return table.iloc[:0]
    front = latency.described(requests, "latency").iloc[0]
    usual = (table["model"] == front["model"]) & (table["weights"] == front["weights"])
    kept = [*OPTION, "gpu", "model", "weights", "weight_bytes", "mbu", "mbu_interval", "rates"]
    larger = table.loc[~usual, kept].rename(columns=_larger)
    both = table.loc[usual, kept].merge(larger, on=[*OPTION, "gpu"])
    both = both[both["larger_weight_bytes"] > both["weight_bytes"]].sort_values(
        ["larger_weight_bytes", *OPTION], ignore_index=True
    )
    found = [statistics.ratio(*rates) for rates in zip(both["rates"], both["larger_rates"])]
    return both.join(pd.DataFrame(found, columns=statistics.RATIO))


def _larger(name):
    """The column of the larger model for column `name`; those that say which option it is stay."""
    return name if name in (*OPTION, "gpu") else f"larger_{name}"


def order(table):
    """{"kept", "turned", "open": number of pairs of options} of rows of `sizes` with one larger model.

    A pair keeps its order, or turns it round, where both models tell it apart, all pairs of a model at once
    (`ranking.pairs`); else it is open. Options with one run of either model are left out.
    """
    several = table[(table["rates"].map(len) > 1) & (table["larger_rates"].map(len) > 1)]
    signs = [_signs(several[column]) for column in ("rates", "larger_rates")]
    product = np.multiply(*signs)
    return {
        "kept": int((product > 0).sum()),
        "turned": int((product < 0).sum()),
        "open": int((product == 0).sum()),
    }


def _signs(rates):
    """1 where the first of each pair of configurations is faster, -1 where it is slower, 0 where that cannot
    be told."""
    found = ranking.pairs([np.asarray(each) for each in rates])
    apart = found["p_adjusted"] < 1 - statistics.CONFIDENCE
    return np.where(apart, np.sign(np.log(found["ratio"].astype(float))), 0)
