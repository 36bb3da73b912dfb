"""HOWTO.md promises that one file is an engine: take the file out of it, run its commands for
it as they are printed, and see its rows, its bar, its row of the table and its section."""

import re
import shlex

import pytest
from commands import run

from bench import backends
from bench.backends.common import contract
from bench.observations import store
from bench.paths import ROOT
from llm_measured.core import naming

HOWTO = (ROOT / "HOWTO.md").read_text()
SECTION = HOWTO.split("## An engine\n")[1].split("\n## ")[0]
SOURCE = re.search(r"```python\n(.*?)```", SECTION, re.S).group(1)
COMMANDS = re.search(r"```\n(make install\n.*?)```", SECTION, re.S).group(1).splitlines()


def words(beginning, folder, **replaced):
    """The words of the one command that begins so, its folder `scratch` being `folder`; of a parameter
    in `replaced` with another value."""
    (command,) = [line for line in COMMANDS if beginning in line]
    command = command.replace(".venv/bin/", "").replace("scratch", str(folder))
    for name, value in replaced.items():
        command, found = re.subn(rf"(-p {name}) \S+", rf"\1 {value}", command)
        assert found == 1, f"the command has no -p {name}"
    return shlex.split(command, comments=True)


@pytest.mark.check
@pytest.mark.timing
def test_the_engine_shown_in_howto_works(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "mine.py").write_text(SOURCE)
    own = {"BENCH_BACKENDS": tmp_path / "adapters", "BENCH_RESULTS": scratch}

    check = dict(word.split("=") for word in words("make check-backend", scratch)[2:])
    done = run("python", "-m", "bench.experiments.check_backend", check["NAME"], **own)
    assert "mine float32: nothing wrong" in done.stdout and done.stdout.count("ok") > 8

    latency = words("notebooks/latency.ipynb", scratch, max_new_tokens=8)
    latency[latency.index("out.ipynb")] = str(tmp_path / "out.ipynb")
    shown = run(*latency, **own)
    rows = store.load(folder=scratch, experiment="latency")
    assert len(rows) == 9 and set(rows["backend"]) == {"mine"} and rows["error"].eq("").all()
    assert rows["run_id"].iloc[0] in shown.stdout + shown.stderr  # --log-output

    figure = words("notebooks/figure.ipynb", scratch)
    figure[figure.index("figure.ipynb")] = str(tmp_path / "figure.ipynb")
    run(*figure, **own)
    assert "mine" in (scratch / "latency.svg").read_text()

    for command in [line for line in COMMANDS if line.startswith("BENCH_RESULTS=scratch ")]:
        shown = run(*shlex.split(command.replace(".venv/bin/", ""))[1:], **own).stdout
    assert "mine" in shown, "the last one prints the table"

    study = dict(word.split("=", 1) for word in words("make study", scratch)[2:])
    asked = [f"{key.lower()}={value}" for key, value in study.items()]
    assert " mine/latency-" in " " + run("python", "-m", "bench.workflow.plan", "show", *asked, **own).stdout

    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path / "adapters")])
    (mine,) = [head for head in backends.heads() if head["engine"] == "mine"]
    assert "plain decode loop over transformers" in mine["about"]


@pytest.mark.check
def test_the_types_of_the_engine_shown_in_howto_are_those_that_make_lint_asks_for(tmp_path):
    """In the place of another adapter, for mypy's rules depend on the folder."""
    (tmp_path / "mine.py").write_text(SOURCE)
    shadow = ("--shadow-file", "bench/backends/ctranslate2.py", tmp_path / "mine.py")
    run("mypy", "-m", "bench.backends.ctranslate2", *shadow, "--cache-dir", tmp_path / "cache")


def test_the_engine_shown_in_howto_has_the_style_that_make_lint_asks_for(tmp_path):
    own = tmp_path / "bench" / "backends"
    own.mkdir(parents=True)
    (own / "mine.py").write_text(SOURCE)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    run("ruff", "check", "--no-cache", own / "mine.py", cwd=tmp_path)
    run("ruff", "format", "--check", "--no-cache", own / "mine.py", cwd=tmp_path)


def test_the_engine_shown_in_howto_keeps_what_the_tests_of_adapters_ask_of_it(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(SOURCE)
    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path)])
    mine = backends.get("mine")
    assert not contract.module_faults(mine.module)
    assert naming.bits(mine.options("cuda")[0]) != 32 and mine.options("cpu")[0] == "float32"
