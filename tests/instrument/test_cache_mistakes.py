"""The 25 mistakes of cache and conversation measurements, each with the test that sees it, and that fails
with the protection taken out.

    python -m pytest tests/instrument/test_cache_mistakes.py -s -k without     # the table: what each prints

A case is a check and what takes its protection out: words of a function's source, replaced.
"""

import inspect
import json
import math
import textwrap
import time
from dataclasses import dataclass

import in_order
import numpy as np
import pytest
from loads import Truth

from bench import prefix_cache, workloads
from bench.backends import llamacpp
from bench.backends.common import servers
from bench.experiments import conversations as experiment
from bench.instrument import reference_server
from bench.instrument.load import client, counters, decoding, protocols, sessions
from bench.instrument.load import prefix_cache as trials
from bench.observations import gates, schema
from bench.observations.gates import measurements
from bench.workloads import conversations, timing, words

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


def own_server(blocks, block_tokens, ttft_s=0.002, itl_s=0.0005):
    return Truth(ttft_s, itl_s, "--cache-blocks", blocks, "--block-tokens", block_tokens)


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
    """What a gate says of a run with these rows; empty where it passes."""
    table = schema.frame([row | {"workload": "made", "cache_capacity_tokens": 64000} for row in rows])
    return gate(gates.Runs(table.assign(file=0), [{}], ["made"])).get(0, "")


def load_of(*of_sessions, **more):
    return workloads.Workload(tuple(of_sessions), **more)


# --- the mistakes
# ----------------------------------------------------------------------------------------------


def warm_up_leaves_a_cache(judge):
    level = load_of(talk(1, [96, 32]), talk(2, [64]))
    first = level.sessions[0].turns[0].prompt
    run(judge, load_of(workloads.Session(1, (workloads.Turn(first[:80], first[:80], 2, 0.0),))))
    rows = answered(run(judge, level))
    sentence = refusal(measurements.uncontaminated, rows)
    assert "turn 1 of session 1: 80 of 96" in sentence, (
        f"a warm-up left {cached(rows)}, and the gate says {sentence!r}"
    )


def a_level_hits_what_the_one_before_left(judge):
    shape = {"turns": "constant 2", "groups": 1, "think_s": "constant 0", "answer_tokens": "constant 4"}
    source = ("c0ffee", 1, time.monotonic_ns())
    rates = []
    for level in range(2):
        made = conversations.make(TEXT, (*source, level), 3, 100, 1000, seed=1, **shape)
        rows = run(judge, made)
        within(rows)
        rates.append(prefix_cache.rates([r["prompt_tokens"] for r in rows], cached(rows))["by_tokens"])
    assert rates[1] == pytest.approx(rates[0], abs=0.1), f"the same level twice: {rates}"


def own_and_given_answers_are_confused(judge):
    shape = {"answers": 40, "given": None}
    given = answered(run(judge, load_of(talk(1, [60, 20], **shape))))
    own = answered(run(judge, load_of(talk(1, [60, 20], **shape), history="own")))
    assert cached(given) == [0, 48], (
        "a given answer is another one than the server's: hits end with the prompt"
    )
    assert cached(own) == [0, 96], f"60 of the prompt, 39 of the answer, in blocks of 16: {cached(own)}"


def one_hit_rate_for_three(judge):
    found = prefix_cache.rates([100, 1700], [95, 85])
    expected = {"by_tokens": 0.1, "mean_over_requests": 0.5, "requests_with_a_hit": 1.0}
    assert found == pytest.approx(expected), found


def the_last_block_counted_as_cached(judge):
    lengths, hits = (15, 16, 17, 32, 33, 48, 49), []
    for length in lengths:
        twice = talk(1, [length]), talk(2, [length])
        prompt = twice[0].turns[0].prompt
        turn = [workloads.Turn(prompt, prompt, 2, moment) for moment in (0.0, 0.2)]
        rows = run(judge, load_of(*(workloads.Session(k + 1, (turn[k],)) for k in range(2))))
        hits.append(cached(answered(rows))[1])
    usable = [DECLARED.usable(length, length) for length in lengths]
    assert hits == [0, 0, 16, 16, 32, 32, 48] == usable, f"{hits} reported, {usable} expected"


