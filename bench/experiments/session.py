"""What every experiment notebook does around its own measurement: check the parameters, take the device,
write the run.

    setup = session.start("latency", globals())     # after the parameters cell
    engine = setup.load()
    rows = …                                        # setup.row(…, setup.generate(prompts, max_new_tokens)[0])
    setup.write(rows)
"""

import contextlib
import itertools
import math
import sys

import pandas as pd
from tqdm import tqdm

from bench import naming
from bench.experiments import device, energy, notebook, running
from bench.experiments import plan as plans
from bench.experiments.recorder import Recorder
from bench.instrument.load import schedule
from bench.observations import gates


def start(experiment, namespace, needs="load", notebook_name=None):
    """Check all parameters of the running notebook, prepare the model's format, take the device.

    Returns the Setup. `needs` is the part of the backend contract that the experiment calls: `load`, `serve`,
    or `load or serve`, the first one first. `notebook_name` is the notebook's where the experiment has
    another. What an earlier run of this kernel still holds is let go first.
    """
    values = notebook.begin(namespace, notebook_name or experiment)
    return notebook.attend(Setup(experiment, values, needs))


class Setup:
    """One run: a Plan, a Device that is held until the run ends, the Running engine, a Recorder."""

    def __init__(self, experiment, values, needs="load"):
        self.plan, self.ended = plans.make(experiment, values, needs), ""
        self.unwritten = None  # (rows, sidecar) of a run that has ended and is not on disk yet
        self.taken, self.running = device.Device(self.plan).take(), running.Running(self.plan)
        self.meter = energy.Meter(self.plan)
        try:
            self.recorder = Recorder(self.plan, self.taken, self.plan.run_id())
        except BaseException:
            self.taken.release()
            raise
        self.run_id, self.parameters, self.folder = self.recorder.run_id, values, self.plan.folder
        self.module, self.option, self.checkpoint = self.plan.module, self.plan.option, self.plan.checkpoint
        self.device, self.threads, self.identity = self.plan.device, self.plan.threads, self.plan.identity
        self.bandwidth = self.taken.bandwidth

    engine = property(lambda self: self.running.engine, doc="The engine that is measured.")
    load_s = property(lambda self: self.running.load_s, doc="Seconds that loading it took.")

    def load(self):
        """The engine, loaded; one that is only a server, or is to be measured as one, is started as one."""
        self.in_use()
        if self.plan.part == "load":
            return self._probe_beside(self.running.load())
        return self.running.server.enter_context(self.serve(1, self.plan.longest()))

    def use(self, engine, load_s=math.nan):
        """Measure `engine`, which took `load_s` seconds to load; returns it."""
        return self._probe_beside(self.running.use(engine, load_s))

    def _probe_beside(self, engine):
        """Let the bandwidth probe read as many bytes as the weights of `engine` have, too; returns it."""
        self.bandwidth.working_set_bytes = engine.weight_bytes
        return engine

    def worker(self, limit_bytes=0, patience_s=1800):
        """The engine in a process of its own that a failure cannot take the run with: `isolated.Worker`."""
        self.in_use()
        return self.running.worker(limit_bytes, patience_s)

    def serve(self, requests, tokens):
        """Context of the backend's server with room for `requests` of `tokens` tokens, prompt and answer."""
        self.in_use()
        return self.running.serve(requests, tokens, self.run_id, self.recorder.keep_usage, self.meter.ready)

    def generate(self, prompts, max_new_tokens, streaming=True):
        """One batch of `prompts` (token ids) through the engine: one dict of measured columns per prompt.

        As `in_process.generate`; a server gets one request after the other, through the load client.
        """
        self.in_use()
        rows = self.running.generate(prompts, max_new_tokens, streaming)
        self.taken.alone.look()
        return rows

    def with_energy(self, rows, batches, max_new_tokens):
        """`rows`, which these `batches` gave, with the joules of each request: ten untimed seconds more."""
        self.in_use()
        return _with_energy(self, rows, batches, max_new_tokens)

    def warm_up(self, prompts, max_new_tokens):
        """Requests that are dropped: one on a CPU; on a GPU until time and clocks have settled."""
        _warm_up(self, prompts, max_new_tokens)

    def drive(self, served, level, prompts, first=1, counts=True):
        """Rows of one level of load on the server, failures included; the sidecar keeps those that count."""
        self.in_use()
        return _drive(self, served, level, prompts, first, counts)

    def probe_gemm(self):
        """Measure the matrix-multiply peak in every number format, now; all measurements are kept."""
        self.in_use()
        self.taken.probe_gemm()

    def prompts(self, which="latency"):
        """Token ids of a prompt set, indexed by prompt number: the same for every engine; against a server
        that runs already behind heads (`_headed`)."""
        ids = plans.encoded(which, self.checkpoint)
        return _headed(self, which, ids) if self.plan.url else ids

    def progress(self, requests, total):
        """`requests` behind a progress bar that is only ever drawn between two requests."""
        self.in_use()
        tqdm.monitor_interval = 0  # no thread of its own that wakes in the middle of a request
        return tqdm(requests, total=total, desc=self.run_id, mininterval=0, miniters=1, file=sys.stdout)

    def row(self, request, prompt, prompt_ids, measured, **condition):
        """One row of the schema: identity and condition around the columns that were measured."""
        return self.recorder.row(request, prompt, prompt_ids, measured, self.load_s, **condition)

    def note(self, **settings):
        """Add `settings` to those that the sidecar keeps."""
        self.recorder.settings.update(settings)

    def write(self, rows):
        """Write the run through all gates, let the engine and the device go, and return the CSV's path.

        Where it could not be written (a full disk, a read-only folder), the cell can be run again.
        """
        if self.unwritten is None:
            self.in_use()
            self.unwritten = self.recorder.finish(rows, self.engine, self.meter)
            self.close()
        path = self.recorder.write(*self.unwritten)
        self.unwritten = None
        return path

    def in_use(self):
        """Note that the running cell uses this run; RuntimeError where the run has ended."""
        notebook.used(self)
        if self.ended:
            raise RuntimeError(f"{self.run_id} {self.ended}: run the notebook again from its parameters on.")

    def close(self, why="has ended"):
        """Stop the server and the engine, let the device go; once is enough."""
        if self.ended:
            return
        self.ended = why
        with contextlib.ExitStack() as last:
            last.callback(self.taken.release)
            self.running.close()


