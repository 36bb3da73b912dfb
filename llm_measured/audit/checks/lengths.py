"""Contradictions of times against lengths: those of other answers, of batches, in other units, of nothing."""

import numpy as np

from llm_measured.audit import frame
from llm_measured.audit.checks.finding import CONTRADICTION, Finding, check, count, number
from llm_measured.audit.frame import Audited
from llm_measured.core.plausibility import digits

TIMES = ["ttft_s", "tpot_s", "itl_s", "e2e_s"]
LEVEL_TIMES = [c for c in frame.NUMBERS if c.split("_")[0] in frame.TIMES and c.endswith("_s")]
LEVEL_E2E = "e2e_mean_s", "e2e_s", "e2e_p50_s"  # a level's time of a whole answer, as it may be stated
SAME = [
    "model",
    "gpu",
    "engine",
    "engine_version",
    "option",
    "weights",
    "name",
    "tensor_parallel",
    "batch_size",
    "concurrency",
    "request_rate",
]
FEWEST = 6  # requests from which a pattern among them counts
SHIFTED = 0.35  # of a logarithm: so far is a level's e2e from its parts where one of them is another's
OFF = 0.12  # of a logarithm: an answer's time that is so far from its parts is not its own
PAUSED = 0.25  # of a logarithm: by so much may a pause lengthen an answer that is nobody else's
BOTH_WAYS = 0.25, 0.75  # share of times that are too long among those that are not their answers'
FAR = 5.0  # usual deviations of a time per token from which it is not its answer's
UNIT = np.log(1000)
MOSTLY_BUSY = 0.8, 1.08  # share of the places of a load that are busy, of several loads


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
        return Finding(
            "empty_answer_in_mean",
            CONTRADICTION,
            audited.first_file,
            f"{int(empty.sum())} of {count(len(rows), 'answer')} have no tokens, did not fail, and "
            f"are in the means: the mean {time.upper()} is {number(whole)} ms with them.",
            {"answers": int(empty.sum())},
            f"Leave them out: the mean {time.upper()} becomes {number(full)} ms.",
        )
    if not audited.levels_have("ttft_min_s", "e2e_min_s"):
        return None
    level = audited.levels
    least = level[["ttft_min_s", "e2e_min_s"]].min(axis=1)
    hit = (least == 0) & (level[["ttft_p50_s", "ttft_mean_s", "e2e_mean_s"]].max(axis=1) > 0)
    if not hit.any():
        return None
    return Finding(
        "empty_answer_in_mean",
        CONTRADICTION,
        audited.first_file,
        "The shortest time of an answer is 0, so answers of no tokens are in the means.",
        {},
        "Leave out what has no token, or count it as failed.",
    )


@check(
    CONTRADICTION,
    "in some rows a time is 1,000 times what it is in the others, and nothing else changes with it",
    "a unit is one for a column; llm-d-prism pull request 145",
    (
        "rate_against_times",
        "littles_law",
        "client_queue",
        "times_backwards",
        "cached_answer_in_mean",
        "bandwidth_beyond_device",
        "compute_beyond_device",
        "prefix_cache",
        "tokens_per_event",
        "prompt_counted_as_output",
        "times_of_other_answers",
        "same_time_for_other_lengths",
        "plain_sums",
        "tpot_contains_ttft",
        "rate_of_other_scope",
        "batch_time_as_request_time",
        "percentiles_out_of_order",
    ),
)
def unit_changed(audited: Audited) -> Finding | None:
    """The unit of a column changes in the middle of the file."""
    tables = [(audited.levels, list(filter(audited.levels_have, LEVEL_TIMES)), "level")]
    if len(audited.requests):
        tables.insert(0, (audited.good(), TIMES, "request"))
    for table, columns, scope in tables:
        found = [(c, high) for c in columns if (high := _jump(table, c)) is not None]
        if found:
            names = ", ".join(c.removesuffix("_s") for c, _ in found[:4])
            high = found[0][1]
            return Finding(
                "unit_changed",
                CONTRADICTION,
                audited.first_file,
                f"The unit changes in the middle of the file: in {int(high.sum())} of "
                f"{count(len(table), scope)} {names} is about 1,000 times what it is in the others.",
                {"rows": int(high.sum())},
                "Bring all rows to one unit.",
            )
    level = audited.levels  # within one level: percentiles a thousand times apart from their own mean
    # The median of gaps is next to nothing where several tokens come at once.
    for time in ("ttft", "tpot", "e2e"):
        if not audited.levels_have(f"{time}_mean_s", f"{time}_p50_s"):
            continue
        middle = level[f"{time}_mean_s"].fillna(level[f"{time}_p50_s"])
        for q in ("_p90", "_p95", "_p99", "_max"):
            ratio = level[f"{time}{q}_s"] / middle
            hit = ratio.between(0.3e-3, 5e-3)
            if hit.any():
                k = hit.idxmax()
                return Finding(
                    "unit_changed",
                    CONTRADICTION,
                    audited.first_file,
                    f"One figure has another unit: the {q[1:]} of {time.upper()} is "
                    f"{number(level.at[k, f'{time}{q}_s'] * 1e3)} ms where the middle is "
                    f"{number(middle[k] * 1e3)} ms.",
                    {"ratio": float(ratio[k])},
                    "It seems to be in seconds where the others are in milliseconds.",
                )
    return None


