"""The half hour of a GPU: order, budget, what fails, and where the next call goes on. The notebooks are played by shell commands."""

import json
import subprocess
import sys
import time

import psutil
import pytest

from bench.machine import devices
from bench.observations import store
from bench.workflow import gpu_matrix, run_notebook

LIST = """
# a comment
weights model=shape:llama-2-7b expect_s=5
latency backend=transformers option=bfloat16 model=shape:llama-2-7b expect_s=0.5
latency backend=ctranslate2 option=float16 model=shape:llama-2-7b expect_s=0.5
"""


@pytest.fixture
def matrix(tmp_path, monkeypatch):
    """A function that makes the Matrix of a list; `calls` are the commands, `plays` what each of them does."""
    monkeypatch.setattr(devices, "device_of", lambda device, gpu: ("cuda", "h100-80gb-hbm3"))
    monkeypatch.setattr(
        store, "path", lambda identifier, *_: tmp_path / "runs" / f"{identifier.replace('/', '-')}.csv"
    )
    monkeypatch.setattr(run_notebook, "keep", lambda identifier: None)
    monkeypatch.setattr(run_notebook, "reason", lambda identifier: "OutOfMemoryError: no room")
    monkeypatch.setattr(gpu_matrix, "ROOT", tmp_path)
    (tmp_path / "runs").mkdir()
    plays = {}
    popen = subprocess.Popen

    def played(command, **more):
        name = command[4] if command[2].endswith("run_notebook") else "weights"
        code = plays.get(name.partition("-")[0].partition("/")[0], "write")
        target = tmp_path / "runs" / f"{name.replace('/', '-')}.csv"
        script = {"write": f"echo 1 > {target}", "fail": "exit 1", "hang": "sleep 60 & sleep 60"}[code]
        return popen(["sh", "-c", script], **more | {"cwd": tmp_path})

    monkeypatch.setattr(subprocess, "Popen", played)

    def make(text=LIST, repeats=1, steps=None):
        file = tmp_path / "list.txt"
        file.write_text(text)
        monkeypatch.setattr(gpu_matrix, "ROOT", gpu_matrix.paths.ROOT)
        steps = gpu_matrix.read(file, repeats)
        monkeypatch.setattr(gpu_matrix, "ROOT", tmp_path)
        return gpu_matrix.Matrix(steps, state=tmp_path / "state.json")

    make.plays = plays
    return make


def states(matrix):
    return [matrix.known.get(step.name, {}).get("state", "") for step in matrix.steps]


def test_all_is_carried_out_in_order_and_every_step_says_how_long_it_took(matrix, capsys):
    made = matrix()
    assert made.run(60) == [] and states(made) == ["ended"] * 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ended"] * 3 and all(" s: " in line for line in lines)
    assert [line.split(": ", 1)[1].split()[0] for line in lines] == ["weights", "latency", "latency"]


def test_what_fails_costs_itself_only(matrix, capsys):
    matrix.plays["transformers"] = "fail"
    made = matrix()
    made.run(60)
    assert states(made) == ["ended", "failed", "ended"]
    assert "OutOfMemoryError: no room" in capsys.readouterr().out


def test_the_next_call_goes_on_where_this_one_ended(matrix, capsys):
    made = matrix()
    left = made.run(3)  # too short for the weights, long enough for the others
    assert [step.notebook for step in left] == ["weights"] and states(made) == ["", "ended", "ended"]
    assert "not begun: weights" in capsys.readouterr().out
    again = matrix()
    assert again.run(60) == []
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_step_is_stopped_when_the_budget_ends_and_nothing_of_it_stays(matrix):
    matrix.plays["transformers"] = "hang"
    made, start = matrix(LIST.replace("weights", "# weights")), time.monotonic()
    left = made.run(1.5)
    assert time.monotonic() - start < 15 and states(made) == ["stopped", ""] and len(left) == 2
    # A zombie has ended; whoever adopts orphans (`neighbours.adopt_orphans`) has not looked after it yet.
    running = [c for c in psutil.Process().children(recursive=True) if c.status() != psutil.STATUS_ZOMBIE]
    assert not [c for c in running if "sleep" in c.name()]
    again = matrix(LIST.replace("weights", "# weights"))
    again.run(1.5)
    assert states(again)[0] == "failed"  # stopped twice: the rest gets its turn
    again.run(60)
    assert states(again) == ["failed", "ended"]


