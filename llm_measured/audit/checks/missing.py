"""What cannot be told: percentiles that the sample does not bound, an overload, one run, and conditions
that the file does not state."""

import re

import numpy as np

from llm_measured.audit import catalog, frame
from llm_measured.audit.checks.finding import MISSING, REGISTRY, Check, Finding, check, count, number
from llm_measured.audit.checks.identities import FEW_IN_FLIGHT, requests_under_way
from llm_measured.audit.checks.impossible import peaks, steps
from llm_measured.audit.frame import Audited
from llm_measured.core import names
from llm_measured.core.confidence import requests_needed

KEPT_UP = 0.9  # of the offered rate
SHORT = 0.3  # of the time of sending, that an answer takes where no queue grows
DRAWN = 3.0  # deviations by which so many random arrivals may be late


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
                "percentile_from_too_few",
                MISSING,
                level["file"].iloc[0],
                f"A p{q} of {count(int(n[k]), 'request')}: even the slowest of them bounds the p{q} only "
                f"with {held:.0%} confidence.",
                {"requests": float(n[k]), "needed": needed},
                f"Call it the maximum of {int(n[k])}, or measure {needed} requests.",
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
    if not kept.notna().any():
        return None
    k = kept.idxmin()
    return Finding(
        "overload",
        MISSING,
        level["file"].iloc[0],
        f"{number(level.at[k, 'requests_per_s'])} requests/s were served where "
        f"{number(level.at[k, 'request_rate'])} were offered: the queue grew as "
        "long as the run lasted, and no latency of it can be told.",
        {"kept": float(kept[k])},
        "Offer a rate that the server keeps up with.",
    )


@check(
    MISSING,
    "requests/s x time of an answer < half of the requests at once that the client allows",
    "Little's law; a client, a proxy or a server that admits fewer",
)
def fewer_in_flight(audited: Audited) -> Finding | None:
    """Fewer requests are under way than the client allows: its level of load was not reached."""
    level = audited.levels
    under_way = requests_under_way(level)
    hit = under_way * FEW_IN_FLIGHT < level["concurrency"].where(level["concurrency"] > 1)
    if not hit.any():
        return None
    k = (under_way / level["concurrency"]).where(hit).idxmin()
    same = level.loc[hit, "gpu"].nunique() > 1 and under_way[hit].max() < 1.05 * under_way[hit].min()
    who = ", and as many on unlike devices: the client's own limit" if same else ""
    return Finding(
        "fewer_in_flight",
        MISSING,
        level.at[k, "file"],
        f"By rate and latency {number(under_way[k])} requests are under way where "
        f"{number(level.at[k, 'concurrency'])} "
        f"are allowed{who}: the load was not the one that is stated.",
        {"under_way": float(under_way[k])},
        "State how many were in flight, or find out who held them back.",
    )


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
    same = [
        "engine",
        "option",
        "weights",
        "model",
        "gpu",
        "batch_size",
        "concurrency",
        "request_rate",
        "prompt_tokens",
        "output_tokens",
    ]
    if level.groupby(same, dropna=False).size().max() > 1:
        return []
    file = level["file"].iloc[0]
    sentence = (
        "Every configuration was measured in one run: how much runs differ cannot be told, and one "
        "run ranks nothing."
    )
    return [
        Finding("one_run", MISSING, file, sentence, {}, "Repeat each configuration at least three times.")
    ]


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


def _absent(column):
    return lambda audited: audited.levels[column].replace("", np.nan).isna().any()


def _length(audited: Audited) -> bool:
    known = audited.levels["output_tokens"].notna() | audited.levels["level"].isin(
        audited.good().dropna(subset=["output_tokens"])["level"]
    )
    return not known.all()


FACTS = {
    "dtype_missing": (_dtype, "", "State the number format of the weights."),
    "sampling_missing": (
        _absent("temperature"),
        "Whether tokens were sampled or chosen greedily is not stated.",
        "State the temperature.",
    ),
    "lengths_missing": (
        _length,
        "How long the answers were is not stated.",
        "State prompt and output tokens.",
    ),
    "version_missing": (
        _absent("engine_version"),
        "The engine's version is not stated.",
        "State engine and version.",
    ),
    "warm_up_missing": (
        _absent("warmup_requests"),
        "Whether the server was warmed up is not stated.",
        "Leave out the first requests, and say so.",
    ),
    "device_missing": (
        lambda audited: _unknown(audited, "gpu", catalog.device, "device"),
        "The device is not stated, so nothing can be compared with its peaks: --gpu h100_sxm states it "
        "(make audit FILE=… GPU=h100_sxm).",
        "State the device (--gpu).",
    ),
    "model_missing": (
        lambda audited: _unknown(audited, "model", catalog.model, "model"),
        "The model is not stated: --model llama-3-8b states it (make audit FILE=… MODEL=llama-3-8b).",
        "State the model (--model).",
    ),
    "power_missing": (
        lambda audited: _absent("power_w")(audited) and _absent("energy_j")(audited),
        "Power was not recorded: nothing can be told of energy or of throttling.",
        "Record the devices' power.",
    ),
    "requests_missing": (
        lambda a: _percentiles(a) and a.levels["requests"].isna().any() and a.requests.empty,
        "Percentiles are given, and not of how many requests.",
        "State the number of requests.",
    ),
}


def _percentiles(audited):
    return audited.levels_have(*(f"{time}_p{q}_s" for time in frame.TIMES for q in (90, 95, 99)))


def _fact(name, absent, sentence, change):
    def function(audited):
        found = absent(audited)
        text = found if isinstance(found, str) else sentence
        return Finding(name, MISSING, audited.first_file, text, {}, change) if found else None

    statement = sentence or "The number format of the weights is not stated."
    REGISTRY[name] = Check(
        name, MISSING, statement, "the column is empty", "what a reader needs to compare", (), False, function
    )


for _name, _parts in FACTS.items():
    _fact(_name, *_parts)
