"""Sentences of the topic serving."""

import numpy as np

from bench import naming
from bench.analysis import serving as serving_analysis
from bench.report import html
from bench.report.findings import words as words_findings

# Servers under load: sentences from bench/analysis/serving.py.


def serving_findings(requests):
    """What the servers of the machine in focus have shown under load, as Markdown sentences."""
    said = [
        within_objectives(requests),
        loops_disagree(requests),
        more_at_once(requests),
        *drafts_under_load(requests),
        server_costs(requests),
    ]
    return [sentence for sentence in said if sentence]


def _loaded(row):
    """`concurrency 16`, `4 requests/s`: the load of a level."""
    return (
        f"concurrency {html.number(row['load'])}"
        if row["loop"] == "closed"
        else f"{html.number(row['load'])} requests/s"
    )


def server_costs(requests):
    """What a token and the first one cost more through an engine's own server than in process, one request at a time: cheapest and dearest server."""
    table = serving_analysis.server_cost(requests)
    if table.empty:
        return None
    said = [
        f"{words_findings.more(100 * (row['tpot_factor'] - 1))} % per token, {words_findings.more(1e3 * row['ttft_cost_s'])} ms to the first ({words_findings.name(row)})"
        for _, row in table.iterrows()
    ]
    return f"One request at a time, going through an engine's own server instead of calling it in process costs {' to '.join(dict.fromkeys((said[0], said[-1])))}."


def within_objectives(requests):
    """The level with the best throughput that holds the objectives of study.yaml, and the best level of all."""
    table = naming.named(serving_analysis.levels(requests)).dropna(subset="output_tokens_per_s")
    if table.empty:
        return None
    (goal, holds), most = serving_analysis.goals()[0], table.loc[table["output_tokens_per_s"].idxmax()]
    most_said = f"{html.number(most['output_tokens_per_s'])} output tokens/s"
    held = table[holds(table) == 1]
    if held.empty:
        return f"No server held the objectives ({goal}) at any load; the most that came out was {most_said}, from {words_findings.name(most)} at {_loaded(most)}."
    best = held.loc[held["output_tokens_per_s"].idxmax()]
    said = f"Within the objectives ({goal}) {words_findings.name(best)} yields most: {html.number(best['output_tokens_per_s'])} output tokens/s at {_loaded(best)}"
    return said + (
        f"; without them it is {most_said}, from {words_findings.name(most)} at {_loaded(most)}."
        if best.name != most.name
        else ", the most of all levels."
    )


def loops_disagree(requests):
    """How far the p99 TTFT of an open loop lies from that of a closed one at the same throughput, where they differ most."""
    table = serving_analysis.disagreement(requests)
    if table.empty:
        return None
    row = naming.named(table.loc[[np.log(table["ratio"]).abs().idxmax()]]).iloc[0]
    waits = f"{html.number(row['ttft_p99_s'] * 1e3)} ms in an open loop ({html.number(row['load'])} requests/s) and {html.number(row['closed_ttft_p99_s'] * 1e3)} ms in a closed one"
    said = f"At the same throughput the two loops disagree most with {words_findings.name(row)}: at {html.number(row['output_tokens_per_s'])} output tokens/s"
    return f"{said} the 99th percentile of TTFT is {waits}, {words_findings.times(row['ratio'])} as long."


def more_at_once(requests):
    """What several times the concurrency costs each user and yields in all: the curve that pays least for it, and the one that pays most."""
    table = naming.named(serving_analysis.widened(requests))
    if table.empty:
        return None
    cheap, dear = table.loc[table["slower"].idxmin()], table.loc[table["slower"].idxmax()]
    pays = [
        f"{words_findings.times(row['slower'])} as long with {words_findings.name(row)}, for {words_findings.times(row['more'])} the throughput"
        for row in (cheap, dear)
    ]
    said = f"At {serving_analysis.WIDER} times the concurrency a token takes {pays[0]}"
    return f"{said}; and {pays[1]}." if cheap.name != dear.name else f"{said}."


def drafts_under_load(requests):
    """One sentence per option that drafts: how much faster tokens come with one request at a time, and at the widest closed loop."""
    table = naming.named(serving_analysis.speculation(requests).query("loop == 'closed'")).dropna(
        subset="pace"
    )
    said = []
    for _, curve in table.groupby(serving_analysis.CURVE, sort=True):
        first, last = curve.loc[curve["load"].idxmin()], curve.loc[curve["load"].idxmax()]
        beside = f"With drafts ({words_findings.name(first)} against {first['plain']}) tokens come {words_findings.times(first['pace'])} as fast at {_loaded(first)}"
        said.append(
            beside
            + (
                f", and {words_findings.times(last['pace'])} as fast at {_loaded(last)}."
                if len(curve) > 1
                else "."
            )
        )
    return said


def published_users(requests=None):
    """The largest concurrency of each published engine on one GPU that gives every user the published example of a pace."""
    (words, holds), table = (
        serving_analysis.goals()[1],
        serving_analysis.published_single().query("loop == 'closed'"),
    )
    largest = table[holds(table) == 1].groupby("backend")["load"].max().sort_values(ascending=False)
    one = table.iloc[0]
    counts = ", ".join(f"{engine} {html.number(load)}" for engine, load in largest.items())
    return f"The largest concurrency that was published with at least {serving_analysis.PER_USER} output tokens/s per user ({one['model']} on one {one['gpu']}): {counts}."
