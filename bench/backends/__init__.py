"""Engines, one file each. Listing this folder is the only registry there is.

A backend is a module with

    OPTIONS = {"float32": {…}, "int8": {…}}    # what can be chosen -> a dict of what the adapter needs to know; the first is the default.
                                          # "devices": ("cpu",) in that dict restricts the option to some of DEVICES,
                                          # "environment": "gptq" gives it another environment than ENVIRONMENT,
                                          # "batches": False says that it takes one prompt at a time,
                                          # "on_request": ("cpu",) that a study measures it there only if asked for by name: it is slow
                                          # there, or reads checkpoints of its own kind. Whatever else the adapter needs may stand there
    DEVICES = ("cuda", "cpu")
    ENVIRONMENT = "vllm"                  # only where the default environment won't do: environments/vllm.txt, installed in .venvs/vllm;
                                          # an environments/vllm-cuda.txt beside it, or alone, is for that device only
    version() -> str
    available() -> str | None             # None when it can run here, else the reason and the install command
    prepare(checkpoint, option, device) -> Path    # the engine's own model format, made once, in a process of its own; optional
    load(checkpoint, option, device, threads) -> Engine                 # engines that run in this process
    serve(checkpoint, option, device, wanted) -> context manager yielding a bench.backends.common.servers.Served    # engines that are servers; `wanted`
                                          # is a bench.backends.common.servers.Wanted. The server is stopped when the context ends, whatever happens
    PARALLEL = {"load": ("tensor",), "serve": ("tensor", "data")}       # only where it can use several devices at once, and by which part:
                                          # "tensor": devices share the model; then `load` takes a fifth, tensor_parallel=1;
                                          # "data": replicas of the model behind one address. Whatever is not named is refused
    ON_REQUEST = "…"                      # only where a study cannot measure it of its own accord: the sentence that says how it is done

and an Engine is any object with

    generate(prompts, max_new_tokens, on_token)
        Greedy, exactly `max_new_tokens` for each prompt (lists of token ids), `checkpoint.end_token_ids` suppressed.
        Calls `on_token(request, token_id)` as each token becomes available to a caller. With `on_token=None` it runs the
        engine's own loop without callbacks: what measuring costs is the difference. Returns one list of token ids per prompt.
    weight_bytes        bytes of weights that one decode step reads (embedding rows that are only looked up are not read)
    kv_value_bytes      bytes of one number in the KV cache
    streams             False if the engine cannot tell when a token is there; then its TTFT is empty, never invented; may be left out
    settings            dict of what the engine was told (threads, spinning, caches): goes into the sidecar
    close()

and, where the engine has it,

    arithmetic          number format in which it multiplies matrices: "float32" unless said otherwise, "bfloat16", "float16", "int8"
    speculation         dict of drafted_tokens and accepted_tokens of the last `generate`, where tokens are drafted and checked
    reserve(requests, tokens)    called before a batch is timed: room for so many requests of so many tokens each, prompt and answer
    log_probabilities(ids)       natural logarithms of the probabilities of ids[1:], each given all ids before it

The docstring of the module says what the engine is, how it is installed, its licence and where its documentation is.
It is shown on backends.qmd as it stands. No adapter imports a clock: the time is taken in `bench/instrument/in_process.py`.
"""

import importlib
import os
import pkgutil
import sys
from pathlib import Path

from bench import naming, processes
from bench.backends.common import checkpoints
from bench.paths import ROOT

# Adapters kept elsewhere (the tests' fake engine, somebody's private engine) join by naming their folder here.
__path__ += [p for p in os.environ.get("BENCH_BACKENDS", "").split(os.pathsep) if p]


def names():
    """Names of all backends, sorted: the modules of this folder."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not (m.ispkg or m.name.startswith("_")))


def get(name):
    """The module of backend `name`; ValueError naming the known ones if there is none."""
    return importlib.import_module(f"{__name__}.{naming.choose('backend', name, names())}")


def options(backend, device):
    """Names of the options that `backend` offers on `device`, the default first."""
    return [
        name for name, about in backend.OPTIONS.items() if device in about.get("devices", backend.DEVICES)
    ]


def option(backend, wanted, device):
    """The name of one of `backend`'s options on `device`, the first one if `wanted` is empty; ValueError naming the known ones."""
    known = options(backend, device)
    if not known:
        raise ValueError(_elsewhere(backend, device))
    return naming.choose(f"option of {_short(backend)} on {device}", wanted or known[0], known)


