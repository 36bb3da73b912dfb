"""Traces: what is read of each format, and one sentence for each mistake of a file."""

import gzip
import json
import os

import pytest

from bench.paths import DATA
from bench.workloads import timing, traces

WORDS = range(100, 700)


def line(timestamp, tokens=600, answer=5, ids=None, **more):
    ids = list(range(-(-tokens // 512))) if ids is None else ids
    return {"timestamp": timestamp, "input_length": tokens, "output_length": answer, "hash_ids": ids} | more


@pytest.fixture
def written(tmp_path):
    def write(content, name="trace.jsonl"):
        path = tmp_path / name
        text = content if isinstance(content, str) else "\n".join(json.dumps(row) for row in content)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    "content, sentence",
    [
        ([line(0)], "has 1 request: a load needs two or more"),
        ("", "has no requests"),
        ("hello\n", "Line 1 of trace.jsonl is no JSON object"),
        ([{"timestamp": 1}] * 2, "trace.jsonl has no column new_tokens and no column prompt_tokens"),
        ([line(0), {"timestamp": 1}], "Line 2 of trace.jsonl has no hash_ids and no input_length and no out"),
        ([line(0), line(1, -5, ids=[0])], "Line 2 of trace.jsonl has a length of -5 tokens for its prompt"),
        ([line(0), line(1, answer=0)], "Line 2 of trace.jsonl has a length of 0 tokens for its answer"),
        ([line(5000), line(1000)], "Line 2 of trace.jsonl is 4000 before the line before it"),
        ([line(5), line(5)], "All 2 requests of trace.jsonl have the same moment"),
        ([line(float("nan")), line(5)], "Line 1 of trace.jsonl has no moment that is a number"),
        ([line(0), line(1, ids=[0])], "has 1 hash_ids for 600 tokens, and 2 of 512 tokens"),
        ([line(0), line(1, ids=["a", "b"])], "must be a list of whole numbers"),
        ("[" * 10**5, "too large for a trace"),
        ([line(0), line(1, 10**400, ids=[0])], "too large for a trace"),
        ([line(0), line(1, 601)], "Hash id 1 in line 2 of trace.jsonl stood for another prefix"),
        ([line(0), line(1, 1100, ids=[0, 2, 1])], "Hash id 1 in line 2 of trace.jsonl stood for another"),
        ([line(k * 0.3, ids=[0, k + 1]) for k in range(20)], "state the unit, s if"),
        (
            [line(0, 20, ids=[1, 2], chat_id=1, parent_chat_id=-1), line(1, 20, ids=[1, 2])],
            "Line 2 of trace.jsonl has no chat_id",
        ),
        (
            [line(k, chat_id=1, parent_chat_id=-1) for k in (0, 1)],
            "has 2 hash_ids for 600 tokens, and 38 of 16 tokens",
        ),
    ],
)
def test_a_mistake_of_json_lines_is_one_sentence(written, content, sentence):
    with pytest.raises(ValueError, match=sentence) as refused:
        traces.read(written(content))
    assert "\n" not in str(refused.value) and str(refused.value).endswith(".")


@pytest.mark.parametrize(
    "content, sentence",
    [
        ("", "cannot be read as a CSV"),
        ("a,b\n1,2\n", "no column new_tokens and no column prompt_tokens"),
        ("prompt_tokens,new_tokens,at_s\n5,5,0\n5,x,1\n", "Line 3 of trace.csv has a length of x tokens"),
        ("prompt_tokens,new_tokens,at_s\n5,5,0\n5,5,-1\n", "Line 3 of trace.csv is 1 before the line before"),
        ("prompt_tokens,new_tokens\n5,1.5\n5,5\n", "has a length of 1.5 tokens"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,5,5\nnoon,5,5\n", "no moment that is a number"),
        (
            "input,input_tokens,output\n5,5,5\n5,5,5\n",
            "input and input_tokens, which may both be prompt_tokens",
        ),
    ],
)
def test_a_mistake_of_a_csv_is_one_sentence(written, content, sentence):
    with pytest.raises(ValueError, match=sentence):
        traces.read(written(content, "trace.csv"))


@pytest.mark.parametrize(
    "head, rows",
    [
        ("timestamp,input,output", ("10,5,6", "10.5,7,8")),
        ("arrival_time,input_length,output_length", ("10,5,6", "10.5,7,8")),
        ("Timestamp,Model,Request tokens,Response tokens", ("10,m,5,6", "10.5,m,7,8")),
        ("time,ISL,OSL", ("10,5,6", "10.5,7,8")),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            ("2026-01-01 10:00:59.7,5,6", "2026-01-01 10:01:00.2,7,8"),
        ),
        ("at_s,time,prompt_tokens,new_tokens", ("10,3,5,6", "10.5,3,7,8")),
    ],
)
def test_a_csv_may_spell_its_columns_as_its_writer_does(written, head, rows):
    for unit in ("auto", "s"):
        trace = traces.read(written("\n".join((head, *rows)), "trace.csv"), unit)
        assert trace.requests["at_s"].tolist() == pytest.approx([0, 0.5])
        assert trace.requests[["prompt_tokens", "new_tokens"]].to_numpy().tolist() == [[5, 6], [7, 8]]


def test_json_lines_without_ids_are_a_table_and_gz_is_read(tmp_path):
    path = tmp_path / "trace.jsonl.gz"
    rows = [{"timestamp": k, "input_tokens": 5, "output_tokens": 6, "session_id": "a"} for k in range(3)]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    trace = traces.read(path)
    assert trace.blocks is None and trace.requests["turn"].tolist() == [1, 2, 3]
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match="cannot be read as a trace"):
        traces.read(path)


def test_requests_without_a_session_are_sessions_of_their_own(written):
    content = "timestamp,session_id,input,output\n0,a,5,6\n1,,5,6\n2,,5,6\n3,a,9,6\n"
    assert traces.read(written(content, "trace.csv")).requests["session"].tolist() == [1, 2, 3, 1]


def test_a_file_of_a_gigabyte_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "big.jsonl"
    path.touch()
    os.truncate(path, 10**9)
    with pytest.raises(ValueError, match="has 1.0 GB, more than the 0.3 GB that are read"):
        traces.read(path)


@pytest.mark.parametrize("name", ["none.jsonl", "."])
def test_what_is_no_file_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be read as a trace"):
        traces.read(tmp_path / name)


def test_a_named_unit_is_believed(written):
    path = written([line(k * 0.3, ids=[0, k + 1]) for k in range(20)])
    assert traces.read(path, "s").requests["at_s"].iloc[-1] == pytest.approx(5.7)
    with pytest.raises(ValueError, match="auto, s or ms"):
        traces.read(path, "minutes")


def test_mooncake_s_sessions_are_inferred_as_its_source_page_counts_them():
    trace = traces.read(DATA / "traces" / "mooncake_conversation.jsonl.xz")
    sizes = trace.requests.groupby("session").size()
    assert (len(sizes), (sizes == 1).sum(), (trace.requests["turn"] > 1).sum()) == (8132, 6148, 3899)
    assert sizes[sizes > 1].quantile([0.5, 0.75, 0.9, 0.99], "higher").tolist() == [2, 3, 5, 13]
    assert timing.tick_s(trace.requests["at_s"]) == pytest.approx(3, abs=0.01)


def test_bailian_s_chats_are_sessions_and_its_moments_seconds(written):
    rows = [
        line(0.5, 20, ids=[7, 8], chat_id=1, parent_chat_id=-1),
        line(1.0, 20, ids=[9, 10], chat_id=2, parent_chat_id=-1),
        line(61.0, 40, ids=[7, 11, 12], chat_id=5, parent_chat_id=1),
        line(80.0, 60, ids=[7, 11, 13, 14], chat_id=6, parent_chat_id=5),
        line(81.0, 20, ids=[15, 16], chat_id=7, parent_chat_id=99),
    ]
    trace = traces.read(written(rows))
    assert trace.block_tokens == 16 and trace.requests["at_s"].tolist() == [0, 0.5, 60.5, 79.5, 80.5]
    assert trace.requests["session"].tolist() == [1, 2, 1, 1, 3]
    assert trace.requests["turn"].tolist() == [1, 1, 2, 3, 1]


def test_bailian_s_ids_stand_for_a_block_alone_and_are_chained(written):
    """Its README: a salted hash of each block. The same block after another prefix is no hit."""
    rows = [
        line(0, 40, ids=[7, 8, 9], chat_id=1, parent_chat_id=-1),
        line(1, 40, ids=[6, 8, 9], chat_id=2, parent_chat_id=-1),
        line(2, 48, ids=[7, 8, 9], chat_id=3, parent_chat_id=1),
    ]
    trace = traces.read(written(rows))
    first, other, longer = trace.blocks
    assert not set(first) & set(other) and first[:2] == longer[:2] and first[2] != longer[2]
    assert trace.about["ids_after_another_prefix"] == 3


def test_azure_s_requests_are_sessions_of_one_turn():
    trace = traces.read(DATA / "traces" / "azure_code.csv.xz")
    assert len(trace.requests) == trace.requests["session"].nunique() == 8819
    assert trace.requests["at_s"].iloc[-1] == pytest.approx(3435.9, abs=0.1)
