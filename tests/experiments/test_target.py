"""What a run measures: what cannot be measured is refused before anything is loaded."""

import time
from types import SimpleNamespace

import pandas as pd
import pytest

from bench import backends, inputs
from bench.experiments import batching, notebook, target
from bench.machine import gpu, identity
from bench.paths import ROOT

CHECKPOINT = SimpleNamespace(name="tiny", config={"max_position_embeddings": 100}, encode=str.split)


@pytest.fixture
def prompts(monkeypatch):
    """A function that sets the texts of every prompt set."""
    return lambda *texts: monkeypatch.setattr(
        inputs, "prompts", lambda which: pd.Series(texts, range(1, len(texts) + 1), dtype=str)
    )


def test_the_longest_request_must_fit_into_the_context(prompts):
    prompts("one two three", "one")
    target._fits("latency", CHECKPOINT, 97)
    with pytest.raises(ValueError, match="the context of tiny, 100 tokens: use -p max_new_tokens 97 at most"):
        target._fits("latency", CHECKPOINT, 98)
    target._fits("latency", SimpleNamespace(name="endless", config={}, encode=str.split), 10**9)


def test_a_set_without_prompts_or_tokens_is_refused(prompts):
    prompts()
    with pytest.raises(ValueError, match="'latency' of data/prompts.csv is empty"):
        target.encoded("latency", CHECKPOINT)
    prompts("one", "")
    with pytest.raises(ValueError, match="Prompt 2 of the set 'latency'"):
        target.encoded("latency", CHECKPOINT)


def test_gpu_is_another_word_for_cuda(monkeypatch):
    monkeypatch.setattr(identity, "device_of", lambda device, gpu: (device, gpu))
    assert target.place_of({"device": "gpu", "gpu": "auto"}) == target.Place("cuda", "auto")
    elsewhere = {"device": "gpu", "gpu": "H100", "url": "https://somewhere.example"}
    assert target.place_of(elsewhere) == target.Place("cuda", "h100")


@pytest.mark.parametrize("url", ["localhost:8000", "somewhere.example", "ftp://somewhere.example", "http://"])
def test_an_address_without_http_is_refused(url):
    with pytest.raises(ValueError, match="url must be like http://localhost:8000"):
        target.place_of({"device": "auto", "gpu": "h100", "url": url})


def test_an_engine_of_another_environment_names_the_papermill_that_has_it(tmp_path, monkeypatch):
    values = {"backend": "vllm", "device": "cpu", "gpu": "auto", "option": "", "threads": 0, "run": 0}
    module = SimpleNamespace(
        available=lambda: "vllm is not installed.", DEVICES=("cpu",), OPTIONS={"F16": {}}, ENVIRONMENT="vllm"
    )
    monkeypatch.setattr(backends, "ROOT", tmp_path)
    monkeypatch.setattr(target, "ROOT", tmp_path)
    monkeypatch.setattr(backends, "get", lambda name: backends.Backend(name, module))
    (tmp_path / ".venvs" / "vllm").mkdir(parents=True)
    with pytest.raises(RuntimeError, match="make study ENGINES=vllm"):
        target.make("latency", values)
    (tmp_path / ".venvs" / "vllm" / "ready").touch()
    with pytest.raises(RuntimeError, match=r"run the notebook with \.venvs/vllm/bin/papermill"):
        target.make("latency", values)
    module.available = lambda: None
    with pytest.raises(ValueError, match="has no load"):  # what is importable here goes on
        target.make("latency", values)


def sweep(**changes):
    values = {"batch_sizes": "1 2", "prompt_lengths": "10 200", "short_tokens": 5}
    values |= {
        "input_tokens": 50,
        "max_new_tokens": 50,
        "budget_s": 0.0,
        "limit_s": 0.0,
        "timed": 3,
    } | changes
    backend = backends.Backend("one", SimpleNamespace(OPTIONS={"float32": {}}))
    return batching.Sweep(
        SimpleNamespace(parameters=values, backend=backend, option="float32", checkpoint=CHECKPOINT)
    )


def test_a_sweep_names_the_lengths_that_have_no_room():
    assert [str(shape) for shape in sweep().shapes] == ["1 x 10+5", "1 x 50+50", "2 x 50+50"]
    assert "beyond the context of 100 tokens: 1 x 200+5" in str(sweep())
    with pytest.raises(ValueError, match="input_tokens 51 and max_new_tokens 50 exceed"):
        sweep(input_tokens=51)
    with pytest.raises(ValueError, match="Every one of prompt_lengths"):
        sweep(prompt_lengths="200")


