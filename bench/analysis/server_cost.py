"""What an engine's own server costs, one request at a time, beside the engine in process."""

import functools

import pandas as pd

from bench import naming
from bench.analysis import latency as latency_analysis
from bench.analysis import machines, statistics

COST = "ttft_s_inside ttft_s ttft_cost_s tpot_s_inside tpot_s tpot_cost_s tpot_factor minutes pairs".split()
COST += ["tpot_factor_low", "tpot_factor_high"]


def server_cost(requests):
    """What an engine's own server costs, one request at a time: one row per engine and option on the machine
    in front that was measured in process and through its server.

    Columns of medians over pairs of runs: ttft_s, tpot_s, the same in process with `_inside`, ttft_cost_s and
    tpot_cost_s (server less in process), tpot_factor (server / in process) and the interval of its median
    (tpot_factor_low and _high, empty for one pair), minutes (between the starts), pairs. Each run through the
    server (experiment `served`) stands beside the run in process that began nearest in time, because the
    memory of small machines has more than one speed.
    """
    own = machines.in_front(requests)
    both = latency_analysis.runs(own[own["experiment"].isin(["latency", "served"]) & (own["error"] == "")])
    both = both.assign(at=pd.to_datetime(both["started"], utc=True))
    served, inside = (both[both["experiment"] == name].sort_values("at") for name in ("served", "latency"))
    if served.empty or inside.empty:
        return pd.DataFrame(columns=[*latency_analysis.VERSIONED, *COST])
    inside = inside.assign(at_inside=inside["at"])
    pairs = pd.merge_asof(
        served, inside, on="at", by=latency_analysis.VERSIONED, direction="nearest", suffixes=("", "_inside")
    ).dropna(subset="tpot_s_inside")
    pairs = pairs.assign(
        ttft_cost_s=pairs["ttft_s"] - pairs["ttft_s_inside"],
        tpot_cost_s=pairs["tpot_s"] - pairs["tpot_s_inside"],
        tpot_factor=pairs["tpot_s"] / pairs["tpot_s_inside"],
        minutes=(pairs["at"] - pairs["at_inside"]).abs().dt.total_seconds() / 60,
        pairs=1,
    )
    pairs = pairs.assign(tpot_factor_low=pairs["tpot_factor"], tpot_factor_high=pairs["tpot_factor"])
    how = dict.fromkeys(COST, "median") | {"pairs": "sum"}
    how |= {f"tpot_factor_{end}": functools.partial(_end, which) for which, end in ((1, "low"), (2, "high"))}
    table = pairs.groupby(latency_analysis.VERSIONED, as_index=False).agg(how)
    return naming.named(machines.versioned(table).sort_values("tpot_factor", ignore_index=True))


def _end(which, values):
    """One end of the interval of a median over pairs of runs."""
    return statistics.median_interval(values)[which]
