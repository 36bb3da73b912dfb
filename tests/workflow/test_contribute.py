"""Somebody else's runs: what passes, what is refused and why, on a clone in which a committed run is new again."""

import json
import os
import re
import shutil
import subprocess

import pandas as pd
import pytest
from commands import cloned, run

from bench.observations import store
from bench.paths import ROOT
from bench.workflow import contribute, leaks

RUN = "onnxruntime/latency-smollm2-135m-int4-intel-xeon-2c-8e4d97-1"
COMMITTED = "onnxruntime/latency-smollm2-135m-int8-intel-xeon-2c-8e4d97-1"
# A token as services make them, in two parts so that no scanner takes this file for a leak.
TOKEN = "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xYz2"


def git(folder, *arguments):
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone of this repository whose HEAD lacks the files of RUN."""
    folder = cloned(tmp_path_factory.mktemp("clone") / "repository")
    git(folder, "config", "user.email", "nobody@example.org")
    git(folder, "config", "user.name", "nobody")
    git(folder, "remote", "remove", "origin")
    git(folder, "rm", "--quiet", f"_llama-inference/{RUN}.*")
    git(folder, "commit", "--quiet", "--message", "without one run")
    return folder


@pytest.fixture
def new_run(clone):
    """The clone with RUN as three new files, and everything else as committed."""
    git(clone, "checkout", "--force", "--quiet", "HEAD", "--", ".")
    git(clone, "clean", "--quiet", "--force", "-d")
    for suffix in contribute.SUFFIXES:
        shutil.copy(part(ROOT, suffix), part(clone, suffix))
    return clone


def part(root, suffix, run=RUN):
    return root / f"_llama-inference/{run}{suffix}"


def contributed(root, capsys, *arguments):
    """(exit code, text) of the command line."""
    code = contribute.main(["--root", str(root), *arguments])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.out + printed.err
    return code, printed.out + printed.err


def changed(suffix, change):
    """A function that applies `change` to the JSON, the notebook or the table of the new run."""

    def plant(root):
        file = part(root, suffix)
        if suffix == ".csv":
            content = pd.read_csv(file, dtype=str, keep_default_na=False)
            change(content)
            content.to_csv(file, index=False)
        else:
            content = json.loads(file.read_text())
            change(content)
            file.write_text(json.dumps(content))

    return plant


def written(path, text):
    return lambda root: (root / path).write_text(text)


def a_token(rows):
    rows["answer"] = TOKEN


def a_faster_row(rows):
    rows.loc[2, "e2e_s"] = str(float(rows.loc[2, "e2e_s"]) * 0.9)


def a_faster_output(notebook):
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            html = "".join(output.get("data", {}).get("text/html", ""))
            if "ttft_s" in html:
                output["data"]["text/html"] = html.replace("<td>1.6152</td>", "<td>1.6052</td>")


def without_outputs(notebook):
    for cell in notebook["cells"]:
        cell.update({"outputs": []} if cell["cell_type"] == "code" else {})


def other_code(notebook):
    cell = next(c for c in notebook["cells"] if "setup.warm_up" in "".join(c["source"]))
    cell["source"] = ["pass"]


def an_instrument_of_the_branch(root):
    """Commit a change of the instrument, and say that the run was measured at it."""
    (root / "llm_measured/core/metrics.py").write_text("# faster\n")
    git(root, "commit", "--quiet", "--all", "--message", "a faster clock")
    head = git(root, "rev-parse", "HEAD")
    changed(".json", lambda sidecar: sidecar["git"].update(revision=head))(root)


def of_another_machine(root):
    for suffix in contribute.SUFFIXES:
        part(root, suffix).rename(part(root, suffix, RUN.replace("8e4d97", "123456")))


def without_files(root):
    for suffix in contribute.SUFFIXES:
        part(root, suffix).unlink()


# What somebody changed -> how, and what the command says of it.
PLANTED = {
    "an unknown revision": (changed(".json", lambda s: s["git"].update(revision="0" * 40)), "not in the history"),
    "no revision": (changed(".json", lambda s: s.update(git={})), "not in the history"),
    "changes not committed": (
        changed(".json", lambda s: s["git"].update(uncommitted=["llm_measured/core/metrics.py"])),
        "The instrument differs from its revision: llm_measured/core/metrics.py",
    ),
    "changes not named": (changed(".json", lambda s: s["git"].update(dirty=True)), "does not say in which files"),
    "an instrument of the branch": (
        an_instrument_of_the_branch, "an instrument that is not the repository's: llm_measured/core/metrics.py"
    ),
    "other prompts": (changed(".json", lambda s: s.update(prompts_sha256="0" * 64)), "Its prompts"),
    "other weights": (
        changed(".json", lambda s: s.update(model_sha256="0" * 64)), "other weights are another model"
    ),
    "another CSV": (changed(".json", lambda s: s.update(csv_sha256="0" * 64)), "observations are never edited"),
    "a path": (
        changed(".json", lambda s: s["settings"].update(cache="/home/ada/models")), "a machine's path, /home/ada/models"
    ),
    "an address": (changed(".json", lambda s: s["settings"].update(by="ada@example.org")), "an e-mail address"),
    "a secret": (changed(".json", lambda s: s["settings"].update(id="AKIA" + "ABCDEFGHIJKLMNOP")), "AWS Access Key"),
    "a missing field": (changed(".json", lambda s: s.pop("busy_cores")), "The run lacks busy_cores"),
    "a validity check's": (
        changed(".json", lambda s: s["busy_cores"].update(others=0.9)),
        f"`{RUN}`: Other processes kept 0.90 cores busy",
    ),
    "no object": (changed(".json", lambda s: s.update(parameters=[])), "cannot be read as a run"),
    "a token in an answer": (
        changed(".csv", a_token),
        "Row 1, answer holds what looks like a Hugging Face token (hf_a…)",
    ),
    "a number of the CSV": (changed(".csv", a_faster_row), "another e2e_s than its notebook showed, in row 3"),
    "a number of the notebook": (
        changed(".ipynb", a_faster_output), "another e2e_s than its notebook showed, in row 9"
    ),
    "other code": (changed(".ipynb", other_code), "Its code is not that of notebooks/latency.ipynb"),
    "no rows": (changed(".ipynb", without_outputs), "Its notebook shows no rows"),
    "no code": (
        changed(".ipynb", lambda n: n.update(cells=[c for c in n["cells"] if c["cell_type"] != "code"])),
        "Its notebook has no code cells",
    ),
    "another notebook's code": (
        changed(".ipynb", lambda n: n["metadata"]["papermill"].update(input_path="/tmp/faster.ipynb")),
        "Its notebook was made from notebooks/faster.ipynb, which its revision has not",
    ),
    "another run's notebook": (
        lambda root: shutil.copy(part(root, ".ipynb", COMMITTED), part(root, ".ipynb")),
        "commit the one that this run wrote",
    ),
    "another machine": (of_another_machine, "123456"),
    "a table changed along": (
        written("data/tables/latency.csv", "rate\n1\n"), "`data/tables/latency.csv`: It was changed along with runs"
    ),
    "a committed CSV changed": (
        lambda root: part(root, ".csv", COMMITTED).write_text("rate\n1\n"),
        f"`{COMMITTED}.csv`: It differs from what was committed; observations are never edited: git checkout",
    ),
    "a committed notebook gone": (
        lambda root: part(root, ".ipynb", COMMITTED).unlink(), f"`{COMMITTED}.ipynb`: It was deleted"
    ),
    "no part of a run": (written("_llama-inference/notes.txt", "x"), "`notes.txt`: It is no part of a run"),
    "a link": (
        lambda root: os.symlink("/etc/hostname", root / "_llama-inference/onnxruntime/a-1.csv"),
        "It is no part of a run",
    ),
}  # fmt: skip
PLANTED |= {
    f"no {suffix}": (lambda root, suffix=suffix: part(root, suffix).unlink(), f"It lacks {suffix}")
    for suffix in contribute.SUFFIXES
}
PLANTED |= {
    f"{suffix} is {text!r}": (written(f"_llama-inference/{RUN}{suffix}", text), RUN)
    for suffix in (".json", ".ipynb")
    for text in ("", "{", '{"cells": []}', "[]")
}


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_fault_is_a_sentence_and_an_exit_code(new_run, capsys, name):
    plant, expected = PLANTED[name]
    base = git(new_run, "rev-parse", "HEAD")
    try:
        plant(new_run)
        code, text = contributed(new_run, capsys, "--base", base)
        assert code == 1 and expected in text and TOKEN not in text
    finally:
        git(new_run, "reset", "--quiet", "--hard", base)


def test_a_good_run_passes_and_nothing_new_is_nothing_to_check(new_run, capsys):
    command = "python", "-m", "bench.workflow.contribute", "--root", new_run
    said = run(*command, PYTHONPATH=ROOT).stdout
    assert "1 runs" in said and "1 may be committed" in said and "Faults" not in said
    without_files(new_run)
    code, text = contributed(new_run, capsys)
    assert code == 0 and "no run to check" in text


def test_a_long_table_is_compared_in_the_rows_that_it_shows(new_run, capsys):
    """pandas leaves out the middle of a table; its last row is the last of the CSV all the same."""

    def shortened(notebook):
        for cell in notebook["cells"]:
            for output in cell.get("outputs", []):
                html = "".join(output.get("data", {}).get("text/html", ""))
                if "ttft_s" in html:
                    start, header, first, second, _, *others = re.split(r"(?=<tr)", html)
                    dots = re.sub(r">[^<>\s]+</t", ">...</t", second)
                    output["data"]["text/html"] = "".join([start, header, first, dots, *others])

    changed(".ipynb", shortened)(new_run)
    assert contributed(new_run, capsys)[0] == 0
    changed(".ipynb", a_faster_output)(new_run)
    code, text = contributed(new_run, capsys)
    assert code == 1 and "another e2e_s than its notebook showed, in row 9" in text


def test_a_notebook_may_have_any_name_if_it_ran_while_the_run_did(new_run, capsys):
    """The commands of README and guide write out.ipynb, and not every notebook prints its run's name."""

    def nameless(notebook):
        notebook["metadata"]["papermill"] |= {"output_path": "out.ipynb", "start_time": start}
        for cell in notebook["cells"]:
            for output in cell.get("outputs", []):
                output.update({"text": []} if "text" in output else {})

    start = json.loads(part(new_run, ".json").read_text())["started"]
    changed(".ipynb", nameless)(new_run)
    assert contributed(new_run, capsys)[0] == 0
    start = json.loads(part(new_run, ".ipynb").read_text())["metadata"]["papermill"]["end_time"]
    changed(".ipynb", nameless)(new_run)
    code, text = contributed(new_run, capsys)
    assert code == 1 and "Its notebook is that of out.ipynb" in text


