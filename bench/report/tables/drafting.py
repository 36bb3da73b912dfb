"""The table of speculative decoding."""

import pandas as pd

from bench.report import tables
from bench.topics import drafting, latency
from llm_measured.core import columns
from llm_measured.core.columns import Column


@tables.listed
def drafts(requests: pd.DataFrame) -> pd.DataFrame:
    """Speculative decoding: one row per machine, model, engine and option that drafts, beside the same option
    without drafts, one request at a time; the largest gain first."""
    forms = [drafting.beside_plain(rows) for rows in (requests, latency.of_sizes(requests))]
    table = pd.concat([form for form in forms if len(form)] or forms[:1], ignore_index=True)
    table = table.sort_values("ratio", ascending=False, kind="stable", ignore_index=True)
    same = [f"{row['alike']} of {row['answers']}" for _, row in table.iterrows()]
    return columns.shown(
        table.assign(alike=same),
        f"backend option plain ratio low high verdict acceptance_rate alike runs {columns.WHERE}",
        plain=Column("beside"),
        ratio=Column("tokens/s, times"),
        low=Column("95 % interval from"),
        high=Column("to"),
        alike=Column("same answers"),
    )
