"""Observations: the schema, writing one run, loading all, and the gates that keep impossible numbers out.

A run is one process of one experiment on one backend, option, model and device: `_llama-inference/<backend>/<run>.csv` with one row
per request, `<run>.json` with where it came from, `<run>.ipynb` as it was executed. Written once, whole or not at all.
"""

import csv
import itertools
import json
import math
import os
import re
import subprocess
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pandas as pd

from bench import RESULTS, ROOT, hardware, metrics

IDENTITY = "run_id experiment backend backend_version option model weights gpu host tensor_parallel request".split()
CONDITION = "prompt prompt_tokens max_new_tokens batch_size concurrency request_rate temperature".split()
MEASURED = (
    "sent_s ttft_s e2e_s output_tokens itl_p50_s itl_p90_s itl_p99_s itl_max_s peak_memory_bytes load_s answer output_ids error"
).split()
# Observations are never rewritten, so a column that came later is absent from the files written before it, and read as empty.
LATER = "drafted_tokens accepted_tokens reference_nll_nats own_nll_nats".split()
SERVED = "late_s connect_s first_byte_s chunks cached_tokens finish_reason".split()
# How many replicas of the model stood behind one address. What a file does not say of devices was one.
SPREAD = ["data_parallel"]
COLUMNS = IDENTITY + CONDITION + MEASURED + LATER + SERVED + SPREAD
LAYOUTS = COLUMNS, IDENTITY + CONDITION + MEASURED + LATER + SERVED, IDENTITY + CONDITION + MEASURED + LATER, IDENTITY + CONDITION + MEASURED
ONE = {"tensor_parallel", "data_parallel"}
TEXT = {"run_id", "experiment", "backend", "backend_version", "option", "model", "weights", "gpu", "host", "answer", "output_ids", "error", "started", "arithmetic", "finish_reason"}
SIDECAR = (
    "packages git machine busy_cores bandwidth_probes_bytes_per_s datasheet_bandwidth_bytes_per_s weight_bytes kv_value_bytes kv_values_per_token "
    "parameters settings threads model_sha256 prompts_sha256 started ended"
).split()
CONTEXT = (
    "bandwidth_bytes_per_s datasheet_bandwidth_bytes_per_s weight_bytes kv_value_bytes kv_values_per_token threads started "
    "arithmetic peak_flops_per_s block_parameters head_parameters attention_values limit_bytes loaded_bytes"
).split()
BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "int8": 8}
# The first counted request may be slower than the slowest of the others by this factor, else the warm-up had not settled.
# Two, because the memory of small virtual machines flips between two speeds a factor of two apart.
WARM_FACTOR = 2.0
WARMUPS = 20  # on a GPU: warm-up requests at most
SETTLED = 0.03  # how far time and clock of two warm-up requests in a row may be apart once a GPU has settled
WARM_SLACK_S = 0.001  # what the scheduler alone may take, which is many times what a toy engine does
# Mean number of cores that other processes may keep busy during a run: background services pass, a second job does not.
BUSY_CORES = 0.5
# One row per load client and number of streams: `bench.client_accuracy`, which says what they mean.
ACCURACY = (
    "client version streams requests failed events_per_s ttft_true_ms ttft_error_ms ttft_error_connected_ms itl_p99_ms itl_p99_excess_ms "
    "cpu_us_per_token cpu_share peak_memory_bytes delay_mean_ms delay_p99_ms kernel_stamps server_core client_cores error"
).split()
LATE_SHARE = 0.01  # of the gap between two scheduled requests: how late the load client may be, in the 99th percentile


class Refused(ValueError):
    """A run that may not be published; the message says which gate refused it and why."""


def safe(name):
    """`name` as it may stand in a file's name: hub:meta-llama/Llama-2-7b-hf -> hub-meta-llama-Llama-2-7b-hf."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name)


def run_id(experiment, backend, model, option, gpu, host, n):
    """`<backend>/<experiment>-<model>-<option>-<gpu>-<host>-<n>`: the run's path without its suffix."""
    return f"{backend}/{experiment}-{safe(model)}-{option}-{gpu}-{host}-{n}"


