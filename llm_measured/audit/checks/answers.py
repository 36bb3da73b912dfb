"""Answers that are no measurement: of nothing, in one lump, empty, cut off, of a cache, of a cold server, or
sent late."""

import numpy as np
import pandas as pd

from llm_measured.audit import frame
from llm_measured.audit.checks.finding import CONTRADICTION, MISSING, Finding, check, count, levels, number
from llm_measured.audit.checks.impossible import RATES, ROUNDING, operations, peaks, too_fast_first_tokens
from llm_measured.audit.frame import Audited
from llm_measured.core.plausibility import digits

FASTEST_S = 1e-4  # no engine takes less for a token of one request
FEWEST_TOKENS = 16  # of an answer whose steps would show
CLAMPED = 3  # rows with other labels from which one round figure is a limit
FINE = 1e-2  # a round figure has one digit, where others are printed so much finer
FASTER, OUTLYING, SHARE = (
    3.0,
    4.0,
    0.25,
)  # how far a cached answer lies from the next and the median; how many
UNDER_LOAD = 12.0  # times the median, where a request may have run alone for a while
SKEWED = 1.5  # mean of rates over their median from here on
COLD = 3.0  # times as long as any later one, from which a first request was cold
LATE_SHARE, LATE_LEAST_S = 0.10, 0.005  # of the TTFT: how late the client may send, in the mean
PROMPTS = 5.0  # times as fast was an equal prompt read, from which a cache answered it
LONG_PROMPT = 64  # tokens
SERVERS = "ollama", "llama.cpp"  # whose printed lines say of each answer how its prompt was read


@check(
    CONTRADICTION,
    "completed requests = 0, and some were sent or failed; or no token in the text of all answers",
    "a time or rate of no request is no result; sgl-project/sglang issue 12389",
)
def no_result(audited: Audited) -> Finding | None:
    """A run in which every request failed has figures."""
    hit = failed_wholly(audited)
    if not hit.any():
        return None
    level = audited.levels
    some = f" in {int(hit.sum())} of {count(len(level), 'level')}" if len(level) > 1 else ""
    empty = hit & (level["retokenized_output_tokens"] == 0)
    if empty.any():
        k = level["total_output_tokens"].where(empty).idxmax()
        tokens = number(level.at[k, "total_output_tokens"], 6)
        what = f"{tokens} tokens are counted, as they were asked, and the text of all answers has none"
    else:
        k = level["failed"].where(hit).fillna(level["asked"]).idxmax()
        n = level["failed"].fillna(level["asked"])[k]
        what = f"all {number(n, 6)} requests failed, so the file's times and rates are of nothing"
    return Finding(
        f"No result{some}: {what}.",
        "Read the client's errors, and measure again.",
        numbers={"levels": int(hit.sum())},
        levels=[float(one) for one in level.loc[hit, "level"]],
        file=level.at[k, "file"],
    )


def failed_wholly(audited: Audited) -> pd.Series:
    """Which levels completed no request, though some were sent, or have no token in any answer."""
    level = audited.levels
    sent = (level["failed"] > 0) | (level["asked"] > 0)
    own = level["level"].isin(audited.good()["level"])
    none = (level["retokenized_output_tokens"] == 0) & (level["total_output_tokens"] > 0)
    return ((level["requests"] == 0) & sent & ~own) | none


