"""Identities between a result's own figures: one declaration each, evaluated row by row.

A row is a load level or a request. `left` and `right` are columns of `Facts`, or formulas of them. `exact`
identities hold whatever the lengths are, within the printed digits and what a tool's own windows allow.
`bounded` ones multiply means: they are exact for one request and for answers of one length, else within
BOUND. Medians and percentiles are never added up, so that `Facts` has none. `most`: the left is at most the
right. `assumed`: the row has to be one request, which nobody says; it counts only beside a cause.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from llm_measured.audit import catalog, frame
from llm_measured.audit.frame import Audited
from llm_measured.core import plausibility

Facts = dict[str, np.ndarray]  # column -> one figure per row

BOUND = 0.25  # share by which a product of means may miss a mean of products
OF_EQUAL_LENGTHS = 0.05
EXACT, BY_HAND = 0.025, 0.06  # how far a tool's own sums may be apart, and those of a table made by hand
HAND_MADE = ("CSV in the study's words", "JSON in the study's words")
# Tools whose rates are means over windows of time.
WINDOWS = {"GuideLLM": 0.12, "AIPerf / GenAI-Perf": 0.06, "inference-perf": 0.06, "this study": 0.12}
EVENT = 1.5  # a gap is several tokens' from so many times the TPOT on; by chance of lengths it is less
FEWEST_TOKENS = 4  # of an answer that has a pace
RETOKENIZED = 0.25  # share by which a second count of a text may be lower: other tokenizers, cut words
PEAK, WINDOW_S = 0.1, 3.0  # by which a peak may miss the mean, of a run that is longer than its window
SAMPLES = 0.25  # a mean of rates and a mean of times differ by the samples' spread
IDLE = 0.5  # of the time in which a client that sends one request at a time may wait
FEW_IN_FLIGHT = 2.0  # times fewer requests in flight than users, from which it is said
SHARE = 0.2  # of a file's requests that have to misfit before it is the file's fault
BLURRED = 2.0  # times the product of the deviations of TPOT and e2e, within which their means do not add up

COLUMNS = {
    "rate": "output_tokens_per_s",
    "user_rate": "request_tokens_per_s",
    "total_rate": "total_tokens_per_s",
    "prompt_rate": "prompt_tokens_per_s",
    "requests_per_s": "requests_per_s",
    "duration": "duration_s",
    "requests": "requests",
    "asked": "asked",
    "failed": "failed",
    "total": "total_output_tokens",
    "total_prompt": "total_prompt_tokens",
    "again": "retokenized_output_tokens",
    "peak": "peak_output_tokens_per_s",
    "tokens": "output_tokens",
    "prompt": "prompt_tokens",
    "limit": "max_new_tokens",
    "users": "concurrency",
    "batch": "batch_size",
    "devices": "tensor_parallel",
    "prefill": "prefill_s",
    "decode": "decode_s",
    "sample_rate": "sample_tokens_per_s",
    "sample_s": "sample_s",
    "arrivals": "gaps",
}
TIMES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2e"}
UNITS = {"rate": "tokens/s", "user_rate": "tokens/s", "total_rate": "tokens/s", "prompt_rate": "tokens/s"}
UNITS |= {
    "requests_per_s": "requests/s",
    "duration": "s",
    "e2e": "s",
    "ttft": "ms",
    "tpot": "ms",
    "itl": "ms",
}
UNITS |= {
    "median_itl": "ms",
    "peak": "tokens/s",
    "sample_rate": "tokens/s",
    "sample_s": "s",
    "prefill": "s",
    "decode": "s",
}


@dataclass(frozen=True)
class Identity:
    """One identity: `check` under which a misfit is reported, `terms` that it stands on, both sides as
    formulas over `Facts`, both in words with the figures of a row, and where it holds."""

    name: str
    check: str
    terms: tuple[str, ...]
    left: Callable[[Facts], np.ndarray]
    right: Callable[[Facts], np.ndarray]
    words: tuple[str, str]
    bounded: bool = False
    most: bool = False
    assumed: bool = False
    tolerance: float | None = None
    where: Callable[[Facts], np.ndarray] | None = None
    hint: str = "One of the figures was changed, or counts something else."

    @property
    def of_load(self) -> bool:
        """Whether it is Little's law, whose right side is only a limit."""
        return self.check == "littles_law"


