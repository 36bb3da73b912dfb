"""Sentences of the topic serving."""

import pandas as pd

from bench import html, naming
from bench.analysis import comparison, levels, machines, serving_proof, shares
from bench.analysis import server_cost as server_cost_analysis
from bench.analysis import serving as serving_analysis
from bench.report.findings import words


def serving_findings(requests: pd.DataFrame) -> list[str]:
    """What the servers of the machine in front have shown under load: a list of Markdown sentences."""
    sentences = [
        within_objectives(requests),
        loops_disagree(requests),
        more_at_once(requests),
        *drafts_under_load(requests),
        server_costs(requests),
    ]
    own = machines.front(requests, "serving")
    rows = own if len(own) else machines.front(requests, "served")
    return [words.about(rows.iloc[0], sentence) for sentence in sentences if sentence]


def _load(row: pd.Series) -> str:
    """`concurrency 16`, `4 requests/s`: the load of a level."""
    load = html.number(row["load"])
    return f"concurrency {load}" if row["loop"] == "closed" else f"{load} requests/s"


def server_costs(requests: pd.DataFrame) -> str | None:
    """What a token and the first one cost more through an engine's own server than in process, one request
    at a time: for every server, and over how many pairs of runs."""
    table = server_cost_analysis.server_cost(requests)
    if table.empty:
        return None
    costs = [
        f"{_more(row['tpot_factor'])}{_interval(row, 'tpot_factor', _more)} per token and "
        f"{words.more(1e3 * row['ttft_cost_s'])} ms to the first with {words.name(row)} "
        f"({words.plural(row['pairs'], 'pair')} of runs)"
        for _, row in table.iterrows()
    ]
    return (
        "One request at a time, going through an engine's own server instead of calling it in process costs "
        f"{'; '.join(costs)}."
    )


def _more(factor):
    return f"{words.more(100 * (factor - 1))} %"


def _interval(row, name, shown):
    return words.interval(row[f"{name}_low"], row[f"{name}_high"], shown)


def within_objectives(requests: pd.DataFrame) -> str | None:
    """Which closed level yields most among those that hold the objectives of study.yaml, where runs tell;
    how many levels are known to hold them, to miss them, or too small to tell."""
    table = serving_analysis.levels(requests)
    if table.empty:
        return None
    goal, holds = serving_analysis.goals()[0]
    held, best = holds(table), naming.named(serving_analysis.best_held(requests))
    counts = f"{int((held == 1).sum())} of {len(table)} levels are known to hold them"
    unknown = int(held.isna().sum())
    counts += f", and {unknown} have too few runs or requests to tell" if unknown else ""
    sentence = f"The objectives ({goal}): {counts}."
    if best.empty:
        return sentence
    return f"{sentence} {_yields_most(best)}"


def proven_shares() -> dict:
    """Numbers of data/proof/shares.csv for serving.qmd."""
    table = serving_proof.load("shares")
    return {
        "fewest": shares.FEWEST_RUNS,
        "correlations": words.listed(f"{value:g}" for value in table["correlation"]),
        "covered": table["covered"].min(),
        "binomial": table.loc[table["correlation"].idxmax(), "binomial"],
    }


def proven_overload() -> dict:
    """Numbers of data/proof/overload.csv for serving.qmd."""
    table = serving_proof.load("overload")
    free = table["server"] == serving_proof.FREE
    return {
        "least": table["answer_s"].min(),
        "most": table["answer_s"].max(),
        "slowest": table["request_rate"].min(),
        "fastest": table["request_rate"].max(),
        "false": table.loc[free, "overloaded"].max(),
        "seeds": table["seeds"].min(),
        "load": table["load"].max(),
        "seen": table.loc[~free, "overloaded"].min(),
        "longest": table["lasts_s"].max() / 60,
        "announced": levels.LONG_S / 60,
    }


def _yields_most(best):
    """Which of the rows of `serving.best_held` yields most, in words, as far as runs tell."""
    named = [_level(row) for _, row in best.iterrows()]
    if len(best) == 1:
        return f"{named[0]} is the only server with a closed loop that is."
    if (best["reason"] != "").any():
        why = "Too few runs, or runs with failures, so which yields most cannot be distinguished"
        return f"{why}: {'; '.join(named)}."
    leaders = [name for name, may in zip(named, best["may_be_best"]) if may]
    if len(leaders) == 1:
        return f"Of the closed loops of {len(best)} servers that do, {leaders[0]} yields most."
    return (
        f"{len(leaders)} of the closed loops that do may yield most and cannot be distinguished: "
        f"{'; '.join(leaders)}."
    )


