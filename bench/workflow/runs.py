"""One planned run: what identifies it, what it needs, and what proves that it was measured."""

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from bench import backends, inputs, naming
from bench.machine import identity as identity_machine
from bench.observations import store
from bench.paths import ROOT

ENDED = "logs/ended"


@dataclass(frozen=True)
class Run:
    """One planned run: its identity, its number, and the parameters of its notebook."""

    experiment: str
    backend: str
    option: str
    model: str
    device: str
    gpu: str
    n: int
    parameters: tuple
    after: str = ""
    notebook: str = ""

    @property
    def id(self):
        """The run's path without its suffix."""
        identity = (self.experiment, self.backend, self.model, self.option, self.gpu, identity_machine.host())
        return naming.run_id(*identity, self.n)

    @property
    def csv(self):
        """Path of the CSV that proves that it was measured."""
        return store.path(self.id)

    @property
    def measured(self):
        """Whether its CSV exists. It was written whole, so nothing else is asked."""
        return self.csv.exists()

    @property
    def ended(self):
        """The empty file, relative to the repository, that says that its job has ended. It is all that
        Snakemake may delete."""
        return f"{ENDED}/{self.id}"

    @property
    def arguments(self):
        """The parameters of its notebook for `bench.workflow.run_notebook`, as one shell-safe string."""
        own = {name: getattr(self, name) for name in ("backend", "option", "model", "device", "gpu")}
        every = own | {"run": self.n} | dict(self.parameters)
        return " ".join(shlex.quote(f"{name}={value}") for name, value in every.items())

    @property
    def predecessor(self):
        """The run whose CSV this one reads, None if it reads none."""
        return (
            make(self.after, self.backend, self.option, self.model, self.device, self.gpu, self.n)
            if self.after
            else None
        )

    @property
    def needs(self):
        """Files that must exist before it can run: its engine's own environment, the end of the run that it
        comes after."""
        home = backends.prefix(backends.get(self.backend), self.device, self.option)
        environment = [] if home == Path(sys.prefix) else [os.path.relpath(home / "ready", ROOT)]
        before = self.predecessor
        return environment + ([before.ended] if before and not before.measured else [])

    @property
    def python(self):
        """The interpreter of the environment that the engine's option needs."""
        home = backends.prefix(backends.get(self.backend), self.device, self.option)
        return os.path.relpath(home / "bin" / "python", ROOT)


def make(name, *identity):
    """The Run of the experiment `name` of study.yaml; `identity`: backend, option, model, device, gpu, n."""
    entry = inputs.study()["experiments"][name]
    return Run(
        name,
        *identity,
        tuple(entry["parameters"].items()),
        entry.get("after", ""),
        entry.get("notebook", name),
    )
