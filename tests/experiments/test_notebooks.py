"""The notebooks through papermill, as a reader runs them: a fake engine of known speed, and everything that can be mistyped."""

import json
import re
import signal
import subprocess
import time

import nbformat
import pandas as pd
import pytest
from builders import make_rows, write_run
from commands import BIN, execute, run_cells
from fake import ANSWER, ITL_S, TTFT_S

from bench import backends, inputs
from bench.experiments import notebook
from bench.machine import gpu
from bench.observations import schema, store
from bench.paths import ROOT

pytestmark = pytest.mark.early

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def refused(cells, words, notebook="latency", **parameters):
    with pytest.raises(Exception, match=re.escape(words)):
        cells(notebook, **parameters)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with one run, as a reader makes it."""
    folder = tmp_path_factory.mktemp("measured")
    execute("latency", folder / "out.ipynb", {"results": folder, "backend": "fake", "max_new_tokens": 50})
    return folder


@pytest.mark.timing
def test_the_measured_times_are_those_of_the_schedule(measured):
    requests = store.load(folder=measured)
    assert len(requests) == 9 and (requests["error"] == "").all() and (requests["output_tokens"] == 50).all()
    assert requests["ttft_s"].median() == pytest.approx(TTFT_S, abs=0.002)
    assert requests["tpot_s"].median() == pytest.approx(ITL_S, rel=0.02)
    assert requests["itl_p50_s"].median() == pytest.approx(ITL_S, rel=0.05)
    assert (requests["sent_s"].diff().dropna() > requests["e2e_s"].iloc[0] * 0.9).all()


@pytest.mark.timing
def test_rows_sidecar_and_notebook_say_where_they_came_from(measured):
    (path,) = store.files(measured)
    rows, sidecar = store.read(path)
    assert sidecar["parameters"]["backend"] == "fake" and sidecar["packages"]["papermill"]
    assert len(sidecar["bandwidth_probes_bytes_per_s"]) == 10
    assert ANSWER in rows[0]["answer"]
    executed = nbformat.read(measured / "out.ipynb", as_version=4)
    assert any(
        "image/png" in o.get("data", {}) or "image/svg+xml" in o.get("data", {})
        for c in executed.cells
        for o in c.get("outputs", [])
    )


@pytest.mark.check
@pytest.mark.timing
def test_a_measured_run_is_kept_and_the_reader_is_told(measured):
    """Through papermill: what a cell raises ends the command, and its sentence is the last thing that a reader sees."""
    (path,) = store.files(measured)
    before = path.read_bytes()
    again = {"results": measured, "backend": "fake", "run": 1}
    done = execute("latency", measured / "again.ipynb", again, check=False)
    assert done.returncode != 0 and "has been measured already" in done.stderr and path.read_bytes() == before


@pytest.mark.check
def test_a_second_run_gets_the_next_number(cells, tmp_path):
    for _ in range(2):
        cells("latency", backend="fake", max_new_tokens=5)
    assert [path.stem[-2:] for path in store.files(tmp_path)] == ["-1", "-2"]


def test_a_failing_request_costs_only_its_row(cells):
    requests = cells("latency", backend="fake", option="broken", max_new_tokens=5)["observed"]
    assert list(requests["error"] != "") == [False, True] + [False] * 7
    assert requests["error"].iloc[1] == "MemoryError: no room for the KV cache"


def test_an_engine_that_cannot_stream_has_no_ttft(cells):
    requests = cells("latency", backend="fake", option="mute", max_new_tokens=5)["observed"]
    assert requests["ttft_s"].isna().all() and (requests["e2e_s"] > 0).all()


MISTYPED = [
    ({"backend": "ctranslat2"}, "Did you mean 'ctranslate2'"),
    ({"bakend": "x"}, "Did you mean 'backend'"),
    ({"backend": "fake", "option": "int9"}, "Did you mean 'int8'"),
    ({"backend": "fake", "model": "smolm2"}, "Did you mean 'smollm2-135m'"),
    ({"backend": "fake", "gpu": "h200"}, "not 'h200'"),
    ({"backend": "fake", "threads": "many"}, "must be a int such as 0"),
    ({"backend": "fake", "threads": 4096}, "threads must be between 1 and"),
    pytest.param(
        {"backend": "fake", "option": "short", "max_new_tokens": 5},
        "the engine gave 4 tokens where 5",
        marks=pytest.mark.check,
    ),
    ({"backend": "fake", "option": "impossible", "max_new_tokens": 5}, "above 1"),
]


@pytest.mark.parametrize(("parameters", "words"), MISTYPED)
def test_what_is_mistyped_or_impossible_stops_with_a_sentence(cells, tmp_path, parameters, words):
    refused(cells, words, **parameters)
    assert not list(tmp_path.rglob("*.csv"))


@pytest.mark.check
@pytest.mark.parametrize(
    ("parameters", "words"),
    [({"bakend": "x"}, "Did you mean 'backend'"), ({"threads": "many"}, "must be a int such as 0")],
)
def test_papermill_stops_with_the_same_sentence(tmp_path, parameters, words):
    """What papermill itself reads: names, of which it only warns, and values, whose type it guesses."""
    done = execute("latency", tmp_path / "out.ipynb", {"results": tmp_path} | parameters, check=False)
    assert done.returncode != 0 and words in done.stderr and not list(tmp_path.rglob("*.csv"))


def test_an_engine_that_is_not_installed_says_how_to_install_it(cells, tmp_path, monkeypatch):
    (tmp_path / "elsewhere.py").write_text('from bench.backends.fake import *\nENVIRONMENT = "elsewhere"\n')
    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path)])
    refused(cells, "make study ENGINES=elsewhere", backend="elsewhere")


def test_no_cuda_is_said_in_a_sentence(cells, tmp_path):
    if gpu.has_cuda():
        pytest.skip("there is a CUDA device")
    refused(cells, "There is no CUDA device here", device="gpu")
    assert not list(tmp_path.rglob("*.csv"))


@pytest.mark.check
@pytest.mark.timing
def test_hardware_measures_roofs(tmp_path):
    execute("hardware", tmp_path / "out.ipynb", {"results": tmp_path, "seconds": 1})
    (file,) = (tmp_path / "hardware").glob("roofs-*.csv")
    roofs = pd.read_csv(file)
    assert {"read_bandwidth", "gemm_float32"} <= set(roofs["roof"]) and (roofs["value"] > 1e8).all()


def test_figures_come_from_the_notebook_alone(observations, tmp_path):
    parameters = {"figure": "latency", "results": observations, "out": tmp_path / "f"}
    execute("figure", tmp_path / "o.ipynb", parameters)
    svg = (tmp_path / "f" / "latency.svg").read_text()
    assert "papermill notebooks/figure.ipynb" in svg and "tokens/s" in svg
    assert (observations / "tables" / "latency.csv").exists()


def test_a_reader_draws_two_columns_of_a_table(tmp_path):
    asked = {"table": "latency", "x": "ttft_s", "y": "output_tokens_per_s", "hue": "option"}
    asked |= {"where": "model == 'smollm2-135m' and backend == 'llamacpp'", "out": str(tmp_path)}
    run_cells("figure", asked)
    svg = (tmp_path / "latency-ttft_s-output_tokens_per_s.svg").read_text()
    assert ">TTFT, ms<" in svg and ">Q4_0<" in svg and "int8" not in svg
    with pytest.raises(ValueError, match="Unknown column 'ttft'. Did you mean 'ttft_s'"):
        run_cells("figure", asked | {"x": "ttft"})


@pytest.mark.check
def test_figures_of_the_committed_runs_need_no_engine(tmp_path):
    committed = str(ROOT / "_llama-inference")
    run_cells("figure", {"figure": "latency ttft_prompt mlc", "results": committed, "out": str(tmp_path)})
    for name in ("latency", "ttft_prompt", "mlc"):
        assert "llamacpp F16" in (tmp_path / f"{name}.svg").read_text()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("figure", "latncy", "Did you mean 'latency'"), ("figur", "latency", "Did you mean 'figure'")],
)
def test_a_mistyped_figure_is_named(cells, name, value, words):
    refused(cells, words, "figure", **{name: value})


def test_what_to_expect_is_shown_with_who_measured_it_and_the_nearest_rows(tmp_path, capsys):
    names = run_cells("expect", {"accelerator": "2x RTX 3090", "model": "Llama-3-70B", "context": 2000})
    said = capsys.readouterr().out
    assert said.startswith("2 × rtx-3090") and "tokens/s" in said and "https://" not in said
    found, shown = names["found"], names["SHOWN"]
    assert len(found.exact[shown]) and len(found.near[shown]) == 5
    stated = {
        "accelerator": "",
        "bandwidth_gb_per_s": 460,
        "model": "",
        "parameters_b": 8.5,
        "weights_format": "",
        "bits": 4.5,
        "engine": "",
    }
    assert run_cells("expect", stated)["found"].setup["bandwidth"] == 460e9
    with pytest.raises(ValueError, match="No accelerator is called"):
        run_cells("expect", {"accelerator": "a toaster"})


@pytest.mark.check
def test_what_to_expect_runs_through_papermill(tmp_path):
    execute(
        "expect",
        tmp_path / "out.ipynb",
        {"accelerator": "H100 SXM", "engine": "vllm", "weights_format": "bf16"},
    )
    executed = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    shown = [str(o) for c in executed.cells if c.cell_type == "code" for o in c.outputs]
    assert "per million output tokens" in shown[0] and len(shown) == 3
    # It asks for no run: it is no experiment of a study.
    assert "expect" not in inputs.study()["experiments"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_source_notebooks_are_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert all(not c.outputs and c.execution_count is None for c in code), "committed with outputs"
    assert "parameters" in code[0].metadata.get("tags", [])
    lines = [line for line in code[0].source.splitlines() if line.strip()]
    assert len(inputs.declared(code[0].source)) == len(lines), "one parameter per line"
    assert all("  # " in line for line in lines), "each parameter has a comment"
    assert notebook.cells[0].cell_type == "markdown" and "papermill notebooks/" in notebook.cells[0].source


def test_parameters_are_checked_against_the_first_cell():
    cells = ['a = 1  # x\nb = ""', "a = 2", "check"]
    assert notebook.parameters({"In": cells, "a": 2, "b": ""}) == {"a": 2, "b": ""}
    with pytest.raises(NameError, match="Unknown parameter 'c'"):
        notebook.parameters({"In": [cells[0], "# Parameters\nc = 2", "check"], "a": 1, "b": ""})
    with pytest.raises(TypeError, match="a must be a int"):
        notebook.parameters({"In": cells, "a": "2", "b": ""})


@pytest.mark.check
def test_a_killed_run_leaves_nothing_half_written(tmp_path, cells):
    executed = tmp_path / "out.ipynb"
    words = ["-p", "backend", "fake", "-p", "results", tmp_path]
    command = [BIN / "papermill", "notebooks/latency.ipynb", executed, *words]
    process = subprocess.Popen(
        [str(c) for c in command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.time() + 60
    while time.time() < deadline and not (executed.exists() and "loaded in" in executed.read_text()):
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(3)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["out.ipynb"]
    cells("latency", backend="fake", max_new_tokens=5)
    assert len(store.files(tmp_path)) == 1


@pytest.mark.timing
def test_made_up_runs_are_like_real_ones(measured, tmp_path):
    """The other tests rest on the made-up runs of builders.py: they must have the sidecar and columns of a real one."""
    (path,) = store.files(measured)
    made_up = json.loads(write_run(tmp_path).with_suffix(".json").read_text())
    assert set(schema.SIDECAR) <= set(made_up)
    assert set(schema.SIDECAR) <= set(json.loads(path.with_suffix(".json").read_text()))
    assert set(make_rows()[0]) <= set(schema.COLUMNS)