@check(
    CONTRADICTION,
    "(e2e - TTFT) / (tokens - 1) < 0.1 ms, of answers of 16 tokens and more; or the shortest TPOT < 0.1 ms "
    "where no answer took less than a quarter of the median",
    "a first token that comes with the last was not streamed; modelscope/evalscope issue 407",
    (
        *("rate_against_times", "tpot_contains_ttft", "tokens_per_event", "prefix_cache", "plain_sums"),
        *("bandwidth_beyond_device", "batch_time_as_request_time", "prompt_counted_as_output"),
        *("cached_answer_in_mean", "unit_changed"),
    ),
)
def not_streamed(audited: Audited) -> Finding | None:
    """The first token came with the last: answers were not streamed, and TTFT and TPOT are no times of
    tokens."""
    rows = frame.rows(audited)
    rows = rows[(rows["output_tokens"] >= FEWEST_TOKENS) & (rows["ttft_s"] > 0) & (rows["e2e_s"] > 0)]
    after = (rows["e2e_s"] - rows["ttft_s"]) / (rows["output_tokens"] - 1)
    # A first token later than the last is another mistake.
    hit = after.abs() < FASTEST_S
    change = 'Ask for a stream ("stream": true), or leave TTFT and TPOT empty; rate and e2e stand.'
    if len(rows) and hit.mean() >= 0.5:
        k = rows["output_tokens"].where(hit).idxmax()
        stated = rows["tpot_s"][hit].dropna()
        pace = f", and a TPOT of {number(stated.iloc[0] * 1e3)} ms is no pace" if len(stated) else ""
        what = (
            f"Answers were not streamed: TTFT is {number(rows.at[k, 'ttft_s'], 4)} s and e2e "
            f"{number(rows.at[k, 'e2e_s'], 4)} s, with {number(rows.at[k, 'output_tokens'], 5)} tokens "
            "between"
        )
        sentence = f"{what}{levels(hit)}{pace}."
        return Finding(sentence, change, numbers={"rows": int(hit.sum())})
    # Where lengths are not stated: TTFT and e2e equal in every statistic, and in two at least.
    level = audited.levels
    first, last = (
        level[[f"{time}{q}_s" for q in frame.STATISTICS]].to_numpy(float) for time in ("ttft", "e2e")
    )
    known = ~np.isnan(first) & ~np.isnan(last)
    same = (known.sum(axis=1) >= 2) & ((first == last) | ~known).all(axis=1) & (level["output_tokens"] != 1)
    if same.any():
        k = int(np.argmax(same))
        what = (
            f"TTFT is e2e in {int(known[k].sum())} statistics, {number(np.nanmax(first[k]) * 1e3)} ms at most"
        )
        sentence = f"Answers were not streamed: {what}{levels(pd.Series(same))}."
        which = [float(one) for one in level.loc[same, "level"]]
        return Finding(sentence, change, levels=which, file=level["file"].iloc[k])
    # Single answers in one lump, though none was as short as a cached one is.
    usual = level["e2e_min_s"] >= level["e2e_p50_s"] / 4
    hit = level["tpot_min_s"].between(0, FASTEST_S) & (level["output_tokens"] >= FEWEST_TOKENS) & usual
    if not hit.any():
        return None
    k = level["tpot_min_s"].where(hit).idxmin()
    sentence = (
        f"Some answers came in one lump: the shortest TPOT is {number(level.at[k, 'tpot_min_s'] * 1e3)} ms, "
        f"which no engine has, and no answer took less than {number(level.at[k, 'e2e_min_s'] * 1e3)} ms"
        f"{levels(hit)}. The client saw their first token late: their TTFT and TPOT are no times of tokens."
    )
    change = "Publish e2e and tokens/s alone, or read the stream faster and measure again."
    lump = {"tpot_min_s": float(level.at[k, "tpot_min_s"])}
    which = [float(one) for one in level.loc[hit, "level"]]
    return Finding(sentence, change, numbers=lump, levels=which, file=level.at[k, "file"])


@check(
    CONTRADICTION,
    "one round figure (one digit, printed to a hundredth and finer) is the highest rate or time of three "
    "rows and more with other labels",
    "a clock of 1 ms turns 0.8 ms into 1,000 tokens/s; guruswami-ai/mlx-benchmarks",
    ("same_run_twice", "bandwidth_beyond_device"),
)
def clamped_figure(audited: Audited) -> Finding | None:
    """A figure is a limit of the clock or of a timeout, and no measurement."""
    level = audited.levels
    rates = [c for c in level if c.startswith(("output_tokens_per_s", "request_tokens_per_s"))]
    for column in filter(
        audited.levels_have, [*rates, "prompt_tokens_per_s", "e2e_s", "e2e_mean_s", "e2e_p50_s"]
    ):
        most = level[column].max()
        hit = level[column] == most
        labels = level.loc[hit, ["model", "weights", "option", "engine", "gpu"]].drop_duplicates()
        # The column's own printing, since what is stored no longer shows the zeros.
        fine = audited.step(column)[hit].max() <= FINE * most
        if len(labels) < CLAMPED or digits(most) > 1 or not fine:
            continue
        unit, why = "s", "the limit of a client or of a server"
        if "per_s" in column:
            unit, why = "tokens/s", f"a clock of {number(1e3 / most)} ms a token"
        return Finding(
            f"A figure is a limit, not a measurement: {int(hit.sum())} rows with other labels have "
            f"{number(most, 6)} {unit} to every digit printed, the most of the file, as from {why}.",
            "Measure longer answers, with a finer clock, or leave these rows out.",
            numbers={"rows": int(hit.sum()), "figure": float(most)},
            levels=[float(one) for one in level.loc[hit, "level"]],
        )
    return None


