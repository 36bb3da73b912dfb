"""The plan and the Snakefile: what is measured is skipped, what fails does not stop the rest, nothing overlaps."""

import os
import signal
import subprocess
import time

import pytest
from conftest import BIN, TESTS, run, write_run

from bench import backends, naming
from bench.machine import identity, neighbours
from bench.observations import store
from bench.paths import ROOT
from bench.workflow import plan as plan_workflow

FAKE_STUDY = ["--config", "engines=fake", "repeats=1", "experiments=latency"]


def plan(**overrides):
    return plan_workflow.plan(plan_workflow.load(overrides))


def test_first_repeats_of_all_engines_come_before_second_ones():
    runs = plan(repeats=2)
    assert [r.n for r in runs] == sorted(r.n for r in runs)
    assert len(runs) == len({r.id for r in runs}) > len(plan()) and runs[: len(plan())] == plan()


def test_the_cost_of_measuring_is_left_to_those_who_repeat():
    assert {r.experiment for r in plan()} == {"latency", "quality", "batching", "serving"}
    second = {r.experiment for r in plan(repeats=2) if r.n == 2}
    assert second == {"latency", "batching", "serving", "served", "overhead"}


def test_which_options_each_repeat_measures():
    offered = ["float32", "int8", "int4"]
    picked = [plan_workflow.measured_options(["first", "none", "all"], n, offered) for n in (1, 2, 3, 4)]
    assert picked == [["float32"], [], offered, offered]
    with pytest.raises(ValueError, match="Did you mean 'last'"):
        plan_workflow.measured_options(["lasst"], 1, offered)


def test_quality_waits_for_the_answers_that_it_scores():
    runs = plan(engines="ctranslate2", experiments="latency quality")
    quality = next(r for r in runs if r.experiment == "quality")
    assert [p.rpartition("/")[2] for p in quality.needs] == [
        r.id.rpartition("/")[2] + ".csv"
        for r in runs
        if r.experiment == "latency" and r.option == quality.option
    ]


def test_what_is_slow_is_measured_on_request_only():
    usual = {r.option for r in plan(engines="transformers", experiments="latency")}
    assert (
        "nf4" not in usual
        and "float32" in usual
        and "nf4" not in {r.option for r in plan() if r.backend == "transformers"}
    )
    assert {r.option for r in plan(engines="transformers/nf4", experiments="latency")} == {"nf4"}
    assert any(
        'ENGINES="transformers/bnb-int8 transformers/nf4"' in reason
        for reason in backends.absent("transformers", "cpu")
    )


def test_experiments_can_be_chosen():
    assert {r.experiment for r in plan(experiments="batching")} == {"batching"}
    with pytest.raises(ValueError, match="Did you mean 'batching'"):
        plan(experiments="baching")


def test_every_option_of_every_installed_engine_is_planned():
    latency = {(r.backend, r.option) for r in plan() if r.experiment == "latency"}
    for name in backends.names():
        assert {(name, option) for option in backends.ready(name, "cpu")} <= latency


def test_what_study_yaml_does_not_know_is_named():
    with pytest.raises(ValueError, match="Did you mean 'repeats'"):
        plan_workflow.load({"repeat": 3})
    with pytest.raises(ValueError, match="Did you mean 'ctranslate2'"):
        plan(engines="ctranslat2")


def test_the_device_is_held_by_one_at_a_time():
    lock = neighbours.take("test")
    code = "from bench import hardware; hardware.take('test', wait_s=0.1)"
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


def test_a_dry_run_knows_how_to_make_an_engine_s_own_environment(tmp_path):
    done = run(
        "snakemake",
        "-n",
        "--forcerun",
        "environment",
        "--config",
        "engines=transformers/gptq-int4",
        BENCH_RESULTS=tmp_path,
    )
    assert "rule environment" in done.stdout + done.stderr and "latency" in done.stdout + done.stderr


