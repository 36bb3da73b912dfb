"""Findings: sentences computed from the observations, each by a function that gives None where the data do not support it.

python -m bench.report.findings                the sentences on the terminal
python -m bench.report.findings README.md      the sentences and the headline figure into the marked place of a file, from the runs that git keeps
"""

from bench.analysis import latency as latency_analysis
from bench.analysis import machines
from bench.report.findings import batching as batching_findings
from bench.report.findings import latency as latency_findings
from bench.report.findings import overhead as overhead_findings
from bench.report.findings import quality as quality_findings
from bench.report.findings import serving as serving_findings


def findings(requests):
    """What the machine in focus has shown, as Markdown sentences; of several models, the one with most configurations speaks."""
    settings = latency_analysis.settings(machines.here(requests, "latency"))
    table = latency_analysis.summary(settings[0][1]) if settings else None
    said = (
        [
            sentence(table, requests)
            for sentence in (
                latency_findings.fastest,
                latency_findings.fewer_bits,
                latency_findings.first_token,
                latency_findings.bandwidth,
            )
        ]
        if settings
        else []
    )
    said += [
        batching_findings.share_of_gain(requests),
        batching_findings.limited(requests),
        *quality_findings.quality_findings(requests)[:2],
        *serving_findings.serving_findings(requests)[:2],
    ]
    said.append(
        overhead_findings.cost(requests)
        or (latency_findings.run_to_run(settings[0][1]) if settings else None)
    )
    return [sentence for sentence in said if sentence]