@check(
    CONTRADICTION,
    "prompt tokens/s = output tokens/s to every digit, in two rows and more, where lengths differ",
    "a prompt is read many times as fast as an answer is generated; "
    "Lukasilvestre/jetson-llm-performance-analysis",
    ("rate_against_times",),
)
def same_rate_twice(audited: Audited) -> Finding | None:
    """The rate of reading the prompt and that of generating are one figure."""
    rows = audited.levels
    decode = rows["output_tokens_per_s"].fillna(rows["request_tokens_per_s"])
    decode = decode.fillna(1 / rows["tpot_s"]).fillna(1 / rows["tpot_mean_s"])
    prompt = rows["prompt_tokens_per_s"]
    known = prompt.notna() & decode.notna() & (rows["prompt_tokens"] != rows["output_tokens"])
    hit = known & ((prompt / decode - 1).abs() < 1e-6) & (prompt.map(digits) >= 3)
    if hit.sum() < 2 or hit.sum() < 0.5 * known.sum():
        return None
    return Finding(
        f"Prompt and output have one rate to every digit: {number(prompt[hit].iloc[0], 4)} tokens/s, and the "
        f"same in {int(hit.sum())} of {count(int(known.sum()), 'row')}.",
        'One line was read for both: "eval rate" is also the end of "prompt eval rate".',
        numbers={"rows": int(hit.sum())},
        file=rows["file"].iloc[0],
    )


@check(
    CONTRADICTION,
    "output tokens = 0 and no error, in a mean of times or rates",
    "an answer without a token has no TTFT and no pace; sglang pull request 36047",
    ("plain_sums", "cached_answer_in_mean", "percentile_from_too_few", "times_backwards", "prefix_cache"),
)
def empty_answer_in_mean(audited: Audited) -> Finding | None:
    """Answers of no tokens are in the means."""
    rows = audited.good()[["ttft_s", "e2e_s", "tpot_s", "output_tokens"]]
    rows = rows[rows[["ttft_s", "e2e_s", "tpot_s"]].notna().any(axis=1)]
    empty = rows["output_tokens"] == 0
    if empty.any() and not empty.all():
        time = "ttft" if rows["ttft_s"].notna().sum() >= rows["e2e_s"].notna().sum() else "e2e"
        whole, full = rows[f"{time}_s"].mean() * 1e3, rows.loc[~empty, f"{time}_s"].mean() * 1e3
        sentence = (
            f"{int(empty.sum())} of {count(len(rows), 'answer')} have no tokens, did not fail, and are in "
            f"the means: the mean {time.upper()} is {number(whole)} ms with them."
        )
        change = f"Leave them out: the mean {time.upper()} becomes {number(full)} ms."
    else:
        level = audited.levels
        least = level[["ttft_min_s", "e2e_min_s"]].min(axis=1)
        timed = level[["ttft_p50_s", "ttft_mean_s", "e2e_mean_s"]].max(axis=1) > 0
        if not ((least == 0) & timed).any():
            return None
        sentence = "The shortest time of an answer is 0, so answers of no tokens are in the means."
        change = "Leave out what has no token, or count it as failed."
    return Finding(sentence, change)


