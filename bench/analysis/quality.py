"""Quality: what the answers of an option are worth to the float32 reference, as frames."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench import memo, metrics
from bench.analysis import latency as latency_analysis
from bench.analysis import machines, statistics
from bench.observations import schema

REFERENCE = ("transformers", "float32")
# What answers and texts must share to be compared.
KEYS = "model weights gpu host".split()
# What `summary` takes from `latency.summary`: speed, its interval, and from which options it is
# distinguished.
SPEED = ["output_tokens_per_s", "output_tokens_per_s_interval", "groups", "reason", "weight_bytes"]


def token_ids(text: str) -> list[int]:
    """The token ids of a stored answer."""
    return [int(word) for word in text.split()]


def departs_at(ids: Sequence[int], reference: Sequence[int]) -> float:
    """Index of the first token of `ids` that is not the reference's, from 0; NaN if all are the same."""
    different = np.flatnonzero(np.asarray(ids) != np.asarray(reference))
    return float(different[0]) if len(different) else np.nan


def agreement(ids: Sequence[int], reference: Sequence[int]) -> float:
    """Share of positions at which both have the same token.

    After the first other token the texts differ, so later agreement is chance.
    """
    return float(np.mean(np.asarray(ids) == np.asarray(reference)))


def _newest(requests: pd.DataFrame) -> pd.DataFrame:
    """Of each configuration on real weights the requests of the quality run that began last."""
    rows = requests[(requests["experiment"] == "quality") & (requests["weights"] == "real")]
    ordered = rows.sort_values(["started", "run_id"], kind="stable")
    last = ordered.groupby(schema.CONFIGURATION)["run_id"].transform("last")
    return rows[rows["run_id"] == last.reindex(rows.index)]


def scored(requests: pd.DataFrame) -> pd.DataFrame:
    """Requests of the newest quality run of each configuration on real weights, without those that failed."""
    rows = _newest(requests)
    return rows[rows["error"] == ""]


def _references(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows["backend"] == REFERENCE[0]) & (rows["option"] == REFERENCE[1])]


