"""What a stranger trusts without looking: that the files which say the same thing say the same thing."""

import re
import subprocess

import pytest
import yaml

from bench import headlines
from bench.paths import ROOT
from bench.report import forge
from bench.report import readme as made_readme

git = lambda *a: subprocess.run(["git", *a], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()  # noqa: E731


def test_conda_users_get_the_same():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert {"python=3.12", "quarto", "pip"} <= {d for d in environment["dependencies"] if isinstance(d, str)}
    assert environment["dependencies"][-1] == {"pip": ["-r environments/default.txt", "-e ."]}
    assert set(environment["channels"]) == {"conda-forge"}


def test_requirements_are_pinned():
    for file in ("environments/default.txt", "environments/test.txt"):
        for line in (ROOT / file).read_text().splitlines():
            assert (
                not line.strip() or line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[^\s]+", line)
            ), line


def test_what_is_installed_is_what_is_pinned():
    from importlib.metadata import version

    for line in (ROOT / "environments/default.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, pinned = line.split("==")
            assert version(name).split("+")[0] == pinned, name


def test_every_rendered_page_exists_and_every_page_is_rendered():
    quarto = yaml.safe_load((ROOT / "_quarto.yml").read_text())
    assert sorted(quarto["project"]["render"]) == sorted(
        ["index.qmd", *(f"pages/{p.name}" for p in (ROOT / "pages").glob("[!_]*.qmd"))]
    )


@pytest.mark.check
def test_the_readme_says_what_the_committed_data_say():
    readme = (ROOT / "README.md").read_text()
    assert made_readme.text(readme) == readme, "run: make readme"
    for name, text in forge.texts().items():
        assert (ROOT / "data" / name).read_text() == text, "run: make readme"


def test_the_readme_is_short_and_its_links_lead_to_what_a_forge_shows():
    readme = (ROOT / "README.md").read_text()
    assert len(readme.split()) <= 700
    links = [link for link in re.findall(r"\]\(([^)#]+)", readme) if not link.startswith("http")]
    assert links and all((ROOT / link).is_file() for link in links)
    assert not [link for link in links if link.endswith((".qmd", ".ipynb", ".html"))], "no numbers there"


def test_a_file_without_the_marked_place_is_left_alone():
    with pytest.raises(ValueError, match="no place marked"):
        headlines.fill("# Title", ["A sentence."])


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


def workflows():
    return {
        file.name: yaml.safe_load(file.read_text()) for file in (ROOT / ".github/workflows").glob("*.yml")
    }


@pytest.mark.parametrize(
    "schema, files",
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("dependabot", ".github/dependabot.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("citation-file-format", "CITATION.cff"),
    ],
)
def test_github_s_files_follow_their_schema(schema, files):
    from check_jsonschema import main

    found = [str(file) for file in sorted(ROOT.glob(files))]
    assert found
    assert not main(["--builtin-schema", f"vendor.{schema}", *found], standalone_mode=False)


def test_workflows_are_pinned_and_write_nothing_by_default():
    for name, workflow in workflows().items():
        assert workflow["permissions"] == {"contents": "read"}, name
        # PyYAML reads the key `on` as true; this trigger would hand secrets to a stranger's code.
        assert "pull_request_target" not in workflow[True], name
        for job in workflow["jobs"].values():
            assert "timeout-minutes" in job, name
            for step in job["steps"]:
                local = step.get("uses", "").startswith("./.github/actions/")
                assert local or re.fullmatch(r"[\w.-]+/[\w./-]+@v\d+", step.get("uses", "a/b@v1")), step
                # What a stranger can name (a branch, a title) reaches a shell as a variable, never as its text.
                assert "${{" not in step.get("run", ""), step


def test_the_action_for_others_uses_none_but_pinned_ones_and_takes_inputs_as_variables():
    for file in (ROOT / ".github/actions").glob("*/action.yml"):
        action = yaml.safe_load(file.read_text())
        for step in action["runs"]["steps"]:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}")), step
            assert "${{" not in step.get("run", ""), step


def test_commands_of_workflows_exist():
    makefile = (ROOT / "Makefile").read_text()
    for name, workflow in workflows().items():
        text = "\n".join(s.get("run", "") for job in workflow["jobs"].values() for s in job["steps"])
        for module in re.findall(r"python -m (bench[\w.]+)", text):
            assert (ROOT / f"{module.replace('.', '/')}.py").exists(), f"{name}: {module}"
        for target in re.findall(r"^make (\w+)", text, flags=re.M):
            assert f"\n{target}: " in makefile, f"{name}: make {target}"


def test_one_version_of_quarto():
    import json

    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    (feature,) = container["features"].values()
    steps = workflows()["publish.yml"]["jobs"]["render"]["steps"]
    (setup,) = [s for s in steps if "quarto-actions/setup" in s.get("uses", "")]
    assert setup["with"]["version"] == feature["version"] and feature["version"].startswith("1.11.")


def test_reading_has_the_pins_of_the_study():
    pins = [
        set((ROOT / file).read_text().splitlines())
        for file in ("environments/read.txt", "environments/default.txt")
    ]
    assert not {line for line in pins[0] - pins[1] if not line.startswith("#")}
    binder = (ROOT / ".binder/requirements.txt").read_text().split()
    assert binder == ["-r", "../environments/read.txt"]


ONLY_READING = """
import importlib.metadata as metadata, re, sys
from packaging.requirements import Requirement

def needs(name, found):
    name = re.sub("[-_.]+", "-", name).lower()
    if name not in found:
        found.add(name)
        try:
            each = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of another system
            return found
        for line in map(Requirement, each):
            if line.marker is None or line.marker.evaluate({"extra": ""}):
                needs(line.name, found)
    return found

there = set()
for line in open("environments/read.txt"):
    if line.strip() and not line.startswith("#"):
        needs(line.split("==")[0], there)
owners = metadata.packages_distributions()

class Absent:
    def find_spec(self, name, path=None, target=None):
        by = [re.sub("[-_.]+", "-", owner).lower() for owner in owners.get(name.partition(".")[0], [])]
        if by and not there & set(by) and "llm-measured" not in by:
            raise ModuleNotFoundError(f"{name} is not in environments/read.txt", name=name)

sys.meta_path.insert(0, Absent())
import bench.plots, bench.report.cards, bench.report.verdicts, llm_measured.audit.report, bench.workflow.contribute
from bench import backends
[backends.get(name) for name in backends.names()]
"""


@pytest.mark.check
def test_what_reading_imports_is_what_requirements_read_has():
    """Figures, tables, pages, audit and contribute, with every other installed package out of sight."""
    import sys

    from commands import run

    run(sys.executable, "-c", ONLY_READING, PYTHONPATH=ROOT, BENCH_BACKENDS="")