def the_last_answer_token_counted_as_cached(judge):
    declared = prefix_cache.Declared("blocks", block_tokens=128, capacity_tokens=100 * 128)
    with_room = own_server(100, 128)
    try:
        for answers, hit in ((84, 256), (85, 384)):
            rows = run(
                with_room, load_of(talk(1, [300, 20], answers=answers, given=ANSWER)), declared=declared
            )
            high = rows[1]["expected_cached_tokens_high"]
            assert cached(answered(rows))[1] == hit == high, (
                f"{cached(rows)[1]} of 300 + {answers}, at most {high}"
            )
    finally:
        with_room.end()


def drifted(rows):
    """Whether hits of own answers fell below what the ids that were sent must have hit."""
    bounds = experiment.bounds_of_own(rows, DECLARED)
    return any(hit < low for hit, (low, _) in zip(cached(answered(rows)), bounds))


def text_encoded_anew(judge):
    def encode(text):
        return [ANSWER] * text.count(" token") + [7] * (2 * text.count(" to ken"))

    shape = {"answers": 40}
    rows = run(judge, load_of(talk(1, [60, 20], **shape), history="own"), encode=encode)
    assert not drifted(rows), "the same ids again"
    rows = run(judge, load_of(talk(1, [60, 20], **shape), history="own"), "retokenises", encode=encode)
    assert drifted(rows), f"hits {cached(rows)} of other ids than were computed, and nobody sees it"


def a_template_rewrites_earlier_turns(judge):
    def broken(fault):
        rows = run(judge, load_of(talk(1, [64, 16], answers=32), history="own"), fault, "chat")
        return trials.broken_history(answered(rows), BLOCK)

    assert broken("") == ""
    assert "in the first turn's answer" in broken("retokenises"), (
        "hits end inside the history, and nobody says so"
    )


def simultaneous_first_requests(judge):
    shared = tuple(next(FRESH) + k for k in range(256))
    for fault, hits in (("", [0, 256]), ("cache-shared-late", [0, 0])):
        shared = tuple(token + 10**10 for token in shared)
        both = load_of(*(talk(k, [60], shared=shared, answers=30) for k in (1, 2)))
        rows = run(judge, both, fault)
        assert sorted(cached(answered(rows))) == hits
        within(rows)


def eviction_taken_for_a_small_hit_rate(judge):
    declared = prefix_cache.Declared("blocks", block_tokens=32, capacity_tokens=13 * 32)
    shared = tuple(next(FRESH) + k for k in range(32))
    of_sessions = [talk(k, [40] + [12] * 8, shared=shared, answers=3, given=ANSWER) for k in range(1, 6)]
    in_turn = [of_sessions[k].turns[n] for n in range(9) for k in range(5)]
    small = own_server(13, 32)
    try:
        requests, hits = [], []
        for k, turn in enumerate(in_turn):
            alone = workloads.Session(1, (workloads.Turn(turn.prompt, turn.prompt, 3, 0.0),))
            (row,) = answered(run(small, load_of(alone)))
            hits.append(row["cached_tokens"])
            ids = turn.prompt, 3, k % 5 + 1, k // 5 + 1
            requests.append(prefix_cache.Request(*ids, answer=(ANSWER,) * 3))
    finally:
        small.end()
    simulated = prefix_cache.simulated(requests, declared)
    without = [low for low, _ in in_order.expected(requests, declared)]
    assert sum(hits) < sum(without), "some were evicted"
    evicted = sum(without) - sum(hits)
    assert abs(sum(hits) - sum(simulated)) < 0.3 * evicted, (
        f"{sum(hits)} tokens were hit, {sum(simulated)} are simulated, and {sum(without)} without eviction"
    )


