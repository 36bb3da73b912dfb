"""What a JSON document says once of all its results, at any depth: the device, and the texts that
quantities.csv calls noted."""

from collections.abc import Iterator
from functools import cache

from llm_measured.audit import quantities
from llm_measured.core import names
from llm_measured.core.definitions import Value

DEPTH, LISTED = 8, 50  # levels of a document, and items of each list, that are looked at


def stated(document: Value) -> dict[str, str]:
    """{column: text} of the document. Of several names of a text the first in the table counts, of several
    places the least deep. A device counts where a table knows it and the document names no other; it stands
    under its own name or under any name inside that one."""
    noted: dict[str, tuple[int, str]] = {}
    devices: tuple[dict[str, None], ...] = {}, {}
    for path, value in sorted(leaves(document, DEPTH, LISTED), key=lambda leaf: len(leaf[0])):
        for away, name in enumerate([name for name in path[::-1] if name][:2]):
            word, rank = _word(name)
            if word == "gpu" and is_device(value):
                devices[away][str(value)] = None
            elif word and value != "" and not away and rank < noted.get(word, (rank + 1, ""))[0]:
                noted[word] = rank, str(value)
    found = {word: text for word, (_, text) in noted.items()}
    named = devices[0] or devices[1]
    return found | ({"gpu": next(iter(named))} if len(named) == 1 else {})


def leaves(
    found: Value, depth: int, listed: int, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Value]]:
    """(names on the way to it, value) of every text and number in a JSON value, `depth` objects and lists
    deep; of a list the first `listed` items, each under an empty name."""
    named = found.items() if isinstance(found, dict) else (("", one) for one in found[:listed])
    for name, value in named:
        if isinstance(value, dict | list) and depth > 1:
            yield from leaves(value, depth - 1, listed, (*path, str(name)))
        elif value is not None and not isinstance(value, dict | list):
            yield (*path, str(name)), value


@cache
def _word(name: str) -> tuple[str, int]:
    """(quantity that stands once in a document under this name, the name's place in its row); "" for none."""
    plain = quantities.snaked(name)
    for one in quantities.table().values():
        if one.kind == "noted" and plain in one.names:
            return one.word, one.names.index(plain)
    return "gpu" if plain.removesuffix("s") in quantities.table()["gpu"].names else "", 0


@cache
def is_device(text: Value) -> bool:
    """Whether a text names a device that a table knows."""
    try:
        return isinstance(text, str) and bool(names.accelerator(text).candidates)
    except names.UnknownName:
        return False