def whole(f: Facts, pace: str = "tpot") -> np.ndarray:
    """Seconds of an answer by its parts."""
    return f["ttft"] + f[pace] * (f["tokens"] - 1)


def answer(f: Facts) -> np.ndarray:
    """Seconds of an answer: e2e, else by its parts."""
    return frame.first(f["e2e"], whole(f), whole(f, "itl"))


def _total(f):
    return frame.first(f["total"], f["requests"] * f["tokens"])


def _one_at_a_time(f):
    """Rows in which one request ran at a time, as they say or as a request is one."""
    return (f["batch"] == 1) | (np.isnan(f["batch"]) & (f["users"] == 1)) | (f["request"] == 1)


def _no_load(f):
    """Rows that say nothing of a load: what they hold may be one answer."""
    load = ("users", "batch", "requests_per_s", "requests", "request_rate", "asked", "total", "all_at_once")
    return np.isnan(np.array([f[name] for name in load])).all(axis=0) & (f["request"] == 0)


def single_rate(f: Facts) -> np.ndarray:
    """The rate of rows with one request at a time."""
    return frame.where(_one_at_a_time(f) & (f["request"] == 0), f["rate"])


def _idle(f):
    """All but a lower rate that pauses between requests explain: of one request at a time, or of a load that
    is stated."""
    tokens = single_rate(f) * answer(f)
    # Some rates of one request leave the prompt's time out.
    decoding = np.abs(np.log(single_rate(f) * (answer(f) - f["ttft"]) / f["tokens"])) < BOUND
    loaded = ~np.isnan(f["requests_per_s"]) | ~np.isnan(f["duration"])
    return ~decoding & ~((tokens < f["tokens"]) & (loaded | (tokens > IDLE * f["tokens"])))


def _after_first(f):
    """Seconds from the first token of an answer to the last."""
    return frame.first(f["tpot"] * f["tokens"], f["e2e"] - f["ttft"])


def _with_first(f):
    """All but rates of a request that leave the prompt's time out, as may be where nobody states it."""
    without = np.abs(np.log(f["user_rate"] * _after_first(f) / f["tokens"])) < BOUND
    above = f["user_rate"] * answer(f) / f["tokens"]
    return ~without & ~(np.isnan(f["ttft"]) & (above > 1) & (above < 1 + BOUND))


def _events(f):
    return (f["tpot"] > 0) & ~f["speculative"].astype(bool)


def _above(f):
    """Gaps longer than a token's time by what no mixture of lengths gives; shorter ones only where TTFT and
    e2e say that the TPOT is right."""
    with np.errstate(all="ignore"):
        agrees = np.abs(np.log(whole(f) / f["e2e"])) < OF_EQUAL_LENGTHS
        short = (f["itl"] / f["tpot"] <= 0.55) & agrees
        return _events(f) & ((f["itl"] >= f["tpot"]) | short | (f["itl"] / f["tpot"] > 1 - BOUND))


def _pace_by_itl(f):
    return ~f["speculative"].astype(bool)


def _either(f):
    return frame.first(f["rate"], f["prompt_rate"], f["total_rate"])


def _counted(f):
    counted = frame.first(frame.where(f["tokens"] > 0, f["tokens"]), f["prompt"])
    return frame.where(f["both_tests"] == 0, counted)


