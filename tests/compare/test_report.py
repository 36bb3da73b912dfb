"""Verdicts of whole comparisons, on made-up results whose truth is known."""

import json

import jsonschema
import pytest
from compare import errors
from compare.results import serve, write

from llm_measured.compare import borrowed, compare, limits, ratios, render
from llm_measured.compare import report as report_module
from llm_measured.compare.reading import TOKENS

SCHEMA = json.loads((borrowed.resources.files("llm_measured.compare") / "schema.json").read_text())


def sides(tmp_path, runs=3, slow=1.0, a=None, b=None, **more):
    """(A, B): folders of so many runs, B `slow` times as slow."""
    first = write(tmp_path / "a", [serve(k, scatter=0.01, **more) | (a or {}) for k in range(runs)])
    second = write(
        tmp_path / "b", [serve(100 + k, slow=slow, scatter=0.01, **more) | (b or {}) for k in range(runs)]
    )
    return [first], [second]


@pytest.mark.parametrize("slow, verdict", [(1.2, "slower"), (1 / 1.2, "faster"), (1.0, "equal")])
def test_three_runs_a_side_tell_twenty_percent_and_equals(tmp_path, slow, verdict):
    report = compare(*sides(tmp_path, slow=slow))
    named = {row["name"]: row["verdict"] for row in report["levels"][0]["rows"]}
    assert named["output tokens/s"] == verdict and named["TPOT mean"] == verdict
    assert report["alarms"] == [] and render.text(report).startswith(report["sentence"][:20])
    assert "p99" not in " ".join(named), "200 requests bound no 99th percentile"
    jsonschema.validate(json.loads(render.as_json(report)), SCHEMA)


def test_one_run_assumes_a_scatter_and_says_so(tmp_path):
    report = compare(*sides(tmp_path, runs=1, slow=1.3))
    rows = {row["name"]: row for row in report["levels"][0]["rows"]}
    assert rows["output tokens/s"]["verdict"] == "slower"
    assert "assumed, 6 %" in rows["output tokens/s"]["scatter"] and "assumed" in render.text(report)


def test_what_cannot_be_is_said_before_the_verdict_of_either_side(tmp_path):
    impossible = {"model_id": "meta-llama/Llama-3.1-405B-Instruct", "tensor_parallel_size": 1}
    impossible["dtype"] = "bfloat16"
    report = compare(*sides(tmp_path, a=impossible, b=impossible | {"gpu_name": "a toaster"}))
    alarm = next(one for one in report["alarms"] if one["check"] == "bandwidth_beyond_device")
    assert (alarm["side"], alarm["kind"], len(alarm["files"])) == ("A", "impossible", 3)
    assert alarm["sentence"].startswith("A has a figure that cannot be: ")
    assert {one["side"] for one in report["alarms"]} == {"A"}, "no table knows B's device"
    for shown in (render.text(report), render.markdown(report)):
        flat = " ".join(shown.split())
        assert flat.index("A has a figure that cannot be") < flat.index(report["sentence"][:20])
    assert "So do 2 more of its files." in " ".join(render.text(report).split())
    jsonschema.validate(json.loads(render.as_json(report)), SCHEMA)


def test_the_first_figures_of_all_levels_are_one_family():
    rows = [
        {
            "estimate": ratios.Ratio(0.2, error, 4, error),
            "metric": TOKENS,
            "low": 1.1,
            "high": 1.4,
            "primary": True,
        }
        for error in (0.02, 1)
    ]
    alone = [{"rows": [dict(rows[0])], "comparable": True}]
    report_module.adjust(alone, 0.05)
    sweep = [{"rows": [dict(row)], "comparable": True} for row in rows[:1] + rows[1:] * 99]
    report_module.adjust(sweep, 0.05)
    assert "among the 100" in sweep[0]["rows"][0]["reason"]
    assert alone[0]["rows"][0]["verdict"] == "faster"
    assert sweep[0]["rows"][0]["p_holm"] == pytest.approx(100 * alone[0]["rows"][0]["p_holm"])
    assert sweep[0]["rows"][0]["verdict"] == "cannot be told"


