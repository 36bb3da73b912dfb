"""Contradictions of pace: what a TPOT contains, and what a gap between tokens is."""

import numpy as np
import pandas as pd

from llm_measured.audit import catalog, frame
from llm_measured.audit.checks import accounts
from llm_measured.audit.checks.finding import CONTRADICTION, Finding, check, count, number
from llm_measured.audit.frame import Audited

MLPERF = "MLPerf Inference and vLLM define TPOT = (e2e - TTFT) / (output tokens - 1)"
# share of an answer's time from which a TTFT shows in a TPOT: in several rows, in one
VISIBLE_AMONG, VISIBLE_ALONE = 0.015, 0.04
VISIBLE_EACH = 0.0025  # in requests of their own, whose times were rounded and not averaged
WAITED = 0.1  # share of an answer's time from which a TTFT is a queue's rather than a prompt's
# rows of a TTFT of at least that share, whose TPOT times their tokens is the whole within that much
AGREEING, PLAIN, AGREED = 5, 0.05, 0.02
TIMES_LONGER = 1.5  # a gap is read as several tokens' from here on


@check(
    CONTRADICTION,
    "TPOT x tokens = e2e, and TTFT + TPOT x (tokens - 1) exceeds e2e by the TTFT",
    MLPERF,
    ("rate_against_times", "tokens_per_event", "littles_law", "client_queue"),
)
def tpot_contains_ttft(audited: Audited) -> Finding | None:
    """TPOT contains the TTFT: it is the whole answer's time over its tokens."""
    return next((found for rows in accounts.tables(audited) if (found := _ttft_inside(audited, rows))), None)


def contains_ttft(rows: pd.DataFrame) -> pd.Series:
    """Of rows of `accounts.tables`: which ones have a TPOT that holds the TTFT, where that would show."""
    visible, hit = within(rows)
    return visible & hit