def _jump(table, column):
    """Which rows lie about 1,000 times above the others, None where none do or where the lengths explain
    it."""
    known = table[column].to_numpy()
    known = np.sort(np.log(known[known > 0]))
    if len(known) < 4:
        return None
    steps = np.diff(known)
    place = int(np.argmax(steps)) + 1
    # A queue lifts a TTFT by any factor; a unit lifts all of a group by one.
    apart = np.median(known[place:]) - np.median(known[:place])
    if steps.max() < np.log(30) or abs(apart - UNIT) > 1.0:
        return None
    values = table[column].where(table[column] > 0)
    high = np.log(values) > (known[place - 1] + known[place]) / 2
    tokens = np.log(table["output_tokens"].where(table["output_tokens"] > 0))
    if column.startswith("e2e") and abs(tokens[high].median() - tokens[~high].median()) > 1.5:
        return None
    if column.startswith("ttft"):  # a queue parts TTFTs as far: then the whole answer's time holds them
        whole = table.get("e2e" + column.removeprefix("ttft"))
        if (
            whole is None
            or not (whole[high] < values[high]).mean() > 0.5
            and _jump(table, whole.name) is None
        ):
            return None
    spread = max(known[place:].std(), known[:place].std())
    switches = int((high.astype(int).diff().abs() > 0).sum())
    # A block of rows: single fast answers among the others are another mistake.
    smaller = min(int(high.sum()), int((~high).sum()))
    return high if spread < 1.5 and switches <= 2 and (smaller >= 3 or len(known) < 12) else None


@check(
    CONTRADICTION,
    "e2e / (TTFT + TPOT x (tokens - 1)) = batch size; or groups of answers of other lengths with "
    "e2e equal to every digit; or e2e = duration of the run",
    "the time of a request ends with its own last token; openvino.genai pull request 1244",
    (
        "rate_against_times",
        "times_of_other_answers",
        "same_time_for_other_lengths",
        "littles_law",
        "client_queue",
        "tokens_per_event",
        "plain_sums",
        "prompt_counted_as_output",
        "rate_of_other_scope",
    ),
)
def batch_time_as_request_time(audited: Audited) -> Finding | None:
    """The time of a whole batch, or of the whole run, is called the time of a request."""
    found = _equal_groups(audited) or _batch_levels(audited) or _whole_run(audited)
    if not found:
        return None
    sentence, numbers = found
    return Finding(
        "batch_time_as_request_time",
        CONTRADICTION,
        audited.first_file,
        f"The latency of a batch is called that of a request: {sentence}.",
        numbers,
        "Measure each request to its own last token, or call the figure the latency of a batch.",
    )


def _equal_groups(audited):
    for rows in audited.by_level():
        rows = rows[(rows["e2e_s"] > 0) & (rows["output_tokens"] > 0)]
        if len(rows) < FEWEST or not 2 <= rows["e2e_s"].nunique() < len(rows):
            continue
        groups = rows.groupby("e2e_s")["output_tokens"].agg(["size", "min", "max"])
        many = groups[(groups["size"] >= 2) & groups.index.to_series().map(digits).ge(4)]
        differ = many[many["max"] > 1.02 * many["min"]]
        if differ["size"].sum() >= 0.5 * len(rows) and len(differ) >= 2:
            size = float(differ["size"].median())
            return (
                f"{int(differ['size'].sum())} of {count(len(rows), 'answer')} come in groups of about "
                f"{number(size)} whose times are equal to every digit, though their lengths differ",
                {"group": size},
            )
    return None


