"""Batches: sizes and operations, sweeps that lose a batch, and sentences that follow the data."""

import pandas as pd
import pytest
from builders import MATRICES, PEAKS, make_sidecar, write_sweep
from commands import execute

from bench import inputs
from bench.experiments import notebook
from bench.observations import derived, store
from bench.topics import batching as batching_analysis
from bench.topics import tables
from llm_measured.core import device_peaks, metrics

pytestmark = pytest.mark.early


def test_the_published_kv_cache_is_reproduced_as_printed():
    for _, row in inputs.table("published/mosaicml_kv_cache_gib").iterrows():
        values = inputs.shape(row["model"].lower())["kv_values_per_token"]
        tokens = row["sequence_tokens"] * row["batch_size"]
        for name, bytes_each in (("kv_fp16_gib", 2), ("kv_int8_gib", 1)):
            decimals = len(f"{row[name]:.12g}".partition(".")[2])
            computed = metrics.kv_cache_bytes(tokens, values, bytes_each) / 2**30
            assert computed == pytest.approx(row[name], abs=0.5 * 10**-decimals + 1e-12)


def test_sizes_of_llama_2_7b_are_the_known_ones():
    shape = inputs.shape("llama-2-7b")
    assert shape["weight_parameters"] == pytest.approx(6.738e9, rel=1e-3)
    assert shape["step_parameters"] == shape["weight_parameters"] - 32000 * 4096
    smollm = inputs.shape("smollm2-135m")
    assert smollm["step_parameters"] == smollm["weight_parameters"] == pytest.approx(134.5e6, rel=1e-3)


def test_an_engine_that_reads_no_weights_has_no_utilisation(tmp_path):
    write_sweep(
        tmp_path, wait=1e-6, sidecar=make_sidecar(**MATRICES, **PEAKS, weight_bytes=0, kv_value_bytes=0)
    )
    requests = store.load(folder=tmp_path)
    assert derived.batches(requests)[["mfu_prefill", "mfu_decode"]].isna().all(axis=None)


def test_a_format_may_be_computed_in_a_wider_one():
    gemms = {"float32": [1.0, 2.0], "bfloat16": [5.0], "int8": [3.0]}
    for name, peak in (("float32", 2.0), ("bfloat16", 5.0), ("int8", 5.0), (None, None)):
        assert device_peaks.peak_flops_per_s(gemms, name) == peak


def test_a_lost_batch_is_a_row_and_the_others_stay(tmp_path):
    write_sweep(tmp_path, lost=(32, 64))
    batches = derived.batches(store.load(folder=tmp_path))
    assert list(batches.loc[batches["error"] != "", "batch_size"]) == [32, 64]
    assert set(batching_analysis.sweeps(store.load(folder=tmp_path))["batch_size"]) == {1, 2, 4, 8, 16}


def test_a_batch_of_which_one_request_failed_is_no_whole_batch(tmp_path):
    write_sweep(tmp_path)
    requests = store.load(folder=tmp_path)
    third = requests.index[requests["batch_size"] == 8][2]
    requests.loc[third, "error"] = "TimeoutError: no answer"
    batches = derived.batches(requests).set_index("batch_size")
    assert batches.loc[8, "error"] == "TimeoutError: no answer" and batches.loc[16, "error"] == ""
    rates = "ttft_s step_s wall_s output_tokens_per_s requests_per_s mfu_prefill mfu_decode".split()
    assert batches.loc[8, rates].isna().all() and batches.loc[4, rates].notna().all(axis=None)
    assert 8 not in set(batching_analysis.sweeps(requests)["batch_size"])


def test_windows_begin_differently_and_have_one_length():
    ids = list(range(1349))
    prompts = inputs.windows(ids, 128, 2048)
    assert {len(p) for p in prompts} == {2048} and len({p[0] for p in prompts}) == 128
    with pytest.raises(ValueError, match="smaller batches"):
        inputs.windows(ids, 1350, 8)


