"""Tables of the topic quality."""

from bench.analysis import machines
from bench.analysis import quality as quality_analysis
from bench.machine import identity
from bench.report import columns, tables


def quality_here(requests):
    """`quality_analysis.summary` on the machine in focus."""
    return machines.focus(quality_analysis.summary(requests), identity.host())


@tables.listed
def quality(requests):
    """One row per engine and option that has been scored on the machine in focus, the fastest first; real weights only."""
    return columns.renamed(quality_here(requests), _quality_columns())


def _quality_columns():
    return {
        "backend": ("engine", None), "option": ("option", None), "output_tokens_per_s": ("output tokens/s", 1),
        "weight_bytes": ("weights read per token (MB)", 1e-6), "agreement": ("tokens as the reference's (%)", 100),
        "same_answers": ("answers the same", 1), "answers": ("answers", 1),
        "departs_first": ("same tokens before the earliest other one", 1), "departs_median": ("median over answers", 1),
        "reference_nll_nats": ("NLL of the answers (nats/token)", 1), "excess_nll_nats": ("above the reference's", 1),
        "excess_interval": ("± 95 % over prompts", 1), "perplexity": ("perplexity of the text", 1),
        "perplexity_ratio": ("times the reference's", 1), "gpu": ("device", None), "model": ("model", None),
    }  # fmt: skip
