"""A/A: how often one configuration, its runs dealt into two, is distinguished from itself.

No model of the scatter is supposed: the runs are those that were measured, and only their names are changed.
`python -m bench.report.tables equal_runs` prints it for the runs of this checkout.
"""

import numpy as np
import pandas as pd

from bench.analysis import comparison, latency, statistics

AT_RANDOM, BY_SITTING = "at random within each sitting", "one sitting against another"
FEWEST = 3  # runs on each side
DEALS = 100
COLUMNS = ["way", "configurations", "comparisons", "distinguished", "share", "low", "high"]


def dealt(each: pd.DataFrame, deals: int = DEALS) -> pd.DataFrame:
    """How often equal runs are significantly different, for each way of dealing those of one machine.

    `each` has one row per run and placement (`latency.runs` with strata). One row per way; columns COLUMNS:
    comparisons (deals times configurations at random; pairs of sittings), distinguished of them at 95 %, the
    share and its Clopper-Pearson interval.
    """
    each = each[each[latency.RATE] > 0]
    each = each.assign(sitting=comparison.sittings(each))
    rows = []
    for way, (configurations, verdicts) in (
        (AT_RANDOM, _at_random(each, deals)),
        (BY_SITTING, _by_sitting(each)),
    ):
        count = sum(verdict != comparison.EQUAL for verdict in verdicts)
        found = statistics.share_interval(count, len(verdicts))
        rows.append((way, configurations, len(verdicts), count, *found))
    return pd.DataFrame(rows, columns=COLUMNS)


def _at_random(each: pd.DataFrame, deals: int) -> tuple[int, list[str]]:
    """(configurations, verdicts) of `deals` random halves of every configuration with enough runs."""
    random = np.random.default_rng(1)
    runs = each.drop_duplicates("run_id")
    counts = runs.groupby(latency.VERSIONED)["run_id"].transform("size")
    chosen, verdicts = runs[counts >= 2 * FEWEST], []
    names = list(chosen[latency.VERSIONED].drop_duplicates().itertuples(index=False, name=None))
    for _ in range(deals if names else 0):
        sides = {}
        for _, own in chosen.groupby([*latency.VERSIONED, "sitting"]):
            ids = random.permutation(own["run_id"].to_numpy())
            first = random.integers(0, 2)
            sides |= {run: "ab"[(place + first) % 2] for place, run in enumerate(ids)}
        model = _fit(each.assign(half=each["run_id"].map(sides).fillna("")))
        halves = [(model.place((*name, "a")), model.place((*name, "b"))) for name in names]
        verdicts += model.pairs(halves)["verdict"].tolist()
    return len(names), verdicts


def _by_sitting(each: pd.DataFrame) -> tuple[int, list[str]]:
    """(configurations, verdicts) of every two sittings in which a configuration has enough runs, all other
    configurations left as they are: they say what the two sittings do to everybody."""
    verdicts, configurations = [], 0
    for name, own in each.groupby(latency.VERSIONED):
        counts = own.groupby("sitting")["run_id"].nunique()
        sittings = counts.index[counts >= FEWEST]
        configurations += len(sittings) > 1
        for first, second in zip(sittings[:-1], sittings[1:]):
            side = each["sitting"].map({first: "a", second: "b"})
            half = side.where(each.index.isin(own.index), "")
            found = _fit(each.assign(half=half)[half.notna()]).compare((*name, "a"), (*name, "b"))
            if not np.isnan(found["p"]):
                verdicts.append(found["verdict"])
    return configurations, verdicts


def _fit(each: pd.DataFrame) -> comparison.Fit:
    return comparison.fit(each, [*latency.VERSIONED, "half"], latency.RATE)
