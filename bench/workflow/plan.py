"""The plan that the Snakefile carries out: which runs study.yaml asks for on this machine, in which order.

python -m bench.workflow.plan in-budget RUN COMMAND … -- [key=value …]    COMMAND, if RUN is in the plan as of
now
"""

import itertools
import json
import math
import os
import shlex
import sys
from dataclasses import replace

import yaml

from bench import backends, inputs, naming, paths
from bench.machine import devices
from bench.observations import store
from bench.paths import ROOT
from bench.workflow import auto, durations
from bench.workflow.options import measured_options
from bench.workflow.runs import make

AUTO, BY_BUDGET = "auto", "budget"  # values of `repeats` beside a number of rounds
# Keys of study.yaml that are numbers: of which type, and which words stand beside them.
NUMBERS = {"budget": (float, ()), "most_runs": (int, ()), "repeats": (int, (AUTO, BY_BUDGET))}


def load(overrides=None):
    """study.yaml as a dict, `overrides` on top, with what they mean worked out; ValueError for a key that
    study.yaml does not have.

    `experiments` keeps those that are asked for: those named in `overrides`, of which none waits for a second
    round, all with `all`, else those of the first question, whose options replace their own. `rounds` is
    their number, None where `budget` decides, or with `auto` the intervals (`bench.workflow.auto`); `minutes`
    is then what a budget that is asked for allows, else None.
    """
    study = inputs.study()
    overrides = dict(overrides or {})
    for key in overrides:
        naming.choose("key of study.yaml", key, study)
    names = overrides.pop("experiments", None)
    study |= overrides
    study["all"] = str(study["all"]).lower() in ("true", "1")
    study["first_only"] = names is None and not study["all"]
    every = study["experiments"]
    if names is not None:
        names = [naming.choose("experiment of study.yaml", name, every) for name in str(names).split()]
        study["experiments"] = {name: _at_once(every[name]) for name in names}
    elif study["first_only"]:
        first = study["first_question"].items()
        study["experiments"] = {
            name: every[name] | {"options": {"first_round": which, "later_rounds": which}}
            for name, which in first
        }
    for key, (kind, words) in NUMBERS.items():
        study[key] = _number_of(study[key], key, kind, words)
    study["auto"] = study["repeats"] == AUTO
    study["minutes"] = study["budget"] if study["auto"] and "budget" in overrides else None
    study["rounds"] = _rounds(study)
    return study


def _at_once(entry):
    """`entry`, an experiment of study.yaml that is asked for by name: its first round is never empty."""
    options = entry["options"]
    if options["first_round"] != "none":
        return entry
    return entry | {"options": options | {"first_round": options["later_rounds"]}}


def _number_of(value, key, kind, words=()):
    """The number above zero that `value` of the key `key` is, or one of `words`; ValueError naming both."""
    if value in words:
        return value
    try:
        number = kind(value)
    except (TypeError, ValueError):
        number = 0
    if 0 < number < math.inf:
        return number
    choice = " or ".join([f"a{' whole' if kind is int else ''} number above 0", *words])
    raise ValueError(f"{key} must be {choice}, not {value!r} (make study {key.upper()}=…).")


def _rounds(study):
    if study["auto"]:
        if study["most_runs"] < 2:
            raise ValueError(
                f"most_runs must be at least 2, as one run has no interval, not {study['most_runs']}."
            )
        return None
    if study["repeats"] == BY_BUDGET:
        return None if study["first_only"] else 1
    return study["repeats"]


def device(study):
    """('cpu' or 'cuda', slug) of the device that `study` asks for: this machine's, or the one named as `gpu`.

    A run on a device that is only named makes sure of it where it runs.
    """
    if study["gpu"] != "auto":
        return "cpu" if study["device"] == "cpu" else "cuda", str(study["gpu"])
    return devices.device_of(study["device"], "auto")


def engines(study, kind):
    """Engine -> options to measure on a device of this kind: those named (`_chosen`), else all that are
    installed here."""
    named = str(study["engines"]).split()
    if named:
        return _chosen(named, kind)
    installed = {name: backends.ready(name, kind) for name in backends.names()}
    return {name: options for name, options in installed.items() if options}


def _chosen(words, kind):
    """Engine -> options for words such as `vllm` (its options, but those on request and those that need an
    environment of their own
    that is not there) and `transformers/gptq-int4` (this option, whose environment will be made).

    ValueError naming what exists for a name that does not.
    """
    chosen = {}
    for word in words:
        name, _, option = word.partition("/")
        engine, options = backends.get(name), chosen.setdefault(name, set())
        if option:
            options.add(backends.option(engine, option, kind))
            continue
        own, home = backends.options(engine, kind), backends.environment(engine, kind)
        if not own:
            raise ValueError(backends.missing(name, kind))
        usual = [o for o in own if not backends.on_request(engine, kind, o)]
        options |= {
            o for o in usual
            if backends.environment(engine, kind, o) == home or backends.missing(name, kind, o) is None
        }  # fmt: skip
    return {
        name: [o for o in backends.options(backends.get(name), kind) if o in options]
        for name, options in chosen.items()
    }


