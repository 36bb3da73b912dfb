"""What one run will measure; whatever of it can be wrong is found before anything is loaded."""

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pandas as pd

from bench import backends, endpoint, inputs
from bench.backends import http
from bench.backends.common import checkpoints
from bench.backends.common.checkpoints import Checkpoint
from bench.experiments import judge, notebook
from bench.machine import gpu, identity
from bench.observations import partial, store
from bench.paths import ROOT
from llm_measured.core import files, naming
from llm_measured.core.definitions import Fields

WAYS = {"load": "in process", "serve": "through a server"}  # the parts of the backend contract in words
AUTO = "auto"
HERE = ("auto", "cpu", "cuda")  # values of `gpu` that mean a device of this machine
LOCAL = ("localhost", "127.0.0.1", "::1")
LENGTHS = ("max_new_tokens", "warmup_tokens", "input_tokens", "short_tokens")
PROMPT_SETS = {name: ("latency", "warmup") for name in ("latency", "served", "sizes")}


@dataclass(frozen=True)
class Place:
    """Where a run happens: the kind of device, `cpu` or `cuda`, and its slug."""

    device: str
    gpu: str


@dataclass(frozen=True)
class Devices:
    """How many devices a run uses at once: those that share the model, and replicas of the model."""

    tensor_parallel: int = 1
    data_parallel: int = 1

    @property
    def count(self) -> int:
        """All of them."""
        return self.tensor_parallel * self.data_parallel


@dataclass(frozen=True)
class Target:
    """What one run measures: the parameters and what follows from them."""

    experiment: str
    parameters: dict[str, Any]
    backend: backends.Backend
    part: str  # the part of the backend contract that is measured: load or serve
    place: Place
    option: str
    threads: int
    devices: Devices
    folder: Path
    environment: dict[str, str]
    checkpoint: checkpoints.Checkpoint

    @property
    def device(self) -> str:
        """`cpu` or `cuda`."""
        return self.place.device

    @property
    def url(self) -> str:
        """Address of a server that runs already; empty where there is none."""
        return self.parameters.get("url", "")

    @property
    def elsewhere(self) -> bool:
        """Whether the server that is measured runs on a device that is only named (`gpu`): nothing of it can
        be read from here."""
        return bool(self.url) and self.parameters["gpu"] not in HERE

    @property
    def identity(self) -> dict[str, str]:
        """The parts of the run's identifier but its number."""
        return {
            "experiment": self.experiment,
            "backend": self.backend.name,
            "model": self.checkpoint.name,
            "option": self.option,
            "gpu": self.place.gpu,
            "host": identity.host(),
        }

    def run_id(self, continues: bool = False) -> str:
        """The run's identifier: the next free number, unless `run` names one; FileExistsError if that is
        taken. A run that `continues` has that of the first attempt which has not ended, if there is one."""
        begun = store.begun(self.identity, self.folder) if continues else None
        number = self.parameters["run"] or begun or store.next_number(self.identity, self.folder)
        identifier = naming.run_id(**self.identity, n=number)
        if store.path(identifier, folder=self.folder).exists():
            raise FileExistsError(
                f"{identifier} has been measured already; leave `run` at 0 for the next number."
            )
        left = store.path(identifier, store.PARTIAL, self.folder)
        if left.exists() and not continues:
            raise FileExistsError(
                f"Levels of {identifier} are in {left}, of an attempt that did not end. Make a run of them, "
                f"{partial.command(left)}, or delete the file."
            )
        return identifier

    def load_arguments(self) -> tuple:
        """Arguments of the backend's `load`: the devices that share the model only where they are several."""
        parallel = self.devices.tensor_parallel
        several = [parallel] if parallel > 1 else []
        return (self.checkpoint, self.option, self.device, self.threads, *several)

    def several_gpus(self) -> dict[str, list[str]]:
        """{"gpus": names} of all GPUs that are used at once, where they are several; else empty."""
        here = self.device == "cuda" and self.devices.count > 1 and not self.url
        return {"gpus": gpu.gpus()[: self.devices.count]} if here else {}

    def longest(self) -> int:
        """Tokens of the longest request of a latency run, prompt and answer, that of the judge among them."""
        sets = PROMPT_SETS["latency"]
        longest = max(_longest_prompt(which, self.checkpoint) for which in sets)
        return max(longest + self.parameters["max_new_tokens"], judge.room(self.checkpoint))