def path(identifier, suffix=".csv", folder=None):
    """File of the run `identifier` with the given suffix."""
    return Path(folder or RESULTS) / f"{identifier}{suffix}"


def next_number(identity, folder=None):
    """The first repeat of `identity` (arguments of run_id but n) that has not been measured: 1, 2, …"""
    return _first_free(lambda n: run_id(**identity, n=n), folder)


def _first_free(identifier, folder):
    return next(n for n in itertools.count(1) if not path(identifier(n), folder=folder).exists())


def _unwritten(identifier, folder):
    """Path of the CSV of `identifier`; FileExistsError if it exists: observations are never overwritten."""
    target = path(identifier, folder=folder)
    if target.exists():
        raise FileExistsError(f"{target} has been measured already; observations are never overwritten. Leave `run` at 0 for the next number.")
    return target


def git_state():
    """Revision and whether anything but observations, exports and the README's figures differs from it."""

    def git(*arguments):
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True).stdout.strip()

    return {"revision": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--", "bench", "notebooks", "data", "study.yaml"))}


def now():
    """The time in UTC, to the second, as sidecars give it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def packages():
    """Name -> version of every installed distribution."""
    from importlib.metadata import distributions

    return dict(sorted({d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]}.items(), key=lambda kv: kv[0].lower()))


def frame(rows):
    """Rows (dicts) as a DataFrame of the schema's columns and types; columns that a row lacks are empty."""
    return _numbers(pd.DataFrame(rows).reindex(columns=COLUMNS))


def _numbers(table):
    """`table` with text columns as str, empty where missing, and all others as numbers, NaN where missing; numbers of devices are 1 there."""
    for column in table.columns:
        table[column] = table[column].fillna("").astype(str) if column in TEXT else pd.to_numeric(table[column])
    return table.assign(**{column: table[column].fillna(1).astype(int) for column in ONE & set(table.columns)})


def derive(table):
    """`table` with what is computed when read: tpot_s, output_tokens_per_s, acceptance_rate, mbu (measured roof), mbu_datasheet.

    A step that accepts drafted tokens reads the weights once for all of them, so MBU counts steps, not tokens. Devices that share the model
    read side by side, so that it counts all of their bandwidths.
    """
    context = metrics.mean_context_tokens(table["prompt_tokens"], table["output_tokens"]) * table["batch_size"]
    kv = metrics.kv_cache_bytes(context, table["kv_values_per_token"], table["kv_value_bytes"])
    tpot = metrics.tpot_s(table["ttft_s"], table["e2e_s"], table["output_tokens"])
    steps = metrics.decode_steps(table["output_tokens"], table["accepted_tokens"])
    step = (table["e2e_s"] - table["ttft_s"]) / np.where(steps > 0, steps, np.nan)
    return table.assign(
        tpot_s=tpot,
        output_tokens_per_s=metrics.output_tokens_per_s(table["output_tokens"], table["e2e_s"]).where(table["error"] == ""),
        acceptance_rate=metrics.acceptance_rate(table["accepted_tokens"], table["drafted_tokens"]),
        mbu=metrics.mbu(table["weight_bytes"], kv, step, table["bandwidth_bytes_per_s"] * sharing(table)),
        mbu_datasheet=metrics.mbu(table["weight_bytes"], kv, step, table["datasheet_bandwidth_bytes_per_s"] * sharing(table)),
    )


def sharing(table):
    """How many memories and processors work on each row's tokens: `tensor_parallel` GPUs; one where cores of a CPU share the model, for their memory is one."""
    return table["tensor_parallel"].where(~table["gpu"].map(hardware.is_cpu).astype(bool), 1)


def context(sidecar):
    """The columns that a run's sidecar adds to its rows: what derived figures need, and when it ran."""
    columns = {column: sidecar.get(column) for column in CONTEXT}
    columns["bandwidth_bytes_per_s"] = max(sidecar["bandwidth_probes_bytes_per_s"], default=None)
    return columns | {"peak_flops_per_s": peak_flops_per_s(sidecar.get("gemm_flops_per_s", {}), sidecar.get("arithmetic"))}


def peak_flops_per_s(gemms, arithmetic):
    """Best matrix-multiply rate among `gemms` (format -> rates) in the format `arithmetic` or a wider one; None where none was measured.

    A wider format counts as well, because numbers can be widened: where a library multiplies int8 slower than bfloat16, the
    faster way is open to an engine all the same.
    """
    wide_enough = [rate for dtype, rates in gemms.items() for rate in rates if BITS.get(dtype, 0) >= BITS.get(arithmetic, 64)]
    return max(wide_enough, default=None)


def check(table, sidecar, identifier):
    """Every gate of a run; raises Refused with one sentence that says why it may not be published."""
    _complete(table, sidecar)
    _agrees_with_path(table, identifier)
    _counts(table)
    _warm(table, sidecar)
    _alone(table, sidecar)
    _punctual(table)
    _uncached(table)
    _possible(derive(_numbers(table.assign(**context(sidecar)))))


def _complete(table, sidecar):
    lacking = [c for c in COLUMNS if c not in table] + [k for k in SIDECAR if k not in sidecar]
    if lacking:
        raise Refused(f"The run lacks {', '.join(lacking)}: every row has every column and the sidecar every field of bench/results.py.")
    if table.empty or (table["error"] != "").all():
        why = table["error"].iloc[0] if len(table) else "no request was made"
        raise Refused(f"No request succeeded, so nothing was measured; the first error was: {why}")


def _agrees_with_path(table, identifier):
    n = identifier.rsplit("-", 1)[-1]
    for _, row in table[IDENTITY].drop_duplicates(subset=[c for c in IDENTITY if c != "request"]).iterrows():
        said = run_id(row["experiment"], row["backend"], row["model"], row["option"], row["gpu"], row["host"], n)
        if not said == identifier == row["run_id"]:
            raise Refused(f"The rows say they are {said} (run_id {row['run_id']}), the path says {identifier}: identity and path must agree.")


def _counts(table):
    good = table[table["error"] == ""]
    for column in ("prompt_tokens", "max_new_tokens", "batch_size"):
        if not (good[column] > 0).all():
            raise Refused(f"{column} must be a positive number in every row.")
    given = good["output_ids"].str.split().str.len()
    # Over HTTP the load client has counted; a load test keeps no answers, and not every server sends ids.
    given = given.where((given > 0) | good["chunks"].isna(), good["output_tokens"])
    if not ((given == good["output_tokens"]) & (good["output_tokens"] == good["max_new_tokens"])).all():
        raise Refused("Token counts disagree: output_ids, output_tokens and max_new_tokens must be the same number in every row.")
    if not (good["e2e_s"] > 0).all() or (good["ttft_s"] > good["e2e_s"]).any() or (good["ttft_s"] <= 0).any():
        raise Refused("Times contradict each other: 0 < ttft_s <= e2e_s must hold in every row.")


def settled(warmup):
    """Whether the last two of the warm-up requests (dicts of e2e_s and, where there is a GPU, its clock) took the same time at the same clock."""
    told = [[about.get(name) for about in warmup[-2:]] for name in ("e2e_s", "clocks.sm")]
    return len(warmup) > 1 and all(None in pair or abs(pair[0] - pair[1]) <= SETTLED * max(pair) for pair in told)


def _warm(table, sidecar):
    """Refuse a run whose first counted request was much slower than every later one of its kind, or whose GPU went on changing its clocks."""
    warmup = sidecar.get("warmup", [])
    if len(warmup) == WARMUPS and not settled(warmup):
        raise Refused(f"The warm-up had not settled: after {WARMUPS} requests the last two still differ by more than {SETTLED:.0%} in time or clock: {warmup[-2:]}.")
    times = table[(table["error"] == "") & table["ttft_s"].notna()]["e2e_s"]
    if len(times) > 2 and times.iloc[0] > WARM_FACTOR * times.iloc[1:].max() + WARM_SLACK_S:
        raise Refused(
            f"The warm-up had not settled: the first counted request took {times.iloc[0]:.3g} s, the slowest of the others {times.iloc[1:].max():.3g} s."
        )


def _alone(table, sidecar):
    """Refuse a run beside which other processes kept the machine busy: a benchmark that shares its machine is void. Scores are no times."""
    if (table["experiment"] == "quality").all() or sidecar["parameters"].get("url"):  # a server that ran already is one of the others
        return
    others = sidecar["busy_cores"]["others"]
    if others > BUSY_CORES:
        raise Refused(f"Other processes kept {others:.2f} cores busy during this run (allowed: {BUSY_CORES}). Leave the machine idle and measure again.")


def late(rows):
    """Why one level of scheduled requests (columns request_rate, late_s) does not count, in a sentence: the load client was late. Empty where it was not."""
    rate, behind = rows["request_rate"].iloc[0], rows["late_s"].quantile(0.99)
    if not behind > LATE_SHARE / rate:
        return ""
    return (
        f"The load client was late: at {rate:g} requests/s it took up requests {behind * 1e3:.2g} ms behind schedule (99th percentile), "
        f"and {LATE_SHARE:.0%} of the gap between them is {LATE_SHARE / rate * 1e3:.2g} ms. Give it a core of its own, or lower the rate."
    )


def _punctual(table):
    """Refuse a run whose load client was late: what it then measures is itself."""
    for _, rows in table[table["error"] == ""].dropna(subset="request_rate").groupby("request_rate"):
        if late(rows):
            raise Refused(late(rows))


def _uncached(table):
    """Refuse a run in which a prefix cache answered: a prompt that is not computed costs nothing."""
    hits = table[table["cached_tokens"] > 0]
    if len(hits):
        raise Refused(
            f"The server answered {len(hits)} requests from its prefix cache ({hits['cached_tokens'].max():.0f} of {hits['prompt_tokens'].iloc[0]:.0f} "
            "prompt tokens). Start it without prefix caching."
        )


def _possible(table):
    worst = table["mbu"].max()
    if worst > 1:
        row = table.loc[table["mbu"].idxmax()]
        raise Refused(
            f"MBU is {worst:.2f}, above 1: {row['weight_bytes'] / 1e9:.3f} GB of weights in {row['tpot_s'] * 1e3:.2f} ms is more than the "
            f"{row['bandwidth_bytes_per_s'] * sharing(table)[table['mbu'].idxmax()] / 1e9:.1f} GB/s that the probes found. Either the bytes, the time or the probe is wrong."
        )
    groups = batches(table) if table["peak_flops_per_s"].notna().any() else table.assign(mfu_prefill=np.nan, mfu_decode=np.nan)
    for column in ("mfu_prefill", "mfu_decode"):
        if groups[column].max() > 1:
            row = groups.loc[groups[column].idxmax()]
            raise Refused(
                f"MFU of the {column[4:]} is {row[column]:.2f} at batch {row['batch_size']:.0f}, above 1: more than the {row['arithmetic']} peak of "
                f"{row['peak_flops_per_s'] / 1e9:.0f} GFLOP/s that was measured beside it. Either the operations, the time or the peak is wrong."
            )


def write_whole(file, text):
    """Atomically: temporary file in the same folder, fsync, rename. A full disk leaves nothing behind."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", newline="", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


def write(rows, sidecar, identifier, folder=None):
    """Write one run through all gates and return the CSV's path; the CSV comes last: a run without it does not exist.

    Refused if a gate objects, FileExistsError if the run has been measured before, OSError if the disk is full.
    """
    target = _unwritten(identifier, folder)
    table = frame(rows)
    sidecar = json.loads(json.dumps(sidecar))
    check(table, sidecar, identifier)
    write_whole(target.with_suffix(".json"), json.dumps(sidecar, indent=1) + "\n")
    write_whole(target, table.to_csv(index=False, lineterminator="\n"))
    return target


def files(folder=None):
    """Paths of the CSVs of all runs, sorted; `hardware/` and `clients/` hold what was measured of machines and load clients, not runs."""
    folder = Path(folder or RESULTS)
    return sorted(p for p in folder.glob("*/*.csv") if p.parent.name not in ("hardware", "clients"))


def read(file):
    """(rows as the CSV has them, sidecar) of one run; ValueError naming the file if either is not what the schema says."""
    file = Path(file)
    try:
        with open(file, newline="") as source:
            reader = csv.DictReader(source)
            rows = list(reader)
        if reader.fieldnames not in LAYOUTS:
            raise ValueError(f"its columns are {reader.fieldnames}")
        return rows, json.loads(file.with_suffix(".json").read_text())
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"{file} is not a run of this study: {error}. Measure it again, or move it away.") from error


def devices(identifier, folder=None):
    """How many devices the run `identifier` used at once: those that share the model, times its replicas. 0 if there is no such run."""
    file = path(identifier, folder=folder)
    if not file.exists():
        return 0
    with open(file, newline="") as source:
        first = next(csv.DictReader(source), {})
    return math.prod(int(float(first.get(column) or 1)) for column in ONE)


def load(paths=None, experiment=None, folder=None):
    """All requests of the runs `paths` (default: every run) with derived columns; an empty frame with all columns if there are none."""
    rows = []
    for file in [Path(p) for p in paths] if paths is not None else files(folder):
        run, sidecar = read(file)
        more = context(sidecar)
        rows += [row | more for row in run]
    everything = derive(_numbers(pd.DataFrame(rows, columns=COLUMNS + CONTEXT)))
    everything.attrs["folder"] = str(folder or RESULTS)  # what is no request, such as the accuracy of load clients, lies beside them
    return everything[everything["experiment"] == experiment] if experiment else everything


CONFIGURATION = "backend option model weights gpu host tensor_parallel data_parallel".split()
SHAPE = "batch_size prompt_tokens max_new_tokens".split()


def batches(requests):
    """One row per batch that was sent as a whole: medians over its requests, and how much of the hardware each phase used.

    Prefill ends with the last first token of the batch; a decode step takes the median gap between tokens (`step_s`), so that an engine
    that admits some prompts while others are answered is not charged for it. Failed batches have `error` and no times.
    """
    good = requests.assign(ended_s=requests["sent_s"] + requests["e2e_s"]).where(requests["error"] == "")
    keys = ["run_id", "experiment", *CONFIGURATION, *SHAPE, "sent_s"]
    same = [column for column in CONTEXT if column not in ("datasheet_bandwidth_bytes_per_s", "threads", "started", "limit_bytes", "loaded_bytes")]
    kept = requests[keys + same].assign(
        ended_s=good["ended_s"], ttft_s=good["ttft_s"], last_ttft_s=good["ttft_s"], tpot_s=good["tpot_s"], e2e_s=good["e2e_s"],
        step_s=good["itl_p50_s"], mbu=good["mbu"], output_tokens=good["output_tokens"], peak_memory_bytes=requests["peak_memory_bytes"],
        error=requests["error"], requests=1,
    )  # fmt: skip
    medians, firsts = ["ttft_s", "tpot_s", "e2e_s", "step_s", "mbu"], ["peak_memory_bytes", "error", *same]
    how = {c: "median" for c in medians} | {c: "first" for c in firsts} | {"ended_s": "max", "last_ttft_s": "max", "output_tokens": "sum", "requests": "sum"}
    table = kept.groupby(keys, as_index=False, sort=False).agg(how)
    wall = table["ended_s"] - table["sent_s"]
    table = table.assign(wall_s=wall, requests_per_s=table["requests"] / wall, output_tokens_per_s=table["output_tokens"] / wall)
    return _utilisation(table)


def _utilisation(table):
    """`table` of batches with the operations and bytes of each phase, their intensity and rate, and MFU; roofs are those of all devices together."""
    table = table.assign(**{roof: table[roof] * sharing(table) for roof in ("bandwidth_bytes_per_s", "peak_flops_per_s")})
    # An engine that reads no weights computes no model: nothing is counted for it.
    matrices = [table[name].where(table["weight_bytes"] > 0) for name in ("block_parameters", "head_parameters", "attention_values")]
    context = metrics.mean_context_tokens(table["prompt_tokens"], table["max_new_tokens"])
    kv = table["kv_values_per_token"], table["kv_value_bytes"]
    prefill = table["batch_size"] * metrics.prefill_flops(*matrices, table["prompt_tokens"])
    decode = table["batch_size"] * metrics.decode_flops(*matrices, context)
    # Reading a prompt reads the weights at least once and writes its keys and values once.
    prefill_bytes = table["weight_bytes"] + table["batch_size"] * metrics.kv_cache_bytes(table["prompt_tokens"], *kv)
    step_bytes = table["weight_bytes"] + table["batch_size"] * metrics.kv_cache_bytes(context, *kv)
    return table.assign(
        step_flops=decode, step_bytes=step_bytes,
        prefill_intensity=metrics.arithmetic_intensity(prefill, prefill_bytes), prefill_flops_per_s=prefill / table["last_ttft_s"],
        decode_intensity=metrics.arithmetic_intensity(decode, step_bytes), decode_flops_per_s=decode / table["step_s"],
        mfu_prefill=metrics.mfu(prefill, table["last_ttft_s"], table["peak_flops_per_s"]),
        mfu_decode=metrics.mfu(decode, table["step_s"], table["peak_flops_per_s"]),
    )  # fmt: skip


def runs(requests):
    """One row per run: medians over its requests of ttft_s, tpot_s, itl_p99_s and mbu, the mean of output_tokens_per_s, counts."""
    keys = ["run_id", "experiment", *CONFIGURATION, "backend_version", "threads", "started"]
    return requests.groupby(keys, as_index=False, sort=True).agg(
        ttft_s=("ttft_s", "median"), tpot_s=("tpot_s", "median"), itl_p99_s=("itl_p99_s", "median"),
        # The mean over requests, because that is what the published table shows.
        output_tokens_per_s=("output_tokens_per_s", "mean"),
        mbu=("mbu", "median"), mbu_datasheet=("mbu_datasheet", "median"),
        drafted_tokens=("drafted_tokens", "sum"), accepted_tokens=("accepted_tokens", "sum"),
        weight_bytes=("weight_bytes", "first"), bandwidth_bytes_per_s=("bandwidth_bytes_per_s", "first"),
        peak_memory_bytes=("peak_memory_bytes", "max"), load_s=("load_s", "first"),
        requests=("request", "count"), failed=("error", lambda e: int((e != "").sum())),
    )  # fmt: skip


def summary(requests):
    """One row per configuration (backend, option, model, weights, gpu, host, devices at once), fastest first: medians over its runs of what `runs`
    gives, the mean and the 95 % t-interval over runs of output_tokens_per_s, the share of drafted tokens that were accepted (NaN where none are
    drafted), and how many runs and failed requests there are."""
    each = runs(requests)
    grouped = each.groupby(CONFIGURATION, as_index=False, sort=True)
    middle = grouped[["ttft_s", "tpot_s", "itl_p99_s", "mbu", "mbu_datasheet", "weight_bytes", "bandwidth_bytes_per_s", "peak_memory_bytes", "load_s"]].median()
    rate = grouped["output_tokens_per_s"].agg(output_tokens_per_s="mean", interval=metrics.t_interval, runs="count")
    sums = {name: (name, "sum") for name in ("failed", "drafted_tokens", "accepted_tokens")}
    total = grouped.agg(**sums, backend_version=("backend_version", "last"), measured=("started", "max"))
    table = middle.merge(rate, on=CONFIGURATION).merge(total, on=CONFIGURATION)
    table = table.assign(acceptance_rate=metrics.acceptance_rate(table["accepted_tokens"], table["drafted_tokens"]))
    return table.sort_values("output_tokens_per_s", ascending=False, ignore_index=True)


def focus(table, host):
    """`table` restricted to one machine: that of the checkout `host` if it has measured, else the one with the latest run."""
    if table.empty or (table["host"] == host).any():
        return table[table["host"] == host]
    latest = table.loc[table["measured"].idxmax()] if "measured" in table else table.loc[table["started"].idxmax()]
    return table[(table["host"] == latest["host"]) & (table["gpu"] == latest["gpu"])]


def named(table):
    """`table` with the devices in the option's name where several were used at once (`float16 TP 2`): what is told apart by engine and option is then
    told apart by them as well."""
    several = pd.Series("", table.index)
    for column, letters in (("tensor_parallel", "TP"), ("data_parallel", "DP")):
        several += (f" {letters} " + table[column].astype(int).astype(str)).where(table[column] > 1, "")
    return table.assign(option=table["option"] + several) if (several != "").any() else table


def here(requests, experiment):
    """The requests of `experiment` on the machine in focus: this checkout's own, else the one measured last; options as `named`."""
    return named(focus(requests[requests["experiment"] == experiment], hardware.host()))


def roofs_id(gpu, n):
    """The path of one measurement of a device's roofs without its suffix."""
    return f"hardware/roofs-{gpu}-{hardware.host()}-{n}"


def write_roofs(roofs, device, gpu, given):
    """Write the roofs of one device (`hardware.roofs`) with their provenance; returns the CSV's path. FileExistsError as in `write`."""
    return _write_apart(roofs_id, roofs, device, gpu, given)


def _write_apart(identifier, table, device, gpu, given, **more):
    """Write a table that is no run, with its provenance; `identifier` is a function of gpu and number."""
    n = given["run"] or _first_free(lambda n: identifier(gpu, n), given["results"])
    target = _unwritten(identifier(gpu, n), given["results"])
    sidecar = {"packages": packages(), "git": git_state(), "machine": hardware.describe(device), "parameters": given, "ended": now()} | more
    write_whole(target.with_suffix(".json"), json.dumps(sidecar, indent=1) + "\n")
    write_whole(target, table.assign(gpu=gpu, host=hardware.host()).to_csv(index=False, lineterminator="\n"))
    return target


def load_roofs(folder=None):
    """All measured roofs: roof, threads, value, unit, gpu, host."""
    tables = [pd.read_csv(f) for f in sorted(Path(folder or RESULTS).glob("hardware/*.csv"))]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*hardware.ROOF_COLUMNS, "gpu", "host"])


