"""serving.ipynb as a reader runs it: a server of known speed, one that is running already, and everything
that can go wrong or be mistyped."""

import dataclasses
import json
import re
import types

import loads
import nbformat
import pytest
from builders import serving_rows
from commands import execute
from fake import ITL_S, TTFT_S

from bench import backends, workloads
from bench.experiments import conversations, serving
from bench.instrument import reference_server
from bench.instrument.load import schedule
from bench.observations import checks, store
from bench.topics import levels as levels_analysis

# Two requests/s: a client may be late by a hundredth of the gap, and 5 ms is more than any machine's hiccup.
SMALL = {"concurrency": "[1,4]", "request_rates": "2", "requests": 12, "lengths": "alpaca", "scale": 0.5}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A folder with one run, as a reader makes it."""
    folder = tmp_path_factory.mktemp("served")
    execute("serving", folder / "out.ipynb", {"backend": "fake", "results": folder, **SMALL})
    return folder


@pytest.mark.timing
def test_every_request_has_its_row_and_the_times_of_the_schedule(served):
    requests = store.load(folder=served, experiment="serving")
    assert len(requests) == 36 and (requests["error"] == "").all()
    assert (requests["output_tokens"] == requests["max_new_tokens"]).all()
    assert requests["request"].is_unique and requests["prompt_tokens"].min() >= schedule.HEAD_TOKENS
    assert requests["ttft_s"].median() == pytest.approx(TTFT_S, abs=0.003)
    assert requests["tpot_s"].median() == pytest.approx(ITL_S, rel=0.05)
    assert requests["mbu"].isna().all(), "how many requests a server's step serves is its own affair"
    closed, opened = requests[requests["concurrency"].notna()], requests[requests["request_rate"].notna()]
    assert sorted(closed["concurrency"].unique()) == [1, 4] and list(opened["request_rate"].unique()) == [2]


@pytest.mark.timing
def test_all_levels_ask_for_the_same_lengths_with_other_prompts(served):
    requests = store.load(folder=served, experiment="serving")
    sizes = [
        tuple(level["prompt_tokens"])
        for _, level in requests.groupby(["concurrency", "request_rate"], dropna=False)
    ]
    assert len(set(sizes)) == 1 and len(sizes) == 3


@pytest.mark.timing
def test_the_sidecar_says_how_the_client_fared_and_the_notebook_draws(served):
    (path,) = store.files(served)
    _, sidecar = store.read(path)
    limits = [server["requests_at_once"] for server in sidecar["settings"]["servers"]]
    assert limits == [4, "the engine's own limit"], "a server for the closed loops, one for the arrivals"
    assert sidecar["settings"]["prefix_cache_trial"]["cached"] is False
    assert [about["level"] for about in sidecar["client"]] == ["1 at once", "4 at once", "2 requests/s"]
    assert all(
        about["kernel_stamps"] and about["peak_memory_bytes"] > 0 and about["cpu_s"] > 0
        for about in sidecar["client"]
    )
    executed = nbformat.read(served / "out.ipynb", as_version=4)
    assert any("image/svg+xml" in o.get("data", {}) for c in executed.cells for o in c.get("outputs", []))


@pytest.mark.check
@pytest.mark.timing
def test_a_saturated_server_ends_the_climb(cells, tmp_path, capsys):
    """Two requests cannot fill more than two places: 4 and 8 give no more than 2."""
    trace = tmp_path / "trace.csv"
    trace.write_text("prompt_tokens,new_tokens\n" + "16,4\n" * 12)
    climb = {
        "lengths": str(trace),
        "request_rates": "none",
        "concurrency": "2 4 8 16 32",
        "scale": 1.0,
        "requests": 2,
    }
    levels = levels_analysis.levels(cells("serving", backend="fake", **climb)["observed"])
    words = capsys.readouterr().out
    assert "Saturated at 16 at once" in words and "Left out: 32 at once" in words and len(levels) == 4


@pytest.mark.timing
def test_a_server_elsewhere_with_a_prefix_cache_is_refused(cells, tmp_path, caching):
    parameters = {"backend": "http", "url": f"{caching}/fault/cache-silent", "request_rates": "none"}
    parameters |= {"served_model": "ground-truth"}
    parameters |= {"option": "chat"}  # whose answers are text behind a template, which no judge reads
    parameters |= {"lengths": "fixed-512-64"}  # prompts that take longer than 50 ms to compute
    with pytest.raises(checks.Rejected, match="answers from a prefix cache and does not report it"):
        cells("serving", **SMALL | parameters)
    assert not list(tmp_path.rglob("*.csv"))


TWO = {"backend": "http", "option": "chat", "concurrency": "1", "request_rates": "none", "requests": 2}
TWO |= {"lengths": "alpaca", "scale": 0.5}


@pytest.mark.timing
def test_a_server_is_asked_which_model_it_has_and_filed_under_that_name(cells, caching, capsys):
    observed = cells("serving", url=caching, **TWO)["observed"]
    assert set(observed["model"]) == {"unknown-ground-truth"} and (observed["error"] == "").all()
    assert "The levels take about" in capsys.readouterr().out


@pytest.mark.timing
def test_answers_of_another_model_than_was_asked_for_stop_the_trial(cells, caching, tmp_path):
    named = {"url": caching, "model": "smollm2-135m", "served_model": "ground-truth"}
    assert len(cells("serving", **TWO | named)["observed"]) == 2
    with pytest.raises(checks.Rejected, match="asked for other and answers as ground-truth.*-p answers_as"):
        cells("serving", **TWO | named | {"answers_as": "other", "run": 7})


def test_a_server_that_is_not_there_is_named_with_its_address(cells):
    with pytest.raises(RuntimeError, match="http://127.0.0.1:9/v1/models.*Connection refused"):
        cells("serving", url="http://127.0.0.1:9", **TWO)


def loops(kind, *values):
    """A Load that has come to the first of the levels `values`, without a server."""
    load = object.__new__(serving.Load)
    load.levels = [schedule.Level(kind, value, 8) for value in values]
    load.before, load.done, load.now, load.told = {}, set(), load.levels[0], False
    load.setup = types.SimpleNamespace(client=[], parameters={"fresh_connections": False})
    return load


def test_a_level_without_an_answer_ends_the_climb(capsys):
    """A server that hangs or has died is not asked by every level that is left."""
    load = loops("closed", 1, 4, 8)
    load.note(serving_rows({1: (0.05, 0.01)}, failed=8))
    assert load.done == {"closed"}
    said = capsys.readouterr().out
    assert "No request was answered" in said and "ConnectionResetError: reset" in said
    assert f"Left out: {load.levels[1]}, {load.levels[2]}." in said
    alive = loops("closed", 1, 4, 8)
    alive.note(serving_rows({1: (0.05, 0.01)}, failed=7))
    assert alive.done == set()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (
            "int8",
            "Server and client disagree on token counts",
        ),  # it counts one too many: rows with errors, and no run
        ("broken", "unrecognized arguments: --no-such-option"),  # it does not start: its last words
    ],
)
def test_a_server_that_miscounts_or_does_not_start_gives_no_run(cells, tmp_path, option, words):
    with pytest.raises(Exception, match=re.escape(words)):
        cells("serving", backend="fake", option=option, **SMALL)
    assert not list(tmp_path.rglob("*.csv"))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"backend": "ctranslate2"}, "has no serve(), which this experiment needs. These have: "),
        ({"concurrency": "1 two"}, "Parameter concurrency must be whole numbers"),
        ({"request_rates": "0"}, "Parameter request_rates must be numbers above 0"),
        ({"percentile": 95}, "Parameter percentile must be one of 90, 99, not 95"),
        ({"arrivals": "poison"}, "Did you mean 'poisson'"),
        ({"lengths": "sharegtp"}, "Did you mean 'sharegpt'"),
        ({"lengths": "nowhere.csv"}, "cannot be read as a trace"),
        ({"concurrency": "none", "request_rates": "none"}, "There is nothing to do"),
        ({"backend": "http"}, "needs the address of a running server"),
        ({"backend": "http", "url": "http://somewhere.invalid:1"}, "Say what the server runs on"),
    ],
)
def test_what_is_mistyped_stops_with_a_sentence(cells, tmp_path, parameters, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        cells("serving", **{"backend": "fake"} | parameters)
    assert not list(tmp_path.rglob("*.csv"))


@pytest.fixture(scope="module")
def caching():
    """A server that runs already and keeps a prefix cache, and its address."""
    flags = ["--cache-blocks", 4000, "--block-tokens", 16, "--prefill-s-per-token", 0.0005]
    server = loads.Truth(0.005, 0.002, *flags)
    yield server.url
    server.end()


TALKS = {"workload": "conversations", "sessions": 4, "session_rates": "8", "think_s": "constant 0.05"}
TALKS |= {"turns": "constant 3", "answer_tokens": "constant 8"}


@pytest.mark.timing
def test_conversations_hit_what_was_expected_and_each_cache_gets_the_same_sessions(cells):
    requests = cells("serving", backend="fake", cache="off 16000", **TALKS)["observed"]
    assert len(requests) == 2 * 4 * 3 and (requests["error"] == "").all()
    assert set(requests["experiment"]) == {"conversations"} and set(requests["workload"]) == {"conversations"}
    off, on = (requests[requests["cache_capacity_tokens"] == size] for size in (0, 16000))
    known = ["session", "turn", "prompt_tokens", "max_new_tokens"]
    assert off[known].reset_index(drop=True).equals(on[known].reset_index(drop=True)), "the same sessions"
    assert off["cached_tokens"].isna().all() and (off["expected_cached_tokens_high"] == 0).all()
    assert (on["cached_tokens"] <= on["expected_cached_tokens_high"]).all()
    assert (on["cached_tokens"] >= on["expected_cached_tokens_low"]).all()
    assert (on.loc[on["turn"] > 1, "cached_tokens"] >= 64).all(), "the shared system prompt at least"


@pytest.mark.timing
@pytest.mark.check
def test_the_sidecar_says_what_the_server_counted(cells, tmp_path):
    cells("serving", backend="fake", cache="16000", history="own", **TALKS)
    (path,) = store.files(tmp_path)
    rows, sidecar = store.read(path)
    (level,) = sidecar["counters"]
    assert level["prompt_tokens"] == level["rows_prompt_tokens"]
    assert level["rows_prompt_tokens"] == sum(int(row["prompt_tokens"]) for row in rows)
    assert level["cached_tokens"] == level["rows_cached_tokens"] > 0 and level["cut_tokens"] == 0
    assert {row["history"] for row in rows} == {"own"}


@pytest.mark.timing
@pytest.mark.check
def test_a_users_own_trace_is_replayed_on_a_server_elsewhere(cells, tmp_path, caching):
    trace = tmp_path / "my.csv"
    lines = [f"{k / 10},{24 + 8 * (k // 3)},6,{k % 3}" for k in range(9)]
    trace.write_text("at_s,prompt_tokens,new_tokens,session\n" + "\n".join(lines) + "\n")
    named = {"backend": "http", "url": caching, "workload": "trace", "trace": str(trace), "cache": "64000"}
    named |= {"served_model": "ground-truth"}
    names = cells("serving", option="chat", cache_block_tokens=16, **named)
    requests = names["observed"]
    assert len(requests) == 9 and (requests["workload"] == "my.csv").all()
    assert set(requests["arrivals"]) == {"trace"} and requests["cached_tokens"].notna().all()
    recorded = requests.sort_values("sent_s")
    due = recorded["sent_s"] - recorded["late_s"] - recorded["waited_s"]
    assert list((due - due.min()).round(2)) == pytest.approx([k / 10 for k in range(9)], abs=0.03)
    assert requests["expected_cached_tokens_high"].isna().all(), "the server makes tokens of text as it likes"


def test_a_load_that_takes_hours_is_announced():
    """A trace whose moments are in another unit than its file says is one."""
    turns = [(workloads.Turn((1, 2), (1, 2), 1, at_s, None),) for at_s in (0.0, 3600.0, 7200.0)]
    workload = workloads.Workload(tuple(workloads.Session(k, own) for k, own in enumerate(turns, 1)))
    assert conversations.long_duration([workload], 2).startswith(
        "They arrive over 6.0 h: higher `session_rates`"
    )
    assert conversations.long_duration([dataclasses.replace(workload, about={"session_rate": 1.0})], 2) == ""


@pytest.mark.check
def test_runs_of_a_sampled_trace_have_one_rate_and_sessions_of_their_own(cells, tmp_path):
    trace = tmp_path / "my.csv"
    trace.write_text("at_s,input,output\n" + "".join(f"{k * k / 40},{20 + k},4\n" for k in range(12)))
    runs = [
        cells("serving", backend="fake", trace=str(trace), sample=0.5, run=run, time_scale=0.25)["observed"]
        for run in (1, 2)
    ]
    assert len({rate for rows in runs for rate in rows["session_rate"]}) == 1
    assert set(runs[0]["prompt_tokens"]) != set(runs[1]["prompt_tokens"])


@pytest.mark.timing
@pytest.mark.check
def test_a_server_that_says_nothing_of_its_cache_keeps_its_rows_and_has_no_hit_rate(cells, caching, capsys):
    named = {"backend": "http", "url": f"{caching}/fault/cache-silent", "cache": "on", "option": "chat"}
    named |= {"served_model": "ground-truth"}
    names = cells("serving", **named, **TALKS)
    assert names["observed"]["cached_tokens"].isna().all() and len(names["observed"]) == 12
    assert "The server reports no cached tokens: its hit rate stays empty." in capsys.readouterr().out
    assert names["load"].table(names["observed"])["by_tokens"].isna().all()


@pytest.mark.timing
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("cache-misreports", "more cached tokens than this load can have left there"),
        ("counts-twice", "another client was there, or one of the two counts wrong"),
    ],
)
@pytest.mark.check
def test_what_a_cache_cannot_have_done_is_refused(cells, tmp_path, monkeypatch, fault, words):
    fake = backends.get("fake").module
    serve = fake.serve

    def faulty(*arguments):
        return dataclasses.replace(serve(*arguments), below=f"/fault/{fault}")

    monkeypatch.setattr(fake, "serve", faulty)
    with pytest.raises(checks.Rejected, match=words):
        cells("serving", backend="fake", cache="64000", **TALKS)
    assert not list(tmp_path.rglob("*.csv"))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"workload": "conversation"}, "Did you mean 'conversations'"),
        ({"workload": "conversations", "cache": "big"}, "Parameter cache must be off, or the size"),
        ({"workload": "conversations", "cache": "on"}, "is for a server elsewhere"),
        ({"workload": "conversations", "turns": "some"}, "Unknown distribution of turns"),
        ({"workload": "conversations", "history": "mine"}, "history is given or own"),
        ({"workload": "conversations", "session_rates": "none"}, "There is nothing to do"),
        ({"workload": "trace"}, "needs a file"),
        ({"workload": "trace", "trace": "nowhere.jsonl"}, "cannot be read as a trace"),
        ({"workload": "trace", "trace": "one.csv"}, "has 1 request: a load needs two or more"),
        (
            {"workload": "trace", "trace": "talk.csv"},
            "has one session, and a load has the rate of two or more",
        ),
        ({"workload": "trace", "trace": "negative.csv"}, "has a length of -5 tokens for its prompt"),
        ({"workload": "trace", "trace": "empty.csv"}, "has a length of 0 tokens for its answer"),
        ({"workload": "trace", "trace": "backwards.csv"}, "before the line before it"),
        ({"workload": "trace", "trace": "timeless.csv"}, "has no moments: give it a column at_s"),
        ({"workload": "trace", "trace": "long.csv", "arrivals": "poisson"}, "sent with its own arrivals"),
        ({"workload": "trace", "trace": "long.csv"}, "need more than the context of 8192 tokens"),
        ({"workload": "trace", "trace": "huge.csv"}, "more than the"),
    ],
)
def test_a_load_of_sessions_that_cannot_be_stops_with_a_sentence(cells, tmp_path, parameters, words):
    bad = {"one": "0,5,5", "negative": "0,-5,5\n1,5,5", "empty": "0,5,5\n1,5,0", "backwards": "3,5,5\n1,5,5"}
    (tmp_path / "talk.csv").write_text("at_s,input,output,session\n0,24,6,1\n1,40,6,1\n")
    (tmp_path / "timeless.csv").write_text("input,output\n24,6\n24,6\n")
    for name, lines in (bad | {"long": "0,9000,5\n1,5,5"}).items():
        (tmp_path / f"{name}.csv").write_text(f"at_s,prompt_tokens,new_tokens\n{lines}\n")
    with open(tmp_path / "huge.csv", "wb") as huge:
        huge.truncate(10**9)  # a hole: it takes no disk
    if (tmp_path / parameters.get("trace", "")).is_file():
        parameters = parameters | {"trace": str(tmp_path / parameters["trace"])}
    with pytest.raises(ValueError, match=re.escape(words)):
        cells("serving", **{"backend": "fake"} | parameters)


@pytest.mark.check
def test_a_gpu_s_server_elsewhere_is_measured_from_a_machine_without_one(tmp_path):
    """Nothing of that GPU can be read here: no probe, no clocks, no memory, and none of this machine's
    instead."""
    # Answers behind a chat template are text that no judge reads; others would be held against the model's.
    named = {"backend": "http", "option": "chat", "gpu": "h100", "concurrency": "2", "request_rates": "none"}
    with reference_server.running(tmp_path / "server.txt") as running:
        named |= {"results": tmp_path, "url": running, "served_model": "ground-truth"}
        execute("serving", tmp_path / "out.ipynb", SMALL | named)
    requests = store.load(folder=tmp_path)
    assert (requests["gpu"] == "h100").all() and (requests["error"] == "").all() and len(requests) == 12
    assert (requests["head_tokens"] == schedule.HEAD_TOKENS).all()
    assert requests[["peak_memory_bytes", "mbu", "bandwidth_bytes_per_s"]].isna().all(axis=None)
    sidecar = json.loads(next(tmp_path.glob("http/*.json")).read_text())
    assert sidecar["settings"]["servers"][0]["served_model"] and sidecar["parameters"]["url"] == running
    assert sidecar["bandwidth_probes_bytes_per_s"] == [] and "gpu_before" not in sidecar["machine"]
