"""Mistakes that measurements of caches and conversations make, each on a server that answers over a socket."""

import time

import pytest
from loads import Truth

from bench import prefix_cache, workloads
from bench.backends.common import servers
from bench.experiments import conversations as experiment
from bench.instrument import reference_server
from bench.instrument.load import client, counters, parallel, sessions
from bench.instrument.load import prefix_cache as trials
from bench.observations import checks, schema
from bench.observations.checks import measurements
from bench.workloads import conversations

pytest_plugins = ["loads"]
pytestmark = [pytest.mark.usefixtures("watchdog"), pytest.mark.timing]

TEXT, ANSWER = tuple(range(1000, 3000)), 1  # of the server: events.ANSWER
BLOCK = 16
FRESH = iter(range(10**6, 10**9, 10**4))  # where the ids of a session begin that no other session has
DECLARED = prefix_cache.Declared("blocks", block_tokens=BLOCK, capacity_tokens=4000 * BLOCK)


@pytest.fixture(scope="module")
def judge():
    """A server whose cache has room for everything here."""
    server = Truth(
        0.005, 0.001, "--cache-blocks", 4000, "--block-tokens", BLOCK, "--prefill-s-per-token", 2e-4
    )
    yield server
    server.end()


def talk(number, lengths, at_s=0.0, gap_s=0.0, answers=4, given=None, shared=()):
    """A session whose turns add `lengths` tokens after given answers of `answers` tokens; ids are its own,
    but for `shared`, with which it begins. `given`: the id of all tokens of its answers; None: ids of its
    own."""
    fresh = iter(range(next(FRESH), 10**12))
    prompt, turns = tuple(shared), []
    for k, length in enumerate(lengths):
        added = (*(shared if k == 0 else ()), *(next(fresh) for _ in range(length)))
        prompt = prompt[: len(shared)] + added[len(shared) :] if k == 0 else prompt + added
        moment = at_s if k == 0 else None
        turns.append(workloads.Turn(prompt, added, answers, moment, None if k == 0 else gap_s))
        prompt += tuple(next(fresh) if given is None else given for _ in range(answers))
    return workloads.Session(number, tuple(turns))


def at(session, *moments):
    """`session` with its turns due at `moments`."""
    turns = (workloads.Turn(t.prompt, t.added, t.new_tokens, m) for t, m in zip(session.turns, moments))
    return workloads.Session(session.number, tuple(turns))


def run(
    server, workload, fault="", dialect="completions", encode=None, declared=DECLARED, timeout_s=10, **more
):
    """Rows of `workload` on the reference server, with the bounds that were fixed before."""
    url = server.url + (f"/fault/{fault}" if fault else "")
    body = {"return_token_ids": True} if dialect == "completions" and encode is None else {}
    served = servers.RunningServer(url, dialect, "m", {}, lambda new_tokens: body)
    level = sessions.SessionLevel(workload, declared, "made", "constant")
    calls = sessions.calls(served, level, lambda ids: " ".join(map(str, ids)))
    loop = client.Client(url, calls, dialect, 1, timeout_s, encode=encode, **more)
    rows = loop.run(time.monotonic() + 0.01)
    bounds = [pair for own in workload.bounds(declared) for pair in own]
    rows = [
        {"prompt_tokens": len(prompt.ids)} | row | {"max_new_tokens": prompt.new_tokens}
        | {"expected_cached_tokens_low": low, "expected_cached_tokens_high": high}
        for row, prompt, (low, high) in zip(rows, level.prompts, bounds)
    ]  # fmt: skip
    return rows


def cached(rows):
    return [row.get("cached_tokens") for row in rows]


def answered(rows):
    assert [row["error"] for row in rows] == [""] * len(rows)
    return rows


def within(rows):
    """Every hit lies between its bounds: neither contamination nor eviction."""
    low, high = ([row[f"expected_cached_tokens_{end}"] for row in rows] for end in ("low", "high"))
    wrong = [k for k, hit in enumerate(cached(answered(rows))) if not low[k] <= hit <= high[k]]
    assert not wrong, f"hits {cached(rows)} are not within {low} and {high}"


def refusal(gate, rows):
    """What a check says of a run with these rows; empty where it passes."""
    table = schema.frame([row | {"workload": "made", "cache_capacity_tokens": 64000} for row in rows])
    return gate(checks.Runs(table.assign(file=0), [{}], ["made"])).get(0, "")


def load_of(*of_sessions, **more):
    return workloads.Workload(tuple(of_sessions), **more)


def test_what_a_warm_up_left_is_more_than_this_load_can_have_left(judge):
    level = load_of(talk(1, [96, 32]), talk(2, [64]))
    first = level.sessions[0].turns[0].prompt
    run(judge, load_of(workloads.Session(1, (workloads.Turn(first[:80], first[:80], 2, 0.0),))))
    rows = answered(run(judge, level))
    sentence = refusal(measurements.uncontaminated, rows)
    assert "turn 1 of session 1: 80 of 96" in sentence, (
        f"a warm-up left {cached(rows)}, and the check says {sentence!r}"
    )