@check(
    CONTRADICTION,
    "answers begin with their question, and the time per counted token falls with its share of the text",
    "Husain, Optimizing latency: the files of hf/ and of triton-tensorRT/ count the prompt",
    ("rate_against_times", "bandwidth_beyond_device", "cached_answer_in_mean"),
)
def prompt_in_answers(audited: Audited) -> Finding | None:
    """Answers repeat their questions, whose tokens cost nothing and are counted as output."""
    rows = audited.good()
    rows = rows[(rows["question"].str.len() > 10) & (rows["output_tokens"] > 0) & (rows["e2e_s"] > 0)]
    if len(rows) < 5:
        return None
    starts = [
        q.strip()[:200] in a[: len(q) + 40] for q, a in zip(rows["question"], rows["answer"], strict=True)
    ]
    share = (rows["question_chars"] / rows["answer_chars"]).to_numpy(float)
    pace = (rows["e2e_s"] / rows["output_tokens"]).to_numpy(float)
    usual = np.isfinite(share) & np.isfinite(pace)
    if np.mean(starts) < 0.8 or usual.sum() < 5 or np.ptp(share[usual]) == 0:
        return None
    from scipy import stats  # only such files need it

    fit = stats.linregress(share[usual], pace[usual] / np.median(pace[usual]))
    if not (fit.slope < -0.4 and fit.slope < -2.5 * fit.stderr):
        return None
    published, part = float(np.mean(1 / pace[usual])), float(np.mean(share[usual]))
    generated = published * (1 - part)
    change = f"Count only what was generated: {number(published)} tokens/s become {number(generated)}."
    return Finding(
        f"The prompt is counted as output: {sum(starts)} of {count(len(rows), 'answer')} begin with their "
        "own question, and the time per counted token falls where it is a larger part of the text (slope "
        f"{number(fit.slope)}), as if its tokens had cost nothing.",
        change,
        numbers={"prompt_share_of_counted_tokens": part},
        undone={"published_tokens_per_s": published, "without_prompt_tokens_per_s": generated},
    )


@check(
    MISSING,
    "the first request, or sample, took 3 times as long as any later one, one at a time",
    "loading, compiling and filling of caches are in the first",
)
def cold_first_request(audited: Audited) -> Finding | None:
    """The first request was cold, and is in the means."""
    crowd = audited.levels[["concurrency", "batch_size"]].max(axis=1) > 1
    alone = set(audited.levels["level"][~crowd & (audited.levels["all_at_once"] != 1)])
    for rows in audited.by_level():
        if rows["level"].iloc[0] not in alone or len(rows) < 4:
            continue
        rows = rows.sort_values("sent_s", kind="stable") if rows["sent_s"].notna().all() else rows
        for time in ("ttft_s", "e2e_s"):
            first, rest = rows[time].iloc[0], rows[time].iloc[1:]
            longer = rows["output_tokens"].iloc[0] > 1.5 * rows["output_tokens"].iloc[1:].median()
            if not (longer and time == "e2e_s") and first > COLD * rest.max():
                name = time.removesuffix("_s").upper()
                means = f"the mean {name} is {number(rows[time].mean() * 1e3)} ms with it and"
                sentence = (
                    f"The first of {len(rows)} requests was cold: its {name} is {number(first * 1e3)} ms, "
                    f"and {means} {number(rest.mean() * 1e3)} ms without."
                )
                return Finding(sentence, "Leave it out.")
    return None


