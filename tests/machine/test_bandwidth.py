"""The bandwidth probe: readers with cores of their own, a working set, and which probes count as a roof."""

import os
import threading

import pandas as pd
import pytest

from bench.machine import bandwidth, identity
from bench.observations import derived, schema
from llm_measured.core import device_peaks


def test_each_reader_has_a_core_of_its_own():
    threads = min(2, len(identity.allowed_cores()))
    readers = bandwidth.Readers(threads)
    places = readers._each(lambda _: (threading.get_ident(), os.sched_getaffinity(0)), [None] * threads)
    assert len({thread for thread, _ in places}) == threads
    assert all(len(cores) == 1 for _, cores in places)
    assert len(set.union(*(cores for _, cores in places))) == threads


def test_a_probe_says_what_memory_and_working_set_give_and_how_much_of_a_core_it_had():
    with bandwidth.Bandwidth("cpu", 1) as probe:
        probe.probe()
        assert probe.working_set_probes == []
        probe.working_set_bytes = 4e6
        probe.probe()
    assert len(probe.probes) == 2 and len(probe.working_set_probes) == 1
    assert all(rate > 0 for rate in probe.probes + probe.working_set_probes)
    assert len(probe.cpu_shares) == 2 and all(0 < share <= 1.01 for share in probe.cpu_shares)
    assert [max(ways.values()) for ways in probe.ways] == probe.probes, "the fastest way counts"
    assert all(set(ways) == set(bandwidth.WAYS) for ways in probe.ways) and len(bandwidth.WAYS) == 3


@pytest.mark.parametrize("size", [1, 10**5, 2**20 + 12345, 3 * 10**7])
def test_every_way_reads_the_whole_buffer(size):
    readers = bandwidth.Readers(2)
    parts = readers.buffer(size)
    rounding = 2 * 4 * bandwidth.COLUMNS  # bytes of two rows
    assert len(parts) == 2 and sum(part.nbytes for part in parts) == pytest.approx(size, abs=2 * rounding)
    for part in parts:
        half = len(part) // 2
        assert len(part) == 2 * half and len(part) % bandwidth.COLUMNS == 0, "no way leaves a rest"
    assert all(readers.read(parts, way)[0] > 0 for way in bandwidth.WAYS)


def sidecar(**more):
    return {
        "machine": {"cache_bytes": 32e6},
        "weight_bytes": 100e6,
        "bandwidth_probes_bytes_per_s": [60e9, 66e9, 64e9],
        "working_set_probes_bytes_per_s": [90e9, 95e9],
        "probe_cpu_shares": [1.0, 1.0, 1.0],
    } | more


def test_a_disturbed_probe_is_no_roof():
    assert device_peaks.peak_bytes_per_s(sidecar()) == 66e9
    assert device_peaks.peak_bytes_per_s(sidecar(probe_cpu_shares=[1.0, 0.5, 0.95])) == 64e9
    assert device_peaks.peak_bytes_per_s(sidecar(probe_cpu_shares=[0.2, 0.5, 0.6])) is None


def test_weights_that_fit_into_the_cache_are_held_against_its_bandwidth():
    assert device_peaks.peak_bytes_per_s(sidecar(weight_bytes=20e6)) == 95e9
    assert device_peaks.peak_bytes_per_s(sidecar(weight_bytes=33e6)) == 66e9
    older = sidecar(weight_bytes=20e6, working_set_probes_bytes_per_s=[], probe_cpu_shares=[])
    assert device_peaks.peak_bytes_per_s(older) == 66e9


@pytest.mark.parametrize(
    ("found", "threads", "share", "kept"),
    [(37e9, 2, None, False), (64e9, 2, None, True), (37e9, 1, None, True), (37e9, 2, 1.0, True)],
)
def test_an_older_run_whose_readers_shared_a_core_has_no_mbu(found, threads, share, kept):
    rows = pd.DataFrame({
        "host": "aaaaaa", "gpu": "epyc-zen5-2c", "threads": [2, threads],
        "bandwidth_bytes_per_s": [66e9, found], "probe_cpu_share": [1.0, share],
    })  # fmt: skip
    roofs = derived.without_one_core_peaks(rows)["bandwidth_bytes_per_s"]
    assert roofs.notna().tolist() == [True, kept]
    assert "probe_cpu_share" in schema.CONTEXT


@pytest.mark.parametrize(("newer", "kept"), [(2, True), (3, False)])
def test_a_roof_of_one_way_counts_until_three_runs_have_better_ones(newer, kept):
    rows = pd.DataFrame({
        "run_id": [f"r{n}" for n in range(newer + 3)], "experiment": "latency", "backend": "fake",
        "option": ["F16"] * (newer + 2) + ["Q4_0"], "model": "m", "weights": "real", "gpu": "epyc-zen5-2c",
        "host": "aaaaaa", "tensor_parallel": 1, "data_parallel": 1, "backend_version": "1",
        "probe_ways": [1, 1, *[3] * newer, 1],
        "bandwidth_bytes_per_s": [60e9, 61e9, *[80e9] * newer, 62e9],
    })  # fmt: skip
    roofs = derived.without_one_way_peaks(rows)["bandwidth_bytes_per_s"]
    assert roofs.notna().tolist() == [kept, kept, *[True] * newer, True], "the other option keeps its roof"
    on_gpu = derived.without_one_way_peaks(rows.assign(gpu="h100"))["bandwidth_bytes_per_s"]
    assert on_gpu.notna().all(), "a GPU is probed in one way, and well"