def test_large_files_are_refused(new_run, capsys, monkeypatch):
    monkeypatch.setattr(contribute, "FILE_BYTES", 1000)
    monkeypatch.setattr(contribute, "ALL_BYTES", 2000)
    code, text = contributed(new_run, capsys)
    assert code == 1 and "are the limit: measure fewer requests" in text and "contribute in parts" in text


def test_a_repeat_without_those_before_it_is_noted(new_run, capsys):
    """The third of a configuration whose first is committed."""
    for suffix in contribute.SUFFIXES:
        text = part(new_run, suffix).read_text().replace(RUN, f"{RUN[:-1]}3")
        part(new_run, suffix, f"{RUN[:-1]}3").write_text(text)
    _, text = contributed(new_run, capsys)
    assert f"`{RUN[:-1]}3`: {RUN[:-1]}2 are not here; say in the pull request why." in text


def test_runs_of_another_folder_are_checked_and_taken(new_run, tmp_path, capsys):
    for name in (RUN, COMMITTED):
        for suffix in contribute.SUFFIXES:
            target = tmp_path / f"{name}{suffix}"
            target.parent.mkdir(exist_ok=True)
            shutil.copy(part(ROOT, suffix, name), target)
    without_files(new_run)
    code, text = contributed(new_run, capsys, "--from", str(tmp_path), "--take")
    assert code == 0 and "1 runs beside" in text  # the other one is there already
    assert all(part(new_run, suffix).exists() for suffix in contribute.SUFFIXES)
    assert "image/" in (tmp_path / f"{RUN}.ipynb").read_text()
    taken = part(new_run, ".ipynb").read_text()
    assert "image/" not in taken and "ttft_s" in taken, "pictures stay out, rows come along"
    assert contributed(new_run, capsys)[0] == 0


