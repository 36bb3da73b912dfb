"""Headlines are short, are what pandas gives from the runs, and never name speed without its loss."""

import re
import shutil

import pandas as pd
import pytest
from builders import two_engines

from bench import headlines, paths, site
from bench.observations import store
from bench.topics import tables


@pytest.fixture(autouse=True)
def committed():
    """What this checkout has measured stays out of it."""
    with site.reading(paths.TABLES):
        yield


def test_there_are_at_most_six_of_at_most_thirty_words():
    found = headlines.sentences()
    # That of long prompts needs runs whose intervals part.
    assert 5 <= len(found) <= 6
    for text in found:
        assert len(text.split()) <= headlines.MOST_WORDS, text
        assert not set("()[]") & set(text) and "session" not in text


def test_an_option_that_answers_worse_is_named_with_its_loss():
    costs = site.table("latency").query("model == 'smollm2-135m' and weights == 'real'")
    worse = {key: headlines.lost(key) for key in zip(costs["backend"], costs["option"])}
    assert worse[("llamacpp", "Q4_0")] and not worse[("llamacpp", "F16")]
    for text in headlines.sentences():
        for (backend, option), lost in worse.items():
            named = text.startswith("Short-prompt") and f"**{backend} {option}**" in text
            assert not named or lost in text, text


def test_the_lines_beside_each_sentence_give_its_numbers(capsys, monkeypatch):
    """data/proof/headlines.md, run from top to bottom: it has every sentence, and prints what stands there."""
    monkeypatch.chdir(paths.ROOT)
    text = (paths.ROOT / "data/proof/headlines.md").read_text(encoding="utf-8")
    assert re.findall("^> (.*)$", text, re.M) == headlines.sentences()
    names: dict = {}
    for code, printed in re.findall(r"```python\n(.*?)```(?:\n\n```\n(.*?)```)?", text, re.S):
        exec(code, names)
        assert capsys.readouterr().out.strip() == printed.strip()


@pytest.fixture
def planted(tmp_path):
    """A function that says the headlines of the committed tables with one of them changed."""
    shutil.copytree(paths.TABLES, tmp_path / "tables")

    def said(name, change):
        file = tmp_path / "tables" / f"{name}.csv"
        change(pd.read_csv(file, dtype={"host": str})).to_csv(file, index=False)
        with site.reading(tmp_path / "tables"):
            return headlines.sentences()

    return said


def context_rows(table, half):
    row = dict(backend="a", option="Q4_0", model="qwen2.5-coder-1.5b", weights="real", gpu="epyc-zen4-2c")
    row |= {"host": "x", "machine": "epyc-zen4-2c", "prompt_tokens": 4096, "kept_interval": half}
    kept = {"a": (0.2, 80.0), "b": (0.7, 40.0)}
    rows = [row | {"backend": name, "kept": share, "ttft_s": ttft} for name, (share, ttft) in kept.items()]
    return pd.DataFrame([*rows, rows[0] | {"prompt_tokens": 128, "kept": 1.0}], columns=table.columns)


def test_what_a_long_prompt_leaves_is_said_where_the_intervals_part(planted):
    said = [text for text in planted("context", lambda table: context_rows(table, 0.1)) if "4,096" in text]
    assert said == [
        "After 4,096 tokens qwen2.5-coder-1.5b keeps 20 % of its pace with **a Q4_0**, 70 % with **b Q4_0**; "
        "first tokens after 40 to 80 s, on Zen 4."
    ]
    for half in (0.3, None):
        assert "4,096" not in " ".join(planted("context", lambda table: context_rows(table, half)))


LEAVES_OPEN = {"ratio": 1.1, "low": 0.9, "high": 1.3}
CONTRADICTS = {"ratio": 0.5, "low": 0.4, "high": 0.6}


