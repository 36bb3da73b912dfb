"""Tables of the topic placement: what the place of a machine's processors does to a decode step."""

import pandas as pd

from bench import columns
from bench.analysis import placement as placement_analysis
from bench.columns import Column
from bench.report import tables


@tables.of_machines
def placement(requests: pd.DataFrame) -> pd.DataFrame:
    """TPOT with the processors apart over TPOT with them near each other: one row per configuration of which
    three runs met both placements."""
    return columns.shown(
        placement_analysis.effects(requests),
        "backend option model ratio low high runs near apart",
        ratio=Column("TPOT, apart over near"),
        low=Column("from"),
        high=Column("to"),
        near=Column("requests near"),
        apart=Column("requests apart"),
    )
