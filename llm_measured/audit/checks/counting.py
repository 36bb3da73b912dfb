"""Contradictions of counting: a prompt among the output tokens."""

import numpy as np
import pandas as pd

from llm_measured.audit.checks import accounts, pace
from llm_measured.audit.checks.finding import CONTRADICTION, Finding, check, count, number
from llm_measured.audit.frame import Audited

HUSAIN = "Husain, Optimizing latency: the files of hf/ and of triton-tensorRT/ count the prompt"
MATCH = 0.8, 1.25  # an excess of tokens counts as the prompt where it is so many times the prompt
CLOSE = 0.95, 1.05  # where another mistake would give an excess as well
UNLIKE = 1.5  # times the shortest prompt from which rows are told one by one
LOOP = 0.45, 1.1  # where an answer's time is only known from a closed loop's places, some of which were idle
SHORT = 0.0, 2.5  # times a prompt that is too short to tell, within which an excess contradicts nothing
FEWEST = 8  # prompt tokens below which an excess could be anything


@check(
    CONTRADICTION,
    "counted tokens - tokens that the times, the events or the limit allow = prompt tokens (0.8 to 1.25 "
    "of them)",
    HUSAIN,
    (
        "rate_against_times",
        "littles_law",
        "client_queue",
        "tokens_per_event",
        "bandwidth_beyond_device",
        "compute_beyond_device",
        "tpot_contains_ttft",
        "plain_sums",
        "batch_time_as_request_time",
        "rate_of_other_scope",
    ),
)
def prompt_counted_as_output(audited: Audited) -> Finding | None:
    """Prompt tokens are counted as output."""
    for rows in accounts.tables(audited):
        held = _counts_hold(rows)
        for evidence, table in (
            (_beyond_limit, held),
            (_beyond_events, held),
            (_beyond_times, held),
            (_rate_has_prompt, rows),
            (_time_falls_with_prompt, held),
        ):
            found = evidence(table) if len(table) > 0.5 * len(rows) else None
            if found:
                return _prompt_finding(audited, *found)
    repeated = _answers_repeat_questions(audited)
    return _prompt_finding(audited, *repeated) if repeated else None


def _prompt_finding(audited, why, prompt_share):
    """The finding; `prompt_share` is the share of the counted tokens that the prompt makes up."""
    rates = audited.good()["output_tokens"] / audited.good()["e2e_s"]
    published = rates.mean() if rates.notna().any() else audited.levels["output_tokens_per_s"].median()
    undone = {}
    if np.isfinite(published):
        undone = {
            "published_tokens_per_s": float(published),
            "without_prompt_tokens_per_s": float(published * (1 - prompt_share)),
        }
    return Finding(
        "prompt_counted_as_output",
        CONTRADICTION,
        audited.first_file,
        f"The prompt is counted as output: {why}.",
        {"prompt_share_of_counted_tokens": float(prompt_share)},
        "Count only the tokens that were generated"
        + (
            f": {number(published)} tokens/s become {number(published * (1 - prompt_share))}."
            if undone
            else "."
        ),
        undone,
    )


def _matches_prompt(rows, excess, limits=MATCH):
    """Whether `excess` tokens are the prompt in most rows; the tolerance of means grows with what is around
    the prompt."""
    good = rows["prompt_tokens"].ge(FEWEST) & np.isfinite(excess)
    if not good.any():
        return False
    prompt, ratio = rows["prompt_tokens"][good], (excess / rows["prompt_tokens"])[good]
    least = np.where(rows["scope"][good] == "request", 0.03, 0.12)
    enough = prompt / rows["output_tokens"][good] >= least
    hit = ratio.between(*limits) & enough
    # Of rows of unlike conditions those with short prompts cannot tell, and are no evidence against it.
    short = ~enough & ratio.between(*SHORT)
    return bool(hit.mean() >= 0.6 or (hit.sum() >= 2 and (hit | short).mean() >= 0.9))


