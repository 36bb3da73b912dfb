"""The half hour of a GPU: a list of notebooks, one after the other, until the budget is spent; the next call
goes on where this one ended.

    python -m bench.workflow.gpu_matrix [budget=600] [repeats=1] [list=data/gpu-matrix.txt] [device=auto]
        [archive=FILE]

as `make gpu-matrix BUDGET=600` does. Every step runs in a process of its own, writes its results itself, and
costs only itself if it fails or hangs. logs/gpu-matrix.json keeps what has ended; without it, what has its
CSV is not measured again. After every step `archive` (a .tar.gz) has all results and logs so far, for a
machine that may be gone before they are fetched. Budgets count from BENCH_STARTED (seconds since 1970), where
that is set: node.sh unpacks and installs first.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench import backends, files, naming, paths
from bench.backends.common import checkpoints
from bench.machine import devices, gpu, identity, neighbours, sampler
from bench.observations import store
from bench.paths import ROOT
from bench.workflow import archive, bounded, run_notebook

LIST = ROOT / "data" / "gpu-matrix.txt"
STATE = ROOT / "logs" / "gpu-matrix.json"
EXPECT_S = 60.0
ATTEMPTS = 2  # how often a step may be stopped by the end of a budget before it counts as failed
# A step that takes so many times what it expects hangs: the rest of the budget is for the others.
LONGEST = 2.0
# What a sweep may take before its first batch and after its last one: the kernel's start, loading, compiling,
# the GEMM peaks of both ends, idle power.
END_S = 160.0


@dataclass(frozen=True)
class Step:
    """One line of the list: the notebook (or `weights`), its parameters, the seconds that must be left, the
    repeat."""

    notebook: str
    parameters: tuple
    expect_s: float
    n: int = 1

    @property
    def name(self):
        """The line as it is shown and kept."""
        words = " ".join(f"{key}={value}" for key, value in self.parameters)
        return f"{self.notebook} {words}" + (f" run={self.n}" if self.n > 1 else "")


def read(file, repeats=1):
    """Steps of a list, repeat after repeat; ValueError naming the line that cannot be read.

    `weights` is done once whatever the repeats.
    """
    notebooks = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    steps = []
    for number, line in enumerate(Path(file).read_text(encoding="utf-8").splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            notebook = naming.choose("notebook", words[0], ["weights", *notebooks])
            parameters = dict(word.split("=", 1) for word in words[1:])
            expect_s = float(parameters.pop("expect_s", EXPECT_S))
        except ValueError as failure:
            raise ValueError(
                f"{file}, line {number}: {failure} A line is: notebook parameter=value …"
            ) from None
        steps.append(Step(notebook, tuple(parameters.items()), expect_s))
    rounds = [
        [Step(s.notebook, s.parameters, s.expect_s, n) for s in steps if n == 1 or s.notebook != "weights"]
        for n in range(1, int(repeats) + 1)
    ]
    return [step for each in rounds for step in each]


class Matrix:
    """The steps on one device, and what has become of them: name -> {state, seconds, reason, attempts}."""

    def __init__(self, steps, device="auto", state=STATE, archive=""):
        self.steps, self.file, self.archive = steps, Path(state), archive
        self.run_ids = {}  # step's name -> what it measures, once that is known
        self.device, self.gpu = devices.device_of(device, "auto")
        self.known = json.loads(self.file.read_text()) if self.file.exists() else {}

    def left(self):
        """Steps that have neither ended nor failed."""
        return [step for step in self.steps if self._of(step)["state"] not in ("ended", "failed")]

    def _of(self, step):
        return {"state": "", "attempts": 0} | self.known.get(step.name, {})

    def run(self, budget_s):
        """Carry out what is left within `budget_s` seconds; a step that expects more than is left is not
        begun."""
        end = time.monotonic() + budget_s
        neighbours.adopt_orphans()
        # Where nobody holds the driver open, it starts anew for every question, which takes seconds.
        self.held = sampler.gpus(gpu.used()) if self.device == "cuda" else []
        if count := bounded.end_noted(self.file.with_suffix(".running.json")):
            print(f"ended {count} processes that an earlier call had left behind", flush=True)
        for step in self.left():
            left_s = end - time.monotonic()
            if left_s < step.expect_s:
                print(
                    f"not begun: {step.name} (expects {step.expect_s:.0f} s, {max(left_s, 0):.0f} s are "
                    "left)",
                    flush=True,
                )
                continue
            self._one(step, end)
        return self.left()

    def _one(self, step, end):
        before, start = self._of(step), time.monotonic()
        # A step that takes the whole machine down with it is found begun, and counts as an attempt.
        self._keep(step, "begun", 0.0, "the call ended before it did", before["attempts"] + 1)
        try:
            state, reason = self._carry_out(step, end)
        except (ValueError, RuntimeError, OSError) as failure:
            state, reason = "failed", str(failure)
        if state == "stopped" and before["attempts"] + 1 >= ATTEMPTS:
            state, reason = "failed", f"{reason} ({ATTEMPTS} times)"
        seconds = time.monotonic() - start
        self._keep(step, state, seconds, reason, before["attempts"] + 1)
        print(f"{state} in {seconds:.1f} s: {step.name}{': ' + reason if reason else ''}", flush=True)

    def _keep(self, step, state, seconds, reason, attempts):
        self.known[step.name] = {
            "state": state,
            "seconds": round(seconds, 1),
            "reason": reason,
            "attempts": attempts,
            "run": self.run_ids.get(step.name, ""),
        }
        files.write_whole(self.file, json.dumps(self.known, indent=1) + "\n")
        if self.archive and state != "begun":
            runs = [about["run"] for about in self.known.values() if about.get("run")]
            archive.write(self.archive, ROOT / paths.LOGS, runs)

    def _carry_out(self, step, end):
        """(state, reason) of a step: `ended`, `failed` or `stopped`."""
        cut = min(end, time.monotonic() + LONGEST * step.expect_s)
        late = f"it had not ended after {LONGEST * step.expect_s:.0f} s, twice what it expects"
        unended = ("stopped", "the budget ended") if cut == end else ("failed", late)
        if step.notebook == "weights":
            module = "bench.workflow.gpu_matrix"
            command = [_python(None), "-m", module, "weights", dict(step.parameters)["model"]]
            code, words = self._call(command, cut)
            return unended if code is None else ("failed" if code else "ended", words if code else "")
        parameters = self._parameters(step)
        run = self.run_ids[step.name] = self._identifier(step, parameters)
        if store.path(run).exists():
            return "ended", "measured already"
        if step.notebook == "batching":  # its run is whole or lost: it ends before this call does
            parameters["limit_s"] = max(1.0, round(cut - time.monotonic() - END_S, 1))
        assignments = [f"{name}={value}" for name, value in parameters.items()]
        python = _python(parameters.get("backend"), self.device, parameters.get("option"))
        notebook = f"notebooks/{step.notebook}.ipynb"
        command = [python, "-m", "bench.workflow.run_notebook", notebook, run, *assignments]
        code, _ = self._call(command, cut)
        run_notebook.keep(run)
        if store.path(run).exists():
            return "ended", ""
        return unended if code is None else ("failed", run_notebook.reason(run))

    def _call(self, command, end):
        """`bounded.call`; what is running is noted beside the state."""
        log, note = ROOT / paths.LOGS / "gpu-matrix.txt", self.file.with_suffix(".running.json")
        return bounded.call(command, end, log, note)

    def _parameters(self, step):
        """The notebook's parameters: those of the line, the device, the repeat, and the engine that
        `fastest:k` stands for."""
        parameters = dict(step.parameters)
        kind, _, place = parameters.get("backend", "").partition(":")
        if kind == "fastest":
            parameters["backend"], parameters["option"] = _fastest(
                self._latency(parameters["model"]), int(place), parameters["model"]
            )
        elif kind and not parameters.get("option"):
            parameters["option"] = backends.option(backends.get(kind), "", self.device)
        return {"device": self.device, "gpu": self.gpu, **parameters, "run": step.n}

    def _identifier(self, step, parameters):
        return identifier(step, parameters, self.gpu)

    def _latency(self, model):
        """Files of the latency runs of this list."""
        steps = [
            s for s in self.steps if s.notebook == "latency" and dict(s.parameters).get("model") == model
        ]
        return dict.fromkeys(store.path(self._identifier(s, self._parameters(s))) for s in steps)


def _fastest(csvs, place, model):
    """(backend, option) at `place` of the latency runs `csvs` by their median of output tokens/s;
    ValueError where too few ended."""
    runs = store.load([file for file in csvs if file.exists()])
    rates = runs.groupby(["backend", "option"])["output_tokens_per_s"].median().sort_values(ascending=False)
    if len(rates) < place:
        raise ValueError(
            f"Only {len(rates)} engines of this list have a latency run of {model}, so none is number "
            f"{place}."
        )
    return rates.index[place - 1]


def identifier(step, parameters, gpu):
    """The path without its suffix of what a step measures on the GPU of this slug."""
    if step.notebook == "hardware":
        return store.roofs_id(gpu, identity.host(), step.n)
    experiment = step.notebook
    if experiment == "latency" and parameters.get("server", "").lower() == "true":
        experiment = "served"
    if experiment == "batching" and float(parameters.get("memory_limit_gb", 0)):
        experiment = "memory"
    names = (parameters[name] for name in ("backend", "model", "option"))
    return naming.run_id(experiment, *names, gpu, identity.host(), step.n)


def _python(backend, device="cpu", option=None):
    """The interpreter of the environment that an engine's option needs; this one without an engine.

    RuntimeError where that environment is not there.
    """
    home = backends.prefix(backends.get(backend), device, option) if backend else Path(sys.prefix)
    if home == Path(sys.prefix):
        return sys.executable
    python = home / "bin" / "python"
    if not python.exists():
        raise RuntimeError(backends.missing(backend, device, option) or f"There is no {python}.")
    return str(python)


def main(*assignments):
    if assignments[:1] == ("weights",):
        checkpoints.checkpoint(assignments[1])
        return
    chosen = {"budget": "600", "repeats": "1", "list": str(LIST), "device": "auto", "archive": ""}
    for word in assignments:
        key, _, value = word.partition("=")
        chosen[naming.choose("word of gpu_matrix", key, chosen)] = value
    to = chosen["archive"] and str(Path(chosen["archive"]).resolve())
    os.chdir(ROOT)
    passed_s = max(0.0, time.time() - float(os.environ.get("BENCH_STARTED") or time.time()))
    start = time.monotonic() - passed_s
    matrix = Matrix(read(chosen["list"], chosen["repeats"]), chosen["device"], archive=to)
    left = matrix.run(float(chosen["budget"]) - passed_s)
    done = len(matrix.steps) - len(left)
    print(
        f"{done} of {len(matrix.steps)} steps are done after {time.monotonic() - start:.0f} s; another call "
        "goes on from here."
    )


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (ValueError, RuntimeError, FileNotFoundError) as failure:
        sys.exit(str(failure))
