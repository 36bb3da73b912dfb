"""Times that cannot be: first tokens after the last, parts longer than the whole, figures of nothing,
percentiles that fall."""

import numpy as np
import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.checks.finding import CONTRADICTION, IMPOSSIBLE, Finding, check, count, levels, number
from llm_measured.audit.frame import Audited
from llm_measured.core import plausibility

ROUNDING = 0.02  # share by which published figures are rounded
TOKENS_CAME = ["output_tokens", "total_output_tokens", "output_tokens_per_s"]
SHORTEST_S = 5e-3  # of a first token: what is printed in longer steps may be rounded to 0
NOT_TIMED = "Time the first event that holds a token; leave out what was not timed."
EXCHANGED = "Columns were exchanged, or one of them has another unit."


def _backwards(file, sentence, change, **numbers):
    return Finding(f"{sentence}.", change, numbers=numbers, file=file)


@check(
    IMPOSSIBLE,
    "0 < TTFT <= e2e, of each request and of each statistic; a part <= the whole",
    "the definitions",
    (
        *("prompt_counted_as_output", "rate_against_times", "tpot_contains_ttft", "littles_law"),
        *("tokens_per_event", "unit_changed", "batch_time_as_request_time", "not_streamed", "plain_sums"),
    ),
)
def times_backwards(audited: Audited) -> Finding | None:
    """Times run backwards: a first token before the request, or after the last, or a time of nothing."""
    return _of_requests(audited) or _of_statistics(audited) or _no_time(audited) or _part_longer(audited)


def _of_requests(audited):
    """Negative times, and requests whose first token comes after the last."""
    rows = frame.rows(audited)
    whole = rows["e2e_s"].where(rows["scope"] == "request")
    wrong = plausibility.backwards(rows["ttft_s"], whole, 1e-6 + whole * 1e-6)
    wrong |= (rows[["tpot_s", "itl_s", "e2e_s"]] < 0).any(axis=1)
    if not wrong.any():
        return None
    what = f"in {count(int(wrong.sum()), 'row')} a time is negative or the first token comes after the last"
    change = "Two clocks were mixed, or columns exchanged."
    return _backwards(audited.first_file, f"Times run backwards: {what}", change, rows=int(wrong.sum()))


def first_after_last(level: pd.DataFrame) -> pd.DataFrame:
    """Which levels have a TTFT above the same statistic of their e2e, which no order of requests gives; one
    row per level, one column per statistic."""
    found = {}
    for q in filter(None, frame.STATISTICS):
        last = level[f"e2e{q}_s"]
        found[q] = plausibility.backwards(level[f"ttft{q}_s"], last, ROUNDING * last)
    return pd.DataFrame(found)


def _of_statistics(audited):
    level = audited.levels
    for q, hit in first_after_last(level).items():
        if hit.any():
            first, last = level[f"ttft{q}_s"], level[f"e2e{q}_s"]
            k = (first / last).where(hit).idxmax()
            what = f"the {q[1:]} of TTFT is {number(first[k] * 1e3)} ms, and that of the whole answer"
            sentence = f"Times run backwards: {what} {number(last[k] * 1e3)} ms{levels(hit)}"
            return _backwards(level.at[k, "file"], sentence, EXCHANGED, ttft_s=first[k], e2e_s=last[k])
    return None