def _counts_hold(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows whose count is larger than their prompt, as a count that holds it is."""
    return rows[rows["output_tokens"] > rows["prompt_tokens"] + 1]


def _share(rows: pd.DataFrame) -> float:
    return float((rows["prompt_tokens"] / rows["output_tokens"]).median())


def _beyond_limit(rows):
    excess = rows["output_tokens"] - rows["max_new_tokens"]
    if not _matches_prompt(rows, excess):
        return None
    row = rows.loc[excess.idxmax()]
    return (
        f"an answer of at most {number(row['max_new_tokens'], 6)} tokens is said to have "
        f"{number(row['output_tokens'], 6)}, "
        f"which is {number(row['output_tokens'] - row['max_new_tokens'], 6)} more, and its prompt has "
        f"{number(row['prompt_tokens'], 6)}",
        _share(rows),
    )


def _beyond_events(rows):
    arrived = (rows["gaps"] + 1).fillna(rows["events"])
    excess = rows["output_tokens"] - arrived
    if not _matches_prompt(rows, excess, CLOSE):
        return None
    return (
        f"{number(rows['output_tokens'].median(), 6)} tokens are counted and {number(arrived.median(), 6)} "
        f"arrived (medians); the difference is the prompt's {number(rows['prompt_tokens'].median(), 6)}",
        _share(rows),
    )


def _beyond_times(rows):
    step = rows["itl_s"].fillna(rows["tpot_s"])
    timed = 1 + (rows["whole_s"] - rows["ttft_s"]) / step.where(rows["independent"])
    longer = (
        rows["itl_s"] / rows["tpot_s"] > 1.3
    )  # the gap and the TPOT count other tokens: this alone says how many
    timed = timed.mask(longer, 1 + (rows["output_tokens"] - 1) * rows["tpot_s"] / rows["itl_s"])
    fewer = rows["output_tokens"] > 1.3 * (rows["gaps"] + 1)  # and so do the gaps that were kept
    excess = rows["output_tokens"] - timed
    loop = rows["e2e_s"].isna() & ~longer & ~fewer & (rows["ttft_s"] < 0.5 * rows["whole_s"])
    loop &= rows["concurrency"] > 1  # of one request at a time no place is idle
    if loop.any() and _matches_prompt(
        rows[loop], excess[loop], LOOP
    ):  # places are idle at the end: the loop's time is too long
        return _times_evidence(rows, timed)
    # e2e / tokens read as TPOT is another mistake, and shows by the TTFT that is in it.
    limits = CLOSE if (longer | fewer).any() else MATCH
    if not _matches_prompt(rows, excess, limits) or pace.contains_ttft(rows).mean() > 0.5:
        return None
    return _times_evidence(rows, timed)


def _times_evidence(rows, timed):
    return (
        f"{number(rows['output_tokens'].median(), 6)} tokens are counted, and TTFT, e2e and the time per "
        f"token allow {number(timed.median())} (medians); the difference is the prompt's "
        f"{number(rows['prompt_tokens'].median(), 6)}",
        _share(rows),
    )


def _rate_has_prompt(rows):
    """A rate that holds the prompt: times the answer's time, or over the rate of requests, it gives prompt
    and output."""
    tokens = [(rows["request_tokens_per_s"] * rows["e2e_s"], "a request's rate times its time gives")]
    if "output_tokens_per_s" in rows:
        rate = rows["output_tokens_per_s"]
        tokens += [
            (rate / rows["requests_per_s"], "the rate of output tokens over that of requests gives"),
            (
                rate * rows["duration_s"] / rows["requests"],
                "the rate of output tokens over the run gives",
            ),
            (
                rate * rows["e2e_s"] / rows["batch_size"],
                "the rate of output tokens over the batch's time gives",
            ),
            (
                (rate * rows["e2e_s"]).where((rows["concurrency"] == 1) & rows["requests_per_s"].isna()),
                "the rate of output tokens times an answer's time gives",
            ),
        ]
        whole = rows["e2e_s"].fillna(rows["ttft_s"] + rows["tpot_s"] * (rows["output_tokens"] - 1))
        # Where the rate of requests is not stated and the wait in a queue is not most of the time.
        clear = rows["requests_per_s"].isna() & rows["duration_s"].isna()
        clear &= (rows["concurrency"] > 1) & (rows["ttft_s"] < 0.5 * whole)
        closed = (rate * whole / rows["concurrency"]).where(clear)
        if _matches_prompt(rows, closed - rows["output_tokens"], LOOP):
            return _rate_evidence(rows, closed, "the rate of output tokens, shared among all at once, gives")
        same = (rate / rows["total_tokens_per_s"] - 1).abs() < 0.005
        both = (rows["prompt_tokens"] + rows["output_tokens"]).where(same)
        tokens.append((both, "the rate of output tokens equals that of all tokens, which means"))
    for implied, what in tokens:
        if _matches_prompt(rows, implied - rows["output_tokens"]):
            return _rate_evidence(rows, implied, what)
    return None


def _rate_evidence(rows, implied, what):
    prompts = rows["prompt_tokens"].dropna()
    if prompts.max() > UNLIKE * prompts.min():
        shown = implied.groupby(rows["prompt_tokens"]).idxmax().dropna().astype(int)[:3]
        each = ", ".join(
            f"{number(implied[k], 6)} where the prompt has {number(rows.at[k, 'prompt_tokens'], 6)} and the "
            f"output {number(rows.at[k, 'output_tokens'], 6)}"
            for k in shown
        )
        return f"{what}, row by row, {each} tokens per request", _median_share(rows, implied)
    return (
        f"{what} {number(implied.median(), 6)} tokens per request where "
        f"{number(rows['output_tokens'].median(), 6)} are output and "
        f"{number(rows['prompt_tokens'].median(), 6)} prompt (medians)",
        _median_share(rows, implied),
    )


def _median_share(rows, implied):
    return float((1 - rows["output_tokens"] / implied).median())


def _time_falls_with_prompt(rows):
    """An answer's time per counted token falls as the prompt's share of the count rises: what was not
    generated took no time."""
    x = (rows["prompt_tokens"] / rows["output_tokens"]).to_numpy(float)
    y = (rows["whole_s"] / rows["output_tokens"]).where(rows["e2e_s"].notna())
    b, t = accounts.slope(x, (y / y.median()).to_numpy(float))
    # Where x of the count cost nothing, y is proportional to 1 - x: the relative slope is -1 / (1 - x).
    b *= 1 - np.median(x)
    if not np.mean(x < 1) > 0.95 or not (-1.7 < b < -0.5 and t < -4):
        return None
    return (
        f"over {count(int(np.isfinite(x).sum()), 'answer')} the time per counted token falls as the prompt's "
        f"share of the count rises, {number(-b)} times as fast as if the prompt's tokens had cost nothing",
        _share(rows),
    )


def _answers_repeat_questions(audited):
    """Answers that begin with their question, and whose time per counted token falls with the question's
    share of the text."""
    rows = audited.good()
    rows = rows[(rows["question"].str.len() > 10) & (rows["output_tokens"] > 0)]
    if len(rows) < 3:
        return None
    starts = [
        q.strip()[:200] in a[: len(q) + 40] for q, a in zip(rows["question"], rows["answer"], strict=True)
    ]
    share = (rows["question_chars"] / rows["answer_chars"]).to_numpy(float)
    time = (rows["e2e_s"] / rows["output_tokens"]).to_numpy(float)
    if not np.isfinite(time).any():
        return None
    b, t = accounts.slope(share, time / np.nanmedian(time))
    if np.mean(starts) < 0.8 or not (b < -0.4 and t < -2.5):
        return None
    return (
        f"{sum(starts)} of {count(len(rows), 'answer')} begin with their own question, and the time per "
        f"counted token falls where the question is a larger part of the text (slope {number(b)}, t "
        f"{number(t)}), as if the question's tokens had cost nothing",
        float(np.mean(share)),
    )
