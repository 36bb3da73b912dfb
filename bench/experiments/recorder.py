"""What a run leaves behind: its rows, its sidecar, its CSV."""

from bench import backends, inputs
from bench.instrument.load import schedule
from bench.machine import gpu
from bench.observations import provenance, store


class Recorder:
    """Rows and sidecar of the run `run_id`, which follows `plan` on `device`; `write` puts them through the
    gates."""

    def __init__(self, plan, device, run_id):
        self.plan, self.device, self.run_id = plan, device, run_id
        self.started = provenance.now()
        self.warmup, self.client = [], []  # one dict per warm-up request, and per level of load
        self.settings = dict(plan.environment)  # the sidecar's settings beside the engine's own
        self.peak_memory_bytes = self.busy_cores = None  # where a server's end took them before the run's

    def keep_usage(self):
        """Note memory, neighbours and clocks now: what a server's own children have used is lost with it, and
        clocks fall when it ends.

        Of several servers of one run the largest peak counts.
        """
        self.peak_memory_bytes = (
            max(self.peak_memory_bytes or 0, self.device.peak_memory_bytes() or 0) or None
        )
        self.busy_cores = self.device.busy_cores()
        if self.plan.device == "cuda":
            self.device.machine["gpu_after"] = self.device.gpu_state()

    def row(self, request, prompt, prompt_ids, measured, load_s, **condition):
        """One row of the schema: identity and condition around the columns that were measured."""
        plan, ids = self.plan, measured["output_ids"]
        usual = {
            "batch_size": 1,
            "max_new_tokens": plan.parameters.get("max_new_tokens"),
            "temperature": 0,
            "prompt_tokens": len(prompt_ids),
            "head_tokens": schedule.HEAD_TOKENS if plan.url else 0,
        }
        of_the_run = {
            "run_id": self.run_id,
            "backend_version": plan.module.version(),
            "weights": plan.checkpoint.weights,
            "tensor_parallel": plan.devices.tensor_parallel,
            "data_parallel": plan.devices.data_parallel,
            "request": request,
            "prompt": prompt,
            "load_s": load_s,
            "answer": plan.checkpoint.decode(ids),
            "output_ids": " ".join(map(str, ids)),
        }
        return plan.identity | usual | measured | condition | of_the_run

    def served_rows(self, measured, prompts, level, load_s):
        """Rows of one level of load: one per request; a load test keeps no answers."""
        rows = []
        for row, prompt in zip(measured, prompts):
            tokens = row.get("prompt_tokens", len(prompt.ids))
            condition = level.condition | {"max_new_tokens": prompt.new_tokens, "prompt_tokens": tokens}
            condition["head_tokens"] = schedule.HEAD_TOKENS
            request, columns = row["request"], row | {"output_ids": []}
            rows.append(self.row(request, request, (), columns, load_s, **condition))
        return rows

    def finish(self, rows, engine, meter):
        """(rows as they are written, sidecar): to be called while the engine and the device are still held.

        Moments of sending count from the first request. The `energy.Meter`'s idle window comes after the last
        look at the clocks, which fall when nothing is to be done.
        """
        peak = self.peak_memory_bytes or self.device.peak_memory_bytes()
        first = min(row["sent_s"] for row in rows)
        rows = [{"peak_memory_bytes": peak} | row | {"sent_s": row["sent_s"] - first} for row in rows]
        if self.plan.device == "cuda" and "gpu_after" not in self.device.machine:
            self.device.machine["gpu_after"] = self.device.gpu_state()
        sidecar = self.sidecar(engine)
        meter.ready()
        return rows, sidecar | {"energy": meter.about()}

    def write(self, rows, sidecar):
        """Write the run through all gates and return the CSV's path."""
        scratch = self.device.alone.scratch
        return store.write(rows, sidecar, self.run_id, self.plan.folder, scratch)

    def sidecar(self, engine):
        """Where the run came from, field by field as `schema.SIDECAR` lists them."""
        plan, device = self.plan, self.device
        return {
            "packages": provenance.packages(),
            "git": provenance.git_state(),
            "machine": device.machine,
            "warmup": self.warmup,
            "busy_cores": self.busy_cores or device.busy_cores(),
            "bandwidth_probes_bytes_per_s": device.bandwidth.probes,
            "working_set_probes_bytes_per_s": device.bandwidth.working_set_probes,
            "probe_cpu_shares": device.bandwidth.cpu_shares,
            "probe_ways_bytes_per_s": device.bandwidth.ways,
            "datasheet_bandwidth_bytes_per_s": gpu.datasheet_bandwidth(plan.place.gpu),
            "weight_bytes": engine.weight_bytes,
            "kv_value_bytes": engine.kv_value_bytes,
            "kv_values_per_token": plan.checkpoint.kv_values_per_token,
            "arithmetic": backends.arithmetic(engine),
            "gemm_flops_per_s": device.gemm_flops_per_s,
            **plan.checkpoint.matrices,
            "limit_bytes": getattr(engine, "limit_bytes", None),
            "loaded_bytes": getattr(engine, "loaded_bytes", None),
            "client": self.client,
            "parameters": plan.parameters,
            "settings": engine.settings | self.settings,
            "threads": plan.threads,
            "model_sha256": plan.checkpoint.digest(),
            "prompts_sha256": inputs.digest("prompts"),
            "started": self.started,
            "ended": provenance.now(),
        }
