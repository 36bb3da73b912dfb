"""What is computed when observations are read: rates, utilisation, whole batches."""

import numpy as np
import pandas as pd

from bench.observations import schema
from llm_measured.core import device_peaks, metrics, naming
from llm_measured.core.definitions import Fields

ONE_CORE = 0.75
ENOUGH_RUNS = 3


def derive(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with what is computed when read: tpot_s, output_tokens_per_s, acceptance_rate, mbu (measured
    peak), mbu_datasheet, energy_per_token_j, cpu_energy_per_token_j.

    A step that accepts drafted tokens reads the weights once for all of them, so MBU counts steps, not
    tokens. Devices that share the model read side by side, so that it counts all of their bandwidths.
    """
    context = (
        metrics.mean_context_tokens(table["prompt_tokens"], table["output_tokens"]) * table["batch_size"]
    )
    kv = metrics.kv_cache_bytes(context, table["kv_values_per_token"], table["kv_value_bytes"])
    first = table["first_event_tokens"].fillna(1)
    tpot = metrics.tpot_s(table["ttft_s"], table["e2e_s"], table["output_tokens"], first)
    steps = metrics.decode_steps(table["output_tokens"], table["accepted_tokens"])
    step = (table["e2e_s"] - table["ttft_s"]) / np.where(steps > 0, steps, np.nan)
    return table.assign(
        tpot_s=tpot.where(table["unmeasured"] == ""),
        output_tokens_per_s=metrics.output_tokens_per_s(table["output_tokens"], table["e2e_s"]).where(
            table["error"] == ""
        ),
        acceptance_rate=metrics.acceptance_rate(table["accepted_tokens"], table["drafted_tokens"]),
        mbu=metrics.mbu(table["weight_bytes"], kv, step, table["bandwidth_bytes_per_s"] * sharing(table)),
        mbu_datasheet=metrics.mbu(
            table["weight_bytes"], kv, step, table["datasheet_bandwidth_bytes_per_s"] * sharing(table)
        ),
        energy_per_token_j=metrics.energy_per_token_j(table["gpu_energy_j"], table["output_tokens"]),
        cpu_energy_per_token_j=metrics.cpu_energy_per_token_j(table["cpu_energy_j"], table["output_tokens"]),
    )


def sharing(table: pd.DataFrame) -> pd.Series:
    """How many memories and processors work on each row's tokens: `tensor_parallel` GPUs; one where cores of
    a CPU share the model, for their memory is one."""
    return table["tensor_parallel"].where(~table["gpu"].map(naming.is_cpu).astype(bool), 1)


def context(sidecar: Fields) -> Fields:
    """The columns that a run's sidecar adds to its rows: what derived figures need, and when it ran."""
    columns = {column: sidecar.get(column) for column in schema.CONTEXT}
    columns["bandwidth_bytes_per_s"] = device_peaks.peak_bytes_per_s(sidecar)
    # What one run knows; `peaks.of_sessions` has those of its measuring session.
    probes = device_peaks.peak_probes_bytes_per_s(sidecar)
    columns["slowest_probe_bytes_per_s"] = min(probes, default=None)
    columns["fastest_probe_bytes_per_s"] = max(probes, default=None)
    columns["probe_cpu_share"] = max(sidecar.get("probe_cpu_shares") or [], default=None)
    columns["probe_ways"] = max(map(len, sidecar.get("probe_ways_bytes_per_s") or [()])) or 1
    idle = (sidecar.get("energy") or {}).get("idle") or {}
    columns |= {f"{name}_idle_w": idle.get(f"{name}_w") for name in ("gpu", "cpu")}
    # Older runs have the sentence only.
    columns["shared_by"] = sidecar.get("shared_by") or sidecar.get("shared")
    columns["not_judged"] = not_judged_for_memory(sidecar)
    # The prefix that an engine was asked to keep, which rows did not state at first.
    if prefix_tokens := sidecar.get("parameters", {}).get("prefix_tokens"):
        columns |= {f"expected_cached_tokens_{bound}": prefix_tokens for bound in ("low", "high")}
    gemms = sidecar.get("gemm_flops_per_s", {})
    return columns | {"peak_flops_per_s": device_peaks.peak_flops_per_s(gemms, sidecar.get("arithmetic"))}


def not_judged_for_memory(sidecar: Fields) -> str:
    """Return the reason of a run whose tokens were not compared with the reference's (transformers in
    float32), because the machine had too little memory for it; empty for every other run.

    `bench.experiments.judge` writes the reason, and its first words are read here. Empty as well where there
    was nothing to compare: runs older than the check, synthetic weights, running servers.
    """
    entry = sidecar.get("judge")
    if not isinstance(entry, dict) or entry.get("verdict") != "not judged":
        return ""
    why = str(entry.get("why", ""))
    return why if why.startswith("The reference") and "memory" in why.lower() else ""


def judged(requests: pd.DataFrame) -> pd.DataFrame:
    """Return `requests` without those of runs whose tokens memory did not allow to check: they enter no
    sentence."""
    return requests[requests["not_judged"] == ""]


def without_poor_peaks(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with an empty bandwidth_bytes_per_s where a run's probes are no peak to use: those of readers
    that shared a core, and those of one way where better ones are known."""
    return without_one_way_peaks(without_one_core_peaks(table))


def without_one_way_peaks(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with an empty bandwidth_bytes_per_s where the probe read memory in one way only, and at least
    ENOUGH_RUNS runs of the same configuration, version and experiment were probed in several.

    One way may find less than an engine reads. Where nothing better is known the MBU stands as an upper
    bound; where it is, the two kinds of peak are not mixed in one interval.
    """
    several = (table["probe_ways"] > 1) & table["bandwidth_bytes_per_s"].notna()
    keys = [table[key] for key in ("experiment", *schema.CONFIGURATION, "backend_version")]
    better = table["run_id"].where(several).groupby(keys, dropna=False).transform("nunique")
    one_way = (table["probe_ways"] == 1) & table["gpu"].map(naming.is_cpu).astype(bool)
    return table.assign(
        bandwidth_bytes_per_s=table["bandwidth_bytes_per_s"].mask(one_way & (better >= ENOUGH_RUNS))
    )


def without_one_core_peaks(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with an empty bandwidth_bytes_per_s where the two readers of a run's probes shared one core.

    Files since `probe_cpu_share` hold probes of pinned readers. In older ones the readers often shared a
    core, and a run whose every probe did so has a peak that its engine may well exceed: below ONE_CORE of the
    best that runs of the same host, device and number of threads have found.
    """
    best = table.groupby(["host", "gpu", "threads"])["bandwidth_bytes_per_s"].transform("max")
    shared = table["probe_cpu_share"].isna() & table["gpu"].map(naming.is_cpu).astype(bool)
    shared &= (table["threads"] > 1) & (table["bandwidth_bytes_per_s"] < ONE_CORE * best)
    return table.assign(bandwidth_bytes_per_s=table["bandwidth_bytes_per_s"].mask(shared))


# Columns of a sidecar that are the same for all requests of a batch and that its utilisation needs.
_OF_A_BATCH = """
    bandwidth_bytes_per_s weight_bytes kv_value_bytes kv_values_per_token arithmetic peak_flops_per_s
    block_parameters head_parameters attention_values
""".split()


def batches(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per batch that was sent as a whole: medians over its requests, and the use of the hardware in
    each phase.

    Prefill ends with the last first token of the batch; a decode step takes the median gap between tokens
    (`step_s`), so that an engine that admits some prompts while others are answered is not charged for it.
    A batch of which one request failed was not answered as a whole: the others had its share of the hardware,
    so it has that request's `error` and neither times nor rates.
    """
    times = "ttft_s tpot_s e2e_s mbu output_tokens".split()
    good = requests.assign(ended_s=requests["sent_s"] + requests["e2e_s"]).where(requests["error"] == "")
    keys = ["run_id", "experiment", *schema.CONFIGURATION, *schema.SHAPE, "sent_s"]
    kept = requests[[*keys, "peak_memory_bytes", "error", *_OF_A_BATCH]].assign(
        **{column: good[column] for column in [*times, "ended_s"]},
        last_ttft_s=good["ttft_s"],
        step_s=good["itl_p50_s"],
        requests=1,
    )
    how = dict.fromkeys(["ttft_s", "tpot_s", "e2e_s", "step_s", "mbu"], "median")
    how |= dict.fromkeys(["peak_memory_bytes", *_OF_A_BATCH], "first")
    how["error"] = "max"  # no error is the empty text, which comes before every other
    how |= {"ended_s": "max", "last_ttft_s": "max", "output_tokens": "sum", "requests": "sum"}
    table = kept.groupby(keys, as_index=False, sort=False).agg(how)
    measured = [*times, "step_s", "ended_s", "last_ttft_s"]
    table[measured] = table[measured].where(table["error"] == "")
    wall = table["ended_s"] - table["sent_s"]
    rates = {"requests_per_s": table["requests"] / wall, "output_tokens_per_s": table["output_tokens"] / wall}
    return _utilisation(table.assign(wall_s=wall, **rates))


def meets(rows: pd.DataFrame, slo: dict[str, float]) -> pd.Series:
    """Which requests met every objective of `slo` (ttft_s, tpot_s: upper bounds); a failed one met none, and
    an answer of one token has no TPOT to miss."""
    good = rows["error"] == ""
    for name, bound in slo.items():
        alone = (rows["output_tokens"] == 1) if name == "tpot_s" else False
        good &= (rows[name] <= bound) | alone
    return good


def medians(batches: pd.DataFrame) -> pd.DataFrame:
    """`batches` with one row per run and shape: medians of what was measured over its equal batches that came
    whole; where none did, the first one."""
    keys = ["run_id", *schema.CONFIGURATION, *schema.SHAPE]
    whole = batches["error"] == ""
    known = whole.groupby([batches[key] for key in keys], dropna=False).transform("any")
    kept = batches[whole | ~known]
    numbers = [name for name in kept.select_dtypes("number").columns if name not in keys]
    how = {name: "median" if name in numbers else "first" for name in kept.columns if name not in keys}
    return kept.groupby(keys, as_index=False, sort=False, dropna=False).agg(how)[list(batches.columns)]


def _utilisation(table: pd.DataFrame) -> pd.DataFrame:
    """`table` of batches with the operations and bytes of each phase, their intensity and rate, and MFU;
    peaks are those of all devices together."""
    table = table.assign(
        **{peak: table[peak] * sharing(table) for peak in ("bandwidth_bytes_per_s", "peak_flops_per_s")}
    )
    # An engine that reads no weights computes no model: nothing is counted for it.
    matrices = {
        name: table[name].where(table["weight_bytes"] > 0)
        for name in ("block_parameters", "head_parameters", "attention_values")
    }
    context = metrics.mean_context_tokens(table["prompt_tokens"], table["max_new_tokens"])
    kv = table["kv_values_per_token"], table["kv_value_bytes"]
    prefill = table["batch_size"] * metrics.prefill_flops(**matrices, prompt_tokens=table["prompt_tokens"])
    decode = table["batch_size"] * metrics.decode_flops(**matrices, context_tokens=context)
    # Reading a prompt reads the weights at least once and writes its keys and values once.
    prefill_bytes = table["weight_bytes"] + table["batch_size"] * metrics.kv_cache_bytes(
        table["prompt_tokens"], *kv
    )
    step_bytes = table["weight_bytes"] + table["batch_size"] * metrics.kv_cache_bytes(context, *kv)
    return table.assign(
        step_flops=decode,
        step_bytes=step_bytes,
        prefill_intensity=metrics.arithmetic_intensity(prefill, prefill_bytes),
        prefill_flops_per_s=prefill / table["last_ttft_s"],
        decode_intensity=metrics.arithmetic_intensity(decode, step_bytes),
        decode_flops_per_s=decode / table["step_s"],
        mfu_prefill=metrics.mfu(prefill, table["last_ttft_s"], table["peak_flops_per_s"]),
        mfu_decode=metrics.mfu(decode, table["step_s"], table["peak_flops_per_s"]),
    )
