"""Contradictions between rates, times and load that no particular mistake explains."""

import numpy as np
import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.checks import accounts
from llm_measured.audit.checks.finding import CONTRADICTION, Finding, check, count, levels, number
from llm_measured.audit.frame import Audited
from llm_measured.core import plausibility

LITTLE = "Little, A proof for the queuing formula L = lambda W (1961)"
RATES = "requests_per_s", "duration_s", "output_tokens_per_s"  # one of them gives the rate of requests
PAUSED = 0.25  # share of the time in which a client that sends one request at a time waits for an answer
ABOVE = 1.10  # more requests under way than the client allows, by means


@check(
    CONTRADICTION,
    "tokens/s = requests at once x tokens / (TTFT + TPOT x (tokens - 1))",
    "the definitions of the three",
)
def rate_against_times(audited: Audited) -> Finding | None:
    """Tokens per second, TPOT and TTFT of the same answers do not fit each other."""
    return next((found for rows in accounts.tables(audited) if (found := _misfit(audited, rows))), None)


def _misfit(audited, rows):
    """The finding in one table of `accounts.tables`, None where there is none."""
    at_once = rows["batch_size"].fillna(rows["concurrency"].where(rows["concurrency"] == 1))
    idle = rows["batch_size"].isna()  # between requests one at a time there may be pauses and failed ones
    by_parts = plausibility.whole_s(rows["ttft_s"], rows["tpot_s"], rows["output_tokens"])
    whole = rows["e2e_s"].fillna(by_parts)
    rate = rows["request_tokens_per_s"]
    if "output_tokens_per_s" in rows:
        rate = rate.fillna(rows["output_tokens_per_s"] / at_once)
        idle &= rows["request_tokens_per_s"].isna()
    ratio = rate * whole / rows["output_tokens"]
    # No pause between requests explains a rate so far below, unless the client offered no more.
    offered = rows["requests_per_s"] if "requests_per_s" in rows else pd.Series(np.nan, rows.index)
    paused = idle & ~((ratio < PAUSED) & offered.isna())
    ratio = ratio.where(~paused | (ratio > 1))
    parts = by_parts / rows["e2e_s"]
    if "blur" in rows:  # few short answers with slow paces lift a mean that says nothing of the time of all
        parts = parts.where(~((parts - 1).abs() < accounts.BLURRED * rows["blur"]))
    for quotient, sentence in (
        (ratio, "tokens/s times an answer's time is {} times its tokens"),
        (parts, "TTFT and TPOT add up to {} times the e2e"),
    ):
        quotient = quotient[np.isfinite(quotient)]
        limit = 0.05 if (rows["scope"] == "request").all() else 0.25
        if len(quotient) and abs(np.log(quotient.median())) > limit:
            middle = quotient.median()
            k = (quotient / middle - 1).abs().idxmin()
            parts_named = (
                f"{number(rate[k])} tokens/s, {number(whole[k])} s and "
                f"{number(rows.at[k, 'output_tokens'], 6)} tokens"
                if quotient.equals(ratio[quotient.index])
                else f"a TTFT of {number(rows.at[k, 'ttft_s'] * 1e3)} ms, a TPOT of "
                f"{number(rows.at[k, 'tpot_s'] * 1e3)} ms and an e2e of {number(rows.at[k, 'e2e_s'])} s"
            )
            rows_named = f" (median of {count(len(quotient), 'row')})" if len(quotient) > 1 else ""
            return Finding(
                "rate_against_times",
                CONTRADICTION,
                audited.first_file,
                f"Rates and times do not fit: {sentence.format(number(middle))}{rows_named}. {parts_named} "
                "cannot all be of the same answers.",
                {"quotient": float(middle)},
                "One of the three was measured on other requests, or counts other tokens.",
            )
    return None


@check(CONTRADICTION, "requests/s x e2e <= concurrency", LITTLE)
def littles_law(audited: Audited) -> Finding | None:
    """More requests are under way, by rate and latency, than the client allows at once."""
    if not audited.levels_have("concurrency") or not audited.levels_have(*RATES):
        return None
    level = audited.levels
    under_way = requests_under_way(audited)
    beyond = (under_way / level["concurrency"] / tolerated(level)).where(level["concurrency"] > 1)
    if not (beyond > 1).any():
        return None
    row = level.loc[beyond.idxmax()]
    return Finding(
        "littles_law",
        CONTRADICTION,
        audited.first_file,
        f"Little's law: rate times latency puts {number(under_way[beyond.idxmax()])} requests under way "
        f"where the client allows {number(row['concurrency'], 5)} at once{levels(beyond > 1)}.",
        {"under_way": float(under_way[beyond.idxmax()]), "concurrency": float(row["concurrency"])},
        "The latency, the rate or the concurrency belongs to another run.",
    )


def tolerated(level: pd.DataFrame) -> pd.Series:
    """How many times the requests that a client allows may be under way by means: more where an answer's
    time is a mean pace times a mean length, which is no mean time where both vary."""
    stated = level[["e2e_mean_s", "e2e_s", "e2e_p50_s"]].notna().any(axis=1)
    blur = accounts.BLURRED * accounts.spread(level, "tpot").clip(upper=0.5).fillna(0)
    return ABOVE + blur.where(~stated, 0)


def requests_under_way(audited: Audited) -> pd.Series:
    """Mean number of requests under way in each level, by Little's law from its rate and latency; NaN where
    either is absent."""
    level = audited.levels
    rate = (
        level["requests_per_s"]
        .fillna(level["requests"] / level["duration_s"])
        .fillna(level["output_tokens_per_s"] / level["output_tokens"])
    )
    parts = frame.centre(level, "ttft"), frame.centre(level, "tpot")
    times = plausibility.whole_s(*parts, level["output_tokens"])
    means = level["ttft_mean_s"].fillna(level["ttft_s"]), level["tpot_mean_s"].fillna(level["tpot_s"])
    mean = (
        level["e2e_mean_s"]
        .fillna(level["e2e_s"])
        .fillna(plausibility.whole_s(*means, level["output_tokens"]))
    )
    # Medians add up worse than a median of the whole.
    mean = mean.fillna(level["e2e_p50_s"]).fillna(times)
    own = audited.good().groupby("level")["e2e_s"].mean()
    return rate * mean.fillna(level["level"].map(own))


@check(CONTRADICTION, "min <= p50 <= p90 <= p95 <= p99 <= max", "the definition of a percentile")
def percentiles_out_of_order(audited: Audited) -> Finding | None:
    """A higher percentile is smaller than a lower one."""
    order = "_min", "_p50", "_p90", "_p95", "_p99", "_max"
    for time in frame.TIMES:
        columns = [f"{time}{q}_s" for q in order]
        if not audited.levels_have(*columns):
            continue
        spread = audited.levels[columns].to_numpy(float)
        wrong = plausibility.out_of_order(spread, 1e-9, relative=1e-6)
        if wrong.any():
            row, place = np.argwhere(wrong)[0]
            highest = np.nanmax(spread[row, :place])
            return Finding(
                "percentiles_out_of_order",
                CONTRADICTION,
                audited.first_file,
                f"The {order[place][1:]} of {time.upper()}, {number(spread[row, place] * 1e3)} ms, is "
                f"below a lower percentile, {number(highest * 1e3)} ms.",
                {"time": time},
                "Figures of several runs were mixed, or columns were exchanged.",
            )
    return None
