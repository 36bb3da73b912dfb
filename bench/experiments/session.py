"""What every experiment notebook does around its own measurement: check the parameters, take the device, write the run.

setup = experiment.start("latency", globals())     # after the parameters cell
engine = setup.load()
rows = …                                           # measure.generate(engine, prompts, …)
setup.write(rows)
"""

import contextlib
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from bench import backends, inputs, naming, paths
from bench.backends.common import servers
from bench.experiments import parameters
from bench.instrument import in_process, isolated
from bench.instrument.load import decoding, parallel, protocols, schedule
from bench.machine import bandwidth, devices, gemm, gpu, identity, memory, neighbours
from bench.observations import gates, provenance, store
from bench.paths import RESULTS, ROOT

REQUEST_S = 600.0  # what a single request may take
WAYS = {"load": "in process", "serve": "through a server"}  # the parts of the backend contract in words


def place(given):
    """`device_of` for the parameters of a notebook; a server that runs already is where `gpu` says, for nobody can see that from here."""
    if not given.get("url") or given["gpu"] in ("auto", "cpu", "cuda"):
        if given.get("url") and urlsplit(given["url"]).hostname not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError(
                "Say what the server runs on, as a slug: -p gpu h100. Nobody can see that from here."
            )
        return devices.device_of(given["device"], given["gpu"])
    return "cpu" if given["device"] == "cpu" else "cuda", naming.safe(given["gpu"]).lower()


def threads_for(threads):
    """Number of CPU threads for an engine, every physical core if 0; ValueError for more than there are."""
    if not 0 <= threads <= identity.cores():
        raise ValueError(
            f"threads must be between 1 and {identity.cores()} on this machine (0 means all), not {threads}."
        )
    return threads or identity.cores()


def set_threads(threads):
    """Give every OpenMP, MKL and OpenBLAS that is loaded from now on the same number of threads; returns what was set.

    How threads wait is left at each engine's default. Passive waiting survives a busy neighbour, but on an idle virtual machine it cost
    PyTorch a factor of 1.7 (a sleeping core is slow to wake); so the machine is kept idle instead, and a run records who else used it.
    """
    chosen = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    chosen |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    os.environ.update(chosen)
    waiting = {
        name: os.environ.get(name, "default")
        for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    }
    return chosen | waiting


def start(experiment, namespace, needs="load"):
    """Check all parameters of the running notebook, prepare the model's format, take the device; returns the Setup.

    `needs` is the part of the backend contract that the experiment calls: `load`, `serve`, or `load or serve`, the first one first.
    """
    return Setup(experiment, parameters.parameters(namespace), needs)


