"""Ask how often an option differs from itself, and how often it should: `make proof`.

The runs of each configuration in a session are dealt into two halves at random, and the two are compared
(A/A). An option of few runs that differs by chance does so in many deals, so its share of deals is held
against the band in which it lies when runs are drawn from the regression's own model.
"""

import numpy as np
import pandas as pd

from bench.observations import store
from bench.observations.peaks import measuring_sessions
from bench.paths import ROOT
from bench.topics import across_machines, estimates, latency

FILE = ROOT / "data" / "proof" / "equal_runs.csv"
STUDIES, DEALS, SEED, LARGEST = 60, 8, 39, 5
BAND = 0.025, 0.5, 0.975


def differing(runs: pd.DataFrame, deals: int, random: np.random.Generator) -> pd.Series:
    """Return in which share of deals into two halves each configuration (latency.VERSIONED) of `runs` (with
    measuring_session) differs from itself."""
    counts = []
    for _ in range(deals):
        order = runs.iloc[random.permutation(len(runs))]
        half = order.groupby([*latency.VERSIONED, "measuring_session"]).cumcount() % 2
        model = estimates.fit(order.assign(half=half), [*latency.VERSIONED, "half"], latency.RATE)
        firsts = [key for key in model.places if key[-1] == 0 and (*key[:-1], 1) in model.places]
        pairs = model.pairs([(model.places[key], model.places[*key[:-1], 1]) for key in firsts])
        index = pd.MultiIndex.from_tuples([key[:-1] for key in firsts], names=latency.VERSIONED)
        counts.append(pd.Series((pairs["verdict"] != estimates.EQUAL).to_numpy(), index))
    return pd.concat(counts, axis=1).mean(axis=1)


def equal_runs(runs: pd.DataFrame, studies: int = STUDIES, deals: int = DEALS) -> pd.DataFrame:
    """Return the A/A check of `runs` beside that of `studies` data sets drawn from the model.

    A data set has the same runs, deals and sessions; the variance of each option is drawn from what its
    freedom leaves open. Rows: a host with all its options, an option (its name) on all its hosts, one on one
    host, and the LARGEST shares of these last; columns host, option, differ (share of deals) and low, median
    and high, of BAND of the simulated shares.
    """
    random = np.random.default_rng(SEED)
    runs = runs.assign(measuring_session=measuring_sessions(runs))
    model = estimates.fit(runs, latency.VERSIONED, latency.RATE)
    rows = runs[latency.VERSIONED].merge(model.table, "left", latency.VERSIONED)
    options = rows.groupby(estimates.OPTION)
    freedom, option = options["freedom"].first(), options.ngroup()
    shares = {"differ": differing(runs, deals, random)}
    for study in range(studies):
        variance = rows["variance"] * (freedom / random.chisquare(freedom)).to_numpy()[option]
        noise = np.exp(np.sqrt(variance.to_numpy()) * random.standard_normal(len(runs)))
        shares[str(study)] = differing(runs.assign(**{latency.RATE: noise}), deals, random)
    each, numbers = pd.DataFrame(shares).reset_index(), list(shares)
    each["option"] = each[["backend", "option", "model", "backend_version"]].agg(" ".join, axis=1)
    largest = each[numbers].apply(lambda own: -np.sort(-own.to_numpy())[:LARGEST])
    parts = [
        each.groupby("host", as_index=False)[numbers].mean().assign(option="all"),
        largest.assign(host="all", option=[f"largest {k + 1}" for k in largest.index]),
        each.groupby("option", as_index=False)[numbers].mean().assign(host="all"),
        each,
    ]
    table = pd.concat(parts, ignore_index=True)
    band = table[[str(study) for study in range(studies)]].quantile(BAND, axis=1).T
    return table[["host", "option", "differ"]].join(band.set_axis(["low", "median", "high"], axis=1))


if __name__ == "__main__":
    equal_runs(across_machines.compared(store.load())).to_csv(FILE, index=False, float_format="%.4g")