def test_a_folder_without_runs_and_an_unknown_base_are_one_sentence(new_run, tmp_path, capsys):
    assert contributed(new_run, capsys, "--from", str(tmp_path))[1].startswith("There is no run in")
    code, text = contributed(new_run, capsys, "--base", "nowhere")
    assert code == 1 and text.startswith("git knows no 'nowhere'")


def test_a_secret_of_this_shell_is_found_wherever_it_stands(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_API_TOKEN", "correct-horse-battery")
    (tmp_path / "run.csv").write_text("answer\nit said correct-horse-battery\n")
    (sentence,) = leaks.found(tmp_path / "run.csv")
    assert "BENCH_API_TOKEN" in sentence and "horse" not in sentence


def test_what_a_model_answers_may_hold_a_path(tmp_path):
    (tmp_path / "run.csv").write_text("answer,error\ncd /home/user,no such file /home/ada/model.bin\n")
    (sentence,) = leaks.found(tmp_path / "run.csv")
    assert "Row 1, error" in sentence and "/home/ada/model.bin" in sentence


@pytest.mark.check
def test_every_committed_run_would_pass_but_for_its_files_being_there():
    """No check raises a false alarm on runs that were published, but for those that *Method* names as refused."""
    folder = ROOT / contribute.OBSERVATIONS
    named = set(store.judged(folder=folder)[1]["run"])
    repository = contribute.Repository(ROOT, contribute.base_commit(ROOT, "HEAD"), [])
    faults = {}
    for file in sorted(folder.glob("*/*.csv")):
        name = file.relative_to(folder).with_suffix("").as_posix()
        # What a notebook of `overhead` printed held no rows; it measures no more.
        if name not in named and "/overhead-" not in name:
            files = {suffix: file.with_suffix(suffix) for suffix in contribute.SUFFIXES}
            faults[name] = contribute.run_faults(contribute.Candidate(name, files), repository)
    assert faults and not any(faults.values()), {name: said for name, said in faults.items() if said}
