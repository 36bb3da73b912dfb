"""Contradictions of plain arithmetic: sums of one file that do not add up, and figures under another's
name."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from llm_measured.audit import catalog, frame
from llm_measured.audit.checks.finding import CONTRADICTION, Finding, check, count, levels, number
from llm_measured.audit.frame import Audited
from llm_measured.core.plausibility import digits

EXACT, ROUNDED = 0.025, 0.06  # how far a tool's own sums may be apart, and those of a table made by hand
BY_HAND = ("CSV in the study's words", "JSON in the study's words")
# Tools whose rates are means over windows of time.
WINDOWS = {"GuideLLM": 0.12, "AIPerf / GenAI-Perf": 0.06, "inference-perf": 0.06, "this study": 0.12}
IDLE = 0.75, 1.06  # share of a closed loop's places that are busy
COMPLETED = "completed + failed = asked"
SCATTERED = 0.25  # share by which the samples' rate and time may differ
SAMPLES = "tokens/s x mean time of its samples = tokens"
SCOPE = 0.04  # how far a rate may be from a whole multiple of another


@np.errstate(all="ignore")
def identities(audited: frame.Audited) -> pd.DataFrame:
    """One row per level and sum that it has all parts of: level, file, name, quotient (1 where it adds up),
    tolerance, and the published and the computed figure."""
    level, known = audited.levels, audited.figures()
    rate, per_s, duration = known["output_tokens_per_s"], known["requests_per_s"], known["duration_s"]
    requests, tokens, prompt = known["requests"], known["output_tokens"], known["prompt_tokens"]
    total = frame.first(known["total_output_tokens"], requests * tokens)
    both = known["total_output_tokens"] + known["total_prompt_tokens"]
    either = frame.first(rate, known["prompt_tokens_per_s"], known["total_tokens_per_s"])
    counted = frame.first(frame.where(tokens > 0, tokens), prompt)
    counted = frame.where(level["name"] != "pp+tg", counted)
    alone = frame.where(np.isnan(duration), rate)
    sums = [
        ("output tokens/s x duration = output tokens", rate, total / duration),
        ("requests/s x duration = completed requests", per_s, requests / duration),
        ("output tokens/s = requests/s x tokens of an answer", alone, per_s * tokens),
        ("all tokens/s x duration = prompt + output tokens", known["total_tokens_per_s"], both / duration),
        (COMPLETED, requests + known["failed"], known["asked"]),
        ("tokens/s = mean of its samples", either, known["sample_tokens_per_s"]),
        (SAMPLES, either, counted / known["sample_s"]),
        ("output tokens = completed x mean tokens", known["total_output_tokens"], requests * tokens),
    ]
    names, *figures = zip(*sums, *_of_requests(audited))
    published, computed = map(np.array, figures)  # one row per sum, one column per level
    compared = (computed > 0) & np.isfinite(computed) & (published >= 0)
    # A mean of rates is never below the rate of the mean time, and above it as far as the samples scatter.
    k = names.index(SAMPLES)
    compared[k] &= ~((published[k] > (1 + SCATTERED) * computed[k]) & (known["sample_tokens_per_s"] > 0))
    which, row = np.nonzero(compared)
    name = np.array(names)[which]
    published, computed = published[which, row], computed[which, row]
    tolerance = level["tool"].map(_tolerance).to_numpy(float)[row]
    # A sample's rate is a mean of rates, and its time a mean of times: they differ by the samples' spread.
    tolerance = np.select([name == COMPLETED, name == SAMPLES], [1e-6, SCATTERED], tolerance)
    return pd.DataFrame(
        {
            "level": known["level"][row],
            "file": level["file"].to_numpy()[row],
            "name": name,
            "published": published,
            "computed": computed,
            "tolerance": tolerance,
            "quotient": published / computed,
        }
    )


# The figures of each sum, as many of them as the file states.
PARTS = {
    "output tokens/s x duration": "output_tokens_per_s duration_s total_output_tokens requests output_tokens",
    "requests/s x duration": "requests_per_s duration_s requests",
    "output tokens/s = requests/s": "output_tokens_per_s requests_per_s output_tokens",
    "all tokens/s x duration": "total_tokens_per_s duration_s total_output_tokens total_prompt_tokens",
    "tokens/s = mean": "output_tokens_per_s prompt_tokens_per_s sample_tokens_per_s",
    SAMPLES: "output_tokens_per_s prompt_tokens_per_s sample_s",
    "output tokens = completed": "total_output_tokens requests output_tokens",
}


def _rounded(audited, table):
    """How far each sum may be off because its figures are printed in steps: half a step of each."""
    level = audited.levels.set_index("level")
    off = pd.Series(0.0, table.index)
    for begins, columns in PARTS.items():
        rows = table.index[table["name"].str.startswith(begins)]
        for column in columns.split():
            if len(rows) and audited.levels_have(column):
                of_level = 0.5 * pd.Series(audited.step(column).to_numpy(), level.index) / level[column].abs()
                off[rows] += table.loc[rows, "level"].map(of_level).replace(np.inf, np.nan).fillna(0)
    return off


def _tolerance(tool):
    return ROUNDED if tool in BY_HAND else WINDOWS.get(tool, EXACT)


def _of_requests(audited):
    """Published means and medians against those of the requests in the same file, where all of them are
    there."""
    level, rows, known = audited.levels["level"], audited.good(), audited.figures()
    stated = [
        (time, q, statistic)
        for time in ("ttft", "tpot", "e2e")
        for q, statistic in (("mean", "mean"), ("p50", "median"))
        if not np.isnan(known[f"{time}_{q}_s"]).all()
    ]
    if not stated and np.isnan(known["total_output_tokens"]).all():
        return []
    whole = level.map(rows.groupby("level").size()) == known["requests"]
    out = []
    for time, q, statistic in stated:
        each = rows.groupby("level")[f"{time}_s"]
        full = whole & (level.map(each.count()) == known["requests"])
        own = level.map(each.agg(statistic)).where(full)
        out.append((f"{q} of {time.upper()} = that of the requests", known[f"{time}_{q}_s"], own))
    total = level.map(rows.groupby("level")["output_tokens"].sum(min_count=1)).where(whole)
    out.append(("output tokens = sum over the requests", known["total_output_tokens"], total))
    return out


@check(
    CONTRADICTION,
    "tokens/s x duration = tokens; requests/s x duration = completed; completed + failed = asked; a mean = "
    "that of its samples",
    "arithmetic",
)
def plain_sums(audited: Audited) -> Finding | None:
    """Sums of one file do not add up."""
    table = identities(audited)
    wrong = table[(table["quotient"] - 1).abs() > table["tolerance"]]
    if len(wrong):
        wrong = wrong[(wrong["quotient"] - 1).abs() > wrong["tolerance"] + _rounded(audited, wrong)]
    if wrong.empty:
        return None
    worst = wrong.loc[np.log(wrong["quotient"].clip(lower=1e-9)).abs().idxmax()]
    names = list(dict.fromkeys(wrong["name"]))
    more = f" Nor does: {'; '.join(n for n in names if n != worst['name'])}." if len(names) > 1 else ""
    return Finding(
        "plain_sums",
        CONTRADICTION,
        worst["file"],
        f"A sum does not add up: {worst['name']}, but {number(worst['published'], 5)} is published where the "
        f"file's other figures give {number(worst['computed'], 5)}, {number(worst['quotient'])} times it "
        f"({count(int(wrong['level'].nunique()), 'level')}).{more}",
        {"quotient": float(worst["quotient"])},
        "One of the figures was changed, or counts something else.",
    )


def rates_with_failed(levels: pd.DataFrame, failed: pd.Series) -> dict[str, tuple[pd.Series, pd.Series]]:
    """Name of a rate -> (how many times what the completed requests give it is, where that is the `failed`
    ones counted too), each one row per level."""
    factor = 1 + failed / levels["requests"]
    tokens = levels["total_output_tokens"].fillna(levels["requests"] * levels["output_tokens"])
    rates = {
        "requests/s": levels["requests_per_s"] * levels["duration_s"] / levels["requests"],
        "output tokens/s": levels["output_tokens_per_s"] * levels["duration_s"] / tokens,
        "requests/s by their tokens": levels["requests_per_s"]
        * levels["output_tokens"]
        / levels["output_tokens_per_s"],
    }
    shows = (failed > 0) & (factor > 1.004)
    return {
        name: (quotient, shows & ((quotient - 1) / (factor - 1)).between(0.9, 1.1))
        for name, quotient in rates.items()
    }


RATE_STEPS = 3  # printed steps by which a rate must differ before its failed requests show


def _printed(audited, name):
    """The step in which the rate called `name` is printed, as a share of it."""
    column = "output_tokens_per_s" if name.startswith("output") else "requests_per_s"
    return (audited.step(column) / audited.levels[column]).fillna(0)


@check(
    CONTRADICTION,
    "requests/s x duration = completed + failed, or output tokens/s = completed tokens/s x (completed + "
    "failed) / completed, and failed > 0",
    "throughput is of requests that were answered; gpustack issue 1677",
    ("plain_sums", "rate_against_times", "littles_law", "client_queue"),
)
def failed_counted_as_throughput(audited: Audited) -> Finding | None:
    """Failed or rejected requests are counted in the throughput."""
    if not audited.levels_have("requests"):
        return None
    level = audited.levels
    own = audited.requests[audited.requests["error"] != ""].groupby("level").size()
    asked = level["asked"] - level["requests"]
    failed = level["failed"].fillna(asked).fillna(level["level"].map(own))
    for name, (quotient, hit) in rates_with_failed(level, failed).items():
        factor = 1 + failed / level["requests"]
        hit = hit & (RATE_STEPS * _printed(audited, name) < factor - 1) if hit.any() else hit
        if hit.any():
            k = (failed / level["requests"]).where(hit).idxmax()
            return Finding(
                "failed_counted_as_throughput",
                CONTRADICTION,
                level.at[k, "file"],
                f"Failed requests are counted as throughput: {name} is {number(quotient[k], 4)} "
                f"times what the {number(level.at[k, 'requests'], 6)} completed requests give, and "
                f"{number(failed[k], 6)} failed.",
                {"quotient": float(quotient[k]), "failed": float(failed[k])},
                f"Count what was answered: divide by {number(factor[k], 4)}.",
            )
    return None


@check(
    CONTRADICTION,
    "tokens/s / (requests/s x tokens of an answer) = 1 / devices, devices, or 1 / concurrency; tokens/s of a "
    "request x its time / its tokens = devices or concurrency",
    "the definitions: of a request, of a device, of the system; tt-xla issue 5745",
    ("plain_sums", "rate_against_times", "littles_law", "client_queue", "tokens_per_event"),
)
def rate_of_other_scope(audited: Audited) -> Finding | None:
    """A rate of one request, of one device and of the whole system are confused."""
    rates = "output_tokens_per_s", "request_tokens_per_s", "request_tokens_per_s_mean"
    if not audited.levels_have(*rates) and audited.good()["request_tokens_per_s"].isna().all():
        return None
    level = audited.levels
    for quotient, hit, times, sentence in scopes(audited):
        known = np.isfinite(quotient)
        if hit.any() and hit.sum() >= 0.5 * known.sum():
            k = times.where(hit).idxmax()
            return Finding(
                "rate_of_other_scope",
                CONTRADICTION,
                level.at[k, "file"],
                f"Rates of a request, of a device and of the system are confused: the tokens/s "
                f"{sentence.format(number(times[k]))}, by the file's other figures "
                f"({count(int(hit.sum()), 'level')}).",
                {"times": float(times[k])},
                f"Name whose rate it is: it is off by {number(times[k])}.",
            )
    return None


def _counted(gpu):
    """The number of devices in a device's name, NaN where there is none."""
    return (catalog.device(gpu) or {}).get("count") or np.nan