def time_moves_hits_where_requests_overlap(judge):
    shared = tuple(next(FRESH) + k for k in range(96))
    for scale in (1.0, 0.1):
        shared = tuple(token + 10**10 for token in shared)
        late, early = talk(1, [40], 0.4 * scale, shared=shared), talk(2, [40], 0.0, shared=shared)
        rows = run(judge, load_of(late, early))
        assert cached(answered(rows)) == [96, 0], "the second session came first"
        within(rows)


def ticks_replayed_as_bursts(judge):
    recorded = np.repeat(np.arange(0.0, 60.0, 3.0), 10)
    sent = timing.spread(recorded, seed=1)
    most = np.unique(np.round(sent, 6), return_counts=True)[1].max()
    assert most == 1, f"{most} requests at one moment, because the trace's clock ticks every 3 s"


def requests_thinned_instead_of_sessions(judge):
    numbers = np.repeat(np.arange(1, 401), 5)
    kept = timing.sample(numbers, 0.1, seed=2)
    whole = [int((numbers == number).sum()) for number in kept]
    assert len(kept) == 40, f"{len(kept)} of 400 sessions are in a tenth of their requests, most of them cut"
    assert set(whole) == {5}
    blocks = [tuple((s, k) for k in range(turn + 2)) for turn in range(5) for s in range(1, 401)]
    rates = {}
    for name, chosen in (("all", set(range(1, 401))), ("a tenth", set(kept))):
        cache, hit, asked = prefix_cache.LruBlocks(), 0, 0
        for ids in (ids for ids in blocks if ids[0][0] in chosen):
            hit, asked = hit + cache.request(ids), asked + len(ids)
        rates[name] = hit / asked
    assert rates["a tenth"] == pytest.approx(rates["all"], abs=0.02), rates


def coordinated_omission_of_turns(judge):
    slow = at(talk(1, [32, 16, 16], answers=500, given=ANSWER), 0.0, 0.05, 0.1)
    turns = [workloads.Turn(t.prompt, t.added, t.new_tokens, t.at_s) for t in slow.turns]
    rows = answered(run(judge, load_of(workloads.Session(1, tuple(turns)))))
    waits = [round(row["ttft_s"], 2) for row in rows]
    assert waits[1] > 0.4 and waits[2] > 0.9, (
        f"turns were due while one answer took 0.5 s, and their TTFTs are {waits}"
    )
    assert max(row["late_s"] for row in rows) < 0.3 < rows[1]["waited_s"], "the wait is not the client's"


def held_sessions(rows, rate):
    condition = {"session_rate": rate, "arrivals": "constant", "cache_capacity_tokens": 64000}
    return schema.frame([row | condition for row in rows])


def sessions_taken_for_requests(judge):
    rows = answered(run(judge, load_of(*(talk(k, [16] * 4, k / 10, answers=100) for k in range(1, 5)))))
    shown = experiment.summary(held_sessions(rows, 10.0))
    assert {"session_rate", "request_rate"} <= set(shown), f"only {list(shown)}"
    sent = [row["sent_s"] for row in rows]
    held = sum(row["e2e_s"] for row in rows) / (max(row["sent_s"] + row["e2e_s"] for row in rows) - min(sent))
    assert shown["under_way"].iloc[0] == pytest.approx(held) and 1 < held < 4
    achieved = (len(sent) - 1) / (max(sent) - min(sent))
    assert shown["request_rate"].iloc[0] == pytest.approx(achieved), (
        f"{shown['request_rate'].iloc[0]:g} requests/s, and {achieved:.3g} were sent: turns waited for "
        "answers"
    )


