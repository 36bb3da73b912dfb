"""Prefix caches: what a cache that is declared should answer of each request, and simulators of three kinds.

A cache answers the beginning of a prompt that it has computed before. Of a prompt of n tokens at most n - 1
come from it: the last one is computed for its logits. Of an answer all tokens but the last are computed, and
kept like those of a prompt.

`expected` says what each request of a load may hit, before the load runs; the simulators say what a cache of
a size keeps: `LruBlocks` (least recently used blocks, the model for traces), `BlockPool` (vLLM's blocks) and
`Slots` (llama.cpp's slots and the prompts that it keeps in host memory). `rates` are the three hit rates.

    pool = BlockPool(num_gpu_blocks=14, block_tokens=32)
    hits = [pool.request(prompt, answer) for prompt, answer in requests]
    bounds = expected(requests, Declared("blocks", block_tokens=32))
"""

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

KINDS = ("off", "blocks", "slots")
ROUTERS = ("round robin", "session affinity")
# llama.cpp b-2026.10, tools/server: a slot is chosen for its prefix where it answers more than this share of
# the prompt (slot_prompt_similarity); its content is kept in host memory where less than so much of it stays;
# a prompt in host memory is taken back where at least so much of it is used.
SIMILARITY = 0.1
KEPT_SHARE = 0.5
TAKEN_SHARE = 0.25
# Prompts that share nothing begin alike by chance: in one token of a few hundred that the study's text has
# once in so many pairs, in two nearly never. Only a cache that counts single tokens can show it.
CHANCE_TOKENS = 2


@dataclass(frozen=True)
class Declared:
    """The cache that a server has, as a run declares it before it starts.

    `kind`: `off`; `blocks` of `block_tokens` tokens (vLLM, SGLang with pages, the reference server), which
    serve everybody as soon as they are scheduled; `slots` (llama.cpp), each private to one request at a time,
    to the token. `capacity_tokens`: tokens that it holds, None where that is unknown; it is not used for
    `expected`, only for a simulation. `replicas` of the server share nothing; `router` says how requests are
    dealt to them. ValueError for what cannot be.
    """

    kind: str = "off"
    block_tokens: int = 1
    capacity_tokens: int | None = None
    slots: int = 1
    host_tokens: float = 0
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


def expected(
    requests: Sequence[Request],
    declared: Declared,
    primed: Iterable[tuple[int, ...]] = (),
    in_order: bool = False,
) -> list[tuple[int, int]]:
    """(lower, upper) bound of the cached tokens of each request, in the order of `requests`.

    The upper bound is the longest prefix shared with anything that may have been sent before, `primed`
    prompts included, if nothing is ever evicted (CHANCE_TOKENS at least where single tokens count): a server
    that reports more has hits that this load did not make. The lower bound counts what has surely ended
    before: `primed` prompts, the session's own turns before, and with `in_order` (requests one after the
    other, in this order) every request before. A server that reports less has evicted. The two differ where
    turns of different sessions may overlap, and by the tokens of answers that are not known before the run.
    Under a round robin over `replicas` nothing is sure, so that the lower bound is 0.
    """
    if declared.kind == "off":
        return [(0, 0)] * len(requests)
    may, sure = _PrefixTree(), _PrefixTree()
    for ids in primed:
        may.add(ids, -math.inf, None)
        sure.add(ids, -math.inf, None)
    scattered = declared.replicas > 1 and declared.router == "round robin"
    if not in_order:
        for request in requests:
            may.add(request.computed, request.earliest_s, request.session, request.unknown_tokens)
    before: dict[int, list[Request]] = {}  # session -> its turns so far
    bounds = [(0, 0)] * len(requests)
    order = range(len(requests))
    for k in order if in_order else sorted(order, key=lambda k: (requests[k].session, requests[k].turn)):
        request = requests[k]
        turns = before.setdefault(request.session, [])
        low = max((_shared(turn.computed, request.ids) for turn in turns), default=0)
        low = max(low, sure.longest(request.ids, math.inf, None)[0])
        own = max((_reach(turn, request.ids) for turn in turns), default=0)
        latest = math.inf if in_order else request.latest_s
        high = max(low, own, may.longest(request.ids, latest, request.session)[1])
        if in_order:
            for tree in (sure, may):
                tree.add(request.computed, -math.inf, None, request.unknown_tokens)
        else:
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

    def add(self, ids: tuple[int, ...], moment: float, session: int | None, unknown_tokens: int = 0) -> None:
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

    def longest(self, ids: tuple[int, ...], latest: float, session: int | None) -> tuple[int, int]:
        """(tokens of `ids` shared with a prompt that may have been sent by `latest` by another session than
        `session`, the same with tokens of answers that nobody knows)."""
        node, at, most = self.root, 0, 0
        while True:
            for unknown, moment, whose in node.ends:
                if moment <= latest and (whose is None or whose != session):
                    most = max(most, at + unknown)
            child = node.children.get(ids[at]) if at < len(ids) else None
            if child is None or not child.was_there(latest, session):
                break
            shared = _shared(child.ids, ids[at:])
            at += shared
            if shared < len(child.ids):
                break
            node = child
        return at, max(at, most)


