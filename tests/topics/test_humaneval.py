"""Solved problems: intervals and tests against values computed by hand, the rows of the file on made-up
answers."""

import math

import pytest
from builders import evaluation_sidecar, make_rows, write_evaluation, write_score
from scipy import stats

from bench.observations import checks, store
from bench.topics import humaneval, tables

REFERENCE = {"backend": "transformers", "option": "float32"}
Q4 = {"backend": "llamacpp", "option": "Q4_0"}
INT8 = {"backend": "ctranslate2", "option": "int8"}
HALF = [1] * 100 + [0] * 64


def answered(problems):
    return make_rows(n=problems, experiment="humaneval", **Q4)


def run_of(path):
    return f"{path.parent.name}/{path.stem}"


@pytest.fixture
def folder(tmp_path):
    """A reference that solves 100 of 164; a Q4_0 that solves 90 of these and 4 others; an int8 without a
    score."""
    path = write_evaluation(tmp_path, cut=3, **REFERENCE)
    write_score(tmp_path, HALF, run_of(path), **REFERENCE)
    path = write_evaluation(tmp_path, **Q4)
    write_score(tmp_path, [0] * 10 + [1] * 94 + [0] * 60, run_of(path), **Q4)
    write_evaluation(tmp_path, **INT8)
    return tmp_path


def test_mcnemar_is_the_binomial_of_the_problems_that_one_alone_solves():
    by_hand = 2 * sum(math.comb(14, k) for k in range(5)) / 2**14
    assert humaneval.mcnemar(10, 4) == humaneval.mcnemar(4, 10) == pytest.approx(by_hand)
    assert humaneval.mcnemar(0, 0) == 1
    assert humaneval.mcnemar(6, 0) < 0.05 < humaneval.mcnemar(5, 0), "the page says 6"


def test_the_interval_of_a_difference_is_paired():
    """Ten lost and five won: five fewer, by hand with half a problem in each cell; none lost is no certainty."""
    error = math.sqrt(16 / 166 - (5 / 166) ** 2) / math.sqrt(166)
    low, high = humaneval.paired_interval(10, 5)
    assert (low, high) == pytest.approx(
        [164 * (5 / 166 + sign * 1.959964 * error) for sign in (-1, 1)], rel=1e-5
    )
    assert (round(low), round(high)) == (-3, 13), "-2.6 to 12.6 without the half problems"
    assert humaneval.paired_interval(0, 0) == pytest.approx((-1.94, 1.94), abs=0.02)
    assert humaneval.paired_interval(5, 10) == pytest.approx((-high, -low))


def test_engines_are_pooled_problem_by_problem(tmp_path):
    """Two engines in four bits that lose the same ten problems are no better known than one; the mean is 8."""
    scores = {("transformers", "float32"): HALF, ("llamacpp", "Q4_0"): [0] * 10 + HALF[10:],
              ("onnxruntime", "int4"): [0] * 10 + HALF[10:104] + [1] * 4 + HALF[108:],
              ("llamacpp", "as-shipped"): [0] * 164}  # fmt: skip
    for (backend, option), passed in scores.items():
        path = write_evaluation(tmp_path, backend=backend, option=option)
        write_score(tmp_path, passed, run_of(path), backend=backend, option=option)
    written = tables.tables(store.load(folder=tmp_path))
    (row,) = written["humaneval_bits"].to_dict("records")
    assert (row["bits"], row["pooled_options"], row["fewer"]) == (
        4,
        "llamacpp Q4_0, onnxruntime int4",
        pytest.approx(8),
    )
    problems = written["humaneval_problems"].pivot(
        index="prompt", columns=["backend", "option"], values="passed"
    )
    lost = problems["transformers", "float32"] - problems[
        [("llamacpp", "Q4_0"), ("onnxruntime", "int4")]
    ].mean(axis=1)
    half = stats.t.ppf(0.975, 163) * lost.std() * math.sqrt(164)
    assert (row["fewer_low"], row["fewer_high"]) == pytest.approx((8 - half, 8 + half))
    assert row["p_value"] < 0.02


def test_two_scores_of_the_same_answers_that_differ_are_both_said(tmp_path):
    path = write_evaluation(tmp_path, **Q4)
    write_score(tmp_path, HALF, run_of(path), **Q4)
    later = {"sidecar": {"started": "2026-03-01T00:00:00+00:00"}, "run": 2}
    write_score(tmp_path, [1] * 101 + [0] * 63, run_of(path), **Q4, **later)
    (row,) = tables.tables(store.load(folder=tmp_path))["humaneval"].to_dict("records")
    assert (row["solved"], row["other_scores"]) == (101, "100 (problem 100)")


def test_the_summary_is_what_one_computes_by_hand(folder):
    table = humaneval.summary(store.load(folder=folder)).set_index("option")
    assert table["solved"].to_dict() == pytest.approx(
        {"float32": 100, "Q4_0": 94, "int8": math.nan}, nan_ok=True
    )
    share, z = 100 / 164, 1.959964
    middle = (share + z**2 / 328) / (1 + z**2 / 164)
    half = z * math.sqrt(share * (1 - share) / 164 + z**2 / (4 * 164**2)) / (1 + z**2 / 164)
    own = table.loc["float32"]
    assert (own["low"], own["high"]) == pytest.approx((middle - half, middle + half), rel=1e-5)
    assert (own["ended"], own["cut"], own["failed"]) == (161, 3, 0)
    q4 = table.loc["Q4_0"]
    assert (q4["only_reference"], q4["only_this"], q4["fewer"]) == (10, 4, 6)
    assert q4["p_value"] == pytest.approx(humaneval.mcnemar(10, 4))


