"""`REPEATS=auto`: which runs of each configuration are still needed, and what has ended them.

The rule is `bench.analysis.repeats`. A study begins with runs of every configuration for as long as the rule
wants more; before each of them the plan is made again from what is there, so a study that was stopped goes on
where it was.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from bench import naming, paths
from bench.analysis import batching, latency, repeats, serving
from bench.definitions import Fields
from bench.observations import schema, store
from bench.paths import ROOT
from bench.workflow import durations
from bench.workflow.runs import Run

ENOUGH = "logs/enough"
IN_A_ROW = 2  # so many runs that fail one after the other end a configuration, the first one alone


@dataclass(frozen=True)
class Verdict:
    """What is known of one configuration: its runs that were begun, those to add, and why in a sentence."""

    name: str
    begun: tuple
    more: tuple
    sentence: str


def configurations(rounds: Sequence[Sequence[Run]]) -> dict[tuple, list[Run]]:
    """Configuration -> its runs by number, from lists of runs, one per round."""
    found = {}
    for run in itertools.chain(*rounds):
        found.setdefault((run.experiment, run.backend, run.option, run.model), []).append(run)
    return found


def plan(rounds: Sequence[Sequence[Run]], study: Fields, generous: bool = False) -> list[Run]:
    """The runs of `rounds` that `REPEATS=auto` needs as of now, in their order.

    A `generous` plan has all that may still be needed. With `minutes` it ends before the run of a later round
    that would exceed them.
    """
    verdicts = judge(rounds, study)
    groups = configurations(rounds)
    needed = {run for one in verdicts.values() for run in one.begun + one.more}
    if generous:
        needed |= {run for key, runs in groups.items() if verdicts[key].more for run in runs}
    runs = [run for run in itertools.chain(*rounds) if run in needed]
    kept = _within(runs, study, {runs[0] for runs in groups.values()}, generous)
    return [run for run in runs if run in kept]


def _within(runs, study, first, generous):
    """Those of `runs` for which the minutes last: what is measured, what is `first`, then in their order."""
    if study["minutes"] is None:
        return set(runs)
    expected = durations.expected_s(runs, generous)
    kept = {run for run in runs if run in first or run.measured}
    left = study["minutes"] * 60 - sum(expected[run] for run in kept)
    for run in (run for run in runs if run not in kept):
        left -= expected[run]
        if left < 0:
            break
        kept.add(run)
    return kept


def judge(rounds: Sequence[Sequence[Run]], study: Fields) -> dict[tuple, Verdict]:
    """Configuration (experiment, engine, option, model) -> its Verdict."""
    groups = configurations(rounds)
    measured = [run.csv for runs in groups.values() for run in runs if run.measured]
    requests = store.load(measured)
    return {key: _verdict(key, runs, requests, study) for key, runs in groups.items()}


def _verdict(key, runs, requests, study):
    name = " ".join(key[:3])
    begun = tuple(run for run in runs if run.measured or _failed(run))
    rest = [run for run in runs if run not in begun]
    lost = [not run.measured for run in begun]
    if lost[:1] == [True] or lost[-IN_A_ROW:] == [True] * IN_A_ROW:
        return Verdict(name, begun, (), "runs fail: no more follow, and it is not ranked.")
    ids = {run.id for run in begun}
    found = compared(key[0], requests[requests["run_id"].isin(ids)])
    if found is None or len(runs) == 1:
        done = sum(run.measured for run in begun)
        sentence = "one run: prompts or pairs are the sample here, not runs."
        return Verdict(name, begun, tuple(rest[: 1 - done]), sentence)
    more, sentence = _ruled(*found, len(begun), study["most_runs"])
    return Verdict(name, begun, tuple(rest[:more]), sentence)


def _ruled(table, keys, begun, most):
    """(how many runs to add, sentence) for the runs `table` of one configuration, of which `begun` were
    begun: as the widest of its intervals says."""
    if table.empty:
        none = f"none of {begun} runs counts" if begun else "no run yet"
        more = min(repeats.FEWEST if not begun else 1, most - begun)
        return more, f"{none}{'' if more else f'; the budget of {most} runs is spent'}."
    rows = repeats.plan(table, keys, latency.RATE, budget=most)
    rows = rows[rows["runs"] == rows["runs"].max()]  # a sweep's budget may leave its largest batches to few
    lost = rows[rows["state"] == repeats.LOST]
    widest = (lost if len(lost) else rows.sort_values("half_width_share", na_position="last")).iloc[-1]
    more = 0 if len(lost) else min(rows["more"].max(), most - begun)
    sentence = widest["sentence"]
    if not more and widest["state"] == repeats.AGAIN:
        sentence = f"{widest['runs']} of {begun} runs count; the budget of {most} runs is spent."
    where = [f"{name} {widest[name]:g}" for name in keys if name in _POINTS and pd.notna(widest[name])]
    return int(more), f"{', '.join(where)}: {sentence}" if where else sentence


_POINTS = [*schema.SHAPE, "concurrency", "request_rate"]


def compared(experiment: str, requests: pd.DataFrame) -> tuple[pd.DataFrame, list[str]] | None:
    """(one row per run and point that is compared, its keys) of one configuration's `requests`; None for an
    experiment whose sample are not runs.

    Only the engine's latest version counts. Sweeps have a point per shape of a batch, load tests one per
    level in steady state.
    """
    latest = requests.loc[requests["started"] == requests["started"].max(), "backend_version"]
    own = requests[requests["backend_version"].isin(latest)]
    if experiment in ("latency", "served"):
        return latency.runs(own), latency.VERSIONED
    if experiment == "batching":
        return batching.of_runs(own), [*schema.CONFIGURATION, *schema.SHAPE]
    if experiment == "serving":
        levels = serving.of_runs(own)
        return levels[levels["state"] == serving.STEADY], [*schema.CONFIGURATION, *_POINTS[-2:]]
    return None


def _failed(run):
    """Whether the run was begun in this study and has ended without a CSV."""
    log = ROOT / paths.log(run.id).with_suffix(".txt")
    return not run.measured and (ROOT / run.ended).exists() and log.exists()


def sentences(rounds: Sequence[Sequence[Run]], study: Fields) -> list[str]:
    """What has ended each configuration, one sentence each: the interval, or which budget."""
    planned = set(plan(rounds, study))
    return [
        f"{one.name}: {_minutes(one, study) if set(one.more) - planned else one.sentence}"
        for one in judge(rounds, study).values()
    ]


def _minutes(one, study):
    """The sentence of a configuration for which the minutes did not last."""
    so_far = one.sentence.rpartition(";")[0] or one.sentence
    budget = f"the budget of {study['minutes']:g} min is spent"
    return f"{so_far}; {budget} before ± {repeats.WITHIN * 100:g} % is reached."


def enough(run: Run) -> str:
    """The file, relative to the repository, that says that no more runs of `run`'s configuration follow."""
    option = f"{run.experiment}-{naming.safe(run.model)}-{run.option}-{run.gpu}"
    return f"{ENOUGH}/{run.backend}/{option}"


def no_more(identifier: str, rounds: Sequence[Sequence[Run]]) -> None:
    """Say so of the configuration of the run `identifier`: what is planned of it need not ask again."""
    for run in itertools.chain(*rounds):
        if run.id == identifier:
            (ROOT / enough(run)).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / enough(run)).touch()


def before(runs: Sequence[Run]) -> dict[Run, Run]:
    """Run -> the one of its configuration that must have ended first, of those not measured.

    What is still needed is only known then, wherever runs go beside each other.
    """
    groups = configurations([[run for run in runs if not run.measured]])
    return {run: last for group in groups.values() for last, run in itertools.pairwise(group)}
