"""The half hour of a GPU: order, budget, what fails, and where the next call goes on. The notebooks are played by shell commands."""

import json
import subprocess
import sys
import tarfile
import time

import psutil
import pytest

from bench.machine import devices
from bench.observations import store
from bench.workflow import bounded, gpu_matrix, run_notebook

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
        store,
        "path",
        lambda identifier, suffix=".csv": tmp_path / "runs" / f"{identifier.replace('/', '-')}{suffix}",
    )
    monkeypatch.setattr(run_notebook, "keep", lambda identifier: None)
    monkeypatch.setattr(run_notebook, "reason", lambda identifier: "OutOfMemoryError: no room")
    monkeypatch.setattr(gpu_matrix, "ROOT", tmp_path)
    monkeypatch.setattr(gpu_matrix, "_python", lambda *_: sys.executable)
    (tmp_path / "runs").mkdir()
    plays = {}
    popen = subprocess.Popen

    def played(command, **more):
        if command[0] in ("sleep", "sh"):
            return popen(command, **more)
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


@pytest.mark.check
def test_a_step_is_stopped_when_the_budget_ends_and_nothing_of_it_stays(matrix):
    matrix.plays["transformers"] = "hang"
    text = LIST.replace("weights", "# weights").replace("expect_s=0.5", "expect_s=1")
    made, start = matrix(text), time.monotonic()
    left = made.run(1.5)
    assert time.monotonic() - start < 15 and states(made) == ["stopped", ""] and len(left) == 2
    # A zombie has ended; whoever adopts orphans (`neighbours.adopt_orphans`) has not looked after it yet.
    running = [c for c in psutil.Process().children(recursive=True) if c.status() != psutil.STATUS_ZOMBIE]
    assert not [c for c in running if "sleep" in c.name()]
    again = matrix(text)
    again.run(1.5)
    assert states(again)[0] == "failed"  # stopped twice: the rest gets its turn
    again.run(60)
    assert states(again) == ["failed", "ended"]


def test_a_step_that_hangs_leaves_the_budget_to_the_others(matrix, capsys):
    matrix.plays["transformers"] = "hang"
    made, start = matrix(), time.monotonic()
    made.run(60)
    assert states(made) == ["ended", "failed", "ended"] and time.monotonic() - start < 15
    assert "it had not ended after 1 s, twice what it expects" in capsys.readouterr().out


def test_what_a_call_that_was_killed_left_behind_is_ended_by_the_next(matrix, tmp_path, capsys):
    """An engine's worker that outlived its call, and a process that has got the number of one that has not."""
    left, other = (subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(2))
    note = tmp_path / "state.running.json"
    note.write_text(json.dumps([[left.pid, psutil.Process(left.pid).create_time()], [other.pid, 1.0]]))
    matrix().run(60)
    assert not psutil.pid_exists(left.pid) and other.poll() is None and not note.exists()
    assert "ended 1 processes that an earlier call had left behind" in capsys.readouterr().out
    other.kill()
    other.wait()


def test_what_runs_is_noted_meanwhile(tmp_path):
    note = tmp_path / "state.running.json"
    seen = tmp_path / "seen"
    command = ["sh", "-c", f"sleep 1; cp {note} {seen}; echo $$ > {tmp_path / 'pid'}"]
    code, words = bounded.call(command, time.monotonic() + 20, tmp_path / "log.txt", note)
    assert (code, words) == (0, "none") and not note.exists()
    assert int((tmp_path / "pid").read_text()) in [pid for pid, _ in json.loads(seen.read_text())]


def test_the_archive_has_results_and_logs_after_every_step(matrix, tmp_path):
    matrix.plays["ctranslate2"] = "fail"
    made = matrix()
    made.archive = str(tmp_path / "out" / "results.tar.gz")
    (tmp_path / "out").mkdir()
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "why.txt").write_text("no room")
    made.run(60)
    with tarfile.open(made.archive) as tar:
        names = sorted(tar.getnames())
    run = made.known[made.steps[1].name]["run"].replace("/", "-")
    assert f"_llama-inference/runs/{run}.csv" in names and "logs/why.txt" in names
    assert not [name for name in names if "ctranslate2-latency" in name]
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["results.tar.gz"]


def test_a_budget_counts_from_where_the_script_began(matrix, monkeypatch, capsys):
    """Unpacking and installing came before, within the same time limit."""
    monkeypatch.setattr(gpu_matrix, "Matrix", lambda *_, **__: Played())
    monkeypatch.setattr(gpu_matrix, "read", lambda *_: [])
    monkeypatch.setattr(gpu_matrix.os, "chdir", lambda *_: None)
    monkeypatch.setenv("BENCH_STARTED", str(int(time.time()) - 100))
    gpu_matrix.main("budget=600")
    assert 495 < float(capsys.readouterr().out.split()[0]) <= 500


class Played:
    steps = ()

    def run(self, budget_s):
        print(budget_s)
        return []


def test_an_engine_that_is_not_there_is_named_with_its_fix(monkeypatch, tmp_path):
    from bench import backends

    monkeypatch.setattr(backends, "prefix", lambda *_: tmp_path / "venv")
    with pytest.raises(RuntimeError, match="vllm is not installed. Install and measure it with"):
        gpu_matrix._python("vllm", "cuda", "bfloat16")
    assert gpu_matrix._python(None) == sys.executable


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
