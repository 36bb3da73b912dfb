"""make try: one engine, measured once with short answers, apart from the study, marked as what it is; and the
variables of make."""

import shutil
import subprocess

import pytest
from builders import make_rows, make_sidecar

from bench.backends.common import checkpoints
from bench.machine import identity
from bench.observations import store
from bench.paths import ROOT
from bench.workflow import costs, plan, trial

MODELS = ["smollm2-135m", "shape:llama-2-7b"]


def runs(**overrides):
    return trial.runs(plan.load(overrides))


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    return tmp_path


def written(run, cores=0.0):
    """Write what `run` would have measured, beside others that kept so many cores busy."""
    rows = make_rows(option=run.option, gpu=run.gpu, host=identity.host(), run=run.n)
    busy = make_sidecar(busy_cores={"others": cores, "steal": 0.0})
    store.write(rows, busy, rows[0]["run_id"], scratch=True)


def test_a_trial_is_of_one_engine_and_its_default_option(scratch):
    (run,) = runs(engines="fake")
    assert (run.experiment, run.backend, run.option, run.n) == ("latency", "fake", "float32", 1)
    assert dict(run.parameters) == {"max_new_tokens": trial.NEW_TOKENS}
    assert [r.option for r in runs(engines="fake/int8 fake/mute")] == ["int8", "mute"]
    assert [r.model for r in runs(engines="fake", models=MODELS)] == MODELS
    written(run)
    assert [r.n for r in runs(engines="fake")] == [2], "nothing is overwritten"


def test_no_engine_and_several_are_refused(scratch):
    with pytest.raises(ValueError, match="make try ENGINES="):
        runs()
    with pytest.raises(ValueError, match="fake and transformers"):
        runs(engines="fake transformers")


def test_its_table_says_that_it_is_a_trial_and_who_else_was_there(scratch, monkeypatch, capsys):
    monkeypatch.setattr(trial, "measure", lambda run: written(run, cores=0.14))
    trial.main(["engines=fake"])
    shown = capsys.readouterr().out
    assert "A trial, no measurement" in shown and "others used 7% of the CPU" in shown and "TTFT" in shown


def test_a_trial_that_failed_says_why_and_ends_so(scratch, monkeypatch):
    monkeypatch.setattr(trial, "measure", lambda run: None)
    with pytest.raises(SystemExit, match="FAILED fake/latency-smollm2-135m-float32"):
        trial.main(["engines=fake"])
    with pytest.raises(SystemExit, match="Did you mean 'fake'"):
        trial.main(["engines=fakke"])
    with pytest.raises(SystemExit, match="Unknown model 'smolm2-135m'. Did you mean 'smollm2-135m'"):
        trial.main(["engines=fake", "models=[smolm2-135m]"])


def test_a_trial_for_which_the_disk_is_too_small_is_not_started(scratch, monkeypatch, tmp_path):
    for module in (checkpoints, costs):
        monkeypatch.setattr(module, "MODELS", tmp_path / "models")
    free = shutil.disk_usage(tmp_path)._replace(free=100_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: free)
    monkeypatch.setattr(trial, "measure", lambda run: pytest.fail("it was started"))
    with pytest.raises(SystemExit, match="Not started: 0.5 GB more are needed .*, and 0.1 GB are free"):
        trial.main(["engines=fake"])


def make(*words):
    command = ["make", "-n", "-o", ".venv/ready", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_mistyped_variable_of_make_is_an_error_that_lists_those_that_exist():
    done = make("study", "ENGINE=llamacpp")
    assert done.returncode and "No variable ENGINE here" in done.stderr and " ENGINES " in done.stderr


def test_a_target_without_the_variable_that_it_needs_says_so():
    """`audit ""` would be the audit of the whole checkout."""
    for target, variable in (
        ("audit", "FILE"),
        ("compare", "A"),
        ("expect", "DATA"),
        ("check-backend", "NAME"),
    ):
        words = ["make", "-o", ".venv/ready", target]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and f"Say {variable}, as in: make {target}" in done.stderr


def test_the_variables_that_the_help_names_are_known():
    text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout
    named = {word.strip(",;()[]").split("=")[0] for word in text.split() if "=" in word}
    asked = sorted(
        f"{name}=x" for name in named if name.isupper() and not name.startswith(("BENCH", "OBSERVATORY"))
    )
    assert len(asked) > 10 and make("help", *asked).returncode == 0


def test_try_draws_nothing_and_keeps_to_its_folder():
    said = make("try", "ENGINES=llamacpp", "MODELS=a").stdout
    # Around it make may install what is newer than .venv, and say which folder it enters.
    line = next(line for line in said.splitlines() if "engines=" in line)
    assert "/scratch" in line and 'engines="llamacpp"' in line and "snakemake" not in said
