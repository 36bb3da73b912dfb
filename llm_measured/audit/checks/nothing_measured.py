"""Figures of nothing: a run in which every request failed, a first token that came with the last, a clamped
figure, two rates that are one."""

import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.checks.finding import CONTRADICTION, Finding, check, count, levels, number
from llm_measured.audit.frame import Audited
from llm_measured.core.plausibility import digits

FASTEST_S = 1e-4  # no engine takes less for a token of one request
FEWEST_TOKENS = 16  # of an answer whose steps would show
CLAMPED = 3  # rows with other labels from which one round figure is a limit
ROUND_DIGITS, FINE = 1, 1e-3  # a round figure has one digit, where others are printed so much finer


@check(
    CONTRADICTION,
    "completed requests = 0, and some were sent or failed",
    "a time or rate of no request is no result; er0080/vllm-benchmarking",
    (
        "plain_sums",
        "percentile_from_too_few",
        "times_backwards",
        "empty_answer_in_mean",
        "rate_against_times",
        "overload",
    ),
)
def no_result(audited: Audited) -> Finding | None:
    """A run in which every request failed has figures."""
    hit = failed_wholly(audited)
    if not hit.any():
        return None
    level = audited.levels
    k = level["failed"].where(hit).fillna(level["asked"]).idxmax()
    n = level["failed"].fillna(level["asked"])[k]
    some = f" in {int(hit.sum())} of {count(len(level), 'level')}" if len(level) > 1 else ""
    return Finding(
        "no_result",
        CONTRADICTION,
        level.at[k, "file"],
        f"No result{some}: all {number(n, 6)} requests failed, so the file's times and rates are of nothing.",
        {"failed": float(n)},
        "Read the client's errors, and measure again.",
        levels=[float(one) for one in level.loc[hit, "level"]],
    )


def failed_wholly(audited: Audited) -> pd.Series:
    """Which levels completed no request, though some were sent."""
    level = audited.levels
    sent = (level["failed"] > 0) | (level["asked"] > 0)
    own = level["level"].isin(audited.good()["level"])
    return (level["requests"] == 0) & sent & ~own


@check(
    CONTRADICTION,
    "(e2e - TTFT) / (tokens - 1) < 0.1 ms, of answers of 16 tokens and more; or the shortest TPOT < 0.1 ms "
    "where no answer took less than a quarter of the median",
    "a first token that comes with the last was not streamed; modelscope/evalscope issue 407",
    (
        "rate_against_times",
        "tpot_contains_ttft",
        "tokens_per_event",
        "prefix_cache",
        "plain_sums",
        "bandwidth_beyond_device",
        "batch_time_as_request_time",
        "prompt_counted_as_output",
        "cached_answer_in_mean",
    ),
)
def not_streamed(audited: Audited) -> Finding | None:
    """The first token came with the last: answers were not streamed, and TTFT and TPOT are no times of
    tokens."""
    rows = frame.rows(audited)
    rows = rows[(rows["output_tokens"] >= FEWEST_TOKENS) & (rows["ttft_s"] > 0) & (rows["e2e_s"] > 0)]
    after = (rows["e2e_s"] - rows["ttft_s"]) / (rows["output_tokens"] - 1)
    # A first token later than the last is another mistake.
    hit = (after < FASTEST_S) & (after > -FASTEST_S)
    if len(rows) == 0 or hit.mean() < 0.5:
        return _some_in_one_lump(audited)
    k = rows["output_tokens"].where(hit).idxmax()
    stated = rows["tpot_s"][hit].dropna()
    pace = f", and a TPOT of {number(stated.iloc[0] * 1e3)} ms is no pace" if len(stated) else ""
    return Finding(
        "not_streamed",
        CONTRADICTION,
        audited.first_file,
        f"Answers were not streamed: TTFT is {number(rows.at[k, 'ttft_s'], 4)} s and e2e "
        f"{number(rows.at[k, 'e2e_s'], 4)} s, with {number(rows.at[k, 'output_tokens'], 5)} tokens between"
        f"{levels(hit)}{pace}.",
        {"rows": int(hit.sum())},
        'Ask for a stream ("stream": true), or leave TTFT and TPOT empty.',
    )


