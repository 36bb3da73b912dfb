"""Whether the verdicts on levels of load and on placements hold: `python -m bench.analysis.serving_proof`.

The truth is known where servers and machines are made up. Writes data/proof/overload.csv (how often a
server is called overloaded), data/proof/shares.csv (how often the bounds of a share over runs hold) and
data/proof/placement.csv (how often a machine's probes are split in two); exits with 1 where a promise is
broken.
"""

import argparse
import heapq
import itertools
import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench.analysis import levels, shares
from bench.observations import placement
from bench.paths import ROOT

FOLDER = ROOT / "data" / "proof"
ANSWERS_S = 10.0, 30.0, 60.0
RATES = 1.0, 4.0, 16.0  # requests/s
FIXED, VARIED = "fixed", "log-normal"
SIGMA = 0.5  # of the logarithm of VARIED answer times
FREE, SLOTS, SHARED = "no contention", "slots", "shared processor"
LOAD = 1.2  # arrivals over what a server with contention can do
FALSE_ALARMS, SEEN = 0.01, 0.99  # promised: at most, at least
CORRELATIONS = 0.0, 0.05, 0.2
COVERED = 0.93  # promised: at least
MACHINES = 200
SPLIT = 0.05  # promised: at most


def overload(seeds: int) -> pd.DataFrame:
    """How often simulated open loops of the default length are called overloaded.

    One row per kind of server, spread of answer times, answer time and rate; columns server, answers,
    answer_s, request_rate, requests, lasts_s, load (arrivals over capacity; empty without contention), seeds,
    overloaded (share).
    """
    found = []
    for server, spread in itertools.product((FREE, SLOTS, SHARED), (FIXED, VARIED)):
        for answer_s, rate in itertools.product(ANSWERS_S, RATES):
            requests = levels.requests_for("open", rate, 90, answer_s)
            loops = (loop(server, spread, answer_s, rate, requests, seed) for seed in range(seeds))
            found.append({
                "server": server, "answers": spread, "answer_s": answer_s, "request_rate": rate,
                "requests": requests, "lasts_s": round(requests / rate, 1),
                "load": np.nan if server == FREE else LOAD, "seeds": seeds,
                "overloaded": np.mean([levels.overloaded(rows) for rows in loops]),
            })  # fmt: skip
    return pd.DataFrame(found)


def loop(server: str, spread: str, answer_s: float, rate: float, requests: int, seed: int) -> pd.DataFrame:
    """One open loop of Poisson arrivals as the load client would have seen it: one row per request.

    A server of SLOTS answers so many requests at once, each in its own time, first come, first served; a
    SHARED one divides what it can do among all that have come. Alone an answer takes `answer_s` (median).
    """
    random = np.random.default_rng(seed)
    sent = np.cumsum(random.exponential(1 / rate, requests))
    alone = np.full(requests, answer_s)
    if spread == VARIED:
        alone *= np.exp(SIGMA * random.standard_normal(requests))
    if server == FREE:
        e2e = alone
    else:
        at_once = rate * alone.mean() / LOAD  # requests whose answers the server can write side by side
        e2e = (_slots if server == SLOTS else _shared)(sent, alone, max(float(at_once), 1.0))
    return pd.DataFrame({
        "request_rate": rate, "concurrency": np.nan, "sent_s": sent, "late_s": 0.0, "connect_s": 0.0,
        "ttft_s": e2e / 10, "e2e_s": e2e, "output_tokens": 100, "error": "",
    })  # fmt: skip


def _slots(sent: np.ndarray, alone: np.ndarray, at_once: float) -> np.ndarray:
    """E2E where `at_once` requests, rounded down, are answered side by side and the others wait."""
    free, e2e = [0.0] * int(at_once), np.empty(len(sent))
    for k, (came, takes) in enumerate(zip(sent, alone)):
        ended = max(came, free[0]) + takes
        heapq.heapreplace(free, ended)
        e2e[k] = ended - came
    return e2e


def _shared(sent: np.ndarray, alone: np.ndarray, at_once: float) -> np.ndarray:
    """E2E where all that have come are answered side by side, as quickly as alone up to `at_once` of them and
    slower in proportion beyond."""
    now = done = 0.0  # the clock, and the seconds of work that each request in the server has had so far
    within, e2e, k = [], np.empty(len(sent)), 0
    while within or k < len(sent):
        pace = min(1.0, at_once / len(within)) if within else 1.0
        ends = now + (within[0][0] - done) / pace if within else np.inf
        comes = sent[k] if k < len(sent) else np.inf
        done += (min(ends, comes) - now) * pace if within else 0.0
        now = min(ends, comes)
        if ends <= comes:
            _, request = heapq.heappop(within)
            e2e[request] = now - sent[request]
        else:
            heapq.heappush(within, (done + alone[k], k))
            k += 1
    return e2e


# Levels like those of the first machine, of three runs or more, for fewer have no bounds: the runs of each,
# requests of a run that count (the fewest of the default), and the share within the objectives.
DESIGN = [(3, 64, share) for share in (0.999, 0.995, 0.99, 0.98, 0.95, 0.9, 0.8, 0.7)] * 2 + [
    (runs, 64, share) for runs in (4, 6) for share in (0.99, 0.95, 0.9)
]


