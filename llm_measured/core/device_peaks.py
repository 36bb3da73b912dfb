"""Peaks of a device by the probes in a run's sidecar: bytes/s of its memory, FLOP/s of its arithmetic."""

from collections.abc import Iterable

from llm_measured.core.definitions import Fields

ALONE = 0.9  # share of a probe's time for which its readers must have had their cores
BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "int8": 8}


def in_cache(sidecar: Fields) -> bool:
    """Whether the weights that a step reads fit into the last-level cache and the run has probed the
    bandwidth of a working set of their size."""
    cache, weights = sidecar["machine"].get("cache_bytes"), sidecar.get("weight_bytes")
    return bool(cache and weights and weights <= cache and sidecar.get("working_set_probes_bytes_per_s"))


def peak_bytes_per_s(sidecar: Fields) -> float | None:
    """The highest of `peak_probes_bytes_per_s`; None without probes."""
    return max(peak_probes_bytes_per_s(sidecar), default=None)


def peak_probes_bytes_per_s(sidecar: Fields) -> list[float]:
    """The run's probes of read bandwidth in bytes/s: of memory, or of a working set of the weights' size
    where the last-level cache holds them (`in_cache`).

    A probe whose readers had their cores for less than ALONE of its time does not count.
    """
    return [probe for probe, share in _probes(sidecar, 1) if share >= ALONE]


def most_bytes_per_s(sidecar: Fields) -> float | None:
    """Bytes/s that the memory surely does not exceed, also where no probe had its cores to itself; None
    without probes.

    Readers that have their cores for a share of the time read at least that share of the peak. Sidecars
    without `probe_cpu_shares` may hold readers that were on one core together.
    """
    shares = _probes(sidecar, 1 / (sidecar.get("threads") or 1))
    return max((probe / share for probe, share in shares if share), default=None)


def _probes(sidecar: Fields, unknown_share: float) -> Iterable[tuple[float, float]]:
    """Pairs of a probe in bytes/s and the share of its time for which its readers had their cores."""
    name = "working_set_probes_bytes_per_s" if in_cache(sidecar) else "bandwidth_probes_bytes_per_s"
    probes = sidecar[name]
    shares = sidecar.get("probe_cpu_shares") or [unknown_share] * len(probes)
    # The first probe may come before the weights are known: the working set's probes are the last ones.
    return zip(probes, shares[-len(probes) :])


def peak_flops_per_s(gemms: dict[str, list[float]], arithmetic: str | None) -> float | None:
    """Best matrix-multiply rate among `gemms` (format -> rates) in the format `arithmetic` or a wider one;
    None where none was measured.

    A wider format counts as well, because numbers can be widened: where a library multiplies int8 slower than
    bfloat16, the faster way is open to an engine all the same.
    """
    wide_enough = [
        rate
        for dtype, rates in gemms.items()
        for rate in rates
        if BITS.get(dtype, 0) >= BITS.get(arithmetic or "", 64)
    ]
    return max(wide_enough, default=None)