def scopes(audited: Audited) -> Iterator[tuple[pd.Series, pd.Series, pd.Series, str]]:
    """Each way of confusing a request's, a device's and the system's rate: (quotient that is then 1, where
    it is, what the rate is off by, the sentence), one row per level."""
    level = audited.levels
    tokens, devices = level["output_tokens"], level["tensor_parallel"].fillna(level["gpu"].map(_counted))
    devices = devices.where(devices > 1)
    at_once = level["concurrency"].fillna(level["batch_size"])
    at_once = at_once.where(at_once > 1)
    total = level["total_output_tokens"].fillna(level["requests"] * tokens) / level["duration_s"]
    system = total.fillna(level["requests_per_s"] * tokens)
    own = audited.good()
    own = own.assign(pace=own["request_tokens_per_s"] * own["e2e_s"] / own["output_tokens"])
    pace = own[np.isfinite(own["pace"])].groupby("level")["pace"].median()
    whole = frame.centre(level, "e2e")
    whole = whole.fillna(frame.centre(level, "ttft") + frame.centre(level, "tpot") * (tokens - 1))
    single = level["request_tokens_per_s_mean"].fillna(level["request_tokens_per_s"])
    single = (single * whole / tokens).fillna(level["level"].map(pace))
    loop = (level["output_tokens_per_s"] * whole / tokens / at_once).where(system.isna())
    rate = level["output_tokens_per_s"] / system
    cases = [
        (rate * devices, SCOPE, devices, "is that of one of {} devices, called the system's"),
        (rate / devices, SCOPE, devices, "is the system's times its {} devices"),
        (rate * at_once, 0.15, at_once, "is that of one of {} requests at once, called the system's"),
        (loop * devices, 0.06, devices, "is that of one of {} devices, called the system's"),
        (loop / devices, 0.06, devices, "is the system's times its {} devices"),
        (loop * at_once, 0.1, at_once, "is that of one of {} requests at once, called the system's"),
        (single / at_once, 0.15, at_once, "of a request is that of all {} at once"),
        (single / devices, SCOPE, devices, "of a request is counted {} times, once for each device"),
        (single * devices, SCOPE, devices, "of a request is divided by {} devices"),
        (_all_busy(loop / devices, loop), 0.06, devices, "is the system's times its {} devices"),
        (_all_busy(loop * devices), 0.06, devices, "is that of one of {} devices, called the system's"),
    ]
    for quotient, tolerance, times, sentence in cases:
        yield (
            quotient,
            (np.log(quotient.where(quotient > 0)).abs() < tolerance) & (times > 1.5),
            times,
            sentence,
        )