def _batch_levels(audited):
    if not audited.levels_have(*LEVEL_E2E):
        return None
    level = audited.levels
    at_once = level["batch_size"].fillna(level["concurrency"]).where(lambda n: n > 1)
    tokens, e2e = (
        level["output_tokens"],
        level["e2e_mean_s"].fillna(level["e2e_s"]).fillna(level["e2e_p50_s"]),
    )
    built = frame.centre(level, "ttft") + frame.centre(level, "tpot") * (tokens - 1)
    per_s = level["requests_per_s"].fillna(level["output_tokens_per_s"] / tokens)
    under_way = per_s * e2e / at_once
    batched = level["batch_size"] > 1
    cases = [
        (e2e / built / at_once, 0.06, "{e2e} ms are {n} times what TTFT and TPOT give, and {n} ran at once"),
        (
            (under_way / at_once).where(batched | built.isna()),
            0.08,
            "the rate and {e2e} ms put {n} times as many under way as the {n} at once",
        ),
        (
            (under_way * at_once).where(batched),
            0.06,
            "{e2e} ms, by the rate, are the batch's time divided by its {n} requests",
        ),
    ]
    for quotient, tolerance, sentence in cases:
        hit = np.log(quotient.where(quotient > 0)).abs() < tolerance
        # Places that are idle at the end of each level make all of them a little less.
        known = quotient.dropna()
        if at_once[known.index].nunique() > 1 and known.between(*MOSTLY_BUSY).all():
            hit |= quotient.notna()
        if hit.any() and hit.sum() >= 0.5 * np.isfinite(quotient).sum():
            k = at_once.where(hit).idxmax()
            return (
                sentence.format(e2e=number(e2e[k] * 1e3), n=number(at_once[k])),
                {"times": float(at_once[k])},
            )
    return None


def _whole_run(audited):
    if not audited.levels_have(*LEVEL_E2E):
        return None
    level = audited.levels
    e2e = level["e2e_mean_s"].fillna(level["e2e_s"]).fillna(level["e2e_p50_s"])
    hit = ((e2e / level["duration_s"] - 1).abs() < 0.01) & (level["requests"] > 2 * level["concurrency"])
    if not hit.any():
        return None
    k = hit.idxmax()
    return (
        f"{number(e2e[k])} s is the duration of the whole run of {number(level.at[k, 'requests'], 6)} "
        f"requests, of which {number(level.at[k, 'concurrency'])} ran at once",
        {"duration_s": float(e2e[k])},
    )


@check(
    CONTRADICTION,
    "e2e / (TTFT + TPOT x (tokens - 1)) outside 0.89 to 1.13 in some requests and 1 in the others; "
    "or times that fit the lengths of the same answers only in another order",
    "the definitions of the three",
    (
        "rate_against_times",
        "plain_sums",
        "cached_answer_in_mean",
        "prompt_counted_as_output",
        "tpot_contains_ttft",
    ),
)
def times_of_other_answers(audited: Audited) -> Finding | None:
    """End-to-end times do not belong to their answers."""
    for rows in audited.by_level():
        rows = rows[(rows["output_tokens"] > 1) & (rows["e2e_s"] > 0)]
        if len(rows) < FEWEST:
            continue
        gaps = rows["itl_s"].where(rows["gaps"] + 1 == rows["output_tokens"])
        found = _beside_parts(rows, gaps) or _beside_parts(rows, rows["tpot_s"].fillna(rows["itl_s"]))
        if not found and not _prompt_explains(rows):
            found = _beside_lengths(rows) or _exchanged(rows)
        if found:
            return Finding(
                "times_of_other_answers",
                CONTRADICTION,
                audited.first_file,
                f"End-to-end times do not belong to their answers: {found}.",
                {},
                "Rows or columns were shifted, sorted apart or joined wrongly; join them by the "
                "request's id.",
            )
    if not audited.levels_have(*LEVEL_E2E):
        return None
    levels = audited.levels
    built = frame.centre(levels, "ttft") + frame.centre(levels, "tpot") * (levels["output_tokens"] - 1)
    off = np.log(levels["e2e_mean_s"].fillna(levels["e2e_s"]) / built).replace([np.inf, -np.inf], np.nan)
    off, hit = off.dropna(), off.dropna().abs() > SHIFTED
    if len(off) >= 4 and hit.any() and hit.mean() <= 0.5 and off[~hit].abs().median() < 0.1:
        k = off.abs().idxmax()
        return Finding(
            "times_of_other_answers",
            CONTRADICTION,
            audited.first_file,
            f"End-to-end times do not belong to their rows: in {int(hit.sum())} of "
            f"{count(len(off), 'level')} e2e is up to {number(np.exp(abs(off[k])))} times off TTFT + TPOT x "
            "(tokens - 1), and in the others it fits.",
            {},
            "Rows were mixed; join them again.",
        )
    return None


