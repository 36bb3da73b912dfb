"""What a larger model changes: the same options with two models, and whether their order stays."""

import pytest
from builders import make_sidecar, write_repeats, write_run

from bench.analysis import sizes as sizes_analysis
from bench.observations import store
from bench.report.findings import sizes as sizes_findings

SMALL_BYTES, LARGE_BYTES = 1e8, 8e8
LARGE = {"model": "shape:tinyllama-1.1b", "weights": "synthetic"}


WAYS = [{"reduction": 60e9, "dot_product": 80e9, "matrix_vector": 70e9}]


def write_larger(folder, rates, ways=(), **columns):
    """Runs of the larger model, one per rate, half an hour after those of the smaller one."""
    for n, rate in enumerate(rates, start=1):
        started = f"2026-01-01T00:{30 + n:02d}:00+00:00"
        sidecar = make_sidecar(weight_bytes=LARGE_BYTES, started=started, probe_ways_bytes_per_s=ways)
        write_run(folder, sidecar, rate=rate, run=n, **LARGE, **columns)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """Four options with 1e8 bytes, of which three have also answered with 8e8."""
    folder = tmp_path_factory.mktemp("runs")
    for option, rate, larger in (("F16", 100, 30), ("Q8_0", 120, 20), ("Q4_0", 150, 29), ("F32", 50, None)):
        write_repeats(folder, [rate + n / 10 for n in (0, 2, 1)], option=option)
        if larger:
            write_larger(folder, [larger + n / 50 for n in (0, 2, 1)], option=option)
    return store.load(folder=folder)


def test_each_option_stands_beside_itself(four):
    table = sizes_analysis.sizes(four).set_index("option")
    assert set(table.index) == {"F16", "Q8_0", "Q4_0"}
    assert (table["weight_bytes"] == SMALL_BYTES).all()
    assert (table["larger_weight_bytes"] == LARGE_BYTES).all()
    assert set(table["model"]) == {"smollm2-135m"} and set(table["larger_weights"]) == {"synthetic"}
    # Ten tokens, nine of them at 100 or 30 per second, after a TTFT of 50 ms.
    assert table["ratio"]["F16"] == pytest.approx((0.05 + 9 / 30) / (0.05 + 9 / 100), rel=0.01)
    assert table["low"]["F16"] > 2
    assert table["larger_mbu"]["F16"] > 2 * table["mbu"]["F16"]


def test_the_order_of_two_options_may_turn(four):
    found = sizes_analysis.order(four, sizes_analysis.sizes(four))
    assert found == {"kept": 1, "turned": 2, "open": 0}, "Q4_0 before Q8_0 as before, F16 before both now"
    (sentence,) = sizes_findings.larger_models(four)
    assert sentence.startswith(
        "On `test-cpu`, 3 options read 8 times as many bytes per token with shape:tiny"
    )
    assert "(random weights) as with smollm2-135m" in sentence
    assert " MBU: **fake" in sentence
    assert "with **fake Q8_0** as long" in sentence
    assert sentence.endswith(
        "1 in the same order with both models and 2 in the other order with the larger one."
    )


def test_what_overlaps_leaves_the_order_open(tmp_path):
    for option, rates in (("F16", [100, 90, 110]), ("Q8_0", [101, 91, 111])):
        write_repeats(tmp_path, rates, option=option)
        write_larger(tmp_path, [20.0, 20.1, 20.2] if option == "F16" else [10, 10.1, 10.2], option=option)
    (sentence,) = sizes_findings.larger_models(store.load(folder=tmp_path))
    end = " Of 1 pair of options: 1 cannot be distinguished with one of the models."
    assert sentence.endswith(end)


def test_models_that_never_shared_a_sitting_are_not_compared(tmp_path):
    write_repeats(tmp_path, [100.0, 101.0, 102.0], option="F16")
    sidecar = make_sidecar(weight_bytes=LARGE_BYTES, started="2026-01-09T00:00:00+00:00")
    write_run(tmp_path, sidecar, rate=20.0, option="F16", **LARGE)
    assert sizes_findings.larger_models(store.load(folder=tmp_path)) == []


def test_one_model_says_nothing(tmp_path):
    write_repeats(tmp_path, [100.0, 101.0, 102.0])
    assert sizes_findings.larger_models(store.load(folder=tmp_path)) == []
    assert sizes_findings.larger_models(store.load([])) == []


def test_an_mbu_against_a_roof_of_one_way_is_an_upper_bound(tmp_path):
    write_repeats(tmp_path, [100.0, 101.0, 102.0], gpu="epyc-zen5-2c")
    write_larger(tmp_path, [20.0, 20.1, 20.2], gpu="epyc-zen5-2c")
    (sentence,) = sizes_findings.larger_models(store.load(folder=tmp_path))
    assert "for an answer. MBU, at most: **fake float32** " in sentence


def test_the_probes_of_an_option_that_is_not_named_bound_nothing(tmp_path):
    cpu = {"gpu": "epyc-zen5-2c"}
    write_repeats(tmp_path, [100.0, 101.0, 102.0], option="Q8_0", **cpu)
    for n, rate in enumerate((100.0, 101.0, 102.0), start=1):
        sidecar = make_sidecar(started=f"2026-01-01T01:{n:02d}:00+00:00", probe_ways_bytes_per_s=WAYS)
        write_run(tmp_path, sidecar, option="F16", rate=rate, run=n, **cpu)
    write_larger(tmp_path, [20.0, 20.1, 20.2], WAYS, option="F16", **cpu)
    (sentence,) = sizes_findings.larger_models(store.load(folder=tmp_path))
    assert "for an answer. MBU: **fake F16** " in sentence


def test_an_option_with_one_run_has_no_order(tmp_path):
    for option in ("F16", "Q8_0"):
        write_repeats(tmp_path, [100.0, 101.0, 102.0], option=option)
        write_larger(tmp_path, [20.0], option=option)
    (sentence,) = sizes_findings.larger_models(store.load(folder=tmp_path))
    assert "pair" not in sentence and " 2 options read 8 times" in sentence