def _level(row: pd.Series) -> str:
    """A level with its throughput, the share of its requests that met the objectives, and its bound over
    runs."""
    share = f"{words.share(row['met'])} of {row['counted']} requests in {words.plural(row['runs'], 'run')}"
    share += f", at least {words.share(row['met_low'])}"
    interval = _interval(row, "output_tokens_per_s", html.number)
    rate = f"{html.number(row['output_tokens_per_s'])} output tokens/s"
    return f"{words.name(row)} with {rate}{interval} at {_load(row)} ({share})"


def loops_disagree(requests: pd.DataFrame) -> str | None:
    """What the p90 TTFT of an open loop is of that of a closed one at the same throughput, over all levels in
    steady state whose requests bound the percentile. All runs together: no interval, so nothing is ranked."""
    table = naming.named(serving_analysis.loops_apart(requests))
    if table.empty:
        return None
    servers = words.listed(dict.fromkeys(words.name(row) for _, row in table.iterrows()))
    return (
        "At the same throughput, both loops in steady state, the 90th percentile of TTFT of an open loop is "
        f"{words.range(table['ratio'])} that of a closed one, at {words.plural(len(table), 'request rate')} "
        f"with {servers} ({words.span(table['requests'])} requests of all runs together: no interval)."
    )


def more_at_once(requests: pd.DataFrame) -> str | None:
    """What several times the concurrency costs each user and yields in all: for the curve that pays least for
    it, and for the one that pays most, with intervals over runs."""
    table = naming.named(serving_analysis.widened(requests))
    if table.empty:
        return None
    cheap, dear = table.loc[table["slower"].idxmin()], table.loc[table["slower"].idxmax()]
    pays = [
        f"{words.times(row['slower'])}{_interval(row, 'slower', words.two)} as long with {words.name(row)}, "
        f"for {words.times(row['more'])}{_interval(row, 'more', words.two)} the throughput"
        for row in (cheap, dear)
    ]
    sentence = f"At {serving_analysis.WIDER} times the concurrency a token takes {pays[0]}"
    sentence += f"; and {pays[1]}" if cheap.name != dear.name else ""
    return f"{sentence}{_one_run(table, 'slower')}."


def _one_run(table: pd.DataFrame, name: str) -> str:
    """What a sentence adds where none of its ratios has an interval."""
    return " (one run each, so no interval)" if table[f"{name}_low"].isna().all() else ""


def drafts_under_load(requests: pd.DataFrame) -> list[str]:
    """How much faster tokens come from options that draft: one sentence per option, with one request at a
    time and at the widest closed loop."""
    table = naming.named(serving_analysis.speculation(requests).query("loop == 'closed'"))
    sentences = []
    for _, curve in table.dropna(subset="pace").groupby(serving_analysis.CURVE, sort=True):
        first, last = curve.loc[curve["load"].idxmin()], curve.loc[curve["load"].idxmax()]
        sentence = (
            f"With drafts ({words.name(first)} against {first['plain']}) tokens come {_pace(first)} at "
            f"{_load(first)}"
        )
        if len(curve) > 1:
            sentence += f", and {_pace(last)} at {_load(last)}"
        sentences.append(f"{sentence}{_one_run(curve, 'pace')}.")
    return sentences


def _pace(row: pd.Series) -> str:
    """`2 times (1.8 to 2.2) as fast`, or that it cannot be distinguished."""
    interval = _interval(row, "pace", words.two)
    if row["pace_verdict"] == comparison.EQUAL:
        return f"at a pace that cannot be distinguished from that without{interval}"
    return f"{words.times(row['pace'])}{interval} as fast"


def published_users() -> str:
    """The largest concurrency of each published engine on one GPU at which every user has the published
    example of a pace."""
    _, holds = serving_analysis.goals()[1]
    table = serving_analysis.published_single().query("loop == 'closed'")
    largest = table[holds(table) == 1].groupby("backend")["load"].max().sort_values(ascending=False)
    one = table.iloc[0]
    counts = ", ".join(f"{engine} {html.number(load)}" for engine, load in largest.items())
    return (
        f"The largest concurrency that was published with at least {levels.PER_USER} output "
        f"tokens/s per user ({one['model']} on one {one['gpu']}): {counts}."
    )
