"""How often a comparison errs: `make compare-proof` writes data/proof/compare.csv, run from a checkout.

Pairs of equals (A/A): our own reruns of one setting on every host, three against three and one against one;
published reruns; simulated servers. A true difference is made by dividing every time of B by 1.1 or 1.2 and
multiplying its rate. A pair is called different where any of its figures is called faster or slower, and a
difference is told where that is so in the right direction alone. Beside it: what "more than 5 %" says of
output tokens/s of the same pairs.
"""

import argparse
import itertools
import json
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from llm_measured.compare import conditions, reading, report
from llm_measured.compare.reading import TOKENS, Level
from llm_measured.compare.scatter import SETTING
from llm_measured.core import files

ROOT = Path(__file__).parents[2]
OUT = ROOT / "data" / "proof" / "compare.csv"
RAW = ROOT / "data" / "observatory" / "raw" / "iog-vllm" / "iog-vllm.tar.xz"
SEED, SIMULATED, DEALS, RULE = 44, 200, 1, 0.05
EFFECTS = 1.0, 1.1, 1.2
# Standard deviation of the logarithm between two runs of a simulated server: as committed reruns scatter.
SCATTERS = 0.01, 0.03
SWEEP, SWEEPS = (
    (1, 2, 4, 8, 16, 32, 64, 128),
    100,
)  # requests in flight of the levels of a sweep; pairs of sweeps
COLUMNS = "pairs runs requests effect pairs_compared told wrong said_by_5_percent tokens_told".split()


def faster(level: Level, factor: float) -> Level:
    """A copy of `level` in which everything went `factor` times as fast."""
    copy = deepcopy(level)
    for (metric, statistic), value in copy.values.items():
        copy.values[metric, statistic] = value * factor if metric == TOKENS else value / factor
    for metric, values in copy.samples.items():
        of_rates = metric == TOKENS and copy.spans is None
        if metric != TOKENS:
            copy.samples[metric] = values / factor
        elif of_rates:
            copy.samples[metric] = values * factor
    if copy.spans is not None:
        copy.spans = copy.spans / factor
    return copy


def server(random: np.random.Generator, requests: int, scatter: float, in_flight: int = 16) -> Level:
    """One simulated run of `requests` with so many in flight, slow and fast as a whole by `scatter`; times
    vary from request to request and drift within the run, as those of real servers do."""
    drift = np.cumsum(random.normal(0, 0.01, requests))
    slow = np.exp(random.normal(0, scatter) + drift - drift.mean())
    ttft = 0.2 * slow * random.lognormal(0, 0.5, requests)
    tpot = 0.02 * slow * random.lognormal(0, 0.1, requests)
    tokens = random.integers(100, 300, requests)
    e2e = ttft + tpot * (tokens - 1)
    sent = np.zeros(requests)
    free = np.zeros(in_flight)
    for k in range(requests):
        place = free.argmin()
        sent[k] = free[place]
        free[place] += e2e[k]
    stated = dict.fromkeys((*reading.TEXTS, *reading.NUMBERS, *conditions.MEANING, "device", "devices"))
    stated |= {"model": "simulated", "gpu": "RTX 3090", "tool": "simulated", "concurrency": float(in_flight)}
    level = Level("simulated", "simulated", stated, {}, requests)
    table = pd.DataFrame(
        {"sent_s": sent, "ttft_s": ttft, "e2e_s": e2e, "output_tokens": tokens, "prompt_tokens": 512}
    ).reindex(columns=[*reading.REQUESTS], fill_value=np.nan)
    reading.from_requests(level, table)
    stated |= {"failed_share": 0.0, "late_share": None, "streamed": True}
    return level


def outcome(a: Sequence[Level], b: Sequence[Level]) -> dict[str, bool] | None:
    """What is said of a pair: `faster`, `slower` (of any figure), `tokens` (of output tokens/s), `rule` (its
    ratio is more than 5 % from 1); None where no figure of it can be tested."""
    levels = [report.level_of(pair, [], report.MARGIN) for pair in conditions.match(a, b)[0]]
    report.adjust(levels, report.MARGIN)
    rows = [row for level in levels for row in level["rows"]]
    if not any(row["estimate"] for row in rows):
        return None
    tokens = [row for row in rows if row["metric"] == TOKENS]
    said = {row["verdict"] for row in rows}
    return {
        "faster": report.FASTER in said,
        "slower": report.SLOWER in said,
        "tokens": any(row["verdict"] == report.FASTER for row in tokens),
        "rule": any(abs(row["ratio"] - 1) > RULE for row in tokens),
    }