def all_sessions_at_turn_one_at_once(judge):
    made = conversations.make(
        TEXT, ("c0ffee", 1), 60, 2.0, 4000, seed=3, due="timestamp", think_s="exponential 4"
    )
    first = [session.turns[0].at_s for session in made.sessions]
    moments = sorted((t.at_s, n) for s in made.sessions for n, t in enumerate(s.turns, start=1))
    ages = {n for moment, n in moments if 9 < moment < 13}
    assert np.ptp(first) > 20 and 1 in ages and max(ages) > 2, f"sessions begin within {np.ptp(first):.0f} s"


def cold_and_warm_turns_in_one_mean(judge):
    rows = answered(run(judge, load_of(*(talk(k, [400, 16, 16], k / 5, given=ANSWER) for k in range(1, 4)))))
    shown = experiment.summary(held_sessions(rows, 5.0))
    assert "turn" in shown, f"one row for all turns: TTFT {shown['ttft_p50_s'].iloc[0]:.3f} s"
    cold, warm = (shown.set_index("turn")["ttft_p50_s"][turn] for turn in (1, 2))
    assert cold > 4 * warm


def cut_sessions_dropped(judge):
    of_sessions = (
        talk(1, [16, 16, 16], answers=4),
        talk(2, [16, 16, 16], answers=2000),
        talk(3, [16, 16], 5.0),
    )
    rows = run(judge, load_of(*of_sessions), timeout_s=0.5)
    why = {(row["session"], row["turn"]): row["error"] for row in rows}
    assert len(rows) == 8, f"{len(rows)} rows of 8 requests: the survivors are the short ones"
    assert all(why[1, turn] == "" for turn in (1, 2, 3)) and "TimeoutError" in why[2, 1]
    assert all(
        why[2, turn].startswith("Not sent: turn 1 of its session failed (TimeoutError") for turn in (2, 3)
    )
    rows = run(judge, load_of(talk(1, [16, 16], answers=2000), talk(2, [16, 16], 5.0)), until_s=0.3)
    assert [row["error"] for row in rows] == ["Cancelled: the level had ended."] + [
        "Not sent: the level had ended."
    ] * 3


def cancelled_requests_forgotten(judge):
    first = talk(1, [200], answers=2000)
    prompt = first.turns[0].prompt
    second = workloads.Session(2, (workloads.Turn(prompt, prompt, 2, 0.8),))
    rows = run(judge, load_of(first, second), timeout_s=0.4)
    assert "TimeoutError" in rows[0]["error"] and rows[1]["cached_tokens"] == 192
    sentence = refusal(measurements.uncontaminated, rows)
    assert sentence == "", f"a cancelled request leaves its cache, and the gate says: {sentence}"


def counters_of_all_time_and_of_all_clients(judge):
    run(judge, load_of(talk(1, [64])))  # a warm-up
    before = counters.read(judge.url)
    rows = answered(run(judge, load_of(*(talk(k, [64, 32], given=ANSWER) for k in (1, 2)))))
    after = counters.read(judge.url)
    found = counters.level(before, after, rows)
    assert gates.disagreement(found) == "", gates.disagreement(found)
    assert found["cached_tokens"] == sum(cached(rows)) > 0
    assert "another client was there" in gates.disagreement(
        found | {"prompt_tokens": found["prompt_tokens"] + 8}
    )
    run(judge, load_of(talk(9, [64])))  # another client
    assert "another client" in gates.disagreement(counters.level(before, counters.read(judge.url), rows))
    doubled = judge.url + "/fault/counts-twice"
    assert "counted" in gates.disagreement(counters.level(before, counters.read(doubled), rows))


def a_reset_is_believed(judge):
    """No reset is asked for: vLLM answers HTTP 200 to one also where it keeps its cache. What a server has kept
    is proved to be none of this run's by new heads, and by the bounds."""
    shape = {"turns": "constant 2", "groups": 1, "think_s": "constant 0", "answer_tokens": "constant 4"}
    host = time.monotonic_ns()
    for number in (1, 2):
        made = conversations.make(TEXT, (host, number, 0), 3, 100, 1000, seed=1, **shape)
        within(run(judge, made))
    said = refusal(measurements.uncontaminated, answered(run(judge, made)))
    assert "more cached tokens than this load" in said, f"the same again, and the gate says {said!r}"


