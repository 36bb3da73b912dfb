"""The engine and the server of one run: started, checked, sent requests, until each request is a row."""

import contextlib
import itertools
import math
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pandas as pd
from tqdm import tqdm

from bench import backends, paths
from bench.backends.common import contract, servers
from bench.backends.common.checkpoints import Checkpoint
from bench.experiments import device, energy, judge, notebook
from bench.experiments import target as targets
from bench.instrument import in_process, isolated
from bench.instrument.load import decoding, parallel, protocols, schedule, sessions
from bench.observations import checks
from bench.paths import ROOT
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

REQUEST_S = 600.0  # what a single request may take
Prompts = list[list[int]]  # token ids
Rows = list[dict[str, Any]]  # columns, one dict per request
Measured = TypeVar("Measured")  # an Engine, a Worker, a RunningServer, or what stands for one


class Running:
    """The engine of a Target on the Device that was taken for it, in this process, in one of its own, or as a
    server."""

    def __init__(self, target: targets.Target, taken: device.Device, run_id: str) -> None:
        self.target, self.taken, self.run_id = target, taken, run_id
        self.parameters, self.identity, self.folder = target.parameters, target.identity, target.folder
        self.backend, self.option, self.checkpoint = target.backend, target.option, target.checkpoint
        self.device, self.threads = target.device, target.threads
        self.bandwidth, self.meter = taken.bandwidth, energy.Meter(target)
        self.engine: Any = None  # an Engine, a Worker or RunningServer, once there is one
        self.load_s, self.server = math.nan, contextlib.ExitStack()
        self.warmup: Rows = []  # one dict per warm-up request
        self.client: Rows = []  # one dict per level of load: how the load client fared
        self.counters: Rows = []  # one dict per level of sessions: what the server counted, and its rows
        self.settings: Fields = dict(target.environment)  # the sidecar's settings beside the engine's own
        self.checked_tokens: Fields | None = None  # the sidecar's entry, once they have been compared
        # Where a server's end took them before the run's.
        self.peak_memory_bytes: float | None = None
        self.busy_cores: dict[str, float] | None = None
        self.ended = ""

    def in_use(self) -> None:
        """Note that the running cell uses this run; RuntimeError where the run has ended."""
        notebook.used(self)
        if self.ended:
            raise RuntimeError(f"{self.run_id} {self.ended}: run the notebook again from its parameters on.")

    # The engine

    def load(self) -> contract.Engine | servers.RunningServer:
        """Load the engine; one that is only a server, or is to be measured as one, is started as one."""
        self.in_use()
        if self.target.part != "load":
            return self.server.enter_context(self.serve(1, self.target.longest()))
        load: Callable[..., contract.Engine] = self.backend.load
        engine, load_s = in_process.timed(load, *self.target.load_arguments())
        contract.check_engine(engine)
        self.use(engine, load_s)
        if hasattr(engine, "reserve"):
            engine.reserve(1, self.target.longest())
        self.check_tokens()
        return engine

    def use(self, engine: Measured, load_s: float = math.nan) -> Measured:
        """Measure `engine`, which took `load_s` seconds to load, and probe the memory with as many bytes as
        its weights have, too; returns it."""
        self.engine, self.load_s = engine, load_s
        self.bandwidth.working_set_bytes = self.engine.weight_bytes
        return engine

    def worker(self, patience_s: float = 1800) -> isolated.Worker:
        """Load the engine in a process of its own that a failure cannot take the run with."""
        self.in_use()
        arguments = self.target.load_arguments()
        self.engine = isolated.Worker(self.backend.name, *arguments, patience_s=patience_s)
        self.load_s = self.engine.load_s
        self.check_tokens()
        return self.engine

    @contextlib.contextmanager
    def serve(
        self, requests: int, tokens: int, cache_tokens: int | None = None
    ) -> Iterator[servers.RunningServer]:
        """Context of the backend's server with room for `requests` of `tokens` tokens, prompt and answer,
        and the prefix cache that is declared (`servers.ServerSpec`)."""
        self.in_use()
        spec = servers.ServerSpec(
            requests,
            max(tokens, judge.room(self.checkpoint)),
            self.threads,
            self.target.devices.tensor_parallel,
            ROOT / paths.log(self.run_id).with_suffix(".server.txt"),
            self.parameters.get("patience_s", 600.0),
            self.target.url,
            self.target.devices.data_parallel,
            cache_tokens,
            served_model=self.parameters.get("served_model", ""),
            path=self.parameters.get("path", ""),
            changes=notebook.changes(self.parameters.get("body", "")),
            headers=notebook.headers(self.parameters.get("headers", "")),
        )
        watch = in_process.Stopwatch()
        with self.backend.serve(self.checkpoint, self.option, self.device, spec) as served:
            self.engine, self.load_s = served, watch.seconds()
            self.check_tokens()
            yield served
            # While it still lives: what its children have used is lost with it, and clocks fall when it
            # idles. Of several servers of one run the largest peak counts.
            peak = max(self.peak_memory_bytes or 0, self.taken.peak_memory_bytes() or 0)
            self.peak_memory_bytes, self.busy_cores = peak or None, self.taken.alone.cores()
            if self.device == "cuda":
                self.taken.machine["gpu_after"] = self.taken.gpu_state()
            self.meter.ready()

    def check_tokens(self) -> None:
        """Compare the engine's answer to one prompt with the reference's, once a run.

        checks.Rejected with the position and both tokens where the answer is not the model's, and with the
        engine's error where it gives none.
        """
        if self.checked_tokens is not None:
            return
        prompt: list[int] = []
        if self.checkpoint.weights == "synthetic":
            why = "The weights are synthetic: there is no right answer."
        elif self.checkpoint.weights == "unknown":
            why = "Only the server knows its model: no reference has the right answer."
        elif self.backend.not_judged:
            why = self.backend.not_judged
        elif getattr(self.engine, "dialect", "") == "chat":
            why = "The server's own template stands around the prompt, and nobody here knows it."
        else:
            prompt = judge.prompt(self.checkpoint)
            full = f"The model's context has no room for a prompt and {judge.TOKENS} tokens."
            why = "" if prompt else full
        if why:
            self.checked_tokens = judge.unjudged(why)
            return
        (row,) = self._answers([prompt], judge.TOKENS)
        if row["error"] and self.target.url:
            self.checked_tokens = judge.unjudged(f"The judge's request failed: {row['error']}")
            return
        if row["error"]:
            raise checks.Rejected(f"The engine does not answer the prompt of the judge: {row['error']}")
        answer = [int(token) for token in row["output_ids"]]
        rounded_as = judge.number_format(self.option, backends.arithmetic(self.engine))
        entry = judge.of_answer(self.checkpoint, prompt, answer, rounded_as)
        if entry["verdict"] == "refused":
            theirs, ours = getattr(self.engine, "model", ""), self.checkpoint.name
            called = (
                f" The server's model is {theirs!r}, the run's {ours!r}: name the same one with -p model."
            )
            raise checks.Rejected(entry["why"] + (called if self.target.url else ""))
        self.checked_tokens = entry

    # What is sent

    def prompts(self, which: str = "latency", numbers: str = "") -> pd.Series:
        """Return the token ids of a prompt set, indexed by prompt number: the same for every engine; with
        `numbers` ("7 8 9") those of the set only.

        A server that runs already may have answered them before: there a head stands before each prompt,
        which the column head_tokens counts.
        """
        ids = targets.encoded(which, self.checkpoint)
        if numbers:
            chosen = notebook.numbers("prompt_numbers", numbers)
            existing = ids.index.astype(str)
            ids = ids[[int(naming.choose(f"prompt of {which}", str(n), existing)) for n in chosen]]
        if not self.target.url:
            return ids
        heads = schedule.heads(self.checkpoint, (*self.source(), which), ids.index)
        return pd.Series([head + list(tokens) for head, tokens in zip(heads, ids)], ids.index)

    def source(self) -> tuple[str | int, ...]:
        """Return what the random tokens of this run's prompts follow from: host and number of the run, and of
        a server that runs already a number of this attempt, which the sidecar keeps. Such a server may have
        answered an attempt of the same number that left no file."""
        of_run = self.identity["host"], int(naming.split_number(self.run_id)[1])
        if not self.target.url:
            return of_run
        self.settings.setdefault("attempt", secrets.token_hex(8))
        return (*of_run, self.settings["attempt"])

    def progress(self, requests: Iterable, total: int) -> tqdm:
        """Show `requests` behind a progress bar that is only ever drawn between two requests."""
        self.in_use()
        tqdm.monitor_interval = 0  # no thread of its own that wakes in the middle of a request
        return tqdm(requests, total=total, desc=self.run_id, mininterval=0, miniters=1, file=sys.stdout)

    # What comes back

    def generate(self, prompts: Prompts, max_new_tokens: int) -> Rows:
        """Send one batch of `prompts` (token ids) through the engine: one dict of measured columns each.

        As `in_process.generate`; a server gets one request after the other, through the load client.
        """
        self.in_use()
        rows = self._answers(prompts, max_new_tokens)
        self.taken.alone.look()
        return rows

    def _answers(self, prompts: Prompts, max_new_tokens: int) -> Rows:
        if isinstance(self.engine, isolated.Worker):
            return self.engine.generate(prompts, max_new_tokens)
        if isinstance(self.engine, servers.RunningServer):
            return through_server(self.engine, self.checkpoint, prompts, max_new_tokens)
        return in_process.generate(self.engine, prompts, max_new_tokens)

    def warm_up(self, prompts: Prompts, max_new_tokens: int) -> None:
        """Send requests that are dropped: one on a CPU; on a GPU until time and clocks have settled."""
        for _ in range(checks.WARMUPS if self.device == "cuda" else 1):
            rows = self.generate(prompts, max_new_tokens)
            took = None if any(row["error"] for row in rows) else max(row["e2e_s"] for row in rows)
            self.warmup.append({"e2e_s": took} | self.taken.gpu_state())
            if took is None or checks.settled(self.warmup):
                return

    def with_energy(self, rows: Rows, batches: list[Prompts], max_new_tokens: int) -> Rows:
        """Return `rows`, which these `batches` gave, with the joules of each request: ten untimed seconds
        more, without a pause between two batches."""
        self.in_use()
        batch_in_turn = itertools.cycle(batches)

        def again() -> Rows:
            if isinstance(self.engine, isolated.Worker):
                return self.engine.again(next(batch_in_turn), max_new_tokens)
            if not isinstance(self.engine, servers.RunningServer):
                return in_process.generate(self.engine, next(batch_in_turn), max_new_tokens, collect=False)
            # One load client sends all of them many times: starting one would let the server wait.
            once_s = sum(row["e2e_s"] for row in rows if not row["error"])
            prompts = [ids for batch in batches for ids in batch]
            many = prompts * math.ceil(energy.LONGER * energy.WINDOW_S / once_s)
            return through_server(self.engine, self.checkpoint, many, max_new_tokens)

        what = f"{len(batches[0])} x {len(batches[0][0])}+{max_new_tokens}"
        return self.meter.repeated(what, rows, again)

    def probe_gemm(self) -> None:
        """Measure the matrix-multiply peak in every number format, now; all measurements are kept."""
        self.in_use()
        self.taken.probe_gemm()

    def drive(
        self,
        served: servers.RunningServer,
        level: schedule.Level | sessions.SessionLevel,
        prompts: list[protocols.Prompt],
        first: int = 1,
        counts: bool = True,
    ) -> Rows:
        """Put one level of load on the server, whose requests count from `first`: one row each, failures
        included. The sidecar keeps how the client fared at levels that `counts`.

        A load test keeps no answers.
        """
        self.in_use()
        before, limits = self.meter.read(), self.parameters
        more = limits["timeout_s"], limits["fresh_connections"], limits["most_failed"]
        measured, fared = drive(served, self.checkpoint, level, prompts, first, *more)
        if counts:
            self.client.append({"level": str(level)} | fared)
            measured = self.meter.during(str(level), measured, before)
        self.taken.alone.look()
        conditions = getattr(level, "each", [{}] * len(prompts))
        return [
            self.row(
                columns["request"],
                columns["request"],
                columns.get("prompt_ids") or prompt.ids,
                columns | {"output_ids": []},
                max_new_tokens=prompt.new_tokens,
                head_tokens=schedule.HEAD_TOKENS,
                **level.condition,
                **condition,
            )
            for columns, prompt, condition in zip(measured, prompts, conditions)
        ]

    def row(
        self,
        request: int,
        prompt: int,
        prompt_ids: Sequence[int],
        measured: dict[str, Any],
        *,
        max_new_tokens: int,
        **condition: float,
    ) -> dict[str, Any]:
        """Return one row of the schema: identity and condition around the columns that were `measured`.

        `max_new_tokens` is what the cell requests of the engine; the tokens of the prompt are those of
        `prompt_ids`, where the server has not counted them itself.
        """
        return (
            self.identity
            | {
                "batch_size": 1,
                "max_new_tokens": max_new_tokens,
                "temperature": 0,
                "prompt_tokens": len(prompt_ids),
                "head_tokens": schedule.HEAD_TOKENS if self.target.url else 0,
            }
            | measured
            | condition
            | {
                "run_id": self.run_id,
                "backend_version": self.backend.version(),
                "weights": self.checkpoint.weights,
                "tensor_parallel": self.target.devices.tensor_parallel,
                "data_parallel": self.target.devices.data_parallel,
                "request": request,
                "prompt": prompt,
                "load_s": self.load_s,
                "answer": self.checkpoint.decode(measured["output_ids"]),
                "output_ids": " ".join(map(str, measured["output_ids"])),
            }
        )


def through_server(
    served: servers.RunningServer, checkpoint: Checkpoint, prompts: Prompts, max_new_tokens: int
) -> Rows:
    """Return measured columns of `prompts` (token ids), sent one after the other by the load client."""
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
) -> tuple[Rows, Fields]:
    """Return (measured columns of each of `prompts`, how the load client fared) at one level of load; `fresh`
    and `most_failed` as `client.Client` has them."""
    more: dict[str, Any] = {"fresh": fresh, "most_failed": most_failed}
    if isinstance(level, sessions.SessionLevel):
        calls = sessions.calls(served, level, checkpoint.decode, first)
        own_answers = level.workload.history == "own"
        more |= {
            "until_s": level.until_s or math.inf,
            "encode": checkpoint.encode if own_answers else None,
        }
    else:
        calls = schedule.calls(served, level, prompts, first)
    concurrency = int(level.value) if level.kind == "closed" else 1
    rows, fared = parallel.run(served.url, calls, served.dialect, concurrency, timeout_s, **more)
    unsure = {"uncertain": protocols.uncertain(served.dialect, served.changes)}
    return [decoding.with_gaps(row, checkpoint.encode) | unsure for row in rows], fared
