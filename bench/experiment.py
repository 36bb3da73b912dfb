"""What every experiment notebook does around its own measurement: check the parameters, take the device, write the run.

    setup = experiment.start("latency", globals())     # after the parameters cell
    engine = setup.load()
    rows = …                                           # measure.generate(engine, prompts, …)
    setup.write(rows)
"""

import ast
import os
import platform
import sys
from pathlib import Path

import psutil
from tqdm import tqdm

from bench import ROOT, backends, data, hardware, measure, models, results


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


def peak_memory_bytes():
    """Largest resident set of this process and, added up, what its children hold now, in bytes; of a GPU's allocator where one is used."""
    import resource

    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if platform.system() == "Darwin" else 1024)
    children = 0
    for child in psutil.Process().children(recursive=True):
        try:
            if "bench.hardware" not in child.cmdline():  # the probe's buffer is not the engine's
                children += child.memory_info().rss
        except psutil.Error:
            pass
    return own + children


def start(experiment, namespace):
    """Check all parameters of the running notebook, prepare the model's format, take the device; returns the Setup."""
    return Setup(experiment, parameters(namespace))


class Setup:
    """One run from its parameters to its CSV. Whatever can be wrong with the parameters is found before anything is loaded."""

    def __init__(self, experiment, given):
        self.parameters = given
        self.module = backends.get(given["backend"])
        self.device, self.gpu = device_of(given["device"], given["gpu"])
        self.option = backends.option(self.module, given["option"], self.device)
        self.threads = threads_for(given["threads"])
        self.folder = Path(given["results"]) if given["results"] else results.RESULTS
        absent = backends.missing(given["backend"], self.device)
        if absent:
            raise RuntimeError(absent)
        self.environment = set_threads(self.threads)
        self.checkpoint = models.prepare(given["backend"], given["model"], self.option, self.device)
        self.lock = hardware.take(self.device)
        self.started = results.now()
        self.run_id = self._claim(experiment)
        self.machine = hardware.describe(self.device)
        self.bandwidth = hardware.Bandwidth(self.device, self.threads)
        self.neighbours = hardware.Neighbours()

    def _claim(self, experiment):
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
        """The engine, loaded; how long that took is kept."""
        self.engine, self.load_s = measure.timed(self.module.load, self.checkpoint, self.option, self.device, self.threads)
        return self.engine

    def prompts(self, which="latency"):
        """Token ids of a prompt set, indexed by prompt number: the same ids for every engine."""
        return data.prompts(which).map(self.checkpoint.encode)

    def progress(self, requests, total):
        """`requests` behind a progress bar that is only ever drawn between two requests."""
        tqdm.monitor_interval = 0  # no thread of its own that wakes in the middle of a request
        return tqdm(requests, total=total, desc=self.run_id, mininterval=0, miniters=1, file=sys.stdout)

    def row(self, request, prompt, prompt_ids, measured, **condition):
        """One row of the schema: identity and condition around the columns that `measure.generate` gave."""
        condition = {"batch_size": 1, "max_new_tokens": self.parameters["max_new_tokens"], "temperature": 0, **condition}
        ids = measured["output_ids"]
        return self.identity | condition | measured | {
            "run_id": self.run_id, "backend_version": self.module.version(), "weights": self.checkpoint.weights, "tensor_parallel": 1,
            "request": request, "prompt": prompt, "prompt_tokens": len(prompt_ids), "load_s": self.load_s,
            "answer": self.checkpoint.decode(ids), "output_ids": " ".join(map(str, ids)),
        }  # fmt: skip

    def write(self, rows):
        """Write the run through all gates, let the engine and the device go, and return the CSV's path."""
        peak = peak_memory_bytes()
        first = min(row["sent_s"] for row in rows)
        rows = [row | {"sent_s": row["sent_s"] - first, "peak_memory_bytes": peak} for row in rows]
        sidecar = self.sidecar()
        self.close()
        return results.write(rows, sidecar, self.run_id, self.folder)

    def sidecar(self):
        """Where the run came from, field by field as `results.SIDECAR` lists them."""
        return {
            "packages": results.packages(), "git": results.git_state(), "machine": self.machine,
            "busy_cores": self.neighbours.cores(), "bandwidth_probes_bytes_per_s": self.bandwidth.probes,
            "datasheet_bandwidth_bytes_per_s": hardware.datasheet_bandwidth(self.gpu),
            "weight_bytes": self.engine.weight_bytes, "kv_value_bytes": self.engine.kv_value_bytes,
            "kv_values_per_token": self.checkpoint.kv_values_per_token,
            "parameters": self.parameters, "settings": self.engine.settings | self.environment, "threads": self.threads,
            "model_sha256": self.checkpoint.digest(), "prompts_sha256": data.digest("prompts"),
            "started": self.started, "ended": results.now(),
        }  # fmt: skip

    def close(self):
        """Stop the probe, close the engine, let the device go."""
        self.bandwidth.__exit__()
        self.engine.close()
        self.lock.release()
