"""The plan and the Snakefile: what is measured is skipped, what fails does not stop the rest, nothing overlaps."""

import contextlib
import copy
import io
import os
import shutil
import signal
import subprocess
import sys
import time

import nbformat
import psutil
import pytest
from builders import make_rows, make_sidecar, write_run
from commands import BIN, cloned, run

from bench import backends, cells, inputs, paths
from bench.machine import identity, neighbours
from bench.observations import store
from bench.paths import ROOT
from bench.workflow import durations, progress, report, run_notebook
from bench.workflow import plan as plan_workflow

pytestmark = pytest.mark.early

FAKE_STUDY = ["--config", "engines=fake", "repeats=1", "experiments=latency"]


def plan(**overrides):
    return plan_workflow.plan(plan_workflow.load(overrides))


def test_first_repeats_of_all_engines_come_before_second_ones():
    runs = plan(repeats=2)
    assert [r.n for r in runs] == sorted(r.n for r in runs)
    assert len(runs) == len({r.id for r in runs}) > len(plan()) and runs[: len(plan())] == plan()


def test_the_first_question_is_the_latency_of_every_engine_with_two_options():
    runs = plan()
    assert {r.experiment for r in runs} == {"latency"} and {r.n for r in runs} == {1}
    offered = {name: backends.get(name).ready("cpu") for name in backends.names()}
    assert {r.backend for r in runs} == {name for name, own in offered.items() if own}
    assert all(len([r for r in runs if r.backend == name]) <= 2 for name in offered)
    assert all(
        (name, own[0]) in {(r.backend, r.option) for r in runs} for name, own in offered.items() if own
    )


