"""Figures and tables by name. Each joins where it is defined; pages, notebooks and commands look them up
here."""

import functools
import inspect
from collections.abc import Callable

import pandas as pd

FIGURES: dict[str, Callable] = {}  # all requests in, a matplotlib Figure out
TABLES: dict[str, Callable] = {}  # all requests in, a DataFrame for readers out


def table(function: Callable, name: str = "") -> Callable:
    """Decorator: the function is a table that `TABLES` lists, under its own name or another. One that needs
    nobody's runs may be handed them all the same."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def made(requests: pd.DataFrame | None = None) -> pd.DataFrame:
        return function(requests) if parameters else function()

    TABLES[name or function.__name__] = made
    return made