class Setup:
    """One run from its parameters to its CSV. Whatever can be wrong with the parameters is found before anything is loaded."""

    def __init__(self, experiment, given, needs="load"):
        self.parameters, self.client, self.warmup, self.peak_memory_bytes, self.busy_cores = (
            given,
            [],
            [],
            None,
            None,
        )
        self.module = backends.get(given["backend"])
        self.device, self.gpu = place(given)
        self.option = backends.option(self.module, given["option"], self.device)
        self.threads = threads_for(given["threads"])
        self.folder = Path(given["results"]) if given["results"] else RESULTS
        absent = backends.missing(given["backend"], self.device, self.option)
        if absent:
            raise RuntimeError(absent)
        if not backends.can(given["backend"], needs):
            able = [name for name in backends.names() if backends.can(name, needs)]
            raise ValueError(
                f"The backend {given['backend']} has no {needs}(), which this experiment needs. These have: {', '.join(able)}."
            )
        self.part, self.running = (
            next(p for p in needs.split(" or ") if backends.can(given["backend"], p)),
            contextlib.ExitStack(),
        )
        self.tensor_parallel, self.data_parallel = (self._at_once(kind) for kind in ("tensor", "data"))
        self._enough()
        self.environment = set_threads(self.threads)
        self.checkpoint = backends.prepare(given["backend"], given["model"], self.option, self.device)
        self.lock = neighbours.take(self.device)
        self._alone()
        self.started = provenance.now()
        self.run_id = self._claim(experiment)
        self.machine = identity.describe(self.device) | self._gpus()
        self.bandwidth = bandwidth.Bandwidth(self.device, self.threads)
        self.gemm_flops_per_s = {}
        self.neighbours = neighbours.Neighbours()

    def _at_once(self, kind):
        """Devices that share the model (`tensor`), or its replicas (`data`); ValueError naming who can where this adapter has no such thing."""
        name, n = self.parameters["backend"], self.parameters.get(f"{kind}_parallel", 1)
        if n < 1:
            raise ValueError(f"{kind}_parallel must be 1 or more, not {n}.")
        if n > 1 and kind not in backends.parallel(name, self.part):
            able = ", ".join(
                other for other in backends.names() if kind in backends.parallel(other, self.part)
            )
            said = f"The backend {name} has no {kind} parallelism {WAYS[self.part]}, so {kind}_parallel must be 1. These have: {able}."
            served = (
                "server" in self.parameters
                and self.part == "load"
                and kind in backends.parallel(name, "serve")
            )
            raise ValueError(said + (" Its own server has it: -p server True." if served else ""))
        return n

    def _enough(self):
        """ValueError where fewer devices are here than are to be used at once: GPUs, or threads of a CPU; of a server elsewhere nobody knows."""
        wanted = self.tensor_parallel * self.data_parallel
        if wanted == 1 or self.parameters.get("url"):
            return
        found = len(gpu.gpus()) if self.device == "cuda" else self.threads
        if wanted > found:
            what = "GPUs, and CUDA may use" if self.device == "cuda" else "CPU threads, and there are"
            raise ValueError(
                f"tensor_parallel {self.tensor_parallel} x data_parallel {self.data_parallel} takes {wanted} {what} {found} here."
            )

    def _gpus(self):
        """For the sidecar: the names of all GPUs that are used at once, where they are several."""
        wanted = self.tensor_parallel * self.data_parallel
        here = self.device == "cuda" and wanted > 1 and not self.parameters.get("url")
        return {"gpus": gpu.gpus()[:wanted]} if here else {}

    def _alone(self):
        """RuntimeError where somebody else computes on the GPU; the server that runs already may."""
        others = neighbours.gpu_company() if self.device == "cuda" and not self.parameters.get("url") else []
        if others:
            said = f"Other processes compute on this GPU ({', '.join(map(str, others))}): a benchmark that shares its device is void."
            raise RuntimeError(f"{said} Stop them, or set CUDA_VISIBLE_DEVICES to another one.")

    def _claim(self, experiment):
        """The run's identifier: the next free number, unless `run` says which. A study passes over the numbers that runs on several devices have taken."""
        self.identity = {
            "experiment": experiment, "backend": self.parameters["backend"], "model": self.checkpoint.name,
            "option": self.option, "gpu": self.gpu, "host": identity.host(),
        }  # fmt: skip
        n = self.parameters["run"] or store.next_number(self.identity, self.folder)
        identifier = naming.run_id(**self.identity, n=n)
        if store.path(identifier, folder=self.folder).exists():
            raise FileExistsError(
                f"{identifier} has been measured already; leave `run` at 0 for the next number."
            )
        return identifier

    def load(self):
        """The engine, loaded; how long that took is kept. An engine that is only a server, or is to be measured as one, is started as one."""
        if self.part == "load":
            self.engine, self.load_s = in_process.timed(self.module.load, *self._told())
            if hasattr(self.engine, "reserve"):
                self.engine.reserve(1, self._longest())
        else:
            self.running.enter_context(self.serve(1, self._longest()))
        return self.engine

    def _told(self):
        """What the adapter's `load` is given: the devices that share the model only where they are several."""
        return (
            self.checkpoint,
            self.option,
            self.device,
            self.threads,
            *([self.tensor_parallel] if self.tensor_parallel > 1 else []),
        )

    def _longest(self):
        """Tokens of the longest request of a latency run, prompt and answer."""
        return (
            max(len(ids) for which in ("latency", "warmup") for ids in self.prompts(which))
            + self.parameters["max_new_tokens"]
        )

    def warm_up(self, prompts, max_new_tokens):
        """Requests that are dropped: one on a CPU; on a GPU as many as it takes until their time and its clocks have settled (`gates.settled`)."""
        for _ in range(gates.WARMUPS if self.device == "cuda" else 1):
            rows = self.generate(prompts, max_new_tokens)
            took = None if any(row["error"] for row in rows) else max(row["e2e_s"] for row in rows)
            self.warmup.append({"e2e_s": took} | (gpu.gpu_state() if self.device == "cuda" else {}))
            if took is None or gates.settled(self.warmup):
                return

    def generate(self, prompts, max_new_tokens):
        """`in_process.generate` for the engine that `load` or `worker` gave; through the load client, one request after the other, where that is a server."""
        if isinstance(self.engine, isolated.Worker):
            return self.engine.generate(prompts, max_new_tokens)
        if not isinstance(self.engine, servers.Served):
            return in_process.generate(self.engine, prompts, max_new_tokens)
        asked = [protocols.Prompt(tuple(ids), self.checkpoint.decode(ids), max_new_tokens) for ids in prompts]
        calls = schedule.calls(self.engine, schedule.Level("closed", 1, len(asked)), asked)
        rows, _ = parallel.run(self.engine.url, calls, self.engine.dialect, 1, REQUEST_S)
        return [
            decoding.with_ids(decoding.with_gaps(row, self.checkpoint.encode), self.checkpoint.encode)
            for row in rows
        ]

    def worker(self, limit_bytes=0, patience_s=1800):
        """The engine, loaded in a process of its own that a failure cannot take the run with: `bench.instrument.isolated.Worker`."""
        self.engine = isolated.Worker(
            self.parameters["backend"], *self._told(), limit_bytes=int(limit_bytes), patience_s=patience_s
        )
        self.load_s = self.engine.load_s
        return self.engine

    @contextlib.contextmanager
    def serve(self, requests, tokens):
        """The backend's server with room for `requests` of `tokens` tokens each, prompt and answer; stopped when the block ends."""
        given = self.parameters
        log = ROOT / paths.log(self.run_id).with_suffix(".server.txt")
        told = (
            self.tensor_parallel,
            log,
            given.get("patience_s", 600.0),
            given.get("url", ""),
            self.data_parallel,
        )
        wanted = servers.Wanted(requests, tokens, self.threads, *told)
        watch = in_process.Stopwatch()
        with self.module.serve(self.checkpoint, self.option, self.device, wanted) as served:
            self.engine, self.load_s = served, watch.seconds()
            yield served
            # While it lives: what a server's own children have used is lost with it.
            self.peak_memory_bytes, self.busy_cores = (
                memory.peak_memory_bytes(self.device),
                self.neighbours.cores(),
            )

    def drive(self, served, level, prompts, first=1):
        """Put one level of load on the server; returns its rows, failures included, and keeps how the load client fared."""
        calls = schedule.calls(served, level, prompts, first)
        measured, about = parallel.run(
            served.url,
            calls,
            served.dialect,
            level.value if level.kind == "closed" else 1,
            self.parameters["timeout_s"],
        )
        self.client.append({"level": str(level)} | about)
        rows = [decoding.with_gaps(row, self.checkpoint.encode) for row in measured]
        return [self.row(row["request"], row["request"], (), row | {"output_ids": []}, **level.condition, max_new_tokens=prompt.new_tokens,
                         prompt_tokens=row.get("prompt_tokens", len(prompt.ids))) for row, prompt in zip(rows, prompts)]  # fmt: skip

    def probe_gemm(self):
        """Measure the matrix-multiply peak in every number format, now; all measurements are kept."""
        for dtype, rate in gemm.gemm_peaks(self.device, self.threads).items():
            self.gemm_flops_per_s.setdefault(dtype, []).append(rate)

    def prompts(self, which="latency"):
        """Token ids of a prompt set, indexed by prompt number: the same ids for every engine."""
        return inputs.prompts(which).map(self.checkpoint.encode)

    def uniform_prompts(self, requests, tokens):
        """`requests` different prompts of exactly `tokens` token ids: the same for every engine."""
        return inputs.windows(self.checkpoint.encode(inputs.text()), requests, tokens)

    def progress(self, requests, total):
        """`requests` behind a progress bar that is only ever drawn between two requests."""
        tqdm.monitor_interval = 0  # no thread of its own that wakes in the middle of a request
        return tqdm(requests, total=total, desc=self.run_id, mininterval=0, miniters=1, file=sys.stdout)

    def row(self, request, prompt, prompt_ids, measured, **condition):
        """One row of the schema: identity and condition around the columns that `in_process.generate` gave."""
        usual = {
            "batch_size": 1,
            "max_new_tokens": self.parameters.get("max_new_tokens"),
            "temperature": 0,
            "prompt_tokens": len(prompt_ids),
        }
        ids = measured["output_ids"]
        return self.identity | usual | measured | condition | {
            "run_id": self.run_id, "backend_version": self.module.version(), "weights": self.checkpoint.weights,
            "tensor_parallel": self.tensor_parallel, "data_parallel": self.data_parallel, "request": request, "prompt": prompt, "load_s": self.load_s,
            "answer": self.checkpoint.decode(ids), "output_ids": " ".join(map(str, ids)),
        }  # fmt: skip

    def write(self, rows):
        """Write the run through all gates, let the engine and the device go, and return the CSV's path."""
        peak = self.peak_memory_bytes or memory.peak_memory_bytes(self.device)
        first = min(row["sent_s"] for row in rows)
        rows = [{"peak_memory_bytes": peak} | row | {"sent_s": row["sent_s"] - first} for row in rows]
        if self.device == "cuda":
            self.machine["gpu_after"] = gpu.gpu_state()
        sidecar = self.sidecar()
        self.close()
        return store.write(rows, sidecar, self.run_id, self.folder)

    def sidecar(self):
        """Where the run came from, field by field as `schema.SIDECAR` lists them."""
        return {
            "packages": provenance.packages(), "git": provenance.git_state(), "machine": self.machine, "warmup": self.warmup,
            "busy_cores": self.busy_cores or self.neighbours.cores(), "bandwidth_probes_bytes_per_s": self.bandwidth.probes,
            "datasheet_bandwidth_bytes_per_s": gpu.datasheet_bandwidth(self.gpu),
            "weight_bytes": self.engine.weight_bytes, "kv_value_bytes": self.engine.kv_value_bytes,
            "kv_values_per_token": self.checkpoint.kv_values_per_token,
            "arithmetic": backends.arithmetic(self.engine), "gemm_flops_per_s": self.gemm_flops_per_s, **self.checkpoint.matrices,
            "limit_bytes": getattr(self.engine, "limit_bytes", None), "loaded_bytes": getattr(self.engine, "loaded_bytes", None),
            "client": self.client, "parameters": self.parameters, "settings": self.engine.settings | self.environment, "threads": self.threads,
            "model_sha256": self.checkpoint.digest(), "prompts_sha256": inputs.digest("prompts"),
            "started": self.started, "ended": provenance.now(),
        }  # fmt: skip

    def close(self):
        """Stop the probe, the server and the engine, let the device go."""
        self.bandwidth.__exit__()
        self.running.close()
        self.engine.close()
        self.lock.release()
