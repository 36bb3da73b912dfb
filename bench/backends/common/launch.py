"""What the adapters of servers share: a command with its flags, run until the block ends. Not an engine: its name begins with `_`."""

import contextlib
import math
import shutil
import sys
from pathlib import Path

from bench import processes
from bench.backends.common import servers

SPARE = 32  # tokens beyond the longest request: those that a server adds to a text, keeps free at the end, or drafts


def tool(name):
    """Path of the command `name`: the one beside this interpreter (its environment's), else the one on PATH, else `name` itself."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name


def context(checkpoint, wanted):
    """Tokens that a server must have room for in one request, no more than the model can take."""
    return min(checkpoint.config.get("max_position_embeddings", math.inf), wanted.tokens + SPARE)


@contextlib.contextmanager
def run(words, flags, port, wanted, dialect, model, body, health="/health", settings=None, environment=None):
    """Run `words` and `flags` (name -> value; True for a flag without one) as a server on `port`; yields a `servers.Served`.

    The flags go into its settings, but for the port and for paths of this machine; `settings` come on top.
    """
    given = [
        str(word) for name, value in flags.items() for word in ([name] if value is True else [name, value])
    ]
    told = {
        name.lstrip("-").replace("-", "_"): value
        for name, value in flags.items()
        if value != port and not isinstance(value, Path)
    }
    with processes.started([*words, *given], port, wanted.log, wanted.patience_s, health, environment) as url:
        yield servers.Served(url, dialect, model, told | (settings or {}), body)
