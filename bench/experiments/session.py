"""One run, from top to bottom: check the parameters, take the device, measure, write.

What a notebook does, in its order:

    setup = session.start("latency", globals())     # after the parameters cell
    engine = setup.load()
    rows = []                                       # of each request, with the tokens that the cell requests
    (measured,) = setup.generate([ids], max_new_tokens)
    rows.append(setup.row(1, prompt, ids, measured, max_new_tokens=max_new_tokens))
    setup.write(rows)
"""

import contextlib
import itertools
import json
import math
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from bench import backends, inputs
from bench.backends.common import contract, servers
from bench.experiments import device, energy, judge, notebook, parameters, running
from bench.experiments import target as targets
from bench.instrument import isolated
from bench.instrument.load import protocols, schedule
from bench.machine import gpu
from bench.observations import gates, partial, provenance, schema, store
from llm_measured.core import device_peaks, naming
from llm_measured.core.definitions import Fields


def start(
    experiment: str,
    namespace: dict[str, Any],
    needs: str = "load",
    notebook_name: str | None = None,
    continues: bool = False,
) -> "Setup":
    """Check all parameters of the running notebook, prepare the model's format, take the device.

    Returns the Setup. `needs` is the part of the backend contract that the experiment calls: `load`, `serve`,
    or `load or serve`, the first one first. `notebook_name` is the notebook's where the experiment has
    another. A run that `continues` takes up an attempt that has left levels on disk. What an earlier run of
    this kernel still holds is let go first.
    """
    values = notebook.begin(namespace, notebook_name or experiment)
    return notebook.attend(Setup(experiment, values, needs, continues))


def of_latency(server: bool, prompt_numbers: str) -> tuple[str, str]:
    """(experiment, part of the contract) of a run of latency.ipynb with these parameters.

    Some of the prompts are an experiment of their own: runs of three prompts are compared with none of nine.
    """
    if server and prompt_numbers:
        raise ValueError("Through its server an engine answers all prompts: leave prompt_numbers empty.")
    if server:
        return "served", "serve"
    return ("sizes" if prompt_numbers else "latency"), "load or serve"


