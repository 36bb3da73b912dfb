"""A large JSON file read as a stream: arrays of numbers inside arrays shrink to count and sum, texts and
long arrays are cut."""

from dataclasses import dataclass
from pathlib import Path

from llm_measured.core.definitions import Value

DEPTH = 60
TEXT_CHARS = 500  # of a text that are kept
ITEMS = 50_000  # of an array of objects
NAMES = 10_000  # of an object
VALUES = 4_000_000  # of a file in all
# Names that no importer reads and whose values would fill the memory.
SKIPPED = set("request_args info pdf percentile_cis mean_ci responses tool_calls raw_response".split())
BEGINS, ENDS = ("start_map", "start_array"), ("end_map", "end_array")


@dataclass
class Numbers:
    """An array of numbers of which only these were kept: how many there were, and their sum."""

    count: int = 0
    total: float = 0.0


def parse(path: Path, notes: list[str]) -> list:
    """The JSON values of `path`, one after the other, as Python objects, bounded; ValueError where it is
    damaged or nested too deep. What was cut is said in `notes`."""
    import ijson

    roots: list[Value] = []
    inside: list[Value] = []  # the lists and objects that are open
    key, skip, values, cut = "", 0, 0, False  # skip: depth in what nobody reads
    with open(path, "rb") as source:
        try:
            for event, value in ijson.basic_parse(source, use_float=True, multiple_values=True):
                top = inside[-1] if inside else roots
                if skip:
                    skip += (event in BEGINS) - (event in ENDS)
                elif isinstance(top, Numbers) and event == "number":  # the many: gaps of every request
                    top.count += 1
                    top.total += value
                elif event in ENDS:
                    inside.pop()
                elif event == "map_key":
                    key = value[:200]
                elif isinstance(top, Numbers) or isinstance(top, dict) and key in SKIPPED:
                    skip = int(event in BEGINS)
                elif len(top) >= (NAMES if isinstance(top, dict) else ITEMS):
                    skip, cut = int(event in BEGINS), True
                else:
                    made = _begun(event, value, bool(inside) and isinstance(top, list))
                    if isinstance(top, dict):
                        top[key] = made
                    else:
                        top.append(made)
                    inside += [made] if event in BEGINS else []
                    values += 1
                    if values > VALUES:
                        raise ValueError(f"it holds more than {VALUES:,} values that no known format has")
                    if len(inside) > DEPTH:
                        raise ValueError("nested too deep")
        except ijson.JSONError as error:
            raise ValueError(str(error)) from None
    if cut:
        notes.append(
            f"The file is large: of each list the first {ITEMS:,} items were read, of each object "
            f"the first {NAMES:,} names."
        )
    return roots


def _begun(event: str, value: Value, listed: bool) -> Value:
    """The value of an event, a text of it cut, or the list or object that begins; of an array in an array its
    numbers."""
    if event == "start_map":
        return {}
    if event == "start_array":
        return Numbers() if listed else []
    return value[:TEXT_CHARS] if isinstance(value, str) else value


def summary(values: object) -> tuple[int, float]:
    """(count, sum) of an array of numbers, cut or whole; (0, 0) for anything else."""
    if isinstance(values, Numbers):
        return values.count, values.total
    if isinstance(values, list):
        numbers = [v for v in values if isinstance(v, (int, float))]
        return len(numbers), float(sum(numbers))
    return 0, 0.0