def _prompt_explains(rows):
    """Whether the times fit the lengths once the prompt's tokens are taken off: then the tokens were counted
    wrongly, and the times are their answers'."""
    after, generated = rows["e2e_s"] - rows["ttft_s"].fillna(0), rows["output_tokens"] - rows["prompt_tokens"]
    known = (after > 0) & (generated > 0)
    if known.mean() < 0.9:
        return False
    after, generated, counted = after[known], generated[known], rows.loc[known, "output_tokens"]
    return np.log(after / generated).std() < 0.5 * np.log(after / counted).std()


@np.errstate(all="ignore")
def _beside_parts(rows, step):
    """Requests whose e2e is not TTFT + `step` x (tokens - 1), while that of others is."""
    whole = rows["e2e_s"].to_numpy()
    built = (rows["ttft_s"] + step * (rows["output_tokens"] - 1)).to_numpy()
    off = np.log(whole / built)
    known = np.isfinite(off)
    if known.sum() < FEWEST:
        return None
    off, whole, built = off[known], whole[known], built[known]
    apart = np.abs(off) > OFF
    order = np.abs(np.log(np.sort(whole) / np.sort(built)))
    deviation = off.std(ddof=1)
    shuffled = np.median(order) < 0.03 and deviation > 3 * max(np.std(order), 0.02)
    fits = np.median(np.abs(off[~apart])) < 0.02 if (~apart).any() else False
    # Exchanged times are too long and too short; what is only a little too long waited once more.
    fits = fits and apart.any() and (off[apart].min() < 0 or off[apart].max() > PAUSED)
    # One factor on all rows is another mistake.
    constant = deviation < 0.25 * abs(np.median(off))
    if apart.sum() < max(2, 0.03 * len(off)) or constant or not (shuffled or fits and apart.mean() < 0.7):
        return None
    how = ", though in another order they would" if shuffled else ""
    return (
        f"in {int(apart.sum())} of {count(len(off), 'request')} e2e is not TTFT + TPOT x (tokens - 1){how} "
        f"(up to {number(np.exp(np.abs(off).max()))} times off)"
    )


def _beside_lengths(rows):
    """Requests whose times vary as their lengths do, and not with them."""
    after = rows["e2e_s"] - rows["ttft_s"].fillna(0)
    after, tokens = after[after > 0], rows["output_tokens"][after > 0]
    if len(after) < 12 or np.log(tokens).std() < 0.12:
        return None
    slope = np.polyfit(np.log(tokens) - np.log(tokens).mean(), np.log(after), 1)[0]
    pace = np.log(after / tokens)
    sorted_pace = np.log(np.sort(after) / np.sort(tokens))
    far = (pace - pace.median()).abs() > 0.25
    sorted_far = np.abs(sorted_pace - np.median(sorted_pace)) > 0.25
    if slope > 0.6 or far.mean() < 0.15 or sorted_far.mean() > 0.3 * far.mean():
        return None
    # Exchanged times are too long as often as too short; a load that falls at the end only shortens.
    if not BOTH_WAYS[0] <= (pace[far] > pace.median()).mean() <= BOTH_WAYS[1]:
        return None
    if np.std(sorted_pace) > min(0.12, 0.35 * pace.std()):
        return None
    return (
        f"the time per token of {int(far.sum())} of {count(len(after), 'answer')} is far from the "
        f"others', and in another order of the same times only of {int(sorted_far.sum())}"
    )


