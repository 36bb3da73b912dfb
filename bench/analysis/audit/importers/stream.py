"""A large JSON file read as a stream: arrays of numbers inside arrays shrink to count and sum, texts and
long arrays are cut."""

from dataclasses import dataclass

from bench.analysis.audit.importers import content

DEPTH = 60


@dataclass
class Numbers:
    """An array of numbers of which only these were kept: how many there were, and their sum."""

    count: int = 0
    total: float = 0.0


def parse(path, notes):
    """The JSON of `path` as Python objects, bounded; ValueError where it is damaged or nested too deep.
    What was cut is said in `notes`."""
    import ijson

    root, stack, skip, cut = None, [], 0, False
    key = None
    with open(path, "rb") as source:
        try:
            for event, value in ijson.basic_parse(source, use_float=True):
                if skip:
                    skip += (event in ("start_map", "start_array")) - (event in ("end_map", "end_array"))
                    continue
                if event == "map_key":
                    key = value[:200]
                    stack[-1][1] = key
                elif event in ("end_map", "end_array"):
                    stack.pop()
                else:
                    made = {} if event == "start_map" else [] if event == "start_array" else value
                    container = event in ("start_map", "start_array")
                    kept = _place(stack, made, event)
                    cut |= kept is None
                    if container and (kept is None or kept is False):
                        skip = 1
                    elif container:
                        stack.append([made if kept is True else kept, None])
                        if len(stack) > DEPTH:
                            raise ValueError("nested too deep")
                        root = made if root is None else root
        except ijson.JSONError as error:
            raise ValueError(str(error)) from None
    if cut:
        notes.append(f"The file is large: of each list the first {content.ITEMS:,} items were read.")
    return root


def _place(stack, made, event):
    """Put a value where it belongs: True, or the object to go on with; False where nobody reads it, None
    where a list is full."""
    if not stack:
        return True
    parent, key = stack[-1]
    if isinstance(made, str):
        made = made[: content.TEXT_CHARS]
    if isinstance(parent, dict):
        if key in content.SKIPPED:
            return False
        parent[key] = made
        return True
    if isinstance(parent, Numbers):
        if event == "number":
            parent.count += 1
            parent.total += float(made)
        return False
    if len(parent) >= content.ITEMS:
        return None
    if event == "start_array" and parent is not None:
        made = Numbers()
        parent.append(made)
        return made
    parent.append(made)
    return True


def summary(values):
    """(count, sum) of an array of numbers, cut or whole; (0, 0) for anything else."""
    if isinstance(values, Numbers):
        return values.count, values.total
    if isinstance(values, list):
        numbers = [v for v in values if isinstance(v, (int, float))]
        return len(numbers), float(sum(numbers))
    return 0, 0.0