def a_field_that_is_no_hit_count(judge):
    event = {
        "content": "",
        "stop": True,
        "tokens_evaluated": 300,
        "tokens_predicted": 16,
        "tokens_cached": 315,
    }
    event |= {"timings": {"cache_n": 299, "prompt_n": 1}}
    piece = protocols.read("llamacpp", json.dumps(event).encode())
    assert piece.cached_tokens == 299, f"{piece.cached_tokens} of 300: the slot's length afterwards"


def chunks_that_are_no_prefix(judge):
    params = llamacpp._params("model.gguf", None, llamacpp.OPTIONS["Q8_0"], "cpu", 1, 2, 256, 64, True)
    assert params.n_cache_reuse == 0, f"chunks of {params.n_cache_reuse} tokens are shifted and count as hits"
    assert params.endpoint_metrics and params.cache_ram_mib == 64


def replicas_divide_hits(judge):
    other = Truth(0.005, 0.001, "--cache-blocks", 4000, "--block-tokens", BLOCK)
    declared = prefix_cache.Declared("blocks", BLOCK, replicas=2, router="round robin")
    talking, hits = talk(1, [64, 32, 32, 32], given=ANSWER), []
    try:
        for k, turn in enumerate(talking.turns):
            alone = workloads.Session(1, (workloads.Turn(turn.prompt, turn.prompt, 4, 0.0),))
            (row,) = answered(run((judge, other)[k % 2], load_of(alone)))
            hits.append(row["cached_tokens"])
    finally:
        other.end()
    low = [low for (own,) in [load_of(talking).bounds(declared)] for low, _ in own]
    assert all(hit >= least for hit, least in zip(hits, low)), f"hits {hits} would be eviction below {low}"


def windows_of_attention(judge):
    full = {"num_hidden_layers": 2}
    assert experiment.full_attention(full)
    for other in ({"sliding_window": 512}, {"layer_types": ["sliding_attention", "full_attention"]}):
        assert not experiment.full_attention(full | other), (
            f"{other} has a verdict that its cache cannot meet"
        )
    assert experiment.full_attention(full | {"sliding_window": 512, "use_sliding_window": False})


@dataclass
class Case:
    """A mistake, the check that sees it, and what takes the protection out: words of `owner.name`,
    replaced."""

    number: str
    mistake: str
    check: object
    owner: object
    name: str
    old: str
    new: str

    def take_out(self, monkeypatch):
        function = inspect.getattr_static(self.owner, self.name)
        if not callable(function) and not isinstance(function, property):
            monkeypatch.setattr(self.owner, self.name, self.new)
            return
        function = getattr(function, "fget", function)
        source = textwrap.dedent(inspect.getsource(function))
        assert self.old in source, f"{self.name} has changed: say again what its protection is"
        scope = {}
        exec(source.replace(self.old, self.new), function.__globals__, scope)
        monkeypatch.setattr(self.owner, self.name, scope[self.name])
        if self.owner is protocols:
            path, body, _ = protocols.EVERY["llamacpp"]
            monkeypatch.setitem(protocols.EVERY, "llamacpp", (path, body, scope[self.name]))