def test_numbers_of_a_parameter():
    assert notebook.numbers("batch_sizes", "1 2, 8") == [1, 2, 8]
    for wrong in ("", "0", "1 two", "-1", "1.5"):
        with pytest.raises(ValueError, match="batch_sizes must be whole numbers"):
            notebook.numbers("batch_sizes", wrong)


SMALL = {"batch_sizes": "1 4 8 2", "input_tokens": 32, "max_new_tokens": 8, "prompt_lengths": "16"}


def swept(cells, option, **parameters):
    return derived.batches(cells("batching", backend="fake", option=option, **SMALL | parameters)["observed"])


@pytest.mark.parametrize(
    ("option", "says"),
    [pytest.param("greedy-memory", "MemoryError: no room", marks=pytest.mark.check), ("dies", "SIGABRT")],
)
def test_an_engine_that_runs_out_of_memory_costs_one_batch(cells, option, says):
    batches = swept(cells, option)
    assert batches.groupby("batch_size").size().to_dict() == {1: 6, 2: 3, 4: 3, 8: 1}
    by_size = derived.medians(batches[batches["prompt_tokens"] == 32]).set_index("batch_size")
    assert says in by_size.loc[8, "error"] and (by_size.loc[[1, 4, 2], "error"] == "").all()
    assert by_size.loc[2, "output_tokens_per_s"] > 0


def test_a_sweep_keeps_to_its_budget(cells, capsys):
    assert 1 <= len(derived.medians(swept(cells, "slow", budget_s=0.9))) < 5
    assert "would not do for what is left" in capsys.readouterr().out


def test_an_engine_that_hangs_is_stopped(cells):
    with pytest.raises(RuntimeError, match="could not be loaded: TimeoutError"):
        swept(cells, "float32", patience_s=0.02)


@pytest.mark.check
@pytest.mark.timing
def test_a_sweep_through_papermill(tmp_path):
    """What the tests above do without a kernel: a row per request of every batch, and probes of the
    machine itself."""
    parameters = {"backend": "fake", "option": "greedy-memory", "results": tmp_path, **SMALL}
    execute("batching", tmp_path / "out.ipynb", parameters, FAKE_OPTIONS="greedy-memory")
    (path,) = store.files(tmp_path)
    rows, sidecar = store.read(path)
    assert len(rows) == 3 * (1 + 1 + 4 + 2) + 8 and sum(bool(row["error"]) for row in rows) == 8
    assert min(sidecar["gemm_flops_per_s"]["float32"]) > 1e8
    assert min(sidecar["bandwidth_probes_bytes_per_s"]) > 1e8


def test_equal_batches_of_a_run_are_one_point(tmp_path):
    write_sweep(tmp_path)
    write_sweep(tmp_path, run=2, shapes=[(1, 32, 16), *[(4, 512, 64)] * 3], lost=(1,))
    batches = derived.batches(store.load(folder=tmp_path))
    points = derived.medians(batches)
    assert len(batches) == 12 + 4 and len(points) == 12 + 2
    second = points[points["run_id"].str.endswith("-2")].set_index("batch_size")
    assert second.loc[1, "error"] and second.loc[4, "error"] == ""
    alike = batches[batches["run_id"].str.endswith("-2") & (batches["batch_size"] == 4)]
    assert second.loc[4, "step_s"] == pytest.approx(alike["step_s"].median())


def test_tables_of_batches_have_rows(tmp_path):
    write_sweep(tmp_path)
    requests = store.load(folder=tmp_path)
    found = tables.tables(requests)
    assert len(found["batching"]) == 12 and found["batching"]["output_tokens_per_s"].is_monotonic_decreasing
    assert len(found["prompt_cost"]) == 1


LENGTHS = [(1, 128, 128), (1, 1024, 128), (1, 4096, 128)]
ASKED = {"model": "qwen2.5-coder-1.5b", "backend": "llamacpp", "option": "Q4_0", "gpu": "epyc-zen4-2c"}


