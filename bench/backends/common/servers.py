"""Servers: what an experiment needs of one, how an adapter states one, and what one that answers is."""

import contextlib
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import prefix_cache, processes
from bench.backends.common.checkpoints import Checkpoint

SPARE = 32  # tokens beyond the longest request: that a server adds to a text, keeps free, or drafts


@dataclass(frozen=True)
class ServerSpec:
    """What a study needs of a server.

    `requests` at once (0: as many as the engine takes of itself) with `tokens` each (prompt and answer), CPU
    `threads`, how many devices share the model (`tensor_parallel`), where it logs and how long it may take to
    start (s); `url` where one runs already; how many replicas of the model stand behind its address
    (`data_parallel`). `cache_tokens`: the size of its prefix cache, 0 where it is to be off, in tokens; with
    either it counts prompt tokens where it can. None: no cache, and no counters that nobody reads. `port` of
    the loopback is where it is to listen. Of one that runs already: `served_model` is its name of the model,
    `changes` are made to the body of every request (`protocols.changed`), and `headers` added to its head.
    """

    requests: int
    tokens: int
    threads: int
    tensor_parallel: int = 1
    log: Path = Path("logs/server.txt")
    patience_s: float = 600
    url: str = ""
    data_parallel: int = 1
    cache_tokens: int | None = None
    port: int = field(default_factory=processes.free_port)
    served_model: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass
class RunningServer:
    """A server that answers.

    `dialect` is a name in `bench.instrument.load.protocols`, `model` the name that it has for the model,
    `body` a function of the number of new tokens that returns what goes into the body of every request (some
    servers need that number), `token` the access token, if it needs one. Which bytes a step reads is unknown,
    because how many requests a step serves is the server's own affair: there is no MBU.
    `cache`: the prefix cache that it has; None where nobody can say. `changes` and `headers` as in
    `ServerSpec`.
    """

    url: str
    dialect: str
    model: str
    settings: dict[str, Any]
    body: Callable[[int], dict[str, Any]] = lambda new_tokens: {}
    token: str = field(default="", repr=False)
    cache: prefix_cache.Declared | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    weight_bytes: None = None
    kv_value_bytes: None = None

    def close(self) -> None:
        """Nothing: whoever started it stops it."""


@dataclass(frozen=True)
class ServerCommand:
    """A server that is to be started: `command` with `flags`.

    `flags` maps names to values, True for a flag without one. They go into its settings, but for the port and
    for paths of this machine; `settings` come on top, and what `reported` finds at the server's address once
    it answers (an exception of `reported` ends the server). `events` is the dialect of its stream, `body` as
    in `RunningServer`. `model` is the server's name for the model, the checkpoint's where it is empty;
    `health` the path that answers once it is ready, `below` what stands before the paths of its requests;
    `environment` are variables of its process, `after` a command to run when it has ended. `cache` says at
    the server's address which prefix cache it has, None where nobody can.
    """

    command: Sequence[Any]  # words, paths, numbers
    flags: dict[str, Any] = field(default_factory=dict)
    body: Callable[[int], dict[str, Any]] = lambda new_tokens: {}
    events: str = "completions"
    model: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    reported: Callable[[str], dict[str, Any]] = lambda url: {}
    health: str = "/health"
    below: str = ""
    environment: dict[str, str] | None = None
    after: Sequence[str] = ()
    cache: Callable[[str], prefix_cache.Declared | None] = lambda url: None


@contextlib.contextmanager
def running(
    server: ServerCommand | RunningServer, checkpoint: Checkpoint, request: ServerSpec
) -> Iterator[RunningServer]:
    """`server` for as long as the block lasts: started and stopped, whatever happens, unless it runs
    already."""
    if isinstance(server, RunningServer):
        yield server
        return
    flags = [
        word for name, value in server.flags.items() for word in ((name,) if value is True else (name, value))
    ]
    shown = {
        name.lstrip("-").replace("-", "_"): value
        for name, value in server.flags.items()
        if value != request.port and not isinstance(value, Path)
    }
    command = list(map(str, [*server.command, *flags]))
    try:
        with processes.started(
            command, request.port, request.log, request.patience_s, server.health, server.environment
        ) as url:
            settings = shown | server.settings | server.reported(url)
            model, at = server.model or checkpoint.name, url + server.below
            yield RunningServer(at, server.events, model, settings, server.body, cache=server.cache(url))
    finally:
        if server.after:
            subprocess.run(server.after, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def tool(name: str) -> str:
    """Path of the command `name`: beside this interpreter, else on PATH, else `name` itself."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name


def context(checkpoint: Checkpoint, request: ServerSpec) -> float:
    """Tokens that a server must have room for in one request, no more than the model can take."""
    return min(checkpoint.config.get("max_position_embeddings", math.inf), request.tokens + SPARE)


def at_once(flag: str, request: ServerSpec) -> dict[str, int]:
    """{`flag`: how many requests at once}; empty where the engine's own limit is to hold."""
    return {flag: request.requests} if request.requests else {}
