"""Findings: sentences computed from the observations, each by a function that returns None where the data do
not support it.

    python -m bench.report.findings               the sentences on the terminal
    python -m bench.report.findings README.md     the sentences and the headline figure into the marked place
                                                  of a file, from the runs that git keeps

Each sentence names its machine and mixes none.
"""

from bench.analysis import machines
from bench.report.findings import batching, latency, overhead, quality, serving

LATENCY = latency.fastest, latency.fewer_bits, latency.first_token, latency.bandwidth
# The experiments that sentences are about, and what a reader calls them.
EXPERIMENTS = {
    "latency": "the latency of one request at a time",
    "batching": "how throughput grows with the batch",
    "quality": "what quantisation costs in quality",
    "serving": "how servers fare under load",
    "overhead": "what measuring itself costs",
}


def findings(requests):
    """What every machine has shown, the one in front first (`machines.each`): a list of Markdown sentences.

    Of the one in front all sentences, and what it has not measured; of the others which option is fastest.
    Of several models, the one with most configurations is described.
    """
    every = machines.each(requests)
    sentences = []
    for place, ((gpu, host), own) in enumerate(every):
        own.attrs = requests.attrs
        found = latency.fastest(own) if place else None
        found = [found] if place else _of_one(own)
        if sum(other == gpu for (other, _), _ in every) > 1:  # two checkouts on the same kind of machine
            found = [sentence and sentence.replace(f"`{gpu}`", f"`{gpu}` ({host})") for sentence in found]
        sentences += found
    return [sentence for sentence in sentences if sentence]


def _of_one(requests):
    """The sentences about the only machine in `requests`, with None for what it does not support."""
    return [
        *(sentence(requests) for sentence in LATENCY),
        batching.share_of_gain(requests),
        batching.limited(requests),
        *quality.quality_findings(requests)[:2],
        *serving.serving_findings(requests)[:2],
        overhead.cost(requests),
        latency.run_to_run(requests),
        *missing(requests),
    ]


def missing(requests):
    """One sentence per experiment that the only machine in `requests` has not measured."""
    measured = set(requests["experiment"])
    return [
        f"On `{requests['gpu'].iloc[0]}`, {words} has not been measured: "
        f"`make study EXPERIMENTS={name}` does."
        for name, words in EXPERIMENTS.items()
        if name not in measured
    ]