def arithmetic(engine):
    """Number format in which `engine` multiplies matrices: what its rate is compared with. float32 unless the engine says otherwise."""
    return getattr(engine, "arithmetic", "float32")


def batches(backend, option):
    """Whether `backend` takes several prompts at a time with `option`."""
    return backend.OPTIONS[option].get("batches", True)


def environment(backend, device="cpu", option=None):
    """Name of the file in environments/ that installs `backend` (where `option` needs another one, that) for `device`, or None for the
    default environment."""
    name = backend.OPTIONS.get(option, {}).get("environment", getattr(backend, "ENVIRONMENT", None))
    special = ROOT / "environments" / f"{name or _short(backend)}-{device}.txt"
    return special.stem if special.exists() else name


def prefix(backend, device="cpu", option=None):
    """Path of the virtual environment in which `backend` runs `option`."""
    name = environment(backend, device, option)
    return ROOT / ".venvs" / name if name else Path(sys.prefix)


def _short(backend):
    return backend.__name__.rsplit(".", 1)[-1]


def _elsewhere(backend, device):
    return f"{_short(backend)} runs on {' and '.join(backend.DEVICES)}, not on {device}."


def missing(name, device="cpu", option=None):
    """None if backend `name` can run `option` (its own environment's options if None) here on `device`, else one sentence: why not, and how
    to install it."""
    backend = get(name)
    if device not in backend.DEVICES:
        return _elsewhere(backend, device)
    home = prefix(backend, device, option)
    if home == Path(sys.prefix):
        return backend.available()
    if (home / "ready").exists():
        return None
    what = name if home == prefix(backend, device) else f"{name}/{option}"
    return f"{what} is not installed. Install and measure it with: make study ENGINES={what}"


def on_request(backend, device, option):
    """Whether a study measures `option` on `device` only if it is asked for by name: too slow there to keep everybody waiting."""
    return device in backend.OPTIONS[option].get("on_request", ())


def can(name, needs):
    """Whether backend `name` has the part of the contract that an experiment needs: `load`, `serve`, or one of them (`load or serve`)."""
    return any(hasattr(get(name), part) for part in needs.split(" or "))


def parallel(name, part):
    """How `part` of backend `name` (`load`, `serve`) can use several devices at once: `tensor`, `data`, both or none."""
    return getattr(get(name), "PARALLEL", {}).get(part, ())


def ready(name, device):
    """Options of backend `name` that a study measures here on `device` as things are installed, the default first."""
    backend = get(name)
    if hasattr(backend, "ON_REQUEST"):
        return []
    return [
        option
        for option in options(backend, device)
        if not on_request(backend, device, option) and missing(name, device, option) is None
    ]


def absent(name, device):
    """Why a study leaves out backend `name` or some of its options on `device`, one sentence each: none if it measures all of it."""
    backend = get(name)
    if hasattr(backend, "ON_REQUEST"):
        return [backend.ON_REQUEST]
    reasons = [missing(name, device, option) for option in (None, *options(backend, device))]
    asked = [f"{name}/{o}" for o in options(backend, device) if on_request(backend, device, o)]
    if asked and not reasons[0]:
        reasons.append(
            f'{" and ".join(asked)}: slow on {device} or in need of a checkpoint of their own, measured when asked for with: make study ENGINES="{" ".join(asked)}"'
        )
    return [reason for reason in dict.fromkeys(reasons) if reason]


def _prepare(backend, name, option, device):
    get(backend).prepare(checkpoints.checkpoint(name), option, device)


def prepare(backend, name, option, device):
    """Make the checkpoint `name` and the format `backend` wants of it, in a process of its own; returns the Checkpoint."""
    model = checkpoints.checkpoint(name)
    if hasattr(get(backend), "prepare"):
        processes.in_child(_prepare, backend, name, option, device)
    return model
