"""Simulate the committed latency design and count how often its intervals hold: `make proof`.

Studies are drawn with the variances that the regression of output tokens/s finds in the committed runs, and
with no and with twice the sessions' standard deviation. Every pair of configurations of one host is equal in
truth, so an interval of the ratio should hold 1 in 95 of 100. Beside it one A/A comparison of the real runs:
those of each configuration in a session are dealt into two halves at random.
"""

import argparse

import numpy as np
import pandas as pd

from bench.observations import store
from bench.paths import ROOT
from bench.topics import estimates, latency

FOLDER = ROOT / "data" / "proof"
STUDIES, DEALS, SEED = 500, 100, 39
SESSIONS = {"as measured": 1.0, "none": 0.0, "twice": 2.0}  # the sessions' standard deviation
MET, UNMET = "in one measuring session", "never met"
COVERAGE = ["host", "pairs", "sessions", "configuration", "share", "half_width", "comparisons"]


def design(requests: pd.DataFrame) -> pd.DataFrame:
    """Return the cells (`estimates.cells`) of output tokens/s of all latency runs without failed requests."""
    runs = latency.runs(requests[requests["experiment"] == "latency"])
    runs = runs[(runs["failed"] == 0) & (runs[latency.RATE] > 0)]
    return estimates.cells(runs, latency.VERSIONED, latency.RATE)


def simulated(
    cells: pd.DataFrame, variances: dict, spread: float, random: np.random.Generator
) -> pd.DataFrame:
    """Draw one study of equal configurations: `cells` with other means and squares; the sessions' standard
    deviation is `spread` times that of `variances`."""
    runs = cells["runs"].to_numpy()
    numbers = pd.factorize(cells["measuring_session"])[0]
    session = spread * variances["session"] ** 0.5 * random.standard_normal(numbers.max() + 1)
    own = (variances["cell"] + variances["run"] / runs) ** 0.5 * random.standard_normal(len(cells))
    squares = variances["run"] * random.chisquare(np.maximum(runs - 1, 1)) * (runs > 1)
    return cells.assign(mean=session[numbers] + own, squares=squares)


def coverage(cells: pd.DataFrame) -> pd.DataFrame:
    """Count the intervals of STUDIES simulated studies that hold the truth.

    A row per host, kind of pairs and scenario for all configurations together, and one for each configuration
    (its pairs with all others); columns COVERAGE: share, half_width (median, of the log).
    """
    truth = estimates.fit_cells(cells, latency.VERSIONED)
    hosts = truth.hosts
    i, j = np.nonzero(np.triu(hosts[:, None] == hosts, 1))
    pairs = list(zip(i.tolist(), j.tolist()))
    rows = []
    for scenario, spread in SESSIONS.items():
        random, held, half = np.random.default_rng(SEED), np.zeros(len(i)), []
        for _ in range(STUDIES):
            model = estimates.fit_cells(simulated(cells, truth.variances, spread, random), latency.VERSIONED)
            ratios = model.pairs(pairs)
            held += (ratios["verdict"] == estimates.EQUAL).to_numpy()
            half.append(np.log(ratios["high"] / ratios["low"]).to_numpy() / 2)
        each = pd.DataFrame(
            {"host": hosts[i], "pairs": np.where(truth.met[i, j], MET, UNMET), "held": held / STUDIES}
        ).assign(half_width=np.median(half, axis=0), first=i, second=j)
        for (host, kind), own in each.groupby(["host", "pairs"]):
            rows.append((host, kind, scenario, "all", *_shares(own)))
            for place in np.union1d(own["first"], own["second"]):
                with_it = own[(own["first"] == place) | (own["second"] == place)]
                row = truth.table.loc[place]
                name = " ".join(row[["backend", "option", "model", "backend_version"]])
                rows.append((host, kind, scenario, name, *_shares(with_it)))
    return pd.DataFrame(rows, columns=COVERAGE)


def _shares(pairs: pd.DataFrame) -> tuple[float, float, int]:
    return pairs["held"].mean(), pairs["half_width"].median(), len(pairs) * STUDIES


def equal_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Deal the runs of each configuration into two halves at random and compare the two.

    One row per host: configurations (with two runs or more in some session), comparisons, differ (the share
    whose interval does not hold 1).
    """
    random, counts = np.random.default_rng(SEED), []
    runs = runs.assign(session=estimates.measuring_sessions(runs))
    for _ in range(DEALS):
        order = runs.assign(random=random.random(len(runs))).sort_values("random", kind="stable")
        half = order.groupby([*latency.VERSIONED, "session"], dropna=False).cumcount() % 2
        model = estimates.fit(order.assign(half=half), [*latency.VERSIONED, "half"], latency.RATE)
        firsts = [key for key in model.places if key[-1] == 0 and (*key[:-1], 1) in model.places]
        halves = [(model.places[key], model.places[*key[:-1], 1]) for key in firsts]
        verdict = model.pairs(halves)["verdict"].to_numpy()
        hosts = model.hosts[[first for first, _ in halves]]
        counts.append(pd.DataFrame({"host": hosts, "differ": verdict != estimates.EQUAL}))
    each = pd.concat(counts).groupby("host")["differ"].agg(["size", "mean"]).reset_index()
    each = each.rename(columns={"size": "comparisons", "mean": "differ"})
    return each.assign(configurations=each["comparisons"] // DEALS)


def main() -> None:
    """Write data/proof/coverage.csv and equal_runs.csv."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    requests = store.load()
    runs = latency.runs(requests[(requests["experiment"] == "latency") & (requests["weights"] == "real")])
    coverage(design(requests)).to_csv(FOLDER / "coverage.csv", index=False, float_format="%.4g")
    runs = runs[(runs["failed"] == 0) & (runs[latency.RATE] > 0)]
    equal_runs(runs).to_csv(FOLDER / "equal_runs.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
