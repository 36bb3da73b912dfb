"""Engines, one file each: `bench/backends/<name>.py` is the backend `<name>`, and there is no other
registry.

To add an engine, write such a file, then run `make check-backend NAME=<name>`: it says within a minute what
is missing or wrong. Nothing else has to be changed.

**The module.** Its docstring says what the engine is, how it is installed, its licence and where its
documentation is; backends.qmd shows it as it stands. It has

    OPTIONS = {"float32": {...}, "int8": {...}}
        What can be chosen, the default first. Each option has a dict in which the adapter may keep whatever
        it needs; these keys mean something to others:
        "devices": ("cpu",)        the option exists on these of DEVICES only
        "environment": "gptq"      it needs another environment than ENVIRONMENT
        "batches": False           it takes one prompt at a time, and `generate` raises a ValueError for more
        "on_request": ("cpu",)     a study measures it on these devices only if its name is in ENGINES,
                                   because it is slow there or reads checkpoints of its own kind
    DEVICES = ("cuda", "cpu")
    version()                      a string
    available()                    None if the engine can run here, else one sentence: why not, and how to
                                   install it
    load(checkpoint, option, device, threads)
        for engines that run in this process: returns an Engine (below)
    serve(checkpoint, option, device, request)
        for engines that are servers: a context manager that starts one, yields a `Served` and stops it,
        whatever happens. `request` says how much room is needed and where to log: both classes are in
        `bench/backends/common/servers.py`

and, where they are needed,

    ENVIRONMENT = "vllm"           the engine has an environment of its own: environments/vllm.txt,
                                   installed in .venvs/vllm; environments/vllm-cuda.txt beside it, or alone,
                                   is for that device only
    prepare(checkpoint, option, device)
        makes the engine's own format of the model and returns its path. It runs in a process of its own,
        once for each version of the engine: `checkpoints.conversion` names the path, `bench.files.made`
        makes it whole or not at all
    PARALLEL = {"load": ("tensor",), "serve": ("tensor", "data")}
        how `load` and `serve` can use several devices at once. "tensor": devices share the model, and
        `load` takes a fifth argument, tensor_parallel=1; "data": replicas of the model behind one address.
        Anything else is refused
    ON_REQUEST = "..."             a study never measures this engine by itself: one sentence that says how
                                   it is done

**The engine** that `load` returns is any object with

    generate(prompts, max_new_tokens, on_token)
        Greedy decoding of exactly `max_new_tokens` for each prompt (a list of token ids), with the tokens
        of `checkpoint.end_token_ids` suppressed; returns one list of token ids per prompt. Calls
        `on_token(request, token_id)`, `request` being the prompt's index, as each token becomes available
        to a caller. With `on_token=None` it runs the engine's own loop without callbacks: the difference is
        what measuring costs.
    weight_bytes                   bytes of weights that one decode step reads
    kv_value_bytes                 bytes of one number in the KV cache
    settings                       dict for the sidecar: what the engine runs with (threads, spinning,
                                   caches)
    close()                        frees memory and ends threads and processes

and, where the engine has it,

    streams = False                the engine cannot tell when a token is there: its TTFT stays empty, it is
                                   never invented
    arithmetic                     number format in which it multiplies matrices: "float32" (if there is no
                                   such attribute), "bfloat16", "float16", "int8", "fp8"
    speculation                    dict of drafted_tokens and accepted_tokens of the last `generate`, if
                                   tokens are drafted
    reserve(requests, tokens)      called before a batch is timed: room for `requests` of `tokens` each,
                                   prompt and answer
    log_probabilities(ids)         natural logarithms of the probabilities of ids[1:], each after all ids
                                   before it

`check_contract` refuses an engine that lacks a part, before any request. No adapter imports a clock: the
times are taken in `bench/instrument/in_process.py`, in the callback.

**The checkpoint** that `load`, `serve` and `prepare` get (`bench/backends/common/checkpoints.py`) offers

    name, path, weights            `path` is a folder in the Hugging Face layout; `weights` is "real" or
                                   "synthetic"
    config                         config.json as a dict
    tokenizer                      its fast tokenizer (`tokenizers.Tokenizer`); encode(text) and decode(ids)
                                   use it
    end_token_ids                  sorted ids that end a sequence, all to be suppressed
    gguf                           the GGUF file that the checkpoint came from, or None
    kv_values_per_token            numbers that one token adds to the KV cache

**Counting weight_bytes.** Embedding rows that are only looked up are not read; a head that is tied to them
is, once.

    checkpoints.linear_bytes(checkpoint, 2)    every matrix at so many bytes per number: an estimate without
                                               block scales, for engines that do not show their tensors
    gguf_files.step_bytes(path)                what a GGUF file holds; `per_value` if the engine unpacks its
                                               matrices
    torch_models.step_bytes(model)             the tensors of a PyTorch model, with bitsandbytes' and GPTQ's
                                               scales
"""

import importlib
import os
import pkgutil
import sys
from pathlib import Path

from bench import naming, processes
from bench.backends.common import checkpoints, contract
from bench.paths import ROOT

CONTRACT = "What an adapter must have stands at the top of bench/backends/__init__.py."

