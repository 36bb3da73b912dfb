"""What cannot be told: percentiles that the sample does not bound, an overload, one run, and conditions
that the file does not state."""

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from llm_measured.audit import catalog, frame, quantities
from llm_measured.audit.checks.finding import MISSING, Finding, check, count, levels, number
from llm_measured.audit.checks.identities import FEW_IN_FLIGHT, requests_under_way
from llm_measured.audit.checks.impossible import peaks, steps
from llm_measured.audit.frame import Audited
from llm_measured.core import names
from llm_measured.core.confidence import requests_needed

CUT = 0.9  # of the tokens that were asked
FEWER = 0.98  # of the requests that were asked
KEPT_UP = 0.9  # of the offered rate
SHORT = 0.3  # of the time of sending, that an answer takes where no queue grows
DRAWN = 3.0  # deviations by which so many random arrivals may be late


def _least(
    audited: Audited, share: pd.Series, limit: float, sentence: Callable[[int, str], str], change: str
) -> Finding | None:
    """The finding of the level whose `share` is the least, None where none is below `limit`; `sentence`
    says it of a level, with how many there are."""
    hit = share < limit
    if not hit.any():
        return None
    k = share.where(hit).idxmin()
    numbers = {"share": float(share[k])}
    return Finding(sentence(k, levels(hit)), change, numbers=numbers, file=audited.levels.at[k, "file"])


@check(
    MISSING,
    "output tokens of an answer < 0.9 x those that were asked",
    "an answer that ends by itself is shorter than asked; NVIDIA/TensorRT-LLM issue 6294",
)
def answers_end_early(audited: Audited) -> Finding | None:
    """Answers are shorter than they were asked to be: rates of other lengths are not comparable."""
    level = audited.levels
    tokens = level["output_tokens"].fillna(level["output_tokens_per_s"] / level["requests_per_s"])
    asked = level["max_new_tokens"]

    def sentence(k: int, many: str) -> str:
        return (
            f"Answers have {number(tokens[k])} tokens, {number(asked[k], 6)} were asked{many}: the end token "
            "was obeyed, and the rate is one of short answers."
        )

    change = "Ignore the end token, or compare with answers of this length."
    return _least(audited, tokens / asked, CUT, sentence, change)


@check(
    MISSING,
    "completed < 0.98 x asked, and no failure is stated",
    "a rate of those that completed says nothing of the others",
)
def fewer_completed(audited: Audited) -> Finding | None:
    """Fewer requests completed than were asked, and the file does not say what became of the others."""
    level = audited.levels
    completed = level["requests"].where(level["failed"].isna())

    def sentence(k: int, many: str) -> str:
        return (
            f"{count(int(completed[k]), 'request')} completed, {level.at[k, 'asked']:,.0f} were asked{many}, "
            "and nothing is said of the others: the rates are of those that completed."
        )

    return _least(audited, completed / level["asked"], FEWER, sentence, "State how many failed.")


@check(
    MISSING,
    "n < log(0.05) / log(q): 299 for p99, 59 for p95, 29 for p90",
    "Wilks, Determination of sample sizes for setting tolerance limits (1941)",
)
def percentile_from_too_few(audited: Audited) -> Finding | None:
    """A percentile from too few requests: it is not bounded, and is the maximum of so many."""
    level = audited.levels
    for q in (99, 95, 90):
        columns = [f"{time}_p{q}_s" for time in ("ttft", "tpot", "e2e")]
        if not audited.levels_have(*columns):
            continue
        stated = level[columns].notna().any(axis=1)
        own = audited.good().groupby("level").size()
        n = level["requests"].fillna(level["level"].map(own))
        needed = requests_needed(q / 100)
        few = stated & (n < needed)
        if few.any():
            k = n.where(few).idxmin()
            held = 1 - (q / 100) ** n[k]
            return Finding(
                f"A p{q} of {count(int(n[k]), 'request')}: even the slowest of them bounds the p{q} only "
                f"with {held:.0%} confidence.",
                f"Call it the maximum of {int(n[k])}, or measure {needed} requests.",
                numbers={"requests": float(n[k]), "needed": needed},
                file=level["file"].iloc[0],
            )
    return None


@check(
    MISSING,
    "requests / (duration - a short e2e) < (0.9, or 1 - 3 / sqrt(requests)) x offered requests/s",
    "the definition of an open loop: arrivals at random, and a last answer that takes its time",
)
def overload(audited: Audited) -> Finding | None:
    """Overload: the server did not keep up, so every latency depends on how long the run was."""
    if not audited.levels_have("request_rate") or not audited.levels_have("requests_per_s"):
        return None
    level = audited.levels
    kept = level["requests_per_s"] / level["request_rate"]
    # After the last request was sent, a run lasts as long as its answer: where answers are short beside the
    # time of sending, which an overload makes long, that explains a lower rate.
    parts = frame.centre(level, "ttft") + frame.centre(level, "tpot") * (level["output_tokens"] - 1)
    last, sending = frame.centre(level, "e2e").fillna(parts), level["requests"] / level["request_rate"]
    drained = sending / (level["duration_s"] - last.where(last < SHORT * sending))
    drawn = (1 - DRAWN / np.sqrt(level["requests"])).clip(upper=KEPT_UP).fillna(KEPT_UP)
    kept = kept.where(np.fmax(kept, drained) < drawn)

    def sentence(k: int, many: str) -> str:
        return (
            f"{number(level.at[k, 'requests_per_s'])} requests/s were served where "
            f"{number(level.at[k, 'request_rate'])} were offered: the queue grew as long as the run lasted, "
            "and no latency of it can be told."
        )

    return _least(audited, kept, KEPT_UP, sentence, "Offer a rate that the server keeps up with.")


