"""Sentences of the topic batching."""

import pandas as pd

from bench.analysis import batching as batching_analysis
from bench.analysis import machines
from bench.analysis import step_time as step_time_analysis
from bench.report import html
from bench.report.findings import words

# A coefficient of the step-time model, the roof that bounds it, and their unit for readers, 10^9 of the
# stored one.
ROOFS = (
    ("bandwidth_bytes_per_s", "roof_bytes_per_s", "GB/s"),
    ("peak_flops_per_s", "roof_flops_per_s", "GFLOP/s"),
)


def share_of_gain(requests):
    """How much more a batch yields in all, and what each of its requests pays for it, for the configuration
    that gains most."""
    gained = batching_analysis.gains(requests)
    if gained.empty:
        return None
    gain = gained["best"] / gained["single"]
    most, least = gained.loc[gain.idxmax()], gained.loc[gain.idxmin()]
    sentence = (
        f"Batching gains most with {words.name(most)}: batch {most['batch_size']:.0f} yields "
        f"{html.number(most['best'])} output tokens/s, {words.times(most['best'] / most['single'])} what one "
        f"request at a time does, and each request's tokens come {words.times(most['slower'])} as slowly"
    )
    if least.name != most.name:
        gained_least = words.times(least["best"] / least["single"])
        sentence += f"; it gains least with {words.name(least)} ({gained_least})"
    return f"{sentence}."


def input_against_output(requests):
    """Whether 512 more input tokens cost less than 8 more output tokens, counted over engines and options."""
    costs = batching_analysis.prompt_cost(requests)
    if costs.empty:
        return None
    ratio = (costs["input_s"] / costs["output_s"]).sort_values()
    low, high = costs.loc[ratio.index[0]], costs.loc[ratio.index[-1]]
    holds = int((ratio < 1).sum())
    verdict = "all" if holds == len(ratio) else "none" if not holds else f"{holds}"
    sentence = (
        f"“{batching_analysis.MORE_INPUT} more input tokens cost less than {batching_analysis.MORE_OUTPUT} "
        f"more output tokens” holds for {verdict} of {len(ratio)} engines and options here: they cost "
        f"{words.times(ratio.iloc[0])} as much with {words.name(low)}"
    )
    if len(ratio) > 1:
        sentence += f", and {words.times(ratio.iloc[-1])} with {words.name(high)}"
    return f"{sentence}."


def limits(requests):
    """What limits each engine and option at batch 1 and at its largest batch: one sentence each."""
    fitted = step_time_analysis.models(machines.here(requests, "batching"))
    return [_limit(row) for _, row in fitted.iterrows()]


def _limit(row):
    share = f"{words.percent(row['first_share'])} % of a step of {html.number(row['first_step_s'] * 1e3)} ms"
    sentence = (
        f"{words.name(row)} is limited by {row['first_limit']} at batch {row['first_batch']:.0f}: {share}"
    )
    if row["last_limit"] != row["first_limit"]:
        sentence += f"; by {row['last_limit']} at batch {row['last_batch']:.0f}"
    overhead = html.number(row["overhead_s"] * 1e3)
    terms = [f"overhead {overhead} ms{words.between(row, 'overhead_s', 1e3)}"]
    for name, roof, unit in ROOFS:
        if pd.notna(row[name]):
            reached = f"{html.number(row[name] / 1e9)} of {html.number(row[roof] / 1e9)} {unit}"
            terms.append(f"{reached}{words.between(row, name, 1e-9)}")
    sentence += f". Fitted: {', '.join(terms)}."
    if pd.notna(row["left_out"]):
        sentence += f" A batch size left out is missed by {words.percent(row['left_out'])} % (median)."
    return sentence


def limited(requests):
    """How many engines and options each of overhead, memory and arithmetic limits at batch 1."""
    fitted = step_time_analysis.models(machines.here(requests, "batching"))
    if fitted.empty:
        return None
    counts = fitted["first_limit"].value_counts()
    by = ", ".join(f"{name} {counts[name]}" for name in step_time_analysis.TERMS if name in counts)
    later = int((fitted["last_limit"] == "arithmetic").sum())
    return (
        f"What limits a decode step at batch 1, by the fitted step-time model of {len(fitted)} engines and "
        f"options: {by}; at their largest batch arithmetic limits {later} of them."
    )


def _right(table):
    """How many rows of a table of `batching_analysis.memory` the planner was right for: its batch lies
    between the largest that ran and the smallest that ran out of memory."""
    return int(((table["ran"] <= table["planned"]) & (table["planned"] < table["failed"])).sum())


def memory_planned(requests):
    """For how many of our sweeps that ran out of memory the planner was right."""
    table = batching_analysis.memory(requests).dropna(subset=["ran", "failed"])
    if table.empty:
        return None
    row = table.iloc[0]
    return (
        f"The planner was right in {_right(table)} of {len(table)} sweeps that were run out of memory on "
        f"purpose; with {words.name(row)} it expected {row['planned']:.0f} requests to fit, {row['ran']:.0f} "
        f"ran and {row['failed']:.0f} did not."
    )


def published_memory():
    """For how many devices of the published sweep that ran out of memory the planner is right."""
    table = batching_analysis.published_memory()
    row = table.iloc[0]
    return (
        f"For {_right(table)} of {len(table)} published devices that ran out of memory the planner is right: "
        f"on one {row['gpu']} it expects {row['planned']:.0f} requests of "
        f"{html.number(row['context_tokens'])} tokens to fit, {row['ran']:.0f} ran and {row['failed']:.0f} "
        "did not."
    )
