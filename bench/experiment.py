"""What every experiment notebook does around its own measurement: check the parameters, take the device, write the run.

    setup = experiment.start("latency", globals())     # after the parameters cell
    engine = setup.load()
    rows = …                                           # measure.generate(engine, prompts, …)
    setup.write(rows)
"""

import ast
import contextlib
import math
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from bench import ROOT, backends, data, dialects, execute, hardware, load, measure, models, results, server, serving, worker


REQUEST_S = 600.0  # what a single request may take
OPEN_PLACES = 16  # requests at once that a server is prepared for where only arrivals are scheduled
WAYS = {"load": "in process", "serve": "through a server"}  # the parts of the backend contract in words


def declared(source):
    """Name -> default of every `name = literal` in the source of a parameters cell."""
    return {
        target.id: ast.literal_eval(node.value)
        for node in ast.parse(source).body if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip


def parameters(namespace):
    """The parameters of the running notebook, name -> value: those of its first cell, as papermill's injected cell has set them.

    papermill only warns of a parameter that does not exist, so it is checked here: NameError for a name that the first cell does not
    declare, TypeError for a value of another type, both listing what exists.
    """
    cells = [source for source in namespace["In"] if source.strip()]
    known = declared(cells[0])
    for source in cells[1:-1]:
        for name in declared(source):
            if name not in known:
                try:
                    backends.choose("parameter", name, known)
                except ValueError as error:
                    raise NameError(str(error)) from None
    for name, default in known.items():
        value = namespace[name]
        if isinstance(default, str) and type(value) in (int, float):  # papermill makes a number of what looks like one
            value = namespace[name] = str(value)
        if not isinstance(value, (int, float) if isinstance(default, float) else type(default)):
            raise TypeError(f"Parameter {name} must be a {type(default).__name__} such as {default!r}, not {value!r}.")
    return {name: namespace[name] for name in known}


def device_of(device, gpu):
    """('cpu' or 'cuda', slug) for the parameters `device` and `gpu`; ValueError where this machine is not what they say."""
    wanted = "cpu" if device == "auto" and gpu == "cpu" else device
    backends.choose("device", wanted, ("auto", "cpu", "cuda"))
    found = hardware.has_cuda()
    if wanted == "cuda" and not found:
        raise ValueError("There is no CUDA device here (nvidia-smi does not answer). Use -p device cpu, or run this on a machine with an NVIDIA GPU.")
    chosen = ("cuda" if found else "cpu") if wanted == "auto" else wanted
    slug = hardware.slug(chosen)
    if gpu not in ("auto", chosen, slug):
        raise ValueError(f"This machine's {chosen} device is {slug!r}, not {gpu!r}. Leave gpu at 'auto', or run this where {gpu!r} is.")
    return chosen, slug


def place(given):
    """`device_of` for the parameters of a notebook; a server that runs already is where `gpu` says, for nobody can see that from here."""
    if not given.get("url") or given["gpu"] in ("auto", "cpu", "cuda"):
        if given.get("url") and urlsplit(given["url"]).hostname not in ("localhost", "127.0.0.1", "::1"):
            raise ValueError("Say what the server runs on, as a slug: -p gpu h100. Nobody can see that from here.")
        return device_of(given["device"], given["gpu"])
    return "cpu" if given["device"] == "cpu" else "cuda", results.safe(given["gpu"]).lower()


def threads_for(threads):
    """Number of CPU threads for an engine, every physical core if 0; ValueError for more than there are."""
    if not 0 <= threads <= hardware.cores():
        raise ValueError(f"threads must be between 1 and {hardware.cores()} on this machine (0 means all), not {threads}.")
    return threads or hardware.cores()


def set_threads(threads):
    """Give every OpenMP, MKL and OpenBLAS that is loaded from now on the same number of threads; returns what was set.

    How threads wait is left at each engine's default. Passive waiting survives a busy neighbour, but on an idle virtual machine it cost
    PyTorch a factor of 1.7 (a sleeping core is slow to wake); so the machine is kept idle instead, and a run records who else used it.
    """
    chosen = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    chosen |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    os.environ.update(chosen)
    waiting = {name: os.environ.get(name, "default") for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")}
    return chosen | waiting


def numbers(name, text):
    """Positive whole numbers in `text`, separated by spaces; ValueError naming the parameter otherwise."""
    words = _words(text)
    if not words or not all(word.isdigit() and int(word) for word in words):
        raise ValueError(f"Parameter {name} must be whole numbers above 0 separated by spaces, such as '1 2 4', not {text!r}.")
    return [int(word) for word in words]


def rates(name, text):
    """Positive numbers in `text`, separated by spaces; none is allowed. ValueError naming the parameter otherwise."""
    try:
        found = [float(word) for word in _words(text)]
    except ValueError:
        found = [0.0]
    if not all(0 < rate < math.inf for rate in found):
        raise ValueError(f"Parameter {name} must be numbers above 0 separated by spaces, such as '0.5 1 2', not {text!r}.")
    return found


def _words(text):
    return "".join(" " if letter in "[](),;" else letter for letter in text).split()


def start(experiment, namespace, needs="load"):
    """Check all parameters of the running notebook, prepare the model's format, take the device; returns the Setup.

    `needs` is the part of the backend contract that the experiment calls: `load`, `serve`, or `load or serve`, the first one first.
    """
    return Setup(experiment, parameters(namespace), needs)


class Setup:
    """One run from its parameters to its CSV. Whatever can be wrong with the parameters is found before anything is loaded."""

    def __init__(self, experiment, given, needs="load"):
        self.parameters, self.client, self.warmup, self.peak_memory_bytes, self.busy_cores = given, [], [], None, None
        self.module = backends.get(given["backend"])
        self.device, self.gpu = place(given)
        self.option = backends.option(self.module, given["option"], self.device)
        self.threads = threads_for(given["threads"])
        self.folder = Path(given["results"]) if given["results"] else results.RESULTS
        absent = backends.missing(given["backend"], self.device, self.option)
        if absent:
            raise RuntimeError(absent)
        if not backends.can(given["backend"], needs):
            able = [name for name in backends.names() if backends.can(name, needs)]
            raise ValueError(f"The backend {given['backend']} has no {needs}(), which this experiment needs. These have: {', '.join(able)}.")
        self.part, self.running = next(p for p in needs.split(" or ") if backends.can(given["backend"], p)), contextlib.ExitStack()
        self.tensor_parallel, self.data_parallel = (self._at_once(kind) for kind in ("tensor", "data"))
        self._enough()
        self.environment = set_threads(self.threads)
        self.checkpoint = models.prepare(given["backend"], given["model"], self.option, self.device)
        self.lock = hardware.take(self.device)
        self._alone()
        self.started = results.now()
        self.run_id = self._claim(experiment)
        self.machine = hardware.describe(self.device) | self._gpus()
        self.bandwidth = hardware.Bandwidth(self.device, self.threads)
        self.gemm_flops_per_s = {}
        self.neighbours = hardware.Neighbours()

    def _at_once(self, kind):
        """Devices that share the model (`tensor`), or its replicas (`data`); ValueError naming who can where this adapter has no such thing."""
        name, n = self.parameters["backend"], self.parameters.get(f"{kind}_parallel", 1)
        if n < 1:
            raise ValueError(f"{kind}_parallel must be 1 or more, not {n}.")
        if n > 1 and kind not in backends.parallel(name, self.part):
            able = ", ".join(other for other in backends.names() if kind in backends.parallel(other, self.part))
            said = f"The backend {name} has no {kind} parallelism {WAYS[self.part]}, so {kind}_parallel must be 1. These have: {able}."
            served = "server" in self.parameters and self.part == "load" and kind in backends.parallel(name, "serve")
            raise ValueError(said + (" Its own server has it: -p server True." if served else ""))
        return n

    def _enough(self):
        """ValueError where fewer devices are here than are to be used at once: GPUs, or threads of a CPU; of a server elsewhere nobody knows."""
        wanted = self.tensor_parallel * self.data_parallel
        if wanted == 1 or self.parameters.get("url"):
            return
        found = len(hardware.gpus()) if self.device == "cuda" else self.threads
        if wanted > found:
            what = "GPUs, and CUDA may use" if self.device == "cuda" else "CPU threads, and there are"
            raise ValueError(f"tensor_parallel {self.tensor_parallel} x data_parallel {self.data_parallel} takes {wanted} {what} {found} here.")

    def _gpus(self):
        """For the sidecar: the names of all GPUs that are used at once, where they are several."""
        wanted = self.tensor_parallel * self.data_parallel
        here = self.device == "cuda" and wanted > 1 and not self.parameters.get("url")
        return {"gpus": hardware.gpus()[:wanted]} if here else {}

    def _alone(self):
        """RuntimeError where somebody else computes on the GPU; the server that runs already may."""
        others = hardware.gpu_company() if self.device == "cuda" and not self.parameters.get("url") else []
        if others:
            said = f"Other processes compute on this GPU ({', '.join(map(str, others))}): a benchmark that shares its device is void."
            raise RuntimeError(f"{said} Stop them, or set CUDA_VISIBLE_DEVICES to another one.")

    def _claim(self, experiment):
        """The run's identifier: the next free number, unless `run` says which. A study passes over the numbers that runs on several devices have taken."""
        self.identity = {
            "experiment": experiment, "backend": self.parameters["backend"], "model": self.checkpoint.name,
            "option": self.option, "gpu": self.gpu, "host": hardware.host(),
        }  # fmt: skip
        n = self.parameters["run"] or results.next_number(self.identity, self.folder)
        identifier = results.run_id(**self.identity, n=n)
        if results.path(identifier, folder=self.folder).exists():
            raise FileExistsError(f"{identifier} has been measured already; leave `run` at 0 for the next number.")
        return identifier

    def load(self):
        """The engine, loaded; how long that took is kept. An engine that is only a server, or is to be measured as one, is started as one."""
        if self.part == "load":
            self.engine, self.load_s = measure.timed(self.module.load, *self._told())
            if hasattr(self.engine, "reserve"):
                self.engine.reserve(1, self._longest())
        else:
            self.running.enter_context(self.serve(1, self._longest()))
        return self.engine

    def _told(self):
        """What the adapter's `load` is given: the devices that share the model only where they are several."""
        return self.checkpoint, self.option, self.device, self.threads, *([self.tensor_parallel] if self.tensor_parallel > 1 else [])

    def _longest(self):
        """Tokens of the longest request of a latency run, prompt and answer."""
        return max(len(ids) for which in ("latency", "warmup") for ids in self.prompts(which)) + self.parameters["max_new_tokens"]

    def warm_up(self, prompts, max_new_tokens):
        """Requests that are dropped: one on a CPU; on a GPU as many as it takes until their time and its clocks have settled (`results.settled`)."""
        for _ in range(results.WARMUPS if self.device == "cuda" else 1):
            rows = self.generate(prompts, max_new_tokens)
            took = None if any(row["error"] for row in rows) else max(row["e2e_s"] for row in rows)
            self.warmup.append({"e2e_s": took} | (hardware.gpu_state() if self.device == "cuda" else {}))
            if took is None or results.settled(self.warmup):
                return

    def generate(self, prompts, max_new_tokens):
        """`measure.generate` for the engine that `load` or `worker` gave; through the load client, one request after the other, where that is a server."""
        if isinstance(self.engine, worker.Worker):
            return self.engine.generate(prompts, max_new_tokens)
        if not isinstance(self.engine, server.Served):
            return measure.generate(self.engine, prompts, max_new_tokens)
        asked = [dialects.Prompt(tuple(ids), self.checkpoint.decode(ids), max_new_tokens) for ids in prompts]
        calls = serving.calls(self.engine, serving.Level("closed", 1, len(asked)), asked)
        rows, _ = load.run(self.engine.url, calls, self.engine.dialect, 1, REQUEST_S)
        return [serving.with_ids(serving.with_gaps(row, self.checkpoint.encode), self.checkpoint.encode) for row in rows]

    def worker(self, limit_bytes=0, patience_s=1800):
        """The engine, loaded in a process of its own that a failure cannot take the run with: `bench.worker.Worker`."""
        self.engine = worker.Worker(self.parameters["backend"], *self._told(), limit_bytes=int(limit_bytes), patience_s=patience_s)
        self.load_s = self.engine.load_s
        return self.engine

    @contextlib.contextmanager
    def serve(self, requests, tokens):
        """The backend's server with room for `requests` of `tokens` tokens each, prompt and answer; stopped when the block ends."""
        given = self.parameters
        log = ROOT / execute.log(self.run_id).with_suffix(".server.txt")
        told = self.tensor_parallel, log, given.get("patience_s", 600.0), given.get("url", ""), self.data_parallel
        wanted = server.Wanted(requests, tokens, self.threads, *told)
        watch = measure.Stopwatch()
        with self.module.serve(self.checkpoint, self.option, self.device, wanted) as served:
            self.engine, self.load_s = served, watch.seconds()
            yield served
            # While it lives: what a server's own children have used is lost with it.
            self.peak_memory_bytes, self.busy_cores = hardware.peak_memory_bytes(self.device), self.neighbours.cores()

    def drive(self, served, level, prompts, first=1):
        """Put one level of load on the server; returns its rows, failures included, and keeps how the load client fared."""
        calls = serving.calls(served, level, prompts, first)
        measured, about = load.run(served.url, calls, served.dialect, level.value if level.kind == "closed" else 1, self.parameters["timeout_s"])
        self.client.append({"level": str(level)} | about)
        rows = [serving.with_gaps(row, self.checkpoint.encode) for row in measured]
        return [self.row(row["request"], row["request"], (), row | {"output_ids": []}, **level.condition, max_new_tokens=prompt.new_tokens,
                         prompt_tokens=row.get("prompt_tokens", len(prompt.ids))) for row, prompt in zip(rows, prompts)]  # fmt: skip

    def probe_gemm(self):
        """Measure the matrix-multiply peak in every number format, now; all measurements are kept."""
        for dtype, rate in hardware.gemm_peaks(self.device, self.threads).items():
            self.gemm_flops_per_s.setdefault(dtype, []).append(rate)

    def prompts(self, which="latency"):
        """Token ids of a prompt set, indexed by prompt number: the same ids for every engine."""
        return data.prompts(which).map(self.checkpoint.encode)

    def uniform_prompts(self, requests, tokens):
        """`requests` different prompts of exactly `tokens` token ids: the same for every engine."""
        return data.windows(self.checkpoint.encode(data.text()), requests, tokens)

    def progress(self, requests, total):
        """`requests` behind a progress bar that is only ever drawn between two requests."""
        tqdm.monitor_interval = 0  # no thread of its own that wakes in the middle of a request
        return tqdm(requests, total=total, desc=self.run_id, mininterval=0, miniters=1, file=sys.stdout)

    def row(self, request, prompt, prompt_ids, measured, **condition):
        """One row of the schema: identity and condition around the columns that `measure.generate` gave."""
        usual = {"batch_size": 1, "max_new_tokens": self.parameters.get("max_new_tokens"), "temperature": 0, "prompt_tokens": len(prompt_ids)}
        ids = measured["output_ids"]
        return self.identity | usual | measured | condition | {
            "run_id": self.run_id, "backend_version": self.module.version(), "weights": self.checkpoint.weights,
            "tensor_parallel": self.tensor_parallel, "data_parallel": self.data_parallel, "request": request, "prompt": prompt, "load_s": self.load_s,
            "answer": self.checkpoint.decode(ids), "output_ids": " ".join(map(str, ids)),
        }  # fmt: skip

    def write(self, rows):
        """Write the run through all gates, let the engine and the device go, and return the CSV's path."""
        peak = self.peak_memory_bytes or hardware.peak_memory_bytes(self.device)
        first = min(row["sent_s"] for row in rows)
        rows = [{"peak_memory_bytes": peak} | row | {"sent_s": row["sent_s"] - first} for row in rows]
        if self.device == "cuda":
            self.machine["gpu_after"] = hardware.gpu_state()
        sidecar = self.sidecar()
        self.close()
        return results.write(rows, sidecar, self.run_id, self.folder)

    def sidecar(self):
        """Where the run came from, field by field as `results.SIDECAR` lists them."""
        return {
            "packages": results.packages(), "git": results.git_state(), "machine": self.machine, "warmup": self.warmup,
            "busy_cores": self.busy_cores or self.neighbours.cores(), "bandwidth_probes_bytes_per_s": self.bandwidth.probes,
            "datasheet_bandwidth_bytes_per_s": hardware.datasheet_bandwidth(self.gpu),
            "weight_bytes": self.engine.weight_bytes, "kv_value_bytes": self.engine.kv_value_bytes,
            "kv_values_per_token": self.checkpoint.kv_values_per_token,
            "arithmetic": backends.arithmetic(self.engine), "gemm_flops_per_s": self.gemm_flops_per_s, **self.checkpoint.matrices,
            "limit_bytes": getattr(self.engine, "limit_bytes", None), "loaded_bytes": getattr(self.engine, "loaded_bytes", None),
            "client": self.client, "parameters": self.parameters, "settings": self.engine.settings | self.environment, "threads": self.threads,
            "model_sha256": self.checkpoint.digest(), "prompts_sha256": data.digest("prompts"),
            "started": self.started, "ended": results.now(),
        }  # fmt: skip

    def close(self):
        """Stop the probe, the server and the engine, let the device go."""
        self.bandwidth.__exit__()
        self.running.close()
        self.engine.close()
        self.lock.release()


class Sweep:
    """The batches of one run of batching.ipynb, in order: (requests, prompt tokens, new tokens); first the prompt lengths, then the batches.

    With a budget it ends before a batch that would not fit in what is left of it, and says so: twice the requests take at most twice
    the time of the batch before. An engine that takes one prompt at a time gets no larger batch.
    """

    def __init__(self, setup):
        given = setup.parameters
        sizes, lengths = (numbers(name, given[name]) for name in ("batch_sizes", "prompt_lengths"))
        self.batches = backends.batches(setup.module, setup.option)
        self.setup, self.budget_s = setup, given["budget_s"]
        shapes = [(1, length, given["short_tokens"]) for length in lengths]
        shapes += [(size, given["input_tokens"], given["max_new_tokens"]) for size in sizes if size == 1 or self.batches]
        room = setup.checkpoint.config.get("max_position_embeddings", math.inf)
        self.shapes = [shape for shape in shapes if shape[1] + shape[2] <= room]

    def __str__(self):
        words = ", ".join(f"{size} x {prompt}+{new}" for size, prompt, new in self.shapes)
        return f"requests x prompt tokens + new tokens: {words}" + ("" if self.batches else ". This engine's adapter takes one prompt at a time.")

    def __iter__(self):
        watch, before = measure.Stopwatch(), (0, 0.0)
        for done, (size, prompt, new) in enumerate(self.setup.progress(self.shapes, len(self.shapes))):
            work, seconds = before
            started, mine = watch.seconds(), size * (prompt + new)
            if self.budget_s and work and started + seconds * max(1.0, mine / work) > self.budget_s:
                left = [f"{b} x {p}+{n}" for b, p, n in self.shapes[done:]]
                print(f"The budget of {self.budget_s:.0f} s would not do for what is left: {', '.join(left)}.")
                return
            yield size, prompt, new
            before = mine, watch.seconds() - started


class Load:
    """The levels of load of one run of serving.ipynb: (level, its prompts), the closed loops first, each kind until the server is saturated."""

    def __init__(self, setup):
        given, small = setup.parameters, setup.device == "cpu" and not setup.parameters["url"]
        self.setup = setup
        places = _or_auto(given["concurrency"], numbers, "concurrency", "1 2 4 8 16" if small else "1 4 8 10 16 20 30 64")
        offered = _or_auto(given["request_rates"], rates, "request_rates", "0.5 1 2 4 8" if small else "1 2 4 8 16")
        requests = given["requests"] or (0 if small else 500)
        if given["arrivals"] == "trace":
            self.levels = serving.plan(places, [], requests, "poisson") + serving.replay(given["lengths"])
        else:
            self.levels = serving.plan(places, offered, requests, given["arrivals"])
        if not self.levels:
            raise ValueError("There is nothing to do: give concurrency, such as '1 4 8', or request_rates, such as '1 2 4'.")
        self.scale = given["scale"] = given["scale"] or (0.25 if small else 1.0)  # the sidecar keeps what was chosen
        self.most = setup.checkpoint.config.get("max_position_embeddings", 4096)
        self.sizes = [serving.lengths(given["lengths"], level.requests, self.scale, self.most) for level in self.levels]
        self.room = max(prompt + new for sizes in self.sizes for prompt, new in sizes)
        self.places = max([level.value for level in self.levels if level.kind == "closed"] or [OPEN_PLACES])
        self.before, self.done = {}, set()

    def __str__(self):
        words = ", ".join(str(level) for level in self.levels)
        return f"{self.setup.parameters['lengths']} lengths x {self.scale:g}, up to {self.room} tokens a request; levels: {words}"

    def warm_up(self, served):
        """Requests of the first level's kind that are dropped: enough to have every place used once."""
        sizes = [(64, 16)] * min(self.places, OPEN_PLACES)
        level = serving.Level("closed", len(sizes), len(sizes))
        failed = [row["error"] for row in self.setup.drive(served, level, serving.prompts(self.setup.checkpoint, sizes, first=10**6)) if row["error"]]
        self.setup.client.clear()
        if failed:
            raise RuntimeError(f"The warm-up failed, so nothing was measured: {failed[0]}")

    def __iter__(self):
        number = 0
        for level, sizes in self.setup.progress(list(zip(self.levels, self.sizes)), len(self.levels)):
            if level.kind in self.done:
                continue
            self.now = level
            yield level, serving.prompts(self.setup.checkpoint, sizes, first=number)
            number += level.requests

    def note(self, rows):
        """Look whether the level that gave `rows` saturated the server; returns them, as failed where the client was late with them."""
        table = results.frame(rows)
        why = results.late(table) if self.now.kind != "closed" else ""
        if why:
            print(why)
            return [row | {"error": why, "output_tokens": 0} for row in rows]
        self.before.setdefault(self.now.kind, []).append(table)
        if serving.saturated(self.before[self.now.kind]):
            left = [str(level) for level in self.levels if level.kind == self.now.kind and level.value > self.now.value]
            print(f"Saturated at {self.now}: more load gives hardly more tokens/s." + (f" Left out: {', '.join(left)}." if left else ""))
            self.done.add(self.now.kind)
        return rows


def _or_auto(text, read, name, usual):
    """What `read` makes of a parameter, of `usual` where it is `auto`, nothing where it is `none`."""
    return [] if text == "none" else read(name, usual if text == "auto" else text)
