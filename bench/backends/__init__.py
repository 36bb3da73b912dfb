"""Engines, one file each: `bench/backends/<name>.py` is the backend `<name>`, and there is no other
registry.

To add an engine, write such a file, then run `make check-backend NAME=<name>`: it says within a minute what
is missing or wrong. Nothing else has to be changed. What the file must have is stated as types in
`bench/backends/common/contract.py`.

    backend = backends.get("vllm")      # one Backend per engine, whatever its adapter has
    backend.options("cpu")
"""

import contextlib
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import processes
from bench.backends.common import checkpoints, contract, servers
from bench.paths import ROOT
from llm_measured.core import naming

# Adapters kept elsewhere (the tests' fake engine, somebody's private engine) join by naming their folder
# here.
__path__ += [p for p in os.environ.get("BENCH_BACKENDS", "").split(os.pathsep) if p]


@dataclass(frozen=True)
class Backend:
    """One engine, over its adapter `module`.

    `device` is `cpu` or `cuda`, `option` one of the adapter's OPTIONS, `model` the name of a checkpoint.
    """

    name: str
    module: Any  # a module that is a `contract.Adapter`, and an `InProcess`, an `IsServer` or both

    @property
    def devices(self) -> tuple[str, ...]:
        """Kinds of devices that it runs on."""
        return self.module.DEVICES

    @property
    def on_request(self) -> str:
        """How it is measured, where a study never does so by itself; empty for all others."""
        return getattr(self.module, "ON_REQUEST", "")

    @property
    def not_judged(self) -> str:
        """Why its tokens are not compared with the model's; empty where they are."""
        return getattr(self.module, "NOT_JUDGED", "")

    @property
    def prefix_cache(self) -> bool:
        """Whether its server can be started with a prefix cache of a stated size."""
        return getattr(self.module, "PREFIX_CACHE", False)

    def version(self) -> str:
        """The engine's version as it states it."""
        return self.module.version()

    def options(self, device: str) -> list[str]:
        """Names of the options on `device`, the default first."""
        every = self.module.OPTIONS.items()
        return [name for name, about in every if device in about.get("devices", self.devices)]

    def option(self, name: str, device: str) -> str:
        """`name`, if that is an option on `device`; the first one if it is empty. ValueError naming the known
        ones."""
        known = self.options(device)
        if not known:
            raise ValueError(self._not_on(device))
        return naming.choose(f"option of {self.name} on {device}", name or known[0], known)

    def _not_on(self, device: str) -> str:
        return f"{self.name} runs on {' and '.join(self.devices)}, not on {device}."

    def batches(self, option: str) -> bool:
        """Whether it takes several prompts at a time with `option`."""
        return self.module.OPTIONS[option].get("batches", True)

    def drafts(self, option: str) -> bool:
        """Whether `option` drafts tokens that the model then checks."""
        return "draft_tokens" in self.module.OPTIONS[option]

    def by_name_only(self, option: str, device: str) -> bool:
        """Whether a study measures `option` on `device` only if ENGINES names it: too slow there to keep
        everybody waiting."""
        return device in self.module.OPTIONS[option].get("on_request", ())

    def environment(self, device: str = "cpu", option: str | None = None) -> str | None:
        """Name of the file in environments/ that installs it (where `option` needs another one, that) for
        `device`, or None for the default environment."""
        about = self.module.OPTIONS.get(option or "", {})
        name = about.get("environment", getattr(self.module, "ENVIRONMENT", None))
        special = ROOT / "environments" / f"{name or self.name}-{device}.txt"
        return special.stem if special.exists() else name

    def prefix(self, device: str = "cpu", option: str | None = None) -> Path:
        """Path of the virtual environment in which it runs `option`."""
        name = self.environment(device, option)
        return ROOT / ".venvs" / name if name else Path(sys.prefix)

    def missing(self, device: str = "cpu", option: str | None = None) -> str | None:
        """None if it can run `option` (its own environment's options if None) here on `device`, else one
        sentence: why not, and how to install it."""
        if device not in self.devices:
            return self._not_on(device)
        home = self.prefix(device, option)
        if home == Path(sys.prefix):
            return self.module.available()
        if (home / "ready").exists():
            return None
        what = self.name if home == self.prefix(device) else f"{self.name}/{option}"
        return f"{what} is not installed. Install and measure it with: make study ENGINES={what}"

    def ready(self, device: str) -> list[str]:
        """Options that a study measures here on `device` as things are installed, the default first."""
        if self.on_request:
            return []
        return [
            option
            for option in self.options(device)
            if not self.by_name_only(option, device) and self.missing(device, option) is None
        ]

    def absent(self, device: str) -> list[str]:
        """Why a study leaves it out on `device`, or some of its options, one sentence each: none if it
        measures all of it."""
        if self.on_request:
            return [self.on_request]
        reasons = [self.missing(device, option) for option in (None, *self.options(device))]
        by_name = [f"{self.name}/{o}" for o in self.options(device) if self.by_name_only(o, device)]
        if by_name and not reasons[0]:
            reasons.append(
                f"{' and '.join(by_name)}: slow on {device} or in need of a checkpoint of their own, "
                f'measured by name only. Measure them with: make study ENGINES="{" ".join(by_name)}"'
            )
        return [reason for reason in dict.fromkeys(reasons) if reason]

    def can(self, needs: str) -> bool:
        """Whether it has the part of the contract that an experiment needs: `load`, `serve`, one of them
        (`load or serve`), or a method of its engine (`keep_prefix`)."""
        places = self.module, getattr(self.module, "Engine", None)
        return any(hasattr(place, part) for part in needs.split(" or ") for place in places)

    def parallel(self, part: str) -> tuple[str, ...]:
        """How `part` (`load`, `serve`) can use several devices at once: `tensor`, `data`, both or none."""
        return getattr(self.module, "PARALLEL", {}).get(part, ())

    def scores(self) -> bool:
        """Whether its engine may give log-probabilities; nobody knows before it is loaded where the adapter
        has no class `Engine`."""
        return self._may(contract.Scores.log_probabilities)

    def answers(self) -> bool:
        """Whether its engine may end an answer by itself; likewise."""
        return self._may(contract.Answers.answer)

    def _may(self, part: Callable) -> bool:
        kind = getattr(self.module, "Engine", None)
        return kind is None or hasattr(kind, part.__name__)

    def prepare(self, model: str, option: str, device: str) -> checkpoints.Checkpoint:
        """Make the checkpoint `model` and the engine's own format of it, in a process of its own; returns the
        Checkpoint."""
        made = checkpoints.checkpoint(model)
        if hasattr(self.module, "prepare"):
            processes.in_child(_prepare, self.name, model, option, device)
        return made

    def load(
        self,
        checkpoint: checkpoints.Checkpoint,
        option: str,
        device: str,
        threads: int,
        tensor_parallel: int = 1,
    ) -> contract.Engine:
        """The engine in this process; the devices that share the model are named only where they are
        several."""
        several = [tensor_parallel] if tensor_parallel > 1 else []
        return self.module.load(checkpoint, option, device, threads, *several)

    @contextlib.contextmanager
    def serve(
        self, checkpoint: checkpoints.Checkpoint, option: str, device: str, request: servers.ServerSpec
    ) -> Iterator[servers.RunningServer]:
        """The engine's server for as long as the block lasts."""
        stated = self.module.serve(checkpoint, option, device, request)
        with servers.running(stated, checkpoint, request) as served:
            yield served


