"""The bandwidth that MBU is against: of the probes of one measuring session, and of no other."""

import numpy as np
import pytest
from builders import make_sidecar, write_run

from bench.observations import store
from bench.observations.peaks import PEAK_QUANTILE

FIRST, SECOND, LATER = "2026-01-01T00:00:00+00:00", "2026-01-01T00:30:00+00:00", "2026-01-02T00:00:00+00:00"


def probed(folder, run, started, probes, **sidecar):
    times = {"started": started, "ended": started}
    return write_run(folder, make_sidecar(bandwidth_probes_bytes_per_s=probes, **times, **sidecar), run=run)


def peaks(folder):
    runs = store.load(folder=folder).drop_duplicates("run_id").sort_values("run_id")
    return runs["bandwidth_bytes_per_s"].tolist()


def test_runs_of_one_session_share_the_quantile_of_all_their_probes(tmp_path):
    first, second, later = [30e9, 40e9, 41e9], [42e9, 50e9], [80e9, 81e9]
    probed(tmp_path, 1, FIRST, first)
    probed(tmp_path, 2, SECOND, second)
    probed(tmp_path, 3, LATER, later)
    together = np.quantile(first + second, PEAK_QUANTILE)
    assert peaks(tmp_path) == pytest.approx([together, together, np.quantile(later, PEAK_QUANTILE)])
    rows = store.load(folder=tmp_path).drop_duplicates("run_id").sort_values("run_id")
    assert rows["slowest_probe_bytes_per_s"].tolist() == [30e9, 30e9, 80e9]
    assert rows["fastest_probe_bytes_per_s"].tolist() == [50e9, 50e9, 81e9]
    read = rows["mbu"] * rows["bandwidth_bytes_per_s"]
    assert read.tolist() == pytest.approx([read.iloc[0]] * 3), "MBU is against that bandwidth"


def test_a_disturbed_probe_and_one_of_fewer_readers_lend_nothing(tmp_path):
    probed(tmp_path, 1, FIRST, [40e9, 40e9])
    probed(tmp_path, 2, SECOND, [44e9, 90e9], probe_cpu_shares=[1.0, 0.5])
    probed(tmp_path, 3, SECOND, [20e9, 20e9], threads=1)
    assert peaks(tmp_path)[2] == 20e9 and max(peaks(tmp_path)) <= 44e9


def test_more_runs_do_not_lower_the_mbu_by_their_number(tmp_path):
    random = np.random.default_rng(0)
    probed(tmp_path, 1, FIRST, (40e9 * (1 + random.standard_normal(20) / 50)).tolist())
    (few,) = peaks(tmp_path)
    for run in range(2, 12):
        probed(tmp_path, run, SECOND, (40e9 * (1 + random.standard_normal(20) / 50)).tolist())
    assert peaks(tmp_path)[0] == pytest.approx(few, rel=0.015)
    assert max(store.load(folder=tmp_path)["fastest_probe_bytes_per_s"]) > 1.02 * few
