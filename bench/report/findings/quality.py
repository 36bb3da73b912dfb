"""Sentences of the topic quality."""

from bench import naming
from bench.analysis import latency as latency_analysis
from bench.analysis import quality as quality_analysis
from bench.report import html
from bench.report.findings import words

# What quantisation costs: sentences about quality. `table` is quality.summary of one model on one machine.


def quality_findings(requests):
    """What the scored answers of the machine in focus have shown, as Markdown sentences; of several models, the one with most configurations
    speaks."""
    settings = latency_analysis.settings(quality_analysis.here(requests))
    said = (
        [
            sentence(settings[0][1])
            for sentence in (no_loss, fewer_bits_agree, text_cost, frontier, likelihood)
        ]
        if settings
        else []
    )
    return [sentence for sentence in said if sentence]


def _is_reference(table):
    return (table["backend"] == words.REFERENCE[0]) & (table["option"] == words.REFERENCE[1])


def no_loss(table):
    """The fastest option that gives the reference's answers token for token, and how many others do."""
    same = table[(table["same_answers"] == table["answers"]) & ~_is_reference(table)].dropna(
        subset="output_tokens_per_s"
    )
    compared = int((table["agreement"].notna() & ~_is_reference(table)).sum())
    if not compared:
        return None
    reference = f"the float32 reference, {' '.join(words.REFERENCE)}"
    if same.empty:
        return f"None of the {compared} other options answers every prompt token for token like {reference}."
    best = same.loc[same["output_tokens_per_s"].idxmax()]
    return (
        f"{len(same)} of the {compared} other options answer every prompt token for token like {reference}; "
        f"the fastest of them is {words.name(best)} with {html.number(best['output_tokens_per_s'])} output tokens/s."
    )


def fewer_bits_agree(table):
    """Which option below 16 bits keeps most of the reference's tokens, and which fewest."""
    narrow = table[[(naming.bits(option) or 16) < 16 for option in table["option"]]].dropna(
        subset="agreement"
    )
    if len(narrow) < 2:
        return None
    most, least = narrow.loc[narrow["agreement"].idxmax()], narrow.loc[narrow["agreement"].idxmin()]
    if most["agreement"] == least["agreement"]:
        return f"All {len(narrow)} options below 16 bits keep {words.share(most['agreement'])} of the reference's tokens."
    return (
        f"Of the {len(narrow)} options below 16 bits, {words.name(most)} keeps most of the reference's tokens, {words.share(most['agreement'])} at the same "
        f"place, and {words.name(least)} fewest, {words.share(least['agreement'])}."
    )


def text_cost(table):
    """What the fixed text's perplexity says: the dearest option, and the cheapest one other than the reference."""
    others = table[~_is_reference(table)].dropna(subset="perplexity_ratio")
    if others.empty:
        return None
    worst, best = (
        others.loc[others["perplexity_ratio"].idxmax()],
        others.loc[others["perplexity_ratio"].idxmin()],
    )
    own = worst["perplexity"] / worst["perplexity_ratio"]
    said = f"On the fixed text the reference has a perplexity of {html.number(own)}; {words.name(worst)} has {html.number(worst['perplexity'])}, {words.above(worst)}"
    return said + (
        f", and {words.name(best)} {html.number(best['perplexity'])}, {words.above(best)}."
        if best.name != worst.name
        else "."
    )


def frontier(table):
    """The options that no other beats in both speed and agreeing tokens, from the most faithful to the fastest."""
    table = table.assign(lost=1 - table["agreement"]).dropna(subset=["lost", "output_tokens_per_s"])
    edge = table[quality_analysis.frontier(table, "lost")].sort_values("output_tokens_per_s")
    if len(table) < 2:
        return None
    if len(edge) == 1:
        return f"No option trades quality for speed: {words.rate(edge.iloc[0])} is the fastest and none agrees with the reference more."
    steps = [
        f"{words.name(row)} ({html.number(row['output_tokens_per_s'])} tokens/s, {words.share(row['agreement'])} of the tokens)"
        for _, row in edge.iterrows()
    ]
    below = len(table) - len(edge)
    rest = {0: "", 1: "; one option lies below it"}.get(below, f"; {below} options lie below it")
    return f"More speed is bought with other answers along this line: {', '.join(steps)}{rest}."


def likelihood(table):
    """Whether the answers' likelihood under the reference tells the options apart: their excess against its interval over prompts."""
    changed = table[table["same_answers"] < table["answers"]].dropna(
        subset=["excess_nll_nats", "excess_interval"]
    )
    if changed.empty:
        return None
    apart = changed[changed["excess_nll_nats"].abs() > changed["excess_interval"]]
    ends = changed.loc[
        [changed["excess_nll_nats"].idxmin(), changed["excess_nll_nats"].idxmax()][: len(changed)]
    ]
    spread = " to ".join(f"{words.nats(row)} ({words.name(row)})" for _, row in ends.iterrows())
    return (
        f"Under the reference, the answers of options that differ from it have an NLL per token that lies {spread} nats above that of its own answers; "
        f"beyond the 95 % interval over prompts this is so for {len(apart)} of {len(changed)}."
    )
