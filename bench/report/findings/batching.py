"""Sentences of the topic batching."""

import pandas as pd

from bench import html
from bench.analysis import batching as batching_analysis
from bench.analysis import comparison, ranking
from bench.analysis import latency as latency_analysis
from bench.analysis import step_time as step_time_analysis
from bench.observations import schema
from bench.report.findings import words

# A coefficient of the step-time model, the peak that bounds it, and their unit for readers, 10^9 of the
# stored one.
PEAKS = (
    ("bandwidth_bytes_per_s", "roof_bytes_per_s", "GB/s"),
    ("peak_flops_per_s", "roof_flops_per_s", "GFLOP/s"),
)


def share_of_gain(requests: pd.DataFrame) -> str | None:
    """How much more a batch yields than one request at a time, and what each of its requests pays for it:
    for the configuration that gains most, or over all of them where none is distinguished."""
    gained = batching_analysis.gains(requests)
    if gained.empty:
        return None
    table, on = ranking.rank(gained, schema.CONFIGURATION, "gain"), words.on(gained.iloc[0])
    best = table[table["may_be_best"]]
    if best.empty:
        lost = " or some of which failed" if (table["reason"] != ranking.ONE_RUN).any() else ""
        return (
            f"{on}, the best batch yields {words.range(table['mean'])} the output tokens/s of one request at "
            f"a time, with {len(table)} engines and options, and each of its requests' tokens "
            f"come {words.range(gained['slower'])} as slowly; one run each{lost}, so no ranking."
        )
    each = [
        f"{words.name(row)} ({words.within(row['mean'], (row['high'] - row['low']) / 2)} times)"
        for _, row in best.iterrows()
    ]
    if len(best) > 1:
        return (
            f"{on}, {len(best)} of {len(table)} engines and options may gain most from batching and "
            f"cannot be distinguished: {words.listed(each, 4)}, in output tokens/s over those of one "
            "request at a time."
        )
    own = gained.merge(best[schema.CONFIGURATION])
    return (
        f"{on}, batching gains most with {each[0]}: batch {own['batch_size'].iloc[0]:.0f} yields "
        f"{html.number(own['best'].mean())} output tokens/s, and each request's tokens come "
        f"{words.times(own['slower'].mean())} as slowly."
    )


def input_against_output(requests: pd.DataFrame) -> str | None:
    """Whether 512 more input tokens cost less than 8 more output tokens, counted over engines and options."""
    costs = batching_analysis.prompt_cost(requests)
    settings = latency_analysis.settings(costs)
    if not settings:
        return None
    costs = settings[0][1].sort_values("ratio")
    verdicts = holds(costs)
    rule = (
        f"“{batching_analysis.MORE_INPUT} more input tokens cost less than {batching_analysis.MORE_OUTPUT} "
        "more output tokens”"
    )
    ends = words.range(costs["ratio"])
    if (costs["runs"] == 1).all():
        below = int((costs["ratio"] < 1).sum())
        return (
            f"{words.on(costs.iloc[0])}, {rule} came out so for {below} of {len(costs)} engines and options: "
            f"they cost {ends} as much; one run each, so without intervals."
        )
    counts = {word: sum(verdict == word for verdict in verdicts) for word in dict.fromkeys(verdicts)}
    spoken = {"yes": "holds for", "no": "does not hold for"}
    each = [f"{spoken.get(word, f'is open ({word}) for')} {count}" for word, count in counts.items()]
    return (
        f"{words.on(costs.iloc[0])}, {rule} {words.listed(each)} of {len(costs)} engines and options: they "
        f"cost {ends} as much."
    )


def holds(costs: pd.DataFrame) -> list:
    """Whether each row of `batching_analysis.prompt_cost` costs less: yes, no, or that it is open."""
    verdicts = []
    for _, row in costs.iterrows():
        if pd.isna(row["low"]):
            verdicts.append(ranking.ONE_RUN if row["runs"] == 1 else comparison.EQUAL)
        else:
            verdicts.append("yes" if row["high"] < 1 else "no" if row["low"] > 1 else comparison.EQUAL)
    return verdicts


