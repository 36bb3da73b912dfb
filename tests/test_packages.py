"""The package beside the study: its wheel, alone in a folder, answers as the checkout does."""

import subprocess
import sys

import pytest

from bench.paths import DATA, ROOT

SAMPLE = DATA / "audits" / "samples" / "vllm-bench-serve.json"
# What no command may import (pyarrow is not in the list: pandas imports it itself where it is installed).
HEAVY = """
import sys, llm_measured.audit.report, llm_measured.published.__main__, llm_measured.predict.command
print(*sorted({"statsmodels", "matplotlib", "filelock", "bench"} & set(sys.modules)))
"""


def run(folder, *words):
    """(exit code, output) of `python WORDS` in `folder`, the first place in which packages are looked for."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_no_command_imports_what_the_package_does_not_bring():
    assert run(ROOT, "-c", HEAVY) == (0, "\n")


def test_a_command_that_is_not_there_is_named_with_those_that_are():
    code, said = run(ROOT, "-m", "llm_measured", "audits")
    assert code == 2 and "Unknown command 'audits'" in said and "llm-measured published" in said


@pytest.mark.check
def test_the_wheel_answers_as_the_checkout_and_has_nothing_of_the_study(tmp_path):
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    source, target = tmp_path / "source", tmp_path / "site"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run([*pip, *build], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    install = ["install", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run([*pip, *install], check=True, capture_output=True)
    assert {path.name for path in target.iterdir() if path.is_dir()} >= {"llm_measured"}
    assert not any((target / name).exists() for name in ("bench", "tests", "data"))
    asked = ("expect", "H100 SXM", "Llama-3.1-8B", "fp8", "vllm")
    for words in (("audit", str(SAMPLE)), ("published", "sources"), asked):
        code, said = run(target, "-m", "llm_measured", *words)
        assert code in (0, 1) and (code, said) == run(ROOT, "-m", "llm_measured", *words)
    _, said = run(target, str(target / "bin" / "llm-measured"), "audit", "--help")
    assert "usage: " in said
