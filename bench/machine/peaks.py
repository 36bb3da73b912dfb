"""The measured peaks of a device: read bandwidth and matrix-multiply peaks."""

from collections.abc import Iterator
from time import perf_counter as clock

import pandas as pd

from bench.machine import gemm, identity
from bench.machine.bandwidth import Bandwidth

COLUMNS = ["roof", "threads", "value", "unit"]  # observations/schema.py has the same for the files


def _bandwidth(device: str, seconds: float) -> Iterator[tuple[str, int, float, str]]:
    """Read bandwidth with 1, 2, 4 … all threads on a CPU, each watched for an equal share of `seconds`."""
    cores = identity.cores()
    powers = {2**k for k in range(cores.bit_length()) if 2**k <= cores}
    counts = [1] if device == "cuda" else sorted(powers | {cores})
    for threads in counts:
        with Bandwidth(device, threads) as bandwidth:
            end = clock() + seconds / len(counts)
            while clock() < end or not bandwidth.probes:
                yield ("read_bandwidth", threads, bandwidth.probe(), "bytes/s")


def measured(device: str = "cpu", seconds: float = 10) -> pd.DataFrame:
    """The measured peaks, columns roof, threads, value, unit; several rows per peak where it was
    watched for a while. Matrices are multiplied with all threads, in each format that the device has."""
    gemms = [(f"gemm_{d}", identity.cores(), rate, "FLOP/s") for d, rate in gemm.gemm_peaks(device).items()]
    return pd.DataFrame([*_bandwidth(device, seconds), *gemms], columns=COLUMNS)
