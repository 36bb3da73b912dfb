"""The plan that the Snakefile carries out, and the report at the end.

python -m bench.workflow.plan [repeats=3 …]     the result table, what failed and why, and where the page is
"""

import itertools
import json
import os
import shlex
import sys
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from time import sleep

from tqdm import tqdm

from bench import backends, inputs, naming, paths
from bench.machine import devices, identity
from bench.observations import store
from bench.paths import RESULTS, ROOT, SITE
from bench.report import html
from bench.report.tables import latency as latency_tables
from bench.workflow import run_notebook

# The words of study.yaml for the options of an engine that an experiment measures.
WHICH = {
    "all": list,
    "first": lambda offered: offered[:1],
    "last": lambda offered: offered[-1:],
    "none": lambda offered: [],
}


@dataclass(frozen=True)
class Run:
    """One planned run: its identity, its number, and what its notebook is told."""

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
        return naming.run_id(
            self.experiment, self.backend, self.model, self.option, self.gpu, identity.host(), self.n
        )

    @property
    def csv(self):
        """The CSV that proves that it was measured, relative to the repository where it lies inside."""
        return os.path.relpath(store.path(self.id), ROOT)

    @property
    def arguments(self):
        """What `bench.workflow.run_notebook` is told, as one shell-safe string."""
        given = {
            "backend": self.backend,
            "option": self.option,
            "model": self.model,
            "device": self.device,
            "gpu": self.gpu,
            "run": self.n,
            **dict(self.parameters),
        }
        return " ".join(shlex.quote(f"{name}={value}") for name, value in given.items())

    @property
    def needs(self):
        """Files that must exist before it can run, beyond the default environment: its engine's own, and the run that it comes after."""
        home = backends.prefix(backends.get(self.backend), self.device, self.option)
        environment = [] if home == Path(sys.prefix) else [os.path.relpath(home / "ready", ROOT)]
        return environment + ([replace(self, experiment=self.after, after="").csv] if self.after else [])

    @property
    def python(self):
        """The interpreter of the environment that the engine's option needs."""
        return os.path.relpath(
            backends.prefix(backends.get(self.backend), self.device, self.option) / "bin" / "python", ROOT
        )


def load(overrides=None):
    """study.yaml as a dict, `overrides` on top; ValueError for a key that study.yaml does not have.

    For experiments an override names those to keep: `experiments="latency quality"`.
    """
    study = inputs.study()
    for key, value in (overrides or {}).items():
        naming.choose("key of study.yaml", key, study)
        study[key] = _kept(study[key], value) if key == "experiments" else value
    return study


def _kept(experiments, names):
    return {
        naming.choose("experiment of study.yaml", name, experiments): experiments[name]
        for name in str(names).split()
    }


def device(study):
    """('cpu' or 'cuda', slug) of the device that `study` asks for: this machine's, or the one named as `gpu`, which a run makes sure of where it runs."""
    if study["gpu"] != "auto":
        return "cpu" if study["device"] == "cpu" else "cuda", str(study["gpu"])
    return devices.device_of(study["device"], "auto")


def engines(study, kind):
    """Engine -> options to measure on a device of this kind: those asked for (`_asked`), else all that are installed here."""
    asked = str(study["engines"]).split()
    if asked:
        return _asked(asked, kind)
    installed = {name: backends.ready(name, kind) for name in backends.names()}
    return {name: options for name, options in installed.items() if options}


def _asked(words, kind):
    """Engine -> options for words such as `vllm` (its options, but those on request and those that need an environment of their own that is not there) and
    `transformers/gptq-int4` (this option, whose environment will be made). ValueError naming what exists for a name that does not."""
    wanted = {}
    for word in words:
        name, _, option = word.partition("/")
        engine, chosen = backends.get(name), wanted.setdefault(name, set())
        if option:
            chosen.add(backends.option(engine, option, kind))
        else:
            own, home = backends.options(engine, kind), backends.environment(engine, kind)
            if not own:
                raise ValueError(backends.missing(name, kind))
            usual = [o for o in own if not backends.on_request(engine, kind, o)]
            chosen |= {
                o
                for o in usual
                if backends.environment(engine, kind, o) == home or backends.missing(name, kind, o) is None
            }
    return {
        name: [o for o in backends.options(backends.get(name), kind) if o in chosen]
        for name, chosen in wanted.items()
    }


