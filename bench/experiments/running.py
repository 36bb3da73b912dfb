"""The engine of a run, however it runs: in this process, in one of its own, or as a server."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bench import backends, paths
from bench.backends.common import contract, servers
from bench.backends.common.checkpoints import Checkpoint
from bench.experiments import judge, parameters
from bench.experiments.target import Target
from bench.instrument import in_process, isolated
from bench.instrument.load import decoding, parallel, protocols, schedule, sessions
from bench.observations import gates
from bench.paths import ROOT
from llm_measured.core.definitions import Fields

REQUEST_S = 600.0  # what a single request may take
Prompts = list[list[int]]  # token ids
Rows = list[dict[str, Any]]  # measured columns, one dict per request
Measured = TypeVar("Measured")  # an Engine, a Worker, a RunningServer, or what stands for one


class Running:
    """The engine of a Target: started by `load`, `worker` or `serve`, or set by `use`; ended by `close`."""

    def __init__(self, target: Target) -> None:
        self.target, self.load_s = target, math.nan
        self.engine: Any = None  # an Engine, a Worker or RunningServer, once there is one
        self.server = contextlib.ExitStack()

    def use(self, engine: Measured, load_s: float = math.nan) -> Measured:
        """Measure `engine`, which took `load_s` seconds to load; returns it."""
        self.engine, self.load_s = engine, load_s
        return engine

    def load(self) -> contract.Engine:
        """The engine in this process, with room for the longest request."""
        load: Callable[..., contract.Engine] = self.target.backend.load
        engine, load_s = in_process.timed(load, *self.target.load_arguments())
        contract.check_engine(engine)
        self.use(engine, load_s)
        if hasattr(engine, "reserve"):
            engine.reserve(1, self.target.longest())
        return engine

    def worker(self, patience_s: float) -> isolated.Worker:
        """The engine in a process of its own that a failure cannot take the run with."""
        worker = isolated.Worker(
            self.target.backend.name,
            *self.target.load_arguments(),
            patience_s=patience_s,
        )
        return self.use(worker, worker.load_s)

    @contextlib.contextmanager
    def serve(
        self,
        requests: int,
        tokens: int,
        run_id: str,
        *at_end: Callable[[], None],
        cache_tokens: int | None = None,
    ) -> Iterator[servers.RunningServer]:
        """The backend's server, stopped when the block ends; `at_end` are called while it still lives, in
        order: clocks fall when a server idles. `cache_tokens` as `servers.ServerSpec` has it."""
        target = self.target
        room = servers.ServerSpec(
            requests,
            tokens,
            target.threads,
            target.devices.tensor_parallel,
            ROOT / paths.log(run_id).with_suffix(".server.txt"),
            target.parameters.get("patience_s", 600.0),
            target.url,
            target.devices.data_parallel,
            cache_tokens,
            served_model=target.parameters.get("served_model", ""),
            path=target.parameters.get("path", ""),
            changes=parameters.changes(target.parameters.get("body", "")),
            headers=parameters.headers(target.parameters.get("headers", "")),
        )
        watch = in_process.Stopwatch()
        with target.backend.serve(target.checkpoint, target.option, target.device, room) as served:
            yield self.use(served, watch.seconds())
            for each in at_end:
                each()

    def generate(self, prompts: Prompts, max_new_tokens: int) -> Rows:
        """One dict of measured columns per prompt of one batch, whatever the engine is."""
        if isinstance(self.engine, isolated.Worker):
            return self.engine.generate(prompts, max_new_tokens)
        if self.served:
            return through_server(self.engine, self.target.checkpoint, prompts, max_new_tokens)
        return in_process.generate(self.engine, prompts, max_new_tokens)

    def again(self, prompts: Prompts, max_new_tokens: int) -> Rows:
        """One batch as `generate`, without a pause before it, by an engine that has just done the same."""
        if isinstance(self.engine, isolated.Worker):
            return self.engine.again(prompts, max_new_tokens)
        return in_process.generate(self.engine, prompts, max_new_tokens, collect=False)

    def sent_again(self, prompts: Prompts, max_new_tokens: int, seconds: float, once_s: float) -> Rows:
        """Measured columns of `prompts`, sent to the server one after the other, all of them again and again
        for about `seconds`, by one load client: starting one would let the server wait. Once takes
        `once_s`."""
        many = list(prompts) * math.ceil(seconds / once_s)
        return through_server(self.engine, self.target.checkpoint, many, max_new_tokens)

    @property
    def served(self) -> bool:
        """Whether the engine is a server."""
        return isinstance(self.engine, servers.RunningServer)

    def close(self) -> None:
        """End the server and the engine."""
        self.server.close()
        if self.engine is not None:
            self.engine.close()


def check_tokens(target: Target, running: Running) -> Fields:
    """Return the sidecar's entry on the tokens of the engine that `running` has started (`judge`).

    gates.Refused with the position and both tokens where the answer is not the model's, and with the engine's
    error where it gives none.
    """
    checkpoint, engine = target.checkpoint, running.engine
    if checkpoint.weights == "synthetic":
        return judge.unjudged("The weights are synthetic: there is no right answer.")
    if target.checkpoint.weights == "unknown":
        return judge.unjudged("Only the server knows its model: no reference has the right answer.")
    if why := target.backend.not_judged:
        return judge.unjudged(why)
    if getattr(engine, "dialect", "") == "chat":
        return judge.unjudged("The server's own template stands around the prompt, and nobody here knows it.")
    prompt = judge.prompt(checkpoint)
    if not prompt:
        return judge.unjudged(f"The model's context has no room for a prompt and {judge.TOKENS} tokens.")
    (row,) = running.generate([prompt], judge.TOKENS)
    if row["error"] and target.url:
        return judge.unjudged(f"The judge's request failed: {row['error']}")
    if row["error"]:
        raise gates.Refused(f"The engine does not answer the prompt of the judge: {row['error']}")
    answer = [int(token) for token in row["output_ids"]]
    rounded_as = judge.number_format(target.option, backends.arithmetic(engine))
    entry = judge.of_answer(checkpoint, prompt, answer, rounded_as)
    if entry["verdict"] == "refused":
        theirs, ours = getattr(engine, "model", ""), checkpoint.name
        called = f" The server's model is {theirs!r}, the run's {ours!r}: name the same one with -p model."
        raise gates.Refused(entry["why"] + (called if target.url else ""))
    return entry


def through_server(
    served: servers.RunningServer, checkpoint: Checkpoint, prompts: Prompts, max_new_tokens: int
) -> Rows:
    """Measured columns of `prompts` (token ids), sent one after the other by the load client."""
    texts = [protocols.Prompt(tuple(ids), checkpoint.decode(ids), max_new_tokens) for ids in prompts]
    calls = schedule.calls(served, schedule.Level("closed", 1, len(texts)), texts)
    rows, _ = parallel.run(served.url, calls, served.dialect, 1, REQUEST_S)
    encode = checkpoint.encode
    unsure = {"uncertain": protocols.uncertain(served.dialect, served.changes)}
    return [decoding.with_ids(decoding.with_gaps(row, encode), encode) | unsure for row in rows]


def drive(
    served: servers.RunningServer,
    checkpoint: Checkpoint,
    level: schedule.Level | sessions.SessionLevel,
    prompts: list[protocols.Prompt],
    first: int,
    timeout_s: float,
    fresh: bool = False,
    most_failed: float = math.inf,
) -> tuple[Rows, dict[str, Any]]:
    """(measured columns of each of `prompts`, how the load client fared) at one level of load; `fresh` and
    `most_failed` as `client.Client` has them."""
    places = int(level.value) if level.kind == "closed" else 1
    more: dict[str, Any] = {"fresh": fresh, "most_failed": most_failed}
    if isinstance(level, sessions.SessionLevel):
        calls = sessions.calls(served, level, checkpoint.decode, first)
        own = level.workload.history == "own"
        more |= {"until_s": level.until_s or math.inf, "encode": checkpoint.encode if own else None}
    else:
        calls = schedule.calls(served, level, prompts, first)
    rows, fared = parallel.run(served.url, calls, served.dialect, places, timeout_s, **more)
    unsure = {"uncertain": protocols.uncertain(served.dialect, served.changes)}
    return [decoding.with_gaps(row, checkpoint.encode) | unsure for row in rows], fared