def make(experiment: str, values: Fields, needs: str = "load") -> Target:
    """The Target of `experiment` with the parameters `values`; the model is brought into the backend's
    format.

    `needs` is the part of the backend contract that the experiment calls: `load`, `serve`, or
    `load or serve`, the first one first. ValueError, RuntimeError or TypeError with one sentence for whatever
    cannot be measured here.
    """
    backend, place = backends.get(values["backend"]), place_of(values)
    option = backend.option(values["option"], place.device)
    threads = threads_for(values["threads"])
    notebook.at_least(1, **{name: values[name] for name in LENGTHS if name in values})
    notebook.at_least(0, run=values["run"])
    if missing := backend.missing(place.device, option) or _other_environment(backend, place.device, option):
        raise RuntimeError(missing)
    part = _part(backend, needs)
    folder = notebook.folder(values["results"], store.RESULTS)
    files.can_write(folder / backend.name)
    several = Devices(*(_at_once(backend, values, part, kind) for kind in ("tensor", "data")))
    _enough(several, place, threads, values.get("url"))
    environment = set_threads(threads)
    values["model"] = _model(values, backend, option)
    checkpoint = backend.prepare(values["model"], option, place.device)
    for which in PROMPT_SETS.get(experiment, ()):
        _fits(which, checkpoint, values.get("max_new_tokens", 1))
    return Target(
        experiment, values, backend, part, place, option, threads, several, folder, environment, checkpoint
    )


def _model(values, backend, option):
    """The model that the parameters name; `auto` is the study's first, of a running server the one that it
    has: the row of that name, or `unknown-` and the name."""
    if values["model"] != AUTO:
        return values["model"]
    if not values.get("url"):
        return checkpoints.STAND_IN
    headers = notebook.headers(values.get("headers", ""))
    name = values["served_model"] or http.only_model(values["url"], headers)
    values["served_model"] = name
    rows = [row for row in inputs.table("models")["model"] if naming.same_model(row, name)]
    if rows:
        return rows[0]
    if option in ("completions", "llamacpp"):
        raise ValueError(
            f"The server's model is {name}, whose tokens nobody knows here: send text, -p option chat or "
            "text, or say which it is, -p model hub:<organisation>/<name>."
        )
    return checkpoints.UNKNOWN + naming.safe(http.shown(name)).lower()


def _other_environment(backend, device, option):
    """One sentence where `backend` is installed, but not for the Python that runs this; else None."""
    home = backend.prefix(device, option)
    if home == Path(sys.prefix) or not backend.module.available():
        return None
    where = home.relative_to(ROOT) if home.is_relative_to(ROOT) else home
    return f"{backend.name} has an environment of its own: run the notebook with {where}/bin/papermill."


def place_of(values: Fields) -> Place:
    """The Place that the parameters device, gpu and url name; `device gpu` means cuda.

    A server that runs already is where `gpu` says, for nobody can see that from here: ValueError where it
    does not say; for a url that is none as well.
    """
    device, slug, url = values["device"], values["gpu"], values.get("url") or ""
    url = endpoint.checked(url) if url else ""
    device = "cuda" if device == "gpu" else device
    if not url or slug in HERE:
        if url and urlsplit(url).hostname not in LOCAL:
            raise ValueError(
                "Say what the server runs on, as a slug: -p gpu h100. Nobody can see that from here."
            )
        return Place(*identity.device_of(device, slug))
    return Place("cpu" if device == "cpu" else "cuda", naming.safe(slug).lower())