SUMS, RATE, LITTLE, EVENTS = "plain_sums", "rate_against_times", "littles_law", "tokens_per_event"
IDENTITIES = [
    Identity(
        "output tokens/s × duration = output tokens",
        SUMS,
        ("rate", "duration", "total", "requests", "tokens"),
        lambda f: f["rate"] * f["duration"],
        _total,
        ("{rate} × {duration} = {left} tokens", "{right} are counted"),
    ),
    Identity(
        "requests/s × duration = completed requests",
        SUMS,
        ("requests_per_s", "duration", "requests"),
        lambda f: f["requests_per_s"] * f["duration"],
        lambda f: f["requests"],
        ("{requests_per_s} × {duration} = {left} requests", "{right} are counted"),
    ),
    Identity(
        "output tokens/s = requests/s × tokens of an answer",
        SUMS,
        ("rate", "requests_per_s", "tokens"),
        lambda f: frame.where(np.isnan(f["duration"]) | np.isnan(_total(f)), f["rate"]),
        lambda f: f["requests_per_s"] * f["tokens"],
        ("{rate} are published", "{requests_per_s} × {tokens} tokens = {right} tokens/s"),
    ),
    Identity(
        "all tokens/s × duration = prompt + output tokens",
        SUMS,
        ("total_rate", "duration", "total", "total_prompt"),
        lambda f: f["total_rate"] * f["duration"],
        lambda f: f["total"] + f["total_prompt"],
        ("{total_rate} × {duration} = {left} tokens", "{right} are counted, prompts and answers"),
    ),
    Identity(
        "output tokens/s + prompt tokens/s = all tokens/s",
        SUMS,
        ("rate", "prompt_rate", "total_rate"),
        lambda f: frame.where(f["request"] == 0, f["rate"] + f["prompt_rate"]),
        lambda f: frame.where(np.isnan(f["prefill"]), f["total_rate"]),
        ("{rate} and {prompt_rate} = {left} tokens/s", "{right} are published for both"),
    ),
    Identity(
        "output tokens/s ≤ all tokens/s",
        SUMS,
        ("rate", "total_rate"),
        lambda f: f["rate"],
        lambda f: f["total_rate"],
        ("{rate} of answers", "{total_rate} of prompts and answers"),
        most=True,
    ),
    Identity(
        "output tokens = completed × mean tokens",
        SUMS,
        ("total", "requests", "tokens"),
        lambda f: f["requests"] * f["tokens"],
        lambda f: f["total"],
        ("{requests} × {tokens} = {left} tokens", "{right} are counted"),
    ),
    Identity(
        "completed + failed = asked",
        SUMS,
        ("requests", "failed", "asked"),
        lambda f: f["requests"] + f["failed"],
        lambda f: f["asked"],
        ("{requests} completed and {failed} failed are {left}", "{asked} were asked"),
        tolerance=1e-6,
    ),
    Identity(
        "tokens/s = mean of its samples",
        SUMS,
        ("rate", "prompt_rate", "sample_rate"),
        _either,
        lambda f: f["sample_rate"],
        ("{left} tokens/s are published", "the samples' mean is {sample_rate}"),
    ),
    Identity(
        "tokens/s × mean time of its samples = tokens",
        SUMS,
        ("rate", "prompt_rate", "sample_s"),
        lambda f: _either(f) * f["sample_s"],
        _counted,
        ("{left} tokens are in the samples' {sample_s}", "{right} were asked"),
        tolerance=SAMPLES,
        # A mean of rates is never below the rate of the mean time, and may lie far above it.
        where=lambda f: ~((f["sample_rate"] > 0) & (_either(f) * f["sample_s"] > _counted(f))),
    ),
    Identity(
        "tokens/s of a request × its time = its tokens",
        RATE,
        ("user_rate", "e2e", "ttft", "tpot", "tokens"),
        lambda f: f["user_rate"] * answer(f),
        lambda f: f["tokens"],
        ("{user_rate} × {answer} = {left} tokens", "{tokens} were generated"),
        bounded=True,
        where=_with_first,
    ),
    Identity(
        "output tokens/s × time of an answer = its tokens, one request at a time",
        RATE,
        ("rate", "e2e", "ttft", "tpot", "itl", "tokens"),
        lambda f: single_rate(f) * answer(f),
        lambda f: f["tokens"],
        ("{rate} × {answer} = {left} tokens", "{tokens} were generated, one request at a time"),
        bounded=True,
        where=_idle,
    ),
    Identity(
        "output tokens/s × time of a batch = its tokens",
        RATE,
        ("rate", "e2e", "ttft", "tpot", "tokens", "batch"),
        lambda f: frame.where(f["batch"] > 1, f["rate"]) * answer(f),
        lambda f: f["tokens"] * f["batch"],
        ("{rate} × {answer} = {left} tokens", "{batch} answers of {tokens} are {right}"),
        bounded=True,
    ),
    Identity(
        "tokens/s × time = tokens, if the row is one request",
        RATE,
        ("rate", "e2e", "duration", "ttft", "tpot", "tokens"),
        lambda f: frame.where(_no_load(f), f["rate"]) * frame.first(answer(f), f["duration"]),
        lambda f: f["tokens"],
        ("{rate} × {seconds} = {left} tokens", "{tokens} were generated"),
        assumed=True,
    ),
    Identity(
        "tokens/s × time ≥ tokens, of one answer or more",
        RATE,
        ("rate", "e2e", "duration", "ttft", "tpot", "tokens"),
        lambda f: f["tokens"],
        lambda f: frame.where(_no_load(f), f["rate"]) * frame.first(answer(f), f["duration"]) / IDLE,
        ("{tokens} tokens in {seconds} are {pace} tokens/s", "{rate} are published"),
        most=True,
    ),
    Identity(
        "requests/s × time of an answer ≤ requests at once",
        LITTLE,
        ("requests_per_s", "e2e", "ttft", "tpot", "tokens", "users"),
        lambda f: frame.first(f["requests_per_s"], f["requests"] / f["duration"]) * answer(f),
        lambda f: f["users"],
        ("{requests_per_s} × {answer} = {left} requests under way", "the client allows {users} at once"),
        bounded=True,
        most=True,
    ),
    Identity(
        "output tokens/s × time of an answer ≤ tokens of the requests at once",
        LITTLE,
        ("rate", "e2e", "ttft", "tpot", "tokens", "users"),
        lambda f: frame.where(np.isnan(f["batch"]) & (f["users"] > 1), f["rate"]) * answer(f),
        lambda f: f["users"] * f["tokens"],
        ("{rate} × {answer} = {left} tokens", "{users} answers of {tokens} are {right}"),
        bounded=True,
        most=True,
    ),
    Identity(
        "TTFT + TPOT × (tokens − 1) = e2e",
        RATE,
        ("ttft", "tpot", "tokens", "e2e"),
        whole,
        lambda f: f["e2e"],
        ("{ttft} + {tpot} × {tokens} tokens = {left} s", "the whole answer takes {e2e}"),
        bounded=True,
        where=lambda f: f["tokens"] >= FEWEST_TOKENS,
    ),
    Identity(
        "TTFT + ITL × (tokens − 1) = e2e",
        EVENTS,
        ("ttft", "itl", "tokens", "e2e"),
        lambda f: whole(f, "itl"),
        lambda f: f["e2e"],
        ("{ttft} + {itl} × {tokens} tokens = {left} s", "the whole answer takes {e2e}"),
        bounded=True,
        where=lambda f: _pace_by_itl(f) & (f["tokens"] >= FEWEST_TOKENS),
    ),
    Identity(
        "ITL = TPOT",
        EVENTS,
        ("itl", "tpot"),
        lambda f: f["itl"],
        lambda f: f["tpot"],
        ("a gap is {itl}", "a token takes {tpot}"),
        tolerance=EVENT - 1,
        where=_above,
    ),
    Identity(
        "output tokens/s ≤ 1 / ITL, one request at a time",
        EVENTS,
        ("rate", "itl"),
        lambda f: single_rate(f) * f["itl"],
        lambda f: np.where(np.isnan(f["ttft"]), 1.0, np.nan),
        ("{rate} × {itl} = {left} tokens in a gap", "one request has one"),
        bounded=True,
        most=True,
        where=_pace_by_itl,
        hint="May be several tokens in an event; the rate stands, and the gap is that of events.",
    ),
    Identity(
        "output tokens/s × half the median ITL ≤ 1, one request at a time",
        EVENTS,
        ("rate", "median_itl"),
        lambda f: single_rate(f) * f["median_itl"] / 2,
        lambda f: np.ones(len(f["row"])),
        ("half of the gaps take {median_itl} or more, in which {rate} are {left} tokens", "a gap has one"),
        most=True,
        where=_pace_by_itl,
        hint="May be several tokens in an event; the rate stands, and the gap is that of events.",
    ),
    Identity(
        "tokens = arrivals",
        EVENTS,
        ("tokens", "arrivals"),
        # Fewer tokens than arrivals are no misfit, and yet a request of which it is known.
        lambda f: np.maximum(f["tokens"], f["arrivals"]),
        lambda f: f["arrivals"],
        ("{tokens} tokens are counted", "{arrivals} arrived"),
        tolerance=EVENT - 1,
        where=_pace_by_itl,
    ),
    Identity(
        "an answer ≥ a token",
        SUMS,
        ("tokens", "total"),
        lambda f: frame.where((f["tokens"] > 0) & (f["request"] == 0), np.ones(len(f["row"]))),
        lambda f: f["tokens"],
        ("an answer has a token", "{tokens} are in the mean"),
        most=True,
        tolerance=1.0,
    ),
    Identity(
        "answer ≤ its limit",
        SUMS,
        ("tokens", "limit"),
        lambda f: frame.where(f["request"] + (f["limit_of_one"] == 1) > 0, f["tokens"]),
        lambda f: f["limit"],
        ("an answer has {tokens} tokens", "at most {limit} were asked"),
        most=True,
    ),
    Identity(
        "fullest second ≥ output tokens/s",
        "counted_twice",
        ("rate", "peak", "duration"),
        lambda f: f["rate"],
        lambda f: f["peak"],
        ("the mean is {rate}", "the fullest second has {peak}"),
        most=True,
        tolerance=PEAK,
        where=lambda f: ~(f["duration"] < WINDOW_S),
        hint="May be that one counts events and the other tokens, or tokens that never came.",
    ),
    Identity(
        "tokens counted again in the text = output tokens",
        "counted_twice",
        ("total", "again"),
        lambda f: f["total"],
        lambda f: f["again"],
        ("{total} tokens are published", "{again} were counted again in the text of the answers"),
        most=True,
        tolerance=1 / (1 - RETOKENIZED) - 1,
        hint="May be tokens that were asked and never came, or that are in no text, as of tool calls.",
    ),
    Identity(
        "tokens × TPOT = time of generating",
        RATE,
        ("tokens", "tpot", "decode"),
        lambda f: f["tokens"] * f["tpot"],
        lambda f: f["decode"],
        ("{tokens} tokens of {tpot} are {left} s", "generating took {decode}"),
        bounded=True,
        where=lambda f: f["tokens"] >= FEWEST_TOKENS,
    ),
    Identity(
        "prompt tokens/s × time of reading = prompt tokens",
        RATE,
        ("prompt_rate", "prefill", "prompt"),
        lambda f: f["prompt_rate"] * f["prefill"],
        lambda f: frame.where(np.isnan(f["batch"]) | (f["batch"] == 1), f["prompt"]),
        ("{prompt_rate} × {prefill} = {left} tokens", "the prompt has {prompt}"),
        bounded=True,
    ),
    *(
        Identity(
            f"mean {time.upper()} = mean of the requests",
            SUMS,
            (time,),
            operator.itemgetter(time),
            operator.itemgetter(f"own_{time}"),
            (f"{{{time}}} are published", "the requests' mean is {right} s"),
        )
        for time in ("ttft", "tpot", "e2e")
    ),
    Identity(
        "output tokens = sum over the requests",
        SUMS,
        ("total",),
        lambda f: f["total"],
        lambda f: f["own_total"],
        ("{total} tokens are published", "the requests have {right}"),
    ),
]


