"""Sentences of the page Plan: lists of Markdown, from predictions and their errors."""

import numpy as np

from bench.analysis.planning import accuracy, own
from bench.report import html, planning

TARGETS = {"tpot_ms": (0.05, 0.15), "ttft_ms": (0.12, 0.40)}  # median and 90th percentile that were aimed at


def _usd(value):
    return f"{value:.2f} dollars"


def answers():
    """The cheapest answer to the page's question on each GPU in each precision, which of them somebody has
    measured, and what holds nowhere.
    """
    table, refusals = planning.answers()
    sentences = []
    for (gpu, weights), part in table.groupby(["gpu", "weights"], sort=False):
        row = part.iloc[0]
        sentences.append(
            f"**{gpu}, {weights}**: {row['gpus']:.0f} GPUs as {row['replicas']:.0f} × {row['tensor_parallel']:.0f}, "
            f"{_usd(row['usd_per_hour'])} an hour, {_usd(row['usd_per_million_output'])} per million output and "
            f"{_usd(row['usd_per_million_input'])} per million input tokens ({row['price']}). The goal holds "
            f"{row['holds']}. Nearest: {row['nearest_measured']}."
        )
    unmeasured = table["nearest_measured"].str.startswith("nobody")
    some = table.loc[unmeasured, ["gpu", "weights"]].drop_duplicates().agg(" in ".join, axis=1)
    if len(some):
        sentences.append(
            f"Nobody in the table has measured this model with this engine on {', '.join(sorted(some))}: those "
            "answers carry over from other models and precisions on the same GPU and engine."
        )
    return [*sentences, *refusals]


def speculation():
    """What must be accepted at one request and at the largest batch, for free drafts and a draft model."""
    table, sentences = planning.speculated(), []
    for share, rows in table.groupby("draft_share"):
        ends = rows[rows["drafts"] == 4].set_index("batch_size")["accept"]
        what = "drafts that cost nothing" if share == 0 else f"a draft model that takes {share:.0%} of a step"
        sentences.append(
            f"With four {what if share == 0 else 'drafts of ' + what}, {_percent(ends.iloc[0])} must be accepted "
            f"at one request and {_percent(ends.iloc[-1])} at {ends.index[-1]} at once."
        )
    return sentences


def _percent(share):
    return "no share is enough:" if np.isnan(share) else f"{100 * share:.0f} %"


def cost():
    """The cheapest configuration that holds 10 ms and 30 ms per token, over all GPUs and precisions."""
    tables = [planning.loops(gpu, weights) for gpu in planning.PRICED for weights in ("bf16", "fp8")]
    sentences = []
    for limit in (0.01, 0.03):
        rows = [row for t in tables for row in t[t["tpot_s"] <= limit].to_dict("records")]
        if rows:
            best = min(rows, key=lambda row: row["usd_per_million_output"])
            sentences.append(
                f"Within {1e3 * limit:.0f} ms per token the cheapest is {best['gpu']} in {best['weights']}, TP "
                f"{best['tensor_parallel']}, {best['concurrency']} at once: "
                f"{_usd(best['usd_per_million_output'])} per million output tokens."
            )
    return sentences


def accuracy_sentences():
    """Errors of the ten folds beside what was aimed at, and beside AIConfigurator on its rows."""
    table = accuracy.overview().set_index("predicted by")
    folds, sentences = table.iloc[0], []
    for name, (median, p90) in TARGETS.items():
        met = folds[f"{name}_median"] <= median and folds[f"{name}_p90"] <= p90
        sentences.append(
            f"{name[:4].upper()} is off by {100 * folds[f'{name}_median']:.1f} % (median) and "
            f"{100 * folds[f'{name}_p90']:.1f} % (90th percentile) over {folds['rows']:.0f} points; "
            f"{100 * median:.0f} % and {100 * p90:.0f} % were aimed at: {'met' if met else 'missed'}. Its 95 % "
            f"intervals are ± {100 * folds[f'{name}_half_width']:.1f} % wide (median) and held "
            f"{100 * folds[f'{name}_coverage']:.1f} % of the points."
        )
    theirs, ours = table.iloc[-2], table.iloc[-1]
    sentences.append(
        f"On the {theirs['rows']:.0f} points that AIConfigurator estimates it is off by "
        f"{100 * theirs['tpot_ms_median']:.0f} % in TPOT and {100 * theirs['ttft_ms_median']:.0f} % in TTFT "
        f"(median); this planner's folds by {100 * ours['tpot_ms_median']:.0f} % and "
        f"{100 * ours['ttft_ms_median']:.0f} %."
    )
    return sentences


def worst():
    """Where the points lie whose TTFT is off by more than 40 %."""
    table = accuracy.causes()
    total = int(table["off"].sum())
    return [
        f"{row['off']} of the {total} points whose TTFT is off by more than 40 % are {row['model']} with "
        f"{row['engine']} on {row['gpu']}, collected by {row['collection']} ({row['off']} of {row['rows']} there; "
        f"predicted over measured {html.number(row['ratio'])} in the middle)."
        for row in table.head(3).to_dict("records")
    ]


def own_servers(requests):
    """Median errors of own serving levels, and how often the largest level that holds is within one."""
    table = own.levels(requests)
    if table.empty:
        return []
    tpot = table["predicted_tpot_s"] / table["tpot_s"] - 1
    ttft = table["predicted_ttft_s"] / table["ttft_s"] - 1
    held = own.largest_levels(table)
    within = ((held["held"] - held["predicted_held"]).abs() <= 1).mean()
    return [
        f"Over {len(table)} levels TPOT is off by {100 * tpot.abs().median():.1f} % (median; "
        f"{100 * tpot.median():+.1f} % signed) and TTFT by {100 * ttft.abs().median():.1f} % "
        f"({100 * ttft.median():+.1f} %); 5 % and 15 % were aimed at.",
        f"The largest level that holds the objectives is predicted within one level in {100 * within:.0f} % of "
        f"{len(held)} climbs; 90 % were aimed at.",
    ]
