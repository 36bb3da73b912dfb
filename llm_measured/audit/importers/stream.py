"""A large JSON file read as a stream: arrays of numbers inside arrays shrink to count and sum, texts and
long arrays are cut."""

from dataclasses import dataclass
from pathlib import Path

from llm_measured.audit.importers import bounds
from llm_measured.core.definitions import Value

DEPTH = 60


@dataclass
class Numbers:
    """An array of numbers of which only these were kept: how many there were, and their sum."""

    count: int = 0
    total: float = 0.0


def parse(path: Path, notes: list[str]) -> list:
    """The JSON values of `path`, one after the other, as Python objects, bounded; ValueError where it is
    damaged or nested too deep. What was cut is said in `notes`."""
    import ijson

    tree = _Tree()
    with open(path, "rb") as source:
        try:
            for event, value in ijson.basic_parse(source, use_float=True, multiple_values=True):
                if event == "number" and tree.numbers is not None:  # the many: gaps of every request
                    tree.numbers.count += 1
                    tree.numbers.total += value
                else:
                    tree.take(event, value)
        except ijson.JSONError as error:
            raise ValueError(str(error)) from None
    if tree.cut:
        notes.append(
            f"The file is large: of each list the first {bounds.ITEMS:,} items were read, of each object "
            f"the first {bounds.NAMES:,} names."
        )
    return tree.roots


class _Tree:
    """The values of a stream of events, as much of them as importers read."""

    def __init__(self) -> None:
        self.roots, self.cut = [], False
        self.stack = []  # of [container, name in it]
        self.numbers = None  # the array of numbers that is open, where one is
        self.skip = 0  # depth in what nobody reads
        self.values = 0

    def take(self, event: str, value: Value) -> None:
        """The next event of `ijson.basic_parse`."""
        if self.skip:
            self.skip += (event in ("start_map", "start_array")) - (event in ("end_map", "end_array"))
        elif event == "map_key":
            self.stack[-1][1] = value[:200]
        elif event in ("end_map", "end_array"):
            self.stack.pop()
            self.numbers = None
        else:
            made = {} if event == "start_map" else [] if event == "start_array" else value
            kept = _place(self.stack, made, event)
            self.cut |= kept is None
            if not self.stack and len(self.roots) < bounds.ITEMS:
                self.roots.append(made)
            if event in ("start_map", "start_array"):
                self._open(made if kept is True else kept)
            self.values += kept is True
            if self.values > bounds.VALUES:
                raise ValueError(f"it holds more than {bounds.VALUES:,} values that no known format has")

    def _open(self, made):
        """Go on inside `made`, or skip all of it where it is not kept."""
        if made is None or made is False:
            self.skip = 1
            return
        self.stack.append([made, None])
        self.numbers = made if isinstance(made, Numbers) else None
        if len(self.stack) > DEPTH:
            raise ValueError("nested too deep")


def _place(stack, made, event):
    """Put a value where it belongs: True, or the object to go on with; False where nobody reads it, None
    where a list or an object is full."""
    if not stack:
        return True
    parent, key = stack[-1]
    if isinstance(made, str):
        made = made[: bounds.TEXT_CHARS]
    if isinstance(parent, dict):
        if key in bounds.SKIPPED:
            return False
        if len(parent) >= bounds.NAMES:
            return None
        parent[key] = made
        return True
    if isinstance(parent, Numbers):
        return False
    if len(parent) >= bounds.ITEMS:
        return None
    if event == "start_array":
        made = Numbers()
        parent.append(made)
        return made
    parent.append(made)
    return True


def summary(values: object) -> tuple[int, float]:
    """(count, sum) of an array of numbers, cut or whole; (0, 0) for anything else."""
    if isinstance(values, Numbers):
        return values.count, values.total
    if isinstance(values, list):
        numbers = [v for v in values if isinstance(v, (int, float))]
        return len(numbers), float(sum(numbers))
    return 0, 0.0
