"""Sentences of the topic serving."""

import numpy as np

from bench import naming
from bench.analysis import serving as serving_analysis
from bench.report import html
from bench.report.findings import words


def serving_findings(requests):
    """What the servers of the machine in focus have shown under load: a list of Markdown sentences."""
    sentences = [
        within_objectives(requests),
        loops_disagree(requests),
        more_at_once(requests),
        *drafts_under_load(requests),
        server_costs(requests),
    ]
    return [sentence for sentence in sentences if sentence]


def _load(row):
    """`concurrency 16`, `4 requests/s`: the load of a level."""
    load = html.number(row["load"])
    return f"concurrency {load}" if row["loop"] == "closed" else f"{load} requests/s"


def server_costs(requests):
    """What a token and the first one cost more through an engine's own server than in process, one request
    at a time: for the cheapest and for the dearest server."""
    table = serving_analysis.server_cost(requests)
    if table.empty:
        return None
    costs = [
        f"{words.more(100 * (row['tpot_factor'] - 1))} % per token, {words.more(1e3 * row['ttft_cost_s'])} "
        f"ms to the first ({words.name(row)})"
        for _, row in table.iterrows()
    ]
    return (
        "One request at a time, going through an engine's own server instead of calling it in process costs "
        f"{' to '.join(dict.fromkeys((costs[0], costs[-1])))}."
    )


def within_objectives(requests):
    """The level with the best throughput that holds the objectives of study.yaml, and the best level of
    all."""
    table = naming.named(serving_analysis.levels(requests)).dropna(subset="output_tokens_per_s")
    if table.empty:
        return None
    (goal, holds), most = serving_analysis.goals()[0], table.loc[table["output_tokens_per_s"].idxmax()]
    held = table[holds(table) == 1]
    if held.empty:
        return (
            f"No server held the objectives ({goal}) at any load; the most that came out was {_rate(most)}, "
            f"from {words.name(most)} at {_load(most)}."
        )
    best = held.loc[held["output_tokens_per_s"].idxmax()]
    sentence = (
        f"Within the objectives ({goal}) {words.name(best)} yields most: {_rate(best)} at {_load(best)}"
    )
    if best.name == most.name:
        return f"{sentence}, the most of all levels."
    return f"{sentence}; without them it is {_rate(most)}, from {words.name(most)} at {_load(most)}."


def _rate(row):
    return f"{html.number(row['output_tokens_per_s'])} output tokens/s"


def loops_disagree(requests):
    """How far the p99 TTFT of an open loop lies from that of a closed one at the same throughput, where they
    differ most."""
    table = serving_analysis.disagreement(requests)
    if table.empty:
        return None
    row = naming.named(table.loc[[np.log(table["ratio"]).abs().idxmax()]]).iloc[0]
    opened, closed = (html.number(row[name] * 1e3) for name in ("ttft_p99_s", "closed_ttft_p99_s"))
    return (
        f"At the same throughput the two loops disagree most with {words.name(row)}: at {_rate(row)} the "
        f"99th percentile of TTFT is {opened} ms in an open loop ({html.number(row['load'])} requests/s) and "
        f"{closed} ms in a closed one, {words.times(row['ratio'])} as long."
    )


def more_at_once(requests):
    """What several times the concurrency costs each user and yields in all: for the curve that pays least for
    it, and for the one that pays most."""
    table = naming.named(serving_analysis.widened(requests))
    if table.empty:
        return None
    cheap, dear = table.loc[table["slower"].idxmin()], table.loc[table["slower"].idxmax()]
    pays = [
        f"{words.times(row['slower'])} as long with {words.name(row)}, for {words.times(row['more'])} the "
        "throughput"
        for row in (cheap, dear)
    ]
    sentence = f"At {serving_analysis.WIDER} times the concurrency a token takes {pays[0]}"
    return f"{sentence}; and {pays[1]}." if cheap.name != dear.name else f"{sentence}."


def drafts_under_load(requests):
    """How much faster tokens come from options that draft: one sentence per option, with one request at a
    time and at the widest closed loop."""
    table = naming.named(serving_analysis.speculation(requests).query("loop == 'closed'"))
    sentences = []
    for _, curve in table.dropna(subset="pace").groupby(serving_analysis.CURVE, sort=True):
        first, last = curve.loc[curve["load"].idxmin()], curve.loc[curve["load"].idxmax()]
        sentence = (
            f"With drafts ({words.name(first)} against {first['plain']}) tokens come "
            f"{words.times(first['pace'])} as fast at {_load(first)}"
        )
        if len(curve) > 1:
            sentence += f", and {words.times(last['pace'])} as fast at {_load(last)}"
        sentences.append(f"{sentence}.")
    return sentences


def published_users(requests=None):
    """The largest concurrency of each published engine on one GPU at which every user has the published
    example of a pace."""
    _, holds = serving_analysis.goals()[1]
    table = serving_analysis.published_single().query("loop == 'closed'")
    largest = table[holds(table) == 1].groupby("backend")["load"].max().sort_values(ascending=False)
    one = table.iloc[0]
    counts = ", ".join(f"{engine} {html.number(load)}" for engine, load in largest.items())
    return (
        f"The largest concurrency that was published with at least {serving_analysis.PER_USER} output "
        f"tokens/s per user ({one['model']} on one {one['gpu']}): {counts}."
    )
