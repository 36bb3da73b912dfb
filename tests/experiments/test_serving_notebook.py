"""serving.ipynb as a reader runs it: a server of known speed, one that is running already, and everything that can go wrong or be mistyped."""

import json
import os
import re
import subprocess
import sys

import nbformat
import pytest
from builders import serving_rows
from commands import execute
from fake import ITL_S, TTFT_S

from bench.analysis import levels as levels_analysis
from bench.experiments import serving
from bench.instrument.load import schedule
from bench.observations import gates, store
from bench.paths import ROOT

SMALL = {"concurrency": "[1,4]", "request_rates": "10", "requests": 12, "lengths": "alpaca", "scale": 0.5}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A folder with one run, as a reader makes it."""
    folder = tmp_path_factory.mktemp("served")
    execute("serving", folder / "out.ipynb", {"backend": "fake", "results": folder, **SMALL})
    return folder


@pytest.mark.timing
def test_every_request_has_its_row_and_the_times_of_the_schedule(served):
    requests = store.load(folder=served, experiment="serving")
    assert (
        len(requests) == 36
        and (requests["error"] == "").all()
        and (requests["output_tokens"] == requests["max_new_tokens"]).all()
    )
    assert requests["request"].is_unique and requests["prompt_tokens"].min() >= schedule.HEAD_TOKENS
    assert requests["ttft_s"].median() == pytest.approx(TTFT_S, abs=0.003)
    assert requests["tpot_s"].median() == pytest.approx(ITL_S, rel=0.05)
    assert requests["mbu"].isna().all(), "how many requests a server's step serves is its own affair"
    closed, opened = requests[requests["concurrency"].notna()], requests[requests["request_rate"].notna()]
    assert sorted(closed["concurrency"].unique()) == [1, 4] and list(opened["request_rate"].unique()) == [10]


@pytest.mark.timing
def test_all_levels_ask_for_the_same_lengths_with_other_prompts(served):
    requests = store.load(folder=served, experiment="serving")
    sizes = [
        tuple(level["prompt_tokens"])
        for _, level in requests.groupby(["concurrency", "request_rate"], dropna=False)
    ]
    assert len(set(sizes)) == 1 and len(sizes) == 3


@pytest.mark.timing
def test_the_sidecar_says_how_the_client_fared_and_the_notebook_draws(served):
    (path,) = store.files(served)
    _, sidecar = store.read(path)
    limits = [server["requests_at_once"] for server in sidecar["settings"]["servers"]]
    assert limits == [4, "the engine's own limit"], "a server for the closed loops, one for the arrivals"
    assert sidecar["settings"]["prefix_cache_trial"]["cached"] is False
    assert [about["level"] for about in sidecar["client"]] == ["1 at once", "4 at once", "10 requests/s"]
    assert all(
        about["kernel_stamps"] and about["peak_memory_bytes"] > 0 and about["cpu_s"] > 0
        for about in sidecar["client"]
    )
    executed = nbformat.read(served / "out.ipynb", as_version=4)
    assert any("image/svg+xml" in o.get("data", {}) for c in executed.cells for o in c.get("outputs", []))


@pytest.mark.timing
def test_four_at_once_write_faster(served):
    levels = levels_analysis.levels(store.load(folder=served)).set_index("concurrency")
    assert levels.loc[4.0, "output_tokens_per_s"] > 2 * levels.loc[1.0, "output_tokens_per_s"], (
        "four times, less what uneven lengths leave empty"
    )


@pytest.mark.check
@pytest.mark.timing
def test_a_saturated_server_ends_the_climb(cells, tmp_path, capsys):
    """Two requests cannot fill more than two places: 4 and 8 give no more than 2."""
    trace = tmp_path / "trace.csv"
    trace.write_text("prompt_tokens,new_tokens\n" + "16,4\n" * 12)
    climb = {
        "lengths": str(trace),
        "request_rates": "none",
        "concurrency": "2 4 8 16 32",
        "scale": 1.0,
        "requests": 2,
    }
    levels = levels_analysis.levels(cells("serving", backend="fake", **climb)["observed"])
    words = capsys.readouterr().out
    assert "Saturated at 16 at once" in words and "Left out: 32 at once" in words and len(levels) == 4


@pytest.mark.timing
def test_a_server_elsewhere_with_a_prefix_cache_is_refused(cells, tmp_path, running):
    parameters = {"backend": "http", "url": f"{running}/fault/prefix-cache", "request_rates": "none"}
    with pytest.raises(gates.Refused, match="answers from a prefix cache and does not report it"):
        cells("serving", **SMALL | parameters)
    assert not list(tmp_path.rglob("*.csv"))


def loops(kind, *values):
    """A Load that has come to the first of the levels `values`, without a server."""
    load = object.__new__(serving.Load)
    load.levels = [schedule.Level(kind, value, 8) for value in values]
    load.before, load.done, load.now = {}, set(), load.levels[0]
    return load


def test_a_level_without_an_answer_ends_the_climb(capsys):
    """A server that hangs or has died is not asked by every level that is left."""
    load = loops("closed", 1, 4, 8)
    load.note(serving_rows({1: (0.05, 0.01)}, failed=8))
    assert load.done == {"closed"}
    said = capsys.readouterr().out
    assert "No request was answered" in said and "ConnectionResetError: reset" in said
    assert f"Left out: {load.levels[1]}, {load.levels[2]}." in said
    alive = loops("closed", 1, 4, 8)
    alive.note(serving_rows({1: (0.05, 0.01)}, failed=7))
    assert alive.done == set()


@pytest.mark.check
@pytest.mark.timing
def test_arrivals_are_replayed(cells, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("at_s,prompt_tokens,new_tokens\n5,16,4\n5.1,20,5\n5.4,24,6\n")
    replay = {"lengths": str(trace), "arrivals": "trace", "concurrency": "none", "scale": 1.0}
    requests = cells("serving", backend="fake", **SMALL | replay)["observed"].sort_values("request")
    assert list(requests["prompt_tokens"]) == [16, 20, 24] and list(requests["max_new_tokens"]) == [4, 5, 6]
    assert list((requests["sent_s"] - requests["sent_s"].iloc[0]).round(2)) == pytest.approx(
        [0, 0.1, 0.4], abs=0.02
    )


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (
            "int8",
            "Server and client disagree on token counts",
        ),  # it counts one too many: rows with errors, and no run
        ("broken", "unrecognized arguments: --no-such-option"),  # it does not start: its last words
    ],
)
def test_a_server_that_miscounts_or_does_not_start_gives_no_run(cells, tmp_path, option, words):
    with pytest.raises(Exception, match=re.escape(words)):
        cells("serving", backend="fake", option=option, **SMALL)
    assert not list(tmp_path.rglob("*.csv"))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"backend": "ctranslate2"}, "has no serve(), which this experiment needs. These have: "),
        ({"concurrency": "1 two"}, "Parameter concurrency must be whole numbers"),
        ({"request_rates": "0"}, "Parameter request_rates must be numbers above 0"),
        ({"percentile": 95}, "Parameter percentile must be one of 90, 99, not 95"),
        ({"arrivals": "poison"}, "Did you mean 'poisson'"),
        ({"lengths": "sharegtp"}, "Did you mean 'sharegpt'"),
        ({"lengths": "nowhere.csv"}, "cannot be read"),
        ({"arrivals": "trace", "lengths": "alpaca"}, "cannot be read as a CSV of requests"),
        ({"concurrency": "none", "request_rates": "none"}, "There is nothing to do"),
        ({"backend": "http"}, "needs the address of a running server"),
        ({"backend": "http", "url": "http://somewhere.invalid:1"}, "Say what the server runs on"),
    ],
)
def test_what_is_mistyped_stops_with_a_sentence(cells, tmp_path, parameters, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        cells("serving", **{"backend": "fake"} | parameters)
    assert not list(tmp_path.rglob("*.csv"))


@pytest.fixture(scope="module")
def running():
    """A server that runs already, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.instrument.reference_server"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ,
    )
    yield process.stdout.readline().strip()
    process.kill()


