"""The schema, the gates, and that a run is written whole or not at all. Each test breaks one thing in a run that passes."""

import errno
import json
import math
import os
import time

import pandas as pd
import pictures
import pytest
from builders import make_rows, make_sidecar, write_run

from bench import inputs
from bench.observations import checks, schema, store
from bench.paths import ROOT
from bench.topics import estimates, machines
from bench.topics import latency as latency_analysis

# What git keeps: a reader who has run `make study` has runs of their own beside them.
COMMITTED = store.committed_files()


def refused(rows, sidecar, folder):
    with pytest.raises(checks.Rejected) as caught:
        store.write(rows, sidecar, rows[0]["run_id"], folder)
    assert not list(folder.rglob("*.csv"))
    return str(caught.value)


def test_a_good_run_is_read_back_as_it_was_written(tmp_path):
    path = write_run(tmp_path)
    assert path == tmp_path / "fake" / "latency-smollm2-135m-float32-test-cpu-abc123-1.csv"
    requests = store.load([path])
    assert list(requests["request"]) == [1, 2, 3]
    assert requests["answer"].iloc[0] == 'a,b "c"\n<script>'
    assert requests["tpot_s"].iloc[0] == pytest.approx(0.01)
    # 1e8 bytes of weights and (8 + 10 / 2) tokens of 1,000 numbers of 4 bytes in 10 ms, of 39 GB/s:
    # the 95 % quantile of two probes, 20 and 40
    assert requests["mbu"].iloc[0] == pytest.approx((1e8 + 13 * 4000) / 0.01 / 39e9)


@pytest.mark.parametrize("answer", ["ends\r", "\r", "a\rb", "a\r\nb\n\r", " \t", '"', "5"])
def test_an_answer_comes_back_to_the_character(tmp_path, answer):
    path = write_run(tmp_path, answer=answer)
    assert list(store.load([path])["answer"]) == [answer] * 3
    assert store.judged([path])[1].empty
    assert list(pd.read_csv(path, dtype=str, keep_default_na=False)["answer"]) == [answer] * 3
    assert path.read_bytes().endswith(b"\n") and not path.read_bytes().endswith(b"\r\n")


# Every gate by itself is tested in test_gates_by_hand.py.
REFUSED = [
    # Llama-2-7B (13.21 GB in 16 bits) at 191 tokens/s on an A100-80GB of 2,039 GB/s, as was once published: 124 %.
    (
        make_rows(rate=191.0),
        {"weight_bytes": 13.21e9, "bandwidth_probes_bytes_per_s": [2039e9]},
        "MBU is 1.24",
    ),
    (make_rows(error="MemoryError: no room"), {}, "no room"),
    (
        make_rows(workload="conversations", cache_capacity_tokens=0, cached_tokens=1),
        {},
        "answered 3 requests from its prefix cache",
    ),
]


@pytest.mark.parametrize(("rows", "sidecar", "words"), REFUSED, ids=[words for *_, words in REFUSED])
def test_what_cannot_be_is_refused_and_nothing_is_written(tmp_path, rows, sidecar, words):
    assert words in refused(rows, make_sidecar(**sidecar), tmp_path)


def test_mbu_above_one_is_refused_where_no_probe_had_its_cores(tmp_path):
    # 100 GB/s; a probe of 40 whose readers had half of their cores bounds the roof at 80, one with 30 % at 133.
    crowded = make_sidecar(weight_bytes=1e9, bandwidth_probes_bytes_per_s=[40e9], probe_cpu_shares=[0.5])
    assert "MBU is 1.25, above 1" in refused(make_rows(), crowded, tmp_path)
    path = store.write(make_rows(), crowded | {"probe_cpu_shares": [0.3]}, make_rows()[0]["run_id"], tmp_path)
    assert store.load([path])["mbu"].isna().all()


def test_a_failed_request_stays_as_a_row(tmp_path):
    rows = make_rows()
    rows[1] = {k: v for k, v in rows[1].items() if k not in ("ttft_s", "e2e_s")} | {
        "error": "RuntimeError: gone",
        "output_tokens": 0,
        "output_ids": "",
    }
    requests = store.load([store.write(rows, make_sidecar(), rows[0]["run_id"], tmp_path)])
    assert list(requests["error"]) == ["", "RuntimeError: gone", ""]
    assert latency_analysis.summary(requests)["failed"].tolist() == [1]
    assert latency_analysis.summary(requests)["output_tokens_per_s"].iloc[0] == pytest.approx(10 / 0.14)


def test_a_run_that_shared_its_machine_is_named_to_who_reads_it(tmp_path, recwarn):
    calm, busy = make_rows(run=1), make_rows(run=2)
    store.write(calm, make_sidecar(), calm[0]["run_id"], tmp_path, scratch=True)
    assert len(store.load(folder=tmp_path)) == len(calm)
    assert not [one for one in recwarn if "shared" in str(one.message)]
    store.write(busy, make_sidecar(busy_cores={"others": 0.9}), busy[0]["run_id"], tmp_path, scratch=True)
    with pytest.warns(
        UserWarning, match="1 of 2 runs shared their machine .* no measurement .*-2; its sidecar"
    ):
        store.load(folder=tmp_path)