class _Node:
    """A run of tokens in a `_PrefixTree`."""

    __slots__ = ("ids", "children", "earliest", "ends")

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids = ids
        self.children: dict[int, _Node] = {}
        self.ends: list[tuple[int, float, int | None]] = []
        # At most two (moment, session), the earliest ones of different sessions.
        self.earliest: list[tuple[float, int | None]] = []

    def split(self, at: int) -> "_Node":
        """A new node of the first `at` tokens, of which this one becomes the only child."""
        upper = _Node(self.ids[:at])
        self.ids = self.ids[at:]
        upper.children[self.ids[0]] = self
        upper.earliest = list(self.earliest)
        return upper

    def seen(self, moment: float, session: int | None) -> None:
        of_session = [entry for entry in self.earliest if entry[1] == session]
        if of_session and of_session[0][0] <= moment:
            return
        rest = [entry for entry in self.earliest if entry[1] != session]
        self.earliest = sorted([*rest, (moment, session)], key=lambda entry: entry[0])[:2]

    def was_there(self, latest: float, session: int | None) -> bool:
        return any(
            moment <= latest and (whose is None or whose != session) for moment, whose in self.earliest
        )


class Blocks:
    """Numbers for whole blocks of `block_tokens` tokens; two are equal where the block and all before it are.

    Exact: blocks are looked up by their tokens, never by a hash alone.
    """

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}

    def keys(self, ids: Sequence[int]) -> list[int]:
        """One number per whole block of `ids`."""
        keys, parent, size = [], -1, self.block_tokens
        for start in range(0, len(ids) - size + 1, size):
            parent = self._known.setdefault((parent, tuple(ids[start : start + size])), len(self._known))
            keys.append(parent)
        return keys


class LruBlocks:
    """The least recently used of `capacity` blocks (None: all), the model for traces: requests one after the
    other, answers not kept, the tail of a prompt evicted before its head.

    A block is any hashable that stands for itself and everything before it, as a trace's `hash_ids` do.
    """

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise ValueError(f"A cache has 1 block or more, not {capacity}.")
        self.capacity = capacity
        self._kept: OrderedDict = OrderedDict()

    def request(self, blocks: Sequence, most: int | None = None) -> int:
        """Blocks of a prompt's whole `blocks` that are hit, at most `most`; they are the latest used
        afterwards."""
        kept, hits = self._kept, 0
        limit = len(blocks) if most is None else min(most, len(blocks))
        while hits < limit and blocks[hits] in kept:
            hits += 1
        for block in reversed(blocks):  # the head is used last, so that it is evicted last
            kept[block] = None
            kept.move_to_end(block)
        while self.capacity is not None and len(kept) > self.capacity:
            kept.popitem(last=False)
        return hits


