"""Contradictions of the load: the client's own queue inside the server's time, and prompts that were never
computed."""

import numpy as np

from llm_measured.audit import frame
from llm_measured.audit.checks import prefix
from llm_measured.audit.checks.contradictions import ABOVE, LITTLE, RATES, requests_under_way, tolerated
from llm_measured.audit.checks.finding import CONTRADICTION, Finding, check, count, levels, number
from llm_measured.audit.checks.impossible import too_fast_first_tokens
from llm_measured.audit.frame import Audited

LATE_SHARE = 0.10  # of the TTFT: how late the client may send, in the mean
LATE_LEAST_S = 0.005
LOWER = 2.5  # a group of TTFTs is apart from another from this ratio on


@check(
    CONTRADICTION,
    "requests/s x e2e > concurrency and the surplus fits into the TTFT; or more requests overlap than the "
    "client allows; or the client sends later than 10 % of the TTFT",
    LITTLE,
    ("littles_law", "rate_against_times", "overload", "cached_answer_in_mean"),
)
def client_queue(audited: Audited) -> Finding | None:
    """The client's own queue counts as the server's time."""
    found = _late(audited) or _overlapping(audited) or _beyond_concurrency(audited)
    if not found:
        return None
    sentence, numbers, change = found
    return Finding(
        "client_queue",
        CONTRADICTION,
        audited.first_file,
        sentence,
        numbers,
        change,
        numbers.pop("undone", {}),
    )


def _late(audited):
    level, own = audited.levels, audited.good()
    if not audited.levels_have("late_mean_s") and own["late_s"].isna().all():
        return None
    late, ttft = level["late_mean_s"].max(), frame.centre(level, "ttft").max()
    if own["late_s"].notna().any():
        means = own.groupby("level")[["late_s", "ttft_s", "e2e_s"]].mean()
        worst = (means["late_s"] / means["ttft_s"].fillna(means["e2e_s"])).idxmax()
        late, ttft = means.at[worst, "late_s"], means.loc[worst, ["ttft_s", "e2e_s"]].dropna().iloc[0]
    if not np.isfinite(ttft):
        ttft = frame.centre(level, "e2e").max()
    if not (late > LATE_LEAST_S and late > LATE_SHARE * ttft):
        return None
    less = max(ttft - late, 0)
    undone = {"ttft_ms": float(less * 1e3)} if less > 0 else {}
    change = (
        f"Count from the moment of sending: {number(ttft * 1e3)} ms become {number(less * 1e3)} ms where "
        f"the wait is within."
        if less > 0
        else (
            "Give the client more cores or processes, or lower the rate: what it did not send on time was "
            "another load."
        )
    )
    return (
        f"The client was late: it sent requests {number(late * 1e3)} ms after they were due (mean), where "
        f"the time measured is {number(ttft * 1e3)} ms.",
        {"late_ms": float(late * 1e3), "time_ms": float(ttft * 1e3), "undone": undone},
        change,
    )


def _overlapping(audited):
    """Levels of a closed loop in which more requests overlap in time than the client allows."""
    if not audited.levels_have("concurrency"):
        return None
    limits = audited.levels.set_index("level")["concurrency"]
    for rows in audited.by_level():
        limit, rows = limits.get(rows["level"].iloc[0], np.nan), rows.dropna(subset=["sent_s", "e2e_s"])
        if not limit >= 1 or len(rows) <= limit + 2:
            continue
        # A moment that is printed to the second or the minute may be so much later.
        coarse = next((unit for unit in (60, 1) if (rows["sent_s"] % unit == 0).all()), 0)
        begins, ends = np.sort(rows["sent_s"]), np.sort(rows["sent_s"] + rows["e2e_s"] * (1 - 1e-3) - coarse)
        at_once = np.arange(1, len(rows) + 1) - np.searchsorted(ends, begins, side="right")
        typical = float(np.median(at_once))
        if typical > limit * ABOVE + 0.5 and at_once.max() > limit + 1:
            share = 1 - limit / typical
            return (
                f"The client's queue counts as the server's time: by their times {number(typical)} "
                f"requests are under way at once (median), and the client allows {number(limit)}.",
                {"under_way": typical, "concurrency": float(limit)},
                f"Count from the moment of sending: about {share:.0%} of an answer's time was spent in "
                f"the client.",
            )
    return None


