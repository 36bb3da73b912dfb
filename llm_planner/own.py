"""The check against this study's own machine: coefficients from batching runs alone, the levels of its
serving runs predicted.

What was fitted never saw a server: no queue, no HTTP, no mixed lengths. Beside it the same fit to the steps
that the server takes, where those were measured (`bench.analysis.steps`).
"""

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from bench import inputs, memo
from bench.definitions import Fields
from bench.observations import derived, schema
from llm_planner import engines, rows, state

# Share of a level's requests, failed ones among them, that must meet every objective: the page Serving's
# (`bench.analysis.serving.HELD`).
SLO_HELD = 0.9
POLICIES = {"vllm": dict(step_tokens=4096), "llamacpp": dict(step_tokens=2048), "sglang": dict(mixed=0)}
CONFIGURATION = "backend option model gpu host".split()


def fitted(batches: pd.DataFrame) -> np.ndarray:
    """The array of step costs (`state`'s order) from batches of one configuration (`derived.batches`), by
    relative least squares.

    Decode: seconds per step, per sequence, and per token of KV cache. Prefill: seconds per batch, per token,
    and per token squared. A row without one of the two times (step_s, last_ttft_s) tells nothing of it.
    """
    good = batches[batches["error"] == ""]
    known, size, prompt = _with(good, "step_s")
    context = size * (prompt + known["max_new_tokens"].to_numpy(float) / 2)
    decode = _relative(known["step_s"], np.ones(len(known)), size, context)
    known, size, prompt = _with(good, "last_ttft_s")
    prefill = _relative(known["last_ttft_s"], np.ones(len(known)), size * prompt, size * prompt**2 / 2)
    cost = np.zeros(state.BENDS)
    cost[state.FIXED], cost[state.KV_TOKEN] = decode[0], decode[2]
    cost[state.GEMM_TOKEN], cost[state.ATTENTION] = prefill[1], prefill[2]
    # A decoding sequence is a row of the same matrix products, but takes what decoding takes.
    cost[state.SEQUENCE] = decode[1] - prefill[1]
    cost[state.EAGER] = prefill[0] - decode[0]
    return cost


def of_loops(steps: pd.DataFrame, ends_together: bool) -> pd.DataFrame:
    """The rows of `bench.analysis.steps` of the configurations with loops whose answers end together, or at
    different times: those loops alone, and all late prompts."""
    if steps.empty:
        return steps
    rows = steps[steps["step_s"].isna() | (steps["ends_together"] == ends_together)]
    return rows[rows.groupby(CONFIGURATION)["step_s"].transform("count") > 0]


def bent(cost: np.ndarray, steps: pd.DataFrame) -> np.ndarray:
    """`cost` of `fitted` with what the measured `steps` of each number of requests differ by (median;
    straight lines between two numbers).

    Kernels are chosen by the number of rows: on a CPU no straight line goes through the steps. A server's
    steps also differ from a batch's of the same size.
    """
    alone = steps[(steps["error"] == "") & (steps["step_s"] > 0)]
    off = (alone["step_s"] - _line_s(cost, alone)).groupby(alone["batch_size"]).median()
    sizes = np.arange(off.index.max() + 1)
    return np.append(cost, np.interp(sizes, [0, *off.index], [0, *off]))


def _line_s(cost: np.ndarray, steps: pd.DataFrame) -> pd.Series:
    """Seconds of steps of decoding alone by the coefficients, halfway through the answers."""
    context = steps["batch_size"] * (steps["prompt_tokens"] + steps["max_new_tokens"] / 2)
    per_sequence = cost[state.SEQUENCE] + cost[state.GEMM_TOKEN]
    return cost[state.FIXED] + per_sequence * steps["batch_size"] + cost[state.KV_TOKEN] * context


def _with(batches, time):
    """(rows that have `time`, their batch sizes, their prompt tokens)."""
    known = batches[batches[time] > 0]
    return known, known["batch_size"].to_numpy(float), known["prompt_tokens"].to_numpy(float)


