"""Somebody else's runs: what passes, what is refused and why, on a clone in which a committed run is new again."""

import json
import os
import re
import shutil
import subprocess

import pytest
from commands import cloned

from bench.observations import store
from bench.paths import ROOT
from bench.workflow import candidates, contribute, leaks, vetting

RUN = "onnxruntime/latency-smollm2-135m-int4-intel-xeon-2c-8e4d97-1"
COMMITTED = "onnxruntime/latency-smollm2-135m-int8-intel-xeon-2c-8e4d97-1"
# A token as services make them, in two parts so that no scanner takes this file for a leak.
TOKEN = "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xYz2"


def git(folder, *arguments):
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clone of this repository whose HEAD lacks the files of RUN; they lie in `away`."""
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
    for suffix in candidates.SUFFIXES:
        shutil.copy(ROOT / f"_llama-inference/{RUN}{suffix}", clone / "_llama-inference/onnxruntime")
    return clone


def part(root, suffix, run=RUN):
    return root / f"_llama-inference/{run}{suffix}"


def change_sidecar(root, change):
    file = part(root, ".json")
    sidecar = json.loads(file.read_text())
    change(sidecar)
    file.write_text(json.dumps(sidecar))


def change_answer(root, text):
    file = part(root, ".csv")
    lines = file.read_text().replace("\n", f" {text}\n", 2).split("\n")
    table = lines[0].replace(f" {text}", ""), *lines[1:]
    file.write_text("\n".join(table))


def contributed(root, capsys, *arguments):
    """(exit code, text) of the command line."""
    code = contribute.main([*arguments], root)
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_a_good_run_passes(new_run, capsys):
    code, text = contributed(new_run, capsys)
    assert code == 0 and "1 runs" in text and "1 may be committed" in text and "Faults" not in text


def test_nothing_new_is_nothing_to_check(new_run, capsys):
    for suffix in candidates.SUFFIXES:
        part(new_run, suffix).unlink()
    code, text = contributed(new_run, capsys)
    assert code == 0 and "no run to check" in text


def test_a_token_in_an_answer_is_found_and_not_shown(new_run, capsys):
    change_answer(new_run, TOKEN)
    code, text = contributed(new_run, capsys)
    assert code == 1 and "Row 1, answer holds what looks like a Hugging Face token (hf_a…)" in text
    assert TOKEN not in text


def test_a_changed_file_is_refused(new_run, capsys):
    with open(part(new_run, ".csv", COMMITTED), "a") as file:
        file.write("\n")
    code, text = contributed(new_run, capsys)
    assert code == 1 and f"`{COMMITTED}.csv`: It differs from what was committed" in text
    assert "git checkout" in text and "1 may be committed" in text


def test_a_deleted_file_is_refused(new_run, capsys):
    part(new_run, ".ipynb", COMMITTED).unlink()
    code, text = contributed(new_run, capsys)
    assert code == 1 and f"`{COMMITTED}.ipynb`: It was deleted" in text


@pytest.mark.parametrize("suffix", candidates.SUFFIXES)
def test_a_run_is_three_files(new_run, capsys, suffix):
    part(new_run, suffix).unlink()
    code, text = contributed(new_run, capsys)
    assert code == 1 and f"It lacks {suffix}" in text


CHANGES = {
    "an unknown revision": (lambda s: s["git"].update(revision="0" * 40), "not in the history"),
    "no revision": (lambda s: s.update(git={}), "not in the history"),
    "changes not committed": (
        lambda s: s["git"].update(uncommitted=["llm_measured/core/metrics.py"]),
        "The instrument differs from its revision: llm_measured/core/metrics.py",
    ),
    "changes that are not named": (lambda s: s["git"].update(dirty=True), "does not say in which files"),
    "other prompts": (lambda s: s.update(prompts_sha256="0" * 64), "Its prompts"),
    "other weights": (lambda s: s.update(model_sha256="0" * 64), "other weights are another model"),
    "another CSV": (lambda s: s.update(csv_sha256="0" * 64), "observations are never edited"),
    "a path": (lambda s: s["settings"].update(cache="/home/ada/models"), "a machine's path, /home/ada/models"),
    "an address": (lambda s: s["settings"].update(by="ada@example.org"), "an e-mail address"),
    "a secret": (lambda s: s["settings"].update(id="AKIA" + "ABCDEFGHIJKLMNOP"), "AWS Access Key"),
    "a missing field": (lambda s: s.pop("busy_cores"), "The run lacks busy_cores"),
    "a check's": (
        lambda s: s["busy_cores"].update(others=0.9), f"`{RUN}`: Other processes kept 0.90 cores busy"
    ),
    "no object": (lambda s: s.update(parameters=[]), "cannot be read as a run"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_sidecar_s_fault_is_one_sentence(new_run, capsys, name):
    change, expected = CHANGES[name]
    change_sidecar(new_run, change)
    code, text = contributed(new_run, capsys)
    assert code == 1 and expected in text


def test_a_csv_that_says_what_its_notebook_did_not_show_is_refused(new_run, capsys):
    import pandas as pd

    table = pd.read_csv(part(new_run, ".csv"), dtype=str, keep_default_na=False)
    table.loc[2, "e2e_s"] = str(float(table.loc[2, "e2e_s"]) * 0.9)
    table.to_csv(part(new_run, ".csv"), index=False)
    code, text = contributed(new_run, capsys)
    assert code == 1 and "another e2e_s than its notebook showed, in row 3" in text


def test_a_notebook_with_other_code_is_refused(new_run, capsys):
    notebook = json.loads(part(new_run, ".ipynb").read_text())
    cell = next(c for c in notebook["cells"] if "setup.warm_up" in "".join(c["source"]))
    cell["source"] = ["pass"]
    part(new_run, ".ipynb").write_text(json.dumps(notebook))
    code, text = contributed(new_run, capsys)
    assert code == 1 and "Its code is not that of notebooks/latency.ipynb" in text


def without_outputs(notebook):
    for cell in notebook["cells"]:
        cell.update({"outputs": []} if cell["cell_type"] == "code" else {})


STRIPPED = {
    "rows": (without_outputs, "Its notebook shows no rows"),
    "code": (
        lambda notebook: notebook.update(cells=[c for c in notebook["cells"] if c["cell_type"] != "code"]),
        "Its notebook has no code cells",
    ),
    "origin": (
        lambda notebook: notebook["metadata"]["papermill"].update(input_path="/tmp/faster.ipynb"),
        "Its notebook was made from notebooks/faster.ipynb, which its revision has not",
    ),
}


@pytest.mark.parametrize("name", STRIPPED)
def test_a_notebook_that_cannot_be_compared_is_refused(new_run, capsys, name):
    change, expected = STRIPPED[name]
    notebook = json.loads(part(new_run, ".ipynb").read_text())
    change(notebook)
    part(new_run, ".ipynb").write_text(json.dumps(notebook))
    code, text = contributed(new_run, capsys)
    assert code == 1 and expected in text


def test_a_long_table_is_compared_in_the_rows_that_it_shows(new_run, capsys):
    """pandas leaves out the middle of a table; its last row is the last of the CSV all the same."""
    notebook = json.loads(part(new_run, ".ipynb").read_text())
    shown = [output.get("data", {}) for cell in notebook["cells"] for output in cell.get("outputs", [])]
    (data,) = [each for each in shown if "ttft_s" in "".join(each.get("text/html", ""))]
    start, header, first, second, _, *others = re.split(r"(?=<tr)", "".join(data["text/html"]))
    dots = re.sub(r">[^<>\s]+</t", ">...</t", second)
    data["text/html"] = "".join([start, header, first, dots, *others])
    part(new_run, ".ipynb").write_text(json.dumps(notebook))
    assert contributed(new_run, capsys)[0] == 0
    data["text/html"] = data["text/html"].replace("<td>1.6152</td>", "<td>1.6052</td>")
    part(new_run, ".ipynb").write_text(json.dumps(notebook))
    code, text = contributed(new_run, capsys)
    assert code == 1 and "another e2e_s than its notebook showed, in row 9" in text


def test_another_run_s_notebook_is_refused(new_run, capsys):
    shutil.copy(part(new_run, ".ipynb", COMMITTED), part(new_run, ".ipynb"))
    code, text = contributed(new_run, capsys)
    assert code == 1 and "commit the one that this run wrote" in text


def test_a_notebook_may_have_any_name_if_it_ran_while_the_run_did(new_run, capsys):
    """The commands of README and guide write out.ipynb, and not every notebook prints its run's name."""

    def nameless(notebook, start):
        notebook["metadata"]["papermill"] |= {"output_path": "out.ipynb", "start_time": start}
        for output in (output for cell in notebook["cells"] for output in cell.get("outputs", [])):
            output.update({"text": []} if "text" in output else {})
        part(new_run, ".ipynb").write_text(json.dumps(notebook))

    notebook = json.loads(part(new_run, ".ipynb").read_text())
    sidecar = json.loads(part(new_run, ".json").read_text())
    nameless(notebook, sidecar["started"])
    assert contributed(new_run, capsys)[0] == 0
    nameless(notebook, notebook["metadata"]["papermill"]["end_time"])
    code, text = contributed(new_run, capsys)
    assert code == 1 and "Its notebook is that of out.ipynb" in text