class BlockPool:
    """vLLM's block pool: `num_gpu_blocks` of `block_tokens` tokens, of which block 0 is never used.

    Free blocks wait in a queue, those that were never whole first, then the least recently freed; a request
    takes new ones from its front and frees its own tail first. Whole blocks are known from the moment that
    they are scheduled. `begin` and `end` for requests that overlap, `request` for one after the other.
    Source: vllm/v1/core/block_pool.py of 0.32.0; one prefill at a time, no preemption.
    """

    def __init__(self, num_gpu_blocks: int, block_tokens: int) -> None:
        if num_gpu_blocks < 2:
            raise ValueError(
                f"A pool has 2 blocks or more, of which one is never used, not {num_gpu_blocks}."
            )
        self.block_tokens, self.blocks = block_tokens, Blocks(block_tokens)
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_gpu_blocks))
        self._users = dict.fromkeys(self._free, 0)
        # What a block holds whole -> the blocks that hold it: a prompt of whole blocks computes its last one
        # again, and the copy is found when the first is gone.
        self._key_of: dict[int, int] = {}
        self._holding: dict[int, dict[int, None]] = {}

    def request(self, ids: Sequence[int], answer: Sequence[int] = ()) -> int:
        """Hit tokens of a request that nothing overlaps; its answer is kept but for the last token."""
        held, hit_tokens = self.begin(ids)
        self.end(held, ids, answer)
        return hit_tokens

    def begin(self, ids: Sequence[int]) -> tuple[list[int], int]:
        """(blocks that the request holds from now on, hit tokens). RuntimeError where the pool has too few
        free blocks: a server would let it wait, or preempt another one."""
        keys, hits = self.blocks.keys(ids), 0
        while hits < (len(ids) - 1) // self.block_tokens and keys[hits] in self._holding:
            hits += 1
        held = [next(iter(self._holding[key])) for key in keys[:hits]]
        for block in held:
            self._users[block] += 1
            self._free.pop(block, None)
        self._grow(held, len(ids))
        self._know(held, keys)
        return held, hits * self.block_tokens

    def end(self, held: list[int], ids: Sequence[int], answer: Sequence[int] = ()) -> None:
        """The request that holds `held` has ended with `answer`, or was cancelled after so much of it."""
        computed = (*ids, *answer[:-1])
        self._grow(held, len(computed))
        self._know(held, self.blocks.keys(computed))
        self._release(held)

    def _grow(self, held: list[int], tokens: int) -> None:
        while len(held) * self.block_tokens < tokens:
            if not self._free:
                self._release(held)
                raise RuntimeError(
                    f"The pool of {len(self._users)} blocks has none free for a request of {tokens} tokens; "
                    "give it more blocks, or fewer requests at once."
                )
            block, _ = self._free.popitem(last=False)
            key = self._key_of.pop(block, None)
            if key is not None:
                del self._holding[key][block]
                if not self._holding[key]:
                    del self._holding[key]
            self._users[block] = 1
            held.append(block)

    def _know(self, held: list[int], keys: list[int]) -> None:
        """Enter the whole blocks of a request."""
        for block, key in zip(held, keys):
            if block not in self._key_of:
                self._key_of[block] = key
                self._holding.setdefault(key, {})[block] = None

    def _release(self, held: list[int]) -> None:
        """Free the blocks of a request, tail first; what no prompt can find is taken again first."""
        free = []
        for block in reversed(held):
            self._users[block] -= 1
            if not self._users[block]:
                free.append(block)
                self._free[block] = None
        for block in reversed(free):
            if block not in self._key_of:
                self._free.move_to_end(block, last=False)


