"""One run, from top to bottom: check the parameters, take the device, measure, write.

The engine and its server are in `bench.experiments.running`, from which a Setup has `load`, `prompts`,
`warm_up`, `generate` and `row`. What a notebook does, in its order:

    setup = session.start("latency", globals())     # after the parameters cell
    engine = setup.load()
    rows = []                                       # of each request, with the tokens that the cell requests
    (measured,) = setup.generate([ids], max_new_tokens)
    rows.append(setup.row(1, prompt, ids, measured, max_new_tokens=max_new_tokens))
    setup.write(rows)
"""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

from bench import backends, inputs
from bench.experiments import device, judge, notebook
from bench.experiments import target as targets
from bench.experiments.running import Rows, Running
from bench.machine import gpu
from bench.observations import checks, partial, provenance, schema, store
from llm_measured.core import device_peaks
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


def of_latency(server: bool, prompt_numbers: str, problems: str = "") -> tuple[str, str]:
    """(experiment, part of the contract) of a run of latency.ipynb with these parameters.

    Some of the prompts are an experiment of their own: runs of three prompts are compared with none of nine,
    and so are problems of HumanEval.
    """
    if server and (prompt_numbers or problems):
        raise ValueError("Through its server an engine answers all prompts: leave prompt_numbers empty.")
    if problems:
        return "drafts", "load"
    if server:
        return "served", "serve"
    return ("sizes" if prompt_numbers else "latency"), "load or serve"


def of_batching(batch_sizes: str) -> str:
    """Return the experiment of a run of batching.ipynb: without batches it is of prompt lengths alone."""
    return "context" if batch_sizes == "none" else "batching"


class Setup(Running):
    """One run: what it measures (a Target), the Device that it holds until it ends, its engine, and what it
    will write."""

    def __init__(
        self, experiment: str, values: dict[str, Any], needs: str = "load", continues: bool = False
    ) -> None:
        target = targets.make(experiment, values, needs)
        taken = device.Device(target).take()
        try:
            run_id = target.run_id(continues)
            refuse_a_second_shared_run(run_id, target.folder, taken.alone)
            super().__init__(target, taken, run_id)
            self.started, self.order = provenance.now(), provenance.order()
        except BaseException:
            taken.release()
            raise
        self.continues = continues
        # Of a run that has ended and is not on disk yet.
        self.unwritten: tuple[Rows, Fields] | None = None
        self.kept = 0  # rows of the levels that have ended and are on disk

    def note(self, **settings: Any) -> None:
        """Add `settings` to those that the sidecar keeps."""
        self.settings.update(settings)

    @property
    def partial(self) -> Path:
        """Where the levels that have ended lie until the run is written."""
        return store.path(self.run_id, store.PARTIAL, self.folder)

    def keep(self, rows: Rows) -> None:
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

    def write(self, rows: Rows) -> Path:
        """Write the run through all validity checks, let engine and device go, and return the CSV's path.

        Where it could not be written (a full disk, a read-only folder), the cell can be run again.
        """
        if self.unwritten is None:
            self.in_use()
            # While the engine and the device are still held; moments of sending count from the first request.
            peak = self.peak_memory_bytes or self.taken.peak_memory_bytes()
            sent_s = [row["sent_s"] for row in rows if not math.isnan(row["sent_s"])]  # a cut turn has none
            first_s = min(sent_s)
            finished = [
                {"peak_memory_bytes": peak} | row | {"sent_s": row["sent_s"] - first_s} for row in rows
            ]
            if self.device == "cuda" and "gpu_after" not in self.taken.machine:
                self.taken.machine["gpu_after"] = self.taken.gpu_state()
            sidecar = self.sidecar()
            self.meter.ready()  # after the last look at the clocks, which fall when nothing is to be done
            self.unwritten = finished, sidecar | {"energy": self.meter.about()}
            self.close()
        finished, sidecar = self.unwritten
        alone = self.taken.alone
        try:
            path = store.write(finished, sidecar, self.run_id, self.folder, alone.scratch, alone.marked)
        except checks.Rejected as refusal:
            raise checks.Rejected(f"{refusal}{self.rescue()}") from None
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

    def sidecar(self) -> dict[str, Any]:
        """Where the run came from, field by field as `schema.SIDECAR` lists them."""
        target, taken, engine = self.target, self.taken, self.engine
        return {
            "layout": schema.LAYOUT,
            "order": self.order,
            "judge": self.checked_tokens or judge.unjudged("The run lets the engine generate nothing."),
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

    def close(self, why: str = "has ended") -> None:
        """Stop the server and the engine, let the device go; once is enough."""
        if self.ended:
            return
        self.ended = why
        if self.unwritten is None and (rescue := self.rescue()):
            notebook.tell(f"{self.run_id} {why}.{rescue}")
        with contextlib.ExitStack() as last:
            last.callback(self.taken.release)
            self.server.close()
            if self.engine is not None:
                self.engine.close()


def refuse_a_second_shared_run(run_id: str, folder: Path, alone: device.Alone) -> None:
    """Raise checks.Rejected where others are busy and the run was measured beside others before: only a quiet
    machine adds something."""
    kept = store.path(run_id, folder=store.shared_folder(folder))
    if alone.warned and alone.marked and kept.exists():
        raise checks.Rejected(
            "The machine is busy, and this run was measured beside others before (marked, in "
            f"{store.SHARED}/): it is measured again on a quiet machine. make study WAIT=1 waits for one."
        )
