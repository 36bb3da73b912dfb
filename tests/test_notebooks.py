"""The notebooks through papermill, as a reader runs them: a fake engine of known speed, and everything that can be mistyped."""

import json

import nbformat
import pytest
from conftest import make_rows, run, write_run
from fake import ANSWER, ITL_S, TTFT_S

from bench.experiments import parameters as parameters_experiments
from bench.experiments import session
from bench.observations import schema, store
from bench.paths import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def latency(tmp_path, *more, check=True, **environment):
    parameters = [text for name, value in more for text in ("-p", name, value)]
    return run(
        "papermill",
        "notebooks/latency.ipynb",
        tmp_path / "out.ipynb",
        "-p",
        "results",
        tmp_path,
        *parameters,
        check=check,
        **environment,
    )


def failure(tmp_path, *more, notebook="notebooks/latency.ipynb"):
    parameters = [text for name, value in more for text in ("-p", name, value)]
    done = run("papermill", notebook, tmp_path / "out.ipynb", *parameters, check=False)
    assert done.returncode != 0
    assert not list(tmp_path.rglob("*.csv"))
    return done.stderr


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured")
    latency(folder, ("backend", "fake"), ("max_new_tokens", 50))
    return folder


def test_the_measured_times_are_those_of_the_schedule(measured):
    requests = store.load(folder=measured)
    assert len(requests) == 9 and (requests["error"] == "").all() and (requests["output_tokens"] == 50).all()
    assert requests["ttft_s"].median() == pytest.approx(TTFT_S, abs=0.002)
    assert requests["tpot_s"].median() == pytest.approx(ITL_S, rel=0.02)
    assert requests["itl_p50_s"].median() == pytest.approx(ITL_S, rel=0.05)
    assert (requests["sent_s"].diff().dropna() > requests["e2e_s"].iloc[0] * 0.9).all()


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


def test_a_second_run_gets_the_next_number_and_a_measured_one_is_kept(measured, tmp_path):
    (path,) = store.files(measured)
    before = path.read_bytes()
    done = latency(measured, ("backend", "fake"), ("run", 1), check=False)
    assert done.returncode != 0 and "has been measured already" in done.stderr and path.read_bytes() == before


def test_a_failing_request_costs_only_its_row(tmp_path):
    latency(tmp_path, ("backend", "fake"), ("option", "broken"), ("max_new_tokens", 5))
    requests = store.load(folder=tmp_path)
    assert list(requests["error"] != "") == [False, True] + [False] * 7
    assert requests["error"].iloc[1] == "MemoryError: no room for the KV cache"


def test_an_engine_that_cannot_stream_has_no_ttft(tmp_path):
    latency(tmp_path, ("backend", "fake"), ("option", "mute"), ("max_new_tokens", 5))
    requests = store.load(folder=tmp_path)
    assert requests["ttft_s"].isna().all() and (requests["e2e_s"] > 0).all()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ([("backend", "ctranslat2")], "Did you mean 'ctranslate2'"),
        ([("bakend", "x")], "Did you mean 'backend'"),
        ([("backend", "fake"), ("option", "int9")], "Did you mean 'int8'"),
        ([("backend", "fake"), ("model", "smolm2")], "Did you mean 'smollm2-135m'"),
        ([("backend", "fake"), ("device", "gpu")], "auto, cpu, cuda"),
        ([("backend", "fake"), ("gpu", "h200")], "not 'h200'"),
        ([("backend", "fake"), ("threads", "many")], "must be a int such as 0"),
        ([("backend", "fake"), ("threads", 4096)], "threads must be between 1 and"),
        (
            [("backend", "fake"), ("option", "short"), ("max_new_tokens", 5)],
            "the engine gave 4 tokens where 5",
        ),
        ([("backend", "fake"), ("option", "impossible"), ("max_new_tokens", 5)], "above 1"),
    ],
)
def test_what_is_mistyped_or_impossible_stops_with_a_sentence(tmp_path, parameters, words):
    where = [] if any(name == "bakend" for name, _ in parameters) else [("results", tmp_path)]
    assert words in failure(tmp_path, *parameters, *where)


def test_an_engine_that_is_not_installed_says_how_to_install_it(tmp_path):
    (tmp_path / "absent.py").write_text(
        'OPTIONS = {"float32": {}}\nDEVICES = ("cpu",)\nENVIRONMENT = "absent"\n'
    )
    done = latency(tmp_path, ("backend", "absent"), check=False, BENCH_BACKENDS=tmp_path)
    assert done.returncode != 0 and "make study ENGINES=absent" in done.stderr


def test_no_cuda_is_said_in_a_sentence(tmp_path):
    if session.hardware.has_cuda():
        pytest.skip("there is a CUDA device")
    assert "There is no CUDA device here" in failure(tmp_path, ("device", "cuda"))