class Setup:
    """One run: what it measures (a Target), the Device that it holds until it ends, the Running engine, and
    what it will write."""

    def __init__(
        self, experiment: str, values: dict[str, Any], needs: str = "load", continues: bool = False
    ) -> None:
        self.continues = continues
        self.target, self.parameters = targets.make(experiment, values, needs), values
        self.backend, self.option, self.checkpoint = (
            self.target.backend,
            self.target.option,
            self.target.checkpoint,
        )
        self.device, self.threads, self.folder = self.target.device, self.target.threads, self.target.folder
        self.identity = self.target.identity
        self.taken, self.running = device.Device(self.target).take(), running.Running(self.target)
        self.bandwidth, self.meter = self.taken.bandwidth, energy.Meter(self.target)
        try:
            self.run_id = self.target.run_id(continues)
            self._refuse_a_second_shared_run()
            self.started, self.order = provenance.now(), provenance.order()
        except BaseException:
            self.taken.release()
            raise
        self.warmup, self.client = [], []  # one dict per warm-up request, and per level of load
        self.counters = []  # one dict per level of sessions: what the server counted, and its rows
        self.settings = dict(self.target.environment)  # the sidecar's settings beside the engine's own
        self.verdict = None  # the judge's on the engine's tokens, once there is one
        self.peak_memory_bytes = self.busy_cores = None  # where a server's end took them before the run's
        # Of a run that has ended and is not on disk yet.
        self.unwritten: tuple[running.Rows, Fields] | None = None
        self.kept = 0  # rows of the levels that have ended and are on disk
        self.ended = ""

    engine = property(lambda self: self.running.engine, doc="The engine that is measured.")
    load_s = property(lambda self: self.running.load_s, doc="Seconds that loading it took.")

    def _refuse_a_second_shared_run(self) -> None:
        """gates.Refused where others are busy and the run was measured beside others before: only a quiet
        machine adds something."""
        kept, alone = store.path(self.run_id, folder=store.shared_folder(self.folder)), self.taken.alone
        if alone.warned and alone.marked and kept.exists():
            raise gates.Refused(
                "The machine is busy, and this run was measured beside others before (marked, in "
                f"{store.SHARED}/): it is measured again on a quiet machine. make study WAIT=1 waits for one."
            )

    # The engine

    def load(self) -> contract.Engine | servers.RunningServer:
        """The engine, loaded; one that is only a server, or is to be measured as one, is started as one."""
        self.in_use()
        if self.target.part == "load":
            return self._judged(self._probed_beside(self.running.load()))
        return self.running.server.enter_context(self.serve(1, self.target.longest()))

    def use(self, engine: running.Measured, load_s: float = math.nan) -> running.Measured:
        """Measure `engine`, which took `load_s` seconds to load; returns it."""
        return self._probed_beside(self.running.use(engine, load_s))

    def worker(self, patience_s: float = 1800) -> isolated.Worker:
        """The engine in a process of its own that a failure cannot take the run with: `isolated.Worker`."""
        self.in_use()
        return self._judged(self.running.worker(patience_s))

    @contextlib.contextmanager
    def serve(
        self, requests: int, tokens: int, cache_tokens: int | None = None
    ) -> Iterator[servers.RunningServer]:
        """Context of the backend's server with room for `requests` of `tokens` tokens, prompt and answer,
        and the prefix cache that is declared (`servers.ServerSpec`)."""
        self.in_use()
        room = max(tokens, judge.room(self.checkpoint))
        at_end = self._keep_usage, self.meter.ready  # while it still lives: clocks fall when a server idles
        with self.running.serve(requests, room, self.run_id, *at_end, cache_tokens=cache_tokens) as served:
            yield self._judged(served)

    def _probed_beside(self, engine):
        """`engine`, once the bandwidth probe reads as many bytes as its weights have, too."""
        self.bandwidth.working_set_bytes = engine.weight_bytes
        return engine

    def _judged(self, engine):
        """`engine`, once its tokens have been judged: gates.Refused where they are not the model's."""
        self.verdict = self.verdict or running.check_tokens(self.target, self.running)
        return engine

    def _keep_usage(self) -> None:
        """Note memory, neighbours and clocks now: what a server's own children have used is lost with it.

        Of several servers of one run the largest peak counts.
        """
        peak = max(self.peak_memory_bytes or 0, self.taken.peak_memory_bytes() or 0)
        self.peak_memory_bytes, self.busy_cores = peak or None, self.taken.alone.cores()
        if self.device == "cuda":
            self.taken.machine["gpu_after"] = self.taken.gpu_state()

    # Measuring

    def prompts(self, which: str = "latency", numbers: str = "") -> pd.Series:
        """Token ids of a prompt set, indexed by prompt number: the same for every engine; with `numbers`
        ("7 8 9") those of the set only.

        A server that runs already may have answered them before: there a head stands before each prompt,
        which the column head_tokens counts.
        """
        ids = targets.encoded(which, self.checkpoint)
        if numbers:
            chosen = parameters.numbers("prompt_numbers", numbers)
            known = ids.index.astype(str)
            ids = ids[[int(naming.choose(f"prompt of {which}", str(n), known)) for n in chosen]]
        if not self.target.url:
            return ids
        heads = schedule.Heads(self.checkpoint, (*self.source(), which))
        return pd.Series({prompt: heads[prompt] + list(tokens) for prompt, tokens in ids.items()})

    def source(self) -> tuple[str | int, ...]:
        """What the random tokens of this run's prompts follow from: host and number of the run, and of a
        server that runs already a number of this attempt, which the sidecar keeps. Such a server may have
        answered an attempt of the same number that left no file."""
        of_run = self.identity["host"], int(naming.split_number(self.run_id)[1])
        if not self.target.url:
            return of_run
        self.settings.setdefault("attempt", secrets.token_hex(8))
        return (*of_run, self.settings["attempt"])

    def progress(self, requests: Iterable, total: int) -> tqdm:
        """`requests` behind a progress bar that is only ever drawn between two requests."""
        self.in_use()
        tqdm.monitor_interval = 0  # no thread of its own that wakes in the middle of a request
        return tqdm(requests, total=total, desc=self.run_id, mininterval=0, miniters=1, file=sys.stdout)

    def generate(self, prompts: running.Prompts, max_new_tokens: int) -> running.Rows:
        """One batch of `prompts` (token ids) through the engine: one dict of measured columns per prompt.

        As `in_process.generate`; a server gets one request after the other, through the load client.
        """
        self.in_use()
        rows = self.running.generate(prompts, max_new_tokens)
        self.taken.alone.look()
        return rows

    def warm_up(self, prompts: running.Prompts, max_new_tokens: int) -> None:
        """Requests that are dropped: one on a CPU; on a GPU until time and clocks have settled."""
        for _ in range(gates.WARMUPS if self.device == "cuda" else 1):
            rows = self.generate(prompts, max_new_tokens)
            took = None if any(row["error"] for row in rows) else max(row["e2e_s"] for row in rows)
            self.warmup.append({"e2e_s": took} | self.taken.gpu_state())
            if took is None or gates.settled(self.warmup):
                return

    def with_energy(
        self, rows: running.Rows, batches: list[running.Prompts], max_new_tokens: int
    ) -> running.Rows:
        """`rows`, which these `batches` gave, with the joules of each request: ten untimed seconds more."""
        self.in_use()
        what = f"{len(batches[0])} x {len(batches[0][0])}+{max_new_tokens}"
        if self.running.served:
            once_s = sum(row["e2e_s"] for row in rows if not row["error"])
            prompts = [ids for batch in batches for ids in batch]
            seconds = energy.LONGER * energy.WINDOW_S
            return self.meter.repeated(
                what, rows, lambda: self.running.sent_again(prompts, max_new_tokens, seconds, once_s)
            )
        turn = itertools.cycle(batches)
        return self.meter.repeated(what, rows, lambda: self.running.again(next(turn), max_new_tokens))

    def drive(
        self,
        served: servers.RunningServer,
        level: schedule.Level,
        prompts: list[protocols.Prompt],
        first: int = 1,
        counts: bool = True,
    ) -> running.Rows:
        """Rows of one level of load on the server, failures included; the sidecar keeps those that count.

        A load test keeps no answers.
        """
        self.in_use()
        before = self.meter.read()
        more = self.parameters["fresh_connections"], self.parameters["most_failed"]
        timeout_s = self.parameters["timeout_s"]
        measured, fared = running.drive(served, self.checkpoint, level, prompts, first, timeout_s, *more)
        if counts:
            self.client.append({"level": str(level)} | fared)
            measured = self.meter.during(str(level), measured, before)
        self.taken.alone.look()
        each = getattr(level, "each", [{}] * len(prompts))
        return [
            self.row(
                columns["request"],
                columns["request"],
                columns.get("prompt_ids") or prompt.ids,
                columns | {"output_ids": []},
                max_new_tokens=prompt.new_tokens,
                head_tokens=schedule.HEAD_TOKENS,
                **level.condition,
                **own,
            )
            for columns, prompt, own in zip(measured, prompts, each)
        ]

    def probe_gemm(self) -> None:
        """Measure the matrix-multiply peak in every number format, now; all measurements are kept."""
        self.in_use()
        self.taken.probe_gemm()

    # What the run leaves behind

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
        """One row of the schema: identity and condition around the columns that were `measured`.

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

    def note(self, **settings: Any) -> None:
        """Add `settings` to those that the sidecar keeps."""
        self.settings.update(settings)

    def write(self, rows: running.Rows) -> Path:
        """Write the run through all gates, let the engine and the device go, and return the CSV's path.

        Where it could not be written (a full disk, a read-only folder), the cell can be run again.
        """
        if self.unwritten is None:
            self.in_use()
            self.unwritten = self._finished(rows)
            self.close()
        finished, sidecar = self.unwritten
        alone = self.taken.alone
        try:
            path = store.write(finished, sidecar, self.run_id, self.folder, alone.scratch, alone.marked)
        except gates.Refused as refusal:
            raise gates.Refused(f"{refusal}{self.rescue()}") from None
        except OSError as failure:
            raise OSError(f"{failure}.{self.rescue()}") from None
        self.partial.unlink(missing_ok=True)
        self.unwritten = None
        written = json.loads(path.with_suffix(".json").read_text())
        if written.get("shared"):
            print(f"These times are no measurement. {written['shared']}")
        if written.get("bandwidth_probes_bytes_per_s") and device_peaks.peak_bytes_per_s(written) is None:
            print(
                "MBU stays empty: no probe of the memory's bandwidth had its cores to itself for "
                f"{device_peaks.ALONE:.0%} of its time."
            )
        return path

    @property
    def partial(self) -> Path:
        """Where the levels that have ended lie until the run is written."""
        return store.path(self.run_id, store.PARTIAL, self.folder)

    def keep(self, rows: running.Rows) -> None:
        """Put on disk what `rows`, all of the run so far, have more than at the last call: a level.

        OSError where it cannot be written; the levels before it are on disk.
        """
        level = [{"peak_memory_bytes": self.taken.peak_memory_bytes()} | row for row in rows[self.kept :]]
        sidecar = self.sidecar() | {"energy": self.meter.about()}
        if self.device == "cuda" and "gpu_after" not in self.taken.machine:
            sidecar["machine"] = self.taken.machine | {"gpu_after": self.taken.gpu_state()}
        try:
            partial.append(level, sidecar, self.run_id, self.folder)
        except OSError as failure:
            raise OSError(f"A level could not be kept: {failure}.{self.rescue()}") from None
        if not self.kept:
            notebook.tell(f"Each level is kept when it has ended.{self.rescue()}")
        self.kept = len(rows)

    def rescue(self) -> str:
        """How to make a run of the levels that are on disk, a sentence after a blank; empty without any."""
        if not self.partial.exists() or not self.partial.stat().st_size:
            return ""
        if self.continues:
            return " To go on after it, should this run not end: the same command again."
        return f" To make a run of the whole levels, should this one not end: {partial.command(self.partial)}"

    def _finished(self, rows: running.Rows) -> tuple[running.Rows, Fields]:
        """(rows as they are written, sidecar), while the engine and the device are still held.

        Moments of sending count from the first request. The meter's idle window comes after the last look at
        the clocks, which fall when nothing is to be done.
        """
        peak = self.peak_memory_bytes or self.taken.peak_memory_bytes()
        sent = [row["sent_s"] for row in rows if not math.isnan(row["sent_s"])]  # a cut turn never is
        first = min(sent)
        rows = [{"peak_memory_bytes": peak} | row | {"sent_s": row["sent_s"] - first} for row in rows]
        if self.device == "cuda" and "gpu_after" not in self.taken.machine:
            self.taken.machine["gpu_after"] = self.taken.gpu_state()
        sidecar = self.sidecar()
        self.meter.ready()
        return rows, sidecar | {"energy": self.meter.about()}

    def sidecar(self) -> dict[str, Any]:
        """Where the run came from, field by field as `schema.SIDECAR` lists them."""
        target, taken, engine = self.target, self.taken, self.engine
        return {
            "layout": schema.LAYOUT,
            "order": self.order,
            "judge": self.verdict or judge.unjudged("The run lets the engine generate nothing."),
            "packages": provenance.packages(),
            "git": provenance.git_state(),
            "machine": taken.machine,
            "warmup": self.warmup,
            "busy_cores": self.busy_cores or taken.alone.cores(),
            "bandwidth_probes_bytes_per_s": taken.bandwidth.probes,
            "working_set_probes_bytes_per_s": taken.bandwidth.working_set_probes,
            "probe_cpu_shares": taken.bandwidth.cpu_shares,
            "probe_ways_bytes_per_s": taken.bandwidth.ways,
            "datasheet_bandwidth_bytes_per_s": gpu.datasheet_bandwidth(target.place.gpu),
            "weight_bytes": engine.weight_bytes,
            "kv_value_bytes": engine.kv_value_bytes,
            "kv_values_per_token": target.checkpoint.kv_values_per_token,
            "arithmetic": backends.arithmetic(engine),
            "gemm_flops_per_s": taken.gemm_flops_per_s,
            **target.checkpoint.matrices,
            "limit_bytes": None,
            "loaded_bytes": getattr(engine, "loaded_bytes", None),
            "client": self.client,
            "counters": self.counters,
            "parameters": target.parameters,
            "settings": engine.settings | self.settings,
            "threads": target.threads,
            "model_sha256": target.checkpoint.digest(),
            "prompts_sha256": inputs.digest("prompts"),
            "started": self.started,
            "ended": provenance.now(),
        }

    # The end

    def in_use(self) -> None:
        """Note that the running cell uses this run; RuntimeError where the run has ended."""
        notebook.used(self)
        if self.ended:
            raise RuntimeError(f"{self.run_id} {self.ended}: run the notebook again from its parameters on.")

    def close(self, why: str = "has ended") -> None:
        """Stop the server and the engine, let the device go; once is enough."""
        if self.ended:
            return
        self.ended = why
        if self.unwritten is None and (rescue := self.rescue()):
            notebook.tell(f"{self.run_id} {why}.{rescue}")
        with contextlib.ExitStack() as last:
            last.callback(self.taken.release)
            self.running.close()