@pytest.mark.parametrize("content", ["", "{", '{"cells": []}', "[]"])
@pytest.mark.parametrize("suffix", [".json", ".ipynb"])
def test_a_corrupt_file_is_a_fault_and_no_traceback(new_run, capsys, suffix, content):
    part(new_run, suffix).write_text(content)
    code, text = contributed(new_run, capsys)
    assert code == 1 and RUN in text and "Traceback" not in text


def test_other_files_and_links_are_no_runs(new_run, capsys):
    (new_run / "_llama-inference/notes.txt").write_text("x")
    os.symlink("/etc/hostname", new_run / "_llama-inference/onnxruntime/a-1.csv")
    code, text = contributed(new_run, capsys)
    assert code == 1 and text.count("It is no part of a run") == 2


def test_large_files_are_refused(new_run, capsys, monkeypatch):
    monkeypatch.setattr(vetting, "FILE_BYTES", 1000)
    monkeypatch.setattr(vetting, "ALL_BYTES", 2000)
    code, text = contributed(new_run, capsys)
    assert code == 1 and "are the limit: measure fewer requests" in text and "contribute in parts" in text


def test_an_instrument_that_only_the_branch_has_is_refused(new_run, capsys):
    base = subprocess.run(
        ["git", "-C", str(new_run), "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    try:
        (new_run / "llm_measured/core/metrics.py").write_text("# faster\n")
        git(new_run, "commit", "--quiet", "--all", "--message", "a faster clock")
        head = candidates.git(new_run, "rev-parse", "HEAD").strip()
        change_sidecar(new_run, lambda sidecar: sidecar["git"].update(revision=head))
        code, text = contributed(new_run, capsys, "--base", base)
        assert (
            code == 1 and "an instrument that is not the repository's: llm_measured/core/metrics.py" in text
        )
    finally:
        git(new_run, "reset", "--quiet", "--hard", base)


def test_a_repeat_without_those_before_it_is_noted(new_run):
    later = candidates.Candidate("onnxruntime/latency-smollm2-135m-int8-intel-xeon-2c-8e4d97-3")
    (note,) = contribute.notes([later], new_run)
    assert "8e4d97-2 are not here" in note and "8e4d97-1" not in note


def test_runs_of_another_folder_are_checked_and_taken(new_run, tmp_path, capsys):
    for name in (RUN, COMMITTED):
        for suffix in candidates.SUFFIXES:
            target = tmp_path / f"{name}{suffix}"
            target.parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / f"_llama-inference/{name}{suffix}", target)
            part(new_run, suffix).unlink(missing_ok=True)
    code, text = contributed(new_run, capsys, "--from", str(tmp_path), "--take")
    assert code == 0 and "1 runs beside" in text  # the other one is there already
    assert all(part(new_run, suffix).exists() for suffix in candidates.SUFFIXES)
    assert "image/" in (tmp_path / f"{RUN}.ipynb").read_text()
    taken = part(new_run, ".ipynb").read_text()
    assert "image/" not in taken and "ttft_s" in taken, "pictures stay out, rows come along"
    assert contributed(new_run, capsys)[0] == 0


def test_a_folder_without_runs_and_an_unknown_base_are_one_sentence(new_run, tmp_path, capsys):
    for arguments, expected in (
        (["--from", str(tmp_path)], "no run in"),
        (["--base", "nowhere"], "git knows no"),
    ):
        code, text = contributed(new_run, capsys, *arguments)
        assert code == 1 and expected in text and "Traceback" not in text


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
    named = set(store.judged(folder=ROOT / candidates.OBSERVATIONS)[1]["run"])
    runs = {}
    for file in sorted((ROOT / candidates.OBSERVATIONS).glob("*/*")):
        part = candidates.PART.fullmatch(file.relative_to(ROOT / candidates.OBSERVATIONS).as_posix())
        runs.setdefault(part["run"], candidates.Candidate(part["run"])).files[part["suffix"]] = file
    repository = vetting.Repository(ROOT, candidates.base(ROOT, "HEAD"), [])
    # What its notebook printed held no rows; it measures no more.
    judged = {run for run in set(runs) - named if "/overhead-" not in run}
    assert {run: found for run in judged if (found := vetting.faults(runs[run], repository))} == {}
