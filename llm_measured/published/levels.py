"""Rows of the observatory in the audit's own words: one load level for each row, so that what the audit knows
of rates, times and percentiles is computed there and not a second time here."""

import numpy as np
import pandas as pd

from llm_measured.audit import frame
from llm_measured.published import schema


def audited(rows: pd.DataFrame, derived: pd.DataFrame, given: pd.Series, made: pd.Series) -> frame.Audited:
    """`rows` as levels of one audited file, in the same order and with the same index; `given` and `made` are
    mean tokens of prompt and answer. Times in seconds, the rate of all accelerators together.

    A length that is a maximum is no mean, so it is left empty, and so is what a rate counts that was measured
    for a prompt or a batch alone.
    """
    mean = ~rows["lengths"].isin(["max", "mixed"])
    levels = {
        "level": rows.index,
        "name": rows["source_file"],
        "model": rows["checkpoint_raw"],
        "gpu": rows["accelerator_raw"],
        "engine": rows["engine"],
        "weights": rows["weights_format"],
        "tensor_parallel": rows["accelerators"],
        "batch_size": rows["batch"],
        "concurrency": rows["concurrency"].fillna(
            pd.Series(np.where(rows["workload"] == "single", 1.0, np.nan), index=rows.index)
        ),
        "request_rate": rows["request_rate"],
        "prompt_tokens": given.where(mean),
        "output_tokens": made.where(mean),
        "requests": rows["requests"],
        "failed": rows["failed"],
        "duration_s": rows["duration_s"],
        "output_tokens_per_s": derived["output_tokens_per_s"],
        "power_w": rows["power_w"],
    }
    levels |= {
        f"{time}_{statistic}_s": rows[f"{time}_{statistic}_ms"] / 1000
        for time in schema.TIMES
        for statistic in schema.STATISTICS
    }
    levels |= {f"ttft_{end}_s": rows[f"ttft_{end}_ms"] / 1000 for end in ("min", "max")}
    return frame.make("observatory", "observatory", pd.DataFrame(levels, index=rows.index))
