"""Token ids that stand for a block, a head or a message: drawn from the study's text by name, not in turn."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

_STEP = np.uint64(0x9E3779B97F4A7C15)


def seed_of(parts: Iterable[object]) -> int:
    """A seed of 64 bits that follows from the words of `parts`, by their hash."""
    digest = hashlib.sha256(" ".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big")


class Words:
    """Token ids out of `text`, the ids of the study's text: the same for the same name and `source`.

    `source` names what must not share a prefix with anything else: the checkout's id, the number of the run
    and of its level. Ids follow from a hash of the name, so that a sample of a workload has the ids that the
    whole has. ValueError without text.
    """

    def __init__(self, text: Sequence[int], source: Sequence) -> None:
        if not len(text):
            raise ValueError("There is no text to take token ids from.")
        self.text = np.asarray(text, dtype=np.int64)
        self.seed = seed_of(source)

    def __call__(self, tokens: int, *name: int | str) -> tuple[int, ...]:
        """`tokens` ids that `name` stands for; fewer tokens of one name are the beginning of more."""
        key = np.uint64(seed_of((self.seed, *name)))
        with np.errstate(over="ignore"):
            mixed = key + _STEP * np.arange(1, max(0, tokens) + 1, dtype=np.uint64)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
                mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
            mixed ^= mixed >> np.uint64(31)
        return tuple(self.text[mixed % np.uint64(len(self.text))].tolist())
