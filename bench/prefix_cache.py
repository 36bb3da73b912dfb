"""Prefix caches: what a cache that is declared should answer of each request.

A cache answers the beginning of a prompt that it has computed before. Of a prompt of n tokens at most n - 1
come from it: the last one is computed for its logits. Of an answer all tokens but the last are computed, and
kept like those of a prompt.

`expected` gives the fewest and the most tokens that each request of a load can hit, before the load runs.
`rates` are the three hit rates.

    bounds = expected(requests, Declared("blocks", block_tokens=32))
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

KINDS = ("off", "blocks", "slots")
ROUTERS = ("round robin", "session affinity")
# Prompts that share nothing begin alike by chance: in one token of a few hundred that the study's text has
# once in so many pairs, in two nearly never. Only a cache that counts single tokens can show it.
CHANCE_TOKENS = 2


@dataclass(frozen=True)
class Declared:
    """The cache that a server has, as a run declares it before it starts.

    `kind`: `off`; `blocks` of `block_tokens` tokens (vLLM, SGLang with pages, the reference server), which
    serve everybody as soon as they are scheduled; `slots` (llama.cpp), each private to one request at a time,
    to the token. `capacity_tokens`: tokens that it holds, None where that is unknown; rows keep it, and
    `expected` does not use it. `replicas` of the server share nothing; `router` says how requests are dealt
    to them. ValueError for what cannot be.
    """

    kind: str = "off"
    block_tokens: int = 1
    capacity_tokens: int | None = None
    slots: int = 1
    replicas: int = 1
    router: str = "session affinity"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"A cache is one of {', '.join(KINDS)}, not {self.kind!r}.")
        if self.router not in ROUTERS:
            raise ValueError(f"A router is one of {', '.join(ROUTERS)}, not {self.router!r}.")
        if min(self.block_tokens, self.slots, self.replicas) < 1:
            raise ValueError("block_tokens, slots and replicas of a cache must be 1 or more.")

    @property
    def granularity_tokens(self) -> int:
        """What hits are multiples of, in tokens."""
        return self.block_tokens if self.kind == "blocks" else 1

    def usable(self, shared_tokens: int, prompt_tokens: int) -> int:
        """Tokens that are hit of a prompt of `prompt_tokens` whose first `shared_tokens` are in the cache:
        whole blocks of them, and never the prompt's last token."""
        if self.kind == "off":
            return 0
        most = min(shared_tokens, prompt_tokens - 1)
        return max(0, most // self.granularity_tokens * self.granularity_tokens)


@dataclass(frozen=True)
class Request:
    """A request as `expected` needs it.

    `ids` are the prompt's token ids, `new_tokens` those that the answer has, `answer` their ids where they
    are known (None: any). `session` and `turn` (from 1) say whose it is: a turn begins when the one before
    it has ended. `earliest_s` and `latest_s` bound the moment of sending, s from the start of the load.
    """

    ids: tuple[int, ...] = field(repr=False)
    new_tokens: int
    session: int
    turn: int
    earliest_s: float = 0.0
    latest_s: float = math.inf
    answer: tuple[int, ...] | None = field(default=None, repr=False)

    @property
    def computed(self) -> tuple[int, ...]:
        """The ids that a server has surely computed when it has ended: all but the last token."""
        return self.ids + tuple((self.answer or ())[:-1])

    @property
    def unknown_tokens(self) -> int:
        """Tokens of the answer that were computed and whose ids nobody knows before the run."""
        return max(0, self.new_tokens - 1) if self.answer is None else 0


def expected(requests: Sequence[Request], declared: Declared) -> list[tuple[int, int]]:
    """(lower, upper) bound of the cached tokens of each request, in the order of `requests`.

    The upper bound is the longest prefix shared with anything that may have been sent before, if nothing is
    ever evicted (CHANCE_TOKENS at least where single tokens count): a server that reports more has hits that
    this load did not make. The lower bound counts what has surely ended before: the session's own turns. A
    server that reports less has evicted. The two differ where turns of different sessions may overlap, and by
    the tokens of answers that are not known before the run.
    Under a round robin over `replicas` nothing is sure, so that the lower bound is 0.
    """
    if declared.kind == "off":
        return [(0, 0)] * len(requests)
    may = _PrefixTree()
    scattered = declared.replicas > 1 and declared.router == "round robin"
    for request in requests:
        may.add(request.computed, request.earliest_s, request.session, request.unknown_tokens)
    before: dict[int, list[Request]] = {}  # session -> its turns so far
    bounds = [(0, 0)] * len(requests)
    for k in sorted(range(len(requests)), key=lambda k: (requests[k].session, requests[k].turn)):
        request = requests[k]
        turns = before.setdefault(request.session, [])
        low = max((_shared(turn.computed, request.ids) for turn in turns), default=0)
        own = max((_reach(turn, request.ids) for turn in turns), default=0)
        high = max(low, own, may.longest(request.ids, request.latest_s, request.session))
        turns.append(request)
        n, chance = len(request.ids), CHANCE_TOKENS if declared.granularity_tokens == 1 else 0
        bounds[k] = (0 if scattered else declared.usable(low, n), declared.usable(max(high, chance), n))
    return bounds


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens `one` and `other` have in common from the first on: whole slices are compared, because
    Python compares those fastest."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle)
    return low


def _reach(turn: Request, ids: Sequence[int]) -> int:
    """Tokens of `ids` that may be those of `turn` and of its answer, where that is not known."""
    shared = _shared(turn.computed, ids)
    return shared + turn.unknown_tokens if shared == len(turn.computed) else shared


class _PrefixTree:
    """Prompts by their prefixes, an edge per run of tokens that nobody leaves; each with the two earliest
    moments, of different sessions, at which it may have been sent."""

    def __init__(self) -> None:
        self.root = _Node(())

    def add(self, ids: tuple[int, ...], moment: float, session: int, unknown_tokens: int) -> None:
        node, at = self.root, 0
        node.seen(moment, session)
        while at < len(ids):
            child = node.children.get(ids[at])
            if child is None:
                child = node.children[ids[at]] = _Node(ids[at:])
            else:
                shared = _shared(child.ids, ids[at:])
                if shared < len(child.ids):
                    child = node.children[ids[at]] = child.split(shared)
            node, at = child, at + len(child.ids)
            node.seen(moment, session)
        if unknown_tokens:
            node.ends.append((unknown_tokens, moment, session))

    def longest(self, ids: tuple[int, ...], latest: float, session: int) -> int:
        """Tokens of `ids` shared with a prompt that may have been sent by `latest` by another session than
        `session`, with tokens of answers that nobody knows."""
        node, at, most = self.root, 0, 0
        while True:
            for unknown, moment, whose in node.ends:
                if moment <= latest and whose != session:
                    most = max(most, at + unknown)
            child = node.children.get(ids[at]) if at < len(ids) else None
            if child is None or not child.was_there(latest, session):
                break
            shared = _shared(child.ids, ids[at:])
            at += shared
            if shared < len(child.ids):
                break
            node = child
        return max(at, most)


class _Node:
    """A run of tokens in a `_PrefixTree`."""

    __slots__ = ("ids", "children", "earliest", "ends")

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids = ids
        self.children: dict[int, _Node] = {}
        self.ends: list[tuple[int, float, int]] = []
        # At most two (moment, session), the earliest ones of different sessions.
        self.earliest: list[tuple[float, int]] = []

    def split(self, at: int) -> "_Node":
        """A new node of the first `at` tokens, of which this one becomes the only child."""
        upper = _Node(self.ids[:at])
        self.ids = self.ids[at:]
        upper.children[self.ids[0]] = self
        upper.earliest = list(self.earliest)
        return upper

    def seen(self, moment: float, session: int) -> None:
        of_session = [entry for entry in self.earliest if entry[1] == session]
        if of_session and of_session[0][0] <= moment:
            return
        rest = [entry for entry in self.earliest if entry[1] != session]
        self.earliest = sorted([*rest, (moment, session)], key=lambda entry: entry[0])[:2]

    def was_there(self, latest: float, session: int) -> bool:
        return any(moment <= latest and whose != session for moment, whose in self.earliest)


def rates(prompt_tokens: Sequence[float], cached_tokens: Sequence[float]) -> dict[str, float]:
    """The three hit rates of requests: `by_tokens` (sum of cached / sum of prompt tokens: what is not
    computed), `mean_over_requests` (mean of each request's share), `requests_with_a_hit` (share of requests).

    Requests whose server reports nothing (NaN) are left out; NaN where none is left.
    """
    prompt, cached = (np.asarray(values, dtype=float) for values in (prompt_tokens, cached_tokens))
    known = ~np.isnan(cached) & (prompt > 0)
    prompt, cached = prompt[known], cached[known]
    if not len(prompt):
        return dict.fromkeys(RATES, math.nan)
    values = cached.sum() / prompt.sum(), (cached / prompt).mean(), (cached > 0).mean()
    return dict(zip(RATES, map(float, values)))


RATES = ("by_tokens", "mean_over_requests", "requests_with_a_hit")