def test_one_run_whose_difference_is_small_cannot_be_told_and_says_how_many_would_do(tmp_path):
    report = compare(*sides(tmp_path, runs=1, slow=1.1, a={"gpu_name": ""}, b={"gpu_name": ""}))
    assert report["verdict"] == "cannot be told"
    assert {row["verdict"] for row in report["levels"][0]["rows"]} == {"cannot be told"}
    assert "runs a side at this scatter" in " ".join(render.text(report).split())


def test_what_differs_stands_first_and_what_is_compared_is_no_hindrance(tmp_path):
    report = compare(*sides(tmp_path, slow=0.7, b={"quantization": "fp8"}, a={"quantization": "awq"}))
    assert report["conditions"][0]["name"] == "number format"
    assert report["conditions"][0]["effect"] == "compared" and report["verdict"] == "faster"
    lines = render.text(report).splitlines()
    assert lines.index("WHAT DIFFERS") < next(k for k, line in enumerate(lines) if "output tokens/s" in line)


@pytest.mark.parametrize(
    "change, word",
    [
        ({"model_id": "Qwen/Qwen3-8B"}, "model"),
        ({"dataset_name": "random"}, "data set"),
        ({"max_concurrency": 16}, "No level"),
        ({"burstiness": 0.5}, "burstiness"),
    ],
)
def test_another_load_is_not_comparable(tmp_path, change, word):
    a = {"dataset_name": "sharegpt", "burstiness": 1.0}
    report = compare(*sides(tmp_path, a=a, b=a | change))
    assert report["verdict"] == "not comparable" and word in report["sentence"].replace("Data", "data")
    jsonschema.validate(json.loads(render.as_json(report)), SCHEMA)


def test_other_lengths_are_not_comparable_unless_allowed(tmp_path):
    other = {"output_lens": [150] * 200, "total_output_tokens": 30000}
    a, b = sides(tmp_path, b=other)
    assert compare(a, b)["verdict"] == "not comparable"
    assert compare(a, b, allow=["lengths"])["verdict"] != "not comparable"
    with pytest.raises(ValueError, match="no condition"):
        compare(a, b, allow=["length"])


def test_a_file_against_itself_is_no_comparison(tmp_path):
    a, _ = sides(tmp_path)
    assert "one run" in compare(a, a)["sentence"]


def test_a_limit_fails_where_it_is_passed_beyond_noise_alone(tmp_path):
    limit = [limits.parse("ttft_p90 > +10%")]
    far = compare(*sides(tmp_path / "far", slow=1.5), limits=limit)
    near = compare(*sides(tmp_path / "near", slow=1.1), limits=limit)
    assert far["limits"][0]["passed"] and not near["limits"][0]["passed"]
    untested = compare(*sides(tmp_path / "no"), limits=[limits.parse("ttft_p99 > +10%")])["limits"][0]
    assert not untested["passed"] and untested["ratio"] is None


def test_equals_are_called_different_in_at_most_one_of_twenty(tmp_path):
    """60 pairs of equal servers; 8 or more would be a chance of 1 in 100 at 5 %."""
    pairs = list(errors.simulated(3, 60, 0.03, 60))
    row = next(errors.counted("equal", 3, "60", pairs))
    assert row["told"] <= 7 / 60 and row["held"] >= 52 / 60
    assert row["said_by_5_percent"] < 0.5


@pytest.mark.parametrize("scatter", [0.01, 0.06])
def test_one_run_of_a_machine_nobody_reran_is_called_different_rarely(scatter):
    """Of 100 pairs of equals that scatter by 6 % 5 are expected; 13 would be a chance of 1 in 1,000."""
    row = next(errors.counted("equal", 1, "60", list(errors.simulated(1, 60, scatter, 100))))
    assert row["told"] <= 0.12


def test_levels_of_one_file_are_matched_by_concurrency(tmp_path):
    for side, slow in (("a", 1.0), ("b", 1.3)):
        for run in range(3):
            lines = [
                serve(run + 10 * c + (100 if side == "b" else 0), slow=slow, scatter=0.01, max_concurrency=c)
                for c in (4, 8)
            ]
            folder = tmp_path / side
            folder.mkdir(exist_ok=True)
            (folder / f"{run}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    report = compare([tmp_path / "a"], [tmp_path / "b"])
    assert [level["name"] for level in report["levels"]] == ["concurrency 4", "concurrency 8"]
    assert report["levels"][0]["runs"] == {"a": 3, "b": 3}