@frame.once
def facts(audited: Audited) -> Facts:
    """{column: figure of each row} of the levels and of the requests that succeeded: columns of COLUMNS and
    TIMES (of a level the mean, or what no statistic is named of), `row` (level), `request` (1 where the row
    is one), `equal` (1 where all answers have one length) and what some identities ask besides."""
    known, level = audited.figures(), audited.levels
    count = len(level)
    found = {
        name: known[column] if column in known else np.full(count, np.nan) for name, column in COLUMNS.items()
    }
    for name, time in TIMES.items():
        found[name] = frame.first(known[f"{time}_mean_s"], known[f"{time}_s"])
    counts = [(catalog.device(name) or {}).get("count") or np.nan for name in level["gpu"]]
    found["devices"] = frame.first(found["devices"], np.array(counts, dtype=float))
    named = level["option"] + " " + level["name"] + " " + level["engine"] + " " + level["model"]
    texts = {text: catalog.speculative(text) for text in set(named)}
    found["median_itl"] = known["itl_p50_s"]
    found["speculative"] = named.map(texts).to_numpy(float)
    found["both_tests"] = (level["name"] == "pp+tg").to_numpy(float)
    found["row"], found["request"] = known["level"], np.zeros(count)
    found["request_rate"], found["all_at_once"] = known["request_rate"], known["all_at_once"]
    with np.errstate(all="ignore"):
        same = np.abs(found["tokens"] / found["limit"] - 1) < 0.005
        found["equal"] = ((found["requests"] == 1) | same).astype(float)
    found["limit_of_one"] = (found["requests"] == 1).astype(float)
    deviation = [
        frame.where(np.ones(count, bool), spread(level, time).to_numpy(float)) for time in ("tpot", "e2e")
    ]
    found["blur"] = np.nan_to_num(deviation[0] * np.fmax(deviation[1], deviation[0])) * BLURRED
    requests = audited.good()
    found |= {f"own_{name}": np.full(count, np.nan) for name in (*TIMES, "total")}
    if requests.empty:
        return found
    of_level = requests.groupby("level")
    whole_file = level["level"].map(of_level.size()) == known["requests"]
    for name in TIMES:
        of_all = whole_file & (level["level"].map(of_level[f"{name}_s"].count()) == known["requests"])
        found[f"own_{name}"] = level["level"].map(of_level[f"{name}_s"].mean()).where(of_all).to_numpy(float)
    sums = of_level["output_tokens"].sum(min_count=1)
    found["own_total"] = level["level"].map(sums).where(whole_file).to_numpy(float)
    own: Facts = {name: np.full(len(requests), np.nan) for name in found}
    columns = {name: column for name, column in COLUMNS.items() if column in requests}
    columns |= {name: f"{time}_s" for name, time in TIMES.items()}
    own |= {name: requests[column].to_numpy(float) for name, column in columns.items()}
    own["arrivals"] = frame.first(own["arrivals"] + 1, requests["events"].to_numpy(float))
    place = pd.Series(range(count), known["level"]).reindex(requests["level"]).to_numpy(int)
    own["speculative"] = np.fmax(
        found["speculative"][place], (requests["drafted_tokens"] > 0).to_numpy(float)
    )
    own["devices"], own["row"] = found["devices"][place], requests["level"].to_numpy(float)
    own["request"], own["equal"] = np.ones(len(requests)), np.ones(len(requests))
    own["both_tests"], own["blur"] = np.zeros(len(requests)), np.zeros(len(requests))
    return {name: np.concatenate([found[name], own[name]]) for name in found}


