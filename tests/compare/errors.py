"""How often a comparison errs: `make compare-proof` writes data/proof/compare.csv, run from a checkout.

Pairs of equals (A/A): simulated servers, and our own reruns of one setting on every host. A true difference is
made by dividing every time of B and multiplying its rates. A pair is called different where any of its figures
is; `held` is the share of the first figure's intervals that hold the true ratio.
"""

import itertools
import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
import pandas as pd

from llm_measured.compare import conditions, reading, report
from llm_measured.compare.reading import TOKENS, Level
from llm_measured.compare.scatter import SETTING
from llm_measured.core import files

ROOT = Path(__file__).parents[2]
OUT = ROOT / "data" / "proof" / "compare.csv"
SEED, PAIRS, RULE, IN_FLIGHT = 44, 400, 0.05, 16
EFFECTS = 1.0, 1.05, 1.1
SCATTERS = 0.01, 0.03, 0.06  # standard deviation of the logarithm between two runs of a simulated server
COLUMNS = "pairs runs requests effect pairs_compared told wrong held said_by_5_percent".split()


def faster(level, factor):
    """A copy of `level` in which everything went `factor` times as fast."""
    copy = deepcopy(level)
    for (metric, statistic), value in copy.values.items():
        rate = report.QUANTITIES[metric].unit != "s"
        copy.values[metric, statistic] = value * factor if rate else value / factor
    for metric, values in copy.samples.items():
        if metric != TOKENS:
            copy.samples[metric] = values / factor
        elif copy.spans is None:
            copy.samples[metric] = values * factor
    if copy.spans is not None:
        copy.spans = copy.spans / factor
    return copy


def server(random, requests, scatter):
    """One simulated run of `requests`, slow and fast as a whole by `scatter`; times vary from request to
    request and drift within the run, as those of real servers do."""
    drift = np.cumsum(random.normal(0, 0.01, requests))
    slow = np.exp(random.normal(0, scatter) + drift - drift.mean())
    ttft = 0.2 * slow * random.lognormal(0, 0.5, requests)
    tokens = random.integers(100, 300, requests)
    e2e = ttft + 0.02 * slow * random.lognormal(0, 0.1, requests) * (tokens - 1)
    sent, free = np.zeros(requests), np.zeros(IN_FLIGHT)
    for k in range(requests):
        first = free.argmin()
        sent[k] = free[first]
        free[first] += e2e[k]
    stated = dict.fromkeys((*reading.TEXTS, *reading.NUMBERS, *conditions.MEANING))
    stated |= {"model": "simulated", "gpu": "RTX 3090", "tool": "simulated", "concurrency": float(IN_FLIGHT)}
    stated |= {"failed": 0.0, "failed_share": 0.0, "late_share": None, "streamed": True}
    level = Level("simulated", "simulated", stated, {}, requests)
    table = pd.DataFrame(
        {"sent_s": sent, "ttft_s": ttft, "e2e_s": e2e, "output_tokens": tokens, "prompt_tokens": 512}
    ).reindex(columns=[*reading.REQUESTS], fill_value=np.nan)
    reading.from_requests(level, table)
    return level


def simulated(runs, requests, scatter, pairs=PAIRS):
    """Pairs of simulated servers that are equal in truth; each scatter draws its own, so that one seed's
    luck is not told three times."""
    random = np.random.default_rng([SEED, runs, round(1000 * scatter)])
    for _ in range(pairs):
        levels = [server(random, requests, scatter) for _ in range(2 * runs)]
        yield levels[:runs], levels[runs:]


def own(runs):
    """Pairs of `runs` against `runs` of our own latency runs of each setting, dealt at random."""
    settings = {}
    for path in sorted(ROOT.glob("_llama-inference/*/latency-*.csv")):
        levels = reading.read(path)
        if levels and not any(level.conditions["failed_share"] for level in levels):
            key = " ".join(str(levels[0].conditions[name]) for name in SETTING)
            settings.setdefault(f"{key} {levels[0].requests}", []).append(levels)
    random = np.random.default_rng(SEED)
    for repeats in settings.values():
        order = [repeats[k] for k in random.permutation(len(repeats))]
        for first in range(0, len(order) - 2 * runs + 1, 2 * runs):
            dealt = order[first : first + 2 * runs]
            yield list(itertools.chain(*dealt[:runs])), list(itertools.chain(*dealt[runs:]))


def outcome(a, b, effect):
    """What is said of a pair whose true ratio is `effect`; None where no figure of it can be tested."""
    levels = [report.level_of(pair, [], report.MARGIN) for pair in conditions.match(a, b)[0]]
    report.adjust(levels, report.MARGIN)
    rows = [row for level in levels for row in level["rows"] if row["estimate"]]
    if not rows:
        return None
    said = {row["verdict"] for row in rows}
    first = next(row for row in rows if row["primary"])
    tokens = [row for row in rows if row["metric"] == TOKENS]
    return {
        "faster": report.FASTER in said,
        "slower": report.SLOWER in said,
        "held": first["low"] <= effect <= first["high"],
        "rule": any(abs(row["ratio"] - 1) > RULE for row in tokens),
    }


def counted(name, runs, requests, pairs):
    """A row of COLUMNS for each of EFFECTS."""
    for effect in EFFECTS:
        said = [outcome(a, [faster(level, effect) for level in b], effect) for a, b in pairs]
        usable = pd.DataFrame([one for one in said if one is not None])
        told = usable["faster"] | usable["slower"] if effect == 1 else usable["faster"] & ~usable["slower"]
        shares = told.mean(), usable["slower"].mean(), usable["held"].mean(), usable["rule"].mean()
        row = [name, runs, requests, effect, len(usable), *(round(float(share), 4) for share in shares)]
        print(*row, sep=", ", flush=True)
        yield dict(zip(COLUMNS, row, strict=True))


def main(pairs=PAIRS):
    """Write data/proof/compare.csv."""
    rows = []
    for runs in (3, 1):
        rows += counted("own latency runs, all hosts", runs, "9", list(own(runs)))
        for scatter in SCATTERS:
            name = f"simulated servers, {scatter:.0%} between runs"
            rows += counted(name, runs, "200", list(simulated(runs, 200, scatter, pairs)))
    files.write_whole(OUT, files.csv_text(pd.DataFrame(rows, columns=COLUMNS)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
