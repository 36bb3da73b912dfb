"""Findings: sentences computed from the observations, each by a function that returns None where the data do
not support it.

    python -m bench.report.findings               the first sentences (`headlines`) on the terminal
    python -m bench.report.findings README.md     they and the headline figure into the marked place
                                                  of a file, from the runs that git keeps

Each sentence names its machine and mixes none, but for the one on what holds on every machine.
"""

from collections.abc import Iterable

import pandas as pd

from bench.analysis import machines
from bench.report.findings import across_machines, batching, latency, quality, serving

MOST_HEADLINES = 8
LATENCY = latency.fastest, latency.alone, latency.fewer_bits, latency.first_token, latency.bandwidth


def headlines(requests: pd.DataFrame) -> list[str]:
    """The first findings: at most MOST_HEADLINES Markdown sentences, each read once; tables have the rest.

    What holds on every machine comes first where enough machines have enough rounds. None without runs.
    """
    if requests.empty:
        return []
    front = machines.in_front(requests)
    found = [
        *(sentence(front) for sentence in LATENCY),
        batching.share_of_gain(front),
        *quality.quality_findings(front)[:1],
        *serving.serving_findings(front)[:1],
    ]
    label = next(label for label, _ in machines.labelled(requests))
    sentences = named(found, front, label)
    over = across_machines.everywhere(requests)
    if over:
        sentences.insert(0 if across_machines.leads(requests) else 1, over)
    return sentences[:MOST_HEADLINES]


def named(sentences: Iterable[str | None], requests: pd.DataFrame, label: str) -> list[str]:
    """Those of `sentences` that there are, about the only machine in `requests`, called by its `label`."""
    own = f"On `{requests['gpu'].iloc[0]}`"
    gpu, bracket, host = label.partition(" (")
    on = f"On `{gpu}`{bracket}{host}"
    return [sentence.replace(own, on, 1) for sentence in sentences if sentence]