def _exchanged(rows):
    """Requests whose time per token is far from the others', some too long and some too short, until their
    times change places among themselves."""
    after = rows["e2e_s"] - rows["ttft_s"].fillna(0)
    after, tokens = after[after > 0], rows["output_tokens"][after > 0]
    if len(after) < 12:
        return None
    pace = np.log(after / tokens)
    middle = pace.median()
    usual = 1.4826 * (pace - middle).abs().median()
    far = (pace - middle).abs() > max(FAR * usual, OFF)
    above = (pace[far] > middle).mean()
    if far.sum() < max(5, 0.05 * len(pace)) or far.mean() > 0.4 or not BOTH_WAYS[0] <= above <= BOTH_WAYS[1]:
        return None
    put_right = np.log(np.sort(after[far]) / np.sort(tokens[far])) - middle
    if usual > 0.05 or (np.abs(put_right) <= max(3 * usual, OFF / 2)).mean() < 0.9:
        return None
    return (
        f"the time per token of {int(far.sum())} of {count(len(after), 'answer')} is far from the others', "
        f"and would not be if they changed their times among themselves"
    )


@check(
    CONTRADICTION,
    "e2e (after the TTFT) that does not change while output tokens change by 1.5 times and more",
    "each token takes a step; vllm issue 1805",
    (
        "rate_against_times",
        "times_of_other_answers",
        "prefix_cache",
        "same_run_twice",
        "cached_answer_in_mean",
        "tokens_per_event",
        "tpot_contains_ttft",
        "plain_sums",
    ),
)
def same_time_for_other_lengths(audited: Audited) -> Finding | None:
    """Answers of other lengths took the same time."""
    for rows in audited.by_level():
        rows = rows[(rows["output_tokens"] > 1) & (rows["e2e_s"] > 0)]
        tokens = np.log(rows["output_tokens"])
        if len(rows) < FEWEST or tokens.std() < 0.1 or tokens.max() - tokens.min() < np.log(1.4):
            continue
        after = np.log((rows["e2e_s"] - rows["ttft_s"].fillna(0)).where(lambda t: t > 0)).dropna()
        whole = np.log(rows["e2e_s"])
        for times in (after, whole):
            n = tokens[times.index]
            slope = np.polyfit(n - n.mean(), times, 1)[0] if len(times) >= FEWEST else 1.0
            if abs(slope) < 0.1 and times.std() < 0.25 * n.std() and n.nunique() >= 4:
                return _same_time(audited, rows["output_tokens"], rows["e2e_s"], "answer")
    if not audited.levels_have(*LEVEL_E2E):
        return None
    level = audited.levels
    e2e = level["e2e_mean_s"].fillna(level["e2e_s"]).fillna(level["e2e_p50_s"])
    table = level.assign(e2e=e2e)[(e2e > 0) & (level["output_tokens"] > 1)]
    for _, part in table.groupby(SAME, dropna=False):
        tokens, times = part["output_tokens"], part["e2e"]
        if tokens.max() < 1.4 * tokens.min() or len(part) < 2:
            continue
        equal = part[part["e2e"].map(digits) >= 4].groupby("e2e")["output_tokens"].agg(["min", "max"])
        equal = equal[equal["max"] >= 1.4 * equal["min"]]
        if len(equal) or (len(part) >= 3 and times.max() < 1.04 * times.min()):
            rows = part[part["e2e"].isin(equal.index)] if len(equal) else part
            return _same_time(audited, rows["output_tokens"], rows["e2e"], "level")
    return None


def _same_time(audited, tokens, times, noun):
    return Finding(
        "same_time_for_other_lengths",
        CONTRADICTION,
        audited.first_file,
        f"The times are the same for different lengths: {count(len(times), noun)} of "
        f"{number(tokens.min(), 6)} to {number(tokens.max(), 6)} tokens took {number(times.min(), 4)} to "
        f"{number(times.max(), 4)} s.",
        {"tokens_ratio": float(tokens.max() / tokens.min()), "time_ratio": float(times.max() / times.min())},
        "The times or the lengths were copied, or are those of a limit and not of the answer.",
    )