def _all_busy(share, loop=None):
    """The `share` of a closed loop's places that are busy, where some are idle at its end, as if none were;
    nothing where a level among at least three has another."""
    known = share.dropna()
    busy = known.between(*IDLE) & (True if loop is None else loop > 1 / IDLE[0])
    return share.clip(lower=1.0) if len(known) >= 3 and busy.all() else share * np.nan


@check(
    CONTRADICTION,
    "median = mean to every digit where the requests differ; or the published median is the mean of the "
    "requests, and not their median",
    "the definitions of both; foundationdb pull request 13654",
    ("plain_sums", "percentiles_out_of_order"),
)
def mean_called_median(audited: Audited) -> Finding | None:
    """A mean is called a median."""
    level, rows = audited.levels, audited.good()
    for time in ("ttft", "tpot", "e2e", "itl"):
        if not audited.levels_have(f"{time}_p50_s"):
            continue
        mean, median = level[f"{time}_mean_s"], level[f"{time}_p50_s"]
        if time != "itl":
            each = rows.groupby("level")[f"{time}_s"]
            own_mean, own_median = (level["level"].map(x) for x in (each.mean(), each.median()))
            hit = ((median / own_mean - 1).abs() < 2e-3) & ((median / own_median - 1).abs() > 8e-3)
            hit &= level["level"].map(each.count()) >= 5
            if hit.any():
                k = hit.idxmax()
                return _median_finding(level, k, time, median[k], own_median[k])
        same = mean_and_median_alike(level, time)
        same = same & _beyond_chance(audited, time) if same.any() else same
        if same.any():
            return _median_finding(level, same.idxmax(), time, median[same.idxmax()], None)
    if not audited.levels_have("request_tokens_per_s_p50"):
        return None
    mean, median = level["request_tokens_per_s_mean"], level["request_tokens_per_s_p50"]
    same = ((mean / median - 1).abs() < 1e-6) & mean.map(digits).ge(4)
    same &= level["request_tokens_per_s_max"] / median > 1.03
    return _median_finding(level, same.idxmax(), "rate", median[same.idxmax()], None) if same.any() else None


