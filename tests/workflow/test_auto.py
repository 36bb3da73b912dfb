"""`REPEATS=auto`: runs are added until each interval is narrow or a budget is spent, and the end says which it was."""

import itertools

import pytest
from builders import make_rows, make_sidecar, write_serving, write_sweep
from commands import run

from bench import paths
from bench.analysis import repeats
from bench.machine import identity
from bench.observations import store
from bench.paths import ROOT
from bench.workflow import auto, plan, progress, report


def alone(test):
    """Not beside a whole study of another test: both keep marks of the fake engine's runs in one checkout."""
    return pytest.mark.check(pytest.mark.timing(test))


STEADY = (100.0, 100.4, 99.8, 100.2)
NOISY = (100.0, 160.0, 80.0, 130.0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    for each in itertools.chain(*plan.rounds(study("fake/float32 fake/int8"))):
        (ROOT / each.ended).unlink(missing_ok=True)
    return tmp_path


def study(engines="fake/float32", **overrides):
    return plan.load({"engines": engines, "experiments": "latency", "repeats": "auto"} | overrides)


def write(each, rate, folder, failed=False, **columns):
    """The CSV of one planned run at this rate, begun in its minute; its last request `failed`."""
    rows = make_rows(
        9, rate=rate, option=each.option, gpu=each.gpu, host=identity.host(), run=each.n, **columns
    )
    if failed:
        rows[-1] |= {"error": "RuntimeError: gone", "output_tokens": 0, "output_ids": "", "e2e_s": None}
        rows[-1] |= {"ttft_s": None}
    started = f"2026-01-01T{each.n:02d}:00:00+00:00"
    sidecar = make_sidecar(started=started, ended=f"2026-01-01T{each.n:02d}:02:00+00:00")
    store.write(rows, sidecar, each.id, folder)


def carry_out(config, folder, rates, **columns):
    """Measure what is planned, one run after the other, until nothing is; returns how many runs of each option."""
    for _ in range(200):
        todo = [each for each in plan.plan(config) if not each.measured]
        if not todo:
            return {
                key[2]: sum(each.measured for each in runs)
                for key, runs in auto.configurations(plan.rounds(config)).items()
            }
        assert set(todo) <= set(plan.plan(config, generous=True)), "what is needed has a job"
        each = todo[0]
        write(each, next(rates[each.option]), folder, **columns)
    raise AssertionError("it never ends")


def rates(**each):
    return {option: itertools.cycle(values) for option, values in each.items()}


@alone
def test_a_steady_one_ends_within_and_a_noisy_one_with_its_budget(folder):
    config = study("fake/float32 fake/int8", most_runs=10)
    runs = carry_out(config, folder, rates(float32=STEADY, int8=NOISY))
    assert runs == {"float32": repeats.FEWEST, "int8": 10}
    first, *words = report.repeated(config)
    steady, noisy = sorted(words)  # the plan's order is drawn anew in every checkout
    assert "within ± 3 % of the mean, at most 10 runs" in first
    assert "latency fake float32: 8 runs: ± " in steady and steady.endswith("within ± 3 %.")
    assert "latency fake int8: 10 runs: ± " in noisy and "budget of 10 runs is spent" in noisy
    assert plan.plan(config, generous=True) == plan.plan(config), "a second study has nothing to ask for"


def test_the_first_runs_are_whole_rounds(folder):
    runs = plan.plan(study("fake/float32 fake/int8"))
    for n in (1, 2):
        first, second = runs[2 * n - 2 : 2 * n]
        assert {first.option, second.option} == {"float32", "int8"} and first.n == second.n == n
    assert len(runs) == 2 * repeats.FEWEST
    assert len(plan.plan(study(), generous=True)) == 20


def test_failed_requests_end_it_and_it_is_not_ranked(folder):
    config = study()
    write(plan.plan(config)[0], 100.0, folder, failed=True)
    assert len(plan.plan(config)) == 1
    assert "failed requests" in report.repeated(config)[1] and "not ranked" in report.repeated(config)[1]


def marks(each):
    """What a job leaves whose run has no CSV."""
    return ROOT / each.ended, ROOT / paths.log(each.id).with_suffix(".txt")


def fail(each):
    for file in marks(each):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("RuntimeError: gone")


def forget(runs):
    for file in (file for each in runs for file in marks(each)):
        file.unlink(missing_ok=True)


def test_what_fails_at_once_is_not_tried_again_and_one_lost_run_is_made_good(folder):
    config = study()
    runs = plan.plan(config)
    try:
        fail(runs[0])
        assert plan.plan(config) == runs[:1] and "runs fail" in report.repeated(config)[1]
        forget(runs)
        write(runs[0], 100.0, folder)
        fail(runs[1])
        assert [each.n for each in plan.plan(config)] == list(range(1, 10)), "seven more, one of them lost"
        fail(runs[2])
        assert plan.plan(config) == runs[:3]
    finally:
        forget(runs)


@alone
def test_minutes_end_it_as_well(folder):
    config = study(budget=9)  # a run takes two minutes and what its start takes
    assert carry_out(config, folder, rates(float32=STEADY)) == {"float32": 4}
    assert report.repeated(config)[1].endswith("the budget of 9 min is spent before ± 3 % is reached.")
    assert study()["minutes"] is None, "the budget of the first question is none of this rule"
    assert "or 9 min, are spent" in progress.heading(config, plan.plan(config))


@alone
def test_runs_of_an_older_version_do_not_count(folder):
    config = study(most_runs=12)
    for each in plan.plan(config)[:2]:
        write(each, 200.0, folder)
    carry_out(config, folder, rates(float32=STEADY), backend_version="2.0")
    assert "8 runs: ± " in report.repeated(config)[1] and "within" in report.repeated(config)[1]


def test_sweeps_and_load_tests_end_with_their_widest_interval(tmp_path):
    for n in range(1, 4):
        write_sweep(tmp_path, run=n, overhead=0.002 * n)
        write_serving(tmp_path, {1: (0.1 * n, 0.01), 4: (0.1, 0.02)}, run=n, n=64)
    requests = store.load(folder=tmp_path)
    for name in ("batching", "serving"):
        table, keys = auto.compared(name, requests[requests["experiment"] == name])
        more, sentence = auto._ruled(table, keys, 3, 20)
        assert more == repeats.FEWEST - 3 and "3 runs: ± " in sentence
        assert sentence.startswith(("batch_size", "concurrency"))
    assert auto.compared("overhead", requests) is None


def test_repeats_are_a_number_or_a_rule():
    with pytest.raises(ValueError, match="auto or budget, not 'many'"):
        study(repeats="many")
    with pytest.raises(ValueError, match="at least 2"):
        study(most_runs=1)


def test_plain_studies_keep_to_their_budget():
    config = plan.load({})
    assert config["rounds"] is None and not config["auto"] and not report.repeated(config)
    assert "min are spent" in progress.heading(config, plan.plan(config))


@alone
def test_a_study_adds_runs_and_says_what_ended_it(tmp_path):
    words = ["engines=fake/int8", "experiments=latency", "repeats=auto", "most_runs=2"]
    own = {"BENCH_RESULTS": tmp_path, "BENCH_SITE": tmp_path / "_site", "FAKE_NEIGHBOURS": "minded by nobody"}
    for _ in range(2):  # the second time nothing is measured again
        run("snakemake", "--config", *words, "--", "measure", **own)
        assert len(store.files(tmp_path)) == 2
    ended = run("python", "-m", "bench.workflow.report", *words, **own).stdout
    assert "latency fake int8: 2 runs: ± " in ended and "budget of 2 runs is spent" in ended


@pytest.mark.check
def test_a_run_that_is_not_needed_any_more_is_not_begun(tmp_path, monkeypatch):
    """The generous plan has a job for it; its command looks at what is there, and says so to those after it."""
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    config = study("fake/int8")
    carry_out(config, tmp_path, rates(int8=STEADY))
    ninth = plan.rounds(config)[8][0]
    (ROOT / auto.enough(ninth)).unlink(missing_ok=True)
    words = ["engines=fake/int8", "experiments=latency", "repeats=auto"]
    command = ("python", "-m", "bench.workflow.plan", "in-budget", ninth.id, "false", "--", *words)
    assert run(*command, BENCH_RESULTS=tmp_path).returncode == 0
    assert (ROOT / auto.enough(ninth)).exists()
    store.path(plan.rounds(config)[7][0].id).unlink()
    eighth = plan.rounds(config)[7][0].id
    needed = run(*command[:4], eighth, *command[5:], check=False, BENCH_RESULTS=tmp_path)
    assert needed.returncode == 1, "it is begun, and false is what it runs"
    # A study of another test, which begins beside this one, forgets such marks of the fake engine as well.
    (ROOT / auto.enough(ninth)).unlink(missing_ok=True)