CASES = [
    Case("3.1", "warm-up leaves a cache", warm_up_leaves_a_cache, measurements, "uncontaminated", '> rows["expected_cached_tokens_high"]', '> rows["prompt_tokens"]'),
    Case("3.2", "a level hits what the one before left", a_level_hits_what_the_one_before_left, words.Words, "__init__", "seed_of(source)", "seed_of(source[:-1])"),
    Case("3.3", "own and given answers confused", own_and_given_answers_are_confused, sessions.Own, "follow", "*ids,", "*(9,) * len(ids),"),
    Case("3.4", "one hit rate for three", one_hit_rate_for_three, prefix_cache, "rates", "cached.sum() / prompt.sum()", "(cached / prompt).mean()"),
    Case("3.5", "last partial block, last token", the_last_block_counted_as_cached, prefix_cache.Declared, "usable", "prompt_tokens - 1", "prompt_tokens"),
    Case("3.6", "last answer token counted as cached", the_last_answer_token_counted_as_cached, prefix_cache.Request, "unknown_tokens", "self.new_tokens - 1", "self.new_tokens"),
    Case("3.7", "text encoded anew", text_encoded_anew, experiment, "bounds_of_own", "0.0, math.inf, answer", "0.0, math.inf, None"),
    Case("3.8", "template rewrites earlier turns", a_template_rewrites_earlier_turns, trials, "broken_history", "cached is None", "cached is not None"),
    Case("3.9", "simultaneous first requests", simultaneous_first_requests, prefix_cache, "expected", "declared.usable(low, n)", "declared.usable(high, n)"),
    Case("3.10", "eviction taken for a low hit rate", eviction_taken_for_a_small_hit_rate, prefix_cache, "simulated", "declared.capacity_tokens // size", "10**4"),
    Case("3.11", "time moves hits where requests overlap", time_moves_hits_where_requests_overlap, workloads, "_planned", "earliest = max(earliest + (turn.gap_s or 0.0), turn.at_s or 0.0)", "earliest = 10.0 * session.number"),
    Case("3.12", "ticks replayed as bursts", ticks_replayed_as_bursts, timing, "TICKED", "", 1.1),
    Case("3.13", "requests thinned instead of sessions", requests_thinned_instead_of_sessions, timing, "sample", "np.unique(np.asarray(sessions))", "np.arange(1, len(sessions) + 1)"),
    Case("3.14", "coordinated omission of turns", coordinated_omission_of_turns, decoding, "_times", "answer.due if call.scheduled else answer.sent", "answer.sent"),
    Case("3.15", "sessions taken for requests", sessions_taken_for_requests, experiment, "summary", "dict(zip(keys, key))", 'dict(zip(keys, key), request_rate=None) | {"request_rate": key[1]}'),
    Case("3.16", "all sessions at turn 1 at once", all_sessions_at_turn_one_at_once, conversations, "make", "np.cumsum(random.exponential(1 / session_rate, sessions))", "np.zeros(sessions)"),
    Case("3.17", "cold and warm turns in one mean", cold_and_warm_turns_in_one_mean, experiment, "summary", '"request_rate", "turn"]', '"request_rate"]'),
    Case("3.18", "cut sessions dropped", cut_sessions_dropped, client.Client, "_follow", "self._cut(turn, why)", "pass"),
    Case("3.19", "cancelled requests forgotten", cancelled_requests_forgotten, prefix_cache, "expected", "may.add(request.computed, request.earliest_s", "request.new_tokens == 2000 or may.add(request.computed, request.earliest_s"),
    Case("3.20", "counters of all time", counters_of_all_time_and_of_all_clients, counters, "level", "after[name] - before[name]", "after[name]"),
    Case("3.21", "a reset is believed", a_reset_is_believed, words.Words, "__init__", "seed_of(source)", "seed_of(source[:1])"),
    Case("3.22", "a field that is no hit count", a_field_that_is_no_hit_count, protocols, "_read_llamacpp", 'event.get("timings", {}).get("cache_n")', 'event.get("tokens_cached")'),
    Case("3.23", "chunks that are no prefix", chunks_that_are_no_prefix, llamacpp, "CACHE_REUSE", "", 256),
    Case("3.24", "replicas divide hits", replicas_divide_hits, prefix_cache, "expected", "0 if scattered else", ""),
    Case("3.25", "windows of attention", windows_of_attention, experiment, "full_attention", 'layers == {"full_attention"} and not windowed', "True"),
]  # fmt: skip
LONG = "3.10", "3.18"  # seconds each, of servers that are started several times
EACH = pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.number, marks=[pytest.mark.check] * (case.number in LONG)) for case in CASES],
)