MOSTLY = 0.9  # share of the rows in which a median that is a mean has to be one
CHANCE = 2.0  # decimal logarithm: so much rarer than by rounding must a mean be the median


def _beyond_chance(audited, time):
    """Which levels' mean and median of `time` coincide oftener than rounding makes them: of two requests
    they are one figure, and a column that is a mean coincides in all rows, not in some."""
    level = audited.levels
    mean, median = level[f"{time}_mean_s"], level[f"{time}_p50_s"]
    far = level[f"{time}_p99_s"].fillna(level[f"{time}_p95_s"]).fillna(level[f"{time}_p90_s"])
    wide = (far.fillna(level[f"{time}_max_s"]) - median).abs()
    known = mean.notna() & median.notna() & (wide > 0) & ~(level["requests"] <= 2)
    equal = known & ((mean / median - 1).abs() < 1e-6)
    # A mean lies within about half of that width around the median.
    chance = (audited.step(f"{time}_mean_s", f"{time}_p50_s") / (0.6 * wide)).clip(upper=1)[known]
    found, expected = int(equal.sum()), max(float(chance.sum()), 1e-12)
    if found <= expected or found < MOSTLY * known.sum():
        return equal & False
    rarer = found * np.log10(found / expected) - (found - expected) / np.log(10)  # Chernoff's bound
    return equal & (rarer > CHANCE)