def _prepare(name: str, model: str, option: str, device: str) -> None:
    get(name).module.prepare(checkpoints.checkpoint(model), option, device)


def arithmetic(engine: object) -> str:
    """Number format in which `engine` multiplies matrices; its MFU refers to it."""
    return getattr(engine, "arithmetic", contract.Engine.arithmetic)


def names() -> list[str]:
    """Names of all backends, sorted: the modules of this folder."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not (m.ispkg or m.name.startswith("_")))


def get(name: str) -> Backend:
    """The backend `name`.

    ValueError naming the known ones if there is none; saying so if the name is one of this package's own
    functions, which the import would replace; and naming what is wrong with a file that cannot be imported or
    lacks a part without which it cannot be used.
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
        raise ValueError(f"The adapter {found} breaks the contract. {' '.join(faults)} {contract.WHERE}")
    return Backend(found, module)


def usable() -> list[Backend]:
    """The backends that `get` gives, by name: a broken file stops none of the others."""
    found = []
    for name in names():
        with contextlib.suppress(ValueError):
            found.append(get(name))
    return found


def broken() -> dict[str, str]:
    """{name: why `get` does not give it} of all other backends."""
    found = {}
    for name in names():
        try:
            get(name)
        except ValueError as error:
            found[name] = str(error)
    return found


_OWN_NAMES = frozenset(globals())


def heads() -> list[dict[str, str]]:
    """Return what each adapter says of its engine: engine, about (first sentence of its head), devices,
    options and measured_by (a command, or how to ask for it); of one that does not load, its error."""
    found = []
    for name in names():
        try:
            engine = get(name)
            options = ", ".join(engine.module.OPTIONS)
        except Exception as error:  # whatever a contributed adapter does wrong, the other engines stay listed
            found.append({"engine": name, "about": f"does not load: {type(error).__name__}: {error}"})
            continue
        plain = re.sub(r"[*`]|\s*<http\S+>", "", engine.module.__doc__ or "")
        about = re.split(r"(?<=[.!?])\s", plain.strip())[0].replace("\n", " ")
        device = "" if "cpu" in engine.devices else "DEVICE=cuda "
        command = engine.on_request or f"make study {device}ENGINES={name}"
        devices = ", ".join(engine.devices)
        found.append(
            {"engine": name, "about": about, "devices": devices, "options": options, "measured_by": command}
        )
    return found