def test_one_option_can_be_asked_for_where_others_lie_already(tmp_path):
    for backend in ("transformers", "vllm"):
        write_run(tmp_path, backend=backend, option="bfloat16", gpu=identity.slug(), host=identity.host())
    done = snakemake(
        tmp_path,
        "-n",
        "--config",
        "engines=transformers/bfloat16 vllm/float32",
        "repeats=1",
        "experiments=latency",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# `broken` loses a request, not the run; `short` and `impossible` fail, and the rest must go on.
@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    start = time.perf_counter()
    done = snakemake(folder, *FAKE_STUDY, check=False)
    return folder, done, time.perf_counter() - start


def test_a_failure_does_not_stop_the_rest(studied):
    folder, done, _ = studied
    names = {p.name.split("-")[3] for p in store.files(folder)}
    assert done.returncode != 0
    assert {"float32", "int8", "broken", "mute"} <= names and not {"short", "impossible"} & names
    assert "FAILED fake/latency-smollm2-135m-short" in done.stdout and "the engine gave" in done.stdout
    assert "above 1" in done.stdout
    assert all(
        p.with_suffix(".ipynb").exists() and p.with_suffix(".json").exists() for p in store.files(folder)
    )
    assert (folder / "_site" / "index.html").exists() and (folder / "figures" / "latency.svg").exists()


def test_a_second_study_measures_nothing_again(studied):
    folder, _, first = studied
    before = {p: p.stat().st_mtime_ns for p in store.files(folder)}
    start = time.perf_counter()
    done = snakemake(folder, *FAKE_STUDY, check=False)
    assert {p: p.stat().st_mtime_ns for p in store.files(folder)} == before
    assert time.perf_counter() - start < first


@pytest.mark.parametrize(
    ("stop", "whom"), [(signal.SIGKILL, os.kill), (signal.SIGINT, os.killpg)], ids=["kill -9", "Ctrl-C"]
)
def test_an_interrupted_study_goes_on(tmp_path, stop, whom):
    own = {
        "BENCH_RESULTS": tmp_path,
        "BENCH_SITE": tmp_path / "_site",
        "BENCH_FIGURES": tmp_path / "figures",
        "FAKE_OPTIONS": "float32 int8",
    }
    environment = (
        os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"} | {k: str(v) for k, v in own.items()}
    )
    runs = [
        naming.run_id("latency", "fake", "smollm2-135m", option, identity.slug(), identity.host(), 1)
        for option in ("float32", "int8")
    ]
    command = [
        "snakemake",
        *FAKE_STUDY,
        "--",
        *(os.path.relpath(tmp_path / f"{run}.csv", ROOT) for run in runs),
    ]  # without figures and pages
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.time() + 120
    while time.time() < deadline and not store.files(tmp_path):
        time.sleep(0.2)
    time.sleep(3)  # into the middle of the second run
    whom(process.pid, stop)
    process.wait(60)
    time.sleep(3)  # what it had started ends with it
    kept = {p: p.read_bytes() for p in store.files(tmp_path)}
    assert len(kept) == 1 and not list(tmp_path.rglob("*.tmp"))
    after = run(*command, **own)
    assert len(store.files(tmp_path)) == 2 and all(p.read_bytes() == text for p, text in kept.items())
    assert "Another study" not in after.stderr


def test_two_studies_in_one_checkout_do_not_overlap(tmp_path):
    from filelock import FileLock

    with FileLock(ROOT / ".snakemake" / "study.lock"):
        done = snakemake(tmp_path, *FAKE_STUDY, check=False)
    assert done.returncode != 0 and "Another study runs in this checkout" in done.stdout + done.stderr
    assert not store.files(tmp_path)


def test_the_fake_engine_is_not_among_the_committed_ones():
    assert not (ROOT / "_llama-inference" / "fake").exists() and (TESTS / "backends" / "fake.py").exists()