def test_a_marked_run_lies_apart_and_is_read_only_where_it_is_asked_for(tmp_path, recwarn):
    write_run(tmp_path, option="int8")
    rows, busy = make_rows(), {"busy_cores": {"others": 0.9, "steal": 0.0}}
    path = store.write(rows, make_sidecar(**busy), rows[0]["run_id"], tmp_path, marked=True)
    assert path == tmp_path / "shared" / "fake" / f"{rows[0]['run_id'].split('/')[1]}.csv"
    assert set(store.load(folder=tmp_path)["option"]) == {"int8"} and path not in store.files(tmp_path)
    both = store.load(folder=tmp_path, shared=True)
    assert dict(zip(both["option"], both["shared_by"])) == {
        "int8": "",
        "float32": "others used 45% of the CPU",
    }
    assert not [one for one in recwarn if "shared" in str(one.message)], "who asks for them knows"
    with pytest.raises(FileExistsError):
        store.write(rows, make_sidecar(**busy), rows[0]["run_id"], tmp_path, marked=True)
    identity = {name: rows[0][name] for name in ("experiment", "backend", "model", "option", "gpu", "host")}
    assert store.next_number(identity, tmp_path) == 2
    assert (
        store.write(rows, make_sidecar(), rows[0]["run_id"], tmp_path, marked=True).parent.parent == tmp_path
    )


def test_no_run_that_shared_its_machine_is_one_of_the_published():
    assert store.is_published(ROOT / "_llama-inference" / "fake" / "run-1.csv")
    assert not store.is_published(ROOT / "_llama-inference" / "shared" / "fake" / "run-1.csv")


def test_a_run_is_never_overwritten(tmp_path):
    path = write_run(tmp_path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="never overwritten"):
        write_run(tmp_path, rate=50.0)
    assert path.read_bytes() == before


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch, call):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    rows = make_rows()
    with pytest.raises(OSError, match="No space"):
        store.write(rows, make_sidecar(), rows[0]["run_id"], tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_file_that_is_no_run_is_named(tmp_path):
    path = write_run(tmp_path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="is not a run of this study"):
        store.load(folder=tmp_path)


def test_the_next_number_is_the_first_free_one(tmp_path):
    row = make_rows()[0]
    identity = {k: row[k] for k in ("experiment", "backend", "model", "option", "gpu", "host")}
    assert store.next_number(identity, tmp_path) == 1
    write_run(tmp_path)
    assert store.next_number(identity, tmp_path) == 2


def test_intervals_are_over_runs(observations):
    table = latency_analysis.summary(store.load(folder=observations)).set_index(["backend", "option"])
    own, one = table.loc[("fake", "int8")], table.loc[("transformers", "float32")]
    assert own["runs"] == 3
    assert own["output_tokens_per_s"] == pytest.approx(math.prod(own["rates"]) ** (1 / 3), rel=1e-3)
    # One run has the scatter of the others, over the root of one instead of three.
    assert own["note"] == estimates.ONE_SESSION and (one["runs"], one["note"]) == (1, "one run")
    relative = [row["output_tokens_per_s_interval"] / row["output_tokens_per_s"] for row in (own, one)]
    assert 0 < relative[0] < relative[1]
    assert not one["reason"] and not own["reason"]


def test_the_machine_with_the_most_runs_is_in_front(observations):
    requests = store.load(folder=observations)
    assert set(machines.default_machine(requests)["host"]) == {"abc123"}
    later = {"started": "2026-03-01T00:00:00+00:00"}
    write_run(observations, make_sidecar(**later), gpu="third-cpu", host="fff000", rate=300.0)
    requests = store.load(folder=observations)
    assert set(machines.default_machine(requests)["host"]) == {"abc123"}
    assert [host for (_, host), _ in machines.each(requests)] == ["abc123", "fff000", "def456"]


@pytest.fixture(scope="module")
def refused_runs():
    """{path: (gate, sentence)} of the committed runs that a gate refuses, each judged by its own rows alone.

    Those of before neighbours were judged by their share of the cores may have had more: they stay, and enter
    no table (`test_impossible_runs`).
    """
    found = checks.rejected(store.read_all(COMMITTED, alone=True))
    old = {path for path in COMMITTED if "layout" not in store.read(path)[1]}
    return {
        COMMITTED[place]: (gate, sentence)
        for place, (gate, sentence) in found.items()
        if not (gate == "no neighbours on the processor" and COMMITTED[place] in old)
    }


@pytest.mark.parametrize("path", COMMITTED, ids=lambda p: p.stem)
@pytest.mark.check
def test_every_committed_run_passes_every_gate(path, refused_runs):
    assert path not in refused_runs, refused_runs[path]
    assert set(schema.SIDECAR) <= set(store.read(path)[1])
    executed = json.loads(path.with_suffix(".ipynb").read_text())
    assert all(not o.get("ename") for cell in executed["cells"] for o in cell.get("outputs", [])), (
        "the executed notebook holds an error"
    )


@pytest.mark.timing
@pytest.mark.check
def test_a_thousand_runs_load_tabulate_and_plot_in_ten_seconds(tmp_path):
    (tmp_path / "fake").mkdir()
    for k in range(1000):
        where = {"option": ("float32", "int8")[k % 2], "host": f"{k // 2 % 4:06x}", "gpu": "cpu-2c"}
        rows = make_rows(n=9, **where, run=k // 8 + 1, tokens=200)
        path = store.path(rows[0]["run_id"], folder=tmp_path)
        schema.frame(rows).to_csv(path, index=False)
        path.with_suffix(".json").write_text(json.dumps(make_sidecar()))
    start = time.perf_counter()
    requests = store.load(folder=tmp_path)
    assert len(requests) == 9000
    pictures.shown("fig-latency", requests, tmp_path / "tables")
    assert time.perf_counter() - start < 10


def test_an_unknown_table_is_named():
    with pytest.raises(ValueError, match="Did you mean 'prompts'"):
        inputs.table("prompt")
