"""Sentences of the topic conversations."""

import pandas as pd

from bench import html, naming
from bench.analysis import conversations as conversations_analysis
from bench.analysis import statistics
from bench.report import captions
from bench.report.findings import words

RATES = {
    "by_tokens": "by tokens",
    "mean_over_requests": "as a mean over requests",
    "requests_with_a_hit": "as the share of requests with a hit",
}


def hits(requests: pd.DataFrame) -> str | None:
    """How the reported hits stand to those that were expected before the runs, counted over requests."""
    table = conversations_analysis.checked(requests)
    table = table[table["cache_capacity_tokens"] != conversations_analysis.OFF]
    if table.empty:
        return None
    counts = table["verdict"].value_counts()
    verdicts = conversations_analysis.WITHIN, conversations_analysis.BELOW, conversations_analysis.ABOVE
    within, below, above = (html.number(counts.get(verdict, 0)) for verdict in verdicts)
    return (
        f"Of {words.plural(len(table), 'request')} to servers with a cache, {within} hit as many tokens as "
        f"were expected before the run, {below} fewer (evicted, or held by another request) and {above} more."
    )


def counted(requests: pd.DataFrame) -> str | None:
    """How the servers' own counters stand to the rows, counted over levels of load."""
    table = conversations_analysis.counted(requests)
    known = table[table["why"].isna()]
    if table.empty:
        return None
    apart = (known["prompt_tokens"] != known["rows_prompt_tokens"]) | (
        known["cached_tokens"] != known["rows_cached_tokens"]
    )
    sentence = (
        f"The servers' own counters of {words.plural(len(known), 'level')} of load, "
        f"{html.number(known['prompt_tokens'].sum())} prompt tokens with "
        f"{html.number(known['cached_tokens'].sum())} of them cached, equal the sums of the rows to the "
        f"token in {len(known) - apart.sum()}"
    )
    if apart.any():
        sentence += ", and to the tokens of turns that were cut in the others"
    if silent := len(table) - len(known):
        sentence += f"; {words.plural(silent, 'level')} had no counters, and a cache there has no hit rate"
    return f"{sentence}."


def rates(requests: pd.DataFrame) -> list[str]:
    """The three hit rates of each load with a cache: sentences, one per configuration and load, means over
    runs; the intervals are over runs."""
    table = naming.named(conversations_analysis.levels(requests)).dropna(subset="by_tokens")
    table = table[table["cache_capacity_tokens"] != conversations_analysis.OFF].sort_values("started")
    keys = ["backend", "option", "weights", "gpu", "workload", "arrivals", "history", "session_rate"]
    found = []
    for key, own in table.groupby(keys, dropna=False, sort=True):
        row, sizes = dict(zip(keys, key)), own.groupby("cache_capacity_tokens", dropna=False)
        of_sizes = words.listed([_with_interval(each["by_tokens"]) for _, each in sizes], 9)
        of_tokens = words.listed([_size(size) for size, _ in sizes], 9)
        size = own["cache_capacity_tokens"].fillna(0)
        largest = own[size == size.max()]
        others = (f"{words.share(largest[name].mean())} {RATES[name]}" for name in list(RATES)[1:])
        most, runs = own["expected_high"].mean(), sizes["run_id"].nunique()
        at_most = "" if pd.isna(most) else f"; at most {words.share(most)} by tokens if nothing were evicted"
        once = ", so without an interval" if (runs == 1).all() else ""
        found.append(
            f"{words.on(row)}, {words.name(row)} answered of {row['workload']} ({row['arrivals']}, "
            f"{html.number(row['session_rate'])} sessions/s, history {row['history']}) {of_sizes} by tokens "
            f"with {of_tokens}, and with the largest {words.listed(others)}{at_most} "
            f"({captions.plural(runs, 'run')} each{once})."
        )
    return found


def _with_interval(shares):
    """The mean of the runs' `shares` with its interval, where there is one."""
    middle, low, high = statistics.mean_interval(shares)
    return f"{words.share(middle)}{words.interval(low, high, words.percent)}"


