"""Sentences of the planner: lists of Markdown, from predictions and their errors."""

import numpy as np
import pandas as pd

from bench import html, inputs
from llm_measured.core import naming
from llm_planner import accuracy, engines, page, planner, validation, worlds

TARGETS = {"tpot_ms": (0.05, 0.15), "ttft_ms": (0.12, 0.40)}  # median and 90th percentile that were aimed at

UNKNOWN_COVERAGE = (0.92, 0.98)  # of points that an unknown's 95 % interval should hold
WORLDS_MET = 0.9  # of drawn worlds in which a recommended row should meet its goal


def _met(target_met):
    return "met" if target_met else "missed"


def _usd(value):
    return f"{value:.2f} dollars"


def answers() -> list[str]:
    """The cheapest answer to the page's question on each GPU in each precision, which of them somebody has
    measured, and what holds nowhere.
    """
    table, refusals = page.answers()
    sentences = []
    for (gpu, weights), part in table.groupby(["gpu", "weights"], sort=False):
        row = part.iloc[0]
        sentences.append(
            f"**{gpu}, {weights}**: {row['gpus']:.0f} GPUs as {row['replicas']:.0f} × "
            f"{row['tensor_parallel']:.0f}, {_usd(row['usd_per_hour'])} an hour, "
            f"{_usd(row['usd_per_million_output'])} per million output and "
            f"{row['usd_per_million_input']:.3f} per million input tokens ({row['price']}). The goal is met "
            f"in {100 * row['futures_held']:.0f} % of the simulated futures. Nearest: "
            f"{row['nearest_measured']}."
        )
    return [f"**{planner.verdict(table)}**", *planner.reasons(table), *sentences, *refusals]


def speculation() -> list[str]:
    """What must be accepted at one request and at the largest batch, for free drafts and a draft model."""
    table, sentences = page.speculated(), []
    for share, rows in table.groupby("draft_share"):
        ends = rows[rows["drafts"] == 4].set_index("batch_size")["accept"]
        what = "drafts that cost nothing" if share == 0 else f"a draft model that takes {share:.0%} of a step"
        sentences.append(
            f"With four {what if share == 0 else 'drafts of ' + what}, {_percent(ends.iloc[0])} must be "
            f"accepted at one request and {_percent(ends.iloc[-1])} at {ends.index[-1]} at once."
        )
    return sentences


def _percent(share):
    return "no share is enough:" if np.isnan(share) else f"{100 * share:.0f} %"


def cost() -> list[str]:
    """The cheapest configuration that holds 10 ms and 30 ms per token, over all GPUs and precisions."""
    tables = [page.loops(gpu, weights) for gpu in page.PRICED for weights in ("bf16", "fp8")]
    sentences = []
    for limit in (0.01, 0.03):
        rows = [row for t in tables for row in t[t["tpot_s"] <= limit].to_dict("records")]
        if rows:
            best = min(rows, key=lambda row: row["usd_per_million_output"])
            sentences.append(
                f"Within {1e3 * limit:.0f} ms per token the cheapest is {best['gpu']} in {best['weights']}, "
                f"TP {best['tensor_parallel']}, {best['concurrency']} at once: "
                f"{_usd(best['usd_per_million_output'])} per million output tokens."
            )
    return sentences


def accuracy_sentences() -> list[str]:
    """Errors of the ten folds beside what was aimed at, and beside AIConfigurator on its rows."""
    table = accuracy.overview().set_index("predicted by")
    folds, sentences = table.iloc[0], []
    for name, (median, p90) in TARGETS.items():
        met = folds[f"{name}_median"] <= median and folds[f"{name}_p90"] <= p90
        sentences.append(
            f"{name[:4].upper()} is off by {100 * folds[f'{name}_median']:.1f} % (median) and "
            f"{100 * folds[f'{name}_p90']:.1f} % (90th percentile) over {folds['rows']:.0f} points; "
            f"{100 * median:.0f} % and {100 * p90:.0f} % were aimed at: {_met(met)}. Its 95 % intervals are "
            f"± {100 * folds[f'{name}_half_width']:.1f} % wide (median) and held "
            f"{100 * folds[f'{name}_coverage']:.1f} % of the points, and "
            f"{100 * folds[f'{name}_curves']:.0f} % of {folds['curves']:.0f} curves as a whole."
        )
    theirs, ours = table.iloc[-2], table.iloc[-1]
    sentences.append(
        f"On the {theirs['rows']:.0f} points that AIConfigurator estimates it is off by "
        f"{100 * theirs['tpot_ms_median']:.0f} % in TPOT and {100 * theirs['ttft_ms_median']:.0f} % "
        f"in TTFT (median); this planner's folds by {100 * ours['tpot_ms_median']:.0f} % and "
        f"{100 * ours['ttft_ms_median']:.0f} %."
    )
    return sentences


def left_out() -> list[str]:
    """Whether the intervals of an unknown GPU, engine and model held as many points as they say: one sentence
    each.
    """
    sentences, each = [], accuracy.by_left_out()
    low, high = UNKNOWN_COVERAGE
    for kind in ("model", "engine", "gpu"):
        row = validation.scores(accuracy.predicted(kind))
        held = [row[f"{name}_coverage"] for name in TARGETS]
        part = each[each["kind"] == kind]
        worst = part.loc[part[[f"{name}_coverage" for name in TARGETS]].min(axis=1).idxmin()]
        sentences.append(
            f"{'GPU' if kind == 'gpu' else kind.capitalize()}s left out in turn: the 95 % intervals held "
            f"{100 * held[0]:.1f} % of {row['rows']} points in TPOT (± "
            f"{100 * row['tpot_ms_half_width']:.0f} %) and "
            f"{100 * held[1]:.1f} % in TTFT (± {100 * row['ttft_ms_half_width']:.0f} %); {100 * low:.0f} to "
            f"{100 * high:.0f} % were aimed at: {_met(all(low <= share <= high for share in held))}. "
            f"Least with {worst['name']}: {100 * worst['tpot_ms_coverage']:.0f} % and "
            f"{100 * worst['ttft_ms_coverage']:.0f} % of {worst['rows']}."
        )
    return sentences


