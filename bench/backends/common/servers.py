"""Servers: what an experiment needs of one, how an adapter states one, and what one that answers is."""

import contextlib
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import environment, prefix_cache, processes
from bench.backends.common import effective
from bench.backends.common.checkpoints import Checkpoint

SPARE = 32  # tokens beyond the longest request: that a server adds to a text, keeps free, or drafts
NAME = r"\{(\w+)\}"  # in a declaration


@dataclass(frozen=True)
class ServerSpec:
    """What a study needs of a server.

    `requests` at once (0: as many as the engine takes of itself) with `tokens` each (prompt and answer), CPU
    `threads`, how many devices share the model (`tensor_parallel`), where it logs and how long it may take to
    start (s); `url` where one runs already; how many replicas of the model stand behind its address
    (`data_parallel`). `cache_tokens`: the size of its prefix cache, 0 where it is to be off, in tokens; with
    either it counts prompt tokens where it can. None: no cache, and no counters that nobody reads. `port` of
    the loopback is where it is to listen. Of one that runs already: `served_model` is its name of the model,
    `path` that of its requests where it is an unusual one, `changes` are made to the body of every request
    (`protocols.changed`), and `headers` added to its head.
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
    path: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass
class RunningServer:
    """A server that answers.

    `dialect` is a name in `bench.instrument.load.protocols`, `model` the name that it has for the model,
    `body` a function of the number of new tokens that returns what goes into the body of every request (some
    servers need that number), `token` the access token, if it needs one. Which bytes a step reads is unknown,
    because how many requests a step serves is the server's own affair: there is no MBU.
    `cache`: the prefix cache that it has; None where nobody can say. `path`, `changes` and `headers` as in
    `ServerSpec`.
    """

    url: str
    dialect: str
    model: str
    settings: dict[str, Any]
    body: Callable[[int], dict[str, Any]] = lambda new_tokens: {}
    token: str = field(default="", repr=False)
    cache: prefix_cache.Declared | None = None
    path: str = ""
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


def checkpoint_itself(checkpoint: Checkpoint, option: str, device: str) -> Path:
    """Return the checkpoint's own folder, for a server that reads it as it is."""
    return checkpoint.path


@dataclass(frozen=True)
class Declaration:
    """A server as data; `serve` makes its `ServerCommand`.

    A name in braces stands for a value:

        {path} {parent} {name}   folder that `prepare` returns, the folder around it, its last part
        {model}                  the checkpoint's name
        {end_token_ids}          the ids that end a sequence
        {option} {device}        name of the option; cuda or cpu
        {port}                   where it is to listen
        {gpus}                   numbers of the GPUs that it may use, as 3,1
        {tensor_parallel}        how many devices share the model
        {replicas}               how many replicas of the model there are; without a value where it is one
        {requests}               requests at once; without a value where the engine's own limit is to hold
        {context}                tokens of a request, prompt and answer, as `context`
        {prompt_tokens}          {context} less one token of the answer
        {total_tokens}           {context} of all {requests} together
        {file}                   path of `file`, written as JSON beside the log
        {new_tokens}             tokens that a request asks for; in `body` only

    and every key of the OPTIONS' entries, without a value for options that lack it. A text that is one such
    name keeps its value's type. What has no value is left out. A flag whose value is a dict is written as
    name=value;name=value.

    An option's `flags` and `file` are added to those of the server. `tells_dtype` is where it tells its
    number format: a path and the field of the JSON object there. The other fields are those of
    `ServerCommand`.
    """

    title: str
    options: dict[str, dict[str, Any]]
    command: Sequence[str]
    flags: dict[str, Any]
    body: dict[str, Any] = field(default_factory=dict)
    dialect: str = "completions"
    model: str = "{model}"
    health: str = "/health"
    settings: dict[str, Any] = field(default_factory=dict)
    file: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    after: Sequence[str] = ()
    tells_dtype: tuple[str, str] | None = None
    prepare: Callable[[Checkpoint, str, str], Path] = checkpoint_itself

    def serve(self, checkpoint: Checkpoint, option: str, device: str, request: ServerSpec) -> ServerCommand:
        """Return the command that starts this server with `option` for `request`."""
        chosen = self.options[option]
        known = self._values(checkpoint, option, device, request)
        file = _filled(self.file | chosen.get("file", {}), known)
        if file:
            request.log.parent.mkdir(parents=True, exist_ok=True)
            known["file"].write_text(json.dumps(file))  # JSON is YAML
        flags = _filled(self.flags | chosen.get("flags", {}), known)
        for name, value in flags.items():
            if isinstance(value, dict):
                flags[name] = ";".join(f"{part}={text}" for part, text in value.items())

        def reported(url: str) -> dict[str, Any]:
            if not self.tells_dtype:
                return {}
            path, key = self.tells_dtype
            told = {"dtype": effective.fetched(url + path).get(key)}
            return effective.checked(self.title, checkpoint, told, chosen.get("dtype"))

        return ServerCommand(
            [_value(word, known) for word in self.command],
            flags,
            body=lambda new_tokens: _filled(self.body, known | {"new_tokens": new_tokens}),
            events=self.dialect,
            model=str(_value(self.model, known)),
            settings=self.settings | file,
            reported=reported,
            health=self.health,
            environment=_filled(self.environment, known) or None,
            after=[str(_value(word, known)) for word in self.after],
        )

    def _values(
        self, checkpoint: Checkpoint, option: str, device: str, request: ServerSpec
    ) -> dict[str, Any]:
        """Return what the names in braces stand for, None for those without a value."""
        path = self.prepare(checkpoint, option, device)
        tokens = context(checkpoint, request)
        every = {key for entry in self.options.values() for key in entry}
        values = {
            "path": path,
            "parent": path.parent,
            "name": path.name,
            "model": checkpoint.name,
            "end_token_ids": checkpoint.end_token_ids,
            "option": option,
            "device": device,
            "port": request.port,
            # Found only where it is named: it raises an error where CUDA numbers GPUs in another order.
            "gpus": lambda: ",".join(environment.used_gpus(request.tensor_parallel)),
            "tensor_parallel": request.tensor_parallel,
            "replicas": request.data_parallel if request.data_parallel > 1 else None,
            "requests": request.requests or None,
            "context": tokens,
            "prompt_tokens": tokens - 1,
            "total_tokens": request.requests * tokens or None,
            "file": request.log.with_suffix(".yaml").resolve(),
        }
        return dict.fromkeys(every) | self.options[option] | values


def _filled(fields: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return `fields` with the names in braces replaced, without those that have no value."""
    filled = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            value = _filled(value, known)
        elif isinstance(value, str):
            value = _value(value, known)
        if value is not None:
            filled[name] = value
    return filled


def _value(text: str, known: dict[str, Any]) -> object:
    """Return `text` with the names in braces replaced; the value itself where it is one such name."""

    def named(match: re.Match[str]) -> object:
        value = known[match[1]]
        return value() if callable(value) else value

    if alone := re.fullmatch(NAME, text):
        return named(alone)
    return re.sub(NAME, lambda match: str(named(match)), text)


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
