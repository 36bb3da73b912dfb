"""Choices that step times decide: tensor or data parallelism, speculation or not, cost or latency."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from llm_planner import candidates, check, engines, rows, scheduler, steady, step_time

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WAVES = 4  # requests per place, of which the first, that all arrive at once, is not counted
DRAFTS = (2, 4, 8)
CONTEXT = 1500  # tokens of each sequence that speculates
GPUS = 8  # to be shared between replicas


def _case(model, gpu, engine, weights, tensor_parallel, prompt_tokens, answer_tokens):
    return engines.Case(
        model, gpu, engine, weights, tensor_parallel, engines.SLOTS, prompt_tokens, answer_tokens, "plan"
    )


def closed_loops(
    model: str,
    gpu: str,
    engine: str,
    weights: str,
    lengths: tuple[int, int] = (1000, 1000),
    batches: Sequence[int] = BATCHES,
) -> pd.DataFrame:
    """Closed loops of one replica on 1, 2, 4 and 8 GPUs, simulated: one row per GPUs and `concurrency`.

    Columns: tensor_parallel, concurrency, ttft_s, tpot_s (medians), output_tokens_per_s_per_gpu,
    usd_per_million_output (NaN without a price), unknown (what was never
    fitted). `lengths`: prompt and new tokens.
    """
    coefficients, _, unknown = check.Fits().of(engine, gpu, model)
    try:
        usd = candidates.price(gpu)[0]
    except ValueError:
        usd = np.nan
    found = []
    for tensor_parallel in steady.TENSOR_PARALLEL:
        case = _case(model, gpu, engine, weights, tensor_parallel, *lengths)
        try:
            policy = engines.policy(case)
        except ValueError:
            continue
        cost = step_time.cost(engines.setting(case), coefficients)
        for batch in batches:
            level = _level(cost, policy, coefficients[-1], batch, lengths)
            per_gpu = level.pop("output_tokens_per_s") / tensor_parallel
            found.append(
                {"model": model, "gpu": gpu, "engine": engine, "weights": weights}
                | {"tensor_parallel": tensor_parallel, "concurrency": batch, "unknown": unknown}
                | level
                | {
                    "output_tokens_per_s_per_gpu": per_gpu,
                    "usd_per_million_output": usd / 3600 / per_gpu * 1e6,
                }
            )
    return pd.DataFrame(found)


def _level(cost, policy, request_s, batch, lengths):
    requests = [np.full(batch * WAVES, tokens) for tokens in lengths]
    met = rows.Simulation(*requests, cost, policy, concurrency=batch, request_s=request_s, gaps=False)
    kept = slice(batch, None)
    lasted = (met.sent_s + met.e2e_s).max() - met.sent_s[kept].min()
    return {
        "ttft_s": np.median(met.ttft_s[kept]),
        "tpot_s": np.median(met.tpot_s[kept]),
        "output_tokens_per_s": met.output[kept].sum() / lasted,
    }


def parallelism(table: pd.DataFrame) -> pd.DataFrame:
    """The same load on `GPUS` GPUs as replicas of 1, 2, 4, 8: one row per GPUs of a replica and load.

    `table`: `closed_loops`. `load`: requests at once on all GPUs together; output_tokens_per_s of all.
    """
    spread = table.assign(
        load=table["concurrency"] * GPUS // table["tensor_parallel"],
        replicas=GPUS // table["tensor_parallel"],
        output_tokens_per_s=table["output_tokens_per_s_per_gpu"] * GPUS,
    )
    return spread[spread["tensor_parallel"] <= GPUS]


def crossover(spread: pd.DataFrame) -> pd.DataFrame:
    """Which way to share GPUs is fastest for a user at each load, and which yields most: one row per `load`
    that several ways have; columns: load, fastest and most (tensor_parallel of the least TPOT and of the most
    tokens/s), and of both tpot_s and output_tokens_per_s.
    """
    found = []
    for load, part in spread.groupby("load"):
        if part["tensor_parallel"].nunique() < spread["tensor_parallel"].nunique():
            continue
        fastest, most = part.loc[part["tpot_s"].idxmin()], part.loc[part["output_tokens_per_s"].idxmax()]
        row = {"load": load}
        for name, chosen in (("fastest", fastest), ("most", most)):
            row |= {name: int(chosen["tensor_parallel"]), f"{name}_tpot_s": chosen["tpot_s"]}
            row[f"{name}_output_tokens_per_s"] = chosen["output_tokens_per_s"]
        found.append(row)
    return pd.DataFrame(found)


def speculation(model: str, gpu: str, engine: str, weights: str, draft_share: float = 0.0) -> pd.DataFrame:
    """What share of drafted tokens must be accepted for speculation to pay on one GPU: one row per batch and
    drafts.

    A verifying step has `drafts` + 1 rows per sequence and reads weights and KV cache once, as one decode
    step does. With each drafted token accepted with probability a (independently, and none after the first
    that is not), a step yields (1 - a^(drafts + 1)) / (1 - a) tokens (Leviathan et al., Fast Inference from
    Transformers via Speculative Decoding, 2023). It pays where that exceeds its time over a decode step's.
    `draft_share`: of a decode step that drafting one token takes; 0 for n-grams. `accept`: the least a; NaN
    where no a suffices. `most`: the gain in tokens/s if all are accepted.
    """
    coefficients, _, _ = check.Fits().of(engine, gpu, model)
    case = _case(model, gpu, engine, weights, 1, CONTEXT, 1)
    cost, found = step_time.cost(engines.setting(case), coefficients), []
    for batch in BATCHES:
        decode = scheduler.step_s(cost, batch, float(batch * CONTEXT), 0.0, 0.0)
        for number in DRAFTS:
            longer = verify_s(cost, batch, CONTEXT, number) / decode + number * draft_share
            found.append(
                {"batch_size": batch, "drafts": number, "times_as_long": longer}
                | {"accept": least_accepted(longer, number), "most": (number + 1) / longer}
            )
    return pd.DataFrame(found)


def verify_s(cost: np.ndarray, batch: int, context: float, drafts: int) -> float:
    """Seconds of a step that checks `drafts` tokens of each sequence: a decode step with so many more rows of
    the same matrix products, its KV cache read once; host time per sequence once.
    """
    more = cost.copy()
    more[scheduler.GEMM_TOKEN] *= drafts + 1
    more[scheduler.SHOT_TOKEN] *= drafts + 1
    return scheduler.step_s(more, batch, float(batch * context), 0.0, 0.0)


def least_accepted(longer: float, drafts: int) -> float:
    """The acceptance a at which (1 - a^(drafts + 1)) / (1 - a) equals `longer`, by bisection; 0 where any
    pays, NaN where none does.
    """
    if longer >= drafts + 1:
        return np.nan
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**k for k in range(drafts + 1)) < longer else (low, middle)
    return high if longer > 1 else 0.0
