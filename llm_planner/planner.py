"""Which configurations hold an objective under a load, cheapest first, and which of the answers nobody has
measured.

Every candidate (GPUs per replica x replicas) is simulated under Poisson arrivals with the committed
coefficients, in futures that differ in the error of the step times and in the arrivals
(`candidates.futures`); the size of that error is the one that published points had (`check.Fits`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from llm_measured.core import naming
from llm_measured.core.definitions import Fields
from llm_planner import candidates, check, engines, published, rows, scheduler, shapes
from llm_planner.candidates import Candidate, Question

PERCENTILES = (50, 90, 99)
SHOWN = [
    *("gpu", "weights", "tensor_parallel", "replicas", "gpus", "futures_held"),
    *("hit_rate", "batch", "utilisation"),
    *("ttft_p50_s", "ttft_p99_s", "ttft_p99_low_s", "ttft_p99_high_s"),
    *("tpot_p50_s", "tpot_p99_s", "tpot_p99_low_s", "tpot_p99_high_s"),
    *("goodput_per_s", "output_tokens_per_s", "kv_gb_per_replica", "joules_per_token", "usd_per_hour"),
    *("usd_per_million_input", "usd_per_million_output", "break_even_requests_per_s", "price"),
    *("one_less", "unknown", "carries_over", "nearest_measured"),
]


def plan(
    question: Question,
    fits: check.Fits | None = None,
    api_usd_per_million: tuple[float | None, float | None] = (None, None),
) -> pd.DataFrame:
    """Configurations that hold the objectives, cheapest first: one row per GPUs of a replica.

    Columns: `_row`'s, and `one_less`: why the cheapest has no replica less. ValueError in one sentence where
    the model fits nowhere, no step is fast enough, or no number of GPUs suffices; the last two say which
    objective fails and by how much.
    """
    return _planned(question, fits or check.Fits(), api_usd_per_million)[0]


def _planned(question, fits, api_usd_per_million):
    """(`plan`, why which GPUs of a replica are not in it: sentences)."""
    fitting, refused = [], []
    for tensor_parallel in candidates.TENSOR_PARALLEL:
        if tensor_parallel > question.most_gpus:
            continue
        try:
            fitting.append(candidates.Candidate(question, tensor_parallel, fits))
        except ValueError as refusal:
            refused.append(str(refusal))
    if not fitting:
        raise ValueError(refused[-1])
    alone = np.array([c.alone() for c in fitting])
    goal = np.array([question.ttft_s, question.tpot_s])
    if not (alone <= goal).all(axis=1).any():
        raise ValueError(_too_slow(question, alone, goal))
    answers = [(c, c.fewest_replicas()) for c in fitting]
    found = [_row(c, *answer, api_usd_per_million) for c, answer in answers if answer]
    if not found:
        best = max(fitting, key=lambda c: c.capacity * (question.most_gpus // c.tensor_parallel))
        raise ValueError(
            f"{question.rate:g} requests/s are beyond every configuration of at most {question.most_gpus} "
            f"{question.gpu}: {_shortfall(best, _most(best))}; allow more GPUs (most_gpus), or relax the "
            "objectives."
        )
    table = pd.DataFrame(found).sort_values("usd_per_hour", ignore_index=True)
    first, replicas = table.loc[0, "tensor_parallel"], table.loc[0, "replicas"]
    cheapest = next(c for c in fitting if c.tensor_parallel == first)
    table["one_less"] = ""
    if replicas > 1:
        table.loc[0, "one_less"] = f"One replica less fails: {_shortfall(cheapest, replicas - 1)}."
    refused += [
        f"No answer with replicas of {c.tensor_parallel}: {_shortfall(c, _most(c))}."
        for c, answer in answers
        if not answer
    ]
    return table, refused


def _most(candidate):
    return candidate.question.most_gpus // candidate.tensor_parallel


def _too_slow(question, alone, goal):
    """Why no configuration holds the goal even without load: by how much the fastest misses which
    objective.
    """
    fastest = alone[np.argmin((alone / goal).max(axis=1))]
    missed = [
        f"{name} takes at least {1e3 * took:.3g} ms, {1e3 * (took - most):.2g} ms more than the goal"
        for name, took, most in zip(("TTFT", "TPOT"), fastest, goal)
        if took > most
    ]
    return (
        f"No configuration of {question.gpu} holds TTFT {question.ttft_s * 1e3:g} ms and TPOT "
        f"{question.tpot_s * 1e3:g} ms: alone on an idle server {naming.listed(missed)}; relax the objective "
        f"or the lengths."
    )


def _shortfall(candidate, replicas):
    """By how much so many replicas miss the goal, and which objective it is, without a full stop."""
    question = candidate.question
    rate = question.rate / replicas
    which = _replicas(replicas, candidate.tensor_parallel)
    if candidate.utilisation(rate) > candidates.MOST_UTILISED:
        completed = candidate.capacity * replicas
        grows = max(0.0, question.rate - completed)
        return (
            f"{which} can complete {completed:.3g} requests/s, so the queue grows by {grows:.3g} requests "
            f"every second, and TTFT with it"
            if grows
            else f"{which} can complete only {completed:.3g} requests/s, so that their queue does not settle"
        )
    tried = [candidate.holds(rate, future) for future in candidates.futures()]
    held, settled = sum(holds for holds, _ in tried), [t for _, t in tried if t is not None]
    said = [f"{which} hold the goal in {held} of {len(tried)} simulated futures"]
    if len(settled) < len(tried):
        said.append(f"the queue grows in {len(tried) - len(settled)}")
    for name, most in (("ttft", question.ttft_s), ("tpot", question.tpot_s)):
        times = _percentiles(name, settled)
        high = times[f"{name}_p99_high_s"]
        if high > most:
            said.append(
                f"99 of 100 requests have a {name.upper()} within {1e3 * times[f'{name}_p99_s']:.3g} ms, "
                f"at the end of the interval within {1e3 * high:.3g} ms, {1e3 * (high - most):.2g} ms more "
                f"than the goal"
            )
    return f"{said[0]}: {naming.listed(said[1:])}" if said[1:] else said[0]


def _replicas(number, tensor_parallel):
    return f"{number:.0f} replica{'s' if number != 1 else ''} of {tensor_parallel:.0f}"


def answers(parameters: Fields, fits: check.Fits | None = None) -> tuple[pd.DataFrame, list[str]]:
    """What plan.ipynb shows: (`plan` of every GPU and precision in one table, cheapest first; why which GPUs,
    precisions and GPUs of a replica have no answer).

    `parameters`: the notebook's, name -> value; a price is "" where there is none. ValueError with every
    fault of the question, one sentence each, and with the sentence itself where it is the same for all GPUs
    and precisions.
    """
    names = "model engine prompt_tokens answer_tokens rate hit_rate ttft_s tpot_s most_gpus".split()
    gpus, precisions = parameters["gpus"].split(), parameters["weights"].split()
    prices, found = _prices(parameters)
    named = [faults_of(parameters, gpu, weights) for gpu in gpus for weights in precisions]
    ordered = (sentence for kind in (0, 1) for part in named for sentence in part[kind])
    found = [*dict.fromkeys(ordered), *found]
    found += [
        f"{name} is empty; give at least one name, several separated by spaces."
        for name in ("gpus", "weights")
        if not parameters[name].split()
    ]
    if found:
        raise ValueError(" ".join(found))
    tables, refusals = [pd.DataFrame(columns=SHOWN)], {}
    for gpu in gpus:
        for weights in precisions:
            more = dict(gpu=gpu, weights=weights, usd_per_gpu_hour=prices[0])
            question = candidates.Question(**{name: parameters[name] for name in names}, **more)
            try:
                table, absent = _planned(question, fits or check.Fits(), prices[1:])
                tables.append(table)
                if absent:
                    refusals[gpu, weights] = " ".join(absent)
            except ValueError as refusal:
                refusals[gpu, weights] = str(refusal)
    if len(tables) == 1 and len(set(refusals.values())) == 1:
        raise ValueError(next(iter(refusals.values())))
    table = pd.concat(tables[1:] or tables).sort_values("usd_per_hour", ignore_index=True)
    return table, [f"{', '.join(key)}: {sentence}" for key, sentence in refusals.items()]


def faults_of(parameters: dict[str, Any], gpu: str, weights: str) -> tuple[list[str], list[str]]:
    """`candidates.faults` of the notebook's parameters for one GPU and precision."""
    loads = {
        name: parameters[name] for name in ("prompt_tokens", "answer_tokens", "rate", "ttft_s", "tpot_s")
    }
    own = 1.0 if str(parameters["usd_per_gpu_hour"]).strip() else None  # the price itself: `_prices`
    return candidates.faults(
        parameters["model"], weights, parameters["engine"], gpu, loads, own, parameters["hit_rate"]
    )