@pytest.mark.check
def test_a_gpu_s_server_elsewhere_is_measured_from_a_machine_without_one(tmp_path, running):
    """Nothing of that GPU can be read here: no probe, no clocks, no memory, and none of this machine's instead."""
    named = {"backend": "http", "url": running, "gpu": "h100", "concurrency": "2", "request_rates": "none"}
    execute("serving", tmp_path / "out.ipynb", {"results": tmp_path, **SMALL, **named})
    requests = store.load(folder=tmp_path)
    assert (requests["gpu"] == "h100").all() and (requests["error"] == "").all()
    assert requests[["peak_memory_bytes", "mbu", "bandwidth_bytes_per_s"]].isna().all(axis=None)
    sidecar = json.loads(next(tmp_path.glob("http/*.json")).read_text())
    assert sidecar["settings"]["servers"][0]["served_model"]
    assert sidecar["bandwidth_probes_bytes_per_s"] == [] and "gpu_before" not in sidecar["machine"]


@pytest.mark.check
@pytest.mark.parametrize("option", ["completions", pytest.param("chat", marks=pytest.mark.check)])
def test_a_running_server_is_measured_and_its_token_is_written_nowhere(tmp_path, running, option):
    secret = "hf_notforthelog"
    parameters = {
        "backend": "http",
        "option": option,
        "url": running,
        "concurrency": "2",
        "request_rates": "none",
    }
    execute(
        "serving",
        tmp_path / "out.ipynb",
        {"results": tmp_path, **SMALL, **parameters},
        BENCH_API_TOKEN=secret,
    )
    requests = store.load(folder=tmp_path)
    assert (requests["head_tokens"] == schedule.HEAD_TOKENS).all()
    assert len(requests) == 12 and (requests["error"] == "").all() and (requests["backend"] == "http").all()
    for file in [f for f in tmp_path.rglob("*") if f.is_file()]:
        assert secret not in file.read_text(), file.name
    assert json.loads(next(tmp_path.glob("http/*.json")).read_text())["parameters"]["url"] == running