def own(experiment: str, runs: int) -> Iterator[tuple[list[Level], list[Level]]]:
    """Pairs of `runs` against `runs` reruns of each setting, dealt at random."""
    settings: dict[str, dict[str, list[Level]]] = {}
    for path in sorted(ROOT.glob(f"_llama-inference/*/{experiment}-*.csv")):
        levels = _read(path)
        if any(level.conditions["failed_share"] for level in levels) or not levels:
            continue
        key = " ".join(str(levels[0].conditions[name]) for name in SETTING)
        load = sorted((level.conditions["concurrency"] or 0, level.requests) for level in levels)
        settings.setdefault(f"{key} {load}", {})[str(path)] = levels
    random = np.random.default_rng(SEED)
    for repeats in settings.values():
        names = list(repeats)
        for _ in range(DEALS):
            order = list(random.permutation(names))
            for start in range(0, len(order) - 2 * runs + 1, 2 * runs):
                dealt = [repeats[name] for name in order[start : start + 2 * runs]]
                yield list(itertools.chain(*dealt[:runs])), list(itertools.chain(*dealt[runs:]))


@cache
def _read(path: Path) -> list[Level]:
    return reading.read(path)


def published() -> Iterator[tuple[list[Level], list[Level]]]:
    """Pairs of published runs of one setting a quarter of an hour apart: the files of iog-vllm that hold
    two."""
    with tarfile.open(RAW) as archive, tempfile.TemporaryDirectory() as folder:
        for member in archive.getmembers():
            stream = archive.extractfile(member) if member.isfile() else None
            lines = [line for line in stream.read().splitlines() if line.strip()] if stream else []
            if len(lines) != 2 or any(json.loads(line)["completed"] < 2 for line in lines):
                continue
            sides = []
            for k, line in enumerate(lines):
                path = Path(folder) / f"{k}.json"
                path.write_bytes(line)
                sides.append(reading.read(path))
            yield sides[0], sides[1]


def simulated(
    runs: int, requests: int, scatter: float, pairs: int = SIMULATED, sweep: Sequence[int] = (16,)
) -> Iterator[tuple[list[Level], list[Level]]]:
    """Pairs of simulated servers that are equal in truth, each run a level for each number of requests in
    flight of `sweep`."""
    random = np.random.default_rng(SEED)
    for _ in range(pairs):
        sides: tuple[list[Level], list[Level]] = ([], [])
        for number in range(2 * runs):
            for in_flight in sweep:
                level = server(random, requests, scatter, in_flight=in_flight)
                level.run = str(number)
                sides[number >= runs].append(level)
        yield sides


def counted(name: str, runs: int, requests: str, pairs: Sequence[tuple]) -> Iterator[dict]:
    """A row of COLUMNS for each of EFFECTS."""
    for effect in EFFECTS:
        said = [outcome(a, [faster(level, effect) for level in b]) for a, b in pairs]
        usable = [one for one in said if one is not None]
        share = lambda values: round(float(np.mean(list(values))), 4) if usable else np.nan  # noqa: E731
        told = (one["faster"] and not one["slower"] for one in usable)
        different = (one["faster"] or one["slower"] for one in usable)
        row = {
            "pairs": name,
            "runs": runs,
            "requests": requests,
            "effect": effect,
            "pairs_compared": len(usable),
            "told": share(different if effect == 1 else told),
            "wrong": share(one["slower"] for one in usable),
            "said_by_5_percent": share(one["rule"] for one in usable),
            "tokens_told": share(one["tokens"] for one in usable),
        }
        print(row, flush=True)
        yield row


def table(pairs: int = SIMULATED, sweeps: int = SWEEPS) -> pd.DataFrame:
    """All rows of data/proof/compare.csv; columns COLUMNS, shares in 0 to 1."""
    rows = [*counted("published reruns (iog-vllm)", 1, "200", list(published()))]
    for runs in (3, 1):
        rows += counted("own latency runs, all hosts", runs, "9", list(own("latency", runs)))
    rows += counted("own serving runs", 1, "36 to 802", list(own("serving", 1)))
    # One run borrows the scatter of its kind, so it can only be tried with that.
    for runs, scatter in [*((3, scatter) for scatter in SCATTERS), (1, SCATTERS[0])]:
        name = f"simulated servers, {scatter:.0%} between runs"
        rows += counted(name, runs, "200", list(simulated(runs, 200, scatter, pairs)))
    for runs, scatter in [*((3, scatter) for scatter in SCATTERS), (1, SCATTERS[0])]:
        name = f"simulated sweeps of {len(SWEEP)} levels, {scatter:.0%} between runs"
        rows += counted(name, runs, "200", list(simulated(runs, 200, scatter, sweeps, SWEEP)))
    return pd.DataFrame(rows, columns=COLUMNS)


def main() -> None:
    """Write data/proof/compare.csv and print it."""
    found = table()
    files.write_whole(OUT, files.csv_text(found))
    print(found.to_string(index=False))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    main()