def _prices(parameters):
    """([the reader's dollars per GPU hour, the API's per million input and output tokens], faults)."""
    values, found = [], []
    for name in ("usd_per_gpu_hour", "api_usd_per_million_input", "api_usd_per_million_output"):
        try:
            values.append(dollars(parameters, name))
        except ValueError as fault:
            found.append(str(fault))
    return values, found


def verdict(table: pd.DataFrame) -> str:
    """The cheapest answer of `answers` as one sentence: `6 H100 SXM: 3 replicas of 2, …`."""
    if table.empty:
        return "No configuration holds the goal."
    row = table.iloc[0]
    sheet = shapes.devices()
    cached = f", {100 * row['hit_rate']:g} % of prompt tokens from a prefix cache" if row["hit_rate"] else ""
    return (
        f"{row['gpus']:.0f} {sheet[row['gpu']]}: {_replicas(row['replicas'], row['tensor_parallel'])} in "
        f"{row['weights']}{cached}, {row['usd_per_hour']:.2f} dollars an hour; the goal is met in "
        f"{100 * row['futures_held']:.0f} % of the simulated futures."
    )


def reasons(table: pd.DataFrame) -> list[str]:
    """Why the cheapest answer of `answers` has no replica less, and what no row was fitted to: sentences."""
    if table.empty:
        return []
    said = [table.iloc[0]["one_less"], *table["carries_over"]]
    return [sentence for sentence in dict.fromkeys(said) if sentence]


