"""The packages beside the study: each can be taken alone, and the study works without them."""

import shutil
import subprocess
import sys

import pytest

from bench.paths import DATA, ROOT

SAMPLE = DATA / "audits" / "samples" / "vllm-bench-serve.json"
# The columns of a serving point, one GPU and model of the committed coefficients.
POINTS = DATA / "published" / "gpu_serving_measured.csv"


def copied(folder, *names):
    """A folder that has these packages of the repository, and its tables."""
    for name in (*names, "data"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    return folder


def run(folder, *words):
    """(exit code, output) of `python WORDS` in `folder`, which is the first place that is looked for packages."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A function: a folder into which the wheel of the package was installed, far from the repository."""

    def install(package):
        source = copied(tmp_path_factory.mktemp("source"), "bench", package)
        target = tmp_path_factory.mktemp("site")
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(source)]
        subprocess.run([*pip, *build, str(source / package)], check=True, capture_output=True)
        (wheel,) = source.glob("*.whl")
        command = [*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
        subprocess.run(command, check=True, capture_output=True)
        return target

    return install


@pytest.mark.check
def test_the_wheel_of_the_audit_finds_the_same_without_the_study(installed):
    target = installed("llm_audit")
    assert not (target / "bench" / "report").exists() and not (target / "bench" / "analysis").exists()
    code, found = run(target, "-m", "llm_audit", str(SAMPLE))
    assert (code, found) == run(ROOT, "-m", "llm_audit", str(SAMPLE))
    assert code in (0, 1) and "1 file audited" in found
    _, where = run(target, "-c", "from bench import paths; print(paths.DATA)")
    assert where.strip() == str(target / "bench" / "data")
    _, usage = run(target, str(target / "bin" / "llm-audit"), "--help")
    assert usage.startswith("usage: llm-audit")


@pytest.mark.check
def test_the_wheel_of_the_planner_predicts_the_same_without_the_study(installed, tmp_path):
    target, file = installed("llm_planner"), tmp_path / "points.csv"
    file.write_text("".join(POINTS.read_text().splitlines(keepends=True)[:4]))
    code, found = run(target, "-m", "llm_planner", "check", str(file), str(tmp_path / "alone.csv"))
    assert (code, found) == run(ROOT, "-m", "llm_planner", "check", str(file), str(tmp_path / "here.csv"))
    assert code == 0 and "3 rows" in found
    assert (tmp_path / "alone.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
    assert run(target, "-m", "llm_planner", "check", "absent.csv")[0] == 1
    assert run(target, "-m", "llm_planner", "check", str(file), "out.csv", "more")[0] == 2


LISTED = "from bench.report import figures, tables; print(*figures.names(), *tables.names())"


@pytest.mark.check
def test_figures_and_tables_of_a_package_join_where_it_is_there(tmp_path):
    names = [
        run(copied(tmp_path / name, "bench", *beside), "-c", LISTED)[1].split()
        for name, beside in {"alone": (), "both": ("llm_planner",)}.items()
    ]
    assert "latency" in names[0] and {"plan_own", "plan_answers"} <= set(names[1]) - set(names[0])
    assert all(name.startswith("plan_") for name in set(names[1]) - set(names[0]))
