"""Ask how often an option differs from itself, and how often it should: `make proof`.

The runs of each configuration in a session are dealt into two halves at random, and the two are compared
(A/A). An option of few runs that differs by chance does so in many deals, so its share of deals is held
against the band in which it lies when runs are drawn from the regression's own model.
"""

import argparse

import numpy as np
import pandas as pd

from bench.observations import store
from bench.paths import ROOT
from bench.topics import across_machines, estimates, latency

FOLDER = ROOT / "data" / "proof"
DEALS, SEED = 20, 39
BAND = 0.025, 0.5, 0.975
HALVES = [*latency.VERSIONED, "half"]


def differing(cells: pd.DataFrame, runs: pd.DataFrame, deals: int, random: np.random.Generator) -> pd.Series:
    """Return in which share of deals each configuration differs from itself, by latency.VERSIONED.

    `runs`: log (of the metric), and cell: the row of `cells` that a run belongs to. The runs of each are
    dealt into two halves at random.
    """
    keys, counts = ["cell", "half"], []
    for _ in range(deals):
        order = runs.iloc[random.permutation(len(runs))]
        half = order.groupby("cell").cumcount() % 2
        dealt = order.assign(half=half).groupby(keys)["log"].agg(["mean", "var", "size"]).reset_index()
        dealt = dealt.assign(runs=dealt["size"], squares=dealt["var"].fillna(0) * (dealt["size"] - 1))
        dealt = dealt.drop(columns=["var", "size"]).assign(least=0.0, most=0.0)
        whose = cells.loc[dealt["cell"], [*latency.VERSIONED, "measuring_session"]].reset_index(drop=True)
        model = estimates.fit_cells(dealt.join(whose), HALVES)
        firsts = [key for key in model.places if key[-1] == 0 and (*key[:-1], 1) in model.places]
        pairs = model.pairs([(model.places[key], model.places[*key[:-1], 1]) for key in firsts])
        index = pd.MultiIndex.from_tuples([key[:-1] for key in firsts], names=latency.VERSIONED)
        counts.append(pd.Series((pairs["verdict"] != estimates.EQUAL).to_numpy(), index))
    return pd.concat(counts, axis=1).mean(axis=1)


def equal_runs(runs: pd.DataFrame, studies: int, deals: int = DEALS) -> pd.DataFrame:
    """Return the A/A check of `runs` beside that of `studies` data sets drawn from the model.

    A row per host for all its options together and one per option: runs, differ (share of deals), and low,
    median, high: of BAND of the simulated shares. The row `largest k` has the k-th largest share of all
    options of all hosts.
    """
    random = np.random.default_rng(SEED)
    cells = estimates.cells(runs, latency.VERSIONED, latency.RATE)
    model = estimates.fit_cells(cells, latency.VERSIONED)
    number = cells.reset_index(names="cell").merge(
        runs.assign(measuring_session=estimates.measuring_sessions(runs)),
        on=[*latency.VERSIONED, "measuring_session"],
    )
    each = pd.DataFrame({"cell": number["cell"], "log": np.log(number[latency.RATE])})
    sd = np.sqrt(model.hosts["variance"].reindex(number["host"]).to_numpy())
    found = {"differ": differing(cells, each, deals, random)}
    for study in range(studies):
        drawn = each.assign(log=sd * random.standard_normal(len(each)))
        found[str(study)] = differing(cells, drawn, deals, random)
    options = pd.DataFrame(found)
    names = options.index.to_frame()[["backend", "option", "model", "backend_version"]].agg(" ".join, axis=1)
    hosts = options.groupby(level="host").mean()
    largest = pd.DataFrame({name: -np.sort(-options[name].to_numpy())[:5] for name in options})
    parts = {
        "all": hosts.assign(host=hosts.index, option="all"),
        "largest": largest.assign(host="all", option=[f"largest {k}" for k in range(1, 1 + len(largest))]),
        "each": options.assign(host=options.index.get_level_values("host"), option=names),
    }
    table = pd.concat(parts.values(), ignore_index=True)
    band = table[[str(study) for study in range(studies)]].quantile(BAND, axis=1).T
    band.columns = ["low", "median", "high"]
    return table[["host", "option", "differ"]].join(band)


def main() -> None:
    """Write data/proof/equal_runs.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=100, help="simulated data sets of the A/A check")
    studies = parser.parse_args().studies
    runs = across_machines.compared(store.load())
    equal_runs(runs, studies).to_csv(FOLDER / "equal_runs.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