def goal_table(table: pd.DataFrame) -> pd.DataFrame:
    """`answers` as far as the goal reaches, few enough columns for a notebook to show all: one row per
    configuration, cheapest first; columns with their units, times in ms as `99th percentile (interval)`.
    """
    shown = pd.DataFrame({"GPU": table["gpu"], "weights": table["weights"]})
    shown["replicas × GPUs"] = [
        f"{n:.0f} × {tp:.0f}" for n, tp in zip(table["replicas"], table["tensor_parallel"])
    ]
    shown["GPUs"] = table["gpus"]
    shown["dollars per hour"] = table["usd_per_hour"].map("{:.2f}".format)
    for name in ("ttft", "tpot"):
        ends = (table[f"{name}_p99_{end}s"] for end in ("", "low_", "high_"))
        shown[f"{name.upper()} p99 (ms)"] = [
            f"{1e3 * middle:.3g} ({1e3 * low:.3g} to {1e3 * high:.3g})" for middle, low, high in zip(*ends)
        ]
    shown["futures that meet the goal (%)"] = (100 * table["futures_held"].astype(float)).round()
    return shown


def dollars(parameters: Fields, name: str) -> float | None:
    """The price `name` of the notebook's `parameters` as a number, None for ""; ValueError for one that is
    not above zero.
    """
    text = str(parameters[name]).strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not 0 < value < np.inf:
        raise ValueError(f"{name} is {text}, which is no price; give dollars above zero, or leave it empty.")
    return value


def _row(candidate, replicas, tried, api):
    """One answer: what it needs, does and costs; times in s with the interval over the simulated futures,
    prices in dollars.

    `tried`: `Candidate.holds` of every future; only those whose queue settles have times.
    """
    futures = [simulation for _, simulation in tried if simulation is not None]
    question, gpus = candidate.question, replicas * candidate.tensor_parallel
    shape, tp = candidate.setting.shape, candidate.tensor_parallel
    # GPUs that share a KV head hold it each.
    token_bytes = shape.kv_values * candidate.setting.kv_bytes * tp / min(tp, shape.kv_heads)
    return (
        {
            "gpu": question.gpu,
            "weights": question.weights,
            "engine": question.engine,
            "tensor_parallel": tp,
            "replicas": replicas,
            "gpus": gpus,
            "futures_held": np.mean([holds for holds, _ in tried]),
            "hit_rate": question.hit_rate,
            "batch": np.median([one.running for one in futures]),
            "utilisation": candidate.utilisation(question.rate / replicas),
        }
        | _percentiles("ttft", futures)
        | _percentiles("tpot", futures)
        | {
            "goodput_per_s": question.rate * np.median([candidate.good(one) for one in futures]),
            "output_tokens_per_s": question.rate * question.answer_tokens,
            "kv_gb_per_replica": np.median([one.kv_tokens for one in futures]) * token_bytes / 1e9,
            "joules_per_token": np.nan,
            "unknown": candidate.unknown,
            "nearest_measured": nearest(question, candidate.tensor_parallel),
            "carries_over": carries_over(question, candidate),
        }
        | _money(question, candidate, gpus, api)
    )


