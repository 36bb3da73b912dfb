"""Identities and causes: three inputs a kind (identities.yaml), the guards of a cause, and a file that a tool
wrote, changed by one mistake."""

import copy
import json
from pathlib import Path

import pytest
import yaml
from thinning import a_third

from bench.paths import ROOT
from llm_measured.audit import report
from llm_measured.audit.checks.finding import ALARMS

INPUTS = yaml.safe_load(Path(__file__).with_name("identities.yaml").read_text(encoding="utf-8"))
SAMPLE = ROOT / "data" / "audits" / "samples" / "vllm-bench-serve.json"


def audited(file):
    """(names of the alarms, first that leads, the report in one line)."""
    findings, notes, unread, good, number, placed = report.full([file])
    shown = report.text(findings, notes, unread, number, good, False, placed)
    alarms = [f.check for f in findings if f.kind in ALARMS and not f.consequence_of]
    return alarms, " ".join(shown.split())


@pytest.mark.parametrize("case", INPUTS, ids=[f"{one['kind']}, {one['name']}" for one in INPUTS])
def test_a_cause_is_named_where_it_mends_everything_it_touches(case, tmp_path):
    file = tmp_path / case["name"]
    file.write_text(case["text"], encoding="utf-8")
    alarms, shown = audited(file)
    if "finds" in case:
        assert (alarms or ["none"])[0] == case["finds"], shown
    for words in case.get("says", []):
        assert str(words).lower() in shown.lower()
    for words in case.get("never", []):
        assert str(words) not in shown


HEAD = "tp,concurrency,prompt_tokens,output_tokens,requests_per_s,e2e_mean_s,output_tokens_per_s\n"


@pytest.mark.parametrize(
    ("row", "check"),
    [
        ("2,9,100,300,4,2.0,2400", "rate_of_other_scope"),  # 4 × 300 × 2 devices
        ("2,9,300,300,4,2.0,2400", "plain_sums"),  # (d) the prompt does as well
        ("2,9,100,300,4,2.0,2520", "plain_sums"),  # (c) 5 % are left
        ("2,9,100,300,4.01,2.0,1340", "plain_sums"),  # (c) 12 % need no cause
        ("1,9,100,300,4,2.0,2400", "plain_sums"),  # one device is no device called all
        ("2,1,100,300,4,0.2,2400", "rate_of_other_scope"),  # one user is no user called all
        ("2,9,100,300,4,6.0,1200", "littles_law"),  # Little's law alone has no cause
    ],
)
def test_each_guard_keeps_a_cause_from_being_named(row, check, tmp_path):
    file = tmp_path / "table.csv"
    file.write_text(HEAD + row + "\n")
    alarms, shown = audited(file)
    assert alarms[0] == check, shown
    assert ("become" in shown) == (check == "rate_of_other_scope")


def test_what_breaks_another_identity_is_no_cause(tmp_path):
    """(a) The rate would fit with the prompt taken out, and then no longer the total that it fits now."""
    file = tmp_path / "run.csv"
    head = "requests,duration_s,prompt_tokens,output_tokens,total_output_tokens,output_tokens_per_s\n"
    file.write_text(head + "50,100,100,100,10000,100\n")
    alarms, shown = audited(file)
    assert alarms == ["plain_sums"] and "become" not in shown


def test_one_substitution_with_other_factors_in_three_rows_settles_it(tmp_path):
    """(b) A limit alone has no cause, and three prompts of other lengths that come out equal are one."""
    head = "concurrency,prompt_tokens,output_tokens,e2e_s,output_tokens_per_s\n"
    rows = [f"4,{prompt},200,5.0,{4 * (prompt + 200) / 5:g}\n" for prompt in (150, 600, 1400)]
    file = tmp_path / "loops.csv"
    file.write_text(head + rows[0] + rows[1])
    assert audited(file)[0][0] == "littles_law"
    file.write_text(head + "".join(rows))
    assert audited(file)[0][0] == "prompt_counted_as_output"


def _prompt(d):
    d["output_lens"] = [a + b for a, b in zip(d["output_lens"], d["input_lens"], strict=True)]
    d["total_output_tokens"] = sum(d["output_lens"])
    d["output_throughput"] = d["total_output_tokens"] / d["duration"]


def _prompt_in_rate(d):
    d["output_throughput"] = d["total_token_throughput"]


def _long_events(d):
    d["itls"] = [[sum(gaps[k : k + 3]) for k in range(0, 15, 3)] for gaps in d["itls"]]


def _cached(d):
    d["latencies"][5], d["ttfts"][5], d["itls"][5] = 0.0004, 0.0003, [1e-6] * 15


def _throughput(d):
    d["output_throughput"] *= 1.4


def _failed(d):
    d |= {"completed": 18, "failed": 6, "num_prompts": 24}
    for name in ("input_lens output_lens ttfts itls latencies start_times queue_times errors").split():
        d[name] = d[name][:18]
    d["total_input_tokens"], d["total_output_tokens"] = sum(d["input_lens"]), sum(d["output_lens"])


@pytest.mark.parametrize(
    ("tamper", "check"),
    [
        (_prompt, "prompt_counted_as_output"),
        (_prompt_in_rate, "prompt_counted_as_output"),
        (_long_events, "tokens_per_event"),
        (_cached, "cached_answer_in_mean"),
        (_throughput, "plain_sums"),
        (_failed, "failed_counted_as_throughput"),
        (lambda d: None, "none"),
    ],
)
def test_a_mistake_is_found_in_a_file_that_vllm_wrote(tmp_path, tamper, check):
    content = copy.deepcopy(json.loads(SAMPLE.read_text(encoding="utf-8")))
    tamper(content)
    file = tmp_path / "result.json"
    file.write_text(json.dumps(content))
    assert (audited(file)[0] or ["none"])[0] == check


SHUFFLED = ["output tok/s", "Mean E2E (s)", "ISL", "OSL", "Users", "GPU count"]


@pytest.mark.parametrize("turn", a_third(range(len(SHUFFLED))))
def test_headings_in_any_order_and_words_say_the_same(turn, tmp_path):
    figures = dict(zip(SHUFFLED, (1500, 10, 2000, 500, 6, 1), strict=True))
    columns = SHUFFLED[turn:] + SHUFFLED[:turn]
    file = tmp_path / "table.csv"
    file.write_text(",".join(columns) + "\n" + ",".join(str(figures[c]) for c in columns) + "\n")
    assert audited(file)[0][0] == "littles_law"
