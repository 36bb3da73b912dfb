"""Quality: what the answers of an option are worth to the float32 reference, as frames."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench.observations import schema
from bench.topics import estimates
from bench.topics import latency as latency_analysis
from llm_measured.core import metrics, naming

REFERENCE = ("transformers", "float32")
# The prompt of the latency study whose answer is known, and that the reference answers right.
QUESTION, RIGHT = 7, "72"
NOT_REACHED = "none"  # no result within the tokens that were asked for: neither right nor wrong
# What answers and texts must share to be compared.
KEYS = "model weights gpu host".split()
# What `summary` takes from `latency.summary`: speed, its interval, and from which options it is
# distinguished.
SPEED = ["output_tokens_per_s", "output_tokens_per_s_interval", "reason", "weight_bytes"]


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


# Where an answer states a result: the end of an equation that begins with the product, or a number after one
# of these words. A number that goes on ("= 10 × 8") is a step on the way; those of a list's items or of names
# (num1) are none.
EQUATION = re.compile(r"\b9\W*(?:\\?times|[×x*])\W*8\W*=(?P<steps>[^\n]*)")
STATED = re.compile(
    r"(?:\b(?:is|equals|gives us)\b|boxed\{|output\n)\W{0,4}(\d+)\b(?!\s*(?:\\times|[×x*+/-])\s*\d)"
)


def product(answer: str) -> str:
    """Return what an answer says 9 × 8 is: the first result that it states, or what it makes of that by
    adding on (`9 × 8 = 72, so 72 + 9 = 81`); NOT_REACHED where it states none before it is cut."""
    found = [(stated.start(), stated[1]) for stated in STATED.finditer(answer)]
    for equation in EQUATION.finditer(answer):
        last = re.fullmatch(r"\D*(\d+)\D*", equation["steps"].rpartition("=")[2])
        if last:
            found.append((equation.start(), last[1]))
    begin, result = min(found, default=(0, NOT_REACHED))
    added = re.search(rf"\b{result} ?[+] ?\d+ ?= ?(\d+)", answer[begin:])
    return added[1] if added else result


def costs(requests: pd.DataFrame) -> pd.DataFrame:
    """Return what each configuration's speed costs in answers: one row per configuration with real weights.

    Columns: the configuration; product (what most of its answers to 9 × 8 say), same_answers and answers
    (latency prompts answered token for token as the reference), perplexity, perplexity_ratio,
    perplexity_above (`perplexities`); worse: 9 × 8 is wrong, or the perplexity lies above the reference's.
    9 × 8 is the one prompt whose right answer is known and that the reference answers right.
    """
    timed = requests[(requests["experiment"] == "latency") & (requests["weights"] == "real")]
    asked = timed[(timed["prompt"] == QUESTION) & (timed["error"] == "")]
    said = asked.assign(product=asked["answer"].map(product)).groupby(schema.CONFIGURATION, as_index=False)
    said = said.agg(product=("product", lambda products: products.mode()[0]))
    table = timed[schema.CONFIGURATION].drop_duplicates().merge(said, "left", schema.CONFIGURATION)
    each = (
        answers(requests)
        .groupby(schema.CONFIGURATION, as_index=False)
        .agg(answers=("prompt", "count"), same_answers=("agreement", lambda a: a.eq(1).sum()))
    )
    text = perplexities(requests).drop(columns="text_tokens")
    table = table.merge(each, "left", schema.CONFIGURATION).merge(text, "left", schema.CONFIGURATION)
    above = table["perplexity_above"].eq(True)
    wrong = table["product"].notna() & ~table["product"].isin([RIGHT, NOT_REACHED])
    return table.assign(perplexity_above=above, worse=wrong | above)


def beside(summary: pd.DataFrame, requests: pd.DataFrame) -> pd.DataFrame:
    """Return `summary`, a row per configuration and version, with the columns of `costs` and verdict: what
    its answers cost (`verdict`); empty for random weights."""
    lost = costs(naming.named(requests))
    lost = lost.assign(verdict=[verdict(row) for _, row in lost.iterrows()])
    keys = [name for name in schema.CONFIGURATION if name != "option"]
    plain = summary["option"].str.replace(r" \([^()]*\)$", "", regex=True)  # of several versions, each
    lost = lost.rename(columns={"option": "plain"})
    table = summary.assign(plain=plain).merge(lost, "left", [*keys, "plain"]).drop(columns="plain")
    return table.assign(product=table["product"].fillna(""), verdict=table["verdict"].fillna(""))


def verdict(row: pd.Series) -> str:
    """Return what a row of `costs` lost: `9 × 8 = 11; perplexity +30 %`, nothing, or nothing seen."""
    lost = []
    if pd.notna(row["product"]) and row["product"] not in (RIGHT, NOT_REACHED):
        lost.append(f"9 × 8 = {row['product']}")
    if row["perplexity_above"]:
        lost.append(f"perplexity +{_two(100 * (row['perplexity_ratio'] - 1))} %")
    if pd.isna(row["product"]) and pd.isna(row["answers"]):
        return "; ".join(lost)
    if row["product"] == NOT_REACHED:
        lost.append("9 × 8 not reached")
    if lost:
        return "; ".join(lost)
    if row["same_answers"] == row["answers"]:
        return "as the reference"
    return "9 × 8 = 72" if pd.isna(row["perplexity_ratio"]) else "no loss seen"


def _two(value: float) -> str:
    """Return a number with two digits, without an exponent: `170`, `1.4`."""
    return f"{float(f'{value:.2g}'):g}"


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

    Columns: the configuration, started, prompt, output_tokens; departs_at and agreement, NaN without a
    scored reference.
    """
    rows = scored(requests)
    rows = rows[rows["prompt"] > 0]
    shown = [*schema.CONFIGURATION, "backend_version", "started", "prompt", "output_tokens"]
    keys = [*KEYS, "prompt", "output_tokens"]
    values = ["output_ids"]
    both = rows[shown + values].merge(_references(rows)[keys + values], "left", keys, suffixes=("", "_own"))
    pairs = [
        (token_ids(a), token_ids(b)) if isinstance(b, str) else None
        for a, b in zip(both["output_ids"], both["output_ids_own"])
    ]
    return both.assign(
        departs_at=[departs_at(*pair) if pair else np.nan for pair in pairs],
        agreement=[agreement(*pair) if pair else np.nan for pair in pairs],
    ).drop(columns=["output_ids", "output_ids_own"])