@check(
    CONTRADICTION,
    "fastest tokens/s / next >= 3 and / median >= 4, in at most a quarter of the requests; or mean / "
    "median of rates >= 1.5",
    "Husain, Optimizing latency: one answer from a cache lifts a mean from 65 to 124 tokens/s",
    ("prefix_cache", "bandwidth_beyond_device", "rate_against_times", "tokens_per_event", "plain_sums"),
)
def cached_answer_in_mean(audited: Audited) -> Finding | None:
    """A few answers came at once, as from a cache, and lift the mean."""
    level = audited.levels
    loaded = (level[["concurrency", "batch_size"]].max(axis=1) > 1) | level["request_rate"].notna()
    loaded = dict(zip(level["level"], loaded | (level["all_at_once"] == 1)))
    for rows in audited.by_level():
        far = UNDER_LOAD if loaded[rows["level"].iloc[0]] or _overlap(rows) else OUTLYING
        timed = rows[(rows["output_tokens"] > 1) & (rows["e2e_s"] > 0)]
        rates = (
            timed["output_tokens"] / timed["e2e_s"] if len(timed) else rows["request_tokens_per_s"].dropna()
        )
        ordered = rates.sort_values(ascending=False)
        most = max(1, int(SHARE * len(ordered)))
        if len(ordered) < 4:
            continue
        steps = ordered.to_numpy()[:most] / ordered.to_numpy()[1 : most + 1]
        place = int(np.argmax(steps))
        fast = ordered.index[: place + 1]
        # A very short answer is no cached one.
        short = (
            len(timed) and timed.loc[fast, "output_tokens"].median() < 0.25 * timed["output_tokens"].median()
        )
        if steps[place] >= FASTER and ordered.iloc[place] >= far * rates.median() and not short:
            rest = rates.drop(fast).mean()
            return Finding(
                f"{count(len(fast), 'answer')} of {len(rates)} came at {number(rates[fast].max())} tokens/s "
                f"where the median is {number(rates.median())}: an answer from a cache is in the mean of "
                f"{number(rates.mean())}.",
                f"Leave what was not computed out: the mean becomes {number(rest)} tokens/s.",
                numbers={"answers": len(fast)},
                undone={"published_tokens_per_s": float(rates.mean()), "tokens_per_s": float(rest)},
            )
    # Of a summary: a mean far from the median; a shortest TPOT far below it, of answers short as a whole.
    skew = (level["request_tokens_per_s_mean"] / level["request_tokens_per_s_p50"]).max()
    pace = (level["tpot_p50_s"] / level["tpot_min_s"]).max()
    fastest = (level["e2e_p50_s"] / level["e2e_min_s"]).max()
    if skew >= SKEWED:
        what = f"the mean of the requests' rates is {number(skew)} times their median"
    elif pace >= 3 * OUTLYING and fastest >= OUTLYING:
        what = f"the shortest TPOT is {number(pace)} times below the median"
    else:
        return None
    sentence = f"Mean and median lie far apart, as when an answer came from a cache: {what}."
    change = "Publish the median, or leave out what was not computed."
    return Finding(sentence, change)


@np.errstate(all="ignore")
def _overlap(rows: pd.DataFrame) -> bool:
    """Whether requests were under way at the same time, by their own times."""
    times = rows[["sent_s", "e2e_s"]].to_numpy()
    times = times[~np.isnan(times).any(axis=1)]
    if len(times) < 3:
        return False
    sent, took = times[np.argsort(times[:, 0])].T
    ends = np.maximum.accumulate(sent + took)[:-1]  # of the last request before each
    return bool((sent[1:] < ends - 0.5 * took[1:]).sum() / len(sent) > 0.2)


@check(
    CONTRADICTION,
    "how late a request was sent, in the mean, > 10 % of the TTFT",
    "a request waits in the client before its time begins",
    ("littles_law", "rate_against_times", "overload", "cached_answer_in_mean"),
)
def client_late(audited: Audited) -> Finding | None:
    """The client sent its requests late: the load was another one."""
    level, own = audited.levels, audited.good()
    late = level["late_mean_s"].fillna(level["level"].map(own.groupby("level")["late_s"].mean()))
    ttft = frame.centre(level, "ttft").fillna(level["level"].map(own.groupby("level")["ttft_s"].mean()))
    ttft = ttft.fillna(frame.centre(level, "e2e")).fillna(
        level["level"].map(own.groupby("level")["e2e_s"].mean())
    )
    hit = (late > LATE_LEAST_S) & (late > LATE_SHARE * ttft)
    if not hit.any():
        return None
    k = (late / ttft).where(hit).idxmax()
    return Finding(
        f"The client was late: it sent requests {number(late[k] * 1e3)} ms after they were due (mean), where "
        f"the time measured is {number(ttft[k] * 1e3)} ms.",
        "Give the client more cores or processes, or lower the rate: what it did not send on time was "
        "another load.",
        numbers={"late_ms": float(late[k] * 1e3), "time_ms": float(ttft[k] * 1e3)},
        file=level.at[k, "file"],
    )


@check(
    CONTRADICTION,
    "cached prompt tokens > 0; or an equal prompt read 5 times as fast as the slowest, one at a time; or "
    "TTFT, or 1 / prompt tokens/s, < prefill FLOPs / peak",
    "vLLM, Automatic Prefix Caching; PaLM (2022); HKUDS/nanobot issue 4867",
    ("compute_beyond_device",),
)
def prefix_cache(audited: Audited) -> Finding | None:
    """A cache answered part of the prompts, and their TTFT counts as computed. Where the file states what its
    load shares by plan, a hit is what it measures; only more is evidence."""
    found = _stated_hits(audited)
    if found is None and not (audited.requests["shared_tokens"] > 0).any():
        found = _equal_prompts(audited) or _too_fast(audited)
    if found is None:
        return None
    change = (
        "Send prompts that share no prefix, or start the server without prefix caching, and measure again."
    )
    return Finding(found, change)


