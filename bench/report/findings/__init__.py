"""Findings: sentences computed from the observations, each by a function that returns None where the data do
not support it.

    python -m bench.report.findings               the sentences on the terminal
    python -m bench.report.findings README.md     the sentences and the headline figure into the marked place
                                                  of a file, from the runs that git keeps
"""

from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.report.findings import batching, latency, overhead, quality, serving

LATENCY = latency.fastest, latency.fewer_bits, latency.first_token, latency.bandwidth


def findings(requests):
    """What the machine in focus has shown: a list of Markdown sentences.

    Of several models, the one with most configurations is described.
    """
    settings = latency_analysis.settings(machines.here(requests, "latency"))
    sentences = []
    if settings:
        table = latency_analysis.summary(settings[0][1])
        sentences += [sentence(table, requests) for sentence in LATENCY]
    sentences += [
        batching.share_of_gain(requests),
        batching.limited(requests),
        *quality.quality_findings(requests)[:2],
        *serving.serving_findings(requests)[:2],
    ]
    cost = overhead.cost(requests)
    sentences.append(cost or (latency.run_to_run(settings[0][1]) if settings else None))
    return [sentence for sentence in sentences if sentence]
