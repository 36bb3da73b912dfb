"""Identities between a result's own figures: one row of identities.csv each, evaluated row by row.

A row is a load level or a request. `left`, `right` and `where` are formulas of columns of `Facts`. `exact`
identities hold whatever the lengths are, within the printed digits and what a tool's own windows allow.
`bounded` ones multiply means: they are exact for one request and for answers of one length, else within
BOUND. Medians and percentiles are never added up, so that `Facts` has none. `most`: the left is at most the
right. `assumed`: the row has to be one request, which nobody says; it counts only beside a cause.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from llm_measured.audit import catalog, frame, quantities
from llm_measured.audit.frame import Audited
from llm_measured.core import plausibility
from llm_measured.core.plausibility import first, where

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
LONG_PROMPT = 100  # times the tokens of the answer, from which most of its time may be reading
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
    "device_rate": "output_tokens_per_s_per_device",
    "prefill": "prefill_s",
    "decode": "decode_s",
    "sample_rate": "sample_tokens_per_s",
    "sample_s": "sample_s",
    "arrivals": "gaps",
}
TIMES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2e"}
# All columns of Facts: whoever asks the identities of other rows fills what it knows and leaves the rest NaN.
FACTS = [*COLUMNS, *TIMES, *(f"own_{name}" for name in (*TIMES, "total")), "median_itl", "speculative"]
FACTS += ["row", "request", "request_rate", "all_at_once", "equal", "limit_of_one", "blur", "both_tests"]
UNITS = dict.fromkeys(
    ("rate", "user_rate", "total_rate", "prompt_rate", "device_rate", "peak", "sample_rate"), "tokens/s"
)
UNITS |= {"requests_per_s": "requests/s"} | dict.fromkeys(("ttft", "tpot", "itl", "median_itl"), "ms")
UNITS |= dict.fromkeys(("duration", "e2e", "sample_s", "prefill", "decode"), "s")


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
    hint: str = "Use neither figure before the tool's own output tells which is right."

    @property
    def of_load(self) -> bool:
        """Whether it is Little's law, whose right side is only a limit."""
        return self.check == "littles_law"


def whole(f: Facts, pace: str = "tpot") -> np.ndarray:
    """Seconds of an answer by its parts."""
    return f["ttft"] + f[pace] * (f["tokens"] - 1)


def answer(f: Facts) -> np.ndarray:
    """Seconds of an answer: e2e, else by its parts."""
    return first(f["e2e"], whole(f), whole(f, "itl"))


def _total(f):
    return first(f["total"], f["requests"] * f["tokens"])


def _one_at_a_time(f):
    """Rows in which one request ran at a time, as they say or as a request is one."""
    return (f["batch"] == 1) | (np.isnan(f["batch"]) & (f["users"] == 1)) | (f["request"] == 1)


def _no_load(f):
    """Rows that say nothing of a load: what they hold may be one answer."""
    load = ("users", "batch", "requests_per_s", "requests", "request_rate", "asked", "total", "all_at_once")
    return np.isnan(np.array([f[name] for name in load])).all(axis=0) & (f["request"] == 0)


def single_rate(f: Facts) -> np.ndarray:
    """The rate of rows with one request at a time."""
    return where(_one_at_a_time(f) & (f["request"] == 0), f["rate"])


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
    return first(f["tpot"] * f["tokens"], f["e2e"] - f["ttft"])


def _with_first(f):
    """All but rates of a request that leave the prompt's time out, as may be where nobody states it."""
    without = np.abs(np.log(f["user_rate"] * _after_first(f) / f["tokens"])) < BOUND
    above = f["user_rate"] * answer(f) / f["tokens"]
    read = (above < 1 + BOUND) | (f["prompt"] > LONG_PROMPT * f["tokens"])
    return ~without & ~(np.isnan(f["ttft"]) & (above > 1) & read)


def _above(f):
    """Gaps longer than a token's time by what no mixture of lengths gives; shorter ones only where TTFT and
    e2e say that the TPOT is right."""
    with np.errstate(all="ignore"):
        agrees = np.abs(np.log(whole(f) / f["e2e"])) < OF_EQUAL_LENGTHS
        short = (f["itl"] / f["tpot"] <= 0.55) & agrees
        return (
            (f["tpot"] > 0)
            & ~f["speculative"].astype(bool)
            & ((f["itl"] >= f["tpot"]) | short | (f["itl"] / f["tpot"] > 1 - BOUND))
        )


def _counted(f):
    counted = first(where(f["tokens"] > 0, f["tokens"]), f["prompt"])
    return where(f["both_tests"] == 0, counted)


# Names that formulas use besides the columns of `Facts`.
DERIVED: dict[str, Callable[[Facts], np.ndarray]] = {
    "whole": whole,
    "whole_itl": lambda f: whole(f, "itl"),
    "answer": answer,
    "counted_total": _total,
    "no_load": _no_load,
    "single_rate": single_rate,
    "not_idle": _idle,
    "with_first": _with_first,
    "gap_is_off": _above,
    "not_speculative": lambda f: ~f["speculative"].astype(bool),
    "either_rate": lambda f: first(f["rate"], f["prompt_rate"], f["total_rate"]),
    "counted": _counted,
    "at_once": lambda f: first(f["batch"], f["users"]),
    "prompts": lambda f: first(f["total_prompt"], f["requests"] * f["prompt"]),
}
KNOWN = {name: getattr(np, name) for name in "abs log isnan nan where maximum round".split()}
KNOWN |= {"first": first, "only": where, "one": 1.0}
KNOWN |= {name: value for name, value in globals().items() if name.isupper() and isinstance(value, float)}
KNOWN |= {"FEWEST_TOKENS": FEWEST_TOKENS}