def _size(tokens):
    return "a cache" if pd.isna(tokens) else f"a cache of {html.number(tokens)} tokens"


def saved(requests: pd.DataFrame) -> list[str]:
    """What a cache saved against the same workload without it: sentences, one per configuration and load, for
    later turns; only where the interval over runs parts from 1 is it called a gain."""
    table = naming.named(conversations_analysis.saved(requests))
    found = []
    for _, row in table[table["turns"] == "later"].iterrows():
        times, end = _times(row)
        sooner = f"{html.number(abs(row['saved_s']) * 1e3)} ms {'sooner' if row['saved_s'] >= 0 else 'later'}"
        found.append(
            f"{words.on(row)}, the first token of a later turn of {row['workload']} comes {times} as fast "
            f"from {words.name(row)} with {_size(row['cache_capacity_tokens'])} as without: "
            f"{sooner} at the median, with {words.share(row['computed'])} of the prompt tokens "
            f"computed ({words.plural(row['pairs'], 'pair')} of turns in "
            f"{words.plural(row['runs'], 'run')}){end}"
        )
    return found


def _times(row):
    """(the ratio `times` of a row with its interval, how a sentence about it ends)."""
    low, high = row["times_low"], row["times_high"]
    times = f"{words.times(row['times'])}{words.interval(low, high)}"
    if pd.isna(low):
        return times, "; one run, so without an interval."
    apart = low > 1 or high < 1
    return times, "." if apart else "; the interval holds 1, so the two cannot be distinguished."


def bursts(requests: pd.DataFrame) -> list[str]:
    """What the arrivals of a trace cost beside Poisson ones of the same rate: sentences, one per
    configuration and rate."""
    found = []
    for _, row in naming.named(conversations_analysis.bursts(requests)).iterrows():
        times, end = _times(row)
        found.append(
            f"{words.on(row)}, under the arrivals of {row['workload']} at {html.number(row['session_rate'])} "
            f"sessions/s the 90th percentile of TTFT of {words.name(row)} is {times} that under as many "
            f"Poisson arrivals, and {words.share(row['met'])} of sessions meet the objectives where "
            f"{words.share(row['met_poisson'])} do ({words.plural(row['runs'], 'run')}){end}"
        )
    return found


def cut(requests: pd.DataFrame) -> str | None:
    """How many sessions were cut, with their causes."""
    table, of = conversations_analysis.cut(requests), conversations_analysis.levels(requests)
    if of.empty:
        return None
    total = words.plural(int(of["sessions"].sum()), "session")
    if table.empty:
        return f"None of {total} was cut: every turn was sent and answered."
    causes = table["cause"].str.partition(":")[0].value_counts()
    named = words.listed([f"{count} by {cause}" for cause, count in causes.items()], 5)
    return (
        f"{len(table)} of {total} were cut ({named}); their turns that were answered count, and no "
        "figure leaves them out."
    )


def replayed() -> list[str]:
    """How late replayed requests left, and whether they were as bursty as their schedule: sentences."""
    table = conversations_analysis.proof("replay")
    if table.empty:
        return []
    made, real = table[table["trace"] == "made"], table[table["trace"] != "made"]
    found = [
        f"Of {html.number(row['requests'])} requests of a made trace with bursts, in "
        f"{words.two(row['seconds'] / 60)} minutes, half arrived within {words.two(row['late_p50_ms'])} ms "
        f"of their moments, and 99 % within {words.two(row['late_p99_ms'])} ms "
        f"(promised: {words.two(1e3 * conversations_analysis.LATE_S)})."
        for _, row in made.iterrows()
    ]
    faults = conversations_analysis.broken(table)
    scales = words.listed([f"{scale:g}" for scale in sorted(real["time_scale"].unique())], 9)
    if len(real) and not faults:
        found.append(
            f"{words.plural(real['trace'].nunique(), 'real trace')} at time scales {scales}: in windows of "
            "trace time the number of requests that were sent varies as it does in the schedule, within "
            f"{words.share(conversations_analysis.ALIKE)}."
        )
    return [*found, *(f"Missed: {sentence}" for sentence in faults)]
