"""Levels of load of benchmark files, each with its conditions and its figures.

A file is read by the audit's importers. Figures are computed from the requests where the file has them, so
that both sides are computed alike, and are the file's own where it has a summary alone.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from llm_measured.audit import checks, frame, importers, quantities
from llm_measured.audit.checks.finding import ALARMS, Finding
from llm_measured.audit.frame import Audited
from llm_measured.audit.report import expand
from llm_measured.core.confidence import requests_needed
from llm_measured.core.plausibility import digits

TOKENS = "output_tokens_per_s"
TIMES = "ttft", "tpot", "itl", "e2e"
SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
# (quantity, statistic) of every figure that is compared -> its column in the audit's frame.
COLUMNS = {
    (
        one.word,
        statistic,
    ): f"{one.word}{'_' * bool(statistic)}{statistic}{'_s' * one.timed * bool(one.statistics)}"
    for one in quantities.compared()
    for statistic in (("mean", "", *SHARES) if one.statistics else ("",))
}
ROWS = [*COLUMNS]
TEXTS = [name for name in frame.TEXTS if name != "file"]
NUMBERS = (
    "concurrency request_rate all_at_once batch_size tensor_parallel prompt_tokens output_tokens "
    "max_new_tokens depth_tokens temperature warmup_requests device_times"
).split()
USUAL_REPEATS = 5  # of llama-bench, where it does not say
MAKERS = {"meta", "hf"}
# llama.cpp's formats as its tools and files spell them: `Q4_0`, `mostly Q5_K - Medium`, `iq4_xs`
QUANTS = re.compile(r"(?:mostly )?\bi?q\d(?:_\w+?)*(?: - (?:small|medium|large))?(?![\w])")
FORMATS = re.compile(
    r"fp8|fp4|nvfp4|mxfp4|bf16|fp16|f16|int[48]|w[48]a\d+|awq|gptq|nf4|bnb|[48]bit|dynamic|gguf"
)
PRINTED_DIGITS = 4  # of figures of one file from which equal ones are one line, quoted twice
FINE = 6  # digits of a figure from which two that are equal are one and the same
RESAMPLES, SEED = 300, 44
FEWEST = 8  # requests that are resampled
ROUNDS = 10  # requests for each place in flight, below which the end of a level, as places empty, is replayed

REQUESTS = "sent_s ttft_s e2e_s tpot_s itl_s gaps events prompt_tokens output_tokens max_new_tokens".split()


@dataclass
class Level:
    """One level of load in one run: conditions (name -> text, number or None), `values` (row of ROWS ->
    figure, times in s), `requests` that succeeded (None: not stated), `samples` (row -> values of its
    requests in the order in which they were sent)."""

    file: str
    run: str
    conditions: dict[str, Any]
    values: dict[tuple[str, str], float]
    requests: int | None
    samples: dict[str, np.ndarray] = field(default_factory=dict, repr=False)
    # row of ROWS -> (standard deviation of its logarithm over printed repeats, degrees of freedom)
    printed: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict, repr=False)
    spans: np.ndarray | None = field(default=None, repr=False)


def bounded(statistic: str, requests: int | None) -> bool:
    """Whether so many requests bound the statistic; of an unknown number none but mean and median."""
    if statistic not in SHARES:
        return True
    if requests is None:
        return statistic == "p50"
    return requests >= requests_needed(SHARES[statistic])


def side(paths: Sequence[str | Path]) -> tuple[list[Level], list[str], list[Finding]]:
    """(levels, notes, alarms of the audit) of one side: every file is a run, and so is each line that repeats
    a level in one file.

    A folder stands for the result files in it. ValueError with one sentence where nothing can be read.
    """
    levels, notes, unread, alarms, empty = [], [], [], [], []
    found, inside = expand(paths)
    missing = [str(path) for path in paths if not Path(path).exists()]
    if missing:
        raise ValueError(f"{missing[0]} does not exist; name a result file or a folder of repeats.")
    for path in found:
        try:
            audited = importers.read(path)
            mine = levels_of(path, audited)
            levels += mine
            empty += [] if mine else [f"{path.name} was read, and holds no figure that is compared"]
            varying = [name[:40] for one in audited.placed for name in one.varying]
            if varying:
                said = f"Not read, and different from row to row: {', '.join(varying[:6])}"
                notes.append(f"{said}. Rows that differ only in that are repeats.")
            alarms += [one for one in checks.run(audited) if one.kind in ALARMS and not one.consequence_of]
        except ValueError as error:
            if path not in inside:
                raise
            unread.append(path.name if _sidecar(path, found) else str(error))
    told = [reason for reason in unread if " " in reason]
    if told:
        notes.append(f"{len(told)} files of the folder were not read; the first: {told[0][:200]}")
    if not levels:
        why = [*empty, *told, "no file"][0]
        raise ValueError(f"No benchmark result in {', '.join(map(str, paths))}: {why}")
    return _without_copies(levels, notes), notes, alarms


def _sidecar(path: Path, found: Iterable[Path]) -> bool:
    """Whether a file that is no result stands beside a result of its name, as a run's JSON beside its CSV."""
    return any(other.stem == path.stem and other != path for other in found)