class Named(dict):
    """`Facts` with the names of DERIVED, each computed when a formula first asks for it."""

    def __missing__(self, name: str) -> np.ndarray:
        if name not in DERIVED:
            raise KeyError(name)
        self[name] = DERIVED[name](self)
        return self[name]


def formula(text: str) -> Callable[[Facts], np.ndarray]:
    """The function of `Facts` that a formula of this package's own tables states; ValueError for what is
    none."""
    try:
        code = compile(text.strip(), text, "eval")
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no formula ({error.msg}).") from None
    return lambda f: eval(code, KNOWN, f if isinstance(f, Named) else Named(f))


def _declared(row: dict[str, str]) -> Identity:
    left, _, right = row["words"].partition(" | ")
    rule = row["rule"].split()
    more = {"hint": row["hint"]} if row["hint"] else {}
    return Identity(
        row["identity"],
        row["check"],
        tuple(row["terms"].split()),
        formula(row["left"]),
        formula(row["right"]),
        (left, right),
        "bounded" in rule,
        "most" in rule,
        "assumed" in rule,
        float(eval(row["tolerance"], KNOWN)) if row["tolerance"] else None,
        formula(row["where"]) if row["where"] else None,
        **more,
    )


IDENTITIES = [_declared(row) for row in quantities.rows_of("identities.csv")]


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
        found[name] = first(known[f"{time}_mean_s"], known[f"{time}_s"])
    counts = [(catalog.device(name) or {}).get("count") or np.nan for name in level["gpu"]]
    found["devices"] = first(found["devices"], np.array(counts, dtype=float))
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
    deviation = [where(np.ones(count, bool), spread(level, time).to_numpy(float)) for time in ("tpot", "e2e")]
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
    own["arrivals"] = first(own["arrivals"] + 1, requests["events"].to_numpy(float))
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
def quotients(f: Facts, identities: Sequence[Identity] = IDENTITIES) -> np.ndarray:
    """left / right of each of the `identities` in each row, 1 where it holds; NaN where a part is unknown or
    the identity does not hold for the row."""
    f = Named(f)
    out = np.full((len(identities), len(f["row"])), np.nan)
    for k, one in enumerate(identities):
        left, right = one.left(f), one.right(f)
        good = np.isfinite(left) & np.isfinite(right) & (left >= 0) & (right >= 0) & (left + right > 0)
        if one.where is not None:
            good &= one.where(f).astype(bool)
        out[k] = np.where(good, np.maximum(left, 1e-12) / np.maximum(right, 1e-12), np.nan)
    return out


def of_table(table: pd.DataFrame, requests: bool) -> Facts:
    """`Facts` of a table in the frame's words whose times may be in any unit: the mean, what no statistic is
    named of, else the median, and no TTFT as one of 0. `requests`: each row is one, and so is its rate."""

    def figures(*columns):
        unknown = np.full(len(table), np.nan)
        return first(*(table[column].to_numpy(float) for column in columns if column in table), unknown)

    found = dict.fromkeys(FACTS, figures()) | {name: figures(column) for name, column in COLUMNS.items()}
    for name, time in TIMES.items():
        found[name] = figures(f"{time}_mean_s", f"{time}_s", f"{time}_p50_s")
    found |= dict.fromkeys(("both_tests", "speculative", "request"), np.zeros(len(table)))
    found["tokens"], found["ttft"] = first(found["tokens"], found["limit"]), np.nan_to_num(found["ttft"])
    if requests:
        found["user_rate"], found["rate"] = first(found["user_rate"], found["rate"]), figures()
        found["request"] = np.ones(len(table))
    if "sent_s" in table and len(table) > 4 and (begun := np.ptp(table["sent_s"].dropna())) > 0:
        found["requests_per_s"] = first(found["requests_per_s"], np.full(len(table), len(table) / begun))
    return found


FAR = 7.0  # of a natural logarithm, as far as a wrong unit is: more counts no more


@np.errstate(all="ignore")
def distance(f: Facts, identities: Sequence[Identity]) -> float:
    """Sum over the `identities` of how far the rows are from each: the median of logarithms, each at most
    FAR, and how far the rows are from it. A load is full but for a factor that is no unit's."""
    total = 0.0
    for one, ratios in zip(identities, quotients(f, identities)):
        logs = np.log(ratios[np.isfinite(ratios)]).clip(-FAR, FAR)
        if len(logs):
            far = float(np.median(logs))
            # A right unit fits all rows alike: lengths that are the most that was asked make one factor.
            apart = abs(far) + float(np.abs(logs - far).mean())
            total += max(far, 0.0) if one.most and not one.of_load else apart
    return total


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
