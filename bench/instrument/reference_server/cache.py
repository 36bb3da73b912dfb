"""The cache of the reference server: a pool of blocks whose every hit is known.

Blocks are free or in use. Free ones wait in a queue: those that never held a whole block first, then
those that were freed longest ago; a request's blocks are freed from its tail on. A whole block is known
by its tokens and all before them, and found again until its place is taken. This is how vLLM's pool
works; it is written here once more, because a judge takes nothing from what it judges.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.instrument.reference_server.events import Token


@dataclass
class Held:
    """What one request holds: its tokens, its blocks, and how many tokens of its prompt were cached."""

    tokens: list[Token]
    prompt_tokens: int
    cached: int
    late: bool
    blocks: list[object] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)  # of its whole blocks, in order
    evicted: int = 0


class Cache:
    """A pool of `blocks` blocks of `block_tokens` tokens each.

    `computed` and `cached` count prompt tokens since the server began, as engines report them.
    """

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.block_tokens, self.blocks = block_tokens, blocks
        self.computed = self.cached = 0
        self.forget()

    def forget(self) -> None:
        """Forget every block; requests under way keep what they hold, and leave nothing behind."""
        self.known: dict[int, dict[object, None]] = {}  # key -> the blocks that hold it
        self.holds: dict[object, int] = {}  # block -> its key
        self.users: dict[object, int] = {}  # block -> how many requests use it
        self.free: OrderedDict[object, None] = OrderedDict.fromkeys(object() for _ in range(self.blocks))

    def begin(self, tokens: Sequence[Token], late: bool = False) -> Held:
        """The Held of a request with the prompt `tokens`, counted; its blocks are found by others from
        now on, or where `late` once it has ended."""
        reusable = (len(tokens) - 1) // self.block_tokens
        keys, hits = self._keys(tokens), []
        for key in keys[:reusable]:
            if not self.known.get(key):
                break
            hits.append(next(iter(self.known[key])))
        cached = len(hits) * self.block_tokens
        held = Held(list(tokens), len(tokens), cached, late, keys=keys)
        for block in hits:
            self._use(held, block)
        self._grow(held)
        self.cached, self.computed = self.cached + cached, self.computed + len(tokens) - cached
        return held

    def end(self, held: Held, answer: Sequence[Token]) -> None:
        """The request is over, answered or cancelled; `answer`: the tokens of its answer that were
        computed, all but the last one sampled."""
        held.tokens += answer
        held.keys = self._keys(held.tokens)
        held.late = False
        self._grow(held)
        for block in reversed(held.blocks):
            if block not in self.users:
                continue  # the cache was forgotten in between
            self.users[block] -= 1
            if not self.users[block]:
                del self.users[block]
                self.free[block] = None
                self.free.move_to_end(block, last=block in self.holds)

    def _keys(self, tokens: Sequence[Token]) -> list[int]:
        """A key for each whole block of `tokens`: that block and all before it."""
        size, keys = self.block_tokens, [hash(())]
        for at in range(0, len(tokens) // size * size, size):
            keys.append(hash((keys[-1], *tokens[at : at + size])))
        return keys[1:]

    def _grow(self, held: Held) -> None:
        """Take a block for each that `held` lacks, and let the whole ones be found."""
        while len(held.blocks) * self.block_tokens < len(held.tokens) and self.free:
            block = next(iter(self.free))
            key = self.holds.pop(block, None)
            if key is not None:
                held.evicted += 1
                self.known[key].pop(block)
                if not self.known[key]:
                    del self.known[key]
            self._use(held, block)
        if held.late:
            return
        for block, key in zip(held.blocks, held.keys):
            if block in self.users and block not in self.holds:
                self.holds[block] = key
                self.known.setdefault(key, {})[block] = None

    def _use(self, held: Held, block: object) -> None:
        self.free.pop(block, None)
        self.users[block] = self.users.get(block, 0) + 1
        held.blocks.append(block)