def test_hits_go_on_through_the_server_s_own_answer_and_end_before_a_given_one(judge):
    shape = {"answers": 40, "given": None}
    given = answered(run(judge, load_of(talk(1, [60, 20], **shape))))
    own = answered(run(judge, load_of(talk(1, [60, 20], **shape), history="own")))
    assert cached(given) == [0, 48], (
        "a given answer is another one than the server's: hits end with the prompt"
    )
    assert cached(own) == [0, 96], f"60 of the prompt, 39 of the answer, in blocks of 16: {cached(own)}"


def test_the_last_partial_block_and_the_last_token_of_a_prompt_are_computed(judge):
    lengths, hits = (15, 16, 17, 32, 33, 48, 49), []
    for length in lengths:
        twice = talk(1, [length]), talk(2, [length])
        prompt = twice[0].turns[0].prompt
        turn = [workloads.Turn(prompt, prompt, 2, moment) for moment in (0.0, 0.2)]
        rows = run(judge, load_of(*(workloads.Session(k + 1, (turn[k],)) for k in range(2))))
        hits.append(cached(answered(rows))[1])
    usable = [DECLARED.usable(length, length) for length in lengths]
    assert hits == [0, 0, 16, 16, 32, 32, 48] == usable, f"{hits} reported, {usable} expected"


def drifted(rows):
    """Whether hits of own answers fell below what the ids that were sent must have hit."""
    bounds = experiment.bounds_of_own(rows, DECLARED)
    return any(hit < low for hit, (low, _) in zip(cached(answered(rows)), bounds))


def test_an_answer_that_is_encoded_to_other_tokens_falls_below_the_bounds(judge):
    def encode(text):
        return [ANSWER] * text.count(" token") + [7] * (2 * text.count(" to ken"))

    shape = {"answers": 40}
    rows = run(judge, load_of(talk(1, [60, 20], **shape), history="own"), encode=encode)
    assert not drifted(rows), "the same ids again"
    rows = run(judge, load_of(talk(1, [60, 20], **shape), history="own"), "retokenises", encode=encode)
    assert drifted(rows), f"hits {cached(rows)} of other ids than were computed, and nobody sees it"


def test_a_template_that_rewrites_earlier_turns_is_told(judge):
    def broken(fault):
        rows = run(judge, load_of(talk(1, [64, 16], answers=32), history="own"), fault, "chat")
        return trials.broken_history(answered(rows), BLOCK)

    assert broken("") == ""
    assert "in the first turn's answer" in broken("retokenises"), (
        "hits end inside the history, and nobody says so"
    )


def test_simultaneous_first_requests_may_hit_each_other(judge):
    shared = tuple(next(FRESH) + k for k in range(256))
    for fault, hits in (("", [0, 256]), ("cache-shared-late", [0, 0])):
        shared = tuple(token + 10**10 for token in shared)
        both = load_of(*(talk(k, [60], shared=shared, answers=30) for k in (1, 2)))
        rows = run(judge, both, fault)
        assert sorted(cached(answered(rows))) == hits
        within(rows)


def test_the_session_that_comes_first_is_hit_wherever_it_stands_in_the_load(judge):
    shared = tuple(next(FRESH) + k for k in range(96))
    for later_s in (0.5, 1.0):  # more than a busy machine is late by
        shared = tuple(token + 10**10 for token in shared)
        late, early = talk(1, [40], later_s, shared=shared), talk(2, [40], 0.0, shared=shared)
        rows = run(judge, load_of(late, early))
        assert cached(answered(rows)) == [96, 0], "the second session came first"
        within(rows)


def test_a_turn_that_was_due_waits_for_the_answer_before_it_and_that_counts(judge):
    slow = at(talk(1, [32, 16, 16], answers=500, given=ANSWER), 0.0, 0.05, 0.1)
    turns = [workloads.Turn(t.prompt, t.added, t.new_tokens, t.at_s) for t in slow.turns]
    rows = answered(run(judge, load_of(workloads.Session(1, tuple(turns)))))
    waits = [round(row["ttft_s"], 2) for row in rows]
    assert waits[1] > 0.4 and waits[2] > 0.9, (
        f"turns were due while one answer took 0.5 s, and their TTFTs are {waits}"
    )
    assert max(row["late_s"] for row in rows) < 0.3 < rows[1]["waited_s"], "the wait is not the client's"


def test_turns_have_rows_of_their_own_and_sessions_are_no_requests(judge):
    rows = answered(run(judge, load_of(*(talk(k, [400, 16, 16], k / 5, given=ANSWER) for k in range(1, 4)))))
    condition = {"session_rate": 5.0, "arrivals": "constant", "cache_capacity_tokens": 64000}
    shown = experiment.summary(schema.frame([row | condition for row in rows]))
    cold, warm = (shown.set_index("turn")["ttft_p50_s"][turn] for turn in (1, 2))
    assert cold > 4 * warm, "the first turn computes its prompt, the later ones find it"
    sent = [row["sent_s"] for row in rows]
    ended = [row["sent_s"] + row["e2e_s"] for row in rows]
    span = max(ended) - min(sent)
    assert shown["under_way"].iloc[0] == pytest.approx(sum(row["e2e_s"] for row in rows) / span)
    achieved = (len(sent) - 1) / (max(sent) - min(sent))
    assert shown["request_rate"].iloc[0] == pytest.approx(achieved) and achieved != 5.0


