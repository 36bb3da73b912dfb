"""Quality: what the answers of an option are worth to the float32 reference, as frames."""

import numpy as np

from bench import metrics
from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.machine import identity
from bench.observations import schema

REFERENCE = ("transformers", "float32")
# What answers and texts must share to be compared.
KEYS = "model weights gpu host".split()


def token_ids(text):
    """The token ids of a stored answer."""
    return [int(word) for word in text.split()]


def departs_at(ids, reference):
    """Index of the first token of `ids` that is not the reference's, from 0; NaN if all are the same."""
    different = np.flatnonzero(np.asarray(ids) != np.asarray(reference))
    return float(different[0]) if len(different) else np.nan


def agreement(ids, reference):
    """Share of positions at which both have the same token.

    After the first other token the texts differ, so later agreement is chance.
    """
    return float(np.mean(np.asarray(ids) == np.asarray(reference)))


def newest(requests):
    """Of each configuration the requests of the run that began last."""
    ordered = requests.sort_values(["started", "run_id"], kind="stable")
    last = ordered.groupby(schema.CONFIGURATION)["run_id"].transform("last")
    return requests[requests["run_id"] == last.reindex(requests.index)]


def scored(requests):
    """Requests of the newest quality run of each configuration on real weights, without those that failed."""
    rows = _newest_quality(requests)
    return rows[rows["error"] == ""]


def _newest_quality(requests):
    return newest(requests[(requests["experiment"] == "quality") & (requests["weights"] == "real")])


def _references(rows):
    return rows[(rows["backend"] == REFERENCE[0]) & (rows["option"] == REFERENCE[1])]


def answers(requests):
    """One row per scored answer: how it compares with the reference's own answer to the same prompt.

    Columns: the configuration, started, prompt, output_tokens, reference_nll_nats; departs_at, agreement and
    excess_nll_nats (its NLL above that of the reference's answer), NaN without a scored reference.
    """
    rows = scored(requests).dropna(subset="reference_nll_nats")
    shown = [*schema.CONFIGURATION, "started", "prompt", "output_tokens"]
    keys = [*KEYS, "prompt", "output_tokens"]
    values = ["output_ids", "reference_nll_nats"]
    both = rows[shown + values].merge(_references(rows)[keys + values], "left", keys, suffixes=("", "_own"))
    pairs = [
        (token_ids(a), token_ids(b)) if isinstance(b, str) else None
        for a, b in zip(both["output_ids"], both["output_ids_own"])
    ]
    return both.assign(
        departs_at=[departs_at(*pair) if pair else np.nan for pair in pairs],
        agreement=[agreement(*pair) if pair else np.nan for pair in pairs],
        excess_nll_nats=both["reference_nll_nats"] - both["reference_nll_nats_own"],
    ).drop(columns=["output_ids", "output_ids_own", "reference_nll_nats_own"])


def perplexities(requests):
    """Perplexity of the fixed text: one row per configuration whose engine returns log-probabilities.

    Columns: the configuration, text_tokens, perplexity, perplexity_ratio (to the reference's on the same
    tokens); NaN where a piece of the text failed.
    """
    rows = _newest_quality(requests)
    rows = rows[rows["prompt"] == 0]
    weighted = rows["own_nll_nats"] * rows["output_tokens"]
    rows = rows.assign(nats=weighted.where(rows["error"] == ""))
    how = {
        "nats": ("nats", lambda n: n.sum(skipna=False)),
        "text_tokens": ("output_tokens", "sum"),
        "text": ("output_ids", " ".join),
    }
    table = rows.groupby(schema.CONFIGURATION, as_index=False).agg(**how)
    table = table.assign(perplexity=metrics.perplexity(table["nats"] / table["text_tokens"]))
    own = _references(table)[[*KEYS, "text", "perplexity"]]
    table = table.merge(own, "left", [*KEYS, "text"], suffixes=("", "_own"))
    table = table.assign(perplexity_ratio=table["perplexity"] / table["perplexity_own"])
    return table.drop(columns=["nats", "text", "perplexity_own"])


def summary(requests):
    """One row per scored configuration on real weights, fastest first.

    Columns: the configuration; answers, same_answers (token for token the reference's), agreement (share of
    tokens), departs_first and departs_median (index of the first other token: earliest, and median over
    answers; NaN for never), reference_nll_nats, excess_nll_nats, excess_interval (95 % t-interval over
    prompts), started (of the run that scored it); those of `perplexities`; output_tokens_per_s and
    weight_bytes of its latency runs.
    """
    each = answers(requests)
    # An answer without another token departs nowhere: later than any other.
    place = each["departs_at"].fillna(np.inf).where(each["agreement"].notna())
    table = each.assign(place=place).groupby(schema.CONFIGURATION, as_index=False)
    table = table.agg(
        answers=("prompt", "count"),
        same_answers=("agreement", lambda a: (a == 1).sum() if a.notna().all() else np.nan),
        agreement=("agreement", "mean"),
        departs_first=("place", "min"),
        departs_median=("place", "median"),
        reference_nll_nats=("reference_nll_nats", "mean"),
        excess_nll_nats=("excess_nll_nats", "mean"),
        excess_interval=("excess_nll_nats", metrics.t_interval),
        started=("started", "max"),
    ).replace(np.inf, np.nan)
    speed = latency_analysis.summary(requests[requests["experiment"] == "latency"])
    speed = speed[[*schema.CONFIGURATION, "output_tokens_per_s", "weight_bytes"]]
    table = table.merge(perplexities(requests), "left", schema.CONFIGURATION)
    table = table.merge(speed, "left", schema.CONFIGURATION)
    return table.sort_values("output_tokens_per_s", ascending=False, ignore_index=True)


def here(requests):
    """`summary` on the machine in focus."""
    return machines.focus(summary(requests), identity.host())


def frontier(table, loss):
    """Which rows of `summary` no other row beats, as booleans: none is at least as fast and loses as little,
    and is better in one of the two.

    `loss` is a column of which less is better. Rows without a speed or a loss are not on it.
    """
    speed, cost = table["output_tokens_per_s"].to_numpy(dtype=float), table[loss].to_numpy(dtype=float)
    faster, cheaper = speed[None, :] >= speed[:, None], cost[None, :] <= cost[:, None]
    better = (speed[None, :] > speed[:, None]) | (cost[None, :] < cost[:, None])
    return ~(faster & cheaper & better).any(axis=1) & ~np.isnan(speed) & ~np.isnan(cost)
