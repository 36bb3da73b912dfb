"""Findings: sentences computed from the observations, each by a function that returns None where the data do
not support it.

    python -m bench.report.findings               all sentences on the terminal
    python -m bench.report.findings README.md     the first ones and the headline figure into the marked place
                                                  of a file, from the runs that git keeps

Each sentence names its machine and mixes none, but for the one on what holds on every machine.
"""

from collections.abc import Iterable

import pandas as pd

from bench.analysis import machines
from bench.report.findings import across_machines, batching, latency, overhead, quality, serving, sizes, words

MOST_HEADLINES = 8
LATENCY = latency.fastest, latency.fewer_bits, latency.first_token, latency.bandwidth
# The experiments that sentences are about, and what a reader calls them.
EXPERIMENTS = {
    "latency": "the latency of one request at a time",
    "batching": "how throughput grows with the batch",
    "quality": "what quantisation costs in quality",
    "serving": "how servers fare under load",
    "overhead": "what measuring itself costs",
}


def headlines(requests: pd.DataFrame) -> list[str]:
    """The first findings: at most MOST_HEADLINES Markdown sentences, each read once; tables have the rest.

    What holds on every machine comes first where enough machines have enough rounds.
    """
    front = machines.in_front(requests)
    found = [
        *(sentence(front) for sentence in LATENCY),
        batching.share_of_gain(front),
        *quality.quality_findings(front)[:1],
        *serving.serving_findings(front)[:1],
    ]
    label = next((label for label, _ in machines.labelled(requests)), "")
    sentences = named(found, front, label)
    over = across_machines.everywhere(requests)
    if over:
        sentences.insert(0 if across_machines.leads(requests) else 1, over)
    return sentences[:MOST_HEADLINES]


def findings(requests: pd.DataFrame) -> list[str]:
    """What every machine has shown, the one in front first (`machines.each`): a list of Markdown sentences.

    Of the one in front all sentences; of the others which option is fastest, and what has not been measured.
    Of several models, the one with most configurations is described. What holds on every machine stands first
    where enough machines have enough rounds (`across_machines.leads`), else after the first sentence.
    """
    sentences = []
    for place, (label, own) in enumerate(machines.labelled(requests)):
        found = [latency.fastest(own) or latency.alone(own), _lacking(own)] if place else of_one(own)
        sentences += named(found, own, label)
    over = across_machines.everywhere(requests)
    if over:
        sentences.insert(0 if across_machines.leads(requests) else 1, over)
    return sentences


def named(sentences: Iterable[str | None], requests: pd.DataFrame, label: str) -> list[str]:
    """Those of `sentences` that there are, about the only machine in `requests`, called by its `label`."""
    own = f"On `{requests['gpu'].iloc[0]}`"
    gpu, bracket, host = label.partition(" (")
    on = f"On `{gpu}`{bracket}{host}"
    return [sentence.replace(own, on, 1) for sentence in sentences if sentence]


def of_one(requests: pd.DataFrame) -> list[str | None]:
    """The sentences about the only machine in `requests`, with None for what it does not support."""
    return [
        *([sentence(requests) for sentence in LATENCY] if _several(requests) else [latency.alone(requests)]),
        *sizes.larger_models(requests),
        batching.share_of_gain(requests),
        batching.limited(requests),
        *quality.quality_findings(requests)[:2],
        *serving.serving_findings(requests)[:2],
        overhead.cost(requests),
        latency.run_to_run(requests),
        *missing(requests),
    ]


def _several(requests):
    """Whether latency was measured with more than one engine or option, so that there is something to
    compare."""
    rows = requests[requests["experiment"] == "latency"]
    return len(rows[["backend", "option"]].drop_duplicates()) != 1


def _missing(requests):
    """{experiment: what a reader calls it} of those that the only machine in `requests` has not measured."""
    measured = set(requests["experiment"])
    return {name: title for name, title in EXPERIMENTS.items() if name not in measured}


def missing(requests: pd.DataFrame) -> list[str]:
    """One sentence per experiment that the only machine in `requests` has not measured."""
    return [
        f"On `{requests['gpu'].iloc[0]}`, {title} has not been measured: "
        f"`make study EXPERIMENTS={name}` does."
        for name, title in _missing(requests).items()
    ]


def _lacking(requests):
    """`missing` in one sentence; None where nothing is."""
    lacks = list(_missing(requests))
    verb = "has" if len(lacks) == 1 else "have"
    on = f"On `{requests['gpu'].iloc[0]}`"
    return f"{on}, {words.listed(lacks)} {verb} not been measured." if lacks else None
