"""One planned run: what identifies it, what it needs, and what proves that it was measured."""

import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench import backends, inputs
from bench.machine import identity as identity_machine
from bench.observations import provenance, store
from bench.paths import ROOT
from llm_measured.core import naming

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
    # Where it stands in the order of its study (`bench.workflow.plan`): no part of what it is.
    seed: int = field(default=0, compare=False)
    round: int = field(default=0, compare=False)
    place: int = field(default=0, compare=False)

    @property
    def id(self) -> str:
        """The run's path without its suffix."""
        identity = (self.experiment, self.backend, self.model, self.option, self.gpu, identity_machine.host())
        return naming.run_id(*identity, self.n)

    @property
    def configuration(self) -> str:
        """What is repeated: the run's path without its number."""
        return naming.split_number(self.id)[0]

    @property
    def order(self) -> str:
        """Where it stands in the order of its study, as `provenance.order` reads it, shell-safe."""
        return f"{provenance.ORDER}=seed={self.seed},round={self.round},place={self.place}"

    @property
    def csv(self) -> Path:
        """Path of the CSV that proves that it was measured."""
        return store.path(self.id)

    @property
    def measured(self) -> bool:
        """Whether its CSV exists. It was written whole, so nothing else is checked."""
        return self.csv.exists()

    @property
    def shared_csv(self) -> Path:
        """Path of the CSV where it was measured beside others, which is marked and enters no comparison."""
        return store.path(self.id, folder=store.shared_folder())

    @property
    def written(self) -> Path | None:
        """The CSV of the run alone on its machine, else that beside others; None where there is neither."""
        return next((file for file in (self.csv, self.shared_csv) if file.exists()), None)

    @property
    def marked(self) -> bool:
        """Whether it was measured, but only beside others."""
        return not self.measured and self.shared_csv.exists()

    @property
    def ended(self) -> str:
        """The empty file, relative to the repository, that says that its job has ended. It is all that
        Snakemake may delete."""
        return f"{ENDED}/{self.id}"

    @property
    def arguments(self) -> str:
        """The parameters of its notebook for `bench.workflow.run_notebook`, as one shell-safe string."""
        own = {name: getattr(self, name) for name in ("backend", "option", "model", "device", "gpu")}
        every = own | {"run": self.n} | dict(self.parameters)
        return " ".join(shlex.quote(f"{name}={value}") for name, value in every.items())

    @property
    def predecessor(self) -> "Run | None":
        """The run whose CSV this one reads, None if it reads none."""
        if not self.after:
            return None
        return make(self.after, self.backend, self.option, self.model, self.device, self.gpu, self.n)

    @property
    def needs(self) -> list[str]:
        """Files that must exist before it can run: its engine's own environment, the end of the run that it
        comes after."""
        home = backends.get(self.backend).prefix(self.device, self.option)
        environment = [] if home == Path(sys.prefix) else [os.path.relpath(home / "ready", ROOT)]
        before = self.predecessor
        return environment + ([before.ended] if before and not before.measured else [])

    @property
    def command(self) -> str:
        """What measures it, as one shell-safe string: its notebook."""
        words = f"{self.python} -m bench.workflow.run_notebook notebooks/{self.notebook}.ipynb"
        return f"{words} {self.id} {self.arguments}"

    @property
    def python(self) -> str:
        """The interpreter of the environment that the engine's option needs."""
        home = backends.get(self.backend).prefix(self.device, self.option)
        return os.path.relpath(home / "bin" / "python", ROOT)


def make(name: str, backend: str, option: str, model: str, device: str, gpu: str, n: int) -> Run:
    """The Run of the experiment `name` of study.yaml."""
    entry = inputs.study()["experiments"][name]
    parameters, notebook = tuple(entry["parameters"].items()), entry.get("notebook", name)
    return Run(name, backend, option, model, device, gpu, n, parameters, entry.get("after", ""), notebook)
