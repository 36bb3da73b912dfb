"""What an engine's own server costs, one request at a time, beside the engine in process."""

import numpy as np
import pandas as pd
from scipy import optimize

from bench.analysis import estimates, machines
from bench.analysis import latency as latency_analysis
from llm_measured.core import naming

COST = ["ttft_s_inside", "ttft_s", "ttft_cost_s", "tpot_s_inside", "tpot_s", "tpot_cost_s", "tpot_factor"]
COST += ["minutes", "pairs", "tpot_factor_low", "tpot_factor_high"]


def server_cost(requests: pd.DataFrame) -> pd.DataFrame:
    """What an engine's own server costs, one request at a time: one row per engine and option of the
    default machine that was measured in process and through its server.

    Columns of medians over pairs of runs: ttft_s, tpot_s, the same in process with `_inside`, ttft_cost_s and
    tpot_cost_s (server less in process); tpot_factor (server / in process, adjusted mean over pairs:
    `adjusted.means`) with its 95 % interval (tpot_factor_low and _high), minutes (median between the starts),
    pairs. Each run through the server (experiment `served`) stands beside a run in process that began near it
    in time, because machines have good hours and bad ones.
    """
    own = machines.default_machine(requests)
    both = latency_analysis.runs(own[own["experiment"].isin(["latency", "served"]) & (own["error"] == "")])
    both = both[both["tpot_s"] > 0].assign(at=pd.to_datetime(both["started"], utc=True))
    pairs = _pairs(both)
    if pairs.empty:
        return pd.DataFrame(columns=[*latency_analysis.VERSIONED, *COST])
    pairs = pairs.assign(
        ttft_cost_s=pairs["ttft_s"] - pairs["ttft_s_inside"],
        tpot_cost_s=pairs["tpot_s"] - pairs["tpot_s_inside"],
        tpot_factor=pairs["tpot_s"] / pairs["tpot_s_inside"],
        minutes=(pairs["at"] - pairs["at_inside"]).abs().dt.total_seconds() / 60,
        pairs=1,
    )
    keys = latency_analysis.VERSIONED
    adjusted_names = ["tpot_factor", "tpot_factor_low", "tpot_factor_high"]
    medians = [name for name in COST if name not in adjusted_names]
    table = pairs.groupby(keys, as_index=False).agg(dict.fromkeys(medians, "median") | {"pairs": "sum"})
    factors = estimates.within_runs(pairs, keys, "tpot_factor")[[*keys, *estimates.INTERVAL]]
    table = table.merge(factors.set_axis([*keys, *adjusted_names], axis=1), on=keys)[[*keys, *COST]]
    return naming.named(machines.versioned(table).sort_values("tpot_factor", ignore_index=True))


def _pairs(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs through the server beside runs in process of the same configuration and version, whose columns end
    in `_inside`: each run in one pair at most, so that all pairs together are the fewest minutes apart (the
    assignment problem); what is left of the longer side has no partner."""
    rows = []
    for _, own in runs.groupby(latency_analysis.VERSIONED):
        served, inside = (own[own["experiment"] == name] for name in ("served", "latency"))
        if served.empty or inside.empty:
            continue
        when = [(each["at"] - runs["at"].min()).dt.total_seconds().to_numpy() for each in (served, inside)]
        first, second = optimize.linear_sum_assignment(np.abs(np.subtract.outer(*when)))
        beside = inside.iloc[second][["ttft_s", "tpot_s", "at"]].add_suffix("_inside")
        rows.append(served.iloc[first].assign(**{name: beside[name].to_numpy() for name in beside}))
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()
