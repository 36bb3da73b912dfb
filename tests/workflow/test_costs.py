"""What a study of a larger model is, what it says it takes, and the copies that it deletes."""

import json
from dataclasses import replace

import pytest
from builders import evaluation_sidecar, make_rows

from bench import inputs
from bench.backends.common import checkpoints
from bench.machine import identity
from bench.observations import store
from bench.workflow import costs, durations
from bench.workflow import plan as plan_workflow

CODER = "qwen2.5-coder-1.5b"


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    """A checkout in which nothing has been measured and nothing made."""
    for module in (store, durations):
        monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    for module in (checkpoints, costs):
        monkeypatch.setattr(module, "MODELS", tmp_path / "models")
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def load(**overrides):
    return plan_workflow.load({"device": "cpu"} | overrides)


def test_a_larger_model_has_a_study_of_its_own():
    runs = plan_workflow.plan(load(models=[CODER]))
    timed = [run for run in runs if run.experiment == "sizes"]
    options = {(run.backend, run.option) for run in timed}
    assert len(options) == 12 and ("vllm", "bfloat16") in options and len(timed) == 36
    assert [run.n for run in timed] == sorted(run.n for run in timed), "one round after the other"
    scored = [run for run in runs if run.experiment == "sizes_quality"]
    assert {(run.backend, run.option) for run in scored} == options and {run.n for run in scored} == {1}
    assert dict(timed[0].parameters) == {"prompt_numbers": "7 8 9", "max_new_tokens": 128}
    asked = inputs.prompts("latency")[[7, 8, 9]]
    assert "product of 9 and 8" in asked[7]


def test_what_is_asked_for_goes_before_the_model_s_own_study():
    assert set(load(models=[CODER], experiments="batching")["experiments"]) == {"batching"}
    assert "latency" in load(models=[CODER], all=True)["experiments"]
    assert load(models=[CODER], engines="llamacpp")["engines"] == "llamacpp"
    assert load(models=[CODER])["rounds"] == 3 and load(models=[CODER], budget=20)["rounds"] is None
    assert load(models=["qwen2.5-coder-0.5b"])["budget"] == 30
    assert set(load(models=[CODER, "smollm2-135m"])["experiments"]) == {"latency"}
    assert load()["budget"] == 8 and set(load()["experiments"]) == {"latency"}


def test_the_short_form_is_measured_by_name_only_with_every_option():
    runs = plan_workflow.plan(load(engines="fake", experiments="sizes"))
    assert {run.experiment for run in runs} == {"sizes"} and len(runs) > 2
    assert not {"sizes", "sizes_quality"} & {
        run.experiment for run in plan_workflow.plan(load(engines="fake", all=True, repeats=2))
    }


def test_a_study_says_what_it_takes():
    assert inputs.numbers(CODER) == pytest.approx(1.777e9, rel=0.01), "head and embedding are two tensors"
    said = costs.text(plan_workflow.plan(load(models=[CODER])))
    assert said.startswith("To measure: 48 runs, about 3.") and "disk: about 16.0 GB more" in said
    assert "memory: up to 16.3 GB with the token check" in said
    small = costs.text(plan_workflow.plan(load(engines="llamacpp")))
    assert small.startswith("To measure: 2 runs, about 2 min") and costs.text([]) == ""


def test_a_model_of_one_s_own_has_the_size_of_its_file(empty, tmp_path, monkeypatch):
    assert costs.checkpoint_bytes("hub:somebody/model") == 0
    (run,) = (
        replace(run, model="hub:somebody/model")
        for run in plan_workflow.plan(load(engines="llamacpp/Q8_0"))[:1]
    )
    assert costs.room([run]).endswith("Not counted, as only a download says their size: hub:somebody/model.")
    weights = tmp_path / "own"
    weights.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (weights / name).write_text("{}")
    header = json.dumps(
        {"a": {"dtype": "F16", "shape": [10**6, 300], "data_offsets": [0, 6 * 10**8]}}
    ).encode()
    (weights / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert costs.checkpoint_bytes(f"path:{weights}") == 4 * 3e8
    said = costs.room([replace(run, model=f"path:{weights}")])
    assert "memory: up to 1.9 GB with the token check" in said and "Not counted" not in said
    assert costs.checkpoint_bytes(f"gguf:{tmp_path}/none.gguf") == 0, "its run says that there is none"


def test_answers_take_longer_than_a_latency_run_and_a_continued_run_longer_than_its_last_attempt(empty):
    first = plan_workflow.plan(load(engines="llamacpp/Q8_0", models=[CODER], experiments="humaneval"))[0]
    assert durations.expected_s([first])[first] > 30 * 60
    rows = make_rows(
        n=2,
        experiment="humaneval",
        backend="llamacpp",
        option="Q8_0",
        gpu=first.gpu,
        host=identity.host(),
        model=CODER,
    )
    when = {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T00:10:00+00:00"}
    own = evaluation_sidecar(2, 2, **when)
    own["settings"]["continued_at"] = 1
    store.write([row | {"prompt": n, "ttft_s": None} for n, row in enumerate(rows)], own, rows[0]["run_id"])
    assert durations.own_s(first) == 20 * 60


def test_copies_of_a_large_model_are_deleted_after_their_last_run(empty, monkeypatch):
    runs = plan_workflow.plan(
        load(models=[CODER], engines="llamacpp/Q4_0 openvino/Q4_0 transformers/float32")
    )
    (path,) = costs.copies(runs)
    assert path.suffix == ".gguf" and path.parent == empty / CODER, "both engines read one file"
    path.parent.mkdir()
    path.write_text("weights")
    last = next(run for run in runs if run.backend == "openvino")
    path.write_text("weights")
    assert costs.drop(runs, [last]) == [] and path.exists()
    monkeypatch.setenv("BENCH_KEEP", "1")
    assert costs.drop(runs, []) == [] and path.exists()
    monkeypatch.delenv("BENCH_KEEP")
    assert costs.drop(runs, []) == [path] and not path.exists()


def test_copies_of_the_quick_check_stay(empty):
    runs = plan_workflow.plan(load(engines="llamacpp"))
    for path in costs.copies(runs):
        path.parent.mkdir(exist_ok=True)
        path.write_text("weights")
    assert len(costs.copies(runs)) == 2 and costs.drop(runs, []) == []