def test_every_mistake_of_the_list_has_a_case():
    assert [case.number for case in CASES] == [f"3.{k}" for k in range(1, 26)]


@EACH
def test_a_mistake_is_seen(case, judge):
    case.check(judge)


@EACH
@pytest.mark.check
def test_without_its_protection_the_test_fails(case, judge, monkeypatch):
    case.take_out(monkeypatch)
    with pytest.raises(Exception) as seen:
        case.check(judge)
    said = str(seen.value).strip().splitlines()[0] if str(seen.value).strip() else seen.type.__name__
    print(f"\n{case.number:5} {case.mistake}: {seen.type.__name__}: {said}")


# --- faults of a cache that are none of the 25
# ------------------------------------------------------------------


def test_a_server_that_says_the_prompt_s_length_is_refused(judge):
    rows = answered(run(judge, load_of(talk(1, [64, 32])), "cache-misreports"))
    assert "more cached tokens than this load" in refusal(measurements.uncontaminated, rows)


def test_a_server_that_says_nothing_keeps_its_rows_and_has_no_hit_rate(judge):
    before = counters.read(judge.url)
    rows = answered(run(judge, load_of(talk(1, [64, 32])), "cache-silent"))
    assert cached(rows) == [None, None] and refusal(measurements.uncontaminated, rows) == ""
    found = prefix_cache.rates([row["prompt_tokens"] for row in rows], [math.nan] * 2)
    assert all(math.isnan(rate) for rate in found.values())
    assert "does not report cached tokens" in counters.level(before, counters.read(judge.url), rows)["why"]


def test_a_server_that_loses_its_cache_falls_below_what_is_expected(judge):
    rows = answered(run(judge, load_of(talk(1, [64] + [16] * 19, given=ANSWER)), "loses-cache"))
    below = [row for row in rows if row["cached_tokens"] < row["expected_cached_tokens_low"]]
    assert 1 <= len(below) <= 4 and all(row["cached_tokens"] == 0 for row in below)


def test_a_server_that_dies_in_turn_3_leaves_the_other_rows_whole():
    dying = own_server(400, BLOCK, itl_s=0.002)
    of_sessions = [talk(k, [32] * 4, answers=20, gap_s=0.02) for k in (1, 2)] + [
        talk(3, [32], 0.0, answers=4)
    ]

    class Ends(client.Client):
        def _take_up(self, answer):
            if (answer.call.session, answer.call.turn) == (1, 3):
                dying.process.kill()
                dying.process.wait()
            super()._take_up(answer)

    before = counters.read(dying.url)
    served = servers.RunningServer(dying.url, "completions", "m", {})
    level = sessions.SessionLevel(load_of(*of_sessions), DECLARED, "made", "constant")
    calls = sessions.calls(served, level, str)
    rows = Ends(dying.url, calls, "completions", 1, 5).run(time.monotonic() + 0.01)
    dying.process.stdout.close()
    assert len(rows) == 9 and [r["error"] for r in rows if r["session"] == 3] == [""]
    assert [bool(r["error"]) for r in rows if r["session"] == 1] == [False, False, True, True]
    cut = [r for r in rows if r["error"].startswith("Not sent")]
    assert cut and all("of its session failed" in r["error"] for r in cut)
    found = counters.level(before, counters.read(dying.url), rows)
    assert "does not answer" in found["why"] and gates.disagreement(found) == ""


def test_turns_of_a_session_stay_in_one_process_and_follow_each_other(judge):
    from bench.instrument.load import parallel

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
