"""Sentences of the topic quality: `table` is `bench.analysis.quality.summary` of one setting."""

from bench import naming
from bench.analysis import latency as latency_analysis
from bench.analysis import quality as quality_analysis
from bench.report import html
from bench.report.findings import words


def quality_findings(requests):
    """What the scored answers of the machine in focus have shown: a list of Markdown sentences.

    Of several models, the one with most configurations is described.
    """
    settings = latency_analysis.settings(quality_analysis.here(requests))
    if not settings:
        return []
    each = no_loss, fewer_bits_agree, text_cost, frontier, likelihood
    sentences = [sentence(settings[0][1]) for sentence in each]
    return [sentence for sentence in sentences if sentence]


def no_loss(table):
    """The fastest option that answers as the reference does, token for token, and how many others do."""
    other = ~words.is_reference(table)
    same = table[(table["same_answers"] == table["answers"]) & other].dropna(subset="output_tokens_per_s")
    compared = int((table["agreement"].notna() & other).sum())
    if not compared:
        return None
    reference = f"the float32 reference, {' '.join(words.REFERENCE)}"
    if same.empty:
        return f"None of the {compared} other options answers every prompt token for token like {reference}."
    best = same.loc[same["output_tokens_per_s"].idxmax()]
    return (
        f"{len(same)} of the {compared} other options answer every prompt token for token like {reference}; "
        f"the fastest of them is {words.name(best)} with {html.number(best['output_tokens_per_s'])} output "
        "tokens/s."
    )


def fewer_bits_agree(table):
    """Which option below 16 bits keeps most of the reference's tokens, and which fewest."""
    narrow = table[[(naming.bits(option) or 16) < 16 for option in table["option"]]]
    narrow = narrow.dropna(subset="agreement")
    if len(narrow) < 2:
        return None
    most, least = narrow.loc[narrow["agreement"].idxmax()], narrow.loc[narrow["agreement"].idxmin()]
    kept, fewest = words.share(most["agreement"]), words.share(least["agreement"])
    if most["agreement"] == least["agreement"]:
        return f"All {len(narrow)} options below 16 bits keep {kept} of the reference's tokens."
    return (
        f"Of the {len(narrow)} options below 16 bits, {words.name(most)} keeps most of the reference's "
        f"tokens, {kept} at the same place, and {words.name(least)} fewest, {fewest}."
    )


def text_cost(table):
    """The fixed text's perplexity: of the reference, of the option that loses most, and of the one that loses
    least."""
    others = table[~words.is_reference(table)].dropna(subset="perplexity_ratio")
    if others.empty:
        return None
    ratio = others["perplexity_ratio"]
    worst, best = others.loc[ratio.idxmax()], others.loc[ratio.idxmin()]
    own = worst["perplexity"] / worst["perplexity_ratio"]
    sentence = (
        f"On the fixed text the reference has a perplexity of {html.number(own)}; {words.name(worst)} has "
        f"{html.number(worst['perplexity'])}, {words.above(worst)}"
    )
    if best.name != worst.name:
        sentence += f", and {words.name(best)} {html.number(best['perplexity'])}, {words.above(best)}"
    return f"{sentence}."


def frontier(table):
    """The options that no other beats in both speed and agreeing tokens, from the most faithful to the
    fastest."""
    table = table.assign(lost=1 - table["agreement"]).dropna(subset=["lost", "output_tokens_per_s"])
    edge = table[quality_analysis.frontier(table, "lost")].sort_values("output_tokens_per_s")
    if len(table) < 2:
        return None
    if len(edge) == 1:
        return (
            f"No option trades quality for speed: {words.rate(edge.iloc[0])} is the fastest and none agrees "
            "with the reference more."
        )
    steps = [
        f"{words.name(row)} ({html.number(row['output_tokens_per_s'])} tokens/s, "
        f"{words.share(row['agreement'])} of the tokens)"
        for _, row in edge.iterrows()
    ]
    below = len(table) - len(edge)
    rest = {0: "", 1: "; one option lies below it"}.get(below, f"; {below} options lie below it")
    return f"More speed is bought with other answers along this line: {', '.join(steps)}{rest}."


def likelihood(table):
    """Whether the answers' likelihood under the reference distinguishes the options: their excess against its
    interval over prompts."""
    changed = table[table["same_answers"] < table["answers"]]
    changed = changed.dropna(subset=["excess_nll_nats", "excess_interval"])
    if changed.empty:
        return None
    excess = changed["excess_nll_nats"]
    apart = int((excess.abs() > changed["excess_interval"]).sum())
    ends = changed.loc[[excess.idxmin(), excess.idxmax()][: len(changed)]]
    spread = " to ".join(f"{words.nats(row)} ({words.name(row)})" for _, row in ends.iterrows())
    return (
        "Under the reference, the answers of options that differ from it have an NLL per token that lies "
        f"{spread} nats above that of its own answers; beyond the 95 % interval over prompts this is so for "
        f"{apart} of {len(changed)}."
    )