def _beyond_concurrency(audited):
    """Levels whose rate and latency put more requests under way than the client allows, by no more than the
    TTFT explains."""
    if not audited.levels_have("concurrency") or not audited.levels_have(*RATES):
        return None
    level = audited.levels
    under_way = requests_under_way(audited)
    own = audited.good().groupby("level")["ttft_s"].mean()
    ttft = (
        level["ttft_mean_s"]
        .fillna(level["ttft_s"])
        .fillna(level["ttft_p50_s"])
        .fillna(level["level"].map(own))
    )
    rate = (
        level["requests_per_s"]
        .fillna(level["requests"] / level["duration_s"])
        .fillna(level["output_tokens_per_s"] / level["output_tokens"])
    )
    surplus = (under_way - level["concurrency"]) / rate
    hit = (
        (under_way > tolerated(level) * level["concurrency"])
        & (level["concurrency"] >= 1)
        & (surplus <= 1.05 * ttft)
    )
    if not hit.any():
        return None
    k = (under_way / level["concurrency"]).where(hit).idxmax()
    proper = max(ttft[k] - surplus[k], 0) * 1e3
    return (
        f"The client's queue counts as the server's time: {number(rate[k])} requests/s, each taking so "
        f"long, are {number(under_way[k])} under way at "
        f"once, and the client allows {number(level.at[k, 'concurrency'], 5)}{levels(hit)}.",
        {
            "under_way": float(under_way[k]),
            "concurrency": float(level.at[k, "concurrency"]),
            "undone": {"ttft_ms": float(proper)},
        },
        f"Count from the moment of sending: a TTFT of {number(ttft[k] * 1e3)} ms becomes {number(proper)} "
        f"ms.",
    )


@check(
    CONTRADICTION,
    "cached prompt tokens > 0; or TTFT of a repeated prompt < half of its first; or TTFTs of equal "
    "prompts in two groups 2.5 apart; or TTFT, its growth with the prompt, or 1 / prompt tokens/s < prefill "
    "FLOPs / peak",
    "vLLM, Automatic Prefix Caching; PaLM (2022); LLMKube issue 1268",
    ("compute_beyond_device",),
)
def prefix_cache(audited: Audited) -> Finding | None:
    """A prefix cache answered part of the prompts, and their TTFT counts as computed.

    Where the file states what its load shares by plan, a hit is what it measures; only more is evidence.
    """
    planned = (audited.requests["shared_tokens"] > 0).any()
    for evidence in (
        (_cached_tokens,)
        if planned
        else (
            _cached_tokens,
            _repeated_prompts,
            _two_groups,
            _too_fast,
            prefix.median_too_fast,
            prefix.flat,
            prefix.two_groups_of_figures,
            prefix.more_prompts_than_peak,
        )
    ):
        found = evidence(audited)
        if found:
            sentence, numbers, undone = found
            change = (
                "Send prompts that share no prefix, or start the server without prefix caching, and "
                "measure again."
            )
            if undone:
                change += f" Without the hits the TTFT is {number(undone['ttft_ms'])} ms."
            return Finding(
                "prefix_cache",
                CONTRADICTION,
                audited.first_file,
                sentence,
                numbers,
                change,
                undone,
            )
    return None


def _cached_tokens(audited):
    rows, level = audited.good(), audited.levels
    hits = rows[rows["cached_tokens"] > rows["shared_tokens"].fillna(0)]
    of_levels, share = level["cached_tokens"].sum(), level["cached_share"].max()
    if share > 0:
        part = share / 100 if share > 1 else share
        text = f"Prefix-cache hits: a cache answered {part:.0%} of the prompt tokens (most)."
        return text, {"share": float(share)}, {}
    if hits.empty and not of_levels > 0:
        return None
    if hits.empty:
        return (
            f"The server answered {number(of_levels, 6)} prompt tokens from its prefix cache.",
            {"cached_tokens": float(of_levels)},
            {},
        )
    share = hits["cached_tokens"].sum() / max(rows["prompt_tokens"].sum(), hits["cached_tokens"].sum())
    misses = rows[~(rows["cached_tokens"] > 0)]["ttft_s"]
    undone = {"ttft_ms": float(misses.median() * 1e3)} if len(misses) >= 3 and misses.notna().any() else {}
    return (
        f"Prefix-cache hits: the server answered {len(hits)} of {count(len(rows), 'request')} from its "
        f"cache in part, {share:.0%} of all prompt tokens.",
        {"requests": len(hits), "share_of_prompt_tokens": float(share)},
        undone,
    )


