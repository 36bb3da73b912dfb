"""The measured roofs of a device: read bandwidth and matrix-multiply peaks."""

from time import perf_counter as clock

import pandas as pd

from bench.machine import gemm, identity
from bench.machine.bandwidth import Bandwidth

COLUMNS = ["roof", "threads", "value", "unit"]  # observations/schema.py has the same for the files


def _bandwidth_roofs(device, seconds):
    """Read bandwidth with 1, 2, 4 … all threads on a CPU, each watched for an equal share of `seconds`."""
    cores = identity.cores()
    powers = {2**k for k in range(cores.bit_length()) if 2**k <= cores}
    counts = [1] if device == "cuda" else sorted(powers | {cores})
    for threads in counts:
        with Bandwidth(device, threads) as bandwidth:
            end = clock() + seconds / len(counts)
            while clock() < end or not bandwidth.probes:
                yield ("read_bandwidth", threads, bandwidth.probe(), "bytes/s")


def _gemm_roofs(device):
    """Matrix-multiply peak in each number format the device multiplies natively, with all threads."""
    for dtype, rate in gemm.gemm_peaks(device).items():
        yield (f"gemm_{dtype}", identity.cores(), rate, "FLOP/s")


def roofs(device="cpu", seconds=10):
    """The measured roofs as a DataFrame: roof, threads, value, unit; several rows per roof where it was
    watched for a while."""
    return pd.DataFrame([*_bandwidth_roofs(device, seconds), *_gemm_roofs(device)], columns=COLUMNS)