def test_what_a_longer_prompt_leaves_of_the_pace_stands_beside_what_was_predicted(tmp_path):
    for run, overhead in enumerate((0.020, 0.021, 0.022), start=1):
        write_sweep(
            tmp_path, experiment="context", run=run, shapes=LENGTHS, overhead=overhead, bandwidth=1e9, **ASKED
        )
    write_sweep(tmp_path, experiment="context", shapes=LENGTHS, **ASKED | {"option": "Q8_0", "gpu": "h200"})
    requests = store.load(folder=tmp_path)
    own = requests.query("option == 'Q4_0'").set_index(["run_id", "prompt_tokens"])["tpot_s"].unstack()
    table = tables.tables(requests)["context"].set_index(["option", "prompt_tokens"])
    row = table.loc["Q4_0", 4096]
    shares = own[128] / own[4096]
    assert row["kept"] == pytest.approx(shares.mean()) and row["runs"] == 3
    assert row["kept_interval"] > shares.max() - shares.mean() > 0
    assert row["prompt_tokens_per_s"] == pytest.approx(4096 / row["ttft_s"]) and row["tpot_s_interval"] > 0
    assert row["decode_tokens_per_s"] == pytest.approx(len(own) / own[4096].sum(), rel=0.01)
    predicted = inputs.table("context_predictions")
    of_row = (predicted["option"] == "Q4_0") & (predicted["prompt_tokens"] == 4096)
    of_row &= predicted["backend"] == "llamacpp"
    assert row["predicted_ttft_s"] == predicted.loc[of_row, "predicted_ttft_s"].item()
    assert table.loc["Q4_0", 128]["kept"] == 1
    # Another processor was not predicted, and one run has no interval.
    assert pd.isna(table.loc["Q8_0", 4096][["predicted_ttft_s", "kept_interval"]]).all()
    assert not len(tables.tables(requests)["batching"]), "a sweep of lengths is none of batches"


def test_a_narrow_cache_is_compared_with_16_bits_inside_a_round(tmp_path):
    for run, faster in ((1, 1.0), (2, 1.2), (3, 1.4)):
        write_sweep(tmp_path, experiment="context", run=run, shapes=LENGTHS, overhead=0.04 * faster, **ASKED)
        narrow = {"overhead": 0.02 * faster, "option": "Q4_0-kv-q8_0"}
        write_sweep(tmp_path, experiment="context", run=run, shapes=LENGTHS, **ASKED | narrow)
    requests = store.load(folder=tmp_path)
    one = requests.query("option == 'Q4_0-kv-q8_0' and prompt_tokens == 128").index[0]
    words = requests.at[one, "output_ids"].split()
    requests.at[one, "output_ids"] = " ".join([*words[:64], *["0"] * 64])
    requests.loc[requests["option"] == "Q4_0-kv-q8_0", "ttft_s"] *= 2
    table = batching_analysis.context(requests).set_index(["option", "prompt_tokens"])
    times = requests.query("prompt_tokens == 128").set_index("run_id")
    wide, fewer = (times[times["option"] == option] for option in ("Q4_0", "Q4_0-kv-q8_0"))
    row = table.loc["Q4_0-kv-q8_0", 128]
    paces = wide["tpot_s"].to_numpy() / fewer["tpot_s"].to_numpy()
    assert row["kv_pace"] == pytest.approx(paces.mean()) and row["kv_pace"] > 1.5
    assert row["kv_wait"] == pytest.approx(2)
    assert row["same_tokens"] == pytest.approx((0.5 + 1 + 1) / 3)
    assert table.loc["Q4_0-kv-q8_0", 4096]["same_tokens"] == 1
    assert table.loc["Q4_0"][["kv_pace", "kv_wait", "same_tokens"]].isna().all(axis=None)


def test_a_sweep_of_prompt_lengths_times_each_once_and_drops_none(cells):
    names = cells(
        "batching", backend="fake", batch_sizes="none", prompt_lengths="8 32", short_tokens=4, timed=1
    )
    rows = names["observed"]
    assert set(rows["experiment"]) == {"context"} and rows["prompt_tokens"].tolist() == [8, 32]
    with pytest.raises(ValueError, match="timed must be"):
        cells("batching", backend="fake", **SMALL, timed=0)