def spread(level: pd.DataFrame, time: str) -> pd.Series:
    """Standard deviation of `time` over its mean in each level: as the file states it, or from a high
    percentile beside the median as of a normal distribution; NaN where the file has neither."""
    middle, found = level[f"{time}_p50_s"], level[f"{time}_sd_s"] / level[f"{time}_mean_s"]
    for q, deviations in (("_p99", 2.33), ("_p95", 1.64), ("_p90", 1.28)):
        found = found.fillna((level[f"{time}{q}_s"] / middle - 1).clip(lower=0) / deviations)
    return found


@np.errstate(all="ignore")
def quotients(f: Facts) -> np.ndarray:
    """left / right of each identity in each row, 1 where it holds; NaN where a part is unknown or the
    identity does not hold for the row."""
    out = np.full((len(IDENTITIES), len(f["row"])), np.nan)
    for k, one in enumerate(IDENTITIES):
        left, right = one.left(f), one.right(f)
        good = np.isfinite(left) & np.isfinite(right) & (left >= 0) & (right >= 0) & (left + right > 0)
        if one.where is not None:
            good &= one.where(f).astype(bool)
        out[k] = np.where(good, np.maximum(left, 1e-12) / np.maximum(right, 1e-12), np.nan)
    return out


@frame.once
def tolerances(audited: Audited) -> np.ndarray:
    """How far the quotient of each identity may be from 1 in each row, without what printing explains."""
    f = facts(audited)
    tools = audited.levels.set_index("level")["tool"]
    own = tools.map({tool: tools_own(tool) for tool in set(tools)})
    by_tool = own.reindex(f["row"]).to_numpy(float)
    out = np.empty((len(IDENTITIES), len(f["row"])))
    for k, one in enumerate(IDENTITIES):
        exact = np.where(f["equal"] == 1, np.fmax(OF_EQUAL_LENGTHS, by_tool), np.fmax(BOUND, f["blur"]))
        out[k] = exact if one.bounded else one.tolerance if one.tolerance is not None else by_tool
    return out