def limits(requests: pd.DataFrame) -> list[str]:
    """What limits each engine and option at batch 1 and at its largest batch, where the fit decides that: one
    sentence each."""
    return [_limit(row) for _, row in _models(requests).iterrows()]


def _models(requests):
    """The fits that sentences are about."""
    return step_time_analysis.models(latency_analysis.described(requests, "batching"))


def _limit(row):
    first = f"at batch {row['first_batch']:.0f}"
    sentence = f"{words.on(row)}, what limits {words.name(row)} {first} the fit does not decide"
    if row["first_decided"]:
        share = f"{words.share(row['first_share'])} of a step of {html.number(row['first_step_s'] * 1e3)} ms"
        sentence = f"{words.on(row)}, {words.name(row)} is limited by {row['first_limit']} {first}: {share}"
    if row["last_decided"] and (row["last_limit"] != row["first_limit"] or not row["first_decided"]):
        sentence += f"; at batch {row['last_batch']:.0f} it is limited by {row['last_limit']}"
    terms = [f"overhead {html.number(row['overhead_s'] * 1e3)} ms{_between(row, 'overhead_s', 1e3)}"]
    for name, peak, unit in PEAKS:
        if pd.notna(row[name]):
            reached = f"{html.number(row[name] / 1e9)} of {html.number(row[peak] / 1e9)} {unit}"
            terms.append(f"{reached}{_between(row, name, 1e-9)}")
    sentence += f". Fitted: {', '.join(terms)}."
    if pd.notna(row["left_out"]):
        sentence += f" A batch size left out is missed by {words.share(row['left_out'])} (median)."
    return sentence


def _between(row, name, factor):
    return words.interval(row[f"{name}_low"] * factor, row[f"{name}_high"] * factor, html.number)


def limited(requests: pd.DataFrame) -> str | None:
    """How many engines and options each of overhead, memory and arithmetic limits at batch 1: those where the
    fit decides it, and how many it leaves open."""
    fitted = _models(requests)
    if fitted.empty:
        return None
    first, last = (_decided(fitted, end) for end in ("first", "last"))
    return (
        f"{words.on(fitted.iloc[0])}, what limits a decode step at batch 1, by the step-time model fitted to "
        f"the sweeps of {len(fitted)} engines and options: {first}; at their largest batch: {last} (counted "
        f"where {words.share(step_time_analysis.DECIDED)} of the fits to resampled batches agree)."
    )


def _decided(fitted, end):
    """`memory 1, arithmetic 1, open 8`: what limits so many fits at one `end` of their sweep."""
    names = fitted[f"{end}_limit"].where(fitted[f"{end}_decided"], "open")
    counts = names.value_counts()
    return ", ".join(
        f"{name} {counts[name]}" for name in [*step_time_analysis.TERMS, "open"] if name in counts
    )


def _right(table: pd.DataFrame) -> int:
    """How many rows of a table of `batching_analysis.memory` the planner was right for: its batch lies
    between the largest that ran and the smallest that ran out of memory."""
    return int(((table["ran"] <= table["planned"]) & (table["planned"] < table["failed"])).sum())


def memory_planned(requests: pd.DataFrame) -> str | None:
    """For how many of our sweeps that ran out of memory the planner was right."""
    table = batching_analysis.memory(requests).dropna(subset=["ran", "failed"])
    if table.empty:
        return None
    row = table.iloc[0]
    return (
        f"{words.on(row)}, the planner was right in {_right(table)} of {len(table)} sweeps that were run out "
        f"of memory on purpose; with {words.name(row)} it expected {row['planned']:.0f} requests to fit, "
        f"{row['ran']:.0f} ran and {row['failed']:.0f} did not."
    )


def published_memory() -> str:
    """For how many devices of the published sweep that ran out of memory the planner is right."""
    table = batching_analysis.published_memory()
    row = table.iloc[0]
    return (
        f"For {_right(table)} of {len(table)} published devices that ran out of memory the planner is right: "
        f"on one {row['gpu']} it expects {row['planned']:.0f} requests of "
        f"{html.number(row['context_tokens'])} tokens to fit, {row['ran']:.0f} ran and {row['failed']:.0f} "
        "did not."
    )