def test_a_step_that_took_the_machine_down_with_it_is_tried_once_more(matrix, tmp_path):
    made = matrix()
    made._keep(made.steps[1], "begun", 0.0, "the call ended before it did", 1)
    again = matrix()
    assert again.known[again.steps[1].name]["state"] == "begun" and again.steps[1] in again.left()


def test_repeats_are_whole_rounds_with_numbers_of_their_own(matrix):
    made = matrix(repeats=3)
    assert [(step.notebook, step.n) for step in made.steps] == [
        ("weights", 1), *[("latency", n) for n in (1, 1, 2, 2, 3, 3)]
    ]  # fmt: skip
    identifiers = {made._identifier(step, made._parameters(step)) for step in made.steps[1:]}
    assert len(identifiers) == 6 and all("h100-80gb-hbm3" in one for one in identifiers)


def test_the_fastest_are_those_with_the_highest_median(matrix, monkeypatch):
    import pandas as pd

    made = matrix(
        LIST
        + "batching backend=fastest:2 model=shape:llama-2-7b\nbatching backend=fastest:3 model=shape:llama-2-7b\n"
    )
    runs = pd.DataFrame(
        {"backend": ["transformers"] * 3 + ["ctranslate2"], "option": ["bfloat16"] * 3 + ["float16"],
         "output_tokens_per_s": [10, 11, 400, 90]}
    )  # fmt: skip
    monkeypatch.setattr(store, "load", lambda files: runs)
    chosen = made._parameters(made.steps[3])
    assert (chosen["backend"], chosen["option"]) == ("transformers", "bfloat16")
    made.run(90)
    assert made.known[made.steps[4].name]["reason"].startswith("Only 2 engines of this list")


def test_a_served_run_and_the_roofs_have_their_own_names(matrix):
    made = matrix(
        "hardware seconds=4\nlatency backend=vllm server=true option=bfloat16 model=shape:llama-2-7b\n"
    )
    first, second = (made._identifier(step, made._parameters(step)) for step in made.steps)
    assert first.startswith("hardware/roofs-h100") and second.startswith(
        "vllm/served-shape-llama-2-7b-bfloat16"
    )


@pytest.mark.parametrize("line", ["latencies backend=vllm", "latency backend", "latency expect_s=soon"])
def test_a_line_that_cannot_be_read_is_named(tmp_path, line):
    file = tmp_path / "list.txt"
    file.write_text(f"\n{line}\n")
    with pytest.raises(ValueError, match="line 2"):
        gpu_matrix.read(file)


def test_the_list_of_this_repository_names_what_exists():
    from bench import backends

    for step in gpu_matrix.read(gpu_matrix.LIST):
        parameters = dict(step.parameters)
        if parameters.get("option"):
            backends.option(backends.get(parameters["backend"]), parameters["option"], "cuda")
        if step.notebook != "weights":
            notebook = json.loads((gpu_matrix.ROOT / "notebooks" / f"{step.notebook}.ipynb").read_text())
            cell = next(c for c in notebook["cells"] if "parameters" in c["metadata"].get("tags", []))
            assert all(f"{name} = " in "".join(cell["source"]) for name in parameters), step


def test_a_word_that_does_not_exist_is_an_error():
    command = [sys.executable, "-m", "bench.workflow.gpu_matrix", "bugdet=3"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode and "Did you mean 'budget'?" in done.stderr