def tools_own(tool: str) -> float:
    """How far a tool's own sums may be apart."""
    return BY_HAND if tool in HAND_MADE else WINDOWS.get(tool, EXACT)


def off(values: np.ndarray, tolerance: np.ndarray) -> np.ndarray:
    """Which quotients, of one row per identity, are further from 1 than `tolerance`."""
    with np.errstate(all="ignore"):
        logs = np.log(values)
        sided = np.array([one.most for one in IDENTITIES])
        far = np.where(sided.reshape(-1, *[1] * (values.ndim - 1)), logs, np.abs(logs))
        return far > np.log1p(tolerance)


def printed(audited: Audited, k: int, rows: np.ndarray) -> np.ndarray:
    """How far identity `k` may be off in `rows` because its figures are printed in steps: half a step of
    each."""
    f, level = facts(audited), audited.levels
    place = pd.Series(range(len(level)), level["level"]).reindex(f["row"][rows]).to_numpy(int)
    total = np.zeros(len(rows))
    for term in IDENTITIES[k].terms:
        for column in (COLUMNS.get(term), f"{TIMES.get(term)}_mean_s", f"{TIMES.get(term)}_s"):
            if column in frame.NUMBERS and audited.levels_have(column):
                step = audited.step(column).to_numpy(float)[place]
                with np.errstate(all="ignore"):
                    share = 0.5 * step / np.abs(f[term][rows])
                total += np.where(np.isfinite(share), share, 0)
    return total