@np.errstate(all="ignore")
def within(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Of rows of `accounts.tables`: (those in which a TTFT within the TPOT would show, those in which it
    seems to be within)."""
    ttft, tpot, tokens, *wholes = (
        rows[column].to_numpy(float)
        for column in ("ttft_s", "tpot_s", "output_tokens", "e2e_s", "gap_whole_s", "whole_s")
    )
    whole, of_request = frame.first(*wholes), (rows["scope"] == "request").to_numpy()
    good = (tokens > 2) & (tpot > 0) & (ttft > 0) & (whole > 0)
    share = ttft / whole
    # 0 where TPOT is without the TTFT, and below it 0 where the TTFT is within
    apart = (ttft + tpot * (tokens - 1)) / whole - 1
    together = tpot * tokens / whole - 1  # 0 where it is within
    expected = share - tpot / whole  # of `apart`, where it is within
    least = VISIBLE_AMONG if good.sum() >= 3 else VISIBLE_ALONE
    least = VISIBLE_EACH if good.sum() >= 8 and of_request.all() else least
    visible = good & (expected > least) & (share < 1)
    if "blur" in rows:  # a mean of paces times a mean length is no mean time where both scatter
        plain = good & (expected > PLAIN) & (share < 1)
        agree = (np.abs(together[plain]) < AGREED).mean() if plain.sum() >= AGREEING else 0.0
        if agree < 0.8:  # where so many rows come out the same, it is no scatter
            visible &= ~(expected < accounts.BLURRED * rows["blur"].to_numpy(float))
    # With the TTFT inside, short answers lift the mean of many paces above the time over the tokens. Below it
    # by more than rounding is a mean in which long answers, or late ones, had the slower pace.
    below = expected * np.where(~of_request & (expected > WAITED), 0.15, 0.35)
    hit = visible & (0.65 * expected <= apart) & (apart <= 1.5 * expected)
    hit &= (-below < together) & (together < 0.35 * expected)
    return pd.Series(visible, rows.index), pd.Series(hit, rows.index)


def _ttft_inside(audited, rows):
    """The finding in one table of `accounts.tables`, None where there is none."""
    visible, hit = within(rows)
    if visible.sum() == 0 or hit.sum() < 0.7 * visible.sum():
        return None
    rows = rows.assign(whole_s=rows["e2e_s"].fillna(rows["gap_whole_s"]).fillna(rows["whole_s"]))
    share = rows["ttft_s"] / rows["whole_s"]
    middle = rows[hit].median(numeric_only=True)
    proper = (middle["whole_s"] - middle["ttft_s"]) / (middle["output_tokens"] - 1)
    return Finding(
        "tpot_contains_ttft",
        CONTRADICTION,
        audited.first_file,
        f"TPOT contains the TTFT: {number(middle['tpot_s'] * 1e3)} ms x {number(middle['output_tokens'], 5)} "
        f"tokens is the whole answer's {number(middle['whole_s'])} s, {number(middle['ttft_s'] * 1e3)} ms of "
        f"TTFT included (medians of {count(int(hit.sum()), 'row')}).",
        {"tpot_ms": float(middle["tpot_s"] * 1e3), "ttft_share": float(share[hit].median())},
        f"Take the TTFT out: TPOT becomes {number(proper * 1e3)} ms.",
        {"tpot_ms": float(proper * 1e3)},
    )


@check(
    CONTRADICTION,
    "gaps x (tokens - 1) / time after the first token = k, and k >= 1.5",
    "vLLM: ITL is the gap of events, TPOT that of tokens",
    (
        "rate_against_times",
        "bandwidth_beyond_device",
        "client_queue",
        "littles_law",
    ),
)
def tokens_per_event(audited: Audited) -> Finding | None:
    """Events of several tokens are read as single tokens: a gap is several tokens long."""
    named = audited.levels[["option", "name", "engine", "model"]].agg(" ".join, axis=1)
    if named.map(catalog.speculative).any() or (audited.requests["drafted_tokens"] > 0).any():
        return None
    tables = accounts.tables(audited) or [frame.rows(audited).assign(whole_s=np.nan, independent=False)]
    return next((found for rows in tables if (found := _long_gaps(audited, rows))), None)


def _long_gaps(audited, rows):
    """The finding in one table of `accounts.tables`, None where there is none."""
    arrived = (rows["gaps"] + 1).fillna(rows["events"])
    # What a closed loop implies is no time of an answer where the loop itself is in doubt.
    stated = rows["e2e_s"].notna() | rows["tpot_s"].isna()
    after = rows["whole_s"].where(rows["independent"] & stated) - rows["ttft_s"]
    step = rows["itl_s"].fillna(rows["tpot_s"])
    factors = [
        (rows["output_tokens"] / arrived, "came in"),
        (rows["itl_s"] / rows["tpot_s"], "have gaps"),
        ((step * (rows["output_tokens"] - 1) / after).where(after > 0), "have gaps"),
    ]
    for factor, how in factors:
        factor = factor[np.isfinite(factor)]
        if len(factor) and factor.median() >= TIMES_LONGER and (factor >= TIMES_LONGER).mean() >= 0.7:
            return _event_finding(audited, rows, float(factor.median()), how)
    return None


def _event_finding(audited, rows, k, how):
    gap = rows["itl_s"].fillna(rows["tpot_s"]).median()
    fact = (
        f"events of about {number(k)} tokens each"
        if how == "came in"
        else f"{number(k)} times as long as their tokens' own pace"
    )
    undone = {"gap_ms": float(gap * 1e3 / k)} if np.isfinite(gap) else {}
    return Finding(
        "tokens_per_event",
        CONTRADICTION,
        audited.first_file,
        f"Several tokens per event are read as one gap: answers of "
        f"{number(rows['output_tokens'].median(), 5)} tokens {how} {fact}.",
        {"tokens_per_event": k, "gap_ms": float(gap * 1e3)},
        f"Divide by the tokens of an event: the gap becomes {number(gap * 1e3 / k)} ms."
        if undone
        else "Count tokens, not events.",
        undone,
    )
