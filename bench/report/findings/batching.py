"""Sentences of the topic batching."""

import pandas as pd

from bench.analysis import batching as batching_analysis
from bench.analysis import machines
from bench.analysis import step_time as step_time_analysis
from bench.report import html
from bench.report.findings import words


def share_of_gain(requests):
    """How much more a batch yields in all, and what each of its requests pays for it: the configuration that gains most."""
    gained = batching_analysis.gains(requests)
    if gained.empty:
        return None
    row = gained.loc[(gained["best"] / gained["single"]).idxmax()]
    least = gained.loc[(gained["best"] / gained["single"]).idxmin()]
    said = f"Batching gains most with {words.name(row)}: batch {row['batch_size']:.0f} yields {html.number(row['best'])} output tokens/s, "
    said += f"{words.times(row['best'] / row['single'])} what one request at a time does, and each request's tokens come {words.times(row['slower'])} as slowly"
    if least.name != row.name:
        said += f"; it gains least with {words.name(least)} ({words.times(least['best'] / least['single'])})"
    return said + "."


def input_against_output(requests):
    """Whether 512 more input tokens cost less than 8 more output tokens, counted over engines and options."""
    costs = batching_analysis.prompt_cost(requests)
    if costs.empty:
        return None
    ratio = (costs["input_s"] / costs["output_s"]).sort_values()
    low, high = costs.loc[ratio.index[0]], costs.loc[ratio.index[-1]]
    holds = int((ratio < 1).sum())
    verdict = "all" if holds == len(ratio) else "none" if not holds else f"{holds}"
    rule = f"“{batching_analysis.MORE_INPUT} more input tokens cost less than {batching_analysis.MORE_OUTPUT} more output tokens”"
    said = f"{rule} holds for {verdict} of {len(ratio)} engines and options here"
    spread = f"they cost {words.times(ratio.iloc[0])} as much with {words.name(low)}"
    return (
        f"{said}: {spread}."
        if len(ratio) == 1
        else f"{said}: {spread}, and {words.times(ratio.iloc[-1])} with {words.name(high)}."
    )


def limits(requests):
    """What limits each engine and option at batch 1 and at its largest batch, with the numbers behind it: one sentence each."""
    fitted = step_time_analysis.models(machines.here(requests, "batching"))
    return [_limit(row) for _, row in fitted.iterrows()]


def _limit(row):
    share = f"{words.percent(row['first_share'])} % of a step of {html.number(row['first_step_s'] * 1e3)} ms"
    said = f"{words.name(row)} is limited by {row['first_limit']} at batch {row['first_batch']:.0f}: {share}"
    if row["last_limit"] != row["first_limit"]:
        said += f"; by {row['last_limit']} at batch {row['last_batch']:.0f}"
    terms = [f"overhead {html.number(row['overhead_s'] * 1e3)} ms{words.between(row, 'overhead_s', 1e3)}"]
    for name, roof, unit in (
        ("bandwidth_bytes_per_s", "roof_bytes_per_s", "GB/s"),
        ("peak_flops_per_s", "roof_flops_per_s", "GFLOP/s"),
    ):
        if pd.notna(row[name]):
            terms.append(
                f"{html.number(row[name] / 1e9)} of {html.number(row[roof] / 1e9)} {unit}{words.between(row, name, 1e-9)}"
            )
    missed = (
        f" A batch size left out is missed by {words.percent(row['left_out'])} % (median)."
        if pd.notna(row["left_out"])
        else ""
    )
    return f"{said}. Fitted: {', '.join(terms)}.{missed}"


def limited(requests):
    """One sentence over all engines: how many each of overhead, memory and arithmetic limits at batch 1."""
    fitted = step_time_analysis.models(machines.here(requests, "batching"))
    if fitted.empty:
        return None
    counts = fitted["first_limit"].value_counts()
    by = ", ".join(f"{name} {counts[name]}" for name in step_time_analysis.TERMS if name in counts)
    later = int((fitted["last_limit"] == "arithmetic").sum())
    said = f"What limits a decode step at batch 1, by the fitted step-time model of {len(fitted)} engines and options: {by}"
    return f"{said}; at their largest batch arithmetic limits {later} of them."


def memory_planned(requests):
    """Whether the planner's batch lies between the largest that ran and the smallest that ran out of memory."""
    table = batching_analysis.memory(requests).dropna(subset=["ran", "failed"])
    if table.empty:
        return None
    right = int(((table["ran"] <= table["planned"]) & (table["planned"] < table["failed"])).sum())
    row = table.iloc[0]
    said = f"The planner was right in {right} of {len(table)} sweeps that were run out of memory on purpose"
    return f"{said}; with {words.name(row)} it expected {row['planned']:.0f} requests to fit, {row['ran']:.0f} ran and {row['failed']:.0f} did not."


def published_memory():
    """The planner against the batch sizes at which the published sweep ran and ran out of memory."""
    table = batching_analysis.published_memory()
    row = table.iloc[0]
    right = int(((table["ran"] <= table["planned"]) & (table["planned"] < table["failed"])).sum())
    said = f"For {right} of {len(table)} published devices that ran out of memory the planner is right"
    fits = f"{row['planned']:.0f} requests of {html.number(row['context_tokens'])} tokens"
    return f"{said}: on one {row['gpu']} it expects {fits} to fit, {row['ran']:.0f} ran and {row['failed']:.0f} did not."
