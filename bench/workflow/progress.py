"""What a running study shows: each result as it comes, how far it is, how long it will take; and how it is
stopped."""

import logging
import signal
import sys
import threading
from collections.abc import Sequence
from time import monotonic, sleep

import psutil
from tqdm import tqdm

from bench import paths
from bench.machine import neighbours
from bench.paths import ROOT
from bench.workflow import costs, durations, plan, report
from bench.workflow.runs import Run
from llm_measured.core.definitions import Fields

LOOK_S = 2  # between two looks at the files: a loop that keeps a core busy would be in the measurement
REDRAW_S = 10  # on a terminal; in a log a bar would be one more line, so there it comes with results only
NEVER_S = float("inf")
LEAST_LEFT = 0.1  # a run that takes longer than expected still needs this share of what was expected


def has_ended(run: Run) -> bool:
    """Whether the run is measured, or its job has ended without a CSV."""
    return run.measured or (ROOT / run.ended).exists()


class Waits:
    """Sentences on what runs of this study wait for, each once, and the first warning of a busy machine: each
    result says on its own line whether it was disturbed."""

    def __init__(self) -> None:
        self.shown, self.warned = neighbours.told(), False  # what a run that was killed has left behind

    def new(self) -> str:
        """The sentence that has not been shown; empty where no run waits, or that is known."""
        told = neighbours.told()
        if told == self.shown:
            return ""
        self.shown, (_, sentence) = told, told
        if sentence.startswith(neighbours.WARNING):
            if self.warned:
                return ""
            self.warned = True
        return sentence


def seconds_left(runs: Sequence[Run], running_s: float) -> float:
    """Seconds until all of `runs` have ended, the first open one having run for `running_s`; 0 only if none
    is open."""
    expected = durations.expected_s(runs)
    left = [expected[run] for run in runs if not has_ended(run)]
    return max(left[0] - running_s, LEAST_LEFT * left[0]) + sum(left[1:]) if left else 0.0


def words(seconds: float) -> str:
    """`seconds` as a reader waits for them: `50 s`, `7 min`; never nothing."""
    return f"{max(10, round(seconds, -1)):.0f} s" if seconds < 90 else f"{round(seconds / 60):.0f} min"


def heading(config: Fields, runs: Sequence[Run]) -> str:
    """What is going to be measured, in one line."""
    engines, options = {run.backend for run in runs}, {(run.backend, run.option) for run in runs}
    names = " ".join(config["experiments"])
    what = f"Measuring {names}; engines: {len(engines)}, with their options: {len(options)}"
    rounds = (
        f"rounds: {config['rounds']}"
        if config["rounds"]
        else f"in rounds until {config['budget']} min are spent"
    )
    rest = " The rest (other experiments, every option): make study ALL=1" if config["first_only"] else ""
    return f"{what}; {rounds}.{rest}"


def watch(config: Fields) -> None:
    """Print the result of each run of the study `config` as it ends, below them a bar with the time left;
    until all have ended."""
    runs, since, waits = plan.plan(config), monotonic(), Waits()
    shown = {run.id for run in runs if has_ended(run)}
    _say(heading(config, runs))
    with tqdm(total=len(runs), initial=len(shown), mininterval=0, bar_format="{desc}") as bar:
        while len(shown) < len(runs):
            left = words(seconds_left(runs, monotonic() - since))
            bar.bar_format = "{n_fmt} of {total_fmt} runs |{bar}| {elapsed} gone, about " + left + " left"
            bar.refresh()
            new = _newly_ended(runs, shown, REDRAW_S if bar.fp.isatty() else NEVER_S, waits)
            for run in new:
                _say(report.row(run))
                shown.add(run.id)
            costs.drop(new, [run for run in runs if not has_ended(run)])
            runs, since = (plan.plan(config), monotonic()) if new else (runs, since)
            bar.total, bar.n = len(runs), sum(run.id in shown for run in runs)
        bar.bar_format = "{n_fmt} of {total_fmt} runs |{bar}| {elapsed} gone; now what is drawn from new ones"
        bar.refresh()


def _say(sentence):
    """Print a line above the bar, at once in a log too."""
    tqdm.write(sentence)
    sys.stdout.flush()


def _newly_ended(runs, shown, patience_s, waits):
    """Those of `runs` that are not among the names `shown` and have ended, as soon as there is one; none
    after so many seconds. What they wait for meanwhile is said."""
    begun = monotonic()
    while monotonic() - begun < patience_s:
        if sentence := waits.new():
            _say(sentence)
        if new := [run for run in runs if run.id not in shown and has_ended(run)]:
            return new
        sleep(LOOK_S)
    return []


STOPPING = threading.Event()


def is_stopped() -> bool:
    """Whether this study is to stop."""
    return STOPPING.is_set()


def started(config: Fields) -> None:
    """Begin to watch the study in the background, and let SIGTERM and Ctrl-C end it and everything that it
    runs at once."""
    threading.Thread(target=watch, args=(config,), daemon=True).start()

    def stop(number: int, _: object) -> None:
        STOPPING.set()
        # Snakemake would say about every job that it was killed.
        logging.disable(logging.CRITICAL)
        for process in psutil.Process().children(recursive=True):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def stopped(config: Fields, since: float) -> str:
    """One line on a study that was stopped: how many runs were not started, how many interrupted; `since`:
    when it began."""
    open_runs = [run for run in plan.plan(config) if not run.measured]
    logs = [ROOT / paths.log(run.id).with_suffix(".txt") for run in open_runs]
    begun = sum(log.exists() and log.stat().st_mtime >= since for log in logs)
    what = f"Stopped. Runs not started: {len(open_runs) - begun}; interrupted: {begun}."
    return f"{what} The same command goes on with them."