class Slots:
    """llama.cpp's slots and the prompts that its server keeps in host memory.

    A request takes the idle slot with the longest common prefix if that is more than SIMILARITY of its
    prompt, else the least recently used. What a slot loses goes to host memory of `host_tokens` (0: none)
    and comes back. `begin` and `end` for requests that overlap, `request` for one after the other.
    Source: tools/server/server-context.cpp and server-task.cpp of the pinned llama.cpp, `n_cache_reuse` 0.
    """

    def __init__(self, slots: int = 1, host_tokens: float = 0) -> None:
        if slots < 1:
            raise ValueError(f"A server has 1 slot or more, not {slots}.")
        self.host_tokens = host_tokens
        self._held: list[tuple[int, ...]] = [()] * slots
        self._used, self._busy, self._turn = [0] * slots, [False] * slots, 0
        self._host: deque[tuple[int, ...]] = deque()

    def request(self, ids: Sequence[int], answer: Sequence[int] = ()) -> int:
        """Hit tokens of a request that nothing overlaps; its answer is kept but for the last token."""
        slot, hit_tokens = self.begin(ids)
        self.end(slot, ids, answer)
        return hit_tokens

    def begin(self, ids: Sequence[int]) -> tuple[int, int]:
        """(slot that the request holds from now on, hit tokens). RuntimeError where no slot is idle: a server
        would let it wait."""
        ids = tuple(ids)
        idle = [slot for slot, busy in enumerate(self._busy) if not busy]
        if not idle:
            raise RuntimeError(f"All of {len(self._busy)} slots are busy: end a request before the next.")
        shared = {slot: _shared(self._held[slot], ids) for slot in idle}
        slot = max(idle, key=lambda slot: shared[slot])
        if shared[slot] > SIMILARITY * len(ids):
            displaced = shared[slot] < KEPT_SHARE * len(self._held[slot])
        else:  # of equally old ones the last, as the server's loop does
            slot, displaced = min(idle, key=lambda slot: (self._used[slot], -slot)), True
        if displaced and self.host_tokens and self._held[slot]:
            self._exchange(slot, ids)
        hit_tokens = min(_shared(self._held[slot], ids), len(ids) - 1)
        self._held[slot], self._busy[slot] = ids, True
        return slot, hit_tokens

    def end(self, slot: int, ids: Sequence[int], answer: Sequence[int] = ()) -> None:
        """The request in `slot` has ended with `answer`, or was cancelled after so much of it."""
        self._turn += 1
        self._held[slot] = (*ids, *answer[:-1])
        self._used[slot], self._busy[slot] = self._turn, False

    def _exchange(self, slot: int, ids: tuple[int, ...]) -> None:
        """Save what `slot` holds to host memory, and take back the prompt there that serves `ids` best."""
        held = self._held[slot]
        if not any(_shared(kept, held) == len(held) for kept in self._host):
            self._host = deque(kept for kept in self._host if _shared(kept, held) < len(kept))
            self._host.append(held)
        shared = _shared(held, ids)
        best, best_kept, best_similar = None, shared / len(held), shared / len(ids)
        for kept in self._host:
            common = _shared(kept, ids)
            share, similar = common / len(kept), common / len(ids)
            if share >= TAKEN_SHARE and share > best_kept and similar > best_similar:
                best, best_kept, best_similar = kept, share, similar
        if best is not None:
            self._host.remove(best)
            self._held[slot] = best
        while len(self._host) > 1 and sum(map(len, self._host)) > self.host_tokens:
            self._host.popleft()


def simulated(requests: Sequence[Request], declared: Declared) -> list[int]:
    """Hit tokens of each request in a cache of the declared kind and size, requests one after the other in
    this order: what is shown beside hits that fall below `expected`.

    Replicas are dealt to as `router` says. The ids of answers that are not known are taken for tokens that
    nobody sends. ValueError where blocks have no size.
    """
    if declared.kind == "off":
        return [0] * len(requests)
    caches = [_cache(declared) for _ in range(declared.replicas)]
    routed = route([request.session for request in requests], declared.replicas, declared.router)
    hits = []
    for number, (request, replica) in enumerate(zip(requests, routed)):
        unknown = (-1 - number,) * request.new_tokens
        answer = unknown if request.answer is None else request.answer
        hits.append(caches[replica].request(request.ids, answer))
    return hits


def _cache(declared: Declared) -> BlockPool | Slots:
    if declared.kind == "slots":
        return Slots(declared.slots, declared.host_tokens)
    if declared.capacity_tokens is None:
        raise ValueError("A cache of blocks is simulated with a size: state its capacity_tokens.")
    return BlockPool(declared.capacity_tokens // declared.block_tokens, declared.block_tokens)


def route(sessions: Sequence[int], replicas: int, router: str = "session affinity") -> list[int]:
    """The replica that each request goes to, from 0: in turn over requests (`round robin`), or over sessions
    in the order of their first request (`session affinity`)."""
    if router not in ROUTERS:
        raise ValueError(f"A router is one of {', '.join(ROUTERS)}, not {router!r}.")
    if router == "round robin":
        return [k % replicas for k in range(len(sessions))]
    first: dict[int, int] = {}
    return [first.setdefault(session, len(first)) % replicas for session in sessions]


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