def read(path: str | Path) -> list[Level]:
    """The levels of one file; ValueError with one sentence for one that cannot be read."""
    path = Path(path)
    return levels_of(path, importers.read(path))


def levels_of(path: Path, audited: Audited) -> list[Level]:
    """The levels of the file `path`, which the audit's importers have read."""
    good = audited.requests[audited.requests["error"] == ""]
    failed = audited.requests.groupby("level")["error"].agg(lambda errors: (errors != "").sum())
    by_level = {number: rows for number, rows in good.groupby("level")}
    levels = [
        _level(path, row, by_level.get(row["level"]), failed.get(row["level"]))
        for row in audited.levels.to_dict("records")
    ]
    return [level for level in levels if level.values]


def _level(path, row, requests, failed):
    known = lambda value: None if value is None or value != value or value == "" else value  # noqa: E731
    conditions = {name: known(row[name]) for name in (*TEXTS, *NUMBERS)}
    level = Level(path.name, path.name, conditions, _published(row), _count(known(row["requests"])))
    _printed(level, row)
    if not conditions["weights"] and conditions["model"]:
        conditions["weights"] = " ".join(format_words(conditions["model"])[1]) or None
    if requests is not None and len(requests) >= 2:
        from_requests(level, requests)
    asked = [known(row["failed"]), None if failed is None else float(failed)]
    lost = next((n for n in asked if n), 0.0)
    conditions["failed"] = lost
    conditions["failed_share"] = lost / (lost + (level.requests or 0)) if lost else 0.0
    conditions["late_share"] = _late(row, requests, level.values.get(("ttft", "mean")))
    e2e, ttft = level.values.get(("e2e", "p50")), level.values.get(("ttft", "p50"))
    long = (conditions["output_tokens"] or 0) > 4
    conditions["streamed"] = not (long and e2e and ttft and ttft > 0.98 * e2e)
    return level


def _count(number):
    return None if number is None else int(number)


def _published(row):
    values = {key: row[column] for key, column in COLUMNS.items()}
    return {key: float(value) for key, value in values.items() if value == value and value > 0}


def _printed(level, row):
    """The scatter that a file prints beside a rate: `6.65 ± 0.01`, or the samples of its repeats."""
    spread = row["spread_tokens_per_s"]
    freedom = max((_count(row["runs"]) if row["runs"] == row["runs"] else USUAL_REPEATS) - 1, 1)
    for metric in (TOKENS, "prompt_tokens_per_s", "total_tokens_per_s", "tpot"):
        for key in ((metric, ""), (metric, "mean")):
            if spread == spread and spread > 0 and key in level.values:
                rate = 1 / level.values[key] if metric == "tpot" else level.values[key]
                level.printed[key] = spread / rate, freedom


def format_words(name: str) -> tuple[str, list[str]]:
    """(a model's name without its folder, its maker and the number format in it; the words of the format)."""
    cached = re.search(r"models--[^/]*?--([^/]+)", name)
    last = cached[1] if cached else name.strip().rstrip("/").rsplit("/", 1)[-1]
    plain = re.sub(r"\.gguf$", "", last.lower())
    formats = [match[0].removeprefix("mostly ") for match in QUANTS.finditer(plain)]
    words = [word for word in re.split(r"[-_ ]+", QUANTS.sub("", plain)) if word not in MAKERS]
    formats += [word for word in words if FORMATS.fullmatch(word)]
    return "-".join(word for word in words if word and word not in formats), formats


def from_requests(level: Level, requests: pd.DataFrame) -> None:
    """Replace the figures of a summary by those of the requests, and keep these for resampling."""
    requests = requests.sort_values("sent_s", kind="stable")
    number = {name: requests[name].to_numpy(float) for name in requests.select_dtypes("number")}
    tokens, e2e, ttft = number["output_tokens"], number["e2e_s"], number["ttft_s"]
    after = e2e - ttft
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(np.isnan(number["tpot_s"]), after / (tokens - 1), number["tpot_s"])
        gaps = np.where(np.isnan(number["gaps"]), number["events"] - 1, number["gaps"])
        itl = np.where(np.isnan(number["itl_s"]), after / gaps, number["itl_s"])
    for time, values in {"ttft": ttft, "tpot": tpot, "e2e": e2e}.items():
        values = values[np.isfinite(values) & (values > 0)]
        if len(values) >= 2:
            level.samples[time] = values
            level.values |= {(time, s): figure(values, s) for s in ("mean", *SHARES)}
    usable = np.isfinite(itl) & (itl > 0) & (gaps > 0)
    if ("itl", "mean") not in level.values and usable.sum() >= 2:
        level.values["itl", "mean"] = float(np.average(itl[usable], weights=gaps[usable]))
    for name in ("prompt_tokens", "output_tokens", "max_new_tokens"):
        if np.isfinite(number[name]).any():
            level.conditions[name] = float(np.nanmean(number[name]))
            level.conditions[f"{name}_error"] = float(np.nanstd(number[name])) / math.sqrt(len(requests))
    level.requests = len(requests)
    _rate(level, number["sent_s"], e2e, tokens)


