"""Headlines are short, are what pandas gives from the runs, and never name speed without its loss."""

import glob
import inspect
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


def test_there_are_at_most_eight_of_at_most_thirty_words():
    found = headlines.sentences()
    assert len(found) == len(headlines.HEADLINES) <= headlines.MOST
    for text in found:
        assert len(text.split()) <= headlines.MOST_WORDS, text
        assert not set("()[]") & set(text) and "session" not in text


def raw(pattern):
    """The rows of committed runs as their CSVs have them, with pandas alone."""
    files = glob.glob(str(paths.COMMITTED / pattern))
    rows = pd.concat(pd.read_csv(file, dtype={"host": str}) for file in files)
    return rows.assign(rate=rows["output_tokens"] / rows["e2e_s"])


def test_means_are_what_pandas_gives_from_the_runs():
    rows, found = raw("*/latency-smollm2-135m-*096e72*.csv"), headlines.Rows()
    runs = rows.groupby(["backend", "option", "run_id"]).agg(
        rate=("rate", "mean"), ttft_s=("ttft_s", "median")
    )
    means = runs.groupby(level=[0, 1]).mean()
    assert found.means("output_tokens_per_s").to_dict() == pytest.approx(means["rate"].to_dict(), rel=1e-5)
    assert found.means("ttft_s").to_dict() == pytest.approx(means["ttft_s"].to_dict(), rel=1e-5)
    texts = rows.groupby(["backend", "option", "prompt"])["output_ids"].agg(set).unstack()
    same = texts.index[texts.apply(lambda row: row.equals(texts.loc[headlines.REFERENCE]), axis=1)]
    assert set(found.alike()) == set(same)


def test_gains_of_batches_are_what_pandas_gives_from_the_runs():
    rows = raw("*/batching-smollm2-135m-*096e72*.csv")
    rows = rows[(rows["prompt_tokens"] == 512) & (rows["max_new_tokens"] == 64)]
    rows = rows.assign(ended_s=rows["sent_s"] + rows["e2e_s"])
    batches = rows.groupby(["backend", "option", "run_id", "batch_size", "sent_s"])
    rate = batches["output_tokens"].sum() / (batches["ended_s"].max() - batches["sent_s"].min())
    rates = rate.groupby(["backend", "option", "run_id", "batch_size"]).median().unstack()
    gains = rates.div(rates[1], axis=0).groupby(["backend", "option"]).mean().stack()
    table = pd.read_csv(paths.TABLES / "batching.csv", dtype={"host": str})
    usual = headlines.usual_batches(table[table["host"] == "096e72"])
    usual = usual.set_index(["backend", "option", "batch_size"])["gain"]
    assert len(usual) > 5 and usual.to_dict() == pytest.approx(gains[usual.index].to_dict(), rel=1e-5)


def test_an_option_that_answers_worse_is_named_with_its_loss():
    rows = headlines.Rows()
    options = set(zip(rows.costs["backend"], rows.costs["option"]))
    worse = {config: rows.lost(config) for config in options if rows.lost(config)}
    assert ("llamacpp", "Q4_0") in worse and ("llamacpp", "F16") not in worse
    for text in headlines.sentences():
        for (backend, option), lost in worse.items():
            assert f"**{backend} {option}**" not in text or lost in text, text


def test_ratios_are_those_of_the_tables_at_every_size_and_on_every_processor():
    text = " ".join(headlines.sentences())
    pairs = headlines.ratios(("llamacpp", "Q4_0"), ("onnxruntime", "int4"))
    assert len(pairs) == 9 and pairs["model"].nunique() == 3 and pairs["gpu"].nunique() == 4
    small = pairs.loc[pairs["model"] == "smollm2-135m", "ratio"]
    assert f"{small.min():.2g} to {small.max():.2g} at 135M" in text
    for ratio in pairs.loc[pairs["model"] != "smollm2-135m", "ratio"]:
        assert f"{ratio:.2g} at" in text
    drafts = pd.read_csv(paths.TABLES / "drafts.csv")
    slower = drafts[drafts["verdict"] == "slower"]
    assert len(slower) and all(f"{ratio:.2g} times as fast" in text for ratio in slower["ratio"])
    served = pd.read_csv(paths.TABLES / "serving.csv")
    served = served[(served["backend"] == "vllm") & served["request_rate"].notna()]
    held = served[served["met"] == 1].groupby("gpu")["request_rate"].max()
    assert len(held) == 2
    for gpu, rate in held.items():
        assert f"{rate:g}/s on {headlines.processor(gpu)}" in text


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
    (text,) = [each for each in before[1] if each.startswith("Speed, **llamacpp Q4_0** over")]
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

    (text,) = [each for each in planted(where, plant) if each.startswith("Speed, **llamacpp Q4_0** over")]
    assert "as fast" not in text and "at 1.5B" in text and "at 0.5B" in text and "at 135M" in text