def _headed(setup, which, ids):
    """`ids` with a head before each prompt, for a server that may have answered them before; the column
    head_tokens counts it."""
    source = setup.identity["host"], naming.split_number(setup.run_id)[1], which
    heads = schedule.Heads(setup.checkpoint, source)
    return pd.Series({prompt: heads[prompt] + list(tokens) for prompt, tokens in ids.items()})


def _warm_up(setup, prompts, max_new_tokens):
    """The body of `Setup.warm_up`."""
    warmup = setup.recorder.warmup
    for _ in range(gates.WARMUPS if setup.device == "cuda" else 1):
        rows = setup.generate(prompts, max_new_tokens)
        took = None if any(row["error"] for row in rows) else max(row["e2e_s"] for row in rows)
        warmup.append({"e2e_s": took} | setup.taken.gpu_state())
        if took is None or gates.settled(warmup):
            return


def _drive(setup, served, level, prompts, first, counts):
    """The body of `Setup.drive`."""
    setup.meter.start()
    timeout_s = setup.parameters["timeout_s"]
    measured, fared = running.drive(served, setup.checkpoint, level, prompts, first, timeout_s)
    if counts:
        setup.recorder.client.append({"level": str(level)} | fared)
        measured = setup.meter.during(str(level), measured)
    setup.taken.alone.look()
    return setup.recorder.served_rows(measured, prompts, level, setup.load_s)


def _with_energy(setup, rows, batches, max_new_tokens):
    """The body of `Setup.with_energy`."""
    running, meter = setup.running, setup.meter
    if setup.plan.experiment == "memory":  # it measures no pace
        return rows
    what = f"{len(batches[0])} x {len(batches[0][0])}+{max_new_tokens}"
    if running.served:
        once_s = sum(row["e2e_s"] for row in rows if not row["error"])
        prompts = [ids for batch in batches for ids in batch]
        return meter.sent(what, rows, lambda s: running.sent_again(prompts, max_new_tokens, s, once_s))
    turn = itertools.cycle(batches)
    return meter.repeated(what, rows, lambda: running.again(next(turn), max_new_tokens))
