"""Tables of the topic published."""

from bench import inputs
from bench.analysis import batching as batching_analysis
from bench.report import columns as columns_report
from bench.report import tables


@tables.listed
def published(requests=None):
    """The table of the published latency study, fastest first, as it was printed; see `published_findings.published_corrections`."""
    table = inputs.table("published/husain_llama2_7b_latency").sort_values(
        "tokens_per_s", ascending=False, ignore_index=True
    )
    table = table[
        ["platform", "options", "gpu", "tokens_per_s", "time_s", "output_tokens", "edition", "source"]
    ]
    return table.rename(
        columns={
            "gpu": "GPU",
            "tokens_per_s": "tokens/s",
            "time_s": "time (s)",
            "output_tokens": "output tokens",
        }
    )


@tables.listed
def published_mbu(requests=None):
    """MBU of published 16-bit results at batch size 1 against the datasheet, each with its derivation."""
    columns = {
        "label": ("system", None), "model": ("model", None), "gpu": ("GPU", None), "tpot_s": ("TPOT (ms)", 1e3), "weight_bytes": ("weights read (GB)", 1e-9),
        "mbu": ("MBU", 1), "derivation": ("derivation", None), "source": ("source", None),
    }  # fmt: skip
    return columns_report.renamed(batching_analysis.published_mbu(), columns)