def _percentiles(name: str, futures: Sequence[rows.Simulation]) -> dict[str, float]:
    """Percentiles of TTFT or TPOT, each the median over the futures, and the interval of the 99th over
    them.

    A request of the first tenth met an empty server and is not counted.
    """
    times = [getattr(one, f"{name}_s") for one in futures]
    each = np.array([np.percentile(part[len(part) // 10 :], PERCENTILES) for part in times])
    found = {f"{name}_p{q}_s": np.median(each[:, k]) for k, q in enumerate(PERCENTILES)}
    return found | {f"{name}_p99_low_s": each[:, -1].min(), f"{name}_p99_high_s": each[:, -1].max()}


def _money(question, candidate, gpus, api):
    """Dollars per hour and per million tokens, in and out parted by the seconds that prefill and decode take;
    break-even with an API.
    """
    usd_per_hour = gpus * question.usd_per_gpu_hour
    share = prefill_share(candidate)
    per_hour = question.rate * 3600 / 1e6
    money = {
        "usd_per_hour": usd_per_hour,
        "price": question.price_source,
        "usd_per_million_input": usd_per_hour * share / (per_hour * question.prompt_tokens),
        "usd_per_million_output": usd_per_hour * (1 - share) / (per_hour * question.answer_tokens),
        "break_even_requests_per_s": np.nan,
    }
    if None not in api:
        per_request = (api[0] * question.prompt_tokens + api[1] * question.answer_tokens) / 1e6
        money["break_even_requests_per_s"] = usd_per_hour / 3600 / per_request
    return money


def prefill_share(candidate: Candidate) -> float:
    """Share of a replica's seconds that reading prompts takes, beside decoding in batches of 32."""
    batch = 32
    q = candidate.question
    prefill = candidate.prefill_s()
    decode = (
        scheduler.step_s(candidate.cost, batch, batch * (q.prompt_tokens + q.answer_tokens // 2), 0.0, 0.0)
        * q.answer_tokens
        / batch
    )
    return prefill / (prefill + decode)


def carries_over(question: candidates.Question, candidate: candidates.Candidate) -> str:
    """What of a question no row was fitted to, and what stands in for it: sentences, "" where all was."""
    said, unknown = [], candidate.unknown.split(" and ")
    where = f"{question.engine} on {question.gpu}"
    if "gpu" in unknown or "engine" in unknown:
        said.append(
            f"No row of {where} was fitted: its coefficients are means over the nearest that were, and its "
            f"intervals are the errors of leaving such ones out."
        )
    if "model" in unknown:
        said.append(
            f"No row of {question.model} with {where} was fitted: other models' step times carry over by its "
            f"shape, and intervals are the errors of leaving models out."
        )
    if "gpu" not in unknown and "engine" not in unknown:
        table = published.table()
        same = table[(table["engine"] == question.engine) & (table["gpu"] == question.gpu)]
        if question.weights not in set(same["weights"]):
            silent = int((same["weights"] == "unstated").sum())
            taken = question.weights == engines.RULES.unstated and silent > 0
            said.append(
                f"No row of {where} states {question.weights}: "
                + (
                    f"{silent} state no precision and are taken for it."
                    if taken
                    else "bytes and rates of the datasheet stand in for it, in no interval."
                )
            )
    if question.hit_rate:
        said.append(
            "No fitted row states a hit rate: the same share of every prompt is not computed, whole prompts "
            "hold KV memory, and intervals know no error of it."
        )
    if candidate.setting.shape.note:
        said.append(candidate.setting.shape.note)
    return " ".join(said)


def nearest(question: Question, tensor_parallel: int) -> str:
    """The published row that comes nearest, as a sentence; that nobody has measured the model on that GPU and
    engine where there is none.
    """
    table = published.table()
    weights = table["weights"].replace("unstated", engines.RULES.unstated)
    same = table[
        (table["model"] == question.model)
        & (table["gpu"] == question.gpu)
        & (table["engine"] == question.engine)
        & (weights == question.weights)
    ]
    if same.empty:
        return (
            f"nobody has measured {question.model} in {question.weights} with {question.engine} on "
            f"{question.gpu}"
        )
    target = np.log([question.prompt_tokens, question.answer_tokens, tensor_parallel])
    distance = np.abs(np.log(same[["input_tokens", "output_tokens", "tensor_parallel"]]) - target).sum(axis=1)
    row = same.loc[distance.idxmin()]
    return (
        f"TP {row['tensor_parallel']}, {row['input_tokens']}/{row['output_tokens']}, {row['concurrency']:g} "
        f"at once: TTFT {row['ttft_ms']:.0f} ms, TPOT {row['tpot_ms']:.1f} ms"
    )