def _no_time(audited):
    """First tokens or whole answers that took no time at all, though tokens came."""
    level = audited.levels
    whole = level[["ttft_mean_s", "ttft_p99_s", "e2e_mean_s", "e2e_s", "e2e_p50_s"]].max(axis=1)
    nothing = (level[TOKENS_CAME] > 0).any(axis=1) & ~(whole > 0)
    for time in ("ttft", "e2e"):
        columns = [f"{time}{q}_s" for q in ("_p50", "_mean", "")]
        if not (level[columns] == 0).any(axis=None):
            continue
        # Zeros alone do not show how finely they were printed.
        fine = ~(audited.step(*columns) >= SHORTEST_S)
        fine |= nothing & ~level["file"].map(lambda file: any((file, c) in audited.printed for c in columns))
        for column, what in zip(columns, ("median", "mean", "figure"), strict=True):
            hit = (level[column] == 0) & ((whole > SHORTEST_S) | nothing) & fine
            if not hit.any():
                continue
            k = whole.where(hit, -1.0).idxmax()
            of_half = ": at least half of them were not timed" if what == "median" else ""
            beside = f"where other times of the same answers go up to {number(whole[k] * 1e3)} ms{of_half}"
            if nothing[k]:
                beside = "and so is every other time of them, though tokens came: nothing was timed"
            sentence = f"The {what} of {time.upper()} is 0, {beside}{levels(hit)}"
            return _backwards(level.at[k, "file"], sentence, NOT_TIMED, rows=int(hit.sum()))
    rows = audited.good()
    none = (rows["ttft_s"] == 0) & (rows["output_tokens"] > 0)
    if not none.any() or none.all() or not rows["ttft_s"].max() > SHORTEST_S:
        return None
    sentence = (
        f"{count(int(none.sum()), 'TTFT')} of {len(rows)} are 0, though tokens came: they were not timed"
    )
    return _backwards(audited.first_file, sentence, NOT_TIMED, rows=int(none.sum()))


def _part_longer(audited):
    """Reading the prompt or generating that took longer than the whole answer."""
    for rows in (audited.good(), audited.levels):
        whole = rows["e2e_s"].fillna(rows["e2e_mean_s"]) if "e2e_mean_s" in rows else rows["e2e_s"]
        for part, what in (("decode_s", "generating"), ("prefill_s", "reading the prompt")):
            hit = rows[part] > (1 + ROUNDING) * whole
            if hit.any():
                k = (rows[part] / whole).where(hit).idxmax()
                took = f"{what} took {number(rows.at[k, part], 5)} s of an answer of {number(whole[k])} s"
                more = f" ({int(hit.sum())} rows)" if hit.sum() > 1 else ""
                change = "One of the two has another unit, or was read from another line."
                sentence = f"A part is longer than the whole: {took}{more}"
                return _backwards(audited.first_file, sentence, change, part_s=rows.at[k, part])
    return None


@check(
    CONTRADICTION,
    "min <= p50 <= p90 <= p95 <= p99 <= max, and min <= mean <= max",
    "the definitions of percentile and mean",
)
def percentiles_out_of_order(audited: Audited) -> Finding | None:
    """A higher percentile is smaller than a lower one, or a mean lies outside of its own range."""
    for time in frame.TIMES:
        columns = [f"{time}{q}_s" for q in ("_min", "_p50", "_p90", "_p95", "_p99", "_max")]
        if not audited.levels_have(*columns):
            continue
        table = audited.levels[columns].to_numpy(float)
        wrong = plausibility.out_of_order(table, 1e-9, relative=1e-6)
        if wrong.any():
            row, place = np.argwhere(wrong)[0]
            lower = np.nanmax(table[row, :place])
            name = columns[place].removesuffix("_s").rpartition("_")[2]
            what = f"The {name} of {time.upper()}, {number(table[row, place] * 1e3)} ms"
            sentence = f"{what}, is below a lower percentile, {number(lower * 1e3)} ms."
            change = "Figures of several runs were mixed, or columns were exchanged."
            return Finding(sentence, change, numbers={"time": time})
        mean = audited.levels[f"{time}_mean_s"].to_numpy(float)
        step = np.nan_to_num(audited.step(f"{time}_mean_s", columns[0], columns[-1]).to_numpy(float))
        outside = (mean > table[:, -1] * 1.0001 + step) | (mean < table[:, 0] * 0.9999 - step)
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            ends = f"{number(table[row, 0] * 1e3)} to {number(table[row, -1] * 1e3)} ms"
            sentence = f"The mean of {time.upper()}, {number(mean[row] * 1e3)} ms, lies outside of {ends}."
            change = "One of the three is of other requests."
            return Finding(sentence, change, numbers={"time": time})
    return None
