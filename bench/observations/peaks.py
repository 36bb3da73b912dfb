"""The best peaks that runs have measured of a device: memory, caches, matrix multiplication."""

import json
from pathlib import Path

import pandas as pd

from bench.observations import derived

PEAKS = ["memory", "cache", "flops_per_s"]
COLUMNS = ["gpu", "host", *PEAKS]


def of_sidecar(sidecar: dict) -> dict:
    """The best peaks that one run has measured: memory and cache in bytes/s, flops_per_s; None where it has
    not.

    cache: of a working set of the weights' size, where the last-level cache holds it. The rate of operations
    is the best of all number formats, as an engine may use any of them.
    """
    kind = "cache" if derived.in_cache(sidecar) else "memory"
    found = {kind: derived.peak_bytes_per_s(sidecar) or derived.most_bytes_per_s(sidecar)}
    rates = [rate for each in (sidecar.get("gemm_flops_per_s") or {}).values() for rate in each]
    return dict.fromkeys(PEAKS) | found | {"flops_per_s": max(rates, default=None)}


def of_device(gpu: str, host: str, folder: Path) -> pd.DataFrame:
    """One row per run in `folder` of the device `gpu` of the checkout `host`; columns COLUMNS."""
    files = [
        file
        for file in folder.glob(f"*/*-{gpu}-{host}-*.json")
        if file.parent.name not in ("hardware", "clients") and file.with_suffix(".csv").exists()
    ]
    rows = [{"gpu": gpu, "host": host} | of_sidecar(json.loads(file.read_text())) for file in files]
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(PEAKS, float))
