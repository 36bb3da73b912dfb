"""The engine of a run, however it runs: in this process, in one of its own, or as a server."""

import contextlib
import math

from bench import backends, paths
from bench.backends.common import servers
from bench.instrument import in_process, isolated
from bench.instrument.load import decoding, parallel, protocols, schedule
from bench.paths import ROOT

REQUEST_S = 600.0  # what a single request may take


class Running:
    """The engine of a Plan: started by `load`, `worker` or `serve`, or set by `use`; ended by `close`."""

    def __init__(self, plan):
        self.plan, self.engine, self.load_s = plan, None, math.nan
        self.server = contextlib.ExitStack()

    def use(self, engine, load_s=math.nan):
        """Measure `engine`, which took `load_s` seconds to load; returns it."""
        self.engine, self.load_s = engine, load_s
        return engine

    def load(self):
        """The engine in this process, with room for the longest request."""
        engine, load_s = in_process.timed(self.plan.module.load, *self.plan.load_arguments())
        backends.check_contract(engine)
        self.use(engine, load_s)
        if hasattr(engine, "reserve"):
            engine.reserve(1, self.plan.longest())
        return engine

    def worker(self, limit_bytes, patience_s):
        """The engine in a process of its own that a failure cannot take the run with."""
        worker = isolated.Worker(
            self.plan.parameters["backend"],
            *self.plan.load_arguments(),
            limit_bytes=int(limit_bytes),
            patience_s=patience_s,
        )
        return self.use(worker, worker.load_s)

    @contextlib.contextmanager
    def serve(self, requests, tokens, run_id, at_end):
        """The backend's server, stopped when the block ends; `at_end()` is called while it still lives."""
        plan = self.plan
        room = servers.Wanted(
            requests,
            tokens,
            plan.threads,
            plan.devices.tensor_parallel,
            ROOT / paths.log(run_id).with_suffix(".server.txt"),
            plan.parameters.get("patience_s", 600.0),
            plan.url,
            plan.devices.data_parallel,
        )
        watch = in_process.Stopwatch()
        with plan.module.serve(plan.checkpoint, plan.option, plan.device, room) as served:
            yield self.use(served, watch.seconds())
            at_end()

    def generate(self, prompts, max_new_tokens, streaming=True):
        """One dict of measured columns per prompt of one batch, whatever the engine is."""
        if isinstance(self.engine, isolated.Worker):
            return self.engine.generate(prompts, max_new_tokens)
        if isinstance(self.engine, servers.Served):
            return through_server(self.engine, self.plan.checkpoint, prompts, max_new_tokens)
        return in_process.generate(self.engine, prompts, max_new_tokens, streaming)

    def again(self, prompts, max_new_tokens):
        """One batch as `generate`, by an engine that has just been warmed up at this size."""
        if isinstance(self.engine, isolated.Worker):
            return self.engine.again(prompts, max_new_tokens)
        return self.generate(prompts, max_new_tokens)

    def close(self):
        """End the server and the engine."""
        self.server.close()
        if self.engine is not None:
            self.engine.close()


def through_server(served, checkpoint, prompts, max_new_tokens):
    """Measured columns of `prompts` (token ids), sent one after the other by the load client."""
    texts = [protocols.Prompt(tuple(ids), checkpoint.decode(ids), max_new_tokens) for ids in prompts]
    calls = schedule.calls(served, schedule.Level("closed", 1, len(texts)), texts)
    rows, _ = parallel.run(served.url, calls, served.dialect, 1, REQUEST_S)
    encode = checkpoint.encode
    return [decoding.with_ids(decoding.with_gaps(row, encode), encode) for row in rows]


def drive(served, checkpoint, level, prompts, first, timeout_s):
    """(measured columns of each of `prompts`, how the load client fared) at one level of load."""
    calls = schedule.calls(served, level, prompts, first)
    places = level.value if level.kind == "closed" else 1
    rows, fared = parallel.run(served.url, calls, served.dialect, places, timeout_s)
    return [decoding.with_gaps(row, checkpoint.encode) for row in rows], fared
