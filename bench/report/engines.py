"""What the page Backends shows of every engine: its adapter's notes, its options, and what was measured."""

import inspect
import re

import pandas as pd
from IPython.display import Markdown, display

from bench import backends


def show(rows: pd.DataFrame) -> None:
    """Show the notes of every engine: its module's docstring, its options, and what was measured.

    One display for all: in a cell with `output: asis` Quarto puts no empty line between two, and a heading
    needs one before it.
    """
    display(Markdown("\n\n".join(f"## {name}\n\n{notes(name, rows)}" for name in backends.names()) + "\n"))


def notes(name: str, rows: pd.DataFrame) -> str:
    """The notes of one engine as Markdown; an adapter that cannot be imported shows its error instead."""
    try:
        engine = backends.get(name)
        options = [f"on `{device}`: {_codes(engine.options(device))}" for device in engine.devices]
        text = without_markup(inspect.getdoc(engine.module) or "This file says nothing about its engine.")
        return f"{text}\n\n**Options:** {'; '.join(options)}.\n\n**Measured:** {measured(name, rows)}"
    except Exception as error:  # whatever a contributed adapter does wrong, the others stay readable
        return f"This adapter does not load: {_words(error)}"


def without_markup(text: str) -> str:
    """Markdown whose `<` cannot begin an HTML element, but for code and addresses in angle brackets."""
    return re.sub(r"(`[^`]*`|<https?://[^>\s]*>)|<", lambda found: found[1] or "&lt;", text)


def measured(name: str, rows: pd.DataFrame) -> str:
    """What has been measured of engine `name`, in one sentence."""
    runs = rows[rows["backend"] == name]
    if runs.empty:
        engine = backends.get(name)
        device = "" if "cpu" in engine.devices else "DEVICE=cuda "
        return "not yet. " + (
            without_markup(engine.on_request) or f"Measure it with `make study {device}ENGINES={name}`."
        )
    versions = ", ".join(sorted(runs["backend_version"].unique()))
    count = runs["run_id"].nunique()
    options = _codes(sorted(runs["option"].unique()))
    return f"version {versions}; {options} in {count} {'run' if count == 1 else 'runs'}."


def _codes(words):
    return ", ".join(f"`{word}`" for word in words)


def _words(error):
    return f"`{type(error).__name__}: {' '.join(str(error).split())}`"