def test_differences_are_said_with_what_they_may_be_at_most(folder):
    shown = tables.tables(store.load(folder=folder))["humaneval"].set_index("option")["verdict"]
    assert shown.to_dict() == {
        "float32": "is the reference",
        "Q4_0": "6 fewer of 164 (95 %: 2 more to 13 fewer)",
        "int8": "not scored",
    }


def test_more_solved_problems_are_no_proof_either(tmp_path):
    path = write_evaluation(tmp_path, **REFERENCE)
    write_score(tmp_path, HALF, run_of(path), **REFERENCE)
    path = write_evaluation(tmp_path, **Q4)
    write_score(tmp_path, [1] * 102 + [0] * 62, run_of(path), **Q4)
    row = humaneval.summary(store.load(folder=tmp_path)).set_index("option").loc["Q4_0"]
    assert humaneval.verdict(row) == "2 more of 164 (95 %: 5 more to 1 fewer)"


def test_the_cheapest_float32_is_the_reference_where_transformers_is_not_scored(tmp_path):
    for columns in (Q4, INT8 | {"option": "float32"}):
        path = write_evaluation(tmp_path, **columns)
        write_score(tmp_path, HALF, run_of(path), **columns)
    table = humaneval.summary(store.load(folder=tmp_path))
    assert set(table["reference"]) == {"ctranslate2 float32"}


def test_a_score_counts_for_the_answers_that_it_has_scored(folder):
    """Newer answers are not scored until they are; a repeated score replaces the one before."""
    later = {"sidecar": {"started": "2026-02-01T00:00:00+00:00"}, "run": 2}
    path = write_evaluation(folder, **Q4, **later)
    table = humaneval.summary(store.load(folder=folder)).set_index("option")
    assert math.isnan(table.loc["Q4_0", "solved"]) and humaneval.verdict(table.loc["Q4_0"]) == "not scored"
    write_score(folder, [1] * 164, run_of(path), **Q4, **later)
    latest = {"sidecar": {"started": "2026-03-01T00:00:00+00:00"}, "run": 3}
    write_score(folder, [1] * 99 + [0] * 65, run_of(path), **Q4, **latest)
    assert humaneval.summary(store.load(folder=folder)).set_index("option").loc["Q4_0", "solved"] == 99


def test_a_trial_and_random_weights_enter_no_table(tmp_path):
    path = write_evaluation(tmp_path, problems=5, **Q4)
    write_score(tmp_path, [1] * 5, run_of(path), **Q4)
    write_evaluation(tmp_path, weights="synthetic", model="shape:llama-2-7b", **INT8)
    requests = store.load(folder=tmp_path)
    assert len(requests) > 164
    assert humaneval.summary(requests).empty


def test_an_evaluation_with_a_hole_is_no_run(tmp_path):
    rows = [row | {"prompt": row["prompt"] - 1, "ttft_s": None} for row in answered(163)]
    with pytest.raises(checks.Rejected, match="163 of 164 problems are answered.*again"):
        store.write(rows, evaluation_sidecar(164), rows[0]["run_id"], tmp_path)


def test_the_file_has_interval_and_what_others_published(tmp_path):
    model = {"backend": "llamacpp", "option": "as-shipped", "model": "qwen2.5-coder-1.5b"}
    path = write_evaluation(tmp_path, **model)
    write_score(tmp_path, [1] * 114 + [0] * 50, run_of(path), **model)
    (row,) = tables.tables(store.load(folder=tmp_path))["humaneval"].to_dict("records")
    said = [round(100 * row[name], 1) for name in ("pass_at_1", "pass_at_1_low", "pass_at_1_high")]
    assert said == [69.5, 62.1, 76.0] and row["published"] == 0.707


def test_without_runs_there_are_no_rows(nothing):
    assert tables.tables(nothing)["humaneval"].empty and tables.tables(nothing)["quality"].empty


def test_a_problem_that_is_answered_twice_is_no_run(tmp_path):
    rows = [row | {"prompt": row["prompt"] - 1, "ttft_s": None} for row in answered(164)]
    twice = rows + [rows[-1] | {"request": 165}]
    with pytest.raises(checks.Rejected, match="165 rows answer 164 problems"):
        store.write(twice, evaluation_sidecar(164), rows[0]["run_id"], tmp_path)


UNCHECKED = {"judge": {"verdict": "not judged", "why": "The reference takes more memory than there is."}}


def test_answers_whose_tokens_were_not_checked_enter_no_sentence_and_are_no_reference(folder):
    for columns in (REFERENCE, Q4 | {"option": "as-shipped", "model": "qwen2.5-coder-1.5b"}):
        path = write_evaluation(folder, **columns, sidecar=UNCHECKED, run=2)
        write_score(folder, HALF, run_of(path), **columns, run=2)
    requests = store.load(folder=folder)
    table = humaneval.summary(requests).set_index("option")
    assert table.loc["Q4_0", "reference"] == "" and math.isnan(table.loc["Q4_0", "fewer"])
    assert humaneval.verdict(table.loc["Q4_0"]) == "no reference is scored"


def test_unchecked_tokens_are_said_to_be_so_beside_a_reference(folder):
    path = write_evaluation(folder, **Q4, sidecar=UNCHECKED, run=2)
    write_score(folder, HALF, run_of(path), **Q4, run=2)
    shown = tables.tables(store.load(folder=folder))["humaneval"].set_index("option")["verdict"]
    assert shown["Q4_0"] == "its tokens were not checked"
