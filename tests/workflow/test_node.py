"""profiles/node/run.sh on a node without network that has its own PyTorch, played by a virtual environment."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from bench.paths import ROOT

# What the study is played by: it says what it sees, leaves a result and a log, and ends as FAIL says.
MAKEFILE = """\
.PHONY: study
study: .venv/ready
\t@.venv/bin/python -c "import owntorch, both, moved, engine; print('sees', owntorch.HERE, both.HERE, moved.HERE, engine.HERE, '$(WORDS)')"
\t@mkdir -p _llama-inference/fake logs && echo measured > _llama-inference/fake/run-$(WORDS).csv && echo log > logs/run.txt
\t@exit $(or $(FAIL),0)
.venv/ready: requirements.txt
\t@echo "the study's own environment must not be made here" >&2; exit 9
"""


def distribution(folder, name, version, here):
    """A package with one module that says where it is, as a folder of packages has it."""
    (folder / f"{name}.py").write_text(f"HERE = {here!r}\n")
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "WHEEL").write_text(
        "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    (about / "RECORD").write_text(f"{name}.py,,\n")
    return folder


@pytest.fixture
def node(tmp_path):
    """A node's virtual environment with a package of its own, an older one of ours, and a folder that it links to."""
    made = tmp_path / "opt"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    (site,) = made.glob("lib/python*/site-packages")
    distribution(site, "owntorch", "2.11", "node")
    distribution(site, "both", "6.0", "node")
    (tmp_path / "elsewhere").mkdir()
    distribution(tmp_path / "elsewhere", "moved", "1.0", "linked")
    (site / "linked.pth").write_text(f"{tmp_path / 'elsewhere'}\n")
    return made


@pytest.fixture
def checkout(tmp_path):
    """A checkout with the script, a study that is played, the wheel that the node lacks, and one of an engine."""
    home = tmp_path / "checkout"
    (home / "profiles" / "node").mkdir(parents=True)
    shutil.copy(ROOT / "profiles" / "node" / "run.sh", home / "profiles" / "node" / "run.sh")
    (home / "environments").mkdir()
    (home / "environments" / "node.txt").write_text("both==7.0\nowntorch\n")
    (home / "Makefile").write_text(MAKEFILE)
    (home / "requirements.txt").write_text("torch==2.13.0\n")
    (home / "_llama-inference" / "fake").mkdir(parents=True)
    (home / "_llama-inference" / "fake" / "old.csv").write_text("of another machine\n")
    subprocess.run(["git", "init", "--quiet", str(home)], check=True)
    subprocess.run(["git", "-C", str(home), "add", "_llama-inference"], check=True)
    (home / "wheels").mkdir()
    for name, version, here in (("both", "7.0", "wheel"), ("engine", "1.0", "carried")):
        content = tmp_path / f"packed-{name}"
        content.mkdir()
        distribution(content, name, version, here)
        with zipfile.ZipFile(home / "wheels" / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            for file in content.rglob("*"):
                wheel.write(file, file.relative_to(content))
    return home


def run(checkout, node, *words, **variables):
    """What the script has done, where pip may look nowhere but in wheels/."""
    plain = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PIP_", "PYTHON", "MAKE", "MFLAGS", "BENCH_"))
    }
    command = ["sh", str(checkout / "profiles" / "node" / "run.sh"), *words]
    environment = plain | {"PYTHON": str(node / "bin" / "python"), "PIP_CONFIG_FILE": os.devnull} | variables
    return subprocess.run(
        command, cwd=checkout.parent, env=environment, capture_output=True, text=True, timeout=300
    )


def packed(archive):
    with tarfile.open(archive) as tar:
        return {member.name for member in tar.getmembers() if member.isfile()}


@pytest.mark.check
def test_it_installs_beside_the_node_s_packages_and_packs_what_was_measured(checkout, node):
    (site,) = node.glob("lib/python*/site-packages")
    before = sorted(str(file) for file in site.rglob("*") if "__pycache__" not in file.parts)
    done = run(checkout, node, "WORDS=once", SHARES="vllm-cuda")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sees node wheel linked carried once" in done.stdout
    assert before == sorted(str(file) for file in site.rglob("*") if "__pycache__" not in file.parts)
    new = {"_llama-inference/fake/run-once.csv", "logs/run.txt"}
    assert packed(checkout / "results.tar.gz") == new
    assert (checkout / ".venvs" / "vllm-cuda" / "ready").exists()
    # The next call installs nothing, and packs the runs of both, where it is asked to, also of a study that failed.
    (checkout / "wheels" / "both-7.0-py3-none-any.whl").unlink()
    done = run(checkout, node, "WORDS=twice", "FAIL=3", RESULTS="all.tar.gz")
    assert done.returncode != 0 and "sees node wheel linked carried twice" in done.stdout
    assert packed(checkout / "all.tar.gz") == new | {"_llama-inference/fake/run-twice.csv"}


@pytest.mark.check
def test_what_is_missing_is_named_and_nothing_is_measured(checkout, node):
    (checkout / "wheels" / "both-7.0-py3-none-any.whl").unlink()
    done = run(checkout, node)
    assert done.returncode != 0 and "No matching distribution found for both==7.0" in done.stderr
    assert not (checkout / ".venv" / "ready").exists() and not (checkout / "results.tar.gz").exists()
    shutil.rmtree(checkout / "wheels")
    done = run(checkout, node)
    assert done.returncode == 2 and "pip download --dest wheels" in done.stderr