def plan(study, generous=False):
    """Every Run that `study` asks for on this machine, each on one device, a whole round of all engines
    before the next one.

    Where the budget decides, later rounds end before the first run that would exceed it. A `generous` plan
    takes a machine whose speed
    is not known yet for faster than those that are (`durations.GENEROUS`): what then proves too much is not
    started.
    """
    if study["auto"]:
        return _with_predecessors(auto.plan(rounds(study), study, generous))
    if study["rounds"] is None:
        return list(_in_budget(study, generous))
    every = [_round(study, n) for n in range(1, study["rounds"] + 1)]
    return _with_predecessors(list(itertools.chain(*every)))


def choice(study):
    """Every run that the plan of `study` chooses from, whatever has failed or is spent by now."""
    if not study["auto"]:
        return plan(study, generous=True)
    return _with_predecessors(list(itertools.chain(*rounds(study))))


def rounds(study):
    """The runs that `REPEATS=auto` chooses from: a list per round, as many as it may take."""
    return [_round(study, n) for n in range(1, study["most_runs"] + 1)]


def first_round(study):
    """The runs that `study` measures whatever its budget is."""
    return _round(study, 1)


def _round(study, n):
    """The runs of the n-th round; of the first question those that are done soonest come first."""
    kind, gpu = device(study)
    offers, named, runs = engines(study, kind), _named(study), []
    for name, entry in study["experiments"].items():
        able = {
            engine: offered
            for engine, offered in offers.items()
            if backends.can(engine, entry.get("needs", "load"))
        }
        for engine, offered in able.items():
            chosen = offered if engine in named else measured_options(entry["options"], n, offered)
            runs += [
                make(name, engine, option, model, kind, gpu, n)
                for option in chosen
                for model in study["models"]
            ]
    runs = [replace(run, n=_number(run)) for run in runs]
    expected = durations.expected_s(runs) if study["first_only"] else {}
    return sorted(runs, key=lambda run: expected.get(run, 0))


def _named(study):
    """Engines of which the first question is asked for options by name: all of these are measured."""
    words = str(study["engines"]).split() if study["first_only"] else []
    return {word.partition("/")[0] for word in words if "/" in word}


def _in_budget(study, generous):
    """The first round, then the runs of later ones for as long as the budget lasts."""
    first = first_round(study)
    left = study["budget"] * 60 - sum(durations.expected_s(first, generous).values())
    yield from first
    for n in itertools.count(2) if first else ():
        # What failed in the first round is not tried again in the next.
        runs = [run for run, before in zip(_ordered(study, n, first), first) if generous or before.measured]
        if not runs:
            return
        expected = durations.expected_s(runs, generous)
        for run in runs:
            left -= expected[run]
            if left < 0:
                return
            yield run


def _ordered(study, n, first):
    """The n-th round in the order of the first, whatever the times have become since."""
    place = {(run.experiment, run.backend, run.option, run.model): k for k, run in enumerate(first)}
    return sorted(_round(study, n), key=lambda run: place[run.experiment, run.backend, run.option, run.model])


def _with_predecessors(runs):
    """`runs`, each after the run that it reads, which is measured first where it neither exists nor is
    planned."""
    planned, found = set(runs), []
    for run in runs:
        before = run.predecessor
        if before and before not in planned and not before.measured:
            found.append(before)
        found.append(run)
    return list(dict.fromkeys(found))


def _number(run):
    """The number that the repeat `run.n` of a planned run gets.

    Those taken by hand-started runs on several devices are passed over, in every experiment, so that the runs
    of one repeat keep the
    same number.
    """
    every = inputs.study()["experiments"]
    own = (
        n
        for n in itertools.count(1)
        if all(store.devices(replace(run, experiment=name, n=n).id) < 2 for name in every)
    )
    return next(itertools.islice(own, run.n - 1, None))


def left_out(kind):
    """Why engines, or some of their options, are not measured on a device of this kind.

    One sentence for all that run elsewhere, one or more for each of the others.
    """
    elsewhere = [name for name in backends.usable() if kind not in backends.get(name).DEVICES]
    others = {name: backends.absent(name, kind) for name in backends.names() if name not in elsewhere}
    lines = [reason for reasons in others.values() for reason in reasons]
    return lines + ([f"Not for a {kind}: {', '.join(elsewhere)}."] if elsewhere else [])


def overrides(words):
    """`key=value` words as the overrides of `load`; what `as_words` has written is read as it was."""
    return {key: yaml.safe_load(value) for key, value in (word.split("=", 1) for word in words)}


def as_words(config):
    """Overrides of `load` as `key=value` words for a shell."""
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    return " ".join(shlex.quote(f"{key}={value}") for key, value in values.items())


def run_in_budget(identifier, *words):
    """Become the command among `words` if the plan, as of now, has the run; return if the budget has been
    spent, or the runs that are there are enough.

    What an earlier study has logged of the run goes then, for nobody misses it any more.
    """
    where = words.index("--")
    command, study = words[:where], load(overrides(words[where + 1 :]))
    if identifier in {run.id for run in plan(study)}:
        os.execv(command[0], command)
    for suffix in (".txt", ".ipynb"):
        (ROOT / paths.log(identifier).with_suffix(suffix)).unlink(missing_ok=True)
    if study["auto"]:
        auto.no_more(identifier, rounds(study))


if __name__ == "__main__":
    if sys.argv[1:2] != ["in-budget"]:
        sys.exit(__doc__)
    run_in_budget(*sys.argv[2:])