def _relative(measured_s: pd.Series, *terms: np.ndarray) -> np.ndarray:
    seconds = measured_s.to_numpy(float)
    matrix = np.column_stack(terms)
    size = matrix.max(axis=0)
    return nnls(matrix / size / seconds[:, None], np.ones(len(seconds)))[0] / size


def _policy(backend: str, slots: int) -> np.ndarray:
    plain = dict(step_tokens=2048, chunked=1, mixed=1, slots=slots, kv_tokens=1e9, reserve=0, lag_steps=0)
    more = dict(wait_steps=0, wait_tokens=0, computed=1)
    return np.array(engines.Policy(**(plain | more | POLICIES.get(backend, {}))), dtype=float)


def outside_s(steps: pd.DataFrame, cost: np.ndarray) -> float:
    """What a request takes outside the engine, s: TTFT of one alone (`steps`: of one configuration) less the
    prefill by `cost`."""
    alone = steps[(steps["batch_size"] == 1) & (steps["step_s"] > 0)]
    tokens = alone["prompt_tokens"].to_numpy(float)
    prefill_s = cost[state.FIXED] + cost[state.EAGER] + cost[state.GEMM_TOKEN] * tokens
    return max(0.0, float(np.median(alone["ttft_s"] - prefill_s - cost[state.ATTENTION] * tokens**2 / 2)))


def decoding(steps: pd.DataFrame) -> pd.DataFrame:
    """The steps of decoding alone after the shortest prompt, of one configuration (`bench.analysis.steps`).

    One row per batch_size: step_s (median over runs), the same in ms (step_ms), and line_s, what the straight
    line of `fitted` says.
    """
    cost, alone = fitted(steps), steps[steps["step_s"] > 0]
    shortest = alone[alone["prompt_tokens"] == alone["prompt_tokens"].min()]
    table = (
        shortest.groupby("batch_size")[["step_s", "prompt_tokens", "max_new_tokens"]].median().reset_index()
    )
    return table.assign(step_ms=1e3 * table["step_s"], line_s=_line_s(cost, table))


def scatter(table: pd.DataFrame) -> pd.DataFrame:
    """How far runs of the same level are from each other: one row per level that several runs had.

    `table`: `levels`. Columns: tpot and ttft, medians over the runs of |a run / the median of the others -
    1|: what no prediction of a level can be better than.
    """
    found = []
    for _, part in table.groupby([*CONFIGURATION, *schema.LEVEL], dropna=False):
        if len(part) > 1:
            found.append({name: _apart(part[f"{name}_s"].to_numpy()) for name in ("tpot", "ttft")})
    return pd.DataFrame(found, columns=["tpot", "ttft"])


def _apart(values: np.ndarray) -> float:
    others = [np.median(np.delete(values, k)) for k in range(len(values))]
    return np.median(np.abs(values / others - 1))


def simulated(level: pd.DataFrame, cost: np.ndarray, slots: int, request_s: float = 0.0) -> rows.Simulation:
    """`rows.Simulation` of the requests of one measured level: their lengths, and the load that they came
    with. `request_s`: what a request takes outside the engine.

    `slots`: sequences that the server runs at once; its adapter gives it as many as the largest closed loop
    has places.
    """
    ordered = level.sort_values("request")
    lengths = ordered["prompt_tokens"].to_numpy(int), ordered["output_tokens"].to_numpy(int)
    backend, places = ordered["backend"].iloc[0], ordered["concurrency"].iloc[0]
    if np.isfinite(places):
        return rows.Simulation(
            *lengths, cost, _policy(backend, slots), concurrency=int(places), request_s=request_s
        )
    due = (ordered["sent_s"] - ordered["late_s"].fillna(0)).to_numpy()
    return rows.Simulation(
        *lengths,
        cost,
        _policy(backend, slots),
        at_s=np.maximum.accumulate(due - due.min()),
        request_s=request_s,
    )