def _stated_hits(audited):
    rows, level = audited.good(), audited.levels
    hits = rows[rows["cached_tokens"] > rows["shared_tokens"].fillna(0)]
    share, tokens = level["cached_share"].max(), level["cached_tokens"].sum()
    if share > 0:
        part = share / 100 if share > 1 else share
        return f"Prefix-cache hits: a cache answered {part:.0%} of the prompt tokens (most)."
    if len(hits):
        share = hits["cached_tokens"].sum() / max(rows["prompt_tokens"].sum(), hits["cached_tokens"].sum())
        return (
            f"Prefix-cache hits: the server answered {len(hits)} of {count(len(rows), 'request')} from its "
            f"cache in part, {share:.0%} of all prompt tokens."
        )
    return (
        f"The server answered {number(tokens, 6)} prompt tokens from its prefix cache."
        if tokens > 0
        else None
    )


def _equal_prompts(audited):
    """One prompt length of one setting, one at a time, that was read at rates far apart: by the server's own
    time of reading, else by the TTFT of the requests of one level. Slow ones that are alone were cold."""
    level = audited.levels
    alone = level[["concurrency", "batch_size"]].max(axis=1) == 1
    # Of a server's own lines; rows of a sweep may be of other models and devices, and name neither.
    told = level[alone & level["tool"].isin(SERVERS) & level["prefill_s"].notna()]
    parts = [told.assign(read=told["prompt_tokens_per_s"])]
    for rows in audited.by_level():
        # A batch of one may still wait for the one before it: not where requests overlap.
        sent = rows.sort_values("sent_s")
        waits = (sent["sent_s"].shift(-1) < sent["sent_s"] + sent["e2e_s"]).any()
        if not waits and alone[level["level"] == rows["level"].iloc[0]].any():
            parts.append(rows.assign(read=rows["prompt_tokens"] / rows["ttft_s"]))
    for rows in parts:
        rows = rows[(rows["prompt_tokens"] >= LONG_PROMPT) & (rows["read"] > 0)]
        keys = [c for c in ("model", "gpu", "engine", "option", "weights") if c in rows]
        for _, equal in rows.groupby([(rows["prompt_tokens"] / 20).round(), *keys], dropna=False):
            slow, fast = equal["read"].min(), equal["read"].max()
            few = int((equal["read"] > PROMPTS * slow).sum())
            cold = len(equal) > 2 and len(equal) - few == 1
            if few and not cold:
                prompts = f"{len(equal)} prompts of {number(equal['prompt_tokens'].max(), 6)} tokens"
                return (
                    f"A prompt came from a cache: of {prompts} {few} were read at up to {number(fast, 4)} "
                    f"tokens/s, and the slowest at {number(slow, 4)}."
                )
    return None


def _too_fast(audited):
    """Prompts that the device cannot have computed, by their TTFT or by their rate."""
    if found := too_fast_first_tokens(audited):
        n, of, ttft, least, prompt = found
        return (
            f"Prefix-cache hits: {n} of {count(of, 'TTFT')} are shorter than the device needs for so many "
            f"prompt tokens ({number(ttft * 1e3)} ms where {number(prompt, 6)} tokens take "
            f"{number(least * 1e3)} ms at its peak), so at least {1 - ttft / least:.0%} of the prompt was "
            "not computed."
        )
    if not audited.levels_have(*RATES):
        return None
    prompts, _, share, _ = operations(audited)
    share = share.where(peaks(audited)["counted"])
    if not (share > ROUNDING).any():
        return None
    k = share.idxmax()
    return (
        f"Prefix-cache hits: {number(prompts[k])} prompt tokens/s need {share[k]:.0%} of the device's peak, "
        f"so at least {1 - 1 / share[k]:.0%} of them were not computed, or more devices were at work."
    )