def test_a_cancelled_request_leaves_its_prompt_in_the_cache(judge):
    first = talk(1, [200], answers=2000)
    prompt = first.turns[0].prompt
    second = workloads.Session(2, (workloads.Turn(prompt, prompt, 2, 0.8),))
    rows = run(judge, load_of(first, second), timeout_s=0.4)
    assert "TimeoutError" in rows[0]["error"] and rows[1]["cached_tokens"] == 192
    sentence = refusal(measurements.uncontaminated, rows)
    assert sentence == "", f"a cancelled request leaves its cache, and the check says: {sentence}"


def test_counters_are_those_of_the_level_and_show_another_client(judge):
    run(judge, load_of(talk(1, [64])))  # a warm-up
    before = counters.read(judge.url)
    rows = answered(run(judge, load_of(*(talk(k, [64, 32], given=ANSWER) for k in (1, 2)))))
    after = counters.read(judge.url)
    found = counters.level(before, after, rows)
    assert checks.disagreement(found) == "", checks.disagreement(found)
    assert found["cached_tokens"] == sum(cached(rows)) > 0
    assert "another client was there" in checks.disagreement(
        found | {"prompt_tokens": found["prompt_tokens"] + 8}
    )
    run(judge, load_of(talk(9, [64])))  # another client
    assert "another client" in checks.disagreement(counters.level(before, counters.read(judge.url), rows))
    doubled = judge.url + "/fault/counts-twice"
    assert "counted" in checks.disagreement(counters.level(before, counters.read(doubled), rows))


def test_a_load_that_was_sent_before_hits_more_than_it_can_have_left(judge):
    """No reset is asked for before a run: vLLM answers HTTP 200 to one also where it keeps its cache. What a server has kept
    is proved to be none of this run's by new heads, and by the bounds."""
    shape = {"turns": "constant 2", "groups": 1, "think_s": "constant 0", "answer_tokens": "constant 4"}
    host = time.monotonic_ns()
    for number in (1, 2):
        made = conversations.make(TEXT, (host, number, 0), 3, 100, 1000, seed=1, **shape)
        within(run(judge, made))
    said = refusal(measurements.uncontaminated, answered(run(judge, made)))
    assert "more cached tokens than this load" in said, f"the same again, and the check says {said!r}"


def test_a_cache_of_windows_has_no_bounds():
    full = {"num_hidden_layers": 2}
    assert experiment.full_attention(full)
    for other in ({"sliding_window": 512}, {"layer_types": ["sliding_attention", "full_attention"]}):
        assert not experiment.full_attention(full | other), (
            f"{other} has a verdict that its cache cannot meet"
        )
    assert experiment.full_attention(full | {"sliding_window": 512, "use_sliding_window": False})


def test_a_server_that_loses_its_cache_falls_below_what_is_expected(judge):
    rows = answered(run(judge, load_of(talk(1, [64] + [16] * 19, given=ANSWER)), "loses-cache"))
    below = [row for row in rows if row["cached_tokens"] < row["expected_cached_tokens_low"]]
    assert 1 <= len(below) <= 4 and all(row["cached_tokens"] == 0 for row in below)


def test_turns_of_a_session_stay_in_one_process_and_follow_each_other(judge):
    level = sessions.SessionLevel(
        load_of(*(talk(k, [16] * 3, k / 50) for k in range(1, 7))), DECLARED, "made", "x"
    )
    served = servers.RunningServer(judge.url, "completions", "m", {})
    calls = sessions.calls(served, level, str)
    rows, report = parallel.run(judge.url, calls, "completions", timeout_s=5, processes=2)
    answered(rows)
    assert report["processes"] == 2 and [row["request"] for row in rows] == list(range(1, 19))
    for number in range(1, 7):
        own = [row for row in rows if row["session"] == number]
        ended = [row["sent_s"] + row["e2e_s"] for row in own]
        assert [row["turn"] for row in own] == [1, 2, 3]
        assert all(later["sent_s"] >= end - 1e-3 for later, end in zip(own[1:], ended))


def test_the_truth_names_sessions_turns_and_what_was_computed(judge):
    judge.log()
    rows = answered(run(judge, load_of(talk(4, [64, 32], given=ANSWER))))
    told = reference_server.truth(judge.url)
    assert [(each["session"], each["turn"]) for each in told] == [("4", "1"), ("4", "2")]
    assert [each["cached"] for each in told] == cached(rows) == [0, 64]
    assert [each["cached"] + each["computed"] for each in told] == [64, 100]
    assert told[0]["digest"] != told[1]["digest"]
