"""Contradictions of times against lengths: those of other answers, of batches, in other units, of nothing."""

import numpy as np

from llm_measured.audit import frame
from llm_measured.audit.checks.finding import CONTRADICTION, Finding, check, count, number
from llm_measured.audit.frame import Audited
from llm_measured.core.plausibility import digits

TIMES = ["ttft_s", "tpot_s", "itl_s", "e2e_s"]
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
PAUSED = 0.25  # of a logarithm: by so much may a pause lengthen an answer that is nobody else's
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
