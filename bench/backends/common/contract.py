"""What can be checked of an adapter without measuring anything: the module's parts, the engine's parts, its
imports."""

import ast
import inspect
import json
import math
from pathlib import Path

from bench.paths import ROOT

DOCUMENTED = "Install", "Documentation", "Licence"
PARAMETERS = {
    "version": (),
    "available": (),
    "prepare": ("checkpoint", "option", "device"),
    "load": ("checkpoint", "option", "device", "threads"),
    "serve": ("checkpoint", "option", "device", "request"),
}
ARITHMETIC = "float32", "bfloat16", "float16", "int8", "fp8"
CLOCKS = {"time", "timeit", "datetime", "perf_counter", "monotonic", "in_process"}


def engine_faults(engine):
    """One sentence for each part of the contract that `engine` lacks, or has in another shape; none if it
    keeps it."""
    faults = [
        *_callable(engine, "generate", 3, "prompts, max_new_tokens, on_token"),
        *_number(engine, "weight_bytes", "bytes of weights that one decode step reads", 0),
        *_number(engine, "kv_value_bytes", "bytes of one number in the KV cache", 0),
        *_settings(engine),
        *_callable(engine, "close", 0, ""),
    ]
    if hasattr(engine, "reserve"):
        faults += _callable(engine, "reserve", 2, "requests, tokens")
    if hasattr(engine, "log_probabilities"):
        faults += _callable(engine, "log_probabilities", 1, "ids")
    if getattr(engine, "arithmetic", "float32") not in ARITHMETIC:
        faults.append(f"Its arithmetic is {engine.arithmetic!r}, which is none of {', '.join(ARITHMETIC)}.")
    if not isinstance(getattr(engine, "streams", True), bool):
        faults.append("Its attribute streams is neither True nor False.")
    return faults


def _callable(engine, name, arguments, shown):
    method = getattr(engine, name, None)
    if not callable(method):
        return [f"The engine has no method {name}({shown})."]
    try:
        inspect.signature(method).bind(*[None] * arguments)
    except TypeError:
        return [f"The engine's {name} does not take the arguments ({shown})."]
    except ValueError:
        pass  # a method in C that shows no signature
    return []


def _number(engine, name, meaning, least):
    value = getattr(engine, name, None)
    try:
        good = not isinstance(value, bool) and math.isfinite(value) and value >= least
    except TypeError:
        good = False
    if good:
        return []
    found = f"Its {name} is {value!r}" if hasattr(engine, name) else f"The engine has no attribute {name}"
    return [f"{found}; it must be a number: {meaning}."]


def _settings(engine):
    if not isinstance(getattr(engine, "settings", None), dict):
        return ["The engine has no dict settings (threads, caches, …: what the sidecar keeps of it)."]
    try:
        json.dumps(engine.settings)
    except (TypeError, ValueError) as error:
        return [f"Its settings cannot be written as JSON: {error}."]
    return []


def module_faults(module):
    """One sentence for each part of the contract that the adapter `module` lacks, or has in another shape."""
    shape = _options(module)
    rest = [] if shape else _environments(module)
    return [*_documentation(module), *shape, *_functions(module), *rest]


def _documentation(module):
    lacking = [word for word in DOCUMENTED if word not in (module.__doc__ or "")]
    return [f"The module's docstring does not say: {', '.join(lacking)}."] if lacking else []


def _options(module):
    options, devices = getattr(module, "OPTIONS", None), getattr(module, "DEVICES", ())
    faults = []
    if not isinstance(options, dict) or not options or not all(isinstance(o, dict) for o in options.values()):
        faults.append("OPTIONS must be a dict from each option's name to a dict, with the default first.")
    elif stray := {d for o in options.values() for d in o.get("devices", devices)} - set(devices):
        faults.append(f"OPTIONS name devices that DEVICES lacks: {', '.join(sorted(stray))}.")
    if not devices or isinstance(devices, str) or not set(devices) <= {"cpu", "cuda"}:
        faults.append('DEVICES must be a tuple of "cpu", "cuda" or both.')
    return faults


def _lacking(module):
    faults = [
        f"The module has no function {n}()." for n in ("version", "available") if not hasattr(module, n)
    ]
    if not hasattr(module, "load") and not hasattr(module, "serve"):
        faults.append(
            "The module has neither load(...), for an engine in this process, nor serve(...), for a server."
        )
    return faults


def unusable(module):
    """One sentence for each part without which nothing can be asked of the adapter `module`."""
    return [*_options(module), *_lacking(module)]


def _functions(module):
    faults = _lacking(module)
    shared = "tensor" in getattr(module, "PARALLEL", {}).get("load", ())
    for name, expected in PARAMETERS.items():
        if hasattr(module, name):
            expected += ("tensor_parallel",) if shared and name == "load" else ()
            count = len(inspect.signature(getattr(module, name)).parameters)
            if count != len(expected):
                faults.append(f"{name} takes {count} arguments, not ({', '.join(expected)}).")
    return faults


def _environments(module):
    options = getattr(module, "OPTIONS", {})
    named = {getattr(module, "ENVIRONMENT", None), *(o.get("environment") for o in options.values())} - {None}
    absent = [name for name in sorted(named) if not any((ROOT / "environments").glob(f"{name}*.txt"))]
    return [f"There is no environments/{name}.txt, which the module names." for name in absent]


def clocks(module):
    """Names of the clocks that the file of `module` imports, sorted: there must be none."""
    imported = set()
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.Import):
            imported |= {part for alias in node.names for part in alias.name.split(".")}
        if isinstance(node, ast.ImportFrom):
            imported |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    return sorted(imported & CLOCKS)