def mean_and_median_alike(levels: pd.DataFrame, time: str) -> pd.Series:
    """Which levels give `time` (ttft, tpot, itl, e2e) a mean and a median equal to every digit, though a
    percentile says that the requests differ."""
    mean, median = levels[f"{time}_mean_s"], levels[f"{time}_p50_s"]
    far = levels[f"{time}_p99_s"].fillna(levels[f"{time}_p95_s"]).fillna(levels[f"{time}_p90_s"])
    far = far.fillna(levels[f"{time}_max_s"])
    return ((mean / median - 1).abs() < 1e-6) & (far / median > 1.03) & mean.map(digits).ge(4)


def _median_finding(level, k, time, published, proper):
    name = "tokens/s of a request" if time == "rate" else time.upper()
    shown = number(published, 5) if time == "rate" else f"{number(published * 1e3, 5)} ms"
    if proper is None:
        sentence = f"{shown} is both mean and median of {name}, to every digit, though the requests differ"
    else:
        sentence = (
            f"the median of {name} is given as {shown}, which is the mean of the file's requests; their "
            f"median is {number(proper * 1e3, 5)} ms"
        )
    return Finding(
        "mean_called_median",
        CONTRADICTION,
        level.at[k, "file"],
        f"A mean is called a median: {sentence}.",
        {"published": float(published)},
        "Publish the median itself, or call the figure a mean.",
        {} if proper is None else {f"{time}_ms": float(proper * 1e3)},
    )


RETOKENIZED = 0.25  # share by which a second count of the same text may be lower: other tokenizers, cut words
PEAK = 0.1  # share by which seconds that a client cuts out of a run may miss the mean
WINDOW_S = 3.0  # of a run at least, so that its fullest second is a whole one


@check(
    CONTRADICTION,
    "output tokens of the fullest second >= output tokens/s, of a run of 3 s and more; tokens counted again "
    "in the answers' text = those that were counted",
    "a maximum is never below its mean; sgl-project/sglang issue 12389, vllm-project/vllm issue 36272",
)
def counted_twice(audited: Audited) -> Finding | None:
    """A second count of the same tokens contradicts the first."""
    level, known = audited.levels, audited.figures()
    rate, peak = known["output_tokens_per_s"], known["peak_output_tokens_per_s"]
    tokens, again = known["total_output_tokens"], known["retokenized_output_tokens"]
    short = known["duration_s"] < WINDOW_S
    below = (peak < (1 - PEAK) * rate) & ~short
    fewer = again < (1 - RETOKENIZED) * tokens
    if fewer.any():
        hit, first, second = fewer, tokens, again
        words = "{} tokens were counted again in the text of the answers, where {} are published"
        change = "The answers held fewer tokens than were counted: publish what came, not what was asked."
    elif below.any():
        hit, first, second = below, rate, peak
        words = "The fullest second has {} output tokens, where the mean of all is {}"
        change = "One counts events and the other tokens, or tokens are counted that never came."
    else:
        return None
    k = int(np.nanargmin(np.where(hit, second / first, np.nan)))
    return Finding(
        "counted_twice",
        CONTRADICTION,
        level["file"].iloc[k],
        words.format(number(second[k], 6), number(first[k], 6)) + f"{levels(pd.Series(hit))}.",
        {"first": float(first[k]), "second": float(second[k])},
        change,
        levels=[float(one) for one in level.loc[hit, "level"]],
    )
