"""What MLC and MosaicML published on H100, A100 and A10, predicted with coefficients that saw neither.

MLC names ShareGPT and publishes no lengths: the row of data/lengths.csv is an assumption, and two
alternatives stand beside it.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bench import inputs
from llm_planner import check, engines, rows, step_time

MODELS = {
    "Llama-3-8B fp16": ("llama-3.1-8b", "bf16"),
    "Llama-3-70B fp8": ("llama-3.1-70b", "fp8"),
    "MPT-7B": ("mpt-7b", "bf16"),
    "Llama-2-70B": ("llama-2-70b", "bf16"),
}
# MLCEngine and FasterTransformer are in no table of serving points: estimated with the engine that is
# nearest.
ENGINES = {"vLLM 0.6.1.post2": "vllm", "SGLang 0.3.1.post2": "sglang", "MLCEngine": "vllm"}
DEVICES = {"A10": "a10", "A100-40GB": "a100_40gb", "H100 SXM": "h100_sxm"}
LENGTHS = {
    "sharegpt": (161, 338, True),
    "same means, no spread": (161, 338, False),
    "twice as long": (323, 676, True),
}
REQUESTS = 12  # per place of a closed loop
ARRIVALS = 300  # of an open one


def _simulated(model, engine, gpu, tensor_parallel, lengths, fits, places=None, rate=None):
    """`rows.Simulation` of a closed loop of `places`, or of Poisson arrivals at `rate`."""
    name, weights = MODELS[model]
    slots = places or engines.SLOTS
    case = engines.Case(name, gpu, engine, weights, tensor_parallel, slots, 512, 512, "published")
    best, _, _ = fits.of(engine, gpu, name)
    cost = step_time.cost(engines.setting(case), best)
    at_s = None if places else rows.poisson(rate, len(lengths[0]))
    more = dict(concurrency=places, at_s=at_s, request_s=best[-1], gaps=False)
    return rows.Simulation(*lengths, cost, engines.policy(case, slots=slots), **more)


def mlc() -> pd.DataFrame:
    """One row per published level of MLC (`load`: concurrency of closed loops, or request_rate) and
    assumption on lengths: means of TPOT and TTFT in ms, published (TTFT of few) and predicted.
    """
    fits, found = check.Fits(), []
    ttft = inputs.table("published/mlc_h100_ttft").rename(columns={"concurrency": "level"})
    table = inputs.table("published/mlc_h100_tpot")
    keys = ["model", "gpu", "tensor_parallel", "engine", "load", "level"]
    table = table.merge(ttft.assign(load="concurrency")[[*keys, "ttft_ms"]], on=keys, how="left")
    for row in table.to_dict("records"):
        closed = row["load"] == "concurrency"
        load = {"places": int(row["level"])} if closed else {"rate": float(row["level"])}
        for lengths in LENGTHS:
            requests = REQUESTS * int(row["level"]) if closed else ARRIVALS
            prompt, output, spread = LENGTHS[lengths]
            draw = (
                np.random.default_rng(0).exponential(1.0, (2, requests)) if spread else np.ones((2, requests))
            )
            parts = zip((prompt, output), draw, (8, 2))
            drawn = [np.maximum(np.rint(mean * column), least).astype(int) for mean, column, least in parts]
            place = row["model"], ENGINES[row["engine"]], DEVICES[row["gpu"]], int(row["tensor_parallel"])
            met = _simulated(*place, drawn, fits, **load)
            more = {
                "predicted_tpot_ms": 1e3 * np.mean(met.tpot_s),
                "predicted_ttft_ms": 1e3 * np.mean(met.ttft_s),
            }
            found.append(
                {name: row[name] for name in [*keys, "tpot_ms", "ttft_ms"]} | {"lengths": lengths} | more
            )
    return pd.DataFrame(found)


def errors(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row per `keys` of `mlc`: levels, and the medians of |predicted / published - 1| of TPOT and TTFT,
    of TPOT also signed.
    """
    tpot = table["predicted_tpot_ms"] / table["tpot_ms"] - 1
    ttft = (table["predicted_ttft_ms"] / table["ttft_ms"] - 1).abs()
    off = table.assign(tpot=tpot.abs(), tpot_bias=tpot, ttft=ttft)
    return off.groupby(keys, as_index=False, sort=False).agg(
        levels=("tpot", "size"),
        tpot=("tpot", "median"),
        tpot_bias=("tpot_bias", "median"),
        ttft=("ttft", "median"),
    )


def mosaicml() -> pd.DataFrame:
    """One row per published point of MosaicML's static batches: requests/s, published and predicted; all
    estimated.
    """
    fits, found = check.Fits(), []
    for row in (
        inputs.table("published/mosaicml_throughput_req_per_s")
        .dropna(subset=["requests_per_s"])
        .to_dict("records")
    ):
        size = int(row["batch_size"])
        lengths = np.full(size, int(row["input_tokens"])), np.full(size, int(row["output_tokens"]))
        try:
            place = row["model"], "vllm", DEVICES[row["gpu"]], int(row["gpus"])
            met = _simulated(*place, lengths, fits, places=size)
        except (ValueError, KeyError) as refusal:
            found.append(row | {"predicted_requests_per_s": np.nan, "note": str(refusal)})
            continue
        found.append(row | {"predicted_requests_per_s": size / met.e2e_s.max()})
    return pd.DataFrame(found)