@frame.once
def misfits(audited: Audited) -> np.ndarray:
    """Which identities do not hold in which rows: one row per identity, beyond what printing explains."""
    f, tolerance = facts(audited), tolerances(audited)
    values = quotients(f)
    wrong = off(values, tolerance)
    for k in map(int, np.flatnonzero(wrong.any(axis=1))):
        rows = np.flatnonzero(wrong[k])
        wrong[k, rows] = off(values[:, rows], tolerance[:, rows] + printed(audited, k, rows))[k]
        of_requests = f["request"][rows] == 1
        known = ~np.isnan(values[k]) & (f["request"] == 1)
        if of_requests.any() and wrong[k][known].mean() < SHARE:
            wrong[k, known] = False
    return wrong


def table(audited: Audited) -> pd.DataFrame:
    """One row per level and identity that it has all parts of: level, name, quotient, tolerance, wrong;
    assumed ones left out."""
    f, wrong = facts(audited), misfits(audited)
    values, tolerance = quotients(f), tolerances(audited)
    stated = np.array([not one.assumed for one in IDENTITIES])
    which, rows = np.nonzero(~np.isnan(values) & stated[:, None] & (f["request"] == 0))
    return pd.DataFrame(
        {
            "level": f["row"][rows],
            "name": np.array([one.name for one in IDENTITIES])[which],
            "check": np.array([one.check for one in IDENTITIES])[which],
            "most": np.array([one.most for one in IDENTITIES])[which],
            "quotient": values[which, rows],
            "tolerance": tolerance[which, rows],
            "wrong": wrong[which, rows],
        }
    )


def requests_under_way(levels: pd.DataFrame) -> pd.Series:
    """Mean number of requests under way in each level, by Little's law from its rate and the time of an
    answer, medians where there are no means; NaN where either is absent."""
    rate = (
        levels["requests_per_s"]
        .fillna(levels["requests"] / levels["duration_s"])
        .fillna(levels["output_tokens_per_s"] / levels["output_tokens"])
    )
    times = [levels["e2e_mean_s"], levels["e2e_s"]]
    for q in ("_mean_s", "_s"):
        times.append(plausibility.whole_s(levels[f"ttft{q}"], levels[f"tpot{q}"], levels["output_tokens"]))
    # Medians add up worse than a median of the whole.
    centres = frame.centre(levels, "ttft"), frame.centre(levels, "tpot"), levels["output_tokens"]
    mean = times[0]
    for other in [*times[1:], levels["e2e_p50_s"], plausibility.whole_s(*centres)]:
        mean = mean.fillna(other)
    return rate * mean
