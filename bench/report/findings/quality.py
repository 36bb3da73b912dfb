"""Sentences of the topic quality: `table` is `bench.analysis.quality.summary` of one setting."""

import pandas as pd

from bench import html, naming
from bench.analysis import latency as latency_analysis
from bench.analysis import quality as quality_analysis
from bench.analysis import ranking
from bench.report.findings import words


def quality_findings(requests: pd.DataFrame) -> list[str]:
    """What the scored answers of the machine in front have shown: a list of Markdown sentences.

    Of several models, the one with most configurations is described.
    """
    settings = latency_analysis.settings(quality_analysis.here(requests))
    if not settings:
        return []
    table = settings[0][1]
    sentences = [
        no_loss(table, requests),
        fewer_bits_agree(table, requests),
        text_cost(table),
        frontier(table),
        likelihood(table),
    ]
    on = words.on(table.iloc[0])
    return [f"{on}, {sentence}" for sentence in sentences if sentence]


def no_loss(table: pd.DataFrame, requests: pd.DataFrame) -> str | None:
    """How many options answer as the reference does, token for token, and which of them is fastest."""
    other = ~words.is_reference(table)
    same = table[(table["same_answers"] == table["answers"]) & other]
    compared = int((table["agreement"].notna() & other).sum())
    if not compared:
        return None
    reference = f"the float32 reference, {' '.join(words.REFERENCE)}"
    prompts = words.plural(table["answers"].max(), "prompt")
    if same.empty:
        return f"none of the {compared} other options answers all {prompts} token for token like {reference}."
    return (
        f"{len(same)} of the {compared} other options answer all {prompts} token for token like {reference}"
        f"{_fastest(same, requests)}."
    )


def _fastest(table: pd.DataFrame, requests: pd.DataFrame) -> str:
    """Which of some rows of a summary is fastest, or which cannot be distinguished; empty where none is
    ranked."""
    best = ranking.leaders(quality_analysis.ranked(requests, table))
    if best.empty:
        return ""
    names = [
        f"{words.name(row)} ({words.within(row['mean'], (row['high'] - row['low']) / 2)})"
        for _, row in best.iterrows()
    ]
    if len(names) == 1:
        return f"; the fastest of them is {names[0]}, in output tokens/s"
    return f"; the fastest of them cannot be distinguished: {words.listed(names, 4)}, in output tokens/s"


def fewer_bits_agree(table: pd.DataFrame, requests: pd.DataFrame) -> str | None:
    """Which options below 16 bits keep most of the reference's tokens, and which fewest, as far as the
    prompts part them."""
    narrow = table[[(naming.bits(option) or 16) < 16 for option in table["option"]]]
    narrow = narrow.dropna(subset="agreement")
    if len(narrow) < 2:
        return None
    most, fewest = quality_analysis.most_faithful(requests, narrow)
    share = narrow["agreement"]
    prompts = words.plural(narrow["answers"].max(), "prompt")
    if share.min() == share.max() or set(most) & set(fewest):
        ends = " to ".join(dict.fromkeys(map(words.share, (share.min(), share.max()))))
        return (
            f"the {len(narrow)} options below 16 bits keep {ends} of the reference's tokens at the same "
            f"place; {prompts} do not settle which keeps most."
        )
    return (
        f"of the {len(narrow)} options below 16 bits, {_retained(narrow, most, 'most')} of the reference's "
        f"tokens at the same place, and {_retained(narrow, fewest, 'fewest')}, over {prompts}."
    )


def _retained(table, places, which):
    """`**a b** (32 %) keeps most`; of several, that they cannot be distinguished."""
    names = [
        f"{words.name(row)} ({words.share(row['agreement'])})" for _, row in table.loc[places].iterrows()
    ]
    if len(names) == 1:
        return f"{names[0]} keeps {which}"
    return f"{words.listed(names, 4)} keep {which} (they cannot be distinguished)"


def text_cost(table: pd.DataFrame) -> str | None:
    """The fixed text's perplexity: of the reference, and the range of the others on this one text."""
    others = table[~words.is_reference(table)].dropna(subset="perplexity_ratio")
    if others.empty:
        return None
    ratio = others["perplexity_ratio"]
    worst, best = others.loc[ratio.idxmax()], others.loc[ratio.idxmin()]
    own = worst["perplexity"] / worst["perplexity_ratio"]
    sentence = (
        f"the reference has a perplexity of {html.number(own)} on the one fixed text; {words.name(worst)} "
        f"has {html.number(worst['perplexity'])}, {words.above(worst)}"
    )
    if best.name != worst.name:
        sentence += f", and {words.name(best)} {html.number(best['perplexity'])}, {words.above(best)}"
    return f"{sentence}."


def frontier(table: pd.DataFrame) -> str | None:
    """The options that buy speed, each significantly faster than the one before, with other answers, from the
    most faithful to the fastest."""
    table = table.assign(lost=1 - table["agreement"]).dropna(subset=["lost", "output_tokens_per_s"])
    table = table[table["reason"] == ""]
    if len(table) < 2:
        return None
    edge = table[quality_analysis.frontier(table, "lost")].sort_values("output_tokens_per_s")
    steps = [row for _, row in edge.iterrows()]
    kept = steps[:1]
    for row in steps[1:]:
        if quality_analysis.distinguished(kept[-1], row):
            kept.append(row)
    if len(kept) == 1:
        return (
            "no option trades quality for speed: none is significantly faster than "
            f"{words.measured(kept[0])}, in output tokens/s, and none agrees with the reference more."
        )
    each = [
        f"{words.measured(row, unit='tokens/s')} with {words.share(row['agreement'])} of the tokens"
        for row in kept
    ]
    return f"more speed, significant at each step, is bought with other answers: {words.listed(each)}."


def likelihood(table: pd.DataFrame) -> str | None:
    """Whether the answers' likelihood under the reference distinguishes the options: their excess against its
    interval over prompts."""
    changed = table[table["same_answers"] < table["answers"]]
    changed = changed.dropna(subset=["excess_nll_nats", "excess_prompt_interval"])
    if changed.empty:
        return None
    excess = changed["excess_nll_nats"]
    apart = int((excess.abs() > changed["excess_prompt_interval"]).sum())
    ends = changed.loc[[excess.idxmin(), excess.idxmax()][: len(changed)]]
    spread = " to ".join(f"{words.nats(row)} ({words.name(row)})" for _, row in ends.iterrows())
    return (
        "under the reference, the answers of options that differ from it have an NLL per token that lies "
        f"{spread} nats above that of its own answers; beyond the 95 % interval over prompts this is so for "
        f"{apart} of {len(changed)}."
    )