# Adapters kept elsewhere (the tests' fake engine, somebody's private engine) join by naming their folder
# here.
__path__ += [p for p in os.environ.get("BENCH_BACKENDS", "").split(os.pathsep) if p]


def names():
    """Names of all backends, sorted: the modules of this folder."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not (m.ispkg or m.name.startswith("_")))


def get(name):
    """The module of backend `name`.

    ValueError naming the known ones if there is none; saying so if the name is one of this package's own
    functions, which the import would replace; and naming what is wrong with a file that cannot be imported or
    lacks a part without which nothing can be asked of it.
    """
    if name in _OWN_NAMES:
        raise ValueError(f"{name} is a name of bench.backends itself: call the engine's file otherwise.")
    found = naming.choose("backend", name, names())
    try:
        module = importlib.import_module(f"{__name__}.{found}")
    except Exception as failure:
        why = f"{type(failure).__name__}: {failure}"
        raise ValueError(f"The adapter {found} cannot be imported: {why}") from failure
    if faults := contract.unusable(module):
        raise ValueError(f"The adapter {found} breaks the contract. {' '.join(faults)} {CONTRACT}")
    return module


def broken(name):
    """Why `get` gives no module for the backend `name`, or None."""
    try:
        get(name)
    except ValueError as error:
        return str(error)
    return None


def usable():
    """Names of the backends that `get` gives a module for, sorted: a broken file stops none of the others."""
    return [name for name in names() if not broken(name)]


def options(backend, device):
    """Names of the options that `backend` offers on `device`, the default first."""
    return [
        name for name, details in backend.OPTIONS.items() if device in details.get("devices", backend.DEVICES)
    ]


def option(backend, name, device):
    """`name`, if that is one of `backend`'s options on `device`; the first one if it is empty.

    ValueError naming the known ones.
    """
    known = options(backend, device)
    if not known:
        raise ValueError(_elsewhere(backend, device))
    return naming.choose(f"option of {_short(backend)} on {device}", name or known[0], known)


def arithmetic(engine):
    """Number format in which `engine` multiplies matrices, float32 unless it says otherwise; its MFU refers
    to it."""
    return getattr(engine, "arithmetic", "float32")


def check_contract(engine):
    """TypeError naming everything that `engine` lacks of the contract above; returns the engine. Costs no
    request."""
    faults = contract.engine_faults(engine)
    if faults:
        raise TypeError(f"{' '.join(faults)} {CONTRACT}")
    return engine


def batches(backend, option):
    """Whether `backend` takes several prompts at a time with `option`."""
    return backend.OPTIONS[option].get("batches", True)


def environment(backend, device="cpu", option=None):
    """Name of the file in environments/ that installs `backend` (where `option` needs another one, that) for
    `device`, or None for the default environment."""
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
    """None if backend `name` can run `option` (its own environment's options if None) here on `device`, else
    one sentence: why not, and how to install it."""
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
    """Whether a study measures `option` on `device` only if ENGINES names it: too slow there to keep
    everybody waiting."""
    return device in backend.OPTIONS[option].get("on_request", ())


def can(name, needs):
    """Whether backend `name` has the part of the contract that an experiment needs: `load`, `serve`, or one
    of them (`load or serve`)."""
    return any(hasattr(get(name), part) for part in needs.split(" or "))


def parallel(name, part):
    """How `part` of backend `name` (`load`, `serve`) can use several devices at once: `tensor`, `data`, both
    or none."""
    return getattr(get(name), "PARALLEL", {}).get(part, ())


def ready(name, device):
    """Options of backend `name` that a study measures here on `device` as things are installed, the default
    first."""
    if broken(name):
        return []
    backend = get(name)
    if hasattr(backend, "ON_REQUEST"):
        return []
    return [
        option
        for option in options(backend, device)
        if not on_request(backend, device, option) and missing(name, device, option) is None
    ]


def absent(name, device):
    """Why a study leaves out backend `name` or some of its options on `device`, one sentence each: none if it
    measures all of it."""
    if why := broken(name):
        return [why]
    backend = get(name)
    if hasattr(backend, "ON_REQUEST"):
        return [backend.ON_REQUEST]
    reasons = [missing(name, device, option) for option in (None, *options(backend, device))]
    by_name = [f"{name}/{o}" for o in options(backend, device) if on_request(backend, device, o)]
    if by_name and not reasons[0]:
        reasons.append(
            f"{' and '.join(by_name)}: slow on {device} or in need of a checkpoint of their own, measured by "
            f'name only. Measure them with: make study ENGINES="{" ".join(by_name)}"'
        )
    return [reason for reason in dict.fromkeys(reasons) if reason]


def _prepare(backend, name, option, device):
    get(backend).prepare(checkpoints.checkpoint(name), option, device)


def prepare(backend, name, option, device):
    """Make the checkpoint `name` and `backend`'s own format of it, in a process of its own; returns the
    Checkpoint."""
    model = checkpoints.checkpoint(name)
    if hasattr(get(backend), "prepare"):
        processes.in_child(_prepare, backend, name, option, device)
    return model


_OWN_NAMES = frozenset(globals())
