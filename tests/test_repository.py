"""What a stranger trusts without looking: that the files which say the same thing say the same thing."""

import re
import subprocess

import pytest
import yaml

from bench.paths import ROOT
from bench.report import findings
from bench.report.findings import readme as readme_findings

git = lambda *a: subprocess.run(["git", *a], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()  # noqa: E731


def test_conda_users_get_the_same():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert {"python=3.12", "quarto", "pip"} <= {d for d in environment["dependencies"] if isinstance(d, str)}
    assert environment["dependencies"][-1] == {"pip": ["-r requirements.txt", "-e ."]}
    assert set(environment["channels"]) == {"conda-forge"}


def test_requirements_are_pinned():
    for file in ("requirements.txt", "requirements-test.txt"):
        for line in (ROOT / file).read_text().splitlines():
            assert (
                not line.strip() or line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[^\s]+", line)
            ), line


def test_what_is_installed_is_what_is_pinned():
    from importlib.metadata import version

    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, pinned = line.split("==")
            assert version(name).split("+")[0] == pinned, name


def test_every_rendered_page_exists_and_every_page_is_rendered():
    quarto = yaml.safe_load((ROOT / "_quarto.yml").read_text())
    assert sorted(quarto["project"]["render"]) == sorted(p.name for p in ROOT.glob("*.qmd"))


def test_the_readme_says_what_the_committed_data_say():
    readme = (ROOT / "README.md").read_text()
    assert readme_findings.fill(readme, findings.findings(readme_findings.committed())) == readme, (
        "run: make readme"
    )


def test_a_file_without_the_marked_place_is_left_alone():
    with pytest.raises(ValueError, match="no place marked"):
        readme_findings.fill("# Title", ["A sentence."])


def test_no_machine_paths_and_no_registry_hosts():
    for pattern in ("/work/", "/tmp/", "/root/", "pypi" + ".org", "npm" + "js", "deb.debian" + ".org"):
        found = git("grep", "-lIF", pattern, "--", ":!tests", ":!*.lock")
        assert not found, f"{pattern} stands in {found}"


def test_published_rows_have_their_source():
    import pandas as pd

    for file in (ROOT / "data" / "published").glob("*.csv"):
        table = pd.read_csv(file)
        beside = file.with_suffix(".md").exists()  # of a whole file, where it stands in no column
        assert beside or "source" in table and table["source"].notna().all(), file.name