@pytest.mark.parametrize("row", [LEAVES_OPEN, CONTRADICTS])
@pytest.mark.parametrize("where", ["across_machines", "sizes_pairs"])
def test_one_machine_or_one_size_that_does_not_agree_takes_the_direction_away(planted, where, row):
    """Planted: the two fastest in four bits differ everywhere in one direction; then one row does not."""

    def orient(table):
        first, second = ("backend", "than_backend") if "than_backend" in table else ("first", "second")
        asked = [table[first].str.startswith("llamacpp"), table[second].str.startswith("llamacpp")]
        return table.assign(ratio=1.5, low=1.4, high=1.6).where(
            ~asked[1], table.assign(ratio=0.6, low=0.55, high=0.65)
        )

    before = planted("sizes_pairs", orient), planted("across_machines", orient)
    (text,) = [each for each in before[1] if each.startswith("Short-prompt speed, **llamacpp Q4_0** over")]
    assert "times as fast on 4 processors" in text

    def plant(table):
        if where == "across_machines":
            keys = table[["backend", "option", "than_backend", "than_option", "gpu"]].apply(tuple, axis=1)
            here = keys == ("llamacpp", "Q4_0", "onnxruntime", "int4", "intel-xeon-2c")
        else:
            both = table["first"] + table["second"]
            here = both.str.contains("llamacpp Q4_0") & both.str.contains("onnxruntime int4")
            here &= table["model"] == "qwen2.5-coder-0.5b"
        assert here.sum() == 1
        turned = {"ratio": 1 / row["ratio"], "low": 1 / row["high"], "high": 1 / row["low"]}
        straight = table.loc[here, [*table.columns.intersection(["backend", "first"])]].iloc[0, 0]
        table.loc[here, list(row)] = list((row if straight.startswith("llamacpp") else turned).values())
        return table

    (text,) = [
        each
        for each in planted(where, plant)
        if each.startswith("Short-prompt speed, **llamacpp Q4_0** over")
    ]
    assert "as fast" not in text and "at 1.5B" in text and "at 0.5B" in text and "at 135M" in text


@pytest.mark.parametrize("why", ["not judged", "others used 7% of the CPU"])
def test_a_run_that_is_not_compared_is_in_no_sentence(planted, why):
    def mark(table):
        return table.assign(reason=table["reason"].where(table["option"] != "as-shipped", why))

    assert any("as shipped" in text for text in planted("sizes", lambda table: table))
    assert not any("as shipped" in text for text in planted("sizes", mark))


def serving_rows(table, near):
    """Two servers of the largest model, each with two rates of arrivals."""
    row = dict(model="qwen2.5-coder-1.5b", weights="real", gpu="epyc-zen4-2c", host="x", machine="m", met=0.0)
    row |= {"backend": "a", "option": "Q4_0", "state": "steady", "request_rate": 0.5, "near": 1.0}
    row |= {"ttft_p50_s": 1.2}
    rows = [row, row | {"request_rate": 1.0, "near": near, "ttft_p50_s": 1.4}]
    rows += [row | {"backend": "b"}, row | {"backend": "b", "request_rate": 1.0, "state": "overloaded"}]
    rows += [row | {"backend": "b", "request_rate": 0.8, "state": "too short"}]
    return pd.DataFrame(rows, columns=table.columns)


def test_servers_are_said_up_to_the_rate_at_which_first_tokens_stay_near(planted):
    (text,) = [
        each for each in planted("serving", lambda table: serving_rows(table, 0.95)) if "unloaded" in each
    ]
    assert text == (
        "qwen2.5-coder-1.5b, Zen 4: 90 % of first tokens within 3 times the unloaded up to 1/s with **a Q4_0** "
        "and 0.5/s with **b Q4_0**; medians 1.2 to 1.4 s."
    )
    (text,) = [
        each for each in planted("serving", lambda table: serving_rows(table, 0.85)) if "unloaded" in each
    ]
    assert "up to 0.5/s with **a Q4_0**" in text


def test_a_draft_that_helps_on_another_machine_takes_the_direction_away(planted):
    def plant(table):
        slower = table[table["verdict"] == "slower"].assign(gpu="epyc-zen5-2c", ratio=1.4, low=1.3, high=1.5)
        return pd.concat([table, slower])

    (text,) = [each for each in planted("drafts", plant) if each.startswith("A draft model")]
    assert "0.54 to 1.4 on Zen 4 and 5" in text


def test_without_runs_there_are_no_headlines(tmp_path, nothing):
    tables.write(nothing, tmp_path)
    with site.reading(tmp_path):
        assert headlines.sentences() == []


def test_a_repository_claims_only_what_git_keeps(tmp_path):
    """The README has the committed tables' sentences, whatever is read elsewhere."""
    tables.write(store.load(folder=two_engines(tmp_path / "runs")), tmp_path)
    place = "<!-- findings: x -->\n<!-- end of findings -->"
    with site.reading(tmp_path):
        here, text = headlines.sentences(), headlines.readme(place)
    assert re.findall("^- (.*)$", text, re.M)[:-1] == headlines.sentences() != here
