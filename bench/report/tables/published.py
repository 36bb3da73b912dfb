"""Tables of the topic published."""

from bench import inputs
from bench.analysis import published as published_analysis
from bench.report import columns, tables
from bench.report.columns import Column


@tables.listed
def published(requests=None):
    """The published latency study as it was printed: one row per platform and options, fastest first.

    `bench.report.findings.published.published_corrections` computes what it corrects.
    """
    table = inputs.table("published/husain_llama2_7b_latency")
    table = table.sort_values("tokens_per_s", ascending=False, ignore_index=True)
    shown = columns.of(
        "platform options gpu tokens_per_s time_s output_tokens edition source",
        options=Column("options"),
        gpu="GPU",
        tokens_per_s=Column("tokens/s"),
        time_s=Column("time", "s"),
        output_tokens=Column("output tokens"),
        edition=Column("edition"),
    )
    return columns.renamed(table, shown)


@tables.listed
def published_mbu(requests=None):
    """MBU of published 16-bit results at batch size 1: one row per result, against the datasheet's
    bandwidth, with its derivation."""
    shown = columns.of(
        "label model gpu tpot_s weight_bytes mbu derivation source",
        label=Column("system"),
        gpu="GPU",
        weight_bytes=Column("weights read", "GB", 1e-9),
        derivation=Column("derivation"),
    )
    return columns.renamed(published_analysis.published_mbu(), shown)
