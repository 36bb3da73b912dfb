"""What the adapters of servers share: a command with its flags, run until the block ends."""

import contextlib
import math
import shutil
import sys
from pathlib import Path

from bench import processes
from bench.backends.common import servers

SPARE = (
    32  # tokens beyond the longest request: that a server adds to a text, keeps free at the end, or drafts
)


def tool(name):
    """Path of the command `name`: beside this interpreter, else on PATH, else `name` itself."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name


def context(checkpoint, request):
    """Tokens that a server must have room for in one request, no more than the model can take."""
    return min(checkpoint.config.get("max_position_embeddings", math.inf), request.tokens + SPARE)


def at_once(flag, request):
    """{`flag`: how many requests at once}; empty where the engine's own limit is to hold."""
    return {flag: request.requests} if request.requests else {}


@contextlib.contextmanager
def run(words, flags, port, request, dialect, model, body, health="/health", settings=None, environment=None):
    """Run `words` and `flags` as a server on `port` for `request` (servers.Wanted); yields a
    `servers.Served`.

    `flags` maps names to values, True for a flag without one. They go into its settings, but for the port and
    for paths of this machine; `settings` come on top.
    """
    options = [
        word for name, value in flags.items() for word in ((name,) if value is True else (name, value))
    ]
    shown = {
        name.lstrip("-").replace("-", "_"): value
        for name, value in flags.items()
        if value != port and not isinstance(value, Path)
    }
    command = [*words, *map(str, options)]
    with processes.started(command, port, request.log, request.patience_s, health, environment) as url:
        yield servers.Served(url, dialect, model, shown | (settings or {}), body)
