"""Headlines are short, are what pandas gives from the runs, and never name speed without its loss."""

import glob
import re

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
    usual = headlines.usual_batches(headlines.Rows()).set_index(["backend", "option", "batch_size"])["gain"]
    assert len(usual) > 5 and usual.to_dict() == pytest.approx(gains[usual.index].to_dict(), rel=1e-5)


def test_an_option_that_answers_worse_is_named_with_its_loss():
    rows = headlines.Rows()
    options = set(zip(rows.costs["backend"], rows.costs["option"]))
    worse = {config: rows.lost(config) for config in options if rows.lost(config)}
    assert ("llamacpp", "Q4_0") in worse and ("llamacpp", "F16") not in worse
    for text in headlines.sentences():
        for (backend, option), lost in worse.items():
            assert f"**{backend} {option}**" not in text or lost in text, text


def test_a_claim_of_one_direction_names_what_contradicts_it():
    """Ratios are those of the tables at every size and on every processor, losers beside winners."""
    text, pairs = " ".join(headlines.sentences()), pd.read_csv(paths.TABLES / "sizes_pairs.csv")
    rows = pairs[
        pairs["first"].str.startswith("onnxruntime int4") & pairs["second"].str.startswith("llamacpp Q4_0")
    ]
    assert len(rows) == 3
    for ratio, model in zip(1 / rows["ratio"], rows["model"]):
        assert f"{ratio:.2g} at {headlines.size_words(model)}" in text
    drafts = pd.read_csv(paths.TABLES / "drafts.csv")
    slower = drafts[drafts["verdict"] == "slower"]
    assert len(slower) and all(f"{ratio:.2g} times as fast" in text for ratio in slower["ratio"])
    served = pd.read_csv(paths.TABLES / "serving.csv")
    served = served[(served["backend"] == "vllm") & served["request_rate"].notna()]
    held = served[served["met"] == 1].groupby("gpu")["request_rate"].max()
    assert len(held) == 2
    for gpu, rate in held.items():
        assert f"{rate:g}/s on {headlines.processor(gpu)}" in text


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


def test_servers_have_the_headlines_about_more_than_one_request():
    said = headlines.sentences(headlines.OF_SERVERS)
    assert len(said) == len(headlines.OF_SERVERS) and set(said) < set(headlines.sentences())
