"""Tables of the topic HumanEval."""

import pandas as pd

from bench.report import tables
from bench.topics import humaneval as humaneval_analysis
from llm_measured.core import columns
from llm_measured.core.columns import Column


@tables.of_machines
def humaneval(requests: pd.DataFrame) -> pd.DataFrame:
    """Solved problems of HumanEval: one row per engine and option of which all 164 answers are kept, most
    solved first, with the difference to the reference on the same problems; real weights only."""
    table = humaneval_analysis.on_default_machine(requests)
    table = table.assign(verdict=[humaneval_analysis.verdict(row) for _, row in table.iterrows()])
    return columns.shown(
        table,
        f"{columns.ENGINE} solved pass_at_1 low high verdict p_value cut failed batch_size published "
        "reference gpu model",
        solved=Column("solved"),
        pass_at_1=Column("pass@1", "%", 100),
        low=Column("95 % interval from", "%", 100),
        high=Column("to", "%", 100),
        verdict=Column("than the reference"),
        p_value=Column("p (McNemar, exact)"),
        cut=Column("answers cut"),
        failed=Column("answers that failed"),
        published=Column("published for bfloat16", "%", 100),
        reference=Column("reference"),
    )
