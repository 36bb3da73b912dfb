"""Which configurations hold an objective under a load, cheapest first, and which of the answers nobody has
measured.

Every candidate (GPUs per replica x replicas) is simulated under Poisson arrivals with the committed
coefficients; the intervals are those of the published points' errors (`check.Fits`).
"""

import numpy as np
import pandas as pd

from bench.analysis.planning import candidates, check, engines, published, scheduler, shapes

PERCENTILES = (50, 90, 99)
SHOWN = (
    "gpu weights tensor_parallel replicas gpus batch ttft_p50_s ttft_p99_s ttft_p99_low_s "
    "ttft_p99_high_s tpot_p50_s tpot_p99_s tpot_p99_low_s "
    "tpot_p99_high_s goodput_per_s output_tokens_per_s kv_gb_per_replica joules_per_token "
    "usd_per_hour usd_per_million_input "
    "usd_per_million_output break_even_requests_per_s price"
).split()


def plan(question, fits=None, api_usd_per_million=(None, None)):
    """Configurations that hold the objectives, cheapest first: one row per GPUs of a replica.

    Columns: `_row`'s. ValueError in one sentence where the model fits nowhere, no step is fast enough, or no
    number of GPUs suffices.
    """
    fits = fits or check.Fits()
    shapes.shape(question.model)
    fitting, refused = _fitting(question, fits)
    if not fitting:
        raise ValueError(refused)
    alone = [c.alone() for c in fitting]
    if not any(ttft <= question.ttft_s and tpot <= question.tpot_s for ttft, tpot in alone):
        ttft, tpot = min(t for t, _ in alone), min(t for _, t in alone)
        raise ValueError(
            f"No configuration of {question.gpu} holds TTFT {question.ttft_s * 1e3:g} ms and TPOT "
            f"{question.tpot_s * 1e3:g} ms: alone on "
            f"an idle server a request takes at least {ttft * 1e3:.0f} ms and {tpot * 1e3:.1f} "
            f"ms; relax the objective or the lengths."
        )
    found = [_row(c, *answer, api_usd_per_million) for c in fitting if (answer := c.fewest_replicas())]
    if not found:
        raise ValueError(
            f"{question.rate:g} requests/s are beyond every configuration of at most "
            f"{question.most_gpus} {question.gpu} that holds the "
            "objectives; allow more GPUs (most_gpus) or relax the objectives."
        )
    return pd.DataFrame(found).sort_values("usd_per_hour", ignore_index=True)


def answers(parameters, fits=None):
    """What plan.ipynb shows: (`plan` of every GPU and precision in one table, cheapest first; the sentences
    of those without an answer).

    `parameters`: the notebook's, name -> value; a price is "" where there is none. ValueError for a price
    that is no number above zero, and with the sentence itself where it is the same for all GPUs and
    precisions.
    """
    names = "model engine prompt_tokens new_tokens rate ttft_s tpot_s most_gpus".split()
    api = tuple(dollars(parameters, f"api_usd_per_million_{end}") for end in ("input", "output"))
    own = dollars(parameters, "usd_per_gpu_hour")
    tables, refusals = [pd.DataFrame(columns=[*SHOWN, "holds", "estimated", "nearest_measured"])], {}
    for gpu in parameters["gpus"].split():
        for weights in parameters["weights"].split():
            more = dict(gpu=gpu, weights=weights, usd_per_gpu_hour=own)
            try:
                tables.append(
                    plan(candidates.Question(**{name: parameters[name] for name in names}, **more), fits, api)
                )
            except ValueError as refusal:
                refusals[gpu, weights] = str(refusal)
    if len(tables) == 1 and len(set(refusals.values())) == 1:
        raise ValueError(next(iter(refusals.values())))
    found = pd.concat(tables[1:] or tables).sort_values("usd_per_hour", ignore_index=True)
    return found, [f"{', '.join(key)}: {sentence}" for key, sentence in refusals.items()]


def dollars(parameters, name):
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


