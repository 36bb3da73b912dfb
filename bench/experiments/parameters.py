"""Parameters of a notebook, checked against its first cell."""

import ast
import math

from bench import naming


def declared(source):
    """Name -> default of every `name = literal` in the source of a parameters cell."""
    return {
        target.id: ast.literal_eval(node.value)
        for node in ast.parse(source).body if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip


def parameters(namespace):
    """The parameters of the running notebook, name -> value: those of its first cell, as papermill's injected cell has set them.

    papermill only warns of a parameter that does not exist, so it is checked here: NameError for a name that the first cell does not
    declare, TypeError for a value of another type, both listing what exists.
    """
    cells = [source for source in namespace["In"] if source.strip()]
    known = declared(cells[0])
    for source in cells[1:-1]:
        for name in declared(source):
            if name not in known:
                try:
                    naming.choose("parameter", name, known)
                except ValueError as error:
                    raise NameError(str(error)) from None
    for name, default in known.items():
        value = namespace[name]
        if isinstance(default, str) and type(value) in (
            int,
            float,
        ):  # papermill makes a number of what looks like one
            value = namespace[name] = str(value)
        if not isinstance(value, (int, float) if isinstance(default, float) else type(default)):
            raise TypeError(
                f"Parameter {name} must be a {type(default).__name__} such as {default!r}, not {value!r}."
            )
    return {name: namespace[name] for name in known}


def numbers(name, text):
    """Positive whole numbers in `text`, separated by spaces; ValueError naming the parameter otherwise."""
    words = _words(text)
    if not words or not all(word.isdigit() and int(word) for word in words):
        raise ValueError(
            f"Parameter {name} must be whole numbers above 0 separated by spaces, such as '1 2 4', not {text!r}."
        )
    return [int(word) for word in words]


def rates(name, text):
    """Positive numbers in `text`, separated by spaces; none is allowed. ValueError naming the parameter otherwise."""
    try:
        found = [float(word) for word in _words(text)]
    except ValueError:
        found = [0.0]
    if not all(0 < rate < math.inf for rate in found):
        raise ValueError(
            f"Parameter {name} must be numbers above 0 separated by spaces, such as '0.5 1 2', not {text!r}."
        )
    return found


def _words(text):
    return "".join(" " if letter in "[](),;" else letter for letter in text).split()


def or_auto(text, read, name, usual):
    """What `read` makes of a parameter, of `usual` where it is `auto`, nothing where it is `none`."""
    return [] if text == "none" else read(name, usual if text == "auto" else text)
