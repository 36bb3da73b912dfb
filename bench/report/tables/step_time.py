"""Tables of the topic step time."""

import pandas as pd

from bench.analysis import machines
from bench.analysis import step_time as step_time_analysis
from bench.report import tables
from llm_measured.core import columns
from llm_measured.core.columns import Column

COEFFICIENTS = {
    "overhead_s": Column("overhead", "ms", 1e3),
    "bandwidth_bytes_per_s": Column("bandwidth", "GB/s", 1e-9),
    "peak_flops_per_s": Column("peak", "GFLOP/s", 1e-9),
}


@tables.of_machines
def step_time(requests: pd.DataFrame) -> pd.DataFrame:
    """The fitted step-time model: one row per engine and option; coefficients with 95 % intervals over
    resampled batches, what limits a step at batch size 1 and its share of it (open where resamples disagree),
    and errors."""
    shown = COEFFICIENTS | {
        "first_limit": Column("batch 1 limited by"),
        "first_share": Column("share of the step", "%", 100),
        "arithmetic_from": Column("arithmetic limits from batch"),
        "residual": Column("median error", "%", 100),
        "left_out": Column("error of a batch left out", "%", 100),
        "left_out_worst": Column("worst", "%", 100),
        "points": Column("batches"),
    }
    for name, fitted in COEFFICIENTS.items():
        for end, word in (("low", "from"), ("high", "to")):
            shown[f"{name}_{end}"] = Column(f"{fitted.title} {word}", factor=fitted.factor)
    shown = columns.of(columns.ENGINE) | shown | columns.of("gpu model")
    fitted = step_time_analysis.models(machines.on_default_machine(requests, "batching"))
    if fitted.empty:
        return columns.renamed(pd.DataFrame(columns=list(shown)), shown)
    open_ = ~fitted["first_decided"]
    fitted = fitted.assign(first_limit=fitted["first_limit"].mask(open_, "open"))
    return columns.renamed(fitted.assign(first_share=fitted["first_share"].mask(open_)), shown)