def threads_for(threads: int | None) -> int:
    """Number of CPU threads for an engine, every physical core if 0; ValueError for more than there are."""
    if not 0 <= threads <= identity.cores():
        raise ValueError(
            f"threads must be between 1 and {identity.cores()} on this machine (0 means all), not {threads}."
        )
    return threads or identity.cores()


def set_threads(threads: int) -> Fields:
    """Give every OpenMP, MKL and OpenBLAS that is loaded from now on the same number of threads.

    Returns what was set. How threads wait is left at each engine's default: passive waiting survives a busy
    neighbour, but on an idle virtual machine it cost PyTorch a factor of 1.7 (a sleeping core is slow to
    wake); so the machine is kept idle instead, and a run records who else used it.
    """
    chosen = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    chosen |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    os.environ.update(chosen)
    waiting = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    return chosen | {name: os.environ.get(name, "default") for name in waiting}


def room(checkpoint: Checkpoint) -> float:
    """Tokens that the model's context has room for, prompt and answer; infinite where it does not say."""
    return checkpoint.config.get("max_position_embeddings") or math.inf


def encoded(which: str, checkpoint: Checkpoint) -> pd.Series:
    """Token ids of a prompt set, indexed by prompt number; ValueError where it has no prompt."""
    texts = inputs.prompts(which)
    if texts.empty:
        raise ValueError(f"The prompt set {which!r} of data/prompts.csv is empty: add a prompt to it.")
    ids = texts.map(checkpoint.encode)
    empty = [str(number) for number, tokens in ids.items() if not len(tokens)]
    if empty:
        raise ValueError(f"Prompt {', '.join(empty)} of the set {which!r} in data/prompts.csv has no token.")
    return ids


def _longest_prompt(which, checkpoint):
    return max(map(len, encoded(which, checkpoint)))


def _fits(which, checkpoint, new_tokens):
    """ValueError where the longest prompt of a set and its answer exceed the model's context."""
    prompt, most = _longest_prompt(which, checkpoint), room(checkpoint)
    if prompt + new_tokens > most:
        raise ValueError(
            f"max_new_tokens {new_tokens} and the longest prompt ({prompt} tokens) exceed the context of "
            f"{checkpoint.name}, {most} tokens: use -p max_new_tokens {max(1, most - prompt)} at most."
        )


def _part(backend, needs):
    """The first part of the contract in `needs` that `backend` has; ValueError naming who has one."""
    for part in needs.split(" or "):
        if backend.can(part):
            return part
    able = ", ".join(other.name for other in backends.usable() if other.can(needs))
    raise ValueError(
        f"The backend {backend.name} has no {needs}(), which this experiment needs. These have: {able}."
    )


def _at_once(backend, values, part, kind):
    """Devices that share the model (`tensor`), or its replicas (`data`).

    ValueError naming who can where the backend has no such thing.
    """
    count = values.get(f"{kind}_parallel", 1)
    notebook.at_least(1, **{f"{kind}_parallel": count})
    if count > 1 and kind not in backend.parallel(part):
        able = ", ".join(other.name for other in backends.usable() if kind in other.parallel(part))
        served = "server" in values and part == "load" and kind in backend.parallel("serve")
        raise ValueError(
            f"The backend {backend.name} has no {kind} parallelism {WAYS[part]}, so {kind}_parallel must be "
            f"1. These have: {able}." + (" Its own server has it: -p server True." if served else "")
        )
    return count


def _enough(several, place, threads, url):
    """ValueError where fewer devices are here than are to be used at once: GPUs, or threads of a CPU.

    Of a server elsewhere nobody knows.
    """
    if several.count == 1 or url:
        return
    found = len(gpu.gpus()) if place.device == "cuda" else threads
    if several.count > found:
        what = "GPUs, and CUDA may use" if place.device == "cuda" else "CPU threads, and there are"
        raise ValueError(
            f"tensor_parallel {several.tensor_parallel} x data_parallel {several.data_parallel} takes "
            f"{several.count} {what} {found} here."
        )