def _some_in_one_lump(audited):
    """The same of single answers, from published minima: a TPOT that no engine has, though no answer was
    short as a cached one is."""
    level = audited.levels
    usual = level["e2e_min_s"] >= level["e2e_p50_s"] / 4
    hit = (level["tpot_min_s"] < FASTEST_S) & (level["output_tokens"] >= FEWEST_TOKENS) & usual
    if not hit.any():
        return None
    k = level["tpot_min_s"].where(hit).idxmin()
    return Finding(
        "not_streamed",
        CONTRADICTION,
        level.at[k, "file"],
        f"Some answers came in one lump: the shortest TPOT is {number(level.at[k, 'tpot_min_s'] * 1e3)} ms, "
        f"which no engine has, and no answer took less than {number(level.at[k, 'e2e_min_s'] * 1e3)} ms"
        f"{levels(hit)}. The client saw their first token late: their TTFT and TPOT are no times of tokens.",
        {"tpot_min_s": float(level.at[k, "tpot_min_s"]), "e2e_min_s": float(level.at[k, "e2e_min_s"])},
        "Publish e2e and tokens/s alone, or read the stream faster and measure again.",
        levels=[float(one) for one in level.loc[hit, "level"]],
    )


@check(
    CONTRADICTION,
    "one round figure (one digit, printed to a thousandth and finer) is the highest rate or time of three "
    "rows and more with other labels",
    "a clock of 1 ms turns 0.8 ms into 1,000 tokens/s; guruswami-ai/mlx-benchmarks",
    ("same_run_twice", "copied_rows", "bandwidth_beyond_device"),
)
def clamped_figure(audited: Audited) -> Finding | None:
    """A figure is a limit of the clock or of a timeout, and no measurement."""
    level = audited.levels
    names = [c for c in level if c.startswith(("output_tokens_per_s", "request_tokens_per_s"))]
    times = [f"e2e{q}_s" for q in ("", "_mean", "_p50")]
    for column in filter(audited.levels_have, [*names, "prompt_tokens_per_s", *times]):
        values = level[column]
        most = values.max()
        hit = values == most
        labels = level.loc[hit, ["model", "weights", "option", "engine", "gpu"]].drop_duplicates()
        # The column's own printing, since what is stored no longer shows the zeros.
        fine = audited.step(column)[hit].max() <= FINE * 10 * most if hit.any() else False
        if hit.sum() >= CLAMPED and len(labels) >= CLAMPED and digits(most) <= ROUND_DIGITS and fine:
            return _clamped(audited, column, most, hit)
    return None


def _clamped(audited, column, most, hit):
    rate = "per_s" in column
    shown = f"{number(most, 6)} tokens/s" if rate else f"{number(most, 6)} s"
    why = f"a clock of {number(1e3 / most)} ms a token" if rate else "the limit of a client or of a server"
    return Finding(
        "clamped_figure",
        CONTRADICTION,
        audited.first_file,
        f"A figure is a limit, not a measurement: {int(hit.sum())} rows with other labels have {shown} to "
        f"every digit printed, the most of the file, as from {why}.",
        {"rows": int(hit.sum()), "figure": float(most)},
        "Measure longer answers, with a finer clock, or leave these rows out.",
        levels=[float(one) for one in audited.levels.loc[hit, "level"]],
    )


@check(
    CONTRADICTION,
    "prompt tokens/s = output tokens/s to every digit, in two rows and more, where lengths or times differ",
    "a prompt is read many times as fast as an answer is generated; "
    "Lukasilvestre/jetson-llm-performance-analysis",
)
def same_rate_twice(audited: Audited) -> Finding | None:
    """The rate of reading the prompt and that of generating are one figure."""
    if not audited.levels_have("prompt_tokens_per_s"):
        return None
    rows = audited.levels
    decode = rows["output_tokens_per_s"].fillna(rows["request_tokens_per_s"])
    decode = decode.fillna(1 / rows["tpot_s"]).fillna(1 / rows["tpot_mean_s"])
    prompt = rows["prompt_tokens_per_s"]
    known = prompt.notna() & decode.notna() & (rows["prompt_tokens"] != rows["output_tokens"])
    hit = known & ((prompt / decode - 1).abs() < 1e-6) & (prompt.map(digits) >= 3)
    if hit.sum() < 2 or hit.sum() < 0.5 * known.sum():
        return None
    return Finding(
        "same_rate_twice",
        CONTRADICTION,
        rows["file"].iloc[0],
        f"Prompt and output have one rate to every digit: {number(prompt[hit].iloc[0], 4)} tokens/s, and the "
        f"same in {int(hit.sum())} of {count(int(known.sum()), 'row')}.",
        {"rows": int(hit.sum())},
        'One line was read for both: "eval rate" is also the end of "prompt eval rate".',
    )