@check(
    MISSING,
    "requests/s x time of an answer < half of the requests at once that the client allows",
    "Little's law; a client, a proxy or a server that admits fewer",
)
def fewer_in_flight(audited: Audited) -> Finding | None:
    """Fewer requests are under way than the client allows: its level of load was not reached."""
    level = audited.levels
    under_way = requests_under_way(level)
    share = under_way / level["concurrency"].where(level["concurrency"] > 1)
    hit = share < 1 / FEW_IN_FLIGHT
    same = level.loc[hit, "gpu"].nunique() > 1 and under_way[hit].max() < 1.05 * under_way[hit].min()
    who = ", and as many on unlike devices: the client's own limit" if same else ""

    def sentence(k: int, many: str) -> str:
        return (
            f"By rate and latency {number(under_way[k])} requests are under way where "
            f"{number(level.at[k, 'concurrency'])} are allowed{who}: the load was not the one that is stated."
        )

    change = "State how many were in flight, or find out who held them back."
    return _least(audited, share, 1 / FEW_IN_FLIGHT, sentence, change)


@check(
    MISSING,
    "runs of a configuration < 2",
    "an interval is over runs, never over requests of one run",
    across=True,
)
def one_run(audited: Audited) -> list[Finding]:
    """One run of each configuration: no spread between runs can be told, and nothing ranks."""
    level = audited.levels
    if level.empty or (level["runs"] >= 2).any():
        return []
    same = (
        "engine option weights model gpu batch_size concurrency request_rate prompt_tokens output_tokens"
    ).split()
    if level.groupby(same, dropna=False).size().max() > 1:
        return []
    file = level["file"].iloc[0]
    sentence = (
        "Every configuration was measured in one run: how much runs differ cannot be told, and one "
        "run ranks nothing."
    )
    return [Finding(sentence, "Repeat each configuration at least three times.", file=file)]


def _dtype(audited):
    """Whether the number format is absent; with what the speed itself says of it."""
    level = audited.levels
    absent = level[["weights", "option", "model", "name"]].map(catalog.bits).isna().all(axis=1)
    if not absent.any():
        return None
    peak, (step, assumed) = peaks(audited), steps(audited)
    parameters = np.array([s["step_parameters"] if s else np.nan for s in peak["shape"]])
    most = step.where(~assumed) * peak["bandwidth_bytes_per_s"] * 8 / parameters
    bound = f"; at its speed they have at most {number(most.min(), 2)} bits" if most.min() < 16 else ""
    return f"The number format of the weights is not stated{bound}."


def _unknown(audited, column, known, noun):
    """Whether a device or model is absent; a sentence where one is stated that no table knows."""
    named = [name for name in dict.fromkeys(audited.levels[column]) if name]
    if len(named) == 0 or (audited.levels[column] == "").any():
        return True
    strange = [name for name in named if known(name) is None]
    if not strange or catalog.mixture(strange[0]) or CPU.search(strange[0]):
        return None
    near = _nearest(column, strange[0])
    if len(named) > 1:
        count_of = (
            f"{len(strange)} of the {len(named)} {noun}s are"
            if len(strange) > 1
            else f"One of {len(named)} {noun}s is"
        )
        return f'{count_of} in no table ("{strange[0][:60]}"), so those rows were not compared.{near}'
    return (
        f'No table knows the {noun} "{strange[0][:60]}", so nothing can be compared with it.{near} '
        f'--{column} "NAME" (with make {column.upper()}="NAME") states what it is.'
    )


def _nearest(column, name):
    """A sentence with the nearest names that a table has."""
    try:
        (names.accelerator if column == "gpu" else names.model)(name)
    except names.UnknownName as unknown:
        return f" Nearest: {', '.join(unknown.nearest)}." if unknown.nearest else ""
    return ""


CPU = re.compile(r"cpu|xeon|epyc|ryzen|core\(tm\)|threadripper|graviton|\dc$", re.I)


def _lengths(audited):
    known = audited.levels["output_tokens"].notna() | audited.levels["level"].isin(
        audited.good().dropna(subset=["output_tokens"])["level"]
    )
    return not known.all()


def _requests(audited):
    columns = (f"{time}_p{q}_s" for time in frame.TIMES for q in (90, 95, 99))
    return (
        audited.levels_have(*columns) and audited.levels["requests"].isna().any() and audited.requests.empty
    )


# What says whether a fact is absent, where it is no matter of a column alone; or a sentence.
ABSENT = {
    "dtype_missing": _dtype,
    "lengths_missing": _lengths,
    "device_missing": lambda audited: _unknown(audited, "gpu", catalog.device, "device"),
    "model_missing": lambda audited: _unknown(audited, "model", catalog.model, "model"),
    "requests_missing": _requests,
}


def _fact(row):
    name, columns = row["check"], row["columns"].split()

    def function(audited):
        absent = [audited.levels[column].replace("", np.nan).isna().any() for column in columns]
        found = ABSENT[name](audited) if name in ABSENT else all(absent)
        text = found if isinstance(found, str) else row["sentence"]
        return Finding(text, row["change"]) if found else None

    function.__name__ = name
    function.__doc__ = row["sentence"] or "The number format of the weights is not stated."
    check(MISSING, "the column is empty", "what a reader needs to compare")(function)


for _row in quantities.rows_of("unstated.csv"):
    _fact(_row)