def test_overhead_pairs_both_ways(tmp_path):
    run("papermill", "notebooks/overhead.ipynb", tmp_path / "out.ipynb", "-p", "backend", "fake", "-p", "results", tmp_path,
        "-p", "pairs", 2, "-p", "max_new_tokens", 10)  # fmt: skip
    requests = store.load(folder=tmp_path)
    assert list(requests["ttft_s"].isna()) == [True, False, False, True]


def test_hardware_measures_roofs(tmp_path):
    run(
        "papermill",
        "notebooks/hardware.ipynb",
        tmp_path / "out.ipynb",
        "-p",
        "seconds",
        1,
        "-p",
        "results",
        tmp_path,
    )
    roofs = store.load_roofs(tmp_path)
    assert {"read_bandwidth", "gemm_float32"} <= set(roofs["roof"]) and (roofs["value"] > 1e8).all()


def test_figures_come_from_the_notebook_alone(observations, tmp_path):
    run(
        "papermill",
        "notebooks/figure.ipynb",
        tmp_path / "o.ipynb",
        "-p",
        "figure",
        "latency",
        "-p",
        "results",
        observations,
        "-p",
        "out",
        tmp_path / "f",
    )
    svg = (tmp_path / "f" / "latency.svg").read_text()
    assert "papermill notebooks/figure.ipynb" in svg and "tokens/s" in svg
    assert (tmp_path / "f" / "latency.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["roofline", "frontier", "quality"])
def test_figures_of_the_committed_runs_need_no_engine(tmp_path, name):
    committed = ROOT / "_llama-inference"
    run(
        "papermill",
        "notebooks/figure.ipynb",
        tmp_path / "o.ipynb",
        "-p",
        "figure",
        name,
        "-p",
        "results",
        committed,
        "-p",
        "out",
        tmp_path,
    )
    assert "llamacpp F16" in (tmp_path / f"{name}.svg").read_text()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("figure", "latncy", "Did you mean 'latency'"), ("figur", "latency", "Did you mean 'figure'")],
)
def test_a_mistyped_figure_is_named(tmp_path, name, value, words):
    assert words in failure(tmp_path, (name, value), notebook="notebooks/figure.ipynb")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_source_notebooks_are_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert all(not c.outputs and c.execution_count is None for c in code), "committed with outputs"
    assert "parameters" in code[0].metadata.get("tags", [])
    lines = [line for line in code[0].source.splitlines() if line.strip()]
    assert len(parameters_experiments.declared(code[0].source)) == len(lines), "one parameter per line"
    assert all("  # " in line for line in lines), "each parameter has a comment"
    assert notebook.cells[0].cell_type == "markdown" and "papermill notebooks/" in notebook.cells[0].source


def test_parameters_are_checked_against_the_first_cell():
    cells = ['a = 1  # x\nb = ""', "a = 2", "check"]
    assert parameters_experiments.parameters({"In": cells, "a": 2, "b": ""}) == {"a": 2, "b": ""}
    with pytest.raises(NameError, match="Unknown parameter 'c'"):
        parameters_experiments.parameters({"In": [cells[0], "c = 2", "check"], "a": 1, "b": ""})
    with pytest.raises(TypeError, match="a must be a int"):
        parameters_experiments.parameters({"In": cells, "a": "2", "b": ""})


def test_a_killed_run_leaves_nothing_half_written(tmp_path):
    import signal
    import subprocess
    import time

    from conftest import BIN

    command = [
        BIN / "papermill",
        "notebooks/latency.ipynb",
        tmp_path / "out.ipynb",
        "-p",
        "backend",
        "fake",
        "-p",
        "results",
        tmp_path,
    ]
    process = subprocess.Popen(
        [str(c) for c in command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.time() + 60
    while time.time() < deadline and "loaded in" not in (
        (tmp_path / "out.ipynb").read_text() if (tmp_path / "out.ipynb").exists() else ""
    ):
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(3)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["out.ipynb"]
    latency(tmp_path, ("backend", "fake"), ("max_new_tokens", 5))
    assert len(store.files(tmp_path)) == 1


def test_made_up_runs_are_like_real_ones(measured, tmp_path):
    """The other tests rest on conftest's made-up runs: they must have the sidecar and columns of a real one."""
    (path,) = store.files(measured)
    made_up = json.loads(write_run(tmp_path).with_suffix(".json").read_text())
    assert set(schema.SIDECAR) <= set(made_up) and set(schema.SIDECAR) <= set(
        json.loads(path.with_suffix(".json").read_text())
    )
    assert set(make_rows()[0]) <= set(schema.COLUMNS)