def perplexities(requests: pd.DataFrame) -> pd.DataFrame:
    """Perplexity of the fixed text: one row per configuration whose engine returns log-probabilities.

    Columns: the configuration, text_tokens, perplexity, perplexity_ratio (to the reference's on the same
    tokens), perplexity_above (whether it lies above the reference's: the 95 % interval of the difference,
    piece by piece of the text, lies above 0; never of 16 bits or more, which only round otherwise); NaN
    where a piece of the text failed.
    """
    rows = _newest(requests)
    rows = rows[rows["prompt"] == 0]
    above = _above(rows)
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
    table = table.merge(above, "left", schema.CONFIGURATION)
    return table.drop(columns=["nats", "text", "perplexity_own"])


def _above(pieces: pd.DataFrame) -> pd.DataFrame:
    """Return perplexity_above of each configuration from the scored `pieces` of the text."""
    keys = [*KEYS, "output_ids"]
    own = _references(pieces)[[*keys, "own_nll_nats"]].drop_duplicates(keys)
    both = pieces.merge(own, "inner", keys, suffixes=("", "_own"))
    rows = []
    for key, rest in both.groupby(schema.CONFIGURATION):
        low = estimates.mean_interval(rest["own_nll_nats"] - rest["own_nll_nats_own"])[1]
        rounds = (naming.bits(rest["option"].iloc[0]) or 16) >= 16
        rows.append((*key, bool(low > 0) and not rounds))
    return pd.DataFrame(rows, columns=[*schema.CONFIGURATION, "perplexity_above"])


def summary(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per scored configuration on real weights, fastest first.

    Columns: the configuration; backend_version (that was scored), answers, same_answers (token for token the
    reference's), agreement (share of tokens), departs_first and departs_median (index of the first other
    token: earliest, and median over answers; NaN for never), started (of the run that scored it); product
    (its answer to 9 × 8), verdict, those of `perplexities`; SPEED, of the latency runs of the same version.
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
        started=("started", "max"),
    ).replace(np.inf, np.nan)
    speed = latency_analysis.summary(requests[requests["experiment"] == "latency"])
    speed = speed[[*latency_analysis.VERSIONED, *SPEED]]
    lost = costs(requests)
    lost = lost.assign(verdict=[verdict(row) for _, row in lost.iterrows()])
    lost = lost[[*schema.CONFIGURATION, "product", "worse", "verdict"]]
    table = table.merge(perplexities(requests).drop(columns="perplexity_above"), "left", schema.CONFIGURATION)
    table = table.merge(lost, "left", schema.CONFIGURATION)
    table = table.merge(speed, "left", latency_analysis.VERSIONED)
    return table.sort_values("output_tokens_per_s", ascending=False, ignore_index=True)


def table(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of data/tables/quality.csv: `summary`, and on_frontier: of the rows of its machine and
    model no other is at least as fast and has more tokens of the reference's."""
    rows = summary(requests)
    rows = rows.assign(differing_tokens=1 - rows["agreement"], on_frontier=False)
    for _, own in rows.groupby([*schema.SETTING, "host"]):
        rows.loc[own.index, "on_frontier"] = frontier(own, "differing_tokens")
    return rows.assign(product=rows["product"].fillna(""), verdict=rows["verdict"].fillna(""))


def frontier(table: pd.DataFrame, loss: str) -> np.ndarray:
    """Which rows of `summary` no other row beats, as booleans: none is at least as fast and loses as little,
    and is better in one of the two.

    `loss` is a column of which less is better. Rows without a speed or a loss are not on it.
    """
    speed, cost = table["output_tokens_per_s"].to_numpy(dtype=float), table[loss].to_numpy(dtype=float)
    faster, cheaper = speed[None, :] >= speed[:, None], cost[None, :] <= cost[:, None]
    better = (speed[None, :] > speed[:, None]) | (cost[None, :] < cost[:, None])
    return ~(faster & cheaper & better).any(axis=1) & ~np.isnan(speed) & ~np.isnan(cost)