def _rate(level, sent, e2e, tokens):
    """Output tokens/s: of requests in flight together their tokens over the time from the first request sent
    to the last token; of an engine that is called for one request at a time the mean over requests."""
    usable = np.isfinite(e2e) & np.isfinite(tokens) & (e2e > 0)
    if not usable.all() or not len(usable):
        return
    if level.conditions["device_times"] == 1:
        level.samples[TOKENS] = tokens / e2e
        level.values[TOKENS, ""] = float(np.mean(tokens / e2e))
    elif np.isfinite(sent).all() and np.ptp(sent) > 0:
        end = (sent + e2e).max()
        level.samples[TOKENS] = tokens
        # What a request adds to the time of the level, for resampling: of so many in flight its own time (the
        # factor cancels); of arrivals at their own times the time to the next, and not the last one's drain.
        gaps = np.diff(sent)
        level.spans = e2e if level.conditions["concurrency"] else np.append(gaps, gaps.mean())
        level.values[TOKENS, ""] = float(tokens.sum() / (end - sent[0]))


def figure(values: np.ndarray, statistic: str) -> float:
    """Mean or percentile (linear between neighbours) of raw values."""
    return float(values.mean() if statistic == "mean" else np.percentile(values, 100 * SHARES[statistic]))


def _late(row, requests, ttft):
    """How late the client sent its requests, as a share of the mean TTFT; None where no file says."""
    late = row["late_mean_s"]
    if requests is not None and requests["late_s"].notna().any():
        late = requests["late_s"].mean()
    return late / ttft if late == late and ttft else None


def log_sd(level: Level, row: tuple[str, str]) -> tuple[float, int] | None:
    """(standard deviation of the figure's logarithm over resampled requests, degrees of freedom).

    Whole blocks of consecutive requests are drawn with replacement (Künsch, Annals of Statistics 17, 1989):
    those that were in flight together share the state of the server. A block has n^(1/3) requests, and twice
    as many as were in flight, so that one and all those that it shared a batch with are in it, but leaves
    four blocks. None without requests, or with fewer than three blocks.
    """
    metric, statistic = row
    values = level.samples.get(metric)
    if values is None or len(values) < FEWEST:
        return None
    n = len(values)
    length = max(math.ceil(n ** (1 / 3)), min(2 * int(level.conditions["concurrency"] or 1), n // 4))
    blocks = math.ceil(n / length)
    if blocks < 3:
        return None
    first = np.random.default_rng(SEED).integers(0, n, (RESAMPLES, blocks, 1))
    drawn = ((first + np.arange(length)) % n).reshape(RESAMPLES, -1)[:, :n]
    sample: Callable = values.__getitem__
    if metric == TOKENS and level.spans is not None:
        in_flight = int(level.conditions["concurrency"] or 0)
        short = n < ROUNDS * in_flight
        spans = level.spans[drawn]
        seconds = _replayed(spans, in_flight) if short else spans.sum(1)
        figures = sample(drawn).sum(1) / seconds
    elif statistic in ("", "mean"):
        figures = sample(drawn).mean(1)
    else:
        figures = np.percentile(sample(drawn), 100 * SHARES[statistic], axis=1)
    return float(np.log(figures[figures > 0]).std(ddof=1)), blocks - 1


def _replayed(times: np.ndarray, in_flight: int) -> np.ndarray:
    """Seconds from the first request to the end of the last, of each row of `times` (requests' own times in
    the order in which they are sent) with so many in flight: the sum of the times does not say how long
    the last ones ran as others were done."""
    free, every = np.zeros((len(times), in_flight)), np.arange(len(times))
    for of_each in times.T:
        place = free.argmin(1)
        free[every, place] += of_each
    return free.max(1)


def _without_copies(levels: list[Level], notes: list[str]) -> list[Level]:
    """Levels without those whose figures are another's to the last digit: a copy is no repeat."""
    seen, kept, copies = set(), [], []
    for level in levels:
        figures = tuple(sorted(level.values.items()))
        # Rounded figures of true repeats may be equal; those of many digits are not, nor is a line that a
        # file prints twice.
        most = max(digits(value) for _, value in figures)
        fine = len(figures) >= 3 and most >= FINE
        printed_twice = len(figures) >= 2 and most >= PRINTED_DIGITS and (level.file, figures) in seen
        new = not printed_twice and not (fine and figures in seen)
        seen |= {figures, (level.file, figures)}
        (kept if new else copies).append(level)
    if copies:
        names = ", ".join(sorted({level.file for level in copies})[:3])
        notes.append(f"Left out as a copy, equal to another run in every figure: {names}.")
    return kept
