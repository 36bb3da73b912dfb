"""The correction by points near a case: there where they are, nothing where none is."""

import numpy as np
import pytest

from llm_planner import accuracy, engines, nearby, published, validation

CASE = engines.Case("llama-3.1-8b", "h100_sxm", "vllm", "fp8", 1, 16, 1024, 512, "aic")


def cases(**columns):
    """The case with each of some values in one place."""
    (name, values), *_ = columns.items()
    return [CASE._replace(**{name: value}) for value in values]


def test_a_case_amid_points_that_took_longer_is_lengthened():
    near = nearby.Errors(cases(concurrency=[4, 8, 32, 64]), np.full((4, 2), np.log(1.2)))
    assert np.exp(near.of([CASE])[0]) == pytest.approx([1.2, 1.2], abs=0.06)


@pytest.mark.parametrize(
    "other",
    [{"gpu": "b200_sxm"}, {"engine": "sglang"}, {"model": "qwen3-32b"}, {"collection": "plan"}]
    + [{"input_tokens": 2000, "output_tokens": 100}],
)
def test_a_case_of_another_family_is_left_as_it_is(other):
    near = nearby.Errors(cases(concurrency=[4, 8, 32, 64]), np.full((4, 2), 0.2))
    assert (near.of([CASE._replace(**other)]) == 0).all()


def test_a_case_far_away_is_hardly_changed():
    near = nearby.Errors(cases(concurrency=[1, 2, 3, 4]), np.full((4, 2), 0.2))
    assert np.abs(near.of([CASE._replace(concurrency=2048)])).max() < 0.01


def test_one_point_that_is_off_by_hundreds_counts_no_more_than_five_usual_errors():
    way = [nearby.Errors(cases(concurrency=[8, 16, 32]), np.array([[e, e]] * 3)) for e in (0.6, 6.0)]
    off = [near.of([CASE])[0, 0] for near in way]
    assert off[0] == off[1] > 0.3


def test_points_without_a_pattern_change_little():
    draw = np.random.default_rng(0)
    errors = 0.1 * draw.choice([-1, 1], (40, 2))
    near = nearby.Errors(cases(concurrency=range(1, 41)), errors)
    assert np.abs(near.of(cases(concurrency=range(1, 41)))).max() < 0.09


def test_a_fold_is_corrected_by_the_errors_of_the_others_only():
    """A measured value of the fold is changed a thousandfold: no prediction of that fold moves."""
    table = published.table()
    plain = accuracy.predicted(validation.PLAIN).reset_index()[["row", *validation.PREDICTED]]
    out = validation.folds(table) == 3
    changed = table.assign(ttft_ms=table["ttft_ms"].mask(out, 1e6))
    before, after = (validation.corrected(rows, plain).set_index("row") for rows in (table, changed))
    assert before[out].to_numpy() == pytest.approx(after[out].to_numpy())
    assert not np.allclose(before[~out], after[~out])


def test_the_correction_brings_rows_of_unseen_folds_nearer():
    plain, corrected = (validation.scores(accuracy.predicted(way)) for way in (validation.PLAIN, "folds"))
    for name in published.MEASURED:
        assert corrected[f"{name}_median"] < 0.85 * plain[f"{name}_median"]
        assert corrected[f"{name}_p90"] < plain[f"{name}_p90"]
