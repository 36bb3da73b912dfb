"""The commands that the README and Check and reproduce show are run as they are printed, in a clone."""

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import loads
import pytest
from commands import cloned

from bench.backends.common import checkpoints
from bench.paths import ROOT

PAGE = (ROOT / "pages" / "check.qmd").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(?:bash)?\n(.*?)^```$", README, re.M | re.S)


def section(anchor):
    """The first block of commands below the heading with this anchor."""
    return re.search(rf"\{{#{anchor}\}}\n.*?```bash\n(.*?)```", PAGE, re.S)[1]


@pytest.fixture
def clone(tmp_path):
    """A clone of what is committed, with this environment as its .venv."""
    folder = cloned(tmp_path / "clone")
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def shell(commands, folder, **more):
    """Run lines of a page in `folder` with bash, which ends at the first that fails; returns what they print."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("BENCH_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own |= {"PYTHONPATH": str(folder), "PATH": path} | more
    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=folder,
        env=own,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_readme_s_answers_are_those_that_its_commands_print(clone):
    answers = [block.split("\n", 1) for block in BLOCKS if block.startswith("$ ")]
    assert [command.split()[2] for command, _ in answers] == ["expect", "audit"]
    for command, printed in answers:
        run = command.removeprefix("$ ").replace("llm-measured", "python -m llm_measured", 1)
        assert shell(run, clone).strip() == printed.strip()


def test_make_knows_the_readme_s_targets_and_variables(clone):
    lines = [line for block in BLOCKS for line in block.splitlines() if line.startswith("make ")]
    assert [line.split()[1] for line in lines] == ["study", "test", "try"]
    for line in lines:
        shell(
            f"make --dry-run --old-file=.venv/ready --old-file=.venv/test {line.removeprefix('make ')}", clone
        )


@pytest.mark.check
def test_the_tool_installs_from_a_clone(clone, tmp_path):
    (install,) = [block.split("#")[0] for block in BLOCKS if block.startswith("pip install")]
    shell(f"python -m venv {tmp_path}/own", clone)
    own = f"{tmp_path}/own/bin"
    shell(install, clone, PATH=f"{own}{os.pathsep}{os.environ['PATH']}", PYTHONPATH="")
    said = shell(
        "llm-measured audit data/audits/batch_one_published.csv || true",
        clone,
        PATH=f"{own}:/usr/bin:/bin",
        PYTHONPATH="",
    )
    assert "1 impossible figure" in said


@pytest.mark.check
def test_prompts_of_ones_own(clone):
    shell(section("prompts"), clone)
    (run,) = (clone / "scratch" / "llamacpp").glob("*.csv")
    with run.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 1
    assert shell("git status --short data", clone) == ""


@pytest.mark.check
def test_two_versions_of_one_engine(clone):
    said = shell(section("versions"), clone)
    assert re.search(r"engine version +\S*4\.8\.4 +\S*4\.8\.5", said) and "tokens/s" in said


@pytest.mark.check
def test_a_model_of_ones_own_without_a_network(clone):
    model = checkpoints.checkpoint("smollm2-135m")
    shutil.copytree(model.path, clone / "folder")
    shutil.copy(model.gguf, clone / "model.gguf")
    shell(section("offline"), clone)
    assert {run.parent.name for run in (clone / "scratch").glob("*/*.csv")} == {"llamacpp", "transformers"}


@pytest.mark.check
def test_a_figure_of_ones_own(clone):
    shell(section("draw"), clone)
    assert (clone / "scratch" / "latency-ttft_s-output_tokens_per_s.svg").exists()


@pytest.mark.check
def test_a_server_that_is_running(clone):
    """The README's line, with few requests, of a server at another port."""
    (line,) = [line for block in BLOCKS for line in block.splitlines() if "-p backend http" in line]
    few = " -p concurrency 1 -p request_rates none -p scale 0.1 -p requests 10 -p served_model ground-truth"
    server = loads.Truth()
    shell(line.replace("http://localhost:8000", server.url) + few, clone)
    server.end()
    assert len(list((clone / "scratch" / "http").glob("serving-*.csv"))) == 1