def _repeated_prompts(audited):
    rows = audited.good()
    rows = rows[(rows["question_chars"].fillna(rows["question"].str.len()) >= 40) & (rows["ttft_s"] > 0)]
    # Of a crowd the first wave waits for its prefills, and what comes later does not: one at a time, or at a
    # rate that is kept.
    level = audited.levels
    crowd = (level["concurrency"] > 1) | (level["batch_size"] > 1) | (level["all_at_once"] == 1)
    rows = rows[~rows["level"].isin(level["level"][crowd])]
    again = rows[rows.duplicated(["level", "question"])]
    if len(again) < 3:
        return None
    first = rows.drop_duplicates(["level", "question"]).set_index(["level", "question"])["ttft_s"]
    ratio = (
        again["ttft_s"].to_numpy()
        / first.reindex(list(zip(again["level"], again["question"], strict=True))).to_numpy()
    )
    if not np.median(ratio) < 0.5:
        return None
    return (
        f"Prefix-cache hits: {count(len(again), 'prompt')} came a second time, and their TTFT is "
        f"{number(np.median(ratio))} times that of the first.",
        {"ratio": float(np.median(ratio))},
        {"ttft_ms": float(first.median() * 1e3)},
    )


def _two_groups(audited):
    """TTFTs of equally long prompts, one at a time, in two tight groups far apart, while the pace of the
    tokens is one."""
    level = audited.levels.set_index("level")
    # Requests that wait for a place fall into waves, as far apart as a cache's hits: only where one runs at a
    # time do two groups mean anything.
    alone = level.index[(level["concurrency"].fillna(level["batch_size"]) == 1).to_numpy()]
    for rows in audited.by_level():
        if rows["level"].iloc[0] not in alone:
            continue
        rows = rows[(rows["ttft_s"] > 0) & (rows["prompt_tokens"] >= 128)]
        if len(rows) < 10 or rows["prompt_tokens"].std() > 0.2 * rows["prompt_tokens"].mean():
            continue
        ordered = np.sort(rows["ttft_s"].to_numpy())
        steps = ordered[1:] / ordered[:-1]
        place = int(np.argmax(steps)) + 1
        low, high = ordered[:place], ordered[place:]
        tight = all(group.max() < 2 * group.min() for group in (low, high))
        if steps.max() >= LOWER and min(len(low), len(high)) >= max(2, 0.1 * len(rows)) and tight:
            return (
                f"Prefix-cache hits: {len(low)} of {count(len(rows), 'request')} with prompts of one length "
                f"had their first token after {number(np.median(low) * 1e3)} ms, the others after "
                f"{number(np.median(high) * 1e3)} ms (medians), and nothing lies between.",
                {"low_ms": float(np.median(low) * 1e3), "high_ms": float(np.median(high) * 1e3)},
                {"ttft_ms": float(np.median(high) * 1e3)},
            )
    return None


def _too_fast(audited):
    found = too_fast_first_tokens(audited)
    if not found:
        return None
    n, of, ttft, least, prompt = found
    return (
        f"Prefix-cache hits: {n} of {count(of, 'TTFT')} are shorter than the device needs for so many prompt "
        f"tokens ({number(ttft * 1e3)} ms where {number(prompt, 6)} tokens take {number(least * 1e3)} ms at "
        f"its peak), so at least {1 - ttft / least:.0%} of the prompt was not computed.",
        {"ttft_ms": float(ttft * 1e3), "least_ms": float(least * 1e3)},
        {},
    )
