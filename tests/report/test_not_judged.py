"""Runs whose tokens could not be checked for want of memory are in tables, with the reason, and in no
comparison."""

import pytest
from builders import make_sidecar, write_run

from bench.experiments import judge
from bench.observations import derived, store
from bench.topics import across_machines, latency, quality

MEMORY = "The reference in float32 takes 8.2 GB of memory, and 5.1 GB are free."
# Of an engine or of weights for which there is no right answer, and of an older run: no fault.
OWN_RULES = (
    {"verdict": "not judged", "why": "The weights are synthetic: there is no right answer."},
    {"verdict": "not judged", "why": "The judge's request failed: out of memory"},
    {"verdict": "same tokens", "why": ""},
    {},
    None,
)


def write(folder, option, rates, **more):
    for n, rate in enumerate(rates, 1):
        sidecar = make_sidecar(started=f"2026-01-01T00:0{n}:00+00:00", **more)
        answer = {"answer": "9 × 8 is 72", "prompt": quality.QUESTION}
        write_run(folder, sidecar, option=option, rate=rate, run=n, n=1, **answer)


@pytest.fixture
def requests(tmp_path):
    """The fastest of three options was not judged; the second was, and one is the reference."""
    write(tmp_path, "float16", [90.0, 91.0, 92.0], judge=judge.unjudged(MEMORY))
    write(tmp_path, "float32", [50.0, 51.0, 52.0], judge={"verdict": "same tokens", "why": ""})
    backend, option = quality.REFERENCE
    write_run(tmp_path, backend=backend, option=option, rate=20.0)
    return store.load(folder=tmp_path)


def test_the_sentence_of_the_token_check_is_known(monkeypatch):
    monkeypatch.setattr(judge.weights, "tensors", lambda path: [type("Tensor", (), {"values": 10**15})])
    why = judge._lacking_memory(type("Checkpoint", (), {"path": ""}))
    assert derived.not_judged_for_memory({"judge": judge.unjudged(why)}) == why


@pytest.mark.parametrize("entry", OWN_RULES)
def test_only_memory_counts(entry):
    assert derived.not_judged_for_memory({"judge": entry}) == ""
    assert derived.not_judged_for_memory({}) == ""


def test_the_table_says_so(requests):
    table = latency.summary(requests).query("backend == 'fake'").set_index("option")
    assert table.loc["float16", "reason"] == "not judged" and not table.loc["float16", "may_be_best"]
    assert table.loc["float16", "output_tokens_per_s"] == pytest.approx(10 / (0.05 + 9 / 91), rel=0.01), (
        "its speed is shown"
    )


def test_no_comparison_has_them(requests):
    assert "float16" not in set(across_machines.compared(requests)["option"])