def test_rounds_are_repeated_until_the_budget_is_spent(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    asked = {"engines": "fake", "budget": 4}
    first = plan(**asked)
    assert {(r.option, r.n) for r in first} == {("float32", 1), ("int8", 1)} and len(first) == 2, (
        "nothing is known yet, so one round, whole"
    )
    for r in first:  # each takes 60 s by its sidecar, and START_S: three of them fit in four minutes
        write_run(tmp_path, option=r.option, gpu=r.gpu, host=identity.host(), run=1)
    third = plan(**asked)[-1]
    assert plan(**asked)[:2] == first and third.n == 2 and len(plan(**asked)) == 3
    assert len(plan(**asked | {"budget": 0.1})) == 2, "the first round is always whole"
    write_run(tmp_path, option=third.option, gpu=first[0].gpu, host=identity.host(), run=2)
    assert all(r.measured for r in plan(**asked)), "a second study measures nothing again"
    assert {r.n for r in plan(**asked | {"repeats": 3})} == {1, 2, 3}, "REPEATS counts, whatever it takes"


def test_a_generous_plan_has_all_that_the_exact_one_will_have(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    config = plan_workflow.load({"engines": "fake", "budget": 4})
    assert set(plan_workflow.plan(config)) < set(plan_workflow.plan(config, generous=True))


def test_what_failed_in_the_first_round_is_not_tried_in_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    r = plan(engines="fake")[0]
    write_run(tmp_path, option=r.option, gpu=r.gpu, host=identity.host(), run=1)
    assert {r.option for r in plan(engines="fake", budget=60) if r.n > 1} == {r.option}


def beside_others(folder, planned, cores=0.14):
    """Write `planned` as a run whose neighbours kept so many cores busy."""
    rows = make_rows(option=planned.option, gpu=planned.gpu, host=identity.host(), run=planned.n)
    busy = make_sidecar(busy_cores={"others": cores, "steal": 0.0})
    return store.write(rows, busy, rows[0]["run_id"], folder, marked=True)


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A checkout in which nothing has been measured."""
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    monkeypatch.setattr(durations, "RESULTS", tmp_path)
    return tmp_path


def test_what_was_measured_beside_others_is_repeated_once(empty):
    asked = {"engines": "fake", "budget": 60}
    for r in plan(engines="fake"):
        beside_others(empty, r)
    assert {r.n for r in plan(**asked)} >= {1, 2}, "it is tried again in the next round"
    for r in plan(**asked):
        if r.n == 2 and r.option == "float32":
            beside_others(empty, r)
    assert {(r.option, r.n) for r in plan(**asked)} >= {("int8", 2), ("float32", 2)}
    assert ("float32", 3) not in {(r.option, r.n) for r in plan(**asked)}
    assert not any(r.measured for r in plan(**asked)), "a quiet machine measures all of them"


def test_a_study_ends_well_where_every_engine_s_default_has_a_row_clean_or_marked(empty):
    config = plan_workflow.load({"engines": "fake", "repeats": 1})
    runs = plan_workflow.plan(config)
    assert [r.option for r in report.without_row(config)] == ["float32"]
    (sentence,) = report.without_row_line(config)
    assert sentence.startswith("No row of 1: latency fake float32: ") and not report.is_new(config, 0)
    default = next(r for r in runs if r.option == "float32")
    since = time.time() - 1
    beside_others(empty, default)
    assert not report.without_row(config) and not report.without_row_line(config)
    assert report.is_new(config, since) and not default.measured and default.marked
    *each, words = report.beside_others(config)
    assert each == [f"SHARED {default.id}: others used 7% of the CPU."]
    assert words.startswith("1 of 2 runs shared the machine") and "quiet machine" in words
    assert "no measurement: others used 7% of the CPU" in report.row(default)
    assert [r.option for r in report.unmeasured(config)] == ["int8"]
    named = plan_workflow.load({"engines": "fake/float32 fake/int8", "repeats": 1})
    assert [r.option for r in report.without_row(named)] == ["int8"], "what is named has to have a row"
    write_run(empty, option="float32", gpu=default.gpu, host=identity.host(), run=1)
    assert not default.marked and not report.beside_others(config), "a clean run takes its place"


def test_nothing_is_drawn_where_nothing_is_new(empty, monkeypatch):
    config = plan_workflow.load({"engines": "fake", "repeats": 1})
    default = next(r for r in plan_workflow.plan(config) if r.option == "float32")
    write_run(empty, option="float32", gpu=default.gpu, host=identity.host(), run=1)
    later = time.time() + 60
    monkeypatch.setattr(report, "SITE", empty / "site")
    assert report.is_new(config, later), "there is no page yet"
    (empty / "site").mkdir()
    (empty / "site" / "index.html").touch()
    assert not report.is_new(config, later) and report.is_new(config, 0)


def test_what_a_run_waits_for_is_shown_once_and_in_a_log_at_once(tmp_path, monkeypatch):
    """A killed run has left the very sentence that the next one has to say."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written))  # as a file: nothing arrives unless flushed
    monkeypatch.setattr(neighbours, "FILE", tmp_path / "waiting.txt")
    (tmp_path / "waiting.txt").write_text("Waiting for an idle machine.")
    os.utime(tmp_path / "waiting.txt", (1, 1))
    waits = progress.Waits()
    monkeypatch.setattr(progress, "LOOK_S", 0.01)
    open_run = [r for r in plan(engines="fake") if not r.measured][:1]

    def look():
        progress._newly_ended(open_run, {r.id for r in open_run}, 0.1, waits)
        return [line for line in written.getvalue().decode().splitlines() if "Waited" not in line]

    assert look() == []
    with neighbours.Waiting() as shown:
        with contextlib.redirect_stdout(None):  # the run says it in its notebook
            shown.say("for an idle machine")
        assert look() == ["Waiting for an idle machine."]
    for name in ("browser", "browser"):  # each run of a study is disturbed
        neighbours.tell(f"{neighbours.WARNING}{name}")
        assert look()[1:] == ["Warning: browser"]


def test_options_that_are_named_are_all_measured():
    assert len(plan(engines="fake/float32 fake/int8 fake/mute")) == 3


def test_the_time_left_is_never_nothing_as_long_as_a_run_is_open(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    runs = plan(engines="fake")
    for r in runs:
        (ROOT / r.ended).unlink(missing_ok=True)
    assert progress.seconds_left(runs, 0) > progress.seconds_left(runs, 10**6) > 0
    assert progress.words(0.1) == "10 s" and progress.words(300) == "5 min"
    write_run(tmp_path, option=runs[0].option, gpu=runs[0].gpu, host=identity.host(), run=1)
    assert 0 < progress.seconds_left(runs, 0) < 2 * 120
    assert progress.stopped(
        plan_workflow.load({"engines": "fake", "repeats": 1}), time.time() + 60
    ).startswith("Stopped. Runs not started: 1; interrupted: 0.")


def test_the_cost_of_measuring_is_left_to_those_who_repeat():
    assert {r.experiment for r in plan(all=True)} == {"latency", "quality", "batching", "serving"}
    second = {r.experiment for r in plan(all=True, repeats=2) if r.n == 2}
    assert second == {"latency", "batching", "serving", "conversations"}


def test_what_takes_hours_or_runs_generated_code_is_measured_by_name_only(monkeypatch):
    """Neither is in any round of ALL=1; a score comes after the answers that it reads."""
    every = plan(all=True, repeats=3)
    assert not [run for run in every if run.experiment.startswith("humaneval")]
    with pytest.raises(ValueError, match="run_generated_code: true at it in study.yaml"):
        plan(engines="ctranslate2", experiments="humaneval-score")
    allowed = inputs.study()
    allowed["experiments"]["humaneval-score"]["parameters"]["run_generated_code"] = True
    monkeypatch.setattr(inputs, "study", lambda: copy.deepcopy(allowed))
    runs = plan(engines="ctranslate2", experiments="humaneval-score")
    assert {run.experiment for run in runs} == {"humaneval", "humaneval-score"}
    places = {(run.option, run.experiment): place for place, run in enumerate(runs)}
    for planned in runs:
        assert places[planned.option, "humaneval"] <= places[planned.option, planned.experiment]
    assert ("run_generated_code", True) in next(r for r in runs if r.experiment != "humaneval").parameters


def test_an_experiment_that_is_named_is_measured_in_one_round():
    """What a page says of an experiment that has not been measured (`make study EXPERIMENTS=served`)."""
    for name in ("served", "latency"):
        assert {r.experiment for r in plan(experiments=name) if r.n == 1} >= {name}


@pytest.mark.parametrize(
    "key, value", [("budget", "abc"), ("budget", "0"), ("repeats", "0"), ("repeats", "-1"), ("repeats", "x")]
)
def test_a_number_that_is_none_is_refused_with_what_may_stand_there(key, value):
    with pytest.raises(ValueError, match=f"{key} must be a.*number above 0.*make study {key.upper()}="):
        plan_workflow.load({key: value})


def test_which_options_each_repeat_measures():
    offered = ["float32", "Q4_0", "int8", "bfloat16-ngram"]
    rounds = {"first_round": "default", "later_rounds": "all"}
    assert [plan_workflow.measured_options(rounds, n, offered) for n in (1, 2, 3)] == [
        ["float32"],
        offered,
        offered,
    ]
    chosen = {
        word: plan_workflow.measured_options({"first_round": word}, 1, offered)
        for word in plan_workflow.CHOICES
    }
    assert chosen["fewest_bits"] == ["Q4_0"] and chosen["default_and_fewest_bits"] == ["float32", "Q4_0"]
    assert not chosen["none"]
    assert plan_workflow.measured_options(
        {"first_round": "default_and_fewest_bits"}, 1, ["F16", "F16-ngram"]
    ) == ["F16"]
    with pytest.raises(ValueError, match="Did you mean 'fewest_bits'"):
        plan_workflow.measured_options({"first_round": "fewest-bit"}, 1, offered)


def test_quality_waits_for_the_answers_that_it_scores(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)  # a checkout in which nothing has been measured
    runs = plan(engines="ctranslate2", experiments="quality")
    assert {r.experiment for r in runs} == {"latency", "quality"}, "what it reads is measured with it"
    for quality in (r for r in runs if r.experiment == "quality"):
        before = [r for r in runs if r.experiment == "latency" and r.option == quality.option]
        assert quality.needs == [r.ended for r in before] and runs.index(before[0]) < runs.index(quality)


def test_what_is_slow_is_measured_on_request_only():
    usual = {r.option for r in plan(engines="transformers", experiments="latency")}
    assert "nf4" not in usual and "float32" in usual
    assert "nf4" not in {r.option for r in plan(all=True) if r.backend == "transformers"}
    assert {r.option for r in plan(engines="transformers/nf4", experiments="latency")} == {"nf4"}
    assert any(
        'ENGINES="transformers/float32-draft transformers/bnb-int8 transformers/nf4"' in reason
        for reason in backends.get("transformers").absent("cpu")
    )


def test_experiments_can_be_chosen():
    assert {r.experiment for r in plan(experiments="batching")} == {"batching"}
    with pytest.raises(ValueError, match="Did you mean 'batching'"):
        plan(experiments="baching")


def test_every_option_of_every_installed_engine_is_planned():
    latency = {(r.backend, r.option) for r in plan(all=True) if r.experiment == "latency"}
    for name in backends.names():
        assert {(name, option) for option in backends.get(name).ready("cpu")} <= latency


def test_what_study_yaml_does_not_know_is_named():
    with pytest.raises(ValueError, match="Did you mean 'repeats'"):
        plan_workflow.load({"repeat": 3})
    with pytest.raises(ValueError, match="Did you mean 'ctranslate2'"):
        plan(engines="ctranslat2")


def test_the_device_is_held_by_one_at_a_time():
    lock = neighbours.take("test")
    code = "from bench.machine import neighbours; neighbours.take('test', wait_s=0.1)"
    assert "runs never overlap" in run("python", "-c", code, check=False).stderr
    lock.release()
    assert run("python", "-c", code).returncode == 0


def snakemake(folder, *arguments, check=True):
    return run(
        "snakemake",
        *arguments,
        check=check,
        BENCH_RESULTS=folder,
        BENCH_SITE=folder / "_site",
        BENCH_FIGURES=folder / "figures",
    )


def test_a_dry_run_shows_what_is_missing_and_writes_nothing(tmp_path):
    done = snakemake(tmp_path, "-n", *FAKE_STUDY)
    assert "latency" in done.stdout + done.stderr and not list(tmp_path.rglob("*.csv"))


@pytest.mark.check
def test_a_dry_run_knows_how_to_make_an_engine_s_own_environment(tmp_path):
    asked = ("-n", "--forcerun", "environment", "--config", "engines=transformers/gptq-int4")
    done = run("snakemake", *asked, BENCH_RESULTS=tmp_path)
    assert "rule environment" in done.stdout + done.stderr and "latency" in done.stdout + done.stderr


def drawn(copy, script, check=True):
    """The process that draws the figures of a clone, with this shell script for papermill."""
    shutil.copy(ROOT / "Snakefile", copy)
    drawing = copy.parent / "papermill"  # what the notebook draws is tested elsewhere
    drawing.write_text(f"#!/bin/sh\n{script}\n")
    drawing.chmod(0o755)
    first = os.pathsep.join([str(copy.parent), str(BIN), os.environ["PATH"]])
    asked = ("--config", "partial=True", "--forcerun", "figures", "--", "figures")
    return run("snakemake", *asked, check=check, cwd=copy, PATH=first, PYTHONPATH=copy)


@pytest.mark.check
def test_figures_are_drawn_in_a_clone_that_never_measured(tmp_path):
    copy = cloned(tmp_path / "clone")
    names = cells.choose("all")
    drawn(copy, "mkdir -p figures/own\n" + "\n".join(f"touch figures/own/{name}.svg" for name in names))
    assert (copy / "logs" / "figures.txt").exists()


@pytest.mark.check
def test_figures_of_before_stay_where_drawing_is_stopped(tmp_path):
    copy = cloned(tmp_path / "clone")
    before = {file.name: file.read_bytes() for file in (copy / "figures").iterdir()}
    assert drawn(copy, "exit 130", check=False).returncode
    assert before and {file.name: file.read_bytes() for file in (copy / "figures").iterdir()} == before


@pytest.mark.check
def test_one_option_can_be_asked_for_where_others_lie_already(tmp_path):
    for backend in ("transformers", "vllm"):
        write_run(tmp_path, backend=backend, option="bfloat16", gpu=identity.slug(), host=identity.host())
    asked = ("engines=transformers/bfloat16 vllm/float32", "repeats=1", "experiments=latency")
    snakemake(tmp_path, "-n", "--config", *asked)


# `broken` loses a request, not the run; `short` and `impossible` fail, and the rest must go on.
@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    start = time.perf_counter()
    done = snakemake(folder, *FAKE_STUDY, check=False)
    return folder, done, time.perf_counter() - start


@pytest.mark.check
def test_a_failure_does_not_stop_the_rest(studied):
    folder, done, _ = studied
    names = {p.name.split("-")[3] for p in store.files(folder)}
    assert done.returncode == 0, "the default option has a row"
    assert {"float32", "int8", "broken", "mute"} <= names and not {"short", "impossible"} & names
    assert "FAILED fake/latency-smollm2-135m-short" in done.stdout and "the engine gave" in done.stdout
    assert "above 1" in done.stdout
    assert all(
        p.with_suffix(".ipynb").exists() and p.with_suffix(".json").exists() for p in store.files(folder)
    )
    assert (folder / "_site" / "index.html").exists() and (
        folder / "figures" / "own" / "latency.svg"
    ).exists()


@pytest.mark.check
def test_a_second_study_measures_nothing_again(studied):
    folder, _, first = studied
    before = {p: p.stat().st_mtime_ns for p in store.files(folder)}
    start = time.perf_counter()
    snakemake(folder, *FAKE_STUDY, check=False)
    assert {p: p.stat().st_mtime_ns for p in store.files(folder)} == before
    assert time.perf_counter() - start < first


@pytest.mark.check
def test_a_study_forgets_what_failed_before_it_plans(tmp_path):
    """What failed in the study before is tried again, and those after it are planned as for a first time.

    It stands among the studies because nothing is forgotten while another one runs.
    """
    asked = {"engines": "fake/mute", "experiments": "latency", "repeats": 3}
    first = plan(**asked)[0]
    log = ROOT / paths.log(first.id).with_suffix(".txt")
    for mark in (log, ROOT / first.ended):
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    words = [f"{key}={value}" for key, value in asked.items()]
    planned = snakemake(tmp_path, "-n", "--config", *words, "--", "measure").stdout
    log.unlink()
    assert [first.id[:-1] + n in planned for n in "1234"] == [True, True, True, False]
    assert not (ROOT / first.ended).exists()


def wait_for(what, process, seconds=900):
    """Wait until `what()`; no test hangs on the speed of a machine, but a study that hangs ends."""
    deadline = time.time() + seconds
    while not what():
        assert time.time() < deadline and process.poll() is None, "the study ended or hangs"
        time.sleep(0.05)


def left(folder):
    """Processes that still work for the study in `folder`."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get("BENCH_RESULTS") == str(folder)
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
        except psutil.Error:
            pass
    return found


STOPS = [(signal.SIGKILL, os.kill), (signal.SIGTERM, os.kill), (signal.SIGINT, os.killpg)]


@pytest.mark.check
@pytest.mark.parametrize("second_runs", [False, True], ids=["before its job has ended", "in the next run"])
@pytest.mark.parametrize(("stop", "whom"), STOPS, ids=["kill -9", "SIGTERM", "Ctrl-C"])
def test_an_interrupted_study_goes_on(tmp_path, stop, whom, second_runs):
    """The first run's CSV is there; its job has not ended yet, or the second run is in its middle."""
    own = {
        "BENCH_RESULTS": tmp_path,
        "BENCH_SITE": tmp_path / "_site",
        "BENCH_FIGURES": tmp_path / "figures",
        "FAKE_OPTIONS": "float32 int8",
    }
    environment = (
        os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"} | {k: str(v) for k, v in own.items()}
    )
    runs = plan(engines="fake/float32 fake/int8", experiments="latency")
    for planned in runs:
        (ROOT / paths.log(planned.id)).unlink(missing_ok=True)
    command = ["snakemake", *FAKE_STUDY, "--", "measure"]  # without figures and pages
    with open(tmp_path / "words.txt", "w") as words:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, start_new_session=True, stdout=words, stderr=words
        )
    wait_for(lambda: store.files(tmp_path), process)
    if second_runs:
        # A round's order is shuffled: either of the two may be the first.
        first = store.files(tmp_path)[0].stem
        second = next(planned for planned in runs if first not in planned.id)
        wait_for((ROOT / paths.log(second.id)).exists, process)
    whom(process.pid, stop)
    process.wait(30)  # a run takes longer than its end may
    kept = {p: p.read_bytes() for p in store.files(tmp_path)}
    assert len(kept) == 1 and not list(tmp_path.rglob("*.tmp"))
    if stop != signal.SIGKILL:
        said = (tmp_path / "words.txt").read_text()
        assert said.count("Stopped. ") == 1 and f"Stopped. Runs not started: {int(not second_runs)}" in said
        assert "Error" not in said
    for deadline in range(30):  # what it had started ends with it
        if not left(tmp_path):
            break
        time.sleep(0.5)
    assert not left(tmp_path)
    after = run(*command, **own)
    assert len(store.files(tmp_path)) == 2 and all(p.read_bytes() == text for p, text in kept.items())
    assert all(p.with_suffix(".ipynb").exists() for p in store.files(tmp_path))
    assert "Another study" not in after.stderr


@pytest.mark.check
def test_a_run_whose_last_cell_fails_is_measured(tmp_path):
    """The plot comes after the CSV, so it can cost the plot only. A plot that succeeds is not kept."""
    cells = [
        "from IPython.display import SVG, display\ndisplay(SVG('<svg/>'))\n'a row'",
        "from llm_measured.core import files\nfrom bench.observations import store\nfiles.write_whole(store.path('fake/plot-1'), 'whole')",
        "raise RuntimeError('child failed:\\nTraceback\\nOSError: [Errno 28] No space left on device')",
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells], metadata=kernel)
    nbformat.write(notebook, tmp_path / "plot.ipynb")
    command = ("python", "-m", "bench.workflow.run_notebook", tmp_path / "plot.ipynb", "fake/plot-1")
    run(*command, BENCH_RESULTS=tmp_path)
    assert (tmp_path / "fake" / "plot-1.csv").read_text() == "whole"
    kept = tmp_path / "fake" / "plot-1.ipynb"
    cause = "OSError: [Errno 28] No space left on device"
    assert run_notebook.error(kept) == f"RuntimeError: child failed: {cause}"
    assert "image/" not in kept.read_text() and "a row" in "".join(kept.read_text().split("outputs", 1)[1])


def test_a_notebook_stopped_after_its_csv_is_kept_and_named(tmp_path, monkeypatch):
    """As it is found at the next start after Ctrl-C: shown, but no contribution, and what to do about it."""
    notebook = nbformat.v4.new_notebook(metadata={"papermill": {"end_time": None, "exception": None}})
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    monkeypatch.setattr(run_notebook, "ROOT", tmp_path)
    csv, log = store.path("fake/stopped-1"), tmp_path / paths.log("fake/stopped-1")
    for file in (csv, log):
        file.parent.mkdir(parents=True, exist_ok=True)
    csv.write_text("whole")
    nbformat.write(notebook, log)
    said = run_notebook.keep("fake/stopped-1")
    assert "cannot be contributed" in said and "rm fake/stopped-1.csv fake/stopped-1.json" in said
    assert csv.with_suffix(".ipynb").exists() and not log.exists()
    assert not run_notebook.keep("fake/stopped-1"), "said once"
    csv.with_suffix(".ipynb").unlink()
    log.write_text("")  # killed while it was written
    assert "cannot be contributed" in run_notebook.keep("fake/stopped-1")
    csv.with_suffix(".ipynb").unlink()
    notebook.metadata["papermill"]["end_time"] = "2026-11-26T23:00:00"
    nbformat.write(notebook, log)
    assert not run_notebook.keep("fake/stopped-1")


@pytest.mark.check
def test_two_studies_in_one_checkout_do_not_overlap(tmp_path):
    from filelock import FileLock

    with FileLock(ROOT / ".snakemake" / "study.lock"):
        done = snakemake(tmp_path, *FAKE_STUDY, check=False)
    assert done.returncode != 0 and "Another study runs in this checkout" in done.stdout + done.stderr
    assert not store.files(tmp_path)