def covered(studies: int, design: Sequence[tuple[int, int, float]] = DESIGN) -> pd.DataFrame:
    """How often the bounds of a share over runs hold the truth in simulated studies of `design`: [(runs,
    requests of each that count, true share)] of the levels of one machine.

    One row per correlation of the requests of one run; columns correlation, levels, studies, covered (share
    of all bounds), below and above (shares of true values beyond the lower and the upper bound),
    binomial (covered by Clopper and Pearson's over all requests).
    """
    found = []
    for correlation in CORRELATIONS:
        random, inside = np.random.default_rng(1), []
        for _ in range(studies):
            study = [_hits(random, *level, correlation) for level in design]
            alike = shares.correlation(study)
            for (_, _, share), runs in zip(design, study):
                _, low, high = shares.interval(tuple(runs), alike)
                pooled = shares.interval(tuple(runs), 0.0)
                inside.append((share < low, share > high, pooled[1] <= share <= pooled[2]))
        below, above, binomial = np.mean(inside, axis=0)
        found.append({
            "correlation": correlation, "levels": len(design), "studies": studies,
            "covered": 1 - below - above, "below": below, "above": above, "binomial": binomial,
        })  # fmt: skip
    return pd.DataFrame(found)


def _hits(
    random: np.random.Generator, runs: int, requests: int, share: float, correlation: float
) -> list[tuple[int, int]]:
    """The (hits, requests) of so many beta-binomial runs."""
    if correlation:
        spread = 1 / correlation - 1
        share = random.beta(share * spread, (1 - share) * spread, runs)
    return [(int(hits), requests) for hits in random.binomial(requests, share, runs)]


SHAPES = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "disturbed": lambda random, shape: 1 - random.exponential(size=shape),
    "skewed": lambda random, shape: (random.gamma(2, size=shape) - 2) / np.sqrt(2),
    "flat": lambda random, shape: random.uniform(-(3**0.5), 3**0.5, shape),
}
TWO = "two states"


def placements() -> pd.DataFrame:
    """How often the probes of MACHINES simulated machines are split in two: one row per shape of a single
    state, number of runs and correlation of the ten probes of a run, and those of TWO.

    Columns shape, runs, correlation (empty for two states, whose probes flip with a chance of a tenth),
    machines, split (share).
    """
    found = []
    for shape, count in itertools.product([*SHAPES, TWO], (3, 12, 40)):
        for correlation in (0.0, 0.3, 0.6) if shape in SHAPES else (np.nan,):
            random = np.random.default_rng(count)
            drawn = [probes(random, shape, count, correlation) for _ in range(MACHINES)]
            split = np.mean([placement.split(each) is not None for each in drawn])
            found.append((shape, count, correlation, MACHINES, split))
    return pd.DataFrame(found, columns=["shape", "runs", "correlation", "machines", "split"])


def probes(random: np.random.Generator, shape: str, runs: int, correlation: float) -> list[np.ndarray]:
    """Ten bandwidth probes, bytes/s, of each run of a machine with one state (of SHAPES) or TWO; one state
    scatters by an eighth, as on the machine that scatters most, two by a twentieth, 1.5 times apart."""
    if shape == TWO:
        moved = np.cumsum(random.random((runs, 10)) < 0.1, axis=1) + random.integers(0, 2, (runs, 1))
        return list(48e9 * 1.5 ** (moved % 2) * np.exp(random.standard_normal((runs, 10)) / 20))
    common = random.standard_normal((runs, 1)) * np.sqrt(correlation)
    own = SHAPES[shape](random, (runs, 10)) * np.sqrt(1 - correlation)
    return list(50e9 * np.exp((common + own) / 8))


def broken(loops: pd.DataFrame, bounds: pd.DataFrame, splits: pd.DataFrame) -> list[str]:
    """What is not as promised of the tables of `overload`, `covered` and `placements`: a sentence each."""
    free = loops["server"] == FREE
    wrong = loops[np.where(free, loops["overloaded"] > FALSE_ALARMS, loops["overloaded"] < SEEN)]
    sentences = [
        f"Server with {row['server']}, {row['answers']} answers of {row['answer_s']:g} s at "
        f"{row['request_rate']:g} requests/s: overloaded in {row['overloaded']:.1%}."
        for _, row in wrong.iterrows()
    ]
    sentences += [
        f"Shares over runs with correlation {row['correlation']:g} are covered in {row['covered']:.1%}."
        for _, row in bounds[bounds["covered"] < COVERED].iterrows()
    ]
    sentences += [
        f"Machines with one state ({row['shape']}, {row['runs']} runs, correlation {row['correlation']:g}) "
        f"are split in {row['split']:.1%}."
        for _, row in splits[(splits["shape"] != TWO) & (splits["split"] > SPLIT)].iterrows()
    ]
    return sentences


def load(name: str) -> pd.DataFrame:
    """A committed table: `overload`, `shares` or `placement`."""
    return pd.read_csv(FOLDER / f"{name}.csv")


def main() -> int:
    """Simulate, write the three tables, print what is broken; the exit status is 1 where anything is."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.analysis.serving_proof", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=500, help="open loops per row (default: 500)")
    parser.add_argument("--studies", type=int, default=1000, help="studies of shares per row (default: 1000)")
    chosen = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = {
        "placement": placements,
        "shares": lambda: covered(chosen.studies),
        "overload": lambda: overload(chosen.seeds),
    }
    tables = {name: make().round(4) for name, make in made.items()}
    for name, table in tables.items():
        table.to_csv(FOLDER / f"{name}.csv", index=False, lineterminator="\n")
    wrong = broken(tables["overload"], tables["shares"], tables["placement"])
    print("\n".join(wrong) or "Overload, shares over runs and placements hold as promised.")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