def answers(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per scored answer: how it compares with the reference's own answer to the same prompt.

    Columns: the configuration, started, prompt, output_tokens, reference_nll_nats; departs_at, agreement and
    excess_nll_nats (its NLL above that of the reference's answer), NaN without a scored reference.
    """
    rows = scored(requests).dropna(subset="reference_nll_nats")
    shown = [*schema.CONFIGURATION, "backend_version", "started", "prompt", "output_tokens"]
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


def perplexities(requests: pd.DataFrame) -> pd.DataFrame:
    """Perplexity of the fixed text: one row per configuration whose engine returns log-probabilities.

    Columns: the configuration, text_tokens, perplexity, perplexity_ratio (to the reference's on the same
    tokens); NaN where a piece of the text failed.
    """
    rows = _newest(requests)
    rows = rows[rows["prompt"] == 0]
    weighted = rows["own_nll_nats"] * rows["output_tokens"]
    rows = rows.assign(nats=weighted.where(rows["error"] == ""))
    table = rows.groupby(schema.CONFIGURATION, as_index=False).agg(
        nats=("nats", lambda nats: nats.sum(skipna=False)),
        text_tokens=("output_tokens", "sum"),
        text=("output_ids", " ".join),
    )
    table = table.assign(perplexity=metrics.perplexity(table["nats"] / table["text_tokens"]))
    own = _references(table)[[*KEYS, "text", "perplexity"]]
    table = table.merge(own, "left", [*KEYS, "text"], suffixes=("", "_own"))
    table = table.assign(perplexity_ratio=table["perplexity"] / table["perplexity_own"])
    return table.drop(columns=["nats", "text", "perplexity_own"])


@memo.by_content
def summary(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per scored configuration on real weights, fastest first.

    Columns: the configuration; backend_version (that was scored), answers, same_answers (token for token the
    reference's), agreement (share of tokens), departs_first and departs_median (index of the first other
    token: earliest, and median over answers; NaN for never), reference_nll_nats, excess_nll_nats,
    excess_prompt_interval (half width of its 95 % interval over prompts, not over runs: another run gives the
    same tokens), started (of the run that scored it); those of `perplexities`; SPEED, of the latency runs of
    the same version.
    """
    each = answers(requests)
    # An answer without another token departs nowhere: later than any other.
    place = each["departs_at"].fillna(np.inf).where(each["agreement"].notna())
    each = each.assign(place=place).sort_values("prompt", kind="stable")
    table = each.groupby(latency_analysis.VERSIONED, as_index=False)
    table = table.agg(
        answers=("prompt", "count"),
        same_answers=("agreement", lambda a: (a == 1).sum() if a.notna().all() else np.nan),
        agreement=("agreement", "mean"),
        departs_first=("place", "min"),
        departs_median=("place", "median"),
        reference_nll_nats=("reference_nll_nats", "mean"),
        excess_nll_nats=("excess_nll_nats", "mean"),
        excess_prompt_interval=("excess_nll_nats", statistics.half_width),
        started=("started", "max"),
    ).replace(np.inf, np.nan)
    speed = latency_analysis.summary(requests[requests["experiment"] == "latency"])
    speed = speed[[*latency_analysis.VERSIONED, *SPEED]]
    table = table.merge(perplexities(requests), "left", schema.CONFIGURATION)
    table = table.merge(speed, "left", latency_analysis.VERSIONED)
    return table.sort_values("output_tokens_per_s", ascending=False, ignore_index=True)


def here(requests: pd.DataFrame) -> pd.DataFrame:
    """`summary` on the machine in front."""
    return summary(machines.in_front(requests))


def most_faithful(requests: pd.DataFrame, options: pd.DataFrame) -> tuple[list, ...]:
    """Which of `options` (rows of `summary`, of one setting) keep most of the reference's tokens, and which
    fewest: two lists of their index.

    More than one where the differences to the first, prompt by prompt, do not part them (95 % intervals over
    prompts, each at the level that holds for all of them at once).
    """
    shares = answers(requests).merge(options.reset_index()[["index", *schema.CONFIGURATION]])
    wide = shares.pivot(index="prompt", columns="index", values="agreement").dropna()
    return tuple(_not_beaten(sign * wide) for sign in (1, -1))


def _not_beaten(wide: pd.DataFrame) -> list:
    """The columns of `wide` (one row per prompt) whose mean none of the others exceeds for certain."""
    means, confidence = wide.mean(), 1 - (1 - statistics.CONFIDENCE) / max(wide.shape[1] - 1, 1)
    ahead = wide.rsub(wide[means.idxmax()], axis=0).drop(columns=means.idxmax())
    beaten = {name for name, gaps in ahead.items() if statistics.mean_interval(gaps, confidence)[1] > 0}
    return [name for name in means.sort_values(ascending=False, kind="stable").index if name not in beaten]


def ranked(requests: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `table` (of `summary`, of one setting) by their speed among each other, by the model of all
    latency runs of that setting; columns of `ranking.rank`."""
    first = table.iloc[0]
    rows = requests[requests["experiment"] == "latency"]
    rows = rows[(rows[[*schema.SETTING, "host"]] == first[[*schema.SETTING, "host"]]).all(axis=1)]
    among = tuple(table[latency_analysis.VERSIONED].itertuples(index=False, name=None))
    return latency_analysis.ranked(rows, latency_analysis.RATE, among)


def distinguished(row: pd.Series, other: pd.Series) -> bool:
    """Whether the speeds of two ranked rows of `summary` are distinguished: they share no letter."""
    letters = [set(re.findall(r"[A-Za-z]|\(\d+\)", each["groups"])) for each in (row, other)]
    return all(letters) and not letters[0] & letters[1]


def frontier(table: pd.DataFrame, loss: str) -> np.ndarray:
    """Which rows of `summary` no other row beats, as booleans: none is at least as fast and loses as little,
    and is better in one of the two.

    `loss` is a column of which less is better. Rows without a speed or a loss are not on it.
    """
    speed, cost = table["output_tokens_per_s"].to_numpy(dtype=float), table[loss].to_numpy(dtype=float)
    faster, cheaper = speed[None, :] >= speed[:, None], cost[None, :] <= cost[:, None]
    better = (speed[None, :] > speed[:, None]) | (cost[None, :] < cost[:, None])
    return ~(faster & cheaper & better).any(axis=1) & ~np.isnan(speed) & ~np.isnan(cost)
