"""The loads of sessions of serving.ipynb: conversations, and traces, with the prefix cache that is
declared."""

import functools
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from bench import inputs, prefix_cache
from bench.experiments import notebook
from bench.experiments.serving import OWN, USUAL_CONTEXT, Load
from bench.experiments.session import Setup
from bench.instrument.load import counters, protocols, schedule, sessions
from bench.instrument.load import prefix_cache as trials
from bench.observations import checks, schema
from bench.topics import levels
from bench.workloads import Workload, conversations, replay, traces
from llm_measured.core import naming

RATES = "0.25"  # sessions/s where nobody says
SESSIONS = 24  # of a level where nobody says
ON = "on"  # a cache of a server elsewhere whose size nobody knows
TRIAL_SESSION = 10**6  # number of the session of a trial, which no level has
COUNTED_S = 0.5  # a server may count its last request a little later than it answers
LOOKS = 6


class Conversations(Load):
    """The levels of sessions of one run of serving.ipynb: for each declared cache a server of its own,
    which gets the same sessions, level by level."""

    due = "gap"  # where nobody says

    def __init__(self, setup: Setup) -> None:
        values = setup.parameters
        self._begin(setup)
        values["due"] = self.due if values["due"] == "auto" else values["due"]
        self.most = setup.checkpoint.config.get("max_position_embeddings", USUAL_CONTEXT)
        self.most = min(self.most, values["context"] or self.most)
        self.caches = _caches(values["cache"], values["url"], setup.backend)
        self.plan = self._planned()
        longest = max(workload.most_tokens for workload, _ in self.plan)
        self.room = self.most if values["context"] else longest
        self.held = 0  # sessions of earlier levels

    def __str__(self) -> str:
        workloads = [workload for workload, _ in self.plan]
        rates = ", ".join(f"{own.session_rate:.3g}" for own in workloads)
        caches = ", ".join("off" if size == 0 else f"{size or 'unknown'} tokens" for size in self.caches)
        load = (
            f"{sum(len(own.sessions) for own in workloads)} sessions with "
            f"{sum(own.requests for own in workloads)} requests of up to {self.room} tokens, at {rates} "
            f"sessions/s; cache: {caches}"
        )
        duration = long_duration(workloads, times=len(self.caches))
        return f"{load}. {duration}" if duration else load

    def longest_prompt(self) -> int:
        return max(schedule.HEAD_TOKENS, self.room * 9 // 10 - 2)

    def _rates(self, usual):
        """The sessions per second of the levels, from few to many."""
        values = self.setup.parameters
        rates = notebook.or_auto(values["session_rates"], notebook.rates, "session_rates", usual)
        if not rates and usual:
            raise ValueError("There is nothing to do: give session_rates, such as '0.25 0.5'.")
        return sorted(rates)

    def _planned(self):
        """[(workload, how its sessions arrive)] of the levels that each cache gets."""
        values, rates = self.setup.parameters, self._rates(RATES)
        text = self.setup.checkpoint.encode(inputs.text())
        shape = "turns groups system_tokens first_tokens added_tokens answer_tokens think_s due history"
        shape = {name: values[name] for name in shape.split()}
        made = functools.partial(conversations.make, text, most_tokens=self.most, seed=self.run, **shape)
        count = values["sessions"] or SESSIONS
        sources = ((*self.source, number) for number in range(len(rates)))
        return [(made(source, count, rate), "poisson") for source, rate in zip(sources, rates)]

    def servers(self) -> Iterator[tuple]:
        """(requests at once, declared cache in tokens, the planned levels) for each server."""
        for size in self.caches:
            self.now_cache, self.held = size, 0  # a session has the same number with every cache
            yield self.setup.parameters["slots"] or OWN, size, self.plan

    def _try_cache(self, served):
        """Send prompts twice: a cache that is declared off must not answer them, one that is declared on
        must."""
        self.served = served
        self.declared = served.cache or self._declared()
        if self.declared.kind == "off":
            return super()._try_cache(served, off=True)
        trial = self._trial(served)
        self.setup.note(prefix_cache_trial=trial)
        if not trial["reported"]:
            print("The server reports no cached tokens: its hit rate stays empty.")
        elif not trial["cached_tokens"]:
            raise checks.Rejected(
                f"The cache is declared on, and prompts of {trial['prompt_tokens']} tokens sent twice had no "
                "hit: it is off, or its blocks are longer than these. Declare what the server has."
            )

        if self.setup.parameters["history"] == "own" or served.dialect not in protocols.BY_IDS:
            self._try_history(served)

    def _try_history(self, served):
        """Send the two turns of a conversation that does not count, and say where the second one's prefix
        broke: in the server's template, or in an answer whose text encodes to other tokens."""
        text = self.setup.checkpoint.encode(inputs.text())
        shape = {"turns": "constant 2", "groups": 0, "first_tokens": "constant 64", "think_s": "constant 0"}
        shape |= {"added_tokens": "constant 16", "answer_tokens": "constant 16", "history": "own"}
        workload = conversations.make(text, (*self.source, "trial"), 1, 1, self.most, **shape)
        level = sessions.SessionLevel(workload, None, "trial", "constant", before=TRIAL_SESSION)
        rows = self.setup.drive(served, level, level.prompts, counts=False)
        failed = [row["error"] for row in rows if row["error"]]
        broken = failed[0] if failed else trials.broken_history(rows, self.declared.granularity_tokens)
        self.setup.note(history_trial=broken)
        if broken:
            print(broken)

    def _declared(self):
        """The cache of a server elsewhere, as its user declares it."""
        size, values = self.now_cache, self.setup.parameters
        if size == 0:
            return prefix_cache.Declared("off")
        return prefix_cache.Declared(
            "blocks",
            block_tokens=values["cache_block_tokens"],
            capacity_tokens=None if size == ON else size,
            replicas=values["data_parallel"],
            router="round robin",
        )

    def each(self, plan: list) -> Iterator[tuple]:
        """(level, its prompts) of each of `plan`."""
        for workload, arrivals in self.setup.progress(plan, len(plan)):
            until_s = self.setup.parameters["until_s"] or None
            level = sessions.SessionLevel(workload, self.declared, self.name, arrivals, self.held, until_s)
            level.each = self._expected(level)
            self.now = level
            self.before_level = counters.read(self.served.url, self.served.token)
            yield level, level.prompts
            self.held += len(workload.sessions)

    @property
    def name(self) -> str:
        """The workload as rows have it."""
        return "conversations"

    def _expected(self, level):
        """The bounds of each request's hits, fixed before the run; none where the server makes tokens of
        text."""
        if self.served.dialect not in protocols.BY_IDS or not full_attention(self.setup.checkpoint.config):
            return [{} for _ in level.turns]
        bounds = [pair for own in level.workload.bounds(self.declared) for pair in own]
        return [_bounds(*pair) for pair in bounds]

    def note(self, rows: list[dict]) -> list[dict]:
        """Compare what the server counted with `rows`, and return them; as failed where the client was
        late."""
        level = self.now
        if level.workload.history == "own" and any(level.each):
            rows = [row | _bounds(*pair) for row, pair in zip(rows, bounds_of_own(rows, self.declared))]
        self.setup.counters.append({"level": str(level)} | level.condition | self._counted(rows))
        sentence = checks.late_sessions(schema.frame(rows))
        if sentence:
            print(sentence)
            return [row | {"error": row["error"] or sentence, "output_tokens": 0} for row in rows]
        for cut in sorted({row["session"] for row in rows if row["error"]}):
            first = next(row for row in rows if row["session"] == cut and row["error"])
            print(f"Session {cut} was cut at turn {first['turn']}: {first['error']}")
        return rows

    def _counted(self, rows):
        """`counters.level` of the level that has ended; a server may count its last request a little
        later."""
        for _ in range(LOOKS):
            after = counters.read(self.served.url, self.served.token)
            found = counters.level(self.before_level, after, rows)
            if "why" in found or not checks.disagreement(found):
                break
            time.sleep(COUNTED_S)
        if "why" in found:
            print(found["why"])
        return found

    def table(self, requests: pd.DataFrame) -> pd.DataFrame:
        """What the notebook shows of the run `requests` (`store.load`): one row per level and turn."""
        return summary(requests)


class Replays(Conversations):
    """The levels of a trace: its sessions with its own moments, at its own rate or at others."""

    arrivals, due = "trace", "timestamp"  # where nobody says

    @property
    def name(self) -> str:
        """The trace's file."""
        return Path(self.setup.parameters["trace"]).name

    def _planned(self):
        values = self.setup.parameters
        if not values["trace"]:
            raise ValueError("The workload trace needs a file: -p trace my.jsonl, or a CSV.")
        if values["history"] == "own" and values["due"] == "timestamp":
            print("A turn waits for the answer before it, and its latency counts from its moment.")
        trace = traces.read(notebook.folder(values["trace"]), values["trace_unit"])
        if values["arrivals"] != self.arrivals:
            raise ValueError(f"A trace is sent with its own arrivals, not {values['arrivals']!r}.")
        rates = self._rates("")
        text = self.setup.checkpoint.encode(inputs.text())
        shape = "length_scale sample first_s due history drop_long"
        shape = {name: values[name] for name in shape.split()}
        shape |= {name: values[name] or None for name in ("block_tokens", "gap_cap_s", "last_s")}
        made, pairs = functools.partial(replay.workload, trace, text, seed=self.run, **shape), []
        # Of one seed, so that runs whose sessions and ticks were drawn anew are runs of one load.
        as_recorded = self._kept(made((*self.source, "rate"), self.most, seed=0)).session_rate
        if math.isnan(as_recorded):
            raise ValueError(f"{self.name} has one session, and a load has the rate of two or more.")
        for rate in rates or [as_recorded / values["time_scale"]]:
            source = (*self.source, len(pairs))
            workload = self._kept(made(source, self.most, time_scale=as_recorded / rate))
            workload = replace(workload, about=workload.about | {"session_rate": rate})
            pairs.append((workload, self.arrivals))
        return pairs

    def _kept(self, workload):
        """The first `sessions` sessions of `workload`, all where it says nothing."""
        count = self.setup.parameters["sessions"]
        return replace(workload, sessions=workload.sessions[:count]) if count else workload


def long_duration(workloads: list[Workload], times: int) -> str:
    """That the sessions of `workloads`, one after the other and all `times` times, arrive over hours, and
    what shortens it; empty where they do not."""
    lasts_s = times * sum(len(workload.sessions) / workload.session_rate for workload in workloads)
    if not lasts_s > levels.LONG_S:
        return ""
    return (
        f"They arrive over {lasts_s / 3600:.1f} h: higher `session_rates`, a smaller `time_scale` or fewer "
        "`sessions` shorten it."
    )


def _caches(text, url, backend):
    """The sizes, tokens, that the parameter `cache` names, 0 for `off`; ValueError for what cannot be
    declared."""
    found = []
    for word in str(text).split():
        if word == "off":
            found.append(0)
        elif word == ON and url:
            found.append(ON)
        elif word.isdigit() and int(word):
            found.append(int(word))
        else:
            raise ValueError(
                "Parameter cache must be off, or the size of the prefix cache in tokens, such as 8192; "
                f"several are measured one after the other; `{ON}` is for a server elsewhere whose size "
                f"nobody knows. It is {text!r}."
            )
    if not found:
        raise ValueError("Parameter cache is empty: say off, or the size of the prefix cache in tokens.")
    if url and len(found) > 1:
        raise ValueError("A server that runs already has one cache: declare it once, off or with its size.")
    if any(found) and not url and not backend.prefix_cache:
        raise ValueError(
            f"The adapter of {backend.name} cannot start its server with a prefix cache of a stated size: "
            "use -p cache off, or start the server yourself and measure it with -p backend http."
        )
    return found


def full_attention(config: dict) -> bool:
    """Whether every layer of a model with this configuration attends to the whole prompt: elsewhere a cache
    drops or rounds what is not in a window, and what it reports has no bound to be held against."""
    layers = set(config.get("layer_types") or ["full_attention"])
    windowed = config.get("sliding_window") and config.get("use_sliding_window", True)
    return layers == {"full_attention"} and not windowed and not {"ssm_cfg", "mamba_d_state"} & config.keys()


def _bounds(low, high):
    return {"expected_cached_tokens_low": low, "expected_cached_tokens_high": high}


def bounds_of_own(rows: list[dict], declared: prefix_cache.Declared) -> list[tuple[int, int]]:
    """The bounds of each of `rows`, whose prompts had the server's own answers: of the ids that were sent."""
    made, following = [], {}
    for row in rows:
        following[row["session"], row["turn"] - 1] = row.get("prompt_ids") or ()
    for row in rows:
        ids = tuple(row.get("prompt_ids") or ())
        after = following.get((row["session"], row["turn"]), ())
        answer = tuple(after[len(ids) : len(ids) + row["max_new_tokens"]]) or None
        made.append(
            prefix_cache.Request(
                ids, row["max_new_tokens"], row["session"], row["turn"], 0.0, math.inf, answer
            )
        )
    return prefix_cache.expected(made, declared)


def summary(requests: pd.DataFrame) -> pd.DataFrame:
    """One row per level and turn of `requests` (`store.load`): the requests that were under way in the level
    (their mean: what a time scale changes beside the rate), the rates of sessions and of requests that were
    achieved, requests, cut, the three hit rates, TTFT p50.

    Rates are empty where the server reports nothing.
    """
    level = ["cache_capacity_tokens", "session_rate", "arrivals"]
    keys, rows = [*level, "under_way", "request_rate", "turn"], []
    of_level = requests.assign(ended_s=requests["sent_s"] + requests["e2e_s"]).groupby(level, dropna=False)
    sent, begun_s = of_level["sent_s"], of_level["sent_s"].transform("min")
    span = sent.transform("max") - begun_s
    achieved = (sent.transform("count") - 1) / span.where(span > 0)
    busy = of_level["e2e_s"].transform("sum") / (of_level["ended_s"].transform("max") - begun_s)
    for key, own in requests.assign(under_way=busy, request_rate=achieved).groupby(keys, dropna=False):
        good = own[own["error"] == ""]
        rates = prefix_cache.rates(good["prompt_tokens"], good["cached_tokens"])
        rows.append(
            dict(zip(keys, key))
            | {"requests": len(own), "cut": int((own["error"] != "").sum())}
            | rates
            | {"ttft_p50_s": good["ttft_s"].median(), "prompt_tokens": good["prompt_tokens"].mean()}
        )
    return pd.DataFrame(rows)


KINDS = {
    "requests": ("serving", Load),
    "conversations": ("conversations", Conversations),
    "trace": ("conversations", Replays),
}


def kind(workload: str, experiment: str = "", trace: str = "") -> tuple[str, type[Load]]:
    """(the experiment as which a run of `workload` is kept, its class of loads); ValueError for another
    one. A `trace` that is named is the workload."""
    workload = "trace" if trace and workload == "requests" else workload
    usual, loads = KINDS[naming.choose("workload", workload, KINDS)]
    every = inputs.study()["experiments"]
    known = [name for name, entry in every.items() if entry.get("notebook", name) == "serving"]
    return naming.choose("experiment", experiment or usual, known), loads
