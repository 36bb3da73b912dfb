"""The report: exit codes, hostile and damaged files, what it imports, our own runs."""

import json
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest

from bench.observations import store
from bench.paths import ROOT
from llm_measured.audit import checks, report
from llm_measured.audit.checks import causes, identities
from llm_measured.audit.checks.finding import CONTRADICTION, MISSING, REGISTRY
from llm_measured.audit.importers import tables
from llm_measured.published import build

HOSTILE = (
    'model,gpu,tp,weights,batch_size,output_tokens_per_s,note\n"<script>alert(1)</script> '
    'llama-2-7b",A100-80GB,1,float32,1,104.1,"=1+1\x1b[31m"\n'
)


def test_hostile_content_is_shown_and_never_executed(tmp_path, capsys):
    file, machine = tmp_path / "<img src=x onerror=alert(1)>.csv", tmp_path / "out.json"
    file.write_text(HOSTILE)
    assert report.main([str(file), "--json", str(machine)]) == 1
    assert "\x1b" not in capsys.readouterr().out
    assert json.loads(machine.read_text())["findings"][0]["check"] == "bandwidth_beyond_device"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("empty.csv", b"", "is empty"),
        ("binary.json", b"{\0\0\0", "is not text"),
        ("cut.json", b'{"mean_ttft_ms": 3, "request', "is damaged"),
        ("deep.json", b"[" * 200_000, "nested too deep"),
        ("prose.txt", b"hello\nthere\n", "no known format"),
        ("wrong.json", b'{"benchmarks": [{"metrics": 5}]}', "not what that tool writes"),
        ("open.csv", b'model,tpot_ms\n"a,3\n' + b"x,4\n" * 400_000, "is damaged"),
        ("long.csv", b"tpot_ms\n" + b"9" * (1 << 21), "more than"),
        ("code.yaml", b"!!python/object/apply:os.system [exit 1]", "begins as YAML but does not parse"),
        ("service.yaml", b"apiVersion: v1\nkind: Service\n", "no known format"),
        (
            "bars.md",
            b"| a | b |\n|---|---|\n" + b"|" * 5_000 + b"\n" + b"x: " * 5_000 + b"[" * 5_000,
            "no known format",
        ),
        ("score.csv", b"Model,Result,Units\nllama2-70b,99.9,ROUGE1\n", "ROUGE1"),
        ("german.csv", b"maschine,tempo\nH100 SXM,100\n", "no known format"),
    ],
)
def test_a_file_that_cannot_be_read_gives_one_sentence_that_names_it(
    tmp_path, capsys, name, content, sentence
):
    file = tmp_path / name
    file.write_bytes(content)
    assert report.main([str(file)]) == 2
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Not read")]
    assert len(said) == 1 and name in said[0] and sentence in said[0] and str(tmp_path) not in said[0]


def test_a_file_that_is_not_there_does_not_hide_the_others(tmp_path, capsys):
    file = tmp_path / "good.csv"
    file.write_text("concurrency,ttft_ms,tpot_ms\n1,20,8\n")
    assert report.main([str(tmp_path / "absent.json"), str(file)]) == 2
    shown = capsys.readouterr().out
    assert "absent.json is not a file" in shown and "good.csv" in shown


def test_nothing_heavy_is_imported():
    code = (
        "import sys, llm_measured.audit; heavy = {'torch', 'transformers', 'scipy', 'matplotlib', 'ijson'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize("every", [60, pytest.param(1, marks=pytest.mark.check)])
def test_our_own_committed_runs_raise_nothing_impossible_and_no_contradiction(every):
    """As the page Check and reproduce says; a file that cannot be read is an error."""
    files = store.files()[::every]
    findings, _, unread = report.collect(files)
    assert not unread and {finding.kind for finding in findings} == {MISSING}
    assert len(store.files()) > 100


@pytest.mark.parametrize("more", [0, 50], ids=["as planned", "beyond the plan"])
@pytest.mark.parametrize("experiment", ["conversations", "passes"])
def test_hits_that_a_run_plans_are_no_contradiction_and_more_are(tmp_path, experiment, more):
    run = next(file for file in store.files() if file.name.startswith(f"{experiment}-"))
    table = pd.read_csv(run)
    table["cached_tokens"] += more * (table["cached_tokens"] > 0)
    table.to_csv(tmp_path / run.name, index=False)
    findings, _, _ = report.collect([tmp_path / run.name])
    hits = [finding for finding in findings if finding.check == "prefix_cache"]
    assert bool(hits) == bool(more) and [f for f in findings if f.kind == CONTRADICTION] == hits


def test_the_text_names_each_kind_and_what_follows_from_what(tmp_path):
    file = tmp_path / "levels.csv"
    head = "model,gpu,tp,weights,concurrency,prompt_tokens,output_tokens,e2e_s,output_tokens_per_s\n"
    file.write_text(head + "Llama-3-8B,H100 SXM,1,bf16,1,900,100,1.0,1000\n")
    findings, notes, unread = report.collect([file])
    shown = report.text(findings, notes, unread)
    assert "CONTRADICTS ITSELF" in shown and "1,000 tokens/s become 100 tokens/s" in " ".join(shown.split())
    assert "[follows from" not in shown and "--all lists" in shown
    assert max(map(len, shown.splitlines())) <= report.WIDTH
    whole = report.text(findings, notes, unread, everything=True)
    assert "[follows from prompt_counted_as_output]" in " ".join(whole.split())


def test_every_check_has_a_statement_a_formula_and_a_source():
    table = checks.table()
    assert (table[["statement", "formula", "source"]].map(len) > 3).all(axis=None) and table["name"].is_unique
    assert set(checks.ORDER) <= set(table["name"])
    assert {name for names in table["explains"] for name in names} <= set(table["name"])


def test_a_check_that_breaks_off_is_a_sentence_and_the_others_go_on(monkeypatch):
    monkeypatch.setitem(REGISTRY, "overload", replace(REGISTRY["overload"], function=lambda audited: 1 / 0))
    found, *_ = report.collect([ROOT / "tests" / "audit" / "files" / "s10-ttft-is-e2e.json"])
    assert "not_streamed" in [one.check for one in found]
    assert any("broke off (ZeroDivisionError" in one.sentence for one in found)


@pytest.mark.check
def test_of_published_rows_that_are_ok_at_most_one_in_200_contradicts_itself():
    """As data/proof/audit.md counts them: each source's rows read as anybody's table, by their columns' names."""
    published = build.table()
    good = published[published["audit"] == "ok"]
    wrong = 0
    for source, rows in good.groupby("source"):
        rows = rows.reset_index(drop=True).dropna(axis=1, how="all")
        read = tables.audited(rows, tables.meanings(rows.columns, None), source, of_levels=True)
        wrong += int(identities.misfits(read)[~causes.ASSUMED].any(axis=0).sum())
    assert 0 < 200 * wrong < len(good)