def _fitting(question, fits):
    """(candidates that fit in memory, the sentence of the last one that does not)."""
    fitting, refused = [], ""
    for tensor_parallel in candidates.TENSOR_PARALLEL:
        if tensor_parallel > question.most_gpus:
            continue
        try:
            fitting.append(candidates.Candidate(question, tensor_parallel, fits))
        except ValueError as refusal:
            refused = str(refusal)
    return fitting, refused


def _row(candidate, replicas, simulation, api):
    """One answer: what it needs, does and costs; times in s with the interval of the published points'
    errors, prices in dollars.
    """
    question, kept = candidate.question, slice(len(simulation.ttft_s) // 10, None)
    gpus = replicas * candidate.tensor_parallel
    row = {
        "gpu": question.gpu,
        "weights": question.weights,
        "engine": question.engine,
        "tensor_parallel": candidate.tensor_parallel,
        "replicas": replicas,
        "gpus": gpus,
        "batch": _mean_batch(simulation),
    }
    row |= _percentiles("ttft", simulation.ttft_s[kept], candidate.widths[0])
    row |= _percentiles("tpot", simulation.tpot_s[kept], candidate.widths[1])
    sure = row["ttft_p99_high_s"] <= question.ttft_s and row["tpot_p99_high_s"] <= question.tpot_s
    kv = (
        candidate.setting.shape.kv_values
        * candidate.setting.kv_bytes
        * (question.prompt_tokens + question.new_tokens / 2)
    )
    return (
        row
        | {
            "holds": "with its whole interval" if sure else "in the middle of its interval",
            "goodput_per_s": question.rate * candidate.good(simulation),
            "output_tokens_per_s": question.rate * question.new_tokens,
            "kv_gb_per_replica": row["batch"] * kv / 1e9,
            "joules_per_token": np.nan,
            "estimated": candidate.estimated,
            "nearest_measured": nearest(question, candidate.tensor_parallel),
        }
        | _money(question, candidate, gpus, api)
    )


def _percentiles(name, seconds, width):
    """Percentiles of `seconds`, and the interval of the 99th from the half width of its logarithm."""
    found = {f"{name}_p{q}_s": np.percentile(seconds, q) for q in PERCENTILES}
    low, high = found[f"{name}_p99_s"] * np.exp([-width, width])
    return found | {f"{name}_p99_low_s": low, f"{name}_p99_high_s": high}


def _mean_batch(simulation):
    """Requests in flight on average (Little's law)."""
    return simulation.e2e_s.sum() / (simulation.sent_s[-1] - simulation.sent_s[0])


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
        "usd_per_million_output": usd_per_hour * (1 - share) / (per_hour * question.new_tokens),
        "break_even_requests_per_s": np.nan,
    }
    if None not in api:
        per_request = (api[0] * question.prompt_tokens + api[1] * question.new_tokens) / 1e6
        money["break_even_requests_per_s"] = usd_per_hour / 3600 / per_request
    return money


def prefill_share(candidate, batch=32):
    """Share of a replica's seconds that reading prompts takes, beside decoding in batches of `batch`."""
    q = candidate.question
    prefill = scheduler.step_s(candidate.cost, 0, 0, float(q.prompt_tokens), q.prompt_tokens**2 / 2)
    decode = (
        scheduler.step_s(candidate.cost, batch, batch * (q.prompt_tokens + q.new_tokens // 2), 0.0, 0.0)
        * q.new_tokens
        / batch
    )
    return prefill / (prefill + decode)


def nearest(question, tensor_parallel):
    """The published row that comes nearest, as a sentence; that nobody has measured the model on that GPU and
    engine where there is none.
    """
    table = published.table()
    weights = table["weights"].replace("unstated", engines.UNSTATED)
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
    target = np.log([question.prompt_tokens, question.new_tokens, tensor_parallel])
    distance = np.abs(np.log(same[["input_tokens", "output_tokens", "tensor_parallel"]]) - target).sum(axis=1)
    row = same.loc[distance.idxmin()]
    return (
        f"TP {row['tensor_parallel']}, {row['input_tokens']}/{row['output_tokens']}, "
        f"{row['concurrency']:g} at once: "
        f"TTFT {row['ttft_ms']:.0f} ms, TPOT {row['tpot_ms']:.1f} ms"
    )