def test_nothing_is_fastest_where_one_machine_or_option_contradicts_it(planted):
    (text,) = [each for each in planted("latency", lambda table: table) if "token for token" in each]
    assert "the fastest that answers" in text

    def plant(table):
        keys = table[["backend", "option", "than_backend", "than_option", "gpu"]].apply(tuple, axis=1)
        here = keys == ("llamacpp", "F16", "openvino", "F16", "epyc-zen3-2c")
        assert here.sum() == 1
        table.loc[here, ["ratio", "low", "high"]] = 1.0, 0.9, 1.1
        return table

    (text,) = [each for each in planted("across_machines", plant) if "token for token" in each]
    assert "the fastest" not in text and "highest mean speed on Zen 5" in text


def test_a_draft_that_helps_on_another_machine_takes_the_direction_away(planted):
    def plant(table):
        slower = table[table["verdict"] == "slower"].assign(gpu="epyc-zen5-2c", ratio=1.4, low=1.3, high=1.5)
        return pd.concat([table, slower])

    (text,) = [each for each in planted("drafts", plant) if each.startswith("A draft model")]
    assert "0.54 to 1.4 on Zen 4 and 5" in text


def test_tokens_by_processor_are_what_pandas_gives_from_the_runs():
    """Q4_0 of openvino on Zen 3: two of nine prompts as on Zen 5; the table and the sentence have it."""
    rows = raw("openvino/latency-smollm2-135m-Q4_0-*.csv")
    texts = rows.groupby(["host", "prompt"])["output_ids"].agg(set).unstack(0)
    same = sum(len(a | b) == 1 for a, b in zip(texts["a87c2b"], texts["096e72"]))
    table = pd.read_csv(paths.TABLES / "tokens.csv", dtype={"host": str})
    own = table[(table["backend"] == "openvino") & (table["option"] == "Q4_0") & (table["host"] == "a87c2b")]
    assert own["same_answers"].tolist() == [same] == [2]
    differ = table[(table["same_answers"] < table["prompts"]) & (table["experiment"] == "latency")]
    (text,) = [each for each in headlines.sentences() if each.startswith("Greedy tokens")]
    assert all(f"{a} {b}" in text for a, b in zip(differ["backend"], differ["option"]))
    assert differ["bits"].max() <= 8 and set(differ["gpu"]) == {"epyc-zen3-2c", "intel-xeon-2c"}


def test_engines_are_named_by_tables_and_not_by_functions():
    """The names of engines stand in no function: another study's engines get the same sentences."""
    names = {name for name in pd.read_csv(paths.TABLES / "runs.csv")["backend"]}
    text = inspect.getsource(headlines)
    assert [name for name in sorted(names) if name in text] == ["transformers"], "the reference alone"


def test_no_page_says_not_measured_of_a_column_that_has_rows():
    """What a typed sentence calls not measured, or by nobody, is not in the tables either."""
    text = " ".join(file.read_text(encoding="utf-8") for file in sorted(paths.ROOT.glob("pages/*.qmd")))
    prose = re.sub(r"```.*?```", " ", text, flags=re.S)
    claims = [
        each
        for each in re.split(r"(?<=[.:!?])\s", prose)
        if re.search(r"\b(nobody|not measured)\b", each, re.I)
    ]
    tables_ = {
        name: pd.read_csv(paths.TABLES / f"{name}.csv")
        for name in ("runs", "serving", "batching", "humaneval")
    }
    for claim in claims:
        for name, table in tables_.items():
            for value in {*table["model"].dropna(), *table["backend"].dropna()}:
                assert not re.search(rf"\b{re.escape(value)}\b", claim), (name, value, claim)


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
