"""Tables of the topic overhead."""

from bench.analysis import latency as latency_analysis
from bench.report import columns as columns_report
from bench.report import tables


@tables.listed
def overhead(requests):
    """What measuring costs per engine and option: the median over pairs of harness / own loop - 1, in percent."""
    columns = {
        "backend": ("engine", None),
        "option": ("option", None),
        "pairs": ("pairs", 1),
        "median": ("cost, median (%)", 100),
    }
    columns |= {
        "low": ("95 % interval from (%)", 100),
        "high": ("to (%)", 100),
        "gpu": ("device", None),
        "model": ("model", None),
    }
    return columns_report.renamed(latency_analysis.overhead_summary(requests), columns)