def by_hand() -> list[str]:
    """What was chosen with all published rows in view, and what became of the folds where a fold chose
    itself.
    """
    table = accuracy.rules().set_index("rules")
    committed, chosen = table.loc[validation.COMMITTED_RULES], table.loc[validation.CHOSEN]
    undone = naming.listed(list(engines.WITHOUT))
    return [
        "Chosen with all published points in view were the terms of the step time and their priors, the "
        f"rules whose opposites are tried below ({undone}), what counts as a point near another, how the "
        "errors of related points are weighted, and that an unknown's interval is a normal one; so may be "
        "the constants of engines (lag, reserve, buffers, memory share, waits), which were "
        "not tried otherwise.",
        "Where each fold takes the rules that fitted the other folds best, engine by engine and GPU by GPU, "
        f"TPOT is off by {100 * chosen['tpot_ms_median']:.1f} % (median) and "
        f"{100 * chosen['tpot_ms_p90']:.1f} % (90th percentile), TTFT by "
        f"{100 * chosen['ttft_ms_median']:.1f} % and {100 * chosen['ttft_ms_p90']:.1f} %; with the committed "
        f"rules by {100 * committed['tpot_ms_median']:.1f} %, {100 * committed['tpot_ms_p90']:.1f} %, "
        f"{100 * committed['ttft_ms_median']:.1f} % and {100 * committed['ttft_ms_p90']:.1f} %. All of these "
        "are without the correction by points near a row, which each fold takes from errors of the others.",
    ]


def tried_worlds() -> list[str]:
    """In how many drawn worlds the recommended rows of the page's question meet the goal, and by how many
    replicas more than needed.
    """
    table, sentences = inputs.table(worlds.TABLE), []
    for drawn, part in table.groupby("drawn", sort=False):
        share = (part["met"] / part["worlds"]).min()
        met = share >= WORLDS_MET and (part["more"] <= 1).all()
        sentences.append(
            f"{part['worlds'].iloc[0]} worlds, drawn from {drawn}: the recommended rows meet the goal in "
            f"{naming.listed(part['met'].astype(str))} of them, with {naming.listed(_whole(part['more']))} "
            f"replicas more than the least true number (medians); at least {100 * WORLDS_MET:.0f} of 100 and "
            f"at most one replica more were aimed at: {_met(met)}."
        )
    row = table.iloc[0]
    sentences.append(
        f"Of the {row['asked']} configurations of the question {row['refused']} are refused "
        f"({100 * row['refused'] / row['asked']:.0f} %)."
    )
    return sentences


def _whole(numbers):
    return [f"{number:g}" for number in numbers]


def worst() -> list[str]:
    """Where the points lie whose TTFT is off by more than 40 %, and what they have in common."""
    table = accuracy.causes()
    total = int(table["off"].sum())
    sentences = [
        f"{row['off']} of the {total} points whose TTFT is off by more than 40 % are {row['model']} with "
        f"{row['engine']} on {row['gpu']}, collected by {row['collection']} ({row['off']} of {row['rows']} "
        f"there; predicted over measured {html.number(row['ratio'])} in the middle)."
        for row in table.head(3).to_dict("records")
    ]
    sent = accuracy.sent(100)
    for row in sent.to_dict("records"):
        rates = naming.listed(html.number(float(f"{rate:.2g}")) for rate in row["rates"])
        sentences.append(
            f"{row['model']} with {row['engine']} on {row['gpu']}, at 100 and more requests at once: "
            f"measured TTFT is {html.number(row['times'])} times the predicted one in the middle, and the "
            f"most output tokens/s on {naming.listed(map(str, row['gpus']))} GPUs are {rates}. Where more "
            "GPUs give hardly more, the server's front (detokenizer, HTTP), which sends one token after the "
            "other, may be the limit; the model has none."
        )
    return sentences


def predictions(requests: pd.DataFrame) -> list[str]:
    """How many levels were predicted before any run had them, how many of those have been measured since, and
    which fell outside their interval.
    """
    table = accuracy.predictions(requests)
    measured = table.dropna(subset=["measured_tpot_s", "measured_ttft_s"])
    sentences = [
        f"{len(table)} levels were predicted before any run had them; {len(measured)} of them have been "
        f"measured since."
    ]
    outside, numbers = [], {"tpot": 0, "ttft": 0}
    for row in measured.to_dict("records"):
        for name in numbers:
            low, high = (row[f"predicted_{name}_s_{end}"] for end in ("low", "high"))
            value = row[f"measured_{name}_s"]
            if not low <= value <= high:
                numbers[name] += 1
                outside.append(
                    f"{row['backend']} {row['option']} on {row['gpu']} ({name.upper()} {1e3 * value:.3g} ms, "
                    f"predicted {1e3 * low:.3g} to {1e3 * high:.3g} ms)"
                )
    if len(measured):
        sentences.append(
            f"Outside its interval fell TPOT in {numbers['tpot']} and TTFT in {numbers['ttft']} of these "
            f"{len(measured)}" + (f": {naming.listed(outside)}." if outside else ".")
        )
    return sentences
