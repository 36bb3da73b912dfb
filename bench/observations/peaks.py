"""The peaks that runs have measured of a device (memory, caches, matrix multiplication), and the measuring
sessions that a bandwidth holds for."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from bench.observations import schema
from llm_measured.core import device_peaks
from llm_measured.core.definitions import Fields

GAP_S = 3600  # without a run, which ends a session: a host that was idle so long may have become another
PEAKS = ["memory", "cache", "flops_per_s"]
COLUMNS = ["gpu", "host", *PEAKS]
# A maximum grows with the number of probes, so that a machine that is measured more would have a lower MBU.
PEAK_QUANTILE = 0.95
BANDWIDTHS = ["bandwidth_bytes_per_s", "slowest_probe_bytes_per_s", "fastest_probe_bytes_per_s"]


def of_sidecar(sidecar: Fields) -> Fields:
    """The best peaks that one run has measured: memory and cache in bytes/s, flops_per_s; None where it has
    not.

    cache: of a working set of the weights' size, where the last-level cache holds it. The rate of operations
    is the best of all number formats, as an engine may use any of them.
    """
    kind = "cache" if device_peaks.in_cache(sidecar) else "memory"
    found = {kind: device_peaks.peak_bytes_per_s(sidecar) or device_peaks.most_bytes_per_s(sidecar)}
    rates = [rate for each in (sidecar.get("gemm_flops_per_s") or {}).values() for rate in each]
    return dict.fromkeys(PEAKS) | found | {"flops_per_s": max(rates, default=None)}


def of_device(gpu: str, host: str, folder: Path) -> pd.DataFrame:
    """One row per run in `folder` of the device `gpu` of the checkout `host`; columns COLUMNS."""
    files = [
        file
        for file in folder.glob(f"*/*-{gpu}-{host}-*.json")
        if file.parent.name not in schema.NOT_RUNS and file.with_suffix(".csv").exists()
    ]
    rows = [{"gpu": gpu, "host": host} | of_sidecar(json.loads(file.read_text())) for file in files]
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(PEAKS, float))


def of_sessions(rows: pd.DataFrame, sidecars: list[Fields]) -> pd.DataFrame:
    """`rows` of runs with the bandwidth of their measuring session, in bytes/s, where they have one.

    A row's `file` is the position of its run in `sidecars`. bandwidth_bytes_per_s is the PEAK_QUANTILE of all
    probes of the session on the same device, by as many readers that read in as many ways, of memory or of a
    working set of the same size; slowest_ and fastest_probe_bytes_per_s are their range. Runs whose
    bandwidth_bytes_per_s is empty lend no probes and stay without one.
    """
    runs = rows.drop_duplicates("file").set_index("file")
    cached = [device_peaks.in_cache(sidecars[file]) for file in runs.index]
    runs = runs.assign(
        measuring_session=measuring_sessions(runs), working_set_bytes=runs["weight_bytes"].where(cached)
    )
    runs = runs[runs["bandwidth_bytes_per_s"].notna()]
    alike = ["measuring_session", "gpu", "threads", "probe_ways", "working_set_bytes"]
    for _, together in runs.groupby(alike, dropna=False):
        probes = np.concatenate(
            [device_peaks.peak_probes_bytes_per_s(sidecars[file]) for file in together.index]
        )
        peaks = np.quantile(probes, PEAK_QUANTILE), probes.min(), probes.max()
        runs.loc[together.index, BANDWIDTHS] = peaks
    return rows.assign(**{name: rows["file"].map(runs[name]).astype(float) for name in BANDWIDTHS})


def measuring_sessions(runs: pd.DataFrame) -> pd.Series:
    """Number the measuring sessions of `runs`, whose columns are host, started, and ended where it is known.

    A session has the runs of one host, whatever the experiment, of which the next begins at most GAP_S after
    all earlier ones have ended; a run whose end is not known ends as it starts. One whole number per row,
    from 0 by host and time, with the index of `runs`. The rows of one run are in one session, so the requests
    of all runs may be given as well. A run without a start is in no session: ValueError.
    """
    started = pd.to_datetime(runs["started"].replace("", None), utc=True)
    if started.isna().any():
        raise ValueError("A run has no start, so it has no measuring session: give only runs with `started`.")
    ended = pd.to_datetime(runs["ended"].replace("", None), utc=True) if "ended" in runs else started
    hosts = runs["host"].astype(str).to_numpy()
    begin, end = (
        moments.dt.tz_convert(None).to_numpy("datetime64[us]").astype(int)
        for moments in (started, ended.fillna(started))
    )
    numbers, session, previous, until = np.empty(len(runs), dtype=int), -1, None, 0
    for row in np.lexsort((begin, hosts)):
        if hosts[row] != previous or begin[row] > until + GAP_S * 1_000_000:
            session, previous, until = session + 1, hosts[row], end[row]
        numbers[row], until = session, max(until, end[row])
    return pd.Series(numbers, index=runs.index, dtype=int)