def measured_options(words, n, offered):
    """Those of the options `offered` that the n-th repeat measures: `words` has one of WHICH per repeat, the last for all further ones."""
    word = words[min(n, len(words)) - 1]
    return WHICH[naming.choose("choice of options in study.yaml", word, WHICH)](offered)


def plan(study):
    """Every Run that `study` asks for on this machine, each on one device: first repeats of all engines before second ones of any."""
    kind, gpu = device(study)
    runs = []
    for n in range(1, int(study["repeats"]) + 1):
        for name, about in study["experiments"].items():
            able = {
                name: offered
                for name, offered in engines(study, kind).items()
                if backends.can(name, about.get("needs", "load"))
            }
            for backend, offered in able.items():
                for option in measured_options(about["options"], n, offered):
                    told = (
                        tuple(about["parameters"].items()),
                        about.get("after", ""),
                        about.get("notebook", name),
                    )
                    runs += [
                        Run(name, backend, option, model, kind, gpu, n, *told) for model in study["models"]
                    ]
    return [replace(run, n=_number(run)) for run in runs]


def _number(run):
    """The number that the repeat `run.n` of a planned run gets: those taken by hand-started runs on several devices are passed over, in every experiment,
    so that the runs of one repeat keep the same number."""
    every = inputs.study()["experiments"]
    own = (
        n
        for n in itertools.count(1)
        if all(store.devices(replace(run, experiment=name, n=n).id) < 2 for name in every)
    )
    return next(itertools.islice(own, run.n - 1, None))


def expected_seconds(runs):
    """How long each of `runs` will take, from the sidecars of the same configuration wherever it was measured, else their mean."""
    guesses = {run: _span(run) for run in runs}
    known = [span for span in guesses.values() if span]
    usual = sum(known) / len(known) if known else 60
    return {run: span or usual for run, span in guesses.items()}


def _span(run):
    pattern = f"{run.experiment}-{naming.safe(run.model)}-{run.option}-*.json"
    abouts = [json.loads(file.read_text()) for file in (RESULTS / run.backend).glob(pattern)]
    spans = [datetime.fromisoformat(a["ended"]) - datetime.fromisoformat(a["started"]) for a in abouts]
    return sum(span.total_seconds() for span in spans) / len(spans) if spans else None


def watch(runs):
    """Draw a progress bar with the time left until all of `runs` have their CSV; meant for a daemon thread.

    It looks every two seconds and redraws only when a run has ended: a bar that keeps a core awake would be in the measurement.
    """
    expected = expected_seconds(runs)
    form = "{desc} |{bar}| {percentage:3.0f} %, {elapsed} gone, {remaining} left"
    with tqdm(total=round(sum(expected.values())), bar_format=form, mininterval=0) as bar:
        while bar.n < bar.total:
            done = [run for run in runs if store.path(run.id).exists()]
            bar.n = round(sum(expected[run] for run in done))
            bar.set_description_str(f"{len(done)} of {len(runs)} runs")
            seen = len(done)
            while bar.n < bar.total and seen == sum(store.path(run.id).exists() for run in runs):
                sleep(2)


def left_out(kind):
    """Why engines, or some of their options, were not measured on a device of this kind: one sentence for all that run elsewhere, one line for
    each of the others."""
    elsewhere = [name for name in backends.names() if kind not in backends.get(name).DEVICES]
    others = {name: backends.absent(name, kind) for name in backends.names() if name not in elsewhere}
    lines = [" ".join(reasons) for reasons in others.values() if reasons]
    return lines + ([f"Not for a {kind}: {', '.join(elsewhere)}."] if elsewhere else [])


def report(study):
    """The result table, what failed and why, and where the page is, as text."""

    runs = plan(study)
    failed = [run for run in runs if not store.path(run.id).exists()]
    lines = [html.text(latency_tables.latency(store.load())), ""]
    lines += [f"- {sentence}" for sentence in left_out(device(study)[0])]
    lines += [
        f"FAILED {run.id}: {run_notebook.reason(run.id)} (whole traceback: {paths.log(run.id)})"
        for run in failed
    ]
    page = SITE / "index.html"
    lines += [
        "",
        f"The page: {os.path.relpath(page, ROOT)}" if page.exists() else "The page has not been built.",
    ]
    return "\n".join(lines), not failed


if __name__ == "__main__":
    text, complete = report(load(dict(a.split("=", 1) for a in sys.argv[1:])))
    print(text)
    sys.exit(not complete)