def measured(generate, **changes):
    """(the batches of a sweep whose engine is `generate`, the (prompts, new tokens) of all its calls)."""
    calls = []

    def recorded(prompts, new_tokens):
        calls.append((prompts, new_tokens))
        return generate(len(calls), prompts)

    made = sweep(prompt_lengths="10", **changes)
    made.setup.generate, made.setup.progress = recorded, lambda shapes, total: shapes
    made.setup.with_energy = lambda rows, batches, new_tokens: rows
    made.setup.checkpoint = SimpleNamespace(encode=lambda text: list(range(1349)))
    return [batch for batches in made for batch in batches], calls


def answered(calls, prompts):
    return [{"error": ""} for _ in prompts]


def test_every_shape_is_warmed_up_at_its_shape_and_timed_three_times():
    batches, calls = measured(answered)
    shapes = [(len(prompts), len(prompts[0]), new) for prompts, new in calls]
    assert shapes == [(1, 10, 5)] * 4 + [(1, 50, 50)] * 4 + [(2, 50, 50)] * 4
    assert [str(batch.shape) for batch in batches] == ["1 x 10+5"] * 3 + ["1 x 50+50"] * 3 + ["2 x 50+50"] * 3
    wide = [tuple(ids) for prompts, new in calls[8:] for ids in prompts]
    assert len(set(wide)) == 8, "no batch sends what another has sent"
    assert [batch.prompts for batch in batches[6:]] == [prompts for prompts, _ in calls[9:]]


def test_a_batch_that_fails_ends_its_shape_and_is_kept():
    def fails(number, prompts):
        return [{"error": "MemoryError" if number in (1, 8) else ""} for _ in prompts]

    batches, calls = measured(fails)
    assert [(str(batch.shape), batch.failed) for batch in batches] == [
        ("1 x 10+5", True),  # its warm-up
        *[("1 x 50+50", False)] * 3,
        ("2 x 50+50", False),
        ("2 x 50+50", True),
    ]
    assert len(calls) == 1 + 4 + 3


def test_the_budget_of_a_sweep_charges_no_warm_up():
    def compiles(number, prompts):
        time.sleep(0.3 if number % 4 == 1 else 0.001)
        return answered(number, prompts)

    batches, _ = measured(compiles, budget_s=0.5)
    assert len(batches) == 9, "three warm-ups took longer than the budget"
    batches, _ = measured(lambda *call: time.sleep(0.05) or answered(*call), budget_s=0.4)
    assert 3 <= len(batches) < 9
    batches, _ = measured(compiles, limit_s=0.5)
    assert len(batches) == 3, "a limit is one on everything"


def test_a_folder_is_one_wherever_it_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert notebook.folder("scratch") == ROOT / "scratch"
    assert notebook.folder(str(tmp_path)) == tmp_path and notebook.folder("", tmp_path) == tmp_path


@pytest.mark.parametrize(
    "source", ["1 + 1", "%pwd", "a, b = 1, 2", "a = print", "import os", "a = 1\nprint(a)", "a.b = 1", "f(x"]
)
def test_a_cell_that_does_more_than_to_set_literals_declares_nothing(source):
    assert inputs.declared(source) == {}


def test_numbers_and_lists_become_the_words_that_they_stand_for():
    cells = ['sizes = "1 2"\nname = ""', "check"]
    found = notebook.parameters({"In": cells, "sizes": [1, 4], "name": 3})
    assert found == {"sizes": "1 4", "name": "3"}
    with pytest.raises(TypeError, match="sizes must be a str"):
        notebook.parameters({"In": cells, "sizes": None, "name": ""})
    with pytest.raises(NameError, match="Parameter name is not set"):
        notebook.parameters({"In": cells, "sizes": ""})


def test_several_gpus_are_named_in_the_sidecar(monkeypatch):
    monkeypatch.setattr(gpu, "gpus", lambda: ["H100 0", "H100 1", "H100 2"])
    place = target.Place("cuda", "h100")
    two, one = (
        target.Target("latency", {}, None, "load", place, "", 2, target.Devices(n), None, {}, None)
        for n in (2, 1)
    )
    assert two.several_gpus() == {"gpus": ["H100 0", "H100 1"]} and one.several_gpus() == {}


def test_more_devices_than_there_are_are_refused(monkeypatch):
    monkeypatch.setattr(gpu, "gpus", lambda: ["H100"] * 3)
    here = target.Place("cuda", "h100")
    words = "tensor_parallel 2 x data_parallel 2 takes 4 GPUs, and CUDA may use 3 here"
    with pytest.raises(ValueError, match=words):
        target._enough(target.Devices(2, 2), here, 2, "")
    target._enough(target.Devices(2, 2), here, 2, "http://somewhere.example")
    target._enough(target.Devices(2, 1), here, 2, "")
