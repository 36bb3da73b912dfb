"""Tables of the topic step time."""

import pandas as pd

from bench.analysis import machines
from bench.analysis import step_time as step_time_analysis
from bench.report import columns as columns_report
from bench.report import tables


@tables.listed
def step_time(requests):
    """The fitted step-time model per engine and option: coefficients with 95 % intervals, errors, and what limits a step."""
    named = {
        "overhead_s": ("overhead (ms)", 1e3),
        "bandwidth_bytes_per_s": ("bandwidth (GB/s)", 1e-9),
        "peak_flops_per_s": ("peak (GFLOP/s)", 1e-9),
    }
    columns = {"backend": ("engine", None), "option": ("option", None)}
    for name, (title, factor) in named.items():
        word = title.split()[0]
        columns |= {
            name: (title, factor),
            f"{name}_low": (f"{word} from", factor),
            f"{name}_high": (f"{word} to", factor),
        }
    columns |= {
        "first_limit": ("batch 1 limited by", None), "first_share": ("share of the step (%)", 100), "arithmetic_from": ("arithmetic limits from batch", 1),
        "residual": ("median error (%)", 100), "left_out": ("error of a batch left out (%)", 100), "left_out_worst": ("worst (%)", 100),
        "points": ("batches", 1), "gpu": ("device", None), "model": ("model", None),
    }  # fmt: skip
    fitted = step_time_analysis.models(machines.here(requests, "batching"))
    return columns_report.renamed(fitted if len(fitted) else pd.DataFrame(columns=list(columns)), columns)