@memo.by_content
def levels(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per run and level of serving whose configuration has a batching run: medians of TTFT and TPOT
    in s, measured and predicted, and whether the level held the objectives, measured and predicted.
    """
    return _levels(requests, derived.medians(derived.batches(requests[requests["experiment"] == "batching"])))


def levels_from_steps(requests: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """`levels` of the configurations that have `steps` (`bench.analysis.steps`), fitted to these steps of the
    server instead of the batches."""
    return _levels(requests, steps, served=True)


def _levels(requests, fits, served=False):
    slo = inputs.study()["slo"]
    found = []
    for key, runs in requests[requests["experiment"] == "serving"].groupby(CONFIGURATION):
        own = fits[(fits[CONFIGURATION] == list(key)).all(axis=1)]
        if own.empty:
            continue
        cost, slots = fitted(own), int(runs["concurrency"].max())
        request_s = outside_s(own, cost) if served else 0.0
        cost = bent(cost, own) if served else cost
        for level, sent in runs.groupby(["run_id", *schema.LEVEL], dropna=False):
            part = sent[sent["error"] == ""]
            if part.empty:
                continue
            met = simulated(part, cost, slots, request_s)
            row = dict(zip([*CONFIGURATION, "run_id", *schema.LEVEL], [*key, *level]))
            good = (met.ttft_s <= slo["ttft_s"]) & (met.tpot_s <= slo["tpot_s"])
            found.append(
                row
                | {"ttft_s": part["ttft_s"].median(), "predicted_ttft_s": np.median(met.ttft_s)}
                | {"tpot_s": part["tpot_s"].median(), "predicted_tpot_s": np.median(met.tpot_s)}
                | {
                    "held": derived.meets(sent, slo).mean() >= SLO_HELD,
                    "predicted_held": good.mean() >= SLO_HELD,
                }
            )
    return pd.DataFrame(found)


def largest_levels(table: pd.DataFrame) -> pd.DataFrame:
    """One row per run and kind of loop: the number of the largest level that held the objectives, measured
    and predicted.
    """
    found = []
    for run, part in table.groupby("run_id"):
        for kind in schema.LEVEL:
            loads = part.dropna(subset=[kind]).sort_values(kind)
            if len(loads):
                row = {name: int(loads[name].cummin().sum()) for name in ("held", "predicted_held")}
                found.append({"run_id": run, "loop": kind} | row)
    return pd.DataFrame(found)


def summary(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration and loop: levels, medians of |predicted / measured - 1| of TPOT and TTFT and
    of the signed ones (_bias), the largest level that held the objectives (means over runs, measured and
    predicted), the share of runs in which both are within one level.
    """
    table, found = levels(requests), []
    if table.empty:
        return table
    held = largest_levels(table)
    loops = {"concurrency": "closed", "request_rate": "open"}
    for key, part in table.groupby(CONFIGURATION):
        for kind, loop in loops.items():
            rows_of = part.dropna(subset=[kind])
            if rows_of.empty:
                continue
            row = dict(zip(CONFIGURATION, key)) | {"loop": loop, "levels": len(rows_of)}
            for name in ("tpot", "ttft"):
                off = rows_of[f"predicted_{name}_s"] / rows_of[f"{name}_s"] - 1
                row |= {name: off.abs().median(), f"{name}_bias": off.median()}
            runs = held[(held["loop"] == kind) & held["run_id"].isin(rows_of["run_id"])]
            within = (runs["held"] - runs["predicted_held"]).abs() <= 1
            row |= {"held": runs["held"].mean(), "predicted_held": runs["predicted_held"].mean()}
            found.append(row | {"within": within.mean()})
    return pd.DataFrame(found)


def predictions(requests: pd.DataFrame) -> pd.DataFrame:
    """data/predictions.csv with measured_tpot_s and measured_ttft_s: medians of the closed level that was
    predicted, NaN where no run has had it.
    """
    table = inputs.table("predictions")
    served = requests[(requests["experiment"] == "serving") & (requests["error"] == "")]
    for name in ("tpot_s", "ttft_s"):
        table[f"measured_{name}"] = [_measured(served, row, name) for row in table.to_dict("records")]
    return table


def _measured(served: pd.DataFrame, row: Fields, name: str) -> float:
    keys = ["backend", "option", "model", "gpu", "concurrency"]
    same = (served[keys] == [row[key] for key in keys]).all(axis=1) if len(served) else []
    return served.loc[same, name].median() if np.any(same) else np.nan