def accuracy_id(gpu, n):
    """The path of one comparison of load clients without its suffix."""
    return f"clients/accuracy-{gpu}-{hardware.host()}-{n}"


def write_accuracy(rows, gpu, given, **more):
    """Write the rows (`client_accuracy.measure`) of one comparison of load clients with their provenance; returns the CSV's path.

    `more` goes into the sidecar. FileExistsError as in `write`; Refused where no client came to an end.
    """
    table = pd.DataFrame(rows, columns=ACCURACY)
    if (table["error"] != "").all():
        raise Refused(f"No load client came to an end, so nothing was measured; the first error was: {table['error'].iloc[0] if len(table) else 'none was run'}")
    return _write_apart(accuracy_id, table, "cpu", gpu, given, **more)


def accuracy_files(folder=None):
    """Paths of the CSVs of all comparisons of load clients, sorted."""
    return sorted(Path(folder or RESULTS).glob("clients/accuracy-*.csv"))


def load_accuracy(folder=None):
    """All comparisons of load clients: the columns ACCURACY, gpu, host, run (file's name without suffix) and measured (when it ended)."""
    tables = []
    for file in accuracy_files(folder):
        ended = json.loads(file.with_suffix(".json").read_text())["ended"]
        tables.append(pd.read_csv(file, dtype={"host": str, "version": str, "client_cores": str}).assign(run=file.stem, measured=ended))
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*ACCURACY, "gpu", "host", "run", "measured"])
    return table.assign(error=table["error"].fillna(""), version=table["version"].fillna(""))
